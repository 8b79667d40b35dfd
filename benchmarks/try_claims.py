"""How often `try` is right, how often it is wrong, what it takes, and how good its forecasts are.
All is simulated.

    python benchmarks/try_claims.py [--seeds N] [--forecasts N] [--only WORLD] [--keep FOLDER]

The rule alone is measured as the product runs it: `decide_stage` after each stage of all tasks,
`claim_of_groups` where it ended, `forecast_rest` after the first stage. A world gives each task its
chance to pass under both arms. Rates that may be five in a hundred at most are judged by their
one-sided exact upper 95 % limit, others as they are.
"""

import argparse
import math
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from seed_pool import SeedPool
from support import Row, conclude

from evolvable_evolve.evolution.statistics import (
    DEFAULT_STAGES,
    SIDE_ALPHA,
    TryAnswer,
    carried_difference,
    claim_of_groups,
    decide_stage,
    forecast_rest,
)
from evolvable_evolve.evolution.statistics.staged_test import clopper_pearson_upper

TASKS, GAIN = 15, 0.25
Chances = Sequence[tuple[float, float]]
World = Callable[[random.Random], Chances]


def _fixed(noise: float) -> World:
    """Return a world where four of fifteen tasks are fixed, and so many results differ
    by chance.
    """

    def draw(chance: random.Random) -> Chances:
        rest = [float(chance.random() < 0.6) for _ in range(TASKS - round(GAIN * TASKS))]
        pairs = [*[(0.0, 1.0)] * round(GAIN * TASKS), *((one, one) for one in rest)]
        return [(abs(one - noise), abs(other - noise)) for one, other in pairs]

    return draw


def _shifted(chance: random.Random) -> Chances:
    return [(rate, rate + GAIN) for rate in (chance.uniform(0, 1 - GAIN) for _ in range(TASKS))]


def _alike(low: float, high: float) -> World:
    return lambda chance: [
        (rate, rate) for rate in (chance.uniform(low, high) for _ in range(TASKS))
    ]


def _just_more(tasks: int) -> World:
    """Return a world with a difference that is just more than what `no difference` rules out."""
    half = carried_difference(tasks, DEFAULT_STAGES) / 2 + 0.001
    return lambda chance: [(0.5 - half, 0.5 + half)] * tasks


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
            found.append(
                (1 / (1 + math.exp(-base + effect / 2)), 1 / (1 + math.exp(-base - effect / 2)))
            )
        return found

    return draw


WORLDS: dict[str, World] = {
    "+25 steady": _fixed(0.0),
    "+25, 5 % noise": _fixed(0.05),
    "+25 noisy": _shifted,
    "alike, coins": _alike(0.5, 0.5),
    "alike, mixed": _alike(0.0, 1.0),
    "just more than X": _just_more(TASKS),
    "just more than X, 8 tasks": _just_more(8),
    "just more than X, 40 tasks": _just_more(40),
    "effects of mean 0, flips": _random_effects(0.15),
    "effects of mean 0, tau .8": _logistic_effects(0.8),
    "effects of mean 0, tau 2": _logistic_effects(2.0),
}
POWER = {"+25 steady": 0.9, "+25, 5 % noise": 0.85, "+25 noisy": 0.85}
MEAN_TRIALS, MOST_TRIALS = 120, 150
POWER_OFF, TRIALS_OFF, KEPT = 0.10, 0.20, 0.95
"""How far a forecast may be off, and in how many runs its upper bound is kept."""


class Foreseen(NamedTuple):
    """A forecast after the first stage. found: the chance of helps for a skill that is worth 25
    points; clear: that of helps or harms here; the mean of the trials, and the most.
    """

    found: float
    clear: float
    trials: float
    most: int


class Ended(NamedTuple):
    """Both answers of one comparison, and its trials.

    foreseen: None where the first stage was the last, or unasked.
    """

    on_these: str
    like_these: str
    trials: int
    foreseen: Foreseen | None


def compare(name: str, foresee: bool, seed: int) -> Ended:
    """Return what one comparison in a world comes to."""
    chance = random.Random(seed)
    chances = WORLDS[name](chance)
    arms: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    foreseen = None
    for stage in range(1, DEFAULT_STAGES + 1):
        for at, pair in enumerate(chances):
            for arm, rate in zip(arms, pair, strict=True):
                arm.setdefault(str(at), []).append(float(chance.random() < rate))
        if foresee and stage == 1:
            said = forecast_rest(*arms, 1, DEFAULT_STAGES, seed)
            foreseen = Foreseen(said.found, said.clear, said.trials, said.most)
        decision = decide_stage(*arms, stage, DEFAULT_STAGES, len(chances))
        if decision.answer is not None:
            gains = [(sum(arms[1][task]) - sum(arms[0][task])) / stage for task in arms[0]]
            return Ended(
                decision.answer, claim_of_groups(gains).answer, 2 * stage * len(chances), foreseen
            )
    raise AssertionError("the last stage has an answer")


@dataclass(frozen=True, slots=True)
class WorldLine:
    """What the comparisons of one world came to."""

    name: str
    ended: Sequence[Ended]

    def count(self, *answers: TryAnswer, like_these: bool = False) -> int:
        """Return in how many comparisons one of these answers was given."""
        return sum(
            (one.like_these if like_these else one.on_these) in answers for one in self.ended
        )

    def __str__(self) -> str:
        runs = len(self.ended)
        told = [f"{100 * self.count(one) / runs:.1f}" for one in TryAnswer]
        other = [
            f"{100 * self.count(one, like_these=True) / runs:.1f}"
            for one in (TryAnswer.HELPS, TryAnswer.HARMS)
        ]
        mean = f"{fmean(one.trials for one in self.ended):.1f}"
        return f"| {' | '.join((self.name, f'{runs:,}', *told, *other, mean))} |"


def judged(line: WorldLine) -> Iterator[Row]:
    """Yield what is measured in a world beside its aim."""
    runs, helps = len(line.ended), line.count(TryAnswer.HELPS)
    if least := POWER.get(line.name):
        mean, most = fmean(one.trials for one in line.ended), max(one.trials for one in line.ended)
        met = helps / runs >= least and mean <= MEAN_TRIALS and most <= MOST_TRIALS
        aim = f"at least {least:.0%} at {MEAN_TRIALS}, never over {MOST_TRIALS}"
        yield Row(
            f"{line.name}: helps on these tasks",
            f"{helps / runs:.1%} at {mean:.1f}, at most {most}",
            aim,
            met,
        )
    if line.name.startswith("alike"):
        yield _seldom(f"{line.name}: helps on these tasks", helps, runs)
        yield _seldom(f"{line.name}: harms on these tasks", line.count(TryAnswer.HARMS), runs)
    if line.name.startswith("just more"):
        yield _seldom(
            f"{line.name}: no difference of more than X", line.count(TryAnswer.NO_DIFFERENCE), runs
        )
    if line.name.startswith(("alike", "effects of mean 0")):
        for answer in (TryAnswer.HELPS, TryAnswer.HARMS):
            yield _seldom(
                f"{line.name}: {answer} on tasks like these",
                line.count(answer, like_these=True),
                runs,
            )


def _seldom(what: str, count: int, of: int) -> Row:
    limit = clopper_pearson_upper(count, of)
    return Row(
        what,
        f"{count / of:.1%}, at most {limit:.1%}",
        f"at most {SIDE_ALPHA:.0%}",
        limit <= SIDE_ALPHA,
    )


def judged_forecast(line: WorldLine) -> Iterator[Row]:
    """Yield how far the forecasts after the first stage are off.

    Comparisons that it ended have none.
    """
    begun = [(one, one.foreseen) for one in line.ended if one.foreseen is not None]
    took, told = fmean(one.trials for one, _ in begun), fmean(its.trials for _, its in begun)
    kept = fmean(one.trials <= its.most for one, its in begun)
    what = f"{line.name}: forecast of"
    if line.name in POWER:
        helps, found = (
            fmean(one.on_these == TryAnswer.HELPS for one, _ in begun),
            fmean(its.found for _, its in begun),
        )
        close = abs(found - helps) <= POWER_OFF
        yield Row(
            f"{what} the power at +25",
            f"{found:.2f}, was {helps:.2f}",
            f"within {POWER_OFF:.2f}",
            close,
        )
    # One repeat of each task says little of this skill, and what is drawn is an average over what
    # fits.
    clear = fmean(one.on_these in (TryAnswer.HELPS, TryAnswer.HARMS) for one, _ in begun)
    said = fmean(its.clear for _, its in begun)
    yield Row(f"{what} helps or harms", f"{said:.2f}, was {clear:.2f}", "no aim", None)
    off = abs(told / took - 1) <= TRIALS_OFF
    yield Row(f"{what} the mean trials", f"{told:.0f}, was {took:.0f}", "within 20 %", off)
    yield Row(
        f"{what} the most trials", f"kept in {kept:.1%}", f"at least {KEPT:.0%}", kept >= KEPT
    )


def main() -> None:
    """Print a row for each world, and end with 1 where an aim is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5000)
    parser.add_argument(
        "--forecasts",
        type=int,
        default=500,
        help="seeds of the forecasts, which take most of the time",
    )
    parser.add_argument("--only", action="append", metavar="WORLD", choices=WORLDS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep each seed's result, and go on from it"
    )
    given = parser.parse_args()
    rows: list[Row] = []
    print(f"X = {carried_difference(TASKS, DEFAULT_STAGES):.3f} for {TASKS} tasks\n")
    print(
        "| world | seeds | helps | harms | no difference | cannot tell | like these: helps | "
        "harms | mean trials |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(given.processes) as pool:
        run = SeedPool(pool, given.processes, given.keep).run
        for name in given.only or WORLDS:
            line = WorldLine(
                name,
                [
                    Ended(*one)
                    for one in run(f"try: {name}", partial(compare, name, False), given.seeds)
                ],
            )
            print(line, flush=True)
            rows += judged(line)
            if given.forecasts:
                told = run(
                    f"forecast of try: {name}", partial(compare, name, True), given.forecasts
                )
                rows += judged_forecast(WorldLine(name, [_with_forecast(*one) for one in told]))
    conclude("The answers of try, simulated", rows)


def _with_forecast(on_these: str, like_these: str, trials: int, foreseen: Sequence[float]) -> Ended:
    found, clear, mean, most = foreseen
    return Ended(on_these, like_these, trials, Foreseen(found, clear, mean, int(most)))


if __name__ == "__main__":
    main()
