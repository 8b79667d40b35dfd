"""Measures whole loops of evolution on simulated executors of which the truth is known. Every
figure is `simulated`.

    python benchmarks/evolution [--quick] [--seeds N] [--only TEXT] [--write RESULT.md]

Each seed makes tasks, an executor and ten proposals, each with a known worth; every loop meets the
same. What a loop would have the user run is compared with the truth:

false      share of runs that promote a program that is no better than the base, with Wilson's
           95 % interval
power      share of runs that promote a better one, of those in which a better one was proposed
true       mean true gain of what is run afterwards, in points (0 when nothing is promoted)
claimed    mean gain that the loop itself reports
regret     mean points that the best possible program would have had more
trials     mean number of task runs spent
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from baselines.simulated_world import Law
from seed_pool import Run, SeedPool
from support import conclude, progress

from evolution.alone import test_alone
from evolution.categories import CATEGORY_WORLD, CategoryWorld, category_place
from evolution.critiques import CRITIQUE_WORLDS, CritiqueWorld, critique_place
from evolution.others import (
    evoskill,
    gepa_minibatch,
    gepa_reflection,
    k_se,
    own_test,
    skillopt_strict,
    tested,
)
from evolution.product import Design, ours
from evolution.report import Line, judged, looks_text, table, test_table
from evolution.scenarios import BASE, PROPOSALS, SCENARIOS, SIZES, Found, Place, Scenario, place
from evolution.worlds import HAIR, HIDDEN, WORLDS, FramedTexts, World, unfriendly_place

Loop = Callable[[Place, int], Found]
AnyWorld = Scenario | World | CritiqueWorld | CategoryWorld | FramedTexts

LOOPS: dict[str, Loop] = {
    "ours": ours,
    "ours, 1,100 trials planned": partial(ours, design=Design(trials=1100)),
    "EvoSkill": evoskill,
    "EvoSkill, our test": tested(evoskill),
    "GEPA minibatch": gepa_minibatch,
    "GEPA minibatch, our test": tested(gepa_minibatch),
    "SkillOpt strict": skillopt_strict,
    "SkillOpt strict, its own test": own_test(skillopt_strict),
    "SkillOpt strict, our test": tested(skillopt_strict),
    "k·SE, k = 1": k_se(1.0),
    "k·SE, k = 1, cap-evolve's own test": own_test(k_se(1.0)),
    "k·SE, k = 1, our test": tested(k_se(1.0)),
}
NEW = ("ours", "ours, 1,100 trials planned")
OPTIMIZERS: dict[str, Loop] = {
    "ours": ours,
    "ours, evoskill": partial(ours, design=Design("evoskill")),
    "ours, reflection": partial(ours, design=Design("reflection")),
    "ours, textgrad": partial(ours, design=Design("textgrad")),
    "ours, textgrad without a limit of rejections": partial(
        ours, design=Design("textgrad", rejections=0)
    ),
    "ours, reinforce_pp": partial(ours, design=Design("reinforce_pp")),
    "ours, grpo": partial(ours, design=Design("grpo")),
}
"""The optimizers of the product, each with its own settings, before the same sealed test."""
PARETO: dict[str, Loop] = {
    "ours, Pareto parents": partial(ours, design=Design("evoskill", parent="pareto", frontier=10)),
    "GEPA reflection, our test": tested(gepa_reflection),
}
"""GEPA's choice of parents, among the product's operators and with its own minibatch gate; in
worlds of critiques.
"""
LOOPS |= OPTIMIZERS | PARETO
FRAMED = (FramedTexts(SCENARIOS[3]), FramedTexts(WORLDS[0]))
"""The worlds that held, with texts of independent tasks in a common frame, by which the product
groups them.
"""
PROCESSES = 2
SEEDS, QUICK, TEST_SEEDS = 400, 40, 2_000
_LOOKS = 5
_LOOKS_SHARE = 3


class Ran(NamedTuple):
    """One loop on one seed."""

    gain: float
    claimed: float
    possible: float
    promoted: bool
    trials: int
    score: float


def _place(scenario: AnyWorld, seed: int, sizes: tuple[int, int, int]) -> Place:
    if isinstance(scenario, FramedTexts):
        return scenario.write_texts(_place(scenario.world, seed, sizes), seed)
    if isinstance(scenario, CritiqueWorld):
        return critique_place(scenario, seed, sizes)
    if isinstance(scenario, CategoryWorld):
        return category_place(seed, sizes)
    if isinstance(scenario, World):
        return unfriendly_place(scenario, seed, sizes, PROPOSALS)
    return place(scenario, seed, sizes)


def one(scenario: AnyWorld, name: str, sizes: tuple[int, int, int], seed: int) -> Ran:
    """Run one loop in a fresh place."""
    here = _place(scenario, seed, sizes)
    found = LOOPS[name](here, PROPOSALS)
    base, score = here.law.score(BASE), here.law.score(found.rules)
    return Ran(
        score - base, found.claimed, here.law.best() - base, found.rules != BASE, here.spent, score
    )


def measured(
    scenario: AnyWorld, name: str, sizes: tuple[int, int, int], runs: Sequence[Ran]
) -> Line:
    """Return the line of a table."""
    possible = [run for run in runs if run.possible > HAIR]
    return Line(
        scenario.name,
        name,
        sizes,
        len(runs),
        false=sum(run.promoted and run.gain <= HAIR for run in runs),
        harmful=sum(run.promoted and run.gain < -HAIR for run in runs),
        right=sum(run.promoted and run.gain > HAIR for run in possible),
        possible=len(possible),
        gain=fmean(run.gain for run in runs),
        claimed=fmean(run.claimed for run in runs),
        regret=fmean(run.possible - run.gain for run in runs),
        trials=fmean(run.trials for run in runs),
        score=fmean(run.score for run in runs),
        score_error=stdev(run.score for run in runs) / sqrt(len(runs)) if len(runs) > 1 else 0.0,
    )


def looks(counted: bool, seed: int) -> bool:
    """Tell whether any of five runs on one sealed test, with useless proposals throughout,
    promotes.
    """
    here = place(SCENARIOS[0], seed, SIZES, PROPOSALS * _LOOKS)
    for run in range(_LOOKS):
        # Every run has proposals of its own; the tasks, and what the base makes of them, stay.
        mine = Place(Law(here.law.effects[run * PROPOSALS :]), here.tasks, here.executor)
        if ours(mine, PROPOSALS, look=run + 1 if counted else 1).rules != BASE:
            return True
    return False


def blocks() -> Iterator[tuple[Sequence[str], Sequence[AnyWorld]]]:
    """Yield what is measured: all loops in the friendly world, ours and EvoSkill's with our test in
    the others.
    """
    yield [name for name in LOOPS if name not in OPTIMIZERS | PARETO or name == "ours"], SCENARIOS
    yield [*NEW[:1], "EvoSkill, our test"], WORLDS
    yield list(NEW[1:]), WORLDS[:1]
    yield [name for name in OPTIMIZERS if name != "ours"], (*SCENARIOS, *WORLDS)
    yield [*OPTIMIZERS, *PARETO], CRITIQUE_WORLDS
    yield list(NEW[:1]), (CATEGORY_WORLD, *HIDDEN, *FRAMED)


def every(seeds: int, run: Run, only: Sequence[str] = ()) -> Iterator[Line]:
    """Yield every line.

    only: texts of which one stands in `;SCENARIO: LOOP;`, where not all are wanted.
    """
    for names, scenarios in blocks():
        for scenario in scenarios:
            for name in names:
                if only and not any(text in f";{scenario.name}: {name};" for text in only):
                    continue
                row = f"{scenario.name}: {name}"
                progress(row)
                runs = run(row, partial(one, scenario, name, SIZES), seeds)
                yield measured(scenario, name, SIZES, [Ran(*ran) for ran in runs])


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK} seeds; for a look, not for the record"
    )
    parser.add_argument("--seeds", type=int, help=f"default {SEEDS}")
    parser.add_argument("--test-seeds", type=int, help=f"of the test alone, default {TEST_SEEDS:,}")
    parser.add_argument("--only-test", action="store_true", help="only the test alone")
    parser.add_argument(
        "--only",
        action="append",
        metavar="TEXT",
        help="only rows with TEXT in `;SCENARIO: LOOP;`, with --only-test in `;TEST: WORLD, GAIN;`",
    )
    parser.add_argument("--processes", type=int, default=PROCESSES, help=f"default {PROCESSES}")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="keep the result of each seed there, and go on from it",
    )
    parser.add_argument(
        "--write", type=Path, metavar="RESULT.md", help="also write the tables there"
    )
    return parser.parse_args()


def main() -> None:
    """Run everything, print the tables, and end with 1 where a rate of ours misses its target."""
    given = options()
    seeds = given.seeds or (QUICK if given.quick else SEEDS)
    with ProcessPoolExecutor(given.processes) as pool:
        run = SeedPool(pool, given.processes, given.keep).run
        alone = []
        if given.only_test or not given.only:
            progress("the test alone")
            alone = test_alone(
                given.test_seeds or (200 if given.quick else TEST_SEEDS), run, given.only or ()
            )
        lines = [] if given.only_test else list(every(seeds, run, given.only or ()))
        several, some = {}, max(1, seeds // _LOOKS_SHARE)
        if not given.only_test and not given.only:
            progress("several looks at one test")
            several = {
                on: sum(run(f"looks counted: {on}", partial(looks, on), some))
                for on in (True, False)
            }
    text = "\n".join(
        filter(
            None,
            (
                alone and test_table(alone),
                table(lines),
                several and looks_text(several, _LOOKS, some),
            ),
        )
    )
    print(text)
    if given.write:
        given.write.write_text(text, encoding="utf-8")
    ours_too = [line for line in lines if line.loop in NEW or line.loop in OPTIMIZERS]
    conclude("Simulated executors, truth known", judged(alone, ours_too, given.quick))
