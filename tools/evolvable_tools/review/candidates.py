"""What a review may propose, in one schema: parsed, or refused with what is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MAX_CANDIDATES = 8
"""Candidates of one review."""

MAX_EDITS = 4
"""Edits of one skill."""

MAX_EDIT = 2_000
"""Characters of one edit."""

MAX_FACT = 300
"""Characters of a fact or a preference."""

MAX_FILES = 12
"""Files of a new resource."""


class What(StrEnum):
    """What a candidate is."""

    SKILL_EDIT = "skill-edit"
    SKILL_NEW = "skill-new"
    FACT = "memory-fact"
    PREFERENCE = "preference"
    PROMPT = "prompt"
    AGENT = "agent"
    TASK = "task"


class Op(StrEnum):
    """What an edit does."""

    ADD_GUARD = "add-guard"
    """Adds `new` after `old`; nothing goes."""

    REORDER = "reorder-step"
    """Moves `old` behind `after`."""

    TIGHTEN = "tighten-retrieval"
    """Replaces the description, the triggers, or both; the text stays."""

    SPLIT = "split"
    """Moves `old` into the new file `to`, and leaves `new` in its place."""

    TEXT = "text"
    """Replaces `old` by `new`."""


@dataclass(frozen=True, slots=True)
class Cited:
    """A span, and words of it."""

    span: str
    quote: str


@dataclass(frozen=True, slots=True)
class SkillEdit:
    """One bounded edit; which of the texts it needs depends on `op`."""

    op: Op
    path: str = "SKILL.md"
    old: str = ""
    new: str = ""
    after: str = ""
    to: str = ""
    description: str = ""
    triggers: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One change that a review thinks of. text: a fact, a preference, or a task's prompt; check: how it is checked."""

    what: What
    claim: str
    evidence: tuple[Cited, ...]
    target: str = ""
    name: str = ""
    edits: tuple[SkillEdit, ...] = ()
    files: Mapping[str, str] | None = None
    text: str = ""
    check: str = ""
    scope: str = "user"
    counter_evidence: str = ""
    expected_signal: str = ""
    risk: str = ""

    @property
    def content(self) -> str:
        """Everything that would be kept or read by a model later, as one text."""
        edits = (f"{e.new}\n{e.to}\n{e.description}\n{e.triggers}" for e in self.edits)
        files = (f"{path}\n{text}" for path, text in (self.files or {}).items())
        return "\n".join(part for part in (self.claim, self.name, self.text, self.check, *edits, *files) if part)


def _texts(*names: str) -> dict[str, Any]:
    return {name: {"type": "string"} for name in names}


def _closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required or properties),
        "additionalProperties": False,
    }


_CITED = _closed(_texts("span", "quote"))
_EDIT = _closed(
    {
        "op": {"type": "string", "enum": list(Op)},
        **_texts("path", "old", "new", "after", "to", "description", "triggers"),
    },
    "op",
)
_FILE = _closed(_texts("path", "text"))

CANDIDATE: dict[str, Any] = _closed(
    {
        "kind": {"type": "string", "enum": list(What)},
        **_texts("claim", "target", "name", "text", "check", "counter_evidence", "expected_signal", "risk"),
        "evidence": {"type": "array", "items": _CITED},
        "edits": {"type": "array", "items": _EDIT},
        "files": {"type": "array", "items": _FILE},
        "scope": {"type": "string", "enum": ["user", "project"]},
    },
    "kind",
    "claim",
    "evidence",
)
"""JSON schema of one candidate, as a model and a tool are given it."""

SCHEMA: dict[str, Any] = _closed(
    {"candidates": {"type": "array", "items": CANDIDATE}, "why_none": {"type": "string"}}, "candidates"
)
"""JSON schema of an answer."""


def parsed(given: Mapping[str, Any]) -> Candidate:
    """Returns a candidate. Raises ValueError, which says what does not fit the schema."""
    from jsonschema import Draft202012Validator  # late: nobody pays for it before the first review
    from jsonschema.exceptions import best_match

    fault = best_match(Draft202012Validator(CANDIDATE).iter_errors(given))
    if fault is not None:
        where = ".".join(map(str, fault.absolute_path))
        raise ValueError(f"{where}: {fault.message[:200]}" if where else fault.message[:200])
    files = {file["path"]: file["text"] for file in given.get("files", ())}
    texts = {
        key: given.get(key, "").strip()
        for key in ("target", "name", "check", "counter_evidence", "expected_signal", "risk")
    }
    return Candidate(
        what=What(given["kind"]),
        claim=" ".join(given["claim"].split()),
        evidence=tuple(Cited(one["span"], one["quote"]) for one in given["evidence"]),
        edits=tuple(SkillEdit(**{**edit, "op": Op(edit["op"])}) for edit in given.get("edits", ())),
        files=files or None,
        text=given.get("text", "").strip(),
        scope=given.get("scope", "user"),
        **texts,
    )
