"""Write operations of a library as commits: one commit for each, through `git fast-import`.

The same operations on the same parent give the same commits, so an export that was killed is simply
done again.
"""

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import IO

from evolvable_store import EXECUTABLE, Actor, Change, Intent, Manifest, Store
from evolvable_store.errors import LibraryCorrupt, RemoteFailed
from evolvable_store.resource import Ref
from evolvable_store.storage import OPEN, RemoteState, RemoteWaiting
from evolvable_teams.remotes.git_process import NO_ID, TRANSFER, BareRepository
from evolvable_teams.remotes.layout import folder_of, signature_line, write_message

WORK = "refs/evolvable/work"
TIP = "refs/evolvable/tip"
"""Our names of the commit that is being written, and of the last one that was; they protect it from
gc.
"""

_BATCH = 500  # changes that are read at once
_MANIFESTS = 20_000  # in memory: consecutive commits share most of them
_EMPTY = Manifest({})

Chosen = Callable[[Ref], bool]
"""Returns whether a resource goes to a remote."""


class CommitStream:
    """Writes commits, one after another, each on top of the last."""

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
        # fast-import puts later commits onto the one before by itself.
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
        """Put a file or a folder that the repository has into the commit, or take it out where the
        id is ''.
        """
        quoted = (
            b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'
        )
        self._stream.write(
            b"M %o %s %s\n" % (mode, identity.encode(), quoted) if identity else b"D %s\n" % quoted
        )

    def delete(self, path: str) -> None:
        """Take a file or a folder out of the commit."""
        self._write(f"D {path}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text.encode())


@contextlib.contextmanager
def open_stream(repository: BareRepository, parent: str) -> Iterator[CommitStream]:
    """Yield a stream of commits onto `parent`; at the end WORK is the last of them.

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
    """An export.

    waiting: what still is not the library's in the tip. commits: how many were written.
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
    """Write the operations after the state's sequence as commits on its tip, and return the new
    state.

    A resource that waits has the remote's content in the tip until an operation changes it here, or
    its proposal is closed. Nothing is stored in the library.

    Args:
        held_back: resources of which no version is written. The tip keeps what it has of them, and
        has the library's
        content
            after the first export that does not hold them back. A removal is written.
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
        # TIP moves only after the whole stream was written; WORK may stand anywhere after a crash.
        repository.run("update-ref", TIP, tip := repository.id_of(WORK))
    left = export.remaining_waiting(
        lambda ref: repository.tree_of(tip, folder_of(ref)) if tip else NO_ID
    )
    return Exported(replace(state, tip=tip, sequence=export.end), left, stream.commits)


class _Export:
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
        self._differs = {ref for ref, entry in waiting.items() if not entry.here}
        self._skipped: dict[Ref, None] = {}
        self._id = lru_cache(maxsize=None)(self._read_id)
        # What an operation left is what the next one on the same resource finds.
        self._manifest = lru_cache(maxsize=_MANIFESTS)(self._read_manifest)
        self.end = store.sequence()

    def is_needed(self) -> bool:
        """Return whether there may be anything to write."""
        return self.end > self._state.sequence or any(
            not self._is_open(entry) for entry in self._waiting.values()
        )

    def write(self, stream: CommitStream) -> None:
        """Write every commit."""
        for operation, changes in itertools.groupby(
            self._log(), key=lambda change: change.operation
        ):
            chosen = [
                change for change in changes if self._chosen(change.ref) and not self._skips(change)
            ]
            if chosen:
                self._operation(stream, operation, chosen)
        self._settle(stream)

    def _skips(self, change: Change) -> bool:
        """Return whether a change is held back, and note that the tip differs then."""
        if change.after is None or change.ref not in self._held:
            return False
        self._skipped[change.ref] = None
        self._differs.add(change.ref)
        return True

    def _operation(self, stream: CommitStream, operation: int, changes: Iterable[Change]) -> None:
        intent, change_list = self._store.operation(operation).intent, list(changes)
        versions = (
            f"{change.ref.at(change.after)}" if change.after else f"{change.ref} removed"
            for change in change_list
        )
        stream.commit(
            signature_line(intent),
            write_message(f"{self._state.library}/{operation}", intent, versions),
        )
        for change in change_list:
            self._change(
                stream,
                change.ref,
                self._manifest(change.ref, change.before),
                self._manifest(change.ref, change.after),
            )

    def _change(self, stream: CommitStream, ref: Ref, before: Manifest, after: Manifest) -> None:
        folder = folder_of(ref)
        if ref in self._differs or not after:
            # The folder is deleted and written whole once, because what the tip holds there is not
            # ours.
            self._differs.discard(ref)
            stream.delete(folder)
            before = _EMPTY
        for path in before:
            if path not in after:
                stream.delete(f"{folder}/{path}")
        for path, entry in after.items():
            if before.get(path) != entry:
                stream.file(
                    f"{folder}/{path}",
                    entry.mode,
                    self._store.blob(entry.sha256),
                )

    def _settle(self, stream: CommitStream) -> None:
        """Write what the library holds in place of what a person turned down, or of what is held
        back no more.
        """
        closed = [
            entry
            for entry in self._waiting.values()
            if entry.ref in self._differs and not self._is_open(entry)
        ]
        free = [entry for entry in closed if entry.ref not in self._held]
        self._write_heads(
            stream, "Keep what is here", [entry.ref for entry in free if entry.proposal is not None]
        )
        self._write_heads(
            stream, "Send what was held back", [entry.ref for entry in free if entry.is_unsent]
        )

    def _write_heads(self, stream: CommitStream, reason: str, refs: Sequence[Ref]) -> None:
        """Write what the library holds of some resources as one commit, unless there are none."""
        if not refs:
            return
        why = Intent(
            self._store.now(),
            Actor.HUMAN,
            f"{reason}: {', '.join(map(str, refs))}",
        )
        stream.commit(signature_line(why), write_message("", why, ()))
        for ref in refs:
            self._change(stream, ref, _EMPTY, self._now(ref))

    def remaining_waiting(self, tree: Callable[[Ref], str]) -> tuple[RemoteWaiting, ...]:
        """Return the resources whose content in the tip is not the library's, and those with an
        open proposal.

        tree: returns the tree of a resource in the tip.
        """
        found = []
        for ref in dict.fromkeys([*self._waiting, *self._skipped]):
            entry = self._waiting.get(ref)
            if entry is not None and self._is_open(entry):
                found.append(replace(entry, here=ref not in self._differs))
            elif ref not in self._differs:
                continue
            elif entry is not None and entry.proposal is None and ref not in self._skipped:
                found.append(entry)
            else:
                tree_id = tree(ref)
                found.append(RemoteWaiting(ref, tree_id, tree_id, None))
        return tuple(found)

    def _is_open(self, entry: RemoteWaiting) -> bool:
        return (
            entry.proposal is not None
            and self._store.backend.proposals.get(entry.proposal).state == OPEN
        )

    def _now(self, ref: Ref) -> Manifest:
        head = self._store.head_or_none(ref)
        return self._manifest(ref, head.version if head else None)

    def _read_manifest(self, ref: Ref, number: int | None) -> Manifest:
        if number is None:
            return _EMPTY
        manifest = self._store.backend.manifest(self._id(ref), number)
        if manifest is None:
            raise LibraryCorrupt(f"{ref.at(number)} is missing.", "Run `evolvable care fsck`.")
        return manifest

    def _log(self) -> Iterator[Change]:
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
