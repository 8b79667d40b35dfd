"""A task, how its answer is scored, and the set it belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Split(StrEnum):
    """What a task is for: evidence to learn from, choosing among candidates, or the one sealed test."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class ScorerSpec:
    """Which scorer judges an answer, by `type`, and its arguments as the task gives them."""

    type: str
    args: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to be done, with the truth about it.

    `expected` never reaches an executor, a proposer or a builder. `files` is the folder below the task set that a
    workspace begins with. `setup` are commands as argument lists, run in the workspace first. `digest` is the sha256
    of everything that decides what the task is (not its id, split or tags): equal digests are the same task.
    """

    id: str
    prompt: str
    scorer: ScorerSpec
    split: Split
    digest: str
    expected: str | None = None
    category: str = "other"
    files: str | None = None
    setup: tuple[tuple[str, ...], ...] = ()
    timeout_s: float = 600.0
    weight: float = 1.0
    tags: tuple[str, ...] = ()
    source: str = "human"


@dataclass(frozen=True, slots=True)
class TaskSet:
    """The tasks of one version of an environment, with the files they need.

    `files` maps paths below the task set to bytes (fixtures and scorers). `digest` is the sha256 over all tasks, their
    splits and all files; `test_digest` that over the sealed test alone, by which looks at it are counted across runs.
    """

    name: str
    tasks: tuple[Task, ...]
    files: Mapping[str, bytes]
    digest: str
    test_digest: str

    def of(self, split: Split) -> tuple[Task, ...]:
        """Returns the tasks of one split in the order of the set."""
        return tuple(task for task in self.tasks if task.split is split)
