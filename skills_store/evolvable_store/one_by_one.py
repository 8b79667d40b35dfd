"""The last resort where no whole folder can be renamed (Windows, lower layers of overlays): one file after the other.

Readers may see a mix meanwhile; a crash in between is finished by the next sweep.
"""

import os
import shutil
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from evolvable_store.folder import is_disposable, tracked, untracked
from evolvable_store.staging import Note, Slot, sync_folder


def replace_files(slot: Slot, note: Note) -> None:
    """Brings every file of `slot.ready` into the target, main file last, and takes away what is not there any more.

    What was there before ends up in `slot.old`. Can be called again after a crash at any instant, with the note as it
    then is. Raises OSError when a file cannot be replaced; then all are as they were, if the disk lets it.
    """
    target = slot.target(note)
    drop = note.drop
    if drop is None:
        drop = [path for path in tracked(target) if not os.path.lexists(slot.ready / path)]
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


def _go_through(slot: Slot, target: Path, drop: list[str], done: list[str]) -> None:
    for path in drop:
        done.append(path)
        _set_aside(target / path, slot.old / path)
        _prune(target, path)
    files = _main_last(slot.ready)
    for path in files:
        _make_room(target, path, slot.old, done)
        done.append(path)
        _back_up(target / path, slot.old / path)
        os.replace(slot.ready / path, target / path)
    if not files:
        _remove(target, slot.old)


def _remove(target: Path, old: Path) -> None:
    """Removes the folder itself, unless there is more in it than what programs make again by themselves."""
    for path in untracked(target):
        if is_disposable(path.rpartition("/")[2]):
            with suppress(OSError):  # a folder of a lower layer cannot be moved
                _set_aside(target / path, old / path)
    with suppress(OSError):
        target.rmdir()


def _main_last(folder: Path) -> list[str]:
    """Returns the paths of all files below, those like SKILL.md at the end."""
    paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()]
    return sorted(paths, key=lambda path: (path.endswith(".md") and path[:-3].isupper() and "/" not in path, path))


def _back_up(path: Path, kept: Path) -> None:
    """Keeps what is at `path` as `kept` too; it stays where it is if it is a file."""
    if os.path.lexists(kept) or not os.path.lexists(path):
        return
    if not stat.S_ISREG(os.lstat(path).st_mode):
        _set_aside(path, kept)
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, kept)
    except OSError:
        part = kept.with_name(f"{kept.name}.part.tmp")
        shutil.copy2(path, part)
        os.replace(part, kept)


def _set_aside(path: Path, kept: Path) -> None:
    if os.path.lexists(path) and not os.path.lexists(kept):
        kept.parent.mkdir(parents=True, exist_ok=True)
        os.rename(path, kept)


def _make_room(target: Path, path: str, old: Path, done: list[str]) -> None:
    """Makes the folders above `path`; moves away a link or a file that stands where one must be."""
    target.mkdir(exist_ok=True)
    parts = path.split("/")
    for depth in range(1, len(parts)):
        above = "/".join(parts[:depth])
        folder = target / above
        if os.path.lexists(folder) and not stat.S_ISDIR(os.lstat(folder).st_mode):
            done.append(above)
            _set_aside(folder, old / above)
        folder.mkdir(exist_ok=True)


def _prune(target: Path, path: str) -> None:
    """Removes the folders between `target` and `path` that are empty now."""
    with suppress(OSError):
        for folder in (target / path).parents:
            if folder == target:
                return
            folder.rmdir()


def _undo(slot: Slot, target: Path, drop: list[str], done: list[str]) -> None:
    """Puts everything back; what resists stays for the sweep."""
    try:
        for path in reversed(done):
            put, ready, kept = target / path, slot.ready / path, slot.old / path
            if put.is_dir() and not put.is_symlink():
                _prune(target, f"{path}/x")
            elif path not in drop and os.path.lexists(put) and not os.path.lexists(ready):
                os.replace(put, ready)
            if os.path.lexists(kept):
                put.parent.mkdir(parents=True, exist_ok=True)
                os.replace(kept, put)
    except OSError:
        return
    slot.delete(slot.old)


def _sync(target: Path) -> None:
    for folder, _, _ in os.walk(target, topdown=False):
        sync_folder(Path(folder))
