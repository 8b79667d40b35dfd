"""Build directories, and move files from a replaced directory to its successor.

Untracked files of the replaced directory go to its successor. Where no whole directory can be
renamed (Windows, lower layers of overlays), files are moved one by one. Readers may then see a mix
of both, and the next sweep finishes after a crash.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import PurePosixPath

from evolvable_store.objects import EXECUTABLE, MAX_FILE, File, Files
from evolvable_store.paths import is_disposable
from evolvable_store.workingcopy.openat import (
    BY_DESCRIPTOR,
    PathAt,
    copy_file,
    rename,
    rename_new,
    write_all,
)
from evolvable_store.workingcopy.staging_dir import RecoveryNote, Slot, sync_folder
from evolvable_store.workingcopy.tree_reader import tracked_paths, untracked_paths

# O_EXCL: nothing that somebody put there first is written to.
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL

_BACKDATE_NS = 20_000_000
"""How much older than their writing the files of a version are dated: more than one tick of the
system's clock.

So the next save always changes the time of a file, however soon it comes; see
`status.built_signature`.
"""


def build_folder(
    folder: PathAt, files: Files, like: PathAt, *, durable: bool = True, links: Iterable[str] = ()
) -> None:
    """Make `folder`, which must not exist, with exactly these files.

    durable: wait until all of it is on the disk. A path that `like` has as well gets its owner and
    permissions, except that the mode of the file decides whether it can be executed; a path that it
    does not have gets the owner of `like` and what the process's umask leaves. links: paths at
    which the new folder gets the link that `like` has there. Raises OSError.
    """
    links = list(links)
    above = {str(parent) for path in (*files, *links) for parent in PurePosixPath(path).parents}
    # By depth, so that each folder is made after the one above it.
    folders = sorted(above - {"."}, key=lambda path: path.count("/"))
    folder.mkdir()
    with ExitStack() as stack:
        # Both are opened once, so that each file is one name in an open directory.
        new = stack.enter_context(folder.open_directory())
        was = _read_status(like, stat.S_ISDIR)
        old = stack.enter_context(like.open_directory()) if was else None
        for path in folders:
            (new / path).mkdir()
        for name, file in files.items():
            _write(new / name, file, old / name if old else None, was, durable)
        # Elsewhere files are replaced one by one, and links stay.
        for name in links if BY_DESCRIPTOR else ():
            (new / name).make_link((like / name).read_link())
        # From the inside out: permissions that take rights away come after the files below are
        # written.
        for path in reversed(folders):
            _adopt_folder(new / path, was, old / path if old else None)
            if durable:
                sync_folder(new / path)
    _adopt_folder(folder, was, like)
    if durable:
        sync_folder(folder)


def build_single(path: PathAt, file: File, like: PathAt, *, durable: bool = True) -> None:
    """Make the file `path` as `build_folder` does. `like` is the file that it will replace."""
    _write(path, file, like, _read_status_above(like), durable)


def build_branch(folder: PathAt, inner: str, file: File, like: PathAt) -> None:
    """Make `folder`, which must not exist, with one file and the folders down to it.

    inner: the path of the file in it. like: the later path of the folder. All get the owner of the
    folder that `like` will lie in. Nothing waits for the disk. Raises OSError.
    """
    was = _read_status_above(like)
    above = inner.split("/")[:-1]
    for depth in range(len(above) + 1):
        directory = folder / "/".join(above[:depth]) if depth else folder
        directory.mkdir()
        _adopt_folder(directory, was, None)
    _write(folder / inner, file, None, was, durable=False)


def _read_status_above(path: PathAt) -> os.stat_result | None:
    parents = path.parents
    return _read_status(parents[0], stat.S_ISDIR) if parents else path.base.status()


def _write(
    path: PathAt,
    file: File,
    same_path: PathAt | None,
    above: os.stat_result | None,
    durable: bool = True,
) -> None:
    """Write a new file with its owner, mode and time.

    same_path: the file that it replaces. above: the status of the folder that is replaced. Both are
    None for none.
    """
    fd = path.open(_WRITE, file.mode)
    try:
        write_all(fd, file.data)
        same = _read_status(same_path, stat.S_ISREG) if same_path else None
        written = os.fstat(fd)
        # Before the mode: a change of owner clears setuid and setgid bits.
        _set_owner(path, written, same or above)
        if same:
            # The owner can always read what a version wrote.
            readable = stat.S_IMODE(same.st_mode) & 0o666 | stat.S_IRUSR
            mode = readable | (readable & 0o444) >> 2 if file.mode == EXECUTABLE else readable
            os.chmod(fd if BY_DESCRIPTOR else os.fspath(path), mode)
        if os.utime in os.supports_fd:
            dated = written.st_mtime_ns - _BACKDATE_NS
            # After the content and the mode, which would set the time again.
            os.utime(fd, ns=(dated, dated))
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def _adopt_folder(path: PathAt, above: os.stat_result | None, same_path: PathAt | None) -> None:
    same = _read_status(same_path, stat.S_ISDIR) if same_path else None
    made = path.lstat()
    _set_owner(path, made, same or above)
    if same:
        mode = stat.S_IMODE(same.st_mode) & 0o2777 | stat.S_IRWXU
        has_mode = stat.S_IMODE(made.st_mode) == mode
        # A change of owner or group takes bits of the mode away.
        has_owner = (made.st_uid, made.st_gid) == (same.st_uid, same.st_gid)
        if not (has_mode and has_owner):
            path.chmod_directory(mode)


def _set_owner(path: PathAt, status: os.stat_result, like: os.stat_result | None) -> None:
    """Give the path the owner and group of `like`, as far as this process may."""
    if not like or not hasattr(os, "chown"):
        return
    if (status.st_uid, status.st_gid) == (like.st_uid, like.st_gid):
        return
    with suppress(OSError):
        # Two calls: an account may be allowed to set the group and not the owner.
        path.chown(-1, like.st_gid)
        path.chown(like.st_uid, -1)


def _read_status(path: PathAt, is_kind: Callable[[int], bool]) -> os.stat_result | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status if is_kind(status.st_mode) else None


def move_untracked(old: PathAt, target: PathAt, *, successor: bool) -> tuple[str, ...]:
    """Move files that belong to no version from `old` to `target`; return the paths left behind.

    Nothing is overwritten. When the folder was removed (no `successor`), or its successor is gone,
    only files that no program makes again move, into a new `target`. Can be called again, and by
    several processes at once.
    """
    if not old.is_dir():
        return ()  # a file alone brings nothing along
    # Nothing is left of the resource: its folder is made again only for files of the person.
    is_removed = not successor or not target.exists()
    stuck = []
    for path in untracked_paths(old):
        disposable = is_disposable(path.rpartition("/")[2])
        # Caches and empty folders would keep a removed directory alive.
        if is_removed and (disposable or _is_bare(old / path)):
            continue
        if not _move_new(old / path, target / path, target) and not disposable:
            stuck.append(path)
    return tuple(stuck)


def _is_bare(path: PathAt) -> bool:
    """Return whether the path is an empty folder."""
    return path.is_dir() and not path.names()


def _move_new(source: PathAt, target: PathAt, top: PathAt) -> bool:
    """Move a file or a folder into the folder `top`; return whether nothing stayed behind.

    Nothing is replaced.
    """
    try:
        top.mkdir(exist_ok=True)
        target.make_parents()
        rename_new(source, target)
    except FileExistsError:
        with suppress(OSError):
            return _merge_directories(source, target, top)
    except OSError:
        pass
    return not source.exists()


def _merge_directories(source: PathAt, target: PathAt, top: PathAt) -> bool:
    """Move the entries of one folder into another; remove a file or link that equals the other's.

    Return whether nothing stayed behind.
    """
    modes = [path.lstat().st_mode for path in (source, target) if path.exists()]
    both_exist = len(modes) == 2
    if both_exist and all(map(stat.S_ISDIR, modes)):
        moved = [_move_new(source / name, target / name, top) for name in source.names()]
        if all(moved):
            # Only if all moved: a folder with something left stays for the trash.
            source.rmdir()
        return all(moved)
    both_links = both_exist and all(map(stat.S_ISLNK, modes))
    if both_links and source.read_link() == target.read_link():
        source.unlink()
        return True
    small = all(map(stat.S_ISREG, modes)) and source.lstat().st_size <= MAX_FILE
    # Equal files: one of them can go. Different ones both stay.
    if both_exist and small and _is_equal(source, target):
        source.unlink()
    return not source.exists()


def _is_equal(first: PathAt, second: PathAt) -> bool:
    """Return whether two files hold the same bytes; one of them is at most MAX_FILE long."""
    with ExitStack() as stack:
        # Should somebody put a pipe there now, opening it must not wait for its other end.
        fds = [path.open(os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)) for path in (first, second)]
        streams = [stack.enter_context(open(fd, "rb")) for fd in fds]
        data = [stream.read(MAX_FILE + 1) for stream in streams]
    return data[0] == data[1]


def replace_files(slot: Slot, note: RecoveryNote) -> None:
    """Move every file of `slot.ready` into the target, main file last; remove files that it lacks.

    The files that were there before are in `slot.old` then. Can be called again after a crash at
    any instant, with the note as it then is. Raises OSError when a file cannot be replaced; then
    all are as they were, if the disk lets it.
    """
    target = slot.target(note)
    drop = note.drop
    if drop is None:
        drop = [path for path in tracked_paths(target) if not (slot.ready / path).exists()]
        # Durable before the first file is moved: after a crash `drop` says that files are replaced
        # one by one.
        slot.write_note(replace(note, drop=drop))
    slot.ready.mkdir(exist_ok=True)
    slot.old.mkdir(exist_ok=True)
    done: list[str] = []
    try:
        _replace_each(slot, target, drop, done)
    except OSError:
        # Only the process that began undoes; a sweep that finishes must not turn back.
        if note.drop is None:
            _undo(slot, target, drop, done)
        raise
    sync_tree(target)
    slot.delete(slot.ready)


def _replace_each(slot: Slot, target: PathAt, drop: list[str], done: list[str]) -> None:
    for path in drop:
        # Before the move, so that an error in the middle of it is undone too.
        done.append(path)
        _set_aside(target / path, slot.old / path)
        _prune(target, path)
    files = _list_main_last(slot.ready)
    for path in files:
        _make_room(target, path, slot.old, done)
        done.append(path)
        # A hard link first: at no moment is there neither the old nor the new file.
        _back_up(target / path, slot.old / path)
        rename(slot.ready / path, target / path)
    if not files:
        _remove_folder(target, slot.old)


def _remove_folder(target: PathAt, old: PathAt) -> None:
    """Remove the folder itself, unless it holds files that no program makes again."""
    for path in untracked_paths(target):
        if is_disposable(path.rpartition("/")[2]):
            with suppress(OSError):  # a folder of a lower layer cannot be moved
                _set_aside(target / path, old / path)
    with suppress(OSError):
        target.rmdir()


def _list_main_last(folder: PathAt) -> list[str]:
    """Return the paths of all files below, those like SKILL.md at the end."""
    paths = _list_files_below(folder)

    def make_key(path: str) -> tuple[bool, str]:
        is_main = path.endswith(".md") and path[:-3].isupper() and "/" not in path
        return is_main, path

    # A client that sees the new SKILL.md then finds the files that it names.
    return sorted(paths, key=make_key)


def _list_files_below(folder: PathAt, prefix: str = "") -> Iterator[str]:
    for name in folder.names():
        if (folder / name).is_dir():
            yield from _list_files_below(folder / name, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}"


def _back_up(path: PathAt, backup: PathAt) -> None:
    """Give the file at `path` a second name, `backup`; move anything else there."""
    if backup.exists() or not path.exists():
        return
    if not path.is_file():
        _set_aside(path, backup)
        return
    backup.make_parents()
    try:
        path.link_to(backup)
    except OSError:
        # The file system has no hard links. The temporary name keeps half a copy from counting as a
        # whole one after a crash.
        part = PathAt(backup.base, f"{backup.name}.part.tmp")
        copy_file(path, part)
        rename(part, backup)


def _set_aside(path: PathAt, backup: PathAt) -> None:
    if path.exists() and not backup.exists():
        backup.make_parents()
        rename(path, backup)


def _make_room(target: PathAt, path: str, old: PathAt, done: list[str]) -> None:
    """Make the folders above `path`; move away a link or a file that stands where one must be."""
    target.mkdir(exist_ok=True)
    parts = path.split("/")
    for depth in range(1, len(parts)):
        above = "/".join(parts[:depth])
        folder = target / above
        # A link here would lead the write out of the target.
        if folder.exists() and not folder.is_dir():
            done.append(above)
            _set_aside(folder, old / above)
        folder.mkdir(exist_ok=True)


def _prune(target: PathAt, path: str) -> None:
    """Remove the folders between `target` and `path` that are empty now."""
    with suppress(OSError):
        for folder in (target / path).parents:
            if folder == target:
                return
            folder.rmdir()


def _undo(slot: Slot, target: PathAt, drop: list[str], done: list[str]) -> None:
    """Put everything back; a path that cannot be moved is left to the sweep."""
    try:
        for path in reversed(done):
            put, ready, backup = target / path, slot.ready / path, slot.old / path
            # A folder was made where a file was; it goes if it is empty.
            if put.is_dir():
                _prune(target, f"{path}/x")
            elif path not in drop and put.exists() and not ready.exists():
                rename(put, ready)
            if backup.exists():
                put.make_parents()
                rename(backup, put)
    except OSError:
        return
    slot.delete(slot.old)


def sync_tree(target: PathAt) -> None:
    """Make the names in a directory and below it durable."""
    with suppress(FileNotFoundError):
        for name in target.names():
            if (target / name).is_dir():
                sync_tree(target / name)
        sync_folder(target)
