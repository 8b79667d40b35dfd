"""Re-read a library of a version before 0.2 once: what its folders got from a repository is marked as that."""

from evolvable_store.objects import Manifest
from evolvable_store.operation import Actor, Head, Identity, Principal
from evolvable_store.storage.attestations import Attestations
from evolvable_store.storage.bindings import WatchedFolder
from evolvable_store.workingcopy.incoming import REPOSITORY, OriginResolver
from evolvable_tools.library import Library

MAX_NAMED = 10
"""Resources that the notice names."""

_NOBODY = Identity(Principal.UNKNOWN)


def reread(library: Library) -> list[str]:
    """Mark heads that a repository brought before principals were recorded; return what changed, in words.

    Does nothing on a library that was re-read before, or that this version made.
    """
    vouching = Attestations(library.store.backend)
    if library.store.read_only or not vouching.needs_reread():
        return []
    found = [head for folder in library.folders() for head in _of_repositories(library, folder)]
    vouching.attribute(((head.id, head.latest) for head in found), library.store.now(), REPOSITORY)
    vouching.note_reread(library.store.now())
    if not found:
        return []
    names = ", ".join(str(head.ref) for head in found[:MAX_NAMED])
    more = f" and {len(found) - MAX_NAMED:,} more" if len(found) > MAX_NAMED else ""
    return [
        f"A repository holds {names}{more}. They counted as written by a person until now, and are untrusted until a"
        " person trusts their folder."
    ]


def _of_repositories(library: Library, folder: WatchedFolder) -> list[Head]:
    origins = OriginResolver(folder)
    if not origins.repositories():
        return []
    bound = library.working_copies.bindings.of_folder(folder)
    heads = library.store.backend.heads_by_id({binding.resource for binding in bound.values()})
    found = []
    for directory, binding in bound.items():
        head = heads.get(binding.resource)
        if head is None or head.version is None or binding.version != head.version or not _is_older(library, head):
            continue
        files = library.store.files(head)
        if origins.identity(directory, Manifest({}), files, _NOBODY) is REPOSITORY:
            found.append(head)
    return found


def _is_older(library: Library, head: Head) -> bool:
    made = library.store.operation(library.store.version(head).operation)
    return made.principal is None and made.actor is Actor.HUMAN
