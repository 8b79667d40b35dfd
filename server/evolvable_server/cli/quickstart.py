"""The command that shows the whole product working in a minute, without a network or a key: quickstart."""

import shlex
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import one_line, progress, remark, say, shortened
from evolvable_server.config import client_folders, read_config
from evolvable_store.errors import EvolvableError, LibraryError

if TYPE_CHECKING:
    from evolvable_server.cli.copies import Copied
    from evolvable_store.store import Store

TASK = "write a good commit message for my staged changes"
"""What is looked up unless a person says otherwise; one of the seed skills is for it."""

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
@click.option("--task", default=TASK, show_default=True, help="What to look up.")
def quickstart_command(state: State, folders: tuple[Path, ...], task: str) -> None:
    """Show everything working.

    Makes a library, fills it, starts its server, asks it one question, and says how to go on. The library gets the
    skills that come with this program and copies of those in FOLDERS, or else in the folders of the installed
    clients. Nothing is written into any of them. What the library has already is left alone.
    """
    config = state.config()
    paths = folders or tuple(path for path, _ in client_folders(Path.home(), config.project))
    with state.library(create=True) as (library, _):
        copied = list(_fill(library.store, paths))
    remark("Starting the server as a client would, and asking it:")
    found = _ask(config.home, task)
    result = Quickstart(str(config.home), copied, task, found, _connect(config.home))
    state.show(result, lambda: _show(result))


def _fill(store: "Store", folders: tuple[Path, ...]) -> "Iterator[Copied]":
    from evolvable_server.cli.copies import copy_in
    from evolvable_store.paths import seed_folder

    for folder, reason in (
        (seed_folder() / "skills", "skills that come with evolvable"),
        *((folder, f"quickstart: copied from {folder}") for folder in folders),
    ):
        with progress(f"Copying from {folder}") as show:
            yield copy_in(store, folder, reason, show)


def _ask(home: Path, task: str) -> dict[str, Any]:
    """Returns what the server of this library answers to find_skill. Raises LibraryError when it does not."""
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
    """Returns an error in words; that of a task group is its first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


async def _find(home: Path, task: str) -> dict[str, Any]:
    import anyio
    from mcp import Client, StdioServerParameters

    # -P: started in a project's folder, Python must not import that project's modules instead of ours.
    arguments = ["-P", "-m", "evolvable_server", "--home", str(home), "serve"]
    with anyio.fail_after(PATIENCE_SECONDS):
        async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
            answer = await client.call_tool("find_skill", {"task": task})
    if answer.is_error or not isinstance(answer.structured_content, dict):
        raise LibraryError("find_skill failed.", " ".join(getattr(part, "text", "") for part in answer.content))
    return answer.structured_content


def _connect(place: Path) -> list[str]:
    """Returns the commands that connect the clients to this library."""
    script = Path(sysconfig.get_path("scripts")) / ("evolvable.exe" if sys.platform == "win32" else "evolvable")
    start = [str(script)] if script.exists() else [sys.executable, "-P", "-m", "evolvable_server"]
    home = [] if place == read_config({}).home else ["--home", str(place)]
    return [shlex.join([*start, *home, "connect", client]) for client in ("claude-code", "codex")]


def _show(result: Quickstart) -> None:
    say(f"The library is in {result.home}")
    for number, copied in enumerate(result.copied):
        path = copied.path if number else "skills that come with evolvable"
        parts = [f"{len(copied.added)} added"]
        parts += [f"{len(copied.known)} there already"] * bool(copied.known)
        parts += [f"{len(copied.refused)} refused"] * bool(copied.refused)
        say(f"  {path}: {', '.join(parts)}")
        for name, reasons in copied.refused:
            say(f"    {name}: {'; '.join(reasons)}")
    say(f'\nfind_skill("{result.task}") over MCP answered:')
    _show_answer(result.found)
    say("\nNow connect your client (also claude-desktop, cursor, vscode):")
    for line in result.connect:
        say(f"  {line}")
    say("Keep your own folders of skills and the library in step:")
    say("  evolvable init")


def _show_answer(found: dict[str, Any]) -> None:
    if found["none_fits"]:
        say("  nothing fits")
    for match in found["matches"]:
        name = click.style(one_line(f"{match['ref']}@{match['version']}"), bold=True)
        click.echo(f"  {name}  {match['confidence']:.0%} sure: {one_line(match['why'])}")
        say(f"    {shortened(match['description'], 100)}")
