"""Write the memories of the user where clients read them at their start.

Claude Code reads a rule of its own; Codex, OpenCode and Droid read a block of AGENTS.md, Copilot
CLI one of its instructions, Qwen Code one of QWEN.md. All are files of the person's account. The
block is at the beginning of the file, where it needs no line end before it; every byte beside it
stays. Off until a person switches it on; a file in the library's folder lists the clients for which
it is on. `project_memory` does the same in a file of a project.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolvable_server.clients import config_files
from evolvable_server.config import MEMORY_COPIES, Machine
from evolvable_store import Actor, read_regular, write_private
from evolvable_store.errors import Conflict, EvolvableError
from evolvable_store.resource import USER_SCOPE
from evolvable_store.workingcopy import exclusive
from evolvable_tools import Caller, Library
from evolvable_tools.verbs import memories_for_clients

BEGIN = b"<!-- evolvable memory: begin"
END = b"<!-- evolvable memory: end -->"
_BOM = b"\xef\xbb\xbf"
# Byte order marks of UTF-16, which editors on Windows write.
_WIDE = (b"\xff\xfe", b"\xfe\xff")
# Longer than writing all files takes; a command does not wait for one that hangs.
_LOCK_SECONDS = 10


class BrokenBlock(ValueError):
    """The marks do not belong together. line: counted from 1."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.line = line


@dataclass(frozen=True, slots=True)
class BlockParts:
    """A file: what stands before the block, the block with its line ends, None without one, and
    what stands behind.
    """

    before: bytes
    block: bytes | None
    after: bytes


def split_at_block(data: bytes) -> BlockParts:
    """Return the parts of a file.

    Raise BrokenBlock when it has half a block or two, or is no text of bytes.
    """
    if data.startswith(_WIDE):
        raise BrokenBlock("it is UTF-16, and not UTF-8", 1)
    at, begun, ended = 0, list[tuple[int, int]](), list[tuple[int, int]]()
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        text = line.removeprefix(_BOM) if number == 1 else line
        if text.startswith(BEGIN):
            begun.append((at + len(line) - len(text), number))
        elif text.strip() == END:
            ended.append((at + len(line), number))
        at += len(line)
    if not begun and not ended:
        return BlockParts(data, None, b"")
    if len(begun) != 1 or len(ended) != 1 or ended[0][0] <= begun[0][0]:
        odd = (begun[1:] or ended[1:] or begun or ended)[0]
        raise BrokenBlock("the marks of Evolvable's block do not belong together", odd[1])
    start, end = begun[0][0], ended[0][0]
    return BlockParts(data[:start], data[start:end], data[end:])


def with_block(data: bytes, text: str) -> bytes:
    """Return the file with the block that says `text`. Raise BrokenBlock."""
    parts = split_at_block(data)
    block = format_block(text, b"\r\n" if b"\r\n" in parts.before + parts.after else b"\n")
    if parts.block is not None:
        return parts.before + block + parts.after
    # A byte order mark counts only as the very first bytes.
    mark = _BOM if data.startswith(_BOM) else b""
    return mark + block + data.removeprefix(_BOM)


def without_block(data: bytes) -> bytes:
    """Return the file as it is without the block. Raise BrokenBlock."""
    parts = split_at_block(data)
    return parts.before + parts.after


def format_block(text: str, end: bytes) -> bytes:
    """Return the block that says `text`, its lines ended so."""
    body = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    # A memory must not be able to end its block.
    lines = (
        body.replace("<!-- evolvable memory", "<!- evolvable memory")
        .encode("utf-8", "replace")
        .split(b"\n")
    )
    return end.join(
        [BEGIN + b"; written by Evolvable, what is changed in here is lost -->", *lines, END, b""]
    )


TITLES = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "copilot": "Copilot CLI",
    "opencode": "OpenCode",
    "qwen": "Qwen Code",
    "droid": "Droid",
}


@dataclass(frozen=True, slots=True)
class MemoryCopy:
    """One client's copy. state: off, current, behind, or broken with the reason in `why`.

    written: whether its file was changed just now. backup: the file as it was, None where none was
    made. warning: why the client does not read it even so, '' when it does. project: the folder of
    the project in whose file the project's own memory stands, '' for a file of the account; git:
    how git treats that file.
    """

    client: str
    title: str
    path: str
    state: str
    why: str = ""
    written: bool = False
    backup: str | None = None
    warning: str = ""
    project: str = ""
    git: str = ""


def memory_file_paths(machine: Machine) -> dict[str, Path]:
    """Return the file of each client that it reads at the start of every session."""
    return {
        "claude-code": (machine.claude or machine.user / ".claude")
        / "rules"
        / "evolvable-memory.md",
        "codex": machine.codex / "AGENTS.md",
        "copilot": machine.copilot / "copilot-instructions.md",
        "opencode": machine.settings / "opencode" / "AGENTS.md",
        "qwen": machine.user / ".qwen" / "QWEN.md",
        "droid": machine.user / ".factory" / "AGENTS.md",
    }


def installed_clients(machine: Machine) -> list[str]:
    """Return the clients whose folders of settings are there."""
    folders = {"claude-code": machine.claude or machine.user / ".claude", "codex": machine.codex}
    folders |= {"copilot": machine.copilot, "opencode": machine.settings / "opencode"}
    folders |= {"qwen": machine.user / ".qwen", "droid": machine.user / ".factory"}
    return [client for client, folder in folders.items() if folder.is_dir()]


def read_enabled_copies(home: Path) -> dict[str, tuple[Path, bool]]:
    """Return where memories are checked out for which clients, and whether the file was made for
    it.
    """
    record = read_record(home)
    try:
        return {
            client: (Path(entry["path"]), bool(entry["made"]))
            for client, entry in record.items()
            if client in TITLES
        }
    except (KeyError, TypeError):
        return {}


def lock_copies(home: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of all copies of a library while the body runs. Raise LibraryBusy."""
    # Of two commands at once one would forget the file that the other notes, and `off` would not
    # find it. An update that began before `off` would write the block again, and an older text
    # would replace a newer one.
    place = home / "locks"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return exclusive(place / "memories.lock", _LOCK_SECONDS, "the memories of the clients")


def enable_copies(
    home: Path, machine: Machine, clients: Sequence[str], text: str
) -> list[MemoryCopy]:
    """Write `text` where these clients read it, and have it kept up to date from now on.

    Of a file that was there a copy is kept beside it. Raise ConfigurationBroken,
    ConfigurationNotWritten, Conflict, LibraryBusy; what was written before stays.
    """
    with lock_copies(home):
        return _enable(home, machine, clients, text)


def _enable(home: Path, machine: Machine, clients: Sequence[str], text: str) -> list[MemoryCopy]:
    done = []
    for client in clients:
        path = memory_file_paths(machine)[client]
        on = read_enabled_copies(home)
        # A file that was there before the block does not go with it.
        was_created = on[client][1] if client in on and on[client][0] == path else not path.exists()
        # Noted first, so that whatever happens `off` finds it.
        _write_enabled(home, {**on, client: (path, was_created)})
        try:
            copy, backup = write_block(path, text, backup=True)
        except EvolvableError:
            # Nothing was written, so there is nothing to find.
            _write_enabled(home, on)
            raise
        done.append(_copy(client, path, "current", written=copy, backup=backup))
    return done


def disable_copies(home: Path, clients: Iterable[str]) -> list[MemoryCopy]:
    """Take the memories out of the files of these clients again. Raise as `enable_copies`."""
    done = []
    # Where nothing is switched on, no lock file is made.
    for client in clients if read_enabled_copies(home) else ():
        with lock_copies(home):
            # Under the lock: another command may have switched it off meanwhile.
            on = read_enabled_copies(home)
            if client not in on:
                continue
            path, was_created = on.pop(client)
            gone, backup = remove_block(path, was_created)
            _write_enabled(home, on)
        done.append(_copy(client, path, "off", written=gone, backup=backup))
    return done


def refresh_copies(home: Path, text: str) -> list[MemoryCopy]:
    """Update every copy that is switched on to `text`; return those that it changed, or could not.

    The caller holds the lock of `lock_copies`, since before it read the text.
    """
    done = []
    for client, (path, _) in read_enabled_copies(home).items():
        try:
            written, _ = write_block(path, text, backup=False)
        except EvolvableError as error:
            done.append(_copy(client, path, "broken", error.text))
        else:
            if written:
                done.append(_copy(client, path, "current", written=True))
    return done


def copy_statuses(home: Path, machine: Machine, text: str) -> list[MemoryCopy]:
    """Return how the copy of each client stands to `text`, without writing anything."""
    on, found = read_enabled_copies(home), []
    for client, usual in memory_file_paths(machine).items():
        path, state, why = on[client][0] if client in on else usual, "off", ""
        if client in on:
            try:
                data = config_files.read_raw_configuration(path).data or b""
                state = "current" if with_block(data, text) == data else "behind"
            except (EvolvableError, BrokenBlock) as error:
                state, why = (
                    "broken",
                    error.text if isinstance(error, EvolvableError) else str(error),
                )
        found.append(_copy(client, path, state, why))
    return found


def strip_block(text: str) -> str:
    """Return what a client's file says besides our block."""
    try:
        return without_block(text.encode("utf-8", "replace")).decode("utf-8", "replace")
    except BrokenBlock:
        return text


def write_block(
    path: Path, text: str, *, backup: bool, private: bool = True
) -> tuple[bool, Path | None]:
    """Have the block of a file say `text`; return whether it was changed, and its backup.

    private: a new file is for its owner alone. Raise ConfigurationBroken, ConfigurationNotWritten,
    Conflict.
    """
    for last in (False, True):
        found = config_files.read_raw_configuration(path)
        data = _change_block(path, lambda data: with_block(data, text), found.data or b"")
        if data == found.data:
            return False, None
        try:
            return True, config_files.write_configuration(
                found, data, private=private, stamp=time.strftime("%Y%m%dT%H%M%S"), backup=backup
            )
        except Conflict:  # another process of ours was faster; it says the same
            if last:
                raise
    raise AssertionError("not reached")


def remove_block(path: Path, was_created: bool, *, backup: bool = True) -> tuple[bool, Path | None]:
    """Take the block out of a file; return whether it was changed, and its backup. Raise as
    `write_block`.

    was_created: the file was made for the block, and goes with it when nothing else is in it.
    """
    found = config_files.read_raw_configuration(path)
    if found.data is None:
        return False, None
    data = _change_block(path, without_block, found.data)
    if data == found.data:
        return False, None
    if was_created and not data.strip():
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        return True, None
    stamp = time.strftime("%Y%m%dT%H%M%S")
    return True, config_files.write_configuration(
        found, data, private=True, stamp=stamp, backup=backup
    )


def _change_block(path: Path, change: Callable[[bytes], bytes], data: bytes) -> bytes:
    try:
        return change(data)
    except BrokenBlock as error:
        raise config_files.ConfigurationBroken(path, str(error), error.line, 1) from None


def _copy(
    client: str,
    path: Path,
    state: str,
    why: str = "",
    *,
    written: bool = False,
    backup: Path | None = None,
) -> MemoryCopy:
    backup_path = str(backup) if backup else None
    return MemoryCopy(
        client,
        TITLES[client],
        str(path),
        state,
        why,
        written,
        backup_path,
        unread_warning(client, path),
    )


def unread_warning(client: str, path: Path) -> str:
    """Return why a client does not read its file, '' when it does."""
    instead = path.with_name("AGENTS.override.md")
    if client == "codex" and instead.is_file() and instead.stat().st_size:
        return f"Codex reads {instead} instead of AGENTS.md, so it does not see the memories."
    return ""


def _write_enabled(home: Path, on: Mapping[str, tuple[Path, bool]]) -> None:
    # The same record holds the files of projects.
    others = {name: entry for name, entry in read_record(home).items() if name not in TITLES}
    write_record(
        home,
        others
        | {
            client: {"path": str(path), "made": was_created}
            for client, (path, was_created) in on.items()
        },
    )


def read_record(home: Path) -> dict[str, Any]:
    """Return what the file in the library's folder says of the copies that are switched on; nothing
    if unreadable.
    """
    try:
        record = json.loads(read_regular(home / MEMORY_COPIES))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def write_record(home: Path, record: Mapping[str, Any]) -> None:
    """Write that file; with nothing switched on there is none."""
    if record:
        write_private(home / MEMORY_COPIES, json.dumps(record, indent=2) + "\n")
    else:
        (home / MEMORY_COPIES).unlink(missing_ok=True)


def memory_text(library: Library) -> str:
    """Return what clients read: the memories of the user, and how to treat them."""
    return memories_for_clients(library, Caller(Actor.AGENT, None, (USER_SCOPE,)))
