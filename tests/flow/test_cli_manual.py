"""The examples in docs/cli.md are one story; told again, it ends as written. Run with
EVOLVABLE_UPDATE_GOLDEN=1 to write what is printed now into the manual.
"""

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from evolvable_server.cli.command_line import cli
from evolvable_server.config import MARKS

pytestmark = pytest.mark.process

MANUAL = Path(__file__).parents[2] / "docs/cli.md"

ADA = "/home/ada-king"
"""The home folder in the manual; as long as the real one, so that the tables look right."""

CODES = {"Error:": 1, "skipped (conflict):": 4, "Wrong:": 4, "Nothing in the library fits": 3}
"""What an example says that does not end with 0."""

VARIES = ("doctor", "find", "quickstart")
"""Commands whose output depends on the machine or the ranking: the exit code is compared, and the
lines of FIXED.
"""

FIXED = (
    "library ",
    "holds ",
    "folder ",
    "The library is in",
    "  skills that come",
    "  /home",
    "find_skill(",
)
"""How lines of these commands begin that are the same on every machine, but for the number of rows
and bytes.
"""

SKILLS = {
    "pdf": (
        "---\nname: pdf\ndescription: Merge, split and fill PDF forms.\n---\n\n# PDF\n\nUse qpdf.\n"
    ),
    "csv": (
        "---\nname: csv\ndescription: Clean and summarise CSV tables.\n---\n\n# CSV\n\n"
        "Use csvkit.\n"
    ),
}


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home folder with the skills of the story, and a project that is the working directory."""
    if os.name != "posix":
        pytest.skip("the story uses a shell")
    root = Path(tempfile.mkdtemp(prefix="a", dir="/tmp"))
    for name, text in SKILLS.items():
        folder = root / ".claude/skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(text, encoding="utf-8")
    (root / "project").mkdir()
    monkeypatch.chdir(root / "project")
    for name in (
        "EVOLVABLE_HOME",
        "EVOLVABLE_SCOPE",
        "EVOLVABLE_SESSION",
        "CLAUDE_PROJECT_DIR",
        "COLUMNS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(root))
    # The story is a person's, at a terminal.
    monkeypatch.setenv("EVOLVABLE_TEST_ACCOUNT", str(root))
    monkeypatch.setenv("EVOLVABLE_TEST_TERMINAL", "1")
    # The person found the command by its name; who runs the tests may have named Python by its
    # path.
    monkeypatch.setenv("PATH", sysconfig.get_path("scripts"), prepend=os.pathsep)
    for name in MARKS:
        monkeypatch.delenv(name, raising=False)
    yield root
    shutil.rmtree(root)


def test_the_examples_in_the_manual_are_true(home):
    """Docs are tested."""
    lines = MANUAL.read_text(encoding="utf-8").split("\n")
    told: list[str] = []
    wrong: list[str] = []
    while lines:
        line = lines.pop(0)
        told.append(line)
        if line.startswith("$ "):
            written = list(takewhile(lambda line: not line.startswith(("$ ", "```")), lines))
            lines = lines[len(written) :]
            code, output = _run(line[2:], home)
            shown = output.rstrip("\n").split("\n") if output.strip() else []
            told += shown
            if code != _code(shown) or _comparable(line, shown) != _comparable(line, written):
                wrong.append("\n".join([f"{line}  [{code}]", *shown]))
    if os.environ.get("EVOLVABLE_UPDATE_GOLDEN"):
        MANUAL.write_text("\n".join(told), encoding="utf-8")
        return

    assert wrong == []


def _run(line: str, home: Path) -> tuple[int, str]:
    """Returns the exit code and the output of an example, with Ada's folders instead of ours."""
    command, _, target = line.partition(" > ")
    program, *arguments = [re.sub("^~", str(home), word) for word in shlex.split(command)]
    if program != "evolvable":
        subprocess.run(["bash", "-c", line], check=True)
        return 0, ""
    # Ada presses Enter.
    result = CliRunner().invoke(cli, arguments, input="\n" if arguments[0] == "init" else None)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if target:
        return result.exit_code, ""
    scripts = sysconfig.get_path("scripts")
    text = result.output.replace(scripts, f"{ADA}/.venv/bin")
    return result.exit_code, text.replace(str(home.resolve()), ADA).replace(str(home), ADA)


def _code(shown: list[str]) -> int:
    return next(
        (code for text, code in CODES.items() if any(line.startswith(text) for line in shown)), 0
    )


def _comparable(command: str, lines: list[str]) -> str:
    if command.split()[1:2] != ["evolvable"] or command.split()[2] not in VARIES:
        return _plain(lines)
    fixed = [line for line in lines if line.startswith(FIXED)]
    return _plain(fixed)


def _plain(lines: list[str]) -> str:
    """Returns the text without what differs each time: times, sizes in bytes, ids, and the width of
    columns.
    """
    text = re.sub(r"\b(use|search)-[0-9a-f]{12}\b", r"\1-id", " ".join(" ".join(lines).split()))
    text = re.sub(r"\[(/?)[0-9a-f]{16}\]", r"[\1mark]", text)
    text = re.sub(
        r"\b\d{4}-\d\d-\d\d(?: \d\d:\d\d)?|\b\d{8}T\d{6}(?:-\d+)?|\b[0-9a-f]{12}\b", "0", text
    )
    return re.sub(r"[\d,]+ bytes|[\d.]+ (?:m?s|seconds)\b|\d+%", "0", text)


def test_the_examples_without_output_call_commands_with_options_that_they_have():
    lines = re.findall(
        r"^    evolvable (.+)$",
        re.sub(r"```.*?```", "", MANUAL.read_text("utf-8"), flags=re.S),
        re.M,
    )
    assert len(lines) > 20
    for line in lines:
        words = list(takewhile(lambda word: word != "--", shlex.split(line)))
        command: click.Command = cli
        while isinstance(command, click.Group) and words:
            found = command.get_command(click.Context(command), words[0])
            if found is None:
                break
            command, words = found, words[1:]
        known = {name for parameter in command.params for name in parameter.opts}
        assert command is not cli and {word for word in words if word.startswith("-")} <= known, (
            line
        )
