"""Makes of a candidate what it would change: a resource, the version it starts from, and the whole new content."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from evolvable_store.errors import InvalidArgument
from evolvable_store.frontmatter import parse_document
from evolvable_store.objects import File, Files
from evolvable_store.paths import check_path
from evolvable_store.resource import USER_SCOPE, Kind, Ref, main_file, slugify
from evolvable_tools.library import Caller, Library
from evolvable_tools.memory import add_fact
from evolvable_tools.review.candidates import Candidate, Op, SkillEdit, What

TASKS = Ref(Kind.ENVIRONMENT, "candidate-tasks")
"""Where tasks wait until a person has looked at them; nothing is evaluated by them before."""

_TASKS_TEXT = """\
---
name: candidate-tasks
description: Tasks that reviews of sessions found. None is used before a person marks it reviewed.
---

Each line of tasks.jsonl is a task: its prompt, how it is checked, and the session it is from.
"""
_NEW = {What.SKILL_NEW: Kind.SKILL, What.PROMPT: Kind.PROMPT, What.AGENT: Kind.AGENT}


@dataclass(frozen=True, slots=True)
class Drafted:
    """What a candidate would change. adds: a line that it adds to a file, by which it can be made anew on another base.

    before: the files that it starts from, none for a new resource.
    """

    ref: Ref
    base: int
    before: Files
    files: Files
    adds: Mapping[str, str] | None = None


def drafted(library: Library, caller: Caller, candidate: Candidate, session: str, day: date) -> Drafted:
    """Returns the change of a candidate. Raises InvalidArgument and what the store raises for a name or a path."""
    scope = caller.scopes[0] if candidate.scope == "project" else USER_SCOPE
    if candidate.what is What.SKILL_EDIT:
        return _edited(library, caller, candidate)
    if candidate.what in _NEW:
        return _new(library, candidate, scope)
    if candidate.what is What.TASK:
        return _task(library, candidate, session, scope)
    return _fact(library, candidate, scope, day)


def _edited(library: Library, caller: Caller, candidate: Candidate) -> Drafted:
    head = library.store.head(Ref.parse(candidate.target).at(None), caller.scopes)
    before = library.store.files(head)
    files = dict(before)
    for edit in candidate.edits:
        _apply(files, edit)
    return Drafted(head.ref, head.version or 0, before, files)


def _apply(files: dict[str, File], edit: SkillEdit) -> None:
    path = edit.path or "SKILL.md"
    if path not in files:
        raise InvalidArgument(f"There is no file {path}.", f"The files: {', '.join(sorted(files))}.")
    text = files[path].data.decode("utf-8")
    if edit.op is Op.TIGHTEN:
        text = _retrieval(text, edit)
    else:
        _once(text, edit.old, path)
        if edit.op is Op.ADD_GUARD:
            text = text.replace(edit.old, f"{edit.old}\n{edit.new}")
        elif edit.op is Op.REORDER:
            rest = text.replace(edit.old, "", 1)
            _once(rest, edit.after, path)
            text = re.sub(r"\n{3,}", "\n\n", rest.replace(edit.after, f"{edit.after}\n{edit.old.strip(chr(10))}"))
        elif edit.op is Op.SPLIT:
            to = check_path(edit.to)
            if to in files:
                raise InvalidArgument(f"There is a file {to} already.", "Name another one.")
            files[to] = File((edit.old.strip("\n") + "\n").encode())
            text = text.replace(edit.old, edit.new or f"See [{to}]({to}).")
        else:
            text = text.replace(edit.old, edit.new)
    files[path] = File(text.encode(), files[path].mode)


def _once(text: str, piece: str, path: str) -> None:
    count = text.count(piece) if piece.strip() else 0
    if count != 1:
        found = "is not there" if count == 0 else f"is there {count} times"
        raise InvalidArgument(
            f"The text to change {found} in {path}: {piece.strip()[:60]!r}.", "Take a longer piece of it."
        )


def _retrieval(text: str, edit: SkillEdit) -> str:
    """Returns a document with another description, other triggers, or both; nothing else of it differs."""
    head, fence, body = text.partition("\n---")
    if not fence:
        raise InvalidArgument("The skill has no frontmatter.", "Write one first.")
    if edit.description:
        line = f"description: {json.dumps(' '.join(edit.description.split()), ensure_ascii=False)}"
        head, count = re.subn(r"^description:.*(?:\n[ \t]+.*)*", lambda _: line, head, count=1, flags=re.MULTILINE)
        head = head if count else f"{head}\n{line}"
    if edit.triggers:
        line = f"  triggers: {json.dumps(' '.join(edit.triggers.split()), ensure_ascii=False)}"
        head, count = re.subn(r"^[ \t]+triggers:.*$", lambda _: line, head, count=1, flags=re.MULTILINE)
        if not count:
            has = re.search(r"^metadata:[ \t]*$", head, re.MULTILINE)
            head = f"{head[: has.end()]}\n{line}{head[has.end() :]}" if has else f"{head}\nmetadata:\n{line}"
    made = f"{head}{fence}{body}"
    if parse_document(made.encode()).body != parse_document(text.encode()).body:
        raise InvalidArgument("The frontmatter cannot be edited safely.", "Edit it by hand.")
    return made


def _new(library: Library, candidate: Candidate, scope: str) -> Drafted:
    kind = _NEW[candidate.what]
    name = candidate.name or slugify(
        str(parse_document((candidate.files or {}).get(main_file(kind, ""), "").encode()).fields.get("name", ""))
    )
    ref = Ref.parse(f"{kind}:{name}").within(scope)
    files: Files = {check_path(path): File(text.encode()) for path, text in (candidate.files or {}).items()}
    head = library.store.head_or_none(ref)
    if head is not None and head.version is not None:
        raise InvalidArgument(f"There is a {ref} already.", "Propose an edit of it.")
    return Drafted(ref, 0, {}, files)


def _task(library: Library, candidate: Candidate, session: str, scope: str) -> Drafted:
    ref, before, base = _current(library, TASKS.within(scope))
    line = json.dumps(
        {"prompt": candidate.text, "check": candidate.check, "session": session, "reviewed": False}, ensure_ascii=False
    )
    start = before or {"ENVIRONMENT.md": File(_TASKS_TEXT.encode())}
    return Drafted(ref, base, before, with_line(start, "tasks.jsonl", line), {"path": "tasks.jsonl", "line": line})


def _fact(library: Library, candidate: Candidate, scope: str, day: date) -> Drafted:
    name = Ref.parse(candidate.target or "memory:USER", Kind.MEMORY).name
    ref, before, base = _current(library, Ref(Kind.MEMORY, name, scope))
    added = add_fact(before, name, candidate.text, day)
    return Drafted(ref, base, before, added.files, {"fact": candidate.text, "day": day.isoformat()})


def _current(library: Library, ref: Ref) -> tuple[Ref, Files, int]:
    head = library.store.head_or_none(ref)
    if head is None or head.version is None:
        return ref, {}, 0
    return ref, library.store.files(head), head.version


def with_line(files: Files, path: str, line: str) -> Files:
    """Returns the files with a line more at the end of one, unless it is there."""
    text = files[path].data.decode("utf-8", "replace") if path in files else ""
    if line in text.split("\n"):
        return files
    text = f"{text.rstrip(chr(10))}\n" if text.strip() else ""
    return {**files, path: File(f"{text}{line}\n".encode())}
