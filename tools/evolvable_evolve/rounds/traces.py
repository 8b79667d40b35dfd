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
"""Number from which failures of one task type with one cause, or sessions with one procedure, are a
pattern.
"""

MIN_STEPS = 3
"""Steps of a session from which its procedure may be worth keeping."""

NEAR = 0.5
"""Score from which a failure is a near miss: that of a partial success."""

MAX_PROCEDURES = 8
"""Procedures of a session that are compared with those of others."""


class RetainReason(StrEnum):
    """Why a trace is retained."""

    REPEATED_FAILURE = "repeated-failure"
    NEAR_MISS = "near-miss"
    REUSABLE_SUCCESS = "reusable-success"
    MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True)
class RoundTrace:
    """One session or trial, cut for its agent.

    reward: 1 or 0, None where the end is not verified. selected: refs of the skills that were shown
    or loaded; used: of those that were followed. steps: calls of tools. cause, procedures: keys by
    which a like failure and a like procedure are recognised. Both are hashes: no text of a session
    is kept. last_check: whether the last check alone failed.
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
        """The key of the changes that follow from the trace: the skill that it used or was shown,
        else its task type and procedure.
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
    """Return the traces that are retained: by cluster, of each the newest PER_CLUSTER, the newest
    first.

    failures: how many failures of each `failure_key` earlier rounds had. procedures: the sessions
    of earlier rounds that had a procedure. A trace without a verified end is never retained.
    """
    rewarded = [trace for trace in traces if trace.reward is not None]
    counts = Counter(failures or {})
    counts.update(key for trace in rewarded if (key := failure_key(trace)))
    sessions_of: dict[str, set[str]] = defaultdict(set)
    for procedure, sessions in (procedures or {}).items():
        sessions_of[procedure].update(sessions)
    for trace in rewarded:
        for procedure in trace.procedures if trace.reward else ():
            sessions_of[procedure].add(trace.id)
    by_cluster: dict[str, list[RetainedTrace]] = defaultdict(list)
    # By id where two are of one moment, so that the order of the input changes nothing.
    for trace in sorted(rewarded, key=lambda trace: (trace.at, trace.id), reverse=True):
        reason = _find_reason(trace, counts, sessions_of)
        if reason is not None and len(by_cluster[trace.cluster]) < PER_CLUSTER:
            by_cluster[trace.cluster].append(RetainedTrace(trace, reason))
    return [retained for cluster in sorted(by_cluster) for retained in by_cluster[cluster]]


def failure_key(trace: RoundTrace) -> str:
    """Return the key of a failure: its task type and its cause; '' for a success, or without a
    cause.
    """
    return f"{trace.task_type}|{trace.cause}" if trace.reward == 0 and trace.cause else ""


def _find_reason(
    trace: RoundTrace, failures: Mapping[str, int], sessions_of: Mapping[str, set[str]]
) -> RetainReason | None:
    """Return why a trace is retained, None where it is not.

    failures: counts by `failure_key`. sessions_of: the sessions that had a procedure.
    """
    # Several reasons may hold: the first is recorded, in the order of how much can be learned.
    if (key := failure_key(trace)) and failures[key] >= REPEATED:
        return RetainReason.REPEATED_FAILURE
    if trace.reward == 0 and (trace.score >= NEAR or trace.last_check):
        return RetainReason.NEAR_MISS
    repeated = any(len(sessions_of[p]) >= REPEATED for p in trace.procedures)
    if trace.reward == 1 and trace.steps >= MIN_STEPS and repeated:
        return RetainReason.REUSABLE_SUCCESS
    return RetainReason.MISMATCH if trace.selected ^ trace.used else None


def hash_text(text: str) -> str:
    """Return the first 16 hexadecimal digits of a text's SHA-256, by which it is recognised without
    being stored.
    """
    # 64 bits: among a million texts a collision has a chance of 3 in 100 million.
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


_CAUSE_CODES = ("check_failing", "error_loop", "retry_chain", "edit_reverted", "correction")
"""Codes of the signals that show a cause, the most specific first."""


def cause_of(signals: Sequence[SessionSignal]) -> str:
    """Return the cause of a failure as its signals show it, '' for none.

    It is a code, with the hash of the command where one failed.
    """
    for code in _CAUSE_CODES:
        signal = next((signal for signal in signals if signal.code == code), None)
        if signal is not None:
            command = signal.key or (signal.said if code == "check_failing" else "")
            return f"{code}:{hash_text(command)}" if command else code
    return ""


def procedures_of(signals: Sequence[SessionSignal]) -> tuple[str, ...]:
    """Return the procedures of a session, hashed."""
    hashes = {hash_text(signal.key) for signal in signals if signal.code == "procedure"}
    return tuple(sorted(hashes)[:MAX_PROCEDURES])


def failed_last_check_only(session: Session) -> bool:
    """Return whether the last check of a session failed and each one before it passed."""
    checks = [
        step.failed
        for step in session_steps(session.spans)
        if step.checks and step.result is not None
    ]
    return len(checks) > 1 and checks[-1] and not any(checks[:-1])
