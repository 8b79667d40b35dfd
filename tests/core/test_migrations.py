"""The schema's steps: many processes at once, a kill in the middle, newer and foreign files."""

import hashlib
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from older_store import as_older
from processes import Children, Gate
from samples import skill
from soundness import assert_sound

from evolvable_store.errors import EvolvableError, LibraryCorrupt, LibraryTooNew, NoLibrary
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage import migrations
from evolvable_store.storage.observations import ClientSession
from evolvable_store.store import Store

FILE = "library.db"


def older(home: Path, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a library as a program made it that knew only so many steps; it holds one skill."""
    with (
        as_older(steps, monkeypatch),
        Store.open(home, create=True) as store,
        store.transaction(Actor.HUMAN, "start") as tx,
    ):
        tx.put(Ref.parse("pdf"), skill("kept"))


def schema(home: Path) -> tuple[int, set[str]]:
    """Returns the number of steps recorded in the file and the names of its tables, read without
    our code.
    """
    with closing(sqlite3.connect(f"{(home / FILE).as_uri()}?mode=rw", uri=True)) as db:
        tables = {
            row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        return db.execute("PRAGMA user_version").fetchone()[0], tables


def digest(home: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in home.iterdir()}


def opened_by_eight(children: Children, tmp_path: Path) -> list[dict[str, object]]:
    gate = Gate(tmp_path / "gate")
    all_eight = [children.start("open", tmp_path / "home", gate.folder) for _ in range(8)]
    gate.wait_for(*all_eight)
    gate.open()
    return [child.said() for child in all_eight]


@pytest.mark.process
def test_eight_processes_that_make_one_library_at_once_all_succeed(
    children: Children, tmp_path: Path
) -> None:
    said = opened_by_eight(children, tmp_path)
    assert said == [{"schema": migrations.LATEST, "journal": said[0]["journal"], "heads": []}] * 8
    with Store.open(tmp_path / "home") as store:
        assert_sound(store)


LAST = migrations.LATEST - 1


@pytest.mark.process
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(n, marks=() if n in (1, 9, LAST) else pytest.mark.nightly)
        for n in range(1, migrations.LATEST)
    ],
)
def test_eight_processes_that_open_an_older_library_at_once_bring_it_up_to_date(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    older(tmp_path / "home", steps, monkeypatch)
    assert schema(tmp_path / "home")[0] == steps
    said = opened_by_eight(children, tmp_path)
    assert [(one["schema"], one["heads"]) for one in said] == [
        (migrations.LATEST, ["skill:pdf"])
    ] * 8
    with Store.open(tmp_path / "home") as store:
        assert store.files(store.head(Ref.parse("pdf"))) == skill("kept")
        assert_sound(store)


def declared(home: Path) -> list[str]:
    """Returns the statements that make what is in the file, in the order of its making, and its
    steps' names.
    """
    with closing(sqlite3.connect(f"{(home / FILE).as_uri()}?mode=rw", uri=True)) as db:
        made = db.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        steps = db.execute(
            "SELECT migration_set || ' ' || name FROM _sqlite_migrations ORDER BY id"
        ).fetchall()
        return [text for (text,) in made + steps]


def whole_script(statements: list[str]) -> str:
    steps = ", ".join(f"('{name}')" for name in migrations.NAMES)
    return "\n".join(
        [
            (
                "-- What all steps make of an empty file; a new library has it at once. Written "
                "by a test, never by hand:"
            ),
            "-- EVOLVABLE_UPDATE_GOLDEN=1 python -m pytest tests/core/test_migrations.py",
            *(f"{statement};" for statement in statements if statement.startswith("CREATE ")),
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)",
            "SELECT 'evolvable', column1, strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')",
            f"FROM (VALUES {steps});",
            "",
        ]
    )


def test_an_older_library_gets_the_schema_of_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To accept a step that was added, run it with EVOLVABLE_UPDATE_GOLDEN=1 and commit
    the file.
    """
    old, new = tmp_path / "old", tmp_path / "new"
    older(old, 1, monkeypatch)
    Store.open(old).close()
    if os.environ.get("EVOLVABLE_UPDATE_GOLDEN"):
        script = Path(migrations.__file__).with_name("schema") / migrations.WHOLE
        script.write_text(whole_script(declared(old)), encoding="utf-8")
    Store.open(new, create=True).close()
    assert declared(old) == declared(new)
    assert schema(old) == schema(new)


@pytest.mark.process
def test_a_kill_while_a_new_library_is_made_leaves_an_empty_file_that_opens(
    children: Children, tmp_path: Path
) -> None:
    assert children.start("die-in-migration", tmp_path / "home").killed_itself()
    assert schema(tmp_path / "home") == (0, set())
    with Store.open(tmp_path / "home") as store:
        assert_sound(store)
    assert schema(tmp_path / "home")[0] == migrations.LATEST


@pytest.mark.process
def test_a_kill_while_an_older_library_is_brought_up_leaves_it_as_it_was(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    older(home, 1, monkeypatch)
    before = schema(home)
    assert children.start("die-in-migration", home).killed_itself()
    assert schema(home) == before
    with Store.open(home) as store:
        assert store.files(store.head(Ref.parse("pdf"))) == skill("kept")
        assert_sound(store)
    assert schema(home)[0] == migrations.LATEST


def test_a_step_that_fails_leaves_the_library_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    older(home, 1, monkeypatch)
    before = schema(home)

    def m002_working_copies(db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE half (x)")
        raise ZeroDivisionError

    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(migrations, "STEPS", (migrations.STEPS[0], m002_working_copies))
        Store.open(home)
    assert schema(home) == before


def test_a_library_of_a_newer_program_is_refused_and_not_touched(tmp_path: Path) -> None:
    home = tmp_path / "home"
    Store.open(home, create=True).close()
    with closing(sqlite3.connect(home / FILE)) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute(f"PRAGMA user_version={migrations.LATEST + 1}")
    before = digest(home)
    with pytest.raises(LibraryTooNew, match=f"schema {migrations.LATEST + 1}") as refusal:
        Store.open(home)
    assert "Update" in refusal.value.hint
    assert digest(home) == before


def test_a_program_that_is_older_than_the_file_writes_nothing_to_it_and_reads_on(
    tmp_path: Path,
) -> None:
    home, pdf = tmp_path / "home", Ref.parse("pdf")
    with Store.open(home, create=True) as store:
        with store.transaction(Actor.HUMAN, "start") as tx:
            tx.put(pdf, skill("kept"))
        with closing(sqlite3.connect(home / FILE)) as db:
            db.execute(f"PRAGMA user_version={migrations.LATEST + 1}")
            before = db.execute("SELECT count(*) FROM operation").fetchone()
        changes: list[Callable[[], object]] = [
            lambda: store.backend.observations.add_impressions(
                [], [ClientSession("s", "c", store.now())]
            ),
            lambda: store.backend.transcript_rows.claim("s", [1]),
            lambda: update(store, pdf),
        ]
        for change in changes:
            with pytest.raises(LibraryTooNew, match=f"schema {migrations.LATEST + 1}") as refusal:
                change()
            assert (
                "Restart this window" in refusal.value.hint
                and refusal.value.text.count("reading goes on") == 1
            )
        assert store.files(store.head(pdf)) == skill("kept")
    with closing(sqlite3.connect(home / FILE)) as db:
        assert db.execute("SELECT count(*) FROM operation").fetchone() == before
        db.execute(f"PRAGMA user_version={migrations.LATEST}")
    with Store.open(home) as store:
        assert_sound(store)


def update(store: Store, ref: Ref) -> None:
    with store.transaction(Actor.AGENT, "update") as tx:
        tx.put(ref, skill("newer"))


@pytest.mark.parametrize(
    "header", ["", "PRAGMA user_version=1", "PRAGMA application_id=7", "PRAGMA journal_mode=WAL"]
)
def test_a_database_of_another_program_is_refused_and_not_touched(
    tmp_path: Path, header: str
) -> None:
    """Most programs leave SQLite's application id at 0, so an id of 0 is no sign of a library."""
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.execute(header or "SELECT 1")
        db.execute("CREATE TABLE theirs (x)")
        db.commit()
    before = digest(tmp_path)
    for create in (False, True):
        with pytest.raises(LibraryCorrupt, match="another program"):
            Store.open(tmp_path, create=create)
    assert digest(tmp_path) == before


@pytest.mark.parametrize(
    "content", [b"Dear diary", b"SQLite format 3\x00" + bytes(20), b"\xff" * 5000]
)
def test_what_is_no_database_is_refused_and_not_touched(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(LibraryCorrupt, match="not a library"):
        Store.open(tmp_path, create=True)
    assert (tmp_path / FILE).read_bytes() == content


def test_an_empty_file_becomes_a_library(tmp_path: Path) -> None:
    """What a kill before the first write leaves."""
    (tmp_path / FILE).touch()
    with Store.open(tmp_path, create=True) as store:
        assert_sound(store)


def test_nothing_is_made_where_there_is_no_library(tmp_path: Path) -> None:
    with pytest.raises(NoLibrary):
        Store.open(tmp_path / "home")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [Path.touch, lambda home: (home.mkdir(), (home / FILE).mkdir())])
def test_a_home_that_cannot_be_one_is_refused(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    """A file where the folder should be, a folder where the file should be."""
    make(tmp_path / "home")
    with pytest.raises(EvolvableError) as refusal:
        Store.open(tmp_path / "home", create=True)
    assert refusal.value.hint
