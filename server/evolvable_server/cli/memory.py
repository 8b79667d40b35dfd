"""The command for what agents read of the memories at their start: memory."""

from dataclasses import dataclass

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import say, warn
from evolvable_server.clients import memory_copies
from evolvable_server.clients.memory_copies import MemoryCopy
from evolvable_server.config import read_machine
from evolvable_store.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class MemoryCopies:
    """The copies of the clients. text: what they read, '' where that was not asked for."""

    copies: list[MemoryCopy]
    text: str = ""


@command("memory")
@click.argument("action", type=click.Choice(["show", "on", "off"]), default="show")
@click.argument("clients", type=click.Choice(list(memory_copies.TITLES)), nargs=-1, metavar="[CLIENT]...")
def memory_command(state: State, action: str, clients: tuple[str, ...]) -> None:
    """Write the memories where clients read them.

    `on` writes memory:SOUL, memory:USER and memory:MEMORY where Claude Code (a rule of yours) and Codex (AGENTS.md)
    read them at their start, by default for those that are installed, and keeps them up to date; `off` takes them out
    again. What you wrote in such a file stays as it is, and a copy is kept beside it. `show` shows what they read.
    """
    from evolvable_server.memory_text import text_of

    config = state.config()
    machine = read_machine(config.project)
    if action == "off":
        done = MemoryCopies(memory_copies.switch_off(config.home, clients or tuple(memory_copies.TITLES)))
        state.show(done, lambda: _show(done))
        return
    with state.library(create=action == "on") as (library, _):
        text = text_of(library)
    if action == "on":
        chosen = clients or tuple(memory_copies.installed(machine))
        if not chosen:
            raise InvalidArgument("Neither Claude Code nor Codex is installed here.", "Name one: codex.")
        done = MemoryCopies(memory_copies.switch_on(config.home, machine, chosen, text))
    else:
        found = memory_copies.copies(config.home, machine, text)
        done = MemoryCopies([one for one in found if not clients or one.client in clients], text)
    state.show(done, lambda: _show(done))


_SAID = {
    "off": "{title} reads no memories: {path}",
    "current": "{title} reads them in {path}, which is up to date.",
    "behind": "{title} reads them in {path}, which is not up to date; `evolvable memory on` writes it anew.",
    "broken": "{title}: {why}",
}


def _show(done: MemoryCopies) -> None:
    if done.text:
        say(f"{done.text}\n")
    if not done.copies:
        say("It was off already. Nothing changed.")
    for one in done.copies:
        say(_SAID[one.state].format(title=one.title, path=one.path, why=one.why))
        if one.backup:
            say(f"The file as it was: {one.backup}")
        if one.warning and one.state != "off":
            warn(one.warning)
