"""Which session a call belongs to, as far as its client says: in the call, through a hook, or in the environment."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

MAX_SESSION = 200
"""Characters of a session's name; a longer one is not taken."""

CALLS = 1_000
"""Calls of tools that were announced and may still come."""


class Sessions:
    """The sessions of one server's clients. Safe from any thread."""

    def __init__(self, usual: str | None, *, shared: bool = False) -> None:
        """usual: the session of a call that names none. shared: several clients call, so what one of them says of its
        session is true of no other's call."""
        self._usual, self._shared = usual, shared
        self._announced: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, meta: Mapping[str, Any] | None, headers: Mapping[str, str] | None = None) -> str | None:
        """Returns the session of a call with this _meta, and these headers over HTTP; None when nothing says it.

        The first that is said counts: the session in `x-codex-turn-metadata`, `threadId`, the session that a hook
        announced for `claudecode/toolUseId`, the header `mcp-session-id`, the usual one.
        """
        meta = meta or {}
        turn = meta.get("x-codex-turn-metadata")
        with self._lock:
            announced = self._announced.get(str(meta.get("claudecode/toolUseId")))
        named = (
            turn.get("session_id") if isinstance(turn, Mapping) else None,
            meta.get("threadId"),
            announced,
            _connection(headers),
        )
        return next((name for name in named if _is_session(name)), self._usual)

    def heard(self, session: str, tool_use: str = "") -> None:
        """Notes that a hook named its session, and for a hook before a tool which call it announces.

        A process with one client takes it for all calls from then on: a client keeps its server when the person begins
        another session.
        """
        if not _is_session(session):
            return
        with self._lock:
            if not self._shared:
                self._usual = session
            if tool_use:
                self._announced[tool_use] = session
                while len(self._announced) > CALLS:
                    self._announced.popitem(last=False)


def _connection(headers: Mapping[str, str] | None) -> str | None:
    name = headers.get("mcp-session-id") if headers else None
    return f"http-{name}" if name else None


def _is_session(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_SESSION
