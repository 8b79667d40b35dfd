"""Claim stdin and stdout for the protocol, and answer a client's first requests before the server
exists.

Importing the SDK takes most of the time until the first answer, and Codex goes without a server
that needs more than a second. A client that asks which protocol is served, and has no answer in
time, begins the older handshake, which the SDK refuses once it has read the question. The answers
are files beside this module, which tests compare with the SDK's. The transport then gets all that
was read. It hands the SDK everything but the answered questions and list of tools, and drops the
SDK's answer to the handshake.
"""

import contextlib
import json
import os
import select
import stat
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

if sys.platform != "win32":
    import fcntl


@dataclass(frozen=True, slots=True)
class StdioDescriptors:
    """Two descriptors that only the transport knows: where frames come from and where
    replies go.
    """

    source: int
    sink: int


def claim_stdio() -> StdioDescriptors:
    """Return the descriptors of the protocol; the process's stdin is then empty, its stdout stderr.

    So a handler, a library or a child that prints does not break a frame. A stream that was closed
    when the process started counts as empty.
    """
    # Python sets a stream to None whose descriptor was closed at the start.
    wire = StdioDescriptors(
        _duplicate(0, sys.__stdin__ is not None), _duplicate(1, sys.__stdout__ is not None)
    )
    nothing = os.open(os.devnull, os.O_RDWR)
    _redirect(0, nothing)
    _redirect(1, 2 if sys.__stderr__ is not None else nothing)
    os.close(nothing)
    return wire


def write_all(sink: int, data: bytes) -> None:
    """Write all of `data`, however long the reader takes. Raise OSError when the reader is gone."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(sink, rest) :]


def is_pollable(fd: int) -> bool:
    """Return whether `poll` can wait for the descriptor: it is a pipe or a socket."""
    mode = os.fstat(fd).st_mode
    return sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


def write_nonblocking(sink: int, data: bytes) -> int:
    """Write as much of `data` as there is room for; return how many bytes. The sink can be polled.

    Raise OSError when the reader is gone.
    """
    if sys.platform == "win32":
        return 0
    room, written = select.poll(), 0
    room.register(sink, select.POLLOUT)
    # Where there is any room at all, there is room for this much (POSIX, poll and write).
    while written < len(data) and room.poll(0):
        written += os.write(sink, data[written : written + select.PIPE_BUF])
    return written


def _duplicate(fd: int, is_open: bool) -> int:
    if not is_open:
        return os.open(os.devnull, os.O_RDWR)
    if sys.platform != "win32":
        # Above the standard three: a copy that lands on a closed stderr would be written to by
        # every warning.
        copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        # The flag belongs to the open file, which the client may share and have changed.
        os.set_blocking(copy, True)
        return copy
    return os.dup(fd)


def _redirect(fd: int, target: int) -> None:
    with suppress(OSError):
        os.dup2(target, fd)
    if sys.platform == "win32":
        # Start time: the SDK is needed on Windows alone.
        from mcp.os.win32.utilities import rebind_std_handle_to_fd

        with suppress(OSError):
            rebind_std_handle_to_fd(fd)


HANDSHAKE, DISCOVERY, TOOLS = (
    Path(__file__).with_name(name) for name in ("handshake.json", "discovery.json", "tools.json")
)
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Versions of the protocol with a handshake; a client that asks for another waits for the SDK."""

# Since this version a client asks `server/discover` and makes no handshake.
_STATELESS = "2026-07-28"
_ENVELOPE = "io.modelcontextprotocol/"

_MAX_READ = 64 * 1024  # bytes; a client that has said more has to wait


@dataclass(frozen=True, slots=True)
class FastStartState:
    """What happened before the SDK was imported.

    read: all bytes from the client. answered: the ids of the answered requests, in order.
    """

    read: bytes = b""
    answered: tuple[int | str, ...] = ()


class FastStart:
    """Reads from a descriptor and answers on another, on a thread of its own, until `end`."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        # Ends the `select` of the thread.
        self._woken, self._wake = os.pipe()
        self._read, self._answered = bytearray(), list[int | str]()
        # Whether the client sent `initialize`, and then `notifications/initialized`.
        self._greeted = self._initialized = False
        self._thread = threading.Thread(target=self._run, name="early answers", daemon=True)

    @classmethod
    def begin(cls, source: int = 0, sink: int = 1) -> Self:
        """Begin to answer on stdin and stdout, or on other descriptors."""
        early = cls(source, sink)
        early._thread.start()
        return early

    def end(self) -> FastStartState:
        """Stop; from then on nothing is read or written here."""
        os.close(self._wake)
        self._thread.join()
        os.close(self._woken)
        return FastStartState(bytes(self._read), tuple(self._answered))

    def _run(self) -> None:
        consumed = 0
        # What cannot be read or written is the SDK's to deal with.
        with contextlib.suppress(OSError, ValueError, RecursionError):
            while len(self._read) < _MAX_READ:
                ready, _, _ = select.select([self._source, self._woken], [], [])
                chunk = b"" if self._woken in ready else os.read(self._source, _MAX_READ)
                if not chunk:
                    return
                self._read += chunk
                *lines, rest = bytes(self._read[consumed:]).split(b"\n")
                consumed = len(self._read) - len(rest)
                for line in lines:
                    # What is not answered here is left to the SDK, with all that follows.
                    if not self._answer_line(line):
                        return

    def _answer_line(self, line: bytes) -> bool:
        """Answer one line; return whether the next may be answered too.

        Raise ValueError for what is no message.
        """
        # An escape may stand for half a surrogate pair, which the SDK refuses.
        if b"\\u" in line:
            return False
        # Python reads NaN, which is no JSON.
        frame = json.loads(line, parse_constant=_refuse_json_constant)
        if not isinstance(frame, dict) or frame.get("jsonrpc") != "2.0":
            return False
        if "id" not in frame:
            if self._greeted and frame.get("method") == "notifications/initialized":
                self._initialized = True
            return self._greeted
        result = self._find_result(frame)
        if result is None:
            return self._greeted
        reply = {"jsonrpc": "2.0", "id": frame["id"], "result": result}
        data = json.dumps(reply, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        # Noted before it is written: an answer that was written in part must not be given again.
        self._answered.append(frame["id"])
        write_all(self._sink, data)
        return True

    def _find_result(self, frame: dict[str, Any]) -> dict[str, Any] | None:
        """Return the result of a request, None for one that is left to the SDK."""
        id_, method, params = frame["id"], frame.get("method"), frame.get("params", {})
        # A bool is an int in Python, and no id in JSON-RPC.
        if type(id_) not in (int, str) or id_ in self._answered or not isinstance(params, dict):
            return None
        if method == "initialize" and not self._greeted and _is_handshake(params):
            self._greeted = True
            return {
                **json.loads(HANDSHAKE.read_bytes()),
                "protocolVersion": params["protocolVersion"],
            }
        if method == "server/discover" and not self._greeted and _is_enveloped(params):
            return read_discovery()
        # A cursor asks for a page that only the SDK knows.
        if method == "tools/list" and self._initialized and params.keys() <= {"_meta"}:
            return {"tools": json.loads(TOOLS.read_bytes())}
        return None


def read_discovery() -> dict[str, Any]:
    """Return the answer to `server/discover`."""
    handshake = json.loads(HANDSHAKE.read_bytes())
    about = {f"{_ENVELOPE}serverInfo": handshake["serverInfo"]}
    return {
        **json.loads(DISCOVERY.read_bytes()),
        "instructions": handshake["instructions"],
        "_meta": about,
    }


def can_start_fast() -> bool:
    """Return whether `select` can wait for stdin and stdout, and a client is at the other end."""
    if sys.platform == "win32":
        return False
    return None not in (sys.__stdin__, sys.__stdout__) and not os.isatty(0)


def _is_handshake(params: dict[str, Any]) -> bool:
    return _is_client(params, "") and params.get("protocolVersion") in VERSIONS


def _is_enveloped(params: dict[str, Any]) -> bool:
    """Return whether these are exactly the parameters of a request of the stateless protocol."""
    meta = params.get("_meta")
    if params.keys() != {"_meta"} or not isinstance(meta, dict):
        return False
    names = {
        f"{_ENVELOPE}{name}" for name in ("protocolVersion", "clientInfo", "clientCapabilities")
    }
    return (
        meta.keys() == names
        and _is_client(meta, _ENVELOPE)
        and meta[f"{_ENVELOPE}protocolVersion"] == _STATELESS
    )


def _is_client(params: dict[str, Any], prefix: str) -> bool:
    """Return whether a client names itself and what it can do, under names with this prefix."""
    client = params.get(f"{prefix}clientInfo")
    capabilities = params.get(f"{prefix}clientCapabilities" if prefix else "capabilities")
    has_name = (
        isinstance(client, dict)
        and isinstance(client.get("name"), str)
        and isinstance(client.get("version"), str)
    )
    return has_name and isinstance(capabilities, dict)


def _refuse_json_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
