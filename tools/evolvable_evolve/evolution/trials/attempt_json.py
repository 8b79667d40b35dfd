"""Attempts as JSON: the answer of a cluster's node is parsed as data, checked, never unpickled."""

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

# A node that reports more tokens is wrong, and would spend any budget at once.
_MAX_TOKENS = 10**12


class InvalidAttempt(ValueError):
    """Bytes that are no attempt. The text says why."""


def encode_attempt(attempt: TrialAttempt) -> bytes:
    """Return an attempt as JSON, without the paths of its workspaces."""
    return json.dumps(asdict(attempt), default=_convert_value).encode("ascii")


def _convert_value(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    return None  # the path of a workspace that is gone


def decode_attempt(data: bytes) -> TrialAttempt:
    """Return the attempt that a node sent. Raises InvalidAttempt."""
    if len(data) > MAX_ATTEMPT:
        raise InvalidAttempt(f"it has {len(data):,} bytes, and {MAX_ATTEMPT:,} are allowed")
    try:
        record = json.loads(data)
        return _parse_attempt(record)
    # RecursionError: JSON that is nested too deeply.
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise InvalidAttempt(f"it is no attempt: {reason}") from None


def _parse_attempt(record: Any) -> TrialAttempt:
    outcome = _parse_outcome(record["outcome"])
    if outcome is TrialOutcome.TAMPERED:
        raise InvalidAttempt("only the run itself says that something was tampered with")
    score = None if record["score"] is None else _parse_score(record["score"])
    # `run_job` copies such an outcome; without it an error would count as a result.
    if outcome is None and score is None and record["rollout"]["outcome"] is not None:
        raise InvalidAttempt("it has an outcome in its rollout alone")
    if record["judged"]:
        raise InvalidAttempt("it asked a judge, which no node has")
    return TrialAttempt(
        outcome,
        _parse_rollout(record["rollout"]),
        score,
        _check_text(record["detail"]),
        _check_flag(record["lost"]),
        _check_flag(record["final"]),
        _parse_usage(record["judging"]),
        earlier=tuple(
            None if score is None else _parse_score(score) for score in record["earlier"]
        ),
    )


def _parse_rollout(record: Any) -> Rollout:
    wait = record["retry_after"]
    return Rollout(
        _check_text(record["output"]),
        tuple(_check_text(ref) for ref in record["read"]),
        None if wait is None else _check_number(wait),
        tuple(map(_parse_solution, record["solutions"])),
        trace=_check_text(record["trace"]),
        usage=_parse_usage(record["usage"]),
        wall=_check_number(record["wall"]),
        outcome=_parse_outcome(record["outcome"]),
        detail=_check_text(record["detail"]),
    )


def _parse_solution(record: Any) -> Solution:
    values = {field.name: record[field.name] for field in fields(Solution)}
    texts = ("task", "text", "trace", "detail", "feedback", "critique")
    return Solution(
        **values
        # By type, because a node is not trusted: a wrong one would fail far from here.
        | {name: _check_text(values[name]) for name in texts}
        | {
            "attempt": _check_count(values["attempt"]),
            "files": {
                _check_text(path): _check_text(digest) for path, digest in values["files"].items()
            },
            "usage": _parse_usage(values["usage"]),
            "wall": _check_number(values["wall"]),
            "outcome": _parse_outcome(values["outcome"]),
            "workspace": None,
        }
    )


def _parse_score(record: Any) -> Score:
    value = _check_number(record["value"])
    if value > 1:
        raise InvalidAttempt(f"its score is {value}, which is not within 0 and 1")
    metrics = record["metrics"].items()
    return Score(
        value,
        _check_text(record["feedback"]),
        _check_text(record["evidence"]),
        tuple(map(_parse_check, record["checks"])),
        {_check_text(name): _check_number(metric, low=-math.inf) for name, metric in metrics},
        _parse_usage(record["usage"]),
        None if record["code"] is None else CodeOutcome(record["code"]),
    )


def _parse_check(record: Any) -> ScoreCheck:
    name, passed = _check_text(record["name"]), _check_flag(record["passed"])
    return ScoreCheck(name, passed, _check_text(record["kind"]))


def _parse_usage(record: Any) -> ModelUsage:
    cost = None if record["cost"] is None else _check_number(record["cost"])
    return ModelUsage(
        _check_count(record["input_tokens"]),
        _check_count(record["output_tokens"]),
        _check_count(record["calls"]),
        cost,
    )


def _parse_outcome(value: Any) -> TrialOutcome | None:
    return None if value is None else TrialOutcome(value)


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidAttempt(f"a text is a {type(value).__name__}")
    return value


def _check_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidAttempt(f"a flag is a {type(value).__name__}")
    return value


def _check_count(value: Any) -> int:
    # A bool is an int in Python.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_TOKENS:
        raise InvalidAttempt("a count is no whole number from 0")
    return value


def _check_number(value: Any, low: float = 0.0) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidAttempt("a number is out of its range")
    # Not below `low`: a negative price or time would give a budget back.
    if not math.isfinite(value) or value < low:
        raise InvalidAttempt("a number is out of its range")
    return value
