"""The lookup of EvoAgent (arXiv 2604.20133), section 3.2, to the letter: for comparison, not the best we can do.

Triggers as substrings, then the cosine of task and description, then a model's choice. Each is asked only when those
before it found nothing. It is linear in the library, as there.

Finding: stages in a row, from the cheapest, and what they say together.

Near ties: where two fit about as well, what is known of their use decides, and whether they are of the project.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.resource import Kind, parse_kind
from evolvable_store.search.analyzer import MAX_QUERY
from evolvable_store.search.index import Index, IndexEntry
from evolvable_store.storage.evidence import SuccessCounts
from evolvable_tools.llm import ProviderError
from evolvable_tools.metrics import wilson_lower_bound
from evolvable_tools.retrieval import (
    ChooseBetween,
    SearchCandidate,
    SearchDependencies,
    SearchQuery,
    StageReport,
    StageResult,
    judge_stage,
)
from evolvable_tools.retrieval.exact import match_exact
from evolvable_tools.retrieval.hybrid import search_hybrid

NEAR = 0.6
"""The cosine from which on the nearest description answers."""

JUDGED = 0.7
"""The confidence in whatever the model chose."""

MOST_LISTED = 200
"""Resources put before the model; the paper's own list has no end."""

MOST_DESCRIPTION = 150
"""Characters of each description that are put before the model: with MOST_LISTED, a prompt of 50,000 or so."""

_PAGE = 1_000


class DescriptionMatch(Protocol):
    """What the embedder says of the descriptions alone: the best id and its cosine, None when there is none."""

    @property
    def best(self) -> tuple[int, float] | None: ...
    @property
    def said(self) -> str: ...
    @property
    def available(self) -> bool: ...


class DescriptionQuery(Protocol):
    """A task on its way through the embedder."""

    def described(self, kind: Kind, scopes: Sequence[str] | None) -> DescriptionMatch:
        """Returns the resource whose description has the highest cosine to the task; waits a bounded time."""
        ...


class DescriptionSearch(Protocol):
    """The embedder as this lookup sees it."""

    def begin(self, task: str) -> DescriptionQuery:
        """Returns at once; never raises."""
        ...


Choose = Callable[[str, Sequence[IndexEntry]], tuple[IndexEntry | None, str]]
"""A model's choice for a task among all entries, and why; None when none fits. May raise an EvolvableError."""


def search_evoagent(
    index: Index, query: SearchQuery, neighbours: DescriptionSearch | None = None, choose: Choose | None = None
) -> Mapping[str, StageResult]:
    """Returns what each stage that was asked says, in order: "keyword", "embedding", "llm". Only the last may have a
    candidate, and never more than one.

    Iteration order is that of name, kind and scope. Of the task the first MAX_QUERY characters are read, as everywhere.
    Without an embedder or a model, or when one fails, its stage finds nothing and says why.
    """
    task = query.task[:MAX_QUERY]
    answers = {"keyword": _keyword(index, query, task.lower())}
    if not answers["keyword"].candidates:
        answers["embedding"] = _embedding(index, query, task, neighbours)
        if not answers["embedding"].candidates:
            answers["llm"] = _llm(index, query, task, choose)
    return answers


def _all(index: Index, query: SearchQuery) -> Iterator[IndexEntry]:
    """Yields every entry that is seen, page by page."""
    after = None
    while page := index.entries(kind=query.kind, scopes=query.scopes, limit=_PAGE, after=after):
        yield from page
        after = (page[-1].name, page[-1].kind.value, page[-1].scope)


def _keyword(index: Index, query: SearchQuery, task: str) -> StageResult:
    for entry in _all(index, query):
        for trigger in entry.triggers:
            # An empty trigger would be part of every task.
            if trigger.strip() and trigger.lower() in task:
                return _one(entry, 1.0, f'trigger "{trigger}" is part of the task')
    return StageResult((), "no trigger is part of the task")


def _embedding(index: Index, query: SearchQuery, task: str, neighbours: DescriptionSearch | None) -> StageResult:
    if neighbours is None:
        return StageResult((), "skipped: no embedder is installed")
    nearest = neighbours.begin(task).described(query.kind, query.scopes)
    if not nearest.available:
        return StageResult((), f"skipped: {nearest.said}")
    id_, cosine = nearest.best or (0, 0.0)
    if cosine <= 0:  # the paper's running best starts at 0
        return StageResult((), f"no description has a cosine above 0 ({nearest.said})")
    if cosine < NEAR:
        return StageResult((), f"the nearest description has cosine {cosine:.3f}, under {NEAR} ({nearest.said})")
    entry = next((entry for entry in _all(index, query) if entry.id == id_), None)
    if entry is None:
        return StageResult((), "the nearest was removed meanwhile")
    return _one(entry, min(cosine, 1.0), f"cosine {cosine:.3f} between the task and its description")


def _llm(index: Index, query: SearchQuery, task: str, choose: Choose | None) -> StageResult:
    if choose is None:
        return StageResult((), "skipped: no model is configured")
    listed = list(islice(_all(index, query), MOST_LISTED + 1))
    whole = "" if len(listed) <= MOST_LISTED else f" (asked about the first {MOST_LISTED:,} of the library)"
    listed = listed[:MOST_LISTED]
    if not listed:
        return StageResult((), "there is nothing to choose from")
    try:
        chosen, why = choose(task, listed)
    except EvolvableError as error:
        return StageResult((), f"skipped: {error}")
    if chosen is None:
        return StageResult((), f"none: {why}{whole}")
    entry = next((entry for entry in listed if entry.id == chosen.id), None)
    if entry is None:
        return StageResult((), f"none: the answer is not in the list{whole}")
    return _one(entry, JUDGED, f"chosen by the model: {why}{whole}")


def _one(entry: IndexEntry, confidence: float, why: str) -> StageResult:
    return StageResult((SearchCandidate(entry, confidence, why, sure=True),), f"{entry.ref}: {why}")


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
class SearchMatch:
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
class CascadeResult:
    """Matches, best first. `none_fits`: the library holds nothing for this task; the matches are only the nearest.

    `choose_between`: a choice that is left to the caller, where the stages are unsure and nobody else can think.
    """

    matches: tuple[SearchMatch, ...]
    none_fits: bool
    stages: tuple[StageReport, ...]
    choose_between: ChooseBetween | None = None


def search_cascade(
    index: Index,
    task: str,
    *,
    kind: Kind | str = Kind.SKILL,
    scopes: Sequence[str] | None = None,
    limit: int = 5,
    mode: str = "auto",
    means: SearchDependencies | None = None,
) -> CascadeResult:
    """Returns the resources of one kind that fit a task, best first.

    scopes: those that are seen, nearest first; a resource hides those of its name further away. None: all.
    mode: a key of MODES. Raises InvalidArgument for an empty task, a limit out of 1 to MAX_LIMIT or another mode;
    InvalidRef for another kind.
    """
    means = means or SearchDependencies()
    _check(task, limit, mode)
    query = SearchQuery(task, parse_kind(kind), scopes, max(limit, _AT_LEAST), max(limit, SHORTLIST))
    if mode == "paper":
        return _by_the_paper(index, query, means)
    answers = _asked(index, query, mode, means)
    matches = _merged(answers)
    fits = any(sure or match.confidence >= means.fits for sure, match in matches)
    reports = tuple(StageReport(stage, answer.said) for stage, answer in answers.items())
    found = CascadeResult(tuple(match for _, match in matches[:limit]), not fits, reports)
    if mode == "auto" and matches and not matches[0][0]:
        shortlist = [match for _, match in matches[:SHORTLIST]]
        if judge_stage.is_unsure([match.confidence for match in shortlist], means.fits):
            return _judged(found, task, shortlist, means, index.answers)
    return found


def _check(task: str, limit: int, mode: str) -> None:
    if not isinstance(task, str) or not task.strip():
        raise InvalidArgument("The task is empty.", "Say in a sentence what is to be done.")
    if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
        raise InvalidArgument(f"limit is {str(limit)[:40]!r}.", f"It may be a whole number from 1 to {MAX_LIMIT}.")
    if mode not in MODES:
        raise InvalidArgument(f"There is no mode {str(mode)[:40]!r}.", f"The modes are {', '.join(MODES)}.")


def _asked(index: Index, query: SearchQuery, mode: str, means: SearchDependencies) -> dict[str, StageResult]:
    """Returns what each stage says. The embedder works on the task while names and words are looked up."""
    with_meaning = mode == "auto" and means.neighbours is not None
    pending = means.neighbours.begin(query.task) if with_meaning and means.neighbours else None
    answers: dict[str, StageResult] = {}
    if mode in ("auto", "keyword"):
        answers["keyword"] = match_exact(index, query)
    if mode in ("auto", "text"):
        alone = "keyword" not in answers or not answers["keyword"].candidates
        answers["text"], meaning = search_hybrid(index, query, pending, query.first if alone else query.limit)
        if meaning is not None:
            answers["embedding"] = meaning
    return answers


def _merged(answers: Mapping[str, StageResult]) -> list[tuple[bool, SearchMatch]]:
    """Returns one match for each resource with whether a stage is sure of it, in the order of confidence.

    Stages are taken as independent witnesses: both are wrong only if each is. What one stage puts in an order stays in
    it where nothing else speaks.
    """
    merged: dict[int, tuple[SearchCandidate, str]] = {}
    for stage in reversed(list(answers)):
        for candidate in answers[stage].candidates:
            known = merged.get(candidate.entry.id)
            merged[candidate.entry.id] = _joined(candidate, stage, *known) if known else (candidate, stage)
    ordered = sorted(merged.values(), key=lambda found: (not found[0].sure, -found[0].confidence))
    return [(candidate.sure, _match(candidate, stage)) for candidate, stage in ordered]


def _joined(one: SearchCandidate, stage: str, other: SearchCandidate, other_stage: str) -> tuple[SearchCandidate, str]:
    confidence = 1 - (1 - one.confidence) * (1 - other.confidence)
    joined = replace(
        one, confidence=confidence, why="; ".join(filter(None, (one.why, other.why))), sure=one.sure or other.sure
    )
    return joined, stage if one.sure or one.confidence >= other.confidence else other_stage


def _match(candidate: SearchCandidate, stage: str) -> SearchMatch:
    return SearchMatch(candidate.entry, stage, round(candidate.confidence, 3), candidate.why)


def _judged(
    found: CascadeResult,
    task: str,
    shortlist: Sequence[SearchMatch],
    means: SearchDependencies,
    memory: MutableMapping[str, str],
) -> CascadeResult:
    """Returns what was found as the judge sees it; without one, with the choice left to the caller."""
    choices = judge_stage.make_choices([match.entry for match in shortlist])
    if means.thinker is None:
        return (
            replace(found, choose_between=judge_stage.choose_between(task, choices)) if means.caller_thinks else found
        )
    try:
        judged = judge_stage.ask_judge(task, choices, means.thinker, memory)
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
    return CascadeResult((first, *rest)[: max(1, len(found.matches))], False, stages)


def _by_the_paper(index: Index, query: SearchQuery, means: SearchDependencies) -> CascadeResult:
    answers = search_evoagent(index, query, means.neighbours, _chooser(means, index.answers))
    matches = tuple(_match(candidate, stage) for stage, answer in answers.items() for candidate in answer.candidates)
    return CascadeResult(
        matches, not matches, tuple(StageReport(stage, answer.said) for stage, answer in answers.items())
    )


def _chooser(means: SearchDependencies, memory: MutableMapping[str, str]) -> Choose | None:
    thinker = means.thinker
    if thinker is None:
        return None

    def choose(task: str, entries: Sequence[IndexEntry]) -> tuple[IndexEntry | None, str]:
        judged = judge_stage.ask_judge(
            task,
            judge_stage.make_choices(entries),
            thinker,
            memory,
            most=MOST_LISTED,
            most_description=MOST_DESCRIPTION,
        )
        return next((entry for entry in entries if str(entry.ref) == judged.ref), None), judged.why or judged.said

    return choose


CAP = wilson_lower_bound(1, 1)
"""What evidence is worth at most that is only reported, or is about a resource that nobody vouches for: one success of
one."""

TIE = 0.05
"""Confidences no further apart are taken for equal; the models are no more exact than that."""


def break_ties(
    matches: Sequence[SearchMatch],
    proofs: Mapping[int, SuccessCounts],
    scopes: Sequence[str],
    fits: float,
    capped: Collection[int] = (),
) -> tuple[SearchMatch, ...]:
    """Returns the matches with near ties of those that fit put in order: what proved itself, then the nearer scope.

    proofs: by the resource's id. scopes: nearest first. capped: those that evidence lifts to CAP at most. Nothing that
    does not fit is moved, nothing is moved past a match that is surer by more than TIE, and what a judge or a name
    chose stays first.
    """
    ordered: list[SearchMatch] = []
    rest = list(matches)
    while rest:
        first = rest[0]
        if first.confidence < fits:
            return (*ordered, *rest)
        tied = [match for match in rest if match.confidence >= max(fits, first.confidence - TIE)]
        if first.stage in ("judge", "keyword"):
            tied = tied[:1]
        near = {scope: place for place, scope in enumerate(scopes)}
        ordered += sorted(
            tied,
            key=lambda match: (
                -_bound(proofs.get(match.entry.id), match.entry.id in capped),
                near.get(match.entry.scope, len(near)),
            ),
        )
        rest = rest[len(tied) :]
    return tuple(ordered)


def _bound(proof: SuccessCounts | None, capped: bool) -> float:
    """Return what evidence is worth: verified ends alone where there are any, else reported ones up to CAP."""
    if proof is None:
        return 0.0
    if not proof.verified:
        return min(wilson_lower_bound(proof.successes, proof.ends), CAP)
    bound = wilson_lower_bound(proof.verified_successes, proof.verified)
    return min(bound, CAP) if capped else bound
