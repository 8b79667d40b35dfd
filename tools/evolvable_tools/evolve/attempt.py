"""One attempt at one task: workspace, executor, score. What a backend runs, wherever it runs it."""

import asyncio
import copyreg
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from evolvable_store.errors import EvolvableError
from evolvable_tools.evolve.brains.prices import together
from evolvable_tools.evolve.executor import Executor
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.rollout import Outcome, Rollout, Score, Usage
from evolvable_tools.evolve.task import Task
from evolvable_tools.evolve.workspaces import workspace
from evolvable_tools.sandbox import Sandbox


def _read_only(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(mapping)


# Tasks and scores hold read-only mappings, which Python does not pickle by itself.
copyreg.pickle(MappingProxyType, lambda mapping: (_read_only, (dict(mapping),)))

SCORINGS = 3
"""How often an answer is scored at most, when the scorer has trouble; the task is not run again for that."""


class Scoring(Protocol):
    """Judges what came of a task. Can be pickled."""

    async def __call__(self, task: Task, rollout: Rollout, workspace: Path) -> Score:
        """Returns the score; raises when it has trouble, which never counts as 0."""
        ...

    def digest(self, task: Task) -> str:
        """Returns a hash of all that decides the score of an answer to this task."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """All that an attempt needs, as values: it can be pickled and run in another process or on another machine.

    files: what the workspace begins with. place: where workspaces are made, by default the system's temporary folder.
    patience: seconds beyond the task's own time after which the executor is given up. sandbox: what the task's setup
    runs in, hidden: folders that it does not see there.
    """

    executor: Executor
    scoring: Scoring
    task: Task
    program: Program
    repeat: int
    files: Mapping[str, bytes] = field(default_factory=dict)
    place: Path | None = None
    environment: Mapping[str, str] | None = None
    patience: float = 60.0
    sandbox: Sandbox | None = None
    hidden: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of a job: a score, or an outcome without one, with `detail` saying why.

    lost: nobody knows what it spent. final: trying again would not help, or was tried already. judging: what all
    scorings of it took.
    """

    outcome: Outcome | None
    rollout: Rollout
    score: Score | None = None
    detail: str = ""
    lost: bool = False
    final: bool = False
    judging: Usage = Usage()


def trouble(detail: str, *, lost: bool = False) -> Attempt:
    """Returns an attempt that failed for reasons which say nothing about the program."""
    return Attempt(Outcome.INFRA_ERROR, Rollout(""), detail=detail, lost=lost)


async def perform(job: Job) -> Attempt:
    """Runs a job to its end in this process. Whatever goes wrong becomes an outcome; only cancelling is raised."""
    try:
        made = workspace(
            job.task,
            job.files,
            place=job.place,
            environment=job.environment,
            sandbox=job.sandbox,
            hidden=job.hidden,
        )
        async with made as work:
            rollout = await _rolled_out(job, work)
            if isinstance(rollout, str):
                return trouble(rollout, lost=True)
            if rollout.outcome is not None:
                return Attempt(rollout.outcome, rollout, detail=rollout.detail)
            return await _scored(job, rollout, work)
    except Exception as error:  # setting up failed
        return trouble(_said(error))


async def _rolled_out(job: Job, work: Path) -> Rollout | str:
    """Returns the rollout, or why there is none."""
    given_up = job.task.timeout_s + job.patience
    try:
        async with asyncio.timeout(given_up) as limit:
            return await job.executor.run(job.task, job.program, job.repeat, work)
    except Exception as error:  # an executor should not raise; when it does, that is no verdict on the program
        if isinstance(error, TimeoutError) and limit.expired():
            return f"the executor did not come back within {given_up:.0f} s"
        return f"the executor failed: {_said(error)}"


async def _scored(job: Job, rollout: Rollout, work: Path) -> Attempt:
    why, spent = "", Usage()
    for _ in range(SCORINGS):
        try:
            score = await job.scoring(job.task, rollout, work)
        except Exception as error:
            why = f"the scorer had trouble: {_said(error)}"
            spent = together(spent, getattr(error, "usage", Usage()))
            continue
        spent = together(spent, score.usage)
        if 0 <= score.value <= 1:
            return Attempt(None, rollout, score, judging=spent)
        why = f"the scorer said {score.value}, which is not within 0 and 1"
    return Attempt(Outcome.INFRA_ERROR, rollout, detail=why, final=True, judging=spent)


def _said(error: Exception) -> str:
    if isinstance(error, EvolvableError):
        return error.text
    return f"{type(error).__name__}: {error}"
