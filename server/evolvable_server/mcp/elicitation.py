"""Ask the person at the client for a yes, and act on changes and decisions only after one.

`confirm` puts the question: in the protocol with a handshake in the middle of the call, in the
modern protocol by ending the call, which the client then repeats with the answer. Clients without a
person answer by themselves (`claude -p` cancels, `codex exec` declines).

A `ConfirmationGate` asks before the call. The `ApprovalGate` makes the call first:
`approval_policy` decides there which change becomes a proposal, which no answer, client or crash
can lose. Only "accept" publishes the proposal; otherwise the agent reads where it waits.
"""

import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import mcp_types as types
from anyio import BrokenResourceError, ClosedResourceError
from anyio.to_thread import run_sync
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from evolvable_server.clients import CODEX, VSCODE, why_unattended
from evolvable_server.clients.client import Client
from evolvable_server.grants import Permission
from evolvable_server.mcp.argument_forms import files_asked_about
from evolvable_server.mcp.call import Call, CallSessions, conversation_of, name_of, permissions_of
from evolvable_server.mcp.results import error_result, structured_result
from evolvable_store import Actor, Principal
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.resource import Ref
from evolvable_tools import Caller, Library, verbs

if TYPE_CHECKING:
    from evolvable_tools.scan import Finding
    from evolvable_tools.verbs import Decided, UnseenChange, WaitingProposal


log = logging.getLogger(__name__)

# Most clients show a form without a field as the question with buttons. VS Code shows one question
# for each field, and of a form without any nothing, while the call waits. So it gets one field, in
# which only a chosen yes counts: who skips the question there accepts the form without a value.
# Codex gets the same form: with the approval policy `never` and no sandbox it accepts every form
# without a field, and no person sees the question.
_FIELD = "approve"
_NO_FIELD: dict[str, Any] = {"type": "object", "properties": {}}
_NO, _YES = "no", "yes"  # VS Code preselects the first
_ONE_FIELD: dict[str, Any] = {
    "type": "object",
    "properties": {_FIELD: {"type": "string", "enum": [_NO, _YES], "title": "Do you approve?"}},
    "required": [_FIELD],
}


def may_ask(context: Context[Any, Any]) -> bool:
    """Return whether the client shows questions and its bearer may decide."""
    capabilities = context.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    # A bare `elicitation: {}` means forms: the only shape before there were modes.
    offered = elicitation is not None and (elicitation.form is not None or elicitation.url is None)
    return offered and Permission.APPROVE in permissions_of(context.request_context.request)


class Unattended(str):
    """Why no answer in this client counts as a person's."""


async def confirm(
    context: Context[Any, Any], key: str, question: Callable[[], str], state: str
) -> str | types.InputRequiredResult | None:
    """Ask the person at the client.

    Args:
        key: Name of the question between two calls of the modern protocol.
        question: Called on a thread, and only when the client can show a question.
        state: What the client hands back with the answer, as `context.request_state`.

    Returns:
        accept, decline or cancel. Unattended when no answer can be a person's. None when the client
        cannot be asked, or gives no readable answer. An InputRequiredResult when the call has to
        end with the question.
    """
    if not has_answer(context) and not may_ask(context):
        return None
    # Over HTTP the bearer's permission decides, and the client runs elsewhere.
    local = name_of(context.request_context.request) is None
    if local and (why := await run_sync(why_unattended)) is not None:
        return Unattended(why)
    if has_answer(context):
        return _read_action(context, (context.input_responses or {}).get(key))
    message, form = _make_message_and_form(context, await run_sync(question))
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        request = types.ElicitRequest(
            params=types.ElicitRequestFormParams(message=message, requested_schema=form)
        )
        return types.InputRequiredResult(input_requests={key: request}, request_state=state)
    # A connection without a way back during a call.
    if not context.session.can_send_request:
        return None
    try:
        return _read_action(
            context, await context.session.elicit_form(message, form, context.request_id)
        )
    # A client that cannot answer must not make the call fail.
    except (
        MCPError,
        ValidationError,
        RuntimeError,
        ClosedResourceError,
        BrokenResourceError,
    ) as error:
        log.warning("the client did not answer a question: %s", ascii(str(error))[:200])
        return None


def has_answer(context: Context[Any, Any]) -> bool:
    """Return whether this call repeats one that ended with a question."""
    return (
        context.protocol_version in MODERN_PROTOCOL_VERSIONS and context.request_state is not None
    )


def _read_action(context: Context[Any, Any], answer: Any) -> str | None:
    """Return what a client's answer means: accept, decline or cancel; None when it is no answer."""
    if not isinstance(answer, types.ElicitResult):
        return None
    # These two clients get the form with a field.
    if answer.action != "accept" or not (_is_client(VSCODE, context) or _is_client(CODEX, context)):
        return answer.action
    chosen = (answer.content or {}).get(_FIELD)
    return "accept" if chosen == _YES else "decline" if chosen == _NO else "cancel"


def _make_message_and_form(context: Context[Any, Any], question: str) -> tuple[str, dict[str, Any]]:
    """Return the message and the form of a question.

    VS Code renders Markdown, so there the message is a code block.
    """
    if _is_client(CODEX, context):
        return question, _ONE_FIELD
    if not _is_client(VSCODE, context):
        return question, _NO_FIELD
    # A longer fence than any in the text, so that no text can end the block.
    longest = max(map(len, re.findall("`+", question)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}diff\n{question}\n{fence}", _ONE_FIELD


def _is_client(client: Client, context: Context[Any, Any]) -> bool:
    params = context.session.client_params
    return params is not None and params.client_info.name.lower().startswith(tuple(client.called))


asked_about: ContextVar[str] = ContextVar("asked_about", default="")
"""What the question showed whose yes the running call follows; '' without one."""


class ConfirmationGate(ABC):
    """A decision that needs a person's yes before the call; over HTTP the bearer's permission
    replaces the person.
    """

    locked: bool = False
    """Whether approvals are locked: then no answer in a client decides anything."""

    key: str
    """Name of the question between two calls of the modern protocol."""

    unconfirmed: str
    """The text that an agent reads without a yes, after the reason.

    It says what only a person does and what stays, and never names a command.
    """

    @abstractmethod
    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call needs a yes."""

    def shown_state(self, arguments: Mapping[str, Any]) -> str:
        """Return the state that the question shows.

        The call checks it after a yes, so that the yes is for what the person saw.
        """
        return self.key

    @abstractmethod
    def question(self, arguments: Mapping[str, Any]) -> str:
        """Return the question. Raise EvolvableError when the call could not succeed."""

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Make the call when a person says yes, or when its bearer may decide."""
        if self.locked:
            return self._refuse("Approvals are locked, so no answer in a client decides")
        if not has_answer(context) and not may_ask(context):
            # A bearer's permission replaces the person.
            if name_of(context.request_context.request) is not None:
                return await call(tool, arguments, context)
            return self._refuse("No person can be asked through this client")
        try:
            if has_answer(context):
                # The client hands back what the question showed; the head may have moved since.
                state = context.request_state or ""
            else:
                state = await run_sync(self.shown_state, arguments)
            answer = await confirm(context, self.key, partial(self.question, arguments), state)
        except EvolvableError as error:
            return error_result(error.text)
        if isinstance(answer, types.InputRequiredResult):
            return answer
        if answer == "accept":
            token = asked_about.set(state)
            try:
                return await call(tool, arguments, context)
            finally:
                asked_about.reset(token)
        return self._refuse(_explain_refusal(answer))

    def _refuse(self, why: str) -> types.CallToolResult:
        return error_result(f"{why}, and {self.unconfirmed}")


def cut_line(text: str, most: int) -> str:
    """Return a foreign text as one printable line of at most `most` characters, and an ellipsis
    when it was longer.
    """
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= most else f"{line[:most]}…"


DECIDING = ("approve", "reject")
MAX_ASKED = 10
"""Proposals that one question shows."""


class ProposalGate(ConfirmationGate):
    """Asks the person at the client before a decision about proposals."""

    key = "decide"
    unconfirmed = (
        "only a person decides about proposals. Nothing changed; it waits in the inbox "
        "for a person."
    )

    def __init__(self, library: Library) -> None:
        self._library = library
        self.locked = library.lock is not None

    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call decides about proposals."""
        return tool == "review_inbox" and arguments.get("action") in DECIDING

    def shown_state(self, arguments: Mapping[str, Any]) -> str:
        """Return the versions that the question shows the proposals with, as JSON."""
        ids = _read_proposal_ids(arguments)
        self._library.take_in(
            [self._library.store.backend.proposals.get(identity).ref for identity in ids]
        )
        return json.dumps(verbs.seen_versions(self._library, ids))

    def question(self, arguments: Mapping[str, Any]) -> str:
        """Return the question. Text of others is cut, and has lines of its own."""
        ids, files = _read_proposal_ids(arguments), files_asked_about(arguments)
        action = str(arguments["action"]).capitalize()
        lines = [f"{action} {len(ids)} proposed change{'s' * (len(ids) != 1)}?"]
        for identity in ids[:MAX_ASKED]:
            proposal = verbs.show_proposal(self._library, identity)
            lines.append(f"{identity}. {proposal.ref}: {cut_line(proposal.reason, 200)}")
            if proposal.grounds is not None:
                lines += [
                    f"   {quote.origin}, turn {quote.turn}: “{cut_line(quote.quote, 120)}”"
                    for quote in proposal.grounds.evidence[:3]
                ]
            lines += [
                f"   scan: {cut_line(str(finding), 200)}" for finding in proposal.findings[:3]
            ]
            if proposal.blocked and not files:
                lines.append(f"   {cut_line(proposal.blocked, 400)}")
            if not proposal.blocked and proposal.head != (proposal.base or None):
                lines.append(f"   It is merged with version {proposal.head}.")
            # The differences share the space, so that the question stays readable.
            lines.append((proposal.diff or "")[: 3_000 // min(len(ids), MAX_ASKED)])
        if files:
            lines.append(f"With other files than proposed: {cut_line(', '.join(files), 200)}")
            lines += [f"{path}:\n{str(text)[:1_500]}" for path, text in list(files.items())[:4]]
        return "\n".join(lines)


def _read_proposal_ids(fields: Mapping[str, Any]) -> list[int]:
    """Return the proposals that a call or its result names. Raise InvalidArgument."""
    several, single = fields.get("proposal_ids"), fields.get("proposal_id")
    try:
        return [int(identity) for identity in several or ([single] if single is not None else [])]
    except (TypeError, ValueError):
        raise InvalidArgument(
            "proposal_id is a number.", "review_inbox without arguments lists them."
        ) from None


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


def _explain_refusal(answer: str | None) -> str:
    if isinstance(answer, Unattended):
        return f"No answer in this client counts as a person's: {answer}"
    return _ANSWERS[answer]


class ApprovalGate:
    """Asks the person at the client about changes of one library that would wait in the inbox."""

    def __init__(self, library: Library, caller: Caller, sessions: CallSessions) -> None:
        self._library, self._caller, self._sessions = library, caller, sessions

    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call may lead to a change that waits.

        A call that only proposes is not asked about.
        """
        # The arguments are not validated yet, and some clients write booleans as texts or numbers.
        return tool in CHANGES and arguments.get("propose") not in (True, "true", 1)

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Make the call; where its change waits, ask, and publish it when the answer is yes.

        call: makes a call without asking. An error of the call is its result.
        """
        if has_answer(context):
            # The call was made before the question, and must not be made again.
            proposed = json.loads(context.request_state or "")
        else:
            result = await call(tool, arguments, context)
            if not isinstance(result, types.CallToolResult) or result.is_error:
                return result
            proposed = result.structured_content or {}
            if not _read_proposal_ids(proposed):
                return result
            # Nothing can be approved here, so no question is put.
            if self._library.lock is not None:
                return _make_waiting_result(
                    proposed,
                    "Approvals are locked, so no answer in a client decides. Nothing changed",
                )
        answer = await confirm(
            context, _KEY, partial(self._question, tool, proposed), json.dumps(proposed)
        )
        if isinstance(answer, types.InputRequiredResult):
            return answer
        if answer != "accept":
            return _make_waiting_result(proposed, f"{_explain_refusal(answer)}. Nothing changed")
        return await self._publish(proposed, arguments, context)

    def _question(self, tool: str, proposed: Mapping[str, Any]) -> str:
        """Return the question. Text of an agent is cut, and has a line of its own."""
        ids = _read_proposal_ids(proposed)
        proposals = [verbs.show_proposal(self._library, identity) for identity in ids[:MAX_SHOWN]]
        lines = []
        for proposal in proposals:
            action = _name_action(tool, proposal)
            version = f" (version {proposal.base})" if proposal.base else ""
            lines.append(f"An agent wants to {action} {proposal.ref}{version}.")
        more = len(ids) - len(proposals)
        if more:
            lines.append(f"And {more} more.")
        lines.append(f"Its reason: {cut_line(proposals[0].reason, MAX_REASON)}")
        for proposal in proposals:
            worst = _sort_worst_first(proposal.findings)[:MAX_SHOWN]
            lines += [f"A scan found: {cut_line(str(finding), MAX_REASON)}" for finding in worst]
        changes = "\n".join(proposal.diff or "" for proposal in proposals if not proposal.removes)
        if changes:
            lines.append(changes[:MAX_DIFF] + ("\n[cut]" if len(changes) > MAX_DIFF else ""))
        lines.append(
            f"If you do not accept, nothing changes and it waits as {_name_proposals(ids)}."
        )
        return "\n".join(lines)

    async def _publish(
        self, proposed: dict[str, Any], arguments: Mapping[str, Any], context: Context[Any, Any]
    ) -> types.CallToolResult:
        try:
            conversation = conversation_of(self._caller, context.request_context, self._sessions)
            ids = _read_proposal_ids(proposed)
            decided = await run_sync(verbs.approve_as_asked, self._library, ids, _HOW, conversation)
        except EvolvableError as error:
            return _make_waiting_result(
                proposed, f"It was approved, but could not be made: {error.text} Nothing changed"
            )
        result = _make_approved_result(proposed, decided)
        # The result of an undo lists the operations that it took back.
        if "undid" in result:
            result["undid"] = await run_sync(
                verbs.operations_undone,
                self._library,
                arguments.get("operation"),
                arguments.get("session"),
            )
        return structured_result(result)


def _name_action(tool: str, proposal: "WaitingProposal") -> str:
    """Return the verb of the question for a change that a tool proposed."""
    if proposal.removes:
        return "remove"
    if tool == "restore_resource":
        return "bring back an old version of"
    if tool == "undo":
        return "take back a change of"
    return "change" if proposal.base else "create"


def _make_approved_result(proposed: dict[str, Any], decided: "Sequence[Decided]") -> dict[str, Any]:
    """Return the result of the call as it is after its approval."""
    warnings = [
        *_drop_waiting_notice(proposed["warnings"]),
        *(text for decision in decided for text in decision.warnings),
    ]
    if "proposal_ids" in proposed:
        restored = [
            f"{decision.ref}@{decision.version}" if decision.version else f"{decision.ref} removed"
            for decision in decided
        ]
        return proposed | {
            "operation": decided[0].operation,
            "restored": restored,
            "warnings": warnings,
            "waiting": [],
        }
    return proposed | {
        "operation": decided[0].operation,
        "version": decided[0].version,
        "warnings": warnings,
    }


def _make_waiting_result(proposed: dict[str, Any], why: str) -> types.CallToolResult:
    proposals = _name_proposals(_read_proposal_ids(proposed))
    notice = f"{why}; the change waits in the inbox for a person, as {proposals}. Go on without it."
    warnings = [*_drop_waiting_notice(proposed["warnings"]), notice]
    return structured_result(proposed | {"warnings": warnings})


def _drop_waiting_notice(warnings: Sequence[str]) -> list[str]:
    """Return the warnings without the one that says that nothing changed.

    The answer says it in more detail.
    """
    return [line for line in warnings if not line.startswith(_NOTHING)]


def _name_proposals(ids: Sequence[int]) -> str:
    return f"proposal{'s' * (len(ids) > 1)} {', '.join(map(str, ids))}"


def _sort_worst_first(findings: "Sequence[Finding]") -> "list[Finding]":
    """Return the findings, the most severe first: clients show the first lines of a question alone.

    Of equal severity, findings in a line of a file precede capabilities of the resource, and what a
    command does precedes where it connects to.
    """
    if not findings:
        return []
    ranks = {severity: rank for rank, severity in enumerate(type(findings[0].severity))}

    def order(finding: "Finding") -> tuple[int, bool, bool]:
        is_command = finding.rule.startswith("command.")
        return ranks[finding.severity], not finding.path, not is_command

    return sorted(findings, key=order)


def unseen_in(
    library: Library, caller: Caller, ref: str, version: object = None
) -> "UnseenChange | None":
    """Return the change that nobody looked at in the resource that a call names, if any.

    version: the version that the call names. A person is asked about the newest one alone.
    """
    try:
        parsed_ref = Ref.parse(ref)
    except EvolvableError:
        return None  # the call says why
    head = library.store.head_or_none(parsed_ref.at(None), caller.scopes)
    if head is None or head.version is None:
        return None
    if (version or parsed_ref.version or head.latest) != head.latest:
        return None
    return verbs.unseen_change(library, caller, head)


def approve_looked(library: Library, caller: Caller, trees: Mapping[str, str]) -> None:
    """Record the yes of the person at a caller's client to these contents: the tree by its ref.

    What changed while the person read is not approved.
    """
    person = replace(caller, actor=Actor.HUMAN, principal=Principal.PERSON, via="elicitation")
    try:
        verbs.approve_seen(library, person, trees)
    except EvolvableError as error:
        log.info("an answer in a client approved nothing: %s", error)
