"""A proposal as it is listed and read: its difference from what is there now, its evidence, what a
scan found in it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from evolvable_store import Actor, Manifest, make_manifest
from evolvable_store.errors import EvolvableError
from evolvable_store.storage import OPEN, Proposal
from evolvable_tools.approvals import check_change, load_scan
from evolvable_tools.file_edits import changed_files
from evolvable_tools.library import Library
from evolvable_tools.scan import Finding
from evolvable_tools.untrusted_text import AnswerMarks
from evolvable_tools.verbs import versions
from evolvable_tools.verbs.rebased_proposals import (
    RebasedContent,
    conflict_sides,
    conflict_text,
    last_stood_for,
    rebase_on_head,
    way_out,
)


@dataclass(frozen=True, slots=True)
class Quoted:
    """Words of a session that a proposal rests on, and where they come from."""

    session: str
    turn: int
    origin: str
    quote: str


@dataclass(frozen=True, slots=True)
class Grounds:
    """What a review says for a proposal.

    near: similar resources. cost: the model, its tokens and their price.
    """

    what: str
    evidence: list[Quoted]
    near: list[str]
    cost: dict[str, str | int | float]
    counter_evidence: str = ""
    expected_signal: str = ""
    risk: str = ""


@dataclass(frozen=True, slots=True)
class WaitingProposal:
    """One proposal.

    base: the version it was made from, 0 for a new resource. head: the version there is now.
    removes: it proposes to remove the resource. diff: from what is there now to what an approval
    leads to, with the lines of the proposal where both sides changed the same. sides: these lines,
    of both. grounds: the evidence of a review. blocked: why it cannot be approved as it is, and
    what a person can do. times: how often it was proposed, with the reason of the last time.
    findings: what a scan found in it. gains, loses: the capabilities that it adds and takes away.
    notice: what the marks around its texts mean, '' where there are none.
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
    sides: str = ""


def describe_proposal(
    library: Library,
    proposal: Proposal,
    *,
    with_diff: bool = False,
    limit: int | None = versions.MAX_DIFF,
    context: int = versions.CONTEXT,
) -> WaitingProposal:
    """Return a proposal as a person sees it: with a diff, against what is there now.

    limit: characters of the diff. context: equal lines around its changes.
    """
    head = library.store.head_or_none(proposal.ref)
    base, sides, blocked = proposal.base, "", ""
    found = load_scan(proposal.findings)
    before = library.store.manifest(head, base) if head and base else Manifest({})
    after, names, unsaved = proposal.manifest, (str(base), "proposed"), dict[str, bytes]()
    if with_diff and proposal.state == OPEN:
        try:
            rebased, now = rebase_on_head(library, proposal)
        except EvolvableError as error:
            blocked, rebased, now = error.text, RebasedContent(0, {}), {}
        if rebased.conflicts:
            blocked = f"{conflict_text(proposal, rebased)} {way_out(proposal.id)}"
            sides = conflict_sides(rebased)
        if rebased.merged:
            base_version, now = last_stood_for(library, head, rebased.version, now)
            before, after = make_manifest(now), make_manifest(rebased.files)
            names = (str(base_version), f"{rebased.version} with proposal {proposal.id}")
            unsaved = {entry.sha256: rebased.files[path].data for path, entry in after.items()}
            found = check_change(proposal.ref, now, rebased.files, Actor.HUMAN)
    text = None
    if with_diff and proposal.files_removed_at is not None:
        text = _describe_removed_files(proposal)
    elif with_diff:
        text = versions.diff(
            library, before, after, names, limit=limit, unsaved=unsaved, context=context
        )
    return WaitingProposal(
        proposal_id=proposal.id,
        ref=str(proposal.ref),
        at=proposal.at,
        actor=proposal.actor,
        session=proposal.session,
        reason=proposal.reason,
        base=base,
        head=head.version if head else None,
        files=changed_files(before, after),
        state=proposal.state,
        diff=text,
        removes=proposal.removes,
        findings=list(found.findings),
        gains=[str(capability) for capability in found.capabilities.added],
        loses=[str(capability) for capability in found.capabilities.removed],
        grounds=grounds_of(proposal),
        expires=proposal.expires,
        blocked=blocked,
        times=proposal.times,
        sides=sides,
    )


def _describe_removed_files(proposal: Proposal) -> str:
    """Return what is left of a proposal whose files were removed: their names and hashes."""
    names = (f"{path} sha256 {entry.sha256}" for path, entry in proposal.manifest.items())
    return "\n".join(
        [f"The files were removed on {(proposal.files_removed_at or '')[:10]}.", *names]
    )


def as_read(proposals: Sequence[WaitingProposal], reader: Actor) -> list[WaitingProposal]:
    """Return proposals as this reader is given them: an agent reads what no person wrote between
    marks.
    """
    if reader is Actor.HUMAN:
        return list(proposals)
    marks = AnswerMarks(True)
    return [
        proposal if proposal.actor == Actor.HUMAN else _mark_texts(proposal, marks)
        for proposal in proposals
    ]


def _mark_texts(proposal: WaitingProposal, marks: AnswerMarks) -> WaitingProposal:
    what, why = f"proposal {proposal.proposal_id} for {proposal.ref}", "not approved by a person"
    diff = marks.block(proposal.diff or "", what, why)
    grounds = proposal.grounds and replace(
        proposal.grounds,
        evidence=[
            replace(quoted, quote=marks.line(quoted.quote)) for quoted in proposal.grounds.evidence
        ],
        near=[marks.line(text) for text in proposal.grounds.near],
        counter_evidence=marks.line(proposal.grounds.counter_evidence),
        expected_signal=marks.line(proposal.grounds.expected_signal),
        risk=marks.line(proposal.grounds.risk),
    )
    return replace(
        proposal,
        reason=marks.line(proposal.reason),
        diff=None if proposal.diff is None else diff,
        sides=marks.block(proposal.sides, what, why) if proposal.sides else "",
        findings=[replace(found, excerpt=marks.line(found.excerpt)) for found in proposal.findings],
        gains=[marks.line(text) for text in proposal.gains],
        loses=[marks.line(text) for text in proposal.loses],
        grounds=grounds,
        notice=marks.notice,
    )


def grounds_of(proposal: Proposal) -> Grounds | None:
    """Return what a review says for a proposal, None for a proposal of anybody else."""
    if proposal.grounds is None:
        return None
    document = json.loads(proposal.grounds)
    quotes = [
        Quoted(row["session"], row["turn"], row["origin"], row["quote"])
        for row in document["evidence"]
    ]
    notes = {
        key: document.get(key) or "" for key in ("counter_evidence", "expected_signal", "risk")
    }
    return Grounds(document["what"], quotes, document["near"], document.get("cost") or {}, **notes)
