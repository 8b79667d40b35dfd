"""Ways to ask for a skill, each in a process of its own: Evolvable through MCP on stdio, and the
peers.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from support import SERVE, Server, memory_mb

from lookup.data import Library
from lookup.peers import PEERS, Peer
from lookup.vectors import embed_once

DEPTH, USUAL = 10, 5

_WARMING = re.compile(
    r"warming up|earlier task|resources embedded|did not answer|went away|cannot start"
)
_PATIENCE = 900.0  # seconds for an embedder to take in ten thousand texts
_FIRST = "a first task that makes everything ready"


@dataclass(frozen=True, slots=True)
class Reply:
    """Ids of the corpus, best first, and the seconds it took. Evolvable also says how sure it is of
    each.

    none_fits: no match has the confidence from which one fits.
    """

    ranked: tuple[str, ...]
    seconds: float
    confidences: tuple[float, ...] = ()
    none_fits: bool = False


class Session(Protocol):
    """A way to find that is ready.

    `start`: seconds from starting its process to its first answer.
    """

    start: float

    def ask(self, task: str) -> Reply: ...

    def memory(self) -> float:
        """Return the MB it holds above an empty Python process."""
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run Evolvable: a name, and what its environment says beyond the
    library's folder.
    """

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    embedder: tuple[Path, Path] | None = None
    """Its model and where vectors are kept.

    A session waits until no stage says any more that it is getting ready.
    """


def serve(setting: Setting, home: Path) -> Server:
    """Start a server over the library in `home`."""
    words = (f"{name}={value}" for name, value in setting.variables.items())
    return Server(("env", *words, *SERVE), home)


class Served:
    """Evolvable, asked as any client asks it."""

    def __init__(self, setting: Setting, home: Path, library: Library) -> None:
        if setting.embedder is not None:
            embed_once(home, library, *setting.embedder)
        self.server = serve(setting, home)
        self._ids = {name: record["id"] for name, record in library.skills.items()}
        self.find(_FIRST)
        self.start = time.perf_counter() - self.server.started
        self.warm_after = self._warm(_PATIENCE if setting.embedder else 0)

    def find(self, task: str, limit: int = DEPTH) -> dict[str, Any]:
        """Return what find_skill answers. Raises RuntimeError when it says that it failed."""
        found = self.server.call("find_skill", task=task, limit=limit, detail=True)
        if found is None:
            raise RuntimeError(f"find_skill failed for {task[:60]!r}")
        return dict(found)

    def seconds(self, task: str) -> float:
        """Return how long find_skill takes for a task when it is asked for as many matches as it
        gives by itself.
        """
        started = time.perf_counter()
        self.find(task, USUAL)
        return time.perf_counter() - started

    def ask(self, task: str) -> Reply:
        started = time.perf_counter()
        found = self.find(task)
        seconds = time.perf_counter() - started
        ranked = tuple(self._ids[match["name"]] for match in found["matches"])
        sure = tuple(match["confidence"] for match in found["matches"])
        return Reply(ranked, seconds, sure, max(sure, default=0.0) < found["fits"])

    def memory(self) -> float:
        return sum(memory_mb(pid) for pid in processes_of(self.server)) - empty_mb()

    def close(self) -> None:
        self.server.close()

    def _warm(self, patience: float) -> float:
        """Wait until every stage is ready; return the seconds since the start."""
        end = time.monotonic() + patience
        while time.monotonic() < end and any(
            _WARMING.search(stage["said"]) for stage in self.find(_FIRST)["stages"]
        ):
            time.sleep(0.5)
        return time.perf_counter() - self.server.started


class PeerSession:
    """One peer, asked in its process."""

    def __init__(self, peer: Peer, place: Path, model: Path | None) -> None:
        command = (
            sys.executable,
            "-m",
            "lookup.peer_process",
            str(PEERS.index(peer)),
            str(place),
            str(model or ""),
        )
        path = os.pathsep.join(
            filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")))
        )
        started = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        self._line()
        self.start = time.perf_counter() - started

    def ask(self, task: str) -> Reply:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        said = json.loads(self._line())
        return Reply(tuple(said["ranked"]), said["seconds"])

    def memory(self) -> float:
        return memory_mb(self._process.pid) - empty_mb()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the peer's process ended; its stderr says why")
        return line


@contextmanager
def closing(session: Any) -> Iterator[Any]:
    """End the session's process when the block ends."""
    try:
        yield session
    finally:
        session.close()


def processes_of(*servers: Server) -> list[int]:
    """Return the ids of the servers and of all that works for their libraries, such as a shared
    embedder (Linux).
    """
    pids = {server.process.pid for server in servers}
    homes = {_home(pid) for pid in pids} - {b""}
    others = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    return sorted(pids | {pid for pid in others if _home(pid) in homes})


def _home(pid: int) -> bytes:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return b""
    return next((said for said in variables if said.startswith(b"EVOLVABLE_HOME=")), b"")


def shared_mb(pids: Sequence[int]) -> float:
    """Return the MB that the processes hold in all, what they share counted once (PSS; Linux)."""
    total = 0
    for pid in pids:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total * 1024 / 1e6


@cache
def empty_mb() -> float:
    """Return the MB of a Python process that does nothing."""
    command = (sys.executable, "-c", "print(flush=True); input()")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        held = memory_mb(process.pid)
        process.stdin.write(b"\n")
        process.stdin.close()
    return held
