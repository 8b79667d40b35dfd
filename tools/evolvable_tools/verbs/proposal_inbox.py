"""The verbs around changes that wait for a person: propose, list, show, approve, reject.

A proposal whose base is no longer the head is merged with what changed since, or refused with the
reason.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evolvable_store import (
    Actor,
    File,
    Files,
    Manifest,
    Principal,
    Transaction,
    added_conflicts,
    blocking_problems,
    find_problems,
)
from evolvable_store.errors import Conflict, InvalidArgument, InvalidResource, Refused
from evolvable_store.resource import Ref
from evolvable_store.storage import APPROVED, EXPIRED, OPEN, REJECTED, Draft, Proposal
from evolvable_tools.approvals import (
    MAX_REMOVED,
    check_change,
    dump_scan,
    finding_messages,
    load_scan,
    needs_person,
    undo_waits,
)
from evolvable_tools.caller import Caller
from evolvable_tools.file_edits import apply_files, changed_files, decode_text, frontmatter_bytes
from evolvable_tools.library import Library
from evolvable_tools.scan import Scan
from evolvable_tools.verbs import versions
from evolvable_tools.verbs.rebased_proposals import (
    MergePart,
    RebasedContent,
    last_stood_for,
    parts_to_settle,
    rebase,
    rebase_on_head,
    taken_files,
    texts_to_edit,
)
from evolvable_tools.verbs.reverse_merge import UndoConflict, plan_revert
from evolvable_tools.verbs.waiting_proposal import WaitingProposal, describe_proposal

MAX_DESCRIBED = 50
"""Resources of one approval that are compared with the others afterwards; of more, `doctor` names
the pairs.
"""

MAX_SCANNED = 10_000
"""Waiting proposals that are looked through for those that are wanted."""


def files_at(library: Library, ref: Ref, version: int) -> Files:
    """Return the files of a version, none for version 0."""
    head = library.store.head_or_none(ref) if version else None
    return library.store.files(head, version) if head else {}


def is_expired(library: Library, proposal: Proposal) -> bool:
    """Return whether the time of a proposal that waits is over."""
    return (
        proposal.state == OPEN
        and proposal.expires is not None
        and proposal.expires < library.store.now()
    )


@dataclass(frozen=True)
class Decided:
    """What a decision did. After an approval `version` and `operation` are those of the change."""

    proposal_id: int
    ref: str
    state: str
    version: int | None = None
    operation: int | None = None
    warnings: list[str] = field(default_factory=list)


def propose(
    library: Library,
    caller: Caller,
    ref: Ref,
    base: int,
    files: Files,
    reason: str,
    found: Scan | None = None,
) -> int:
    """Keep a change for a person to decide on, and return its proposal_id. Nothing live changes.

    What somebody other than a person proposes again while it waits is counted, and stays one
    proposal. files: the whole content; none at all to remove the resource. found: what a scan of it
    said; without, it is scanned now. Raises Unsafe, unless a person proposes it.
    """
    if found is None:
        found = check_change(ref, files_at(library, ref, base), files, caller.actor)
        found = library.names.add_to(found, ref) if files and not base else found
    draft = Draft(ref, base, files, library.redact(reason), findings=dump_scan(found))
    return library.store.backend.proposals.add(
        library.store.now(), caller.actor, caller.session, draft
    )


def revert_or_propose(
    library: Library,
    caller: Caller,
    reason: str,
    *,
    operation: int | None = None,
    session: str | None = None,
) -> versions.Undone:
    """Take an operation, or all of a session, back; or propose it where the policy has it wait for
    a person.

    What an agent takes back of what its session did not do, or of more than MAX_REMOVED resources,
    waits. Where approvals are locked, a person takes back more than these with the passphrase.
    Raise Refused, and as `undo`.
    """
    undid = versions.operations_undone(library, operation, session)
    backs, _ = plan_revert(library, caller, undid, session)
    refs = {back.ref for back in backs}
    if not undo_waits(library, caller, undid, refs):
        if library.lock is not None and caller.decides and len(refs) > MAX_REMOVED:
            what = f"Taking back the changes of more than {MAX_REMOVED} resources"
            library.authorise(caller, what)
        return versions.undo(library, caller, reason, operation=operation, session=session)
    proposed = propose_undo(library, caller, reason, operation=operation, session=session)
    if not (ids := proposed.proposal_ids):
        return proposed
    why = (
        "Nothing changed: a person has to see this first, because it takes back what others did "
        "or many resources."
    )
    which = f"proposal{'s' * (len(ids) > 1)} {', '.join(map(str, ids))}"
    waits = f"{why} It waits in the inbox as {which}. Go on without it."
    return replace(proposed, warnings=[*proposed.warnings, waits])


def propose_undo(
    library: Library,
    caller: Caller,
    reason: str,
    *,
    operation: int | None = None,
    session: str | None = None,
) -> versions.Undone:
    """Keep what would take an operation, or all of a session, back: a proposal for each resource.

    Raises as `undo`.
    """
    undid = versions.operations_undone(library, operation, session)
    backs, conflicts = plan_revert(library, caller, undid, session, proposed=True)
    ids = []
    for back in backs:
        try:
            needs_person(library.policies, back.ref, caller.actor)
        except Refused as refusal:
            conflicts.append(UndoConflict(str(back.ref), refusal.text))
        else:
            files = back.content(library.store)
            ids.append(propose(library, caller, back.ref, back.expected, files, reason))
    return versions.Undone(None, [], [], conflicts, proposal_ids=ids, waiting=ids)


def list_waiting(
    library: Library, limit: int = 100, is_wanted: Callable[[Proposal], bool] | None = None
) -> list[WaitingProposal]:
    """Return up to `limit` of the proposals that wait, oldest first, without their diffs.
    is_wanted: picks from them.
    """
    open_proposals = library.store.backend.proposals.waiting(
        limit if is_wanted is None else MAX_SCANNED
    )
    waiting = [
        proposal
        for proposal in open_proposals
        if not is_expired(library, proposal) and (is_wanted is None or is_wanted(proposal))
    ]
    return [describe_proposal(library, proposal) for proposal in waiting[:limit]]


def show_proposal(
    library: Library,
    proposal_id: int,
    *,
    limit: int | None = versions.MAX_DIFF,
    context: int = versions.CONTEXT,
) -> WaitingProposal:
    """Return one proposal with its diff against what is there now. Raises NotFound.

    limit: characters of the diff, None for all of it. context: equal lines around its changes.
    """
    proposal = library.store.backend.proposals.get(proposal_id)
    return describe_proposal(library, proposal, with_diff=True, limit=limit, context=context)


def approve_together(
    library: Library,
    caller: Caller,
    proposal_ids: Sequence[int],
    reason: str,
    how: str = "",
    edited: Mapping[str, str | bytes | None] | None = None,
    *,
    by_policy: bool = False,
    seen: Mapping[int, int | None] | None = None,
) -> list[Decided]:
    """Publish proposals, merged with what happened since, and return what became of each.

    All of them are published in one operation, or none is.

    Several of one resource are put one on top of the other. how: in which way they were approved,
    for the evidence. edited: of a single proposal, the files as the person wants them, None for one
    that goes. A conflict in them is settled. by_policy: a policy that the person set decides, such
    as memory=auto, and not the caller. seen: by proposal the version of the resource that the
    person saw it with. Another one is a conflict. Without it, a merge that brings what the scan
    asks about and did not find in the proposal is refused. Raises NotFound, InvalidArgument,
    InvalidResource, Conflict, Frozen, Refused; where it is not a person who approves, Unsafe for
    what a scan finds.
    """
    if edited and len(proposal_ids) != 1:
        raise InvalidArgument(
            "Files were given for more than one proposal.", "Edit and approve one at a time."
        )
    if not by_policy:
        library.authorise(caller, "Approving a proposal")
    proposals = [_get_open(library, identity) for identity in dict.fromkeys(proposal_ids)]
    # Local edits in watched folders become versions first, so the merge below sees them.
    library.take_in([proposal.ref for proposal in proposals])
    # After take_in: a save on disk since the person looked is a newer version, and a conflict.
    _check_seen(library, proposals, seen or {})
    reason = library.redact(reason)
    evidence = [how] if how else []
    for candidate in proposals:
        session = f", session {candidate.session}" if candidate.session else ""
        evidence += [f"proposal {candidate.id} by {candidate.actor}{session}", candidate.reason]
    contents = _merge_contents(library, caller, proposals, edited or {}, unseen=seen is None)
    because = reason or "; ".join(dict.fromkeys(candidate.reason for candidate in proposals))
    evidence = list(dict.fromkeys(evidence))
    described = _find_redescribed_refs(library, contents)
    with library.transaction(caller, because, evidence=evidence, sign=True) as tx:
        for ref, (now, files) in contents.items():
            if files:
                tx.put(ref, files, expected_version=now)
                tx.bind_new([] if now else library.working_copies.free_places(ref))
            else:
                tx.remove(ref, expected_version=now)
        for proposal in proposals:
            tx.approve(proposal.id, reason)
    return _finish_approval(library, caller, tx, proposals, described)


def _finish_approval(
    library: Library,
    caller: Caller,
    tx: Transaction,
    proposals: Sequence[Proposal],
    described: set[Ref],
) -> list[Decided]:
    """Write what was approved into the folders, and return what became of each proposal.

    described: the resources that got another frontmatter, to compare with others.
    """
    operation = tx.operation.id if tx.operation else None
    warnings = {
        result.ref: library.checkout([result.ref], created=result.version == 1)
        for result in tx.written
    }
    version = {result.ref: result.version for result in tx.written}
    for written in tx.written:
        if written.ref in described:
            library.compare_later(caller, written.id)
    return [
        Decided(p.id, str(p.ref), APPROVED, version[p.ref], operation, warnings.pop(p.ref, []))
        for p in proposals
    ]


def _find_redescribed_refs(library: Library, contents: Mapping[Ref, tuple[int, Files]]) -> set[Ref]:
    """Return which resources get another frontmatter.

    None where there are more than MAX_DESCRIBED.
    """
    if len(contents) > MAX_DESCRIBED:
        return set()
    return {
        ref
        for ref, (now, files) in contents.items()
        if files
        and frontmatter_bytes(ref, files_at(library, ref, now)) != frontmatter_bytes(ref, files)
    }


def _check_seen(
    library: Library, proposals: Sequence[Proposal], seen: Mapping[int, int | None]
) -> None:
    """Check that what an approval leads to is what the person saw: the resource is still at that
    version.
    """
    for proposal in proposals:
        head = library.store.head_or_none(proposal.ref)
        now = (head.version if head is not None else None) or 0
        if proposal.id in seen and (was := seen[proposal.id] or 0) != now:
            raise Conflict(
                f"The resource of proposal {proposal.id} is at version {now} now; you saw "
                f"version {was}.",
                "Look at the proposal again: approving it would merge the two.",
            )


def _merge_contents(
    library: Library,
    caller: Caller,
    proposals: Sequence[Proposal],
    edited: Mapping[str, str | bytes | None],
    *,
    unseen: bool,
) -> dict[Ref, tuple[int, Files]]:
    """Return of each resource the version it has now, and the content it is to get.

    None when it is removed.
    """
    contents: dict[Ref, tuple[int, Files]] = {}
    for proposal in proposals:
        head = library.store.head_or_none(proposal.ref)
        now = (head.version if head else None) or 0
        if proposal.ref in contents:
            before = contents[proposal.ref][1]
        else:
            before = library.store.files(head) if head and now else {}
        rebased = rebase(library, proposal, head, before, edited)
        if rebased.merged and (unseen or proposal.ref in contents):
            _check_merge(library, proposal, before, rebased, unseen=unseen)
        files = _apply_edits(rebased.files, edited, proposal, before)
        _check_approver(library, caller, proposal, now, files)
        contents[proposal.ref] = (now, files)
    return contents


def _check_merge(
    library: Library, proposal: Proposal, before: Files, rebased: RebasedContent, *, unseen: bool
) -> None:
    """Raise Refused where a merge that no person saw brings what the scan did not find in the
    proposal.

    before: what is there now, or was approved together with it. unseen: the person did not see the
    merge at all. Then a stranger's text that nobody approved is refused too.
    """
    head = library.store.head_or_none(proposal.ref)
    known_findings = {
        (finding.rule, finding.excerpt) for finding in load_scan(proposal.findings).findings
    }
    found = check_change(proposal.ref, before, rebased.files, Actor.HUMAN)
    new = tuple(
        finding
        for finding in found.findings
        if (finding.rule, finding.excerpt) not in known_findings
    )
    messages = finding_messages(replace(found, findings=new))
    if unseen:
        stood_for, _ = last_stood_for(library, head, rebased.version, before)
        if stood_for != rebased.version:
            messages = ["is text of another that you did not look at", *messages]
    if messages:
        raise Refused(
            f"Proposal {proposal.id} is merged with version {rebased.version}, and there "
            f"{messages[0]}.",
            "Look at it first: `evolvable inbox` at a terminal, or `evolvable ui --proposal "
            f"{proposal.id}`.",
        )


def _apply_edits(
    files: Files, edited: Mapping[str, str | bytes | None], proposal: Proposal, before: Files
) -> Files:
    """Return the files as a person edited them. Raises InvalidResource, InvalidPath,
    InvalidArgument.

    before: what is there now.
    """
    if not edited:
        return files
    changed = dict(files)
    apply_files(
        changed, {path: text for path, text in edited.items() if text is not None or path in files}
    )
    marks = added_conflicts({path: before.get(path, File(b"")) for path in edited}, changed)
    problems = blocking_problems(find_problems(proposal.kind, proposal.name, changed))
    if stops := [str(problem) for problem in (*problems, *marks)]:
        raise InvalidResource(str(proposal.ref), stops)
    return changed


def _check_approver(
    library: Library, caller: Caller, proposal: Proposal, now: int, files: Files
) -> None:
    if caller.actor is Actor.HUMAN or proposal.removes:
        return
    found = check_change(proposal.ref, files_at(library, proposal.ref, now), files, caller.actor)
    if found.asks:
        raise Refused(
            f"Proposal {proposal.id} cannot be approved by {caller.actor}: "
            f"{finding_messages(found, quoted=True)[0]}.",
            "A person decides on it.",
        )


def approve_as_asked(
    library: Library, proposal_ids: Sequence[int], how: str, conversation: str | None = None
) -> list[Decided]:
    """Publish proposals that a person approved when they were made, in the session that made them.

    Each was shown against the version that it was made from. conversation: of the client that
    asked, see `Caller`. Raises as `approve_together`.
    """
    proposals = [library.store.backend.proposals.get(identity) for identity in proposal_ids]
    session, seen = proposals[0].session, {proposal.id: proposal.base for proposal in proposals}
    person = Caller(
        Actor.HUMAN,
        session,
        principal=Principal.PERSON,
        via="elicitation",
        conversation=conversation,
    )
    return approve_together(library, person, proposal_ids, "", how, seen=seen)


def reject(
    library: Library, proposal_id: int, reason: str, caller: Caller | None = None
) -> Decided:
    """Close a proposal without a change.

    It is kept, and a review does not propose it again without new evidence. caller: who decides,
    for the audit log. Raises NotFound, InvalidArgument.
    """
    proposal = _get_open(library, proposal_id)
    # Written with the rejection in one transaction, so that the audit log has no gap.
    audited = library.decision(caller, "reject", f"{proposal.ref} (proposal {proposal.id})")
    # Another process decided meanwhile; `_get_open` raises with the state that it has now.
    if not library.store.backend.proposals.reject(proposal.id, library.redact(reason), audited):
        _get_open(library, proposal_id)
    return Decided(proposal.id, str(proposal.ref), REJECTED)


def reopen(library: Library, caller: Caller, proposal_id: int) -> Decided:
    """Let a rejected proposal wait again, as it was. Raises NotFound, Refused, InvalidArgument."""
    if not caller.decides:
        raise Refused(
            "Reopening a proposal is a person's decision; this call is not a person's.",
            "Propose it again.",
        )
    proposal = library.store.backend.proposals.get(proposal_id)
    if proposal.files_removed_at is not None:
        text = (
            f"The files of proposal {proposal_id} were removed on {proposal.files_removed_at[:10]}."
        )
        raise InvalidArgument(text, "Propose the change again.")
    audited = library.decision(caller, "reopen", f"{proposal.ref} (proposal {proposal.id})")
    if not library.store.backend.proposals.reopen(proposal_id, audited):
        raise InvalidArgument(
            f"Proposal {proposal_id} is {proposal.state}.", "Only a rejected proposal is reopened."
        )
    return Decided(proposal.id, str(proposal.ref), OPEN)


def expire(library: Library) -> int:
    """Close the proposals whose time is over, and return how many. They count as rejected."""
    if library.store.read_only:
        return 0
    return library.store.backend.proposals.expire(library.store.now())


def _get_open(library: Library, proposal_id: int) -> Proposal:
    proposal = library.store.backend.proposals.get(proposal_id)
    state = EXPIRED if is_expired(library, proposal) else proposal.state
    if state != OPEN:
        raise InvalidArgument(
            f"Proposal {proposal_id} is {state} already.",
            "`evolvable inbox` lists those that wait.",
        )
    return proposal


def proposed_texts(library: Library, proposal_id: int) -> dict[str, str]:
    """Return the text files of a proposal that differ from what is there now, for a
    person to edit.

    They are merged with what changed since; where both sides changed the same, both stand between
    git's marks. Raises NotFound, Conflict, and InvalidArgument for a proposal that changes no text.
    """
    proposal = _get_open(library, proposal_id)
    rebased, now = rebase_on_head(library, proposal)
    texts = texts_to_edit(rebased, now)
    if not texts:
        raise InvalidArgument(
            f"Proposal {proposal_id} changes no text.", "Approve or reject it as it is."
        )
    return texts


def proposed_parts(library: Library, proposal_id: int) -> dict[str, list[MergePart]]:
    """Return by path the parts of each text in which both sides changed the same, for a person to
    choose from.

    Raises as `proposed_lines`.
    """
    rebased, now = rebase_on_head(library, _get_open(library, proposal_id))
    parts = parts_to_settle(rebased, now)
    if not parts:
        raise InvalidArgument(
            f"Proposal {proposal_id} has no lines in conflict.", "Decide on it as it is."
        )
    return parts


def proposed_lines(library: Library, proposal_id: int) -> dict[str, bytes | None]:
    """Return the files of a proposal in which both sides changed the same, with the lines of the
    proposal there.

    None for a file that the proposal deletes. Raises as `proposed_texts`, and InvalidArgument
    without a conflict.
    """
    rebased, _ = rebase_on_head(library, _get_open(library, proposal_id))
    if not rebased.conflicts:
        raise InvalidArgument(
            f"Proposal {proposal_id} is in no conflict.", "Approve or reject it as it is."
        )
    return taken_files(rebased)


def seen_versions(library: Library, proposal_ids: Sequence[int]) -> dict[int, int | None]:
    """Return by proposal the version of its resource that a person sees it with now, None for none.

    Raises NotFound.
    """
    proposals = [library.store.backend.proposals.get(identity) for identity in proposal_ids]
    heads = {proposal.id: library.store.head_or_none(proposal.ref) for proposal in proposals}
    return {
        identity: head.version if head is not None else None for identity, head in heads.items()
    }


def changes_text(library: Library, proposal_id: int) -> bool:
    """Return whether a proposal has a text for a person to edit. Raises NotFound."""
    proposal = library.store.backend.proposals.get(proposal_id)
    if proposal.files_removed_at is not None:
        return False
    head, after = library.store.head_or_none(proposal.ref), proposal.manifest
    base = library.store.manifest(head, proposal.base) if head and proposal.base else Manifest({})
    # Only what changed is read: the page asks this of every proposal that it shows.
    changed = (path for path in changed_files(base, after) if path in after)
    return any(decode_text(library.store.blob(after[path].sha256)) is not None for path in changed)
