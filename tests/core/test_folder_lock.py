"""Locks between processes: one owner of the folders at a time, and fair turns on one folder."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock, Timeout
from processes import poll

from evolvable_store.errors import LibraryBusy
from evolvable_store.workingcopy import folder_lock
from evolvable_store.workingcopy.folder_lock import FolderOwner, exclusive

posix = pytest.mark.skipif(os.name != "posix", reason="needs signals")

OWN = """
import sys, time
from pathlib import Path
from evolvable_store.workingcopy.folder_lock import FolderOwner
owner = FolderOwner(Path(sys.argv[1]))
print(owner.claim(), flush=True)
while True:
    time.sleep(0.05)
    if not owner.claim():
        print("deposed", flush=True)
        time.sleep(60)
"""


@pytest.fixture
def other(tmp_path: Path):
    """Another process, which owns the folders."""
    child = subprocess.Popen(
        [sys.executable, "-c", OWN, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "True\n"
    yield child
    child.send_signal(signal.SIGCONT)
    child.kill()
    child.communicate()


def test_there_is_one_owner_and_the_next_one_follows_at_once(tmp_path: Path) -> None:
    first, second = FolderOwner(tmp_path), FolderOwner(tmp_path)

    assert first.claim() and first.owns and first.owner() == os.getpid()
    assert not second.claim() and not second.owns
    first.release()
    assert second.claim() and not first.claim()


@posix
@pytest.mark.process
def test_the_kernel_frees_what_a_killed_owner_had(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    owner = FolderOwner(tmp_path)
    assert not owner.claim() and owner.owner() == other.pid

    other.kill()
    poll(owner.claim, "the lock of a killed process", 1.0)


@posix
@pytest.mark.process
def test_a_stopped_owner_is_replaced_and_stands_back_when_it_goes_on(
    tmp_path: Path, other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock, "STALE_SECONDS", 0.4)
    owner = FolderOwner(tmp_path)
    alive_until = time.monotonic() + 1.2
    while time.monotonic() < alive_until:
        assert not owner.claim()
        time.sleep(0.01)

    other.send_signal(signal.SIGSTOP)
    poll(owner.claim, "the end of patience with a stopped owner", 5.0)
    other.send_signal(signal.SIGCONT)
    assert other.stdout is not None and other.stdout.readline() == "deposed\n"
    assert owner.claim() and owner.owns
    assert [path.name for path in owner.place.iterdir()] == ["2.lock"]


@posix
def test_an_owner_of_a_lower_number_owns_nothing(tmp_path: Path) -> None:
    owner = FolderOwner(tmp_path)
    assert owner.claim()

    (owner.place / "2.lock").touch()
    assert not owner.owns
    assert owner.claim() and owner.owns  # nobody holds the higher number: it is elected with that


def test_one_process_at_a_time_works_on_a_folder_also_beside_older_versions(tmp_path: Path) -> None:
    path = tmp_path / "folder-1.lock"
    with exclusive(path, 1.0, "it"):
        with pytest.raises(Timeout), FileLock(path, timeout=0):
            pass
        with pytest.raises(LibraryBusy), exclusive(path, 0.05, "it"):
            pass
    with FileLock(path), pytest.raises(LibraryBusy), exclusive(path, 0.05, "it"):
        pass
    with exclusive(path, 1.0, "it"):
        pass


def test_a_lock_is_given_in_turns(tmp_path: Path) -> None:
    turns: list[int] = []
    end = time.monotonic() + 0.5

    def work(number: int) -> None:
        while time.monotonic() < end:
            with exclusive(tmp_path / "folder-1.lock", 5.0, "it"):
                turns.append(number)
                time.sleep(0.002)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert min(turns.count(number) for number in range(4)) >= len(turns) / 12
