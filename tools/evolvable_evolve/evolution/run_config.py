"""The settings of a run, and the host of runs. Equal settings and answers give equal runs."""

import math
import re
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from enum import StrEnum
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
"""The kinds of executors."""

PURPOSES = ("search", "measure", "try")
"""The purposes of a run, as `RunSettings` explains them."""

TRIALS_PER_TEST_TASK, MIN_PLANNED_TRIALS = 8, 500
"""Evaluations that a run plans for without a number of its own: for each test task, and the
least.
"""

BACKENDS = ("auto", "tasks", "processes", "ray")
"""Where trials run: in the process that drives the run, in processes of this machine, or on a Ray
cluster.
"""

RAY_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}:[0-9]{1,5}")
"""HOST:PORT of the head of a cluster."""

DEFAULT_ITERATIONS, MOST_ITERATIONS = 10, 30
"""Proposals of a run without a number of its own: the usual ones, and the most while trials are
left.
"""


class ParentStrategy(StrEnum):
    """How a parent is chosen.

    Round robin is the algorithm of the paper and keeps the members different.
    """

    ROUND_ROBIN = "round_robin"
    BEST = "best"
    RANDOM = "random"
    PARETO = "pareto"


class Admission(StrEnum):
    """Which candidates enter the frontier: those that beat their parent, which is the default.

    Or, as in the paper, those that beat the worst member or find room.
    """

    BETTER_THAN_PARENT = "better-than-parent"
    BETTER_THAN_WORST = "better-than-worst"


@dataclass(frozen=True, slots=True)
class SpendLimit:
    """The limits of a whole run. None: no limit.

    cost: US dollars. tokens: in both directions. calls: of models. wall: seconds of trials.
    """

    cost: float | None = None
    tokens: int | None = None
    calls: int | None = None
    wall: float | None = None


def _setting(
    default: Any, about: str, *among: str, least: float = -math.inf, most: float = math.inf
) -> Any:
    """Return the field of a setting that the run's file may give.

    about: its row in the manual. among: its values.
    """
    metadata: dict[str, Any] = {"about": about}
    # Without a lower bound a setting has no range at all.
    if least > -math.inf:
        metadata["range"] = (least, most)
    if among:
        metadata["among"] = among
    return field(default=default, metadata=metadata)


def _check_setting(setting: Field[Any], value: Any) -> None:
    """Raise InvalidArgument for a value that is not among those of its setting, or out of range."""
    among = setting.metadata.get("among")
    if among and value not in among:
        raise InvalidArgument(
            f"{setting.name} is {ascii(value[:40])}.", f"It is one of {', '.join(among)}."
        )
    if "range" not in setting.metadata:
        return
    low, high = setting.metadata["range"]
    for number in value if isinstance(value, tuple) else (value,):
        if number is not None and not low <= number <= high:
            raise InvalidArgument(f"{setting.name} is {number}.", f"It is {low:g} to {high:g}.")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of one run. Those without a row in the manual follow from the start of the run.

    task_set: the environment's ref, with its version and the digests of all tasks and of the test.
    program: the versions of the base's parts. executor: its kind and what that kind needs. limit:
    of its spending. scorers: the registered scorers that tasks name, each with its command and hash
    when the run began. kept_tasks: the artefact of the run with its task set, '' where that is the
    library's. purpose: search; measure: a program is compared with another one and nothing is
    proposed; or try: skills are compared with nothing on tasks that the run stores. family: the run
    that a measurement under several executors began with, whose look at the test they share;
    executors: how many. open_test: whether a measurement opens the sealed test; without it, it
    compares on train and validation. structure: thresholds of the gate of restructuring that differ
    from the defaults, by name.
    """

    task_set: str
    task_set_version: int = 0
    task_set_digest: str = ""
    test_digest: str = ""
    kept_tasks: str = ""
    program: tuple[ProgramPin, ...] = ()
    executor: Mapping[str, Any] = field(default_factory=dict)
    purpose: str = field(default="search", metadata={"among": PURPOSES})
    family: str = ""
    executors: int = field(default=1, metadata={"range": (1, 20)})
    open_test: bool = True  # runs that began before there was a choice opened it
    limit: SpendLimit = SpendLimit()
    scorers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    brain: str = _setting("handoff", "Who proposes and builds, as `--brain`.")
    judge: str = _setting("", "Who judges answers, as `--judge`; empty: who proposes.")
    mode: str = _setting("skill_only", "What may change, as `--mode`.", *MODES)
    optimizer: str = _setting("greedy", "How candidates are found, as `--optimizer`.")
    iterations: int | None = _setting(
        None, "Proposals; without it 10, and up to 30 while trials are left.", least=0, most=1000
    )
    trials: int = _setting(
        0,
        "Evaluations that the run plans for, the test included; 0: eight for each test task, at "
        "least 500.",
        least=0,
        most=1_000_000,
    )
    seed: int = _setting(42, "What is drawn follows from it.")
    concurrency: int = _setting(
        4, "Trials at once; 4 may become 16 where a model answers.", least=1, most=64
    )
    backend: str = _setting(
        "auto", "Where trials run: `auto`, `tasks`, `processes`, `ray` or `ray:HOST:PORT`."
    )
    batch: tuple[int, int] = _setting(
        (3, 2), "Categories, and tasks of each, that a proposer is shown.", least=1, most=100
    )
    edits: tuple[int, int] = _setting(
        (4, 2), "Edits of a proposal at most, at first and at the end.", least=1, most=4
    )
    fail_below: float = _setting(
        1.0,
        "The score under which a training task counts as failed (option `--pass-at`).",
        least=0,
        most=1,
    )
    target: float = _setting(1.0, "The score that ends a search.", least=0, most=1)
    coverage: float = _setting(
        0.6, "The share of tasks that must have a result under both programs.", least=0, most=1
    )
    stale_hours: float = _setting(
        3.0, "After so long a parent is measured again beside its child.", least=0, most=10_000
    )
    open_above: float = _setting(
        0.03, "The gain in the search from which on the test is opened.", least=-1, most=1
    )
    test_repeats: int = _setting(
        0,
        "Runs of each test task under each program; 0: two, and more in later stages.",
        least=0,
        most=20,
    )
    test_alpha: float = _setting(
        0.04, "The alpha of a first look at the test.", least=0.0001, most=0.04
    )
    least_gain: float = _setting(0.02, "What graded scores must gain on average.", least=0, most=1)
    cost_rise: float = _setting(
        0.25, "The share by which tokens of a task may rise.", least=0, most=100
    )
    parent: str = _setting("round_robin", "evoskill: the parent of a proposal.", *ParentStrategy)
    admit: str = _setting("better-than-parent", "evoskill: which candidates enter.", *Admission)
    frontier: int = _setting(3, "evoskill: programs that are kept.", least=1, most=20)
    stalls: int = _setting(
        5,
        "evoskill, reflection: proposals without a new best that end the search.",
        least=1,
        most=1000,
    )
    screen_above: int = _setting(
        30,
        "evoskill, reflection: val tasks from which on a sample comes first.",
        least=0,
        most=1_000_000,
    )
    repeats: int = _setting(
        1, "evoskill, reflection, `evolve measure`: runs of each val task.", least=1, most=20
    )
    samples: int = _setting(0, "grpo: runs of a task that are compared; 0: four.", least=0, most=16)
    rejections: int = _setting(
        3, "textgrad: rejections in a row that end the search; 0: none do.", least=0, most=1000
    )
    structure: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"about": "Mode `structure`: a table of thresholds of its gate."},
    )

    def __post_init__(self) -> None:
        # Checked at the start of a run, and not in the first round that needs them.
        StructureThresholds.from_settings(self.structure)
        kind = optimizer_kind(self.optimizer)
        where, colon, address = self.backend.partition(":")
        is_ray_address = where == "ray" and bool(RAY_ADDRESS.fullmatch(address))
        if where not in BACKENDS or (colon and not is_ray_address):
            text = f"backend is {ascii(self.backend[:80])}."
            raise InvalidArgument(text, f"It is one of {', '.join(BACKENDS)}, or ray:HOST:PORT.")
        if self.mode == STRUCTURE_MODE and not kind.restructures:
            text = f"The optimizer {self.optimizer} has no way to change agents."
            raise InvalidArgument(text, "Mode structure goes with greedy, evoskill and reflection.")
        if self.samples == 1:
            raise InvalidArgument(
                "One sample cannot be compared.", "samples is 2 to 16, or 0 for four."
            )
        # Here and not where a value is read: settings come from files, options, MCP and ledgers.
        for setting in fields(self):
            _check_setting(setting, getattr(self, setting.name))

    def to_json(self) -> dict[str, Any]:
        """Return the settings as the ledger records them."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "RunSettings":
        """Return the settings that `to_json` wrote.

        Fields that this version does not know are left out.
        """
        names = {setting.name for setting in fields(cls)}
        arguments = {name: value for name, value in record.items() if name in names}
        arguments["program"] = tuple(ProgramPin(**pin) for pin in record["program"])
        arguments["limit"] = SpendLimit(**record["limit"])
        for pair in ("batch", "edits"):
            arguments[pair] = tuple(record[pair])
        return cls(**arguments)

    @property
    def gate(self) -> AcceptanceGate:
        """How the search measures and accepts candidates.

        Raises InvalidArgument when the optimizer is gone.
        """
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
    def staged_repeats(self) -> int:
        """The runs of each test task under each arm, of the first stage at least."""
        return self.test_repeats or STAGED_REPEATS

    @property
    def most_proposals(self) -> int:
        """The most proposals that a run makes where trials are left over."""
        return MOST_ITERATIONS if self.iterations is None else self.iterations

    def planned_trials(self, tests: int) -> int:
        """Return the evaluations that a run plans for, with so many test tasks."""
        return self.trials or max(MIN_PLANNED_TRIALS, TRIALS_PER_TEST_TASK * tests)


STAGED_REPEATS = 2
"""Runs of each test task under each arm in the staged test."""

# In simulations 2, 3, 4 found two points more than 2, 3, 3, for 4 % more trials
# (`benchmarks/README.md`).
LATER_REPEATS = (2, 3, 4)
"""Runs of each test task under each arm by stage, after a search that showed a small gain.

More runs in later stages cost nothing where a clear gain, or none, ends the test before them.
"""

MOST_TEST_TRIALS = math.ceil(
    2 * sum(share * runs for share, runs in zip(STAGE_SHARES, LATER_REPEATS, strict=True))
)
"""The most evaluations of a staged test for each of its tasks."""


@dataclass(frozen=True, slots=True)
class RayCluster:
    """How a Ray cluster is reached. address: HOST:PORT of its head, '' for one that is started on
    this machine.

    token_file: holds the token of the cluster. slots: trials at once on a cluster that is started
    here. environment: where the process that speaks with the cluster finds PATH and the like; None:
    ours.
    """

    address: str = ""
    token_file: Path = Path()
    slots: int = 64
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True)
class HostContext:
    """The host of runs: what this machine offers to them.

    environment: the whole environment of child processes. key, address, proxy: how the Anthropic
    API is reached. credentials: sign-in files by client name. redactor: removes secrets from text
    that leaves. sandbox: the choice of sandboxes. hidden: directories that no trial may read, such
    as the library. commands: commands that the person named, by role (executors, proposers, judges,
    scorers); no other command runs. None: the caller names commands. models: the models that the
    person named, and which of them answer in which role. cluster: the Ray cluster that the person
    configured, None without one. links: by task of this run, folders of dependencies that its
    workspaces show.
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
    links: Mapping[str, tuple[tuple[str, Path], ...]] = field(default_factory=dict)

    def answering(self, role: str) -> tuple[str, ...]:
        """Return the names of the models that answer in a role, in the person's order."""
        return tuple(self.models.roles.get(role, ())) if self.models is not None else ()

    @property
    def scorers(self) -> NamedCommands | None:
        """The scorers that the person registered, None where the caller names commands."""
        return self.commands["scorers"] if self.commands is not None else None

    @property
    def working_sandbox(self) -> Sandbox | None:
        """The sandbox that works here, None without one."""
        return sandbox_of(self.sandbox).sandbox


def parse_executor_spec(
    text: str,
    named_commands: NamedCommands | None = None,
    models: NamedModels | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return the spec of the executor that a text names.

    The text is claude:MODEL, codex:MODEL, anthropic:MODEL, simulated, or the name of a model or of
    a command. named_commands: the commands that the person named; without it the text is a shell
    command, in which {python} is this interpreter. models: those that the person named. more:
    further fields of the kind, of which None values are left out. Raises InvalidArgument for an
    empty text or a missing model, and Refused for a command that the person did not name.
    """
    options = {name: value for name, value in more.items() if value is not None}
    kind, _, rest = text.partition(":")
    # A client's default model changes with its version, and figures of two models cannot be
    # compared.
    if kind in ("claude", "codex", "anthropic"):
        if not rest:
            raise InvalidArgument(
                f"{kind} needs a model, such as {kind}:MODEL.", "Figures without one mean nothing."
            )
        return {"kind": kind, "model": rest, **options}
    if text == "simulated":
        return {"kind": "simulated", **options}
    endpoint = models.endpoints.get(text) if models is not None else None
    if endpoint is not None:
        spec: dict[str, Any] = {
            "kind": "model",
            "name": text,
            "protocol": endpoint.protocol,
            "model": endpoint.model,
            "address": endpoint.url,
        }
        if endpoint.price is not None:
            spec["price"] = list(endpoint.price)
        return spec | options
    if named_commands is not None:
        named_command = named_commands.get(text)
        words = list(named_command.words)
        agents = {"agents": True} if named_command.agents else {}
        return {"kind": "command", "name": text, "command": words, **agents, **options}
    # Without the person's names the caller is the person, at a terminal.
    command = command_of(text)
    if not command:
        raise InvalidArgument("No executor is named.", f"It is one of {', '.join(EXECUTORS)}.")
    return {"kind": "command", "command": list(command), **options}


def parse_price(spec: Mapping[str, Any]) -> Price | None:
    """Return the price of a million tokens in an executor's spec, None without one."""
    price = spec.get("price")
    return Price(float(price[0]), float(price[1])) if isinstance(price, list | tuple) else None


def judge_name(settings: RunSettings, taskset: TaskSet, host: HostContext) -> str:
    """Return the name of the run's judge; '' when no task needs a judge.

    It is the setting's, else the first that the person named for the role, else the first proposer
    model: scores of two judges cannot be compared, so no other one answers in its place. Raises
    InvalidArgument when a judge is needed and there is none but a hand-off, or several are named.
    """
    if not any(task.scorer.type == "judge" for task in taskset.tasks):
        return ""
    if "," in settings.judge:
        raise InvalidArgument("A run has one judge: scores of two cannot be compared.", "Name one.")
    judge = settings.judge or next(iter((*host.answering("judge"), *settings.brain.split(","))))
    if judge.partition(":")[0] == "handoff":
        raise InvalidArgument(
            f"{taskset.name} has tasks that a judge scores, and a judge cannot be a hand-off: it "
            "is asked for every answer, and is the only one to know what was expected.",
            "Name one by --judge (settings.judge): anthropic[:MODEL], claude, codex, or a name of "
            "a judge or a model.",
        )
    return judge
