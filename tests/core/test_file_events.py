"""Events of the file system: those of the library's own files wake a server, and those beside them
do not.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evolvable_server.file_events import InotifyEvents, library_events

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of a library, with the locks of the folders' owner."""
    (tmp_path / "locks").mkdir()
    (tmp_path / "library.db").write_bytes(b"")
    return tmp_path


@pytest.fixture
def events(home: Path) -> Iterator[InotifyEvents]:
    """What a server waits for."""
    events = library_events(home, home / "locks")
    assert events is not None
    yield events
    events.close()


def append(path: Path, data: bytes = b"x") -> str:
    with path.open("ab") as file:
        file.write(data)
    return str(path)


def test_a_commit_is_an_event_and_the_writes_of_the_index_beside_it_are_none(
    events: InotifyEvents, home: Path
) -> None:
    append(home / "index-6.db")
    append(home / "index-6.db-wal")
    events.wait(0)  # that these files were made
    append(home / "index-6.db")
    append(home / "index-6.db-wal")
    assert not events.is_ready()
    log = append(home / "library.db-wal")
    assert events.wait(0) == {log}


def test_a_log_that_is_removed_and_made_again_is_followed_on(
    events: InotifyEvents, home: Path
) -> None:
    log = append(home / "library.db-wal")
    assert events.wait(0) == {log}
    for _ in range(2):
        (home / "library.db-wal").unlink()
        append(home / "library.db-wal")
        assert events.wait(0) == {log}
        with (home / "library.db-wal").open("ab") as file:
            file.write(b"later")
            file.flush()
            assert events.wait(0) == {log}


def test_the_end_of_a_process_that_holds_a_lock_is_an_event(
    events: InotifyEvents, home: Path
) -> None:
    lock = append(home / "locks/1.lock")
    assert events.wait(0) == {lock}
