"""Autogenesis' strategies on the code set: vanilla, solutions, prompts, and both together.

    python benchmarks/seeds autogenesis [--quick]

All figures are scripted: a program takes the place of the model, and what it answers is executed in
the sandbox of trials, where this machine has one. Prompts are evolved by runs of the product's loop
with a scripted proposer, which offers three rules, of which one is idle. The four arms are then
measured on all sixty problems. The prompts of every call are read for what is hidden. The first arm
also runs without the sandbox, which says what the sandbox costs.
"""

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evolve_runs import program, running, scripted

from evolvable_evolve.evolution.candidates.programs import Program
from evolvable_evolve.evolution.executors.base import UNCONFINED, CommandHost, Executor
from evolvable_evolve.evolution.executors.command_executor import CommandExecutor
from evolvable_evolve.evolution.ledger.run_directory import Ledger, LedgerRecord
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.report.solution_table import (
    SolutionRow,
    collect_rounds,
    table_lines,
)
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.solutions import public_files, with_rounds
from evolvable_evolve.evolution.task import Rollout, Split, Task, TaskSet
from evolvable_evolve.evolution.tasks.reader import read_taskset, scorer_files
from evolvable_evolve.evolution.trials.measurement import TrialRunner, TrialSettings
from evolvable_evolve.sandbox.probe import sandbox_of
from seeds.code_set.build import taskset_files, write_stand_in

ROUNDS = 3
PROPOSALS = (
    ("Answer with one fenced block.", ["rule: format"]),
    ("Be brief.", ["rule: brevity"]),
    ("Think of empty inputs.", ["rule: edges"]),
)


@dataclass
class ReadingExecutor:
    """Another executor, of which every prompt is kept."""

    inner: Executor
    prompts: list[str] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    @property
    def label(self) -> str:
        return self.inner.label

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        self.prompts.append(task.prompt)
        return await self.inner.run(task, program, repeat, workspace)


@dataclass(frozen=True)
class Measured:
    """The rows of one strategy, and the prompts in which something hidden stood.

    seconds: by the clock.
    """

    rows: list[SolutionRow]
    prompts: int
    leaks: list[str]
    seconds: float


def measure(
    folder: Path,
    arm: Program,
    rounds: int,
    names: frozenset[str] | None = None,
    host: CommandHost = UNCONFINED,
) -> Measured:
    """Measure one program on the code set, or on these problems of it, and read every prompt.

    host: what the stand-in, the public check and the scorer run with.
    """
    taskset = read_taskset("code-set", taskset_files(names, all_val=True))
    reading = ReadingExecutor(
        CommandExecutor(write_stand_in(folder / "stand_in"), host=host, free=True)
    )
    executor = with_rounds(reading, rounds, public_files(taskset, taskset.files), host)
    began = time.monotonic()
    records, _ = run_trials(folder, taskset, executor, arm, host)
    took = time.monotonic() - began
    rows = collect_rounds(records, {arm.digest: "-"}, {task.id: "val" for task in taskset.tasks})
    return Measured(rows, len(reading.prompts), leaks(reading, taskset), took)


def run_trials(
    folder: Path, taskset: TaskSet, executor: Executor, arm: Program, host: CommandHost = UNCONFINED
) -> tuple[Sequence[LedgerRecord], Mapping[str, float | None]]:
    """Run every task once under one program; return the records, and the scores by task."""
    with Ledger.open(folder / "ledger.jsonl", durable=False) as ledger:
        settings = TrialSettings(folder=folder / "workspaces", host=host)
        runner = TrialRunner(executor, ledger, files=scorer_files(taskset), settings=settings)
        trials = asyncio.run(runner.measure([(arm, task, 0) for task in taskset.tasks], "val/1"))
        return list(ledger.records), {one.task: one.score for one in trials}


def leaks(reading: ReadingExecutor, taskset: TaskSet) -> list[str]:
    """Return the tasks of which something hidden stands in a prompt, and texts of the scorer that
    do.
    """
    everything = "\n".join(reading.prompts)
    marks = {task.id: (task.expected or "").split()[0] for task in taskset.tasks}
    found = [id_ for id_, mark in marks.items() if mark in everything]
    return found + [
        text for text in ("A case fails.", "cases_passed", "hidden/") if text in everything
    ]


def evolve(folder: Path, rounds: int, host: CommandHost = UNCONFINED) -> tuple[Program, str]:
    """Evolve the rules of the stand-in by a run of the product's loop; return the best program and
    the verdict.
    """
    taskset = read_taskset("code-set", taskset_files())
    files = scorer_files(taskset)
    command = CommandExecutor(write_stand_in(folder / "stand_in"), host=host, free=True)
    settings = RunSettings(
        "code-set",
        executor={"kind": "command"},
        mode="joint" if rounds else "skill_only",
        optimizer="reflection",
        iterations=len(PROPOSALS),
        test_repeats=1,
        batch=(4, 2),
        cost_rise=100.0,
    )
    splits = {split: taskset.of(split) for split in Split}
    executor = with_rounds(command, rounds, public_files(taskset, files), host)
    base = program("Write Python.")
    with running(
        folder / "run",
        base,
        scripted(PROPOSALS),
        splits,
        settings,
        executor,
        files=files,
        host=host,
    ) as run:
        asyncio.run(run_phases(run))
        said = run.state.verdict
        return run.program(run.state.best), f"{said['verdict']}: {said['why']}"


def sandbox_host() -> tuple[CommandHost, str]:
    """Return what commands of the code set run with on this machine, and its name for a table."""
    found = sandbox_of()
    if found.sandbox is None:
        return UNCONFINED, f"no sandbox ({found.why}), limits of processor time and memory alone"
    return CommandHost(sandbox=found.sandbox), f"in {found.name}"


def main(*, quick: bool = False) -> bool:
    """Print the table of the four strategies, and return whether it holds what it must."""
    names = (
        frozenset(["digit-sum", "palindrome", "roman-number", "merge-ranges", "median"])
        if quick
        else None
    )
    base, began = program("Write Python."), time.monotonic()
    host, where = sandbox_host()
    with tempfile.TemporaryDirectory(prefix="evolvable-seeds-") as made:
        place = Path(made)
        both = {
            "prompt": (program("rule: format"), "quick"),
            "joint": (program("rule: format"), "quick"),
        }
        if not quick:
            both = {
                name: evolve(place / f"evolve-{name}", rounds, host)
                for name, rounds in (("prompt", 0), ("joint", ROUNDS))
            }
        arms = {"vanilla": (base, 0), "solution": (base, ROUNDS), "prompt": (both["prompt"][0], 0)}
        arms["joint"] = (both["joint"][0], ROUNDS)
        found = {}
        for name, (arm, rounds) in arms.items():
            (place / name).mkdir()
            found[name] = measure(place / name, arm, rounds, names, host)
        (place / "bare").mkdir()
        bare = measure(place / "bare", base, 0, names)
    for name, one in found.items():
        print(
            f"\n{name} [scripted, {where}], {one.prompts} prompts read, hidden in: "
            f"{', '.join(one.leaks) or 'none'}"
        )
        print("\n".join(table_lines(one.rows)))
    for name, (_, verdict) in both.items():
        print(f"\nrun of {name} [scripted]: {verdict}")
    same = bare.rows[-1].outcomes == found["vanilla"].rows[-1].outcomes
    inside, outside = (1000 * one.seconds / one.rows[-1].n for one in (found["vanilla"], bare))
    print(
        f"\nvanilla, {where} and without it: {inside:.0f} and {outside:.0f} ms a problem by "
        "the clock;",
        end=" ",
    )
    print("the same outcomes" if same else "OTHER OUTCOMES")
    print(f"{time.monotonic() - began:.0f} s by the clock")
    hidden = any(one.leaks for one in found.values())
    return same and not hidden and _holds({name: one.rows for name, one in found.items()})


def _holds(rows: Mapping[str, Sequence[SolutionRow]]) -> bool:
    final = {name: its[-1] for name, its in rows.items()}
    means = [row.mean for row in rows["solution"][:-1]]
    return (
        all(sum(row.outcomes.values()) == row.n for its in rows.values() for row in its)
        and means == sorted(means)
        and means[-1] > means[0]
        and final["joint"].mean
        >= max(final["solution"].mean, final["prompt"].mean)
        >= final["vanilla"].mean
    )
