"""Eight processes on one library: nothing lost, nothing forked, every conflict reported."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import Children, Gate
from samples import skill
from soundness import assert_sound, whole_history

from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store

pytestmark = pytest.mark.process

WORKERS = [f"w{number}" for number in range(8)]
ENOUGH = 80  # updates of all: ten each
Record = Callable[[str, object], None]


def started_library(home: Path, names: list[str]) -> None:
    """Makes a library with these resources, all counts at none."""
    with Store.open(home, create=True) as store, store.transaction(Actor.IMPORT, "start") as tx:
        for name in names:
            tx.put(Ref.parse(name), skill("{}"))


def worked(
    children: Children, tmp_path: Path, names: list[str], seconds: float, **options: Any
) -> list[dict[str, Any]]:
    """Returns what eight processes said that counted up in these resources at the same time."""
    home, gate = tmp_path / "home", Gate(tmp_path / "gate")
    started_library(home, names)
    pause = options.pop("pause", 0)
    all_names = ",".join(names)
    workers = [
        children.start("update", home, gate.folder, w, all_names, seconds, pause, **options)
        for w in WORKERS
    ]
    gate.wait_for(*workers)
    gate.open()
    return [worker.said() for worker in workers]


def check(store: Store, names: list[str], said: list[dict[str, Any]]) -> None:
    """Fails unless every acknowledged update is in the history exactly once, and
    nothing else is.
    """
    happened = [event for worker in said for event in worker["happened"]]
    for name in names:
        acknowledged = {
            e["version"]: e["token"] for e in happened if e["name"] == name and "token" in e
        }
        head = store.head(Ref.parse(name))
        pasts = whole_history(store, head)
        assert {past.version.number: past.operation.reason for past in pasts[1:]} == acknowledged
        assert len(acknowledged) == sum(e["name"] == name and "token" in e for e in happened), (
            "a number given twice"
        )
        counts: Counter[str] = Counter()
        for past in pasts[1:]:
            worker, count = past.operation.reason.split()
            counts[worker] += 1
            assert counts[worker] == int(count), "an update was lost"
            assert json.loads(store.file(head, "SKILL.md", past.version.number).data) == counts
    for event in happened:
        if "conflict" in event:
            expected, found = event["conflict"]
            assert found > expected, "a conflict that was none"
    assert_sound(store)


def waits(said: list[dict[str, Any]]) -> list[float]:
    return sorted(event["waited"] for worker in said for event in worker["happened"])


def report(record: Record, said: list[dict[str, Any]]) -> None:
    """Puts the figures of a run into the report of the tests (`--junit-xml`), and on the screen
    with `-s`.
    """
    waited = waits(said)
    updates = Counter(
        worker["worker"] for worker in said for event in worker["happened"] if "token" in event
    )
    figures = {
        "updates": updates.total(),
        "conflicts": len(waited) - updates.total(),
        "fewest and most of a process": [min(updates[w] for w in WORKERS), max(updates.values())],
        "median and p99 wait, ms": [
            round(waited[len(waited) * part // 100] * 1000, 2) for part in (50, 99)
        ],
        "longest wait, ms": round(waited[-1] * 1000, 1),
    }
    for name, figure in figures.items():
        record(name, figure)
    print(figures)


def test_eight_processes_on_shared_names_lose_and_fork_nothing(
    children: Children, tmp_path: Path, record_property: Record
) -> None:
    names = [f"name-{number}" for number in range(12)]
    said = worked(children, tmp_path, names, seconds=2.0)
    report(record_property, said)
    with Store.open(tmp_path / "home") as store:
        check(store, names, said)
    assert waits(said)[-1] < 5, "a process starved"


def test_eight_processes_on_one_hot_resource_all_get_their_turn(
    children: Children, tmp_path: Path, record_property: Record
) -> None:
    # A busy machine does too little in a second and a half to tell who had a turn.
    for seconds in (1.5, 6.0, 24.0):
        place = tmp_path / f"{seconds}"
        place.mkdir()
        said = worked(children, place, ["hot"], seconds=seconds)
        report(record_property, said)
        with Store.open(place / "home") as store:
            check(store, ["hot"], said)
        done = [sum("token" in event for event in worker["happened"]) for worker in said]
        if sum(done) >= ENOUGH:
            break
    assert min(done) >= 0.1 * sum(done) / len(done)
    assert waits(said)[-1] < 5, "a process starved"


def test_eight_processes_with_a_rollback_journal_lose_and_fork_nothing(
    children: Children, tmp_path: Path, record_property: Record
) -> None:
    """Where no SQLite has the fix of the write-ahead log; slower, for a commit there keeps readers
    out.
    """
    names = [f"name-{number}" for number in range(12)]
    said = worked(children, tmp_path, names, seconds=2.0, flags=("--stdlib", "--unsafe"))
    assert {worker["journal"] for worker in said} == {"delete"}
    report(record_property, said)
    with Store.open(tmp_path / "home") as store:
        check(store, names, said)


@pytest.mark.nightly
def test_eight_processes_at_a_hundred_updates_a_second_wait_under_a_quarter_second(
    children: Children, tmp_path: Path, record_property: Record
) -> None:
    """For a quiet machine."""
    names = [f"name-{number}" for number in range(100)]
    said = worked(children, tmp_path, names, seconds=30.0, pause=0.008)
    report(record_property, said)
    with Store.open(tmp_path / "home") as store:
        check(store, names, said)
    assert waits(said)[-1] < 0.25


def test_a_change_is_seen_at_once_through_another_opening(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Store.open(home, create=True) as one, Store.open(home) as other:
        for number in range(1, 20):
            with one.transaction(Actor.AGENT, "count") as tx:
                tx.put(Ref.parse("pdf"), skill(f"{number}"))
            head = other.head(Ref.parse("pdf"))
            assert (head.version, other.sequence()) == (number, number)
            assert other.files(head) == skill(f"{number}")
