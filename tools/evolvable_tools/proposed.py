"""A change that waits for a person, as it is shown: with its diff, what it rests on, and what a scan found."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from evolvable_store.objects import Files, Manifest
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage.proposals import OPEN, Proposal
from evolvable_tools.foreign_text import AnswerMarks
from evolvable_tools.history import changed_files, diff
from evolvable_tools.library import Library
from evolvable_tools.rebasing import cannot_be
from evolvable_tools.scan.door import stored
from evolvable_tools.scan.findings import Finding


@dataclass(frozen=True, slots=True)
class Quoted:
    """Words of a session that a proposal rests on, and where they come from."""

    session: str
    turn: int
    origin: str
    quote: str


@dataclass(frozen=True, slots=True)
class Grounds:
    """What a review says for a proposal. near: what it is like; cost: the thinker, its tokens and their price."""

    what: str
    evidence: list[Quoted]
    near: list[str]
    cost: dict[str, str | int | float]
    counter_evidence: str = ""
    expected_signal: str = ""
    risk: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One proposal. `base`: the version it was made from, 0 for a new resource; `head`: the version there is now.

    removes: it proposes to remove the resource. grounds: what a review says for it. blocked: why it can no longer be
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
    """Returns the files of a version, none for version 0."""
    head = library.store.head_or_none(ref) if version else None
    return library.store.files(head, version) if head else {}


def is_over(library: Library, proposal: Proposal) -> bool:
    """Returns whether the time of a proposal that waits is over."""
    return proposal.state == OPEN and proposal.expires is not None and proposal.expires < library.store.now()


def shown(library: Library, proposal: Proposal, *, with_diff: bool = False) -> Waiting:
    """Returns a proposal as a person sees it."""
    head = library.store.head_or_none(proposal.ref)
    base = library.store.manifest(head, proposal.base) if head and proposal.base else Manifest({})
    p, found = proposal, stored(proposal.findings)
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
        list(found.findings),
        [str(one) for one in found.capabilities.added],
        [str(one) for one in found.capabilities.removed],
        grounds_of(p),
        p.expires,
        cannot_be(library, p, head) if with_diff and p.state == OPEN else "",
        p.times,
    )


def as_read(proposals: Sequence[Waiting], reader: Actor) -> list[Waiting]:
    """Return proposals as this reader is given them: an agent reads what no person wrote between marks."""
    if reader is Actor.HUMAN:
        return list(proposals)
    marks = AnswerMarks(True)
    return [one if one.actor == Actor.HUMAN else _marked(one, marks) for one in proposals]


def _marked(one: Waiting, marks: AnswerMarks) -> Waiting:
    diff = marks.block(one.diff or "", f"proposal {one.proposal_id} for {one.ref}", "not approved by a person")
    return replace(
        one,
        reason=marks.line(one.reason),
        diff=None if one.diff is None else diff,
        findings=[replace(found, excerpt=marks.line(found.excerpt)) for found in one.findings],
        gains=[marks.line(text) for text in one.gains],
        loses=[marks.line(text) for text in one.loses],
        grounds=None if one.grounds is None else _grounds_marked(one.grounds, marks),
        notice=marks.notice,
    )


def _grounds_marked(grounds: Grounds, marks: AnswerMarks) -> Grounds:
    return replace(
        grounds,
        evidence=[replace(quoted, quote=marks.line(quoted.quote)) for quoted in grounds.evidence],
        near=[marks.line(text) for text in grounds.near],
        counter_evidence=marks.line(grounds.counter_evidence),
        expected_signal=marks.line(grounds.expected_signal),
        risk=marks.line(grounds.risk),
    )


def grounds_of(proposal: Proposal) -> Grounds | None:
    """Returns what a review says for a proposal, None for a proposal of anybody else."""
    if proposal.grounds is None:
        return None
    said = json.loads(proposal.grounds)
    quotes = [Quoted(one["session"], one["turn"], one["origin"], one["quote"]) for one in said["evidence"]]
    told = {key: said.get(key) or "" for key in ("counter_evidence", "expected_signal", "risk")}
    return Grounds(said["what"], quotes, said["near"], said.get("cost") or {}, **told)
