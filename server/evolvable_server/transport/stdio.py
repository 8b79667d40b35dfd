"""Serve MCP on stdin and stdout: answer every request, bound all memory, and end within a second of
the client.

The SDK's own transport drops lines that it cannot read, lets replies pile up, and waits for tools
that still run.
"""

import logging
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, NoReturn, TypeVar

import anyio
import mcp_types as types
from anyio import to_thread
from mcp.server import MCPServer
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from evolvable_server.mcp import (
    FastStartState,
    StdioDescriptors,
    claim_stdio,
    is_pollable,
    write_all,
    write_nonblocking,
)
from evolvable_server.transport.json_rpc import JsonRpcRefusal, Lines, LongLine, read_frame

# With CLEANUP less than a second, the time in which the process ends after its client.
GRACE = 0.6
"""Seconds from the first reason to end until cleanup begins, whatever still runs."""

CLEANUP = 0.25
"""Seconds that all cleanup callbacks get together, and what is left of GRACE when it begins."""

# Polled, because not every system tells a process that its parent has died.
PARENT_WATCH = 2.0
"""Seconds between two looks at the parent."""

STALL = 0.2
"""Seconds without progress after which a closed stdin counts as read to its end."""

START = 5.0
"""Seconds for the same before any progress: the server may still be starting."""

_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)
# The byte that wakes the watch without a signal: no signal has the number 0.
_RING = b"\0"

_log = logging.getLogger(__name__)


class Lifecycle:
    """Decides when serving is over, and ends the process.

    Exit codes: 0 when the client closed stdin or died, 128 + n after signal n, 1 when serving
    failed. `cleanup` is read when the end comes, so it may grow until then. The callbacks run once,
    in order, on a thread of their own; one that raises does not stop the next.
    """

    def __init__(self, cleanup: Sequence[Callable[[], None]] = ()) -> None:
        self.begun = threading.Event()
        self.deadline = math.inf
        self.progress = 0
        self.on_begin: Callable[[], object] = lambda: None
        self._cleanup = cleanup
        self._code = 0
        # The first lock guards the first call of `begin`, the second lets one thread end the
        # process.
        self._beginning = threading.Lock()
        self._finishing = threading.Lock()

    def begin(self, code: int = 0, grace: float = GRACE) -> None:
        """Say that serving is over, from any thread; only the first call counts."""
        with self._beginning:
            if self.begun.is_set():
                return
            self._code = code
            self.deadline = time.monotonic() + grace
            self.begun.set()
        self.on_begin()

    def handle_signal(self, number: int) -> None:
        """Begin the end; a second signal does not wait for replies any more."""
        if self.begun.is_set():
            self.finish()
        self.begin(128 + number)

    def finish(self) -> NoReturn:
        """Run the callbacks, flushes, and end the process with every thread that still runs."""
        self._finishing.acquire()  # never released: a second caller waits here for the end
        try:
            cleaner = threading.Thread(target=self._clean_up, daemon=True)
            cleaner.start()
            left = max(0.0, self.deadline - time.monotonic())
            # The deadline is infinite where nothing has begun the end.
            cleaner.join(CLEANUP + min(GRACE, left))
        finally:
            # A normal end would wait for the tools that still run.
            os._exit(self._code)

    def _clean_up(self) -> None:
        for callback in tuple(self._cleanup):
            try:
                callback()
            except Exception:
                _log.exception("a cleanup callback failed")
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()


def guard(lifecycle: Lifecycle, source: int) -> None:
    """Watch signals, the parent and the other end of `source`, and keep the lifecycle's deadline.

    Call it once, on the main thread. A SIGHUP that was ignored at the start (nohup) stays ignored.
    On Windows only the end of stdin shows that the client is gone.
    """
    if sys.platform == "win32":
        watch = partial(_keep_deadline, lifecycle)

        def handler(number: int, frame: FrameType | None) -> None:
            # On a thread: the handler may interrupt code that holds the lock.
            threading.Thread(target=lifecycle.handle_signal, args=(number,), daemon=True).start()

    else:
        watch = _Watch(lifecycle, source).run

        def handler(number: int, frame: FrameType | None) -> None:
            """Do nothing: Python writes the signal's number to the watch's pipe.

            The watch reads it even while this thread is inside C.
            """

    for number in _SIGNALS:
        always_handled = number in (signal.SIGTERM, signal.SIGINT)
        if always_handled or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
    threading.Thread(target=watch, name="lifecycle", daemon=True).start()


def _keep_deadline(lifecycle: Lifecycle) -> None:
    lifecycle.begun.wait()
    time.sleep(GRACE)
    lifecycle.finish()


if sys.platform != "win32":
    # POLLRDHUP exists on Linux alone.
    _HUNG_UP = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)

    class _Watch:
        """A thread that wakes on a signal, a lost client or a lost parent.

        It does not depend on the event loop.
        """

        def __init__(self, lifecycle: Lifecycle, source: int) -> None:
            self._lifecycle = lifecycle
            self._parent = os.getppid()
            self._hung_up = False
            self._last_progress, self._progress_at = 0, 0.0
            self._bell, ringer = os.pipe()
            # A full pipe wakes the watch too, and a signal handler must not wait.
            os.set_blocking(ringer, False)
            signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
            lifecycle.on_begin = lambda: os.write(ringer, _RING)
            self._poll = select.poll()
            self._poll.register(self._bell, select.POLLIN)
            self._poll.register(source, _HUNG_UP)

        def run(self) -> None:
            """Wait, and end the process; never returns."""
            while True:
                for fd, event in self._poll.poll(self._find_timeout() * 1000):
                    if fd == self._bell:
                        self._handle_rings(os.read(fd, 64))
                    else:
                        # A descriptor that has hung up would end each poll at once.
                        self._poll.unregister(fd)
                        self._hung_up = bool(event & _HUNG_UP)
                if time.monotonic() >= self._lifecycle.deadline:
                    self._lifecycle.finish()
                if os.getppid() != self._parent:
                    self._lifecycle.begin()
                if self._hung_up and self._is_stuck():
                    # A part of GRACE went by while the watch waited for progress.
                    self._lifecycle.begin(grace=GRACE / 2)

        def _handle_rings(self, rings: bytes) -> None:
            for number in rings:
                # The number may be _RING, or a signal with another handler.
                if number in _SIGNALS:
                    self._lifecycle.handle_signal(number)

        def _find_timeout(self) -> float:
            until_deadline = max(0.0, self._lifecycle.deadline - time.monotonic())
            return min(until_deadline, STALL / 2 if self._hung_up else PARENT_WATCH)

        def _is_stuck(self) -> bool:
            """Return whether the transport makes no progress: nobody reads the replies."""
            now, progress = time.monotonic(), self._lifecycle.progress
            if progress != self._last_progress or not self._progress_at:
                self._last_progress, self._progress_at = progress, now
            return now - self._progress_at > (STALL if progress else START)


MAX_IN_FLIGHT = 64
"""Requests being handled or waiting for their reply to be read; further ones wait in the pipe."""

MAX_LISTENING = 64
"""Open subscriptions, which are requests that stay open; further ones are refused."""

# Less than GRACE, so that replies leave before the process ends.
DRAIN = 0.4
"""Seconds that requests in flight get after the last frame."""

READY_AFTER = 0.2
"""Seconds from the first reply until slow work may begin.

Clients ask for the list of tools in them.
"""

READY_LATEST = 2.0
"""Seconds from the first reply after which slow work begins although requests are in flight.

Some clients send their first call at once.
"""

_CHUNK = 64 * 1024

# What the SDK's stream of frames takes.
_Frame = SessionMessage | Exception

_T = TypeVar("_T")


def run_stdio(
    server: MCPServer[Any],
    *,
    cleanup: Sequence[Callable[[], None]] = (),
    ready: Callable[[], None] | None = None,
    begun: FastStartState | None = None,
) -> NoReturn:
    """Serve on stdin and stdout until the client is gone, then end the process.

    Call it on the main thread. The process ends within a second of the end of stdin, of SIGTERM,
    SIGINT or SIGHUP, even while a tool runs. It ends within three seconds of the parent's death.

    Args:
        server: The server of the SDK.
        cleanup: Callbacks before the end, see Lifecycle.
        ready: Called once, on the event loop, when slow imports can begin: READY_AFTER the first
        reply and with no request in flight, at the latest after READY_LATEST.
        begun: The bytes that were read, and the requests that were answered, before this call.
    """
    lifecycle = Lifecycle(cleanup)
    try:
        wire = claim_stdio()
        guard(lifecycle, wire.source)
        anyio.run(_serve, server, wire, lifecycle, ready, begun or FastStartState())
    except BaseException:
        _log.exception("serving failed")
        lifecycle.begin(1)
    lifecycle.finish()


async def _serve(
    server: MCPServer[Any],
    wire: StdioDescriptors,
    lifecycle: Lifecycle,
    ready: Callable[[], None] | None,
    begun: FastStartState,
) -> None:
    client, low = _Client(wire, lifecycle, begun), server._lowlevel_server
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.take_frames)
        tasks.start_soon(client.write_replies)
        tasks.start_soon(client.stop_reading)
        if ready is not None:
            tasks.start_soon(client.call_when_settled, ready)
        try:
            await low.run(client.frames, client.replies, low.create_initialization_options())
        except BaseException:
            lifecycle.begin(1)
            raise
        lifecycle.begin()
        client.settled.cancel()


class _Client:
    """One client on stdin and stdout: its frames go to the SDK, the SDK's replies to it."""

    def __init__(self, wire: StdioDescriptors, lifecycle: Lifecycle, begun: FastStartState) -> None:
        self._wire = wire
        self._polls_source, self._polls_sink = is_pollable(wire.source), is_pollable(wire.sink)
        self._begun, self._answered = begun.read, list(begun.answered)
        self._lifecycle = lifecycle
        self._replied = anyio.Event()
        self.settled = anyio.CancelScope()
        # Without a buffer: frames that the SDK does not take yet stay in the pipe.
        self._frames_in, self.frames = anyio.create_memory_object_stream[_Frame](0)
        self.replies, self._replies_out = anyio.create_memory_object_stream[SessionMessage](0)
        self._slots = anyio.Semaphore(MAX_IN_FLIGHT)
        self._listening: set[types.RequestId] = set()
        self._reading = anyio.CancelScope()
        self._at_end = False
        # Guards the sink: one line is written at a time.
        self._writing = anyio.Lock()
        # One thread each for reading, for writing and for the wait for the end. On anyio's shared
        # forty threads, as many slow tools would stop reading and writing.
        self._threads = anyio.CapacityLimiter(3)

    async def take_frames(self) -> None:
        """Hand the client's frames to the SDK until stdin or serving ends.

        Then wait, at most DRAIN, until the replies are written.
        """
        lines = Lines()
        async with self._frames_in:
            with self._reading:
                for line in lines.feed(self._begun):
                    await self._take_line(line)
                while not self._at_end:
                    chunk = await self._wait_for_chunk()
                    # The end of stdin ends the last line too.
                    for line in lines.feed(chunk or b"\n"):
                        await self._take_line(line)
            with anyio.move_on_after(DRAIN):
                # All slots are free again once all requests are answered.
                for _ in range(MAX_IN_FLIGHT):
                    await self._slots.acquire()

    async def _wait_for_chunk(self) -> bytes:
        # Without a thread where the system allows it: a thread delays each chunk.
        if self._polls_source:
            await anyio.wait_readable(self._wire.source)
            return self._read_chunk()
        return await self._in_thread(self._read_chunk)

    def _read_chunk(self) -> bytes:
        try:
            chunk = os.read(self._wire.source, _CHUNK)
        except OSError:
            chunk = b""
        if not chunk:
            self._at_end = True
            self._lifecycle.begin()
        return chunk

    async def _take_line(self, line: bytes | LongLine) -> None:
        frame = read_frame(line)
        if isinstance(frame, types.JSONRPCRequest):
            # The SDK would make its list of tools only for it to be dropped. `server/discover`
            # would bind the SDK to that protocol, and the client may still begin the older
            # handshake.
            if frame.method in ("tools/list", "server/discover") and self._was_answered(frame.id):
                return
            frame = await self._admit(frame)
        if isinstance(frame, JsonRpcRefusal):
            await self._write(frame.reply)
        elif frame:
            metadata = ServerMessageMetadata()
            if isinstance(frame, types.JSONRPCRequest):
                # For a cancelled request, which the SDK does not answer.
                metadata.on_request_unanswered = partial(self._settle, frame.id)
            await self._frames_in.send(SessionMessage(frame, metadata))
            self._lifecycle.progress += 1

    async def _admit(self, request: types.JSONRPCRequest) -> types.JSONRPCRequest | JsonRpcRefusal:
        """Wait for a slot. A subscription takes none: it stays open and would never free it."""
        if request.method != "subscriptions/listen" or request.id in self._listening:
            await self._slots.acquire()
            return request
        if len(self._listening) >= MAX_LISTENING:
            return JsonRpcRefusal(
                request.id,
                types.INTERNAL_ERROR,
                f"There are {MAX_LISTENING} open subscriptions; end one first.",
            )
        self._listening.add(request.id)
        return request

    async def _settle(self, request_id: types.RequestId) -> None:
        """Free the slot of a request that was answered, or cancelled and needs no answer."""
        if request_id in self._listening:
            self._listening.remove(request_id)
        else:
            self._slots.release()

    async def write_replies(self) -> None:
        """Write the SDK's messages until its stream ends."""
        async with self._replies_out:
            async for item in self._replies_out:
                message = item.message
                if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                    await self._write(message)
                    continue
                if not self._was_answered(message.id):
                    await self._write(message)
                if message.id is not None:
                    await self._settle(message.id)

    def _was_answered(self, request_id: types.RequestId | None) -> bool:
        """Return whether a request was answered before the SDK was imported; True once for each."""
        if request_id not in self._answered:
            return False
        self._answered.remove(request_id)
        self._replied.set()
        return True

    async def _write(self, message: types.JSONRPCMessage) -> None:
        line = _encode_line(message)
        try:
            # Not cancelled: half a line would break the next one.
            with anyio.CancelScope(shield=True):
                async with self._writing:
                    written = write_nonblocking(self._wire.sink, line) if self._polls_sink else 0
                    if written < len(line):
                        await self._in_thread(partial(write_all, self._wire.sink, line[written:]))
        except OSError:
            # Nobody reads any more.
            self._lifecycle.begin()
            return
        self._lifecycle.progress += 1
        if isinstance(message, types.JSONRPCResponse):
            self._replied.set()

    async def call_when_settled(self, ready: Callable[[], None]) -> None:
        """Call `ready` after the first reply, when no request is in flight; see `run_stdio`."""
        with self.settled:
            await self._replied.wait()
            latest = anyio.current_time() + READY_LATEST
            await anyio.sleep(READY_AFTER)
            # All slots are free when no request is in flight.
            while self._slots.value < MAX_IN_FLIGHT and anyio.current_time() < latest:
                await anyio.sleep(READY_AFTER / 4)
            ready()

    async def stop_reading(self) -> None:
        """End the wait for further frames when the lifecycle says that serving is over."""
        await self._in_thread(self._lifecycle.begun.wait)
        if not self._at_end:
            self._reading.cancel()

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        # A read that never returns must not hold up the end.
        return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)


def _encode_line(message: types.JSONRPCMessage) -> bytes:
    """Return the line of a message; for a result that JSON cannot express, that of an error."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError:
        _log.exception("a message cannot be written as JSON")
    if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
        return b""
    reason = "The result cannot be written as JSON."
    return _encode_line(JsonRpcRefusal(message.id, types.INTERNAL_ERROR, reason).reply)
