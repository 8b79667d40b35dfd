"""What is kept of a session for its review: few spans, each with the reasons why, within a budget."""

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from evolvable_store.search.analyzer import tokenize
from evolvable_tools.review.origins import ECHOED, UNTRUSTED
from evolvable_tools.review.signals import LEARNABLE, Signal
from evolvable_tools.sessions.session import Origin, Session, Span

MAX_CHARS = 40_000
"""Characters of all the evidence of a review."""

MAX_SPAN = 1_200
"""Characters of one span: of a longer one two thirds are of its beginning and the rest of its end."""

MAX_TYPED = 4_000
"""Characters of what a person typed at once: it is what everything rests on."""

SETTLED_AFTER = timedelta(hours=24)
"""After so long without a word against it work counts as settled."""

MAX_SHINGLES = 120_000
SHINGLE = 5
"""Words in a row by which a text that was copied is known."""

_GOOD = frozenset({"fail_then_pass", "check_passed", "commit", "acceptance"})
_BAD = frozenset({"correction", "edit_reverted", "check_failing", "error_loop"})
_WORTH = {"user_statement": 0, "asked_for_skill": 0, "correction": 0, "fail_then_pass": 1, "acceptance": 2}
_PRIVATE = re.compile(r"<private>.*?(?:</private>|\Z)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Kept:
    """One piece of evidence. id: `s` and its index in the session, or `e` and the number of an earlier episode.

    session: whose it is. reasons: the codes of the signals that it stands in. settled: whether its outcome is known.
    """

    id: str
    session: str
    turn: int
    origin: str
    reasons: tuple[str, ...]
    text: str
    settled: bool


def kept(session: Session, found: Sequence[Signal], now: datetime) -> tuple[Kept, ...]:
    """Returns the evidence of a session in its order, the most telling when there is too much."""
    reasons: dict[int, list[str]] = {}
    for signal in found:
        for index in signal.spans:
            reasons.setdefault(index, []).append(signal.code)
    settled = settled_turns(session, found, now)
    chosen: list[Kept] = []
    room = MAX_CHARS
    for span in sorted(session.spans, key=lambda span: (_worth(span, reasons.get(span.index, [])), span.index)):
        codes = reasons.get(span.index, [])
        if _worth(span, codes) > 4:
            break
        text = _short(_PRIVATE.sub("[private]", span.text) or _input(span), MAX_TYPED if _typed(span) else MAX_SPAN)
        if text and len(text) <= room:
            room -= len(text)
            why = tuple(dict.fromkeys(codes)) or ("said_by_user",)
            chosen.append(
                Kept(f"s{span.index}", session.session_id, span.turn, span.origin, why, text, span.turn in settled)
            )
    return tuple(sorted(chosen, key=lambda one: int(one.id[1:])))


def settled_turns(session: Session, found: Sequence[Signal], now: datetime) -> frozenset[int]:
    """Returns the turns whose outcome is known to be good: the last that is heard of them is good.

    Of which nothing is heard are settled a day after the session's end.
    """
    ended = max((span.at for span in session.spans if span.at), default=session.started)
    aged = ended is not None and now - ended >= SETTLED_AFTER
    judged = [(s.turn - (s.code in ("correction", "acceptance")), s.code) for s in found if s.code in _GOOD | _BAD]
    turns = {span.turn for span in session.spans}
    last = {turn: next((code for at, code in reversed(judged) if at >= turn), None) for turn in turns}
    return frozenset(turn for turn, code in last.items() if code in _GOOD or (code is None and aged))


def worth(code: str, usual: int) -> int:
    """Returns how telling a signal is, the least number the most; of one that nothing is said of, the usual."""
    return _WORTH.get(code, usual)


def telling(piece: Kept) -> int:
    """Returns how telling a piece of evidence is, the least number the most."""
    return min(worth(code, 3 if piece.origin == Origin.USER else 4) for code in piece.reasons)


def _worth(span: Span, codes: Sequence[str]) -> int:
    """Returns how telling a span is, the least number the most; over 4 it is not kept."""
    if span.origin in ECHOED or span.origin in UNTRUSTED:
        return 9
    if _typed(span):
        return min([_WORTH.get(code, 3) for code in codes], default=3)
    return min([_WORTH.get(code, 4) for code in codes if code in LEARNABLE or code == "commit"], default=9)


def _typed(span: Span) -> bool:
    return span.origin is Origin.USER and span.role == "user"


def _input(span: Span) -> str:
    return " ".join(f"{key}: {value}" for key, value in (span.input or {}).items() if isinstance(value, str))


def _short(text: str, most: int) -> str:
    text = text.strip()
    if len(text) <= most:
        return text
    head = most * 2 // 3
    return f"{text[:head]}\n[…]\n{text[-(most - head) :]}"


def untrusted_shingles(spans: Iterable[Span]) -> frozenset[int]:
    """Returns marks of every run of words that third parties wrote, by which what was copied from them is known."""
    found: set[int] = set()
    for span in spans:
        if span.origin in UNTRUSTED:
            found.update(shingles(span.text))
            if len(found) > MAX_SHINGLES:
                return frozenset(sorted(found)[:MAX_SHINGLES])
    return frozenset(found)


def shingles(text: str) -> Iterator[int]:
    """Yields a mark for each run of SHINGLE words."""
    said = tokenize(text)
    for start in range(len(said) - SHINGLE + 1):
        yield zlib.crc32(" ".join(said[start : start + SHINGLE]).encode())
