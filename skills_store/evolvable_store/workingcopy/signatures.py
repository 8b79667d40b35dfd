"""Recognise a directory by what the system says of its files, without reading them.

A signature tells whether a directory changed. After a checkout that was prepared before its version existed (see
`storage.bindings.PendingCheckout`), the marks of two directories tell which of them is there. A crash between commit
and exchange leaves the old one. The new files are not synced, so a power failure can cut them, or bring an older
directory back.
"""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from evolvable_store.objects import MAX_FILES
from evolvable_store.paths import MAX_DEPTH, is_ignored, path_problem
from evolvable_store.storage.bindings import Binding, DirectoryMark, PendingCheckout
from evolvable_store.workingcopy.openat import is_link

MAX_SEEN = 4 * MAX_FILES
"""Entries after which a walk stops; what lies behind is left out."""

RACY_NS = 2 * 10**9
"""A change this close to the moment of a signature can be followed by one with equal times (git: racy index)."""

_POSIX = os.name == "posix"
SYMLINK, UNREADABLE = "a symlink", "unreadable"
"""Why an entry is left out."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A fingerprint of a folder by stat alone. `newest`: nanoseconds of the newest change of any file, 0 for none."""

    digest: str
    newest: int

    def trusted(self, taken_ns: int) -> bool:
        """Return whether an equal digest later means equal content, when this was taken at `taken_ns`."""
        return self.newest < taken_ns - RACY_NS


def signature(folder: "os.PathLike[str]", *, sizes: bool = True) -> Signature | None:
    """Return the fingerprint of what `read_folder` would look at, or None when there is no folder.

    It covers path, size, times, inode and mode of every entry that is not ignored, so it changes with every
    change; that equal means unchanged holds only when it is `trusted`. sizes: whether it covers the sizes.
    """
    entries = stat_entries(folder)
    return None if entries is None else sign_entries(entries, sizes=sizes)


def stat_entries(folder: "os.PathLike[str]") -> "list[tuple[str, os.stat_result | None]] | None":
    """Return every entry that `signature` covers with its status, None when there is no folder.

    A folder has no status; a path with a NUL is followed by why the rest is not there.
    """
    top = os.fspath(folder)
    entries: list[tuple[str, os.stat_result | None]] = []
    try:
        own = os.lstat(top)
        if is_link(own):
            return [(".", own)]
        _sign(top, "", entries)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return [(UNREADABLE, None)]
    return entries


def sign_entries(entries: "Iterable[tuple[str, os.stat_result | None]]", *, sizes: bool = True) -> Signature:
    """Return the fingerprint of these entries, as `signature` does."""
    lines, newest = list[str](), 0
    for path, status in entries:
        lines.append(path if status is None else entry_line(path, status, sizes))
        newest = newest if status is None else max(newest, _changed_ns(status))
    return Signature(_digest(lines), newest)


def single_signature(file: Path) -> Signature | None:
    """Return the fingerprint of a file that stands for a folder; None when there is none, or a folder is."""
    try:
        status = os.lstat(file)
    except OSError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return None
    return Signature(_digest([entry_line(".", status)]), _changed_ns(status))


def _sign(top: str, prefix: str, found: "list[tuple[str, os.stat_result | None]]") -> None:
    """Add each entry of the folder at `top`."""
    _, files, folders = list_entries(top)
    for entry in files:
        try:
            status = entry.stat(follow_symlinks=False) if _POSIX else os.lstat(entry.path)
        except FileNotFoundError:
            continue
        found.append((prefix + entry.name, status))
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
                found[-1] = (f"{last}\0{error_reason(error)}", found[-1][1])


Entries = list["os.DirEntry[str]"]


def list_entries(where: str | int) -> tuple[Entries, Entries, Entries]:
    """Return the entries of a folder: ignored, others, folders; documents first, so that they are never cut off."""
    ignored: Entries = []
    files: Entries = []
    folders: Entries = []
    with os.scandir(where) as entries:
        for entry in entries:
            if is_ignored(entry.name):
                ignored.append(entry)
            elif entry.is_dir(follow_symlinks=False) and not _is_junction(entry):
                folders.append(entry)
            else:
                files.append(entry)
    files.sort(key=lambda entry: (not entry.name.endswith(".md"), entry.name))
    folders.sort(key=lambda entry: entry.name)
    return ignored, files, folders


def error_reason(error: OSError) -> str:
    """Return a reason for the reader, '' when the thing is simply gone."""
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


def _changed_ns(status: os.stat_result) -> int:
    """When the file last changed. A person can set mtime to anything; ctime is creation on Windows."""
    return status.st_ctime_ns if _POSIX else status.st_mtime_ns


def entry_line(path: str, s: os.stat_result, sizes: bool = True) -> str:
    return f"{path}\0{s.st_size if sizes else '-'} {s.st_mtime_ns} {s.st_ctime_ns} {s.st_ino} {s.st_mode}"


def _digest(lines: list[str]) -> str:
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()


@cache
def boot_id() -> str:
    """Return what tells this run of the system from the runs before it; '' where the system does not say."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return text if re.fullmatch(r"[0-9a-f-]{36}", text) else ""


def mark_of(place: "os.PathLike[str]") -> DirectoryMark | None:
    """Return the mark of a directory that was just built; None where it could not tell every later save.

    It can where each file is dated before its last change: a save by anybody sets the time of that moment.
    """
    entries = stat_entries(place)
    if not entries or any(one is not None and one.st_mtime_ns >= one.st_ctime_ns for _, one in entries):
        return None
    sizeless = sign_entries(entries, sizes=False)
    return DirectoryMark(sign_entries(entries).digest, sizeless.digest, _inode(place))


@dataclass(frozen=True, slots=True)
class ResolvedBinding:
    """A binding with the version that its directory holds, or that an edit in it was made of.

    mark: of the directory, when nobody wrote to it since. unsynced: its files may not be on the disk yet.
    before_restart: the system was restarted since it was written; then untouched says whether nobody but us wrote to
    the files, and known whether the directory is one of the two.
    """

    binding: Binding
    mark: DirectoryMark | None = None
    unsynced: bool = False
    before_restart: bool = False
    untouched: bool = False
    known: bool = True


def resolve(binding: Binding, place: Path, seen: Signature | None) -> ResolvedBinding:
    """Return the version that the directory at `place` holds. seen: its signature now."""
    pending = PendingCheckout.parse(binding.signature)
    if pending is None:
        same = seen is not None and binding.signature == seen.digest
        return ResolvedBinding(binding, DirectoryMark(seen.digest, "-", _inode(place)) if seen and same else None)
    new = replace(binding, signature="")
    old = replace(binding, version=pending.old_version, signature="")
    if seen is None:
        return ResolvedBinding(new)
    sides = ((new, pending.new), (old, pending.old))
    if pending.boot == boot_id():
        for bound, mark in sides:
            if seen.digest == mark.signature:
                return ResolvedBinding(replace(bound, signature=mark.signature), mark, unsynced=True)
        return ResolvedBinding(old if _inode(place) == pending.old.inode else new, unsynced=True)
    sizeless = signature(place, sizes=False)
    for bound, mark in sides:
        untouched = sizeless is not None and sizeless.digest == mark.sizeless or seen.digest == mark.signature
        if untouched or _inode(place) == mark.inode:
            return ResolvedBinding(bound, before_restart=True, untouched=untouched)
    return ResolvedBinding(new, before_restart=True, known=False)


def _inode(place: "os.PathLike[str]") -> int:
    try:
        return os.lstat(place).st_ino
    except OSError:
        return 0
