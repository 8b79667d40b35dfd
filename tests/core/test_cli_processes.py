"""The command line as processes of its own: quickstart, interrupts, terminals, pipes, and what
start-up loads.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store

pytestmark = pytest.mark.process

posix = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX terminal or signals")

ROWS = {"log": 4, "history": 3, "folders": 1, "list": 2, "sync": 1}
"""Rows of the tables in `test_tables_fit_the_terminal`."""

HEAVY = ("wcwidth", "yaml", "sqlite_utils", "watchfiles", "mcp", "uvicorn")
"""What no command may load before it is needed."""


@pytest.fixture
def machine(tmp_path: Path) -> CommandLine:
    """A machine without a library."""
    return CommandLine(tmp_path)


def put(machine: CommandLine, name: str, data: bytes, reason: str = "write it") -> None:
    with (
        Store.open(machine.home, create=True) as store,
        store.transaction(Actor.AGENT, reason) as tx,
    ):
        tx.put(Ref.parse(name), {"SKILL.md": File(data)})


def test_the_module_runs_as_the_command(machine):
    ran = machine.process("--version")

    assert (ran.code, ran.out.split()[0]) == (0, "evolvable,")


@pytest.mark.parametrize(
    "arguments, code",
    [(["log"], 1), (["wat"], 2), (["--help"], 0), (["get", "Bad Name", "--json"], 1)],
)
def test_exit_codes_are_those_of_the_process(machine, arguments, code):
    ran = machine.process(*arguments)

    assert ran.code == code
    assert "Traceback" not in ran.err


def test_quickstart_shows_everything_in_an_empty_home(machine):
    """README's first line: a library, the seed skills, a server, one answer over MCP, what to type
    next.
    """
    ran = machine.process("quickstart", "--home", machine.home)

    assert ran.code == 0, ran.err
    assert f"The library is in {machine.home}\n" in ran.out
    assert 'find_skill("write a good commit message for my staged changes") over MCP' in ran.out
    assert "skill:write-commit-messages@1" in ran.out
    assert f"--home {machine.home} connect claude-code\n" in ran.out
    assert f"--home {machine.home} connect codex\n" in ran.out

    again = machine.process("quickstart", "--home", machine.home, "--json")
    assert again.code == 0, again.err
    assert all(not copied["added"] and not copied["refused"] for copied in again.json["copied"])
    assert again.json["found"]["matches"][0]["ref"] == "skill:write-commit-messages"


def test_quickstart_is_a_demonstration_that_leaves_nothing(machine, tmp_path):
    machine.save(
        machine.user / ".claude/skills",
        "pdf",
        skill_text("pdf", "Merge, split and fill PDF forms."),
    )
    place = tmp_path / "tmp"
    place.mkdir()

    ran = machine.process("quickstart", env={**machine.environment, "TMPDIR": str(place)})

    assert ran.code == 0, ran.err
    assert "skill:pdf@1" in ran.out and ran.out.endswith(": evolvable setup\n")
    assert not machine.home.exists() and list(place.iterdir()) == []


def test_quickstart_copies_skills_and_writes_into_no_folder(machine):
    client = machine.user / ".claude/skills"
    machine.save(client, "pdf", skill_text("pdf", "Merge, split and fill PDF forms."))
    machine.save(client, "broken", "---\nname: broken\ndescription: &a [*a]\n---\n")
    before = sorted((str(path), path.stat().st_mtime_ns) for path in client.rglob("*"))

    ran = machine.process(
        "quickstart", "--home", machine.home, "--task", "fill a PDF form", "--json"
    )

    assert ran.code == 0, ran.err
    copied = ran.json["copied"][1]
    assert (copied["path"], copied["added"], copied["refused"][0][0]) == (
        str(client),
        ["skill:pdf"],
        "broken",
    )
    assert ran.json["found"]["matches"][0]["ref"] == "skill:pdf"
    assert machine.process("folders", "--json").json == {"folders": []}
    assert sorted((str(path), path.stat().st_mtime_ns) for path in client.rglob("*")) == before


@pytest.mark.parametrize(
    "name", ["pdf", "write-a-skill"], ids=["another-name", "the-name-of-a-bundled-skill"]
)
def test_quickstart_of_a_reader_with_skills_brings_none_and_asks_about_one_of_the_readers(
    machine, name
):
    folder = machine.user / ".claude/skills"
    machine.save(
        folder, name, skill_text(name, "Merge, split and fill PDF forms. Use it for any form.")
    )

    ran = machine.process("quickstart", "--home", machine.home)
    again = machine.process("quickstart", "--home", machine.home, "--json").json

    assert ran.code == 0, ran.err
    assert "skills that come with evolvable: left out" in ran.out
    answer = ran.out.partition('find_skill("Merge, split and fill PDF forms.") over MCP')[2]
    assert answer.splitlines()[1].startswith(f"  skill:{name}@1, ")
    assert [one["ref"] for one in machine.process("list", "--json").json["resources"]] == [
        f"skill:{name}"
    ]
    assert (again["task"], again["found"]["verdict"]) == (
        "Merge, split and fill PDF forms.",
        "sure",
    )


def test_quickstart_leaves_alone_what_the_library_has_or_had(machine, tmp_path):
    theirs = tmp_path / "theirs"
    machine.save(theirs, "pdf", skill_text("pdf"))
    machine.save(theirs, "csv", skill_text("csv"))
    put(machine, "pdf", b"mine")
    put(machine, "csv", b"mine")
    machine.process("remove", "csv")

    ran = machine.process("quickstart", "--home", machine.home, theirs, "--json")

    assert ran.json["copied"][1]["known"] == ["skill:csv", "skill:pdf"]
    assert machine.process("get", "pdf").out == "mine"
    assert machine.process("get", "csv").code == 1


def test_a_server_that_cannot_start_is_an_error_with_a_hint(machine):
    machine.process("quickstart", "--home", machine.home)
    library = machine.home / "library.db"
    library.write_bytes(b"not a database at all" * 100)

    ran = machine.process("quickstart", "--home", machine.home)

    assert ran.code == 1
    assert "Traceback" not in ran.err and "Hint: " in ran.err


@posix
def test_an_interrupt_at_a_question_ends_with_130(machine):
    machine.save(machine.user / ".claude/skills", "pdf", skill_text("pdf"))
    with machine.start("init", stdin=subprocess.PIPE) as process:
        asked = ""
        while "[Y/n]" not in asked:
            part = process.stderr.read(1)
            assert part, asked
            asked += part
        _wait_until_it_reads(process.pid)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)  # with its stdin open: the end of it would be an answer
        _, err = process.communicate()

    assert process.returncode == 130
    assert "Traceback" not in err
    assert not machine.home.exists()


@posix
def test_an_interrupt_while_reading_ends_with_130_and_changes_nothing(machine):
    put(machine, "pdf", skill_text("pdf").encode())
    with machine.start("update", "pdf", "--file", "SKILL.md=-", stdin=subprocess.PIPE) as process:
        _wait_until_it_reads(process.pid)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)  # with its stdin open: the end of it would be an answer
        _, err = process.communicate()

    assert process.returncode == 130
    assert "Traceback" not in err
    assert machine.process("get", "pdf").out == skill_text("pdf")


def _wait_until_it_reads(process: int) -> None:
    """Returns when a process waits for its stdin, a pipe: a signal just before would not wake it
    from there.
    """
    where = Path(f"/proc/{process}/wchan")
    if not where.exists():
        time.sleep(3)
        return
    deadline = time.monotonic() + 30
    while "pipe" not in where.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@posix
def test_a_full_disk_at_the_other_end_is_an_error(machine):
    put(machine, "pdf", skill_text("pdf").encode())
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    for arguments in (["get", "pdf"], ["log"], ["history", "pdf", "--json"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            ran = machine.process(*arguments, stdout=full)

        assert ran.code == 1, arguments
        assert "Error: No space left on device.\n" in ran.err


@posix
def test_a_reader_that_went_away_is_no_traceback(machine):
    put(machine, "pdf", skill_text("pdf", body="line\n" * 100_000).encode())
    for arguments in (["get", "pdf"], ["load", "pdf"], ["log"], ["--help"]):
        with machine.start(*arguments) as process:
            process.stdout.close()
            err = process.stderr.read()
            process.wait(timeout=30)
        assert "Traceback" not in err and "Exception" not in err, arguments


def test_a_terminal_that_knows_only_ascii_is_no_reason_to_fail(machine):
    put(machine, "pdf", skill_text("pdf", body="caf\u00e9 \u65e5\u672c").encode(), "caf\u00e9")
    env = {**machine.environment, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}

    for arguments in (["load", "pdf"], ["log"], ["history", "pdf", "--diff", "1"]):
        ran = machine.process(*arguments, env=env)
        assert (ran.code, ran.err) == (0, ""), arguments
        assert "caf" in ran.out


@posix
@pytest.mark.parametrize("columns", [40, pytest.param(80, marks=pytest.mark.nightly)])
def test_tables_fit_the_terminal(machine, columns):
    for number in range(3):
        put(
            machine,
            "pdf",
            skill_text("pdf", body=f"{number}").encode(),
            f"a reason of many words, number {number}",
        )
    machine.save(machine.project / "skills", "csv", skill_text("csv"))
    machine.process("init", machine.project / "skills", "--yes")

    for arguments in (["log"], ["history", "pdf"], ["folders"], ["list"], ["folders", "sync"]):
        shown = machine.on_terminal(*arguments, columns=columns)
        tables = shown.split("\n\n")[0].partition("\x1b[2mNot shown")[0]
        assert max(len(_plain(line)) for line in tables.splitlines()) <= columns, arguments
        rows = [line for line in tables.splitlines() if line.strip()]
        assert len(rows) == 1 + (ROWS.get(arguments[-1]) or ROWS[arguments[0]])


def _plain(line: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", line)


@posix
def test_on_a_terminal_stored_text_cannot_steer_it(machine):
    """attacks.json unicode-09: ANSI and OSC sequences in text that is shown."""
    evil = "\x1b[2J\x1b]0;pwn\x07 a\rb \u202e"
    put(machine, "pdf", skill_text("pdf", body="before").encode())
    put(machine, "pdf", skill_text("pdf", body=evil).encode(), f"why {evil}")

    for arguments in (
        ["get", "pdf"],
        ["load", "pdf"],
        ["log"],
        ["history", "pdf"],
        ["history", "pdf", "--diff", "2"],
    ):
        shown = machine.on_terminal(*arguments, columns=200)
        assert "pwn" in shown, arguments
        assert not {"\x07", "\r", "\u202e"} & set(shown)
        assert "\x1b[2J" not in shown and "\x1b]" not in shown


@posix
def test_a_diff_is_coloured_on_a_terminal(machine):
    put(machine, "pdf", skill_text("pdf", body="old").encode())
    put(machine, "pdf", skill_text("pdf", body="new").encode())

    shown = machine.on_terminal("history", "pdf", "--diff", "1..2")

    assert "\x1b[31m-old" in shown and "\x1b[32m+new" in shown


@pytest.mark.parametrize(
    "module",
    [
        "command_line",
        "read_commands",
        "version_commands",
        "folder_commands",
        "doctor_command",
        "maintenance",
        "archive_commands",
    ],
)
def test_no_command_loads_what_it_may_not_need(machine, module):
    """Start to first answer. `serve` loads the MCP SDK itself, and nothing else of these."""
    code = (
        f"import sys, json, evolvable_server.cli.command_line, evolvable_server.cli.{module};"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]),"
        "json.dumps([name for name in sys.modules if name.startswith('evolvable_server.cli.')]), "
        "sep='\\n')"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, encoding="utf-8", check=True
    )

    loaded, ours = map(json.loads, ran.stdout.splitlines())
    assert loaded == []
    if module == "command_line":
        light = {
            "command_context",
            "command_groups",
            "command_line",
            "exit_codes",
            "progress",
            "serve_start",
            "terminal",
        }
        assert {name.rpartition(".")[2] for name in ours} <= light


def test_the_version_is_told_without_loading_any_command(machine):
    ran = machine.process("--version", flags=("-X", "importtime"))

    loaded = {line.rpartition("|")[2].strip() for line in ran.err.splitlines()}
    assert "evolvable_server.cli.command_line" in loaded
    assert not loaded & {
        "wcwidth",
        "yaml",
        "sqlite_utils",
        "sqlite3",
        "evolvable_store.store",
        "evolvable_tools.library",
    }


@posix
def test_refs_complete_in_a_shell(machine):
    put(machine, "pdf-forms", b"x")
    env = {
        **machine.environment,
        "_EVOLVABLE_COMPLETE": "bash_complete",
        "COMP_WORDS": "evolvable get pdf",
        "COMP_CWORD": "2",
    }

    assert machine.process(env=env).out.split() == ["plain,pdf-forms"]
