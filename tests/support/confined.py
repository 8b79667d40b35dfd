"""Executors in the sandbox of this machine, and what an attacker in a trial tries."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from trial_parts import ByFirstWord, task

from evolvable_evolve.evolution.candidates.programs import Program, make_part
from evolvable_evolve.evolution.executors.base import CommandHost
from evolvable_evolve.evolution.executors.command_executor import CommandExecutor
from evolvable_evolve.evolution.task import Task
from evolvable_evolve.evolution.trials.trial import TrialAttempt, TrialJob, run_job
from evolvable_evolve.sandbox.mechanisms import Sandbox
from evolvable_evolve.sandbox.probe import ProbeReport, sandbox_of
from evolvable_store.resource import Kind

FOUND: ProbeReport = sandbox_of()
needs_sandbox = pytest.mark.skipif(
    FOUND.sandbox is None, reason=f"no sandbox on this machine: {FOUND.why}"
)

RUNNER = """\
import json, os, subprocess, sys
from pathlib import Path
given = json.load(sys.stdin)
given["program"]["resources"] or (print('{"output": "I have no skill."}'), sys.exit())
script = Path(given["program"]["resources"][0]["folder"], "scripts", "do.py")
command = [sys.executable, "-I", "-S", str(script), given["prompt"]]
ran = subprocess.run(command, capture_output=True, text=True)
print(json.dumps({"output": ran.stdout.strip() + ran.stderr.strip()[-600:]}))
"""
"""A runner that leaves the task to a script of the skill, as a person's might."""


def apart() -> Sandbox:
    """Return the sandbox; only in tests that need one."""
    assert FOUND.sandbox is not None
    return FOUND.sandbox


def skill(script: str) -> Program:
    """Return a program of one skill with this script."""
    text = "---\nname: shipping\ndescription: Postage.\n---\n\nRun scripts/do.py.\n"
    return Program(
        (
            make_part(
                Kind.SKILL,
                "shipping",
                {"SKILL.md": text.encode(), "scripts/do.py": script.encode()},
            ),
        )
    )


class Confined:
    """A task set's folder with a runner in it, and trials of scripts under that."""

    def __init__(self, root: Path, runner: str = RUNNER, **options: Any) -> None:
        self.root, self.own = root, root / "library" / "evolve" / "run" / "executor"
        self.own.mkdir(parents=True)
        (self.own / "run.py").write_text(runner)
        (self.own / "answers.json").write_text('{"a": "the secret answer"}')
        (root / "library" / "library.db").write_text("the secret answer")
        self.executor = CommandExecutor(
            ["{python}", "-I", "-S", "run.py"],
            folder=self.own,
            host=CommandHost(
                {
                    **os.environ,
                    "EVOLVABLE_HOME": str(root / "library"),
                    "SECRET_TOKEN": "the secret answer",
                },
                apart(),
                (root / "library",),
            ),
            **options,
        )

    def __call__(
        self, script: str, one: Task | None = None, files: Mapping[str, bytes] | None = None
    ) -> TrialAttempt:
        """Return what comes of a task whose skill brings this script."""
        place = self.root / "library" / "evolve" / "run" / "workspaces"
        job = TrialJob(
            self.executor,
            ByFirstWord(),
            one or task("a"),
            skill(script),
            0,
            files or {},
            place=place,
        )
        done = asyncio.run(run_job(job))
        assert list(place.iterdir()) == []
        return done


def said(attempt: TrialAttempt) -> Any:
    """Return the JSON that a script printed."""
    assert attempt.outcome is None, attempt.detail
    return json.loads(attempt.rollout.output)


PYTHON = sys.executable
