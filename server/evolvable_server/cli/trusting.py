"""The command with which a person trusts what a folder holds: trust."""

from dataclasses import dataclass
from pathlib import Path

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import count, local_time, say, show_diff, warn
from evolvable_server.person import read_person_config
from evolvable_server.person_file import note_trusted, withdraw_trusted
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref
from evolvable_tools.scan import FindingSeverity
from evolvable_tools.verbs import scan_import

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
def trust_command(state: State, what: str | None, listing: bool, withdraw: bool, show: bool) -> None:
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
        if asked.offered and not click.confirm(f"Trust {_counted(asked)}?", default=False, err=True):
            raise InvalidArgument("Nothing was trusted.")
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


def _list(state: State) -> None:
    from evolvable_store.storage.attestations import Attestations

    folders = sorted(read_person_config().trusted_folders(state.config().home))
    with state.library() as (library, _):
        heads = {head.id: head for head in library.store.heads()}
        vouched = [one for one in Attestations(library.store.backend).of(heads) if one.tree == heads[one.resource].tree]
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
