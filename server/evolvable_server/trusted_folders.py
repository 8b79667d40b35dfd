"""The folders that the person trusts, read again when the person's configuration changes."""

import contextlib
import os
from collections import defaultdict
from pathlib import Path

from evolvable_server.person_config import USUAL, account_home, config_path, read_person_config
from evolvable_server.person_config_edit import note_trusted
from evolvable_store.errors import EvolvableError
from evolvable_tools.library import Library


class ListedFolders:
    """The folders that the person's configuration lists for one library; `home` is where that lies.

    A file that cannot be read lists none.
    """

    def __init__(self, home: Path) -> None:
        self._home, self._path = home, config_path()
        self._seen: tuple[int, ...] | None = None
        self._folders: frozenset[str] = frozenset()

    def __call__(self) -> frozenset[str]:
        """Return the folders as they are listed now. One look at the file's status where it did not change."""
        seen = self._status()
        if seen != self._seen:
            self._folders = frozenset()
            with contextlib.suppress(EvolvableError):
                self._folders = read_person_config().trusted_folders(self._home)
            self._seen = seen
        return self._folders

    def _status(self) -> tuple[int, ...]:
        try:
            found = os.stat(self._path) if self._path is not None else None
        except OSError:
            found = None
        if found is None:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode, found.st_uid


def adopt(library: Library) -> list[str]:
    """Give decisions that do not say on which folder they were made their folder; return what was done, in words.

    That is a listed folder that holds the resource, else, in the account's usual home alone, its watched folder, which
    is listed then. What is left does not count, and doctor names it. Does nothing where approvals are locked.
    """
    if library.store.read_only or library.lock is not None:
        return []
    vouching = library.store.backend.attestations
    left = {one.resource for one in vouching.unlisted() if one.folder is None}
    if not left:
        return []
    found, added = _folders_of(library, left), list[Path]()
    for folder, resources in found.items():
        if str(folder) not in (library.store.backend.trusted_folders() or ()):
            if not _is_usual(library.store.home):
                continue
            note_trusted(folder, library.store.home.resolve())
            added.append(folder)
        vouching.keep_folder(resources, str(folder))
    vouching.keep_folder(left - {resource for resources in found.values() for resource in resources}, "")
    if not added:
        return []
    return [f"{', '.join(map(str, added))}: you trusted it before, and it is now listed in {config_path()}."]


def _folders_of(library: Library, resources: set[int]) -> dict[Path, set[int]]:
    """Return the folders that hold these resources: the listed one, else the watched one."""
    listed = [Path(one) for one in sorted(library.store.backend.trusted_folders() or ())]
    found: dict[Path, set[int]] = defaultdict(set)
    for folder in library.folders():
        for directory, binding in library.working_copies.bindings.of_folder(folder).items():
            if binding.resource in resources:
                place = folder.path / directory
                holds = next((one for one in listed if place.is_relative_to(one)), folder.path)
                found[holds].add(binding.resource)
    return found


def _is_usual(home: Path) -> bool:
    account = account_home()
    return account is not None and home.resolve() == (account / USUAL).resolve()
