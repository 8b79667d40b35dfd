"""The verbs of a review: review a session, submit a model's answer, and work the queue that hooks fill.

Each step is stored before the next begins. A killed review resumes where it was: it asks no paid question again, and
writes proposals and result together. One process at a time works the queue, each session once.
"""

import contextlib
import gc
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from evolvable_store.errors import EvolvableError, InvalidArgument, NotFound
from evolvable_store.operation import Actor
from evolvable_store.review_queue import (
    QueuedSession,
    finish_session,
    give_back,
    reclaim,
    take_session,
    waiting_sessions,
)
from evolvable_store.storage.proposals import Review, Reviews, ReviewState, Spending
from evolvable_store.transaction import format_time
from evolvable_tools.approval_policy import ApprovalPolicy
from evolvable_tools.library import Caller, Library
from evolvable_tools.llm import LanguageModel, ProviderError, Request
from evolvable_tools.outcomes.ingest import record_uses
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.review import ProposedChange, RefusedCandidate, Reviewed
from evolvable_tools.review.admission import AdmittedCandidate, admit
from evolvable_tools.review.candidates import SCHEMA
from evolvable_tools.review.review_config import OverBudget, ReviewBudget, ReviewSettings, reserve, settle
from evolvable_tools.review.review_request import (
    INSTRUCTIONS,
    ReviewRequest,
    build_request,
    data_for_model,
    to_plain,
    work_packet,
    worth_thinking,
)
from evolvable_tools.review.rules import RuleContext
from evolvable_tools.review.session_signals import REVIEWER
from evolvable_tools.sessions import Session
from evolvable_tools.sessions.parser import read_session
from evolvable_tools.verbs import proposal_inbox

_turn = threading.Lock()
_holding = 0
_was_on = False


@contextlib.contextmanager
def pause_gc() -> Iterator[None]:
    """Search for no cycles while the block runs; what a session's pieces need else is a quarter of the time.

    Several may hold it back at once; the last of them lets it go on, if it was on before.
    """
    global _holding, _was_on
    with _turn:
        if not _holding:
            _was_on = gc.isenabled()
            gc.disable()
        _holding += 1
    try:
        yield
    finally:
        with _turn:
            _holding -= 1
            if not _holding and _was_on:
                gc.enable()


MAX_TOKENS = 8_192
"""Of an answer, thoughts included."""


def ask_model(
    reviews: Reviews,
    budget: ReviewBudget,
    thinker: LanguageModel,
    redactor: Redactor,
    review: str,
    day: str,
    packet: ReviewRequest,
) -> tuple[dict[str, Any], Spending]:
    """Return an answer and what it cost, at most. Raises OverBudget before the call, ProviderError after."""
    # Once more, as it leaves: the parts of the request were redacted piece by piece.
    data = to_plain(redactor.redact_value(data_for_model(packet))[0])
    used: list[tuple[int, int]] = []
    request = Request(INSTRUCTIONS, data, SCHEMA, MAX_TOKENS, spent=lambda given, got: used.append((given, got)))
    reserved = reserve(reviews, budget, day, review, thinker, request)
    cost = reserved.most
    try:
        answer = thinker.think(request)
    except ProviderError:
        # Some failures are answers that were paid for; only what is known to have cost less is given back.
        if used:
            settle(reviews, budget, reserved, *map(sum, zip(*used, strict=True)))
        raise
    if used:
        cost = settle(reviews, budget, reserved, *map(sum, zip(*used, strict=True)))
    return answer, cost


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
    """Review a session once: by its file, by its messages, or by its name where clients keep their transcripts.

    Without any it goes on with the oldest review that waits for a model. Returns the proposals, or a review request
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
    with pause_gc():
        read = read_session(source, redactor=settings.redactor)
        record_uses(library, read, home=settings.home)
    return review_transcript(library, caller, settings, read, mode)


def review_transcript(
    library: Library, caller: Caller, settings: ReviewSettings, session: Session, mode: str
) -> Reviewed:
    """Review a session that was read. Raises as `review_session`."""
    if session.reviewing:
        return Reviewed(None, session.session_id, "done", "It is itself a review, of which nothing is learned.")
    proposal_inbox.expire(library)
    reviews, now = library.store.backend.reviews, library.store.clock()
    said = "\n".join((session.client, session.session_id, session.digest, str(REVIEWER)))
    identity = f"review-{hashlib.sha256(said.encode()).hexdigest()[:16]}"
    try:
        review = reviews.get(identity)
    except NotFound:
        with pause_gc():
            packet, episodes = build_request(library, caller, session, now)
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
    """Submit the answer to a review request: each candidate is admitted or refused, with the reason.

    A review that is done stays as it is and is returned. Raises NotFound.
    """
    if not settings.on:
        return Reviewed(None, None, "off", _OFF)
    reviews = library.store.backend.reviews
    review = reviews.get(review_id)
    if review.state is ReviewState.BEGUN:
        answer = {"candidates": list(candidates), "why_none": why_none, "cost": {"thinker": "caller"}}
        reviews.answered(review.id, _clean(settings, answer))
        review = reviews.get(review_id)
    return _went_on(library, caller, settings, review, "handoff")


def _next_waiting(library: Library, caller: Caller, settings: ReviewSettings, mode: str) -> Reviewed:
    waiting = [one for one in library.store.backend.reviews.newest(500) if one.state is not ReviewState.DONE]
    if not waiting:
        return Reviewed(None, None, "done", "No review waits. Name a session, or a transcript's path.")
    return _went_on(library, caller, settings, waiting[-1], mode)


def _kept_of(library: Library, session: str, settings: ReviewSettings) -> Review | None:
    """Return the review of a session whose transcript cannot be read again."""
    if settings.transcript(session) is not None:
        return None
    return next(iter(reversed(library.store.backend.reviews.of(session))), None)


def _went_on(library: Library, caller: Caller, settings: ReviewSettings, review: Review, mode: str) -> Reviewed:
    """Resume a review, as far as it can go without the caller."""
    reviews = library.store.backend.reviews
    if review.state is ReviewState.DONE:
        # The process that stored them may have been killed before it made them.
        _make_at_once(library, review, settings, json.loads(review.answer or "[]"))
        return _done(review, library)
    packet = ReviewRequest.from_json(review.request or "{}")
    if review.state is ReviewState.BEGUN:
        nothing = worth_thinking(packet)
        if nothing:
            return _finish(library, caller, settings, review, packet, {"candidates": [], "why_none": nothing})
        if mode == "handoff" or settings.thinker is None:
            why = "Somebody has to think about the packet, and call submit_review."
            shown = work_packet(review.id, packet)
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
        answer, cost = ask_model(reviews, settings.budget, settings.thinker, settings.redactor, review.id, day, packet)
        reviews.answered(review.id, _clean(settings, {**answer, "cost": _cost(settings.thinker.name, cost)}))
        review = reviews.get(review.id)
    return _finish(library, caller, settings, review, packet, json.loads(review.answer or "{}"))


def _finish(
    library: Library,
    caller: Caller,
    settings: ReviewSettings,
    review: Review,
    packet: ReviewRequest,
    answer: Mapping[str, Any],
) -> Reviewed:
    now = library.store.clock()
    boot = settings.boot(packet.project)
    cost = answer.get("cost") or {}
    bench = RuleContext(library, caller, packet, settings.redactor, now.date(), format_time(now + WAITS), boot, cost)
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
    reviews = library.store.backend.reviews
    drafts = [one.draft for one in admitted]
    ids, ours = reviews.finish(review, library.store.now(), drafts, json.dumps(kept, ensure_ascii=False))
    if ours:
        _make_at_once(library, review, settings, ids)
    return _done(reviews.get(review.id), library)


def _by_policy(
    settings: ReviewSettings, admitted: list[AdmittedCandidate]
) -> tuple[list[AdmittedCandidate], list[RefusedCandidate]]:
    off = [one for one in admitted if settings.policy(one.draft.ref.kind) is ApprovalPolicy.OFF]
    refused = [
        RefusedCandidate(one.number, one.candidate.claim, "policy", f"Proposals of {one.draft.ref.kind}s are off here.")
        for one in off
    ]
    return [one for one in admitted if one not in off], refused


def _make_at_once(library: Library, review: Review, settings: ReviewSettings, ids: Sequence[int]) -> None:
    """Make the changes that the policy lets happen without a person; what cannot be made, or is decided, stays."""
    if ApprovalPolicy.AUTO not in settings.policies.values():
        return
    proposals = library.store.backend.proposals
    for identity in ids:
        if settings.policy(proposals.get(identity).kind) is ApprovalPolicy.AUTO:
            with contextlib.suppress(EvolvableError):
                made = Caller(Actor.REVIEW, review.session)
                proposal_inbox.approve_together(
                    library, made, [identity], "", "made by the policy memory=auto", by_policy=True
                )


def _why_none(answer: Mapping[str, Any], refused: Sequence[RefusedCandidate]) -> str:
    if refused:
        return f"None of {len(refused)} candidates was admitted."
    return str(answer.get("why_none") or "Whoever thought about it proposed nothing.")[:500]


def _done(review: Review, library: Library | None = None) -> Reviewed:
    kept = json.loads(review.result or "{}")
    ids = json.loads(review.answer or "[]")
    proposals = [
        ProposedChange(identity, ref, claim) for identity, (ref, claim) in zip(ids, kept["claims"], strict=True)
    ]
    if library is not None:
        made = {p.proposal_id: proposal_inbox.operation_of(library, p.proposal_id) for p in proposals}
        proposals = [ProposedChange(p.proposal_id, p.ref, p.claim, made[p.proposal_id]) for p in proposals]
    refused = [RefusedCandidate(**one) for one in kept["refused"]]
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


def _counts(packet: ReviewRequest) -> dict[str, int]:
    counts: dict[str, int] = {}
    for signal in packet.signals:
        counts[signal.code] = counts.get(signal.code, 0) + 1
    return counts


def _cost(thinker: str, cost: Spending) -> dict[str, str | int | float]:
    return {"thinker": thinker, "tokens": cost.tokens, "money": round(cost.money, 6)}


def _clean(settings: ReviewSettings, value: Any) -> str:
    """Return a value as JSON with every text in it redacted."""
    return json.dumps(settings.redactor.redact_value(value)[0], ensure_ascii=False, default=str)


SHORTEST = timedelta(minutes=1)
"""A session that took less is reviewed only on request."""

FEWEST_TURNS = 2


def work_queue(
    library: Library, caller: Caller, settings: ReviewSettings, home: Path, limit: int = 50
) -> Iterator[Reviewed]:
    """Review the sessions that wait, the oldest first, and yields what became of each.

    One that cannot be thought about now (no budget, no answer) waits again, and no further one is tried. Nothing
    happens while another process works the queue.
    """
    if not settings.on or not (home / "reviews").is_dir():
        return
    from filelock import FileLock, Timeout  # a server answers before it works the queue

    try:
        with FileLock(home / "reviews" / "working.lock", timeout=0, mode=0o600):
            reclaim(home, 0)  # the process that took it held this lock, and is gone
            for _ in range(min(limit, len(waiting_sessions(home)))):
                entry = take_session(home)
                if entry is None:
                    return
                try:
                    yield _reviewed(library, caller, settings, entry)
                except (ProviderError, OverBudget) as error:
                    give_back(home, entry)
                    yield Reviewed(None, entry.session, "waits", error.text)
                    return
                except EvolvableError as error:
                    finish_session(entry)  # what is no transcript will not become one
                    yield Reviewed(None, entry.session, "done", error.text)
                except BaseException:
                    with contextlib.suppress(OSError):
                        give_back(home, entry)
                    raise
                else:
                    finish_session(entry)
    except Timeout:
        return


def _reviewed(library: Library, caller: Caller, settings: ReviewSettings, entry: QueuedSession) -> Reviewed:
    with pause_gc():
        session = read_session(Path(entry.transcript), redactor=settings.redactor)
        record_uses(library, session, home=settings.home)
    why = too_small(session)
    if why:
        return Reviewed(None, entry.session, "done", why)
    return review_transcript(library, caller, settings, session, "auto")


def too_small(session: Session) -> str:
    """Return why a session is not worth a review of its own, '' when it is."""
    if session.turns < FEWEST_TURNS:
        return f"It has fewer than {FEWEST_TURNS} messages of a person."
    times = [span.at for span in session.spans if span.at is not None]
    if times and max(times) - min(times) < SHORTEST:
        return "It took less than a minute."
    return ""
