"""Whether the name of something new can be taken for a name that the library has (UTS 39)."""

from dataclasses import replace

from evolvable_store import Store
from evolvable_store.resource import Kind, Ref, skeleton
from evolvable_tools.scan import Finding, FindingSeverity, Scan, order_findings


class NameIndex:
    """The names of one library, by what they look like.

    It is made again after a change of the library.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sequence = -1
        self._refs: dict[str, dict[str, Ref]] = {}

    def twin(self, ref: Ref) -> Ref | None:
        """Return a resource of any kind and scope whose other name looks like this one, None where
        there is none.
        """
        # The names of the usual memories are fixed, and no search offers a memory.
        if ref.kind is Kind.MEMORY:
            return None
        sequence = self._store.sequence()
        if sequence != self._sequence:
            refs: dict[str, dict[str, Ref]] = {}
            for head in self._store.heads():
                refs.setdefault(skeleton(head.name), {}).setdefault(head.name, head.ref)
            self._sequence, self._refs = sequence, refs
        alike = self._refs.get(skeleton(ref.name), {})
        return next((other for name, other in alike.items() if name != ref.name), None)

    def add_to(self, found: Scan, ref: Ref) -> Scan:
        """Return what a scan of something new found, and what its name looks like."""
        twin = self.twin(ref)
        if twin is None:
            return found
        why = f"its name can be taken for that of {twin}"
        hint = "Compare the letters of both, or give it another name."
        finding = Finding("name.lookalike", FindingSeverity.MEDIUM, "", 0, str(ref), why, hint)
        return replace(found, findings=order_findings([*found.findings, finding]))
