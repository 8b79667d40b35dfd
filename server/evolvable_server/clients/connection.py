"""Connects a client to the server, and disconnects it: one entry in its configuration, and nothing else in there."""

import difflib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from evolvable_server.clients import claude_code, files
from evolvable_server.clients.client import Client, Start
from evolvable_server.clients.files import Configuration
from evolvable_server.clients.starts import passes
from evolvable_server.config import Machine
from evolvable_server.environment import HOME
from evolvable_store.errors import InvalidArgument, Refused

NAME = "evolvable"
"""What our server is called in a client unless a person says otherwise."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")


class NotOurs(Refused):
    """An entry of this name is there, and starts something else."""


@dataclass(frozen=True, slots=True)
class Connection:
    """What was done. done: connected, updated, unchanged, disconnected, or absent when there was nothing to take out.

    written: whether a file changed; not in a dry run. by: the client's own command where that did it, else ''.
    diff: what changed in the file, or would. backup: the file as it was before, None when there was none.
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
    notes: list[str] = field(default_factory=list)
    check: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Place:
    """An entry's place: in which client, scope and file, under which name."""

    machine: Machine
    client: Client
    scope: str
    name: str
    path: Path


def place(machine: Machine, client: Client, scope: str, name: str = NAME) -> Place:
    """Returns where an entry belongs. Raises InvalidArgument for a name or a scope that the client does not have."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{ascii(name[:80])} cannot be the name of a server.", "Use up to 60 letters, digits, - and _ of ASCII."
        )
    path = client.file(machine, scope)
    if path is None:
        raise InvalidArgument(f"{client.title} has no configuration of a {scope}.", "Leave --scope out.")
    return Place(machine, client, scope, name, path)


def entry_at(place: Place, found: Configuration) -> Mapping[str, Any] | None:
    """Returns the entry that is there, None without one. Raises ConfigurationBroken when it is no object."""
    table = found.values.get(place.client.table)
    entry = table.get(place.name) if isinstance(table, dict) else None
    if not isinstance(table, dict | None) or not isinstance(entry, dict | None):
        key = place.client.table if not isinstance(table, dict | None) else f"{place.client.table}.{place.name}"
        raise files.ConfigurationBroken(place.path, f"{key} in it is no object")
    return entry


def is_ours(entry: Mapping[str, Any]) -> bool:
    """Returns whether an entry starts our server, of whatever installation."""
    command, args = str(entry.get("command", "")), entry.get("args")
    program = PureWindowsPath(command).name if "\\" in command else PurePosixPath(command).name
    words = [str(word) for word in args] if isinstance(args, list) else []
    return program.lower().removesuffix(".exe") == "evolvable" or "evolvable" in words or "evolvable_server" in words


def connect(place: Place, start: Start, *, dry_run: bool = False) -> Connection:
    """Makes the entry start our server so, and keeps what a person set besides. The second time nothing changes.

    Raises NotOurs, InvalidArgument for a start that is no Unicode, and what reading and writing the file raise; the
    file is then as it was.
    """
    _check_text(start)
    found = files.read(place.path)
    there = entry_at(place, found)
    _check_ours(place, there)
    entry = place.client.merged(there, start, frozenset({HOME}))
    warnings = [*loose(place.client, found), *_passing(start), *_switched_off(entry)]
    if entry == there:
        return _connection(place, "unchanged", entry, warnings)
    return _changed(place, found, entry, "connected" if there is None else "updated", warnings, dry_run)


def disconnect(place: Place, *, dry_run: bool = False) -> Connection:
    """Takes the entry out. Raises as connect."""
    found = files.read(place.path)
    there = entry_at(place, found)
    _check_ours(place, there)
    if there is None:
        return _connection(place, "absent", None, [])
    return _changed(place, found, None, "disconnected", [], dry_run)


def _check_text(start: Start) -> None:
    for text in (start.command, *start.args, *start.env, *start.env.values()):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidArgument(
                f"{ascii(text[:200])} is not Unicode, and configuration files are.", "Give the folder another name."
            ) from None


def _check_ours(place: Place, there: Mapping[str, Any] | None) -> None:
    if there is not None and not is_ours(there):
        what = there.get("command") or there.get("url") or "something else"
        raise NotOurs(
            f"{place.name} in {place.path} is another server: {str(what)[:200]}.",
            "It was left alone; --name gives ours another name.",
        )


def _changed(
    place: Place, found: Configuration, entry: dict[str, Any] | None, done: str, warnings: list[str], dry_run: bool
) -> Connection:
    text = files.changed(found, (place.client.table, place.name), entry)
    diff = _diff(place.path, found.text, text)
    by = _own_command(place, found, entry, done)
    if dry_run:
        return _connection(place, done, entry, warnings, diff=diff, by=" ".join(by), written=False)
    stamp = time.strftime("%Y%m%dT%H%M%S")
    if by:
        backup = files.back_up(found, stamp)
        failure = claude_code.run(place.machine, by) or _missing(place, found, entry)
        if failure is None:
            return _connection(
                place, done, entry, warnings, diff=diff, by=" ".join(["claude", *by[1:3]]), backup=backup
            )
        warnings = [*warnings, f"`claude mcp` failed, so the file was edited: {failure}"]
        found = files.read(place.path)
        text = files.changed(found, (place.client.table, place.name), entry)
    backup = files.write(found, text, private=place.scope == "user", stamp=stamp)
    return _connection(place, done, entry, warnings, diff=diff, backup=backup)


def _own_command(place: Place, found: Configuration, entry: dict[str, Any] | None, done: str) -> list[str]:
    """Returns the client's own command for this change; [] where it has none, or would lose what a person wrote."""
    if place.client is not claude_code.CLIENT or done == "updated" or not claude_code.writes_alike(found):
        return []
    program = claude_code.own_command(place.machine)
    return claude_code.arguments(program, place.scope, place.name, entry) if program else []


def _missing(place: Place, before: Configuration, entry: dict[str, Any] | None) -> str | None:
    """Returns what another program's change did not do, or did besides; None when all is as it should be."""
    after = files.read(place.path)
    now, table = entry_at(place, after), place.client.table
    if (now is None) != (entry is None) or (entry and any(now and now.get(key) != entry[key] for key in entry)):
        return "the entry is not as it should be"
    servers = before.values.get(table)
    others = [name for name in servers if name != place.name] if isinstance(servers, dict) else []
    left = after.values.get(table)
    lost = [key for key in before.values if key not in after.values and key != table]
    lost += [name for name in others if not isinstance(left, dict) or name not in left]
    return f"it lost {', '.join(lost)}" if lost else None


def _connection(
    place: Place,
    done: str,
    entry: dict[str, Any] | None,
    warnings: list[str],
    *,
    diff: str = "",
    by: str = "",
    backup: Path | None = None,
    written: bool | None = None,
) -> Connection:
    client, connected = place.client, entry is not None
    return Connection(
        client=client.name,
        title=client.title,
        name=place.name,
        scope=place.scope,
        path=str(place.path),
        done=done,
        written=done not in ("unchanged", "absent") if written is None else written,
        by=by,
        entry=entry,
        diff=diff,
        backup=str(backup) if backup else None,
        warnings=warnings,
        notes=[note.format(name=place.name) for note in client.notes.get(place.scope, ())] if connected else [],
        check=client.check(place.scope, place.name) if connected else [],
    )


def _diff(path: Path, before: str, after: str) -> str:
    """Returns what changes, without the lines around it: they may hold the keys of other servers."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), n=0, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def loose(client: Client, found: Configuration) -> list[str]:
    """Returns why the client ignores a file, in which it wants strict JSON; [] where it does not."""
    if not client.strict or found.loose is None:
        return []
    what, line, column = found.loose
    return [
        f"{found.path} has {what} at line {line}, column {column}, and {client.title} reads only strict JSON: it "
        "ignores the whole file until that is taken out."
    ]


def _passing(start: Start) -> list[str]:
    if not passes(start):
        return []
    return [
        f"{start.command} lies where it may be cleared away. Install the program for good (`uv tool install "
        "evolvable`), and connect again."
    ]


def _switched_off(entry: Mapping[str, Any]) -> list[str]:
    off = entry.get("enabled") is False or entry.get("disabled") is True
    return ["The entry is switched off in the file; that was left as it is."] if off else []
