"""Drive a run of agents: ask the planner, dispatch ready items, collect the results, ask again.

The run has no memory but its bus. Each step is a message before and a message after it. So a run
that was killed continues at its last step, and the bill counts the reservations of work whose end
is unknown.
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
# The fields that the message of an item's end takes from the message that waited for its judge.
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

    contracts: returns the present contract of the run's agents. publish: writes a plan as a
    version. record: records an ended item as evidence, by its id. improver: improves the run's own
    program between two rounds, None for none. judge: checks the items with a criterion.
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
        """The state after all messages so far."""
        return self.bus.state

    async def drive(self) -> None:
        """Drive the run to its end, or to a question to the person.

        Raises NeedsAnswer where the planner is a caller, NoAnswer, RunStopped.
        """
        if self.state.round:
            # The process before this one may have ended between an answer and its version.
            self._publish()
        with self.budget.running():
            # Each turn of the loop decides from the state alone, so that any process can continue
            # the run.
            while not self.state.ended:
                self._check_stop()
                # Items that an earlier process left unjudged.
                await self._judge_waiting()
                if self.state.ready:
                    if not await self._work_items():
                        self._end(EndReason.BUDGET)
                elif self.state.waits_for_person:
                    return
                elif reason := self.state.must_end:
                    self._end(reason)
                elif self.improver is None or not await self.improver.improve():
                    await self._ask_planner()
        self._publish()
        if self.improver is not None:
            self.improver.propose()

    def _check_stop(self) -> None:
        if self.stop():
            raise RunStopped(
                "The run was asked to stop.", "`evolvable lab ags resume` goes on with it."
            )

    def _end(self, reason: EndReason) -> None:
        name, body = f"done/{self.state.messages}", {"reason": reason.value}
        self.bus.post(MessageKind.DONE, name, RUN, RUN, body)

    def _publish(self) -> None:
        """Write the plan as a version.

        A plan that waits for a person, or is refused, is noted, and the run goes on.
        """
        # One proposal of a run is enough.
        if self.bus.has("note/plan"):
            return
        if why := self.publish(self.state.plan):
            self.bus.post(MessageKind.NOTE, "note/plan", RUN, RUN, {"text": why})

    async def _ask_planner(self) -> None:
        """Ask the planner once and take its answer; end where the budget does not cover that."""
        state = self.state
        question = plan_question(state, self.contracts())
        is_handed_off = isinstance(self.planner, HandOffModel)
        is_single_item = isinstance(self.planner, SingleItemPlan)
        # A caller and a plan of one item ask no model here, so nothing is reserved for them.
        asks_model = not is_handed_off and not is_single_item
        upper = ModelUsage(QUESTION_TOKENS, question.max_tokens, 1) if asks_model else _NOTHING
        request = self.folder.store_json(question.packet())
        # A plan of one item needs no budget: the item may have spent it, and its result counts.
        reserved = None if is_single_item else self._reserve(upper)
        if reserved is None and not is_single_item:
            self._end(EndReason.BUDGET)
            return
        asked_before = is_handed_off and state.request == request
        number = state.questions_asked + (0 if asked_before else 1)
        dispatch = f"planner.{state.round + 1}.{number}"
        message_body = {"dispatch": dispatch, "round": state.round + 1, "reserved": asdict(upper)}
        # Before the question: if the process dies, the bill counts its reservation.
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
            spending = self._list_spending(error, time.monotonic() - began)
            body = {"dispatch": dispatch, "text": self._redact(error.text), **spending}
            self.bus.post(MessageKind.NOTE, f"note/{dispatch}", PLANNER, RUN, body)
            raise
        except EvolvableError:
            # A hand-off: nobody answered yet, and nothing is spent.
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
        # Of a refused plan the reason is stored, and not its items, which may be thousands.
        plan_change = PlanChange() if refused else change
        body = {"dispatch": dispatch, "by": answer.by, **self._list_spending(answer, wall)}
        # Redacted before it is stored: a planner may repeat a secret of an item's result.
        body["change"] = self.redactor.redact_value(plan_change.to_json())[0]
        body["refused"] = self._redact(refused)
        self.bus.post(MessageKind.REPLAN, f"replan/{state.round + 1}", PLANNER, RUN, body)
        self._publish()

    async def _work_items(self) -> bool:
        """Run the ready items, and those that their results make ready.

        Return False when the budget does not cover the others.
        """
        flying: dict[str, _Flight] = {}
        try:
            while True:
                self._check_stop()
                pause = self._dispatch_ready(flying)
                if flying:
                    finished = await self.backend.poll(None if math.isinf(pause) else pause)
                    for ticket, attempt in finished:
                        flight, result = flying.pop(ticket), self.workers.read(attempt)
                        self._record_result(flight, result, attempt.rollout.retry_after)
                    await self._judge_waiting()
                elif not self.state.ready or math.isinf(pause):
                    return not self.state.ready
                else:
                    await asyncio.sleep(min(pause, self.budget.seconds_left))
        finally:
            # After any end of the loop: a worker whose result nobody reads must not run on.
            await self.backend.cancel(list(flying))
            for flight in flying.values():
                self.budget.settle(flight.reservation, _NOTHING, lost=True)

    def _dispatch_ready(self, flying: dict[str, _Flight]) -> float:
        """Dispatch the items that may begin now.

        Return the seconds until another one may, inf when one has to end first.
        """
        for item in self.state.ready:
            if pause := self.throttle.wait(len(flying)):
                return pause
            attempt = self.state.dispatches.get(item.id, 0)
            dispatch = f"{item.id}.{attempt + 1}"
            try:
                work = self.workers.prepare(item, attempt, self.state.results_for(item))
            except TryAgain:
                # The run stops, and a resumed run continues here.
                raise
            except EvolvableError as error:
                # The agent may not run, or was removed: the planner is told why.
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
                "left_out": list(work.left_out),
                "reserved": asdict(reserved.upper),
            }
            if work.changed:
                body["changed"] = list(work.changed)
            name, receiver, refs = f"dispatch/{dispatch}", f"item:{item.id}", work.skills
            self.bus.post(MessageKind.DISPATCH, name, RUN, receiver, body, work.agent, *refs)
            # After the message: a job without a message would be spent without a bill.
            ticket = self.backend.submit(work.job)
            began = self.throttle.begin_trial()
            flying[ticket] = _Flight(item, dispatch, attempt, work.agent, reserved, began)
        return math.inf

    def _reserve(self, upper: ModelUsage, wall: float = 0.0) -> Reservation | None:
        try:
            return self.budget.reserve(upper, wall)
        except BudgetSpent:
            # The budget is in money alone, and some work has no price.
            return None

    def _refuse(self, item: PlanItem, dispatch: str, error: EvolvableError) -> None:
        summary = shorten_bytes(error.text)
        body = {"item": item.id, "agent": item.agent, "summary": summary, "files": []}
        self.bus.post(MessageKind.ERROR, f"error/{dispatch}.refused", RUN, PLANNER, body)

    def _record_result(
        self, flight: _Flight, result: WorkResult, retry_after: float | None
    ) -> None:
        """Record the result of a dispatch, and settle its reservation."""
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
        spent = self._list_spending(result, result.wall)
        waits = self.judge is not None and flight.item.judge is not None and not result.retry
        if waits:
            body |= {"judge": flight.item.id, "unjudged": True, **spent}
            name, sender = f"unjudged/{flight.dispatch}", f"item:{flight.item.id}"
            self.bus.post(MessageKind.NOTE, name, sender, RUN, body)
        else:
            self._post_end(body, spent)
        # After the message, which has the usage: a killed run replays its budget from messages.
        self.budget.settle(flight.reservation, result.usage, lost=result.lost)
        self.budget.learn(result.usage, result.wall)
        self.throttle.end_trial(flight.began, retry_after)
        if not waits:
            self._record_end(body)

    async def _judge_waiting(self) -> None:
        """Have the judge check the ended items that wait for it. Raises RunStopped."""
        while self.judge is not None and (waiting := self.state.judging.waiting):
            name, ended = next(iter(waiting.items()))
            verdict = await self.judge.check(self.state.items[name], ended)
            body = {key: ended[key] for key in _END_KEYS} | verdict
            # Without spending: the message that waits has it.
            self._post_end(body, {})
            self._record_end(body)

    def _post_end(self, body: Mapping[str, Any], spent: Mapping[str, Any]) -> None:
        kind = MessageKind.ERROR if body["outcome"] else MessageKind.RESULT
        refs = [file["sha256"] for file in body["files"]]
        name, sender = f"{kind}/{body['dispatch']}", f"item:{body['item']}"
        self.bus.post(kind, name, sender, PLANNER, {**body, **spent}, *refs)

    def _record_end(self, body: Mapping[str, Any]) -> None:
        """Record an end as evidence, and propose the lines that its worker left for memories."""
        item = body["item"]
        self.record(item)
        if not body["outcome"] and (remarks := self.workers.propose_memory(item, body["files"])):
            note = {"text": "; ".join(remarks), "item": item}
            self.bus.post(MessageKind.NOTE, f"memory/{item}", RUN, RUN, note)

    def _list_spending(
        self, on: ModelAnswer | NoAnswer | WorkResult, wall: float
    ) -> dict[str, Any]:
        return spending_fields(on.usage, on.attempts, wall, self.budget.elapsed)

    def _redact(self, text: str) -> str:
        return self.redactor.redact(text)[0]


_POLL = 0.2  # seconds between two checks for a request to stop


async def drive_until_stopped(run: AgsRun) -> None:
    """Drive a run; a request to stop cancels its work. Raises as `AgsRun.drive`."""
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
