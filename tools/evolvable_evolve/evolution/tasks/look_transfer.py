"""Copy the looks at sealed tests with backups, archives and exported task sets.

Imported looks are added to the present ones. An import or a restored backup can raise the number of
a look, but not lower it.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.ledger import EVOLVE_DIR
from evolvable_evolve.evolution.tasks.holdout import ACCESS_FILE, TestAccessLog
from evolvable_evolve.evolution.tasks.locate import load_taskset
from evolvable_evolve.evolution.tasks.opened_tasks import OPENED_FILE, OpenedTaskLog, TaskOpening
from evolvable_evolve.evolution.tasks.similarity import TextSketch, sketch_set, sketches_to_record
from evolvable_store import read_regular
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import Kind, Ref
from evolvable_tools import Caller, Library


def backup_files(home: Path) -> dict[str, bytes]:
    """Return the records of a library that its backup includes, by their names in `evolve`."""
    files = {}
    for name in (OPENED_FILE, ACCESS_FILE):
        # Neither file exists before a sealed test was opened.
        with contextlib.suppress(FileNotFoundError):
            files[name] = read_regular(home / EVOLVE_DIR / name)
    return files


def merge_backup(home: Path, source: Path) -> None:
    """Add the records of a backup to those of a library. Of damaged records the sound lines stay.

    Raises OSError.
    """
    files = backup_files(source)
    OpenedTaskLog.in_library(home).merge_backup(files.get(OPENED_FILE, b""))
    TestAccessLog.in_library(home).merge(files.get(ACCESS_FILE, b""))


def looks_to_export(library: Library, caller: Caller, refs: Iterable[Ref] | None) -> bytes:
    """Return the lines of the looks at these resources, by default all. Raises LibraryCorrupt."""
    log = OpenedTaskLog.in_library(library.store.home)
    if refs is None:
        # With the looks at removed task sets: somebody may import such a set again.
        return log.export_lines()
    sketches = [
        sketch
        for ref in refs
        if ref.kind is Kind.ENVIRONMENT
        for sketch in _sketch_tasks(library, caller, ref)
    ]
    return log.export_lines(sketches) if sketches else b""


def _sketch_tasks(library: Library, caller: Caller, ref: Ref) -> list[TextSketch]:
    """Return the sketches of all tasks of an environment, none where it is no task set."""
    try:
        taskset, _ = load_taskset(library, caller, ref)
    # One broken set must not keep the others from being exported.
    except EvolvableError:
        return []
    return list(sketch_set(taskset).values())


def record_shown_test(
    library: Library, caller: Caller, run: str, settings: Mapping[str, Any], tasks: Sequence[str]
) -> None:
    """Record that a person saw the results of these test tasks in a run, once for each run.

    It counts as a look at each task. settings: of the run. Raises NoSuchResource, LibraryCorrupt.
    """
    # The version that the run measured: the set may have other tasks now.
    ref = Ref.parse(settings["task_set"]).at(settings["task_set_version"])
    taskset, _ = load_taskset(library, caller, ref)
    own_sketches = [sketch for id_, sketch in sketch_set(taskset).items() if id_ in set(tasks)]
    sketches = sketches_to_record(taskset, own_sketches)
    opening = TaskOpening(run, "shown to a person", taskset.test_digest, (), sketches)
    OpenedTaskLog.in_library(library.store.home).add(opening)


def import_looks(home: Path, lines: bytes) -> int:
    """Add the lines of an archive, and return how many records were new.

    Raises LibraryCorrupt, OSError.
    """
    return OpenedTaskLog.in_library(home).import_lines(lines) if lines else 0


class LookTransfer:
    """The looks as an `evolvable_server.plugins.ArchivePart`."""

    def backup_files(self, home: Path) -> dict[str, bytes]:
        """Return the records that a backup includes."""
        return backup_files(home)

    def merge_backup(self, home: Path, source: Path) -> None:
        """Add the records of a backup. Raises OSError."""
        merge_backup(home, source)

    def export(self, library: Library, caller: Caller, refs: Iterable[Ref] | None) -> bytes:
        """Return the lines of the looks at these resources. Raises LibraryCorrupt."""
        return looks_to_export(library, caller, refs)

    def add(self, home: Path, lines: bytes) -> int:
        """Add the lines of another library, and return how many were new.

        Raises LibraryCorrupt, OSError.
        """
        return import_looks(home, lines)
