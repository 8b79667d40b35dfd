"""How often `try` is right, how often it is wrong, what it takes, and how good its forecasts are. All is simulated.

    python -m benchmarks.try_claims [--seeds N] [--forecasts N]

The rule alone is measured as the product runs it: `decide_stage` after each stage of all tasks, `claim_of_groups` where
it ended, `forecast_rest` after the first stage. A world gives each task its chance to pass under both arms.
"""

import argparse
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from evolvable_evolve.evolution.statistics import (
    DEFAULT_STAGES,
    TryAnswer,
    TryForecast,
    carried_difference,
    claim_of_groups,
    decide_stage,
    forecast_rest,
)

TASKS, GAIN = 15, 0.25
Chances = Sequence[tuple[float, float]]
World = Callable[[random.Random], Chances]


def _fixed(noise: float) -> World:
    """Return a world where four of fifteen tasks are fixed, and so many results differ by chance."""

    def draw(chance: random.Random) -> Chances:
        rest = [float(chance.random() < 0.6) for _ in range(TASKS - round(GAIN * TASKS))]
        pairs = [*[(0.0, 1.0)] * round(GAIN * TASKS), *((one, one) for one in rest)]
        return [(abs(one - noise), abs(other - noise)) for one, other in pairs]

    return draw


def _shifted(chance: random.Random) -> Chances:
    return [(rate, rate + GAIN) for rate in (chance.uniform(0, 1 - GAIN) for _ in range(TASKS))]


def _alike(low: float, high: float) -> World:
    return lambda chance: [(rate, rate) for rate in (chance.uniform(low, high) for _ in range(TASKS))]


def _just_more(chance: random.Random) -> Chances:
    """Return tasks with a difference that is just more than what `no difference` rules out."""
    half = carried_difference(TASKS, DEFAULT_STAGES) / 2 + 0.001
    return [(0.5 - half, 0.5 + half)] * TASKS


def _random_effects(flips: float) -> World:
    """Return a world whose effects have mean 0 over tasks: steady flips in either direction."""

    def draw(chance: random.Random) -> Chances:
        found = []
        for _ in range(TASKS):
            base = float(chance.random() < 0.5)
            found.append((base, 1 - base if chance.random() < flips else base))
        return found

    return draw


def _logistic_effects(tau: float) -> World:
    def draw(chance: random.Random) -> Chances:
        found = []
        for _ in range(TASKS):
            base, effect = chance.gauss(0, 2), chance.gauss(0, tau)
            found.append((1 / (1 + math.exp(-base + effect / 2)), 1 / (1 + math.exp(-base - effect / 2))))
        return found

    return draw


WORLDS: dict[str, World] = {
    "+25 steady": _fixed(0.0),
    "+25, 5 % noise": _fixed(0.05),
    "+25 noisy": _shifted,
    "alike, coins": _alike(0.5, 0.5),
    "alike, mixed": _alike(0.0, 1.0),
    "just more than X": _just_more,
    "effects of mean 0, flips": _random_effects(0.15),
    "effects of mean 0, tau .8": _logistic_effects(0.8),
    "effects of mean 0, tau 2": _logistic_effects(2.0),
}


def compare(world: World, seed: int, *, foresee: bool) -> tuple[TryAnswer, TryAnswer, int, TryForecast | None]:
    """Return both answers of one comparison, its trials, and the forecast after its first stage."""
    chance = random.Random(seed)
    chances = world(chance)
    arms: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    forecast = None
    for stage in range(1, DEFAULT_STAGES + 1):
        for at, pair in enumerate(chances):
            for arm, rate in zip(arms, pair, strict=True):
                arm.setdefault(str(at), []).append(float(chance.random() < rate))
        if foresee and stage == 1:
            forecast = forecast_rest(*arms, 1, DEFAULT_STAGES, seed)
        decision = decide_stage(*arms, stage, DEFAULT_STAGES, TASKS)
        if decision.answer is not None:
            gains = [(sum(arms[1][task]) - sum(arms[0][task])) / stage for task in arms[0]]
            return decision.answer, claim_of_groups(gains).answer, 2 * stage * TASKS, forecast
    raise AssertionError("the last stage has an answer")


def main() -> int:
    """Print a row for each world. Returns 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--forecasts", type=int, default=30)
    given = parser.parse_args()
    print(f"X = {carried_difference(TASKS, DEFAULT_STAGES):.3f}; {given.seeds} seeds")
    missed = []
    for name, world in WORLDS.items():
        ended = [compare(world, seed, foresee=False) for seed in range(given.seeds)]
        shares = {one: count / len(ended) for one, count in Counter(one for one, *_ in ended).items()}
        general = {one: count / len(ended) for one, count in Counter(one for _, one, *_ in ended).items()}
        trials = sum(one[2] for one in ended) / len(ended)
        print(
            f"{name:26} on these: helps {shares.get(TryAnswer.HELPS, 0):.3f} harms {shares.get(TryAnswer.HARMS, 0):.3f}"
            f" no difference {shares.get(TryAnswer.NO_DIFFERENCE, 0):.3f}; like these: helps"
            f" {general.get(TryAnswer.HELPS, 0):.3f} harms {general.get(TryAnswer.HARMS, 0):.3f}; trials {trials:.1f}"
        )
        missed += _missed(name, shares, general, trials)
        if given.forecasts:
            _print_forecasts(world, given.forecasts)
    print("missed:", "; ".join(missed) or "nothing")
    return bool(missed)


def _missed(name: str, shares: dict[TryAnswer, float], general: dict[TryAnswer, float], trials: float) -> list[str]:
    found = []
    if name.startswith("+25"):
        least = 0.9 if "steady" in name else 0.85
        if shares.get(TryAnswer.HELPS, 0) < least or trials > 120:
            found.append(f"{name}: power or trials")
    wrong = {"alike": (TryAnswer.HELPS, TryAnswer.HARMS), "just": (TryAnswer.NO_DIFFERENCE,)}
    for start, answers in wrong.items():
        if name.startswith(start) and any(shares.get(one, 0) > 0.05 for one in answers):
            found.append(f"{name}: a wrong answer too often")
    if not name.startswith(("+25", "just")) and any(
        general.get(one, 0) > 0.05 for one in (TryAnswer.HELPS, TryAnswer.HARMS)
    ):
        found.append(f"{name}: a wrong claim about other tasks too often")
    return found


def _print_forecasts(world: World, seeds: int) -> None:
    ended = [compare(world, 10_000 + seed, foresee=True) for seed in range(seeds)]
    known = [(trials, forecast) for _, _, trials, forecast in ended if forecast is not None]
    took = sum(trials for trials, _ in known) / len(known)
    said = sum(forecast.trials for _, forecast in known) / len(known)
    found = sum(forecast.found for _, forecast in known) / len(known)
    kept = sum(trials <= forecast.most for trials, forecast in known) / len(known)
    print(f"{'':26} forecast: finds +25 {found:.2f}; trials {said:.0f}, took {took:.0f}; bound kept {kept:.2f}")


if __name__ == "__main__":
    sys.exit(main())
