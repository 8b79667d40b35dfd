"""The commands that name a person's commands (executor, scorer, judge, reviewer, proposer), token and quickstart."""

import dataclasses
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.terminal import (
    confirm_replacement,
    local_time,
    progress,
    remark,
    say,
    shortened,
    show_table,
    show_text,
)
from evolvable_server.client_folders import client_folders, read_client_homes
from evolvable_server.clients.registration import server_start
from evolvable_server.config import Config, read_config
from evolvable_server.config_edits import add_command, remove_command
from evolvable_server.person_config import (
    ROLES,
    Command,
    PersonConfig,
    registered_homes,
)
from evolvable_server.second_config import own_path
from evolvable_store.errors import EvolvableError, InvalidArgument, LibraryError
from evolvable_store.objects import make_manifest
from evolvable_store.paths import check_home, seed_folder, work_tree
from evolvable_store.resource import Kind
from evolvable_store.workingcopy.tree_reader import read_folder
from evolvable_tools.verbs.library_status import proposal_request

if TYPE_CHECKING:
    from evolvable_server.cli.archive_commands import Copied
    from evolvable_server.mcp.server import Permission
    from evolvable_server.transport.http_auth import Token
    from evolvable_store.store import Store
    from evolvable_tools.library import Caller, Library

# Start time: only `token` and `quickstart` need the MCP SDK, and only `quickstart` needs to copy folders.

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

RESERVED = frozenset(
    (
        *(
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
        ),
        *("proxy", "simulated"),
    )
)
"""Words that settings and options have a meaning of their own for."""


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
    @click.option(
        "--agents",
        is_flag=True,
        hidden=role != "executors",
        help="With add: the command can be given agents, and hands tasks to them (`--mode structure`).",
    )
    @click.option("--yes", is_flag=True, help="With add: do not ask whether NAME replaces another command.")
    def run(
        state: CommandContext, action: str, name: str | None, words: tuple[str, ...], yes: bool, **given: Any
    ) -> Output[Any]:
        folder, agents = given["folder"], given["agents"]
        if (action == "list") != (name is None):
            raise click.UsageError(f"`{word} list` takes no name, every other action the name of a command.")
        if action != "add" and (words or folder or agents or yes):
            raise click.UsageError(f"A command, --folder, --agents and --yes go with `{word} add`.")
        if agents and role != "executors":
            raise click.UsageError("--agents goes with `executor add`: only an executor is given agents.")
        if name is None:
            return Output(_all(role, state.config().person), _show_all)
        if action == "add":
            return _add(state, role, Command(name, words, str((folder or Path.cwd()).absolute()), agents), yes=yes)
        left = remove_command(role, name, state.config().home, state.signer())
        return Output(_all(role, left), lambda _: say(f"{name} is removed."))

    run.help = (
        f"Name the commands that may be used as {word}.\n\nOnly what is named here runs, by its name, in {uses}. The"
        " names are kept in your own configuration; `--` stands before COMMAND. Relative words of COMMAND that name a"
        " file in the folder stand for that file."
    )
    return run


def _add(state: CommandContext, role: str, one: Command, *, yes: bool) -> Output[Any]:
    name, config = one.name, state.config()
    if not one.argv or not one.argv[0]:
        raise click.UsageError("Name the command, behind `--`.")
    if not NAME.fullmatch(name) or name in RESERVED:
        hint = "Use up to 64 small letters, digits, dashes and underscores, and no word that has a meaning of its own."
        raise InvalidArgument(f"{ascii(name[:80])} cannot be the name of a command.", hint)
    if name in config.person.endpoints:
        raise InvalidArgument(f"{name} is the name of a model.", "Choose another name, or remove the model.")
    there = config.person.edited.command(role, name)
    if there is not None and there != one:
        word = role.removesuffix("s")
        confirm_replacement(f"The {word} {name}", _in_words(there), _in_words(one), yes=yes)
    add_command(role, one, config.home, state.signer())
    return Output(_named(one), lambda _: say(f"{name} is {_in_words(one)}"))


def _in_words(one: Command) -> str:
    given = "; it can be given agents" if one.agents else ""
    return f"{shlex.join(one.argv)}; its files are looked for in {one.folder or 'the folder of the caller'}{given}"


def _all(role: str, config: PersonConfig) -> dict[str, Any]:
    """Return the commands of one role, and the path of the person's configuration."""
    named = [_named(one) for one in config.commands.get(role, {}).values()]
    return {"role": role, "path": str(config.edited.path or own_path() or ""), "commands": named}


def _named(one: Command) -> dict[str, Any]:
    given = {"agents": True} if one.agents else {}
    return {"name": one.name, "command": list(one.argv), "folder": one.folder, **given}


def _show_all(found: dict[str, Any]) -> None:
    if not found["commands"]:
        say(f"No {found['role'].removesuffix('s')} is named in {found['path']}")
        return
    show_table(
        ["name", "command", "folder"],
        [[(one["name"], "bold"), shlex.join(one["command"]), one["folder"]] for one in found["commands"]],
        names=("name", "folder"),
        wide=("command",),
        spare=("folder",),
    )


executor_command = _group("executors", "`evolve start --executor`")
scorer_command = _group("scorers", "the tasks of a task set: a `command` scorer with the argument `name`")
judge_command = _group("judges", "`evolve start --judge` and `model role judge`")
reviewer_command = _group("reviewers", "`model role reviewer`")
proposer_command = _group("proposers", "`evolve start --brain`")

assert {one.removesuffix("s") for one in ROLES} == {"executor", "scorer", "judge", "reviewer", "proposer"}

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def lifetime(value: str) -> timedelta:
    """Return a time from now on, such as 12h, 30d or 8w."""
    found = re.fullmatch(r"([1-9][0-9]{0,4})([hdw])", value)
    if not found:
        raise click.BadParameter(f"{ascii(value)} is no time such as 12h, 30d or 8w.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


@command("token")
@click.argument("action", type=click.Choice(["add", "list", "revoke"]), default="list")
@click.argument("name", required=False)
@click.option("--report", is_flag=True, help="With add: it may report outcomes.")
@click.option("--write", is_flag=True, help="With add: it may change the library, and report outcomes.")
@click.option("--approve", is_flag=True, help="With add: it may decide about proposals.")
@click.option("--expires", type=lifetime, metavar="TIME", help="With add: how long it is good for, such as 30d.")
def token_command(
    state: CommandContext,
    action: str,
    name: str | None,
    expires: timedelta | None,
    **given: bool,
) -> Output[Any]:
    """Make, list and end tokens for HTTP.

    Every token may read. Its secret is shown once, when it is made; only its hash is stored. A token that is revoked is
    refused at once, by servers that run too. To give a token another permission, revoke it and add it again.
    """
    from evolvable_server.mcp.server import Permission
    from evolvable_server.transport.http_auth import Tokens

    if (action == "list") != (name is None):
        raise click.UsageError("`token list` takes no name, every other action the name of a token.")
    if action != "add" and (expires or any(given.values())):
        raise click.UsageError("--report, --write, --approve and --expires go with `token add`.")
    home = state.config().home
    check_home(home, registered_homes)
    tokens = Tokens(home)
    if name is None:
        found = tokens.all()
        return Output({"tokens": list(map(_token_row, found))}, lambda _: _show_tokens(found))
    if action == "revoke":
        revoked = tokens.revoke(name)
        state.record("revoke token", name)
        return Output(_token_row(revoked), lambda _: say(f"Token {name} is revoked."))
    asked = [permission for permission in Permission if given.get(permission)]
    state.unlock()
    made, secret = tokens.add(name, asked, expires)
    state.record("add token", f"{name}: {', '.join(made.permissions)}")
    return Output(_token_row(made, secret), lambda _: _show_secret(made.name, made.permissions, secret))


def _token_row(token: "Token", secret: str | None = None) -> dict[str, Any]:
    """Return a token as it is shown: its secret only when it was just made."""
    row = dataclasses.asdict(token) | {"secret": secret}
    del row["digest"]
    return row


def _show_secret(name: str, permissions: "tuple[Permission, ...]", secret: str) -> None:
    remark(f"Token {name} may {', '.join(permissions)}. This is its secret; it is not kept and not shown again:")
    say(secret)


def _show_tokens(tokens: "Sequence[Token]") -> None:
    if not tokens:
        say("There are no tokens. `evolvable token add NAME` makes one.")
        return
    now = datetime.now(UTC)
    show_table(
        ["token", "may", "made", "last used", "until"],
        [
            [
                (token.name, "bold"),
                ", ".join(token.permissions),
                local_time(token.created),
                local_time(token.last_used) if token.last_used else "never",
                _until(token.expires, now),
            ]
            for token in tokens
        ],
        names=("token",),
        spare=("made", "last used", "may"),
    )


def _until(expires: str | None, now: datetime) -> str:
    if expires is None:
        return "no end"
    return local_time(expires) + (" (over)" if datetime.fromisoformat(expires) <= now else "")


TASK = "write a good commit message for my staged changes"
"""What is looked up in a library of the program's own skills; one of them is for it."""

QUESTION_LENGTH = 160
"""How long the question about a skill of the person may be, in characters."""

PATIENCE_SECONDS = 60
"""How long the server may take to start and answer."""


@dataclass(frozen=True, slots=True)
class Quickstart:
    """Where the library is, what was copied into it, and what its server answered to find_skill."""

    home: str
    copied: "list[Copied]"
    task: str
    found: dict[str, Any]
    connect: list[str]


@command("quickstart")
@click.argument("folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--task", help="What to look up.  [default: what one of your skills is for]")
def quickstart_command(state: CommandContext, folders: tuple[Path, ...], task: str | None) -> Output[Quickstart]:
    """Show everything working.

    Makes a library, fills it, starts its server, asks it one question, and says how to go on. The library gets copies
    of the skills in FOLDERS, or else in the folders of the installed clients; those of a project in a git work tree are
    left to `init`. Nothing is written into any of them. What the library has already is left alone. A library without
    any skill gets those that come with this program.
    """
    config = state.config()
    paths = folders or tuple(_own_folders(config))
    with state.library(create=True) as (library, caller):
        copied = _fill(library.store, paths)
        task = task or _question(library, caller)
    remark("Starting the server as a client would, and asking it:")
    with progress("Asking the server"):
        found = _query_server(config.home, task)
    start = _start_of_command(config.home)
    connect = [f"{start} connect {client}" for client in ("claude-code", "codex")]
    result = Quickstart(str(config.home), copied, task, found, connect)
    return Output(result, lambda _: _show_quickstart(result, start))


def _own_folders(config: Config) -> "Iterator[Path]":
    """Yield the clients' folders of skills, without those that others bring: a copy has no mark."""
    homes = read_client_homes(config, unasked=True)
    remark(*homes.remarks)
    for one in client_folders(homes, config.project):
        if one.is_plugin or one.kind is not Kind.SKILL:
            continue
        if one.project is None or work_tree(one.path.resolve()) is None:
            yield one.path
        else:
            remark(
                f"Not copied: {one.path} lies in a git work tree."
                " `evolvable init` imports it, marked as the repository's."
            )


def _fill(store: "Store", folders: tuple[Path, ...]) -> "list[Copied]":
    """Return what was copied: of the program's own skills first, which only a library without any skill gets."""
    from evolvable_server.cli.archive_commands import Copied

    own = [_copy(store, folder, f"quickstart: copied from {folder}") for folder in folders]
    bundled = seed_folder() / "skills"
    has_skills = bool(store.heads(Kind.SKILL))
    return [Copied(str(bundled)) if has_skills else _copy(store, bundled, "skills that come with evolvable"), *own]


def _copy(store: "Store", folder: Path, reason: str) -> "Copied":
    from evolvable_server.cli.archive_commands import copy_skills

    with progress(f"Copying from {folder}") as show:
        return copy_skills(store, folder, reason, show)


def _question(library: "Library", caller: "Caller") -> str:
    """Return what one of the person's skills is for, in the words of its description; TASK where there is none.

    A text that would reach an agent between marks is no question.
    """
    from evolvable_tools.authors import authorships
    from evolvable_tools.verbs.search import MAX_PAGE, list_page

    bundled = {make_manifest(read_folder(place).files).tree for place in (seed_folder() / "skills").iterdir()}
    listed, _ = list_page(library.index, caller.scopes, kind=Kind.SKILL, limit=MAX_PAGE, cursor=None)
    whose = authorships(library, [entry.id for entry in listed])
    for entry in listed:
        first = re.split(r"(?<=[.!?])\s", entry.description.strip())[0]
        question = textwrap.shorten(first, QUESTION_LENGTH, placeholder="")
        if question and entry.tree not in bundled and not whose[entry.id].marked:
            return question
    return TASK


def _query_server(home: Path, task: str) -> dict[str, Any]:
    """Return what the server of this library answers to find_skill. Raise LibraryError when it does not."""
    import anyio

    try:
        return anyio.run(_find, home, task)
    except EvolvableError:
        raise
    except Exception as error:
        raise LibraryError(
            f"The server did not answer: {_told(error)}.", "`evolvable doctor` looks for the reason."
        ) from error


def _told(error: BaseException) -> str:
    """Return an error in words; that of a task group is its first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


async def _find(home: Path, task: str) -> dict[str, Any]:
    import anyio
    from mcp import Client, StdioServerParameters

    from evolvable_server.mcp.server import SELF_CHECK

    # -P: started in a project's folder, Python must not import that project's modules instead of ours.
    arguments = ["-P", "-m", "evolvable_server", "--home", str(home), "serve"]
    with anyio.fail_after(PATIENCE_SECONDS):
        async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
            asked = {"task": task, "detail": True}
            alone: Any = {SELF_CHECK: True}
            answer = await client.call_tool("find_skill", asked, meta=alone)
    if answer.is_error or not isinstance(answer.structured_content, dict):
        raise LibraryError("find_skill failed.", " ".join(getattr(part, "text", "") for part in answer.content))
    return answer.structured_content


def _start_of_command(place: Path) -> str:
    """Return how every command over this library begins where it is typed now: by a path unless the name is found."""
    start = server_start(place)
    words = [start.command, *start.args[:-1]]
    if (named := shutil.which("evolvable")) and Path(named).resolve() == Path(start.command).resolve():
        words = ["evolvable"]
    return shlex.join([*words, *([] if place == read_config({}).home else ["--home", str(place)])])


def _show_quickstart(result: Quickstart, start: str) -> None:
    say(f"The library is in {result.home}")
    for number, copied in enumerate(result.copied):
        path = copied.path if number else "skills that come with evolvable"
        parts = [f"{len(copied.added)} added"]
        parts += [f"{len(copied.known)} there already"] * bool(copied.known)
        parts += [f"{len(copied.refused)} refused"] * bool(copied.refused)
        left_out = not number and not (copied.added or copied.known or copied.refused)
        say(f"  {path}: {'left out, because the library has skills' if left_out else ', '.join(parts)}")
        say(*(f"    {name}: {'; '.join(reasons)}" for name, reasons in copied.refused))
    say(f'\nfind_skill("{result.task}") over MCP answered:')
    _show_answer(result.found)
    say("\nNow connect your client (also claude-desktop, cursor, vscode):")
    say(*(f"  {line}" for line in result.connect))
    if result.found["verdict"] != "none":
        say("Then say to it, to see a first proposal:", f'  "{proposal_request(result.found["matches"][0]["ref"])}"')
    say("Decide about it here, or in a browser:", f"  {start} inbox", f"  {start} ui")
    say("Keep your own folders of skills and the library in sync:", f"  {start} init")


def _show_answer(found: dict[str, Any]) -> None:
    if found["verdict"] == "none":
        say("  nothing fits")
    matches = found["matches"][: 0 if found["verdict"] == "none" else 2]
    for match in matches:
        show_text(f"{match['ref']}@{match['version']}, {match['confidence']:.0%} sure", "bold", indent=2)
        show_text(shortened(match["description"], 200), indent=4)
        show_text(match["why"], "dim", indent=4)
    if rest := len(found["matches"]) - len(matches):
        say(f"  and {rest} that fit less")
