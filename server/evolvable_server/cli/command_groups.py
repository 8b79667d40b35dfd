"""The commands by name: which module holds one, which words call it, and the groups that show
several.

The registry of verbs places most commands below a word, such as `judge` below `role`. The name
alone calls it as well.
"""

import importlib
import pkgutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import click

from evolvable_server import plugins
from evolvable_server.cli.terminal import remark
from evolvable_store.errors import quote_text
from evolvable_store.resource import near_names
from evolvable_tools import verbs
from evolvable_tools.verbs import EXAMPLES, FIRST, GROUPS, PLACES, VERBS, place_of, verb_at

# A table and no search, so that only the module of the named command is imported.
_MODULES: dict[str, tuple[str, ...]] = {
    "read_commands": ("find", "load", "report", "list", "get", "history"),
    "audit_commands": ("audit",),
    "look_commands": ("show", "diff"),
    "status_command": ("status",),
    "digest_command": ("digest",),
    "version_commands": ("log", "update", "restore", "remove", "undo"),
    "editor_commands": ("new", "edit"),
    "session_commands": ("stats", "sessions", "review", "compress"),
    "memory_commands": ("memory",),
    "inbox_commands": ("inbox", "publish", "channel"),
    "learned_commands": ("learned",),
    "person_commands": ("approvals", "approve", "trust"),
    "role_commands": ("executor", "scorer", "judge", "reviewer", "proposer"),
    "quickstart_command": ("quickstart",),
    "setup_command": ("setup",),
    "model_commands": ("model",),
    "folder_commands": ("init", "folders", "sync"),
    "collection_commands": ("collection",),
    "archive_commands": ("backup", "export", "import"),
    "checkout_commands": ("checkout",),
    "client_commands": ("connect", "disconnect"),
    "command_line": ("serve",),
    "help_commands": ("help", "completion"),
    "doctor_command": ("doctor",),
    "scan_command": ("scan",),
    "lifecycle_commands": ("recover", "uninstall"),
    "upgrade_command": ("upgrade",),
    "maintenance": ("fsck", "gc", "purge", "trash"),
}
"""Module of this package -> the commands that it holds."""

_OWN = {
    name: f"evolvable_server.cli.{module}:{name}_command"
    for module, names in _MODULES.items()
    for name in names
}

COMMANDS: Mapping[str, str] = plugins.merged_tables([_OWN, *plugins.built_in_commands()])
"""Command -> `module:attribute` of it, with those of the parts that come with the program."""


def all_commands() -> Mapping[str, str]:
    """Return the commands with those of other distributions, whose metadata is read."""
    return plugins.merged_tables([COMMANDS, *plugins.all_hooks().commands()])


def load_command(name: str) -> click.Command | None:
    """Import and return the command of this name in the registry, None where no part has it."""
    # Other distributions last: their metadata takes time to read.
    target = COMMANDS.get(name) or all_commands().get(name)
    if target is None:
        return None
    loaded: click.Command = pkgutil.resolve_name(target)
    return loaded


TOOLS = {tool.name: tool.command for tool in verbs.TOOLS.values() if tool.command}
"""MCP tool -> the command that does the same."""


def resolve_name(name: str) -> str:
    """Return the command that a name of the command line means: a command, an MCP tool's name, or
    an alias.
    """
    return TOOLS.get(name, verbs.ALIASES.get(name, name))


def suggest_command(
    ctx: click.Context, name: str, names: Iterable[str], hints: Mapping[str, str]
) -> NoReturn:
    """End with a usage error that suggests the nearest command for an unknown name."""
    program = ctx.command_path
    if name in hints:
        suggestion = f"Use: {program} {hints[name]}"
    else:
        near = near_names(name, names, 1)
        of_all = f"`{program} help --all`" if ctx.parent is None else f"`{program} --help`"
        suggestion = (
            f"Did you mean '{place_of(near[0])}'?" if near else f"{of_all} lists all commands."
        )
    ctx.fail(f"No such command {quote_text(name)}. {suggestion}")


def command_name(ctx: click.Context) -> str:
    """Return the name of a command in the registry, such as `evolve start`, whichever words it was
    called by.
    """
    names: list[str] = []
    step: click.Context | None = ctx
    while step is not None and step.parent is not None:
        names.insert(0, resolve_name(step.info_name or ""))
        step = step.parent
    return verb_at(" ".join(names))


def _write_example(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    if example := EXAMPLES.get(command_name(ctx)):
        with formatter.section("Example"):
            # On one line, to be copied.
            formatter.write(f"{'':{formatter.current_indent}}{example}\n")


def words_below(word: str) -> list[str]:
    """Return the words that go behind a word of the command line, in order."""
    # A word has verbs of its own, and those that the registry places below it.
    own = (name.partition(" ")[2] for name in VERBS if name.startswith(f"{word} "))
    placed = (place.partition(" ")[2] for place in PLACES.values() if place.startswith(f"{word} "))
    return sorted({*own, *placed})


class VerbCommand(click.Command):
    """A command whose help ends with an example."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example of the registry."""
        _write_example(ctx, formatter)


class VerbGroup(click.Group):
    """The commands of some modules below a name, and those that the registry places there.

    A module is imported when one of its commands is used; the registry has the help.
    """

    def __init__(self, *arguments: Any, modules: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._modules = modules

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example of the registry."""
        _write_example(ctx, formatter)

    def _list_placed_commands(self) -> dict[str, str]:
        """Return the commands that are placed below this name: the last word -> the command."""
        prefix = f"{self.name} "
        return {
            place.removeprefix(prefix): command
            for command, place in PLACES.items()
            if place.startswith(prefix)
        }

    def _list_own_words(self) -> list[str]:
        return [name.partition(" ")[2] for name in VERBS if name.startswith(f"{self.name} ")]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self._list_own_words(), *self._list_placed_commands()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        # The registry's places first: they lead to a command of any module.
        if placed := self._list_placed_commands().get(cmd_name):
            return load_command(placed)
        if cmd_name not in self._list_own_words():
            return None
        modules = (importlib.import_module(name) for name in self._modules)
        function = f"{cmd_name.replace('-', '_')}_command"
        # One module after the other is imported, until one has the command.
        loaded: click.Command = next(
            vars(module)[function] for module in modules if function in vars(module)
        )
        return loaded

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        # The message of click knows neither aliases nor the nearest name.
        if args and not args[0].startswith("-") and args[0] not in names:
            suggest_command(ctx, args[0], names, {})
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with its summary."""
        with formatter.section("Commands"):
            words = self.list_commands(ctx)
            names = {word: verb_at(f"{self.name} {word}") for word in words}
            formatter.write_dl(
                [
                    (word, VERBS[name].summary if name in VERBS else GROUPS[name])
                    for word, name in names.items()
                ]
            )


def _find_summary(name: str) -> str:
    """Return the summary of a word of the command line: that of the group, where it is one."""
    return GROUPS[name] if name in GROUPS else VERBS[name].summary


class BackupGroup(VerbGroup):
    """The group `backup`. `backup TARGET`, the command of earlier versions, still makes a copy."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [*self.list_commands(ctx), *ctx.help_option_names]
        if args and not any(word in words for word in args[:3]):  # behind `--home PATH` at most
            hint_at_place(ctx, "backup", args)
            args = ["create", *args]
        return super().parse_args(ctx, args)


def hint_at_place(ctx: click.Context, name: str, args: Sequence[str]) -> None:
    """Say to a person at a terminal by which words a command is called now.

    A script sees nothing of it.
    """
    wants_json = "--json" in args or getattr(ctx.obj, "json", False)
    # A shell that completes a line parses it too, and must see nothing printed.
    if not (wants_json or ctx.resilient_parsing) and sys.stderr.isatty():
        remark(f"now: evolvable {PLACES[name]}")


def help_sections() -> dict[str, dict[str, str]]:
    """Return section of the help -> word of the command line -> its summary, with those of all
    parts.

    Those of FIRST come in their order, before all others.
    """
    # Registers the verbs of all parts, which the loop reads.
    plugins.all_hooks()
    sections: dict[str, dict[str, str]] = {"Every day": first_commands()}
    for verb in VERBS.values():
        word = place_of(verb.name).partition(" ")[0]
        if verb.command is None and word not in FIRST:
            sections.setdefault(verb.section, {}).setdefault(word, _find_summary(word))
    return sections


def first_commands() -> dict[str, str]:
    """Return the commands that the help shows first -> summary, as far as this installation has
    them.
    """
    return {name: _find_summary(name) for name in FIRST if name in VERBS or name in GROUPS}
