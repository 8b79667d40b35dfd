"""Notify clients of changes and warnings.

Clients of 2026-07-28 listen on a subscription, which the SDK serves from a bus. Older ones get
notifications on their connection; the SDK 2.3 keeps no list of connections, so a middleware does.
Warnings, such as a refused skill, go to the older clients alone: 2026-07-28 has log messages only
for single requests.
"""

import asyncio
import collections
import contextlib
import functools
import logging
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, get_args

import anyio
import mcp_types as types
from mcp.server import NotificationOptions
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

from evolvable_server.mcp.resources import uri_of
from evolvable_server.mcp.server import LibraryServer
from evolvable_store import Change, Store, TreeEntry
from evolvable_store.errors import TryAgain
from evolvable_store.resource import Kind

QueueItem = TypeVar("QueueItem")


class ThreadQueue(Generic[QueueItem]):
    """A queue from any thread to one task of the event loop.

    Of more than `most` items the oldest are dropped.
    """

    def __init__(self, most: int) -> None:
        # Appending to a deque and popping from it are atomic, so no lock is needed.
        self._items: collections.deque[QueueItem] = collections.deque(maxlen=most)
        self._wake: Callable[[], object] = lambda: None

    def post(self, items: Iterable[QueueItem]) -> None:
        """Add items. Called on any thread."""
        self._items.extend(items)
        with contextlib.suppress(RuntimeError):  # the loop has just been closed: no client is left
            self._wake()

    async def take_all(self) -> list[QueueItem]:
        """Wait for items and return all of them, oldest first. Called by one task at a time."""
        while True:
            event = asyncio.Event()
            # Set before the queue is read: an item posted in between would wake nobody.
            self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, event.set)
            if self._items:
                # As many as there are now: another thread may add more meanwhile.
                return [self._items.popleft() for _ in range(len(self._items))]
            await event.wait()


log = logging.getLogger(__name__)

MAX_POSTED = 10_000
"""Changes that wait to be published."""

AGAIN_SECONDS = 0.5
"""Seconds until changes are tried again whose files the library cannot name yet."""

# One client that does not read holds up the others for this long.
SEND_SECONDS = 1.0
"""Seconds that one client may take to accept a notification."""

MAX_URIS = 2_000
"""Updated URIs that one batch of changes names.

With more of them, clients have to read the list again anyway.
"""


class Notifier:
    """Notifies the clients that listen."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.bus = InMemorySubscriptionBus()
        self.lists_tools = False
        """Whether the library's tools are in the list of tools."""
        self._posted = ThreadQueue[Change](MAX_POSTED)
        # Connections with a handshake, each with the URIs it subscribed to.
        # Weak keys: a connection that is closed goes by itself.
        self._connections: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()

    def post(self, changes: Sequence[Change]) -> None:
        """Hand changes over to `run`, from any thread.

        When clients read too slowly, the oldest changes are dropped.
        """
        self._posted.post(changes)

    async def run(self) -> None:
        """Publish what is posted, for as long as the server runs."""
        while True:
            changes = await self._posted.take_all()
            try:
                while not await self._try_publish(changes):
                    await asyncio.sleep(AGAIN_SECONDS)
            except Exception:
                # Clients find the change with their next question; serving must not end with a
                # notification.
                log.exception("telling clients of changes failed")

    async def _try_publish(self, changes: Sequence[Change]) -> bool:
        """Notify all clients and return True, or send nothing and return False."""
        try:
            await self.publish(changes)
        except TryAgain as error:
            log.debug("clients are notified later: %s", error)
            return False
        return True

    async def publish(self, changes: Sequence[Change]) -> None:
        """Notify all clients of these changes. Raises TryAgain, before anything is sent."""
        if changes:
            uris: Sequence[str] = ()
            # Without subscribers nobody asks which files changed.
            if self._has_subscribers():
                uris = await anyio.to_thread.run_sync(self._list_changed_uris, changes)
            await self._announce_list(ResourcesListChanged(), "send_resource_list_changed")
            for uri in uris:
                await self.bus.publish(ResourceUpdated(uri=uri))
                # Clients with a handshake do not listen on the bus.
                await self._notify_updated(uri)
        if any(change.kind is Kind.PROMPT for change in changes):
            await self._announce_list(PromptsListChanged(), "send_prompt_list_changed")
        if self.lists_tools and any(change.kind is Kind.TOOL for change in changes):
            await self.tools_changed()

    async def tools_changed(self) -> None:
        """Notify all clients that the list of tools changed."""
        await self._announce_list(ToolsListChanged(), "send_tool_list_changed")

    def _has_subscribers(self) -> bool:
        """Return whether a client may want to know of single resources.

        Such a client made a handshake and subscribed to some, or listens on the bus. Most do
        neither, and to name the changed files two manifests of each change are read.
        """
        # The bus of the SDK has no public way to ask for its listeners.
        return bool(self.bus._listeners) or any(self._connections.values())

    def _list_changed_uris(self, changes: Sequence[Change]) -> list[str]:
        uris: dict[str, None] = {}
        for change in changes:
            head = self._store.head_or_none(change.ref)
            for path in self._list_changed_files(head.id, change) if head else ():
                uris[uri_of(change.scope, change.name, path, change.kind)] = None
                if len(uris) >= MAX_URIS:
                    return list(uris)
        return list(uris)

    def _list_changed_files(self, resource: int, change: Change) -> list[str]:
        backend = self._store.backend
        old = backend.manifest(resource, change.before) if change.before else None
        new = backend.manifest(resource, change.after) if change.after else None
        before: Mapping[str, TreeEntry] = old or {}
        after: Mapping[str, TreeEntry] = new or {}
        return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))

    async def _announce_list(
        self, event: ResourcesListChanged | PromptsListChanged | ToolsListChanged, method: str
    ) -> None:
        await self.bus.publish(event)
        for connection in self.open_connections():
            await self._send(getattr(connection, method)())

    async def _notify_updated(self, uri: str) -> None:
        for connection in self.open_connections():
            if uri in self._connections.get(connection, ()):
                await self._send(connection.send_resource_updated(uri))

    async def _send(self, notification: Awaitable[None]) -> None:
        """Send one notification.

        A client that does not read, or is gone, must not delay the others.
        """
        try:
            with anyio.move_on_after(SEND_SECONDS):
                await notification
        except Exception:
            log.exception("telling a client of changes failed")

    def open_connections(self) -> list[Any]:
        """Return the open connections of the protocol versions with a handshake."""
        return [connection for connection in self._connections if connection.initialized.is_set()]

    async def remember(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Keep the connection of every client with a handshake; a middleware of the SDK."""
        if ctx.method == "initialize":
            self._connections.setdefault(ctx.session._connection, set())
        return await call_next(ctx)

    async def subscribe(self, ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Answer resources/subscribe."""
        self._connections.setdefault(ctx.session._connection, set()).add(str(params.uri))
        return types.EmptyResult()

    async def unsubscribe(
        self, ctx: Any, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """Answer resources/unsubscribe."""
        self._connections.setdefault(ctx.session._connection, set()).discard(str(params.uri))
        return types.EmptyResult()


def add_notifications(server: LibraryServer, notifier: Notifier) -> None:
    """Make the server announce and serve subscriptions in all protocol versions.

    The server's bus must be the notifier's.
    """
    low = server._lowlevel_server
    server.middleware.append(notifier.remember)
    low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, notifier.subscribe)
    low.add_request_handler(
        "resources/unsubscribe", types.UnsubscribeRequestParams, notifier.unsubscribe
    )
    # Without these options MCPServer tells clients with a handshake that nothing ever changes.
    options = NotificationOptions(
        prompts_changed=True, resources_changed=True, tools_changed=notifier.lists_tools
    )
    low.create_initialization_options = functools.partial(  # type: ignore[method-assign]
        low.create_initialization_options, options
    )


LEVELS: tuple[str, ...] = get_args(types.LoggingLevel)
"""From debug to emergency, as RFC 5424 orders them."""

MAX_WAITING = 100
"""Messages that wait to be sent; the oldest are dropped."""


class ClientLog(logging.Handler):
    """Sends log records to the clients, warnings and above.

    A client gets those from the level that it asked for on, by default warnings.
    """

    def __init__(self, notifier: Notifier) -> None:
        super().__init__(logging.WARNING)
        self._notifier = notifier
        self._levels: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._waiting = ThreadQueue[dict[str, str]](MAX_WAITING)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record to be sent by `run`; called on any thread."""
        self.post("error" if record.levelno >= logging.ERROR else "warning", record.getMessage())

    def post(self, level: str, text: str) -> None:
        """Keep a message to be sent by `run`; called on any thread."""
        self._waiting.post([{"level": level, "logger": "evolvable", "data": text}])

    async def run(self) -> None:
        """Send what was logged, for as long as the server runs."""
        while True:
            for message in await self._waiting.take_all():
                await self._send(message)

    async def _send(self, message: dict[str, str]) -> None:
        for connection in self._notifier.open_connections():
            lowest = self._levels.get(connection, "warning")
            if LEVELS.index(message["level"]) >= LEVELS.index(lowest):
                with contextlib.suppress(Exception):  # logging a failure to log would never end
                    await connection.notify("notifications/message", message)

    async def set_level(self, ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
        """Answer logging/setLevel."""
        self._levels[ctx.session._connection] = params.level
        return types.EmptyResult()


def add_logs(server: LibraryServer, log: ClientLog) -> None:
    """Make the server announce logging to clients with a handshake, and answer logging/setLevel."""
    server._lowlevel_server.add_request_handler(
        "logging/setLevel", types.SetLevelRequestParams, log.set_level
    )
