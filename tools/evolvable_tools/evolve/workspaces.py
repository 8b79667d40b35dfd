"""The folder that one trial works in: fresh, set up, and gone afterwards."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from evolvable_store.errors import EvolvableError
from evolvable_store.paths import check_path
from evolvable_tools.evolve.commands import run_confined
from evolvable_tools.evolve.task import Task
from evolvable_tools.sandbox import Confinement, Sandbox, SandboxOutputError, environment_inside

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
    sandbox: Sandbox | None = None,
    hidden: Sequence[Path] = (),
) -> AsyncGenerator[Path]:
    """Yields a fresh folder holding `files` (paths within it to bytes) in which the task's setup has run.

    The folder around it belongs to the trial as well; both are removed at the end, whatever was done in them. place:
    where it is made, by default the system's temporary folder. environment: of the setup, by default ours. sandbox:
    what the setup runs in, without the network and with a fresh home; None: it runs with our rights. hidden: folders
    that it does not see there. Raises WorkspaceTrouble, InvalidPath.
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
            await _set_up(task, _confined(command, work, environment, hidden), environment, sandbox)
        yield work
    finally:
        remove(trial)


def _confined(
    command: tuple[str, ...], work: Path, environment: Mapping[str, str] | None, hidden: Sequence[Path]
) -> Confinement:
    named = [Path(part) for part in command if os.path.isabs(part) and Path(part).is_file()]
    return Confinement(
        command,
        work,
        environment_inside(os.environ if environment is None else environment),
        _SETUP_S,
        readable=tuple(path for path in named if not any(path.resolve().is_relative_to(one) for one in hidden)),
        hidden=tuple(hidden),
    )


async def _set_up(
    task: Task, what: Confinement, environment: Mapping[str, str] | None, sandbox: Sandbox | None
) -> None:
    word = what.command[0]
    try:
        ran = await run_confined(what, sandbox, outside=environment)
    except OSError as error:
        raise WorkspaceTrouble(f"The setup of task {task.id} could not start {word}: {error.strerror}.") from None
    except SandboxOutputError as error:
        raise WorkspaceTrouble(f"The setup of task {task.id} could not run {word}: {error.text}") from None
    if ran.code != 0:
        said = ran.err.decode(errors="replace").strip()[-500:]
        ended = "took too long" if ran.code is None else f"ended with exit code {ran.code}"
        raise WorkspaceTrouble(f"The setup of task {task.id} {ended}: {word}: {said or 'it said nothing'}")


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
