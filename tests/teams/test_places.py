"""Where bytes go is decided on each machine: rows of a shared PostgreSQL that name folders do
nothing.
"""

from pathlib import Path

import pytest
from postgres_place import address_home
from samples import skill

from evolvable_store.bundle.export import backup
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.bindings import Binding, WatchedFolder
from evolvable_store.store import Store
from evolvable_store.workingcopy.registry import WorkingCopies
from evolvable_teams.postgres.storage import PostgresStorage

pytestmark = pytest.mark.process

PDF = Ref.parse("pdf")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    address_home(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of skills with one skill."""
    return save(tmp_path / "skills", "pdf", "First.")


def save(folder: Path, name: str, body: str) -> Path:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "SKILL.md").write_text(
        f"---\nname: {name}\ndescription: Works with {name}.\n---\n{body}\n"
    )
    return folder


def plant(store: Store, path: Path, directory: str = "evil", number: int = 77) -> None:
    """Write rows as the database's owner can, who lets row-level security refuse nothing."""
    assert isinstance(store.backend, PostgresStorage)
    with store.backend.writing() as db:
        db.execute(
            "INSERT INTO folder (id, scope, kind, path) VALUES (?, 'user', 'skill', ?)",
            (number, str(path)),
        )
        row = (number, directory, store.head(PDF).id)
        db.execute(
            "INSERT INTO binding (folder, directory, resource, version, signature) "
            "VALUES (?, ?, ?, 1, '')",
            row,
        )


def stored_texts(store: Store) -> str:
    """All rows of all tables of the database, as text."""
    assert isinstance(store.backend, PostgresStorage)
    with store.backend.reading() as db:
        names = db.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'evolvable' AND rowsecurity"
        ).fetchall()
        return "\n".join(str(db.execute(f"SELECT * FROM {name}").fetchall()) for (name,) in names)


def test_planted_rows_are_neither_written_to_nor_read_from(
    home: Path, folder: Path, tmp_path: Path
) -> None:
    victim = save(tmp_path / "victim", "secret", "PRIVATE")
    with Store.open(home, create=True) as store:
        copies = WorkingCopies(store)
        copies.add(folder)
        plant(store, victim)
        copies.sync()
        assert [one.path for one in copies.folders()] == [folder]
        assert [head.name for head in store.heads()] == ["pdf"]
        assert [one.name for one in victim.iterdir()] == ["secret"]
        waiting = store.backend.waiting_places()
        assert [one.path for one in waiting.folders] == [victim]
        assert str(victim) in str(waiting)


def test_the_database_holds_no_path_of_a_watched_folder(home: Path, folder: Path) -> None:
    with Store.open(home, create=True) as store:
        WorkingCopies(store).add(folder)
        texts = stored_texts(store)
        assert "pdf" in texts and str(folder) not in texts
        tables = ("folder", "binding", "listing")
        assert isinstance(store.backend, PostgresStorage)
        with store.backend.reading() as db:
            assert [
                db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables
            ] == [0, 0, 0]
        with store.backend.places.reading() as db:
            assert [row[0] for row in db.execute("SELECT path FROM folder")] == [str(folder)]


@pytest.mark.parametrize("directory", ["../victim/secret", "/etc", "a/../../victim", ".", ""])
def test_a_planted_binding_that_leads_out_of_its_folder_is_never_taken(
    home: Path, folder: Path, directory: str
) -> None:
    with Store.open(home, create=True) as store:
        WorkingCopies(store).add(folder)
        plant(store, folder, directory)
        found = store.backend.waiting_places()
        assert found.folders and not found.bindings
        store.backend.settle_places(found)
        assert not store.backend.waiting_places()


def test_only_the_rows_that_were_shown_are_deleted(
    home: Path, folder: Path, tmp_path: Path
) -> None:
    with Store.open(home, create=True) as store:
        WorkingCopies(store).add(folder)
        plant(store, tmp_path / "one", number=1)
        shown = store.backend.waiting_places()
        plant(store, tmp_path / "two", number=2)
        store.backend.settle_places(shown)
        assert [one.path for one in store.backend.waiting_places().folders] == [tmp_path / "two"]


@pytest.mark.parametrize("number", [3, 2**62])
def test_a_folder_that_is_taken_keeps_its_bindings_and_its_number_where_that_is_free(
    home: Path, folder: Path, tmp_path: Path, number: int
) -> None:
    other = tmp_path / "other"
    with Store.open(home, create=True) as store:
        WorkingCopies(store).add(folder)
        bindings = store.backend.bindings
        taken = WatchedFolder(number, "user", Kind.SKILL, other)
        for _ in range(2):  # a power cut may end the first attempt before the rows are deleted
            bindings.take(taken, [Binding(number, "pdf", store.head(PDF).id, 1, "")])
        there = bindings.folder(other)
        assert (there.id == number) is (number == 3)
        assert list(bindings.of_folder(there)) == ["pdf"]
        later = bindings.add_folder(tmp_path / "third", "user", Kind.SKILL)
        assert later.id not in (there.id, number)


def lose_bindings(store: Store, before: list[Binding]) -> None:
    """Put the bindings back to what they were, as when the power fails between the two commits."""
    store.backend.bindings.bind(before)


def bound(store: Store) -> list[Binding]:
    bindings = store.backend.bindings
    return [one for folder in bindings.folders() for one in bindings.of_folder(folder).values()]


def test_a_binding_that_lags_behind_a_saved_file_is_settled_without_a_version(
    home: Path, folder: Path
) -> None:
    with Store.open(home, create=True) as store:
        copies = WorkingCopies(store)
        copies.add(folder)
        before = bound(store)
        save(folder, "pdf", "Second.")
        copies.sync()
        lose_bindings(store, before)
        copies.sync()
        assert store.head(PDF).latest == 2
        assert [one.version for one in bound(store)] == [2]


def test_a_binding_that_was_lost_with_its_first_version_is_made_by_the_next_sync(
    home: Path, folder: Path
) -> None:
    with Store.open(home, create=True) as store:
        copies = WorkingCopies(store)
        copies.add(folder)
        store.backend.bindings.unbind(bound(store)[0])
        copies.sync()
        assert [(head.name, head.latest) for head in store.heads()] == [("pdf", 1)]
        assert [one.version for one in bound(store)] == [1]


def test_a_binding_that_lags_behind_a_removal_does_not_bring_the_files_back(
    home: Path, folder: Path
) -> None:
    with Store.open(home, create=True) as store:
        copies = WorkingCopies(store)
        copies.add(folder)
        before = bound(store)
        (folder / "pdf/SKILL.md").unlink()
        (folder / "pdf").rmdir()
        copies.sync()
        lose_bindings(store, before)
        copies.sync()
        assert not store.heads() and not (folder / "pdf").exists()


def test_a_version_of_an_agent_reaches_the_folder_when_its_binding_lags(
    home: Path, folder: Path
) -> None:
    with Store.open(home, create=True) as store:
        copies = WorkingCopies(store)
        copies.add(folder)
        with store.transaction(Actor.AGENT, "better") as tx:
            tx.put(PDF, skill("better"))
        copies.sync()
        assert "better" in (folder / "pdf/SKILL.md").read_text()


def test_a_write_that_fails_changes_neither_the_library_nor_the_bindings(
    home: Path, folder: Path
) -> None:
    with Store.open(home, create=True) as store:
        WorkingCopies(store).add(folder)
        before = bound(store)

        def write_and_fail() -> None:
            with store.backend.write() as writer:
                writer.bind(before[0].folder, "pdf", before[0].resource, 9, "", "")
                raise RuntimeError("the power fails")

        with pytest.raises(RuntimeError, match="the power fails"):
            write_and_fail()
        assert bound(store) == before


def test_two_servers_of_one_home_see_each_others_folders(
    home: Path, folder: Path, tmp_path: Path
) -> None:
    with (
        Store.open(home, create=True) as one,
        Store.open(home) as two,
        two.backend.watching() as changes,
    ):
        before = changes()
        WorkingCopies(one).bindings.add_folder(folder, "user", Kind.SKILL)
        assert [each.path for each in two.backend.bindings.folders()] == [folder]
        assert changes() != before
        two.backend.bindings.add_folder(tmp_path / "more", "user", Kind.SKILL)
        assert len(one.backend.bindings.folders()) == 2


def test_a_backup_carries_the_watched_folders_which_do_nothing_there(
    folder: Path, tmp_path: Path
) -> None:
    with Store.open(tmp_path / "mine", create=True) as store:
        WorkingCopies(store).add(folder)
        for replace in (False, True):
            backup(store, tmp_path / "backup", replace=replace)
    with Store.open(tmp_path / "backup") as copy:
        assert copy.backend.bindings.folders() == []
        waiting = copy.backend.waiting_places()
        assert [one.path for one in waiting.folders] == [folder]
        assert [one.directory for one in waiting.bindings] == ["pdf"]
        copy.backend.settle_places(waiting)
        assert not copy.backend.waiting_places()
