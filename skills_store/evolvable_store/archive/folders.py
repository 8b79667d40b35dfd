"""Resources as plain folders: name/SKILL.md and so on, the newest version of each."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_store.archive.output import chosen_heads
from evolvable_store.archive.taking_in import Candidate, Imported, Look, is_main, looked_away, take_in
from evolvable_store.errors import InvalidArchive, InvalidArgument, LibraryError
from evolvable_store.folder import is_ignored, read_folder
from evolvable_store.objects import Files
from evolvable_store.paths import check_path
from evolvable_store.resource import USER_SCOPE, Kind, Ref, check_scope, main_file

if TYPE_CHECKING:
    from evolvable_store.store import Store

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)

MAX_DEPTH = 6
"""How deep below the folder named resources are looked for."""


def export_folders(store: "Store", target: Path, refs: Iterable[Ref] | None = None) -> tuple[Ref, ...]:
    """Returns the resources written as folders into `target`, by default all skills of the user's scope.

    `target` is made when it is missing. Nothing in it is overwritten: a name that is taken is refused before
    anything is written. Each folder appears whole. Raises NoSuchResource, InvalidArgument, LibraryError.
    """
    heads = chosen_heads(store, refs)
    try:
        target.mkdir(parents=True, exist_ok=True)
        taken = [head.name for head in heads if os.path.lexists(target / head.name)]
        if taken:
            raise InvalidArgument(f"{target} has {', '.join(taken[:10])} already.", "Name an empty folder.")
        draft = Path(tempfile.mkdtemp(prefix=".export.", suffix=".tmp", dir=target))
        try:
            for head in heads:
                _write(draft / head.name, store.files(head))
                os.rename(draft / head.name, target / head.name)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise LibraryError(f"{target} cannot be written: {error.strerror or error}.", "Name another folder.") from error
    return tuple(head.ref for head in heads)


def _hint(source: Path, kind: Kind) -> str:
    """Returns what to do about a folder in which nothing of this kind was found."""
    others = [other for other in Kind if other is not kind and next(_found(source, other, MAX_DEPTH), None)]
    if others:
        return f"It has {main_file(others[0], 'name')}: take it in as the kind {others[0]} (--kind {others[0]})."
    main = main_file(kind, "name")
    return f"Name another folder, or write {main} into it, beginning with ---, name, description, ---."


def _write(folder: Path, files: Files) -> None:
    folder.mkdir()
    for path, file in files.items():
        place = folder / check_path(path)  # whoever wrote the library's file
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(place, _NEW, file.mode), "wb") as stream:
            stream.write(file.data)


def import_folders(
    store: "Store",
    source: Path,
    *,
    kind: Kind = Kind.SKILL,
    scope: str = USER_SCOPE,
    replace: bool = False,
    reason: str = "",
    progress: Callable[[int, int], None] | None = None,
    look: Look = looked_away,
) -> Imported:
    """Returns what became of each folder in `source`, or of `source` itself, that holds a resource of this kind.

    As import_zip. A folder with a symlink or anything else that cannot be kept whole is refused. progress: called
    with folders read and all folders. Raises InvalidArchive when there is no such folder.
    """
    check_scope(scope)
    folders = list(_found(source.absolute(), kind, MAX_DEPTH))
    if not folders:
        raise InvalidArchive(f"{source} has no folder with {main_file(kind, 'name')}.", _hint(source.absolute(), kind))

    def read() -> Iterator[Candidate]:
        for done, folder in enumerate(folders, 1):
            yield _candidate(folder)
            if progress:
                progress(done, len(folders))

    return take_in(store, kind, scope, read, reason or f"imported from {source}", replace, look)


def _found(place: Path, kind: Kind, depth: int) -> Iterator[Path]:
    """Yields the outermost folders from `place` on that hold a main file; links are not followed."""
    try:
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError:
        return
    if any(is_main(kind, f"{place.name}/{entry.name}") for entry in entries):
        yield place
        return
    for entry in entries:
        if depth and entry.is_dir(follow_symlinks=False) and not is_ignored(entry.name):
            yield from _found(Path(entry.path), kind, depth - 1)


def _candidate(folder: Path) -> Candidate:
    try:
        reading = read_folder(folder)
    except FileNotFoundError:
        return Candidate(folder.name, {}, ("it is gone",))
    if reading.cut_short:
        return Candidate(folder.name, {}, (reading.cut_short,))
    return Candidate(folder.name, reading.files, tuple(f"{path}: {why}" for path, why in reading.left_out.items()))
