"""The folders of dependencies of a project, which its commits do not hold and its checks need.

Trials of its tasks see them read-only, at the same place in the workspace.
"""

import os
from collections.abc import Collection
from pathlib import Path

_NAMES = frozenset(
    (
        "node_modules",
        "bower_components",
        ".venv",
        "venv",
        "vendor",
        ".bundle",
        "Pods",
        "__pypackages__",
        "deps",
    )
)
_ENVIRONMENTS = frozenset((".venv", "venv"))  # of Python: each has a pyvenv.cfg
_MAX_DEPTH = 3  # a package of a workspace of packages: packages/app/node_modules
_MAX_FOLDERS = 20  # of one project, to bound what a trial mounts
_MAX_ENTRIES = 20_000  # folders that are visited, to bound the time


def find_dependencies(project: Path, tracked_paths: Collection[str]) -> dict[str, str]:
    """Return the folders of dependencies of a project: the path in it -> the real path on this
    machine.

    tracked_paths: the paths of a commit's files; a folder that holds one of them is no dependency.
    Links are ignored, whatever they lead to.
    """
    # Every folder with a file of the commit below it.
    own = {
        "/".join(path.split("/")[:depth])
        for path in tracked_paths
        for depth in range(1, path.count("/") + 1)
    }
    dependencies: dict[str, str] = {}
    waiting, visited = [(project, "")], 0
    while waiting and len(dependencies) < _MAX_FOLDERS:
        folder, below = waiting.pop(0)
        try:
            with os.scandir(folder) as entries:
                names = sorted(
                    entry.name for entry in entries if entry.is_dir(follow_symlinks=False)
                )
        except OSError:
            continue
        visited += len(names)
        for name in names:
            path = f"{below}{name}"
            if name in _NAMES and path not in own and _is_dependency(folder / name):
                dependencies[path] = str(folder / name)
            # Only folders of the project itself lead to packages of a workspace.
            elif path in own and path.count("/") + 1 < _MAX_DEPTH and visited < _MAX_ENTRIES:
                waiting.append((folder / name, f"{path}/"))
    return dict(list(dependencies.items())[:_MAX_FOLDERS])


def _is_dependency(folder: Path) -> bool:
    return folder.name not in _ENVIRONMENTS or (folder / "pyvenv.cfg").is_file()


def linked_folders(links: object) -> tuple[tuple[str, Path], ...]:
    """Return the recorded folders of dependencies of one task that still exist."""
    pairs = links.items() if isinstance(links, dict) else ()
    return tuple(
        (name, Path(path))
        for name, path in pairs
        if Path(path).is_dir() and not Path(path).is_symlink()
    )
