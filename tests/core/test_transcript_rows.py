"""The first session with a row of a transcript owns it for good, in each storage."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evolvable_store.store import Store

Open = Callable[..., Store]


def test_the_first_session_with_a_row_owns_it_for_good(open_store: Open, tmp_path: Path) -> None:
    largest = 2**48 - 1
    with open_store(tmp_path / "home", create=True) as store:
        rows = store.backend.transcript_rows
        assert rows.foreign("one", [1, 2]) == set() == rows.claim("one", [1, 2, 2, largest])
        assert rows.foreign("one", [1, 2, 3, largest]) == set() == rows.claim("one", [])
        assert rows.foreign("two", [1, 3]) == {1} and rows.claim("two", [1, 2, 3, largest]) == {
            1,
            2,
            largest,
        }
    with open_store(tmp_path / "home") as store:
        rows = store.backend.transcript_rows
        assert rows.claim("one", [1, 3]) == {3} and rows.claim("three", [1, 2, 3]) == {1, 2, 3}


def test_of_many_that_claim_at_once_each_row_has_one_owner(
    open_store: Open, tmp_path: Path
) -> None:
    with open_store(tmp_path / "home", create=True) as store, ThreadPoolExecutor(4) as threads:
        keys = range(100)
        others = threads.map(
            lambda name: store.backend.transcript_rows.claim(name, keys), ["a", "b", "c", "d"]
        )
        own = [set(keys) - foreign for foreign in others]
    assert sorted(key for each in own for key in each) == list(keys)
