"""The seal: whoever searches gets what has no test row in it; the test opens once for a finalist, and that is counted.

The types carry it: nothing before the last measurement takes a TaskSet. It takes OpenTasks, which cannot hold a test
row, and a SealedTest, which shows nothing until it is opened.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from evolvable_store.errors import Refused
from evolvable_tools.evolve.task import Split, Task, TaskSet
from evolvable_tools.evolve.tasksets.looks import Looks
from evolvable_tools.evolve.tasksets.reading import holds_task


class Sealed(Refused):
    """A test row was asked for, or put, where none may be."""


@dataclass(frozen=True, slots=True)
class TaskView:
    """What a proposer or a builder may know of a task: never its expected answer, its scorer or its files."""

    id: str
    prompt: str
    category: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenTasks:
    """A task set without its test. `files` has no file that only a test task's workspace begins with, and no tasks."""

    name: str
    digest: str
    test_digest: str
    train: tuple[Task, ...]
    val: tuple[Task, ...]
    files: Mapping[str, bytes]

    def __post_init__(self) -> None:
        """Raises Sealed for a task that is not of its split."""
        for split, tasks in ((Split.TRAIN, self.train), (Split.VAL, self.val)):
            for task in tasks:
                if task.split is not split:
                    raise Sealed(f"Task {task.id} is of {task.split} and was put into {split}.", "The test is sealed.")


@dataclass(frozen=True, slots=True)
class OpenedTest:
    """The test after it was opened, with the files of the task set; this was look number `look` at it."""

    tasks: tuple[Task, ...]
    files: Mapping[str, bytes]
    look: int


class SealedTest:
    """The test before it is opened: how large it is, and its digest. It cannot be pickled, listed or printed."""

    __slots__ = ("__taskset", "digest", "size")

    def __init__(self, taskset: TaskSet) -> None:
        self.__taskset = taskset
        self.digest = taskset.test_digest
        self.size = len(taskset.of(Split.TEST))

    def open(self, looks: Looks, run: str, finalist: str) -> OpenedTest:
        """Returns the test for one finalist of one run, after the look was written down.

        The same run and finalist get the number they had, so that a run that was killed loses nothing; any other is a
        further look. Raises Sealed when there is no test, and as Looks.take.
        """
        tasks = self.__taskset.of(Split.TEST)
        if not tasks:
            raise Sealed(f"{self.__taskset.name} has no test.", "Give it test tasks, or claim nothing.")
        return OpenedTest(tasks, self.__taskset.files, looks.take(self.digest, run, finalist))

    def __repr__(self) -> str:
        return f"SealedTest({self.size} tasks, {self.digest[:12]})"

    def __reduce__(self) -> str:
        raise Sealed("A sealed test is not handed to another process.", "Open it where the verdict is made.")


def seal(taskset: TaskSet) -> tuple[OpenTasks, SealedTest]:
    """Returns the task set in two: what the search may see, and the test."""
    train, val = taskset.of(Split.TRAIN), taskset.of(Split.VAL)
    hidden = [task.files for task in taskset.of(Split.TEST) if task.files is not None]
    shown = [task.files for task in (*train, *val) if task.files is not None]
    files = {
        path: data
        for path, data in taskset.files.items()
        if not holds_task(path) and (_below(path, shown) or not _below(path, hidden))
    }
    open_ = OpenTasks(taskset.name, taskset.digest, taskset.test_digest, train, val, files)
    return open_, SealedTest(taskset)


def view(task: Task) -> TaskView:
    """Returns what a proposer may know of a task. Raises Sealed for one of the test."""
    if task.split is Split.TEST:
        raise Sealed(f"Task {task.id} is of the sealed test.", "Proposals are made from train alone.")
    return TaskView(task.id, task.prompt, task.category, task.tags)


def _below(path: str, folders: list[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)
