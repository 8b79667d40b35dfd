"""Ask the person at the client about the lessons that wait, once in a session, as its agent looks
for a skill.

Only where the person switched automatic reviews on. A yes makes the lessons; after another answer
they wait in the inbox, and no client asks about them again.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.mcpserver import Context

from evolvable_server.auto_switch import note_declined, read_switch, was_declined
from evolvable_server.mcp.call import Call, CallSessions
from evolvable_server.mcp.elicitation import Unattended, confirm, cut_line, has_answer
from evolvable_server.mcp.look_gates import LookGate
from evolvable_store import Actor, Principal
from evolvable_store.errors import EvolvableError
from evolvable_tools import Caller, Library, verbs

if TYPE_CHECKING:
    from evolvable_tools.verbs import WaitingProposal

Result = types.CallToolResult | types.InputRequiredResult

MOST_ASKED = 3
"""Lessons of one question."""

MAX_DIFF = 800
"""Characters of the difference of one lesson in the question.

A lesson with a longer one is decided where all of it is shown.
"""

_KEY, _LESSONS = "lessons", "lessons"

log = logging.getLogger(__name__)


class LessonGate(LookGate):
    """Asks whether the lessons that wait become versions, before the first search of a session."""

    def __init__(self, library: Library, caller: Caller, sessions: CallSessions) -> None:
        super().__init__(library, caller, sessions)
        self._asked: set[str | None] = set()

    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call begins a search, and lessons may wait."""
        return tool == "find_skill" and bool(read_switch(self._library.store.home).projects)

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> Result:
        """Ask where lessons wait, then make the call."""
        caller = self._find_caller(context)
        if self._can_ask(context):
            versions = await run_sync(self._read_shown_versions, caller, context)
            if versions:
                ended = await self._ask_lessons(context, caller, versions)
                if ended is not None:
                    return ended
        return await call(tool, arguments, context)

    def _read_shown_versions(
        self, caller: Caller, context: Context[Any, Any]
    ) -> "dict[int, int | None]":
        """Return the version of each lesson that the question of this call shows, by its id."""
        if has_answer(context):
            state = json.loads(context.request_state or "{}")
            return {int(number): version for number, version in state.get(_LESSONS, {}).items()}
        # A client that names no session is known by its connection.
        key = caller.session or caller.connection
        if key in self._asked:
            return {}
        # Before the question: a client that cancels it is not asked again.
        self._asked.add(key)
        return {proposal.proposal_id: proposal.head for proposal in self._find_lessons()}

    async def _ask_lessons(
        self, context: Context[Any, Any], caller: Caller, versions: "dict[int, int | None]"
    ) -> types.InputRequiredResult | None:
        state = json.dumps(
            {_LESSONS: {str(number): version for number, version in versions.items()}}
        )
        answer = await confirm(
            context, _KEY, lambda: lessons_question(self._find_lessons(versions)), state
        )
        if isinstance(answer, types.InputRequiredResult):
            return answer
        if answer == "accept":
            await run_sync(self._approve, caller, versions)
        # Only a person declines: None is no answer, Unattended is none of a person.
        elif answer is not None and not isinstance(answer, Unattended):
            await run_sync(note_declined, self._library.store.home, list(versions))
        return None

    def _find_lessons(
        self, versions: "Mapping[int, int | None] | None" = None
    ) -> "list[WaitingProposal]":
        """Return the lessons to ask about.

        A lesson is left out that was declined or is blocked, that has findings of the scan, or
        whose difference is longer than MAX_DIFF. versions: the lessons that the person was shown.
        """
        home = self._library.store.home
        waiting = [lesson.proposal_id for lesson in verbs.waiting_lessons(self._library)]
        if versions:
            numbers = [number for number in waiting if number in versions]
        else:
            numbers = [number for number in waiting if not was_declined(home, number)]
        # One unchanged line around a change, so that more lessons fit into the question.
        proposals = [verbs.show_proposal(self._library, number, context=1) for number in numbers]
        short = [proposal for proposal in proposals if len(proposal.diff or "") <= MAX_DIFF]
        allowed = [proposal for proposal in short if not proposal.blocked and not proposal.findings]
        return allowed[:MOST_ASKED]

    def _approve(self, caller: Caller, versions: "Mapping[int, int | None]") -> None:
        person = replace(caller, actor=Actor.HUMAN, principal=Principal.PERSON, via="elicitation")
        for number, version in versions.items():
            seen = {number: version}
            try:
                verbs.approve_together(
                    self._library, person, [number], "", "approved in the client", seen=seen
                )
            except EvolvableError as error:
                log.info("a lesson stays in the inbox: %s", error)


def lessons_question(lessons: "Sequence[WaitingProposal]") -> str:
    """Return the question: of each lesson what it says, one quote, and its difference."""
    lines = [f"{len(lessons)} lesson{'s' * (len(lessons) > 1)} of your earlier sessions. Keep?"]
    for lesson in lessons:
        lines.append(f"{lesson.ref}: {cut_line(lesson.reason, 200)}")
        quotes = lesson.grounds.evidence[:1] if lesson.grounds is not None else []
        lines += [
            f"   {quote.origin}, turn {quote.turn}: “{cut_line(quote.quote, 120)}”"
            for quote in quotes
        ]
        lines.append(lesson.diff or "")
    lines.append(
        "If you accept, they become versions, which undo takes back. If you do not, they wait in "
        "the inbox."
    )
    return "\n".join(lines)
