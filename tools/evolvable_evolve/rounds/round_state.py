"""The state of rounds: a fold over the records of `round.jsonl`.

A round that was killed goes on from it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evolvable_evolve.evolution import LedgerRecord, read_ledger, translate_damage
from evolvable_evolve.rounds.traces import RoundTrace, failure_key
from evolvable_tools import Library, wilson_interval

LEDGER = "round.jsonl"
"""The ledger, in the library's home. It holds no text of a session."""

MAX_UNASKED = 100
"""Traces that wait for a model from one round to the next, the newest."""

MAX_SEEN = 20_000
"""Sessions that are remembered as seen."""

# Bounds the state, which is in memory during a round; older changes have decided long ago.
MAX_REMEMBERED = 200
"""Changes, and diagnoses for a change of agents, that are remembered, the newest."""

REMEMBERED = 4
"""Sessions that are remembered of a procedure; two make it a pattern."""


@dataclass(slots=True)
class RoundState:
    """The state of all rounds so far. Only `fold_rounds` makes it.

    number: of the last round; running: whether it is unfinished. source: what it is over,
    `sessions` or `run:ID`. seen: sessions and trials that a round was over. traces: of the running
    round. question_records, evolved: its records, by trace and by cluster; pruned: its record of
    removals. stopped: why it asks no model any more. failures, procedures: of all rounds. suspects:
    clusters that the round before changed, where its sessions then went worse. changed: clusters
    that the last finished round changed. success: its verified sessions and successes. handoffs:
    diagnoses for a change of agents. unasked: traces that no model was asked about yet; again:
    those of them that this round takes up. prunes: skills that were proposed to go, each with its
    verified uses then. trials: by id, the state and the looks that were recorded. repairs: changes
    of skills after failures, with the task types that they are for. restructured: the record of
    agents of the running round. agent_changes: those that rounds proposed; agent_looks: how often
    the gate looked at sessions.
    """

    number: int = 0
    running: bool = False
    source: str = ""
    seen: dict[str, None] = field(default_factory=dict)
    sessions: tuple[str, ...] = ()
    traces: list[Mapping[str, Any]] = field(default_factory=list)
    learned: bool = False
    question_records: dict[str, LedgerRecord] = field(default_factory=dict)
    stopped: str = ""
    evolved: dict[str, LedgerRecord] = field(default_factory=dict)
    pruned: LedgerRecord | None = None
    has_looked: bool = False
    failures: Counter[str] = field(default_factory=Counter)
    procedures: dict[str, list[str]] = field(default_factory=dict)
    suspects: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    success: tuple[int, int] = (0, 0)
    handoffs: list[Mapping[str, Any]] = field(default_factory=list)
    unasked: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    prunes: dict[str, int] = field(default_factory=dict)
    trials: dict[str, tuple[str, int]] = field(default_factory=dict)
    repairs: list[Mapping[str, Any]] = field(default_factory=list)
    restructured: LedgerRecord | None = None
    agent_changes: list[Mapping[str, Any]] = field(default_factory=list)
    agent_looks: int = 0

    def plain(self) -> dict[str, Any]:
        """Return the state without times, for comparison."""

        def strip(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: strip(child) for key, child in value.items() if key != "at"}
            return [strip(child) for child in value] if isinstance(value, list | tuple) else value

        return {name: strip(getattr(self, name)) for name in self.__dataclass_fields__}


@translate_damage
def fold_rounds(records: Iterable[LedgerRecord]) -> RoundState:
    """Return the state after these records. Raises LedgerDamaged for what no round writes."""
    state = RoundState()
    for record in records:
        apply_record(state, record)
    return state


def apply_record(state: RoundState, record: LedgerRecord) -> None:
    """Take the step of one record."""
    _APPLY[record["type"]](state, record)


def _begin(state: RoundState, record: LedgerRecord) -> None:
    state.number, state.running, state.source = int(record["number"]), True, str(record["source"])
    state.sessions = tuple(record["sessions"])
    # Counted by the round before already, so their failures must not count twice.
    state.again = state.unasked
    state.seen.update(dict.fromkeys(state.sessions))
    # The oldest go first: their transcripts are the first that clients delete.
    while len(state.seen) > MAX_SEEN:
        del state.seen[next(iter(state.seen))]
    state.traces, state.learned, state.question_records, state.stopped = [], False, {}, ""
    state.evolved, state.pruned, state.has_looked, state.unasked = {}, None, False, ()
    state.restructured = None


def _learn(state: RoundState, record: LedgerRecord) -> None:
    state.traces, state.learned = list(record["retained"]), True
    state.failures.update(record["failures"])
    for procedure, sessions in record["procedures"].items():
        merged = {*state.procedures.get(procedure, ()), *sessions}
        state.procedures[procedure] = sorted(merged)[:REMEMBERED]


def _ask(state: RoundState, record: LedgerRecord) -> None:
    state.question_records[record["trace"]] = record
    if record["sign"] == "F":
        names = ("trace", "cluster", "cause", "agent", "task_type", "better")
        handoff = {name: record.get(name, "") for name in names}
        state.handoffs = [*state.handoffs, handoff][-MAX_REMEMBERED:]


def _stop(state: RoundState, record: LedgerRecord) -> None:
    state.stopped = str(record["why"])


def _evolve(state: RoundState, record: LedgerRecord) -> None:
    state.evolved[record["cluster"]] = record
    ids = {"trial": record.get("trial"), "proposal": record.get("proposal_id")}
    if not record.get("ref") or not any(identity is not None for identity in ids.values()):
        return
    # A change after a success repairs nothing: only diagnoses of failures make it a repair.
    types = sorted(
        {
            question["task_type"]
            for question in state.question_records.values()
            if question["cluster"] == record["cluster"] and question["sign"] == "A-"
        }
    )
    if types:
        repair = {"number": state.number, "ref": record["ref"], "task_types": types, **ids}
        state.repairs = [*state.repairs, repair][-MAX_REMEMBERED:]


def _prune(state: RoundState, record: LedgerRecord) -> None:
    state.pruned = record
    state.prunes |= {
        removal["ref"]: int(removal["verified"])
        for removal in record["proposed"]
        if removal["proposal"] is not None
    }


def _look(state: RoundState, record: LedgerRecord) -> None:
    state.has_looked = True
    state.trials |= {
        str(trial["trial"]): (str(trial["state"]), int(trial["looks"]))
        for trial in record["trials"]
    }


def _restructure(state: RoundState, record: LedgerRecord) -> None:
    state.restructured = record
    state.agent_looks += bool(record["looked"])
    if record["proposal_id"] is not None:
        change = {
            "number": state.number,
            "looks": state.agent_looks,
            "proposal": record["proposal_id"],
            "key": record["key"],
            "ref": record["ref"],
            "op": record["edit"]["op"],
            "agents": record["edit"]["agents"],
        }
        state.agent_changes = [*state.agent_changes, change][-MAX_REMEMBERED:]


def _end(state: RoundState, record: LedgerRecord) -> None:
    successes, n = record["success"]
    # Compared with the round before: what changed in it is the first suspect.
    fell = fell_by_more_than_noise(state.success, (successes, n))
    state.suspects = state.changed if fell else ()
    changed = [
        cluster
        for cluster, evolved in state.evolved.items()
        if evolved["action"] in ("create", "refine", "hold")
    ]
    state.changed = tuple(sorted(changed))
    state.success = (int(successes), int(n)) if n else state.success
    waiting = [
        trace["id"]
        for trace in state.traces
        if trace["ask"] and trace["id"] not in state.question_records
    ]
    state.unasked, state.running = tuple(waiting[-MAX_UNASKED:]), False


def fell_by_more_than_noise(before: tuple[int, int], now: tuple[int, int]) -> bool:
    """Return whether the share of successes fell: the intervals of two rounds do not meet."""
    # Intervals that do not meet are a strict test, so that a suspect is rarely one by chance.
    return bool(before[1] and now[1]) and wilson_interval(*now)[1] < wilson_interval(*before)[0]


_APPLY = {
    "round": _begin,
    "learned": _learn,
    "asked": _ask,
    "stopped": _stop,
    "evolved": _evolve,
    "pruned": _prune,
    "looked": _look,
    "agents": _restructure,
    "ended": _end,
}


def read_rounds(library: Library) -> RoundState:
    """Return the state of the rounds so far. Raises LedgerDamaged."""
    return fold_rounds(read_ledger(library.store.home / LEDGER))


def counted_failures(traces: Iterable[RoundTrace]) -> dict[str, int]:
    """Return how many failures of each key these traces have."""
    return dict(sorted(Counter(key for trace in traces if (key := failure_key(trace))).items()))


def counted_procedures(traces: Iterable[RoundTrace]) -> dict[str, list[str]]:
    """Return by procedure the successful traces that had it, a few of each."""
    sessions: dict[str, list[str]] = {}
    for trace in traces:
        for procedure in trace.procedures if trace.reward else ():
            sessions.setdefault(procedure, []).append(trace.id)
    return {procedure: sorted(ids)[:REMEMBERED] for procedure, ids in sorted(sessions.items())}
