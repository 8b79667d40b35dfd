"""Our loop itself, as `evolvable evolve` drives it, over trials and a ledger that are kept in
memory.

What is the product's: calibration, batches, prompts of proposer and builder, edits, the static
gate, screening, paired validation, the frontier, the choice of a finalist, and the verdict. What is
not: the tasks run at once instead of through processes, and whoever thinks is a script that
proposes what the place says.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from baselines.memory_run import MemoryDirectory, MemoryLedger
from baselines.scripted_model import ScriptedModel

from evolution.scenarios import BASE, Found, Place, Rules
from evolvable_evolve.evolution.candidates.programs import Program, make_part, make_program
from evolvable_evolve.evolution.executors.simulated import find_rules
from evolvable_evolve.evolution.final import run_staged_test
from evolvable_evolve.evolution.ledger.run_reducer import Journal
from evolvable_evolve.evolution.ledger.run_state import RunCandidate, RunSpending
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.proposers.proposer_model import ModelQuestion, ModelRole
from evolvable_evolve.evolution.run_config import RunSettings, SpendLimit
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.scorers.external_scorers import JudgeScorer
from evolvable_evolve.evolution.statistics.verdict import Ruling
from evolvable_evolve.evolution.task import ModelUsage, Split, Task, Trial, TrialOutcome
from evolvable_evolve.evolution.trials.budget import RunBudget
from evolvable_evolve.evolution.trials.measurement import TrialRequest
from evolvable_store.resource import Kind
from evolvable_tools.redaction.redactor import Redactor

_NAME = "rules"
_LINE = "- rule: base\n"
_REDACTOR = Redactor()
"""One for all runs of a process: it remembers texts without secrets."""

_TEXT = f"---\nname: {_NAME}\ndescription: Rules for simulated tasks.\n---\n# Rules\n\n{_LINE}"


@dataclass(frozen=True, slots=True)
class Design:
    """What a user may set of a run. trials: evaluations that it plans for, 0 for as many as it
    takes by itself.

    `parent` and `frontier` are those of evoskill, `repeats` those of the test.
    """

    optimizer: str = "greedy"
    trials: int = 0
    parent: str = "round_robin"
    repeats: int = 0
    rejections: int = 3
    frontier: int = 3


DEFAULT = Design()


def ours(place: Place, proposals: int, look: int = 1, design: Design = DEFAULT) -> Found:
    """Drive a run to its verdict and return what is promoted, or the base."""
    base = make_program([make_part(Kind.SKILL, _NAME, {"SKILL.md": _TEXT.encode()})])
    settings = RunSettings(
        "simulated",
        executor={"kind": "simulated"},
        iterations=proposals,
        optimizer=design.optimizer,
        trials=design.trials,
        parent=design.parent,
        test_repeats=design.repeats,
        rejections=design.rejections,
        frontier=design.frontier,
    )
    run = _run(place, base, settings, look)
    asyncio.run(run_phases(run))
    said = run.state.verdict
    if said["verdict"] != Ruling.PROMOTE:
        return Found(BASE)
    return Found(find_rules(run.program(said["candidate"])), said["delta"])


class _Trials:
    """Trials that are drawn at once; each counts once, as the cache of a real run sees to, and
    stands in the bill.
    """

    def __init__(self, place: Place, journal: Journal) -> None:
        self._place, self._journal = place, journal
        self._seen: dict[int, tuple[Program, str, Rules]] = {}

    async def measure(self, requests: Sequence[TrialRequest], *, batch: str) -> list[Trial]:
        """Return a trial for each request, in order."""
        before = self._place.spent
        trials = [self._trial(*request) for request in requests]
        self._journal.state.spend(
            batch.partition("/")[0], RunSpending(trials=self._place.spent - before)
        )
        return trials

    def _trial(self, program: Program, task: Task, repeat: int) -> Trial:
        if id(program) not in self._seen:  # kept with the program, so that no other one gets its id
            self._seen[id(program)] = program, program.digest, find_rules(program)
        _, digest, rules = self._seen[id(program)]
        before = self._place.spent
        score, tokens = self._place.trial(digest, rules, task, repeat)
        cached = self._place.spent == before
        output, trace = self._place.texts(digest, task, repeat, score)
        outcome = TrialOutcome.INFRA_ERROR
        if score is not None:
            outcome = TrialOutcome.PASS if score == 1 else TrialOutcome.FAIL
        key, usage = f"{digest} {task.id} {repeat}", ModelUsage(tokens)
        read = (f"skill:{_NAME}",)
        return Trial(
            key,
            task.id,
            digest,
            repeat,
            outcome,
            score,
            usage,
            0.0,
            output=output,
            trace=trace,
            read=read,
            cached=cached,
        )


class _Test:
    """The sealed test."""

    def __init__(self, place: Place, look: int, journal: Journal) -> None:
        self._journal = journal
        # Without an expected answer no canary is made of a task: there is no executor that could
        # cheat.
        self._tasks = tuple(replace(task, expected=None) for task in place.of(Split.TEST))
        self._place, self.look = place, look

    def describe_claim(self) -> str:
        return ""

    @property
    def size(self) -> int:
        return len(self._tasks)

    def open(self, run: str, finalist: str) -> tuple[Sequence[Task], int, _Trials]:
        return self._tasks, self.look, _Trials(self._place, self._journal)


def _run(
    place: Place, base: Program, settings: RunSettings, look: int, judge: JudgeScorer | None = None
) -> RunContext:
    folder, journal = MemoryDirectory(), Journal(MemoryLedger())
    folder.store_program(base)
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
        size=base.size,
        merged=[],
    )
    brain = _brain(place, journal)
    return RunContext(
        folder,
        journal,
        settings,
        train,
        val,
        _Test(place, look, journal),
        _Trials(place, journal),
        brain,
        RunBudget(SpendLimit()),
        _REDACTOR,
        judge=judge,
    )


def _brain(place: Place, journal: Journal) -> ScriptedModel:
    """Return a model that proposes, or criticises and rewrites, as the place says, and builds just
    that.
    """

    def propose(question: ModelQuestion) -> Mapping[str, Any]:
        rule = place.propose(question, journal.state.iteration)
        failed = [one["task"] for one in question.data["evidence"] if one["result"] == "failed"]
        place.was_shown(rule, [one["task"] for one in question.data["evidence"]])
        intent = {"op": "edit", "ref": f"skill:{_NAME}", "tasks": failed, "modification": rule}
        said = {"diagnoses": [], "approaches": [], "intents": [intent]}
        return {**said, "summary": rule, "justification": "It failed."}

    def criticise(question: ModelQuestion) -> Mapping[str, Any]:
        critique = place.criticise(question, journal.state.iteration)
        return {"change": bool(critique), "critique": critique, "variables": []}

    def build(question: ModelQuestion) -> Mapping[str, Any]:
        if "variable" in question.data:
            rule = place.rewrite(question, journal.state.iteration)
            shown = [
                one["task"]
                for one in journal.state.gradients
                if one["iteration"] == journal.state.iteration
            ]
            place.was_shown(rule, shown)
            return {"value": f"{question.data['variable']['value']}- rule: {rule}\n"}
        rule = question.data["intents"][0]["modification"]
        change = {"path": "SKILL.md", "old": _LINE, "new": f"{_LINE}- rule: {rule}\n"}
        return {"edits": [{"op": "edit", "ref": f"skill:{_NAME}", "changes": [change]}]}

    return ScriptedModel(
        {ModelRole.PROPOSER: propose, ModelRole.CRITIC: criticise, ModelRole.BUILDER: build}
    )


def verdict_on(place: Place, base: Rules, rules: Rules) -> str:
    """Measure a program with these rules against one with the others, without a search, and return
    the verdict.
    """
    before, after = (_program_of(one) for one in (base, rules))
    settings = RunSettings(
        "simulated",
        executor={"kind": "simulated"},
        mode="any",
        iterations=0,
        purpose="measure",
        test_repeats=1,
    )
    run = _run(place, before, settings, 1)
    run.folder.store_program(after)
    run.merged = [("measured", after)]
    asyncio.run(run_phases(run))
    return str(run.state.verdict["verdict"])


def sealed_test(place: Place, rules: Rules, gain: float, judge: JudgeScorer | None = None) -> Found:
    """Open the product's sealed test for the finalist of another search; return it, or the base.

    gain: that its own search claims, from which follows how often later stages run each task.
    judge: who scored.
    """
    before, after = (_program_of(one) for one in (BASE, rules))
    run = _run(place, before, RunSettings("simulated", executor={"kind": "simulated"}), 1, judge)
    run.folder.store_program(after)
    asyncio.run(run_staged_test(run, RunCandidate(after.digest, "found", 1), gain))
    said = run.state.verdict
    return Found(rules, said["delta"]) if said["verdict"] == Ruling.PROMOTE else Found(BASE)


def _program_of(rules: Rules) -> Program:
    text = _TEXT + "".join(f"- rule: {rule}\n" for rule in sorted(rules - BASE))
    return make_program([make_part(Kind.SKILL, _NAME, {"SKILL.md": text.encode()})])
