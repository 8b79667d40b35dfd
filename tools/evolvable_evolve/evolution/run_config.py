"""What a run is made from: its settings, and what the host offers. Equal settings and answers give equal runs."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.candidates import ProgramPin
from evolvable_evolve.evolution.operators import MODES, STRUCTURE_MODE
from evolvable_evolve.evolution.optimizer_registry import AcceptanceGate, optimizer_kind
from evolvable_evolve.evolution.statistics import STAGE_SHARES
from evolvable_evolve.evolution.structure import StructureThresholds
from evolvable_evolve.evolution.task import Price, TaskSet
from evolvable_evolve.sandbox import Sandbox, SandboxChoice, sandbox_of
from evolvable_store.errors import InvalidArgument
from evolvable_tools.llm import NamedCommands, NamedModels, command_of
from evolvable_tools.redaction import Redactor

EXECUTORS = ("command", "claude", "codex", "anthropic", "model", "simulated")

PURPOSES = ("search", "measure")

TRIALS_PER_TEST_TASK, MIN_PLANNED_TRIALS = 8, 500
"""Evaluations that a run plans for where nothing is said."""

FINAL_TESTS = ("staged", "single")

BACKENDS = ("auto", "tasks", "processes", "ray")
"""Where trials run: in the process that drives the run, in processes of this machine, or on a Ray cluster."""

RAY_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}:[0-9]{1,5}")
"""HOST:PORT of the head of a cluster."""

DEFAULT_ITERATIONS, MOST_ITERATIONS = 10, 30
"""Proposals of a run that names no number: so many, and up to the second where trials are left over."""


class ParentStrategy(StrEnum):
    """How a parent is chosen. Round robin is the algorithm of the paper and keeps the members different."""

    ROUND_ROBIN = "round_robin"
    BEST = "best"
    RANDOM = "random"
    PARETO = "pareto"


class Admission(StrEnum):
    """Which candidates enter: those that beat their parent (default), or, as in the paper, the worst, or find room."""

    BETTER_THAN_PARENT = "better-than-parent"
    BETTER_THAN_WORST = "better-than-worst"


@dataclass(frozen=True, slots=True)
class SpendLimit:
    """What the whole run may spend; None: as much as it takes. cost in US dollars, wall in seconds of trials."""

    cost: float | None = None
    tokens: int | None = None
    calls: int | None = None
    wall: float | None = None


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of one run.

    task_set: the environment's ref, with its version and what the run found there: the digests of all and of the
    test. program: where the base's parts were taken from.
    executor: its kind and what that kind needs. brain: handoff, anthropic with an optional model, or a command. judge:
    the same without handoff, for task sets that need one; '' for the proposer model.
    batch: categories and tasks of each. repeats: of validation; test_repeats 0: 1 from 100 test tasks on, else 3.
    fail_below: the score under which a training task counts as a failure. coverage: the share of tasks that must have
    counted on both sides. screen_above: validation tasks from which on a small sample comes first. edits: at most so
    many in one proposal at first, least at the end. stalls: iterations without a new best that end the search.
    backend: one of BACKENDS, or ray:ADDRESS with the address that the person configured.
    scorers: the registered scorers that tasks name, each with its command and hash when the run began.
    purpose: search, or measure: what is there is compared with something else and nothing is proposed. family: the run
    that a measurement under several executors began with, whose look at the test they share; executors: how many.
    give_up_below: the chance of a promotion under which a search ends.
    growth: by what share a part may grow in one proposal. cost_rise: by what share tokens a task may rise.
    iterations: proposals; None: 10, and more where trials are left. trials: evaluations that a run with the staged gate
    plans for, the test included; 0: eight for each test task, at least 500. samples: rollouts of a task that grpo
    compares, 0: four. rejections: candidates in a row that the gate rejects, after which textgrad has converged; 0: it
    goes on. final: how the sealed test is run.
    test_alpha: the alpha of a first look at it. least_gain: what graded scores have to gain on average. open_above: the
    gain in the search from which on the test is opened. stale_hours: hours after which a parent is measured again
    beside its child. structure: thresholds of the gate of restructuring that differ from the defaults, by name.
    """

    task_set: str
    task_set_version: int = 0
    task_set_digest: str = ""
    test_digest: str = ""
    program: tuple[ProgramPin, ...] = ()
    executor: Mapping[str, Any] = field(default_factory=dict)
    brain: str = "handoff"
    judge: str = ""
    mode: str = field(default="skill_only", metadata={"among": tuple(MODES)})
    optimizer: str = "greedy"
    iterations: int | None = field(default=None, metadata={"range": (0, 1000)})
    frontier: int = field(default=3, metadata={"range": (1, 20)})
    parent: str = field(default="round_robin", metadata={"among": tuple(ParentStrategy)})
    admit: str = field(default="better-than-parent", metadata={"among": tuple(Admission)})
    batch: tuple[int, int] = field(default=(3, 2), metadata={"range": (1, 100)})
    edits: tuple[int, int] = field(default=(4, 2), metadata={"range": (1, 4)})
    repeats: int = field(default=1, metadata={"range": (1, 20)})
    test_repeats: int = field(default=0, metadata={"range": (0, 20)})
    fail_below: float = field(default=1.0, metadata={"range": (0, 1)})
    coverage: float = field(default=0.6, metadata={"range": (0, 1)})
    screen_above: int = 30
    stalls: int = field(default=5, metadata={"range": (1, 1000)})
    target: float = field(default=1.0, metadata={"range": (0, 1)})
    cost_rise: float = field(default=0.25, metadata={"range": (0, 100)})
    concurrency: int = field(default=4, metadata={"range": (1, 64)})
    backend: str = "auto"
    purpose: str = field(default="search", metadata={"among": PURPOSES})
    family: str = ""
    executors: int = field(default=1, metadata={"range": (1, 20)})
    give_up_below: float = field(default=0.0, metadata={"range": (0, 1)})
    trials: int = field(default=0, metadata={"range": (0, 1_000_000)})
    samples: int = field(default=0, metadata={"range": (0, 16)})
    rejections: int = field(default=3, metadata={"range": (0, 1000)})
    final: str = field(default="staged", metadata={"among": FINAL_TESTS})
    test_alpha: float = field(default=0.04, metadata={"range": (0.0001, 0.04)})
    least_gain: float = field(default=0.02, metadata={"range": (0, 1)})
    open_above: float = field(default=0.03, metadata={"range": (-1, 1)})
    stale_hours: float = field(default=3.0, metadata={"range": (0, 10_000)})
    seed: int = 42
    limit: SpendLimit = SpendLimit()
    scorers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    structure: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        StructureThresholds.from_settings(self.structure)
        kind = optimizer_kind(self.optimizer)
        where, colon, address = self.backend.partition(":")
        if where not in BACKENDS or (colon and (where != "ray" or not RAY_ADDRESS.fullmatch(address))):
            text = f"backend is {ascii(self.backend[:80])}."
            raise InvalidArgument(text, f"It is one of {', '.join(BACKENDS)}, or ray:HOST:PORT.")
        if self.mode == STRUCTURE_MODE and not kind.restructures:
            text = f"The optimizer {self.optimizer} has no way to change agents."
            raise InvalidArgument(text, "Mode structure goes with greedy, evoskill and reflection.")
        if self.samples == 1:
            raise InvalidArgument("One sample cannot be compared.", "samples is 2 to 16, or 0 for four.")
        for one in fields(self):
            value, among = getattr(self, one.name), one.metadata.get("among")
            if among and value not in among:
                raise InvalidArgument(f"{one.name} is {ascii(value[:40])}.", f"It is one of {', '.join(among)}.")
            if "range" in one.metadata:
                low, high = one.metadata["range"]
                for number in value if isinstance(value, tuple) else (value,):
                    if number is not None and not low <= number <= high:
                        raise InvalidArgument(f"{one.name} is {number}.", f"It is {low:g} to {high:g}.")

    def to_json(self) -> dict[str, Any]:
        """Return the settings as they stand in the ledger."""
        return asdict(self)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> "RunSettings":
        """Return the settings that `to_json` wrote; what it does not know is left out."""
        known = {one.name for one in fields(cls)}
        given = {name: value for name, value in said.items() if name in known}
        given["program"] = tuple(ProgramPin(**pin) for pin in said["program"])
        given["limit"] = SpendLimit(**said["limit"])
        for pair in ("batch", "edits"):
            given[pair] = tuple(said[pair])
        given.setdefault("final", "single")  # a run from before there was another
        return cls(**given)

    @property
    def gate(self) -> AcceptanceGate:
        """How the search measures and accepts candidates. Raises InvalidArgument when the optimizer is gone."""
        return optimizer_kind(self.optimizer).gate

    @property
    def rollouts(self) -> int:
        """The trials that the optimizer adds for each task of a batch."""
        usual = optimizer_kind(self.optimizer).rollouts
        return (self.samples or usual) if usual > 1 else usual

    @property
    def proposals(self) -> int:
        """The proposals that a run makes unless it ends before."""
        return DEFAULT_ITERATIONS if self.iterations is None else self.iterations

    @property
    def most_proposals(self) -> int:
        """The most proposals that a run makes where trials are left over."""
        return MOST_ITERATIONS if self.iterations is None else self.iterations

    def planned_trials(self, tests: int) -> int:
        """Return the evaluations that a run plans for, with so many test tasks."""
        return self.trials or max(MIN_PLANNED_TRIALS, TRIALS_PER_TEST_TASK * tests)


SINGLE_REPEAT_TASKS = 100
"""Test tasks from which on one run of each is enough, in the test of one stage."""


STAGED_REPEATS = 2
"""Runs of each test task under each arm in the staged test."""


LATER_REPEATS = (2, 3, 4)
"""The same by stage, after a search that showed a small gain.

More runs in later stages cost nothing where a clear gain, or none, ends the test before them."""


MOST_TEST_TRIALS = ceil(2 * sum(share * runs for share, runs in zip(STAGE_SHARES, LATER_REPEATS, strict=True)))
"""Evaluations of a staged test for each of its tasks, at most."""


def default_test_repeats(tasks: int, final: str = "staged") -> int:
    """Return how often each test task is run under each arm, where the settings do not say."""
    if final == "staged":
        return STAGED_REPEATS
    return 1 if tasks >= SINGLE_REPEAT_TASKS else 3


@dataclass(frozen=True, slots=True)
class RayCluster:
    """How a Ray cluster is reached. address: HOST:PORT of its head, '' for one that is started on this machine.

    token_file: holds the token of the cluster. slots: trials at once on a cluster that is started here. environment:
    what the process that speaks with the cluster takes PATH and the like from; None: ours.
    """

    address: str = ""
    token_file: Path = Path()
    slots: int = 64
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True)
class HostContext:
    """What this machine offers to runs.

    environment: the whole environment of child processes. key, address, proxy: how the Anthropic API is reached.
    credentials: sign-in files by client name. redactor: removes secrets from text that leaves. sandbox: the choice of
    sandboxes. hidden: directories that no trial may read, such as the library. commands: commands that the person
    named, by role (executors, proposers, judges, scorers); no other command runs. None: the caller names commands.
    models: the models that the person named, and who answers in which role. cluster: the Ray cluster that the person
    configured, None without one.
    """

    environment: Mapping[str, str]
    key: str | None = None
    address: str | None = None
    credentials: Mapping[str, Path] = field(default_factory=dict)
    redactor: Redactor = field(default_factory=Redactor)
    sandbox: SandboxChoice = SandboxChoice()
    hidden: tuple[Path, ...] = ()
    commands: Mapping[str, NamedCommands] | None = None
    proxy: str | None = None
    models: NamedModels | None = field(default=None, repr=False)
    cluster: RayCluster | None = None

    def answering(self, role: str) -> tuple[str, ...]:
        """Return the names of those who answer in a role, as the person said, in order."""
        return tuple(self.models.roles.get(role, ())) if self.models is not None else ()

    @property
    def scorers(self) -> NamedCommands | None:
        """Return the scorers that the person registered."""
        return self.commands["scorers"] if self.commands is not None else None

    @property
    def working_sandbox(self) -> Sandbox | None:
        """Return the sandbox that works here, None without one."""
        return sandbox_of(self.sandbox).sandbox


def parse_executor_spec(
    text: str, named: NamedCommands | None = None, models: NamedModels | None = None, **more: Any
) -> dict[str, Any]:
    """Return the executor that a text names.

    The text is claude:MODEL, codex:MODEL, anthropic:MODEL, simulated, or the name of a model or of a command.

    Args:
        models: those that the person named.
        named: the commands that the person named. Without it the text is a shell command; {python} is this interpreter.
        more: further fields of the kind; None values are left out.

    Raises:
        InvalidArgument: the text is empty or a model is missing.
        Refused: the person named no such command.
    """
    given = {name: value for name, value in more.items() if value is not None}
    kind, _, rest = text.partition(":")
    if kind in ("claude", "codex", "anthropic"):
        if not rest:
            raise InvalidArgument(f"{kind} needs a model, such as {kind}:MODEL.", "Figures without one mean nothing.")
        return {"kind": kind, "model": rest, **given}
    if text == "simulated":
        return {"kind": "simulated", **given}
    if models is not None and (found := models.endpoints.get(text)) is not None:
        what = {"name": text, "protocol": found.protocol, "model": found.model, "address": found.url}
        price = {"price": list(found.price)} if found.price is not None else {}
        return {"kind": "model", **what, **price, **given}
    if named is not None:
        one = named.get(text)
        agents = {"agents": True} if one.agents else {}
        return {"kind": "command", "name": text, "command": list(one.words), **agents, **given}
    command = command_of(text)
    if not command:
        raise InvalidArgument("No executor is named.", f"It is one of {', '.join(EXECUTORS)}.")
    return {"kind": "command", "command": list(command), **given}


def parse_price(spec: Mapping[str, Any]) -> Price | None:
    """Return the price of a million tokens that an executor's spec gives, None without one."""
    price = spec.get("price")
    return Price(float(price[0]), float(price[1])) if isinstance(price, list | tuple) else None


def judge_name(settings: RunSettings, taskset: TaskSet, host: HostContext) -> str:
    """Return the name of the run's judge; '' when no task needs a judge.

    It is the setting's, else the first that the person named for the role, else the first proposer model: scores of two
    judges cannot be compared, so no other one answers in its place. Raises InvalidArgument when a judge is needed and
    there is none but a hand-off, or several are named.
    """
    if not any(task.scorer.type == "judge" for task in taskset.tasks):
        return ""
    if "," in settings.judge:
        raise InvalidArgument("A run has one judge: scores of two cannot be compared.", "Name one.")
    who = settings.judge or next(iter((*host.answering("judge"), *settings.brain.split(","))))
    if who.partition(":")[0] == "handoff":
        raise InvalidArgument(
            f"{taskset.name} has tasks that a judge scores, and a judge cannot be a hand-off: it is asked for every"
            " answer, and is the only one to know what was expected.",
            "Name one by --judge (settings.judge): anthropic[:MODEL], claude, codex, or a name of a judge or a model.",
        )
    return who
