"""The commands new and edit: a text in the person's editor, opened again until the library takes
it.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import click

from evolvable_server.cli.command_context import CommandContext, Output, command, to_cli_words
from evolvable_server.cli.maintenance import warn_of_secrets
from evolvable_server.cli.options import REF, reason_option
from evolvable_server.cli.terminal import ask_yes, edit_text, say, show_error, warn
from evolvable_server.config import at_terminal
from evolvable_store.errors import (
    AlreadyExists,
    EvolvableError,
    InvalidArgument,
    InvalidPath,
    InvalidResource,
    NoSuchFile,
    TooLarge,
)
from evolvable_store.resource import Kind, Ref, main_file
from evolvable_tools import Caller, Library, decode_text
from evolvable_tools.verbs import Updated, update_resource

Saved = TypeVar("Saved")


def show_updated(updated: Updated) -> None:
    """Write what a change did, and how to take it back."""
    warn(*updated.warnings)
    if updated.proposal_id is not None:
        files = f": {', '.join(updated.changed)}" if updated.changed else ""
        say(f"Proposal {updated.proposal_id} for {updated.ref} waits for a person{files}")
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


_NEW = {
    Kind.SKILL: "# {title}\n\nWhen to use it, and the steps to follow.\n",
    Kind.AGENT: "You are ... Say what you are responsible for, and what you return.\n",
    Kind.PROMPT: "Ask for one thing. Arguments stand in braces.\n",
}
"""Kind -> what the body of a new resource begins with; nothing for the others."""


@dataclass(frozen=True, slots=True)
class EditedText:
    """A file in the editor. version: that of the resource, None for a new one."""

    path: str
    data: bytes
    version: int | None


def new_text(ref: Ref, path: str | None) -> EditedText:
    """Return the text of a new resource for the editor: its frontmatter, without a description."""
    head = f"---\nname: {ref.name}\ndescription: \n---\n\n"
    return EditedText(path or main_file(ref.kind, ref.name), head.encode("utf-8"), None)


def stored_text(
    library: Library, caller: Caller, ref: Ref, path: str | None, expect: int | None
) -> EditedText:
    """Return a file of a resource as it is now, empty for one that it does not have.

    Raise NoSuchResource.
    """
    path = path or main_file(ref.kind, ref.name)
    head = library.store.head(ref, caller.scopes)
    try:
        data = library.store.file(head, path).data
    except NoSuchFile:
        data = b""
    return EditedText(path, data, head.version if expect is None else expect)


def open_editor(start: EditedText, text: bytes | None = None) -> EditedText:
    """Return the text as the person saved it. Raise InvalidArgument when nothing was saved.

    text: what the editor shows in place of `start`, from an earlier try.
    """
    # As bytes, so that line ends and a missing last one come back as they were.
    after = edit_text(start.data if text is None else text, start.path)
    if after is None or after == start.data:
        raise InvalidArgument("Nothing was saved in the editor, so nothing was changed.")
    return replace(start, data=after)


@contextlib.contextmanager
def keep_when_refused(edited: Iterable[EditedText]) -> Iterator[None]:
    """Save what a person wrote when the library does not take it, and say where."""
    try:
        yield
    except EvolvableError as error:
        # The error ends the command, so its hint says where the text is.
        error.hint = f"{error.hint} {_save_texts(edited)}".strip()
        raise
    except (click.ClickException, KeyboardInterrupt):  # a later editor failed, or was interrupted
        if sentence := _save_texts(edited):
            click.echo(sentence, err=True)
        raise


def _save_texts(edited: Iterable[EditedText]) -> str:
    """Write texts to files of their own; return the sentence that names them, '' for no text."""
    paths = []
    for text in edited:
        # With the file's own ending, by which an editor knows how to show it.
        prefix, suffix = "evolvable-", f"-{Path(text.path).name}"
        # delete=False: the file outlives this process, and the person is told its name.
        with tempfile.NamedTemporaryFile(prefix=prefix, suffix=suffix, delete=False) as stream:
            stream.write(text.data)
        paths.append(stream.name)
    return f"Your text is kept in {' and '.join(paths)}" if paths else ""


_CAN_BE_MENDED = (InvalidResource, InvalidArgument, InvalidPath, TooLarge)
"""Errors that the person can correct in the text."""


def edit_until_valid(start: EditedText, save: Callable[[EditedText], Updated]) -> Updated:
    """Open the editor, and again after each error, until `save` takes the text or the person gives
    up.

    The text is never lost: a person who gives up, or interrupts, is told where it is. Raise as
    `save`.
    """
    edited = open_editor(start)
    while True:
        # Around each try: a text that the library refuses must not be lost.
        with keep_when_refused([edited]):
            try:
                return save(edited)
            except _CAN_BE_MENDED as error:
                show_error(to_cli_words(str(error)), to_cli_words(error.hint))
                if not _ask_again([edited]):
                    raise InvalidArgument("Nothing was changed.") from None
        # Saved without a change: the same error is told again.
        with contextlib.suppress(InvalidArgument):
            edited = open_editor(start, edited.data)


def edit_proposed(
    texts: Mapping[str, bytes], save: Callable[[Mapping[str, bytes]], Saved]
) -> Saved | None:
    """Open texts in the editor, one after the other, and again until `save` takes those that were
    changed.

    Return what `save` returns, None when nothing was changed. A text is never lost: a person who
    gives up, or whose texts are refused, is told where they are. Raise as `save`.
    """
    edited: dict[str, EditedText] = {}
    while True:
        with keep_when_refused(edited.values()):
            _open_each(texts, edited)
            if not edited:
                return None
            try:
                for text in edited.values():
                    _check_saved(text)
                return save({path: text.data for path, text in edited.items()})
            except _CAN_BE_MENDED as error:
                show_error(to_cli_words(str(error)), to_cli_words(error.hint))
                if not _ask_again(edited.values()):
                    raise InvalidArgument("Nothing was changed.") from None


def _open_each(texts: Mapping[str, bytes], edited: dict[str, EditedText]) -> None:
    """Let the person edit each text; in a later round only those that were edited before."""
    for path in list(edited) or texts:
        start = edited.get(path, EditedText(path, texts[path], None))
        saved = edit_text(start.data, path)
        if saved == texts[path]:
            # Back at the proposed text, it is no edit any more.
            edited.pop(path, None)
        elif saved is not None:
            edited[path] = replace(start, data=saved)


def _check_saved(edited: EditedText) -> None:
    """Raise InvalidArgument for a text that an editor saved in another encoding."""
    if decode_text(edited.data) is None:
        raise InvalidArgument(
            f"What was saved of {edited.path} is not text in UTF-8.", "Save it as UTF-8."
        )


def _ask_again(edited: Iterable[EditedText]) -> bool:
    try:
        return ask_yes("Open it again?", default=True, err=True)
    except click.Abort:
        click.echo(f"\n{_save_texts(edited)}", err=True)
        raise


def check_has_editor(state: CommandContext, instead: str) -> None:
    """Raise InvalidArgument where no editor can be opened. instead: the command that needs none."""
    if not at_terminal() or state.json:
        raise InvalidArgument(
            "An editor needs a terminal, and no --json.", f"`{instead}` takes the text from a file."
        )


@command("new")
@click.argument("what", nargs=-1, required=True, metavar="[KIND] NAME")
@reason_option("written in an editor")
def new_command(state: CommandContext, what: tuple[str, ...], reason: str) -> Output[Updated]:
    """Write a new resource in your editor.

    Opens a template in $VISUAL or $EDITOR. KIND is skill (the default), agent, prompt, tool,
    environment or memory; NAME may be a whole ref. What the library does not take is opened again,
    with the reason.
    """
    if len(what) > 2:
        raise click.UsageError("Name one kind and one name, such as: evolvable new agent reviewer")
    ref = Ref.parse(":".join(what))
    check_has_editor(
        state, f"evolvable update {ref} --create --file {main_file(ref.kind, ref.name)}=FILE"
    )
    with state.library(create=True) as (library, caller):
        head = library.store.head_or_none(ref, caller.scopes)
        # A removed resource has a head without a version, and its name may be used again.
        if head is not None and head.version is not None:
            raise AlreadyExists(
                f"{head.ref} exists already (version {head.version}).",
                f"`evolvable edit {head.ref}`",
            )
    start = new_text(ref, None)
    body = _NEW.get(ref.kind, "").format(title=ref.name.replace("-", " ").capitalize())
    start = replace(start, data=start.data + body.encode("utf-8"))
    return Output(_edit_and_save(state, ref, reason, start, create=True), show_updated)


@command("edit")
@click.argument("ref", type=REF)
@click.option("--path", metavar="FILE", help="A file of it; default its main file.")
@reason_option("edited in an editor")
def edit_command(state: CommandContext, ref: Ref, path: str | None, reason: str) -> Output[Updated]:
    """Change a resource in your editor.

    Opens a file of it in $VISUAL or $EDITOR and makes a new version of what you save. What the
    library does not take is opened again, with the reason.
    """
    bare = ref.at(None)
    check_has_editor(
        state, f"evolvable update {bare} --file {path or main_file(ref.kind, ref.name)}=FILE"
    )
    with state.library() as (library, caller):
        start = stored_text(library, caller, bare, path, None)
    return Output(_edit_and_save(state, bare, reason, start, create=False), show_updated)


def _edit_and_save(
    state: CommandContext, ref: Ref, reason: str, start: EditedText, *, create: bool
) -> Updated:
    """Open the editor, and make a version of what the person saves.

    The library is not open meanwhile.
    """

    def save(edited: EditedText) -> Updated:
        # Opened for each try: an editor may stay open for hours, and the library must not.
        with state.library() as (library, caller):
            updated = update_resource(
                library,
                caller,
                ref,
                reason,
                files={edited.path: edited.data},
                # A version that others made while the editor was open raises a conflict, and is not
                # replaced.
                expected_version=edited.version,
                create=create,
            )
            if updated.changed:
                warn_of_secrets(library)
        return updated

    return edit_until_valid(start, save)
