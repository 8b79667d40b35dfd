"""The sealed test alone: how often it finds a true gain, and how often one that is none."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from evolution.report import TestLine
from evolution.worlds import FREQUENT, Kind, World, unfriendly_place
from evolvable_tools.evolve.staged_final import plan_stages
from evolvable_tools.evolve.statistics.staged_test import alpha_of_look, staged_sign_flip
from evolvable_tools.evolve.task import Split, Task

_TESTS = 100
_UNSTABLE, _FAILING = 0.3, 0.25
_REPEATS = 2


@dataclass(frozen=True, slots=True)
class Case:
    """One edit in one world; without a world the friendly one, in which an edit fixes tasks for good."""

    world: World | None
    label: str
    gain: float = 0.0


def _cases() -> list[Case]:
    friendly = [Case(None, "friendly", gain) for gain in (0.0, 0.05, 0.10, 0.15)]
    spread = [
        Case(World("heterogeneous", (Kind(1.0, gain, 0.8),)), "heterogeneous", gain) for gain in (0.0, 0.05, 0.10, 0.15)
    ]
    clusters = [
        Case(World("clusters", (Kind(1.0, gain, 0.8),), cluster=5), "clusters of 5", gain) for gain in (0.0, 0.10)
    ]
    odd = [
        Case(World("mixed", (Kind(1.0, fixes=0.06),)), "mixed: fixes 6 %, halves others"),
        Case(World("mirror", (Kind(1.0, loses=0.05),)), "many small gains, rare large losses"),
    ]
    return [*friendly, *spread, *clusters, *odd]


def test_alone(seeds: int, run: Callable[[Callable[[int], object], int], Sequence]) -> list[TestLine]:
    """Return how often the staged test is significant in each case."""
    lines = []
    for case in _cases():
        done = run(partial(_one, case), seeds)
        passed = sum(significant for significant, _ in done)
        lines.append(
            TestLine(case.label, f"{100 * case.gain:+.0f}", len(done), passed, fmean(spent for _, spent in done))
        )
    return lines


def _one(case: Case, seed: int) -> tuple[bool, int]:
    if case.world is None:
        tasks, score = _friendly(case.gain, seed)
    else:
        place = unfriendly_place(case.world, seed, (0, 0, _TESTS), 1)
        tasks = place.of(Split.TEST)

        def score(edited: bool, task: Task, repeat: int) -> float:
            rules = frozenset({"base", "r1"}) if edited else frozenset({"base"})
            return place.drawn("edited" if edited else "base", rules, task, repeat)

    stages, measured, spent = plan_stages(tasks, str(seed)), [], 0
    for stage in stages:
        groups: dict[str, list[float]] = {}
        for task in stage:
            before, after = (
                sum(score(edited, task, repeat) for repeat in range(_REPEATS)) / _REPEATS for edited in (False, True)
            )
            groups.setdefault(task.group or task.id, []).append(after - before)
        measured.append(list(groups.values()))
        spent += 2 * _REPEATS * len(stage)
        result = staged_sign_flip(measured, [len(one) for one in stages], alpha_of_look(1))
        if result.rejects or result.futile:
            break
    return result.rejects, spent


def _friendly(gain: float, seed: int) -> tuple[Sequence[Task], Callable[[bool, Task, int], float]]:
    """Return tasks of which three in ten are unstable, and the others pass or fail until an edit changes that."""
    place = unfriendly_place(World("friendly", FREQUENT), seed, (0, 0, _TESTS), 1)
    chance = random.Random(f"friendly {seed}")
    kinds = {task.id: (chance.random(), chance.uniform(0.05, 0.95)) for task in place.of(Split.TEST)}
    failing = max(_FAILING, gain)

    def score(edited: bool, task: Task, repeat: int) -> float:
        where, passes = kinds[task.id]
        if where < _UNSTABLE:
            return float(random.Random(f"{seed} {edited} {task.id} {repeat}").random() < passes)
        if where < _UNSTABLE + gain:
            return float(edited)
        return float(where >= _UNSTABLE + failing)

    return place.of(Split.TEST), score
