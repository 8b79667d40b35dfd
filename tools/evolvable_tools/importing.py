"""The verbs that take resources in from elsewhere, each after a scan that may have a person look at it first."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolvable_store import archive
from evolvable_store.archive import Imported
from evolvable_store.errors import InvalidResource, Unsafe
from evolvable_store.objects import Files
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools import inbox
from evolvable_tools.library import Caller, Library
from evolvable_tools.scan.door import looked_at, told
from evolvable_tools.scan.findings import Scan


@dataclass(frozen=True, slots=True)
class TakenIn:
    """What became of an import. proposals: proposal_id -> ref, what waits for a person. warnings: what a scan found."""

    imported: Imported
    proposals: dict[int, Ref] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Looking:
    """A look at each resource. `accepted`: a person answers for all of it, so nothing is kept out."""

    library: Library
    accepted: bool
    seen: dict[Ref, tuple[int, Files, Scan]] = field(default_factory=dict)

    def hold(self, ref: Ref, base: int, files: Files) -> bool:
        """Returns whether a resource is taken in at once. Raises InvalidResource for what is refused."""
        found = self._found(ref, base, files)
        self.seen[ref] = (base, files, found)
        return self.accepted or not found.asks

    def refuse(self, ref: Ref, base: int, files: Files) -> bool:
        """Returns True. Raises InvalidResource for what is refused, and for what a person is to see first."""
        if not self.hold(ref, base, files):
            look = "look at it, then pass --accept to answer for all that this archive holds"
            raise InvalidResource(str(ref), [*told(self.seen[ref][2]), look])
        return True

    def _found(self, ref: Ref, base: int, files: Files) -> Scan:
        head = self.library.store.head_or_none(ref) if base else None
        before = self.library.store.files(head, base) if head else {}
        try:
            return looked_at(ref, before, files, Actor.HUMAN if self.accepted else Actor.IMPORT)
        except Unsafe as error:
            raise InvalidResource(str(ref), [f"scan: {finding}" for finding in error.findings]) from error


def import_folders(
    library: Library, caller: Caller, source: Path, *, accepted: bool = False, **options: Any
) -> TakenIn:
    """Takes in the folders in `source`; options and errors as in evolvable_store.archive.import_folders.

    What a scan refuses is refused with the reasons, what a person is to see first becomes a proposal. accepted: the
    caller answers for all of it; findings are only told.
    """
    return _held(
        library, caller, accepted, lambda look: archive.import_folders(library.store, source, look=look, **options)
    )


def import_zip(library: Library, caller: Caller, source: Path, *, accepted: bool = False, **options: Any) -> TakenIn:
    """Takes in a zip; options and errors as in evolvable_store.archive.import_zip, the rest as import_folders."""
    return _held(
        library, caller, accepted, lambda look: archive.import_zip(library.store, source, look=look, **options)
    )


def import_json(library: Library, source: Path, *, accepted: bool = False) -> TakenIn:
    """Takes in an archive with its histories; errors as in evolvable_store.archive.import_json.

    A history cannot be proposed: what a person is to see first is refused with the reasons, unless accepted.
    """
    looking = _Looking(library, accepted)
    imported = archive.import_json(library.store, source, look=looking.refuse)
    return TakenIn(imported, {}, _told(looking, imported))


def _held(library: Library, caller: Caller, accepted: bool, take: Callable[[archive.Look], Imported]) -> TakenIn:
    looking = _Looking(library, accepted)
    imported = take(looking.hold)
    who = Caller(Actor.IMPORT, caller.session, caller.scopes)
    proposals = {}
    for ref in imported.held:
        base, files, found = looking.seen[ref]
        identity = inbox.propose(
            library, who, ref, base, files, "imported; a scan found what a person is to see", found
        )
        proposals[identity] = ref
    return TakenIn(imported, proposals, _told(looking, imported))


def _told(looking: _Looking, imported: Imported) -> list[str]:
    taken = (*imported.added, *imported.updated)
    return [f"{ref}: {text}" for ref in taken if ref in looking.seen for text in told(looking.seen[ref][2])]
