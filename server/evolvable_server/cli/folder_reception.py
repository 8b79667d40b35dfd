"""Show what folders hold before `init` takes them in, and decide on whose behalf it does.

A folder is the person's after a yes to what was shown. Without a terminal, only the clients' own folders of the account
are, and only with --yes; they are found by the account database, because anybody can set HOME.
"""

import ctypes
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import click

from evolvable_server.cli.folder_choice import FolderChoice
from evolvable_server.cli.terminal import ask_yes, count, remark
from evolvable_server.client_folders import ClientHomes, own_folders
from evolvable_server.config import is_person, marked_client
from evolvable_server.person_config import account_home
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.operation import Identity, Principal
from evolvable_store.paths import work_tree
from evolvable_store.resource import main_file
from evolvable_store.workingcopy.discovery import count_resources, discover, is_single
from evolvable_store.workingcopy.tree_reader import read_folder, read_single
from evolvable_tools.approvals import UNSEEN_FOLDER, check_arrival, finding_messages, is_dangerous

MOST_COUNTED = 10_000
"""Resources of a folder that the question counts."""

MOST_SCANNED = 1_000
"""Resources of a folder that are scanned for the question; an import scans them all."""

MOST_NAMED = 20
"""Resources with findings that are named for a folder."""

_SYSTEMS = {".hg": "Mercurial checkout", ".svn": "Subversion checkout", ".jj": "Jujutsu repository"}

_QUARANTINE = ("com.apple.quarantine", "user.com.apple.quarantine", "user.xdg.origin.url")
"""Attributes that systems give to files from elsewhere."""

UNSEEN = Identity(Principal.PERSON, UNSEEN_FOLDER)
"""Who answers for a folder that a person imported with --yes, without a look at what it holds."""

DOWNLOADED = Identity(Principal.IMPORT, "init")
"""Who answers for a folder that nobody said yes to: the people it comes from."""


def confirm_folders(choices: Sequence[FolderChoice]) -> list[FolderChoice]:
    """Show what the folders hold, ask, and return those that the person imports. Raise InvalidArgument for none.

    One question is for the clients' own folders of the account and for plugins; each other folder has its own.
    """
    own = [one for one in choices if is_own_folder(one.path) or one.is_plugins]
    groups = [own] if own else []
    groups += [[one] for one in choices if one not in own]
    taken: list[FolderChoice] = []
    for group in groups:
        for choice in group:
            show_folder(choice)
        which = "it" if len(group) == 1 else "them"
        if _is_yes(f"Import {which}, and keep {which} and the library in sync?", default=group is own):
            taken += group
    if choices and not taken:
        raise InvalidArgument(
            "Nothing was imported.", "--yes answers it. `evolvable init FOLDER...` imports those that you name."
        )
    return taken


def _is_yes(question: str, *, default: bool) -> bool:
    """Return whether the answer is yes. No answer is no; an interrupt ends the command."""
    try:
        return ask_yes(question, default=default, err=True)
    except click.Abort as abort:
        if not isinstance(abort.__cause__ or abort.__context__, EOFError):
            raise
        remark("")
        return False


def show_folder(choice: FolderChoice) -> None:
    """Write how many resources a folder holds, who brought them, and what the scan found in them."""
    found = count_resources(choice.path, choice.kind, MOST_COUNTED)
    read_only = ", read only" if choice.is_plugins else ""
    remark(f"{choice.path}  ({count(found, choice.kind)}, scope {choice.scope}{read_only})")
    remark(f"  brought by: {brought_by(choice.path)}")
    lines = list(_findings(choice))
    for line in lines[:MOST_NAMED]:
        remark(f"  {line}")
    if len(lines) > MOST_NAMED:
        remark(f"  and {len(lines) - MOST_NAMED} more with findings: `evolvable scan` shows them")
    if not lines and found:
        remark("  the scan found nothing")


def brought_by(path: Path) -> str:
    """Say who brought a folder, as far as the system tells."""
    real = path.resolve()
    tree = work_tree(real)
    if tree is not None:
        return f"repository {tree.name}"
    for above in (real, *real.parents):
        for name, what in _SYSTEMS.items():
            if os.path.lexists(above / name):
                return f"{what} {above.name}"
    if any(map(_is_quarantined, _some_files(real))):
        return "a download, by the mark of the system"
    return "unknown"


def _some_files(folder: Path) -> Iterator[Path]:
    """Yield the folder, and the files directly in what it holds."""
    yield folder
    for entry in sorted(folder.iterdir())[:MOST_NAMED]:
        yield entry
        if entry.is_dir() and not entry.is_symlink():
            yield from sorted(entry.iterdir())[:MOST_NAMED]


def _is_quarantined(path: Path) -> bool:
    if sys.platform == "darwin":
        size = ctypes.CDLL(None).getxattr(os.fsencode(path), _QUARANTINE[0].encode(), None, 0, 0, 1)
        return int(size) >= 0
    if sys.platform == "win32":
        return os.path.exists(f"{path}:Zone.Identifier")
    try:
        return not set(_QUARANTINE).isdisjoint(os.listxattr(path, follow_symlinks=False))
    except OSError:
        return False


def _findings(choice: FolderChoice) -> Iterator[str]:
    """Yield a line for each resource in which the scan found something."""
    for directory in discover(str(choice.path), choice.kind).directories[:MOST_SCANNED]:
        place = choice.path / directory
        try:
            single = is_single(choice.kind, directory)
            reading = read_single(place, main_file(choice.kind, "")) if single else read_folder(place)
        except (OSError, EvolvableError):
            continue
        found = check_arrival(reading.files, choice.kind)
        if messages := finding_messages(found):
            held = any(map(is_dangerous, found.findings))
            after = "; it stays out until you approve it by itself" if held and not choice.is_plugins else ""
            yield f"{directory}: {'; '.join(messages[:3])}{after}"


def is_own_folder(path: Path) -> bool:
    """Return whether a folder is one where a client keeps the account's own skills or commands."""
    home = account_home()
    if home is None:
        return False
    homes = ClientHomes(home, home / ".claude", home / ".codex")
    return path.absolute() in {one.path for one in own_folders(homes)}


def who_brings(choice: FolderChoice, *, yes: bool, watched: Collection[Path]) -> Identity | None:
    """Return who answers for what a folder holds when it is imported; None for the one who changed a watched folder.

    yes: whether --yes was given. watched: the folders that were imported before.
    """
    real = choice.path.resolve()
    if real in watched or choice.is_plugins:
        return None
    own = is_own_folder(choice.path)
    if is_person():
        return Identity(Principal.PERSON, "terminal") if own or not yes else UNSEEN
    unasked = yes and own and marked_client(os.environ) is None and work_tree(real) is None
    return Identity(Principal.PERSON, "account") if unasked else DOWNLOADED
