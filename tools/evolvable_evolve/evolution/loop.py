"""The loop: calibrate, search, and finalise; each step once, however often it is stopped or killed
in between.

A run has no other memory than its ledger. The driver takes the step that the state asks for, and
its record makes the next state. A continued run therefore goes on exactly where it was.
"""

from functools import partial

from evolvable_evolve.evolution import acceptance, search_operators
from evolvable_evolve.evolution.acceptance import SearchGate
from evolvable_evolve.evolution.final import run_final_test
from evolvable_evolve.evolution.ledger import CandidateDecision, LedgerError, RunPhase
from evolvable_evolve.evolution.measured_gain import run_measurement
from evolvable_evolve.evolution.operators import STRUCTURE_MODE, Improve
from evolvable_evolve.evolution.optimizers import Optimizer, compose_step, open_gate, open_optimizer
from evolvable_evolve.evolution.proposers import NeedsAnswer, NoAnswer
from evolvable_evolve.evolution.run_context import NeedsPerson, RunContext, RunStopped, RunTampered
from evolvable_evolve.evolution.trials import BudgetSpent, TrialsFailing
from evolvable_evolve.evolution.try_run import run_try
from evolvable_store.errors import EvolvableError, TryAgain


async def run_phases(run: RunContext) -> None:
    """Take the run to its verdict.

    Raises NeedsAnswer, NeedsPerson, NoAnswer, RunStopped; then it can be continued.
    """
    if run.settings.purpose == "measure":
        await run_measurement(run)
        return
    if run.settings.purpose == "try":
        await run_try(run)
        return
    gate = open_gate(run)
    if run.state.phase in (RunPhase.NEW, RunPhase.CHECKED):
        await gate.calibrate(run)
    if run.state.phase in (RunPhase.CALIBRATED, RunPhase.SEARCHING):
        await run_search(run, gate)
    if run.state.phase is RunPhase.SEARCHED:
        await run_final_test(run, gate.choose_finalist)


async def run_search(run: RunContext, gate: SearchGate) -> None:
    """Propose and evaluate until a budget, a plateau or the target is reached.

    Raises as `run_phases`.
    """
    optimizer, why = open_optimizer(run), ""
    while not why:
        # An iteration that was cut off is finished before the end is looked for.
        why = "" if run.state.step else _find_stop_reason(run, optimizer, gate)
        if not why:
            try:
                await run_iteration(run, optimizer, gate)
            except BudgetSpent as error:
                why = str(error)
    run.note("searched", why=why)


# They are not the candidate's fault, so no decision on it is recorded.
_NOT_OF_THE_CANDIDATE = (
    BudgetSpent,
    RunStopped,
    NeedsAnswer,
    NeedsPerson,
    NoAnswer,
    TrialsFailing,
    RunTampered,
    LedgerError,
    TryAgain,
)
"""Errors that end an iteration before its candidate is decided on."""


async def run_iteration(run: RunContext, optimizer: Optimizer, gate: SearchGate) -> None:
    """Make one iteration, or the rest of it. Raises as `run_phases`, and BudgetSpent."""
    if "selected" not in run.state.step:
        _select_parent(run, optimizer)
    record = run.state.step["selected"]
    parent, step = run.program(record["parent"]), compose_step(run, optimizer, gate)
    try:
        if record.get("merge"):
            improve = Improve(partial(search_operators.merge_runs, run), run.mask)
            merged = await improve(parent, run.merged)
            committed = step.commit(await step.evaluate(merged, parent))
        # An older version tried here to leave out the edits of a candidate.
        elif record.get("without"):
            built = run.state.step.get("built", {}).get("candidate", "")
            why = "edits are no longer left out"
            acceptance.record_decision(run, CandidateDecision.NO_PROPOSAL, why, built)
            return
        else:
            evidence = await gate.gather(run, parent, record)
            # Without a failure a proposer has nothing to repair; a structure may still be improved.
            if all(example.passed for example in evidence) and run.settings.mode != STRUCTURE_MODE:
                acceptance.record_decision(
                    run, CandidateDecision.NO_FAILURES, "nothing in the batch failed"
                )
                return
            committed = await step(evidence, parent)
    except _NOT_OF_THE_CANDIDATE:
        raise
    # The proposal cannot be built. The recorded reason is in the history of the next proposal.
    except EvolvableError as error:
        built = run.state.step.get("built", {}).get("candidate", "")
        acceptance.record_decision(run, CandidateDecision.NO_PROPOSAL, error.text, built)
        return
    if run.state.step:  # the round ended before anything was committed
        acceptance.record_decision(run, CandidateDecision.NO_PROPOSAL, committed.why)


def _select_parent(run: RunContext, optimizer: Optimizer) -> None:
    state, number = run.state, run.state.iteration + 1
    # The finalists of other runs are tried together once, before anything is proposed.
    merge = number == 1 and bool(run.merged)
    parent = search_operators.select_parent(
        state.members, optimizer.strategy, number, run.settings.seed
    )
    accepted = sum(record["decision"] == CandidateDecision.ADMITTED for record in state.iterations)
    batch = accepted + 1 if optimizer.fresh_only else number
    run.note("selected", iteration=number, parent=parent.digest, batch=batch, merge=merge)


def _find_stop_reason(run: RunContext, optimizer: Optimizer, gate: SearchGate) -> str:
    """Return why no further iteration begins, '' when one does."""
    state, settings = run.state, run.settings
    # The merge is the reason for this run, so it is tried whatever the limits say.
    if run.merged and not state.iterations:
        return ""
    done = len(state.iterations) - bool(run.merged)
    if done >= settings.most_proposals:
        return f"{done} of {settings.most_proposals} iterations are done"
    if why := gate.end_reason(run, done) or optimizer.converged():
        return why
    best = state.candidates[state.best].mean
    if best is not None and best >= settings.target:
        return f"the best reaches {best:.3f} in validation"
    return ""
