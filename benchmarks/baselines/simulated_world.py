"""Made-up task sets for the simulated executor, drawn from a law of which the truth is known in
closed form.
"""

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from evolvable_evolve.evolution.candidates.programs import Program, ProgramPart
from evolvable_evolve.evolution.task import ScorerSpec, Split, Task, TaskSet
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind

UNSTABLE = 0.3
FAILING = 0.25
CATEGORIES = ("amber", "basalt", "cedar", "delta")
_LOWEST, _HIGHEST = 0.05, 0.95


@dataclass(frozen=True, slots=True)
class Effect:
    """What a rule does: the share of all tasks that it fixes and the share that it breaks."""

    rule: str
    fixes: float = 0.0
    breaks: float = 0.0


def _share_passing(effects: Sequence[Effect]) -> float:
    """Return the share of tasks that always pass without a rule."""
    return 1 - UNSTABLE - max(FAILING, sum(effect.fixes for effect in effects))


def fits(effects: Sequence[Effect]) -> bool:
    """Tell whether there are enough tasks for rules with these effects."""
    return _share_passing(effects) >= sum(effect.breaks for effect in effects)


@dataclass(frozen=True, slots=True)
class Law:
    """How tasks come: three in ten pass by chance, the others always pass or always fail until a
    rule changes that.

    No task is fixed or broken by two rules, so that the gains of rules add up.
    """

    effects: tuple[Effect, ...]

    def __post_init__(self) -> None:
        if not fits(self.effects):
            raise InvalidArgument("The rules fix and break more tasks than there are.")

    @property
    def _passing(self) -> float:
        return _share_passing(self.effects)

    def score(self, rules: frozenset[str]) -> float:
        """Return the true score of a program that carries these rules, over all tasks there could
        be.
        """
        gain = sum(effect.fixes - effect.breaks for effect in self.effects if effect.rule in rules)
        return self._passing + UNSTABLE * (_LOWEST + _HIGHEST) / 2 + gain

    def best(self) -> float:
        """Return the true score of the best program: the one with every rule that fixes more than
        it breaks.
        """
        return self.score(
            frozenset(effect.rule for effect in self.effects if effect.fixes > effect.breaks)
        )

    def tags(self, chance: random.Random) -> tuple[str, ...]:
        """Return the tags of a task drawn from the law."""
        place = chance.random()
        if place < UNSTABLE:
            return (f"chance:{chance.uniform(_LOWEST, _HIGHEST):.4f}",)
        place -= UNSTABLE
        for effect in self.effects:
            if place < effect.fixes:
                return (f"needs:{effect.rule}",)
            place -= effect.fixes
        for effect in self.effects:
            if place < effect.breaks:
                return (f"broken_by:{effect.rule}",)
            place -= effect.breaks
        rest = self._passing - sum(effect.breaks for effect in self.effects)
        return () if place < rest else ("needs:what-nobody-finds",)


def make_taskset(law: Law, sizes: tuple[int, int, int], seed: int = 0) -> TaskSet:
    """Return a task set with so many tasks for training, validation and the test, scored by
    `exact`.
    """
    tasks = tuple(_tasks(law, sizes, seed))
    digest, test = (
        _digest(f"{seed}", part)
        for part in (tasks, [task for task in tasks if task.split is Split.TEST])
    )
    return TaskSet(f"simulated-{seed}", tasks, MappingProxyType({}), digest, test)


def program_with(rules: Sequence[str]) -> Program:
    """Return a program of one skill that carries these rules; the empty program without any."""
    if not rules:
        return Program()
    lines = "\n".join(f"- rule: {rule}" for rule in sorted(rules))
    text = (
        f"---\nname: simulated\ndescription: Rules for simulated tasks.\n---\n\n{lines}\n".encode()
    )
    return Program(
        (
            ProgramPart(
                Kind.SKILL, "simulated", {"SKILL.md": text}, hashlib.sha256(text).hexdigest()
            ),
        )
    )


def _tasks(law: Law, sizes: tuple[int, int, int], seed: int) -> Iterator[Task]:
    chance = random.Random(f"world {seed}")
    for split, count in zip(Split, sizes, strict=True):
        for number in range(count):
            name = f"{split}-{number:03}"
            yield Task(
                id=name,
                prompt=f"Simulated task {name}.",
                scorer=ScorerSpec("exact"),
                split=split,
                digest=hashlib.sha256(f"{seed} {name}".encode()).hexdigest(),
                expected=f"answer {name}",
                category=chance.choice(CATEGORIES),
                tags=law.tags(chance),
                source="synthetic",
            )


def _digest(salt: str, tasks: Sequence[Task]) -> str:
    lines = "\n".join(
        f"{task.id} {task.digest} {task.split} {' '.join(task.tags)}" for task in tasks
    )
    return hashlib.sha256(f"{salt}\n{lines}".encode()).hexdigest()
