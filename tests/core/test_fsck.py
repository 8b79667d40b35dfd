"""The check of a whole library: silent when it is sound, and every kind of damage is found."""

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from processes import Children, Gate, poll
from samples import FROZEN, skill

from evolvable_store.errors import EvolvableError
from evolvable_store.fsck import Fault, FsckReport, check_library
from evolvable_store.objects import EXECUTABLE, File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store

FLIPS = 250


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a library with a bit of everything, closed."""
    home = tmp_path_factory.mktemp("sound")
    with Store.open(home, create=True) as store:
        for number in range(1, 6):
            with store.transaction(
                Actor.AGENT, f"write {number}", session="s", evidence=["e"]
            ) as tx:
                tx.put(Ref.parse("pdf"), skill(f"text {number} " * 300, notes="always the same"))
                tx.put(
                    Ref.parse(f"memory:acme/m{number}"),
                    {"MEMORY.md": File(b"m" * number, EXECUTABLE)},
                )
        for change in ("remove", "return", "restore"):
            with store.transaction(Actor.HUMAN, change) as tx:
                if change == "remove":
                    tx.remove(Ref.parse("pdf"))
                else:
                    tx.restore(Ref.parse("pdf"), 5 if change == "return" else 2)
        with store.transaction(Actor.HUMAN, "freeze") as tx:
            tx.put(
                Ref.parse("kept"),
                {
                    "SKILL.md": File(FROZEN.encode()),
                    "big.bin": File(random.Random(0).randbytes(9000)),
                },
            )
    return home / "library.db"


@pytest.fixture
def damaged(sound: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copy(sound, tmp_path / "library.db"))


def run(file: Path, *statements: str) -> FsckReport:
    """Returns the report on a file after these statements have damaged it."""
    with closing(sqlite3.connect(file)) as db, db:
        for statement in statements:
            assert db.execute(statement).rowcount != 0, statement
    with Store.open(file.parent) as store:
        return check_library(store)


def test_a_sound_library_has_no_faults_and_everything_was_looked_at(damaged: Path) -> None:
    report = run(damaged)
    assert report.faults == ()
    assert (report.blobs, report.versions, report.operations, report.resources) == (13, 12, 9, 7)


def test_an_empty_library_is_sound(store: Store) -> None:
    assert check_library(store) == FsckReport(0, 0, 0, 0, ())


DAMAGE = {
    "a blob's bytes": (
        "UPDATE blob SET data = x'00', codec = 'raw' WHERE id = 1",
        "do not match its hash",
    ),
    "a blob's packing": ("UPDATE blob SET data = x'00' WHERE codec = 'zlib'", "cannot be unpacked"),
    "a blob's codec": (
        "UPDATE blob SET codec = 'lzma' WHERE id = 1",
        "its codec 'lzma' is unknown",
    ),
    "a blob's size": ("UPDATE blob SET size = size + 1 WHERE id = 1", "its record says"),
    "a size beside its manifest": (
        "UPDATE blob SET size = size + 1 WHERE id = 1",
        "bytes, its blob",
    ),
    "a blob is gone": ("DELETE FROM blob WHERE id = 1", "is missing"),
    "a manifest's mode": (
        "UPDATE change SET manifest = replace(manifest, '420', '493')",
        "list of files does not",
    ),
    "a manifest is no JSON": (
        "UPDATE change SET manifest = '{' WHERE sequence = 1",
        "list of files cannot be read",
    ),
    "a manifest is a list": (
        "UPDATE change SET manifest = '[1]' WHERE sequence = 1",
        "list of files cannot be read",
    ),
    "a manifest is gone": ("UPDATE change SET manifest = NULL WHERE sequence = 3", "makes none"),
    "a tree": (
        "UPDATE change SET tree = hash WHERE sequence = 1",
        "list of files does not match its hash",
    ),
    "a chain": (
        "UPDATE change SET hash = tree WHERE sequence = 1",
        "does not follow from its parent",
    ),
    "a reason": (
        "UPDATE operation SET reason = 'another' WHERE id = 3",
        "does not follow from its parent",
    ),
    "an actor": (
        "UPDATE operation SET actor = 'human' WHERE id = 3",
        "does not follow from its parent",
    ),
    "a time": ("UPDATE operation SET at = '2020' WHERE id = 3", "does not follow from its parent"),
    "a session": (
        "UPDATE operation SET session = NULL WHERE id = 3",
        "does not follow from its parent",
    ),
    "evidence": (
        "UPDATE operation SET evidence = NULL WHERE id = 3",
        "does not follow from its parent",
    ),
    "an unknown actor": ("UPDATE operation SET actor = 'nobody' WHERE id = 3", "'nobody'"),
    "evidence is no JSON": ("UPDATE operation SET evidence = '[' WHERE id = 3", "cannot be read"),
    "an operation is gone": ("DELETE FROM operation WHERE id = 3", "no operation"),
    "the last operation is gone": (
        "DELETE FROM operation WHERE id = 14",
        "no operation holds them",
    ),
    "an operation too long": (
        "UPDATE operation SET last = 5 WHERE id = 3",
        "before the last one ends",
    ),
    "an operation too short": (
        "UPDATE operation SET last = 3 WHERE id = 3",
        "no operation holds them",
    ),
    "an operation ends beyond": (
        "UPDATE operation SET last = 99 WHERE id = 14",
        "its last change is 99",
    ),
    "an operation ends before": (
        "UPDATE operation SET last = 1 WHERE id = 3",
        "its last change is 1",
    ),
    "a change's operation": (
        "UPDATE change SET operation = 1 WHERE sequence = 3",
        "names operation 1 and lies in",
    ),
    "a change is gone": ("DELETE FROM change WHERE sequence = 3", "missing from the log"),
    "the last change is gone": (
        "DELETE FROM change WHERE sequence = 14",
        "the operations go on to 14",
    ),
    "a version before": (
        "UPDATE change SET before = 1 WHERE sequence = 5",
        "followed version 1",
    ),
    "a version after": (
        "UPDATE change SET after = 1 WHERE sequence = 13",
        "it points at version 1",
    ),
    "a version that is no head": (
        "UPDATE change SET after = NULL WHERE sequence = 13",
        "points nowhere",
    ),
    "a number": ("UPDATE change SET latest = 9 WHERE sequence = 13", "the version before it is 5"),
    "an order": (
        "UPDATE change SET latest = 3 WHERE sequence = 11",
        "the head is not the last change",
    ),
    "a frozen head": (
        "UPDATE change SET frozen = 0 WHERE sequence = 14",
        "not frozen, its main file",
    ),
    "a free head": (
        "UPDATE change SET frozen = 1 WHERE sequence = 13",
        "is frozen, its main file",
    ),
    "a resource is gone": ("DELETE FROM resource WHERE id = 1", "it belongs to no resource"),
    "a resource is new": (
        "INSERT INTO resource VALUES (99, 'skill', 'user', 'ghost')",
        "a name and no history",
    ),
    "a kind": ("UPDATE resource SET kind = 'spell' WHERE id = 1", "there is no kind 'spell'"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_whatever_it_is(damaged: Path, name: str) -> None:
    statement, what = DAMAGE[name]
    faults = run(damaged, statement).faults
    assert any(what in fault.what for fault in faults), faults
    assert all(fault.what and fault.which and fault.next for fault in faults)


def test_a_fault_says_what_which_and_what_next(damaged: Path) -> None:
    (fault,) = run(
        damaged, "UPDATE blob SET size = 1 WHERE id = (SELECT max(id) FROM blob) - 1"
    ).faults[:1]
    assert str(fault).startswith("blob ")
    assert "its record says 1." in str(fault)
    assert "`evolvable backup restore FOLDER`" in str(fault)


def test_a_table_out_of_step_with_its_index_is_found(damaged: Path) -> None:
    """A row that only the table knows: what SQLite's own check is for."""
    with closing(sqlite3.connect(damaged)) as db, db:
        db.execute("PRAGMA writable_schema=ON")
        db.execute("DELETE FROM sqlite_master WHERE name = 'change_resource'")
        index = "CREATE INDEX change_resource ON change (resource, latest)"
    with closing(sqlite3.connect(damaged)) as db, db:
        root = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'operation_session'"
        ).fetchone()[0]
        db.execute("PRAGMA writable_schema=ON")
        row = ("index", "change_resource", "change", root, index)
        db.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", row)
    with Store.open(damaged.parent) as store:
        assert any("SQLite finds it damaged" in fault.what for fault in check_library(store).faults)


def test_rows_out_of_order_do_not_keep_it_for_ever(damaged: Path) -> None:
    """Two cells of a page swapped: reading on behind the last row would come round
    again and again.
    """
    with closing(sqlite3.connect(damaged)) as db:
        page = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'operation'").fetchone()[
            0
        ]
    content = bytearray(damaged.read_bytes())
    start = (page - 1) * int.from_bytes(content[16:18])
    assert content[start] == 13, "a page of rows"
    last = start + 8 + 2 * (int.from_bytes(content[start + 3 : start + 5]) - 1)
    content[last - 2 : last + 2] = content[last : last + 2] + content[last - 2 : last]
    damaged.write_bytes(content)
    assert any("out of order" in fault.what for fault in run(damaged).faults)


def test_the_check_ends_where_there_is_no_end_of_faults(damaged: Path) -> None:
    with closing(sqlite3.connect(damaged)) as db, db:
        db.executemany(
            "INSERT INTO blob VALUES (?, ?, 1, 'raw', x'00')",
            ((i, f"{i:04}" + 60 * "0") for i in range(100, 1500)),
        )
    assert len(run(damaged).faults) == 1000


def test_other_checks_can_be_added_and_their_faults_are_reported(store: Store) -> None:
    fault = Fault("it lags behind", "the index", "Run `evolvable reindex`.")

    def broken(store: Store) -> Iterator[Fault]:
        raise EvolvableError("no index")
        yield

    report = check_library(store, checks=[lambda store: [fault], broken])
    assert report.faults[0] == fault
    assert "no index" in report.faults[1].what


def test_progress_grows_to_the_end(damaged: Path) -> None:
    seen: list[tuple[int, int]] = []
    with Store.open(damaged.parent) as store:
        check_library(store, lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] > 0


@pytest.mark.process
def test_a_library_in_use_is_sound_at_every_moment(children: Children, tmp_path: Path) -> None:
    """The check sees one state, though others write all the while, and holds none of them up."""
    home, gate = tmp_path / "home", Gate(tmp_path / "gate")
    with Store.open(home, create=True) as store:
        writers = [
            children.start("acknowledge", home, gate.folder, worker) for worker in ("w1", "w2")
        ]
        gate.wait_for(*writers)
        poll(lambda: store.sequence() > 20, "the first writes")
        for _ in range(10):
            assert check_library(store).faults == ()
        assert all(writer.running() for writer in writers)


def content(store: Store) -> object:
    """Returns all that can be read of a library, but for operations that made no version: no hash
    covers those.
    """
    changes = store.changes()
    refs = {change.ref for change in changes}
    heads = {str(ref): store.head_or_none(ref) for ref in refs}
    return (
        changes,
        heads,
        store.heads(),
        [store.history(head, 100) for head in heads.values() if head],
        [
            store.files(head, number + 1)
            for head in heads.values()
            if head
            for number in range(head.latest)
        ],
    )


@pytest.mark.process
def test_a_flipped_byte_is_found_or_changes_nothing(sound: Path, damaged: Path) -> None:
    """Three bits flipped at random; SQLite's own check finds four in five."""
    rng, whole = random.Random(5), sound.read_bytes()
    with Store.open(sound.parent) as store:
        before = content(store)
    found = 0
    for _ in range(FLIPS):
        flipped = bytearray(whole)
        for at in rng.sample(range(len(whole)), 3):
            flipped[at] ^= 1 << rng.randrange(8)
        damaged.write_bytes(flipped)
        for beside in damaged.parent.glob("library.db-*"):
            beside.unlink()
        try:
            with Store.open(damaged.parent) as store:
                if check_library(store).faults:
                    found += 1
                else:
                    assert content(store) == before
        except EvolvableError:
            found += 1
    assert found > FLIPS / 3
