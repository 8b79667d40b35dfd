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
"""The same before any progress: the server may still be starting."""

_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)
# No signal has this number.
_RING = b"\0"

_log = logging.getLogger(__name__)


class Lifecycle:
    """When serving is over, and how the process ends.

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
            cleaner.join(
                CLEANUP
                + min(
                    GRACE,
                    max(0.0, self.deadline - time.monotonic()),
                )
            )
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
    Windows has no sign of a lost client but the end of stdin.
    """
    if sys.platform == "win32":
        watch = partial(_keep_deadline, lifecycle)

        def handler(number: int, frame: FrameType | None) -> None:
            # On a thread: the handler may interrupt code that holds the lock.
            threading.Thread(target=lifecycle.signalled, args=(number,), daemon=True).start()

    else:
        watch = _Watch(lifecycle, source).run

        def handler(number: int, frame: FrameType | None) -> None:
            """Do nothing: the watch hears of the signal through its bell, even while this thread is
            inside C.
            """

    for number in _SIGNALS:
        if (
            number in (signal.SIGTERM, signal.SIGINT)
            or signal.getsignal(number) is not signal.SIG_IGN
        ):
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
        """One thread that sleeps until something happens to the process, whatever its event loop
        does meanwhile.
        """

        def __init__(self, lifecycle: Lifecycle, source: int) -> None:
            self._lifecycle = lifecycle
            self._parent = os.getppid()
            self._hung_up = False
            self._seen, self._seen_at = 0, 0.0
            self._bell, ringer = os.pipe()
            # A full pipe rings already, and a signal handler must not wait.
            os.set_blocking(ringer, False)
            signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
            lifecycle.on_begin = lambda: os.write(ringer, _RING)
            self._poll = select.poll()
            self._poll.register(self._bell, select.POLLIN)
            self._poll.register(source, _HUNG_UP)

        def run(self) -> None:
            """End the process; never returns."""
            while True:
                for fd, event in self._poll.poll(self._pause() * 1000):
                    if fd == self._bell:
                        self._answer(os.read(fd, 64))
                    else:
                        # A descriptor that has hung up would end each poll at once.
                        self._poll.unregister(fd)
                        self._hung_up = bool(event & _HUNG_UP)
                if time.monotonic() >= self._lifecycle.deadline:
                    self._lifecycle.finish()
                if os.getppid() != self._parent:
                    self._lifecycle.begin()
                if self._hung_up and self._is_stuck():
                    self._lifecycle.begin(grace=GRACE / 2)  # part of it went by

        def _answer(self, rings: bytes) -> None:
            for number in rings:
                if number in _SIGNALS:  # a signal that somebody else handles rings too
                    self._lifecycle.handle_signal(number)

        def _pause(self) -> float:
            until_deadline = max(0.0, self._lifecycle.deadline - time.monotonic())
            return min(until_deadline, STALL / 2 if self._hung_up else PARENT_WATCH)

        def _is_stuck(self) -> bool:
            """Return whether the transport cannot get to the end of stdin, since the client reads
            no replies.
            """
            now, progress = time.monotonic(), self._lifecycle.progress
            if progress != self._seen or not self._seen_at:
                self._seen, self._seen_at = progress, now
            return now - self._seen_at > (STALL if progress else START)


MAX_IN_FLIGHT = 64
"""Requests being handled or waiting for their reply to be read; further ones wait in the pipe."""

MAX_LISTENING = 64
"""Open subscriptions, which are requests that stay open; further ones are refused."""

# Less than GRACE, so that replies leave before the process ends.
DRAIN = 0.4
"""Seconds that requests in flight get after the last frame."""

READY_AFTER = 0.2
"""Seconds from the first reply until what is slow may begin: clients ask for the list of tools in
them.
"""

READY_LATEST = 2.0
"""Seconds from the first reply that it waits at most, while requests are in flight: the first call
comes at once.
"""

_CHUNK = 64 * 1024

_T = TypeVar("_T")


def run_stdio(
    server: MCPServer[Any],
    *,
    cleanup: Sequence[Callable[[], None]] = (),
    ready: Callable[[], None] | None = None,
    begun: FastStartState | None = None,
) -> NoReturn:
    """Serve on stdin and stdout until the client is gone, then end the process. Call it on the main
    thread.

    Ends within a second of the end of stdin, of SIGTERM, SIGINT or SIGHUP, even while a tool runs;
    within three of the parent's death. `cleanup` and the exit codes: see Lifecycle. `ready`: called
    once, on the event loop, READY_AFTER the first reply was written and when no request is in
    flight, but not later than READY_LATEST; what is slow to import or to load can begin then.
    begun: what was read and answered.
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
    """One client at the other end of the wire: frames go in to the SDK, replies come out."""

    def __init__(self, wire: StdioDescriptors, lifecycle: Lifecycle, begun: FastStartState) -> None:
        self._wire = wire
        self._polls_source, self._polls_sink = is_pollable(wire.source), is_pollable(wire.sink)
        self._begun, self._answered = begun.read, list(begun.answered)
        self._lifecycle = lifecycle
        self._replied = anyio.Event()
        self.settled = anyio.CancelScope()
        # Without a buffer: frames that the SDK does not take yet stay in the pipe.
        self._frames_in, self.frames = anyio.create_memory_object_stream[
            SessionMessage | Exception
        ](0)
        self.replies, self._replies_out = anyio.create_memory_object_stream[SessionMessage](0)
        self._slots = anyio.Semaphore(MAX_IN_FLIGHT)
        self._listening: set[types.RequestId] = set()
        self._reading = anyio.CancelScope()
        self._at_end = False
        # Guards the sink: one line is written at a time.
        self._writing = anyio.Lock()
        # The SDK's transport shares its threads with the tools: forty slow ones, and nothing is
        # read or written. One each for reading, for writing and for the wait for the end.
        self._threads = anyio.CapacityLimiter(3)

    async def take_frames(self) -> None:
        """Hand what the client sends to the SDK until stdin or serving ends; then give replies time
        to leave.
        """
        lines = Lines()
        async with self._frames_in:
            with self._reading:
                for line in lines.feed(self._begun):
                    await self._take(line)
                while not self._at_end:
                    chunk = await self._next_chunk()
                    # The end of stdin ends the last line too.
                    for line in lines.feed(chunk or b"\n"):
                        await self._take(line)
            with anyio.move_on_after(DRAIN):
                # Every place is free again once all requests are answered.
                for _ in range(MAX_IN_FLIGHT):
                    await self._slots.acquire()

    async def _next_chunk(self) -> bytes:
        # Through a thread it takes a fifth of a millisecond longer.
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

    async def _take(self, line: bytes | LongLine) -> None:
        frame = read_frame(line)
        if isinstance(frame, types.JSONRPCRequest):
            # The SDK's list would be dropped, and takes a twentieth of the start. A question for
            # the protocol would bind the SDK to it, and a client that asked may still begin the
            # older handshake.
            if frame.method in ("tools/list", "server/discover") and self._was_answered(frame.id):
                return
            frame = await self._admit(frame)
        if isinstance(frame, JsonRpcRefusal):
            await self._write(frame.reply)
        elif frame:
            settled = (
                partial(self._settle, frame.id) if isinstance(frame, types.JSONRPCRequest) else None
            )
            await self._frames_in.send(
                SessionMessage(frame, ServerMessageMetadata(on_request_unanswered=settled))
            )
            self._lifecycle.progress += 1

    async def _admit(self, request: types.JSONRPCRequest) -> types.JSONRPCRequest | JsonRpcRefusal:
        """Wait for a place; a subscription stays open and would never give its place back, so it
        takes none.
        """
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
        """Give back the place of a request that was answered, or cancelled and needs no answer."""
        if request_id in self._listening:
            self._listening.remove(request_id)
        else:
            self._slots.release()

    async def write_replies(self) -> None:
        """Write what the SDK has to say until it has nothing more."""
        async with self._replies_out:
            async for item in self._replies_out:
                if not self._is_second_answer(item.message):
                    await self._write(item.message)
                if (
                    isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError)
                    and item.message.id is not None
                ):
                    await self._settle(item.message.id)

    def _is_second_answer(self, message: types.JSONRPCMessage) -> bool:
        """Return whether the client has had its answer before; asked once for each message."""
        return isinstance(
            message, types.JSONRPCResponse | types.JSONRPCError
        ) and self._was_answered(message.id)

    def _was_answered(self, request_id: types.RequestId | None) -> bool:
        """Return whether a request was answered before the SDK was there; True once for each."""
        if request_id not in self._answered:
            return False
        self._answered.remove(request_id)
        self._replied.set()
        return True

    async def _write(self, message: types.JSONRPCMessage) -> None:
        line = _encode(message)
        try:
            with anyio.CancelScope(shield=True):  # half a line would spoil the next one
                async with self._writing:
                    written = write_nonblocking(self._wire.sink, line) if self._polls_sink else 0
                    if written < len(line):
                        await self._in_thread(partial(write_all, self._wire.sink, line[written:]))
        except OSError:  # nobody reads any more
            self._lifecycle.begin()
            return
        self._lifecycle.progress += 1
        if isinstance(message, types.JSONRPCResponse):
            self._replied.set()

    async def call_when_settled(self, ready: Callable[[], None]) -> None:
        """Call `ready` a moment after the first reply, and when the requests that came in it are
        answered.
        """
        with self.settled:
            await self._replied.wait()
            latest = anyio.current_time() + READY_LATEST
            await anyio.sleep(READY_AFTER)
            # All places are free when no request is in flight.
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


def _encode(message: types.JSONRPCMessage) -> bytes:
    """Return the line that says `message`; of a result that JSON cannot say, an error
    in its place.
    """
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError:
        _log.exception("a message cannot be written as JSON")
    if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
        return _encode(
            JsonRpcRefusal(
                message.id, types.INTERNAL_ERROR, "The result cannot be written as JSON."
            ).reply
        )
    return b""
