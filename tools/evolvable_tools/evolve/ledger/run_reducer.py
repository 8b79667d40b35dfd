"""The state of a run as a fold over the records of its ledger: what each record changes."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from evolvable_tools.evolve.ledger.run_directory import (
    Ledger,
    LedgerDamaged,
    RunDirectory,
    iter_runs,
    read_ledger,
    translate_damage,
)
from evolvable_tools.evolve.ledger.run_state import (
    AskedQuestion,
    CandidateDecision,
    GateEntry,
    RunCandidate,
    RunPhase,
    RunSpending,
    RunState,
    StateRecord,
)
from evolvable_tools.evolve.task import ModelUsage, TrialOutcome

JUDGE_PURPOSE = "role:judge"
"""What a judge spends is on this part of the bill, in calibration as in trials."""

ITERATION_RECORDS = ("selected", "rolled", "proposed", "built", "checked", "screened", "measured")
"""The records of one iteration, in order; `decided` ends it."""


def fold_records(records: Iterable[StateRecord]) -> RunState:
    """Return the state after these records, in their order. Records of unknown types change nothing."""
    state = RunState()
    for record in records:
        apply_record(state, record)
    return state


@translate_damage
def load_run_state(folder: RunDirectory) -> RunState:
    """Return the state of a run, also while a process drives it. Raises LedgerDamaged."""
    return fold_records([*read_ledger(folder.ledger), *read_ledger(folder.test_ledger)])


def iter_run_states(home: Path) -> Iterator[tuple[RunDirectory, RunState]]:
    """Yield every readable run with its state, the newest first."""
    for folder in iter_runs(home):
        with contextlib.suppress(LedgerDamaged, OSError):
            yield folder, load_run_state(folder)


class Journal:
    """The ledger of a run together with the state after its records."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._state, self._seen = ledger, RunState(), 0

    @property
    def state(self) -> RunState:
        """Return the state after all records so far."""
        for record in self._ledger.records[self._seen :]:
            apply_record(self._state, record)
        self._seen = len(self._ledger.records)
        return self._state

    def note(self, type: str, **fields: Any) -> StateRecord:
        """Append a record and return it."""
        return self._ledger.append(type, fields)


def apply_record(state: RunState, record: StateRecord) -> None:
    """Change the state by one record."""
    kind = record["type"]
    if kind in ITERATION_RECORDS:
        state.step[kind] = record
    if kind in _APPLY:
        _APPLY[kind](state, record)


def _run(state: RunState, record: StateRecord) -> None:
    state.run, state.label, state.settings = record["run"], record["label"], record["settings"]
    state.tasks = {task: (split, category) for task, split, category in record["tasks"]}
    state.fingerprint = record.get("fingerprint", "")
    state.merged = tuple((run, digest) for run, digest in record.get("merged", ()))
    state.exploratory = record.get("exploratory", False)
    base = record["base"]
    state.base = state.best = base
    state.candidates[base] = RunCandidate(base, "base", 0, decision=CandidateDecision.BASE, size=record["size"])


def _preflight(state: RunState, record: StateRecord) -> None:
    state.preflight, state.phase = record, RunPhase.CHECKED


def _trial(state: RunState, record: StateRecord) -> None:
    """A trial that ended: newly run, found in the cache, or failed for want of infrastructure."""
    trial: Any = record["trial"]
    usage = trial["usage"]
    purpose = str(record.get("batch", "")).partition("/")[0]
    if trial.get("cached"):
        state.spend(purpose, RunSpending(cached=1))
        return
    counts = TrialOutcome(trial["outcome"]).counts
    cost = usage["cost"]
    if "judging" in trial:
        state.spend(JUDGE_PURPOSE, _thinking(ModelUsage(**trial["judging"])))
    spent = RunSpending(
        trials=int(counts),
        trouble=int(trial["outcome"] == TrialOutcome.INFRA_ERROR),
        calls=usage["calls"],
        input_tokens=usage["input_tokens"],
        output_tokens=usage["output_tokens"],
        cost=cost or 0.0,
        unpriced=int(cost is None),
        wall=trial["wall"],
    )
    state.spend(purpose, spent)


def _pilot(state: RunState, record: StateRecord) -> None:
    """A pilot of which no trial counted."""
    state.pilots += 1


def _canary(state: RunState, record: StateRecord) -> None:
    state.canary = record["fingerprint"]


def _calibrated(state: RunState, record: StateRecord) -> None:
    state.calibration, state.phase = record, RunPhase.CALIBRATED
    state.update(state.base, scores=record["scores"], missing=tuple(record["missing"]))
    state.frontier = (state.base,)


def _asked(state: RunState, record: StateRecord) -> None:
    packet = AskedQuestion(
        record["packet"], record["role"], record["iteration"], record["artifact"], record.get("at", "")
    )
    state.packets[packet.id] = packet


def _answered(state: RunState, record: StateRecord) -> None:
    asked = state.packets.get(record["packet"])
    if asked is not None and record["artifact"]:  # else it was paid for, and there is no answer
        state.packets[asked.id] = replace(asked, answer=record["artifact"])
    usage = ModelUsage(record["input_tokens"], record["output_tokens"], record["calls"], record["cost"])
    state.spend(f"role:{record['role']}", _thinking(usage))


def _thinking(usage: ModelUsage) -> RunSpending:
    return RunSpending(
        calls=usage.calls,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost=usage.cost or 0.0,
        unpriced=int(usage.cost is None),
    )


def _judge(state: RunState, record: StateRecord) -> None:
    state.judges.append(record)


def _selected(state: RunState, record: StateRecord) -> None:
    state.phase, state.iteration, state.step = RunPhase.SEARCHING, record["iteration"], {"selected": record}


def _built(state: RunState, record: StateRecord) -> None:
    digest = record["candidate"]
    if digest and digest not in state.candidates:
        state.candidates[digest] = RunCandidate(
            digest,
            record["name"],
            record["iteration"],
            tuple(record["parents"]),
            tuple(record["operations"]),
            record["summary"],
            tuple(record["changed"]),
            size=record["size"],
        )


def _gate(state: RunState, record: StateRecord) -> None:
    state.gates.append(
        GateEntry(record["iteration"], record["candidate"], record["gate"], record["passed"], record["why"])
    )


def _checked(state: RunState, record: StateRecord) -> None:
    _gate(state, {**record, "gate": "static"})
    if record["candidate"] in state.candidates:
        state.update(record["candidate"], findings=tuple(record["findings"]))


def _screened(state: RunState, record: StateRecord) -> None:
    _gate(state, {**record, "gate": "screen"})


def _measured(state: RunState, record: StateRecord) -> None:
    state.update(
        record["candidate"],
        scores=record["scores"],
        parent_scores=record["parent_scores"],
        missing=tuple(record["missing"]),
        fixed=tuple(record["fixed"]),
        broken=tuple(record["broken"]),
    )


def _decided(state: RunState, record: StateRecord) -> None:
    decision, digest = CandidateDecision(record["decision"]), record["candidate"]
    state.iterations.append(record)
    state.frontier, state.best, state.stalls = tuple(record["frontier"]), record["best"], record["stalls"]
    _gate(state, {**record, "gate": "frontier", "passed": decision is CandidateDecision.ADMITTED})
    state.step = {}
    if digest and state.candidates[digest].decision is None:  # a duplicate keeps what was decided first
        bill = state.bill
        state.update(digest, decision=decision, reason=record["why"], evaluations=bill.trials, cost=bill.cost)
        state.history.append(digest)


def _held(state: RunState, record: StateRecord) -> None:
    state.held[record["candidate"]] = record


def _allowed(state: RunState, record: StateRecord) -> None:
    state.allowed[record["candidate"]] = record


def _searched(state: RunState, record: StateRecord) -> None:
    state.phase, state.ended = RunPhase.SEARCHED, record["why"]


def _confirmed(state: RunState, record: StateRecord) -> None:
    state.confirmed = record


def _look(state: RunState, record: StateRecord) -> None:
    state.looks = record["look"]


def _verdict(state: RunState, record: StateRecord) -> None:
    state.verdict, state.phase, state.looks = record, RunPhase.DECIDED, record["look"]
    promoted = record["verdict"] == "PROMOTE"
    _gate(state, {**record, "iteration": state.iteration, "gate": "promotion", "passed": promoted})


def _adopted(state: RunState, record: StateRecord) -> None:
    state.adoption = record


def _unadopted(state: RunState, record: StateRecord) -> None:
    state.adoption = {**state.adoption, "undone": record["operation"]}


def _watched(state: RunState, record: StateRecord) -> None:
    state.watched = record


def _stopped(state: RunState, record: StateRecord) -> None:
    state.stopped = record["why"]


def _continued(state: RunState, record: StateRecord) -> None:
    state.stopped = ""
    if "limit" in record:
        state.settings = {**state.settings, "limit": record["limit"]}


_APPLY: dict[str, Callable[[RunState, StateRecord], None]] = {
    "run": _run,
    "preflight": _preflight,
    "trial": _trial,
    "pilot": _pilot,
    "canary": _canary,
    "judge": _judge,
    "calibrated": _calibrated,
    "asked": _asked,
    "answered": _answered,
    "selected": _selected,
    "built": _built,
    "checked": _checked,
    "screened": _screened,
    "measured": _measured,
    "decided": _decided,
    "held": _held,
    "allowed": _allowed,
    "searched": _searched,
    "confirmed": _confirmed,
    "look": _look,
    "verdict": _verdict,
    "adopted": _adopted,
    "unadopted": _unadopted,
    "watched": _watched,
    "stopped": _stopped,
    "continued": _continued,
}
