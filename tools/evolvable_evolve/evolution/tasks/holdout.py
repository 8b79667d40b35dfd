"""The held-out test: its seal, the count of looks over all runs, and the redaction for agents.

The types enforce it: nothing before the last measurement takes a TaskSet. It takes OpenTasks, which
cannot hold a test row, and a SealedTest, which shows nothing until it is opened. Redaction for
agents is no access control: an agent that may run commands on this machine can read the library's
files.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from filelock import FileLock

from evolvable_evolve.evolution.executors import parse_strict_json
from evolvable_evolve.evolution.ledger import EVOLVE_DIR
from evolvable_evolve.evolution.task import Split, Task, TaskSet, Trial
from evolvable_evolve.evolution.tasks import reader
from evolvable_evolve.evolution.tasks.opened_tasks import OpenedTaskLog, TaskOpening
from evolvable_evolve.evolution.tasks.similarity import (
    TextSketch,
    describe_claim,
    sketch_set,
    sketches_to_record,
)
from evolvable_store.errors import LibraryCorrupt, Refused

if TYPE_CHECKING:
    from evolvable_evolve.evolution.trials import TrialRequest, TrialRunner


ACCESS_FILE = "looks.jsonl"


@dataclass(frozen=True, slots=True)
class TestAccess:
    """One opening of a test: its number for this test, from 1 on, and who opened it when."""

    test: str
    number: int
    run: str
    finalist: str
    at: str


def _now() -> datetime:
    return datetime.now(UTC)


class TestAccessLog:
    """The looks in one file, a JSON object a line; lines are only added.

    Several processes may use it at once.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime] = _now) -> None:
        self._path, self._clock = path, clock

    @classmethod
    def in_library(cls, home: Path) -> "TestAccessLog":
        """Return the log of a library, which all its runs share."""
        return cls(home / EVOLVE_DIR / ACCESS_FILE)

    def take(self, test: str, run: str, finalist: str, least: int = 1) -> int:
        """Record a look and return its number; the same run and finalist get their number again.

        The record is on the disk before the number is returned. least: the lowest number that it
        may have. Several looks that opened no task may share a number. Raises LibraryCorrupt when
        the file is damaged, and OSError.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Held from reading the highest number to writing the next one: two runs must not get the
        # same look.
        with FileLock(f"{self._path}.lock"):
            looks = self._read(cut=True)
            mine = [look for look in looks if look.test == test]
            for look in mine:
                # A run that was killed after its record opens the test again: no further look.
                if (look.run, look.finalist) == (run, finalist):
                    return look.number
            number = max(least, max((look.number for look in mine), default=0) + 1)
            line = {
                "test": test,
                "number": number,
                "run": run,
                "finalist": finalist,
                "at": self._clock().isoformat(),
            }
            with self._path.open("ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                # On the disk before the number is returned: a test must not be opened without a
                # record.
                os.fsync(file.fileno())
        return number

    def merge(self, data: bytes) -> None:
        """Add the looks of a backup that are not recorded here.

        Of a damaged file the sound lines stay.
        """
        if not data:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self._path}.lock"):
            here = self._path.read_bytes() if self._path.exists() else b""
            # Equal lines are the same look, in either file.
            lines = dict.fromkeys(filter(_is_access, (*here.split(b"\n"), *data.split(b"\n"))))
            merged = b"".join(line + b"\n" for line in lines)
            if merged != here:
                # Replaced as a whole: a kill meanwhile leaves the old file.
                draft = self._path.with_suffix(".merged")
                draft.write_bytes(merged)
                os.replace(draft, self._path)

    def of(self, test: str) -> list[TestAccess]:
        """Return the looks at a test so far, in order."""
        return [look for look in self._read() if look.test == test]

    def _read(self, *, cut: bool = False) -> list[TestAccess]:
        """Read all looks.

        A last line without its end was never finished, and its number was not returned. It is left
        out. cut: remove it; the caller holds the lock.
        """
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        whole, _, torn = data.rpartition(b"\n")
        # Only under the lock: another process may be writing this line.
        if torn and cut:
            with self._path.open("r+b") as file:
                file.truncate(len(data) - len(torn))
        try:
            return [TestAccess(**json.loads(line)) for line in whole.split(b"\n") if line]
        except (ValueError, TypeError):
            # A lower count of looks would raise the alpha, so a damaged file is an error.
            raise LibraryCorrupt(
                f"{self._path} is damaged: the looks at sealed tests cannot be counted.",
                "Bring it back from a backup; without it no promotion can be claimed.",
            ) from None


def _is_access(line: bytes) -> bool:
    try:
        TestAccess(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return False
    return True


class TestSealed(Refused):
    """A test task is used where none may be."""


@dataclass(frozen=True, slots=True)
class OpenTasks:
    """A task set without its test.

    `files` has no records of tasks, and no file of a workspace of test tasks alone.
    """

    name: str
    digest: str
    test_digest: str
    train: tuple[Task, ...]
    val: tuple[Task, ...]
    files: Mapping[str, bytes]

    def __post_init__(self) -> None:
        """Raise TestSealed for a task that is not of its split."""
        for split, tasks in ((Split.TRAIN, self.train), (Split.VAL, self.val)):
            for task in tasks:
                if task.split is not split:
                    text = f"Task {task.id} is of {task.split} and was put into {split}."
                    raise TestSealed(text, "The test is sealed.")


@dataclass(frozen=True, slots=True)
class OpenedTest:
    """The test after it was opened, with the files of the task set. look: its number."""

    tasks: tuple[Task, ...]
    files: Mapping[str, bytes]
    look: int


class SealedTest:
    """The test before it is opened: its size and its digest.

    It cannot be pickled, listed or printed.
    """

    # A mangled name, so that no other code reads the tasks by accident.
    __slots__ = ("__taskset", "digest", "size", "sketches")

    def __init__(self, taskset: TaskSet) -> None:
        self.__taskset = taskset
        self.digest = taskset.test_digest
        self.size = len(taskset.of(Split.TEST))
        # Sketches of the whole set: the form of a task shows only beside the others.
        sketches = sketch_set(taskset)
        self.sketches = {task.id: sketches[task.id] for task in taskset.of(Split.TEST)}

    def open(self, looks: TestAccessLog, run: str, finalist: str, least: int = 1) -> OpenedTest:
        """Return the test for one finalist of one run, after the look was recorded.

        The same run and finalist get their number again, as after a kill. Any other is a further
        look. Raises TestSealed when there is no test, and as TestAccessLog.take.
        """
        tasks = self.__taskset.of(Split.TEST)
        if not tasks:
            raise TestSealed(
                f"{self.__taskset.name} has no test.", "Give it test tasks, or claim nothing."
            )
        # The look is on the disk before the tasks are returned.
        look = looks.take(self.digest, run, finalist, least)
        return OpenedTest(tasks, self.__taskset.files, look)

    def describe_claim(self) -> str:
        """Return the scope of a claim on its tasks where some of them read alike, else ''."""
        return describe_claim(self.__taskset.of(Split.TEST), self.__taskset.alike)

    def to_record(self, ids: Iterable[str]) -> tuple[TextSketch, ...]:
        """Return the sketches of some of its tasks as a look records them."""
        return sketches_to_record(self.__taskset, [self.sketches[id_] for id_ in ids])

    def __repr__(self) -> str:
        return f"SealedTest({self.size} tasks, {self.digest[:12]})"

    def __reduce__(self) -> str:
        # Pickling would give the tasks to another process in spite of the mangled name.
        raise TestSealed(
            "A sealed test is not handed to another process.", "Open it where the verdict is made."
        )


class TestRunner(Protocol):
    """Measures requests of the test, as TrialRunner does."""

    async def measure(
        self, requests: "Sequence[TrialRequest]", batch: str | None = None
    ) -> list[Trial]:
        """Return a trial for each request, in order."""
        ...


@dataclass(frozen=True)
class RecordingRunner:
    """A runner that records which tasks of the test it opens, before it runs them."""

    runner: "TrialRunner"
    record: Callable[[Sequence[Task]], object]

    async def measure(
        self, requests: "Sequence[TrialRequest]", batch: str | None = None
    ) -> list[Trial]:
        """Return a trial for each request, in order; the tasks are recorded as opened first.

        Raises as TrialRunner.
        """
        # Recorded before the first trial: after a kill, a task that may have been seen counts as
        # opened.
        self.record(list({task.id: task for _, task, _ in requests}.values()))
        return await self.runner.measure(requests, batch)


@dataclass(frozen=True)
class HeldOutTest:
    """The sealed test of a run with its runner, opened once for one finalist.

    opened: the log of opened tasks, over all runs and task sets. program: refs of the resources
    that the run changes.
    """

    test: SealedTest
    accesses: TestAccessLog
    make_runner: "Callable[[Mapping[str, bytes]], TrialRunner]"
    opened: OpenedTaskLog | None = None
    program: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The number of its tasks."""
        return self.test.size

    def describe_claim(self) -> str:
        """Return the scope of a claim on its tasks where some of them read alike, else ''."""
        return self.test.describe_claim()

    @property
    def look(self) -> int:
        """The number of the next look, over all runs; see `next_look`."""
        sketches = list(self.test.sketches.values())
        return next_look(sketches, self.test.digest, self.accesses, self.opened)

    def open(self, run: str, finalist: str) -> "tuple[Sequence[Task], int, TestRunner]":
        """Return its tasks, the number of this look, and a runner that records the opened tasks.

        The tasks are reserved first, so that another run that opens any of them meanwhile has a
        later look.
        """
        least = 1
        # Before the test is opened: of two runs at once, the second one counts the first one's
        # reservation.
        if self.opened:
            sketches = self.test.to_record(self.test.sketches)
            opening = self._make_opening(run, finalist, sketches)
            least = self.opened.reserve(opening, list(self.test.sketches.values()))
        opened = self.test.open(self.accesses, run, finalist, least)
        runner = self.make_runner(opened.files)
        if self.opened is None:
            return opened.tasks, opened.look, runner
        log, opened_ids = self.opened, {task.id for task in opened.tasks}

        def record(tasks: Sequence[Task]) -> None:
            # A canary is no task of the test.
            own = [task.id for task in tasks if task.id in opened_ids]
            log.add(self._make_opening(run, finalist, self.test.to_record(own)))

        return opened.tasks, opened.look, RecordingRunner(runner, record)

    def decide(self, run: str, finalist: str) -> None:
        """Record that a run is decided: test tasks that it did not open are fresh again."""
        if self.opened is not None:
            self.opened.decide(run, finalist)

    def _make_opening(self, run: str, finalist: str, sketches: Sequence[TextSketch]) -> TaskOpening:
        return TaskOpening(run, finalist, self.test.digest, self.program, tuple(sketches))


def next_look(
    sketches: Sequence[TextSketch],
    digest: str,
    accesses: TestAccessLog,
    opened: OpenedTaskLog | None,
) -> int:
    """Return the number of the next look at a test.

    It is one more than the most looks at any of its tasks. A look from before tasks were recorded
    counts for all of them.
    """
    if opened is None:
        return len(accesses.of(digest)) + 1
    recorded = opened.runs_with_tasks()
    # Older looks have no record of their tasks.
    unknown = sum((look.run, look.finalist) not in recorded for look in accesses.of(digest))
    return 1 + max(opened.count_looks(sketches), default=0) + unknown


def look_at(home: Path, taskset: TaskSet) -> int:
    """Return the number of the next look at the test of a task set, over all runs of a library."""
    every = sketch_set(taskset)
    sketches = [every[task.id] for task in taskset.of(Split.TEST)]
    accesses, opened = TestAccessLog.in_library(home), OpenedTaskLog.in_library(home)
    return next_look(sketches, taskset.test_digest, accesses, opened)


def opened_before(home: Path, taskset: TaskSet, tasks: Sequence[Task]) -> list[str]:
    """Return the ids of those of these tasks that a sealed test has opened before."""
    every = sketch_set(taskset)
    counts = OpenedTaskLog.in_library(home).count_looks([every[task.id] for task in tasks])
    return [task.id for task, count in zip(tasks, counts, strict=True) if count]


def hold_out_test(taskset: TaskSet) -> tuple[OpenTasks, SealedTest]:
    """Return the task set in two: the part that the search may see, and the test."""
    train, val = taskset.of(Split.TRAIN), taskset.of(Split.VAL)
    # Without the records: they have expected answers, and the search gets its tasks parsed.
    files = {
        path: data
        for path, data in taskset.files.items()
        if not reader.holds_task(path) and not _in_test_workspace(path, taskset)
    }
    open_ = OpenTasks(taskset.name, taskset.digest, taskset.test_digest, train, val, files)
    return open_, SealedTest(taskset)


def _in_test_workspace(path: str, taskset: TaskSet) -> bool:
    """Return whether only tasks of the test begin with the file at this path."""
    owners = [task for task in taskset.tasks if task.files and path.startswith(f"{task.files}/")]
    # A folder that a training task shares is open anyway.
    return {task.split for task in owners} == {Split.TEST}


SEALED_NOTICE = (
    "[Not shown to agents: this belongs to the sealed test of a task set, or tells an answer. A "
    "person sees it with `evolvable get`.]\n"
)
"""The text that replaces a whole file."""

REDACTION_NOTE = (
    "[Not the whole file: to agents the expected answers, the arguments of scorers, and {hidden} "
    "of the sealed test are not shown. A person sees all with `evolvable get`. Do not write this "
    "back: change it by edits.]\n"
)
"""The first line of a file of tasks in an agent's view."""

# Fields of a record that may give an answer away.
_TELLING = ("expected", "scorer", "answer")
_OPEN = (Split.TRAIN.value, Split.VAL.value)


def is_task_set(files: Mapping[str, Any]) -> bool:
    """Return whether an environment with files at these paths is a task set."""
    return reader.LINES in files or any(path.startswith(reader.FOLDER) for path in files)


def redact_file(path: str, files: Mapping[str, bytes]) -> bytes:
    """Return a file of an environment for an agent's view.

    The same bytes where there is nothing to hide.
    """
    if not is_task_set(files):
        return files[path]
    try:
        taskset = reader.read_taskset("tasks", files)
    except reader.InvalidTaskSet:
        # Then a task is open only by a split in its own record.
        taskset = None
    if path == reader.LINES:
        return _redact_lines(files[path], taskset)
    if path.startswith(reader.FOLDER):
        return _redact_folder_file(path, files[path], taskset)
    if taskset and _in_test_workspace(path, taskset):
        return SEALED_NOTICE.encode()
    return files[path]


def _redact_lines(data: bytes, taskset: TaskSet | None) -> bytes:
    open_lines, hidden = [], 0
    for line in reader.split_lines(data.decode("utf-8", "replace")):
        if not line.strip():
            # Blank lines are not counted as hidden tasks.
            continue
        record = _parse_object(line)
        if record is None or not _is_open(record.get("id"), record, taskset):
            hidden += 1
        else:
            open_lines.append(json.dumps(_remove_answer(record), ensure_ascii=False))
    note = REDACTION_NOTE.format(hidden=f"{hidden} task{'s' * (hidden != 1)}")
    text = note + "".join(f"{line}\n" for line in open_lines)
    return text.encode("utf-8", "replace")


def _redact_folder_file(path: str, data: bytes, taskset: TaskSet | None) -> bytes:
    parts = path.split("/")
    # A file beside the folders of tasks, or one of a test task.
    if len(parts) < 3 or not _is_open(parts[1], {}, taskset):
        return SEALED_NOTICE.encode()
    if not reader.holds_task(path) or parts[2] == "prompt.md":
        return data
    record = _parse_object(data.decode("utf-8", "replace")) if parts[2] == "task.json" else None
    if record is None:
        return SEALED_NOTICE.encode()
    note = REDACTION_NOTE.format(hidden="the tasks")
    visible = json.dumps(_remove_answer(record), ensure_ascii=False, indent=1)
    return f"{note}{visible}\n".encode("utf-8", "replace")


def _parse_object(text: str) -> dict[str, Any] | None:
    try:
        value = parse_strict_json(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_open(name: object, record: Mapping[str, Any], taskset: TaskSet | None) -> bool:
    """Return whether a task is certainly not of the test."""
    # In a set that cannot be read, only an explicit split counts.
    if taskset is None:
        return record.get("split") in _OPEN
    return any(task.id == name and task.split is not Split.TEST for task in taskset.tasks)


def _remove_answer(record: Mapping[str, Any]) -> dict[str, Any]:
    visible = {key: value for key, value in record.items() if key not in _TELLING}
    scorer = record.get("scorer")
    # The type of a scorer is harmless; its arguments may hold the answer.
    if isinstance(scorer, dict) and isinstance(scorer.get("type"), str):
        scorer = scorer["type"]
    return visible | ({"scorer": scorer} if isinstance(scorer, str) else {})
