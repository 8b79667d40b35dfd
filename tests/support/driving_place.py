"""A library with a small task set of letters, a command that does the tasks, and runs that are
driven here.
"""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.driver import drive_run
from evolvable_evolve.evolution.ledger.run_directory import (
    LedgerRecord,
    RunDirectory,
    find_run,
    read_ledger,
)
from evolvable_evolve.evolution.ledger.run_reducer import load_run_state
from evolvable_evolve.evolution.ledger.run_state import RunState
from evolvable_evolve.evolution.run_config import HostContext, parse_executor_spec
from evolvable_evolve.evolution.start import StartedRun, start_run
from evolvable_evolve.sandbox.probe import SandboxChoice
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.llm.language_model import NamedCommand, NamedCommands
from evolvable_tools.verbs import edit

PERSON, AGENT = Caller(Actor.HUMAN), Caller(Actor.AGENT, session="s")
LETTERS, POLITE = Ref.parse("environment:letters"), Ref.parse("skill:polite")
ABOUT = "---\nname: letters\ndescription: Letters to friends.\n---\n\nLetters.\n"
SKILL = "---\nname: polite\ndescription: How letters are begun.\n---\n\n# Polite\n\nSay hello.\n"
RUBRIC = "Is it kind?"
COMMAND = "{python} -I -S run.py"
NO_SANDBOX = SandboxChoice(path="")
"""As on a machine without any."""

RUN = """\
import json, sys
given = json.load(sys.stdin)
usage = {"input_tokens": 10, "output_tokens": 1, "calls": 1}
print(json.dumps({"output": "dear " + given["task_id"], "usage": usage}))
"""
"""What does the tasks: every letter begins kindly."""

JUDGE = """\
import json, sys
asked = sys.stdin.read()
kind = WORD in asked.split('"answer":')[1]
said = {"score": float(kind), "passed": kind, "reason": "so", "feedback": "Be kind.", "errors": []}
print(json.dumps({"type": "result", "is_error": False, "result": json.dumps(said),
                  "total_cost_usd": 0.001, "usage": {"input_tokens": 100, "output_tokens": 10}}))
"""
"""A judge at whose command line a word decides."""

GRADER = JUDGE.replace("WORD", "'dear'").replace(
    """said = {"score": float(kind), "passed": kind, "reason": "so",""",
    """names = ("professionalism", "accuracy", "completeness", "practicality", "language_quality")
grades = dict(zip(names, (5, 4, 4, 3, 4) if kind else (1,) * 5))
said = {"dimensions": grades, "reason": "so",""",
)
"""A judge of the same kind that grades the five dimensions."""


def letters(scorer: Mapping[str, Any] | str = "exact", **more: Any) -> list[dict[str, Any]]:
    """Five tasks of each part of a set: fewer could decide nothing."""
    return [
        {
            "id": f"{split}-{n}",
            "prompt": f"Write letter {split} {n}.",
            "split": split,
            "scorer": scorer,
        }
        | {"expected": f"dear {split}-{n}", **more}
        for split in ("train", "val", "test")
        for n in range(5)
    ]


def judged() -> dict[str, Any]:
    """A scorer that asks a judge, with what is known of answers."""
    known = {
        side: [f"{word} friend {n}" for n in range(3)]
        for side, word in (("good", "dear"), ("bad", "stupid"))
    }
    return {"type": "judge", "args": {"rubric": RUBRIC, **known}}


class DrivingPlace:
    """The library, and what is asked of it."""

    def __init__(self, root: Path, library: Library) -> None:
        self.root, self.library = root, library
        self.means = HostContext(dict(os.environ))

    def save(self, tasks: list[dict[str, Any]], caller: Caller = PERSON, **files: str) -> None:
        """Save the task set; underscores in the names of other files are dots."""
        lines = "\n".join(json.dumps(task) for task in tasks)
        given = {"tasks.jsonl": lines, "ENVIRONMENT.md": ABOUT, "run.py": RUN}
        given |= {name.replace("_", "."): text for name, text in files.items()}
        there = self.library.store.head_or_none(LETTERS) is not None
        edit.update_resource(self.library, caller, LETTERS, "tasks", files=given, create=not there)

    def name(self, **commands: list[str]) -> dict[str, str]:
        """Have the person name commands, by roles; return the environment of a process of that
        account.
        """
        account = self.root / "account"
        lines = [f"[{role}.own]\ncommand = {json.dumps(argv)}\n" for role, argv in commands.items()]
        path = account / ".config/evolvable/config.toml"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(lines), encoding="utf-8")
        found = {role: NamedCommand("own", tuple(argv)) for role, argv in commands.items()}
        roles = ("executors", "proposers", "judges", "scorers")
        named = {
            role: NamedCommands(role, {"own": found[role]} if role in found else {})
            for role in roles
        }
        self.means = replace(self.means, commands=named)
        return {**os.environ, "EVOLVABLE_TEST_ACCOUNT": str(account)}

    def judge(self, word: str = "'dear'") -> str:
        """Return the command of a judge; word: the Python expression that decides."""
        path = self.root / "judge.py"
        path.write_text(JUDGE.replace("WORD", word), encoding="utf-8")
        return shlex.join([sys.executable, "-I", "-S", str(path)])

    def begin(self, executor: str = COMMAND, caller: Caller = PERSON, **options: Any) -> StartedRun:
        """Begin a run."""
        named = self.means.commands["executors"] if self.means.commands else None
        spec = parse_executor_spec(executor, named, free=True)
        return start_run(
            self.library, caller, self.means, LETTERS, [POLITE], spec, {"iterations": 0, **options}
        )

    def drive(self) -> RunState:
        """Drive the newest run as far as it comes."""
        return asyncio.run(drive_run(self.library, PERSON, self.folder, self.means))

    @property
    def folder(self) -> RunDirectory:
        """The newest run."""
        return find_run(self.library.store.home, None)

    @property
    def state(self) -> RunState:
        """What the newest run has come to."""
        return load_run_state(self.folder)

    def begin_at(self, version: int) -> StartedRun:
        """Begin a run on a version of the task set."""
        spec = parse_executor_spec(COMMAND, free=True)
        return start_run(self.library, PERSON, self.means, LETTERS.at(version), [POLITE], spec, {})

    def records_of_all(self) -> list[LedgerRecord]:
        """All records of the newest run."""
        return read_ledger(self.folder.ledger)

    def records(self, kind: str) -> list[LedgerRecord]:
        """The records of one type of the newest run."""
        return [record for record in read_ledger(self.folder.ledger) if record["type"] == kind]


@contextmanager
def driving(root: Path) -> Iterator[DrivingPlace]:
    """Yield the place, with the skill in its library."""
    with Library.open(root / "home", create=True) as library:
        edit.update_resource(
            library, PERSON, POLITE, "first", files={"SKILL.md": SKILL}, create=True
        )
        yield DrivingPlace(root, library)
