"""An executor without a model whose truth is known: every task passes with a chance that follows
from its tags.

A program carries a rule by a line `rule: NAME` in any of its files. The tags of a task say what
that does:

    needs:NAME       passes only under a program that carries the rule (several: all of them)
    broken_by:NAME   never passes under a program that carries the rule
    chance:0.65      the chance to pass when nothing is missing (without the tag 1)
    without:0.2      the chance to pass when a rule is missing (without the tag 0)

So the true score of a program can be computed, and every gate can be asked how often it was right.
Its figures say nothing about a model; they are labelled `simulated`.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.run_config import HostContext
from evolvable_evolve.evolution.task import ModelUsage, Rollout, Task
from evolvable_store.errors import InvalidArgument

LABEL = "simulated"

# A line of its own, also as an item of a list.
_RULE = re.compile(rb"^[ \t]*(?:[-*][ \t]+)?rule:[ \t]*([\w.-]+)[ \t]*\r?$", re.MULTILINE)
# Made-up sizes, so that budgets and costs have something to count.
_TASK_TOKENS = 1000
_ANSWER_TOKENS = 50
_BYTES_A_TOKEN = 4


@dataclass(frozen=True, slots=True)
class TaskTruth:
    """The chances that decide whether a task passes."""

    needs: frozenset[str] = frozenset()
    broken_by: frozenset[str] = frozenset()
    with_all: float = 1.0
    without: float = 0.0

    def chance(self, rules: frozenset[str]) -> float:
        """Return the chance that a program with these rules passes."""
        if self.broken_by & rules:
            return 0.0
        return self.with_all if self.needs <= rules else self.without


def parse_truth(task: Task) -> TaskTruth:
    """Return the truth in the tags of a task.

    Raises InvalidArgument for a chance outside 0 to 1.
    """
    values: dict[str, list[str]] = {}
    # Other tags, without a colon, are the task set's own.
    for tag in task.tags:
        name, colon, value = tag.partition(":")
        if colon:
            values.setdefault(name, []).append(value)
    return TaskTruth(
        frozenset(values.get("needs", ())),
        frozenset(values.get("broken_by", ())),
        _parse_chance(task, values.get("chance", ["1"])[-1]),
        _parse_chance(task, values.get("without", ["0"])[-1]),
    )


def find_rules(program: Program) -> frozenset[str]:
    """Return the names of the rules that the files of a program carry."""
    found = (
        name
        for part in program.parts
        for content in part.files.values()
        for name in _RULE.findall(content)
    )
    return frozenset(name.decode() for name in found)


class SimulatedExecutor:
    """Answers the tasks it was made with: with what they expect when they pass, with something else
    when not.

    The draw is a hash of the seed, the task, the program and the repeat: the same run gives the
    same answer anywhere. `price` is in dollars for a token, None for unknown.
    """

    label = LABEL

    def __init__(self, tasks: Iterable[Task], seed: int = 0, price: float | None = None) -> None:
        self._truths = {task.id: (parse_truth(task), task.expected) for task in tasks}
        self._seed = seed
        self._price = price
        # By digest: finding the rules reads all files of a program.
        self._rules: dict[str, frozenset[str]] = {}
        self.fingerprint = f"simulated 1 seed={seed} price={price}"

    @classmethod
    def from_spec(
        cls, spec: Mapping[str, Any], host: HostContext, *, tasks: Iterable[Task], **_: object
    ) -> Self:
        """Return the executor that a run's settings name, which knows the truth of these tasks."""
        return cls(tasks, seed=int(spec.get("seed", 0)), price=spec.get("price"))

    def passes(self, task: Task, program: Program, repeat: int) -> bool:
        """Return whether the task passes in this repeat."""
        digest = program.digest
        rules = self._rules.get(digest)
        if rules is None:
            rules = self._rules[digest] = find_rules(program)
        return self.draw(task, digest, rules, repeat)

    def draw(self, task: Task, digest: str, rules: frozenset[str], repeat: int) -> bool:
        """Return the same for a program whose digest and rules are at hand."""
        chance = self._truths[task.id][0].chance(rules)
        # A certain result needs no draw.
        if chance in (0.0, 1.0):
            return chance == 1.0
        drawn = hashlib.sha256(f"{self._seed}|{task.id}|{digest}|{repeat}".encode()).digest()
        # 56 bits of the hash against the chance in the same unit.
        return int.from_bytes(drawn[:7], "big") < chance * (1 << 56)

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        """Return the simulated answer; touches no files.

        A task it was not made with, such as a canary, fails.
        """
        if task.id not in self._truths:
            return Rollout(
                output="unknown task", trace="simulated", usage=self._usage(_TASK_TOKENS)
            )
        truth, expected = self._truths[task.id]
        right = expected if expected is not None else "pass"
        passed = self.passes(task, program, repeat)
        missing = sorted(truth.needs - find_rules(program))
        carried = sum(len(content) for part in program.parts for content in part.files.values())
        return Rollout(
            output=right if passed else f"not {right}",
            trace=f"simulated: missing {', '.join(f'rule: {name}' for name in missing)}"
            if missing
            else "simulated",
            usage=self._usage(_TASK_TOKENS + carried // _BYTES_A_TOKEN),
            read=tuple(part.ref for part in program.parts),
        )

    def _usage(self, tokens: int) -> ModelUsage:
        cost = None if self._price is None else self._price * (tokens + _ANSWER_TOKENS)
        return ModelUsage(tokens, _ANSWER_TOKENS, 1, cost)


def _parse_chance(task: Task, text: str) -> float:
    try:
        chance = float(text)
    except ValueError:
        chance = -1.0
    if not 0 <= chance <= 1:
        raise InvalidArgument(
            f"Task {task.id} has a chance of {text}.", "A chance is a number from 0 to 1."
        )
    return chance
