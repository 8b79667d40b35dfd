"""The sealed test alone, and the narrower one: how often they find a true gain, and how often one
that is none.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import small_sets
from seed_pool import Run
from support import progress

from evolution.report import AloneLine
from evolution.worlds import FREQUENT, Kind, World, hidden_worlds, unfriendly_place
from evolvable_evolve.evolution.final import plan_stages
from evolvable_evolve.evolution.run_config import LATER_REPEATS, STAGED_REPEATS
from evolvable_evolve.evolution.statistics.narrow_claim import MIN_GROUPS, NARROW_ALPHA
from evolvable_evolve.evolution.statistics.staged_test import (
    STAGES,
    alpha_of_look,
    staged_sign_flip,
)
from evolvable_evolve.evolution.task import Split, Task

_TESTS = 100
_UNSTABLE, _FAILING = 0.3, 0.25
_DESIGNS = ((STAGED_REPEATS,) * STAGES, LATER_REPEATS)
"""Runs of each task by stage: where the search showed a large gain, and where it showed a small
one.
"""
_NARROW_GAINS = (0.0, 0.10, 0.15, 0.20)


@dataclass(frozen=True, slots=True)
class Case:
    """One edit in one world; without a world the friendly one, in which an edit fixes tasks for
    good.
    """

    world: World | None
    label: str
    gain: float = 0.0


def _cases() -> list[Case]:
    friendly = [Case(None, "friendly", gain) for gain in (0.0, 0.05, 0.10, 0.15)]
    spread = [
        Case(World("heterogeneous", (Kind(1.0, gain, 0.8),)), "heterogeneous", gain)
        for gain in (0.0, 0.05, 0.10, 0.15)
    ]
    clusters = [
        Case(World("clusters", (Kind(1.0, gain, 0.8),), cluster=5), "clusters of 5", gain)
        for gain in (0.0, 0.10)
    ]
    clusters += [
        Case(world, world.name, gain)
        for gain, blind in ((0.0, True), (0.0, False), (0.10, False))
        for world in hidden_worlds((Kind(1.0, gain, 0.8),), blind=blind)
    ]
    odd = [
        Case(World("mixed", (Kind(1.0, fixes=0.06),)), "mixed: fixes 6 %, halves others"),
        Case(World("mirror", (Kind(1.0, loses=0.05),)), "many small gains, rare large losses"),
    ]
    return [*friendly, *spread, *clusters, *odd]


def test_alone(seeds: int, run: Run, only: Sequence[str] = ()) -> list[AloneLine]:
    """Return how often the staged test is significant in each case, and the narrower test on 20
    tasks.

    only: texts of which one stands in `;TEST: WORLD, GAIN;`, where not all are wanted.
    """
    lines = []
    for design in _DESIGNS:
        told = "staged, runs " + ", ".join(map(str, design))
        for case in _cases():
            if not _is_wanted(told, case.label, case.gain, only):
                continue
            row = f"the test alone: {told}, {case.label}, {case.gain:+.2f}"
            progress(row)
            done = run(row, partial(_one, case, design), seeds)
            passed, spent = (
                sum(significant for significant, _ in done),
                fmean(spent for _, spent in done),
            )
            lines.append(
                AloneLine(told, case.label, f"{100 * case.gain:+.0f}", len(done), passed, spent)
            )
    tasks, repeats = small_sets.DESIGN
    told = f"narrower, {tasks} tasks, {repeats} runs"
    for world in small_sets.WORLDS:
        for gain in _NARROW_GAINS:
            if not _is_wanted(told, world, gain, only):
                continue
            row = f"the test alone: {told}, {world}, {gain:+.2f}"
            progress(row)
            found = run(row, partial(_narrow, world, gain), seeds)
            lines.append(
                AloneLine(
                    told,
                    world,
                    f"{100 * gain:+.0f}",
                    len(found),
                    sum(found),
                    float(2 * tasks * repeats),
                )
            )
    return lines


def _is_wanted(test: str, world: str, gain: float, only: Sequence[str]) -> bool:
    return not only or any(text in f";{test}: {world}, {100 * gain:+.0f};" for text in only)


def _narrow(world: str, gain: float, seed: int) -> bool:
    return small_sets.is_found(world, small_sets.DESIGN, gain, seed, NARROW_ALPHA)


def _one(case: Case, design: Sequence[int], seed: int) -> tuple[bool, int]:
    if case.world is None:
        tasks, score = _friendly(case.gain, seed)
    else:
        place = unfriendly_place(case.world, seed, (0, 0, _TESTS), 1)
        tasks = place.of(Split.TEST)

        def score(edited: bool, task: Task, repeat: int) -> float:
            rules = frozenset({"base", "r1"}) if edited else frozenset({"base"})
            return place.drawn("edited" if edited else "base", rules, task, repeat)

    if len({task.group or task.id for task in tasks}) < MIN_GROUPS:
        return False, 0  # no task is opened for a claim about other tasks
    stages, measured, spent = plan_stages(tasks, str(seed)), [], 0
    for stage, runs in zip(stages, design, strict=True):
        groups: dict[str, list[float]] = {}
        for task in stage:
            before, after = (
                sum(score(edited, task, repeat) for repeat in range(runs)) / runs
                for edited in (False, True)
            )
            groups.setdefault(task.group or task.id, []).append(after - before)
        measured.append(list(groups.values()))
        spent += 2 * runs * len(stage)
        result = staged_sign_flip(measured, [len(one) for one in stages], alpha_of_look(1))
        if result.rejects or result.futile:
            break
    return result.rejects, spent


def _friendly(gain: float, seed: int) -> tuple[Sequence[Task], Callable[[bool, Task, int], float]]:
    """Return tasks of which three in ten are unstable, and the others pass or fail until an edit
    changes that.
    """
    place = unfriendly_place(World("friendly", FREQUENT), seed, (0, 0, _TESTS), 1)
    chance = random.Random(f"friendly {seed}")
    kinds = {
        task.id: (chance.random(), chance.uniform(0.05, 0.95)) for task in place.of(Split.TEST)
    }
    failing = max(_FAILING, gain)

    def score(edited: bool, task: Task, repeat: int) -> float:
        where, passes = kinds[task.id]
        if where < _UNSTABLE:
            return float(random.Random(f"{seed} {edited} {task.id} {repeat}").random() < passes)
        if where < _UNSTABLE + gain:
            return float(edited)
        return float(where >= _UNSTABLE + failing)

    return place.of(Split.TEST), score
