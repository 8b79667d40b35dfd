"""What an older library's evidence was worth before it was graded, and what it is worth now."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from evolvable_store.storage.attestations import list_authors
from evolvable_store.storage.evidence import SuccessCounts, UngradedEvidence, count_successes
from evolvable_tools.library import Library
from evolvable_tools.measures.maturity import earned, maturity_of
from evolvable_tools.measures.wilson import lower_bound
from evolvable_tools.trust import CARRIED, Trust, trusts

_LEVELS = ("Budding", "Growing", "Mature", "Proficient")

MOST = 20
"""Resources that are named."""


@dataclass(frozen=True, slots=True)
class Fallen:
    """A resource that stands lower than before. ends: those that counted before; verified: those that are verified now.

    trust_before is trust where only the maturity fell.
    """

    ref: str
    maturity_before: str
    maturity: str
    trust_before: str
    trust: str
    ends: int
    verified: int

    @property
    def text(self) -> str:
        """What a person is told of it, in one line."""
        changes = [(self.maturity_before, self.maturity), (self.trust_before, self.trust)]
        said = [f"{before} -> {now}" for before, now in changes if before != now]
        return f"{self.ref}: {', '.join(said)} ({self.ends} ends counted before, {self.verified} are verified)"


def fallen(library: Library, *, unsaid: bool = False) -> list[Fallen]:
    """Return what stands lower than before evidence was graded. unsaid: only if no command has told of it yet."""
    rows = library.evidence.regraded(unsaid=unsaid)
    if not rows:
        return []
    whole = {row.resource: row for row in rows if row.version == 0}
    backend = library.store.backend
    heads = {head.id: head for head in backend.heads_by_id(whole).values() if head.version is not None}
    now, trust, proven = count_successes(backend, heads), trusts(library, heads), _proven_before(library, rows)
    found = []
    for resource, head in sorted(heads.items(), key=lambda item: str(item[1].ref)):
        proof, before = now.get(resource, SuccessCounts()), whole[resource]
        one = Fallen(
            str(head.ref),
            maturity_of(before.successes, before.ends),
            earned(proof.verified_successes, proof.verified, proof.ends),
            Trust.PROVEN if trust[resource] is Trust.AGENT and resource in proven else trust[resource],
            trust[resource],
            before.ends,
            proof.verified,
        )
        if _LEVELS.index(one.maturity) < _LEVELS.index(one.maturity_before) or one.trust != one.trust_before:
            found.append(one)
    return found


def _proven_before(library: Library, rows: Sequence[UngradedEvidence]) -> set[int]:
    """Return the resources whose newest content had evidence that vouched for it before."""
    known = list_authors(library.store.backend, {row.resource for row in rows})
    versions = {resource: {author.version for author in made} for resource, made in known.items()}
    ends: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        if row.version in versions.get(row.resource, ()):
            ends[row.resource][0] += row.successes
            ends[row.resource][1] += row.ends
    return {resource for resource, (successes, all_of) in ends.items() if lower_bound(successes, all_of) >= CARRIED}


def lines(found: Sequence[Fallen]) -> list[str]:
    """Return what a person is told: why, then each resource."""
    count = f"{len(found)} resources stand" if len(found) > 1 else "1 resource stands"
    more = [f"{len(found) - MOST} more; `evolvable stats` shows every resource"] if len(found) > MOST else []
    return [
        f"Evidence now counts only where this library served the version, and only verified ends prove; {count} lower:",
        *(one.text for one in found[:MOST]),
        *more,
    ]
