"""The state of remotes: how far the library and a git repository have been synchronised."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from evolvable_store.resource import USER_SCOPE, Ref
from evolvable_store.storage.sqlite_file import SqliteRepository


@dataclass(frozen=True, slots=True)
class RemoteState:
    """How far a library and a remote are synchronised.

    library: the name of this library in the remote's commits. tip: the commit that equals the
    library at `sequence`, except for resources that wait; '' for none yet. seen: the commit of the
    remote that was last merged or pushed.
    """

    name: str
    url: str
    library: str
    tip: str = ""
    seen: str = ""
    sequence: int = 0
    at: str = ""


@dataclass(frozen=True, slots=True)
class RemoteWaiting:
    """A resource whose content in the tip is not the library's.

    base, theirs: the tree in git that the sides have in common, and that of the tip; '' for none.
    proposal: the one that waits, or waited, for a person; None where the content was refused, or
    not sent. here: whether a later change here gave the tip the library's content again.
    """

    ref: Ref
    base: str
    theirs: str
    proposal: int | None
    here: bool = False

    @property
    def is_unsent(self) -> bool:
        """Whether the library's content was held back, and the tip has the common one."""
        return self.proposal is None and self.base == self.theirs


class Remotes(SqliteRepository):
    """The remotes that a library was synchronised with."""

    def state(self, name: str, url: str) -> RemoteState:
        """Return the state of a remote, an empty one before the first synchronisation."""
        query = (
            "SELECT name, url, library, tip, seen, sequence, at FROM remote WHERE name = ? "
            "AND url = ?"
        )
        for state in self._all(RemoteState, query, name, url):
            return state
        # The name of the library in commits: random, since two people's libraries may sync with one
        # repository.
        return RemoteState(name, url, os.urandom(8).hex())

    def all(self) -> list[RemoteState]:
        """Return the states of all remotes."""
        return self._all(
            RemoteState,
            "SELECT name, url, library, tip, seen, sequence, at FROM remote ORDER BY name, url",
        )

    def waiting(self, state: RemoteState) -> list[RemoteWaiting]:
        """Return the resources of a remote whose content in the tip is not the library's."""
        query = (
            "SELECT ref, base, theirs, proposal, here FROM remote_waiting WHERE name = ? "
            "AND url = ? ORDER BY ref"
        )
        return self._all(_as_waiting, query, state.name, state.url)

    def save(self, state: RemoteState, waiting: Iterable[RemoteWaiting]) -> None:
        """Store a state with everything that waits."""
        with self._backend.writing() as db:
            save_remote(db, state, waiting)

    def forget(self, name: str) -> None:
        """Remove the states of a remote."""
        with self._backend.writing() as db:
            db.execute("DELETE FROM remote WHERE name = ?", (name,))
            db.execute("DELETE FROM remote_waiting WHERE name = ?", (name,))


def save_remote(db: Any, state: RemoteState, waiting: Iterable[RemoteWaiting]) -> None:
    """Store a state with everything that waits, inside a transaction."""
    row = (state.name, state.url, state.library, state.tip, state.seen, state.sequence, state.at)
    db.execute(
        "INSERT OR REPLACE INTO remote (name, url, library, tip, seen, sequence, at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        row,
    )
    # All rows are replaced with the state: they only mean something beside its tip.
    db.execute("DELETE FROM remote_waiting WHERE name = ? AND url = ?", (state.name, state.url))
    rows = [
        (
            state.name,
            state.url,
            str(entry.ref),
            entry.base,
            entry.theirs,
            entry.proposal,
            int(entry.here),
        )
        for entry in waiting
    ]
    db.executemany(
        "INSERT INTO remote_waiting (name, url, ref, base, theirs, proposal, here) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        rows,
    )


def _as_waiting(ref: str, base: str, theirs: str, proposal: int | None, here: int) -> RemoteWaiting:
    parsed = Ref.parse(ref)
    parsed = parsed if parsed.scope else parsed.within(USER_SCOPE)
    return RemoteWaiting(parsed, base, theirs, proposal, here == 1)
