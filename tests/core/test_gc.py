"""Only what no version names is removed, whoever writes meanwhile."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from postgres_place import ON_SQLITE
from processes import Children, Gate
from samples import skill
from soundness import assert_sound

from evolvable_store.errors import LibraryCorrupt, LibraryReadOnly
from evolvable_store.gc import CollectedBlobs, collect
from evolvable_store.objects import File, blob_hash, pack
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store

Put = Callable[..., object]


def leave(store: Store, *contents: bytes) -> None:
    """Leaves blobs in the library that no version names."""
    with store.backend.write() as writer:
        for data in contents:
            writer.add_blob(blob_hash(data), len(data), *pack(data))


def has(store: Store, data: bytes) -> bool:
    return store.backend.blob(blob_hash(data)) is not None


def test_a_library_that_was_only_used_has_nothing_to_collect(store: Store, put: Put) -> None:
    put("pdf", "one")
    put("pdf", "two")
    with store.transaction(Actor.HUMAN, "remove") as tx:
        tx.remove(Ref.parse("pdf"))
    assert collect(store) == CollectedBlobs(0, 0)
    assert has(store, b"one"), "old versions and removed resources are kept for ever"
    assert_sound(store)


def test_what_no_version_names_is_removed_and_nothing_else(store: Store, put: Put) -> None:
    put("pdf", "one")
    leave(store, b"left", b"over", b"one")
    assert collect(store) == CollectedBlobs(2, 8)
    assert not has(store, b"left")
    assert has(store, b"one")
    assert collect(store) == CollectedBlobs(0, 0)
    assert_sound(store)


def test_a_dry_run_says_the_same_and_removes_nothing(store: Store) -> None:
    leave(store, b"left", b"over" * 1000)
    said = collect(store, dry_run=True)
    assert has(store, b"left")
    assert collect(store) == said
    assert said.blobs == 2
    assert said.bytes < 1000, "bytes as stored"


def test_what_a_waiting_transaction_will_name_is_sent_along(store: Store, put: Put) -> None:
    """A transaction leaves out only blobs that a version names already; the others it brings,
    whoever had them.
    """
    put("pdf", "one")
    leave(store, b"left")
    with store.transaction(Actor.AGENT, "name it") as tx:
        tx.put(Ref.parse("pdf"), {**skill("one"), "left.md": File(b"left")})
        tx.put(Ref.parse("other"), {"SKILL.md": File(b"left")})
        assert collect(store).blobs == 1
        assert not has(store, b"left")
    assert store.file(store.head(Ref.parse("pdf")), "left.md").data == b"left"
    assert_sound(store)


def test_what_is_named_between_looking_and_removing_is_kept(
    store: Store, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("pdf", "one")
    leave(store, b"two", b"three")
    maintenance = store.backend.maintenance
    survey = maintenance.unreferenced_blobs

    def publish_after_survey() -> object:
        found = survey()
        put("pdf", "two")
        return found

    monkeypatch.setattr(maintenance, "unreferenced_blobs", publish_after_survey)
    assert collect(store) == CollectedBlobs(1, 5)
    assert store.files(store.head(Ref.parse("pdf"))) == skill("two")
    assert_sound(store)


@ON_SQLITE
def test_nothing_is_removed_while_a_manifest_cannot_be_read(store: Store, put: Put) -> None:
    put("pdf", "one")
    leave(store, b"left")
    with closing(sqlite3.connect(store.backend.path)) as db, db:
        db.execute("UPDATE change SET manifest = '{'")
    with pytest.raises(LibraryCorrupt):
        collect(store)
    assert has(store, b"left")


@ON_SQLITE
def test_space_is_given_back_when_told(store: Store, put: Put) -> None:
    put("pdf", "one")
    leave(store, os.urandom(3_000_000))
    store.close()  # folds the log in
    large = store.backend.path.stat().st_size
    assert collect(store).blobs == 1
    store.close()
    assert store.backend.path.stat().st_size == large, "the room is kept for what comes next"
    collect(store, shrink=True)
    assert store.backend.path.stat().st_size < large / 10
    assert_sound(store)


@ON_SQLITE
def test_a_library_that_cannot_be_written_says_so(store: Store, tmp_path: Path) -> None:
    leave(store, b"left")
    store.close()
    store.backend._access = "immutable"
    assert collect(store, dry_run=True) == CollectedBlobs(1, 4)
    with pytest.raises(LibraryReadOnly):
        collect(store)


@pytest.mark.process
@pytest.mark.alone
def test_writers_wait_no_longer_than_for_one_batch(children: Children, tmp_path: Path) -> None:
    """Fewer than 250 ms, the bound for any wait, though much is removed."""
    home, gate = tmp_path / "home", Gate(tmp_path / "gate")
    with Store.open(home, create=True) as store:
        with store.transaction(Actor.IMPORT, "start") as tx:
            tx.put(Ref.parse("hot"), skill("{}"))
        small = [os.urandom(4000) for _ in range(4000)]
        leave(store, *small, *(os.urandom(5_000_000) for _ in range(6)))
        writers = [
            children.start("update", home, gate.folder, worker, "hot", 1.2)
            for worker in ("w1", "w2")
        ]
        gate.wait_for(*writers)
        gate.open()
        assert collect(store).blobs == 4006
        waited = [event["waited"] for writer in writers for event in writer.said()["happened"]]
        assert len(waited) > 100
        assert max(waited) < 0.25
        assert_sound(store)


@pytest.mark.process
def test_collecting_beside_writers_loses_nothing(children: Children, tmp_path: Path) -> None:
    home, gate = tmp_path / "home", Gate(tmp_path / "gate")
    with Store.open(home, create=True) as store:
        writers = [
            children.start("acknowledge", home, gate.folder, worker) for worker in ("w1", "w2")
        ]
        gate.wait_for(*writers)
        for _ in range(40):
            assert collect(store).blobs == 0, "what another process has just published is named"
        acknowledged = [line for writer in writers for line in writer.kill()]
        assert {operation.reason for operation in store.operations(10**6)} >= set(acknowledged)
        assert_sound(store)
