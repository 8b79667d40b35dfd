"""Write to a terminal: text that cannot steer it, tables that fit it, progress, questions.

Functions import the tables: a command that prints JSON or serves a client never loads them.
"""

import contextlib
import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, AnyStr, TextIO

import click
from click.exceptions import NoArgsIsHelpError

try:
    import termios
except ImportError:  # Windows has none
    termios = None  # type: ignore[assignment]

from evolvable_server.cli.progress import paused_progress, show_progress
from evolvable_store.errors import InvalidArgument
from evolvable_tools import Progress
from evolvable_tools import count as count
from evolvable_tools import some as some

_HARMLESS = "\n\t\u200c\u200d"
"""Not printable for Python, yet no danger: line ends, tabs, and the joiners that scripts and emoji
need.
"""

_SHAPELESS = re.compile("[\ufe00-\ufe0e\U000e0100-\U000e01ef\u115f\u1160\u3164\uffa0]")
"""Letters and marks that show nothing, in which text can be hidden; the selector of coloured emoji
is none.
"""


def safe(text: str) -> str:
    r"""Return the text with all that could steer or fool a terminal written out, ESC as `\x1b`.

    That is every control character but line ends and tabs, every character that turns the direction
    of writing or has no shape, and lone surrogates. CR LF becomes LF; a bare CR is written out.
    """
    text = text.replace("\r\n", "\n")
    # Most text: no character of it needs a look.
    if text.isascii() and text.isprintable():
        return text
    text = _SHAPELESS.sub(lambda match: _escape(match[0]), text)
    return "".join(char if _is_harmless(char) else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _is_harmless(char: str) -> bool:
    # Spaces beyond ASCII, but not the separators of lines and paragraphs.
    is_wide_space = char.isspace() and char >= "\xa0" and char not in "\u2028\u2029"
    return char.isprintable() or char in _HARMLESS or is_wide_space


def one_line(text: str) -> str:
    """Return the safe text on one line."""
    return " ".join(safe(text).split())


def shorten_text(text: str, length: int) -> str:
    """Return the safe text on one line of at most `length` characters, cut between words."""
    return textwrap.shorten(one_line(text), length, placeholder=" ...")


def say(*lines: str) -> None:
    """Write lines of results, made safe; on a terminal they break between words."""
    _write(lines, sys.stdout)


def say_labelled(label: str, text: str, colour: str = "") -> None:
    """Write a line of results that begins with a label in a colour; on a terminal it breaks between
    words.
    """
    _write([text], sys.stdout, label, colour)


def say_quoted(text: str) -> None:
    """Write a text of another author, with every line indented, so that none looks like ours."""
    width = screen_width()
    for line in safe(text).split("\n"):
        parts = [line]
        if width:
            from evolvable_server.cli.tables import chop, wrap

            # A narrower terminal breaks the lines itself.
            room = max(width - 2, 20)
            parts = [piece for part in wrap(line.expandtabs(4), room) for piece in chop(part, room)]
        for part in parts:
            click.echo(f"  {part}".rstrip())


def _write(texts: Iterable[str], stream: TextIO, label: str = "", colour: str = "") -> None:
    """Write texts, made safe. label: begins each text, in the colour `colour`."""
    for text in texts:
        lines = safe(label + text).split("\n")
        if _is_terminal(stream):
            from evolvable_server.cli.tables import wrap

            width = shutil.get_terminal_size().columns
            lines = [part for line in lines for part in wrap(line, width, "  ")]
        # After the wrap, which counts the codes of a colour as cells.
        if label:
            lines[0] = style_text(label.rstrip(), colour) + lines[0].removeprefix(label.rstrip())
        for line in lines:
            click.echo(line, file=stream)


def remark(*lines: str) -> None:
    """Write lines about what is going on, made safe, where they are not taken for a result."""
    _write(lines, sys.stderr)


def warn(*texts: str) -> None:
    """Write warnings."""
    _write(texts, sys.stderr, "Warning: ", "bold yellow")


def show_error(message: str, hint: str = "") -> None:
    """Write an error, and what to do next."""
    _write([message], sys.stderr, "Error: ", "bold red")
    if hint:
        _write([hint], sys.stderr, "Hint: ", "cyan")


def show_usage_error(error: click.ClickException) -> None:
    """Write that a command was used wrongly as click does; on a terminal it breaks
    between words.
    """
    # click has the whole help as the message of this error.
    if isinstance(error, NoArgsIsHelpError):
        color = error.ctx.color if error.ctx else None
        click.echo(error.format_message(), err=True, color=color)
        return
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        click.echo(context.get_usage(), err=True, color=context.color)
        if context.command.get_help_option(context) is not None:
            option = context.help_option_names[0]
            remark(f"Try '{context.command_path} {option}' for help.", "")
    _write([error.format_message()], sys.stderr, "Error: ")


def confirm(
    question: str,
    *,
    yes: bool = False,
    default: bool = False,
    refused: str = "",
    hint: str = "",
    err: bool = True,
) -> None:
    """Ask the person at the terminal, and return only after a yes.

    Args:
        yes: The answer was given already, by an option.
        default: The answer that Enter gives.
        refused, hint: The error that a no becomes; without them it ends the command as an interrupt
        does.
        err: Whether the question goes to stderr; it does unless stdout already shows what it is
        about.

    Raises:
        InvalidArgument: The answer is no, and `refused` is given.
        click.Abort: The answer is no, or nobody can answer.
    """
    if yes or ask_yes(question, default=default, abort=not refused, err=err):
        return
    raise InvalidArgument(refused, hint)


def confirm_replacement(name: str, current: str, replacement: str, *, yes: bool) -> None:
    """Show what a name of the person's configuration stands for and what it would, and ask. Raise
    as `confirm`.

    Other projects of the account may use the name.
    """
    remark(
        f"{name} is named already:", f"  it is now     {current}", f"  it would be   {replacement}"
    )
    hint = "Choose another name, or answer yes (--yes)."
    confirm(
        f"Replace {name[0].lower()}{name[1:]}?", yes=yes, refused=f"{name} is as it was.", hint=hint
    )


def ask_yes(question: str, **options: Any) -> bool:
    """Return whether the person says yes.

    Raise click.Abort when nobody can answer. options: of click.confirm.
    """
    with paused_progress():
        return click.confirm(question, **options)


def ask(question: str, **options: Any) -> str:
    """Return what the person types.

    Raise click.Abort when nobody can answer. options: of click.prompt.
    """
    with paused_progress():
        typed: str = click.prompt(question, **options)
    return typed


def edit_text(text: AnyStr, path: str) -> AnyStr | None:
    """Return what the person saves of a text in an editor, None when nothing was saved.

    path: the name of its file.
    """
    with paused_progress():
        # Editors choose how to show a text by the ending of its file.
        return click.edit(text, extension=Path(path).suffix or ".txt")


_UNITS = ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB"))


def file_size(size: int) -> str:
    """Return a number of bytes as a person reads it: `1.5 MB`."""
    return next((f"{size / unit:.1f} {name}" for unit, name in _UNITS if size >= unit), f"{size} B")


def screen_width() -> int | None:
    """Return the cells of a line of the terminal that stdout is, None where it is none."""
    return shutil.get_terminal_size().columns if _is_terminal(sys.stdout) else None


def _is_terminal(stream: TextIO) -> bool:
    with contextlib.suppress(ValueError):  # it is closed
        return stream.isatty()
    return False


def style_text(text: str, style: str) -> str:
    """Return the text in a style, such as `bold red` or `dim`, plain where colours are
    not wanted.
    """
    # NO_COLOR counts with any value (no-color.org).
    if not style or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    colour = next((word for word in style.split() if word not in ("bold", "dim")), None)
    return click.style(text, fg=colour, bold="bold" in style or None, dim="dim" in style or None)


Cell = str | tuple[str, str]
"""A text, or a text and its style."""

Row = Sequence[Cell]


def show_table(
    columns: Sequence[str],
    rows: Sequence[Row],
    *,
    names: Collection[str] = (),
    wide: Collection[str] = (),
    spare: Sequence[str] = (),
    whole: bool = False,
) -> None:
    """Write a table to stdout, one line a row. On a terminal it fits the width, and what was left
    out is named.

    Elsewhere, and with `whole`, every row has all its text: a cut would take the closing mark of a
    text between marks. names, wide, spare: see `ColumnRoles`.
    """
    from evolvable_server.cli.tables import ColumnRoles, fit_table

    if _tsv is not None:
        _write_tsv([columns, *rows], _tsv)
        return
    width = None if whole else screen_width()
    if width is not None and rows:
        # Only for a person: a program expects the same columns each time.
        columns, rows = _drop_empty_columns(columns, rows)
    plain = [[one_line(_get_text(cell)) for cell in row] for row in rows]
    fitted = fit_table(columns, plain, width, ColumnRoles(names, wide, spare))
    for number, line in enumerate(fitted.cells):
        styles = [
            "bold" if number == 0 else _get_style(rows[number - 1][place])
            for place in fitted.columns
        ]
        cells = [
            style_text(_make_encodable(text), style)
            for text, style in zip(line, styles, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())
    if fitted.left_out:
        show_text(f"Not shown at {width} columns: {', '.join(fitted.left_out)}.", "dim")


def _drop_empty_columns(
    columns: Sequence[str], rows: Sequence[Row]
) -> tuple[Sequence[str], Sequence[Row]]:
    """Return a table without the columns in which no row has anything but zeros.

    The first column stays, because it names the row.
    """
    empty = ("", "-", "0")
    kept = [
        place
        for place in range(len(columns))
        if place == 0 or any(_get_text(row[place]).strip() not in empty for row in rows)
    ]
    return [columns[place] for place in kept], [[row[place] for place in kept] for row in rows]


_tsv: TextIO | None = None
"""Where rows go instead of tables, while a command was asked for tab-separated values."""


@contextlib.contextmanager
def tsv_tables() -> Iterator[None]:
    """Write the tables of the body to stdout as tab-separated values, and nothing else of it.

    The titles come first, each row has all its columns and its whole text. No cell has a tab or a
    line end in it.
    """
    global _tsv
    _tsv = sys.stdout
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        _tsv = None


def _write_tsv(rows: Iterable[Row], stream: TextIO) -> None:
    for row in rows:
        click.echo("\t".join(one_line(_get_text(cell)) for cell in row), file=stream)


def show_fields(rows: Sequence[tuple[Cell, Cell]]) -> None:
    """Write names with their texts to stdout; on a terminal a long text is wrapped and aligned."""
    from evolvable_server.cli.tables import cell_len, chop, wrap

    names = [one_line(_get_text(name)) for name, _ in rows]
    indent = max(map(cell_len, names), default=0) + 2
    width = screen_width()
    for name, (name_cell, text) in zip(names, rows, strict=True):
        line = one_line(_get_text(text))
        lines = [line]
        if width:
            # A narrower terminal breaks the lines itself.
            room = max(width - indent, 20)
            lines = [piece for part in wrap(line, room) for piece in chop(part, room)]
        head = style_text(name, _get_style(name_cell)) + " " * (indent - cell_len(name))
        click.echo((head + style_text(lines[0], _get_style(text))).rstrip())
        for more in lines[1:]:
            click.echo(" " * indent + style_text(more, _get_style(text)))


def _get_text(cell: Cell) -> str:
    return cell[0] if isinstance(cell, tuple) else cell


def _get_style(cell: Cell) -> str:
    return cell[1] if isinstance(cell, tuple) else ""


def _make_encodable(text: str) -> str:
    """Return a cell with a tilde for each ellipsis where the encoding of stdout has none."""
    try:
        "…".encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return text.replace("…", "~")
    return text


def show_text(text: str, style: str = "", indent: int = 0) -> None:
    """Write a paragraph to stdout, indented, and wrapped on a terminal."""
    from evolvable_server.cli.tables import wrap

    width, start = screen_width(), " " * indent
    line = start + one_line(text)
    for part in wrap(line, width) if width else [line]:
        click.echo(start + style_text(part[indent:], style))


def show_diff(diff: str) -> None:
    """Write a unified diff to stdout, on a terminal in the colours of git.

    On a terminal every line begins with its sign, also where it is wider than the screen. So no
    text of a file looks like a line of ours.
    """
    width = screen_width()
    # The diff ends with a line end, behind which there is no line.
    for line in safe(diff).split("\n")[:-1]:
        style = _choose_diff_style(line)
        for part in diff_lines(line, width) if width else [line]:
            click.echo(style_text(part, style))


def diff_lines(line: str, width: int) -> list[str]:
    """Return a line of a diff in pieces that fit a width; every piece after the first repeats its
    sign.
    """
    from evolvable_server.cli.tables import chop_at_words

    line = line.expandtabs(4)
    # Headers of files begin with these signs too, and are no changes.
    sign = line[:1] if line[:1] in ("+", "-") and not line.startswith(("+++ ", "--- ")) else " "
    first, *others = chop_at_words(line, width, max(1, width - 2))
    return [first, *(f"{sign} {piece}" for piece in others)]


def _choose_diff_style(line: str) -> str:
    if line.startswith(("--- ", "+++ ")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


def discard_typed() -> None:
    """Discard what was typed before now, so that it answers no question that was not read yet."""
    if termios is not None and sys.stdin.isatty():
        with contextlib.suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


class _Page(io.StringIO):
    """The output for a terminal, kept until it is known whether it fits the screen."""

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def page_output() -> Iterator[None]:
    """Show what the body writes to stdout in $PAGER where it is longer than the screen.

    Elsewhere write it through.
    """
    # Inside another page, which decides for both.
    if isinstance(sys.stdout, _Page) or not _is_terminal(sys.stdout):
        yield
        return
    page = _Page()
    with contextlib.redirect_stdout(page):
        yield
    text = page.getvalue()
    # One line is left for the prompt.
    if text.count("\n") < shutil.get_terminal_size().lines:
        click.echo(text, nl=False)
    else:
        with paused_progress():
            click.echo_via_pager(text)


def progress(label: str) -> contextlib.AbstractContextManager[Progress]:
    """Return a context that shows progress on a terminal, and yields a function that sets it."""
    return show_progress(one_line(label))


def local_time(at: str) -> str:
    """Return a stored moment as a person here reads it: 2026-11-20 12:05."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")
