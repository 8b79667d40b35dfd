"""The cascade: stages in a row from the cheapest, merged into one order, and a judge where there is
a choice.

`search_evoagent` is the search of EvoAgent (arXiv 2604.20133), section 3.2: triggers as substrings,
then the cosine of task and description, then a model's choice. It is linear in the library, as in
the paper.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.resource import Kind, parse_kind
from evolvable_store.search import (
    MAX_QUERY,
    Candidates,
    Index,
    IndexEntry,
    Match,
    PastTasks,
    Ranking,
)
from evolvable_store.storage import SuccessCounts
from evolvable_tools.llm import LanguageModel, ProviderError
from evolvable_tools.metrics import wilson_lower_bound
from evolvable_tools.retrieval import judge_stage
from evolvable_tools.retrieval.exact import TaskWords, match_exact
from evolvable_tools.retrieval.further import (
    BY_ITSELF,
    LIST_ALL,
    LISTED,
    MOST,
    further_choices,
    is_foreign,
    likely_ids,
    order_few,
)
from evolvable_tools.retrieval.hybrid import (
    fuse_with_vectors,
    is_clear,
    order_by_words,
    report_hybrid,
)
from evolvable_tools.retrieval.search_types import (
    FITS,
    MODES,
    SURE,
    Neighbours,
    SearchDependencies,
    SearchQuery,
    StageReport,
    StageResult,
    Verdict,
    VerdictRule,
    fits_from,
)

NEAR = 0.6
"""The cosine from which the nearest description is an answer."""

PAPER_PATIENCE = 5.0
"""Seconds that the paper's second stage waits for the embedder, so that a busy machine does not
change the answer.
"""

JUDGED = 0.7
"""The confidence in the model's choice."""

MOST_LISTED = 200
"""Resources in the prompt; the list of the paper is unbounded."""

MOST_DESCRIPTION = 150
"""Characters of each description in the prompt: with MOST_LISTED about 50,000 in all."""

# Entries of one read, so that a walk over a library of any size holds one page in memory.
_PAGE = 1_000

Choose = Callable[[str, Sequence[IndexEntry]], tuple[IndexEntry | None, str]]
"""A model's choice for a task among all entries, and why; None when none fits.

May raise an EvolvableError.
"""


def search_evoagent(
    index: Index,
    query: SearchQuery,
    neighbours: Neighbours | None = None,
    choose: Choose | None = None,
) -> Mapping[str, StageResult]:
    """Return the result of each stage that ran, in order: "keyword", "embedding", "llm".

    Only the last may have a candidate, and at most one. Entries are in the order of name, kind and
    scope. The search reads the first MAX_QUERY characters of the task. Without an embedder or a
    model, or when one fails, its stage has no candidate and gives the reason.
    """
    task = query.task[:MAX_QUERY]
    answers = {"keyword": _run_keyword(index, query, task.lower())}
    # As in the paper, a stage runs only when the stage before found nothing.
    if not answers["keyword"].candidates:
        answers["embedding"] = _run_embedding(index, query, task, neighbours)
        if not answers["embedding"].candidates:
            answers["llm"] = _run_llm(index, query, task, choose)
    return answers


def _read_all_entries(index: Index, query: SearchQuery) -> Iterator[IndexEntry]:
    """Yield every visible entry, page by page."""
    after = None
    while page := index.entries(kind=query.kind, scopes=query.scopes, limit=_PAGE, after=after):
        yield from page
        # A key and not an offset: entries that come or go meanwhile shift no page.
        after = (page[-1].name, page[-1].kind.value, page[-1].scope)


def _run_keyword(index: Index, query: SearchQuery, task: str) -> StageResult:
    for entry in _read_all_entries(index, query):
        for trigger in entry.triggers:
            # An empty trigger would be part of every task.
            if trigger.strip() and trigger.lower() in task:
                return _make_single_result(entry, 1.0, f'trigger "{trigger}" is part of the task')
    return StageResult((), "no trigger is part of the task")


def _run_embedding(
    index: Index, query: SearchQuery, task: str, neighbours: Neighbours | None
) -> StageResult:
    if neighbours is None:
        return StageResult((), "skipped: no embedder is installed")
    nearest = neighbours.begin(task).nearest_description(
        query.kind, query.scopes, within=PAPER_PATIENCE
    )
    if not nearest.available:
        return StageResult((), f"skipped: {nearest.said}")
    id_, cosine = nearest.best or (0, 0.0)
    if cosine <= 0:  # the paper's running best starts at 0
        return StageResult((), f"no description has a cosine above 0 ({nearest.said})")
    if cosine < NEAR:
        return StageResult(
            (), f"the nearest description has cosine {cosine:.3f}, under {NEAR} ({nearest.said})"
        )
    entry = next((entry for entry in _read_all_entries(index, query) if entry.id == id_), None)
    if entry is None:
        return StageResult((), "the nearest was removed meanwhile")
    return _make_single_result(
        entry, min(cosine, 1.0), f"cosine {cosine:.3f} between the task and its description"
    )


def _run_llm(index: Index, query: SearchQuery, task: str, choose: Choose | None) -> StageResult:
    if choose is None:
        return StageResult((), "skipped: no model is configured")
    # One more than the prompt holds tells whether the list was cut.
    entries = list(islice(_read_all_entries(index, query), MOST_LISTED + 1))
    is_cut = len(entries) > MOST_LISTED
    cut_note = f" (asked about the first {MOST_LISTED:,} of the library)" if is_cut else ""
    entries = entries[:MOST_LISTED]
    if not entries:
        return StageResult((), "there is nothing to choose from")
    try:
        chosen, why = choose(task, entries)
    except EvolvableError as error:
        return StageResult((), f"skipped: {error}")
    if chosen is None:
        return StageResult((), f"none: {why}{cut_note}")
    entry = next((entry for entry in entries if entry.id == chosen.id), None)
    if entry is None:
        return StageResult((), f"none: the answer is not in the list{cut_note}")
    return _make_single_result(entry, JUDGED, f"chosen by the model: {why}{cut_note}")


def _make_single_result(entry: IndexEntry, confidence: float, why: str) -> StageResult:
    match = Match(entry, confidence=confidence, why=why, sure=True)
    return StageResult((match,), f"{entry.ref}: {why}")


# Bounds the work of a call: each match in an answer is explained and gets a confidence.
MAX_LIMIT = 100

CORRECTED = 0.5
"""Factor of the confidence of a match that was wrong for a near duplicate of the task."""

LABELLED = 0.9
"""The least confidence in a match that a person named for nearly this task."""

SHORTLIST = 5
"""Matches that a judge chooses from, when one of them fits."""

_AT_LEAST = 10  # candidates of each stage, so that merging can reorder the first few


@dataclass(frozen=True, slots=True)
class CascadeResult:
    """Matches, best first, and the verdict on them. With `none` they are only the nearest.

    `fits`: the confidence from which a match fits; one that was named or chosen has it. `rule`:
    what the verdict comes from. `further`: with `choose`, what else may be for the task, the likely
    ones first.
    """

    matches: tuple[Match, ...]
    verdict: Verdict
    stages: tuple[StageReport, ...]
    fits: float
    rule: VerdictRule
    further: tuple[IndexEntry, ...] = ()


def search_cascade(
    index: Index,
    task: str,
    *,
    kind: Kind | str = Kind.SKILL,
    scopes: Sequence[str] | None = None,
    limit: int = 5,
    mode: str = "auto",
    dependencies: SearchDependencies | None = None,
) -> CascadeResult:
    """Return the resources of one kind that fit a task, best first.

    scopes: the visible ones, nearest first; a resource hides others of its name further away. None:
    all. mode: a key of MODES. Raises InvalidArgument for an empty task, a limit out of 1 to
    MAX_LIMIT or another mode; InvalidRef for another kind.
    """
    dependencies = dependencies or SearchDependencies()
    _check_arguments(task, limit, mode)
    most, first = max(limit, _AT_LEAST), max(limit, SHORTLIST)
    query = SearchQuery(task, parse_kind(kind), scopes, most, first)
    # A threshold that is given can only raise it.
    sure_from = SURE if dependencies.fits is None else max(SURE, dependencies.fits)
    if mode == "paper":
        return _search_paper(index, query, dependencies)
    # The embedder works on the task while the index is searched.
    neighbours = dependencies.neighbours if mode == "auto" else None
    pending = neighbours.begin(task) if neighbours is not None else None
    results: dict[str, StageResult] = {}
    threshold = FITS if dependencies.fits is None else dependencies.fits
    rule = VerdictRule(0, sure_from)  # 0: size unknown
    nearest: Sequence[int] = ()
    words = TaskWords.of(task) if mode in ("auto", "keyword") else None
    signals = index.candidates(task, words.words if words else (), **_read_options(query, words))
    ranking = signals.ranking if mode in ("auto", "text") else None
    if words is not None:
        results["keyword"] = match_exact(words, signals.phrases, query.limit)
    if ranking is not None:
        fused = order_by_words(ranking, query)
        # Vectors change nothing where the words are clear.
        if pending is not None and not is_clear(fused):
            fused = fuse_with_vectors(index, query, ranking, pending)
        nearest = fused.similar.nearest if fused.similar else ()
        threshold = fits_from(ranking.documents) if dependencies.fits is None else dependencies.fits
        rule = VerdictRule(ranking.documents, sure_from)
        # Without a keyword match nothing is merged, and the first few are enough.
        is_alone = "keyword" not in results or not results["keyword"].candidates
        results |= report_hybrid(fused, pending, query.first if is_alone else query.limit)
    merged = _apply_past_tasks(index, task, _merge_matches(results, threshold), threshold)
    rule = _adapt_rule(rule, merged, ranking, task)
    matches, verdict = tuple(merged[:limit]), rule.verdict(merged)
    result = CascadeResult(matches, verdict, _list_reports(results), threshold, rule)
    if result.verdict is not Verdict.CHOOSE or ranking is None:
        return result
    ids = _find_further_ids(signals, merged, nearest, dependencies)
    entries = index.visible_entries(ids, kind=query.kind, scopes=query.scopes) if ids else {}
    result = replace(result, further=_list_further(signals, merged, list(entries.values())))
    # The other modes are fixed stages, to compare with.
    judge_model = dependencies.judge_model if mode == "auto" else None
    return _apply_judge(result, task, merged, judge_model, index.answers) if judge_model else result


def _read_options(query: SearchQuery, words: TaskWords | None) -> dict[str, Any]:
    """Return how much of the index the keyword and the text stage read."""
    return {
        "names": words.names if words else (),
        "kind": query.kind,
        "scopes": query.scopes,
        "limit": query.limit,
        "list_limit": LIST_ALL,
        # The keyword and the text stage have at most so many matches.
        "own": 2 * query.limit + BY_ITSELF,
    }


def _find_further_ids(
    signals: Candidates,
    merged: Sequence[Match],
    nearest: Sequence[int],
    dependencies: SearchDependencies,
) -> Sequence[int]:
    """Return what else may be for the task; () where every entry is known.

    nearest: ids of what the embedder finds nearest.
    """
    if signals.every is not None:
        return ()
    proven = dependencies.proven(LISTED) if dependencies.proven is not None else ()
    return likely_ids(signals, merged, nearest, proven)


def _list_further(
    signals: Candidates, merged: Sequence[Match], entries: Sequence[IndexEntry]
) -> tuple[IndexEntry, ...]:
    """Return what else may be for the task, the likely ones first.

    entries: of `_find_further_ids`, in their order.
    """
    if signals.every is not None:
        return further_choices(order_few(signals.every, signals.ranking.weighed), merged, LIST_ALL)
    return further_choices(entries, merged, max(0, MOST - len(merged)))


def _adapt_rule(
    rule: VerdictRule, merged: Sequence[Match], ranking: Ranking | None, task: str
) -> VerdictRule:
    """Return the rule for a task whose words may be of another language than the library's."""
    # A task without a searchable word stays `none` in every language.
    has_words = ranking is not None and bool(ranking.terms)
    if has_words and rule.verdict(merged) is Verdict.NONE and is_foreign(task):
        return replace(rule, comparable=False)
    return rule


def _search_paper(
    index: Index, query: SearchQuery, dependencies: SearchDependencies
) -> CascadeResult:
    answers = search_evoagent(
        index, query, dependencies.neighbours, _make_chooser(dependencies, index.answers)
    )
    threshold = FITS if dependencies.fits is None else dependencies.fits
    matches = tuple(_merge_matches(answers, threshold))
    verdict = Verdict.SURE if matches else Verdict.NONE
    # The paper has no threshold after its stages: what one of them returns is the answer.
    return CascadeResult(
        matches, verdict, _list_reports(answers), threshold, VerdictRule(0, sure_from=0.0)
    )


def _check_arguments(task: str, limit: int, mode: str) -> None:
    if not isinstance(task, str) or not task.strip():
        raise InvalidArgument("The task is empty.", "Say in a sentence what is to be done.")
    # `type` and not isinstance: JSON's true is an int in Python.
    if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
        raise InvalidArgument(
            f"limit is {str(limit)[:40]!r}.", f"It may be a whole number from 1 to {MAX_LIMIT}."
        )
    if mode not in MODES:
        raise InvalidArgument(
            f"There is no mode {str(mode)[:40]!r}.", f"The modes are {', '.join(MODES)}."
        )


def _list_reports(results: Mapping[str, StageResult]) -> tuple[StageReport, ...]:
    return tuple(StageReport(stage, result.report) for stage, result in results.items())


def _merge_matches(results: Mapping[str, StageResult], fits: float) -> list[Match]:
    """Return one match for each resource, in the order of confidence, those that a stage is sure of
    first.

    Stages count as independent witnesses: all are wrong only if each is. Matches keep the order of
    their stage where no other stage found them. One that a stage is sure of fits at any threshold.
    """
    merged: dict[int, Match] = {}
    # From the last stage to the first, so that in `_join` the earlier stage is `one`, and its
    # reason comes first.
    for stage in reversed(list(results)):
        for match in results[stage].candidates:
            match.stage, other_match = stage, merged.get(match.entry.id)
            merged[match.entry.id] = _join(match, other_match) if other_match else match
    ordered = sorted(merged.values(), key=lambda match: (not match.sure, -match.confidence))
    for match in ordered:
        # Rounded here, so that everything below compares the numbers that the answer shows.
        match.confidence = round(match.confidence, 3)
        if match.sure:
            match.confidence, match.enough = max(match.confidence, fits), True
    return ordered


def _apply_past_tasks(index: Index, task: str, merged: list[Match], fits: float) -> list[Match]:
    """Return the matches corrected by what tasks near to this one taught; a sure match stays.

    One that was wrong for such a task is less likely, one that a person named for it is LABELLED.
    The best match fits when a session used it for such a task with success. Sessions change no
    order here, so a hostile one gains no place.
    """
    past = index.past_tasks(task, [match.entry.id for match in merged if not match.sure])
    # Most tasks are near to none that was learned.
    if not (past.wrong or past.labelled or past.succeeded):
        return merged
    for match in merged:
        _correct(match, past)
    # A label may have raised a match above the first one.
    merged.sort(key=lambda match: (not match.sure, -match.confidence))
    first = merged[0]
    if first.entry.id in past.succeeded and first.entry.id not in past.wrong:
        first.confidence = max(first.confidence, fits)
    return merged


def _correct(match: Match, past: PastTasks) -> None:
    """Change the confidence of a match by what tasks near to this one taught."""
    if match.entry.id in past.labelled:
        match.confidence, match.enough = max(match.confidence, LABELLED), True
    elif match.entry.id in past.wrong:
        match.confidence = round(match.confidence * CORRECTED, 3)


def _join(match: Match, other: Match) -> Match:
    """Return a match of one stage with what another stage says of the same resource."""
    if not match.sure and match.confidence < other.confidence:
        match.stage = other.stage
    match.confidence = 1 - (1 - match.confidence) * (1 - other.confidence)
    match.why = "; ".join(filter(None, (match.why, other.why)))
    match.sure, match.enough = match.sure or other.sure, match.enough or other.enough
    return match


def _apply_judge(
    result: CascadeResult,
    task: str,
    merged: Sequence[Match],
    judge_model: LanguageModel,
    memory: MutableMapping[str, str],
) -> CascadeResult:
    """Return the result after the judge's choice; when the judge fails, the result with its choice
    for the caller.

    Where a match fits, the judge chooses among the first few by long descriptions, else among all
    by short ones.
    """
    shortlist, most, length = list(merged[:SHORTLIST]), SHORTLIST, judge_stage.MAX_DESCRIPTION
    if not any(match.confidence >= result.fits for match in merged):
        shortlist = [*merged, *(Match(entry) for entry in result.further)]
        most, length = LIST_ALL, MOST_DESCRIPTION
    choices = judge_stage.make_choices([match.entry for match in shortlist])
    try:
        judged = judge_stage.ask_judge(
            task, choices, judge_model, memory, most=most, most_description=length
        )
    # A judge without an answer costs the search nothing: the caller chooses.
    except ProviderError as error:
        return replace(result, stages=(*result.stages, StageReport("judge", error.text)))
    stages = (*result.stages, StageReport("judge", judged.report))
    if judged.ref is None:
        return replace(result, verdict=Verdict.NONE, stages=stages, further=())
    chosen = next(match for match in shortlist if match.ref == judged.ref)
    chosen.stage, chosen.enough = "judge", True
    chosen.confidence = max(chosen.confidence, judged.confidence, result.rule.sure_from)
    chosen.why = "; ".join(filter(None, (judged.why, chosen.why)))
    rest = tuple(match for match in result.matches if match.entry.id != chosen.entry.id)
    # The chosen one may be of `further`; the answer still has no more matches than were asked for.
    matches = (chosen, *rest)[: max(1, len(result.matches))]
    return replace(result, matches=matches, verdict=Verdict.SURE, stages=stages, further=())


def _make_chooser(
    dependencies: SearchDependencies, memory: MutableMapping[str, str]
) -> Choose | None:
    judge_model = dependencies.judge_model
    if judge_model is None:
        return None

    def choose(task: str, entries: Sequence[IndexEntry]) -> tuple[IndexEntry | None, str]:
        choices = judge_stage.make_choices(entries)
        judged = judge_stage.ask_judge(
            task, choices, judge_model, memory, most=MOST_LISTED, most_description=MOST_DESCRIPTION
        )
        chosen = next((entry for entry in entries if str(entry.ref) == judged.ref), None)
        return chosen, judged.why or judged.report

    return choose


CAP = wilson_lower_bound(1, 1)
"""The most that reported evidence, or evidence of a resource without a voucher, is worth: one
success of one.
"""

TIE = 0.05
"""Confidences that differ by at most this count as equal; the models are not more exact."""


def break_ties(
    matches: Sequence[Match],
    proofs: Mapping[int, SuccessCounts],
    scopes: Sequence[str],
    fits: float,
    capped: Collection[int] = (),
) -> tuple[Match, ...]:
    """Return the matches with near ties ordered by evidence, then by the nearer scope.

    proofs: by the resource's id. scopes: nearest first. capped: resources whose evidence counts at
    most CAP. A match that does not fit keeps its place, as does a choice of a judge or a name. No
    match moves past one whose confidence is higher by more than TIE.
    """
    ordered: list[Match] = []
    rest = list(matches)
    near = {scope: place for place, scope in enumerate(scopes)}
    while rest:
        first = rest[0]
        if first.confidence < fits:
            return (*ordered, *rest)
        tied = [match for match in rest if match.confidence >= max(fits, first.confidence - TIE)]
        # What the task or a judge named is not outvoted by evidence.
        if first.stage in ("judge", "keyword"):
            tied = tied[:1]
        ordered += sorted(
            tied,
            key=lambda match: (
                -_bound_evidence(proofs.get(match.entry.id), match.entry.id in capped),
                near.get(match.entry.scope, len(near)),
            ),
        )
        rest = rest[len(tied) :]
    return tuple(ordered)


def _bound_evidence(proof: SuccessCounts | None, capped: bool) -> float:
    """Return the value of evidence: of verified ends alone where there are any, else of reported
    ones up to CAP.
    """
    if proof is None:
        return 0.0
    if not proof.verified:
        return min(wilson_lower_bound(proof.successes, proof.ends), CAP)
    bound = wilson_lower_bound(proof.verified_successes, proof.verified)
    return min(bound, CAP) if capped else bound
