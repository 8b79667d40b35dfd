"""Give watched folders and their resources another scope.

A resource that only these folders hold gets the new scope, and keeps its history and its evidence.
One that other folders hold too stays as it is, and these folders get a resource of their own with
the same history.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from evolvable_store.operation import Actor, Head, Intent, Principal
from evolvable_store.resource import MAX_NAME, Kind, Ref, slugify
from evolvable_store.storage import Binding, ReplayStep, WatchedFolder, Writer
from evolvable_store.store import Store
from evolvable_store.transaction import rename, replay

MAX_VERSIONS = 100_000
"""Versions of a resource that are copied into another scope."""


@dataclass(slots=True)
class ScopeChange:
    """The results of a change of scope.

    renamed: the names before and after. copied: the same of resources that also stay where they
    were.
    """

    scope: str
    renamed: list[tuple[Ref, Ref]] = field(default_factory=list)
    copied: list[tuple[Ref, Ref]] = field(default_factory=list)

    @property
    def names(self) -> list[tuple[Ref, Ref]]:
        """All names before and after."""
        return [*self.renamed, *self.copied]


def change_scope(
    store: Store, folders: Sequence[WatchedFolder], scope: str, *, keep: bool = False
) -> ScopeChange:
    """Give these folders and their resources another scope; see the module.

    keep: copy all resources, as in a library where folders on other machines may hold them. Raises
    LibraryBusy, LibraryReadOnly, VersionConflict when a resource changed meanwhile; then it can be
    done again.
    """
    done = ScopeChange(scope)
    heads, own = _find_held_resources(store, folders)
    names = _choose_names(store, folders, heads, scope)
    # An attempt before this one may have named them, and ended before the folders had their scope.
    heads = {number: head for number, head in heads.items() if head.ref != names[number]}
    candidates = [head for head in heads.values() if head.id in own and not keep]
    moving = [head for head in candidates if not _is_signed(store, head)]
    others = [head for head in heads.values() if head not in moving]
    copies = {head.id: _copy(store, head, names[head.id]) for head in others}
    done.renamed = [(head.ref, names[head.id]) for head in moving]
    done.copied = [(head.ref, names[head.id]) for head in others]

    def finish(writer: Writer) -> None:
        for folder in folders:
            for old, new in copies.items():
                writer.rebind(folder.id, old, new)
            writer.rescope_folder(folder.id, scope)

    # After the copies: if this fails, they are found by their hash and used again.
    new_names = [(head, names[head.id]) for head in moving]
    rename(store.backend, _make_intent(store, scope), new_names, finish)
    # Last, when the folders hold the copies: the originals are removed, and keep their history.
    for head in others:
        if head.id in own and not keep and head.version is not None:
            with store.transaction(Actor.HUMAN, f"belongs to the project {scope}") as tx:
                tx.remove(head.ref, expected_version=head.version)
    return done


def _find_held_resources(
    store: Store, folders: Sequence[WatchedFolder]
) -> tuple[dict[int, Head], set[int]]:
    """Return the heads of the resources in these folders, and the ids of those only they hold."""
    bindings, ours = store.backend.bindings, {folder.id for folder in folders}
    resources = {binding.resource for binding in _list_bindings(store, folders)}
    elsewhere = {
        binding.resource
        for binding in bindings.of_resources(resources)
        if binding.folder not in ours
    }
    return store.backend.heads_by_id(resources), resources - elsewhere


def _choose_names(
    store: Store, folders: Sequence[WatchedFolder], heads: dict[int, Head], scope: str
) -> dict[int, Ref]:
    """Return the new name of each resource.

    A number that made its name unique in the old scope is dropped.
    """
    used: set[tuple[Kind, str]] = set()
    refs: dict[int, Ref] = {}
    for binding in _list_bindings(store, folders):
        head = heads.get(binding.resource)
        if head is None or head.id in refs:
            continue
        directory_name = slugify(binding.directory.rpartition("/")[2].removesuffix(".md"))
        # `pdf-2` was only needed beside another `pdf` of the old scope.
        is_numbered = re.fullmatch(rf"{re.escape(directory_name)}-\d+", head.name)
        plain = directory_name if is_numbered else head.name
        name = next(
            name
            for name in _generate_names(plain)
            if (head.kind, name) not in used and _is_free(store, head, name, scope)
        )
        used.add((head.kind, name))
        refs[head.id] = Ref(head.kind, name, scope)
    return refs


def _list_bindings(store: Store, folders: Iterable[WatchedFolder]) -> Iterator[Binding]:
    for folder in folders:
        yield from store.backend.bindings.of_folder(folder).values()


def _generate_names(name: str) -> Iterator[str]:
    yield name
    for number in count(2):
        end = f"-{number}"
        yield f"{name[: MAX_NAME - len(end)].rstrip('-')}{end}"


def _is_free(store: Store, head: Head, name: str, scope: str) -> bool:
    """Return whether a name is free, or holds the copy that an attempt before this one made."""
    existing = store.head_or_none(Ref(head.kind, name, scope))
    # The hash covers the whole history, so an equal one is the copy.
    return existing is None or existing.hash == head.hash


def _is_signed(store: Store, head: Head) -> bool:
    """Return whether an operation on a resource is signed."""
    # A signature covers the name of the resource, so such a resource is copied and not renamed.
    operations = {change.operation for change in store.backend.changes_to(head.id, 0)}
    return bool(store.backend.attestations.signed_operations(operations))


def _copy(store: Store, head: Head, ref: Ref) -> int:
    """Make a resource with the history of another one, and return its id."""
    existing = store.head_or_none(ref)
    if existing is None:
        replay(
            store.backend,
            _read_history(store, head, ref),
            lambda writer, _: _copy_authors(writer, head, ref),
        )
        existing = store.head_or_none(ref) or store.head(ref)
    return existing.id


def _copy_authors(writer: Writer, head: Head, ref: Ref) -> None:
    copied_head = writer.head(ref.kind, ref.scope or "", ref.name)
    if copied_head is not None:
        writer.copy_authors(head.id, copied_head.id)


def _read_history(store: Store, head: Head, ref: Ref) -> Iterator[tuple[Intent, list[ReplayStep]]]:
    versions = store.backend.versions(head.id, MAX_VERSIONS)
    for version in reversed(versions):
        frozen = head.frozen and version.number == head.latest
        manifest = store.manifest(head, version.number)
        step = ReplayStep(ref, version.number, version.number, version.hash, frozen, manifest)
        yield store.operation(version.operation).intent, [step]
    # The resource is removed, or points at an older version: one more step repeats that.
    if head.version != head.latest:
        last = ReplayStep(ref, head.version, head.latest, head.hash, head.frozen)
        yield _make_intent(store, ref.scope or ""), [last]


def _make_intent(store: Store, scope: str) -> Intent:
    return Intent(
        store.now(),
        Actor.HUMAN,
        f"a project of its own: {scope}",
        None,
        (),
        (),
        Principal.UNKNOWN,
        "projects",
    )
