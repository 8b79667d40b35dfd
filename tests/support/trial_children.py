"""A run that is killed, over and over, as a script: FOLDER every | FOLDER random KILLS SEED |
FOLDER hang.

Every process is forked from this one, which has imported everything and does nothing else, so that
it costs little. `every`: for each record of the run, one process is killed when it has written that
record and no more, one when it has written half of the next, and another goes on. `random`:
processes are killed at any moment, one after another. Both print one JSON object. `hang`: runs a
command in a worker, and it never ends.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trial_parts import BASE, ByFirstWord, Scripted, program, task

from evolvable_evolve.evolution.executors.command_executor import CommandExecutor
from evolvable_evolve.evolution.ledger.run_directory import Ledger, read_ledger
from evolvable_evolve.evolution.run_config import SpendLimit
from evolvable_evolve.evolution.trials.backends import ProcessBackend
from evolvable_evolve.evolution.trials.budget import RunBudget
from evolvable_evolve.evolution.trials.measurement import TrialRunner, TrialSettings

SHARES = 4
"""Runs at once: they wait for the disk most of the time."""

PROMPTS = ("pass", "fail", "timeout", "trouble")
CHANGED = program("changed")


class Killed(Ledger):
    """A ledger that kills its process when so many bytes of a line too many would be written."""

    records_left = 10**9
    torn = False

    def _write(self, data: bytes) -> None:
        lines = data.splitlines(keepends=True)
        if len(lines) < self.records_left + self.torn:
            self.records_left -= len(lines)
            super()._write(data)
            return
        kept = lines[: self.records_left]
        half = lines[self.records_left] if self.torn and self.records_left < len(lines) else b""
        os.write(self._descriptor, b"".join(kept) + half[: len(half) // 2])
        os.kill(os.getpid(), signal.SIGKILL)


async def run(folder: Path, size: int, records: int = 10**9, torn: bool = False) -> dict[str, Any]:
    """Runs, or goes on with, a run of two batches; returns what it came to."""
    with Killed.open(folder / "ledger.jsonl") as ledger:
        ledger.records_left, ledger.torn = records, torn
        settings = TrialSettings(folder=folder / "workspaces", backoff=(0.0, 0.0))
        budget = RunBudget(SpendLimit(cost=100.0))
        trials = TrialRunner(
            Scripted(), ledger, scoring=ByFirstWord(), budget=budget, settings=settings
        )
        todo = [task(f"t{number}", PROMPTS[number % 4]) for number in range(size)]
        first = await trials.measure([(BASE, one, 0) for one in todo], "base")
        pair = [(one, each, 0) for each in todo for one in (BASE, CHANGED)]
        second = await trials.measure(pair, "candidate")
    bill = budget.bill
    return {
        "trials": [
            [t.task, t.program, t.repeat, t.outcome, t.score, t.cached, t.output, t.usage.cost]
            for t in first + second
        ],
        "bill": [bill.nanos, bill.unpriced, bill.input_tokens, bill.output_tokens, bill.calls],
        "interrupted": budget.interrupted.calls,
        "left": [path.name for path in (folder / "workspaces").iterdir()],
    }


def begun(work: Callable[[], object]) -> int:
    """Begin `work` in a process of its own and return its id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def code_of(pid: int, kill_after: float | None = None) -> int:
    """Wait for a process and return its exit code, negative for a signal."""
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def to_the_end(folder: Path, size: int) -> dict[str, Any]:
    """Go on in a new process until the run is over, and return what it came to."""
    result = folder / "result.json"

    def work() -> None:
        result.write_text(json.dumps(asyncio.run(run(folder, size))))

    assert code_of(begun(work)) == 0
    return json.loads(result.read_text())  # type: ignore[no-any-return]


def every(place: Path, size: int = 4) -> dict[str, Any]:
    undisturbed = place / "undisturbed"
    undisturbed.mkdir()
    expected = to_the_end(undisturbed, size)
    records = len(read_ledger(undisturbed / "ledger.jsonl"))
    expected.pop("interrupted")
    kills = [(number, torn) for number in range(records) for torn in (False, True)]

    def some(share: int) -> None:
        found = [
            killed_at(place / f"{number} {torn}", size, number, torn)
            for number, torn in kills[share::SHARES]
        ]
        (place / f"found {share}").write_text(json.dumps(found))

    for pid in [begun(lambda share=share: some(share)) for share in range(SHARES)]:  # type: ignore[misc]
        assert code_of(pid) == 0
    found = [
        one for share in range(SHARES) for one in json.loads((place / f"found {share}").read_text())
    ]
    interrupted = [one.pop("interrupted") for one in found]
    differing = [one for one in found if one != expected]
    return {
        "records": records,
        "kills": len(found),
        "differing": differing,
        "interrupted": max(interrupted),
        "expected": expected,
    }


def killed_at(folder: Path, size: int, records: int, torn: bool) -> dict[str, Any]:
    """Run until so many records are written, be killed, and go on; return what it came to."""
    folder.mkdir()
    assert code_of(begun(lambda: asyncio.run(run(folder, size, records, torn)))) == -signal.SIGKILL
    assert len(read_ledger(folder / "ledger.jsonl")) == records
    return to_the_end(folder, size)


def at_random(place: Path, kills: int, seed: int, size: int = 60) -> dict[str, Any]:
    rng = random.Random(seed)
    undisturbed = place / "undisturbed"
    undisturbed.mkdir()
    started = time.monotonic()
    expected = to_the_end(undisturbed, size)
    whole = time.monotonic() - started
    expected.pop("interrupted")
    differing, killed, runs = [], 0, 0
    while killed < kills:
        folder = place / f"{runs}"
        folder.mkdir()
        runs += 1
        for _ in range(rng.randint(1, 12)):
            pid = begun(lambda f=folder: asyncio.run(run(f, size)))  # type: ignore[misc]
            code = code_of(pid, rng.uniform(0, whole / 3))
            assert code in (0, -signal.SIGKILL), code
            killed += code != 0
        found = to_the_end(folder, size)
        found.pop("interrupted")
        if found != expected:
            differing.append([runs, found])
    return {"kills": killed, "runs": runs, "differing": differing}


async def hang(folder: Path) -> None:
    script = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    executor = CommandExecutor(["{python}", "-c", script, str(folder / "command")])
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        settings = TrialSettings(folder=folder / "workspaces")
        trials = TrialRunner(
            executor, ledger, scoring=ByFirstWord(), backend=ProcessBackend(), settings=settings
        )
        await trials.measure([(BASE, task("h"), 0)])


if __name__ == "__main__":
    where, what = Path(sys.argv[1]), sys.argv[2]
    if what == "hang":
        asyncio.run(hang(where))
    else:
        print(
            json.dumps(
                every(where)
                if what == "every"
                else at_random(where, int(sys.argv[3]), int(sys.argv[4]))
            )
        )
