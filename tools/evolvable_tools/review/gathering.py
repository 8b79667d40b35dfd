"""From a session to its packet: signals, what other sessions showed of the same, evidence, and what it may be about."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.proposals import Episode, Proposals, Reviews
from evolvable_tools import finding
from evolvable_tools.library import Caller, Library
from evolvable_tools.review.evidence import Kept, kept, settled_turns, shingles, untrusted_shingles
from evolvable_tools.review.feedback import own_words
from evolvable_tools.review.origins import ECHOED, TYPED
from evolvable_tools.review.packet import Near, Packet
from evolvable_tools.review.signals import LEARNABLE, Signal, signals
from evolvable_tools.sessions.session import Session

MOST_NEAR = 6
"""Resources that a session may be about."""

REPEATED_IN = 3
"""Sessions in which a procedure is a repeated one."""

MAX_QUOTE = 300
"""Characters that are kept of an episode."""

_QUIET = frozenset({"procedure", "check_passed", "commit", "acceptance", "costly", "check_failing"})


def gathered(library: Library, caller: Caller, session: Session, now: datetime) -> tuple[Packet, list[Episode]]:
    """Returns the packet of a session, and the episodes by which later sessions will know what it showed."""
    found = list(signals(session))
    before = Reviews(library.store.backend).episodes({s.key for s in found if s.key}, session.session_id)
    found += _repeated(found, before)
    pieces = kept(session, found, now)
    settled = settled_turns(session, found, now)
    earlier = [_earlier(episode) for episode in before if episode.settled][:12]
    verified = {f"s{i}" for s in found if s.code == "fail_then_pass" for i in s.spans}
    packet = Packet(
        session=session.session_id,
        client=session.client,
        project=session.project,
        started=session.started.isoformat() if session.started else None,
        tokens=session.tokens,
        redactions=dict(session.redactions),
        signals=found,
        evidence=[*pieces, *earlier],
        near=_near(library, caller, session, pieces),
        verified=sorted(verified & {piece.id for piece in pieces}),
        asked_for_skill=any(s.code == "asked_for_skill" for s in found),
        foreign=untrusted_shingles(session.spans),
        echoed=frozenset(m for span in session.spans if span.origin in ECHOED for m in shingles(span.text)),
    )
    return packet, _episodes(session, found, pieces, settled, now)


def worth_thinking(packet: Packet) -> str:
    """Returns why there is nothing to think about, '' when there is."""
    codes = {signal.code for signal in packet.signals}
    if not codes & LEARNABLE:
        return "Nothing went wrong, nothing was repeated, and the user stated nothing that is to hold."
    if not any(piece.origin == TYPED for piece in packet.evidence) and not packet.verified:
        return "Nothing that the user typed and no verified outcome is in the evidence."
    return ""


def _repeated(found: Sequence[Signal], before: Sequence[Episode]) -> list[Signal]:
    """Returns a signal for each procedure that enough other sessions had too."""
    others: dict[str, set[str]] = {}
    for episode in before:
        others.setdefault(episode.key, set()).add(episode.session)
    return [
        Signal("repeated_procedure", s.turn, s.spans, f"{s.said} (in {len(others[s.key]) + 1} sessions)")
        for s in found
        if s.code == "procedure" and len(others.get(s.key, ())) + 1 >= REPEATED_IN
    ]


def _earlier(episode: Episode) -> Kept:
    number = f"e{episode.id}"
    return Kept(
        number, episode.session, episode.turn, episode.origin, (episode.signal,), episode.quote, episode.settled
    )


def _episodes(
    session: Session, found: Sequence[Signal], pieces: Sequence[Kept], settled: frozenset[int], now: datetime
) -> list[Episode]:
    texts = {piece.id: piece for piece in pieces}
    at = (session.started or now).isoformat()
    made: dict[tuple[int, str], Episode] = {}
    for signal in found:
        piece = next((texts[f"s{i}"] for i in signal.spans if f"s{i}" in texts), None)
        quote, origin = (signal.said, "command") if signal.key else (piece.text, piece.origin) if piece else ("", "")
        key = signal.key or f"{signal.code}:{' '.join(own_words(quote).casefold().split()[:12])}"
        if quote and signal.code not in _QUIET - {"procedure"}:
            made[signal.turn, key] = Episode(
                session.session_id,
                signal.turn,
                at,
                signal.code,
                key[:400],
                quote[:MAX_QUOTE],
                origin,
                signal.turn in settled,
            )
    return list(made.values())


def _near(library: Library, caller: Caller, session: Session, pieces: Sequence[Kept]) -> list[Near]:
    """Returns the skills that were loaded or fit what was asked, and what waits or was rejected for them."""
    found: dict[str, Near] = {}
    for name in dict.fromkeys(span.skill for span in session.spans if span.skill):
        head = library.store.head_or_none(Ref(Kind.SKILL, str(name)), caller.scopes) if _is_name(str(name)) else None
        entry = library.index.entry(head) if head and head.version else None
        if head and entry:
            found[str(head.ref)] = Near(str(head.ref), head.version, entry.description[:300], "loaded in the session")
    alone = replace(library.means, thinker=None, caller_thinks=False, client_thinks=False)
    for piece in [piece for piece in pieces if piece.origin == TYPED][:4]:
        told = finding.find_skill(library, replace(caller, session=None), piece.text[:1_000], limit=3, means=alone)
        for match in told.matches:
            if match.confidence >= alone.fits / 2 and len(found) < MOST_NEAR:
                found.setdefault(match.ref, Near(match.ref, match.version, match.description[:300], match.why))
    waiting = Proposals(library.store.backend).waiting(200)
    pending = [Near(str(p.ref), None, p.reason[:300], f"proposal {p.id} waits") for p in waiting if str(p.ref) in found]
    return [*found.values(), *pending[:MOST_NEAR]]


def _is_name(text: str) -> bool:
    from evolvable_store.resource import slugify

    return slugify(text) == text
