"""Measures the local page: `evolvable ui` on a pseudo-terminal over a made-up library, asked as a
browser asks.

--home FOLDER keeps the library there, and uses the one that is there already.

Every page is asked for once, and what that begins beside the pages is waited for. Then every page
is asked for in turn, some rounds long: the median and the 95th percentile of the time to its last
byte, and of the processor time of the server (Linux). Then how long a change by another process
takes to reach a page that listens, what the first load weighs, and the memory of the process before
and after its first search.
"""

import contextlib
import http.client
import os
import pty
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from support import (
    Row,
    arguments,
    at_most,
    conclude,
    environment,
    median,
    ms,
    name_of,
    percentile,
    progress,
    skill_text,
)

from evolvable_store.objects import File
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage.proposals import Draft
from evolvable_store.store import Store
from evolvable_tools.library import Library

TEXT = 1_500
"""Bytes of a skill: the time of a page goes by their number."""

BATCH = 5_000
PROPOSALS = 50
LIMITS = {10_000: 0.100, 100_000: 0.250}
"""Resources -> the longest 95th percentile of a page, in seconds."""

LIVE, FIRST_LOAD, MEMORY = 0.200, 80_000, 90.0

PROCESSOR = 0.040
"""The longest 95th percentile of the processor time of a page, in seconds."""

IDLE = 0.010
"""Processor time in a second up to which the page is at rest."""

REST = 3
"""Seconds in a row in which it has to be."""

SETTLE_SECONDS = 300
"""How long the page may take for what it computes beside its first answers."""


def fill(home: Path, count: int) -> None:
    """Make the library: so many skills, one with twenty versions, fifty proposals; indexed."""
    with Store.open(home, create=True) as store:
        for begin in range(0, count, BATCH):
            with store.transaction(Actor.IMPORT, "seeded for a benchmark") as tx:
                for name in map(name_of, range(begin, min(begin + BATCH, count))):
                    tx.put(Ref.parse(name), {"SKILL.md": File(skill_text(name, 0, TEXT).encode())})
        person = Identity(Principal.PERSON, "terminal")
        for number in range(20):
            with store.transaction(Actor.HUMAN, f"step {number}", identity=person) as tx:
                tx.put(
                    Ref.parse(name_of(0)),
                    {"SKILL.md": File(skill_text(name_of(0), number, TEXT).encode())},
                )
        for number in range(PROPOSALS):
            name = name_of(number)
            head = store.head(Ref.parse(name))
            text = skill_text(name, 0 if number else 19, TEXT).replace("the", "this", 5)
            draft = Draft(
                head.ref,
                head.version or 0,
                {"SKILL.md": File(text.encode())},
                "the same word everywhere",
            )
            store.backend.proposals.add(store.now(), Actor.AGENT, f"session-{number % 5}", draft)
    with Library.open(home) as library:
        library.index.catch_up()


class Page:
    """The page, served by the command in a process of its own, and a browser that is signed in."""

    def __init__(self, home: Path) -> None:
        keyboard, terminal = pty.openpty()
        command = [sys.executable, "-m", "evolvable_server", "ui"]
        settings = environment(home) | {"EVOLVABLE_EMBEDDER": "off", "TERM": "dumb"}
        self.process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, env=settings, cwd=home.parent
        )
        os.close(terminal)
        self._keyboard, printed = keyboard, b""
        while not (found := re.search(rb"http://\S+token=\S+", printed)):
            printed += os.read(keyboard, 65536)
        link = urlsplit(found[0].decode())
        self.host, self.port = link.netloc, link.port or 0
        self.cookie = ""
        self.connection = self.connect()
        opened = self.ask(f"{link.path}?{link.query}")
        self.cookie = opened.headers["set-cookie"].partition(";")[0]

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, path: str) -> http.client.HTTPResponse:
        self.connection.request("GET", path, headers={"Host": self.host, "Cookie": self.cookie})
        answer = self.connection.getresponse()
        answer.body = answer.read()  # type: ignore[attr-defined]
        return answer

    def timed(self, path: str) -> float:
        begun = time.perf_counter()
        answer = self.ask(path)
        assert answer.status == 200, (path, answer.status)
        return time.perf_counter() - begun

    @property
    def memory(self) -> float:
        """The resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1000  # type: ignore[index]

    @property
    def processor(self) -> float:
        """The processor time so far, of threads that ended too, in seconds; what other programs do
        is not in it.
        """
        # As clock_getcpuclockid(3) makes the number of the clock of a process.
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=20)
        os.close(self._keyboard)


@contextlib.contextmanager
def served(home: Path) -> Iterator[Page]:
    page = Page(home)
    try:
        yield page
    finally:
        page.close()


def deep(page: Page) -> str:
    """Return the address of the twentieth page of the library."""
    path = "/library"
    for _ in range(20):
        found = re.search(
            rb'href="(/library\?[^"]*cursor=[^"]*)" '
            rb'id="next"',
            page.ask(path).body,
        )  # type: ignore[attr-defined]
        if found is None:
            return path
        path = found[1].decode().replace("&amp;", "&")
    return path


def settle(page: Page) -> float:
    """Wait until the page computes nothing beside its answers any more; return the processor time
    of that, in seconds.

    The first visit of a page begins computations that take seconds. They are no part of the pages
    that follow.
    """
    begun = before = page.processor
    rested = 0
    for _ in range(SETTLE_SECONDS):
        time.sleep(1)
        now = page.processor
        rested = rested + 1 if now - before < IDLE else 0
        if rested == REST:
            # The server ends one that is idle for so long; the next request opens another.
            page.connection.close()
            return now - begun
        before = now
    raise SystemExit(f"the page was still busy after {SETTLE_SECONDS} s")


def pages(page: Page, rounds: int, limit: float) -> list[Row]:
    """Ask for every page in turn."""
    first = name_of(0)
    paths = {
        "home": "/",
        "inbox": "/inbox/2",
        "inbox, a long history": "/inbox/1",
        "inbox, ten of a session": "/inbox/session/session-1",
        "library": "/library",
        "library, twentieth page": deep(page),
        "library, words": "/library?q=invoices",
        "library, sorted": "/library?sort=changed",
        "learn": "/learn",
        "resource with 21 versions": f"/resource/skill:{first}",
        "difference": f"/resource/skill:{first}?from=2&to=20",
        "operations": "/operations",
        "evolution": "/evolution",
        "sessions": "/sessions",
        "health": "/health",
        "search": "/search?task=convert+the+invoices+of+each+month+into+one+table",
    }
    begun = page.memory
    for path in paths.values():
        if not path.startswith("/search"):
            page.timed(path)
    quiet = page.memory
    page.timed(paths["search"])
    searched = page.memory
    beside = settle(page)
    took: dict[str, list[float]] = {name: [] for name in paths}
    worked: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(rounds):
        for name, path in paths.items():
            before = page.processor
            took[name].append(page.timed(path))
            worked[name].append(page.processor - before)
    rows = [
        at_most(
            f"{name}, processor, p95 (median {ms(median(values))})",
            percentile(values, 95),
            PROCESSOR,
            ms,
        )
        for name, values in worked.items()
    ]
    rows += [
        at_most(f"{name}, p95", percentile(values, 95), limit, ms) for name, values in took.items()
    ]
    memory = at_most(
        "memory before the first search", quiet, MEMORY, lambda value: f"{value:.0f} MB"
    )
    rows.append(Row("processor time of what is computed beside the pages, once", f"{beside:.1f} s"))
    return [
        *rows,
        Row("memory at the start", f"{begun:.0f} MB"),
        memory,
        Row("after it", f"{searched:.0f} MB"),
    ]


def live(page: Page, home: Path, rounds: int) -> list[Row]:
    """Change the library from this process, and wait for the event at a page that listens."""
    listener = page.connect()
    listener.request("GET", "/live", headers={"Host": page.host, "Cookie": page.cookie})
    stream = listener.getresponse()
    heard: queue.Queue[float] = queue.Queue()
    threading.Thread(target=_listen, args=(stream, heard), daemon=True).start()
    waits = []
    with Store.open(home) as store:
        for number in range(rounds):
            time.sleep(0.3 + number % 7 / 100)
            while not heard.empty():
                heard.get()
            begun = time.perf_counter()
            with store.transaction(Actor.AGENT, "changed for a benchmark") as tx:
                text = skill_text(name_of(3), time.time_ns(), TEXT)
                tx.put(Ref.parse(name_of(3)), {"SKILL.md": File(text.encode())})
            waits.append(heard.get(timeout=30) - begun)
    return [
        Row("a change, from its begin until its event, median", ms(median(waits))),
        at_most("a change, from its begin until its event, p95", percentile(waits, 95), LIVE, ms),
    ]


def _listen(stream: http.client.HTTPResponse, heard: "queue.Queue[float]") -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # the page ends
        while line := stream.readline():
            if line.startswith(b"event: change"):
                heard.put(time.perf_counter())


def weight(page: Page) -> Row:
    """Add up what a browser fetches for the inbox the first time."""
    body = page.ask("/inbox/2").body  # type: ignore[attr-defined]
    files = {one.decode() for one in re.findall(rb'(?:src|href)="(/static/[^"]+)"', body)}
    total = len(body) + sum(len(page.ask(path).body) for path in files)  # type: ignore[attr-defined]
    return at_most(
        "first load of the inbox", total, FIRST_LOAD, lambda value: f"{value:,.0f} bytes"
    )


def main() -> None:
    options = arguments(__doc__, resources=10_000, rounds=40, home="")
    count = options.resources or (1_000 if options.quick else 10_000)
    rounds = options.rounds or (10 if options.quick else 40)
    limit = min(
        (seconds for most, seconds in LIMITS.items() if count <= most), default=max(LIMITS.values())
    )
    with tempfile.TemporaryDirectory() as root:
        home = Path(options.home or root, "library").absolute()
        if not home.exists():
            progress(f"making {count:,} resources")
            fill(home, count)
        progress("serving them")
        with served(home) as page:
            rows = [weight(page), *pages(page, rounds, limit), *live(page, home, rounds)]
    conclude(f"The local page over {count:,} resources, {rounds} rounds", rows)


if __name__ == "__main__":
    main()
