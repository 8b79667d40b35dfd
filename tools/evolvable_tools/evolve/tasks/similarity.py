"""Near-duplicate tasks by their text: groups that must not be parted, and tasks that a test has opened before.

A look counts for a task and not for a file. A space in a prompt, a dropped task or a task moved to another set leaves
the count as it is. The record is one file of the library; each line stands for one opening of some tasks.
"""

import contextlib
import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from filelock import FileLock

from evolvable_store.errors import LibraryCorrupt
from evolvable_tools.evolve.ledger.run_directory import EVOLVE_DIR
from evolvable_tools.evolve.task import Task, task_fixtures

NEAR_DUPLICATE = 0.8
"""The share of common word triples from which on two texts are near-duplicates."""

MIN_WORDS = 8
"""A shorter text is only a duplicate of one with the same words."""

_SKETCH = 96  # hashes kept of a text's triples; enough to tell .8 from .6
_NEIGHBOURS = 20
_MAX_FILE_TEXT = 20_000  # characters of the files of one task that are compared
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class TextSketch:
    """A sketch of a prompt: a hash of its words, and the lowest hashes of its word triples.

    The text cannot be read from it, but somebody who guesses a text can tell that it is the one.
    """

    words: str
    triples: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the sketch of a text. Case, spaces and punctuation make no difference."""
        words = _WORD.findall(text.casefold())
        whole = hashlib.sha256(" ".join(words).encode("utf-8", "replace")).hexdigest()[:32]
        if len(words) < MIN_WORDS:
            return cls(whole, ())
        hashes = {
            int.from_bytes(
                hashlib.blake2b(" ".join(words[at : at + 3]).encode("utf-8", "replace"), digest_size=6).digest(), "big"
            )
            for at in range(len(words) - 2)
        }
        return cls(whole, tuple(sorted(hashes)[:_SKETCH]))

    @classmethod
    def from_json(cls, said: Any) -> Self:
        """Return the sketch that `to_json` gave. Raises ValueError, TypeError, KeyError for anything else."""
        words, triples = said["words"], said["triples"]
        if not isinstance(words, str) or not all(isinstance(one, int) for one in triples):
            raise ValueError("no sketch of a text")
        return cls(words, tuple(triples))

    def to_json(self) -> dict[str, Any]:
        """Return the sketch as a JSON value."""
        return {"words": self.words, "triples": list(self.triples)}

    @cached_property
    def _set(self) -> frozenset[int]:
        return frozenset(self.triples)

    def is_near(self, other: "TextSketch") -> bool:
        """Return whether two texts are near-duplicates."""
        if self.words == other.words:
            return True
        if not self.triples or not other.triples:
            return False
        lowest = sorted(self._set | other._set)[:_SKETCH]
        common = sum(1 for one in lowest if one in self._set and one in other._set)
        return common / len(lowest) >= NEAR_DUPLICATE


def _buckets(sketches: Sequence[TextSketch]) -> Iterator[list[int]]:
    """Yield numbers of sketches that share a hash, so that not every pair has to be compared."""
    found: dict[object, list[int]] = defaultdict(list)
    for number, sketch in enumerate(sketches):
        found[sketch.words].append(number)
        # Of near-duplicates one of the lowest hashes is all but surely common.
        for one in sketch.triples[:8]:
            found[one].append(number)
    yield from (numbers for numbers in found.values() if len(numbers) > 1)


def find_groups(texts: Mapping[str, str], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the group of every task by its id: near-duplicates, and those to which a person gave one name, together.

    A group is named by the first of its ids. A person's names can only join what was detected, and not part it.

    Args:
        texts: the prompt of each task.
        given: the group that a person named, by task; '' for none.
    """
    ids = sorted(texts)
    leader = dict(zip(ids, ids, strict=True))

    def find(one: str) -> str:
        while leader[one] != one:
            leader[one] = leader[leader[one]]
            one = leader[one]
        return one

    def join(one: str, other: str) -> None:
        first, second = sorted((find(one), find(other)))
        leader[second] = first

    sketches = [TextSketch.of(texts[one]) for one in ids]
    for numbers in _buckets(sketches):
        # Those with the most in common stand beside each other; all pairs would be too many for a large template.
        order = sorted(numbers, key=lambda number: (sketches[number].triples, number))
        for at, number in enumerate(order[1:], 1):
            for earlier in order[max(0, at - _NEIGHBOURS) : at]:
                if find(ids[number]) != find(ids[earlier]) and sketches[number].is_near(sketches[earlier]):
                    join(ids[number], ids[earlier])
    named: dict[str, str] = {}
    for one, name in sorted((given or {}).items()):
        if name and one in leader:
            join(named.setdefault(name, one), one)
    return {one: find(one) for one in ids}


def group_tasks(tasks: Iterable[Task], files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the group of every task by its id. files: of the task set, compared as far as workspaces hold them."""
    tasks = list(tasks)
    return find_groups({task.id: task_text(task, files) for task in tasks}, {task.id: task.group for task in tasks})


def task_text(task: Task, files: Mapping[str, bytes]) -> str:
    """Return what a program is given of a task, as one text."""
    fixtures = task_fixtures(task, files)
    shown = "\n".join(f"{path}\n{data.decode('utf-8', 'replace')}" for path, data in sorted(fixtures.items()))
    return f"{task.prompt}\n{shown[:_MAX_FILE_TEXT]}"


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
