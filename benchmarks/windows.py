"""Measure several servers over one library with a watched folder: updates, idling, takeover,
memory.

Each server is what one window of a client starts, with the policy `guarded`. Latencies stand beside
the bare server's answer, and beside a bare durable commit, of the same run. Processor times and
wake-ups are of all servers, from /proc.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from processes import bare_commits, seconds_until_found
from reload import until
from start import BARE
from support import (
    SERVE,
    Row,
    Server,
    arguments,
    at_most,
    conclude,
    environment,
    median,
    ms,
    none_of,
    percentile,
    progress,
    ratio,
    seed_folder,
    skill_text,
    timed,
)

from evolvable_store import fsck
from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_store.workingcopy.folder_lock import FolderOwner
from evolvable_store.workingcopy.registry import WorkingCopies

SETTLE = 4.0
"""Seconds after which servers that have just started, or changed something, are idle."""

PAUSE = 0.15
"""Seconds between two updates of one server, and two calls of the bare one: a processor is slower
after each pause.
"""

TICKS = os.sysconf("SC_CLK_TCK")


class Windows:
    """Servers over one library with one watched folder."""

    def __init__(self, place: Path, servers: int, skills: int) -> None:
        self.home, self.folder = place / "home", place / "skills"
        self.names = seed_folder(self.folder, skills)
        with Store.open(self.home, create=True) as store:
            WorkingCopies(store).add(self.folder)
        self._open = contextlib.ExitStack()
        self.servers = [self._open.enter_context(Server(SERVE, self.home)) for _ in range(servers)]
        for server in self.servers:
            server.call("find_skill", task="warm up")
        time.sleep(SETTLE)

    def close(self) -> None:
        self._open.close()

    def update(self, server: Server, name: str, text: str) -> float:
        """Add a file to a skill; return the seconds until the answer."""
        return timed(
            lambda: server.call(
                "update_resource",
                ref=f"skill:{name}",
                reason="window",
                files={f"notes/{text}.md": text},
            )
        )

    def owner(self) -> int:
        """Return the process that owns the folder."""
        return FolderOwner(self.home).owner()

    def version(self, name: str) -> int | None:
        with Store.open(self.home) as store:
            return next(head.version for head in store.heads() if head.name == name)

    def processor(self) -> float:
        """Return the processor seconds of all servers so far."""
        return sum(processor_seconds(server.process.pid) for server in self.servers)

    def seen(self, name: str) -> float:
        """Save a file; return the seconds until it is a version, 60 when it is missed."""
        before = self.version(name) or 0
        path = self.folder / name / "SKILL.md"
        path.write_text(skill_text(name, random.random()), encoding="utf-8")
        saved = time.perf_counter()
        there = until(lambda: self.version(name) != before, 60.0)
        return time.perf_counter() - saved if there else 60.0


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def wake_ups(pid: int) -> int:
    """Return how often the threads of a process have waited for something."""
    told = (path.read_text(encoding="ascii") for path in Path(f"/proc/{pid}/task").glob("*/status"))
    return sum(
        int(line.split()[1])
        for text in told
        for line in text.splitlines()
        if line.startswith("voluntary")
    )


def new_folder(top: Path) -> Path:
    """Return a new folder of one measurement, which stays until the end of all.

    ext4 gives no inode away again for a minute after its file was deleted, and looks at each such
    inode whenever a file is made: thousands of files deleted before a measurement add a millisecond
    to an update.
    """
    return Path(tempfile.mkdtemp(dir=top))


@contextlib.contextmanager
def windows(top: Path, servers: int, skills: int) -> Iterator[Windows]:
    """Yield servers over a library in a new folder below `top`."""
    opened = Windows(new_folder(top), servers, skills)
    try:
        yield opened
    finally:
        opened.close()


def updates(
    opened: Windows, label: str, count: int, limits: tuple[float, float] | None, bare: float
) -> list[Row]:
    """Measure updates by one server, one after the other, and what they cost all servers.

    bare: median seconds of a call of the bare server at the same pace.
    """
    first, took = opened.servers[0], []
    opened.update(first, opened.names[0], "warm")  # the scan's rules are compiled
    time.sleep(SETTLE)
    before = opened.processor()
    for number in range(count):
        took.append(opened.update(first, opened.names[number % len(opened.names)], str(number)))
        time.sleep(PAUSE)
    time.sleep(SETTLE)
    each = (opened.processor() - before) / count
    rows = [
        Row(f"{label}: update, p50", ms(median(took))),
        Row(f"{label}: update, p95", ms(percentile(took, 95))),
    ]
    if limits:
        rows = [
            at_most(f"{label}: update, p50", median(took), limits[0], ms),
            at_most(f"{label}: update, p95", percentile(took, 95), limits[1], ms),
        ]
    rows.append(Row(f"{label}: update, p50 / call of the bare server", ratio(median(took) / bare)))
    many = len(opened.servers) > 4
    shown = f"{label}: processor time of an update, all servers"
    return [*rows, at_most(shown, each, 0.040, ms) if many else Row(shown, ms(each))]


def together(opened: Windows, label: str, count: int, bare: float) -> list[Row]:
    """Measure updates of all servers at once, each of another skill."""
    waited: list[float] = []

    def write(number: int, server: Server) -> None:
        for turn in range(count):
            waited.append(opened.update(server, opened.names[number], f"{number}-{turn}"))

    threads = [threading.Thread(target=write, args=pair) for pair in enumerate(opened.servers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [
        at_most(f"{label}: updates of all at once, p50", median(waited), 0.060, ms),
        at_most(f"{label}: updates of all at once, p99", percentile(waited, 99), 0.400, ms),
        at_most(f"{label}: updates of all at once, longest", max(waited), 1.0, ms),
        Row(f"{label}: p50 of all at once / bare commit", ratio(median(waited) / bare)),
    ]


def idle(opened: Windows, label: str, seconds: float) -> list[Row]:
    """Measure what servers do that nobody calls, and how soon they see the first change
    afterwards.
    """
    time.sleep(SETTLE)
    pids = [server.process.pid for server in opened.servers]
    spent = {pid: (processor_seconds(pid), wake_ups(pid)) for pid in pids}
    time.sleep(seconds)
    rows = []
    for what, chosen, share, rate in (
        ("owner", [pid for pid in pids if pid == opened.owner()], 0.005, 15),
        ("follower", [pid for pid in pids if pid != opened.owner()], 0.002, 5),
    ):
        if chosen:
            busy = max(processor_seconds(pid) - spent[pid][0] for pid in chosen) / seconds
            woken = max(wake_ups(pid) - spent[pid][1] for pid in chosen) / seconds
            rows.append(
                at_most(f"{label}: idle {what}, share of a core", busy, share, "{:.2%}".format)
            )
            rows.append(
                at_most(f"{label}: idle {what}, wake-ups a second", woken, rate, "{:.1f}".format)
            )
    with Store.open(opened.home) as store:
        found = seconds_until_found(
            store, opened.servers[-1], Ref.parse(opened.names[30]), "quokka"
        )
    rows.append(
        at_most(
            f"{label}: first change of another process found after {seconds:.0f} idle s",
            found,
            0.060,
            ms,
        )
    )
    time.sleep(seconds)
    first = opened.seen(opened.names[0])
    rows.append(
        at_most(f"{label}: first file saved after {seconds:.0f} idle seconds", first, 0.100, ms)
    )
    time.sleep(SETTLE)  # the patterns of secrets are compiled after the first import
    saved = [opened.seen(name) for name in opened.names[1:21]]
    return [
        *rows,
        at_most(f"{label}: a saved file is a version, p95", percentile(saved, 95), 0.100, ms),
    ]


def takeovers(opened: Windows, label: str, count: int) -> list[Row]:
    """Kill the owner, save a file at that moment, and measure the time until it is a version."""
    took, missed = [], 0
    for number in range(min(count, len(opened.servers) - 1)):
        os.kill(opened.owner(), signal.SIGKILL)
        seconds = opened.seen(opened.names[30 + number])
        missed += seconds >= 60
        took.append(seconds)
    return [
        at_most(
            f"{label}: owner killed, next save is a version, p95 of {len(took)}",
            percentile(took, 95),
            1.0,
            ms,
        ),
        none_of(f"{label}: saves missed at a takeover", missed),
    ]


def handovers(opened: Windows, label: str, count: int) -> list[Row]:
    """Stop the owner and continue it, and let the owner leave; each time save a file, and count
    versions.
    """
    stopped, left, wrong = [], [], 0
    names = iter(opened.names[60:])
    for _ in range(count):
        name, owner = next(names), opened.owner()
        before = opened.version(name) or 0
        os.kill(owner, signal.SIGSTOP)
        stopped.append(opened.seen(name))
        os.kill(owner, signal.SIGCONT)
        # It finds that it is the owner no more, and has looked at the folder if it did not.
        time.sleep(SETTLE)
        wrong += opened.version(name) != before + 1 or opened.owner() == owner
    for _ in range(count):
        name, owner = next(names), opened.owner()
        leaving = next(server for server in opened.servers if server.process.pid == owner)
        opened.servers.remove(leaving)
        before = opened.version(name) or 0
        leaving.close()
        left.append(opened.seen(name))
        wrong += opened.version(name) != before + 1
    return [
        at_most(
            f"{label}: owner stopped, next save is a version, longest of {count}",
            max(stopped),
            12.0,
            ms,
        ),
        at_most(
            f"{label}: owner left, next save is a version, longest of {count}", max(left), 1.0, ms
        ),
        none_of(f"{label}: saves missed or taken twice, owners that went on", wrong),
    ]


def beside_older(top: Path, older: Path, count: int) -> list[Row]:
    """Start a server of an older version on a library that it made, then one of this version, which
    migrates it.

    older: a checkout of that version, as `git worktree add` makes it. Counts what both lose of each
    other's changes and of a person's saves. The older server may refuse to write from then on; that
    is no loss.
    """
    sources = os.pathsep.join(str(older / part) for part in ("server", "tools", "skills_store"))
    with contextlib.ExitStack() as stack:
        opened, place = Windows.__new__(Windows), new_folder(top)
        opened.home, opened.folder = place / "home", place / "skills"
        opened.names = seed_folder(opened.folder, 60)
        old = ("/usr/bin/env", f"PYTHONPATH={sources}", sys.executable, "-m", "evolvable_server")
        subprocess.run(
            [*old, "init", "--yes", str(opened.folder)], env=environment(opened.home), check=True
        )
        servers = []
        # This version brings the library's schema up to date.
        for command in ((*old, "serve"), SERVE):
            servers.append(stack.enter_context(Server(command, opened.home)))
            servers[-1].call("find_skill", task="warm up")
            time.sleep(SETTLE)
        lost = refused = 0
        for number, name in enumerate(opened.names[:count]):
            for server in reversed(servers):
                before, path = opened.version(name) or 0, f"notes/{number}-{server.process.pid}.md"
                made = server.call(
                    "update_resource", ref=f"skill:{name}", reason="window", files={path: "new"}
                )
                refused += made is None
                lost += (opened.folder / name / path).exists() is not (made is not None)
                lost += opened.seen(name) >= 60 or opened.version(name) != before + 1 + (
                    made is not None
                )
        with Store.open(opened.home) as store:
            faults = len(fsck.check_library(store).faults)
    return [
        none_of(f"beside an older version: of {4 * count} changes, lost or taken twice", lost),
        Row("beside an older version: updates that it refused", str(refused)),
        none_of("beside an older version: faults that fsck finds", faults),
    ]


def private_mb(pids: Sequence[int]) -> float:
    """Return the proportional memory (PSS) of processes, where pages that they share count once."""
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii") for pid in pids]
    return (
        sum(
            int(line.split()[1])
            for text in texts
            for line in text.splitlines()
            if line.startswith("Pss:")
        )
        / 1024
    )


def memory(opened: Windows, label: str, limit: float | None = None) -> list[Row]:
    """Compare the memory of all servers with that of as many bare ones, after some searches.

    limit: in MB, for all.
    """
    for server in opened.servers:
        for name in opened.names[::10][:50]:
            server.call("find_skill", task=f"{name.replace('-', ' ')} of last month")
    time.sleep(SETTLE)
    with contextlib.ExitStack() as stack:
        bare = [stack.enter_context(Server(BARE, opened.home)) for _ in opened.servers]
        for server in bare:
            server.request("tools/list")
        least = private_mb([server.process.pid for server in bare])
    ours = private_mb([server.process.pid for server in opened.servers])
    what = f"{label}: memory above as many bare servers"
    return [
        at_most(what, ours - least, limit, "{:.0f} MB".format)
        if limit
        else Row(what, f"{ours - least:.0f} MB")
    ]


def intake(top: Path, skills: int) -> list[Row]:
    """Measure an import of made-up skills, three times."""
    what = f"{skills:,} skills imported beside a server until the last is found, p50 of 3"
    took = [import_seconds(top, lambda folder: seed_folder(folder, skills)) for _ in range(3)]
    return [at_most(what, median(took), 8.0, "{:.1f} s".format)]


def import_seconds(top: Path, fill: Callable[[Path], object]) -> float:
    """Return how long it takes beside a server until the last skill of a new folder is found.

    fill: writes the other skills into the folder.
    """
    place = new_folder(top)
    home, folder = place / "home", place / "skills"
    fill(folder)
    last = folder / "zzz-zebra-census"  # the last by name
    last.mkdir()
    (last / "SKILL.md").write_text(
        "---\nname: zzz-zebra-census\ndescription: Count the zebras of a savannah.\n---\nCount.\n",
        encoding="utf-8",
    )
    with Server(SERVE, home) as server:
        server.call("find_skill", task="warm up")
        time.sleep(SETTLE)
        begun = time.perf_counter()
        subprocess.run(
            [*SERVE[:-1], "init", str(folder)],
            env=environment(home),
            check=True,
            capture_output=True,
        )
        while "zzz-zebra-census" not in str(
            server.call("find_skill", task="count the zebras of a savannah")
        ):
            time.sleep(0.02)
        return time.perf_counter() - begun


def bare_answers(top: Path, count: int, pause: float) -> float:
    """Return the median seconds of a call of the bare server. pause: seconds after each."""
    took = []
    with Server(BARE, new_folder(top)) as server:
        for _ in range(count):
            took.append(timed(partial(server.call, "echo", text="x")))
            time.sleep(pause)
    return median(took)


def main() -> None:
    if not sys.platform.startswith("linux"):
        sys.exit("windows.py reads /proc: it runs on Linux alone.")
    options = arguments(__doc__, seconds=20.0, older="")
    quick, seconds = options.quick, options.seconds or (5.0 if options.quick else 20.0)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), quick, seconds, options.older)
    conclude("Many windows over one library with a watched folder", rows)


def measure(top: Path, quick: bool, seconds: float, older: str) -> list[Row]:
    """Return all rows. seconds: idle ones. older: a checkout of an older version, '' for none."""
    commit, call = median(bare_commits(new_folder(top), 100)), bare_answers(top, 40, PAUSE)
    rows = [
        Row("bare server: a call, p50", ms(bare_answers(top, 50, 0.0))),
        Row(f"bare server: a call every {PAUSE} s, p50", ms(call)),
        Row("bare durable commit by one process alone, p50", ms(commit)),
    ]
    one, eight = (0.008, 0.020), (0.015, 0.060)
    cases: list[tuple[int, int, tuple[float, float] | None]] = [(1, 300, one), (8, 300, eight)]
    if not quick:
        cases = [
            (1, 60, one),
            (1, 300, one),
            (1, 1000, None),
            (4, 300, None),
            (8, 60, eight),
            (8, 300, eight),
        ]
    for servers, skills, limits in cases:
        label = f"{servers} servers, {skills} skills"
        progress(label)
        parts: list[Callable[[Windows], list[Row]]] = []
        # Before the updates: half a minute after them the owner makes what they replaced durable.
        if skills == 300:
            parts.append(partial(idle, label=label, seconds=seconds))
        parts.append(
            partial(updates, label=label, count=10 if quick else 40, limits=limits, bare=call)
        )
        if servers == 8:
            parts.append(partial(together, label=label, count=5 if quick else 25, bare=commit))
        if skills == 300:
            parts.append(partial(memory, label=label))
        if (servers, skills) == (8, 300):
            parts += [
                partial(handovers, label=label, count=2),
                partial(takeovers, label=label, count=7),
            ]
        with windows(top, servers, skills) as opened:
            for part in parts:
                rows += part(opened)
    if older:
        progress("an older version")
        rows += beside_older(top, Path(older), 5)
    if not quick:
        progress("10,000 skills imported")
        rows += intake(top, 10_000)
        progress("8 servers, 10,000 skills")
        with windows(top, 8, 10_000) as opened:
            rows += memory(opened, "8 servers, 10,000 skills", 80)
    return rows


if __name__ == "__main__":
    main()
