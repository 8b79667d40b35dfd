"""A finished session as everybody here sees it, whichever client wrote it down."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from evolvable_store.errors import Invalid


class NoTranscript(Invalid):
    """A file or a list of messages that is no transcript of a session."""


class Origin(StrEnum):
    """Where a piece of text came from, however it got where it stands."""

    USER = "user"
    """A person typed it."""

    ASSISTANT = "assistant"
    """A model wrote it, that of a subagent included."""

    REPOSITORY = "repository"
    """A file of the project."""

    COMMAND = "command"
    """What a command that ran here printed."""

    WEB = "web"
    """The web, or a file that lies outside the project or in somebody else's code."""

    MCP = "mcp"
    """An MCP server or another tool of third parties."""

    SKILL = "skill"
    """A skill that was put into the context."""

    MEMORY = "memory"
    """Memory, boot files, and what the client or a hook put into the context beside them."""


UNTRUSTED = frozenset((Origin.WEB, Origin.MCP))
"""Text of third parties."""


@dataclass(frozen=True, slots=True)
class Span:
    """One piece of a session: something said, a call of a tool, or what a call gave back. All texts are redacted.

    index: its place in the session, from 0. turn: how many messages a person had typed by then; 0 before the first.
    role: user, assistant, tool (what a call gave back) or system (what the client put in). tool: of a call and of its
    result, as the client names it; call_id: what joins the two; input: what a call was given, None for everything
    else. skill: the skill that the client says drove the step, or whose text it is. agent: the subagent that it
    happened in, None in the session itself.
    """

    index: int
    turn: int
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


@dataclass(frozen=True, slots=True)
class Session:
    """One session. client: claude-code, codex or messages. project: the folder that it worked in.

    digest: of what was read, the same as long as the session did not go on. redactions: how many secrets of each type
    were taken out. tokens: those that were paid for in full, in and out, without what came from a cache; None when
    nobody counted. model: the last that answered. reviewing: it is itself a review or another tool's watching of a
    session, from which nothing is learned.
    """

    client: str
    session_id: str
    project: str | None
    started: datetime | None
    spans: tuple[Span, ...]
    digest: str
    redactions: Mapping[str, int] = field(default_factory=dict)
    tokens: int | None = None
    model: str | None = None
    reviewing: bool = False

    @property
    def turns(self) -> int:
        """How many messages a person typed."""
        return max((span.turn for span in self.spans), default=0)
