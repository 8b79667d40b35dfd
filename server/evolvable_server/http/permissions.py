"""What each call needs, and the refusal of those who may not.

Whoever is let in may read, so only tools are looked at: everything else that the server answers is reading.
"""

from collections.abc import Mapping
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from evolvable_server.mcp.bearer import Permission, name_of, permissions_of

READ, REPORT, WRITE, APPROVE = Permission.READ, Permission.REPORT, Permission.WRITE, Permission.APPROVE

TOOLS: Mapping[str, Permission] = {
    "find_skill": READ,
    "load_skill": READ,
    # An outcome moves ranks, so a bearer that may only read tells none.
    "report_outcome": REPORT,
    "list_resources": READ,
    "get_resource": READ,
    "resource_history": READ,
    "update_resource": WRITE,
    "restore_resource": WRITE,
    "remove_resource": WRITE,
    "undo": WRITE,
    "review_session": WRITE,
    "submit_review": WRITE,
    "compress_history": READ,
    # A run spends money and runs what judges its tasks; adopting is a decision.
    "evolve_start": APPROVE,
    "evolve_continue": APPROVE,
    "evolve_adopt": APPROVE,
    "evolve_submit": WRITE,
    "evolve_stop": WRITE,
    "evolve_status": READ,
    "evolve_pending": READ,
    "evolve_report": READ,
    "evolve_opportunities": READ,
}
"""What a tool needs. A tool that is not named here needs every permission: forgetting one must not open a door."""

DECIDING = frozenset({"approve", "reject"})
"""Actions of review_inbox that decide; the others read."""


def needed(tool: str, arguments: Mapping[str, Any]) -> frozenset[Permission]:
    """Returns the permissions that a call needs."""
    if tool == "review_inbox":
        return frozenset({APPROVE if arguments.get("action") in DECIDING else READ})
    if tool == "hook_event":
        return frozenset({READ if arguments.get("hook_event_name") == "UserPromptSubmit" else WRITE})
    return frozenset({TOOLS[tool]}) if tool in TOOLS else frozenset(Permission)


async def check_permission(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Middleware: answers a call that its bearer may not make with an error that the model can read."""
    if ctx.method != "tools/call":
        return await call_next(ctx)
    params = ctx.params or {}
    tool, arguments = params.get("name"), params.get("arguments")
    has = permissions_of(ctx.request)
    missing = needed(str(tool), arguments if isinstance(arguments, Mapping) else {}) - has
    if not missing:
        return await call_next(ctx)
    text = (
        f"The token {name_of(ctx.request)} may {_listed(has)}; {ascii(tool)} needs {_listed(missing)}. "
        f"Go on without it, or ask the owner of the library for a token that may {_listed(missing)}."
    )
    refused: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": True}
    # A middleware that answers by itself owns the whole answer.
    return refused | ({"resultType": "complete"} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else {})


def _listed(permissions: frozenset[Permission]) -> str:
    return " and ".join(permission.value for permission in Permission if permission in permissions)
