"""Admission of candidates: rules in code, each with a code and a sentence, in one order; then
novelty and scan.

No model takes part. The sentence of a refusal names what would have to differ.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from evolvable_store import Files, broken_rules, find_problems
from evolvable_store.errors import EvolvableError, TryAgain
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage import EXPIRED, OPEN, REJECTED, Draft, Proposal
from evolvable_tools.approvals import dump_scan, file_bytes
from evolvable_tools.library import Library
from evolvable_tools.review import candidates
from evolvable_tools.review.candidates import (
    CandidateDraft,
    CandidateKind,
    ReviewCandidate,
    SkillEditOp,
)
from evolvable_tools.review.lesson_rules import (
    MAX_LINES,
    contradicted_line,
    says_nothing_new,
    too_many_lines,
)
from evolvable_tools.review.review_request import EvidenceSpan
from evolvable_tools.review.review_results import RefusedCandidate
from evolvable_tools.review.rules import (
    MAX_CLAIM,
    MEMORY,
    RULES,
    RuleCase,
    RuleContext,
    RuleViolation,
    flatten_quote,
)
from evolvable_tools.scan import scan
from evolvable_tools.verbs import content_terms, parse_facts, same_fact

ALIKE = 0.6
"""Share of terms in common from which two texts are taken for the same thing."""

MOVES = frozenset({SkillEditOp.SPLIT, SkillEditOp.REORDER})
"""Edits that move what is there, and say nothing themselves."""

LOOKED_AT = 500
"""How many proposals of each state a change is compared with."""

CORRECTABLE = frozenset(
    {
        "schema",
        "bounds",
        "no_such_span",
        "quote_not_there",
        "cannot_be_made",
        "unsound",
        "no_change",
        "contradicts",
        "wrong_place",
    }
)
"""Codes of faults of form, which the author of the answer may correct once. Others are final."""


@dataclass(frozen=True, slots=True)
class EarlierProposal:
    """What is like a change.

    state: open, rejected, expired, or live for a resource. likeness: 0 to 1.
    """

    what: str
    state: str
    likeness: float
    sessions: frozenset[str] = frozenset()


def fingerprint(ref: Ref, says: str) -> str:
    """Return the key of a change: a hash of its kind, name and words without order, case and
    endings.
    """
    terms = " ".join(sorted(content_terms(says)))
    return hashlib.sha256(f"{ref.kind}:{ref.name}\n{terms}".encode()).hexdigest()[:32]


def similar_proposals(library: Library, ref: Ref, says: str) -> list[EarlierProposal]:
    """Return the proposals that wait or were turned down and are like this change, the most alike
    first.
    """
    proposals, own = library.store.backend.proposals, content_terms(says)
    alike = []
    for state in (OPEN, REJECTED, EXPIRED):
        for other in proposals.in_state(state, LOOKED_AT):
            # Only proposals of reviews say what they rest on, and can be compared by it.
            grounds = json.loads(other.grounds or "{}")
            if other.kind is not ref.kind or not isinstance(grounds, dict) or "says" not in grounds:
                continue
            same = other.fingerprint == fingerprint(ref, says)
            # New skills are the same by what they are for, edits only of the same resource.
            if not same and other.name != ref.name and (ref.kind is not Kind.SKILL or other.base):
                continue
            likeness = 1.0 if same else jaccard(own, content_terms(str(grounds["says"])))
            if likeness >= ALIKE:
                sessions = _list_sessions(other, grounds)
                alike.append(EarlierProposal(f"proposal {other.id}", state, likeness, sessions))
    return sorted(alike, key=lambda double: -double.likeness)


def similar_resources(library: Library, ref: Ref, says: str, files: Files) -> list[EarlierProposal]:
    """Return the living resources of this kind that a new one is like, by its description or by its
    text.
    """
    own, body = content_terms(says), content_terms(_join_texts(files))
    alike = []
    for head in library.store.heads(ref.kind):
        entry = library.index.entry(head)
        about = content_terms(f"{head.name} {entry.description if entry else ''}")
        likeness = jaccard(own, about)
        # Reading a resource's files is the expensive part, so a description has to share two words
        # first.
        if likeness < ALIKE and body and len(about & own) >= 2:
            other_body = content_terms(_join_texts(library.store.files(head)))
            likeness = max(likeness, jaccard(body, other_body))
        if likeness >= ALIKE:
            alike.append(EarlierProposal(str(head.ref), "live", likeness))
    return sorted(alike, key=lambda double: -double.likeness)


def jaccard(left: Set[str], right: Set[str]) -> float:
    """Return the share of what two sets have in common, 0 to 1."""
    return len(left & right) / len(left | right) if left or right else 0.0


def _list_sessions(proposal: Proposal, grounds: Mapping[str, Any]) -> frozenset[str]:
    cited = grounds.get("evidence") or ()
    return frozenset({str(proposal.session), *(str(citation.get("session")) for citation in cited)})


def _join_texts(files: Files) -> str:
    texts = (file.data[:40_000] for path, file in files.items() if path.endswith(".md"))
    return "\n".join(text.decode("utf-8", "replace") for text in texts)


@dataclass(frozen=True, slots=True)
class AdmittedCandidate:
    """A candidate that keeps every rule. change: its change. draft: the proposal of it."""

    number: int
    candidate: ReviewCandidate
    change: CandidateDraft
    draft: Draft


def check_candidate(
    case: RuleCase, number: int, change: CandidateDraft, before: list[AdmittedCandidate]
) -> AdmittedCandidate:
    """Return a candidate with its change, which is sound, new, and refused by no scan.

    Raises RuleViolation.
    """
    context, candidate = case.context, case.candidate
    if change.files == change.before:
        raise RuleViolation("no_change", "It is there already.")
    head = context.library.store.head_or_none(change.ref)
    if head is not None and head.frozen:
        raise RuleViolation("frozen", f"{change.ref} is frozen; only a person changes it.")
    wrong = broken_rules(find_problems(change.ref.kind, change.ref.name, change.files))
    # A fault that was there before the edit is not the candidate's, and does not refuse it.
    if wrong and not broken_rules(find_problems(change.ref.kind, change.ref.name, change.before)):
        raise RuleViolation("unsound", f"It would not be a sound {change.ref.kind}: {wrong[0]}.")
    _check_lines(candidate, change, short=context.short)
    near = _check_is_new(case, change, before)
    found = scan(file_bytes(change.before) or None, file_bytes(change.files), change.ref.kind)
    if found.blocks:
        worst = next(finding.why for finding in found.findings if finding.severity == "high")
        raise RuleViolation("scan", f"The scan refuses it: {worst}")
    draft = Draft(
        *(change.ref, change.base, change.files, candidate.claim),
        grounds=json.dumps(_list_grounds(case, change, near), ensure_ascii=False),
        fingerprint=fingerprint(change.ref, _make_identity_text(candidate)),
        expires=context.expires,
        findings=dump_scan(found),
    )
    return AdmittedCandidate(number, candidate, change, draft)


def _list_grounds(
    case: RuleCase, change: CandidateDraft, near: list[EarlierProposal]
) -> dict[str, Any]:
    """Return what the proposal of a candidate rests on, as it is stored with it."""
    candidate, cost = case.candidate, case.context.cost
    quotes = (flatten_quote(cited.quote) for cited in candidate.evidence)
    return {
        "what": candidate.what,
        "says": _make_identity_text(candidate),
        "evidence": [
            {
                "session": span.session,
                "turn": span.turn,
                "span": span.id,
                "origin": span.origin,
                "quote": quote,
            }
            for span, quote in zip(case.cited, quotes, strict=True)
        ],
        "near": [f"{double.what} ({double.state}, {double.likeness:.0%} alike)" for double in near],
        "adds": dict(change.adds) if change.adds else None,
        "cost": dict(cost) if cost else None,
        "counter_evidence": candidate.counter_evidence or None,
        "expected_signal": candidate.expected_signal or None,
        "risk": candidate.risk or None,
    }


def _check_lines(candidate: ReviewCandidate, change: CandidateDraft, *, short: bool) -> None:
    """Check that an edit is small, says something new, and leaves no line that says the contrary.

    Raises RuleViolation.
    """
    if candidate.what is not CandidateKind.SKILL_EDIT:
        return
    ops = {edit.op for edit in candidate.edits}
    # A moved line shows up as one added and one removed, which the rules on new lines would
    # misread.
    if ops & MOVES:
        return
    if short and (lines := too_many_lines(change.before, change.files)):
        raise RuleViolation(
            "bounds", f"A lesson changes at most {MAX_LINES} lines, not {lines}; say it shorter."
        )
    if line := contradicted_line(change.before, change.files):
        raise RuleViolation(
            "contradicts", f"{change.ref} says the contrary: “{line[:120]}”; replace that line."
        )
    if line := says_nothing_new(change.before, change.files):
        raise RuleViolation("double", f"{change.ref} says so already: “{line[:120]}”.")


def _check_is_new(
    case: RuleCase, change: CandidateDraft, before: list[AdmittedCandidate]
) -> list[EarlierProposal]:
    """Return the earlier proposals that a change is like without being the same.

    Raises RuleViolation when the same is there, waits, or was rejected.
    """
    context, candidate, says = case.context, case.candidate, _make_identity_text(case.candidate)
    earlier_marks = (
        fingerprint(earlier.change.ref, _make_identity_text(earlier.candidate))
        for earlier in before
    )
    if fingerprint(change.ref, says) in earlier_marks:
        raise RuleViolation("double", "An earlier candidate says the same.")
    file = change.before.get(f"{change.ref.name}.md") if candidate.what in MEMORY else None
    if file is not None:
        facts = parse_facts(file.data.decode("utf-8", "replace"))
        if any(same_fact(fact, candidate.text) for fact in facts):
            raise RuleViolation("double", f"{change.ref} says so already.")
    sessions = {span.session for span in case.cited}
    similar = similar_proposals(context.library, change.ref, says)
    for double in similar:
        if double.state == OPEN:
            raise RuleViolation("double", f"{double.what} waits for a decision and says the same.")
        # A rejected change may be proposed again once another session supports it.
        if sessions <= double.sessions:
            reason = f"{double.what} said the same and was {double.state}; nothing is new."
            raise RuleViolation("rejected_before", reason)
    is_resource = change.ref.kind is not Kind.MEMORY and candidate.what is not CandidateKind.TASK
    if is_resource and not change.base:
        live = similar_resources(context.library, change.ref, says, change.files)
        if live:
            raise RuleViolation(
                "double",
                f"{live[0].what} is {live[0].likeness:.0%} the same; propose an edit of it.",
            )
    return similar


def _make_identity_text(candidate: ReviewCandidate) -> str:
    """Return the words that identify a change."""
    if candidate.what in MEMORY or candidate.what is CandidateKind.TASK:
        return candidate.text
    heads = (
        re.search(r"^description:(.*)$", text, re.MULTILINE) for text in candidate.files.values()
    )
    described = " ".join(match[1] for match in heads if match)
    if not candidate.files:
        return candidate.claim
    return f"{candidate.name} {described or candidate.claim}"


def admit(
    context: RuleContext, answers: list[Mapping[str, Any]]
) -> tuple[list[AdmittedCandidate], list[RefusedCandidate]]:
    """Return the candidates that keep every rule, and those that do not, each with the first rule
    it breaks.
    """
    admitted: list[AdmittedCandidate] = []
    refusals: list[RefusedCandidate] = []
    for number, answer in enumerate(answers, 1):
        claim = str(answer.get("claim", ""))[:MAX_CLAIM] if isinstance(answer, Mapping) else ""
        claim = context.redactor.redact(claim)[0]
        try:
            if number > candidates.MAX_CANDIDATES:
                raise RuleViolation(
                    "too_many", f"At most {candidates.MAX_CANDIDATES} candidates are looked at."
                )
            admitted.append(_admit_one(context, number, answer, admitted))
        except RuleViolation as refusal:
            refusals.append(RefusedCandidate(number, claim, refusal.code, refusal.reason))
        except TryAgain:  # the answer is kept, and is admitted once more
            raise
        except EvolvableError as error:
            reason = context.redactor.redact(error.text)[0]
            refusals.append(RefusedCandidate(number, claim, "cannot_be_made", reason))
    return admitted, refusals


def _admit_one(
    context: RuleContext, number: int, answer: Mapping[str, Any], before: list[AdmittedCandidate]
) -> AdmittedCandidate:
    # What a model says is redacted before anything looks at it: a secret that it made up or kept is
    # none of ours.
    cleaned = context.redactor.redact_value(answer)[0]
    try:
        candidate = candidates.parse_candidate(cleaned)
    except (ValueError, TypeError, KeyError) as error:
        raise RuleViolation("schema", f"It does not fit the schema: {error}.") from None
    case = RuleCase(context, candidate, tuple(_find_cited_spans(context, candidate)))
    # Rules need no file of the library, so they run before the change is made and scanned.
    for rule in RULES:
        rule(case)
    try:
        change = candidates.draft_change(
            context.library, context.caller, candidate, context.packet.session, context.today
        )
    except UnicodeDecodeError:
        raise RuleViolation("cannot_be_made", "The file to change is no text.") from None
    return check_candidate(case, number, change, before)


def _find_cited_spans(context: RuleContext, candidate: ReviewCandidate) -> list[EvidenceSpan]:
    spans = {span.id: span for span in context.packet.evidence}
    missing = [cited.span for cited in candidate.evidence if cited.span not in spans]
    if missing:
        raise RuleViolation("no_such_span", f"There is no evidence {', '.join(missing[:5])}.")
    return [spans[cited.span] for cited in candidate.evidence]
