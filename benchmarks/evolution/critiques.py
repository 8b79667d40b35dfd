"""A world in which it depends on the critique whether a proposal is of any use, and not only on the
draw of its edits.

Every task fails for one cause of forty. A failed trial shows the symptom of its cause among others
of the task, which also show where it passes. Whoever reads trials (the proposer of a plan of edits,
or the critic of a single trial) votes for the symptoms that it holds for the cause, and the rule
for the symptom with most votes is proposed. A rollout that passed, beside one of the same task that
failed, rules symptoms out; several critiques add up. A reader with the sight 0.3 takes any symptom
for the cause in seven of ten trials.

Rules for three of the causes help, each by seven points. In the null world no rule changes
anything.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolution.scenarios import BASE, Place, Rules
from evolvable_evolve.evolution.task import ScorerSpec, Split, Task, TaskSet

CAUSES = tuple(f"symptom-{number}" for number in range(40))
HELPFUL, SHARE = 3, 0.12
"""Causes with a rule that helps, and the share of tasks that each of them has."""

_FAILING, _MENDED, _OTHERS = 0.3, 0.9, 0.5
_BACKGROUND, _SHOWS = 3, 0.7
_CATEGORIES = ("amber", "basalt", "cedar", "delta")


@dataclass(frozen=True, slots=True)
class CritiqueWorld:
    """sight: the share of trials that are read rightly. helps: whether any rule does."""

    name: str
    sight: float
    helps: bool = True


CRITIQUE_WORLDS = (
    CritiqueWorld("critiques read well", 0.9),
    CritiqueWorld("critiques read badly", 0.3),
    CritiqueWorld("critiques read well, nothing helps", 0.9, False),
)


@dataclass(frozen=True, slots=True)
class CritiqueLaw:
    """The truth of one seed: which rules help."""

    helpful: frozenset[str]

    def score(self, rules: Rules) -> float:
        """Return the true score of a program, over all tasks there could be."""
        mended = len(self.helpful & rules)
        plain = HELPFUL * SHARE * _FAILING + (1 - HELPFUL * SHARE) * _OTHERS
        return plain + mended * SHARE * (_MENDED - _FAILING)

    def best(self) -> float:
        """Return the true score with every rule that helps."""
        return self.score(self.helpful)


@dataclass
class CritiquePlace(Place):
    """One seed of a world of critiques."""

    world: CritiqueWorld = CRITIQUE_WORLDS[0]
    seed: str = ""
    causes: Mapping[str, tuple[str, Sequence[str], float]] = field(default_factory=dict)
    _drawn: dict[tuple[str, str, int], float] = field(default_factory=dict)

    def drawn(self, digest: str, rules: Rules, task: Task, repeat: int) -> float:
        key = digest, task.id, repeat
        if key not in self._drawn:
            cause, _, passes = self.causes[task.id]
            mended = cause in rules and cause in self.law.helpful
            chance = random.Random(f"{self.seed} {digest} {task.id} {repeat}").random()
            self._drawn[key] = float(chance < (_MENDED if mended else passes))
            self.spent += 1
        return self._drawn[key]

    def texts(self, digest: str, task: Task, repeat: int, score: float | None) -> tuple[str, str]:
        """Return the output and the trace of a trial."""
        cause, others, _ = self.causes[task.id]
        chance = random.Random(f"trace {self.seed} {digest} {task.id} {repeat}")
        seen = {one for one in others if chance.random() < _SHOWS} | (set() if score else {cause})
        words = chance.choices(("first", "then", "at last", "perhaps"), k=6)
        return f"{task.id} {' '.join(words)}", f"seen: {' '.join(sorted(seen))}"

    def read(self, failed: str, passed: str = "") -> list[str]:
        """Return the symptoms that a reader takes for the cause of a failure, beside a rollout that
        passed.
        """
        symptoms, cleared = (
            failed.removeprefix("seen:").split(),
            passed.removeprefix("seen:").split(),
        )
        chance = random.Random(hashlib.sha256(f"{self.seed} {failed} {passed}".encode()).digest())
        if chance.random() >= self.world.sight:
            return [chance.choice(CAUSES)]
        return [one for one in symptoms if one not in cleared] or symptoms

    def choose(self, readings: Iterable[Sequence[str]], tried: str) -> str:
        """Return the symptom with most votes of those that were not tried; a reading has one vote
        to divide.
        """
        votes: Counter[str] = Counter()
        for reading in readings:
            votes.update(dict.fromkeys(reading, 0))
            for one in reading:
                votes[one] += 60 // len(reading)
        fresh = [one for one in votes if one not in tried.split()]
        chance = random.Random(f"{self.seed} {tried}")
        others = [one for one in CAUSES if one not in tried.split()]
        return (
            max(fresh, key=lambda one: (votes[one], one))
            if fresh
            else chance.choice(others or CAUSES)
        )

    def propose(self, question: Any, iteration: int) -> str:
        pairs = {one["task"] for one in question.data.get("contrasts", ())}
        seen = question.data["evidence"]
        compared = [one for one in seen if one["result"] == "passed" and one["task"] in pairs]
        passed = {one["task"]: one.get("trace", "") for one in compared}
        failed = [one for one in seen if one["result"] == "failed"]
        tried = " ".join(
            word for past in question.data["history"] for word in past.get("summary", "").split()
        )
        return self.choose(
            [self.read(one.get("trace", ""), passed.get(one["task"], "")) for one in failed], tried
        )

    def criticise(self, question: Any, iteration: int) -> str:
        trial = question.data["trial"]
        return " ".join(self.read(trial.get("trace", ""))) if trial["result"] == "failed" else ""

    def rewrite(self, question: Any, iteration: int) -> str:
        values = [
            question.data["variable"]["value"],
            *(one["value"] for one in question.data["tried"]),
        ]
        tried = [one for one in CAUSES if any(f"rule: {one}\n" in value for value in values)]
        return self.choose([one.split() for one in question.data["critiques"]], " ".join(tried))


def critique_place(world: CritiqueWorld, seed: int, sizes: tuple[int, int, int]) -> CritiquePlace:
    """Return a fresh place of a world; equal arguments give equal ones."""
    salt = f"{world.name} {seed}"
    chance = random.Random(salt)
    common = chance.sample(CAUSES, HELPFUL)
    rest = [one for one in CAUSES if one not in common]
    tasks: list[Task] = []
    causes: dict[str, tuple[str, Sequence[str], float]] = {}
    for split, count in zip(Split, sizes, strict=True):
        for number in range(count):
            name, frequent = f"{split}-{number:03}", chance.random() < HELPFUL * SHARE
            cause = chance.choice(common if frequent else rest)
            passes = chance.uniform(*((0.1, 0.5) if frequent else (0.05, 0.95)))
            causes[name] = (
                cause,
                chance.sample([one for one in CAUSES if one != cause], _BACKGROUND),
                passes,
            )
            digest = hashlib.sha256(f"{salt} {name}".encode()).hexdigest()
            category = chance.choice(_CATEGORIES)
            spec = ScorerSpec("exact")
            tasks.append(
                Task(
                    name,
                    f"Simulated task {name}.",
                    spec,
                    split,
                    digest,
                    None,
                    category,
                    source="synthetic",
                )
            )
    whole = hashlib.sha256(salt.encode()).hexdigest()
    law = CritiqueLaw(frozenset(common) if world.helps else frozenset())
    place = CritiquePlace(law, TaskSet(world.name, tuple(tasks), {}, whole, whole), None)  # type: ignore[arg-type]
    place.world, place.seed, place.causes = world, salt, causes
    return place


assert BASE.isdisjoint(CAUSES)
