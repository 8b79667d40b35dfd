"""Who runs a command, and whether they may: the person at the terminal, an agent's shell, or a script with a token.

The registry of verbs says what each command does and who may run it. A command that is missing there runs for nobody
but a person, and a test keeps the registry complete.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from evolvable_server.config import cli_identity, marked_client
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.operation import Identity, Principal
from evolvable_tools.verbs import registry
from evolvable_tools.verbs.registry import VERBS, Authority, refusal_reason

TOOLS = {tool.name: tool.command for tool in registry.TOOLS.values() if tool.command}
"""MCP tool -> the command that does the same."""

MAX_TOKEN = 4_096
"""Bytes of a file with a token."""


@dataclass(frozen=True, slots=True)
class Runner:
    """Who runs a command. permissions: of a script's token, by name; a person and an agent have none."""

    identity: Identity
    permissions: frozenset[str] = frozenset()


def runner_of(environment: Mapping[str, str], token_file: Path | None, home: Path) -> Runner:
    """Return who runs a command: the script whose token the file holds, else as `cli_identity` says.

    A client's mark counts more than a token: what an agent starts is the agent's. Raise Refused for a token that is
    not valid, InvalidArgument for a file that cannot be read.
    """
    identity = cli_identity(environment)
    if token_file is None or marked_client(environment) is not None:
        return Runner(identity)
    from evolvable_server.transport.http_auth import Tokens  # a command without a token never needs it

    found = Tokens(home).find(_secret(token_file))
    if found is None:
        raise Refused(
            f"The token in {token_file} is not valid for the library in {home}.",
            "It was revoked, has expired or belongs to another library; `evolvable token list` shows those there are.",
        )
    return Runner(Identity(Principal.SCRIPT, f"token:{found.name}"), frozenset(found.permissions))


def _secret(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_TOKEN + 1)
    except OSError as error:
        raise InvalidArgument(
            f"{path} cannot be read: {error.strerror}.", "It holds the secret of one token."
        ) from None
    if not data.strip() or len(data) > MAX_TOKEN:
        raise InvalidArgument(f"{path} holds no token.", "It holds the secret of one token, and nothing else.")
    return data.decode("utf-8", "surrogateescape").strip()


_HINT = "A person does it at a terminal or in the client. Tell the user what you need, and go on without it."


def authority_of(ctx: click.Context) -> Authority | None:
    """Return who may run the command of this context with its arguments; None for a command that is unknown."""
    verb = VERBS.get(_verb_name(ctx))
    if verb is None:
        return None
    return Authority.READ if _only_looks(verb.name, ctx.params) else verb.authority


def command_name(ctx: click.Context) -> str:
    """Return the command's name below the program, such as `evolve start`, whichever name it was called by."""
    names: list[str] = []
    step: click.Context | None = ctx
    while step is not None and step.parent is not None:
        names.insert(0, TOOLS.get(step.info_name or "", step.info_name or ""))
        step = step.parent
    return " ".join(names)


def _verb_name(ctx: click.Context) -> str:
    name, action = command_name(ctx), ctx.params.get("action")
    return f"{name} {action}" if isinstance(action, str) else name


def check_may(ctx: click.Context, runner: Runner) -> None:
    """Check that the runner may run this command. Raise Refused."""
    authority, name = authority_of(ctx), _verb_name(ctx)
    if runner.identity.principal is Principal.PERSON:
        return
    if runner.identity.principal is Principal.SCRIPT:
        _check_script(name, authority, runner)
    elif authority not in (Authority.READ, Authority.REPORT, Authority.WRITE):
        raise Refused(f"`{name}` is refused: {refusal_reason(name)}, and this command runs for an agent.", _HINT)


def _check_script(name: str, authority: Authority | None, runner: Runner) -> None:
    if authority is None or authority is Authority.PERSON:
        hint = "A person does it at a terminal."
        raise Refused(f"`{name}` is refused: {refusal_reason(name)}, and no token stands for that.", hint)
    needed = Authority.READ if authority is Authority.REPORT else authority
    if needed not in runner.permissions:
        may = ", ".join(sorted(runner.permissions)) or "nothing"
        hint = f"A person makes tokens; one with the permission {needed} may run it."
        raise Refused(f"`{name}` is refused: it needs the permission {needed}; this token may {may}.", hint)


def _only_looks(name: str, params: Mapping[str, Any]) -> bool:
    """Return whether these arguments make a command show what it would do, or what is set."""
    return bool(params.get("dry_run")) or (name == "channel policy" and not params.get("arguments"))
