"""Show what folders hold before `init` takes them in, and decide on whose behalf it does.

A folder is the person's after a yes to its contents as they were shown, and the contents that a
repository brought are then approved. Without a terminal, the folders in `[[yours]]` of the
account's configuration are the person's. With --yes, so are the clients' own folders of the
account. The account database says where those lie, because any program can set HOME.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from evolvable_server.cli.folder_choice import FolderChoice
from evolvable_server.cli.terminal import ask_yes, count, remark, some, warn
from evolvable_server.client_folders import ClientHomes, own_folders
from evolvable_server.config import is_person, marked_client
from evolvable_server.config_edits import edited_path, set_trusted
from evolvable_server.person_config import PersonConfig, account_home
from evolvable_store import Actor, Identity, Principal, blob_hash, work_tree
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.resource import Ref, main_file
from evolvable_store.workingcopy import (
    FolderContents,
    count_resources,
    discover,
    is_single,
    read_folder,
    read_single,
)
from evolvable_tools import (
    UNSEEN_FOLDER,
    Caller,
    Library,
    add_left_out,
    check_arrival,
    finding_messages,
    is_dangerous,
    verbs,
)
from evolvable_tools.verbs import TrustOffer

# Counting ends there: the question must come soon, even for a folder that was named by mistake.
MOST_COUNTED = 10_000
"""Resources of a folder that the question counts."""

# The scan takes most of the time before the question.
MOST_SCANNED = 1_000
"""Resources of a folder that are scanned for the question; all are read, and an import scans them
all.
"""

# More lines would push the question itself off the screen.
MOST_NAMED = 20
"""Resources with findings that are named for a folder."""

# git is left to `work_tree`, which knows linked work trees.
_SYSTEMS = {".hg": "Mercurial checkout", ".svn": "Subversion checkout", ".jj": "Jujutsu repository"}

_QUARANTINE = ("com.apple.quarantine", "user.com.apple.quarantine", "user.xdg.origin.url")
"""Attributes that systems give to files from elsewhere."""

UNSEEN = Identity(Principal.PERSON, UNSEEN_FOLDER)
"""Who answers for a folder that a person imported with --yes, without a look at what it holds."""

BY_ACCOUNT = Identity(Principal.PERSON, "account")
"""Who answers for a folder that a person said yes to in advance."""

DOWNLOADED = Identity(Principal.IMPORT, "init")
"""Who answers for a folder that nobody said yes to: the people it comes from."""


Confirmed = dict[FolderChoice, frozenset[str]]
"""The folders that the person imports, each with the hashes of the files that it held when the
person was asked.
"""


def confirm_folders(choices: Sequence[FolderChoice], yours: Callable[[Path], bool]) -> Confirmed:
    """Return the folders that the person imports, as `ask_folders` does.

    Raise InvalidArgument for none.
    """
    confirmed, unanswered = ask_folders(choices, yours)
    if choices and not confirmed:
        hint = "`evolvable init FOLDER...` asks only about those that you name."
        raise InvalidArgument(
            "Nothing was imported.", f"--yes answers it. {hint}" if unanswered else hint
        )
    return confirmed


def ask_folders(
    choices: Sequence[FolderChoice], yours: Callable[[Path], bool]
) -> tuple[Confirmed, bool]:
    """Show what the folders hold, and ask which of them the person imports.

    Return those, and whether nobody answered. One question is for the clients' own folders of the
    account and for plugins; each other folder has its own. yours: whether the configuration has
    said yes to a folder; then there is no question.
    """
    # A plugin is never the person's own, wherever it lies.
    confirmed = {
        choice: show_folder(choice)
        for choice in choices
        if yours(choice.path) and not choice.is_plugins
    }
    undecided = [choice for choice in choices if choice not in confirmed]
    own = [choice for choice in undecided if is_own_folder(choice.path) or choice.is_plugins]
    groups = [own] if own else []
    groups += [[choice] for choice in undecided if choice not in own]
    unanswered = False
    for group in groups:
        hashes = {choice: show_folder(choice) for choice in group}
        which = "it" if len(group) == 1 else "them"
        # Yes is the default only for plugins and the account's own folders.
        answer = yes_or_none(
            f"Import {which}, and keep {which} and the library in sync?", default=group is own
        )
        unanswered = unanswered or answer is None
        if answer:
            confirmed |= hashes
    return confirmed, unanswered


def yes_or_none(question: str, *, default: bool) -> bool | None:
    """Return whether the answer is yes, None where nobody answers.

    An interrupt ends the command.
    """
    try:
        return ask_yes(question, default=default, err=True)
    except click.Abort as abort:
        # click aborts at the end of input and at Ctrl-C; the cause tells the two apart.
        if not isinstance(abort.__cause__ or abort.__context__, EOFError):
            raise
        remark("")
        return None


def show_folder(choice: FolderChoice) -> frozenset[str]:
    """Write the lines of `describe_folder`, and return the hashes of the files."""
    lines, hashes = describe_folder(choice)
    remark(*lines)
    return hashes


def describe_folder(choice: FolderChoice) -> tuple[list[str], frozenset[str]]:
    """Return lines about a folder, and the hashes of its files.

    The lines say how many resources it holds, who brought them, and what the scan found.
    """
    number_held = count_resources(choice.path, choice.kind, MOST_COUNTED)
    read_only = ", read only" if choice.is_plugins else ""
    head = [
        f"{choice.path}  ({count(number_held, choice.kind)}, scope {choice.scope}{read_only})",
        f"  brought by: {brought_by(choice.path)}",
    ]
    lines, hashes = list[str](), set[str]()
    for number, (directory, contents) in enumerate(_read_resources(choice)):
        hashes.update(blob_hash(file.data) for file in contents.files.values())
        lines += _describe_findings(choice, directory, contents) if number < MOST_SCANNED else []
    finding_lines = [f"  {line}" for line in lines[:MOST_NAMED]]
    if len(lines) > MOST_NAMED:
        finding_lines.append(
            f"  and {len(lines) - MOST_NAMED} more with findings: `evolvable care scan` shows them"
        )
    if not lines and number_held:
        finding_lines.append("  the scan found nothing")
    return [*head, *finding_lines], frozenset(hashes)


def brought_by(path: Path) -> str:
    """Say who brought a folder, as far as the system tells."""
    real = path.resolve()
    tree = work_tree(real)
    if tree is not None:
        return f"repository {tree.name}"
    if inner := [entry.name for entry in sorted(real.iterdir()) if os.path.lexists(entry / ".git")]:
        return f"unknown; by repositories of their own: {some(inner, MOST_NAMED)}"
    # A checkout may begin above the folder.
    for above in (real, *real.parents):
        for name, what in _SYSTEMS.items():
            if os.path.lexists(above / name):
                return f"{what} {above.name}"
    if any(map(_is_quarantined, _sample_files(real))):
        return "a download, by the mark of the system"
    return "unknown"


def _sample_files(folder: Path) -> Iterator[Path]:
    """Yield the folder, and the files directly in what it holds."""
    yield folder
    # A sample is enough: a system marks every file of a download.
    for entry in sorted(folder.iterdir())[:MOST_NAMED]:
        yield entry
        if entry.is_dir() and not entry.is_symlink():
            yield from sorted(entry.iterdir())[:MOST_NAMED]


def _is_quarantined(path: Path) -> bool:
    if sys.platform == "darwin":
        # Python reads such attributes on Linux only. The last argument, XATTR_NOFOLLOW, looks at a
        # link itself.
        attribute = _QUARANTINE[0].encode()
        size = ctypes.CDLL(None).getxattr(os.fsencode(path), attribute, None, 0, 0, 1)
        return int(size) >= 0
    if sys.platform == "win32":
        # Windows marks a download by a stream of this name.
        return os.path.exists(f"{path}:Zone.Identifier")
    try:
        return not set(_QUARANTINE).isdisjoint(os.listxattr(path, follow_symlinks=False))
    except OSError:
        return False


def _read_resources(choice: FolderChoice) -> Iterator[tuple[str, FolderContents]]:
    """Yield the directory of each resource of a folder, with its contents."""
    for directory in discover(str(choice.path), choice.kind).directories:
        place = choice.path / directory
        # The import itself refuses what cannot be read, and says why.
        with contextlib.suppress(OSError, EvolvableError):
            if is_single(choice.kind, directory):
                contents = read_single(place, main_file(choice.kind, ""))
            else:
                contents = read_folder(place)
            yield directory, contents


def _describe_findings(choice: FolderChoice, directory: str, contents: FolderContents) -> list[str]:
    """Return a line where the scan finds something in a resource, else nothing."""
    # Files that no version will hold are named in the findings too.
    left_out = (*contents.left_out, *contents.ignored)
    arrival = add_left_out(check_arrival(contents.files, choice.kind), contents.files, left_out)
    messages = finding_messages(arrival)
    if not messages:
        return []
    is_held = any(map(is_dangerous, arrival.findings)) and not choice.is_plugins
    consequence = "; it stays out until you approve it by itself" if is_held else ""
    return [f"{directory}: {'; '.join(messages[:3])}{consequence}"]


def is_own_folder(path: Path) -> bool:
    """Return whether a folder is one where a client keeps the account's own skills or commands."""
    home = account_home()
    if home is None:
        return False
    # From the account database: anybody can set HOME and CLAUDE_CONFIG_DIR.
    homes = ClientHomes(home, home / ".claude", home / ".codex")
    return path.absolute() in {folder.path for folder in own_folders(homes)}


@dataclass(frozen=True, slots=True)
class Reception:
    """Who answers for what a folder holds when it is imported.

    identity: None for the one who changed a watched folder. approves: whether a person says yes to
    what it holds, so that what a repository brought there is approved.
    """

    identity: Identity | None
    approves: bool = False


def receive(
    choice: FolderChoice, person: PersonConfig, *, yes: bool, watched: Collection[Path]
) -> Reception:
    """Return who answers for what a folder holds.

    yes: whether --yes was given. watched: what was imported before.
    """
    real = choice.path.resolve()
    # Watched already, or a plugin's: nobody has to answer for it now.
    if real in watched or choice.is_plugins:
        return Reception(None)
    if person.is_yours(real):
        return Reception(BY_ACCOUNT, approves=True)
    own = is_own_folder(choice.path)
    if is_person():
        # --yes approves no other folder, as nobody looked into it.
        approves = own or not yes
        identity = Identity(Principal.PERSON, "terminal") if approves else UNSEEN
        return Reception(identity, approves=approves)
    # Without a person, --yes counts for the account's own folders alone: not for an agent, and not
    # in a repository.
    unasked = yes and own and marked_client(os.environ) is None and work_tree(real) is None
    return Reception(BY_ACCOUNT if unasked else DOWNLOADED)


def approve_arrivals(
    library: Library,
    caller: Caller,
    folders: Mapping[Path, Collection[str] | None],
    person: PersonConfig,
) -> set[str]:
    """Approve what lies in these folders as it was imported.

    Return the refs that were not the person's before. A resource with a finding of high severity
    waits for a yes of its own, and so does one with a file that nobody was asked about. A warning
    names the folders that cannot be approved, as without the passphrase of a lock.

    folders: those that the person said yes to, each with the hashes of the files that were shown;
    None where the configuration said yes in advance.
    """
    approved = set[str]()
    home = library.store.home
    for folder, shown_hashes in folders.items():
        is_listed = person.is_yours(folder)
        decider = caller
        # The configuration said yes in advance, so the account decides where no person runs the
        # command.
        if is_listed and not is_person():
            decider = replace(
                caller,
                actor=Actor.HUMAN,
                principal=Principal.PERSON,
                via=BY_ACCOUNT.via,
                signer=None,
            )
        question = verbs.ask_trust(library, decider, folder=folder)
        offers = [offer for offer in question.offered if not any(map(is_dangerous, offer.findings))]
        if shown_hashes is not None:
            offers = [
                offer for offer in offers if _collect_hashes(library, offer) <= set(shown_hashes)
            ]
        if not offers:
            continue
        try:
            if not is_listed:
                # Raises where no configuration would count, before anything is approved.
                edited_path(home)
            decision = verbs.trust(library, decider, replace(question, offered=offers))
            if not is_listed:
                # Last: a folder is listed only once its content is approved.
                set_trusted(folder.resolve(), home.resolve(), decider.signer)
        except EvolvableError as error:
            warn(
                f"{folder} is imported, and not approved: {error.text}",
                f"Then: evolvable trust {folder}",
            )
            continue
        approved.update(decision.refs)
        warn(*decision.warnings)
    return approved


def _collect_hashes(library: Library, offer: TrustOffer) -> set[str]:
    """Return the hashes of the files that are offered."""
    proposals = library.store.backend.proposals
    manifest = proposals.get(offer.proposal).manifest if offer.proposal is not None else None
    # A resource that does not wait, and a proposal without files, are offered as they are stored.
    if manifest is None:
        manifest = library.store.manifest(library.store.head(Ref.parse(offer.ref)))
    return {entry.sha256 for entry in manifest.values()}
