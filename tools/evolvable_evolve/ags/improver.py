"""Improve the run's own program between two rounds: reflect, select, improve, evaluate, commit.

The evidence is the items that a check saw, and their checks are the evaluation: each item is run
again under the program as it was and under the changed one. Every answer and every trial is a
message, so a run that was killed repeats none of them. A change is used by the next dispatch of
this run; the library gets a proposal when the run ends.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evolvable_evolve.ags.bus import (
    MAX_ATTEMPTS,
    RUN,
    AgsState,
    ItemOutcome,
    MessageKind,
    spending_fields,
)
from evolvable_evolve.ags.improvement import (
    IMPROVER,
    MAX_IMPROVEMENTS,
    Improvement,
    ImprovementStep,
    TrialArm,
)
from evolvable_evolve.ags.item_judge import AgsParts, ItemJudge
from evolvable_evolve.ags.plan import PlanItem
from evolvable_evolve.evolution import (
    QUESTION_TOKENS,
    BudgetSpent,
    CheckedAnswer,
    ConcurrencyLimit,
    ModelAnswer,
    ModelQuestion,
    ModelUsage,
    NoAnswer,
    PairedCheck,
    PastIteration,
    Program,
    ProgramImprovement,
    ProposerModel,
    Reservation,
    RunBudget,
    RunStopped,
    SpendLimit,
    TrialAttempt,
    TrialBackend,
    improve_program,
)
from evolvable_store.errors import EvolvableError, NotFound, Refused, TryAgain
from evolvable_store.resource import Ref

# Each is run twice, before and after: at most 12 trials for one change.
MAX_RETRIED = 3
"""Failed items that are run again for one change; as many passed items are."""

# The other half is left for the task, however long the improver tries.
SHARE = 0.5
"""Share of each limit of a run that improving its program may spend."""

_NOTHING = ModelUsage()


def improvement_limit(limit: SpendLimit) -> SpendLimit:
    """Return the limit for improving a run's program, a share of the run's own limit.

    The limit of time is not divided.
    """
    whole = {name: getattr(limit, name) for name in ("cost", "tokens", "calls")}
    shares = {
        name: None if most is None else type(most)(most * SHARE) for name, most in whole.items()
    }
    return SpendLimit(**shares)


@dataclass(frozen=True, slots=True)
class _Trial:
    """An item under way again. dispatch: the id of its message without the kind."""

    item: PlanItem
    arm: TrialArm
    dispatch: str
    reserved: tuple[Reservation, Reservation]
    began: int


@dataclass(kw_only=True)
class ProgramImprover(AgsParts):
    """The collaborators of improving the program of one run.

    share: the budget of improving, a part of `budget`. judge: of the run's items.
    """

    model: ProposerModel
    backend: TrialBackend
    share: RunBudget
    throttle: ConcurrencyLimit
    judge: ItemJudge | None = None

    @property
    def _state(self) -> AgsState:
        return self.bus.state

    async def improve(self) -> bool:
        """Try one change of the program after a round with a failed check.

        Return whether one was tried. Raises RunStopped.
        """
        # An improvement that was interrupted goes on before a new one begins.
        work = self._find_open() or self._begin()
        if work is None:
            return False
        improvements = self._state.improvements
        decisions = [each.decided for each in improvements if each.decided is not None]
        try:
            ended = await improve_program(
                self.folder.program(work.base),
                [self._read_answer(name) for name in work.items],
                ask=lambda question: self._ask(work, question),
                measure=lambda candidate: self._measure(work, candidate),
                redactor=self.redactor,
                history=[_make_past(each) for each in improvements if each.decided is not None],
                known_digests=[decision["candidate"] for decision in decisions],
            )
        # Improving is no part of the task: an error is noted, and the run goes on without a change.
        except (NoAnswer, BudgetSpent, Refused, NotFound) as error:
            ended = ProgramImprovement(self.folder.program(work.base), False, error.text)
        self._decide(work, ended)
        return True

    def propose(self) -> None:
        """Propose the changed parts to the library after the end of the run, each once."""
        state = self._state
        if not state.ended:
            return
        for ref, part in state.committed.items():
            newest_first = reversed(state.improvements)
            latest = next(each for each in newest_first if ref in each.changed_refs)
            name = f"proposed/{ref}/{part.program[:12]}"
            if self.bus.has(name):
                continue
            reason = f"run {state.run} of agents: {latest.line}"
            try:
                text = self.workers.propose_part(ref, part, reason)
            except TryAgain:
                raise
            except EvolvableError as error:
                text = f"the change of {ref} is not proposed: {error.text}"
            self.bus.post(MessageKind.NOTE, name, RUN, RUN, {"text": text})

    def _find_open(self) -> Improvement | None:
        """Return the improvement that an earlier process did not finish, None without one."""
        return next((each for each in self._state.improvements if each.decided is None), None)

    def _begin(self) -> Improvement | None:
        """Begin an improvement where a check failed in this round.

        Return None where none failed, or no further improvement is allowed.
        """
        state = self._state
        if len(state.improvements) >= MAX_IMPROVEMENTS:
            return None
        if any(improvement.round == state.round for improvement in state.improvements):
            return None
        failed = Counter(
            _find_agent(outcome) for outcome in state.in_round if outcome.passed is False
        )
        if not failed:
            return None
        # One agent a round, so that a difference has one cause.
        [(agent, _)] = failed.most_common(1)
        try:
            opened = self.workers.open_program(agent)
        except TryAgain:
            raise
        except EvolvableError:
            # The agent may not run any more. The planner is told by the next dispatch.
            return None
        # Stored before the message that names its digest.
        self.folder.store_program(opened.program)
        number = len(state.improvements) + 1
        body = {
            "improve": number,
            "step": ImprovementStep.BEGUN,
            "agent": agent,
            "items": _choose_retried(state, agent),
            "base": opened.program.digest,
            "versions": dict(opened.versions),
        }
        self.bus.post(MessageKind.NOTE, f"improve/{number}", RUN, IMPROVER, body)
        return self._state.improvements[-1]

    def _read_answer(self, name: str) -> CheckedAnswer:
        """Return an item with its result, as evidence."""
        task, outcome = self.workers.task(self._state.items[name]), self._state.outcomes[name]
        return CheckedAnswer(task, outcome.summary, bool(outcome.passed))

    async def _ask(self, work: Improvement, question: ModelQuestion) -> Mapping[str, Any]:
        """Return the answer to a question, which is asked once.

        Raises NoAnswer, BudgetSpent, RunStopped.
        """
        self._check()
        work, question_key = self._reload(work), self.folder.store_json(question.packet())
        if (answer_key := work.answers.get(question_key)) is not None:
            return dict(self.folder.read_json(answer_key))
        if question_key in work.unanswered:
            raise NoAnswer(work.unanswered[question_key], "The run goes on without this change.")
        name = f"improve.{work.number}.{question.role}"
        dispatch = f"{name}.{work.dispatch_counts.get(name, 0) + 1}"
        upper = ModelUsage(QUESTION_TOKENS, question.max_tokens, 1)
        reserved = self._reserve(upper)
        body = {"improve": work.number, "dispatch": dispatch, "reserved": asdict(upper)}
        self.bus.post(
            MessageKind.DISPATCH, f"dispatch/{dispatch}", RUN, IMPROVER, body, question_key
        )
        began = time.monotonic()
        try:
            answer = await self.model.ask(question)
        except NoAnswer as error:
            self._settle(reserved, error.usage)
            why = {"text": self.redactor.redact(error.text)[0]}
            self._record_answer(work, dispatch, question_key, error, time.monotonic() - began, why)
            raise
        except BaseException:
            self._settle(reserved, _NOTHING, lost=True)
            raise
        self._settle(reserved, answer.usage)
        value = self.redactor.redact_value(answer.value)[0]
        fields = {"answer": self.folder.store_json(value), "by": answer.by}
        self._record_answer(work, dispatch, question_key, answer, time.monotonic() - began, fields)
        return dict(value)

    def _record_answer(
        self,
        work: Improvement,
        dispatch: str,
        question_key: str,
        spent: ModelAnswer | NoAnswer,
        wall: float,
        more: Mapping[str, str],
    ) -> None:
        body = {
            "improve": work.number,
            "step": ImprovementStep.ANSWER,
            "dispatch": dispatch,
            "question": question_key,
        }
        body |= more
        body |= spending_fields(spent.usage, spent.attempts, wall, self.budget.elapsed)
        self.bus.post(MessageKind.NOTE, f"answer/{dispatch}", IMPROVER, RUN, body)

    def _reload(self, work: Improvement) -> Improvement:
        """Return an improvement after all messages so far."""
        return self._state.improvements[work.number - 1]

    async def _measure(self, work: Improvement, candidate: Program) -> Sequence[PairedCheck]:
        """Run each item again under both programs, and return the pairs with two results.

        Raises BudgetSpent, RunStopped, and Refused for an agent that may not run any more.
        """
        self.folder.store_program(candidate)
        programs = {TrialArm.BEFORE: self.folder.program(work.base), TrialArm.AFTER: candidate}
        done = self._reload(work).trials
        pending = [
            (name, arm) for name in work.items for arm in TrialArm if (arm, name) not in done
        ]
        # Only to raise BudgetSpent before the first trial: a part of the trials decides nothing.
        self._release(self._reserve(_multiply_usage(self.budget.most, len(pending))))
        flying: dict[str, _Trial] = {}
        try:
            while pending or flying:
                self._check()
                pause = self.throttle.wait(len(flying))
                if pending and not pause:
                    name, arm = pending.pop(0)
                    item = self._state.items[name]
                    ticket, trial = self._start_trial(work, item, arm, programs[arm])
                    flying[ticket] = trial
                elif flying:
                    finished = await self.backend.poll(None if math.isinf(pause) else pause)
                    for ticket, attempt in finished:
                        await self._record_trial(work, flying.pop(ticket), attempt)
                else:
                    await asyncio.sleep(min(pause, self.budget.seconds_left))
        finally:
            await self.backend.cancel(list(flying))
            for trial in flying.values():
                self._settle(trial.reserved, _NOTHING, lost=True)
        ends, pairs = self._reload(work).trials, list[PairedCheck]()
        for name in work.items:
            before, after = (ends.get((arm, name)) for arm in TrialArm)
            if before is not None and after is not None:
                pairs.append(PairedCheck(name, before, after))
        return pairs

    def _start_trial(
        self, work: Improvement, item: PlanItem, arm: TrialArm, program: Program
    ) -> tuple[str, _Trial]:
        name = f"improve.{work.number}.{arm}.{item.id}"
        earlier = self._reload(work).dispatch_counts.get(name, 0)
        dispatch = f"{name}.{earlier + 1}"
        # A number that no repeat of a dispatch of the plan has.
        repeat = MAX_ATTEMPTS * (1 + work.number) + earlier
        prepared = self.workers.prepare(item, repeat, self._state.results_for(item), program)
        reserved = self._reserve(self.budget.most, self.budget.longest)
        body = {"improve": work.number, "dispatch": dispatch, "tried": item.id, "arm": arm}
        body |= {"reserved": asdict(reserved[0].upper)}
        message_id, receiver = f"dispatch/{dispatch}", f"item:{item.id}"
        # Before the job: a job without a message would be spent without a bill.
        self.bus.post(MessageKind.DISPATCH, message_id, RUN, receiver, body, program.digest)
        ticket = self.backend.submit(prepared.job)
        return ticket, _Trial(item, arm, dispatch, reserved, self.throttle.begin_trial())

    async def _record_trial(self, work: Improvement, trial: _Trial, attempt: TrialAttempt) -> None:
        """Record the end of a trial; one that failed by infrastructure has no result."""
        result = self.workers.read(attempt)
        passed = result.passed
        # As in the plan, an item without an answer has failed.
        if not result.ok and passed is None and not result.retry:
            passed = False
        if self.judge is not None and trial.item.judge is not None and result.ok:
            ended = {"summary": result.summary, "files": result.files, "outcome": ""}
            passed = (await self.judge.check(trial.item, ended)).get("passed")
        body = {"improve": work.number, "step": ImprovementStep.TRIAL, "dispatch": trial.dispatch}
        body |= {"tried": trial.item.id, "arm": trial.arm, "passed": passed, "lost": result.lost}
        body |= {"summary": result.summary}
        body |= spending_fields(result.usage, result.attempts, result.wall, self.budget.elapsed)
        name = f"trial/{work.number}/{trial.arm}/{trial.item.id}"
        self.bus.post(MessageKind.NOTE, name, f"item:{trial.item.id}", RUN, body)
        self._settle(trial.reserved, result.usage, lost=result.lost)
        self.throttle.end_trial(trial.began, attempt.rollout.retry_after)

    def _decide(self, work: Improvement, ended: ProgramImprovement) -> None:
        body = {
            "improve": work.number,
            "step": ImprovementStep.DECIDED,
            "accepted": ended.accepted,
            "why": self.redactor.redact(ended.why)[0],
            "summary": self.redactor.redact(ended.summary)[0],
            "candidate": ended.candidate,
            "changed": list(ended.changed),
            "before": sum(pair.before for pair in ended.pairs),
            "after": sum(pair.after for pair in ended.pairs),
            "of": len(ended.pairs),
        }
        self.bus.post(MessageKind.NOTE, f"improved/{work.number}", RUN, RUN, body)

    def _reserve(self, upper: ModelUsage, wall: float = 0.0) -> tuple[Reservation, Reservation]:
        """Return the reservations in both budgets. Raise BudgetSpent."""
        whole = self.budget.reserve(upper, wall)
        if whole is None:
            raise self.budget.shortage_error(upper, wall)
        try:
            part = self.share.reserve(upper)
        except BudgetSpent:
            self.budget.release(whole)
            raise
        if part is None:
            self.budget.release(whole)
            raise self.share.shortage_error(upper)
        return whole, part

    def _release(self, reserved: tuple[Reservation, Reservation]) -> None:
        self.budget.release(reserved[0])
        self.share.release(reserved[1])

    def _settle(
        self, reserved: tuple[Reservation, Reservation], usage: ModelUsage, *, lost: bool = False
    ) -> None:
        self.budget.settle(reserved[0], usage, lost=lost)
        self.share.settle(reserved[1], usage, lost=lost)

    def _check(self) -> None:
        if self.stop():
            raise RunStopped(
                "The run was asked to stop.", "`evolvable lab ags resume` goes on with it."
            )


def _find_agent(outcome: ItemOutcome) -> str:
    return str(Ref.parse(outcome.agent).at(None))


def _choose_retried(state: AgsState, agent: str) -> list[str]:
    """Return the items to try a change of an agent on: the newest failed ones, then passed ones."""
    own = [
        outcome
        for outcome in state.outcomes.values()
        if _find_agent(outcome) == agent and outcome.passed is not None
    ]
    newest = sorted(own, key=lambda outcome: -outcome.round)
    failed = [outcome.item for outcome in newest if outcome.passed is False]
    passed = [outcome.item for outcome in newest if outcome.passed is True]
    return [*failed[:MAX_RETRIED], *passed[:MAX_RETRIED]]


def _multiply_usage(usage: ModelUsage, n: int) -> ModelUsage:
    """Return the usage of n pieces of work with this usage each."""
    cost = None if usage.cost is None else n * usage.cost
    return ModelUsage(n * usage.input_tokens, n * usage.output_tokens, n * usage.calls, cost)


def _make_past(improvement: Improvement) -> PastIteration:
    assert improvement.decided is not None
    decision, n = improvement.decided, improvement.decided["of"]
    delta = (decision["after"] - decision["before"]) / n if n else None
    return PastIteration(
        improvement.number,
        decision["summary"],
        "kept" if improvement.accepted else "not kept",
        delta,
        reason=decision["why"],
    )
