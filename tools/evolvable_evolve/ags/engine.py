"""Drive a run of agents: ask the planner, dispatch what is ready, collect the results, and ask
again.

The run has no memory but its bus. Each step is a message before and a message after it, so a run
that was killed goes on where it was, and the bill counts what was reserved for work of which nobody
knows the end.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from evolvable_evolve.ags.bus import (
    MAX_ATTEMPTS,
    PLANNER,
    RUN,
    AgsState,
    EndReason,
    MessageKind,
    spending_fields,
)
from evolvable_evolve.ags.improver import ProgramImprover
from evolvable_evolve.ags.item_judge import AgsParts, ItemJudge
from evolvable_evolve.ags.plan import Plan, PlanChange, PlanItem
from evolvable_evolve.ags.planner import SingleItemPlan, check_plan_answer, plan_question
from evolvable_evolve.ags.workers import WorkResult, shorten_bytes
from evolvable_evolve.evolution import (
    QUESTION_TOKENS,
    BudgetSpent,
    ConcurrencyLimit,
    HandOffModel,
    ModelAnswer,
    ModelUsage,
    NoAnswer,
    ProposerModel,
    Reservation,
    RunStopped,
    TrialBackend,
)
from evolvable_store.errors import EvolvableError, TryAgain

_NOTHING = ModelUsage()
# What the message that ends an item takes over from the one that waited for its judge.
_END_KEYS = ("dispatch", "item", "agent", "summary", "outcome", "read", "files", "retry", "lost")


@dataclass(frozen=True, slots=True)
class _Flight:
    """A dispatch under way. began: see ConcurrencyLimit."""

    item: PlanItem
    dispatch: str
    attempt: int
    agent: str
    reservation: Reservation
    began: int


@dataclass(kw_only=True)
class AgsRun(AgsParts):
    """The collaborators of one run.

    contracts: returns the contract of the run's agents as it is now. publish: keeps a plan as a
    version. record: keeps an item that ended as evidence, by its id. improver: improves the run's
    own program between two rounds, None where nobody wants that. judge: checks the items that name
    it as their check.
    """

    planner: ProposerModel
    backend: TrialBackend
    throttle: ConcurrencyLimit
    contracts: Callable[[], str]
    publish: Callable[[Plan], str]
    record: Callable[[str], object] = str
    improver: ProgramImprover | None = None
    judge: ItemJudge | None = None

    @property
    def state(self) -> AgsState:
        """Return the state after all messages so far."""
        return self.bus.state

    async def drive(self) -> None:
        """Take the run as far as it comes: to its end, or to a question to the person.

        Raises NeedsAnswer where the planner is a caller, NoAnswer, RunStopped.
        """
        if self.state.round:
            # The process before this one may have ended between an answer and its version.
            self._publish()
        with self.budget.running():
            # Each turn of the loop decides from the state alone, so it does not matter which
            # process took the step before.
            while not self.state.ended:
                self._check()
                await self._judge()  # what the process before this one left
                if self.state.ready:
                    if not await self._work():
                        self._end(EndReason.BUDGET)
                elif self.state.waits_for_person:
                    return
                elif reason := self.state.must_end:
                    self._end(reason)
                elif self.improver is None or not await self.improver.improve():
                    await self._plan()
        self._publish()
        if self.improver is not None:
            self.improver.propose()

    def _check(self) -> None:
        if self.stop():
            raise RunStopped(
                "The run was asked to stop.", "`evolvable lab ags resume` goes on with it."
            )

    def _end(self, reason: EndReason) -> None:
        self.bus.post(
            MessageKind.DONE, f"done/{self.state.messages}", RUN, RUN, {"reason": reason.value}
        )

    def _publish(self) -> None:
        """Keep the plan as a version.

        A plan that waits for a person, or is refused, is noted and stops nothing.
        """
        if self.bus.has("note/plan"):
            return  # one proposal of a run is enough
        if why := self.publish(self.state.plan):
            self.bus.post(MessageKind.NOTE, "note/plan", RUN, RUN, {"text": why})

    async def _plan(self) -> None:
        """Ask the planner once and take its answer in.

        Where the budget does not cover the question, end.
        """
        state = self.state
        question = plan_question(state, self.contracts())
        handed = isinstance(self.planner, HandOffModel)
        alone = isinstance(self.planner, SingleItemPlan)
        # A caller and a plan of one item ask no model here, so nothing is reserved for them.
        upper = _NOTHING if handed or alone else ModelUsage(QUESTION_TOKENS, question.max_tokens, 1)
        request = self.folder.store_json(question.packet())
        # Where no model is asked, a budget that is spent by the item is no reason to lose its
        # result.
        reserved = None if alone else self._reserve(upper)
        if reserved is None and not alone:
            self._end(EndReason.BUDGET)
            return
        asked_before = handed and state.request == request
        number = state.questions_asked + (0 if asked_before else 1)
        dispatch = f"planner.{state.round + 1}.{number}"
        message_body = {"dispatch": dispatch, "round": state.round + 1, "reserved": asdict(upper)}
        # Before the question: if the process dies, the bill counts what was reserved for it.
        self.bus.post(
            MessageKind.DISPATCH, f"dispatch/{dispatch}", RUN, PLANNER, message_body, request
        )
        began = time.monotonic()
        if reserved is None:
            self._take_plan(dispatch, await self.planner.ask(question), 0.0)
            return
        try:
            answer = await self.planner.ask(question)
        except NoAnswer as error:
            self.budget.settle(reserved, error.usage)
            text = self._redact(error.text)
            body = {
                "dispatch": dispatch,
                "text": text,
                **self._spending(error, time.monotonic() - began),
            }
            self.bus.post(MessageKind.NOTE, f"note/{dispatch}", PLANNER, RUN, body)
            raise
        except EvolvableError:  # a hand-off: nobody answered yet, and nothing is spent
            self.budget.release(reserved)
            raise
        except BaseException:
            self.budget.settle(reserved, _NOTHING, lost=True)
            raise
        self.budget.settle(reserved, answer.usage)
        self._take_plan(dispatch, answer, time.monotonic() - began)

    def _take_plan(self, dispatch: str, answer: ModelAnswer, wall: float) -> None:
        state = self.state
        change, refused = check_plan_answer(state, answer.value, state.settings["agents"])
        # Of a plan that is not taken the reason is kept, and not its 10,000 items.
        plan_change = PlanChange() if refused else change
        body = {"dispatch": dispatch, "by": answer.by, **self._spending(answer, wall)}
        body |= {
            "change": self.redactor.redact_value(plan_change.to_json())[0],
            "refused": self._redact(refused),
        }
        # Redacted before it is stored: a planner may repeat a secret that an item's result held.
        self.bus.post(
            MessageKind.REPLAN,
            f"replan/{state.round + 1}",
            PLANNER,
            RUN,
            body,
        )
        self._publish()

    async def _work(self) -> bool:
        """Run what is ready and what becomes ready by it.

        Return False when the budget does not cover what is left.
        """
        flying: dict[str, _Flight] = {}
        try:
            while True:
                self._check()
                pause = self._start(flying)
                if flying:
                    done = await self.backend.poll(None if math.isinf(pause) else pause)
                    for ticket, attempt in done:
                        flight = flying.pop(ticket)
                        self._settle(
                            flight, self.workers.read(attempt), attempt.rollout.retry_after
                        )
                    await self._judge()
                elif not self.state.ready or math.isinf(pause):
                    return not self.state.ready
                else:
                    await asyncio.sleep(min(pause, self.budget.seconds_left))
        finally:
            # Whatever ended the loop: no worker goes on without somebody who pays for it and reads
            # its result.
            await self.backend.cancel(list(flying))
            for flight in flying.values():
                self.budget.settle(flight.reservation, _NOTHING, lost=True)

    def _start(self, flying: dict[str, _Flight]) -> float:
        """Dispatch what may begin now.

        Return in how many seconds more may, inf when something must end first.
        """
        for item in self.state.ready:
            if pause := self.throttle.wait(len(flying)):
                return pause
            attempt = self.state.dispatches.get(item.id, 0)
            dispatch = f"{item.id}.{attempt + 1}"
            try:
                work = self.workers.prepare(item, attempt, self.state.results_for(item))
            except TryAgain:  # the run stops, and continues here
                raise
            except (
                EvolvableError
            ) as error:  # the agent may not run, or is gone: the planner hears why
                self._refuse(item, dispatch, error)
                continue
            reserved = self._reserve(self.budget.most, self.budget.longest)
            if reserved is None:
                return math.inf
            body: dict[str, Any] = {
                "dispatch": dispatch,
                "item": item.id,
                "agent": work.agent,
                "skills": list(work.skills),
            }
            body |= {"left_out": list(work.left_out), "reserved": asdict(reserved.upper)}
            body |= {"changed": list(work.changed)} if work.changed else {}
            refs = (work.agent, *work.skills)
            self.bus.post(
                MessageKind.DISPATCH, f"dispatch/{dispatch}", RUN, f"item:{item.id}", body, *refs
            )
            # After the message: a job without a message would be spent without a bill.
            ticket = self.backend.submit(work.job)
            flying[ticket] = _Flight(
                item, dispatch, attempt, work.agent, reserved, self.throttle.begin_trial()
            )
        return math.inf

    def _reserve(self, upper: ModelUsage, wall: float = 0.0) -> Reservation | None:
        try:
            return self.budget.reserve(upper, wall)
        except BudgetSpent:  # it is in money alone, and what was used has no price
            return None

    def _refuse(self, item: PlanItem, dispatch: str, error: EvolvableError) -> None:
        body = {
            "item": item.id,
            "agent": item.agent,
            "summary": shorten_bytes(error.text),
            "files": [],
        }
        self.bus.post(MessageKind.ERROR, f"error/{dispatch}.refused", RUN, PLANNER, body)

    def _settle(self, flight: _Flight, result: WorkResult, retry_after: float | None) -> None:
        """Record the result of a dispatch, and settle what it spent."""
        retry = result.retry and flight.attempt + 1 < MAX_ATTEMPTS
        body = {
            "dispatch": flight.dispatch,
            "item": flight.item.id,
            "agent": flight.agent,
            "summary": result.summary,
            "outcome": result.outcome,
            **({} if result.passed is None else {"passed": result.passed}),
            "read": list(result.read),
            "files": list(result.files),
            "retry": retry,
            "lost": result.lost,
        }
        spent = self._spending(result, result.wall)
        waits = self.judge is not None and flight.item.judge is not None and not result.retry
        if waits:
            body |= {"judge": flight.item.id, "unjudged": True, **spent}
            self.bus.post(
                MessageKind.NOTE, f"unjudged/{flight.dispatch}", f"item:{flight.item.id}", RUN, body
            )
        else:
            self._post_end(body, spent)
        # After the message, which holds the amount: the budget in memory is made from messages
        # again after a kill.
        self.budget.settle(flight.reservation, result.usage, lost=result.lost)
        self.budget.learn(result.usage, result.wall)
        self.throttle.end_trial(flight.began, retry_after)
        if not waits:
            self._keep_end(body)

    async def _judge(self) -> None:
        """Have the judge check what ended and waits for it. Raises RunStopped."""
        while self.judge is not None and (waiting := self.state.judging.waiting):
            name, ended = next(iter(waiting.items()))
            # What was spent is billed by the message that waits.
            body = {key: ended[key] for key in _END_KEYS} | await self.judge.check(
                self.state.items[name], ended
            )
            self._post_end(body, {})
            self._keep_end(body)

    def _post_end(self, body: Mapping[str, Any], spent: Mapping[str, Any]) -> None:
        kind = MessageKind.ERROR if body["outcome"] else MessageKind.RESULT
        refs = [file["sha256"] for file in body["files"]]
        name = f"{kind}/{body['dispatch']}"
        self.bus.post(
            kind,
            name,
            f"item:{body['item']}",
            PLANNER,
            {**body, **spent},
            *refs,
        )

    def _keep_end(self, body: Mapping[str, Any]) -> None:
        """Keep an end as evidence, and propose the lines that its worker left for memories."""
        name = body["item"]
        self.record(name)
        if not body["outcome"] and (remarks := self.workers.propose_memory(name, body["files"])):
            self.bus.post(
                MessageKind.NOTE,
                f"memory/{name}",
                RUN,
                RUN,
                {"text": "; ".join(remarks), "item": name},
            )

    def _spending(self, on: ModelAnswer | NoAnswer | WorkResult, wall: float) -> dict[str, Any]:
        return spending_fields(on.usage, on.attempts, wall, self.budget.elapsed)

    def _redact(self, text: str) -> str:
        return self.redactor.redact(text)[0]


_POLL = 0.2  # seconds between two checks whether somebody wants the run to stop


async def drive_until_stopped(run: AgsRun) -> None:
    """Drive a run; a request to stop cancels what is under way. Raises as `AgsRun.drive`."""
    driving = asyncio.create_task(run.drive())
    try:
        while not driving.done():
            await asyncio.wait([driving], timeout=_POLL)
            if run.stop() and not driving.done():
                driving.cancel()
        await driving
    except asyncio.CancelledError:
        if not run.stop():
            raise
        raise RunStopped(
            "The run was asked to stop.", "`evolvable lab ags resume` goes on with it."
        ) from None
    finally:
        driving.cancel()
        with contextlib.suppress(BaseException):
            await asyncio.gather(driving, return_exceptions=True)
