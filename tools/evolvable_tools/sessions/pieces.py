"""What a reader of a client's format hands on: raw pieces, not yet redacted, that nobody else may keep."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from evolvable_tools.sessions.session import Origin


@dataclass(frozen=True, slots=True)
class Piece:
    """A span before it is redacted. typed: a person's message begins with it. follows: where in the text what a
    command printed begins, behind what the client says of it."""

    role: str
    origin: Origin
    text: str
    at: datetime | None = None
    tool: str | None = None
    call_id: str | None = None
    is_error: bool = False
    model: str | None = None
    input: Mapping[str, Any] | None = None
    skill: str | None = None
    agent: str | None = None
    typed: bool = False
    follows: int = 0


@dataclass(slots=True)
class About:
    """What the lines of a transcript say of the session as a whole; filled while they are read."""

    client: str
    session_id: str = ""
    project: str | None = None
    started: datetime | None = None
    model: str | None = None
    tokens: int | None = None
    reviewing: bool = False
    known: int = 0
    """Lines that this format knows."""


def moment(value: object) -> datetime | None:
    """Returns a moment that a transcript names, in UTC; None for what is none."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        at = datetime.fromisoformat(value)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def mapping(value: object) -> Mapping[str, Any]:
    """Returns a JSON object as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """Returns a JSON list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def string(value: object) -> str | None:
    """Returns a text that says something, None for anything else."""
    return value if isinstance(value, str) and value else None


def text_of(content: object) -> str:
    """Returns the text of a message's or a result's content, be it a text, a block or a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else [content]
    parts = []
    for block in blocks:
        if isinstance(block, str):
            parts.append(block)
        elif isinstance(block, dict):
            said = block.get("text")
            if isinstance(said, str):
                parts.append(said)
            elif isinstance(block.get("content"), str | list):
                parts.append(text_of(block["content"]))
    return "\n".join(parts)
