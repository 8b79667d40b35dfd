"""Takes a person's untracked files from a replaced folder to its successor."""

import os
import stat
from contextlib import ExitStack, suppress

from evolvable_store.folder import is_disposable, untracked
from evolvable_store.objects import MAX_FILE
from evolvable_store.openat import PathAt
from evolvable_store.rename import rename_new


def carry(old: PathAt, target: PathAt, *, successor: bool) -> tuple[str, ...]:
    """Moves what belongs to no version from `old` to `target`; returns the paths that cannot go.

    Nothing is overwritten. When the folder was removed (no `successor`), or its successor is gone, `target` is made for
    what no program would make again, and the rest stays. Can be called again, and by several processes at once.
    """
    if not old.is_dir():
        return ()  # a file alone brings nothing along
    alone = not successor or not target.exists()
    stuck = []
    for path in untracked(old):
        disposable = is_disposable(path.rpartition("/")[2])
        if alone and (disposable or _is_bare(old / path)):
            continue
        if not _move(old / path, target / path, target) and not disposable:
            stuck.append(path)
    return tuple(stuck)


def _is_bare(path: PathAt) -> bool:
    """Returns whether it is an empty folder."""
    return path.is_dir() and not path.names()


def _move(source: PathAt, target: PathAt, top: PathAt) -> bool:
    """Moves a file or a folder into the folder `top`, replacing nothing; returns whether nothing stayed behind."""
    try:
        top.mkdir(exist_ok=True)
        target.make_parents()
        rename_new(source, target)
    except FileExistsError:
        with suppress(OSError):
            return _merge(source, target, top)
    except OSError:
        pass
    return not source.exists()


def _merge(source: PathAt, target: PathAt, top: PathAt) -> bool:
    """Moves what lies in one folder into another; a file goes only if the other is equal."""
    modes = [path.lstat().st_mode for path in (source, target) if path.exists()]
    if len(modes) == 2 and all(map(stat.S_ISDIR, modes)):
        moved = [_move(source / name, target / name, top) for name in source.names()]
        if all(moved):
            source.rmdir()
        return all(moved)
    small = all(map(stat.S_ISREG, modes)) and source.lstat().st_size <= MAX_FILE
    if len(modes) == 2 and small and _is_equal(source, target):
        source.unlink()
    return not source.exists()


def _is_equal(one: PathAt, other: PathAt) -> bool:
    """Return whether two files hold the same bytes; one of them is at most MAX_FILE long."""
    with ExitStack() as stack:
        # Should somebody put a pipe there now, opening it must not wait for its other end.
        fds = [path.open(os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)) for path in (one, other)]
        streams = [stack.enter_context(open(fd, "rb")) for fd in fds]
        data = [stream.read(MAX_FILE + 1) for stream in streams]
    return data[0] == data[1]
