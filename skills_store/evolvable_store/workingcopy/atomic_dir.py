"""Write a whole folder in one step.

No reader sees half of it, and a crash at any instant leaves the old folder or the new one.
"""

import errno
import os
import stat
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from evolvable_store.errors import Refused
from evolvable_store.objects import File, Files, TreeEntry, make_manifest
from evolvable_store.workingcopy.file_moves import (
    build_folder,
    build_single,
    move_untracked,
    replace_files,
    sync_tree,
)
from evolvable_store.workingcopy.openat import (
    UNSUPPORTED,
    PathAt,
    exchange,
    is_link,
    rename,
    rename_new,
)
from evolvable_store.workingcopy.staging_dir import (
    OpenStagingDirectory,
    RecoveryNote,
    Slot,
    StagingDirectory,
    clear_part,
    is_abandoned,
    list_stems,
    new_note,
    open_root,
    open_staging,
    staging_for,
    sync_directory,
    sync_folder,
    unknown_entries,
)
from evolvable_store.workingcopy.tree_reader import (
    FolderContents,
    keep_modes,
    read_folder,
    read_single,
    tracked_paths,
)

__all__ = [
    "RecoveredDirectory",
    "ReplacedDirectory",
    "StagingDirectory",
    "discard",
    "make_durable",
    "open_root",
    "open_staging",
    "read_back",
    "remove_folder",
    "remove_single",
    "staging_for",
    "still_holds",
    "sweep",
    "unknown_entries",
    "write_folder",
    "write_single",
]

SINGLE = "AGENT.md"
"""The path of a single file in the trees of this module, whatever the main file of its kind is."""

_NO_MODES: Mapping[str, File] = {}
# Errors after which the next way to swap is tried. EXDEV: the target lies on another file system
# than the staging folder.
_IMPOSSIBLE = UNSUPPORTED | {errno.EXDEV}


KeepUntracked = Callable[[PathAt, str], object]
"""Moves files that are kept out of a directory that was removed.

Its arguments: the directory, and its name below the root.
"""


@dataclass(frozen=True, slots=True)
class ReplacedDirectory:
    """A folder that was replaced or removed.

    It lies at `old` until a sweep has made sure that nothing is lost.
    """

    old: Path


@dataclass(frozen=True, slots=True)
class RecoveredDirectory:
    """A replaced folder that somebody wrote into just before the swap.

    files: of the folder. believed: the tree that the caller of the swap expected ('' for none).
    stuck: paths in `old` that belong to no version and did not go back to `target`, mostly because
    something else has their place. part: whether only one path of the folder was replaced; `files`
    has only that then. Every sweep returns it again until `discard(old)`.
    """

    target: Path
    files: dict[str, File]
    old: Path
    believed: str
    stuck: tuple[str, ...]
    part: bool = False


def write_folder(
    target: Path,
    files: Files,
    staging: StagingDirectory,
    *,
    believed: str,
    now: float,
    built: "Callable[[Path], object] | None" = None,
    links: Iterable[str] = (),
) -> ReplacedDirectory | None:
    """Make `target` a folder of exactly these files; return the folder that was there, or None.

    staging: of `staging_for`. believed: the tree (`make_manifest`) of the files that the caller
    just read in `target`, '' for none; a later `sweep` returns a folder that differs from it. now:
    seconds. built: called with the path of the new folder before anybody else can reach it. links:
    paths of links that stay as they are. Untracked files of the old folder move to the new one, and
    permissions are kept. All of it is on the disk when this returns. Raises Refused when `target`
    is a symlink or a file, InvalidPath or TooLarge for files that no resource may have, OSError
    when the disk refuses; then `target` is as it was.
    """
    written = make_manifest(files).tree
    with open_staging(staging) as place:
        at = check_target(target, place)
        build = partial(build_folder, files=files, like=at, links=links)
        return _write(at, build, place, believed, written, now, built)


def write_single(
    target: Path,
    file: File,
    staging: StagingDirectory,
    *,
    believed: str,
    now: float,
    built: "Callable[[Path], object] | None" = None,
) -> ReplacedDirectory | None:
    """Make `target` a file with this content, in one step as `write_folder` does.

    The trees, `believed` too, are those of a folder that holds this file alone, as SINGLE.
    """
    written = make_manifest({SINGLE: file}).tree
    with open_staging(staging) as place:
        at = check_target(target, place, single=True)
        build = partial(build_single, file=file, like=at)
        return _write(at, build, place, believed, written, now, built)


def _write(
    target: PathAt,
    build: Callable[[PathAt], None],
    place: OpenStagingDirectory,
    believed: str,
    written: str,
    now: float,
    built: "Callable[[Path], object] | None",
) -> ReplacedDirectory | None:
    slot = Slot.fresh(place, target.path.name)
    note = new_note(target, now=now, inode=0, believed=believed, written=written)
    try:
        # First a note, so that what is built is known as ours; it is durable before anything is
        # replaced.
        slot.write_note(note, durable=False)
        build(slot.new)
        if built is not None:
            built(slot.new.path)
        # The inode tells later which of two exchanged folders is the built one.
        note = replace(note, inode=slot.new.lstat().st_ino)
        # Durable from here on: a power cut after the rename finds a note that explains what lies
        # there.
        slot.write_note(note)
        # "ready" is whole; a sweep deletes what is still called "new".
        rename(slot.new, slot.ready)
        _sync_above(slot.ready)
        target.make_parents()
        put_in_place(slot, note)
    except OSError:
        give_up(slot)
        raise
    return finish_swap(slot, note)


def remove_folder(
    target: Path, staging: StagingDirectory, *, believed: str, now: float
) -> ReplacedDirectory | None:
    """Move `target` away; return where it lies now, None when there was nothing.

    Arguments and errors are those of `write_folder`. Files of the person that belong to no version
    stay in a folder of their own. Files that programs make again by themselves go with the rest.
    """
    with open_staging(staging) as place:
        at = check_target(target, place)
        return _remove(at, (_move_away, replace_files), place, believed, now)


def remove_single(
    target: Path, staging: StagingDirectory, *, believed: str, now: float
) -> ReplacedDirectory | None:
    """Move the file `target` away, as `remove_folder` does a folder.

    The trees are as for `write_single`.
    """
    with open_staging(staging) as place:
        at = check_target(target, place, single=True)
        return _remove(at, (_move_away,), place, believed, now)


def _remove(
    target: PathAt,
    ways: tuple["SwapMethod", ...],
    place: OpenStagingDirectory,
    believed: str,
    now: float,
) -> ReplacedDirectory | None:
    if not target.exists():
        return None
    slot = Slot.fresh(place, target.path.name)
    note = new_note(target, now=now, inode=0, believed=believed, written="")
    try:
        slot.write_note(note)
        _run_first_possible(ways, slot, note)
    except FileNotFoundError:
        give_up(slot)
        return None
    except OSError:
        give_up(slot)
        raise
    return finish_swap(slot, note)


def make_durable(root: Path, directory: str) -> None:
    """Wait until the disk has the tracked files and the names of a directory of a root.

    Raise Refused, OSError.
    """
    with open_root(root) as top:
        for path in tracked_paths(top / directory):
            with suppress(FileNotFoundError):
                fd = (top / directory / path).open(os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        sync_tree(top / directory)


def discard(old: Path, staging: StagingDirectory) -> None:
    """Delete a replaced folder: its content is safe in the library."""
    with open_staging(staging) as place:
        Slot.of(old, place).clear()


def still_holds(old: Path, tree: str, modes: Mapping[str, File | TreeEntry] = _NO_MODES) -> bool:
    """Return whether the tracked files of a replaced folder or file make this tree.

    modes: what gives the modes of the files where the file system records none.
    """
    try:
        return make_manifest(keep_modes(read_back(old).files, modes)).tree == tree
    except FileNotFoundError:
        return False


def read_back(old: Path, path: str = "") -> FolderContents:
    """Return the content of a replaced folder; of a replaced file, that file as SINGLE.

    path: where in its directory it lay; its files then have their paths in that directory. Raises
    FileNotFoundError.
    """
    if old.is_file() and not old.is_symlink():
        return read_single(old, path or SINGLE, real=True)
    reading = read_folder(old, real=True)
    if not path:
        return reading
    return replace(reading, files={f"{path}/{name}": file for name, file in reading.files.items()})


def sweep(
    staging: StagingDirectory,
    now: float,
    keep_seconds: float = 60.0,
    still_as_believed: Callable[[Path, str], bool] = still_holds,
    keep: KeepUntracked | None = None,
    only: str | None = None,
    skip: Container[str] = (),
) -> list[RecoveredDirectory]:
    """Clean up finished swaps; return the folders that somebody wrote into before their swap.

    Interrupted swaps are undone or finished at once when their process is dead, else after minutes.
    A replaced folder is deleted after `keep_seconds` if it is empty or has the tree that its note
    expects. Files in it that belong to no version move to the target first. Can run in several
    processes at once, beside writers. What the disk refuses now is left for the next sweep.

    keep: called for a directory that was removed, before the rest of it is deleted. only: examine
    the swaps of this directory alone. skip: stems of swaps to pass over.
    """
    recovered_directories: list[RecoveredDirectory] = []
    stems = [stem for stem in list_stems(staging.notes) if stem not in skip]
    if not stems:
        return recovered_directories
    with open_staging(staging) as place:
        for stem in stems:
            with suppress(OSError, Refused):
                recovered = _sweep_slot(
                    Slot(place, stem), now, keep_seconds, still_as_believed, keep, only
                )
                if recovered:
                    recovered_directories.append(recovered)
    return recovered_directories


def _sweep_slot(
    slot: Slot,
    now: float,
    keep_seconds: float,
    still_as_believed: Callable[[Path, str], bool],
    keep: KeepUntracked | None,
    only: str | None,
) -> RecoveredDirectory | None:
    note = slot.read_note()
    if note is None:
        clear_part(slot, now)
        return None
    if only is not None and note.target != only:
        return None
    # Finish a deletion that was interrupted.
    slot.delete(slot.gone)
    # A swap is unfinished until `old` is there and `ready` is gone.
    is_unfinished = not slot.old.exists() or slot.ready.exists()
    # Its process may still be alive and in the middle.
    if is_unfinished and not is_abandoned(note, now):
        return None
    _settle(slot, note)
    if not slot.old.exists():
        slot.clear()
        return None
    return _sweep_old(slot, note, abs(now - note.at) > keep_seconds, still_as_believed, keep)


def check_target(target: Path, place: OpenStagingDirectory, single: bool = False) -> PathAt:
    """Return the path of a directory or file to replace.

    Raise Refused for a link or a thing of another type.
    """
    at = place.target(place.staging.name_of(target))
    # From the root down: a link above the target would lead the write elsewhere.
    for above in reversed(at.parents):
        if above.exists() and is_link(above.lstat()):
            raise Refused(
                f"{above} is a symbolic link; nothing is written below it.", "Remove the link."
            )
    try:
        status = at.lstat()
    except FileNotFoundError:
        return at
    has_type, kind_name = (stat.S_ISREG, "file") if single else (stat.S_ISDIR, "folder")
    if is_link(status) or not has_type(status.st_mode):
        what = "a symlink" if is_link(status) else f"not a {kind_name}"
        raise Refused(
            f"{target} is {what}; it is not replaced.",
            f"Give the {kind_name} that it stands for, or remove it.",
        )
    return at


def _sync_above(path: PathAt) -> None:
    """Make the name of a path durable."""
    if path.parents:
        sync_folder(path.parents[0])
    else:
        sync_directory(path.base)


def put_in_place(slot: Slot, note: RecoveryNote) -> None:
    """Move the folder that is ready to its target; the folder that was there goes to `slot.old`."""
    target = slot.target(note)
    # Each try follows a change by somebody else; eight in a row are no accident.
    for attempt in range(8):
        try:
            if target.exists():
                _run_first_possible(_list_ways(slot, note), slot, note)
            else:
                # Never replaces: what somebody made in this moment stays.
                rename_new(slot.ready, target)
            return
        except (FileExistsError, FileNotFoundError):
            # Somebody made or removed the target in between.
            if attempt == 7 or not slot.ready.exists():
                raise


SwapMethod = Callable[[Slot, RecoveryNote], None]


def _list_ways(slot: Slot, note: RecoveryNote) -> tuple[SwapMethod, ...]:
    """Return the ways to swap that may be tried, the best first."""
    # Of one path in a directory, the file must not be gone for a moment: it would look deleted.
    if note.path:
        return (_exchange,)
    if slot.ready.is_file():
        return (_exchange, _two_renames)
    return (_exchange, _two_renames, replace_files)


def _run_first_possible(ways: tuple[SwapMethod, ...], slot: Slot, note: RecoveryNote) -> None:
    """Run the first of these ways that the system supports.

    On Windows run only the last: a directory with open files cannot be renamed there.
    """
    for way in ways if os.name == "posix" else ways[-1:]:
        try:
            return way(slot, note)
        except OSError as error:
            if error.errno not in _IMPOSSIBLE or way is ways[-1]:
                raise
    return None


def _exchange(slot: Slot, note: RecoveryNote) -> None:
    target = slot.target(note)
    # One step of the kernel: the path is never empty.
    exchange(slot.ready, target)
    try:
        rename(slot.ready, slot.old)
    except OSError:
        exchange(slot.ready, target)
        raise


def _two_renames(slot: Slot, note: RecoveryNote) -> None:
    target = slot.target(note)
    # Where the system cannot exchange: the path is empty for a moment.
    rename(target, slot.old)
    try:
        rename_new(slot.ready, target)
    except OSError:
        rename_new(slot.old, target)
        raise


def _move_away(slot: Slot, note: RecoveryNote) -> None:
    rename(slot.target(note), slot.old)


def finish_swap(
    slot: Slot, note: RecoveryNote, *, durable: bool = True
) -> ReplacedDirectory | None:
    """Finish a swap after `put_in_place`: move untracked files, or remove the slot.

    Return the folder that was replaced, None when there was none.
    """
    target = slot.target(note)
    # Before anything is deleted: the new name must be on the disk.
    if durable:
        _sync_above(target)
    if not slot.old.exists():
        slot.clear()
        return None
    # Only after the swap, when no reader sees the old folder at its path any more.
    move_untracked(slot.old, target, successor=bool(note.written))
    return ReplacedDirectory(slot.old.path)


def give_up(slot: Slot) -> None:
    """Remove the remains of a failed swap, unless the target was touched.

    Then the sweep examines them.
    """
    slot.delete(slot.new)
    note = slot.read_note()
    if slot.old.exists():
        return
    if note is None or note.drop is not None or not slot.ready.exists() or _is_ours(slot, note):
        slot.clear()


def _is_ours(slot: Slot, note: RecoveryNote) -> bool:
    """Return whether "ready" is the folder that was built, and not the one it was exchanged for."""
    # After an exchange "ready" holds the person's folder.
    return slot.ready.lstat().st_ino == note.inode


def _settle(slot: Slot, note: RecoveryNote) -> None:
    """Undo or finish a swap whose process died in the middle."""
    slot.delete(slot.new)
    if not slot.ready.exists():
        return
    # `replace_files` writes what it still has to do into the note, and goes on from there.
    if note.drop is not None:
        replace_files(slot, note)
    # The target was touched.
    elif slot.old.exists():
        target = slot.target(note)
        if not target.exists():
            rename_new(slot.old, target)
        slot.delete(slot.ready)
    elif _is_ours(slot, note):
        slot.delete(slot.ready)
    else:
        rename(slot.ready, slot.old)


def _sweep_old(
    slot: Slot,
    note: RecoveryNote,
    due: bool,
    still_as_believed: Callable[[Path, str], bool],
    keep: KeepUntracked | None,
) -> RecoveredDirectory | None:
    target = slot.target(note)
    # Also before it is due: files of the person do not have to wait a minute.
    stuck = move_untracked(slot.old, target, successor=bool(note.written))
    if not due:
        return None
    # Either tree: a swap that was undone leaves what was written in `old`.
    trees = (tree for tree in (note.believed, note.written) if tree)
    believed = not stuck and any(still_as_believed(slot.old.path, tree) for tree in trees)
    reading = None if believed else read_back(slot.old.path, note.path)
    # A folder that held untracked files alone is empty now: they are at the target.
    if reading is None or not (stuck or reading.files or reading.left_out):
        if keep is not None and not note.written:
            keep(slot.old, note.target)
        slot.clear()
        return None
    # Another sweep may have been deleting it while it was read here; it renames first.
    if "." in reading.left_out or not slot.old.exists():
        return None
    # A file that was not read belongs to no version, as one that is stuck: without it the rest is
    # no whole directory.
    unread = tuple(path for path in reading.left_out if path not in stuck)
    tree, directory = note.believed, target
    if note.path:
        tree, directory = note.tree, slot.place.target(note.target)
    return RecoveredDirectory(
        directory.path, reading.files, slot.old.path, tree, stuck + unread, bool(note.path)
    )
