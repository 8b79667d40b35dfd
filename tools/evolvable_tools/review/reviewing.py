"""The verbs of a review: review a session, take in what somebody thought of it, and work what hooks have queued.

Each step is kept before the next begins. A review that is killed goes on where it was: what was paid for is not asked
again, and proposals and result are written together or not at all.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from evolvable_store.errors import EvolvableError, InvalidArgument, NotFound
from evolvable_store.operation import Actor
from evolvable_store.storage.proposals import Proposals, Review, Reviews, ReviewState, Spending
from evolvable_store.transaction import format_time
from evolvable_tools import inbox
from evolvable_tools.collecting import held_back
from evolvable_tools.evidence.taking import record_uses
from evolvable_tools.library import Caller, Library
from evolvable_tools.policies import Policy
from evolvable_tools.review.admission import admit
from evolvable_tools.review.checking import Admitted
from evolvable_tools.review.gathering import gathered, worth_thinking
from evolvable_tools.review.packet import Packet, work
from evolvable_tools.review.results import Proposed, Refusal, Reviewed
from evolvable_tools.review.rules import Bench
from evolvable_tools.review.settings import ReviewSettings
from evolvable_tools.review.signals import REVIEWER
from evolvable_tools.review.thinking import asked
from evolvable_tools.sessions.reading import read_session
from evolvable_tools.sessions.session import Session

WAITS = timedelta(days=30)
"""How long a proposal waits for a decision, and a packet for an answer."""

MODES = ("auto", "handoff")
"""auto: whoever the settings name thinks; handoff: the caller does."""

_OFF = "Reviews are off here (EVOLVABLE_REVIEW=off). Nothing was read and nothing was written."


def review_session(
    library: Library,
    caller: Caller,
    settings: ReviewSettings,
    *,
    transcript_path: Path | None = None,
    transcript: Sequence[Mapping[str, Any]] | None = None,
    session: str | None = None,
    mode: str = "auto",
) -> Reviewed:
    """Reviews a session once: by its file, by its messages, or by its name where clients keep their transcripts.

    Without any it goes on with the oldest review that waits for somebody who thinks. Returns the proposals, or a packet
    for the caller to think about, or why there is nothing. Raises InvalidArgument, NotFound, NoTranscript,
    ProviderError, OverBudget; the review is kept and goes on with the next call.
    """
    if not settings.on:
        return Reviewed(None, session, "off", _OFF)
    if mode not in MODES:
        raise InvalidArgument(f"{ascii(mode[:40])} is no mode.", f"It is one of {', '.join(MODES)}.")
    given = [one for one in (transcript_path, transcript, session) if one is not None]
    if len(given) > 1:
        raise InvalidArgument(
            "Several sessions were named.", "Pass transcript_path, transcript or session, one of them."
        )
    if not given:
        return _next_waiting(library, caller, settings, mode)
    kept = _kept_of(library, session, settings) if session is not None else None
    if kept is not None:
        return _went_on(library, caller, settings, kept, mode)
    source = transcript_path if transcript_path is not None else transcript
    if session is not None:
        source = settings.transcript(session)
    if source is None:
        raise NotFound(f"No transcript of session {ascii(str(session)[:80])} was found.", "Pass transcript_path.")
    with held_back():
        read = read_session(source, redactor=settings.redactor)
        record_uses(library, read, home=settings.home)
    return review_read(library, caller, settings, read, mode)


def review_read(library: Library, caller: Caller, settings: ReviewSettings, session: Session, mode: str) -> Reviewed:
    """Reviews a session that was read. Raises as `review_session`."""
    if session.reviewing:
        return Reviewed(None, session.session_id, "done", "It is itself a review, of which nothing is learned.")
    inbox.expire(library)
    reviews, now = Reviews(library.store.backend), library.store.clock()
    said = "\n".join((session.client, session.session_id, session.digest, str(REVIEWER)))
    identity = f"review-{hashlib.sha256(said.encode()).hexdigest()[:16]}"
    try:
        review = reviews.get(identity)
    except NotFound:
        with held_back():
            packet, episodes = gathered(library, caller, session, now)
        reviews.forget(format_time(now - WAITS))
        fresh = Review(
            identity,
            session.session_id,
            session.digest,
            REVIEWER,
            format_time(now),
            ReviewState.BEGUN,
            packet.to_json(),
        )
        review = reviews.begin(fresh, episodes)
    return _went_on(library, caller, settings, review, mode)


def submit_review(
    library: Library,
    caller: Caller,
    settings: ReviewSettings,
    review_id: str,
    candidates: Sequence[Mapping[str, Any]],
    why_none: str = "",
) -> Reviewed:
    """Takes in what the caller thought of a packet: each candidate is admitted or refused, with the reason.

    A review that is done stays as it is and is returned. Raises NotFound.
    """
    if not settings.on:
        return Reviewed(None, None, "off", _OFF)
    reviews = Reviews(library.store.backend)
    review = reviews.get(review_id)
    if review.state is ReviewState.BEGUN:
        answer = {"candidates": list(candidates), "why_none": why_none, "cost": {"thinker": "caller"}}
        reviews.answered(review.id, _clean(settings, answer))
        review = reviews.get(review_id)
    return _went_on(library, caller, settings, review, "handoff")


def _next_waiting(library: Library, caller: Caller, settings: ReviewSettings, mode: str) -> Reviewed:
    waiting = [one for one in Reviews(library.store.backend).newest(500) if one.state is not ReviewState.DONE]
    if not waiting:
        return Reviewed(None, None, "done", "No review waits. Name a session, or a transcript's path.")
    return _went_on(library, caller, settings, waiting[-1], mode)


def _kept_of(library: Library, session: str, settings: ReviewSettings) -> Review | None:
    """Returns the review of a session whose transcript cannot be read again."""
    if settings.transcript(session) is not None:
        return None
    return next(iter(reversed(Reviews(library.store.backend).of(session))), None)


def _went_on(library: Library, caller: Caller, settings: ReviewSettings, review: Review, mode: str) -> Reviewed:
    """Takes a review from where it is to where it can get without the caller."""
    reviews = Reviews(library.store.backend)
    if review.state is ReviewState.DONE:
        # Whoever kept them may have been killed before they were made.
        _make_at_once(library, review, settings, json.loads(review.answer or "[]"))
        return _done(review, library)
    packet = Packet.from_json(review.packet or "{}")
    if review.state is ReviewState.BEGUN:
        nothing = worth_thinking(packet)
        if nothing:
            return _finish(library, caller, settings, review, packet, {"candidates": [], "why_none": nothing})
        if mode == "handoff" or settings.thinker is None:
            why = "Somebody has to think about the packet, and call submit_review."
            shown = work(review.id, packet)
            return Reviewed(
                review.id,
                review.session,
                ReviewState.BEGUN,
                why,
                _counts(packet),
                packet=shown,
                redacted=packet.redactions,
            )
        day = format_time(library.store.clock())[:10]
        answer, cost = asked(reviews, settings.budget, settings.thinker, settings.redactor, review.id, day, packet)
        reviews.answered(review.id, _clean(settings, {**answer, "cost": _cost(settings.thinker.name, cost)}))
        review = reviews.get(review.id)
    return _finish(library, caller, settings, review, packet, json.loads(review.answer or "{}"))


def _finish(
    library: Library,
    caller: Caller,
    settings: ReviewSettings,
    review: Review,
    packet: Packet,
    answer: Mapping[str, Any],
) -> Reviewed:
    now = library.store.clock()
    boot = settings.boot(packet.project)
    cost = answer.get("cost") or {}
    bench = Bench(library, caller, packet, settings.redactor, now.date(), format_time(now + WAITS), boot, cost)
    admitted, refused = admit(bench, list(answer.get("candidates", ())))
    admitted, off = _by_policy(settings, admitted)
    refused = sorted([*refused, *off], key=lambda one: one.number)
    why = "" if admitted else _why_none(answer, refused)
    kept = {
        "why": settings.redactor.redact(why)[0],
        "signals": _counts(packet),
        "claims": [[str(one.draft.ref), one.draft.reason] for one in admitted],
        "refused": [asdict(one) for one in refused],
        "cost": cost,
        "redacted": packet.redactions,
    }
    reviews = Reviews(library.store.backend)
    drafts = [one.draft for one in admitted]
    ids, ours = reviews.finish(review, library.store.now(), drafts, json.dumps(kept, ensure_ascii=False))
    if ours:
        _make_at_once(library, review, settings, ids)
    return _done(reviews.get(review.id), library)


def _by_policy(settings: ReviewSettings, admitted: list[Admitted]) -> tuple[list[Admitted], list[Refusal]]:
    off = [one for one in admitted if settings.policy(one.draft.ref.kind) is Policy.OFF]
    refused = [
        Refusal(one.number, one.candidate.claim, "policy", f"Proposals of {one.draft.ref.kind}s are off here.")
        for one in off
    ]
    return [one for one in admitted if one not in off], refused


def _make_at_once(library: Library, review: Review, settings: ReviewSettings, ids: Sequence[int]) -> None:
    """Makes the changes that the policy lets happen without a person; what cannot be made, or is decided, stays."""
    if Policy.AUTO not in settings.policies.values():
        return
    proposals = Proposals(library.store.backend)
    for identity in ids:
        if settings.policy(proposals.get(identity).kind) is Policy.AUTO:
            with contextlib.suppress(EvolvableError):
                made = Caller(Actor.REVIEW, review.session)
                inbox.approve_together(library, made, [identity], "", "made by the policy memory=auto", by_policy=True)


def _why_none(answer: Mapping[str, Any], refused: Sequence[Refusal]) -> str:
    if refused:
        return f"None of {len(refused)} candidates was admitted."
    return str(answer.get("why_none") or "Whoever thought about it proposed nothing.")[:500]


def _done(review: Review, library: Library | None = None) -> Reviewed:
    kept = json.loads(review.result or "{}")
    ids = json.loads(review.answer or "[]")
    proposals = [Proposed(identity, ref, claim) for identity, (ref, claim) in zip(ids, kept["claims"], strict=True)]
    if library is not None:
        made = {p.proposal_id: inbox.operation_of(library, p.proposal_id) for p in proposals}
        proposals = [Proposed(p.proposal_id, p.ref, p.claim, made[p.proposal_id]) for p in proposals]
    refused = [Refusal(**one) for one in kept["refused"]]
    return Reviewed(
        review.id,
        review.session,
        ReviewState.DONE,
        kept["why"],
        kept["signals"],
        proposals,
        refused,
        cost=kept["cost"],
        redacted=kept["redacted"],
    )


def _counts(packet: Packet) -> dict[str, int]:
    counts: dict[str, int] = {}
    for signal in packet.signals:
        counts[signal.code] = counts.get(signal.code, 0) + 1
    return counts


def _cost(thinker: str, cost: Spending) -> dict[str, str | int | float]:
    return {"thinker": thinker, "tokens": cost.tokens, "money": round(cost.money, 6)}


def _clean(settings: ReviewSettings, value: Any) -> str:
    """Returns a value as JSON with every text in it redacted."""
    return json.dumps(settings.redactor.redact_value(value)[0], ensure_ascii=False, default=str)
