"""Optimizers: the frontier, the choice of parents and tasks, the operators with a model behind
them, and merging runs.

The Pareto front over tasks is the literal mechanism of GEPA, down to its draw. Programs are
numbers: indexes of a list.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import combinations
from math import ceil
from typing import Any

from evolvable_evolve.evolution import candidates, proposers
from evolvable_evolve.evolution.candidates import MAIN, Program, ProgramPart, apply_edits
from evolvable_evolve.evolution.ledger import RunCandidate
from evolvable_evolve.evolution.operators import STRUCTURE_MODE
from evolvable_evolve.evolution.proposers import (
    EditIntent,
    EditPlan,
    Evidence,
    ModelQuestion,
    QuestionGuide,
    parse_edits,
    parse_plan,
)
from evolvable_evolve.evolution.run_config import ParentStrategy
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.task import Task, Trial
from evolvable_store import parse_document
from evolvable_store.errors import InvalidArgument

Front = Mapping[int, Sequence[int]]
"""For each task the programs with the highest score at it, in ascending order."""


def pareto_front(scores: Sequence[Sequence[float]]) -> dict[int, list[int]]:
    """Return the front of `scores`, one row for each program with one score for each task."""
    best: dict[int, list[int]] = {}
    for task in range(len(scores[0]) if scores else 0):
        column = [row[task] for row in scores]
        best[task] = [program for program, score in enumerate(column) if score == max(column)]
    return best


def reduce_front(front: Front, aggregate: Sequence[float]) -> dict[int, list[int]]:
    """Return the front without dominated programs.

    A program is dominated when at every task where it is among the best another remaining one is
    too. They are removed one by one, those with the lowest `aggregate` first, and after each
    removal all are judged again.
    """
    places = _group_by_program(front)
    remaining = set(places)
    order = sorted(places, key=lambda program: aggregate[program])

    def find_dominated() -> int | None:
        for program in order:
            if program in remaining and _is_dominated(program, places[program], front, remaining):
                return program
        return None

    while (dominated := find_dominated()) is not None:
        remaining.discard(dominated)
    return {
        task: [program for program in best if program in remaining] for task, best in front.items()
    }


def front_weights(front: Front) -> dict[int, int]:
    """Return at how many tasks each program of the front is among the best, in order of first
    appearance.
    """
    return {program: len(tasks) for program, tasks in _group_by_program(front).items()}


def sample_front(front: Front, aggregate: Sequence[float], chance: random.Random) -> int:
    """Return a program of the reduced front, drawn in proportion to the tasks it is among the best
    at.
    """
    weights = front_weights(reduce_front(front, aggregate))
    return chance.choice([program for program, count in weights.items() for _ in range(count)])


def _group_by_program(front: Front) -> dict[int, list[int]]:
    places: dict[int, list[int]] = {}
    for task, best in front.items():
        for program in best:
            places.setdefault(program, []).append(task)
    return places


def _is_dominated(program: int, tasks: Sequence[int], front: Front, remaining: set[int]) -> bool:
    return all(
        any(other != program and other in remaining for other in front[task]) for task in tasks
    )


def select_parent(
    members: Sequence[RunCandidate], strategy: ParentStrategy, iteration: int, seed: int = 0
) -> RunCandidate:
    """Return the parent of the `iteration`-th proposal, counted from 1, out of `members` in order
    of admission.

    The same arguments give the same parent. `pareto` draws among the members that are best at some
    task, each as often as there are tasks it is best at. Members without scores of the same tasks
    are chosen by round robin.
    """
    if not members:
        raise InvalidArgument(
            "The frontier is empty: there is no program to start from.", "Measure the base first."
        )
    # By the iteration, so that a continued run draws the same parent.
    chance = random.Random(f"{seed}:{iteration}")
    if strategy is ParentStrategy.BEST:
        return max(members, key=lambda member: member.rank)
    if strategy is ParentStrategy.RANDOM:
        return members[chance.randrange(len(members))]
    if strategy is ParentStrategy.PARETO:
        shared = sorted(set.intersection(*(set(member.scores) for member in members)))
        if shared:
            # Members measured on different tasks cannot be compared.
            rows = [[member.scores[task] for task in shared] for member in members]
            means = [member.mean or 0.0 for member in members]
            return members[sample_front(pareto_front(rows), means, chance)]
    return members[(iteration - 1) % len(members)]


def sample_batch(
    tasks: Sequence[Task],
    iteration: int,
    *,
    categories: int = 3,
    per_category: int = 2,
    seed: int = 0,
) -> tuple[Task, ...]:
    """Return the tasks of the `iteration`-th batch, counted from 1; no task is twice in a batch.

    It depends on nothing but its arguments, so that a resumed run goes on with the same batches.
    Each turn of a category takes the next of its tasks, in an order drawn for every round through
    them.
    """
    pools: dict[str, list[Task]] = {}
    for task in tasks:
        pools.setdefault(task.category, []).append(task)
    names, chosen = sorted(pools), list[Task]()
    width = min(categories, len(names))
    for step in range((iteration - 1) * width, iteration * width):
        name = names[step % len(names)]
        chosen += _take_turn(pools[name], step // len(names), per_category, f"{seed}:{name}")
    return tuple(chosen)


def _take_turn(pool: Sequence[Task], turn: int, size: int, salt: str) -> Iterable[Task]:
    """Return the tasks of the `turn`-th turn (from 0) of a category; in the last turn of a round
    fewer may be left.
    """
    rounds, place = divmod(turn, ceil(len(pool) / size))

    def draw(task: Task) -> bytes:
        return hashlib.sha256(f"{salt}:{rounds}:{task.id}".encode()).digest()

    return sorted(pool, key=draw)[place * size : (place + 1) * size]


FIRST_FRESH = 1
"""The first repeat number after calibration; a comparison adds the number of its iteration."""

NEAR_MISS = 0.5
"""The score from which on a failure is a near miss."""


def training_batch(run: RunContext, number: int) -> tuple[Task, ...]:
    """Return the tasks of a batch, counted from 1."""
    categories, each = run.settings.batch
    return sample_batch(
        run.train, number, categories=categories, per_category=each, seed=run.settings.seed
    )


async def gather_evidence(
    run: RunContext, parent: Program, selected: Mapping[str, Any], tasks: Sequence[Task]
) -> list[Evidence]:
    """Return the results of a batch under the parent: failures and successes.

    Raises BudgetSpent, RunStopped.
    """
    requests = [(parent, task, 0) for task in tasks]
    trials = await run.measure(requests, f"train/{selected['iteration']}")
    results = list(zip(tasks, trials, strict=True))
    note_rolled(run, selected, results)
    return list_evidence(run, parent, results)


def note_rolled(
    run: RunContext, selected: Mapping[str, Any], results: Sequence[tuple[Task, Trial]]
) -> None:
    """Record once which training tasks an iteration ran, with their scores."""
    # A continued run has recorded them already.
    if "rolled" in run.state.step:
        return
    run.note(
        "rolled",
        iteration=selected["iteration"],
        scores={task.id: trial.score for task, trial in results if trial.outcome.counts},
        missing=[task.id for task, trial in results if not trial.outcome.counts],
    )


def list_evidence(
    run: RunContext, parent: Program, results: Sequence[tuple[Task, Trial]]
) -> list[Evidence]:
    """Return the results that counted, as reasons for a change."""
    counted = [(task, trial) for task, trial in results if trial.outcome.counts]
    failed = Counter(task.category for task, trial in counted if not is_pass(run, trial))
    return [make_evidence(run, task, trial, parent, failed) for task, trial in counted]


def make_evidence(
    run: RunContext,
    task: Task,
    trial: Trial,
    parent: Program,
    failed: Mapping[str, int],
    sample: Mapping[str, float] | None = None,
) -> Evidence:
    """Return a trial as a reason for a change, labelled by its own score.

    failed: tasks of the batch by category.
    """
    reason = _find_reason(run, task, trial, failed, parent)
    return Evidence(task, trial, is_pass(run, trial), reason, sample)


def is_pass(run: RunContext, trial: Trial) -> bool:
    """Return whether a trial passed by the run's own pass score."""
    return trial.score is not None and trial.score >= run.settings.fail_below


def _find_reason(
    run: RunContext, task: Task, trial: Trial, failed: Mapping[str, int], parent: Program
) -> str:
    """Return the reason why a result is shown, '' for a failure like any other."""
    # The first that holds is shown, so the most telling come first.
    reasons: Sequence[tuple[bool, str]] = (
        (is_pass(run, trial), "it works, and must go on working"),
        ((trial.score or 0.0) >= NEAR_MISS, "near miss"),
        (bool(parent.parts) and bool(trial.trace) and not trial.read, "no resource was read"),
        (failed[task.category] > 1, f"{failed[task.category]} of this category failed"),
    )
    return next((text for holds, text in reasons if holds), "")


async def reflect(
    run: RunContext,
    traces: Sequence[Evidence],
    program: Program,
    guide: QuestionGuide | None = None,
) -> Sequence[EditPlan]:
    """Return the proposer's diagnoses of the evidence and its intents, as one plan (Reflect).

    Raises InvalidPlan, and as RunContext.ask.
    """
    most, kinds = allowed_edits(run), run.proposed_kinds
    question = proposer_question(run, traces, program, guide)
    answer = await run.ask(question)
    plan = parse_plan(answer, program, question, kinds=kinds, max_edits=most, corpus=run.corpus)
    # A continued run parses the same answer again, and records it once.
    if "proposed" not in run.state.step:
        record = {"summary": plan.summary, "why": plan.why, "dropped": list(plan.dropped)}
        artifact = run.folder.store_json(record)
        run.note("proposed", iteration=run.state.iteration, artifact=artifact, summary=plan.summary)
    return [plan]


def proposer_question(
    run: RunContext,
    traces: Sequence[Evidence],
    program: Program,
    guide: QuestionGuide | None = None,
) -> ModelQuestion:
    """Return the question to the proposer of this iteration, the same until the iteration ends."""
    agents = list(candidates.skill_owners(program)) if run.settings.mode == STRUCTURE_MODE else []
    return proposers.proposer_question(
        program,
        traces,
        redactor=run.redactor,
        history=list(iteration_history(run)),
        kinds=run.proposed_kinds,
        max_edits=allowed_edits(run),
        agents=agents,
        guide=guide,
    )


async def select_intents(
    run: RunContext, program: Program, hypotheses: Sequence[EditPlan]
) -> Sequence[EditPlan]:
    """Return a bounded number of the intents, without those that were rejected in the same words
    (Select).

    Plans without intents are left out.
    """
    tried = {operation for candidate in run.state.rejected for operation in candidate.operations}
    plans = []
    for plan in hypotheses:
        fresh = tuple(intent for intent in plan.intents if describe_intent(intent) not in tried)
        if fresh:
            plans.append(replace(plan, intents=fresh[: allowed_edits(run)]))
    return plans


async def build(run: RunContext, program: Program, changes: Sequence[EditPlan]) -> Program:
    """Have the intents written, and return the program with these bounded edits, recorded as the
    candidate.

    Raises InvalidEdit, and as RunContext.ask.
    """
    # A continued run has the candidate in its folder, and asks nothing again.
    if (done := run.state.step.get("built")) is not None:
        return run.program(done["candidate"])
    after, operations, kinds = program, list[str](), run.proposed_kinds
    # Each plan is built on the program after the one before it.
    for plan in changes:
        question = proposers.builder_question(after, plan, redactor=run.redactor, kinds=kinds)
        edits = parse_edits(await run.ask(question), plan, allowed_edits(run))
        after = apply_edits(after, edits, kinds=kinds, max_edits=allowed_edits(run))
        operations += [describe_intent(intent) for intent in plan.intents]
    intents = [intent for plan in changes for intent in plan.intents]
    if run.settings.mode == STRUCTURE_MODE:
        after = candidates.settle_owners(program, after, _find_new_owners(run, intents))
    # Before anything of it is recorded; Improve checks again.
    run.mask.check(program, after)
    answered = dict.fromkeys(task for intent in intents for task in intent.tasks)
    summary = "; ".join(plan.summary for plan in changes)
    record_candidate(run, program, after, operations, summary, tuple(answered))
    return after


def _find_new_owners(run: RunContext, intents: Sequence[EditIntent]) -> dict[str, str]:
    """Return by new skill its future owner: the agent that did most of the tasks that the skill
    answers.

    A skill that is split from another has the owners of the other, whose ref is returned for them.
    """
    did: Mapping[str, str] = run.state.step.get("structure", {}).get("agents", {})
    owners: dict[str, str] = {}
    for intent in intents:
        if intent.op is candidates.EditOperation.SPLIT:
            owners[intent.other] = intent.ref
        elif intent.op is candidates.EditOperation.CREATE:
            counts = Counter(did[task] for task in intent.tasks if task in did)
            owners[intent.ref] = counts.most_common(1)[0][0] if counts else MAIN
    return owners


def record_candidate(
    run: RunContext,
    parent: Program,
    after: Program,
    operations: Sequence[str],
    summary: str,
    answers: tuple[str, ...] = (),
) -> None:
    """Store a candidate and record where it comes from.

    answers: the training tasks that it was made for.
    """
    # Before the record that names it: a kill in between leaves a file without a record.
    run.folder.store_program(after)
    number = run.state.iteration
    run.note(
        "built",
        iteration=number,
        candidate=after.digest,
        name=f"c{number}",
        parents=[parent.digest],
        operations=list(operations),
        summary=summary,
        answers=list(answers),
        changed=candidates.changed_parts(parent, after),
        size=after.size,
        diff=run.folder.store_artifact(candidates.diff_programs(parent, after)),
    )


def describe_intent(intent: EditIntent) -> str:
    """Return an intent on one line, for people and as its key among tried ones."""
    words = intent.modification or intent.capability or intent.problem
    other = f" and {intent.other}" if intent.other else ""
    return f"{intent.op} {intent.ref}{other}: {words}"


def allowed_edits(run: RunContext) -> int:
    """Return how many edits this iteration may make: many at first, few at the end."""
    most, least = run.settings.edits
    share = (run.state.iteration - 1) / max(1, run.settings.proposals - 1)
    return max(1, round(most - (most - min(least, most)) * min(1.0, max(0.0, share))))


def iteration_history(run: RunContext) -> Iterator[proposers.PastIteration]:
    """Yield the earlier iterations with their edits and results, rejected ones included."""
    state = run.state
    for record in state.iterations:
        number, digest = record["iteration"], record["candidate"]
        # An iteration without a candidate has only its record.
        unbuilt = RunCandidate(digest, "", number, summary=record.get("summary", ""))
        candidate = state.candidates.get(digest, unbuilt)
        tried = "; ".join(candidate.operations) or candidate.summary
        yield proposers.PastIteration(
            number,
            tried,
            record["decision"],
            candidate.delta,
            candidate.fixed,
            candidate.broken,
            record["why"],
        )


SIMILARITY_THRESHOLD = 0.9
"""The similarity of texts from which on two parts are named as doubles; both stay, because neither
was measured alone.
"""

MAX_COMPARED_WORDS = 2_000
"""The most words of a part that are compared."""


async def merge_runs(
    run: RunContext, program: Program, changes: Sequence[tuple[str, Program]]
) -> Program:
    """Return the merge of the finalists of other runs, recorded as the candidate of this
    iteration.
    """
    if (done := run.state.step.get("built")) is not None:
        return run.program(done["candidate"])
    merged, decisions = merge_finalists(changes)
    names = ", ".join(name for name, _ in changes)
    # Before anything of it is recorded; Improve checks again.
    run.mask.check(program, merged)
    operations = decisions or [f"union of {names}"]
    record_candidate(run, program, merged, operations, f"merge of the runs {names}")
    return merged


def merge_finalists(finalists: Sequence[tuple[str, Program]]) -> tuple[Program, list[str]]:
    """Return the union of these programs, the highest scoring first, and the decisions on its
    parts.

    Of parts with one name or one description the first stays. Parts that say nearly the same are
    named.
    """
    by_ref: dict[str, tuple[str, ProgramPart]] = {}
    decisions: list[str] = []
    for run, program in finalists:
        for part in program.parts:
            twin = _find_twin(part, by_ref)
            if twin is None:
                by_ref[part.ref] = (run, part)
            elif twin[1].tree != part.tree:
                twin_run, kept = twin
                decisions.append(
                    f"{part.ref} of run {run} gives way to {kept.ref} of run {twin_run}"
                )
    parts = [part for _, part in by_ref.values()]
    decisions += [
        f"{first.ref} and {second.ref} say nearly the same"
        for first, second in _find_similar_parts(parts)
    ]
    return candidates.make_program(parts), decisions


def _find_twin(
    part: ProgramPart, by_ref: dict[str, tuple[str, ProgramPart]]
) -> tuple[str, ProgramPart] | None:
    if part.ref in by_ref:
        return by_ref[part.ref]
    description = _read_description(part)
    if not description:
        return None
    of_kind = (entry for entry in by_ref.values() if entry[1].kind is part.kind)
    same = (entry for entry in of_kind if _read_description(entry[1]) == description)
    return next(same, None)


def _find_similar_parts(parts: Sequence[ProgramPart]) -> list[tuple[ProgramPart, ProgramPart]]:
    pairs = (pair for pair in combinations(parts, 2) if pair[0].kind is pair[1].kind)
    return [pair for pair in pairs if _compute_similarity(*pair) >= SIMILARITY_THRESHOLD]


def _compute_similarity(one_part: ProgramPart, other_part: ProgramPart) -> float:
    texts = (part.texts.get(part.main_path, "") for part in (one_part, other_part))
    first, second = (text.casefold().split()[:MAX_COMPARED_WORDS] for text in texts)
    compared = SequenceMatcher(None, first, second, autojunk=False)
    # An upper limit that is cheap to compute spares most comparisons.
    return compared.ratio() if compared.real_quick_ratio() >= SIMILARITY_THRESHOLD else 0.0


def _read_description(part: ProgramPart) -> str:
    if part.main is None:
        return ""
    description = parse_document(part.main).fields.get("description", "")
    return " ".join(str(description).casefold().split())
