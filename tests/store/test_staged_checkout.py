"""An update that writes its directory with the transaction that makes the version, and what interrupts it."""

import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evolvable_store.objects import File, Files
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.bindings import Binding, PendingCheckout
from evolvable_store.store import Store
from evolvable_store.workingcopy import atomic_dir, registry, signatures
from evolvable_store.workingcopy.registry import WorkingCopies

PDF = Ref(Kind.SKILL, "pdf", "user")

pytestmark = pytest.mark.skipif(not signatures.boot_id(), reason="this system does not say when it was started")


class Killed(BaseException):
    """The end of the process."""


def text(*lines: str) -> str:
    return "---\nname: pdf\ndescription: Works with pdf.\n---\n\n" + "\n\n".join(lines) + "\n"


FIRST = text("one", "two", "three")


class Desk:
    """A library and a watched folder with one skill, whose files are older than two seconds."""

    def __init__(self, place: Path) -> None:
        self.home, self.folder, self.main = place / "home", place / "skills", place / "skills/pdf/SKILL.md"
        self.main.parent.mkdir(parents=True)
        self.main.write_text(FIRST)
        self.store = Store.open(self.home, create=True)
        self.copies = WorkingCopies(self.store)
        self.copies.add(self.folder)
        # As a server writes it: the signature of such a directory is believed at once.
        with self.store.transaction(Actor.AGENT, "a script") as tx:
            tx.put(PDF, files(FIRST))
        self.copies.checkout([PDF])

    def update(self, content: str) -> bool:
        """Update the skill as the verb does; return whether its directory was written with the transaction."""
        head = self.store.head(PDF)
        base = self.store.manifest(head)
        with self.copies.staged(head, base, files(content)) as staged:
            with self.store.transaction(Actor.AGENT, "an update") as tx:
                tx.put(PDF, files(content), expected_version=head.version, base=base)
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

    def main_text(self, version: int | None = None) -> str:
        return self.store.file(self.store.head(PDF), "SKILL.md", version).data.decode()


def files(content: str) -> Files:
    return {"SKILL.md": File(content.encode()), "scripts/run.py": File(b"print(1)\n")}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.store.close()


@pytest.fixture
def killed_before_exchange(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A library whose newest version was committed by a process that ended before it exchanged the directories."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as broken, pytest.raises(Killed):
        broken.setattr(registry, "put_in_place", die)
        broken.setattr(registry.StagedCheckout, "close", lambda checkout: checkout._open.close())
        desk.update(text("one", "two", "three by the agent"))
    assert desk.main.read_text() == FIRST
    return desk


def restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system have been started anew since the last update."""
    monkeypatch.setattr(signatures, "boot_id", lambda: "0" * 36)


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


def test_the_owner_writes_what_a_killed_process_did_not_exchange(killed_before_exchange: Desk) -> None:
    (report,) = killed_before_exchange.again().behind([PDF])

    assert report.written == ["pdf"]
    assert killed_before_exchange.again().behind([PDF]) == []


def test_an_edit_of_what_a_killed_process_did_not_exchange_is_merged(killed_before_exchange: Desk) -> None:
    desk = killed_before_exchange
    desk.main.write_text(text("one by the person", "two", "three"))

    assert desk.sync() == ["merged"]
    assert desk.main.read_text() == text("one by the person", "two", "three by the agent")


def test_an_edit_after_an_update_is_an_edit_of_its_version(desk: Desk) -> None:
    """What the person takes out of the update does not come back by a merge with the version before it."""
    desk.update(text("one", "two", "three", "four by the agent"))
    desk.main.write_text(text("one", "two by the person", "three"))

    assert desk.sync() == ["edited"]
    assert desk.main_text() == text("one", "two by the person", "three")


def test_a_directory_that_a_person_put_back_to_an_older_version_is_an_edit(desk: Desk) -> None:
    desk.update(text("one"))
    desk.update(text("two"))
    shutil.rmtree(desk.main.parent)
    for path, file in files(FIRST).items():
        (desk.folder / "pdf" / path).parent.mkdir(parents=True, exist_ok=True)
        (desk.folder / "pdf" / path).write_bytes(file.data)

    assert desk.sync() == ["edited"]
    assert desk.main_text() == FIRST


def test_a_save_in_the_moment_of_the_exchange_is_merged(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    real = atomic_dir.put_in_place

    def saved_meanwhile(*arguments: Any) -> None:
        desk.main.write_text(text("one by the person", "two", "three"))
        real(*arguments)

    monkeypatch.setattr(registry, "put_in_place", saved_meanwhile)
    desk.update(text("one", "two", "three by the agent"))

    assert desk.main.read_text() == text("one by the person", "two", "three by the agent")
    assert desk.version() == 4


def test_a_save_just_before_the_lock_leaves_the_directory_to_a_sync(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = signatures.mark_of

    def saved_meanwhile(place: Path) -> object:
        desk.main.write_text(text("one by the person", "two", "three"))
        return real(place)

    monkeypatch.setattr(registry, "mark_of", saved_meanwhile)

    assert not desk.update(text("one", "two", "three by the agent"))
    assert desk.main.read_text() == text("one by the person", "two", "three")
    assert desk.sync() == ["merged"]
    assert desk.main.read_text() == text("one by the person", "two", "three by the agent")
    assert desk.copies.unknown_entries() == []


def test_files_that_a_power_failure_cut_are_written_again_and_are_no_edit(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.update(text("one", "two"))
    # The times of a file that is cut by hand change, so what is recorded is made to fit: those that a failure leaves.
    os.truncate(desk.main, 0)
    cut = signatures.signature(desk.main.parent, sizes=False)
    assert cut is not None
    pending = desk.pending()
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
    """Somebody who may write into the folder gains nothing by the moment between commit and exchange."""
    outside = tmp_path / "private"
    outside.mkdir()
    (outside / "SKILL.md").write_text("private")
    real = atomic_dir.put_in_place

    def planted(*arguments: Any) -> None:
        desk.main.parent.rename(tmp_path / "away")
        desk.main.parent.symlink_to(outside)
        real(*arguments)

    monkeypatch.setattr(registry, "put_in_place", planted)
    desk.update(text("one"))

    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("SKILL.md", "private")]


@pytest.mark.parametrize("signature", ["pending", "pending x 1 a b 2 c d e f", "a b c", "pending " + "9" * 4000])
def test_what_a_foreign_hand_wrote_into_the_record_is_no_signature(desk: Desk, signature: str) -> None:
    with sqlite3.connect(desk.home / "library.db") as db:
        db.execute("UPDATE binding SET signature = ?", (signature,))
    db.close()

    assert desk.sync() == []
    assert desk.update(text("one")) in (True, False)
    assert desk.main_text() == text("one")


def test_servers_of_older_versions_find_the_version_that_the_directory_held_before(desk: Desk) -> None:
    """They compare contents then, as after a crash of their own."""
    desk.update(text("one"))
    with sqlite3.connect(desk.home / "library.db") as db:
        version, signature = db.execute("SELECT version, signature FROM binding").fetchone()
    db.close()

    seen = signatures.signature(desk.main.parent)
    assert seen is not None
    assert version == 2
    assert signature != seen.digest


STEPS = ("open", "os.mkdir", "os.rename", "os.chmod", "os.utime", "os.remove", "os.rmdir", "os.scandir", "os.listdir")
"""Audit events of the interpreter before each of which the process may end."""


def ended_at(desk: Desk, content: str, step: int) -> bool:
    """Update in a process of its own that ends before this step of the file system; return whether it got that far."""
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
@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_process_that_ends_at_any_step_leaves_the_old_version_or_the_new_one(desk: Desk, stride: int) -> None:
    outcomes = {"old": 0, "committed": 0}
    step, number = 0, 0
    while True:
        before, number = desk.version() or 0, number + 1
        content = text("one", f"update {number}")
        ended = ended_at(desk, content, step)
        there = files(desk.main.read_text())
        versions = [desk.store.files(desk.store.head(PDF), n) for n in range(before, (desk.version() or 0) + 1)]
        assert there in versions, f"step {step}: neither version lies in the folder"

        assert desk.sync() == [], f"step {step}: what a killed process left was taken for an edit"
        head = desk.store.head(PDF)
        assert head.version in (before, before + 1)
        assert desk.main.read_text() == desk.main_text(), f"step {step}: the folder is behind the library"
        assert (desk.main_text() == content) == (head.version == before + 1)
        outcomes["old" if head.version == before else "committed"] += 1
        if not ended:
            break
        step += stride
    assert min(outcomes.values()) > 1, "the process ended before the commit and after it"
