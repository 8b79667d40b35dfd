"""The Anthropic API as a language model, through its own SDK (extra `anthropic`), which takes a second to import."""

import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from evolvable_tools.llm import ProviderError, Request, parse_answer, printable_line

if TYPE_CHECKING:
    from anthropic import Anthropic, APIStatusError
    from anthropic.types import Message, TextBlockParam
    from httpx2 import Response

MODEL = "claude-haiku-5-5"
"""A small model: a question has a few hundred words, and a person waits for the answer."""

ADDRESS = "https://api.anthropic.com"

LONGEST_WAIT = 5.0
"""Seconds. Where the API asks for a longer one before a retry, there is none: the SDK would wait for hours."""

_BUSY = "Try again later; what needs no model goes on without."
_ADVICE = {
    400: "Choose a model that knows structured output, or look at what the API says.",
    401: "Check the API key.",
    402: "Check the account's credit.",
    403: "Check what the API key may do.",
    404: "Check the name of the model and the address.",
    429: _BUSY,
}


class AnthropicModel:
    """A model of Anthropic's. `timeout` is for one attempt, in seconds; the SDK makes `retries` more when it helps.

    The schema is given as such, so the model cannot answer otherwise; what comes back is checked all the same.
    Instructions are marked for the prompt cache, which takes them from some thousand tokens on.
    """

    def __init__(
        self,
        api_key: str | None,
        model: str = MODEL,
        base_url: str | None = None,
        timeout: float = 20.0,
        *,
        retries: int = 1,
        proxy: str | None = None,
    ) -> None:
        self._proxy = proxy
        self.name = f"anthropic:{model}"
        self._key, self._model, self._address = (api_key or "").strip(), model, base_url or ADDRESS
        self._timeout, self._retries, self.tries = timeout, retries, retries + 1
        self._client: Anthropic | None = None
        self._making = threading.Lock()

    def think(self, request: Request) -> dict[str, Any]:
        """Return the model's answer. Raises ProviderError, at once when there is no key or no SDK."""
        with self._making:
            self._client = self._client or self._connect()
        message, retries = self._ask(self._client, request)
        if request.spent is not None and (usage := getattr(message, "usage", None)) is not None:
            # What is put into the cache costs a quarter more; what is read from it costs less, and counts the same.
            cached = (usage.cache_creation_input_tokens or 0) * 5 // 4 + (usage.cache_read_input_tokens or 0)
            # What became of those before it is not known, so they cost the most.
            for written in (usage.output_tokens, *[request.max_tokens] * retries):
                request.spent(usage.input_tokens + cached, written)
        return parse_answer([self._text(message)], request.schema, self.name)

    def close(self) -> None:
        """Close the connections. The next question opens new ones."""
        with self._making:
            if self._client is not None:
                self._client.close()
            self._client = None

    def _connect(self) -> "Anthropic":
        # A key with other characters would appear in the error of the HTTP library.
        if not self._key or not self._key.isascii() or not self._key.isprintable() or " " in self._key:
            what = "has no API key" if not self._key else "was given something that is no API key"
            raise ProviderError(f"{self.name} {what}.", "Set ANTHROPIC_API_KEY, or choose another provider.")
        try:
            from anthropic import Anthropic, DefaultHttpxClient  # an optional extra that takes a second to import
            from httpx2 import InvalidURL
        except ImportError:
            hint = "Install it: pip install 'evolvable[anthropic]'."
            raise ProviderError(f"{self.name} needs the package anthropic.", hint) from None
        try:
            # Neither the address nor a proxy comes from the environment, which a project's configuration may set.
            http = DefaultHttpxClient(event_hooks={"response": [_no_long_wait]}, trust_env=False, proxy=self._proxy)
        except (ValueError, InvalidURL):
            raise ProviderError(f"{self.name} was given a proxy that is none.", "Correct models.proxy.") from None
        how: dict[str, Any] = {"timeout": self._timeout, "max_retries": self._retries, "http_client": http}
        try:
            return Anthropic(api_key=self._key, base_url=self._address, **how)
        except InvalidURL:
            http.close()
            hint = f"Give one such as {ADDRESS}; other signs in a password are written with %."
            raise ProviderError(f"{self.name} was given an address that is none.", hint) from None

    def _ask(self, client: "Anthropic", request: Request) -> tuple["Message", int]:
        """Return the answer, and how often it was asked again before."""
        import anthropic  # an optional extra that takes a second to import

        cached: TextBlockParam = {"type": "text", "text": request.instructions, "cache_control": {"type": "ephemeral"}}
        schema = anthropic.transform_schema(json.loads(json.dumps(request.schema)))
        try:
            answer = client.messages.with_raw_response.create(
                model=self._model,
                max_tokens=request.max_tokens,
                system=[cached],
                messages=[{"role": "user", "content": request.data.encode("utf-8", "replace").decode("utf-8")}],
                output_config={"format": {"type": "json_schema", "schema": schema}},
            )
            return answer.parse(), answer.retries_taken
        # No cause is chained: a traceback would show the request, whose headers hold the key.
        except anthropic.APITimeoutError:
            raise ProviderError(f"{self.name} did not answer within {self._timeout:g} s.", _BUSY) from None
        except anthropic.APIConnectionError:
            hint = "Check the network and the address."
            raise ProviderError(f"{self.name} cannot be reached at {_host(self._address)}.", hint) from None
        except anthropic.APIStatusError as error:
            raise self._refused(error) from None
        except (anthropic.AnthropicError, ValueError, RuntimeError) as error:
            raise ProviderError(f"{self.name} could not be asked: {self._safe(str(error))}.", _BUSY) from None

    def _refused(self, error: "APIStatusError") -> ProviderError:
        code, said = error.status_code, self._safe(error.api_message or "")
        wait = self._safe(error.response.headers.get("retry-after", ""))
        asks = f" It asks to wait {wait} s." if wait else ""
        hint = _ADVICE.get(code, _BUSY if code >= 500 else _ADVICE[400])
        return ProviderError(f"{self.name} answered {code}{f': {said}' if said else '.'}{asks}", hint)

    def _text(self, message: "Message") -> str:
        """Return the text of a whole answer; thoughts before it are passed over."""
        stop = getattr(message, "stop_reason", None)
        if stop == "refusal":
            details = getattr(message, "stop_details", None)
            why = self._safe(getattr(details, "explanation", None) or getattr(details, "category", None) or "")
            hint = "Put it in other words, or choose another model."
            raise ProviderError(f"{self.name} refused to answer{f': {why}' if why else '.'}", hint)
        if stop == "max_tokens":
            raise ProviderError(f"{self.name} was cut off in its answer.", "Choose a model that thinks less.")
        blocks = getattr(message, "content", None)
        if not isinstance(blocks, list):
            raise ProviderError(f"{self.name} answered with something that is no message.", "Check the address.")
        return "".join(block.text for block in blocks if getattr(block, "type", "") == "text")

    def _safe(self, text: str) -> str:
        return printable_line(text.replace(self._key, "[key]"))


def _host(address: str) -> str:
    """Return the host of an address and its port. All else may be a secret, and so may a host that is in doubt."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "its address"
    # Behind the host an "@" is likely the end of a password with a "/", "?" or "#" in it.
    doubtful = "@" in f"{parts.path}{parts.query}{parts.fragment}"
    return ("" if doubtful else printable_line(parts.netloc.rpartition("@")[2])) or "its address"


def _no_long_wait(response: "Response") -> None:
    """Keep the SDK from retrying where it would have to wait long."""
    headers = response.headers
    try:
        in_ms = headers.get("retry-after-ms")
        wait = float(in_ms) / 1000 if in_ms is not None else float(headers.get("retry-after", "0"))
    except ValueError:  # a date
        wait = LONGEST_WAIT + 1
    if not wait <= LONGEST_WAIT:
        headers["x-should-retry"] = "false"
