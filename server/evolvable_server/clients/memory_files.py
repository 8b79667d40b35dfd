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
# Seconds to wait for the lock: longer than writing all files takes, and an end where a command
# hangs.
_LOCK_SECONDS = 10


class BrokenBlock(ValueError):
    """The marks do not make one block. line: counted from 1."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.line = line


@dataclass(frozen=True, slots=True)
class BlockParts:
    """The parts of a file: before the block, the block with its line ends, and after it.

    block: None in a file without one.
    """

    before: bytes
    block: bytes | None
    after: bytes


def split_at_block(data: bytes) -> BlockParts:
    """Return the parts of a file.

    Raise BrokenBlock when it has half a block or two, or is UTF-16.
    """
    if data.startswith(_WIDE):
        raise BrokenBlock("it is UTF-16, and not UTF-8", 1)
    # The places and the line numbers of the marks.
    begins, ends = list[tuple[int, int]](), list[tuple[int, int]]()
    at = 0
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        text = line.removeprefix(_BOM) if number == 1 else line
        if text.startswith(BEGIN):
            begins.append((at + len(line) - len(text), number))
        elif text.strip() == END:
            ends.append((at + len(line), number))
        at += len(line)
    if not begins and not ends:
        return BlockParts(data, None, b"")
    if len(begins) != 1 or len(ends) != 1 or ends[0][0] <= begins[0][0]:
        odd = (begins[1:] or ends[1:] or begins or ends)[0]
        raise BrokenBlock("the marks of Evolvable's block do not belong together", odd[1])
    start, end = begins[0][0], ends[0][0]
    return BlockParts(data[:start], data[start:end], data[end:])


def with_block(data: bytes, text: str) -> bytes:
    """Return the file with a block that has `text`. Raise BrokenBlock."""
    parts = split_at_block(data)
    block = format_block(text, b"\r\n" if b"\r\n" in parts.before + parts.after else b"\n")
    if parts.block is not None:
        return parts.before + block + parts.after
    # A byte order mark counts only as the very first bytes.
    mark = _BOM if data.startswith(_BOM) else b""
    return mark + block + data.removeprefix(_BOM)


def without_block(data: bytes) -> bytes:
    """Return the file without the block. Raise BrokenBlock."""
    parts = split_at_block(data)
    return parts.before + parts.after


def format_block(text: str, end: bytes) -> bytes:
    """Return the block that has `text`, with this line end."""
    body = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    # A memory must not be able to end its block.
    body = body.replace("<!-- evolvable memory", "<!- evolvable memory")
    lines = body.encode("utf-8", "replace").split(b"\n")
    first = BEGIN + b"; written by Evolvable, what is changed in here is lost -->"
    return end.join([first, *lines, END, b""])


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
    """One client's copy of a memory.

    state: off, current, behind, or broken with the reason in `why`. written: whether this call
    changed the file. backup: the copy of the file, None where none was made. warning: why the
    client does not read the file, '' when it does. project: the folder of the project whose memory
    the file has, '' for a file of the account. git: how git treats that file.
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
    claude = machine.claude or machine.user / ".claude"
    return {
        "claude-code": claude / "rules" / "evolvable-memory.md",
        "codex": machine.codex / "AGENTS.md",
        "copilot": machine.copilot / "copilot-instructions.md",
        "opencode": machine.settings / "opencode" / "AGENTS.md",
        "qwen": machine.user / ".qwen" / "QWEN.md",
        "droid": machine.user / ".factory" / "AGENTS.md",
    }


def installed_clients(machine: Machine) -> list[str]:
    """Return the clients whose folders of settings exist."""
    folders = {
        "claude-code": machine.claude or machine.user / ".claude",
        "codex": machine.codex,
        "copilot": machine.copilot,
        "opencode": machine.settings / "opencode",
        "qwen": machine.user / ".qwen",
        "droid": machine.user / ".factory",
    }
    return [client for client, folder in folders.items() if folder.is_dir()]


def read_enabled_copies(home: Path) -> dict[str, tuple[Path, bool]]:
    """Return the files with memories, by client, and whether each was created for the block."""
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
    # It guards the files with memories together with the record of them. Without it, one of two
    # commands loses the file that the other records, and `off` does not find it. An update that
    # began before `off` writes the block again, and an older text replaces a newer one.
    folder = home / "locks"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return exclusive(folder / "memories.lock", _LOCK_SECONDS, "the memories of the clients")


def enable_copies(
    home: Path, machine: Machine, clients: Sequence[str], text: str
) -> list[MemoryCopy]:
    """Write `text` where these clients read it, and have it kept up to date from now on.

    A copy of an existing file is kept beside it. Raise ConfigurationBroken,
    ConfigurationNotWritten, Conflict, LibraryBusy. The files that were written before stay.
    """
    with lock_copies(home):
        return _enable(home, machine, clients, text)


def _enable(home: Path, machine: Machine, clients: Sequence[str], text: str) -> list[MemoryCopy]:
    done = []
    for client in clients:
        path = memory_file_paths(machine)[client]
        enabled = read_enabled_copies(home)
        recorded_path, was_created = enabled.get(client, (None, False))
        # A file that existed before the block is not deleted with it.
        if recorded_path != path:
            was_created = not path.exists()
        # Recorded before the block is written, so that `off` finds it after a crash in between.
        _write_enabled(home, {**enabled, client: (path, was_created)})
        try:
            written, backup = write_block(path, text, backup=True)
        except EvolvableError:
            # No block was written, so `off` has nothing to find.
            _write_enabled(home, enabled)
            raise
        done.append(_make_copy(client, path, "current", written=written, backup=backup))
    return done


def disable_copies(home: Path, clients: Iterable[str]) -> list[MemoryCopy]:
    """Take the memories out of the files of these clients again. Raise as `enable_copies`."""
    done = []
    # Where nothing is switched on, no lock file is made.
    for client in clients if read_enabled_copies(home) else ():
        with lock_copies(home):
            # Read again under the lock: another command may have switched it off meanwhile.
            enabled = read_enabled_copies(home)
            if client not in enabled:
                continue
            path, was_created = enabled.pop(client)
            is_removed, backup = remove_block(path, was_created)
            _write_enabled(home, enabled)
        done.append(_make_copy(client, path, "off", written=is_removed, backup=backup))
    return done


def refresh_copies(home: Path, text: str) -> list[MemoryCopy]:
    """Update every enabled copy to `text`; return those that changed, and those that could not.

    The caller holds the lock of `lock_copies`, and took it before it read the text.
    """
    done = []
    for client, (path, _) in read_enabled_copies(home).items():
        try:
            written, _ = write_block(path, text, backup=False)
        except EvolvableError as error:
            done.append(_make_copy(client, path, "broken", error.text))
        else:
            if written:
                done.append(_make_copy(client, path, "current", written=True))
    return done


def copy_statuses(home: Path, machine: Machine, text: str) -> list[MemoryCopy]:
    """Return the state of each client's copy beside `text`, and write nothing."""
    enabled, statuses = read_enabled_copies(home), []
    for client, path in memory_file_paths(machine).items():
        if client not in enabled:
            statuses.append(_make_copy(client, path, "off"))
            continue
        recorded_path, why = enabled[client][0], ""
        try:
            data = config_files.read_raw_configuration(recorded_path).data or b""
            state = "current" if with_block(data, text) == data else "behind"
        except (EvolvableError, BrokenBlock) as error:
            state = "broken"
            why = error.text if isinstance(error, EvolvableError) else str(error)
        statuses.append(_make_copy(client, recorded_path, state, why))
    return statuses


def strip_block(text: str) -> str:
    """Return the text of a client's file without our block; as it is where the block is broken."""
    try:
        return without_block(text.encode("utf-8", "replace")).decode("utf-8", "replace")
    except BrokenBlock:
        return text


def write_block(
    path: Path, text: str, *, backup: bool, private: bool = True
) -> tuple[bool, Path | None]:
    """Write `text` into the block of a file; return whether the file changed, and its backup.

    private: a new file is for its owner alone. Raise ConfigurationBroken, ConfigurationNotWritten,
    Conflict.
    """
    for last in (False, True):
        configuration = config_files.read_raw_configuration(path)
        data = _change_block(path, lambda data: with_block(data, text), configuration.data or b"")
        if data == configuration.data:
            return False, None
        try:
            return True, config_files.write_configuration(
                configuration,
                data,
                private=private,
                stamp=time.strftime("%Y%m%dT%H%M%S"),
                backup=backup,
            )
        except Conflict:
            # Another process of ours was faster, probably with the same text: one more try.
            if last:
                raise
    raise AssertionError("not reached")


def remove_block(path: Path, was_created: bool, *, backup: bool = True) -> tuple[bool, Path | None]:
    """Take the block out of a file; return whether the file changed, and its backup.

    was_created: the file was created for the block, and is deleted with it when nothing else is in
    it. Raise as `write_block`.
    """
    configuration = config_files.read_raw_configuration(path)
    if configuration.data is None:
        return False, None
    data = _change_block(path, without_block, configuration.data)
    if data == configuration.data:
        return False, None
    if was_created and not data.strip():
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        return True, None
    stamp = time.strftime("%Y%m%dT%H%M%S")
    return True, config_files.write_configuration(
        configuration, data, private=True, stamp=stamp, backup=backup
    )


def _change_block(path: Path, change: Callable[[bytes], bytes], data: bytes) -> bytes:
    try:
        return change(data)
    except BrokenBlock as error:
        raise config_files.ConfigurationBroken(path, str(error), error.line, 1) from None


def _make_copy(
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
    override = path.with_name("AGENTS.override.md")
    if client == "codex" and override.is_file() and override.stat().st_size:
        return f"Codex reads {override} instead of AGENTS.md, so it does not see the memories."
    return ""


def _write_enabled(home: Path, enabled: Mapping[str, tuple[Path, bool]]) -> None:
    # The same record has the files of projects.
    record = {name: entry for name, entry in read_record(home).items() if name not in TITLES}
    for client, (path, was_created) in enabled.items():
        record[client] = {"path": str(path), "made": was_created}
    write_record(home, record)


def read_record(home: Path) -> dict[str, Any]:
    """Return the record of the enabled copies, from the library's folder; empty if unreadable."""
    try:
        record = json.loads(read_regular(home / MEMORY_COPIES))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def write_record(home: Path, record: Mapping[str, Any]) -> None:
    """Write the record of the enabled copies; without any, delete its file."""
    if record:
        write_private(home / MEMORY_COPIES, json.dumps(record, indent=2) + "\n")
    else:
        (home / MEMORY_COPIES).unlink(missing_ok=True)


def memory_text(library: Library) -> str:
    """Return the text for clients: the memories of the user, and how to treat them."""
    return memories_for_clients(library, Caller(Actor.AGENT, None, (USER_SCOPE,)))
