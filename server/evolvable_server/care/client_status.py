"""How the clients stand to this program, for doctor.

The configuration of each client is read, the command in it is started as the client would start it, and the log says
when the client called.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolvable_server.clients import (
    CODEX,
    WAITS_SECONDS,
    HeardCall,
    all_clients,
    is_ours,
    read_client_log,
    read_configuration,
    strict_json_warnings,
)
from evolvable_server.clients.client import PROJECT, SCOPES, Client
from evolvable_server.config import Config, Machine, read_config
from evolvable_server.environment import HOME
from evolvable_store import holds_library
from evolvable_store.errors import EvolvableError
from evolvable_tools import HealthProblem

PATIENCE_SECONDS = 20.0
"""How long a configured server may take to list its tools."""

MAX_LINE = 1 << 26
"""Bytes of one line of a server's answer."""

_INTRODUCTION: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "evolvable-doctor", "version": "1"},
}
_HANDSHAKE: tuple[dict[str, Any], ...] = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _INTRODUCTION},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
)


@dataclass(frozen=True, slots=True)
class StartProbe:
    """How a start went. seconds: until the tools were listed; listed: whether they were; failure: why not, else ''."""

    seconds: float
    listed: bool = False
    failure: str = ""


async def probe_start(command: Sequence[str], env: Mapping[str, str], folder: Path, patience: float) -> StartProbe:
    """Start a server, ask it for its tools, end it, and return how that went. Takes `patience` seconds at most.

    env: the whole environment. The server is asked as Codex does: a handshake, then the list.
    """
    began, pipe = time.monotonic(), asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=dict(env), stdin=pipe, stdout=pipe, stderr=pipe, limit=MAX_LINE
        )
    except (OSError, ValueError) as error:
        return StartProbe(0.0, failure=f"it cannot be started: {getattr(error, 'strerror', None) or error}")
    assert process.stdin and process.stdout and process.stderr
    said = asyncio.create_task(_last_line(process.stderr))
    try:
        failure = await asyncio.wait_for(_list_tools(process.stdin, process.stdout), patience)
    except TimeoutError:
        failure = f"it lists no tools within {patience:g} seconds"
    except (OSError, ValueError):  # a broken pipe, a line without end
        failure = None
    seconds = min(time.monotonic() - began, patience)
    await _end(process, process.stdin)
    listed = failure == ""
    if failure is None:
        with contextlib.suppress(TimeoutError):  # a child of it may hold the pipe
            await asyncio.wait_for(asyncio.shield(said), 1)
        failure = f"it ended at once: {(said.done() and said.result()) or 'it said nothing'}"
    return StartProbe(seconds, listed, failure)


async def _list_tools(stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> str | None:
    """Ask a server for its tools; return '' for an answer, why it is none, or None when the server ended."""
    for frames in (_HANDSHAKE[:1], _HANDSHAKE[1:]):
        stdin.writelines(json.dumps(frame).encode() + b"\n" for frame in frames)
        await stdin.drain()
        answer: Any = None
        while not isinstance(answer, dict) or answer.get("id") != frames[-1]["id"]:
            if not (line := await stdout.readline()):
                return None
            with contextlib.suppress(ValueError):
                answer = json.loads(line)
        if not isinstance(answer.get("result"), dict):
            return f"it answered with an error: {json.dumps(answer.get('error'))[:200]}"
    return ""


async def _last_line(stderr: asyncio.StreamReader) -> str:
    last = b""
    async for line in stderr:
        last = line.strip() or last
    return last.decode("utf-8", "replace")[:300]


async def _end(process: asyncio.subprocess.Process, stdin: asyncio.StreamWriter) -> None:
    stdin.close()
    try:
        await asyncio.wait_for(process.wait(), 3)
    except TimeoutError:
        process.kill()
        await process.wait()


@dataclass(frozen=True, slots=True)
class Connected:
    """An entry of ours in a client's configuration.

    scope: user, project, or local (Claude Code's own, of one project). seconds: from start to list of tools, None when
    it was not started. last_session, last_call: when the client last began to talk and called a tool, '' for never.
    """

    client: str
    scope: str
    path: str
    name: str
    command: list[str]
    library: str
    seconds: float | None
    last_session: str
    last_call: str


@dataclass(slots=True)
class ClientsHealth:
    """All that was seen of the clients. notes: what is no fault."""

    connected: list[Connected] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[HealthProblem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Entry:
    client: Client
    scope: str
    path: Path
    name: str
    values: Mapping[str, Any]

    @property
    def where(self) -> str:
        return f"{self.name} in {self.path}"

    @property
    def command(self) -> tuple[str, ...]:
        args = self.values.get("args")
        return str(self.values.get("command", "")), *map(str, args if isinstance(args, list) else ())

    @property
    def env(self) -> dict[str, str]:
        env = self.values.get("env")
        return {key: str(value) for key, value in env.items()} if isinstance(env, dict) else {}

    @property
    def library(self) -> Path:
        """The library that the server will open: --home counts before the environment."""
        words = list(self.command)
        named = words[words.index("--home") + 1] if "--home" in words[:-1] else None
        return read_config(self.env, Path(named) if named else None).home

    @property
    def mend(self) -> str:
        scope = " --scope project" if self.scope == PROJECT else ""
        name = "" if self.name == "evolvable" else f" --name {self.name}"
        return f"`evolvable connect {self.client.name}{scope}{name}` fixes it."


def check_clients(machine: Machine, config: Config) -> ClientsHealth:
    """Return how the clients stand to this program. Starts every configured server whose library is there for it."""
    health = ClientsHealth()
    started: dict[object, StartProbe] = {}
    calls = read_client_log(config.home)
    for entry in _entries(machine, health.problems):
        key = (entry.command, tuple(sorted(entry.env.items())))
        bad = list(_bad_path(entry))
        health.problems += bad
        try:
            library = entry.library
        except EvolvableError as error:
            health.problems.append(HealthProblem(f"{entry.where}: {error}", error.hint))
            continue
        if not bad and holds_library(library):
            if key not in started:
                env = {**machine.passed, **entry.env}
                started[key] = asyncio.run(probe_start(entry.command, env, machine.project, PATIENCE_SECONDS))
            health.problems += _bad_start(entry, started[key])
        seconds = started[key].seconds if key in started and started[key].listed else None
        health.connected.append(_connected(entry, library, seconds, read_client_log(library)))
        health.notes += _notes(entry, library, config, calls if library == config.home else read_client_log(library))
    return health


def _entries(machine: Machine, problems: list[HealthProblem]) -> Iterator[_Entry]:
    """Yield the entries of ours in all clients; what is wrong with their files goes to `problems`."""
    for client in all_clients().values():
        for scope in SCOPES:
            path = client.file(machine, scope)
            if path is None:
                continue
            try:
                found = read_configuration(path)
            except EvolvableError as error:
                problems.append(HealthProblem(f"{client.title}: {error}", error.hint))
                continue
            problems += (HealthProblem(why, "Take it out.") for why in strict_json_warnings(client, found))
            yield from _ours(client, scope, path, found.values.get(client.table))
            if client.name == "claude-code" and scope != PROJECT:
                yield from _ours(client, "local", path, _local(found.values, machine.project))


def _local(values: Mapping[str, Any], project: Path) -> Any:
    projects = values.get("projects")
    settings = projects.get(str(project)) if isinstance(projects, dict) else None
    return settings.get("mcpServers") if isinstance(settings, dict) else None


def _ours(client: Client, scope: str, path: Path, table: Any) -> Iterator[_Entry]:
    for name, values in table.items() if isinstance(table, dict) else ():
        if isinstance(values, dict) and is_ours(values):
            yield _Entry(client, scope, path, name, values)


def _bad_path(entry: _Entry) -> Iterator[HealthProblem]:
    program = Path(entry.command[0])
    if not program.is_absolute():
        yield HealthProblem(
            f"{entry.where} starts {program}, which is no absolute path: a client may not find it.", entry.mend
        )
    elif not program.is_file():
        yield HealthProblem(f"{entry.where} starts {program}, which is not there.", entry.mend)


def _bad_start(entry: _Entry, started: StartProbe) -> Iterator[HealthProblem]:
    title, values = entry.client.title, entry.values
    if started.failure:
        yield HealthProblem(
            f"{entry.where} does not start: {started.failure.rstrip('.')}.", f"Try: {' '.join(entry.command)}"
        )
        return
    if entry.client is not CODEX:
        return
    if values.get("required") is not True:
        if started.seconds > WAITS_SECONDS:
            yield HealthProblem(
                f"{entry.where} takes {started.seconds:.1f} seconds to start, and {title} goes without a server that "
                f"is not ready in {WAITS_SECONDS:g} and not required.",
                entry.mend if "required" not in values else f"Set required = true in {entry.path}.",
            )
    elif isinstance(limit := values.get("startup_timeout_sec"), int | float) and started.seconds > limit:
        yield HealthProblem(
            f"{entry.where} takes {started.seconds:.1f} seconds to start, and {title} waits {limit:g}.",
            f"Raise startup_timeout_sec in {entry.path}.",
        )


def _connected(entry: _Entry, library: Path, seconds: float | None, calls: list[HeardCall]) -> Connected:
    def last(event: str) -> str:
        return next((one.at for one in calls if one.event == event and _is(entry.client, one)), "")

    return Connected(
        client=entry.client.title,
        scope=entry.scope,
        path=str(entry.path),
        name=entry.name,
        command=list(entry.command),
        library=str(library),
        seconds=None if seconds is None else round(seconds, 2),
        last_session=last("session"),
        last_call=last("call"),
    )


def _is(client: Client, one: HeardCall) -> bool:
    return one.client.lower().startswith(tuple(client.called))


def _notes(entry: _Entry, library: Path, config: Config, calls: list[HeardCall]) -> Iterator[str]:
    title, events = entry.client.title, {one.event for one in calls if _is(entry.client, one)}
    if library != config.home:
        yield f"{title} uses another library than this one: {library} ({entry.where}, {HOME})."
    if not events:
        check = "; ".join(entry.client.check("user" if entry.scope == "local" else entry.scope, entry.name))
        yield f"{title} is connected ({entry.where}) and has never called. To check: {check}."
    elif "call" not in events:
        yield f"{title} has begun sessions with the server and never called a tool."
    if entry.client is CODEX and entry.values.get("required") is not True:
        yield f"{title} does not wait for {entry.where}: on a busy machine a session may begin without it. {entry.mend}"
