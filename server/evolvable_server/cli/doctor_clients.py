"""What a doctor looks at in the clients: their configuration files, the command in them, whether they ever called."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolvable_server.cli.health import Problem
from evolvable_server.clients import codex, files
from evolvable_server.clients.all import CLIENTS
from evolvable_server.clients.client import PROJECT, SCOPES, Client
from evolvable_server.clients.connection import is_ours, loose
from evolvable_server.clients.starting import Started, start
from evolvable_server.config import Config, Machine, read_config
from evolvable_server.environment import HOME
from evolvable_server.mcp.callers import Heard, heard
from evolvable_store.errors import EvolvableError
from evolvable_store.storage.sqlite import FILE

PATIENCE_SECONDS = 20.0
"""How long a configured server may take to list its tools."""


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
    """All that was seen of the clients. notes: what is no fault and good to know."""

    connected: list[Connected] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


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
        return f"`evolvable connect {self.client.name}{scope}{name}` mends it."


def examine_clients(machine: Machine, config: Config) -> ClientsHealth:
    """Returns how the clients stand to this program. Starts every configured server whose library is there for it."""
    health = ClientsHealth()
    started: dict[object, Started] = {}
    calls = heard(config.home)
    for entry in _entries(machine, health.problems):
        key = (entry.command, tuple(sorted(entry.env.items())))
        bad = list(_bad_path(entry))
        health.problems += bad
        try:
            library = entry.library
        except EvolvableError as error:
            health.problems.append(Problem(f"{entry.where}: {error}", error.hint))
            continue
        if not bad and (library / FILE).exists():
            if key not in started:
                env = {**machine.passed, **entry.env}
                started[key] = start(entry.command, env, machine.project, PATIENCE_SECONDS)
            health.problems += _bad_start(entry, started[key])
        seconds = started[key].seconds if key in started and started[key].listed else None
        health.connected.append(_connected(entry, library, seconds, heard(library)))
        health.notes += _notes(entry, library, config, calls if library == config.home else heard(library))
    return health


def _entries(machine: Machine, problems: list[Problem]) -> Iterator[_Entry]:
    """Yields the entries of ours in all clients; what is wrong with their files goes to `problems`."""
    for client in CLIENTS.values():
        for scope in SCOPES:
            path = client.file(machine, scope)
            if path is None:
                continue
            try:
                found = files.read(path)
            except EvolvableError as error:
                problems.append(Problem(f"{client.title}: {error}", error.hint))
                continue
            problems += (Problem(why, "Take it out.") for why in loose(client, found))
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


def _bad_path(entry: _Entry) -> Iterator[Problem]:
    program = Path(entry.command[0])
    if not program.is_absolute():
        yield Problem(
            f"{entry.where} starts {program}, which is no absolute path: a client may not find it.", entry.mend
        )
    elif not program.is_file():
        yield Problem(f"{entry.where} starts {program}, which is not there.", entry.mend)


def _bad_start(entry: _Entry, started: Started) -> Iterator[Problem]:
    title, values = entry.client.title, entry.values
    if started.failure:
        yield Problem(f"{entry.where} does not start: {started.failure}.", f"Try: {' '.join(entry.command)}")
        return
    if entry.client is not codex.CLIENT:
        return
    if values.get("required") is not True:
        if started.seconds > codex.WAITS_SECONDS:
            yield Problem(
                f"{entry.where} takes {started.seconds:.1f} seconds to start, and {title} goes without a server that "
                f"is not ready in {codex.WAITS_SECONDS:g} and not required.",
                entry.mend if "required" not in values else f"Set required = true in {entry.path}.",
            )
    elif isinstance(limit := values.get("startup_timeout_sec"), int | float) and started.seconds > limit:
        yield Problem(
            f"{entry.where} takes {started.seconds:.1f} seconds to start, and {title} waits {limit:g}.",
            f"Raise startup_timeout_sec in {entry.path}.",
        )


def _connected(entry: _Entry, library: Path, seconds: float | None, calls: list[Heard]) -> Connected:
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


def _is(client: Client, one: Heard) -> bool:
    return one.client.lower().startswith(client.called)


def _notes(entry: _Entry, library: Path, config: Config, calls: list[Heard]) -> Iterator[str]:
    title, events = entry.client.title, {one.event for one in calls if _is(entry.client, one)}
    if library != config.home:
        yield f"{title} uses another library than this one: {library} ({entry.where}, {HOME})."
    if not events:
        check = "; ".join(entry.client.check("user" if entry.scope == "local" else entry.scope, entry.name))
        yield f"{title} is connected ({entry.where}) and has never called. To check: {check}."
    elif "call" not in events:
        yield f"{title} has begun sessions with the server and never called a tool."
    if entry.client is codex.CLIENT and entry.values.get("required") is not True:
        yield f"{title} does not wait for {entry.where}: on a busy machine a session may begin without it. {entry.mend}"
