"""The commands with which a person names commands: executor, scorer, judge, reviewer, proposer."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import Row, say, show_table
from evolvable_server.person import ROLES, Command, PersonConfig, config_path, read_person_config
from evolvable_store.errors import InvalidArgument

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

RESERVED = frozenset(
    ("anthropic", "auto", "caller", "claude", "codex", "command", "false", "handoff", "no", "none", "off", "simulated")
)
"""Words that settings and options have a meaning of their own for."""


@dataclass(frozen=True, slots=True)
class Named:
    """A command that the person named."""

    name: str
    command: list[str]
    folder: str


@dataclass(frozen=True, slots=True)
class AllNamed:
    """The commands of one role. path: the person's configuration."""

    role: str
    path: str
    commands: list[Named]


def _group(role: str, uses: str) -> click.Command:
    """Return the command for one role. uses: where its names are used."""
    word = role.removesuffix("s")

    @command(word)
    @click.argument("action", type=click.Choice(["add", "list", "remove"]), default="list")
    @click.argument("name", required=False)
    @click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
    @click.option(
        "--folder",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
        help="With add: where files that COMMAND names are looked for [default: this folder].",
    )
    def run(state: State, action: str, name: str | None, words: tuple[str, ...], folder: Path | None) -> None:
        if (action == "list") != (name is None):
            raise click.UsageError(f"`{word} list` takes no name, every other action the name of a command.")
        if action != "add" and (words or folder):
            raise click.UsageError(f"A command and --folder go with `{word} add`.")
        if name is None:
            _show_all(state, _all(role, read_person_config()))
        elif action == "add":
            _add(state, role, name, words, folder)
        else:
            _remove(state, role, name)

    run.help = (
        f"Name the commands that may be used as {word}.\n\nOnly what is named here runs, by its name, in {uses}. The"
        " names are kept in your own configuration; `--` stands before COMMAND. Relative words of COMMAND that name a"
        " file in the folder stand for that file."
    )
    return run


def _add(state: State, role: str, name: str, words: tuple[str, ...], folder: Path | None) -> None:
    from evolvable_server.person_file import add_command

    if not words or not words[0]:
        raise click.UsageError("Name the command, behind `--`.")
    if not _NAME.fullmatch(name) or name in RESERVED:
        hint = "Use up to 64 small letters, digits, dashes and underscores, and no word that has a meaning of its own."
        raise InvalidArgument(f"{ascii(name[:80])} cannot be the name of a command.", hint)
    made = add_command(role, name, words, str((folder or Path.cwd()).absolute()), state.signer())
    named = _named(made.commands[role][name])
    state.show(named, lambda: say(f"{name} is {shlex.join(named.command)}; its files are looked for in {named.folder}"))


def _remove(state: State, role: str, name: str) -> None:
    from evolvable_server.person_file import remove_command

    left = _all(role, remove_command(role, name, state.signer()))
    state.show(left, lambda: say(f"{name} is removed."))


def _all(role: str, config: PersonConfig) -> AllNamed:
    named = [_named(one) for one in config.commands.get(role, {}).values()]
    return AllNamed(role, str(config.path or config_path() or ""), named)


def _named(one: Command) -> Named:
    return Named(one.name, list(one.argv), one.folder)


def _show_all(state: State, found: AllNamed) -> None:
    def render() -> None:
        if not found.commands:
            say(f"No {found.role.removesuffix('s')} is named in {found.path}")
            return
        rows: list[Row] = [[(one.name, "bold"), shlex.join(one.command), one.folder] for one in found.commands]
        show_table(["name", "command", "folder"], rows, wide=("command", "folder"))

    state.show(found, render)


executor_command = _group("executors", "`evolve start --executor`")
scorer_command = _group("scorers", "the tasks of a task set: a `command` scorer with the argument `name`")
judge_command = _group("judges", "`evolve start --judge` and EVOLVABLE_JUDGE")
reviewer_command = _group("reviewers", "EVOLVABLE_REVIEW")
proposer_command = _group("proposers", "`evolve start --brain`")

assert {one.removesuffix("s") for one in ROLES} == {"executor", "scorer", "judge", "reviewer", "proposer"}
