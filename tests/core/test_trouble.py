"""Bad disks, bad bytes, bad moments: a typed error or the right content, never wrong content."""

import os
import random
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from library_trouble import linux_root, small_disk
from processes import Children, Gate, poll
from samples import skill
from soundness import assert_sound

from evolvable_store.errors import (
    EvolvableError,
    LibraryBusy,
    LibraryCorrupt,
    LibraryError,
    LibraryFull,
    LibraryReadOnly,
    VersionConflict,
)
from evolvable_store.fsck import check_library
from evolvable_store.objects import File, Files
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage import connection, migrations, sql
from evolvable_store.store import Store

FILE = "library.db"
PDF = Ref.parse("pdf")


@contextmanager
def read_only_disk(place: Path) -> Iterator[None]:
    """Makes a mounted disk one that cannot be written."""
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", place], check=True)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that any user of the machine may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="evolvable-"))
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def noise(size: int) -> Files:
    """Returns a skill of this many bytes that no packing makes smaller."""
    return {"SKILL.md": File(os.urandom(size))}


def filled(home: Path, versions: int = 1) -> dict[tuple[str, int], Files]:
    """Makes a library with three skills and a few versions of each; returns the content of every
    version.
    """
    content: dict[tuple[str, int], Files] = {}
    with Store.open(home, create=True) as store:
        for number in range(1, versions + 1):
            for name in ("pdf", "xls", "doc"):
                files = skill(f"{name} {number} " * 50, notes=f"{number}" * 300)
                with store.transaction(Actor.HUMAN, "fill") as tx:
                    tx.put(Ref.parse(name), files)
                content[name, number] = files
    return content


# A full disk


@pytest.mark.process
@linux_root
def test_a_full_disk_is_said_to_be_full_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, Store.open(disk / "home", create=True) as store:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(300_000))
        kept: list[Files] = []
        with pytest.raises(LibraryFull) as refusal:
            while True:
                files = noise(20_000)
                started = time.monotonic()
                with store.transaction(Actor.AGENT, "more") as tx:
                    tx.put(PDF, files)
                kept.append(files)
        assert time.monotonic() - started < 1
        assert "Free some space" in refusal.value.hint
        head = store.head(PDF)
        assert [store.files(head, number) for number in range(1, len(kept) + 1)] == kept
        assert head.version == len(kept)
        ballast.unlink()
        with store.transaction(Actor.AGENT, "works again") as tx:
            tx.put(PDF, noise(100))
        assert store.head(PDF).version == len(kept) + 1
        assert_sound(store)


@pytest.mark.process
@linux_root
def test_a_library_cannot_be_made_on_a_full_disk_and_says_so_at_once(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "16k") as disk:
        (disk / "ballast").write_bytes(bytes(8_000))
        started = time.monotonic()
        with pytest.raises(LibraryFull):
            Store.open(disk / "home", create=True)
        assert time.monotonic() - started < 1
        (disk / "ballast").unlink()


# A disk or a file that cannot be written


@pytest.mark.process
@linux_root
def test_a_library_on_a_disk_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        content = filled(disk / "home", versions=3)
        with read_only_disk(disk), Store.open(disk / "home") as store:
            assert store.read_only
            assert_sound(store)
            for (name, number), files in content.items():
                assert store.files(store.head(Ref.parse(name)), number) == files
            with pytest.raises(LibraryReadOnly), store.transaction(Actor.HUMAN, "try") as tx:
                tx.put(PDF, skill("new"))
        with Store.open(disk / "home") as store, store.transaction(Actor.HUMAN, "try again") as tx:
            tx.put(PDF, skill("new"))


@pytest.mark.process
@linux_root
def test_a_disk_becoming_read_only_is_an_error_that_says_so(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        content = filled(disk / "home")
        with Store.open(disk / "home") as store:
            with store.transaction(Actor.HUMAN, "before") as tx:
                tx.put(Ref.parse("more"), skill("before"))
            store.close()
            with (
                read_only_disk(disk),
                pytest.raises(LibraryError),
                store.transaction(Actor.HUMAN, "try") as tx,
            ):
                tx.put(PDF, skill("new"))
            assert store.files(store.head(PDF)) == content["pdf", 1]
            with store.transaction(Actor.HUMAN, "after") as tx:
                tx.put(PDF, skill("new"))
            assert_sound(store)


@pytest.mark.process
@linux_root
def test_changes_that_only_the_log_holds_are_never_left_out(
    children: Children, tmp_path: Path
) -> None:
    """After a kill the newest versions are in the write-ahead log alone: it is read, or the library
    is refused.
    """
    with small_disk(tmp_path / "disk", "8m") as disk:
        gate = Gate(tmp_path / "gate")
        Store.open(disk / "home", create=True).close()
        writer = children.start("acknowledge", disk / "home", gate.folder, "w")
        gate.wait_for(writer)
        with Store.open(disk / "home") as store:
            poll(lambda: store.sequence() >= 20, "the writer to write")
        acknowledged = writer.kill()
        shared_memory = disk / "home" / f"{FILE}-shm"
        for missing in (False, True):
            if missing:
                shared_memory.unlink(missing_ok=True)
            with read_only_disk(disk):
                try:
                    with Store.open(disk / "home") as store:
                        assert {operation.reason for operation in store.operations(10**6)} >= set(
                            acknowledged
                        )
                except LibraryReadOnly as refusal:
                    assert "Copy the whole folder" in refusal.hint
        with Store.open(disk / "home") as store:
            assert {operation.reason for operation in store.operations(10**6)} >= set(acknowledged)
            assert_sound(store)


@pytest.mark.process
@linux_root
def test_another_user_who_may_only_read_reads(children: Children, public: Path) -> None:
    content = filled(public / "home", versions=2)
    (public / "home").chmod(0o755)
    (public / "home" / FILE).chmod(0o644)
    said = children.start("read", public / "home", flags=("--nobody",)).said()
    assert (said["read_only"], said["refused"]) == (True, "LibraryReadOnly")
    assert said["texts"]["skill:pdf"] == {
        path: file.data.decode() for path, file in content["pdf", 2].items()
    }


@pytest.mark.process
@linux_root
def test_another_user_who_may_only_read_sees_what_the_owner_writes_meanwhile(
    children: Children, public: Path
) -> None:
    filled(public / "home")
    with Store.open(public / "home") as store, store.transaction(Actor.HUMAN, "now") as tx:
        tx.put(PDF, skill("now"))
    for number in range(3):
        with Store.open(public / "home") as store:
            with store.transaction(Actor.HUMAN, "now") as tx:
                tx.put(PDF, skill(f"now {number}"))
            (public / "home").chmod(0o755)
            for path in (public / "home").iterdir():
                path.chmod(0o644)
            said = children.start("read", public / "home", flags=("--nobody",)).said()
            assert said["texts"]["skill:pdf"] == {"SKILL.md": f"now {number}"}


@pytest.mark.process
@linux_root
def test_a_library_that_may_not_even_be_read_is_refused(children: Children, public: Path) -> None:
    filled(public / "home")
    (public / "home").chmod(0o755)
    (public / "home" / FILE).chmod(0o000)
    child = children.start("read", public / "home", flags=("--nobody",))
    with pytest.raises(AssertionError, match="LibraryReadOnly.*cannot be opened"):
        child.said()


# Damaged bytes


def test_a_damaged_header_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    with (tmp_path / FILE).open("r+b") as file:
        file.write(b"garbage!" * 2)
    with pytest.raises(LibraryCorrupt, match="not a library") as refusal:
        Store.open(tmp_path)
    assert "backup" in refusal.value.hint


@pytest.mark.process
@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_file_cut_short_is_refused_or_right(tmp_path: Path, part: float) -> None:
    content = filled(tmp_path, versions=20)
    file = tmp_path / FILE
    os.truncate(file, int(file.stat().st_size * part))
    assert right_or_refused(tmp_path, content) < len(content)


def test_a_flipped_bit_in_a_blob_is_found_when_it_is_read(tmp_path: Path) -> None:
    content = filled(tmp_path, versions=2)
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        (rows,) = db.execute("SELECT count(*) FROM blob").fetchone()
        for identity, data in db.execute("SELECT id, data FROM blob").fetchall():
            flipped = bytes([*data[:-6], data[-6] ^ 1, *data[-5:]])
            db.execute("UPDATE blob SET data = ? WHERE id = ?", (flipped, identity))
        db.commit()
    assert rows == 8
    assert right_or_refused(tmp_path, content) == 0
    with (
        Store.open(tmp_path) as store,
        pytest.raises(LibraryCorrupt, match="does not match its hash"),
    ):
        store.files(store.head(PDF))


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE change SET manifest = replace(manifest, 'notes.md', 'other.md')",
        "UPDATE change SET manifest = replace(manifest, '420', '493')",
        "UPDATE change SET manifest = '{'",
        "UPDATE change SET manifest = '{}'",
        "UPDATE change SET manifest = '[1]'",
        """UPDATE change SET manifest = '{"a": 1}'""",
        "UPDATE change SET manifest = NULL WHERE sequence < 4",
        "UPDATE change SET manifest = CAST(x'7bff7d' AS TEXT)",
        "UPDATE change SET tree = replace(tree, substr(tree, 1, 1), 'x')",
        "UPDATE blob SET codec = 'raw'",
        "UPDATE blob SET data = x''",
        "UPDATE blob SET sha256 = replace(sha256, substr(sha256, 1, 1), 'x')",
        "DELETE FROM blob",
        "DELETE FROM change",
        "UPDATE resource SET kind = 'skull'",
        "UPDATE resource SET name = CAST(x'ff' AS TEXT) WHERE id = 2",
        "DROP TABLE change",
    ],
)
def test_a_row_that_we_did_not_write_is_never_wrong_content(tmp_path: Path, damage: str) -> None:
    content = filled(tmp_path, versions=2)
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.execute(damage)
        db.commit()
    assert right_or_refused(tmp_path, content) < len(content)


@pytest.mark.parametrize("data", ["'text'", "1"])
def test_a_blob_that_damage_made_a_text_or_a_number_is_refused(tmp_path: Path, data: str) -> None:
    """The table is STRICT, so no statement writes one; one wrong bit in the head of a row does."""
    content = filled(tmp_path, versions=2)
    change = "UPDATE sqlite_schema SET sql = replace(sql, {}, {}) WHERE name = 'blob'"
    statements = (
        change.format("') STRICT'", "') '"),
        f"UPDATE blob SET data = {data}, codec = 'raw'",
        change.format("') '", "') STRICT'"),
    )
    for statement in statements:
        with closing(sqlite3.connect(tmp_path / FILE)) as db:
            db.execute("PRAGMA writable_schema = ON")
            assert db.execute(statement).rowcount > 0
            db.commit()
    assert right_or_refused(tmp_path, content) < len(content)
    with Store.open(tmp_path) as store:
        assert check_library(store).faults


def test_a_name_that_damage_made_a_number_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, versions=2)
    change = (
        "UPDATE sqlite_schema SET sql = replace(replace(sql, {}, {}), {}, {}) "
        "WHERE name = 'resource'"
    )
    statements = (
        change.format("'name TEXT'", "'name BLOB'", "') STRICT'", "') '"),
        "UPDATE resource SET name = 1 WHERE id = 1",
        change.format("'name BLOB'", "'name TEXT'", "') '", "') STRICT'"),
    )
    for statement in statements:
        with closing(sqlite3.connect(tmp_path / FILE)) as db:
            db.execute("PRAGMA writable_schema = ON")
            assert db.execute(statement).rowcount > 0
            db.commit()

    with Store.open(tmp_path) as store:
        with pytest.raises(LibraryError, match="is no text"):
            store.heads()
        with pytest.raises(LibraryError, match="is no text"):
            store.head(Ref.parse("nothing-of-this-name"))
        assert check_library(store).faults


def right_or_refused(home: Path, content: dict[tuple[str, int], Files]) -> int:
    """Returns how many versions were read rightly; fails when one was wrong or an error was not
    ours.
    """
    right = 0
    try:
        store = Store.open(home)
    except LibraryError:
        return 0
    with store:
        for (name, number), files in content.items():
            try:
                found = store.files(store.head(Ref.parse(name)), number)
            except EvolvableError as error:
                assert error.hint
            else:
                assert found == files
                right += 1
        for read in (store.heads, store.changes, store.operations):
            try:
                read()
            except EvolvableError as error:
                assert error.hint
    return right


@pytest.mark.parametrize("trials", [200, pytest.param(10_000, marks=pytest.mark.nightly)])
@pytest.mark.process
def test_flipped_bits_anywhere_never_give_wrong_content(tmp_path: Path, trials: int) -> None:
    """Three bits at a time; what was flipped is in the message of a failure."""
    content = filled(tmp_path / "sound", versions=6)
    sound = (tmp_path / "sound" / FILE).read_bytes()
    rng = random.Random()
    for trial in range(trials):
        home = tmp_path / f"{trial}"
        home.mkdir()
        damaged, flipped = bytearray(sound), [rng.randrange(len(sound) * 8) for _ in range(3)]
        for bit in flipped:
            damaged[bit // 8] ^= 1 << bit % 8
        (home / FILE).write_bytes(damaged)
        try:
            right_or_refused(home, content)
        except BaseException as error:
            raise AssertionError(f"after flipping the bits {flipped}") from error
        shutil.rmtree(home)


@pytest.mark.process
@pytest.mark.parametrize("damage", [b"", b"\x00" * 32, b"garbage" * 500])
def test_a_damaged_log_gives_an_older_state_and_nothing_mixed(
    children: Children, tmp_path: Path, damage: bytes
) -> None:
    home, gate = tmp_path / "home", Gate(tmp_path / "gate")
    Store.open(home, create=True).close()
    writer = children.start("acknowledge", home, gate.folder, "w")
    gate.wait_for(writer)
    with Store.open(home) as store:
        poll(lambda: store.sequence() >= 40, "the writer to write")
    writer.kill()
    log = home / f"{FILE}-wal"
    data = log.read_bytes()
    log.write_bytes(
        damage
        if not damage
        else data[: len(data) // 2] + damage + data[len(data) // 2 + len(damage) :]
    )
    with Store.open(home) as store:
        assert_sound(store)


# Bad moments


@pytest.mark.process
def test_a_library_that_others_keep_busy_is_given_up_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "GIVE_UP_SECONDS", 0.3)
    filled(tmp_path)
    with (
        Store.open(tmp_path) as store,
        closing(connection.connect(tmp_path / FILE, durable=True)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        with pytest.raises(LibraryBusy, match="busy"), store.transaction(Actor.AGENT, "try") as tx:
            tx.put(PDF, skill("new"))
        assert 0.2 < time.monotonic() - started < 3
        assert store.head(PDF).version == 1, "reading goes on"
        other.execute("ROLLBACK")
        with store.transaction(Actor.AGENT, "try") as tx:
            tx.put(PDF, skill("new"))
        assert_sound(store)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_interruption_between_two_statements_publishes_nothing_and_frees_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interruption: type[BaseException]
) -> None:
    filled(tmp_path)
    with Store.open(tmp_path) as store, Store.open(tmp_path) as other:
        before = store.sequence()
        with monkeypatch.context() as patch:

            def interrupted(*_: object) -> None:
                raise interruption

            patch.setattr(sql.SqlWriter, "add_operation", interrupted)
            with pytest.raises(interruption), store.transaction(Actor.AGENT, "interrupted") as tx:
                tx.put(PDF, skill("new"))
        assert store.sequence() == before
        for after in (other, store):
            with after.transaction(Actor.AGENT, "after") as tx:
                tx.put(PDF, skill(f"after {id(after)}"))
        assert_sound(store)


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_with_the_library_open_loses_nothing(children: Children, tmp_path: Path) -> None:
    """SQLite's connections must not cross a fork (sqlite.org/howtocorrupt.html); parent and child
    both go on.
    """
    said = children.start("fork", tmp_path / "home").said()
    assert said == {"child": 0, "head": 10}
    with Store.open(tmp_path / "home") as store:
        assert {
            past.version.number for past in store.history(store.head(Ref.parse("forked")))
        } == set(range(1, 11))
        assert_sound(store)


# Another SQLite


@pytest.mark.process
@pytest.mark.parametrize("flags", [("--stdlib",), ("--stdlib", "--unsafe")], ids=" ".join)
def test_a_sqlite_without_the_fix_of_the_log_uses_a_rollback_journal(
    children: Children, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """The bug is the write-ahead log's alone."""
    gate = Gate(tmp_path / "gate")
    gate.open()
    said = children.start("open", tmp_path / "home", gate.folder, flags=flags).said()
    safe = "--unsafe" not in flags and sqlite3.sqlite_version_info >= connection.SAFE_VERSION
    assert said["journal"] == ("wal" if safe else "delete")


def without_the_fix(monkeypatch: pytest.MonkeyPatch, yes: bool = True) -> None:
    """Makes what is opened from now on behave as if its SQLite had the bug of the write-ahead log,
    or not.
    """
    monkeypatch.setattr(connection, "SAFE_VERSION", (99, 0, 0) if yes else (3, 0, 0))


def test_a_sqlite_without_the_fix_reads_beside_one_that_has_it_and_does_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "JOURNAL_SECONDS", 0.05)
    content = filled(tmp_path)
    without_the_fix(monkeypatch, False)
    with Store.open(tmp_path) as safe:
        without_the_fix(monkeypatch)
        with Store.open(tmp_path) as unsafe:
            assert unsafe.files(unsafe.head(PDF)) == content["pdf", 1]
            with (
                pytest.raises(LibraryBusy) as refusal,
                unsafe.transaction(Actor.AGENT, "try") as tx,
            ):
                tx.put(PDF, skill("new"))
            assert "Install pysqlite3" in refusal.value.hint
        assert safe.head(PDF).version == 1
    with Store.open(tmp_path) as alone, alone.transaction(Actor.AGENT, "try") as tx:
        tx.put(PDF, skill("new"))


def test_a_sqlite_without_the_fix_stops_writing_when_one_that_has_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    without_the_fix(monkeypatch)
    with Store.open(tmp_path) as unsafe:
        with unsafe.transaction(Actor.AGENT, "before") as tx:
            tx.put(PDF, skill("before"))
        assert unsafe.backend.journal == "delete"
        without_the_fix(monkeypatch, False)
        with Store.open(tmp_path) as safe:
            assert safe.backend.journal == "wal"
            without_the_fix(monkeypatch)
            with pytest.raises(LibraryBusy), unsafe.transaction(Actor.AGENT, "after") as tx:
                tx.put(PDF, skill("after"))
            assert unsafe.files(unsafe.head(PDF)) == skill("before")
            assert_sound(safe)


def test_a_conflict_is_not_taken_for_trouble() -> None:
    assert not issubclass(VersionConflict, LibraryError)
