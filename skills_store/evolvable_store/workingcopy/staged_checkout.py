"""Write a version into its directories with the transaction that makes it: one commit, and no wait for the disk.

The directories are built before the version exists, without a lock. With the locks of their folders held, the
transaction makes the version and records both directories (`PendingCheckout`), and then they are exchanged. What cannot
be done so is left to a sync: a directory that is new, edited, held, a single file, or behind a link.
"""

import contextlib
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass

from evolvable_store.errors import EvolvableError
from evolvable_store.objects import Files, Manifest, make_manifest
from evolvable_store.operation import Head
from evolvable_store.storage.bindings import Binding, DirectoryMark
from evolvable_store.transaction import Transaction
from evolvable_store.workingcopy.atomic_dir import (
    check_target,
    finish_swap,
    open_staging,
    put_in_place,
    read_back,
    still_holds,
)
from evolvable_store.workingcopy.file_moves import build_folder
from evolvable_store.workingcopy.incoming import SyncReport, describe_results
from evolvable_store.workingcopy.openat import rename
from evolvable_store.workingcopy.pending_checkout import boot_id, mark_of
from evolvable_store.workingcopy.staging_dir import RecoveryNote, Slot, new_note
from evolvable_store.workingcopy.status import is_single
from evolvable_store.workingcopy.sync import WorkingCopy
from evolvable_store.workingcopy.tree_reader import signature

LOCK_SECONDS = 5.0
"""How long the locks of the folders are waited for, before the directories are left to a sync."""


@dataclass(slots=True)
class _StagedDirectory:
    """One directory, built beside its place. old, new: the marks of what lies there, and of what was built."""

    copy: WorkingCopy
    binding: Binding
    slot: Slot
    note: RecoveryNote
    old: DirectoryMark
    new: DirectoryMark


class StagedCheckout:
    """The directories that are about to hold the next version of one resource. For one `with` block.

    complete: whether every directory of the resource holds the version, so that no sync is needed.
    """

    def __init__(self) -> None:
        self._head: Head
        self._staged: list[_StagedDirectory] = []
        self._open = contextlib.ExitStack()
        self.complete = False

    def prepare(self, places: Sequence[tuple[WorkingCopy, Binding]], head: Head, base: Manifest, files: Files) -> None:
        """Build the next version beside each directory, and take the locks of their folders.

        head, base: the version that the directories hold, and its manifest. files: of the next version.
        """
        self._head, written = head, make_manifest(files).tree
        self.complete = not places
        if not places or not boot_id() or written == head.tree:
            return
        added = files.keys() - base.keys()
        try:
            for copy, binding in places:
                if not self._stage(copy, binding, files, added, written):
                    self.close()
                    return
            for copy in sorted({copy.folder.id: copy for copy, _ in places}.values(), key=lambda copy: copy.folder.id):
                self._open.enter_context(copy.locked(LOCK_SECONDS))
            if any(self._seen(staged) != staged.old.signature for staged in self._staged):
                self.close()
        except (EvolvableError, OSError):
            self.close()

    def bind(self, transaction: Transaction) -> None:
        """Record the directories together with the last write of the transaction."""
        for staged in self._staged:
            transaction.bind_pending(staged.binding, staged.old, staged.new, boot_id())

    def exchange(self) -> list[str]:
        """Put the directories in their places, when the transaction is committed; return what was remarkable."""
        reports = []
        left, self._staged = self._staged, []
        self.complete = self.complete or bool(left)
        for staged in left:
            try:
                reports.append(self._exchange(staged))
            except (EvolvableError, OSError):
                self.complete = False  # the next sync repairs it, and says what is wrong
        return describe_results(reports)

    def close(self) -> None:
        """Give the locks back, and remove what was built for nothing."""
        left, self._staged = self._staged, []
        for staged in left:
            staged.slot.clear()
        self._open.close()

    def _stage(self, copy: WorkingCopy, binding: Binding, files: Files, added: Set[str], written: str) -> bool:
        """Build the next version beside one directory; return whether that is the way for it."""
        if is_single(copy.folder.kind, binding.directory) or binding.version != self._head.version:
            return False
        resolved = copy.status.resolve(binding, copy.status.signature(binding.directory))
        if resolved.mark is None or resolved.binding.version != self._head.version:
            return False
        opened = self._open.enter_context(open_staging(copy.staging()))
        target = check_target(copy.folder.path / binding.directory, opened)
        if any((target / path).exists() for path in added):
            return False  # something that no version keeps may be in the way
        slot = Slot.fresh(opened, target.path.name)
        note = new_note(target, now=time.time(), inode=0, believed=self._head.tree, written=written)
        slot.write_note(note, durable=False)
        try:
            build_folder(slot.new, files, target, durable=False)
            new = mark_of(slot.new.path)
            if new is not None:
                rename(slot.new, slot.ready)
                self._staged.append(_StagedDirectory(copy, resolved.binding, slot, note, resolved.mark, new))
        finally:
            if not self._staged or self._staged[-1].slot is not slot:
                slot.clear()
        return new is not None

    def _seen(self, staged: _StagedDirectory) -> str:
        seen = staged.copy.status.signature(staged.binding.directory)
        return seen.digest if seen is not None else ""

    def _exchange(self, staged: _StagedDirectory) -> SyncReport:
        report, slot = SyncReport(staged.copy.folder), staged.slot
        put_in_place(slot, staged.note)
        seen = signature(slot.old.path)
        touched = seen is None or seen.digest != staged.old.signature
        replaced = finish_swap(slot, staged.note, durable=False)
        report.written.append(staged.binding.directory)
        if touched and replaced is not None and not still_holds(replaced.old, self._head.tree):
            # Somebody saved between our look and the exchange. A later sweep finds it too; sooner is better.
            found = read_back(replaced.old).files
            staged.copy.take_late(staged.binding.directory, self._head, self._head.tree, found, replaced.old, report)
        return report
