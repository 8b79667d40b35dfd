"""Name the connection of the client program above this process, which no caller can choose.

A client names as many sessions as it likes, and a shell can start any number of servers; all of
them have one connection. Shells and interpreters between client and server are skipped, so that an
agent's scripts count as the agent's client. Linux shows processes in /proc, macOS and BSD through
`ps`. Where neither tells, as on Windows, a connection has no name, and its sessions have no
verified vote: a name for each shell would give each a vote.
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

_PS = ("/bin/ps", "/usr/bin/ps")
"""Not what PATH says: a caller sets it."""

# More than `ps` takes on a busy machine. The start of a server waits for it.
_PS_SECONDS = 5.0

_PS_WORDS = 7
"""Of a line of `ps` before the program: the process, its parent, and the five words of
its begin.
"""


class Process(NamedTuple):
    """A process: its program without the folder, its parent, and when it began, as far as the
    system tells.
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
    find = _proc_process if system == "linux" else read_ps_processes().get
    return name_connection(os.getppid(), find, _boot())


def shared_connection() -> str:
    """Return the name of the one connection of all clients without a token that this HTTP server
    has.
    """
    return f"http-{_boot()}-{os.getpid()}-{time.time_ns():x}"


def name_connection(pid: int, find: FindProcess, boot: str) -> str | None:
    """Return the name of the connection of the first process from `pid` upwards that does not only
    start others.

    boot: the name of the start of this machine. None where a process on the way is not shown, or
    the way has no end: a name after a process in the midst would be another one for each shell.
    """
    if pid == 0:  # outside of a container, and all that is there together
        return f"client-{boot}-0-gone"
    for _ in range(_MOST):
        seen = find(pid)
        if seen is None:
            return None
        # A child of process 1 has no client above it.
        if seen.parent <= 1 or not seen.is_wrapper:
            # With the time of its start, because the number of a process is used again.
            return f"client-{boot}-{pid}-{seen.begun}"
        pid = seen.parent
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
        ran = subprocess.run(
            command,
            env={"LC_ALL": "C", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PS_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return parse_ps(ran.stdout.decode(errors="replace"))


def parse_ps(text: str) -> dict[int, Process]:
    """Return the processes of `ps -o pid= -o ppid= -o lstart= -o comm=`.

    A line of another form is left out.
    """
    found = dict[int, Process]()
    for line in text.splitlines():
        words = line.split(None, _PS_WORDS)
        if len(words) > _PS_WORDS and words[0].isdecimal() and words[1].isdecimal():
            # A path on macOS; a shell at login has a dash before its name.
            name = PurePosixPath(words[_PS_WORDS].strip()).name.removeprefix("-")
            found[int(words[0])] = Process(
                name,
                int(words[1]),
                "-".join(words[2:_PS_WORDS]),
            )
    return found


def _proc_process(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name stands in brackets and may hold any character, brackets too.
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    # Behind the name, 1 is the parent and 19 the start in clock ticks since the boot (proc(5)).
    return (
        Process(
            name,
            int(fields[1]),
            fields[19],
        )
        if len(fields) > 19
        else None
    )


def _boot() -> str:
    try:
        # Start times count from the boot, so the boot is a part of the name.
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]
    except (OSError, UnicodeDecodeError):
        return "boot"
