"""Copies of a session's lines in other files: a client that resumes or forks a session writes its
lines again.

A typed message and a call have a key in every file that has them. The first session that was read
with a key owns it. What stands between two of them belongs to the first.
"""

import hashlib
import json
from collections.abc import Collection
from dataclasses import replace

from evolvable_tools.sessions.session import RawPiece, Session

MIN_UNIQUE = 16
"""Characters of a name that no two sessions share by chance.

A shorter one, such as `call_1`, counts in its file.
"""

MAX_ROW = 200
"""Characters of a line's name that is remembered."""

# Keys are stored for every message that was ever read, so each byte counts.
_KEY_BYTES = 6
"""Bytes of a key. With 300,000 stored ones, one of 900 million others is a copy by chance."""


def row_key(piece: RawPiece, row: str | None) -> int | None:
    """Return the key of a typed message or of a call, None for another piece and where no name is
    unique.

    row: the name of its line. The text is part of the key, so a line with the name of another one
    and other words is no copy. Else a file could take a session's lines away by naming them.
    """
    name = row
    if piece.input is not None and piece.call_id and len(piece.call_id) >= MIN_UNIQUE:
        name = piece.call_id
    if name is None or len(name) < MIN_UNIQUE or not (piece.typed or piece.input is not None):
        return None
    arguments = json.dumps(piece.input, sort_keys=True, default=str)
    text = "\0".join((name, piece.tool or "", piece.text, arguments))
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=_KEY_BYTES).digest()
    return int.from_bytes(digest, "big")


def keys_of(session: Session) -> list[int]:
    """Return the keys of a session's messages and calls."""
    return [span.key for span in session.spans if span.key is not None]


def mark_copies(session: Session, foreign: Collection[int]) -> Session:
    """Return a session with the spans marked that another session had first.

    foreign: their keys.
    """
    if not foreign:
        return session
    copied: dict[str | None, bool] = {}
    # From the end, so that the first key of each agent is what remains in `copied`.
    for span in reversed(session.spans):
        if span.key is not None:
            # What comes before the first key of an agent goes with it.
            copied[span.agent] = span.key in foreign
    spans, before = [], copied.get(None, False)
    for span in session.spans:
        if span.key is not None:
            copied[span.agent] = span.key in foreign
        before = copied.get(span.agent, before)
        spans.append(replace(span, copied=True) if before else span)
    copied_tokens = sum(span.tokens for span in spans if span.copied)
    tokens = None if session.tokens is None else session.tokens - copied_tokens
    return replace(session, spans=tuple(spans), tokens=tokens)
