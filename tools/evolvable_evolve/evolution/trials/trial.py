"""One trial: its job, its attempt, the backend protocol, and its records in a ledger."""

import asyncio
import copyreg
import hashlib
import itertools
import json
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, Self

from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.executors import UNCONFINED, CommandHost, Executor, open_workspace
from evolvable_evolve.evolution.ledger import LedgerRecord
from evolvable_evolve.evolution.task import (
    CRASHED,
    ModelUsage,
    Rollout,
    Score,
    Solution,
    Task,
    Trial,
    TrialOutcome,
    add_usage,
)
from evolvable_store.errors import EvolvableError
from evolvable_tools.llm import ModelAttempt


def _read_only(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(mapping)


# Tasks and scores hold read-only mappings, which Python does not pickle by itself.
copyreg.pickle(MappingProxyType, lambda mapping: (_read_only, (dict(mapping),)))

# Retries help where a judge fails at times. A scorer that fails three times mostly fails always.
MAX_SCORINGS = 3
"""Attempts to score an answer when the scorer fails; the task is not run again for that."""


class TrialScorer(Protocol):
    """Scores the rollout of a task. Can be pickled."""

    async def __call__(self, task: Task, rollout: Rollout, workspace: Path) -> Score:
        """Return the score. An exception is a fault of the scorer, and never counts as 0."""
        ...

    def digest(self, task: Task) -> str:
        """Return a hash of all that decides the score of an answer to this task."""
        ...

    def known_answer(self, task: Task) -> tuple[str, Mapping[str, bytes]] | None:
        """Return an output and files that this scorer can score, None where there are none."""
        ...


@dataclass(frozen=True, slots=True)
class TrialJob:
    """The input of an attempt, as values: it can be pickled and run on another machine.

    scoring: None where only the answer is wanted. files: the first files of the workspace. place:
    the folder of workspaces, by default the system's temporary folder. patience: seconds beyond the
    task's own time after which the executor is given up. host: the host of the task's setup.
    """

    executor: Executor
    scoring: TrialScorer | None
    task: Task
    program: Program
    repeat: int
    files: Mapping[str, bytes] = field(default_factory=dict)
    place: Path | None = None
    patience: float = 60.0
    host: CommandHost = UNCONFINED


@dataclass(frozen=True, slots=True)
class TrialAttempt:
    """Result of a job: a score, or an outcome without one, with `detail` saying why.

    lost: its usage is unknown. final: a retry would not help, or was made already. judging: the
    usage of all its scorings. judged: their requests to a model behind an API. earlier: the scores
    of the answers before the last, None for one without a score.
    """

    outcome: TrialOutcome | None
    rollout: Rollout
    score: Score | None = None
    detail: str = ""
    lost: bool = False
    final: bool = False
    judging: ModelUsage = ModelUsage()
    judged: tuple[ModelAttempt, ...] = ()
    earlier: tuple[Score | None, ...] = ()


def infrastructure_error(detail: str, *, lost: bool = False) -> TrialAttempt:
    """Return an attempt that failed for reasons that have nothing to do with the program."""
    return TrialAttempt(TrialOutcome.INFRA_ERROR, Rollout(""), detail=detail, lost=lost)


async def run_job(job: TrialJob) -> TrialAttempt:
    """Run a job to its end in this process.

    Every error becomes an outcome; only cancelling is raised.
    """
    try:
        async with open_workspace(job.task, job.files, host=job.host, place=job.place) as work:
            rollout = await _run_executor(job, work)
            if isinstance(rollout, str):
                return infrastructure_error(rollout, lost=True)
            if job.scoring is None or (rollout.outcome is not None and not rollout.outcome.counts):
                return TrialAttempt(rollout.outcome, rollout, detail=rollout.detail)
            # Rounds have workspaces of their own, and the last answer is the one that counts.
            last = (rollout.solutions[-1].workspace if rollout.solutions else None) or work
            if rollout.outcome is None:
                attempt = await _score_rollout(job, job.scoring, rollout, last)
            else:
                attempt = TrialAttempt(rollout.outcome, rollout, detail=rollout.detail)
            return await _score_earlier(job, job.scoring, attempt)
    except Exception as error:
        # The workspace could not be made or set up.
        return infrastructure_error(_format_error(error))


async def _run_executor(job: TrialJob, work: Path) -> Rollout | str:
    """Return the rollout, or why there is none."""
    # The executor has its own limit; this one is for an executor that does not keep to it.
    limit = job.task.timeout_s + job.patience
    try:
        async with asyncio.timeout(limit) as timeout:
            return await job.executor.run(job.task, job.program, job.repeat, work)
    except Exception as error:
        # An executor should not raise: its exception says nothing about the program.
        if isinstance(error, TimeoutError) and timeout.expired():
            return f"the executor did not come back within {limit:.0f} s"
        return f"the executor failed: {_format_error(error)}"


async def _score_rollout(
    job: TrialJob, scoring: TrialScorer, rollout: Rollout, work: Path
) -> TrialAttempt:
    why, attempt = "", TrialAttempt(None, rollout)
    for _ in range(MAX_SCORINGS):
        try:
            score = await scoring(job.task, rollout, work)
        except Exception as error:
            why = f"the scorer had trouble: {_format_error(error)}"
            attempt = _add_judging(attempt, error)
            continue
        attempt = _add_judging(attempt, score)
        if 0 <= score.value <= 1:
            return replace(attempt, score=score)
        why = f"the scorer said {score.value}, which is not within 0 and 1"
    if await _scores_known_answer(job, scoring):
        # The scorer works, and fails on this output. If the trial were missing, a program could
        # hide its wrong answers.
        failed = Score(0.0, evidence=f"{why}; a known answer was scored right after")
        return replace(attempt, score=failed, detail=f"it counts as 0: {why}")
    return replace(attempt, outcome=TrialOutcome.INFRA_ERROR, detail=why, final=True)


def _add_judging(attempt: TrialAttempt, scored: Score | Exception) -> TrialAttempt:
    """Return the attempt with the usage of one scoring, also of one without a score."""
    usage, requests = getattr(scored, "usage", ModelUsage()), getattr(scored, "attempts", ())
    judging, judged = add_usage(attempt.judging, usage), (*attempt.judged, *requests)
    return replace(attempt, judging=judging, judged=judged)


async def _score_earlier(
    job: TrialJob, scoring: TrialScorer, attempt: TrialAttempt
) -> TrialAttempt:
    """Return the attempt with the scores of the answers before the last.

    They go to the ledger and decide nothing.
    """
    for solution in attempt.rollout.solutions[:-1]:
        scored = await _score_solution(job, scoring, solution)
        if scored is not None:
            attempt = _add_judging(attempt, scored)
        # The trial has a score of its own, so a failed one is missing in the table of rounds alone.
        score = scored if isinstance(scored, Score) else None
        attempt = replace(attempt, earlier=(*attempt.earlier, score))
    return attempt


async def _score_solution(
    job: TrialJob, scoring: TrialScorer, solution: Solution
) -> Score | Exception | None:
    if solution.outcome is not None or solution.workspace is None:
        return None
    rollout = Rollout(solution.text, trace=solution.trace)
    try:
        return await scoring(job.task, rollout, solution.workspace)
    except Exception as error:
        return error


async def _scores_known_answer(job: TrialJob, scoring: TrialScorer) -> bool:
    """Return whether the scorer scores a known answer now, in a new workspace."""
    known_answer = scoring.known_answer(job.task)
    if known_answer is None:
        return False
    output, answer_files = known_answer
    files = {**job.files, **answer_files}
    try:
        async with open_workspace(job.task, files, host=job.host, place=job.place) as fresh:
            score = await scoring(job.task, Rollout(output), fresh)
    except Exception:
        # The scorer fails here too, so its failure has nothing to do with the output.
        return False
    return 0 <= score.value <= 1


def _format_error(error: Exception) -> str:
    if isinstance(error, EvolvableError):
        return error.text
    return f"{type(error).__name__}: {error}"


FinishedJob = tuple[str, TrialAttempt]
"""The ticket of a job and its attempt."""


class TrialBackend(Protocol):
    """Runs jobs concurrently, each at most once: the caller decides on a retry.

    Used from one event loop.
    """

    def submit(self, job: TrialJob) -> str:
        """Start a job and return its ticket. How many run at once is up to the caller."""
        ...

    async def poll(self, timeout: float | None = None) -> Sequence[FinishedJob]:
        """Wait until a job is done, at most `timeout` seconds, and return all finished jobs.

        Each is returned once. A job whose worker died has an infrastructure error. Returns nothing
        when there are no jobs.
        """
        ...

    async def cancel(self, tickets: Collection[str]) -> None:
        """Stop these jobs, so that `poll` does not return them; unknown tickets are ignored."""
        ...

    async def close(self) -> None:
        """Stop all jobs and release all resources. Nothing can be submitted any more."""
        ...


async def run_alone(backend: TrialBackend, job: TrialJob) -> TrialAttempt:
    """Run one job in a backend where nothing else runs, and return its attempt."""
    ticket = backend.submit(job)
    try:
        # Nothing else runs here, so the one job that ends is this one.
        [(_, attempt)] = await backend.poll()
    except BaseException:
        await backend.cancel([ticket])
        raise
    return attempt


class AsyncioBackend:
    """Runs jobs as tasks of this event loop; the default.

    Code that computes without awaiting stops the others.
    """

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[TrialAttempt]] = {}
        self._numbers = itertools.count(1)

    def submit(self, job: TrialJob) -> str:
        """Start a job and return its ticket."""
        return self._start(_run_cancellable(job))

    def _start(self, running: Coroutine[Any, Any, TrialAttempt]) -> str:
        ticket = str(next(self._numbers))
        self._running[ticket] = asyncio.create_task(running)
        return ticket

    async def poll(self, timeout: float | None = None) -> Sequence[FinishedJob]:
        """Wait until a job is done and return all that are."""
        if not self._running:
            return []
        await asyncio.wait(
            self._running.values(), timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        ended = [ticket for ticket, task in self._running.items() if task.done()]
        return [(ticket, self._running.pop(ticket).result()) for ticket in ended]

    async def cancel(self, tickets: Collection[str]) -> None:
        """Stop these jobs and wait until they have ended, their workspaces with them."""
        tasks = [self._running.pop(ticket) for ticket in tickets if ticket in self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Stop all jobs."""
        await self.cancel(list(self._running))


async def _run_cancellable(job: TrialJob) -> TrialAttempt:
    try:
        return await run_job(job)
    except asyncio.CancelledError:
        # Cancelled from outside the count is above 0. An executor that cancels its own task must
        # not end the whole batch.
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        return infrastructure_error("the executor cancelled itself", lost=True)


MAX_TRIAL_TEXT = 100_000
"""Characters of one text of a trial that the ledger has: the beginning and the end of the text."""

BROKEN_BATCH = "broken"
"""The type of the record of a batch that was given up, because its attempts had no result."""


def trial_key(program: str, task: str, scorer: str, executor: str, repeat: int) -> str:
    """Return the sha256 of everything that decides a result.

    program, task, scorer: their digests. executor: its fingerprint. repeat: its number.
    """
    # The empty text keeps the keys of older ledgers.
    parts = json.dumps([program, task, scorer, executor, "", repeat])
    return hashlib.sha256(parts.encode()).hexdigest()


def shorten_text(text: str) -> str:
    """Return a text as the ledger keeps it. Scorers got the whole text."""
    if len(text) <= MAX_TRIAL_TEXT:
        return text
    half = MAX_TRIAL_TEXT // 2
    notice = f"[... {len(text) - 2 * half:,} characters are left out here ...]"
    return f"{text[:half]}\n{notice}\n{text[-half:]}"


def trial_fields(trial: Trial, attempt: TrialAttempt | None, /, **about: object) -> dict[str, Any]:
    """Return the fields of the record of a trial. about: fields of the record itself."""
    written: dict[str, Any] = {name: getattr(trial, name) for name in Trial.__slots__}
    written["usage"] = asdict(trial.usage)
    # Left out where nothing was spent, so that older records have the same form.
    del written["judging"]
    if trial.judging != ModelUsage():
        written["judging"] = asdict(trial.judging)
    if attempt:
        about |= {"lost": attempt.lost, "final": attempt.final}
    if score := attempt.score if attempt else None:
        about |= {
            "evidence": shorten_text(score.evidence),
            "checks": [asdict(check) for check in score.checks],
            "metrics": dict(score.metrics),
        }
    return {**about, "trial": written}


def judging_usage(written: Mapping[str, Any]) -> ModelUsage:
    """Return the usage of a trial's scorings, by its record."""
    return ModelUsage(**written["judging"]) if "judging" in written else ModelUsage()


def parse_trial(written: Mapping[str, Any]) -> Trial:
    """Return the trial of a record."""
    outcome, usage = TrialOutcome(written["outcome"]), ModelUsage(**written["usage"])
    parsed = {
        "outcome": outcome,
        "usage": usage,
        "judging": judging_usage(written),
        "read": tuple(written["read"]),
    }
    return Trial(**{**written, **parsed})


@dataclass
class TrialCache:
    """The trials of a ledger: those that count, and the state of each named batch.

    counted: by key, as first run. ended: by batch and key, the result in that batch. failed: by
    batch and key, the number of infrastructure errors, and the last of these trials. broken:
    batches that were given up because of infrastructure errors; their failed trials are retried.
    """

    counted: dict[str, Trial] = field(default_factory=dict)
    ended: dict[tuple[str, str], Trial] = field(default_factory=dict)
    failed: dict[tuple[str, str], tuple[int, Trial]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    @classmethod
    def from_records(cls, records: Iterable[LedgerRecord]) -> Self:
        """Return the cache of these records, read in their order."""
        cache = cls()
        for record in records:
            if record["type"] == "trial":
                trial = parse_trial(record["trial"])
                cache.add(record["batch"], trial, record.get("final", False))
            elif record["type"] == BROKEN_BATCH:
                cache.forget_failures(record["batch"])
        return cache

    def forget_failures(self, batch: str) -> None:
        """Forget the failures by infrastructure in a batch."""
        self.broken.add(batch)
        self.failed = {place: entry for place, entry in self.failed.items() if place[0] != batch}
        crashed = [
            key
            for (name, key), trial in self.ended.items()
            if name == batch and trial.detail.startswith(CRASHED)
        ]
        # A batch of crashes and nothing else is no fault of the programs.
        for key in crashed:
            self.counted.pop(key, None)
            self.ended.pop((batch, key), None)
        # A continued run gets new attempts for the trials that failed for good.
        self.ended = {
            place: trial
            for place, trial in self.ended.items()
            if place[0] != batch or trial.outcome is not TrialOutcome.INFRA_ERROR
        }

    def add(self, batch: str, trial: Trial, final: bool = False) -> None:
        """Add one trial of a batch. final: it is not tried again, whatever its outcome."""
        place = batch, trial.key
        # A tampered trial does not count, and is measured again on request.
        if trial.outcome is TrialOutcome.TAMPERED:
            return
        if trial.cached:
            # The record of a cached trial has no texts; the one that was run has.
            full = self.counted.setdefault(trial.key, replace(trial, cached=False))
            self.ended[place] = replace(full, cached=True)
            return
        if trial.outcome is TrialOutcome.INFRA_ERROR and not final:
            times, _ = self.failed.get(place, (0, trial))
            self.failed[place] = times + 1, trial
            return
        self.ended[place] = trial
        if trial.outcome.counts:
            # The first result of a key stays: a repeated run must not replace a bad result.
            self.counted.setdefault(trial.key, trial)


def strip_texts(trial: Trial) -> Trial:
    """Return the trial without the texts, which an earlier record of the ledger has."""
    return replace(trial, output="", trace="", feedback="", detail="")
