"""Puts the parts together: a library, its callers, and a server over it."""

from pathlib import Path

from evolvable_server.config import Config
from evolvable_server.principals import actor_of
from evolvable_store.operation import Identity
from evolvable_store.resource import USER_SCOPE
from evolvable_store.storage.bindings import WatchedFolder
from evolvable_tools.approvals_lock import ApprovalsLock
from evolvable_tools.library import Caller, Library


def caller(config: Config, library: Library, identity: Identity, *, decides: bool = False) -> Caller:
    """Return the caller of this process: on whose behalf, its session, and the project's scope before the user's.

    decides: a script whose token may approve makes a decision.
    """
    scope = config.scope or scope_of(config.project, library.folders())
    scopes = (USER_SCOPE,) if scope in (None, USER_SCOPE) else (scope, USER_SCOPE)
    return Caller(actor_of(identity, decides=decides), config.session, scopes, identity.principal, identity.via)


def lock_of(config: Config) -> ApprovalsLock | None:
    """Return the approvals lock of the person whose account this is, None where approvals are not locked."""
    return ApprovalsLock(config.person.lock_key) if config.person.lock_key else None


def scope_of(project: Path, folders: list[WatchedFolder]) -> str | None:
    """Returns the scope of the watched folder that lies in the project or in the nearest folder above it."""
    project = project.resolve()
    for place in (project, *project.parents):
        for folder in folders:
            # .claude/skills lies two levels below its project, a plain skills folder one.
            if folder.scope != USER_SCOPE and place in (folder.path.parent.parent, folder.path.parent, folder.path):
                return folder.scope
    return None
