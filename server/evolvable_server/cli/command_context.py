"""What every command shares: the library, who runs it and whether they may, and how a result or an
error is shown.

The registry of verbs says what each command does and who may run it. A command that is missing
there runs for nobody but a person, and a test keeps the registry complete.
"""

import contextlib
import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import click

from evolvable_server import plugins
from evolvable_server.cli.command_groups import TOOLS, VerbCommand, command_name
from evolvable_server.cli.exit_codes import ExitCode
from evolvable_server.cli.terminal import (
    ask,
    page_output,
    progress,
    remark,
    show_error,
    tsv_tables,
    warn,
)
from evolvable_server.config import (
    NO_TERMINAL,
    Config,
    cli_identity,
    library_home,
    marked_client,
    open_address,
    read_config,
)
from evolvable_server.person_config import registered_homes
from evolvable_store import Identity, Principal, is_address
from evolvable_store.errors import (
    EvolvableError,
    InvalidArgument,
    InvalidResource,
    LibraryReadOnly,
    NoLibrary,
    Refused,
)
from evolvable_tools.verbs import VERBS, Authority, place_of, refusal_reason

if TYPE_CHECKING:
    from evolvable_server.approval_keys import PassphraseSigner
    from evolvable_tools import Caller, Library

# Start time: functions import the library and the tokens, so that help and usage errors do not wait
# for them.

# Messages of the verbs are written for agents: here tools and arguments become commands and
# options.
_WORDS = {
    **{
        tool: f"`evolvable {place_of(command)}`"
        for tool, command in TOOLS.items()
        if tool != command
    },
    "expected_version": "--expect",
    "create=true": "--create",
    "copy_of": "--copy-of",
    "say that it is replaced": "pass --replace",
    "say that it is to be replaced": "--replace does that",
    "files {path: text}, or edits [{path, old, new}]": "--file, --edit, --delete or --editor",
}
# The longest first, since one may begin with another; and nothing inside a word or a command in
# backticks.
_WORD_PATTERN = re.compile(
    "|".join(
        rf"(?<![`\w]){re.escape(word)}(?!\w)" for word in sorted(_WORDS, key=len, reverse=True)
    )
)


def to_cli_words(text: str) -> str:
    """Return a message of the verbs in the words of the command line: `evolvable find` for
    find_skill.
    """
    return _WORD_PATTERN.sub(lambda match: _WORDS[match[0]], text)


# More than any token has. The limit refuses a wrong file before it is read whole.
MAX_TOKEN = 4_096
"""Bytes of a file with a token."""


@dataclass(frozen=True, slots=True)
class Runner:
    """Who runs a command.

    permissions: of a script's token, by name; a person and an agent have none.
    """

    identity: Identity
    permissions: frozenset[str] = frozenset()


def runner_of(environment: Mapping[str, str], token_file: Path | None, home: Path) -> Runner:
    """Return who runs a command: the script whose token the file holds, else as `cli_identity`
    says.

    A client's mark counts more than a token: what an agent starts is the agent's. Raise Refused for
    a token that is not valid, InvalidArgument for a file that cannot be read.
    """
    identity = cli_identity(environment)
    # Before the token is looked at: an agent that finds a token's file must not act with it.
    if token_file is None or marked_client(environment) is not None:
        return Runner(identity)
    token = plugins.hooks().find_token(home=home, secret=_read_secret(token_file))
    if token is None:
        raise Refused(
            f"The token in {token_file} is not valid for the library in {home}.",
            "It was revoked, has expired or belongs to another library; `evolvable team token "
            "list` shows all.",
        )
    name, permissions = token
    return Runner(Identity(Principal.SCRIPT, f"token:{name}"), frozenset(permissions))


def _read_secret(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_TOKEN + 1)
    except OSError as error:
        raise InvalidArgument(
            f"{path} cannot be read: {error.strerror}.", "It holds the secret of one token."
        ) from None
    if not data.strip() or len(data) > MAX_TOKEN:
        raise InvalidArgument(
            f"{path} holds no token.", "It holds the secret of one token, and nothing else."
        )
    # Bytes that are no text make a token that is not valid, and not a traceback.
    return data.decode("utf-8", "surrogateescape").strip()


_FOR_AGENTS = (Authority.READ, Authority.REPORT, Authority.WRITE)

_HINT = (
    "A person does it at a terminal or in the client. Tell the user what you need, and go on "
    "without it."
)


def _find_verb_name(ctx: click.Context) -> str:
    """Return the name of the verb that a command runs: its own name, and that of its action."""
    # A command with actions is a verb for each of them, such as `inbox list`.
    action = ctx.params.get("action")
    return f"{command_name(ctx)} {action}" if isinstance(action, str) else command_name(ctx)


def _check_allowed(ctx: click.Context, runner: Runner) -> Authority | None:
    """Return who may run a command with its arguments, None for an unknown command.

    Raise Refused where the runner may not.
    """
    name = _find_verb_name(ctx)
    authority = VERBS[name].authority if name in VERBS else None
    if authority is not None and _is_read_only(name, ctx.params):
        authority = Authority.READ
    if name == "ui" and ctx.params.get("signing") and runner.identity.via == NO_TERMINAL:
        # A service: nobody decides by starting it, and each who signs in decides for themselves.
        return authority
    if runner.identity.principal is Principal.SCRIPT:
        _check_script(name, authority, runner)
    elif runner.identity.principal is not Principal.PERSON and authority not in _FOR_AGENTS:
        raise _make_refusal(name, authority, runner)
    return authority


def _make_refusal(name: str, authority: Authority | None, runner: Runner) -> Refused:
    """Return the error for a caller that is no person.

    Only a client's mark says that an agent runs the command.
    """
    if runner.identity.via != NO_TERMINAL:
        text = (
            f"`{place_of(name)}` is refused: {refusal_reason(name)}, and this command runs "
            "for an agent."
        )
        return Refused(text, _HINT)
    token = ", or --token-file" if authority is Authority.APPROVE else ""
    text = f"`{place_of(name)}` is refused: {refusal_reason(name)}. It needs a terminal{token}."
    return Refused(
        text, "Run it at a terminal: neither its input nor its output may be a pipe or a file."
    )


def _check_script(name: str, authority: Authority | None, runner: Runner) -> None:
    if authority is None or authority is Authority.PERSON:
        hint = "A person does it at a terminal."
        raise Refused(
            f"`{place_of(name)}` is refused: {refusal_reason(name)}, and no token stands for that.",
            hint,
        )
    # Tokens know no permission for reports; the one for reading includes them.
    needed = Authority.READ if authority is Authority.REPORT else authority
    if needed not in runner.permissions:
        may = ", ".join(sorted(runner.permissions)) or "nothing"
        hint = f"A person makes tokens; one with the permission {needed} may run it."
        raise Refused(
            f"`{place_of(name)}` is refused: it needs the permission {needed}; this token "
            f"may {may}.",
            hint,
        )


def _is_read_only(name: str, params: Mapping[str, Any]) -> bool:
    """Return whether these arguments make a command show what it would do, or what is set."""
    # Without an executor, a plan starts no program.
    runs_nothing = name == "evolve plan" and not params.get("executor")
    return (
        bool(params.get("dry_run"))
        or runs_nothing
        or (name == "channel policy" and not params.get("arguments"))
    )


Result = TypeVar("Result")


class Output(NamedTuple, Generic[Result]):
    """What a command returns: its result, the function that writes it for a person, and the exit
    code.
    """

    result: Result
    render: Callable[[Result], None]
    code: ExitCode = ExitCode.DONE


class CommandContext:
    """The options of one run, and the library and caller that follow from them."""

    def __init__(self) -> None:
        self.home: Path | None = None
        self.json = False
        self.tsv = False
        self._signer: PassphraseSigner | None = None
        self.token_file: Path | None = None
        self.decides = False
        """Whether the command makes a decision of a person; set after the caller was found to be
        allowed.
        """
        self.has_yes = False
        """Whether the command has an option that answers its question."""
        self._runner: Runner | None = None

    def config(self) -> Config:
        """Return the settings of this process. Raise InvalidRef."""
        return read_config(home=self.home)

    @contextlib.contextmanager
    def library(self, *, create: bool = False) -> "Iterator[tuple[Library, Caller]]":
        """Yield the open library, and the caller that runs this command. Raise as Store.open."""
        from evolvable_server.app import (
            ListedFolders,
            approvals_lock,
            assign_trusted_folders,
            make_caller,
            marks_agents,
        )
        from evolvable_server.clients import refresh_memory_files
        from evolvable_server.model_setup import Redaction, approval_policies, open_search
        from evolvable_store.workingcopy import take_notices
        from evolvable_tools import (
            ApprovalLevel,
            Library,
            lost_lock_message,
            lost_locks,
            mark_repository_heads,
        )

        config = self.config()
        redactor, policies = Redaction(config.home).redactor, approval_policies(config)
        with (
            open_search(config) as dependencies,
            Library.open(
                config.home,
                create=create,
                registered=registered_homes,
                dependencies=dependencies,
                redactor=redactor,
                policies=policies,
                level=ApprovalLevel(config.approve),
                lock=approvals_lock(config),
                marks_agents=marks_agents(config),
                trusted_folders=(listed_folders := ListedFolders(config.home)),
                followed_folders=listed_folders.list_followed,
                trials=plugins.trial_arms(),
            ) as library,
        ):
            _report_regraded(library)
            warn(*mark_repository_heads(library))
            if lost := lost_locks(library.lock, library.store.backend):
                warn(" ".join(lost_lock_message(library.lock, lost)))
            if self.identity.principal is Principal.PERSON:
                warn(*assign_trusted_folders(library, _list_folder))
            # Taken after those repairs: only a change of the command itself renews the files of
            # memories.
            sequence = library.store.sequence()
            caller = make_caller(config, library, self.identity, decides=self.decides)
            # Returned notices are deleted: a run for an agent must not use up what is meant for the
            # person.
            if self.identity.principal is Principal.PERSON:
                warn(*take_notices(library.store.home))
            yield library, replace(caller, signer=self.signer())
            if library.store.sequence() != sequence:
                refresh_memory_files(config.home, library)

    def record(self, decision: str, subject: str) -> None:
        """Append a decision about the machine to the audit log of the library, where there is one
        to write to.
        """
        with contextlib.suppress(NoLibrary, LibraryReadOnly), self.library() as (library, caller):
            library.record(caller, decision, subject)

    @property
    def identity(self) -> Identity:
        """The principal that this command runs for, and how it is known."""
        return self.runner.identity

    @property
    def runner(self) -> Runner:
        """Who runs this command.

        Raise Refused or InvalidArgument for the token that it was given.
        """
        if self._runner is None:
            self._runner = runner_of(os.environ, self.token_file, library_home(self.home))
        return self._runner

    def check(self, ctx: click.Context) -> None:
        """Check that the caller may run this command. Raise Refused."""
        # For the hint where nobody answers the question.
        self.has_yes = any(parameter.name == "yes" for parameter in ctx.command.params)
        self.decides = _check_allowed(ctx, self.runner) is Authority.APPROVE

    def require_person(self, what: str) -> None:
        """Check that a person runs this command. Raise Refused."""
        if self.identity.principal is not Principal.PERSON:
            raise Refused(f"{what} is for a person at a terminal.", "Nothing was changed.")

    def signer(
        self, key: str = "", ask: Callable[[], str] | None = None
    ) -> "PassphraseSigner | None":
        """Return the signer of decisions, always the same; None where approvals are not locked.

        key, ask: the key and the question for the passphrase of a lock that is being made.
        """
        # One signer for the whole run, so that the passphrase is asked for once.
        if self._signer is None:
            lock_key = key or self.config().person.lock_key
            if lock_key:
                from evolvable_server.approval_keys import PassphraseSigner

                self._signer = PassphraseSigner(lock_key, ask or _ask_passphrase)
        return self._signer

    def unlock(self) -> None:
        """Ask for the passphrase where approvals are locked. Raise Refused for a wrong one."""
        if (signer := self.signer()) is not None:
            signer.unlock()

    def show(self, result: Result, render: Callable[[Result], None]) -> None:
        """Write a result by `render`, with --json all its fields, also empty ones.

        With `--format tsv`, write only the tables of `render`.
        """
        if self.json:
            self.show_json(result)
            return
        with tsv_tables() if self.tsv else contextlib.nullcontext():
            render(result)

    def show_json(self, value: Any) -> None:
        """Write a value as JSON. Only ASCII, so that no text in it can steer a terminal."""
        click.echo(json.dumps(value, indent=2, default=_to_plain))

    def fail(self, error: EvolvableError) -> None:
        """Write an error: with --json as {"error", "hint"} to stdout, where the result would have
        been.
        """
        message, hint = to_cli_words(str(error)), to_cli_words(error.hint)
        if self.json:
            self.show_json({"error": message, "hint": hint})
            return
        if isinstance(error, InvalidResource) and len(error.problems) > 1:
            message = "\n  - ".join([f"{error.ref} cannot be stored:", *error.problems])
        show_error(message, hint)


def _to_plain(value: Any) -> Any:
    """Return what JSON can hold for a value: the fields of a dataclass, else its text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


def _ask_passphrase() -> str:
    # err: stdout may be a file, or hold JSON.
    return ask("Passphrase of the approvals lock", hide_input=True, err=True)


def _list_folder(folder: Path, home: Path) -> None:
    from evolvable_server.config_edits import set_trusted

    set_trusted(folder, home)


def _report_regraded(library: "Library") -> None:
    """Say once, on stderr, which resources stand lower since evidence is graded."""
    # A library that is read-only could not store that the person was told.
    if library.store.read_only or not library.evidence.list_regraded(unsaid=True):
        return
    from evolvable_tools import find_downgraded, format_downgraded

    downgraded = find_downgraded(library, unsaid=True)
    library.evidence.mark_regrading_reported()
    if downgraded:
        remark(*format_downgraded(downgraded))


class HomeType(click.Path):
    """A folder's path; an empty one, such as an unset variable leaves, is refused and not taken for
    this folder.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty; name the library's folder.", param, ctx)
        if isinstance(value, str) and is_address(value):
            return open_address(value)
        return super().convert(value, param, ctx)


def _set_option(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    if value:
        setattr(ctx.ensure_object(CommandContext), option.name or "", value)


# Eager: the option holds before others are checked, wherever it stands on the line.
_common_option = functools.partial(
    click.option, expose_value=False, is_eager=True, callback=_set_option
)
"""An option of every command: it sets the attribute of the context that has its name."""

home_option = _common_option(
    "--home",
    metavar="PATH",
    type=HomeType(path_type=Path),
    help="The library's folder (default: $EVOLVABLE_HOME, else ~/.evolvable).",
)
token_option = _common_option(
    "--token-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Run as the script whose token FILE holds (see `evolvable team token`).",
)
json_option = _common_option("--json", is_flag=True, help="Write the result as JSON.")


def _set_format(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        state = ctx.ensure_object(CommandContext)
        # A --json before --format stays in force.
        state.json, state.tsv = value == "json" or state.json, value == "tsv"


format_option = click.option(
    "--format",
    type=click.Choice(["tsv", "json"]),
    expose_value=False,
    is_eager=True,
    callback=_set_format,
    help="Write the table as tab-separated values, or the result as JSON.",
)
"""An option of commands that print a table."""

pass_state = click.make_pass_decorator(CommandContext, ensure=True)


def command(
    name: str, *, table: bool = False
) -> Callable[[Callable[..., Output[Any] | None]], click.Command]:
    """Return a decorator that makes a command of a function of the context: with --home
    and --json.

    The command runs only for callers that the registry of verbs allows. What the function returns
    is shown after it ended, so no library is open then; None for a command that wrote its result
    itself. While it runs a terminal shows that it is at work. table: it prints a table, so it takes
    --format, and a long one opens in $PAGER.
    """

    def decorate(function: Callable[..., Output[Any] | None]) -> click.Command:
        @functools.wraps(function)
        def run(state: CommandContext, *arguments: Any, **options: Any) -> int:
            ctx = click.get_current_context()
            state.check(ctx)
            # After the check: a refused command shows nothing of itself.
            with progress(f"evolvable {place_of(_find_verb_name(ctx))}"):
                output = function(state, *arguments, **options)
            if output is None:
                return ExitCode.DONE
            with page_output() if table else contextlib.nullcontext():
                state.show(output.result, output.render)
            return output.code

        with_state = pass_state(run)
        return click.command(name, cls=VerbCommand)(
            home_option(json_option(format_option(with_state) if table else with_state))
        )

    return decorate
