"""Trials in worker processes of this machine, which end with the process that drives the run."""

import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.executors import Executor
from evolvable_evolve.evolution.proposers import ModelAnswer, ModelQuestion, NoAnswer, ProposerModel
from evolvable_evolve.evolution.task import Rollout, ScorerSpec, Split, Task, TrialOutcome
from evolvable_evolve.evolution.trials import trial
from evolvable_tools.llm import ModelAttempt

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess


CANCEL: Final = "cancel"
"""The message at which a worker stops its job and ends."""

# Seconds after which an answer is given up; models have their own, much shorter limits.
_ANSWER_LIMIT = 3600.0

GRACE = 5.0
"""Seconds that a worker has to end what it has started, before it is killed."""


def serve(connection: Connection) -> None:
    """Take jobs from the connection and answer each with its attempt.

    End at CANCEL, or when the other end is gone.
    """
    # An interrupt is for the parent, which sends CANCEL.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_serve_jobs(connection))


async def _serve_jobs(connection: Connection) -> None:
    loop = asyncio.get_running_loop()
    jobs: asyncio.Queue[trial.TrialJob | None] = asyncio.Queue()
    working = asyncio.current_task()
    assert working is not None

    def read() -> None:
        while True:
            try:
                message = connection.recv()
            except (EOFError, OSError):
                break
            except Exception as error:
                # A class or function of the job cannot be imported here.
                why = f"the worker could not read the job: {error}"
                connection.send(trial.infrastructure_error(why))
                continue
            if message == CANCEL:
                break
            loop.call_soon_threadsafe(jobs.put_nowait, message)
        loop.call_soon_threadsafe(working.cancel)
        # For an executor that ignores its cancellation.
        last = threading.Timer(GRACE, os._exit, [1])
        last.daemon = True
        last.start()

    # `recv` blocks, and would stop the loop in which the job runs.
    threading.Thread(target=read, daemon=True).start()
    try:
        while job := await jobs.get():
            connection.send(await trial.run_job(job))
    except (asyncio.CancelledError, OSError):
        pass
    # At once: a normal end would wait for threads of the executor.
    os._exit(0)


_SAFE_PATH = "PYTHONSAFEPATH"
# Guards `os.environ` from setting the variable to the start of the process: of two starts at once,
# one would remove the variable before the other process has it.
_environment_lock = threading.Lock()


@contextlib.contextmanager
def _safe_path() -> Iterator[bool]:
    """Have Python processes of the body import nothing from the current folder.

    Yield whether a variable of the environment was set for it. multiprocessing passes on this
    process's own -P, and takes no other argument.
    """
    if sys.flags.safe_path:
        yield False
        return
    with _environment_lock:
        os.environ[_SAFE_PATH] = "1"
        try:
            yield True
        finally:
            del os.environ[_SAFE_PATH]


def _serve_worker(connection: Connection, added: bool) -> None:
    """Serve jobs.

    added: the variable was set for this start alone, so that programs of jobs must not inherit it.
    """
    if added:
        os.environ.pop(_SAFE_PATH, None)
    serve(connection)


class _Worker:
    """One process, with a thread that passes its answers to the event loop."""

    def __init__(self, backend: "ProcessBackend") -> None:
        self._grace = backend.grace
        # A new interpreter: a forked one would inherit held locks of this process.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        with _safe_path() as added:
            self._process: SpawnProcess = context.Process(
                target=_serve_worker, args=(theirs, added), daemon=True
            )
            self._process.start()
        # With this copy open, the death of the worker would not end the pipe.
        theirs.close()
        self.ticket = ""
        self.gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(backend,), daemon=True).start()

    @property
    def pid(self) -> int | None:
        """The process's id."""
        return self._process.pid

    def begin(self, ticket: str, job: trial.TrialJob) -> None:
        """Send it a job. Raises the errors of pickling.

        A dead process is reported like one that dies during the job.
        """
        self.ticket = ticket
        try:
            self._connection.send(job)
        except OSError:
            # Its thread reports the end.
            self._process.kill()

    def _read(self, backend: "ProcessBackend") -> None:
        connection: Connection = self._connection
        try:
            while True:
                attempt: trial.TrialAttempt = connection.recv()
                self._loop.call_soon_threadsafe(backend.receive_attempt, self, attempt)
        except (EOFError, OSError):
            pass
        self._process.join()
        connection.close()
        # The loop may have ended, and then nobody waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(backend.worker_ended, self, self._process.exitcode)

    async def stop(self) -> None:
        """End it: by CANCEL first, so that it stops its children, and by a kill after the grace."""
        try:
            self._connection.send(CANCEL)
            async with asyncio.timeout(self._grace):
                await self.gone.wait()
        except (OSError, TimeoutError):
            self._process.kill()
            await self.gone.wait()


class FinishedJobs:
    """Jobs of a backend that are done and not yet taken. For one event loop.

    news: set when a job is done, or to end a wait without one.
    """

    def __init__(self) -> None:
        self.jobs: list[trial.FinishedJob] = []
        self.news = asyncio.Event()

    def add(self, ticket: str, attempt: trial.TrialAttempt) -> None:
        """Note that a job is done."""
        self.jobs.append((ticket, attempt))
        self.news.set()

    def forget(self, tickets: Collection[str]) -> None:
        """Drop these jobs, so that `take` does not return them."""
        self.jobs = [job for job in self.jobs if job[0] not in tickets]

    async def take(self, timeout: float | None) -> Sequence[trial.FinishedJob]:
        """Return the jobs that are done.

        Wait for one, or for the timeout in seconds, where none is.
        """
        if not self.jobs:
            self.news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self.news.wait()
        finished, self.jobs = self.jobs, []
        return finished


class ProcessBackend:
    """Runs each job in a process of its own. Executors and scorers must be picklable.

    A process that dies fails its own job alone. When this process is killed, the others stop their
    jobs and end.
    """

    def __init__(self, grace: float = GRACE) -> None:
        """grace: seconds that a process has to end what it has started, before it is killed."""
        self.grace = grace
        self._busy: dict[str, _Worker] = {}
        self._idle: list[_Worker] = []
        self._finished = FinishedJobs()
        self._numbers = itertools.count(1)

    def submit(self, job: trial.TrialJob) -> str:
        """Start a job and return its ticket. Raises what pickling raises."""
        ticket = str(next(self._numbers))
        worker = self._idle.pop() if self._idle else _Worker(self)
        try:
            worker.begin(ticket, job)
        except BaseException:
            # Nothing was sent, so the worker is as it was.
            self._idle.append(worker)
            raise
        self._busy[ticket] = worker
        return ticket

    @property
    def workers(self) -> dict[str, int | None]:
        """The process ids by the tickets of the jobs that they run."""
        return {ticket: worker.pid for ticket, worker in self._busy.items()}

    async def poll(self, timeout: float | None = None) -> Sequence[trial.FinishedJob]:
        """Wait until a job is done and return all that are."""
        return await self._finished.take(timeout) if self._busy or self._finished.jobs else []

    def receive_attempt(self, worker: _Worker, attempt: trial.TrialAttempt) -> None:
        """Take the attempt of a worker's job. Called in the event loop."""
        # A cancelled job's worker is being stopped.
        if self._busy.pop(worker.ticket, None) is None:
            return
        self._idle.append(worker)
        self._finished.add(worker.ticket, attempt)

    def worker_ended(self, worker: _Worker, code: int | None) -> None:
        """Note that a worker's process has ended; the job that it ran, if any, is lost."""
        worker.gone.set()
        if worker in self._idle:
            self._idle.remove(worker)
        # An idle worker still has the ticket of its last job, which may have ended long ago.
        if self._busy.get(worker.ticket) is worker:
            del self._busy[worker.ticket]
            lost = trial.infrastructure_error(f"the worker died (exit code {code})", lost=True)
            self._finished.add(worker.ticket, lost)

    async def cancel(self, tickets: Collection[str]) -> None:
        """Stop these jobs, their processes with them."""
        # Taken out first, so that the ends of their processes are not reported as lost jobs.
        workers = [self._busy.pop(ticket) for ticket in tickets if ticket in self._busy]
        self._finished.forget(tickets)
        await asyncio.gather(*(worker.stop() for worker in workers))

    async def close(self) -> None:
        """Stop all processes."""
        await self.cancel(list(self._busy))
        idle, self._idle = self._idle, []
        await asyncio.gather(*(worker.stop() for worker in idle))


class RemoteExecutor:
    """Runs one task at a time in a backend, whose processes end with the driver."""

    def __init__(self, executor: Executor, backend: trial.TrialBackend) -> None:
        self._executor, self._backend = executor, backend
        self.fingerprint, self.label = executor.fingerprint, executor.label

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        """Return the rollout of a task; it gets a workspace of its own beside the given one."""
        job = trial.TrialJob(self._executor, None, task, program, repeat, place=workspace.parent)
        attempt = await trial.run_alone(self._backend, job)
        if attempt.outcome is not None and attempt.rollout.outcome is None:
            return Rollout("", outcome=attempt.outcome, detail=attempt.detail)
        return attempt.rollout


class RemoteModel:
    """Asks a model that can be pickled in a backend, whose processes end with the driver.

    directory: where its workspaces are made.
    """

    def __init__(self, model: ProposerModel, backend: trial.TrialBackend, directory: Path) -> None:
        self._model, self._backend, self._directory = model, backend, directory
        self.name, self.label, self.tries = model.name, model.label, getattr(model, "tries", 1)

    async def ask(self, question: ModelQuestion) -> ModelAnswer:
        """Return the answer. Raises NoAnswer."""
        # Backends run jobs alone, so a question travels as a task.
        scorer = ScorerSpec("exact")
        task = Task(question.id, "", scorer, Split.TRAIN, question.id, timeout_s=_ANSWER_LIMIT)
        executor = _QuestionExecutor(self._model, question)
        job = trial.TrialJob(executor, None, task, Program(), 0, place=self._directory)
        attempt = await trial.run_alone(self._backend, job)
        rollout = attempt.rollout
        # `_QuestionExecutor` returns NoAnswer so: an exception would lose its usage and its hint.
        if attempt.outcome is TrialOutcome.REFUSED:
            text, hint, requests = json.loads(rollout.detail)
            raise NoAnswer(text, hint, rollout.usage, _parse_requests(requests))
        if attempt.outcome is not None:
            raise NoAnswer(
                f"{self.name} gave no answer: {attempt.detail}.",
                "Continue the run: it is asked again.",
            )
        value, by, requests = json.loads(rollout.output)
        return ModelAnswer(value, rollout.usage, by, tuple(_parse_requests(requests)))


def _parse_requests(records: Sequence[dict[str, Any]]) -> list[ModelAttempt]:
    return [ModelAttempt(**record) for record in records]


@dataclass(slots=True)
class _QuestionExecutor:
    """A question to a model in the form of an executor."""

    model: ProposerModel
    question: ModelQuestion
    fingerprint: str = "asking"
    label: str = "asking"

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        try:
            answer = await self.model.ask(self.question)
        except NoAnswer as error:
            requests = list(map(asdict, error.attempts))
            detail = json.dumps([str(error), error.hint, requests])
            return Rollout("", usage=error.usage, outcome=TrialOutcome.REFUSED, detail=detail)
        content = [answer.value, answer.by, list(map(asdict, answer.attempts))]
        return Rollout(json.dumps(content, default=dict), usage=answer.usage)
