"""How far what a resource says is vouched for, read from the history of its content."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evolvable_store.attempts import attempts
from evolvable_store.authors import Author, authors
from evolvable_store.evidence import Outcome
from evolvable_store.operation import Actor, Head, Principal
from evolvable_store.vouching import Vouching, untrusted
from evolvable_tools.library import Library
from evolvable_tools.measures.wilson import lower_bound

CARRIED = 0.5
"""The lower bound of the share of successes from which on evidence vouches for what an agent wrote: 4 of 4."""

_ENDS = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.PARTIAL)


class Trust(StrEnum):
    """Who vouches for the content of a head, the most first."""

    PERSON = "person"
    """A person wrote it."""

    APPROVED = "approved"
    """Somebody else wrote it, and a person approved it."""

    PROVEN = "proven"
    """An agent wrote it, and sessions of others succeeded with this very version."""

    IMPORT = "import"
    """It came from elsewhere, when a person took it in."""

    LOCAL = "local"
    """A file changed on disk, and nothing says who changed it."""

    AGENT = "agent"
    """An agent wrote it, and nobody approved it yet."""

    UNTRUSTED = "untrusted"
    """A repository brought it, and no person trusted its folder yet."""


SAID = {
    Trust.AGENT: "written by an agent, not yet approved by a person",
    Trust.PROVEN: "written by an agent, not yet approved by a person; it proved itself",
    Trust.IMPORT: "taken in from elsewhere",
    Trust.LOCAL: "changed on disk; no person has confirmed who changed it",
    Trust.UNTRUSTED: "brought by a repository that no person has trusted",
}
"""What a reader is told; nothing where a person vouches."""


def trusts(library: Library, resources: Iterable[int]) -> dict[int, Trust]:
    """Returns how far the newest version of each of these resources is to be trusted.

    Content counts, not its last mover: what an agent brings back is trusted as it was before.
    """
    backend = library.store.backend
    known = authors(backend, resources)
    found = {resource: max(map(_by_author, made), key=_rank) for resource, made in known.items()}
    unknown = [resource for resource, trust in found.items() if trust is Trust.AGENT]
    if unknown:
        found |= dict.fromkeys(_carried(library, unknown, known), Trust.PROVEN)
    return found | _decided(library, found)


def _decided(library: Library, found: Mapping[int, Trust]) -> dict[int, Trust]:
    """Returns what a person's decisions say otherwise, and what was built on a repository's version."""
    doubtful = [resource for resource, trust in found.items() if trust not in (Trust.PERSON, Trust.APPROVED)]
    if not doubtful:
        return {}
    heads = library.store.backend.heads_by_id(doubtful)
    decided = dict.fromkeys(untrusted(library.store.backend, doubtful), Trust.UNTRUSTED)
    vouched = Vouching(library.store.backend).of(doubtful)
    return decided | {one.resource: Trust.APPROVED for one in vouched if heads[one.resource].tree == one.tree}


VOUCHED_FOR = frozenset((Trust.PERSON, Trust.APPROVED, Trust.PROVEN))
"""Levels whose texts reach an agent without marks."""


OWN = "quickstart"
"""How an import is known that the program itself made: its own skills, and quickstart's copies of the person's."""

OWN_SAID = "comes with Evolvable, or was copied by quickstart"


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a head is trusted, and who answers for it: a principal, and how that is known."""

    trust: Trust
    principal: str = ""
    via: str = ""

    @property
    def marked(self) -> bool:
        """Whether its texts reach an agent between marks."""
        return self.trust not in VOUCHED_FOR and not (self.trust is Trust.IMPORT and self.via == OWN)


def standings(library: Library, resources: Iterable[int]) -> dict[int, Standing]:
    """Returns how far the newest version of each of these resources is trusted, and who answers for it."""
    ids = list(resources)
    levels, known = trusts(library, ids), authors(library.store.backend, ids)
    return {one: _standing(levels[one], known[one][0]) for one in ids if one in levels and known.get(one)}


def _standing(trust: Trust, author: Author) -> Standing:
    implied = Principal.PERSON if author.actor is Actor.HUMAN else Principal.AGENT
    return Standing(trust, author.principal or implied, author.via)


def version_said(library: Library, head: Head, number: int) -> str:
    """Returns what a reader of a version is told of who vouches for it, '' when a person does."""
    if number == head.latest:
        standing = standings(library, [head.id])[head.id]
        own = standing.trust is Trust.IMPORT and standing.via == OWN
        return OWN_SAID if own else SAID.get(standing.trust, "")
    version = library.store.version(head, number)
    if any(one.tree == version.tree for one in Vouching(library.store.backend).of([head.id])):
        return ""
    made = library.store.operation(version.operation)
    evidence = made.intent.evidence
    proposed = any(text.startswith("proposal ") for text in evidence)
    author = Author(made.actor, number, made.session, proposed, made.principal, made.intent.via)
    return SAID.get(_by_author(author), "")


_BY_PRINCIPAL = {
    Principal.IMPORT: Trust.IMPORT,
    Principal.UNKNOWN: Trust.LOCAL,
    Principal.REPOSITORY: Trust.UNTRUSTED,
    Principal.AGENT: Trust.AGENT,
}


def _rank(trust: Trust) -> int:
    return -list(Trust).index(trust)


def _by_author(author: Author) -> Trust:
    if author.principal in _BY_PRINCIPAL:
        return _BY_PRINCIPAL[author.principal]
    if author.actor is Actor.HUMAN:
        return Trust.APPROVED if author.proposed else Trust.PERSON
    return Trust.IMPORT if author.actor is Actor.IMPORT else Trust.AGENT


def _carried(library: Library, resources: Sequence[int], known: Mapping[int, Sequence[Author]]) -> list[int]:
    """Returns those whose content succeeded often enough in sessions that had no part in writing it."""
    ends: dict[int, list[Outcome]] = {}
    wrote = {resource: {author.session for author in known[resource]} for resource in resources}
    versions = {resource: {author.version for author in known[resource]} for resource in resources}
    for one in attempts(library.store.backend, resources, versions=True):
        resource = one.resource
        if one.used and one.version in versions[resource] and one.key not in wrote[resource] and one.outcome in _ENDS:
            ends.setdefault(resource, []).append(one.outcome)
    return [r for r, all_of in ends.items() if lower_bound(all_of.count(Outcome.SUCCEEDED), len(all_of)) >= CARRIED]
