"""Which member of the frontier the next proposal starts from."""

import random
from collections.abc import Sequence
from enum import StrEnum

from evolvable_store.errors import InvalidArgument
from evolvable_tools.evolve.frontier import pareto
from evolvable_tools.evolve.frontier.frontier import Member


class Strategy(StrEnum):
    """How a parent is chosen. Round robin is the algorithm of the paper and keeps the members different."""

    ROUND_ROBIN = "round_robin"
    BEST = "best"
    RANDOM = "random"
    PARETO = "pareto"


def parent(members: Sequence[Member], strategy: Strategy, iteration: int, seed: int = 0) -> Member:
    """Returns the parent of the `iteration`-th proposal, counted from 1, out of `members` in order of admission.

    The same arguments give the same parent. `pareto` draws among the members that are best at some task, each as often
    as there are tasks it is best at; members without scores of the same tasks are then chosen by round robin.
    """
    if not members:
        raise InvalidArgument("The frontier is empty: there is no program to start from.", "Measure the base first.")
    chance = random.Random(f"{seed}:{iteration}")
    if strategy is Strategy.BEST:
        return min(members, key=lambda member: (-member.score, member.size))
    if strategy is Strategy.RANDOM:
        return members[chance.randrange(len(members))]
    if strategy is Strategy.PARETO:
        shared = sorted(set.intersection(*(set(member.scores) for member in members)))
        if shared:
            rows = [[member.scores[task] for task in shared] for member in members]
            return members[pareto.pick(pareto.front(rows), [member.score for member in members], chance)]
    return members[(iteration - 1) % len(members)]
