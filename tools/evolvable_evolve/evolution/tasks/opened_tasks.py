"""The record of the test tasks that each run opened, by which looks at a sealed test are counted.

A look counts for a task and not for a file. A space in a prompt, a dropped task, a longer prompt
around the old one, or a task moved to another set leaves the count as it is. The record is one file
of the library, to which lines are only added. A run first reserves all tasks of its test, then
records those that it opens. When it is decided, the tasks that it reserved and did not open are
fresh again.
"""

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from filelock import FileLock

from evolvable_evolve.evolution.ledger import EVOLVE_DIR
from evolvable_evolve.evolution.tasks.similarity import TextSketch
from evolvable_store.errors import LibraryCorrupt

OPENED_FILE = "opened.jsonl"


class OpeningState(StrEnum):
    """The state of the tasks of a line."""

    OPENED = "opened"
    RESERVED = "reserved"
    DECIDED = "decided"


@dataclass(frozen=True, slots=True)
class TaskOpening:
    """Tasks that one run opened for one finalist, or reserved.

    program: refs of what was measured.
    """

    run: str
    finalist: str
    test: str
    program: tuple[str, ...]
    sketches: tuple[TextSketch, ...]
    state: OpeningState = OpeningState.OPENED

    @property
    def opener(self) -> tuple[str, str]:
        """The run and the finalist."""
        return self.run, self.finalist

    @classmethod
    def from_line(cls, line: bytes) -> "TaskOpening":
        """Return the opening of one line.

        Raises ValueError, TypeError, KeyError, RecursionError.
        """
        record = json.loads(line)
        sketches = tuple(TextSketch.from_json(sketch) for sketch in record["tasks"])
        run, finalist, test = (str(record[name]) for name in ("run", "finalist", "test"))
        state = OpeningState(record.get("state", OpeningState.OPENED))
        return cls(run, finalist, test, tuple(map(str, record["program"])), sketches, state)

    def to_line(self) -> bytes:
        """Return the line that `from_line` reads, with its end."""
        record = {
            "run": self.run,
            "finalist": self.finalist,
            "test": self.test,
            "program": list(self.program),
        }
        # An older version reads a line without a state as opened.
        if self.state is not OpeningState.OPENED:
            record["state"] = str(self.state)
        tasks = [sketch.to_json() for sketch in self.sketches]
        return json.dumps({**record, "tasks": tasks}, separators=(",", ":")).encode() + b"\n"


class OpenedTaskLog:
    """The openings in one file, a JSON object a line; lines are only added.

    Several processes may use it at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def in_library(cls, home: Path) -> "OpenedTaskLog":
        """Return the log of a library."""
        return cls(home / EVOLVE_DIR / OPENED_FILE)

    def add(self, opening: TaskOpening) -> None:
        """Record an opening, without the tasks that its run and finalist have opened before.

        It is on the disk before this returns. Raises LibraryCorrupt, OSError.
        """
        with self._writing() as recorded:
            self._append(recorded, [opening])

    def reserve(self, opening: TaskOpening, sketches: Sequence[TextSketch] = ()) -> int:
        """Reserve the tasks of a test for a run, and return the number of its look.

        sketches: the sketches by which earlier looks are found, by default those of the opening.

        The number is one more than the most looks at any of its tasks, reservations of other runs
        included. So of two runs that open one test together only one has the first look.
        Raises LibraryCorrupt, OSError.
        """
        # Counting and reserving under one lock: the next process counts this reservation.
        with self._writing() as recorded:
            by_task = _find_openers(recorded, sketches or opening.sketches)
            look = 1 + max((len(openers - {opening.opener}) for openers in by_task), default=0)
            self._append(recorded, [replace(opening, state=OpeningState.RESERVED)])
        return look

    def decide(self, run: str, finalist: str) -> None:
        """Record that a run is decided: tasks that it reserved and did not open are fresh again.

        Raises as `add`.
        """
        with self._writing() as recorded:
            mine = {opening.state for opening in recorded if opening.opener == (run, finalist)}
            # Recorded once, because a continued run decides again.
            if OpeningState.RESERVED in mine and OpeningState.DECIDED not in mine:
                decision = TaskOpening(run, finalist, "", (), (), OpeningState.DECIDED)
                self._write(decision.to_line())

    def count_looks(self, sketches: Sequence[TextSketch]) -> list[int]:
        """Return for each text how many finalists opened it, or nearly the same text."""
        return [len(openers) for openers in _find_openers(self._read(), sketches)]

    def runs_with_tasks(self) -> set[tuple[str, str]]:
        """Return the runs and finalists with recorded tasks."""
        return {opening.opener for opening in self._read()}

    @contextlib.contextmanager
    def _writing(self) -> Iterator[list[TaskOpening]]:
        """Yield the recorded openings, while no other process writes."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self._path}.lock"):
            yield self._read(cut=True)

    def _append(self, recorded: Sequence[TaskOpening], openings: Iterable[TaskOpening]) -> int:
        """Write the openings that are new, and return the number of their lines."""
        # A continued run opens its tasks again, which adds no line.
        known_keys = {
            (*earlier.opener, earlier.state, sketch.words)
            for earlier in recorded
            for sketch in earlier.sketches
        }
        lines = []
        for opening in openings:
            fresh = tuple(
                sketch
                for sketch in opening.sketches
                if (*opening.opener, opening.state, sketch.words) not in known_keys
            )
            known_keys |= {(*opening.opener, opening.state, sketch.words) for sketch in fresh}
            if fresh:
                lines.append(replace(opening, sketches=fresh).to_line())
        if lines:
            self._write(b"".join(lines))
        return len(lines)

    def _write(self, data: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _read(self, *, cut: bool = False) -> list[TaskOpening]:
        """Read all openings.

        A last line without its end was never finished, and nothing was run for it. cut: remove
        it; the caller holds the lock.
        """
        data = self.content()
        whole, _, torn = data.rpartition(b"\n")
        # Only under the lock: another process may be writing this line.
        if torn and cut:
            with self._path.open("r+b") as file:
                file.truncate(len(data) - len(torn))
        try:
            return [TaskOpening.from_line(line) for line in whole.split(b"\n") if line]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            # A lower count of looks would raise the alpha, so a damaged file is an error.
            raise LibraryCorrupt(
                f"{self._path} is damaged: the looks at test tasks cannot be counted.",
                "`evolvable backup restore BACKUP` keeps its sound lines and adds those of a "
                "backup. Until then no promotion can be claimed.",
            ) from None

    def content(self) -> bytes:
        """Return the file as it is, empty where there is none."""
        with contextlib.suppress(FileNotFoundError):
            return self._path.read_bytes()
        return b""

    def export_lines(self, sketches: Sequence[TextSketch] | None = None) -> bytes:
        """Return the openings of these tasks, by default all, as lines for `import_lines`."""
        lines = []
        for opening in _select_effective(self._read()):
            own = opening.sketches
            if sketches is not None:
                own = tuple(
                    sketch for sketch in own if any(_is_same(sketch, other) for other in sketches)
                )
            if own:
                lines.append(replace(opening, sketches=own).to_line())
        return b"".join(lines)

    def import_lines(self, data: bytes) -> int:
        """Add the openings of another library, and return how many lines were new.

        Lines that cannot be read are skipped. An import can only raise the number of a look: a
        decision of another library frees no task that is reserved here.
        """
        openings = list(_select_effective(_parse_sound(data)))
        if not openings:
            return 0
        with self._writing() as recorded:
            return self._append(recorded, openings)

    def merge_backup(self, data: bytes) -> None:
        """Add the openings of a backup. Of a damaged file the sound lines stay."""
        # Without a file there is nothing to lock, and its folder may not exist.
        with FileLock(f"{self._path}.lock") if self._path.exists() else contextlib.nullcontext():
            try:
                self._read()
            except LibraryCorrupt:
                sound = _select_effective(_parse_sound(self.content()))
                draft = self._path.with_suffix(".sound")
                draft.write_bytes(b"".join(opening.to_line() for opening in sound))
                # The damaged file is kept under another name before the sound lines replace it.
                os.replace(self._path, self._path.with_suffix(".damaged"))
                os.replace(draft, self._path)
        self.import_lines(data)


def _parse_sound(data: bytes) -> Iterator[TaskOpening]:
    """Yield the openings of the lines that can be read."""
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            if line:
                yield TaskOpening.from_line(line)


def _select_effective(openings: Iterable[TaskOpening]) -> Iterator[TaskOpening]:
    """Yield the openings that count: opened tasks, and those that undecided runs reserved."""
    openings = list(openings)
    decided = {opening.opener for opening in openings if opening.state is OpeningState.DECIDED}
    for opening in openings:
        is_reserved = opening.state is OpeningState.RESERVED and opening.opener not in decided
        if opening.state is OpeningState.OPENED or is_reserved:
            yield opening


def _is_same(first: TextSketch, second: TextSketch) -> bool:
    """Return whether two texts count as one task: nearly equal, or one within the other."""
    return first.is_near(second) or first.is_within(second)


def _find_openers(
    openings: Iterable[TaskOpening], sketches: Sequence[TextSketch]
) -> list[set[tuple[str, str]]]:
    """Return for each text the runs and finalists that opened it or nearly the same text."""
    # Equal words are found by their hash. Only texts that share a triple are compared, because a
    # library may have thousands of texts.
    by_words: dict[str, set[tuple[str, str]]] = defaultdict(set)
    by_sketch: dict[TextSketch, set[tuple[str, str]]] = defaultdict(set)
    for opening in _select_effective(openings):
        for sketch in opening.sketches:
            for name in sketch.names:
                by_words[name].add(opening.opener)
            if sketch.triples or sketch.shape:
                by_sketch[sketch].add(opening.opener)
    by_triple: dict[int, list[TextSketch]] = defaultdict(list)
    for sketch in by_sketch:
        for triple in (*sketch.triples, *sketch.shape):
            by_triple[triple].append(sketch)
    openers_of_each = []
    for sketch in sketches:
        openers = set().union(*(by_words.get(name, ()) for name in sketch.names))
        triples = (*sketch.triples, *sketch.shape)
        shared = {other for triple in triples for other in by_triple.get(triple, ())}
        for other in shared:
            # A comparison is skipped where its openers are counted already.
            if not by_sketch[other] <= openers and _is_same(sketch, other):
                openers |= by_sketch[other]
        openers_of_each.append(openers)
    return openers_of_each
