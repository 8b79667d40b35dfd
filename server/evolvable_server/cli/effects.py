"""What each command does, and who may run it: one table, looked up before a command runs.

A command that is missing from the table does not run for anybody but a person, and a test keeps the table complete.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import click

from evolvable_server.cli.names import TOOLS
from evolvable_server.cli.runner import Runner
from evolvable_store.errors import Refused
from evolvable_store.operation import Principal


class Effect(StrEnum):
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


EFFECTS: Mapping[str, Effect] = {
    "find": Effect.READ,
    "load": Effect.REPORT,
    "report": Effect.REPORT,
    "list": Effect.READ,
    "get": Effect.READ,
    "history": Effect.READ,
    "log": Effect.READ,
    "stats": Effect.READ,
    "sessions": Effect.READ,
    "update": Effect.CHANGE,
    "restore": Effect.CHANGE,
    "remove": Effect.CHANGE,
    "undo": Effect.CHANGE,
    "review": Effect.CHANGE,
    "inbox list": Effect.READ,
    "inbox show": Effect.READ,
    "inbox approve": Effect.DECIDE,
    "inbox edit": Effect.DECIDE,
    "inbox reject": Effect.DECIDE,
    "approvals status": Effect.READ,
    "approvals lock": Effect.OWN,
    "approvals unlock": Effect.OWN,
    "memory show": Effect.READ,
    "memory on": Effect.DECIDE,
    "memory off": Effect.DECIDE,
    "compress": Effect.READ,
    "publish": Effect.DECIDE,
    "channel status": Effect.READ,
    "channel log": Effect.READ,
    "channel policy": Effect.DECIDE,
    "channel withdraw": Effect.DECIDE,
    "taskset check": Effect.CHANGE,
    "taskset list": Effect.READ,
    "taskset split": Effect.CHANGE,
    "evolve start": Effect.DECIDE,
    "evolve continue": Effect.DECIDE,
    # The process that drives a run has no terminal. It goes on with what a person started, and not with a stopped run.
    "evolve drive": Effect.CHANGE,
    "evolve status": Effect.READ,
    "evolve pending": Effect.READ,
    "evolve submit": Effect.REPORT,
    "evolve stop": Effect.CHANGE,
    "evolve report": Effect.READ,
    "evolve allow": Effect.DECIDE,
    "evolve adopt": Effect.DECIDE,
    "evolve watch": Effect.CHANGE,
    "evolve opportunities": Effect.READ,
    "executor add": Effect.OWN,
    "executor list": Effect.READ,
    "executor remove": Effect.OWN,
    "scorer add": Effect.OWN,
    "scorer list": Effect.READ,
    "scorer remove": Effect.OWN,
    "judge add": Effect.OWN,
    "judge list": Effect.READ,
    "judge remove": Effect.OWN,
    "reviewer add": Effect.OWN,
    "reviewer list": Effect.READ,
    "reviewer remove": Effect.OWN,
    "proposer add": Effect.OWN,
    "proposer list": Effect.READ,
    "proposer remove": Effect.OWN,
    # A library of copies, made where there is none; nothing in a folder changes.
    "quickstart": Effect.CHANGE,
    # What comes in without a terminal is nobody's: version `local`, served with its mark.
    "init": Effect.CHANGE,
    "folders": Effect.READ,
    "folders drop": Effect.DECIDE,
    "sync": Effect.CHANGE,
    "checkout": Effect.DECIDE,
    "connect": Effect.OWN,
    "disconnect": Effect.OWN,
    # What a client may do through the server is decided call by call.
    "serve": Effect.READ,
    "token list": Effect.READ,
    "token add": Effect.OWN,
    "token revoke": Effect.OWN,
    "doctor": Effect.READ,
    "scan": Effect.READ,
    "fsck": Effect.READ,
    "gc": Effect.CHANGE,
    "purge": Effect.OWN,
    "trash list": Effect.READ,
    "trash restore": Effect.DECIDE,
    "trash delete": Effect.DECIDE,
    "backup": Effect.READ,
    "export": Effect.READ,
    # Without a person, what it brings waits in the inbox.
    "import": Effect.CHANGE,
    "trust": Effect.OWN,
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


def effect_of(ctx: click.Context) -> Effect | None:
    """Return what the command of this context does, with the arguments it was given; None when it is not known."""
    name, params = command_name(ctx), ctx.params
    action = params.get("action")
    found = EFFECTS.get(f"{name} {action}" if isinstance(action, str) else name)
    return Effect.READ if found is not None and _only_looks(name, params) else found


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
    elif effect not in (Effect.READ, Effect.REPORT, Effect.CHANGE):
        raise Refused(f"`{whole}` is refused: {_why(whole)}, and this command runs for an agent.", _HINT)


def _check_script(whole: str, effect: Effect | None, runner: Runner) -> None:
    needs = {Effect.READ: "read", Effect.REPORT: "read", Effect.CHANGE: "write", Effect.DECIDE: "approve"}
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
