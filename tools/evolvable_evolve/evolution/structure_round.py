"""The round of a run that restructures agents: its evidence, the recorded decision of the gate, and
the changed program.

In mode `structure` a model proposes edits of skills, as in other modes. Before one is built, the
gate reads the results of the agents on the training tasks. Where a rule holds, the iteration tries
that one change of agents instead.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from evolvable_evolve.evolution import search_operators
from evolvable_evolve.evolution.candidates import (
    MAIN,
    InvalidEdit,
    Program,
    apply_edits,
    skill_owners,
)
from evolvable_evolve.evolution.ledger import CandidateDecision, LedgerRecord
from evolvable_evolve.evolution.proposers import (
    Diagnosis,
    EditPlan,
    Evidence,
    FailureCause,
    card_question,
    cards_wanted,
    parse_cards,
    parse_diagnoses,
)
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.structure import (
    AgentTrace,
    LocalRepair,
    Restructure,
    StructureInput,
    StructureThresholds,
    decide_structure,
    summarise_structure,
)
from evolvable_evolve.evolution.task import Task, Trial
from evolvable_store.resource import Kind

STRUCTURE_TASKS = 120
"""The most training tasks that a round measures under the parent."""


async def reflect(
    run: RunContext, traces: Sequence[Evidence], program: Program
) -> Sequence[EditPlan]:
    """Have the failures diagnosed, and return the change of agents that the gate allows, else a
    plan for skills (Reflect).

    The plan for skills is the proposer's. Raises InvalidPlan, BudgetSpent, and as RunContext.ask.
    """
    failing = any(not trace.passed for trace in traces)
    diagnoses: Sequence[Diagnosis] = ()
    if failing:
        # The same question as in `search_operators.reflect` below, which is then answered from the
        # ledger.
        question = search_operators.proposer_question(run, traces, program)
        diagnoses = parse_diagnoses(await run.ask(question), question)
    record = run.state.step.get("structure") or await _decide(run, program, diagnoses)
    if record["edit"] is not None:
        edit = Restructure.from_json(record["edit"])
        return [EditPlan((), tuple(diagnoses), str(edit), record["why"], restructure=edit)]
    return await search_operators.reflect(run, traces, program) if failing else []


async def select(
    run: RunContext, program: Program, hypotheses: Sequence[EditPlan]
) -> Sequence[EditPlan]:
    """Return a change of agents as it is, else the selection of the other modes (Select)."""
    changes = [plan for plan in hypotheses if plan.restructure is not None]
    return changes or await search_operators.select_intents(run, program, hypotheses)


async def build(run: RunContext, program: Program, changes: Sequence[EditPlan]) -> Program:
    """Have the cards of a change of agents written and return the program with it; else build edits
    of skills.

    Raises InvalidEdit, and as RunContext.ask.
    """
    edit = next((plan.restructure for plan in changes if plan.restructure is not None), None)
    if edit is None:
        return await search_operators.build(run, program, changes)
    # A continued run has the candidate in its folder, and asks nothing again.
    if (done := run.state.step.get("built")) is not None:
        return run.program(done["candidate"])
    if early := sorted(set(edit.skills_moved) - validated_skills(run, program)):
        raise InvalidEdit(
            f"{', '.join(early)} was not validated.", "Only validated skills change owner."
        )
    answer: Mapping[str, Any] = {"cards": []}
    if cards_wanted(edit):
        answer = await run.ask(card_question(program, edit, redactor=run.redactor))
    program_edit = parse_cards(answer, program, edit)
    after = apply_edits(program, [program_edit], kinds=frozenset({Kind.AGENT}), max_edits=1)
    # Before anything of it is recorded.
    run.mask.check(program, after)
    search_operators.record_candidate(run, program, after, [str(edit)], str(edit))
    return after


def validated_skills(run: RunContext, program: Program) -> frozenset[str]:
    """Return the skills that may change owner: as they were in the base, or changed by an admitted
    candidate.
    """
    base = run.base.by_ref
    admitted = {
        ref
        for candidate in run.state.candidates.values()
        if candidate.decision is CandidateDecision.ADMITTED
        for ref in candidate.changed
    }
    skills = (part for part in program.parts if part.kind is Kind.SKILL)
    return frozenset(
        part.ref for part in skills if part.ref in admitted or base.get(part.ref) == part
    )


async def _decide(
    run: RunContext, program: Program, diagnoses: Sequence[Diagnosis]
) -> LedgerRecord:
    """Measure the training tasks, summarise, let the gate decide, and record the decision with its
    numbers.
    """
    tasks, state = structure_tasks(run), run.state
    trials = await run.measure([(program, task, 0) for task in tasks], f"train/{state.iteration}")
    rounds = [record for record in state.structures if record["fresh"]]
    # A parent that a round measured already is no new round: its trials come from the cache.
    fresh = all(record["parent"] != program.digest for record in state.structures)
    number = len(rounds) + fresh
    results = list(zip(tasks, trials, strict=True))
    doers = {task.id: _find_doer(trial) for task, trial in results if trial.outcome.counts}
    assigned = _find_assignments(state.structures, diagnoses, doers)
    traces = [
        AgentTrace(
            task.id,
            task.category,
            doers[task.id],
            search_operators.is_pass(run, trial),
            tuple(ref for ref in trial.read if ref.startswith(f"{Kind.SKILL}:")),
            number,
            assigned.get(task.id, ("", ""))[1],
        )
        for task, trial in results
        if task.id in doers
    ]
    owned, validated = skill_owners(program), validated_skills(run, program)
    last_seen = _find_last_seen([*rounds, {"owners": list(owned), "seen": []}], number)
    repairs = _list_repairs(run, tasks)
    round_input = StructureInput(owned, traces, validated, repairs, number, last_seen=last_seen)
    summary = summarise_structure(round_input)
    thresholds = StructureThresholds.from_settings(run.settings.structure)
    frozen = [part.ref for part in program.parts if part.kind is Kind.AGENT and part.is_frozen]
    decision = decide_structure(summary, thresholds, _find_closed_changes(run, program), frozen)
    return run.note(
        "structure",
        iteration=state.iteration,
        parent=program.digest,
        round=number,
        fresh=fresh,
        owners=sorted(owned),
        seen=sorted(set(doers.values())),
        agents=doers,
        assigned={task: list(pair) for task, pair in assigned.items()},
        action=decision.action,
        why=decision.why,
        numbers=dict(decision.numbers),
        thresholds=asdict(thresholds),
        edit=decision.edit.to_json() if decision.edit is not None else None,
        artifact=run.folder.store_json(summary.to_json()),
    )


def structure_tasks(run: RunContext) -> list[Task]:
    """Return the training tasks that a round measures, always the same."""

    def key(task: Task) -> bytes:
        return hashlib.sha256(f"structure {run.settings.seed} {task.id}".encode()).digest()

    return sorted(run.train, key=key)[:STRUCTURE_TASKS]


def _find_doer(trial: Trial) -> str:
    """Return the agent that did a task: the first that was started, else main."""
    return next((ref for ref in trial.read if ref.startswith(f"{Kind.AGENT}:")), MAIN)


def _find_assignments(
    before: Sequence[LedgerRecord], diagnoses: Sequence[Diagnosis], doers: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Return by task the agent that did it and the one that should have, by the last diagnosis.

    before: the structures of earlier rounds. doers: by task the agent that did it now. A diagnosis
    holds as long as the same agent does the task.
    """
    assigned = {
        task: (pair[0], pair[1]) for record in before for task, pair in record["assigned"].items()
    }
    for diagnosis in diagnoses:
        if diagnosis.task not in doers:
            continue
        if diagnosis.unique and diagnosis.cause is FailureCause.BAD_ASSIGNMENT and diagnosis.better:
            assigned[diagnosis.task] = (doers[diagnosis.task], diagnosis.better)
        # A later diagnosis without a better agent takes the earlier one back.
        else:
            assigned.pop(diagnosis.task, None)
    return {task: pair for task, pair in assigned.items() if doers.get(task) == pair[0]}


def _find_last_seen(rounds: Sequence[Mapping[str, Any]], number: int) -> dict[str, int]:
    """Return by agent the round of its last trace, for one without a trace the round before its
    first.
    """
    last_seen: dict[str, int] = {}
    for at, record in enumerate(rounds, 1):
        for agent in record["owners"]:
            last_seen.setdefault(agent, min(at, number) - 1)
        last_seen |= dict.fromkeys(record["seen"], at)
    return last_seen


def _list_repairs(run: RunContext, tasks: Sequence[Task]) -> list[LocalRepair]:
    """Return the measured edits of skills, with the task types that they were to repair."""
    types = {task.id: task.category for task in tasks}
    measured = (CandidateDecision.ADMITTED, CandidateDecision.REJECTED)
    repairs = []
    for digest in run.state.history:
        candidate = run.state.candidates[digest]
        if not candidate.answers or candidate.decision not in measured:
            continue
        answered = dict.fromkeys(types[task] for task in candidate.answers if task in types)
        skills = tuple(ref for ref in candidate.changed if ref.startswith(f"{Kind.SKILL}:"))
        is_admitted = candidate.decision is CandidateDecision.ADMITTED
        repairs.append(LocalRepair(candidate.name, tuple(answered), is_admitted, skills))
    return repairs


MAX_TRIES = 2
"""How often a rejected change of agents is tried in a run, each time from another program."""


def _find_closed_changes(run: RunContext, program: Program) -> set[str]:
    """Return the keys of the changes of agents that are not tried: rejected from this program, or
    too often.
    """
    ended = {record["iteration"]: record["decision"] for record in run.state.iterations}
    open_ends = (None, CandidateDecision.ADMITTED, CandidateDecision.INDECISIVE)
    lost = [
        (Restructure.from_json(record["edit"]).key, record["parent"])
        for record in run.state.structures
        if record["edit"] is not None and ended.get(record["iteration"]) not in open_ends
    ]
    often = Counter(key for key, _ in lost)
    return {key for key, parent in lost if parent == program.digest or often[key] >= MAX_TRIES}
