"""What a run is started with, all of it: two runs with equal settings and equal answers come to the same end."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from evolvable_store.errors import InvalidArgument
from evolvable_tools.evolve.candidates.programs import ProgramPin
from evolvable_tools.evolve.operators import MODES

OPTIMIZERS = ("evoskill", "reflection")
PARENT_STRATEGIES = ("round_robin", "best", "random", "pareto")
ADMISSION_RULES = ("better-than-parent", "better-than-worst")


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
    executor: its kind and what that kind needs, brain: handoff, anthropic with an optional model, or a command. judge:
    the same without handoff, for task sets that need one; '' names the brain.
    batch: categories and tasks of each. repeats: of validation; test_repeats 0: 1 from 100 test tasks on, else 3.
    fail_below: the score under which a training task counts as a failure. coverage: the share of tasks that must have
    counted on both sides. screen_above: validation tasks from which on a small sample comes first. edits: at most so
    many in one proposal at first, least at the end. stalls: iterations without a new best that end the search.
    scorers: the registered scorers that tasks name, each with its command and hash when the run began.
    growth: by what share a part may grow in one proposal. cost_rise: by what share tokens a task may rise.
    """

    task_set: str
    task_set_version: int = 0
    task_set_digest: str = ""
    test_digest: str = ""
    program: tuple[ProgramPin, ...] = ()
    executor: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    brain: str = "handoff"
    judge: str = ""
    mode: str = "skill_only"
    optimizer: str = "evoskill"
    iterations: int = 10
    frontier: int = 3
    parent: str = "round_robin"
    admit: str = "better-than-parent"
    batch: tuple[int, int] = (3, 2)
    edits: tuple[int, int] = (4, 2)
    repeats: int = 1
    test_repeats: int = 0
    fail_below: float = 1.0
    coverage: float = 0.6
    screen_above: int = 30
    stalls: int = 5
    target: float = 1.0
    cost_rise: float = 0.25
    concurrency: int = 4
    seed: int = 42
    limit: SpendLimit = SpendLimit()
    scorers: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        _check_choice("mode", self.mode, tuple(MODES))
        _check_choice("optimizer", self.optimizer, OPTIMIZERS)
        _check_choice("parent", self.parent, PARENT_STRATEGIES)
        _check_choice("admit", self.admit, ADMISSION_RULES)
        for name, low, high in _RANGES:
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                if not low <= number <= high:
                    raise InvalidArgument(f"{name} is {number}.", f"It is {low:g} to {high:g}.")

    def to_json(self) -> dict[str, Any]:
        """Returns the settings as they stand in the ledger."""
        return asdict(self) | {"executor": dict(self.executor), "scorers": {**self.scorers}}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> "RunSettings":
        """Returns the settings that `to_json` wrote; what it does not know is left out."""
        known = {one.name for one in fields(cls)}
        given = {name: value for name, value in said.items() if name in known}
        given["program"] = tuple(ProgramPin(**pin) for pin in said["program"])
        given["limit"] = SpendLimit(**said["limit"])
        for pair in ("batch", "edits"):
            given[pair] = tuple(said[pair])
        return cls(**given)


_RANGES = (
    ("iterations", 0, 1000),
    ("frontier", 1, 20),
    ("batch", 1, 100),
    ("edits", 1, 4),
    ("repeats", 1, 20),
    ("test_repeats", 0, 20),
    ("fail_below", 0, 1),
    ("coverage", 0, 1),
    ("stalls", 1, 1000),
    ("target", 0, 1),
    ("cost_rise", 0, 100),
    ("concurrency", 1, 64),
)


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidArgument(f"{name} is {ascii(value[:40])}.", f"It is one of {', '.join(allowed)}.")
