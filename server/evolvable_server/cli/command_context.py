"""What every command shares: the library, the caller, and how a result or an error is shown."""

import contextlib
import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from evolvable_server.cli.effects import TOOLS, Runner, authority_of, check_may, runner_of
from evolvable_server.cli.terminal import remark, safe, warn
from evolvable_server.config import Config, library_home, read_config
from evolvable_server.person_config import registered_homes
from evolvable_store.errors import EvolvableError, InvalidResource, Refused
from evolvable_store.operation import Identity, Principal
from evolvable_store.resource import Kind, Ref
from evolvable_tools.verbs.registry import Authority

if TYPE_CHECKING:
    from evolvable_server.cli.inbox_commands import PassphraseSigner
    from evolvable_tools.library import Caller, Library

# Start time: the library is imported in `CommandContext.library`, so help and usage errors do not wait for it.

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


def to_cli_words(text: str) -> str:
    """Return a message of the verbs in the words of the command line: `evolvable find` for find_skill."""
    return _SPOKEN.sub(lambda match: _WORDS[match[0]], text)


class CommandContext:
    """The options of one run, and the library and caller that follow from them."""

    def __init__(self) -> None:
        self.home: Path | None = None
        self.json = False
        self._signer: PassphraseSigner | None = None
        self.token_file: Path | None = None
        self.decides = False
        """Whether the command makes a decision of a person; set after the caller was found to be allowed."""
        self.has_yes = False
        """Whether the command has an option that answers its question."""
        self._runner: Runner | None = None

    def config(self) -> Config:
        """Return the settings of this process. Raise InvalidRef."""
        return read_config(home=self.home)

    @contextlib.contextmanager
    def library(self, *, create: bool = False) -> "Iterator[tuple[Library, Caller]]":
        """Yield the open library, and the caller that runs this command. Raise as Store.open."""
        from evolvable_server.app import ListedFolders, approvals_lock, assign_trusted_folders, make_caller
        from evolvable_server.clients.memory_files import refresh_memory_files
        from evolvable_server.model_setup import Redaction, approval_policies, open_search
        from evolvable_tools.approval_policy import ApprovalLevel
        from evolvable_tools.library import Library
        from evolvable_tools.trust import mark_repository_heads

        config = self.config()
        redactor, kinds = Redaction(config.home).redactor, approval_policies(config)
        with (
            open_search(config) as means,
            Library.open(
                config.home,
                create=create,
                registered=registered_homes,
                means=means,
                redactor=redactor,
                policies=kinds,
                level=ApprovalLevel(config.approve),
                lock=approvals_lock(config),
                trusted_folders=ListedFolders(config.home),
            ) as library,
        ):
            _report_regraded(library)
            for text in [
                *mark_repository_heads(library),
                *(assign_trusted_folders(library) if self.identity.principal is Principal.PERSON else []),
            ]:
                warn(text)
            sequence = library.store.sequence()
            who = make_caller(config, library, self.identity, decides=self.decides)
            yield library, replace(who, signer=self.signer())
            if library.store.sequence() != sequence:
                refresh_memory_files(config.home, library)

    @property
    def identity(self) -> Identity:
        """The principal that this command runs for, and how it is known."""
        return self.runner.identity

    @property
    def runner(self) -> Runner:
        """Who runs this command. Raise Refused or InvalidArgument for the token that it was given."""
        if self._runner is None:
            self._runner = runner_of(os.environ, self.token_file, library_home(self.home))
        return self._runner

    def check(self, ctx: click.Context) -> None:
        """Check that the caller may run this command. Raise Refused."""
        self.has_yes = any(parameter.name == "yes" for parameter in ctx.command.params)
        check_may(ctx, self.runner)
        self.decides = authority_of(ctx) is Authority.APPROVE

    def require_person(self, what: str) -> None:
        """Check that a person runs this command. Raise Refused."""
        if self.identity.principal is not Principal.PERSON:
            raise Refused(f"{what} is for a person at a terminal.", "Nothing was changed.")

    def signer(self, key: str = "", ask: Callable[[], str] | None = None) -> "PassphraseSigner | None":
        """Return what signs decisions, always the same one; None where approvals are not locked.

        key, ask: of a lock that is being made.
        """
        if self._signer is None:
            wanted = key or self.config().person.lock_key
            if wanted:
                from evolvable_server.cli.inbox_commands import PassphraseSigner

                self._signer = PassphraseSigner(wanted, ask or _ask_passphrase)
        return self._signer

    def show(self, result: Any, render: Callable[[], None]) -> None:
        """Write a result: with --json its fields, exactly as an MCP tool returns them, else what `render` writes."""
        if self.json:
            self.show_json(dataclasses.asdict(result))
        else:
            render()

    def show_json(self, value: Any) -> None:
        """Write a value as JSON. Only ASCII, so that no text in it can steer a terminal."""
        click.echo(json.dumps(value, indent=2, default=str))

    def fail(self, error: EvolvableError) -> None:
        """Write an error: with --json as {"error", "hint"} to stdout, where the result would have been."""
        message, hint = to_cli_words(str(error)), to_cli_words(error.hint)
        if self.json:
            self.show_json({"error": message, "hint": hint})
            return
        if isinstance(error, InvalidResource) and len(error.problems) > 1:
            message = "\n  - ".join([f"{error.ref} cannot be stored:", *error.problems])
        click.echo(f"{click.style('Error:', fg='red', bold=True)} {safe(message)}", err=True)
        if hint:
            click.echo(f"{click.style('Hint:', fg='cyan')} {safe(hint)}", err=True)


def _ask_passphrase() -> str:
    asked: str = click.prompt("Passphrase of the approvals lock", hide_input=True, err=True)
    return asked


def _report_regraded(library: "Library") -> None:
    """Say once, on stderr, which resources stand lower since evidence is graded."""
    if library.store.read_only or not library.evidence.regraded(unsaid=True):
        return
    from evolvable_tools.trust import find_downgraded, format_downgraded

    found = find_downgraded(library, unsaid=True)
    library.evidence.mark_regrading_reported()
    for line in format_downgraded(found) if found else ():
        remark(line)


class HomeType(click.Path):
    """A folder's path; an empty one, such as an unset variable leaves, is refused and not taken for this folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty; name the library's folder.", param, ctx)
        return super().convert(value, param, ctx)


def _set_home(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.ensure_object(CommandContext).home = value


def _set_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(CommandContext).json = True


home_option = click.option(
    "--home",
    metavar="PATH",
    type=HomeType(path_type=Path),
    expose_value=False,
    is_eager=True,
    callback=_set_home,
    help="The library's folder (default: $EVOLVABLE_HOME, else ~/.evolvable).",
)


def _set_token_file(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.ensure_object(CommandContext).token_file = value


token_option = click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    expose_value=False,
    is_eager=True,
    callback=_set_token_file,
    help="Run as the script whose token FILE holds (see `evolvable token`).",
)

json_option = click.option(
    "--json", is_flag=True, expose_value=False, is_eager=True, callback=_set_json, help="Write the result as JSON."
)

pass_state = click.make_pass_decorator(CommandContext, ensure=True)


def checked_command(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function of a command with State as its first argument, run only for those who may."""

    @functools.wraps(function)
    def run(state: CommandContext, *arguments: Any, **options: Any) -> None:
        state.check(click.get_current_context())
        function(state, *arguments, **options)

    wrapped: Callable[..., None] = pass_state(run)
    return wrapped


def command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator that makes a command of a function of State: with --home and --json.

    The command runs only for callers that `effects` allows.
    """

    def make(function: Callable[..., None]) -> click.Command:
        with_options: Callable[..., None] = home_option(json_option(checked_command(function)))
        return click.command(name)(with_options)

    return make


class RefType(click.ParamType[Ref]):
    """A ref such as skill:pdf@3; a bare name is a skill's."""

    name = "ref"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Ref:
        return value if isinstance(value, Ref) else Ref.parse(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the refs that begin so, with or without their kind; none when there is no library."""
        with contextlib.suppress(EvolvableError), ctx.ensure_object(CommandContext).library() as (library, _):
            refs = [str(head.ref) for head in library.store.heads()]
            bare = [ref.removeprefix("skill:") for ref in refs if ":" not in incomplete and ref.startswith("skill:")]
            return [CompletionItem(ref) for ref in (*bare, *refs) if ref.startswith(incomplete)][:500]
        return []


REF = RefType()

KIND = click.Choice([kind.value for kind in Kind])


def reason_option(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option -m with its default."""
    return click.option(
        "-m", "--reason", default=default, show_default=True, help="Why, in a sentence; kept in the history."
    )


expect_option = click.option(
    "--expect", type=click.IntRange(min=0), metavar="N", help="Fail unless the newest version is N."
)
