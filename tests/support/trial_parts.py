"""Executors and tasks whose results are known beforehand; they can be sent to other processes."""

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from evolvable_evolve.evolution.candidates.programs import Program, ProgramPart
from evolvable_evolve.evolution.task import (
    ModelUsage,
    Rollout,
    Score,
    ScorerSpec,
    Split,
    Task,
    TrialOutcome,
)
from evolvable_store.resource import Kind

USAGE = ModelUsage(100, 20, 2, 0.0123)
BASE = Program()


def program(name: str) -> Program:
    """Return a program of one skill, which says its own name."""
    return Program((ProgramPart(Kind.SKILL, name, {"SKILL.md": name.encode()}, f"tree of {name}"),))


def task(name: str, prompt: str = "", **fields: object) -> Task:
    """Return a task. What its prompt asks of `Scripted` is done; without one it passes."""
    values = {
        "scorer": ScorerSpec("exact"),
        "split": Split.VAL,
        "digest": f"digest of {name}",
    } | fields
    return Task(name, prompt or "pass", **values)  # type: ignore[arg-type]


def tasks(count: int, prompt: str = "") -> list[Task]:
    return [task(f"t{number}", prompt) for number in range(count)]


@dataclass
class Scripted:
    """Does what a task's prompt says: pass, fail, timeout, refuse, raise, busy (the provider),
    trouble, hang, die.

    `once X` does X the first time and passes afterwards; `notes` is where it remembers that, and
    who died.
    """

    notes: Path | None = None
    usage: ModelUsage = USAGE
    fingerprint: str = "scripted 1"
    label: str = "scripted"
    retry_after: float = 0.0

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        verb = self._verb(task)
        found = sorted(path.relative_to(workspace).as_posix() for path in workspace.rglob("*"))
        output = f"{verb} {task.id} {program.digest[:8]} {repeat} {' '.join(found)}".strip()
        if verb == "hang":
            self._note(f"hanging {task.id}", str(os.getpid()))
            await asyncio.Event().wait()
        if verb == "compute":  # awaits nothing
            self._note(f"hanging {task.id}", str(os.getpid()))
            while True:
                time.monotonic()
        if verb == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if verb == "raise":
            raise RuntimeError("the executor is broken")
        outcome = {
            "timeout": TrialOutcome.AGENT_TIMEOUT,
            "refuse": TrialOutcome.REFUSED,
            "busy": TrialOutcome.INFRA_ERROR,
            "trouble": TrialOutcome.INFRA_ERROR,
        }.get(verb)
        retry_after = self.retry_after if verb == "busy" else None
        return Rollout(
            output,
            retry_after=retry_after,
            trace="how",
            usage=self.usage,
            wall=0.5,
            outcome=outcome,
            detail=verb,
        )

    def _verb(self, task: Task) -> str:
        first, _, then = task.prompt.partition(" ")
        if first != "once":
            return first
        assert self.notes is not None
        mark = self.notes / f"once {task.id}"
        if mark.exists():
            return "pass"
        mark.touch()
        return then

    def _note(self, name: str, text: str) -> None:
        assert self.notes is not None
        (self.notes / name).write_text(text)


@dataclass
class ByFirstWord:
    """Gives 1 for an answer that begins with `pass`, else 0.

    It has trouble with tasks that are named so.
    """

    times: dict[str, int] = field(default_factory=dict)

    async def __call__(self, task: Task, rollout: Rollout, workspace: Path) -> Score:
        self.times[task.id] = self.times.get(task.id, 0) + 1
        if task.id.startswith("unscorable") or (
            task.id.startswith("hard") and self.times[task.id] < 3
        ):
            raise RuntimeError("the scorer is broken")
        if task.id.startswith("odd"):
            return Score(float("nan"))
        return Score(float(rollout.output.startswith("pass")), "what may be told", "what may not")

    def known_answer(self, task: Task) -> None:
        return None

    def digest(self, task: Task) -> str:
        return "by first word"
