"""A conversation with tools, over each protocol: Anthropic's messages, OpenAI's chat completions and responses.

Nothing is asked again here: the caller counts its trials and repeats them.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from evolvable_tools.llm.anthropic_model import KEY_HEADER as ANTHROPIC_HEADER
from evolvable_tools.llm.api_model import (
    MILLION,
    NO_KEY,
    AnswerTooLarge,
    answering_model,
    async_http_client,
    broke_off,
    is_key,
    load_sdk,
    said_in,
    token_count,
)
from evolvable_tools.llm.language_model import ModelAttempt, ProviderError, printable_line
from evolvable_tools.llm.openai_model import KEY_HEADER as OPENAI_HEADER
from evolvable_tools.llm.openai_model import RESPONSES, is_openai, limit_name

MAX_RETRY_AFTER = 3_600.0
"""Seconds at most that an API can ask to wait."""

_THROTTLED = (429, 503, 529)


@dataclass(frozen=True, slots=True)
class ConversationSettings:
    """What a conversation is held with. tools: name, description and input_schema of each.

    name: of the model in records, by default `model`. price: US dollars of a million tokens in and out, None where it
    is unknown.
    """

    protocol: str
    address: str
    model: str
    key: str
    system: str
    prompt: str
    tools: Sequence[Mapping[str, Any]]
    max_tokens: int
    timeout: float
    proxy: str | None = None
    name: str = ""
    price: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool that the model uses. `input` is what the model wrote, None when it is no JSON."""

    id: str
    name: str
    input: Any


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One answer. goes_on: the model wants to go on without a result. refused: it declined. by: the model it names."""

    text: str
    uses: tuple[ToolUse, ...]
    input_tokens: int | None
    output_tokens: int | None
    goes_on: bool = False
    refused: bool = False
    by: str = ""


class TurnFailed(Exception):
    """An API gave no answer. status: of HTTP, None without one. retry_after: seconds it asks to wait, 0 when it
    throttles without saying how long, None when it does neither. outcome: as in an attempt. charged: whether the
    provider may have charged for it. The text holds no key."""

    def __init__(
        self,
        text: str,
        status: int | None = None,
        retry_after: float | None = None,
        *,
        outcome: str = "no message",
        charged: bool = True,
    ) -> None:
        super().__init__(text)
        self.status, self.retry_after, self.outcome, self.charged = status, retry_after, outcome, charged


class Conversation(Protocol):
    """A conversation that was opened with its prompt. attempts: its requests so far, failed ones too."""

    attempts: list[ModelAttempt]

    async def __aenter__(self) -> Self:
        """Open the connection."""

    async def __aexit__(self, *error: object) -> None:
        """Close it."""

    async def turn(self) -> ModelTurn:
        """Return the next answer. Raises TurnFailed."""

    def add_results(self, results: Sequence[tuple[ToolUse, str, bool]]) -> None:
        """Give the results of the tools that the last answer uses: each text, and whether it is an error."""


def open_conversation(settings: ConversationSettings) -> Conversation:
    """Return a conversation over the protocol of its settings. Raises TurnFailed without a usable key or package."""
    needs = settings.protocol == "anthropic" or is_openai(settings.address)
    if (needs or settings.key) and not is_key(settings.key):
        raise TurnFailed("there is no API key, or something that is none")
    kinds: dict[str, type[_Conversation]] = {"anthropic": _Messages, RESPONSES: _Responses}
    return kinds.get(settings.protocol, _Chat)(settings)


class _Conversation:
    """What the protocols share: the client, and what becomes of its errors."""

    package, client, key_header = "openai", "AsyncOpenAI", OPENAI_HEADER

    def __init__(self, settings: ConversationSettings) -> None:
        self._settings = settings
        prompt = settings.prompt.encode("utf-8", "replace").decode("utf-8")
        self._messages: list[Any] = [{"role": "user", "content": prompt}]
        self._client: Any = None
        self.attempts: list[ModelAttempt] = []

    async def __aenter__(self) -> Self:
        own = self._settings
        try:
            http = async_http_client(self.key_header, own.key, own.proxy)
            options: dict[str, Any] = {"timeout": own.timeout, "max_retries": 0, "http_client": http}
            sdk = load_sdk(self.package, own.model)
            self._client = getattr(sdk, self.client)(api_key=own.key or NO_KEY, base_url=own.address, **options)
        except ProviderError as error:
            raise TurnFailed(error.text) from None
        except Exception as error:  # the HTTP library's own errors for an address or a proxy that is none
            raise self._failed(error) from None
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._client is not None:
            await self._client.close()

    async def turn(self) -> ModelTurn:
        """Return the next answer. Raises TurnFailed. Each attempt is noted, also one that is cancelled."""
        began = time.monotonic()
        outcome, by, given, got = "timeout", "", None, None
        try:
            turn = await self._ask()
            outcome, by = "refused to answer" if turn.refused else "answered", turn.by
            given, got = turn.input_tokens, turn.output_tokens
            return turn
        except TurnFailed as error:
            outcome = error.outcome
            raise
        except TimeoutError:
            raise
        # Each SDK has error classes of its own, and some answers that are none fail elsewhere in it.
        except Exception as error:
            failed = self._failed(error)
            outcome, (given, got) = failed.outcome, (None, None) if failed.charged else (0, 0)
            raise failed from None
        finally:
            self._note(outcome, by, given, got, time.monotonic() - began)

    def _note(self, outcome: str, by: str, given: int | None, got: int | None, seconds: float) -> None:
        own, known = self._settings, given is not None and got is not None
        given = self._most_input() if given is None else given
        got = own.max_tokens if got is None else got
        cost = (given * own.price[0] + got * own.price[1]) / MILLION if own.price is not None else None
        name, number = own.name or own.model, len(self.attempts) + 1
        self.attempts.append(ModelAttempt(name, number, outcome, by, given, got, known, cost, round(seconds, 3)))

    def _most_input(self) -> int:
        """Return the most tokens that the conversation so far can have."""
        sent = [{"role": "system", "content": self._settings.system}, *self._settings.tools, *self._messages]
        # A token has two bytes or more in every script but rare ones; JSON's escapes only add to them.
        return len(json.dumps(sent, default=str)) // 2 + 500

    def _failed(self, error: Exception) -> TurnFailed:
        status = getattr(error, "status_code", None)
        if isinstance(status, int):
            text, wait = self._safe(f"{status}: {said_in(error)}"), _retry_after(error, status)
            return TurnFailed(text, status, wait, outcome=f"status {status}", charged=False)
        large = isinstance(error.__cause__, AnswerTooLarge)
        cause = error.__cause__ if large else error
        outcome, charged = ("too large", True) if large else broke_off(error)
        return TurnFailed(self._safe(f"{type(cause).__name__}: {cause}"), outcome=outcome, charged=charged)

    def _safe(self, text: str) -> str:
        key = self._settings.key
        return printable_line(text.replace(key, "[key]") if key else text)

    async def _ask(self) -> ModelTurn:
        raise NotImplementedError

    def add_results(self, results: Sequence[tuple[ToolUse, str, bool]]) -> None:
        """Give the results of the tools that the last answer uses."""
        raise NotImplementedError


class _Messages(_Conversation):
    """Anthropic's messages."""

    package, client, key_header = "anthropic", "AsyncAnthropic", ANTHROPIC_HEADER

    async def _ask(self) -> ModelTurn:
        own = self._settings
        message = await self._client.messages.create(
            model=own.model,
            max_tokens=own.max_tokens,
            system=[{"type": "text", "text": own.system, "cache_control": {"type": "ephemeral"}}],
            messages=self._messages,
            tools=[dict(tool) for tool in own.tools],
        )
        if not isinstance(getattr(message, "content", None), list):
            raise TurnFailed("the API answered with something that is no message")
        given, got = _tokens(message, "input_tokens", "output_tokens")
        usage = getattr(message, "usage", None)
        for name in ("cache_creation_input_tokens", "cache_read_input_tokens"):
            given = None if given is None else given + (token_count(getattr(usage, name, None)) or 0)
        uses = tuple(ToolUse(one.id, one.name, one.input) for one in message.content if one.type == "tool_use")
        self._messages.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
        text = "".join(block.text for block in message.content if block.type == "text")
        stop = message.stop_reason
        uses = uses if stop == "tool_use" else ()
        goes_on, refused = stop == "pause_turn", stop == "refusal"
        return ModelTurn(text, uses, given, got, goes_on=goes_on, refused=refused, by=answering_model(message))

    def add_results(self, results: Sequence[tuple[ToolUse, str, bool]]) -> None:
        """Give the results of the tools that the last answer uses."""
        blocks = [
            {"type": "tool_result", "tool_use_id": use.id, "content": said, "is_error": wrong}
            for use, said, wrong in results
        ]
        self._messages.append({"role": "user", "content": blocks})


class _Chat(_Conversation):
    """OpenAI's chat completions."""

    async def _ask(self) -> ModelTurn:
        own = self._settings
        tools: Any = [
            {
                "type": "function",
                "function": {"name": one["name"], "description": one["description"], "parameters": one["input_schema"]},
            }
            for one in own.tools
        ]
        answer = await self._client.chat.completions.create(
            model=own.model,
            messages=[{"role": "system", "content": own.system}, *self._messages],
            tools=tools,
            **{limit_name(own.address): own.max_tokens},
        )
        choices: Any = getattr(answer, "choices", None)
        message = getattr(choices[0], "message", None) if isinstance(choices, list) and choices else None
        if message is None:
            raise TurnFailed("the API answered with something that is no message")
        calls = [one for one in (message.tool_calls or ()) if getattr(one, "type", "") == "function"]
        uses = tuple(ToolUse(str(one.id), str(one.function.name), _arguments(one.function.arguments)) for one in calls)
        said: dict[str, Any] = {"role": "assistant", "content": message.content}
        if calls:
            said["tool_calls"] = [
                {
                    "id": one.id,
                    "type": "function",
                    "function": {"name": one.function.name, "arguments": one.function.arguments},
                }
                for one in calls
            ]
        self._messages.append(said)
        refused = bool(getattr(message, "refusal", None)) or choices[0].finish_reason == "content_filter"
        text = message.content if isinstance(message.content, str) else ""
        tokens = _tokens(answer, "prompt_tokens", "completion_tokens")
        return ModelTurn(text, uses, *tokens, refused=refused, by=answering_model(answer))

    def add_results(self, results: Sequence[tuple[ToolUse, str, bool]]) -> None:
        """Give the results of the tools that the last answer uses."""
        for use, said, wrong in results:
            text = f"Error: {said}" if wrong else said
            self._messages.append({"role": "tool", "tool_call_id": use.id, "content": text})


class _Responses(_Conversation):
    """OpenAI's responses. Nothing is stored at the provider: each request holds the whole conversation."""

    async def _ask(self) -> ModelTurn:
        own = self._settings
        tools: Any = [
            {
                "type": "function",
                "name": one["name"],
                "description": one["description"],
                "parameters": one["input_schema"],
                "strict": False,
            }
            for one in own.tools
        ]
        answer = await self._client.responses.create(
            model=own.model,
            instructions=own.system,
            input=self._messages,
            tools=tools,
            max_output_tokens=own.max_tokens,
            store=False,
            include=["reasoning.encrypted_content"] if is_openai(own.address) else [],
        )
        items = getattr(answer, "output", None)
        if not isinstance(items, list):
            raise TurnFailed("the API answered with something that is no message")
        self._messages += [one.to_dict(exclude_none=True) for one in items]
        calls = [one for one in items if getattr(one, "type", "") == "function_call"]
        uses = tuple(ToolUse(str(one.call_id), str(one.name), _arguments(one.arguments)) for one in calls)
        parts = [part for one in items if getattr(one, "type", "") == "message" for part in (one.content or ())]
        text = "".join(str(part.text) for part in parts if getattr(part, "type", "") == "output_text")
        refused = any(getattr(part, "type", "") == "refusal" for part in parts)
        tokens = _tokens(answer, "input_tokens", "output_tokens")
        return ModelTurn(text, uses, *tokens, refused=refused, by=answering_model(answer))

    def add_results(self, results: Sequence[tuple[ToolUse, str, bool]]) -> None:
        """Give the results of the tools that the last answer uses."""
        for use, said, wrong in results:
            text = f"Error: {said}" if wrong else said
            self._messages.append({"type": "function_call_output", "call_id": use.id, "output": text})


def _arguments(text: object) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) and text.strip() else {}
    except (ValueError, RecursionError):
        return None


def _tokens(answer: Any, *names: str) -> tuple[int | None, int | None]:
    given, got = (token_count(getattr(getattr(answer, "usage", None), name, None)) for name in names)
    return given, got


def _retry_after(error: Any, status: int) -> float | None:
    """Return the seconds that the API asks to wait, where it does."""
    if status not in _THROTTLED:
        return None
    try:
        return max(0.0, min(float(error.response.headers.get("retry-after", "0")), MAX_RETRY_AFTER))
    except ValueError:  # a date
        return 0.0
