"""The stable channel in the store: what moves it, what it survives, and what is found when it is
damaged.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pytest
from older_store import CHANNEL, as_older
from postgres_place import ON_SQLITE
from samples import Clock, skill

from evolvable_store.bundle.export import backup, export_json
from evolvable_store.bundle.import_ import import_json
from evolvable_store.errors import InvalidArchive
from evolvable_store.fsck import check_library
from evolvable_store.gc import collect
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage.release_channel import (
    Channel,
    ChannelEntry,
    ChannelState,
    MoveNote,
    ReleasePolicy,
)
from evolvable_store.store import Store
from evolvable_store.transaction import WriteResult

PDF, CSV = Ref.parse("pdf"), Ref.parse("csv")
NOTE = MoveNote("2026-11-20T12:00:00.000000Z", Actor.HUMAN, "weekly", None, 0)

Put = Callable[..., WriteResult]


def held(store: Store, ref: Ref = PDF) -> ChannelEntry:
    head = store.head_or_none(ref)
    found = store.backend.channel.of(head.id) if head else None
    assert found is not None
    return found


def seen(store: Store, ref: Ref = PDF) -> int | None:
    return held(store, ref).visible_version


def remove(store: Store, ref: Ref = PDF) -> None:
    with store.transaction(Actor.HUMAN, "not needed") as tx:
        tx.remove(ref)


def publish(store: Store, *refs: Ref) -> int | None:
    heads = [store.head(ref) for ref in refs]
    return store.backend.channel.place(
        NOTE, {head.id: ChannelState(head.version) for head in heads}
    )


def under(store: Store, policy: ReleasePolicy) -> Channel:
    channel = store.backend.channel
    channel.set_policy(NOTE, policy)
    return channel


def test_a_new_skill_appears_by_itself_and_later_versions_wait(store: Store, put: Put) -> None:
    put("pdf", "one")
    put("pdf", "two")
    assert (seen(store), store.head(PDF).version) == (1, 2)
    (move,) = store.backend.channel.moves(9)
    assert (move.note.actor, move.note.operation) == (Actor.AGENT, 1)
    assert "write pdf" in move.note.reason and "the policy is new" in move.note.reason


def test_one_move_publishes_many_skills_or_none(store: Store, put: Put) -> None:
    for name in ("pdf", "csv", "pdf", "csv"):
        put(name, f"{name} {store.sequence()}")
    assert publish(store, PDF, CSV) == 3
    assert (seen(store, PDF), seen(store, CSV)) == (2, 2)
    placed = [("skill:csv", 1, 2), ("skill:pdf", 1, 2)]
    assert [(str(p.ref), p.before, p.after) for p in store.backend.channel.placings([3])] == placed
    assert publish(store, PDF, CSV) is None


def test_manual_lets_new_skills_wait_and_live_follows_the_head(store: Store, put: Put) -> None:
    channel = under(store, ReleasePolicy.MANUAL)
    put("pdf", "one")
    assert seen(store) is None
    channel.set_policy(NOTE, ReleasePolicy.LIVE)
    assert seen(store) == 1
    put("pdf", "two")
    assert seen(store) == 2
    remove(store)
    assert (seen(store), held(store).version) == (None, None)


def test_setting_the_policy_that_is_in_force_is_no_move(store: Store) -> None:
    assert store.backend.channel.set_policy(NOTE, ReleasePolicy.NEW) is None
    assert under(store, ReleasePolicy.MANUAL).set_policy(NOTE, ReleasePolicy.MANUAL) is None


def test_a_removed_skill_is_not_seen_and_returns_as_it_was_seen_before(
    store: Store, put: Put
) -> None:
    """Hiding shows no host what its user did not approve; what returns unpublished must
    not either.
    """
    put("pdf", "one")
    put("pdf", "two")
    remove(store)
    assert seen(store) is None
    put("pdf", "three")
    assert seen(store) == 1


def test_a_removal_that_was_published_makes_the_name_new_again(store: Store, put: Put) -> None:
    put("pdf", "one")
    remove(store)
    store.backend.channel.place(NOTE, {held(store).resource: ChannelState(None)})
    put("pdf", "two")
    assert seen(store) == 2


@pytest.mark.parametrize("policy", [ReleasePolicy.NEW, ReleasePolicy.LIVE])
def test_a_withdrawn_skill_stays_off_whatever_happens_to_it(
    store: Store, put: Put, policy: ReleasePolicy
) -> None:
    channel = under(store, policy)
    put("pdf", "one")
    channel.place(NOTE, {held(store).resource: ChannelState(None, withdrawn=True)})
    put("pdf", "two")
    remove(store)
    put("pdf", "three")
    channel.set_policy(NOTE, ReleasePolicy.LIVE)
    assert seen(store) is None
    publish(store, PDF)
    assert seen(store) == 3


def test_only_skills_are_on_the_channel(store: Store) -> None:
    with store.transaction(Actor.AGENT, "remember") as tx:
        tx.put(Ref.parse("memory:USER"), {"USER.md": skill("x")["SKILL.md"]})
    assert store.backend.channel.list_entries() == []
    assert store.backend.channel.last() == 0


def test_the_heads_that_some_changes_moved_are_read_at_once(store: Store, put: Put) -> None:
    put("pdf", "one")
    put("csv", "one")
    since = store.sequence()
    put("csv", "two")
    put("csv", "three")
    remove(store, PDF)

    heads = {
        head.ref.name: head.version for head in store.backend.changed_heads(since, store.sequence())
    }
    assert heads == {"csv": 3, "pdf": None}
    assert [head.ref.name for head in store.backend.changed_heads(since, since + 1)] == ["csv"]
    assert store.backend.changed_heads(store.sequence(), store.sequence() + 5) == []


def test_a_change_that_fails_moves_nothing(store: Store, put: Put) -> None:
    under(store, ReleasePolicy.LIVE)
    put("pdf", "one")
    with (
        pytest.raises(Exception, match="not at version 7"),
        store.transaction(Actor.AGENT, "two at once") as tx,
    ):
        tx.put(CSV, skill("new"))
        tx.put(PDF, skill("two"), expected_version=7)
    assert [str(h.ref) for h in store.backend.channel.list_entries()] == ["skill:pdf"]
    assert seen(store) == 1


def test_an_older_library_begins_with_every_skill_as_hosts_saw_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with as_older(CHANNEL - 1, monkeypatch), Store.open(tmp_path, create=True) as store:
        for text in ("one", "two"):
            with store.transaction(Actor.AGENT, text) as tx:
                tx.put(PDF, skill(text))
                tx.put(CSV, skill(text))
        remove(store, CSV)
    with Store.open(tmp_path) as store:
        assert (seen(store, PDF), seen(store, CSV)) == (2, None)
        assert check_library(store).faults == ()
        with store.transaction(Actor.AGENT, "three") as tx:
            tx.put(PDF, skill("three"))
        assert seen(store, PDF) == 2


@ON_SQLITE
def test_gc_and_backup_keep_what_hosts_see(store: Store, put: Put, tmp_path: Path) -> None:
    put("pdf", "one")
    put("pdf", "two")
    under(store, ReleasePolicy.MANUAL)
    assert collect(store).blobs == 0
    with Store.open(backup(store, tmp_path / "copy")) as copy:
        assert (seen(copy), copy.backend.channel.policy()) == (1, ReleasePolicy.MANUAL)
        head = copy.head(PDF)
        assert copy.file(head, "SKILL.md", seen(copy)).data == b"one"


def exported(store: Store, refs: list[Ref] | None = None) -> BytesIO:
    stream = BytesIO()
    export_json(store, stream, refs)
    return BytesIO(stream.getvalue())


def test_a_history_brings_its_channel_along(
    store: Store, put: Put, tmp_path: Path, clock: Clock
) -> None:
    under(store, ReleasePolicy.MANUAL)
    for name in ("pdf", "csv", "pdf"):
        put(name, f"{name} {store.sequence()}")
    publish(store, PDF)
    put("pdf", "waits")
    with Store.open(tmp_path / "new", create=True, clock=clock) as other:
        import_json(other, exported(store))
        assert (seen(other, PDF), seen(other, CSV)) == (2, None)
        theirs, ours = other.backend.channel, store.backend.channel
        assert theirs.policy() is ReleasePolicy.MANUAL
        assert [m.note.reason for m in theirs.moves(9)] == [m.note.reason for m in ours.moves(9)]
        assert check_library(other).faults == ()


def test_an_import_never_moves_what_hosts_see_already(
    store: Store, put: Put, tmp_path: Path, clock: Clock
) -> None:
    put("pdf", "one")
    with Store.open(tmp_path / "new", create=True, clock=clock) as other:
        import_json(other, exported(store))
        under(store, ReleasePolicy.LIVE)
        put("pdf", "two")
        put("csv", "one")
        put("csv", "two")
        import_json(other, exported(store))
        assert (seen(other, PDF), other.head(PDF).version) == (1, 2)
        assert seen(other, CSV) == 2
        assert other.backend.channel.policy() is ReleasePolicy.NEW


def test_of_an_archive_without_a_channel_the_newest_version_is_seen(
    store: Store, put: Put, tmp_path: Path, clock: Clock
) -> None:
    put("pdf", "one")
    put("pdf", "two")
    text = exported(store).getvalue()
    older = text[: text.index(b',\n"channel"')] + b"\n}\n"
    with Store.open(tmp_path / "new", create=True, clock=clock) as other:
        import_json(other, BytesIO(older))
        assert seen(other) == 2


@pytest.mark.parametrize(
    ("was", "becomes", "words"),
    [
        (b'["skill:pdf",1,false]', b'["skill:pdf",9,false]', "shows version 9 of skill:pdf"),
        (b'["skill:pdf",1,false]', b'["memory:USER",1,false]', "cannot be read"),
        (b'["skill:pdf",1,false]', b'["skill:pdf",true,false]', "cannot be read"),
        (b'"policy":null', b'"policy":"always"', "cannot be read"),
    ],
)
def test_a_channel_that_cannot_be_is_refused_whole(
    store: Store, put: Put, tmp_path: Path, was: bytes, becomes: bytes, words: str
) -> None:
    put("pdf", "one")
    text = exported(store).getvalue()
    assert was in text
    with Store.open(tmp_path / "new", create=True) as other:
        with pytest.raises(InvalidArchive, match=words):
            import_json(other, BytesIO(text.replace(was, becomes)))
        assert other.heads() == []


@ON_SQLITE
@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE placing SET after = 7", "version 7, which is missing"),
        ("UPDATE placing SET before = 1 WHERE move = 1", "followed version 1, that was None"),
        ("UPDATE placing SET withdrawn = 1", "it is withdrawn and shown"),
        ("UPDATE placing SET resource = 2 WHERE move = 1", "it is no skill"),
        ("DELETE FROM move WHERE id = 1", "its move is missing"),
        ("DELETE FROM placing WHERE move = 1", "it places nothing"),
        ("UPDATE move SET policy = 'always'", "there is no policy 'always'"),
        ("UPDATE move SET actor = 'nobody'", "there is no actor 'nobody'"),
        ("UPDATE move SET operation = 99", "its operation 99 is missing"),
    ],
)
def test_damage_to_the_channel_is_found(store: Store, put: Put, damage: str, found: str) -> None:
    put("pdf", "one")
    with store.transaction(Actor.AGENT, "remember") as tx:
        tx.put(Ref.parse("memory:USER"), {"USER.md": skill("x")["SKILL.md"]})
    put("pdf", "two")
    publish(store, PDF)
    assert check_library(store).faults == ()
    with closing(sqlite3.connect(store.backend.path)) as db, db:
        assert db.execute(damage).rowcount
    assert any(found in fault.what for fault in check_library(store).faults), check_library(
        store
    ).faults
