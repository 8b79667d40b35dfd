"""The owner of the folders gives signs of life whatever it does, and large imports let others work
in between.
"""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_place import PERSON, Place, skill_text
from processes import poll

from evolvable_server import heartbeat
from evolvable_server.watcher import Watcher
from evolvable_store.objects import File
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_store.workingcopy.folder_lock import FolderOwner, exclusive
from evolvable_store.workingcopy.registry import WorkingCopies
from evolvable_store.workingcopy.sync import BATCH
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs.edit import update_resource

CHILD = Path(__file__).parent.parent / "support" / "watching_child.py"
MANY = 4_000
PDF = Ref.parse("pdf")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def owner(place: Place) -> Iterator[subprocess.Popen[str]]:
    """A process that follows the folders once it is told START."""
    command = [sys.executable, str(CHILD), str(place.home), "30"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=place.environment
    ) as it:
        yield it
        it.communicate(timeout=60)


def fill(folder: Path, count: int) -> None:
    for number in range(count):
        (folder / f"new-{number:05}").mkdir(parents=True)
        text = skill_text(f"new-{number:05}", body=f"Line {number}.\n" * 40)
        (folder / f"new-{number:05}/SKILL.md").write_text(text, encoding="utf-8")


class LongestPause:
    """The longest time for which a file did not change, as seen from a thread."""

    def __init__(self, home: Path) -> None:
        self._owner, self._ended, self.seconds = FolderOwner(home), threading.Event(), 0.0
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        last, since = b"", time.monotonic()
        while not self._ended.wait(0.02):
            now = b"".join(path.read_bytes() for path in sorted(self._owner.place.glob("*.lock")))
            if now != last:
                last, since = now, time.monotonic()
            self.seconds = max(self.seconds, time.monotonic() - since)

    def end(self) -> float:
        self._ended.set()
        self._thread.join()
        return self.seconds


@pytest.mark.process
def test_while_thousands_are_imported_the_owner_lives_and_updates_wait_for_a_part_at_most(
    place: Place, owner: subprocess.Popen[str]
) -> None:
    """Bounds are parts of the import's own duration, so that they hold on a busy machine too."""
    fill(place.skills, MANY)
    assert owner.stdin is not None
    owner.stdin.write("START\n")
    owner.stdin.flush()
    with Library.open(place.home) as library:
        before = library.store.sequence()
        poll(lambda: library.store.sequence() > before, "the first batch of the import")
        begun, pause, waits = time.monotonic(), LongestPause(place.home), list[float]()
        while len(library.store.heads(PDF.kind, PDF.scope)) < MANY:
            started = time.monotonic()
            files = {"SKILL.md": skill_text("pdf", body=f"Update {len(waits)}.")}
            head = library.store.head(PDF).version
            update_resource(
                library, Caller(Actor.AGENT), PDF, "meanwhile", files=files, expected_version=head
            )
            waits.append(time.monotonic() - started)
        took, longest = time.monotonic() - begun, pause.end()
        assert (
            library.store.file(library.store.head(PDF), "SKILL.md").data
            == (place.skills / "pdf/SKILL.md").read_bytes()
        )
    assert FolderOwner(place.home).owner() == owner.pid
    assert len(waits) > 5 and max(waits) < took / 3, (took, waits)
    assert longest < max(3 * heartbeat.BEAT_SECONDS, took / 3), (took, longest)


@pytest.mark.process
def test_an_import_gives_the_folders_lock_back_after_each_batch(
    place: Place, tmp_path: Path
) -> None:
    fill(tmp_path / "many", 2 * BATCH + 1)
    taken = []
    with Store.open(place.home) as store:

        def take_turn(done: int, count: int) -> None:
            lock = place.home / "locks" / f"folder-{copies.folders()[-1].id}.lock"
            with exclusive(lock, 1.0, "the folder"):
                taken.append((done, count))

        copies = WorkingCopies(store)
        copies.add(tmp_path / "many", identity=PERSON, progress=take_turn)
    assert taken == [
        (BATCH, 2 * BATCH + 1),
        (2 * BATCH, 2 * BATCH + 1),
        (2 * BATCH + 1, 2 * BATCH + 1),
    ]


@pytest.mark.process
def test_what_an_import_has_not_come_to_is_left_to_it_and_to_who_answers_for_it(
    place: Place, tmp_path: Path
) -> None:
    fill(tmp_path / "many", 2 * BATCH + 1)
    others = []
    with Store.open(place.home) as store:

        def sync_as_owner(done: int, count: int) -> None:
            own = WorkingCopies(store)
            sync = own.copy(own.folders()[-1]).sync()
            others.extend([*sync.taken, *sync.refused])

        report = WorkingCopies(store).add(
            tmp_path / "many", identity=PERSON, progress=sync_as_owner
        )
        vouched = store.backend.authorship.newest_authors(
            {head.id for head in store.heads(PDF.kind, PDF.scope)}
        )
        makers = {one.maker.principal for one in vouched.values()}
        assert (len(report.taken), others, makers) == (2 * BATCH + 1, [], {Principal.PERSON})
        fill_one = tmp_path / "many/later/SKILL.md"
        fill_one.parent.mkdir()
        fill_one.write_text(skill_text("later"), encoding="utf-8")
        assert [
            taken.directory for sync in WorkingCopies(store).sync() for taken in sync.taken
        ] == ["later"]


@pytest.mark.process
def test_an_owner_that_hangs_for_good_gives_the_folders_back_and_stands_back_when_it_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "HUNG_SECONDS", 3.0)
    hung, free = threading.Event(), threading.Event()

    def hang(_: object) -> None:
        hung.set()
        free.wait()

    candidate = FolderOwner(place.home)
    with Library.open(place.home) as library:
        watcher = Watcher(library, hang)
        watcher.start()
        try:
            poll(lambda: candidate.owner() == os.getpid(), "the watcher as the owner")
            assert not candidate.claim()
            with library.store.transaction(
                Actor.AGENT, "a change that the listener is told of"
            ) as tx:
                tx.put(Ref.parse("new"), {"SKILL.md": File(skill_text("new").encode())})
            poll(hung.is_set, "the listener")
            poll(candidate.claim, "the end of patience with the owner")
            free.set()
            place.save(
                "csv", skill_text("csv", body="saved while another process owns the folders")
            )
            assert candidate.claim()
            candidate.release()
            poll(lambda: FolderOwner(place.home).owner_note() is not None, "the owner that goes on")
            poll(lambda: library.store.head(Ref.parse("csv")).version == 2, "the save")
        finally:
            free.set()
            watcher.stop()
    assert FolderOwner(place.home).owner_note() is None


@pytest.mark.process
def test_a_directory_that_breaks_again_in_the_same_way_is_named_again_and_once_each_time(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    def named() -> int:
        return sum(
            "csv: SKILL.md: it has the control character" in record.getMessage()
            for record in caplog.records
        )

    def look_around(body: str) -> None:
        """Return when the folders were looked at after now, twice: the first look may have begun
        before.
        """
        for part in ("once", "twice"):
            before = library.store.head(PDF).version or 0
            place.save("pdf", skill_text("pdf", body=f"{body} {part}"))
            poll(
                lambda before=before: (library.store.head(PDF).version or 0) > before,
                "a save beside it",
            )

    broken, fine = (place.root / name for name in ("broken", "fine"))
    broken.mkdir()
    (broken / "SKILL.md").write_bytes(b"no front matter\0")
    caplog.set_level(logging.WARNING, "evolvable_server.watcher")
    with Library.open(place.home) as library:
        watcher = Watcher(library, lambda _: None, rescan_seconds=0.2)
        watcher.start()
        try:
            for turn in (1, 2, 3):
                (place.skills / "csv").rename(fine)
                broken.rename(place.skills / "csv")
                poll(
                    lambda turn=turn: named() == turn,
                    f"the name of the broken directory, turn {turn}",
                )
                look_around(f"broken {turn}")
                (place.skills / "csv").rename(broken)
                fine.rename(place.skills / "csv")
                look_around(f"fine {turn}")
                assert named() == turn
        finally:
            watcher.stop()
