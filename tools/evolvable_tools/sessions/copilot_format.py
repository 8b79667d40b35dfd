"""The transcripts of Copilot CLI: events, each with its own data."""

from collections.abc import Iterator, Mapping
from typing import Any

from evolvable_tools.sessions.session import (
    Origin,
    RawPiece,
    as_list,
    as_mapping,
    as_text,
    parse_moment,
)
from evolvable_tools.sessions.taint import TABLES, command_line
from evolvable_tools.sessions.transcript_formats import (
    TranscriptFormat,
    parse_arguments,
    split_typed,
    typed_once,
)

COPILOT_TYPES = frozenset(TABLES["types"]["copilot"].split())
"""Types of events that are read. Others are skipped."""

_TYPED = frozenset((None, "user"))
"""Sources of the messages in a person's name that a person typed: skills, other agents and the
client have others.
"""

_OF_SKILL, _OF_AGENT = "skill-", "agent-"


def is_copilot(record: Mapping[str, Any]) -> bool:
    """Return whether a line is an event of Copilot CLI."""
    return (
        str(record.get("type")) in COPILOT_TYPES
        and isinstance(record.get("data"), dict)
        and "parentId" in record
    )


class CopilotFormat(TranscriptFormat):
    """Reads the events of one session of Copilot CLI, those of its subagents among them."""

    client = "copilot"

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        kind, data = record.get("type"), as_mapping(record.get("data"))
        if not isinstance(kind, str) or kind not in COPILOT_TYPES:
            return
        agent = as_text(record.get("agentId")) or as_text(data.get("parentToolCallId"))
        base = RawPiece(
            "system", Origin.MEMORY, "", parse_moment(record.get("timestamp")), agent=agent
        )
        context = as_mapping(data.get("context"))
        session = data.get("sessionId") if kind == "session.start" else None
        self._learn_session({"session_id": session, "cwd": context.get("cwd")}, base)
        self.about.commit = self.about.commit or as_text(context.get("headCommit")) or ""
        if kind == "user.message":
            yield from typed_once(self._read_user(data, base))
        elif kind == "assistant.message":
            yield from self._read_assistant(data, base)
        elif kind == "tool.execution_complete":
            failed = data.get("success") is not True
            text = as_mapping(data.get("error")).get("message") if failed else None
            text = as_text(text) or as_text(as_mapping(data.get("result")).get("content")) or ""
            yield self._make_result(as_text(data.get("toolCallId")), text, failed, base)
        else:
            yield from self._read_event(kind, data, base)

    def message_of(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if record.get("type") not in ("user.message", "assistant.message"):
            return None
        return as_mapping(record.get("data"))

    def row_of(self, record: Mapping[str, Any]) -> str | None:
        return as_text(record.get("id"))

    def _read_user(self, data: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        """Yield a message in a person's name.

        What hooks added to it stands in the events of the hooks.
        """
        text, source = as_text(data.get("content")) or "", as_text(data.get("source"))
        if base.agent is not None or (source or "").startswith(_OF_AGENT):
            yield base.copy(origin=Origin.ASSISTANT, text=text)
        elif source is not None and source.startswith(_OF_SKILL):
            yield base.copy(origin=Origin.SKILL, text=text, skill=source.removeprefix(_OF_SKILL))
        elif source in _TYPED and data.get("isAutopilotContinuation") is not True:
            yield from split_typed(text, base)
        else:
            yield base.copy(text=text)

    def _read_assistant(self, data: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        base.model = as_text(data.get("model"))
        if base.agent is None:
            self.about.model = base.model or self.about.model
        if text := as_text(data.get("content")):
            yield base.copy(role="assistant", origin=Origin.ASSISTANT, text=text)
        for call in map(as_mapping, as_list(data.get("toolRequests"))):
            if tool := as_text(call.get("name")):
                arguments = parse_arguments("arguments", call.get("arguments"))
                yield self._make_call(as_text(call.get("toolCallId")), tool, arguments, base)

    def _read_event(self, kind: str, data: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        if kind == "skill.invoked":
            skill = as_text(data.get("name"))
            yield base.copy(
                origin=Origin.SKILL, text=as_text(data.get("content")) or "", skill=skill
            )
        elif kind == "session.compaction_complete":
            yield base.copy(origin=Origin.ASSISTANT, text=as_text(data.get("summaryContent")) or "")
        elif kind == "hook.end":
            yield base.copy(
                text=as_text(as_mapping(data.get("output")).get("additionalContext")) or ""
            )
        elif kind == "system.notification":
            yield base.copy(text=as_text(data.get("content")) or "")
        elif kind == "abort":
            yield base.copy(
                text=f"[The turn was aborted: {as_text(data.get('reason')) or 'nobody says why'}]"
            )
        elif kind == "subagent.started" and (call := as_text(data.get("toolCallId"))):
            self.about.learn_subagent(
                base.agent or call, name=as_text(data.get("agentName")) or "", call_id=call
            )
        elif kind == "session.usage_record":
            self._count_tokens(as_mapping(data.get("usage")))

    def _count_tokens(self, usage: Mapping[str, Any]) -> None:
        cached = usage.get("cacheReadTokens")
        paid = [
            count for key in ("inputTokens", "outputTokens") if type(count := usage.get(key)) is int
        ]
        if paid:
            spent = max(0, sum(paid) - (cached if type(cached) is int else 0))
            self.about.tokens = (self.about.tokens or 0) + spent

    def _runs_on(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call starts a command: `read_bash` shows more of any that takes long."""
        return bool(command_line(arguments))
