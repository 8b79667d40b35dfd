"""The commands help and completion: what this program can do, for a person and for a shell."""

import dataclasses
from collections.abc import Sequence

import click
from click.shell_completion import get_completion_class

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.command_groups import help_sections, words_below
from evolvable_server.cli.terminal import page_output, say
from evolvable_store.errors import InvalidArgument

VARIABLE = "_EVOLVABLE_COMPLETE"
"""The variable by which a shell asks this program how a command line goes on."""


@dataclasses.dataclass(frozen=True, slots=True)
class HelpText:
    """The help of the program or of one command.

    commands: with --all, the section -> the word -> its summary.
    """

    text: str
    commands: dict[str, dict[str, str]] | None = None


@command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.option("--all", "everything", is_flag=True, help="All commands, by groups.")
def help_command(state: CommandContext, words: Sequence[str], everything: bool) -> Output[HelpText]:
    """Show all commands, or the help of one.

    Without COMMAND and --all it shows the commands of every day.
    """
    if everything and words:
        raise click.UsageError("--all goes without a command.")
    root = click.get_current_context().find_root()
    if everything:
        return Output(HelpText(_format_all_help(root), help_sections()), _show_help)
    return Output(HelpText(_get_help(root, words)), _show_help)


def _get_help(ctx: click.Context, words: Sequence[str]) -> str:
    """Return the help of the command that these words call. Raise click.UsageError."""
    for word in words:
        group = ctx.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"`{ctx.command_path}` has no further commands.")
        # Resolved as on a command line, so that aliases have help too.
        _, below, _ = group.resolve_command(ctx, [word])
        if below is not None:
            width = ctx.max_content_width
            ctx = click.Context(below, info_name=word, parent=ctx, max_content_width=width)
    return ctx.get_help()


def _show_help(help_text: HelpText) -> None:
    with page_output():
        click.echo(help_text.text)


def _format_all_help(root: click.Context) -> str:
    """Return all commands by sections; of a group, with the words that go behind it."""
    formatter = root.make_formatter()
    for section, summaries in help_sections().items():
        with formatter.section(section):
            formatter.write_dl(
                [(word, summary + _format_actions(word)) for word, summary in summaries.items()]
            )
    formatter.write_paragraph()
    formatter.write_text(
        "`evolvable help COMMAND` shows what a command does, its options and an example."
    )
    return formatter.getvalue().strip("\n")


def _format_actions(word: str) -> str:
    """Return the words that go behind a word, in brackets; '' for none."""
    # From the registry, so that the module of the command is not imported.
    below = words_below(word)
    return f" ({', '.join(below)})" if below else ""


@command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(state: CommandContext, shell: str) -> Output[dict[str, str]]:
    """Print what completes commands, options and refs in a shell.

    Add it to the file that the shell reads at its start.
    """
    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise InvalidArgument(f"{shell} is not known to click.", "Use bash, zsh or fish.")
    root = click.get_current_context().find_root()
    script = completion_class(root.command, {}, "evolvable", VARIABLE).source()
    return Output({"shell": shell, "script": script}, lambda _: say(script))
