"""Measure programs on tasks: reuse the trials that count, run the missing ones, record all of them.

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
"""A trial to be measured: the program, the task, and the number of the repeat."""


def interleave(requests: Sequence[TrialRequest]) -> list[int]:
    """Return the indices of the requests in the order to run them.

    Tasks come as the batch first names them, each with all its arms side by side before the next.
    The task's hash decides which arm goes first, so that over a batch none is always the first. The
    same requests give the same order.
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
"""The beginning of the names of batches of the sealed test."""

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
            is_pass = value is not None and value >= passes
            outcome = TrialOutcome.PASS if is_pass else TrialOutcome.FAIL
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
"""Seconds before the first and the second retry of a trial that failed by infrastructure.

A trial that fails once more is missing.
"""


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """Settings of a runner.

    folder: of the workspaces, and of nothing else; workspaces of a killed process are removed.
    passes: the score from which on a trial passes. backoff: seconds before each retry of an
    infrastructure error. patience: seconds beyond a task's time after which an executor is given
    up. breaker: infrastructure errors in a row after which a batch is given up; None: any number.
    host: the host of setup commands.
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
        # Failures in a row by infrastructure, and the detail of the last.
        self._failures, self._last_detail = 0, ""
        self._unpriced: PriceUnknown | None = None

    async def run(self) -> Mapping[str, Trial]:
        """Return the trials by key.

        When it is cancelled, the trials under way are stopped. Raises BudgetSpent when a trial
        could not be started, after all trials under way have ended and are in the ledger. Raises
        TrialsFailing when infrastructure fails again and again, once for each named batch.
        """
        runner = self._runner
        try:
            while self._waiting or self._again or self._flying:
                pause = self._start_trials()
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
            # A cancelled or broken batch leaves no job running. What these jobs took is unknown.
            await runner.backend.cancel(list(self._flying))
            for flight in self._flying.values():
                runner.budget.settle(flight.reservation, ModelUsage(), lost=True)
        return self._ended

    def _start_trials(self) -> float:
        """Start the trials that may start now.

        Return the seconds until another one may, inf when a trial has to end first.
        """
        runner = self._runner
        starting: list[_Flight] = []
        try:
            while True:
                pause = self._find_pause(len(starting))
                if pause:
                    break
                try:
                    reservation = runner.budget.reserve(runner.budget.most, runner.budget.longest)
                except PriceUnknown as error:
                    # Raised later: the trials under way are paid for, so they may end.
                    self._unpriced, reservation = error, None
                if reservation is None:
                    pause = math.inf
                    break
                in_flight = len(self._flying) + len(starting) + 1
                began = runner.throttle.begin_trial()
                starting.append(_Flight(self._take_next(), reservation, began, in_flight))
            if starting:
                # On the disk before the first job starts: after a kill the budget counts all that
                # may have been spent.
                runner.ledger.append_all(
                    ("started", self._started_fields(flight)) for flight in starting
                )
            # One by one, so that an error releases the reservations of jobs that were not
            # submitted.
            while starting:
                ticket = runner.backend.submit(runner.make_job(starting[0].work))
                self._flying[ticket] = starting.pop(0)
        except BaseException:
            for flight in starting:
                runner.budget.release(flight.reservation)
            raise
        return pause

    def _find_pause(self, starting: int) -> float:
        """Return the seconds until one more trial may start, by the provider and the queue."""
        pause = self._runner.throttle.wait(len(self._flying) + starting)
        if self._waiting:
            return pause
        if not self._again:
            return math.inf
        return max(pause, self._find_soonest().not_before - self._runner.clock(), 0.0)

    def _find_soonest(self) -> PendingTrial:
        return min(self._again, key=lambda work: work.not_before)

    def _take_next(self) -> PendingTrial:
        """Take the trial that starts now out of the queue: a retry before a new one."""
        if self._again:
            again = self._find_soonest()
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
        """Settle the trials that ended, record them, and queue those to be retried."""
        runner = self._runner
        # Before the records are made: a trial on changed files must not be recorded as a result.
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
            work, backoff = flight.work, runner.settings.backoff
            has_failed = trial.outcome is TrialOutcome.INFRA_ERROR and not attempt.final
            again = has_failed and work.attempt < len(backoff)
            if again:
                # The provider's own wait counts where it is longer.
                wait = max(backoff[work.attempt], attempt.rollout.retry_after or 0.0)
                not_before = runner.clock() + wait
                retry = replace(work, attempt=work.attempt + 1, not_before=not_before)
                self._again.append(retry)
            else:
                self._ended[trial.key] = trial
            self._count_failure(trial, not again or attempt.rollout.retry_after is None)

    def _trial_records(
        self, flight: _Flight, trial: Trial, attempt: TrialAttempt
    ) -> Iterator[tuple[str, Any]]:
        """Yield the records of a trial: of each request to a model, of each round, then its own."""
        task, about = flight.work.task, {"batch": self._name, "attempt": flight.work.attempt}
        yield from attempt_records(trial.key, attempt, **about)
        yield from round_records(task, trial, attempt, **about)
        about |= {"in_flight": flight.in_flight, "elapsed": self._runner.budget.elapsed}
        if trial.outcome.counts:
            about |= code_fields(task, attempt.outcome, attempt.score)
        yield "trial", trial_fields(trial, attempt, **about)

    def _count_failure(self, trial: Trial, counts: bool) -> None:
        """Count the failures in a row by infrastructure.

        counts: False for a trial that is tried again because its provider asked to wait.
        """
        # Crashes count in the pilot alone: there they are of the base. A candidate may crash on
        # every task.
        crashed = trial.detail.startswith(CRASHED) and self._name.partition("/")[0] == "calibrate"
        if trial.outcome is not TrialOutcome.INFRA_ERROR and not crashed:
            self._failures = 0
        elif counts:
            self._failures += 1
            self._last_detail = trial.detail

    def _check_breaker(self) -> None:
        runner, most = self._runner, self._runner.settings.breaker
        # A continued run tries the failed trials once more, so it does not give up a batch twice.
        if most is None or self._failures < most or self._name in runner.cache.broken:
            return
        # Recorded before it is raised: the run that continues knows by it that failures are to be
        # retried.
        runner.ledger.append(BROKEN_BATCH, {"batch": self._name, "why": self._last_detail})
        runner.cache.forget_failures(self._name)
        reason = f"the last one said: {self._last_detail[:_MAX_DETAIL].rstrip('.') or 'nothing'}"
        # The detail may name a sealed task, or quote it.
        if self._name.startswith(SEALED_BATCH):
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

    files: of the task set. scoring: by default the scorer of each task, with all these files.
    budget, throttle, backend: may be shared; by default no limit, four to sixteen at once, and
    tasks of this process. intact: called whenever trials end. It returns '', or why they are void
    because tasks or scorers changed meanwhile; such trials are TAMPERED.
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
        self.throttle = throttle or ConcurrencyLimit(clock=clock)
        self.backend = backend or AsyncioBackend()
        self.clock, self.intact = clock, intact
        self.cache = TrialCache.from_records(ledger.records)
        # Guards `cache` from the look-up of trials to their end: two measurements at once would run
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
        """Return a trial for each request, in the order of the requests.

        The programs run interleaved. A trial that counted before is `cached` and costs nothing. One
        that failed by infrastructure is tried again as often as there are backoffs. Then it is
        returned as INFRA_ERROR: it is missing, and no verdict.

        batch: the name of the measurement. A second call with the same name continues it, also in
        another process after a kill, and returns the same trials. Trials that failed for good stay
        missing, and none that it ran itself is `cached`. With another name, or without one, missing
        trials run again.

        Raises BudgetSpent after all trials under way have ended, TrialsFailing, LedgerError, and
        the exception of a cancellation. The ledger keeps everything measured until then.
        """
        async with self._turn:
            with self.budget.running():
                # Each program's digest once: it is a hash over all its files.
                programs = {id(program): program for program, _, _ in requests}
                digests = {id_: program.digest for id_, program in programs.items()}
                keys = [
                    self.key(digests[id(program)], task, repeat)
                    for program, task, repeat in requests
                ]
                finished = self._find_finished(keys, batch)
                work = self._list_work(requests, keys, finished, batch)
                if work:
                    finished |= await TrialBatch(batch or "", work, self).run()
        passes = self.settings.passes
        return [
            _as_requested(finished[key], request, passes)
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

        A trial that a named batch takes from another batch is recorded as its own.
        """
        finished: dict[str, Trial] = {}
        copied: list[Trial] = []
        for key in dict.fromkeys(keys):
            trial = None if batch is None else self._find_in_batch(batch, key)
            if trial is None and (counted := self.cache.counted.get(key)):
                # A copy: the counted trial itself stays the one that was paid.
                trial = replace(counted, cached=True)
                if batch is not None:
                    copied.append(strip_texts(trial))
            if trial is not None:
                finished[key] = trial
        self.ledger.append_all(
            ("trial", trial_fields(trial, None, batch=batch or "")) for trial in copied
        )
        for trial in copied:
            self.cache.add(batch or "", trial)
        return finished

    def _find_in_batch(self, batch: str, key: str) -> Trial | None:
        """Return the trial that ended in this batch, or failed for good there, None without one."""
        ended = self.cache.ended.get((batch, key))
        if ended:
            return ended
        times, failed = self.cache.failed.get((batch, key), (0, None))
        return failed if times > len(self.settings.backoff) else None

    def _list_work(
        self,
        requests: Sequence[TrialRequest],
        keys: Sequence[str],
        finished: Mapping[str, Trial],
        batch: str | None,
    ) -> list[PendingTrial]:
        if all(key in finished for key in keys):
            return []
        work: dict[str, PendingTrial] = {}
        for index in interleave(requests):
            if (key := keys[index]) not in finished and key not in work:
                times = 0
                # A batch that is continued goes on counting the attempts that failed before.
                if batch is not None and (batch, key) in self.cache.failed:
                    times, _ = self.cache.failed[batch, key]
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
    if (trial.task, trial.outcome) == (task, outcome):
        return trial
    return replace(trial, task=task, outcome=outcome)
