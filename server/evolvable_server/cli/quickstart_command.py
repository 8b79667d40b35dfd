"""The command quickstart: a library with skills, and what its server answers to one question."""

import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import click
from mcp import Client, StdioServerParameters

from evolvable_server.care import sample_task
from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.terminal import progress, remark, say, shorten_text, show_text
from evolvable_server.client_folders import client_folders, read_client_homes
from evolvable_server.clients import server_start
from evolvable_server.config import SELF_CHECK, Config, read_config
from evolvable_store import Store, seed_folder, work_tree
from evolvable_store.errors import EvolvableError, LibraryError
from evolvable_store.resource import Kind
from evolvable_tools.care import Copied, copy_skills
from evolvable_tools.verbs.library_status import proposal_request

# A first start may compile every module.
PATIENCE_SECONDS = 60
"""How long the server may take to start and answer."""


@dataclass(frozen=True, slots=True)
class Quickstart:
    """What quickstart did.

    copied: what each folder brought, the bundled skills first. found: the answer of the server to
    find_skill. connect: the commands that connect a client to a library that stays.
    """

    home: str
    copied: list[Copied]
    task: str
    found: dict[str, Any]
    connect: list[str]


@command("quickstart")
@click.argument("folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--task", help="What to look up.  [default: what one of your skills is for]")
def quickstart_command(
    state: CommandContext, folders: tuple[Path, ...], task: str | None
) -> Output[Quickstart]:
    """Show everything working, in a temporary library.

    Makes a library, fills it, starts its server, asks it one question, and removes the library
    again; --home names one that stays. The library gets copies of the skills in FOLDERS, or else in
    the folders of the installed clients; those of a project in a git work tree are left to `setup`.
    Nothing is written into any of them. What a library has already is left alone. A library without
    any skill gets those that come with this program.
    """
    if state.home is not None:
        return _demonstrate(state, folders, task, stays=True)
    # On Windows, the server may hold its files a moment longer.
    with tempfile.TemporaryDirectory(prefix="evolvable-", ignore_cleanup_errors=True) as place:
        state.home = Path(place) / "library"
        return _demonstrate(state, folders, task, stays=False)


def _demonstrate(
    state: CommandContext, folders: tuple[Path, ...], task: str | None, *, stays: bool
) -> Output[Quickstart]:
    config = state.config()
    paths = folders or tuple(_find_own_folders(config))
    with state.library(create=True) as (library, caller):
        copied = _fill(library.store, paths)
        task = task or sample_task(library, caller)
    remark("Starting the server as a client would, and asking it:")
    with progress("Asking the server"):
        answer = _query_server(config.home, task)
    start = _find_command_start(config.home)
    connect = [f"{start} connect {client}" for client in ("claude-code", "codex")] if stays else []
    result = Quickstart(str(config.home), copied, task, answer, connect)
    return Output(result, lambda _: _show_quickstart(result, start, stays))


def _find_own_folders(config: Config) -> Iterator[Path]:
    """Yield the clients' folders of skills, without those that others bring: a copy has no mark."""
    homes = read_client_homes(config, unasked=True)
    remark(*homes.remarks)
    for folder in client_folders(homes, config.project):
        # Only skills are copied, and those of a plugin stay with it.
        if folder.is_plugin or folder.kind is not Kind.SKILL:
            continue
        if folder.project is None or work_tree(folder.path.resolve()) is None:
            yield folder.path
        else:
            remark(
                f"Not copied: {folder.path} lies in a git work tree."
                " `evolvable init` imports it, marked as the repository's."
            )


def _fill(store: Store, folders: tuple[Path, ...]) -> list[Copied]:
    """Copy the folders, and the bundled skills into a library without any.

    Return what each brought, the bundled skills first.
    """
    # The person's own folders first: whether they bring skills decides about the bundled ones.
    own = [_copy(store, folder, f"quickstart: copied from {folder}") for folder in folders]
    folder = seed_folder() / "skills"
    if store.heads(Kind.SKILL):
        bundled = Copied(str(folder))
    else:
        bundled = _copy(store, folder, "skills that come with evolvable")
    return [bundled, *own]


def _copy(store: Store, folder: Path, reason: str) -> Copied:
    with progress(f"Copying from {folder}") as show:
        return copy_skills(store, folder, reason, show)


def _query_server(home: Path, task: str) -> dict[str, Any]:
    """Return what the server of this library answers to find_skill.

    Raise LibraryError when it does not.
    """
    try:
        return anyio.run(_find_skill, home, task)
    except EvolvableError:
        raise
    # The SDK raises errors of many kinds, single and in groups.
    except Exception as error:
        raise LibraryError(
            f"The server did not answer: {_describe_error(error)}.",
            "`evolvable doctor` looks for the reason.",
        ) from error


def _describe_error(error: BaseException) -> str:
    """Return an error in words; that of a task group is its first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


async def _find_skill(home: Path, task: str) -> dict[str, Any]:
    # -P: started in a project's folder, Python must not import that project's modules instead of
    # ours.
    arguments = ["-P", "-m", "evolvable_server", "--home", str(home), "serve"]
    with anyio.fail_after(PATIENCE_SECONDS):
        async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
            query = {"task": task, "detail": True}
            # The server notes nothing of this search.
            meta: Any = {SELF_CHECK: True}
            answer = await client.call_tool("find_skill", query, meta=meta)
    if answer.is_error or not isinstance(answer.structured_content, dict):
        raise LibraryError(
            "find_skill failed.", " ".join(getattr(part, "text", "") for part in answer.content)
        )
    return answer.structured_content


def _find_command_start(place: Path) -> str:
    """Return the words with which a person here begins a command over this library.

    They begin with the path of the program, unless the shell finds its name.
    """
    start = server_start(place)
    # Without `serve`, the last argument.
    words = [start.command, *start.args[:-1]]
    program = shutil.which("evolvable")
    if program and Path(program).resolve() == Path(start.command).resolve():
        words = ["evolvable"]
    if place != read_config({}).home:
        words += ["--home", str(place)]
    return shlex.join(words)


def _show_quickstart(result: Quickstart, start: str, stays: bool) -> None:
    say(f"The library is in {result.home}" if stays else "A temporary library got copies of:")
    # The first entry is that of the bundled skills.
    for number, copied in enumerate(result.copied):
        path = copied.path if number else "skills that come with evolvable"
        parts = [f"{len(copied.added)} added"]
        parts += [f"{len(copied.known)} there already"] * bool(copied.known)
        parts += [f"{len(copied.refused)} refused"] * bool(copied.refused)
        left_out = not number and not (copied.added or copied.known or copied.refused)
        say(f"  {path}: {'left out, because there are skills' if left_out else ', '.join(parts)}")
        say(*(f"    {name}: {'; '.join(reasons)}" for name, reasons in copied.refused))
    say(f'\nfind_skill("{result.task}") over MCP answered:')
    _show_answer(result.found)
    if not stays:
        say("\nThe temporary library is removed. For your own skills and clients: evolvable setup")
        return
    say("\nNow connect your client (also claude-desktop, cursor, vscode):")
    say(*(f"  {line}" for line in result.connect))
    if result.found["verdict"] != "none":
        say(
            "Then say to it, to see a first proposal:",
            f'  "{proposal_request(result.found["matches"][0]["ref"])}"',
        )
    say("Decide about it here, or in a browser:", f"  {start} inbox", f"  {start} ui")
    say("Keep your own folders of skills and the library in sync:", f"  {start} init")


def _show_answer(answer: dict[str, Any]) -> None:
    matches = answer["matches"][:2]
    if answer["verdict"] == "none":
        say("  nothing fits")
        matches = []
    for match in matches:
        show_text(
            f"{match['ref']}@{match['version']}, {match['confidence']:.0%} sure", "bold", indent=2
        )
        show_text(shorten_text(match["description"], 200), indent=4)
        show_text(match["why"], "dim", indent=4)
    if rest := len(answer["matches"]) - len(matches):
        say(f"  and {rest} that fit less")
