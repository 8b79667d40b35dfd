"""How often the narrower claim, "better on these tasks", is found and how often it is wrong. Every
figure is simulated.

    python -m benchmarks.small_sets [--seeds N]

Two worlds. `steps` is that of `benchmarks/evolution`: three tasks in ten pass by chance, the others
always or never, and an edit makes some that never pass always pass. `slopes`: each task has a
chance of its own (logistic-normal), and an edit that helps moves each by another amount. The gain
is that over all tasks there could be; the tasks at hand gain more or less. The test alone is
measured, as the product runs it: `permutation_result` on fresh repeats of both arms.
"""

import argparse
import math
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import NormalDist

sys.path.insert(0, str(Path(__file__).parent))

from baselines.simulated_world import Effect, Law

from evolvable_evolve.evolution.statistics.narrow_claim import permutation_result

GAINS = (0.0, 0.05, 0.10, 0.15, 0.20, 0.30)
DESIGNS = ((10, 10), (20, 3), (20, 5), (20, 10), (40, 5))
REQUIRED, DESIGN, GAIN = 0.78, (20, 5), 0.15

Chances = Sequence[tuple[float, float]]
"""The chance of each task to pass under the base and under the finalist."""


def steps(n: int, gain: float, chance: random.Random) -> Chances:
    """Return the chances of tasks of which an edit repairs some."""
    law = Law((Effect("edit", gain),))
    found = []
    for _ in range(n):
        [tag] = law.tags(chance) or ("",)
        name, _, value = tag.partition(":")
        base = float(value) if name == "chance" else float(not name)
        found.append((base, 1.0 if value == "edit" else base))
    return found


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value))


_SPREAD, _VARIES = 2.5, 0.8  # 26 % of the results differ from one run to the next
_GRID = [NormalDist().inv_cdf((at + 0.5) / 400) for at in range(400)]


def _shift(gain: float) -> float:
    """Return the mean move on the logit scale that gives this mean gain over many tasks."""
    low, high = 0.0, 12.0
    spread = math.sqrt(_SPREAD**2 + (_VARIES if gain else 0) ** 2)
    before = sum(_logistic(_SPREAD * z) for z in _GRID) / len(_GRID)
    while high - low > 1e-4:
        middle = (low + high) / 2
        after = sum(_logistic(spread * z + middle) for z in _GRID) / len(_GRID)
        low, high = (middle, high) if after - before < gain else (low, middle)
    return low


_SHIFTS = {gain: _shift(gain) for gain in GAINS}


def slopes(n: int, gain: float, chance: random.Random) -> Chances:
    """Return the chances of tasks of which an edit helps each by another amount."""
    found = []
    for _ in range(n):
        ease = chance.gauss(0, _SPREAD)
        moved = ease + _SHIFTS[gain] + (chance.gauss(0, _VARIES) if gain else 0)
        found.append((_logistic(ease), _logistic(moved)))
    return found


WORLDS: dict[str, Callable[[int, float, random.Random], Chances]] = {
    "steps": steps,
    "slopes": slopes,
}


def is_found(world: str, design: tuple[int, int], gain: float, seed: int, alpha: float) -> bool:
    """Tell whether the finalist is called better on the tasks of this seed."""
    n, repeats = design
    chance = random.Random(f"{world} {design} {gain} {seed}")
    chances = WORLDS[world](n, gain, chance)
    arms = [
        {
            str(at): [float(chance.random() < one[arm]) for _ in range(repeats)]
            for at, one in enumerate(chances)
        }
        for arm in (0, 1)
    ]
    return permutation_result(arms[0], arms[1]).p <= alpha


def found_share(
    world: str, design: tuple[int, int], gain: float, seeds: int, alpha: float
) -> float:
    """Return in what share of the seeds the finalist is called better on these tasks."""
    return sum(is_found(world, design, gain, seed, alpha) for seed in range(seeds)) / seeds


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    z = 1.96
    middle, half = (
        share + z * z / (2 * n),
        z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)),
    )
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def main() -> int:
    """Run the benchmark; return the exit code."""
    from evolvable_evolve.evolution.statistics.narrow_claim import NARROW_ALPHA

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=400)
    seeds = parser.parse_args().seeds
    missed = []
    print(
        f"alpha {NARROW_ALPHA}, {seeds} seeds, simulated; share of runs that say better on these "
        "tasks (95 %)"
    )
    print(
        "| world | tasks x repeats (trials) | no effect | "
        + " | ".join(f"+{100 * g:.0f}" for g in GAINS[1:])
        + " |"
    )
    print("|---" * (len(GAINS) + 2) + "|")
    for world in WORLDS:
        for design in DESIGNS:
            shares = [found_share(world, design, gain, seeds, NARROW_ALPHA) for gain in GAINS]
            cells = [
                f"{one:.2f} ({low:.2f} to {high:.2f})"
                for one in shares
                for low, high in [wilson(one, seeds)]
            ]
            print(
                f"| {world} | {design[0]} x {design[1]} ({2 * design[0] * design[1]}) | "
                + " | ".join(cells)
                + " |",
                flush=True,
            )
            power = shares[GAINS.index(GAIN)]
            if shares[0] > 0.05 + 2 * math.sqrt(0.05 * 0.95 / seeds) or (
                design == DESIGN and power < REQUIRED
            ):
                missed.append(
                    f"{world} {design}: {shares[0]:.3f} without an effect, {power:.2f} at "
                    f"+{100 * GAIN:.0f}"
                )
    print(*missed, sep="\n")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
