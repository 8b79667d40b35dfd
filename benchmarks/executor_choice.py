"""Which of two agents is given the work of a skill after 40 sessions, where one is better at it.

    python -m benchmarks.executor_choice [--seeds N]

Every figure is simulated: the end of a session is drawn. What chooses is the product's rule.
"""

import argparse
import random
import sys

from evolvable_store.resource import Ref
from evolvable_tools.executor_choice import best_executor

SESSIONS = 40
WORSE, BETTER = Ref.parse("agent:one"), Ref.parse("agent:two")


def chosen_after(chances: tuple[float, float], seed: int) -> Ref:
    """Return who is given the next session. chances: of the agent that is named first, and of the better one."""
    drawn, ends = random.Random(seed), {WORSE: (0, 0), BETTER: (0, 0)}
    by_agent = dict(zip(ends, chances, strict=True))
    for _ in range(SESSIONS):
        agent = best_executor(ends)
        good, n = ends[agent]
        ends[agent] = (good + (drawn.random() < by_agent[agent]), n + 1)
    return best_executor(ends)


def share_right(chances: tuple[float, float], seeds: int) -> float:
    """Return in which share of the seeds the better agent is chosen after the sessions."""
    return sum(chosen_after(chances, seed) == BETTER for seed in range(seeds)) / seeds


def main() -> None:
    """Print the shares; the exit code says whether those that are promised hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1_000)
    options = parser.parse_args()
    print(f"simulated, {options.seeds} seeds, {SESSIONS} sessions")
    found = {chances: share_right(chances, options.seeds) for chances in ((0.5, 0.8), (0.4, 0.8), (0.6, 0.8))}
    for chances, share in found.items():
        print(f"{chances[0]} against {chances[1]}: the better one is chosen in {share:.3f}")
    sys.exit(found[0.5, 0.8] < 0.9 or found[0.4, 0.8] < 0.9)


if __name__ == "__main__":
    main()
