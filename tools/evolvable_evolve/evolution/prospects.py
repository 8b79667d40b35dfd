"""The chance that a run under way still ends with a promotion, from above: by it a search can be given up early.

Nothing is measured for it. What the search has shown is read from the state of the run.
"""

from evolvable_evolve.evolution.ledger import CandidateDecision, RunPhase, RunState
from evolvable_evolve.evolution.run_config import DEFAULT_ITERATIONS, default_test_repeats
from evolvable_evolve.evolution.statistics import NARROW_REPEATS, NOISE, PowerDesign, chance_left, narrow_sizes
from evolvable_evolve.evolution.task import Split


def estimate_chance(state: RunState) -> float | None:
    """Return at most which chance is left that a search ends with a promotion, None while nothing is known of it.

    Every limit is taken from above, so the true chance is mostly lower.
    """
    settings, final = state.settings, str(state.settings.get("final", "single"))
    if state.phase is not RunPhase.SEARCHING or not state.iterations or settings.get("purpose") == "measure":
        return None
    val = sum(split == Split.VAL for split, _ in state.tasks.values())
    tasks = sum(narrow_sizes(val, state.tests)) if state.exploratory else state.tests
    repeats = settings.get("test_repeats") or (
        NARROW_REPEATS if state.exploratory else default_test_repeats(tasks, final)
    )
    noise = state.calibration.get("discordance", NOISE)
    look = int(state.calibration.get("look", 1))
    design = PowerDesign.of(tasks, repeats, look=look, narrow=state.exploratory, noise=noise)
    tried = [state.candidates[digest] for digest in state.history]
    accepted = [one.delta or 0.0 for one in tried if one.decision is CandidateDecision.ADMITTED]
    remaining = max(
        0, int(DEFAULT_ITERATIONS if (most := settings.get("iterations")) is None else most) - len(state.iterations)
    )
    return chance_left(state.best_gains(), remaining, accepted, len(tried), design)


def give_up_reason(state: RunState) -> str:
    """Return why a search is given up, '' while its chance is above the limit that its settings name."""
    limit = float(state.settings.get("give_up_below", 0.0))
    chance = estimate_chance(state) if limit else None
    return f"at most {chance:.0%} chance was left" if chance is not None and chance <= limit else ""
