"""The commands that change a resource or take changes back: update, restore, remove, undo."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from evolvable_server.cli.state import REF, State, command, expect_option, reason_option
from evolvable_server.cli.terminal import count, say, warn
from evolvable_store.errors import EvolvableError, InvalidArgument, NoSuchFile, TooLarge
from evolvable_store.objects import MAX_FILE
from evolvable_store.resource import Ref, main_file
from evolvable_tools import resources, undo
from evolvable_tools.library import Caller, Library

CONFLICTS = 1
"""The exit code of `undo` when it had to leave something alone."""

_NEW = "---\nname: {name}\ndescription: \n---\n\n"


class FileType(click.ParamType[tuple[str, bytes]]):
    """PATH=SOURCE: the path inside the resource, and the file (or `-`, stdin) whose bytes it gets."""

    name = "path=source"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, bytes]:
        if isinstance(value, tuple):
            return value
        path, equals, source = value.partition("=")
        if not (path and equals and source):
            self.fail(f"{ascii(value)} is not PATH=SOURCE, such as SKILL.md=./new.md.", param, ctx)
        try:
            with click.open_file(source, "rb") as stream:
                data: bytes = stream.read(MAX_FILE + 1)
        except OSError as error:
            self.fail(f"{ascii(source)}: {error.strerror}.", param, ctx)
        if len(data) > MAX_FILE:
            raise TooLarge(f"{source} has more than {MAX_FILE:,} bytes.", "That is the limit for one file.")
        return path, data


@command("update")
@click.argument("ref", type=REF)
@click.option("--file", "files", type=FileType(), multiple=True, metavar="PATH=SOURCE", help="Replace or add a file.")
@click.option(
    "--edit", "edits", nargs=3, multiple=True, metavar="PATH OLD NEW", help="Replace OLD, which stands there once."
)
@click.option("--delete", "deleted", multiple=True, metavar="PATH", help="Delete a file.")
@click.option("--editor", is_flag=True, help="Open a file of it in $EDITOR.")
@click.option("--path", metavar="PATH", help="The file for --editor; default its main file.")
@click.option("--create", is_flag=True, help="The resource is new.")
@click.option("--copy-of", type=REF, metavar="REF", help="With --create: start as a copy of this one.")
@click.option("--propose", is_flag=True, help="Change nothing yet; put it into the inbox.")
@expect_option
@reason_option("edited on the command line")
def update_command(
    state: State,
    ref: Ref,
    files: tuple[tuple[str, bytes], ...],
    edits: tuple[tuple[str, str, str], ...],
    deleted: tuple[str, ...],
    editor: bool,
    path: str | None,
    create: bool,
    copy_of: Ref | None,
    propose: bool,
    expect: int | None,
    reason: str,
) -> None:
    """Change or create a resource.

    Every change makes a new version.

    \b
    evolvable update pdf --file SKILL.md=./new.md -m "clearer steps"
    evolvable update pdf --edit SKILL.md "old text" "new text"
    evolvable update pdf --editor
    evolvable update my-skill --create --file SKILL.md=-  < SKILL.md
    """
    contents: dict[str, bytes | None] = dict(files)
    twice = {path for path, _ in files if path in deleted} | _repeated([path for path, _ in files])
    if twice:
        raise click.UsageError(f"{min(twice)} is named twice.")
    if editor and (files or edits or deleted or copy_of):
        raise click.UsageError("--editor goes with none of --file, --edit, --delete and --copy-of.")
    if path and not editor:
        raise click.UsageError("--path goes with --editor.")
    contents.update(dict.fromkeys(deleted))
    with state.library() as (library, caller), contextlib.ExitStack() as kept:
        if editor:
            edited = _edited(library, caller, ref, path, create, expect)
            kept.enter_context(_kept_when_refused(edited.path, edited.data))
            contents, expect = {edited.path: edited.data}, edited.version
        changes = [resources.Edit(*edit) for edit in edits]
        updated = resources.update(
            library,
            caller,
            ref.at(None),
            reason,
            files=contents,
            edits=changes,
            expected_version=expect,
            create=create,
            copy_of=copy_of,
            propose=propose,
        )
    state.show(updated, lambda: _show_updated(updated))


def _repeated(paths: list[str]) -> set[str]:
    return {path for path in paths if paths.count(path) > 1}


class _Edited:
    """What a person made of a file, and the version that it was."""

    def __init__(self, path: str, data: bytes, version: int | None) -> None:
        self.path, self.data, self.version = path, data, version


def _edited(library: Library, caller: Caller, ref: Ref, path: str | None, create: bool, expect: int | None) -> _Edited:
    """Opens the file in the person's editor. Raises InvalidArgument when nothing was saved."""
    path = path or main_file(ref.kind, ref.name)
    if create:
        before, version = _NEW.format(name=ref.name).encode("utf-8"), None
    else:
        head = library.store.head(ref, caller.scopes)
        version = head.version if expect is None else expect
        try:
            before = library.store.file(head, path).data
        except NoSuchFile:
            before = b""
    # As bytes, so that line ends and a missing last one come back as they were.
    after = click.edit(before, extension=Path(path).suffix or ".txt", require_save=True)
    if after is None or after == before:
        raise InvalidArgument("Nothing was saved in the editor, so nothing was changed.")
    return _Edited(path, after, version)


@contextlib.contextmanager
def _kept_when_refused(path: str, data: bytes) -> Iterator[None]:
    """Saves what a person wrote when the library does not take it, and says where."""
    try:
        yield
    except EvolvableError as error:
        prefix, suffix = "evolvable-", f"-{Path(path).name}"
        with tempfile.NamedTemporaryFile(prefix=prefix, suffix=suffix, delete=False) as stream:
            stream.write(data)
        error.hint = f"{error.hint} Your text is kept in {stream.name}".strip()
        raise


def _show_updated(updated: resources.Updated) -> None:
    for text in updated.warnings:
        warn(text)
    if updated.proposal_id is not None:
        say(f"Proposal {updated.proposal_id} for {updated.ref}: {', '.join(updated.changed)}")
        say(f"Read it: evolvable inbox show {updated.proposal_id}")
        return
    if updated.operation is None:
        at = f"version {updated.version}" if updated.version else "removed"
        say(f"{updated.ref} is as it was ({at}): nothing had to be changed.")
        return
    if updated.version is None:
        say(f"{updated.ref} is removed; its versions are kept.")
    else:
        was = f", before it was {updated.previous_version}" if updated.previous_version else ""
        files = f": {', '.join(updated.changed)}" if updated.changed else ""
        say(f"{updated.ref} is now version {updated.version}{was}{files}")
    say(f"Take it back: evolvable undo {updated.operation}")


@command("restore")
@click.argument("ref", type=REF)
@click.argument("version", type=click.IntRange(min=1), required=False)
@expect_option
@reason_option("restored on the command line")
def restore_command(state: State, ref: Ref, version: int | None, expect: int | None, reason: str) -> None:
    """Bring an old version back.

    Its content becomes a new version. A removed resource comes back too.
    """
    wanted = version or ref.version
    if wanted is None:
        raise click.UsageError("Name the version: `evolvable history` shows them.")
    with state.library() as (library, caller):
        updated = resources.restore(library, caller, ref.at(None), wanted, reason, expected_version=expect)
    state.show(updated, lambda: _show_updated(updated))


@command("remove")
@click.argument("ref", type=REF)
@expect_option
@reason_option("removed on the command line")
def remove_command(state: State, ref: Ref, expect: int | None, reason: str) -> None:
    """Remove a resource; its versions stay.

    It goes from the folders that are watched as well. `evolvable restore` brings it back.
    """
    with state.library() as (library, caller):
        updated = resources.remove(library, caller, ref.at(None), reason, expected_version=expect)
    state.show(updated, lambda: _show_updated(updated))


@command("undo")
@click.argument("operation", type=click.IntRange(min=1), required=False)
@click.option("--session", metavar="ID", help="Instead: take back all that this session did.")
@reason_option("undone on the command line")
@click.pass_context
def undo_command(ctx: click.Context, state: State, operation: int | None, session: str | None, reason: str) -> None:
    """Take an operation back.

    OPERATION, or all that a session changed, is taken back in one new operation. What somebody changed since is
    left alone and listed; the exit code is then 1. `evolvable log` shows operations.
    """
    if (operation is None) == (session is None):
        raise click.UsageError("Name an operation, or a session with --session. `evolvable log` shows both.")
    with state.library() as (library, caller):
        undone = undo.undo(library, caller, reason, operation=operation, session=session)
    state.show(undone, lambda: _show_undone(undone))
    if undone.conflicts:
        ctx.exit(CONFLICTS)


def _show_undone(undone: undo.Undone) -> None:
    for text in undone.warnings:
        warn(text)
    if undone.operation is None and not undone.conflicts:
        say("Nothing had to be changed: it was taken back already.")
    for restored in undone.restored:
        say(f"back: {restored}")
    for conflict in undone.conflicts:
        say(f"left alone: {conflict.ref}: {conflict.reason}")
    if undone.operation is not None:
        say(f"This is operation {undone.operation}; it took back {count(len(undone.undid), 'operation')}.")
