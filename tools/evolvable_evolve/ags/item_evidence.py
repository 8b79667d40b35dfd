"""The items of a run as evidence: an execution of its agent, and its end where a check says how it
ended.

That an item was done is only what its worker says, and a run whose failures alone counted would
rate every agent as failing. So an end counts where the item has a check, both ways, and where an
item that passed its check needed this one. Such an end is verified where a person started the run.
What a worker says of itself, and every end in a run that an agent started, is reported. A checked
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
"""The client of the sessions that items are, and their task type."""

_BY_AGENTS = f"{ITEM_SESSIONS}agents"


@dataclass(frozen=True, slots=True)
class EndedItem:
    """One item that ended, as its messages say. agent, skills, read: refs, those of agent and
    skills with versions.

    outcome: why it failed, '' where it did not. check: its name, '' without one or
    where a judge is none. passed: what it said, None for
    nothing. needed: whether an item that passed its check needed this one, which was done.
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
        # A check that had trouble says nothing; what failed before its check could run failed all
        # the same.
        return Outcome.FAILED if self.check and self.outcome else None

    @property
    def tells(self) -> bool:
        """Whether a round learns something of it: it failed, or somebody checked it."""
        return bool(self.outcome) or self.counted_outcome is not None

    @property
    def is_observed(self) -> bool:
        """Whether the process that drove the run saw the end, and not the worker alone."""
        return self.outcome != OWN_REFUSAL


def item_session(run: str, item: str) -> str:
    """Return the name of the session that an item is."""
    return f"{ITEM_SESSIONS}{run}:{item}"


def ended_items(records: Iterable[LedgerRecord]) -> Iterator[EndedItem]:
    """Yield the items that ended in a run, without those that never ran or that infrastructure
    spoiled.

    Items that ran under a program which the run had changed are left out too: no version of the
    library has it.
    """
    run_records = list(once(records, set()))
    state, skills = fold_bus(run_records), dict[str, tuple[str, ...]]()
    bodies = [record.get("body", {}) for record in run_records]
    changed = {body["dispatch"] for body in bodies if "item" in body and body.get("changed")}
    needed = _needed_by_passed(state, run_records)
    for record in run_records:
        if record["type"] != "message":
            continue
        body = record["body"]
        if record["kind"] == MessageKind.DISPATCH and "item" in body:
            skills[body["dispatch"]] = tuple(body["skills"])
        if record["kind"] not in (MessageKind.RESULT, MessageKind.ERROR) or "dispatch" not in body:
            continue  # what was refused before it ran says nothing of skills
        if body["retry"] or body["outcome"] == "infra_error" or body["dispatch"] in changed:
            continue
        item, own = (
            state.items[body["item"]],
            skills.get(body["dispatch"], ()),
        )
        description = (item.subtask, body["summary"], body["outcome"])
        # A judge that did not tell the known answers apart is no check.
        name = item.check or (JUDGE if body.get("calibrated") else "")
        unchecked = not item.check and item.judge is None
        check = (name, body.get("passed"), item.id in needed and unchecked and not body["outcome"])
        yield EndedItem(
            item.id, record["at"], body["agent"], *description, own, frozenset(body["read"]), *check
        )


def _needed_by_passed(state: AgsState, records: Iterable[LedgerRecord]) -> set[str]:
    """Return the items that an item which passed its check needed, directly or through others."""
    found = set[str]()
    bodies = [record.get("body", {}) for record in records]
    waiting = [body["item"] for body in bodies if body.get("passed") and "item" in body]
    while waiting:
        more = [need for need in state.items[waiting.pop()].needs if need not in found]
        found.update(more)
        waiting += more
    return found


def record_items(library: Library, records: Iterable[LedgerRecord], only: str | None = None) -> int:
    """Keep the ended items of a run as evidence; return how many were new. only: the id of one
    item.

    What that item needed is kept again with it: its check may have told of them. An item that is
    known as it is changes nothing.
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
    return sum(_record(library, state, ended_item) for ended_item in ended)


def _record(library: Library, state: AgsState, item: EndedItem) -> bool:
    scopes = tuple(state.settings["scopes"])
    agent = Ref.parse(item.agent)
    head = library.store.head_or_none(agent.at(None), scopes)
    if head is None or agent.version is None:
        return False
    session, by_person = (
        item_session(state.run, item.id),
        state.settings["principal"] == Principal.PERSON,
    )
    # A check is a look of its own; what was not checked has one vote with the rest of its run.
    link = (session if item.check else f"{ITEM_SESSIONS}{state.run}") if by_person else _BY_AGENTS
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
    uses = tuple(
        ExecutionUse(used_head.id, version, item.at, True, True, (how,), outcome)
        for used_head, version, how in used[1:]
    )
    execution = Execution(
        agent.version, item.at, state.label, outcome, session, str(head.ref), head.id, 1, uses
    )
    return log.take(
        IngestedSession(
            *(session, CLIENT, digest, 1, item.at, state.label),
            outcome if verified else None,
            task_type=TASK_TYPE,
        ),
        sightings,
        executions=[execution],
    )


def _read_skills(
    library: Library, scopes: tuple[str, ...], item: EndedItem
) -> Iterator[tuple[Head, int, str]]:
    """Yield the agent's skills that the worker read, in the versions that it had."""
    for text in item.skills:
        ref = Ref.parse(text)
        head = library.store.head_or_none(ref.at(None), scopes)
        if head is not None and ref.version is not None and str(ref.at(None)) in item.read:
            yield head, ref.version, "skill"
