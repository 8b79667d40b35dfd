"""The registry of optimizers: their names, and the module of each. It imports none of them.

Another package adds one by an entry point of the group `evolvable.optimizers`, whose value is an
`OptimizerKind`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import entry_points

from evolvable_store.errors import InvalidArgument

ENTRY_POINTS = "evolvable.optimizers"
"""The group of entry points that other packages register optimizers in."""


class AcceptanceGate(StrEnum):
    """How a search measures and accepts candidates.

    The sealed test after the search is the same for all.
    """

    STAGED = "staged"
    """One program is kept; a candidate meets it in stages on training and validation tasks."""

    FRONTIER = "frontier"
    """The best few programs are kept, by validation."""

    SINGLE = "single"
    """One program is kept; a candidate meets it on all of validation."""


@dataclass(frozen=True, slots=True)
class OptimizerKind:
    """One registered optimizer.

    target: MODULE:FUNCTION, which takes a RunContext and returns an `Optimizer`. gate: decides on
    its candidates; an optimizer brings none of its own. rollouts: trials that it adds for each task
    of a batch, in each iteration; the setting `samples` replaces the number where it is more than
    one. restructures: whether it works in mode `structure`.
    """

    target: str
    gate: AcceptanceGate = AcceptanceGate.STAGED
    rollouts: int = 0
    restructures: bool = False


# Names and not imports: a run needs one optimizer, and all of them start slowly.
_HERE = "evolvable_evolve.evolution"
_FRONTIER = f"{_HERE}.optimizers.frontier"
_REWARDS = f"{_HERE}.optimizers.rewards"

GATES: Mapping[AcceptanceGate, str] = {
    AcceptanceGate.STAGED: f"{_HERE}.search:GATE",
    AcceptanceGate.FRONTIER: f"{_FRONTIER}:FRONTIER",
    AcceptanceGate.SINGLE: f"{_FRONTIER}:SINGLE",
}
"""Where each gate is: MODULE:NAME of a `SearchGate`."""

OPTIMIZERS: Mapping[str, OptimizerKind] = {
    "greedy": OptimizerKind(f"{_HERE}.optimizers.optimizer:greedy", restructures=True),
    "evoskill": OptimizerKind(f"{_FRONTIER}:evoskill", AcceptanceGate.FRONTIER, restructures=True),
    "reflection": OptimizerKind(
        f"{_FRONTIER}:reflection", AcceptanceGate.SINGLE, restructures=True
    ),
    "textgrad": OptimizerKind(f"{_HERE}.optimizers.textgrad:textgrad"),
    "reinforce_pp": OptimizerKind(f"{_REWARDS}:reinforce_pp", rollouts=1),
    "grpo": OptimizerKind(f"{_REWARDS}:grpo", rollouts=4),
}
"""The optimizers that come with the product, by name."""


def optimizer_kind(name: str) -> OptimizerKind:
    """Return the optimizer of a name: ours, else one that an installed package registers.

    Raises InvalidArgument.
    """
    return OPTIMIZERS.get(name) or _load_installed(name)


# Reading the metadata of installed packages takes milliseconds, and settings are checked often.
@cache
def _load_installed(name: str) -> OptimizerKind:
    for point in entry_points(group=ENTRY_POINTS, name=name):
        try:
            loaded = point.load()
        except Exception as error:  # code of another package may raise anything
            text = (
                f"The optimizer {ascii(name[:40])} of {point.value} cannot be loaded: "
                f"{type(error).__name__}."
            )
            hint = "Repair or remove the package that registers it."
            raise InvalidArgument(text, hint) from error
        if isinstance(loaded, OptimizerKind):
            return loaded
        raise InvalidArgument(
            f"{point.value} is no OptimizerKind.", "docs/how-to/add-an-optimizer.md says how."
        )
    raise InvalidArgument(
        f"optimizer is {ascii(name[:40])}.",
        f"It is one of {', '.join(OPTIMIZERS)}, or one that an installed package registers.",
    )
