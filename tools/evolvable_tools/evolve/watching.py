"""The canary watch: whether what was adopted does as well in real sessions as what it replaced."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage.evidence import Outcome, list_attempts
from evolvable_tools.evolve.damaged import reads_run
from evolvable_tools.evolve.driving import states
from evolvable_tools.evolve.ledger import Ledger
from evolvable_tools.evolve.run_folder import RunFolder
from evolvable_tools.library import Caller, Library
from evolvable_tools.metrics import wilson_interval
from evolvable_tools.verbs import proposal_inbox

ENOUGH = 5
"""Ends of a version below which it is compared with nothing."""

_ENDS = (Outcome.SUCCEEDED, Outcome.PARTIAL, Outcome.FAILED)


@dataclass(frozen=True, slots=True)
class Ends:
    """So many successes among n known ends, with Wilson's 95 % interval."""

    successes: int
    n: int
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.successes} of {self.n} ({self.low:.0%} to {self.high:.0%})"


@dataclass(frozen=True, slots=True)
class Compared:
    """One adopted resource: how the version before and the one after did. verdict: worse, better or open."""

    ref: str
    before: Ends
    after: Ends
    verdict: str


@dataclass(frozen=True)
class Watched:
    """One adoption under watch. proposals: those that would take it back, which wait for a person."""

    run: str
    operation: int
    compared: list[Compared]
    verdict: str
    proposals: list[int] = field(default_factory=list)


@reads_run
def watch(library: Library, caller: Caller, *, propose: bool = True) -> list[Watched]:
    """Compares every adoption with what was there before, and proposes to take back what is surely worse, once.

    Worse is what lies wholly below, by the intervals of both. Raises LedgerBusy.
    """
    found = []
    for folder, state in states(library.store.home):
        adoption = state.adoption
        if not adoption or adoption.get("undone"):
            continue
        changes = [(Ref.parse(ref), before, after) for ref, before, after in adoption["changes"]]
        compared = [one for change in changes if (one := _compared(library, *change)) is not None]
        verdicts = {one.verdict for one in compared}
        verdict = "worse" if "worse" in verdicts else "better" if verdicts == {"better"} else "open"
        proposals = list(state.watched.get("proposals", ()))
        if verdict == "worse" and propose and not proposals:
            proposals = _roll_back(library, caller, folder, adoption["operation"], compared)
        found.append(Watched(folder.id, adoption["operation"], compared, verdict, proposals))
    return found


def _compared(library: Library, ref: Ref, before: int | None, after: int | None) -> Compared | None:
    head = library.store.head_or_none(ref)
    if head is None or before is None or after is None:
        return None  # what is new is compared with nothing, and what is gone is not used
    every = list_attempts(library.store.backend, [head.id], versions=True)
    ends = {
        version: [one.outcome for one in every if one.used and one.version == version and one.outcome in _ENDS]
        for version in (before, after)
    }
    old, new = (_ends(ends[version]) for version in (before, after))
    verdict = "open"
    if old.n >= ENOUGH and new.n >= ENOUGH:
        verdict = "worse" if new.high < old.low else "better" if new.low > old.high else "open"
    return Compared(str(ref), old, new, verdict)


def _ends(outcomes: Sequence[Outcome | None]) -> Ends:
    successes = outcomes.count(Outcome.SUCCEEDED)
    return Ends(successes, len(outcomes), *wilson_interval(successes, len(outcomes)))


def _roll_back(
    library: Library, caller: Caller, folder: RunFolder, operation: int, compared: Sequence[Compared]
) -> list[int]:
    said = "; ".join(f"{one.ref}: now {one.after}, before {one.before}" for one in compared if one.verdict == "worse")
    watcher = Caller(Actor.EVOLUTION, caller.session, caller.scopes)
    reason = f"adoption of run {folder.id} does worse in sessions: {said}"
    proposed = proposal_inbox.propose_undo(library, watcher, reason, operation=operation).proposal_ids
    with Ledger.open(folder.ledger) as ledger:
        ledger.append("watched", {"proposals": proposed, "why": said})
    return proposed
