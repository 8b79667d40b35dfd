"""What comes of running a task: the rollout, its score, and the outcome that is counted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Outcome(StrEnum):
    """How one trial ended. Only the first three are verdicts on the program; an infrastructure error never scores 0."""

    PASS = "pass"
    FAIL = "fail"
    AGENT_TIMEOUT = "agent_timeout"
    INFRA_ERROR = "infra_error"
    TAMPERED = "tampered"
    REFUSED = "refused"

    @property
    def counts(self) -> bool:
        """Whether the trial says something about the program (and may be cached)."""
        return self in (Outcome.PASS, Outcome.FAIL, Outcome.AGENT_TIMEOUT)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a trial spent. `cost` is in US dollars, None where the price is unknown (never 0 for want of a price)."""

    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """What an executor made of one task.

    `outcome` is set only where the executor knows it without a score (agent_timeout, infra_error, refused), with
    `detail` saying why; else None and the scorer decides. `read` names the parts that were really read. `wall` is in
    seconds. `trace` is what a proposer may see of the way, already redacted. `retry_after` is None unless the provider
    asked to be left alone: for so many seconds, or 0 when it did not say how long.
    """

    output: str
    trace: str = ""
    usage: Usage = Usage()
    wall: float = 0.0
    read: tuple[str, ...] = ()
    outcome: Outcome | None = None
    detail: str = ""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a command scorer; `kind` is `outcome` (the result is right) or `shape` (it only looks right)."""

    name: str
    passed: bool
    kind: str = "outcome"


@dataclass(frozen=True, slots=True)
class Score:
    """What a scorer says: `value` in [0, 1].

    `feedback` is the only text a proposer may see; `evidence` goes to the ledger alone. `usage` is what scoring took,
    where a model was asked.
    """

    value: float
    feedback: str = ""
    evidence: str = ""
    checks: tuple[Check, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Trial:
    """One task run once under one program, as it is counted. `score` is None unless the outcome counts.

    `key` is the hash of everything that decides the result. `cached` says that nothing was spent this time; `usage`
    then is what it cost originally. `judging` is what scoring it cost, which is not in `usage`.
    """

    key: str
    task: str
    program: str
    repeat: int
    outcome: Outcome
    score: float | None
    usage: Usage
    wall: float
    output: str = ""
    trace: str = ""
    feedback: str = ""
    read: tuple[str, ...] = ()
    detail: str = ""
    cached: bool = False
    judging: Usage = Usage()
