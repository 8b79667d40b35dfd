"""Read one resource's folder from disk; its files are hostile, and may change during the read.

People keep one file for several skills of a repository, and link to it. The bytes of such a file
belong to the version where the file lies in the same work tree, or outside of repositories in the
same watched folder. The file is opened without a link on the way, nothing is written through the
link, and a link to private data is not followed.
"""

import errno
import os
import stat
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from evolvable_store.objects import (
    EXECUTABLE,
    MAX_FILE,
    MAX_FILES,
    MAX_RESOURCE,
    PLAIN,
    File,
    TreeEntry,
)
from evolvable_store.paths import is_ignored, is_sync_copy, work_tree
from evolvable_store.workingcopy.openat import PathAt, is_link, open_real
from evolvable_store.workingcopy.signatures import (
    MAX_SEEN,
    SYMLINK,
    UNREADABLE,
    Signature,
    bad_path,
    entry_line,
    error_reason,
    folder_problem,
    list_entries,
    signature,
    single_signature,
)

EXECUTABLE_BITS = os.name != "nt"
"""Whether the file system records which files are executable.

On Windows it does not, and every file reads as PLAIN.
"""

# A folder that changes in three readings in a row is in the middle of a copy; a later sync reads it
# again.
_ATTEMPTS = 3
_POSIX = os.name == "posix"
# O_NOFOLLOW and O_NONBLOCK: neither a link nor a pipe that somebody puts there is opened or waited
# for.
_READ_FLAGS = ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
_READ = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in _READ_FLAGS)
_ENTER_FLAGS = ("O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC")
_ENTER = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in _ENTER_FLAGS)
_IGNORED, _EMPTY = "ignored", "an empty folder"
SYNC_COPY = "a copy that a synchroniser made"
"""Why a file is left out whose name a synchroniser gives to the second of two versions."""

_STOPPED = f"too many entries: reading stops after {MAX_SEEN:,}"
_TOO_MANY = f"too many files: the limit is {MAX_FILES:,}"


_PERMITTED_HIDDEN = frozenset({".agents", ".claude", ".codex", ".github"})
"""Hidden names that a link may lead through: others hold programs' own data, such as keys."""


@dataclass(frozen=True, slots=True)
class LinkBoundary:
    """The folder within which links are followed.

    permitted_names: the hidden names on the way from it to the watched folder.
    """

    root: Path
    permitted_names: frozenset[str]

    def target(self, link: str) -> Path | str:
        """Return the real path of the regular file that a link leads to, or why it is not read."""
        try:
            # Resolved once: this path is read later, opened without links on the way.
            real = Path(os.path.realpath(link, strict=True))
            regular = stat.S_ISREG(os.lstat(real).st_mode)
        except (OSError, ValueError):
            return f"{SYMLINK} that leads nowhere"
        if not regular:
            return SYMLINK
        # A repository could otherwise read any file of the person through a link.
        if not real.is_relative_to(self.root):
            return f"{SYMLINK} out of {self.root}"
        hidden = {name for name in real.relative_to(self.root).parts if name.startswith(".")}
        if hidden - _PERMITTED_HIDDEN - self.permitted_names:
            return f"{SYMLINK} to what is hidden"
        return real


def boundary_of(folder: Path, directory: str, home: Path) -> LinkBoundary:
    """Return the boundary for a directory of a watched folder: its work tree, else the folder.

    A work tree that the library's home lies in is a home folder with private files, and does not
    count.
    """
    tree = work_tree(folder / directory)
    # A home folder under git has keys and tokens in it.
    root = folder if tree is None or Path(os.path.realpath(home)).is_relative_to(tree) else tree
    way = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
    hidden = frozenset(name for name in way if name.startswith(".") and name != ".git")
    return LinkBoundary(root, hidden)


@dataclass(frozen=True, slots=True)
class FolderContents:
    """The content of a folder at one moment.

    files: path -> file; always fit for `make_manifest`. left_out: path -> why it is not in `files`
    (ignored names and empty folders are not mentioned; a name that is not Unicode is shown with
    escapes; "." is the folder itself). signature, newest: as of `signature()`, taken before the
    bytes were read. linked: paths of files that have another name outside, by a hard link. ignored:
    paths of entries whose names are never part of a resource; that of a folder ends with a slash.
    links: paths that are symbolic links -> the file whose bytes were read. on_disk: the files as
    they lie there, where `files` has powers as their version has them; None elsewhere.
    """

    files: dict[str, File]
    left_out: dict[str, str]
    signature: str
    newest: int
    linked: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    links: dict[str, Path] = field(default_factory=dict)
    on_disk: dict[str, File] | None = None

    @property
    def lying(self) -> dict[str, File]:
        """The files as they lie there."""
        return self.files if self.on_disk is None else self.on_disk

    @property
    def own(self) -> dict[str, File]:
        """The files that lie in the folder itself."""
        return {path: file for path, file in self.lying.items() if path not in self.links}

    @property
    def cut_short(self) -> str:
        """Why these files are only a part of the folder's, '' when their number left none out."""
        reasons = set(self.left_out.values())
        return next((reason for reason in (_STOPPED, _TOO_MANY) if reason in reasons), "")


def read_folder(
    folder: Path,
    before: Signature | None = None,
    *,
    real: bool = False,
    within: LinkBoundary | None = None,
) -> FolderContents:
    """Return the files of `folder` at one moment, and the paths left out with the reason of each.

    Follows no symlink (not even `folder` itself) but those to files `within` a boundary, opens
    nothing but regular files, never blocks, reads no file over its limit. When something changes
    meanwhile it reads again, three times at most. before: the fingerprint, where it has just been
    taken. real: no component of the path may be a link either, as in a work tree, where anybody can
    put one at any moment. Raises FileNotFoundError when there is no folder.
    """
    for _ in range(_ATTEMPTS):
        # The fingerprint comes first: a change during the reading gives another one afterwards.
        before = before or signature(folder)
        if before is None:
            raise FileNotFoundError(errno.ENOENT, "there is no folder", str(folder))
        reading = replace(
            _read(folder, real, within), signature=before.digest, newest=before.newest
        )
        after = signature(folder)
        if before == after:
            break
        before = after
    return reading


def read_single(file: Path, name: str, *, real: bool = False) -> FolderContents:
    """Return what `read_folder` would of a folder that holds this file alone, under `name`.

    real: as for `read_folder`. Raises FileNotFoundError when there is no file.
    """
    before = single_signature(file)
    outcome: File | str = ""
    if before:
        try:
            with _open_folder(file.parent, real) as place:
                outcome = _read_file(place, file.name)
        except OSError as error:
            outcome = error_reason(error)
    if before is None or outcome == "":
        raise FileNotFoundError(errno.ENOENT, "there is no file", str(file))
    if isinstance(outcome, File):
        # A second name may lie in a private folder; the person is warned.
        linked = (name,) if os.lstat(file).st_nlink > 1 else ()
        return FolderContents({name: outcome}, {}, before.digest, before.newest, linked)
    return FolderContents({}, {name: outcome}, before.digest, before.newest)


def keep_modes(
    files: Mapping[str, File], source: Mapping[str, File | TreeEntry]
) -> dict[str, File]:
    """Return the files, with the modes of `source` where the file system records none."""
    if EXECUTABLE_BITS:
        return dict(files)
    return {
        path: replace(file, mode=source[path].mode) if path in source else file
        for path, file in files.items()
    }


def tracked_paths(folder: Path | PathAt) -> list[str]:
    """Return the paths of the files that `read_folder` would read, by stat alone.

    Empty when there is no folder.
    """
    return [entry.path for entry in _survey(folder) if not entry.reason]


def untracked_paths(folder: Path | PathAt) -> list[str]:
    """Return the outermost paths, as the system names them, of entries that no version has.

    These are ignored names, empty folders, and everything that a read leaves out.
    """
    return [entry.path for entry in _survey(folder) if entry.reason]


@dataclass(frozen=True, slots=True)
class _OpenFolder:
    """An open folder.

    Where the system can do so, names are looked up in it, and not in the folder that has its path
    by then.
    """

    path: str
    fd: int | None

    def open(self, name: str, flags: int) -> int:
        if self.fd is None:
            return os.open(os.path.join(self.path, name), flags)
        return os.open(name, flags, dir_fd=self.fd)

    def stat(self, entry: "os.DirEntry[str]") -> os.stat_result:
        # On Windows a listing may be older than the file it lists.
        return os.lstat(entry.path) if self.fd is None else entry.stat(follow_symlinks=False)

    def readable(self, name: str) -> bool:
        if self.fd is None:
            return os.access(os.path.join(self.path, name), os.R_OK)
        return os.access(
            name, os.R_OK, dir_fd=self.fd, effective_ids=os.access in os.supports_effective_ids
        )

    @contextmanager
    def enter(self, name: str) -> Iterator["_OpenFolder"]:
        path = os.path.join(self.path, name)
        if not _POSIX:
            yield _OpenFolder(path, None)
            return
        fd = self.open(name, _ENTER)
        try:
            yield _OpenFolder(path, fd)
        finally:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class _WalkEntry:
    """One entry of a walk: a file to read, or an entry to leave out whole.

    reason: why it is left out, '' for a file to read. target: the file that a link leads to, which
    is read in its place.
    """

    path: str
    reason: str
    place: _OpenFolder
    name: str
    links: int = 1
    is_folder: bool = False
    target: Path | None = None


@dataclass(slots=True)
class _WalkLimits:
    """The counts of a walk so far, which the limits are compared with.

    seen: entries. files, size: of the files that are read, and their bytes. folded: the casefolded
    paths of these files and of the folders above them -> the path.
    """

    seen: int = 0
    files: int = 0
    size: int = 0
    folded: dict[str, str] = field(default_factory=dict)

    def folder(self, path: str) -> str:
        """Return why a folder is left out, or ''."""
        self.seen += 1
        return _STOPPED if self.seen > MAX_SEEN else folder_problem(path) or self._find_twin(path)

    def file(self, path: str, status: os.stat_result) -> str:
        """Return why a file is left out; '' for one that is read, which is counted then."""
        self.seen += 1
        if self.seen > MAX_SEEN:
            return _STOPPED
        if reason := _find_defect(status) or bad_path(path):
            return reason
        if twin := self._find_twin(path):
            return twin
        if self.files >= MAX_FILES:
            return _TOO_MANY
        # By the sizes of the listing, so that no file is read that cannot be kept.
        if self.size + status.st_size > MAX_RESOURCE:
            return f"too large together with the others: the limit is {MAX_RESOURCE:,} bytes"
        # The folders above are compared without case as well, once a file in them is read.
        while path and self.folded.setdefault(path.casefold(), path) == path:
            path = path.rpartition("/")[0]
        self.files += 1
        self.size += status.st_size
        return ""

    def _find_twin(self, path: str) -> str:
        twin = self.folded.get(path.casefold())
        return f"a case twin of {twin}" if twin else ""


def _read(folder: Path, real: bool, within: LinkBoundary | None) -> FolderContents:
    files: dict[str, File] = {}
    left_out: dict[str, str] = {}
    linked: list[str] = []
    links: dict[str, Path] = {}
    ignored: list[str] = []
    size = 0
    with closing(_walk_top(folder, real, within)) as walk:
        for entry in walk:
            reason = entry.reason
            if not reason:
                outcome = _read_entry(entry)
                # Again with the bytes that were read: the file may have grown since.
                if isinstance(outcome, File) and size + len(outcome.data) <= MAX_RESOURCE:
                    files[entry.path] = outcome
                    size += len(outcome.data)
                    if entry.links > 1:
                        linked.append(entry.path)
                    if entry.target:
                        links[entry.path] = entry.target
                    continue
                reason = outcome if isinstance(outcome, str) else "it keeps changing"
            if reason == _IGNORED:
                ignored.append(_escape_path(entry.path) + "/" * entry.is_folder)
            elif reason not in (_EMPTY, ""):
                left_out[_escape_path(entry.path)] = reason
            if reason == _STOPPED:
                break
    return FolderContents(files, left_out, "", 0, tuple(linked), tuple(ignored), links)


def _survey(folder: Path | PathAt) -> Iterator[_WalkEntry]:
    for entry in _walk_top(folder):
        # The folder itself cannot be read, or is a link: none of its files is named.
        if entry.path == ".":
            return
        if entry.reason or entry.place.readable(entry.name):
            yield entry
        else:
            yield _WalkEntry(entry.path, UNREADABLE, entry.place, entry.name)


@contextmanager
def _open_folder(folder: Path | PathAt, real: bool) -> Iterator[_OpenFolder]:
    """Open a folder that is no link. Raise OSError."""
    if isinstance(folder, PathAt):
        with folder.open_directory() as directory:
            yield _OpenFolder(os.fspath(folder), directory.fd)
    elif real:
        with open_real(folder, readable=True) as directory:
            yield _OpenFolder(os.fspath(folder), directory.fd)
    else:
        with _OpenFolder("", None).enter(os.fspath(folder)) as place:
            yield place


def _walk_top(
    folder: Path | PathAt, real: bool = False, within: LinkBoundary | None = None
) -> Generator[_WalkEntry, None, None]:
    path = os.fspath(folder)
    outside = _OpenFolder("", None)
    try:
        if is_link(folder.lstat()):
            yield _WalkEntry(".", SYMLINK, outside, path)
            return
        with _open_folder(folder, real) as place:
            yield from _walk(place, "", _WalkLimits(), within)
    except OSError as error:
        reason = error_reason(error)
        if reason:
            yield _WalkEntry(".", reason, outside, path)


def _walk(
    place: _OpenFolder, prefix: str, limits: _WalkLimits, within: LinkBoundary | None
) -> Iterator[_WalkEntry]:
    """Yield every entry below `place`: ignored ones, then files, then the entries of each folder.

    The order decides which files are taken when there are too many; `_sign` keeps the same.
    """
    ignored, files, folders = list_entries(place.path if place.fd is None else place.fd)
    for entry in ignored:
        reason = SYNC_COPY if is_sync_copy(entry.name) and not is_ignored(entry.name) else _IGNORED
        is_folder = entry.is_dir(follow_symlinks=False)
        yield _WalkEntry(prefix + entry.name, reason, place, entry.name, is_folder=is_folder)
    for entry in files:
        path = prefix + entry.name
        try:
            status, target, reason = place.stat(entry), None, ""
            if within and is_link(status):
                resolved = within.target(os.path.join(place.path, entry.name))
                if isinstance(resolved, Path):
                    # The status of the target: the link's own says nothing of size or kind.
                    target, status = resolved, os.lstat(resolved)
                else:
                    reason = resolved
            reason = reason or limits.file(path, status)
            yield _WalkEntry(path, reason, place, entry.name, status.st_nlink, target=target)
        except FileNotFoundError:
            continue
    for entry in folders:
        path = prefix + entry.name
        if reason := limits.folder(path):
            yield _WalkEntry(path, reason, place, entry.name)
        else:
            yield from _walk_folder(place, entry.name, path, limits, within)


def _walk_folder(
    place: _OpenFolder, name: str, path: str, limits: _WalkLimits, within: LinkBoundary | None
) -> Iterator[_WalkEntry]:
    is_empty = True
    try:
        with place.enter(name) as inner:
            for entry in _walk(inner, path + "/", limits, within):
                is_empty = False
                yield entry
    except OSError as error:
        is_empty = False
        reason = error_reason(error)
        if reason:
            yield _WalkEntry(path, reason, place, name)
    if is_empty:
        # No version holds an empty folder, so it is untracked and moves to the successor.
        yield _WalkEntry(path, _EMPTY, place, name)


def _read_entry(entry: _WalkEntry) -> File | str:
    return _read_target(entry.target) if entry.target else _read_file(entry.place, entry.name)


def _read_target(target: Path) -> File | str:
    """Return the file at a real path; a link that appeared on the way since is not followed."""
    try:
        with _open_folder(target.parent, real=True) as place:
            return _read_file(place, target.name)
    except OSError as error:
        return error_reason(error)


def _read_file(place: _OpenFolder, name: str) -> File | str:
    """Return the file, or why it cannot be had, or '' when it is gone."""
    for _ in range(_ATTEMPTS):
        try:
            with open(place.open(name, _READ), "rb") as stream:
                before = os.fstat(stream.fileno())
                if reason := _find_defect(before):
                    return reason
                data = stream.read(MAX_FILE + 1)
                after = os.fstat(stream.fileno())
        except OSError as error:
            return error_reason(error)
        # Otherwise somebody wrote while it was read.
        if len(data) == before.st_size and entry_line(name, before) == entry_line(name, after):
            is_executable = EXECUTABLE_BITS and before.st_mode & stat.S_IXUSR
            return File(data, EXECUTABLE if is_executable else PLAIN)
    return "it keeps changing"


def _find_defect(status: os.stat_result) -> str:
    if is_link(status):
        return SYMLINK
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    if status.st_size > MAX_FILE:
        return f"too large: it has {status.st_size:,} bytes, the limit is {MAX_FILE:,}"
    return ""


def _escape_path(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")
