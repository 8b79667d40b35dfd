"""The tool `hook_event`, which clients' hooks call. It is not listed: a hook names it, and a model shall not see it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio.to_thread
from mcp_types import CallToolResult, TextContent

from evolvable_server.config import Config
from evolvable_server.mcp.bearer import connection_of, session_of
from evolvable_server.mcp.server import LibraryServer
from evolvable_server.mcp.sessions import Sessions
from evolvable_tools.library import Caller, Library


def add_hook_event(server: LibraryServer, config: Config, library: Library, caller: Caller, sessions: Sessions) -> None:
    """Makes the server answer hooks, and learn from them which session its client is in."""

    async def hook_event(arguments: Mapping[str, Any], request: Any) -> CallToolResult:
        from evolvable_server.hooks.answers import Hooks  # late: a server answers before its first hook
        from evolvable_server.hooks.events import event_of

        event = event_of(arguments)
        sessions.heard(event.session_id, event.tool_use_id if event.event == "PreToolUse" else "")
        own = session_of(request, event.session_id) if event.session_id else ""
        hooks = Hooks(config, library, replace(caller, connection=connection_of(request, caller.connection)))
        text = await anyio.to_thread.run_sync(hooks.answer, {**arguments, "session_id": own})
        return CallToolResult(content=[TextContent(type="text", text=text)])

    server.unlisted["hook_event"] = hook_event
