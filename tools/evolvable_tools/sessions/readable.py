"""Whether a transcript can be read: a known form whose messages have no text is refused, and never
an empty session.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from evolvable_tools.sessions.session import (
    NoTranscript,
    RawPiece,
    TranscriptInfo,
    UnreadableMessages,
    as_mapping,
)
from evolvable_tools.sessions.taint import TABLES

HINT = (
    "A transcript is a file of Claude Code, Codex, Copilot CLI, Qwen Code, Droid, Gemini CLI, "
    "Kimi Code, Cline CLI or Continue CLI, or a list of messages with role and content."
)

_SILENT_BLOCKS = frozenset(TABLES["types"]["silent_blocks"].split())
"""Types of blocks of a message that hold no text."""


def count_message(
    about: TranscriptInfo, message: Mapping[str, Any] | None, pieces: Sequence[RawPiece]
) -> None:
    """Count whether a message said something.

    pieces: those that its line gave. message: None for another line.
    """
    if message is not None:
        says = any(
            piece.text.strip() or piece.call_id or piece.input is not None for piece in pieces
        )
        about.readable += says
        about.unreadable += not says and not _is_empty(message)


def _is_empty(message: Mapping[str, Any]) -> bool:
    """Return whether the place of a message's text is known and holds no text: thoughts, images,
    nothing at all.
    """
    if not {"content", "text"} & message.keys():
        return False
    content = message.get("content", message.get("text"))
    if isinstance(content, list):
        return all(map(_is_silent, content))
    return content is None or isinstance(content, str)


def _is_silent(block: object) -> bool:
    fields = as_mapping(block)
    return block == "" or fields.get("text") == "" or str(fields.get("type")) in _SILENT_BLOCKS


def check_readable(about: TranscriptInfo, name: str) -> None:
    """Raise NoTranscript, or UnreadableMessages, where a transcript that was read says nothing.

    name: of the file.
    """
    if not about.known_lines:
        raise NoTranscript(f"{name} is no transcript: nothing in it is a message.", HINT)
    every = about.readable + about.unreadable
    if about.unreadable > about.readable:
        raise UnreadableMessages(
            f"{name} has the lines of a transcript of {about.client}, but {about.unreadable} of "
            f"its {every} messages have no text that can be read.",
            "Another client, or a newer version of this one, wrote it. Nothing was reviewed and "
            "nothing was stored.",
        )
    if not every:
        raise UnreadableMessages(
            f"{name} has no message with a text yet.", "Name it again when the session went on."
        )
