"""Tells clients of the handshake era what this process warns of, such as a saved skill that was refused.

2026-07-28 has no such messages but for single requests that ask for them, and nothing is said while one runs.
"""

import contextlib
import logging
import weakref
from typing import Any, get_args

import mcp_types as types

from evolvable_server.mcp.mailbox import Mailbox
from evolvable_server.mcp.notifications import Notifier
from evolvable_server.mcp.server import LibraryServer

LEVELS: tuple[str, ...] = get_args(types.LoggingLevel)
"""From debug to emergency, as RFC 5424 orders them."""

MAX_WAITING = 100
"""Messages that wait to be sent; the oldest are dropped."""


class ClientLog(logging.Handler):
    """Sends log records from warnings on to the clients, each from the level it has asked for (warning if none)."""

    def __init__(self, notifier: Notifier) -> None:
        super().__init__(logging.WARNING)
        self._notifier = notifier
        self._levels: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._waiting = Mailbox[dict[str, str]](MAX_WAITING)

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the record to be sent by `run`; called on any thread."""
        level = "error" if record.levelno >= logging.ERROR else "warning"
        self._waiting.post([{"level": level, "logger": "evolvable", "data": record.getMessage()}])

    async def run(self) -> None:
        """Sends what was logged, for as long as the server runs."""
        while True:
            for message in await self._waiting.taken():
                await self._send(message)

    async def _send(self, message: dict[str, str]) -> None:
        for connection in self._notifier.initialized():
            if LEVELS.index(message["level"]) >= LEVELS.index(self._levels.get(connection, "warning")):
                with contextlib.suppress(Exception):  # logging a failure to log would never end
                    await connection.notify("notifications/message", message)

    async def set_level(self, ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
        """Answers logging/setLevel."""
        self._levels[ctx.session._connection] = params.level
        return types.EmptyResult()


def add_logs(server: LibraryServer, log: ClientLog) -> None:
    """Makes the server announce logging to clients of the handshake era and answer logging/setLevel."""
    server._lowlevel_server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, log.set_level)
