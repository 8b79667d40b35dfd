"""The items of a run as evidence: an execution of the agent, and an outcome where a check has one.

Only the worker says that an unchecked item was done. If its failures alone counted, every agent
would be rated as failing. So an outcome counts where the item has a check, both ways, and where an
item that passed its check needed this one. Such an outcome is verified where a person started the
run. A worker's own report, and every outcome in a run that an agent started, is reported. A checked
item of a person's run has a vote of its own, the others of that run have one together, and so have
all runs that agents started.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from evolvable_evolve.ags.bus import AgsState, MessageKind, fold_bus, once
from evolvable_evolve.ags.judge_check import JUDGE
from evolvable_evolve.ags.workers import OWN_REFUSAL
from evolvable_evolve.evolution import LedgerRecord
from evolvable_store import Actor, Head, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage import (
    ITEM_SESSIONS,
    ClientSession,
    Execution,
    ExecutionUse,
    IngestedSession,
    Outcome,
    UsageObservation,
)
from evolvable_tools import Caller, Library
from evolvable_tools.verbs import note_load

CLIENT, TASK_TYPE = "ags", "agents"
"""The client and the task type of the sessions in which items are recorded."""

_BY_AGENTS = f"{ITEM_SESSIONS}agents"


@dataclass(frozen=True, slots=True)
class EndedItem:
    """One ended item by its messages.

    agent, skills, read: refs, those of agent and skills with versions. outcome: why it failed, ''
    where it did not. check: its name, '' without one, or where the judge was not calibrated.
    passed: the result of the check, None without one. needed: whether it was done, and an item that
    passed its check needed it.
    """

    id: str
    at: str
    agent: str
    subtask: str
    summary: str
    outcome: str
    skills: tuple[str, ...]
    read: frozenset[str]
    check: str = ""
    passed: bool | None = None
    needed: bool = False

    @property
    def counted_outcome(self) -> Outcome | None:
        """The outcome that counts as evidence, None where nothing checked the item."""
        if self.passed or self.needed:
            return Outcome.SUCCEEDED
        # A check that had trouble has no outcome. An item that failed before its check has failed.
        return Outcome.FAILED if self.check and self.outcome else None

    @property
    def tells(self) -> bool:
        """Whether a round learns something from it: it failed, or it was checked."""
        return bool(self.outcome) or self.counted_outcome is not None

    @property
    def is_observed(self) -> bool:
        """Whether the process that drove the run saw the outcome, and not the worker alone."""
        return self.outcome != OWN_REFUSAL


def item_session(run: str, item: str) -> str:
    """Return the name of the session in which an item is recorded."""
    return f"{ITEM_SESSIONS}{run}:{item}"


def ended_items(records: Iterable[LedgerRecord]) -> Iterator[EndedItem]:
    """Yield the ended items of a run, without those that never ran or failed by infrastructure.

    Items that ran under a program which the run had changed are left out too: no version of the
    library has it.
    """
    run_records = list(once(records, set()))
    state, skills = fold_bus(run_records), dict[str, tuple[str, ...]]()
    bodies = [record.get("body", {}) for record in run_records]
    changed = {body["dispatch"] for body in bodies if "item" in body and body.get("changed")}
    needed = _find_needed_by_passed(state, run_records)
    for record in run_records:
        if record["type"] != "message":
            continue
        body = record["body"]
        if record["kind"] == MessageKind.DISPATCH and "item" in body:
            skills[body["dispatch"]] = tuple(body["skills"])
        is_end = record["kind"] in (MessageKind.RESULT, MessageKind.ERROR)
        # An item that was refused before it ran has no dispatch, and says nothing of skills.
        if not is_end or "dispatch" not in body:
            continue
        if body["retry"] or body["outcome"] == "infra_error" or body["dispatch"] in changed:
            continue
        item = state.items[body["item"]]
        is_unchecked = not item.check and item.judge is None
        yield EndedItem(
            item.id,
            record["at"],
            body["agent"],
            item.subtask,
            body["summary"],
            body["outcome"],
            skills.get(body["dispatch"], ()),
            frozenset(body["read"]),
            # A judge that did not distinguish the known answers is no check.
            check=item.check or (JUDGE if body.get("calibrated") else ""),
            passed=body.get("passed"),
            needed=item.id in needed and is_unchecked and not body["outcome"],
        )


def _find_needed_by_passed(state: AgsState, records: Iterable[LedgerRecord]) -> set[str]:
    """Return the items that an item which passed its check needed, directly or through others."""
    needed = set[str]()
    bodies = [record.get("body", {}) for record in records]
    waiting = [body["item"] for body in bodies if body.get("passed") and "item" in body]
    while waiting:
        more = [need for need in state.items[waiting.pop()].needs if need not in needed]
        needed.update(more)
        waiting += more
    return needed


def record_items(library: Library, records: Iterable[LedgerRecord], only: str | None = None) -> int:
    """Record the ended items of a run as evidence; return how many records are new.

    only: the id of one item. The items that it needed are recorded again with it, as its check may
    have decided about them. An item that is recorded already changes nothing.
    """
    run_records = list(records)
    if library.store.read_only or not run_records:
        return 0
    state = fold_bus(run_records)
    ended = (
        ended_item
        for ended_item in ended_items(run_records)
        if only in (None, ended_item.id) or ended_item.needed
    )
    return sum(_record_item(library, state, ended_item) for ended_item in ended)


def _record_item(library: Library, state: AgsState, item: EndedItem) -> bool:
    scopes = tuple(state.settings["scopes"])
    agent = Ref.parse(item.agent)
    head = library.store.head_or_none(agent.at(None), scopes)
    if head is None or agent.version is None:
        return False
    session = item_session(state.run, item.id)
    by_person = state.settings["principal"] == Principal.PERSON
    link = _BY_AGENTS
    if by_person:
        # A checked item has a vote of its own; the others of the run have one together.
        link = session if item.check else f"{ITEM_SESSIONS}{state.run}"
    outcome = item.counted_outcome
    verified = by_person and outcome is not None and item.is_observed
    used = [(head, agent.version, "agent"), *_read_skills(library, scopes, item)]
    log = library.store.backend.observations
    log.add_impressions((), [ClientSession(session, link, item.at)])
    if by_person and (verified or outcome is None):
        caller = Caller(Actor.AGENT, session, scopes, connection=link)
        for used_head, version, _ in used:
            note_load(library, caller, used_head.id, version)
    digest = sha256(f"{session} {item.agent} {item.outcome} {outcome or ''}".encode()).hexdigest()
    sightings = [
        UsageObservation(used_head.id, version, item.at, True, True, (how,), outcome, state.label)
        for used_head, version, how in used
    ]
    # Without the agent, which is the execution itself.
    uses = tuple(
        ExecutionUse(used_head.id, version, item.at, True, True, (how,), outcome)
        for used_head, version, how in used[1:]
    )
    execution = Execution(
        agent.version, item.at, state.label, outcome, session, str(head.ref), head.id, 1, uses
    )
    ingested = IngestedSession(
        *(session, CLIENT, digest, 1, item.at, state.label),
        outcome if verified else None,
        task_type=TASK_TYPE,
    )
    return log.take(ingested, sightings, executions=[execution])


def _read_skills(
    library: Library, scopes: tuple[str, ...], item: EndedItem
) -> Iterator[tuple[Head, int, str]]:
    """Yield the agent's skills that the worker read, in the versions that it had."""
    for text in item.skills:
        ref = Ref.parse(text)
        head = library.store.head_or_none(ref.at(None), scopes)
        if head is not None and ref.version is not None and str(ref.at(None)) in item.read:
            yield head, ref.version, "skill"
