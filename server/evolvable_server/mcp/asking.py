"""How a question of yes or no is put to the person at a client, and what the answer says, in both eras.

Most clients show a form without a field as the question with buttons. VS Code makes one question of each field: of a
form without any it shows nothing, and the call waits for ever. So it gets a form with one field, in which only a chosen
yes counts: whoever skips the question there accepts the form with nothing filled in. Codex gets the same form: without
a sandbox and with the approval policy `never` it accepts every form without a field by itself, and nobody sees it.
"""

import logging
import re
from types import ModuleType
from typing import Any

import mcp_types as types
from anyio import BrokenResourceError, ClosedResourceError
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from evolvable_server.clients import codex, vscode
from evolvable_server.mcp.bearer import Permission, permissions_of

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


def request(context: Context[Any, Any], question: str) -> types.ElicitRequest:
    """Returns the question as a call of the modern era ends with it."""
    message, form = _put(context, question)
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=form))


async def elicit(context: Context[Any, Any], question: str) -> types.ElicitResult | None:
    """Asks in the middle of a call. Returns the client's answer, None when it gave none that can be read."""
    if not context.session.can_send_request:
        return None
    message, form = _put(context, question)
    try:
        answer: types.ElicitResult = await context.session.elicit_form(message, form, context.request_id)
        return answer
    except (MCPError, ValidationError, RuntimeError, ClosedResourceError, BrokenResourceError) as error:
        log.warning("the client did not answer a question: %s", ascii(str(error))[:200])
        return None


def said(context: Context[Any, Any], answer: Any) -> str | None:
    """Returns what a client's answer means: accept, decline or cancel; None when it is no answer."""
    if not isinstance(answer, types.ElicitResult):
        return None
    if answer.action != "accept" or not (_is(vscode, context) or _is(codex, context)):
        return answer.action
    chosen = (answer.content or {}).get(_FIELD)
    return "accept" if chosen == _YES else "decline" if chosen == _NO else "cancel"


def _put(context: Context[Any, Any], question: str) -> tuple[str, dict[str, Any]]:
    """Returns the message and the form of a question. VS Code renders Markdown; what an agent wrote is to be read."""
    if _is(codex, context):
        return question, _ONE_FIELD
    if not _is(vscode, context):
        return question, _NOTHING_TO_FILL
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", question)), default=0))
    return f"{ticks}diff\n{question}\n{ticks}", _ONE_FIELD


def _is(client: ModuleType, context: Context[Any, Any]) -> bool:
    params = context.session.client_params
    called: tuple[str, ...] = client.CLIENT.called
    return params is not None and params.client_info.name.lower().startswith(called)
