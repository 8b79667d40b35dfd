"""What a folder was given in place of powers that are out of force: that is never taken for an edit of the owner's.

A directory whose version names such powers holds the main file with those of the base. That is noted for each version,
in the home and before the directory is written; what is read is then compared with the version as it is. No bytes of a
file are noted, so that a purge finds none here.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evolvable_store.errors import EvolvableError
from evolvable_store.objects import MAX_FILE, File, Files, make_manifest
from evolvable_store.operation import Head
from evolvable_store.paths import HELD_POWERS
from evolvable_store.power_fields import WHOLE, PowerPolicy, different_powers, restored_powers, with_powers
from evolvable_store.private_files import write_private
from evolvable_store.regular_files import read_regular
from evolvable_store.store import Store
from evolvable_store.validation import main_path
from evolvable_store.workingcopy.atomic_dir import SINGLE

_KEPT = 6
"""Versions of one directory that are kept: a crash leaves the version before, or the one after."""


@dataclass(frozen=True, slots=True)
class WrittenPowers:
    """What a directory was given for a version of a resource: these powers as the version `base` has them, 0 for none.

    names: as of `HeldPowers`. tree: of all files as they were written.
    """

    resource: int
    version: int
    base: int
    names: frozenset[str]
    tree: str


class WrittenPowersRecords:
    """The notes on one watched folder, each directory's in a file of its own."""

    def __init__(self, store: Store, folder: int, policy: PowerPolicy) -> None:
        """policy: tells which powers of a version the folder is not given."""
        self._policy = policy
        self._store, self._place = store, store.home / HELD_POWERS / str(folder)

    def directories(self) -> set[str]:
        """Return the directories that there is a note on."""
        return {directory for directory, _ in self._all()}

    def of(self, directory: str) -> list[WrittenPowers]:
        """Return the notes on a directory, the newest last."""
        file = self._file(directory)
        return self._read(file)[1] if os.path.exists(file) else []  # there are few

    def restored(self, directory: str, head: Head, version: int, files: Files) -> Files:
        """Return files that were read, with the powers that their version has where nobody changed them."""
        found = self.of(directory)
        main = main_path(head.kind, head.name, files) if found else ""
        if not main:
            return files
        tree = make_manifest(files).tree
        own = [one for one in found if one.resource == head.id]
        known = [one for one in own if one.tree == tree] or [one for one in own if one.version == version]
        for one in reversed(known):
            with suppress(EvolvableError):
                kept = self._main(head, one.version)
                written = with_powers(kept, self._main(head, one.base), one.names)
                data = restored_powers(files[main].data, written, kept, one.names)
                return {**files, main: File(data, files[main].mode)} if data != files[main].data else files
        return files

    def version_of(self, directory: str, head: Head, tree: str) -> int | None:
        """Return the version that was written with this tree, of its lone file too, None for none."""
        for one in reversed(self.of(directory)):
            with suppress(EvolvableError):
                main = File(with_powers(self._main(head, one.version), self._main(head, one.base), one.names))
                if tree in (one.tree, make_manifest({SINGLE: main}).tree):
                    return one.version
        return None

    def may_withhold(self, place: Path, directory: str, head: Head, files: Files) -> bool:
        """Return whether a directory may not be given all powers of the next version, so that a sync writes it.

        place: where it lies. files: of the next version. It is asked of the disk, which the caller looks at anyway.
        """
        main = main_path(head.kind, head.name, files)
        if self.of(directory) or not main:
            return True
        try:
            lying = read_regular(place / main, MAX_FILE)
        except OSError:
            return True
        return bool(different_powers(files[main].data, lying))

    def would_give(self, head: Head, files: Files, lying: Files) -> Files:
        """Return what a directory is given of a version: powers that are out of force are as the base has them.

        lying: what it holds. A power that is there as the version has it stays: its client has it from the disk.
        """
        return self._given(head, files, lying)[0]

    def give(self, directory: str, head: Head, files: Files, lying: Files) -> Files:
        """Return what a directory is given of a version, and note it before it is written."""
        given, base, names = self._given(head, files, lying)
        if given != files:
            tree = make_manifest(given).tree
            self._note(directory, WrittenPowers(head.id, head.latest, base, names, tree))
        return given

    def _given(self, head: Head, files: Files, lying: Files) -> tuple[Files, int, frozenset[str]]:
        held, main = self._policy(head), main_path(head.kind, head.name, files)
        if held is None or not main:
            return files, 0, frozenset()
        data, there = files[main].data, lying[main].data if main in lying else None
        kept = different_powers(data, there) if there is not None else [*held.names]
        names = held.names & set(kept) if WHOLE not in kept else held.names
        return {**files, main: File(with_powers(data, held.base, names), files[main].mode)}, held.version, names

    def note_given(self, directory: str, head: Head, given: Files) -> None:
        """Forget what was noted for a version of which a directory was just given all."""
        found = self.of(directory)
        if not found or make_manifest(given).tree != head.tree:
            return
        if left := [one for one in found if one.version != head.latest]:
            self._write(directory, left)
        else:
            self._file(directory).unlink(missing_ok=True)

    def _note(self, directory: str, one: WrittenPowers) -> None:
        others = [each for each in self.of(directory) if each.version != one.version]
        self._write(directory, [*others, one][-_KEPT:])

    def note_edit(self, directory: str, head: Head, lying: Files, files: Files) -> None:
        """Note that a directory holds these files, and that its next version will be what was made of them."""
        main = main_path(head.kind, head.name, files)
        names = frozenset(different_powers(lying[main].data, files[main].data))
        if names and (found := self.of(directory)):
            tree = make_manifest(lying).tree
            self._note(directory, WrittenPowers(head.id, head.latest + 1, found[-1].base, names, tree))

    def _main(self, head: Head, version: int) -> bytes:
        if not version:
            return b""
        path = main_path(head.kind, head.name, self._store.manifest(head, version))
        return self._store.file(head, path, version).data if path else b""

    def _file(self, directory: str) -> Path:
        return self._place / f"{hashlib.sha256(directory.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"

    def _all(self) -> Iterator[tuple[str, list[WrittenPowers]]]:
        try:
            names = sorted(os.listdir(self._place))
        except OSError:
            return
        for name in names:
            directory, found = self._read(self._place / name) if name.endswith(".json") else ("", [])
            if found:
                yield directory, found

    def _write(self, directory: str, records: list[WrittenPowers]) -> None:
        place = self._file(directory)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        rows = [
            {
                "resource": one.resource,
                "version": one.version,
                "base": one.base,
                "names": sorted(one.names),
                "tree": one.tree,
            }
            for one in records
        ]
        write_private(place, json.dumps({"directory": directory, "records": rows}))

    def _read(self, place: Path) -> tuple[str, list[WrittenPowers]]:
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            noted = json.loads(read_regular(place))
            return str(noted["directory"]), [_record(row) for row in noted["records"]]
        return "", []


def _record(row: dict[str, object]) -> WrittenPowers:
    names, numbers = row["names"], [row[key] for key in ("resource", "version", "base")]
    if not isinstance(names, list) or not all(isinstance(number, int) for number in numbers):
        raise ValueError("no note on powers")
    resource, version, base = (int(str(number)) for number in numbers)
    return WrittenPowers(resource, version, base, frozenset(map(str, names)), str(row["tree"]))
