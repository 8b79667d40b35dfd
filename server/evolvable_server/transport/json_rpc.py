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

# Bytes of each end: enough for the members before and after the params, where the id stands.
_END_BYTES = 512
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
    """The reason why a line is not a message. id: the request's, None without a usable one."""

    id: types.RequestId | None
    code: int
    reason: str

    @property
    def reply(self) -> types.JSONRPCError:
        """The error to send back."""
        return _make_error(self.id, self.code, self.reason)


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
            self._add_part(end)
            lines.append(self._take_line())
        self._add_part(rest)
        return lines

    def _add_part(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._parts.append(part)
        elif self._long is None:
            # Only the ends are kept, for `_salvage_id`.
            whole = b"".join((*self._parts, part))
            self._parts = []
            self._long = LongLine(whole[:_END_BYTES], whole[-_END_BYTES:])
        else:
            tail = (self._long.tail + part)[-_END_BYTES:]
            self._long = LongLine(self._long.head, tail)

    def _take_line(self) -> bytes | LongLine:
        line = self._long or b"".join(self._parts)
        self._parts, self._size, self._long = [], 0, None
        return line


def read_frame(line: bytes | LongLine) -> types.JSONRPCMessage | JsonRpcRefusal | None:
    """Return the message of a line, the refusal to answer it with, or None when no answer is due.

    No answer is due to an empty line, a header of the language server protocol, and a broken
    notification or response. The SDK's own parser takes the same messages: strict UTF-8, no NaN, no
    lone surrogate, at most 200 levels. The last of two equal keys counts. Source: JSON-RPC 2.0,
    sections 4 and 5.
    """
    if isinstance(line, LongLine):
        return JsonRpcRefusal(
            _salvage_id(line),
            types.INVALID_REQUEST,
            f"Invalid request: a line is longer than {MAX_LINE} bytes.",
        )
    if not line.strip():
        return None
    try:
        # Of keys alone: values would stay in the cache of 16,384 strings, and seldom come twice.
        frame = from_json(line, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        return _explain_refusal(line, str(error))
    return _check_frame(frame) or _make_message(frame)


def _explain_refusal(line: bytes, reason: str) -> types.JSONRPCMessage | JsonRpcRefusal | None:
    """Return the refusal of a line that the strict parser refused.

    It has the id of the request where a lenient parser finds it.
    """
    if _HEADER.match(line):
        return None
    try:
        frame = json.loads(line.decode("utf-8"), parse_constant=_refuse_json_constant)
    except UnicodeDecodeError as error:
        return JsonRpcRefusal(
            None, types.PARSE_ERROR, f"Parse error: byte {error.start} of the line is not UTF-8."
        )
    except (ValueError, RecursionError):
        return JsonRpcRefusal(None, types.PARSE_ERROR, f"Parse error: {reason}.")
    if refusal := _check_frame(frame):
        return refusal
    if "method" not in frame:
        return _replace_response(frame)
    if "id" not in frame:
        return None
    return JsonRpcRefusal(frame["id"], types.INVALID_PARAMS, f"Invalid params: {reason}.")


def _check_frame(frame: Any) -> JsonRpcRefusal | None:
    """Return the refusal of a parsed frame, None for a request, a notification or a response."""
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


def _make_message(frame: dict[str, Any]) -> types.JSONRPCMessage | None:
    """Return a checked frame as a message of the SDK, None for a notification with wrong params."""
    model: type[types.JSONRPCMessage]
    if "method" in frame:
        model = types.JSONRPCRequest if "id" in frame else types.JSONRPCNotification
    else:
        model = types.JSONRPCResponse if "result" in frame else types.JSONRPCError
    try:
        return model.model_validate(frame, by_name=False)
    except ValidationError:
        return None if "method" in frame else _replace_response(frame)


def _replace_response(frame: dict[str, Any]) -> types.JSONRPCMessage | None:
    """Return an error in place of a broken response, so that its receiver stops waiting."""
    if not _is_id(frame.get("id")):
        return None
    return _make_error(
        frame["id"], types.INVALID_REQUEST, "The client sent a response that cannot be read."
    )


def _is_response(frame: dict[str, Any]) -> bool:
    return "method" not in frame and ("result" in frame or "error" in frame)


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return _is_unicode(value)
    # A bool is an int in Python, and no id in JSON-RPC.
    return isinstance(value, int) and not isinstance(value, bool)


def _is_unicode(text: str) -> bool:
    # A lone surrogate cannot be written back as UTF-8.
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _salvage_id(line: LongLine) -> types.RequestId | None:
    """Return the id of a request that is too long, where it stands before the params or last."""
    first = _FIRST_MEMBERS.match(line.head)
    # Without a method the line may be a response, which gets no answer.
    if not first or not _METHOD.search(first[0]):
        return None
    match = _ID.search(first[0]) or _LAST_MEMBER.search(line.tail)
    try:
        request_id = from_json(match[1]) if match else None
    except ValueError:
        return None
    return request_id if _is_id(request_id) else None


def _make_error(request_id: types.RequestId | None, code: int, message: str) -> types.JSONRPCError:
    return types.JSONRPCError(
        jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message)
    )


def _refuse_json_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
