"""What fails at its first trials stops there and says why."""

import asyncio
from pathlib import Path

import pytest
from evolve_runs import program, running, scripted, tasks

from evolvable_evolve.evolution.acceptance import ExecutorFailing
from evolvable_evolve.evolution.candidates.programs import Program
from evolvable_evolve.evolution.executors.simulated import SimulatedExecutor
from evolvable_evolve.evolution.ledger.run_state import RunPhase
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.task import Rollout, Split, Task, TrialOutcome

SPLITS = {split: tasks(split, 10) for split in Split}


class Broken(SimulatedExecutor):
    """An executor that is not there until somebody puts it there."""

    there = False

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        if not self.there:
            return Rollout("", outcome=TrialOutcome.INFRA_ERROR, detail="no such file: run.py")
        return await super().run(task, program, repeat, workspace)


def test_an_executor_that_fails_stops_the_run_at_its_first_trials_and_once_mended_it_goes_on(
    tmp_path,
):
    executor = Broken([one for split in Split for one in SPLITS[split]])
    with running(
        tmp_path / "run",
        program(),
        scripted([]),
        SPLITS,
        RunSettings("tasks", iterations=0),
        executor,
    ) as run:
        for pilots in (1, 2):
            with pytest.raises(ExecutorFailing, match=r"no such file: run\.py\."):
                asyncio.run(run_phases(run))
            assert run.state.phase is RunPhase.NEW and run.state.pilots == pilots
        assert run.state.spent.keys() == {"pilot"}
        executor.there = True
        asyncio.run(run_phases(run))

    assert run.state.phase is RunPhase.DECIDED and run.state.calibration["scores"]
