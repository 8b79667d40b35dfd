"""Name the connection of the client program above this process, which no caller can choose.

A client names as many sessions as it likes, and a shell can start any number of servers; all of
them have one connection. Shells and interpreters between client and server are skipped, so that an
agent's scripts count as the agent's client. Linux shows processes in /proc, macOS and BSD through
`ps`. Where neither tells, as on Windows, a connection has no name, and its sessions have no
verified vote. A name for each shell would give each a vote.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_WRAPPERS = frozenset(
    (
        "sh",
        "bash",
        "dash",
        "zsh",
        "ash",
        "ksh",
        "fish",
        "tcsh",
        "csh",
        "env",
        "uv",
        "uvx",
        "pipx",
        "timeout",
        "nohup",
        "setsid",
        "nice",
        "xargs",
        "script",
        "perl",
        "ruby",
        "evolvable",
        "evolvable-hook",
    )
)
"""Programs that only start others."""

# No real chain of processes is so long. The limit ends a loop in what `ps` shows.
_MOST = 64
"""Processes between this one and the client that are looked up."""

# Not from PATH, which a caller can set.
_PS = ("/bin/ps", "/usr/bin/ps")

# More than `ps` takes on a busy machine. The start of a server waits for it.
_PS_SECONDS = 5.0

_PS_WORDS = 7
"""Words of a line of `ps` before the program: the process, its parent, and the five of its start
time.
"""


class Process(NamedTuple):
    """A process.

    name: its program, without the folder. begun: the time of its start, in the form of the system.
    """

    name: str
    parent: int
    begun: str

    @property
    def is_wrapper(self) -> bool:
        """Whether the program only starts others."""
        return self.name in _WRAPPERS or self.name.lower().startswith("python")


FindProcess = Callable[[int], Process | None]


def client_connection(system: str = sys.platform) -> str | None:
    """Return the name of the connection of the client that started this process, None where it
    cannot be told.

    system: as sys.platform names it.
    """
    if system == "win32":
        return None
    find = _read_proc_process if system == "linux" else read_ps_processes().get
    return name_connection(os.getppid(), find, _read_boot())


def shared_connection() -> str:
    """Return the name of the connection that all clients without a token share over HTTP."""
    return f"http-{_read_boot()}-{os.getpid()}-{time.time_ns():x}"


def name_connection(pid: int, find: FindProcess, boot: str) -> str | None:
    """Return the name of the connection of the first process from `pid` upwards that does not only
    start others.

    boot: the name of the start of this machine. Return None where the system does not show a
    process on the way, or the way has no end. The name of a process in between would differ for
    each shell.
    """
    # The parent is outside of the container: all processes there count as one client.
    if pid == 0:
        return f"client-{boot}-0-gone"
    for _ in range(_MOST):
        process = find(pid)
        if process is None:
            return None
        # A child of process 1 has no client above it.
        if process.parent <= 1 or not process.is_wrapper:
            # With the time of its start, because the number of a process is used again.
            return f"client-{boot}-{pid}-{process.begun}"
        pid = process.parent
    return None


def read_ps_processes() -> dict[int, Process]:
    """Return the processes that `ps` shows, by number; none where it does not run."""
    program = next(filter(os.path.exists, _PS), None)
    if program is None:
        return {}
    # One call for all processes: many may lie on the way to the client.
    command = [program, "-A", "-o", "pid=", "-o", "ppid=", "-o", "lstart=", "-o", "comm="]
    try:
        # No caller's variables: the names of days and the zone are a part of the answer.
        done = subprocess.run(
            command,
            env={"LC_ALL": "C", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PS_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return parse_ps(done.stdout.decode(errors="replace"))


def parse_ps(text: str) -> dict[int, Process]:
    """Return the processes of `ps -o pid= -o ppid= -o lstart= -o comm=`.

    A line of another form is left out.
    """
    processes = dict[int, Process]()
    for line in text.splitlines():
        words = line.split(None, _PS_WORDS)
        if len(words) > _PS_WORDS and words[0].isdecimal() and words[1].isdecimal():
            # A path on macOS; a shell at login has a dash before its name.
            name = PurePosixPath(words[_PS_WORDS].strip()).name.removeprefix("-")
            begun = "-".join(words[2:_PS_WORDS])
            processes[int(words[0])] = Process(name, int(words[1]), begun)
    return processes


def _read_proc_process(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name stands in brackets and may hold any character, brackets too.
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    if len(fields) < 20:
        return None
    # Behind the name, 1 is the parent and 19 the start in clock ticks since the boot (proc(5)).
    return Process(name, int(fields[1]), fields[19])


def _read_boot() -> str:
    try:
        # Start times count from the boot, so the boot is a part of the name.
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]
    except (OSError, UnicodeDecodeError):
        return "boot"
