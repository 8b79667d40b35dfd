"""A world of ten categories of tasks, of which each lacks one rule, and a proposer that mends what
it is shown.

A task of a category without its rule passes in one of ten trials, by chance; with the rule in nine
of ten. The proposer adds the rule of the category that fails most often among the tasks that it
reads. Where it reads only failures of categories that have their rule, it writes a rule of no use.
So the result depends on which tasks it is shown.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evolution.scenarios import Place, Rules
from evolvable_evolve.evolution.task import ScorerSpec, Split, Task, TaskSet

CATEGORIES = tuple(f"category-{number}" for number in range(10))

LACKING, MENDED = 0.1, 0.9
"""The chance of a task to pass without and with the rule of its category."""


@dataclass(frozen=True, slots=True)
class CategoryWorld:
    """The world by its name."""

    name: str


CATEGORY_WORLD = CategoryWorld("ten categories, one missing rule each")


def _mended(rules: Rules) -> frozenset[str]:
    """Return the categories that have their rule.

    A rule is named for its category and the iteration that wrote it.
    """
    return frozenset(rule.partition(".")[0] for rule in rules).intersection(CATEGORIES)


@dataclass(frozen=True, slots=True)
class CategoryLaw:
    """The truth: a rule mends the category that it is named for."""

    def score(self, rules: Rules) -> float:
        """Return the true score of a program, over all categories alike."""
        mended = len(_mended(rules))
        return (mended * MENDED + (len(CATEGORIES) - mended) * LACKING) / len(CATEGORIES)

    def best(self) -> float:
        """Return the true score with every rule."""
        return self.score(frozenset(f"{one}.1" for one in CATEGORIES))


@dataclass
class CategoryPlace(Place):
    """One seed of the world."""

    seed: str = ""
    categories: Mapping[str, str] = field(default_factory=dict)
    _drawn: dict[tuple[str, str, int], float] = field(default_factory=dict)

    def drawn(self, digest: str, rules: Rules, task: Task, repeat: int) -> float:
        key = digest, task.id, repeat
        if key not in self._drawn:
            passes = MENDED if task.category in _mended(rules) else LACKING
            chance = random.Random(f"{self.seed} {digest} {task.id} {repeat}").random()
            self._drawn[key] = float(chance < passes)
            self.spent += 1
        return self._drawn[key]

    def propose(self, question: Any, iteration: int) -> str:
        texts = "".join(
            file["text"] for part in question.data["resources"] for file in part["files"]
        )
        past = " ".join(one["summary"] for one in question.data["history"] if one.get("summary"))
        failed = [
            self.categories[one["task"]]
            for one in question.data["evidence"]
            if one["result"] == "failed"
        ]
        lacking = Counter(one for one in failed if f"rule: {one}." not in texts)
        if not lacking:
            return f"no-use.{iteration}"
        # Of those that fail equally often, one that was not tried before; and never twice in the
        # same words.
        category = max(lacking, key=lambda one: (lacking[one], -past.count(f"{one}."), one))
        return f"{category}.{iteration}"


def category_place(seed: int, sizes: tuple[int, int, int]) -> CategoryPlace:
    """Return a fresh place; equal arguments give equal ones.

    Every split has all categories alike.
    """
    salt = f"{CATEGORY_WORLD.name} {seed}"
    spec, tasks = ScorerSpec("exact"), list[Task]()
    for split, count in zip(Split, sizes, strict=True):
        for number in range(count):
            name = f"{split}-{number:03}"
            category = CATEGORIES[number % len(CATEGORIES)]
            digest = hashlib.sha256(f"{salt} {name}".encode()).hexdigest()
            prompt = f"Simulated task {name}."
            tasks.append(
                Task(name, prompt, spec, split, digest, None, category, source="synthetic")
            )
    whole = hashlib.sha256(salt.encode()).hexdigest()
    taskset = TaskSet(CATEGORY_WORLD.name, tuple(tasks), {}, whole, whole)
    place = CategoryPlace(CategoryLaw(), taskset, None)  # type: ignore[arg-type]
    place.seed, place.categories = salt, {task.id: task.category for task in tasks}
    return place
