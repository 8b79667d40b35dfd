"""Traces: what a round knows of each session or trial, and which of them it retains, each with a
reason.

Cutting and retaining are pure: the same traces give the same result in any order.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evolvable_tools.review import SessionSignal, session_steps
from evolvable_tools.sessions import Session

# Of more traces with one cause the model learns little, and each costs a question.
PER_CLUSTER = 5
"""Traces that are retained of one cluster, the newest."""

REPEATED = 2
"""Failures of one task type with one cause, and sessions with one procedure, from which they are a
pattern.
"""

MIN_STEPS = 3
"""Steps of a session from which its procedure may be worth keeping."""

# The score of a partial success.
NEAR = 0.5
"""Score from which a failure is a near miss."""

MAX_PROCEDURES = 8
"""Procedures by which a session is compared with others."""


class RetainReason(StrEnum):
    """Why a trace is retained."""

    REPEATED_FAILURE = "repeated-failure"
    NEAR_MISS = "near-miss"
    REUSABLE_SUCCESS = "reusable-success"
    MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True)
class RoundTrace:
    """One session or trial, cut for its agent. reward: 1 or 0, None where its end is not verified.

    selected: the skills that were shown or loaded; used: those that were followed, by their refs.
    steps: of tools. cause: by which a like failure is known again; procedures: by which a like
    procedure is. Both are hashes: no text of a session is kept. last_check: its last check alone
    failed.
    """

    id: str
    at: str
    task_type: str
    agent: str
    reward: int | None
    score: float
    selected: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()
    steps: int = 0
    cause: str = ""
    procedures: tuple[str, ...] = ()
    last_check: bool = False

    @property
    def cluster(self) -> str:
        """The key of the changes that follow from it: the skill that it used, else its task type
        and procedure.
        """
        skill = min(self.used, default="") or min(self.selected, default="")
        return skill or f"{self.task_type}|{min(self.procedures, default='')}"


@dataclass(frozen=True, slots=True)
class RetainedTrace:
    """A trace that is kept for this round, and why."""

    trace: RoundTrace
    reason: RetainReason


def retain(
    traces: Iterable[RoundTrace],
    failures: Mapping[str, int] | None = None,
    procedures: Mapping[str, Sequence[str]] | None = None,
) -> list[RetainedTrace]:
    """Return the traces that are retained, at most PER_CLUSTER of a cluster, the newest, by cluster
    and time.

    failures: how many failures of each `failure_key` earlier rounds had; procedures: by procedure
    the sessions that earlier rounds saw it in. A trace without a verified end is never retained.
    """
    rewarded = [trace for trace in traces if trace.reward is not None]
    counts = Counter(failures or {})
    counts.update(key for trace in rewarded if (key := failure_key(trace)))
    seen: dict[str, set[str]] = defaultdict(set)
    for procedure, sessions in (procedures or {}).items():
        seen[procedure].update(sessions)
    for trace in rewarded:
        for procedure in trace.procedures if trace.reward else ():
            seen[procedure].add(trace.id)
    by_cluster: dict[str, list[RetainedTrace]] = defaultdict(list)
    # By id where two are of one moment, so that the order of the input changes nothing.
    for trace in sorted(rewarded, key=lambda trace: (trace.at, trace.id), reverse=True):
        reason = _reason(trace, counts, seen)
        if reason is not None and len(by_cluster[trace.cluster]) < PER_CLUSTER:
            by_cluster[trace.cluster].append(RetainedTrace(trace, reason))
    return [retained for cluster in sorted(by_cluster) for retained in by_cluster[cluster]]


def failure_key(trace: RoundTrace) -> str:
    """Return the key of a failure: its task type and its cause; '' for a success, or without a
    cause.
    """
    return f"{trace.task_type}|{trace.cause}" if trace.reward == 0 and trace.cause else ""


def _reason(
    trace: RoundTrace, failures: Mapping[str, int], seen: Mapping[str, set[str]]
) -> RetainReason | None:
    # The reasons in the order of what can be learned: the first that holds is the one that is
    # recorded.
    if (key := failure_key(trace)) and failures[key] >= REPEATED:
        return RetainReason.REPEATED_FAILURE
    if trace.reward == 0 and (trace.score >= NEAR or trace.last_check):
        return RetainReason.NEAR_MISS
    if (
        trace.reward == 1
        and trace.steps >= MIN_STEPS
        and any(len(seen[p]) >= REPEATED for p in trace.procedures)
    ):
        return RetainReason.REUSABLE_SUCCESS
    return RetainReason.MISMATCH if trace.selected ^ trace.used else None


def hash_text(text: str) -> str:
    """Return the first 16 hexadecimal digits of a text's SHA-256, by which it is recognised without
    being stored.
    """
    # 64 bits: among a million texts a collision has a chance of 3 in 100 million.
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


_FAILING = ("check_failing", "error_loop", "retry_chain", "edit_reverted", "correction")
"""Signals that tell a cause, the most telling first."""


def cause_of(found: Sequence[SessionSignal]) -> str:
    """Return the cause of a failure as its signals show it: a code, with the command where one
    failed.
    """
    for code in _FAILING:
        signal = next(
            (session_signal for session_signal in found if session_signal.code == code), None
        )
        if signal is not None:
            about = signal.key or (signal.said if code == "check_failing" else "")
            return f"{code}:{hash_text(about)}" if about else code
    return ""


def procedures_of(found: Sequence[SessionSignal]) -> tuple[str, ...]:
    """Return the procedures of a session, hashed."""
    return tuple(
        sorted({hash_text(signal.key) for signal in found if signal.code == "procedure"})[
            :MAX_PROCEDURES
        ]
    )


def failed_last_check_only(session: Session) -> bool:
    """Return whether the last check of a session failed and each one before it passed."""
    checks = [
        step.failed
        for step in session_steps(session.spans)
        if step.checks and step.result is not None
    ]
    return len(checks) > 1 and checks[-1] and not any(checks[:-1])
