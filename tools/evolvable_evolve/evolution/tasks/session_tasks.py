"""Find tasks in finished sessions: what a person asked for, how the work was checked, and what the files were.

Deterministic; no model is asked, nothing is run. A session is hostile input: only what a person typed becomes a prompt,
a check is one command of a known kind, and a path that leads out of the project ends the attempt. What is missing is
said by a reason, so that a person can see why most sessions give no task.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from evolvable_store import path_problem
from evolvable_store.workingcopy import TreeTooLarge
from evolvable_tools.outcomes import (
    ToolCall,
    accepts,
    calls_of,
    corrects,
    ended_badly,
    git_command,
    is_check,
    only_looks,
    undoes,
)
from evolvable_tools.sessions import Session, Span, command_line

MIN_PROMPT, MAX_PROMPT = 20, 6_000
"""Characters of a prompt: a shorter one leans on what was said before, a longer one is a pasted text."""

MAX_ANSWER = 8_000
"""Characters of an answer that a judge compares."""

_MAX_WORDS = 24  # words of a check
_REDACTED = "[redacted:"
_LEANING = re.compile(
    r"^\W*(?:and|also|now|then|next|again|yes|yep|ok|okay|no|nope|go on|continue|proceed|same|do (?:it|that|the same)|"
    r"(?:please\s+)?(?:fix|commit|undo|revert|try|do|change|move|rename|remove|delete|run|test)\s+(?:it|that|this|them|those|these))\b",
    re.IGNORECASE,
)
_SHORT_OPTION = re.compile(r"^-[A-Za-z]")
_COMMIT = re.compile(r"^\[[^\]\n]{1,200}? ([0-9a-f]{7,40})\]", re.MULTILINE)
_NUMBERED = re.compile(r" *(\d+)(?:→|\t)(.*)")


class CheckKind(StrEnum):
    """How a task from a session is checked."""

    EXIT_CODE = "exit-code"
    """A command that failed before the work and succeeded after it, tests above all."""

    CORRECTION = "correction"
    """A judge compares with the correction that the person made and with the answer that they accepted."""


@dataclass(frozen=True, slots=True)
class SessionTask:
    """One task of a session. turn: of the prompt. argv: of the check by exit code. accepted: the person accepted it.

    start, end: the files before and after the work. correction, good, bad: of a task that a judge scores.
    """

    id: str
    session: str
    client: str
    project: str | None
    turn: int
    prompt: str
    kind: CheckKind
    accepted: bool
    argv: tuple[str, ...] = ()
    start: Mapping[str, bytes] = field(default_factory=dict)
    end: Mapping[str, bytes] = field(default_factory=dict)
    correction: str = ""
    good: str = ""
    bad: str = ""


@dataclass(frozen=True, slots=True)
class NoTask:
    """Why a session gives no task."""

    session: str
    why: str


ReadTrees = Callable[[Session, str], tuple[Mapping[str, bytes], Mapping[str, bytes] | None]]
"""Returns the files that a session began with, as far as a repository tells, and those of the commit that it made.

The second argument is that commit, abbreviated, '' where none was made. Raises TreeTooLarge.
"""


def no_trees(session: Session, made: str) -> tuple[Mapping[str, bytes], Mapping[str, bytes] | None]:
    """Return that no repository tells anything."""
    return {}, None


def find_session_tasks(session: Session, trees: ReadTrees = no_trees) -> list[SessionTask | NoTask]:
    """Return the tasks of a session, or why there is none."""
    if session.reviewing:
        return [NoTask(session.session_id, "it is a review, or watches another session")]
    typed = [span for span in session.spans if span.typed and span.text.strip()]
    if session.is_copy:
        return [NoTask(session.session_id, "it is a copy of another session")]
    if not typed:
        return [NoTask(session.session_id, "no person typed anything")]
    calls = [call for call in calls_of(session) if call.span.agent is None]
    found: list[SessionTask] = []
    reasons: dict[str, None] = {}
    for number, said in enumerate(typed):
        if said.copied:
            continue
        later = typed[number + 1 :]
        made = _checked_task(session, said, later, calls, trees) or _corrected_task(session, said, later, calls)
        if isinstance(made, SessionTask):
            found.append(made)
        else:
            reasons.setdefault(made or "nothing checks the work", None)
    best = next((why for why in reasons if why != "nothing checks the work"), "nothing checks the work")
    return list(found) or [NoTask(session.session_id, best)]


def _prompt_problem(text: str, first: bool) -> str:
    if _REDACTED in text:
        return "the prompt holds a secret, which was taken out"
    if not MIN_PROMPT <= len(text) <= MAX_PROMPT:
        return "the prompt is too short or too long to stand alone"
    if not first and _LEANING.search(text):
        return "the prompt leans on what was said before"
    return ""


def _task_id(session: Session, turn: int) -> str:
    return "session-" + hashlib.sha256(f"{session.client} {session.session_id} {turn}".encode()).hexdigest()[:12]


def _checked_task(
    session: Session, said: Span, later: Sequence[Span], calls: Sequence[ToolCall], trees: ReadTrees
) -> SessionTask | str | None:
    """Return the task of one prompt whose work a command checked, why it is none, or None without such a check."""
    own = [call for call in calls if call.span.turn == said.turn]
    checks = [(call, argv) for call in own if (argv := check_command(call, session.project))]
    if not checks:
        return "its check is no single command that can be run alone" if any(map(_is_check_call, own)) else None
    last, argv = checks[-1]
    before = [call for call in calls if call.span.index < last.span.index]
    failing = [call for call in before if check_command(call, session.project) == argv and _failed(call)]
    if _failed(last):
        return "its check still fails at the end"
    if not failing:
        return "its check never failed, so it may say nothing of the work"
    if any(_takes_back(call) for call in calls if call.span.index > last.span.index and not call.failed):
        return "the work was taken back later"
    if later and corrects(later[0].text):
        return "the person corrected the work afterwards"
    if why := _prompt_problem(said.text.strip(), said.turn <= 1):
        return why
    made = next((name for call in calls if call.span.turn >= said.turn and (name := _commit_made(call))), "")
    try:
        tree, left = trees(session, made)
    except TreeTooLarge:
        return "the project has too many files to keep them with a task"
    files = FileReplay(session.project, tree)
    for call in calls:
        if call.span.index <= last.span.index:
            files.take(call, counts=call.span.turn == said.turn)
    if files.problem:
        return files.problem
    start = {**tree, **{path: text.encode() for path, text in files.start.items()}}
    end = left if left is not None else {**tree, **{path: text.encode() for path, text in files.now.items()}}
    if left is None and not files.whole:
        return "the files that the work changed are not all known"
    if start == end:
        return "the work changed no file that is known"
    return SessionTask(
        _task_id(session, said.turn),
        session.session_id,
        session.client,
        session.project,
        said.turn,
        said.text.strip(),
        CheckKind.EXIT_CODE,
        bool(later) and accepts(later[0].text),
        argv,
        start,
        end,
    )


def _is_check_call(call: ToolCall) -> bool:
    return is_check(command_line(call.span.input or {}))


def _failed(call: ToolCall) -> bool:
    text = "" if call.result is None else call.result.text
    return call.failed or ended_badly(command_line(call.span.input or {}), text, call.failed)


def _takes_back(call: ToolCall) -> bool:
    return undoes(command_line(call.span.input or {}))


def _commit_made(call: ToolCall) -> str:
    if call.result is None or call.failed or not any(git_command(one) == "commit" for one in call.commands):
        return ""
    said = _COMMIT.search(call.result.text[:4_000])
    return said[1] if said else ""


def check_command(call: ToolCall, project: str | None) -> tuple[str, ...]:
    """Return the arguments of a check that can be run alone in the project, () for any other call.

    One simple command (a change into the project's own folder may stand before it), of a kind whose exit code says
    whether work is right, with no path that leads out of the project.
    """
    line = command_line(call.span.input or {})
    commands = list(call.commands)
    if commands and commands[0].program == "cd" and len(commands) == 2:
        place = commands[0].words[1] if len(commands[0].words) == 2 else ""
        if project is None or place.rstrip("/") not in (project.rstrip("/"), "."):
            return ()
        commands = commands[1:]
    if len(commands) != 1 or not is_check(line) or only_looks(line):
        return ()
    [command] = commands
    if command.writes or command.piped or not command.alone or re.search(r"[`$\n]", line) or "=" in line.split(" ")[0]:
        return ()
    words = tuple(_inside(word, project) for word in command.words)
    if not all(words) or len(words) > _MAX_WORDS or "/" in words[0].strip("./") or words[0].startswith("-"):
        return ()
    return words


def _inside(word: str, project: str | None) -> str:
    """Return a word of a check with its path below the project, '' for one that leads out of it."""
    value, base = word.partition("=")[2] if word.startswith("-") else word, (project or "").rstrip("/") + "/"
    inner = word.replace(base, "", 1) if project and value.startswith(base) else word
    # An option can hold its path without a space (`-C../other`), and a setting behind its name (`-o cache_dir=/tmp`).
    held = [inner, *re.split(r"[=:,@]", _SHORT_OPTION.sub("", inner))]
    if any(".." in piece.split("/") or piece.startswith(("~", "/")) for piece in held):
        return ""
    return "" if "\0" in word or "[redacted:" in word else inner


class FileReplay:
    """The files of the project as a session shows them: as they were before, and as the work left them.

    whole: everything that changed is known. problem: why the files cannot be known.
    """

    def __init__(self, project: str | None, tree: Mapping[str, bytes]) -> None:
        """tree: the files that the session began with, as far as a repository tells."""
        self._base, self._tree = project.rstrip("/") + "/" if project else None, tree
        self.start: dict[str, str] = {}
        self.now: dict[str, str] = {}
        self.whole, self.problem = True, ""

    def take(self, call: ToolCall, *, counts: bool) -> None:
        """Follow one call. counts: it is part of the work; what earlier turns changed belongs to the start."""
        if self.problem or call.failed:
            return
        given = call.span.input or {}
        if call.span.tool == "Read":
            self._read(given, call.result.text if call.result else "")
        elif patch := _patch_of(given, call):
            for path, change in parse_patch(patch):
                self._change(path, change, counts)
        elif call.span.tool == "Write" and isinstance(given.get("content"), str):
            created = call.result is not None and "created" in call.result.text[:200]
            self._change(given.get("file_path"), [(None, str(given["content"]), created)], counts)
        elif call.span.tool in ("Edit", "MultiEdit"):
            edits = given.get("edits") if isinstance(given.get("edits"), list) else [given]
            parts = [
                (str(one["old_string"]), str(one.get("new_string", "")), one.get("replace_all") is True)
                for one in edits or []
                if isinstance(one, Mapping) and isinstance(one.get("old_string"), str)
            ]
            self._change(given.get("file_path"), parts, counts)
        elif call.commands:
            self._command(call)

    def _command(self, call: ToolCall) -> None:
        line = command_line(call.span.input or {})
        if len(call.commands) == 1 and call.commands[0].program == "cat" and len(call.commands[0].words) == 2:
            text = call.result.text if call.result else ""
            head, said, body = text.partition("Output:\n")
            self._note_read(call.commands[0].words[1], body if said and len(head) < 400 else text)
        elif not (only_looks(line) or is_check(line) or any(git_command(one) for one in call.commands)):
            self.whole = False  # it may have changed files

    def _path(self, value: object) -> str | None:
        if not isinstance(value, str) or "\0" in value:
            return None
        path = value
        if path.startswith("/"):
            if self._base is None or not path.startswith(self._base):
                return None
            path = path.removeprefix(self._base)
        return None if path_problem(path) else path

    def _read(self, given: Mapping[str, Any], text: str) -> None:
        lines = text.removesuffix("\n").split("\n")
        parts = [_NUMBERED.fullmatch(line) for line in lines]
        if (
            given.get("offset")
            or given.get("limit")
            or any(p is None or int(p[1]) != n for n, p in enumerate(parts, 1))
        ):
            return  # not all of the file
        self._note_read(given.get("file_path"), "\n".join(part[2] for part in parts if part))

    def _note_read(self, place: object, text: str) -> None:
        path = self._path(place)
        if path is not None and path not in self.now and _REDACTED not in text:
            self.start[path] = self.now[path] = text if text.endswith("\n") else f"{text}\n"

    def _change(self, place: object, parts: Sequence[tuple[str | None, str, bool]], counts: bool) -> None:
        path = self._path(place)
        if path is None:
            self.problem = "it changed a file outside of the project"
            return
        self._open_from_tree(path)
        for old, new, several in parts:
            if _REDACTED in new or _REDACTED in (old or ""):
                self.problem = "a change holds a secret, which was taken out"
            elif old is None:
                self.whole = self.whole and (several or path in self.now)
                self.now[path] = new
            elif path not in self.now or not old or (self.now[path].count(old) != 1 and not several):
                self.whole = False  # what the file was is not known from the session
            else:
                self.now[path] = self.now[path].replace(old, new)
        if not counts and path in self.now:
            self.start[path] = self.now[path]

    def _open_from_tree(self, path: str) -> None:
        """Take a file as the repository has it, where the session did not show it before it changed it."""
        if path not in self.now and path in self._tree:
            with suppress(UnicodeDecodeError):
                self.start[path] = self.now[path] = self._tree[path].decode()


def _patch_of(given: Mapping[str, Any], call: ToolCall) -> str:
    texts = [given.get("patch"), given.get("input"), command_line(given)]
    return next((text for text in texts if isinstance(text, str) and "*** Begin Patch" in text), "")


def parse_patch(patch: str) -> Iterator[tuple[str, list[tuple[str | None, str, bool]]]]:
    """Yield the files of a patch of Codex, each with its replacements; a new file has one without an old text."""
    path, parts, old, new = "", list[tuple[str | None, str, bool]](), list[str](), list[str]()
    created = False
    for line in [*patch.split("\n"), "*** End Patch"]:
        if line.startswith(("@@", "*** ")):
            if created and new:
                parts.append((None, "\n".join(new) + "\n", True))
            elif old or new:
                parts.append(("\n".join(old), "\n".join(new), False))
            old, new = [], []
            if line.startswith("*** ") and not line.startswith("*** End of File"):
                if path and parts:
                    yield path, parts
                named = re.match(r"\*\*\* (Add|Update|Delete) File: (.+)", line)
                path, parts = (named[2].strip(), []) if named else ("", [])
                created = bool(named) and named is not None and named[1] == "Add"
        elif line[:1] in ("-", " "):
            old.append(line[1:])
            new += [line[1:]] if line[0] == " " else []
        elif line.startswith("+"):
            new.append(line[1:])


def _corrected_task(
    session: Session, said: Span, later: Sequence[Span], calls: Sequence[ToolCall]
) -> SessionTask | str | None:
    """Return the task of a prompt whose answer the person corrected and whose second answer they accepted.

    A correction says what a right answer does; an acceptance alone says nothing that could be checked.
    """
    if len(later) < 2 or not corrects(later[0].text) or not accepts(later[1].text):
        return None
    turns = (said.turn, later[0].turn)
    if any(call.span.turn in turns and not only_looks(command_line(call.span.input or {})) for call in calls):
        return None  # the work is in files, not in the answer
    bad, good = (_answer(session, turn) for turn in turns)
    correction = later[0].text.strip()
    if not bad or not good or bad == good or max(len(bad), len(good)) > MAX_ANSWER or _REDACTED in good + correction:
        return "the answers cannot be compared"
    if why := _prompt_problem(said.text.strip(), said.turn <= 1):
        return why
    known = (said.turn, said.text.strip(), CheckKind.CORRECTION, True)
    about = (_task_id(session, said.turn), session.session_id, session.client, session.project)
    return SessionTask(*about, *known, correction=correction, good=good, bad=bad)


def _answer(session: Session, turn: int) -> str:
    parts = [
        span.text.strip()
        for span in session.spans
        if span.turn == turn and span.role == "assistant" and span.input is None and span.agent is None
    ]
    return parts[-1] if parts else ""
