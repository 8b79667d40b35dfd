"""Our loop itself, as `evolvable evolve` drives it, over trials and a ledger that are kept in memory.

What is the product's: calibration, batches, prompts of proposer and builder, edits, the static gate, screening, paired
validation, the frontier, the choice of a finalist, and the verdict. What is not: the tasks run at once instead of
through processes, and whoever thinks is a script that proposes what the place says.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolution.scenarios import BASE, Found, Place, Rules
from evolvable_store.resource import Kind
from evolvable_tools.evolve.brains.brain import Question, Role
from evolvable_tools.evolve.brains.scripted import Scripted
from evolvable_tools.evolve.budget import Budget, Limits
from evolvable_tools.evolve.executors.simulated import rules_of
from evolvable_tools.evolve.gates.verdict import Ruling
from evolvable_tools.evolve.interleaving import Request
from evolvable_tools.evolve.loop import drive
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.programs import part_of, program_of, size_of
from evolvable_tools.evolve.rollout import Outcome, Trial, Usage
from evolvable_tools.evolve.run import Journal, Run
from evolvable_tools.evolve.run_folder import RunFolder
from evolvable_tools.evolve.run_settings import RunSettings
from evolvable_tools.evolve.task import Split, Task
from evolvable_tools.redaction.redactor import Redactor

_NAME = "rules"
_LINE = "- rule: base\n"
_TEXT = f"---\nname: {_NAME}\ndescription: Rules for simulated tasks.\n---\n# Rules\n\n{_LINE}"


@dataclass(frozen=True, slots=True)
class Design:
    """What a user may set of a run. `repeats` of the test: 0 is one for a hundred tasks, else three."""

    parent: str = "round_robin"
    repeats: int = 0


DEFAULT = Design()


def ours(place: Place, proposals: int, look: int = 1, design: Design = DEFAULT) -> Found:
    """Drives a run to its verdict and returns what is promoted, or the base."""
    base = program_of([part_of(Kind.SKILL, _NAME, {"SKILL.md": _TEXT.encode()})])
    settings = RunSettings(
        "simulated",
        executor={"kind": "simulated"},
        iterations=proposals,
        parent=design.parent,
        test_repeats=design.repeats,
    )
    run = _run(place, base, settings, look)
    asyncio.run(drive(run))
    said = run.state.verdict
    if said["verdict"] != Ruling.PROMOTE:
        return Found(BASE)
    return Found(rules_of(run.program(said["candidate"])), said["delta"])


@dataclass
class _Memory:
    """A ledger in memory."""

    records: list[dict[str, Any]] = field(default_factory=list)

    def append(self, type: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        self.records.append({"type": type, "at": 0.0, **fields})
        return self.records[-1]


class _Folder(RunFolder):
    """A run's folder in memory."""

    def __init__(self) -> None:
        super().__init__(Path("in-memory"))
        self._texts: dict[str, bytes] = {}
        self._programs: dict[str, Program] = {}

    def keep(self, data: bytes | str) -> str:
        raw = data.encode() if isinstance(data, str) else data
        name = hashlib.sha256(raw).hexdigest()
        self._texts[name] = raw
        return name

    def kept(self, name: str) -> bytes:
        return self._texts[name]

    def keep_program(self, program: Program) -> None:
        self._programs[program.digest] = program

    def program(self, digest: str) -> Program:
        return self._programs[digest]


class _Trials:
    """Trials that are drawn at once; each counts once, as the cache of a real run sees to."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._rules: dict[str, Rules] = {}

    async def measure(self, requests: Sequence[Request], *, batch: str) -> list[Trial]:
        """Returns a trial for each request, in order."""
        return [self._trial(*request) for request in requests]

    def _trial(self, program: Program, task: Task, repeat: int) -> Trial:
        digest = program.digest
        if digest not in self._rules:
            self._rules[digest] = rules_of(program)
        score = self._place.drawn(digest, self._rules[digest], task, repeat)
        outcome, key, read = Outcome.PASS if score else Outcome.FAIL, f"{digest} {task.id} {repeat}", f"skill:{_NAME}"
        return Trial(key, task.id, digest, repeat, outcome, score, Usage(), 0.0, output="answer", read=(read,))


class _Test:
    """The sealed test."""

    def __init__(self, place: Place, look: int) -> None:
        self._place, self.look = place, look

    @property
    def size(self) -> int:
        return len(self._place.of(Split.TEST))

    def opened(self, run: str, finalist: str) -> tuple[Sequence[Task], int, _Trials]:
        return self._place.of(Split.TEST), self.look, _Trials(self._place)


def _run(place: Place, base: Program, settings: RunSettings, look: int) -> Run:
    folder, journal = _Folder(), Journal(_Memory())
    folder.keep_program(base)
    train, val, test = (place.of(split) for split in Split)
    journal.note(
        "run",
        run=folder.id,
        label="simulated",
        fingerprint="simulated",
        settings=settings.to_json(),
        tasks=[[task.id, task.split, task.category] for task in (*train, *val)],
        test_tasks=len(test),
        exploratory=False,
        base=base.digest,
        size=size_of(base),
        merged=[],
    )
    brain = _brain(place, journal)
    return Run(
        folder, journal, settings, train, val, _Test(place, look), _Trials(place), brain, Budget(Limits()), Redactor()
    )


def _brain(place: Place, journal: Journal) -> Scripted:
    """Returns who proposes in every iteration what the place has for it, and builds just that."""

    def propose(question: Question) -> Mapping[str, Any]:
        rule = place.law.effects[journal.state.iteration - 1].rule
        failed = [one["task"] for one in question.data["evidence"] if one["result"] == "failed"]
        intent = {"op": "edit", "ref": f"skill:{_NAME}", "tasks": failed, "modification": rule}
        said = {"diagnoses": [], "approaches": [], "intents": [intent]}
        return {**said, "summary": rule, "justification": "It failed."}

    def build(question: Question) -> Mapping[str, Any]:
        rule = question.data["intents"][0]["modification"]
        change = {"path": "SKILL.md", "old": _LINE, "new": f"{_LINE}- rule: {rule}\n"}
        return {"edits": [{"op": "edit", "ref": f"skill:{_NAME}", "changes": [change]}]}

    return Scripted({Role.PROPOSER: propose, Role.BUILDER: build})
