"""A plugin of Evolvable: a scorer, a command and a client."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.terminal import say
from evolvable_server.clients.client import USER, Client
from evolvable_server.config import Machine
from evolvable_server.plugins import PluginScorer, hookimpl
from evolvable_store.resource import Kind


@hookimpl
def scorers() -> Mapping[str, PluginScorer]:
    """Add the scorer `one_of`, which passes an answer that is one of several."""
    choices = {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}
    return {"one_of": PluginScorer(score_one_of, {"choices": choices}, ["choices"])}


def score_one_of(expected: str, answer: str, args: Mapping[str, Any]) -> tuple[float, str]:
    """Return 1 for an accepted answer, else 0. The feedback names no accepted answer."""
    if answer.strip() in args["choices"]:
        return 1.0, ""
    return 0.0, "The answer is none of the accepted ones."


@hookimpl
def verb_table() -> Path:
    """Say who may run the command: the table lies beside this module."""
    return Path(__file__).with_name("registry.json")


@hookimpl
def commands() -> Mapping[str, str]:
    """Add the command `words`."""
    return {"words": "evolvable_example:words_command"}


@command("words")
def words_command(state: CommandContext) -> Output[dict[str, int]]:
    """Count the words of each skill."""
    with state.library() as (library, _):
        heads = library.store.heads()
        counts = {
            str(head.ref): len(library.store.file(head, "SKILL.md").data.split()) for head in heads
        }
    return Output(counts, lambda found: say(*(f"{ref}  {number}" for ref, number in found.items())))


@hookimpl
def clients() -> Sequence[Client]:
    """Add a client that keeps its servers in ~/.example/mcp.json and reads skills in
    ~/.example/skills.
    """
    example = Client(
        name="example",
        title="Example",
        file=_file,
        table="mcpServers",
        strict=False,
        called=("example",),
        checks={USER: ["Restart Example."]},
        folders=_folders,
    )
    return [example]


def _file(machine: Machine, scope: str) -> Path | None:
    return machine.user / ".example/mcp.json" if scope == USER else None


def _folders(machine: Machine, scope: str) -> Mapping[Kind, Path]:
    return {Kind.SKILL: machine.user / ".example/skills"} if scope == USER else {}
