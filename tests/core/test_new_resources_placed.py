"""A new resource reaches its folder also when the process that made it could not write it there."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
from mcp_place import Place, skill_text

from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage import connection
from evolvable_store.workingcopy import sync
from evolvable_store.workingcopy.folder_lock import exclusive
from evolvable_store.workingcopy.registry import WorkingCopies
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import proposal_inbox
from evolvable_tools.verbs.edit import update_resource

pytestmark = pytest.mark.process
AGENT, PERSON = Caller(Actor.AGENT), Caller(Actor.HUMAN, principal=Principal.PERSON)
NEW = Ref.parse("skill:notes")


def create(library: Library, **options: bool) -> int | None:
    files = {"SKILL.md": skill_text("notes")}
    return update_resource(
        library, AGENT, NEW, "new", files=files, create=True, **options
    ).proposal_id


def approve(library: Library) -> None:
    proposal = create(library, propose=True)
    assert proposal is not None
    proposal_inbox.approve_together(library, PERSON, [proposal], "fine")


@pytest.mark.parametrize("make", [create, approve])
def test_a_new_skill_is_written_by_the_next_sync_when_its_own_process_could_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make
) -> None:
    place = Place(tmp_path)
    monkeypatch.setattr(sync.WorkingCopy.lock, "__defaults__", (0.05,))
    with Library.open(place.home) as library:
        folder = WorkingCopies(library.store).folders()[0]
        with exclusive(place.home / "locks" / f"folder-{folder.id}.lock", 1.0, "it"):
            make(library)
        assert not (place.skills / "notes").exists()
        WorkingCopies(library.store).sync()
        assert (place.skills / "notes/SKILL.md").read_text(encoding="utf-8") == skill_text("notes")


def test_a_directory_that_lies_in_the_way_of_a_new_skill_stays_as_it_is(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.skills / "notes").mkdir()
    (place.skills / "notes/mine.txt").write_text("mine", encoding="utf-8")
    with Library.open(place.home) as library:
        create(library)
        WorkingCopies(library.store).sync()
    assert [path.name for path in (place.skills / "notes").iterdir()] == ["mine.txt"]


def test_a_change_that_was_made_is_no_error_when_the_index_cannot_be_written_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    monkeypatch.setattr(connection, "GIVE_UP_SECONDS", 0.05)
    with Library.open(place.home) as library:
        library.index.catch_up()
        (index,) = place.home.glob("index-*.db")
        with contextlib.closing(sqlite3.connect(index, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert create(library) is None
            assert library.store.head(NEW).version == 1
