"""The exact staged test of a sealed test: sign flips of whole groups in three O'Brien-Fleming
stages, and the estimates after them.

If a program did nothing to any group, the difference of each group could as well have the other
sign. The sign patterns are counted, stage by stage, without those that an earlier stage would have
stopped. So the test holds its level exactly for that hypothesis, whatever the sizes of the
differences are. It is no exact test of a mean of zero: many small gains with rare large losses pass
it more often. `harm_bound` is the further condition for graded scores.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from statistics import NormalDist

from evolvable_evolve.evolution.statistics.paired_tests import to_lattice
from evolvable_store.errors import InvalidArgument

# Chosen among designs that were simulated on 24 November 2026 (git has that table of
# `benchmarks/README.md`).
STAGE_SHARES = (0.5, 0.25, 0.25)
"""The share of the tasks in each stage of a sealed test.

With half of them in the first, fewer tests of a true gain end there by chance than with a third.
"""

STAGES = len(STAGE_SHARES)
"""The number of stages of a sealed test."""

EQUAL_SHARES = (1 / 3, 1 / 3, 1 / 3)
"""The stages of tests that were opened before 24 November 2026, which continue with them."""

# Chosen with the shares, in the same simulations: ending early costs one to three points of power.
FUTILITY = (0.5, 1.0)
"""Standardised gains below which the first and the second stage end the test.

The level does not rest on them.
"""

# More steps cost time.
_GRID = 120
"""Steps of the largest difference, where the differences share no step."""

_NORMAL = NormalDist()

_REPEATED_95 = 2.024
"""The O'Brien-Fleming constant for looks at .5, .75 and 1 of the test, two-sided .05."""

# Further looks are at opened tasks, so the first one has four fifths of the .05.
FIRST_LOOK_ALPHA, FURTHER_LOOKS_ALPHA = 0.04, 0.01
"""The alpha of the first look at a task, and of all further ones together."""


def alpha_of_look(look: int, first: float = FIRST_LOOK_ALPHA) -> float:
    """Return the alpha of the `look`-th look (from 1) at a test.

    first: the alpha of the first look, to which the further ones keep their proportion. With the
    default all looks together stay at .05.
    """
    if look < 1:
        raise InvalidArgument(f"Looks at a test are counted from 1, not from {look}.")
    if look == 1:
        return first
    return FURTHER_LOOKS_ALPHA * (first / FIRST_LOOK_ALPHA) * 6 / (math.pi * (look - 1)) ** 2


def spent_alpha(share: float, alpha: float) -> float:
    """Return the part of `alpha` that is spent when this share of the test is measured
    (O'Brien-Fleming).
    """
    if share >= 1:
        return alpha
    if share <= 0:
        return 0.0
    return 2 - 2 * _NORMAL.cdf(_NORMAL.inv_cdf(1 - alpha / 2) / math.sqrt(share))


@dataclass(frozen=True, slots=True)
class StagedResult:
    """The result of the stages measured so far.

    stage: their number. share: their part of the whole test. p: the one-sided p-value of being as
    far at this stage or over a boundary before it. alpha: the limit of `p` at this stage. z: the
    standardised gain. gain: the mean difference of a task. error: the standard error of the gain.
    bounds: standardised boundaries of the stages before this one. shares: parts of the whole test
    at the end of each stage measured.
    """

    stage: int
    share: float
    p: float
    alpha: float
    z: float
    gain: float
    error: float
    bounds: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()

    @property
    def rejects(self) -> bool:
        """Whether the gain is significant at this stage."""
        return self.p <= self.alpha

    @property
    def futile(self) -> bool:
        """Whether to end here because a significant gain is unlikely.

        Never true at the last stage.
        """
        # Not binding: going on after it raises no error, because the boundaries ignore it.
        return self.stage <= len(FUTILITY) and self.share < 1 and self.z <= FUTILITY[self.stage - 1]

    @property
    def estimate(self) -> float:
        """The median-unbiased estimate of the gain: that for which this result, or a larger one,
        has a chance of one half.
        """
        return median_unbiased_gain(self)

    @property
    def interval(self) -> tuple[float, float]:
        """The repeated 95 % interval of the gain, which holds at whatever stage the test ended."""
        width = _REPEATED_95 / math.sqrt(max(self.share, 1e-9)) * self.error
        return max(-1.0, self.gain - width), min(1.0, self.gain + width)


Group = Sequence[float]
"""The differences of the tasks of one group."""


def staged_sign_flip(
    stages: Sequence[Sequence[Group]], planned: Sequence[int], alpha: float, *, least: float = 0.0
) -> StagedResult:
    """Return the result at the last of these stages.

    Args:
        stages: for each stage measured, its groups with the differences of their tasks. A group
        flips as a whole.
        planned: tasks of every stage of the test, also of those not measured.
        alpha: of the whole test.
        least: the gain that must be exceeded, which is subtracted from each difference.

    Raises:
        InvalidArgument: there are no stages, or more than planned.
    """
    if not stages or len(stages) > len(planned):
        raise InvalidArgument(f"{len(stages)} stages of {len(planned)} were measured.")
    sums = [[math.fsum(group) - least * len(group) for group in stage] for stage in stages]
    # All stages in one call, so that they share one step.
    steps = _to_steps([value for stage in sums for value in stage])
    remaining = iter(steps)
    steps_by_stage = [list(islice(remaining, len(stage))) for stage in sums]
    total = sum(planned)
    shares = [sum(planned[: number + 1]) / total for number in range(len(stages))]
    levels = [spent_alpha(share, alpha) for share in shares]
    p, bounds = _count_stagewise(steps_by_stage, levels)
    groups = [group for stage in stages for group in stage]
    tasks = sum(map(len, groups))
    gain = math.fsum(value for group in groups for value in group) / tasks if tasks else 0.0
    # Squares of groups, not of tasks: tasks of one group are not independent.
    squares = math.fsum((math.fsum(group) - gain * len(group)) ** 2 for group in groups)
    error = math.sqrt(squares) / max(1, tasks)
    spread = math.sqrt(sum(value * value for value in steps))
    z = sum(steps) / spread if spread else 0.0
    return StagedResult(
        len(stages), shares[-1], p, levels[-1], z, gain, error, tuple(bounds), tuple(shares)
    )


def _to_steps(sums: Sequence[float]) -> list[int]:
    """Return the sums in whole steps.

    Without a common step they are rounded to a fine grid. Rounding to the grid keeps every sum's
    sign symmetric, so the test stays exact.
    """
    if not any(sums):
        return [0] * len(sums)
    # Rounding errors of the sums would hide a common step.
    stepped = to_lattice([round(value, 9) for value in sums])
    # A finer step makes the packed numbers long, and the count slow.
    if stepped is not None and max(map(abs, stepped[1])) <= 4 * _GRID:
        return list(stepped[1])
    step = max(map(abs, sums)) / _GRID
    return [round(value / step) for value in sums]


def _count_stagewise(
    stages: Sequence[Sequence[int]], levels: Sequence[float]
) -> tuple[float, list[float]]:
    """Return the p-value at the last stage and the standardised boundaries of those before it.

    stages: for each stage the sums of its groups, in steps. levels: the alpha spent at the end of
    each. The number of sign patterns with each sum is a coefficient of a polynomial, written as one
    large number. Its coefficients are so far apart that none reaches into the next.
    """
    flips = sum(1 for stage in stages for value in stage if value)
    # Bytes of a coefficient: it counts at most 2**flips patterns.
    slot = flips // 8 + 1
    ways, flipped, crossed, total, squares = 1, 0, 0, 0, 0
    bounds: list[float] = []
    for number, (stage, level) in enumerate(zip(stages, levels, strict=True), 1):
        for size in (abs(value) for value in stage if value):
            ways += ways << (8 * slot * size)
            # A flip doubles the patterns, also those that crossed an earlier boundary.
            flipped, crossed = flipped + 1, crossed * 2
            total, squares = total + size, squares + size * size
        packed = ways.to_bytes(slot * (total + 1), "little")
        if number == len(stages):
            observed = sum(value for sums in stages for value in sums)
            # Sums are counted from the lowest, in steps of two.
            least = (observed + total) // 2
            reached = crossed + _sum_tail(packed, slot, least, total)
            return float(Fraction(reached, 1 << flipped)), bounds
        # The patterns that this stage may still let cross, from the highest sum down.
        allowed, tail, bound = int(Fraction(level) * (1 << flipped)) - crossed, 0, total + 1
        while bound:
            more = _read_count(packed, slot, bound - 1)
            if tail + more > allowed:
                break
            tail, bound = tail + more, bound - 1
        crossed += tail
        # Those over the boundary ended the test here, and no later stage counts them again.
        ways &= (1 << (8 * slot * bound)) - 1
        has_bound = bound <= total and squares
        bounds.append((2 * bound - total) / math.sqrt(squares) if has_bound else math.inf)
    raise AssertionError("there is at least one stage")


def _sum_tail(packed: bytes, slot: int, least: int, total: int) -> int:
    """Return the number of sign patterns at the places from `least` to `total`."""
    return sum(_read_count(packed, slot, place) for place in range(max(0, least), total + 1))


def _read_count(packed: bytes, slot: int, place: int) -> int:
    """Return the coefficient at a place. slot: bytes of a coefficient."""
    return int.from_bytes(packed[slot * place : slot * (place + 1)], "little")


def median_unbiased_gain(result: StagedResult) -> float:
    """Return the gain at which this result, or one that comes before it, has a chance of one half.

    Results are ordered by stage. The normal approximation serves for the sums of the stages before.
    """
    # Without an earlier boundary the mean itself is unbiased.
    if result.error <= 0 or not any(math.isfinite(bound) for bound in result.bounds):
        return result.gain
    # The median lies within six standard errors, and 20 halvings narrow that to a
    # hundred-thousandth of one.
    low, high = result.gain - 6 * result.error, result.gain + 6 * result.error
    observed = result.gain / result.error
    for _ in range(20):
        middle = (low + high) / 2
        drift = middle / result.error
        if _integrate_chance(result.bounds, result.shares, observed, drift) < 0.5:
            low = middle
        else:
            high = middle
    return (low + high) / 2


_CELLS = 48
"""Cells of a numeric integration over 14 standard deviations."""


def _compute_density(value: float) -> float:
    return math.exp(-value * value / 2) / math.sqrt(2 * math.pi)


def _integrate_chance(
    bounds: Sequence[float], shares: Sequence[float], observed: float, drift: float
) -> float:
    """Return the chance of crossing a bound before the last share, or of at least `observed` at it.

    The sums are a Brownian motion with this drift at the last share, on the scale on which it has
    variance 1 there.
    """
    last = shares[-1]
    times = [share / last for share in shares]
    spread = math.sqrt(times[0])
    # Outside of seven standard deviations the mass is below 1e-11.
    low, high = drift * times[0] - 7 * spread, drift * times[0] + 7 * spread
    width = (high - low) / _CELLS
    cells = [low + (number + 0.5) * width for number in range(_CELLS)]
    mass = [_compute_density((cell - drift * times[0]) / spread) / spread * width for cell in cells]
    passed = 0.0
    for number, bound in enumerate(bounds):
        edge = bound * math.sqrt(times[number])
        # Paths over the boundary end here; the others go on.
        passed += sum(chance for cell, chance in zip(cells, mass, strict=True) if cell >= edge)
        open_cells = [
            (cell, chance)
            for cell, chance in zip(cells, mass, strict=True)
            if cell < edge and chance > 1e-12
        ]
        step = times[number + 1] - times[number]
        spread = math.sqrt(step)
        if number + 1 == len(bounds):
            return passed + sum(
                chance * math.erfc((observed - cell - drift * step) / spread / math.sqrt(2)) / 2
                for cell, chance in open_cells
            )
        mid, wide = drift * times[number + 1], 7 * math.sqrt(times[number + 1])
        width = 2 * wide / _CELLS
        cells = [mid - wide + (at + 0.5) * width for at in range(_CELLS)]
        norm, shift = width / spread / math.sqrt(2 * math.pi), drift * step
        scaled = [(cell / spread, chance) for cell, chance in open_cells]
        mass = []
        for at in [(cell - shift) / spread for cell in cells]:
            reached = [
                chance * math.exp((at - start) * (start - at) / 2) for start, chance in scaled
            ]
            mass.append(norm * math.fsum(reached))
    return passed


def clopper_pearson_upper(count: int, of: int, alpha: float = 0.05) -> float:
    """Return the exact one-sided upper limit of the chance of an event that `count` of `of` cases
    had.
    """
    if not 0 <= count <= of:
        raise InvalidArgument(f"{count} of {of} is no share.")
    if count == of:
        return 1.0
    low, high = 0.0, 1.0
    # Logarithms, since the number of ways to choose half of 2,000 is larger than any float.
    ways = [
        math.lgamma(of + 1) - math.lgamma(k + 1) - math.lgamma(of - k + 1) for k in range(count + 1)
    ]
    # 50 halvings reach the precision of a float.
    for _ in range(50):
        middle = (low + high) / 2
        yes, no = math.log(middle), math.log1p(-middle)
        below = math.fsum(math.exp(way + k * yes + (of - k) * no) for k, way in enumerate(ways))
        low, high = (middle, high) if below > alpha else (low, middle)
    return high


LARGE_LOSS = 0.25
"""A group whose mean falls by more than this has a large loss."""

# Fewer losses say too little of how large they are.
_ENOUGH_LOSSES = 3
"""Large losses from which their own size is used."""


def harm_bound(groups: Iterable[Group], alpha: float = 0.02) -> float:
    """Return a lower limit of the mean gain when large losses are as frequent as they may be.

    The chance of a large loss is taken at its upper limit. Its size is that of the largest loss, or
    a whole point where there are fewer than three. The limit guards a mean of graded scores against
    many small gains that hide rare large losses.
    """
    group_means = [math.fsum(group) / len(group) for group in groups if group]
    if not group_means:
        return -1.0
    large = [mean for mean in group_means if mean < -LARGE_LOSS]
    rest = [mean for mean in group_means if mean >= -LARGE_LOSS]
    chance = clopper_pearson_upper(len(large), len(group_means), alpha)
    size = max(-mean for mean in large) if len(large) >= _ENOUGH_LOSSES else 1.0
    return (1 - chance) * (math.fsum(rest) / len(rest) if rest else 0.0) - chance * size


def missing_p_value(missing_base: int, missing_finalist: int, of: int) -> float:
    """Return the one-sided exact p-value that results of the finalist are missing more often.

    of: the trials of each arm.
    """
    both = missing_base + missing_finalist
    if not both or missing_finalist <= 0:
        return 1.0
    every = math.comb(2 * of, both)
    most = min(both, of)
    return math.fsum(
        math.comb(of, count) * math.comb(of, both - count) / every
        for count in range(missing_finalist, most + 1)
    )


MANY_MISSING = 0.02
"""The share of an arm's trials above which missing ones may matter, however they are spread."""

SUSPICIOUS = 0.1
"""The p-value that one arm misses more trials than the other, under which they may matter."""


@dataclass(frozen=True, slots=True)
class MissingTrials:
    """Trials of each arm that came to no result, of `each` that were to be run."""

    base: int
    finalist: int
    each: int

    @property
    def any(self) -> bool:
        """Whether any is missing."""
        return self.base + self.finalist > 0

    @property
    def many(self) -> bool:
        """Whether more than the usual share of an arm is missing."""
        return max(self.base, self.finalist) > MANY_MISSING * self.each

    @property
    def p(self) -> float:
        """The one-sided exact p-value that the arm with more missing trials misses more of them."""
        fewer, more = sorted((self.base, self.finalist))
        return missing_p_value(fewer, more, self.each)

    @property
    def matters(self) -> bool:
        """Whether the claim must also hold with every missing trial counted as failed."""
        return self.any and (self.many or self.p < SUSPICIOUS)

    def __str__(self) -> str:
        return (
            f"Missing: {self.base} of {self.each} trials of the base, {self.finalist} of "
            f"{self.each} of the finalist."
        )


def stratified_permutation_p_value(
    before: Mapping[str, Group], after: Mapping[str, Group]
) -> float:
    """Return the one-sided exact p-value of `after` being better than `before` on exactly these
    tasks.

    Repeats are exchanged between the arms within each task: the tasks are fixed, the trials are
    random. Each task counts by the difference of its means. An arm whose repeats agree on every
    task is not random, and counts once a task. Tasks without a repeat in both arms are left out.
    The p-value is 1 where no difference is possible.
    """
    tasks = [task for task in before if before[task] and after.get(task)]
    first, second = _to_fractions(before, tasks), _to_fractions(after, tasks)
    tables: list[dict[Fraction, int]] = []
    observed = Fraction(0)
    for task in tasks:
        pooled = first[task] + second[task]
        # A task whose repeats all agree adds nothing to any difference.
        if len(set(pooled)) == 1:
            continue
        tables.append(_count_differences(pooled, len(second[task])))
        observed += _average(second[task]) - _average(first[task])
    return _find_share(tables, observed)


def _to_fractions(arm: Mapping[str, Group], tasks: Sequence[str]) -> dict[str, list[Fraction]]:
    """Return the repeats of an arm by task: one of each task where those of every task agree."""
    repeats = {task: list(arm[task]) for task in tasks}
    if all(len(set(scores)) == 1 for scores in repeats.values()):
        repeats = {task: scores[:1] for task, scores in repeats.items()}
    # Graded scores to a thousandth: larger denominators only make the table of sums larger.
    return {
        task: [Fraction(score).limit_denominator(1000) for score in scores]
        for task, scores in repeats.items()
    }


def _average(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def _count_differences(pooled: Sequence[Fraction], taken: int) -> dict[Fraction, int]:
    """Return how many choices of `taken` of these values give each difference of means.

    A difference is the mean of the chosen values less that of the others.
    """
    ways: list[dict[Fraction, int]] = [{Fraction(0): 1}, *({} for _ in range(taken))]
    for value in pooled:
        # From large to small, so that no value is chosen twice.
        for size in range(taken, 0, -1):
            for total, count in ways[size - 1].items():
                ways[size][total + value] = ways[size].get(total + value, 0) + count
    left, every = len(pooled) - taken, sum(pooled, Fraction(0))
    return {total / taken - (every - total) / left: count for total, count in ways[taken].items()}


def _find_share(tables: Sequence[Mapping[Fraction, int]], observed: Fraction) -> float:
    """Return the share of all combinations, one of each table, whose sum is at least `observed`."""
    if not tables:
        return 1.0
    common = math.lcm(*(value.denominator for table in tables for value in table))
    # Else on a coarse grid, because graded scores would make the table of sums too large. Sums are
    # rounded up and the observed one down, so that no p-value is too small.
    scale = common if common <= 100_000 else 10_000
    sums: dict[int, int] = {0: 1}
    for table in tables:
        steps: dict[int, int] = {}
        for value, count in table.items():
            step = math.ceil(value * scale)
            steps[step] = steps.get(step, 0) + count
        longer: dict[int, int] = {}
        for total, ways in sums.items():
            for step, count in steps.items():
                longer[total + step] = longer.get(total + step, 0) + ways * count
        sums = longer
    least = math.floor(observed * scale)
    reached = sum(ways for total, ways in sums.items() if total >= least)
    return float(Fraction(reached, sum(sums.values())))
