"""The state of a run, as its records give it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from evolvable_evolve.evolution.ledger.run_directory import LedgerRecord

JUDGE_PURPOSE = "role:judge"
"""The purpose on the bill under which judges are counted, in calibration as in trials."""

ITERATION_RECORDS = (
    *("selected", "rolled", "structure", "proposed"),
    *("built", "checked", "screened", "measured"),
)
"""The records of one iteration, in order; `decided` ends it."""


class RunPhase(StrEnum):
    """The phase of a run. Each phase begins with one record, and a run never goes back."""

    NEW = "new"
    CHECKED = "checked"
    CALIBRATED = "calibrated"
    SEARCHING = "searching"
    SEARCHED = "searched"
    DECIDED = "decided"


class CandidateDecision(StrEnum):
    """The decision of the search on a candidate.

    Only ADMITTED joins the frontier, and is provisional there.
    """

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
    """A sum of spending.

    trials: newly run and counted. cached: found in the cache, and not paid again. trouble: ended in
    an infrastructure error. calls: of models, by trials, proposer models and judges. cost: US
    dollars of all calls and trials that have a price. unpriced: how many have none. wall: the sum
    of the seconds of trials.
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
        """Return all fields, with the sum of the tokens."""
        return asdict(self) | {"tokens": self.tokens}


# A sum and not `fmean`, which raises for no values.
def mean(values: Iterable[float]) -> float | None:
    """Return the mean, None without values."""
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None


@dataclass(frozen=True, slots=True)
class RunCandidate:
    """One program that the search made, or the base (iteration 0), with its measurements.

    name: `base`, `c1`, `c2`, ... for people. operations: its edits in words. changed: refs of the
    parts that differ from the first parent's. scores: validation scores by task, means over
    repeats. parent_scores: those of the first parent, measured in one batch with them. missing:
    tasks without a counted outcome. fixed, broken: tasks that got better or worse than the
    parent's. size: bytes of all parts. evaluations, cost: spent in the whole run until this was
    decided. answers: training tasks that it was made for.
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
        """The key by which candidates are compared: the mean, and of equals the smaller size."""
        return self.mean or 0.0, -self.size

    @property
    def delta(self) -> float | None:
        """The mean paired difference to the first parent, None without a pair."""
        # Tasks of the parent alone, or of the child alone, are no pairs.
        return mean(
            self.scores[task] - self.parent_scores[task]
            for task in self.scores
            if task in self.parent_scores
        )


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question that the run asked a model.

    `artifact` names its text, `answer` that of the answer.
    """

    id: str
    role: str
    iteration: int
    artifact: str
    at: str = ""
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class GateEntry:
    """One decision of any gate: the iteration, the candidate's digest ('' for none), the gate, and
    its reason.
    """

    iteration: int
    candidate: str
    gate: str
    passed: bool
    why: str


@dataclass
class RunState:
    """The state of a run after its records. Only `fold_records` and `Journal` make and change it.

    label: the kind of its figures. fingerprint: of the executor. canary: the same once its canary
    has passed. merged: runs whose finalists are tried as one, with these. settings: as the run was
    started with. tasks: id -> (split, category). tests: how many are sealed. exploratory: there are
    too few for a claim. pilots: pilot records so far. preflight, calibration, confirmed, verdict,
    preferred, adoption, watched: those records, empty before. step: the records of the iteration
    that runs. iterations: the record that ended each. frontier: digests, as admitted. history:
    digests in the order of their decisions. best: the digest with the best validation score.
    stalls: iterations without a new best, in a row. spent: by purpose (pilot, calibrate, train,
    screen, val, confirm, test) and by role (`role:proposer`, `role:builder`). looks: the number of
    this run's look at the sealed test, over all runs; 0 while it is sealed. stage_repeats: how
    often each stage of the test runs its tasks, and stage_shares which share of them it has, as
    fixed before it was opened. stopped: why the run was stopped. ended: why the search ended.
    judges: the calibrations of the judges, one for each rubric. held: candidates that a person has
    to see before they run, by digest. allowed: the person's decisions on them. estimates: of the
    best program by task: its mean score and the weight of it in trials; only the greedy optimizer
    writes them. measured_at: when these were measured. batched: in how many batches of evidence
    each training task was. structures: decisions of the restructuring gate, by iteration.
    gradients: a critic's texts on single trials. signals: the rewards of an iteration's rollouts,
    with the figures computed from them. stages: of a trial of skills, each stage that ended without
    an answer, with its forecast. about: of a trial, where its tasks are from and which were left
    out.
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
    preferred: LedgerRecord = field(default_factory=dict)
    adoption: LedgerRecord = field(default_factory=dict)
    watched: LedgerRecord = field(default_factory=dict)
    packets: dict[str, AskedQuestion] = field(default_factory=dict)
    gates: list[GateEntry] = field(default_factory=list)
    spent: dict[str, RunSpending] = field(default_factory=dict)
    stopped: str = ""
    ended: str = ""
    looks: int = 0
    stage_repeats: tuple[int, ...] = ()
    stage_shares: tuple[float, ...] = ()
    iterations: list[LedgerRecord] = field(default_factory=list)
    judges: list[LedgerRecord] = field(default_factory=list)
    held: dict[str, LedgerRecord] = field(default_factory=dict)
    allowed: dict[str, LedgerRecord] = field(default_factory=dict)
    estimates: dict[str, tuple[float, float]] = field(default_factory=dict)
    measured_at: Any = 0.0
    batched: Counter[str] = field(default_factory=Counter)
    structures: list[LedgerRecord] = field(default_factory=list)
    gradients: list[LedgerRecord] = field(default_factory=list)
    signals: list[LedgerRecord] = field(default_factory=list)
    stages: list[LedgerRecord] = field(default_factory=list)
    about: LedgerRecord = field(default_factory=dict)

    @property
    def held_candidates(self) -> list[LedgerRecord]:
        """The candidates that a person has to see before they run, oldest first."""
        # After the verdict nothing of the run may run any more.
        if self.phase is RunPhase.DECIDED:
            return []
        return [record for digest, record in self.held.items() if digest not in self.allowed]

    @property
    def finalist(self) -> str:
        """The digest of the finalist, or of the best so far; '' while that is the base."""
        # Before the verdict the best may still change.
        return str(self.verdict.get("candidate") or (self.best if self.best != self.base else ""))

    @property
    def adoptable(self) -> bool:
        """Whether the run promoted a program that is not live; a measurement proposes nothing."""
        # Older runs have no purpose, and searched.
        searched = self.settings.get("purpose", "search") == "search"
        live = bool(self.adoption) and not self.adoption.get("undone")
        return searched and self.verdict.get("verdict") == "PROMOTE" and not live

    def best_gains(self) -> list[float]:
        """Return the gain of the best over the base on each validation task that both have."""
        best, base = self.candidates.get(self.best), self.candidates.get(self.base)
        # The base has no gain over itself.
        if best is None or base is None or best.digest == base.digest:
            return []
        return [
            score - base.scores[task] for task, score in best.scores.items() if task in base.scores
        ]

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
        """Candidates that were tried and not admitted, oldest first: the next proposal
        gets them.
        """
        accepted = (CandidateDecision.ADMITTED, CandidateDecision.BASE)
        tried = [self.candidates[digest] for digest in self.history]
        return [candidate for candidate in tried if candidate.decision not in accepted]

    def spend(self, purpose: str, spent: RunSpending) -> None:
        """Add to the bill under one purpose."""
        self.spent[purpose] = self.spent.get(purpose, RunSpending()) + spent

    def pass_gate(self, gate: str, record: LedgerRecord) -> None:
        """Add the decision of a gate."""
        # In the order of GateEntry's fields.
        entry = (record["iteration"], record["candidate"], gate, record["passed"], record["why"])
        self.gates.append(GateEntry(*entry))

    def update(self, digest: str, **fields: Any) -> None:
        """Replace fields of a candidate."""
        self.candidates[digest] = replace(self.candidates[digest], **fields)
