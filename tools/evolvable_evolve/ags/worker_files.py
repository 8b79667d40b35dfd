"""The results of a worker: the files below `outputs`, and the result of its item's check."""

import base64
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution import Rollout, Score, Task, TaskSetScorer
from evolvable_store import check_path
from evolvable_store.errors import EvolvableError, InvalidPath

# They travel as base64 in one record of the trial, and stay in the run's folder.
MAX_FILES, MAX_FILE, MAX_BYTES = 200, 4 * 2**20, 16 * 2**20
"""Files of one item, bytes of one of them, and bytes of all."""

OUTPUTS = "outputs"
"""The folder of a workspace with the files that the worker leaves."""

# O_NOFOLLOW: a link could lead to a file of the person. O_NONBLOCK: opening a named pipe would wait
# for its writer.
_DESCRIPTOR_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True, slots=True)
class FileCollector:
    """A scorer of trials that collects the files below `outputs`, and runs the item's check.

    check: runs the command that the task names as its scorer; None where the item has none.
    """

    check: TaskSetScorer | None = None

    async def __call__(self, task: Task, rollout: Rollout, workspace: Path) -> Score:
        """Return a score without meaning, whose evidence has the files and the check's result."""
        files, left_out = collect_files(workspace / OUTPUTS)
        packed = {path: base64.b64encode(data).decode("ascii") for path, data in files.items()}
        check = await self._run_check(task, rollout, workspace) if self.check is not None else {}
        return Score(1.0, evidence=json.dumps({"files": packed, "left_out": left_out, **check}))

    async def _run_check(self, task: Task, rollout: Rollout, workspace: Path) -> dict[str, Any]:
        """Return the result of the check, or the trouble that it had."""
        assert self.check is not None
        try:
            score = await self.check(task, rollout, workspace)
        except EvolvableError as error:
            return {"check": {"trouble": error.text}}
        return {"check": {"passed": score.value >= 1.0, "text": score.feedback}}

    def digest(self, task: Task) -> str:
        """Return the same for every task."""
        return "ags"

    def known_answer(self, task: Task) -> None:
        """Return None: nothing is known."""
        return


def collect_files(folder: Path) -> tuple[dict[str, bytes], list[str]]:
    """Return the regular files below a folder by path, and a line for each file that is left out.

    Links are not followed and special files are not opened. At most MAX_FILES, in the order of
    their paths.
    """
    files, left_out, size = dict[str, bytes](), list[str](), 0
    for path, place in _iter_paths(folder, left_out):
        if len(files) == MAX_FILES:
            left_out.append(f"more than {MAX_FILES} files")
            break
        # The rest of MAX_BYTES bounds the next file too, so the sum never exceeds it.
        data = _read_regular(place, min(MAX_FILE, MAX_BYTES - size))
        if isinstance(data, str):
            left_out.append(f"{ascii(path[:200])}: {data}")
            continue
        files[path] = data
        size += len(data)
    return files, left_out


def _iter_paths(folder: Path, left_out: list[str]) -> Iterator[tuple[str, Path]]:
    if folder.is_symlink():
        left_out.append(f"{OUTPUTS} is a link")
        return
    for top, folders, names in os.walk(folder, followlinks=False):
        folders.sort()
        # A link to a folder is yielded like a file, and refused when it is opened.
        links = [name for name in folders if os.path.islink(os.path.join(top, name))]
        for name in sorted([*names, *links]):
            place = Path(top, name)
            path = place.relative_to(folder).as_posix()
            try:
                yield check_path(path), place
            except (InvalidPath, UnicodeError):
                left_out.append(f"{ascii(path[:200])}: its name cannot be used")


def _read_regular(place: Path, most: int) -> bytes | str:
    """Return the bytes of a regular file, or why they are not taken."""
    try:
        descriptor = os.open(place, _DESCRIPTOR_FLAGS)
    except OSError:
        return "a link, or it cannot be read"
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            return "no file of its own"
        if status.st_size > most:
            return f"it has {status.st_size:,} bytes"
        return file.read(most + 1)
