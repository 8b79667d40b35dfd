"""Attempts as JSON: what a node of a cluster returns is read as data and checked, and never unpickled."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from evolvable_evolve.evolution.task import CodeOutcome, ModelUsage, Rollout, Score, ScoreCheck, Solution, TrialOutcome
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
        said = json.loads(data)
        return _attempt(said)
    # RecursionError: JSON that is nested too deeply.
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidAttempt(f"it is no attempt: {type(error).__name__}: {str(error)[:200]}") from None


def _attempt(said: Any) -> TrialAttempt:
    outcome = _outcome(said["outcome"])
    if outcome is TrialOutcome.TAMPERED:
        raise InvalidAttempt("only the run itself says that something was tampered with")
    score = None if said["score"] is None else _score(said["score"])
    # `run_job` copies such an outcome; without it an error would count as a result.
    if outcome is None and score is None and said["rollout"]["outcome"] is not None:
        raise InvalidAttempt("it has an outcome in its rollout alone")
    if said["judged"]:
        raise InvalidAttempt("it asked a judge, which no node has")
    return TrialAttempt(
        outcome,
        _rollout(said["rollout"]),
        score,
        _text(said["detail"]),
        _flag(said["lost"]),
        _flag(said["final"]),
        _usage(said["judging"]),
        earlier=tuple(None if one is None else _score(one) for one in said["earlier"]),
    )


def _rollout(said: Any) -> Rollout:
    wait = said["retry_after"]
    return Rollout(
        _text(said["output"]),
        tuple(_text(one) for one in said["read"]),
        None if wait is None else _number(wait),
        tuple(map(_solution, said["solutions"])),
        trace=_text(said["trace"]),
        usage=_usage(said["usage"]),
        wall=_number(said["wall"]),
        outcome=_outcome(said["outcome"]),
        detail=_text(said["detail"]),
    )


def _solution(said: Any) -> Solution:
    known = {one.name: said[one.name] for one in fields(Solution)}
    texts = ("task", "text", "trace", "detail", "feedback", "critique")
    return Solution(
        **known
        # By type, because a node is not trusted: a wrong one would fail far from here.
        | {name: _text(known[name]) for name in texts}
        | {
            "attempt": _count(known["attempt"]),
            "files": {_text(path): _text(digest) for path, digest in known["files"].items()},
            "usage": _usage(known["usage"]),
            "wall": _number(known["wall"]),
            "outcome": _outcome(known["outcome"]),
            "workspace": None,
        }
    )


def _score(said: Any) -> Score:
    value = _number(said["value"])
    if value > 1:
        raise InvalidAttempt(f"its score is {value}, which is not within 0 and 1")
    return Score(
        value,
        _text(said["feedback"]),
        _text(said["evidence"]),
        tuple(ScoreCheck(_text(one["name"]), _flag(one["passed"]), _text(one["kind"])) for one in said["checks"]),
        {_text(name): _number(one, low=-math.inf) for name, one in said["metrics"].items()},
        _usage(said["usage"]),
        None if said["code"] is None else CodeOutcome(said["code"]),
    )


def _usage(said: Any) -> ModelUsage:
    cost = None if said["cost"] is None else _number(said["cost"])
    return ModelUsage(_count(said["input_tokens"]), _count(said["output_tokens"]), _count(said["calls"]), cost)


def _outcome(said: Any) -> TrialOutcome | None:
    return None if said is None else TrialOutcome(said)


def _text(said: Any) -> str:
    if not isinstance(said, str):
        raise InvalidAttempt(f"a text is a {type(said).__name__}")
    return said


def _flag(said: Any) -> bool:
    if not isinstance(said, bool):
        raise InvalidAttempt(f"a flag is a {type(said).__name__}")
    return said


def _count(said: Any) -> int:
    # A bool is an int in Python.
    if not isinstance(said, int) or isinstance(said, bool) or not 0 <= said <= _MAX_TOKENS:
        raise InvalidAttempt("a count is no whole number from 0")
    return said


def _number(said: Any, low: float = 0.0) -> float:
    # A negative price or time would give a budget back.
    if not isinstance(said, int | float) or isinstance(said, bool) or not math.isfinite(said) or said < low:
        raise InvalidAttempt("a number is out of its range")
    return said
