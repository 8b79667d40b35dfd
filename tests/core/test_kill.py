"""kill -9 at any moment: nothing acknowledged is lost, nothing is half there (docs/promises.md)."""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from postgres_place import address_home
from processes import Child, Children, Gate, poll
from soundness import assert_sound

from evolvable_store.operation import Change
from evolvable_store.store import Store

pytestmark = pytest.mark.process

WRITERS = 4
PARTS = {1: [("shared",)], 2: [("comes-and-goes",) * 2], 3: [("one", "two", "three")]}
"""What an operation of a writer may move, by the number of its changes."""


@dataclass
class Proof:
    """Follows the log of a library over many kills, and compares it with what was acknowledged."""

    home: Path
    seen: int = 0
    unacknowledged: int = 0
    slowest_opening: float = 0.0
    acknowledged: Counter[str] = field(default_factory=Counter)

    def check(self, acknowledged: list[str]) -> None:
        """Fails unless the log holds each of these once, and of the rest at most the call in flight
        of a writer.
        """
        started = time.perf_counter()
        with Store.open(self.home) as store:
            store.sequence()
            self.slowest_opening = max(self.slowest_opening, time.perf_counter() - started)
            operations: dict[int, list[Change]] = {}
            for change in store.changes(after=self.seen, limit=10**6):
                operations.setdefault(change.operation, []).append(change)
                self.seen = change.sequence
            reasons = Counter(store.operation(identity).reason for identity in operations)
            assert reasons.keys() >= set(acknowledged), "an acknowledged update is lost"
            assert max(reasons.values(), default=1) == 1, "an update is there twice"
            in_flight = Counter(token.split()[0] for token in reasons.keys() - set(acknowledged))
            assert max(in_flight.values(), default=1) == 1, "more than the call in flight"
            for changes in operations.values():
                assert (
                    tuple(c.name.split("-")[-1] if len(changes) == 3 else c.name for c in changes)
                    in PARTS[len(changes)]
                )
            for change in (change for changes in operations.values() for change in changes):
                if change.after is not None:
                    head = store.head_or_none(change.ref)
                    assert head is not None
                    assert store.file(head, "SKILL.md", change.after).data
        self.unacknowledged += in_flight.total()
        self.acknowledged.update(acknowledged)


def killed_at_random(
    home: Path, gate: Path, children: Children, rng: random.Random, start: int
) -> list[str]:
    """Starts writers, kills them all at random moments, and returns what they had acknowledged."""
    ready = Gate(gate / f"{start}")
    writers = [
        children.start("acknowledge", home, ready.folder, f"w{start + n}") for n in range(WRITERS)
    ]
    if rng.random() < 0.8:  # else some are killed while they open the library
        ready.wait_for(*writers)
        time.sleep(rng.uniform(0, 0.06))
    else:
        time.sleep(rng.uniform(0.05, 0.3))
    acknowledged = []
    for writer in rng.sample(writers, WRITERS):
        acknowledged += writer.kill()
        time.sleep(rng.choice([0, 0, rng.uniform(0, 0.02)]))
    return acknowledged


Record = Callable[[str, object], None]


@pytest.mark.parametrize(
    ("storage", "kills"),
    [
        ("sqlite", 40),
        pytest.param("sqlite", 1000, marks=pytest.mark.nightly),
        pytest.param("postgres", 40, marks=pytest.mark.nightly),
        pytest.param("postgres", 300, marks=pytest.mark.nightly),
    ],
)
def test_whatever_was_acknowledged_before_a_kill_is_there_afterwards(
    children: Children, tmp_path: Path, storage: str, kills: int, record_property: Record
) -> None:
    rng, proof, gate = random.Random(), Proof(tmp_path / "home"), tmp_path / "gates"
    gate.mkdir()
    if storage == "postgres":
        address_home(proof.home)
    Store.open(proof.home, create=True).close()
    for start in range(0, kills, WRITERS):
        proof.check(killed_at_random(proof.home, gate, children, rng, start))
    with Store.open(proof.home) as store:
        assert_sound(store)
    figures = {
        "acknowledged": proof.acknowledged.total(),
        "written but not acknowledged": proof.unacknowledged,
        "slowest opening, ms": round(proof.slowest_opening * 1000, 1),
    }
    for name, figure in figures.items():
        record_property(name, figure)
    print(figures)
    # A commit in PostgreSQL takes longer than some of the children live.
    assert proof.acknowledged.total() >= (kills if storage == "sqlite" else kills // 2)


def test_a_reader_does_not_notice_that_a_writer_was_killed(
    children: Children, tmp_path: Path
) -> None:
    home, gate = tmp_path / "home", Gate(tmp_path / "gate")
    with Store.open(home, create=True) as store:
        writer: Child = children.start("acknowledge", home, gate.folder, "w")
        gate.wait_for(writer)
        poll(lambda: store.sequence() >= 20, "the writer to write")
        writer.kill()
        before = store.sequence()
        assert_sound(store)
        assert store.sequence() == before
