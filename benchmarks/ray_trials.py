"""How much sooner a batch of trials ends on more slots: `python benchmarks/ray_trials.py [--trials
200 --seconds 2]`.

Every trial is a command that sleeps, so that slots and not processors are what is measured: the
figures are simulated. The cluster is one node of this machine with so many slots; `--processes`
measures the processes of this machine too.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from evolvable_evolve.evolution.candidates.programs import Program
from evolvable_evolve.evolution.executors.command_executor import CommandExecutor
from evolvable_evolve.evolution.ledger.run_directory import Ledger
from evolvable_evolve.evolution.run_config import RayCluster
from evolvable_evolve.evolution.scorers.registry import TaskSetScorer
from evolvable_evolve.evolution.task import ScorerSpec, Split, Task
from evolvable_evolve.evolution.trials.backends import ProcessBackend
from evolvable_evolve.evolution.trials.budget import ConcurrencyLimit
from evolvable_evolve.evolution.trials.measurement import TrialRunner, TrialSettings
from evolvable_evolve.evolution.trials.ray_backend import RayBackend
from evolvable_evolve.evolution.trials.trial import TrialBackend

ANSWER = 'import time; time.sleep({seconds}); print(\'{{"output": "done"}}\')'


def sleeping_tasks(count: int) -> list[Task]:
    """Return so many tasks that every answer `done` solves."""
    spec = ScorerSpec("exact")
    return [
        Task(f"t{n}", f"Wait {n}.", spec, Split.VAL, f"digest {n}", expected="done")
        for n in range(count)
    ]


async def measured(
    backend: TrialBackend, slots: int, trials: int, seconds: float, folder: Path
) -> dict[str, object]:
    """Return what a batch took on so many slots, from its first trial to its last."""
    executor = CommandExecutor(
        [sys.executable, "-I", "-S", "-c", ANSWER.format(seconds=seconds)], free=True
    )
    settings = TrialSettings(folder=folder / "workspaces")
    try:
        if isinstance(backend, RayBackend):
            await backend.open()
        with Ledger.open(folder / "ledger.jsonl") as ledger:
            runner = TrialRunner(
                executor,
                ledger,
                scoring=TaskSetScorer(),
                backend=backend,
                settings=settings,
                throttle=ConcurrencyLimit(slots, most=slots),
            )
            # The first trial of each slot starts a worker; a run of hours does that once.
            await runner.measure([(Program(), one, 1) for one in sleeping_tasks(slots)])
            began = time.monotonic()
            found = await runner.measure([(Program(), one, 0) for one in sleeping_tasks(trials)])
            took = time.monotonic() - began
    finally:
        await backend.close()
    assert all(one.score == 1 for one in found)
    least = trials * seconds / slots
    return {
        "slots": slots,
        "trials": trials,
        "seconds": round(took, 1),
        "least": least,
        "ratio": round(took / least, 3),
    }


def main() -> None:
    """Measure each number of slots and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--slots", type=int, nargs="+", default=[2, 8])
    parser.add_argument(
        "--processes", action="store_true", help="the processes of this machine too"
    )
    given = parser.parse_args()
    for slots in given.slots:
        for name in ("ray", "processes")[: 1 + given.processes]:
            with tempfile.TemporaryDirectory() as folder:

                async def run(
                    name: str = name, slots: int = slots, folder: str = folder
                ) -> dict[str, object]:
                    backend = (
                        RayBackend(RayCluster(slots=slots)) if name == "ray" else ProcessBackend()
                    )
                    return await measured(backend, slots, given.trials, given.seconds, Path(folder))

                print(json.dumps({"backend": name, **asyncio.run(run())}), flush=True)


if __name__ == "__main__":
    main()
