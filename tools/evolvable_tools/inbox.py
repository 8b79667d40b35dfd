"""The verbs around changes that wait for a person: propose, list, show, approve, reject."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from evolvable_store.errors import Conflict, InvalidArgument
from evolvable_store.merge import merge_files
from evolvable_store.objects import Files, Manifest
from evolvable_store.operation import Actor, Head
from evolvable_store.problems import problems, refused
from evolvable_store.proposals import APPROVED, OPEN, REJECTED, Proposal, Proposals
from evolvable_store.resource import Ref
from evolvable_tools.history import changed_files, diff
from evolvable_tools.library import Caller, Library
from evolvable_tools.undo import Undone, undone_by, ways_back


@dataclass(frozen=True, slots=True)
class Waiting:
    """One proposal. `base`: the version it was made from, 0 for a new resource; `head`: the version there is now.

    removes: it proposes to remove the resource.
    """

    proposal_id: int
    ref: str
    at: str
    actor: str
    session: str | None
    reason: str
    base: int
    head: int | None
    files: list[str]
    state: str
    diff: str | None = None
    removes: bool = False


@dataclass(frozen=True)
class Decided:
    """What a decision did. After an approval `version` and `operation` are those of the change."""

    proposal_id: int
    ref: str
    state: str
    version: int | None = None
    operation: int | None = None
    warnings: list[str] = field(default_factory=list)


def propose(library: Library, caller: Caller, ref: Ref, base: int, files: Files, reason: str) -> int:
    """Keeps a change for a person to decide on; returns its proposal_id. Nothing live changes.

    files: the whole content; none at all to remove the resource.
    """
    proposals = Proposals(library.store.backend)
    return proposals.add(library.store.now(), ref, base, files, reason, caller.actor, caller.session)


def propose_undo(
    library: Library, caller: Caller, reason: str, *, operation: int | None = None, session: str | None = None
) -> Undone:
    """Keeps what would take an operation, or all of a session, back: a proposal for each resource.

    Raises as `undo`.
    """
    undid = undone_by(library, operation, session)
    backs, conflicts = ways_back(library, undid, human=True)
    ids = []
    for back in backs:
        head = library.store.head_or_none(back.ref)
        assert head is not None
        files = library.store.files(head, back.version) if back.version else {}
        ids.append(propose(library, caller, back.ref, back.expected, files, reason))
    return Undone(None, undid, [], conflicts, proposal_ids=ids)


def waiting(library: Library, limit: int = 100) -> list[Waiting]:
    """Returns the proposals that wait, oldest first, without their diffs."""
    return [_shown(library, proposal) for proposal in Proposals(library.store.backend).waiting(limit)]


def show(library: Library, proposal_id: int) -> Waiting:
    """Returns one proposal with its diff against the version it was made from. Raises NotFound."""
    return _shown(library, Proposals(library.store.backend).get(proposal_id), with_diff=True)


def approve(library: Library, caller: Caller, proposal_id: int, reason: str) -> Decided:
    """Publishes a proposal, merged with what happened since. Raises NotFound, InvalidArgument, Conflict, Frozen."""
    return approve_together(library, caller, [proposal_id], reason)[0]


def approve_together(
    library: Library, caller: Caller, proposal_ids: Sequence[int], reason: str, how: str = ""
) -> list[Decided]:
    """Publishes proposals in one operation, or none of them; returns what became of each.

    how: in which way they were approved, for the evidence. Raises as `approve`.
    """
    found = [_open(Proposals(library.store.backend), identity) for identity in proposal_ids]
    library.take_in([proposal.ref for proposal in found])
    evidence = [how] * bool(how) + [text for proposal in found for text in (_origin(proposal), proposal.reason)]
    with library.store.transaction(
        caller.actor, reason or found[0].reason, session=caller.session, evidence=list(dict.fromkeys(evidence))
    ) as tx:
        for proposal in found:
            head = library.store.head_or_none(proposal.ref)
            now = (head.version if head else None) or 0
            files = _merged(library, proposal, head)
            if proposal.removes:
                tx.remove(proposal.ref, expected_version=now)
            else:
                tx.put(proposal.ref, files, expected_version=now)
            tx.approve(proposal.id, reason)
    operation = tx.operation.id if tx.operation else None
    decided = []
    for proposal, written in zip(found, tx.written, strict=True):
        warnings = library.write_out([written.ref], created=written.version == 1)
        decided.append(Decided(proposal.id, str(written.ref), APPROVED, written.version, operation, warnings))
    return decided


def approve_as_asked(library: Library, proposal_ids: Sequence[int], how: str) -> list[Decided]:
    """Publishes proposals that a person approved when they were made, in the session that made them.

    Raises as `approve`.
    """
    session = Proposals(library.store.backend).get(proposal_ids[0]).session
    return approve_together(library, Caller(Actor.HUMAN, session), proposal_ids, "", how)


def _origin(proposal: Proposal) -> str:
    return f"proposal {proposal.id} by {proposal.actor}" + (f", session {proposal.session}" if proposal.session else "")


def reject(library: Library, proposal_id: int, reason: str) -> Decided:
    """Closes a proposal without a change; it is kept. Raises NotFound, InvalidArgument."""
    proposals = Proposals(library.store.backend)
    proposal = _open(proposals, proposal_id)
    if not proposals.reject(proposal.id, reason):
        _open(proposals, proposal_id)
    return Decided(proposal.id, str(proposal.ref), REJECTED)


def _open(proposals: Proposals, proposal_id: int) -> Proposal:
    proposal = proposals.get(proposal_id)
    if proposal.state != OPEN:
        done = f"Proposal {proposal_id} is {proposal.state} already."
        raise InvalidArgument(done, "`evolvable inbox` lists those that wait.")
    return proposal


def _merged(library: Library, proposal: Proposal, head: Head | None) -> Files:
    store = library.store
    theirs = store.files_of(proposal.manifest)
    now = (head.version if head else None) or 0
    if now == proposal.base:
        return theirs
    if head is None or head.version is None or not proposal.base or proposal.removes:
        raise Conflict(
            f"{proposal.ref} was at version {proposal.base} when this was proposed and is at {now} now.",
            "Reject it, and propose the change anew.",
        )
    merged = merge_files(store.files(head, proposal.base), store.files(head), theirs)
    if merged.conflicts or _made_wrong(proposal, merged.files, theirs):
        raise Conflict(
            f"{proposal.ref} changed since in the same places: {', '.join(merged.conflicts) or 'its frontmatter'}.",
            "Reject it, and propose the change anew from the head.",
        )
    return merged.files


def _made_wrong(proposal: Proposal, merged: Files, theirs: Files) -> bool:
    wrong = [bool(refused(problems(proposal.kind, proposal.name, files), strict=True)) for files in (merged, theirs)]
    return wrong == [True, False]


def _shown(library: Library, proposal: Proposal, *, with_diff: bool = False) -> Waiting:
    head = library.store.head_or_none(proposal.ref)
    base = library.store.manifest(head, proposal.base) if head and proposal.base else Manifest({})
    p = proposal
    return Waiting(
        p.id,
        str(p.ref),
        p.at,
        p.actor,
        p.session,
        p.reason,
        p.base,
        head.version if head else None,
        changed_files(base, p.manifest),
        p.state,
        diff(library, base, p.manifest, (str(p.base), "proposed")) if with_diff else None,
        p.removes,
    )
