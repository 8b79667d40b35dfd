"""One batch of trials under way: what waits, what runs, and what is written down of it."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from evolvable_store.errors import EvolvableError
from evolvable_tools.evolve.attempt import Attempt, Job
from evolvable_tools.evolve.backends.backend import Backend
from evolvable_tools.evolve.budget import Budget, Reservation, Unpriced
from evolvable_tools.evolve.ledger import Ledger
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.rollout import Outcome, Trial, Usage
from evolvable_tools.evolve.task import Task
from evolvable_tools.evolve.throttle import Throttle
from evolvable_tools.evolve.trial_records import BROKEN, KnownTrials, fields_of, trial_of

_SHOWN = 500  # characters of what the last attempt said


class Failing(EvolvableError):
    """Attempt after attempt fails for want of infrastructure. What counted before is kept, the rest is tried anew."""


@dataclass(frozen=True, slots=True)
class Work:
    """One trial to be run: its job, the how-manieth attempt it is (from 0), and when it may start at the earliest."""

    key: str
    program: Program
    task: Task
    repeat: int
    attempt: int = 0
    not_before: float = -math.inf


@dataclass(frozen=True, slots=True)
class Means:
    """What a batch is run with. backoff: seconds before each retry; as many retries as it has entries.

    passes: the score from which on a trial passes. clock: seconds. upper, wall: the least that is reserved for one.
    breaker: attempts in a row that infrastructure may spoil, None for any number. intact: says why what was measured
    is worth nothing, as tasks or scorers were changed meanwhile, or ''.
    """

    ledger: Ledger
    backend: Backend
    budget: Budget
    throttle: Throttle
    known: KnownTrials
    backoff: Sequence[float]
    passes: float
    clock: Callable[[], float]
    job: Callable[[Work], Job]
    upper: Usage
    wall: float
    breaker: int | None = None
    intact: Callable[[], str] = str


@dataclass(frozen=True, slots=True)
class _Flight:
    work: Work
    reservation: Reservation
    era: int
    in_flight: int


class Batch:
    """Runs work to its end. Used once."""

    def __init__(self, name: str, work: Sequence[Work], means: Means) -> None:
        self._name, self._means = name, means
        self._waiting = deque(work)
        self._again: list[Work] = []
        self._flying: dict[str, _Flight] = {}
        self._ended: dict[str, Trial] = {}
        self._spoiled, self._why = 0, ""
        self._unpriced: Unpriced | None = None

    async def run(self) -> Mapping[str, Trial]:
        """Returns the trials by key. Raises BudgetSpent when something could not be started any more, after all that
        was under way has ended; it is all in the ledger. When it is cancelled, what is under way is stopped. Raises
        Failing when one attempt after the other is spoiled, once for each named batch.
        """
        means = self._means
        try:
            while self._waiting or self._again or self._flying:
                pause = self._start()
                if self._flying:
                    limit = None if math.isinf(pause) else pause
                    self._take_in(await means.backend.poll(limit))
                    self._check_breaker()
                elif self._unpriced is not None:
                    raise self._unpriced
                elif math.isinf(pause) or not means.budget.seconds_left:
                    raise means.budget.spent(*means.budget.upper(means.upper, means.wall))
                else:
                    await asyncio.sleep(min(pause, means.budget.seconds_left))
        finally:
            await means.backend.cancel(list(self._flying))
            for flight in self._flying.values():
                means.budget.settle(flight.reservation, Usage(), lost=True)
        return self._ended

    def _start(self) -> float:
        """Starts what may start now; returns in how many seconds more may, inf when something must end first."""
        means = self._means
        starting: list[tuple[Work, Reservation, int]] = []
        upper, wall = means.budget.upper(means.upper, means.wall)
        try:
            while True:
                pause = self._pause(len(starting))
                if pause:
                    break
                try:
                    reservation = means.budget.reserve(upper, wall)
                except Unpriced as error:  # what is under way is paid, so it may end
                    self._unpriced, reservation = error, None
                if reservation is None:
                    pause = math.inf
                    break
                starting.append((self._next(), reservation, len(self._flying) + len(starting) + 1))
            self._write_started(starting)
            while starting:
                work, reservation, in_flight = starting[0]
                ticket = means.backend.submit(means.job(work))
                self._flying[ticket] = _Flight(work, reservation, means.throttle.began(), in_flight)
                starting.pop(0)
        except BaseException:
            for _, reservation, _ in starting:
                means.budget.release(reservation)
            raise
        return pause

    def _pause(self, starting: int) -> float:
        """Returns in how many seconds one more may start, as far as the provider and the queue are concerned."""
        pause = self._means.throttle.wait(len(self._flying) + starting)
        if self._waiting:
            return pause
        if not self._again:
            return math.inf
        return max(pause, self._soonest().not_before - self._means.clock(), 0.0)

    def _soonest(self) -> Work:
        return min(self._again, key=lambda work: work.not_before)

    def _next(self) -> Work:
        """Takes what is to start now out of the queue: what is tried again before what is new."""
        if self._again:
            again = self._soonest()
            if again.not_before <= self._means.clock():
                self._again.remove(again)
                return again
        return self._waiting.popleft()

    def _write_started(self, starting: Sequence[tuple[Work, Reservation, int]]) -> None:
        if not starting:
            return
        self._means.ledger.append_all(
            (
                "started",
                {
                    "key": work.key,
                    "batch": self._name,
                    "task": work.task.id,
                    "program": work.program.digest,
                    "repeat": work.repeat,
                    "attempt": work.attempt,
                    "reserved": {name: getattr(reservation.upper, name) for name in Usage.__slots__},
                },
            )
            for work, reservation, _ in starting
        )

    def _take_in(self, done: Sequence[tuple[str, Attempt]]) -> None:
        """Settles what has ended, writes it down, and puts what is tried again back into the queue."""
        means = self._means
        changed = means.intact() if done else ""
        if changed:
            done = [(ticket, _tampered(attempt, changed)) for ticket, attempt in done]
        ended = [(self._flying[ticket], attempt) for ticket, attempt in done]
        trials = [self._trial(flight.work, attempt) for flight, attempt in ended]
        elapsed = means.budget.elapsed
        means.ledger.append_all(
            (
                "trial",
                fields_of(
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
            means.budget.settle(flight.reservation, trial.usage, judging=trial.judging, lost=attempt.lost)
            means.budget.learn(trial.usage, trial.wall, trial.judging)
            means.throttle.ended(flight.era, attempt.rollout.retry_after)
            means.known.add(self._name, trial, attempt.final)
            spoiled = trial.outcome is Outcome.INFRA_ERROR and not attempt.final
            if spoiled and flight.work.attempt < len(means.backoff):
                wait = max(means.backoff[flight.work.attempt], attempt.rollout.retry_after or 0.0)
                again = replace(flight.work, attempt=flight.work.attempt + 1, not_before=means.clock() + wait)
                self._again.append(again)
                last = False
            else:
                self._ended[trial.key] = trial
                last = True
            self._count(trial, last or attempt.rollout.retry_after is None)

    def _count(self, trial: Trial, counts: bool) -> None:
        """Counts what was spoiled in a row. A provider that asks to wait is only counted when it asked for the last
        time.
        """
        if trial.outcome is not Outcome.INFRA_ERROR:
            self._spoiled = 0
        elif counts:
            self._spoiled += 1
            self._why = trial.detail

    def _check_breaker(self) -> None:
        means = self._means
        if means.breaker is None or self._spoiled < means.breaker or self._name in means.known.broken:
            return
        means.ledger.append(BROKEN, {"batch": self._name, "why": self._why})
        means.known.broke(self._name)
        raise Failing(
            f"{self._spoiled} attempts in a row failed, and none came to a result; the last one said:"
            f" {self._why[:_SHOWN].rstrip('.') or 'nothing'}.",
            "Mend that, and continue the run: they are tried anew. What fails then counts as missing.",
        )

    def _trial(self, work: Work, attempt: Attempt) -> Trial:
        return trial_of(work.key, work.task.id, work.program.digest, work.repeat, attempt, self._means.passes)


def _tampered(attempt: Attempt, why: str) -> Attempt:
    """Returns an attempt that is counted as nothing, and paid all the same."""
    if attempt.outcome is None or attempt.outcome.counts:
        return replace(attempt, outcome=Outcome.TAMPERED, score=None, detail=why, final=True)
    return attempt
