"""The parts that all executors share: the protocol, commands, workspaces, and trajectories."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.task import Rollout, Task, TrialOutcome, named_files
from evolvable_evolve.sandbox import (
    Confinement,
    Sandbox,
    SandboxOutputError,
    bring_back,
    environment_inside,
)
from evolvable_store import check_path
from evolvable_store.errors import EvolvableError
from evolvable_tools.llm import (
    MAX_OUTPUT,
    ChildProcesses,
    ModelAttempt,
    ProcessResult,
    parse_json,
    printable_line,
)

if TYPE_CHECKING:
    from evolvable_evolve.evolution.run_config import HostContext


class Executor(Protocol):
    """Runs tasks. Its `label` says what its figures are: `simulated`, `scripted` or `real model
    NAME`.

    `fingerprint` is a text that names everything about it that decides a result: kind, version,
    flags, model, tools.
    """

    @property
    def fingerprint(self) -> str:
        """A text that names everything that decides a result."""

    @property
    def label(self) -> str:
        """The kind of the figures: `simulated`, `scripted` or `real model NAME`."""

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        """Return the rollout of `task` under `program`.

        `workspace` is a fresh directory with the task's files, set up. Its parent may hold what is
        no part of the work, such as a private configuration. Both are removed afterwards. `repeat`
        counts from 0 and only distinguishes repeated runs. Infrastructure errors come back as an
        outcome and are not raised.
        """
        ...


PYTHON_PLACEHOLDER = "{python}"
"""The placeholder of the running interpreter in an argument list."""

LIMIT_REACHED, NOT_SET_UP = 122, 125
"""Exit codes of a sandbox: the command reached its limits, or could not be prepared. 128 and more:
killed by a signal.
"""

_AGAIN = 0.05
"""Seconds between two tries to stop a command that is just being started."""


async def run_command(
    command: Sequence[str],
    stdin: bytes = b"",
    *,
    timeout: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    most: int = MAX_OUTPUT,
) -> ProcessResult:
    """Run an argument list with `stdin` as its input and return how it ended; `{python}` is this
    interpreter.

    At the timeout (seconds; the code is None then), and when the caller is cancelled, its whole
    process group is killed. folder: where it runs. environment: all of it, by default ours. most:
    bytes of its output, at which it is stopped. Raises OSError when it cannot be started.
    """
    children = ChildProcesses()
    command = [sys.executable if part == PYTHON_PLACEHOLDER else part for part in command]
    ended: Future[ProcessResult] = Future()

    def run() -> None:
        try:
            ended.set_result(
                children.run(
                    command, stdin, timeout, folder=folder, environment=environment, most=most
                )
            )
        except BaseException as error:  # raised where the result is awaited
            ended.set_exception(error)

    # A thread for each, so that commands never wait for one another.
    threading.Thread(target=run, daemon=True).start()
    waiting = asyncio.ensure_future(asyncio.wrap_future(ended))
    try:
        # A thread cannot be cancelled: the command is stopped below, and its end awaited.
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        # A command that is just being started has no process to stop yet.
        while not waiting.done():
            children.stop()
            await asyncio.wait([waiting], timeout=_AGAIN)
        if not waiting.cancelled():
            waiting.exception()  # retrieved, so that asyncio does not report it
        raise


def _refuse_constant(name: str) -> Any:
    # Python reads NaN and Infinity, and parsers of other languages do not.
    raise ValueError(f"{name} is no JSON")


STRICT_JSON = json.JSONDecoder(parse_constant=_refuse_constant)
"""A decoder that refuses NaN and Infinity."""


def parse_strict_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises ValueError, for NaN and Infinity as well, and RecursionError.
    """
    return json.loads(text, parse_constant=_refuse_constant)


# Schemas are read for every answer, and their files never change.
@cache
def load_schema(path: Path) -> Mapping[str, Any]:
    """Return the JSON schema in a file of this package."""
    schema: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return schema


def start_problem(error: Exception) -> str:
    """Return in words why a command could not be run."""
    if isinstance(error, EvolvableError):
        return error.text
    return getattr(error, "strerror", None) or str(error)


async def run_confined(
    what: Confinement,
    sandbox: Sandbox | None,
    stdin: bytes = b"",
    *,
    outside: Mapping[str, str] | None = None,
    most: int = MAX_OUTPUT,
) -> ProcessResult:
    """Run a command in its workspace, inside `sandbox`, and return how it ended; its changes are in
    the workspace afterwards.

    Without a sandbox it runs as any command, in the environment `outside`. Raises OSError,
    SandboxOutputError.
    """
    if sandbox is None:
        return await run_command(
            what.command,
            stdin,
            timeout=what.seconds,
            folder=what.workspace,
            environment=outside,
            most=most,
        )
    command = tuple(sandbox.python if part == PYTHON_PLACEHOLDER else part for part in what.command)
    # The sandbox writes the changed workspace into this file, outside of what the command sees.
    descriptor, name = await asyncio.to_thread(
        tempfile.mkstemp, prefix="back-", dir=what.workspace.parent
    )
    os.close(descriptor)
    back = Path(name)
    try:
        argv = sandbox.argv(replace(what, command=command), back)
        ran = await run_command(
            argv,
            stdin,
            timeout=what.seconds,
            folder=what.workspace.parent,
            environment=sandbox.outside(os.environ),
            most=most,
        )
        if ran.code == NOT_SET_UP:
            stderr_text = ran.err.decode(errors="replace").strip()[-500:]
            raise SandboxOutputError(f"The sandbox failed: {stderr_text or 'it did not say why'}.")
        # After a timeout nothing comes back, because the file may be cut off.
        if what.returns and ran.code is not None and back.stat().st_size:
            await asyncio.to_thread(bring_back, back, what.workspace, what.limits.size)
        return ran
    finally:
        back.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class CommandHost:
    """What commands run with.

    environment: all of it, by default ours. sandbox: where they are confined; None: they run with
    our rights. hidden: folders that they do not see in a sandbox. links: by task, folders of
    dependencies that a sandbox shows in its workspace.
    """

    environment: Mapping[str, str] | None = None
    sandbox: Sandbox | None = None
    hidden: tuple[Path, ...] = ()
    links: Mapping[str, tuple[tuple[str, Path], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, host: "HostContext") -> Self:
        """Return what commands of a task set or of an executor run with on this host."""
        return cls(host.environment, host.working_sandbox, host.hidden, host.links)

    async def run(
        self,
        command: Sequence[str],
        workspace: Path,
        seconds: float,
        stdin: bytes = b"",
        *,
        readable: Iterable[Path] = (),
        returns: bool = True,
        task: str = "",
    ) -> ProcessResult:
        """Run a command in its workspace and return how it ended; see Confinement and run_confined.

        task: the id of the task whose dependencies it sees.
        """
        what = Confinement(
            tuple(command),
            workspace,
            environment_inside(os.environ if self.environment is None else self.environment),
            seconds,
            readable=tuple(readable),
            hidden=self.hidden,
            returns=returns,
            linked=self.links.get(task, ()),
        )
        return await run_confined(what, self.sandbox, stdin, outside=self.environment)


UNCONFINED = CommandHost()
"""Commands run with our environment and our rights."""


def write_below(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files, each at its path below a folder.

    Raises InvalidPath for a path that would leave it, OSError.
    """
    for path, data in files.items():
        target = folder / check_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


WORK_DIR = "work"
"""The workspace's name within the folder of its trial."""

_PREFIX = "evolvable-trial-"
"""Beginning of the names of trials' folders, by which `remove_stale_workspaces` finds them."""

# A setup may build a project.
_SETUP_S = 600.0
"""Seconds for one setup command."""


class WorkspaceError(EvolvableError):
    """A workspace could not be made or set up; that says nothing about the program."""


@asynccontextmanager
async def open_workspace(
    task: Task,
    files: Mapping[str, bytes],
    host: CommandHost = UNCONFINED,
    place: Path | None = None,
) -> AsyncGenerator[Path]:
    """Yield a fresh folder holding `files` (paths within it to bytes) in which the task's setup has
    run.

    The folder around it belongs to the trial as well; both are removed at the end, whatever was
    done in them. host: what the setup runs with. place: where the folder is made, by default the
    system's temporary folder. Raises WorkspaceError, InvalidPath.
    """
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
    # Without links in its path, because a sandbox shows it under its real one.
    trial = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place)).resolve()
    try:
        work = trial / WORK_DIR
        work.mkdir()
        write_below(work, files)
        for command in task.setup:
            await _run_setup(task, command, work, host)
        yield work
    finally:
        remove_tree(trial)


async def _run_setup(task: Task, command: Sequence[str], work: Path, host: CommandHost) -> None:
    word = command[0]
    # The task set names these files, so one in a hidden folder stays hidden.
    paths = {path: path.resolve() for path in named_files(command)}
    readable = [
        path
        for path, real in paths.items()
        if not any(real.is_relative_to(folder) for folder in host.hidden)
    ]
    try:
        ran = await host.run(command, work, _SETUP_S, readable=readable, task=task.id)
    except (OSError, SandboxOutputError) as error:
        why = start_problem(error).rstrip(".")
        raise WorkspaceError(
            f"The setup of task {task.id} could not start {word}: {why}."
        ) from None
    if ran.code != 0:
        stderr_text = ran.err.decode(errors="replace").strip()[-500:]
        ended = "took too long" if ran.code is None else f"ended with exit code {ran.code}"
        raise WorkspaceError(
            f"The setup of task {task.id} {ended}: {word}: {stderr_text or 'it said nothing'}"
        )


def remove_stale_workspaces(place: Path) -> None:
    """Remove the folders of trials that a killed process left in `place`.

    No process may be working there.
    """
    if place.is_dir():
        for left in place.glob(f"{_PREFIX}*"):
            remove_tree(left)


def remove_tree(folder: Path) -> None:
    """Remove a folder and all in it, also read-only files; links are not followed.

    What the system does not release stays.
    """
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    # A program may have made its files read-only, and that must not leave them behind.
    except OSError:
        _make_writable(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _make_writable(folder: Path) -> None:
    """Make all that is in a folder readable and writable for us."""
    with contextlib.suppress(OSError):
        folder.chmod(stat.S_IRWXU)
    # Each folder is made readable before it is looked into.
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(top, name)
            with contextlib.suppress(OSError):
                # The mode of a link is that of its target, which may be outside.
                if not os.path.islink(path):
                    os.chmod(path, stat.S_IRWXU)


MAX_STEP = 4_000
"""Characters of one step of a trace at most."""

MAX_TRACE = 200_000
"""Characters of a trace at most; of a longer one the middle is left out."""

# Signs of a busy provider, in the words of several providers and clients.
_BUSY = re.compile(
    r"\b(?:429|529|503)\b|overloaded|rate.?limit|too many requests|usage limit|quota", re.IGNORECASE
)
# Signs of a fault that is the provider's, the account's or the network's, and not the program's.
_PROVIDER_TROUBLE = re.compile(
    r"API "
    r"Error|\b(?:401|403|408|5\d\d)\b|authenticat|unauthorized|invalid.{0,9}(?:api|x-api).?key|"
    r"credit balance|log.?in|connection|network|disconnect|timed? "
    r"?out|reconnect|ECONN|ENOTFOUND|stream (?:closed|error)|unexpected status",
    re.IGNORECASE,
)
# How long a provider asks to wait: "retry after 30 s", "try again in 1.5 min".
_WAIT = re.compile(
    r"(?:retry|try again)[^0-9]{0,20}(\d+(?:\.\d+)?)\s*(ms|s\b|sec|m\b|min)?", re.IGNORECASE
)


@dataclass(slots=True)
class Trajectory:
    """A run as its events report it. progress: the model has said or done something.

    attempts: requests to the model, where the executor makes them itself. failure: the client's
    message on a run that failed; status: the HTTP status in it. trouble: why the client asks the
    provider again, as long as no answer has come. ended: the run came to its end, well or not.
    limit: it was ended for its own length.
    """

    output: str = ""
    steps: list[str] = field(default_factory=list)
    read: dict[str, None] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    cost: float | None = None
    attempts: list[ModelAttempt] = field(default_factory=list)
    progress: bool = False
    ended: bool = False
    failure: str = ""
    status: int | None = None
    trouble: str = ""
    limit: bool = False

    def note_progress(self) -> None:
        """Note that the model has said or done something."""
        self.progress, self.trouble = True, ""

    def add_step(self, speaker: str, what: object) -> None:
        """Add one step to the trace."""
        text = what if isinstance(what, str) else json.dumps(what, ensure_ascii=False, default=str)
        if len(text) > MAX_STEP:
            text = f"{text[: MAX_STEP // 2]} […] {text[-MAX_STEP // 2 :]}"
        self.steps.append(f"{speaker}: {text}")

    def note_reads(self, text: str, places: Mapping[str, Path]) -> None:
        """Note the parts whose files a path or a command names."""
        for ref, place in places.items():
            # A path may begin at the configuration, without the folders above it.
            if str(place) in text or f"/{place.parent.name}/{place.name}/" in text:
                self.read.setdefault(ref)

    @property
    def trace(self) -> str:
        """All steps in one text."""
        text = "\n".join(self.steps)
        half = MAX_TRACE // 2
        return text if len(text) <= MAX_TRACE else f"{text[:half]}\n[…]\n{text[-half:]}"


@dataclass(frozen=True, slots=True)
class TrajectoryEnd:
    """How a run counts: by its score where there is no outcome. wait: see Rollout.retry_after."""

    outcome: TrialOutcome | None = None
    detail: str = ""
    wait: float | None = None


def classify_end(
    seen: Trajectory, *, timed_out: bool, code: int | None, last_words: str
) -> TrajectoryEnd:
    """Return how a run counts.

    An end that is not the program's fault is an infrastructure error.
    """
    # Too slow while it worked is the program's fault, too slow while the provider failed is not.
    if timed_out and seen.progress and not seen.trouble:
        return TrajectoryEnd(TrialOutcome.AGENT_TIMEOUT, "it was not done in time")
    if timed_out:
        return _infrastructure_end("nothing came back in time", seen.trouble)
    if seen.limit:
        return TrajectoryEnd(
            TrialOutcome.AGENT_TIMEOUT, printable_line(seen.failure) or "it took too many turns"
        )
    if seen.failure:
        return _classify_failure(seen)
    # A client that ends without an answer has failed itself.
    if not seen.ended or not seen.progress:
        return _infrastructure_end(f"it ended with exit code {code} before its answer", last_words)
    return TrajectoryEnd()


def _infrastructure_end(why: str, message: str) -> TrajectoryEnd:
    """Return the end of a run that failed for other reasons than the program.

    message: by the client, if anything.
    """
    detail = f"{why}: {printable_line(message)}" if message.strip() else why
    return TrajectoryEnd(TrialOutcome.INFRA_ERROR, detail, _parse_wait(message))


def _classify_failure(seen: Trajectory) -> TrajectoryEnd:
    wait = _parse_wait(seen.failure)
    # These statuses mean that the provider is busy, also without a word of it.
    if wait is None and seen.status in (429, 529, 503):
        wait = 0.0
    # Keys, permissions, time limits and faults of a server; other statuses of a client concern the
    # request.
    foreign = seen.status is not None and (
        seen.status in (401, 403, 408, 429) or seen.status >= 500
    )
    if foreign or wait is not None or _PROVIDER_TROUBLE.search(seen.failure) or not seen.progress:
        return TrajectoryEnd(TrialOutcome.INFRA_ERROR, printable_line(seen.failure), wait)
    return TrajectoryEnd(None, printable_line(seen.failure))


def _parse_wait(text: str) -> float | None:
    """Return the seconds that a provider asks for, 0 where it is busy without a time, None where it
    is not busy.
    """
    if not _BUSY.search(text):
        return None
    match = _WAIT.search(text)
    if match is None:
        return 0.0
    unit = (match[2] or "s").lower()
    return float(match[1]) * (0.001 if unit == "ms" else 60.0 if unit.startswith("m") else 1.0)


def iter_events(out: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects in the lines of an output.

    Other lines, and one that was cut off, are skipped.
    """
    for line in out.split(b"\n"):
        found = parse_json(line.decode("utf-8", "replace")) if line.startswith(b"{") else None
        if isinstance(found, dict):
            yield found
