"""What the language models behind an HTTP API share: the connection, one policy of attempts, and the record of each.

The SDKs read addresses, keys, headers and proxies from the environment, follow redirects with the key, and repeat a
request by themselves. Here they get everything by argument, and one request at a time.
"""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from random import random
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from evolvable_tools.llm.language_model import (
    ModelAttempt,
    ProviderError,
    Request,
    most_tokens,
    parse_answer,
    printable_line,
)

if TYPE_CHECKING:
    import ssl

    import httpx2

# Start time: httpx2 and the SDKs are imported at the first question.

BUSY_HINT = "Try again later; what needs no model goes on without."

STATUS_HINTS = {
    400: "Choose a model that knows structured output, or look at what the API says.",
    401: "Check the API key.",
    402: "Check the account's credit.",
    403: "Check what the API key may do.",
    404: "Check the name of the model and the address.",
    429: BUSY_HINT,
}
REDIRECT_HINT = "Redirects are not followed, so that the key goes nowhere else. Name the address that answers."

LONGEST_WAIT = 5.0
"""Seconds. Where the API asks for a longer one before the next attempt, there is none."""

MAX_ANSWER_BYTES = 8_000_000
"""Bytes of an answer; of a longer one the rest is not read."""

MILLION = 1_000_000

_REPEATED = frozenset((408, 409, 429, 500, 502, 503, 504, 529))
"""Statuses that another attempt may not meet. None of them is charged for."""

_FIRST_WAIT = 0.25  # seconds before the second attempt, where the API names none; it doubles, and varies by half

ANTHROPIC_VERSION = "2023-06-01"
"""The version of Anthropic's API, which each request to it names."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What an API answered. texts: the last is the answer. model: as the answer names it.

    fault: why the texts are no answer, '' when they are one. The tokens are None where the API does not say them.
    """

    texts: tuple[str, ...]
    model: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    fault: str = ""
    hint: str = ""


NO_KEY = "none"
"""Given to an SDK where an endpoint needs no key; it is not sent."""

CUT_OFF = "was cut off in its answer."
CUT_OFF_HINT = "Choose a model that thinks less."
REFUSAL_HINT = "Put it in other words, or choose another model."


def refusal(why: str) -> str:
    """Return the fault of a completion in which the model declined."""
    return f"refused to answer{f': {why}' if why else '.'}"


def answering_model(answer: object) -> str:
    """Return the model that an answer of an API names, '' without one."""
    return printable_line(str(getattr(answer, "model", None) or ""))


def token_count(value: object) -> int | None:
    """Return a number of tokens that an API says, None for anything else."""
    return value if type(value) is int and 0 <= value < 10**12 else None


class AttemptFailed(ProviderError):
    """One attempt brought no answer.

    outcome: in one or two words. wait: seconds before the next attempt, None where another would not help. charged:
    whether the provider may have charged for it.
    """

    def __init__(
        self, message: str, hint: str, outcome: str, *, wait: float | None = None, charged: bool = False
    ) -> None:
        super().__init__(message, hint)
        self.outcome, self.wait, self.charged = outcome, wait, charged


class ApiModel:
    """A model behind an HTTP API. Subclasses make the client of an SDK and ask it once.

    name: who it is. timeout: seconds for one attempt. retries: attempts beyond the first, made only where another may
    help and the one before was not charged for: after a status such as 429 or 500, or without a connection. So one
    question is charged for once at most. price: US dollars of a million tokens in and out, None where it is unknown.
    """

    def __init__(
        self,
        name: str,
        api_key: str | None,
        model: str,
        address: str,
        timeout: float,
        *,
        retries: int,
        proxy: str | None,
        price: tuple[float, float] | None = None,
        key_hint: str = "",
        needs_key: bool = True,
    ) -> None:
        self.name, self.price, self._most = name, price, retries + 1
        self._key, self._model, self._address = (api_key or "").strip(), model, address
        self._timeout, self._proxy, self._key_hint, self._needs_key = timeout, proxy, key_hint, needs_key
        self._client: Any = None
        self._making, self._closed = threading.Lock(), threading.Event()

    def think(self, request: Request) -> dict[str, Any]:
        """Return the model's answer. Raises ProviderError, at once when there is no key or no SDK."""
        with self._making:
            self._closed.clear()
            self._client = self._client or self._connect()
            client = self._client
        done = self._attempts(client, request)
        if done.fault:
            raise ProviderError(f"{self.name} {done.fault}", done.hint)
        return parse_answer(done.texts, request.schema, self.name)

    def close(self) -> None:
        """Close the connections, and wait for no further attempt. The next question opens new ones."""
        with self._making:
            self._closed.set()
            if self._client is not None:
                self._client.close()
            self._client = None

    def _attempts(self, client: Any, request: Request) -> Completion:
        """Return the first completion. Each attempt is reported to the request."""
        number = 0
        while True:
            number += 1
            began = monotonic()
            try:
                done = self._complete(client, request)
            except AttemptFailed as error:
                self._report(request, number, error.outcome, None, monotonic() - began, charged=error.charged)
                if error.wait is None or error.wait > LONGEST_WAIT or error.charged or number == self._most:
                    raise
                wait = error.wait or _FIRST_WAIT * 2 ** (number - 1) * (0.5 + random())
                if self._closed.wait(wait):
                    raise
            else:
                outcome = done.fault.partition(":")[0].rstrip(".") or "answered"
                self._report(request, number, outcome, done, monotonic() - began)
                return done

    def _report(
        self,
        request: Request,
        number: int,
        outcome: str,
        done: Completion | None,
        seconds: float,
        *,
        charged: bool = False,
    ) -> None:
        given = done.input_tokens if done is not None else None if charged else 0
        got = done.output_tokens if done is not None else None if charged else 0
        known = given is not None and got is not None
        most = most_tokens(request)
        given, got = most[0] if given is None else given, most[1] if got is None else got
        cost = (given * self.price[0] + got * self.price[1]) / MILLION if self.price is not None else None
        if request.attempted is not None:
            by = done.model if done is not None else ""
            request.attempted(ModelAttempt(self.name, number, outcome, by, given, got, known, cost, round(seconds, 3)))
            return
        if request.spent is not None:
            request.spent(given, got)
        if request.paid is not None and cost is not None:
            request.paid(cost)

    def _complete(self, client: Any, request: Request) -> Completion:
        """Ask once. Raises AttemptFailed."""
        raise NotImplementedError

    def _connect(self) -> Any:
        """Return the client of the SDK. Raises ProviderError."""
        raise NotImplementedError

    def _check_key(self) -> None:
        """Raise ProviderError without a usable key, where one is needed."""
        # A key with other characters would appear in the error of the HTTP library.
        if not self._key and not self._needs_key:
            return
        if not is_key(self._key):
            what = "has no API key" if not self._key else "was given something that is no API key"
            raise ProviderError(f"{self.name} {what}.", self._key_hint)

    def _open_sdk(self, package: str, client: str, key_header: str) -> Any:
        """Return the client of an SDK, which sends the key in this header.

        Raises ProviderError without the package, and for a proxy or an address that is none.
        """
        sdk = load_sdk(package, self.name)
        from httpx2 import InvalidURL

        try:
            http = http_client(key_header, self._key, self._proxy)
        except (ValueError, InvalidURL):
            raise ProviderError(f"{self.name} was given a proxy that is none.", "Correct models.proxy.") from None
        how: dict[str, Any] = {"timeout": self._timeout, "max_retries": 0, "http_client": http}
        try:
            return getattr(sdk, client)(api_key=self._key or NO_KEY, base_url=self._address, **how)
        except (InvalidURL, ValueError):
            http.close()
            hint = "Give one such as https://models.example/v1; other signs in a password are written with %."
            raise ProviderError(f"{self.name} was given an address that is none.", hint) from None

    def _failed(self, error: Exception) -> AttemptFailed:
        """Return the failure of an attempt from the exception of either SDK, which have the same names.

        The cause is not chained: a traceback would show the request, whose headers hold the key.
        """
        names = {cls.__name__ for cls in type(error).__mro__}
        if isinstance(cause := error.__cause__, AnswerTooLarge) or isinstance(error, AnswerTooLarge):
            text = str(cause if isinstance(cause, AnswerTooLarge) else error)
            return AttemptFailed(f"{self.name} {text}.", "Check the address.", "too large", charged=True)
        if "APIStatusError" in names:
            return self._refused(error)
        how, charged = broke_off(error)
        if how == "timeout":
            text = f"{self.name} did not answer within {self._timeout:g} s."
            return AttemptFailed(text, BUSY_HINT, how, charged=charged)
        if "APIConnectionError" in names:
            hint = "Check the network and the address."
            text = f"{self.name} cannot be reached at {host_of(self._address)}."
            return AttemptFailed(text, hint, how, wait=0.0, charged=charged)
        text = f"{self.name} could not be asked: {self._safe(str(error))}."
        return AttemptFailed(text, BUSY_HINT, how, charged=charged)

    def _refused(self, error: Any) -> AttemptFailed:
        code, said = error.status_code, self._safe(said_in(error))
        wait, asks = wait_asked(error.response.headers), self._safe(error.response.headers.get("retry-after", ""))
        more = f" It asks to wait {asks} s." if asks else ""
        hint = STATUS_HINTS.get(code, BUSY_HINT if code >= 500 else REDIRECT_HINT if code < 400 else STATUS_HINTS[400])
        text = f"{self.name} answered {code}{f': {said}' if said else '.'}{more}"
        never = code not in _REPEATED or error.response.headers.get("x-should-retry") == "false"
        return AttemptFailed(text, hint, f"status {code}", wait=None if never else wait)

    def _safe(self, text: str) -> str:
        return printable_line(text.replace(self._key, "[key]") if self._key else text)


def load_sdk(package: str, who: str) -> Any:
    """Return an SDK: an optional extra that takes a second to import. Raises ProviderError without it."""
    try:
        return import_module(package)
    except ImportError:
        hint = f"Install it: pip install '.[{package}]' in your clone."
        raise ProviderError(f"{who} needs the package {package}.", hint) from None


def broke_off(error: Exception) -> tuple[str, bool]:
    """Return how an attempt without a status ended, from the exception of either SDK, and whether it may be charged."""
    names = {cls.__name__ for cls in type(error).__mro__}
    if "APITimeoutError" in names:
        return "timeout", True
    if "APIConnectionError" in names:
        # Nothing was asked where there was no connection; where it broke later the answer may have been charged.
        connected = type(error.__cause__).__name__ not in ("ConnectError", "ConnectTimeout", "ProxyError")
        return ("cut off", True) if connected else ("unreachable", False)
    return "no message", True


def said_in(error: Any) -> str:
    """Return what an API says in the body of an error, '' where it says nothing."""
    body = error.body
    for _ in range(2):  # {"error": {"message": ...}}; the SDK of OpenAI has taken off the outer already
        if isinstance(body, dict):
            body = body.get("message") or body.get("error") or ""
    return body if isinstance(body, str) else ""


def wait_asked(headers: Any) -> float:
    """Return the seconds that an API asks to wait, 0 where it asks for none; a date or nonsense is too long."""
    try:
        in_ms = headers.get("retry-after-ms")
        wait = float(in_ms) / 1000 if in_ms is not None else float(headers.get("retry-after", "0"))
    except ValueError:  # a date
        return LONGEST_WAIT + 1
    return max(0.0, wait) if wait <= LONGEST_WAIT else LONGEST_WAIT + 1


def is_key(text: str) -> bool:
    """Return whether a text can be an API key, which is sent in a header."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def host_of(address: str) -> str:
    """Return the host of an address and its port. All else may be a secret, and so may a host that is in doubt."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "its address"
    # Behind the host an "@" is likely the end of a password with a "/", "?" or "#" in it.
    doubtful = "@" in f"{parts.path}{parts.query}{parts.fragment}"
    return ("" if doubtful else printable_line(parts.netloc.rpartition("@")[2])) or "its address"


class AnswerTooLarge(Exception):
    """An answer is larger than it may be, or is compressed, so that its size is unknown before it is read."""


def http_client(key_header: str, key: str, proxy: str | None, agent: str = "") -> "httpx2.Client":
    """Return a client that reads nothing from the environment, follows no redirect and reads no endless answer.

    key_header: `authorization` (a bearer token) or another header. agent: the `User-Agent`, where a server wants one.
    Raises ValueError, InvalidURL for the proxy.
    """
    import httpx2

    hooks: dict[str, Any] = {"request": [_headers_of(key_header, key, agent)], "response": [_bounded]}
    return httpx2.Client(
        trust_env=False, verify=_certificates(), proxy=proxy, follow_redirects=False, event_hooks=hooks
    )


def async_http_client(key_header: str, key: str, proxy: str | None) -> "httpx2.AsyncClient":
    """Return the same for asyncio. Raises ValueError, InvalidURL for the proxy."""
    import httpx2

    sent = _headers_of(key_header, key)

    async def request(asked: "httpx2.Request") -> None:
        sent(asked)

    async def response(answered: "httpx2.Response") -> None:
        _check_encoding(answered)
        _check_size(int(length) if (length := answered.headers.get("content-length", "0")).isdigit() else 0)
        answered.stream = _async_stream(answered.stream)

    return httpx2.AsyncClient(
        trust_env=False,
        verify=_certificates(),
        proxy=proxy,
        follow_redirects=False,
        event_hooks={"request": [request], "response": [response]},
    )


@lru_cache(maxsize=1)
def _certificates() -> "ssl.SSLContext":
    """Return the trusted certificates, read once in a process: it takes 40 ms, and each trial opens a client."""
    from httpx2 import create_ssl_context

    return create_ssl_context(trust_env=False)


def _headers_of(key_header: str, key: str, agent: str = "") -> "Callable[[httpx2.Request], None]":
    """Return a hook that sends the headers of the protocol alone.

    The SDKs add those of ANTHROPIC_CUSTOM_HEADERS and OPENAI_CUSTOM_HEADERS, which a project's configuration may set:
    another key among them would send the prompts to a stranger's account.
    """
    sent = {"accept": "application/json", "content-type": "application/json", "accept-encoding": "identity"}
    if key_header != "authorization":
        sent["anthropic-version"] = ANTHROPIC_VERSION
    if agent:
        sent["user-agent"] = agent
    if key:
        sent[key_header] = f"Bearer {key}" if key_header == "authorization" else key

    def hook(request: "httpx2.Request") -> None:
        length = str(len(request.content))
        request.headers.clear()
        request.headers.update(sent | {"host": request.url.netloc.decode("ascii"), "content-length": length})

    return hook


def _bounded(response: "httpx2.Response") -> None:
    _check_encoding(response)
    _check_size(int(length) if (length := response.headers.get("content-length", "0")).isdigit() else 0)
    response.stream = _stream(response.stream)


def _check_encoding(response: "httpx2.Response") -> None:
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise AnswerTooLarge("answered in a compressed form that was not asked for")


def _check_size(size: int) -> None:
    if size > MAX_ANSWER_BYTES:
        raise AnswerTooLarge(f"answered with more than {MAX_ANSWER_BYTES:,} bytes")


def _stream(inner: Any) -> Any:
    from httpx2 import SyncByteStream

    class Bounded(SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for part in inner:
                size += len(part)
                _check_size(size)
                yield part

        def close(self) -> None:
            inner.close()

    return Bounded()


def _async_stream(inner: Any) -> Any:
    from httpx2 import AsyncByteStream

    class Bounded(AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for part in inner:
                size += len(part)
                _check_size(size)
                yield part

        async def aclose(self) -> None:
            await inner.aclose()

    return Bounded()
