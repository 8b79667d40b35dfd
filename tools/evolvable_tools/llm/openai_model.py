"""A model behind an endpoint that speaks OpenAI's chat completions or responses protocol, through OpenAI's own SDK.

The extra is `openai`. Servers of this kind are OpenAI's own, and on your machine Ollama, llama.cpp and vLLM.
"""

import json
from typing import TYPE_CHECKING, Any

from evolvable_tools.llm.api_model import (
    CUT_OFF,
    CUT_OFF_HINT,
    REFUSAL_HINT,
    ApiModel,
    AttemptFailed,
    Completion,
    answering_model,
    host_of,
    refusal,
    token_count,
)
from evolvable_tools.llm.language_model import Request, instructions_with_schema

if TYPE_CHECKING:
    from openai import OpenAI

ADDRESS = "https://api.openai.com/v1"

KEY_HEADER = "authorization"

CHAT, RESPONSES = "openai-chat", "openai-responses"
"""The protocols."""

STRUCTURED = ("schema", "object", "text")
"""What an endpoint is asked for: an answer by a JSON schema, any JSON object, or text. The answer is checked always."""


class OpenAIModel(ApiModel):
    """A model of such an endpoint. `timeout` is for one attempt, in seconds; `retries` more are made when it helps.

    The schema stands in the instructions too: not every server restricts an answer to it.
    """

    def __init__(
        self,
        api_key: str | None,
        model: str,
        base_url: str = ADDRESS,
        timeout: float = 20.0,
        *,
        protocol: str = CHAT,
        structured: str = "schema",
        retries: int = 1,
        proxy: str | None = None,
        price: tuple[float, float] | None = None,
        name: str = "",
    ) -> None:
        self._protocol, self._structured = protocol, structured
        super().__init__(
            f"{name or 'openai'}:{model}",
            api_key,
            model,
            base_url,
            timeout,
            retries=retries,
            proxy=proxy,
            price=price,
            key_hint=f"Give models.{name or 'NAME'} of your configuration a key_file or a key_env.",
            needs_key=is_openai(base_url),
        )

    def _connect(self) -> "OpenAI":
        self._check_key()
        client: OpenAI = self._open_sdk("openai", "OpenAI", KEY_HEADER)
        return client

    def _complete(self, client: "OpenAI", request: Request) -> Completion:
        """Ask once. Raises AttemptFailed."""
        ask = self._ask_responses if self._protocol == RESPONSES else self._ask_chat
        try:
            return ask(client, request, request.data.encode("utf-8", "replace").decode("utf-8"))
        except AttemptFailed:
            raise
        except Exception as error:  # some answers that are none fail with no error of the SDK's own
            raise self._failed(error) from None

    def _ask_chat(self, client: "OpenAI", request: Request, data: str) -> Completion:
        messages: Any = [
            {"role": "system", "content": instructions_with_schema(request)},
            {"role": "user", "content": data},
        ]
        schema = {"name": "answer", "schema": json.loads(json.dumps(request.schema))}
        form: Any = {"type": "json_schema", "json_schema": schema}
        more: dict[str, Any] = {limit_name(self._address): request.max_tokens}
        if self._structured != "text":
            more["response_format"] = form if self._structured == "schema" else {"type": "json_object"}
        answer = client.chat.completions.create(model=self._model, messages=messages, **more)
        choice = _first(getattr(answer, "choices", None))
        message = getattr(choice, "message", None)
        if message is None:
            raise self._no_message()
        return self._completion(
            answer,
            _text(getattr(message, "content", None)),
            getattr(message, "refusal", None),
            str(getattr(choice, "finish_reason", "")),
            ("prompt_tokens", "completion_tokens"),
        )

    def _ask_responses(self, client: "OpenAI", request: Request, data: str) -> Completion:
        schema = json.loads(json.dumps(request.schema))
        form: Any = {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": False}}
        if self._structured != "schema":
            form = {"format": {"type": "json_object" if self._structured == "object" else "text"}}
        answer = client.responses.create(
            model=self._model,
            instructions=instructions_with_schema(request),
            input=data,
            max_output_tokens=request.max_tokens,
            text=form,
            store=False,
        )
        items = getattr(answer, "output", None)
        if not isinstance(items, list):
            raise self._no_message()
        parts = [
            part
            for item in items
            if getattr(item, "type", "") == "message"
            for part in (item.content if isinstance(item.content, list) else ())
        ]
        text = "".join(_text(part.text) for part in parts if getattr(part, "type", "") == "output_text")
        declined = next((part.refusal for part in parts if getattr(part, "type", "") == "refusal"), None)
        reason = getattr(getattr(answer, "incomplete_details", None), "reason", None)
        stop = {"max_output_tokens": "length", "content_filter": "content_filter"}.get(str(reason), "stop")
        return self._completion(answer, text, declined, stop, ("input_tokens", "output_tokens"))

    def _completion(self, answer: Any, text: str, declined: object, stop: str, names: tuple[str, str]) -> Completion:
        """Return the completion. names: of the tokens in and out, in this protocol."""
        given, got = (token_count(getattr(getattr(answer, "usage", None), name, None)) for name in names)
        fault, hint = "", ""
        if declined or stop == "content_filter":
            fault, hint = refusal(self._safe(str(declined or ""))), REFUSAL_HINT
        elif stop == "length":
            fault, hint = CUT_OFF, CUT_OFF_HINT
        model = answering_model(answer)
        return Completion((text,), model, given, got, fault, hint)

    def _no_message(self) -> AttemptFailed:
        text = f"{self.name} answered with something that is no message."
        return AttemptFailed(text, "Check the address.", "no message", charged=True)


def is_openai(address: str) -> bool:
    """Return whether an address is of OpenAI itself, where a key is needed."""
    host = host_of(address).partition(":")[0].lower()
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def limit_name(address: str) -> str:
    """Return the name of the longest answer in the chat protocol: OpenAI's newer models refuse the older name, which
    other servers know."""
    return "max_completion_tokens" if is_openai(address) else "max_tokens"


def _first(values: object) -> Any:
    return values[0] if isinstance(values, list) and values else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
