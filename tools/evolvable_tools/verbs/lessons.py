"""The lessons that wait: what reviews of finished sessions propose, in one line for a person."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from evolvable_store import Actor
from evolvable_store.resource import Kind
from evolvable_store.storage import Proposal
from evolvable_tools.library import Library
from evolvable_tools.verbs.proposal_inbox import files_at

MAX_LESSONS = 20
"""Lessons that are looked at."""

MAX_NAMED = 3
"""Lessons that the line names."""

MAX_CLAIM = 60
"""Characters of a lesson in the line."""


@dataclass(frozen=True, slots=True)
class WaitingLesson:
    """One lesson.

    word: add, correct, remove, new, or remember for a fact of a memory. claim: what it says.
    """

    proposal_id: int
    ref: str
    name: str
    word: str
    claim: str

    @property
    def text(self) -> str:
        """The lesson in a few words."""
        return f"{self.name} ({self.word}: {self.claim})"


def waiting_lessons(library: Library, limit: int = MAX_LESSONS) -> list[WaitingLesson]:
    """Return the lessons that wait for a person, the oldest first."""
    now = library.store.now()
    waiting = library.store.backend.proposals.waiting(500)
    lessons = [
        proposal
        for proposal in waiting
        if proposal.actor is Actor.REVIEW and (proposal.expires is None or proposal.expires >= now)
    ]
    return [
        WaitingLesson(
            proposal.id,
            str(proposal.ref),
            proposal.name,
            _choose_word(library, proposal),
            short_line(proposal.reason, MAX_CLAIM),
        )
        for proposal in lessons[:limit]
    ]


def _choose_word(library: Library, lesson: Proposal) -> str:
    """Return what an approval does to the resource."""
    if lesson.kind is Kind.MEMORY:
        return "remember"
    if lesson.removes:
        return "remove"
    if not lesson.base or json.loads(lesson.grounds or "{}").get("adds"):
        return "add" if lesson.base else "new"
    before = files_at(library, lesson.ref, lesson.base)
    for path, entry in lesson.manifest.items():
        now = library.store.blob(entry.sha256)
        old = before[path].data.splitlines() if path in before else []
        # A line that goes makes it a correction; lines that are only added do not.
        if any(line.strip() and line not in now.splitlines() for line in old):
            return "correct"
    return "add"


def lessons_line(lessons: Sequence[WaitingLesson]) -> str:
    """Return the line that says which lessons wait, '' for none."""
    if not lessons:
        return ""
    texts = ", ".join(lesson.text for lesson in lessons[:MAX_NAMED])
    more = f", {len(lessons) - MAX_NAMED} more" if len(lessons) > MAX_NAMED else ""
    return f"{len(lessons)} lesson{'s wait' if len(lessons) > 1 else ' waits'}: {texts}{more}"


def short_line(text: str, most: int) -> str:
    """Return a text as one line of at most `most` characters, without what steers a terminal or
    ends a tag.
    """
    plain = "".join(char if char.isprintable() and char not in "<>" else " " for char in text)
    line = " ".join(plain.split()).rstrip(".")
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"
