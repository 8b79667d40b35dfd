"""The words of the command line: few that are shown first, groups for the rest, and every older
name goes on.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_line import CommandLine, skill_text

from evolvable_server.cli.command_context import CommandContext
from evolvable_server.cli.command_line import cli
from evolvable_store.paths import LIBRARY_FILE
from evolvable_tools.verbs.registry import EXAMPLES, FIRST, PLACES, place_of, verb_at

BEFORE_GROUPS = (
    *(
        "find",
        "load",
        "report",
        "status",
        "show",
        "diff",
        "list",
        "get",
        "history",
        "log",
        "audit",
        "stats",
        "learned",
    ),
    *(
        "sessions",
        "new",
        "edit",
        "update",
        "restore",
        "remove",
        "undo",
        "review",
        "inbox",
        "approvals",
        "memory",
    ),
    *(
        "compress",
        "publish",
        "channel",
        "round",
        "pool",
        "rspl",
        "tool",
        "executor",
        "scorer",
        "judge",
        "reviewer",
    ),
    *(
        "proposer",
        "model",
        "taskset",
        "ags",
        "evolve",
        "quickstart",
        "init",
        "folders",
        "trust",
        "approve",
        "sync",
    ),
    *(
        "checkout",
        "collection",
        "connect",
        "disconnect",
        "serve",
        "join",
        "bridge",
        "token",
        "ui",
        "doctor",
        "scan",
    ),
    *(
        "fsck",
        "gc",
        "purge",
        "trash",
        "backup",
        "recover",
        "export",
        "import",
        "uninstall",
        "remote",
        "clone",
    ),
    *("push", "pull", "move"),
)
"""The commands of the time when all of them stood side by side."""

MOST_WORDS = 44

PROJECT = Path(__file__).parents[2]
CONTEXT = click.Context(cli, info_name="evolvable")


def all_commands(
    ctx: click.Context, group: click.Group
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and group, with the words that call it."""
    for word in group.list_commands(ctx):
        found = group.get_command(ctx, word)
        assert found is not None
        yield (word,), found
        if isinstance(found, click.Group):
            yield from (((word, *rest), below) for rest, below in all_commands(ctx, found))


COMMANDS = dict(all_commands(CONTEXT, cli))


@pytest.fixture
def run(tmp_path: Path) -> CommandLine:
    """A machine with one skill of the person."""
    made = CommandLine(tmp_path)
    made.person = True
    made("update", "pdf", "--create", "--file", "SKILL.md=-", stdin=skill_text("pdf"), code=None)
    made("init", made.save(made.user / ".claude/skills", "pdf", skill_text("pdf")).parent)
    return made


def test_the_help_shows_the_commands_of_every_day_alone():
    shown = (
        CliRunner()
        .invoke(cli, ["--help"])
        .stdout.partition("\nCommands:\n")[2]
        .partition("\n\n")[0]
    )
    words = [line.split("  ")[1] for line in shown.splitlines()]

    assert len(FIRST) == 14
    assert set(words) <= {*FIRST, "evolve measure"} and len(words) >= 13
    assert [name for name in FIRST if name in words] == [word for word in words if word in FIRST]


def test_there_are_at_most_44_words_and_each_is_in_the_whole_help():
    words = cli.list_commands(click.Context(cli))
    whole = CliRunner().invoke(cli, ["help", "--all"]).stdout

    assert len(words) == len(set(words)) <= MOST_WORDS
    assert all(f"\n  {word} " in f"\n{whole}" for word in words)


@pytest.mark.parametrize("name", BEFORE_GROUPS)
def test_a_name_of_before_the_groups_calls_the_same_command_and_no_script_sees_a_hint(name):
    old = CliRunner().invoke(cli, [name, "--help"])
    new = CliRunner().invoke(cli, [*place_of(name).split(), "--help"])

    assert old.exit_code == new.exit_code == 0
    assert "now:" not in old.output
    if name != "backup":
        assert old.stdout.partition("\n\n")[2] == new.stdout.partition("\n\n")[2]


def test_every_older_name_is_in_the_table_of_places_or_a_word_still():
    words = cli.list_commands(click.Context(cli))

    assert all(name in PLACES or name in words for name in BEFORE_GROUPS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_help_of_every_command_ends_with_an_example_that_calls_it(words):
    shown = CliRunner().invoke(cli, [*words, "--help"], env={"COLUMNS": "80"}).stdout
    _, _, example = shown.partition("\nExample:\n  evolvable ")
    called = shlex.split(example.strip())

    assert tuple(called[: len(words)]) == words
    assert "\n" not in example.strip()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_a_command_line_that_is_understood(name, tmp_path, monkeypatch):
    """Its files are there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in ("downloads/skills", "backups/skills", "work/skills", ".claude/skills"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("skills.zip", "conversation.jsonl", "answer.json", "asked.csv"):
        (tmp_path / file).write_text("{}", encoding="utf-8")
    program, *words = [
        str(Path(word).expanduser()) for word in shlex.split(EXAMPLES[name].partition(" >> ")[0])
    ]
    ctx = click.Context(cli, info_name=program, obj=CommandContext())
    while isinstance(ctx.command, click.Group) and words:
        _, found, rest = ctx.command.resolve_command(ctx, words)
        assert found is not None
        ctx, words = found.make_context(words[0], list(rest), parent=ctx), list(rest)
    for value in ctx.params.values():
        if hasattr(value, "close"):
            value.close()

    assert not isinstance(ctx.command, click.Group) or ctx.command.name == "folders"
    assert verb_at(ctx.command_path.removeprefix("evolvable ")).split()[0]


@pytest.mark.process
def test_a_person_at_a_terminal_sees_the_new_words_of_an_older_name(run):
    assert run.on_terminal("fsck").startswith("now: evolvable care fsck\n")
    assert "now:" not in run.on_terminal("care", "fsck")
    assert "now:" not in run.on_terminal("fsck", "--json")
    assert "now:" not in run.on_terminal("connect", "claude-code", "--dry-run")


@pytest.mark.process
def test_the_hint_goes_to_stderr(run, tmp_path):
    with open(tmp_path / "out", "w+", encoding="utf-8") as out:
        terminal = run.talk("judge", "list")
        shown = terminal.end()
        done = run.process("judge", "list", stdout=out)
        out.seek(0)
        written = out.read()

    assert "now: evolvable role judge\n" in shown
    assert done.err == "" and "now:" not in written


def test_backup_with_a_folder_alone_still_makes_a_copy(run, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    run("backup", old)
    run("backup", "create", new)
    run("--home", run.home, "backup", "--replace", old)

    assert (old / LIBRARY_FILE).is_file() and (new / LIBRARY_FILE).is_file()
    assert run("backup", "restore", new, "--yes", "--json").json["resources"] == 1


def test_a_refusal_names_the_words_that_are_typed(run):
    run.person = False

    assert (
        "`role judge add` is refused" in run("role", "judge", "add", "x", "--", "true", code=1).err
    )
    assert "`role judge add` is refused" in run("judge", "add", "x", "--", "true", code=1).err


@pytest.mark.process
@pytest.mark.parametrize(
    "shell, begins", [("bash", "_evolvable_completion()"), ("zsh", "#compdef evolvable")]
)
def test_completion_prints_what_the_shell_reads(shell, begins):
    assert begins in CliRunner().invoke(cli, ["completion", shell]).stdout


def test_completion_knows_the_groups(monkeypatch):
    asks = {
        "_EVOLVABLE_COMPLETE": "bash_complete",
        "COMP_WORDS": "evolvable role ju",
        "COMP_CWORD": "2",
    }

    assert CliRunner().invoke(cli, [], prog_name="evolvable", env=asks).stdout.split() == [
        "plain,judge"
    ]


def test_the_pages_call_a_command_by_its_words_of_today():
    pages = [PROJECT / "README.md", PROJECT / "SECURITY.md", *(PROJECT / "docs").rglob("*.md")]
    # The page says that a name of before calls the command too.
    explained = {("docs/cli.md", "judge")}
    called = {
        (str(page.relative_to(PROJECT)), word)
        for page in pages
        for word in re.findall(
            r"\bevolvable(?:\s--home \S+)?\s([a-z]+)(?=[\s`])", page.read_text(encoding="utf-8")
        )
    }
    older = {
        name
        for name, place in PLACES.items()
        if name != place and name not in cli.list_commands(CONTEXT)
    }

    assert len(older) > 30
    assert {(page, word) for page, word in called if word in older} == explained
