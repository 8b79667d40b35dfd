"""Self-evolution as five typed operators: Reflect, Select, Improve, Evaluate, Commit.

An optimizer is a composition of them. What cannot be composed is a way around the last two: Commit takes what Evaluate
found and nothing else, and Improve is always masked.
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
"""What may change in each mode. The environment never does: it holds the tasks and what judges them."""

STRUCTURE_MODE = "structure"
"""The mode in which a model proposes edits of skills alone, and a gate decides on edits of agents."""


SOLUTION_MODE, JOINT_MODE = "solution_only", "joint"
"""The modes that need an executor with rounds: the program is frozen and answers alone improve, or both do."""


def proposed_kinds(mode: str) -> frozenset[Kind]:
    """Return the kinds of which a model may propose edits in a mode."""
    return frozenset({Kind.SKILL}) if mode == STRUCTURE_MODE else MODES[mode]


class MaskViolation(Refused):
    """A change of what may not change."""


@dataclass(frozen=True, slots=True)
class Mask:
    """What of a program may change: the parts of these kinds, but for those named."""

    kinds: frozenset[Kind]
    fixed: frozenset[str] = frozenset()

    def check(self, before: Program, after: Program) -> None:
        """Raise MaskViolation when `after` differs from `before` where nothing may."""
        parts = before.by_ref | after.by_ref
        for ref in changed_parts(before, after):
            if parts[ref].kind not in self.kinds:
                allowed = ", ".join(sorted(self.kinds)) or "nothing"
                raise MaskViolation(f"{ref} may not change in this run.", f"It evolves: {allowed}.")
            if ref in self.fixed:
                raise MaskViolation(f"{ref} is frozen and may not change.", "Only a person changes it.")


def make_mask(mode: str, program: Program) -> Mask:
    """Return the mask of a mode: frozen parts, and memory:SOUL, are left alone in every one. Raises KeyError."""
    return Mask(MODES[mode], frozenset(part.ref for part in program.parts if part.is_frozen) | {"memory:SOUL"})


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """What Evaluate found of a candidate, measured in pairs with `against`.

    safe: every gate before the measurement let it through. delta: the mean paired difference, None when too little
    was measured to say. why: in words. decision: what became of it, where that is not for Commit to decide.
    """

    candidate: Program
    against: Program
    safe: bool
    delta: float | None
    why: str = ""
    decision: str = ""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What Commit decided: `program` is the candidate when it was accepted, and what was there before when not."""

    program: Program
    accepted: bool
    why: str


Reflect = Callable[[Traces, Program], Awaitable[Sequence[Hypothesis]]]
"""Reads traces of a program and says what may be wrong with it."""

Select = Callable[[Program, Sequence[Hypothesis]], Awaitable[Sequence[Change]]]
"""Turns hypotheses about a program into the changes that are worth trying, a bounded number of them."""

Builder = Callable[[Program, Sequence[Change]], Awaitable[Program]]
"""Makes a changed program. Improve checks whatever it returns against the mask."""

Evaluate = Callable[[Program, Program], Awaitable[EvaluationResult]]
"""Measures a candidate in pairs with the program that it would replace."""

Commit = Callable[[EvaluationResult], CommitResult]
"""Accepts or refuses what was evaluated. It never sees a program that was not."""


@dataclass(frozen=True, slots=True)
class Improve(Generic[Change]):
    """A builder behind the mask: the only way to a changed program."""

    builder: Builder[Change]
    mask: Mask

    async def __call__(self, program: Program, changes: Sequence[Change]) -> Program:
        """Return the changed program. Raises MaskViolation when something changed that may not."""
        after = await self.builder(program, changes)
        self.mask.check(program, after)
        return after


def commit_if_better(evaluated: EvaluationResult) -> CommitResult:
    """Accept what is safe and better on paired validation; equal only when it is smaller."""
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
    """One round of the operators: what every optimizer repeats."""

    reflect: Reflect[Traces, Hypothesis]
    select: Select[Hypothesis, Change]
    improve: Improve[Change]
    evaluate: Evaluate
    commit: Commit

    async def __call__(self, traces: Traces, program: Program) -> CommitResult:
        """Return what was committed, which is `program` itself when nothing better came of it."""
        changes = await self.select(program, await self.reflect(traces, program))
        if not changes:
            return CommitResult(program, False, "nothing was proposed")
        candidate = await self.improve(program, changes)
        if candidate.digest == program.digest:
            return CommitResult(program, False, "nothing changed")
        return self.commit(await self.evaluate(candidate, program))
