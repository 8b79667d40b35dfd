"""The commands `approvals`, which locks decisions behind a passphrase, and `trust`; and the
question of an import.
"""

import contextlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from evolvable_server.approval_keys import approver_path, create_key, key_path
from evolvable_server.cli.command_context import CommandContext, Output, command, to_cli_words
from evolvable_server.cli.options import REF
from evolvable_server.cli.terminal import (
    ask,
    confirm,
    count,
    local_time,
    progress,
    remark,
    say,
    show_diff,
    some,
    warn,
)
from evolvable_server.clients import refresh_memory_files
from evolvable_server.config_edits import check_account_file, edit_config, edited_path, set_trusted
from evolvable_store.errors import InvalidArgument, NoLibrary, Refused
from evolvable_store.resource import Kind, Ref
from evolvable_tools import Caller, Library, lost_locks, unsigned_decisions, verbs
from evolvable_tools.scan import Finding, FindingSeverity
from evolvable_tools.verbs import (
    Answer,
    Coming,
    Preview,
    ToolVersion,
    TrustDecision,
    TrustQuestion,
    approve_tool,
    approved_digests,
    preview,
    tool_version,
)

LIMIT = (
    "The lock does not hold against code of this account that replaces the program, the key or "
    "the lock; SECURITY.md shows a server under another account, which does."
)


@dataclass(frozen=True, slots=True)
class LockState:
    """The lock of approvals.

    key: its public key, '' without a lock. unsigned: the operations of this library that are
    decisions without a signature. people: the keys of people who sign in, by SUBJECT@PROVIDER.
    """

    locked: bool
    key: str
    unsigned: list[int]
    people: Mapping[str, str] = field(default_factory=dict)


@command("approvals")
@click.argument(
    "action", type=click.Choice(["status", "lock", "unlock", "allow", "disallow"]), default="status"
)
@click.argument("person", required=False, metavar="[PERSON]")
@click.argument("key", required=False, metavar="[KEY]")
def approvals_command(
    state: CommandContext, action: str, person: str | None, key: str | None
) -> Output[LockState]:
    """Lock decisions behind a passphrase.

    After `lock`, approvals, adoptions, settings, trusted folders and memory:SOUL count only when
    they are signed with a key that the passphrase opens; questions in a client decide nothing.
    `lock` again includes another library (--home). `unlock` ends it and needs the passphrase too.
    `allow PERSON KEY` lets decisions count that a person who signs in at the page signed with a key
    of their own; PERSON is SUBJECT@PROVIDER. `disallow PERSON` ends that.
    """
    takes_person, takes_key = action in ("allow", "disallow"), action == "allow"
    if (person is not None) != takes_person or (key is not None) != takes_key:
        raise click.UsageError(
            "`care approvals allow` takes a person and a key, `disallow` a person, the "
            "others nothing."
        )
    if person is not None:
        _set_signer(state, person, key)
    elif action == "lock":
        _lock_approvals(state)
    elif action == "unlock":
        _unlock_approvals(state)
    with state.library() as (library, _):
        lock = library.lock
        unsigned = unsigned_decisions(lock, library.store)
        if lock is None:
            lock_state = LockState(False, "", unsigned)
        else:
            people = {via.partition(":")[2]: key for via, key in lock.people.items()}
            lock_state = LockState(True, lock.key, unsigned, people)
    return Output(lock_state, _show_lock)


def _lock_approvals(state: CommandContext) -> None:
    state.require_person("Locking approvals")
    home = state.config().home
    if not state.config().person.lock_key:
        # Raises where no configuration would count, before the person chooses a passphrase.
        edited_path(home)
        click.echo(LIMIT, err=True)
        passphrase = ask("Passphrase", hide_input=True, confirmation_prompt=True, err=True)
        # The key before the configuration: a lock whose key is missing could never be opened.
        key = create_key(passphrase)
        edit_config(
            lambda document: _set_key(document, key), home, state.signer(key, lambda: passphrase)
        )
    signer = state.signer()
    if signer is None:
        raise Refused(
            "The configuration lost the lock's key while it was set.", "Run the command again."
        )
    signer.unlock()
    with state.library(create=True) as (library, caller):
        if library.lock is None:
            raise Refused(
                "The configuration lost the lock's key while it was set.", "Run the command again."
            )
        _end_lost_locks(state, library, caller)
        # One signature for all decisions so far, so that none of them has to be made again.
        baseline = library.lock.signatures(library.store.backend).add_baseline(signer.sign)
        library.record(caller, "lock approvals", f"key {signer.key}")
    say(
        f"Decisions up to operation {baseline.operation} of {state.config().home} count "
        "as they are."
    )


def _unlock_approvals(state: CommandContext) -> None:
    state.require_person("Unlocking approvals")
    signer = state.signer()
    # No lock is configured; one that the configuration lost can still be ended.
    if signer is None:
        with state.library() as (library, caller):
            if _end_lost_locks(state, library, caller):
                return
        raise InvalidArgument(
            "Approvals are not locked.", "`evolvable care approvals lock` locks them."
        )
    signer.unlock()
    with contextlib.suppress(NoLibrary), state.library() as (library, caller):
        # The library before the configuration: a lock that the configuration does not name counts
        # as lost.
        library.store.backend.attestations.end_locks([signer.key])
        library.record(caller, "unlock approvals", f"key {signer.key}")
    path = key_path()
    edit_config(_drop_key, state.config().home)
    # Last: until the configuration has let the lock go, its key must be there.
    path.unlink(missing_ok=True)


def _end_lost_locks(state: CommandContext, library: Library, caller: Caller) -> bool:
    """End the locks that the configuration does not name any more, after a question.

    Return whether there was one.
    """
    if not (lost := lost_locks(library.lock, library.store.backend)):
        return False
    refused = "The library keeps it in mind, and nothing else was changed."
    confirm(f"End the lock with key {lost[0][:16]} without its passphrase?", refused=refused)
    library.store.backend.attestations.end_locks(lost)
    library.record(
        caller, "end lock without its passphrase", " ".join(f"key {key}" for key in lost)
    )
    return True


def _set_signer(state: CommandContext, person: str, key: str | None) -> None:
    """List the key of a person who signs in, or take it out and delete its file (key: None)."""
    state.require_person("Deciding whose signatures count")
    signer = state.signer()
    if signer is None:
        raise InvalidArgument(
            "Approvals are not locked.", "`evolvable care approvals lock` locks them."
        )

    check_account_file("Whose signatures count")

    def change(document: Any) -> None:
        if "sign_in" not in document:
            raise InvalidArgument(
                "There is no [sign_in] in your configuration.",
                "docs/sign-in.md says how to write it.",
            )
        signers = document["sign_in"].pop("signers", {})
        others = {name: public_key for name, public_key in signers.items() if name != person}
        if people := others | ({person: key} if key is not None else {}):
            document["sign_in"]["signers"] = people

    edit_config(change, state.config().home, signer)
    if key is None:
        # After the list: a key that is listed must have its file.
        approver_path(f"oidc:{person}").unlink(missing_ok=True)
    state.record(
        "allow signer" if key is not None else "disallow signer", f"{person} key {key or 'none'}"
    )


def _set_key(document: Any, key: str) -> None:
    document.setdefault("approvals", {})["public_key"] = key


def _drop_key(document: Any) -> None:
    if "approvals" not in document:
        raise Refused("Approvals are not locked.", "Nothing was changed.")
    del document["approvals"]


def _show_lock(lock_state: LockState) -> None:
    if not lock_state.locked:
        say("Approvals are not locked.")
        return
    say(f"Approvals are locked with key {lock_state.key[:16]}.")
    say(*(f"{person} signs with key {key[:16]}." for person, key in lock_state.people.items()))
    if lock_state.unsigned:
        numbers = some(list(map(str, lock_state.unsigned)), 20)
        what = count(len(lock_state.unsigned), "operation")
        say(
            f"{what} in a person's name without a signature, which count as not approved: {numbers}"
        )


MAX_LISTED = 50
"""Resources that are listed one by one before a question."""

MAX_FINDINGS = 5
"""Findings of one resource that are shown; `evolvable care scan` shows all."""


@command("trust")
@click.argument("what", required=False, metavar="[FOLDER|REF]")
@click.option(
    "--list", "listing", is_flag=True, help="Show the folders and resources that you trust."
)
@click.option("--withdraw", is_flag=True, help="Trust it no longer.")
@click.option(
    "--follow",
    is_flag=True,
    help="Let the scan alone decide on what a pull brings to FOLDER from now on.",
)
@click.option("--show", is_flag=True, help="Show what would be asked, and decide nothing.")
@click.option(
    "--yes", is_flag=True, help="With --withdraw: do not ask whether it ends for every library."
)
def trust_command(state: CommandContext, what: str | None, **chosen: bool) -> Output[Any]:
    """Trust what a folder holds.

    Lists what a repository or an unknown program brought to FOLDER (or one resource, REF), what the
    scan found in it, what it has the means to do, and the changes that are held; then asks once.
    Only what was shown is trusted: what comes later is asked about again. With --follow, what a
    pull brings to FOLDER later is served at once where the scan finds nothing.
    """
    withdraw, show, yes, follow = (chosen[name] for name in ("withdraw", "show", "yes", "follow"))
    if chosen["listing"]:
        return _list_trusted(state)
    if what is None:
        raise click.UsageError("Name a folder or a resource, or pass --list.")
    if yes and not withdraw:
        raise click.UsageError(
            "--yes goes with --withdraw: what a folder holds is shown before you trust it."
        )
    folder = Path(what) if Path(what).is_dir() or (withdraw and _is_trusted(what, state)) else None
    ref = None if folder is not None else _parse_ref(what)
    if follow and (folder is None or withdraw or show):
        raise click.UsageError(
            "--follow goes with a folder, and neither with --withdraw nor with --show."
        )
    if follow and state.config().person.lock_key:
        raise Refused(
            "Approvals are locked, so each change that a pull brings needs your signature.",
            "Omit --follow.",
        )
    with state.library() as (library, caller):
        if folder is not None and not show:
            # Raises where no configuration would count, before anything is decided.
            edited_path(library.store.home)
        if withdraw:
            return _withdraw(state, library, caller, folder, ref, yes=yes)
        question = verbs.ask_trust(library, caller, folder=folder, ref=ref)
        if show:
            return Output(question, _show_question)
        if not state.json:
            _show_question(question)
        later = " and let the scan alone decide on what a pull brings there" if follow else ""
        # Nothing new is offered, so there is no question.
        confirm(
            f"Trust {_describe_offered(question)}{later}?",
            yes=not question.offered and not follow,
            refused="Nothing was trusted.",
        )
        decision = verbs.trust(library, caller, question)
        if folder is not None:
            home = library.store.home.resolve()
            set_trusted(folder.resolve(), home, state.signer(), follow=follow)
        # Whether a memory of the folder counts has changed.
        refresh_memory_files(library.store.home, library)
    return Output(decision, _show_decision)


def _withdraw(
    state: CommandContext,
    library: Library,
    caller: Caller,
    folder: Path | None,
    ref: Ref | None,
    *,
    yes: bool,
) -> Output[Any]:
    """Withdraw the trust in a folder or a resource."""
    if folder is not None:
        _confirm_every(state, folder.resolve(), yes=yes)
    decision = verbs.withdraw_trust(library, caller, folder=folder, ref=ref)
    if folder is not None:
        home = library.store.home.resolve()
        set_trusted(folder.resolve(), home, state.signer(), is_trusted=False)
    # Whether a memory of the folder counts has changed.
    refresh_memory_files(library.store.home, library)
    return Output(decision, _show_withdrawn)


@command("approve")
@click.argument("ref", type=REF)
@click.option("--yes", is_flag=True, help="Do not ask.")
def approve_command(state: CommandContext, ref: Ref, yes: bool) -> Output[TrustDecision]:
    """Approve a resource as it is now.

    Shows what changed since you last looked, and what the scan finds in it; then asks once. From
    then on it is yours, and what it names is in force; a tool may run. What comes later is said
    again.
    """
    with state.library() as (library, caller):
        question = verbs.ask_trust(library, caller, ref=ref)
        tool = _find_tool_to_run(library, caller, ref)
        if not state.json:
            _show_question(question)
        if tool is not None:
            show_tool_version(library, caller, tool)
        has_question = bool(question.offered) or tool is not None
        confirm(
            f"Approve {question.what} as it is?",
            yes=yes or not has_question,
            refused="Nothing was approved.",
        )
        decision = verbs.trust(library, caller, question)
        if tool is not None:
            approve_tool(library, caller, tool, via="terminal")
            decision = replace(decision, refs=sorted({*decision.refs, tool.ref}))
        # A memory that nobody had approved was left out.
        refresh_memory_files(library.store.home, library)
    return Output(
        decision, lambda approved: say(f"Approved: {', '.join(approved.refs) or 'nothing new'}.")
    )


def _find_tool_to_run(library: Library, caller: Caller, ref: Ref) -> ToolVersion | None:
    """Return the version of a tool whose command may not run yet, else None."""
    head = library.store.head(ref.at(None), caller.scopes)
    if head.kind is not Kind.TOOL or head.version is None:
        return None
    try:
        tool = tool_version(library, head, head.version)
    except InvalidArgument:
        return None
    if tool is None or tool.digest in approved_digests(library):
        return None
    return tool


def _confirm_every(state: CommandContext, folder: Path, *, yes: bool) -> None:
    """Ask before an entry that trusts a folder in every library of the account goes.

    Raise as `confirm`.
    """
    settings = state.config().person.editable
    if any(entry.folder == folder and entry.home is None for entry in settings.trusted):
        remark(
            f"{settings.path} trusts {folder} in every library of the account, not in this "
            "one alone."
        )
        confirm("End it for all of them?", yes=yes, refused="Nothing was changed.")


def _is_trusted(folder: str, state: CommandContext) -> bool:
    """Return whether the person's configuration lists a folder, which may be gone from the disk."""
    return str(Path(folder).resolve()) in state.config().person.trusted_folders(state.config().home)


def _parse_ref(what: str) -> Ref:
    # Refs of projects have a slash too: skill:acme/pdf.
    has_kind = what.startswith(("skill:", "agent:", "memory:", "prompt:"))
    if "/" in what and not has_kind and not Path(what).exists():
        raise InvalidArgument(
            f"{what} is not a folder.", "Name a folder, or a resource such as skill:pdf."
        )
    return Ref.parse(what)


def _describe_offered(question: TrustQuestion) -> str:
    high = sum(1 for offer in question.offered if offer.high)
    dangers = f", of which {high} with findings of high severity" if high else ""
    return f"{count(len(question.offered), 'resource')} in {question.what}{dangers}"


def _show_question(question: TrustQuestion) -> None:
    if not question.offered:
        say(
            f"Everything that {question.what} holds is trusted already "
            f"({count(len(question.trusted), 'resource')})."
        )
        return
    if question.folder:
        say(
            f"{question.what} holds {count(len(question.offered), 'resource')} that no "
            "person approved:"
        )
    else:
        say(f"You have not looked at {question.what} as it is now:")
    for offer in question.offered[:MAX_LISTED]:
        say(f"\n{offer.ref}  ({offer.author})")
        for finding in offer.findings[:MAX_FINDINGS]:
            write = warn if finding.severity is FindingSeverity.HIGH else say
            write(f"  {finding.severity}: {finding}")
        if len(offer.findings) > MAX_FINDINGS:
            say(
                f"  and {len(offer.findings) - MAX_FINDINGS} more findings: evolvable care scan "
                f"{offer.ref}"
            )
        if offer.capabilities:
            say(f"  it has the means: {', '.join(offer.capabilities)}")
        if offer.diff:
            show_diff(offer.diff)
    if len(question.offered) > MAX_LISTED:
        say(
            f"\nand {len(question.offered) - MAX_LISTED:,} more without findings of "
            "higher severity."
        )


def _show_decision(decision: TrustDecision) -> None:
    warn(*decision.warnings)
    say(f"Trusted: {', '.join(decision.refs) or 'nothing new'}.")
    say(f"Take it back: evolvable trust --withdraw {decision.what}")


def _show_withdrawn(decision: TrustDecision) -> None:
    say(f"Trusted no longer: {', '.join(decision.refs) or 'nothing was'}.")


def _list_trusted(state: CommandContext) -> Output[dict[str, Any]]:
    folders = sorted(state.config().person.trusted_folders(state.config().home))
    with state.library() as (library, _):
        heads = {head.id: head for head in library.store.heads()}
        attestations = library.store.backend.authorship.attestations_of(heads)
        current = [
            attestation
            for attestation in attestations
            if attestation.tree == heads[attestation.resource].tree
        ]
        decisions = [
            {
                "ref": str(heads[attestation.resource].ref),
                "at": attestation.at,
                "principal": attestation.principal,
                "via": attestation.via,
            }
            for attestation in current
        ]
    return Output({"folders": folders, "decisions": decisions}, _show_list)


def _show_list(result: dict[str, Any]) -> None:
    say(*(f"folder  {folder}" for folder in result["folders"]))
    for row in result["decisions"]:
        say(f"{row['ref']}  {local_time(row['at'])}, {row['principal']} ({row['via']})")
    if not any(result.values()):
        say("Nothing is trusted beyond what you wrote yourself.")


MAX_LOW_FINDINGS = 5
"""Findings of low severity that are shown of one resource; those of higher severity are
all shown.
"""


def ask_import(
    state: CommandContext, library: Library, source: Path, form: str, options: dict[str, Any]
) -> Answer:
    """Show what an import would bring, ask once, and return the person's yes. Raise InvalidArgument
    for a no.

    An import that would bring nothing new asks nothing.
    """
    with progress("Reading") as show:
        arrival = preview(library, source, form, progress=show, **options)
    if not arrival.coming:
        return arrival.answer
    # With --json the result alone is on stdout.
    write = remark if state.json else say
    write(*_format_preview(source, arrival))
    asking = sum(1 for resource in arrival.coming if resource.asks)
    findings = f", {asking} with findings that need your decision" if asking else ""
    confirm(
        f"Import {count(len(arrival.coming), 'resource')}{findings}?",
        refused="Nothing was imported.",
    )
    return arrival.answer


def _format_preview(source: Path, arrival: Preview) -> list[str]:
    lines = [f"{source} brings {count(len(arrival.coming), 'resource')}:"]
    suspects = [resource for resource in arrival.coming if resource.findings]
    others = [resource for resource in arrival.coming if not resource.findings]
    # All those with findings first, then some of the others.
    for resource in (*suspects, *others[:MAX_LISTED]):
        lines += ["", _format_headline(resource), *_format_findings(resource.findings)]
        if resource.capabilities:
            lines.append(f"  has the means to: {', '.join(resource.capabilities)}")
    if len(others) > MAX_LISTED:
        lines += ["", f"and {len(others) - MAX_LISTED:,} more without findings"]
    for name, problems in arrival.refused:
        lines += ["", f"{name}  (refused)", *(f"  {to_cli_words(problem)}" for problem in problems)]
    return [*lines, ""]


def _format_headline(resource: Coming) -> str:
    if not resource.files:
        return f"{resource.ref}  (history only)"
    new = f"replaces version {resource.base}" if resource.base else "new"
    return f"{resource.ref}  ({new}, {count(resource.files, 'file')}, {resource.size:,} bytes)"


def _format_findings(findings: list[Finding]) -> list[str]:
    low = [finding for finding in findings if finding.severity is FindingSeverity.LOW]
    others = [finding for finding in findings if finding.severity is not FindingSeverity.LOW]
    named = [*others, *low[:MAX_LOW_FINDINGS]]
    lines = [f"  {finding.severity}: {finding}" for finding in named]
    if len(low) > MAX_LOW_FINDINGS:
        lines.append(f"  and {len(low) - MAX_LOW_FINDINGS:,} more of low severity")
    return lines


def show_tool_version(library: Library, caller: Caller, tool: ToolVersion) -> None:
    """Show the command of a version of a tool, its program, its files, and what the scan finds in
    it.
    """
    remark(f"{tool.ref}@{tool.version} runs: {shlex.join(tool.spec.argv)}")
    if tool.program:
        remark(f"  program {tool.program}")
    remark(f"  input {json.dumps(tool.spec.schema, ensure_ascii=True)}")
    remark(
        f"  at most {tool.spec.timeout_s:g} s, in the sandbox: without the network, your files "
        "and the library"
    )
    remark(*(f"  file {path}, {size:,} bytes" for path, size in tool.files.items()))
    [scanned] = verbs.scan_resources(library, caller, [Ref.parse(tool.ref).at(tool.version)])
    remark(*(f"  scan: {finding}" for finding in scanned.findings))
