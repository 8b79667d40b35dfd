"""PostToolUse: what a client's agent wrote into a watched folder with its own tool is the agent's change."""

import os
import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from evolvable_server.hooks.events import Event
from evolvable_store.operation import Actor, Head, Identity, Principal
from evolvable_store.storage.attestations import Attestations
from evolvable_store.storage.bindings import Binding, HeldDirectories, WatchedFolder
from evolvable_store.storage.proposals import Draft
from evolvable_store.workingcopy.incoming import IncomingDirectory
from evolvable_tools.library import Library

TOOLS = ("Write", "Edit", "MultiEdit", "NotebookEdit", "apply_patch")
"""The tools of the clients that write a file."""

MAX_PATHS = 50
"""Files of one patch that are looked at."""

LATE_SECONDS = 120.0
"""How long before the hook's word the server may have imported the file itself."""

_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Move to): (.+?)\s*$", re.MULTILINE)


def note(library: Library, event: Event) -> list[str]:
    """Import what this use of a tool wrote on behalf of the agent; return the directories it wrote in."""
    if event.tool_name not in TOOLS or library.store.read_only:
        return []
    paths = [event.file_path] if event.file_path else _PATCHED.findall(event.command)[:MAX_PATHS]
    identity = Identity(Principal.AGENT, f"hook:{event.client[:40] or 'client'}")
    noted = []
    for folder in library.folders():
        inside = list(_inside(folder, paths, event.cwd))
        directories = library.working_copies.copy(folder).directories_at(inside) if inside else set()
        if directories:
            sync = library.working_copies.sync_as(folder, directories, identity)
            done = {taken.directory for taken in sync.taken} | {held.directory for held in sync.held}
            _attribute(library, folder, directories - done, identity)
        noted += sorted(directories)
    return noted


def _inside(folder: WatchedFolder, paths: Iterable[str], cwd: str) -> Iterable[str]:
    for path in paths:
        if path and "\0" not in path and len(path) <= 4096 and (os.path.isabs(path) or cwd):
            real = Path(os.path.realpath(os.path.join(cwd, path)))
            if real != folder.path and real.is_relative_to(folder.path):
                yield real.relative_to(folder.path).as_posix()


def _attribute(library: Library, folder: WatchedFolder, directories: set[str], identity: Identity) -> None:
    """Say of versions that a server imported a moment ago, before the hook's word, that the agent made them."""
    bindings = library.working_copies.bindings.of_directories(folder, directories)
    heads = library.store.backend.heads_by_id({binding.resource for binding in bindings.values()})
    for binding in bindings.values():
        head = heads.get(binding.resource)
        if head is None or head.version is None or not _is_fresh(library, head):
            continue
        if not _held_late(library, folder, binding, head, identity):
            Attestations(library.store.backend).attribute([(head.id, head.latest)], library.store.now(), identity)


def _is_fresh(library: Library, head: Head) -> bool:
    made = library.store.operation(library.store.version(head).operation)
    if made.principal is not Principal.UNKNOWN or made.intent.via != "file":
        return False
    age = datetime.fromisoformat(library.store.now()) - datetime.fromisoformat(made.at)
    return abs(age.total_seconds()) <= LATE_SECONDS


def _held_late(library: Library, folder: WatchedFolder, binding: Binding, head: Head, identity: Identity) -> bool:
    """Return whether what was imported is to be held, and then serve the version before it; the file stays."""
    store, base = library.store, head.latest - 1
    before = store.files(head, base) if base else {}
    arrival = IncomingDirectory(folder, binding.directory, head.ref, head, before, store.files(head), identity)
    holding = library.gate(arrival)
    if holding is None:
        return False
    draft = Draft(head.ref, base, arrival.files, holding.reason, findings=holding.findings)
    HeldDirectories(store.backend).hold(folder, binding.directory, head.tree, draft, store.now(), identity)
    who = Identity(Principal.UNKNOWN, "hook")
    with store.transaction(Actor.HUMAN, holding.reason, identity=who) as tx:
        if base:
            tx.restore(head.ref, base, expected_version=head.version)
        else:
            tx.remove(head.ref, expected_version=head.version)
    return True
