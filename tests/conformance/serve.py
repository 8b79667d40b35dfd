"""`evolvable serve` with the fixtures of the conformance suite: python tests/conformance/serve.py
--http HOST:PORT
"""

import functools
import sys
from itertools import count
from typing import Any

from fixtures import add_fixtures
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId

from evolvable_server import serving
from evolvable_server.cli import main
from evolvable_server.config import Config


class Events(EventStore):
    """Every event of every stream, for a client that comes back to one."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._kept: list[tuple[int, StreamId, Any]] = []

    async def store_event(self, stream_id: StreamId, message: Any) -> EventId:
        self._kept.append((next(self._numbers), stream_id, message))
        return str(self._kept[-1][0])

    async def replay_events_after(
        self, last_event_id: EventId, send_callback: EventCallback
    ) -> StreamId | None:
        last = int(last_event_id)
        stream = next((name for number, name, _ in self._kept if number == last), None)
        for number, name, message in self._kept:
            if number > last and name == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class ServingWithFixtures(serving.Serving):
    """The real server, with the fixtures added when it is complete."""

    def __init__(self, config: Config, *more: Any, **options: Any) -> None:
        super().__init__(config, *more, **options)
        add_fixtures(self.server)
        self.server.streamable_http_app = functools.partial(  # type: ignore[method-assign]
            self.server.streamable_http_app, event_store=Events(), retry_interval=100
        )


if __name__ == "__main__":
    serving.Serving = ServingWithFixtures  # type: ignore[misc]
    sys.argv.insert(1, "serve")
    main()
