"""The commands that name a person's commands: executor, scorer, judge, reviewer, proposer."""

import re
import shlex
from pathlib import Path
from typing import Any

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.terminal import confirm_replacement, say, show_table
from evolvable_server.config_edits import add_command, remove_command
from evolvable_server.person_config import ROLES, Command, PersonConfig
from evolvable_server.second_config import own_path
from evolvable_store.errors import InvalidArgument

# Keys of TOML without quotes, which neither a shell nor an option reads in another way.
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

RESERVED = frozenset(
    (
        "anthropic",
        "auto",
        "caller",
        "claude",
        "codex",
        "command",
        "false",
        "handoff",
        "no",
        "none",
        "off",
        "openai",
        "proxy",
        "simulated",
    )
)
"""Words that settings and options have a meaning of their own for."""


def _make_command(role: str, uses: str) -> click.Command:
    """Return the command for one role. uses: where its names are used."""
    word = role.removesuffix("s")

    @command(word, table=True)
    @click.argument("action", type=click.Choice(["add", "list", "remove"]), default="list")
    @click.argument("name", required=False)
    # UNPROCESSED: options of the command behind `--` are not ours.
    @click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
    @click.option(
        "--folder",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
        help="With add: where files that COMMAND names are looked for [default: this folder].",
    )
    @click.option(
        "--agents",
        is_flag=True,
        hidden=role != "executors",
        help="With add: the command can be given agents, and hands tasks to them (`--mode "
        "structure`).",
    )
    @click.option(
        "--yes", is_flag=True, help="With add: do not ask whether NAME replaces another command."
    )
    def run(
        state: CommandContext,
        action: str,
        name: str | None,
        words: tuple[str, ...],
        yes: bool,
        **options: Any,
    ) -> Output[Any]:
        folder, agents = options["folder"], options["agents"]
        if (action == "list") != (name is None):
            raise click.UsageError(
                f"`{word} list` takes no name, every other action the name of a command."
            )
        if action != "add" and (words or folder or agents or yes):
            raise click.UsageError(f"A command, --folder, --agents and --yes go with `{word} add`.")
        if agents and role != "executors":
            raise click.UsageError(
                "--agents goes with `role executor add`: only an executor is given agents."
            )
        if name is None:
            return Output(_list_commands(role, state.config().person), _show_all)
        if action == "add":
            # Relative words of the command are looked for in this folder from any other one.
            entry = Command(name, words, str((folder or Path.cwd()).absolute()), agents)
            return _add_entry(state, role, entry, yes=yes)
        left = remove_command(role, name, state.config().home, state.signer())
        return Output(_list_commands(role, left), lambda _: say(f"{name} is removed."))

    # The help names the role, so no docstring can hold it.
    run.help = _write_help(word, uses)
    return run


def _write_help(word: str, uses: str) -> str:
    return (
        f"Name the commands that may be used as {word}.\n\n"
        f"Only what is named here runs, by its name, in {uses}. The names are kept in your own "
        "configuration; `--` stands before COMMAND. Relative words of COMMAND that name a file "
        "in the folder stand for that file."
    )


def _add_entry(state: CommandContext, role: str, entry: Command, *, yes: bool) -> Output[Any]:
    name, config = entry.name, state.config()
    if not entry.argv or not entry.argv[0]:
        raise click.UsageError("Name the command, behind `--`.")
    if not NAME.fullmatch(name) or name in RESERVED:
        hint = (
            "Use up to 64 small letters, digits, dashes and underscores, and no word that has a "
            "meaning of its own."
        )
        raise InvalidArgument(f"{ascii(name[:80])} cannot be the name of a command.", hint)
    if name in config.person.endpoints:
        raise InvalidArgument(
            f"{name} is the name of a model.", "Choose another name, or remove the model."
        )
    current = config.person.editable.command(role, name)
    # The same entry once more replaces nothing.
    if current is not None and current != entry:
        word = role.removesuffix("s")
        confirm_replacement(
            f"The {word} {name}", _describe_command(current), _describe_command(entry), yes=yes
        )
    add_command(role, entry, config.home, state.signer())
    return Output(_make_row(entry), lambda _: say(f"{name} is {_describe_command(entry)}"))


def _describe_command(entry: Command) -> str:
    suffix = "; it can be given agents" if entry.agents else ""
    return (
        f"{shlex.join(entry.argv)}; its files are looked for in "
        f"{entry.folder or 'the folder of the caller'}{suffix}"
    )


def _list_commands(role: str, config: PersonConfig) -> dict[str, Any]:
    """Return the commands of one role, and the path of the person's configuration."""
    commands = [_make_row(entry) for entry in config.commands.get(role, {}).values()]
    return {
        "role": role,
        "path": str(config.editable.path or own_path() or ""),
        "commands": commands,
    }


def _make_row(entry: Command) -> dict[str, Any]:
    agents = {"agents": True} if entry.agents else {}
    return {"name": entry.name, "command": list(entry.argv), "folder": entry.folder, **agents}


def _show_all(listing: dict[str, Any]) -> None:
    if not listing["commands"]:
        say(f"No {listing['role'].removesuffix('s')} is named in {listing['path']}")
        return
    show_table(
        ["name", "command", "folder"],
        [
            [(row["name"], "bold"), shlex.join(row["command"]), row["folder"]]
            for row in listing["commands"]
        ],
        names=("name", "folder"),
        wide=("command",),
        spare=("folder",),
    )


executor_command = _make_command("executors", "`evolve start --executor`")
scorer_command = _make_command(
    "scorers", "the tasks of a task set: a `command` scorer with the argument `name`"
)
judge_command = _make_command("judges", "`evolve start --judge` and `role model role judge`")
reviewer_command = _make_command("reviewers", "`role model role reviewer`")
proposer_command = _make_command("proposers", "`evolve start --brain`")

# The commands above are one for each role of the configuration.
assert {role.removesuffix("s") for role in ROLES} == {
    "executor",
    "scorer",
    "judge",
    "reviewer",
    "proposer",
}
