"""A run while somebody drives it: its ledger, what it is measured with, who thinks, and the moves all steps make.

The judge of a run: who it is, its calibration before anything else is spent, and what is warned about.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from evolvable_store.errors import EvolvableError, InvalidArgument, Refused
from evolvable_tools.evolve.candidates.programs import Program
from evolvable_tools.evolve.factory import JUDGE_ROLES, HostContext, make_model_spec
from evolvable_tools.evolve.ledger.run_directory import Ledger, RunDirectory
from evolvable_tools.evolve.ledger.run_reducer import apply_record
from evolvable_tools.evolve.ledger.run_state import RunState, StateRecord
from evolvable_tools.evolve.operators import Mask, make_mask
from evolvable_tools.evolve.proposers.proposer_model import ModelQuestion, NoAnswer, ProposerModel
from evolvable_tools.evolve.run_config import RunSettings
from evolvable_tools.evolve.scorers.external_scorers import (
    MAX_KNOWN_ANSWERS,
    JudgeCalibration,
    JudgeSample,
    JudgeScorer,
    check_calibration,
    is_same_family,
    rubric_digest,
    run_judge_calibration,
)
from evolvable_tools.evolve.scorers.registry import extract_answer
from evolvable_tools.evolve.task import ModelUsage, Task, TaskSet, Trial, TrialOutcome
from evolvable_tools.evolve.trials.budget import Reservation, RunBudget
from evolvable_tools.evolve.trials.scheduler import TrialRequest
from evolvable_tools.redaction.redactor import Redactor

QUESTION_TOKENS = 60_000
"""Tokens that are reserved for one question and its answer; what it really took is settled."""


class RunStopped(EvolvableError):
    """Somebody asked the run to stop. It goes on where it stopped."""


class NeedsPerson(EvolvableError):
    """A candidate may not run before a person has seen it. The run waits, and goes on with the decision."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} waits for a person: {why}.", "`evolvable evolve pending` says what is asked.")


class RunTampered(Refused):
    """Tasks, splits or scorers are not those that the run began with."""

    def __init__(self, text: str, hint: str = "Nothing of this run can be trusted any more: start a new one.") -> None:
        super().__init__(text, hint)


class TrialMeasurer(Protocol):
    """Runs tasks under programs; `Trials` over a ledger."""

    async def measure(self, requests: Sequence[TrialRequest], *, batch: str) -> list[Trial]:
        """Returns a trial for each request, in order. The same batch measured again gives the same trials."""
        ...


class HeldOutTest(Protocol):
    """The test, which nobody sees before the end."""

    @property
    def size(self) -> int:
        """How many tasks it has."""
        ...

    @property
    def look(self) -> int:
        """Which look at it the next one would be, over all runs."""
        ...

    def opened(self, run: str, finalist: str) -> "tuple[Sequence[Task], int, TrialMeasurer]":
        """Returns its tasks, the number of this look at them over all runs, and what measures them."""
        ...


class Journal:
    """The ledger of a run with the state that it leads to, always in step."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._state, self._seen = ledger, RunState(), 0

    @property
    def state(self) -> RunState:
        """What the records so far lead to."""
        for record in self._ledger.records[self._seen :]:
            apply_record(self._state, record)
        self._seen = len(self._ledger.records)
        return self._state

    def note(self, type: str, **fields: Any) -> StateRecord:
        """Writes a record."""
        return self._ledger.append(type, fields)


@dataclass
class RunContext:
    """All that the steps of a run work on; no row of the test is in it.

    judge_texts: what scorers look for, which no program may quote. merged: finalists of other runs, by run, to be
    tried as one before anything is proposed. stop: asked before every step. intact: asked before every measurement;
    says why nothing may be measured any more, as tasks or scorers were changed, or ''. apart: trials run in a sandbox.
    plant: keeps data in the library where only somebody who reads it in secret finds it.
    """

    folder: RunDirectory
    journal: Journal
    settings: RunSettings
    train: Sequence[Task]
    val: Sequence[Task]
    sealed: HeldOutTest
    trials: TrialMeasurer
    brain: ProposerModel
    budget: RunBudget
    redactor: Redactor
    judge_texts: Sequence[str] = ()
    merged: Sequence[tuple[str, Program]] = ()
    stop: Callable[[], bool] = lambda: False
    intact: Callable[[], str] = str
    apart: bool = True
    plant: Callable[[bytes], object] = len
    _programs: dict[str, Program] = field(default_factory=dict)

    @property
    def state(self) -> RunState:
        """What the run has come to."""
        return self.journal.state

    @property
    def base(self) -> Program:
        """What everything is compared with in the end."""
        return self.program(self.state.base)

    @property
    def mask(self) -> Mask:
        """What may change."""
        return make_mask(self.settings.mode, self.base)

    def program(self, digest: str) -> Program:
        """Returns a program of this run."""
        if digest not in self._programs:
            self._programs[digest] = self.folder.program(digest)
        return self._programs[digest]

    def note(self, type: str, **fields: Any) -> StateRecord:
        """Writes a record. Raises Stopped first when somebody asked for it."""
        self.check()
        return self.journal.note(type, **fields)

    def check(self) -> None:
        """Raises Stopped when somebody asked the run to stop."""
        if self.stop():
            raise RunStopped("The run was asked to stop.", "`evolvable evolve continue` goes on with it.")

    async def measure(self, requests: Sequence[TrialRequest], batch: str) -> list[Trial]:
        """Measures a batch. Raises Stopped, BudgetSpent, Failing, Tampered."""
        self.check()
        return await self.measured(self.trials, requests, batch)

    async def measured(self, measures: TrialMeasurer, requests: Sequence[TrialRequest], batch: str) -> list[Trial]:
        """Measures a batch with what is given. Raises as `measure`; nothing that was tampered with comes back but for
        a candidate in the search, which is discarded for it.
        """
        if why := self.intact():
            raise RunTampered(why)
        trials = await measures.measure(requests, batch=batch)
        spoiled = next((one.detail for one in trials if one.outcome is TrialOutcome.TAMPERED), "")
        if spoiled and batch.partition("/")[0] not in ("val", "screen"):
            raise RunTampered(spoiled)
        return trials

    async def ask(self, question: ModelQuestion) -> Mapping[str, Any]:
        """Returns the answer to a question, which is asked and paid once however often the run is continued.

        Raises NeedsAnswer, NoAnswer, WrongAnswer, BudgetSpent, Stopped.
        """
        known = self.state.packets.get(question.id)
        if known is not None and known.answer is not None:
            answer: Mapping[str, Any] = self.folder.kept_json(known.answer)
            return answer
        if known is None:
            kept = self.folder.keep_json(question.packet())
            role = str(question.role)
            self.note("asked", packet=question.id, role=role, iteration=self.state.iteration, artifact=kept)
        upper = ModelUsage(QUESTION_TOKENS, question.max_tokens, 1)
        reserved = self.budget.reserve(upper)
        if reserved is None:
            raise self.budget.spent(upper)
        usage = ModelUsage()
        try:
            given = await self.brain.ask(question)
            usage = given.usage
        except NoAnswer as error:
            usage = error.usage
            if usage.calls:
                self.paid(question.id, str(question.role), usage, self.brain.name)
            raise
        finally:
            self.budget.settle(reserved, usage) if usage.calls else self.budget.release(reserved)
        kept = self.folder.keep_json(given.value)
        self.paid(question.id, str(question.role), usage, given.by, kept)
        return given.value

    def paid(self, packet: str, role: str, usage: ModelUsage, by: str, artifact: str = "") -> None:
        """Writes down what thinking cost; without an artefact there was no answer."""
        self.journal.note(
            "answered",
            packet=packet,
            role=role,
            by=by,
            artifact=artifact,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            calls=usage.calls,
            cost=usage.cost,
        )


@dataclass(frozen=True)
class JudgeSetup:
    """The judge of a run with the known answers of each rubric. Its calibrations are filled in by `be_calibrated`."""

    judge: JudgeScorer
    calibrations: dict[str, JudgeCalibration]
    samples: Mapping[str, Sequence[JudgeSample]]


def needs_judge(tasks: Sequence[Task]) -> bool:
    """Returns whether a judge scores any of these tasks."""
    return any(task.scorer.type == "judge" for task in tasks)


def judge_name(settings: RunSettings, taskset: TaskSet) -> str:
    """Returns who judges in a run with these settings, '' where nobody has to: who is named, else the brain.

    Raises InvalidArgument when nobody is there who could.
    """
    if not needs_judge(taskset.tasks):
        return ""
    who = settings.judge or settings.brain
    if who.partition(":")[0] == "handoff":
        raise InvalidArgument(
            f"{taskset.name} has tasks that a judge scores, and a judge cannot be a hand-off: it is asked for every"
            " answer, and is the only one to know what was expected.",
            "Name one by --judge (settings.judge): anthropic[:MODEL], claude, codex, or the name of a judge.",
        )
    return who


def make_judge(settings: RunSettings, means: HostContext, folder: RunDirectory, taskset: TaskSet) -> JudgeSetup | None:
    """Returns the judge of a run, None where nobody has to judge. Raises InvalidArgument."""
    if not needs_judge(taskset.tasks):
        return None
    opening = make_model_spec(settings.judge, JUDGE_ROLES, settings, means, folder)
    calibrations: dict[str, JudgeCalibration] = {}
    return JudgeSetup(JudgeScorer(opening, calibrations), calibrations, known_samples(taskset.tasks))


def family_warning(settings: RunSettings, judge: str, label: str) -> str:
    """Returns what is to be said where a model judges answers of its own maker's models, '' elsewhere."""
    judged = " ".join(str(settings.executor.get(name, "")) for name in ("kind", "model")) + f" {label}"
    if not judge or not is_same_family(judge, judged):
        return ""
    return f"{judge} judges answers of a model of the same maker ({label}): such judges favour their own."


async def calibrate_judge(run: RunContext, judging: JudgeSetup, brain: ProposerModel, label: str) -> None:
    """Has the judge show on known answers, of each rubric, that it tells good from bad; what was shown is kept.

    brain: the judge's, wherever it is asked. label: of who runs the tasks.
    Raises JudgeRefused when it does not, ScorerTrouble when it does not answer, BudgetSpent, Stopped.
    """
    for rubric, samples in judging.samples.items():
        known = _samples_digest(samples)
        kept = [one for one in run.state.judges if (one["by"], one["known"]) == (brain.name, known)]
        if kept:
            found = _parse_calibration(kept[-1])
        else:
            found = await _run_calibration(run, brain, rubric, samples)
            run.note(
                "judge",
                by=brain.name,
                label=brain.label,
                known=known,
                calibration=asdict(found),
                agreement=found.agreement,
                passed=found.passes,
                about=rubric[:200],
                warning=family_warning(run.settings, brain.name, label),
            )
        check_calibration(found)
        judging.calibrations[rubric_digest(rubric)] = found


async def _run_calibration(
    run: RunContext, brain: ProposerModel, rubric: str, samples: Sequence[JudgeSample]
) -> JudgeCalibration:
    upper = ModelUsage(QUESTION_TOKENS, 0, 1)
    reserved: list[Reservation] = []

    def reserve() -> None:
        run.check()
        made = run.budget.reserve(upper)
        if made is None:
            raise run.budget.spent(upper)
        reserved.append(made)

    def paid(usage: ModelUsage) -> None:
        run.budget.settle(reserved.pop(), usage)
        run.paid("", "judge", usage, brain.name)

    try:
        return await run_judge_calibration(brain, rubric, samples, before=reserve, paid=paid)
    finally:
        for one in reserved:
            run.budget.release(one)


def known_samples(tasks: Sequence[Task]) -> dict[str, list[JudgeSample]]:
    """Returns the known answers that tasks give for each rubric, at most MOST_EACH of each side."""
    found: dict[str, list[JudgeSample]] = defaultdict(list)
    for task in tasks:
        if task.scorer.type != "judge":
            continue
        own = found[str(task.scorer.args["rubric"])]
        for side, good in (("good", True), ("bad", False)):
            said = task.scorer.args.get(side) or []
            for one in said if isinstance(said, list | tuple) else []:
                if sum(sample.good == good for sample in own) < MAX_KNOWN_ANSWERS:
                    text = one if isinstance(one, str) else str(one.get("output", ""))
                    own.append(
                        JudgeSample(task, extract_answer(text, str(task.scorer.args.get("answer", "whole"))), good)
                    )
    return dict(found)


def _samples_digest(samples: Sequence[JudgeSample]) -> str:
    known = [[one.task.digest, dict(one.task.scorer.args).get("rubric"), one.output, one.good] for one in samples]
    return hashlib.sha256(json.dumps(known).encode("ascii")).hexdigest()


def _parse_calibration(record: Mapping[str, Any]) -> JudgeCalibration:
    fields = dict(record["calibration"])
    fields["wrong"] = tuple(fields["wrong"])
    return JudgeCalibration(**fields)
