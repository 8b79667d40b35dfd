"""Ten thousand mixed calls to one server, over stdio and over HTTP: its memory and its open files
stay as they are.

`--faults` runs another soak: windows that work while something fails every two seconds; see
fault_soak.py.
"""

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import anyio
import psutil
from mcp import Client, MCPError, StdioServerParameters
from support import (
    SERVE,
    Row,
    arguments,
    at_most,
    conclude,
    environment,
    none_of,
    progress,
    seed,
    skill_text,
)

from evolvable_store.store import Store

SKILLS = 50
"""So few that every skill has met every sort of call within the first thousand."""

CALLS = 10_000
AT_ONCE = 4
"""Calls in flight."""

SESSION = 100
"""Calls of one client over HTTP, then another one comes, of the other era.

Sizes are taken with clients of one era.
"""

BURST = 40
"""Searches in flight at the very beginning: they fill the server's pools of threads and
connections.
"""

GIVEN_BACK_SECONDS = 12.0
"""A server gives free memory back to the system every 10 seconds: sizes that are compared are taken
after that.
"""

GROWTH_MB = 5.0
ERAS = ("legacy", "auto")


@dataclass(frozen=True, slots=True)
class Size:
    """A process at rest: memory in MB, resident and its own; open files, and those that are a
    database itself.

    own: the proportional size of what is no file. That of files is less while other programs have
    the same ones open.
    """

    rss: float
    own: float
    files: int
    databases: int


def size(process: psutil.Process) -> Size:
    # SQLite may not close a database while another connection of the process has it open, so it
    # keeps as many files as connections were ever open at once, and takes them for later ones. A
    # connection more has a log open too.
    databases = sum(file.path.endswith(".db") for file in process.open_files())
    rss = process.memory_info().rss / 1e6
    return Size(rss, own_mb(process), process.num_fds() - databases, databases)


def own_mb(process: psutil.Process) -> float:
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return float(process.memory_full_info().uss) / 1e6
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon")) * 1024 / 1e6


async def at_rest(process: psutil.Process) -> Size:
    """Return the size of a process when nothing that it had begun is still going on: the smallest
    of a second.
    """
    found = []
    for _ in range(5):
        await anyio.sleep(0.2)
        found.append(size(process))
    return Size(*(min(getattr(one, field.name) for one in found) for field in fields(Size)))


class Mixture:
    """Calls of every sort that a client makes, one after the other, also such as fail; counts those
    that surprise.
    """

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._use_ids: list[str] = []
        self._operations: list[int] = []
        self.wrong: list[str] = []

    async def call(self, client: Client, number: int, sort: str = "") -> None:
        """Make the call of this number, of that sort if one is named; nearly every one differs from
        all before.
        """
        name = self._names[number * 7 % len(self._names)]
        sorts = self._sorts(client, name, number)
        sort = sort or list(sorts)[number % len(sorts)]
        try:
            good = await sorts[sort]()
        except MCPError as error:
            good = sort == "no such resource" and "no-such" in str(error)
        if not good:
            self.wrong.append(sort)

    def _sorts(
        self, client: Client, name: str, number: int
    ) -> dict[str, Callable[[], Awaitable[bool]]]:
        async def tool(fails: bool = False, /, **values: Any) -> bool:
            tool_name = values.pop("tool")
            result = await client.call_tool(tool_name, values)
            self._learn(result)
            return result.is_error is fails

        async def no_such() -> bool:
            await client.read_resource(f"skill://no-such-{number}/SKILL.md")
            return False

        async def prompt() -> bool:
            return bool((await client.get_prompt("use_skill", {"name": name})).messages)

        async def listed() -> bool:
            return bool(
                (await client.list_resources()).resources and (await client.list_prompts()).prompts
            )

        async def read() -> bool:
            return bool((await client.read_resource(f"skill://{name}/SKILL.md")).contents)

        text, words = skill_text(name, number, 3000), name.replace("-", " ")
        edit = {"files": {f"notes/{number}.md": text}, "reason": f"call {number}"}
        use = {"use_id": self._use_ids.pop()} if self._use_ids else {"ref": name}
        operation = self._operations.pop() if self._operations else None
        return {
            "find": lambda: tool(tool="find_skill", task=f"{words} for release {number}"),
            "load": lambda: tool(tool="load_skill", ref=name),
            "report": lambda: tool(tool="report_outcome", outcome="succeeded", **use),
            "list": lambda: tool(tool="list_resources", query=name[:4], limit=50),
            "get": lambda: tool(tool="get_resource", ref=f"{name}@1"),
            "history": lambda: tool(tool="resource_history", ref=name, from_version=1, limit=5),
            "update": lambda: tool(tool="update_resource", ref=name, **edit),
            "resources": listed,
            "read": read,
            "restore": lambda: tool(
                tool="restore_resource", ref=name, version=1, reason=f"call {number}"
            ),
            "undo": lambda: (
                tool(tool="undo", operation=operation, reason="back")
                if operation
                else tool(tool="find_skill", task="undo a change")
            ),
            "prompt": prompt,
            "find in text": lambda: tool(
                tool="find_skill", task=text[200 : 220 + number % 400], mode="text", limit=20
            ),
            "no such ref": lambda: tool(True, tool="load_skill", ref=f"no-such-{number}"),
            "no such tool": lambda: tool(True, tool="no_such_tool"),
            "no such argument": lambda: tool(True, tool="find_skill", task="x", nonsense=number),
            "no such resource": no_such,
        }

    def _learn(self, result: Any) -> None:
        facts = result.structured_content or {}
        if facts.get("operation") and "ref" in facts:
            self._operations = [facts["operation"]]
        text = getattr(result.content[0], "text", "") if result.content else ""
        if "use_id: " in text:
            self._use_ids = [text.rpartition("use_id: ")[2].split()[0]]


Connect = Callable[[str], contextlib.AbstractAsyncContextManager[Client]]


async def soak(
    names: list[str], connect: Connect, server: int | None, calls: int, eras: list[str]
) -> list[Row]:
    """Make the calls through clients of these eras in turn and compares the server after the first
    calls and last.

    server: its process, None when the client starts it.
    """
    mixture, sizes, done = Mixture(names), [], 0
    while done < calls:
        era = eras[done // SESSION % len(eras)]
        async with connect(era) as client:
            process = psutil.Process(server) if server else psutil.Process().children()[0]
            for _ in range(SESSION if server else calls):
                now, sort = (AT_ONCE, "") if done else (BURST, "find")
                async with anyio.create_task_group() as tasks:
                    for number in range(done, done + now):
                        tasks.start_soon(mixture.call, client, number, sort)
                done += now
                if done % (calls // 10) == 0:
                    await anyio.sleep(GIVEN_BACK_SECONDS if done in (calls // 10, calls) else 0)
                    sizes.append(await at_rest(process))
                    progress(f"  {done:,} calls: {sizes[-1]}")
                if done >= calls or (server and done % SESSION == 0):
                    break
    return compared(sizes[0], sizes[-1], calls, mixture.wrong)


def compared(first: Size, last: Size, calls: int, wrong: list[str]) -> list[Row]:
    for sort in sorted(set(wrong)):
        progress(f"  went wrong: {sort}, {wrong.count(sort)} times")
    return [
        Row(
            f"memory after {calls // 10:,} calls, RSS / its own",
            f"{first.rss:.1f} / {first.own:.1f} MB",
        ),
        at_most(f"more after {calls:,}, RSS", last.rss - first.rss, GROWTH_MB, megabytes),
        at_most(f"more after {calls:,}, its own", last.own - first.own, GROWTH_MB, megabytes),
        Row(
            "open files; databases",
            f"{first.files}; {first.databases}, at the end {last.databases}",
        ),
        none_of("open files more", max(0, last.files - first.files)),
        none_of("calls that went wrong", len(wrong)),
    ]


def megabytes(value: float) -> str:
    return f"{value:.1f} MB"


@contextlib.contextmanager
def library(place: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield a new library and the names of its skills."""
    home = place / "home"
    with Store.open(home, create=True) as store:
        names = [ref.name for ref in seed(store, SKILLS)]
    yield home, names


async def over_stdio(place: Path, era: str, calls: int) -> list[Row]:
    with library(place) as (home, names):
        command = StdioServerParameters(
            command=SERVE[0], args=list(SERVE[1:]), env=environment(home), cwd=place
        )
        return await soak(names, lambda era: Client(command, mode=era), None, calls, [era])


async def over_http(place: Path, calls: int) -> list[Row]:
    with library(place) as (home, names):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        server = subprocess.Popen([*SERVE, "--http", address], env=environment(home), cwd=place)
        try:
            await listening(address)
            url = f"http://{address}/mcp"
            return await soak(
                names, lambda era: Client(url, mode=era), server.pid, calls, list(ERAS)
            )
        finally:
            server.terminate()
            server.wait(10)


async def listening(address: str) -> None:
    """Wait until the server accepts connections."""
    host, _, port = address.rpartition(":")
    with anyio.fail_after(30):
        while True:
            with contextlib.suppress(OSError):
                await (await anyio.connect_tcp(host, int(port))).aclose()
                return
            await anyio.sleep(0.05)


def main() -> None:
    options = arguments(__doc__, calls=CALLS, way="", faults=False, minutes=20.0, seed=0, resume="")
    if options.faults or options.resume:
        # Not where there are no faults: it reads what Linux alone has.
        from fault_soak import run as run_with_faults

        run_with_faults(
            options.minutes or (2.0 if options.quick else 20.0),
            options.seed or 0,
            options.resume or "",
        )
    calls = options.calls or (CALLS // 5 if options.quick else CALLS)
    rows = []
    runs: dict[str, Callable[[Path, int], Awaitable[list[Row]]]] = {
        "stdio, handshake": lambda place, calls: over_stdio(place, "legacy", calls),
        "stdio, 2026-07-28": lambda place, calls: over_stdio(place, "auto", calls),
        f"HTTP, a client of either era every {SESSION} calls": over_http,
    }
    for title, run in runs.items():
        if options.way and not title.startswith(options.way):
            continue
        progress(title)
        with tempfile.TemporaryDirectory() as place:
            started = time.monotonic()
            found = anyio.run(run, Path(place), calls)
        rows += [Row(title, f"{calls:,} calls in {time.monotonic() - started:.0f} s"), *found]
    conclude("Soak", rows)


if __name__ == "__main__":
    main()
