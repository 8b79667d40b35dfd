"""Record what a checkout writes that is not in the version, so that it does not count as an edit.

A directory whose version names powers that are out of force holds the main file with those of the
base. A skill that a checkout owns holds the two lines by which the client has the skill's delegate
do the work. Both are noted for each version, in the home and before the directory is written. A
read takes them away again before the files are compared with the version. No bytes of a file are
noted, so that a purge finds none here.
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
"""Versions of one directory whose notes are kept.

A crash leaves the version before, or the one after.
"""


ForkPolicy = Callable[[Head, Path], str]
"""Returns the name of the agent that a folder's client starts for a skill, '' for none."""

_OWNED = "checkout.json"
"""The file beside the notes that names the directories which a checkout for Claude Code made."""


@dataclass(frozen=True, slots=True)
class WrittenPowers:
    """The powers that were written into a directory for a version.

    base: the version whose powers they are, 0 for none. names: as of `HeldPowers`. tree: of all
    files as they were written. agent: the one that the two lines of a fork name, '' for none.
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

        forks: tells which agent a skill that was checked out starts.
        """
        self._policy, self._forks, self._folder = policy, forks, folder.path
        self._store, self._place = store, store.home / HELD_POWERS / str(folder.id)

    def own(self, directory: str, head: Head) -> None:
        """Note that a checkout makes this directory.

        Its client starts agents by two lines of a skill's head.
        """
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self._place / _OWNED, json.dumps({**self._read_owned(), directory: head.id}))

    def owns(self, directory: str, resource: int) -> bool:
        """Return whether a checkout made the directory of a resource, outside of work trees."""
        return self._read_owned().get(directory) == resource and work_tree(self._folder) is None

    def _read_owned(self) -> dict[str, int]:
        with suppress(OSError, ValueError, RecursionError):
            content = json.loads(read_regular(self._place / _OWNED))
            return content if isinstance(content, dict) else {}
        return {}

    def directories(self) -> set[str]:
        """Return the directories that there is a note on."""
        return {directory for directory, _ in self._read_all()}

    def of(self, directory: str) -> list[WrittenPowers]:
        """Return the notes on a directory, the newest last."""
        file = self._locate_file(directory)
        # First the cheap question: few directories have a note.
        return self._read(file)[1] if os.path.exists(file) else []

    def restore_files(self, directory: str, head: Head, version: int, files: Files) -> Files:
        """Return files that were read, with their version's powers where nobody changed those."""
        records = self.of(directory)
        main = main_path(head.kind, head.name, files) if records else ""
        if not main:
            return files
        tree, data = make_manifest(files).tree, files[main].data
        own = [record for record in records if record.resource == head.id]
        # By the content first: the version of the row may lag behind after a crash.
        matching = [record for record in own if record.tree == tree] or [
            record for record in own if record.version == version
        ]
        for record in reversed(matching):
            with suppress(EvolvableError):
                version_main = self._read_main(head, record.version)
                written = with_powers(
                    version_main, self._read_main(head, record.base), record.names
                )
                plain = without_fork(data, record.agent) if record.agent else data
                restored = restore_powers(plain, written, version_main, record.names)
                return _replace_main(files, main, restored)
        return files

    def version_of(self, directory: str, head: Head, tree: str) -> int | None:
        """Return the version that was written with this tree, None for none.

        tree: that of all files of the directory, or that of a single file as SINGLE.
        """
        for record in reversed(self.of(directory)):
            with suppress(EvolvableError):
                main = with_powers(
                    self._read_main(head, record.version),
                    self._read_main(head, record.base),
                    record.names,
                )
                main = with_fork(main, record.agent) if record.agent else main
                # A single file is known by its own tree, the directory by that of all files.
                if tree in (record.tree, make_manifest({SINGLE: File(main)}).tree):
                    return record.version
        return None

    def may_withhold(self, place: Path, directory: str, head: Head, files: Files) -> bool:
        """Return whether a directory may not be given all powers of the next version.

        A sync writes such a directory. place: where it lies. files: of the next version.
        """
        main = main_path(head.kind, head.name, files)
        if self.of(directory) or not main or self._may_fork(directory, head, files[main].data):
            return True
        try:
            lying = read_regular(place / main, MAX_FILE)
        except OSError:
            return True
        return bool(different_powers(files[main].data, lying))

    def would_give(self, directory: str, head: Head, files: Files, lying: Files) -> Files:
        """Return the files to write for a version, with powers out of force as the base has them.

        lying: the files in the directory. A power that is there as the version has it stays: its
        client has it from the disk.
        """
        return self._choose_files(directory, head, files, lying)[0]

    def give(self, directory: str, head: Head, files: Files, lying: Files) -> Files:
        """Return the files to write into a directory for a version, and record them first."""
        given_files, record = self._choose_files(directory, head, files, lying)
        main = main_path(head.kind, head.name, files)
        # Also where nothing differs now: an approval can add the lines while the directory lies
        # there.
        if given_files != files or (main and self._may_fork(directory, head, files[main].data)):
            self._note(directory, record)
        return given_files

    def _choose_files(
        self, directory: str, head: Head, files: Files, lying: Files
    ) -> tuple[Files, WrittenPowers]:
        held_powers, main = self._policy(head), main_path(head.kind, head.name, files)
        data = files[main].data if main else b""
        names, base, agent = frozenset[str](), 0, ""
        if held_powers is not None and main:
            # A power that lies there as the version has it was read by the client already; taking
            # it away helps nobody.
            names, base = held_powers.names, held_powers.version
            different = different_powers(data, lying[main].data) if main in lying else [WHOLE]
            if WHOLE not in different:
                names &= set(different)
            data = with_powers(data, held_powers.base, names)
        if main and self._may_fork(directory, head, files[main].data):
            agent = self._forks(head, self._folder)
            lying_main = lying[main].data if main in lying else b""
            data = with_fork(data, agent, lying_main) if agent else data
        given_files = _replace_main(files, main, data) if main else files
        tree = make_manifest(given_files).tree
        return given_files, WrittenPowers(head.id, head.latest, base, names, tree, agent)

    def _may_fork(self, directory: str, head: Head, data: bytes) -> bool:
        """Return whether a directory may get the lines of a fork.

        A person can approve them at any time.
        """
        if b"delegate" not in data or not self.owns(directory, head.id):
            return False
        return summarize(parse_document(data)).delegate is not None

    def note_given(self, directory: str, head: Head, given_files: Files) -> None:
        """Delete the notes on a version after a directory was given all of it."""
        records, main = self.of(directory), main_path(head.kind, head.name, given_files)
        # Something was withheld, so the note is still needed.
        if not records or make_manifest(given_files).tree != head.tree:
            return
        if main and self._may_fork(directory, head, given_files[main].data):
            return
        # Notes on other versions stay: a crash can bring their files back.
        if others := [record for record in records if record.version != head.latest]:
            self._write(directory, others)
        else:
            self._locate_file(directory).unlink(missing_ok=True)

    def _note(self, directory: str, record: WrittenPowers) -> None:
        others = [each for each in self.of(directory) if each.version != record.version]
        self._write(directory, [*others, record][-_KEPT:])

    def note_edit(self, directory: str, head: Head, lying: Files, files: Files) -> None:
        """Record that a directory holds the files `lying`, of which its next version is made.

        files: of that version.
        """
        main, records = main_path(head.kind, head.name, files), self.of(directory)
        if not records:
            return
        last, data = records[-1], files[main].data
        names = frozenset(different_powers(lying[main].data, data))
        # A file that has the lines of a fork itself gets none by a checkout.
        agent = last.agent if with_fork(data, last.agent) != data else ""
        if names or agent:
            tree, next_version = make_manifest(lying).tree, head.latest + 1
            self._note(
                directory, WrittenPowers(head.id, next_version, last.base, names, tree, agent)
            )

    def _read_main(self, head: Head, version: int) -> bytes:
        if not version:
            return b""
        path = main_path(head.kind, head.name, self._store.manifest(head, version))
        return self._store.file(head, path, version).data if path else b""

    def _locate_file(self, directory: str) -> Path:
        # A hash: the path of a directory may be no file name.
        digest = hashlib.sha256(directory.encode("utf-8", "surrogatepass")).hexdigest()
        return self._place / f"{digest[:32]}.json"

    def _read_all(self) -> Iterator[tuple[str, list[WrittenPowers]]]:
        try:
            names = sorted(os.listdir(self._place))
        except OSError:
            return
        for name in names:
            if name.endswith(".json"):
                directory, records = self._read(self._place / name)
                if records:
                    yield directory, records

    def _write(self, directory: str, records: list[WrittenPowers]) -> None:
        place = self._locate_file(directory)
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
            note = json.loads(read_regular(place))
            return str(note["directory"]), [_parse_record(row) for row in note["records"]]
        return "", []


def _replace_main(files: Files, main: str, data: bytes) -> Files:
    """Return the files with other bytes of the main file; the same mapping for equal bytes."""
    if data == files[main].data:
        return files
    return {**files, main: File(data, files[main].mode)}


def _parse_record(row: dict[str, object]) -> WrittenPowers:
    names, numbers = row["names"], [row[key] for key in ("resource", "version", "base")]
    if not isinstance(names, list) or not all(isinstance(number, int) for number in numbers):
        raise ValueError("no note on powers")
    resource, version, base = (int(str(number)) for number in numbers)
    written = frozenset(map(str, names)), str(row["tree"]), str(row.get("agent", ""))
    return WrittenPowers(resource, version, base, *written)
