"""The last resort where no whole folder can be renamed (Windows, lower layers of overlays): one file after the other.

Readers may see a mix meanwhile; a crash in between is finished by the next sweep.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from evolvable_store.folder import is_disposable, tracked, untracked
from evolvable_store.openat import PathAt
from evolvable_store.rename import copy_file, rename
from evolvable_store.staging import Note, Slot, sync_folder


def replace_files(slot: Slot, note: Note) -> None:
    """Brings every file of `slot.ready` into the target, main file last, and takes away what is not there any more.

    What was there before ends up in `slot.old`. Can be called again after a crash at any instant, with the note as it
    then is. Raises OSError when a file cannot be replaced; then all are as they were, if the disk lets it.
    """
    target = slot.target(note)
    drop = note.drop
    if drop is None:
        drop = [path for path in tracked(target) if not (slot.ready / path).exists()]
        slot.write_note(replace(note, drop=drop))
    slot.ready.mkdir(exist_ok=True)
    slot.old.mkdir(exist_ok=True)
    done: list[str] = []
    try:
        _go_through(slot, target, drop, done)
    except OSError:
        if note.drop is None:
            _undo(slot, target, drop, done)
        raise
    _sync(target)
    slot.delete(slot.ready)


def _go_through(slot: Slot, target: PathAt, drop: list[str], done: list[str]) -> None:
    for path in drop:
        done.append(path)
        _set_aside(target / path, slot.old / path)
        _prune(target, path)
    files = _main_last(slot.ready)
    for path in files:
        _make_room(target, path, slot.old, done)
        done.append(path)
        _back_up(target / path, slot.old / path)
        rename(slot.ready / path, target / path)
    if not files:
        _remove(target, slot.old)


def _remove(target: PathAt, old: PathAt) -> None:
    """Removes the folder itself, unless there is more in it than what programs make again by themselves."""
    for path in untracked(target):
        if is_disposable(path.rpartition("/")[2]):
            with suppress(OSError):  # a folder of a lower layer cannot be moved
                _set_aside(target / path, old / path)
    with suppress(OSError):
        target.rmdir()


def _main_last(folder: PathAt) -> list[str]:
    """Returns the paths of all files below, those like SKILL.md at the end."""
    paths = _files_below(folder)
    return sorted(paths, key=lambda path: (path.endswith(".md") and path[:-3].isupper() and "/" not in path, path))


def _files_below(folder: PathAt, prefix: str = "") -> Iterator[str]:
    for name in folder.names():
        if (folder / name).is_dir():
            yield from _files_below(folder / name, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}"


def _back_up(path: PathAt, kept: PathAt) -> None:
    """Keeps what is at `path` as `kept` too; it stays where it is if it is a file."""
    if kept.exists() or not path.exists():
        return
    if not path.is_file():
        _set_aside(path, kept)
        return
    kept.make_parents()
    try:
        path.link_to(kept)
    except OSError:
        part = PathAt(kept.base, f"{kept.name}.part.tmp")
        copy_file(path, part)
        rename(part, kept)


def _set_aside(path: PathAt, kept: PathAt) -> None:
    if path.exists() and not kept.exists():
        kept.make_parents()
        rename(path, kept)


def _make_room(target: PathAt, path: str, old: PathAt, done: list[str]) -> None:
    """Makes the folders above `path`; moves away a link or a file that stands where one must be."""
    target.mkdir(exist_ok=True)
    parts = path.split("/")
    for depth in range(1, len(parts)):
        above = "/".join(parts[:depth])
        folder = target / above
        if folder.exists() and not folder.is_dir():
            done.append(above)
            _set_aside(folder, old / above)
        folder.mkdir(exist_ok=True)


def _prune(target: PathAt, path: str) -> None:
    """Removes the folders between `target` and `path` that are empty now."""
    with suppress(OSError):
        for folder in (target / path).parents:
            if folder == target:
                return
            folder.rmdir()


def _undo(slot: Slot, target: PathAt, drop: list[str], done: list[str]) -> None:
    """Puts everything back; what resists stays for the sweep."""
    try:
        for path in reversed(done):
            put, ready, kept = target / path, slot.ready / path, slot.old / path
            if put.is_dir():
                _prune(target, f"{path}/x")
            elif path not in drop and put.exists() and not ready.exists():
                rename(put, ready)
            if kept.exists():
                put.make_parents()
                rename(kept, put)
    except OSError:
        return
    slot.delete(slot.old)


def _sync(target: PathAt) -> None:
    with suppress(FileNotFoundError):
        for name in target.names():
            if (target / name).is_dir():
                _sync(target / name)
        sync_folder(target)
