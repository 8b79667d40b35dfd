"""Asks the person at the client before some changes are made; whatever is not approved waits in the inbox.

Which changes wait is decided below, by the verbs (see `evolvable_tools.approval_policy`): such a change is kept as a proposal,
so that no answer, no client and no crash can lose it. Then the client is asked, by elicitation: in the handshake era in
the middle of the call, in the modern era by ending it and being called again. Only "accept" publishes it. Clients
without a person in front of them answer by themselves (`claude -p` cancels, `codex exec` declines); then the agent is
told where the proposal waits, and goes on.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.mcpserver import Context
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from evolvable_server.mcp import asking
from evolvable_server.mcp.server import Call, LibraryServer
from evolvable_store.errors import EvolvableError
from evolvable_tools.library import Library

if TYPE_CHECKING:
    from evolvable_tools.scan import Finding
    from evolvable_tools.verbs.proposal_inbox import Decided

CHANGES = frozenset({"update_resource", "remove_resource", "restore_resource", "undo"})
"""Tools whose changes may have to wait."""

MAX_DIFF, MAX_REASON, MAX_SHOWN = 1_500, 300, 5
"""Characters of a diff and of a reason in a question, and proposals that are shown in one."""

_KEY, _HOW = "approve", "approved in the client"

_NOTHING = "Nothing changed: a person has to see this first"

_ANSWERS = {
    "decline": "The person or the client declined",
    "cancel": "Nobody answered: the client cancelled the question",
    None: "No person could be asked through this client",
}


class Approvals:
    """Asks the person at the client about changes of one library that would wait in the inbox."""

    def __init__(self, library: Library) -> None:
        self._library = library

    async def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Returns whether this call may lead to a change that waits. A call that only proposes is not asked about."""
        return tool in CHANGES and arguments.get("propose") not in (True, "true", 1)

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Makes the call; where its change waits, asks, and publishes it when the answer is yes.

        call: makes a call without asking. An error of the call is its result.
        """
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        if modern and context.request_state is not None:
            answer = (context.input_responses or {}).get(_KEY)
            return await self._answered(json.loads(context.request_state), asking.said(context, answer))
        result = await call(tool, arguments, context)
        if not isinstance(result, types.CallToolResult) or result.is_error:
            return result
        proposed = result.structured_content or {}
        if not _ids(proposed):
            return result
        if self._library.lock is not None:
            return _left(proposed, "Approvals are locked, so no answer in a client decides. Nothing changed")
        if not asking.may_ask(context):
            return await self._answered(proposed, None)
        question = await run_sync(self._question, tool, proposed)
        if modern:
            requests: types.InputRequests = {_KEY: asking.request(context, question)}
            return types.InputRequiredResult(input_requests=requests, request_state=json.dumps(proposed))
        return await self._answered(proposed, asking.said(context, await asking.elicit(context, question)))

    def _question(self, tool: str, proposed: Mapping[str, Any]) -> str:
        """Returns what a person is asked. What an agent wrote is cut, and stands on a line of its own."""
        from evolvable_tools.verbs import proposal_inbox  # late: a server answers before anybody is asked

        shown = [proposal_inbox.show_proposal(self._library, identity) for identity in _ids(proposed)[:MAX_SHOWN]]
        verbs = {"restore_resource": "bring back an old version of", "undo": "take back a change of"}
        lines = []
        for one in shown:
            verb = "remove" if one.removes else verbs.get(tool, "change" if one.base else "create")
            lines.append(f"An agent wants to {verb} {one.ref}" + (f" (version {one.base})." if one.base else "."))
        more = len(_ids(proposed)) - len(shown)
        lines += [f"And {more} more."] * (more > 0)
        lines.append(f"Its reason: {_one_line(shown[0].reason)}")
        worst = [found for one in shown for found in _worst_first(one.findings)[:MAX_SHOWN]]
        lines += [f"A scan found: {_one_line(str(found))}" for found in worst]
        changes = "\n".join(one.diff or "" for one in shown if not one.removes)
        if changes:
            lines.append(changes[:MAX_DIFF] + ("\n[cut]" if len(changes) > MAX_DIFF else ""))
        return "\n".join([*lines, f"If you do not accept, nothing changes and it waits as {_named(_ids(proposed))}."])

    async def _answered(self, proposed: dict[str, Any], action: str | None) -> types.CallToolResult:
        if action == "accept":
            from evolvable_tools.verbs import proposal_inbox

            try:
                decided = await run_sync(proposal_inbox.approve_as_asked, self._library, _ids(proposed), _HOW)
            except EvolvableError as error:
                return _left(proposed, f"It was approved, but could not be made: {error.text} Nothing changed")
            return _result(_made(proposed, decided))
        return _left(proposed, f"{_ANSWERS[action]}. Nothing changed")


def _ids(proposed: Mapping[str, Any]) -> list[int]:
    one = proposed.get("proposal_id")
    return [one] if one is not None else list(proposed.get("proposal_ids", ()))


def _made(proposed: dict[str, Any], decided: "Sequence[Decided]") -> dict[str, Any]:
    """Returns the result of the call as it is after its approval."""
    warnings = [*_without_waiting(proposed["warnings"]), *(text for one in decided for text in one.warnings)]
    if "proposal_ids" in proposed:
        restored = [f"{one.ref}@{one.version}" if one.version else f"{one.ref} removed" for one in decided]
        return proposed | {"operation": decided[0].operation, "restored": restored, "warnings": warnings}
    return proposed | {"operation": decided[0].operation, "version": decided[0].version, "warnings": warnings}


def _left(proposed: dict[str, Any], why: str) -> types.CallToolResult:
    where = f"{why}; the change waits in the inbox for a person, as {_named(_ids(proposed))}. Go on without it."
    return _result(proposed | {"warnings": [*_without_waiting(proposed["warnings"]), where]})


def _without_waiting(warnings: Sequence[str]) -> list[str]:
    """Returns the warnings without the one that says that nothing changed, which the answer says better."""
    return [line for line in warnings if not line.startswith(_NOTHING)]


def _named(ids: Sequence[int]) -> str:
    return f"proposal{'s' * (len(ids) > 1)} {', '.join(map(str, ids))}"


def _worst_first(findings: "Sequence[Finding]") -> "list[Finding]":
    """Return the findings in the order of reading, because clients show the first lines of a question alone.

    Of equal severity what a line of a file does stands before what the resource has the means to do.
    """
    ranks = {severity: rank for rank, severity in enumerate(type(findings[0].severity))} if findings else {}
    return sorted(findings, key=lambda found: (ranks[found.severity], not found.path))


def _one_line(text: str) -> str:
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= MAX_REASON else line[:MAX_REASON] + "..."


def _result(structured: dict[str, Any]) -> types.CallToolResult:
    text = json.dumps(structured, indent=2, ensure_ascii=False)
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=structured)


def add_approvals(server: LibraryServer, library: Library) -> None:
    """Makes the server ask about changes that would wait."""
    server.approvals = Approvals(library)
