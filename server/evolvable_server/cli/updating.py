"""The command that changes a resource, or makes one: update."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from evolvable_server.cli.changing import show_updated
from evolvable_server.cli.purging import warn_of_secrets
from evolvable_server.cli.state import REF, State, command, expect_option, reason_option
from evolvable_store.errors import EvolvableError, InvalidArgument, NoSuchFile, TooLarge
from evolvable_store.objects import MAX_FILE
from evolvable_store.resource import Ref, main_file
from evolvable_tools.library import Caller, Library
from evolvable_tools.verbs import edit
from evolvable_tools.verbs.edit import TextEdit

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

    Every change makes a new version. `--file SKILL.md=-` reads stdin, `--editor` opens $EDITOR.
    """
    contents = _contents(files, deleted)
    if editor and (files or edits or deleted or copy_of):
        raise click.UsageError("--editor goes with none of --file, --edit, --delete and --copy-of.")
    if path and not editor:
        raise click.UsageError("--path goes with --editor.")
    with state.library() as (library, caller), contextlib.ExitStack() as kept:
        if editor:
            edited = _edited(library, caller, ref, path, create, expect)
            kept.enter_context(_kept_when_refused(edited))
            contents, expect = {edited.path: edited.data}, edited.version
        updated = edit.update_resource(
            library,
            caller,
            ref.at(None),
            reason,
            files=contents,
            edits=[TextEdit(*edit) for edit in edits],
            expected_version=expect,
            create=create,
            copy_of=copy_of,
            propose=propose,
        )
        if updated.changed:
            warn_of_secrets(library)
    state.show(updated, lambda: show_updated(updated))


def _contents(files: tuple[tuple[str, bytes], ...], deleted: tuple[str, ...]) -> dict[str, bytes | None]:
    paths = [*(path for path, _ in files), *deleted]
    twice = [path for path in paths if paths.count(path) > 1]
    if twice:
        raise click.UsageError(f"{twice[0]} is named twice.")
    return {**dict(files), **dict.fromkeys(deleted)}


@dataclass(frozen=True, slots=True)
class _Edited:
    """What a person made of a file, and the version that it was."""

    path: str
    data: bytes
    version: int | None


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
def _kept_when_refused(edited: _Edited) -> Iterator[None]:
    """Saves what a person wrote when the library does not take it, and says where."""
    try:
        yield
    except EvolvableError as error:
        prefix, suffix = "evolvable-", f"-{Path(edited.path).name}"
        with tempfile.NamedTemporaryFile(prefix=prefix, suffix=suffix, delete=False) as stream:
            stream.write(edited.data)
        error.hint = f"{error.hint} Your text is kept in {stream.name}".strip()
        raise
