"""The command memory: write the memories where clients read them, and take them out again."""

from typing import Any

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.terminal import say, warn
from evolvable_server.clients import (
    TITLES,
    MemoryCopy,
    copy_statuses,
    disable_copies,
    enable_copies,
    installed_clients,
    memory_text,
)
from evolvable_server.config import read_machine
from evolvable_store import Actor
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import USER_SCOPE
from evolvable_tools import Caller
from evolvable_tools.review import memory_conflicts


@command("memory")
@click.argument("action", type=click.Choice(["show", "on", "off"]), default="show")
@click.argument("clients", type=click.Choice(list(TITLES)), nargs=-1, metavar="[CLIENT]...")
def memory_command(state: CommandContext, action: str, clients: tuple[str, ...]) -> Output[dict[str, Any]]:
    """Write the memories where clients read them.

    `on` writes memory:SOUL, memory:USER and memory:MEMORY where Claude Code (a rule of yours), Codex, OpenCode and
    Droid (AGENTS.md), Copilot CLI (its instructions) and Qwen Code (QWEN.md) read them, by default for those that are
    installed, and keeps them up to date; `off` takes them out again. What you wrote in such a file stays as it is, and
    a copy is kept beside it. `show` shows what they read.
    """
    config = state.config()
    machine, shown = read_machine(config.project), ""
    if action == "off":
        copies = disable_copies(config.home, clients or tuple(TITLES))
    else:
        with state.library(create=action == "on") as (library, _):
            text = memory_text(library)
            conflicts = memory_conflicts(library, Caller(Actor.AGENT, None, (USER_SCOPE,)))
        if action == "on":
            chosen = clients or tuple(installed_clients(machine))
            if not chosen:
                raise InvalidArgument("No client that reads memories is installed here.", "Name one: codex.")
            copies = enable_copies(config.home, machine, chosen, text)
        else:
            found = copy_statuses(config.home, machine, text)
            copies, shown = [one for one in found if not clients or one.client in clients], text
        warn(*conflicts)
    return Output({"copies": copies, "text": shown}, lambda _: _show_memory(copies, shown))


_SAID = {
    "off": "{title} reads no memories: {path}",
    "current": "{title} reads them in {path}, which is up to date.",
    "behind": "{title} reads them in {path}, which is not up to date; `evolvable client memory on` writes it again.",
    "broken": "{title}: {why}",
}


def _show_memory(copies: list[MemoryCopy], text: str) -> None:
    if text:
        say(f"{text}\n")
    if not copies:
        say("It was off already. Nothing changed.")
    for one in copies:
        say(_SAID[one.state].format(title=one.title, path=one.path, why=one.why))
        if one.backup:
            say(f"The file as it was: {one.backup}")
        if one.warning and one.state != "off":
            warn(one.warning)
