"""What the deterministic stages of a review find: precision and recall on the labelled sessions,
time and memory.

python -m benchmarks.review [--megabytes 10]

Two large transcripts are reviewed up to where a model would be asked, each in a process of its own:
one of few calls that print much, and a dense one of many short calls. In the same process, before
it, json.loads reads the lines of the file: what reading it costs anybody. Exit code 1: a limit was
passed.
"""

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from hard_sessions import HELD_OUT, KNOWN, Hard
from labelled_sessions import FAILED, PASSED, Do, Labelled, Say, agent, edit, labelled, page, run

from evolvable_store.operation import Actor
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.review import service
from evolvable_tools.review.review_config import ReviewSettings
from evolvable_tools.review.session_signals import LEARNABLE, signals
from evolvable_tools.sessions.parser import read_session

MAX_SECONDS, MAX_MB = 3.0, 300
"""What the review of 10 MB may take before anybody is asked."""


def scores(folder: Path, everything: Sequence[Labelled | Hard]) -> dict[str, object]:
    """Return precision and recall of the signals, and of the decision whether anything can be
    learned.
    """
    right = extra = missing = sessions_right = 0
    for one in everything:
        found = {
            s.code for s in signals(read_session(one.write(folder), redactor=Redactor()))
        } & LEARNABLE
        right, extra, missing = (
            right + len(found & one.learn),
            extra + len(found - one.learn),
            missing + len(one.learn - found),
        )
        sessions_right += bool(found) == bool(one.learn)
    return {
        "sessions": len(everything),
        "with_something": sum(bool(one.learn) for one in everything),
        "precision": round(right / (right + extra), 3),
        "recall": round(right / (right + missing), 3),
        "sessions_right": sessions_right,
    }


@dataclass(frozen=True, slots=True)
class Cost:
    """What the review of one transcript took before anybody was asked, in seconds.

    peer: json.loads of its lines; read, uses: parts of it; cpu: of all of it, what other programs
    did not take.
    """

    transcript: str
    megabytes: float
    lines: int
    peer: float
    read: float
    uses: float
    seconds: float
    cpu: float
    peak_mb: int

    @property
    def within(self) -> bool:
        """Whether it took less time and memory than it may."""
        return self.seconds < MAX_SECONDS and self.peak_mb < MAX_MB


def printing(megabytes: float) -> list[Say | Do]:
    """Return a session whose few calls print 18 kB each."""
    log = "\n".join(
        f"2026-11-10 09:{n % 60:02} worker {n} handled order {n * 7} in {n % 90} ms"
        for n in range(300)
    )
    events = [
        Say("Look at the logs."),
        *(run(f"tail -300 app{n}.log", log) for n in range(int(megabytes * 55))),
    ]
    return [*events, Say("No, don't read all of them. We always look at the last hour only.")]


def dense(megabytes: float) -> list[Say | Do]:
    """Return a session of many turns with short calls: shells, checks that fail and pass, edits,
    pages, a skill.
    """
    rng = random.Random(5)
    words = (
        "order",
        "basket",
        "price",
        "tax",
        "invoice",
        "worker",
        "queue",
        "retry",
        "cache",
        "index",
        "page",
        "user",
    )

    def phrase(n: int) -> str:
        return " ".join(rng.choices(words, k=n))

    events: list[Say | Do] = []
    for turn in range(int(megabytes * 110)):
        name = f"{rng.choice(words)}_{turn}"
        events.append(
            Say(f"Look at {phrase(6)} in src/{name}.py, and tell me what {phrase(4)} does.")
        )
        events += [
            run(f"grep -rn '{phrase(1)}' src/{name} | head -{turn % 40 + 1}", phrase(40))
            for _ in range(3)
        ]
        events.append(Do("Read", {"file_path": f"/home/dev/shop/src/{name}.py"}, phrase(60)))
        events.append(edit(f"src/{name}.py", phrase(12), phrase(12)))
        events.append(run(f"pytest -q tests/test_{name}.py && git diff --stat", FAILED, error=True))
        events.append(edit(f"src/{name}.py", phrase(12), phrase(14)))
        events.append(run(f"pytest -q tests/test_{name}.py && git diff --stat", PASSED))
        events.append(
            run(
                f'git commit -am "Mend {phrase(3)}"',
                f"[main {rng.getrandbits(28):07x}] {phrase(4)}",
            )
        )
        if turn % 9 == 0:
            events.append(page(f"https://docs.example/{name}", phrase(90)))
            events.append(
                run(
                    f"cat ~/.claude/skills/pdf/SKILL.md; python ~/.claude/skills/pdf/run.py {name}",
                    phrase(20),
                )
            )
        events.append(agent(f"It is done: {phrase(30)}."))
    return [
        *events,
        Say("No, that's wrong. From now on always run the whole suite before a commit."),
    ]


def measured(kind: str, megabytes: float, folder: Path) -> Cost:
    """Return what the review of one large transcript takes, in this process."""
    events = {"printing": printing, "dense": dense}[kind](megabytes)
    path = Labelled(kind, tuple(events), frozenset()).write(folder)
    del events
    started = time.perf_counter()
    lines = sum(1 for line in path.open("rb") if json.loads(line))
    peer = time.perf_counter() - started
    marks: dict[str, float] = {}
    for module, name in ((service, "read_session"), (service, "record_uses")):
        setattr(module, name, _timed(getattr(module, name), name, marks))
    started, cpu = time.perf_counter(), time.process_time()
    with Library.open(folder / "home", create=True) as library:
        answer = service.review_session(
            library, Caller(Actor.AGENT), ReviewSettings(Redactor()), transcript_path=path
        )
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    assert answer.packet is not None, answer.why
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1024 * 1024 if sys.platform == "darwin" else 1024
    )
    figures = (peer, marks["read_session"], marks["record_uses"], seconds, cpu)
    return Cost(
        kind,
        round(path.stat().st_size / 1e6, 1),
        lines,
        *(round(one, 2) for one in figures),
        round(peak),
    )


def _timed(function: Callable[..., Any], name: str, marks: dict[str, float]) -> Callable[..., Any]:
    def timed(*words: Any, **more: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*words, **more)
        finally:
            marks[name] = time.perf_counter() - started

    return timed


def alone(kind: str, megabytes: float) -> Cost:
    """Return what `measured` says in a process of its own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
    ):
        return pool.submit(measured, kind, megabytes, Path(folder)).result()


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=10)
    given = parser.parse_args()
    costs = [alone(kind, given.megabytes) for kind in ("printing", "dense")]
    with tempfile.TemporaryDirectory() as folder:
        groups = {"labelled": labelled(), "hard": KNOWN, "hard, held out at first": HELD_OUT}
        found = {name: scores(Path(folder), sessions) for name, sessions in groups.items()}
    limits = {"seconds": MAX_SECONDS, "peak_mb": MAX_MB}
    print(
        json.dumps(
            {"limits": limits, "large": [asdict(cost) for cost in costs], "signals": found},
            indent=2,
        )
    )
    sys.exit(not all(cost.within for cost in costs))


if __name__ == "__main__":
    main()
