"""Drive a run: one process at a time takes it as far as possible, and leaves when it needs an
answer or a person.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial

from filelock import Timeout

from evolvable_evolve.evolution import run_context
from evolvable_evolve.evolution.acceptance import calibrate_judge
from evolvable_evolve.evolution.backend_choice import (
    NODE_DIR,
    make_local_backend,
    open_trial_backend,
)
from evolvable_evolve.evolution.executors import CanaryFailed, CommandHost, run_canary
from evolvable_evolve.evolution.ledger import (
    Journal,
    Ledger,
    LedgerBusy,
    RunDirectory,
    RunPhase,
    RunState,
    load_run_state,
)
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.proposers import HandOffModel, ModelSpec, NeedsAnswer, ProposerModel
from evolvable_evolve.evolution.run_config import HostContext
from evolvable_evolve.evolution.scorers import TaskSetScorer
from evolvable_evolve.evolution.task import ModelUsage
from evolvable_evolve.evolution.tasks import (
    HeldOutTest,
    OpenedTaskLog,
    TestAccessLog,
    hold_out_test,
    linked_folders,
)
from evolvable_evolve.evolution.tasks.reader import scorer_files
from evolvable_evolve.evolution.trials import (
    BACKOFF,
    RemoteExecutor,
    RemoteModel,
    RunBudget,
    TrialBackend,
    TrialRunner,
    TrialSettings,
    make_concurrency_limit,
)
from evolvable_store import blob_hash, pack
from evolvable_store.errors import EvolvableError
from evolvable_tools import Caller, Library

# Two rounds of the usual four trials at once: a short fault spoils one round.
MAX_FAILED_ATTEMPTS = 8
"""Attempts in a row that infrastructure may spoil before a run stops and says so."""

_LOCK_TIMEOUT = 15.0  # seconds for a driver before this one to be gone
_STOP_POLL = 0.2  # seconds between two checks whether somebody wants the run to stop


async def drive_run(
    library: Library,
    caller: Caller,
    folder: RunDirectory,
    host: HostContext,
    stop: Callable[[], bool] = lambda: False,
) -> RunState:
    """Drive a run until it is decided, stopped, or waits for an answer, and return its state.

    The ledger records what ends it early. Raises LedgerBusy when another process drives it,
    LedgerDamaged, RunTampered.
    """
    lock = folder.driver_lock()
    try:
        # In a thread, because waiting for another driver would stop the event loop.
        await asyncio.to_thread(lock.acquire, timeout=_LOCK_TIMEOUT)
    except Timeout:
        raise LedgerBusy(
            f"Run {folder.id} is driven already.", "`evolvable evolve status` shows it."
        ) from None
    # Only once the lock is held: without lock and mark the run would look abandoned.
    folder.mark_driver_starting(False)
    try:
        async with _open_run(library, caller, folder, host, stop) as (run, parts, backend):
            await _run_until_stopped(run, _drive(run, parts, backend))
        return load_run_state(folder)
    finally:
        lock.release()


async def _drive(
    run: run_context.RunContext, parts: run_context.RunParts, backend: TrialBackend
) -> None:
    """Drive a run. First a model's executor has to show that a program reaches it, and a judge that
    it judges well.

    backend: of this machine, where models are asked.
    """
    executor, judging = parts.executor, parts.judging
    needs_canary = run_context.executor_kind(run.settings.executor).needs_canary
    # Once for each fingerprint: a changed executor has to pass again.
    if needs_canary and run.state.canary != executor.fingerprint:
        with run.budget.reserving(ModelUsage()) as settle:
            canary = await run_canary(RemoteExecutor(executor, backend), run.folder.workspaces)
            settle(canary.usage)
        run.note_attempts(("", "canary"), canary.attempts)
        run.record_cost("", "canary", canary.usage, executor.label)
        if not canary.passed:
            raise CanaryFailed(f"The canary did not pass: {canary.why}.", "Nothing was measured.")
        run.note("canary", fingerprint=canary.fingerprint)
    if judging is not None:
        model = RemoteModel(judging.judge.judge_model, backend, run.folder.workspaces)
        run.judge = await calibrate_judge(run, judging, model, executor.label)
    await run_phases(run)
    # The runs of one measurement share a look: as long as one of them may go on, its whole
    # reservation counts.
    alone = not run.settings.family and run.settings.executors == 1
    if run.state.phase is RunPhase.DECIDED and alone and run.sealed.size:
        run.sealed.decide(run.folder.id, run.state.finalist)


async def _run_until_stopped(
    run: run_context.RunContext, drive: Coroutine[None, None, None]
) -> None:
    """Drive a run and record why it ended early. A request to stop cancels the work under way."""
    driving = asyncio.create_task(drive)
    try:
        # A request to stop is a file, so it is looked for.
        while not driving.done():
            await asyncio.wait([driving], timeout=_STOP_POLL)
            if run.stop() and not driving.done():
                driving.cancel()
                break
        await driving
    # No end to record: the question or the held candidate is in the ledger already.
    except (NeedsAnswer, run_context.NeedsPerson):
        return
    except (asyncio.CancelledError, run_context.RunStopped):
        # Cancelled by its caller and not by a request: that is no end of the run.
        if not run.stop():
            raise
        run.journal.note("stopped", why="a stop was requested", trouble=False)
    except EvolvableError as error:
        run.journal.note("stopped", why=error.text, trouble=True)
    except Exception as error:  # a defect of ours: the status shows it, and the process still fails
        run.journal.note("stopped", why=f"it failed: {type(error).__name__}: {error}", trouble=True)
        raise
    # The caller closes the ledgers, so trials under way end before.
    finally:
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)


@contextlib.asynccontextmanager
async def _open_run(
    library: Library,
    caller: Caller,
    folder: RunDirectory,
    host: HostContext,
    stop: Callable[[], bool],
) -> AsyncIterator[tuple[run_context.RunContext, run_context.RunParts, TrialBackend]]:
    """Yield the context of a run, its parts and the backend of this machine, and close them at the
    end.
    """
    # Both ledgers at once: a run that opens its test must be able to record it.
    with Ledger.open(folder.ledger) as ledger, Ledger.open(folder.test_ledger) as test_ledger:
        journal = Journal(ledger)
        if journal.state.stopped:
            journal.note("continued")
        host = _link_folders(host, journal.state)
        try:
            parts = run_context.make_run_parts(library, caller, folder, host, journal.state)
        except EvolvableError as error:
            journal.note("stopped", why=error.text, trouble=True)
            raise
        settings = parts.settings
        local = make_local_backend(parts)
        try:
            backend = await open_trial_backend(parts, host, folder.path / NODE_DIR, local)
        except EvolvableError as error:
            journal.note("stopped", why=error.text, trouble=True)
            await local.close()
            raise
        budget = RunBudget(settings.limit, clock=time.monotonic)
        make_runner = _make_runner_factory(parts, folder, host, backend, budget)
        # The search's ledger is counted by its runner, but nothing has a runner for the test yet.
        budget.add_ledger(test_ledger)
        open_tasks, test = hold_out_test(parts.taskset)
        home, refs = library.store.home, tuple(pin.ref for pin in settings.program)
        looks, opened = TestAccessLog.in_library(home), OpenedTaskLog.in_library(home)
        sealed = HeldOutTest(test, looks, partial(make_runner, test_ledger), opened, refs)
        run = run_context.RunContext(
            folder,
            journal,
            settings,
            open_tasks.train,
            open_tasks.val,
            sealed,
            make_runner(ledger, open_tasks.files),
            _place_proposer(parts.proposer_model, local, folder),
            budget,
            host.redactor,
            merged=[(run, folder.program(digest)) for run, digest in journal.state.merged],
            stop=lambda: stop() or folder.is_stop_requested,
            intact=parts.guard,
            sandboxed=host.working_sandbox is not None,
            plant_canary=partial(_add_unnamed_blob, library),
        )
        try:
            yield run, parts, local
        finally:
            await backend.close()
            await local.close()


def _link_folders(host: HostContext, state: RunState) -> HostContext:
    """Return the host with the folders that the tasks of the run link to."""
    links = state.about.get("links", {})
    return replace(host, links={task: linked_folders(folders) for task, folders in links.items()})


def _place_proposer(
    model: HandOffModel | ModelSpec, local: TrialBackend, folder: RunDirectory
) -> ProposerModel:
    """Return the model that proposes. One that can be pickled is asked in a process of this
    machine.
    """
    return RemoteModel(model, local, folder.workspaces) if isinstance(model, ModelSpec) else model


def _make_runner_factory(
    parts: run_context.RunParts,
    folder: RunDirectory,
    host: HostContext,
    backend: TrialBackend,
    budget: RunBudget,
) -> Callable[[Ledger, Mapping[str, bytes]], TrialRunner]:
    """Return a function that makes a runner for a ledger and the files of its tasks; all share one
    limit and one budget.
    """
    throttle, commands = make_concurrency_limit(parts.settings.concurrency), CommandHost.of(host)
    settings = TrialSettings(
        folder.workspaces,
        parts.settings.fail_below,
        BACKOFF,
        breaker=MAX_FAILED_ATTEMPTS,
        host=commands,
    )
    judge = parts.judging.judge if parts.judging else None
    scoring = TaskSetScorer(scorer_files(parts.taskset), commands, judge, parts.registered)
    return lambda ledger, files: TrialRunner(
        parts.executor,
        ledger,
        files=files,
        scoring=scoring,
        budget=budget,
        throttle=throttle,
        backend=backend,
        settings=settings,
        intact=parts.guard,
    )


def _add_unnamed_blob(library: Library, data: bytes) -> None:
    """Store data in the library without a name: no verb leads to it, and gc removes it."""
    with library.store.backend.write() as writer:
        writer.add_blob(blob_hash(data), len(data), *pack(data))
