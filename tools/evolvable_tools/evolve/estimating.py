"""What a run will take, before most of it is spent: from a few trials of its own, never from a constant."""

from collections.abc import Sequence
from dataclasses import dataclass

from evolvable_store.errors import EvolvableError
from evolvable_tools.evolve.brains.prices import together
from evolvable_tools.evolve.budget import Limits
from evolvable_tools.evolve.rollout import Trial
from evolvable_tools.evolve.run_settings import RunSettings

PILOTS = 3
"""Trials that a run is estimated by; the first of the first training batch, so that nothing of them is lost."""

ENOUGH_TEST = 100
"""Test tasks from which on one run of each is enough."""


class BudgetTooSmall(EvolvableError):
    """The budget does not reach for anything that could be found."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many tasks each part of a run has."""

    batch: int
    val: int
    test: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """Evaluations, tokens and dollars of a run: the least that it may take, and the most. cost None: no price known.

    floor: evaluations below which not even one candidate could be found and tested.
    """

    evaluations: tuple[int, int]
    tokens: tuple[int, int]
    cost: tuple[float, float] | None
    floor: int


def test_repeats(settings: RunSettings, tasks: int) -> int:
    """Returns how often each test task is run under each arm."""
    return settings.test_repeats or (1 if tasks >= ENOUGH_TEST else 3)


def estimate(settings: RunSettings, sizes: Sizes, pilot: Sequence[Trial]) -> Estimate:
    """Returns the estimate from these trials, whichever of them counted."""
    low, high = (_evaluations(settings, sizes, rounds) for rounds in (min(1, settings.iterations), settings.iterations))
    usages = [together(trial.usage, trial.judging) for trial in pilot]
    tokens = [usage.input_tokens + usage.output_tokens for usage in usages] or [0]
    costs = [usage.cost for usage in usages if usage.cost is not None]
    cost = (low * min(costs), high * max(costs)) if costs and len(costs) == len(pilot) else None
    floor = 2 * sizes.val + 3 * (sizes.batch + sizes.val) + 2 * sizes.test
    return Estimate((low, high), (low * min(tokens), high * max(tokens)), cost, floor)


def _evaluations(settings: RunSettings, sizes: Sizes, rounds: int) -> int:
    calibration = (settings.repeats + 2) * sizes.val
    search = rounds * (sizes.batch + settings.repeats * sizes.val)
    last = 2 * sizes.val + 3 * test_repeats(settings, sizes.test) * sizes.test
    return calibration + search + last


def check_floor(limits: Limits, guess: Estimate, pilot: Sequence[Trial]) -> None:
    """Raises BudgetTooSmall when a limit is below what one candidate takes to be found and tested."""
    if not pilot:
        return
    each = len(pilot)
    usages = [together(trial.usage, trial.judging) for trial in pilot]
    tokens = sum(usage.input_tokens + usage.output_tokens for usage in usages) / each
    calls = sum(usage.calls for usage in usages) / each
    costs = [usage.cost for usage in usages if usage.cost is not None]
    needs = (
        ("dollars", limits.cost, guess.floor * sum(costs) / each),
        ("tokens", limits.tokens, guess.floor * tokens),
        ("calls", limits.calls, guess.floor * calls),
    )
    for what, limit, least in needs:
        if limit is not None and least > limit:
            raise BudgetTooSmall(
                f"The budget of {limit:g} {what} is below the {least:,.0f} that finding and testing a single candidate"
                f" takes ({guess.floor} evaluations).",
                "Raise it and continue, or take fewer tasks.",
            )
