"""Measure programs on tasks: trials that count are reused, missing ones are run, and all of them
are written down.

All arms take turns on every task, so that a drift favours none of them.
"""

import asyncio
import hashlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.executors import (
    UNCONFINED,
    CommandHost,
    Executor,
    remove_stale_workspaces,
)
from evolvable_evolve.evolution.ledger import Ledger
from evolvable_evolve.evolution.scorers import TaskSetScorer
from evolvable_evolve.evolution.task import (
    CRASHED,
    ModelUsage,
    Task,
    Trial,
    TrialOutcome,
    task_fixtures,
)
from evolvable_evolve.evolution.trials.budget import (
    ConcurrencyLimit,
    PriceUnknown,
    Reservation,
    RunBudget,
)
from evolvable_evolve.evolution.trials.round_records import (
    attempt_records,
    code_fields,
    round_records,
)
from evolvable_evolve.evolution.trials.trial import (
    BROKEN_BATCH,
    AsyncioBackend,
    TrialAttempt,
    TrialBackend,
    TrialCache,
    TrialJob,
    TrialScorer,
    shorten_text,
    strip_texts,
    trial_fields,
    trial_key,
)
from evolvable_store.errors import EvolvableError

TrialRequest = tuple[Program, Task, int]
"""What is to be measured: a task under a program, and which repeat."""


def interleave(requests: Sequence[TrialRequest]) -> list[int]:
    """Return the indices of the requests in the order to run them; the same requests give the same
    order.

    Tasks come as the batch first names them, each with all its arms side by side before the next.
    Which arm of a task goes first is decided by the task's hash, so that over a batch none is
    always the first.
    """
    groups: dict[tuple[int, str], list[int]] = {}
    for index, (_, task, repeat) in enumerate(requests):
        groups.setdefault((repeat, task.digest), []).append(index)
    order: list[int] = []
    for (repeat, digest), indices in groups.items():
        first = hashlib.sha256(f"{digest} {repeat}".encode()).digest()[0] % len(indices)
        order += indices[first:] + indices[:first]
    return order


SEALED_BATCH = "test/"
"""How the names of batches of the sealed test begin."""

_MAX_DETAIL = 500  # characters of the last attempt's detail in the error


class TrialsFailing(EvolvableError):
    """Attempt after attempt fails for want of infrastructure.

    Trials that count are kept, the others are run again.
    """


@dataclass(frozen=True, slots=True)
class PendingTrial:
    """One trial to be run. attempt: its number, from 0. not_before: the earliest start, in seconds
    of the runner's clock.
    """

    key: str
    program: Program
    task: Task
    repeat: int
    attempt: int = 0
    not_before: float = -math.inf

    def to_trial(self, attempt: TrialAttempt, passes: float) -> Trial:
        """Return an attempt as a trial. passes: the score from which on it is a PASS."""
        rollout, score = attempt.rollout, attempt.score
        value = score.value if score else None
        outcome = attempt.outcome
        if outcome is None:
            outcome = (
                TrialOutcome.PASS if value is not None and value >= passes else TrialOutcome.FAIL
            )
        # An outcome that counts has no score of its own: a timeout is a failure, whatever it wrote.
        elif outcome.counts:
            value = float(outcome is TrialOutcome.PASS)
        return Trial(
            self.key,
            self.task.id,
            self.program.digest,
            self.repeat,
            outcome,
            value,
            rollout.usage,
            rollout.wall,
            shorten_text(rollout.output),
            shorten_text(rollout.trace),
            shorten_text(score.feedback) if score else "",
            rollout.read,
            shorten_text(attempt.detail),
            judging=attempt.judging,
        )


# A short fault is over after 5 s; the 30 s are for a provider that has to recover.
BACKOFF = (5.0, 30.0)
"""Seconds before the first and the second retry of a trial that infrastructure spoiled. One that
fails again is missing.
"""


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """How trials are run.

    folder: where workspaces are made, for this alone; what a killed process left there is removed.
    passes: the score from which on a trial passes. backoff: seconds before each retry of an
    infrastructure error. patience: seconds beyond a task's time after which an executor is given
    up. breaker: attempts in a row that infrastructure may spoil before a batch is given up; None:
    any number. host: what setup commands run with.
    """

    folder: Path | None = None
    passes: float = 1.0
    backoff: Sequence[float] = BACKOFF
    patience: float = 60.0
    breaker: int | None = None
    host: CommandHost = UNCONFINED


@dataclass(frozen=True, slots=True)
class _Flight:
    """A trial under way.

    began: see ConcurrencyLimit. in_flight: how many were under way, this one included.
    """

    work: PendingTrial
    reservation: Reservation
    began: int
    in_flight: int


class TrialBatch:
    """Runs work to its end. Used once."""

    def __init__(self, name: str, work: Sequence[PendingTrial], runner: "TrialRunner") -> None:
        self._name, self._runner = name, runner
        self._waiting = deque(work)
        self._again: list[PendingTrial] = []
        self._flying: dict[str, _Flight] = {}
        self._ended: dict[str, Trial] = {}
        self._spoiled, self._why = 0, ""
        self._unpriced: PriceUnknown | None = None

    async def run(self) -> Mapping[str, Trial]:
        """Return the trials by key. Raises BudgetSpent when something could not be started any
        more, after all that was under way has ended; it is all in the ledger. When it is cancelled,
        what is under way is stopped. Raises TrialsFailing when one attempt after the other is
        spoiled, once for each named batch.
        """
        runner = self._runner
        try:
            while self._waiting or self._again or self._flying:
                pause = self._start()
                if self._flying:
                    limit = None if math.isinf(pause) else pause
                    self._settle_finished(await runner.backend.poll(limit))
                    self._check_breaker()
                # Not before the trials under way have ended: they are paid for.
                elif self._unpriced is not None:
                    raise self._unpriced
                # Nothing runs and nothing may start, so waiting would last forever.
                elif math.isinf(pause) or not runner.budget.seconds_left:
                    raise runner.budget.shortage_error(runner.budget.most, runner.budget.longest)
                else:
                    await asyncio.sleep(min(pause, runner.budget.seconds_left))
        finally:
            # A cancelled or broken batch leaves no job running, and what those took is unknown.
            await runner.backend.cancel(list(self._flying))
            for flight in self._flying.values():
                runner.budget.settle(flight.reservation, ModelUsage(), lost=True)
        return self._ended

    def _start(self) -> float:
        """Start what may start now.

        Returns in how many seconds more may, inf when something must end first.
        """
        runner = self._runner
        starting: list[_Flight] = []
        try:
            while True:
                pause = self._pause(len(starting))
                if pause:
                    break
                try:
                    reservation = runner.budget.reserve(runner.budget.most, runner.budget.longest)
                except PriceUnknown as error:  # what is under way is paid, so it may end
                    self._unpriced, reservation = error, None
                if reservation is None:
                    pause = math.inf
                    break
                in_flight = len(self._flying) + len(starting) + 1
                starting.append(
                    _Flight(self._next(), reservation, runner.throttle.begin_trial(), in_flight)
                )
            if starting:
                # On the disk before the first job starts: after a kill the budget counts what may
                # have been spent.
                runner.ledger.append_all(
                    ("started", self._started_fields(flight)) for flight in starting
                )
            # One by one, so that an error releases the reservations of jobs that were not
            # submitted.
            while starting:
                self._flying[runner.backend.submit(runner.make_job(starting[0].work))] = starting[0]
                starting.pop(0)
        except BaseException:
            for flight in starting:
                runner.budget.release(flight.reservation)
            raise
        return pause

    def _pause(self, starting: int) -> float:
        """Return in how many seconds one more may start, as far as the provider and the queue are
        concerned.
        """
        pause = self._runner.throttle.wait(len(self._flying) + starting)
        if self._waiting:
            return pause
        if not self._again:
            return math.inf
        return max(pause, self._soonest().not_before - self._runner.clock(), 0.0)

    def _soonest(self) -> PendingTrial:
        return min(self._again, key=lambda work: work.not_before)

    def _next(self) -> PendingTrial:
        """Take what is to start now out of the queue: what is tried again before what is new."""
        if self._again:
            again = self._soonest()
            if again.not_before <= self._runner.clock():
                self._again.remove(again)
                return again
        return self._waiting.popleft()

    def _started_fields(self, flight: _Flight) -> dict[str, Any]:
        work = flight.work
        return {
            "key": work.key,
            "batch": self._name,
            "task": work.task.id,
            "program": work.program.digest,
            "repeat": work.repeat,
            "attempt": work.attempt,
            "reserved": asdict(flight.reservation.upper),
        }

    def _settle_finished(self, done: Sequence[tuple[str, TrialAttempt]]) -> None:
        """Settle the trials that ended, write them down, and queue again those to be retried."""
        runner = self._runner
        # Before the records are made: a trial on changed files must not be written down as a
        # result.
        changed = runner.intact() if done else ""
        if changed:
            done = [(ticket, _mark_tampered(attempt, changed)) for ticket, attempt in done]
        ended = [(self._flying[ticket], attempt) for ticket, attempt in done]
        trials = [
            flight.work.to_trial(attempt, runner.settings.passes) for flight, attempt in ended
        ]
        # On the disk before the state in memory: after a failed write all of them count as under
        # way.
        runner.ledger.append_all(
            record
            for trial, (flight, attempt) in zip(trials, ended, strict=True)
            for record in self._trial_records(flight, trial, attempt)
        )
        for (ticket, attempt), trial in zip(done, trials, strict=True):
            flight = self._flying.pop(ticket)
            runner.budget.settle(
                flight.reservation, trial.usage, judging=trial.judging, lost=attempt.lost
            )
            runner.budget.learn(trial.usage, trial.wall, trial.judging)
            runner.throttle.end_trial(flight.began, attempt.rollout.retry_after)
            runner.cache.add(self._name, trial, attempt.final)
            spoiled = trial.outcome is TrialOutcome.INFRA_ERROR and not attempt.final
            again = spoiled and flight.work.attempt < len(runner.settings.backoff)
            if again:
                # The provider's own wait counts where it is longer.
                wait = max(
                    runner.settings.backoff[flight.work.attempt], attempt.rollout.retry_after or 0.0
                )
                not_before = runner.clock() + wait
                self._again.append(
                    replace(flight.work, attempt=flight.work.attempt + 1, not_before=not_before)
                )
            else:
                self._ended[trial.key] = trial
            self._count(trial, not again or attempt.rollout.retry_after is None)

    def _trial_records(
        self, flight: _Flight, trial: Trial, attempt: TrialAttempt
    ) -> Iterator[tuple[str, Any]]:
        """Yield the records of a trial that ended: of each request to a model, of each round, and
        then its own.
        """
        task, about = flight.work.task, {"batch": self._name, "attempt": flight.work.attempt}
        yield from attempt_records(trial.key, attempt, **about)
        yield from round_records(task, trial, attempt, **about)
        about |= {"in_flight": flight.in_flight, "elapsed": self._runner.budget.elapsed}
        if trial.outcome.counts:
            about |= code_fields(task, attempt.outcome, attempt.score)
        yield "trial", trial_fields(trial, attempt, **about)

    def _count(self, trial: Trial, counts: bool) -> None:
        """Count what was spoiled in a row. A provider that asks to wait is only counted when it
        asked for the last time.
        """
        # A candidate may well crash on every task. The base has shown in the pilot that it does
        # not.
        crashed = trial.detail.startswith(CRASHED) and self._name.partition("/")[0] == "calibrate"
        if trial.outcome is not TrialOutcome.INFRA_ERROR and not crashed:
            self._spoiled = 0
        elif counts:
            self._spoiled += 1
            self._why = trial.detail

    # A continued run tries what failed once more, so the batch must not be given up twice.
    def _check_breaker(self) -> None:
        runner, most = self._runner, self._runner.settings.breaker
        if most is None or self._spoiled < most or self._name in runner.cache.broken:
            return
        # Recorded before it is raised: the run that continues knows by it that failures are to be
        # retried.
        runner.ledger.append(BROKEN_BATCH, {"batch": self._name, "why": self._why})
        runner.cache.forget_failures(self._name)
        reason = f"the last one said: {self._why[:_MAX_DETAIL].rstrip('.') or 'nothing'}"
        if self._name.startswith(SEALED_BATCH):  # the detail may name a sealed task, or quote it
            reason = "what the last one said is in test.jsonl of the run, for a person to read"
        # As many as the breaker allows; more may have ended at the same moment.
        raise TrialsFailing(
            f"{most} attempts in a row failed, and none came to a result; {reason}.",
            "Fix that, and continue the run: they are tried again. What fails then counts "
            "as missing.",
        )


def _mark_tampered(attempt: TrialAttempt, why: str) -> TrialAttempt:
    """Return an attempt that does not count and is billed all the same."""
    if attempt.outcome is None or attempt.outcome.counts:
        return replace(attempt, outcome=TrialOutcome.TAMPERED, score=None, detail=why, final=True)
    return attempt


class TrialRunner:
    """Runs trials of one executor into one ledger.

    files: those of the task set. scoring: by default as each task says, with all these files.
    budget, throttle, backend: may be shared; by default no limit, four to sixteen at once, and
    tasks of this process. intact: called whenever trials end; returns why they are void, because
    tasks or scorers were changed meanwhile, or ''. Such trials are TAMPERED.
    """

    def __init__(
        self,
        executor: Executor,
        ledger: Ledger,
        *,
        files: Mapping[str, bytes] | None = None,
        scoring: TrialScorer | None = None,
        budget: RunBudget | None = None,
        throttle: ConcurrencyLimit | None = None,
        backend: TrialBackend | None = None,
        settings: TrialSettings | None = None,
        intact: Callable[[], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.executor, self.ledger = executor, ledger
        self.settings = settings or TrialSettings()
        self.budget = budget or RunBudget(clock=clock)
        self.budget.add_ledger(ledger)
        self._files = files or {}
        self._scoring = scoring or TaskSetScorer(self._files, self.settings.host)
        self.throttle, self.backend = (
            throttle or ConcurrencyLimit(clock=clock),
            backend or AsyncioBackend(),
        )
        self.clock, self.intact = clock, intact
        self.cache = TrialCache.from_records(ledger.records)
        # Guards `known` from the look-up of trials to their end: two measurements at once would run
        # the same trial twice.
        self._turn = asyncio.Lock()
        # A scorer's digest is over all its files, and `key` is called for every repeat.
        self._scorers: dict[str, str] = {}
        if self.settings.folder is not None:
            # One driver at a time has this folder, so all that is in it belongs to dead processes.
            remove_stale_workspaces(self.settings.folder)

    async def measure(
        self, requests: Sequence[TrialRequest], batch: str | None = None
    ) -> list[Trial]:
        """Return a trial for each request, in the order of the requests; they run with all programs
        interleaved.

        A trial that counted before is `cached` and costs nothing. One that infrastructure spoiled
        is tried again as often as there are backoffs, and then comes back as INFRA_ERROR: it is
        missing, and no verdict.

        batch: names the measurement. Asked for again under the same name, also by another process
        after a kill, it goes on where it was and comes to the same trials: what failed for good
        stays missing, and nothing that it ran itself is `cached`. Under another name, or without
        one, missing trials run again.

        Raises BudgetSpent after all trials under way have ended, TrialsFailing, LedgerError, and
        what cancels it. The ledger keeps everything measured until then.
        """
        async with self._turn:
            with self.budget.running():
                programs = {
                    id(program): program.digest
                    for program in {id(program): program for program, _, _ in requests}.values()
                }
                keys = [
                    self.key(programs[id(program)], task, repeat)
                    for program, task, repeat in requests
                ]
                found = self._find_finished(keys, batch)
                work = self._work(requests, keys, found, batch)
                if work:
                    found |= await TrialBatch(batch or "", work, self).run()
        passes = self.settings.passes
        return [
            _as_requested(found[key], request, passes)
            for key, request in zip(keys, requests, strict=True)
        ]

    def key(self, program: str, task: Task, repeat: int) -> str:
        """Return the key of a trial: equal keys are the same trial. program: its digest."""
        scorer = self._scorers.get(task.digest)
        if scorer is None:
            scorer = self._scorers[task.digest] = self._scoring.digest(task)
        return trial_key(program, task.digest, scorer, self.executor.fingerprint, repeat)

    def _find_finished(self, keys: Sequence[str], batch: str | None) -> dict[str, Trial]:
        """Return the trials that need not be run.

        One that a named batch takes from another is recorded as its own.
        """
        found: dict[str, Trial] = {}
        copied: list[Trial] = []
        for key in dict.fromkeys(keys):
            trial = None if batch is None else self._of_batch(batch, key)
            if trial is None and (counted := self.cache.counted.get(key)):
                # A copy: the counted trial itself stays the one that was paid.
                trial = replace(counted, cached=True)
                if batch is not None:
                    copied.append(strip_texts(trial))
            if trial is not None:
                found[key] = trial
        self.ledger.append_all(
            ("trial", trial_fields(trial, None, batch=batch or "")) for trial in copied
        )
        for trial in copied:
            self.cache.add(batch or "", trial)
        return found

    def _of_batch(self, batch: str, key: str) -> Trial | None:
        """Return what this batch has come to for a trial, None while it has not."""
        times, failed = self.cache.failed.get((batch, key), (0, None))
        return self.cache.ended.get((batch, key)) or (
            failed if times > len(self.settings.backoff) else None
        )

    def _work(
        self,
        requests: Sequence[TrialRequest],
        keys: Sequence[str],
        found: Mapping[str, Trial],
        batch: str | None,
    ) -> list[PendingTrial]:
        if all(key in found for key in keys):
            return []
        work: dict[str, PendingTrial] = {}
        for index in interleave(requests):
            if (key := keys[index]) not in found and key not in work:
                # A batch that is continued goes on counting the attempts that failed before.
                times = (
                    0
                    if batch is None
                    else self.cache.failed.get(
                        (batch, key),
                        (0, None),
                    )[0]
                )
                work[key] = PendingTrial(key, *requests[index], times)
        return list(work.values())

    def make_job(self, work: PendingTrial) -> TrialJob:
        """Return the job of one trial."""
        return TrialJob(
            self.executor,
            self._scoring,
            work.task,
            work.program,
            work.repeat,
            task_fixtures(work.task, self._files),
            self.settings.folder,
            self.settings.patience,
            self.settings.host,
        )


def _as_requested(trial: Trial, request: TrialRequest, passes: float) -> Trial:
    """Return a trial under the id of the requested task, as PASS or FAIL by the present limit."""
    outcome = trial.outcome
    if outcome in (TrialOutcome.PASS, TrialOutcome.FAIL) and trial.score is not None:
        outcome = TrialOutcome.PASS if trial.score >= passes else TrialOutcome.FAIL
    task = request[1].id
    return (
        trial
        if (trial.task, trial.outcome) == (task, outcome)
        else replace(trial, task=task, outcome=outcome)
    )
