"""The command quickstart: a library with skills, and what its server answers to one question."""

import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import click
from mcp import Client, StdioServerParameters

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.terminal import progress, remark, say, shortened, show_text
from evolvable_server.client_folders import client_folders, read_client_homes
from evolvable_server.clients import server_start
from evolvable_server.config import Config, read_config
from evolvable_server.mcp.call import SELF_CHECK
from evolvable_store import Store, make_manifest, seed_folder, work_tree
from evolvable_store.errors import EvolvableError, LibraryError
from evolvable_store.resource import Kind
from evolvable_store.workingcopy import read_folder
from evolvable_tools import Caller, Library, authorships
from evolvable_tools.care import Copied, copy_skills
from evolvable_tools.verbs import MAX_PAGE, list_page
from evolvable_tools.verbs.library_status import proposal_request

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
    copied: list[Copied]
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


def _own_folders(config: Config) -> Iterator[Path]:
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


def _fill(store: Store, folders: tuple[Path, ...]) -> list[Copied]:
    """Return what was copied: of the program's own skills first, which only a library without any skill gets."""
    own = [_copy(store, folder, f"quickstart: copied from {folder}") for folder in folders]
    bundled = seed_folder() / "skills"
    has_skills = bool(store.heads(Kind.SKILL))
    return [Copied(str(bundled)) if has_skills else _copy(store, bundled, "skills that come with evolvable"), *own]


def _copy(store: Store, folder: Path, reason: str) -> Copied:
    with progress(f"Copying from {folder}") as show:
        return copy_skills(store, folder, reason, show)


def _question(library: Library, caller: Caller) -> str:
    """Return what one of the person's skills is for, in the words of its description; TASK where there is none.

    A text that would reach an agent between marks is no question.
    """
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
