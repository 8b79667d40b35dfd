"""The strict door: takes folders that come from elsewhere into the library, each whole or not at all."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evolvable_store.errors import Frozen, InvalidResource, VersionConflict
from evolvable_store.objects import Files, manifest_of
from evolvable_store.operation import Actor
from evolvable_store.problems import problems, refused
from evolvable_store.resource import Kind, Ref, main_file

if TYPE_CHECKING:
    from evolvable_store.store import Store
    from evolvable_store.transaction import Transaction

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did.

    operation: the one that made all of it; None when nothing changed, and for a JSON archive, whose operations
    come with it. added: new here, or removed before. refused: name or ref -> every reason; these were left as
    they were. held: kept out for now, by whoever looked at them.
    """

    operation: int | None
    added: tuple[Ref, ...] = ()
    updated: tuple[Ref, ...] = ()
    unchanged: tuple[Ref, ...] = ()
    refused: tuple[tuple[str, tuple[str, ...]], ...] = ()
    held: tuple[Ref, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A folder that may become the resource `name`. `missing`: what was not read of it, and why."""

    name: str
    files: Files
    missing: tuple[str, ...] = ()


Look = Callable[[Ref, int, Files], bool]
"""Called with what would be taken in: the resource, the version here that it would replace (0: none), its files.

Returns whether it may be. When not it is kept out for now, by whoever looks; raises InvalidResource when it is refused.
"""


def looked_away(ref: Ref, base: int, files: Files) -> bool:
    """Returns that whatever is sound may be taken in."""
    return True


@dataclass(slots=True)
class _Sorted:
    """The candidates so far, by what becomes of them."""

    added: list[Ref] = field(default_factory=list)
    updated: list[Ref] = field(default_factory=list)
    unchanged: list[Ref] = field(default_factory=list)
    refused: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    held: list[Ref] = field(default_factory=list)


def is_main(kind: Kind, path: str) -> bool:
    """Returns whether the file at `path` makes its folder a resource; in any case, so that a wrong one is reported."""
    folder, _, name = path.rpartition("/")
    return name.casefold() == main_file(kind, folder.rpartition("/")[2]).casefold()


def take_in(
    store: "Store",
    kind: Kind,
    scope: str,
    read: Callable[[], Iterable[Candidate]],
    reason: str,
    replace: bool,
    look: Look = looked_away,
) -> Imported:
    """Returns what became of the candidates; those that are taken in make one operation of Actor.IMPORT.

    read: gives the candidates; called again when somebody changes one of them here meanwhile. replace: a resource
    that is here with other content gets a new version; otherwise it is refused. look: may keep one out.
    """
    for attempt in range(_TRIES):
        try:
            return _try_take_in(store, kind, scope, read(), reason, replace, look)
        except (VersionConflict, Frozen):
            if attempt == _TRIES - 1:
                raise
    raise AssertionError


def _try_take_in(
    store: "Store",
    kind: Kind,
    scope: str,
    candidates: Iterable[Candidate],
    reason: str,
    replace: bool,
    look: Look,
) -> Imported:
    done = _Sorted()
    with store.transaction(Actor.IMPORT, reason) as tx:
        for candidate in candidates:
            try:
                _one(store, tx, kind, scope, candidate, replace, look, done)
            except InvalidResource as error:
                done.refused.append((candidate.name, error.problems))
    operation = tx.operation.id if tx.operation else None
    return Imported(
        operation,
        tuple(done.added),
        tuple(done.updated),
        tuple(done.unchanged),
        tuple(done.refused),
        tuple(done.held),
    )


def _one(
    store: "Store",
    tx: "Transaction",
    kind: Kind,
    scope: str,
    candidate: Candidate,
    replace: bool,
    look: Look,
    done: _Sorted,
) -> None:
    """Sorts one candidate and puts it if need be. Raises InvalidResource with every reason against it."""
    name, files = candidate.name, candidate.files
    found = refused(problems(kind, name, files), strict=True) if files else []
    stops = [*candidate.missing, *map(str, found)]
    if stops:
        raise InvalidResource(name, stops)
    ref = Ref(kind, name, scope)
    if ref in (*done.added, *done.updated, *done.unchanged, *done.held):
        raise InvalidResource(name, ["another folder of this archive has the same name"])
    head = store.head_or_none(ref)
    if head is not None and head.version is not None and manifest_of(files).tree == head.tree:
        done.unchanged.append(ref)
        return
    if head is not None and head.frozen:
        raise InvalidResource(name, ['it is frozen here (metadata evolvable: "false"); only a person may change it'])
    here = (head.version if head else None) or 0
    if here and not replace:
        raise InvalidResource(name, [f"it is here with other content (version {here}); say that it is to be replaced"])
    if not look(ref, here, files):
        done.held.append(ref)
        return
    tx.put(ref, files, expected_version=here)
    (done.updated if here else done.added).append(ref)
