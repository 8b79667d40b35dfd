"""The proof of what agents wrote, and what older libraries counted as proof.

`proven_resources` says which contents proved themselves: that changes their rank in a search.
`find_downgraded` compares the evidence of an older library with the graded one.
`mark_repository_heads` marks what a repository brought to a library of a version before 0.2.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolvable_store import Actor, Head
from evolvable_store.storage import (
    Attempt,
    Outcome,
    SuccessCounts,
    UngradedEvidence,
    VersionAuthor,
    WatchedFolder,
    one_of_each_connection,
)
from evolvable_store.workingcopy import REPOSITORY, holds_one, repositories_around
from evolvable_tools.authors import AuthorKind, authorships
from evolvable_tools.library import Library
from evolvable_tools.metrics import earned_maturity, maturity_of, wilson_lower_bound

CARRIED = 0.5
"""The lower bound of the share of verified successes from which on evidence vouches for what an
agent wrote: 4 of 4.
"""

_ENDS = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.PARTIAL)


def proven_resources(library: Library, resources: Sequence[int]) -> set[int]:
    """Return those whose newest content proved itself in sessions that had no part in
    writing it.
    """
    authors_by_resource = library.store.backend.authorship.list_authors(resources)
    return set(_find_proven(library, resources, authors_by_resource))


def _find_proven(
    library: Library,
    resources: Sequence[int],
    authors_by_resource: Mapping[int, Sequence[VersionAuthor]],
) -> list[int]:
    """Return those whose content succeeded often enough in verified uses that had no part in
    writing it.

    Often enough is more often than the version that a person stood for; where that has no verified
    ends, than sessions without the resource. Where neither is known, nothing is proven: the tasks
    may succeed without it.
    """
    backend, proven = library.store.backend, []
    verified: dict[int, list[Attempt]] = {}
    for attempt in backend.evidence.list_attempts(resources, versions=True):
        if attempt.verified and attempt.used and attempt.outcome in _ENDS:
            verified.setdefault(attempt.resource, []).append(attempt)
    for resource, attempts in verified.items():
        versions = {author.version for author in authors_by_resource[resource]}
        # Sessions that wrote the content, and their connections, prove nothing: an author praises
        # its own work.
        writers = {
            author.session for author in authors_by_resource[resource] if author.session is not None
        }
        writers |= backend.evidence.session_connections(writers)
        others = [
            attempt
            for attempt in attempts
            if attempt.version in versions and not writers & {attempt.key, attempt.link}
        ]
        ends = [attempt.outcome for attempt in one_of_each_connection(others)]
        # Few successes prove nothing, however high their share is.
        if wilson_lower_bound(ends.count(Outcome.SUCCEEDED), len(ends)) < CARRIED:
            continue
        without = _measure_share_before(library, resource, attempts)
        if without is not None and _measure_share(ends) > without:
            proven.append(resource)
    return proven


def _measure_share_before(
    library: Library, resource: int, verified: Sequence[Attempt]
) -> float | None:
    """Return the share of successes of a resource's base, else of sessions without the resource;
    None for neither.
    """
    backend = library.store.backend
    (version_authors,) = backend.authorship.newest_authors([resource]).values()
    base = version_authors.provenance.base
    if base:
        base_attempts = one_of_each_connection(_filter_version(verified, base))
        if base_ends := [attempt.outcome for attempt in base_attempts]:
            return _measure_share(base_ends)
    within = {attempt.key for attempt in backend.evidence.list_attempts([resource], versions=True)}
    others = [
        verified_end.outcome
        for verified_end in backend.observations.verified_ends()
        if verified_end.session not in within
    ]
    ends = [outcome for outcome in others if outcome in _ENDS]
    return _measure_share(ends) if ends else None


def _filter_version(verified: Sequence[Attempt], version: int) -> list[Attempt]:
    return [attempt for attempt in verified if attempt.version == version]


def _measure_share(ends: Sequence[Outcome | None]) -> float:
    return ends.count(Outcome.SUCCEEDED) / len(ends)


_LEVELS = ("Budding", "Growing", "Mature", "Proficient")

MOST = 20
"""Resources that are named."""


@dataclass(frozen=True, slots=True)
class Downgraded:
    """A downgraded resource. ends: those that counted before. verified: those that are verified
    now.

    trust_before is trust where only the maturity fell.
    """

    ref: str
    maturity_before: str
    maturity: str
    trust_before: str
    trust: str
    ends: int
    verified: int

    @property
    def text(self) -> str:
        """One line for a person."""
        changed = (
            f", {self.trust_before} -> {self.trust}" if self.trust != self.trust_before else ""
        )
        return f"{self.ref}: {self.ends} ends counted before, {self.verified} are verified{changed}"


def find_downgraded(library: Library, *, unsaid: bool = False) -> list[Downgraded]:
    """Return the resources that grading the evidence downgraded.

    unsaid: only if no command has reported them yet.
    """
    rows = library.evidence.list_regraded(unsaid=unsaid)
    if not rows:
        return []
    whole = {row.resource: row for row in rows if row.version == 0}
    backend = library.store.backend
    heads = {
        head.id: head for head in backend.heads_by_id(whole).values() if head.version is not None
    }
    now = backend.evidence.count_successes(heads)
    authorships_by_resource = authorships(library, heads)
    agents = [
        resource for resource in heads if authorships_by_resource[resource].kind is AuthorKind.AGENT
    ]
    # Only the text of agents is ever proven; others are trusted for other reasons.
    proven, before_proven = proven_resources(library, agents), _find_proven_before(library, rows)
    lowered = []
    for resource, head in sorted(heads.items(), key=lambda item: str(item[1].ref)):
        proof, before = now.get(resource, SuccessCounts()), whole[resource]
        word = str(authorships_by_resource[resource].kind)
        downgraded = Downgraded(
            str(head.ref),
            maturity_of(before.successes, before.ends),
            earned_maturity(proof.verified_successes, proof.verified, proof.ends),
            "proven" if resource in agents and resource in before_proven else word,
            "proven" if resource in proven else word,
            before.ends,
            proof.verified,
        )
        fell = _LEVELS.index(downgraded.maturity) < _LEVELS.index(downgraded.maturity_before)
        if fell or downgraded.trust != downgraded.trust_before:
            lowered.append(downgraded)
    return lowered


def _find_proven_before(library: Library, rows: Sequence[UngradedEvidence]) -> set[int]:
    """Return the resources whose newest content had evidence that vouched for it before."""
    authors_by_resource = library.store.backend.authorship.list_authors(
        {row.resource for row in rows}
    )
    versions = {
        resource: {author.version for author in authors}
        for resource, authors in authors_by_resource.items()
    }
    ends: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        if row.version in versions.get(row.resource, ()):
            ends[row.resource][0] += row.successes
            ends[row.resource][1] += row.ends
    return {resource for resource, counts in ends.items() if wilson_lower_bound(*counts) >= CARRIED}


def format_downgraded(found: Sequence[Downgraded]) -> list[str]:
    """Return the lines for a person: the reason, then each resource."""
    count = f"{len(found)} resources stand" if len(found) > 1 else "1 resource stands"
    reason = (
        "Evidence now counts only where this library served the version, and only verified "
        f"ends prove; {count} lower:"
    )
    lines = [reason, *(downgraded.text for downgraded in found[:MOST])]
    if len(found) > MOST:
        lines.append(f"{len(found) - MOST} more; `evolvable learn stats` shows every resource")
    return lines


MAX_NAMED = 10
"""Resources that the notice names."""


def mark_repository_heads(library: Library) -> list[str]:
    """Mark heads that a repository brought before principals were recorded, and return what
    changed, in words.

    Does nothing on a library that was re-read before, or that this version made.
    """
    vouching = library.store.backend.attestations
    if library.store.read_only or not vouching.needs_reread():
        return []
    heads = [
        head for folder in library.folders() for head in _find_repository_heads(library, folder)
    ]
    vouching.attribute(((head.id, head.latest) for head in heads), library.store.now(), REPOSITORY)
    # Noted last: a run that is killed before is repeated.
    vouching.note_reread(library.store.now())
    if not heads:
        return []
    names = ", ".join(str(head.ref) for head in heads[:MAX_NAMED])
    more = f" and {len(heads) - MAX_NAMED:,} more" if len(heads) > MAX_NAMED else ""
    return [
        f"A repository holds {names}{more}. They counted as yours until now. Agents read them "
        "between marks until a person trusts their folder."
    ]


def _find_repository_heads(library: Library, folder: WatchedFolder) -> list[Head]:
    if not repositories_around(folder.path):
        return []
    bound = library.working_copies.bindings.of_folder(folder)
    heads = library.store.backend.heads_by_id({binding.resource for binding in bound.values()})
    repository_heads = []
    for directory, binding in bound.items():
        head = heads.get(binding.resource)
        if head is None or head.version is None or binding.version != head.version:
            continue
        if not _is_before_principals(library, head):
            continue
        if holds_one(folder, directory, library.store.files(head)):
            repository_heads.append(head)
    return repository_heads


def _is_before_principals(library: Library, head: Head) -> bool:
    """Return whether a person's program made the newest version before principals were recorded."""
    operation = library.store.operation(library.store.version(head).operation)
    return operation.principal is None and operation.actor is Actor.HUMAN
