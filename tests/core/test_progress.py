"""A command that takes longer than a second says on the terminal that it is at work, and nowhere
else.
"""

import ast
import contextlib
import io
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text

from evolvable_server.cli import progress
from evolvable_server.cli.progress import announced_progress, paused_progress, show_progress
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store

ERASE = "\r\x1b[2K"


class Terminal(io.StringIO):
    """A terminal that says when a text was drawn."""

    def __init__(self) -> None:
        super().__init__()
        self._written = threading.Condition()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._written:
            self._written.notify_all()
            return super().write(text)

    def until(self, text: str, after: int = 0) -> None:
        with self._written:
            assert self._written.wait_for(lambda: text in self.getvalue()[after:], timeout=30), (
                self.getvalue()
            )


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """The terminal of this process, on which progress is drawn at once."""
    screen = Terminal()
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return screen


@contextlib.contextmanager
def working(terminal: Terminal, label: str = "Working") -> Iterator[progress.Progress]:
    """A command at work on this terminal.

    pytest sets stderr at the begin of each test, so no fixture can.
    """
    with contextlib.redirect_stderr(terminal), show_progress(label) as show:
        yield show


def drawing() -> bool:
    return any(thread.name == "progress" for thread in threading.enumerate())


@pytest.mark.process
@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX terminal")
def test_a_command_that_waits_shows_a_line_on_the_terminal_and_nothing_in_a_pipe(tmp_path):
    machine = CommandLine(tmp_path)
    with (
        Store.open(machine.home, create=True) as store,
        store.transaction(Actor.HUMAN, "first") as tx,
    ):
        for name in ("pdf", "csv"):
            tx.put(Ref.parse(name), {"SKILL.md": File(skill_text(name).encode())})
    with contextlib.closing(
        sqlite3.connect(machine.home / "library.db", isolation_level=None)
    ) as writer:
        writer.execute("BEGIN IMMEDIATE")
        piped = machine.start("remove", "pdf")
        shown = machine.talk("remove", "csv", progress=True)
        shown.until("evolvable remove  0:0")  # both wait for this writer
        writer.execute("ROLLBACK")
        out, err = piped.communicate(timeout=60)
        last = shown.end().rpartition(ERASE)[2]

    assert (piped.returncode, err) == (0, "")
    assert shown.code == 0 and "skill:csv" in last and "0:0" not in last, shown.written
    assert "skill:pdf" in out


def test_the_line_names_the_step_and_its_count_and_fits_the_terminal(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    with working(terminal, "a label that is wider than this terminal"):
        with show_progress("Scanning") as show:
            show(3_200, 10_000)
            terminal.until("Scanning  3,200 of 10,000  0:0")
        terminal.until("a label that is wider than this…  0:0")

    drawn = terminal.getvalue().split(ERASE)
    assert max(map(len, drawn)) < 40 and drawn[-1] == "" and not drawing()


def test_what_is_written_meanwhile_stands_on_lines_of_its_own(terminal):
    with working(terminal):
        terminal.until("Working")
        print("a warning", file=progress.sys.stderr)
        terminal.until(f"{ERASE}a warning\n{ERASE}Working")

    assert terminal.getvalue().endswith(ERASE)


def test_no_line_is_drawn_over_a_question_or_another_program(terminal):
    with working(terminal):
        terminal.until("Working")
        with paused_progress():
            assert not drawing() and terminal.getvalue().endswith(ERASE)
        with announced_progress("Pulling from origin"):
            assert not drawing() and "Pulling from origin ...\n" in terminal.getvalue()
        assert drawing()


def test_the_time_in_which_a_person_answers_is_not_counted(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = [0.0]
    now = time.monotonic
    monkeypatch.setattr(progress.time, "monotonic", lambda: now() + ahead[0])
    with working(terminal):
        ahead[0] += 120
        terminal.until("Working  2:")
        with paused_progress():
            ahead[0] += 3600
        answered = len(terminal.getvalue())
        terminal.until("Working  2:", after=answered)
    assert "1:02:" not in terminal.getvalue() and "62:0" not in terminal.getvalue()


def test_nothing_is_drawn_while_a_shell_completes(terminal, monkeypatch):
    monkeypatch.setenv("_EVOLVABLE_COMPLETE", "bash_complete")
    with working(terminal) as show:
        show(1, 2)
        assert not drawing()

    assert terminal.getvalue() == ""


def test_a_terminal_that_cannot_erase_gets_whole_lines(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with working(terminal):
        terminal.until("Working  0:0")

    assert "\x1b" not in terminal.getvalue() and "\r" not in terminal.getvalue()


def test_a_command_that_fails_leaves_no_line(terminal):
    with contextlib.suppress(KeyboardInterrupt), working(terminal):
        terminal.until("Working")
        raise KeyboardInterrupt

    assert terminal.getvalue().endswith(ERASE) and not drawing()


def test_every_question_editor_and_pager_takes_the_line_away_first():
    """The functions of `terminal` do; so no other module of the command line may ask by itself."""
    asks = {"prompt", "confirm", "edit", "echo_via_pager", "getchar", "pause"}
    found = [
        f"{path.name}:{node.lineno}"
        for path in Path(progress.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in asks
        and ast.unparse(node.value) == "click"
    ]

    assert [place for place in found if not place.startswith("terminal.py:")] == []
    assert len(found) == 4


def test_work_of_known_size_shows_its_rate_and_the_time_left(terminal, monkeypatch):
    monkeypatch.setattr(progress, "_RATED_SECONDS", 0)
    with working(terminal, "Reading") as show:
        show(0, 400)
        show(100, 400)
        terminal.until("100 of 400")
        terminal.until(" left")

    assert "/s" in terminal.getvalue()


@pytest.mark.parametrize(
    "done, left, seconds, says",
    [
        (30, 90, 10.0, ["3.0/s", "0:30 left"]),
        (1_200, 1_200, 4.0, ["300/s", "0:04 left"]),
        (3, 60, 60.0, ["3.0/min", "20:00 left"]),
        (1, 90, 60.0, ["1.0/min", "1:30:00 left"]),
        (0, 90, 60.0, []),
        (10, 90, 1.0, []),
        (90, 0, 60.0, []),
    ],
)
def test_the_time_left_follows_from_the_rate(done, left, seconds, says):
    assert progress.rate_and_rest(done, left, seconds) == says
