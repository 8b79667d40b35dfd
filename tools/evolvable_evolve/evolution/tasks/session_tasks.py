"""Find tasks in finished sessions: the request of a person, the check of the work, and the files.

Deterministic; no model is asked, nothing is run. A session is hostile input: only words that a
person typed become a prompt, or a fixed sentence with the check; a check is of a known kind, and a
path that leads out of the project ends the attempt. Every session without a task has a reason, so
that a person can see why most give none.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from evolvable_evolve.evolution.tasks.check_commands import CheckLine, check_result, read_check
from evolvable_evolve.evolution.tasks.file_replay import REDACTED, FileReplay
from evolvable_store.workingcopy import TreeTooLarge
from evolvable_tools.outcomes import (
    ToolCall,
    accepts,
    calls_of,
    corrects,
    git_command,
    is_check,
    only_looks,
    undoes,
)
from evolvable_tools.sessions import Session, Span, command_line

MIN_PROMPT, MAX_PROMPT = 20, 6_000
"""Characters of a prompt: a shorter one depends on earlier ones, a longer one is a pasted text."""

MAX_ANSWER = 8_000
"""The most characters of an answer that a judge compares."""

MAX_WINDOWS = 10
"""The most windows of one session; each is from a check's failure to its next success."""

# Beginnings of a prompt that cannot be understood without the one before it.
_LEANING = re.compile(
    r"^\W*(?:and|also|now|then|next|again|yes|yep|ok|okay|no|nope|go on|continue|proceed|same|do "
    r"(?:it|that|the "
    r"same)|(?:please\s+)?(?:fix|commit|undo|revert|try|do|change|move|rename|remove|delete|run|"
    r"test)\s+(?:it|that|this|them|those|these))\b",
    re.IGNORECASE,
)
# The first line that `git commit` prints: [branch id].
_COMMIT = re.compile(r"^\[[^\]\n]{1,200}? ([0-9a-f]{7,40})\]", re.MULTILINE)


class CheckKind(StrEnum):
    """How a task from a session is checked."""

    EXIT_CODE = "exit-code"
    """A command that failed before the work and succeeded after it, tests above all."""

    CORRECTION = "correction"
    """A judge compares with the person's correction and with the answer that they accepted."""


@dataclass(frozen=True, slots=True)
class SessionTask:
    """One task of a session.

    turn: of the prompt. accepted: the person accepted the work. argv: of the check by exit code.
    options: folder, variables and path of the check. start, end: the files before and after the
    work. correction, good, bad: the texts of a task that a judge scores.
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
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoTask:
    """Why a session gives no task."""

    session: str
    why: str


ReadTrees = Callable[[Session, str], tuple[Mapping[str, bytes], Mapping[str, bytes] | None]]
"""Returns the files that a session began with, and those of the commit that it made.

The second argument is the abbreviated id of that commit, '' without one. Raises TreeTooLarge.
"""


def no_trees(
    session: Session, commit_id: str
) -> tuple[Mapping[str, bytes], Mapping[str, bytes] | None]:
    """Return no files, for sessions without a repository."""
    return {}, None


def find_session_tasks(session: Session, trees: ReadTrees = no_trees) -> list[SessionTask | NoTask]:
    """Return the tasks of a session, or why there is none.

    A prompt is a task where a command or a correction checks the work. Each further window in which
    a check failed and then succeeded is one as well, with a prompt that names the check.
    """
    # The prompt of a review is a program's, and no person's.
    if session.reviewing:
        return [NoTask(session.session_id, "it is a review, or watches another session")]
    typed = [span for span in session.spans if span.typed and span.text.strip()]
    if session.is_copy:
        return [NoTask(session.session_id, "it is a copy of another session")]
    if not typed:
        return [NoTask(session.session_id, "no person typed anything")]
    # A subagent's calls belong to work that the person did not ask for in these words.
    calls = [call for call in calls_of(session) if call.span.agent is None]
    runs = list(_list_check_runs(calls, session.project))
    tasks: list[SessionTask] = []
    reasons: dict[str, None] = {}
    for number, prompt_span in enumerate(typed):
        # The prompt of a fork belongs to the session that it was copied from.
        if prompt_span.copied:
            continue
        work = _Work(session, prompt_span, typed[number + 1 :], calls, runs, trees)
        task = _find_checked_task(work) or _find_corrected_task(
            session, prompt_span, work.later, calls
        )
        if isinstance(task, SessionTask):
            tasks.append(task)
        else:
            reasons.setdefault(task or "nothing checks the work", None)
        # The files of a window come from the same calls as the prompt.
        if REDACTED not in prompt_span.text:
            prompted, most = isinstance(task, SessionTask), MAX_WINDOWS - len(tasks)
            tasks += _find_window_tasks(work, prompted, most)
    # Of most prompts nothing checks the work, so any other reason says more.
    unchecked = "nothing checks the work"
    best = next((why for why in reasons if why != unchecked), unchecked)
    return list(tasks) or [NoTask(session.session_id, best)]


@dataclass(frozen=True, slots=True)
class _CheckRun:
    """One run of a check. passed: None where the result is unknown."""

    call: ToolCall
    check: CheckLine
    passed: bool | None

    @property
    def at(self) -> int:
        return self.call.span.index


def _list_check_runs(calls: Sequence[ToolCall], project: str | None) -> Iterator[_CheckRun]:
    for call in calls:
        check = read_check(command_line(call.span.input or {}), project) if call.commands else None
        if check is not None:
            yield _CheckRun(call, check, check_result(call, check))


@dataclass(frozen=True, slots=True)
class _Work:
    """The work that one prompt led to.

    later: the person's later prompts. calls, runs: of the whole session.
    """

    session: Session
    prompt_span: Span
    later: Sequence[Span]
    calls: Sequence[ToolCall]
    runs: Sequence[_CheckRun]
    trees: ReadTrees

    @property
    def own(self) -> list[_CheckRun]:
        return [run for run in self.runs if run.call.span.turn == self.prompt_span.turn]

    def undone_after(self, at: int) -> str:
        """Return how the work up to a place was lost or rejected, '' where it was not."""
        after = [call for call in self.calls if call.span.index > at and not call.has_failed]
        if any(map(_is_undo, after)):
            return "the work was taken back later"
        if self.later and corrects(self.later[0].text):
            return "the person corrected the work afterwards"
        return ""

    def task(
        self,
        first: int,
        last: _CheckRun,
        prompt: str,
        tree: Mapping[str, bytes],
        committed: Mapping[str, bytes] | None,
    ) -> SessionTask | str:
        """Return the task whose work is between two places, or why its files are unknown.

        tree: the files at the start of the session. committed: the files of the commit of the work.
        """
        files = FileReplay(self.session.project, tree)
        # Earlier calls as well: they made the files that this work began with.
        for call in self.calls:
            if call.span.index <= last.at:
                files.take(call, counts=call.span.index > first)
        if files.problem:
            return files.problem
        start = {**tree, **{path: text.encode() for path, text in files.start.items()}}
        # The commit has the files exactly, and the session only those that it showed.
        end = committed
        if end is None:
            if not files.whole:
                return "the files that the work changed are not all known"
            end = {**tree, **{path: text.encode() for path, text in files.now.items()}}
        if start == end:
            return "the work changed no file that is known"
        # A task of the whole prompt keeps the id that it had before windows were found.
        whole = first < self.own[0].at
        return SessionTask(
            _make_task_id(self.session, self.prompt_span.turn, "" if whole else str(last.at)),
            self.session.session_id,
            self.session.client,
            self.session.project,
            self.prompt_span.turn,
            prompt,
            CheckKind.EXIT_CODE,
            bool(self.later) and accepts(self.later[0].text),
            last.check.words,
            start,
            end,
            options=last.check.options,
        )


def _find_prompt_problem(text: str, first: bool) -> str:
    if REDACTED in text:
        return "the prompt holds a secret, which was taken out"
    if not MIN_PROMPT <= len(text) <= MAX_PROMPT:
        return "the prompt is too short or too long to stand alone"
    if not first and _LEANING.search(text):
        return "the prompt leans on what was said before"
    return ""


def _make_task_id(session: Session, turn: int, window: str = "") -> str:
    identity = f"{session.client} {session.session_id} {turn}{f' {window}' if window else ''}"
    return "session-" + hashlib.sha256(identity.encode()).hexdigest()[:12]


def _find_checked_task(work: _Work) -> SessionTask | str | None:
    """Return the task of a prompt whose work a command checked, or why it is none.

    Return None without such a check.
    """
    own, prompt_span = work.own, work.prompt_span
    if not own:
        own_calls = [call for call in work.calls if call.span.turn == prompt_span.turn]
        has_check = any(map(_is_check_call, own_calls))
        return "its check is no single command that can be run alone" if has_check else None
    # The last run with a known result; a filter may hide that of the very last.
    last = next((run for run in reversed(own) if run.passed is not None), own[-1])
    if last.passed is None:
        return "a filter stands behind its check, and nothing says how the check ended"
    if not last.passed:
        return "its check still fails at the end"
    earlier = [run for run in work.runs if run.at < last.at and run.check == last.check]
    # A check that passed from the start may have nothing to do with the work.
    if all(run.passed is not False for run in earlier):
        return "its check never failed, so it may say nothing of the work"
    prompt = prompt_span.text.strip()
    if why := work.undone_after(last.at) or _find_prompt_problem(prompt, prompt_span.turn <= 1):
        return why
    # The commit may be made in a later turn.
    later_calls = (call for call in work.calls if call.span.turn >= prompt_span.turn)
    commit_id = next(filter(None, map(_read_commit_id, later_calls)), "")
    try:
        tree, committed = work.trees(work.session, commit_id)
    except TreeTooLarge:
        return "the project has too many files to keep them with a task"
    return work.task(prompt_span.index, last, prompt, tree, committed)


WINDOW_PROMPT = (
    "The check `{check}` fails in this project. Find out why, and repair the project. Leave the "
    "check as it is."
)


def _find_window_tasks(work: _Work, prompted: bool, most: int) -> list[SessionTask]:
    """Return the tasks of the windows in which a check failed and then succeeded.

    prompted: the prompt is a task itself. It ends at the last check, so the window that ends there
    is a part of it.
    """
    own = [run for run in work.own if run.passed is not None]
    failing: dict[CheckLine, _CheckRun] = {}
    windows: list[tuple[_CheckRun, _CheckRun]] = []
    # From the first failure on: later failures are attempts at the same window.
    for run in own:
        if not run.passed:
            failing.setdefault(run.check, run)
            continue
        first = failing.pop(run.check, None)
        is_part_of_prompt = prompted and run is own[-1]
        if first is not None and not is_part_of_prompt:
            windows.append((first, run))
    if not windows or work.undone_after(windows[-1][1].at):
        return []
    try:
        tree, _ = work.trees(work.session, "")
    except TreeTooLarge:
        return []
    candidates = [
        work.task(first.at, last, WINDOW_PROMPT.format(check=last.check), tree, None)
        for first, last in windows
    ]
    tasks = [task for task in candidates if isinstance(task, SessionTask)]
    return tasks[: max(0, most)]


def _is_check_call(call: ToolCall) -> bool:
    return is_check(command_line(call.span.input or {}))


def _is_undo(call: ToolCall) -> bool:
    return undoes(command_line(call.span.input or {}))


def _read_commit_id(call: ToolCall) -> str:
    """Return the id that `git commit` printed, '' for another call."""
    # A failed commit prints no id.
    if call.result is None or call.has_failed:
        return ""
    if not any(git_command(command) == "commit" for command in call.commands):
        return ""
    match = _COMMIT.search(call.result.text[:4_000])
    return match[1] if match else ""


def _find_corrected_task(
    session: Session, prompt_span: Span, later: Sequence[Span], calls: Sequence[ToolCall]
) -> SessionTask | str | None:
    """Return the task of a prompt whose answer was corrected, and whose second answer was accepted.

    A correction says what a right answer does. An acceptance alone says nothing to check.
    """
    if len(later) < 2 or not corrects(later[0].text) or not accepts(later[1].text):
        return None
    turns = (prompt_span.turn, later[0].turn)
    lines = [command_line(call.span.input or {}) for call in calls if call.span.turn in turns]
    # The work is in files, and not in the answer.
    if not all(map(only_looks, lines)):
        return None
    bad, good = (_find_answer(session, turn) for turn in turns)
    correction = later[0].text.strip()
    are_different = bool(bad) and bool(good) and bad != good
    if not are_different or max(len(bad), len(good)) > MAX_ANSWER or REDACTED in good + correction:
        return "the answers cannot be compared"
    prompt = prompt_span.text.strip()
    if why := _find_prompt_problem(prompt, prompt_span.turn <= 1):
        return why
    return SessionTask(
        _make_task_id(session, prompt_span.turn),
        session.session_id,
        session.client,
        session.project,
        prompt_span.turn,
        prompt,
        CheckKind.CORRECTION,
        accepted=True,
        correction=correction,
        good=good,
        bad=bad,
    )


def _find_answer(session: Session, turn: int) -> str:
    parts = [
        span.text.strip()
        for span in session.spans
        if span.turn == turn
        and span.role == "assistant"
        and span.input is None
        and span.agent is None
    ]
    # A turn may have several texts, and the last is its answer.
    return parts[-1] if parts else ""
