"""A command as a language model: an agent's command line without its terminal, or any script of the
user.

The command runs within limits of time and output, and none of its processes outlives it.
"""

import contextlib
import hashlib
import json
import ntpath
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from evolvable_tools.llm.headless_clients import CODEX, answer_text, printed_events, report_usage
from evolvable_tools.llm.language_model import (
    ProviderError,
    Request,
    parse_answer,
    printable_line,
    prompt_text,
)
from evolvable_tools.untrusted_text import REVIEWING_MARK

MAX_OUTPUT = 1_000_000
"""Bytes of the output of a command; a command that writes more is stopped."""

_TAIL = 2_000  # bytes at the end of its stderr, for a message about its failure
_GRACE = 1.0  # seconds for the streams to end after the process has


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """The end of a command: its exit code (None: stopped at the timeout), its output, the end of
    its stderr.
    """

    code: int | None
    out: bytes
    err: bytes
    too_long: bool


class _Reader(threading.Thread):
    """Reads one stream to its end, and stores its first or, with `last`, its last `keep` bytes."""

    def __init__(self, descriptor: int, keep: int, *, last: bool = False) -> None:
        super().__init__(daemon=True)
        self._descriptor, self._keep, self._last = descriptor, keep, last
        self.data = bytearray()
        self.too_long = False
        self.start()

    def run(self) -> None:
        while part := os.read(self._descriptor, 65_536):
            self.data += part
            if len(self.data) > self._keep:
                # Of stdout the beginning, and the command is stopped; of stderr the end, where
                # programs say why they fail.
                if not self._last:
                    self.too_long = True
                    break
                del self.data[: -self._keep]
        # Closed here and nowhere else: a writer that goes on gets an error, and no number is used
        # twice.
        os.close(self._descriptor)


class ChildProcesses:
    """Runs commands, from any thread, and can stop those that are running."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(
        self,
        command: Sequence[str],
        stdin_bytes: bytes,
        timeout: float,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        most: int = MAX_OUTPUT,
    ) -> ProcessResult:
        """Run a command with `stdin_bytes` as its input. At the timeout (seconds) its whole process
        group is killed.

        folder: where it runs, by default here. environment: all of it, by default ours. most: bytes
        of its output, at which it is stopped; what it wrote until then comes back. Raises OSError
        when it cannot be started. On Windows the process is killed without those it has started.
        """
        deadline = monotonic() + timeout
        # A file and no pipe: a command that does not read its input cannot block the writer.
        with tempfile.TemporaryFile() as stdin:
            stdin.write(stdin_bytes)
            stdin.seek(0)
            process, readers = _start(command, stdin.fileno(), folder, environment, most)
        self._running.add(process)
        code: int | None = None
        try:
            code = _wait_for_exit(process, max(0.0, deadline - monotonic()))
            _join_readers(readers)
        # Not an error here: the caller sees `code` None.
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._running.discard(process)
            # Also when the process has ended but another one that it started holds a stream open.
            if code is None or any(reader.is_alive() for reader in readers):
                _kill(process)
        _join_readers(readers)
        out, err = readers
        return ProcessResult(code, bytes(out.data), bytes(err.data), out.too_long)

    def stop(self) -> None:
        """Kill what is running, each with its process group; its caller gets the exit code."""
        # A copy, because a process that ends meanwhile leaves the set.
        for process in list(self._running):
            if process.poll() is None:
                _kill(process)


def _start(
    command: Sequence[str],
    stdin: int,
    folder: Path | None,
    environment: Mapping[str, str] | None,
    most: int,
) -> tuple["subprocess.Popen[bytes]", tuple[_Reader, _Reader]]:
    ends = [*os.pipe(), *os.pipe()]
    out_read, out_write, err_read, err_write = ends
    try:
        process = subprocess.Popen(
            list(command),
            stdin=stdin,
            stdout=out_write,
            stderr=err_write,
            cwd=folder,
            env=environment,
            # The command leads a process group of its own, which can be killed as a whole.
            start_new_session=True,
        )
    except BaseException:
        for end in ends:
            os.close(end)
        raise
    # Only the process holds the writing ends now, so that the streams end with it.
    os.close(out_write)
    os.close(err_write)
    return process, (_Reader(out_read, most), _Reader(err_read, _TAIL, last=True))


def _wait_for_exit(process: "subprocess.Popen[bytes]", seconds: float) -> int:
    """Return the exit code of a process. Raise TimeoutExpired."""
    # With a timeout, Popen.wait looks again after up to 50 ms; that would be most of a short trial.
    # Linux: a descriptor of the process becomes readable at its end.
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(process.pid)
            try:
                ended = select.poll()
                ended.register(descriptor, select.POLLIN)
                if not ended.poll(seconds * 1000):
                    raise subprocess.TimeoutExpired(process.args, seconds)
                return process.wait()
            finally:
                os.close(descriptor)
    return process.wait(seconds)


def _join_readers(readers: Sequence[_Reader]) -> None:
    """Wait for the ends of the streams, but not long: another process may hold them open."""
    deadline = monotonic() + _GRACE
    for reader in readers:
        reader.join(max(0.0, deadline - monotonic()))


def _kill(process: "subprocess.Popen[bytes]") -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        # bubblewrap's --die-with-parent is set by its child a moment after the fork. A kill before
        # that moment leaves the child, so the group is stopped first, and its descendants are
        # killed by name.
        _signal_group(process, signal.SIGSTOP)
        descendants = _list_descendants(process.pid)
        _signal_group(process, signal.SIGKILL)
        for pid in descendants:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    process.wait()


def _signal_group(process: "subprocess.Popen[bytes]", number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        process.send_signal(number)


def _list_descendants(pid: int) -> list[int]:
    """Return the ids of all processes that a process has started and that still belong to it.

    Return [] where /proc is missing.
    """
    pids: list[int] = []
    # Children are listed for each thread that started them.
    for children_file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, children_file.read_text().split()):
                pids += [child, *_list_descendants(child)]
    return pids


MARK = f"({REVIEWING_MARK}: a question of a program, and no session of a person)\n\n"
"""The beginning of each input of a command, so that no transcript of it is ever reviewed."""

# A budget reserves so many beside each question; the longest answer is counted apart.
BEYOND = 30_000
"""Tokens that an agent may add to a question: its own instructions, and the names of what it could
use.
"""


class CommandModel:
    """A command that is given the whole question on stdin and prints its answer.

    The answer is the last JSON object of its output that fits the schema. It may stand alone, in
    lines, or in what a client puts around it. timeout: seconds, after which the command and all it
    has started are killed. folder, environment: where and in which it runs, by default ours.
    """

    beyond = BEYOND

    def __init__(
        self,
        command: Sequence[str],
        timeout: float = 60.0,
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = tuple(command)
        self._timeout, self._folder, self._environment = timeout, folder, environment
        self._program = printable_line(ntpath.basename(self._command[0])) if self._command else ""
        self._children = ChildProcesses()
        # The arguments choose the model and may hold secrets, so the name has only their digest.
        digest = hashlib.sha256(json.dumps(self._command).encode("utf-8", "replace"))
        self.name = f"command:{self._program}:{digest.hexdigest()[:8]}"

    def think(self, request: Request) -> dict[str, Any]:
        """Return the command's answer. Raises ProviderError."""
        if not self._program:
            raise ProviderError(
                "The command of the language model is empty.", "Name one, such as: claude -p."
            )
        # The mark comes first: reviews recognize by it that a transcript of this client is no
        # session of a person.
        prompt = (MARK + prompt_text(request)).encode("utf-8", "replace")
        where = (self._folder, self._environment)
        try:
            ran = self._children.run(self._add_address(), prompt, self._timeout, *where)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "an argument has a zero byte"
            hint = "Check that it is installed, and give its whole path."
            # `from None`: the exception shows the arguments, which may hold secrets.
            raise ProviderError(
                f"{self._program} cannot be started: {printable_line(why)}.", hint
            ) from None
        out = ran.out.decode("utf-8", "replace")
        events = list(printed_events(out))
        report_usage(request, events)
        # Before the exit code is checked: what a client prints about its failure says more
        # (answer_text raises it).
        texts = [
            text for event in events if (text := answer_text(event, self._program)) is not None
        ]
        self._check(ran)
        return parse_answer(texts or [out], request.schema, self._program)

    def _add_address(self) -> tuple[str, ...]:
        """Return the command, that of Codex with the address of its model: Codex reads none from
        the environment.
        """
        address = (self._environment or {}).get("OPENAI_BASE_URL")
        if not address or self._command[1 : len(CODEX)] != CODEX[1:]:
            return self._command
        setting = f"openai_base_url={json.dumps(address)}"
        return (*self._command[:-1], "--config", setting, self._command[-1])

    def close(self) -> None:
        """Kill what is running. To be called when the process ends, which would leave it behind."""
        self._children.stop()

    def _check(self, ran: ProcessResult) -> None:
        last_words, hint = _quote_end(ran.err), "Run it by hand and see what it says."
        if ran.too_long:
            raise ProviderError(
                f"{self._program} wrote more than {MAX_OUTPUT:,} bytes.{last_words}", hint
            )
        if ran.code is None:
            hint = "Allow it more time, or choose a faster model."
            raise ProviderError(
                f"{self._program} did not answer within {self._timeout:g} s.{last_words}", hint
            )
        if ran.code != 0:
            last_words = last_words or _quote_end(ran.out)
            raise ProviderError(
                f"{self._program} ended with exit code {ran.code}.{last_words}", hint
            )


def _quote_end(written: bytes) -> str:
    last = printable_line(written.decode("utf-8", "replace")[-150:]).rstrip(".")
    return f" Its last words: {last}." if last else ""
