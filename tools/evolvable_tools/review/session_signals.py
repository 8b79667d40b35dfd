"""Session signals: each has a code, a turn and its spans, found without a model among the steps of
a session.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from evolvable_tools import outcomes
from evolvable_tools.outcomes import MAX_COMMAND, named_files, normalize_command
from evolvable_tools.sessions import Origin, Session, Span, command_line


@dataclass(frozen=True, slots=True)
class SessionStep:
    """One call. result: None when the session ends before it. key: what two like calls have in
    common.

    checks, looks, undoes, commits: what `evolvable_tools.outcomes` says of its command.
    """

    call: Span
    result: Span | None
    command: str
    key: str
    failed: bool
    checks: bool
    looks: bool
    undoes: bool
    commits: bool


def session_steps(spans: Sequence[Span]) -> list[SessionStep]:
    """Return the calls of a session in order, each with its result.

    A call that was refused before it ran is left out.
    """
    return [
        _make_step(call, result)
        for call, result in outcomes.pair_calls(spans)
        if not is_refused(result)
    ]


def is_refused(result: Span | None) -> bool:
    """Return whether a person or a setting refused the call of this result."""
    return result is not None and result.is_error and outcomes.was_refused(result.text)


def _make_step(call: Span, result: Span | None) -> SessionStep:
    arguments: Mapping[str, Any] = call.input or {}
    command = command_line(arguments)[:MAX_COMMAND].strip()
    key = (
        f"$ {normalize_command(command)}" if command else f"{call.tool} {_find_subject(arguments)}"
    )
    bad = result is not None and (
        outcomes.ended_badly(command, result.text, result.is_error) if command else result.is_error
    )
    # A failed run is a check by its command alone; a passed one has to have run to its end.
    checks = outcomes.is_check if bad else outcomes.is_passed_check
    does = (checks, outcomes.only_looks, outcomes.undoes, outcomes.commits)
    return SessionStep(call, result, command, key, bad, *(asks(command) for asks in does))


def _find_subject(arguments: Mapping[str, Any]) -> str:
    """Return what a call is about: a file, a question, an address."""
    names = ("file_path", "path", "notebook_path", "pattern", "url", "query", "skill", "ref")
    values = (arguments.get(name) for name in names)
    return next((value[:200] for value in values if isinstance(value, str)), "")


@dataclass(frozen=True, slots=True)
class FileEdit:
    """One replacement in a file."""

    step: SessionStep
    path: str
    old: str
    new: str


def file_edits(all_steps: Sequence[SessionStep]) -> Iterator[FileEdit]:
    """Yield the replacements that succeeded, in order: of Edit and MultiEdit, and the hunks of an
    applied patch.
    """
    for step in all_steps:
        arguments: Mapping[str, Any] = step.call.input or {}
        if step.failed:
            continue
        path = str(arguments.get("file_path") or arguments.get("path") or "")
        several = arguments.get("edits")
        for edit in several if isinstance(several, list) else [arguments]:
            if isinstance(edit, Mapping) and isinstance(edit.get("old_string"), str):
                yield FileEdit(step, path, str(edit["old_string"]), str(edit.get("new_string", "")))
        texts = (arguments.get(name) for name in ("patch", "input"))
        patch = next((text for text in texts if isinstance(text, str)), step.command)
        if "*** Begin Patch" in patch:
            yield from _read_hunks(step, patch)


def _read_hunks(step: SessionStep, patch: str) -> Iterator[FileEdit]:
    path, old, new = "", list[str](), list[str]()
    # The added "@@" ends the last hunk.
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


REVIEWER = 1
"""The version of what reviews a session. A session is reviewed once by each."""

RETRIES = 3
"""Like calls in one turn, of which some fail, that make a chain of retries."""

LOOP = 3
"""Errors of one tool in a row that make a loop."""

SEQUENCE = 3
"""Steps that make a procedure."""

MOST_SEQUENCES = 40
"""Procedures that are kept of one session."""

MOST_SKILLS = 40
"""Skills of one session that are looked at."""

COSTLY = 200_000
"""Tokens of a session that are worth a remark."""

MOST = 400
"""Signals of one session. A session with more shows nothing in particular."""


@dataclass(frozen=True, slots=True)
class SessionSignal:
    """One thing that happened.

    spans: their indexes. key: by which the same is known in another session.
    """

    code: str
    turn: int
    spans: tuple[int, ...]
    said: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class SignalContext:
    """A session as the finders read it."""

    session: Session
    steps: list[SessionStep]
    typed: list[Span]


def signals(session: Session) -> tuple[SessionSignal, ...]:
    """Return every signal of a session, in the order of their turns.

    A signal whose last span another session had first is that session's.
    """
    typed = [span for span in session.spans if span.typed and span.text.strip()]
    context = SignalContext(session, session_steps(session.spans), typed)
    every_signal = [
        signal
        for finder in FINDERS
        for signal in finder(context)
        if not session.spans[max(signal.spans)].copied
    ]
    return tuple(sorted(every_signal, key=lambda signal: (signal.turn, signal.spans))[:MOST])


def _make_signal(
    code: str, steps: Sequence[SessionStep], text: str, key: str = ""
) -> SessionSignal:
    """Return the signal of some steps, in the turn of the last of them."""
    spans = (span.index for step in steps for span in (step.call, step.result) if span is not None)
    return SessionSignal(code, steps[-1].call.turn, tuple(spans), text, key)


def user_signals(context: SignalContext) -> Iterator[SessionSignal]:
    """Yield corrections, acceptances, statements that are to hold, and wishes for a skill."""
    for number, span in enumerate(context.typed):
        excerpt, at = outcomes.unquoted_text(span.text)[:160], (span.turn, (span.index,))
        if outcomes.wishes_skill(span.text):
            yield SessionSignal("asked_for_skill", *at, f"The user asked for a skill: {excerpt}")
        if outcomes.states(span.text):
            yield SessionSignal("user_statement", *at, f"The user stated: {excerpt}")
        before = context.session.spans[span.index - 1] if span.index else None
        text_before = before.text.rstrip() if before is not None else ""
        is_reply = before is not None and before.role == "assistant"
        is_answer = is_reply and text_before.endswith("?")
        # Clients end the refusal of a call so, and the person's own words follow as the next
        # message.
        instead = is_refused(before) and text_before.endswith(("said:", "how to proceed."))
        if instead or (number and outcomes.corrects(span.text, is_answer)):
            yield SessionSignal("correction", *at, f"The user corrected the work: {excerpt}")
        elif number and outcomes.accepts(span.text):
            yield SessionSignal("acceptance", *at, f"The user accepted the work: {excerpt}")


def retry_chains(context: SignalContext) -> Iterator[SessionSignal]:
    """Yield calls that were made again and again in one turn, at least twice in vain."""
    for _, group in groupby(_drop_waiting(context.steps), key=lambda step: step.call.turn):
        by_key: dict[str, list[SessionStep]] = {}
        for step in group:
            by_key.setdefault(_name_program(step), []).append(step)
        for key, tries in by_key.items():
            bad = [step for step in tries if step.failed]
            if len(tries) >= RETRIES and len(bad) >= RETRIES - 1:
                end = "and worked in the end" if not tries[-1].failed else "and never worked"
                text = f"{len(tries)} tries of {key[:80]}, {len(bad)} failed, {end}"
                yield _make_signal("retry_chain", tries, text, f"retry:{key}")


def error_loops(context: SignalContext) -> Iterator[SessionSignal]:
    """Yield the same tool, or the same program of a shell, failing several times in a row."""
    steps = _drop_waiting(context.steps)
    for (tool, bad), group in groupby(steps, key=lambda step: (_name_tool(step), step.failed)):
        row = list(group)
        if bad and len(row) >= LOOP:
            signal = _make_signal("error_loop", row, f"{tool} failed {len(row)} times in a row")
            yield replace(signal, turn=row[0].call.turn)


def _drop_waiting(all_steps: Sequence[SessionStep]) -> Iterator[SessionStep]:
    """Yield the steps; of one that was repeated unchanged until it worked, the last: the agent
    waited.
    """

    def identify(step: SessionStep) -> tuple[object, ...]:
        # A call that is no command is a repetition of none.
        return step.call.turn, step.key, step.command or step.call.index

    for _, group in groupby(all_steps, key=identify):
        row = list(group)
        yield from row if row[-1].failed else row[-1:]


def reverted_edits(context: SignalContext) -> Iterator[SessionSignal]:
    """Yield edits that were taken back later, by an edit or by git."""
    # The first edit of a file from one text to another.
    first_edits: dict[tuple[str, str, str], SessionStep] = {}
    for edit in file_edits(context.steps):
        before = first_edits.get((edit.path, edit.new, edit.old)) if edit.old != edit.new else None
        if before is not None and (edit.old.strip() or edit.new.strip()):
            yield _make_signal(
                "edit_reverted", [before, edit.step], f"{edit.path}: an edit was taken back"
            )
        first_edits.setdefault((edit.path, edit.old, edit.new), edit.step)
    edited = {path.rpartition("/")[2] for path, _, _ in first_edits}
    worked = next((n for n, step in enumerate(context.steps) if not step.looks), 0)
    # Before anything was done there is nothing of it to take back.
    for step in context.steps[worked + 1 :]:
        if step.failed or not step.undoes:
            continue
        # Where edits are known, `git checkout FILE` counts only for an edited file.
        takes_all = not edited or "--hard" in step.command
        if takes_all or any(name in step.command for name in edited if name):
            yield _make_signal("edit_reverted", [step], "changes were taken back with git")


def fail_then_pass(context: SignalContext) -> Iterator[SessionSignal]:
    """Yield checks that failed and passed later: a verified outcome."""
    failing: dict[str, SessionStep] = {}
    for step in context.steps:
        if not step.checks or step.result is None:
            continue
        if step.failed:
            failing.setdefault(step.key, step)
        elif step.key in failing:
            text = f"{step.key[2:90]} failed, and passes now"
            yield _make_signal("fail_then_pass", [failing.pop(step.key), step], text)
        else:
            yield _make_signal("check_passed", [step], f"{step.key[2:90]} passes")
    for step in failing.values():
        yield _make_signal("check_failing", [step], f"{step.key[2:90]} still fails at the end")


def commits(context: SignalContext) -> Iterator[SessionSignal]:
    """Yield commits that were made."""
    for step in context.steps:
        if step.commits and step.result is not None and not step.failed:
            yield _make_signal("commit", [step], "a commit was made")


def procedures(context: SignalContext) -> Iterator[SessionSignal]:
    """Yield each run of steps that changed something, by which the same procedure is known in
    another session.
    """
    found = 0
    for _, group in groupby(context.steps, key=lambda step: step.call.turn):
        done = [step for step in group if step.command and not step.failed and not step.looks]
        plain = [next(same) for _, same in groupby(done, key=lambda step: step.key)]
        for start in range(len(plain) - SEQUENCE + 1):
            part = plain[start : start + SEQUENCE]
            if len({step.key for step in part}) == SEQUENCE and found < MOST_SEQUENCES:
                found += 1
                key = " && ".join(step.key[2:] for step in part)
                yield _make_signal("procedure", part, key, f"procedure:{key}")


def ignored_skills(context: SignalContext) -> Iterator[SessionSignal]:
    """Yield skills that were loaded and that nothing after their first load has to do with."""
    first: dict[str, Span] = {}
    for span in context.session.spans:
        is_loaded = span.origin is Origin.SKILL and not span.is_error
        if span.skill and is_loaded and len(first) < MOST_SKILLS:
            first.setdefault(span.skill, span)
    for span in first.values():
        later = [other for other in context.session.spans if other.index > span.index]
        by_agent = [other for other in later if other.origin is Origin.ASSISTANT]
        if not later or any(other.skill == span.skill for other in by_agent):
            continue
        agent_text = " ".join(
            f"{other.text[:2_000]} {other.input or ''}"
            for other in later
            if other.role == "assistant"
        )
        marks = named_files(" ".join(span.text[:20_000].split())) | {str(span.skill)}
        if not any(mark in agent_text for mark in marks):
            text = f"{span.skill} was loaded and not used"
            yield SessionSignal(
                "skill_ignored", span.turn, (span.index,), text, f"ignored:{span.skill}"
            )


def cost(context: SignalContext) -> Iterator[SessionSignal]:
    """Yield a remark on a session that took many tokens."""
    tokens = context.session.tokens or 0
    if tokens >= COSTLY and context.typed:
        last = context.typed[-1]
        yield SessionSignal(
            "costly", last.turn, (last.index,), f"the session took {tokens:,} tokens"
        )


FINDERS: tuple[Callable[[SignalContext], Iterator[SessionSignal]], ...] = (
    user_signals,
    retry_chains,
    error_loops,
    reverted_edits,
    fail_then_pass,
    commits,
    procedures,
    ignored_skills,
    cost,
)
"""What looks for signals. Each is deterministic and reads the session once."""

CODES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("signals.toml").read_text("utf-8"))
"""The codes of signals, by what follows from them."""

LEARNABLE = frozenset(CODES["learnable"])
"""Signals that something can be learned from. A session without any is not worth a thought."""


def _name_tool(step: SessionStep) -> str:
    return step.key.split()[1] if len(step.key) > 2 and step.command else str(step.call.tool)


def _name_program(step: SessionStep) -> str:
    return " ".join(step.key.split()[:3]) if step.command else step.key
