"""Finding: stages in a row, from the cheapest, and what they say together."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace

from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind, parse_kind
from evolvable_store.search.index import Index, IndexEntry
from evolvable_tools.lookup import judge, paper
from evolvable_tools.lookup.choice import ChooseBetween
from evolvable_tools.lookup.keyword import keyword
from evolvable_tools.lookup.means import Means
from evolvable_tools.lookup.stage import Answer, Candidate, Query, StageReport
from evolvable_tools.lookup.text import text
from evolvable_tools.providers.thinker import ProviderError

MODES: Mapping[str, str] = {
    "auto": "keyword, text, embedding and, where these are unsure, a judge",
    "keyword": "names and triggers alone",
    "text": "words alone",
    "paper": "the three stages of EvoAgent, to the letter",
}
"""What each mode runs."""

MAX_LIMIT = 100

SHORTLIST = 5
"""Matches that a judge chooses from."""

_AT_LEAST = 10  # that each stage is asked for, so that the order of the first few knows of the others


@dataclass(frozen=True, slots=True)
class Match:
    """One resource that may fit: which stage found it, how likely it fits (0 to 1), and why."""

    entry: IndexEntry
    stage: str
    confidence: float
    why: str

    @property
    def ref(self) -> str:
        """Which resource."""
        return str(self.entry.ref)


@dataclass(frozen=True, slots=True)
class Found:
    """Matches, best first. `none_fits`: the library holds nothing for this task; the matches are only the nearest.

    `choose_between`: a choice that is left to the caller, where the stages are unsure and nobody else can think.
    """

    matches: tuple[Match, ...]
    none_fits: bool
    stages: tuple[StageReport, ...]
    choose_between: ChooseBetween | None = None


def find(
    index: Index,
    task: str,
    *,
    kind: Kind | str = Kind.SKILL,
    scopes: Sequence[str] | None = None,
    limit: int = 5,
    mode: str = "auto",
    means: Means | None = None,
) -> Found:
    """Returns the resources of one kind that fit a task, best first.

    scopes: those that are seen, nearest first; a resource hides those of its name further away. None: all.
    mode: a key of MODES. Raises InvalidArgument for an empty task, a limit out of 1 to MAX_LIMIT or another mode;
    InvalidRef for another kind.
    """
    means = means or Means()
    _check(task, limit, mode)
    query = Query(task, parse_kind(kind), scopes, max(limit, _AT_LEAST), max(limit, SHORTLIST))
    if mode == "paper":
        return _by_the_paper(index, query, means)
    answers = _asked(index, query, mode, means)
    matches = _merged(answers)
    fits = any(sure or match.confidence >= means.fits for sure, match in matches)
    reports = tuple(StageReport(stage, answer.said) for stage, answer in answers.items())
    found = Found(tuple(match for _, match in matches[:limit]), not fits, reports)
    if mode == "auto" and matches and not matches[0][0]:
        shortlist = [match for _, match in matches[:SHORTLIST]]
        if judge.unsure([match.confidence for match in shortlist], means.fits):
            return _judged(found, task, shortlist, means, index.answers)
    return found


def _check(task: str, limit: int, mode: str) -> None:
    if not isinstance(task, str) or not task.strip():
        raise InvalidArgument("The task is empty.", "Say in a sentence what is to be done.")
    if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
        raise InvalidArgument(f"limit is {str(limit)[:40]!r}.", f"It may be a whole number from 1 to {MAX_LIMIT}.")
    if mode not in MODES:
        raise InvalidArgument(f"There is no mode {str(mode)[:40]!r}.", f"The modes are {', '.join(MODES)}.")


def _asked(index: Index, query: Query, mode: str, means: Means) -> dict[str, Answer]:
    """Returns what each stage says. The embedder works on the task while names and words are looked up."""
    with_meaning = mode == "auto" and means.neighbours is not None
    pending = means.neighbours.begin(query.task) if with_meaning and means.neighbours else None
    answers: dict[str, Answer] = {}
    if mode in ("auto", "keyword"):
        answers["keyword"] = keyword(index, query)
    if mode in ("auto", "text"):
        alone = "keyword" not in answers or not answers["keyword"].candidates
        answers["text"], meaning = text(index, query, pending, query.first if alone else query.limit)
        if meaning is not None:
            answers["embedding"] = meaning
    return answers


def _merged(answers: Mapping[str, Answer]) -> list[tuple[bool, Match]]:
    """Returns one match for each resource with whether a stage is sure of it, in the order of confidence.

    Stages are taken as independent witnesses: both are wrong only if each is. What one stage puts in an order stays in
    it where nothing else speaks.
    """
    merged: dict[int, tuple[Candidate, str]] = {}
    for stage in reversed(list(answers)):
        for candidate in answers[stage].candidates:
            known = merged.get(candidate.entry.id)
            merged[candidate.entry.id] = _joined(candidate, stage, *known) if known else (candidate, stage)
    ordered = sorted(merged.values(), key=lambda found: (not found[0].sure, -found[0].confidence))
    return [(candidate.sure, _match(candidate, stage)) for candidate, stage in ordered]


def _joined(one: Candidate, stage: str, other: Candidate, other_stage: str) -> tuple[Candidate, str]:
    confidence = 1 - (1 - one.confidence) * (1 - other.confidence)
    joined = replace(
        one, confidence=confidence, why="; ".join(filter(None, (one.why, other.why))), sure=one.sure or other.sure
    )
    return joined, stage if one.sure or one.confidence >= other.confidence else other_stage


def _match(candidate: Candidate, stage: str) -> Match:
    return Match(candidate.entry, stage, round(candidate.confidence, 3), candidate.why)


def _judged(
    found: Found, task: str, shortlist: Sequence[Match], means: Means, memory: MutableMapping[str, str]
) -> Found:
    """Returns what was found as the judge sees it; without one, with the choice left to the caller."""
    choices = judge.choices([match.entry for match in shortlist])
    if means.thinker is None:
        return replace(found, choose_between=judge.choose_between(task, choices)) if means.caller_thinks else found
    try:
        judged = judge.judge(task, choices, means.thinker, memory)
    except ProviderError as error:
        return replace(found, stages=(*found.stages, StageReport("judge", error.text)))
    stages = (*found.stages, StageReport("judge", judged.said))
    if judged.ref is None:
        return replace(found, none_fits=True, stages=stages)
    chosen = next(match for match in shortlist if match.ref == judged.ref)
    sure = max(chosen.confidence, judged.confidence)
    first = replace(
        chosen, stage="judge", confidence=sure, why=f"{judged.why}; {chosen.why}" if judged.why else chosen.why
    )
    rest = tuple(match for match in found.matches if match.entry.id != chosen.entry.id)
    return Found((first, *rest)[: max(1, len(found.matches))], False, stages)


def _by_the_paper(index: Index, query: Query, means: Means) -> Found:
    answers = paper.paper(index, query, means.neighbours, _chooser(means, index.answers))
    matches = tuple(_match(candidate, stage) for stage, answer in answers.items() for candidate in answer.candidates)
    return Found(matches, not matches, tuple(StageReport(stage, answer.said) for stage, answer in answers.items()))


def _chooser(means: Means, memory: MutableMapping[str, str]) -> paper.Choose | None:
    thinker = means.thinker
    if thinker is None:
        return None

    def choose(task: str, entries: Sequence[IndexEntry]) -> tuple[IndexEntry | None, str]:
        judged = judge.judge(
            task,
            judge.choices(entries),
            thinker,
            memory,
            most=paper.MOST_LISTED,
            most_description=paper.MOST_DESCRIPTION,
        )
        return next((entry for entry in entries if str(entry.ref) == judged.ref), None), judged.why or judged.said

    return choose
