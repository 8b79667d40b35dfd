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
"""How long its own command may take."""


def keeps_formatting(found: Configuration) -> bool:
    """Return whether Claude Code, which rewrites its files, would leave the form of this one as it
    is.
    """
    if found.data is None:
        return True
    # The form in which Claude Code writes its files.
    written = json.dumps(found.values, indent=2, ensure_ascii=False)
    return found.loose is None and found.text.rstrip("\n") == written


def run_client(machine: Machine, command: list[str]) -> str | None:
    """Run a client's own command; return None, or what it said when it failed."""
    try:
        done = subprocess.run(
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
    if done.returncode == 0:
        return None
    return (done.stderr or done.stdout).strip()[:300] or f"exit code {done.returncode}"


CACHE_TAG = "CACHEDIR.TAG"
"""A file that marks a folder as a cache (bford.info/cachedir).

uv and pipx put it at the top of theirs.
"""

_UNTAGGED = "/pipx/.cache/"
"""Where `pipx run` put its environments before it tagged them."""


class PassingProgram(Refused):
    """This program lies where it is cleared away some day; a configuration that named it would
    break.
    """


def check_lasting(start: Start) -> None:
    """Raise PassingProgram for a program in a cache, as `uvx`, `uv run --with` and `pipx run` put
    it.

    Virtual environments are tagged as caches themselves, also lasting ones: only the folders above
    one count.
    """
    folder = Path(start.command).parent
    # As named and as resolved: a link may lead into a cache.
    above = {*folder.parent.parents, *folder.resolve().parent.parents}
    if _UNTAGGED in folder.as_posix() or any((place / CACHE_TAG).is_file() for place in above):
        raise PassingProgram(
            f"{start.command} lies in a cache, which is cleared away some day, so no client is "
            "given this path.",
            "In a clone of the repository, `uv tool install .` or `pipx install .` installs the "
            "program for good; then connect again.",
        )


def server_start(home: Path, env: dict[str, str] | None = None) -> Start:
    """Return the start of the server over the library in `home`, which is named only when it is not
    the usual one.

    A second file of settings that this process has is named too.
    """
    script = Path(sysconfig.get_path("scripts")) / (
        "evolvable.exe" if sys.platform == "win32" else "evolvable"
    )
    place = {} if home == read_config({}).home else {HOME: str(home)}
    second = {CONFIG: path} if (path := second_config()) else {}
    # What the person names counts before ours.
    variables = {**place, **second, **(env or {})}
    if script.is_file():
        return Start(str(script.absolute()), ("serve",), variables)
    # -P: started in a project's folder, Python must not import that project's modules instead of
    # ours.
    return Start(
        str(Path(sys.executable).absolute()), ("-P", "-m", "evolvable_server", "serve"), variables
    )


NAME = "evolvable"
"""What our server is called in a client unless a person says otherwise."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")


class NotOurs(Refused):
    """An entry of this name is there, and starts something else."""


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """What was done. done: connected, updated, unchanged, disconnected, or absent when there was
    nothing to take out.

    written: whether a file changed; not in a dry run. by: the client's own command where that did
    it, else ''. diff: what changed in the file, or would. backup: the file as it was before, None
    when there was none. hooks: the file whose hooks were written or taken out with it, or would be;
    '' for none.
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


def read_entry(place: ConfigurationEntry, found: Configuration) -> Mapping[str, Any] | None:
    """Return the entry that is there, None without one.

    Raise ConfigurationBroken when it is no object.
    """
    table = found.values.get(place.client.table)
    entry = table.get(place.name) if isinstance(table, dict) else None
    if not isinstance(table, dict | None) or not isinstance(entry, dict | None):
        key = (
            place.client.table
            if not isinstance(table, dict | None)
            else f"{place.client.table}.{place.name}"
        )
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
    """Return whether an entry starts our server, of whatever installation."""
    entry = usual_entry(entry)
    command, args = str(entry.get("command", "")), entry.get("args")
    # By the form of the path and not by this system: WSL and Windows share files.
    program = PureWindowsPath(command).name if "\\" in command else PurePosixPath(command).name
    words = [str(word) for word in args] if isinstance(args, list) else []
    return (
        program.lower().removesuffix(".exe") == "evolvable"
        or "evolvable" in words
        or "evolvable_server" in words
    )


def connect(
    place: ConfigurationEntry,
    start: Start,
    *,
    dry_run: bool = False,
    trust: bool = False,
    hooks: bool = False,
) -> ClientConnection:
    """Make the entry start our server so, and keep the other settings of the person. The second
    time nothing changes.

    trust: all tools of it run unasked. hooks: the client's hooks are written too.

    Raise NotOurs, PassingProgram, InvalidArgument for a start that is no Unicode, and what reading
    and writing the file raise; the file is then as it was.
    """
    _check_text(start)
    check_lasting(start)
    found = config_files.read_configuration(place.path)
    current = read_entry(place, found)
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
    entry = place.client.merge_entry(current, start, frozenset({HOME, CONFIG})) | (
        dict(place.client.trusting) if trust else {}
    )
    warnings = [*strict_json_warnings(place.client, found), *_disabled_warning(entry)]
    if entry == current:
        done = _connection(place, "unchanged", entry, warnings)
    else:
        done = _write_entry(
            place, found, entry, "connected" if current is None else "updated", warnings, dry_run
        )
    if hooks and hook_files.write_hooks(
        place.machine, place.client.name, start, _stamp(), dry_run=dry_run
    ):
        return replace(done, hooks=str(hook_files.hooks_path(place.machine, place.client.name)))
    return done


def disconnect(place: ConfigurationEntry, *, dry_run: bool = False) -> ClientConnection:
    """Take the entry out. Raise as connect."""
    found = config_files.read_configuration(place.path)
    current = read_entry(place, found)
    _check_ours(place, current)
    if current is None:
        done = _connection(place, "absent", None, [])
    else:
        done = _write_entry(place, found, None, "disconnected", [], dry_run)
    name = place.client.name
    # `connect` writes hooks for the user alone.
    if place.scope == USER and hook_files.remove_hooks(
        place.machine, name, _stamp(), dry_run=dry_run
    ):
        return replace(done, hooks=str(hook_files.hooks_path(place.machine, name)))
    return done


def _stamp() -> str:
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
    found: Configuration,
    entry: dict[str, Any] | None,
    done: str,
    warnings: list[str],
    dry_run: bool,
) -> ClientConnection:
    path = (place.client.table, place.name)
    # Before the client's own command runs: its failure leaves this text to be written.
    text = config_files.edit_configuration(found, path, entry)
    result = replace(
        _connection(place, done, entry, warnings), diff=_diff(place.path, found.text, text)
    )
    by = _own_command(place, found, entry, done)
    if dry_run:
        return replace(result, by=" ".join(by), written=False)
    stamp = _stamp()
    if by:
        # The client's own command keeps no copy.
        backup = config_files.back_up_configuration(found, stamp)
        failure = run_client(place.machine, by) or _missing(place, found, entry)
        if failure is None:
            return replace(
                result,
                by=" ".join(["claude", *by[1:3]]),
                backup=str(backup) if backup else None,
            )
        result.warnings.append(f"`claude mcp` failed, so the file was edited: {failure}")
        # The command may have written something before it failed.
        found = config_files.read_configuration(place.path)
        text = config_files.edit_configuration(found, path, entry)
    backup = config_files.write_configuration(found, text, private=place.scope == USER, stamp=stamp)
    return replace(result, backup=str(backup) if backup else None)


def _own_command(
    place: ConfigurationEntry, found: Configuration, entry: dict[str, Any] | None, done: str
) -> list[str]:
    """Return the client's own command for this change; [] where it has none, or would lose what a
    person wrote.
    """
    program = shutil.which("claude", path=place.machine.programs)
    # It has no command that changes an entry which is there.
    if (
        place.client.name != "claude-code"
        or done == "updated"
        or not program
        or not keeps_formatting(found)
    ):
        return []
    change = (
        ["remove", place.name] if entry is None else ["add-json", place.name, json.dumps(entry)]
    )
    return [program, "mcp", *change, "-s", place.scope]


def _missing(
    place: ConfigurationEntry, before: Configuration, entry: dict[str, Any] | None
) -> str | None:
    """Return what another program's change did not do, or did besides; None when all is as it
    should be.
    """
    after = config_files.read_configuration(place.path)
    now, table = read_entry(place, after), place.client.table
    # The client may have added keys of its own to the entry.
    if (now is None) != (entry is None) or (
        entry and any(now and now.get(key) != entry[key] for key in entry)
    ):
        return "the entry is not as it should be"
    servers, left = before.values.get(table), after.values.get(table)
    lost = [key for key in before.values if key not in after.values and key != table]
    lost += [
        name
        for name in (servers if isinstance(servers, dict) else ())
        if name != place.name and (not isinstance(left, dict) or name not in left)
    ]
    return f"it lost {', '.join(lost)}" if lost else None


def _connection(
    place: ConfigurationEntry, done: str, entry: dict[str, Any] | None, warnings: list[str]
) -> ClientConnection:
    client, connected = place.client, entry is not None
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
        notes=[note.format(name=place.name) for note in client.notes.get(place.scope, ())]
        if connected
        else [],
        check=client.check(place.scope, place.name) if connected else [],
    )


def _diff(path: Path, before: str, after: str) -> str:
    """Return what changes, without the lines around it: they may hold the keys of other servers."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(path), str(path), n=0, lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)


def strict_json_warnings(client: Client, found: Configuration) -> list[str]:
    """Return why the client ignores a file, in which it wants strict JSON; [] where it does not."""
    if not client.strict or found.loose is None:
        return []
    what, line, column = found.loose
    return [
        f"{found.path} has {what} at line {line}, column {column}, and {client.title} reads only "
        "strict JSON: it ignores the whole file until that is taken out."
    ]


def _disabled_warning(entry: Mapping[str, Any]) -> list[str]:
    off = entry.get("enabled") is False or entry.get("disabled") is True
    return ["The entry is switched off in the file; that was left as it is."] if off else []
