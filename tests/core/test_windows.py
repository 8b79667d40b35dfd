"""Several servers over one library: one of them owns the folders, and another takes over when it
ends.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mcp_place import Place, skill_text
from processes import poll
from stdio_client import Server

from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_store.workingcopy.folder_lock import FolderOwner

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs a POSIX system"),
]

PDF = Ref.parse("pdf")


class Windows:
    """Servers over the library of one place."""

    def __init__(self, root: Path) -> None:
        self.place = Place(root)
        self.servers: list[Server] = []

    def open(self, count: int) -> None:
        """Start servers, and wait until one of them owns the folders."""
        options = {"env": self.place.environment, "cwd": self.place.root}
        started = [Server(sys.executable, **options) for _ in range(count)]
        self.servers += started
        for server in started:
            server.ask("tools/list", {})
        poll(
            lambda: self.owner() in [server.process.pid for server in self.servers], "an owner", 20
        )

    def owner(self) -> int:
        return FolderOwner(self.place.home).owner()

    def pop_owner(self) -> Server:
        pid = self.owner()
        server = next(server for server in self.servers if server.process.pid == pid)
        self.servers.remove(server)
        return server

    def version(self) -> int | None:
        with Store.open(self.place.home) as store:
            return store.head(PDF).version

    def seconds_until_saved(self, text: str) -> float:
        """Save a file; return how long it takes until it is a version."""
        before = self.version() or 0
        self.place.save("pdf", skill_text("pdf", body=text))
        saved = time.monotonic()
        poll(lambda: self.version() == before + 1, "the version of a save", 30)
        return time.monotonic() - saved


def end(server: Server) -> None:
    server.process.send_signal(signal.SIGCONT)
    server.process.kill()
    server.process.communicate()


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    windows = Windows(tmp_path)
    yield windows
    for server in windows.servers:
        end(server)


@pytest.mark.parametrize("stop", [end, Server.close], ids=["killed", "ended"])
def test_another_server_takes_the_folders_over(
    windows: Windows, stop: Callable[[Server], None]
) -> None:
    windows.open(3)
    windows.seconds_until_saved("one")
    stop(windows.pop_owner())

    assert windows.seconds_until_saved("two") < 5
    stop(windows.pop_owner())
    assert windows.seconds_until_saved("three") < 5


def test_what_is_saved_while_no_server_owns_the_folders_is_seen_by_the_next(
    windows: Windows,
) -> None:
    windows.open(2)
    windows.seconds_until_saved("one")
    others = [server for server in windows.servers if server.process.pid != windows.owner()]
    for server in others:
        os.kill(server.process.pid, signal.SIGSTOP)
    end(windows.pop_owner())
    before = windows.version() or 0
    windows.place.save("pdf", skill_text("pdf", body="two"))
    os.kill(others[0].process.pid, signal.SIGCONT)

    poll(lambda: windows.version() == before + 1, "a save from before the election", 10)


def test_a_stopped_owner_loses_the_folders_and_nothing_is_lost_when_it_goes_on(
    windows: Windows,
) -> None:
    windows.open(2)
    windows.seconds_until_saved("one")
    for server in windows.servers:
        server.call("find_skill", task="pdf")  # so that it is stopped in the middle of no write
    stopped = windows.pop_owner()
    os.kill(stopped.process.pid, signal.SIGSTOP)

    assert windows.seconds_until_saved("two") < 25
    os.kill(stopped.process.pid, signal.SIGCONT)
    windows.servers.append(stopped)
    windows.seconds_until_saved("three")
    assert windows.owner() != stopped.process.pid


def test_a_follower_writes_its_own_change_before_it_answers(windows: Windows) -> None:
    windows.open(3)
    file = windows.place.skills / "pdf/SKILL.md"
    for number, server in enumerate(windows.servers):
        text = skill_text("pdf", "Merge, split and fill PDF forms.", body=f"by server {number}")
        server.call("load_skill", ref="skill:pdf")
        server.call("update_resource", ref="skill:pdf", reason="why", files={"SKILL.md": text})
        assert file.read_text(encoding="utf-8") == text
    shutil.rmtree(windows.place.skills / "csv")
    poll(
        lambda: not (windows.place.skills / "csv").exists() and _is_removed(windows),
        "a removal",
        20,
    )
    assert windows.version() == 1 + len(windows.servers)


def _is_removed(windows: Windows) -> bool:
    with Store.open(windows.place.home) as store:
        head = store.head_or_none(Ref.parse("csv"))
        return head is not None and head.version is None
