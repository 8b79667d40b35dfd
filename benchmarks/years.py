"""What years of use weigh, before and after `evolvable care gc --older 90d`: a person's five, a
team's two. Simulated.

The rows are made up and written through the storage into a real SQLite library; what is measured is
real, in processor time. A session makes four searches that show eight skills each, and two uses;
every second one ends with a transcript that was read.
"""

import contextlib
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from support import (
    Row,
    arguments,
    at_most,
    conclude,
    median,
    ms,
    none_of,
    progress,
    seed,
    skill_text,
    timed,
)

from evolvable_evolve.evolution.ledger.run_directory import Ledger, create_run
from evolvable_server.upkeep import fold_library
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import USER_SCOPE, Ref
from evolvable_store.storage.evidence import Outcome, Use
from evolvable_store.storage.observations import (
    ClientSession,
    Impression,
    IngestedSession,
    UsageObservation,
)
from evolvable_store.storage.proposals import Draft
from evolvable_store.store import Store
from evolvable_store.transaction import format_time
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.outcomes.usage_report import stats
from evolvable_tools.review.admission import similar_proposals
from evolvable_tools.verbs.edit import update_resource
from evolvable_tools.verbs.search import find_skill

NOW = datetime(2026, 11, 28, tzinfo=UTC)
SEARCHES, SHOWN, USES = 4, 8, 2
RUN_BYTES = 400_000
"""Of the artefacts of one run of evolution."""


@dataclass(frozen=True)
class Life:
    """What is simulated. sessions, updates, refused: of a week; runs: of a year."""

    title: str
    years: int
    skills: int
    sessions: int
    updates: int
    refused: int
    runs: int


PERSON = Life("a person, five years", 5, 60, 20, 3, 1, 4)
TEAM = Life("a team, two years", 2, 200, 100, 20, 5, 12)


def live(store: Store, life: Life, weeks: int) -> list[Ref]:
    """Write so many weeks of a life into a library, which end now; return its skills."""
    rng, refs = random.Random(life.title), seed(store, life.skills)
    ids = [store.head(ref).id for ref in refs]
    for week in range(weeks):
        start = NOW - timedelta(weeks=weeks - week)
        impressions, sessions = list[Impression](), list[ClientSession]()
        for number in range(life.sessions):
            name, at = (
                f"{week}-{number}",
                format_time(start + timedelta(minutes=number * 10_000 // life.sessions)),
            )
            sessions.append(ClientSession(name, f"connection-{name}", at))
            for search in range(SEARCHES):
                chosen = rng.sample(ids, SHOWN)
                impressions += [
                    Impression(f"search-{name}-{search}", one, 1, at, name) for one in chosen
                ]
            used = rng.sample(ids, USES)
            for one in used:
                use = Use(
                    f"use-{name}-{one}", at, one, 1, f"search-{name}-0", name, f"connection-{name}"
                )
                store.backend.evidence.add_use(use)
            if number % 2:
                end = rng.choice([Outcome.SUCCEEDED, Outcome.SUCCEEDED, Outcome.FAILED])
                taken = IngestedSession(name, "claude", name, 40, at, "simulated", end)
                seen = [
                    UsageObservation(one, 1, at, True, True, ("skill",), end, "simulated")
                    for one in used
                ]
                store.backend.observations.take(taken, seen)
        store.backend.observations.add_impressions(impressions, sessions)
        change(store, life, rng, refs, week, format_time(start))
    return refs


def change(
    store: Store, life: Life, rng: random.Random, refs: list[Ref], week: int, at: str
) -> None:
    """Write the updates of a week, and the proposals of reviews that a person turned down."""
    for number in range(life.updates):
        with store.transaction(Actor.AGENT, "simulated") as tx:
            tx.put(
                ref := rng.choice(refs),
                {"SKILL.md": File(skill_text(ref.name, (week, number)).encode())},
            )
    for number in range(life.refused):
        ref, says = rng.choice(refs).within(USER_SCOPE), skill_text("lesson", (week, number), 300)
        files = {"SKILL.md": File(skill_text(ref.name, ("refused", week, number)).encode())}
        grounds = f'{{"says": "{number} of week {week}", "evidence": []}}'
        draft = Draft(ref, 1, files, says, grounds=grounds)
        identity = store.backend.proposals.add(at, Actor.REVIEW, f"{week}-0", draft)
        store.backend.proposals.reject(identity, "no")


def evolve(store: Store, life: Life) -> None:
    """Write the folders of runs that ended in REJECT."""
    first = {"label": "simulated", "settings": {}, "tasks": [], "base": "b", "size": 1}
    verdict = {"verdict": "REJECT", "why": "no better", "look": 1, "candidate": "b"}
    for number in range(life.runs * life.years):
        when = NOW - timedelta(days=365 * life.years - 365 * number // life.runs)
        folder = create_run(store.home, when)
        with Ledger.open(folder.ledger, clock=lambda when=when: when, durable=False) as ledger:  # type: ignore[misc]
            ledger.append("run", {**first, "run": folder.id})
            ledger.append("verdict", verdict)
        folder.store_artifact(os.urandom(RUN_BYTES))


def worked(action: Callable[[], object]) -> float:
    """Return the processor time of an action: what else the machine does is no part of it."""
    began = time.process_time()
    action()
    return time.process_time() - began


def measure(
    library: Library, refs: list[Ref], rounds: int
) -> tuple[dict[str, float], list[object]]:
    """Return the sizes and the median processor time of what people wait for, and the answers that
    may not change.
    """
    person = Caller(Actor.HUMAN)
    library.store.backend.maintenance.vacuum()
    home = library.store.home
    runs = [path for path in home.glob("evolve/**/*") if path.is_file()]
    # Brings the index up to date.
    find_skill(library, person, "convert the first column of a table")

    def update(number: int) -> None:
        files = {"SKILL.md": skill_text(refs[number].name, os.urandom(8))}
        update_resource(library, person, refs[number], "measured", files=files)

    timings = {
        "find": [
            worked(lambda: find_skill(library, person, "convert the first column"))
            for _ in range(rounds)
        ],
        "update": [worked(lambda n=n: update(n)) for n in range(rounds)],  # type: ignore[misc]
        "stats": [worked(lambda: stats(library, person)) for _ in range(3)],
        "review: earlier proposals": [
            worked(lambda: similar_proposals(library, refs[0], "another lesson"))
            for _ in range(rounds)
        ],
    }
    sizes = {
        "library.db": float((home / "library.db").stat().st_size),
        "runs of evolution": float(sum(path.stat().st_size for path in runs)),
    }
    told = stats(library, person)
    ids = [library.store.head(ref).id for ref in refs]
    answers: list[object] = [
        [(one.ref, one.shown, one.loaded, one.used, one.helped) for one in told.resources],
        library.store.backend.evidence.count_successes(ids),
        library.store.backend.evidence.count_impressions(""),
        library.store.backend.observations.verified_ends(),
        similar_proposals(library, refs[0], "1 of week 3"),
    ]
    return sizes | {name: median(times) for name, times in timings.items()}, answers


def rows_of(life: Life, weeks: int, rounds: int) -> Iterator[Row]:
    """Yield the lines of one life."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "home", create=True, clock=lambda: NOW)
        with contextlib.closing(Library(store)) as library:
            progress(f"simulating {life.title}")
            refs = live(store, life, weeks)
            evolve(store, life)
            progress("measuring")
            before, answers = measure(library, refs, rounds)
            taken = timed(lambda: fold_library(library, 90))
            after, same = measure(library, refs, rounds)
    for name, value in before.items():
        shown = (lambda size: f"{size / 1e6:.1f} MB") if value > 1_000 else ms
        yield Row(
            f"{life.title}: {name}",
            f"{shown(value)} -> {shown(after[name])}, {after[name] / value:.2f} x",
        )
    yield Row(f"{life.title}: the folding itself", f"{taken:.1f} s")
    yield none_of(
        f"{life.title}: answers that changed",
        sum(one != two for one, two in zip(answers, same, strict=True)),
    )
    yield at_most(
        f"{life.title}: size after by before",
        after["library.db"] / before["library.db"],
        0.9,
        "{:.2f}".format,
    )


def main() -> None:
    given = arguments(__doc__)
    rows = [
        row
        for life in (PERSON, TEAM)
        for row in rows_of(life, 20 if given.quick else 52 * life.years, 5 if given.quick else 21)
    ]
    conclude("Years of use, simulated; before -> after `gc --older 90d`", rows)


if __name__ == "__main__":
    main()
