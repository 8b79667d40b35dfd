"""A trial on a node of a Ray cluster: check the hashes of the input, run one job, return JSON.

This module imports no Ray. A node trusts the driver of a run, as every task of Ray does; the driver
trusts no node.
"""

import asyncio
import hashlib
import os
import pickle
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Protocol

from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.executors import UNCONFINED, CommandHost, Executor
from evolvable_evolve.evolution.task import Rollout, Task
from evolvable_evolve.evolution.trials import trial
from evolvable_evolve.evolution.trials.attempt_json import MAX_ATTEMPT, encode_attempt

FOLDER_PREFIX: Final = "evolvable-node-"
_WAKE_INTERVAL = 0.2  # seconds after which a cancellation by Ray is noticed


class NodeMismatch(Exception):
    """The node cannot do the trial as the run demands. The text says why."""


@dataclass(frozen=True, slots=True)
class _NoExecutor:
    """Placeholder for the executor that the node makes itself."""

    fingerprint: str = ""
    label: str = ""

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        raise NodeMismatch("no executor was prepared")


_NO_EXECUTOR = _NoExecutor()


class NodeRecipe(Protocol):
    """Makes the executor, the scorer and the host of a job on a node.

    It can be pickled, and holds no key, token or environment.
    """

    def prepare(
        self, task: Task, directory: Path
    ) -> tuple[Executor, trial.TrialScorer | None, CommandHost]:
        """Return executor, scorer and host for a task.

        directory: of this worker alone. Raises NodeMismatch.
        """
        ...


@dataclass(frozen=True, slots=True)
class GivenRecipe:
    """An executor and a scorer that can be pickled and need nothing of a node."""

    executor: Executor
    scoring: trial.TrialScorer | None
    host: CommandHost

    def prepare(
        self, task: Task, directory: Path
    ) -> tuple[Executor, trial.TrialScorer | None, CommandHost]:
        """Return the executor, the scorer and the host that it holds."""
        return self.executor, self.scoring, self.host


def run_on_node(
    recipe: bytes, program: bytes, files: bytes, job: bytes, hashes: Sequence[str]
) -> bytes:
    """Run one job and return its attempt as JSON.

    Recipe, program and files come from the object store of the node. hashes: of all four, as the
    driver has them.
    """
    # Checked before anything is unpickled.
    for data, digest in zip((recipe, program, files, job), hashes, strict=True):
        if hashlib.sha256(data).hexdigest() != digest:
            why = "the node was given other bytes than the run sent"
            return encode_attempt(trial.infrastructure_error(why))
    bare_job, is_scored = pickle.loads(job)
    contents = pickle.loads(recipe), pickle.loads(program), pickle.loads(files)
    encoded = encode_attempt(_run_job(bare_job, is_scored, *contents))
    if len(encoded) > MAX_ATTEMPT:
        why = f"the attempt has {len(encoded):,} bytes"
        return encode_attempt(trial.infrastructure_error(why, lost=True))
    return encoded


def pack_job(job: trial.TrialJob) -> bytes:
    """Return the bytes that are sent for this job alone: the task, and whether it is scored."""
    bare = replace(
        job,
        executor=_NO_EXECUTOR,
        scoring=None,
        program=Program(),
        files={},
        place=None,
        host=UNCONFINED,
    )
    return pickle.dumps((bare, job.scoring is not None))


def _run_job(
    job: trial.TrialJob,
    is_scored: bool,
    recipe: NodeRecipe,
    program: Program,
    files: Mapping[str, bytes],
) -> trial.TrialAttempt:
    folder = _make_worker_folder()
    try:
        executor, scoring, host = recipe.prepare(job.task, folder / "executor")
    except Exception as error:
        # A node that is not set up shows nothing about the program.
        return trial.infrastructure_error(f"node {os.uname().nodename} cannot run it: {error}")
    job = replace(
        job,
        executor=executor,
        scoring=scoring if is_scored else None,
        program=program,
        files=files,
        host=host,
        place=folder / "workspaces",
    )
    return asyncio.run(_run_interruptible(job))


async def _run_interruptible(job: trial.TrialJob) -> trial.TrialAttempt:
    """Run a job and wake up regularly: only running code notices that Ray cancels its task."""

    async def wake() -> None:
        while True:
            await asyncio.sleep(_WAKE_INTERVAL)

    waking = asyncio.create_task(wake())
    try:
        return await trial.run_job(job)
    finally:
        waking.cancel()


@cache
def _make_worker_folder() -> Path:
    """Return the folder of this process, and remove those of dead processes of this account."""
    remove_stale_folders(FOLDER_PREFIX)
    return Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-"))


def remove_stale_folders(prefix: str, place: Path | None = None) -> None:
    """Remove folders of this account with the id of a dead process in their name."""
    for folder in (place or Path(tempfile.gettempdir())).glob(f"{prefix}*"):
        number = folder.name.removeprefix(prefix).partition("-")[0]
        if not number.isdecimal():
            continue
        try:
            # The temporary folder is shared: only folders of this account, and no links.
            is_ours = not folder.is_symlink() and folder.stat().st_uid == os.getuid()
            if is_ours and not Path("/proc", number).exists() and not _is_alive(int(number)):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # It belongs to another account, and is alive.
        return True
    return True
