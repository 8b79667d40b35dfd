"""Plan a run before it spends more than three trials: its cost, and the gains that its test could
find.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolvable_evolve.evolution.ledger import RunState
from evolvable_evolve.evolution.run_config import STAGED_REPEATS
from evolvable_evolve.evolution.statistics import (
    GAINS,
    MIN_GROUPS,
    NARROW_REPEATS,
    NOISE,
    PowerDesign,
    narrow_sizes,
    power_band,
    smallest_gain,
)
from evolvable_evolve.evolution.task import Split, TaskSet
from evolvable_evolve.evolution.tasks import MIN_TASKS, count_groups

MORE_TASKS = 10
"""Further tasks of the option that adds some."""

SHOWN_GAIN = 0.10
"""The true gain for which more tasks and more repeats are compared."""


@dataclass(frozen=True, slots=True)
class PowerRow:
    """The chance to find a true gain: at least and at most; None where the tasks leave no room for
    it.
    """

    gain: float
    least: float | None
    most: float | None


@dataclass(frozen=True, slots=True)
class PlanOption:
    """The effect of a change of the test: its trials, and the chance to find +10 points."""

    change: str
    trials: int
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class PlannedLook:
    """The limit of p at one look at the test, and its chance to find +10 points. look: over all
    runs on these test tasks.
    """

    look: int
    alpha: float
    least: float
    most: float


LOOKS = 3
"""Looks in a plan: the next one, and those after it, for which it leaves less."""


@dataclass(frozen=True)
class RunPlan:
    """The cost of a run, and the gains that it could find.

    claim: `tasks like these`, `these tasks` (a small set), or `nothing`. noise: the share of
    results that differ between two runs of the same program; assumed where no run measured it.
    evaluations, dollars: from the least to the most; dollars None without a pilot or a price.
    likely: evaluations of a run that opens its test. detectable: the smallest true gain that is
    found in four runs of five, None where none is. run: the one whose pilot gave the estimate;
    `evolve continue` goes on with it. looks: the next looks at the test, before the first.
    """

    name: str
    claim: str
    sizes: dict[str, int]
    tests: int
    repeats: int
    alpha: float
    noise: float
    noise_measured: bool
    power: list[PowerRow]
    options: list[PlanOption]
    detectable: float | None = None
    evaluations: tuple[int, int] | None = None
    dollars: tuple[float, float] | None = None
    likely: int | None = None
    run: str = ""
    remarks: list[str] = field(default_factory=list)
    looks: list[PlannedLook] = field(default_factory=list)


def make_plan(
    taskset: TaskSet,
    *,
    test_repeats: int = 0,
    look: int = 1,
    noise: float | None = None,
    pilot: RunState | None = None,
) -> RunPlan:
    """Return the plan of a run on a task set. Runs nothing.

    test_repeats: 0 for those of a run. look: the number of the next look at the test. noise: as the
    caller measured it, None for the usual one. pilot: a run after its first three trials, for its
    estimate.
    """
    # Counts of all splits, because the claim depends on each of them.
    sizes = {str(split): len(taskset.of(split)) for split in Split}
    claim, tests = claim_of(sizes, count_groups(taskset))
    narrow = claim == "these tasks"
    # A small set repeats each task more often.
    repeats = test_repeats or (NARROW_REPEATS if narrow else STAGED_REPEATS)
    design = PowerDesign.of(
        tests, repeats, look=look, narrow=narrow, noise=NOISE if noise is None else noise
    )
    estimate: Mapping[str, Any] = pilot.preflight.get("estimate", {}) if pilot is not None else {}
    cost = estimate.get("cost")
    evaluations: tuple[int, int] | None = None
    likely: int | None = None
    # Only a run with a pilot has an estimate.
    if estimate:
        evaluations = int(estimate["evaluations"][0]), int(estimate["evaluations"][1])
        likely = int(estimate["likely"])
    has_claim = claim != "nothing"
    return RunPlan(
        taskset.name,
        claim,
        sizes,
        tests,
        repeats,
        design.alpha,
        design.noise,
        noise is not None,
        [_make_power_row(design, gain) for gain in GAINS] if has_claim else [],
        list(_list_options(design)) if has_claim else [],
        smallest_gain(design) if has_claim else None,
        evaluations,
        (float(cost[0]), float(cost[1])) if cost else None,
        likely,
        pilot.run if pilot is not None else "",
        _list_remarks(claim, sizes, cost, pilot),
        list(_plan_looks(design, look)) if has_claim else [],
    )


def claim_of(sizes: Mapping[str, int], groups: int) -> tuple[str, int]:
    """Return the claim of a run on so many tasks, and the number of tasks that it is about.

    groups: of the test.
    """
    # The three conditions of a claim about other tasks, as the final test checks them.
    if sizes[Split.TEST] and sum(sizes.values()) >= MIN_TASKS and groups >= MIN_GROUPS:
        return "tasks like these", sizes[Split.TEST]
    count = sum(narrow_sizes(sizes[Split.VAL], sizes[Split.TEST]))
    return ("these tasks", count) if count else ("nothing", 0)


def _make_power_row(design: PowerDesign, gain: float) -> PowerRow:
    band = power_band(design, gain)
    return PowerRow(gain, *(band or (None, None)))


def _plan_looks(design: PowerDesign, look: int) -> Iterator[PlannedLook]:
    tasks, repeats, narrow, noise = design.tasks, design.repeats, design.narrow, design.noise
    for number in range(look, look + LOOKS):
        other = PowerDesign.of(tasks, repeats, look=number, narrow=narrow, noise=noise)
        # No room for the gain means no chance to find it.
        least, most = power_band(other, SHOWN_GAIN) or (0.0, 0.0)
        yield PlannedLook(number, other.alpha, least, most)


def _list_options(design: PowerDesign) -> Sequence[PlanOption]:
    def option(change: str, tasks: int, repeats: int) -> PlanOption:
        # Only one thing changes at a time, so that the options can be compared.
        other = PowerDesign(tasks, repeats, design.alpha, design.narrow, design.noise)
        least, most = power_band(other, SHOWN_GAIN) or (0.0, 0.0)
        return PlanOption(change, other.trials, least, most)

    return (
        option("as it is", design.tasks, design.repeats),
        option(f"{MORE_TASKS} more tasks", design.tasks + MORE_TASKS, design.repeats),
        option("one more repeat", design.tasks, design.repeats + 1),
    )


def _list_remarks(
    claim: str, sizes: Mapping[str, int], cost: Any, pilot: RunState | None
) -> list[str]:
    remarks, count = [], sum(sizes.values())
    if claim == "nothing":
        tasks = "task" if count == 1 else "tasks"
        remarks.append(f"With {count} {tasks} a run explores; nothing can be claimed.")
    elif claim == "these tasks":
        few = f"The test has under {MIN_GROUPS} groups"
        if count < MIN_TASKS:
            few = "The set is small"
        remarks.append(
            f"{few}: the claim is about these tasks alone, and only a person adopts by it."
        )
    # Without an estimate the three trials are not over.
    if pilot is not None and not pilot.preflight:
        why = pilot.stopped or "they are under way"
        remarks.append(f"Run {pilot.run} has not ended its three trials: {why}.")
    elif pilot is not None and not cost:
        remarks.append("The cost is unknown because no price is set: --price IN,OUT sets it.")
    return remarks
