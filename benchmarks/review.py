"""What the deterministic stages of a review find: precision and recall on the labelled sessions, time and memory.

python -m benchmarks.review [--megabytes 10]
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from labelled_sessions import Labelled, Say, labelled, run

from evolvable_store.operation import Actor
from evolvable_tools.library import Caller, Library
from evolvable_tools.review.reviewing import review_session
from evolvable_tools.review.settings import ReviewSettings
from evolvable_tools.review.signals import LEARNABLE, signals
from evolvable_tools.sessions.reading import read_session
from evolvable_tools.sessions.redact import Redactor


def scores(folder: Path) -> dict[str, object]:
    """Returns precision and recall of the signals, and of the decision whether anything can be learned."""
    right = extra = missing = sessions_right = 0
    everything = labelled()
    for one in everything:
        found = {s.code for s in signals(read_session(one.write(folder), redactor=Redactor()))} & LEARNABLE
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


def large(folder: Path, megabytes: float) -> dict[str, object]:
    """Returns how long the review of one large transcript takes before anybody is asked, and the memory at its most."""
    log = "\n".join(f"2026-11-10 09:{n % 60:02} worker {n} handled order {n * 7} in {n % 90} ms" for n in range(300))
    events = [Say("Look at the logs."), *(run(f"tail -300 app{n}.log", log) for n in range(int(megabytes * 55)))]
    events.append(Say("No, don't read all of them. We always look at the last hour only."))
    path = Labelled("large", tuple(events), frozenset()).write(folder)
    start = time.perf_counter()
    with Library.open(folder / "home", create=True) as library:
        review_session(library, Caller(Actor.AGENT), ReviewSettings(Redactor()), transcript_path=path)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 * 1024 if sys.platform == "darwin" else 1024)
    return {"megabytes": round(path.stat().st_size / 1e6, 1), "seconds": round(seconds, 2), "peak_mb": round(peak)}


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {**large(Path(folder), given.megabytes), **scores(Path(folder))}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
