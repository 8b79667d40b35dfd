"""Runs a server over a library, on stdio for one client or on HTTP for several."""

import contextlib
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import anyio

from evolvable_server.app import caller
from evolvable_server.config import Config
from evolvable_server.mcp.notifications import Notifier, add_notifications
from evolvable_server.mcp.prompts import add_prompts
from evolvable_server.mcp.resources import add_resources
from evolvable_server.mcp.server import LibraryServer
from evolvable_server.mcp.tools import add_tools
from evolvable_server.means import opened
from evolvable_server.reload import Reloader
from evolvable_store.errors import InvalidArgument
from evolvable_store.operation import Actor
from evolvable_store.store import Store
from evolvable_tools.library import Library

LOOPBACK = ("127.0.0.1", "localhost", "::1")


_FIRST = "a first task, that the model is loaded for"


class Serving:
    """A library with a server over it, and what keeps both in step with the rest of the world."""

    def __init__(self, config: Config) -> None:
        """Opens the library, made when it is missing. Raises as Store.open, and InvalidArgument for a setting."""
        self._open = contextlib.ExitStack()
        means = self._open.enter_context(opened(config, serving=True))
        self.library = Library(Store.open(config.home, create=True), means)
        self._notifier = Notifier(self.library.store)
        self._reloader = Reloader(self.library, self._notifier.post)
        self.server = LibraryServer(subscriptions=self._notifier.bus, lifespan=self._lifespan)
        client = caller(config, self.library, Actor.AGENT)
        add_tools(self.server, self.library, client)
        add_resources(self.server, self.library, client)
        add_prompts(self.server, self.library, client)
        add_notifications(self.server, self._notifier)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._notifier.run)
            yield
            tasks.cancel_scope.cancel()

    def start_following(self) -> None:
        """Starts to follow folders and library and to warm the embedder, in the background.

        Nothing slow may come before the first answer.
        """
        if not self.library.store.read_only:
            self._reloader.start()
            if self.library.means.neighbours is not None:
                self.library.means.neighbours.begin(_FIRST)

    def close(self) -> None:
        """Stops following and closes the library."""
        self._reloader.stop()
        self._open.close()
        self.library.close()


def serve_stdio(config: Config) -> NoReturn:
    """Serves one client on stdin and stdout; ends the process when the client is gone."""
    from evolvable_server.mcp.stdio import run_stdio

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="evolvable: %(message)s")
    serving = Serving(config)
    run_stdio(serving.server, cleanup=[serving.close], ready=serving.start_following)


def serve_http(config: Config, host: str, port: int) -> None:
    """Serves clients of this machine over streamable HTTP at http://HOST:PORT/mcp until it is interrupted.

    Raises InvalidArgument for an address that others could reach: there is no authentication yet.
    """
    import uvicorn

    if host not in LOOPBACK:
        raise InvalidArgument(
            f"{host} can be reached from other machines, and this server has no authentication.",
            "Use 127.0.0.1, and a tunnel for other machines.",
        )
    serving = Serving(config)
    app = serving.server.streamable_http_app(host=host)
    try:
        serving.start_following()
        uvicorn.run(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=1)
    finally:
        serving.close()
