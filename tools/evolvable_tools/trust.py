"""How far what a resource says is vouched for, read from the history of its content."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evolvable_store.operation import Actor, Head, Operation, Principal
from evolvable_store.storage.attestations import Attestation, Attestations, Author, list_authors, untrusted_resources
from evolvable_store.storage.evidence import (
    Attempt,
    Outcome,
    list_attempts,
    one_of_each_connection,
    session_connections,
)
from evolvable_tools.library import Library
from evolvable_tools.measures.wilson import lower_bound

CARRIED = 0.5
"""The lower bound of the share of verified successes from which on evidence vouches for what an agent wrote: 4 of 4."""

_ENDS = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.PARTIAL)


class Trust(StrEnum):
    """Who vouches for the content of a head, the most first."""

    PERSON = "person"
    """A person wrote it."""

    APPROVED = "approved"
    """Somebody else wrote it, and a person approved it."""

    PROVEN = "proven"
    """An agent wrote it, and verified uses by others succeeded with this very version."""

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
    return _levels(library, list_authors(library.store.backend, resources))


def _levels(library: Library, known: Mapping[int, Sequence[Author]]) -> dict[int, Trust]:
    vouched = _vouched(library, known)
    found = {
        resource: max((_by_author(author, vouched) for author in made), key=_rank) for resource, made in known.items()
    }
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
    decided = dict.fromkeys(untrusted_resources(library.store.backend, doubtful), Trust.UNTRUSTED)
    vouched = _vouchers(library, doubtful)
    return decided | {one.resource: Trust.APPROVED for one in vouched if heads[one.resource].tree == one.tree}


def _vouchers(library: Library, resources: Sequence[int]) -> list[Attestation]:
    """Return the decisions of a person to trust contents; where approvals are locked, the signed ones."""
    found = Attestations(library.store.backend).of(resources)
    return found if library.lock is None else [one for one in found if library.lock.signed(one)]


UNMARKED = frozenset((Trust.PERSON, Trust.APPROVED, Trust.PROVEN, Trust.LOCAL))
"""Levels whose texts reach an agent without marks around them.

Local is among them: nearly every local version is a save in the person's own editor, and the answer names the trust.
"""


OWN = "quickstart"
"""How an import is known that the program itself made: its own skills, and quickstart's copies of the person's."""

OWN_SAID = "comes with Evolvable, or was copied by quickstart"


UNMARKED_SAID = frozenset(("", OWN_SAID, *(SAID[level] for level in UNMARKED if level in SAID)))
"""What is said of versions whose texts reach an agent without marks around them."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a head is trusted, and who answers for it: a principal, and how that is known."""

    trust: Trust
    principal: str = ""
    via: str = ""

    @property
    def marked(self) -> bool:
        """Whether its texts reach an agent between marks."""
        return self.trust not in UNMARKED and not self.own

    @property
    def own(self) -> bool:
        """Whether the program itself imported it."""
        return self.trust is Trust.IMPORT and self.via == OWN

    @property
    def notice(self) -> str:
        """What a reader is told of the trust, '' when a person vouches."""
        return "" if self.own else SAID.get(self.trust, "")


def standings(library: Library, resources: Iterable[int]) -> dict[int, Standing]:
    """Returns how far the newest version of each of these resources is trusted, and who answers for it."""
    known = list_authors(library.store.backend, resources)
    return {one: _standing(level, known[one][0]) for one, level in _levels(library, known).items()}


def _standing(trust: Trust, author: Author) -> Standing:
    implied = Principal.PERSON if author.actor is Actor.HUMAN else Principal.AGENT
    return Standing(trust, author.principal or implied, author.via)


def version_said(library: Library, head: Head, number: int) -> str:
    """Returns what a reader of a version is told of who vouches for it, '' when a person does."""
    if number == head.latest:
        standing = standings(library, [head.id])[head.id]
        return OWN_SAID if standing.own else standing.notice
    version = library.store.version(head, number)
    if any(one.tree == version.tree for one in _vouchers(library, [head.id])):
        return ""
    made = library.store.operation(version.operation)
    evidence = made.intent.evidence
    proposed = any(text.startswith("proposal ") for text in evidence)
    author = Author(made.actor, number, made.session, proposed, made.principal, made.id, made.intent.via)
    return SAID.get(_by_author(author, _vouched(library, {head.id: [author]})), "")


def operation_said(library: Library, made: Operation) -> str:
    """Returns what a reader is told of who wrote the reason and the evidence of an operation, '' where a person did.

    The content of a version may be a person's while its reason is an agent's, as after an agent's restore.
    """
    proposed = any(text.startswith("proposal ") for text in made.intent.evidence)
    author = Author(made.actor, 0, made.session, proposed, made.principal, made.id, made.intent.via)
    standing = _standing(_by_author(author, _vouched(library, {0: [author]})), author)
    return standing.notice if standing.marked else ""


_BY_PRINCIPAL = {
    Principal.IMPORT: Trust.IMPORT,
    Principal.UNKNOWN: Trust.LOCAL,
    Principal.REPOSITORY: Trust.UNTRUSTED,
    Principal.AGENT: Trust.AGENT,
}


def _rank(trust: Trust) -> int:
    return -list(Trust).index(trust)


def _vouched(library: Library, known: Mapping[int, Sequence[Author]]) -> set[int] | None:
    """Return the operations of a person that count where approvals are locked; None where they are not locked."""
    if library.lock is None:
        return None
    operations = {author.operation for made in known.values() for author in made if author.actor is Actor.HUMAN}
    return library.lock.vouched(library.store.backend, operations)


def _by_author(author: Author, vouched: set[int] | None) -> Trust:
    if vouched is not None and author.actor is Actor.HUMAN and author.operation not in vouched:
        return Trust.AGENT if author.proposed else Trust.LOCAL
    if author.principal in _BY_PRINCIPAL:
        return _BY_PRINCIPAL[author.principal]
    if author.actor is Actor.HUMAN:
        return Trust.APPROVED if author.proposed else Trust.PERSON
    return Trust.IMPORT if author.actor is Actor.IMPORT else Trust.AGENT


def _carried(library: Library, resources: Sequence[int], known: Mapping[int, Sequence[Author]]) -> list[int]:
    """Return those whose content succeeded often enough in verified uses that had no part in writing it."""
    backend, carried = library.store.backend, []
    verified: dict[int, list[Attempt]] = {}
    for one in list_attempts(backend, resources, versions=True):
        if one.verified and one.used and one.outcome in _ENDS:
            verified.setdefault(one.resource, []).append(one)
    for resource, some in verified.items():
        versions = {author.version for author in known[resource]}
        wrote = {author.session for author in known[resource] if author.session is not None}
        wrote |= session_connections(backend, wrote)
        others = [one for one in some if one.version in versions and not wrote & {one.key, one.link}]
        ends = [one.outcome for one in one_of_each_connection(others)]
        if lower_bound(ends.count(Outcome.SUCCEEDED), len(ends)) >= CARRIED:
            carried.append(resource)
    return carried
