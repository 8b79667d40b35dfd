"""A team beyond this machine: a model of its load, what each call costs, and a load run of what
fits here.

    python benchmarks/team_load.py model                      # the model on paper: simulated
    python benchmarks/team_load.py costs  [--resources 2000]  # bytes, rows, processor time: real
    python benchmarks/team_load.py load   [--servers 1 2 4 8] [--seconds 15]
    python benchmarks/team_load.py limits [--resources 10000] # what breaks first: real

The load runs over an embedded PostgreSQL, which waits for the disk. A server is a process with a
home of its own that calls the verbs as the MCP server does, one call after the other as fast as it
can, for ten sessions in turn; there is no protocol and no model in it. Processor time and ratios
can be compared between machines; wall times cannot. Each command prints JSON.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import psycopg
from support import name_of, seed, skill_text

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.paths import check_home
from evolvable_store.resource import Ref
from evolvable_store.storage.address import Address, save_address
from evolvable_store.store import Store
from evolvable_teams.postgres.embedded import EmbeddedServer
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs.load import load_skill, report_outcome
from evolvable_tools.verbs.search import find_skill


@dataclass(frozen=True)
class Team:
    """What is assumed of a team.

    Nobody measured these; each can be replaced by a figure of one's own.
    """

    developers: int = 1000
    servers: int = 50
    resources: int = 10_000
    sessions: float = 12  # of a developer on a working day
    searches: float = 4  # of a session
    loads: float = 3  # of a session
    reports: float = 1  # of a session
    edits: float = 2  # of a developer on a working day, by hand or by an agent
    hours: float = 8  # of a working day
    peak: float = 5  # the busiest minutes beside the mean of the working hours
    days: float = 230  # working days of a year


def rates(team: Team) -> dict[str, dict[str, float]]:
    """Return how often each call comes: a second on average, a second at the peak, and
    in a year.
    """
    sessions = team.developers * team.sessions
    daily = {
        "search": sessions * team.searches,
        "load": sessions * team.loads,
        "report": sessions * team.reports,
        "update": team.developers * team.edits,
    }
    seconds = team.hours * 3600
    return {
        call: {
            "mean_per_s": number / seconds,
            "peak_per_s": team.peak * number / seconds,
            "a_year": number * team.days,
        }
        for call, number in daily.items()
    }


CALLS = {"search": 4, "load": 3, "report": 1, "update": 1}
"""How often a server of the load run makes each call: more updates than in the model, as they are
what can break.
"""


class Client:
    """One server's work: the calls of ten sessions in turn, over a library."""

    def __init__(self, library: Library, number: int, resources: int) -> None:
        self._library, self._rng, self._resources = library, random.Random(number), resources
        self._callers = [
            Caller(Actor.AGENT, session=f"server {number} session {one}") for one in range(10)
        ]
        self._used: list[tuple[Caller, str]] = []

    def call(self, name: str) -> None:
        """Make one call."""
        caller, number = self._rng.choice(self._callers), self._rng.randrange(self._resources)
        skill = name_of(number)
        if name == "search":
            words = skill_text(skill, 0).split("\n")[2].split()[1:]
            find_skill(self._library, caller, " ".join(self._rng.sample(words, min(8, len(words)))))
        elif name == "load":
            self._used.append(
                (caller, load_skill(self._library, caller, Ref.parse(f"skill:{skill}")).use_id)
            )
        elif name == "report":
            if not self._used:
                self.call("load")
            caller, use = self._used.pop()
            report_outcome(self._library, caller, outcome="succeeded", use_id=use)
        else:
            text = f"{skill_text(skill, 0)}\nChanged {self._rng.random()}.\n"
            with self._library.store.transaction(Actor.AGENT, "load") as tx:
                tx.put(Ref.parse(f"skill:{skill}"), {"SKILL.md": File(text.encode())})


def serve(home: Path, number: int, resources: int, mix: dict[str, int], pipe: Connection) -> None:
    """Be one server: open the library, wait for the start, call until the end, and tell what came
    of it.
    """
    with Library.open(home) as library:
        client = Client(library, number, resources)
        if "search" in mix:
            client.call("search")  # the index is built
        pipe.send("ready")
        until = pipe.recv()
        rng, names, weights = random.Random(number), list(mix), list(mix.values())
        times, errors, cpu = defaultdict(list), Counter[str](), time.process_time()
        while time.monotonic() < until:
            name, began = rng.choices(names, weights)[0], time.perf_counter()
            try:
                client.call(name)
            except Exception as error:  # a load run counts what breaks
                errors[f"{name}: {type(error).__name__}: {str(error)[:80]}"] += 1
                continue
            times[name].append(time.perf_counter() - began)
        pipe.send((dict(times), dict(errors), time.process_time() - cpu))


class Place:
    """A PostgreSQL with a library of so many skills, and homes that use it."""

    def __init__(self, folder: Path, server: EmbeddedServer, resources: int) -> None:
        self.folder, self.server, self.resources = folder, server, resources
        with Store.open(self.home(), create=True) as store:
            seed(store, resources)

    def home(self) -> Path:
        """Return a new home of the library."""
        home = Path(tempfile.mkdtemp(dir=self.folder, prefix="home-"))
        check_home(home, create=True)
        save_address(home, Address.parse(self.server.url))
        return home

    def ask(self, statement: str) -> Any:
        """Return the first value of what PostgreSQL answers."""
        with psycopg.connect(Address.parse(self.server.url).url, autocommit=True) as plain:
            row = plain.execute(statement).fetchone()  # type: ignore[call-overload]
            return row[0] if row else None

    def processor_seconds(self) -> float:
        """Return the processor time of PostgreSQL and of what it has started, of children that
        ended too.
        """
        assert self.server.process is not None
        top = psutil.Process(self.server.process.pid)
        total = 0.0
        for one in [top, *top.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                spent = one.cpu_times()
                total += spent.user + spent.system + spent.children_user + spent.children_system
        return total


@contextlib.contextmanager
def place(resources: int) -> Iterator[Place]:
    """Yield a place; everything in it is removed at the end."""
    with tempfile.TemporaryDirectory(
        prefix="evolvable-load-", ignore_cleanup_errors=True
    ) as folder:
        os.chmod(folder, 0o755)
        with EmbeddedServer(Path(folder) / "server", account="nobody") as server:
            yield Place(Path(folder), server, resources)


def run_servers(here: Place, servers: int, mix: dict[str, int], seconds: float) -> dict[str, Any]:
    """Let so many servers call for so long, and return what came of it."""
    context = multiprocessing.get_context("spawn")
    running = []
    for number in range(servers):
        ours, theirs = context.Pipe()
        process = context.Process(
            target=serve, args=(here.home(), number, here.resources, mix, theirs), daemon=True
        )
        process.start()
        running.append((process, ours))
    for _, pipe in running:
        assert pipe.recv() == "ready"
    began, before = time.monotonic(), here.processor_seconds()
    for _, pipe in running:
        pipe.send(began + seconds)
    connections = (
        here.ask("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'") - 1
    )
    found = [pipe.recv() for _, pipe in running]
    took, postgres = time.monotonic() - began, here.processor_seconds() - before
    for process, _ in running:
        process.join()
    times: dict[str, list[float]] = defaultdict(list)
    errors: Counter[str] = Counter()
    for one, failed, _ in found:
        errors.update(failed)
        for name, some in one.items():
            times[name] += some
    spent = sum(one[2] for one in found)
    calls = sum(map(len, times.values()))
    return {
        "servers": servers,
        "calls_per_s": round(calls / took, 1),
        "cpu_ms_per_call": {
            "server": round(1000 * spent / calls, 2),
            "postgres": round(1000 * postgres / calls, 2),
        },
        "processors_busy": round((spent + postgres) / took, 2),
        "connections": connections,
        "ms_p50_p95": {
            name: [round(1000 * statistics.quantiles(some, n=20)[at], 1) for at in (9, 18)]
            for name, some in sorted(times.items())
            if len(some) > 1
        },
        "per_s": {name: round(len(some) / took, 1) for name, some in sorted(times.items())},
        "errors": dict(errors),
    }


_ROWS = (
    "SELECT coalesce(sum(n_tup_ins - n_tup_del), 0)::bigint FROM pg_stat_user_tables "
    "WHERE schemaname NOT LIKE 'pg_%'"
)


def costs(here: Place, calls: int = 300) -> dict[str, Any]:
    """Return what one call of each kind costs: bytes and rows in the database, and processor time
    on both sides.
    """
    found: dict[str, Any] = {}
    with Library.open(here.home()) as library:
        client = Client(library, 0, here.resources)
        for name in CALLS:
            client.call(name)
            here.ask("SELECT pg_stat_force_next_flush()")
            size, rows, cpu, server = _state(here)
            for _ in range(calls):
                client.call(name)
            after = _state(here)
            found[name] = {
                "bytes": round((after[0] - size) / calls),
                "rows": round((after[1] - rows) / calls, 2),
                "postgres_cpu_ms": round(1000 * (after[2] - cpu) / calls, 2),
                "server_cpu_ms": round(1000 * (after[3] - server) / calls, 2),
            }
    return found


def _state(here: Place) -> tuple[int, int, float, float]:
    time.sleep(1.2)  # PostgreSQL's statistics come once a second
    size = here.ask("SELECT pg_database_size(current_database())")
    return size, here.ask(_ROWS), here.processor_seconds(), time.process_time()


def limits(here: Place) -> dict[str, Any]:
    """Return where more stops helping: writers beside each other, connections, and the index of a
    server.
    """
    writers = {
        str(number): {
            key: one[key]
            for key in ("per_s", "ms_p50_p95", "cpu_ms_per_call", "processors_busy", "errors")
        }
        for number in (1, 2, 4, 8)
        for one in [run_servers(here, number, {"update": 1}, 8.0)]
    }
    return {"writers": writers, "connections": _connections(here), "index": _index(here)}


def _connections(here: Place) -> dict[str, Any]:
    """Open libraries until the server refuses one."""
    limit, opened = int(here.ask("SHOW max_connections")), []
    why = ""
    with contextlib.ExitStack() as stores:
        while not why and len(opened) < limit:
            try:
                opened.append(stores.enter_context(Store.open(here.home())))
                opened[-1].heads()
            except Exception as error:
                why = f"{type(error).__name__}: {str(error)[:160]}"
    return {"max_connections": limit, "servers_opened": len(opened), "then": why}


def _index(here: Place) -> dict[str, Any]:
    """Measure a new server's first search, and what each update of others costs every server."""
    with Library.open(here.home()) as library, Library.open(here.home()) as other:
        client, writer = Client(library, 1, here.resources), Client(other, 2, here.resources)
        first = _spent(lambda: client.call("search"))
        quiet = statistics.median(_spent(lambda: client.call("search")) for _ in range(30))
        behind: dict[str, float] = {}
        for number in (1, 10, 100):
            for _ in range(number):
                writer.call("update")
            behind[str(number)] = round(1000 * _spent(lambda: client.call("search")), 1)
    return {
        "resources": here.resources,
        "first_search_cpu_s": round(first, 2),
        "search_cpu_ms": round(1000 * quiet, 2),
        "search_after_updates_cpu_ms": behind,
    }


def _spent(action: Callable[[], object]) -> float:
    began = time.process_time()
    action()
    return time.process_time() - began


def main() -> None:
    """Run one part and print what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["model", "costs", "load", "limits"])
    parser.add_argument("--resources", type=int, default=2000)
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--seconds", type=float, default=15.0)
    given = parser.parse_args()
    if given.part == "model":
        print(json.dumps({"assumed": asdict(Team()), "calls": rates(Team())}, indent=1))
        return
    with place(given.resources) as here:
        if given.part == "costs":
            print(json.dumps(costs(here), indent=1))
        elif given.part == "limits":
            print(json.dumps(limits(here), indent=1))
        else:
            for servers in given.servers:
                print(json.dumps(run_servers(here, servers, CALLS, given.seconds)), flush=True)


if __name__ == "__main__":
    main()
