"""The state of the clients' connections, for doctor.

The configuration of each client is read, the command in it is started as the client would start it,
and the log says when the client called.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
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
from evolvable_server.clients.client import PROJECT, SCOPES, Client, usual_entry
from evolvable_server.config import SELF_CHECK, Config, Machine, read_config
from evolvable_server.environment import HOME
from evolvable_store import holds_library
from evolvable_store.errors import EvolvableError
from evolvable_tools import HealthProblem

# Enough for a cold start on a busy machine. A client that gives up earlier is reported by
# `_check_start`.
PATIENCE_SECONDS = 20.0
"""How long a configured server may take to list its tools."""

# The default of asyncio is 64 KiB; a list of tools with their schemas may be longer.
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
    """How the start of a server went.

    seconds: until the tools were listed. lists_tools: whether they were. failure: why not, else ''.
    answer: the skill that find_skill names first, 'nothing fits', or '' where it was not asked.
    """

    seconds: float
    lists_tools: bool = False
    failure: str = ""
    answer: str = ""


def find_call(tool: str, task: str) -> dict[str, Any]:
    """Return the call that asks a server for the skill of a task and leaves no trace.

    tool: its name there.
    """
    params = {
        "name": tool,
        "arguments": {"task": task, "detail": True},
        "_meta": {SELF_CHECK: True},
    }
    return {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}


async def probe_start(
    command: Sequence[str], env: Mapping[str, str], folder: Path, patience: float, task: str = ""
) -> StartProbe:
    """Start a server, ask it for its tools, end it, and return how that went.

    The server is asked as Codex does: a handshake, then the list. env: the whole environment.
    patience: seconds until the list. task: what find_skill is asked after that, within as many
    seconds again.
    """
    began, pipe = time.monotonic(), asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=dict(env),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            limit=MAX_LINE,
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return StartProbe(0.0, failure=f"it cannot be started: {why}")
    assert process.stdin and process.stdout and process.stderr
    # Read from the start: a server that fills the pipe of its log would stop.
    log_reader = asyncio.create_task(_read_last_line(process.stderr))
    talk = _Conversation(process.stdin, process.stdout)
    failure = await _await_outcome(talk.list_tools(), patience, "it lists no tools")
    # A server that never answered took all the time that it had.
    seconds = min(time.monotonic() - began, patience)
    lists_tools = failure == ""
    if lists_tools and task:
        failure = await _await_outcome(talk.find(task), patience, "find_skill has no answer")
    await _end_process(process, process.stdin)
    if failure is None:
        with contextlib.suppress(TimeoutError):  # a child of it may hold the pipe
            # `shield`, because a timeout would cancel the reader, whose result the next line needs.
            await asyncio.wait_for(asyncio.shield(log_reader), 1)
        last_line = log_reader.result() if log_reader.done() else ""
        failure = f"it ended at once: {last_line or 'it said nothing'}"
    return StartProbe(seconds, lists_tools, failure, talk.answer)


async def _await_outcome(answer: Awaitable[str | None], patience: float, late: str) -> str | None:
    """Return the failure that `answer` gives, '' for none, or None when the server ended.

    late: the failure when time is over.
    """
    try:
        return await asyncio.wait_for(answer, patience)
    except TimeoutError:
        return f"{late} within {patience:g} seconds"
    except (OSError, ValueError):  # a broken pipe, a line without end
        return None


class _Conversation:
    """The requests to a server, one after the other. answer: see StartProbe."""

    def __init__(self, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> None:
        self.answer = ""
        self._stdin, self._stdout = stdin, stdout
        self._tools: list[str] = []

    async def list_tools(self) -> str | None:
        """Ask for the tools; return as `_await_outcome`."""
        tools: Any = None
        # The list may only be asked for after the answer to `initialize`.
        for frames in (_HANDSHAKE[:1], _HANDSHAKE[1:]):
            failure, result = await self._request(*frames)
            if failure != "":
                return failure
            tools = result.get("tools")
        self._tools = [str(tool.get("name")) for tool in tools or () if isinstance(tool, dict)]
        return ""

    async def find(self, task: str) -> str | None:
        """Ask for the skill of a task, where the server has the tool for it; return as
        `_await_outcome`.
        """
        # By its end: a server may put a prefix before the names of its tools.
        tool = next((name for name in self._tools if name.endswith("find_skill")), None)
        if tool is None:
            return ""
        failure, result = await self._request(find_call(tool, task))
        if failure == "" and result.get("isError"):
            return f"find_skill failed: {json.dumps(result.get('content'))[:200]}"
        content = result.get("structuredContent")
        matches = content.get("matches") if isinstance(content, dict) else None
        first = matches[0] if isinstance(matches, list) and matches else None
        self.answer = str(first.get("ref")) if isinstance(first, dict) else "nothing fits"
        return failure

    async def _request(self, *frames: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
        """Send frames; return the failure as `_await_outcome`, and the result of the last frame."""
        self._stdin.writelines(json.dumps(frame).encode() + b"\n" for frame in frames)
        await self._stdin.drain()
        answer: Any = None
        # Notifications and stray lines before the answer are passed over.
        while not isinstance(answer, dict) or answer.get("id") != frames[-1]["id"]:
            if not (line := await self._stdout.readline()):
                return None, {}
            with contextlib.suppress(ValueError):
                answer = json.loads(line)
        if not isinstance(result := answer.get("result"), dict):
            return f"it answered with an error: {json.dumps(answer.get('error'))[:200]}", {}
        return "", result


async def _read_last_line(stderr: asyncio.StreamReader) -> str:
    last = b""
    async for line in stderr:
        last = line.strip() or last
    # Enough for the last line of a traceback.
    return last.decode("utf-8", "replace")[:300]


async def _end_process(process: asyncio.subprocess.Process, stdin: asyncio.StreamWriter) -> None:
    stdin.close()
    try:
        # The end of its input ends a sound server at once. One that hangs is killed.
        await asyncio.wait_for(process.wait(), 3)
    except TimeoutError:
        process.kill()
        await process.wait()


@dataclass(frozen=True, slots=True)
class Connected:
    """An entry of ours in a client's configuration.

    scope: user, project, or local (Claude Code's own, of one project). seconds: from start to list
    of tools, None when it was not started. last_session, last_call: when the client last began to
    talk and called a tool, '' for never. answer: see StartProbe.
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
    answer: str = ""


@dataclass(slots=True)
class ClientsHealth:
    """The state of all clients. notes: what is no fault."""

    connected: list[Connected] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[HealthProblem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ClientEntry:
    """An entry of ours in a client's configuration, as it is written there."""

    client: Client
    scope: str
    path: Path
    name: str
    values: Mapping[str, Any]

    @property
    def where(self) -> str:
        """Where it is, in words."""
        return f"{self.name} in {self.path}"

    @property
    def command(self) -> tuple[str, ...]:
        """The program and its arguments."""
        args = self.values.get("args")
        words = args if isinstance(args, list) else []
        return (str(self.values.get("command", "")), *map(str, words))

    @property
    def env(self) -> dict[str, str]:
        """What it adds to the server's environment."""
        env = self.values.get("env")
        return {key: str(value) for key, value in env.items()} if isinstance(env, dict) else {}

    @property
    def library(self) -> Path:
        """The library that the server will open: --home counts before the environment."""
        words = list(self.command)
        home = words[words.index("--home") + 1] if "--home" in words[:-1] else None
        return read_config(self.env, Path(home) if home else None).home

    @property
    def mend(self) -> str:
        """What brings it up to date."""
        scope = " --scope project" if self.scope == PROJECT else ""
        name = "" if self.name == "evolvable" else f" --name {self.name}"
        return f"`evolvable connect {self.client.name}{scope}{name}` fixes it."


def check_clients(machine: Machine, config: Config, task: str = "") -> ClientsHealth:
    """Return the state of the clients. Start every configured server whose library exists.

    task: what each of them is asked for with find_skill, '' for nothing.
    """
    health = ClientsHealth()
    # Clients often share one entry: each command with its environment is started once.
    started: dict[object, StartProbe] = {}
    calls = read_client_log(config.home)
    for entry in client_entries(machine, health.problems):
        key = (entry.command, tuple(sorted(entry.env.items())))
        path_problems = list(_check_path(entry))
        health.problems += path_problems
        try:
            library = entry.library
        except EvolvableError as error:
            health.problems.append(HealthProblem(f"{entry.where}: {error}", error.hint))
            continue
        # `serve` creates a library that is missing, and doctor must change nothing.
        if not path_problems and holds_library(library):
            if key not in started:
                env = {**machine.passed, **entry.env}
                started[key] = asyncio.run(
                    probe_start(entry.command, env, machine.project, PATIENCE_SECONDS, task)
                )
            health.problems += _check_start(entry, started[key])
        health.connected.append(
            _describe_entry(entry, library, started.get(key), read_client_log(library))
        )
        health.notes += _list_notes(
            entry, library, config, calls if library == config.home else read_client_log(library)
        )
    return health


def client_entries(machine: Machine, problems: list[HealthProblem]) -> Iterator[ClientEntry]:
    """Yield the entries of ours in all clients.

    What is wrong with their files goes to `problems`.
    """
    for client in all_clients().values():
        paths = set[Path]()  # in the home folder, the file of the project is that of the user
        for scope in SCOPES:
            path = client.file(machine, scope)
            if path is None or path in paths:
                continue
            paths.add(path)
            try:
                configuration = read_configuration(path)
            except EvolvableError as error:
                problems.append(HealthProblem(f"{client.title}: {error}", error.hint))
                continue
            warnings = strict_json_warnings(client, configuration)
            problems += (HealthProblem(warning, "Take it out.") for warning in warnings)
            yield from _find_own_entries(
                client, scope, path, configuration.values.get(client.table)
            )
            # Claude Code keeps the entries of single projects in its user file too.
            if client.name == "claude-code" and scope != PROJECT:
                table = _find_local_table(configuration.values, machine.project)
                yield from _find_own_entries(client, "local", path, table)


def _find_local_table(values: Mapping[str, Any], project: Path) -> Any:
    projects = values.get("projects")
    settings = projects.get(str(project)) if isinstance(projects, dict) else None
    return settings.get("mcpServers") if isinstance(settings, dict) else None


def _find_own_entries(client: Client, scope: str, path: Path, table: Any) -> Iterator[ClientEntry]:
    for name, values in table.items() if isinstance(table, dict) else ():
        if isinstance(values, dict) and is_ours(values):
            yield ClientEntry(client, scope, path, name, usual_entry(values))


def _check_path(entry: ClientEntry) -> Iterator[HealthProblem]:
    program = Path(entry.command[0])
    if not program.is_absolute():
        yield HealthProblem(
            f"{entry.where} starts {program}, which is no absolute path: a client may not find it.",
            entry.mend,
        )
    elif not program.is_file():
        yield HealthProblem(f"{entry.where} starts {program}, which is not there.", entry.mend)


def _check_start(entry: ClientEntry, started: StartProbe) -> Iterator[HealthProblem]:
    title, values = entry.client.title, entry.values
    if started.failure:
        yield HealthProblem(
            f"{entry.where} does not start: {started.failure.rstrip('.')}.",
            f"Try: {' '.join(entry.command)}",
        )
        return
    # Only Codex goes on without a server that is late.
    if entry.client is not CODEX:
        return
    if values.get("required") is not True:
        if started.seconds > WAITS_SECONDS:
            yield HealthProblem(
                f"{entry.where} takes {started.seconds:.1f} seconds to start, and {title} goes "
                f"without a server that is not ready in {WAITS_SECONDS:g} and not required.",
                entry.mend if "required" not in values else f"Set required = true in {entry.path}.",
            )
        return
    limit = values.get("startup_timeout_sec")
    if isinstance(limit, int | float) and started.seconds > limit:
        yield HealthProblem(
            f"{entry.where} takes {started.seconds:.1f} seconds to start, and {title} waits "
            f"{limit:g}.",
            f"Raise startup_timeout_sec in {entry.path}.",
        )


def _describe_entry(
    entry: ClientEntry, library: Path, start: StartProbe | None, calls: list[HeardCall]
) -> Connected:
    own_calls = [call for call in calls if _is_call_of(entry.client, call)]

    def last(event: str) -> str:
        return next((call.at for call in own_calls if call.event == event), "")

    return Connected(
        client=entry.client.title,
        scope=entry.scope,
        path=str(entry.path),
        name=entry.name,
        command=list(entry.command),
        library=str(library),
        seconds=round(start.seconds, 2) if start is not None and start.lists_tools else None,
        last_session=last("session"),
        last_call=last("call"),
        answer=start.answer if start is not None else "",
    )


def _is_call_of(client: Client, call: HeardCall) -> bool:
    # By its beginning: clients report an edition or a version behind their name.
    return call.client.lower().startswith(tuple(client.called))


def _list_notes(
    entry: ClientEntry, library: Path, config: Config, calls: list[HeardCall]
) -> Iterator[str]:
    title = entry.client.title
    events = {call.event for call in calls if _is_call_of(entry.client, call)}
    if library != config.home:
        yield f"{title} uses another library than this one: {library} ({entry.where}, {HOME})."
    if not events:
        # `check` knows no local scope: Claude Code shows those entries where it shows the user's.
        scope = "user" if entry.scope == "local" else entry.scope
        check = "; ".join(entry.client.check(scope, entry.name))
        yield f"{title} is connected ({entry.where}) and has never called. To check: {check}."
    elif "call" not in events:
        yield f"{title} has begun sessions with the server and never called a tool."
    if entry.client is CODEX and entry.values.get("required") is not True:
        yield (
            f"{title} does not wait for {entry.where}: on a busy machine a session may begin "
            f"without it. {entry.mend}"
        )
