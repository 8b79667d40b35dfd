"""What is written to a terminal, and how: text that cannot steer it, tables that fit it, progress, remarks.

rich is imported where it is used, so that a command that prints JSON or serves a client never loads it.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Progress = Callable[[int, int], None]
"""Called with what is done and what there is to do."""

_QUIET_SECONDS = 2.0
"""How often a line about progress is written where there is no terminal."""

_HARMLESS = "\n\t\u200c\u200d"
"""Not printable for Python, yet no danger: line ends, tabs, and the joiners that scripts and emoji need."""


def safe(text: str) -> str:
    r"""Returns the text with everything that could steer or fool a terminal written out, ESC as `\x1b`.

    That is every control character but line ends and tabs, every character that turns the direction of writing or
    has no shape, and lone surrogates. CR LF becomes LF; a bare CR is written out.
    """
    text = text.replace("\r\n", "\n")
    if text.isprintable():
        return text
    return "".join(char if _is_harmless(char) else char.encode("unicode_escape").decode("ascii") for char in text)


def _is_harmless(char: str) -> bool:
    return char.isprintable() or char in _HARMLESS or (char.isspace() and char >= "\xa0" and char not in "\u2028\u2029")


def one_line(text: str) -> str:
    """Returns the safe text on one line."""
    return " ".join(safe(text).split())


def say(text: str = "") -> None:
    """Writes a line of results, made safe."""
    click.echo(safe(text))


def remark(text: str) -> None:
    """Writes a line about what is going on, made safe, where it is not taken for a result."""
    click.echo(safe(text), err=True)


def warn(text: str) -> None:
    """Writes a warning."""
    click.echo(f"{click.style('Warning:', fg='yellow', bold=True)} {safe(text)}", err=True)


def console(stream: TextIO | None = None) -> "Console":
    """Returns rich's console on a stream (stdout); it takes text as it is, and sets no limit where nobody looks."""
    from rich.console import Console

    plain = Console(file=stream, highlight=False, markup=False, emoji=False)
    if plain.is_terminal:
        return plain
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=100_000)


Cell = str | tuple[str, str]
"""A text, or a text and its style."""

Row = Sequence[Cell]


def show_table(columns: Sequence[str], rows: Iterable[Row], *, cut: str = "") -> None:
    """Writes a table to stdout. On a terminal it fits the width: long cells are folded, those of the column `cut`
    end in an ellipsis. Elsewhere every row is one line with all its text.
    """
    from rich.table import Table

    where = console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(columns))
    for column in columns:
        is_cut = column == cut and where.is_terminal
        table.add_column(column, overflow="ellipsis" if is_cut else "fold", no_wrap=is_cut or not where.is_terminal)
    for row in rows:
        table.add_row(*(_cell(cell) for cell in row))
    _print(where, table)


def show_text(text: str, style: str = "", indent: int = 0) -> None:
    """Writes a paragraph to stdout, wrapped and indented on a terminal."""
    from rich.padding import Padding

    _print(console(), Padding(_cell((text, style)), (0, 0, 0, indent)))


def show_diff(diff: str) -> None:
    """Writes a unified diff to stdout, in colours on a terminal."""
    from rich.text import Text

    where = console()
    for line in safe(diff).split("\n")[:-1]:
        where.print(Text(line, _diff_style(line)), soft_wrap=True)


def _diff_style(line: str) -> str:
    if line.startswith(("--- ", "+++ ")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


def _cell(cell: Cell) -> "RenderableType":
    from rich.text import Text

    text, style = cell if isinstance(cell, tuple) else (cell, "")
    return Text(one_line(text), style)


def _print(where: "Console", what: "RenderableType") -> None:
    if where.is_terminal:
        where.print(what)
        return
    with where.capture() as captured:
        where.print(what)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


@contextlib.contextmanager
def progress(label: str) -> Iterator[Progress]:
    """Yields a function that shows progress on stderr: a bar on a terminal, else a line now and then."""
    if sys.stderr.isatty():
        with _bar(label) as show:
            yield show
    else:
        yield _lines(label)


@contextlib.contextmanager
def _bar(label: str) -> Iterator[Progress]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console(sys.stderr), transient=True) as bars:
        bar = bars.add_task(safe(label), total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


def _lines(label: str) -> Progress:
    last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _QUIET_SECONDS:
            last = time.monotonic()
            remark(f"{label}: {done:,} of {total:,}")

    return show


def local_time(at: str) -> str:
    """Returns a stored moment as a person here reads it: 2026-11-20 12:05."""
    from datetime import datetime

    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")


def count(number: int, noun: str) -> str:
    """Returns a number with its noun: 1 skill, 2 skills."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"
