"""The table of clients, and the log of the clients that called.

The table says where each client has its configuration, and the form of our entry. Calls are logged
in small files beside the library, after the answer. Each file is written whole and replaced at
once, so any number of processes may write it; the last one counts.
"""

import contextlib
import json
import logging
import re
import threading
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolvable_server import plugins
from evolvable_server.clients.client import PROJECT, USER, Client
from evolvable_server.config import Machine
from evolvable_store import read_regular, write_private
from evolvable_store.resource import Kind

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    from evolvable_server.mcp.server import LibraryServer


WAITS_SECONDS = 1.0
"""Seconds that Codex waits for a server that is not required, before its first turn."""


def _claude_code_file(machine: Machine, scope: str) -> Path:
    if scope == PROJECT:
        return machine.project / ".mcp.json"
    return (machine.claude or machine.user) / ".claude.json"


def _codex_file(machine: Machine, scope: str) -> Path:
    return (machine.project / ".codex" if scope == PROJECT else machine.codex) / "config.toml"


FILE = "claude_desktop_config.json"


def _claude_desktop_file(machine: Machine, scope: str) -> Path | None:
    if scope != USER:
        return None
    if machine.system == "darwin":
        return machine.user / "Library/Application Support/Claude" / FILE
    if machine.system != "win32":
        return machine.settings / "Claude" / FILE
    return (_find_package_folder(machine) or machine.roaming / "Claude") / FILE


def _find_package_folder(machine: Machine) -> Path | None:
    """Return the folder of the app as a package (MSIX), which does not see %APPDATA%."""
    packages = [path / "LocalCache/Roaming" for path in machine.local.glob("Packages/Claude_*")]
    folders = sorted(path / "Claude" for path in packages if path.is_dir())
    # A folder with the file counts before one that could have it.
    with_file = [path for path in folders if (path / FILE).is_file()]
    return next(iter([*with_file, *folders]), None)


EDITIONS = ("Code", "Code - Insiders", "VSCodium")
"""Folders of settings, of which the first that exists counts."""


def _vscode_file(machine: Machine, scope: str) -> Path:
    if scope == PROJECT:
        return machine.project / ".vscode/mcp.json"
    if machine.system == "darwin":
        settings = machine.user / "Library/Application Support"
    else:
        settings = machine.roaming if machine.system == "win32" else machine.settings
    existing = [settings / edition for edition in EDITIONS if (settings / edition).is_dir()]
    return (existing[0] if existing else settings / EDITIONS[0]) / "User/mcp.json"


# Clients whose places need more than names in the table.
_FILES: Mapping[str, Callable[[Machine, str], Path | None]] = {
    "claude-code": _claude_code_file,
    "codex": _codex_file,
    "claude-desktop": _claude_desktop_file,
    "vscode": _vscode_file,
}


def _claude_code_folders(machine: Machine, scope: str) -> Mapping[Kind, Path]:
    if scope == PROJECT:
        own = machine.project / ".claude"
    else:
        own = machine.claude or machine.user / ".claude"
    return {Kind.SKILL: own / "skills", Kind.AGENT: own / "agents"}


def _codex_folders(machine: Machine, scope: str) -> Mapping[Kind, Path]:
    """Return the folder that Codex and other clients read in a project and at home."""
    return {Kind.SKILL: (machine.project if scope == PROJECT else machine.user) / ".agents/skills"}


_FOLDERS: Mapping[str, Callable[[Machine, str], Mapping[Kind, Path]]] = {
    "claude-code": _claude_code_folders,
    "codex": _codex_folders,
}


def _resolve_place(machine: Machine, text: str) -> Path:
    """Return the path of a text in the table: a folder of the machine, and the path below it."""
    root, _, rest = text.partition("/")
    folder: Path = getattr(machine, root)
    return folder / rest


def _file_in_table(names: Mapping[str, Sequence[str]], machine: Machine, scope: str) -> Path | None:
    """Return the first existing file of those that a client reads, else the first of them."""
    paths = [_resolve_place(machine, name) for name in names.get(scope, ())]
    existing = [path for path in paths if path.is_file()]
    return next(iter([*existing, *paths]), None)


def _folders_in_table(
    names: Mapping[str, str], machine: Machine, scope: str
) -> Mapping[Kind, Path]:
    return {Kind.SKILL: _resolve_place(machine, names[scope])} if scope in names else {}


def _make_client(name: str, values: dict[str, Any]) -> Client:
    """Return a client as its table describes it.

    Where the table names no places, the functions of this module return them.
    """
    files, skills = values.pop("files", None), values.pop("skills", None)
    folders = partial(_folders_in_table, skills) if skills else _FOLDERS.get(name)
    file = partial(_file_in_table, files) if files else _FILES[name]
    # The other keys of the table are fields of Client.
    fields = values | {"called": tuple(values["called"])}
    return Client(name=name, file=file, folders=folders, **fields)


_TABLE = Path(__file__).with_name("clients.toml").read_text(encoding="utf-8")

CLIENTS = {name: _make_client(name, values) for name, values in tomllib.loads(_TABLE).items()}
"""Each client by its name."""


def all_clients() -> Mapping[str, Client]:
    """Return the clients with those of plugins, which replace none.

    The metadata of all distributions is read.
    """
    more = {client.name: client for part in plugins.all_hooks().clients() for client in part}
    return {**more, **CLIENTS}


CODEX, VSCODE = CLIENTS["codex"], CLIENTS["vscode"]

FOLDER = "callers"
"""The folder of the log, in the library's folder."""

CHANNEL = "channel"
"""The event of a host that was served from the stable channel."""

EVENTS = {
    "initialize": "session",
    "server/discover": "session",
    # A server that is just starting answers `server/discover` before this log exists.
    "tools/list": "session",
    "tools/call": "call",
    "skills/list": CHANNEL,
    "skills/get": CHANNEL,
    "resources/read": CHANNEL,
    "resources/directory/read": CHANNEL,
}
"""The method of a logged request -> its event."""

_SKILL, _OF_A_VERSION = "skill://", "skill://version."

OURS = "evolvable"
"""The beginning of the names of clients that are this program itself, and not logged."""

MAX_FILES = 200
"""Files of the log: clients choose their names, so their number has no bound of its own."""

# A busy client would otherwise write a file with every call.
AGAIN_SECONDS = 60.0
"""Seconds until the same event of the same client is logged again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HeardCall:
    """An event of a client.

    event: session, call or channel. at: its time, in UTC. protocol: the version of the protocol.
    """

    client: str
    version: str
    protocol: str
    event: str
    at: str


class ClientLogFile:
    """Logs the clients that call this process."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER
        self._last: dict[tuple[str, str], float] = {}

    async def note(
        self, ctx: "ServerRequestContext[Any, Any]", call_next: "CallNext"
    ) -> "HandlerResult":
        """Answer, then have a thread log the client; a middleware of the SDK."""
        answer = await call_next(ctx)
        if ctx.method in EVENTS:
            # The client has its answer: an error of the log must not replace it.
            with contextlib.suppress(Exception):
                self._note(ctx)
        return answer

    def _note(self, ctx: "ServerRequestContext[Any, Any]") -> None:
        name, version = _client_identity(ctx)
        event, now = EVENTS[ctx.method], time.monotonic()
        if event == CHANNEL and not _is_of_channel(ctx):
            return
        if not name or name.startswith(OURS):
            return
        last_logged = self._last.get((name, event))
        if last_logged is not None and now - last_logged < AGAIN_SECONDS:
            return
        if len(self._last) >= MAX_FILES:
            # A client with a new name for every call would fill the table.
            self._last.clear()
        # Set before the file is written: a folder that cannot be written is not tried at each call.
        self._last[name, event] = now
        at = datetime.now(UTC).isoformat(timespec="seconds")
        call = HeardCall(name, version, str(ctx.protocol_version)[:40], event, at)
        arguments = (self._folder, call)
        threading.Thread(target=_write, args=arguments, name="callers", daemon=True).start()


def _is_of_channel(ctx: "ServerRequestContext[Any, Any]") -> bool:
    """Return whether a request is answered from the stable channel.

    The URI of any other request names a version, or no skill.
    """
    uri = str((ctx.params or {}).get("uri") or _SKILL)
    return uri.startswith(_SKILL) and not uri.startswith(_OF_A_VERSION)


def _client_identity(ctx: "ServerRequestContext[Any, Any]") -> tuple[str, str]:
    """Return the name and the version that a client gives itself, '' for none."""
    if ctx.session.client_params is not None:
        info = ctx.session.client_params.client_info
        return info.name[:100], str(info.version)[:100]
    # During the handshake the session has no parameters yet.
    client_info = (ctx.params or {}).get("clientInfo") or {}
    return str(client_info.get("name") or "")[:100], str(client_info.get("version") or "")[:100]


def _write(folder: Path, call: HeardCall) -> None:
    """Write one file; a folder that cannot be written is left to the debug log."""
    # A client's name may have any character, a path separator too.
    stem = re.sub(r"[^a-z0-9]+", "-", call.client.lower()).strip("-")[:60] or "unnamed"
    target = folder / f"client-{stem}.{call.event}.json"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if target.exists() or sum(1 for _ in folder.iterdir()) < MAX_FILES:
            write_private(target, json.dumps(asdict(call)))
    except OSError as error:
        _log.debug("who called was not written: %s", error)


def read_client_log(home: Path) -> list[HeardCall]:
    """Return the last event of each kind of each client, newest first.

    A file that cannot be read is left out.
    """
    calls = []
    for path in sorted((home / FOLDER).glob("client-*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            values = json.loads(read_regular(path))
            # A file of another version may have other keys; it is left out.
            calls.append(HeardCall(**{key: str(value) for key, value in values.items()}))
    return sorted(calls, key=lambda call: call.at, reverse=True)


def has_hosts(home: Path) -> bool:
    """Return whether any host was ever served from the stable channel."""
    return any(call.event == CHANNEL for call in read_client_log(home))


def add_client_log(server: "LibraryServer", home: Path) -> None:
    """Make the server log its clients."""
    server.middleware.append(ClientLogFile(home).note)
