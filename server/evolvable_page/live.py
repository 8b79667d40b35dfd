"""Tell open pages that the library changed: one thread looks, and server-sent events tell every
page.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse

from evolvable_page.access import PageAccess, PageSession
from evolvable_store.storage import Storage

POLL_SECONDS = 0.04
"""How often the library is asked for a change while a page is open: a query of SQLite's change
counter.
"""

RUN_SECONDS = 0.5
"""How often the ledgers of runs are looked at."""

IDLE_SECONDS = 15.0
"""How often a stream without a change sends a comment, so that a closed browser is noticed."""

# Each holds a connection of the server's hundred; a tab beyond that asks again after ten seconds.
MAX_STREAMS = 32
"""Pages that are told of changes at once."""

RUN_DIRECTORY = "evolve"
LEDGERS = "*/ledger.jsonl"

Streams = dict[asyncio.Event, asyncio.AbstractEventLoop]


class ChangeFeed:
    """Follows the library and the ledgers of its runs while at least one page listens."""

    def __init__(self, backend: Storage, home: Path) -> None:
        self._backend, self._runs = backend, home / RUN_DIRECTORY
        # Guards `_streams` and `number`, which the threads of requests and of `_follow` use.
        self._lock = threading.Lock()
        self._streams: Streams = {}
        self._listening, self._stop = threading.Event(), threading.Event()
        self.number = 0
        """How often pages were told of a change."""
        self.seen = 0
        """SQLite's change counter, as it was last seen."""
        # `_asking` guards the SQLite connection behind `_data_version`, which one thread at a time
        # may use.
        self._asking, self._open = threading.Lock(), contextlib.ExitStack()
        self._data_version: Callable[[], int] = self._open.enter_context(backend.watching())
        self._thread = threading.Thread(
            target=self._follow, name="evolvable-page-feed", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop following; every stream ends."""
        self._stop.set()
        # Wakes `_follow`, which waits while no page is open, so that it can see `_stop`.
        self._listening.set()
        self.notify()
        self._thread.join(timeout=2)
        with self._asking:
            # A request that still runs gets a constant in place of an error from a closed
            # connection.
            self._data_version = lambda: 0
            self._open.close()

    def commits(self) -> int:
        """Return a number that changes with each commit to the library, also by this process.

        Thread-safe.
        """
        with self._asking:
            return self._data_version()

    @property
    def is_closed(self) -> bool:
        """Whether the page ends."""
        return self._stop.is_set()

    def notify(self) -> None:
        """Tell every open page that something changed. Called from any thread."""
        with self._lock:
            self.number += 1
            for event, loop in self._streams.items():
                with contextlib.suppress(RuntimeError):  # the loop was closed: the page ends
                    loop.call_soon_threadsafe(event.set)

    @contextlib.contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """Yield an event of the running loop that is set at every change.

        Raise OverflowError beyond MAX_STREAMS.
        """
        event = asyncio.Event()
        with self._lock:
            if len(self._streams) >= MAX_STREAMS:
                raise OverflowError
            self._streams[event] = asyncio.get_running_loop()
            self._listening.set()
        try:
            yield event
        finally:
            with self._lock:
                del self._streams[event]
                if not self._streams and not self._stop.is_set():
                    self._listening.clear()

    def _follow(self) -> None:
        with self._backend.watching() as data_version:
            seen, ledgers, next_look = data_version(), self._read_ledgers(), 0.0
            while not self._stop.is_set():
                # Without an open page nothing polls, and the thread sleeps.
                self._listening.wait()
                now = data_version()
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + RUN_SECONDS
                    before, ledgers = ledgers, self._read_ledgers()
                    # A ledger is no part of the library: a negative number differs from every
                    # counter, and `seen` keeps its value.
                    now = -now if ledgers != before else now
                if now != seen:
                    self.seen = seen = abs(now)
                    self.notify()
                self._stop.wait(POLL_SECONDS)

    def _read_ledgers(self) -> frozenset[tuple[str, int, int]]:
        """Return the run, size and time of each ledger, which differ once a run writes."""
        ledgers = set()
        with contextlib.suppress(OSError):
            for path in self._runs.glob(LEDGERS):
                status = path.stat()
                ledgers.add((path.parent.name, status.st_size, status.st_mtime_ns))
        return frozenset(ledgers)


def stream_endpoint(feed: ChangeFeed, access: PageAccess) -> Callable[[Request], object]:
    """Return the endpoint of the stream: one event for each change, until the session or the page
    ends.
    """

    async def events(session: PageSession, changed: asyncio.Event) -> AsyncIterator[str]:
        yield f"retry: 500\nid: {feed.number}\nevent: hello\ndata: {feed.number}\n\n"
        while not feed.is_closed and await access.holds(session):
            try:
                await asyncio.wait_for(changed.wait(), IDLE_SECONDS)
            except TimeoutError:
                # A comment line of server-sent events, which the browser ignores; the write fails
                # where it is gone.
                yield ": still here\n\n"
                continue
            # Cleared before the event is sent: a change during the send sets it again, and is sent
            # too.
            changed.clear()
            if not feed.is_closed:
                yield f"id: {feed.number}\nevent: change\ndata: {feed.number}\n\n"

    async def answer(request: Request) -> object:
        async def body() -> AsyncIterator[str]:
            try:
                with feed.listening() as changed:
                    async for part in events(request.scope["page_session"], changed):
                        yield part
            except OverflowError:
                # The browser connects again by itself after so many milliseconds.
                yield "retry: 10000\n\n"

        if feed.is_closed:
            return PlainTextResponse("The page ends.\n", 503)
        return StreamingResponse(body(), media_type="text/event-stream")

    return answer
