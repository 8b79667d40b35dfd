"""The context of a run while a process drives it: its ledger, tasks, runner, proposer model and budget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from evolvable_store.errors import EvolvableError, Refused
from evolvable_tools.evolve.candidates.programs import Program
from evolvable_tools.evolve.ledger.run_directory import LedgerRecord, RunDirectory
from evolvable_tools.evolve.ledger.run_state import Journal, RunState
from evolvable_tools.evolve.operators import Mask, make_mask
from evolvable_tools.evolve.proposers.proposer_model import ModelAnswer, ModelQuestion, NoAnswer, ProposerModel
from evolvable_tools.evolve.run_config import RunSettings
from evolvable_tools.evolve.task import ModelUsage, Task, Trial, TrialOutcome
from evolvable_tools.evolve.tasks.holdout import HeldOutTest
from evolvable_tools.evolve.trials.budget import RunBudget
from evolvable_tools.evolve.trials.measurement import TrialRequest, TrialRunner
from evolvable_tools.redaction.redactor import Redactor

QUESTION_TOKENS = 60_000
"""Tokens that are reserved for one question and its answer; the real usage is settled."""


class RunStopped(EvolvableError):
    """Somebody asked the run to stop. It can be continued."""


class NeedsPerson(EvolvableError):
    """A candidate may not run before a person has seen it. The run waits, and goes on with the decision."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} waits for a person: {why}.", "`evolvable evolve pending` says what is asked.")


class RunTampered(Refused):
    """Tasks, splits or scorers are not those that the run began with."""

    def __init__(self, text: str, hint: str = "Nothing of this run can be trusted any more: start a new one.") -> None:
        super().__init__(text, hint)


@dataclass
class RunContext:
    """The collaborators of all steps of a run. It holds no row of the test.

    merged: finalists of other runs, by run, tried as one before any proposal. stop: checked before every step. intact:
    checked before every measurement; returns why tasks or scorers are not the recorded ones, or ''. sandboxed: whether
    trials run in a sandbox. plant_canary: stores data in the library that no verb finds.
    """

    folder: RunDirectory
    journal: Journal
    settings: RunSettings
    train: Sequence[Task]
    val: Sequence[Task]
    sealed: HeldOutTest
    trials: TrialRunner
    brain: ProposerModel
    budget: RunBudget
    redactor: Redactor
    merged: Sequence[tuple[str, Program]] = ()
    stop: Callable[[], bool] = lambda: False
    intact: Callable[[], str] = str
    sandboxed: bool = True
    plant_canary: Callable[[bytes], object] = len
    _programs: dict[str, Program] = field(default_factory=dict)

    @property
    def state(self) -> RunState:
        """Return the state after all records so far."""
        return self.journal.state

    @property
    def base(self) -> Program:
        """Return the program that every candidate is compared with at the end."""
        return self.program(self.state.base)

    @property
    def mask(self) -> Mask:
        """Return which parts may change."""
        return make_mask(self.settings.mode, self.base)

    def program(self, digest: str) -> Program:
        """Return a program of this run."""
        if digest not in self._programs:
            self._programs[digest] = self.folder.program(digest)
        return self._programs[digest]

    def note(self, type: str, **fields: Any) -> LedgerRecord:
        """Append a record. Raises RunStopped instead when somebody asked the run to stop."""
        self.check()
        return self.journal.note(type, **fields)

    def check(self) -> None:
        """Raise RunStopped when somebody asked the run to stop."""
        if self.stop():
            raise RunStopped("The run was asked to stop.", "`evolvable evolve continue` goes on with it.")

    async def measure(
        self, requests: Sequence[TrialRequest], batch: str, runner: TrialRunner | None = None
    ) -> list[Trial]:
        """Measure a batch, by default with the runner of train and val.

        In the search a candidate that tampers is discarded; anywhere else tampering raises RunTampered.
        Raises RunStopped, BudgetSpent, TrialsFailing, RunTampered.
        """
        self.check()
        if why := self.intact():
            raise RunTampered(why)
        trials = await (runner or self.trials).measure(requests, batch=batch)
        spoiled = next((one.detail for one in trials if one.outcome is TrialOutcome.TAMPERED), "")
        if spoiled and batch.partition("/")[0] not in ("val", "screen"):
            raise RunTampered(spoiled)
        return trials

    async def ask(self, question: ModelQuestion) -> Mapping[str, Any]:
        """Return the answer to a question. A continued run neither asks nor pays for the same question again.

        Raises NeedsAnswer, NoAnswer, WrongAnswer, BudgetSpent, RunStopped.
        """
        known, role = self.state.packets.get(question.id), str(question.role)
        if known is not None and known.answer is not None:
            answer: Mapping[str, Any] = self.folder.kept_json(known.answer)
            return answer
        if known is None:
            kept = self.folder.keep_json(question.packet())
            self.note("asked", packet=question.id, role=role, iteration=self.state.iteration, artifact=kept)
        given = await self.ask_reserved(self.brain, question, (question.id, role), most_output=question.max_tokens)
        self.paid(question.id, role, given.usage, given.by, self.folder.keep_json(given.value))
        return given.value

    async def ask_reserved(
        self, model: ProposerModel, question: ModelQuestion, packet_role: tuple[str, str], *, most_output: int
    ) -> ModelAnswer:
        """Return a model's answer within the budget. A failure that cost something is settled and recorded.

        Raises NeedsAnswer, NoAnswer, WrongAnswer, BudgetSpent.
        """
        with self.budget.reserving(ModelUsage(QUESTION_TOKENS, most_output, 1)) as settle:
            try:
                given = await model.ask(question)
            except NoAnswer as error:
                if error.usage.calls:
                    settle(error.usage)
                    self.paid(*packet_role, error.usage, model.name)
                raise
            settle(given.usage)
        return given

    def paid(self, packet: str, role: str, usage: ModelUsage, by: str, artifact: str = "") -> None:
        """Record what a question cost. Without an artifact there was no answer."""
        self.journal.note("answered", packet=packet, role=role, by=by, artifact=artifact, **asdict(usage))
