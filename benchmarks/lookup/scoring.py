"""What rankings and confidences are worth: means over families of tasks, and how far a probability
can be believed.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

DEPTH = 10
"""Only so many of a ranking count."""

SMALL_FAMILY = 20
"""A family of fewer tasks is left out, but for the one that gathers such."""

GATHERED = "misc"

_FAMILIES = {
    "uipath-activation": "uipath",
    "uipath-tasks": "uipath",
    "salesforce-fixtures": "salesforce",
    "salesforce-variants": "salesforce",
    "dotnet-artisan": "dotnet",
    "dotnet-skills": "dotnet",
    "auth0-skills": GATHERED,
    "terrylica-skills": GATHERED,
    "alirezarezvani-skills": GATHERED,
}
"""Sources of tasks that are one family; any other source is a family of its own."""


def family(query: Mapping[str, Any]) -> str:
    """Return the family that a task belongs to."""
    return _FAMILIES.get(query["source"], str(query["source"]))


@dataclass(frozen=True, slots=True)
class Score:
    """hit1: the first is right.

    recall5: share of the right skills among the first five. ndcg: over the first ten.
    """

    hit1: float
    recall5: float
    ndcg: float

    def __str__(self) -> str:
        return " / ".join(
            f"{value:.3f}".removeprefix("0") for value in (self.hit1, self.recall5, self.ndcg)
        )


@dataclass(frozen=True, slots=True)
class Quality:
    """The mean over families, each family's own, and how many tasks were asked."""

    macro: Score
    families: Mapping[str, Score]
    count: int


def score(ranked: Sequence[str], gold: Sequence[str], also_ok: Sequence[str] = ()) -> Score:
    """Return what one ranking is worth, best first.

    A near copy counts as the only right skill, and once.
    """
    right = _relevant(ranked[:DEPTH], gold, also_ok)
    gain = sum(1 / math.log2(at + 2) for at, fits in enumerate(right) if fits)
    ideal = sum(1 / math.log2(at + 2) for at in range(min(len(set(gold)), DEPTH)))
    return Score(
        float(right[:1] == [True]),
        min(1.0, sum(right[:5]) / len(set(gold))),
        min(1.0, gain / ideal),
    )


def _relevant(ranked: Iterable[str], gold: Sequence[str], also_ok: Sequence[str]) -> list[bool]:
    """Return for each place whether it is right; a place that repeats a right skill is
    passed over.
    """
    target = dict.fromkeys(also_ok, gold[0]) if len(gold) == 1 else {id_: id_ for id_ in also_ok}
    target |= {id_: id_ for id_ in gold}
    seen: set[str] = set()
    right = []
    for id_ in ranked:
        known = target.get(id_)
        if known is not None and known in seen:
            continue
        if known is not None:
            seen.add(known)
        right.append(known is not None)
    return right


def quality(asked: Iterable[tuple[Mapping[str, Any], Sequence[str]]]) -> Quality:
    """Return what the rankings of these tasks are worth.

    Raises ValueError when no family is large enough.
    """
    by_family: dict[str, list[Score]] = defaultdict(list)
    for query, ranked in asked:
        by_family[family(query)].append(score(ranked, query["gold"], query.get("also_ok", ())))
    large = {
        name: _mean(every)
        for name, every in by_family.items()
        if len(every) >= SMALL_FAMILY or name == GATHERED
    }
    if not large:
        raise ValueError(f"no family has {SMALL_FAMILY} tasks")
    return Quality(
        _mean(large.values()), dict(sorted(large.items())), sum(map(len, by_family.values()))
    )


def averaged(several: Sequence[Quality]) -> Quality:
    """Return the mean over several libraries; no families, since they differ."""
    return Quality(_mean([one.macro for one in several]), {}, sum(one.count for one in several))


def _mean(scores: Iterable[Score]) -> Score:
    every = list(scores)
    return Score(
        mean(s.hit1 for s in every), mean(s.recall5 for s in every), mean(s.ndcg for s in every)
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was said of one task's first match: how sure, whether it was given as an answer, whether
    it is right.

    out: the right skill and its whole repository were taken out before, so that nothing is right.
    """

    family: str
    out: bool
    confidence: float
    answered: bool
    right: bool


@dataclass(frozen=True, slots=True)
class Abstention:
    """kept: share of the right first matches that are given as answers. false: share of the tasks
    without a right skill that get one. Each over all tasks, and as the mean over families of at
    least 20.
    """

    kept: float
    false: float
    kept_macro: float
    false_macro: float


def abstention(verdicts: Iterable[Verdict]) -> Abstention:
    """Return how well it is told that nothing fits; NaN where there is nothing to tell it from."""
    every = list(verdicts)
    right, out = [v for v in every if v.right], [v for v in every if v.out]
    return Abstention(
        *(_share(some) for some in (right, out)),
        *(_share_over_families(some) for some in (right, out)),
    )


def _share(verdicts: Sequence[Verdict]) -> float:
    return mean(v.answered for v in verdicts) if verdicts else math.nan


def _share_over_families(verdicts: Sequence[Verdict]) -> float:
    by_family: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_family[verdict.family].append(verdict)
    shares = [_share(some) for some in by_family.values() if len(some) >= SMALL_FAMILY]
    return mean(shares) if shares else math.nan


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers of nearly the same confidence: the mean of what was said, the share that was right,
    and how many.
    """

    said: float
    right: float
    count: int


def reliability(said: Sequence[tuple[float, bool]], bins: int = 10) -> list[Bin]:
    """Return the reliability curve of (confidence, right) in bins of equal width, empty ones left
    out.
    """
    parts: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for confidence, right in said:
        parts[min(bins - 1, int(confidence * bins))].append((confidence, right))
    return [
        Bin(mean(c for c, _ in parts[at]), mean(r for _, r in parts[at]), len(parts[at]))
        for at in sorted(parts)
    ]


def calibration_error(curve: Sequence[Bin]) -> float:
    """Return the expected calibration error: the mean distance of said from right, each answer
    counting once.
    """
    return sum(abs(b.said - b.right) * b.count for b in curve) / max(1, sum(b.count for b in curve))
