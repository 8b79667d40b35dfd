"""Write an update into its directories with the transaction that makes the version.

There is one commit, and no wait for the disk. The new content is built before the version exists,
without a lock. Where one file is changed or added, that is the file or the new folder around it;
else it is the whole directory. With the locks of the folders held, the transaction makes the
version and records the marks of the directories before and after (`PendingCheckout`). Then each is
put in its place in one step. A sync writes all other directories: those that are new, edited, held,
a single file, or behind a link.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from evolvable_store.errors import EvolvableError
from evolvable_store.objects import Files, Manifest, make_manifest
from evolvable_store.operation import Head
from evolvable_store.storage import Binding, DirectoryMark, PendingPart
from evolvable_store.transaction import Transaction
from evolvable_store.workingcopy.atomic_dir import (
    SINGLE,
    check_target,
    finish_swap,
    open_staging,
    put_in_place,
    still_holds,
)
from evolvable_store.workingcopy.discovery import is_single
from evolvable_store.workingcopy.file_moves import build_branch, build_folder, build_single
from evolvable_store.workingcopy.incoming import SyncReport, describe_results
from evolvable_store.workingcopy.openat import UNSUPPORTED, PathAt, is_link, rename
from evolvable_store.workingcopy.pending_checkout import (
    MAX_PART,
    are_backdated,
    boot_id,
    inode_of,
    mark_of,
    mark_of_entries,
)
from evolvable_store.workingcopy.signatures import (
    MAX_SEEN,
    StatEntries,
    entry_line,
    signature,
    with_entries,
)
from evolvable_store.workingcopy.staging_dir import (
    OpenStagingDirectory,
    RecoveryNote,
    Slot,
    new_note,
)
from evolvable_store.workingcopy.sync import WorkingCopy

# A client waits for the answer; a sync writes the directories afterwards.
STAGED_LOCK_SECONDS = 5.0
"""How long the locks of the folders are waited for, before the directories are left to a sync."""


@dataclass(slots=True)
class _StagedDirectory:
    """One directory, or one path of it, that is built beside its place.

    old, new: the marks of the directory before and after. part: None for a whole directory.
    replaced: the line in a signature of the file that is replaced, '' for none.
    """

    copy: WorkingCopy
    binding: Binding
    slot: Slot
    note: RecoveryNote
    old: DirectoryMark
    new: DirectoryMark
    part: PendingPart | None = None
    replaced: str = ""


@dataclass(frozen=True, slots=True)
class _Change:
    """The change of the next version to a directory.

    files: all of that version. added: the new paths. written: the tree of all files. path: of the
    one file that changes, '' where more files change or one is removed. sha256: of its content.
    before: the tree of its old content as SINGLE, '' for a new file.
    """

    files: Files
    added: frozenset[str]
    written: str
    path: str = ""
    sha256: str = ""
    before: str = ""

    @classmethod
    def between(cls, base: Manifest, manifest: Manifest, files: Files) -> "_Change":
        added = frozenset(manifest.keys() - base.keys())
        changed = [path for path, entry in manifest.items() if base.get(path) != entry]
        is_single_change = len(changed) == 1 and not base.keys() - manifest.keys()
        # A larger file would be read whole at every look at the directory.
        if not is_single_change or manifest[changed[0]].size > MAX_PART:
            return cls(files, added, manifest.tree)
        (path,) = changed
        before = Manifest({SINGLE: base[path]}).tree if path in base else ""
        return cls(files, added, manifest.tree, path, manifest[path].sha256, before)


@dataclass(frozen=True, slots=True)
class _Place:
    """One directory that is to hold the next version of `head`, with its mark and entries now."""

    copy: WorkingCopy
    binding: Binding
    mark: DirectoryMark
    entries: StatEntries
    opened: OpenStagingDirectory
    target: PathAt
    head: Head

    @contextlib.contextmanager
    def slot(self, note: RecoveryNote) -> Iterator[Slot]:
        """Yield a slot with this note; it is cleared unless it has a ready folder at the end."""
        slot = Slot.fresh(self.opened, self.target.name.rpartition("/")[2])
        # Not durable: until the transaction commits, losing note and files together loses nothing.
        slot.write_note(note, durable=False)
        try:
            yield slot
        finally:
            if not slot.ready.exists():
                slot.clear()


class StagedCheckout:
    """The directories that are about to hold the next version of one resource.

    complete: whether every directory of the resource holds the version, so that no sync is needed.
    """

    def __init__(self) -> None:
        self._head: Head
        self._staged: list[_StagedDirectory] = []
        self._open = contextlib.ExitStack()
        self.complete = False

    def prepare(
        self,
        places: Sequence[tuple[WorkingCopy, Binding]],
        head: Head,
        base: Manifest,
        files: Files,
    ) -> None:
        """Build the next version beside each directory, and take the locks of their folders.

        head, base: the version that the directories hold, and its manifest. files: of the next
        version.
        """
        self._head, manifest = head, make_manifest(files)
        self.complete = not places
        # Without a boot id nobody could tell after a restart which version a directory holds.
        if not places or not boot_id() or manifest.tree == head.tree:
            return
        if any(_may_withhold(copy, binding, head, files) for copy, binding in places):
            return
        change = _Change.between(base, manifest, files)
        try:
            for copy, binding in places:
                if not self._stage(copy, binding, change):
                    self.close()
                    return
            copies = {copy.folder.id: copy for copy, _ in places}
            # In the order of their ids: two updates that lock the same folders cannot wait for each
            # other.
            for folder_id in sorted(copies):
                self._open.enter_context(copies[folder_id].lock(STAGED_LOCK_SECONDS))
            # Again with the locks held: somebody may have saved while the files were built.
            if any(self._read_digest(staged) != staged.old.signature for staged in self._staged):
                self.close()
        except (EvolvableError, OSError):
            self.close()

    def bind(self, transaction: Transaction) -> None:
        """Record the directories together with the last write of the transaction."""
        for staged in self._staged:
            transaction.bind_pending(staged.binding, staged.old, staged.new, boot_id(), staged.part)

    def exchange(self) -> list[str]:
        """Put the directories in their places after the commit; return failures and remarks."""
        if not self._staged:
            return []
        reports = []
        waiting, self._staged = self._staged, []
        self.complete = True
        for staged in waiting:
            try:
                # One failure leaves the others as they are: each directory is old or new as a
                # whole.
                reports.append(self._exchange(staged))
            except (EvolvableError, OSError):
                self.complete = False  # the next sync repairs it, and says what is wrong
        return describe_results(reports)

    def close(self) -> None:
        """Give the locks back, and remove directories that were built but not used."""
        unused, self._staged = self._staged, []
        try:
            for staged in unused:
                # Its recovery note stays, so the next sync removes it.
                with contextlib.suppress(OSError):
                    staged.slot.clear()
        finally:
            self._open.close()

    def _stage(self, copy: WorkingCopy, binding: Binding, change: _Change) -> bool:
        """Build the next version beside one directory; return False where a sync has to do it."""
        if is_single(copy.folder.kind, binding.directory) or binding.version != self._head.version:
            return False
        if copy.obstacle() or copy.is_read_only(binding.directory):
            return False
        current, resolved = copy.status.last_seen(binding)
        # A sync keeps links that belong to a version.
        if current is None or _has_link(current.entries):
            return False
        if resolved.mark is None or resolved.binding.version != self._head.version:
            return False
        opened = self._open.enter_context(open_staging(copy.staging()))
        target = check_target(copy.folder.path / binding.directory, opened)
        if any((target / path).exists() for path in change.added):
            return False  # an entry that no version has may be in the way
        place = _Place(
            copy, resolved.binding, resolved.mark, current.entries, opened, target, self._head
        )
        staged = _stage_part(place, change) or _stage_whole(place, change)
        if staged is not None:
            self._staged.append(staged)
        return staged is not None

    def _read_digest(self, staged: _StagedDirectory) -> str:
        current = staged.copy.status.signature(staged.binding.directory)
        return current.digest if current is not None else ""

    def _exchange(self, staged: _StagedDirectory) -> SyncReport:
        report, slot = SyncReport(staged.copy.folder), staged.slot
        try:
            put_in_place(slot, staged.note)
        except OSError as error:
            # The file system cannot exchange files: from now on whole directories are built.
            staged.copy.can_exchange = staged.part is None or error.errno not in UNSUPPORTED
            raise
        # Before `finish_swap`, which moves files out of the replaced directory.
        touched = _is_touched(staged)
        replaced = finish_swap(slot, staged.note, durable=False)
        report.written.append(staged.binding.directory)
        if not touched or replaced is None:
            return report
        head, directory = self._head, staged.binding.directory
        modes = staged.copy.store.manifest(head, head.version) if not staged.part else {}
        if not still_holds(replaced.old, staged.note.believed, modes):
            # Somebody saved between our look and the exchange. A later sweep finds it too; sooner
            # is better.
            staged.copy.import_replaced(
                directory, head, head.tree, replaced.old, report, staged.note.path
            )
        return report


def _may_withhold(copy: WorkingCopy, binding: Binding, head: Head, files: Files) -> bool:
    place = copy.folder.path / binding.directory
    return copy.status.powers.may_withhold(place, binding.directory, head, files)


def _has_link(entries: StatEntries) -> bool:
    return any(status is not None and is_link(status) for _, status in entries)


def _are_plain(entries: StatEntries) -> bool:
    """Return whether these are all entries of a directory, and each could be read."""
    return len(entries) < MAX_SEEN and not any("\0" in path or path == "." for path, _ in entries)


def _stage_whole(place: _Place, change: _Change) -> _StagedDirectory | None:
    """Build a directory with all files of the next version.

    Return None where its mark could not tell later saves.
    """
    note = new_note(
        place.target, now=time.time(), inode=0, believed=place.head.tree, written=change.written
    )
    with place.slot(note) as slot:
        build_folder(slot.new, change.files, place.target, durable=False)
        new = mark_of(slot.new)
        if new is None:
            return None
        rename(slot.new, slot.ready)
        return _StagedDirectory(place.copy, place.binding, slot, note, place.mark, new)


def _stage_part(place: _Place, change: _Change) -> _StagedDirectory | None:
    """Build the one file that changes, or the first folder above it that does not exist.

    Return None where the whole directory has to be built.
    """
    if not change.path or not place.copy.can_exchange or not _are_plain(place.entries):
        return None
    before = dict(place.entries).get(change.path)
    path = change.path if before else _find_first_missing(place.target, change.path)
    if not path or bool(change.before) != bool(before):
        return None
    inner, file = change.path[len(path) + 1 :], change.files[change.path]
    written = make_manifest({inner or SINGLE: file}).tree
    now = time.time()
    note = new_note(place.target, now=now, inode=0, believed=change.before, written=written)
    note = replace(note, path=path, tree=place.head.tree)
    with place.slot(note) as slot:
        if inner:
            build_branch(slot.new, inner, file, slot.target(note))
        else:
            build_single(slot.new, file, slot.target(note), durable=False)
        added = _list_built_entries(slot.new, path, inner)
        if not are_backdated(added):
            return None
        # The rename sets the time of the file's last change, not of one in a folder that is
        # renamed.
        part = PendingPart(slot.stem, change.sha256, "" if inner else path)
        entries = with_entries(place.entries, added)
        new = mark_of_entries(entries, inode_of(slot.new), undated=part.path)
        rename(slot.new, slot.ready)
        replaced = entry_line(path, before, dated=False) if before else ""
        return _StagedDirectory(
            place.copy, place.binding, slot, note, place.mark, new, part, replaced
        )


def _list_built_entries(built: PathAt, path: str, inner: str) -> StatEntries:
    """Return the entries of the file or the folder that will lie at `path`.

    inner: the path of the one file in the folder, '' for a file.
    """
    if not inner:
        return [(path, built.lstat())]
    folders = [path, *(f"{path}/{parent}" for parent in _list_folders_above(inner))]
    return [
        *((folder, None) for folder in folders),
        (f"{path}/{inner}", (built / inner).lstat()),
    ]


def _list_folders_above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _find_first_missing(target: PathAt, path: str) -> str:
    """Return the outermost folder or file of a path that does not exist below a directory.

    '' where a file or a link is in the way, or all of it exists.
    """
    for place in (*_list_folders_above(path), path):
        if not (target / place).exists():
            return place
        if not (target / place).is_dir():
            return ""
    return ""


def _is_touched(staged: _StagedDirectory) -> bool:
    """Return whether somebody wrote to the replaced file or directory since it was looked at."""
    old = staged.slot.old
    if staged.part is None:
        current = signature(old)
        return current is None or current.digest != staged.old.signature
    if not old.exists():
        return False
    return entry_line(staged.part.path, old.lstat(), dated=False) != staged.replaced
