"""Ends the streams that stay open when they have to end: the server ends, or their token is not valid any more."""

from collections.abc import Awaitable, Callable

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evolvable_server.http.places import is_stream

LOOK_SECONDS = 1.0
"""How often it is looked whether a stream's token is still valid."""

StillValid = Callable[[Scope], Awaitable[bool]]


class Streams:
    """Middleware: to a stream that has to end it says what a client that left would have said."""

    def __init__(self, app: ASGIApp, ending: anyio.Event, still_valid: StillValid) -> None:
        self._app, self._ending, self._still_valid = app, ending, still_valid

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def until_end() -> Message:
            message: Message = {"type": "http.disconnect"}
            async with anyio.create_task_group() as tasks:

                async def watch() -> None:
                    await self._has_to_end(scope)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(watch)
                message = await receive()
                tasks.cancel_scope.cancel()
            return message

        await self._app(scope, until_end if is_stream(scope) else receive, send)

    async def _has_to_end(self, scope: Scope) -> None:
        while True:
            with anyio.move_on_after(LOOK_SECONDS):
                await self._ending.wait()
                return
            if not await self._still_valid(scope):
                return
