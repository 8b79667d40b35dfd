"""What a hook answers, whether the client called the running server or ran the command."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from evolvable_server.app import scope_of
from evolvable_server.config import Config
from evolvable_server.hooks.events import Event, event_of
from evolvable_server.hooks.offered import Offered
from evolvable_store.job_queue import enqueue
from evolvable_store.resource import USER_SCOPE
from evolvable_tools.library import Caller, Library

NOTHING = "{}"
"""The answer of a hook that has nothing to say, in both clients."""

log = logging.getLogger(__name__)


class Hooks:
    """The hooks over one library."""

    def __init__(self, config: Config, library: Library, caller: Caller) -> None:
        self._config, self._library, self._caller = config, library, caller
        self._offered = Offered(config.home)

    def answer(self, payload: Mapping[str, Any]) -> str:
        """Returns the JSON text that a client reads as the hook's output. Raises nothing: work goes on without it."""
        if not self._config.hooks:
            return NOTHING
        try:
            return self._answered(event_of(payload))
        except Exception:
            log.exception("a hook failed")
            return NOTHING

    def _answered(self, event: Event) -> str:
        caller = self._who(event)
        self._library.note_session(caller)
        if event.event == "UserPromptSubmit":
            from evolvable_server.hooks.offers import offer

            text = offer(self._library, caller, event.prompt, self._offered, self._library.means)
            return _context(event.event, text) if text else NOTHING
        if event.event == "PostToolUse":
            from evolvable_server.hooks import loads, writes

            loads.note(self._library, caller, event, self._offered)
            writes.note(self._library, event)
        elif event.event in ("Stop", "SessionEnd") and event.transcript_path and self._config.review != "off":
            enqueue(str(self._config.home), asdict(event))
        return NOTHING

    def _who(self, event: Event) -> Caller:
        """Returns the caller in the session and in the project that the event names."""
        caller = replace(self._caller, session=event.session_id[:200] or None)
        if self._config.scope or not event.cwd:
            return caller
        scope = scope_of(Path(event.cwd), self._library.folders())
        return replace(caller, scopes=(USER_SCOPE,) if scope is None else (scope, USER_SCOPE))


def _context(event: str, text: str) -> str:
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}})
