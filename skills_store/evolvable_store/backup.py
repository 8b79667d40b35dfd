"""Copies a whole library into another folder while other processes go on writing."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_store import driver
from evolvable_store.errors import InvalidArgument, LibraryCorrupt, LibraryError, LibraryFull
from evolvable_store.sqlite import FILE
from evolvable_store.staging import sync_folder

if TYPE_CHECKING:
    from evolvable_store.driver import Connection
    from evolvable_store.store import Store

_STEP = 1000  # pages: some MB between two calls of `progress`
_BESIDE = ("-wal", "-shm", "-journal")


def backup(
    store: "Store", target: Path, progress: Callable[[int, int], None] | None = None, *, replace: bool = False
) -> Path:
    """Returns `target`, made a folder with one file that is the library as it was when the backup began.

    `Store.open(target)` opens it; it follows no folder until one is added again. It appears whole or not at all,
    checked, and is on the disk when this returns.
    progress: called with pages copied and all pages. replace: an older backup at `target` makes room for it.
    Raises InvalidArgument when something else lies there, LibraryCorrupt when the copy is damaged, LibraryError.
    """
    _check_target(store, target, replace)
    with _disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
        try:
            _copy(store, draft / FILE, progress or (lambda done, total: None))
            _verify(draft / FILE)
            _publish(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return target


def _check_target(store: "Store", target: Path, replace: bool) -> None:
    if not target.name:
        raise InvalidArgument(f"{target} is no place for a backup.", "Name a new folder.")
    if not target.exists() and not target.is_symlink():
        return
    if target.is_symlink() or not target.is_dir():
        raise InvalidArgument(f"{target} is not a folder.", "A backup is a folder; name a new one.")
    names = set(os.listdir(target))
    if target.samefile(store.home) or names - {FILE, *(FILE + end for end in _BESIDE)}:
        raise InvalidArgument(f"{target} holds other things than a backup.", "Name a new folder.")
    if names and not replace:
        raise InvalidArgument(f"{target} holds a backup already.", "Name a new folder, or say that it is replaced.")


def _copy(store: "Store", file: Path, progress: Callable[[int, int], None]) -> None:
    with store.backend.reading() as source, _opened(file) as copy:
        # Until the draft is renamed nobody relies on it; it is synced once, at the end.
        copy.execute("PRAGMA synchronous=OFF")
        with _snapshot(source):
            source.backup(copy, pages=_STEP, progress=lambda _, left, total: progress(total - left, total))
        # A copy must not write into the folders of the original.
        copy.execute("DELETE FROM binding")
        copy.execute("DELETE FROM folder")
        # One file, that opens on a disk that cannot be written too. The library's own mode comes back on opening.
        copy.execute("PRAGMA journal_mode=DELETE")


@contextlib.contextmanager
def _snapshot(source: "Connection") -> Iterator[None]:
    """Keeps the source as it is now. Without that, SQLite begins the copy anew after every write of another process,
    and was measured never to end while two processes wrote. VACUUM INTO ends too, in twice the time.
    """
    source.execute("BEGIN")
    try:
        source.execute("SELECT 1 FROM sqlite_master").fetchone()
        yield
    finally:
        source.execute("ROLLBACK")


def _verify(file: Path) -> None:
    with _opened(file) as copy:
        found = copy.execute("PRAGMA quick_check(3)").fetchall()
    if found != [("ok",)]:
        raise LibraryCorrupt(
            f"The copy is damaged ({'; '.join(text for (text,) in found)}), so it was not kept.",
            "Run `evolvable fsck` on the library.",
        )


def _publish(draft: Path, target: Path) -> None:
    with open(draft / FILE, "rb+") as stream:
        os.fsync(stream.fileno())
    sync_folder(draft)
    if target.exists():
        # Beside the draft and not into it, so that a crash between two renames leaves the older backup to be found.
        older = draft.with_suffix(".old")
        os.rename(target, older)
        os.rename(draft, target)
        shutil.rmtree(older, ignore_errors=True)
    else:
        os.rename(draft, target)
    sync_folder(target.parent)


@contextlib.contextmanager
def _opened(file: Path) -> Iterator["Connection"]:
    with driver.translated(file), contextlib.closing(driver.dbapi.connect(str(file), isolation_level=None)) as copy:
        yield copy


@contextlib.contextmanager
def _disk_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = LibraryFull if error.errno == errno.ENOSPC else LibraryError
        raise kind(f"{target} cannot be written: {error.strerror or error}.", "Name another folder.") from error
