"""Options and arguments that several commands share: refs, kinds, reasons, pages, and the files
that options name.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from evolvable_server.cli.command_context import CommandContext
from evolvable_server.cli.terminal import say
from evolvable_store import MAX_FILE
from evolvable_store.errors import EvolvableError, InvalidRef, TooLarge, quote_text
from evolvable_store.resource import Kind, Ref

_MAX_CANDIDATES = 500
"""Refs that a shell is offered; more only fill the screen."""


class RefType(click.ParamType[Ref]):
    """A ref such as skill:pdf@3; a bare name is a skill's."""

    name = "ref"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Ref:
        if isinstance(value, Ref):
            return value
        try:
            return Ref.parse(value)
        except InvalidRef as error:
            if Path(value).is_dir():
                hint = (
                    "Name a resource, such as skill:pdf. `evolvable backup restore FOLDER` brings "
                    "a backup back."
                )
                raise InvalidRef(f"{quote_text(value)} is a folder.", hint) from error
            raise

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the refs that begin so, with or without their kind; none without a library."""
        # A completion that fails offers nothing; an error would end up in the prompt.
        with (
            contextlib.suppress(EvolvableError),
            ctx.ensure_object(CommandContext).library() as (library, _),
        ):
            refs = [str(head.ref) for head in library.store.heads()]
            bare = [
                ref.removeprefix("skill:")
                for ref in refs
                if ":" not in incomplete and ref.startswith("skill:")
            ]
            candidates = [ref for ref in (*bare, *refs) if ref.startswith(incomplete)]
            return [CompletionItem(ref) for ref in candidates[:_MAX_CANDIDATES]]
        return []


REF = RefType()

KIND = click.Choice([kind.value for kind in Kind])


def reason_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option -m with its default; '': the command writes a sentence of its own."""
    shown_default = default or "what was done"
    return click.option(
        "-m",
        "--reason",
        default=default,
        show_default=shown_default,
        help="Why, in a sentence; kept in the history.",
    )


page_option = click.option(
    "--page",
    type=click.IntRange(1, 100_000),
    default=1,
    metavar="N",
    help="Which page; --limit is its length.",
)


def say_more(page: int, rows: int, more: bool) -> None:
    """Write which page of a table this was, where there is another one. rows: its rows."""
    if page > 1 and not rows:
        say(f"There is no page {page}.")
    elif more:
        say(f"\nPage {page}. More: the same command with --page {page + 1}")
    elif page > 1:
        say(f"\nPage {page}, the last one.")


expect_option = click.option(
    "--expect", type=click.IntRange(min=0), metavar="N", help="Fail unless the newest version is N."
)


def read_source(source: str) -> bytes:
    """Return the bytes of the file that an option names, of stdin for `-`.

    Raise click.BadParameter, TooLarge.
    """
    try:
        with click.open_file(source, "rb") as stream:
            # One byte more tells a file at the limit from a longer one.
            data: bytes = stream.read(MAX_FILE + 1)
    except OSError as error:
        raise click.BadParameter(f"{quote_text(source, 4096)}: {error.strerror}.") from None
    if len(data) > MAX_FILE:
        raise TooLarge(
            f"{source} has more than {MAX_FILE:,} bytes.", "That is the limit for one file."
        )
    return data
