"""The review request: signals, the most relevant spans of a session, earlier evidence, and what it
may be about.

The origin of a span decides what may follow from it. A request has a budget of spans, each with its
reasons.
"""

import base64
import json
import re
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from evolvable_store import Actor, main_path
from evolvable_store.resource import Kind, Ref, slugify
from evolvable_store.search import tokenize
from evolvable_store.storage import Episode
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.outcomes import unquoted_text
from evolvable_tools.redaction import Redactor
from evolvable_tools.review.candidates import MAX_CANDIDATES, MAX_EDITS, MAX_FACT, SCHEMA
from evolvable_tools.review.lesson_rules import MAX_LINES
from evolvable_tools.review.session_signals import CODES, LEARNABLE, SessionSignal, signals
from evolvable_tools.sessions import UNTRUSTED, Origin, Session, Span
from evolvable_tools.verbs import find_skill

TYPED = Origin.USER
"""Words that a person typed."""

ECHOED = frozenset({Origin.SKILL, Origin.MEMORY})
"""What the library itself put into the session: it proves nothing about anything."""

__all__ = ["ECHOED", "TYPED", "UNTRUSTED"]

MAX_CHARS = 40_000
"""Characters of all the evidence of a review."""

MAX_SPAN = 1_200
"""Characters of one span: of a longer one two thirds are of its beginning and the rest
of its end.
"""

MAX_TYPED = 4_000
"""Characters of what a person typed at once: it is what everything rests on."""

SETTLED_AFTER = timedelta(hours=24)
"""After so long without a word against it work counts as settled."""

# 4 bytes each before compression, so at most 480 KB in a stored request.
MAX_SHINGLES = 120_000
SHINGLE = 5
"""Words in a row by which a text that was copied is known."""

_GOOD, _BAD, _QUIET = (frozenset(CODES[name]) for name in ("good", "bad", "quiet"))
_WORTH: Mapping[str, int] = CODES["worth"]
# An unclosed tag hides the rest of the text: too much is hidden rather than too little.
_PRIVATE = re.compile(r"<private>.*?(?:</private>|\Z)", re.DOTALL | re.IGNORECASE)

SAYS_HOW = frozenset({"correction", "user_statement"})
"""Signals of words by which a person says how work is to be done."""

EVIDENT = LEARNABLE | {"commit"}
"""Signals whose spans are evidence, beside what a person typed."""


@dataclass(frozen=True, slots=True)
class EvidenceSpan:
    """One piece of evidence. id: `s` and its index in the session, or `e` and the number of an
    earlier episode.

    session: whose it is. reasons: the codes of its signals. settled: whether its outcome is known.
    """

    id: str
    session: str
    turn: int
    origin: str
    reasons: tuple[str, ...]
    text: str
    settled: bool


def select_evidence(
    session: Session, found: Sequence[SessionSignal], now: datetime, evident: Set[str] = EVIDENT
) -> tuple[EvidenceSpan, ...]:
    """Return the evidence of a session in its order, the most telling when there is too much.

    evident: the signals whose spans are evidence.
    """
    reasons: dict[int, list[str]] = defaultdict(list)
    for signal in found:
        for index in signal.spans:
            reasons[index].append(signal.code)
    settled = settled_turns(session, found, now)
    # A correction in turn N is about the work of turn N - 1.
    contradicted = {signal.turn - 1 for signal in found if signal.code == "correction"}
    chosen: list[EvidenceSpan] = []
    room = MAX_CHARS
    rates = {span.index: _rate_span(span, reasons[span.index], evident) for span in session.spans}
    for span in sorted(session.spans, key=lambda span: (rates[span.index], span.index)):
        codes = reasons[span.index]
        # The spans are sorted, so every later one is worth less.
        if rates[span.index] > 4:
            break
        whole = _PRIVATE.sub("[private]", span.text) or _format_input(span)
        text = _shorten(whole, MAX_TYPED if span.typed else MAX_SPAN)
        if text and len(text) <= room:
            room -= len(text)
            why = tuple(dict.fromkeys(codes)) or ("said_by_user",)
            about = (f"s{span.index}", session.session_id, span.turn, span.origin)
            # A correction says how work is done, whatever became of that work; unless the next one
            # takes it back.
            says = span.typed and not SAYS_HOW.isdisjoint(codes) and span.turn not in contradicted
            chosen.append(EvidenceSpan(*about, why, text, span.turn in settled or says))
    return tuple(sorted(chosen, key=lambda piece: int(piece.id[1:])))


def settled_turns(
    session: Session, found: Sequence[SessionSignal], now: datetime
) -> frozenset[int]:
    """Return the turns whose outcome is known to be good: the last signal about them is good.

    Turns without such a signal are settled a day after the session's end.
    """
    ended = max((span.at for span in session.spans if span.at), default=session.started)
    aged = ended is not None and now - ended >= SETTLED_AFTER
    # A correction or an acceptance judges the turn before the one it is typed in.
    judged = [
        (signal.turn - (signal.code in ("correction", "acceptance")), signal.code)
        for signal in found
        if signal.code in _GOOD | _BAD
    ]
    turns = {span.turn for span in session.spans}
    last = {
        turn: next((code for at, code in reversed(judged) if at >= turn), None) for turn in turns
    }
    return frozenset(
        turn for turn, code in last.items() if code in _GOOD or (code is None and aged)
    )


def worth(code: str, usual: int) -> int:
    """Return how telling a signal is, the least number the most.

    usual: of a signal that the table does not have.
    """
    return _WORTH.get(code, usual)


def telling(piece: EvidenceSpan) -> int:
    """Return how telling a piece of evidence is, the least number the most."""
    usual = 3 if piece.origin == Origin.USER else 4
    return min(worth(code, usual) for code in piece.reasons)


def _rate_span(span: Span, codes: Sequence[str], evident: Set[str]) -> int:
    """Return how telling a span is, the least number the most; over 4 it is not kept."""
    if span.copied or span.origin in ECHOED or span.origin in UNTRUSTED:
        return 9
    if span.typed:
        return min([_WORTH.get(code, 3) for code in codes], default=3)
    return min([_WORTH.get(code, 4) for code in codes if code in evident], default=9)


def _format_input(span: Span) -> str:
    return " ".join(
        f"{key}: {value}" for key, value in (span.input or {}).items() if isinstance(value, str)
    )


def _shorten(text: str, most: int) -> str:
    text = text.strip()
    if len(text) <= most:
        return text
    # The beginning says what was asked; the end says how it came out.
    head = most * 2 // 3
    return f"{text[:head]}\n[…]\n{text[-(most - head) :]}"


def untrusted_shingles(spans: Iterable[Span]) -> frozenset[int]:
    """Return marks of every run of words that third parties wrote.

    Text copied from them has the same marks.
    """
    marks: set[int] = set()
    for span in spans:
        if span.origin in UNTRUSTED and len(marks) <= MAX_SHINGLES:
            marks.update(shingles(span.text))
    # Sorted before the cut, so that the same session always keeps the same marks.
    return frozenset(sorted(marks)[:MAX_SHINGLES])


def shingles(text: str) -> Iterator[int]:
    """Yield a mark for each run of SHINGLE words."""
    words = tokenize(text)
    for start in range(len(words) - SHINGLE + 1):
        # CRC-32 and not `hash`: marks are stored, and `hash` differs between processes.
        yield zlib.crc32(" ".join(words[start : start + SHINGLE]).encode())


@dataclass(frozen=True, slots=True)
class NearbyResource:
    """A resource, or a proposal that waits or was rejected, that the session may be about."""

    ref: str
    version: int | None
    description: str
    why: str


@dataclass(frozen=True)
class ReviewRequest:
    """What is known of one session. verified: ids of the evidence of a verified outcome.

    foreign, echoed: marks of what third parties wrote, and of what the library itself put in (see
    `shingles`).
    """

    session: str
    client: str
    project: str | None
    started: str | None
    tokens: int | None
    redactions: dict[str, int]
    signals: list[SessionSignal]
    evidence: list[EvidenceSpan]
    near: list[NearbyResource]
    verified: list[str]
    asked_for_skill: bool
    foreign: frozenset[int] = field(default=frozenset())
    echoed: frozenset[int] = field(default=frozenset())

    def to_json(self) -> str:
        """Return the request as the JSON text that is stored."""
        document = {
            **_list_fields(self),
            "foreign": _pack_marks(self.foreign),
            "echoed": _pack_marks(self.echoed),
        }
        for name in ("signals", "evidence", "near"):
            document[name] = [_list_fields(item) for item in document[name]]
        return json.dumps(document, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "ReviewRequest":
        """Return what to_json wrote."""
        document = json.loads(text)
        document["signals"] = [
            SessionSignal(**{**item, "spans": tuple(item["spans"])}) for item in document["signals"]
        ]
        document["evidence"] = [
            EvidenceSpan(**{**item, "reasons": tuple(item["reasons"])})
            for item in document["evidence"]
        ]
        document["near"] = [NearbyResource(**item) for item in document["near"]]
        for name in ("foreign", "echoed"):
            document[name] = _unpack_marks(document[name])
        return cls(**document)


_LIMITS = {
    "MAX_FACT": MAX_FACT,
    "MAX_EDITS": MAX_EDITS,
    "MAX_CANDIDATES": MAX_CANDIDATES,
    "MAX_LINES": MAX_LINES,
}
INSTRUCTIONS = (
    Path(__file__).with_name("instructions.txt").read_text("utf-8").strip().format(**_LIMITS)
)
"""Instructions for the model. They are the same for every session, so that they are cached."""

MAX_SHOWN = 32_000
"""Bytes of what is shown of a packet: clients cut an answer of a tool at some 48,000 characters."""

MOST_SIGNALS = 40
"""Signals that are shown."""

MAX_LOADED, MAX_BODY, MAX_BODIES = 6_000, 2_500, 14_000
"""Characters of the text of a skill that the session loaded, of another one, and of all of them."""


def _list_fields(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass.

    Nothing in them is copied as asdict would do: there may be thousands.
    """
    return {each.name: getattr(record, each.name) for each in fields(record)}


def skill_bodies(library: Library, packet: ReviewRequest, redactor: Redactor) -> dict[str, str]:
    """Return the main files, redacted and bounded, of the skills that a review may edit."""
    bodies: dict[str, str] = {}
    for near in packet.near:
        head = library.store.head_or_none(Ref.parse(near.ref).at(None)) if near.version else None
        if head is None or head.version is None or head.kind is not Kind.SKILL:
            continue
        files = library.store.manifest(head, head.version)
        if main := main_path(head.kind, head.name, files):
            data = library.store.file(head, main).data
            text, _ = redactor.redact(data.decode("utf-8", "replace"))
            most = MAX_LOADED if near.why == LOADED else MAX_BODY
            room = min(most, MAX_BODIES - sum(map(len, bodies.values())))
            if room <= 200:
                continue
            if len(text) > room:
                text = f"{text[:room]}\n[… {len(text) - room:,} characters more]"
            bodies[near.ref] = text
    return bodies


def data_for_model(packet: ReviewRequest, bodies: Mapping[str, str]) -> dict[str, Any]:
    """Return the part of a review request that a model gets: the most relevant spans, in their
    order.

    bodies: of the skills near it, by their refs.
    """
    hidden = ("foreign", "echoed", "redactions")
    document = {key: value for key, value in _list_fields(packet).items() if key not in hidden}
    document["near"] = [_list_fields(resource) for resource in packet.near]
    for row in document["near"]:
        if row["ref"] in bodies and row["version"]:
            row["text"] = bodies[row["ref"]]
    document["signals"] = _describe_signals(packet)
    document["evidence"] = []
    # Bytes and not characters, because the limit of the client is on what is sent.
    room = MAX_SHOWN - len(to_plain(document).encode("utf-8", "replace"))
    chosen: list[EvidenceSpan] = []
    # Of equal worth, evidence of other sessions first: it is short and shows a repetition.
    by_worth = sorted(
        packet.evidence, key=lambda span: (telling(span), span.session == packet.session)
    )
    for piece in by_worth:
        size = len(to_plain(_describe_piece(packet, piece)).encode("utf-8", "replace")) + 1
        if size <= room:
            room -= size
            chosen.append(piece)
    chosen_ids = {piece.id for piece in chosen}
    # Chosen by worth, given in the order of the session.
    document["evidence"] = [
        _describe_piece(packet, piece) for piece in packet.evidence if piece.id in chosen_ids
    ]
    document["verified"] = [identity for identity in packet.verified if identity in chosen_ids]
    left = len(packet.evidence) - len(chosen_ids)
    return {**document, "left_out": left} if left else document


def _describe_signals(packet: ReviewRequest) -> list[dict[str, Any]]:
    # A procedure is shown where it was seen elsewhere too; alone it is no news.
    news = [signal for signal in packet.signals if signal.code not in ("procedure", "check_passed")]
    first = sorted(news, key=lambda signal: worth(signal.code, 4))[:MOST_SIGNALS]
    return [
        {
            "code": signal.code,
            "turn": signal.turn,
            "said": signal.said,
            "spans": [f"s{i}" for i in signal.spans[:8]],
        }
        for signal in news
        if signal in first
    ]


def _describe_piece(packet: ReviewRequest, piece: EvidenceSpan) -> dict[str, Any]:
    """Return a piece of evidence; its session is named where it is another one."""
    row = _list_fields(piece)
    if piece.session == packet.session:
        del row["session"]
    return row


def work_packet(review_id: str, packet: ReviewRequest, bodies: Mapping[str, str]) -> dict[str, Any]:
    """Return the review request for a caller that answers by itself: instructions, data, and the
    schema.
    """
    return {
        "instructions": INSTRUCTIONS,
        "data": data_for_model(packet, bodies),
        "answer_schema": SCHEMA,
        "how_to_answer": (
            f"Call submit_review with review_id {review_id} and candidates; an empty list "
            "closes it."
        ),
    }


def _pack_marks(marks: frozenset[int]) -> str:
    data = array("I", sorted(marks)).tobytes()
    return base64.b64encode(zlib.compress(data, 1)).decode("ascii")


def _unpack_marks(text: str) -> frozenset[int]:
    marks = array("I")
    marks.frombytes(zlib.decompress(base64.b64decode(text)))
    return frozenset(marks)


def to_plain(value: Mapping[str, Any]) -> str:
    """Return a document as JSON without blanks, for the data of a question."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


LOADED = "loaded in the session"
"""Why a resource is near: an agent opened it."""

MOST_NEAR = 6
"""Resources that a session may be about."""

REPEATED_IN = 3
"""Sessions in which a procedure is a repeated one."""

MOST_EARLIER = 12
"""Episodes of earlier sessions in a request."""

MAX_QUOTE = 300
"""Characters that are kept of an episode."""


def build_request(
    library: Library, caller: Caller, session: Session, now: datetime, evident: Set[str] = EVIDENT
) -> tuple[ReviewRequest, list[Episode]]:
    """Return the review request of a session, and the episodes that later sessions compare with.

    evident: as of `select_evidence`.
    """
    session_signals = list(signals(session))
    keys = {signal.key for signal in session_signals if signal.key}
    before = library.store.backend.reviews.episodes(keys, session.session_id)
    session_signals += _find_repeated(session_signals, before)
    pieces = select_evidence(session, session_signals, now, evident)
    settled = settled_turns(session, session_signals, now)
    earlier = [_make_earlier(episode) for episode in before if episode.settled][:MOST_EARLIER]
    passed = [signal for signal in session_signals if signal.code == "fail_then_pass"]
    verified = {f"s{index}" for signal in passed for index in signal.spans}
    echoed = [span.text for span in session.spans if span.origin in ECHOED]
    packet = ReviewRequest(
        session=session.session_id,
        client=session.client,
        project=session.project,
        started=session.started.isoformat() if session.started else None,
        tokens=session.tokens,
        redactions=dict(session.redactions),
        signals=session_signals,
        evidence=[*pieces, *earlier],
        near=_find_near(library, caller, session, pieces),
        verified=sorted(verified & {piece.id for piece in pieces}),
        asked_for_skill=any(signal.code == "asked_for_skill" for signal in session_signals),
        foreign=untrusted_shingles(session.spans),
        echoed=frozenset(mark for text in echoed for mark in shingles(text)),
    )
    return packet, _make_episodes(session, session_signals, pieces, settled, now)


def worth_thinking(packet: ReviewRequest) -> str:
    """Return why no model needs to be asked, '' when one does."""
    if not {signal.code for signal in packet.signals} & LEARNABLE:
        return (
            "Nothing went wrong, nothing was repeated, and the user stated nothing that is to hold."
        )
    if not any(piece.origin == TYPED for piece in packet.evidence) and not packet.verified:
        return "Nothing that the user typed and no verified outcome is in the evidence."
    return ""


def _find_repeated(
    found: Sequence[SessionSignal], before: Sequence[Episode]
) -> list[SessionSignal]:
    """Return a signal for each procedure that enough other sessions had too."""
    others: dict[str, set[str]] = defaultdict(set)
    for episode in before:
        others[episode.key].add(episode.session)
    repeated = []
    for signal in found:
        sessions = len(others[signal.key]) + 1  # this one included
        if signal.code == "procedure" and sessions >= REPEATED_IN:
            text = f"{signal.said} (in {sessions} sessions)"
            repeated.append(SessionSignal("repeated_procedure", signal.turn, signal.spans, text))
    return repeated


def _make_earlier(episode: Episode) -> EvidenceSpan:
    return EvidenceSpan(
        id=f"e{episode.id}",
        session=episode.session,
        turn=episode.turn,
        origin=episode.origin,
        reasons=(episode.signal,),
        text=episode.quote,
        settled=episode.settled,
    )


def _make_episodes(
    session: Session,
    found: Sequence[SessionSignal],
    pieces: Sequence[EvidenceSpan],
    settled: frozenset[int],
    now: datetime,
) -> list[Episode]:
    texts = {piece.id: piece for piece in pieces}
    at = (session.started or now).isoformat()
    episodes: dict[tuple[int, str], Episode] = {}
    for signal in found:
        piece = next((texts[f"s{i}"] for i in signal.spans if f"s{i}" in texts), None)
        quote, origin = (piece.text, piece.origin) if piece is not None else ("", "")
        if signal.key:
            quote, origin = signal.said, "command"
        first_words = " ".join(unquoted_text(quote).casefold().split()[:12])
        key = signal.key or f"{signal.code}:{first_words}"
        if quote and signal.code not in _QUIET:
            about = (session.session_id, signal.turn, at, signal.code, key[:400], quote[:MAX_QUOTE])
            episodes[signal.turn, key] = Episode(*about, origin, signal.turn in settled)
    return list(episodes.values())


def _find_near(
    library: Library, caller: Caller, session: Session, pieces: Sequence[EvidenceSpan]
) -> list[NearbyResource]:
    """Return the skills that were loaded or fit what was asked, and what waits or was rejected for
    them.
    """
    near_by_ref: dict[str, NearbyResource] = {}
    names = dict.fromkeys(span.skill for span in session.spans if span.skill)
    for name in names:
        if slugify(name) != name:
            continue
        head = library.store.head_or_none(Ref(Kind.SKILL, name), caller.scopes)
        entry = library.index.entry(head) if head and head.version else None
        if head and entry:
            about = (str(head.ref), head.version, entry.description[:300])
            near_by_ref[str(head.ref)] = NearbyResource(*about, LOADED)
    dependencies = replace(library.dependencies, judge_model=None, uses_client_model=False)
    # Neither a session nor a connection: no trial counts a review among those that it served. It is
    # the review that asks: what only a person calls can be improved too.
    reviewer = replace(caller, session=None, connection=None, actor=Actor.REVIEW)
    for piece in [piece for piece in pieces if piece.origin == TYPED][:4]:
        result = find_skill(
            library, reviewer, piece.text[:1_000], limit=3, dependencies=dependencies
        )
        for match in result.matches:
            if match.confidence >= result.fits / 2 and len(near_by_ref) < MOST_NEAR:
                near = NearbyResource(match.ref, match.version, match.description[:300], match.why)
                near_by_ref.setdefault(match.ref, near)
    waiting = [
        proposal
        for proposal in library.store.backend.proposals.waiting(200)
        if str(proposal.ref) in near_by_ref
    ]
    pending = [
        NearbyResource(
            str(proposal.ref), None, proposal.reason[:300], f"proposal {proposal.id} waits"
        )
        for proposal in waiting
    ]
    return [*near_by_ref.values(), *pending[:MOST_NEAR]]
