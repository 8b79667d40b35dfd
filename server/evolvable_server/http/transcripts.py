"""Which files of this machine a client may name over HTTP as what was said in a session.

A client over stdio runs as the person whose files they are. Over HTTP whoever calls need not be that person, and what a
review finds in a file is shown to others. So a bearer names none, and where no token is asked for only those files
count that the clients of this machine's person write themselves.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from evolvable_server.mcp.bearer import name_of

ARGUMENT = "transcript_path"
"""The argument of any tool that names such a file."""

log = logging.getLogger(__name__)


class Transcripts:
    """Middleware: refuses a call that names a file it may not; from a hook's call, which goes on, it takes the name."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """folders: where clients keep what was said in their sessions."""
        self._folders = [Path(os.path.realpath(folder)) for folder in folders]
        self._said = False

    async def check(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Answers a call, or has it answered."""
        params = ctx.params or {}
        given = params.get("arguments")
        arguments: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        named = arguments.get(ARGUMENT)
        if ctx.method != "tools/call" or not named or self._may(ctx.request, named):
            return await call_next(ctx)
        if params.get("name") == "hook_event":
            self._say()
            return await call_next(replace(ctx, params={**params, "arguments": {**arguments, ARGUMENT: ""}}))
        refused: dict[str, Any] = {"content": [{"type": "text", "text": REFUSAL}], "isError": True}
        return refused | ({"resultType": "complete"} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else {})

    def _may(self, request: Any, named: Any) -> bool:
        if name_of(request) is not None or not isinstance(named, str) or "\0" in named:
            return False
        place = Path(os.path.realpath(named))
        return place.suffix == ".jsonl" and any(place.is_relative_to(folder) for folder in self._folders)

    def _say(self) -> None:
        if not self._said:
            self._said = True
            log.warning("a hook named a transcript over HTTP that is not read; its session is not queued for review")


REFUSAL = (
    f"Over HTTP {ARGUMENT} is refused: it names a file on the server's machine, and this one may not be read for you. "
    "Leave it out, or call the tool of a server that your client starts itself."
)
