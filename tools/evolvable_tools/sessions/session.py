"""The session: a client's transcript as redacted spans, each with the origin of its text.

`RawPiece` is what the parser of a format passes on before redaction. No other module keeps it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from evolvable_store.errors import Invalid, TryAgain


class NoTranscript(Invalid):
    """A file or a list of messages that is no transcript of a session."""


class TranscriptNotRead(TryAgain):
    """A transcript that is there and cannot be read now. A later try may read it."""


class UnreadableMessages(NoTranscript):
    """A transcript in a known form whose messages, or most of them, have no text that
    can be read.
    """


SUBAGENT_TOOLS = frozenset(("Agent", "Task", "agent", "task", "invoke_agent"))
"""The tools that start a subagent: of Claude Code, of its older versions and Droid, of Qwen Code,
of Copilot CLI and OpenCode, of Gemini CLI.
"""

SKILL_TOOL = "Skill"
"""The tool of Claude Code that opens a skill.

Where the skill's head says `context: fork`, it starts a subagent.
"""


class Origin(StrEnum):
    """The first source of a piece of text, however it reached its place."""

    USER = "user"
    """A person typed it."""

    ASSISTANT = "assistant"
    """A model wrote it, that of a subagent included."""

    REPOSITORY = "repository"
    """A file of the project."""

    COMMAND = "command"
    """What a command that ran here printed."""

    WEB = "web"
    """The web, or a file that lies outside the project or in third-party code."""

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
    """One piece of a session: something said, a call of a tool, or what a call gave back. All texts
    are redacted.

    index: its place in the session, from 0. turn: how many messages a person had typed by then; 0
    before the first. role: user, assistant, tool (what a call gave back) or system (what the client
    put in). tool: of a call and of its result, as the client names it. call_id: what joins the two.
    input: what a call was given, None for everything else. skill: the skill that the client says
    drove the step, or whose text it is. agent: the subagent that it happened in, None in the
    session itself. key: by which a copy of a typed message or of a call is known in another file.
    tokens: that were paid for it. copied: another session, which was read before, had it first.
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
    key: int | None = None
    tokens: int = 0
    copied: bool = False

    @property
    def typed(self) -> bool:
        """Whether a person typed it."""
        return self.origin is Origin.USER and self.role == "user"


@dataclass(frozen=True, slots=True)
class SubagentRun:
    """One run of a subagent. agent: what its spans name it by.

    name: the type that it was started as, such as `clerk`. call_id: of the call that started it,
    None where that is not known. prompt: the system prompt that it was given, redacted, '' where
    the client does not note it.
    """

    agent: str
    name: str
    call_id: str | None = None
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class SessionHeading:
    """What a session is, without its texts.

    client: such as claude-code or codex, messages for a list of messages. project: the folder that
    it worked in. digest: of what was read, the same as long as the session did not go on.
    reviewing: it is itself a review or another tool's watching of a session, from which nothing is
    learned.
    """

    client: str
    session_id: str
    project: str | None
    started: datetime | None
    digest: str
    reviewing: bool


@dataclass(frozen=True, slots=True)
class Session(SessionHeading):
    """One session with what happened in it.

    redactions: how many secrets of each type were taken out. tokens: those that were paid for in
    full, in and out, without what came from a cache and without those of copied spans; None when
    nobody counted. model: the last that answered. commit: the one that it began at, '' where the
    client does not note it. subagents: those whose type is known. skipped: how many lines of its
    file were of a kind that is not read.
    """

    spans: tuple[Span, ...]
    redactions: Mapping[str, int] = field(default_factory=dict)
    tokens: int | None = None
    model: str | None = None
    commit: str = ""
    subagents: tuple[SubagentRun, ...] = ()
    skipped: int = 0

    @property
    def turns(self) -> int:
        """How many messages a person typed, those that were copied from another session too."""
        return max((span.turn for span in self.spans), default=0)

    @property
    def is_copy(self) -> bool:
        """Whether another session had everything first that a person typed or a model called."""
        return any(span.copied for span in self.spans) and not any(
            span.typed or span.input is not None for span in self.spans if not span.copied
        )


@dataclass(slots=True)
class RawPiece:
    """A span before it is redacted.

    typed: a person's message begins with it. follows: where in the text the output of a command
    begins, behind what the client says of it. key, tokens: as of a span.
    """

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
    key: int | None = None
    tokens: int = 0

    def copy(self, **changes: Any) -> "RawPiece":
        """Return a copy with some fields changed."""
        # By hand: each line of a transcript makes one or two copies, and dataclasses.replace is
        # slower.
        piece = RawPiece(
            self.role,
            self.origin,
            self.text,
            self.at,
            self.tool,
            self.call_id,
            self.is_error,
            self.model,
            self.input,
            self.skill,
            self.agent,
        )
        piece.typed, piece.follows = self.typed, self.follows
        piece.key, piece.tokens = self.key, self.tokens
        for name, value in changes.items():
            setattr(piece, name, value)
        return piece


MAX_PROMPT = 100_000
"""Characters of a subagent's system prompt that are read."""


@dataclass(slots=True)
class TranscriptInfo:
    """What the lines of a transcript say of the session as a whole; filled while they are read."""

    client: str
    session_id: str = ""
    project: str | None = None
    started: datetime | None = None
    model: str | None = None
    tokens: int | None = None
    reviewing: bool = False
    commit: str = ""
    names: set[str] = field(default_factory=set)
    """Every name of a session in its lines: copied lines may keep the name of the session that they
    come from.
    """
    known_lines: int = 0
    """Lines that this format knows."""
    skipped: int = 0
    """Lines of other kinds."""
    readable: int = 0
    """Messages that said something."""
    unreadable: int = 0
    """Messages whose text is not where this format looks for it."""
    subagents: dict[str, SubagentRun] = field(default_factory=dict)
    """By the name that their spans have, and not yet redacted."""

    def learn_subagent(
        self, agent: str, *, name: str = "", call_id: str = "", prompt: str = ""
    ) -> None:
        """Note what a line says of a subagent's run.

        What was said first stays.
        """
        run = self.subagents.get(agent) or SubagentRun(agent, "")
        self.subagents[agent] = SubagentRun(
            agent,
            run.name or name,
            run.call_id or call_id or None,
            run.prompt or prompt[:MAX_PROMPT],
        )


def parse_moment(value: object) -> datetime | None:
    """Return a moment that a transcript names, in UTC; None for what is none."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        at = datetime.fromisoformat(value)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


# The beginning of the last year that `datetime` knows: it cannot represent later moments.
_YEAR_9999 = 253_370_764_800_000


def moment_of(milliseconds: object) -> datetime | None:
    """Return the moment so many milliseconds after 1970, None for what is none."""
    if type(milliseconds) is not int or not 0 <= milliseconds < _YEAR_9999:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def parse_json(text: str) -> Any:
    """Return the value of a JSON text, None for a text that is none."""
    try:
        return json.loads(text)
    # RecursionError: a hostile line may nest deeper than the parser can follow.
    except (ValueError, RecursionError):
        return None


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a JSON list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def as_text(value: object) -> str | None:
    """Return a text that says something, None for anything else."""
    return value if isinstance(value, str) and value else None


def text_of(content: object) -> str:
    """Return the text of a message's or a result's content, be it a text, a block or a list of
    blocks.
    """
    if isinstance(content, str):
        return content
    parts = []
    for block in content if isinstance(content, list) else [content]:
        text = block.get("text") if isinstance(block, dict) else block
        if isinstance(text, str):
            parts.append(text)
        elif isinstance(block, dict) and isinstance(block.get("content"), str | list):
            parts.append(text_of(block["content"]))
    return "\n".join(parts)
