"""The command digest: what agents learned, what helped, what nobody used and what was
taken back.
"""

import contextlib
from pathlib import Path

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.terminal import remark, say, style_text
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_tools.care import (
    PARTS,
    TITLE,
    WEEK,
    Digest,
    DigestLine,
    DigestPart,
    digest_markdown,
    weekly_digest,
)
from evolvable_tools.outcomes import MAX_DAYS

MOST = 10
"""Lines of each part that a terminal shows."""


@command("digest")
@click.option(
    "--days",
    type=click.IntRange(1, MAX_DAYS),
    default=WEEK,
    show_default=True,
    help="How far back.",
)
@click.option(
    "--write",
    "target",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write it as Markdown.",
)
def digest_command(state: CommandContext, days: int, target: Path | None) -> Output[Digest]:
    """Show what the last week brought.

    What agents learned, what helped, what nobody used, and what was taken back; each with the
    command that takes it back. --write replaces a file only where it holds a digest.
    """
    with state.library() as (library, caller):
        digest = weekly_digest(library, caller, days=days)
    if target is not None:
        _write_digest(target, digest_markdown(digest))
        remark(f"Written to {target}.")
    return Output(digest, _show_digest if target is None else lambda _: None)


def _write_digest(target: Path, text: str) -> None:
    """Write the file; raise Refused where it holds anything but a digest."""
    try:
        # "x": a file that appears meanwhile is not written over.
        with contextlib.suppress(FileExistsError), target.open("x", encoding="utf-8") as stream:
            stream.write(text)
            return
        if not _holds_digest(target):
            raise Refused(
                f"{target} is there and holds no digest. Nothing was written.", "Name another file."
            )
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(
            f"{target} cannot be written: {error.strerror}.", "Name another file."
        ) from None


def _holds_digest(path: Path) -> bool:
    # A link may lead to any file of the person.
    if path.is_symlink() or not path.is_file():
        return False
    return path.read_bytes().startswith(TITLE.encode())


def _show_digest(digest: Digest) -> None:
    for name, (title, nothing) in PARTS.items():
        part: DigestPart = getattr(digest, name)
        click.echo(style_text(title, "bold"))
        way = "remove it" if name == "unused" else "take back"
        say(
            *(_format_line(line, way) for line in part.lines[:MOST]),
            *([] if part.lines else [f"  {nothing}"]),
        )
        if part.number > MOST:
            say(f"  {part.number - MOST:,} more: evolvable digest --json")


def _format_line(line: DigestLine, way: str) -> str:
    names = ", ".join(line.refs) + (f" and {line.more:,} more" if line.more else "")
    parts = [line.text, line.author, line.at[:10]]
    why = f": {' '.join(line.reason.split())}" if line.reason else ""
    return f"  {names}: {', '.join(filter(None, parts))}{why}; {way}: {line.undo}"
