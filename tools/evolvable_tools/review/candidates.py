"""The candidates of a review: their schema, how they are parsed, and the change that each makes to
a resource.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any

from evolvable_store import File, Files, check_path, parse_document
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import USER_SCOPE, Kind, Ref, main_file, slugify
from evolvable_tools.caller import Caller
from evolvable_tools.file_edits import TextEdit, append_line, apply_edit
from evolvable_tools.library import Library
from evolvable_tools.llm import schema_problem
from evolvable_tools.verbs import add_fact

# The limits below bound what one answer of a model can put into the inbox for a person to read.
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


class CandidateKind(StrEnum):
    """What a candidate is."""

    SKILL_EDIT = "skill-edit"
    SKILL_NEW = "skill-new"
    FACT = "memory-fact"
    PREFERENCE = "preference"
    PROMPT = "prompt"
    AGENT = "agent"
    TASK = "task"


class SkillEditOp(StrEnum):
    """What an edit does."""

    ADD_GUARD = "add-guard"
    """Adds `new` after `old`. Nothing goes."""

    REORDER = "reorder-step"
    """Moves `old` behind `after`."""

    TIGHTEN = "tighten-retrieval"
    """Replaces the description, the triggers, or both. The text stays."""

    SPLIT = "split"
    """Moves `old` into the new file `to`, and leaves `new` in its place."""

    TEXT = "text"
    """Replaces `old` by `new`."""


@dataclass(frozen=True, slots=True)
class Citation:
    """A span, and words of it."""

    span: str
    quote: str


@dataclass(frozen=True, slots=True)
class SkillEdit:
    """One bounded edit. Which of the texts it needs depends on `op`."""

    op: SkillEditOp
    path: str = "SKILL.md"
    old: str = ""
    new: str = ""
    after: str = ""
    to: str = ""
    description: str = ""
    triggers: str = ""


@dataclass(frozen=True, slots=True)
class ReviewCandidate:
    """One change that a review proposes.

    text: a fact, a preference, or a task's prompt. check: how it is checked.
    """

    what: CandidateKind
    claim: str
    evidence: tuple[Citation, ...]
    target: str = ""
    name: str = ""
    edits: tuple[SkillEdit, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
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
        files = (f"{path}\n{text}" for path, text in self.files.items())
        return "\n".join(
            part for part in (self.claim, self.name, self.text, self.check, *edits, *files) if part
        )


SCHEMA: dict[str, Any] = json.loads(
    Path(__file__).with_name("answer.schema.json").read_text("utf-8")
)
"""JSON schema of an answer, as a model and a tool are given it."""

CANDIDATE: dict[str, Any] = SCHEMA["properties"]["candidates"]["items"]
"""JSON schema of one candidate."""


def parse_candidate(answer: Mapping[str, Any]) -> ReviewCandidate:
    """Return a candidate. Raises ValueError, which says what does not fit the schema."""
    if fault := schema_problem(answer, CANDIDATE):
        raise ValueError(fault)
    texts = ("target", "name", "text", "check", "counter_evidence", "expected_signal", "risk")
    return ReviewCandidate(
        what=CandidateKind(answer["kind"]),
        claim=" ".join(answer["claim"].split()),
        evidence=tuple(Citation(**citation) for citation in answer["evidence"]),
        edits=tuple(
            SkillEdit(**{**edit, "op": SkillEditOp(edit["op"])}) for edit in answer.get("edits", ())
        ),
        files={file["path"]: file["text"] for file in answer.get("files", ())},
        scope=answer.get("scope", "user"),
        **{key: answer.get(key, "").strip() for key in texts},
    )


TASKS = Ref(Kind.ENVIRONMENT, "candidate-tasks")
"""Where tasks wait until a person has looked at them. Nothing is evaluated by them before."""

NEW_KINDS = {
    CandidateKind.SKILL_NEW: Kind.SKILL,
    CandidateKind.PROMPT: Kind.PROMPT,
    CandidateKind.AGENT: Kind.AGENT,
}


@dataclass(frozen=True, slots=True)
class CandidateDraft:
    """The change of a candidate. adds: a line that it adds to a file, which allows applying it to
    another base.

    before: the files that it starts from, none for a new resource.
    """

    ref: Ref
    base: int
    before: Files
    files: Files
    adds: Mapping[str, str] | None = None


_OF_PROJECT = re.compile(
    r"\b(?:this|our)\s+(?:project|repo(?:sitory)?|code\s?base|service|monorepo|package)\b",
    re.IGNORECASE,
)


def is_of_project(candidate: ReviewCandidate) -> bool:
    """Return whether a fact is one of the project that is open and not of the person, by its words
    or the quoted.
    """
    if candidate.what is not CandidateKind.FACT:
        return False
    texts = (candidate.text, *(cited.quote for cited in candidate.evidence))
    return any(_OF_PROJECT.search(text) for text in texts)


def draft_change(
    library: Library, caller: Caller, candidate: ReviewCandidate, session: str, day: date
) -> CandidateDraft:
    """Return the change of a candidate.

    Raises InvalidArgument and what the store raises for a name or a path.
    """
    for_project = candidate.scope == "project" or is_of_project(candidate)
    scope = caller.scopes[0] if for_project else USER_SCOPE
    if candidate.what is CandidateKind.SKILL_EDIT:
        return _draft_edit(library, caller, candidate)
    if candidate.what in NEW_KINDS:
        return _draft_new(library, candidate, scope)
    if candidate.what is CandidateKind.TASK:
        return _draft_task(library, candidate, session, scope)
    return _draft_fact(library, candidate, scope, day)


def _draft_edit(library: Library, caller: Caller, candidate: ReviewCandidate) -> CandidateDraft:
    head = library.store.head(Ref.parse(candidate.target).at(None), caller.scopes)
    before = library.store.files(head)
    files = dict(before)
    for edit in candidate.edits:
        _apply(files, edit, head.ref)
    return CandidateDraft(head.ref, head.version or 0, before, files)


def _apply(files: dict[str, File], edit: SkillEdit, ref: Ref) -> None:
    path = edit.path or "SKILL.md"
    if path not in files:
        raise InvalidArgument(
            f"There is no file {path}.", f"The files: {', '.join(sorted(files))}."
        )
    if edit.op is SkillEditOp.TIGHTEN:
        text = _edit_frontmatter(files[path].data.decode("utf-8"), edit)
        files[path] = File(text.encode(), files[path].mode)
        return
    if not edit.old.strip():
        raise InvalidArgument(
            f"The edit of {path} names no text to change.", "Give a piece of it as old."
        )
    new, after = edit.new, None
    if edit.op is SkillEditOp.ADD_GUARD:
        new = f"{edit.old}\n{edit.new}"
    elif edit.op is SkillEditOp.REORDER:
        new = ""
        after = TextEdit(path, edit.after, f"{edit.after}\n{edit.old.strip(chr(10))}")
    elif edit.op is SkillEditOp.SPLIT:
        to = check_path(edit.to)
        if to in files:
            raise InvalidArgument(f"There is a file {to} already.", "Name another one.")
        new = edit.new or f"See [{to}]({to})."
    apply_edit(files, TextEdit(path, edit.old, new), ref)
    # The new file is written only after the old text was found, so a failed edit adds no file.
    if edit.op is SkillEditOp.SPLIT:
        files[to] = File((edit.old.strip("\n") + "\n").encode())
    if after is not None:
        apply_edit(files, after, ref)
        # Moving a paragraph leaves two blank lines in its old place.
        data = re.sub(rb"(\r?\n)(?:\r?\n){2,}", rb"\1\1", files[path].data)
        files[path] = File(data, files[path].mode)


def _edit_frontmatter(text: str, edit: SkillEdit) -> str:
    """Return a document with another description, other triggers, or both.

    Nothing else of it differs.
    """
    head, fence, body = text.partition("\n---")
    if not fence:
        raise InvalidArgument("The skill has no frontmatter.", "Write one first.")
    if edit.description:
        line = f"description: {json.dumps(' '.join(edit.description.split()), ensure_ascii=False)}"
        # A description may go on in indented lines (YAML block), which are replaced with it.
        head, count = re.subn(
            r"^description:.*(?:\n[ \t]+.*)*", lambda _: line, head, count=1, flags=re.MULTILINE
        )
        head = head if count else f"{head}\n{line}"
    if edit.triggers:
        line = f"  triggers: {json.dumps(' '.join(edit.triggers.split()), ensure_ascii=False)}"
        head, count = re.subn(
            r"^[ \t]+triggers:.*$", lambda _: line, head, count=1, flags=re.MULTILINE
        )
        metadata = None if count else re.search(r"^metadata:[ \t]*$", head, re.MULTILINE)
        if metadata is not None:
            head = f"{head[: metadata.end()]}\n{line}{head[metadata.end() :]}"
        elif not count:
            head = f"{head}\nmetadata:\n{line}"
    document = f"{head}{fence}{body}"
    # `\n---` may stand inside a value of the frontmatter; then the wrong place was split.
    if parse_document(document.encode()).body != parse_document(text.encode()).body:
        raise InvalidArgument("The frontmatter cannot be edited safely.", "Edit it by hand.")
    return document


def _draft_new(library: Library, candidate: ReviewCandidate, scope: str) -> CandidateDraft:
    kind = NEW_KINDS[candidate.what]
    fields = parse_document(candidate.files.get(main_file(kind, ""), "").encode()).fields
    name = candidate.name or slugify(str(fields.get("name", "")))
    ref = Ref.parse(f"{kind}:{name}").within(scope)
    files: Files = {check_path(path): File(text.encode()) for path, text in candidate.files.items()}
    head = library.store.head_or_none(ref)
    if head is not None and head.version is not None:
        raise InvalidArgument(f"There is a {ref} already.", "Propose an edit of it.")
    return CandidateDraft(ref, 0, {}, files)


def _draft_task(
    library: Library, candidate: ReviewCandidate, session: str, scope: str
) -> CandidateDraft:
    ref, before, base = _read_current(library, TASKS.within(scope))
    # The id follows from session and text: the same task proposed again gets the same id.
    key = f"{session}\n{candidate.text}".encode("utf-8", "replace")
    task: dict[str, Any] = {
        "id": f"session-{hashlib.sha256(key).hexdigest()[:12]}",
        "prompt": candidate.text,
        "check": candidate.check,
        "source": f"session:{'-'.join(session.split())}",
        "reviewed": False,
    }
    adds = {"path": "tasks.jsonl", "line": json.dumps(task, ensure_ascii=False)}
    document = File(Path(__file__).with_name("candidate_tasks.md").read_text("utf-8").encode())
    files = append_line(before or {"ENVIRONMENT.md": document}, **adds)
    return CandidateDraft(ref, base, before, files, adds)


def _draft_fact(
    library: Library, candidate: ReviewCandidate, scope: str, day: date
) -> CandidateDraft:
    # memory:PROJECT/USER is about a person, and no client reads it in the project's own files.
    target = "memory:MEMORY" if is_of_project(candidate) else candidate.target or "memory:USER"
    name = Ref.parse(target, Kind.MEMORY).name
    ref, before, base = _read_current(library, Ref(Kind.MEMORY, name, scope))
    added = add_fact(before, name, candidate.text, day)
    adds = {"fact": candidate.text, "day": day.isoformat()}
    return CandidateDraft(ref, base, before, added.files, adds)


def _read_current(library: Library, ref: Ref) -> tuple[Ref, Files, int]:
    head = library.store.head_or_none(ref)
    if head is None or head.version is None:
        return ref, {}, 0
    return ref, library.store.files(head), head.version
