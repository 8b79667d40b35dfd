"""Name the caller of this process: its scopes, its approvals lock and the folders its person
trusts.
"""

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from evolvable_server.config import Config, actor_of, file_status
from evolvable_server.person_config import USUAL, PersonConfig, account_home, config_path
from evolvable_server.second_config import read_library_config, second_path
from evolvable_store import Identity
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import USER_SCOPE
from evolvable_store.workingcopy import Projects
from evolvable_tools import ApprovalsLock, Caller, Library

log = logging.getLogger(__name__)


def make_caller(
    config: Config, library: Library, identity: Identity, *, decides: bool = False
) -> Caller:
    """Return the caller of this process, with its session and scopes, the projects' before the
    user's.

    decides: whether a script whose token may approve makes a decision.
    """
    scopes = scopes_seen(config, library, config.project)
    actor, project = actor_of(identity, decides=decides), str(config.project)
    return Caller(actor, config.session, scopes, identity.principal, identity.via, project=project)


def approvals_lock(config: Config) -> ApprovalsLock | None:
    """Return the approvals lock of this account's person, None where approvals are not locked."""
    return lock_of(config.person)


def marks_agents(config: Config) -> bool | None:
    """Return whether an agent's text is marked until a person approves it.

    None where no configuration sets it.
    """
    if not config.person.agent_text:
        return None
    return config.person.agent_text == "marked"


def lock_of(person: PersonConfig) -> ApprovalsLock | None:
    """Return the approvals lock that a configuration names, with the keys of people who sign in."""
    if not person.lock_key:
        return None
    signers = person.sign_in.signers if person.sign_in is not None else {}
    people = {f"oidc:{name}": key for name, key in signers.items()}
    return ApprovalsLock(person.lock_key, people)


def scopes_seen(config: Config, library: Library, directory: Path) -> tuple[str, ...]:
    """Return the scopes that are read from a directory, the nearest first: its projects', the
    user's, the plugins'.

    An error while moved projects are looked up is logged, and the next call looks again.
    """
    if config.scope:
        # A named scope takes the place of the projects' scopes, so no folder is looked up.
        return tuple(dict.fromkeys((config.scope, USER_SCOPE, *library.plugin_scopes())))
    projects = Projects(library.store, Path.home())
    try:
        if library.settle_projects(projects, directory):
            # Projects keeps what it read first; only a new object shows the move.
            projects = Projects(library.store, Path.home())
    except (EvolvableError, OSError) as error:
        log.warning("The projects were not brought up to date: %s", error)
    return *projects.scopes_at(directory), USER_SCOPE, *library.plugin_scopes()


class ListedFolders:
    """The folders that the person's configuration lists for the library in `home`.

    A file that cannot be read lists none.
    """

    def __init__(self, home: Path) -> None:
        self._home, self._paths = home, (config_path(), second_path())
        # Equal to no list of statuses, so the first look always reads the files.
        self._statuses: object = None
        self._folders = self._followed = frozenset[str]()

    def __call__(self) -> frozenset[str]:
        """Return the folders as they are listed now.

        Where no file changed, this takes one `stat` of each.
        """
        self._look()
        return self._folders

    def list_followed(self) -> frozenset[str]:
        """Return the folders where the scan alone decides on what a pull brings."""
        self._look()
        return self._followed

    def _look(self) -> None:
        statuses = [file_status(path) for path in self._paths]
        if statuses != self._statuses:
            # Emptied first: a file that cannot be read lists no folder.
            self._folders = self._followed = frozenset()
            with contextlib.suppress(EvolvableError):
                person = read_library_config(self._home)
                self._folders = person.trusted_folders(self._home)
                self._followed = person.followed_folders(self._home)
            # Also after an error: a broken file is read again only when it has changed.
            self._statuses = statuses


def assign_trusted_folders(
    library: Library, list_folder: Callable[[Path, Path], None]
) -> list[str]:
    """Add the folder to decisions of trust that were stored without one.

    Return a line for each folder that is newly listed. The folder is a listed one that holds the
    resource. In the account's usual home it is else the watched folder, which `list_folder` then
    lists. Other decisions do not count, and doctor names them. Do nothing where approvals are
    locked.
    """
    # Where approvals are locked, a change to the list of folders needs the person's signature.
    if library.store.read_only or library.lock is not None:
        return []
    attestations = library.store.backend.attestations
    unassigned = {
        attestation.resource
        for attestation in attestations.list_unlisted()
        if attestation.folder is None
    }
    if not unassigned:
        return []
    resources_by_folder, added = _find_folders(library, unassigned), list[Path]()
    for folder, resources in resources_by_folder.items():
        if str(folder) not in (library.store.backend.trusted_folders() or ()):
            # Only the account's usual home adds to its list. A second file belongs to one library,
            # not to the account.
            if not _is_usual(library.store.home) or second_path() is not None:
                continue
            list_folder(folder, library.store.home.resolve())
            added.append(folder)
        attestations.keep_folder(resources, str(folder))
    # '' in place of None: the next start does not search again, and doctor names these resources.
    attestations.keep_folder(unassigned.difference(*resources_by_folder.values()), "")
    if not added:
        return []
    names = ", ".join(map(str, added))
    return [f"{names}: you trusted it before, and it is now listed in {config_path()}."]


def _find_folders(library: Library, resources: set[int]) -> dict[Path, set[int]]:
    """Return the folders that hold these resources: the listed one, else the watched one."""
    listed_folders = [Path(path) for path in sorted(library.store.backend.trusted_folders() or ())]
    resources_by_folder: dict[Path, set[int]] = defaultdict(set)
    for folder in library.folders():
        for directory, binding in library.working_copies.bindings.of_folder(folder).items():
            if binding.resource in resources:
                place = folder.path / directory
                holders = (path for path in listed_folders if place.is_relative_to(path))
                resources_by_folder[next(holders, folder.path)].add(binding.resource)
    return resources_by_folder


def _is_usual(home: Path) -> bool:
    account = account_home()
    return account is not None and home.resolve() == (account / USUAL).resolve()
