"""A person's decision whether a candidate may run where no sandbox keeps it in."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolvable_store.errors import InvalidArgument, Refused
from evolvable_tools.evolve.change_review import review_change
from evolvable_tools.evolve.damaged import reads_run
from evolvable_tools.evolve.driving import state_of
from evolvable_tools.evolve.ledger import Ledger
from evolvable_tools.evolve.run_folder import RunFolder, the_run
from evolvable_tools.evolve.run_state import RunState
from evolvable_tools.library import Caller


@dataclass(frozen=True)
class Held:
    """A candidate that a person has to see before it runs. diff: against the base, whole."""

    run: str
    candidate: str
    program: str
    why: str
    diff: str
    capabilities: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Allowed:
    """What a person decided about a candidate."""

    run: str
    candidate: str
    allowed: bool


@reads_run
def held(home: Path, run: str | None, candidate: str | None = None) -> Held:
    """Return the candidate of a run that waits for a person. Raises NoSuchRun, InvalidArgument when none does."""
    folder = the_run(home, run)
    state = state_of(folder)
    record = _waiting(folder, state, candidate)
    review = review_change(folder.program(state.base), folder.program(record["candidate"]))
    return Held(
        folder.id,
        record["name"],
        record["candidate"],
        record["why"],
        review.diff,
        review.capabilities,
        review.findings,
    )


@reads_run
def decide(caller: Caller, home: Path, what: Held, *, allowed: bool, via: str) -> Allowed:
    """Record what a person decided; somebody has to drive the run on then. via: how they were asked.

    Raises Refused for anybody but a person, LedgerBusy, InvalidArgument when the candidate does not wait any more.
    """
    if not caller.decides:
        raise Refused("Only a person decides whether a candidate runs without a sandbox.", "Ask the user.")
    folder = the_run(home, what.run)
    with Ledger.open(folder.ledger) as ledger:
        record = _waiting(folder, state_of(folder), what.candidate)
        fields: dict[str, Any] = {"candidate": record["candidate"], "name": record["name"], "allowed": allowed}
        ledger.append("allowed", {**fields, "via": via})
    return Allowed(folder.id, what.candidate, allowed)


def _waiting(folder: RunFolder, state: RunState, candidate: str | None) -> Any:
    waits = state.waits_for_person
    found = [one for one in waits if candidate in (None, one["name"], one["candidate"])]
    if len(found) != 1:
        names = ", ".join(one["name"] for one in waits) or "none"
        which = f"{ascii(candidate[:40])} of run {folder.id} does not wait" if candidate else "Nothing of it waits"
        raise InvalidArgument(f"{which} for a person.", f"Candidates that do: {names}.")
    return found[0]
