"""A folder that is followed holds what people and processes wrote, whatever the clock says and
whoever else uses it.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from evolvable_store import fsck
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit

YEAR = 365 * 86_400
PDF = Ref.parse("pdf")


def text(body: str) -> str:
    return f"---\nname: pdf\ndescription: Fill and merge PDF forms.\n---\n\n{body}\n"


def update(library: Library, body: str) -> None:
    agent, now = Caller(Actor.AGENT), library.store.head(PDF).version
    edit.update_resource(
        library, agent, PDF, "why", files={"SKILL.md": text(body)}, expected_version=now
    )


def says(library: Library) -> str:
    files = library.store.files(library.store.head(PDF))
    return files["SKILL.md"].data.decode().split("\n\n")[1].strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of one skill."""
    (tmp_path / "skills/pdf").mkdir(parents=True)
    (tmp_path / "skills/pdf/SKILL.md").write_text(text("first"), encoding="utf-8")
    return tmp_path / "skills"


@pytest.fixture
def following(folder: Path, tmp_path: Path) -> Iterator[Callable[[str], Library]]:
    """Opens a library that follows the folder, by the name of its home."""
    with ExitStack() as stack:

        def follow(home: str) -> Library:
            library = stack.enter_context(Library.open(tmp_path / home, create=True))
            library.working_copies.add(folder)
            return library

        yield follow


def save(folder: Path, body: str, at: float) -> None:
    """Saves the skill with the time that the system's clock shows."""
    path = folder / "pdf/SKILL.md"
    path.write_text(text(body), encoding="utf-8")
    os.utime(path, (at, at))


@pytest.mark.parametrize("years", [-10, 10])
def test_a_clock_that_jumps_hides_no_save_and_orders_no_version_otherwise(
    folder: Path, following: Callable[[str], Library], monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    library = following("home")
    now = time.time()
    update(library, "second")
    for turn, away in enumerate((0, years * YEAR, 0, -years * YEAR, 1)):
        monkeypatch.setattr(time, "time", lambda away=away: now + away)
        monkeypatch.setattr(time, "time_ns", lambda away=away: round((now + away) * 1e9))
        save(folder, f"saved {turn}", now + away)
        library.working_copies.sync()
        assert says(library) == f"saved {turn}"
        update(library, f"updated {turn}")
        assert (folder / "pdf/SKILL.md").read_text(encoding="utf-8") == text(f"updated {turn}")
        library.working_copies.sync()

    assert library.store.head(PDF).version == 12
    changes = library.store.changes(0, 100)
    assert [change.after for change in changes] == list(range(1, 13))
    assert not fsck.check_library(library.store).faults


def test_two_hosts_that_share_a_folder_take_in_each_others_changes_and_lose_none(
    folder: Path, following: Callable[[str], Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a library of its own; a shared disk shows both the same folder, and process numbers
    say nothing.
    """
    machines = {"here": following("here"), "there": following("there")}
    real = os.uname()
    for turn in range(6):
        name, other = ("here", "there") if turn % 2 else ("there", "here")
        monkeypatch.setattr(
            os, "uname", lambda name=name: os.uname_result((real[0], name, *real[2:]))
        )
        machines[name].working_copies.sync()
        update(machines[name], f"{name} {turn}")
        assert (folder / "pdf/SKILL.md").read_text(encoding="utf-8") == text(f"{name} {turn}")
        monkeypatch.setattr(
            os, "uname", lambda other=other: os.uname_result((real[0], other, *real[2:]))
        )
        machines[other].working_copies.sync()
        assert says(machines[other]) == f"{name} {turn}"

    for library in machines.values():
        assert library.store.head(PDF).version == 7
        assert not fsck.check_library(library.store).faults
    assert sorted(path.name for path in folder.iterdir()) == ["pdf"]
