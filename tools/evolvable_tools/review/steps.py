"""A session as steps: each call of a tool with what came of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evolvable_tools.review.commands import command_of, ended_badly, is_check, normal, was_refused
from evolvable_tools.sessions.session import Span


@dataclass(frozen=True, slots=True)
class Step:
    """One call. result: None when the session ends before it. key: what two like calls have in common."""

    call: Span
    result: Span | None
    command: str
    key: str
    failed: bool

    @property
    def checks(self) -> bool:
        """Whether it is a command whose end tells if the work is right."""
        return is_check(self.command)


def steps(spans: Sequence[Span]) -> list[Step]:
    """Returns the calls of a session in order, each with its result; none that was refused before it ran."""
    results = {span.call_id: span for span in spans if span.call_id is not None and span.input is None}
    found = (_step(span, results.get(span.call_id or "")) for span in spans if span.tool and span.input is not None)
    return [step for step in found if not refused(step.result)]


def refused(result: Span | None) -> bool:
    """Returns whether a result is none: a person, or a setting, did not let the call happen."""
    return result is not None and result.is_error and was_refused(result.text)


def _step(call: Span, result: Span | None) -> Step:
    given: Mapping[str, Any] = call.input or {}
    command = command_of(given)
    key = f"$ {normal(command)}" if command else f"{call.tool} {_subject(given)}"
    bad = result is not None and (ended_badly(command, result.text, result.is_error) if command else result.is_error)
    return Step(call, result, command, key, bad)


def _subject(given: Mapping[str, Any]) -> str:
    """Returns what a call is about: a file, a question, an address."""
    for name in ("file_path", "path", "notebook_path", "pattern", "url", "query", "skill", "ref"):
        if isinstance(given.get(name), str):
            return str(given[name])[:200]
    return ""


@dataclass(frozen=True, slots=True)
class FileEdit:
    """One replacement in a file."""

    step: Step
    path: str
    old: str
    new: str


def file_edits(all_steps: Sequence[Step]) -> Iterator[FileEdit]:
    """Yields the replacements that succeeded, in order: of Edit and MultiEdit, and the hunks of an applied patch."""
    for step in all_steps:
        given: Mapping[str, Any] = step.call.input or {}
        if step.failed:
            continue
        path = str(given.get("file_path") or given.get("path") or "")
        several = given.get("edits")
        for edit in several if isinstance(several, list) else [given]:
            if isinstance(edit, Mapping) and isinstance(edit.get("old_string"), str):
                yield FileEdit(step, path, str(edit["old_string"]), str(edit.get("new_string", "")))
        patch = next((given[name] for name in ("patch", "input") if isinstance(given.get(name), str)), step.command)
        if "*** Begin Patch" in patch:
            yield from _hunks(step, patch)


def _hunks(step: Step, patch: str) -> Iterator[FileEdit]:
    path, old, new = "", list[str](), list[str]()
    for line in [*patch.split("\n"), "@@"]:
        if line.startswith(("@@", "*** ")):
            if old or new:
                yield FileEdit(step, path, "\n".join(old), "\n".join(new))
            old, new = [], []
            if line.startswith("*** ") and ": " in line:
                path = line.partition(": ")[2].strip()
        elif line.startswith("-"):
            old.append(line[1:])
        elif line.startswith("+"):
            new.append(line[1:])
