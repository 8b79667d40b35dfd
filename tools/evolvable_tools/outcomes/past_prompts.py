"""Prompts that teach where the person opted in: what they typed before a skill of theirs was
opened.

A skill is opened by the client's tool for skills, by `load_skill`, or by reading or running a file
of its folder. The client itself opens one where it puts its text into the context. Where a prompt
goes on with the task before it ("yes, go on"), the prompt that began the task is taken. No end is
verified: what failed by its own signals teaches nothing.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_store.errors import InvalidRef
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.search import NEAR_DUPLICATE, content_terms, nearest
from evolvable_store.storage import LearnedTask, Outcome, TaskSource
from evolvable_store.workingcopy import Projects
from evolvable_tools.client_locators import SkillLocator
from evolvable_tools.library import Library
from evolvable_tools.outcomes.detection import SessionEnds, ToolCall, outcome_of
from evolvable_tools.outcomes.executors import TURNS
from evolvable_tools.outcomes.learning import (
    MAX_TAUGHT,
    MIN_TERMS,
    is_known,
    is_plausible,
    own_skills,
    shorten_task,
)
from evolvable_tools.outcomes.shell_commands import read_files, run_files

if TYPE_CHECKING:
    from evolvable_tools.sessions import Session, Span

MAX_BACK = 6
"""Prompts that may go on with one task and are passed over."""

MAX_ANSWER = 8
"""Words other than function words; a longer prompt is a task of its own, however it begins."""

_ANSWERS = re.compile(
    # Words that answer alone, and words that only do so at the end of a clause: "right, go on", but
    # not "right-align it".
    r"\W*(?:(?:yes|yeah|yep|yup|ok|okay|sure|thanks|thank you|go on|go ahead|carry "
    r"on|ja|oui|sí)(?![\w-])|(?:no|nope|nein|non|right|correct|exactly|good|great|nice|perfect|"
    r"fine|again|wait|stop|continue|proceed|please do|do it|do that|do so|try "
    r"again|weiter|gut|danke|merci|vale|gracias)\s*(?:[,.;:!–]|$))\W*",
    re.IGNORECASE,
)
"""The beginning of a prompt that answers the agent."""

_NEXT = re.compile(
    r"(?:and\s+)?(?:now|next|then|also|another|jetzt|nun|maintenant|ahora)(?!\w)", re.IGNORECASE
)
"""Words after an answer with which a new task begins."""

# Tools of several clients; the keys below name a file in their arguments.
_READERS = frozenset(("Read", "NotebookRead", "read_file", "view_image", "view"))
_EDITORS = frozenset(("Edit", "MultiEdit", "Write", "NotebookEdit", "create", "edit"))
_OUR_EDITORS = ("update_resource", "rename_resource", "delete_resource")
_PATHS = ("file_path", "path", "notebook_path")
# The head of each file in a patch in the format of Codex.
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_LOAD = "load_skill"
MAX_PATCH = 200_000
"""Characters of a patch in which edited files are looked for."""


@dataclass(frozen=True, slots=True)
class OpenedSkill:
    """A skill that a session opened.

    span: the first sign of it. last_turn: of the last sign. at: as it is stored.
    """

    resource: int
    span: "Span"
    last_turn: int
    at: str = ""


def session_scopes(library: Library, session: "Session", home: Path | None) -> tuple[str, ...]:
    """Return the scopes whose skills a session teaches: those of the projects that it worked in,
    and the user's.
    """
    # A relative path means nothing here, and no path has a zero byte.
    if not session.project or not os.path.isabs(session.project) or "\0" in session.project:
        return (USER_SCOPE,)
    return *Projects(library.store, home).scopes_at(Path(session.project)), USER_SCOPE


@dataclass(slots=True)
class OpenedSkills:
    """The skills that a session opened, while it is read.

    What its agent changed in a turn is work on the skill.
    """

    library: Library
    places: SkillLocator
    scopes: Sequence[str]
    _opened: dict[int, OpenedSkill] = field(default_factory=dict)
    _changed: set[tuple[int, int]] = field(default_factory=set)

    def read(self, span: "Span", call: ToolCall | None) -> None:
        """Note what one span opens. call: the call that it is."""
        # Copied messages teach in the session that had them first; before the first turn nobody
        # typed.
        if span.copied or not span.turn:
            return
        if call is None:
            if span.skill is not None and span.origin == "skill" and span.tool is None:
                self._note(self._by_name(span.skill), span)
            return
        for path in _find_changed_files(call):
            located = self.places.by_path(path)
            if located is not None:
                self._changed.add((located[0].resource, span.turn))
        arguments, tool = span.input or {}, span.tool or ""
        # Our tools that change a resource; the skill is work of this turn then, and not a tool for
        # it.
        if tool.endswith(_OUR_EDITORS):
            self._changed.update(
                (resource, span.turn) for resource in self._by_ref(arguments.get("ref"))
            )
        if call.has_failed:
            return
        if tool in ("Skill", "skill"):
            self._note(self._by_name(arguments.get("skill")), span)
        elif tool.endswith(_LOAD) and (tool == _LOAD or "evolvable" in tool):
            self._note(self._by_ref(arguments.get("ref")), span)
        else:
            for path in _find_used_files(call):
                located = self.places.by_path(path)
                self._note([located[0].resource] if located is not None else [], span)

    def by_prompt(self, ends: SessionEnds) -> Iterator[OpenedSkill]:
        """Yield what was opened for a prompt, in order, without what failed.

        Where a prompt opens more skills than one teaches, the agent looked through them, and none
        of them learns it.
        """
        turns = [skill.span.turn for skill in self._opened.values()]
        for skill in self._opened.values():
            signals = ends.between((skill.span.index, 0), skill.last_turn + TURNS)
            is_changed = (skill.resource, skill.span.turn) in self._changed
            if is_changed or turns.count(skill.span.turn) > MAX_TAUGHT:
                continue
            if outcome_of(signals) is not Outcome.FAILED:
                yield skill

    def _note(self, resources: Iterable[int], span: "Span") -> None:
        for resource in resources:
            first = self._opened.get(resource)
            # The first sign decides the prompt, the last one how far signals of an outcome count.
            self._opened[resource] = OpenedSkill(resource, first.span if first else span, span.turn)

    def _by_name(self, name: object) -> list[int]:
        if not isinstance(name, str) or not name:
            return []
        binding = self.places.by_name(name)
        return [binding.resource] if binding is not None else self._by_ref(name)

    def _by_ref(self, text: object) -> list[int]:
        """Return the skill that a ref names, in the nearest scope of the session that has it."""
        if not isinstance(text, str):
            return []
        try:
            # `at(None)`: the scope in a ref that an agent wrote is no reason to leave the session's
            # scopes.
            ref = Ref.parse(text).at(None)
        except InvalidRef:
            return []
        if ref.kind is not Kind.SKILL:
            return []
        head = self.library.store.head_or_none(ref, self.scopes)
        return [head.id] if head is not None and head.version is not None else []


def _find_used_files(call: ToolCall) -> list[str]:
    """Return the files that a call read or ran, where its result shows it."""
    if call.result is None:
        return []
    if not call.commands:
        return _list_given_paths(call) if call.span.tool in _READERS else []
    used, base = [], _text((call.span.input or {}).get("workdir"))
    for simple in call.commands:
        if simple.program == "cd" and len(simple.words) > 1:
            # Later paths of the line are relative to it.
            base = os.path.join(base, simple.words[1])
        elif simple.ran(succeeded=True):
            paths = [*read_files([simple])[:20], *run_files([simple])]
            used += [
                path if path.startswith(("~", "$HOME")) else os.path.join(base, path)
                for path in paths
            ]
    return used


def _find_changed_files(call: ToolCall) -> list[str]:
    if call.span.tool in _EDITORS:
        return _list_given_paths(call)
    if call.span.tool == "apply_patch":
        values = (call.span.input or {}).values()
        texts = [value[:MAX_PATCH] for value in values if isinstance(value, str)]
        return [path.strip() for text in texts for path in _PATCHED.findall(text)]
    return []


def _list_given_paths(call: ToolCall) -> list[str]:
    arguments = call.span.input or {}
    return [path for key in _PATHS if (path := _text(arguments.get(key)))]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def tasks_of_prompts(
    library: Library,
    session: "Session",
    identity: str,
    opened: Iterable[OpenedSkill],
    scopes: Collection[str],
) -> list[LearnedTask]:
    """Return what the prompts of a session teach the skills that it opened, MAX_TAUGHT at most."""
    skills = list(opened)
    heads = library.store.backend.heads_by_id([skill.resource for skill in skills])
    own = own_skills(library, heads.values(), scopes)
    held_out = library.store.backend.learned.held_out() if own else []
    typed, tasks = _group_typed(session), list[LearnedTask]()
    for skill in skills:
        prompts = _find_prompts(typed, skill.span.turn) if skill.resource in own else ()
        for prompt in prompts:
            # The secrets go before the text is cut: half a secret would not be found.
            text = shorten_task(library.redact(prompt))
            terms = content_terms(text)
            if len(terms) < MIN_TERMS or nearest(terms, held_out)[1] >= NEAR_DUPLICATE:
                # It teaches nothing and neither does an earlier prompt, whose task would be another
                # one.
                break
            if is_plausible(library, heads[skill.resource], prompt, text):
                task = LearnedTask(
                    skill.resource, text, skill.at, False, TaskSource.TRANSCRIPT, identity
                )
                tasks += [] if is_known(library, task, identity) else [task]
                break
    return tasks[:MAX_TAUGHT]


@dataclass(slots=True)
class _Prompt:
    """What a person typed in one turn.

    answers_question: whether the agent's last words before it are a question.
    """

    answers_question: bool
    texts: list[str] = field(default_factory=list)


def _group_typed(session: "Session") -> dict[int, _Prompt]:
    """Return what the person typed in each turn.

    A command of a shell that they ran is no prompt.
    """
    prompts, words = dict[int, _Prompt](), ""
    for span in session.spans:
        if span.agent is not None:
            continue
        # A client writes a command that the person ran in its shell with "! " before it.
        if span.typed and not span.text.startswith("! "):
            answers_question = words.rstrip().endswith(("?", "？"))
            prompts.setdefault(span.turn, _Prompt(answers_question)).texts.append(span.text)
        elif span.role == "assistant" and span.tool is None and span.text:
            words = span.text
    return prompts


def _find_prompts(typed: Mapping[int, _Prompt], turn: int) -> Iterator[str]:
    """Yield the prompts that may have begun the task of a turn, the likeliest first.

    That is the last that names a task of its own. Where it is short and answers a question of the
    agent, it may say more of a task, which an earlier prompt began.
    """
    for number in range(turn, max(0, turn - MAX_BACK - 1), -1):
        if number not in typed:
            continue
        prompt = "\n".join(typed[number].texts)
        plain = shorten_task(prompt)
        if _goes_on(plain):
            continue
        yield prompt
        if not typed[number].answers_question or len(content_terms(plain)) >= MAX_ANSWER:
            return


def _goes_on(prompt: str) -> bool:
    """Return whether a prompt names no task of its own: it says too little, or answers the agent in
    a few words.
    """
    words = len(content_terms(prompt))
    answer = _ANSWERS.match(prompt)
    if answer is None or _NEXT.match(prompt, answer.end()):
        return words < MIN_TERMS
    return words < MAX_ANSWER
