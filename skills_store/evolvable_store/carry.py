"""Takes a person's untracked files from a replaced folder to its successor."""

import filecmp
import os
import stat
from pathlib import Path

from evolvable_store.folder import is_disposable, untracked
from evolvable_store.objects import MAX_FILE
from evolvable_store.rename import rename_new


def carry(old: Path, target: Path, *, successor: bool) -> tuple[str, ...]:
    """Moves what belongs to no version from `old` to `target`; returns the paths that cannot go.

    Nothing is overwritten. When the folder was removed (no `successor`), or its successor is gone, `target` is made for
    what no program would make again, and the rest stays. Can be called again, and by several processes at once.
    """
    if not os.path.isdir(old):
        return ()  # a file alone brings nothing along
    alone = not successor or not os.path.lexists(target)
    stuck = []
    for path in untracked(old):
        disposable = is_disposable(path.rpartition("/")[2])
        if alone and (disposable or _is_bare(old / path)):
            continue
        if not _move(old / path, target / path, target) and not disposable:
            stuck.append(path)
    return tuple(stuck)


def _is_bare(path: Path) -> bool:
    """Returns whether it is an empty folder."""
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def _move(source: Path, target: Path, top: Path) -> bool:
    """Moves a file or a folder into the folder `top`, replacing nothing; returns whether nothing stayed behind."""
    try:
        top.mkdir(exist_ok=True)
        if any(above.is_symlink() for above in target.parents if above.is_relative_to(top)):
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        rename_new(source, target)
    except FileExistsError:
        return _merge(source, target, top)
    except OSError:
        pass
    return not os.path.lexists(source)


def _merge(source: Path, target: Path, top: Path) -> bool:
    """Moves what lies in one folder into another; a file goes only if the other is equal."""
    modes = [os.lstat(path).st_mode for path in (source, target) if os.path.lexists(path)]
    if len(modes) == 2 and all(map(stat.S_ISDIR, modes)):
        moved = [_move(child, target / child.name, top) for child in list(source.iterdir())]
        if all(moved):
            source.rmdir()
        return all(moved)
    small = all(map(stat.S_ISREG, modes)) and os.lstat(source).st_size <= MAX_FILE
    if len(modes) == 2 and small and filecmp.cmp(source, target, shallow=False):
        source.unlink()
    return not os.path.lexists(source)
