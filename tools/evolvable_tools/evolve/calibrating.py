"""Before the search: a pilot that says what the run will take, and the base measured against itself."""

from dataclasses import asdict
from statistics import fmean

from evolvable_store.errors import EvolvableError
from evolvable_tools.evolve.budget import Limits
from evolvable_tools.evolve.estimating import PILOTS, Sizes, check_floor, estimate, test_repeats
from evolvable_tools.evolve.evaluating import means
from evolvable_tools.evolve.evidence_batches import batch_of
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.run import Run
from evolvable_tools.evolve.run_state import Phase
from evolvable_tools.evolve.statistics import mde

NO_SKILL = Program()
"""The arm without anything: literally empty."""


class ExecutorFails(EvolvableError):
    """Not one trial counted when the executor was tried out."""


async def calibrate(run: Run) -> None:
    """Takes the run to CALIBRATED. Raises ExecutorFails, BudgetTooSmall, BudgetSpent, Stopped."""
    if run.state.phase is Phase.NEW:
        await _preflight(run)
    settings, base = run.settings, run.base
    arms = [(base, repeat) for repeat in range(settings.repeats + 1)]
    if base.parts:
        arms.append((NO_SKILL, 0))
    trials = await run.measure([(arm, task, repeat) for task in run.val for arm, repeat in arms], "calibrate/val")
    first = means([one for one in trials if one.repeat < settings.repeats], base.digest)
    again = means([one for one in trials if one.repeat == settings.repeats], base.digest)
    both = [task.id for task in run.val if task.id in first and task.id in again]
    differ = [task for task in both if first[task] != again[task]]
    noise = len(differ) / len(both) if both else 0.0
    repeats = test_repeats(settings, run.sealed.size)
    run.note(
        "calibrated",
        scores=first,
        again=again,
        no_skill=means(trials, NO_SKILL.digest),
        missing=[task.id for task in run.val if task.id not in first],
        noise=abs(fmean(first[task] for task in both) - fmean(again[task] for task in both)) if both else 0.0,
        discordance=noise,
        mde=mde.detectable(run.sealed.size, look=run.sealed.look, noise=noise, repeats=repeats),
        look=run.sealed.look,
    )


async def _preflight(run: Run) -> None:
    settings, tasks = run.settings, batch_of(run, 1)
    batch = f"pilot/{run.state.pilots + 1}"  # what failed in one that is over is not taken for the next
    pilot = await run.measure([(run.base, task, 0) for task in tasks[:PILOTS]], batch)
    counted = [trial for trial in pilot if trial.outcome.counts]
    if not counted:
        why = next((trial.detail for trial in pilot if trial.detail), "it did not say why").rstrip(".")
        run.note("pilot", why=why)
        hint = "Mend it, then continue the run, or start another where the task set or the program has to change."
        raise ExecutorFails(f"The executor fails, not one trial counted: {why}.", hint)
    guess = estimate(settings, Sizes(len(tasks), len(run.val), run.sealed.size), counted)
    check_floor(Limits(**asdict(settings.limit)), guess, counted)
    warnings = []
    if run.state.exploratory:
        warnings.append("There are too few tasks for a claim: the run explores, and its test stays sealed.")
    run.note("preflight", estimate=asdict(guess), warnings=warnings)
