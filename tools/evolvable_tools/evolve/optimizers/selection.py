"""Selection: the frontier's members, the next parent, and the training tasks of an iteration.

The Pareto front over tasks is the literal mechanism of GEPA, down to its draw. Programs are numbers: indexes of a list.
"""

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from evolvable_store.errors import InvalidArgument
from evolvable_tools.evolve.task import Task

CAPACITY = 3


@dataclass(frozen=True, slots=True)
class FrontierMember:
    """A program with what it scored in validation: the mean, and the mean for each task.

    `name` is unique in a run, `program` the digest. `size` is in bytes and decides ties; so does `cost` per task, where
    it is known.
    """

    name: str
    program: str
    score: float
    size: int = 0
    cost: float | None = None
    scores: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


class Admission(StrEnum):
    """Which candidates enter: those that beat their parent (default), or, as in the paper, the worst, or find room."""

    BETTER_THAN_PARENT = "better-than-parent"
    BETTER_THAN_WORST = "better-than-worst"


class AdmissionResult(StrEnum):
    """What came of offering a program."""

    ADMITTED = "admitted"
    NOT_BETTER = "not_better"
    BEHIND = "behind"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class FrontierOffer:
    """The frontier after an offer, whether the program entered, and who left for it."""

    frontier: "Frontier"
    entry: AdmissionResult
    evicted: FrontierMember | None = None

    @property
    def admitted(self) -> bool:
        """Whether the program is now in the frontier."""
        return self.entry is AdmissionResult.ADMITTED


@dataclass(frozen=True, slots=True)
class Frontier:
    """Members in the order of their admission."""

    members: tuple[FrontierMember, ...] = ()
    capacity: int = CAPACITY
    admission: Admission = Admission.BETTER_THAN_PARENT

    @property
    def best(self) -> FrontierMember | None:
        """The member with the highest score; of equals the smaller, then the one admitted first."""
        return min(self.members, key=lambda member: (-member.score, member.size), default=None)

    @property
    def worst(self) -> FrontierMember | None:
        """The member that would leave first: the lowest score; of equals the larger, then the one admitted first."""
        return min(self.members, key=lambda member: (member.score, -member.size), default=None)

    def offer(self, child: FrontierMember, *, gain: float = 0.0, parent: FrontierMember | None = None) -> FrontierOffer:
        """Return what comes of offering `child`, whose mean paired gain over `parent` is `gain`.

        A program without a parent is the first of a run and enters. A child that beats its parent but would be the
        worst of a full frontier stays out as `behind`.
        """
        if any(member.program == child.program for member in self.members):
            return FrontierOffer(self, AdmissionResult.DUPLICATE)
        if parent is not None and not self._deserves(child, gain, parent):
            return FrontierOffer(self, AdmissionResult.NOT_BETTER)
        full = (*self.members, child)
        if len(full) <= self.capacity:
            return FrontierOffer(replace(self, members=full), AdmissionResult.ADMITTED)
        # The newcomer has to beat the worst outright: as good as it and no smaller does not push it out.
        worst = self.worst
        if worst is None or not (child.score, -child.size) > (worst.score, -worst.size):
            return FrontierOffer(self, AdmissionResult.BEHIND)
        kept = tuple(member for member in full if member is not worst)
        return FrontierOffer(replace(self, members=kept), AdmissionResult.ADMITTED, worst)

    def _deserves(self, child: FrontierMember, gain: float, parent: FrontierMember) -> bool:
        if self.admission is Admission.BETTER_THAN_WORST:
            return True
        return gain > 0 or (gain == 0 and is_cheaper(child, parent))


def is_cheaper(child: FrontierMember, parent: FrontierMember) -> bool:
    """Tell whether a tie goes to the child: strictly smaller, or as large and strictly cheaper."""
    if child.size != parent.size:
        return child.size < parent.size
    return child.cost is not None and parent.cost is not None and child.cost < parent.cost


Front = Mapping[int, Sequence[int]]
"""For each task the programs with the highest score at it, in ascending order."""


def pareto_front(scores: Sequence[Sequence[float]]) -> dict[int, list[int]]:
    """Return the front of `scores`, one row for each program with one score for each task."""
    best: dict[int, list[int]] = {}
    for task in range(len(scores[0]) if scores else 0):
        column = [row[task] for row in scores]
        best[task] = [program for program, score in enumerate(column) if score == max(column)]
    return best


def reduce_front(front: Front, aggregate: Sequence[float]) -> dict[int, list[int]]:
    """Return the front without dominated programs.

    A program is dominated when at every task where it is among the best another remaining one is too. They leave one by
    one, those with the lowest `aggregate` first, and each time one left all are judged again.
    """
    places = _tasks_by_program(front)
    remaining = set(places)
    order = sorted(places, key=lambda program: aggregate[program])
    while needless := [one for one in order if one in remaining and _is_dominated(one, places[one], front, remaining)]:
        remaining.discard(needless[0])
    return {task: [program for program in best if program in remaining] for task, best in front.items()}


def front_weights(front: Front) -> dict[int, int]:
    """Return at how many tasks each program of the front is among the best, in order of first appearance."""
    return {program: len(tasks) for program, tasks in _tasks_by_program(front).items()}


def sample_front(front: Front, aggregate: Sequence[float], chance: random.Random) -> int:
    """Return a program of the reduced front, drawn in proportion to the tasks it is among the best at."""
    held = front_weights(reduce_front(front, aggregate))
    return chance.choice([program for program, count in held.items() for _ in range(count)])


def _tasks_by_program(front: Front) -> dict[int, list[int]]:
    places: dict[int, list[int]] = {}
    for task, best in front.items():
        for program in best:
            places.setdefault(program, []).append(task)
    return places


def _is_dominated(program: int, tasks: Sequence[int], front: Front, remaining: set[int]) -> bool:
    return all(any(other != program and other in remaining for other in front[task]) for task in tasks)


class ParentStrategy(StrEnum):
    """How a parent is chosen. Round robin is the algorithm of the paper and keeps the members different."""

    ROUND_ROBIN = "round_robin"
    BEST = "best"
    RANDOM = "random"
    PARETO = "pareto"


def select_parent(
    members: Sequence[FrontierMember], strategy: ParentStrategy, iteration: int, seed: int = 0
) -> FrontierMember:
    """Return the parent of the `iteration`-th proposal, counted from 1, out of `members` in order of admission.

    The same arguments give the same parent. `pareto` draws among the members that are best at some task, each as often
    as there are tasks it is best at; members without scores of the same tasks are then chosen by round robin.
    """
    if not members:
        raise InvalidArgument("The frontier is empty: there is no program to start from.", "Measure the base first.")
    chance = random.Random(f"{seed}:{iteration}")
    if strategy is ParentStrategy.BEST:
        return min(members, key=lambda member: (-member.score, member.size))
    if strategy is ParentStrategy.RANDOM:
        return members[chance.randrange(len(members))]
    if strategy is ParentStrategy.PARETO:
        shared = sorted(set.intersection(*(set(member.scores) for member in members)))
        if shared:
            rows = [[member.scores[task] for task in shared] for member in members]
            return members[sample_front(pareto_front(rows), [member.score for member in members], chance)]
    return members[(iteration - 1) % len(members)]


BATCH_CATEGORIES = 3
PER_CATEGORY = 2


def sample_batch(
    tasks: Sequence[Task],
    iteration: int,
    *,
    categories: int = BATCH_CATEGORIES,
    per_category: int = PER_CATEGORY,
    seed: int = 0,
) -> tuple[Task, ...]:
    """Return the tasks of the `iteration`-th batch, counted from 1; a task stands at most once in a batch.

    It depends on nothing but its arguments, so that a resumed run goes on with the same batches. Each turn of a
    category takes the next of its tasks, in an order drawn for every round through them.
    """
    pools = _pool_by_category(tasks)
    names = sorted(pools)
    width = min(categories, len(names))
    chosen: list[Task] = []
    for step in range((iteration - 1) * width, iteration * width):
        name = names[step % len(names)]
        chosen += _take_turn(pools[name], step // len(names), per_category, f"{seed}:{name}")
    return tuple(chosen)


def _take_turn(pool: Sequence[Task], turn: int, wanted: int, salt: str) -> Iterable[Task]:
    """Return what the `turn`-th turn (from 0) of a category takes; in the last turn of a round fewer may be left."""
    turns = -(-len(pool) // wanted)
    rounds, place = divmod(turn, turns)
    order = sorted(pool, key=lambda task: hashlib.sha256(f"{salt}:{rounds}:{task.id}".encode()).digest())
    return order[place * wanted : (place + 1) * wanted]


def _pool_by_category(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    pools: dict[str, list[Task]] = {}
    for task in tasks:
        pools.setdefault(task.category, []).append(task)
    return pools
