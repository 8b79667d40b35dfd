"""The index that another process fills beside the one that takes a library in."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from filelock import FileLock, Timeout
from processes import poll
from samples import put_texts

from evolvable_server.index_worker import (
    BURST,
    WORTHWHILE,
    BurstIndexer,
    index_elsewhere,
    start_index_worker,
)
from evolvable_server.watcher import Watcher
from evolvable_store.errors import LibraryBusy
from evolvable_store.resource import Kind
from evolvable_store.search import index_file
from evolvable_store.search.index import Index, check_index
from evolvable_store.search.index_entries import AnalyzedText, SourceText, analyze_source
from evolvable_store.search.index_file import IndexFile
from evolvable_store.search.index_writer import BATCH, Analyze
from evolvable_store.search.postings import MAX_PENDING, count_pending
from evolvable_store.store import Store
from evolvable_store.workingcopy.discovery import LOOKS, count_resources
from evolvable_store.workingcopy.registry import WorkingCopies
from evolvable_tools.library import Library

pytestmark = pytest.mark.process

PATIENCE = 60.0  # seconds


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "home", create=True) as store:
        yield store


def fill(store: Store, start: int, count: int = 60) -> None:
    text = "---\nname: skill-{0}\ndescription: Does what is number {0}.\n---\nCount to {0}.\n"
    put_texts(
        store, {f"skill-{number}": text.format(number) for number in range(start, start + count)}
    )


def applied(store: Store) -> int:
    """Returns the newest change that is in the index; it takes nothing in."""
    with contextlib.closing(IndexFile(store.home)) as file, file.reading() as db:
        return int(db.execute("SELECT value FROM state WHERE key = 'applied'").fetchone()[0])


def below() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def started(since: list[psutil.Process]) -> list[psutil.Process]:
    """Returns the processes below this one that were not there before, as soon as those are there
    that index.

    With more than one processor some of them weigh texts. Some stay for as long as Python runs:
    multiprocessing's tracker of resources, from any earlier test.
    """
    ends, wanted = time.monotonic() + PATIENCE, 1 if (os.cpu_count() or 1) < 2 else 2
    while len(found := [process for process in below() if process not in since]) < wanted:
        assert time.monotonic() < ends
    return found


def test_the_index_is_in_step_when_the_body_ends_without_a_search(store):
    with start_index_worker(store.home, WORTHWHILE) as worker, worker.indexing():
        fill(store, 0)
        fill(store, 60)

    assert applied(store) == store.sequence()
    with contextlib.closing(IndexFile(store.home)) as file, file.reading() as db:
        assert count_pending(db)[0] == 0
    assert list(check_index(store)) == []


def test_a_body_that_has_filled_the_library_goes_on_while_the_rest_is_indexed(store):
    before = below()
    with start_index_worker(store.home, WORTHWHILE) as worker, worker.indexing() as all_filled:
        fill(store, 0)
        indexing = started(since=before)
        all_filled()
        assert psutil.wait_procs(indexing, timeout=PATIENCE)[1] == []
        assert applied(store) == store.sequence()


def test_the_process_may_be_started_before_the_library_is_made(tmp_path):
    home = tmp_path / "later"
    with start_index_worker(home, WORTHWHILE) as worker:
        started(since=[])
        with Store.open(home, create=True) as store, worker.indexing():
            fill(store, 0)
        with Store.open(home) as store:
            assert applied(store) == store.sequence() > 0


def test_a_process_that_is_never_told_to_begin_ends_and_makes_nothing(tmp_path):
    before = below()
    with start_index_worker(tmp_path / "none", WORTHWHILE):
        waiting_one = started(since=before)
    assert psutil.wait_procs(waiting_one, timeout=PATIENCE)[1] == []
    assert not (tmp_path / "none").exists()


def test_a_few_resources_are_not_worth_another_process(store):
    before = below()
    with start_index_worker(store.home, WORTHWHILE - 1) as worker, worker.indexing() as all_filled:
        fill(store, 0)
        assert set(below()) <= set(before)
        all_filled()


def test_when_the_process_is_killed_the_next_search_takes_in_what_it_did_not(store):
    before = below()
    with start_index_worker(store.home, WORTHWHILE) as worker, worker.indexing():
        fill(store, 0)
        indexing = started(since=before)
        indexing[0].kill()
        fill(store, 60)

    with Index.open(store) as index:
        assert "skill-99" in {
            scored.entry.name for scored in index.search("what is number 99").scored
        }
        assert index.find_faults() == []
    assert psutil.wait_procs(indexing, timeout=PATIENCE)[1] == []


def here(analyzed: list[object]) -> Analyze:
    """Return what analyzes texts in this process and notes them."""

    def analyze(sources: Iterable[SourceText]) -> Iterator[AnalyzedText]:
        for one in sources:
            analyzed.append(one)
            yield analyze_source(one)

    return analyze


def test_a_process_that_serves_has_another_one_index_many_changes(store):
    fill(store, 0, WORTHWHILE)
    analyzed: list[object] = []
    with Index.open(store, here(analyzed), partial(index_elsewhere, store.home)) as index:
        assert "skill-99" in {
            scored.entry.name for scored in index.search("what is number 99").scored
        }
        assert analyzed == []
        fill(store, WORTHWHILE, 10)
        index.catch_up()
        assert len(analyzed) == 10
        assert index.find_faults() == []


def test_what_the_other_process_leaves_is_indexed_by_the_one_that_waits_for_it(store):
    fill(store, 0, WORTHWHILE)
    analyzed: list[object] = []
    before = below()

    def end(missing: int, alive: Callable[[], object]) -> None:
        index_elsewhere(
            store.home, missing, lambda: [child.kill() for child in below() if child not in before]
        )

    with Index.open(store, here(analyzed), end) as index:
        index.catch_up()
        assert analyzed
        assert index.find_faults() == []
    assert (
        psutil.wait_procs([child for child in below() if child not in before], timeout=PATIENCE)[1]
        == []
    )


def test_a_process_that_stops_waiting_ends_the_other_one_and_hears_why(store):
    before = below()

    def lost() -> None:
        raise LibraryBusy("The folders are another's now.")

    with pytest.raises(LibraryBusy):
        index_elsewhere(store.home, WORTHWHILE, lost)
    assert (
        psutil.wait_procs([child for child in below() if child not in before], timeout=PATIENCE)[1]
        == []
    )


def begin(indexing: "subprocess.Popen[bytes]") -> None:
    assert indexing.stdin is not None
    indexing.stdin.write(b"\n")
    indexing.stdin.flush()


def test_the_other_process_ends_with_the_one_that_waits_for_it(store):
    fill(store, 0, WORTHWHILE)
    # So long it indexes nothing.
    with contextlib.closing(IndexFile(store.home)) as file, file.writing():
        command = [sys.executable, "-m", "evolvable_server.index_worker", str(store.home), "once"]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as indexing:
            begin(indexing)
            assert indexing.poll() is None
            indexing.stdin.close()
            assert indexing.wait(timeout=PATIENCE) == 1


def test_the_other_process_ends_cleanly_while_its_stdin_is_open(store):
    fill(store, 0)
    command = [sys.executable, "-m", "evolvable_server.index_worker", str(store.home), "once"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as indexing:
        begin(indexing)
        assert indexing.stderr is not None
        assert indexing.stderr.read() == b""
        assert indexing.wait(timeout=PATIENCE) == 0


def test_a_process_without_haste_leaves_the_index_to_the_one_that_fills_it(store):
    fill(store, 0, 1)
    with Index.open(store) as filling, Index.open(store) as other:
        filling.catch_up()
        fill(store, 1)
        with filling.backlog():
            with pytest.raises(LibraryBusy):
                other.catch_up(wait=False)
            assert applied(store) < store.sequence()
            assert "skill-60" in {
                hit.entry.name for hit in other.search("what is number 60").scored
            }
        fill(store, 61)
        other.catch_up(wait=False)
        assert applied(store) == store.sequence()


def test_a_search_waits_for_the_process_that_fills_the_index_until_what_it_needs_is_there(
    store, monkeypatch
):
    monkeypatch.setattr(index_file, "BACKLOG_SECONDS", 100 * PATIENCE)
    fill(store, 0, BATCH + 1)
    found: list[str] = []
    with Index.open(store) as filling, Index.open(store) as other:

        def search() -> None:
            found.extend(hit.entry.name for hit in other.search("what is number 77").scored)

        with filling.backlog():
            searching = threading.Thread(target=search)
            searching.start()
            filling.catch_up(locked=True)
            searching.join(PATIENCE)
            assert "skill-77" in found


def test_what_waits_is_settled_by_the_process_that_fills_the_index(store):
    fill(store, 0, MAX_PENDING + 1)
    with Index.open(store) as filling, Index.open(store) as other:
        with filling.backlog():
            other.catch_up()
            assert waiting(store) == MAX_PENDING + 1
            filling.settle(locked=True, at_once=1)
            assert waiting(store) == MAX_PENDING
            filling.settle(0, locked=True)
        assert waiting(store) == 0 and other.find_faults() == []


def test_a_burst_is_indexed_by_another_process_that_ends_when_it_is_over(store):
    before = below()
    burst = BurstIndexer(store.home)
    burst.begin(BURST - 1)
    assert set(below()) <= set(before)
    burst.begin(BURST)
    burst.begin(BURST)
    indexing = started(since=before)
    fill(store, 0)
    burst.end()

    poll(
        lambda: [burst.end(), any(one.is_running() for one in indexing)] == [None, False],
        "no zombie to stay",
    )
    assert applied(store) == store.sequence() and waiting(store) == 0
    burst.begin(BURST)
    burst.stop()
    burst.end()
    assert (
        psutil.wait_procs([one for one in below() if one not in before], timeout=PATIENCE)[1] == []
    )


def test_a_server_that_looks_again_at_files_saved_just_before_their_import_starts_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such files may have been saved twice within one tick of the clock, so they are read once
    more.
    """
    begun: list[int] = []
    monkeypatch.setattr(BurstIndexer, "begin", lambda self, expected: begun.append(expected))
    with Store.open(tmp_path / "home", create=True) as store:
        copies = WorkingCopies(store)
        (tmp_path / "skills").mkdir()
        for number in range(BURST):
            place = tmp_path / "skills" / f"skill-{number}"
            place.mkdir()
            (place / "SKILL.md").write_text(
                f"---\nname: skill-{number}\ndescription: The {number}th.\n---\n"
            )
        copies.add(tmp_path / "skills")
        (folder,) = copies.folders()
        # As an import leaves them that comes within two seconds.
        copies.bindings.bind(
            [replace(one, signature="") for one in copies.bindings.of_folder(folder).values()]
        )

    with Library.open(tmp_path / "home") as library:
        watcher = Watcher(library, lambda _: None)
        watcher.start()
        try:
            bindings = library.store.backend.bindings
            poll(
                lambda: all(one.signature for one in bindings.of_folder(folder).values()),
                "the second look",
            )
        finally:
            watcher.stop()
    assert [expected for expected in begun if expected >= BURST] == []


def waiting(store: Store) -> int:
    with contextlib.closing(IndexFile(store.home)) as file, file.reading() as db:
        return count_pending(db)[0]


def held(store: Store) -> bool:
    """Returns whether a process holds the lock of the one that indexes many changes."""
    try:
        with FileLock(store.home / "locks" / f"{Path(index_file.INDEX_FILE).stem}.lock", timeout=0):
            return False
    except Timeout:
        return True


def test_the_process_that_fills_the_index_holds_the_lock_of_it_until_its_end(store):
    (store.home / "locks").mkdir(exist_ok=True)
    with start_index_worker(store.home, WORTHWHILE) as worker, worker.indexing():
        poll(lambda: held(store), "the other process to hold the lock")
        fill(store, 0)
        assert held(store)

    assert not held(store)
    assert applied(store) == store.sequence()


def test_a_body_that_fails_leaves_no_process_behind(store):
    before = below()
    with (
        pytest.raises(ZeroDivisionError),
        start_index_worker(store.home, WORTHWHILE) as worker,
        worker.indexing(),
    ):
        fill(store, 0)
        indexing = started(since=before)
        raise ZeroDivisionError

    assert psutil.wait_procs(indexing, timeout=PATIENCE)[1] == []


def make_skills(groups: Path, count: int, group: int) -> None:
    """Makes so many folders of skills, in directories of `group` each, and beside each one a folder
    that is none.
    """
    for number in range(count):
        folder = groups / f"group-{number // group}" / f"skill-{number}"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(
            f"---\nname: skill-{number}\ndescription: Does {number}.\n---\nCount.\n"
        )
        (groups / f"group-{number // group}" / f"notes-{number}").mkdir()


def test_skills_in_nested_folders_count_towards_another_process(tmp_path):
    make_skills(tmp_path, 60, group=7)

    assert count_resources(tmp_path, Kind.SKILL, 100) == 60
    assert count_resources(tmp_path, Kind.SKILL, 20) == 20


def test_folders_that_hold_no_skill_are_counted_as_none(tmp_path):
    for number in range(30):
        (tmp_path / f"other-{number}").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "other-1")

    assert count_resources(tmp_path, Kind.SKILL, 10) == 0


def test_a_count_ends_in_a_tree_without_resources_however_large_it_is(tmp_path):
    for number in range(LOOKS + 1):
        (tmp_path / f"other-{number:03}").mkdir()
    make_skills(tmp_path / "skills", 1, group=1)

    assert count_resources(tmp_path, Kind.SKILL, 1) == 0
    assert count_resources(tmp_path, Kind.SKILL, 2) == 1


def test_an_import_of_nested_folders_is_indexed_by_another_process(tmp_path):
    folder, home = tmp_path / "skills", tmp_path / "home"
    make_skills(folder, WORTHWHILE, group=50)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "EVOLVABLE_HOME": str(home)}
    command = [sys.executable, "-m", "evolvable_server", "init", str(folder)]

    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as init:
        indexing: list[list[str]] = []
        while init.poll() is None and not indexing:
            for child in psutil.Process(init.pid).children():
                with contextlib.suppress(psutil.Error):
                    indexing += (
                        [line]
                        if "evolvable_server.index_worker" in (line := child.cmdline())
                        else []
                    )
        assert init.wait(PATIENCE) == 0

    assert indexing
