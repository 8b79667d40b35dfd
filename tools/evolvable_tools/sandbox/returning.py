"""Reading what a command left in its workspace: data of a process that is not trusted."""

import os
import shutil
import stat
from pathlib import Path
from typing import IO, Any

from evolvable_store.errors import EvolvableError

MOST_ENTRIES = 100_000
_LINE = 64 * 1024
_PATHS = {"f": 1, "d": 1, "l": 2, "e": 0}
_CHUNK = 1 << 20


class SandboxTrouble(EvolvableError):
    """A sandbox could not be set up, or what came out of it cannot be used."""


def bring_back(back: Path, workspace: Path, size: int) -> None:
    """Replace what the workspace holds by what the command left there. Raises SandboxTrouble.

    Nothing is written outside of `workspace`, links are made and never followed, and at most `size` bytes are written.
    """
    for entry in os.scandir(workspace):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    try:
        with back.open("rb") as file:
            _unpack(file, workspace, size)
    except (OSError, ValueError, KeyError) as error:
        raise SandboxTrouble(f"The workspace that the command left cannot be read: {error}.") from None


def _unpack(file: IO[bytes], workspace: Path, size: int) -> None:
    folders = {""}
    modes: list[tuple[str, int]] = []
    for _ in range(MOST_ENTRIES + 1):
        kind, mode, count, *paths = _fields(file.readline(_LINE))
        if kind == "e":
            break
        path = _checked(paths[0], folders)
        target = os.path.join(workspace, path)
        if kind == "l":
            os.symlink(paths[1], target)
        elif kind == "d":
            os.mkdir(target, stat.S_IRWXU)
            folders.add(path)
            modes.append((target, mode))
        else:
            size -= count
            if count < 0 or size < 0:
                raise ValueError("it is larger than the sandbox allows")
            _file(file, target, count, mode)
    else:
        raise ValueError("it holds too many files")
    for target, mode in modes:  # a folder that may not be written to was filled first
        os.chmod(target, mode & 0o777)


def _fields(line: bytes) -> "tuple[Any, ...]":
    """Return the fields of one line: a letter, two numbers, and as many paths as the letter asks for."""
    kind, mode, count, *paths = line.decode("ascii").rstrip("\n").split(" ")
    if len(paths) != _PATHS[kind]:
        raise ValueError("a line has too few or too many fields")
    return kind, int(mode), int(count), *(os.fsdecode(bytes.fromhex(one)) for one in paths)


def _checked(path: str, folders: set[str]) -> str:
    above, slash, name = path.rpartition("/")
    if (slash and not above) or name in ("", ".", "..") or "\0" in name or above not in folders:
        raise ValueError(f"it has the path {ascii(path[:80])}")
    return path


def _file(file: IO[bytes], target: str, left: int, mode: int) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as other:
        while left:
            part = file.read(min(_CHUNK, left))
            if not part:
                raise ValueError("it ends in the middle of a file")
            other.write(part)
            left -= len(part)
        os.fchmod(other.fileno(), mode & 0o777)
