"""What no version holds of a directory that was taken away: it is moved to the home and can be put
back.
"""

import json
import os
import time
from pathlib import Path

import pytest

from evolvable_store.errors import NotFound
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_store.workingcopy import trash as module
from evolvable_store.workingcopy.registry import WorkingCopies
from evolvable_store.workingcopy.staging_dir import open_root
from evolvable_store.workingcopy.trash import Trash

TEXT = "---\nname: pdf\ndescription: Works with PDF files.\n---\n\nCount the pages.\n"
PDF = Ref.parse("skill:pdf")


class Desk:
    def __init__(self, place: Path) -> None:
        self.folder, self.home = place / "skills", place / "home"
        for path, text in {
            "SKILL.md": TEXT,
            ".venv/bin/python": "elf",
            "node_modules/a.js": "1",
            ".DS_Store": "x",
        }.items():
            (self.folder / "pdf" / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / "pdf" / path).write_text(text)
        self.store = Store.open(self.home, create=True)
        self.copies = WorkingCopies(self.store)
        self.copies.add(self.folder)
        self.trash = Trash(self.home)

    def remove(self) -> None:
        with self.store.transaction(Actor.AGENT, "not needed") as tx:
            tx.remove(PDF)
        self.copies.checkout([PDF])

    def restore(self) -> None:
        with self.store.transaction(Actor.HUMAN, "needed") as tx:
            tx.restore(PDF, 1)
        self.copies.checkout([PDF])

    def files(self) -> set[str]:
        return {
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if path.is_file()
        }


ALL = {"pdf/SKILL.md", "pdf/.venv/bin/python", "pdf/node_modules/a.js", "pdf/.DS_Store"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + seconds)


def test_a_removal_that_is_taken_back_at_once_brings_ignored_files_back(desk: Desk) -> None:
    desk.remove()
    assert not (desk.folder / "pdf").exists()
    desk.restore()
    assert desk.files() == ALL and desk.trash.entries() == []


def test_a_removal_that_is_taken_back_days_later_brings_ignored_files_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.remove()
    later(monkeypatch, 2 * 86_400)
    desk.copies.sync()
    (entry,) = desk.trash.entries()
    assert (entry.folder, entry.directory) == (str(desk.folder), "pdf") and entry.files == 4
    desk.restore()
    assert desk.files() == ALL and desk.trash.entries() == []


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links and the name")
def test_a_removal_that_is_taken_back_beside_what_no_version_keeps_reports_nothing_later(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (desk.folder / "pdf/link").symlink_to("elsewhere")
    (desk.folder / 'pdf/quote"s.txt').write_text("mine")
    desk.remove()
    desk.restore()
    later(monkeypatch, 120)
    for _ in range(2):
        (sync,) = desk.copies.sync()
        assert sync.refused == []
    assert desk.files() == {*ALL, 'pdf/quote"s.txt'} and (desk.folder / "pdf/link").is_symlink()
    assert list((desk.folder.parent / ".skills.evolvable").glob("*.old")) == []


def test_a_file_that_has_its_place_taken_stays_in_the_trash(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.remove()
    later(monkeypatch, 120)
    desk.copies.sync()
    (entry,) = desk.trash.entries()
    (desk.folder / "pdf").mkdir()
    (desk.folder / "pdf/.DS_Store").write_text("newer")
    with open_root(desk.folder) as root:
        assert desk.trash.put_back(entry.id, root / "pdf") == [".DS_Store"]
    assert desk.files() == ALL and (desk.folder / "pdf/.DS_Store").read_text() == "newer"
    assert desk.trash.entries() == [entry]


def test_nothing_is_put_back_through_a_link(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.remove()
    later(monkeypatch, 120)
    desk.copies.sync()
    (entry,) = desk.trash.entries()
    (tmp_path / "elsewhere").mkdir()
    (desk.folder / "pdf").mkdir()
    (desk.folder / "pdf/.venv").symlink_to(tmp_path / "elsewhere")
    with open_root(desk.folder) as root:
        assert ".venv" in desk.trash.put_back(entry.id, root / "pdf")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_retention_and_the_limit_delete_the_oldest(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 2_500)
    for day in range(5):
        old = tmp_path / f"old{day}"
        old.mkdir()
        (old / ".DS_Store").write_bytes(bytes(1_000))
        with open_root(tmp_path) as top:
            desk.trash.put(top / old.name, desk.folder, f"skill-{day}", 86_400.0 * day)
    assert [entry.directory for entry in desk.trash.entries()] == ["skill-4", "skill-3"]
    for day in range(5, 34):
        desk.trash.expire(86_400.0 * day)
    assert [entry.directory for entry in desk.trash.entries()] == ["skill-4"]


DAY, TODAY = 86_400.0, 20_000 * 86_400.0


@pytest.mark.parametrize(
    "jumps", [[31], [-31], [31, 0, 400, 0, -400], [10_000, 10_000.5, 10_000.9]]
)
def test_a_clock_that_jumps_empties_no_trash(desk: Desk, jumps: list[float]) -> None:
    desk.remove()
    with open_root(desk.folder) as root:
        (desk.folder / "more").mkdir()
        (desk.folder / "more" / ".DS_Store").write_bytes(b"x")
        desk.trash.put(root / "more", desk.folder, "more", TODAY)
    kept = {entry.directory for entry in desk.trash.entries()}
    assert "more" in kept
    for days in jumps:
        desk.trash.expire(TODAY + days * DAY)
    assert {entry.directory for entry in desk.trash.entries()} == kept


def test_an_entry_goes_after_thirty_days_of_use_whatever_the_clock_did_between(desk: Desk) -> None:
    desk.trash.expire(TODAY)
    (desk.folder / "more").mkdir()
    (desk.folder / "more" / ".DS_Store").write_bytes(b"x")
    with open_root(desk.folder) as root:
        desk.trash.put(root / "more", desk.folder, "more", TODAY)
    for day in range(1, 30):
        desk.trash.expire(TODAY + day * DAY)
    desk.trash.expire(TODAY - 300 * DAY)
    assert [entry.directory for entry in desk.trash.entries()] == ["more"]
    desk.trash.expire(TODAY - 299 * DAY)
    assert desk.trash.entries() == []


def test_an_entry_of_an_earlier_program_is_kept_thirty_days_of_use_from_now_on(desk: Desk) -> None:
    (desk.folder / "more").mkdir()
    (desk.folder / "more" / ".DS_Store").write_bytes(b"x")
    for day in range(100):
        desk.trash.expire(TODAY + day * DAY)
    with open_root(desk.folder) as root:
        entry = desk.trash.put(root / "more", desk.folder, "more", TODAY)
    assert entry is not None
    (desk.home / "trash" / entry.id / "day").unlink()
    for day in range(101, 130):
        desk.trash.expire(TODAY + day * DAY)
    assert [one.directory for one in desk.trash.entries()] == ["more"]
    for day in range(130, 132):
        desk.trash.expire(TODAY + day * DAY)
    assert desk.trash.entries() == []


@pytest.mark.parametrize("name", ["../../skills", "x", "20260101T000000-0000000g", ""])
def test_what_is_no_entry_is_refused(desk: Desk, name: str) -> None:
    with pytest.raises(NotFound), open_root(desk.folder) as root:
        desk.trash.put_back(name, root / "pdf")


@pytest.mark.parametrize("fields", [[], {"id": 1}, {"folder": "/", "directory": "../x"}, "x"])
def test_an_entry_that_cannot_be_read_is_left_out(desk: Desk, fields: object) -> None:
    place = desk.home / "trash" / "20260101T000000-00000000"
    (place / "content").mkdir(parents=True)
    (place / "entry.json").write_text(json.dumps(fields))
    assert desk.trash.entries() == []
