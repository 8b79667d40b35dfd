"""Self-evolution as five typed operators: Reflect, Select, Improve, Evaluate, Commit.

An optimizer is a composition of them. No composition avoids the last two: Commit takes only results
of Evaluate. Improve is always masked.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from evolvable_evolve.evolution.candidates import Program, changed_parts
from evolvable_store.errors import Refused
from evolvable_store.resource import Kind

Traces = TypeVar("Traces")
Hypothesis = TypeVar("Hypothesis")
Change = TypeVar("Change")

MODES: dict[str, frozenset[Kind]] = {
    "skill_only": frozenset({Kind.SKILL}),
    "prompt_only": frozenset({Kind.PROMPT}),
    "agent_only": frozenset({Kind.AGENT}),
    "memory_only": frozenset({Kind.MEMORY}),
    "tool_only": frozenset({Kind.TOOL}),
    "structure": frozenset({Kind.SKILL, Kind.AGENT}),
    "solution_only": frozenset(),
    "joint": frozenset({Kind.SKILL, Kind.PROMPT, Kind.AGENT, Kind.TOOL, Kind.MEMORY}),
    "any": frozenset({Kind.SKILL, Kind.PROMPT, Kind.AGENT, Kind.TOOL, Kind.MEMORY}),
}
"""Mode -> the kinds that may change in it.

The environment never changes: it holds the tasks and their scorers.
"""

STRUCTURE_MODE = "structure"
"""The mode in which a model proposes edits of skills alone, and a gate decides on edits of
agents.
"""

SOLUTION_MODE, JOINT_MODE = "solution_only", "joint"
"""The modes that need an executor with rounds: the program is frozen and answers alone improve, or
both do.
"""


def proposed_kinds(mode: str) -> frozenset[Kind]:
    """Return the kinds of which a model may propose edits in a mode."""
    return frozenset({Kind.SKILL}) if mode == STRUCTURE_MODE else MODES[mode]


class MaskViolation(Refused):
    """A change of a part that may not change."""


@dataclass(frozen=True, slots=True)
class Mask:
    """The parts of a program that may change: those of these kinds, except the named ones."""

    kinds: frozenset[Kind]
    fixed: frozenset[str] = frozenset()

    def check(self, before: Program, after: Program) -> None:
        """Raise MaskViolation when `after` differs from `before` in a part that may not change."""
        # Of both, because a removed part is a change too.
        parts = before.by_ref | after.by_ref
        for ref in changed_parts(before, after):
            if parts[ref].kind not in self.kinds:
                allowed = ", ".join(sorted(self.kinds)) or "nothing"
                raise MaskViolation(f"{ref} may not change in this run.", f"It evolves: {allowed}.")
            if ref in self.fixed:
                raise MaskViolation(
                    f"{ref} is frozen and may not change.", "Only a person changes it."
                )


def make_mask(mode: str, program: Program) -> Mask:
    """Return the mask of a mode: frozen parts, and memory:SOUL, are fixed in every mode.

    Raises KeyError.
    """
    frozen = frozenset(part.ref for part in program.parts if part.is_frozen)
    return Mask(MODES[mode], frozen | {"memory:SOUL"})


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Result of Evaluate for a candidate, measured in pairs with `against`.

    safe: every gate before the measurement let it pass. delta: the mean paired difference, None
    when too little was measured to say. why: in words. decision: the decision on it, where that is
    not for Commit.
    """

    candidate: Program
    against: Program
    safe: bool
    delta: float | None
    why: str = ""
    decision: str = ""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Decision of Commit: `program` is the candidate when it was accepted, else the program before
    it.
    """

    program: Program
    accepted: bool
    why: str


Reflect = Callable[[Traces, Program], Awaitable[Sequence[Hypothesis]]]
"""Returns hypotheses on what may be wrong with a program, from its traces."""

Select = Callable[[Program, Sequence[Hypothesis]], Awaitable[Sequence[Change]]]
"""Turns hypotheses about a program into the changes that are worth trying, a bounded number of
them.
"""

Builder = Callable[[Program, Sequence[Change]], Awaitable[Program]]
"""Makes a changed program. Improve checks its result against the mask."""

Evaluate = Callable[[Program, Program], Awaitable[EvaluationResult]]
"""Measures a candidate in pairs with the program that it would replace."""

Commit = Callable[[EvaluationResult], CommitResult]
"""Accepts or rejects an evaluated candidate. It never gets a program that was not evaluated."""


@dataclass(frozen=True, slots=True)
class Improve(Generic[Change]):
    """A builder behind the mask: the only way to a changed program."""

    builder: Builder[Change]
    mask: Mask

    async def __call__(self, program: Program, changes: Sequence[Change]) -> Program:
        """Return the changed program. Raises MaskViolation when a part changed that may not."""
        after = await self.builder(program, changes)
        # Here and not in the builder: an optimizer may bring a builder of its own.
        self.mask.check(program, after)
        return after


def commit_if_better(evaluated: EvaluationResult) -> CommitResult:
    """Accept a safe candidate that is better on paired validation, or equal and smaller."""
    if not evaluated.safe:
        return CommitResult(evaluated.against, False, evaluated.why or "it is not safe")
    if evaluated.delta is None:
        return CommitResult(evaluated.against, False, "too little was measured to say")
    if evaluated.delta > 0:
        return CommitResult(evaluated.candidate, True, f"better by {evaluated.delta:+.3f}")
    if evaluated.delta == 0 and evaluated.candidate.size < evaluated.against.size:
        return CommitResult(evaluated.candidate, True, "as good, and smaller")
    return CommitResult(evaluated.against, False, f"not better ({evaluated.delta:+.3f})")


@dataclass(frozen=True, slots=True)
class OptimizerStep(Generic[Traces, Hypothesis, Change]):
    """One round of the operators: the part that every optimizer repeats."""

    reflect: Reflect[Traces, Hypothesis]
    select: Select[Hypothesis, Change]
    improve: Improve[Change]
    evaluate: Evaluate
    commit: Commit

    async def __call__(self, traces: Traces, program: Program) -> CommitResult:
        """Return the committed program, which is `program` itself when no better one was found."""
        changes = await self.select(program, await self.reflect(traces, program))
        if not changes:
            return CommitResult(program, False, "nothing was proposed")
        candidate = await self.improve(program, changes)
        # A builder may write what is there already, and measuring it would cost trials for nothing.
        if candidate.digest == program.digest:
            return CommitResult(program, False, "nothing changed")
        return self.commit(await self.evaluate(candidate, program))
