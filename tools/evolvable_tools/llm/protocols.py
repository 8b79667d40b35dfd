"""The protocols of Anthropic and OpenAI, each once: how a request is built, and how its answer is
read.

The packages `anthropic` and `openai` send the requests, with a client of our transport. Servers
that speak OpenAI's protocols are OpenAI's own, and on your machine Ollama, llama.cpp and vLLM.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar

from evolvable_tools.llm.api_failure import NoMessage
from evolvable_tools.llm.language_model import (
    ProviderError,
    Request,
    instructions_with_schema,
    parse_json,
    printable_line,
)
from evolvable_tools.llm.transport import (
    API_KEY,
    BEARER,
    InvalidAddress,
    InvalidProxy,
    RequestRules,
    async_http_client,
    host_of,
    http_client,
    is_key,
    key_header,
)

# Start time: the SDKs, which take a second to import, are imported at the first request.

ANTHROPIC, CHAT, RESPONSES = "anthropic", "openai-chat", "openai-responses"

PROTOCOLS = (ANTHROPIC, CHAT, RESPONSES)

ANTHROPIC_ADDRESS = "https://api.anthropic.com"

_OPENAI_ADDRESS = "https://api.openai.com/v1"

STRUCTURED = ("schema", "object", "text")
"""What an endpoint is asked for: an answer by a JSON schema, any JSON object, or text.

Each answer is checked.
"""

# Given to an SDK if an endpoint needs no key, because an SDK refuses an empty one; it is not sent.
_NO_KEY = "none"


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """The access to a model behind an API. It can be pickled, and hashed.

    name: that a person gave it. address: '' for the provider's own. price: US dollars of a million
    tokens in and out, None where it is unknown. structured: see STRUCTURED. key, proxy: once they
    are resolved.
    """

    name: str
    protocol: str
    model: str
    address: str = ""
    price: tuple[float, float] | None = None
    structured: str = "schema"
    key: str = field(default="", repr=False)
    proxy: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The address that is asked."""
        return self.address or (
            ANTHROPIC_ADDRESS if self.protocol == ANTHROPIC else _OPENAI_ADDRESS
        )

    @property
    def full_name(self) -> str:
        """The name of the model as results carry it."""
        return f"{self.name}:{self.model}"

    def check_key(self, model_name: str) -> None:
        """Raise ProviderError without a usable key, where one is needed."""
        # A key with other characters would appear in the error of the HTTP library.
        if is_key(self.key) or not (self.key or self.protocol == ANTHROPIC or is_openai(self.url)):
            return
        what = "was given a text that cannot be an API key" if self.key else "has no API key"
        hint = f"Give models.{self.name or 'NAME'} of your configuration a key_file or a key_env."
        if self.name == ANTHROPIC:
            hint = "Set ANTHROPIC_API_KEY, or choose another provider."
        raise ProviderError(f"{model_name} {what}.", hint)


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """The content of one request. messages: in the protocol's own form. tools: name, description
    and input_schema of each.

    schema: of the answer, an object; None for any text.
    """

    system: str
    messages: Sequence[Any]
    max_tokens: int
    tools: Sequence[Mapping[str, Any]] = ()
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool that the model uses. `input` is what the model wrote, None when it is no JSON."""

    id: str
    name: str
    input: Any


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One answer. The tokens are None where the API does not say them; by: the model that the
    answer names.

    goes_on: the model wants to go on without a result. refused: it declined, and why. cut_off: at
    the most tokens.
    """

    text: str
    uses: tuple[ToolUse, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    goes_on: bool = False
    refused: bool = False
    why: str = ""
    cut_off: bool = False
    by: str = ""


class ApiProtocol:
    """The base of the protocols.

    A client may be of either kind: an answer of the asynchronous one is awaited.
    """

    package: ClassVar[str] = "openai"
    clients: ClassVar[tuple[str, str]] = ("OpenAI", "AsyncOpenAI")
    key_name: ClassVar[str] = BEARER
    headers: ClassVar[Mapping[str, str]] = {}

    def __init__(self, access: ApiAccess) -> None:
        self.access = access

    def ask(self, client: Any, request: ApiRequest) -> Any:
        """Send a request."""
        raise NotImplementedError

    def read(self, answer: Any) -> ModelTurn:
        """Return what an answer says. Raises NoMessage."""
        raise NotImplementedError

    def history(self, answer: Any) -> list[Any]:
        """Return the messages that an answer stands as in the next request."""
        raise NotImplementedError

    def results(self, results: Sequence[tuple[ToolUse, str, bool]]) -> list[Any]:
        """Return the messages of the results of tools: each text, and whether it is an error."""
        raise NotImplementedError


class AnthropicMessages(ApiProtocol):
    """Anthropic's messages.

    The model gets the schema as such, so it cannot answer otherwise. Instructions are marked for
    the prompt cache, which accepts them from about a thousand tokens on.
    """

    package = "anthropic"
    clients = ("Anthropic", "AsyncAnthropic")
    key_name = API_KEY
    headers: ClassVar[Mapping[str, str]] = {"anthropic-version": "2023-06-01"}

    def ask(self, client: Any, request: ApiRequest) -> Any:
        """Send a request."""
        more: dict[str, Any] = {}
        if request.tools:
            more["tools"] = [dict(tool) for tool in request.tools]
        if request.schema is not None:
            # The API knows a part of JSON schema; the SDK rewrites the rest into descriptions.
            schema = import_module(self.package).transform_schema(_copy_plain(request.schema))
            more["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        return client.messages.create(
            model=self.access.model,
            max_tokens=request.max_tokens,
            system=[
                {"type": "text", "text": request.system, "cache_control": {"type": "ephemeral"}}
            ],
            messages=request.messages,
            **more,
        )

    def read(self, answer: Any) -> ModelTurn:
        """Return what an answer says; thoughts are passed over."""
        blocks, stop = getattr(answer, "content", None), getattr(answer, "stop_reason", None)
        # A refusal and a full answer of thoughts may come without any content.
        if not isinstance(blocks, list) and stop not in ("refusal", "max_tokens"):
            raise NoMessage
        blocks = blocks if isinstance(blocks, list) else []
        usage, details = getattr(answer, "usage", None), getattr(answer, "stop_details", None)
        why = getattr(details, "explanation", None) or getattr(details, "category", None) or ""
        tokens_in, tokens_out = _read_tokens(usage, "input_tokens", "output_tokens")
        cache_created, cache_read = _read_tokens(
            usage, "cache_creation_input_tokens", "cache_read_input_tokens"
        )
        if tokens_in is not None:
            # What is put into the cache costs a quarter more; what is read from it costs less, and
            # counts the same.
            tokens_in += (cache_created or 0) * 5 // 4 + (cache_read or 0)
        uses = [
            ToolUse(block.id, block.name, block.input)
            for block in blocks
            if _type_of(block) == "tool_use"
        ]
        return ModelTurn(
            "".join(str(block.text) for block in blocks if _type_of(block) == "text"),
            # Uses of an answer that was cut off may be incomplete.
            tuple(uses) if stop == "tool_use" else (),
            tokens_in,
            tokens_out,
            goes_on=stop == "pause_turn",
            refused=stop == "refusal",
            why=str(why),
            cut_off=stop == "max_tokens",
            by=_model_of(answer),
        )

    def history(self, answer: Any) -> list[Any]:
        """Return the messages that an answer stands as in the next request."""
        return [{"role": "assistant", "content": [block.to_dict() for block in answer.content]}]

    def results(self, results: Sequence[tuple[ToolUse, str, bool]]) -> list[Any]:
        """Return one message with the results of all tools."""
        blocks = [
            {"type": "tool_result", "tool_use_id": use.id, "content": text, "is_error": wrong}
            for use, text, wrong in results
        ]
        return [{"role": "user", "content": blocks}]


class OpenAIChat(ApiProtocol):
    """OpenAI's chat completions.

    The schema stands in the instructions too: not every server restricts an answer.
    """

    def ask(self, client: Any, request: ApiRequest) -> Any:
        """Send a request."""
        # OpenAI's newer models refuse the older name of the limit, which other servers know.
        limit = "max_completion_tokens" if is_openai(self.access.url) else "max_tokens"
        more: dict[str, Any] = {limit: request.max_tokens}
        if request.tools:
            more["tools"] = [
                {"type": "function", "function": _describe_function(tool)} for tool in request.tools
            ]
        if request.schema is not None and self.access.structured != "text":
            form: dict[str, Any] = {"type": "json_object"}
            if self.access.structured == "schema":
                named_schema = {"name": "answer", "schema": _copy_plain(request.schema)}
                form = {"type": "json_schema", "json_schema": named_schema}
            more["response_format"] = form
        messages = [{"role": "system", "content": _make_instructions(request)}, *request.messages]
        return client.chat.completions.create(model=self.access.model, messages=messages, **more)

    def read(self, answer: Any) -> ModelTurn:
        """Return what an answer says."""
        choices = getattr(answer, "choices", None)
        choice = choices[0] if isinstance(choices, list) and choices else None
        message, stop = getattr(choice, "message", None), getattr(choice, "finish_reason", None)
        if message is None:
            raise NoMessage
        text, declined = getattr(message, "content", None), getattr(message, "refusal", None)
        uses = [
            ToolUse(
                str(call.id), str(call.function.name), _parse_arguments(call.function.arguments)
            )
            for call in _list_calls(message)
        ]
        return ModelTurn(
            text if isinstance(text, str) else "",
            tuple(uses),
            *_read_tokens(getattr(answer, "usage", None), "prompt_tokens", "completion_tokens"),
            refused=bool(declined) or stop == "content_filter",
            why=str(declined or ""),
            cut_off=stop == "length",
            by=_model_of(answer),
        )

    def history(self, answer: Any) -> list[Any]:
        """Return the messages that an answer stands as in the next request."""
        message = answer.choices[0].message
        message_fields: dict[str, Any] = {"role": "assistant", "content": message.content}
        if calls := _list_calls(message):
            message_fields["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
                for call in calls
            ]
        return [message_fields]

    def results(self, results: Sequence[tuple[ToolUse, str, bool]]) -> list[Any]:
        """Return a message for the result of each tool."""
        return [
            {"role": "tool", "tool_call_id": use.id, "content": _result_text(text, wrong)}
            for use, text, wrong in results
        ]


class OpenAIResponses(ApiProtocol):
    """OpenAI's responses.

    Nothing is stored at the provider: each request holds the whole conversation.
    """

    def ask(self, client: Any, request: ApiRequest) -> Any:
        """Send a request."""
        more: dict[str, Any] = {}
        if request.tools:
            # `strict` needs schemas in which every property is required, which those of tools are
            # not.
            more["tools"] = [
                {"type": "function", **_describe_function(tool), "strict": False}
                for tool in request.tools
            ]
            # Nothing is stored at the provider, so the model's reasoning has to travel with the
            # conversation.
            more["include"] = ["reasoning.encrypted_content"] if is_openai(self.access.url) else []
        if request.schema is not None:
            is_object = self.access.structured == "object"
            form: dict[str, Any] = {"type": "json_object" if is_object else "text"}
            if self.access.structured == "schema":
                schema = _copy_plain(request.schema)
                form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": False}
            more["text"] = {"format": form}
        return client.responses.create(
            model=self.access.model,
            instructions=_make_instructions(request),
            input=request.messages,
            max_output_tokens=request.max_tokens,
            store=False,
            **more,
        )

    def read(self, answer: Any) -> ModelTurn:
        """Return what an answer says."""
        items = getattr(answer, "output", None)
        if not isinstance(items, list):
            raise NoMessage
        contents = [item.content for item in items if _type_of(item) == "message"]
        parts = [part for content in contents if isinstance(content, list) for part in content]
        declined = [str(part.refusal) for part in parts if _type_of(part) == "refusal"]
        reason = getattr(getattr(answer, "incomplete_details", None), "reason", None)
        uses = [
            ToolUse(str(item.call_id), str(item.name), _parse_arguments(item.arguments))
            for item in items
            if _type_of(item) == "function_call"
        ]
        return ModelTurn(
            "".join(str(part.text) for part in parts if _type_of(part) == "output_text"),
            tuple(uses),
            *_read_tokens(getattr(answer, "usage", None), "input_tokens", "output_tokens"),
            refused=bool(declined) or reason == "content_filter",
            why=declined[0] if declined else "",
            cut_off=reason == "max_output_tokens",
            by=_model_of(answer),
        )

    def history(self, answer: Any) -> list[Any]:
        """Return the messages that an answer stands as in the next request."""
        return [item.to_dict(exclude_none=True) for item in answer.output]

    def results(self, results: Sequence[tuple[ToolUse, str, bool]]) -> list[Any]:
        """Return a message for the result of each tool."""
        return [
            {"type": "function_call_output", "call_id": use.id, "output": _result_text(text, wrong)}
            for use, text, wrong in results
        ]


_KINDS: dict[str, type[ApiProtocol]] = {
    ANTHROPIC: AnthropicMessages,
    CHAT: OpenAIChat,
    RESPONSES: OpenAIResponses,
}


def protocol_of(access: ApiAccess) -> ApiProtocol:
    """Return the protocol that a model speaks."""
    return _KINDS[access.protocol](access)


def package_of(protocol: str) -> str:
    """Return the name of the package that sends the requests of a protocol."""
    return _KINDS[protocol].package


def open_client(
    access: ApiAccess, timeout: float, model_name: str, *, asynchronous: bool = False
) -> Any:
    """Return the client of an SDK, which asks once and reads no settings of its own.

    timeout: seconds for an answer. model_name: the model in messages. Raises ProviderError without
    a usable key, without the package, and for a proxy or an address that is invalid.
    """
    access.check_key(model_name)
    protocol = protocol_of(access)
    try:
        sdk = import_module(protocol.package)
    except ImportError:
        hint = f"Install it: pip install '.[{protocol.package}]' in your clone."
        raise ProviderError(f"{model_name} needs the package {protocol.package}.", hint) from None
    # The key goes into the header of our transport alone; the SDK's own copy is replaced there.
    headers = {**protocol.headers, **key_header(protocol.key_name, access.key)}
    rules = RequestRules(access.url, headers, access.proxy, timeout)
    try:
        http: Any = async_http_client(rules) if asynchronous else http_client(rules)
    except InvalidAddress:
        hint = (
            "Give one such as https://models.example/v1; other signs in a password are "
            "written with %."
        )
        raise ProviderError(f"{model_name} has an invalid address.", hint) from None
    except InvalidProxy:
        raise ProviderError(
            f"{model_name} has an invalid proxy.", "Correct models.proxy."
        ) from None
    # No retries: ApiModel counts attempts, and repeats only those that were not charged for.
    options: dict[str, Any] = {"timeout": timeout, "max_retries": 0, "http_client": http}
    return getattr(sdk, protocol.clients[asynchronous])(
        api_key=access.key or _NO_KEY, base_url=access.url, **options
    )


def is_openai(address: str) -> bool:
    """Return whether an address is of OpenAI itself, where a key is needed."""
    host = host_of(address).partition(":")[0].lower()
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def user_message(text: str) -> dict[str, Any]:
    """Return the message of a user, which is the same in all protocols."""
    # Lone surrogates cannot be sent as UTF-8.
    return {"role": "user", "content": text.encode("utf-8", "replace").decode("utf-8")}


def _make_instructions(request: ApiRequest) -> str:
    if request.schema is None:
        return request.system
    return instructions_with_schema(Request(request.system, "", request.schema))


def _copy_plain(schema: Mapping[str, Any]) -> Any:
    # Plain dicts and lists: the SDKs do not take every Mapping.
    return json.loads(json.dumps(schema))


def _describe_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": tool["name"],
        "description": tool["description"],
        "parameters": tool["input_schema"],
    }


def _result_text(text: str, wrong: bool) -> str:
    return f"Error: {text}" if wrong else text


def _type_of(part: object) -> object:
    return getattr(part, "type", "")


def _list_calls(message: Any) -> list[Any]:
    # Only functions are offered, so another kind of call has no tool here.
    return [
        call
        for call in (getattr(message, "tool_calls", None) or ())
        if _type_of(call) == "function"
    ]


def _parse_arguments(text: object) -> Any:
    # A call without arguments may have an empty text.
    return parse_json(text) if isinstance(text, str) and text.strip() else {}


def _model_of(answer: object) -> str:
    return printable_line(str(getattr(answer, "model", None) or ""))


def _read_tokens(usage: object, *names: str) -> tuple[int | None, int | None]:
    """Return two numbers of tokens that an API says, None for anything else."""
    tokens_in, tokens_out = (getattr(usage, name, None) for name in names)
    return _check_count(tokens_in), _check_count(tokens_out)


def _check_count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 10**12 else None
