"""What a folder was given that its version does not say: that is never taken for an edit of the
owner's.

A directory whose version names powers that are out of force holds the main file with those of the
base. A skill that a checkout owns holds the two lines by which the client has the skill's delegate
do the work. Both are noted for each version, in the home and before the directory is written; what
is read is then compared with the version as it is. No bytes of a file are noted, so that a purge
finds none here.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evolvable_store.errors import EvolvableError
from evolvable_store.fork_lines import with_fork, without_fork
from evolvable_store.frontmatter import parse_document, summarize
from evolvable_store.objects import MAX_FILE, File, Files, make_manifest
from evolvable_store.operation import Head
from evolvable_store.paths import HELD_POWERS, work_tree
from evolvable_store.power_fields import (
    WHOLE,
    PowerPolicy,
    different_powers,
    restore_powers,
    with_powers,
)
from evolvable_store.regular_files import read_regular, write_private
from evolvable_store.storage import WatchedFolder
from evolvable_store.store import Store
from evolvable_store.validation import main_path
from evolvable_store.workingcopy.atomic_dir import SINGLE

# Notes are small; more of them only slow down the comparison.
_KEPT = 6
"""Versions of one directory that are kept: a crash leaves the version before, or the one after."""


ForkPolicy = Callable[[Head, Path], str]
"""Returns the name of the agent that the client of a folder of skills starts for a skill, '' for
none.
"""

_OWNED = "checkout.json"
"""The file with the directories that a checkout for Claude Code made, beside the notes."""


@dataclass(frozen=True, slots=True)
class WrittenPowers:
    """The powers written into a directory for a version: these as the version `base` has them, 0
    for none.

    names: as of `HeldPowers`. tree: of all files as they were written. agent: whom the two lines of
    a fork name, '' for none.
    """

    resource: int
    version: int
    base: int
    names: frozenset[str]
    tree: str
    agent: str = ""


class WrittenPowersRecords:
    """The notes on one watched folder, each directory's in a file of its own."""

    def __init__(
        self, store: Store, folder: WatchedFolder, policy: PowerPolicy, forks: ForkPolicy
    ) -> None:
        """policy: tells which powers of a version the folder is not given.

        forks: whom a checked out skill starts.
        """
        self._policy, self._forks, self._folder = policy, forks, folder.path
        self._store, self._place = store, store.home / HELD_POWERS / str(folder.id)

    def own(self, directory: str, head: Head) -> None:
        """Note that a checkout makes this directory for a client that starts agents by two lines of
        a skill's head.
        """
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(
            self._place / _OWNED, json.dumps({**self._owned_directories(), directory: head.id})
        )

    def owns(self, directory: str, resource: int) -> bool:
        """Return whether a checkout made the directory of a resource, outside of work trees."""
        return (
            self._owned_directories().get(directory) == resource and work_tree(self._folder) is None
        )

    def _owned_directories(self) -> dict[str, int]:
        with suppress(OSError, ValueError, RecursionError):
            noted = json.loads(read_regular(self._place / _OWNED))
            return noted if isinstance(noted, dict) else {}
        return {}

    def directories(self) -> set[str]:
        """Return the directories that there is a note on."""
        return {directory for directory, _ in self._all()}

    def of(self, directory: str) -> list[WrittenPowers]:
        """Return the notes on a directory, the newest last."""
        file = self._file(directory)
        return self._read(file)[1] if os.path.exists(file) else []  # there are few

    def restore_files(self, directory: str, head: Head, version: int, files: Files) -> Files:
        """Return files that were read, with the powers that their version has where nobody changed
        them.
        """
        found = self.of(directory)
        main = main_path(head.kind, head.name, files) if found else ""
        if not main:
            return files
        tree = make_manifest(files).tree
        own = [record for record in found if record.resource == head.id]
        # By the content first: the version of the row may lag behind after a crash.
        matching = [record for record in own if record.tree == tree] or [
            record for record in own if record.version == version
        ]
        for record in reversed(matching):
            with suppress(EvolvableError):
                version_main = self._main(head, record.version)
                written = with_powers(version_main, self._main(head, record.base), record.names)
                plain = (
                    without_fork(files[main].data, record.agent)
                    if record.agent
                    else files[main].data
                )
                data = restore_powers(plain, written, version_main, record.names)
                return (
                    {**files, main: File(data, files[main].mode)}
                    if data != files[main].data
                    else files
                )
        return files

    def version_of(self, directory: str, head: Head, tree: str) -> int | None:
        """Return the version that was written with this tree, of its lone file too,
        None for none.
        """
        for record in reversed(self.of(directory)):
            with suppress(EvolvableError):
                main = with_powers(
                    self._main(head, record.version), self._main(head, record.base), record.names
                )
                main = with_fork(main, record.agent) if record.agent else main
                # A single file is known by its own tree, the directory by that of all files.
                if tree in (record.tree, make_manifest({SINGLE: File(main)}).tree):
                    return record.version
        return None

    def may_withhold(self, place: Path, directory: str, head: Head, files: Files) -> bool:
        """Return whether a directory may not be given all powers of the next version, so that a
        sync writes it.

        place: where it lies. files: of the next version. It is asked of the disk, which the caller
        looks at anyway.
        """
        main = main_path(head.kind, head.name, files)
        if (
            self.of(directory)
            or not main
            or self._may_fork(
                directory,
                head,
                files[main].data,
            )
        ):
            return True
        try:
            lying = read_regular(place / main, MAX_FILE)
        except OSError:
            return True
        return bool(different_powers(files[main].data, lying))

    def would_give(self, directory: str, head: Head, files: Files, lying: Files) -> Files:
        """Return the files to write for a version: powers that are out of force are as the base has
        them.

        lying: what it holds. A power that is there as the version has it stays: its client has it
        from the disk.
        """
        return self._files_to_give(directory, head, files, lying)[0]

    def give(self, directory: str, head: Head, files: Files, lying: Files) -> Files:
        """Return the files to write into a directory for a version, and record them first."""
        given_files, noted = self._files_to_give(directory, head, files, lying)
        main = main_path(head.kind, head.name, files)
        # Also where nothing differs now: an approval can add the lines while the directory lies
        # there.
        if given_files != files or (main and self._may_fork(directory, head, files[main].data)):
            self._note(directory, noted)
        return given_files

    def _files_to_give(
        self, directory: str, head: Head, files: Files, lying: Files
    ) -> tuple[Files, WrittenPowers]:
        held_powers, main = self._policy(head), main_path(head.kind, head.name, files)
        data = files[main].data if main else b""
        names, base, agent = frozenset[str](), 0, ""
        if held_powers is not None and main:
            disk_main = lying[main].data if main in lying else None
            different = (
                different_powers(data, disk_main) if disk_main is not None else [*held_powers.names]
            )
            # A power that lies there as the version has it was read by the client already; taking
            # it away helps nobody.
            names, base = (
                held_powers.names & set(different) if WHOLE not in different else held_powers.names,
                held_powers.version,
            )
            data = with_powers(data, held_powers.base, names)
        if main and self._may_fork(directory, head, files[main].data):
            agent = self._forks(head, self._folder)
            data = (
                with_fork(data, agent, lying[main].data if main in lying else b"")
                if agent
                else data
            )
        given_files = (
            {**files, main: File(data, files[main].mode)}
            if main and data != files[main].data
            else files
        )
        return given_files, WrittenPowers(
            head.id, head.latest, base, names, make_manifest(given_files).tree, agent
        )

    def _may_fork(self, directory: str, head: Head, data: bytes) -> bool:
        """Return whether a directory may get the lines of a fork: they can be approved
        at any time.
        """
        if b"delegate" not in data or not self.owns(directory, head.id):
            return False
        return summarize(parse_document(data)).delegate is not None

    def note_given(self, directory: str, head: Head, given_files: Files) -> None:
        """Delete the notes on a version after a directory was given all of it."""
        found, main = self.of(directory), main_path(head.kind, head.name, given_files)
        # Something was withheld, so the note is still needed.
        if not found or make_manifest(given_files).tree != head.tree:
            return
        if main and self._may_fork(directory, head, given_files[main].data):
            return
        # Notes on other versions stay: a crash can bring their files back.
        if left := [record for record in found if record.version != head.latest]:
            self._write(directory, left)
        else:
            self._file(directory).unlink(missing_ok=True)

    def _note(self, directory: str, record: WrittenPowers) -> None:
        others = [each for each in self.of(directory) if each.version != record.version]
        self._write(directory, [*others, record][-_KEPT:])

    def note_edit(self, directory: str, head: Head, lying: Files, files: Files) -> None:
        """Record that a directory holds these files, and that its next version is made
        from them.
        """
        main, found = main_path(head.kind, head.name, files), self.of(directory)
        names = frozenset(different_powers(lying[main].data, files[main].data))
        agent = (
            found[-1].agent
            if found
            and with_fork(
                files[main].data,
                found[-1].agent,
            )
            != files[main].data
            else ""
        )
        if found and (names or agent):
            tree = make_manifest(lying).tree
            self._note(
                directory,
                WrittenPowers(head.id, head.latest + 1, found[-1].base, names, tree, agent),
            )

    def _main(self, head: Head, version: int) -> bytes:
        if not version:
            return b""
        path = main_path(head.kind, head.name, self._store.manifest(head, version))
        return self._store.file(head, path, version).data if path else b""

    def _file(self, directory: str) -> Path:
        # A hash: the path of a directory may be no file name.
        return (
            self._place
            / f"{hashlib.sha256(directory.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"
        )

    def _all(self) -> Iterator[tuple[str, list[WrittenPowers]]]:
        try:
            names = sorted(os.listdir(self._place))
        except OSError:
            return
        for name in names:
            directory, found = (
                self._read(self._place / name) if name.endswith(".json") else ("", [])
            )
            if found:
                yield directory, found

    def _write(self, directory: str, records: list[WrittenPowers]) -> None:
        place = self._file(directory)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        rows = [
            {
                "resource": record.resource,
                "version": record.version,
                "base": record.base,
                "names": sorted(record.names),
                "tree": record.tree,
                "agent": record.agent,
            }
            for record in records
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
    written = frozenset(map(str, names)), str(row["tree"]), str(row.get("agent", ""))
    return WrittenPowers(resource, version, base, *written)
