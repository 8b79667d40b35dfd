"""What a library in PostgreSQL costs: an update beside a bare commit of the same server, and how
soon others see it.

    python benchmarks/teams.py [--updates 300] [--url postgresql://...]
    python benchmarks/teams.py --servers 8 [--rounds 40]

With --servers, so many servers run on two homes that watch a folder each. All of them change one
skill at once, and one of their own; the same lines are saved in both folders at once. Then the log
is checked: every change that was answered is in it once, no version is forked, and each conflict is
stated once.

Without --url an embedded PostgreSQL is started, which waits for the disk as usual. The two kinds of
commits alternate, so a busy machine slows both; the ratio of the medians is the figure. Processor
time is that of this thread and of the server's process behind the connection (Linux). Round trips
and statements are counted on the wire. Real, not simulated.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from itertools import pairwise
from pathlib import Path
from typing import cast

import anyio
import psycopg
from mcp import Client, StdioServerParameters

from evolvable_store.fsck import check_library
from evolvable_store.objects import File
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.paths import check_home
from evolvable_store.resource import Ref
from evolvable_store.storage.address import Address, save_address
from evolvable_store.store import Store
from evolvable_store.workingcopy.registry import WorkingCopies
from evolvable_teams.postgres.embedded import EmbeddedServer
from evolvable_teams.postgres.storage import PostgresStorage


class Cost:
    """What one kind of commit costs: time, and processor time of this thread and of the
    connection's server process.
    """

    def __init__(self, connection: "Callable[[], psycopg.Connection]") -> None:
        self._connection = connection
        self.seconds: list[float] = []
        self.processor: list[float] = []

    def of(self, work: "Callable[[], object]") -> None:
        """Do the work once."""
        server = Path(f"/proc/{self._connection().info.backend_pid}/schedstat")
        before = self._nanoseconds(server)
        own, started = time.thread_time(), time.perf_counter()
        work()
        self.seconds.append(time.perf_counter() - started)
        used = time.thread_time() - own
        if before is not None and (after := self._nanoseconds(server)) is not None:
            self.processor.append(used + (after - before) / 1e9)

    @staticmethod
    def _nanoseconds(server: Path) -> int | None:
        try:
            return int(server.read_text().split()[0])
        except OSError:  # the server runs on another machine
            return None

    def on_the_wire(self, work: "Callable[[], object]") -> tuple[int, int]:
        """Do the work once; return its round trips and its statements."""
        raw = self._connection().pgconn
        with tempfile.TemporaryFile() as trace:
            raw.trace(trace.fileno())
            raw.set_trace_flags(psycopg.pq.Trace.SUPPRESS_TIMESTAMPS)
            work()
            raw.untrace()
            trace.seek(0)
            lines = [line.split(b"\t") for line in trace.read().splitlines()]
        sides = [line[0] for line in lines if line[0] in (b"F", b"B")]
        trips = sum(one == b"B" and before == b"F" for before, one in pairwise(sides))
        return trips, sum(
            line[0] == b"F" and line[2] in (b"Execute", b"Query") for line in lines if len(line) > 2
        )


def measure(url: str, place: Path, updates: int) -> dict[str, float]:
    """Return the medians in milliseconds, and the ratio."""
    for name in ("one", "two"):
        check_home(place / name, create=True)
        save_address(place / name, Address.parse(url))
    seen: list[float] = []
    read: list[float] = []
    ref, text = (
        Ref.parse("measured"),
        "---\nname: measured\ndescription: A skill.\n---\n\n" + "A line of text.\n" * 100,
    )
    one, two = Store.open(place / "one", create=True), Store.open(place / "two")
    with (
        one,
        two,
        two.backend.watching() as commits,
        psycopg.connect(Address.parse(url).url, autocommit=True) as plain,
    ):
        plain.execute(
            "CREATE TABLE IF NOT EXISTS bare_commit (number bigint PRIMARY KEY, text text)"
        )

        def commit() -> None:
            plain.execute("INSERT INTO bare_commit VALUES (%s, %s)", [time.time_ns(), text])

        def change() -> None:
            with one.transaction(Actor.AGENT, "measured") as tx:
                tx.put(ref, {"SKILL.md": File(f"{text}{time.time_ns()}".encode())})

        bare, update = (
            Cost(lambda: plain),
            Cost(lambda: cast(PostgresStorage, one.backend)._idle[-1].raw),
        )
        for _ in range(updates):
            bare.of(commit)
            before = commits()
            update.of(change)
            ended = time.perf_counter()
            while commits() == before:
                time.sleep(0.0005)
            seen.append(time.perf_counter() - ended)
            started = time.perf_counter()
            two.head(ref)
            read.append(time.perf_counter() - started)
        wire = bare.on_the_wire(commit), update.on_the_wire(change)
        plain.execute("DROP TABLE bare_commit")
    figures = {"bare commit": bare.seconds, "update": update.seconds, "read of a head": read}
    figures |= {
        "processor of a bare commit": bare.processor,
        "processor of an update": update.processor,
    }
    result = {
        f"{name}, ms p50": round(1000 * statistics.median(times), 2)
        for name, times in figures.items()
        if times
    }
    result["update in bare commits"] = ratio(update.seconds, bare.seconds)
    if bare.processor:
        result["update in bare commits, processor"] = ratio(update.processor, bare.processor)
    for name, counted in zip(("bare commit", "update"), wire, strict=True):
        result[f"{name}, round trips"], result[f"{name}, statements"] = counted
    result["seen elsewhere after the commit, ms p95"] = round(
        1000 * statistics.quantiles(seen, n=20)[-1], 1
    )
    return result


def ratio(one: list[float], other: list[float]) -> float:
    """Return the median of one in medians of the other."""
    return round(statistics.median(one) / statistics.median(other), 2)


class Home:
    """A person's machine: a home that names the library, and a watched folder of skills."""

    def __init__(self, place: Path, url: str) -> None:
        self.root, self.home, self.skills = place, place / "home", place / "skills"
        self.skills.mkdir(parents=True)
        check_home(self.home, create=True)
        save_address(self.home, Address.parse(url))
        with Store.open(self.home, create=True) as store:
            copies = WorkingCopies(store)
            copies.add(self.skills, identity=Identity(Principal.PERSON, "terminal"))
            copies.checkout([head.ref for head in store.heads()], created=True)

    def server(self) -> Client:
        """Return a client that starts a server of this home."""
        environment = {
            "EVOLVABLE_HOME": str(self.home),
            "EVOLVABLE_EMBEDDER": "off",
            "HOME": str(self.root),
        }
        environment["PATH"] = os.environ["PATH"]
        arguments = ["-P", "-m", "evolvable_server", "serve"]
        return Client(
            StdioServerParameters(
                command=sys.executable, args=arguments, env=environment, cwd=self.root
            )
        )

    def save(self, name: str, text: str) -> None:
        """Save a skill as an editor does."""
        draft = self.root / "draft"
        draft.write_text(text, encoding="utf-8")
        (self.skills / name).mkdir(exist_ok=True)
        draft.replace(self.skills / name / "SKILL.md")

    def text(self, name: str) -> str:
        """Return the skill as it lies in the folder, '' without one."""
        try:
            return (self.skills / name / "SKILL.md").read_text(encoding="utf-8")
        except OSError:
            return ""


def skill(name: str, body: str) -> str:
    """Return the text of a skill."""
    return (
        f"---\nname: {name}\ndescription: Works with {name} files.\n---\n\nFirst.\n\n{body}\n\n"
        "Last.\n"
    )


class Fleet:
    """Servers on two homes, and what they answered."""

    def __init__(self, homes: Sequence[Home], clients: Sequence[Client]) -> None:
        self.homes, self.clients = homes, clients
        self.acknowledged: list[str] = []
        self.refused = self.attempts = 0

    async def change(self, client: Client, name: str, reason: str, **more: object) -> bool:
        """Change a skill; return whether the server said that it did."""
        arguments = {
            "ref": name,
            "reason": reason,
            "files": {"SKILL.md": skill(name, reason)},
            **more,
        }
        result = await client.call_tool("update_resource", arguments)
        if not result.is_error:
            self.acknowledged.append(reason)
        return not result.is_error

    async def round(self, number: int) -> None:
        """Have all servers change the shared skill from one version at once, and each a skill of
        its own.
        """
        history = await self.clients[0].call_tool("resource_history", {"ref": "shared"})
        head = (history.structured_content or {})["head"]
        won: list[bool] = []

        async def one(place: int, client: Client) -> None:
            won.append(
                await self.change(
                    client, "shared", f"shared {number}/{place}", expected_version=head
                )
            )
            await self.change(client, f"own-{place}", f"own {number}/{place}", create=number == 0)

        async with anyio.create_task_group() as tasks:
            for place, client in enumerate(self.clients):
                tasks.start_soon(one, place, client)
        self.attempts += len(won)
        self.refused += won.count(False)
        assert won.count(True) == 1, f"{won.count(True)} servers changed one version"

    async def seen(self, times: int) -> list[float]:
        """Return after how many seconds a client of the other home was told of a change that was
        answered.
        """
        waits: list[float] = []
        text = "---\nname: told\ndescription: Told.\n---\n\nText {}.\n"
        async with self.clients[-1].listen(
            resource_subscriptions=["prompt://told/PROMPT.md"]
        ) as events:
            for number in range(times):
                files = {"PROMPT.md": text.format(number)}
                arguments = {
                    "ref": "prompt:told",
                    "reason": f"told {number}",
                    "files": files,
                    "create": number == 0,
                }
                result = await self.clients[0].call_tool("update_resource", arguments)
                assert not result.is_error, result
                self.acknowledged.append(f"told {number}")
                answered = time.perf_counter()
                await anext(events)
                waits.append(time.perf_counter() - answered)
        return waits

    async def saved(self, names: Sequence[str]) -> None:
        """Save other lines at one place of each of these skills in both folders at once."""
        for name in names:
            for place, home in enumerate(self.homes):
                home.save(name, skill(name, f"By {place}."))
            await self.until(
                lambda name=name: self.homes[0].text(name) == self.homes[1].text(name),
                f"{name} the same",
            )

    @staticmethod
    async def until(condition: Callable[[], bool], what: str) -> None:
        """Wait until it holds."""
        with anyio.fail_after(120):
            while not condition():
                await anyio.sleep(0.02)


async def serve_many(url: str, place: Path, servers: int, rounds: int) -> dict[str, object]:
    """Run the servers; return what was counted, and what the log says."""
    both = [f"both-{number}" for number in range(max(1, rounds // 8))]
    begun = Home(place / "begun", url)
    with Store.open(begun.home) as store, store.transaction(Actor.HUMAN, "begin") as tx:
        for name in ("shared", *both):
            tx.put(Ref.parse(name), {"SKILL.md": File(skill(name, "Shared.").encode())})
    homes = [Home(place / name, url) for name in ("one", "two")]
    async with AsyncExitStack() as ends:
        clients = [
            await ends.enter_async_context(homes[number % 2].server()) for number in range(servers)
        ]
        fleet = Fleet(homes, clients)
        for number in range(rounds):
            await fleet.round(number)
        waits = await fleet.seen(rounds)
        await fleet.saved(both)
    with Store.open(homes[0].home) as store:
        operations = store.operations(10**6)
        reasons = Counter(one.reason for one in operations)
        changes = store.changes(after=0, limit=10**6)
        stated = Counter(
            change.ref
            for change in changes
            if any(
                line.startswith("conflict: ")
                for line in store.operation(change.operation).intent.evidence
            )
        )
        forked = [a for a, b in pairwise(changes) if b.sequence != a.sequence + 1]
        faults = check_library(store).faults
    return {
        "servers": servers,
        "changes answered": len(fleet.acknowledged),
        "lost": sum(reasons[reason] == 0 for reason in fleet.acknowledged),
        "there twice": sum(reasons[reason] > 1 for reason in fleet.acknowledged),
        "forked, or gaps in the log": len(forked) + len(faults),
        "at once on one version": (
            f"{fleet.attempts} attempts, {fleet.refused} told of the conflict"
        ),
        "saved in both folders at once": len(both),
        "of these stated as conflicts": sum(stated.values()),
        "stated more than once": sum(count > 1 for count in stated.values()),
        "told elsewhere after the answer, ms p50": round(1000 * statistics.median(waits), 1),
        "told elsewhere after the answer, ms p95": round(
            1000 * statistics.quantiles(waits, n=20)[-1], 1
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--url")
    parser.add_argument("--servers", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument(
        "--account", default="nobody", help="as whom PostgreSQL runs where this process is root's"
    )
    given = parser.parse_args()
    with ExitStack() as ends:
        place = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="evolvable-teams-")))
        os.chmod(place, 0o755)
        url = (
            given.url
            or ends.enter_context(EmbeddedServer(place / "server", account=given.account)).url
        )
        if given.servers:
            print(
                json.dumps(anyio.run(serve_many, url, place, given.servers, given.rounds), indent=1)
            )
        else:
            print(json.dumps(measure(url, place, given.updates), indent=1))


if __name__ == "__main__":
    main()
