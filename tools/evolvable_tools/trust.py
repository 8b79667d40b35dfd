"""Trust: who vouches for the content of a resource, read from the history of that content.

`find_downgraded` compares the evidence of an older library with the graded one. `mark_repository_heads` marks what a
repository brought to a library of a version before 0.2.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evolvable_store.operation import Actor, Head, Operation, Principal
from evolvable_store.resource import is_plugins
from evolvable_store.storage.attestations import Attestation, Author
from evolvable_store.storage.bindings import WatchedFolder
from evolvable_store.storage.evidence import Attempt, Outcome, SuccessCounts, UngradedEvidence, one_of_each_connection
from evolvable_store.workingcopy.git_repository import repositories_around
from evolvable_store.workingcopy.incoming import REPOSITORY
from evolvable_store.workingcopy.origins import holds_one
from evolvable_tools.library import Library
from evolvable_tools.metrics import earned_maturity, maturity_of, wilson_lower_bound

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
    """An agent wrote it, and no person approved it yet."""

    UNTRUSTED = "untrusted"
    """A repository brought it, and no person trusted its folder yet."""


SAID = {
    Trust.AGENT: "written by an agent, not yet approved by a person",
    Trust.PROVEN: "written by an agent, not yet approved by a person; it proved itself",
    Trust.IMPORT: "imported from elsewhere",
    Trust.LOCAL: "changed on disk; no person has confirmed who changed it",
    Trust.UNTRUSTED: "brought by a repository that no person has trusted",
}
"""The notice for a reader; none where a person vouches."""


def trust_levels(library: Library, resources: Iterable[int]) -> dict[int, Trust]:
    """Return how far the newest version of each of these resources is to be trusted.

    Content counts, not its last mover: what an agent brings back is trusted as it was before.
    """
    return _levels(library, library.store.backend.attestations.list_authors(resources))


def _levels(library: Library, known: Mapping[int, Sequence[Author]]) -> dict[int, Trust]:
    vouched = _vouched(library, known)
    found = {one: max((_by_author(author, vouched) for author in made), key=_rank) for one, made in known.items()}
    unknown = [resource for resource, trust in found.items() if trust is Trust.AGENT]
    if unknown:
        found |= dict.fromkeys(_carried(library, unknown, known), Trust.PROVEN)
    doubtful = [resource for resource, trust in found.items() if trust not in (Trust.PERSON, Trust.APPROVED)]
    if not doubtful:
        return found
    heads = library.store.backend.heads_by_id(doubtful)
    found |= dict.fromkeys(library.store.backend.attestations.untrusted_resources(doubtful), Trust.UNTRUSTED)
    # A person's decision on this very content goes before where it came from.
    decided = _vouchers(library, doubtful)
    return found | {one.resource: Trust.APPROVED for one in decided if _counts_for(one, heads[one.resource])}


def _counts_for(decision: Attestation, head: Head) -> bool:
    """Return whether a person's decision counts for a head: it is about its content, or about its plugin's before.

    Of a plugin's update a person is asked only where the scan asks; then it is no head before the answer.
    """
    return decision.tree == head.tree or is_plugins(head.scope)


def _vouchers(library: Library, resources: Sequence[int]) -> list[Attestation]:
    """Return the decisions of a person to trust contents; where approvals are locked, the signed ones."""
    found = library.store.backend.attestations.of(resources)
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
class TrustStatus:
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
        """The notice for a reader, '' when a person vouches."""
        return "" if self.own else SAID.get(self.trust, "")


def trust_statuses(library: Library, resources: Iterable[int]) -> dict[int, TrustStatus]:
    """Return how far the newest version of each of these resources is trusted, and who answers for it."""
    known = library.store.backend.attestations.list_authors(resources)
    return {one: _status(level, known[one][0]) for one, level in _levels(library, known).items()}


def _status(trust: Trust, author: Author) -> TrustStatus:
    implied = Principal.PERSON if author.actor is Actor.HUMAN else Principal.AGENT
    return TrustStatus(trust, author.principal or implied, author.via)


def version_notice(library: Library, head: Head, number: int) -> str:
    """Return the notice for a reader of a version, '' when a person vouches for it."""
    if number == head.latest:
        status = trust_statuses(library, [head.id])[head.id]
        return OWN_SAID if status.own else status.notice
    version = library.store.version(head, number)
    if any(one.tree == version.tree for one in _vouchers(library, [head.id])):
        return ""
    author = _author(library.store.operation(version.operation), number)
    return SAID.get(_by_author(author, _vouched(library, {head.id: [author]})), "")


def operation_said(library: Library, made: Operation) -> str:
    """Return the notice about the author of the reason and the evidence of an operation, '' for a person.

    The content of a version may be a person's while its reason is an agent's, as after an agent's restore.
    """
    author = _author(made, 0)
    status = _status(_by_author(author, _vouched(library, {0: [author]})), author)
    return status.notice if status.marked else ""


def _author(made: Operation, version: int) -> Author:
    """Return the author of a version that an operation made."""
    proposed = any(text.startswith("proposal ") for text in made.intent.evidence)
    return Author(made.actor, version, made.session, proposed, made.principal, made.id, made.intent.via)


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
    for one in backend.evidence.list_attempts(resources, versions=True):
        if one.verified and one.used and one.outcome in _ENDS:
            verified.setdefault(one.resource, []).append(one)
    for resource, some in verified.items():
        versions = {author.version for author in known[resource]}
        wrote = {author.session for author in known[resource] if author.session is not None}
        wrote |= backend.evidence.session_connections(wrote)
        others = [one for one in some if one.version in versions and not wrote & {one.key, one.link}]
        ends = [one.outcome for one in one_of_each_connection(others)]
        if wilson_lower_bound(ends.count(Outcome.SUCCEEDED), len(ends)) >= CARRIED:
            carried.append(resource)
    return carried


_LEVELS = ("Budding", "Growing", "Mature", "Proficient")

MOST = 20
"""Resources that are named."""


@dataclass(frozen=True, slots=True)
class Downgraded:
    """A downgraded resource. ends: those that counted before. verified: those that are verified now.

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
        changes = [(self.maturity_before, self.maturity), (self.trust_before, self.trust)]
        said = [f"{before} -> {now}" for before, now in changes if before != now]
        return f"{self.ref}: {', '.join(said)} ({self.ends} ends counted before, {self.verified} are verified)"


def find_downgraded(library: Library, *, unsaid: bool = False) -> list[Downgraded]:
    """Return the resources that grading the evidence downgraded. unsaid: only if no command has reported them yet."""
    rows = library.evidence.regraded(unsaid=unsaid)
    if not rows:
        return []
    whole = {row.resource: row for row in rows if row.version == 0}
    backend = library.store.backend
    heads = {head.id: head for head in backend.heads_by_id(whole).values() if head.version is not None}
    now, trust = backend.evidence.count_successes(heads), trust_levels(library, heads)
    proven = _proven_before(library, rows)
    found = []
    for resource, head in sorted(heads.items(), key=lambda item: str(item[1].ref)):
        proof, before = now.get(resource, SuccessCounts()), whole[resource]
        one = Downgraded(
            str(head.ref),
            maturity_of(before.successes, before.ends),
            earned_maturity(proof.verified_successes, proof.verified, proof.ends),
            Trust.PROVEN if trust[resource] is Trust.AGENT and resource in proven else trust[resource],
            trust[resource],
            before.ends,
            proof.verified,
        )
        if _LEVELS.index(one.maturity) < _LEVELS.index(one.maturity_before) or one.trust != one.trust_before:
            found.append(one)
    return found


def _proven_before(library: Library, rows: Sequence[UngradedEvidence]) -> set[int]:
    """Return the resources whose newest content had evidence that vouched for it before."""
    known = library.store.backend.attestations.list_authors({row.resource for row in rows})
    versions = {resource: {author.version for author in made} for resource, made in known.items()}
    ends: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        if row.version in versions.get(row.resource, ()):
            ends[row.resource][0] += row.successes
            ends[row.resource][1] += row.ends
    return {resource for resource, counts in ends.items() if wilson_lower_bound(*counts) >= CARRIED}


def format_downgraded(found: Sequence[Downgraded]) -> list[str]:
    """Return the lines for a person: the reason, then each resource."""
    count = f"{len(found)} resources stand" if len(found) > 1 else "1 resource stands"
    more = [f"{len(found) - MOST} more; `evolvable stats` shows every resource"] if len(found) > MOST else []
    return [
        f"Evidence now counts only where this library served the version, and only verified ends prove; {count} lower:",
        *(one.text for one in found[:MOST]),
        *more,
    ]


MAX_NAMED = 10
"""Resources that the notice names."""


def mark_repository_heads(library: Library) -> list[str]:
    """Mark heads that a repository brought before principals were recorded; return what changed, in words.

    Does nothing on a library that was re-read before, or that this version made.
    """
    vouching = library.store.backend.attestations
    if library.store.read_only or not vouching.needs_reread():
        return []
    found = [head for folder in library.folders() for head in _of_repositories(library, folder)]
    vouching.attribute(((head.id, head.latest) for head in found), library.store.now(), REPOSITORY)
    vouching.note_reread(library.store.now())
    if not found:
        return []
    names = ", ".join(str(head.ref) for head in found[:MAX_NAMED])
    more = f" and {len(found) - MAX_NAMED:,} more" if len(found) > MAX_NAMED else ""
    return [
        f"A repository holds {names}{more}. They counted as written by a person until now, and are untrusted until a"
        " person trusts their folder."
    ]


def _of_repositories(library: Library, folder: WatchedFolder) -> list[Head]:
    if not repositories_around(folder.path):
        return []
    bound = library.working_copies.bindings.of_folder(folder)
    heads = library.store.backend.heads_by_id({binding.resource for binding in bound.values()})
    found = []
    for directory, binding in bound.items():
        head = heads.get(binding.resource)
        if head is None or head.version is None or binding.version != head.version or not _is_older(library, head):
            continue
        if holds_one(folder, directory, library.store.files(head)):
            found.append(head)
    return found


def _is_older(library: Library, head: Head) -> bool:
    made = library.store.operation(library.store.version(head).operation)
    return made.principal is None and made.actor is Actor.HUMAN
