"""The scripted model behind a third API, Chat Completions, which Copilot CLI, OpenCode, Qwen Code
and Droid speak.

A tool of the server is found by the end of its name, as each client puts another prefix before it.
Where a client holds tools back, the model searches for them first, as a real one would.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

from model import Model, Say, Use

SEARCHES = ("tool_search", "ToolSearch")
"""The tools with which a model gets tools that its client holds back."""

JUDGES = ["respond_in_schema"]
"""The tools of a request in which Qwen Code asks its model whether a call may run unasked: the
script judges none.
"""

TRIES = 6
"""How often it searches: the server may be starting."""


class ChatModel(Model):
    """The model with the third API."""

    def chat(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        message, reason = _message(self, request)
        named = {"id": self.name("chatcmpl"), "created": 0, "model": "script"}
        if not request.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            yield {**named, "object": "chat.completion", "choices": [choice], "usage": USAGE}
            return
        calls = [
            {"index": number, **call} for number, call in enumerate(message.get("tool_calls", []))
        ]
        delta = {**message, **({"tool_calls": calls} if calls else {})}
        base = {**named, "object": "chat.completion.chunk"}
        yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
        yield {**base, "choices": [], "usage": USAGE}


USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def _message(model: ChatModel, request: dict[str, Any]) -> tuple[dict[str, Any], str]:
    names = [str(tool.get("function", {}).get("name")) for tool in request.get("tools", [])]
    if names == JUDGES:
        return {"role": "assistant", "content": "ok"}, "stop"
    said = model.waiting.pop() if model.waiting else model.answer(request, _results(request))
    if isinstance(said, Say):
        return {"role": "assistant", "content": said.text}, "stop"
    name, values = _call(model, request, said, names)
    call = {"id": model.name("call"), "type": "function"}
    call["function"] = {"name": name, "arguments": json.dumps(values)}
    return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


def _call(
    model: ChatModel, request: dict[str, Any], said: Use, names: list[str]
) -> tuple[str, dict[str, Any]]:
    """Return the tool to call and what it is given: the wanted one, or the search for it, after
    which it waits.
    """
    if not said.server:
        return said.tool, said.values
    if (found := next((name for name in names if name.endswith(said.tool)), None)) is not None:
        return found, said.values
    searched = [name for name in _called(request).values() if name in SEARCHES]
    wanted = f"{'evolvable___' if 'ToolSearch' in names else 'mcp__evolvable__'}{said.tool}"
    if searched and "tool_call" in names:
        return "tool_call", {"name": wanted, "arguments": said.values}
    search = next((name for name in names if name in SEARCHES), None)
    if search is None or len(searched) >= TRIES * 4:
        return said.tool, said.values  # the client says that there is none
    time.sleep(min(len(searched), 2))
    model.waiting.append(said)
    return search, {"query": f"select:{wanted}"}


def _called(request: dict[str, Any]) -> dict[str, str]:
    """Return the names of the tools that were called, by the ids of the calls."""
    calls = [
        call for message in request.get("messages", []) for call in message.get("tool_calls") or []
    ]
    return {str(call["id"]): str(call["function"]["name"]) for call in calls}


def _results(request: dict[str, Any]) -> list[str]:
    """Return what the tools answered, without what searches for tools did."""
    called = _called(request)
    results = [one for one in request.get("messages", []) if one.get("role") == "tool"]
    return [
        _text(one.get("content"))
        for one in results
        if called.get(str(one.get("tool_call_id"))) not in SEARCHES
    ]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or [] if isinstance(part, dict))
