"""A finished session in a few lines: what was typed, which tools were called, and what they gave
back.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from evolvable_tools.sessions.session import Origin, Session, Span

MODEL = "claude-opus-5-5"


class Talk:
    """Builds a session span by span; each is a second after the one before."""

    def __init__(
        self,
        name: str = "session-1",
        *,
        project: str | None = "/work/project",
        start: datetime | None = None,
        model: str | None = MODEL,
        client: str = "claude-code",
    ) -> None:
        self._name, self._project, self._model, self._client = name, project, model, client
        self._start = start or datetime.now(UTC)
        self._spans: list[Span] = []
        self._turn = 0

    def _add(self, role: str, origin: Origin, text: str, **more: Any) -> "Talk":
        at = self._start + timedelta(seconds=len(self._spans))
        self._spans.append(
            Span(len(self._spans), self._turn, role, origin, text, at, model=self._model, **more)
        )
        return self

    def typed(self, text: str) -> "Talk":
        """A person's message, which begins a turn."""
        self._turn += 1
        return self._add("user", Origin.USER, text)

    def came(self, text: str, origin: Origin) -> "Talk":
        """A text in a user's message that no person typed."""
        return self._add("user", origin, text)

    def said(self, text: str, skill: str | None = None) -> "Talk":
        """What the model answers."""
        return self._add("assistant", Origin.ASSISTANT, text, skill=skill)

    def called(
        self,
        tool: str,
        given: Mapping[str, Any],
        gave: str | None = "",
        *,
        error: bool = False,
        skill: str | None = None,
    ) -> "Talk":
        """A call of a tool and what it gave back; None: the session ended before."""
        call = f"call-{len(self._spans)}"
        self._add(
            "assistant", Origin.ASSISTANT, "", tool=tool, call_id=call, input=given, skill=skill
        )
        if gave is None:
            return self
        return self._add("tool", Origin.COMMAND, gave, tool=tool, call_id=call, is_error=error)

    def ran(self, command: str, printed: str = "", *, error: bool = False) -> "Talk":
        """A line of shell in Claude Code."""
        return self.called("Bash", {"command": command}, printed, error=error)

    def loaded(self, skill: str) -> "Talk":
        """Claude Code's own tool for skills."""
        return self.called("Skill", {"skill": skill}, f"Launching skill: {skill}")

    @property
    def session(self) -> Session:
        """The session so far."""
        digest = hashlib.sha256(repr(self._spans).encode()).hexdigest()
        started = self._spans[0].at if self._spans else None
        spans = tuple(self._spans)
        return Session(
            self._client,
            self._name,
            self._project,
            started,
            digest,
            False,
            spans,
            model=self._model,
        )
