"""The commands that make versions: update, restore, remove and undo; and log, which lists
operations.
"""

import contextlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.editor_commands import (
    keep_when_refused,
    new_text,
    open_editor,
    show_updated,
    stored_text,
)
from evolvable_server.cli.exit_codes import found_code
from evolvable_server.cli.maintenance import warn_of_secrets
from evolvable_server.cli.options import (
    REF,
    expect_option,
    page_option,
    read_source,
    reason_option,
    say_more,
)
from evolvable_server.cli.terminal import (
    confirm,
    count,
    local_time,
    one_line,
    remark,
    say,
    say_quoted,
    show_table,
    some,
    warn,
)
from evolvable_store import QUICKSTART, Actor, Change, Operation, Principal, Store
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref
from evolvable_tools import (
    AnswerMarks,
    AuthorKind,
    Caller,
    Library,
    TextEdit,
    author_words,
    operation_author,
    reason_notice,
    verbs,
)
from evolvable_tools.verbs import Undone, revert_or_propose


def directories_of(library: Library, refs: Iterable[Ref]) -> list[Path]:
    """Return the directories in watched folders that hold these resources now, sorted."""
    resources = [head.id for ref in refs if (head := library.store.head_or_none(ref)) is not None]
    copies = library.working_copies
    folders = {folder.id: folder.path for folder in copies.folders()}
    paths = (
        folders[binding.folder] / binding.directory
        for binding in copies.bindings.of_resources(resources)
        if binding.folder in folders
    )
    return sorted(path for path in paths if path.is_dir())


def say_gone(before: Iterable[Path]) -> None:
    """Write which of the directories that were there are gone."""
    say(*(f"removed from disk: {path}" for path in before if not path.exists()))


IMPORTED = "imported from"
"""How the reason of an operation begins that brought something in."""

_IMPORTERS = (AuthorKind.YOU, AuthorKind.REPOSITORY, AuthorKind.IMPORT)
"""The authors of imports that a person began: a repository or an archive is one itself."""

SESSION_SHOWN = 13
"""Characters that a table shows of a session; the beginning is enough to name it."""

# Of a session further back, a person writes the whole name.
SEARCHED = 10_000
"""Operations that are looked through for the session that a beginning names."""

MAX_REFS = 5
"""Resources that a table names of one operation."""


@command("log", table=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@page_option
@click.option("--session", metavar="ID", help="Only what this session did.")
def log_command(
    state: CommandContext, limit: int, page: int, session: str | None
) -> Output[dict[str, Any]]:
    """Show what happened lately.

    The newest operation comes first: when it was, who made it and why, and what it changed.
    """
    with state.library() as (library, caller):
        whole = whole_session(library.store, session) if session else None
        marks = AnswerMarks(caller.actor is not Actor.HUMAN)
        # One more than a page, to know whether another one follows.
        newest = library.store.operations(limit * page + 1, whole)
        operations = newest[limit * (page - 1) :]
        entries = read_log(library, operations[:limit], marks)
    more = len(operations) > limit
    return Output(
        {"operations": entries, "notice": marks.notice}, lambda log: _show_log(log, page, more)
    )


def read_log(
    library: Library, operations: Sequence[Operation], marks: AnswerMarks
) -> list[dict[str, Any]]:
    """Return operations and what each moved.

    marks: stand around what no person wrote. A principal of '': of a version before 0.2.
    """
    changes = dict[int, list[dict[str, Any]]]()
    for change in library.store.backend.changes_of([operation.id for operation in operations]):
        moved = {"ref": str(change.ref), "before": change.before, "after": change.after}
        changes.setdefault(change.operation, []).append(moved)
    entries = []
    for operation in operations:
        # Only what no person wrote is marked.
        mark = marks.line if marks.on and reason_notice(operation) else str
        fields = {
            "operation": operation.id,
            "at": operation.at,
            "actor": operation.actor,
            "reason": mark(operation.reason),
            "session": operation.session,
        }
        why = {
            "undoes": list(operation.intent.undoes),
            "evidence": list(map(mark, operation.intent.evidence)),
        }
        author, by = operation_author(operation)
        authorship = {
            "principal": operation.principal or "",
            "via": operation.intent.via,
            "author": author,
            "by": by,
        }
        entries.append({**fields, **why, "changes": changes.get(operation.id, []), **authorship})
    return entries


def _show_log(log: dict[str, Any], page: int, more: bool) -> None:
    operations = log["operations"]
    if not operations:
        say("Nothing has happened yet." if page == 1 else f"There is no page {page}.")
        return
    if log["notice"]:
        say(log["notice"])
    # Without any session the column is left out.
    has_sessions = any(operation["session"] for operation in operations)
    show_table(
        ["operation", "when", "author", *["session"] * has_sessions, "why", "what"],
        [
            [
                (str(operation["operation"]), "bold"),
                local_time(operation["at"]),
                author_words(operation["author"], operation["by"]),
                *[_shorten_session(operation["session"] or "")] * has_sessions,
                operation["reason"],
                some([_describe_move(change) for change in operation["changes"]], MAX_REFS),
            ]
            for operation in operations
        ],
        wide=("why", "what"),
        spare=("session", "when"),
        whole=bool(log["notice"]),
    )
    for operation in operations:
        say(
            *(
                f"operation {operation['operation']}: {one_line(line)}"
                for line in operation["evidence"]
            )
        )
    say_more(page, len(operations), more)
    say("\nSee one whole: evolvable show OPERATION", "Take one back: evolvable undo OPERATION")


def _describe_move(change: dict[str, Any]) -> str:
    return f"{change['ref']}@{change['after']}" if change["after"] else f"{change['ref']} removed"


def _shorten_session(session: str) -> str:
    text = one_line(session)
    return text if len(text) <= SESSION_SHOWN + 3 else f"{text[:SESSION_SHOWN]}..."


def whole_session(store: Store, text: str) -> str:
    """Return the session that the text names in full, or by its beginning as `log` shows it.

    Return the text where it names none.
    Raise InvalidArgument when several sessions begin so.
    """
    start = text.removesuffix("...")
    # A whole name counts before beginnings.
    if not start or store.operations(1, text):
        return text
    names = sorted(
        {
            operation.session
            for operation in store.operations(SEARCHED)
            if operation.session and operation.session.startswith(start)
        }
    )
    if len(names) > 1:
        raise InvalidArgument(
            f"{len(names)} sessions begin so: {', '.join(map(ascii, names[:5]))}.", "Write one out."
        )
    return names[0] if names else text


MAX_SHOWN = 20
"""Directories that the question before an undo names."""


@command("restore")
@click.argument("ref", type=REF)
@click.argument("version", type=click.IntRange(min=1), required=False)
@expect_option
@reason_option("")
def restore_command(
    state: CommandContext, ref: Ref, version: int | None, expect: int | None, reason: str
) -> Output[verbs.Updated]:
    """Bring an old version back.

    Name it as REF VERSION or as REF@VERSION. Its content becomes a new version. A removed resource
    comes back too.
    """
    wanted_version = version or ref.version
    if wanted_version is None:
        raise click.UsageError("Name the version: `evolvable history` shows them.")
    with state.library() as (library, caller):
        why = reason or f"version {wanted_version} restored"
        restored = verbs.restore_resource(
            library, caller, ref.at(None), wanted_version, why, expected_version=expect
        )
    return Output(restored, show_updated)


@command("remove")
@click.argument("ref", type=REF)
@expect_option
@reason_option("removed on the command line")
def remove_command(
    state: CommandContext, ref: Ref, expect: int | None, reason: str
) -> Output[verbs.Updated]:
    """Remove a resource; its versions stay.

    It goes from the folders that are watched as well. `evolvable restore` brings it back.
    """
    with state.library() as (library, caller):
        # Before the removal, which takes the bindings of the directories away.
        directories = directories_of(library, [library.store.head(ref.at(None), caller.scopes).ref])
        updated = verbs.remove_resource(
            library, caller, ref.at(None), reason, expected_version=expect
        )

    def render(updated: verbs.Updated) -> None:
        show_updated(updated)
        say_gone(directories)

    return Output(updated, render)


@command("undo")
@click.argument("operation", type=click.IntRange(min=1), required=False)
@click.option("--session", metavar="ID", help="Instead: take back all that this session did.")
@click.option("--yes", is_flag=True, help="Do not ask before directories go from the disk.")
@reason_option("")
def undo_command(
    state: CommandContext, operation: int | None, session: str | None, yes: bool, reason: str
) -> Output[Undone]:
    """Take an operation back.

    OPERATION, or all that a session changed, is taken back in one new operation. Without either, at
    a terminal, your last change is shown, and you are asked whether to take it back; an import is
    offered by its number only. What somebody changed since stays. A resource where both changed the
    same lines is left alone and listed, and so is one that waits for a person; the exit code is
    then 4. `evolvable log` shows operations. What they created goes from the watched folders too;
    at a terminal that is asked first.
    """
    is_named = operation is not None or session is not None
    at_terminal = sys.stdin.isatty() and state.identity.principal is Principal.PERSON
    if (operation is not None and session is not None) or (not is_named and not at_terminal):
        raise click.UsageError(
            "Name an operation, or a session with --session. `evolvable log` shows both."
        )
    with state.library() as (library, caller):
        if not is_named:
            operation = _offer_last(library, caller, yes=yes)
        session = whole_session(library.store, session) if session else session
        changes = _read_changes(library, operation, session)
        if not yes and sys.stdin.isatty():
            # Only what the operation created goes from the disk.
            _confirm_undo(
                directories_of(library, {change.ref for change in changes if change.before is None})
            )
        directories = directories_of(library, {change.ref for change in changes})
        undone_name = f"operation {operation}" if operation else f"session {session}"
        why = reason or f"{undone_name} undone"
        undone = revert_or_propose(library, caller, why, operation=operation, session=session)
    return Output(
        undone,
        lambda _: _show_undone(undone, directories),
        found_code(undone.waiting, undone.conflicts),
    )


def _offer_last(library: Library, caller: Caller, *, yes: bool) -> int:
    """Show the person's last change that is in force, and return its operation after a yes.

    A change that was saved in a folder counts too. An import does not: taking it back takes the
    skills from the disk. Later operations of others are named. Raise InvalidArgument.
    """
    undone, later, imported = set[int](), list[str](), ""
    for operation in library.store.operations(SEARCHED):
        # Newest first: an undo comes before what it took back.
        undone.update(operation.intent.undoes)
        if operation.intent.undoes or operation.id in undone:
            continue
        author, by = operation_author(operation, caller)
        changes = library.store.backend.changes_of([operation.id])
        is_own_import = author in _IMPORTERS and operation.intent.via != QUICKSTART.via
        if is_own_import and is_import(operation, changes):
            hint = f" The last import is operation {operation.id}: `evolvable undo "
            imported = imported or f"{hint}{operation.id}` asks first."
        elif author is AuthorKind.YOU:
            break
        if author is not AuthorKind.YOU:
            later.append(
                f"operation {operation.id} by {author_words(author, by)}: "
                f"{_describe_moves(changes)}"
            )
    else:
        raise InvalidArgument(
            "You made no change that could be taken back.",
            f"`evolvable log` shows all operations.{imported}",
        )
    what = f"{one_line(operation.reason)}: {_describe_moves(changes)}"
    remark(f"Your last change is operation {operation.id}, {local_time(operation.at)}: {what}")
    if later:
        remark(
            "Others changed something later, and it stays:",
            *(f"  {line}" for line in later[:MAX_REFS]),
        )
    if len(later) > MAX_REFS:
        remark(f"  and {len(later) - MAX_REFS:,} more: evolvable log")
    confirm(f"Take back operation {operation.id}?", yes=yes, refused="Nothing was taken back.")
    return operation.id


def is_import(operation: Operation, changes: Sequence[Change]) -> bool:
    """Return whether an operation only brought in what a folder or an archive held."""
    return operation.reason.startswith(IMPORTED) and all(
        change.before is None for change in changes
    )


def _describe_moves(changes: Sequence[Change]) -> str:
    return some(
        [_describe_move({"ref": str(change.ref), "after": change.after}) for change in changes],
        MAX_REFS,
    )


def _read_changes(library: Library, operation: int | None, session: str | None) -> list[Change]:
    ids = [operation or 0]
    if session is not None:
        ids = [each.id for each in library.store.operations(SEARCHED, session)]
    return library.store.backend.changes_of(ids)


def _confirm_undo(going: list[Path]) -> None:
    """Ask before directories of a person go. Raise InvalidArgument when they shall stay."""
    if not going:
        return
    remark(
        "These directories hold what was created, and go from the disk if nobody changed it since:"
    )
    remark(*(f"  {path}" for path in going[:MAX_SHOWN]))
    if len(going) > MAX_SHOWN:
        remark(f"  and {len(going) - MAX_SHOWN:,} more")
    confirm("Take it back?", refused="Nothing was taken back.")


def _show_undone(undone: Undone, directories: list[Path]) -> None:
    warn(*undone.warnings)
    if undone.waiting:
        which = (
            f"{count(len(undone.waiting), 'proposal')} "
            f"({some(list(map(str, undone.waiting)), MAX_REFS)})"
        )
        say(f"Nothing is taken back yet: it waits for a person as {which}.")
        say(f"Read it: evolvable inbox show {undone.waiting[0]}")
    elif undone.operation is None and not undone.conflicts:
        say("Nothing had to be changed: it was taken back already.")
    say(*(f"restored: {restored}" for restored in undone.restored))
    for conflict in undone.conflicts:
        say(f"skipped (conflict): {conflict.ref}: {conflict.reason}")
        if conflict.sides:
            say_quoted(conflict.sides.removesuffix("\n"))
    say_gone(directories)
    if undone.operation is not None:
        say(
            f"This is operation {undone.operation}; it took back "
            f"{count(len(undone.undid), 'operation')}."
        )


def file_source(value: str) -> tuple[str, bytes]:
    """Return what PATH=SOURCE names: the path inside the resource, and the bytes of the file (or
    `-`, stdin).
    """
    path, equals, source = value.partition("=")
    if not (path and equals and source):
        raise click.BadParameter(f"{ascii(value)} is not PATH=SOURCE, such as SKILL.md=./new.md.")
    return path, read_source(source)


@command("update")
@click.argument("ref", type=REF)
@click.option(
    "--file",
    "files",
    type=file_source,
    multiple=True,
    metavar="PATH=SOURCE",
    help="Replace or add a file.",
)
@click.option(
    "--edit",
    "edits",
    nargs=3,
    multiple=True,
    metavar="PATH OLD NEW",
    help="Replace OLD, which stands there once.",
)
@click.option("--delete", "deleted", multiple=True, metavar="PATH", help="Delete a file.")
@click.option("--editor", is_flag=True, help="Open a file of it in $EDITOR.")
@click.option("--path", metavar="PATH", help="The file for --editor; default its main file.")
@click.option("--create", is_flag=True, help="The resource is new.")
@click.option(
    "--copy-of", type=REF, metavar="REF", help="With --create: start as a copy of this one."
)
@click.option("--propose", is_flag=True, help="Change nothing yet; put it into the inbox.")
@expect_option
@reason_option("edited on the command line")
def update_command(
    state: CommandContext,
    ref: Ref,
    files: tuple[tuple[str, bytes], ...],
    edits: tuple[tuple[str, str, str], ...],
    deleted: tuple[str, ...],
    editor: bool,
    path: str | None,
    expect: int | None,
    reason: str,
    **options: Any,
) -> Output[verbs.Updated]:
    """Change or create a resource.

    Every change makes a new version. `--file SKILL.md=-` reads stdin, `--editor` opens $EDITOR.
    """
    contents = _merge_contents(files, deleted)
    if editor and (files or edits or deleted or options["copy_of"]):
        raise click.UsageError("--editor goes with none of --file, --edit, --delete and --copy-of.")
    if path and not editor:
        raise click.UsageError("--path goes with --editor.")
    # Closed first on an error, so that the text of an editor is saved.
    with state.library() as (library, caller), contextlib.ExitStack() as stack:
        if editor:
            if options["create"]:
                start = new_text(ref, path)
            else:
                start = stored_text(library, caller, ref, path, expect)
            edited = open_editor(start)
            stack.enter_context(keep_when_refused([edited]))
            contents, expect = {edited.path: edited.data}, edited.version
        updated = verbs.update_resource(
            library,
            caller,
            ref.at(None),
            reason,
            files=contents,
            edits=[TextEdit(*edit) for edit in edits],
            expected_version=expect,
            **options,
        )
        if updated.changed:
            warn_of_secrets(library)
    return Output(updated, show_updated)


def _merge_contents(
    files: tuple[tuple[str, bytes], ...], deleted: tuple[str, ...]
) -> dict[str, bytes | None]:
    paths = [*(path for path, _ in files), *deleted]
    twice = [path for path in paths if paths.count(path) > 1]
    if twice:
        raise click.UsageError(f"{twice[0]} is named twice.")
    return {**dict(files), **dict.fromkeys(deleted)}
