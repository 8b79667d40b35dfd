"""Driving a run: one process at a time takes it as far as it comes, and leaves when it needs somebody else."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from evolvable_store.errors import EvolvableError
from evolvable_store.resource import USER_SCOPE, Ref
from evolvable_tools.evolve import ledger as ledgers
from evolvable_tools.evolve.backends.backend import Backend
from evolvable_tools.evolve.backends.processes import ProcessBackend
from evolvable_tools.evolve.backends.tasks import TaskBackend
from evolvable_tools.evolve.brains.brain import Brain, NeedsAnswer
from evolvable_tools.evolve.brains.opening import Opening
from evolvable_tools.evolve.budget import Budget, Limits
from evolvable_tools.evolve.damaged import reads_run
from evolvable_tools.evolve.elsewhere import BrainElsewhere, Elsewhere
from evolvable_tools.evolve.executor import Executor
from evolvable_tools.evolve.executors.canary import CanaryFailed, canary
from evolvable_tools.evolve.guarding import Guard
from evolvable_tools.evolve.judging import Judging, be_calibrated, judging_of
from evolvable_tools.evolve.ledger import Ledger, LedgerBusy, LedgerDamaged
from evolvable_tools.evolve.loop import drive
from evolvable_tools.evolve.means import (
    EvolveMeans,
    brain_of,
    check_named,
    executor_of,
    needs_canary,
    run_files,
    starts_commands,
)
from evolvable_tools.evolve.run import Journal, Measures, NeedsPerson, Run, Stopped, Tampered
from evolvable_tools.evolve.run_folder import RunFolder, runs
from evolvable_tools.evolve.run_settings import RunSettings
from evolvable_tools.evolve.run_state import RunState, fold
from evolvable_tools.evolve.task import Task, TaskSet
from evolvable_tools.evolve.tasksets import Looks, OpenTasks, SealedTest, scorer_files, seal, taskset_of
from evolvable_tools.evolve.tasksets.places import runs_commands
from evolvable_tools.evolve.tasksets.registered import RegisteredScorer, refuse_changed, registered_scorers
from evolvable_tools.evolve.throttle import throttle_of
from evolvable_tools.evolve.trials import BACKOFF, ScorerOfSet, Settings, Trials
from evolvable_tools.library import Caller, Library

BREAKER = 8
"""Attempts in a row that infrastructure may spoil before a run stops and says so."""

EXECUTOR = "executor"
"""The folder of a run in which a command finds the files of the task set."""

_PATIENCE = 15.0  # seconds for a driver before this one to be gone
_LOOKING = 0.2  # seconds between two looks whether somebody wants the run to stop


@reads_run
def state_of(folder: RunFolder) -> RunState:
    """Returns what a run has come to, also while it is driven. Raises LedgerDamaged."""
    return fold([*ledgers.read(folder.ledger), *ledgers.read(_test_ledger(folder))])


@reads_run
def check_runnable(folder: RunFolder, means: EvolveMeans) -> None:
    """Raises Refused when a run needs a command that the person did not name. Nothing is changed."""
    settings = state_of(folder).settings
    if settings:
        check_named(RunSettings.from_json(settings), means)


def states(home: Path) -> Iterator[tuple[RunFolder, RunState]]:
    """Yields every run that can be read with what it has come to, the newest first."""
    for folder in runs(home):
        with contextlib.suppress(LedgerDamaged, OSError):
            yield folder, state_of(folder)


def is_driven(folder: RunFolder) -> bool:
    """Returns whether a process drives the run now."""
    lock = _lock(folder)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def _lock(folder: RunFolder) -> FileLock:
    return FileLock(folder.path / "driver.lock", thread_local=False)


def _test_ledger(folder: RunFolder) -> Path:
    return folder.path / "test.jsonl"


async def driven(
    library: Library, caller: Caller, folder: RunFolder, means: EvolveMeans, stop: Callable[[], bool] = lambda: False
) -> RunState:
    """Takes a run as far as it comes and returns its state: decided, stopped, or waiting for an answer.

    What ends it early is a record of the ledger. Raises LedgerBusy when another process drives it, LedgerDamaged,
    Tampered.
    """
    lock = _lock(folder)
    try:
        await asyncio.to_thread(lock.acquire, timeout=_PATIENCE)
    except Timeout:
        raise LedgerBusy(f"Run {folder.id} is driven already.", "`evolvable evolve status` shows it.") from None
    folder.expect_driver(False)
    try:
        async with _opened(library, caller, folder, means, stop) as (run, first):
            await _until_stopped(run, first)
        return state_of(folder)
    finally:
        lock.release()


@dataclass(frozen=True)
class _First:
    """What comes before everything else: an executor that has to show that a program reaches it, and a judge.

    backend: where both are asked.
    """

    executor: Executor
    judging: Judging | None
    backend: Backend


async def _from_the_canary_on(run: Run, first: _First) -> None:
    """Drives; an executor that runs a model has to show first that a program reaches it, and a judge that it can."""
    executor = first.executor
    if needs_canary(run.settings.executor) and run.state.canary != executor.fingerprint:
        found = await canary(executor, run.folder.workspaces)
        run.paid("", "canary", found.usage, executor.label)
        if not found.passed:
            raise CanaryFailed(f"The canary did not pass: {found.why}.", "Nothing was measured.")
        run.note("canary", fingerprint=found.fingerprint)
    if first.judging is not None:
        brain = BrainElsewhere(first.judging.judge.brain, first.backend, run.folder.workspaces)
        await be_calibrated(run, first.judging, brain, executor.label)
    await drive(run)


async def _until_stopped(run: Run, first: _First) -> None:
    """Drives, and takes down why it ended early. Whoever wants it to stop need not wait for what is under way."""
    driving = asyncio.create_task(_from_the_canary_on(run, first))
    try:
        while not driving.done():
            await asyncio.wait([driving], timeout=_LOOKING)
            if run.stop() and not driving.done():
                driving.cancel()
                break
        await driving
    except (NeedsAnswer, NeedsPerson):
        return
    except (asyncio.CancelledError, Stopped):
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
class _Sealed:
    """The sealed test of a run: opened once, for one finalist, into a ledger of its own."""

    test: SealedTest
    looks: Looks
    measures: Callable[[Mapping[str, bytes]], Measures]

    @property
    def size(self) -> int:
        return self.test.size

    @property
    def look(self) -> int:
        return len(self.looks.of(self.test.digest)) + 1

    def opened(self, run: str, finalist: str) -> tuple[Sequence[Task], int, Measures]:
        opened = self.test.open(self.looks, run, finalist)
        return opened.tasks, opened.look, self.measures(opened.files)


@contextlib.asynccontextmanager
async def _opened(
    library: Library, caller: Caller, folder: RunFolder, means: EvolveMeans, stop: Callable[[], bool]
) -> AsyncIterator[tuple[Run, _First]]:
    with Ledger.open(folder.ledger) as ledger, Ledger.open(_test_ledger(folder)) as sealed_ledger:
        journal = Journal(ledger)
        if journal.state.stopped:
            journal.note("continued")
        try:
            parts = _parts(library, caller, folder, means, journal)
        except EvolvableError as error:
            journal.note("stopped", why=error.text, trouble=True)
            raise
        settings, taskset, brain = parts.settings, parts.taskset, parts.brain
        backend: Backend = ProcessBackend() if starts_commands(settings) or runs_commands(taskset) else TaskBackend()
        if isinstance(brain, Opening):
            brain = BrainElsewhere(brain, backend, folder.workspaces)
        open_tasks, test = seal(taskset)
        budget = Budget(Limits(**asdict(settings.limit)), clock=time.monotonic)
        throttle = throttle_of(settings.concurrency)
        how = Settings(
            folder.workspaces,
            "",
            settings.fail_below,
            BACKOFF,
            environment=means.environment,
            breaker=BREAKER,
            sandbox=means.apart,
            hidden=means.hidden,
        )
        judge = parts.judging.judge if parts.judging else None
        scoring = ScorerOfSet(scorer_files(taskset), means.environment, judge, means.apart, parts.registered)

        def trials(ledger: Ledger, files: Mapping[str, bytes]) -> Trials:
            return Trials(
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
        run = Run(
            folder,
            journal,
            settings,
            open_tasks.train,
            open_tasks.val,
            _Sealed(test, Looks(folder.path.parent / "looks.jsonl"), lambda files: trials(sealed_ledger, files)),
            trials(ledger, open_tasks.files),
            brain,
            budget,
            means.redactor,
            judge_texts=_judge_texts(open_tasks),
            merged=[(run, folder.program(digest)) for run, digest in journal.state.merged],
            stop=lambda: stop() or folder.stop_wanted,
            intact=parts.guard,
            apart=means.apart is not None,
            plant=lambda data: _plant(library, data),
        )
        try:
            yield run, _First(Elsewhere(parts.executor, backend), parts.judging, backend)
        finally:
            await backend.close()


def _plant(library: Library, data: bytes) -> None:
    """Keep data in the library without a name: no verb leads to it, and gc takes it out."""
    from evolvable_store.objects import blob_hash, pack

    with library.store.backend.write() as writer:
        writer.add_blob(blob_hash(data), len(data), *pack(data))


@dataclass(frozen=True)
class _Parts:
    """What the settings of a run name, opened."""

    settings: RunSettings
    taskset: TaskSet
    executor: Executor
    judging: Judging | None
    brain: Brain
    guard: Guard
    registered: Mapping[str, RegisteredScorer]


def _parts(library: Library, caller: Caller, folder: RunFolder, means: EvolveMeans, journal: Journal) -> _Parts:
    """Returns the parts of a run. Raises Tampered, and InvalidArgument for what is not there any more."""
    settings = RunSettings.from_json(journal.state.settings)
    taskset, ref = _taskset(library, caller, settings)
    registered = registered_scorers(taskset.tasks, means.scorers)
    refuse_changed(registered, settings.scorers)
    guarded = run_files(settings.executor, scorer_files(taskset))
    for scorer in registered.values():
        guarded |= scorer.files
    return _Parts(
        settings,
        taskset,
        _executor(settings, means, taskset, folder, journal.state.fingerprint),
        judging_of(settings, means, folder, taskset),
        brain_of(settings, means, folder),
        Guard(library, caller, ref, guarded, folder.path / EXECUTOR),
        registered,
    )


def _executor(
    settings: RunSettings, means: EvolveMeans, taskset: TaskSet, folder: RunFolder, fingerprint: str
) -> Executor:
    executor = executor_of(settings.executor, means, taskset.tasks, scorer_files(taskset), folder.path / EXECUTOR)
    if executor.fingerprint != fingerprint:
        raise Tampered(
            f"The executor is now {executor.fingerprint}, and the run began with {fingerprint}.",
            "Figures of both cannot stand beside each other: start a new run.",
        )
    return executor


def _taskset(library: Library, caller: Caller, settings: RunSettings) -> tuple[TaskSet, Ref]:
    """Returns the task set that the run began with, and where it stands. Raises Tampered when it is another now."""
    named = Ref.parse(settings.task_set)
    ref = named.within(named.scope or USER_SCOPE).at(settings.task_set_version)
    taskset, _ = taskset_of(library, caller, ref)
    if (taskset.digest, taskset.test_digest) != (settings.task_set_digest, settings.test_digest):
        raise Tampered(f"{ref} is not the task set that the run began with.")
    return taskset, ref


def _judge_texts(tasks: OpenTasks) -> list[str]:
    """Returns what scorers look for, in words: no program may quote it."""
    found: list[str] = []
    for task in (*tasks.train, *tasks.val):
        found += [str(value) for key, value in task.scorer.args.items() if isinstance(value, str) and key != "name"]
    return found
