"""A command run for its output beside others, within a time and a size, leaving nobody behind."""

import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from evolvable_tools.llm.command_model import MAX_OUTPUT, ChildProcesses, ProcessResult
from evolvable_tools.sandbox import Confinement, Sandbox, SandboxOutputError, bring_back

PYTHON = "{python}"
"""Stands for the running interpreter in an argument list."""

LIMIT_REACHED, NOT_SET_UP = 122, 125
"""Exit codes of a sandbox: the command used up what it was given, or could not be prepared. 128 and more: killed."""

_AGAIN = 0.05  # seconds between two tries to stop a command that is just being started


async def run_command(
    command: Sequence[str],
    given: bytes = b"",
    *,
    timeout: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    most: int = MAX_OUTPUT,
) -> ProcessResult:
    """Runs an argument list with `given` as its input and returns how it ended; `{python}` is this interpreter.

    At the timeout (seconds; the code is None then), and when the caller is cancelled, its whole process group is
    killed. folder: where it runs. environment: all of it, by default ours. most: bytes of its output, at which it is
    stopped. Raises OSError when it cannot be started.
    """
    children = ChildProcesses()
    command = [sys.executable if part == PYTHON else part for part in command]
    ended: Future[ProcessResult] = Future()

    def run() -> None:
        try:
            ended.set_result(children.run(command, given, timeout, folder=folder, environment=environment, most=most))
        except BaseException as error:  # whoever waits gets it
            ended.set_exception(error)

    # A thread for each, so that commands never wait for one another.
    threading.Thread(target=run, daemon=True).start()
    waiting = asyncio.ensure_future(asyncio.wrap_future(ended))
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        while not waiting.done():
            children.stop()
            await asyncio.wait([waiting], timeout=_AGAIN)
        if not waiting.cancelled():
            waiting.exception()  # looked at, so that nobody is told of it
        raise


async def run_confined(
    what: Confinement,
    sandbox: Sandbox | None,
    given: bytes = b"",
    *,
    outside: Mapping[str, str] | None = None,
    most: int = MAX_OUTPUT,
) -> ProcessResult:
    """Run a command in its workspace, inside `sandbox`, and return how it ended; the workspace is as it left it.

    Without a sandbox it runs as any command, in the environment `outside`. Raises OSError and SandboxTrouble.
    """
    if sandbox is None:
        return await run_command(
            what.command, given, timeout=what.seconds, folder=what.workspace, environment=outside, most=most
        )
    command = tuple(sandbox.python if part == PYTHON else part for part in what.command)
    descriptor, name = await asyncio.to_thread(tempfile.mkstemp, prefix="back-", dir=what.workspace.parent)
    os.close(descriptor)
    back = Path(name)
    try:
        argv = sandbox.argv(replace(what, command=command), back)
        ran = await run_command(argv, given, timeout=what.seconds, folder=what.workspace.parent, most=most)
        if ran.code == NOT_SET_UP:
            said = ran.err.decode(errors="replace").strip()[-500:]
            raise SandboxOutputError(f"The sandbox failed: {said or 'it did not say why'}.")
        if what.returns and ran.code is not None and back.stat().st_size:
            await asyncio.to_thread(bring_back, back, what.workspace, what.limits.size)
        return ran
    finally:
        back.unlink(missing_ok=True)
