"""The result of a measurement or a search in sentences for people: the resource by its name, the
verdict, the cost.

Sealed tasks and their categories are not named.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from statistics import fmean
from typing import Any

from evolvable_evolve.evolution.ledger import LedgerRecord, RunCandidate, RunState
from evolvable_evolve.evolution.statistics import Ruling
from evolvable_evolve.evolution.task import Trial, TrialOutcome
from evolvable_evolve.evolution.trials import parse_trial

MOST_DIFFERENCE = 0.25
"""The widest interval that a run calls no difference; beyond it a run cannot tell."""

_SEALED = "test"  # the first part of the names of the sealed test's batches
_HELPS = {str(Ruling.PROMOTE), str(Ruling.BETTER_HERE)}


def verdict_line(state: RunState, records: Iterable[LedgerRecord]) -> str:
    """Return the verdict of a run that searched or measured as sentences, '' where nothing was
    measured to its end.
    """
    verdict = state.verdict
    # A trial of skills has sentences of its own.
    if not verdict.get("interval") or "tried" in verdict:
        return ""
    names = _list_names(state)
    parts = [f"{', '.join(names)} {_describe_verdict(verdict)}."]
    candidate = state.candidates.get(state.finalist)
    if candidate is not None:
        parts += _describe_side_effects(state, candidate, records, names)
    return " ".join(parts)


def _list_names(state: RunState) -> list[str]:
    """Return the resources that the verdict is about: those that the finalist changed, else those
    of the start.
    """
    candidate = state.candidates.get(state.finalist)
    changed = candidate.changed if candidate is not None else ()
    refs = changed or [str(pin["ref"]) for pin in state.settings.get("program", ())]
    return [ref.removeprefix("skill:") for ref in refs] or ["The program"]


def _describe_verdict(verdict: Mapping[str, Any]) -> str:
    """Return one of four verdicts with its figures: helps, harms, makes no difference, cannot
    tell.
    """
    ruling, gain = str(verdict["verdict"]), float(verdict["delta"])
    low, high = (float(bound) for bound in verdict["interval"])
    interval = f"95 % {100 * low:+.0f} to {100 * high:+.0f}"
    figures = f"({100 * gain:+.0f} points, {interval}, {verdict['n']} tasks)"
    if ruling in _HELPS:
        where = " on these tasks" if ruling == Ruling.BETTER_HERE else ""
        return f"helps{where} {figures}"
    if ruling == Ruling.HARMFUL:
        return f"harms {figures}"
    most = max(abs(low), abs(high))
    if ruling == Ruling.NOT_SUPPORTED and most <= MOST_DIFFERENCE:
        return f"makes no difference of more than {ceil(100 * most)} points {figures}"
    return f"- cannot tell {figures}"


def _describe_side_effects(
    state: RunState, candidate: RunCandidate, records: Iterable[LedgerRecord], names: Sequence[str]
) -> list[str]:
    arms: dict[str, list[Trial]] = {state.base: [], candidate.digest: []}
    for record in records:
        batch = str(record.get("batch", "")).partition("/")[0]
        if record["type"] != "trial" or batch != _SEALED:
            continue
        trial = parse_trial(record["trial"])
        # A timeout has the cost of its limit, and would hide that of the work.
        if trial.program in arms and trial.outcome in (TrialOutcome.PASS, TrialOutcome.FAIL):
            arms[trial.program].append(trial)
    before, after = arms[state.base], arms[candidate.digest]
    parts = []
    if after:
        refs = set(candidate.changed or names)
        read = sum(bool(refs.intersection(trial.read)) for trial in after)
        parts.append(f"It was read in {read} of {len(after)} trials.")
    if before and after:
        parts.append(
            f"A trial took {_describe_cost(after)} with it, and {_describe_cost(before)} without."
        )
    if fallen := _find_fallen_categories(state, candidate):
        parts.append(f"Worse in validation: {', '.join(fallen)}.")
    return parts


def _describe_cost(trials: Sequence[Trial]) -> str:
    tokens = fmean(trial.usage.input_tokens + trial.usage.output_tokens for trial in trials)
    seconds = fmean(trial.wall for trial in trials)
    return f"{tokens:,.0f} tokens and {seconds:.1f} s"


def _find_fallen_categories(state: RunState, candidate: RunCandidate) -> list[str]:
    """Return the categories that came out worse in validation, where there are several."""
    before = candidate.parent_scores or state.candidates[state.base].scores
    changes: dict[str, list[float]] = {}
    for task in candidate.scores.keys() & before.keys():
        category = state.tasks.get(task, ("", "other"))[1]
        changes.setdefault(category, []).append(candidate.scores[task] - before[task])
    category_means = {name: fmean(values) for name, values in changes.items()}
    # One category is the whole comparison.
    if len(category_means) < 2:
        return []
    return [
        f"{name} ({100 * change:+.0f} points)"
        for name, change in sorted(category_means.items())
        if change < 0
    ]
