"""Ingest finished sessions: which versions were loaded and used in them, and with which outcomes.

One sign of a use is a command that the document of a skill shows and that the session runs.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_store import format_time
from evolvable_store.errors import EvolvableError, NoSuchUse, TryAgain
from evolvable_store.resource import Kind, main_file
from evolvable_store.storage import IngestedSession, LearnedTask, Outcome, UsageObservation
from evolvable_tools.client_locators import SkillLocator
from evolvable_tools.library import Library
from evolvable_tools.outcomes.detection import (
    BEGIN,
    SessionEnds,
    ToolCall,
    calls_of,
    ends_of,
    outcome_of,
)
from evolvable_tools.outcomes.executors import RunningExecutor, SessionExecutors, VersionUse
from evolvable_tools.outcomes.learning import LoadedSkill, learn_from_session
from evolvable_tools.outcomes.past_prompts import OpenedSkills, session_scopes, tasks_of_prompts
from evolvable_tools.outcomes.shell_commands import (
    SimpleCommand,
    read_files,
    run_files,
    simple_commands,
)
from evolvable_tools.outcomes.task_types import task_type_of
from evolvable_tools.sessions import SKILL_TOOL, SUBAGENT_TOOLS, keys_of, mark_copies

if TYPE_CHECKING:
    from evolvable_tools.sessions import Session, Span


# A fenced block with its language; the fence that ends it is the one that began it.
_FENCE = re.compile(
    r"^[ \t]*(```+|~~~+)[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL
)
# Code within a line: single backticks only.
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_SHELL = frozenset(("", "sh", "bash", "shell", "zsh", "console", "shellsession"))
_EVERYWHERE = frozenset(
    ("cd", "ls", "cat", "echo", "mkdir", "rm", "cp", "mv", "export")
    + ("git", "python", "python3", "pip", "npm", "sh")
)
"""Programs that say too little: two words of them are taken in many sessions that never saw the
skill.
"""

Step = tuple[str, str]


def steps_of(document: str) -> frozenset[Step]:
    """Return the steps in a document: program and first argument of each command that is shown as
    code.

    What a session does without any skill is none: common programs, and a program without an
    argument.
    """
    blocks = [
        block for _, language, block in _FENCE.findall(document) if language.casefold() in _SHELL
    ]
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    lines += _INLINE.findall(_FENCE.sub("", document))
    return frozenset(step for line in lines for step in steps_of_commands(simple_commands(line)))


def steps_of_commands(commands: Sequence[SimpleCommand]) -> list[Step]:
    """Return the steps that commands take."""
    return [
        (simple.program, simple.words[1])
        for simple in commands
        # A word of letters, digits, `.` and `-`: paths, options with values and placeholders differ
        # from run to run.
        if len(simple.words) > 1
        and simple.program not in _EVERYWHERE
        and re.match(r"[\w.-]+$", simple.words[1])
    ]


# Identifiers in the answers of our own tools, by which a session is joined to what the tools
# recorded.
_USE = re.compile(r"\buse-[0-9a-f]{12}\b")
_SEARCH = re.compile(r"\bsearch-[0-9a-f]{12}\b")
# Clients put different names of the server before that of a tool.
_OURS = re.compile(r"(?:^|__|\.|\b(?:mcp_)?evolvable[-_])(load_skill|find_skill)$")


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """The result of reading a session. is_stored: False if it was known already, or the library
    cannot be written.

    read: the session, with what it copied from others marked.
    """

    session: str
    is_stored: bool
    observations: tuple[UsageObservation, ...]
    outcome: Outcome | None
    read: "Session"


def record_uses(
    library: Library, session: "Session", *, home: Path | None = None, learns: bool = False
) -> RecordedSession:
    """Store what a session shows of the library's skills, and return it.

    To record a session twice changes nothing; one that has grown replaces what was stored of it.
    Each use belongs to the version that was live at its time. home: what `~` means in the session's
    commands. Of a session that reviews others nothing is stored. Messages and calls that another
    session had first count there alone. learns: whether its prompts teach the skills that it
    opened, also without a verified outcome.
    """
    session = own_part(library, session, claim=True)
    reading = _Reading(library, session, home)
    observations = tuple(reading.observations())
    ends = reading.ends.between(BEGIN)
    identity, started = session_name(session), reading.moment(session.started)
    outcome = outcome_of(ends) if reading.tells_outcome else None
    about = (identity, session.client, session.digest, len(session.spans), started, session.model)
    ingested = IngestedSession(*about, outcome, ends, reading.task_type)
    is_stored = False
    if not library.store.read_only and not session.reviewing:
        log = library.store.backend.observations
        # What was shown in this process is stored before the observations that belong to it.
        library.impressions.flush()
        executions = reading.executors.executions(identity, reading.ends, ingested.outcome)
        uses, searches = list(reading.uses), list(reading.searches)
        is_stored = log.take(
            ingested,
            observations,
            uses=uses,
            searches=searches,
            executions=tuple(executions),
            teaches=True,
        )
        # Its tasks are learned from what is stored now. A process that failed in between leaves
        # them to the next one.
        if is_stored or log.is_unlearned(identity, session.digest):
            learn_from_session(library, session, identity, reading.loaded_skills(), reading.scopes)
        if learns:
            library.store.backend.learned.replace_transcript(identity, reading.prompts(identity))
    return RecordedSession(ingested.session, is_stored, observations, ingested.outcome, session)


def taught_by_prompts(
    library: Library, session: "Session", *, home: Path | None = None
) -> list[LearnedTask]:
    """Return what the prompts of a session teach the skills that it opened; nothing else of it is
    stored.

    home: as for `record_uses`. Messages that another session had first teach there alone.
    """
    # A session that reviews others reads skills without using them.
    if session.reviewing:
        return []
    return _Reading(library, own_part(library, session, claim=True), home).prompts(
        session_name(session)
    )


def session_name(session: "Session") -> str:
    """Return the name under which the library knows a session."""
    # A transcript of another client may have no id; its content names it then.
    return session.session_id or f"digest-{session.digest[:32]}"


def own_part(
    library: Library,
    session: "Session",
    *,
    claim: bool = False,
    earlier: dict[int, str] | None = None,
) -> "Session":
    """Return a session with the messages and calls marked as copied that another session owns.

    claim: those that nobody owns become this session's, for good. earlier: the owners of those that
    were read in the same run before and that the library does not know; this session's are added.
    """
    keys, name = keys_of(session), session_name(session)
    if not keys or session.reviewing:
        return session
    rows = library.store.backend.transcript_rows
    # Claimed in one transaction: of two processes that read a fork and its origin, one owns each
    # message.
    claims = claim and not library.store.read_only
    foreign = rows.claim(name, keys) if claims else rows.foreign(name, keys)
    if earlier is not None:
        foreign |= {key for key in keys if earlier.setdefault(key, name) != name}
    return mark_copies(session, foreign)


class _Reading:
    """A session while it is read: its signals, and the versions that it loaded and used."""

    def __init__(self, library: Library, session: "Session", home: Path | None) -> None:
        self._library, self._session = library, session
        self._places = SkillLocator(library, session.project, home)
        self.scopes = session_scopes(library, session, home)
        self._opened = OpenedSkills(library, self._places, self.scopes)
        self._log = library.store.backend.observations
        self._now = library.store.now()
        self._version_uses: dict[tuple[int, int], VersionUse] = {}
        self.executors = SessionExecutors(library, session, lambda span: self.moment(span.at))
        self._steps: dict[tuple[int, int], frozenset[Step]] = {}
        self.uses: dict[str, None] = {}
        self.searches: dict[str, None] = {}
        calls = calls_of(session)
        self.ends: SessionEnds = ends_of(session, calls)
        self.task_type = task_type_of(library, session, calls)
        by_span = {call.span.index: call for call in calls}
        for span in session.spans:
            call = by_span.get(span.index)
            self.executors.count(span)
            self._opened.read(span, call)
            is_skill_text = span.origin == "skill" and span.tool is None
            # The client gave a subagent the text of a skill at its start.
            if span.agent is not None and span.skill is not None and is_skill_text:
                self._note_name(span.skill, "preloaded", span)
            if (forked := self.executors.executor_of_typed_fork(span)) is not None:
                self._read_start(span, forked, self.executors.main(span))
            # The call of the skill itself may fail; the steps that the client attributes to the
            # skill come after it.
            if span.skill is not None and span.role == "assistant" and span.tool != SKILL_TOOL:
                self._note_name(span.skill, "attributed", span)
            if call is not None:
                self._read_call(call)

    def moment(self, at: datetime | None) -> str:
        """Return a time of the session as it is stored; the present where none is given."""
        at = at or self._session.started
        if at is None:
            return self._now
        # Times without a zone are UTC in every transcript that was seen.
        return format_time(at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC))

    def observations(self) -> Iterator[UsageObservation]:
        """Yield what the session shows of each version."""
        for use in self._own_uses():
            signals = use.signals(self.ends)
            yield UsageObservation(*use.observation_fields, outcome_of(signals), use.model, signals)

    @property
    def tells_outcome(self) -> bool:
        """Whether the end of the session says something: not where only its copied part shows what
        it worked by.
        """
        return not self._version_uses or any(True for _ in self._own_uses())

    def _own_uses(self) -> Iterator[VersionUse]:
        return (use for use in self._version_uses.values() if use.own)

    def loaded_skills(self) -> list[LoadedSkill]:
        """Return the skills that were loaded or used, in that order, each once."""
        skills: dict[int, LoadedSkill] = {}
        for use in self._own_uses():
            if use.is_agent:
                continue
            earlier = skills.get(use.resource)
            # A skill of several versions is one skill here; a later version must not hide that it
            # was used.
            is_used = use.is_used or (earlier is not None and earlier.used)
            turn = earlier.turn if earlier else use.turn
            skills[use.resource] = LoadedSkill(use.resource, turn, is_used)
        return list(skills.values())

    def prompts(self, identity: str) -> list[LearnedTask]:
        """Return what the prompts teach the skills that were opened.

        identity: the name of the session.
        """
        opened = [
            replace(opened_skill, at=self.moment(opened_skill.span.at))
            for opened_skill in self._opened.by_prompt(self.ends)
        ]
        return tasks_of_prompts(self._library, self._session, identity, opened, self.scopes)

    def _read_call(self, call: ToolCall) -> None:
        span, arguments = call.span, call.span.input or {}
        ours = _OURS.search(span.tool or "")
        if ours is not None:
            self._read_ours(call, ours[1])
        elif span.tool in (SKILL_TOOL, "skill") and not call.has_failed:
            fork = self.executors.executor_of_fork(span)
            self._note_name(_text(arguments.get("skill")), "skill", span, fork)
            if fork is not None:
                self._read_start(span, fork)
        elif span.tool in ("Read", "read_file", "view") and not call.has_failed:
            self._note_file(_text(arguments.get("file_path") or arguments.get("path")), span)
        elif span.tool in SUBAGENT_TOOLS and not call.has_failed:
            self._read_start(span, self.executors.executor_of_start(span))
        elif call.commands:
            self._read_command(call)

    def _read_start(
        self, call: "Span", executor: RunningExecutor, by: RunningExecutor | None = None
    ) -> None:
        """Note the agent that was started, and each skill loaded before whose work is delegated to
        that agent.

        by: who started it, by default whose span it is.
        """
        if executor.agent is None:
            return
        self._note(*executor.agent, "agent", call, by)
        for use in list(self._version_uses.values()):
            if not use.is_in_context or use.is_agent:
                continue
            if self.executors.is_delegate(executor.agent[0], use):
                self._note(use.resource, use.version, "delegated", call, executor)

    def _read_command(self, call: ToolCall) -> None:
        """Note what the parts of a line did that are known to have run."""
        if call.result is None:
            return
        for place, simple in enumerate(call.commands):
            if simple.ran(succeeded=not call.has_failed):
                self._read_part(simple, place, call)

    def _read_part(self, simple: SimpleCommand, place: int, call: ToolCall) -> None:
        here = call.span
        for path in run_files([simple]):
            self._note_file(path, here, ran=True, place=place)
        # A read that failed showed nothing; a script that failed ran all the same.
        for path in [] if call.has_failed else read_files([simple])[:20]:
            self._note_file(path, here, place=place)
        steps = steps_of_commands([simple])
        for use in list(self._version_uses.values()) if steps else ():
            if use.is_in_context and self._steps_of(use.resource, use.version) & set(steps):
                self._note(use.resource, use.version, "step", here, place=place)

    def _read_ours(self, call: ToolCall, tool: str) -> None:
        """Note what our own tool answered: whose use or search it was.

        What the tool did is recorded already.
        """
        if call.has_failed or call.result is None:
            return
        if tool == "find_skill":
            search_ids = _SEARCH.findall(call.result.text)[:1]
            self.searches.update(dict.fromkeys([] if call.span.copied else search_ids))
            return
        # The id of the use stands at the end of an answer; before it there may be text of a skill.
        ids = _USE.findall(call.result.text[-300:])
        try:
            use = self._library.evidence.use(ids[-1]) if ids else None
        except NoSuchUse:
            return
        # The id belongs to another session: a transcript may quote it.
        if use is None or use.session not in (None, self._session.session_id):
            return
        if not call.span.copied:
            self.uses[use.id] = None
        path = _text((call.span.input or {}).get("path"))
        # Only the main file loads the skill; another file is a use of it.
        how = "file" if path and path.casefold() != "skill.md" else "load_skill"
        self._note(use.resource, use.version, how, call.span)

    def _note_name(
        self, name: str, how: str, here: "Span", executor: RunningExecutor | None = None
    ) -> None:
        binding = self._places.by_name(name) if name else None
        if binding is not None:
            self._note_live(binding.resource, how, here, executor=executor)

    def _note_file(self, path: str, here: "Span", *, ran: bool = False, place: int = 0) -> None:
        located = self._places.by_path(path)
        if located is None:
            return
        binding, inside = located
        how = "read" if inside.casefold() == "skill.md" else "file"
        self._note_live(binding.resource, "script" if ran else how, here, place)

    def _note_live(
        self,
        resource: int,
        how: str,
        here: "Span",
        place: int = 0,
        executor: RunningExecutor | None = None,
    ) -> None:
        version = self._log.version_at(resource, self.moment(here.at))
        if version is not None:
            self._note(resource, version, how, here, executor, place=place)

    def _note(
        self,
        resource: int,
        version: int,
        how: str,
        here: "Span",
        executor: RunningExecutor | None = None,
        *,
        place: int = 0,
    ) -> None:
        """Note that a version was loaded or used.

        executor: by whom, by default the one of the span.
        """
        at, model = self.moment(here.at), here.model or self._session.model
        # Once for the session and once for the executor.
        for uses in (self._version_uses, (executor or self.executors.of(here)).uses):
            new = VersionUse(resource, version, at, model, here.turn)
            uses.setdefault((resource, version), new).note(how, here, place)

    def _steps_of(self, resource: int, version: int) -> frozenset[Step]:
        key = (resource, version)
        if key not in self._steps:
            self._steps[key] = self._read_steps(resource, version)
        return self._steps[key]

    def _read_steps(self, resource: int, version: int) -> frozenset[Step]:
        head = self._library.store.backend.heads_by_id([resource]).get(resource)
        if head is None or head.kind is not Kind.SKILL:
            return frozenset()
        try:
            file = self._library.store.file(head, main_file(head.kind, head.name), version)
        except TryAgain:  # a session is recorded once, so not with a part of its steps
            raise
        except EvolvableError:
            return frozenset()
        return steps_of(file.data.decode("utf-8", "replace"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
