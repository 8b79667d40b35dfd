"""EvoSkill's frontier as its authors' code has it, for comparison: room admits anybody, ties go by
name.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class EvoSkillFrontier:
    """Programs with their scores, the best first; of equal scores the one whose name is last in the
    alphabet.
    """

    capacity: int
    ranked: tuple[tuple[str, float], ...] = ()

    def offer(self, name: str, score: float) -> tuple["EvoSkillFrontier", bool]:
        """Return the frontier after offering a program, and whether it entered.

        A frontier with room takes anybody, a full one whoever beats its last, who leaves.
        """
        kept = self.ranked
        if len(kept) >= self.capacity:
            if not score > kept[-1][1]:
                return self, False
            kept = kept[:-1]
        ranked = sorted(
            [*kept, (name, score)], key=lambda entry: (entry[1], entry[0]), reverse=True
        )
        return replace(self, ranked=tuple(ranked)), True

    def select(self, strategy: str, iteration: int, chance: random.Random | None = None) -> str:
        """Return the parent by `best`, `round_robin` over the ranking, or `random`."""
        if strategy == "random":
            return (chance or random.Random(iteration)).choice(self.ranked)[0]
        return self.ranked[iteration % len(self.ranked) if strategy == "round_robin" else 0][0]

    def score(self, name: str) -> float:
        """Return the score of a member; 0 for a program that is none."""
        return next((score for member, score in self.ranked if member == name), 0.0)


class CategoryTurns:
    """EvoSkill's sampler: some categories each iteration, from each the next examples, around and
    around.
    """

    def __init__(self, pools: dict[str, int], categories: int = 3, per_category: int = 2) -> None:
        self._pools = pools
        self._names = sorted(pools)
        self._categories = min(categories, len(pools))
        self._per_category = per_category
        self.category_offset = 0
        self.offsets = dict.fromkeys(pools, 0)

    def next(self) -> Sequence[tuple[str, int]]:
        """Return the examples of the next batch, each as its category and its place in there."""
        drawn: list[tuple[str, int]] = []
        for turn in range(self.category_offset, self.category_offset + self._categories):
            name = self._names[turn % len(self._names)]
            for _ in range(min(self._per_category, self._pools[name])):
                drawn.append((name, self.offsets[name] % self._pools[name]))
                self.offsets[name] += 1
        self.category_offset += self._categories
        return drawn
