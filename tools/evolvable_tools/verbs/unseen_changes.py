"""What agents changed or created and no person looked at since: one list, and the approval of what
it showed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from evolvable_store import Actor, Head, Manifest, Operation, Principal
from evolvable_store.errors import Conflict, Refused
from evolvable_store.resource import Ref
from evolvable_tools.authors import (
    AuthorKind,
    Authorship,
    age_of,
    authorships,
    provenance_line,
    version_base,
)
from evolvable_tools.caller import Caller
from evolvable_tools.file_edits import changed_files
from evolvable_tools.library import Library
from evolvable_tools.verbs.load import is_settled
from evolvable_tools.verbs.versions import diff

MAX_LISTED = 100
"""Resources that one list holds. The oldest changes wait behind them."""

MAX_SHOWN_DIFF = 20_000
"""Characters of the difference of one resource in a list."""


@dataclass(frozen=True, slots=True)
class UnseenChange:
    """What agents changed in one resource since a person last looked.

    ref: without its version. tree: the content that is served. author, by: whose it is. is_new: no
    version of it was looked at. line: who changed what, when, and how to take the newest change
    back. operation: of that change, at: when it was made, reason: why, as the agent says. settled:
    it was used so often that the loaded text no longer brings the line. diff: against the version
    that a person last looked at.
    """

    ref: str
    version: int
    tree: str
    author: str
    by: str
    is_new: bool
    line: str
    operation: int
    at: str
    reason: str
    files: list[str]
    settled: bool = False
    diff: str = ""


class UnseenChanges(NamedTuple):
    """What waits for a look, the newest change first.

    number: of resources, also those behind the limit.
    """

    changes: list[UnseenChange]
    number: int


_UnseenItem = tuple[Head, Authorship, Operation]
"""A resource, whose it is, and the operation that last changed it."""


def list_unseen(
    library: Library,
    caller: Caller | None = None,
    *,
    limit: int = MAX_LISTED,
    with_diff: bool = False,
) -> UnseenChanges:
    """Return what waits for a look. caller: who looks; None for the owner of the library.

    What a stranger brought is not in it: that needs trust. An agent is told neither reasons nor
    differences.
    """
    items = sorted(_find_unseen(library, caller), key=lambda item: -item[2].id)
    to_agent = caller is not None and caller.actor is not Actor.HUMAN
    changes = [
        _describe(library, item, with_diff=with_diff and not to_agent) for item in items[:limit]
    ]
    if to_agent:
        changes = [replace(change, reason="") for change in changes]
    return UnseenChanges(changes, len(items))


def count_unseen(library: Library, caller: Caller | None = None) -> int:
    """Return how many resources wait for a look."""
    return sum(1 for _ in _find_unseen(library, caller))


def unseen_change(library: Library, caller: Caller, head: Head) -> UnseenChange | None:
    """Return what agents changed in one resource since a person looked, with the difference; None
    for nothing.
    """
    items = list(_find_unseen(library, caller, [head]))
    return _describe(library, items[0], with_diff=True) if items else None


def _find_unseen(
    library: Library, caller: Caller | None, heads: Iterable[Head] | None = None
) -> Iterator[_UnseenItem]:
    backend = library.store.backend
    if heads is not None:
        by_id = {head.id: head for head in heads}
    elif library.lock is None:
        by_id = backend.heads_by_id(backend.authorship.changed_resources())
    else:  # an edit without a signature is an agent's, whatever its base was when it was written
        by_id = {head.id: head for head in library.store.heads()}
    living = {identity: head for identity, head in by_id.items() if head.version is not None}
    for identity, authorship in authorships(library, living, caller).items():
        head = living[identity]
        if _has_strangers_text(authorship):
            continue
        if authorship.changes:
            operation = authorship.changes[0].version_author.operation
        elif authorship.kind is AuthorKind.MEMBER and authorship.why:
            operation = library.store.version(head).operation
        else:
            continue
        yield head, authorship, library.store.operation(operation)


def _has_strangers_text(authorship: Authorship) -> bool:
    strangers = (AuthorKind.REPOSITORY, AuthorKind.IMPORT)
    return any(
        author.why and author.kind in strangers
        for author in (authorship.main, authorship.rest, *authorship.files.values())
    )


def _describe(library: Library, item: _UnseenItem, *, with_diff: bool) -> UnseenChange:
    head, authorship, operation = item
    store = library.store
    base = version_base(library, head, head.latest)
    before, after = store.manifest(head, base) if base else Manifest({}), store.manifest(head)
    names = str(base or 0), str(head.latest)
    author, by = authorship.kind, authorship.by
    if authorship.changes:
        author, by = AuthorKind.AGENT, authorship.changes[0].by
    return UnseenChange(
        str(head.ref),
        head.latest,
        head.tree,
        author,
        by,
        not base,
        _format_line(library, item),
        operation.id,
        operation.at,
        operation.reason,
        changed_files(before, after),
        is_settled(library, head, authorship),
        diff(library, before, after, names, limit=MAX_SHOWN_DIFF) if with_diff else "",
    )


def _format_line(library: Library, item: _UnseenItem) -> str:
    head, authorship, operation = item
    ref, now = f"{head.ref}@{head.latest}", library.store.now()
    if authorship.changes:
        return provenance_line(ref, authorship, now)
    author = (
        f"the agent of a member ({authorship.by})" if authorship.by else "the agent of a member"
    )
    return (
        f"{ref}: {author} changed it, {age_of(operation.at, now)}, not approved; take back: undo "
        f"{operation.id}"
    )


def approve_seen(library: Library, caller: Caller, seen: Mapping[str, str]) -> list[str]:
    """Record that a person looked at these resources and stands for them, and return their refs.

    seen: by ref the tree that was shown. Raise Refused for everybody but a person, Conflict where
    one of them is something else now; then none is approved.
    """
    check_may_vouch(library, caller)
    contents = []
    for ref, tree in seen.items():
        head = library.store.head_or_none(Ref.parse(ref), caller.scopes)
        if head is None or head.version is None or head.tree != tree:
            # Before anything is approved: all are checked first.
            raise Conflict(
                f"{ref[:200]} is not what you saw any more. Nothing was approved.",
                "Look at it again.",
            )
        contents.append((str(head.ref), head.id, tree))
    vouch_for(library, caller, contents)
    return [ref for ref, *_ in contents]


def vouch_for(
    library: Library, caller: Caller, contents: Sequence[tuple[str, int, str]], folder: str = ""
) -> list[str]:
    """Record that a person stands for these contents (ref, resource, tree), and return what went
    wrong in the folders.

    folder: which the person trusts with it. Folders get the powers that this puts in force.
    """
    if not contents:
        return []
    rows = [(resource, tree) for _, resource, tree in contents]
    signer = caller.signer if library.lock else None
    library.store.backend.attestations.vouch(
        rows, library.store.now(), caller.identity, signer, folder
    )
    library.record(caller, "trust", *(f"{ref} tree {tree}" for ref, _, tree in contents))
    return library.working_copies.write_powers([Ref.parse(ref) for ref, *_ in contents])


def check_may_vouch(library: Library, caller: Caller) -> None:
    """Raise Refused for everybody but a person, and where a lock needs a signature that the caller
    has not.
    """
    library.authorise(caller, "Trusting a resource")
    check_is_person(caller)


def check_is_person(caller: Caller) -> None:
    """Raise Refused for everybody but a person."""
    if caller.identity.principal is not Principal.PERSON:
        raise Refused(
            "A person decides what is trusted.",
            "Tell the user what you would trust, and go on without it.",
        )
