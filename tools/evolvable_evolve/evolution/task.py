"""Tasks, task sets and their splits, and the results of running a task: rollout, score, outcome and
usage.

An unknown price is None and never 0.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import floor
from pathlib import Path
from types import MappingProxyType
from typing import Any

from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_tools.llm import ModelAttempt


class Split(StrEnum):
    """The purpose of a task: evidence to learn from, the choice among candidates, or the sealed
    test.
    """

    TRAIN = "train"
    VAL = "val"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class ScorerSpec:
    """Which scorer judges an answer, by `type`, and its arguments in the task."""

    type: str
    args: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class PublicCheck:
    """A command of the task set whose feedback the author of an answer may read, such as visible
    tests.

    It runs without the expected answer. `files` is the folder of the task set that it sees; no
    other file is there.
    """

    argv: tuple[str, ...]
    files: str | None = None
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to be done, with the truth about it.

    `expected` never reaches an executor, a proposer or a builder. `files` is the folder below the
    task set that a workspace begins with. `setup` are commands as argument lists, run in the
    workspace first. `digest` is the sha256 of everything that defines the task (not its id, split
    or tags): equal digests are the same task. `group` is a person's name for tasks that are
    alike: they stay in one split. `reviewed` is False for a task that was found in a session and
    has no scorer yet; `check` describes in words how to check it. `public` is the check whose
    feedback the author of an answer may read between two rounds. `kind` is equal for tasks that
    read alike.
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
    group: str = ""
    reviewed: bool = True
    check: str = ""
    public: PublicCheck | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class TaskSet:
    """The tasks of one version of an environment, with the files they need.

    `files` maps paths below the task set to bytes (fixtures and scorers). `digest` is the sha256
    over all tasks, their splits and all files. `test_digest` is that over the sealed test alone, by
    which looks at it are counted across runs. `alike` is a person's word on tasks that read alike,
    '' for none.
    """

    name: str
    tasks: tuple[Task, ...]
    files: Mapping[str, bytes]
    digest: str
    test_digest: str
    alike: str = ""

    def of(self, split: Split) -> tuple[Task, ...]:
        """Return the tasks of one split in the order of the set."""
        return tuple(task for task in self.tasks if task.split is split)


RARE_CATEGORY = "_rare"
"""The name under which categories of a single task are dealt together."""

SYNTHETIC = "synthetic"


@dataclass(frozen=True, slots=True)
class SplitRatios:
    """The shares of train and val; the rest is the test."""

    train: float = 0.25
    val: float = 0.25

    def __post_init__(self) -> None:
        """Raise InvalidArgument when the shares are no shares, or exceed the whole."""
        if not (0 <= self.train <= 1 and 0 <= self.val <= 1 and self.train + self.val <= 1):
            raise InvalidArgument(
                f"{self.train:g} for train and {self.val:g} for val are no shares of one whole.",
                "Each is from 0 to 1, and together at most 1; the test is what is left.",
            )


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """A task that needs a split: `group` is equal for tasks that stay together, `split` None where
    it is open.
    """

    id: str
    category: str
    group: str
    split: Split | None
    source: str


def assign_splits(tasks: Sequence[SplitRequest], ratios: SplitRatios) -> dict[str, Split]:
    """Return the split of every task by its id.

    Splits that tasks name stay, and count. Of all tasks the floor of each share goes to train and
    to val, over the categories by largest remainder. Each category of two or more has at least one
    task in both; the rest is the test. Categories of one task are dealt as one category, and a last
    single one goes to train. Within a category the order is that of a hash of the id, train from
    one end and test from the other. So a task that is added later moves few others. Synthetic tasks
    go to train alone. Equal tasks stay together.
    """
    # Tasks with a split of their own are not dealt.
    splits = {task.id: task.split for task in tasks if task.split is not None}
    # A group follows its task with a split of its own.
    placed = {task.group: task.split for task in tasks if task.split is not None}
    members = _group_by_category(tasks)
    sizes = {name: len(own) for name, own in members.items()}
    left = {}
    for split, ratio in ((Split.TRAIN, ratios.train), (Split.VAL, ratios.val)):
        fixed = {name: sum(task.split is split for task in own) for name, own in members.items()}
        shares = _split_shares(sizes, ratio, fixed)
        # Tasks that name their split have taken a part of its share.
        left[split] = {name: share - fixed[name] for name, share in shares.items()}
    for name, own in members.items():
        open_tasks = [task for task in own if task.split is None]
        _assign_category(open_tasks, {split: left[split][name] for split in left}, placed)
    return splits | {task.id: placed[task.group] for task in tasks if task.split is None}


def _group_by_category(tasks: Sequence[SplitRequest]) -> dict[str, list[SplitRequest]]:
    """Return the tasks of each category in the order of their hashes; single open tasks form one
    category.
    """
    by_category: dict[str, list[SplitRequest]] = defaultdict(list)
    for task in tasks:
        by_category[task.category].append(task)
    # One open task alone cannot be divided.
    single = [name for name, own in by_category.items() if len(own) == 1 and own[0].split is None]
    for name in single:
        by_category[RARE_CATEGORY] += by_category.pop(name)
    return {name: sorted(own, key=_rank_by_hash) for name, own in sorted(by_category.items())}


def _rank_by_hash(task: SplitRequest) -> tuple[str, str]:
    """Return the key by which tasks are ordered: a group is together, and a task alone is a group
    of its own name.
    """
    group, own = (hashlib.sha256(name.encode()).hexdigest() for name in (task.group, task.id))
    return group, own


def _split_shares(
    sizes: Mapping[str, int], ratio: float, fixed: Mapping[str, int]
) -> dict[str, int]:
    """Return how many of each category go to a split, with those that name it."""
    if ratio == 0:
        return dict(fixed)
    # The small term is for shares such as .1 * 30, which a float puts below 3.
    target = floor(sum(sizes.values()) * ratio + 1e-9)
    exact = {name: size * ratio for name, size in sizes.items()}
    least = {name: max(fixed[name], int(size >= 2)) for name, size in sizes.items()}
    shares = {name: max(floor(exact[name] + 1e-9), least[name]) for name in sizes}
    for name in sorted(sizes, key=lambda name: (shares[name] - exact[name], name)):
        if sum(shares.values()) < target and shares[name] < sizes[name]:
            shares[name] += 1
    while sum(shares.values()) > target:
        # The smallest categories get more than their share; the categories with most beyond theirs
        # give it up.
        payers = [name for name in sizes if shares[name] > least[name]]
        # Nothing is left that any category could give.
        if not payers:
            break
        shares[max(payers, key=lambda name: (shares[name] - exact[name], name))] -= 1
    return shares


def _assign_category(
    tasks: Sequence[SplitRequest], left: dict[Split, int], placed: dict[str, Split]
) -> None:
    """Add the split of each group of the open tasks of one category to `placed`.

    A group follows its first task.
    """
    # A last single task would otherwise go to the test by rounding.
    only = len(tasks) == 1 and not any(left.values())
    # Synthetic tasks first, so that they fill the share of train before others do.
    for task in sorted(tasks, key=lambda task: task.source != SYNTHETIC):
        if task.group not in placed:
            if task.source == SYNTHETIC or only or left[Split.TRAIN] > 0:
                placed[task.group] = Split.TRAIN
            else:
                placed[task.group] = Split.VAL if left[Split.VAL] > 0 else Split.TEST
        split = placed[task.group]
        if split in left:
            left[split] -= 1


class TrialOutcome(StrEnum):
    """How one trial ended.

    Only the first three are verdicts on the program; an infrastructure error never scores 0.
    """

    PASS = "pass"
    FAIL = "fail"
    AGENT_TIMEOUT = "agent_timeout"
    INFRA_ERROR = "infra_error"
    TAMPERED = "tampered"
    REFUSED = "refused"

    @property
    def counts(self) -> bool:
        """Whether the trial says something about the program (and may be cached)."""
        return self in (TrialOutcome.PASS, TrialOutcome.FAIL, TrialOutcome.AGENT_TIMEOUT)


class CodeOutcome(StrEnum):
    """How one answer to a programming problem ended: exactly one of the eight, in the order of the
    paper's table.
    """

    PASSED = "PR"
    TIME_LIMIT = "TLE"
    MEMORY_LIMIT = "MLE"
    COMPILE_ERROR = "CE"
    RUNTIME_ERROR = "RE"
    WRONG_ANSWER = "WA"
    TIMED_OUT = "TO"
    UNPARSEABLE = "RpE"


CRASHED = "crashed: "
"""The beginning of the detail of a trial whose program ended without an answer.

It fails, and is not run again.
"""


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """The spending of a trial.

    `cost` is in US dollars, None where the price is unknown (never 0 for an unknown price).
    """

    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """The cost and the end of one run on a task. The base of a rollout and of an answer to a task.

    `outcome` is set only where the executor knows it without a score (agent_timeout, infra_error,
    refused), with the reason in `detail`. Else it is None, and the scorer decides. `wall` is in
    seconds. `trace` is the part of the steps that a proposer may see, already redacted.
    """

    trace: str = ""
    usage: ModelUsage = ModelUsage()
    wall: float = 0.0
    outcome: TrialOutcome | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Solution(TaskRun):
    """One answer to a task, the variable that rounds improve. `attempt` is 0 for the first answer.

    `files` are the files of the workspace that differ from its beginning, with their sha256.
    `workspace` is their folder while the trial lasts. `feedback` is that of the public check,
    `critique` the result of a reflection on the answer; the last answer has no critique. `usage`
    and `wall` are those of this answer with the reflection before it.
    """

    task: str
    attempt: int
    text: str
    files: Mapping[str, str] = field(default_factory=dict)
    feedback: str = ""
    critique: str = ""
    workspace: Path | None = None


@dataclass(frozen=True, slots=True)
class Rollout(TaskRun):
    """The result of one task under an executor.

    `read` names the parts that were really read. `retry_after` is None unless the provider asked to
    wait: for so many seconds, or 0 when it did not say how long. `solutions` are the answers of all
    rounds in their order, of which the last counts; empty where the executor does not answer in
    rounds. `attempts` are the requests of an executor that asks an API itself; their sum is
    `usage`.
    """

    output: str
    read: tuple[str, ...] = ()
    retry_after: float | None = None
    solutions: tuple[Solution, ...] = ()
    attempts: tuple[ModelAttempt, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoreCheck:
    """One check of a command scorer; `kind` is `outcome` (the result is right) or `shape` (it only
    looks right).
    """

    name: str
    passed: bool
    kind: str = "outcome"


@dataclass(frozen=True, slots=True)
class Score:
    """The result of a scorer: `value` in [0, 1].

    `feedback` is the only text a proposer may see; `evidence` goes to the ledger alone. `usage` is
    what scoring took, where a model was asked, by `attempts` where it is behind an API. `code` is
    how the answer to a programming problem ended, where the scorer reports it.
    """

    value: float
    feedback: str = ""
    evidence: str = ""
    checks: tuple[ScoreCheck, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    usage: ModelUsage = ModelUsage()
    code: CodeOutcome | None = None
    attempts: tuple[ModelAttempt, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """One task run once under one program, as it counts. `score` is None unless the
    outcome counts.

    `key` is the hash of everything that decides the result. `cached` says that nothing was spent
    this time; `usage` then is the original cost. `judging` is the cost of scoring it, which is not
    in `usage`.
    """

    key: str
    task: str
    program: str
    repeat: int
    outcome: TrialOutcome
    score: float | None
    usage: ModelUsage
    wall: float
    output: str = ""
    trace: str = ""
    feedback: str = ""
    read: tuple[str, ...] = ()
    detail: str = ""
    cached: bool = False
    judging: ModelUsage = ModelUsage()


def task_fixtures(task: Task, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files that a fresh workspace of the task begins with: path inside the workspace ->
    bytes.

    files: those of the task set.
    """
    # A task without a folder begins with an empty workspace.
    if task.files is None:
        return {}
    # With the slash, so that `a` does not match `ab/`.
    top = task.files.rstrip("/") + "/"
    return {path.removeprefix(top): data for path, data in files.items() if path.startswith(top)}


_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars of a million tokens in and out."""

    input: float
    output: float

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """Return the cost of so many tokens."""
        return (input_tokens * self.input + output_tokens * self.output) / _MILLION


def make_usage(
    input_tokens: int,
    output_tokens: int,
    calls: int,
    price: Price | None,
    stated_cost: float | None = None,
) -> ModelUsage:
    """Return a usage with its cost: as the model reports it, else by the price, else unknown."""
    cost = stated_cost
    if cost is None and price is not None:
        cost = price.of(input_tokens, output_tokens)
    return ModelUsage(input_tokens, output_tokens, calls, cost)


def add_usage(first: ModelUsage, second: ModelUsage) -> ModelUsage:
    """Return two usages as one.

    The cost is unknown where one of them made calls of unknown cost.
    """
    # A usage without calls and cost is empty, and must not make the other's cost unknown.
    if not second.calls and second.cost is None:
        return first
    if not first.calls and first.cost is None:
        return second
    cost = None if first.cost is None or second.cost is None else first.cost + second.cost
    return ModelUsage(
        first.input_tokens + second.input_tokens,
        first.output_tokens + second.output_tokens,
        first.calls + second.calls,
        cost,
    )


def code_outcome(
    task: Task, outcome: TrialOutcome | None, score: Score | None
) -> CodeOutcome | None:
    """Return how an answer to a programming problem ended, None for a task of another kind.

    A task is one where its command scorer has `outcomes = "code"`. outcome: of the run, where it
    ended without a score.
    """
    if task.scorer.args.get("outcomes") != "code":
        return None
    # The time limit of the whole run, and not of a single case.
    if outcome is TrialOutcome.AGENT_TIMEOUT:
        return CodeOutcome.TIMED_OUT
    # The run ended without an answer, or with one that broke its scorer.
    if score is None or score.code is None:
        return CodeOutcome.UNPARSEABLE
    return score.code


class ScorerError(EvolvableError):
    """The scorer failed, not the answer: the trial is an infrastructure error and never a 0.

    `usage` is the spending on it nevertheless, by `attempts`.
    """

    def __init__(
        self,
        text: str,
        hint: str = "",
        usage: ModelUsage | None = None,
        attempts: Sequence[ModelAttempt] = (),
    ) -> None:
        super().__init__(text, hint)
        self.usage, self.attempts = usage or ModelUsage(), tuple(attempts)


class JudgeRefused(ScorerError):
    """A judge would score that was not calibrated, or did not pass its calibration."""


def named_files(command: Sequence[str]) -> list[Path]:
    """Return the files that a command names by whole paths."""
    return [path for path in map(Path, command) if path.is_absolute() and path.is_file()]


@dataclass(frozen=True, slots=True)
class RegisteredScorer:
    """A command scorer by its name.

    sha256: of its arguments, its program, and the files that it names.
    """

    name: str
    argv: tuple[str, ...]
    sha256: str

    @property
    def files(self) -> dict[str, bytes]:
        """The files that it names by whole paths."""
        return {str(path): path.read_bytes() for path in named_files(self.argv)}

    def to_json(self) -> dict[str, Any]:
        """Return the record of a run about it."""
        return {"command": list(self.argv), "sha256": self.sha256}
