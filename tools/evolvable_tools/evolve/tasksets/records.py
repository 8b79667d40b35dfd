"""What one task looks like as it is written, and what can be wrong with that."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from evolvable_store.paths import path_problem
from evolvable_tools.evolve.scorers.scoring import argument_problem
from evolvable_tools.evolve.task import ScorerSpec, Split

AUTO = "auto"
"""The split of a task that says none: it is dealt out by its id."""

DEFAULT_SCORER = "numeric_strict"
DEFAULT_SECONDS = 600.0
MAX_SECONDS = 86_400

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TEXT = {"type": "string"}
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": rf"^{_ID.pattern}\Z"},
        "prompt": {"type": "string", "pattern": r"\S"},
        "category": {"type": "string", "pattern": r"\S", "maxLength": 100},
        "files": {"type": ["string", "null"]},
        "setup": {
            "type": "array",
            "items": {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
        },
        "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_SECONDS},
        "scorer": {
            "anyOf": [
                _TEXT,
                {
                    "type": "object",
                    "properties": {"type": _TEXT, "args": {"type": "object"}},
                    "required": ["type"],
                    "additionalProperties": False,
                },
            ]
        },
        "expected": {},
        "weight": {"type": "number", "exclusiveMinimum": 0, "maximum": 1000},
        "split": {"enum": [*Split, AUTO]},
        "tags": {"type": "array", "items": _TEXT},
        "source": {"type": "string", "pattern": r"^(human|synthetic|session:\S+)$"},
    },
    "required": ["id", "prompt"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Record:
    """One task as it is written, with every default filled in; `split` is None where it is to be dealt out."""

    id: str
    prompt: str
    scorer: ScorerSpec
    expected: str | None
    category: str
    files: str | None
    setup: tuple[tuple[str, ...], ...]
    timeout_s: float
    weight: float
    split: Split | None
    tags: tuple[str, ...]
    source: str


def read_record(said: Any) -> tuple[Record | None, list[str]]:
    """Returns the record that a JSON value says, or None and everything that is wrong with it."""
    if not isinstance(said, dict):
        return None, ["a task is a JSON object"]
    try:
        json.dumps(said, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return None, ["it is not valid Unicode: it has half of a character (\\ud800 to \\udfff)"]
    faults = sorted(_validator().iter_errors(said), key=lambda error: error.json_path)
    problems = [_plain(error.json_path, error.message) for error in faults]
    if problems:
        return None, problems
    record = _record(said)
    problems = [
        problem for problem in (argument_problem(record.scorer, record.expected), _folder(record.files)) if problem
    ]
    return (None if problems else record), problems


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator  # late: it is slow to import

    return Draft202012Validator(_SCHEMA)


def _record(said: Mapping[str, Any]) -> Record:
    scorer = said.get("scorer", DEFAULT_SCORER)
    spec = ScorerSpec(scorer) if isinstance(scorer, str) else ScorerSpec(scorer["type"], scorer.get("args", {}))
    split = said.get("split", AUTO)
    return Record(
        id=said["id"],
        prompt=said["prompt"],
        scorer=spec,
        expected=_expected(said.get("expected")),
        category=" ".join(said.get("category", "other").split()),
        files=(said.get("files") or "").strip("/") or None if said.get("files") is not None else None,
        setup=tuple(tuple(command) for command in said.get("setup", [])),
        timeout_s=float(said.get("timeout_s", DEFAULT_SECONDS)),
        weight=float(said.get("weight", 1.0)),
        split=None if split == AUTO else Split(split),
        tags=tuple(said.get("tags", [])),
        source=said.get("source", "human"),
    )


def _expected(value: Any) -> str | None:
    """Returns the expected answer as a text; what is not one is written as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _folder(path: str | None) -> str:
    reason = path_problem(path) if path is not None else ""
    return f"files names {ascii(path)}, which is no folder inside a task set: {reason}" if reason else ""


def _plain(where: str, message: str) -> str:
    """Returns a fault of the schema as a sentence about a field, without the whole value in it."""
    field = where.removeprefix("$").lstrip(".")
    short = message if len(message) <= 160 else f"...{message[-150:]}"
    hint = ""
    if field.startswith("setup"):
        hint = '; setup is a list of commands, each a list of arguments such as ["git", "init"]'
    return f"{field}: {short}{hint}" if field else f"{short}{hint}"
