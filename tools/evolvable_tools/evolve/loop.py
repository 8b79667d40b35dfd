"""The loop: calibrate, search, and finalise; each step once, however often it is stopped or killed in between.

A run has no other memory than its ledger. The driver takes the step that the state asks for, and its record makes the
next state. A continued run therefore goes on exactly where it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from evolvable_store.errors import EvolvableError
from evolvable_tools.evolve import acceptance, composition, optimizers, structure_round
from evolvable_tools.evolve.final_test import choose_finalist, record_no_test, run_single_test
from evolvable_tools.evolve.ledger.run_directory import LedgerError
from evolvable_tools.evolve.ledger.run_state import CandidateDecision, RunPhase
from evolvable_tools.evolve.measured_gain import run_measurement
from evolvable_tools.evolve.narrow_test import best_of_search, run_narrow_test
from evolvable_tools.evolve.operators import STRUCTURE_MODE, Improve, OptimizerStep
from evolvable_tools.evolve.proposers.edit_plan import EditPlan
from evolvable_tools.evolve.proposers.proposer_model import NeedsAnswer, NoAnswer
from evolvable_tools.evolve.proposers.role_prompts import Evidence
from evolvable_tools.evolve.prospects import give_up_reason
from evolvable_tools.evolve.run_config import ParentStrategy
from evolvable_tools.evolve.run_context import NeedsPerson, RunContext, RunStopped, RunTampered
from evolvable_tools.evolve.staged_final import run_staged_test
from evolvable_tools.evolve.statistics.verdict import Ruling
from evolvable_tools.evolve.task import Task
from evolvable_tools.evolve.trials.budget import BudgetSpent
from evolvable_tools.evolve.trials.measurement import TrialsFailing

EvidenceStep = OptimizerStep[Sequence[Evidence], EditPlan, EditPlan]


@dataclass(frozen=True, slots=True)
class Optimizer:
    """A composition of the operators, and where each round starts from.

    fresh_only: the training batch changes only after something was accepted, as what was rejected changed nothing.
    """

    step: EvidenceStep
    strategy: ParentStrategy
    fresh_only: bool


def make_optimizer(run: RunContext) -> Optimizer:
    """Return the optimizer of a run.

    The greedy one, the default, keeps one program and measures in stages. EvoSkill has a frontier, parents in turn, and
    a new batch in every round. The reflection optimizer has one program, the best that was committed, executed again
    when it changed.
    """
    if is_greedy(run):
        evaluate, commit = composition.evaluate_in_stages, composition.commit_best
    else:
        evaluate, commit = acceptance.evaluate, acceptance.commit_to_frontier
    one_program = run.settings.optimizer == "reflection"
    if one_program:
        commit = acceptance.commit_single
    reflect, select, build = optimizers.reflect, optimizers.select_intents, optimizers.build
    if run.settings.mode == STRUCTURE_MODE:
        reflect, select, build = structure_round.reflect, structure_round.select, structure_round.build
    step: EvidenceStep = OptimizerStep(
        partial(reflect, run),
        partial(select, run),
        Improve(partial(build, run), run.mask),
        partial(evaluate, run),
        partial(commit, run),
    )
    strategy = ParentStrategy.BEST if one_program or is_greedy(run) else ParentStrategy(run.settings.parent)
    return Optimizer(step, strategy, fresh_only=one_program)


def is_greedy(run: RunContext) -> bool:
    """Return whether the run composes edits greedily."""
    return run.settings.optimizer == "greedy"


async def _calibrate(run: RunContext) -> None:
    if not is_greedy(run):
        await acceptance.calibrate_run(run)
        return
    if run.state.phase is RunPhase.NEW:
        plan = composition.plan_evaluations(run)
        await acceptance.run_pilot(run, composition.selection_tasks(run), plan)
    await composition.calibrate_selection(run)


async def run_phases(run: RunContext) -> None:
    """Take the run to its verdict. Raises NeedsAnswer, NeedsPerson, NoAnswer, RunStopped; then it can be continued."""
    if run.settings.purpose == "measure":
        await run_measurement(run)
        return
    if run.state.phase in (RunPhase.NEW, RunPhase.CHECKED):
        await _calibrate(run)
    if run.state.phase in (RunPhase.CALIBRATED, RunPhase.SEARCHING):
        await run_search(run)
    if run.state.phase is RunPhase.SEARCHED:
        await run_final_test(run)


async def run_final_test(run: RunContext) -> None:
    """Take the run to its verdict. The test is opened for at most one finalist, by the way that the settings name.

    Raises BudgetSpent when the budget ends before the test, and RunStopped.
    """
    state, settings = run.state, run.settings
    if state.exploratory:
        await run_narrow_test(run, best_of_search(run))
        return
    if settings.final == "single":
        await run_single_test(run)
        return
    if not is_greedy(run):
        try:
            finalist = await choose_finalist(run)
        except BudgetSpent as error:
            record_no_test(run, Ruling.INDECISIVE, f"{error} The test was not opened.")
            return
    else:
        best = state.candidates[state.best]
        finalist = best if best.digest != state.base and composition.best_gain(run) >= settings.open_above else None
    if finalist is None:
        why = "Nothing was found that is better than the base in the search; the test was not opened."
        record_no_test(run, Ruling.NOT_SUPPORTED, why)
        return
    await run_staged_test(run, finalist)


async def run_search(run: RunContext) -> None:
    """Propose and evaluate until a budget, a plateau or the target is reached. Raises as `run_phases`."""
    optimizer, why = make_optimizer(run), ""
    while not why:
        why = "" if run.state.step else _stop_reason(run)
        if why and is_greedy(run) and (digest := composition.next_elimination(run)):
            number, parent = run.state.iteration + 1, run.state.best
            run.note("selected", iteration=number, parent=parent, batch=number, merge=False, without=digest)
            why = ""
        if not why:
            try:
                await run_iteration(run, optimizer)
            except BudgetSpent as error:
                why = str(error)
    run.note("searched", why=why)


async def run_iteration(run: RunContext, optimizer: Optimizer) -> None:
    """Make one iteration, or what is left of it. Raises as `run_phases`, and BudgetSpent."""
    if "selected" not in run.state.step:
        _select_parent(run, optimizer)
    record = run.state.step["selected"]
    parent = run.program(record["parent"])
    try:
        if record.get("merge"):
            merged = await Improve(partial(optimizers.merge_runs, run), run.mask)(parent, run.merged)
            committed = optimizer.step.commit(await optimizer.step.evaluate(merged, parent))
        elif record.get("without"):
            fewer = await Improve(partial(composition.build_without, run), run.mask)(parent, [record["without"]])
            if fewer.digest == parent.digest:
                acceptance.record_decision(run, CandidateDecision.NO_PROPOSAL, "later edits overlap it")
                return
            committed = optimizer.step.commit(await optimizer.step.evaluate(fewer, parent))
        else:
            tasks = _evidence_tasks(run, record)
            evidence = await optimizers.gather_evidence(run, parent, record, tasks)
            if all(one.passed for one in evidence) and run.settings.mode != STRUCTURE_MODE:
                acceptance.record_decision(run, CandidateDecision.NO_FAILURES, "nothing in the batch failed")
                return
            committed = await optimizer.step(evidence, parent)
    except (BudgetSpent, RunStopped, NeedsAnswer, NeedsPerson, NoAnswer, TrialsFailing, RunTampered, LedgerError):
        raise
    except EvolvableError as error:  # what was proposed cannot be built; the history tells the next proposal
        built = run.state.step.get("built")
        acceptance.record_decision(run, CandidateDecision.NO_PROPOSAL, error.text, built["candidate"] if built else "")
        return
    if run.state.step:  # the round ended before anything was committed
        acceptance.record_decision(run, CandidateDecision.NO_PROPOSAL, committed.why)


def _evidence_tasks(run: RunContext, selected: Mapping[str, Any]) -> Sequence[Task]:
    if is_greedy(run):
        return composition.evidence_tasks(run, selected["batch"])
    return optimizers.training_batch(run, selected["batch"])


def _select_parent(run: RunContext, optimizer: Optimizer) -> None:
    state, number = run.state, run.state.iteration + 1
    merge = number == 1 and bool(run.merged)
    parent = optimizers.select_parent(state.members, optimizer.strategy, number, run.settings.seed)
    accepted = sum(record["decision"] == CandidateDecision.ADMITTED for record in state.iterations)
    batch = accepted + 1 if optimizer.fresh_only else number
    run.note("selected", iteration=number, parent=parent.digest, batch=batch, merge=merge)


def _stop_reason(run: RunContext) -> str:
    """Return why no further iteration begins, '' when one does."""
    state, settings = run.state, run.settings
    if run.merged and not state.iterations:
        return ""
    done = len(state.iterations) - bool(run.merged) - len(state.eliminated)
    if done >= settings.most_proposals:
        return f"{done} of {settings.most_proposals} iterations are done"
    if done >= settings.proposals and not (
        is_greedy(run) and composition.trials_left(run) >= len(composition.selection_tasks(run))
    ):
        return f"{done} iterations are done, and the planned trials leave room for no other"
    if state.stalls >= settings.stalls and not is_greedy(run):
        return f"{state.stalls} iterations without a new best"
    if why := give_up_reason(state):
        return why
    best = state.candidates[state.best].mean
    if best is not None and best >= settings.target:
        return f"the best reaches {best:.3f} in validation"
    return ""
