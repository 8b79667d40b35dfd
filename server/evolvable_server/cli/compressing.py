"""The command that makes a long conversation short: compress."""

import json
from pathlib import Path
from typing import Any

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import count, say
from evolvable_store.errors import InvalidArgument
from evolvable_tools.review import Compressed

MOST = 64 << 20
"""Bytes of a history that are read."""


@command("compress")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--keep", type=click.IntRange(1, 200), default=12, show_default=True, help="Messages that stay.")
@click.option(
    "--max-tokens", type=click.IntRange(0), default=64_000, show_default=True, help="Shorter ones stay whole."
)
def compress_command(state: State, file: Path, keep: int, max_tokens: int) -> None:
    """Make a long conversation short, without a model.

    FILE holds a JSON list of messages, each with role and content. Nothing that was named is lost: it stands in the
    summary, in the index of what was named, or in the last messages, which stay as they are. --json prints them.
    """
    from evolvable_tools.review.context_compression import compress_history

    found = compress_history(_messages(file), keep=keep, max_tokens=max_tokens)
    state.show(found, lambda: _show(found))


def _messages(file: Path) -> list[dict[str, Any]]:
    if file.stat().st_size > MOST:
        raise InvalidArgument(f"{file} has more than {MOST >> 20} MB.", "Give the part that is to be made short.")
    try:
        messages = json.loads(file.read_bytes())
    except ValueError as error:
        raise InvalidArgument(
            f"{file} is no JSON: {error}.", "Give a list of messages: [{role, content}, ...]."
        ) from None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InvalidArgument(f"{file} is no list of messages.", "Give [{role, content}, ...].")
    return messages


def _show(found: Compressed) -> None:
    if not found.summary:
        say(f"Short enough: {found.tokens_before:,} tokens. Nothing was changed.")
        return
    say(
        f"{found.tokens_before:,} tokens before, {found.tokens_after:,} after, {count(len(found.messages), 'message')}."
    )
    for part, lines in found.summary.items():
        say(f"\n{part}")
        for line in lines:
            say(f"  {line}")
