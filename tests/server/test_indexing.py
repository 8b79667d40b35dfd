"""The index that another process fills beside the one that takes a library in."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from samples import put_texts

from evolvable_server.cli.index_worker import WORTHWHILE, index_worker
from evolvable_store.search.index import Index, check_index
from evolvable_store.search.index_file import IndexFile
from evolvable_store.search.postings import count_pending
from evolvable_store.store import Store

pytestmark = pytest.mark.process

PATIENCE = 60.0  # seconds


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "home", create=True) as store:
        yield store


def fill(store: Store, start: int, count: int = 60) -> None:
    text = "---\nname: skill-{0}\ndescription: Does what is number {0}.\n---\nCount to {0}.\n"
    put_texts(store, {f"skill-{number}": text.format(number) for number in range(start, start + count)})


def applied(store: Store) -> int:
    """Returns the newest change that is in the index; it takes nothing in."""
    with contextlib.closing(IndexFile(store.home)) as file, file.reading() as db:
        return int(db.execute("SELECT value FROM state WHERE key = 'applied'").fetchone()[0])


def below() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def started(since: list[psutil.Process]) -> list[psutil.Process]:
    """Returns the processes below this one that were not there before, as soon as those are there that index.

    With more than two processors some of them weigh texts. Some stay for as long as Python runs:
    multiprocessing's tracker of resources, from any earlier test.
    """
    ends, wanted = time.monotonic() + PATIENCE, 1 if (os.cpu_count() or 1) < 3 else 2
    while len(found := [process for process in below() if process not in since]) < wanted:
        assert time.monotonic() < ends
    return found


def test_the_index_is_in_step_when_the_body_ends_without_a_search(store):
    with index_worker(store.home, WORTHWHILE):
        fill(store, 0)
        fill(store, 60)

    assert applied(store) == store.sequence()
    with contextlib.closing(IndexFile(store.home)) as file, file.reading() as db:
        assert count_pending(db)[0] == 0
    assert list(check_index(store)) == []


def test_a_few_resources_are_not_worth_another_process(store):
    before = below()
    with index_worker(store.home, WORTHWHILE - 1):
        fill(store, 0)
        assert set(below()) <= set(before)


def test_when_the_process_is_killed_the_next_search_takes_in_what_it_did_not(store):
    before = below()
    with index_worker(store.home, WORTHWHILE):
        fill(store, 0)
        indexing = started(since=before)
        indexing[0].kill()
        fill(store, 60)

    with Index.open(store) as index:
        assert "skill-99" in {scored.entry.name for scored in index.search("what is number 99").scored}
        assert index.in_step() == []
    assert psutil.wait_procs(indexing, timeout=PATIENCE)[1] == []


def test_a_body_that_fails_leaves_no_process_behind(store):
    before = below()
    with pytest.raises(ZeroDivisionError), index_worker(store.home, WORTHWHILE):
        fill(store, 0)
        indexing = started(since=before)
        raise ZeroDivisionError

    assert psutil.wait_procs(indexing, timeout=PATIENCE)[1] == []
