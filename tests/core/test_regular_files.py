"""A pipe or a device where a file is expected: nobody waits for it, reads it without an end, or
believes it.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text
from transcripts import Says, User, write_claude_code

from evolvable_store.regular_files import read_regular, regular_file

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are POSIX"),
]

Put = Callable[[Path], None]


def put_pipe(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path, 0o600)


def put_link_to_device(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/zero")


PUTS = pytest.mark.parametrize("put", [put_pipe, put_link_to_device])


@pytest.fixture
def run(tmp_path: Path) -> CommandLine:
    """A library whose commands run as processes: one that waits ends its test after a minute."""
    made = CommandLine(tmp_path)
    made.save(tmp_path / "skills", "pdf", skill_text("pdf"))
    assert made("init", tmp_path / "skills", "--yes").code == 0
    return made


@PUTS
def test_only_a_regular_file_is_opened(tmp_path: Path, put: Put) -> None:
    put(tmp_path / "odd")
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")

    for path in (tmp_path / "odd", tmp_path, tmp_path / "nothing"):
        with pytest.raises(OSError):
            regular_file(path, os.O_RDONLY)
    assert read_regular(tmp_path / "file") == read_regular(tmp_path / "link", 4) == b"text"
    with pytest.raises(OSError, match="more than 3 bytes"):
        read_regular(tmp_path / "file", 3)


@PUTS
def test_a_pipe_or_a_device_among_transcripts_hides_no_session(
    run: CommandLine, tmp_path: Path, put: Put
) -> None:
    transcript = write_claude_code(
        Path(run.environment["HOME"]), [User("Fill the form."), Says("Done.")]
    )
    put(transcript.with_name("44444444-4444-4444-4444-444444444444.jsonl"))
    put(transcript.with_suffix("") / "subagents" / "agent-x.jsonl")
    (transcript.with_suffix("") / "subagents" / "agent-y.jsonl").write_text("")
    put(transcript.with_suffix("") / "subagents" / "agent-y.meta.json")

    listed = run.process("sessions", "--json")

    assert listed.code == 0, listed.err
    assert [Path(one["path"]) for one in listed.json["sessions"]] == [transcript]


@PUTS
@pytest.mark.parametrize(
    ("command", "name", "options"),
    [
        ("import", "x.zip", ()),
        ("import", "x.json", ()),
        ("taskset import", "x.csv", ("--question", "q", "--answer", "a")),
    ],
)
def test_an_archive_or_a_table_that_is_no_file_is_refused(
    run: CommandLine, tmp_path: Path, put: Put, command: str, name: str, options: tuple[str, ...]
) -> None:
    put(tmp_path / name)

    done = run.process(*command.split(), tmp_path / name, *options)

    assert done.code == 1 and "a pipe or a device" in " ".join(done.err.split())


@PUTS
def test_a_configuration_that_is_no_file_is_refused_with_its_path(
    run: CommandLine, put: Put
) -> None:
    run.configure("")
    path = next(Path(run.environment["HOME"]).parent.rglob("config.toml"))
    path.unlink()
    put(path)

    done = run.process("list")

    assert done.code == 1
    assert f"{path} cannot be read: " in done.err and "a pipe or a device" in done.err


@PUTS
def test_settings_of_a_client_that_are_no_file_stop_no_command(
    run: CommandLine, tmp_path: Path, put: Put
) -> None:
    home = Path(run.environment["HOME"])
    for name in ("settings.json", "settings.local.json", "plugins/x/hooks.json"):
        put(home / ".claude" / name)
    put(home / ".codex" / "config.toml")
    put(tmp_path / "library" / "clients" / "client-x.json")

    done = run.process("doctor", "--json")

    assert done.code in (0, 1, 4) and json.loads(done.out)


@PUTS
def test_a_skill_whose_files_are_no_files_is_left_out_and_the_others_are_imported(
    run: CommandLine, tmp_path: Path, put: Put
) -> None:
    run.save(tmp_path / "more", "csv", skill_text("csv"))
    put(tmp_path / "more" / "odd" / "SKILL.md")
    put(tmp_path / "more" / "csv" / "notes.md")

    done = run.process("init", tmp_path / "more", "--yes")

    assert done.code in (0, 1, 4), done.err
    assert {"skill:csv", "skill:pdf"} == {
        one["ref"] for one in run("list", "--json").json["resources"]
    }
