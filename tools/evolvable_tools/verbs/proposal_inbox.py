"""The verbs around changes that wait for a person: propose, list, show, approve, reject.

A proposal whose base is no longer the head is merged with what changed since, or refused with the reason.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from evolvable_store.errors import Conflict, EvolvableError, InvalidArgument, InvalidResource, Refused
from evolvable_store.objects import Files, Manifest
from evolvable_store.operation import Actor, Head, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage.proposals import APPROVED, EXPIRED, OPEN, REJECTED, Draft, Proposal
from evolvable_store.validation import blocking_problems, broken_rules, find_problems
from evolvable_tools.approvals import (
    MAX_REMOVED,
    check_change,
    dump_scan,
    finding_messages,
    load_scan,
    needs_person,
    undo_waits,
)
from evolvable_tools.file_edits import append_line, apply_files, decode_text
from evolvable_tools.library import Caller, Library
from evolvable_tools.scan import Finding, Scan
from evolvable_tools.untrusted_text import AnswerMarks
from evolvable_tools.verbs import versions
from evolvable_tools.verbs.reverse_merge import UndoConflict, plan_revert
from evolvable_tools.verbs.versions import diff

MAX_SCANNED = 10_000
"""Waiting proposals that are looked through for those that are wanted."""


def rebase(library: Library, proposal: Proposal, head: Head | None, now: Files) -> Files:
    """Return the content that a proposal leads to, from `now`: the head's files, or what was approved with it.

    A line that was added, such as a fact, is added to what there is now. Raises Conflict when it cannot be.
    """
    store = library.store
    theirs = store.files_of(proposal.manifest)
    base = store.files(head, proposal.base) if head is not None and proposal.base else {}
    if now == base:
        return theirs
    again = _added(proposal, now)
    if again is not None:
        return again
    if not proposal.base or not now or proposal.removes:
        at = (head.version if head else None) or 0
        raise Conflict(
            f"{proposal.ref} was at version {proposal.base} when this was proposed and is at {at} now.",
            "Reject it, and propose the change again.",
        )
    from evolvable_store.merge import merge_files  # late: 2 ms; most proposals are never rebased

    merged = merge_files(base, now, theirs)
    if merged.conflicts or (_breaks(proposal, merged.files) and not _breaks(proposal, theirs)):
        raise Conflict(
            f"{proposal.ref} changed since in the same places: {', '.join(merged.conflicts) or 'its frontmatter'}.",
            "Reject it, and propose the change again from the head.",
        )
    return merged.files


def rebase_error(library: Library, proposal: Proposal, head: Head | None) -> str:
    """Return why a proposal that waits can no longer be made, '' when it can."""
    try:
        rebase(library, proposal, head, library.store.files(head) if head and head.version else {})
    except EvolvableError as error:
        return error.text
    return ""


def _added(proposal: Proposal, now: Files) -> Files | None:
    """Return the files with the line that a proposal adds; None when that is not what it does."""
    adds = json.loads(proposal.grounds or "{}").get("adds")
    if not isinstance(adds, dict):
        return None
    if "fact" in adds:
        from evolvable_tools.verbs.memory_facts import add_fact  # late: 13 ms, for a stemmer

        return add_fact(now, proposal.name, str(adds["fact"]), date.fromisoformat(str(adds["day"]))).files
    return append_line(now, str(adds["path"]), str(adds["line"])) if now else None


def _breaks(proposal: Proposal, files: Files) -> bool:
    return bool(broken_rules(find_problems(proposal.kind, proposal.name, files)))


def _problems(proposal: Proposal, files: Files) -> list[str]:
    """Return what stops a change."""
    return [str(one) for one in blocking_problems(find_problems(proposal.kind, proposal.name, files))]


@dataclass(frozen=True, slots=True)
class Quoted:
    """Words of a session that a proposal rests on, and where they come from."""

    session: str
    turn: int
    origin: str
    quote: str


@dataclass(frozen=True, slots=True)
class Grounds:
    """What a review says for a proposal. near: similar resources; cost: the model, its tokens and their price."""

    what: str
    evidence: list[Quoted]
    near: list[str]
    cost: dict[str, str | int | float]
    counter_evidence: str = ""
    expected_signal: str = ""
    risk: str = ""


@dataclass(frozen=True, slots=True)
class WaitingProposal:
    """One proposal. `base`: the version it was made from, 0 for a new resource; `head`: the version there is now.

    removes: it proposes to remove the resource. grounds: the evidence of a review. blocked: why it can no longer be
    made. times: how often it was proposed, with the reason of the last time. findings: what a scan found in it; gains,
    loses: the capabilities that it adds and takes away. notice: what the marks around its texts mean, '' where there
    are none.
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
    findings: list[Finding] = field(default_factory=list)
    gains: list[str] = field(default_factory=list)
    loses: list[str] = field(default_factory=list)
    grounds: Grounds | None = None
    expires: str | None = None
    blocked: str = ""
    times: int = 1
    notice: str = ""


def files_at(library: Library, ref: Ref, version: int) -> Files:
    """Return the files of a version, none for version 0."""
    head = library.store.head_or_none(ref) if version else None
    return library.store.files(head, version) if head else {}


def is_expired(library: Library, proposal: Proposal) -> bool:
    """Return whether the time of a proposal that waits is over."""
    return proposal.state == OPEN and proposal.expires is not None and proposal.expires < library.store.now()


def describe_proposal(
    library: Library, proposal: Proposal, *, with_diff: bool = False, limit: int | None = versions.MAX_DIFF
) -> WaitingProposal:
    """Return a proposal as a person sees it. limit: characters of its diff."""
    head = library.store.head_or_none(proposal.ref)
    base = library.store.manifest(head, proposal.base) if head and proposal.base else Manifest({})
    p, found = proposal, load_scan(proposal.findings)
    return WaitingProposal(
        *(p.id, str(p.ref), p.at, p.actor, p.session, p.reason, p.base, head.version if head else None),
        versions.changed_files(base, p.manifest),
        p.state,
        diff(library, base, p.manifest, (str(p.base), "proposed"), limit=limit) if with_diff else None,
        p.removes,
        list(found.findings),
        [str(one) for one in found.capabilities.added],
        [str(one) for one in found.capabilities.removed],
        grounds_of(p),
        p.expires,
        rebase_error(library, p, head) if with_diff and p.state == OPEN else "",
        p.times,
    )


def as_read(proposals: Sequence[WaitingProposal], reader: Actor) -> list[WaitingProposal]:
    """Return proposals as this reader is given them: an agent reads what no person wrote between marks."""
    if reader is Actor.HUMAN:
        return list(proposals)
    marks = AnswerMarks(True)
    return [one if one.actor == Actor.HUMAN else _marked(one, marks) for one in proposals]


def _marked(one: WaitingProposal, marks: AnswerMarks) -> WaitingProposal:
    diff = marks.block(one.diff or "", f"proposal {one.proposal_id} for {one.ref}", "not approved by a person")
    grounds = one.grounds and replace(
        one.grounds,
        evidence=[replace(quoted, quote=marks.line(quoted.quote)) for quoted in one.grounds.evidence],
        near=[marks.line(text) for text in one.grounds.near],
        counter_evidence=marks.line(one.grounds.counter_evidence),
        expected_signal=marks.line(one.grounds.expected_signal),
        risk=marks.line(one.grounds.risk),
    )
    return replace(
        one,
        reason=marks.line(one.reason),
        diff=None if one.diff is None else diff,
        findings=[replace(found, excerpt=marks.line(found.excerpt)) for found in one.findings],
        gains=[marks.line(text) for text in one.gains],
        loses=[marks.line(text) for text in one.loses],
        grounds=grounds,
        notice=marks.notice,
    )


def grounds_of(proposal: Proposal) -> Grounds | None:
    """Return what a review says for a proposal, None for a proposal of anybody else."""
    if proposal.grounds is None:
        return None
    said = json.loads(proposal.grounds)
    quotes = [Quoted(one["session"], one["turn"], one["origin"], one["quote"]) for one in said["evidence"]]
    told = {key: said.get(key) or "" for key in ("counter_evidence", "expected_signal", "risk")}
    return Grounds(said["what"], quotes, said["near"], said.get("cost") or {}, **told)


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
    library: Library, caller: Caller, ref: Ref, base: int, files: Files, reason: str, found: Scan | None = None
) -> int:
    """Keep a change for a person to decide on; returns its proposal_id. Nothing live changes.

    What somebody other than a person proposes again while it waits is counted, and stays one proposal. files: the whole
    content; none at all to remove the resource. found: what a scan of it said; without, it is scanned now. Raises
    Unsafe, unless a person proposes it.
    """
    if found is None:
        found = check_change(ref, files_at(library, ref, base), files, caller.actor)
        found = library.names.add_to(found, ref) if files and not base else found
    draft = Draft(ref, base, files, library.redacted(reason), findings=dump_scan(found))
    return library.store.backend.proposals.add(library.store.now(), caller.actor, caller.session, draft)


def revert_or_propose(
    library: Library, caller: Caller, reason: str, *, operation: int | None = None, session: str | None = None
) -> versions.Undone:
    """Take an operation, or all of a session, back; or propose it where the policy has it wait for a person.

    What an agent takes back of what its session did not do, or of more than MAX_REMOVED resources, waits. Where
    approvals are locked, a person takes back more than these with the passphrase. Raise Refused, and as `undo`.
    """
    undid = versions.operations_undone(library, operation, session)
    backs, _ = plan_revert(library, caller, undid, session)
    if not undo_waits(library, caller, undid, [back.ref for back in backs]):
        if library.lock is not None and caller.decides and len({back.ref for back in backs}) > MAX_REMOVED:
            library.authorise(caller, f"Taking back the changes of more than {MAX_REMOVED} resources")
        return versions.undo(library, caller, reason, operation=operation, session=session)
    proposed = propose_undo(library, caller, reason, operation=operation, session=session)
    if not (ids := proposed.proposal_ids):
        return proposed
    why = "Nothing changed: a person has to see this first, because it takes back what others did or many resources."
    which = f"proposal{'s' * (len(ids) > 1)} {', '.join(map(str, ids))}"
    waits = f"{why} It waits in the inbox as {which}. Go on without it."
    return replace(proposed, warnings=[*proposed.warnings, waits])


def propose_undo(
    library: Library, caller: Caller, reason: str, *, operation: int | None = None, session: str | None = None
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
            ids.append(propose(library, caller, back.ref, back.expected, back.content(library.store), reason))
    return versions.Undone(None, [], [], conflicts, proposal_ids=ids, waiting=ids)


def list_waiting(
    library: Library, limit: int = 100, wanted: Callable[[Proposal], bool] | None = None
) -> list[WaitingProposal]:
    """Return up to `limit` of the proposals that wait, oldest first, without their diffs. wanted: picks from them."""
    open_ones = library.store.backend.proposals.waiting(limit if wanted is None else MAX_SCANNED)
    found = [one for one in open_ones if not is_expired(library, one) and (wanted is None or wanted(one))]
    return [describe_proposal(library, proposal) for proposal in found[:limit]]


def show_proposal(library: Library, proposal_id: int, *, limit: int | None = versions.MAX_DIFF) -> WaitingProposal:
    """Return one proposal with its diff against the version it was made from. Raises NotFound.

    limit: characters of the diff, None for all of it.
    """
    proposal = library.store.backend.proposals.get(proposal_id)
    return describe_proposal(library, proposal, with_diff=True, limit=limit)


def approve_together(
    library: Library,
    caller: Caller,
    proposal_ids: Sequence[int],
    reason: str,
    how: str = "",
    edited: Mapping[str, str | bytes | None] | None = None,
    *,
    by_policy: bool = False,
) -> list[Decided]:
    """Publish proposals, merged with what happened since, in one operation, or none; returns what became of each.

    Several of one resource are put one on top of the other. how: in which way they were approved, for the evidence.
    edited: of a single proposal, the files as the person wants them, None for one that goes. by_policy: a policy that
    the person set decides, such as memory=auto, and not the caller. Raises NotFound, InvalidArgument, InvalidResource,
    Conflict, Frozen; and when it is not a person who approves, Unsafe or Refused for what a scan finds.
    """
    if edited and len(proposal_ids) != 1:
        raise InvalidArgument("Files were given for more than one proposal.", "Edit and approve one at a time.")
    if not by_policy:
        library.authorise(caller, "Approving a proposal")
    found = [_open(library, identity) for identity in dict.fromkeys(proposal_ids)]
    library.take_in([proposal.ref for proposal in found])
    reason = library.redacted(reason)
    evidence = [how] if how else []
    for one in found:
        session = f", session {one.session}" if one.session else ""
        evidence += [f"proposal {one.id} by {one.actor}{session}", one.reason]
    made = _made(library, caller, found, edited or {})
    because, evidence = reason or "; ".join(dict.fromkeys(one.reason for one in found)), list(dict.fromkeys(evidence))
    with library.transaction(caller, because, evidence=evidence, sign=True) as tx:
        for ref, (now, files) in made.items():
            if files:
                tx.put(ref, files, expected_version=now)
                tx.bind_new([] if now else library.working_copies.free_places(ref))
            else:
                tx.remove(ref, expected_version=now)
        for proposal in found:
            tx.approve(proposal.id, reason)
    operation = tx.operation.id if tx.operation else None
    warnings = {one.ref: library.checkout([one.ref], created=one.version == 1) for one in tx.written}
    version = {one.ref: one.version for one in tx.written}
    return [Decided(p.id, str(p.ref), APPROVED, version[p.ref], operation, warnings.pop(p.ref, [])) for p in found]


def _made(
    library: Library, caller: Caller, found: Sequence[Proposal], edited: Mapping[str, str | bytes | None]
) -> dict[Ref, tuple[int, Files]]:
    """Return of each resource the version it has now, and the content it is to get; none when it is removed."""
    made: dict[Ref, tuple[int, Files]] = {}
    for proposal in found:
        head = library.store.head_or_none(proposal.ref)
        now = (head.version if head else None) or 0
        before = made[proposal.ref][1] if proposal.ref in made else library.store.files(head) if head and now else {}
        files = _with(rebase(library, proposal, head, before), edited, proposal)
        _check_approver(library, caller, proposal, now, files)
        made[proposal.ref] = (now, files)
    return made


def _with(files: Files, edited: Mapping[str, str | bytes | None], proposal: Proposal) -> Files:
    """Return the files as a person edited them. Raises InvalidResource, InvalidPath, InvalidArgument."""
    if not edited:
        return files
    changed = dict(files)
    apply_files(changed, {path: text for path, text in edited.items() if text is not None or path in files})
    if stops := _problems(proposal, changed):
        raise InvalidResource(str(proposal.ref), stops)
    return changed


def _check_approver(library: Library, caller: Caller, proposal: Proposal, now: int, files: Files) -> None:
    if caller.actor is Actor.HUMAN or proposal.removes:
        return
    found = check_change(proposal.ref, files_at(library, proposal.ref, now), files, caller.actor)
    if found.asks:
        raise Refused(
            f"Proposal {proposal.id} cannot be approved by {caller.actor}: {finding_messages(found, quoted=True)[0]}.",
            "A person decides on it.",
        )


def approve_as_asked(library: Library, proposal_ids: Sequence[int], how: str) -> list[Decided]:
    """Publish proposals that a person approved when they were made, in the session that made them.

    Raises as `approve_together`.
    """
    session = library.store.backend.proposals.get(proposal_ids[0]).session
    person = Caller(Actor.HUMAN, session, principal=Principal.PERSON, via="elicitation")
    return approve_together(library, person, proposal_ids, "", how)


def reject(library: Library, proposal_id: int, reason: str, caller: Caller | None = None) -> Decided:
    """Close a proposal without a change; it is kept, and a review does not propose it again without new evidence.

    caller: who decides, for the audit log. Raises NotFound, InvalidArgument.
    """
    proposal = _open(library, proposal_id)
    audited = library.decision(caller, "reject", f"{proposal.ref} (proposal {proposal.id})")
    if not library.store.backend.proposals.reject(proposal.id, library.redacted(reason), audited):
        _open(library, proposal_id)
    return Decided(proposal.id, str(proposal.ref), REJECTED)


def reopen(library: Library, caller: Caller, proposal_id: int) -> Decided:
    """Let a rejected proposal wait again, as it was. Raises NotFound, Refused, InvalidArgument."""
    if not caller.decides:
        raise Refused("Reopening a proposal is a person's decision; this call is not a person's.", "Propose it again.")
    proposal = library.store.backend.proposals.get(proposal_id)
    audited = library.decision(caller, "reopen", f"{proposal.ref} (proposal {proposal.id})")
    if not library.store.backend.proposals.reopen(proposal_id, audited):
        raise InvalidArgument(f"Proposal {proposal_id} is {proposal.state}.", "Only a rejected proposal is reopened.")
    return Decided(proposal.id, str(proposal.ref), OPEN)


def expire(library: Library) -> int:
    """Close the proposals whose time is over; returns how many. They count as turned down."""
    return 0 if library.store.read_only else library.store.backend.proposals.expire(library.store.now())


def _open(library: Library, proposal_id: int) -> Proposal:
    proposal = library.store.backend.proposals.get(proposal_id)
    state = EXPIRED if is_expired(library, proposal) else proposal.state
    if state != OPEN:
        raise InvalidArgument(f"Proposal {proposal_id} is {state} already.", "`evolvable inbox` lists those that wait.")
    return proposal


def proposed_texts(library: Library, proposal_id: int) -> dict[str, str]:
    """Return the text files of a proposal that differ from its base, for a person to edit.

    Raises NotFound, and InvalidArgument for a proposal that changes no text.
    """
    texts = _proposed_texts(library, _open(library, proposal_id))
    if not texts:
        raise InvalidArgument(f"Proposal {proposal_id} changes no text.", "Approve or reject it as it is.")
    return texts


def changes_text(library: Library, proposal_id: int) -> bool:
    """Return whether a proposal has a text for a person to edit. Raises NotFound."""
    return bool(_proposed_texts(library, library.store.backend.proposals.get(proposal_id)))


def _proposed_texts(library: Library, proposal: Proposal) -> dict[str, str]:
    head, after = library.store.head_or_none(proposal.ref), proposal.manifest
    base = library.store.manifest(head, proposal.base) if head and proposal.base else Manifest({})
    # Only what changed is read: the page asks this of every proposal that it shows.
    changed = (path for path in versions.changed_files(base, after) if path in after)
    texts = {path: decode_text(library.store.blob(after[path].sha256)) for path in changed}
    return {path: text for path, text in texts.items() if text is not None}
