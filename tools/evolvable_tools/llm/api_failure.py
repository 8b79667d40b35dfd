"""Why a request to an API has no answer: one reading of the exceptions of both SDKs, whose classes
have the same names.

Nobody chains their exceptions: a traceback would show the request, whose headers hold the key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

from evolvable_tools.llm.language_model import printable_line
from evolvable_tools.llm.transport import AnswerTooLarge, host_of

BUSY_HINT = "Try again later. What needs no model still works."

_STATUS_HINTS = {
    400: "Choose a model that knows structured output, or look at what the API says.",
    401: "Check the API key.",
    402: "Check the account's credit.",
    403: "Check what the API key may do.",
    404: "Check the name of the model and the address.",
    429: BUSY_HINT,
}
_REDIRECT_HINT = (
    "Redirects are not followed, so that the key goes nowhere else. Name the address that answers."
)
_ADDRESS_HINT = "Check the address."
_NETWORK_HINT = "Check the network and the address."

# Statuses that another attempt may not meet; none is charged for.
_REPEATED = frozenset((408, 409, 429, 500, 502, 503, 504, 529))

# Names of exceptions, of httpx2 and of our transport: before any of them the request had not left
# this machine.
_UNSENT = ("ConnectError", "ConnectTimeout", "ProxyError", "ForeignAddress")


class NoMessage(Exception):
    """An API answered with something other than a message."""


@dataclass(frozen=True, slots=True)
class ApiFailure:
    """Why a request has no answer. No text holds the key.

    outcome, charged: as in an attempt. text: the predicate of a sentence about the model. status:
    the HTTP status, None without one; reason: what the API says with it. wait: seconds that the API
    asks to wait, None for a date or an unreadable value. again: whether another attempt may have an
    answer.
    """

    outcome: str
    text: str
    hint: str
    charged: bool = False
    status: int | None = None
    reason: str = ""
    wait: float | None = 0.0
    again: bool = False


def read_failure(error: Exception, *, key: str, address: str, timeout: float) -> ApiFailure:
    """Return what the exception of a request says. timeout: seconds that an answer may take."""
    # By name, because importing the classes would import both SDKs.
    names = {cls.__name__ for cls in type(error).__mro__}
    cause = error.__cause__
    for candidate in (error, cause):
        if isinstance(candidate, AnswerTooLarge):
            return ApiFailure("too large", f"{candidate}.", _ADDRESS_HINT, charged=True)
    if isinstance(error, NoMessage):
        text = "answered with something other than a message."
        return ApiFailure("no message", text, _ADDRESS_HINT, charged=True)
    if "APIStatusError" in names:
        return _read_status(error, key)
    if "APITimeoutError" in names:
        return ApiFailure(
            "timeout", f"did not answer within {timeout:g} s.", BUSY_HINT, charged=True
        )
    if "APIConnectionError" in names:
        text = f"cannot be reached at {host_of(address)}."
        if type(cause).__name__ in _UNSENT:
            return ApiFailure("unreachable", text, _NETWORK_HINT, again=True)
        # Where the connection broke later the answer may have been charged.
        return ApiFailure("cut off", text, _NETWORK_HINT, charged=True)
    text = f"could not be asked: {hide_key(str(error), key)}."
    return ApiFailure("no message", text, BUSY_HINT, charged=True)


def _read_status(error: Any, key: str) -> ApiFailure:
    status, headers, body = error.status_code, error.response.headers, error.body
    # {"error": {"message": ...}}; the SDK of OpenAI has taken off the outer already.
    for _ in range(2):
        if isinstance(body, dict):
            body = body.get("message") or body.get("error") or ""
    reason = hide_key(body if isinstance(body, str) else "", key)
    wait = hide_key(headers.get("retry-after", ""), key)
    reason_text = f": {reason}" if reason else "."
    wait_text = f" It asks to wait {wait} s." if wait else ""
    return ApiFailure(
        f"status {status}",
        f"answered {status}{reason_text}{wait_text}",
        _status_hint(status),
        status=status,
        reason=reason,
        wait=_read_wait(headers),
        again=status in _REPEATED and headers.get("x-should-retry") != "false",
    )


def _status_hint(status: int) -> str:
    if status >= 500:
        return BUSY_HINT
    if status < 400:
        return _REDIRECT_HINT
    return _STATUS_HINTS.get(status, _STATUS_HINTS[400])


def _read_wait(headers: Mapping[str, str]) -> float | None:
    try:
        # OpenAI's header in milliseconds is the more exact one of the two.
        in_ms = headers.get("retry-after-ms")
        wait = float(in_ms) / 1000 if in_ms is not None else float(headers.get("retry-after", "0"))
    except ValueError:
        return None
    # Also for infinity, which the caller's limit then refuses.
    return None if isnan(wait) else max(0.0, wait)


def hide_key(text: str, key: str) -> str:
    """Return foreign text as one short printable line without the key."""
    return printable_line(text.replace(key, "[key]") if key else text)
