"""What every executor is: something that runs a task under a program and says what came of it."""

from pathlib import Path
from typing import Protocol

from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.rollout import Rollout
from evolvable_tools.evolve.task import Task


class Executor(Protocol):
    """Runs tasks. Its `label` says what its figures are: `simulated`, `scripted` or `real model NAME`.

    `fingerprint` is a text that names everything about it that decides a result: kind, version, flags, model, tools.
    """

    fingerprint: str
    label: str

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        """Returns what came of `task` under `program`.

        `workspace` is a fresh folder with the task's files, set up. The folder around it belongs to the trial too, for
        what is no part of the work, such as a private configuration; nothing else is written. Both are removed
        afterwards. `repeat` counts from 0 and only tells repeated runs apart. Infrastructure trouble comes back as an
        outcome and is not raised.
        """
        ...
