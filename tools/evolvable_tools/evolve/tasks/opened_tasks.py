"""Which test tasks were opened, by the near-duplicates of their text: a look counts for a task and not for a file.

A space in a prompt, a dropped task or a task moved to another set leaves the count as it is. The record is one file of
the library; each line stands for one opening of some tasks.
"""

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from evolvable_store.errors import LibraryCorrupt
from evolvable_tools.evolve.ledger.run_directory import EVOLVE_DIR
from evolvable_tools.evolve.task import Task
from evolvable_tools.evolve.tasks.similarity import TextSketch, task_text

OPENED_FILE = "opened.jsonl"


@dataclass(frozen=True, slots=True)
class TaskOpening:
    """Tasks that one run opened for one finalist. program: refs of what was measured."""

    run: str
    finalist: str
    test: str
    program: tuple[str, ...]
    sketches: tuple[TextSketch, ...]


class OpenedTaskLog:
    """The openings in one file, a JSON object a line, only ever added to. Several processes may use it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def in_library(cls, home: Path) -> "OpenedTaskLog":
        """Return the log of a library."""
        return cls(home / EVOLVE_DIR / OPENED_FILE)

    def add(self, opening: TaskOpening) -> None:
        """Write an opening down for good, as far as the same run and finalist have not opened these tasks before.

        Raises LibraryCorrupt, OSError.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self._path}.lock"):
            mine = {
                sketch.words
                for one in self._read(mend=True)
                if (one.run, one.finalist) == (opening.run, opening.finalist)
                for sketch in one.sketches
            }
            fresh = [sketch.to_json() for sketch in opening.sketches if sketch.words not in mine]
            if fresh:
                self._append({**_about(opening), "tasks": fresh})

    def count_looks(self, sketches: Sequence[TextSketch], test: str = "") -> list[int]:
        """Return for each text by how many finalists it, or a near-duplicate, was opened before."""
        return [len(found) for found in self._openers(sketches)]

    def look_of(self, sketches: Sequence[TextSketch], run: str, finalist: str) -> int:
        """Return the number of the next look: one more than the most of its tasks, without those of this finalist."""
        found = self._openers(sketches)
        return 1 + max((len(who - {(run, finalist)}) for who in found), default=0)

    def runs_with_tasks(self) -> set[tuple[str, str]]:
        """Return the runs and finalists of which it is known what they opened."""
        return {(one.run, one.finalist) for one in self._read()}

    def _openers(self, sketches: Sequence[TextSketch]) -> list[set[tuple[str, str]]]:
        found: list[set[tuple[str, str]]] = [set() for _ in sketches]
        by_words: dict[str, set[tuple[str, str]]] = defaultdict(set)
        known: list[tuple[TextSketch, tuple[str, str]]] = []
        for opening in self._read():
            who = (opening.run, opening.finalist)
            for sketch in opening.sketches:
                by_words[sketch.words].add(who)
                if sketch.triples:
                    known.append((sketch, who))
        for at, sketch in enumerate(sketches):
            found[at] |= by_words.get(sketch.words, set())
            for other, who in known if sketch.triples else ():
                if who not in found[at] and _may_be_near(sketch, other) and sketch.is_near(other):
                    found[at].add(who)
        return found

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._path.open("ab") as file:
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self, *, mend: bool = False) -> list[TaskOpening]:
        """Read all openings. A last line without its end was never finished: nothing was run for it."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        whole, _, torn = data.rpartition(b"\n")
        if torn and mend:
            with self._path.open("r+b") as file:
                file.truncate(len(data) - len(torn))
        return list(self._parse(whole))

    def _parse(self, data: bytes) -> Iterator[TaskOpening]:
        try:
            for line in data.split(b"\n"):
                if line:
                    said = json.loads(line)
                    sketches = tuple(TextSketch.from_json(one) for one in said["tasks"])
                    about = (
                        str(said["run"]),
                        str(said["finalist"]),
                        str(said["test"]),
                        tuple(map(str, said["program"])),
                    )
                    yield TaskOpening(*about, sketches)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise LibraryCorrupt(
                f"{self._path} is damaged: the looks at test tasks cannot be counted.",
                "Bring it back from a backup; without it no promotion can be claimed.",
            ) from None

    def export_lines(self, sketches: Sequence[TextSketch]) -> bytes:
        """Return the openings of these tasks as lines that `import_lines` takes, empty where there are none."""
        lines = []
        for opening in self._read():
            own = [one.to_json() for one in opening.sketches if any(one.is_near(sketch) for sketch in sketches)]
            if own:
                lines.append(json.dumps({**_about(opening), "tasks": own}, separators=(",", ":")))
        return "".join(f"{line}\n" for line in lines).encode()

    def import_lines(self, data: bytes) -> int:
        """Add the openings that another library recorded, and return how many were new. Other lines are skipped.

        An opening can only raise the number of a look, so what an archive says here can make nothing easier to promote.
        """
        added = 0
        for line in data.split(b"\n")[:10_000]:
            with contextlib.suppress(LibraryCorrupt):
                for opening in self._parse(line):
                    before = len(self._read())
                    self.add(opening)
                    added += len(self._read()) > before
        return added


def _about(opening: TaskOpening) -> dict[str, Any]:
    return {"run": opening.run, "finalist": opening.finalist, "test": opening.test, "program": list(opening.program)}


def _may_be_near(one: TextSketch, other: TextSketch) -> bool:
    """Return whether two texts share one of their lowest hashes, which near-duplicates all but surely do."""
    return not set(one.triples[:8]).isdisjoint(other.triples[:16])


def sketch_tasks(tasks: Iterable[Task], files: Mapping[str, bytes]) -> list[TextSketch]:
    """Return the sketches of these tasks, in order."""
    return [TextSketch.of(task_text(task, files)) for task in tasks]
