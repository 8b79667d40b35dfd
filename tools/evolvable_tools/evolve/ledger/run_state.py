"""The state of a run: a fold over the records of its ledger, and nothing that is kept beside it."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from evolvable_tools.evolve.ledger import run_directory
from evolvable_tools.evolve.ledger.run_directory import Ledger, LedgerRecord, RunDirectory, translate_damage
from evolvable_tools.evolve.statistics.paired_tests import pool_estimates, read_estimates
from evolvable_tools.evolve.task import ModelUsage, TrialOutcome

JUDGE_PURPOSE = "role:judge"
"""What a judge spends is on this part of the bill, in calibration as in trials."""

ITERATION_RECORDS = ("selected", "rolled", "structure", "proposed", "built", "checked", "screened", "measured")
"""The records of one iteration, in order; `decided` ends it."""


class RunPhase(StrEnum):
    """How far a run is. Each is reached by one record and never left backwards."""

    NEW = "new"
    CHECKED = "checked"
    CALIBRATED = "calibrated"
    SEARCHING = "searching"
    SEARCHED = "searched"
    DECIDED = "decided"


class CandidateDecision(StrEnum):
    """What became of a candidate in the search. Only ADMITTED joins the frontier, and is provisional there."""

    BASE = "base"
    ADMITTED = "admitted"
    REJECTED = "rejected"
    INDECISIVE = "indecisive"
    DUPLICATE = "duplicate"
    REFUSED = "refused"
    SCREENED_OUT = "screened_out"
    NO_PROPOSAL = "no_proposal"
    NO_FAILURES = "no_failures"
    TAMPERED = "tampered"


@dataclass(frozen=True, slots=True)
class RunSpending:
    """What was spent. `cost` is in US dollars, of what has a price; `unpriced` counts calls and trials without one.

    trials: newly run and counted. cached: found, and not paid again. trouble: ended in an infrastructure error.
    calls: of models, by trials, proposer models and judges. wall: seconds of trials, added up.
    """

    trials: int = 0
    cached: int = 0
    trouble: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0
    wall: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens in both directions."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "RunSpending") -> "RunSpending":
        return RunSpending(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def to_json(self) -> dict[str, Any]:
        """Return all of it with the sum of the tokens."""
        return asdict(self) | {"tokens": self.tokens}


def _spending(usage: ModelUsage, **more: Any) -> RunSpending:
    return RunSpending(**asdict(usage) | {"cost": usage.cost or 0.0, "unpriced": int(usage.cost is None)} | more)


def mean(values: Iterable[float]) -> float | None:
    """Return the mean, None of nothing."""
    given = list(values)
    return sum(given) / len(given) if given else None


@dataclass(frozen=True, slots=True)
class RunCandidate:
    """One program that the search made, or the base (iteration 0), with what is known of it.

    name: `base`, `c1`, `c2`, ... for people. operations: its edits in words. answers: training tasks it was made for.
    changed: refs of the parts that differ
    from the first parent's. scores, parent_scores: validation, task -> mean over repeats, measured in one batch with
    the first parent's. missing: tasks without a counted outcome. fixed, broken: tasks that got better or worse than
    the parent's. size: bytes of all parts. evaluations, cost: spent in the whole run until this was decided.
    """

    digest: str
    name: str
    iteration: int
    parents: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    summary: str = ""
    changed: tuple[str, ...] = ()
    decision: CandidateDecision | None = None
    reason: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    parent_scores: Mapping[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    size: int = 0
    evaluations: int = 0
    cost: float = 0.0
    answers: tuple[str, ...] = ()

    @property
    def mean(self) -> float | None:
        """The mean validation score, None while nothing is measured."""
        return mean(self.scores.values())

    @property
    def rank(self) -> tuple[float, int]:
        """What candidates are compared by: the mean, and of equals the smaller size."""
        return self.mean or 0.0, -self.size

    @property
    def delta(self) -> float | None:
        """The mean paired difference to the first parent, None without a pair."""
        return mean(self.scores[task] - self.parent_scores[task] for task in self.scores if task in self.parent_scores)


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question that the run asked a model. `artifact` names its text, `answer` that of the answer."""

    id: str
    role: str
    iteration: int
    artifact: str
    at: str = ""
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class GateEntry:
    """One decision of any gate, with why: iteration, the candidate's digest ('' for none), the gate, what it said."""

    iteration: int
    candidate: str
    gate: str
    passed: bool
    why: str


@dataclass
class RunState:
    """All that is known of a run. Made by `fold` alone; nobody else changes it.

    label: what its figures are. fingerprint: of the executor; canary: the same once its
    canary has passed. merged: runs whose finalists are tried as one, with
    these. settings: as the run was started with. tasks: id -> (split, category). tests: how many are sealed.
    exploratory: there are too few for a claim. pilots: those of which no trial counted. preflight, calibration,
    confirmed, verdict, adoption, watched: those records, empty before. step: the records of the iteration that runs.
    iterations: the record that ended each. frontier: digests, as admitted. history: digests as they were decided on.
    best: the digest with the best validation score. stalls: iterations without a new best, in a row. spent: by
    purpose (pilot, calibrate, train, screen, val, confirm, test) and by role (`role:proposer`, `role:builder`).
    looks: the number of this run's look at the sealed test, over all runs; 0 while it is sealed. stopped: why it
    stands still. ended: why the search ended. judges: the calibrations of who judges, one for each rubric.
    held: candidates that a person has to see before they run, by digest; allowed: what was decided about them.
    estimates: of the best program by task: its mean score and the weight of it in trials; only the greedy optimizer
    keeps them. measured_at: when these were measured. eliminated: candidates whose edits were tried to be left out.
    structures: what the gate of restructuring decided, by iteration.
    """

    run: str = ""
    label: str = ""
    fingerprint: str = ""
    canary: str = ""
    merged: tuple[tuple[str, str], ...] = ()
    phase: RunPhase = RunPhase.NEW
    settings: LedgerRecord = field(default_factory=dict)
    tasks: dict[str, tuple[str, str]] = field(default_factory=dict)
    tests: int = 0
    exploratory: bool = False
    pilots: int = 0
    base: str = ""
    candidates: dict[str, RunCandidate] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    frontier: tuple[str, ...] = ()
    best: str = ""
    iteration: int = 0
    step: dict[str, LedgerRecord] = field(default_factory=dict)
    stalls: int = 0
    preflight: LedgerRecord = field(default_factory=dict)
    calibration: LedgerRecord = field(default_factory=dict)
    confirmed: LedgerRecord = field(default_factory=dict)
    verdict: LedgerRecord = field(default_factory=dict)
    adoption: LedgerRecord = field(default_factory=dict)
    watched: LedgerRecord = field(default_factory=dict)
    packets: dict[str, AskedQuestion] = field(default_factory=dict)
    gates: list[GateEntry] = field(default_factory=list)
    spent: dict[str, RunSpending] = field(default_factory=dict)
    stopped: str = ""
    ended: str = ""
    looks: int = 0
    iterations: list[LedgerRecord] = field(default_factory=list)
    judges: list[LedgerRecord] = field(default_factory=list)
    held: dict[str, LedgerRecord] = field(default_factory=dict)
    allowed: dict[str, LedgerRecord] = field(default_factory=dict)
    estimates: dict[str, tuple[float, float]] = field(default_factory=dict)
    measured_at: Any = 0.0
    eliminated: list[str] = field(default_factory=list)
    structures: list[LedgerRecord] = field(default_factory=list)

    @property
    def held_candidates(self) -> list[LedgerRecord]:
        """The candidates that a person has to see before they run, oldest first."""
        if self.phase is RunPhase.DECIDED:
            return []
        return [record for digest, record in self.held.items() if digest not in self.allowed]

    @property
    def finalist(self) -> str:
        """The digest of the finalist, or of the best so far; '' while that is the base."""
        return str(self.verdict.get("candidate") or (self.best if self.best != self.base else ""))

    def best_gains(self) -> list[float]:
        """Return the gain of the best over the base on each validation task that both have."""
        best, base = self.candidates.get(self.best), self.candidates.get(self.base)
        if best is None or base is None or best.digest == base.digest:
            return []
        return [score - base.scores[task] for task, score in best.scores.items() if task in base.scores]

    @property
    def bill(self) -> RunSpending:
        """What the whole run spent."""
        return sum(self.spent.values(), RunSpending())

    @property
    def pending(self) -> list[AskedQuestion]:
        """The questions that wait for an answer, oldest first."""
        return [packet for packet in self.packets.values() if packet.answer is None]

    @property
    def members(self) -> list[RunCandidate]:
        """The frontier's candidates, as admitted."""
        return [self.candidates[digest] for digest in self.frontier]

    @property
    def rejected(self) -> list[RunCandidate]:
        """What was tried and not kept, oldest first: the next proposal is told of it."""
        kept = (CandidateDecision.ADMITTED, CandidateDecision.BASE)
        tried = [self.candidates[digest] for digest in self.history]
        return [candidate for candidate in tried if candidate.decision not in kept]

    def spend(self, purpose: str, spent: RunSpending) -> None:
        """Add to the bill under one purpose."""
        self.spent[purpose] = self.spent.get(purpose, RunSpending()) + spent

    def pass_gate(self, gate: str, record: LedgerRecord) -> None:
        """Add what a gate decided."""
        entry = (record["iteration"], record["candidate"], gate, record["passed"], record["why"])
        self.gates.append(GateEntry(*entry))

    def update(self, digest: str, **fields: Any) -> None:
        """Replace fields of a candidate."""
        self.candidates[digest] = replace(self.candidates[digest], **fields)


_WHOLE = ""  # the record itself, and none of its fields

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
    "adopted": {"adoption": _WHOLE},
    "watched": {"watched": _WHOLE},
    "stopped": {"stopped": "why"},
}
"""By the type of a record: the fields of the state that it sets, and the field of the record that each is."""

_PHASES = {
    "preflight": RunPhase.CHECKED,
    "calibrated": RunPhase.CALIBRATED,
    "selected": RunPhase.SEARCHING,
    "searched": RunPhase.SEARCHED,
    "verdict": RunPhase.DECIDED,
}


def apply_record(state: RunState, record: LedgerRecord) -> None:
    """Change the state by one record. One of an unknown type changes nothing."""
    kind = record["type"]
    if kind in ITERATION_RECORDS:
        state.step[kind] = record
    state.phase = _PHASES.get(kind, state.phase)
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
            state.update(state.base, scores=record["scores"], missing=tuple(record["missing"]))
            state.frontier = (state.base,)
            state.estimates, state.measured_at = read_estimates(record.get("estimates", {})), record.get("at", 0.0)
        case "asked":
            known = (record["packet"], record["role"], record["iteration"], record["artifact"], record.get("at", ""))
            state.packets[record["packet"]] = AskedQuestion(*known)
        case "answered":
            asked = state.packets.get(record["packet"])
            if asked is not None and record["artifact"]:  # else it was paid for, and there is no answer
                state.packets[asked.id] = replace(asked, answer=record["artifact"])
            usage = ModelUsage(record["input_tokens"], record["output_tokens"], record["calls"], record["cost"])
            state.spend(f"role:{record['role']}", _spending(usage))
        case "judge":
            state.judges.append(record)
        case "selected":
            state.step = {"selected": record}
            state.eliminated += [record["without"]] if record.get("without") else []
        case "structure":
            _decide_structure(state, record)
        case "built":
            _add_candidate(state, record)
        case "checked":
            state.pass_gate("static", record)
            if record["candidate"] in state.candidates:
                state.update(record["candidate"], findings=tuple(record["findings"]))
        case "screened":
            state.pass_gate("screen", record)
        case "measured":
            found = {name: tuple(record[name]) for name in ("missing", "fixed", "broken")}
            state.update(record["candidate"], **{name: record[name] for name in ("scores", "parent_scores")}, **found)
        case "decided":
            _decide(state, record)
        case "held" | "allowed":
            (state.held if kind == "held" else state.allowed)[record["candidate"]] = record
        case "verdict":
            promoted = record["verdict"] == "PROMOTE"
            state.pass_gate("promotion", {**record, "iteration": state.iteration, "passed": promoted})
        case "unadopted":
            state.adoption = {**state.adoption, "undone": record["operation"]}
        case "continued":
            state.stopped = ""
            if "limit" in record:
                state.settings = {**state.settings, "limit": record["limit"]}


def _begin(state: RunState, record: LedgerRecord) -> None:
    state.run, state.label, state.settings = record["run"], record["label"], record["settings"]
    state.tasks = {task: (split, category) for task, split, category in record["tasks"]}
    state.fingerprint, state.tests = record.get("fingerprint", ""), record.get("test_tasks", 0)
    state.merged = tuple((run, digest) for run, digest in record.get("merged", ()))
    state.exploratory = record.get("exploratory", False)
    base = state.base = state.best = record["base"]
    state.candidates[base] = RunCandidate(base, "base", 0, decision=CandidateDecision.BASE, size=record["size"])


def _spend_on_trial(state: RunState, record: LedgerRecord) -> None:
    """Add a trial that ended: newly run, found in the cache, or failed for want of infrastructure."""
    trial: Any = record["trial"]
    purpose = str(record.get("batch", "")).partition("/")[0]
    if trial.get("cached"):
        state.spend(purpose, RunSpending(cached=1))
        return
    if "judging" in trial:
        state.spend(JUDGE_PURPOSE, _spending(ModelUsage(**trial["judging"])))
    outcome = TrialOutcome(trial["outcome"])
    ended = {"trials": int(outcome.counts), "trouble": int(outcome is TrialOutcome.INFRA_ERROR), "wall": trial["wall"]}
    state.spend(purpose, _spending(ModelUsage(**trial["usage"]), **ended))


def _add_candidate(state: RunState, record: LedgerRecord) -> None:
    digest = record["candidate"]
    if digest and digest not in state.candidates:
        made: dict[str, Any] = {name: tuple(record[name]) for name in ("parents", "operations", "changed")}
        made |= {name: record[name] for name in ("name", "iteration", "summary", "size")}
        made["answers"] = tuple(record.get("answers", ()))
        state.candidates[digest] = RunCandidate(digest, **made)


def _decide_structure(state: RunState, record: LedgerRecord) -> None:
    state.structures.append(record)
    if record["edit"] is not None:
        state.pass_gate("structure", {**record, "candidate": "", "passed": True})


REJECTED_WEIGHT = 0.5
"""What a trial of a rejected candidate counts for its parent's score."""


def _learn_scores(state: RunState, measured: LedgerRecord, accepted: bool) -> None:
    """Take over what a comparison showed of the best program: a rejected child says something of its parent too."""
    child, parent = (read_estimates(measured[name]) for name in ("child", "parent_now"))
    if accepted or measured["fresh_parent"]:
        state.measured_at = measured.get("at", 0.0)
    if accepted:
        state.estimates = {**state.estimates, **child}
    else:
        state.estimates = pool_estimates({**state.estimates, **parent}, child, REJECTED_WEIGHT)


def _decide(state: RunState, record: LedgerRecord) -> None:
    decision, digest = CandidateDecision(record["decision"]), record["candidate"]
    if "child" in state.step.get("measured", {}):
        _learn_scores(state, state.step["measured"], decision is CandidateDecision.ADMITTED)
    state.iterations.append(record)
    state.frontier, state.step = tuple(record["frontier"]), {}
    state.pass_gate("frontier", {**record, "passed": decision is CandidateDecision.ADMITTED})
    if digest and state.candidates[digest].decision is None:  # a duplicate keeps what was decided first
        bill = state.bill
        state.update(digest, decision=decision, reason=record["why"], evaluations=bill.trials, cost=bill.cost)
        state.history.append(digest)


def fold_records(records: Iterable[LedgerRecord]) -> RunState:
    """Return the state after these records, in their order."""
    state = RunState()
    for record in records:
        apply_record(state, record)
    return state


def read_records(folder: RunDirectory) -> list[LedgerRecord]:
    """Return the records of both ledgers of a run, also while a process drives it. Raises LedgerDamaged."""
    return [*run_directory.read_ledger(folder.ledger), *run_directory.read_ledger(folder.test_ledger)]


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
        with contextlib.suppress(run_directory.LedgerDamaged, OSError):
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

    def note(self, type: str, **fields: Any) -> LedgerRecord:
        """Append a record and return it."""
        return self._ledger.append(type, fields)
