"""An update that writes its directory with the transaction that makes the version, and what
interrupts it.
"""

import contextlib
import errno
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolvable_store.errors import EvolvableError
from evolvable_store.objects import File, Files
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.bindings import Binding, PendingCheckout
from evolvable_store.store import Store
from evolvable_store.workingcopy import (
    atomic_dir,
    pending_checkout,
    signatures,
    staged_checkout,
    sync,
)
from evolvable_store.workingcopy.registry import WorkingCopies

PDF = Ref(Kind.SKILL, "pdf", "user")

pytestmark = pytest.mark.skipif(
    not pending_checkout.boot_id(), reason="this system does not say when it was started"
)


class Killed(BaseException):
    """The end of the process."""


def text(*lines: str) -> str:
    return "---\nname: pdf\ndescription: Works with pdf.\n---\n\n" + "\n\n".join(lines) + "\n"


FIRST = text("one", "two", "three")


class Desk:
    """A library and a watched folder with one skill, whose files are older than two seconds.

    way: what an update changes: "one file", which alone is put in its place, or "the directory", as
    two files change.
    """

    def __init__(self, place: Path, way: str) -> None:
        self.way = way
        self.home, self.folder, self.main = (
            place / "home",
            place / "skills",
            place / "skills/pdf/SKILL.md",
        )
        self.main.parent.mkdir(parents=True)
        self.main.write_text(FIRST)
        self.store = Store.open(self.home, create=True)
        self.copies = WorkingCopies(self.store)
        self.copies.add(self.folder)
        # As a server writes it: the signature of such a directory is believed at once.
        with self.store.transaction(Actor.AGENT, "a script") as tx:
            tx.put(PDF, self.files(FIRST))
        self.copies.checkout([PDF])

    def files(self, content: str) -> Files:
        number = len(content) if self.way == "the directory" else 1
        return {
            "SKILL.md": File(content.encode()),
            "scripts/run.py": File(f"print({number})\n".encode()),
        }

    def update(self, content: str) -> bool:
        """Update the skill as the verb does; return whether its directory was written with the
        transaction.
        """
        return self.put(self.files(content))

    def add(self, path: str, content: str) -> bool:
        """Add a file to the skill, or change one, and nothing else."""
        return self.put(
            dict(self.store.files(self.store.head(PDF))) | {path: File(content.encode())}
        )

    def put(self, files: Files) -> bool:
        head = self.store.head(PDF)
        base = self.store.manifest(head)
        with self.copies.stage_checkout(head, base, files) as staged:
            with self.store.transaction(Actor.AGENT, "an update") as tx:
                tx.put(PDF, files, expected_version=head.version, base=base)
                staged.bind(tx)
            self.remarks = staged.exchange()
        return staged.complete

    def again(self) -> WorkingCopies:
        """Return the folders as the next process finds them."""
        self.copies = WorkingCopies(self.store)
        return self.copies

    def binding(self) -> Binding:
        (binding,) = self.copies.bindings.of_resources([self.store.head(PDF).id])
        return binding

    def pending(self) -> PendingCheckout:
        pending = PendingCheckout.parse(self.binding().signature)
        assert pending is not None
        return pending

    def sync(self) -> list[str]:
        """Sync as the next process; return what became a version, by how."""
        (report,) = self.again().sync()
        assert (report.refused, report.conflicts) == ([], [])
        return [taken.how for taken in report.taken]

    def version(self) -> int | None:
        return self.store.head(PDF).version

    def on_disk(self) -> Files:
        top = self.main.parent
        found = (path for path in top.rglob("*") if path.is_file())
        return {path.relative_to(top).as_posix(): File(path.read_bytes()) for path in found}

    def staged_entries(self) -> list[str]:
        """Return the ends of the names in the staging folder."""
        place = self.folder.parent / ".skills.evolvable"
        return sorted(path.suffix for path in place.iterdir() if path.name != ".gitignore")

    def main_text(self, version: int | None = None) -> str:
        return self.store.file(self.store.head(PDF), "SKILL.md", version).data.decode()


@pytest.fixture(params=["one file", "the directory"])
def desk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Desk]:
    desk = Desk(tmp_path, request.param)
    yield desk
    desk.store.close()


@pytest.fixture
def killed_before_exchange(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A library whose newest version was committed by a process that ended before it exchanged the
    directories.
    """

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as broken, pytest.raises(Killed):
        broken.setattr(staged_checkout, "put_in_place", die)
        broken.setattr(
            staged_checkout.StagedCheckout, "close", lambda checkout: checkout._open.close()
        )
        desk.update(text("one", "two", "three by the agent"))
    assert desk.main.read_text() == FIRST
    return desk


def restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system have been started anew since the last update."""
    monkeypatch.setattr(pending_checkout, "boot_id", lambda: "0" * 36)


def test_an_update_writes_its_directory_in_one_commit_and_is_no_edit(desk: Desk) -> None:
    assert desk.update(text("one", "two"))

    assert desk.main.read_text() == text("one", "two")
    assert desk.pending().version == 3
    assert desk.sync() == []
    assert desk.version() == 3
    assert not desk.binding().is_pending, "the sync has waited for the disk"


def test_a_commit_whose_process_was_killed_before_the_exchange_is_written_by_the_next_sync(
    killed_before_exchange: Desk,
) -> None:
    desk = killed_before_exchange

    assert desk.sync() == []
    assert desk.version() == 3
    assert desk.main.read_text() == text("one", "two", "three by the agent")


def test_the_owner_writes_what_a_killed_process_did_not_exchange(
    killed_before_exchange: Desk,
) -> None:
    (report,) = killed_before_exchange.again().sync_behind([PDF])

    assert report.written == ["pdf"]
    assert killed_before_exchange.again().sync_behind([PDF]) == []


def test_an_edit_of_what_a_killed_process_did_not_exchange_is_merged(
    killed_before_exchange: Desk,
) -> None:
    desk = killed_before_exchange
    desk.main.write_text(text("one by the person", "two", "three"))

    assert desk.sync() == ["merged"]
    assert desk.main.read_text() == text("one by the person", "two", "three by the agent")


def test_an_edit_after_an_update_is_an_edit_of_its_version(desk: Desk) -> None:
    """What the person takes out of the update does not come back by a merge with the version before
    it.
    """
    desk.update(text("one", "two", "three", "four by the agent"))
    desk.main.write_text(text("one", "two by the person", "three"))

    assert desk.sync() == ["edited"]
    assert desk.main_text() == text("one", "two by the person", "three")


def test_a_directory_that_a_person_put_back_to_an_older_version_is_an_edit(desk: Desk) -> None:
    desk.update(text("one"))
    desk.update(text("two"))
    shutil.rmtree(desk.main.parent)
    for path, file in desk.files(FIRST).items():
        (desk.folder / "pdf" / path).parent.mkdir(parents=True, exist_ok=True)
        (desk.folder / "pdf" / path).write_bytes(file.data)

    assert desk.sync() == ["edited"]
    assert desk.main_text() == FIRST


def test_a_save_in_the_moment_of_the_exchange_is_merged(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = atomic_dir.put_in_place

    def saved_meanwhile(*arguments: Any) -> None:
        desk.main.write_text(text("one by the person", "two", "three"))
        real(*arguments)

    monkeypatch.setattr(staged_checkout, "put_in_place", saved_meanwhile)
    desk.update(text("one", "two", "three by the agent"))

    assert desk.main.read_text() == text("one by the person", "two", "three by the agent")
    assert desk.version() == 4


def test_a_save_just_before_the_lock_leaves_the_directory_to_a_sync(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = staged_checkout.rename

    def saved_meanwhile(*arguments: Any) -> None:
        desk.main.write_text(text("one by the person", "two", "three"))
        real(*arguments)

    monkeypatch.setattr(staged_checkout, "rename", saved_meanwhile)

    assert not desk.update(text("one", "two", "three by the agent"))
    assert desk.main.read_text() == text("one by the person", "two", "three")
    assert desk.sync() == ["merged"]
    assert desk.main.read_text() == text("one by the person", "two", "three by the agent")
    assert desk.copies.unknown_entries() == []


def test_files_that_a_power_failure_cut_are_written_again_and_are_no_edit(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.update(text("one", "two"))
    # The times of a file that is cut by hand change, so what is recorded is made to fit: those that
    # a failure leaves.
    os.truncate(desk.main, 0)
    pending = desk.pending()
    entries = signatures.stat_entries(desk.main.parent)
    assert entries is not None
    cut = signatures.sign_entries(
        entries, sizes=False, undated=pending.part.path if pending.part else ""
    )
    left = replace(pending, new=replace(pending.new, sizeless=cut.digest))
    desk.copies.bindings.bind([replace(desk.binding(), signature=str(left))])
    restart(monkeypatch)

    assert desk.sync() == []
    assert desk.version() == 3
    assert desk.main.read_text() == text("one", "two")


def test_an_edit_that_shortens_a_file_before_a_power_failure_is_an_edit(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.update(text("one", "two"))
    desk.main.write_text(text("one"))
    restart(monkeypatch)

    assert desk.sync() == ["edited"]
    assert desk.main_text() == text("one")


def test_an_older_directory_that_a_power_failure_brought_back_is_written_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(desk.main.parent, desk.folder.parent / "before")
    desk.update(text("one"))
    desk.update(text("two"))
    shutil.rmtree(desk.main.parent)
    (desk.folder.parent / "before").rename(desk.main.parent)
    restart(monkeypatch)

    assert desk.sync() == []
    assert desk.version() == 4
    assert desk.main.read_text() == text("two")


def test_a_link_that_takes_the_place_of_the_directory_is_not_written_through(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who may write into the folder gains nothing by the moment between commit and
    exchange.
    """
    outside = tmp_path / "private"
    outside.mkdir()
    (outside / "SKILL.md").write_text("private")
    real = atomic_dir.put_in_place

    def planted(*arguments: Any) -> None:
        desk.main.parent.rename(tmp_path / "away")
        desk.main.parent.symlink_to(outside)
        real(*arguments)

    monkeypatch.setattr(staged_checkout, "put_in_place", planted)
    desk.update(text("one"))

    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [
        ("SKILL.md", "private")
    ]


@pytest.mark.parametrize(
    "signature", ["pending", "pending x 1 a b 2 c d e f", "a b c", "pending " + "9" * 4000]
)
def test_what_a_foreign_hand_wrote_into_the_record_is_no_signature(
    desk: Desk, signature: str
) -> None:
    with sqlite3.connect(desk.home / "library.db") as db:
        db.execute("UPDATE binding SET signature = ?", (signature,))
    db.close()

    assert desk.sync() == []
    assert desk.update(text("one")) in (True, False)
    assert desk.main_text() == text("one")


def test_servers_of_older_versions_find_the_version_that_the_directory_held_before(
    desk: Desk,
) -> None:
    """They compare contents then, as after a crash of their own."""
    desk.update(text("one"))
    with sqlite3.connect(desk.home / "library.db") as db:
        version, signature = db.execute("SELECT version, signature FROM binding").fetchone()
    db.close()

    seen = signatures.signature(desk.main.parent)
    assert seen is not None
    assert version == 2
    assert signature != seen.digest


PARTS = {
    "a file": "SKILL.md",
    "a new file": "scripts/more.py",
    "a new folder": "notes/deep/more.md",
}


@pytest.mark.parametrize("path", PARTS.values(), ids=PARTS)
def test_an_update_of_one_file_leaves_the_rest_of_the_directory_alone(
    desk: Desk, path: str
) -> None:
    """Who watches the directory, stands in it or has another file of it open goes on."""
    other, before = desk.main.parent / "scripts/run.py", desk.main.parent.stat().st_ino
    known = other.stat()

    assert desk.add(path, text("first"))
    assert desk.add(path, text("again"))

    assert (desk.main.parent / path).read_text() == text("again")
    assert desk.main.parent.stat().st_ino == before
    assert (other.stat().st_ino, other.stat().st_ctime_ns) == (known.st_ino, known.st_ctime_ns)
    assert desk.sync() == []
    assert not desk.binding().is_pending


@pytest.mark.parametrize("path", ["scripts/more.py", "notes/deep/more.md"])
def test_nothing_is_left_beside_the_folder_of_a_file_that_is_new(desk: Desk, path: str) -> None:
    desk.add(path, "new")

    # What the checkout of the fixture replaced waits for a minute.
    assert desk.staged_entries() == [".old"]
    assert len(list((desk.home / "recovery/folder-1").iterdir())) == 1


@pytest.mark.parametrize("path", PARTS.values(), ids=PARTS)
def test_an_update_that_a_killed_process_did_not_put_in_place_is_written_by_the_next_sync(
    desk: Desk, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_while_adding(desk, path, monkeypatch)

    assert desk.sync() == []
    assert desk.on_disk() == desk.store.files(desk.store.head(PDF))
    assert desk.version() == 3


@pytest.mark.parametrize("path", PARTS.values(), ids=PARTS)
def test_an_edit_beside_what_a_killed_process_did_not_put_in_place_is_merged_however_late(
    desk: Desk, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was built tells which version the edit was made of, so no sweep takes it away before it
    is known.
    """
    killed_while_adding(desk, path, monkeypatch)
    (desk.main.parent / "scripts/run.py").write_text("print('the person')\n")
    monkeypatch.setattr(sync, "KEEP_SECONDS", -1.0)
    desk.copies.copy(desk.copies.folders()[0]).sync([])

    assert desk.sync() == ["merged"]
    assert desk.on_disk() == desk.store.files(desk.store.head(PDF))
    assert desk.main_text(4) == (text("new") if path == "SKILL.md" else FIRST)
    assert (desk.main.parent / path).read_text() == text("new")
    assert (desk.main.parent / "scripts/run.py").read_text() == "print('the person')\n"
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + 3600)
    assert [desk.sync(), desk.sync()] == [[], []]
    assert (desk.staged_entries(), desk.copies.unknown_entries()) == ([], [])


def killed_while_adding(desk: Desk, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as broken, pytest.raises(Killed):
        broken.setattr(staged_checkout, "put_in_place", die)
        broken.setattr(
            staged_checkout.StagedCheckout, "close", lambda checkout: checkout._open.close()
        )
        desk.add(path, text("new"))
    assert desk.version() == 3
    assert path == "SKILL.md" or not (desk.main.parent / path).exists()


@pytest.mark.parametrize("path", ["scripts/more.py", "notes/deep/more.md"])
def test_a_new_file_that_the_person_deletes_at_once_is_deleted(desk: Desk, path: str) -> None:
    """The directory looks as before the update then."""
    desk.add(path, "new")
    (desk.main.parent / path).unlink()

    assert desk.sync() == ["edited"]
    assert path not in desk.store.files(desk.store.head(PDF))


def test_a_save_by_an_editor_that_renames_is_an_edit_of_the_update(
    desk: Desk, tmp_path: Path
) -> None:
    desk.update(text("one", "two", "three", "four by the agent"))
    (tmp_path / "saved").write_text(text("one", "two by the person", "three"))
    (tmp_path / "saved").rename(desk.main)

    assert desk.sync() == ["edited"]
    assert desk.main_text() == text("one", "two by the person", "three")


@pytest.mark.parametrize("path", PARTS.values(), ids=PARTS)
def test_a_write_that_sets_the_times_back_is_seen(desk: Desk, path: str) -> None:
    """An agent with a shell could bring in so what it may not write."""
    desk.add(path, text("good"))
    file = desk.main.parent / path
    before = file.stat()
    file.write_text(text("evil"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert desk.sync() == ["edited"]


def test_a_late_write_to_a_file_that_was_replaced_is_merged(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk.main.open("r+") as editor:
        desk.update(text("one", "two", "three by the agent"))
        editor.write(text("ONE by the person", "two", "three"))
    monkeypatch.setattr(sync, "KEEP_SECONDS", -1.0)

    assert desk.sync() == ["merged"]
    assert desk.main.read_text() == text("ONE by the person", "two", "three by the agent")
    desk.sync()
    assert desk.staged_entries() == []


def test_a_file_that_appears_where_an_update_puts_one_is_merged(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, real = desk.main.parent / "scripts/more.py", atomic_dir.put_in_place

    def saved_meanwhile(*arguments: Any) -> None:
        mine.write_text("the person's\n")
        real(*arguments)

    monkeypatch.setattr(staged_checkout, "put_in_place", saved_meanwhile)
    desk.add("scripts/more.py", "the agent's\n")
    texts = [
        desk.store.file(desk.store.head(PDF), "scripts/more.py", number).data for number in (3, 4)
    ]

    assert texts == [b"the agent's\n", b"the person's\n"]
    assert mine.read_text() == "the person's\n"


def test_a_folder_that_appears_where_an_update_puts_one_is_merged(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, real = desk.main.parent / "notes", atomic_dir.put_in_place

    def saved_meanwhile(*arguments: Any) -> None:
        mine.mkdir()
        (mine / "mine.md").write_text("the person's\n")
        (mine / ".cache").write_text("of no version\n")
        real(*arguments)

    monkeypatch.setattr(staged_checkout, "put_in_place", saved_meanwhile)
    desk.add("notes/deep/more.md", "the agent's\n")

    there = {
        path.relative_to(mine).as_posix(): path.read_text()
        for path in mine.rglob("*")
        if path.is_file()
    }
    assert there == {
        "deep/more.md": "the agent's\n",
        "mine.md": "the person's\n",
        ".cache": "of no version\n",
    }
    assert {"notes/deep/more.md", "notes/mine.md"} <= desk.store.files(desk.store.head(PDF)).keys()


def test_where_two_files_cannot_change_places_the_directory_is_left_to_a_sync_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.EINVAL, "no such exchange")

    monkeypatch.setattr(atomic_dir, "exchange", unsupported)

    complete = [desk.add("SKILL.md", text("one")), desk.sync(), desk.add("SKILL.md", text("two"))]
    desk.sync()

    assert complete[1] == []
    assert desk.version() == 4
    assert desk.on_disk() == desk.store.files(desk.store.head(PDF))


@pytest.mark.parametrize("path", ["scripts", "scripts/run.py/below", "note"])
def test_what_the_person_keeps_where_a_new_file_would_lie_is_not_replaced(
    desk: Desk, path: str
) -> None:
    (desk.main.parent / "note").mkdir()
    (desk.main.parent / "note/.cache").write_text("no version has it")
    os.utime(desk.main.parent / "note/.cache", (1, 1))

    desk.copies.sync()
    with contextlib.suppress(EvolvableError):
        desk.add(path, "new")
    desk.sync()

    assert (desk.main.parent / "note/.cache").read_text() == "no version has it"
    assert (desk.main.parent / "scripts/run.py").read_bytes() == desk.files(FIRST)[
        "scripts/run.py"
    ].data


NAMES = st.sampled_from(["a", "A.md", "b.md", "b", "b.c", "-", "z.md", "\u00e9", "a-b", "c.d.md"])


@given(
    paths=st.sets(st.lists(NAMES, min_size=1, max_size=4).map("/".join), min_size=1, max_size=12),
    data=st.data(),
)
def test_the_entries_of_a_directory_with_a_new_file_are_those_that_are_read(
    paths: set[str], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as top:
        made = [
            path
            for path in sorted(paths)
            if not any(other.startswith(f"{path}/") for other in paths)
        ]
        for path in made:
            (Path(top) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(top) / path).write_text(path)
        entries = signatures.stat_entries(Path(top)) or []
        some = data.draw(st.lists(st.sampled_from(entries), unique_by=lambda entry: entry[0]))
        rest = [entry for entry in entries if entry not in some]

        assert signatures.with_entries(rest, some) == entries
        assert signatures.with_entries(entries, some) == entries


STEPS = (
    "open",
    "os.mkdir",
    "os.rename",
    "os.chmod",
    "os.utime",
    "os.remove",
    "os.rmdir",
    "os.scandir",
    "os.listdir",
)
"""Audit events of the interpreter before each of which the process may end."""


def ended_at(desk: Desk, content: str, step: int) -> bool:
    """Update in a process of its own that ends before this step of the file system; return whether
    it got that far.
    """
    (folder,) = desk.copies.folders()
    desk.copies.copy(folder).staging()  # known, so that each process takes the same steps
    child = os.fork()
    if child == 0:
        seen = 0

        def end(event: str, _: Any) -> None:
            nonlocal seen
            seen += event in STEPS
            if seen > step:
                os._exit(9)

        try:
            sys.addaudithook(end)
            desk.update(content)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")
@pytest.mark.parametrize("stride", [2, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_process_that_ends_at_any_step_leaves_the_old_version_or_the_new_one(
    desk: Desk, stride: int
) -> None:
    outcomes = {"old": 0, "committed": 0}
    step, number = 0, 0
    while True:
        before, number = desk.version() or 0, number + 1
        content = text("one", f"update {number}")
        ended = ended_at(desk, content, step)
        there = desk.on_disk()
        versions = [
            desk.store.files(desk.store.head(PDF), n)
            for n in range(before, (desk.version() or 0) + 1)
        ]
        assert there in versions, f"step {step}: neither version lies in the folder"

        assert desk.sync() == [], f"step {step}: what a killed process left was taken for an edit"
        head = desk.store.head(PDF)
        assert head.version in (before, before + 1)
        assert desk.main.read_text() == desk.main_text(), (
            f"step {step}: the folder is behind the library"
        )
        assert (desk.main_text() == content) == (head.version == before + 1)
        outcomes["old" if head.version == before else "committed"] += 1
        if not ended:
            break
        step += stride
    assert min(outcomes.values()) > 1, "the process ended before the commit and after it"


def test_what_cannot_be_removed_hides_no_error_and_keeps_no_lock(desk: Desk) -> None:
    head, notes = desk.store.head(PDF), set((desk.home / "recovery").rglob("*.json"))
    with (
        pytest.raises(Killed),
        desk.copies.stage_checkout(head, desk.store.manifest(head), desk.files(text("spoiled"))),
    ):
        (note,) = set((desk.home / "recovery").rglob("*.json")) - notes
        note.unlink()
        (note / "in the way").mkdir(parents=True)  # a disk that turned read only does the same
        raise Killed
    shutil.rmtree(note)

    assert desk.update(text("one", "two", "three by the agent"))
    assert desk.main.read_text() == text("one", "two", "three by the agent")
