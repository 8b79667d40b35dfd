"""Forecast of a comparison on given tasks: the decision rule itself is run on drawn repeats.

Only the repeats measured so far are taken as known. Every draw takes a world that fits them: how
often a result differs from one run to the next, and which share of the tasks passes anyway, is
fixed, and is broken. It draws the repeats that are missing and asks `decide_stage`, the code that
decides the real ones.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, product

from evolvable_evolve.evolution.statistics.claim_stages import TryAnswer, decide_stage
from evolvable_evolve.evolution.statistics.repeat_labels import Repeats

# A share of 200 draws has a standard error of at most 3.5 points, enough for a forecast.
DRAWS = 200
# It bounds the time of a forecast: large task sets get fewer draws.
MAX_WORK = 30_000  # trials that are drawn for one forecast, of all draws together

FOUND_GAIN = 0.25
"""The gain of which a forecast says how likely it is found."""

# Prior weights of the worlds: a repeated value weighs that many times. Every world is weighed, so
# grids are coarse.
_NOISE = (*(0.0,) * 9, 0.01, 0.04, 0.04, 0.08, 0.15, 0.25, 0.35, 0.45)
_PASSING = (0.15, 0.35, 0.5, 0.65, 0.85)
_FIXED = (0.0, 0.03, 0.1, 0.2, 0.3, 0.45, 0.65, 0.85)
_BROKEN = (0.0, 0.0, 0.0, 0.05, 0.15, 0.4)
_LATENT = ((0, 0), (0, 1), (1, 0), (1, 1))
_TINY = 1e-12  # keeps a logarithm or a weight defined where a world cannot explain a task
# Above the promised 19 of 20, because a quantile of 30 to 200 draws is uncertain itself.
_COVERED_SHARE = 0.97

# Of one task: the sums of passed and of failed repeats, before and after.
_Seen = tuple[tuple[float, float], tuple[float, float]]
# The noise, and the share of tasks of each kind of _LATENT.
_World = tuple[float, tuple[float, float, float, float]]


@dataclass(frozen=True, slots=True)
class TryForecast:
    """Chances and trials to expect of a comparison.

    clear: the chance of helps or harms. any_answer: the same or no difference. found: the chance of
    helps for a skill that gains FOUND_GAIN. trials: the mean number of trials. most: the number
    that the comparison stays within in at least 19 of 20 cases.
    """

    clear: float
    any_answer: float
    found: float
    trials: float
    most: int


def forecast_found(tasks: int, stages: int, gain: float = FOUND_GAIN, seed: int = 0) -> TryForecast:
    """Return the forecast for a skill that gains `gain` on these tasks, before the first trial.

    How steady the executor is, is unknown then, so steady, nearly steady and unsteady executors
    weigh alike.
    """
    rng = random.Random(seed)
    noises = [_BEFORE[at % len(_BEFORE)] for at in range(_draws(tasks, stages))]
    return _summary(_simulate_gain(rng, noises, tasks, stages, gain), [], tasks, stages)


def forecast_rest(
    before: Repeats, after: Repeats, stage: int, stages: int, seed: int = 0
) -> TryForecast:
    """Return the forecast after `stage` stages (1 or more), from the repeats of both
    arms so far.
    """
    tasks = [task for task in before if before[task] and after.get(task)]
    if not tasks:
        return TryForecast(0.0, 0.0, 0.0, 0.0, 0)
    rng = random.Random(seed)
    seen = [(_split(before[task]), _split(after[task])) for task in tasks]
    worlds, weights = _fitting_worlds(seen)
    drawn = rng.choices(worlds, cum_weights=weights, k=_draws(len(tasks), stages))
    ended = []
    for noise, shares in drawn:
        kinds = [_kind(rng, outcome, noise, shares) for outcome in seen]
        # Copies, because `_finish` appends the drawn repeats to them.
        scores = [
            {str(at): list(arm[task]) for at, task in enumerate(tasks)} for arm in (before, after)
        ]
        ended.append(
            _finish(
                rng,
                kinds,
                noise,
                (scores[0], scores[1]),
                stage,
                stages,
            )
        )
    # Every second world is enough for this figure, and halves its time.
    found = _simulate_gain(
        rng,
        [noise for noise, _ in drawn[::2]],
        len(tasks),
        stages,
        FOUND_GAIN,
    )
    return _summary(found, ended, len(tasks), stages)


_BEFORE = (0.0, 0.05, 0.3)  # steady, nearly steady and unsteady executors


def _simulate_gain(
    rng: random.Random, noises: Sequence[float], tasks: int, stages: int, gain: float
) -> list[tuple[TryAnswer, int]]:
    """Return how comparisons of a skill with this gain end, one for each noise."""
    ended = []
    for noise in noises:
        # Noise hides a part of what is fixed: the gain is that of the results.
        fixed = min(tasks, round(gain * tasks / (1 - 2 * noise)))
        kinds = [
            *[(0, 1)] * fixed,
            *(rng.choice(((0, 0), (1, 1))) for _ in range(tasks - fixed)),
        ]
        ended.append(_finish(rng, kinds, noise, ({}, {}), 0, stages))
    return ended


def _draws(tasks: int, stages: int) -> int:
    # Under 30 draws the quantile that gives `most` means nothing.
    return max(
        30,
        min(DRAWS, MAX_WORK // max(1, 2 * tasks * stages)),
    )


def _split(scores: Sequence[float]) -> tuple[float, float]:
    """Return how much of an arm's repeats of a task passed and failed."""
    passed = math.fsum(scores)
    return passed, len(scores) - passed


def _fitting_worlds(
    seen: Sequence[tuple[tuple[float, float], tuple[float, float]]],
) -> tuple[list[_World], list[float]]:
    """Return all worlds with the running sums of their weights, by how well each explains the
    repeats.
    """
    counts: dict[_Seen, int] = {}
    for outcome in seen:
        counts[outcome] = counts.get(outcome, 0) + 1
    worlds = _worlds()
    logs = []
    for noise, shares in worlds:
        total = 0.0
        for outcome, number in counts.items():
            # Tasks with the same counts are weighed once.
            weights = _kind_weights(outcome, noise, shares)
            total += number * math.log(max(_TINY, sum(weights)))
        logs.append(total)
    best = max(logs)
    # Relative to the best: the weights alone are too small for a float.
    return worlds, list(accumulate(math.exp(log_weight - best) for log_weight in logs))


# The grid depends on nothing, and has some thousand worlds.
@lru_cache(maxsize=1)
def _worlds() -> list[_World]:
    found = []
    for noise, passing, fixed, broken in product(_NOISE, _PASSING, _FIXED, _BROKEN):
        rest = 1 - fixed - broken
        # Tasks cannot be more than all.
        if rest >= 0:
            found.append((noise, (rest * (1 - passing), fixed, broken, rest * passing)))
    return found


def _kind_weights(outcome: _Seen, noise: float, shares: Sequence[float]) -> list[float]:
    """Return the joint chance of each kind of task and of the repeats that it showed."""
    fits = []
    for arm in outcome:
        passed, failed = arm
        # A task that fails but for noise, and one that passes but for noise.
        fits.append((noise**passed * (1 - noise) ** failed, (1 - noise) ** passed * noise**failed))
    return [
        share * fits[0][first] * fits[1][second]
        for share, (first, second) in zip(shares, _LATENT, strict=True)
    ]


def _kind(
    rng: random.Random,
    outcome: _Seen,
    noise: float,
    shares: Sequence[float],
) -> tuple[int, int]:
    # `choices` raises for weights that are all zero.
    return rng.choices(
        _LATENT, weights=[weight + _TINY for weight in _kind_weights(outcome, noise, shares)]
    )[0]


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


def _summary(
    found: Sequence[tuple[TryAnswer, int]],
    ended: Sequence[tuple[TryAnswer, int]],
    tasks: int,
    stages: int,
) -> TryForecast:
    """Return the forecast.

    found: drawn comparisons of a skill that gains FOUND_GAIN; ended: of this one, if begun.
    """
    every = ended or found
    # Each stage runs every task once under both arms.
    lengths = sorted(2 * tasks * stage for _, stage in every)
    most = (
        lengths[
            min(
                len(lengths) - 1,
                math.ceil(_COVERED_SHARE * len(lengths)),
            )
        ]
        if lengths
        else 0
    )
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    answered = sum(answer is not TryAnswer.CANNOT_TELL for answer, _ in every)
    any_answer = answered / len(every) if every else 0.0
    return TryForecast(_clear_share(every), any_answer, _clear_share(found), mean, most)


def _clear_share(ended: Sequence[tuple[TryAnswer, int]]) -> float:
    clear = sum(answer in (TryAnswer.HELPS, TryAnswer.HARMS) for answer, _ in ended)
    return clear / len(ended) if ended else 0.0
