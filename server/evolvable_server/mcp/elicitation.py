"""How a question of yes or no is put to the person at a client, and what the answer says, in both eras.

Most clients show a form without a field as the question with buttons. VS Code makes one question of each field: of a
form without any it shows nothing, and the call waits for ever. So it gets a form with one field, in which only a chosen
yes counts: whoever skips the question there accepts the form with nothing filled in. Codex gets the same form: without
a sandbox and with the approval policy `never` it accepts every form without a field by itself, and nobody sees it.

The gate before what only a person decides: the one at the client is asked, and nothing happens without a yes.

The gate before a decision about proposals: the person at the client is asked what they are about to decide.

Asks the person at the client before some changes are made; whatever is not approved waits in the inbox.

Which changes wait is decided below, by the verbs (see `approval_policy`): such a change is kept as a proposal,
so that no answer, no client and no crash can lose it. Then the client is asked, by elicitation: in the handshake era in
the middle of the call, in the modern era by ending it and being called again. Only "accept" publishes it. Clients
without a person in front of them answer by themselves (`claude -p` cancels, `codex exec` declines); then the agent is
told where the proposal waits, and goes on.
"""

import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mcp_types as types
from anyio import BrokenResourceError, ClosedResourceError
from anyio.to_thread import run_sync
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from evolvable_server.clients.registry import CODEX, VSCODE, Client
from evolvable_server.mcp.server import Call, LibraryServer, Permission, name_of, permissions_of
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_tools.library import Library

if TYPE_CHECKING:
    from evolvable_tools.scan import Finding
    from evolvable_tools.verbs.proposal_inbox import Decided


log = logging.getLogger(__name__)

_FIELD = "approve"
_NOTHING_TO_FILL: dict[str, Any] = {"type": "object", "properties": {}}
# VS Code preselects the first.
_NO, _YES = "no", "yes"
_ONE_FIELD: dict[str, Any] = {
    "type": "object",
    "properties": {_FIELD: {"type": "string", "enum": [_NO, _YES], "title": "Do you approve?"}},
    "required": [_FIELD],
}


def may_ask(context: Context[Any, Any]) -> bool:
    """Returns whether the client shows questions, and whoever calls through it may decide."""
    capabilities = context.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    # A bare `elicitation: {}` means forms: the only shape before there were modes.
    offered = elicitation is not None and (elicitation.form is not None or elicitation.url is None)
    return offered and Permission.APPROVE in permissions_of(context.request_context.request)


def elicitation_request(context: Context[Any, Any], question: str) -> types.ElicitRequest:
    """Returns the question as a call of the modern era ends with it."""
    message, form = _message_and_form(context, question)
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=form))


async def elicit_confirmation(context: Context[Any, Any], question: str) -> types.ElicitResult | None:
    """Asks in the middle of a call. Returns the client's answer, None when it gave none that can be read."""
    if not context.session.can_send_request:
        return None
    message, form = _message_and_form(context, question)
    try:
        answer: types.ElicitResult = await context.session.elicit_form(message, form, context.request_id)
        return answer
    except (MCPError, ValidationError, RuntimeError, ClosedResourceError, BrokenResourceError) as error:
        log.warning("the client did not answer a question: %s", ascii(str(error))[:200])
        return None


def elicitation_action(context: Context[Any, Any], answer: Any) -> str | None:
    """Returns what a client's answer means: accept, decline or cancel; None when it is no answer."""
    if not isinstance(answer, types.ElicitResult):
        return None
    if answer.action != "accept" or not (_is_client(VSCODE, context) or _is_client(CODEX, context)):
        return answer.action
    chosen = (answer.content or {}).get(_FIELD)
    return "accept" if chosen == _YES else "decline" if chosen == _NO else "cancel"


def _message_and_form(context: Context[Any, Any], question: str) -> tuple[str, dict[str, Any]]:
    """Returns the message and the form of a question. VS Code renders Markdown; what an agent wrote is to be read."""
    if _is_client(CODEX, context):
        return question, _ONE_FIELD
    if not _is_client(VSCODE, context):
        return question, _NOTHING_TO_FILL
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", question)), default=0))
    return f"{ticks}diff\n{question}\n{ticks}", _ONE_FIELD


def _is_client(client: Client, context: Context[Any, Any]) -> bool:
    params = context.session.client_params
    called: tuple[str, ...] = client.called
    return params is not None and params.client_info.name.lower().startswith(called)


class ConfirmationGate(ABC):
    """One kind of decision; over HTTP the permission of its bearer stands for the person."""

    locked: bool = False
    """Whether approvals are locked: then no answer in a client decides anything."""

    key: str
    """What the question is called between two calls of the modern era."""

    @abstractmethod
    async def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Returns whether this call decides something."""

    @abstractmethod
    def question(self, arguments: Mapping[str, Any]) -> str:
        """Returns what the person is asked. Raises EvolvableError when there is nothing to ask about."""

    @abstractmethod
    def by_hand(self, arguments: Mapping[str, Any], why: str) -> str:
        """Returns what the agent is told when nobody said yes: why, and what stays; never a command."""

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Makes the call when a person says yes, or when its bearer is one who may decide."""
        if self.locked:
            return _refusal_result(self.by_hand(arguments, "Approvals are locked, so no answer in a client decides"))
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        if modern and context.request_state is not None:
            answer = (context.input_responses or {}).get(self.key)
            return await self._answered(answer, tool, arguments, context, call)
        if not may_ask(context):
            if name_of(context.request_context.request) is not None:
                return await call(tool, arguments, context)
            return _refusal_result(self.by_hand(arguments, "No person can be asked through this client"))
        try:
            question = await run_sync(self.question, arguments)
        except EvolvableError as error:
            return _refusal_result(error.text)
        if modern:
            return types.InputRequiredResult(
                input_requests={self.key: elicitation_request(context, question)}, request_state=self.key
            )
        return await self._answered(await elicit_confirmation(context, question), tool, arguments, context, call)

    async def _answered(
        self, answer: Any, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> types.CallToolResult | types.InputRequiredResult:
        if elicitation_action(context, answer) == "accept":
            return await call(tool, arguments, context)
        return _refusal_result(self.by_hand(arguments, "The person or the client did not accept"))


def _refusal_result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


DECIDING = ("approve", "reject")
MAX_ASKED = 10
"""Proposals that one question shows."""


class ProposalGate(ConfirmationGate):
    """The gate before a decision: the person at the client is asked."""

    key = "decide"

    def __init__(self, library: Library) -> None:
        self._library = library
        self.locked = library.lock is not None

    async def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Returns whether this call decides something."""
        return tool == "review_inbox" and arguments.get("action") in DECIDING

    def by_hand(self, arguments: Mapping[str, Any], why: str) -> str:
        """Returns what the agent is told when nobody said yes."""
        return f"{why}, and only a person decides about proposals. Nothing changed; it waits in the inbox for a person."

    def question(self, arguments: Mapping[str, Any]) -> str:
        """Returns what the person is asked. What others wrote is cut, and stands on lines of its own."""
        from evolvable_tools.verbs import proposal_inbox  # late: a server answers before anybody decides

        ids = _proposal_ids(arguments)
        lines = [f"{str(arguments['action']).capitalize()} {len(ids)} proposed change{'s' * (len(ids) != 1)}?"]
        for identity in ids[:MAX_ASKED]:
            one = proposal_inbox.show_proposal(self._library, identity)
            lines.append(f"{identity}. {one.ref}: {_quoted_line(one.reason, 200)}")
            if one.grounds is not None:
                lines += [
                    f"   {q.origin}, turn {q.turn}: “{_quoted_line(q.quote, 120)}”" for q in one.grounds.evidence[:3]
                ]
            lines += [f"   scan: {_quoted_line(str(finding), 200)}" for finding in one.findings[:3]]
            lines.append((one.diff or "")[: 3_000 // min(len(ids), MAX_ASKED)])
        if arguments.get("files"):
            lines.append(f"With other files than proposed: {_quoted_line(', '.join(arguments['files']), 200)}")
            lines += [f"{path}:\n{str(text)[:1_500]}" for path, text in list(arguments["files"].items())[:4]]
        return "\n".join(lines)


def _proposal_ids(arguments: Mapping[str, Any]) -> list[int]:
    several, one = arguments.get("proposal_ids"), arguments.get("proposal_id")
    try:
        return [int(identity) for identity in several or ([one] if one is not None else [])]
    except (TypeError, ValueError):
        raise InvalidArgument("proposal_id is a number.", "review_inbox without arguments lists them.") from None


def _quoted_line(text: str, most: int) -> str:
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= most else f"{line[:most]}…"


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


class ApprovalGate:
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
            return await self._answered(json.loads(context.request_state), elicitation_action(context, answer))
        result = await call(tool, arguments, context)
        if not isinstance(result, types.CallToolResult) or result.is_error:
            return result
        proposed = result.structured_content or {}
        if not _pending_ids(proposed):
            return result
        if self._library.lock is not None:
            return _kept_result(proposed, "Approvals are locked, so no answer in a client decides. Nothing changed")
        if not may_ask(context):
            return await self._answered(proposed, None)
        question = await run_sync(self._question, tool, proposed)
        if modern:
            requests: types.InputRequests = {_KEY: elicitation_request(context, question)}
            return types.InputRequiredResult(input_requests=requests, request_state=json.dumps(proposed))
        return await self._answered(proposed, elicitation_action(context, await elicit_confirmation(context, question)))

    def _question(self, tool: str, proposed: Mapping[str, Any]) -> str:
        """Returns what a person is asked. What an agent wrote is cut, and stands on a line of its own."""
        from evolvable_tools.verbs import proposal_inbox  # late: a server answers before anybody is asked

        shown = [
            proposal_inbox.show_proposal(self._library, identity) for identity in _pending_ids(proposed)[:MAX_SHOWN]
        ]
        verbs = {"restore_resource": "bring back an old version of", "undo": "take back a change of"}
        lines = []
        for one in shown:
            verb = "remove" if one.removes else verbs.get(tool, "change" if one.base else "create")
            lines.append(f"An agent wants to {verb} {one.ref}" + (f" (version {one.base})." if one.base else "."))
        more = len(_pending_ids(proposed)) - len(shown)
        lines += [f"And {more} more."] * (more > 0)
        lines.append(f"Its reason: {_reason_line(shown[0].reason)}")
        worst = [found for one in shown for found in _worst_first(one.findings)[:MAX_SHOWN]]
        lines += [f"A scan found: {_reason_line(str(found))}" for found in worst]
        changes = "\n".join(one.diff or "" for one in shown if not one.removes)
        if changes:
            lines.append(changes[:MAX_DIFF] + ("\n[cut]" if len(changes) > MAX_DIFF else ""))
        return "\n".join(
            [*lines, f"If you do not accept, nothing changes and it waits as {_named(_pending_ids(proposed))}."]
        )

    async def _answered(self, proposed: dict[str, Any], action: str | None) -> types.CallToolResult:
        if action == "accept":
            from evolvable_tools.verbs import proposal_inbox

            try:
                decided = await run_sync(proposal_inbox.approve_as_asked, self._library, _pending_ids(proposed), _HOW)
            except EvolvableError as error:
                return _kept_result(proposed, f"It was approved, but could not be made: {error.text} Nothing changed")
            return _result(_approved_result(proposed, decided))
        return _kept_result(proposed, f"{_ANSWERS[action]}. Nothing changed")


def _pending_ids(proposed: Mapping[str, Any]) -> list[int]:
    one = proposed.get("proposal_id")
    return [one] if one is not None else list(proposed.get("proposal_ids", ()))


def _approved_result(proposed: dict[str, Any], decided: "Sequence[Decided]") -> dict[str, Any]:
    """Returns the result of the call as it is after its approval."""
    warnings = [*_without_waiting(proposed["warnings"]), *(text for one in decided for text in one.warnings)]
    if "proposal_ids" in proposed:
        restored = [f"{one.ref}@{one.version}" if one.version else f"{one.ref} removed" for one in decided]
        return proposed | {"operation": decided[0].operation, "restored": restored, "warnings": warnings}
    return proposed | {"operation": decided[0].operation, "version": decided[0].version, "warnings": warnings}


def _kept_result(proposed: dict[str, Any], why: str) -> types.CallToolResult:
    where = f"{why}; the change waits in the inbox for a person, as {_named(_pending_ids(proposed))}. Go on without it."
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


def _reason_line(text: str) -> str:
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= MAX_REASON else line[:MAX_REASON] + "..."


def _result(structured: dict[str, Any]) -> types.CallToolResult:
    text = json.dumps(structured, indent=2, ensure_ascii=False)
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=structured)


def add_approvals(server: LibraryServer, library: Library) -> None:
    """Makes the server ask about changes that would wait."""
    server.approvals = ApprovalGate(library)
