"""Clients and commands that run in a backend's processes: whoever drives and is killed leaves none of them behind.

Driving a run: one process at a time takes it as far as it comes, and leaves when it needs somebody else.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from evolvable_store.errors import EvolvableError
from evolvable_store.resource import USER_SCOPE, Ref
from evolvable_tools.evolve.candidates.programs import Program
from evolvable_tools.evolve.executors.base import CanaryFailed, Executor, run_canary
from evolvable_tools.evolve.factory import (
    HostContext,
    check_commands_named,
    executor_files,
    make_executor,
    make_proposer_model,
    needs_canary,
    starts_commands,
)
from evolvable_tools.evolve.ledger import run_directory as ledgers
from evolvable_tools.evolve.ledger.run_directory import (
    Ledger,
    LedgerBusy,
    LedgerDamaged,
    RunDirectory,
    iter_runs,
    translate_damage,
)
from evolvable_tools.evolve.ledger.run_state import RunState, fold_records
from evolvable_tools.evolve.loop import run_phases
from evolvable_tools.evolve.proposers.proposer_model import (
    ModelAnswer,
    ModelQuestion,
    ModelSpec,
    NeedsAnswer,
    NoAnswer,
    ProposerModel,
)
from evolvable_tools.evolve.run_config import RunSettings
from evolvable_tools.evolve.run_context import (
    Journal,
    JudgeSetup,
    NeedsPerson,
    RunContext,
    RunStopped,
    RunTampered,
    TrialMeasurer,
    calibrate_judge,
    make_judge,
)
from evolvable_tools.evolve.task import Rollout, Score, ScorerSpec, Split, Task, TaskSet, TrialOutcome
from evolvable_tools.evolve.tasks.holdout import OpenTasks, SealedTest, TestAccessLog, hold_out_test
from evolvable_tools.evolve.tasks.locate import IntegrityGuard, load_taskset, needs_commands
from evolvable_tools.evolve.tasks.reader import scorer_files
from evolvable_tools.evolve.tasks.registered_scorers import RegisteredScorer, refuse_changed, registered_scorers
from evolvable_tools.evolve.trials.backends import ProcessBackend
from evolvable_tools.evolve.trials.budget import BudgetLimits, RunBudget
from evolvable_tools.evolve.trials.measurement import BACKOFF, TaskSetScorer, TrialRunner, TrialSettings
from evolvable_tools.evolve.trials.scheduler import make_concurrency_limit
from evolvable_tools.evolve.trials.trial import AsyncioBackend, TrialAttempt, TrialBackend, TrialJob
from evolvable_tools.library import Caller, Library

_ANSWER_LIMIT = 3600.0  # seconds after which whoever thinks is given up; it has its own, much shorter ones


@dataclass(frozen=True, slots=True)
class NoScoring:
    """Scores nothing: the answer itself is what is wanted."""

    async def __call__(self, task: Task, rollout: Rollout, workspace: Path) -> Score:
        """Returns 0 for whatever it is."""
        return Score(0.0)

    def digest(self, task: Task) -> str:
        """Returns the same for every task."""
        return "unscored"


class RemoteExecutor:
    """Runs one task at a time in a backend, where nothing else runs meanwhile."""

    def __init__(self, executor: Executor, backend: TrialBackend) -> None:
        self._executor, self._backend = executor, backend
        self.fingerprint, self.label = executor.fingerprint, executor.label

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        """Returns what came of the task; it has a workspace of its own beside the one given."""
        job = TrialJob(self._executor, NoScoring(), task, program, repeat, place=workspace.parent)
        attempt = await _run_remotely(self._backend, job)
        if attempt.outcome is not None and attempt.rollout.outcome is None:
            return Rollout("", outcome=attempt.outcome, detail=attempt.detail)
        return attempt.rollout


class RemoteModel:
    """Asks somebody who can be pickled, in a backend where nothing else runs meanwhile. place: for its workspaces."""

    def __init__(self, brain: ProposerModel, backend: TrialBackend, place: Path) -> None:
        self._brain, self._backend, self._place = brain, backend, place
        self.name, self.label = brain.name, brain.label

    async def ask(self, question: ModelQuestion) -> ModelAnswer:
        """Returns the answer. Raises NoAnswer."""
        asking = _QuestionExecutor(self._brain, question)
        task = Task(question.id, "", ScorerSpec("exact"), Split.TRAIN, question.id, timeout_s=_ANSWER_LIMIT)
        attempt = await _run_remotely(
            self._backend, TrialJob(asking, NoScoring(), task, Program(), 0, place=self._place)
        )
        rollout = attempt.rollout
        if attempt.outcome is TrialOutcome.REFUSED:
            text, hint = json.loads(rollout.detail)
            raise NoAnswer(text, hint, rollout.usage)
        if attempt.outcome is not None:
            raise NoAnswer(f"{self.name} gave no answer: {attempt.detail}.", "Continue the run: it is asked again.")
        return ModelAnswer(json.loads(rollout.output), rollout.usage, self.name)


@dataclass(slots=True)
class _QuestionExecutor:
    """A question as something that is run."""

    brain: ProposerModel
    question: ModelQuestion
    fingerprint: str = "asking"
    label: str = "asking"

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        try:
            answer = await self.brain.ask(self.question)
        except NoAnswer as error:
            said = json.dumps([str(error), error.hint])
            return Rollout("", usage=error.usage, outcome=TrialOutcome.REFUSED, detail=said)
        return Rollout(json.dumps(answer.value), usage=answer.usage)


async def _run_remotely(backend: TrialBackend, job: TrialJob) -> TrialAttempt:
    ticket = backend.submit(job)
    try:
        [(_, attempt)] = await backend.poll()
    except BaseException:
        await backend.cancel([ticket])
        raise
    return attempt


MAX_FAILED_ATTEMPTS = 8
"""Attempts in a row that infrastructure may spoil before a run stops and says so."""

EXECUTOR_DIR = "executor"
"""The folder of a run in which a command finds the files of the task set."""

_LOCK_TIMEOUT = 15.0  # seconds for a driver before this one to be gone
_STOP_POLL = 0.2  # seconds between two looks whether somebody wants the run to stop


@translate_damage
def load_run_state(folder: RunDirectory) -> RunState:
    """Returns what a run has come to, also while it is driven. Raises LedgerDamaged."""
    return fold_records([*ledgers.read_ledger(folder.ledger), *ledgers.read_ledger(_test_ledger(folder))])


@translate_damage
def check_runnable(folder: RunDirectory, means: HostContext) -> None:
    """Raises Refused when a run needs a command that the person did not name. Nothing is changed."""
    settings = load_run_state(folder).settings
    if settings:
        check_commands_named(RunSettings.from_json(settings), means)


def iter_run_states(home: Path) -> Iterator[tuple[RunDirectory, RunState]]:
    """Yields every run that can be read with what it has come to, the newest first."""
    for folder in iter_runs(home):
        with contextlib.suppress(LedgerDamaged, OSError):
            yield folder, load_run_state(folder)


def is_run_active(folder: RunDirectory) -> bool:
    """Returns whether a process drives the run now."""
    lock = _driver_lock(folder)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def _driver_lock(folder: RunDirectory) -> FileLock:
    return FileLock(folder.path / "driver.lock", thread_local=False)


def _test_ledger(folder: RunDirectory) -> Path:
    return folder.path / "test.jsonl"


async def drive_run(
    library: Library, caller: Caller, folder: RunDirectory, means: HostContext, stop: Callable[[], bool] = lambda: False
) -> RunState:
    """Takes a run as far as it comes and returns its state: decided, stopped, or waiting for an answer.

    What ends it early is a record of the ledger. Raises LedgerBusy when another process drives it, LedgerDamaged,
    Tampered.
    """
    lock = _driver_lock(folder)
    try:
        await asyncio.to_thread(lock.acquire, timeout=_LOCK_TIMEOUT)
    except Timeout:
        raise LedgerBusy(f"Run {folder.id} is driven already.", "`evolvable evolve status` shows it.") from None
    folder.mark_driver_starting(False)
    try:
        async with _open_run(library, caller, folder, means, stop) as (run, first):
            await _until_stopped(run, first)
        return load_run_state(folder)
    finally:
        lock.release()


@dataclass(frozen=True)
class _Opening:
    """What comes before everything else: an executor that has to show that a program reaches it, and a judge.

    backend: where both are asked.
    """

    executor: Executor
    judging: JudgeSetup | None
    backend: TrialBackend


async def _drive_from_canary(run: RunContext, first: _Opening) -> None:
    """Drives; an executor that runs a model has to show first that a program reaches it, and a judge that it can."""
    executor = first.executor
    if needs_canary(run.settings.executor) and run.state.canary != executor.fingerprint:
        found = await run_canary(executor, run.folder.workspaces)
        run.paid("", "canary", found.usage, executor.label)
        if not found.passed:
            raise CanaryFailed(f"The canary did not pass: {found.why}.", "Nothing was measured.")
        run.note("canary", fingerprint=found.fingerprint)
    if first.judging is not None:
        brain = RemoteModel(first.judging.judge.brain, first.backend, run.folder.workspaces)
        await calibrate_judge(run, first.judging, brain, executor.label)
    await run_phases(run)


async def _until_stopped(run: RunContext, first: _Opening) -> None:
    """Drives, and takes down why it ended early. Whoever wants it to stop need not wait for what is under way."""
    driving = asyncio.create_task(_drive_from_canary(run, first))
    try:
        while not driving.done():
            await asyncio.wait([driving], timeout=_STOP_POLL)
            if run.stop() and not driving.done():
                driving.cancel()
                break
        await driving
    except (NeedsAnswer, NeedsPerson):
        return
    except (asyncio.CancelledError, RunStopped):
        if not run.stop():
            raise
        run.journal.note("stopped", why="somebody asked for it", trouble=False)
    except EvolvableError as error:
        run.journal.note("stopped", why=error.text, trouble=True)
    except Exception as error:  # a mistake of ours: whoever asks is told, and the process still fails
        run.journal.note("stopped", why=f"it failed: {type(error).__name__}: {error}", trouble=True)
        raise
    finally:
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)


@dataclass
class _HeldOutTest:
    """The sealed test of a run: opened once, for one finalist, into a ledger of its own."""

    test: SealedTest
    looks: TestAccessLog
    measures: Callable[[Mapping[str, bytes]], TrialMeasurer]

    @property
    def size(self) -> int:
        return self.test.size

    @property
    def look(self) -> int:
        return len(self.looks.of(self.test.digest)) + 1

    def opened(self, run: str, finalist: str) -> tuple[Sequence[Task], int, TrialMeasurer]:
        opened = self.test.open(self.looks, run, finalist)
        return opened.tasks, opened.look, self.measures(opened.files)


@contextlib.asynccontextmanager
async def _open_run(
    library: Library, caller: Caller, folder: RunDirectory, means: HostContext, stop: Callable[[], bool]
) -> AsyncIterator[tuple[RunContext, _Opening]]:
    with Ledger.open(folder.ledger) as ledger, Ledger.open(_test_ledger(folder)) as sealed_ledger:
        journal = Journal(ledger)
        if journal.state.stopped:
            journal.note("continued")
        try:
            parts = _make_parts(library, caller, folder, means, journal)
        except EvolvableError as error:
            journal.note("stopped", why=error.text, trouble=True)
            raise
        settings, taskset, brain = parts.settings, parts.taskset, parts.brain
        backend: TrialBackend = (
            ProcessBackend() if starts_commands(settings) or needs_commands(taskset) else AsyncioBackend()
        )
        if isinstance(brain, ModelSpec):
            brain = RemoteModel(brain, backend, folder.workspaces)
        open_tasks, test = hold_out_test(taskset)
        budget = RunBudget(BudgetLimits(**asdict(settings.limit)), clock=time.monotonic)
        throttle = make_concurrency_limit(settings.concurrency)
        how = TrialSettings(
            folder.workspaces,
            "",
            settings.fail_below,
            BACKOFF,
            environment=means.environment,
            breaker=MAX_FAILED_ATTEMPTS,
            sandbox=means.apart,
            hidden=means.hidden,
        )
        judge = parts.judging.judge if parts.judging else None
        scoring = TaskSetScorer(scorer_files(taskset), means.environment, judge, means.apart, parts.registered)

        def trials(ledger: Ledger, files: Mapping[str, bytes]) -> TrialRunner:
            return TrialRunner(
                parts.executor,
                ledger,
                files=files,
                scoring=scoring,
                budget=budget,
                throttle=throttle,
                backend=backend,
                settings=how,
                intact=parts.guard,
            )

        budget.take_in(sealed_ledger)
        run = RunContext(
            folder,
            journal,
            settings,
            open_tasks.train,
            open_tasks.val,
            _HeldOutTest(
                test, TestAccessLog(folder.path.parent / "looks.jsonl"), lambda files: trials(sealed_ledger, files)
            ),
            trials(ledger, open_tasks.files),
            brain,
            budget,
            means.redactor,
            judge_texts=_judge_texts(open_tasks),
            merged=[(run, folder.program(digest)) for run, digest in journal.state.merged],
            stop=lambda: stop() or folder.is_stop_requested,
            intact=parts.guard,
            apart=means.apart is not None,
            plant=lambda data: _plant_blob(library, data),
        )
        try:
            yield run, _Opening(RemoteExecutor(parts.executor, backend), parts.judging, backend)
        finally:
            await backend.close()


def _plant_blob(library: Library, data: bytes) -> None:
    """Keep data in the library without a name: no verb leads to it, and gc takes it out."""
    from evolvable_store.objects import blob_hash, pack

    with library.store.backend.write() as writer:
        writer.add_blob(blob_hash(data), len(data), *pack(data))


@dataclass(frozen=True)
class _RunParts:
    """What the settings of a run name, opened."""

    settings: RunSettings
    taskset: TaskSet
    executor: Executor
    judging: JudgeSetup | None
    brain: ProposerModel
    guard: IntegrityGuard
    registered: Mapping[str, RegisteredScorer]


def _make_parts(
    library: Library, caller: Caller, folder: RunDirectory, means: HostContext, journal: Journal
) -> _RunParts:
    """Returns the parts of a run. Raises Tampered, and InvalidArgument for what is not there any more."""
    settings = RunSettings.from_json(journal.state.settings)
    taskset, ref = _open_taskset(library, caller, settings)
    registered = registered_scorers(taskset.tasks, means.scorers)
    refuse_changed(registered, settings.scorers)
    guarded = executor_files(settings.executor, scorer_files(taskset))
    for scorer in registered.values():
        guarded |= scorer.files
    return _RunParts(
        settings,
        taskset,
        _open_executor(settings, means, taskset, folder, journal.state.fingerprint),
        make_judge(settings, means, folder, taskset),
        make_proposer_model(settings, means, folder),
        IntegrityGuard(library, caller, ref, guarded, folder.path / EXECUTOR_DIR),
        registered,
    )


def _open_executor(
    settings: RunSettings, means: HostContext, taskset: TaskSet, folder: RunDirectory, fingerprint: str
) -> Executor:
    executor = make_executor(settings.executor, means, taskset.tasks, scorer_files(taskset), folder.path / EXECUTOR_DIR)
    if executor.fingerprint != fingerprint:
        raise RunTampered(
            f"The executor is now {executor.fingerprint}, and the run began with {fingerprint}.",
            "Figures of both cannot stand beside each other: start a new run.",
        )
    return executor


def _open_taskset(library: Library, caller: Caller, settings: RunSettings) -> tuple[TaskSet, Ref]:
    """Returns the task set that the run began with, and where it stands. Raises Tampered when it is another now."""
    named = Ref.parse(settings.task_set)
    ref = named.within(named.scope or USER_SCOPE).at(settings.task_set_version)
    taskset, _ = load_taskset(library, caller, ref)
    if (taskset.digest, taskset.test_digest) != (settings.task_set_digest, settings.test_digest):
        raise RunTampered(f"{ref} is not the task set that the run began with.")
    return taskset, ref


def _judge_texts(tasks: OpenTasks) -> list[str]:
    """Returns what scorers look for, in words: no program may quote it."""
    found: list[str] = []
    for task in (*tasks.train, *tasks.val):
        found += [str(value) for key, value in task.scorer.args.items() if isinstance(value, str) and key != "name"]
    return found
