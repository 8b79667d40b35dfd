"""The Pareto front over tasks: for each task the programs nobody beats at it, without those that others make needless.

Programs are numbers: places in a list. This is the literal mechanism of GEPA, down to its draw.
"""

import random
from collections.abc import Mapping, Sequence

Front = Mapping[int, Sequence[int]]
"""For each task the programs with the highest score at it, in ascending order."""


def front(scores: Sequence[Sequence[float]]) -> dict[int, list[int]]:
    """Returns the front of `scores`, one row for each program with one score for each task."""
    best: dict[int, list[int]] = {}
    for task in range(len(scores[0]) if scores else 0):
        column = [row[task] for row in scores]
        best[task] = [program for program, score in enumerate(column) if score == max(column)]
    return best


def reduced(front: Front, aggregate: Sequence[float]) -> dict[int, list[int]]:
    """Returns the front without dominated programs.

    A program is dominated when at every task where it is among the best another remaining one is too. They leave one by
    one, those with the lowest `aggregate` first, and each time one left all are judged anew.
    """
    places = _places(front)
    remaining = set(places)
    order = sorted(places, key=lambda program: aggregate[program])
    while needless := [one for one in order if one in remaining and _dominated(one, places[one], front, remaining)]:
        remaining.discard(needless[0])
    return {task: [program for program in best if program in remaining] for task, best in front.items()}


def weights(front: Front) -> dict[int, int]:
    """Returns at how many tasks each program of the front is among the best, in order of first appearance."""
    return {program: len(tasks) for program, tasks in _places(front).items()}


def pick(front: Front, aggregate: Sequence[float], chance: random.Random) -> int:
    """Returns a program of the reduced front, drawn in proportion to the tasks it is among the best at."""
    held = weights(reduced(front, aggregate))
    return chance.choice([program for program, count in held.items() for _ in range(count)])


def _places(front: Front) -> dict[int, list[int]]:
    places: dict[int, list[int]] = {}
    for task, best in front.items():
        for program in best:
            places.setdefault(program, []).append(task)
    return places


def _dominated(program: int, tasks: Sequence[int], front: Front, remaining: set[int]) -> bool:
    return all(any(other != program and other in remaining for other in front[task]) for task in tasks)
