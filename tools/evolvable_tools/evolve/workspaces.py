"""The folder that one trial works in: fresh, set up, and gone afterwards."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from evolvable_store.errors import EvolvableError
from evolvable_store.paths import check_path
from evolvable_tools.evolve.commands import run_command
from evolvable_tools.evolve.task import Task

WORK = "work"
"""The workspace's name within the folder of its trial."""

_PREFIX = "evolvable-trial-"
_SETUP_S = 600.0  # seconds for one command that sets a workspace up


class WorkspaceTrouble(EvolvableError):
    """A workspace could not be made or set up; that says nothing about the program."""


@asynccontextmanager
async def workspace(
    task: Task,
    files: Mapping[str, bytes],
    *,
    place: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncGenerator[Path]:
    """Yields a fresh folder holding `files` (paths within it to bytes) in which the task's setup has run.

    The folder around it belongs to the trial as well; both are removed at the end, whatever was done in them. place:
    where it is made, by default the system's temporary folder. Raises WorkspaceTrouble, InvalidPath.
    """
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
    trial = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place)).resolve()
    try:
        work = trial / WORK
        work.mkdir()
        for path, data in files.items():
            target = work / check_path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        for command in task.setup:
            await _set_up(task, command, work, environment)
        yield work
    finally:
        remove(trial)


async def _set_up(task: Task, command: tuple[str, ...], work: Path, environment: Mapping[str, str] | None) -> None:
    try:
        ran = await run_command(command, timeout=_SETUP_S, folder=work, environment=environment)
    except OSError as error:
        raise WorkspaceTrouble(f"The setup of task {task.id} could not start {command[0]}: {error.strerror}.") from None
    if ran.code != 0:
        said = ran.err.decode(errors="replace").strip()[-500:]
        ended = "took too long" if ran.code is None else f"ended with exit code {ran.code}"
        raise WorkspaceTrouble(f"The setup of task {task.id} {ended}: {command[0]}: {said or 'it said nothing'}")


def remove_stale(place: Path) -> None:
    """Removes the folders of trials that a killed process left in `place`. Nobody may be working there."""
    if place.is_dir():
        for left in place.glob(f"{_PREFIX}*"):
            remove(left)


def remove(folder: Path) -> None:
    """Removes a folder and all in it, also what was made read-only; links are not followed.

    What the system does not let go of stays.
    """
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError:
        _open_up(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _open_up(folder: Path) -> None:
    """Lets us read and write all that is in a folder."""
    with contextlib.suppress(OSError):
        folder.chmod(stat.S_IRWXU)
    for top, folders, files in os.walk(folder):  # each folder is opened up before it is looked into
        for name in (*folders, *files):
            path = os.path.join(top, name)
            with contextlib.suppress(OSError):
                if not os.path.islink(path):
                    os.chmod(path, stat.S_IRWXU)
