"""Which of two agents is given the work of a skill after 40 sessions, where one is better at it, or
at a task type.

    python -m benchmarks.executor_choice [--seeds N] [--quick]

Every figure is simulated: the task type and the end of a session are drawn. What chooses is the
product's rule.
"""

import argparse
import random
import sys
from collections.abc import Sequence

from evolvable_store.resource import Ref
from evolvable_tools.executor_choice import best_executor, work_at_type

SESSIONS = 40
AGENTS = (Ref.parse("agent:one"), Ref.parse("agent:two"))

World = Sequence[Sequence[float]]
"""The chance of success of each agent at each task type."""


def alike(worse: float, better: float) -> World:
    """Return a world in which the second agent is better, whatever the task type is."""
    return ((worse, worse), (better, better))


def opposed(worse: float, better: float) -> World:
    """Return a world in which each agent is better at one task type and worse at the other."""
    return ((better, worse), (worse, better))


def shares_of_seed(world: World, seed: int, types: int) -> float:
    """Return for which share of the task types the better agent is chosen after the sessions."""
    drawn = random.Random(seed)
    ends: dict[tuple[int, str], tuple[int, int]] = {}

    def chosen(kind: int) -> int:
        work = work_at_type(ends, f"type {kind}")
        return AGENTS.index(best_executor({ref: work[at] for at, ref in enumerate(AGENTS)}))

    for kind in range(types):
        ends |= {(agent, f"type {kind}"): (0, 0) for agent in range(len(AGENTS))}
    for _ in range(SESSIONS):
        kind = drawn.randrange(types) if types > 1 else 0
        agent = chosen(kind)
        good, n = ends[agent, f"type {kind}"]
        ends[agent, f"type {kind}"] = (good + (drawn.random() < world[agent][kind]), n + 1)
    return (
        sum(world[chosen(kind)][kind] == max(one[kind] for one in world) for kind in range(types))
        / types
    )


def share_right(world: World, seeds: int, types: int = 2) -> float:
    """Return in which share of the seeds and task types the better agent is chosen after the
    sessions.
    """
    return sum(shares_of_seed(world, seed, types) for seed in range(seeds)) / seeds


ROWS = (
    ("one type", 1, alike, 0.5, 0.9),
    ("one type", 1, alike, 0.4, 0.9),
    ("one type", 1, alike, 0.6, None),
    ("opposed at two types", 2, opposed, 0.5, None),
    ("opposed at two types", 2, opposed, 0.4, 0.9),
    ("opposed at two types", 2, opposed, 0.3, 0.9),
    ("two types without a difference", 2, alike, 0.5, 0.9),
)
"""Name, number of task types, world, chance of the worse agent (the better one has .8), and what is
promised.
"""


def main() -> None:
    """Print the shares; the exit code says whether those that are promised hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument(
        "--quick", action="store_true", help="200 seeds; for a look, not for the record"
    )
    options = parser.parse_args()
    seeds = 200 if options.quick else options.seeds
    print(f"simulated, {seeds} seeds, {SESSIONS} sessions: how often the better agent is chosen")
    missed = False
    for name, types, world, worse, least in ROWS:
        share = share_right(world(worse, 0.8), seeds, types)
        missed = missed or (least is not None and share < least)
        print(
            f"{name}, {worse} against 0.8: {share:.3f}" + (f" (at least {least})" if least else "")
        )
    sys.exit(missed)


if __name__ == "__main__":
    main()
