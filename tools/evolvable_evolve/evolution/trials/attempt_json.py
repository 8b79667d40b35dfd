"""Attempts as JSON: what a node of a cluster returns is read as data and checked, and never
unpickled.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from evolvable_evolve.evolution.task import (
    CodeOutcome,
    ModelUsage,
    Rollout,
    Score,
    ScoreCheck,
    Solution,
    TrialOutcome,
)
from evolvable_evolve.evolution.trials.trial import TrialAttempt

MAX_ATTEMPT: Final = 64 * 2**20
"""Bytes of one attempt as JSON. A longer one is an infrastructure error."""

_MAX_TOKENS = 10**12  # a node that reports more is wrong, and would spend any budget at once


class InvalidAttempt(ValueError):
    """Bytes that are no attempt. The text says why."""


def encode_attempt(attempt: TrialAttempt) -> bytes:
    """Return an attempt as JSON, without the paths of its workspaces."""
    return json.dumps(asdict(attempt), default=_plain).encode("ascii")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    return None  # the path of a workspace that is gone


def decode_attempt(data: bytes) -> TrialAttempt:
    """Return the attempt that a node sent. Raises InvalidAttempt."""
    if len(data) > MAX_ATTEMPT:
        raise InvalidAttempt(f"it has {len(data):,} bytes, and {MAX_ATTEMPT:,} are allowed")
    try:
        record = json.loads(data)
        return _attempt(record)
    # RecursionError: JSON that is nested too deeply.
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidAttempt(
            f"it is no attempt: {type(error).__name__}: {str(error)[:200]}"
        ) from None


def _attempt(record: Any) -> TrialAttempt:
    outcome = _outcome(record["outcome"])
    if outcome is TrialOutcome.TAMPERED:
        raise InvalidAttempt("only the run itself says that something was tampered with")
    score = None if record["score"] is None else _score(record["score"])
    # `run_job` copies such an outcome; without it an error would count as a result.
    if outcome is None and score is None and record["rollout"]["outcome"] is not None:
        raise InvalidAttempt("it has an outcome in its rollout alone")
    if record["judged"]:
        raise InvalidAttempt("it asked a judge, which no node has")
    return TrialAttempt(
        outcome,
        _rollout(record["rollout"]),
        score,
        _text(record["detail"]),
        _flag(record["lost"]),
        _flag(record["final"]),
        _usage(record["judging"]),
        earlier=tuple(None if score is None else _score(score) for score in record["earlier"]),
    )


def _rollout(record: Any) -> Rollout:
    wait = record["retry_after"]
    return Rollout(
        _text(record["output"]),
        tuple(_text(ref) for ref in record["read"]),
        None if wait is None else _number(wait),
        tuple(map(_solution, record["solutions"])),
        trace=_text(record["trace"]),
        usage=_usage(record["usage"]),
        wall=_number(record["wall"]),
        outcome=_outcome(record["outcome"]),
        detail=_text(record["detail"]),
    )


def _solution(record: Any) -> Solution:
    values = {field.name: record[field.name] for field in fields(Solution)}
    texts = ("task", "text", "trace", "detail", "feedback", "critique")
    return Solution(
        **values
        # By type, because a node is not trusted: a wrong one would fail far from here.
        | {name: _text(values[name]) for name in texts}
        | {
            "attempt": _count(values["attempt"]),
            "files": {_text(path): _text(digest) for path, digest in values["files"].items()},
            "usage": _usage(values["usage"]),
            "wall": _number(values["wall"]),
            "outcome": _outcome(values["outcome"]),
            "workspace": None,
        }
    )


def _score(record: Any) -> Score:
    value = _number(record["value"])
    if value > 1:
        raise InvalidAttempt(f"its score is {value}, which is not within 0 and 1")
    return Score(
        value,
        _text(record["feedback"]),
        _text(record["evidence"]),
        tuple(
            ScoreCheck(
                _text(check["name"]),
                _flag(check["passed"]),
                _text(check["kind"]),
            )
            for check in record["checks"]
        ),
        {_text(name): _number(metric, low=-math.inf) for name, metric in record["metrics"].items()},
        _usage(record["usage"]),
        None if record["code"] is None else CodeOutcome(record["code"]),
    )


def _usage(record: Any) -> ModelUsage:
    cost = None if record["cost"] is None else _number(record["cost"])
    return ModelUsage(
        _count(record["input_tokens"]),
        _count(record["output_tokens"]),
        _count(record["calls"]),
        cost,
    )


def _outcome(value: Any) -> TrialOutcome | None:
    return None if value is None else TrialOutcome(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidAttempt(f"a text is a {type(value).__name__}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidAttempt(f"a flag is a {type(value).__name__}")
    return value


def _count(value: Any) -> int:
    # A bool is an int in Python.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_TOKENS:
        raise InvalidAttempt("a count is no whole number from 0")
    return value


def _number(value: Any, low: float = 0.0) -> float:
    # A negative price or time would give a budget back.
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not math.isfinite(value)
        or value < low
    ):
        raise InvalidAttempt("a number is out of its range")
    return value
