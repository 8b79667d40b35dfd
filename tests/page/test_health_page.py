"""The health page shows what doctor finds, by functions of the page's own process."""

import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from page_place import PagePlace, open_page
from processes import poll

from evolvable_server.grants import Permission
from evolvable_teams.tokens import FILE, Tokens

STARTS = frozenset(
    ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system")
)
"""What Python audits where a process is started."""

_started: list[tuple[Any, ...]] | None = None


def _note_start(event: str, arguments: tuple[Any, ...]) -> None:
    if _started is not None and event in STARTS:
        _started.append((event, *arguments[:2]))


sys.addaudithook(_note_start)  # for good: Python takes no hook back


@pytest.fixture
def starts() -> Iterator[list[tuple[Any, ...]]]:
    """The processes that this process starts during the test."""
    global _started
    _started = found = []
    yield found
    _started = None


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A machine without clients, whose settings those of this process are."""
    line = CommandLine(tmp_path)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "APPDATA", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "USERPROFILE", "EVOLVABLE_TEST_ACCOUNT"):
        monkeypatch.setenv(name, str(line.user))
    monkeypatch.setenv("EVOLVABLE_EMBEDDER", "off")
    monkeypatch.chdir(line.project)
    return line


def whole_page(page: PagePlace) -> str:
    """Return the health page after its checks ended."""

    def text() -> str:
        return unescape(page.get("/health").text)

    poll(
        lambda: "<h2>Problems</h2>" in text() and "They are being read" not in text(),
        "the checks",
        120,
    )
    return text()


def test_the_health_page_starts_no_process(
    machine: CommandLine, starts: list[tuple[Any, ...]]
) -> None:
    with open_page(machine.home) as page:
        Tokens(machine.home).add("laptop", [Permission.READ])
        text = whole_page(page)

    assert "all is well" in text and "laptop" in text and "Settings in force" in text
    assert starts == []


@pytest.mark.process
def test_the_health_page_finds_what_doctor_finds(machine: CommandLine) -> None:
    with open_page(machine.home) as page:
        page.create("pdf")
    (machine.home / "redact.txt").write_text("(\n", encoding="utf-8")
    told = machine("doctor", "--json", code=4).json

    with open_page(machine.home) as page:
        text = whole_page(page)

    assert told["problems"]
    for problem in told["problems"]:
        assert problem["what"] in text and problem["next"] in text
    for setting in told["settings"]:
        assert setting["name"] in text and setting["value"] in text


@pytest.mark.process
def test_the_health_page_starts_the_servers_of_clients_alone(
    machine: CommandLine, starts: list[tuple[Any, ...]]
) -> None:
    with open_page(machine.home) as page:
        machine("connect", "codex")
        starts.clear()
        text = whole_page(page)

    assert "Codex" in text and "not started" not in text
    [(_, program, words)] = [one for one in starts if one[0] == "subprocess.Popen"]
    assert "serve" in map(str, words) and "--json" not in map(str, words), program


def test_tokens_are_shown_without_their_secrets_and_a_broken_file_is_named(
    machine: CommandLine,
) -> None:
    with open_page(machine.home) as page:
        _, secret = Tokens(machine.home).add("laptop", [Permission.READ, Permission.WRITE])
        text = whole_page(page)
        assert "laptop" in text and "read, write" in text and secret not in text

    (machine.home / FILE).write_text("{", encoding="utf-8")
    with open_page(machine.home) as page:
        assert f"{machine.home / FILE} is not a list of tokens." in whole_page(page)
