"""What proposals are worth: the mixes of useful, useless and harmful edits, and the place that a
seed makes of one.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from baselines.simulated_world import Effect, Law, fits, make_taskset, program_with

from evolvable_evolve.evolution.executors.simulated import SimulatedExecutor
from evolvable_evolve.evolution.task import Split, Task, TaskSet

PROPOSALS = 10
SIZES = (40, 40, 100)
"""Tasks for training, validation and the test."""

LARGER = (40, 100, 200)
"""The same for a user who has more of them."""

_MOST = 0.45
"""Of all tasks, how many the rules of a place may fix together: three in ten pass by chance, some
always.
"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A mix of proposals: each is (chance, share of tasks fixed, share of tasks broken)."""

    name: str
    mix: Sequence[tuple[float, float, float]]

    def law(self, seed: int, proposals: int) -> Law:
        """Return what each proposal of this seed is worth, in their order."""
        chance = random.Random(f"{self.name} {seed}")
        effects: list[Effect] = []
        for number in range(proposals):
            _, fixes, breaks = chance.choices(self.mix, [share for share, _, _ in self.mix])[0]
            if fixes + sum(effect.fixes for effect in effects) > _MOST:
                fixes = 0.0
            effect = Effect(f"r{number + 1}", fixes, breaks)
            effects.append(effect if fits([*effects, effect]) else Effect(effect.rule))
        return Law(tuple(effects))


SCENARIOS = (
    Scenario("nothing helps", ((1.0, 0.0, 0.0),)),
    Scenario("half harms", ((0.5, 0.0, 0.0), (0.5, 0.0, 0.05))),
    Scenario("useful is rare", ((0.75, 0.0, 0.0), (0.2, 0.0, 0.05), (0.05, 0.05, 0.0))),
    Scenario(
        "useful is frequent",
        ((0.5, 0.0, 0.0), (0.2, 0.0, 0.05), (0.2, 0.05, 0.0), (0.1, 0.10, 0.0)),
    ),
)

Rules = frozenset[str]
BASE: Rules = frozenset({"base"})
EMPTY: Rules = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """What a loop would have the user run (the base, when it found nothing), and what it says the
    gain is.
    """

    rules: Rules
    claimed: float = 0.0


@dataclass
class Place:
    """One seed of a scenario: tasks, executor and proposals, the same for every loop; and what was
    spent on trials.
    """

    law: Law
    tasks: TaskSet
    executor: SimulatedExecutor
    spent: int = 0
    _seen: dict[tuple[str, str, int], float] = field(default_factory=dict)
    _digests: dict[Rules, str] = field(default_factory=dict)

    def of(self, split: Split) -> tuple[Task, ...]:
        return self.tasks.of(split)

    def proposal(self, parent: Rules, iteration: int) -> Rules:
        """Return the parent with the rule that is proposed in this iteration (from 1), whatever it
        may be worth.
        """
        return parent | {self.law.effects[iteration - 1].rule}

    def digest(self, rules: Rules) -> str:
        if rules not in self._digests:
            self._digests[rules] = program_with(sorted(rules)).digest
        return self._digests[rules]

    def measure(self, rules: Rules, tasks: Sequence[Task], repeat: int = 0) -> dict[str, float]:
        """Return the score of each task; what was measured before comes from the cache and is not
        spent again.
        """
        digest = self.digest(rules)
        return {task.id: self.drawn(digest, rules, task, repeat) for task in tasks}

    def was_shown(self, rule: str, tasks: Sequence[str]) -> None:
        """Take note of the training tasks that a proposal was made from.

        Here no edit depends on them.
        """

    def texts(self, digest: str, task: Task, repeat: int, score: float | None) -> tuple[str, str]:
        """Return the output and the trace of a trial."""
        return "answer", ""

    def propose(self, question: Any, iteration: int) -> str:
        """Return the rule that a proposer asks for in this iteration (from 1).

        Here it is drawn before.
        """
        return self.law.effects[iteration - 1].rule

    def criticise(self, question: Any, iteration: int) -> str:
        """Return what a critic says of a trial, '' where nothing should change."""
        return f"Add {self.law.effects[iteration - 1].rule}."

    def rewrite(self, question: Any, iteration: int) -> str:
        """Return the rule that the rewrite of a variable adds."""
        return self.law.effects[iteration - 1].rule

    def trial(self, digest: str, rules: Rules, task: Task, repeat: int) -> tuple[float | None, int]:
        """Return the score of a trial, None where it is missing, and its tokens (0:
        nobody told).
        """
        return self.drawn(digest, rules, task, repeat), 0

    def drawn(self, digest: str, rules: Rules, task: Task, repeat: int) -> float:
        """Return the score of one trial of a program of which digest and rules are known."""
        key = digest, task.id, repeat
        if key not in self._seen:
            self._seen[key] = float(self.executor.draw(task, digest, rules, repeat))
            self.spent += 1
        return self._seen[key]


def place(
    scenario: Scenario, seed: int, sizes: tuple[int, int, int] = SIZES, proposals: int = PROPOSALS
) -> Place:
    """Return a fresh place; equal arguments give equal ones."""
    law = scenario.law(seed, proposals)
    tasks = make_taskset(law, sizes, seed)
    return Place(law, tasks, SimulatedExecutor(tasks.tasks, seed))


def mean(scores: Mapping[str, float]) -> float:
    return sum(scores.values()) / len(scores)
