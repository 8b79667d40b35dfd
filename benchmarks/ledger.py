"""Replays cached trials: ten thousand that a ledger knows, asked for again by a new process.

Beside it the same bytes are read as plain JSON lines, which is the least that any reader has to do.
Trials are made up and hold an output of 400 and a trace of 800 characters. No other process is
needed.
"""

import asyncio
import hashlib
import json
import random
import tempfile
from pathlib import Path

from support import Row, alternately, arguments, at_most, conclude, median, ms, none_of, ratio

from evolvable_evolve.evolution.candidates.programs import Program
from evolvable_evolve.evolution.executors.base import Executor
from evolvable_evolve.evolution.ledger.run_directory import Ledger
from evolvable_evolve.evolution.run_config import SpendLimit
from evolvable_evolve.evolution.task import (
    ModelUsage,
    Rollout,
    Score,
    ScorerSpec,
    Split,
    Task,
    Trial,
    TrialOutcome,
)
from evolvable_evolve.evolution.trials.budget import RunBudget
from evolvable_evolve.evolution.trials.measurement import TrialRequest, TrialRunner
from evolvable_evolve.evolution.trials.trial import trial_fields

TRIALS, MOST = 10_000, 2.0
"""What is replayed, and the seconds that it may take."""


class Nobody:
    """An executor that may not be asked, and a scorer that may not either."""

    fingerprint = "nobody"
    label = "simulated"

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        raise AssertionError("everything is known")

    async def __call__(self, task: Task, rollout: Rollout, workspace: Path) -> Score:
        raise AssertionError("everything is known")

    def known_answer(self, task: Task) -> None:
        return None

    def digest(self, task: Task) -> str:
        return hashlib.sha256(task.scorer.type.encode()).hexdigest()


def requests_of(count: int) -> list[TrialRequest]:
    tasks = [
        Task(
            f"t{number}",
            "a prompt",
            ScorerSpec("exact"),
            Split.VAL,
            hashlib.sha256(b"%d" % number).hexdigest(),
        )
        for number in range(count // 4)
    ]
    return [(Program(), task, repeat) for repeat in range(4) for task in tasks]


def write(path: Path, requests: list[TrialRequest]) -> None:
    """Write the ledger as trials leave it: a record before each trial and one after it."""
    rng = random.Random(6)
    usage = ModelUsage(1200, 340, 3, 0.0123)
    executor: Executor = Nobody()
    with Ledger.open(path, durable=False) as ledger:
        trials = TrialRunner(executor, ledger, scoring=Nobody())
        for program, task, repeat in requests:
            key = trials.key(program.digest, task, repeat)
            output, trace = ("".join(rng.choices("abcdefghij \n", k=size)) for size in (400, 800))
            trial = Trial(
                key,
                task.id,
                program.digest,
                repeat,
                TrialOutcome.PASS,
                1.0,
                usage,
                1.5,
                output,
                trace,
                "well done",
            )
            about = {
                "key": key,
                "batch": "val",
                "task": task.id,
                "program": program.digest,
                "repeat": repeat,
            }
            reserved = {name: getattr(usage, name) for name in ModelUsage.__slots__}
            fields = trial_fields(
                trial, None, batch="val", attempt=0, in_flight=4, elapsed=1.0, lost=False
            )
            ledger.append_all(
                [("started", {**about, "attempt": 0, "reserved": reserved}), ("trial", fields)]
            )


def main() -> None:
    options = arguments(__doc__, rounds=9)
    rounds = options.rounds or (3 if options.quick else 9)
    requests = requests_of(TRIALS)
    wrong = {"not cached": 0, "newly spent": 0}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        write(path, requests)
        size = path.stat().st_size

        def replay(_: int) -> None:
            with Ledger.open(path) as ledger:
                budget = RunBudget(SpendLimit(cost=10**6))
                trials = TrialRunner(Nobody(), ledger, scoring=Nobody(), budget=budget)
                before = budget.bill
                found = asyncio.run(trials.measure(requests))
                wrong["not cached"] += sum(not trial.cached for trial in found)
                wrong["newly spent"] += budget.bill != before

        def plain(_: int) -> None:
            with path.open("rb") as lines:
                for line in lines:
                    json.loads(line)

        replay(0)  # imports, and the file into the system's cache
        seconds = alternately({"replay": replay, "plain": plain}, rounds)
    rows = [
        Row("ledger", f"{size / 1e6:.1f} MB, {2 * TRIALS:,} records"),
        at_most("opening it and measuring all again, p50", median(seconds["replay"]), MOST, ms),
        at_most("slowest", max(seconds["replay"]), MOST, ms),
        Row("the same bytes as plain JSON lines, p50", ms(median(seconds["plain"]))),
        Row("ratio", ratio(median(seconds["replay"]) / median(seconds["plain"]))),
        none_of("trials not taken from the ledger", wrong["not cached"]),
        none_of("rounds in which anything was newly spent", wrong["newly spent"]),
    ]
    conclude(f"{TRIALS:,} cached trials replayed (made up)", rows)


if __name__ == "__main__":
    main()
