"""Write to a terminal: text that cannot steer it, tables that fit it, progress, questions.

rich is imported in functions: a command that prints JSON or serves a client never loads it.
"""

import contextlib
import sys
import textwrap
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TextIO

import click

from evolvable_store.errors import InvalidArgument

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

Progress = Callable[[int, int], None]
"""Called with what is done and what there is to do."""

_QUIET_SECONDS = 2.0
"""How often a line about progress is written where there is no terminal."""

_NARROW = 12
"""Characters that a folded column needs to be read."""

_HARMLESS = "\n\t\u200c\u200d"
"""Not printable for Python, yet no danger: line ends, tabs, and the joiners that scripts and emoji need."""


def safe(text: str) -> str:
    r"""Return the text with everything that could steer or fool a terminal written out, ESC as `\x1b`.

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
    """Return the safe text on one line."""
    return " ".join(safe(text).split())


def shortened(text: str, length: int) -> str:
    """Return the safe text on one line of at most `length` characters, cut between words."""
    return textwrap.shorten(one_line(text), length, placeholder=" ...")


def say(*lines: str) -> None:
    """Write lines of results, made safe."""
    for line in lines:
        click.echo(safe(line))


def remark(*lines: str) -> None:
    """Write lines about what is going on, made safe, where they are not taken for a result."""
    for line in lines:
        click.echo(safe(line), err=True)


def warn(*texts: str) -> None:
    """Write warnings."""
    for text in texts:
        click.echo(f"{click.style('Warning:', fg='yellow', bold=True)} {safe(text)}", err=True)


def confirm(
    question: str, *, yes: bool = False, default: bool = False, refused: str = "", hint: str = "", err: bool = True
) -> None:
    """Ask the person at the terminal, and return only after a yes.

    Args:
        yes: The answer was given already, by an option.
        default: The answer that Enter gives.
        refused, hint: The error that a no becomes; without them it ends the command as an interrupt does.
        err: Whether the question goes to stderr; it does unless stdout already shows what it is about.

    Raises:
        InvalidArgument: The answer is no, and `refused` is given.
        click.Abort: The answer is no, or nobody can answer.
    """
    if yes or click.confirm(question, default=default, abort=not refused, err=err):
        return
    raise InvalidArgument(refused, hint)


def console(stream: TextIO | None = None) -> "Console":
    """Return rich's console on a stream (stdout); it takes text as it is, and sets no limit where nobody looks."""
    from rich.console import Console

    plain = Console(file=stream, highlight=False, markup=False, emoji=False)
    if plain.is_terminal:
        return plain
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=100_000)


Cell = str | tuple[str, str]
"""A text, or a text and its style."""

Row = Sequence[Cell]


def show_table(columns: Sequence[str], rows: Sequence[Row], *, wide: Collection[str] = (), cut: bool = False) -> None:
    """Write a table to stdout. On a terminal it fits the width: the cells of the columns `wide` are folded, or with
    `cut` end in an ellipsis; where that does not help each row becomes a small table of its own. Elsewhere every row
    is one line with all its text.
    """
    where = console()
    if not where.is_terminal:
        _write_lines(where, _table(columns, rows, columns, cut=True))
    elif _least(columns, rows, wide) <= where.width:
        where.print(_table(columns, rows, wide, cut=cut))
    else:
        for row in rows:
            pairs = [((column, "dim"), cell) for column, cell in zip(columns, row, strict=True)]
            where.print(_table(("", " "), pairs, (" ",), cut=False))
            where.print()


def _table(columns: Sequence[str], rows: Sequence[Row], wide: Collection[str], *, cut: bool) -> "Table":
    from rich.table import Table

    head = any(column.strip() for column in columns)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=head)
    for column in columns:
        table.add_column(column, overflow="ellipsis" if cut else "fold", no_wrap=cut or column not in wide)
    for row in rows:
        table.add_row(*(_cell(cell) for cell in row))
    return table


def _least(columns: Sequence[str], rows: Sequence[Row], wide: Collection[str]) -> int:
    """Return the characters that a table needs when its wide columns are as narrow as can be read."""
    widths = [
        max(_cell(cell).cell_len for cell in (column, *cells)) for column, *cells in zip(columns, *rows, strict=True)
    ]
    return sum(
        min(width, _NARROW) if column in wide else width for column, width in zip(columns, widths, strict=True)
    ) + 2 * (len(columns) - 1)


def show_text(text: str, style: str = "", indent: int = 0) -> None:
    """Write a paragraph to stdout, wrapped and indented on a terminal."""
    from rich.padding import Padding

    where, paragraph = console(), Padding(_cell((text, style)), (0, 0, 0, indent))
    if where.is_terminal:
        where.print(paragraph)
    else:
        _write_lines(where, paragraph)


def show_diff(diff: str) -> None:
    """Write a unified diff to stdout, in colours on a terminal."""
    from rich.text import Text

    where = console()
    for line in safe(diff).split("\n")[:-1]:
        where.print(Text(line, _diff_style(line)), soft_wrap=True)


def _diff_style(line: str) -> str:
    if line.startswith(("--- ", "+++ ")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


def _cell(cell: Cell) -> "Text":
    from rich.text import Text

    text, style = cell if isinstance(cell, tuple) else (cell, "")
    return Text(one_line(text), style)


def _write_lines(where: "Console", what: "RenderableType") -> None:
    with where.capture() as captured:
        where.print(what)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


@contextlib.contextmanager
def progress(label: str) -> Iterator[Progress]:
    """Yield a function that shows progress on stderr: a bar on a terminal, else a line now and then."""
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
    """Return a stored moment as a person here reads it: 2026-11-20 12:05."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 skill, 2 skills."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"


def some(texts: Sequence[str], most: int) -> str:
    """Return the first of several texts, and how many more there are."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most:,} more" if len(texts) > most else "")
