"""Measuring programs on tasks: what is known is not paid again, what is not is run, and all of it is written down."""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_tools.evolve.candidates.programs import Program
from evolvable_tools.evolve.executors.base import Executor, remove_stale_workspaces
from evolvable_tools.evolve.ledger.run_directory import Ledger, LedgerRecord
from evolvable_tools.evolve.scorers.external_scorers import JudgeScorer
from evolvable_tools.evolve.scorers.registry import score_output
from evolvable_tools.evolve.task import Rollout, Score, Task, Trial, TrialOutcome, task_fixtures
from evolvable_tools.evolve.trials.budget import RunBudget
from evolvable_tools.evolve.trials.scheduler import (
    BatchContext,
    ConcurrencyLimit,
    PendingTrial,
    TrialBatch,
    TrialRequest,
    TrialSettings,
    interleave,
)
from evolvable_tools.evolve.trials.trial import (
    AsyncioBackend,
    TrialBackend,
    TrialCache,
    TrialJob,
    TrialScorer,
    strip_texts,
    trial_fields,
    trial_key,
)
from evolvable_tools.sandbox import Sandbox

if TYPE_CHECKING:
    from evolvable_tools.evolve.tasks.registered_scorers import RegisteredScorer


@dataclass(frozen=True, slots=True)
class TaskSetScorer:
    """Scores as each task says.

    files: those of the task set that scorers need, without what workspaces begin with. environment: all of it for
    command scorers, by default ours. judge: for tasks that have one. sandbox: what command scorers run in.
    registered: the scorers that tasks name.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    environment: Mapping[str, str] | None = None
    judge: JudgeScorer | None = None
    sandbox: Sandbox | None = None
    registered: "Mapping[str, RegisteredScorer]" = field(default_factory=dict)

    async def __call__(self, task: Task, rollout: Rollout, workspace: Path) -> Score:
        """Return the score; raises ScorerError."""
        return await score_output(
            task.scorer,
            task,
            rollout.output,
            workspace=workspace,
            files=self.files,
            usage=rollout.usage,
            transcript=rollout.trace,
            environment=self.environment,
            judge=self.judge,
            sandbox=self.sandbox,
            registered={name: one.argv for name, one in self.registered.items()},
        )

    def digest(self, task: Task) -> str:
        """Return a hash of the task's scorer, its arguments, and the files that it may run."""
        spec = json.dumps([task.scorer.type, dict(task.scorer.args)], sort_keys=True, default=str)
        files = _files_digest(self.files) if task.scorer.type == "command" else ""
        judge = self.judge.brain.name if task.scorer.type == "judge" and self.judge else ""
        own = self.registered.get(str(task.scorer.args.get("name"))) if task.scorer.type == "command" else None
        named = f" {own.sha256}" if own else ""
        return hashlib.sha256(f"{spec} {files} {judge}{named}".encode()).hexdigest()


class TrialRunner:
    """Runs trials of one executor into one ledger.

    files: those of the task set. scoring: by default as each task says, with all these files. known: records of other
    ledgers whose counted trials need not be run again. budget, throttle, backend: may be shared; by default no limit,
    four to sixteen at once, and tasks of this process. intact: asked whenever something ends; says why it is worth
    nothing, as tasks or scorers were changed meanwhile, or ''. Such trials are TAMPERED.
    """

    def __init__(
        self,
        executor: Executor,
        ledger: Ledger,
        *,
        files: Mapping[str, bytes] | None = None,
        scoring: TrialScorer | None = None,
        known: Iterable[LedgerRecord] = (),
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
        self.budget.take_in(ledger)
        self._files = files or {}
        self._scoring = scoring or TaskSetScorer(self._files, self.settings.environment)
        self._throttle, self._backend, self._clock = (
            throttle or ConcurrencyLimit(clock=clock),
            backend or AsyncioBackend(),
            clock,
        )
        self._intact = intact
        self._known = TrialCache()
        self._known.take_in(ledger.records)
        self._elsewhere = TrialCache()
        self._elsewhere.take_in(known)
        self._turn = asyncio.Lock()
        self._scorers: dict[str, str] = {}
        if self.settings.folder is not None:
            remove_stale_workspaces(self.settings.folder)

    async def measure(self, requests: Sequence[TrialRequest], batch: str | None = None) -> list[Trial]:
        """Return a trial for each request, in the order of the requests; they run with all programs interleaved.

        A trial that counted before is `cached` and costs nothing. One that infrastructure spoiled is tried again as
        often as there are backoffs, and then comes back as INFRA_ERROR: it is missing, and no verdict.

        batch: names the measurement. Asked for again under the same name, also by another process after a kill, it
        goes on where it was and comes to the same trials: what failed for good stays missing, and nothing that it ran
        itself is `cached`. Under another name, or without one, missing trials run again.

        Raises BudgetSpent after all trials under way have ended, TrialsFailing, LedgerError, and what cancels it. The
        ledger keeps everything measured until then.
        """
        async with self._turn:
            with self.budget.running():
                programs = {id(one): one.digest for one in {id(one): one for one, _, _ in requests}.values()}
                keys = [self._key(programs[id(program)], task, repeat) for program, task, repeat in requests]
                found = self._found(requests, keys, batch)
                work = self._work(requests, keys, found, batch)
                if work:
                    found |= await TrialBatch(batch or "", work, self._context()).run()
        passes = self.settings.passes
        return [_as_requested(found[key], request, passes) for key, request in zip(keys, requests, strict=True)]

    def key(self, program: Program, task: Task, repeat: int) -> str:
        """Return the key of a trial: equal keys are the same trial."""
        return self._key(program.digest, task, repeat)

    def _key(self, program: str, task: Task, repeat: int) -> str:
        scorer = self._scorers.get(task.digest)
        if scorer is None:
            scorer = self._scorers[task.digest] = self._scoring.digest(task)
        return trial_key(program, task.digest, scorer, self.executor.fingerprint, self.settings.image, repeat)

    def _found(self, requests: Sequence[TrialRequest], keys: Sequence[str], batch: str | None) -> dict[str, Trial]:
        """Return what need not be run. What a named batch has from elsewhere is written down as its own."""
        found: dict[str, Trial] = {}
        taken: list[Trial] = []
        for key, (_, task, _) in zip(keys, requests, strict=True):
            if key in found:
                continue
            trial = None if batch is None else self._of_batch(batch, key)
            if trial is None and (counted := self._known.counted.get(key)):
                trial = replace(counted, cached=True)
                if batch is not None:
                    taken.append(strip_texts(trial))
            elif trial is None and (counted := self._elsewhere.counted.get(key)):
                trial = replace(counted, cached=True, task=task.id)
                taken.append(trial)
            if trial is not None:
                found[key] = trial
        self.ledger.append_all(("trial", trial_fields(trial, None, batch=batch or "")) for trial in taken)
        for trial in taken:
            self._known.add(batch or "", trial)
        return found

    def _of_batch(self, batch: str, key: str) -> Trial | None:
        """Return what this batch has come to for a trial, None while it has not."""
        times, failed = self._known.failed.get((batch, key), (0, None))
        return self._known.ended.get((batch, key)) or (failed if times > len(self.settings.backoff) else None)

    def _work(
        self, requests: Sequence[TrialRequest], keys: Sequence[str], found: Mapping[str, Trial], batch: str | None
    ) -> list[PendingTrial]:
        work: dict[str, PendingTrial] = {}
        if all(key in found for key in keys):
            return []
        for index in interleave(requests):
            key, (program, task, repeat) = keys[index], requests[index]
            if key not in found and key not in work:
                times = 0 if batch is None else self._known.failed.get((batch, key), (0, None))[0]
                work[key] = PendingTrial(key, program, task, repeat, times)
        return list(work.values())

    def _context(self) -> BatchContext:
        return BatchContext(
            self.ledger,
            self._backend,
            self.budget,
            self._throttle,
            self._known,
            self.settings,
            self._clock,
            self._job,
            self._intact,
        )

    def _job(self, work: PendingTrial) -> TrialJob:
        settings = self.settings
        return TrialJob(
            self.executor,
            self._scoring,
            work.task,
            work.program,
            work.repeat,
            task_fixtures(work.task, self._files),
            settings.folder,
            settings.environment,
            settings.patience,
            settings.sandbox,
            settings.hidden,
        )


def _files_digest(files: Mapping[str, bytes]) -> str:
    lines = "\n".join(f"{path} {hashlib.sha256(data).hexdigest()}" for path, data in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def _as_requested(trial: Trial, request: TrialRequest, passes: float) -> Trial:
    """Return a trial under the name that it was asked for, and with what passes now."""
    outcome = trial.outcome
    if outcome in (TrialOutcome.PASS, TrialOutcome.FAIL) and trial.score is not None:
        outcome = TrialOutcome.PASS if trial.score >= passes else TrialOutcome.FAIL
    task = request[1].id
    return trial if (trial.task, trial.outcome) == (task, outcome) else replace(trial, task=task, outcome=outcome)
