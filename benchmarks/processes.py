"""Eight processes change one library: nothing lost, nothing forked, no long waits; a change is
found at once.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from support import (
    SERVE,
    Row,
    Server,
    arguments,
    at_least,
    at_most,
    conclude,
    median,
    ms,
    none_of,
    percentile,
    ratio,
    seed,
    skill_text,
    timed,
)

from evolvable_store import fsck
from evolvable_store.errors import VersionConflict
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage import connection
from evolvable_store.store import Store

PROCESSES = 8
PACE = 100
"""Updates a second that each process tries to make."""

SHARED = 12
"""Skills that all of them change: few enough that they often meet."""

NEW_WORD = "quibblefrost"


def worker(home: Path, number: int, start: float, seconds: float) -> None:
    """Change random skills at the pace, each from the version it read; print what came of every
    attempt.
    """
    rng, happened = random.Random(number), []
    with Store.open(home) as store:
        texts = {head.ref: skill_text(head.name, number) for head in store.heads()[:SHARED]}
        refs = list(texts)
        time.sleep(max(0.0, start - time.time()))
        begun = time.perf_counter()
        for attempt in range(int(seconds * PACE)):
            time.sleep(max(0.0, begun + attempt / PACE - time.perf_counter()))
            happened.append(
                change(store, ref := rng.choice(refs), texts[ref], f"w{number} {attempt}")
            )
        took = time.perf_counter() - begun
    print(json.dumps({"took": took, "happened": happened}))


def change(store: Store, ref: Ref, text: str, token: str) -> dict[str, Any]:
    """Make the next version of a skill, which names the one it was made from; return what happened
    and the wait.
    """
    head = store.head(ref)
    data = f"{text}\n{token} from {head.version}\n".encode()
    started = time.perf_counter()
    try:
        with store.transaction(Actor.AGENT, token) as tx:
            tx.put(ref, {"SKILL.md": File(data)}, expected_version=head.version)
        told: dict[str, Any] = {"token": token, "version": tx.written[0].version}
    except VersionConflict as conflict:
        told = {"conflict": [conflict.expected, conflict.head]}
    return {"ref": str(ref), "waited": time.perf_counter() - started, **told}


@dataclass
class Findings:
    """What reading all histories afterwards says of what the processes were told."""

    lost: int = 0
    forked: int = 0
    misreported: int = 0
    faults: int = 0


def verify(store: Store, happened: list[dict[str, Any]]) -> Findings:
    """Compare every history with every answer that a process got."""
    found = Findings()
    told: dict[tuple[str, int], list[str]] = {}
    for event in happened:
        if "token" in event:
            told.setdefault((event["ref"], event["version"]), []).append(event["token"])
        elif event["conflict"][0] >= event["conflict"][1]:
            found.misreported += 1
    found.forked += sum(len(tokens) - 1 for tokens in told.values())
    for head in store.heads()[:SHARED]:
        for past in store.history(head, limit=10**6):
            number, token = past.version.number, past.operation.reason
            if number == 1:
                continue
            last = store.file(head, "SKILL.md", number).data.decode().splitlines()[-1]
            found.forked += last != f"{token} from {number - 1}"
            found.misreported += told.pop((str(head.ref), number), []) != [token]
    found.lost = len(told)
    found.faults = len(fsck.check_library(store).faults)
    return found


def run_workers(home: Path, seconds: float) -> list[dict[str, Any]]:
    """Run the processes together and return what each says."""
    start = time.time() + 2.0
    command = [sys.executable, __file__, "worker", str(home)]
    children = [
        subprocess.Popen([*command, str(n), str(start), str(seconds)], stdout=subprocess.PIPE)
        for n in range(PROCESSES)
    ]
    return [json.loads(child.communicate(timeout=seconds * 10 + 60)[0]) for child in children]


def bare_commits(place: Path, count: int) -> list[float]:
    """Return the seconds of bare commits by one process alone: what the disk takes."""
    path = place / "bare.db"
    bare = connection.connect(path, durable=True)
    connection.set_journal(bare, path)
    bare.execute("CREATE TABLE skill (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT")

    def commit(data: bytes) -> None:
        bare.execute("BEGIN IMMEDIATE")
        bare.execute("INSERT INTO skill (data) VALUES (?)", (data,))
        bare.execute("COMMIT")

    contents = [skill_text("bare", number).encode() for number in range(count)]
    seconds = [timed(partial(commit, data)) for data in contents]
    bare.close()
    return seconds


def changing_together(place: Path, seconds: float) -> list[Row]:
    home = place / "together"
    with Store.open(home, create=True) as store:
        seed(store, SHARED)
    alone = bare_commits(place, 500)
    said = run_workers(home, seconds)
    happened = [event for one in said for event in one["happened"]]
    waited = [event["waited"] for event in happened]
    with Store.open(home) as store:
        found = verify(store, happened)
    committed = Counter("token" in event for event in happened)
    pace = min(1.0, seconds / max(one["took"] for one in said))
    possible = min(1.0, 1 / (median(alone) * PROCESSES * PACE))
    return [
        Row("bare commit by one process alone, p50", ms(median(alone))),
        Row(f"updates tried in {seconds:.0f} s by {PROCESSES} processes", f"{len(happened):,}"),
        at_least(
            f"pace kept, share of {PACE} a second each",
            pace,
            0.95 * possible,
            lambda share: f"{share:.0%}",
        ),
        Row("made / reported as conflicts", f"{committed[True]:,} / {committed[False]:,}"),
        none_of("lost", found.lost),
        none_of("forked", found.forked),
        none_of("conflicts or versions misreported", found.misreported),
        none_of("faults that fsck finds", found.faults),
        Row("wait for an update, p50", ms(median(waited))),
        Row("wait, p99", ms(percentile(waited, 99))),
        at_most("longest wait", max(waited), 0.250, ms),
    ]


def words() -> Iterator[str]:
    """Yield words that no skill has yet, and no two of which have one stem."""
    for number in range(10**6):
        yield NEW_WORD + "".join("bcdfghkmpq"[int(digit)] for digit in str(number))


def found_elsewhere(place: Path, rounds: int) -> list[Row]:
    """Measure from the return of a commit here to an answer of a server elsewhere that shows it."""
    home, fresh = place / "elsewhere", words()
    with Store.open(home, create=True) as store:
        refs = seed(store, 1000)
        with Server(SERVE, home) as server:
            server.call("find_skill", task="warm up")
            trips, delays = [], []
            for number in range(rounds):
                trips.append(timed(lambda: server.call("find_skill", task="anything at all")))
                delays.append(
                    seconds_until_found(store, server, refs[number * 7 % len(refs)], next(fresh))
                )
    return [
        Row("a find_skill with nothing new, p50", ms(median(trips))),
        Row(f"commit here, found by another process, p50 of {rounds}", ms(median(delays))),
        Row("found / a find_skill with nothing new", ratio(median(delays) / median(trips))),
        at_most("commit here, found by another process, p95", percentile(delays, 95), 0.100, ms),
    ]


def seconds_until_found(store: Store, server: Server, ref: Ref, word: str) -> float:
    text = skill_text(ref.name, word).replace(
        "description: ", f"description: {word.capitalize()}. ", 1
    )
    with store.transaction(Actor.AGENT, "a new word") as tx:
        tx.put(ref, {"SKILL.md": File(text.encode())})
    committed = time.perf_counter()
    while time.perf_counter() < committed + 10:
        matches = server.call("find_skill", task=f"{word} please", detail=True)["matches"]
        if any(
            (match["ref"], match["version"]) == (str(ref), tx.written[0].version)
            for match in matches
        ):
            return time.perf_counter() - committed
    raise RuntimeError(f"{ref} was not found within 10 seconds")


def main() -> None:
    options = arguments(__doc__, seconds=10.0)
    seconds = options.seconds or (3.0 if options.quick else 10.0)
    with tempfile.TemporaryDirectory() as folder:
        rows = changing_together(Path(folder), seconds)
        rows += found_elsewhere(Path(folder), 20 if options.quick else 100)
    conclude("Many processes, one library", rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]))
    else:
        main()
