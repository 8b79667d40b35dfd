"""Replace a library by a backup, and find what that left behind."""

import contextlib
import glob
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from evolvable_store import (
    ADDRESS_FILE,
    CARRIED_PLACES,
    EMBEDDED_FOLDER,
    LIBRARY_FILE,
    Store,
    open_elsewhere,
    running_postgres,
)
from evolvable_store.errors import (
    EvolvableError,
    InvalidArgument,
    LibraryCorrupt,
    LibraryError,
    Refused,
)
from evolvable_store.search import EARLIER_INDEX_FILES, INDEX_FILE, VECTORS_FILE
from evolvable_store.storage import WatchedFolder
from evolvable_store.workingcopy import FolderNames, add_projects

REPLACED = (LIBRARY_FILE, INDEX_FILE, *EARLIER_INDEX_FILES, VECTORS_FILE)
"""Files of a library that a backup replaces, or that are derived from the one it replaces; with
their journals.
"""

_STAMP = re.compile(r"\.before-\d{8}T\d{12}")
"""The end of the name of a folder with the files that `recover` replaced; it begins with the name
of the home.
"""


Merge = Callable[[Path, Path], None]
"""Adds what a backup (the second) has beside its library to a home (the first)."""


@dataclass(frozen=True, slots=True)
class BackupCopy:
    """A backup that was copied beside the home and checked. draft: the folder of the copy."""

    home: Path
    source: Path
    draft: Path
    resources: int

    def replace_library(self, merges: Iterable[Merge], *, carry_places: bool) -> Path | None:
        """Put the copy in the place of the library; return where the files of that are now, None
        without any.

        merges: add what the parts of the program have beside the library. carry_places: whether to
        ask about the folders of the backup. Raise Refused where another process has the library
        open.
        """
        # Checked again, because a server may have started since `check_backup`.
        check_closed(self.home)
        for merge in merges:
            merge(self.home, self.source)
        add_projects(self.home, self.source)
        before = _exchange(self.home, self.draft)
        if carry_places and (self.source / CARRIED_PLACES).is_file():
            shutil.copy(self.source / CARRIED_PLACES, self.home / CARRIED_PLACES)
        return before


@contextlib.contextmanager
def checked_copy(home: Path, source: Path) -> Iterator[BackupCopy]:
    """Yield a copy of a backup that can replace the library in `home`; it is removed at the end.

    Raise LibraryCorrupt for a damaged backup.
    """
    home.parent.mkdir(parents=True, exist_ok=True)
    # Beside the home and thus on its file system, so that the exchange is a rename.
    draft = Path(tempfile.mkdtemp(prefix=f".{home.name}.", suffix=".part", dir=home.parent))
    try:
        yield BackupCopy(home, source, draft, _copy_checked(source, draft))
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_backup(home: Path, source: Path) -> None:
    """Check that a folder can replace the library in `home` now. Raise Refused, InvalidArgument."""
    if (home / ADDRESS_FILE).exists():
        raise Refused(
            "A library in PostgreSQL is not replaced by a backup.",
            "`evolvable team move` copies one into it.",
        )
    if not (source / LIBRARY_FILE).is_file():
        raise InvalidArgument(
            f"{source} holds no {LIBRARY_FILE}.",
            "Name a folder that `evolvable backup create` made.",
        )
    if home.exists() and source.samefile(home):
        raise InvalidArgument(
            f"{source} is the library itself.", "Name a folder that `evolvable backup create` made."
        )
    check_closed(home)


def check_closed(home: Path) -> None:
    """Check that no other process has the library open. Raise Refused."""
    if running_postgres(home / EMBEDDED_FOLDER / "data") is not None:
        raise Refused(
            f"PostgreSQL runs in {home / EMBEDDED_FOLDER}.", "End the server that started it."
        )
    if processes := list(open_elsewhere(home / LIBRARY_FILE)):
        raise Refused(
            f"Other processes have the library open: {'; '.join(processes)[:500]}",
            "End the clients and servers, then run the command again.",
        )


def watched_folders(home: Path, warn: Callable[[str], None]) -> list[WatchedFolder]:
    """Return the folders that the present library watches, by the names that people gave them.

    Return [] after a call of `warn` if the library cannot be read.
    """
    if not (home / LIBRARY_FILE).exists():
        return []
    try:
        with Store.open(home) as store:
            names = FolderNames(home)
            return [
                replace(folder, path=(names.of(folder) or [folder.path])[0])
                for folder in store.backend.bindings.folders()
            ]
    except EvolvableError as error:
        warn(
            f"The folders that it watched are not known ({error.text}); `evolvable init FOLDER` "
            "watches one."
        )
        return []


def replaced_libraries(home: Path) -> Iterator[Path]:
    """Yield the folders that `recover` made beside the home and that hold nothing else."""
    for path in sorted(home.parent.glob(f"{glob.escape(home.name)}.before-*")):
        is_stamped = _STAMP.fullmatch(path.name.removeprefix(home.name)) is not None
        if not is_stamped or path.is_symlink() or not path.is_dir():
            continue
        # A folder with anything else may hold what a person put there.
        if all(any(file.match(f"{name}*") for name in REPLACED) for file in path.iterdir()):
            yield path


def _copy_checked(source: Path, draft: Path) -> int:
    """Copy a backup into `draft` and return its number of resources.

    Raise LibraryCorrupt, LibraryError.
    """
    # With its log, which may hold the last commits of the backup.
    for path in source.glob(f"{LIBRARY_FILE}*"):
        shutil.copyfile(path, draft / path.name)
    try:
        with Store.open(draft) as store:
            if faults := store.backend.maintenance.file_faults():
                raise LibraryCorrupt(f"{draft} is damaged: {'; '.join(faults[:3])}.")
            return len(store.heads())
    except LibraryError as error:  # it names the copy, which is gone when the person reads this
        raise LibraryCorrupt(
            str(error).replace(str(draft), str(source)), "Name another backup."
        ) from error


def _exchange(home: Path, draft: Path) -> Path | None:
    """Put the library of the draft in the place of the present one; return where its files are now.

    The home has a library at every moment, so that a kill leaves the old one or the new one.
    """
    home.mkdir(mode=0o700, exist_ok=True)
    library = home / LIBRARY_FILE
    replaced = [path for name in REPLACED for path in home.glob(f"{name}*")]
    before = None
    if replaced:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        before = home.with_name(f"{home.name}.before-{stamp}")
        before.mkdir(mode=0o700)
        for path in replaced:
            # A copy and no rename, since the home must not be without a library.
            if path == library:
                shutil.copy2(path, before / path.name)
            else:  # the index is derived, and a journal belongs to the old library alone
                os.rename(path, before / path.name)
    # The exchange itself is one rename: before it the old library is in place, after it the new
    # one.
    os.replace(draft / LIBRARY_FILE, library)
    return before
