"""Serves an MCP server on stdin and stdout: every request is answered, nothing grows without bound, and it ends.

The SDK's own transport drops what it cannot read, lets replies pile up, and waits for tools that still run.
"""

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

import anyio
from anyio import to_thread
from mcp.server import MCPServer
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from evolvable_server.mcp.early import Begun
from evolvable_server.mcp.frames import Lines, LongLine, Refusal, read_frame
from evolvable_server.mcp.lifecycle import Lifecycle, guard
from evolvable_server.mcp.wire import Wire, can_be_polled, claim, write_whole, write_without_waiting

MAX_IN_FLIGHT = 64
"""Requests being handled or waiting for their reply to be read; further ones wait in the pipe."""

MAX_LISTENING = 64
"""Open subscriptions, which are requests that stay open; further ones are refused."""

DRAIN = 0.4
"""Seconds that requests in flight get after the last frame."""

READY_AFTER = 0.2
"""Seconds from the first reply until what is slow may begin: clients ask for the list of tools in them."""

_CHUNK = 64 * 1024

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


def run_stdio(
    server: MCPServer[Any],
    *,
    cleanup: Sequence[Callable[[], None]] = (),
    ready: Callable[[], None] | None = None,
    begun: Begun | None = None,
) -> NoReturn:
    """Serves on stdin and stdout until the client is gone, then ends the process. Call it on the main thread.

    Ends within a second of the end of stdin, of SIGTERM, SIGINT or SIGHUP, even while a tool runs; within three of the
    parent's death. `cleanup` and the exit codes: see Lifecycle. `ready`: see serve_stdio. begun: what was read and
    answered already.
    """
    lifecycle = Lifecycle(cleanup)
    try:
        wire = claim()
        guard(lifecycle, wire.source)
        anyio.run(_serve, server, wire, lifecycle, ready, begun or Begun())
    except BaseException:
        _log.exception("serving failed")
        lifecycle.begin(1)
    lifecycle.finish()


async def serve_stdio(server: MCPServer[Any], *, ready: Callable[[], None] | None = None) -> None:
    """Serves on stdin and stdout until stdin ends, and returns when the tools that run have ended too.

    While it serves, the process's stdin is empty and its stdout is stderr. `ready` is called once, on the event loop,
    READY_AFTER the first reply was written: what is slow to import or to load can begin then.
    """
    wire, lifecycle = claim(), Lifecycle()
    try:
        await _serve(server, wire, lifecycle, ready, Begun())
    finally:
        lifecycle.begin()
        wire.release()


async def _serve(
    server: MCPServer[Any], wire: Wire, lifecycle: Lifecycle, ready: Callable[[], None] | None, begun: Begun
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

    def __init__(self, wire: Wire, lifecycle: Lifecycle, begun: Begun) -> None:
        self._wire = wire
        self._polls_source, self._polls_sink = can_be_polled(wire.source), can_be_polled(wire.sink)
        self._begun, self._answered = begun.read, list(begun.answered)
        self._lifecycle = lifecycle
        self._replied = anyio.Event()
        self.settled = anyio.CancelScope()
        self._frames_in, self.frames = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.replies, self._replies_out = anyio.create_memory_object_stream[SessionMessage](0)
        self._slots = anyio.Semaphore(MAX_IN_FLIGHT)
        self._listening: set[RequestId] = set()
        self._reading = anyio.CancelScope()
        self._at_end = False
        self._writing = anyio.Lock()
        # The SDK's transport shares its threads with the tools: forty slow ones, and nothing is read or written.
        self._threads = anyio.CapacityLimiter(3)

    async def take_frames(self) -> None:
        """Hands what the client sends to the SDK until stdin or serving ends; then gives replies time to leave."""
        lines = Lines()
        async with self._frames_in:
            with self._reading:
                for line in lines.feed(self._begun):
                    await self._take(line)
                while not self._at_end:
                    chunk = await self._next_chunk()
                    for line in lines.feed(chunk or b"\n"):  # the end of stdin ends the last line too
                        await self._take(line)
            with anyio.move_on_after(DRAIN):
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
        if isinstance(frame, JSONRPCRequest):
            frame = await self._admit(frame)
        if isinstance(frame, Refusal):
            await self._write(frame.reply)
        elif frame:
            settled = partial(self._settle, frame.id) if isinstance(frame, JSONRPCRequest) else None
            await self._frames_in.send(SessionMessage(frame, ServerMessageMetadata(on_request_unanswered=settled)))
            self._lifecycle.progress += 1

    async def _admit(self, request: JSONRPCRequest) -> JSONRPCRequest | Refusal:
        """Waits for a place; a subscription stays open and would never give its place back, so it takes none."""
        if request.method != "subscriptions/listen" or request.id in self._listening:
            await self._slots.acquire()
            return request
        if len(self._listening) >= MAX_LISTENING:
            return Refusal(request.id, INTERNAL_ERROR, f"There are {MAX_LISTENING} open subscriptions; end one first.")
        self._listening.add(request.id)
        return request

    async def _settle(self, request_id: RequestId) -> None:
        """Gives back the place of a request that was answered, or cancelled and needs no answer."""
        if request_id in self._listening:
            self._listening.remove(request_id)
        else:
            self._slots.release()

    async def write_replies(self) -> None:
        """Writes what the SDK has to say until it has nothing more."""
        async with self._replies_out:
            async for item in self._replies_out:
                if not self._is_answered(item.message):
                    await self._write(item.message)
                if isinstance(item.message, JSONRPCResponse | JSONRPCError) and item.message.id is not None:
                    await self._settle(item.message.id)

    def _is_answered(self, message: JSONRPCMessage) -> bool:
        """Returns whether the client has had its answer before; asked once for each message."""
        if not isinstance(message, JSONRPCResponse | JSONRPCError) or message.id not in self._answered:
            return False
        self._answered.remove(message.id)
        self._replied.set()
        return True

    async def _write(self, message: JSONRPCMessage) -> None:
        line = _encoded(message)
        try:
            with anyio.CancelScope(shield=True):  # half a line would spoil the next one
                async with self._writing:
                    written = write_without_waiting(self._wire.sink, line) if self._polls_sink else 0
                    if written < len(line):
                        await self._in_thread(partial(write_whole, self._wire.sink, line[written:]))
        except OSError:  # nobody reads any more
            self._lifecycle.begin()
            return
        self._lifecycle.progress += 1
        if isinstance(message, JSONRPCResponse):
            self._replied.set()

    async def call_when_settled(self, ready: Callable[[], None]) -> None:
        """Calls `ready` a moment after the first reply."""
        with self.settled:
            await self._replied.wait()
            await anyio.sleep(READY_AFTER)
            ready()

    async def stop_reading(self) -> None:
        """Ends the wait for further frames when the lifecycle says that serving is over."""
        await self._in_thread(self._lifecycle.begun.wait)
        if not self._at_end:
            self._reading.cancel()

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)


def _encoded(message: JSONRPCMessage) -> bytes:
    """Returns the line that says `message`; of a result that JSON cannot say, an error in its place."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError:
        _log.exception("a message cannot be written as JSON")
    if isinstance(message, JSONRPCResponse | JSONRPCError):
        return _encoded(Refusal(message.id, INTERNAL_ERROR, "The result cannot be written as JSON.").reply)
    return b""
