"""Which training tasks an iteration runs: by category in turn, without replacement until all were seen."""

import hashlib
from collections.abc import Iterable, Sequence

from evolvable_tools.evolve.task import Task

CATEGORIES = 3
PER_CATEGORY = 2


def batch(
    tasks: Sequence[Task],
    iteration: int,
    *,
    categories: int = CATEGORIES,
    per_category: int = PER_CATEGORY,
    seed: int = 0,
) -> tuple[Task, ...]:
    """Returns the tasks of the `iteration`-th batch, counted from 1; a task stands at most once in a batch.

    It depends on nothing but its arguments, so that a resumed run goes on with the same batches. Each turn of a
    category takes the next of its tasks, in an order drawn anew for every round through them.
    """
    pools = _pools(tasks)
    names = sorted(pools)
    width = min(categories, len(names))
    chosen: list[Task] = []
    for step in range((iteration - 1) * width, iteration * width):
        name = names[step % len(names)]
        chosen += _turn(pools[name], step // len(names), per_category, f"{seed}:{name}")
    return tuple(chosen)


def _turn(pool: Sequence[Task], turn: int, wanted: int, salt: str) -> Iterable[Task]:
    """Returns what the `turn`-th turn (from 0) of a category takes; in the last turn of a round fewer may be left."""
    turns = -(-len(pool) // wanted)
    rounds, place = divmod(turn, turns)
    order = sorted(pool, key=lambda task: hashlib.sha256(f"{salt}:{rounds}:{task.id}".encode()).digest())
    return order[place * wanted : (place + 1) * wanted]


def _pools(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    pools: dict[str, list[Task]] = {}
    for task in tasks:
        pools.setdefault(task.category, []).append(task)
    return pools
