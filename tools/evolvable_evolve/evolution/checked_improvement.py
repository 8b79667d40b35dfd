"""One round of the operators without a task set: checked answers are the evidence and the
evaluation.

Reflect, Select, Improve, Evaluate and Commit work as in a search. The caller asks the model and
measures, and records every answer and measurement. A second call of an interrupted round therefore
repeats nothing.
"""

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evolvable_evolve.evolution.candidates import (
    EditOperation,
    InvalidEdit,
    LeakCorpus,
    Program,
    ProgramPart,
    apply_edits,
    changed_parts,
    check_candidate,
)
from evolvable_evolve.evolution.operators import (
    CommitResult,
    EvaluationResult,
    Improve,
    Mask,
    MaskViolation,
    OptimizerStep,
    commit_if_better,
)
from evolvable_evolve.evolution.proposers import (
    EditPlan,
    Evidence,
    InvalidPlan,
    ModelQuestion,
    PastIteration,
    builder_question,
    parse_edits,
    parse_plan,
    proposer_question,
)
from evolvable_evolve.evolution.task import ModelUsage, Task, Trial, TrialOutcome
from evolvable_store import parse_document
from evolvable_store.resource import Kind
from evolvable_tools.redaction import Redactor

KINDS = frozenset({Kind.SKILL, Kind.AGENT})
"""The kinds that may change: texts that a worker reads. Memories have rules of their own."""

MAX_CHANGES = 2
"""The most edits of one round."""

_OPERATIONS = frozenset({EditOperation.EDIT, EditOperation.RESTRUCTURE})
_FREE_FIELDS = frozenset({"description"})  # of a head; every other field may grant something

AskModel = Callable[[ModelQuestion], Awaitable[Mapping[str, Any]]]
"""Asks a model and returns its answer, or the answer that it gave to the same question before."""


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """An answer with the result of its check. answer: with the text of the check."""

    task: Task
    answer: str
    passed: bool


@dataclass(frozen=True, slots=True)
class PairedCheck:
    """Whether a task passed its check in a fresh run under the program as it was, and under the
    candidate.
    """

    task: str
    before: bool
    after: bool


MeasurePairs = Callable[[Program], Awaitable[Sequence[PairedCheck]]]
"""Runs the tasks under the program as it was and under this candidate."""


@dataclass(frozen=True)
class ProgramImprovement:
    """Result of one round. program: in force now. candidate: the digest of the tried program, ''
    for none.

    changed: refs of the parts that the candidate changes. pairs: the measured ones.
    """

    program: Program
    accepted: bool
    why: str
    summary: str = ""
    candidate: str = ""
    changed: tuple[str, ...] = ()
    pairs: tuple[PairedCheck, ...] = ()


@dataclass
class _Round:
    """One round. ask, measure: of the caller. The fields from `summary` on are set by its steps."""

    ask: AskModel
    measure: MeasurePairs
    redactor: Redactor
    corpus: LeakCorpus
    history: Sequence[PastIteration]
    known_digests: Container[str]
    summary: str = ""
    candidate: str = ""
    changed: tuple[str, ...] = ()
    pairs: Sequence[PairedCheck] = field(default_factory=tuple)

    async def reflect(self, traces: Sequence[Evidence], program: Program) -> Sequence[EditPlan]:
        """Return the plan that a proposer makes of the evidence. Raises InvalidPlan."""
        question = proposer_question(
            program,
            traces,
            redactor=self.redactor,
            history=self.history,
            kinds=KINDS,
            max_edits=MAX_CHANGES,
        )
        answer = await self.ask(question)
        plan = parse_plan(
            answer, program, question, kinds=KINDS, max_edits=MAX_CHANGES, corpus=self.corpus
        )
        self.summary = plan.summary
        return [plan]

    async def select(self, program: Program, hypotheses: Sequence[EditPlan]) -> Sequence[EditPlan]:
        """Return the plans without intents that create, split, merge or remove parts."""
        plans = []
        for plan in hypotheses:
            intents = tuple(intent for intent in plan.intents if intent.op in _OPERATIONS)
            if intents:
                plans.append(replace(plan, intents=intents))
        return plans

    async def build(self, program: Program, changes: Sequence[EditPlan]) -> Program:
        """Return the program with a builder's edits. Raises InvalidEdit, MaskViolation."""
        after = program
        for plan in changes:
            question = builder_question(after, plan, redactor=self.redactor, kinds=KINDS)
            edits = parse_edits(await self.ask(question), plan, MAX_CHANGES)
            after = apply_edits(after, edits, kinds=KINDS, max_edits=MAX_CHANGES)
        # The builder may write any field of a head, so the result is checked and not its intent.
        _check_heads(program, after)
        return after

    async def evaluate(self, candidate: Program, against: Program) -> EvaluationResult:
        """Return the result of the pairs.

        A candidate that spoils a passed task is not safe, even if it improves others.
        """
        self.candidate, self.changed = candidate.digest, tuple(changed_parts(against, candidate))
        # Before anything is measured: a candidate that leaks tasks would pass them.
        report = check_candidate(
            against, candidate, corpus=self.corpus, known_digests=self.known_digests
        )
        if not report.passed:
            return EvaluationResult(candidate, against, False, None, report.why)
        self.pairs = await self.measure(candidate)
        # Nothing could be run: no gate refused the candidate, and no difference accepts it.
        if not self.pairs:
            return EvaluationResult(candidate, against, True, None)
        if lost := [pair.task for pair in self.pairs if pair.before and not pair.after]:
            return EvaluationResult(candidate, against, False, None, f"it spoils {', '.join(lost)}")
        gained = sum(pair.after - pair.before for pair in self.pairs)
        return EvaluationResult(candidate, against, True, gained / len(self.pairs))


async def improve_program(
    program: Program,
    answers: Sequence[CheckedAnswer],
    *,
    ask: AskModel,
    measure: MeasurePairs,
    redactor: Redactor,
    history: Sequence[PastIteration] = (),
    known_digests: Container[str] = (),
) -> ProgramImprovement:
    """Try one change of a program by one round of the operators, and return the program in force
    after it.

    A candidate is accepted where more tasks pass under it, none is spoiled, and the static gate
    passes. history: the rounds before this one. known_digests: digests of candidates that were
    tried. Raises what `ask` and `measure` raise.
    """
    corpus = LeakCorpus([answer.task for answer in answers])
    work = _Round(ask, measure, redactor, corpus, history, known_digests)
    frozen = frozenset(part.ref for part in program.parts if part.is_frozen)
    step = OptimizerStep(
        work.reflect,
        work.select,
        Improve(work.build, Mask(KINDS, frozen)),
        work.evaluate,
        _commit_if_gained,
    )
    try:
        ended = await step([_make_evidence(answer) for answer in answers], program)
    # A bad answer of a model ends this round as a rejection, and not the work of the caller.
    except (InvalidPlan, InvalidEdit, MaskViolation) as error:
        ended = CommitResult(program, False, error.text)
    return ProgramImprovement(
        ended.program,
        ended.accepted,
        ended.why,
        work.summary,
        work.candidate,
        work.changed,
        tuple(work.pairs),
    )


def _commit_if_gained(evaluated: EvaluationResult) -> CommitResult:
    """Accept a candidate under which more tasks pass.

    A search may keep one that is as good and smaller; a few tasks do not carry that.
    """
    if evaluated.safe and evaluated.delta == 0:
        return CommitResult(evaluated.against, False, "no more items pass with it")
    return commit_if_better(evaluated)


def _make_evidence(answer: CheckedAnswer) -> Evidence:
    outcome = TrialOutcome.PASS if answer.passed else TrialOutcome.FAIL
    trial = Trial(
        "", answer.task.id, "", 0, outcome, float(answer.passed), ModelUsage(), 0.0, answer.answer
    )
    reason = "it works, and must go on working" if answer.passed else ""
    return Evidence(answer.task, trial, answer.passed, reason)


def _check_heads(before: Program, after: Program) -> None:
    """Raise MaskViolation where a part is added or removed, or a head differs in a field other than
    its description.
    """
    old, new = before.by_ref, after.by_ref
    if old.keys() != new.keys():
        raise MaskViolation("No part may come or go here.", "Change what is there.")
    for ref in changed_parts(before, after):
        was, now = (_read_granting_fields(part) for part in (old[ref], new[ref]))
        if was != now:
            names = sorted(name for name in {*was, *now} if was.get(name) != now.get(name))
            raise MaskViolation(
                f"The head of {ref} may not change: {', '.join(names)}.", "A person changes it."
            )


def _read_granting_fields(part: ProgramPart) -> Mapping[str, Any]:
    fields = parse_document(part.main or b"").fields
    return {name: value for name, value in fields.items() if name not in _FREE_FIELDS}
