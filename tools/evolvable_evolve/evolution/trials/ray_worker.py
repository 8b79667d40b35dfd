"""Trials on a node of a Ray cluster: checks the hashes of what it is given, runs one job, and
returns JSON.

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
_WAKE_INTERVAL = 0.2  # seconds between two looks at whether Ray cancelled the task


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
    """Makes on a node what a job needs there.

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

    Everything but the job itself comes from the object store of the node, by the hashes that the
    job's sender names.
    """
    # Before anything is unpickled.
    for data, digest in zip((recipe, program, files, job), hashes, strict=True):
        if hashlib.sha256(data).hexdigest() != digest:
            return encode_attempt(
                trial.infrastructure_error("the node was given other bytes than the run sent")
            )
    job_fields, scored = pickle.loads(job)
    done = encode_attempt(
        _run(job_fields, scored, pickle.loads(recipe), pickle.loads(program), pickle.loads(files))
    )
    if len(done) > MAX_ATTEMPT:
        return encode_attempt(
            trial.infrastructure_error(f"the attempt has {len(done):,} bytes", lost=True)
        )
    return done


def pack_job(job: trial.TrialJob) -> bytes:
    """Return what is sent for this job alone: the task, and neither executor, scorer, environment
    nor paths.
    """
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


def _run(
    job: trial.TrialJob,
    scored: bool,
    recipe: NodeRecipe,
    program: Program,
    files: Mapping[str, bytes],
) -> trial.TrialAttempt:
    folder = _worker_folder()
    try:
        executor, scoring, host = recipe.prepare(job.task, folder / "executor")
    except Exception as error:  # a node that is not set up shows nothing about the program
        return trial.infrastructure_error(f"node {os.uname().nodename} cannot run it: {error}")
    job = replace(
        job,
        executor=executor,
        scoring=scoring if scored else None,
        program=program,
        files=files,
        host=host,
    )
    return asyncio.run(_interruptible(replace(job, place=folder / "workspaces")))


async def _interruptible(job: trial.TrialJob) -> trial.TrialAttempt:
    """Run a job and wake up now and then: Ray interrupts a task in a way that only running code
    notices.
    """

    async def wake() -> None:
        while True:
            await asyncio.sleep(_WAKE_INTERVAL)

    waking = asyncio.create_task(wake())
    try:
        return await trial.run_job(job)
    finally:
        waking.cancel()


@cache
def _worker_folder() -> Path:
    """Return the folder of this process, after those of processes of this account that are gone
    were removed.
    """
    remove_stale_folders(FOLDER_PREFIX)
    return Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-"))


def remove_stale_folders(prefix: str, place: Path | None = None) -> None:
    """Remove folders of this account whose name holds the id of a process that does not run any
    more.
    """
    for left in (place or Path(tempfile.gettempdir())).glob(f"{prefix}*"):
        # The temporary folder is shared: only folders of this account, and no links.
        number = left.name.removeprefix(prefix).partition("-")[0]
        try:
            ours = (
                number.isdecimal() and not left.is_symlink() and left.stat().st_uid == os.getuid()
            )
            if ours and not Path("/proc", number).exists() and not _is_alive(int(number)):
                shutil.rmtree(left, ignore_errors=True)
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
