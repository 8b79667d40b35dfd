"""The file of the text index, which all processes share and which is rebuilt when it is damaged.

`IndexCache` holds one state of the index in a process, which every search uses until the next
change. `JudgeCache` keeps the answers of judges in the same file.
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
    # A row of postings takes several pages; with SQLite's default of 4096 bytes reading is slower.
    page_size=8192,
)

INDEX_FILE = f"index-{FORMAT.version}.db"
"""Each format has a file of its own, so that servers of two versions do not rebuild it in turns."""

# Removed at the next start, because each takes as much of the disk as the current one.
EARLIER_INDEX_FILES = ("index.db", "index-5.db")
"""The files of earlier formats."""

# After ten seconds an answer from an older index is better than none; the minute spares the next
# searches the same wait.
BACKLOG_SECONDS, PATIENT_AGAIN_SECONDS = 10.0, 60.0
"""How long a search waits for another process that indexes many changes, and for how long no search
waits after one that waited in vain.
"""

_LOOK_SECONDS = 0.05  # between two looks whether the other process has indexed enough


class IndexFile:
    """The index file of the library in `home`, in a temporary folder where that cannot be written.

    Safe to share between threads; a forked child opens it again.
    """

    def __init__(self, home: Path, *, private: bool = False) -> None:
        self._home = home
        # Guards replacing the file: its identity and the idle connections change together.
        self._lock = threading.Lock()
        # The monotonic time from which a search waits for another process again.
        self._patient_at = 0.0
        self._set_path(home / INDEX_FILE)
        # A library on a read-only disk is still searched.
        if private or not os.access(home, os.W_OK):
            self._set_path(self._make_private_copy())
        self._open_first()

    def _set_path(self, path: Path) -> None:
        """Use the file at this path, of which no connection is open yet."""
        self.path = path
        self._pid = os.getpid()
        self._idle: list[Connection] = []
        self._identity: tuple[int, int] | None = None

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Lend a connection that sees one committed state. Raises DamagedFile, LibraryError."""
        with self._lend() as connection:
            # One read transaction, so that all queries of a search see one state.
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
            self._lend() as connection,
            driver.ImmediateTransaction(connection, self.path),
            translate_damage(self.path),
        ):
            yield connection

    @contextlib.contextmanager
    def backlog(
        self, *, wait: bool = True, done: Callable[[], bool] = lambda: False
    ) -> Iterator[bool]:
        """Run the body while no other process indexes many changes; yield whether we hold the lock.

        wait: for the other process, for a while; after a wait in vain, no call waits for a minute.
        done: returns whether the other process has indexed enough; then the body runs too. It also
        runs beside a process that made no progress during the wait, which was stopped. Raise
        LibraryBusy for any other process.
        """
        # This lock and not SQLite's: reads and short writes go on while a process indexes many
        # changes.
        folder = self.path.parent / "locks"
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = driver.file_lock(folder / f"{self.path.stem}.lock")
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
        """Return whether the body of `backlog` may run, with or without the lock."""
        is_patient = wait and time.monotonic() >= self._patient_at
        # Compared at the end: a holder that made no progress for ten seconds was stopped.
        before = self._read_progress() if is_patient else ""
        deadline = time.monotonic() + BACKLOG_SECONDS
        while not _acquire(lock, _LOOK_SECONDS if is_patient else 0):
            if done():
                return True
            if not is_patient:
                return False
            if time.monotonic() >= deadline:
                self._patient_at = time.monotonic() + PATIENT_AGAIN_SECONDS
                return self._read_progress() == before
        self._patient_at = 0.0
        return True

    def _read_progress(self) -> str:
        with self.reading() as db:
            return read_state(db, "applied")

    @contextlib.contextmanager
    def _lend(self) -> Iterator[Connection]:
        self._forget_if_forked()
        # `replace` may put another list in its place while the connection is lent.
        idle = self._idle
        try:
            connection = idle.pop()
        except IndexError:  # no check before: another thread may be faster
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
        # SQLite would open another file of that name, or make an empty one.
        if _identity(self.path) != self._identity:
            raise DamagedFile("the file was replaced")
        with translate_damage(self.path, opening=True):
            return driver.connect(self.path, durable=False, access="write")

    def _forget_if_forked(self) -> None:
        if self._pid != os.getpid():
            # The parent uses these connections: closing them here could drop its locks.
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
        """Replace the index with this identity by an empty one, unless that is done already."""
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
        """The device and inode of the file: a file that replaces it has others."""
        return self._identity

    def _open_first(self) -> None:
        """Open the file, replace a damaged or outdated one, or open a private copy."""
        if self.path.parent == self._home:
            _remove_earlier(self._home)
        try:
            try:
                self._idle.append(self._open(refuse_outdated=self.path.parent == self._home))
            except DamagedFile:
                self._set_aside()
                self._idle.append(self._open())
        # Where os.access allows a write and the disk does not: a read-only mount, or a full disk.
        except (LibraryReadOnly, OSError):
            self._set_path(self._make_private_copy())
            self._idle.append(self._open())

    def _open(self, *, refuse_outdated: bool = False) -> Connection:
        """Open the file, or make it; raise DamagedFile for a file that is not an index of ours.

        refuse_outdated: also for an index of an earlier analysis. A private copy is not refused,
        because each process would have to make it again.
        """
        # Before the file is opened, so that a file which replaces it is not taken for it.
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
        # The lock guards the check and the move: of two processes, the second would move the new
        # file.
        with driver.file_lock(self.path.with_name(f"{INDEX_FILE}.lock")):
            if _identity(self.path) == self._identity:  # else another process was faster
                driver.set_aside(self.path)

    def _make_private_copy(self) -> Path:
        """Return the path of a copy in a temporary folder, which ends with this object."""
        folder = Path(tempfile.mkdtemp(prefix="evolvable-index-"))
        # Also when nobody calls close().
        weakref.finalize(self, _remove_folder, folder, os.getpid())
        with contextlib.suppress(OSError):
            # Without the shared memory: SQLite makes it from the other two.
            for name in (INDEX_FILE, f"{INDEX_FILE}-wal"):
                if (self._home / name).exists():
                    shutil.copyfile(self._home / name, folder / name)
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
    """Remove the index of an earlier format, unless a process uses it.

    SQLite removes the shared memory when the last process closes the file.
    """
    for name in EARLIER_INDEX_FILES:
        if (home / name).exists() and not (home / f"{name}-shm").exists():
            with contextlib.suppress(OSError):
                (home / name).unlink()


def _remove_folder(folder: Path, owner: int) -> None:
    """Remove a private copy, in the process that made it and in no forked child."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def read_state(db: Connection, key: str) -> str:
    """Return the value of a key in the index's state, '' for none."""
    row = db.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
    return str(row[0]) if row else ""


_MAX_VISIBILITIES = 64  # combinations of kind and scopes whose documents are cached
_MAX_ENTRIES = 400  # entries that are cached, of some kilobytes each


@dataclass(slots=True)
class IndexState:
    """One state of the index. One thread uses it at a time.

    stamp: the changes applied, the changes of learned tasks, and how often documents were settled.
    documents: how many the index has. waiting: those that are not settled. beginnings: the filter
    of phrases. reader: of postings. seen: visible documents by filter.
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

        waiting, beginnings: those of an earlier state, which are updated.
        """
        waiting.refresh(db)
        query = "SELECT count(*), ifnull(max(document), 0) FROM entry"
        documents, last = db.execute(query).fetchone()
        reader = postings.PostingsReader(waiting, FIELD_NUMBERS.values())
        return cls(stamp, documents, waiting, beginnings.extended_to(db, last), reader)

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
        entries = {document: cache[document] for document in documents if document in cache}
        if len(entries) < len(documents):
            missing = (document for document in documents if document not in entries)
            fresh = entries_of_documents(db, missing)
            # A new dict and no clear(): another thread may be reading the old one.
            if len(cache) + len(fresh) > _MAX_ENTRIES:
                self.entry_cache = cache = {}
            if len(fresh) <= _MAX_ENTRIES:
                cache.update(fresh)
            entries |= fresh
        return entries

    def visible(self, db: Connection, visible: VisibilityFilter) -> VisibleDocuments:
        """Return the documents that this filter lets through, read once."""
        if visible not in self.seen:
            if len(self.seen) > _MAX_VISIBILITIES:
                self.seen.clear()
            self.seen[visible] = VisibleDocuments(db, visible)
        return self.seen[visible]


class IndexCache:
    """The newest state that this process has read. Safe to share between threads."""

    def __init__(self) -> None:
        # Guards `_state`, and the postings and documents that a thread reads into it.
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._state = IndexState.nothing()

    @contextlib.contextmanager
    def lock_state(self, db: Connection) -> Iterator[IndexState]:
        """Yield the state that `db` sees; no other thread uses it meanwhile."""
        # A lock that a thread of the parent held at the fork is never released in the child.
        if self._pid != os.getpid():
            self._lock, self._pid = threading.Lock(), os.getpid()
        with self._lock:
            # Three numbers that only grow: their order tells which of two states is newer.
            query = (
                "SELECT key, value FROM state WHERE key IN ('applied', 'settled', 'learned_docs')"
            )
            numbers = dict(db.execute(query))
            stamp = tuple(
                int(numbers.get(key, 0)) for key in ("applied", "learned_docs", "settled")
            )
            if stamp < self._state.stamp:  # another thread has read a newer state; keep that
                yield IndexState.of(db, stamp, postings.PendingDocuments(), PrefixFilter())
                return
            if stamp > self._state.stamp:
                self._state = IndexState.of(db, stamp, self._state.waiting, self._state.beginnings)
            yield self._state

    def forget(self) -> None:
        """Forget the state, because the file was replaced."""
        self._state = IndexState.nothing()


# Each has a few hundred bytes, and spares a call of a model.
MAX_ANSWERS = 10_000
"""Answers that are kept; the oldest are removed first."""


class JudgeCache(MutableMapping[str, str]):
    """A mapping in the file of the index, which all processes share.

    It is empty again when the index is rebuilt. An answer that cannot be read or stored, as the
    file is busy or damaged, counts as missing.
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
        # A model is asked again for an answer that cannot be stored.
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
