"""Where the system gives no events of files, the folders are scanned, `status` and `doctor` say so,
and it ends.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from command_line import CommandLine
from mcp_place import Place, skill_text
from powers import NO_POWERS, powerless, works
from processes import poll

from evolvable_server.file_events import EventSource, InotifyEvents, tree_events
from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_store.workingcopy.folder_lock import FolderOwner

CHILD = Path(__file__).parent.parent / "support" / "watching_child.py"
OWN_LIMITS = ["unshare", "--user", "--map-root-user"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")
own_limits = pytest.mark.skipif(not works(OWN_LIMITS), reason="needs user namespaces")


class Follower:
    """A process that follows the folders of a place, with limits of its own."""

    def __init__(self, place: Place, seconds: float, before: list[str]) -> None:
        self.place = place
        command = [*before, sys.executable, str(CHILD), str(place.home), str(seconds)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=place.environment
        )

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def note(self) -> str | None:
        return FolderOwner(self.place.home).owner_note()

    def has_noted(self, text: str) -> None:
        poll(lambda: text in (self.note() or ""), f"a note of {text}", 20)

    def follows_a_save(self, body: str) -> None:
        before = self.version()
        self.place.save("pdf", skill_text("pdf", body=body))
        poll(lambda: self.version() == before + 1, "the version of a save", 20)

    def version(self) -> int:
        with Store.open(self.place.home) as store:
            return store.head(Ref.parse("pdf")).version or 0

    def end(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def confined(place: Place) -> Iterator[Follower]:
    """A follower that may have no more instances or watches than it is told, and scans five times a
    second.
    """
    follower = Follower(place, 0.2, OWN_LIMITS)
    yield follower
    follower.end()


@linux
@own_limits
@pytest.mark.process
@pytest.mark.parametrize(
    ("limit", "setting"),
    [
        ("max_inotify_instances", "fs.inotify.max_user_instances"),
        ("max_inotify_watches", "fs.inotify.max_user_watches"),
    ],
)
def test_without_a_free_instance_or_watch_saves_are_scanned_until_the_limit_is_raised(
    confined: Follower, limit: str, setting: str
) -> None:
    confined.tell(f"{limit}=0")
    confined.tell("START")
    confined.has_noted(setting)
    confined.follows_a_save("found by a scan")
    confined.tell(f"{limit}=1000")
    poll(lambda: confined.note() == "", "the end of the note", 20)
    confined.follows_a_save("found by events")


@linux
@own_limits
@pytest.mark.process
def test_status_and_doctor_name_the_limit_and_its_remedy_while_the_folders_are_only_scanned(
    confined: Follower, tmp_path: Path
) -> None:
    (tmp_path / "machine").mkdir()
    run = partial(
        CommandLine(tmp_path / "machine"), code=None, EVOLVABLE_HOME=str(confined.place.home)
    )
    confined.tell("max_inotify_instances=0")
    confined.tell("START")
    confined.has_noted("only scanned")

    remedy = "sudo sysctl fs.inotify.max_user_instances="
    assert "only scanned every 0.2 seconds" in run("status").out and remedy in run("status").out
    said = run("doctor")
    assert said.code == 4 and remedy in said.out

    confined.tell("max_inotify_instances=1000")
    poll(lambda: confined.note() == "", "the end of the note", 20)
    assert run("status", "--json").json["worst"] == ""
    assert "inotify" not in run("doctor").out.partition("Wrong:")[2]


@linux
@own_limits
@pytest.mark.process
def test_doctor_says_without_a_server_that_one_could_not_watch_the_folders_now(
    place: Place,
) -> None:
    script = 'echo 0 > /proc/sys/user/max_inotify_instances; exec "$@"'
    doctor = [sys.executable, "-m", "evolvable_server", "status"]
    command = [*OWN_LIMITS, "sh", "-c", script, "sh", *doctor]
    said = subprocess.run(
        command, capture_output=True, text=True, env=place.environment, check=True
    )
    assert "could not watch the folders" in said.stdout and "max_user_instances" in said.stdout


@linux
@own_limits
@pytest.mark.process
def test_a_limit_that_is_reached_while_folders_are_followed_means_scans_as_well(
    confined: Follower,
) -> None:
    confined.tell("max_inotify_watches=1000")
    confined.tell("START")
    confined.follows_a_save("found by events")
    confined.tell("max_inotify_watches=1")
    confined.place.save("later", skill_text("later"))
    confined.has_noted("max_user_watches")
    confined.follows_a_save("found by a scan")


@linux
@pytest.mark.process
@powerless
def test_a_directory_that_may_not_be_read_is_named_and_the_others_are_followed(
    place: Place,
) -> None:
    place.save("closed", skill_text("closed"))
    closed = place.skills / "closed"
    closed.chmod(0)
    follower = Follower(place, 0.2, NO_POWERS)
    try:
        follower.tell("START")
        follower.has_noted(f"chmod u+rx {closed}")
        follower.follows_a_save("of another skill")
        closed.chmod(0o755)
        poll(lambda: follower.note() == "", "the end of the note", 20)
        with Store.open(place.home) as store:
            poll(
                lambda: store.head_or_none(Ref.parse("closed")),
                "the skill that may be read now",
                20,
            )
    finally:
        closed.chmod(0o755)
        follower.end()


@linux
def test_a_tree_that_is_deeper_than_the_interpreters_stack_is_watched(tmp_path: Path) -> None:
    depth = sys.getrecursionlimit() + 100
    tree = [tmp_path.joinpath(*"d" * number) for number in range(1, depth)]
    for folder in tree:
        folder.mkdir()
    with closing(tree_events([tmp_path])) as events:
        tree[-1].rmdir()
        assert str(tree[-1]) in events.wait(5)
    for folder in reversed(tree[:-1]):  # which the cleaning of the temporary folder cannot
        folder.rmdir()


@linux
def test_events_that_break_off_are_reported_and_asked_for_again(tmp_path: Path) -> None:
    reports: list[OSError | None] = []
    made: list[InotifyEvents] = []

    def attempt() -> InotifyEvents:
        made.append(InotifyEvents())
        made[-1].watch_tree(str(tmp_path))
        return made[-1]

    with closing(EventSource(attempt, reports.append, threading.Event())) as events:
        # A descriptor that is ready, and fails when it is read.
        with open(os.devnull, "wb") as unreadable:
            os.dup2(unreadable.fileno(), made[0].fileno())
        (tmp_path / "unseen").write_bytes(b"x")
        assert events.wait(0) == set() and not events.gives_events
        events.retry()
        (tmp_path / "file").write_bytes(b"x")
        assert str(tmp_path / "file") in events.wait(5)
    assert [type(one) for one in reports] == [type(None), OSError, type(None)]
