"""The verbs that find resources: for a task, and as a list."""

import base64
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from evolvable_store import Actor, Delegate, parse_document
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind, main_file
from evolvable_store.storage import Impression, PooledVersion, SuccessCounts, Tally
from evolvable_tools import llm, retrieval
from evolvable_tools.authors import NOBODYS, AuthorKind, Authorship, authorships, version_authorship
from evolvable_tools.caller import Caller
from evolvable_tools.delegates import parse_delegate
from evolvable_tools.delegation import delegate_status
from evolvable_tools.library import Library
from evolvable_tools.metrics import earned_maturity, plain_task_type, verified_utilities
from evolvable_tools.retrieval import FITS, SearchDependencies, StageReport, Verdict, none_below
from evolvable_tools.trust import proven_resources
from evolvable_tools.untrusted_text import AnswerMarks, bound_text
from evolvable_tools.verbs.load import proven_maturity, summarise

if TYPE_CHECKING:
    from evolvable_store.search import Index, IndexEntry, Match


MAX_MATCHES = 20

NEAREST = 3
"""Matches that are named where nothing fits."""

CHOICES = 8
"""Matches of an answer, where the caller does not say how many, and the most choices that it
describes.
"""

MAX_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class FurtherChoice:
    """What may be for the task beside the matches.

    description: between marks where an agent reads it so.
    """

    ref: str
    description: str


@dataclass(frozen=True)
class FoundSkills:
    """The verdict on a task, and matches, best first; with `none` they are only the nearest.

    stages: what ran and what it said. further: what else may be chosen, the likely ones first.
    notice: what the marks around descriptions mean, '' where there are none. fits: the confidence
    from which a match counts as fitting. least: that from which a match is worth a line by itself.
    most: the matches that were asked for.
    """

    search_id: str
    verdict: Verdict
    matches: "list[Match]"
    stages: list[StageReport]
    further: list[FurtherChoice] = field(default_factory=list)
    notice: str = ""
    fits: float = FITS
    least: float = 0.0
    most: int = CHOICES

    @property
    def fitting(self) -> "list[Match]":
        """The matches that fit, best first."""
        if self.verdict is Verdict.NONE:
            return []
        return [match for match in self.matches if match.confidence >= self.fits]

    @property
    def lines(self) -> "list[Match]":
        """The matches that a person reads, best first: the nearest where none fits, else those that
        alone are not none.

        Of a choice at least the nearest.
        """
        if self.verdict is Verdict.NONE:
            return self.matches[:NEAREST]
        named = 0 if self.verdict is Verdict.SURE else NEAREST
        return [
            match
            for at, match in enumerate(self.matches)
            if at < named or match.confidence >= self.least
        ]


@dataclass(frozen=True, slots=True)
class ListedResource:
    """One resource of a listing.

    uses: how often it was loaded. success: share among the rated uses that count, None without any.
    rated: how many these are. author, by, marked, reported, verified: as in Match.
    """

    ref: str
    version: int
    description: str
    maturity: str
    uses: int
    success: float | None
    author: str
    by: str = ""
    marked: bool = False
    reported: int = 0
    verified: int = 0
    rated: int = 0


@dataclass(frozen=True)
class Listing:
    """One page, by name. `next_cursor` is None on the last. notice: as in FoundSkills."""

    resources: list[ListedResource]
    next_cursor: str | None = None
    notice: str = ""


def find_skill(
    library: Library,
    caller: Caller,
    task: str,
    *,
    limit: int = CHOICES,
    kind: Kind = Kind.SKILL,
    scopes: Sequence[str] | None = None,
    mode: str = "auto",
    dependencies: SearchDependencies | None = None,
    to_agent: bool = False,
    task_type: str | None = None,
) -> FoundSkills:
    """Return the resources that fit a task, best first.

    An agent gets none that says `disable-model-invocation: true`. dependencies: instead of the
    library's own. to_agent: an agent reads the answer, so the matches that fit are noted as shown
    to it. The searches of a person, a review or a round are not. task_type: near ties are ordered
    by what is verified of each match for it, where that is enough. The same question has the same
    answer until library, scopes or evidence change. Raises InvalidArgument.
    """
    if not 1 <= limit <= MAX_MATCHES:
        raise InvalidArgument(f"limit is {limit}.", f"It may be 1 to {MAX_MATCHES}.")
    scopes = scopes or caller.scopes
    dependencies = _complete_dependencies(library, dependencies or library.dependencies)
    index, most = index_for(library, caller), max(limit, CHOICES)
    result = retrieval.search_cascade(
        index, task, kind=kind, scopes=scopes, limit=most, mode=mode, dependencies=dependencies
    )
    ids = [match.entry.id for match in result.matches]
    successes = library.store.backend.evidence.count_successes(ids)
    # An answer has no room for more, and a judge of a small library chose before.
    extra = result.further[: retrieval.MOST]
    authors = authorships(library, [*ids, *(entry.id for entry in extra)], caller)
    matches, fits = result.matches, result.fits
    order = _order_matches(library, matches, fits, scopes, authors, successes, task_type)
    verdict = result.verdict if result.verdict is Verdict.NONE else result.rule.verdict(order)
    beyond, order = order[limit:], order[:limit]
    marks = _make_marks(caller)
    search, stages = f"search-{os.urandom(6).hex()}", list(result.stages)
    fitting = [match for match in order if match.confidence >= fits]
    if verdict is Verdict.NONE:
        fitting = []
    tried: Mapping[int, PooledVersion] = {}
    if library.trials is not None:
        ids = [match.entry.id for match in fitting]
        tried = library.trials.list_described(library, caller, ids, search)
    for match in order:
        author, proof = authors.get(match.entry.id, NOBODYS), successes.get(match.entry.id)
        _describe(library, scopes, match, author, proof, marks, task_type or "")
        if match.entry.id in tried:
            _describe_trial(library, caller, match, tried[match.entry.id], marks)
    if to_agent:
        shown = ((match.entry.id, match.version) for match in fitting)
        record_impressions(library, caller, search, shown)
    further = _list_further([*(match.entry for match in beyond), *extra], authors, marks)
    least = none_below(result.rule.resources)
    return FoundSkills(search, verdict, order, stages, further, marks.notice, fits, least, limit)


def _complete_dependencies(
    library: Library, dependencies: SearchDependencies
) -> SearchDependencies:
    """Return the dependencies with a judge that gets no secret, and with the evidence."""
    # The judge may be a model of a provider, so no secret of a description leaves with the
    # question.
    if dependencies.judge_model is not None:
        dependencies = replace(
            dependencies, judge_model=llm.RedactingModel(dependencies.judge_model, library.redact)
        )
    return replace(dependencies, proven=library.store.backend.evidence.most_successful)


def _order_matches(
    library: Library,
    matches: "Sequence[Match]",
    fits: float,
    scopes: Sequence[str],
    authors: Mapping[int, Authorship],
    successes: Mapping[int, SuccessCounts],
    task_type: str | None,
) -> "list[Match]":
    """Return the matches in the order of the answer, after their evidence and authors."""
    capped = _find_capped_resources(library, authors, successes)
    ranked = successes
    if task_type is not None:
        ranked = {**successes, **_count_typed_successes(library, successes, task_type)}
    for match in matches:
        _doubt_new(match, authors.get(match.entry.id), fits)
    ordered = retrieval.break_ties(matches, ranked, scopes, fits, capped)
    return _put_strangers_last(ordered, authors, fits)


def index_for(library: Library, caller: Caller) -> "Index":
    """Return the index that a caller searches: an agent is not offered what only a person calls."""
    return library.index.for_models() if caller.actor is Actor.AGENT else library.index


# With fewer ends of one type a single failure would decide the order.
MIN_TYPED = 3
"""Verified ends of one task type from which they, and not those of all types together, order near
ties.
"""


def _count_typed_successes(
    library: Library, resources: Iterable[int], task_type: str
) -> dict[int, SuccessCounts]:
    """Return the verified ends for one task type of those of these resources that have enough."""
    attempts = library.evidence.list_attempts(list(resources))
    task_kind = plain_task_type(task_type)
    counts = {}
    for (resource, kind), q in verified_utilities(attempts).items():
        if kind == task_kind and q.n >= MIN_TYPED:
            good = round(q.value * q.n)
            counts[resource] = SuccessCounts(q.n, good, q.n, good)
    return counts


def _find_capped_resources(
    library: Library, authors: Mapping[int, Authorship], successes: Mapping[int, SuccessCounts]
) -> set[int]:
    """Return the resources whose evidence counts little: an agent changed them, and they did not
    prove themselves.

    successes: the evidence of those that have any. Only verified ends are worth more than the cap,
    so the others are not looked at.
    """
    verified = (resource for resource, proof in successes.items() if proof.verified)
    unknown = [
        resource
        for resource in verified
        if resource in authors and authors[resource].kind is AuthorKind.AGENT
    ]
    return set(unknown) - proven_resources(library, unknown) if unknown else set()


def _doubt_new(match: "Match", author: Authorship | None, fits: float) -> None:
    """Lower the confidence of what an agent made in another session and no person looked at: it is
    never sure.
    """
    if author is not None and author.is_new and author.is_marked and match.confidence >= fits:
        # Just below the limit: it stays among the nearest and is never sure.
        match.confidence = round(max(0.0, fits - 0.01), 3)


def _list_further(
    entries: Iterable["IndexEntry"], authors: Mapping[int, Authorship], marks: AnswerMarks
) -> list[FurtherChoice]:
    """Return what may be chosen beside the matches; that of strangers comes last."""
    pairs = [(entry, authors.get(entry.id, NOBODYS)) for entry in entries]
    pairs.sort(key=lambda pair: pair[1].is_strangers)
    return [
        FurtherChoice(str(entry.ref), _format_description(entry.description, author, marks))
        for entry, author in pairs
    ]


def _make_marks(caller: Caller) -> AnswerMarks:
    """Return the marks around descriptions of one answer: a person reads them without."""
    return AnswerMarks(caller.actor is not Actor.HUMAN)


def _format_description(text: str, author: Authorship, marks: AnswerMarks) -> str:
    """Return a description as this answer shows it."""
    if author.is_marked and marks.on:
        return marks.description(text)
    return bound_text(text, trusted=not author.is_strangers)


def _put_strangers_last(
    matches: "Sequence[Match]", authors: Mapping[int, Authorship], fits: float
) -> "list[Match]":
    """Return the matches with those of strangers behind everything else that fits."""

    def place(match: "Match") -> int:
        if match.confidence < fits:
            return 2
        return 1 if authors.get(match.entry.id, NOBODYS).is_strangers else 0

    # Of those that fit none is behind one that does not, unless it is a stranger's.
    if not any(place(match) == 1 for match in matches):
        return list(matches)
    return sorted(matches, key=place)


def _describe(
    library: Library,
    scopes: Sequence[str],
    match: "Match",
    author: Authorship,
    proof: SuccessCounts | None,
    marks: AnswerMarks,
    task_type: str,
) -> None:
    """Add to a match what the answer says of its version."""
    entry, proof = match.entry, proof or SuccessCounts()
    match.version = entry.version
    match.description = _format_description(entry.description, author, marks)
    match.why = _format_description(match.why, author, marks)  # it quotes the description
    match.author, match.by, match.marked = author.kind, author.by, author.is_marked
    match.maturity = earned_maturity(proof.verified_successes, proof.verified, proof.ends)
    match.reported, match.verified = proof.reported, proof.verified
    delegate = parse_delegate(Delegate(entry.delegate)) if entry.delegate else None
    if delegate is not None:
        head = library.store.backend.heads_by_id([entry.id])[entry.id]
        match.delegate = delegate_status(library, scopes, delegate, head, entry.version, task_type)


def _describe_trial(
    library: Library, caller: Caller, match: "Match", trial: PooledVersion, marks: AnswerMarks
) -> None:
    """Change a match to what a session of the trial arm sees: the version on trial, with its own
    description.
    """
    head = library.store.backend.heads_by_id([trial.resource])[trial.resource]
    author = version_authorship(library, head, trial.version, caller)
    main = library.store.file(head, main_file(head.kind, head.name), trial.version)
    text = str(parse_document(main.data).fields.get("description", ""))
    match.version, match.description = trial.version, _format_description(text, author, marks)
    match.author, match.marked = author.kind, author.is_marked


def record_impressions(
    library: Library, caller: Caller, search: str, versions: Iterable[tuple[int, int]]
) -> None:
    """Note that a search showed these (resource, version) to an agent; written a moment later."""
    at = library.store.now()
    impressions = [
        Impression(search, resource, version, at, caller.session) for resource, version in versions
    ]
    library.impressions.note(impressions)


def list_resources(
    library: Library,
    caller: Caller,
    *,
    kind: Kind | None = None,
    query: str | None = None,
    scope: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Listing:
    """Return one page of what the caller sees, by name.

    An agent sees only what it may be offered. Raises InvalidArgument.
    """
    index, scopes = index_for(library, caller), (scope,) if scope else caller.scopes
    entries, following = list_page(
        index, scopes, kind=kind, query=query, limit=limit, cursor=cursor
    )
    ids = [entry.id for entry in entries]
    tallies = library.evidence.tallies(ids)
    successes = library.store.backend.evidence.count_successes(ids)
    authors, marks = authorships(library, ids, caller), _make_marks(caller)
    ordered = []
    for entry in entries:
        tally, proof = tallies.get(entry.id, Tally()), successes.get(entry.id)
        author = authors.get(entry.id, NOBODYS)
        summary = summarise(str(entry.ref), tally, proof)
        row = ListedResource(
            ref=str(entry.ref),
            version=entry.version,
            description=_format_description(entry.description, author, marks),
            maturity=proven_maturity(proof),
            author=author.kind,
            by=author.by,
            marked=author.is_marked,
            reported=proof.reported if proof is not None else 0,
            verified=proof.verified if proof is not None else 0,
            uses=tally.loaded,
            success=summary.success,
            rated=summary.rated,
        )
        # What a stranger brought comes behind the person's own of the same name.
        ordered.append(((entry.name, entry.kind, author.is_strangers), row))
    ordered.sort(key=lambda item: item[0])
    return Listing([row for _, row in ordered], following, marks.notice)


def list_page(
    index: "Index",
    scopes: Sequence[str],
    *,
    kind: Kind | None,
    query: str | None = None,
    limit: int,
    cursor: str | None,
) -> tuple[list["IndexEntry"], str | None]:
    """Return one page of entries and the cursor of the next, None on the last.

    Raises InvalidArgument.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidArgument(f"limit is {limit}.", f"It may be 1 to {MAX_PAGE}.")
    after = _decode_cursor(cursor) if cursor else None
    # One more than asked for shows whether there is a next page.
    entries = index.entries(kind=kind, scopes=scopes, query=query, limit=limit + 1, after=after)
    if len(entries) <= limit:
        return entries, None
    return entries[:limit], _encode_cursor(entries[limit - 1])


def _encode_cursor(entry: "IndexEntry") -> str:
    text = json.dumps([entry.name, entry.kind, entry.scope])
    return base64.urlsafe_b64encode(text.encode("utf-8")).decode("ascii")


def _decode_cursor(cursor: str) -> tuple[str, str, str]:
    with suppress(ValueError, TypeError):
        name, kind, scope = json.loads(base64.urlsafe_b64decode(cursor.encode("ascii")))
        if isinstance(name, str) and isinstance(kind, str) and isinstance(scope, str):
            return name, kind, scope
    raise InvalidArgument(
        "That is no cursor.", "Pass next_cursor of the page before, or none for the first."
    )
