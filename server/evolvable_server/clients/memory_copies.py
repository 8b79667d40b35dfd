"""The memories where clients read them at their start: Claude Code in a rule of its own, Codex in a block of AGENTS.md.

Off until a person switches it on. Which clients it is on for stands in a file of the library's folder.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolvable_server.clients import files
from evolvable_server.clients.marked_block import BrokenBlock, with_block, without_block
from evolvable_server.config import Machine
from evolvable_store.errors import Conflict, EvolvableError

FILE = "memory-copies.json"
"""In the library's folder: client -> {path, made}; made: the file was not there before."""

TITLES = {"claude-code": "Claude Code", "codex": "Codex"}


@dataclass(frozen=True, slots=True)
class MemoryCopy:
    """One client's copy. state: off, current, behind, or broken with the reason in `why`.

    written: whether its file was changed just now. backup: the file as it was, None where none was made.
    warning: why the client does not read it even so, '' when it does.
    """

    client: str
    title: str
    path: str
    state: str
    why: str = ""
    written: bool = False
    backup: str | None = None
    warning: str = ""


def places(machine: Machine) -> dict[str, Path]:
    """Returns the file of each client that it reads at the start of every session."""
    return {
        "claude-code": (machine.claude or machine.user / ".claude") / "rules" / "evolvable-memory.md",
        "codex": machine.codex / "AGENTS.md",
    }


def installed(machine: Machine) -> list[str]:
    """Returns the clients whose folders of settings are there."""
    folders = {"claude-code": machine.claude or machine.user / ".claude", "codex": machine.codex}
    return [client for client, folder in folders.items() if folder.is_dir()]


def switched_on(home: Path) -> dict[str, tuple[Path, bool]]:
    """Returns where memories are checked out for which clients, and whether the file was made for it."""
    try:
        kept = json.loads((home / FILE).read_text(encoding="utf-8"))
        return {client: (Path(one["path"]), bool(one["made"])) for client, one in kept.items() if client in TITLES}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def switch_on(home: Path, machine: Machine, clients: Sequence[str], text: str) -> list[MemoryCopy]:
    """Writes `text` where these clients read it, and has it kept up to date from now on.

    Of a file that was there a copy is kept beside it. Raises ConfigurationBroken, ConfigurationNotWritten, Conflict;
    what was written before stays.
    """
    done = []
    for client in clients:
        path = places(machine)[client]
        on = switched_on(home)
        was, made = on.get(client, (path, not path.exists()))
        if was != path:
            made = not path.exists()
        # Noted first, so that whatever happens `off` finds it.
        _keep(home, {**on, client: (path, made)})
        try:
            copy, backup = _written(path, text, backup=True)
        except EvolvableError:
            _keep(home, on)
            raise
        done.append(_copy(client, path, "current", written=copy, backup=backup))
    return done


def switch_off(home: Path, clients: Iterable[str]) -> list[MemoryCopy]:
    """Takes the memories out of the files of these clients again. Raises as `switch_on`."""
    done = []
    for client in clients:
        on = switched_on(home)
        if client not in on:
            continue
        path, made = on.pop(client)
        gone, backup = _taken_out(path, made)
        _keep(home, on)
        done.append(_copy(client, path, "off", written=gone, backup=backup))
    return done


def brought_up(home: Path, text: str) -> list[MemoryCopy]:
    """Brings every copy that is switched on in step with `text`; returns those that it changed, or could not."""
    done = []
    for client, (path, _) in switched_on(home).items():
        try:
            written, _ = _written(path, text, backup=False)
        except EvolvableError as error:
            done.append(_copy(client, path, "broken", error.text))
        else:
            if written:
                done.append(_copy(client, path, "current", written=True))
    return done


def copies(home: Path, machine: Machine, text: str) -> list[MemoryCopy]:
    """Returns how the copy of each client stands to `text`, without writing anything."""
    on, found = switched_on(home), []
    for client, path in places(machine).items():
        path = on[client][0] if client in on else path
        if client not in on:
            found.append(_copy(client, path, "off"))
            continue
        try:
            data = files.raw(path).data or b""
            state, why = ("current" if with_block(data, text) == data else "behind"), ""
        except (EvolvableError, BrokenBlock) as error:
            state, why = "broken", error.text if isinstance(error, EvolvableError) else str(error)
        found.append(_copy(client, path, state, why))
    return found


def without_ours(text: str) -> str:
    """Returns what a client's file says besides our block."""
    try:
        return without_block(text.encode("utf-8", "replace")).decode("utf-8", "replace")
    except BrokenBlock:
        return text


def _written(path: Path, text: str, *, backup: bool) -> tuple[bool, Path | None]:
    for last in (False, True):
        found = files.raw(path)
        data = _checked(path, lambda data: with_block(data, text), found.data or b"")
        if data == found.data:
            return False, None
        try:
            return True, files.write(found, data, private=True, stamp=_stamp(), backup=backup)
        except Conflict:  # another process of ours was faster; it says the same
            if last:
                raise
    raise AssertionError("not reached")


def _taken_out(path: Path, made: bool) -> tuple[bool, Path | None]:
    found = files.raw(path)
    if found.data is None:
        return False, None
    data = _checked(path, without_block, found.data)
    if data == found.data:
        return False, None
    if made and not data.strip():
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        return True, None
    return True, files.write(found, data, private=True, stamp=_stamp())


def _checked(path: Path, change: Callable[[bytes], bytes], data: bytes) -> bytes:
    try:
        return change(data)
    except BrokenBlock as error:
        raise files.ConfigurationBroken(path, str(error), error.line, 1) from None


def _copy(
    client: str, path: Path, state: str, why: str = "", *, written: bool = False, backup: Path | None = None
) -> MemoryCopy:
    kept = str(backup) if backup else None
    return MemoryCopy(client, TITLES[client], str(path), state, why, written, kept, _unread(client, path))


def _unread(client: str, path: Path) -> str:
    instead = path.with_name("AGENTS.override.md")
    if client == "codex" and instead.is_file() and instead.stat().st_size:
        return f"Codex reads {instead} instead of AGENTS.md, so it does not see the memories."
    return ""


def _keep(home: Path, on: Mapping[str, tuple[Path, bool]]) -> None:
    place = home / FILE
    if not on:
        place.unlink(missing_ok=True)
        return
    beside = place.with_name(f".{FILE}.{os.getpid()}.tmp")
    kept = {client: {"path": str(path), "made": made} for client, (path, made) in on.items()}
    beside.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    os.replace(beside, place)


def _stamp() -> str:
    return time.strftime("%Y%m%dT%H%M%S")
