"""What a person sees of a candidate before anything of it runs, or before it is adopted."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from evolvable_tools.evolve import programs
from evolvable_tools.evolve.program import Part, Program
from evolvable_tools.scan.scanner import scan

_MODEL_TOOLS = ("claude", "codex", "anthropic")
_INERT = frozenset((".md", ".txt", ".rst", ".json", ".jsonl", ".yaml", ".yml", ".toml", ".csv", ".tsv"))


@dataclass(frozen=True, slots=True)
class ChangeReview:
    """A change of a program for a person. diff: all of it. capabilities: what it adds. findings: of the scan."""

    diff: str
    capabilities: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


def review_change(before: Program, after: Program) -> ChangeReview:
    """Return the whole difference of two programs with the capabilities it adds and what the scan says about it.

    Pure: runs no code, calls no model.
    """
    gained: dict[str, None] = {}
    found: dict[str, None] = {}
    for part, old in _changed(before, after):
        result = scan(old.files if old is not None else None, part.files, part.kind)
        gained |= dict.fromkeys(f"{part.ref}: {one}" for one in result.capabilities.added)
        found |= dict.fromkeys(f"{one.severity}: {part.ref}: {one}" for one in result.findings)
    return ChangeReview(programs.diff(before, after, most=None), list(gained), list(found))


def what_runs(before: Program, after: Program, executor: str) -> str:
    """Return why a change can be executed by this kind of executor, '' when nothing of it can.

    An executor that gives a model tools can be made to run anything that the model reads.
    """
    if executor == "simulated":
        return ""
    for part, old in _changed(before, after):
        if executor in _MODEL_TOOLS:
            return f"the model that reads {part.ref} has tools"
        was = old.files if old is not None else {}
        for path, data in part.files.items():
            if was.get(path) != data and not _inert(path, data):
                return f"{part.ref} brings or changes {path}, which can be run"
        if scan(was or None, part.files, part.kind).capabilities.added:
            return f"{part.ref} asks for something to be run or reached that it did not before"
    return ""


def _changed(before: Program, after: Program) -> Iterator[tuple[Part, Part | None]]:
    old = {part.ref: part for part in before.parts}
    for part in after.parts:
        known = old.get(part.ref)
        if known is None or known.tree != part.tree:
            yield part, known


def _inert(path: str, data: bytes) -> bool:
    return PurePosixPath(path).suffix.lower() in _INERT and not data.startswith(b"#!") and b"\0" not in data
