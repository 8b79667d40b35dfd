"""A run while somebody drives it: its ledger, what it is measured with, who thinks, and the moves all steps make."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from evolvable_store.errors import EvolvableError, Refused
from evolvable_tools.evolve.brains.brain import Brain, NoAnswer, Question
from evolvable_tools.evolve.budget import Budget
from evolvable_tools.evolve.interleaving import Request
from evolvable_tools.evolve.ledger import Ledger
from evolvable_tools.evolve.operators import Mask, mask_of
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.rollout import Outcome, Trial, Usage
from evolvable_tools.evolve.run_fold import apply
from evolvable_tools.evolve.run_folder import RunFolder
from evolvable_tools.evolve.run_settings import RunSettings
from evolvable_tools.evolve.run_state import Record, RunState
from evolvable_tools.evolve.task import Task
from evolvable_tools.redaction.redactor import Redactor

QUESTION_TOKENS = 60_000
"""Tokens that are reserved for one question and its answer; what it really took is settled."""


class Stopped(EvolvableError):
    """Somebody asked the run to stop. It goes on where it stopped."""


class NeedsPerson(EvolvableError):
    """A candidate may not run before a person has seen it. The run waits, and goes on with the decision."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} waits for a person: {why}.", "`evolvable evolve pending` says what is asked.")


class Tampered(Refused):
    """Tasks, splits or scorers are not those that the run began with."""

    def __init__(self, text: str, hint: str = "Nothing of this run can be trusted any more: start a new one.") -> None:
        super().__init__(text, hint)


class Measures(Protocol):
    """Runs tasks under programs; `Trials` over a ledger."""

    async def measure(self, requests: Sequence[Request], *, batch: str) -> list[Trial]:
        """Returns a trial for each request, in order. The same batch measured again gives the same trials."""
        ...


class Sealed(Protocol):
    """The test, which nobody sees before the end."""

    @property
    def size(self) -> int:
        """How many tasks it has."""
        ...

    @property
    def look(self) -> int:
        """Which look at it the next one would be, over all runs."""
        ...

    def opened(self, run: str, finalist: str) -> "tuple[Sequence[Task], int, Measures]":
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
            apply(self._state, record)
        self._seen = len(self._ledger.records)
        return self._state

    def note(self, type: str, **fields: Any) -> Record:
        """Writes a record."""
        return self._ledger.append(type, fields)


@dataclass
class Run:
    """All that the steps of a run work on; no row of the test is in it.

    judge_texts: what scorers look for, which no program may quote. merged: finalists of other runs, by run, to be
    tried as one before anything is proposed. stop: asked before every step. intact: asked before every measurement;
    says why nothing may be measured any more, as tasks or scorers were changed, or ''. apart: trials run in a sandbox.
    plant: keeps data in the library where only somebody who reads it in secret finds it.
    """

    folder: RunFolder
    journal: Journal
    settings: RunSettings
    train: Sequence[Task]
    val: Sequence[Task]
    sealed: Sealed
    trials: Measures
    brain: Brain
    budget: Budget
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
        return mask_of(self.settings.mode, self.base)

    def program(self, digest: str) -> Program:
        """Returns a program of this run."""
        if digest not in self._programs:
            self._programs[digest] = self.folder.program(digest)
        return self._programs[digest]

    def note(self, type: str, **fields: Any) -> Record:
        """Writes a record. Raises Stopped first when somebody asked for it."""
        self.check()
        return self.journal.note(type, **fields)

    def check(self) -> None:
        """Raises Stopped when somebody asked the run to stop."""
        if self.stop():
            raise Stopped("The run was asked to stop.", "`evolvable evolve continue` goes on with it.")

    async def measure(self, requests: Sequence[Request], batch: str) -> list[Trial]:
        """Measures a batch. Raises Stopped, BudgetSpent, Failing, Tampered."""
        self.check()
        return await self.measured(self.trials, requests, batch)

    async def measured(self, measures: Measures, requests: Sequence[Request], batch: str) -> list[Trial]:
        """Measures a batch with what is given. Raises as `measure`; nothing that was tampered with comes back but for
        a candidate in the search, which is discarded for it.
        """
        if why := self.intact():
            raise Tampered(why)
        trials = await measures.measure(requests, batch=batch)
        spoiled = next((one.detail for one in trials if one.outcome is Outcome.TAMPERED), "")
        if spoiled and batch.partition("/")[0] not in ("val", "screen"):
            raise Tampered(spoiled)
        return trials

    async def ask(self, question: Question) -> Mapping[str, Any]:
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
        upper = Usage(QUESTION_TOKENS, question.max_tokens, 1)
        reserved = self.budget.reserve(upper)
        if reserved is None:
            raise self.budget.spent(upper)
        usage = Usage()
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

    def paid(self, packet: str, role: str, usage: Usage, by: str, artifact: str = "") -> None:
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
