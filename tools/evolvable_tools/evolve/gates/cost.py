"""What a better program may cost: its tokens for a task, beside those of the base."""

from collections.abc import Mapping
from dataclasses import dataclass

from evolvable_tools.evolve.gates.pairs import LEAST_COVERAGE
from evolvable_tools.evolve.statistics import bootstrap

LIMIT = 0.25


@dataclass(frozen=True, slots=True)
class Costs:
    """Tokens for each task (mean over repeats) under both programs, and how much more is borne.

    `limit` is a share: .25 bears a quarter more. `worth_it` says that the person bears whatever it costs.
    """

    base: Mapping[str, float]
    finalist: Mapping[str, float]
    limit: float = LIMIT
    worth_it: bool = False


@dataclass(frozen=True, slots=True)
class CostChange:
    """Tokens a task before and after, over the `n` tasks known of both; the ratio with its 95 % interval.

    `per_extra_solved` is what each further solved task costs in tokens, None when none is solved more.
    """

    n: int
    before: float
    after: float
    ratio: float
    interval: tuple[float, float]
    within: bool
    per_extra_solved: float | None


def change(costs: Costs, gain: float, tasks: int, seed: int, resamples: int) -> CostChange | None:
    """Returns the change of cost; None where it is unknown: for under 60 % of the `tasks`, or for no tokens.

    `gain` is the mean gain of a task. The change is `within` when the upper end of the ratio is at most 1 + limit.
    """
    both = sorted(set(costs.base) & set(costs.finalist))
    pairs = [(costs.base[task], costs.finalist[task]) for task in both]
    interval = bootstrap.ratio_interval(pairs, seed, resamples=resamples)
    if interval is None or len(both) < LEAST_COVERAGE * tasks:
        return None
    before = sum(first for first, _ in pairs) / len(pairs)
    after = sum(second for _, second in pairs) / len(pairs)
    return CostChange(
        n=len(both),
        before=before,
        after=after,
        ratio=after / before,
        interval=interval,
        within=costs.worth_it or interval[1] <= 1 + costs.limit,
        per_extra_solved=(after - before) / gain if gain > 0 else None,
    )
