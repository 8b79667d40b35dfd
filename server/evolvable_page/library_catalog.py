"""All resources of a library as lines, for orders that the index does not have, and the resources
that a form chose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import methodcaller

from evolvable_page.site import PageRequest
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind, Ref
from evolvable_tools import Caller, Library
from evolvable_tools.verbs import MAX_PAGE, ListedResource, list_resources

CHANGES = 10_000
"""Changes that are read at once."""

RANKED = ("used", "helped", "changed")
"""Orders that go by a rank and not by the name."""


@dataclass(frozen=True)
class CatalogLine:
    """One resource of the list. operation: the last that changed it, 0 where that was not read."""

    resource: ListedResource
    operation: int

    @cached_property
    def ref(self) -> Ref:
        """The resource."""
        return Ref.parse(self.resource.ref)

    @cached_property
    def words(self) -> str:
        """The text that the filter searches."""
        return f"{self.resource.ref} {self.resource.description}".casefold()

    def rank(self, sort: str) -> tuple[float, int]:
        """Return where the line stands in an order; the highest comes first."""
        resource = self.resource
        if sort == "used":
            return resource.uses, self.operation
        if sort == "helped":
            # With few uses a share says little: one success of one use ranks below nine of ten.
            rated = resource.rated or 0
            weighted = (resource.success or 0.0) * rated / (rated + 2) if rated else -1.0
            return weighted, resource.uses
        return self.operation, resource.uses


def read_catalog(library: Library, caller: Caller) -> Mapping[str, Sequence[CatalogLine]]:
    """Return all resources that a person sees, in each order; under '' by name."""
    lines = _read_lines(library, caller)
    # Sorted here, beside the page, and not at each request.
    ranked = {sort: sorted(lines, key=methodcaller("rank", sort), reverse=True) for sort in RANKED}
    return {"": lines, **ranked}


def _read_lines(library: Library, caller: Caller) -> list[CatalogLine]:
    changed: dict[str, int] = {}
    sequence = 0
    while changes := library.store.changes(sequence, CHANGES):
        changed |= {str(change.ref): change.operation for change in changes}
        sequence = changes[-1].sequence
    lines: list[CatalogLine] = []
    cursor: str | None = None
    while True:
        page = list_resources(library, caller, limit=MAX_PAGE, cursor=cursor)
        lines += [
            CatalogLine(resource, changed.get(resource.ref, 0)) for resource in page.resources
        ]
        cursor = page.next_cursor
        if cursor is None:
            return lines


def check_kind(text: str) -> Kind | None:
    """Return the kind that a field names, None for an empty field. Raise InvalidArgument."""
    if not text:
        return None
    if text not in {kind.value for kind in Kind}:
        raise InvalidArgument(f"{text[:40]!r} is no kind.", f"There is {', '.join(Kind)}.")
    return Kind(text)


def read_picked(request: PageRequest) -> list[tuple[Ref, int | None]]:
    """Return the chosen resources of a form, each with the version that it showed.

    Raise InvalidArgument for none.
    """
    refs = [Ref.parse(text) for text in request.fields.get("pick", ())]
    if not refs:
        raise InvalidArgument(
            "Nothing is chosen.", "Go back, and choose resources by the boxes before their names."
        )
    return [(ref.at(None), ref.version) for ref in refs]
