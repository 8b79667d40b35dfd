"""Two programs on one library: the older one stops to write when a newer one has migrated it, and
says what to do.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_place import Place, skill_text
from processes import poll
from stdio_client import SERVE, Server

pytestmark = pytest.mark.process

NEWER = str(Path(__file__).parents[1] / "support/newer_program.py")
OURS = ("-P", "-m", "evolvable_server")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextmanager
def server(place: Place, *command: str, log: str = "") -> Iterator[Server]:
    """A server of one program; log: the name of the file that it warns in."""
    with open(place.root / (log or "other.log"), "ab") as stderr:
        running = Server(
            sys.executable,
            command=command or SERVE,
            env=place.environment,
            cwd=place.root,
            stderr=stderr,
        )
        try:
            yield running
        finally:
            running.close()


def run(place: Place, *command: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *command],
        env=place.environment,
        cwd=place.root,
        capture_output=True,
        text=True,
        input=given,
    )


def says(path: Path, text: str) -> Callable[[], bool]:
    return lambda: text in path.read_text(encoding="utf-8", errors="replace")


EDIT: dict[str, Any] = {
    "ref": "pdf",
    "edits": [{"path": "SKILL.md", "old": "two", "new": "2"}],
    "reason": "a number",
}


def test_an_older_server_refuses_every_write_to_a_migrated_library_and_reads_on(
    place: Place,
) -> None:
    with server(place, log="older.log") as older:
        assert "three" in older.call("load_skill", ref="pdf")
        done = run(place, NEWER, "status", "--json")
        assert done.returncode == 0, done.stderr
        loaded = older.call("load_skill", ref="pdf")
        assert "three" in loaded and "Restart" not in loaded
        for _ in range(2):
            refusal = older.call("update_resource", **EDIT)
            assert (
                "newer Evolvable" in refusal
                and "Restart this window" in refusal
                and "Traceback" not in refusal
            )
        assert "three" in older.call("load_skill", ref="pdf")
        assert "pdf" in older.call("find_skill", task="merge two PDF files")
        with server(place, NEWER, "serve") as newer:
            assert "Restart" not in newer.call("update_resource", **EDIT)
            assert "2\n" in newer.call("load_skill", ref="pdf")
        assert "\n2\n" in older.call("load_skill", ref="pdf")


def test_a_newer_server_takes_the_folders_over_from_an_older_one(place: Place) -> None:
    log = place.root / "older.log"
    with server(place, log=log.name) as older:
        older.ask("tools/list", {})
        poll(lambda: list((place.home / "locks/owner").glob("*.lock")), "the owner of the folders")
        with server(place, NEWER, "serve") as newer:
            place.save("pdf", skill_text("pdf", "Merge, split and fill PDF forms.", "saved"))
            poll(says(log, "Restart this window"), "the older server's warning")
            poll(
                lambda: "saved" in newer.call("load_skill", ref="pdf"),
                "the saved file in the library",
            )
    assert log.read_text(encoding="utf-8").count("Restart this window") == 1


def test_an_older_command_and_an_older_server_do_not_open_a_migrated_library(place: Place) -> None:
    with server(place, NEWER, "serve") as newer:
        for command in (("status",), ("remove", "pdf", "--reason", "old"), ("serve",)):
            done = run(place, *OURS, *command)
            assert (
                done.returncode == 1
                and "newer Evolvable" in done.stderr
                and "Traceback" not in done.stderr
            )
            assert "Update this program" in done.stderr
        hook = run(
            place,
            "-m",
            "evolvable_server.hooks.command",
            "PostToolUse",
            given='{"session_id": "s"}',
        )
        assert hook.returncode == 0 and "Traceback" not in hook.stderr
        assert "Restart" not in newer.call("update_resource", **EDIT)
