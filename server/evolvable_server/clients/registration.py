"""Connect a client to this server and disconnect it: one entry in its configuration, and no other
change.

Clients start the server with absolute paths, because they share neither folder nor PATH. Claude
Code's own command adds the entry where its file allows that.
"""

import difflib
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from evolvable_server.clients import config_files, hook_files
from evolvable_server.clients.client import USER, Client, Start, usual_entry
from evolvable_server.clients.config_files import Configuration
from evolvable_server.config import Machine, read_config
from evolvable_server.environment import CONFIG, HOME, library_home, second_config
from evolvable_store.errors import InvalidArgument, Refused

PATIENCE_SECONDS = 60
"""Seconds that a client's own command may take."""


def keeps_formatting(configuration: Configuration) -> bool:
    """Return whether Claude Code, which rewrites its files, would keep the form of this one."""
    if configuration.data is None:
        return True
    # The form in which Claude Code writes its files.
    written = json.dumps(configuration.values, indent=2, ensure_ascii=False)
    return configuration.loose is None and configuration.text.rstrip("\n") == written


def run_client(machine: Machine, command: list[str]) -> str | None:
    """Run a client's own command; return None, or its error text when it failed."""
    try:
        process = subprocess.run(
            command,
            cwd=machine.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=PATIENCE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if process.returncode == 0:
        return None
    return (process.stderr or process.stdout).strip()[:300] or f"exit code {process.returncode}"


CACHE_TAG = "CACHEDIR.TAG"
"""A file that marks a folder as a cache (bford.info/cachedir).

uv and pipx put it at the top of theirs.
"""

_UNTAGGED = "/pipx/.cache/"
"""A part of the paths of `pipx run`'s environments, which older versions did not tag."""


class PassingProgram(Refused):
    """This program lies in a cache: a configuration that named it would break some day."""


def check_lasting(start: Start) -> None:
    """Raise PassingProgram for a program in a cache: of `uvx`, `uv run --with` or `pipx run`.

    A virtual environment is tagged as a cache itself, also a lasting one: only the folders above it
    count.
    """
    folder = Path(start.command).parent
    # As named and as resolved: a link may lead into a cache.
    above = {*folder.parent.parents, *folder.resolve().parent.parents}
    is_tagged = any((directory / CACHE_TAG).is_file() for directory in above)
    if is_tagged or _UNTAGGED in folder.as_posix():
        raise PassingProgram(
            f"{start.command} lies in a cache, which is cleared away some day, so no client is "
            "given this path.",
            "In a clone of the repository, `uv tool install .` or `pipx install .` installs the "
            "program for good; then connect again.",
        )


def server_start(home: Path, env: dict[str, str] | None = None) -> Start:
    """Return the start of the server over the library in `home`.

    env: the person's variables, which count before ours. A library that is not the usual one, and a
    second file of settings of this process, are named in the environment.
    """
    variables = {} if home == read_config({}).home else {HOME: str(home)}
    second = second_config()
    if second:
        variables[CONFIG] = second
    variables |= env or {}
    program = "evolvable.exe" if sys.platform == "win32" else "evolvable"
    script = Path(sysconfig.get_path("scripts")) / program
    if script.is_file():
        return Start(str(script.absolute()), ("serve",), variables)
    # -P: in a project's folder, Python must not import that project's modules instead of ours.
    arguments = ("-P", "-m", "evolvable_server", "serve")
    return Start(str(Path(sys.executable).absolute()), arguments, variables)


NAME = "evolvable"
"""The name of our server in a client, unless a person gives another one."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")


class NotOurs(Refused):
    """The entry of this name starts something else."""


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """The result of `connect` or `disconnect`.

    done: connected, updated, unchanged, disconnected, or absent when there was nothing to take out.
    written: whether a file changed; not in a dry run. by: the client's own command where that did
    it, else ''. diff: the change of the file, also in a dry run. backup: the copy of the file, None
    when there was no file. hooks: the file whose hooks changed, also in a dry run; '' for none.
    """

    client: str
    title: str
    name: str
    scope: str
    path: str
    done: str
    written: bool
    by: str
    entry: dict[str, Any] | None
    diff: str
    backup: str | None
    warnings: list[str] = field(default_factory=list)
    hooks: str = ""
    notes: list[str] = field(default_factory=list)
    check: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ConfigurationEntry:
    """An entry's place: in which client, scope and file, under which name."""

    machine: Machine
    client: Client
    scope: str
    name: str
    path: Path


def configuration_entry(
    machine: Machine, client: Client, scope: str, name: str = NAME
) -> ConfigurationEntry:
    """Return where an entry belongs.

    Raise InvalidArgument for a name or a scope that the client does not have.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{ascii(name[:80])} cannot be the name of a server.",
            "Use up to 60 letters, digits, - and _ of ASCII.",
        )
    path = client.file(machine, scope)
    if path is None:
        raise InvalidArgument(
            f"{client.title} has no configuration of a {scope}.", "Leave --scope out."
        )
    return ConfigurationEntry(machine, client, scope, name, path)


def read_entry(place: ConfigurationEntry, configuration: Configuration) -> Mapping[str, Any] | None:
    """Return the entry that is there, None without one.

    Raise ConfigurationBroken when it is no object.
    """
    table = configuration.values.get(place.client.table)
    entry = table.get(place.name) if isinstance(table, dict) else None
    if not isinstance(table, dict | None) or not isinstance(entry, dict | None):
        is_table_broken = not isinstance(table, dict | None)
        key = place.client.table if is_table_broken else f"{place.client.table}.{place.name}"
        raise config_files.ConfigurationBroken(place.path, f"{key} in it is no object")
    return entry


def entry_home(place: ConfigurationEntry) -> str:
    """Return the library that the entry of our server opens, whether that is there or not."""
    entry = usual_entry(read_entry(place, config_files.read_configuration(place.path)) or {})
    args, env = entry.get("args"), entry.get("env")
    words = list(map(str, args)) if isinstance(args, list) else []
    if "--home" in words[:-1]:
        return library_home({HOME: words[words.index("--home") + 1]})
    return library_home({HOME: str(env.get(HOME) or "")} if isinstance(env, dict) else {})


def is_ours(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry starts our server, of any installation."""
    entry = usual_entry(entry)
    command, args = str(entry.get("command", "")), entry.get("args")
    # By the form of the path and not by this system: WSL and Windows share files.
    program = PureWindowsPath(command).name if "\\" in command else PurePosixPath(command).name
    words = [str(word) for word in args] if isinstance(args, list) else []
    if program.lower().removesuffix(".exe") == "evolvable":
        return True
    return "evolvable" in words or "evolvable_server" in words


def connect(
    place: ConfigurationEntry,
    start: Start,
    *,
    dry_run: bool = False,
    trust: bool = False,
    hooks: bool = False,
) -> ClientConnection:
    """Make the entry start our server so, and keep the other settings of the person.

    A second call changes nothing. trust: all tools of the server run unasked. hooks: the client's
    hooks are written too.

    Raise NotOurs, PassingProgram, InvalidArgument for a start that is no Unicode, and the errors of
    reading and writing the file. The file is then as it was.
    """
    _check_text(start)
    check_lasting(start)
    configuration = config_files.read_configuration(place.path)
    current = read_entry(place, configuration)
    _check_ours(place, current)
    if trust and not place.client.trusting:
        raise InvalidArgument(
            f"An entry of {place.client.title} cannot say that its tools run unasked.",
            "Allow them there.",
        )
    if hooks and (place.scope != USER or not hook_files.has_hooks(place.client.name)):
        raise InvalidArgument(
            f"{place.client.title} gets no hooks from `connect` for the scope {place.scope}.",
            "Leave --hooks out; Claude Code and Codex get theirs with the plugin (`evolvable "
            "setup --plugin CLIENT`).",
        )
    entry = place.client.merge_entry(current, start, frozenset({HOME, CONFIG}))
    if trust:
        entry |= place.client.trusting
    warnings = [*strict_json_warnings(place.client, configuration), *_warn_of_disabled(entry)]
    if entry == current:
        connection = _make_connection(place, "unchanged", entry, warnings)
    else:
        done = "connected" if current is None else "updated"
        connection = _write_entry(place, configuration, entry, done, warnings, dry_run)
    machine, client = place.machine, place.client.name
    if hooks and hook_files.write_hooks(machine, client, start, _time_stamp(), dry_run=dry_run):
        return replace(connection, hooks=str(hook_files.hooks_path(machine, client)))
    return connection


def disconnect(place: ConfigurationEntry, *, dry_run: bool = False) -> ClientConnection:
    """Take the entry, and the client's hooks, out. Raise as connect."""
    configuration = config_files.read_configuration(place.path)
    current = read_entry(place, configuration)
    _check_ours(place, current)
    if current is None:
        connection = _make_connection(place, "absent", None, [])
    else:
        connection = _write_entry(place, configuration, None, "disconnected", [], dry_run)
    # `connect` writes hooks for the user alone.
    if place.scope != USER:
        return connection
    machine, client = place.machine, place.client.name
    if hook_files.remove_hooks(machine, client, _time_stamp(), dry_run=dry_run):
        return replace(connection, hooks=str(hook_files.hooks_path(machine, client)))
    return connection


def _time_stamp() -> str:
    return time.strftime("%Y%m%dT%H%M%S")


def _check_text(start: Start) -> None:
    for text in (start.command, *start.args, *start.env, *start.env.values()):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidArgument(
                f"{ascii(text[:200])} is not Unicode, and configuration files are.",
                "Give the folder another name.",
            ) from None


def _check_ours(place: ConfigurationEntry, current: Mapping[str, Any] | None) -> None:
    if current is not None and not is_ours(current):
        what = current.get("command") or current.get("url") or "something else"
        raise NotOurs(
            f"{place.name} in {place.path} is another server: {str(what)[:200]}.",
            "It was left alone; --name gives ours another name.",
        )


def _write_entry(
    place: ConfigurationEntry,
    configuration: Configuration,
    entry: dict[str, Any] | None,
    done: str,
    warnings: list[str],
    dry_run: bool,
) -> ClientConnection:
    path = (place.client.table, place.name)
    # Before the client's own command runs: its failure leaves this text to be written.
    text = config_files.edit_configuration(configuration, path, entry)
    result = _make_connection(place, done, entry, warnings)
    result = replace(result, diff=_compare(place.path, configuration.text, text))
    command = _find_own_command(place, configuration, entry, done)
    if dry_run:
        return replace(result, by=" ".join(command), written=False)
    stamp = _time_stamp()
    if command:
        # The client's own command keeps no copy.
        backup = config_files.back_up_configuration(configuration, stamp)
        failure = run_client(place.machine, command) or _check_change(place, configuration, entry)
        if failure is None:
            by = " ".join(["claude", *command[1:3]])
            return replace(result, by=by, backup=str(backup) if backup else None)
        result.warnings.append(f"`claude mcp` failed, so the file was edited: {failure}")
        # The command may have written something before it failed.
        configuration = config_files.read_configuration(place.path)
        text = config_files.edit_configuration(configuration, path, entry)
    backup = config_files.write_configuration(
        configuration, text, private=place.scope == USER, stamp=stamp
    )
    return replace(result, backup=str(backup) if backup else None)


def _find_own_command(
    place: ConfigurationEntry, configuration: Configuration, entry: dict[str, Any] | None, done: str
) -> list[str]:
    """Return the client's own command for this change.

    Return [] where it has none, or would lose what a person wrote.
    """
    # Claude Code has no command that changes an entry which is there.
    if place.client.name != "claude-code" or done == "updated":
        return []
    program = shutil.which("claude", path=place.machine.programs)
    if not program or not keeps_formatting(configuration):
        return []
    if entry is None:
        change = ["remove", place.name]
    else:
        change = ["add-json", place.name, json.dumps(entry)]
    return [program, "mcp", *change, "-s", place.scope]


def _check_change(
    place: ConfigurationEntry, before: Configuration, entry: dict[str, Any] | None
) -> str | None:
    """Return the error in another program's change of the file, None when there is none."""
    after = config_files.read_configuration(place.path)
    written, table = read_entry(place, after), place.client.table
    if (written is None) != (entry is None):
        return "the entry is not as it should be"
    # The client may have added keys of its own to the entry.
    if entry and written and any(written.get(key) != entry[key] for key in entry):
        return "the entry is not as it should be"
    lost = [key for key in before.values if key not in after.values and key != table]
    old_servers, new_servers = before.values.get(table), after.values.get(table)
    left = new_servers if isinstance(new_servers, dict) else {}
    if isinstance(old_servers, dict):
        lost += [name for name in old_servers if name != place.name and name not in left]
    return f"it lost {', '.join(lost)}" if lost else None


def _make_connection(
    place: ConfigurationEntry, done: str, entry: dict[str, Any] | None, warnings: list[str]
) -> ClientConnection:
    client = place.client
    notes: list[str] = []
    check: list[str] = []
    if entry is not None:
        notes = [note.format(name=place.name) for note in client.notes.get(place.scope, ())]
        check = client.check(place.scope, place.name)
    return ClientConnection(
        client=client.name,
        title=client.title,
        name=place.name,
        scope=place.scope,
        path=str(place.path),
        done=done,
        written=done not in ("unchanged", "absent"),
        by="",
        entry=entry,
        diff="",
        backup=None,
        warnings=warnings,
        notes=notes,
        check=check,
    )


def _compare(path: Path, before: str, after: str) -> str:
    """Return the difference without the lines around it: they may hold keys of other servers."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(path), str(path), n=0, lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)


def strict_json_warnings(client: Client, configuration: Configuration) -> list[str]:
    """Return why the client ignores a file that is not strict JSON; [] where it reads the file."""
    if not client.strict or configuration.loose is None:
        return []
    what, line, column = configuration.loose
    return [
        f"{configuration.path} has {what} at line {line}, column {column}, and {client.title} "
        "reads only strict JSON: it ignores the whole file until that is taken out."
    ]


def _warn_of_disabled(entry: Mapping[str, Any]) -> list[str]:
    is_disabled = entry.get("enabled") is False or entry.get("disabled") is True
    if not is_disabled:
        return []
    return ["The entry is switched off in the file; that was left as it is."]
