"""How long find_skill takes through MCP on stdio, what a server holds in memory, and how fast
skills come in.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from support import environment, memory_mb, percentile

from lookup.data import Library, document, take_in
from lookup.peers import WHOLE
from lookup.sessions import (
    PeerSession,
    Served,
    Setting,
    closing,
    empty_mb,
    processes_of,
    serve,
    shared_mb,
)

LONG = 20_000
"""Characters of a long task."""

SERVERS = 8
_TRIVIAL = 50
# Tasks in a row, so that neither side finds the caches full of the other's data at each of them.
_IN_TURN = 25


@dataclass(frozen=True, slots=True)
class Times:
    """Percentiles in seconds. trivial: of a call that does next to nothing. long: of a task of
    20,000 characters.

    peer50, peer95: of FTS5 over one table with the body, asked the same tasks in turn, inside its
    process.
    """

    p50: float
    p95: float
    peer50: float
    peer95: float
    trivial: float
    long: float

    @property
    def long_ratio(self) -> float:
        """How many times the median of ordinary tasks a long one takes."""
        return self.long / self.p50


@dataclass(frozen=True, slots=True)
class Intake:
    """Seconds until so many skills were taken in, and until a task found one of them."""

    count: int
    taken: float
    searchable: float


def measured(setting: Setting, library: Library, tasks: Sequence[str]) -> tuple[float, Times]:
    """Return the MB that a server over this library holds above an empty process, and how long it
    takes.
    """
    with TemporaryDirectory() as place:
        home = Path(place) / "home"
        take_in(home, library)
        WHOLE.build(list(library.skills.values()), Path(place), None, Path(place))
        with (
            closing(PeerSession(WHOLE, Path(place), None)) as peer,
            closing(Served(setting, home, library)) as served,
        ):
            times = times_of(served, peer, tasks)
            return served.memory(), times


def times_of(served: Served, peer: PeerSession, tasks: Sequence[str]) -> Times:
    """Return how long a server takes for these tasks, and a peer in turn with it, after a few to
    warm up.

    The machine changes its speed by half within minutes; the peer's time tells which speed it had.
    """
    for task in tasks[:20]:
        served.seconds(task)
        peer.ask(task)
    seconds, theirs = list[float](), list[float]()
    for start in range(0, len(tasks), _IN_TURN):
        some = tasks[start : start + _IN_TURN]
        seconds += [served.seconds(task) for task in some]
        theirs += [peer.ask(task).seconds for task in some]
    long = [served.seconds(task) for task in _long(tasks)]
    return Times(
        percentile(seconds, 50),
        percentile(seconds, 95),
        percentile(theirs, 50),
        percentile(theirs, 95),
        trivial_call(served),
        percentile(long, 50),
    )


def _long(tasks: Sequence[str]) -> list[str]:
    """Return some tasks of LONG characters, each from many real ones."""
    together = "\n".join(tasks)
    while len(together) < 8 * LONG:
        together += "\n" + together
    return [together[start : start + LONG] for start in range(0, 8 * LONG, LONG)]


def trivial_call(served: Served) -> float:
    """Return the median seconds of a tool call that finds nothing out: one page of a
    single entry.
    """
    seconds = []
    for _ in range(_TRIVIAL):
        started = time.perf_counter()
        served.server.call("list_resources", limit=1)
        seconds.append(time.perf_counter() - started)
    return percentile(seconds, 50)


def empty_server_mb(setting: Setting, tasks: Sequence[str]) -> float:
    """Return the MB above an empty process of a server whose library holds nothing, after it was
    asked the same.
    """
    with TemporaryDirectory() as place:
        home = Path(place) / "home"
        take_in(home, Library({}))
        with serve(setting, home) as server:
            for task in tasks:
                server.call("find_skill", task=task, limit=10)
            return sum(map(memory_mb, processes_of(server))) - empty_mb()


def eight_servers_mb(setting: Setting, library: Library, tasks: Sequence[str]) -> float:
    """Return the MB (PSS) of eight servers over one library, asked and warm, and of what they
    share.
    """
    with TemporaryDirectory() as place:
        home = Path(place) / "home"
        take_in(home, library)
        open_: list[Served] = []
        try:
            for _ in range(SERVERS):
                open_.append(Served(setting, home, library))
            for served in open_:
                for task in tasks[:50]:
                    served.ask(task)
            return shared_mb(processes_of(*(served.server for served in open_)))
        finally:
            for served in open_:
                served.close()


def intake(library: Library) -> Intake:
    """Return how long a folder of these skills takes, from the command to a task that finds one of
    them.
    """
    with TemporaryDirectory() as place:
        home, folder = Path(place) / "home", Path(place) / "skills"
        for name, record in library.skills.items():
            (folder / name).mkdir(parents=True)
            (folder / name / "SKILL.md").write_text(
                document(record), encoding="utf-8", errors="replace"
            )
        command = (
            sys.executable,
            "-m",
            "evolvable_server",
            "--home",
            str(home),
            "init",
            str(folder),
        )
        started = time.perf_counter()
        subprocess.run(command, env=environment(home), check=False, stdout=subprocess.DEVNULL)
        taken = time.perf_counter() - started
        first = next(iter(library.skills.values()))
        with serve(Setting("intake"), home) as server:
            task = f"{first['name']} {first['description'][:200]}"
            found = server.call("find_skill", task=task, limit=10, detail=True)
            searchable = time.perf_counter() - started
            if not found or not found["matches"]:
                raise RuntimeError(
                    f"what was taken in is not found: {server.text('find_skill', task=task)[:300]}"
                )
            return Intake(len(library.skills), taken, searchable)
