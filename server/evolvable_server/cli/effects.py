"""The names of commands that are MCP tools as well.

Who runs a command: the person at the terminal, an agent's shell, or a script with a token.

What each command does, and who may run it: one table, looked up before a command runs.

A command that is missing from the table does not run for anybody but a person, and a test keeps the table complete.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import click

from evolvable_server.config import cli_identity, marked_client
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.operation import Identity, Principal

TOOLS = {
    "find_skill": "find",
    "load_skill": "load",
    "report_outcome": "report",
    "list_resources": "list",
    "get_resource": "get",
    "resource_history": "history",
    "update_resource": "update",
    "restore_resource": "restore",
    "remove_resource": "remove",
    "undo": "undo",
    "review_session": "review",
    "submit_review": "review",
    "review_inbox": "inbox",
    "compress_history": "compress",
    "evolve_start": "evolve start",
    "evolve_status": "evolve status",
    "evolve_pending": "evolve pending",
    "evolve_submit": "evolve submit",
    "evolve_stop": "evolve stop",
    "evolve_continue": "evolve continue",
    "evolve_report": "evolve report",
    "evolve_adopt": "evolve adopt",
    "evolve_opportunities": "evolve opportunities",
}
"""Every MCP tool, and the command that does the same."""

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


class CommandEffect(StrEnum):
    """What a command does, from the least to the most."""

    READ = "read"
    """It reads the library, or what lies around it. Everybody may."""

    REPORT = "report"
    """It says how a resource did, or hands in an answer that was asked for. Everybody may."""

    CHANGE = "change"
    """It changes resources. An agent and a script change at once only what the policy allows; the rest waits."""

    DECIDE = "decide"
    """It decides what is a person's to decide. A script may when its token may approve."""

    OWN = "own"
    """It names commands, connects clients or makes tokens: what decides who may do what. Only a person may."""


EFFECTS: Mapping[str, CommandEffect] = {
    "find": CommandEffect.READ,
    "load": CommandEffect.REPORT,
    "report": CommandEffect.REPORT,
    "list": CommandEffect.READ,
    "get": CommandEffect.READ,
    "history": CommandEffect.READ,
    "log": CommandEffect.READ,
    "stats": CommandEffect.READ,
    "sessions": CommandEffect.READ,
    "update": CommandEffect.CHANGE,
    "restore": CommandEffect.CHANGE,
    "remove": CommandEffect.CHANGE,
    "undo": CommandEffect.CHANGE,
    "review": CommandEffect.CHANGE,
    "inbox list": CommandEffect.READ,
    "inbox show": CommandEffect.READ,
    "inbox approve": CommandEffect.DECIDE,
    "inbox edit": CommandEffect.DECIDE,
    "inbox reject": CommandEffect.DECIDE,
    "approvals status": CommandEffect.READ,
    "approvals lock": CommandEffect.OWN,
    "approvals unlock": CommandEffect.OWN,
    "memory show": CommandEffect.READ,
    "memory on": CommandEffect.DECIDE,
    "memory off": CommandEffect.DECIDE,
    "compress": CommandEffect.READ,
    "publish": CommandEffect.DECIDE,
    "channel status": CommandEffect.READ,
    "channel log": CommandEffect.READ,
    "channel policy": CommandEffect.DECIDE,
    "channel withdraw": CommandEffect.DECIDE,
    "taskset check": CommandEffect.CHANGE,
    "taskset list": CommandEffect.READ,
    "taskset split": CommandEffect.CHANGE,
    "evolve start": CommandEffect.DECIDE,
    "evolve continue": CommandEffect.DECIDE,
    # The process that drives a run has no terminal. It goes on with what a person started, and not with a stopped run.
    "evolve drive": CommandEffect.CHANGE,
    "evolve status": CommandEffect.READ,
    "evolve pending": CommandEffect.READ,
    "evolve submit": CommandEffect.REPORT,
    "evolve stop": CommandEffect.CHANGE,
    "evolve report": CommandEffect.READ,
    "evolve allow": CommandEffect.DECIDE,
    "evolve adopt": CommandEffect.DECIDE,
    "evolve watch": CommandEffect.CHANGE,
    "evolve opportunities": CommandEffect.READ,
    "executor add": CommandEffect.OWN,
    "executor list": CommandEffect.READ,
    "executor remove": CommandEffect.OWN,
    "scorer add": CommandEffect.OWN,
    "scorer list": CommandEffect.READ,
    "scorer remove": CommandEffect.OWN,
    "judge add": CommandEffect.OWN,
    "judge list": CommandEffect.READ,
    "judge remove": CommandEffect.OWN,
    "reviewer add": CommandEffect.OWN,
    "reviewer list": CommandEffect.READ,
    "reviewer remove": CommandEffect.OWN,
    "proposer add": CommandEffect.OWN,
    "proposer list": CommandEffect.READ,
    "proposer remove": CommandEffect.OWN,
    # A library of copies, made where there is none; nothing in a folder changes.
    "quickstart": CommandEffect.CHANGE,
    # What comes in without a terminal is nobody's: version `local`, served with its mark.
    "init": CommandEffect.CHANGE,
    "folders": CommandEffect.READ,
    "folders drop": CommandEffect.DECIDE,
    "sync": CommandEffect.CHANGE,
    "checkout": CommandEffect.DECIDE,
    "connect": CommandEffect.OWN,
    "disconnect": CommandEffect.OWN,
    # What a client may do through the server is decided call by call.
    "serve": CommandEffect.READ,
    "token list": CommandEffect.READ,
    "token add": CommandEffect.OWN,
    "token revoke": CommandEffect.OWN,
    "doctor": CommandEffect.READ,
    "scan": CommandEffect.READ,
    "fsck": CommandEffect.READ,
    "gc": CommandEffect.CHANGE,
    "purge": CommandEffect.OWN,
    "trash list": CommandEffect.READ,
    "trash restore": CommandEffect.DECIDE,
    "trash delete": CommandEffect.DECIDE,
    "backup": CommandEffect.READ,
    "export": CommandEffect.READ,
    # Without a person, what it brings waits in the inbox.
    "import": CommandEffect.CHANGE,
    "trust": CommandEffect.OWN,
}
"""Command, with its action where it has one -> what it does."""

WHY = {
    "inbox": "Only a person decides about proposals",
    "memory": "Only a person decides what clients read at their start",
    "publish": "Only a person decides what hosts see",
    "channel": "Only a person decides what hosts see",
    "evolve start": "A run executes commands, may spend money and opens the sealed test, so only a person starts one",
    "evolve continue": "A run executes commands and may spend money, so only a person continues one",
    "evolve allow": "Only a person lets a candidate run outside of a sandbox",
    "evolve adopt": "Only a person adopts what a run found",
    "folders": "Only a person decides which folders are watched",
    "checkout": "Only a person has resources written into folders",
    "connect": "Only a person changes what clients start",
    "disconnect": "Only a person changes what clients start",
    "approvals": "Only a person locks and unlocks approvals",
    "purge": "Only a person takes bytes out of the library for good",
    "trash": "Only a person puts files back into folders, or deletes them for good",
    "token": "Only a person makes and revokes tokens",
    "trust": "Only a person decides what is trusted",
}
"""Why a command is a person's, by its name with or without its action."""

_NAMED = "Only a person names the commands that run here"
_HINT = "A person does it at a terminal or in the client. Tell the user what you need, and go on without it."


def effect_of(ctx: click.Context) -> CommandEffect | None:
    """Return what the command of this context does, with the arguments it was given; None when it is not known."""
    name, params = command_name(ctx), ctx.params
    action = params.get("action")
    found = EFFECTS.get(f"{name} {action}" if isinstance(action, str) else name)
    return CommandEffect.READ if found is not None and _only_looks(name, params) else found


def command_name(ctx: click.Context) -> str:
    """Return the command's name below the program, such as `evolve start`, whichever name it was called by."""
    names: list[str] = []
    step: click.Context | None = ctx
    while step is not None and step.parent is not None:
        names.insert(0, TOOLS.get(step.info_name or "", step.info_name or ""))
        step = step.parent
    return " ".join(names)


def check_may(ctx: click.Context, runner: Runner) -> None:
    """Raise Refused when whoever runs this command may not."""
    effect = effect_of(ctx)
    if runner.identity.principal is Principal.PERSON:
        return
    name = command_name(ctx)
    action = ctx.params.get("action")
    whole = f"{name} {action}" if isinstance(action, str) else name
    if runner.identity.principal is Principal.SCRIPT:
        _check_script(whole, effect, runner)
    elif effect not in (CommandEffect.READ, CommandEffect.REPORT, CommandEffect.CHANGE):
        raise Refused(f"`{whole}` is refused: {_why(whole)}, and this command runs for an agent.", _HINT)


def _check_script(whole: str, effect: CommandEffect | None, runner: Runner) -> None:
    needs = {
        CommandEffect.READ: "read",
        CommandEffect.REPORT: "read",
        CommandEffect.CHANGE: "write",
        CommandEffect.DECIDE: "approve",
    }
    if effect not in needs:
        hint = "A person does it at a terminal."
        raise Refused(f"`{whole}` is refused: {_why(whole)}, and no token stands for that.", hint)
    if needs[effect] not in runner.permissions:
        may = ", ".join(sorted(runner.permissions)) or "nothing"
        hint = f"A person makes tokens; one with the permission {needs[effect]} may run it."
        raise Refused(f"`{whole}` is refused: it needs the permission {needs[effect]}; this token may {may}.", hint)


def _why(whole: str) -> str:
    return WHY.get(whole) or WHY.get(whole.partition(" ")[0]) or _NAMED


def _only_looks(name: str, params: Mapping[str, Any]) -> bool:
    """Return whether these arguments make a command show what it would do, or what is set."""
    if params.get("dry_run"):
        return True
    return name == "channel" and params.get("action") == "policy" and not params.get("arguments")
