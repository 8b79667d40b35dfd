"""The commands remote, clone, push and pull: the library in a git repository."""

import dataclasses
import re
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import click

from evolvable_server import NamedRemote, check_account_file, edit_config, plugins
from evolvable_server.cli import (
    MAX_FINDINGS,
    MAX_LISTED,
    CommandContext,
    ExitCode,
    Output,
    announced_progress,
    command,
    found_code,
    to_cli_words,
    warn_left_out,
    warn_of_secrets,
)
from evolvable_server.cli.terminal import (
    Row,
    ask_yes,
    confirm,
    count,
    local_time,
    one_line,
    progress,
    remark,
    say,
    show_table,
    some,
    warn,
)
from evolvable_store import Principal, Signer
from evolvable_store.errors import AlreadyExists, EvolvableError, InvalidArgument, NotFound
from evolvable_store.resource import USER_SCOPE, check_scope, is_plugins
from evolvable_teams.remotes import (
    PARTS,
    Arrival,
    Consent,
    IncomingResource,
    PullResult,
    PushResult,
    Remote,
    check_address,
    check_branch,
    check_remote_name,
    is_local,
    open_pull,
    purge_as_elsewhere,
    push,
)
from evolvable_tools import Caller, Library
from evolvable_tools.scan import FindingSeverity
from evolvable_tools.verbs import plan_blobs

DEFAULT = "origin"
"""The remote that a command means when it names none."""

# A remote that is down is asked seldom; one that is up again is pulled within a quarter of an hour.
LONGEST_PAUSE = 900.0
"""The most seconds between two pulls of --watch after failures."""


@dataclass(frozen=True, slots=True)
class RemoteStatus:
    """A remote, and how far the library is synchronised with it.

    synchronised: when, '' for never. commit: the last one of the remote that was merged or pushed.
    waiting: the resources of which the remote's content waits for the person.
    """

    name: str
    url: str
    branch: str
    scopes: list[str]
    parts: list[str]
    synchronised: str = ""
    commit: str = ""
    waiting: list[str] = field(default_factory=list)


_branch_option = click.option(
    "--branch", default="main", show_default=True, help="The branch of the repository."
)
_scope_option = click.option(
    "--scope", "scopes", multiple=True, help="Whose resources go there; repeatable."
)
_with_option = click.option(
    "--with",
    "parts",
    multiple=True,
    type=click.Choice(PARTS),
    help="What else goes there; repeatable.",
)
_signed_option = click.option(
    "--signed",
    is_flag=True,
    help="Refuse commits without a signature that your git verifies, and sign on push.",
)


@command("remote", table=True)
@click.argument(
    "action", type=click.Choice(["add", "list", "remove", "allow", "disallow"]), default="list"
)
@click.argument("name", required=False)
@click.argument("url", required=False)
@_branch_option
@_scope_option
@_with_option
@_signed_option
def remote_command(
    state: CommandContext,
    action: str,
    name: str | None,
    url: str | None,
    branch: str,
    scopes: tuple[str, ...],
    parts: tuple[str, ...],
    signed: bool,
) -> Output[Any]:
    """Name the git repositories that the library goes to.

    URL is a folder, host:path, https:// or ssh://. The user's resources go there, but for memories;
    --scope names others. Quotes of evidence, sessions, learned tasks and memories go there only
    where --with names them. The names are kept in your own configuration. `allow KEY` lists the key
    of another person's approvals lock: what that key approved needs no question when it is pulled.
    """
    if action == "list":
        if name is not None:
            raise click.UsageError("`team remote list` takes no name.")
        return Output(_read_statuses(state), _show_all)
    if name is None or (action == "add") != (url is not None):
        raise click.UsageError(
            "`team remote add` takes a name and an address, the other actions one name or key."
        )
    if action in ("allow", "disallow"):
        return _set_key(state, name, allowed=action == "allow")
    if action == "remove":
        return _remove(state, name)
    return _add(state, name, url or "", branch, scopes, parts, signed=signed)


def _add(
    state: CommandContext,
    name: str,
    url: str,
    branch: str,
    scopes: tuple[str, ...],
    parts: tuple[str, ...],
    *,
    signed: bool,
) -> Output[Any]:
    by_name = {remote.name: remote for remote in _library_remotes(state)}
    existing = by_name.get(check_remote_name(name))
    place = state.config().home.resolve()
    chosen_scopes = tuple(dict.fromkeys(check_scope(scope) for scope in scopes)) or (USER_SCOPE,)
    if plugins := list(filter(is_plugins, chosen_scopes)):
        raise InvalidArgument(
            f"{plugins[0]} is a plugin's.",
            "A plugin comes from its own marketplace; push your scopes.",
        )
    where = check_address(url), str(place), check_branch(branch)
    added = NamedRemote(name, *where, chosen_scopes, tuple(dict.fromkeys(parts)), signed=signed)
    # The same remote again changes nothing; another one under its name would lose the old address.
    if existing is not None and existing != added:
        difference = (
            f"It goes to {existing.url}, branch {existing.branch}; this would be {added.url}, "
            f"branch {added.branch}."
        )
        raise AlreadyExists(
            f"A remote is named {name} already. {difference}",
            "Remove it first, or choose another name.",
        )
    if existing is None:
        _store(name, place, added, state.signer())
    return Output(
        dataclasses.asdict(added),
        lambda _: say(f"{name} is {added.url}; `evolvable team push` sends the library."),
    )


def _remove(state: CommandContext, name: str) -> Output[Any]:
    remote, person_config = _named_remote(state, name), state.config().person.editable
    if remote not in person_config.remotes:
        hint = "Unset EVOLVABLE_CONFIG to change the account's configuration. Nothing was changed."
        raise NotFound(
            f"{person_config.path} does not name {name}: the account's configuration does.", hint
        )
    _store(name, state.config().home.resolve(), None, state.signer())
    with state.library() as (library, _):
        library.store.backend.remotes.forget(name)
    return Output(
        {"removed": name},
        lambda _: say(f"{name} is removed. The repository and the library are as they were."),
    )


def _set_key(state: CommandContext, key: str, *, allowed: bool) -> Output[Any]:
    if not re.fullmatch(r"[0-9a-f]{64}", key):
        hint = "The owner of the key sees it with `evolvable care approvals status --json`."
        raise InvalidArgument(
            f"{ascii(key[:80])} is not a public key of 64 hexadecimal digits.", hint
        )
    _store_key(key, state.config().home, state.signer(), allowed=allowed)
    effect = "count when they are pulled" if allowed else "count no longer"
    return Output(
        {"key": key, "allowed": allowed},
        lambda _: say(f"Approvals that {key[:16]} signed {effect}."),
    )


def _store(name: str, home: Path, remote: NamedRemote | None, signer: Signer | None) -> None:
    """Store a remote of a library in the configuration; None: remove the one of this name.

    Raise as `edit_config`.
    """

    def change(document: Any) -> None:
        rows = document.pop("remotes", [])
        remaining = [row for row in rows if (row.get("name"), row.get("home")) != (name, str(home))]
        if remote is not None:
            scopes, parts = list(remote.scopes), list(remote.parts)
            entry = {"name": name, "url": remote.url, "home": str(home), "branch": remote.branch}
            signed = {"signed": True} if remote.signed else {}
            remaining.append(entry | {"scopes": scopes, "with": parts} | signed)
        if remaining:
            document["remotes"] = remaining

    edit_config(change, home, signer)


def _store_key(key: str, home: Path, signer: Signer | None, *, allowed: bool) -> None:
    """Store a public key whose approvals count when they are pulled, or remove it.

    Raise as `edit_config`.
    """

    def change(document: Any) -> None:
        remaining = [
            listed_key for listed_key in document.pop("remote_keys", []) if listed_key != key
        ]
        if keys := [*remaining, *[key] * allowed]:
            document["remote_keys"] = keys

    check_account_file("Whose approvals count")
    edit_config(change, home, signer)


def _library_remotes(state: CommandContext) -> list[NamedRemote]:
    config = state.config()
    place = str(config.home.resolve())
    return [remote for remote in config.person.remotes if remote.home == place]


def _find_remote(state: CommandContext, name: str) -> Remote:
    """Return the remote of this name with what pushing and pulling need. Raise NotFound."""
    entry, keys = _named_remote(state, name), state.config().person.remote_keys
    where = check_address(entry.url), entry.home, check_branch(entry.branch)
    looks = next(iter(plugins.archive_parts()), None)
    return Remote(entry.name, *where, entry.scopes, entry.parts, entry.signed, keys, looks)


def _named_remote(state: CommandContext, name: str) -> NamedRemote:
    for remote in _library_remotes(state):
        if remote.name == name:
            return remote
    names = ", ".join(remote.name for remote in _library_remotes(state)) or "none"
    raise NotFound(
        f"No remote is named {ascii(name[:80])}.",
        f"Those named: {names}. `evolvable team remote add` names one.",
    )


def _read_statuses(state: CommandContext) -> list[RemoteStatus]:
    statuses = []
    with state.library() as (library, _):
        log = library.store.backend.remotes
        for remote in _library_remotes(state):
            remote_state = log.state(remote.name, remote.url)
            waits = [str(row.ref) for row in log.waiting(remote_state) if not row.is_unsent]
            status = RemoteStatus(
                remote.name,
                remote.url,
                remote.branch,
                [*remote.scopes],
                [*remote.parts],
                synchronised=remote_state.at,
                commit=remote_state.seen,
                waiting=waits,
            )
            statuses.append(status)
    return statuses


def _show_all(statuses: list[RemoteStatus]) -> None:
    if not statuses:
        say("The library has no remote. `evolvable team remote add origin URL` names one.")
        return
    rows: list[Row] = [
        [
            (status.name, "bold"),
            status.url,
            status.branch,
            local_time(status.synchronised) if status.synchronised else "never",
        ]
        for status in statuses
    ]
    show_table(
        ["name", "address", "branch", "synchronised"], rows, names=("address",), spare=("branch",)
    )
    for status in statuses:
        if status.waiting:
            say(f"Waits for you, of {status.name}: {some(status.waiting, 10)}")


@command("push")
@click.argument("name", default=DEFAULT)
def push_command(state: CommandContext, name: str) -> Output[PushResult]:
    """Push the operations that a remote does not have: one commit for each.

    Nothing of the remote is ever replaced: where it has something new, pull first. A resource with
    a secret in any version is left out; the remote keeps what it has of it. Exit code 1: something
    was left out.
    """
    remote = _find_remote(state, name)
    with state.library() as (library, caller), _at_work("Pushing to", remote):
        result = push(library, caller, remote)
    return Output(result, _show_push, ExitCode.ERROR if result.left_out else ExitCode.DONE)


def _at_work(what: str, remote: Remote) -> AbstractContextManager[Any]:
    """Return a context that shows the work on a remote.

    ssh may ask for a passphrase at the terminal, so no progress is drawn over it.
    """
    label = one_line(f"{what} {remote.name}")
    if is_local(remote.url) or remote.url.startswith(("http://", "https://")):
        return progress(label)
    return announced_progress(label)


def _show_push(result: PushResult) -> None:
    warn(*result.warnings)
    warn_left_out(result.left_out)
    if not result.commits:
        say(f"{result.remote} has everything{' else' if result.left_out else ''}.")
        return
    say(
        f"{count(result.commits, 'commit')} pushed to {result.remote}, which stands at "
        f"{result.commit[:12]}."
    )


@command("pull")
@click.argument("name", default=DEFAULT)
@click.option(
    "--yes", is_flag=True, help="Do not ask: import all but what the scan finds of high severity."
)
@click.option("--purge", is_flag=True, help="Purge here what others purged, without a question.")
@click.option(
    "--watch",
    type=click.FloatRange(1),
    metavar="SECONDS",
    help="Pull again and again, until interrupted.",
)
def pull_command(
    state: CommandContext, name: str, yes: bool, purge: bool, watch: float | None
) -> Output[PullResult] | None:
    """Merge what a remote has into the library.

    At a terminal you see what comes and what the scan found, and are asked once; findings of high
    severity wait in the inbox. A conflict keeps what is here and waits in the inbox. Without a
    person, and with --watch, everything waits; with --watch and --yes, what the scan finds nothing
    in is imported. Exit code 4: something was refused or waits.
    """
    remote = _find_remote(state, name)
    if watch is None:
        with state.library() as (library, caller):
            result = _pull(state, library, caller, remote, yes=yes, attended=True)
            waits = _purge(state, library, caller, remote, result.purged, purge=purge, yes=yes)
        return Output(result, _show_pull, found_code(result.refused, result.proposals, waits))
    _watch(state, remote, watch, yes=yes)
    return None


def _watch(state: CommandContext, remote: Remote, seconds: float, *, yes: bool) -> NoReturn:
    """Pull until interrupted. An error is shown once; the pauses grow while it lasts."""
    pause, last_error = seconds, ""
    while True:
        error = _pull_once(state, remote, yes=yes)
        if error is None:
            if last_error:
                remark(f"{remote.name} can be pulled again.")
            pause, last_error = seconds, ""
        else:
            pause = max(seconds, min(2 * pause, LONGEST_PAUSE))
            if str(error) != last_error:
                state.fail(error)
                remark(
                    f"It is tried again, after up to {max(seconds, LONGEST_PAUSE):,.0f} seconds "
                    "each time."
                )
            last_error = str(error)
        time.sleep(pause)


def _pull_once(state: CommandContext, remote: Remote, *, yes: bool) -> EvolvableError | None:
    """Pull for --watch, and return the error, None for success."""
    try:
        with state.library() as (library, caller):
            result = _pull(state, library, caller, remote, yes=yes, attended=False)
    except EvolvableError as error:
        return error
    if result.commits:
        state.show(result, _show_pull)
    return None


def _pull(
    state: CommandContext,
    library: Library,
    caller: Caller,
    remote: Remote,
    *,
    yes: bool,
    attended: bool,
) -> PullResult:
    """Pull, with the consent of the person where there is one.

    attended: a person waits at the command, so a question can be asked.
    """
    person = caller.identity.principal is Principal.PERSON
    with _at_work("Pulling from", remote), open_pull(library, caller, remote) as pull:
        consent = Consent.NONE
        if person and yes:
            consent = Consent.ASKED if attended else Consent.UNATTENDED
        elif person and attended:
            if coming := pull.coming():
                (remark if state.json else say)(*_describe_coming(remote, coming))
                confirm(
                    f"Import {count(len(coming), 'resource')}?", refused="Nothing was imported."
                )
            consent = Consent.ASKED
        result = pull.accept(consent)
    warn_of_secrets(library)
    return dataclasses.replace(result, warnings=[to_cli_words(text) for text in result.warnings])


def _purge(
    state: CommandContext,
    library: Library,
    caller: Caller,
    remote: Remote,
    hashes: list[str],
    *,
    purge: bool,
    yes: bool,
) -> bool:
    """Purge here what others purged, for good, after the person agreed.

    hashes: of the blobs. Return whether they wait for the person.
    """
    if not hashes:
        return False
    places = plan_blobs(library, hashes).versions
    remark(
        f"Others purged {count(len(hashes), 'file')} that {remote.name} had; here they are in:",
        *places[:MAX_LISTED],
    )
    if len(places) > MAX_LISTED:
        remark(f"and {len(places) - MAX_LISTED:,} more versions")
    may_ask = caller.identity.principal is Principal.PERSON and not yes and not state.json
    if purge or (may_ask and ask_yes("Purge them here too, for good?", err=True)):
        done = purge_as_elsewhere(library, caller, remote, hashes)
        warn(*(f"still there: {place}" for place in done.remains))
        return False
    remark(f"They stay here. `evolvable team pull {remote.name} --purge` purges them.")
    return True


def _describe_coming(remote: Remote, coming: list[IncomingResource]) -> list[str]:
    lines = [f"{remote.name} brings {count(len(coming), 'resource')}:"]
    for resource in coming[:MAX_LISTED]:
        why = f": {resource.why}" if resource.why else ""
        lines.append(f"\n{resource.ref}  {resource.arrival}{why}")
        if resource.approved:
            lines.append(f"  approved: {resource.approved}")
        lines += [
            f"  {finding.severity}: {finding}" for finding in resource.findings[:MAX_FINDINGS]
        ]
        if len(resource.findings) > MAX_FINDINGS:
            lines.append(f"  and {len(resource.findings) - MAX_FINDINGS} more findings")
        if resource.capabilities:
            lines.append(f"  it has the means: {', '.join(resource.capabilities)}")
    rest = coming[MAX_LISTED:]
    if rest:
        noted = sum(
            any(finding.severity is not FindingSeverity.LOW for finding in resource.findings)
            for resource in rest
        )
        lines.append(f"\nand {len(rest):,} more, {noted:,} of them with findings.")
    return lines


def _show_pull(result: PullResult) -> None:
    warn(*result.warnings)
    if not result.commits:
        say(f"{result.remote} has nothing new.")
        return
    for arrival in (Arrival.NEW, Arrival.CHANGED, Arrival.REMOVED, Arrival.MERGED):
        refs = [ref for ref, what in result.resources.items() if what == arrival]
        if refs:
            say(f"{arrival}: {some(refs, 20)}")
    say(
        *(
            f"waits for you: {text} (evolvable inbox show {number})"
            for number, text in result.proposals.items()
        )
    )
    say(f"{count(result.commits, 'commit')} of {result.remote} merged.")
    say(*(f"refused: {ref}: {why}" for ref, why in result.refused.items()))


@command("clone")
@click.argument("url")
@click.option(
    "--name", default=DEFAULT, show_default=True, help="What the remote is called from then on."
)
@_branch_option
@_scope_option
@_with_option
@_signed_option
@click.option(
    "--yes", is_flag=True, help="Do not ask: import all but what the scan finds of high severity."
)
def clone_command(
    state: CommandContext,
    url: str,
    name: str,
    branch: str,
    scopes: tuple[str, ...],
    parts: tuple[str, ...],
    signed: bool,
    yes: bool,
) -> Output[PullResult]:
    """Make a library of a git repository.

    The library must be empty; `evolvable team remote add` and `pull` merge a repository into one
    that is not.
    """
    with state.library(create=True) as (library, _):
        if library.store.sequence():
            hint = (
                f"`evolvable team remote add {name} URL` and `evolvable team pull {name}` "
                "merge the two."
            )
            raise InvalidArgument("The library is not empty.", hint)
    _add(state, name, url, branch, scopes, parts, signed=signed)
    remote = _find_remote(state, name)
    with state.library() as (library, caller):
        result = _pull(state, library, caller, remote, yes=yes, attended=True)
    return Output(result, _show_pull, found_code(result.refused, result.proposals))
