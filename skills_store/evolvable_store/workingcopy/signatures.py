"""Recognise a directory by the status of its files, without reading them."""

import errno
import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from evolvable_store.objects import MAX_FILES
from evolvable_store.paths import MAX_DEPTH, is_ignored, is_sync_copy, path_problem
from evolvable_store.workingcopy.openat import is_link

# Room for ignored names beside a whole resource.
MAX_SEEN = 4 * MAX_FILES
"""Entries after which a walk stops; later entries are left out."""

RACY_NS = 2 * 10**9
"""Nanoseconds before a signature in which a change makes it untrusted.

A second change may leave equal times (git: racy index).
"""

_POSIX = os.name == "posix"
UNREADABLE = "unreadable"
"""Why an entry is left out."""

SYMLINK = "a symlink"
"""How each reason begins for which a link is left out."""


StatEntries = list[tuple[str, os.stat_result | None]]


@dataclass(frozen=True, slots=True)
class Signature:
    """A fingerprint of a folder by stat alone.

    newest: the time of the newest change of any file in nanoseconds, 0 for none. entries: those
    that it covers, as of `stat_entries`; none for a single file.
    """

    digest: str
    newest: int
    entries: StatEntries = field(default_factory=list, compare=False, repr=False)

    def is_trusted(self, taken_ns: int) -> bool:
        """Return whether an equal digest later means equal content.

        taken_ns: when this signature was taken.
        """
        # A later write within the same tick of the clock would leave equal times.
        return self.newest < taken_ns - RACY_NS


def signature(folder: "os.PathLike[str]", *, sizes: bool = True) -> Signature | None:
    """Return the fingerprint of the entries that `read_folder` examines, None without a folder.

    It covers path, size, times, inode and mode of every entry that is not ignored, so it changes
    with every change. Equal fingerprints mean equal content only if the first can be trusted, see
    `Signature`. sizes: whether it covers the sizes.
    """
    entries = stat_entries(folder)
    return None if entries is None else sign_entries(entries, sizes=sizes)


def stat_entries(folder: "os.PathLike[str]") -> StatEntries | None:
    """Return every entry that `signature` covers with its status, None when there is no folder.

    A folder has no status. After a path and a NUL stands why the rest is missing, or nothing for
    the file that the link at this path leads to.
    """
    top = os.fspath(folder)
    entries: StatEntries = []
    try:
        own = os.lstat(top)
        # A link is signed as itself: nothing behind it is looked at.
        if is_link(own):
            return [(".", own)]
        _sign(top, "", entries)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return [(UNREADABLE, None)]
    return entries


def sign_entries(entries: StatEntries, *, sizes: bool = True, undated: str = "") -> Signature:
    """Return the fingerprint of these entries, as `signature` does.

    undated: the path of a file of which the time of the last change is left out.
    """
    lines, newest = list[str](), 0
    for path, status in entries:
        if status is None:
            lines.append(path)
        else:
            lines.append(entry_line(path, status, sizes, dated=path != undated))
            newest = max(newest, _read_changed_ns(status))
    return Signature(_hash_lines(lines), newest, entries)


def single_signature(file: Path) -> Signature | None:
    """Return the fingerprint of a single file, None where none or a folder is at the path."""
    try:
        status = os.lstat(file)
    except OSError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return None
    return Signature(_hash_lines([entry_line(".", status)]), _read_changed_ns(status))


def _sign(top: str, prefix: str, found: StatEntries) -> None:
    """Add each entry of the folder at `top` to `found`, with `prefix` before its path."""
    _, files, folders = list_entries(top)
    for entry in files:
        try:
            status = entry.stat(follow_symlinks=False) if _POSIX else os.lstat(entry.path)
        except FileNotFoundError:
            continue
        found.append((prefix + entry.name, status))
        if is_link(status):
            with suppress(OSError):
                # The file that the link leads to as well: an edit there changes the resource.
                found.append((f"{prefix}{entry.name}\0", os.stat(entry.path)))
        if len(found) > MAX_SEEN:
            return
    for entry in folders:
        path = prefix + entry.name
        found.append((path, None))
        if len(found) > MAX_SEEN:
            return
        if not folder_problem(path):
            try:
                _sign(entry.path, path + "/", found)
            except OSError as error:
                last = found[-1][0]
                # A folder that becomes readable again changes the signature.
                found[-1] = (f"{last}\0{error_reason(error)}", found[-1][1])


Entries = list["os.DirEntry[str]"]


def list_entries(where: str | int) -> tuple[Entries, Entries, Entries]:
    """Return the entries of a folder: ignored ones, files, folders.

    Documents come first among the files, so that no limit cuts them off. Copies that a synchroniser
    made of files count as ignored.
    """
    ignored: Entries = []
    files: Entries = []
    folders: Entries = []
    with os.scandir(where) as entries:
        for entry in entries:
            if is_ignored(entry.name):
                ignored.append(entry)
            elif entry.is_dir(follow_symlinks=False) and not _is_junction(entry):
                folders.append(entry)
            elif is_sync_copy(entry.name):
                ignored.append(entry)
            else:
                files.append(entry)
    files.sort(key=lambda entry: (not entry.name.endswith(".md"), entry.name))
    folders.sort(key=lambda entry: entry.name)
    return ignored, files, folders


def error_reason(error: OSError) -> str:
    """Return why an entry cannot be read, '' when it does not exist any more."""
    if isinstance(error, FileNotFoundError):
        return ""
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return SYMLINK
    if isinstance(error, NotADirectoryError):
        return "not a folder any more"
    return f"{UNREADABLE}: {error.strerror}"


def bad_path(path: str) -> str:
    return f"a bad path: {reason}" if (reason := path_problem(path)) else ""


@lru_cache(maxsize=4096)
def folder_problem(path: str) -> str:
    if path.count("/") + 2 > MAX_DEPTH:
        return f"a bad path: more than {MAX_DEPTH} components"
    return bad_path(path)


def _is_junction(entry: "os.DirEntry[str]") -> bool:
    return not _POSIX and is_link(os.lstat(entry.path))


def _read_changed_ns(status: os.stat_result) -> int:
    """Return when the file last changed, in nanoseconds."""
    # Anybody can set mtime. On Windows ctime is the time of creation.
    return status.st_ctime_ns if _POSIX else status.st_mtime_ns


def entry_line(path: str, status: os.stat_result, sizes: bool = True, dated: bool = True) -> str:
    """Return the line of an entry in a signature.

    sizes, dated: whether it has the size, and the time of the last change.
    """
    size = status.st_size if sizes else "-"
    changed = status.st_ctime_ns if dated else "-"
    return f"{path}\0{size} {status.st_mtime_ns} {changed} {status.st_ino} {status.st_mode}"


def with_entries(entries: StatEntries, added: StatEntries) -> StatEntries:
    """Return the entries of a folder with these added, in place of those of the same paths."""
    paths = {path for path, _ in added}
    both = [*(entry for entry in entries if entry[0] not in paths), *added]
    return sorted(both, key=lambda entry: _make_sort_key(entry[0], entry[1] is None))


def _make_sort_key(path: str, is_folder: bool) -> list[tuple[bool, bool, str]]:
    """Return the sort key of an entry: the files of a folder come before its folders."""
    *above, name = path.split("/")
    last = (is_folder, not (is_folder or name.endswith(".md")), name)
    return [*((True, False, part) for part in above), last]


def _hash_lines(lines: list[str]) -> str:
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()
