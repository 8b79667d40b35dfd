"""Measures whole loops of evolution on simulated executors of which the truth is known. Every figure is `simulated`.

    python benchmarks/evolution [--quick] [--seeds N] [--write RESULT.md]

Each seed makes tasks, an executor and ten proposals, each with a known worth; every loop meets the same. What a loop
would have the user run is compared with the truth:

false      share of runs that promote a program that is no better than the base, with Wilson's 95 % interval
power      share of runs that promote a better one, of those in which a better one was proposed
true       mean true gain of what is run afterwards, in points (0 when nothing is promoted)
claimed    mean gain that the loop itself reports
regret     mean points that the best possible program would have had more
trials     mean number of task runs spent
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from baselines.simulated_world import Law
from support import Row, conclude, progress

from evolution.others import evoskill, gepa_minibatch, k_se, skillopt_strict
from evolution.product import Design, ours
from evolution.report import Line, looks_text, table
from evolution.scenarios import BASE, LARGER, PROPOSALS, SCENARIOS, SIZES, Found, Place, Scenario, place

Loop = Callable[[Place, int], Found]

LOOPS: dict[str, Loop] = {
    "ours": ours,
    "ours, best parent, tested 3 times": partial(ours, design=Design("best", 3)),
    "EvoSkill": evoskill,
    "GEPA minibatch": gepa_minibatch,
    "SkillOpt strict": skillopt_strict,
    "k·SE, k = 1": k_se(1.0),
    "k·SE, k = 0.2": k_se(0.2),
}
PROCESSES = 2
SEEDS, QUICK = 400, 40
ALPHA = 0.05
_LOOKS = 5
_LOOKS_SHARE = 3
_HAIR = 1e-9


@dataclass(frozen=True, slots=True)
class Ran:
    """One loop on one seed."""

    gain: float
    claimed: float
    possible: float
    promoted: bool
    trials: int


def one(scenario: Scenario, name: str, sizes: tuple[int, int, int], seed: int) -> Ran:
    """Run one loop in a fresh place."""
    here = place(scenario, seed, sizes)
    found = LOOPS[name](here, PROPOSALS)
    base = here.law.score(BASE)
    return Ran(
        here.law.score(found.rules) - base, found.claimed, here.law.best() - base, found.rules != BASE, here.spent
    )


def measured(scenario: Scenario, name: str, sizes: tuple[int, int, int], runs: Sequence[Ran]) -> Line:
    """Return the line of a table."""
    possible = [run for run in runs if run.possible > _HAIR]
    return Line(
        scenario.name,
        name,
        sizes,
        len(runs),
        false=sum(run.promoted and run.gain <= _HAIR for run in runs),
        harmful=sum(run.promoted and run.gain < -_HAIR for run in runs),
        right=sum(run.promoted and run.gain > _HAIR for run in possible),
        possible=len(possible),
        gain=fmean(run.gain for run in runs),
        claimed=fmean(run.claimed for run in runs),
        regret=fmean(run.possible - run.gain for run in runs),
        trials=fmean(run.trials for run in runs),
    )


def looks(counted: bool, seed: int) -> bool:
    """Tell whether any of five runs on one sealed test, with useless proposals throughout, promotes."""
    here = place(SCENARIOS[0], seed, SIZES, PROPOSALS * _LOOKS)
    for run in range(_LOOKS):
        # Every run has proposals of its own; the tasks, and what the base makes of them, stay.
        mine = Place(Law(here.law.effects[run * PROPOSALS :]), here.tasks, here.executor)
        if ours(mine, PROPOSALS, look=run + 1 if counted else 1).rules != BASE:
            return True
    return False


def blocks() -> Iterator[tuple[tuple[int, int, int], Sequence[str], Sequence[Scenario]]]:
    """Yield what is measured on which division of tasks: all loops on the same; others with the test's tasks to
    validate on, since they leave none sealed; ours with more tasks.
    """
    mine = [name for name in LOOPS if name.startswith("ours")]
    train, val, test = SIZES
    yield SIZES, list(LOOPS), SCENARIOS
    yield (train, val + test, 0), [name for name in LOOPS if name not in mine], SCENARIOS
    yield LARGER, mine, (SCENARIOS[0], SCENARIOS[-1])


def every(seeds: int, run: Callable[[Callable[[int], object], int], Sequence]) -> Iterator[Line]:
    """Yield every line."""
    for sizes, names, scenarios in blocks():
        for scenario in scenarios:
            for name in names:
                progress(f"{scenario.name}, {sizes[1]} for validation: {name}")
                yield measured(scenario, name, sizes, run(partial(one, scenario, name, sizes), seeds))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} seeds; for a look, not for the record")
    parser.add_argument("--seeds", type=int, help=f"default {SEEDS}")
    parser.add_argument("--write", type=Path, metavar="RESULT.md", help="also write the tables there")
    return parser.parse_args()


def main() -> None:
    """Run everything, prints the tables, and ends with 1 when our gate promotes too often what is no better."""
    given = options()
    seeds = given.seeds or (QUICK if given.quick else SEEDS)
    with ProcessPoolExecutor(PROCESSES) as pool:

        def run(function: Callable[[int], object], count: int) -> list:
            return list(pool.map(function, range(count), chunksize=max(1, count // (8 * PROCESSES))))

        lines = list(every(seeds, run))
        progress("several looks at one test")
        some = max(1, seeds // _LOOKS_SHARE)
        several = {counted: sum(run(partial(looks, counted), some)) for counted in (True, False)}
    text = table(lines) + "\n" + looks_text(several, _LOOKS, some)
    print(text)
    if given.write:
        given.write.write_text(text, encoding="utf-8")
    rows = []
    for line in lines:
        if line.loop.startswith("ours"):
            low, high = line.false_interval
            # So few seeds as a quick look has cannot show that a rate is low, only that it is not high.
            met = (low if given.quick else high) <= ALPHA
            figure = f"{line.false / line.runs:.1%} [{low:.1%}, {high:.1%}]"
            rows.append(
                Row(f"{line.loop}; {line.scenario}; {sum(line.sizes)} tasks", figure, f"at most {ALPHA:.0%}", met)
            )
    conclude("Simulated executors, truth known: promoted though no better", rows)
