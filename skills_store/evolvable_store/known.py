"""What a process keeps of the text index: one state of it, read once and used by every search until the next change."""

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from evolvable_store import postings
from evolvable_store.beginnings import Beginnings
from evolvable_store.ranking import Query
from evolvable_store.seen import Seen, Visible
from evolvable_store.texts import NUMBERS
from evolvable_store.words import asked

if TYPE_CHECKING:
    from evolvable_store.driver import Connection

_MOST_SEEN = 64  # combinations of kind and scopes that are remembered


@dataclass(slots=True)
class _State:
    """One state of the index. One thread uses it at a time.

    stamp: the changes applied and how often documents were settled, which makes no change.
    """

    stamp: tuple[int, int]
    documents: int
    waiting: postings.Waiting
    beginnings: Beginnings
    reader: postings.Reader
    seen: dict[Visible, Seen] = field(default_factory=dict)

    @classmethod
    def of(cls, db: "Connection", stamp: tuple[int, int], waiting: postings.Waiting, beginnings: Beginnings) -> Self:
        """Returns what the connection sees. waiting, beginnings: an earlier state's, which are brought in step."""
        waiting.refresh(db)
        documents, last = db.execute("SELECT count(*), ifnull(max(document), 0) FROM entry").fetchone()
        return cls(
            stamp, documents, waiting, beginnings.refreshed(db, last), postings.Reader(waiting, NUMBERS.values())
        )

    @classmethod
    def nothing(cls) -> Self:
        """Returns what is known before the index was read."""
        waiting = postings.Waiting()
        return cls((-1, 0), 0, waiting, Beginnings(), postings.Reader(waiting, ()))

    def ask(self, db: "Connection", query: str, visible: Visible) -> tuple[Query, Seen]:
        """Returns the query, and the documents that may be seen."""
        if visible not in self.seen:
            if len(self.seen) > _MOST_SEEN:
                self.seen.clear()
            self.seen[visible] = Seen(db, visible)
        return Query(db, asked(query), self.documents, self.reader), self.seen[visible]


class Known:
    """The newest state that was read. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._state = _State.nothing()

    def ask(self, db: "Connection", query: str, visible: Visible) -> tuple[Query, Seen]:
        """Returns the query against the state that `db` sees, and the documents that may be seen there."""
        with self._lock_here():
            return self._at(db).ask(db, query, visible)

    def beginnings(self, db: "Connection") -> Beginnings:
        """Returns what names and triggers begin with in the state that `db` sees."""
        with self._lock_here():
            return self._at(db).beginnings

    def _lock_here(self) -> threading.Lock:
        if self._pid != os.getpid():  # forked; another thread of the parent may have held it
            self._lock, self._pid = threading.Lock(), os.getpid()
        return self._lock

    def _at(self, db: "Connection") -> _State:
        """Returns the state that `db` sees. Only for who holds the lock."""
        stamp = _stamp(db)
        if stamp < self._state.stamp:  # another thread has seen more since; what it knows stays
            return _State.of(db, stamp, postings.Waiting(), Beginnings())
        if stamp > self._state.stamp:
            self._state = _State.of(db, stamp, self._state.waiting, self._state.beginnings)
        return self._state

    def forget(self) -> None:
        """Forgets the state: the file is another."""
        self._state = _State.nothing()


def _stamp(db: "Connection") -> tuple[int, int]:
    noted = dict(db.execute("SELECT key, value FROM state WHERE key IN ('applied', 'settled')").fetchall())
    return int(noted.get("applied", 0)), int(noted.get("settled", 0))
