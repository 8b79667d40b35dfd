"""Write operations of a library as commits: one commit for each, through `git fast-import`.

The same operations on the same parent give the same commits, so an export that was killed is done
again.
"""

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import IO

from evolvable_store import EXECUTABLE, Actor, Change, Intent, Manifest, Store
from evolvable_store.errors import LibraryCorrupt, RemoteFailed
from evolvable_store.resource import Ref
from evolvable_store.storage import OPEN, RemoteState, RemoteWaiting
from evolvable_teams.remotes.git_process import NO_ID, TRANSFER, BareRepository
from evolvable_teams.remotes.layout import folder_of, signature_line, write_message

WORK = "refs/evolvable/work"
"""Our name of the commit that is being written; it protects the commit from gc."""

TIP = "refs/evolvable/tip"
"""Our name of the last commit of a finished export."""

_BATCH = 500  # changes that are read at once
_MANIFESTS = 20_000  # in memory: consecutive commits share most of them
_EMPTY = Manifest({})

Chosen = Callable[[Ref], bool]
"""Returns whether a resource goes to a remote."""


class CommitStream:
    """Writes commits to `git fast-import`, each on top of the last."""

    def __init__(self, stream: IO[bytes], parent: str) -> None:
        self._stream, self._parent, self.commits = stream, parent, 0
        if parent:
            self._write(f"reset {WORK}\nfrom {parent}\n\n")
        else:
            self._write(f"reset {WORK}\n\n")

    def commit(self, author: str, message: bytes, merged: str = "") -> None:
        """Begin a commit. merged: a second parent."""
        self._write(f"commit {WORK}\nauthor {author}\ncommitter {author}\ndata {len(message)}\n")
        self._stream.write(message + b"\n")
        # Only the first: fast-import puts each later commit onto the one before.
        if self.commits == 0 and self._parent:
            self._write(f"from {self._parent}\n")
        if merged:
            self._write(f"merge {merged}\n")
        self.commits += 1

    def file(self, path: str, mode: int, data: bytes) -> None:
        """Put a file into the commit."""
        bits = "100755" if mode == EXECUTABLE else "100644"
        self._stream.write(f"M {bits} inline {path}\ndata {len(data)}\n".encode())
        self._stream.write(data + b"\n")

    def entry(self, path: bytes, mode: int, identity: str) -> None:
        """Put a file or a folder of the repository into the commit; with the id '', take it out."""
        escaped = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
        if identity:
            self._stream.write(b'M %o %s "%s"\n' % (mode, identity.encode(), escaped))
        else:
            self._stream.write(b'D "%s"\n' % escaped)

    def delete(self, path: str) -> None:
        """Take a file or a folder out of the commit."""
        self._write(f"D {path}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text.encode())


@contextlib.contextmanager
def open_stream(repository: BareRepository, parent: str) -> Iterator[CommitStream]:
    """Yield a stream of commits onto `parent`; afterwards WORK names the last of them.

    Raises RemoteFailed.
    """
    words = ("fast-import", "--quiet", "--done", "--force", "--date-format=raw")
    with repository.process(*words, seconds=TRANSFER) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            stream = CommitStream(process.stdin, parent)
            yield stream
            process.stdin.write(b"done\n")
            process.stdin.close()
        except BrokenPipeError:
            raise RemoteFailed(
                "git fast-import ended early.", "Check the free space of the disk."
            ) from None
        # With --done, fast-import fails unless it read the word `done`: half a stream moves no
        # reference.
        if process.wait() != 0:
            raise RemoteFailed(
                "git fast-import failed.", "Check the free space of the disk; nothing was lost."
            )


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export.

    waiting: the resources whose content in the tip is not the library's, or whose proposal is open.
    commits: how many were written.
    """

    state: RemoteState
    waiting: tuple[RemoteWaiting, ...]
    commits: int


def export_operations(
    store: Store,
    repository: BareRepository,
    state: RemoteState,
    waiting: Sequence[RemoteWaiting],
    chosen: Chosen,
    held_back: Collection[Ref] = (),
) -> Exported:
    """Write the operations after the state's sequence as commits on its tip.

    Return the new state; nothing is stored in the library. A resource that waits has the remote's
    content in the tip until an operation changes it here, or its proposal is closed.

    Args:
        held_back: resources of which no version is written, only a removal. Their content in the
            tip stays as it is until the first export that does not hold them back.
    """
    export = _Export(
        store, state, {entry.ref: entry for entry in waiting}, chosen, frozenset(held_back)
    )
    if not export.is_needed():
        return Exported(replace(state, sequence=export.end), tuple(waiting), 0)
    with open_stream(repository, state.tip) as stream:
        export.write(stream)
    tip = state.tip
    if stream.commits:
        # TIP moves only after the whole stream was written: after a crash WORK may name any commit.
        repository.run("update-ref", TIP, tip := repository.id_of(WORK))
    remaining = export.remaining_waiting(
        lambda ref: repository.tree_of(tip, folder_of(ref)) if tip else NO_ID
    )
    return Exported(replace(state, tip=tip, sequence=export.end), remaining, stream.commits)


class _Export:
    """One export: the changes that it writes, and the resources that differ in the tip."""

    def __init__(
        self,
        store: Store,
        state: RemoteState,
        waiting: dict[Ref, RemoteWaiting],
        chosen: Chosen,
        held_back: frozenset[Ref],
    ) -> None:
        self._store, self._state, self._chosen, self._held = store, state, chosen, held_back
        self._waiting = waiting
        # Resources whose content in the tip is not the library's.
        self._differs = {ref for ref, entry in waiting.items() if not entry.here}
        # Resources of which a change was held back, in the order of the log.
        self._skipped: dict[Ref, None] = {}
        self._id = lru_cache(maxsize=None)(self._read_id)
        # The manifest after one operation is the manifest before the next on the same resource.
        self._manifest = lru_cache(maxsize=_MANIFESTS)(self._read_manifest)
        self.end = store.sequence()

    def is_needed(self) -> bool:
        """Return whether there may be anything to write."""
        return self.end > self._state.sequence or any(
            not self._is_open(entry) for entry in self._waiting.values()
        )

    def write(self, stream: CommitStream) -> None:
        """Write every commit."""
        for operation, changes in itertools.groupby(self._read_log(), attrgetter("operation")):
            sent = (change for change in changes if self._chosen(change.ref))
            written = [change for change in sent if not self._hold_back(change)]
            if written:
                self._write_operation(stream, operation, written)
        self._settle(stream)

    def _hold_back(self, change: Change) -> bool:
        """Return whether a change is held back; note then that the tip differs."""
        if change.after is None or change.ref not in self._held:
            return False
        self._skipped[change.ref] = None
        self._differs.add(change.ref)
        return True

    def _write_operation(
        self, stream: CommitStream, operation: int, changes: Sequence[Change]
    ) -> None:
        """Write an operation as one commit."""
        intent = self._store.operation(operation).intent
        versions = (
            f"{change.ref.at(change.after)}" if change.after else f"{change.ref} removed"
            for change in changes
        )
        message = write_message(f"{self._state.library}/{operation}", intent, versions)
        stream.commit(signature_line(intent), message)
        for change in changes:
            before = self._manifest(change.ref, change.before)
            after = self._manifest(change.ref, change.after)
            self._write_change(stream, change.ref, before, after)

    def _write_change(
        self, stream: CommitStream, ref: Ref, before: Manifest, after: Manifest
    ) -> None:
        """Write the files in which two manifests differ, or the whole folder."""
        folder = folder_of(ref)
        if ref in self._differs or not after:
            # The folder is deleted and written whole once, because the tip's content of it is not
            # the library's.
            self._differs.discard(ref)
            stream.delete(folder)
            before = _EMPTY
        for path in before:
            if path not in after:
                stream.delete(f"{folder}/{path}")
        for path, entry in after.items():
            if before.get(path) != entry:
                stream.file(f"{folder}/{path}", entry.mode, self._store.blob(entry.sha256))

    def _settle(self, stream: CommitStream) -> None:
        """Write the library's content of resources that no longer differ for a reason.

        These are the resources whose proposal a person rejected, and those held back no more.
        """
        closed = [
            entry
            for entry in self._waiting.values()
            if entry.ref in self._differs and not self._is_open(entry)
        ]
        free = [entry for entry in closed if entry.ref not in self._held]
        kept = [entry.ref for entry in free if entry.proposal is not None]
        self._write_heads(stream, "Keep what is here", kept)
        unsent = [entry.ref for entry in free if entry.is_unsent]
        self._write_heads(stream, "Send what was held back", unsent)

    def _write_heads(self, stream: CommitStream, reason: str, refs: Sequence[Ref]) -> None:
        """Write the newest versions of these resources as one commit, unless there are none."""
        if not refs:
            return
        why = Intent(self._store.now(), Actor.HUMAN, f"{reason}: {', '.join(map(str, refs))}")
        stream.commit(signature_line(why), write_message("", why, ()))
        for ref in refs:
            self._write_change(stream, ref, _EMPTY, self._read_head(ref))

    def remaining_waiting(self, tree: Callable[[Ref], str]) -> tuple[RemoteWaiting, ...]:
        """Return the resources whose content in the tip is not the library's, and those with an
        open proposal.

        tree: returns the tree of a resource in the tip.
        """
        remaining = []
        for ref in dict.fromkeys([*self._waiting, *self._skipped]):
            entry = self._waiting.get(ref)
            if entry is not None and self._is_open(entry):
                remaining.append(replace(entry, here=ref not in self._differs))
            elif ref not in self._differs:
                continue
            elif entry is not None and entry.proposal is None and ref not in self._skipped:
                remaining.append(entry)
            else:
                tree_id = tree(ref)
                remaining.append(RemoteWaiting(ref, tree_id, tree_id, None))
        return tuple(remaining)

    def _is_open(self, entry: RemoteWaiting) -> bool:
        if entry.proposal is None:
            return False
        return self._store.backend.proposals.get(entry.proposal).state == OPEN

    def _read_head(self, ref: Ref) -> Manifest:
        head = self._store.head_or_none(ref)
        return self._manifest(ref, head.version if head else None)

    def _read_manifest(self, ref: Ref, number: int | None) -> Manifest:
        if number is None:
            return _EMPTY
        manifest = self._store.backend.manifest(self._id(ref), number)
        if manifest is None:
            raise LibraryCorrupt(f"{ref.at(number)} is missing.", "Run `evolvable care fsck`.")
        return manifest

    def _read_log(self) -> Iterator[Change]:
        after = self._state.sequence
        # `end` was read at the beginning: operations that come meanwhile go with the next export.
        while after < self.end:
            changes = self._store.changes(after, _BATCH)
            if not changes:
                return
            after = changes[-1].sequence
            yield from (change for change in changes if change.sequence <= self.end)

    def _read_id(self, ref: Ref) -> int:
        return (self._store.head_or_none(ref) or self._store.head(ref)).id
