"""Forecast of a comparison on given tasks: the decision rule itself is run on drawn repeats.

Only the repeats measured so far count. Every draw takes a world that fits them. A world is how
often a result differs from one run to the next, and which shares of the tasks pass anyway, are
fixed, and are broken. The draw adds the repeats that are missing and asks `decide_stage`, which
decides the real ones too.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, product

from evolvable_evolve.evolution.statistics.claim_stages import TryAnswer, decide_stage
from evolvable_evolve.evolution.statistics.repeat_labels import Repeats

# A share of 200 draws has a standard error of at most 3.5 points, enough for a forecast.
DRAWS = 200
"""Draws of a forecast at most."""

# Bounds the time of a forecast: large task sets get fewer draws.
MAX_WORK = 30_000
"""Trials that all draws of one forecast have together."""

FOUND_GAIN = 0.25
"""The gain of which a forecast says how likely the comparison finds it."""

# The grid of worlds. A value that is repeated has that many times the prior weight. Every world is
# weighed, so the grid is coarse.
_NOISE = (*(0.0,) * 9, 0.01, 0.04, 0.04, 0.08, 0.15, 0.25, 0.35, 0.45)
_PASSING = (0.15, 0.35, 0.5, 0.65, 0.85)
_FIXED = (0.0, 0.03, 0.1, 0.2, 0.3, 0.45, 0.65, 0.85)
_BROKEN = (0.0, 0.0, 0.0, 0.05, 0.15, 0.4)
_LATENT = ((0, 0), (0, 1), (1, 0), (1, 1))
"""The kinds of tasks: whether they pass before and after, but for noise."""

_BEFORE = (0.0, 0.05, 0.3)
"""The noise of steady, nearly steady and unsteady executors."""

_TINY = 1e-12
"""Keeps a logarithm or a weight defined where a world cannot explain a task."""

# Above the promised 19 of 20, because a quantile of 30 to 200 draws is uncertain itself.
_COVERED_SHARE = 0.97
"""The share of the draws that need at most the number of trials that a forecast promises."""

_Outcome = tuple[tuple[float, float], tuple[float, float]]
"""The sums of passed and of failed repeats of one task, before and after."""

_World = tuple[float, tuple[float, float, float, float]]
"""The noise, and the share of tasks of each kind of _LATENT."""


@dataclass(frozen=True, slots=True)
class TryForecast:
    """Chances and trials to expect of a comparison.

    clear: the chance of helps or harms. any_answer: the chance of helps, harms or no difference.
    found: the chance of helps or harms for a skill that gains FOUND_GAIN. trials: the mean number
    of trials. most: the number that the comparison stays within in at least 19 of 20 cases.
    """

    clear: float
    any_answer: float
    found: float
    trials: float
    most: int


def forecast_found(tasks: int, stages: int, gain: float = FOUND_GAIN, seed: int = 0) -> TryForecast:
    """Return the forecast for a skill that gains `gain` on these tasks, before the first trial.

    The noise of the executor is unknown then, so steady, nearly steady and unsteady executors weigh
    alike.
    """
    rng = random.Random(seed)
    noises = [_BEFORE[at % len(_BEFORE)] for at in range(_count_draws(tasks, stages))]
    return _summarise(_simulate_gain(rng, noises, tasks, stages, gain), [], tasks, stages)


def forecast_rest(
    before: Repeats, after: Repeats, stage: int, stages: int, seed: int = 0
) -> TryForecast:
    """Return the forecast after `stage` stages (1 or more), from the repeats of both arms
    so far.
    """
    tasks = [task for task in before if before[task] and after.get(task)]
    if not tasks:
        return TryForecast(0.0, 0.0, 0.0, 0.0, 0)
    rng = random.Random(seed)
    outcomes = [(_split(before[task]), _split(after[task])) for task in tasks]
    worlds, weights = _weigh_worlds(outcomes)
    drawn = rng.choices(worlds, cum_weights=weights, k=_count_draws(len(tasks), stages))
    ended = []
    for noise, shares in drawn:
        kinds = [_draw_kind(rng, outcome, noise, shares) for outcome in outcomes]
        # Copies, because `_finish` appends the drawn repeats to them.
        first, second = (
            {str(at): list(arm[task]) for at, task in enumerate(tasks)} for arm in (before, after)
        )
        ended.append(_finish(rng, kinds, noise, (first, second), stage, stages))
    # Every second world is enough for this figure, and halves its time.
    noises = [noise for noise, _ in drawn[::2]]
    gaining = _simulate_gain(rng, noises, len(tasks), stages, FOUND_GAIN)
    return _summarise(gaining, ended, len(tasks), stages)


def _simulate_gain(
    rng: random.Random, noises: Sequence[float], tasks: int, stages: int, gain: float
) -> list[tuple[TryAnswer, int]]:
    """Return how comparisons of a skill with this gain end, one for each noise."""
    ended = []
    for noise in noises:
        # `gain` is that of the results. Noise hides a part of it, so more tasks are fixed.
        fixed = min(tasks, round(gain * tasks / (1 - 2 * noise)))
        alike = [rng.choice(((0, 0), (1, 1))) for _ in range(tasks - fixed)]
        kinds = [*[(0, 1)] * fixed, *alike]
        ended.append(_finish(rng, kinds, noise, ({}, {}), 0, stages))
    return ended


def _count_draws(tasks: int, stages: int) -> int:
    affordable = MAX_WORK // max(1, 2 * tasks * stages)
    # Under 30 draws the quantile that gives `most` means nothing.
    return max(30, min(DRAWS, affordable))


def _split(scores: Sequence[float]) -> tuple[float, float]:
    """Return the sums of passed and of failed repeats. A graded score is a part of both."""
    passed = math.fsum(scores)
    return passed, len(scores) - passed


def _weigh_worlds(outcomes: Sequence[_Outcome]) -> tuple[list[_World], list[float]]:
    """Return all worlds with the running sums of their weights, by how well each explains the
    repeats.
    """
    # Counted, so that tasks with the same outcome are weighed once.
    counts = Counter(outcomes)
    worlds = _list_worlds()
    logs = []
    for noise, shares in worlds:
        total = 0.0
        for outcome, number in counts.items():
            weights = _weigh_kinds(outcome, noise, shares)
            total += number * math.log(max(_TINY, sum(weights)))
        logs.append(total)
    best = max(logs)
    # Relative to the best: the weights alone are too small for a float.
    return worlds, list(accumulate(math.exp(log_weight - best) for log_weight in logs))


# The grid depends on nothing, and has some thousand worlds.
@lru_cache(maxsize=1)
def _list_worlds() -> list[_World]:
    worlds = []
    for noise, passing, fixed, broken in product(_NOISE, _PASSING, _FIXED, _BROKEN):
        rest = 1 - fixed - broken
        # More than all tasks cannot be fixed and broken.
        if rest >= 0:
            worlds.append((noise, (rest * (1 - passing), fixed, broken, rest * passing)))
    return worlds


def _weigh_kinds(outcome: _Outcome, noise: float, shares: Sequence[float]) -> list[float]:
    """Return the joint chance of each kind of task and of the repeats that it showed."""
    fits = []
    for passed, failed in outcome:
        # First of a task that fails but for noise, then of one that passes but for noise.
        fits.append((noise**passed * (1 - noise) ** failed, (1 - noise) ** passed * noise**failed))
    return [
        share * fits[0][first] * fits[1][second]
        for share, (first, second) in zip(shares, _LATENT, strict=True)
    ]


def _draw_kind(
    rng: random.Random, outcome: _Outcome, noise: float, shares: Sequence[float]
) -> tuple[int, int]:
    # `choices` raises for weights that are all zero.
    weights = [weight + _TINY for weight in _weigh_kinds(outcome, noise, shares)]
    return rng.choices(_LATENT, weights=weights)[0]


def _finish(
    rng: random.Random,
    kinds: Sequence[tuple[int, int]],
    noise: float,
    arms: tuple[dict[str, list[float]], dict[str, list[float]]],
    stage: int,
    stages: int,
) -> tuple[TryAnswer, int]:
    """Return the answer of one drawn comparison, and the stage that gave it."""
    for now in range(stage + 1, stages + 1):
        for at, kind in enumerate(kinds):
            for arm, passes in zip(arms, kind, strict=True):
                # Noise turns a result around.
                arm.setdefault(str(at), []).append(float(bool(passes) != (rng.random() < noise)))
        decision = decide_stage(arms[0], arms[1], now, stages, len(kinds))
        if decision.answer is not None:
            return decision.answer, now
    return TryAnswer.CANNOT_TELL, stages


def _summarise(
    gaining: Sequence[tuple[TryAnswer, int]],
    ended: Sequence[tuple[TryAnswer, int]],
    tasks: int,
    stages: int,
) -> TryForecast:
    """Return the forecast.

    gaining: drawn comparisons of a skill that gains FOUND_GAIN. ended: those of this skill, empty
    before its first trial.
    """
    drawn = ended or gaining
    if not drawn:
        return TryForecast(0.0, 0.0, 0.0, 0.0, 0)
    # Each stage runs every task once under both arms.
    lengths = sorted(2 * tasks * stage for _, stage in drawn)
    covered = min(len(lengths) - 1, math.ceil(_COVERED_SHARE * len(lengths)))
    answered = sum(answer is not TryAnswer.CANNOT_TELL for answer, _ in drawn)
    return TryForecast(
        clear=_share_clear(drawn),
        any_answer=answered / len(drawn),
        found=_share_clear(gaining),
        trials=sum(lengths) / len(lengths),
        most=lengths[covered],
    )


def _share_clear(ended: Sequence[tuple[TryAnswer, int]]) -> float:
    clear = sum(answer in (TryAnswer.HELPS, TryAnswer.HARMS) for answer, _ in ended)
    return clear / len(ended) if ended else 0.0
