"""What every command shares: which library, whether JSON is wanted, and how a result or an error is shown."""

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from evolvable_server.cli.terminal import safe, warn
from evolvable_server.config import Config, read_config
from evolvable_server.principals import cli_identity
from evolvable_store.errors import EvolvableError, InvalidResource
from evolvable_store.operation import Identity
from evolvable_store.resource import Kind, Ref

if TYPE_CHECKING:
    from evolvable_tools.library import Caller, Library

TOOLS = {
    "find_skill": "find",
    "load_skill": "load",
    "report_outcome": "report",
    "list_resources": "list",
    "get_resource": "get",
    "resource_history": "history",
    "update_resource": "update",
    "restore_resource": "restore",
    "remove_resource": "remove",
    "undo": "undo",
    "review_session": "review",
    "submit_review": "review",
    "review_inbox": "inbox",
    "compress_history": "compress",
    "evolve_start": "evolve start",
    "evolve_status": "evolve status",
    "evolve_pending": "evolve pending",
    "evolve_submit": "evolve submit",
    "evolve_stop": "evolve stop",
    "evolve_continue": "evolve continue",
    "evolve_report": "evolve report",
    "evolve_adopt": "evolve adopt",
    "evolve_opportunities": "evolve opportunities",
}
"""Every MCP tool, and the command that does the same."""

_WORDS = {
    **{tool: f"`evolvable {command}`" for tool, command in TOOLS.items() if tool != command},
    "expected_version": "--expect",
    "create=true": "--create",
    "copy_of": "--copy-of",
    "say that it is replaced": "pass --replace",
    "say that it is to be replaced": "--replace does that",
    "files {path: text}, or edits [{path, old, new}]": "--file, --edit, --delete or --editor",
}
_SPOKEN = re.compile("|".join(rf"(?<![`\w]){re.escape(word)}(?!\w)" for word in sorted(_WORDS, key=len, reverse=True)))


def spoken(text: str) -> str:
    """Returns a message of the verbs in the words of the command line: `evolvable find` for find_skill."""
    return _SPOKEN.sub(lambda match: _WORDS[match[0]], text)


class State:
    """What the options say of this run."""

    def __init__(self) -> None:
        self.home: Path | None = None
        self.json = False

    def config(self) -> Config:
        """Returns the settings of this process. Raises InvalidRef."""
        return read_config(home=self.home)

    @contextlib.contextmanager
    def library(self, *, create: bool = False) -> "Iterator[tuple[Library, Caller]]":
        """Yield the open library, and whoever runs this command as its caller. Raise as Store.open."""
        from evolvable_server.app import caller
        from evolvable_server.means import opened
        from evolvable_server.memory_text import bring_up
        from evolvable_server.redaction import Redaction
        from evolvable_server.reviews import policies
        from evolvable_tools.library import Library
        from evolvable_tools.rereading import reread

        config = self.config()
        redactor, kinds = Redaction(config.home).redactor, policies(config)
        with (
            opened(config) as means,
            Library.open(config.home, create=create, means=means, redactor=redactor, policies=kinds) as library,
        ):
            for text in reread(library):
                warn(text)
            sequence = library.store.sequence()
            yield library, caller(config, library, self.identity)
            if library.store.sequence() != sequence:
                bring_up(config.home, library)

    @property
    def identity(self) -> Identity:
        """On whose behalf this command runs."""
        return cli_identity(os.environ)

    def show(self, result: Any, render: Callable[[], None]) -> None:
        """Writes a result: with --json its fields, exactly as an MCP tool returns them, else what `render` writes."""
        if self.json:
            self.show_json(dataclasses.asdict(result))
        else:
            render()

    def show_json(self, value: Any) -> None:
        """Writes a value as JSON. Only ASCII, so that no text in it can steer a terminal."""
        click.echo(json.dumps(value, indent=2, default=str))

    def fail(self, error: EvolvableError) -> None:
        """Writes an error: with --json as {"error", "hint"} to stdout, where the result would have been."""
        message, hint = spoken(str(error)), spoken(error.hint)
        if self.json:
            self.show_json({"error": message, "hint": hint})
            return
        if isinstance(error, InvalidResource) and len(error.problems) > 1:
            message = "\n  - ".join([f"{error.ref} cannot be taken in:", *error.problems])
        click.echo(f"{click.style('Error:', fg='red', bold=True)} {safe(message)}", err=True)
        if hint:
            click.echo(f"{click.style('Hint:', fg='cyan')} {safe(hint)}", err=True)


class HomeType(click.Path):
    """A folder's path; an empty one, such as an unset variable leaves, is refused and not taken for this folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty; name the library's folder.", param, ctx)
        return super().convert(value, param, ctx)


def _set_home(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.ensure_object(State).home = value


def _set_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(State).json = True


home_option = click.option(
    "--home",
    metavar="PATH",
    type=HomeType(path_type=Path),
    expose_value=False,
    is_eager=True,
    callback=_set_home,
    help="The library's folder (default: $EVOLVABLE_HOME, else ~/.evolvable).",
)

json_option = click.option(
    "--json", is_flag=True, expose_value=False, is_eager=True, callback=_set_json, help="Write the result as JSON."
)

pass_state = click.make_pass_decorator(State, ensure=True)


def command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Returns a decorator that makes a command of a function of State: with --home and --json."""

    def make(function: Callable[..., None]) -> click.Command:
        with_options: Callable[..., None] = home_option(json_option(pass_state(function)))
        return click.command(name)(with_options)

    return make


class RefType(click.ParamType[Ref]):
    """A ref such as skill:pdf@3; a bare name is a skill's."""

    name = "ref"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Ref:
        return value if isinstance(value, Ref) else Ref.parse(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Returns the refs that begin so, with or without their kind; none when there is no library."""
        with contextlib.suppress(EvolvableError), ctx.ensure_object(State).library() as (library, _):
            refs = [str(head.ref) for head in library.store.heads()]
            bare = [ref.removeprefix("skill:") for ref in refs if ":" not in incomplete and ref.startswith("skill:")]
            return [CompletionItem(ref) for ref in (*bare, *refs) if ref.startswith(incomplete)][:500]
        return []


REF = RefType()

KIND = click.Choice([kind.value for kind in Kind])


def reason_option(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns the option -m, with what is kept as the reason when a person gives none."""
    return click.option(
        "-m", "--reason", default=default, show_default=True, help="Why, in a sentence; kept in the history."
    )


expect_option = click.option(
    "--expect", type=click.IntRange(min=0), metavar="N", help="Fail unless the newest version is N."
)
