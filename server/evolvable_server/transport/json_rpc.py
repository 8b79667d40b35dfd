"""Parse a line from the client: a message for the SDK, a refusal to send back, or nothing.

The SDK drops lines that it cannot read, and the client then waits until its own timeout. This
module does no input or output.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

import mcp_types as types
from pydantic import ValidationError
from pydantic_core import from_json

MAX_LINE = 4 * 1024 * 1024
"""Bytes of a line; of a longer one only its ends are kept."""

# Enough for the members before and behind the params, where the id stands.
_ENDS = 512
# Clients of the language server protocol send such headers before each message.
_HEADER = re.compile(rb"content-(?:length|type)\s*:", re.IGNORECASE)
# These find the id in a line that is too long to be parsed, at the places where clients write it.
_ID = re.compile(rb'"id"\s*:\s*(-?\d{1,100}|"[^"\\]{0,200}")')
_METHOD = re.compile(rb'"method"\s*:')
_FIRST_MEMBERS = re.compile(
    rb'\s*\{\s*(?:"(?:jsonrpc|method|id)"\s*:\s*(?:"[^"\\]*"|-?\d+)\s*,\s*)*'
)
_LAST_MEMBER = re.compile(rb",\s*" + _ID.pattern + rb"\s*\}\s*$")


@dataclass(frozen=True, slots=True)
class LongLine:
    """The two ends of a line over the limit."""

    head: bytes
    tail: bytes


@dataclass(frozen=True, slots=True)
class JsonRpcRefusal:
    """Why a line is not a message: `id` is the request's when it has a usable one."""

    id: types.RequestId | None
    code: int
    reason: str

    @property
    def reply(self) -> types.JSONRPCError:
        """The error to send back."""
        return _error(self.id, self.code, self.reason)


class Lines:
    """Cuts a stream of bytes into lines and never holds more than `limit` bytes of one."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._long: LongLine | None = None

    def feed(self, chunk: bytes) -> list[bytes | LongLine]:
        """Return the lines that end in `chunk`, without their newline."""
        *ends, rest = chunk.split(b"\n")
        lines: list[bytes | LongLine] = []
        for end in ends:
            self._keep(end)
            lines.append(self._take())
        self._keep(rest)
        return lines

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._parts.append(part)
        elif self._long is None:
            # Only the ends are kept, for `_salvaged_id`.
            whole = b"".join((*self._parts, part))
            self._parts, self._long = (
                [],
                LongLine(whole[:_ENDS], whole[-_ENDS:]),
            )
        else:
            self._long = LongLine(
                self._long.head,
                (self._long.tail + part)[-_ENDS:],
            )

    def _take(self) -> bytes | LongLine:
        line = self._long or b"".join(self._parts)
        self._parts, self._size, self._long = [], 0, None
        return line


def read_frame(line: bytes | LongLine) -> types.JSONRPCMessage | JsonRpcRefusal | None:
    """Return the message that `line` holds, the refusal to answer it with, or None when it asks for
    no answer.

    None: an empty line, a header of the language server protocol, a broken notification or
    response. A message is exactly what the SDK's own parser takes: strict UTF-8, no NaN, no lone
    surrogate, at most 200 levels; the last of two equal keys counts. Source: JSON-RPC 2.0, sections
    4 and 5.
    """
    if isinstance(line, LongLine):
        return JsonRpcRefusal(
            _salvaged_id(line),
            types.INVALID_REQUEST,
            f"Invalid request: a line is longer than {MAX_LINE} bytes.",
        )
    if not line.strip():
        return None
    try:
        # Values as well as keys would stay in a table of 16,384 strings, and hardly one comes
        # twice.
        frame = from_json(line, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        return _explain_refusal(line, str(error))
    return _refusal(frame) or _message(frame)


def _explain_refusal(line: bytes, reason: str) -> types.JSONRPCMessage | JsonRpcRefusal | None:
    """Say of a line that the strict parser refused what is wrong, and of which request when a
    lenient one can tell.
    """
    if _HEADER.match(line):
        return None
    try:
        frame = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        return JsonRpcRefusal(
            None, types.PARSE_ERROR, f"Parse error: byte {error.start} of the line is not UTF-8."
        )
    except (ValueError, RecursionError):
        return JsonRpcRefusal(None, types.PARSE_ERROR, f"Parse error: {reason}.")
    if refusal := _refusal(frame):
        return refusal
    if "method" not in frame:
        return _unreadable_response(frame)
    return (
        JsonRpcRefusal(frame["id"], types.INVALID_PARAMS, f"Invalid params: {reason}.")
        if "id" in frame
        else None
    )


def _refusal(frame: Any) -> JsonRpcRefusal | None:
    """Return why a parsed frame cannot be a request, or None for a request, a notification or a
    response.
    """
    if not isinstance(frame, dict):
        return JsonRpcRefusal(
            None,
            types.INVALID_REQUEST,
            "Invalid request: a line holds one JSON object, no batch and no bare value.",
        )
    if _is_response(frame):
        return None
    if "id" in frame and not _is_id(frame["id"]):
        return JsonRpcRefusal(
            None, types.INVALID_REQUEST, "Invalid request: the id has to be a string or an integer."
        )
    request_id, params = frame.get("id"), frame.get("params")
    if frame.get("jsonrpc") != "2.0":
        return JsonRpcRefusal(
            request_id, types.INVALID_REQUEST, 'Invalid request: jsonrpc has to be "2.0".'
        )
    if not isinstance(frame.get("method"), str) or not _is_unicode(frame["method"]):
        return JsonRpcRefusal(
            request_id, types.INVALID_REQUEST, "Invalid request: the method has to be a string."
        )
    if "id" in frame and not isinstance(params, dict | None):
        return JsonRpcRefusal(
            request_id, types.INVALID_PARAMS, "Invalid params: they have to be an object."
        )
    return None


def _message(frame: dict[str, Any]) -> types.JSONRPCMessage | None:
    """Return the SDK's form of a frame that nothing is wrong with, None for a notification with
    wrong params.
    """
    model: type[types.JSONRPCMessage]
    if "method" in frame:
        model = types.JSONRPCRequest if "id" in frame else types.JSONRPCNotification
    else:
        model = types.JSONRPCResponse if "result" in frame else types.JSONRPCError
    try:
        return model.model_validate(frame, by_name=False)
    except ValidationError:
        return None if "method" in frame else _unreadable_response(frame)


def _unreadable_response(frame: dict[str, Any]) -> types.JSONRPCMessage | None:
    """Return an error in place of a broken response, so that its receiver stops waiting."""
    if not _is_id(frame.get("id")):
        return None
    return _error(
        frame["id"], types.INVALID_REQUEST, "The client sent a response that cannot be read."
    )


def _is_response(frame: dict[str, Any]) -> bool:
    return "method" not in frame and ("result" in frame or "error" in frame)


def _is_id(value: Any) -> bool:
    # A bool is an int in Python, and no id in JSON-RPC.
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, str) and _is_unicode(value)
    )


def _is_unicode(text: str) -> bool:
    # A lone surrogate cannot be written back as UTF-8.
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _salvaged_id(line: LongLine) -> types.RequestId | None:
    """Return the id of a request that is too long when it stands where clients put it: before
    params, or last.
    """
    first = _FIRST_MEMBERS.match(line.head)
    # Without a method the line may be a response, which gets no answer.
    if not first or not _METHOD.search(first[0]):
        return None
    found = _ID.search(first[0]) or _LAST_MEMBER.search(line.tail)
    try:
        salvaged = from_json(found[1]) if found else None
    except ValueError:
        return None
    return salvaged if _is_id(salvaged) else None


def _error(request_id: types.RequestId | None, code: int, message: str) -> types.JSONRPCError:
    return types.JSONRPCError(
        jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message)
    )


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
