"""Fixtures that ask the client something: elicitation, sampling and roots, in both eras of the
protocol.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import mcp_types as types
from mcp.server.mcpserver import Context

Requests = Mapping[str, types.InputRequest]
Answers = Mapping[str, Any]


def form(message: str, **properties: dict[str, Any]) -> types.ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=schema)
    )


def sample(words: str, max_tokens: int) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=words))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


def content(answer: Any) -> dict[str, Any]:
    return dict(answer.content or {}) if isinstance(answer, types.ElicitResult) else {}


TEXT = {"type": "string"}
NAME = form("What is your name?", name=TEXT)
CONFIRM = form("Please confirm", ok={"type": "boolean"})


# The handshake era: the server sends a request of its own while the tool runs.


def eliciting(**properties: dict[str, Any]) -> Callable[..., Any]:
    """Returns a tool that asks for these properties and says what came back."""

    async def tool(ctx: Context, message: str = "Please fill this in") -> str:
        asked = form(message, **properties).params
        assert isinstance(asked, types.ElicitRequestFormParams)
        answer = await ctx.session.elicit_form(
            asked.message, asked.requested_schema, ctx.request_id
        )
        return (
            f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}"
        )

    return tool


def titled(*pairs: str) -> list[dict[str, str]]:
    return [{"const": value, "title": f"{value} title"} for value in pairs]


DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
ENUMS = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {"type": "string", "oneOf": titled("value1", "value2", "value3")},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2"],
        "enumNames": ["Option One", "Option Two"],
    },
    "untitledMulti": {
        "type": "array",
        "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
    },
    "titledMulti": {"type": "array", "items": {"anyOf": titled("value1", "value2", "value3")}},
}


# 2026-07-28: the result asks, and the client calls again with the answers.


def needing(
    requests: Requests, said: Callable[[Answers], str], state: str | None = None
) -> Callable[..., Any]:
    """Returns a tool that asks until every request is answered, and then says what `said` makes of
    the answers.
    """

    async def tool(ctx: Context) -> str | types.InputRequiredResult:
        answers = ctx.input_responses or {}
        if requests.keys() <= answers.keys() and ctx.request_state == state:
            return said(answers)
        return types.InputRequiredResult(input_requests=dict(requests), request_state=state)

    return tool


async def in_two_rounds(ctx: Context) -> str | types.InputRequiredResult:
    answers, state = ctx.input_responses or {}, json.loads(ctx.request_state or "{}")
    if "name" in state and "step2" in answers:
        return f"{state['name']} likes {content(answers['step2']).get('color')}."
    if state and "step1" in answers:
        state = {"name": content(answers["step1"]).get("name")}
        asked = {"step2": form("Step 2: What is your favorite color?", color=TEXT)}
    else:
        state, asked = {"round": 1}, {"step1": form("Step 1: What is your name?", name=TEXT)}
    return types.InputRequiredResult(input_requests=asked, request_state=json.dumps(state))


async def what_the_client_can(ctx: Context) -> types.InputRequiredResult:
    can = ctx.client_capabilities
    asked: dict[str, types.InputRequest] = {}
    if can and can.sampling is not None:
        asked["sample"] = sample("Say hello", 50)
    if can and can.elicitation is not None:
        asked["ask"] = NAME
    return types.InputRequiredResult(input_requests=asked, request_state="asked")


ASKING: dict[str, Callable[..., Any]] = {
    "test_elicitation": eliciting(username=TEXT, email=TEXT),
    "test_elicitation_sep1034_defaults": eliciting(**DEFAULTS),
    "test_elicitation_sep1330_enums": eliciting(**ENUMS),
    "test_input_required_result_elicitation": needing(
        {"user_name": NAME}, lambda answers: f"Hello, {content(answers['user_name']).get('name')}!"
    ),
    "test_input_required_result_sampling": needing(
        {"capital_question": sample("What is the capital of France?", 100)},
        lambda answers: f"The model said: {answers['capital_question'].content.text}",
    ),
    "test_input_required_result_list_roots": needing(
        {"client_roots": types.ListRootsRequest()},
        lambda answers: f"Roots: {[str(root.uri) for root in answers['client_roots'].roots]}",
    ),
    "test_input_required_result_request_state": needing(
        {"confirm": CONFIRM}, lambda _: "state-ok", "first"
    ),
    "test_input_required_result_tampered_state": needing(
        {"confirm": CONFIRM}, lambda _: "state-ok", "first"
    ),
    "test_input_required_result_multiple_inputs": needing(
        {
            "user_name": NAME,
            "greeting": sample("Generate a greeting", 50),
            "client_roots": types.ListRootsRequest(),
        },
        lambda answers: f"All {len(answers)} answers are here.",
        "first",
    ),
    "test_input_required_result_multi_round": in_two_rounds,
    "test_input_required_result_capabilities": what_the_client_can,
}
