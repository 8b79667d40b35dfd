"""The loop: calibrate, search, and finalise; each step once, however often it is stopped or killed in between.

A run has no other memory than its ledger. Whoever drives it takes the step that the state asks for, and its record
makes the next state; so a continued run goes on exactly where it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from evolvable_store.errors import EvolvableError
from evolvable_tools.evolve.batch import Failing
from evolvable_tools.evolve.brains.brain import NeedsAnswer, NoAnswer
from evolvable_tools.evolve.budget import BudgetSpent
from evolvable_tools.evolve.calibrating import calibrate
from evolvable_tools.evolve.committing import FrontierCommit, SingleCommit, decide, member
from evolvable_tools.evolve.evaluating import Evaluation
from evolvable_tools.evolve.evidence_batches import gathered
from evolvable_tools.evolve.finalising import finalise
from evolvable_tools.evolve.frontier import selection
from evolvable_tools.evolve.frontier.frontier import Admission
from evolvable_tools.evolve.ledger import LedgerError
from evolvable_tools.evolve.merging import Union
from evolvable_tools.evolve.operators import Improve, Step
from evolvable_tools.evolve.proposing import Reflection, Selection, Writing
from evolvable_tools.evolve.roles.plan import Plan
from evolvable_tools.evolve.roles.showing import Evidence
from evolvable_tools.evolve.run import NeedsPerson, Run, Stopped, Tampered
from evolvable_tools.evolve.run_state import Decision, Phase

Round = Step[Sequence[Evidence], Plan, Plan]


@dataclass(frozen=True, slots=True)
class Optimizer:
    """A composition of the operators, and where each round starts from.

    fresh_only: the training batch changes only after something was accepted, as what was rejected changed nothing.
    """

    step: Round
    strategy: selection.Strategy
    fresh_only: bool


def evoskill(run: Run) -> Optimizer:
    """Returns EvoSkill's composition: a frontier, parents in turn, a new batch in every round."""
    settings = run.settings
    commit = FrontierCommit(run, settings.frontier, Admission(settings.admit))
    return Optimizer(_step(run, commit), selection.Strategy(settings.parent), False)


def reflection(run: Run) -> Optimizer:
    """Returns the reflection optimizer: one program, the best that was committed, executed anew when it changed."""
    return Optimizer(_step(run, SingleCommit(run)), selection.Strategy.BEST, True)


def _step(run: Run, commit: FrontierCommit | SingleCommit) -> Round:
    improve = Improve(Writing(run), run.mask)
    return Step(Reflection(run), Selection(run), improve, Evaluation(run), commit)


async def drive(run: Run) -> None:
    """Take the run to its verdict. Raises NeedsAnswer, NeedsPerson, NoAnswer, Stopped; then it can be continued."""
    if run.state.phase in (Phase.NEW, Phase.CHECKED):
        await calibrate(run)
    if run.state.phase in (Phase.CALIBRATED, Phase.SEARCHING):
        await search(run)
    if run.state.phase is Phase.SEARCHED:
        await finalise(run)


async def search(run: Run) -> None:
    """Proposes and evaluates until a budget, a plateau or the target is reached. Raises as `drive`."""
    optimizer = reflection(run) if run.settings.optimizer == "reflection" else evoskill(run)
    why = ""
    while not why:
        why = "" if run.state.step else _over(run)
        if not why:
            try:
                await iterate(run, optimizer)
            except BudgetSpent as error:
                why = str(error)
    run.note("searched", why=why)


async def iterate(run: Run, optimizer: Optimizer) -> None:
    """Makes one iteration, or what is left of it. Raises as `drive`, and BudgetSpent."""
    if "selected" not in run.state.step:
        _select(run, optimizer)
    record = run.state.step["selected"]
    parent = run.program(record["parent"])
    try:
        if record.get("merge"):
            merged = await Improve(Union(run), run.mask)(parent, run.merged)
            committed = optimizer.step.commit(await optimizer.step.evaluate(merged, parent))
        else:
            evidence = await gathered(run, parent, record)
            if all(one.passed for one in evidence):
                decide(run, Decision.NO_FAILURES, "nothing in the batch failed")
                return
            committed = await optimizer.step(evidence, parent)
    except (BudgetSpent, Stopped, NeedsAnswer, NeedsPerson, NoAnswer, Failing, Tampered, LedgerError):
        raise
    except EvolvableError as error:  # what was proposed cannot be built; the history tells the next proposal
        built = run.state.step.get("built")
        decide(run, Decision.NO_PROPOSAL, error.text, built["candidate"] if built else "")
        return
    if run.state.step:  # the round ended before anything was committed
        decide(run, Decision.NO_PROPOSAL, committed.why)


def _select(run: Run, optimizer: Optimizer) -> None:
    state, settings = run.state, run.settings
    number = state.iteration + 1
    members = list(map(member, state.members))
    merge = number == 1 and bool(run.merged)
    parent = selection.parent(members, optimizer.strategy, number, settings.seed)
    accepted = sum(record["decision"] == Decision.ADMITTED for record in state.iterations)
    batch = accepted + 1 if optimizer.fresh_only else number
    run.note("selected", iteration=number, parent=parent.program, batch=batch, merge=merge)


def _over(run: Run) -> str:
    """Returns why no further iteration begins, '' when one does."""
    state, settings = run.state, run.settings
    if run.merged and not state.iterations:
        return ""
    if len(state.iterations) >= settings.iterations + bool(run.merged):
        return f"{settings.iterations} of {settings.iterations} iterations are done"
    if state.stalls >= settings.stalls:
        return f"{state.stalls} iterations without a new best"
    best = state.candidates[state.best].mean
    if best is not None and best >= settings.target:
        return f"the best reaches {best:.3f} in validation"
    return ""
