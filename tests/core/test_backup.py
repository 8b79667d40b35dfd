"""A backup is whole, checked and one file, whoever writes meanwhile."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from postgres_place import ON_SQLITE
from processes import Children, Gate, poll
from samples import skill
from soundness import all_changes, assert_sound

from evolvable_store.bundle.export import backup
from evolvable_store.errors import InvalidArgument, LibraryCorrupt, LibraryError
from evolvable_store.fsck import check_library
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store

Put = Callable[..., object]


@ON_SQLITE
def test_a_backup_opens_as_a_library_with_the_same_content(
    store: Store, put: Put, tmp_path: Path
) -> None:
    put("pdf", "one")
    put("pdf", "two")
    target = tmp_path / "deep" / "backup"
    assert backup(store, target) == target
    assert os.listdir(target) == ["library.db"]
    with Store.open(target) as copy:
        assert all_changes(copy) == all_changes(store)
        assert copy.files(copy.head(Ref.parse("pdf"))) == skill("two")
        assert_sound(copy)


@ON_SQLITE
def test_a_backup_of_a_backup_is_the_library_too(store: Store, put: Put, tmp_path: Path) -> None:
    put("pdf", "one")
    with (
        Store.open(backup(store, tmp_path / "first")) as first,
        Store.open(backup(first, tmp_path / "second")) as copy,
    ):
        assert all_changes(copy) == all_changes(store)


@ON_SQLITE
def test_a_backup_can_be_read_where_nothing_can_be_written(
    store: Store, put: Put, tmp_path: Path
) -> None:
    """It needs no log beside it: a medium that is mounted read-only holds files with this mode and
    no others.
    """
    put("pdf", "one")
    target = backup(store, tmp_path / "backup")
    assert (target / "library.db").read_bytes()[18:20] == b"\1\1", (
        "the file says that it has a write-ahead log"
    )


def test_a_write_after_every_step_does_not_start_it_anew(
    store: Store, put: Put, tmp_path: Path
) -> None:
    """As SQLite's copy in steps does by itself: it would never end."""
    if store.backend.journal != "wal":
        pytest.skip("with a rollback journal, writers wait for the backup")
    for number in range(30):
        put(f"large-{number}", os.urandom(200_000).hex())
    steps = []

    def write(done: int, total: int) -> None:
        steps.append(done)
        assert len(steps) < 100
        put("pdf", f"text {len(steps)}")

    with Store.open(backup(store, tmp_path / "backup", write)) as copy:
        assert len(steps) > 1
        assert copy.sequence() == 30, "the library as it was when the backup began"


@pytest.mark.process
def test_a_backup_ends_while_others_write_without_a_pause(
    children: Children, tmp_path: Path
) -> None:
    home, gate = tmp_path / "home", Gate(tmp_path / "gate")
    with Store.open(home, create=True) as store:
        with store.transaction(Actor.AGENT, "make it large") as tx:
            for number in range(100):
                tx.put(Ref.parse(f"large-{number}"), skill(os.urandom(60_000).hex()))
        writers = [
            children.start("acknowledge", home, gate.folder, worker) for worker in ("w1", "w2")
        ]
        gate.wait_for(*writers)
        poll(lambda: store.sequence() > 150, "the first writes")
        for number in range(3):
            before = store.sequence()
            target = backup(store, tmp_path / f"backup-{number}")
            after = store.sequence()
            with Store.open(target) as copy:
                assert before <= copy.sequence() <= after
                assert check_library(copy).faults == ()
        assert all(writer.running() for writer in writers)
        assert store.sequence() > before


@ON_SQLITE
def test_progress_counts_the_pages_up_to_the_last(store: Store, put: Put, tmp_path: Path) -> None:
    for number in range(30):
        put(f"large-{number}", os.urandom(200_000).hex())
    seen: list[tuple[int, int]] = []
    backup(store, tmp_path / "backup", lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert len(seen) > 1
    assert seen[-1][0] == seen[-1][1]


@ON_SQLITE
def test_what_is_there_already_is_not_overwritten(store: Store, put: Put, tmp_path: Path) -> None:
    put("pdf", "one")
    target = backup(store, tmp_path / "backup")
    put("pdf", "two")
    with pytest.raises(InvalidArgument, match="holds a backup already"):
        backup(store, target)
    with Store.open(target) as copy:
        assert copy.sequence() == 1


@ON_SQLITE
def test_an_older_backup_makes_room_when_told(store: Store, put: Put, tmp_path: Path) -> None:
    put("pdf", "one")
    target = backup(store, tmp_path / "backup")
    (target / "library.db-wal").write_bytes(b"left by somebody who looked into it and was killed")
    put("pdf", "two")
    backup(store, target, replace=True)
    assert os.listdir(target) == ["library.db"]
    with Store.open(target) as copy:
        assert copy.sequence() == 2
    assert {path.name for path in tmp_path.iterdir()} == {"backup", "home"}


@ON_SQLITE
def test_an_empty_folder_is_taken(store: Store, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    assert os.listdir(backup(store, tmp_path / "backup")) == ["library.db"]


@pytest.mark.parametrize("replace", [False, True])
def test_nothing_but_an_older_backup_makes_room(
    store: Store, tmp_path: Path, replace: bool
) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("x", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for target in (
        tmp_path / "file",
        tmp_path / "full",
        tmp_path / "link",
        store.home,
        tmp_path,
        Path("/"),
    ):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(InvalidArgument):
            backup(store, target, replace=replace)
        assert sorted(tmp_path.rglob("*")) == before


def test_a_place_that_cannot_be_written_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(LibraryError, match="file/backup cannot be written"):
        backup(store, tmp_path / "file" / "backup")


@ON_SQLITE
def test_a_damaged_copy_is_not_kept(store: Store, put: Put, tmp_path: Path) -> None:
    for number in range(40):
        put(f"s{number}", "text" * 2000)
    with store.backend.reading() as db:
        root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'blob'").fetchone()[0]
    store.close()
    file = store.home / "library.db"
    content = bytearray(file.read_bytes())
    page = int.from_bytes(content[16:18])
    content[(root - 1) * page : root * page] = bytes(page)
    file.write_bytes(content)
    with Store.open(store.home) as damaged, pytest.raises(LibraryCorrupt):
        backup(damaged, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@ON_SQLITE
def test_a_backup_that_is_broken_off_leaves_nothing(store: Store, put: Put, tmp_path: Path) -> None:
    put("pdf", "one")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup(store, tmp_path / "backup", stop)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert put("pdf", "two")
