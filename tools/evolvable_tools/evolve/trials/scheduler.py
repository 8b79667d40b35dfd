"""Run a batch of trials: how many at once, in which order, and what is recorded.

All arms take turns on every task, so that a drift favours none of them.
"""

import asyncio
import hashlib
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evolvable_store.errors import EvolvableError
from evolvable_tools.evolve.candidates.programs import Program
from evolvable_tools.evolve.ledger.run_directory import Ledger
from evolvable_tools.evolve.task import ModelUsage, Task, Trial, TrialOutcome
from evolvable_tools.evolve.trials.budget import PriceUnknown, Reservation, RunBudget
from evolvable_tools.evolve.trials.trial import (
    BROKEN_BATCH,
    TrialAttempt,
    TrialBackend,
    TrialCache,
    TrialJob,
    to_trial,
    trial_fields,
)
from evolvable_tools.sandbox import Sandbox

SUCCESSES_TO_RAISE = 20
"""Trials in a row that were not throttled before one more may run at once."""

USUAL_CONCURRENCY, MAX_CONCURRENCY = 4, 16
"""Trials at once: in the beginning, and at most."""

_PAUSE, _LONGEST_PAUSE = 2.0, 60.0  # seconds, where the provider does not say how long


class ConcurrencyLimit:
    """Additive increase, multiplicative decrease, for one provider; several measurements may share it.

    `limit` is how many may run now. `clock` gives seconds.
    """

    def __init__(
        self,
        start: int = USUAL_CONCURRENCY,
        least: int = 1,
        most: int = MAX_CONCURRENCY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = max(least, min(start, most))
        self._least, self._most, self._clock = least, most, clock
        self._fine = 0
        self._era = 0
        self._until = -math.inf
        self._pause = _PAUSE

    def wait(self, in_flight: int) -> float:
        """Return in how many seconds one more may start beside so many: 0 at once, inf when one has ended."""
        if in_flight >= self.limit:
            return math.inf
        return max(0.0, self._until - self._clock())

    def began(self) -> int:
        """Return what `ended` wants to know of a trial that begins now."""
        return self._era

    def ended(self, began: int, retry_after: float | None = None) -> None:
        """Note that a trial ended. retry_after: seconds that the provider asks to wait; 0 when it throttled
        without saying how long; None when it did not throttle.
        """
        if retry_after is None:
            self._fine += 1
            self._pause = _PAUSE
            if self._fine >= SUCCESSES_TO_RAISE:
                self._fine = 0
                self.limit = min(self._most, self.limit + 1)
            return
        self._until = max(self._until, self._clock() + (retry_after or self._pause))
        if began == self._era:  # else it began before the last halving, which was for the likes of it
            self._era += 1
            self._fine = 0
            self.limit = max(self._least, self.limit // 2)
            self._pause = min(_LONGEST_PAUSE, self._pause * 2)


def make_concurrency_limit(at_once: int) -> ConcurrencyLimit:
    """Return the throttle of a run that begins with so many trials at once.

    A wish for fewer than usual is the maximum; else there may be up to 16, or what was wanted.
    """
    return ConcurrencyLimit(at_once, most=at_once if at_once < USUAL_CONCURRENCY else max(MAX_CONCURRENCY, at_once))


TrialRequest = tuple[Program, Task, int]
"""What is to be measured: a task under a program, and which repeat."""


def interleave(requests: Sequence[TrialRequest]) -> list[int]:
    """Return the indices of the requests in the order to run them; the same requests give the same order.

    Tasks come as the batch first names them, each with all its arms side by side before the next. Which arm of a task
    goes first is decided by the task's hash, so that over a batch none is always the first.
    """
    groups: dict[tuple[int, str], list[int]] = {}
    for index, (_, task, repeat) in enumerate(requests):
        groups.setdefault((repeat, task.digest), []).append(index)
    order: list[int] = []
    for (repeat, digest), indices in groups.items():
        first = hashlib.sha256(f"{digest} {repeat}".encode()).digest()[0] % len(indices)
        order += indices[first:] + indices[:first]
    return order


_MAX_DETAIL = 500  # characters of what the last attempt said


class TrialsFailing(EvolvableError):
    """Attempt after attempt fails for want of infrastructure. What counted before is kept, the rest is tried again."""


@dataclass(frozen=True, slots=True)
class PendingTrial:
    """One trial to be run: its job, the how-manieth attempt it is (from 0), and when it may start at the earliest."""

    key: str
    program: Program
    task: Task
    repeat: int
    attempt: int = 0
    not_before: float = -math.inf


BACKOFF = (5.0, 30.0)
"""Seconds before the first and the second retry of what infrastructure spoiled. A trial that fails once more is
missing."""


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """How trials are run.

    folder: where workspaces are made, for this alone; what a killed process left there is removed. image: names the
    environment that the executor runs in. passes: the score from which on a trial passes. backoff: seconds before
    each retry of an infrastructure error. upper, wall: the least that is reserved for one trial; it grows to the most
    that one took. environment: all of it for setup commands, by default ours. patience: seconds beyond a task's time
    after which an executor is given up. breaker: attempts in a row that infrastructure may spoil before a batch is
    given up; None: any number. sandbox: what setup commands run in; hidden: folders that they do not see there.
    """

    folder: Path | None = None
    image: str = ""
    passes: float = 1.0
    backoff: Sequence[float] = BACKOFF
    upper: ModelUsage = ModelUsage()
    wall: float = 0.0
    environment: Mapping[str, str] | None = None
    patience: float = 60.0
    breaker: int | None = None
    sandbox: Sandbox | None = None
    hidden: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchContext:
    """The collaborators of a batch.

    clock: seconds. intact: returns why tasks or scorers are not the recorded ones, or ''.
    """

    ledger: Ledger
    backend: TrialBackend
    budget: RunBudget
    throttle: ConcurrencyLimit
    known: TrialCache
    settings: TrialSettings
    clock: Callable[[], float]
    job: Callable[[PendingTrial], TrialJob]
    intact: Callable[[], str] = str


@dataclass(frozen=True, slots=True)
class _Flight:
    work: PendingTrial
    reservation: Reservation
    era: int
    in_flight: int


class TrialBatch:
    """Runs work to its end. Used once."""

    def __init__(self, name: str, work: Sequence[PendingTrial], context: BatchContext) -> None:
        self._name, self._context = name, context
        self._waiting = deque(work)
        self._again: list[PendingTrial] = []
        self._flying: dict[str, _Flight] = {}
        self._ended: dict[str, Trial] = {}
        self._spoiled, self._why = 0, ""
        self._unpriced: PriceUnknown | None = None

    async def run(self) -> Mapping[str, Trial]:
        """Return the trials by key. Raises BudgetSpent when something could not be started any more, after all that
        was under way has ended; it is all in the ledger. When it is cancelled, what is under way is stopped. Raises
        TrialsFailing when one attempt after the other is spoiled, once for each named batch.
        """
        context = self._context
        try:
            while self._waiting or self._again or self._flying:
                pause = self._start()
                if self._flying:
                    limit = None if math.isinf(pause) else pause
                    self._take_in(await context.backend.poll(limit))
                    self._check_breaker()
                elif self._unpriced is not None:
                    raise self._unpriced
                elif math.isinf(pause) or not context.budget.seconds_left:
                    raise context.budget.spent(*context.budget.upper(context.settings.upper, context.settings.wall))
                else:
                    await asyncio.sleep(min(pause, context.budget.seconds_left))
        finally:
            await context.backend.cancel(list(self._flying))
            for flight in self._flying.values():
                context.budget.settle(flight.reservation, ModelUsage(), lost=True)
        return self._ended

    def _start(self) -> float:
        """Start what may start now; returns in how many seconds more may, inf when something must end first."""
        context = self._context
        starting: list[tuple[PendingTrial, Reservation, int]] = []
        upper, wall = context.budget.upper(context.settings.upper, context.settings.wall)
        try:
            while True:
                pause = self._pause(len(starting))
                if pause:
                    break
                try:
                    reservation = context.budget.reserve(upper, wall)
                except PriceUnknown as error:  # what is under way is paid, so it may end
                    self._unpriced, reservation = error, None
                if reservation is None:
                    pause = math.inf
                    break
                starting.append((self._next(), reservation, len(self._flying) + len(starting) + 1))
            self._write_started(starting)
            while starting:
                work, reservation, in_flight = starting[0]
                ticket = context.backend.submit(context.job(work))
                self._flying[ticket] = _Flight(work, reservation, context.throttle.began(), in_flight)
                starting.pop(0)
        except BaseException:
            for _, reservation, _ in starting:
                context.budget.release(reservation)
            raise
        return pause

    def _pause(self, starting: int) -> float:
        """Return in how many seconds one more may start, as far as the provider and the queue are concerned."""
        pause = self._context.throttle.wait(len(self._flying) + starting)
        if self._waiting:
            return pause
        if not self._again:
            return math.inf
        return max(pause, self._soonest().not_before - self._context.clock(), 0.0)

    def _soonest(self) -> PendingTrial:
        return min(self._again, key=lambda work: work.not_before)

    def _next(self) -> PendingTrial:
        """Take what is to start now out of the queue: what is tried again before what is new."""
        if self._again:
            again = self._soonest()
            if again.not_before <= self._context.clock():
                self._again.remove(again)
                return again
        return self._waiting.popleft()

    def _write_started(self, starting: Sequence[tuple[PendingTrial, Reservation, int]]) -> None:
        if not starting:
            return
        self._context.ledger.append_all(
            (
                "started",
                {
                    "key": work.key,
                    "batch": self._name,
                    "task": work.task.id,
                    "program": work.program.digest,
                    "repeat": work.repeat,
                    "attempt": work.attempt,
                    "reserved": {name: getattr(reservation.upper, name) for name in ModelUsage.__slots__},
                },
            )
            for work, reservation, _ in starting
        )

    def _take_in(self, done: Sequence[tuple[str, TrialAttempt]]) -> None:
        """Settle what has ended, writes it down, and puts what is tried again back into the queue."""
        context = self._context
        changed = context.intact() if done else ""
        if changed:
            done = [(ticket, _mark_tampered(attempt, changed)) for ticket, attempt in done]
        ended = [(self._flying[ticket], attempt) for ticket, attempt in done]
        trials = [self._trial(flight.work, attempt) for flight, attempt in ended]
        elapsed = context.budget.elapsed
        context.ledger.append_all(
            (
                "trial",
                trial_fields(
                    trial,
                    attempt,
                    batch=self._name,
                    attempt=flight.work.attempt,
                    in_flight=flight.in_flight,
                    elapsed=elapsed,
                    lost=attempt.lost,
                    final=attempt.final,
                ),
            )
            for trial, (flight, attempt) in zip(trials, ended, strict=True)
        )
        for (ticket, attempt), trial in zip(done, trials, strict=True):
            flight = self._flying.pop(ticket)
            context.budget.settle(flight.reservation, trial.usage, judging=trial.judging, lost=attempt.lost)
            context.budget.learn(trial.usage, trial.wall, trial.judging)
            context.throttle.ended(flight.era, attempt.rollout.retry_after)
            context.known.add(self._name, trial, attempt.final)
            spoiled = trial.outcome is TrialOutcome.INFRA_ERROR and not attempt.final
            if spoiled and flight.work.attempt < len(context.settings.backoff):
                wait = max(context.settings.backoff[flight.work.attempt], attempt.rollout.retry_after or 0.0)
                again = replace(flight.work, attempt=flight.work.attempt + 1, not_before=context.clock() + wait)
                self._again.append(again)
                last = False
            else:
                self._ended[trial.key] = trial
                last = True
            self._count(trial, last or attempt.rollout.retry_after is None)

    def _count(self, trial: Trial, counts: bool) -> None:
        """Count what was spoiled in a row. A provider that asks to wait is only counted when it asked for the last
        time.
        """
        if trial.outcome is not TrialOutcome.INFRA_ERROR:
            self._spoiled = 0
        elif counts:
            self._spoiled += 1
            self._why = trial.detail

    def _check_breaker(self) -> None:
        context = self._context
        if (
            context.settings.breaker is None
            or self._spoiled < context.settings.breaker
            or self._name in context.known.broken
        ):
            return
        context.ledger.append(BROKEN_BATCH, {"batch": self._name, "why": self._why})
        context.known.broke(self._name)
        raise TrialsFailing(
            f"{self._spoiled} attempts in a row failed, and none came to a result; the last one said:"
            f" {self._why[:_MAX_DETAIL].rstrip('.') or 'nothing'}.",
            "Fix that, and continue the run: they are tried again. What fails then counts as missing.",
        )

    def _trial(self, work: PendingTrial, attempt: TrialAttempt) -> Trial:
        return to_trial(
            work.key, work.task.id, work.program.digest, work.repeat, attempt, self._context.settings.passes
        )


def _mark_tampered(attempt: TrialAttempt, why: str) -> TrialAttempt:
    """Return an attempt that is counted as nothing, and paid all the same."""
    if attempt.outcome is None or attempt.outcome.counts:
        return replace(attempt, outcome=TrialOutcome.TAMPERED, score=None, detail=why, final=True)
    return attempt
