"""The one transport of requests that carry a person's key: where the key may go, and the limits of
every answer.

The packages `anthropic` and `openai` read addresses, keys, headers and proxies from the
environment, and follow redirects with the key. The relay of the sandbox and the reader of forges
have keys as well. All of them send through a client that is made here; nothing else writes a key
into a header.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from evolvable_tools.llm.language_model import printable_line

if TYPE_CHECKING:
    import ssl

    import httpx2

# Start time: httpx2 is imported at the first request.

# An answer of a model has some tens of kilobytes; the bound protects the memory from a broken or
# hostile server.
MAX_ANSWER_BYTES = 8_000_000
"""Bytes of an answer; of a longer one the rest is not read."""

BEARER, API_KEY = "authorization", "x-api-key"
"""The headers that a key is sent in."""

SIGN_IN_HEADERS = frozenset((BEARER, API_KEY, "cookie"))
"""The headers that say who asks."""

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
# "identity": the size of a compressed answer would be unknown until it is unpacked.
_OWN_HEADERS = {
    "accept": "application/json",
    "content-type": "application/json",
    "accept-encoding": "identity",
}
# An extension of a request: the time at which its answer must have ended.
_UNTIL = "evolvable.until"


class AnswerTooLarge(Exception):
    """An answer is larger than it may be, or is compressed, so that its size is unknown before it
    is read.
    """


class ForeignAddress(Exception):
    """A request to another server than the one whose key the client holds. Nothing was sent."""


class InvalidAddress(ValueError):
    """The address of a client cannot be parsed."""


class InvalidProxy(ValueError):
    """The proxy of a client cannot be parsed."""


@dataclass(frozen=True, slots=True)
class RequestRules:
    """The rules of a client. address: only its server is asked. headers: of each request, the key
    among them.

    proxy: for addresses that are not of this machine. seconds: from a request to the end of its
    answer, None without a limit. max_bytes: of an answer. passes: the other headers of a request
    are sent too, and answers are passed on as they come. Without it each request has the headers of
    the rules alone.
    """

    address: str
    headers: Mapping[str, str] = field(repr=False)
    proxy: str | None = field(default=None, repr=False)
    seconds: float | None = None
    max_bytes: int = MAX_ANSWER_BYTES
    passes: bool = False


def key_header(name: str, key: str) -> dict[str, str]:
    """Return the header that a key is sent in; none for an empty key."""
    if not key:
        return {}
    return {name: f"Bearer {key}" if name == BEARER else key}


def is_key(text: str) -> bool:
    """Return whether a text can be an API key, which is sent in a header."""
    # Anything else would be refused by the HTTP library, with the key in its error.
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def host_of(address: str) -> str:
    """Return the host of an address and its port.

    All else may be a secret, and so may a host that is in doubt.
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        return "its address"
    # Behind the host an "@" is likely the end of a password with a "/", "?" or "#" in it.
    doubtful = "@" in f"{parts.path}{parts.query}{parts.fragment}"
    return ("" if doubtful else printable_line(parts.netloc.rpartition("@")[2])) or "its address"


def is_loopback(address: str) -> bool:
    """Return whether an address is of this machine."""
    try:
        host = urlsplit(address).netloc
    except ValueError:
        return False
    # With and without a port; a host with another prefix or ending is not of this machine.
    return host in _LOOPBACK or host.rpartition(":")[0] in _LOOPBACK


def http_client(rules: RequestRules) -> "httpx2.Client":
    """Return a client that follows the rules, reads nothing from the environment and follows no
    redirect.

    Raises InvalidAddress, InvalidProxy.
    """
    import httpx2

    options, prepare = _client_options(rules)

    def limit_response(response: "httpx2.Response") -> None:
        response.stream = _bounded_stream(response, rules)

    client = httpx2.Client(
        **options, event_hooks={"request": [prepare], "response": [limit_response]}
    )
    # The library's defaults, such as its user agent; the hook sets what is sent.
    client.headers.clear()
    return client


def async_http_client(rules: RequestRules) -> "httpx2.AsyncClient":
    """Return the same for asyncio. Raises InvalidAddress, InvalidProxy."""
    import httpx2

    options, prepare = _client_options(rules)

    async def prepare_async(request: "httpx2.Request") -> None:
        prepare(request)

    async def limit_response(response: "httpx2.Response") -> None:
        response.stream = _bounded_stream(response, rules)

    client = httpx2.AsyncClient(
        **options, event_hooks={"request": [prepare_async], "response": [limit_response]}
    )
    client.headers.clear()
    return client


def http_errors() -> tuple[type[Exception], ...]:
    """Return the classes of the errors that a request may raise."""
    from httpx2 import HTTPError, InvalidURL

    return HTTPError, InvalidURL, AnswerTooLarge, ForeignAddress


def _client_options(
    rules: RequestRules,
) -> "tuple[dict[str, Any], Callable[[httpx2.Request], None]]":
    """Return what both clients are made with, and the hook of their requests."""
    import httpx2

    try:
        # `from None` below: an address and a proxy may hold a password.
        url = httpx2.URL(rules.address)
    except (ValueError, httpx2.InvalidURL):
        raise InvalidAddress("the address is none") from None
    proxy_address = None if is_loopback(rules.address) else rules.proxy
    try:
        proxy = httpx2.Proxy(proxy_address) if proxy_address else None
    except (ValueError, httpx2.InvalidURL):
        raise InvalidProxy("the proxy is none") from None
    options = {
        # Without the environment's proxies, certificates and .netrc, which a project may set.
        "trust_env": False,
        "verify": _certificates(),
        "proxy": proxy,
        # A redirect would take the key to another server.
        "follow_redirects": False,
        "timeout": rules.seconds,
    }
    return options, _request_hook(rules, _server_of(url))


@lru_cache(maxsize=1)
def _certificates() -> "ssl.SSLContext":
    """Return the trusted certificates, read once in a process.

    Reading them takes 40 ms, and each trial opens a client.
    """
    from httpx2 import create_ssl_context

    return create_ssl_context(trust_env=False)


def _request_hook(
    rules: RequestRules, server: tuple[str, str, int | None]
) -> "Callable[[httpx2.Request], None]":
    """Return the function that every request passes last, each hop of a redirect too.

    It alone sets the key. The SDKs add the headers of ANTHROPIC_CUSTOM_HEADERS and
    OPENAI_CUSTOM_HEADERS, which a project's configuration may set. Another key among them would
    send the prompts to a stranger's account. So the function replaces all headers.
    """

    def prepare(request: "httpx2.Request") -> None:
        # The last check before a request is sent: a redirect or an SDK may have changed its
        # address.
        if _server_of(request.url) != server:
            raise ForeignAddress("was to be asked at another server than its own")
        if not rules.passes:
            sent = {**_OWN_HEADERS, "content-length": str(len(request.content))}
            request.headers.clear()
            request.headers.update(sent)
        request.headers.update({**rules.headers, "host": request.url.netloc.decode("ascii")})
        if rules.seconds is not None:
            request.extensions = {**request.extensions, _UNTIL: monotonic() + rules.seconds}

    return prepare


def _server_of(url: "httpx2.URL") -> tuple[str, str, int | None]:
    usual = {"http": 80, "https": 443}.get(url.scheme)
    return url.scheme, url.host, url.port or usual


def _bounded_stream(response: "httpx2.Response", rules: RequestRules) -> Any:
    """Return the body of an answer, which ends with an error at a limit. Raises AnswerTooLarge."""
    from httpx2 import AsyncByteStream, ReadTimeout, SyncByteStream

    inner: Any = response.stream
    request = response.request
    until = request.extensions.get(_UNTIL)
    size = 0

    def count(part: bytes) -> bytes:
        nonlocal size
        size += len(part)
        _check_size(size, rules.max_bytes)
        if until is not None and monotonic() > until:
            # A server that sends a byte now and then never reaches the limit of a single read.
            raise ReadTimeout("the answer did not end in time", request=request)
        return part

    class Bounded(SyncByteStream, AsyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            for part in inner:
                yield count(part)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for part in inner:
                yield count(part)

        def close(self) -> None:
            inner.close()

        async def aclose(self) -> None:
            await inner.aclose()

    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    # The server ignored our accept-encoding.
    if not rules.passes and encoding not in ("", "identity"):
        raise AnswerTooLarge("answered in a compressed form that was not asked for")
    length = response.headers.get("content-length", "0")
    _check_size(int(length) if length.isdigit() else 0, rules.max_bytes)
    return Bounded()


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise AnswerTooLarge(f"answered with more than {max_bytes:,} bytes")
