"""The loop: calibrate, search, and finalise; each step once, however often it is stopped or killed in between.

A run has no other memory than its ledger. The driver takes the step that the state asks for, and its record makes the
next state. A continued run therefore goes on exactly where it was.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from evolvable_evolve.evolution import acceptance, composition, elimination, search_operators
from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.evidence_batches import gather_failures
from evolvable_evolve.evolution.final_test import choose_finalist, mean_gain, record_no_test, run_single_test
from evolvable_evolve.evolution.ledger import CandidateDecision, LedgerError, RunPhase
from evolvable_evolve.evolution.measured_gain import run_measurement
from evolvable_evolve.evolution.narrow_test import best_of_search, run_narrow_test
from evolvable_evolve.evolution.operators import STRUCTURE_MODE, Improve
from evolvable_evolve.evolution.optimizer_registry import AcceptanceGate
from evolvable_evolve.evolution.optimizers import Optimizer, compose_step, open_optimizer
from evolvable_evolve.evolution.proposers import Evidence, NeedsAnswer, NoAnswer
from evolvable_evolve.evolution.prospects import give_up_reason
from evolvable_evolve.evolution.run_context import NeedsPerson, RunContext, RunStopped, RunTampered
from evolvable_evolve.evolution.staged_final import run_staged_test
from evolvable_evolve.evolution.statistics import Ruling
from evolvable_evolve.evolution.trials import BudgetSpent, TrialsFailing
from evolvable_store.errors import EvolvableError, TryAgain


def is_staged(run: RunContext) -> bool:
    """Return whether the run composes edits greedily, measured in stages."""
    return run.settings.gate is AcceptanceGate.STAGED


async def _calibrate(run: RunContext) -> None:
    if not is_staged(run):
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
    if not is_staged(run):
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
    gain = (
        composition.best_gain(run)
        if is_staged(run)
        else mean_gain(finalist.scores, state.candidates[state.base].scores)
    )
    await run_staged_test(run, finalist, gain)


async def run_search(run: RunContext) -> None:
    """Propose and evaluate until a budget, a plateau or the target is reached. Raises as `run_phases`."""
    optimizer, why = open_optimizer(run), ""
    while not why:
        why = "" if run.state.step else _stop_reason(run, optimizer)
        if why and is_staged(run) and (digest := elimination.next_elimination(run)):
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
    parent, step = run.program(record["parent"]), compose_step(run, optimizer)
    try:
        if record.get("merge"):
            merged = await Improve(partial(search_operators.merge_runs, run), run.mask)(parent, run.merged)
            committed = step.commit(await step.evaluate(merged, parent))
        elif record.get("without"):
            fewer = await Improve(partial(elimination.build_without, run), run.mask)(parent, [record["without"]])
            if fewer.digest == parent.digest:
                acceptance.record_decision(run, CandidateDecision.NO_PROPOSAL, "later edits overlap it")
                return
            committed = step.commit(await step.evaluate(fewer, parent))
        else:
            evidence = await _gather_evidence(run, parent, record)
            if all(one.passed for one in evidence) and run.settings.mode != STRUCTURE_MODE:
                acceptance.record_decision(run, CandidateDecision.NO_FAILURES, "nothing in the batch failed")
                return
            committed = await step(evidence, parent)
    except (
        BudgetSpent,
        RunStopped,
        NeedsAnswer,
        NeedsPerson,
        NoAnswer,
        TrialsFailing,
        RunTampered,
        LedgerError,
        TryAgain,
    ):
        raise
    except EvolvableError as error:  # what was proposed cannot be built; the history tells the next proposal
        built = run.state.step.get("built")
        acceptance.record_decision(run, CandidateDecision.NO_PROPOSAL, error.text, built["candidate"] if built else "")
        return
    if run.state.step:  # the round ended before anything was committed
        acceptance.record_decision(run, CandidateDecision.NO_PROPOSAL, committed.why)


async def _gather_evidence(run: RunContext, parent: Program, selected: Mapping[str, Any]) -> Sequence[Evidence]:
    if is_staged(run) and run.settings.mode != STRUCTURE_MODE:
        return await gather_failures(run, parent, selected)
    chosen = composition.evidence_tasks if is_staged(run) else search_operators.training_batch
    tasks = chosen(run, selected["batch"])
    return await search_operators.gather_evidence(run, parent, selected, tasks)


def _select_parent(run: RunContext, optimizer: Optimizer) -> None:
    state, number = run.state, run.state.iteration + 1
    merge = number == 1 and bool(run.merged)
    parent = search_operators.select_parent(state.members, optimizer.strategy, number, run.settings.seed)
    accepted = sum(record["decision"] == CandidateDecision.ADMITTED for record in state.iterations)
    batch = accepted + 1 if optimizer.fresh_only else number
    run.note("selected", iteration=number, parent=parent.digest, batch=batch, merge=merge)


def _stop_reason(run: RunContext, optimizer: Optimizer) -> str:
    """Return why no further iteration begins, '' when one does."""
    state, settings = run.state, run.settings
    if run.merged and not state.iterations:
        return ""
    done = len(state.iterations) - bool(run.merged) - len(state.eliminated)
    if done >= settings.most_proposals:
        return f"{done} of {settings.most_proposals} iterations are done"
    if done >= settings.proposals and not (
        is_staged(run)
        and composition.trials_left(run) >= len(composition.selection_tasks(run)) + composition.sampled_trials(run)
    ):
        return f"{done} iterations are done, and the planned trials leave room for no other"
    if state.stalls >= settings.stalls and not is_staged(run):
        return f"{state.stalls} iterations without a new best"
    if why := give_up_reason(state) or optimizer.converged():
        return why
    best = state.candidates[state.best].mean
    if best is not None and best >= settings.target:
        return f"the best reaches {best:.3f} in validation"
    return ""
