"""What an update costs: against the bare commit of the same bytes, against git, and to read any
version again.
"""

import os
import random
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from support import (
    Row,
    alternately,
    arguments,
    at_least,
    at_most,
    conclude,
    median,
    ms,
    percentile,
    progress,
    ratio,
    seed,
    skill_text,
    timed,
)

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage import connection
from evolvable_store.store import Store

SKILLS = 1000
BLOCK = 50
"""Updates between two commits of git."""

REASON = "made the steps clearer"


def update(store: Store, ref: Ref, data: bytes) -> None:
    with store.transaction(Actor.AGENT, REASON) as tx:
        tx.put(ref, {"SKILL.md": File(data)})


def get(store: Store, ref: Ref, version: int) -> None:
    store.files(store.head(ref), version)


def against_bare_commit(folder: Path, store: Store, refs: list[Ref], rounds: int) -> list[Row]:
    """Measure updates and bare commits in turn, on two files of one disk."""
    path = folder / "bare.db"
    bare = connection.connect(path, durable=True)
    connection.set_journal(bare, path)
    bare.execute("CREATE TABLE skill (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT")
    order = random.Random(1).choices(refs, k=rounds)
    contents = [
        skill_text(ref.name, f"update {number}").encode() for number, ref in enumerate(order)
    ]

    def bare_commit(number: int) -> None:
        bare.execute("BEGIN IMMEDIATE")
        bare.execute("INSERT INTO skill (data) VALUES (?)", (contents[number],))
        bare.execute("COMMIT")

    ways = {
        "bare": bare_commit,
        "update": lambda number: update(store, order[number], contents[number]),
    }
    seconds = alternately(ways, rounds)
    bare.close()
    one, other = median(seconds["bare"]), median(seconds["update"])
    return [
        Row(f"bare commit of the same bytes, p50 of {rounds:,}", ms(one)),
        Row("bare commit, p99", ms(percentile(seconds["bare"], 99))),
        Row("update of a 6 KB skill, p50", ms(other)),
        Row("update, p99", ms(percentile(seconds["update"], 99))),
        at_most("update / bare commit", other / one, 2.0, ratio),
    ]


def against_git(folder: Path, store: Store, refs: list[Ref], rounds: int) -> list[Row]:
    """Measure blocks of updates and of git commits of the same files in turn.

    What git leaves unwritten is flushed between the blocks, or our updates would wait for it.
    """
    if shutil.which("git") is None:
        return [Row("git", "not installed, left out")]
    repository = Repository(folder / "repository", store, refs)
    updates: list[float] = []
    commits: list[float] = []
    durable: list[float] = []
    for number in range(rounds):
        block = [refs[(number * 37 + step) % len(refs)] for step in range(BLOCK)]
        contents = [skill_text(ref.name, f"git {number}").encode() for ref in block]
        os.sync()
        updates.append(
            sum(timed(partial(update, store, *each)) for each in zip(block, contents, strict=True))
        )
        os.sync()
        commits.append(timed(partial(repository.commit, block[0], contents[0])))
        durable.append(
            timed(partial(repository.commit, block[1], contents[1], "-c", "core.fsync=all"))
        )
    ours, theirs = BLOCK / median(updates), 1 / median(commits)
    return [
        Row(f"updates a second, median of blocks of {BLOCK}", f"{ours:,.0f}"),
        Row("git add + git commit a second, median", f"{theirs:,.1f}"),
        Row(
            "  the same with core.fsync=all, as durable as an update", f"{1 / median(durable):,.1f}"
        ),
        at_least("updates / git commits", ours / theirs, 50, lambda value: f"{value:.0f} x"),
    ]


class Repository:
    """A git repository that holds the skills of a library."""

    def __init__(self, place: Path, store: Store, refs: list[Ref]) -> None:
        self._place = place
        for ref in refs:
            (place / ref.name).mkdir(parents=True)
            (place / ref.name / "SKILL.md").write_bytes(
                store.file(store.head(ref), "SKILL.md").data
            )
        self._git("init", "-q")
        self._git("add", ".")
        self._git("commit", "-q", "-m", "start")

    def commit(self, ref: Ref, data: bytes, *options: str) -> None:
        """Change a skill, add it and commit it, as a script would."""
        path = f"{ref.name}/SKILL.md"
        (self._place / path).write_bytes(data)
        self._git(*options, "add", path)
        self._git(*options, "commit", "-q", "-m", REASON)

    def _git(self, *words: str) -> None:
        author = (
            "-c",
            "user.name=benchmark",
            "-c",
            "user.email=benchmark@localhost",
            "-c",
            "commit.gpgsign=false",
        )
        subprocess.run(
            ["git", *author, *words], cwd=self._place, check=True, stdout=subprocess.DEVNULL
        )


def any_version(home: Path, versions: int, reads: int) -> list[Row]:
    """Measure reading all files of a random version of a random skill in a library of so many
    versions.
    """
    rng = random.Random(2)
    with Store.open(home, create=True) as store:
        refs = seed(store, SKILLS)
        for number in range(2, versions // SKILLS + 1):
            with store.transaction(Actor.AGENT, f"round {number}") as tx:
                for ref in refs:
                    tx.put(ref, {"SKILL.md": File(skill_text(ref.name, number).encode())})
            progress(f"{number * SKILLS:,} of {versions:,} versions")
        chosen = [(rng.choice(refs), rng.randint(1, versions // SKILLS)) for _ in range(reads)]
        seconds = [timed(partial(get, store, ref, number)) for ref, number in chosen]
        with store.backend.reading() as db:
            query = "SELECT data FROM blob WHERE id = ?"
            bare = [
                timed(partial(db.execute, query, (rng.randint(1, versions),))) for _ in range(reads)
            ]
    return [
        Row("bare read of a random blob, p50", ms(median(bare))),
        at_most(f"get of a random version of {versions:,}, p50", median(seconds), 0.0005, ms),
        Row("get, p99", ms(percentile(seconds, 99))),
    ]


def main() -> None:
    options = arguments(__doc__)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with Store.open(folder / "home", create=True) as store:
            refs = seed(store, SKILLS)
            rows = against_bare_commit(folder, store, refs, 500 if options.quick else 5000)
            rows += against_git(folder, store, refs, 10 if options.quick else 40)
        rows += any_version(
            folder / "large", 5_000 if options.quick else 50_000, 500 if options.quick else 5_000
        )
    conclude("Updates of a 6 KB skill, durable", rows)


if __name__ == "__main__":
    main()
