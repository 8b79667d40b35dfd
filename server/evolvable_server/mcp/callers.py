"""Remembers which clients have called, and when: in small files beside the library, written when nobody waits.

Each file is written whole and put in place at once, so any number of processes may do it; the last one stands.
"""

import contextlib
import json
import logging
import os
import re
import threading
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolvable_store.paths import private_file

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    from evolvable_server.mcp.server import LibraryServer

FOLDER = "callers"
"""The folder in the library's own that holds the files."""

EVENTS = {"initialize": "session", "server/discover": "session", "tools/call": "call"}
"""Requests that are remembered, and as what."""

OURS = "evolvable"
"""Clients whose names begin so are this program itself, and not remembered."""

MAX_FILES = 200
"""A client says its name itself; beyond so many files nothing new is kept."""

AGAIN_SECONDS = 60.0
"""How soon the same thing of the same client is written again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Heard:
    """Something that a client did. event: session or call; at: when, in UTC; protocol: the version it speaks."""

    client: str
    version: str
    protocol: str
    event: str
    at: str


class Callers:
    """Notes who calls this process."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER
        self._last: dict[tuple[str, str], float] = {}

    async def note(self, ctx: "ServerRequestContext[Any, Any]", call_next: "CallNext") -> "HandlerResult":
        """Middleware: answers first, then has a thread write who asked."""
        answer = await call_next(ctx)
        if ctx.method in EVENTS:
            with contextlib.suppress(Exception):  # whatever a client says of itself, it has its answer
                self._note(ctx)
        return answer

    def _note(self, ctx: "ServerRequestContext[Any, Any]") -> None:
        name, version = _introduced(ctx)
        event, now = EVENTS[ctx.method], time.monotonic()
        known = self._last.get((name, event))
        if not name or name.startswith(OURS) or (known is not None and now - known < AGAIN_SECONDS):
            return
        if len(self._last) >= MAX_FILES:
            self._last.clear()
        self._last[name, event] = now
        at = datetime.now(UTC).isoformat(timespec="seconds")
        heard = Heard(name, version, str(ctx.protocol_version)[:40], event, at)
        threading.Thread(target=_write, args=(self._folder, heard), name="callers", daemon=True).start()


def _introduced(ctx: "ServerRequestContext[Any, Any]") -> tuple[str, str]:
    """Returns the name and the version that a client gives itself, '' for none."""
    if ctx.session.client_params is not None:
        info = ctx.session.client_params.client_info
        return info.name[:100], str(info.version)[:100]
    # During the handshake the session does not know it yet.
    said = (ctx.params or {}).get("clientInfo") or {}
    return str(said.get("name") or "")[:100], str(said.get("version") or "")[:100]


def _write(folder: Path, heard: Heard) -> None:
    """Writes one file; a place that cannot be written is no reason to bother a client."""
    stem = re.sub(r"[^a-z0-9]+", "-", heard.client.lower()).strip("-")[:60] or "unnamed"
    target = folder / f"client-{stem}.{heard.event}.json"
    beside = folder / f".{target.name}.{os.getpid()}-{threading.get_ident()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if not target.exists() and sum(1 for _ in folder.iterdir()) >= MAX_FILES:
            return
        with open(beside, "x", encoding="utf-8", opener=private_file) as file:
            json.dump(asdict(heard), file)
        os.replace(beside, target)
    except OSError as error:
        _log.debug("who called was not written: %s", error)
        with contextlib.suppress(OSError):
            beside.unlink()


def heard(home: Path) -> list[Heard]:
    """Returns what clients did last, newest first; what cannot be read is left out."""
    found = []
    for path in sorted((home / FOLDER).glob("client-*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            values = json.loads(path.read_text(encoding="utf-8"))
            found.append(Heard(**{key: str(value) for key, value in values.items()}))
    return sorted(found, key=lambda one: one.at, reverse=True)


def add_callers(server: "LibraryServer", home: Path) -> None:
    """Makes the server remember who calls it."""
    server.middleware.append(Callers(home).note)
