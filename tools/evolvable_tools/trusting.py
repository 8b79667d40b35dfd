"""The verb that trusts: a person vouches for what a folder or a resource holds, after reading what the scan found."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evolvable_store.errors import NotFound, Refused
from evolvable_store.operation import Head, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage.attestations import Attestations
from evolvable_store.storage.bindings import HeldDirectories
from evolvable_tools import inbox
from evolvable_tools.history import diff
from evolvable_tools.library import Caller, Library
from evolvable_tools.scan.door import contents, stored
from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.trust import Trust, trusts

_VOUCHED_FOR = (Trust.PERSON, Trust.APPROVED)


@dataclass(frozen=True, slots=True)
class Offered:
    """One resource that a person is asked to trust. proposal: of a held change, None for what is served already.

    findings: of the scan, the worst first. diff: of a held change against what is served.
    """

    ref: str
    resource: int
    tree: str
    trust: str
    findings: list[Finding]
    capabilities: list[str]
    proposal: int | None = None
    diff: str = ""

    @property
    def high(self) -> bool:
        """Whether the scan found something of high severity."""
        return any(finding.severity is Severity.HIGH for finding in self.findings)


@dataclass(frozen=True)
class Question:
    """What a person is asked: the resources that nobody vouches for yet, the most dangerous first.

    folder: the folder that it is about as an absolute path, '' for one resource.
    """

    what: str
    offered: list[Offered]
    trusted: list[str] = field(default_factory=list)
    folder: str = ""


@dataclass(frozen=True)
class Decision:
    """What a decision did: the refs trusted now, or no longer, and the operation that published what waited."""

    what: str
    refs: list[str]
    operation: int | None = None
    warnings: list[str] = field(default_factory=list)


def question(library: Library, caller: Caller, *, folder: Path | None = None, ref: Ref | None = None) -> Question:
    """Return what a person is asked about a folder, or about one resource. Raises NotFound, Refused."""
    check_person(caller)
    if ref is not None:
        heads, what = [library.store.head(ref.at(None), caller.scopes)], str(ref)
    else:
        assert folder is not None
        heads, what = _heads_below(library, folder), str(folder)
    levels = trusts(library, [head.id for head in heads])
    doubtful = [head for head in heads if levels[head.id] not in _VOUCHED_FOR]
    offered = [_offer(library, head, levels[head.id]) for head in doubtful]
    held = _held_below(library, folder) if folder is not None else []
    offered += [_of_proposal(library, proposal) for proposal in held]
    offered.sort(key=lambda one: (not one.high, not one.findings, one.ref))
    trusted = [str(head.ref) for head in heads if levels[head.id] in _VOUCHED_FOR]
    return Question(what, offered, trusted, str(folder.resolve()) if folder is not None else "")


def trust(library: Library, caller: Caller, asked: Question) -> Decision:
    """Record that a person vouches for what the question showed, and publish the changes that it showed.

    Only the contents that were shown: what changed meanwhile stays as it is. Raises Refused, as inbox.approve.
    """
    library.authorise(caller, "Trusting a resource")
    check_person(caller)
    refs, operation, warnings = [], None, list[str]()
    proposals = [one.proposal for one in asked.offered if one.proposal is not None]
    if proposals:
        decided = inbox.approve_together(library, caller, proposals, f"trusted {asked.what}")
        operation = decided[0].operation
        refs += [one.ref for one in decided]
        warnings += [text for one in decided for text in one.warnings]
    served = [one for one in asked.offered if one.proposal is None]
    if served:
        Attestations(library.store.backend).vouch(
            *(((one.resource, one.tree) for one in served), library.store.now(), caller.identity),
            caller.signer if library.lock else None,
            asked.folder,
        )
    return Decision(asked.what, sorted({*refs, *(one.ref for one in served)}), operation, warnings)


def withdraw(library: Library, caller: Caller, *, folder: Path | None = None, ref: Ref | None = None) -> Decision:
    """Record that a person no longer vouches for what a folder or a resource holds. Raises NotFound, Refused."""
    check_person(caller)
    heads = [library.store.head(ref.at(None), caller.scopes)] if ref else _heads_below(library, folder or Path())
    vouching = Attestations(library.store.backend)
    held = {one.resource for one in vouching.of([head.id for head in heads], unlisted=True)}
    there = [head for head in heads if head.id in held]
    contents_of = [(one.resource, one.tree) for one in vouching.of([head.id for head in there], unlisted=True)]
    vouching.withdraw(contents_of, library.store.now(), caller.identity)
    return Decision(str(ref or folder), sorted(str(head.ref) for head in there))


def check_person(caller: Caller) -> None:
    """Raise Refused for everybody but a person."""
    if caller.identity.principal is not Principal.PERSON:
        raise Refused("A person decides what is trusted.", "Tell the user what you would trust, and go on without it.")


def _heads_below(library: Library, folder: Path) -> list[Head]:
    """Return the heads that the watched folders in, at or around a folder hold there."""
    place, copies, ids = folder.resolve(), library.working_copies, set[int]()
    near = [one for one in copies.folders() if one.path.is_relative_to(place) or place.is_relative_to(one.path)]
    if not near:
        raise NotFound(f"No watched folder lies in {place}.", "`evolvable folders` shows those that are watched.")
    for one in near:
        for directory, binding in copies.bindings.of_folder(one).items():
            if (one.path / directory).is_relative_to(place) and binding.version is not None:
                ids.add(binding.resource)
    heads = library.store.backend.heads_by_id(ids).values()
    return sorted((head for head in heads if head.version is not None), key=lambda head: str(head.ref))


def _held_below(library: Library, folder: Path) -> Sequence[int]:
    place = folder.resolve()
    paths = {one.id: one.path for one in library.working_copies.folders()}
    held = [one for one in HeldDirectories(library.store.backend).all() if one.state == "open" and one.folder in paths]
    return [one.proposal for one in held if (paths[one.folder] / one.directory).is_relative_to(place)]


def _offer(library: Library, head: Head, level: Trust) -> Offered:
    from evolvable_tools.scan.scanning import scan  # its patterns take a while to compile

    found = scan(None, contents(library.store.files(head)), head.kind)
    means = [str(one) for one in found.capabilities.added]
    return Offered(str(head.ref), head.id, head.tree, level, list(found.findings), means)


def _of_proposal(library: Library, proposal: int) -> Offered:
    from evolvable_store.storage.proposals import Proposals

    waiting = Proposals(library.store.backend).get(proposal)
    head = library.store.head_or_none(waiting.ref)
    base = library.store.manifest(head, waiting.base) if head is not None and waiting.base else None
    found = stored(waiting.findings)
    changes = diff(library, base, waiting.manifest, (str(waiting.base), "on disk")) if base is not None else ""
    means = [str(one) for one in found.capabilities.added]
    return Offered(str(waiting.ref), 0, waiting.manifest.tree, "held", list(found.findings), means, proposal, changes)
