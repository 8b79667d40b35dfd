"""The verbs of a review: review a session, and submit a model's answer.

Each step is stored before the next begins. A killed review resumes where it was: it asks no paid
question again, and writes proposals and result together.
"""

import contextlib
import gc
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from evolvable_store import Actor, format_time
from evolvable_store.errors import EvolvableError, InvalidArgument, NotFound, TryAgain
from evolvable_store.resource import Kind
from evolvable_store.storage import Proposal, Review, Reviews, ReviewState
from evolvable_tools import verbs
from evolvable_tools.approvals import ApprovalPolicy, load_scan
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.llm import LanguageModel, ProviderError, Request, WrongAnswer
from evolvable_tools.outcomes import record_uses
from evolvable_tools.review import memory_upkeep, review_request
from evolvable_tools.review.admission import CORRECTABLE, AdmittedCandidate, admit
from evolvable_tools.review.candidates import SCHEMA
from evolvable_tools.review.review_config import (
    OverBudget,
    QuestionUsage,
    ReviewSettings,
    reserve,
    settle,
)
from evolvable_tools.review.review_request import ReviewRequest
from evolvable_tools.review.review_results import ProposedChange, RefusedCandidate, Reviewed
from evolvable_tools.review.rules import RuleContext
from evolvable_tools.review.session_signals import REVIEWER
from evolvable_tools.sessions import Session, read_session

# Guards _holding and _was_on below: several threads may pause the collector at once.
_gc_lock = threading.Lock()
_holding = 0
_was_on = False


@contextlib.contextmanager
def pause_gc() -> Iterator[None]:
    """Turn the cyclic garbage collector off while the block runs.

    Reading a session makes many objects that stay, which the collector would search again and
    again. Blocks of several threads may overlap. The last one to end turns the collector on again,
    if it was on before.
    """
    global _holding, _was_on
    with _gc_lock:
        if not _holding:
            _was_on = gc.isenabled()
            gc.disable()
        _holding += 1
    try:
        yield
    finally:
        with _gc_lock:
            _holding -= 1
            if not _holding and _was_on:
                gc.enable()


MAX_TOKENS = 8_192
"""Tokens of an answer, its thoughts included."""

WAITS = timedelta(days=30)
"""How long a proposal waits for a decision, and a packet for an answer."""

MODES = ("auto", "handoff")
"""auto: the model of the settings answers. handoff: the caller answers."""

_AGAIN = (
    "Two answers had faults of form, and a third is not asked for. The review waits: `evolvable "
    "learn review {session}` asks the reviewer afresh, and submit_review takes another answer."
)
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
    """Review a session once: by its file, by its messages, or by its name where clients keep their
    transcripts.

    Without any it goes on with the oldest review that waits for a model. Returns the proposals, or
    a review request for the caller to think about, or why there is nothing. Raises InvalidArgument,
    NotFound, NoTranscript, ProviderError, OverBudget. The review is kept and goes on with the next
    call.
    """
    if not settings.on:
        return Reviewed(None, session, "off", _OFF)
    if mode not in MODES:
        raise InvalidArgument(
            f"{ascii(mode[:40])} is no mode.", f"It is one of {', '.join(MODES)}."
        )
    # Several sources could name different sessions, and one of them would be dropped silently.
    sources = [source for source in (transcript_path, transcript, session) if source is not None]
    if len(sources) > 1:
        hint = "Pass transcript_path, transcript or session, one of them."
        raise InvalidArgument("Several sessions were named.", hint)
    work = ReviewWork(library, caller, settings)
    if not sources:
        waiting = [
            review for review in work.reviews.newest(500) if review.state is not ReviewState.DONE
        ]
        if not waiting:
            return Reviewed(
                None, None, "done", "No review waits. Name a session, or a transcript's path."
            )
        return work.resume(waiting[-1], mode)
    source = transcript_path if transcript_path is not None else transcript
    if session is not None:
        source = settings.transcript(session)
        # Its transcript cannot be read again, but a review of it may be kept.
        if source is None and (reviews := work.reviews.of(session)):
            return work.resume(reviews[-1], mode)
    if source is None:
        raise NotFound(
            f"No transcript of session {ascii(str(session)[:80])} was found.",
            "Name the transcript's file.",
        )
    return work.review(work.read(source), mode)


def submit_review(
    library: Library,
    caller: Caller,
    settings: ReviewSettings,
    review_id: str,
    candidates: Sequence[Mapping[str, Any]],
    why_none: str = "",
) -> Reviewed:
    """Submit the answer to a review request: each candidate is admitted or refused, with the
    reason.

    An answer with faults of form may be corrected once; after a second such answer the review waits
    for a new one. A review that is done stays as it is and is returned. Raises NotFound.
    """
    if not settings.on:
        return Reviewed(None, None, "off", _OFF)
    work = ReviewWork(library, caller, settings)
    review = work.reviews.get(review_id)
    answer = {"candidates": list(candidates), "why_none": why_none, "cost": {"thinker": "caller"}}
    if review.state is ReviewState.BEGUN:
        review = work.keep_answer(review, answer)
    elif review.state is ReviewState.ANSWERED:
        first = json.loads(review.answer or "{}")
        if "refused" in first:
            review = work.keep_correction(review, first, answer)
    return work.resume(review, "handoff")


def ask_model(
    reviews: Reviews,
    settings: ReviewSettings,
    reviewer_model: LanguageModel,
    review: Review,
    day: str,
    data: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an answer and what it cost (see Reviewed).

    Raises OverBudget before the call, ProviderError after.
    """
    # Once more, as it leaves: the parts of the request were redacted piece by piece.
    plain = review_request.to_plain(settings.redactor.redact_value(data)[0])
    used = QuestionUsage()
    request = Request(
        review_request.INSTRUCTIONS, plain, SCHEMA, MAX_TOKENS, role="reviewer", **used.hooks()
    )
    # Reserved before the call: two processes cannot both spend the last of the budget.
    reserved = reserve(reviews, settings.budget, day, review.id, reviewer_model, request)
    try:
        answer = reviewer_model.think(request)
    except WrongAnswer as error:  # it goes back with what is wrong
        candidates = error.answer.get("candidates")
        answer = {"candidates": candidates if isinstance(candidates, list) else [error.answer]}
    except ProviderError:
        # Some failures are answers that were paid for; only what is known to have cost less is
        # given back.
        if used.is_reported:
            settle(reviews, settings.budget, reserved, used)
        raise
    if not used.is_reported:
        return answer, {"thinker": reviewer_model.name, "reserved": reserved.most.tokens}
    cost = settle(reviews, settings.budget, reserved, used)
    model_name = used.attempts[-1].model if used.attempts else reviewer_model.name
    return answer, {
        "thinker": model_name,
        "tokens": cost.tokens,
        "money": round(cost.money, 6),
        **used.to_json(),
    }


@dataclass(frozen=True, slots=True)
class ReviewWork:
    """The steps of reviews in one library, for one caller."""

    library: Library
    caller: Caller
    settings: ReviewSettings

    @property
    def reviews(self) -> Reviews:
        """The stored reviews."""
        return self.library.store.backend.reviews

    def read(self, source: Path | Sequence[Mapping[str, Any]]) -> Session:
        """Return the session in a transcript, and record which skills it used."""
        with pause_gc():
            session = read_session(source, redactor=self.settings.redactor)
            learns = isinstance(source, Path) and self.settings.learns(source)
            return record_uses(self.library, session, home=self.settings.home, learns=learns).read

    def review(self, session: Session, mode: str) -> Reviewed:
        """Review a session that was read."""
        if session.reviewing:
            why = "It is itself a review, of which nothing is learned."
            return Reviewed(None, session.session_id, "done", why)
        # A resumed or forked session would count the same episodes twice.
        if session.is_copy:
            why = (
                "Other sessions, which were read before, had all of it first; what they taught "
                "counts there."
            )
            return Reviewed(None, session.session_id, "done", why)
        verbs.expire(self.library)
        now = self.library.store.clock()
        identity_text = "\n".join(
            (session.client, session.session_id, session.digest, str(REVIEWER))
        )
        # The same session with the same content has the same review, whichever process begins it.
        identity = f"review-{hashlib.sha256(identity_text.encode()).hexdigest()[:16]}"
        try:
            review = self.reviews.get(identity)
        except NotFound:
            with pause_gc():
                packet, episodes = review_request.build_request(
                    self.library, self.caller, session, now
                )
            # Reviews that were begun and not answered in time go, with the text that they hold.
            self.reviews.forget(format_time(now - WAITS))
            about = (identity, session.session_id, session.digest, REVIEWER, format_time(now))
            review = self.reviews.begin(
                Review(*about, ReviewState.BEGUN, packet.to_json()), episodes
            )
            memory_upkeep.count_use(self.library, self.caller, session)
        return self.resume(review, mode)

    def resume(self, review: Review, mode: str) -> Reviewed:
        """Resume a review, as far as it can go without the caller."""
        if review.state is ReviewState.DONE:
            # The process that stored them may have been killed before it made them.
            self.make_at_once(review, json.loads(review.answer or "[]"))
            return self.read_result(review)
        packet = ReviewRequest.from_json(review.request or "{}")
        if review.state is ReviewState.BEGUN:
            if nothing := review_request.worth_thinking(packet):
                return self.finish(review, packet, {"candidates": [], "why_none": nothing})
            reviewer_model = self.settings.reviewer_model
            if mode == "handoff" or reviewer_model is None:
                return self.request_answer(review, packet)
            answer, cost = self.ask(reviewer_model, review, self.data(packet))
            review = self.keep_answer(review, {**answer, "cost": cost})
        return self.admit_or_return(review, packet, mode)

    def admit_or_return(self, review: Review, packet: ReviewRequest, mode: str) -> Reviewed:
        """Admit an answer.

        One with faults of form goes back once to its author, with what is wrong.
        """
        answer = json.loads(review.answer or "{}")
        if "refused" not in answer and not answer.get("corrected"):
            admitted, refused = self.admit_answer(packet, answer)
            faults = [candidate for candidate in refused if candidate.code in CORRECTABLE]
            # An agent is asked again only when nothing of its answer could be used: it has gone on
            # meanwhile.
            by_caller = (answer.get("cost") or {}).get("thinker") == "caller"
            if faults and not (by_caller and admitted):
                answer = {**answer, "refused": [asdict(fault) for fault in faults]}
                self.reviews.replace_answer(
                    review.id, json.dumps(answer, ensure_ascii=False, default=str)
                )
                review = self.reviews.get(review.id)
        if "refused" in answer:
            reviewer_model = self.settings.reviewer_model
            if mode == "handoff" or reviewer_model is None:
                return self.request_answer(
                    review, packet, [RefusedCandidate(**fault) for fault in answer["refused"]]
                )
            earlier = {"refused": answer["refused"], "your_answer": answer.get("candidates", [])}
            try:
                again, cost = self.ask(reviewer_model, review, {**self.data(packet), **earlier})
            except (ProviderError, OverBudget):
                # There is nothing else to keep.
                if len(answer["refused"]) == len(answer.get("candidates", ())):
                    raise
                again, cost = {"candidates": []}, {}
            review = self.keep_correction(review, answer, {**again, "cost": cost})
        return self.finish(review, packet, json.loads(review.answer or "{}"))

    def ask(
        self, reviewer_model: LanguageModel, review: Review, data: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the model's answer, and what it cost."""
        day = format_time(self.library.store.clock())[:10]
        return ask_model(self.reviews, self.settings, reviewer_model, review, day, data)

    def data(self, packet: ReviewRequest) -> dict[str, Any]:
        """Return what a model is given, with the texts of the skills as they are now."""
        return review_request.data_for_model(
            packet, review_request.skill_bodies(self.library, packet, self.settings.redactor)
        )

    def keep_correction(
        self, review: Review, first: Mapping[str, Any], second: Mapping[str, Any]
    ) -> Review:
        """Keep an answer with the corrected candidates in place of those that had faults.

        It is not returned again.
        """
        faulty = {refusal["number"] for refusal in first["refused"]}
        good = [
            candidate
            for number, candidate in enumerate(first.get("candidates", ()), 1)
            if number not in faulty
        ]
        # Numbers and lists of both answers are added; a text is that of the second.
        cost = dict(first.get("cost") or {})
        for name, amount in (second.get("cost") or {}).items():
            is_text = isinstance(amount, str)
            cost[name] = amount if is_text else cost.get(name, type(amount)()) + amount
        answer = {
            **second,
            "candidates": [*good, *second.get("candidates", ())],
            "cost": cost,
            "corrected": True,
        }
        clean = self.settings.redactor.redact_value(answer)[0]
        self.reviews.replace_answer(review.id, json.dumps(clean, ensure_ascii=False, default=str))
        return self.reviews.get(review.id)

    def keep_answer(self, review: Review, answer: Mapping[str, Any]) -> Review:
        """Keep an answer, with every text in it redacted."""
        clean = self.settings.redactor.redact_value(answer)[0]
        self.reviews.store_answer(review.id, json.dumps(clean, ensure_ascii=False, default=str))
        return self.reviews.get(review.id)

    def finish(self, review: Review, packet: ReviewRequest, answer: Mapping[str, Any]) -> Reviewed:
        """Admit the candidates of an answer, and keep the proposals and the result together.

        A corrected answer of which nothing can be used, for faults of form, leaves the review open.
        """
        redactor = self.settings.redactor
        admitted, refused = self.admit_answer(packet, answer)
        has_faults = any(candidate.code in CORRECTABLE for candidate in refused)
        if answer.get("corrected") and not admitted and has_faults:
            self.reviews.reopen(review.id, self.library.store.now())
            why = _AGAIN.format(session=review.session)
            waiting = self.request_answer(review, packet, refused)
            return replace(waiting, why=why, cost=answer["cost"])
        off = [
            candidate
            for candidate in admitted
            if self.settings.policy(candidate.draft.ref.kind) is ApprovalPolicy.OFF
        ]
        admitted = [candidate for candidate in admitted if candidate not in off]
        refused += [_refuse_by_policy(candidate) for candidate in off]
        drafts = [candidate.draft for candidate in admitted]
        if self.settings.policy(Kind.MEMORY) is not ApprovalPolicy.OFF:
            expires = format_time(self.library.store.clock() + WAITS)
            drafts += memory_upkeep.unused_drafts(self.library, self.caller, expires)
        refused.sort(key=lambda candidate: candidate.number)
        record = {
            "why": redactor.redact("" if admitted else _explain_none(answer, refused))[0],
            "signals": _count_signals(packet),
            "claims": [[str(draft.ref), draft.reason] for draft in drafts],
            "refused": [asdict(candidate) for candidate in refused],
            "cost": answer.get("cost") or {},
            "redacted": packet.redactions,
        }
        result = json.dumps(record, ensure_ascii=False)
        # One transaction: proposals without the result, or the other way round, would be made
        # twice.
        ids, ours = self.reviews.finish(review, self.library.store.now(), drafts, result)
        # Another process may have finished the review meanwhile; then it makes the changes.
        if ours:
            self.make_at_once(review, ids)
        return self.read_result(self.reviews.get(review.id))

    def admit_answer(
        self, packet: ReviewRequest, answer: Mapping[str, Any]
    ) -> tuple[list[AdmittedCandidate], list[RefusedCandidate]]:
        """Return the candidates of an answer that keep every rule, and those that do not."""
        now, redactor = self.library.store.clock(), self.settings.redactor
        day = datetime.fromisoformat(packet.started).date() if packet.started else now.date()
        context = RuleContext(
            library=self.library,
            caller=self.caller,
            packet=packet,
            redactor=redactor,
            today=day,
            expires=format_time(now + WAITS),
            boot=self.settings.boot(packet.project),
            cost=answer.get("cost") or {},
        )
        return admit(context, list(answer.get("candidates", ())))

    def request_answer(
        self, review: Review, packet: ReviewRequest, refused: Sequence[RefusedCandidate] = ()
    ) -> Reviewed:
        """Return a review that waits for its caller's answer."""
        why = "Answer the request of `packet`, and call submit_review."
        if refused:
            why = (
                "No candidate was admitted. Correct those in `refused`, and call submit_review "
                "once more."
            )
        bodies = review_request.skill_bodies(self.library, packet, self.settings.redactor)
        return Reviewed(
            review.id,
            review.session,
            ReviewState.BEGUN,
            why,
            _count_signals(packet),
            refused=list(refused),
            packet=review_request.work_packet(review.id, packet, bodies),
            redacted=packet.redactions,
        )

    def make_at_once(self, review: Review, ids: Sequence[int]) -> None:
        """Make the changes that the policy lets happen without a person.

        What cannot be made, or is decided, stays. Raises TryAgain: the review is called up once
        more, and makes what is left.
        """
        is_policy_auto = ApprovalPolicy.AUTO in self.settings.policies.values()
        if not is_policy_auto and not self.settings.auto_refs:
            return
        reviewer = Caller(Actor.REVIEW, review.session)
        for identity in ids:
            how = self.automatic_reason(self.library.store.backend.proposals.get(identity))
            if not how:
                continue
            try:
                verbs.approve_together(self.library, reviewer, [identity], "", how, by_policy=True)
            # TryAgain is an EvolvableError, so this branch has to stand first.
            except TryAgain:
                raise
            except EvolvableError:
                continue

    def automatic_reason(self, proposal: Proposal) -> str:
        """Return the setting by which a proposal is applied without a question, '' where the person
        is asked.

        A lesson of a skill that the person named is made where the scan has no question and nothing
        locks approvals.
        """
        if json.loads(proposal.grounds or "{}").get("what") == memory_upkeep.UNUSED:
            return ""
        if self.settings.policy(proposal.kind) is ApprovalPolicy.AUTO:
            return "made by the policy memory=auto"
        is_named = str(proposal.ref) in self.settings.auto_refs and proposal.base
        if not is_named or self.library.lock is not None or load_scan(proposal.findings).asks:
            return ""
        return f"made by `learn review auto --skill {proposal.ref}`"

    def read_result(self, review: Review) -> Reviewed:
        """Return the result of a review that is done."""
        record = json.loads(review.result or "{}")
        claims = zip(json.loads(review.answer or "[]"), record["claims"], strict=True)
        proposals = self.library.store.backend.proposals
        return Reviewed(
            review.id,
            review.session,
            ReviewState.DONE,
            record["why"],
            record["signals"],
            [
                ProposedChange(identity, ref, claim, proposals.get(identity).operation)
                for identity, (ref, claim) in claims
            ],
            [RefusedCandidate(**refusal) for refusal in record["refused"]],
            cost=record["cost"],
            redacted=record["redacted"],
        )


def _refuse_by_policy(candidate: AdmittedCandidate) -> RefusedCandidate:
    reason = f"Proposals of {candidate.draft.ref.kind}s are off here."
    return RefusedCandidate(candidate.number, candidate.candidate.claim, "policy", reason)


def _explain_none(answer: Mapping[str, Any], refused: Sequence[RefusedCandidate]) -> str:
    if refused:
        return f"None of {len(refused)} candidates was admitted."
    return str(answer.get("why_none") or "The model proposed nothing.")[:500]


def _count_signals(packet: ReviewRequest) -> dict[str, int]:
    return dict(Counter(signal.code for signal in packet.signals))
