"""Compute the state of a run from the records of its ledger; nothing else is stored."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.ledger import run_directory
from evolvable_evolve.evolution.ledger.run_directory import (
    Ledger,
    LedgerRecord,
    RunDirectory,
    translate_damage,
)
from evolvable_evolve.evolution.ledger.run_state import (
    ITERATION_RECORDS,
    JUDGE_PURPOSE,
    AskedQuestion,
    CandidateDecision,
    RunCandidate,
    RunPhase,
    RunSpending,
    RunState,
)
from evolvable_evolve.evolution.statistics import EQUAL_SHARES, pool_estimates, read_estimates
from evolvable_evolve.evolution.task import ModelUsage, TrialOutcome

_WHOLE = ""
"""Stands for the whole record in place of one of its fields."""

_FIELDS: Mapping[str, Mapping[str, str]] = {
    "preflight": {"preflight": _WHOLE},
    "canary": {"canary": "fingerprint"},
    "calibrated": {"calibration": _WHOLE},
    "selected": {"iteration": "iteration"},
    "decided": {"best": "best", "stalls": "stalls"},
    "searched": {"ended": "why"},
    "confirmed": {"confirmed": _WHOLE},
    "look": {"looks": "look"},
    "verdict": {"verdict": _WHOLE, "looks": "look"},
    "preferred": {"preferred": _WHOLE},
    "adopted": {"adoption": _WHOLE},
    "watched": {"watched": _WHOLE},
    "stopped": {"stopped": "why"},
}
"""By the type of a record the fields of the state that it sets, each with the field of the record
that it is set to.
"""

_PHASES = {
    "preflight": RunPhase.CHECKED,
    "calibrated": RunPhase.CALIBRATED,
    "selected": RunPhase.SEARCHING,
    "searched": RunPhase.SEARCHED,
    "verdict": RunPhase.DECIDED,
}


def apply_record(state: RunState, record: LedgerRecord) -> None:
    """Change the state by one record.

    A record of an unknown type, which a newer version may write, changes nothing.
    """
    kind = record["type"]
    if kind in ITERATION_RECORDS:
        state.step[kind] = record
    state.phase = _PHASES.get(kind, state.phase)
    # Before the cases below, which may read the new values.
    for name, key in _FIELDS.get(kind, {}).items():
        setattr(state, name, record[key] if key else record)
    match kind:
        case "run":
            _begin(state, record)
        case "trial":
            _spend_on_trial(state, record)
        case "pilot":
            state.pilots += 1
        case "calibrated":
            _take_calibration(state, record)
        case "asked":
            _take_question(state, record)
        case "answered":
            _take_answer(state, record)
        case "selected":
            state.step = {"selected": record}
        case "structure":
            _decide_structure(state, record)
        case "judge" | "gradient" | "signals":
            lists = {"judge": state.judges, "gradient": state.gradients, "signals": state.signals}
            lists[kind].append(record)
        case "stage":
            state.stages.append(record)
            state.preflight = {**state.preflight, "estimate": record["forecast"]}
        case "built":
            _add_candidate(state, record)
        case "checked":
            _check(state, record)
        case "screened":
            state.pass_gate("screen", record)
        case "measured":
            _take_comparison(state, record)
        case "decided":
            _decide(state, record)
        case "look":
            state.stage_repeats = tuple(record.get("repeats", ()))
            state.stage_shares = tuple(record.get("shares", EQUAL_SHARES))
        case "held" | "allowed":
            (state.held if kind == "held" else state.allowed)[record["candidate"]] = record
        case "verdict":
            passed = record["verdict"] == "PROMOTE"
            state.pass_gate("promotion", {**record, "iteration": state.iteration, "passed": passed})
        case "unadopted":
            state.adoption = {**state.adoption, "undone": record["operation"]}
        # The stop is over, and a larger limit holds from here on.
        case "continued":
            state.stopped = ""
            if "limit" in record:
                state.settings = {**state.settings, "limit": record["limit"]}


def _take_calibration(state: RunState, record: LedgerRecord) -> None:
    state.update(state.base, scores=record["scores"], missing=tuple(record["missing"]))
    state.frontier = (state.base,)
    state.estimates = read_estimates(record.get("estimates", {}))
    state.measured_at = record.get("at", 0.0)


def _take_question(state: RunState, record: LedgerRecord) -> None:
    state.packets[record["packet"]] = AskedQuestion(
        record["packet"],
        record["role"],
        record["iteration"],
        record["artifact"],
        record.get("at", ""),
    )


def _take_comparison(state: RunState, record: LedgerRecord) -> None:
    """Store the scores of a candidate beside those of its parent."""
    scores = {name: record[name] for name in ("scores", "parent_scores")}
    tasks = {name: tuple(record[name]) for name in ("missing", "fixed", "broken")}
    state.update(record["candidate"], **scores, **tasks)


def _check(state: RunState, record: LedgerRecord) -> None:
    state.pass_gate("static", record)
    if record["candidate"] in state.candidates:
        state.update(record["candidate"], findings=tuple(record["findings"]))


def _take_answer(state: RunState, record: LedgerRecord) -> None:
    """Store the answer to a question, and add what it cost."""
    question = state.packets.get(record["packet"])
    # A paid request without an artefact gave no answer.
    if question is not None and record["artifact"]:
        state.packets[question.id] = replace(question, answer=record["artifact"])
    usage = ModelUsage(
        record["input_tokens"], record["output_tokens"], record["calls"], record["cost"]
    )
    state.spend(f"role:{record['role']}", _make_spending(usage))


def _make_spending(usage: ModelUsage, **more: Any) -> RunSpending:
    prices = {"cost": usage.cost or 0.0, "unpriced": int(usage.cost is None)}
    return RunSpending(**asdict(usage) | prices | more)


def _begin(state: RunState, record: LedgerRecord) -> None:
    state.run, state.label, state.settings = record["run"], record["label"], record["settings"]
    state.tasks = {task: (split, category) for task, split, category in record["tasks"]}
    state.fingerprint, state.tests = record.get("fingerprint", ""), record.get("test_tasks", 0)
    state.merged = tuple((run, digest) for run, digest in record.get("merged", ()))
    state.exploratory, state.about = record.get("exploratory", False), record.get("about", {})
    base = state.base = state.best = record["base"]
    state.candidates[base] = RunCandidate(
        base, "base", 0, decision=CandidateDecision.BASE, size=record["size"]
    )


def _spend_on_trial(state: RunState, record: LedgerRecord) -> None:
    """Add a trial that ended to the bill: newly run, found in the cache, or failed for want of
    infrastructure.
    """
    trial: Any = record["trial"]
    purpose = str(record.get("batch", "")).partition("/")[0]
    if trial.get("cached"):
        state.spend(purpose, RunSpending(cached=1))
        return
    if "judging" in trial:
        state.spend(JUDGE_PURPOSE, _make_spending(ModelUsage(**trial["judging"])))
    outcome = TrialOutcome(trial["outcome"])
    ended = {
        "trials": int(outcome.counts),
        "trouble": int(outcome is TrialOutcome.INFRA_ERROR),
        "wall": trial["wall"],
    }
    state.spend(purpose, _make_spending(ModelUsage(**trial["usage"]), **ended))


def _add_candidate(state: RunState, record: LedgerRecord) -> None:
    digest = record["candidate"]
    # The same program may be proposed twice; its first record counts.
    if digest and digest not in state.candidates:
        fields: dict[str, Any] = {
            name: tuple(record[name]) for name in ("parents", "operations", "changed")
        }
        fields |= {name: record[name] for name in ("name", "iteration", "summary", "size")}
        fields["answers"] = tuple(record.get("answers", ()))
        state.candidates[digest] = RunCandidate(digest, **fields)


def _decide_structure(state: RunState, record: LedgerRecord) -> None:
    state.structures.append(record)
    if record["edit"] is not None:
        state.pass_gate("structure", {**record, "candidate": "", "passed": True})


# A child differs by one edit, so its results are evidence of its parent, but weaker than the
# parent's own.
REJECTED_WEIGHT = 0.5
"""The weight of a trial of a rejected candidate in its parent's score."""


def _learn_scores(state: RunState, measured: LedgerRecord, accepted: bool) -> None:
    """Update the estimates of the best program by a comparison.

    accepted: whether the child is the best program from now on. The results of a rejected child
    count for its parent, with less weight.
    """
    child, parent = read_estimates(measured["child"]), read_estimates(measured["parent_now"])
    if accepted or measured["fresh_parent"]:
        state.measured_at = measured.get("at", 0.0)
    if accepted:
        state.estimates = {**state.estimates, **child}
    else:
        state.estimates = pool_estimates({**state.estimates, **parent}, child, REJECTED_WEIGHT)


def _decide(state: RunState, record: LedgerRecord) -> None:
    decision, digest = CandidateDecision(record["decision"]), record["candidate"]
    # Older records have no estimates, because only the greedy optimizer writes them.
    if "child" in state.step.get("measured", {}):
        _learn_scores(state, state.step["measured"], decision is CandidateDecision.ADMITTED)
    rolled = state.step.get("rolled", {})
    state.batched.update([*rolled.get("scores", ()), *rolled.get("missing", ())])
    state.iterations.append(record)
    state.frontier, state.step = tuple(record["frontier"]), {}
    state.pass_gate("frontier", {**record, "passed": decision is CandidateDecision.ADMITTED})
    # A duplicate keeps its first decision.
    if digest and state.candidates[digest].decision is None:
        bill = state.bill
        state.update(
            digest, decision=decision, reason=record["why"], evaluations=bill.trials, cost=bill.cost
        )
        state.history.append(digest)


def fold_records(records: Iterable[LedgerRecord]) -> RunState:
    """Return the state after these records, in their order."""
    state = RunState()
    for record in records:
        apply_record(state, record)
    return state


def read_records(folder: RunDirectory) -> list[LedgerRecord]:
    """Return the records of both ledgers of a run, also while a process drives it.

    Raises LedgerDamaged.
    """
    return [
        *run_directory.read_ledger(folder.ledger),
        *run_directory.read_ledger(folder.test_ledger),
    ]


@translate_damage
def load_run_state(folder: RunDirectory) -> RunState:
    """Return the state of a run, also while a process drives it. Raises LedgerDamaged."""
    return fold_records(read_records(folder))


def load_run(home: Path, run: str | None) -> tuple[RunDirectory, RunState]:
    """Return a run, by default the newest, and its state. Raises NoSuchRun, LedgerDamaged."""
    folder = run_directory.find_run(home, run)
    return folder, load_run_state(folder)


def iter_run_states(home: Path) -> Iterator[tuple[RunDirectory, RunState]]:
    """Yield every readable run with its state, the newest first."""
    for folder in run_directory.iter_runs(home):
        # One damaged run must not hide all others.
        with contextlib.suppress(run_directory.LedgerDamaged, OSError):
            yield folder, load_run_state(folder)


class Journal:
    """The ledger of a run together with the state after its records."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._state, self._applied = ledger, RunState(), 0

    @property
    def state(self) -> RunState:
        """The state after all records so far."""
        # Only the records since the last call: folding all of them each time would be quadratic.
        for record in self._ledger.records[self._applied :]:
            apply_record(self._state, record)
        self._applied = len(self._ledger.records)
        return self._state

    def note(self, type: str, **fields: Any) -> LedgerRecord:
        """Append a record and return it."""
        return self._ledger.append(type, fields)
