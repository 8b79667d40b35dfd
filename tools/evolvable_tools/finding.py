"""The verbs that find: a resource for a task, or the list of all."""

import base64
import binascii
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from evolvable_store.errors import InvalidArgument
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.evidence import SuccessCounts, Tally, count_successes
from evolvable_store.storage.observations import Impression
from evolvable_tools.foreign_text import AnswerMarks, bounded
from evolvable_tools.library import Caller, Library
from evolvable_tools.lookup.choice import ChooseBetween
from evolvable_tools.lookup.means import Means
from evolvable_tools.lookup.stage import StageReport
from evolvable_tools.trust import Standing, Trust, standings
from evolvable_tools.usage import proven, summarise

if TYPE_CHECKING:
    from evolvable_store.search.index import IndexEntry
    from evolvable_tools.lookup.cascade import Match
    from evolvable_tools.lookup.confusable import Confusion

MAX_MATCHES = 20
MAX_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class FoundMatch:
    """One match: which version, which stage found it, how sure that is (0 to 1), why, how proven it is, and who
    vouches for it: person, approved, proven, import, local, agent (not yet approved) or untrusted (of a repository).

    reported, verified: known ends of its uses, as their sessions say or as is verified. notice: what a reader is to
    know of the trust, '' when a person vouches. principal, via: who answers for it.
    """

    ref: str
    version: int
    name: str
    description: str
    stage: str
    confidence: float
    why: str
    maturity: str
    trust: str
    reported: int = 0
    verified: int = 0
    notice: str = ""
    principal: str = ""
    via: str = ""


@dataclass(frozen=True)
class FoundSkills:
    """Matches, best first. none_fits: nothing in the library is for this task. stages: what ran and what it said.

    choose_between: the search is not sure, and whoever called shall choose. notice: what the marks around descriptions
    mean, '' where there are none.
    """

    search_id: str
    matches: list[FoundMatch]
    none_fits: bool
    stages: list[StageReport]
    choose_between: ChooseBetween | None = None
    notice: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """One resource of a listing. uses: how often it was loaded; success: share among the known ends that count, None
    without any.

    trust, principal, via: who vouches for it, and who answers for it; reported, verified: as in FoundMatch.
    """

    ref: str
    version: int
    description: str
    maturity: str
    uses: int
    success: float | None
    trust: str
    reported: int = 0
    verified: int = 0
    principal: str = ""
    via: str = ""


@dataclass(frozen=True)
class Listing:
    """One page, by name. `next_cursor` is None on the last. notice: as in FoundSkills."""

    resources: list[Listed]
    next_cursor: str | None = None
    notice: str = ""


def find_skill(
    library: Library,
    caller: Caller,
    task: str,
    *,
    limit: int = 5,
    kind: Kind = Kind.SKILL,
    scopes: Sequence[str] | None = None,
    mode: str = "auto",
    means: Means | None = None,
    shown: bool = True,
) -> FoundSkills:
    """Returns the resources that fit a task, best first.

    means: instead of the library's own. shown: an agent will see the matches, so those that fit are noted as shown to
    it. Raises InvalidArgument.
    """
    # Only its types are needed before the first search, and a server shall start fast.
    from evolvable_tools.lookup.cascade import find
    from evolvable_tools.lookup.standing import settled
    from evolvable_tools.providers.discreet import DiscreetThinker

    if not 1 <= limit <= MAX_MATCHES:
        raise InvalidArgument(f"limit is {limit}.", f"It may be 1 to {MAX_MATCHES}.")
    means, scopes = means or library.means, scopes or caller.scopes
    if means.thinker is not None:
        means = replace(means, thinker=DiscreetThinker(means.thinker, library.redacted))
    found = find(library.index, task, kind=kind, scopes=scopes, limit=limit, mode=mode, means=means)
    known = count_successes(library.store.backend, [match.entry.id for match in found.matches])
    stand = standings(library, [match.entry.id for match in found.matches])
    trust = {resource: one.trust for resource, one in stand.items()}
    capped = {resource for resource, level in trust.items() if level is Trust.AGENT}
    order = _untrusted_last(settled(found.matches, known, scopes, means.fits, capped), trust, means.fits)
    marks = _Marks(caller)
    matches = [_match(m, stand.get(m.entry.id, _NOBODY), known.get(m.entry.id), marks) for m in order]
    search, stages = f"search-{os.urandom(6).hex()}", list(found.stages)
    if shown and not found.none_fits and caller.actor is not Actor.HUMAN:
        fitting = [*order[:1], *(match for match in order[1:] if match.confidence >= means.fits)]
        note_shown(library, caller, search, ((match.entry.id, match.entry.version) for match in fitting))
    choose = _choices(library, found.choose_between, marks)
    return FoundSkills(search, matches, found.none_fits, stages, choose, marks.notice)


def _choices(library: Library, asked: ChooseBetween | None, marks: "_Marks") -> ChooseBetween | None:
    """Return a choice that is left to the caller, with the words of those that are not trusted between marks."""
    if asked is None:
        return None
    heads = {one.ref: library.store.head_or_none(Ref.parse(one.ref)) for one in asked.choices}
    stand = standings(library, [head.id for head in heads.values() if head is not None])
    known = {ref: stand.get(head.id, _NOBODY) for ref, head in heads.items() if head is not None}
    return replace(
        asked,
        choices=[
            replace(one, tells_apart=marks.around(one.tells_apart, known.get(one.ref, _NOBODY)))
            for one in asked.choices
        ],
    )


_NOBODY = Standing(Trust.AGENT)


class _Marks:
    """The marks around descriptions of one answer: a person reads them without."""

    def __init__(self, caller: Caller) -> None:
        self._marks = AnswerMarks(caller.actor is not Actor.HUMAN)

    @property
    def notice(self) -> str:
        """What the answer says of its marks, '' when it has none."""
        return self._marks.notice

    def around(self, text: str, standing: Standing) -> str:
        """Return a description as this answer shows it."""
        if not standing.marked:
            return bounded(text)
        if not self._marks.on:
            return bounded(text, trusted=standing.trust is not Trust.UNTRUSTED)
        return self._marks.description(text)


def _untrusted_last(matches: "Sequence[Match]", trust: Mapping[int, Trust], fits: float) -> "list[Match]":
    """Return the matches with those that nobody trusts behind everything else that fits."""
    last = [m for m in matches if trust.get(m.entry.id) is Trust.UNTRUSTED and m.confidence >= fits]
    if not last:
        return list(matches)
    others = [m for m in matches if m not in last]
    fitting = [m for m in others if m.confidence >= fits]
    return [*fitting, *last, *(m for m in others if m.confidence < fits)]


def _match(match: "Match", standing: Standing, proof: SuccessCounts | None, marks: _Marks) -> FoundMatch:
    return FoundMatch(
        match.ref,
        match.entry.version,
        match.entry.name,
        marks.around(match.entry.description, standing),
        match.stage,
        match.confidence,
        marks.around(match.why, standing),  # it quotes the description
        proven(proof),
        standing.trust,
        *_ends(proof),
        standing.notice,
        standing.principal,
        standing.via,
    )


def note_shown(library: Library, caller: Caller, search: str, versions: Iterable[tuple[int, int]]) -> None:
    """Notes that a search showed these (resource, version) to an agent; written a moment later."""
    at = library.store.now()
    library.shown.note([Impression(search, resource, version, at, caller.session) for resource, version in versions])


def doubles(library: Library, refs: Sequence[Ref], *, limit: int = 10) -> "Confusion":
    """Returns which of these resources can easily be taken for another one, the most alike first."""
    from evolvable_tools.lookup.confusable import MOST_AT_ONCE, confusable

    heads = (library.store.head_or_none(ref) for ref in refs[:MOST_AT_ONCE])
    entries = (library.index.entry(head) for head in heads if head is not None)
    newcomers = [entry for entry in entries if entry is not None]
    return confusable(library.index, newcomers, limit=limit, further=len(refs[MOST_AT_ONCE:]))


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
    """Returns one page of what the caller sees, by name. Raises InvalidArgument."""
    scopes = (scope,) if scope else caller.scopes
    entries, following = page(library, scopes, kind=kind, query=query, limit=limit, cursor=cursor)
    ids = [entry.id for entry in entries]
    tallies, known = library.evidence.tallies(ids), count_successes(library.store.backend, ids)
    stand, marks = standings(library, ids), _Marks(caller)
    listed = [
        _listed(entry, tallies.get(entry.id, Tally()), known.get(entry.id), stand.get(entry.id, _NOBODY), marks)
        for entry in entries
    ]
    last = {str(entry.ref): stand.get(entry.id, _NOBODY).trust is Trust.UNTRUSTED for entry in entries}
    names = {str(entry.ref): (entry.name, entry.kind) for entry in entries}
    listed.sort(key=lambda one: (*names[one.ref], last[one.ref]))  # behind the person's own of the same name
    return Listing(listed, following, marks.notice)


def _listed(
    entry: "IndexEntry", tally: Tally, proof: SuccessCounts | None, standing: Standing, marks: _Marks
) -> Listed:
    one, description = summarise(str(entry.ref), tally, proof), marks.around(entry.description, standing)
    ends, who = (one.reported, one.verified), (standing.principal, standing.via)
    return Listed(
        *(one.ref, entry.version, description, one.maturity, one.loaded, one.success, standing.trust), *ends, *who
    )


def _ends(proof: SuccessCounts | None) -> tuple[int, int]:
    return (proof.reported, proof.verified) if proof is not None else (0, 0)


def page(
    library: Library,
    scopes: Sequence[str],
    *,
    kind: Kind | None,
    query: str | None = None,
    limit: int,
    cursor: str | None,
) -> tuple[list["IndexEntry"], str | None]:
    """Returns one page of entries and the cursor of the next, None on the last. Raises InvalidArgument."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidArgument(f"limit is {limit}.", f"It may be 1 to {MAX_PAGE}.")
    after = _after(cursor) if cursor else None
    entries = library.index.entries(kind=kind, scopes=scopes, query=query, limit=limit + 1, after=after)
    if len(entries) <= limit:
        return entries, None
    return entries[:limit], _cursor(entries[limit - 1])


def _cursor(entry: "IndexEntry") -> str:
    key = json.dumps([entry.name, entry.kind, entry.scope])
    return base64.urlsafe_b64encode(key.encode("utf-8")).decode("ascii")


def _after(cursor: str) -> tuple[str, str, str]:
    try:
        name, kind, scope = json.loads(base64.urlsafe_b64decode(cursor.encode("ascii")))
    except (ValueError, binascii.Error, TypeError):
        name = kind = scope = None
    if not (isinstance(name, str) and isinstance(kind, str) and isinstance(scope, str)):
        raise InvalidArgument("That is no cursor.", "Pass next_cursor of the page before, or none for the first.")
    return name, kind, scope
