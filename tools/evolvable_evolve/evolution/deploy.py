"""Adopt the promoted program of a run, in one operation, and watch whether it does as well in real
sessions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from evolvable_evolve.evolution.blind_answers import (
    AnswerPreferences,
    draw_blind_pairs,
    read_preferences,
)
from evolvable_evolve.evolution.candidates import (
    ChangeReview,
    Program,
    ProgramPart,
    changed_parts,
    review_change,
)
from evolvable_evolve.evolution.ledger import (
    Ledger,
    RunDirectory,
    RunState,
    iter_run_states,
    load_run,
    translate_damage,
)
from evolvable_evolve.evolution.operators import SOLUTION_MODE
from evolvable_store import PLAIN, Actor, File, Files
from evolvable_store.errors import Conflict, InvalidArgument, Refused
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.storage import Outcome
from evolvable_tools import Caller, Library, verbs, wilson_interval
from evolvable_tools.outcomes import Share
from evolvable_tools.verbs import UndoConflict, undo


class ResourceDrifted(Conflict):
    """A resource is no longer the version that the candidate was measured against."""


_WHY = (
    "`evolvable evolve report` shows why; with --unproven a person adopts what it found "
    "all the same."
)
_NOT_COMPARED = (
    "A judge scored the answers, and nobody compared them without names. `evolvable evolve adopt` "
    "at a terminal and the page show five pairs first."
)


class NotPromoted(Refused):
    """The sealed test does not say that the candidate is better."""


class BasePreferred(Refused):
    """A person who compared answers without names preferred those of the base."""


@dataclass(frozen=True)
class AdoptedChange:
    """The change of one resource by an adoption. before, after: its versions, None for none."""

    ref: str
    before: int | None
    after: int | None


@dataclass(frozen=True)
class Adoption(ChangeReview):
    """An adoption: the one operation, and its changes. back: the command that takes it back."""

    run: str
    candidate: str
    operation: int | None
    changes: list[AdoptedChange]
    back: str
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class AdoptionPreview(ChangeReview):
    """The change that an adoption would make live, for the person who decides.

    preferences: None before answers were compared.
    """

    run: str
    verdict: str
    why: str
    label: str
    candidate: str
    preferences: AnswerPreferences | None = None


@dataclass(frozen=True)
class AdoptionUndone:
    """The result of taking an adoption back."""

    run: str
    operation: int | None
    restored: list[str]
    conflicts: list[UndoConflict]


@translate_damage
def preview_adoption(home: Path, run: str | None, *, unproven: bool = False) -> AdoptionPreview:
    """Return the change that `adopt` would make live, and change nothing.

    Raises NotPromoted, NoSuchRun, and InvalidArgument for a run that has nothing to adopt.
    """
    folder, state = load_run(home, run)
    digest, base, finalist = _load_chosen_change(folder, state, unproven)
    review = review_change(base, finalist)
    verdict, why = (str(state.verdict.get(name, "")) for name in ("verdict", "why"))
    return AdoptionPreview(
        folder.id, verdict, why, state.label, digest, read_preferences(state), **asdict(review)
    )


@translate_damage
def adopt(
    library: Library,
    caller: Caller,
    run: str | None,
    reason: str = "",
    *,
    unproven: bool = False,
    base_preferred: bool = False,
) -> Adoption:
    """Make the finalist of a run live: one operation by the person who adopts, or nothing.

    unproven: also without PROMOTE, which only a person may want; the operation records it.
    base_preferred: also where the person preferred the base's answers, after this was said. Raises
    NotPromoted, BasePreferred, ResourceDrifted, NoSuchRun, LedgerBusy, Unsafe, Refused for a caller
    that is no person, and InvalidArgument for a run that has nothing to adopt.
    """
    folder, state = load_run(library.store.home, run)
    if not caller.decides:
        raise Refused("Only a person adopts.", "Tell the user about the run; its report stays.")
    library.authorise(caller, "Adopting a run")
    # An adoption that was undone by its operation may be made again.
    if state.adoption and not state.adoption.get("undone") and _is_live(library, state):
        raise InvalidArgument(
            f"Run {folder.id} was adopted already.", f"Operation {state.adoption['operation']}."
        )
    digest, base, finalist = _load_chosen_change(folder, state, unproven)
    preferences = read_preferences(state)
    if preferences is not None and preferences.doubtful and not base_preferred:
        hint = (
            "The person can adopt it all the same, by `evolvable evolve adopt` at a terminal or "
            "on the page."
        )
        raise BasePreferred(f"{preferences}: the judge may like what a person does not.", hint)
    warnings = [_NOT_COMPARED] if draw_blind_pairs(library, caller, folder.id) else []
    # The ledger first: while another process writes it, nothing is published.
    with Ledger.open(folder.ledger) as ledger:
        puts = _plan_puts(library, caller, state, base, finalist)
        adopted = _publish_puts(library, caller, folder, state, digest, puts, reason)
        record = {
            "operation": adopted.operation,
            "candidate": digest,
            "unproven": state.verdict.get("verdict") != "PROMOTE",
            "changes": [[change.ref, change.before, change.after] for change in adopted.changes],
        }
        ledger.append("adopted", record)
    review = asdict(review_change(base, finalist))
    return replace(adopted, warnings=[*warnings, *adopted.warnings], **review)


@translate_damage
def unadopt(library: Library, caller: Caller, run: str | None, reason: str = "") -> AdoptionUndone:
    """Take an adoption back: a new operation, which keeps later changes of others.

    Raises NoSuchRun, InvalidArgument for a run that was not adopted, LedgerBusy.
    """
    folder, state = load_run(library.store.home, run)
    if not state.adoption or state.adoption.get("undone"):
        raise InvalidArgument(f"Run {folder.id} is not adopted.", "There is nothing to take back.")
    with Ledger.open(folder.ledger) as ledger:
        operation = state.adoption["operation"]
        reason = reason or f"adoption of run {folder.id} taken back"
        done = undo(library, caller, reason, operation=operation)
        # Without an operation nothing was left to take back, and the adoption stays recorded.
        if done.operation is not None:
            ledger.append("unadopted", {"operation": done.operation, "undone": operation})
    return AdoptionUndone(folder.id, done.operation, done.restored, done.conflicts)


def _is_live(library: Library, state: RunState) -> bool:
    """Return whether the adopted versions are still live; anybody may have undone the operation."""
    for ref, _, after in state.adoption["changes"]:
        head = library.store.head_or_none(Ref.parse(ref))
        if (head.version if head else None) != after:
            return False
    return True


def _load_chosen_change(
    folder: RunDirectory, state: RunState, unproven: bool
) -> tuple[str, Program, Program]:
    """Return the finalist's digest, the base, and the finalist, which differ.

    Raises InvalidArgument, NotPromoted.
    """
    if state.settings.get("purpose") == "measure":
        if state.settings.get("mode") == SOLUTION_MODE:
            text = "compared answers in rounds and left the program as it is"
            hint = "Use --rounds to answer in rounds."
        else:
            text, hint = "measured what is there", "Adopt the run that found it."
        raise InvalidArgument(f"Run {folder.id} {text}: it has nothing to adopt.", hint)
    digest = _choose_digest(folder, state, unproven)
    base, finalist = folder.program(state.base), folder.program(digest)
    if not changed_parts(base, finalist):
        text = f"The finalist of run {folder.id} is what is there already: it has nothing to adopt."
        raise InvalidArgument(text, "`evolvable evolve report` shows what was tried.")
    return digest, base, finalist


def _choose_digest(folder: RunDirectory, state: RunState, unproven: bool) -> str:
    """Return the digest of the finalist. Raise NotPromoted where it may not be adopted."""
    verdict = state.verdict.get("verdict")
    # The narrower claim of a small task set is adopted like an unproven one: by a person who says
    # so.
    is_allowed = bool(state.finalist) and verdict not in ("HARMFUL", "DISQUALIFIED")
    if verdict == "PROMOTE" or (unproven and is_allowed):
        return state.finalist
    if not verdict:
        raise NotPromoted(
            f"Run {folder.id} has no verdict yet.", "`evolvable evolve status` shows how far it is."
        )
    raise NotPromoted(
        f"Run {folder.id} promotes nothing; it is {verdict}: {state.verdict['why']}", _WHY
    )


@dataclass(frozen=True, slots=True)
class _Put:
    """One resource to write. version: its present one, 0 for none. files: {} to remove it."""

    ref: Ref
    version: int
    files: Mapping[str, File]


def _plan_puts(
    library: Library, caller: Caller, state: RunState, base: Program, finalist: Program
) -> list[_Put]:
    """Return the resources to write. Raises ResourceDrifted when one is not as it was evaluated."""
    pins = {pin["ref"]: pin for pin in state.settings["program"]}
    refs = [ref.within(ref.scope or USER_SCOPE) for ref in map(Ref.parse, pins)]
    by_part = {f"{ref.kind}:{ref.name}": ref for ref in refs}
    puts, drifted = list[_Put](), list[str]()
    # Saved files become versions first, so that a person's edit counts as drift.
    library.take_in(by_part.values())
    for name in changed_parts(base, finalist):
        kind, _, own = name.partition(":")
        ref = by_part.get(name) or Ref(Kind(kind), own, caller.scopes[0])
        head = library.store.head_or_none(ref)
        now = (head.version if head else None) or 0
        pin = pins.get(str(ref))
        # By the tree and not by the number: a version that was undone and restored has the same
        # content.
        if (head.tree if head and now else "") != (pin["tree"] if pin else ""):
            was = f"version {pin['version']}" if pin else "nothing"
            present = f"version {now}" if now else "not there"
            drifted.append(f"{ref} (measured against {was}, now {present})")
        before = library.store.files(head) if head and now else {}
        puts.append(_Put(ref, now, _put_files(finalist.by_ref.get(name), before)))
    if drifted:
        hint = (
            "Start a new run from what there is now; the candidate of this one stays in its report."
        )
        raise ResourceDrifted(f"The library is not what was evaluated: {'; '.join(drifted)}.", hint)
    return puts


def _publish_puts(
    library: Library,
    caller: Caller,
    folder: RunDirectory,
    state: RunState,
    digest: str,
    puts: Sequence[_Put],
    reason: str,
) -> Adoption:
    """Write the resources in one operation, or none of them, and return the adoption."""
    candidate, verdict = state.candidates[digest], state.verdict
    why = reason or f"evolution {folder.id}: {candidate.summary or candidate.name}"
    summary = f"{verdict.get('verdict', 'no verdict')}: {verdict.get('why', '')} [{state.label}]"
    evolution = Caller(Actor.EVOLUTION, caller.session, caller.scopes)
    # As proposals first: the scan can refuse them here, and the history names evolution as author.
    ids = [verbs.propose(library, evolution, put.ref, put.version, put.files, why) for put in puts]
    proposals = [f"proposal {id_} by evolution" for id_ in ids]
    try:
        evidence = [f"evolution run {folder.id}", summary, f"program {digest}", *proposals]
        # One transaction for all resources: a program is measured as a whole, and half of it was
        # never measured.
        with library.transaction(caller, why, evidence=evidence, sign=True) as tx:
            tx.decision = "adopt"
            for put, proposal in zip(puts, ids, strict=True):
                if not put.files:
                    tx.remove(put.ref, expected_version=put.version)
                else:
                    tx.put(put.ref, put.files, expected_version=put.version)
                    tx.bind_new([] if put.version else library.working_copies.free_places(put.ref))
                tx.approve(proposal, why)
    # The proposals of a failed adoption must not wait in the inbox.
    except BaseException:
        for id_ in ids:
            verbs.reject(library, id_, "the adoption failed", evolution)
        raise
    written = zip(tx.written, puts, strict=True)
    changes = [
        AdoptedChange(str(write.ref), put.version or None, write.version) for write, put in written
    ]
    # After the transaction: working copies are written from the versions that it made.
    warnings = [
        line
        for write in tx.written
        if write.changed
        for line in library.checkout([write.ref], created=write.version == 1)
    ]
    operation = tx.operation.id if tx.operation else None
    undo_command = f"evolvable evolve adopt --undo {folder.id}"
    return Adoption(folder.id, digest, operation, changes, undo_command, warnings)


def _put_files(part: ProgramPart | None, before: Files) -> dict[str, File]:
    """Return the files of a part; files that were there before keep their mode."""
    if part is None:
        return {}
    modes = {path: file.mode for path, file in before.items()}
    return {path: File(data, modes.get(path, PLAIN)) for path, data in part.files.items()}


MIN_KNOWN_ENDS = 5
"""Rated uses of a version below which it is not compared."""

_KNOWN_ENDS = (Outcome.SUCCEEDED, Outcome.PARTIAL, Outcome.FAILED)


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """Comparison of one adopted resource: the version before and the one after.

    verdict: worse, better or open.
    """

    ref: str
    before: Share
    after: Share
    verdict: str


@dataclass(frozen=True)
class MonitoredAdoption:
    """One adoption under watch.

    proposals: those that would take it back, which wait for a person.
    """

    run: str
    operation: int
    compared: list[VersionComparison]
    verdict: str
    proposals: list[int] = field(default_factory=list)


@translate_damage
def monitor_adoptions(
    library: Library, caller: Caller, *, propose: bool = True
) -> list[MonitoredAdoption]:
    """Compare every adoption with the version before it, and propose once to take back a worse one.

    A version is worse where its interval lies wholly below that of the other. Raises LedgerBusy.
    """
    monitored = []
    for folder, state in iter_run_states(library.store.home):
        adoption = state.adoption
        if not adoption or adoption.get("undone"):
            continue
        changes = [(Ref.parse(ref), before, after) for ref, before, after in adoption["changes"]]
        compared = [
            comparison
            for change in changes
            if (comparison := _compare_versions(library, *change)) is not None
        ]
        verdicts = {comparison.verdict for comparison in compared}
        verdict = "better" if verdicts == {"better"} else "open"
        if "worse" in verdicts:
            verdict = "worse"
        # Proposed once: a person who rejected it is not asked again.
        proposals = list(state.watched.get("proposals", ()))
        if verdict == "worse" and propose and not proposals:
            proposals = _propose_rollback(library, caller, folder, adoption["operation"], compared)
        operation = adoption["operation"]
        monitored.append(MonitoredAdoption(folder.id, operation, compared, verdict, proposals))
    return monitored


def _compare_versions(
    library: Library, ref: Ref, before: int | None, after: int | None
) -> VersionComparison | None:
    head = library.store.head_or_none(ref)
    if head is None or before is None or after is None:
        return None  # a new resource has nothing to compare with, and a removed one is not used
    every = library.store.backend.evidence.list_attempts([head.id], versions=True)
    ends = [
        (attempt.version, attempt.outcome)
        for attempt in every
        if attempt.used and attempt.outcome in _KNOWN_ENDS
    ]
    old, new = (
        _count_successes([end for used_version, end in ends if used_version == version])
        for version in (before, after)
    )
    verdict = "open"
    if old.n >= MIN_KNOWN_ENDS and new.n >= MIN_KNOWN_ENDS:
        if new.high < old.low:
            verdict = "worse"
        elif new.low > old.high:
            verdict = "better"
    return VersionComparison(str(ref), old, new, verdict)


def _count_successes(outcomes: Sequence[Outcome | None]) -> Share:
    succeeded = outcomes.count(Outcome.SUCCEEDED)
    return Share(succeeded, len(outcomes), *wilson_interval(succeeded, len(outcomes)))


def _propose_rollback(
    library: Library,
    caller: Caller,
    folder: RunDirectory,
    operation: int,
    compared: Sequence[VersionComparison],
) -> list[int]:
    worse = "; ".join(
        f"{comparison.ref}: now {comparison.after}, before {comparison.before}"
        for comparison in compared
        if comparison.verdict == "worse"
    )
    watcher = Caller(Actor.EVOLUTION, caller.session, caller.scopes)
    reason = f"adoption of run {folder.id} does worse in sessions: {worse}"
    proposed = verbs.propose_undo(library, watcher, reason, operation=operation).proposal_ids
    with Ledger.open(folder.ledger) as ledger:
        # After the proposals: a kill in between leads to a second proposal, and not to none.
        ledger.append("watched", {"proposals": proposed, "why": worse})
    return proposed
