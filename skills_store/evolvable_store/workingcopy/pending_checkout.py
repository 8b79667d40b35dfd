"""Which version a directory holds while the library does not know whether its exchange is complete.

See `storage.bindings.PendingCheckout`. A crash between the commit and the exchange leaves the old directory. The new
files are not synced, so a power failure can cut them, or bring an older directory back.
"""

import os
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from evolvable_store.storage.bindings import Binding, DirectoryMark, PendingCheckout
from evolvable_store.workingcopy.tree_reader import Signature, signature, tracked_paths


@cache
def boot_id() -> str:
    """Return what tells this run of the system from the runs before it; '' where the system does not say."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return text if re.fullmatch(r"[0-9a-f-]{36}", text) else ""


def mark_of(place: Path) -> DirectoryMark | None:
    """Return the mark of a directory that was just built; None where it could not tell every later save.

    It can where each file is dated before its last change: a save by anybody sets the time of that moment.
    """
    seen, sizeless = signature(place), signature(place, sizes=False)
    statuses = [os.lstat(place / path) for path in tracked_paths(place)]
    if seen is None or sizeless is None or any(one.st_mtime_ns >= one.st_ctime_ns for one in statuses):
        return None
    return DirectoryMark(seen.digest, sizeless.digest, os.lstat(place).st_ino)


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


def _inode(place: Path) -> int:
    try:
        return os.lstat(place).st_ino
    except OSError:
        return 0
