"""The operators Reflect, Select and Improve with a model behind them, the training batch, and the merge of runs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from evolvable_store.frontmatter import parse_document
from evolvable_tools.evolve.candidates import programs
from evolvable_tools.evolve.candidates.programs import Program, ProgramPart, apply_edits
from evolvable_tools.evolve.candidates.static_gate import LeakCorpus
from evolvable_tools.evolve.optimizers import selection
from evolvable_tools.evolve.proposers import role_prompts
from evolvable_tools.evolve.proposers.edit_plan import EditIntent, EditPlan
from evolvable_tools.evolve.proposers.role_prompts import Evidence
from evolvable_tools.evolve.run_context import RunContext
from evolvable_tools.evolve.task import Task, Trial

NEAR_MISS = 0.5
"""The score from which on a failure is a near miss."""


def training_batch(run: RunContext, number: int) -> tuple[Task, ...]:
    """Return the tasks of a batch, counted from 1."""
    categories, each = run.settings.batch
    return selection.sample_batch(run.train, number, categories=categories, per_category=each, seed=run.settings.seed)


async def gather_evidence(run: RunContext, parent: Program, selected: Mapping[str, Any]) -> list[Evidence]:
    """Return the results of the batch under the parent: failures and successes. Raises BudgetSpent, RunStopped."""
    tasks = training_batch(run, selected["batch"])
    trials = await run.measure([(parent, task, 0) for task in tasks], f"train/{selected['iteration']}")
    counted = [(task, trial) for task, trial in zip(tasks, trials, strict=True) if trial.outcome.counts]
    if "rolled" not in run.state.step:
        run.note(
            "rolled",
            iteration=selected["iteration"],
            scores={task.id: trial.score for task, trial in counted},
            missing=[task.id for task, trial in zip(tasks, trials, strict=True) if not trial.outcome.counts],
        )
    failed = Counter(task.category for task, trial in counted if not _is_pass(run, trial))
    return [
        Evidence(task, trial, _is_pass(run, trial), _evidence_reason(run, task, trial, failed, parent))
        for task, trial in counted
    ]


def _is_pass(run: RunContext, trial: Trial) -> bool:
    return trial.score is not None and trial.score >= run.settings.fail_below


def _evidence_reason(run: RunContext, task: Task, trial: Trial, failed: Mapping[str, int], parent: Program) -> str:
    """Return the reason for which a result is kept, '' for a failure like any other."""
    reasons: Sequence[tuple[bool, str]] = (
        (_is_pass(run, trial), "it works, and must go on working"),
        ((trial.score or 0.0) >= NEAR_MISS, "near miss"),
        (bool(parent.parts) and bool(trial.trace) and not trial.read, "no resource was read"),
        (failed[task.category] > 1, f"{failed[task.category]} of this category failed"),
    )
    return next((text for holds, text in reasons if holds), "")


class ModelReflect:
    """Reflect: the proposer reads the evidence, and says what is wrong and what it intends."""

    def __init__(self, run: RunContext) -> None:
        self._run = run

    async def __call__(self, traces: Sequence[Evidence], program: Program) -> Sequence[EditPlan]:
        """Return one plan. Raises BadPlan, and as Run.ask."""
        run, most, kinds = self._run, allowed_edits(self._run), self._run.mask.kinds
        asked = role_prompts.proposer_question(
            program, traces, redactor=run.redactor, history=list(iteration_history(run)), kinds=kinds, max_edits=most
        )
        answer = await run.ask(asked)
        corpus = LeakCorpus([*run.train, *run.val])
        plan = role_prompts.parse_plan(answer, program, asked, kinds=kinds, max_edits=most, corpus=corpus)
        if "proposed" not in run.state.step:
            kept = run.folder.keep_json({"summary": plan.summary, "why": plan.why, "dropped": list(plan.dropped)})
            run.note("proposed", iteration=run.state.iteration, artifact=kept, summary=plan.summary)
        return [plan]


class IntentSelect:
    """Select: of what is intended, a bounded number, and nothing that was turned down in the same words."""

    def __init__(self, run: RunContext) -> None:
        self._run = run

    async def __call__(self, program: Program, hypotheses: Sequence[EditPlan]) -> Sequence[EditPlan]:
        """Return the plans with what is worth building; none when nothing is left."""
        tried = {one for candidate in self._run.state.rejected for one in candidate.operations}
        kept = []
        for plan in hypotheses:
            fresh = tuple(intent for intent in plan.intents if describe_intent(intent) not in tried)
            if fresh:
                kept.append(replace(plan, intents=fresh[: allowed_edits(self._run)]))
        return kept


class ModelBuilder:
    """The builder behind Improve: writes what is intended, and applies it as bounded edits."""

    def __init__(self, run: RunContext) -> None:
        self._run = run

    async def __call__(self, program: Program, changes: Sequence[EditPlan]) -> Program:
        """Return the changed program, kept in the run's folder. Raises BadEdit, and as Run.ask."""
        run = self._run
        if (done := run.state.step.get("built")) is not None:
            return run.program(done["candidate"])
        after, operations = program, list[str]()
        for plan in changes:
            kinds = run.mask.kinds
            answer = await run.ask(role_prompts.builder_question(after, plan, redactor=run.redactor, kinds=kinds))
            edits = role_prompts.parse_edits(answer, plan, allowed_edits(run))
            after = apply_edits(after, edits, kinds=kinds, max_edits=allowed_edits(run))
            operations += [describe_intent(intent) for intent in plan.intents]
        run.mask.check(program, after)  # before anything of it is kept; Improve looks again
        record_candidate(run, [program], after, operations, "; ".join(plan.summary for plan in changes))
        return after


def record_candidate(
    run: RunContext, parents: Sequence[Program], after: Program, operations: Sequence[str], summary: str
) -> None:
    """Keep a candidate and write down where it comes from."""
    run.folder.keep_program(after)
    state = run.state
    run.note(
        "built",
        iteration=state.iteration,
        candidate=after.digest,
        name=f"c{state.iteration}",
        parents=[parent.digest for parent in parents],
        operations=list(operations),
        summary=summary,
        changed=programs.changed_parts(parents[0], after),
        size=after.size,
        diff=run.folder.keep(programs.diff_programs(parents[0], after)),
    )


def describe_intent(intent: EditIntent) -> str:
    """Return an intent on one line, for people and for telling two apart."""
    said = intent.modification or intent.capability or intent.problem
    other = f" and {intent.other}" if intent.other else ""
    return f"{intent.op} {intent.ref}{other}: {said}"


def allowed_edits(run: RunContext) -> int:
    """Return how many edits this iteration may make: many at first, few at the end."""
    most, least = run.settings.edits
    share = (run.state.iteration - 1) / max(1, run.settings.iterations - 1)
    return max(1, round(most - (most - min(least, most)) * min(1.0, max(0.0, share))))


def iteration_history(run: RunContext) -> Iterator[role_prompts.PastIteration]:
    """Yield what the iterations before this one tried, with their results, the rejected ones included."""
    state = run.state
    for record in state.iterations:
        candidate = state.candidates.get(record["candidate"])
        tried = "; ".join(candidate.operations) or candidate.summary if candidate else record.get("summary", "")
        yield role_prompts.PastIteration(
            record["iteration"],
            tried,
            record["decision"],
            candidate.delta if candidate else None,
            candidate.fixed if candidate else (),
            candidate.broken if candidate else (),
            record["why"],
        )


SIMILARITY_THRESHOLD = 0.9
"""The similarity of texts from which on two parts are named as doubles; both stay, as nobody measured either alone."""


MAX_COMPARED_WORDS = 2_000
"""Words of a part that are compared."""


@dataclass(frozen=True, slots=True)
class MergedProgram:
    """The union of several programs. told: what was decided for whom, and which parts say nearly the same."""

    program: Program
    told: tuple[str, ...]


class RunMerger:
    """The builder behind Improve in the iteration of a merge: there is nothing to propose, only to put together."""

    def __init__(self, run: RunContext) -> None:
        self._run = run

    async def __call__(self, program: Program, changes: Sequence[tuple[str, Program]]) -> Program:
        """Return the merge of the finalists, written down as the candidate of this iteration."""
        run = self._run
        if (done := run.state.step.get("built")) is not None:
            return run.program(done["candidate"])
        merged, names = merge_finalists(changes), ", ".join(name for name, _ in changes)
        run.mask.check(program, merged.program)  # before anything of it is kept; Improve looks again
        record_candidate(
            run, [program], merged.program, list(merged.told) or [f"union of {names}"], f"merge of the runs {names}"
        )
        return merged.program


def merge_finalists(finalists: Sequence[tuple[str, Program]]) -> MergedProgram:
    """Return the union of these programs, the highest scoring first: of parts with one name or one description the
    first is kept.
    """
    kept: dict[str, tuple[str, ProgramPart]] = {}
    told: list[str] = []
    for run, program in finalists:
        for part in program.parts:
            twin = _find_twin(part, kept)
            if twin is None:
                kept[part.ref] = (run, part)
            elif twin[1].tree != part.tree:
                told.append(f"{part.ref} of run {run} gives way to {twin[1].ref} of run {twin[0]}")
    parts = [part for _, part in kept.values()]
    told += [f"{one.ref} and {other.ref} say nearly the same" for one, other in _similar_parts(parts)]
    return MergedProgram(programs.make_program(parts), tuple(told))


def _find_twin(part: ProgramPart, kept: dict[str, tuple[str, ProgramPart]]) -> tuple[str, ProgramPart] | None:
    if part.ref in kept:
        return kept[part.ref]
    said = _description(part)
    same = (one for one in kept.values() if one[1].kind is part.kind and said and _description(one[1]) == said)
    return next(same, None)


def _similar_parts(parts: Sequence[ProgramPart]) -> list[tuple[ProgramPart, ProgramPart]]:
    pairs = [(one, other) for number, one in enumerate(parts) for other in parts[number + 1 :]]
    return [
        (one, other)
        for one, other in pairs
        if one.kind is other.kind and _similarity(one, other) >= SIMILARITY_THRESHOLD
    ]


def _similarity(one: ProgramPart, other: ProgramPart) -> float:
    first, second = (_main_text(part).casefold().split()[:MAX_COMPARED_WORDS] for part in (one, other))
    compared = SequenceMatcher(None, first, second, autojunk=False)
    return compared.ratio() if compared.real_quick_ratio() >= SIMILARITY_THRESHOLD else 0.0


def _description(part: ProgramPart) -> str:
    description = parse_document(part.main).fields.get("description", "") if part.main is not None else ""
    return " ".join(str(description).casefold().split())


def _main_text(part: ProgramPart) -> str:
    return part.texts.get(part.main_path, "")
