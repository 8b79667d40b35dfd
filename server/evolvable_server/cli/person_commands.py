"""The commands `approvals`, which locks decisions behind a passphrase, and `trust`, which trusts a folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from evolvable_server.cli.command_context import CommandContext, command
from evolvable_server.cli.inbox_commands import create_key, key_path
from evolvable_server.cli.terminal import confirm, count, local_time, say, show_diff, warn
from evolvable_server.person_config import edit_config, note_trusted, read_person_config, withdraw_trusted
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_tools.scan import FindingSeverity
from evolvable_tools.verbs import scan_import

LIMIT = (
    "The lock does not hold against code of this account that replaces the program, the key or the lock;"
    " SECURITY.md shows a server under another account, which does."
)


@dataclass(frozen=True, slots=True)
class LockState:
    """Whether approvals are locked, with which key, and the decisions in this library that are not signed."""

    locked: bool
    key: str
    unsigned: list[int]


@command("approvals")
@click.argument("action", type=click.Choice(["status", "lock", "unlock"]), default="status")
def approvals_command(state: CommandContext, action: str) -> None:
    """Lock decisions behind a passphrase.

    After `lock`, approvals, adoptions, settings, trusted folders and memory:SOUL count only when they are signed with a
    key that the passphrase opens; questions in a client decide nothing. `lock` again includes another library (--home).
    `unlock` ends it and needs the passphrase too.
    """
    if action == "lock":
        _lock(state)
    elif action == "unlock":
        _unlock(state)
    with state.library() as (library, _):
        lock = library.lock
        found = unsigned_decisions(library) if lock else []
    shown = LockState(lock is not None, lock.key if lock else "", found)
    state.show(shown, lambda: _show_lock(shown))


def unsigned_decisions(library: Any) -> list[int]:
    """Return the operations in the name of a person that are neither signed nor older than the lock."""

    if library.lock is None:
        return []
    made = library.store.operations(10_000)
    persons = [
        one.id
        for one in made
        if one.actor is Actor.HUMAN and one.principal in (Principal.PERSON, Principal.SCRIPT, None)
    ]
    return sorted(set(persons) - library.lock.vouched(library.store.backend, persons))


def _lock(state: CommandContext) -> None:

    state.require_person("Locking approvals")
    if not read_person_config().lock_key:
        click.echo(LIMIT, err=True)
        passphrase = click.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True)
        key = create_key(passphrase)
        edit_config(lambda document: _set_key(document, key), state.signer(key, lambda: passphrase))
    signer = state.signer()
    assert signer is not None
    signer.unlock()
    with state.library(create=True) as (library, _):
        assert library.lock is not None
        baseline = library.lock.signatures(library.store.backend).add_baseline(signer.sign)
    say(f"Decisions up to operation {baseline.operation} of {state.config().home} count as they are.")


def _unlock(state: CommandContext) -> None:

    state.require_person("Unlocking approvals")
    signer = state.signer()
    if signer is None:
        raise InvalidArgument("Approvals are not locked.", "`evolvable approvals lock` locks them.")
    signer.unlock()
    edit_config(lambda document: _drop_key(document))
    key_path().unlink(missing_ok=True)


def _set_key(document: Any, key: str) -> None:
    if "approvals" not in document:
        import tomlkit  # start time: `doctor` loads this module too

        document["approvals"] = tomlkit.table()
    table: Any = document["approvals"]
    table["public_key"] = key


def _drop_key(document: Any) -> None:
    if "approvals" not in document:
        raise Refused("Approvals are not locked.", "Nothing was changed.")
    del document["approvals"]


def _show_lock(shown: LockState) -> None:
    if not shown.locked:
        say("Approvals are not locked.")
        return
    say(f"Approvals are locked with key {shown.key[:16]}.")
    if shown.unsigned:
        numbers = ", ".join(map(str, shown.unsigned[:20])) + (", ..." if len(shown.unsigned) > 20 else "")
        what = count(len(shown.unsigned), "operation")
        say(f"{what} in a person's name without a signature, which count as not approved: {numbers}")


MAX_LISTED = 50
"""Resources that are listed one by one before a question."""

MAX_FINDINGS = 5
"""Findings of one resource that are shown; `evolvable scan` shows all."""


@dataclass(frozen=True, slots=True)
class TrustedFolders:
    """The folders that the person trusts, and what the library notes of each decision."""

    folders: list[str]
    decisions: list[dict[str, str]]


@command("trust")
@click.argument("what", required=False, metavar="[FOLDER|REF]")
@click.option("--list", "listing", is_flag=True, help="Show the folders and resources that you trust.")
@click.option("--withdraw", is_flag=True, help="Trust it no longer.")
@click.option("--show", is_flag=True, help="Show what would be asked, and decide nothing.")
def trust_command(state: CommandContext, what: str | None, listing: bool, withdraw: bool, show: bool) -> None:
    """Trust what a folder holds.

    Lists what a repository or an unknown program brought to FOLDER (or one resource, REF), what the scan found in it,
    what it has the means to do, and the changes that are held; then asks once. Only what was shown is trusted: what
    comes later is asked about again.
    """
    if listing:
        _list(state)
        return
    if what is None:
        raise click.UsageError("Name a folder or a resource, or pass --list.")
    folder = Path(what) if Path(what).is_dir() else None
    ref = None if folder is not None else _ref(what)
    with state.library() as (library, caller):
        if withdraw:
            decision = scan_import.withdraw_trust(library, caller, folder=folder, ref=ref)
            if folder is not None:
                withdraw_trusted(folder.resolve(), library.store.home.resolve(), state.signer())
            state.show(decision, lambda: _show_withdrawn(decision))
            return
        asked = scan_import.ask_trust(library, caller, folder=folder, ref=ref)
        if show:
            state.show(asked, lambda: _show_question(asked))
            return
        if not state.json:
            _show_question(asked)
        confirm(f"Trust {_counted(asked)}?", yes=not asked.offered, refused="Nothing was trusted.")
        decision = scan_import.trust(library, caller, asked)
        if folder is not None:
            note_trusted(folder.resolve(), library.store.home.resolve(), state.signer())
    state.show(decision, lambda: _show_decision(decision))


def _ref(what: str) -> Ref:
    if "/" in what and not what.startswith(("skill:", "agent:", "memory:", "prompt:")) and not Path(what).exists():
        raise InvalidArgument(f"{what} is not a folder.", "Name a folder, or a resource such as skill:pdf.")
    return Ref.parse(what)


def _counted(asked: scan_import.TrustQuestion) -> str:
    high = sum(1 for one in asked.offered if one.high)
    dangers = f", of which {high} with findings of high severity" if high else ""
    return f"{count(len(asked.offered), 'resource')} in {asked.what}{dangers}"


def _show_question(asked: scan_import.TrustQuestion) -> None:
    if not asked.offered:
        say(f"Everything that {asked.what} holds is trusted already ({count(len(asked.trusted), 'resource')}).")
        return
    say(f"{asked.what} holds {count(len(asked.offered), 'resource')} that nobody vouches for:")
    for one in asked.offered[:MAX_LISTED]:
        say(f"\n{one.ref}  ({one.trust})")
        for finding in one.findings[:MAX_FINDINGS]:
            (warn if finding.severity is FindingSeverity.HIGH else say)(f"  {finding.severity}: {finding}")
        if len(one.findings) > MAX_FINDINGS:
            say(f"  and {len(one.findings) - MAX_FINDINGS} more findings: evolvable scan {one.ref}")
        if one.capabilities:
            say(f"  it has the means: {', '.join(one.capabilities)}")
        if one.diff:
            show_diff(one.diff)
    if len(asked.offered) > MAX_LISTED:
        say(f"\nand {len(asked.offered) - MAX_LISTED:,} more without findings of higher severity.")


def _show_decision(decision: scan_import.TrustDecision) -> None:
    for text in decision.warnings:
        warn(text)
    say(f"Trusted: {', '.join(decision.refs) or 'nothing new'}.")
    say(f"Take it back: evolvable trust --withdraw {decision.what}")


def _show_withdrawn(decision: scan_import.TrustDecision) -> None:
    say(f"Trusted no longer: {', '.join(decision.refs) or 'nothing was'}.")


def _list(state: CommandContext) -> None:

    folders = sorted(read_person_config().trusted_folders(state.config().home))
    with state.library() as (library, _):
        heads = {head.id: head for head in library.store.heads()}
        vouched = [one for one in library.store.backend.attestations.of(heads) if one.tree == heads[one.resource].tree]
        rows = [
            {"ref": str(heads[one.resource].ref), "at": one.at, "principal": one.principal, "via": one.via}
            for one in vouched
        ]
    result = TrustedFolders(folders, rows)
    state.show(result, lambda: _show_list(result))


def _show_list(result: TrustedFolders) -> None:
    for folder in result.folders:
        say(f"folder  {folder}")
    for row in result.decisions:
        say(f"{row['ref']}  {local_time(row['at'])}, {row['principal']} ({row['via']})")
    if not result.folders and not result.decisions:
        say("Nothing is trusted beyond what you wrote yourself.")
