"""Tell which of two versions a directory holds after a staged checkout.

The transaction that makes a version records the marks of the directory before and after
(`PendingCheckout`), and the new content is put in its place after the commit. A crash in between
leaves the old version. The new files are not synced: a power failure can cut them, or bring an
older directory back.

Once somebody has edited a directory that was exchanged as a whole, its inode tells which one is
there. Of one file or one new folder, the exchange did not happen where the new content still waits
in the staging folder.
"""

import hashlib
import os
import re
import stat
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from evolvable_store.storage import Binding, DirectoryMark, PendingCheckout, PendingPart
from evolvable_store.workingcopy.signatures import (
    Signature,
    StatEntries,
    sign_entries,
    signature,
    stat_entries,
)
from evolvable_store.workingcopy.staging_dir import is_waiting

MAX_PART = 256 * 1024
"""Bytes of a file that is put into a directory by itself: each look at the directory reads it."""

# Neither a link nor a pipe that took the file's place is opened or waited for.
_READ_FLAGS = ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC")
_READ = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in _READ_FLAGS)


@cache
def boot_id() -> str:
    """Return the id of this run of the system; '' where the system has none."""
    try:
        # Linux alone; elsewhere '' means that no checkout is prepared before its version.
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return text if re.fullmatch(r"[0-9a-f-]{36}", text) else ""


def mark_of(place: "os.PathLike[str]") -> DirectoryMark | None:
    """Return the mark of a directory that was just built.

    None where a later save could leave the mark as it is. It cannot where each file is dated before
    its last change: every save sets the present time.
    """
    entries = stat_entries(place)
    if not entries or not are_backdated(entries):
        return None
    return mark_of_entries(entries, inode_of(place))


def are_backdated(entries: StatEntries) -> bool:
    """Return whether each file is dated before its last change."""
    return all(status is None or status.st_mtime_ns < status.st_ctime_ns for _, status in entries)


def mark_of_entries(entries: StatEntries, inode: int, *, undated: str = "") -> DirectoryMark:
    """Return the mark of a directory with these entries. undated: as of `sign_entries`."""
    signed = sign_entries(entries, undated=undated).digest
    sizeless = sign_entries(entries, sizes=False, undated=undated).digest
    return DirectoryMark(signed, sizeless, inode)


@dataclass(frozen=True, slots=True)
class ResolvedBinding:
    """A binding with the version that its directory holds, or that an edit in it was made of.

    mark: of the directory, when nobody wrote to it since. unsynced: its files may not be on the
    disk yet. before_restart: the system was restarted since the directory was written. is_untouched
    then says whether nobody but us wrote to the files, is_known whether the directory is one of the
    two.
    """

    binding: Binding
    mark: DirectoryMark | None = None
    unsynced: bool = False
    before_restart: bool = False
    is_untouched: bool = False
    is_known: bool = True


def resolve(binding: Binding, root: Path, seen: Signature | None) -> ResolvedBinding:
    """Return the version that the directory of a watched root holds. seen: its signature now."""
    pending, place = PendingCheckout.parse(binding.signature), root / binding.directory
    if pending is None:
        if seen is None or binding.signature != seen.digest:
            return ResolvedBinding(binding)
        return ResolvedBinding(binding, DirectoryMark(seen.digest, "-", inode_of(place)))
    new = replace(binding, signature="")
    old = replace(binding, version=pending.old_version, signature="")
    if seen is None:
        return ResolvedBinding(new)
    if pending.part is not None:
        return _resolve_part(old, new, pending, pending.part, root, seen)
    sides = ((new, pending.new), (old, pending.old))
    # Without a restart the cache of the system is intact, so that a signature is enough.
    if pending.boot == boot_id():
        for bound, mark in sides:
            if seen.digest == mark.signature:
                signed = replace(bound, signature=mark.signature)
                return ResolvedBinding(signed, mark, unsynced=True)
        return ResolvedBinding(old if inode_of(place) == pending.old.inode else new, unsynced=True)
    # After a power failure a file of ours may be cut: its size is wrong, its times are ours.
    sizeless = signature(place, sizes=False)
    for bound, mark in sides:
        has_times = sizeless is not None and sizeless.digest == mark.sizeless
        untouched = has_times or seen.digest == mark.signature
        if untouched or inode_of(place) == mark.inode:
            return ResolvedBinding(bound, before_restart=True, is_untouched=untouched)
    return ResolvedBinding(new, before_restart=True, is_known=False)


def _resolve_part(
    old: Binding,
    new: Binding,
    pending: PendingCheckout,
    part: PendingPart,
    root: Path,
    seen: Signature,
) -> ResolvedBinding:
    place = root / new.directory
    undated = sign_entries(seen.entries, undated=part.path)
    if pending.boot == boot_id() and undated.digest == pending.new.signature:
        if not part.path or _has_content(
            place / part.path, dict(seen.entries)[part.path], part.sha256
        ):
            mark = DirectoryMark(
                seen.digest, sign_entries(seen.entries, sizes=False).digest, inode_of(place)
            )
            return ResolvedBinding(replace(new, signature=seen.digest), mark, unsynced=True)
        return ResolvedBinding(new, unsynced=True)
    # What was built still lies in the staging folder: the exchange did not happen.
    waits = is_waiting(root, part.stem, pending.new.inode)
    same = seen.digest == pending.old.signature
    if pending.boot == boot_id():
        if waits and same:
            return ResolvedBinding(replace(old, signature=seen.digest), pending.old, unsynced=True)
        return ResolvedBinding(old if waits else new, unsynced=True)
    if same or sign_entries(seen.entries, sizes=False).digest == pending.old.sizeless:
        return ResolvedBinding(old, before_restart=True, is_untouched=True)
    untouched = (
        sign_entries(seen.entries, sizes=False, undated=part.path).digest == pending.new.sizeless
    )
    # The directory stays through many versions; one from before both may have come back.
    return ResolvedBinding(
        old if waits else new, before_restart=True, is_untouched=untouched, is_known=untouched
    )


def _has_content(path: Path, seen: os.stat_result | None, sha256: str) -> bool:
    """Return whether the file is the one that was seen, and has this content.

    A person who may write to it can set its size and times back, but not the time of its last
    change.
    """
    try:
        fd = os.open(path, _READ)
    except (OSError, ValueError):
        return False
    with open(fd, "rb") as stream:
        # Before and after the read, and compared with what the caller saw: nobody wrote in between.
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode) or before.st_size > MAX_PART:
            return False
        data, after = stream.read(MAX_PART + 1), os.fstat(fd)
    unchanged = seen is not None and all(
        (status.st_ino, status.st_ctime_ns) == (seen.st_ino, seen.st_ctime_ns)
        for status in (before, after)
    )
    return unchanged and hashlib.sha256(data).hexdigest() == sha256


def inode_of(place: "os.PathLike[str]") -> int:
    """Return the inode of this path, 0 where nothing is there."""
    try:
        return os.lstat(place).st_ino
    except OSError:
        return 0
