"""The command that shows what happened lately: log."""

import dataclasses
from typing import TYPE_CHECKING

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import Row, local_time, one_line, say, show_table
from evolvable_store.errors import InvalidArgument
from evolvable_store.operation import Actor
from evolvable_tools.trust import operation_said
from evolvable_tools.untrusted_text import AnswerMarks

if TYPE_CHECKING:
    from evolvable_store.operation import Change
    from evolvable_store.store import Store
    from evolvable_tools.library import Library

SESSION_SHOWN = 13
"""Characters that a table shows of a session; the beginning is enough to name it."""

SEARCHED = 10_000
"""Operations that are looked through for the session that a beginning names."""

MAX_REFS_SHOWN = 5
"""Resources that a table names of one operation."""


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """A resource that an operation moved from one version to another; None: it was or is not there."""

    ref: str
    before: int | None
    after: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Logged:
    """One operation, and what it moved. principal, via: who answers for it, '' for one of a version before 0.2."""

    operation: int
    at: str
    actor: str
    reason: str
    session: str | None
    undoes: list[int]
    evidence: list[str]
    changes: list[Moved]
    principal: str = ""
    via: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Log:
    """Operations, newest first. notice: what the marks around reasons and evidence mean, '' where there are none."""

    operations: list[Logged]
    notice: str = ""


@command("log")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--session", metavar="ID", help="Only what this session did.")
def log_command(state: State, limit: int, session: str | None) -> None:
    """Show what happened lately.

    The newest operation comes first: when it was, who made it and why, and what it changed.
    """
    with state.library() as (library, caller):
        whole = whole_session(library.store, session) if session else None
        log = read_log(library, limit, whole, marks=AnswerMarks(caller.actor is not Actor.HUMAN))
    state.show(log, lambda: _show(log))


def read_log(library: "Library", limit: int, session: str | None, marks: AnswerMarks) -> Log:
    """Returns up to `limit` operations, newest first; with `session`, only those made in it.

    marks: stand around what no person wrote.
    """
    store = library.store
    made = store.operations(limit, session)
    foreign = {o.id for o in made if marks.on and operation_said(library, o)}
    changes: dict[int, list[Change]] = {}
    for change in store.backend.changes_of([operation.id for operation in made]):
        changes.setdefault(change.operation, []).append(change)
    return Log(
        [
            Logged(
                o.id,
                o.at,
                o.actor,
                marks.line(o.reason) if o.id in foreign else o.reason,
                o.session,
                list(o.intent.undoes),
                [marks.line(text) if o.id in foreign else text for text in o.intent.evidence],
                [Moved(str(change.ref), change.before, change.after) for change in changes.get(o.id, [])],
                o.principal or "",
                o.intent.via,
            )
            for o in made
        ],
        marks.notice,
    )


def _show(log: Log) -> None:
    if not log.operations:
        say("Nothing has happened yet.")
        return
    named = any(o.session for o in log.operations)
    rows: list[Row] = [
        [
            (str(o.operation), "bold"),
            local_time(o.at),
            o.principal or o.actor,
            *[_short(o.session or "")] * named,
            o.reason,
            _moves(o.changes),
        ]
        for o in log.operations
    ]
    if log.notice:
        say(log.notice)
    show_table(["operation", "when", "who", *["session"] * named, "why", "what"], rows, wide=("why", "what"))
    for o in log.operations:
        for line in o.evidence:
            say(f"operation {o.operation}: {one_line(line)}")
    say("\nTake one back: evolvable undo OPERATION")


def _short(session: str) -> str:
    text = one_line(session)
    return text if len(text) <= SESSION_SHOWN + 3 else f"{text[:SESSION_SHOWN]}..."


def whole_session(store: "Store", text: str) -> str:
    """Returns the session that the text names, in full or by its beginning as `log` shows it; else the text.

    Raises InvalidArgument when several sessions begin so.
    """
    start = text.removesuffix("...")
    if not start or store.operations(1, text):
        return text
    found = sorted({o.session for o in store.operations(SEARCHED) if o.session and o.session.startswith(start)})
    if len(found) > 1:
        raise InvalidArgument(f"{len(found)} sessions begin so: {', '.join(map(ascii, found[:5]))}.", "Write one out.")
    return found[0] if found else text


def _moves(changes: list[Moved]) -> str:
    shown = [f"{moved.ref}@{moved.after}" if moved.after else f"{moved.ref} removed" for moved in changes]
    more = f" and {len(shown) - MAX_REFS_SHOWN} more" if len(shown) > MAX_REFS_SHOWN else ""
    return ", ".join(shown[:MAX_REFS_SHOWN]) + more
