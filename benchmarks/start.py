"""A server over 1,000 skills starts nearly as fast as one that does nothing, and stays small."""

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from support import (
    SERVE,
    Row,
    Server,
    alternately,
    arguments,
    at_most,
    conclude,
    median,
    memory_mb,
    ms,
    percentile,
    progress,
    ratio,
    seed_folder,
)

from evolvable_store.store import Store
from evolvable_store.workingcopy.registry import WorkingCopies

SKILLS = 1000
BARE = (sys.executable, str(Path(__file__).with_name("bare_server.py")))


def start(command: Sequence[str], home: Path) -> float:
    """Return the seconds from starting the process to its answer to tools/list."""
    with Server(command, home) as server:
        server.request("tools/list")
        return time.perf_counter() - server.started


def first_answer(command: Sequence[str], home: Path, tool: str, text: str) -> float:
    """Return the seconds from starting the process to the answer of the first tool that
    is called.
    """
    with Server(command, home) as server:
        server.request("tools/list")
        server.call(tool, **{"task" if tool == "find_skill" else "text": text})
        return time.perf_counter() - server.started


def idle_mb(command: Sequence[str], home: Path, seconds: float) -> float:
    """Return the resident memory of a server that answered once and was then left alone."""
    with Server(command, home) as server:
        server.request("tools/list")
        time.sleep(seconds)
        return memory_mb(server.process.pid)


def main() -> None:
    options = arguments(__doc__, pairs=25)
    pairs = options.pairs or (5 if options.quick else 25)
    with tempfile.TemporaryDirectory() as place:
        home, folder = Path(place) / "home", Path(place) / "skills"
        seed_folder(folder, SKILLS)
        with Store.open(home, create=True) as store:
            WorkingCopies(store).add(folder)
        for command in (BARE, SERVE):  # the first start compiles, and builds the index
            idle_mb(command, home, 8)
        progress(f"{pairs} starts of each")
        bare, ours = [], []
        alternately(
            {
                "bare": lambda _: bare.append(start(BARE, home)),
                "ours": lambda _: ours.append(start(SERVE, home)),
            },
            pairs,
        )
        progress(f"{pairs} first calls of each")
        calls = {
            "bare": (BARE, home, "echo", "x"),
            "ours": (SERVE, home, "find_skill", "review tickets of last month"),
        }
        called: dict[str, list[float]] = {name: [] for name in calls}
        alternately(
            {
                name: lambda _, name=name, call=call: called[name].append(first_answer(*call))
                for name, call in calls.items()
            },
            pairs,
        )
        memory = {
            name: idle_mb(command, home, 5) for name, command in (("bare", BARE), ("ours", SERVE))
        }
    rows = [
        Row(f"bare server, start to first tools/list, p50 of {pairs}", ms(median(bare))),
        Row("with 1,000 skills, p50", ms(median(ours))),
        Row("with 1,000 skills, p95", ms(percentile(ours, 95))),
        at_most("with 1,000 skills / bare", median(ours) / median(bare), 1.25, ratio),
        Row("bare server, start to its first call's answer, p50", ms(median(called["bare"]))),
        Row(
            "with 1,000 skills, start to the first answer of find_skill, p50",
            ms(median(called["ours"])),
        ),
        at_most(
            "first find_skill / first call of the bare server",
            median(called["ours"]) / median(called["bare"]),
            1.0,
            ratio,
        ),
        Row("memory of the bare server, idle", f"{memory['bare']:.0f} MB"),
        at_most(
            "memory, idle after 5 s, folder followed",
            memory["ours"],
            95,
            lambda value: f"{value:.0f} MB",
        ),
    ]
    conclude("Starting and idling", rows)


if __name__ == "__main__":
    main()
