"""Name the caller of this process: its connection, its scopes and the lock of its approvals.

Over stdio the connection is the client program above this process. A client names as many sessions as it likes, and a
shell can start any number of servers; all of them have one connection. Shells and interpreters between client and
server are skipped, so that an agent's scripts count as the agent's client. Only Linux shows them; elsewhere the parent
process counts. Nothing that a caller says enters the name.
"""

import os
import sys
import time
from pathlib import Path

from evolvable_server.config import Config, actor_of
from evolvable_store.operation import Identity
from evolvable_store.resource import USER_SCOPE
from evolvable_store.storage.bindings import WatchedFolder
from evolvable_tools.approvals_lock import ApprovalsLock
from evolvable_tools.library import Caller, Library

_WRAPPERS = frozenset(
    (
        *("sh", "bash", "dash", "zsh", "ash", "ksh", "fish", "tcsh", "csh", "env", "uv", "uvx", "pipx", "timeout"),
        *("nohup", "setsid", "nice", "xargs", "script", "perl", "ruby", "evolvable", "evolvable-hook"),
    )
)
"""Programs that only start others."""

_MOST = 64


def client_connection() -> str:
    """Return the name of the connection of the client that started this process."""
    if sys.platform != "linux":
        return f"client-{os.getppid()}"
    pid = os.getppid()
    for _ in range(_MOST):
        seen = _process(pid)
        if seen is None or seen.parent <= 1 or not _is_wrapper(seen.name):
            break
        pid = seen.parent
    return f"client-{_boot()}-{pid}-{_begun(pid)}"


def shared_connection() -> str:
    """Return the name of the one connection of all clients without a token that this HTTP server has."""
    return f"http-{_boot()}-{os.getpid()}-{time.time_ns():x}"


class _Process:
    __slots__ = ("begun", "name", "parent")

    def __init__(self, name: str, parent: int, begun: str) -> None:
        self.name, self.parent, self.begun = name, parent, begun


def _process(pid: int) -> _Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name stands in brackets and may hold any character, brackets too.
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return _Process(name, int(fields[1]), fields[19]) if len(fields) > 19 else None


def _is_wrapper(name: str) -> bool:
    return name in _WRAPPERS or name.startswith("python")


def _begun(pid: int) -> str:
    seen = _process(pid)
    return seen.begun if seen is not None else "gone"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]
    except (OSError, UnicodeDecodeError):
        return "boot"


def make_caller(config: Config, library: Library, identity: Identity, *, decides: bool = False) -> Caller:
    """Return the caller of this process: on whose behalf, its session, and the project's scope before the user's.

    decides: a script whose token may approve makes a decision.
    """
    scope = config.scope or project_scope_of(config.project, library.folders())
    scopes = (USER_SCOPE,) if scope in (None, USER_SCOPE) else (scope, USER_SCOPE)
    return Caller(actor_of(identity, decides=decides), config.session, scopes, identity.principal, identity.via)


def approvals_lock(config: Config) -> ApprovalsLock | None:
    """Return the approvals lock of the person whose account this is, None where approvals are not locked."""
    return ApprovalsLock(config.person.lock_key) if config.person.lock_key else None


def project_scope_of(project: Path, folders: list[WatchedFolder]) -> str | None:
    """Return the scope of the watched folder that lies in the project or in the nearest folder above it."""
    project = project.resolve()
    for place in (project, *project.parents):
        for folder in folders:
            # .claude/skills lies two levels below its project, a plain skills folder one.
            if folder.scope != USER_SCOPE and place in (folder.path.parent.parent, folder.path.parent, folder.path):
                return folder.scope
    return None
