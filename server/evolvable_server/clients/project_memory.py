"""Write the memory of a project into the files of that project that clients read at their start.

Only `memory:MEMORY` of the project's own scope goes there, in the marked block of `memory_files`,
after a person said yes to that file and to how git treats it. A pull may replace such a file by a
link, damage its block, or have git track it: then nothing is written, and the person is told. No
backup is put into a project.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolvable_server.clients import config_files
from evolvable_server.clients.memory_files import (
    TITLES,
    BrokenBlock,
    MemoryCopy,
    lock_copies,
    memory_text,
    read_enabled_copies,
    read_record,
    refresh_copies,
    remove_block,
    unread_warning,
    with_block,
    without_block,
    write_block,
    write_record,
)
from evolvable_store.errors import EvolvableError, InvalidArgument, LibraryBusy, Refused
from evolvable_store.workingcopy import (
    GitTracking,
    Projects,
    main_folder,
    read_git_tracking,
    surroundings_of,
)
from evolvable_tools import Library
from evolvable_tools.verbs import project_memory

_KEY = "projects"


@dataclass(frozen=True, slots=True)
class MemoryProject:
    """A project: its folder, without symbolic links, and its scope."""

    folder: Path
    scope: str


@dataclass(frozen=True, slots=True)
class ProjectMemoryFile:
    """A file of a project that holds its memory.

    git: how git treated the file when the person said yes.
    """

    path: Path
    folder: Path
    clients: tuple[str, ...]
    was_created: bool
    git: GitTracking


def memory_project(library: Library, directory: Path) -> MemoryProject:
    """Return the nearest project around a directory.

    No setting names its scope: a repository could bring one that names another project's memory.
    Raise InvalidArgument without a project, Refused in a linked work tree.
    """
    if main := main_folder(Path(os.path.realpath(directory))):
        raise Refused(
            f"{directory} lies in a linked work tree of git, which has the memory of the main "
            "one; nothing changed.",
            f"Write it there: cd {main}",
        )
    projects = Projects(library.store, Path.home())
    for place in surroundings_of(directory, Path(os.path.realpath(Path.home()))).places:
        if scope := projects.scope_of(place):
            return MemoryProject(place, scope)
    raise InvalidArgument(
        f"{directory} is no project of this library.",
        "`evolvable init` imports its skills and makes it one.",
    )


def project_files(folder: Path, clients: Iterable[str]) -> dict[Path, tuple[str, ...]]:
    """Return the files of a project that these clients read at their start, with their clients."""
    readers: dict[Path, list[str]] = {}
    for client in clients:
        readers.setdefault(folder / _find_file_name(folder, client), []).append(client)
    # One file for all links to it: AGENTS.md may be a link to CLAUDE.md.
    by_target: dict[str, Path] = {}
    for path in list(readers):
        first = by_target.setdefault(os.path.realpath(path), path)
        if first != path:
            readers[first] += readers.pop(path)
    return {path: tuple(names) for path, names in readers.items()}


def _find_file_name(folder: Path, client: str) -> str:
    has_claude, has_agents = ((folder / name).exists() for name in ("CLAUDE.md", "AGENTS.md"))
    if client == "claude-code":
        is_in_folder = not has_claude and (folder / ".claude/CLAUDE.md").exists()
        return ".claude/CLAUDE.md" if is_in_folder else "CLAUDE.md"
    # OpenCode reads CLAUDE.md only where there is no AGENTS.md.
    if client == "opencode" and has_claude and not has_agents:
        return "CLAUDE.md"
    return "QWEN.md" if client == "qwen" else "AGENTS.md"


def project_memory_files(home: Path) -> list[ProjectMemoryFile]:
    """Return the files of projects for which memory is switched on."""
    rows, files = read_record(home).get(_KEY), list[ProjectMemoryFile]()
    for path, row in rows.items() if isinstance(rows, dict) else ():
        try:
            # Clients that this version does not know are left out.
            clients = tuple(name for name in row["clients"] if name in TITLES)
            folder, git = Path(row["folder"]), GitTracking(row["git"])
            file = ProjectMemoryFile(Path(path), folder, clients, bool(row["made"]), git)
        except (KeyError, TypeError, ValueError):
            continue
        if clients:
            files.append(file)
    return files


def tracking_in_project(folder: Path, path: Path) -> GitTracking:
    """Return how git treats a file of a project.

    Raise ConfigurationNotWritten for a path that leads out of it.
    """
    real, root = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    if not root.is_dir():
        raise config_files.ConfigurationNotWritten(
            f"The project's folder {folder} is not there.",
            "`evolvable client memory off --project` forgets it.",
        )
    if not real.is_relative_to(root) or ".git" in real.relative_to(root).parts:
        # Git reads the files in .git: a hook there would run.
        raise config_files.ConfigurationNotWritten(
            f"{path} is a symbolic link that leads out of the project {folder}; nothing was "
            "written through it.",
            "Remove the link.",
        )
    # Git may track the link, its target or both. GitTracking lists first the value with which more
    # people read the file.
    tracking = {read_git_tracking(real), read_git_tracking(root / path.relative_to(folder))}
    return next(value for value in GitTracking if value in tracking)


def enable_project_file(
    home: Path,
    project: MemoryProject,
    path: Path,
    clients: Sequence[str],
    text: str,
    git: GitTracking,
) -> MemoryCopy:
    """Write `text` into a file of a project, and have it kept up to date.

    git: how git treats the file, as the person was told. Raise ConfigurationBroken,
    ConfigurationNotWritten, Conflict, LibraryBusy. Then nothing changed.
    """
    with lock_copies(home):
        return _enable(home, project, path, clients, text, git)


def _enable(
    home: Path,
    project: MemoryProject,
    path: Path,
    clients: Sequence[str],
    text: str,
    git: GitTracking,
) -> MemoryCopy:
    enabled = {file.path: file for file in project_memory_files(home)}
    before = enabled.get(path)
    # A link counts as there: it must not be deleted with the block.
    was_created = before.was_created if before is not None else not os.path.lexists(path)
    earlier_clients = before.clients if before is not None else ()
    readers = tuple(dict.fromkeys((*earlier_clients, *clients)))
    entry = ProjectMemoryFile(path, project.folder, readers, was_created, git)
    others = [file for file in enabled.values() if file.path != path]
    # Noted before the block is written, so that `off` finds it after a crash in between.
    _write_entries(home, [*others, entry])
    try:
        written = _write_memory(entry, text)
    except EvolvableError:
        # No block was written, so `off` has nothing to find.
        _write_entries(home, enabled.values())
        raise
    return _make_status(entry, "current", written=written)


def disable_project_files(
    home: Path, directory: Path | None, clients: Sequence[str] = ()
) -> list[MemoryCopy]:
    """Take the memory out of the files of the project around a directory, by default of each.

    clients: only out of the files that one of these reads. Raise as `enable_project_file`.
    """
    done, real = [], Path(os.path.realpath(directory)) if directory is not None else None
    # Where nothing is switched on, no lock file is made.
    if not project_memory_files(home):
        return []
    with lock_copies(home):
        for entry in project_memory_files(home):
            if real is not None and not real.is_relative_to(entry.folder):
                continue
            if clients and not set(clients) & set(entry.clients):
                continue
            done.append(_disable(home, entry))
    return done


def _disable(home: Path, entry: ProjectMemoryFile) -> MemoryCopy:
    is_removed = False
    # The folder may be deleted. Then only the note is taken out.
    if entry.folder.is_dir():
        # Raises for a link that leads out of the project.
        tracking_in_project(entry.folder, entry.path)
        is_removed, _ = remove_block(entry.path, entry.was_created, backup=False)
    _write_entries(home, [file for file in project_memory_files(home) if file.path != entry.path])
    return _make_status(entry, "off", written=is_removed)


def refresh_project_files(home: Path, library: Library) -> list[MemoryCopy]:
    """Update the files of projects; return those that changed, and those that could not.

    The caller holds the lock of `lock_copies`, and took it before it read the memory.
    """
    done = []
    for entry in project_memory_files(home):
        try:
            if _write_memory(entry, _read_memory(library, entry)):
                done.append(_make_status(entry, "current", written=True))
        except EvolvableError as error:
            done.append(_make_status(entry, "broken", error.text))
    return done


def project_file_statuses(home: Path, library: Library) -> list[MemoryCopy]:
    """Return the state of each file of a project, and write nothing."""
    statuses = []
    for entry in project_memory_files(home):
        state, why = "behind", ""
        try:
            text = _read_memory(library, entry)
            _check_consent(entry)
            data = config_files.read_raw_configuration(entry.path).data or b""
            expected = with_block(data, text) if text else without_block(data)
            if expected == data:
                state = "current"
        except (EvolvableError, BrokenBlock) as error:
            state, why = "broken", error.text if isinstance(error, EvolvableError) else str(error)
        statuses.append(_make_status(entry, state, why))
    return statuses


def refresh_memory_files(home: Path, library: Library) -> list[MemoryCopy]:
    """Update the copies of accounts and projects; return those that changed or could not.

    Where nothing is switched on, the library is not read.
    """
    if not read_record(home):
        return []
    try:
        # The text is read under the lock, so that an older one never replaces a newer one.
        with lock_copies(home):
            own = refresh_copies(home, memory_text(library)) if read_enabled_copies(home) else []
            return [*own, *refresh_project_files(home, library)]
    except LibraryBusy as error:
        return [MemoryCopy("", "the clients", "", "broken", error.text)]


def _read_memory(library: Library, entry: ProjectMemoryFile) -> str:
    scope = Projects(library.store, Path.home()).scope_of(entry.folder)
    if scope is None:
        raise InvalidArgument(
            f"{entry.folder} is no project of this library any more.",
            "`evolvable client memory off --project` takes it out.",
        )
    return project_memory(library, scope)


def _check_consent(entry: ProjectMemoryFile) -> None:
    now = tracking_in_project(entry.folder, entry.path)
    if now is GitTracking.TRACKED and entry.git is not GitTracking.TRACKED:
        raise Refused(
            f"Git tracks {entry.path} now, and did not when you said yes.",
            "`evolvable client memory on --project` asks again.",
        )


def _write_memory(entry: ProjectMemoryFile, text: str) -> bool:
    """Write the block with `text`, or take it out for an empty text; return whether that changed
    the file.
    """
    _check_consent(entry)
    if not text:
        return remove_block(entry.path, entry.was_created, backup=False)[0]
    return write_block(entry.path, text, backup=False, private=False)[0]


def _make_status(
    entry: ProjectMemoryFile, state: str, why: str = "", *, written: bool = False
) -> MemoryCopy:
    *first, last = [TITLES[client] for client in entry.clients]
    title = f"{', '.join(first)} and {last}" if first else last
    warnings = (unread_warning(client, entry.path) for client in entry.clients)
    warning = next(filter(None, warnings), "")
    return MemoryCopy(
        ",".join(entry.clients),
        title,
        str(entry.path),
        state,
        why,
        written,
        None,
        warning,
        str(entry.folder),
        entry.git,
    )


def _write_entries(home: Path, entries: Iterable[ProjectMemoryFile]) -> None:
    others = {name: value for name, value in read_record(home).items() if name != _KEY}
    rows = {
        str(entry.path): {
            "folder": str(entry.folder),
            "clients": list(entry.clients),
            "made": entry.was_created,
            "git": entry.git,
        }
        for entry in entries
    }
    write_record(home, others | ({_KEY: rows} if rows else {}))
