"""The file of the text index: made, shared by all processes, and rebuilt when it is damaged.

What a process keeps of the text index: one state of it, read once and used by every search until
the next change.

Answers that cost something to get, kept beside the index: a judge's, by the question.
"""

import contextlib
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from evolvable_store.errors import DamagedFile, LibraryBusy, LibraryError, LibraryReadOnly
from evolvable_store.search import postings
from evolvable_store.search.analyzer import ANALYSIS, FIELD_NUMBERS
from evolvable_store.search.index_entries import IndexEntry, PrefixFilter, entries_of_documents
from evolvable_store.search.postings import VisibilityFilter, VisibleDocuments
from evolvable_store.storage import connection as driver
from evolvable_store.storage import translate_damage
from evolvable_store.storage.connection import Connection

if TYPE_CHECKING:
    from filelock import BaseFileLock

FORMAT = driver.DerivedFormat(
    application_id=0x45564C58,  # EVLX
    version=6,
    script=Path(__file__).with_name("index.sql"),
    tables=("entry", "phrase", "answer", "document", "posting", "rare"),
    # A row of postings takes several pages; with SQLite's own 4096 bytes they are read half as
    # fast.
    page_size=8192,
)

INDEX_FILE = f"index-{FORMAT.version}.db"
"""Each format has a file of its own, so servers of two versions do not make it again in turns."""

# Removed at the next start: each takes as much of the disk as the current one.
EARLIER_INDEX_FILES = ("index.db", "index-5.db")
"""The files of earlier formats."""

# After ten seconds an answer from an older index is better than none; the minute spares the
# searches after it.
BACKLOG_SECONDS, PATIENT_AGAIN_SECONDS = 10.0, 60.0
"""How long a search waits for another process that indexes many changes; and how long none does
after one in vain.
"""

_LOOK_SECONDS = 0.05  # between two looks whether the other process has indexed enough


class IndexFile:
    """The index of the library in `home`. Where that cannot be written it lies in a temporary
    folder instead.

    Safe to share between threads; opens it again in a forked child.
    """

    def __init__(self, home: Path, *, private: bool = False) -> None:
        self._home = home
        # Guards replacing the file: its identity, the idle connections, and the moment in between.
        self._lock = threading.Lock()
        self._patient_at = 0.0
        self._begin(home / INDEX_FILE)
        # A library on a read-only disk is still searched.
        if private or not os.access(home, os.W_OK):
            self._begin(self._private_copy())
        self._open_first()

    def _begin(self, path: Path) -> None:
        self.path = path
        self._pid = os.getpid()
        self._idle: list[Connection] = []
        self._identity: tuple[int, int] | None = None

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Lend a connection that sees one committed state. Raises DamagedFile, LibraryError."""
        with self._lent() as connection:
            # One read transaction for all queries of a search: they see one state.
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Lend a connection that holds the write lock; commits at the end.

        Raises DamagedFile, LibraryError.
        """
        with (
            self._lent() as connection,
            driver.ImmediateTransaction(connection, self.path),
            translate_damage(self.path),
        ):
            yield connection

    @contextlib.contextmanager
    def backlog(
        self, *, wait: bool = True, done: Callable[[], bool] = lambda: False
    ) -> Iterator[bool]:
        """Be the one process that indexes many changes for the body. Raise LibraryBusy while
        another one is.

        Yields whether this process holds the lock of it.

        wait: for the other one, for a while; when that was in vain, no more for a minute, as a
        search reads often. done: whether the other one has indexed what is needed: then the body
        runs too. One that made no progress meanwhile was stopped, and the body runs beside it.
        """
        # A lock of its own and not SQLite's: readers and short writes go on while somebody indexes
        # much.
        place = self.path.parent / "locks"
        place.mkdir(mode=0o700, exist_ok=True)
        lock = driver.file_lock(place / f"{self.path.stem}.lock")
        if not self._await_turn(lock, wait, done):
            raise LibraryBusy(
                "Another process is indexing the library.",
                "Searches find what it has indexed so far.",
            )
        try:
            yield lock.is_locked
        finally:
            lock.release()

    def _await_turn(self, lock: "BaseFileLock", wait: bool, done: Callable[[], bool]) -> bool:
        """Return whether the body of `backlog` runs: with the lock, or beside a process that
        stopped or did enough.
        """
        patient = wait and time.monotonic() >= self._patient_at
        # Compared at the end: a holder that made no progress for ten seconds was stopped.
        before = self._progress() if patient else ""
        deadline = time.monotonic() + BACKLOG_SECONDS
        while not _acquire(lock, _LOOK_SECONDS if patient else 0):
            if done():
                return True
            if not patient:
                return False
            if time.monotonic() >= deadline:
                self._patient_at = time.monotonic() + PATIENT_AGAIN_SECONDS
                return self._progress() == before
        self._patient_at = 0.0
        return True

    def _progress(self) -> str:
        with self.reading() as db:
            return read_state(db, "applied")

    @contextlib.contextmanager
    def _lent(self) -> Iterator[Connection]:
        self._forget_if_forked()
        # Remembered, because `replace` puts another list in its place while the connection is lent.
        idle = self._idle
        try:
            connection = idle.pop()
        except IndexError:  # asking first would be no use: another thread may be faster
            connection = self._connect()
        try:
            with translate_damage(self.path):
                yield connection
        finally:
            if self._idle is idle and len(idle) < driver.MAX_IDLE:
                idle.append(connection)
            else:  # there are enough, or the file was replaced meanwhile
                connection.close()

    def _connect(self) -> Connection:
        # SQLite would open a new file under the old name, or an empty one that it makes itself.
        if _identity(self.path) != self._identity:
            raise DamagedFile("the file was replaced")
        with translate_damage(self.path, opening=True):
            return driver.connect(self.path, durable=False, access="write")

    def _forget_if_forked(self) -> None:
        if self._pid != os.getpid():
            # The parent still uses these; closing them here could take its locks away.
            _parent_connections.append(self._idle)
            self._lock = threading.Lock()
            self._idle, self._pid = [], os.getpid()

    def close(self) -> None:
        """Close every connection."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        # A private copy goes with the process that made it, not with a forked child.
        if self.path.parent != self._home and self._pid == os.getpid():
            shutil.rmtree(self.path.parent, ignore_errors=True)

    def replace(self, identity: tuple[int, int] | None) -> None:
        """Put an empty index in the place of the one with this identity, unless that has happened
        already.
        """
        with self._lock:
            # Two threads can meet the same damage; the first one replaces the file.
            if self._identity == identity:
                idle, self._idle = self._idle, []
                for connection in idle:
                    connection.close()
                self._set_aside()
                self._open_first()

    @property
    def identity(self) -> tuple[int, int] | None:
        """The device and inode of the file, which differ from those of an earlier file under the
        same name.
        """
        return self._identity

    def _open_first(self) -> None:
        if self.path.parent == self._home:
            _remove_earlier(self._home)
        try:
            try:
                self._idle.append(self._open(refuse_outdated=self.path.parent == self._home))
            except DamagedFile:
                self._set_aside()
                self._idle.append(self._open())
        # os.access said yes, the file system says no: a read-only mount, or a full disk.
        except (LibraryReadOnly, OSError):
            self._begin(self._private_copy())
            self._idle.append(self._open())

    def _open(self, *, refuse_outdated: bool = False) -> Connection:
        """Open the file, or make it; raise DamagedFile for one that is none of ours.

        refuse_outdated: also for one of an earlier analysis. A private copy stays: each process
        would make it again.
        """
        # Before the open: a file that is made by the open is noted right after.
        self._identity = _identity(self.path)
        with translate_damage(self.path, opening=True), contextlib.ExitStack() as unless_ready:
            connection = driver.connect(self.path, durable=False)
            unless_ready.callback(connection.close)
            self._identity = self._identity or _identity(self.path)
            FORMAT.prepare(connection, self.path)
            if refuse_outdated and int(read_state(connection, "analysis") or 0) < ANALYSIS:
                raise DamagedFile("its texts were analyzed in an earlier way")
            unless_ready.pop_all()
        return connection

    def _set_aside(self) -> None:
        """Move the file away for diagnosis; only the last one stays."""
        # Two processes must not both move a file away: the second would move the new one.
        with driver.file_lock(self.path.with_name(f"{INDEX_FILE}.lock")):
            if _identity(self.path) == self._identity:  # else another process was faster
                driver.set_aside(self.path)

    def _private_copy(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="evolvable-index-"))
        # Also when nobody calls close().
        weakref.finalize(self, _remove, folder, os.getpid())
        with contextlib.suppress(OSError):
            # Without the shared memory: SQLite makes it from the other two.
            for end in ("", "-wal"):
                if (self._home / f"{INDEX_FILE}{end}").exists():
                    shutil.copyfile(
                        self._home / f"{INDEX_FILE}{end}", folder / f"{INDEX_FILE}{end}"
                    )
        return folder / INDEX_FILE


# Keeps the parent's connections from being closed by the garbage collector of the child.
_parent_connections: list[object] = []


def _acquire(lock: "BaseFileLock", seconds: float) -> bool:
    try:
        lock.acquire(timeout=seconds)
    except TimeoutError:
        return False
    return True


def _remove_earlier(home: Path) -> None:
    """Remove the index of an earlier format once no process uses it: SQLite removes the shared
    memory at the end.
    """
    for name in EARLIER_INDEX_FILES:
        if (home / name).exists() and not (home / f"{name}-shm").exists():
            with contextlib.suppress(OSError):
                (home / name).unlink()


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    # The inode tells a file from its successor under the same name.
    return status.st_dev, status.st_ino


def read_state(db: Connection, key: str) -> str:
    """Return the value of a key in the index's state, '' for none."""
    row = db.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
    return str(row[0]) if row else ""


_MAX_VISIBILITIES = 64  # combinations of kind and scopes that are remembered
_MAX_ENTRIES = 400  # that are remembered, of some kilobyte each


@dataclass(slots=True)
class IndexState:
    """One state of the index. One thread uses it at a time.

    stamp: the changes applied, those of learned tasks, and how often documents were settled, which
    makes no change.
    """

    stamp: tuple[int, ...]
    documents: int
    waiting: postings.PendingDocuments
    beginnings: PrefixFilter
    reader: postings.PostingsReader
    seen: dict[VisibilityFilter, VisibleDocuments] = field(default_factory=dict)
    entry_cache: dict[int, IndexEntry] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        db: Connection,
        stamp: tuple[int, ...],
        waiting: postings.PendingDocuments,
        beginnings: PrefixFilter,
    ) -> Self:
        """Return the state that the connection sees.

        waiting, beginnings: an earlier state's, which are updated.
        """
        waiting.refresh(db)
        documents, last = db.execute(
            "SELECT count(*), ifnull(max(document), 0) FROM entry"
        ).fetchone()
        return cls(
            stamp,
            documents,
            waiting,
            beginnings.extended_to(db, last),
            postings.PostingsReader(waiting, FIELD_NUMBERS.values()),
        )

    @classmethod
    def nothing(cls) -> Self:
        """Return the state before the index was read."""
        waiting = postings.PendingDocuments()
        return cls((-1,), 0, waiting, PrefixFilter(), postings.PostingsReader(waiting, ()))

    def entries(self, db: Connection, documents: Collection[int]) -> dict[int, IndexEntry]:
        """Return the entries of these documents, by document; each is read once.

        Safe to share between threads.
        """
        cache = self.entry_cache
        found = {document: cache[document] for document in documents if document in cache}
        if len(found) < len(documents):
            fresh = entries_of_documents(
                db, (document for document in documents if document not in cache)
            )
            # A new dict and no clear(): another thread may be reading the old one.
            if len(cache) + len(fresh) > _MAX_ENTRIES:
                self.entry_cache = cache = {}
            if len(fresh) <= _MAX_ENTRIES:
                cache.update(fresh)
            found |= fresh
        return found

    def visible(self, db: Connection, visible: VisibilityFilter) -> VisibleDocuments:
        """Return the documents that this filter lets through."""
        if visible not in self.seen:
            if len(self.seen) > _MAX_VISIBILITIES:
                self.seen.clear()
            self.seen[visible] = VisibleDocuments(db, visible)
        return self.seen[visible]


class IndexCache:
    """The newest state that was read. Safe to share between threads."""

    def __init__(self) -> None:
        # Guards the state that `lock_state` yields.
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._state = IndexState.nothing()

    @contextlib.contextmanager
    def lock_state(self, db: Connection) -> Iterator[IndexState]:
        """Yield the state that `db` sees; no other thread uses it meanwhile."""
        # A lock that another thread of the parent held at the fork is never released in the child.
        if self._pid != os.getpid():
            self._lock, self._pid = threading.Lock(), os.getpid()
        with self._lock:
            # Three numbers that only grow: their order tells which of two states is newer.
            noted = dict(
                db.execute(
                    "SELECT key, value FROM state WHERE key IN ('applied', 'settled', "
                    "'learned_docs')"
                )
            )
            stamp = tuple(int(noted.get(key, 0)) for key in ("applied", "learned_docs", "settled"))
            if stamp < self._state.stamp:  # another thread has seen more since; keep its state
                yield IndexState.of(db, stamp, postings.PendingDocuments(), PrefixFilter())
                return
            if stamp > self._state.stamp:
                self._state = IndexState.of(db, stamp, self._state.waiting, self._state.beginnings)
            yield self._state

    def forget(self) -> None:
        """Forget the state: the file is another."""
        self._state = IndexState.nothing()


# A few hundred bytes each; a judge's answer costs a call of a model.
MAX_ANSWERS = 10_000
"""Answers that are kept; the oldest go first."""


class JudgeCache(MutableMapping[str, str]):
    """A mapping in the file of the index: shared by all processes, empty again when the index is
    rebuilt.

    What cannot be read or kept, since the file is busy or damaged, counts as not remembered.
    """

    def __init__(self, file: IndexFile) -> None:
        self._file = file

    def __getitem__(self, key: str) -> str:
        row = None
        with contextlib.suppress(DamagedFile, LibraryError), self._file.reading() as db:
            row = db.execute("SELECT value FROM answer WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise KeyError(key)
        return str(row[0])

    def __setitem__(self, key: str, value: str) -> None:
        # An answer that cannot be kept is asked for again.
        with contextlib.suppress(DamagedFile, LibraryError), self._file.writing() as db:
            db.execute("INSERT OR REPLACE INTO answer (key, value) VALUES (?, ?)", (key, value))
            db.execute(
                "DELETE FROM answer WHERE number <= (SELECT max(number) FROM answer) - ?",
                (MAX_ANSWERS,),
            )

    def __delitem__(self, key: str) -> None:
        with self._file.writing() as db:
            if not db.execute("DELETE FROM answer WHERE key = ?", (key,)).rowcount:
                raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        with self._file.reading() as db:
            rows = db.execute("SELECT key FROM answer ORDER BY number").fetchall()
        return iter([str(row[0]) for row in rows])

    def __len__(self) -> int:
        with self._file.reading() as db:
            return int(db.execute("SELECT count(*) FROM answer").fetchone()[0])
