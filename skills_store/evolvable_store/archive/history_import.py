"""Takes in a JSON archive: appends what another library knows and this one does not, as it happened there."""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_store.archive.evidence import take_evidence
from evolvable_store.archive.history_check import check_history
from evolvable_store.archive.history_staging import Staging
from evolvable_store.archive.output import Stream
from evolvable_store.archive.taking_in import Imported, Look, looked_away
from evolvable_store.backend import Writer
from evolvable_store.batches import batches
from evolvable_store.channel import Channel, Stand
from evolvable_store.errors import InvalidArchive, InvalidResource
from evolvable_store.objects import File
from evolvable_store.operation import Head, Intent
from evolvable_store.resource import USER_SCOPE, Ref
from evolvable_store.transaction import Step, replay

if TYPE_CHECKING:
    from evolvable_store.store import Store


def import_json(store: "Store", source: Path | Stream, *, look: Look = looked_away, dry_run: bool = False) -> Imported:
    """Returns what became of each resource of an archive that `export_json` wrote.

    A history that is ours: nothing. One that goes on where ours ends: the rest is appended, each operation as an
    operation of its own with its actor, reason, time, session and evidence, so that all hashes are equal. One that
    went another way, or is unsound: refused with the reason, and left alone. All that is appended is appended in
    one step, or nothing. What `undoes` says of an operation are ids of the library that made it. The stable channel
    shows what was added as it was shown there; of what was here, hosts go on seeing what they saw. The policy comes
    along into a library whose channel never moved. The evidence about what was not refused is added afterwards, as far
    as it is not here. look: refuses a resource by what its newest version holds, where
    that is not here yet. dry_run: only say what would be imported.
    Raises InvalidArchive or TooLarge for what is not an archive.
    """
    with Staging(store.home) as staging, _opened(source) as stream:
        staging.load(stream)
        checked = {ref: check_history(staging, ref) or _seen(store, staging, ref, look) for ref in staging.refs()}
        sound = [ref for ref, found in checked.items() if not found]
        merge = _Merge(store, staging, sound)
        merge.compare()
        if (merge.added or merge.updated) and not dry_run:
            _send_blobs(store, staging)
            merge = _Merge(store, staging, sound)
            replay(store.backend, merge.operations(), merge.place)
        if not dry_run:
            take_evidence(store, staging.evidence(), merge.known())
    unsound = [(str(ref), found) for ref, found in checked.items() if found]
    return Imported(None, tuple(merge.added), tuple(merge.updated), tuple(merge.unchanged), (*unsound, *merge.refused))


def _seen(store: "Store", staging: Staging, ref: Ref, look: Look) -> tuple[str, ...]:
    """Returns every reason that a look at the newest version of a sound history finds against it."""
    newest = [change.manifest for change in staging.changes(ref) if change.manifest is not None][-1]
    head = store.head_or_none(ref)
    if head is not None and head.tree == newest.tree:
        return ()
    files = {path: File(staging.blob(entry.sha256), entry.mode) for path, entry in newest.items()}
    try:
        kept_out = not look(ref, (head.version if head else None) or 0, files)
    except InvalidResource as error:
        return error.problems
    return ("a person has to look at it first",) if kept_out else ()


@contextlib.contextmanager
def _opened(source: Path | Stream) -> Iterator[Stream]:
    with contextlib.ExitStack() as files:
        try:
            stream = files.enter_context(open(source, "rb")) if isinstance(source, Path) else source
        except OSError as error:
            why = error.strerror or error
            raise InvalidArchive(f"{source} cannot be read: {why}.", "Name another file.") from error
        yield stream


def _send_blobs(store: "Store", staging: Staging) -> None:
    """Brings the bulk of an import in by small steps, so that others do not wait for it.

    The steps that name the blobs bring them once more: until then, gc may remove them.
    """
    for batch in batches(staging.wanted_blobs(), lambda blob: blob[1]):
        with store.backend.write() as writer:
            for sha256, _ in batch:
                writer.add_blob(*staging.packed(sha256))


@dataclass
class _Merge:
    """Compares sound histories with the library, and so finds what is missing here."""

    store: "Store"
    staging: Staging
    sound: list[Ref]
    added: list[Ref] = field(default_factory=list)
    updated: list[Ref] = field(default_factory=list)
    unchanged: list[Ref] = field(default_factory=list)
    refused: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def operations(self) -> Iterator[tuple[Intent, Iterator[Step]]]:
        """Compares, and yields what is missing here in the order of the archive's log."""
        self.compare()
        for operation, steps in itertools.groupby(self.staging.wanted(), key=lambda wanted: wanted[0]):
            yield self._intent(operation), (step for _, step in steps)

    def place(self, writer: Writer, operation: int) -> None:
        """Makes the moves of the archive's channel for what was added. Raises InvalidArchive."""
        added, untouched = set(self.added), Channel(self.store.backend).last() == 0
        for note, placed in self.staging.moves():
            stands: dict[int, Stand] = {}
            for ref, stand in placed:
                head = writer.head(ref.kind, ref.scope or USER_SCOPE, ref.name) if ref in added else None
                if head is not None and (stand.version or 0) > head.latest:
                    raise InvalidArchive(
                        f"The archive's channel shows version {stand.version} of {ref}, which it does not have.",
                        "Nothing was taken in; export again.",
                    )
                if head is not None:
                    stands[head.id] = stand
            writer.add_move(replace(note, operation=operation, policy=note.policy if untouched else None), stands)

    def known(self) -> dict[str, tuple[int, int]]:
        """Returns the id and the newest version here of what the archive and the library agree on."""
        heads = [self.store.head_or_none(ref) for ref in (*self.added, *self.updated, *self.unchanged)]
        return {str(head.ref): (head.id, head.latest) for head in heads if head is not None}

    def _intent(self, operation: int) -> Intent:
        intent = self.staging.intent(operation)
        assert intent is not None  # a change without one is not sound
        return intent

    def compare(self) -> None:
        """Sorts the resources, and notes in the staging what is missing here."""
        self.staging.want_nothing()
        for ref in self.sound:
            self._compare(ref)

    def _compare(self, ref: Ref) -> None:
        head = self.store.head_or_none(ref)
        if head is None:
            self.added.append(ref)
            self.staging.want(ref, 0)
            return
        # The hash of the last version that both have covers all before it; what is left to compare is where the
        # name pointed while that was the newest (a removal, a return).
        common = min(head.latest, self.staging.latest(ref))
        theirs = self.staging.steps_at(ref, common)
        told = [(after, chained, self._intent(made_by).digest) for made_by, after, chained, _ in theirs]
        ours = self._steps_at(head, common)
        if head.latest == common and ours == told[: len(ours)]:
            missing = len(ours) < len(theirs) or self.staging.latest(ref) > common
            (self.updated if missing else self.unchanged).append(ref)
            self.staging.want(ref, theirs[len(ours) - 1][3])
        elif self.staging.latest(ref) == common and told == ours[: len(told)]:
            self.unchanged.append(ref)
        else:
            why = f"its history here went another way at or before version {common}"
            self.refused.append((str(ref), (f"{why}; a zip of it brings its newest version",)))

    def _steps_at(self, head: Head, number: int) -> list[tuple[int | None, str, str]]:
        """Returns where the name pointed while this version was the newest: (version, its hash, operation digest)."""
        version = self.store.version(head, number)
        steps: list[tuple[int | None, str, str]] = []
        for change in self.store.backend.changes_to(head.id, version.operation - 1):
            if change.after is not None and change.after > number:
                break
            if steps or change.after == number:
                intent = self.store.operation(change.operation).intent
                steps.append((change.after, version.hash, intent.digest))
        return steps
