"""Runs for tests: made-up tasks with known truth, a scripted brain, and a run over them in one
process.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from baselines.scripted_model import ScriptedModel

from evolvable_evolve.evolution.candidates.programs import Program, make_part, make_program
from evolvable_evolve.evolution.executors.base import UNCONFINED, CommandHost, Executor
from evolvable_evolve.evolution.executors.simulated import SimulatedExecutor
from evolvable_evolve.evolution.ledger.run_directory import Ledger, RunDirectory
from evolvable_evolve.evolution.ledger.run_reducer import Journal
from evolvable_evolve.evolution.proposers.proposer_model import (
    ModelQuestion,
    ModelRole,
    ProposerModel,
)
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.scorers.external_scorers import JudgeScorer
from evolvable_evolve.evolution.scorers.registry import TaskSetScorer
from evolvable_evolve.evolution.task import ScorerSpec, Split, Task
from evolvable_evolve.evolution.trials.budget import RunBudget
from evolvable_evolve.evolution.trials.measurement import TrialRunner, TrialSettings
from evolvable_store.resource import Kind
from evolvable_tools.redaction.redactor import Redactor

CATEGORIES = ("dates", "sums", "names")


def task(split: Split, number: int, *tags: str) -> Task:
    """Return a made-up task that passes as its tags say."""
    identity = f"{split}-{number:03}"
    digest = hashlib.sha256(identity.encode()).hexdigest()
    category = CATEGORIES[number % len(CATEGORIES)]
    return Task(
        identity, f"Do {identity}", ScorerSpec("exact"), split, digest, "right", category, tags=tags
    )


def tasks(split: Split, count: int, needs: str = "iso", share: int = 2) -> list[Task]:
    """Return so many tasks, of which every `share`-th needs a rule."""
    return [task(split, n, *([f"needs:{needs}"] if n % share == 0 else [])) for n in range(count)]


def skill(name: str, *lines: str) -> str:
    """Return a SKILL.md."""
    return f"---\nname: {name}\ndescription: How {name} is done.\n---\n# {name}\n" + "".join(
        f"{one}\n" for one in lines
    )


def program(*lines: str) -> Program:
    """Return a program of one skill with these lines."""
    return make_program(
        [make_part(Kind.SKILL, "forms", {"SKILL.md": skill("forms", *lines).encode()})]
    )


def plan(question: ModelQuestion, modification: str, **fields: Any) -> dict[str, Any]:
    """Return a proposer's answer: one edit of skill:forms, on account of all that failed."""
    failed = [one["task"] for one in question.data["evidence"] if one["result"] == "failed"]
    intent = {
        "op": "edit",
        "ref": "skill:forms",
        "tasks": failed,
        "modification": modification,
        **fields,
    }
    return {
        "diagnoses": [],
        "approaches": [],
        "intents": [intent],
        "summary": modification,
        "justification": "It failed.",
    }


def writes(question: ModelQuestion, text: str) -> dict[str, Any]:
    """Return a builder's answer: skill:forms as `text`."""
    [intent] = question.data["intents"]
    edit = {"op": intent["op"], "ref": intent["ref"], "files": [{"path": "SKILL.md", "text": text}]}
    return {"edits": [edit]}


def scripted(proposals: Sequence[tuple[str, Sequence[str]]]) -> ScriptedModel:
    """Return a brain that proposes these in turn, again from the first: what to say, and the lines
    that it adds.
    """

    def turn(question: ModelQuestion) -> tuple[str, Sequence[str]]:
        done = len(question.data["history"]) if question.role is ModelRole.PROPOSER else 0
        return proposals[done % len(proposals)]

    def build(question: ModelQuestion) -> Mapping[str, Any]:
        said = question.data["intents"][0]["modification"]
        lines = next(lines for words, lines in proposals if words == said)
        [before] = [one["files"][0]["text"] for one in question.data["resources"]]
        return writes(question, before + "".join(f"{line}\n" for line in lines))

    return ScriptedModel(
        {
            ModelRole.PROPOSER: lambda question: plan(question, turn(question)[0]),
            ModelRole.BUILDER: build,
        }
    )


class OpenTest:
    """The sealed test of a run in one process."""

    def __init__(
        self, tests: Sequence[Task], measures: Callable[[], TrialRunner], look: int = 1
    ) -> None:
        self._tests, self._measures, self.look = tests, measures, look
        self.opened_for: list[str] = []

    @property
    def size(self) -> int:
        return len(self._tests)

    def describe_claim(self) -> str:
        return ""

    def open(self, run: str, finalist: str) -> tuple[Sequence[Task], int, TrialRunner]:
        self.opened_for.append(finalist)
        return self._tests, self.look, self._measures()


@contextmanager
def running(
    folder: Path,
    base: Program,
    brain: ProposerModel,
    splits: Mapping[Split, Sequence[Task]],
    settings: RunSettings,
    executor: Executor | None = None,
    stop: Callable[[], bool] = lambda: False,
    intact: Callable[[], str] = str,
    files: Mapping[str, bytes] | None = None,
    host: CommandHost = UNCONFINED,
    judge: JudgeScorer | None = None,
) -> Iterator[RunContext]:
    """Yield a run over these tasks, begun anew or where its ledger in `folder` ends.

    files: for command scorers; host: what they run with; judge: for tasks that one scores.
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = RunDirectory(folder)
    place.store_program(base)
    every = [one for split in Split for one in splits[split]]
    executor = executor or SimulatedExecutor(every, seed=settings.seed)
    budget = RunBudget(settings.limit)
    with (
        Ledger.open(place.ledger, durable=False) as ledger,
        Ledger.open(folder / "test.jsonl", durable=False) as sealed,
    ):
        journal = Journal(ledger)
        if not ledger.records:
            begin(journal, place.id, base, every, settings, executor.label)
        run_with = TrialSettings(passes=settings.fail_below, backoff=(0.0,), host=host)
        more: dict[str, Any] = {"files": files, "budget": budget, "settings": run_with}
        more |= {"scoring": TaskSetScorer(files or {}, host, judge)}
        trials = TrialRunner(executor, ledger, intact=intact, **more)
        test = OpenTest(splits[Split.TEST], lambda: TrialRunner(executor, sealed, **more))
        yield RunContext(
            place,
            journal,
            settings,
            splits[Split.TRAIN],
            splits[Split.VAL],
            test,
            trials,
            brain,
            budget,
            Redactor(),
            stop=stop,
            judge=judge,
        )


def begin(
    journal: Journal,
    run: str,
    base: Program,
    every: Sequence[Task],
    settings: RunSettings,
    label: str,
) -> None:
    """Write the first record of a run."""
    open_ones = [[one.id, one.split, one.category] for one in every if one.split is not Split.TEST]
    journal.note(
        "run",
        run=run,
        label=label,
        settings=settings.to_json(),
        tasks=open_ones,
        base=base.digest,
        size=base.size,
    )
