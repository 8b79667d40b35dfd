"""Import folders and JSON archives that come from elsewhere.

A folder is imported by the rules for a person's own folder, whole or not at all. Of a JSON archive,
the history of each resource is checked: every hash, every step, every file. Then the part that this
library lacks is appended as it happened in the other one.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from evolvable_store.bundle.archive_reader import ArchiveReader
from evolvable_store.bundle.export import Stream, import_evidence
from evolvable_store.errors import Frozen, InvalidArchive, InvalidResource, VersionConflict
from evolvable_store.frontmatter import is_frozen
from evolvable_store.gc import split_batches
from evolvable_store.objects import (
    EXECUTABLE,
    MAX_RESOURCE,
    PLAIN,
    File,
    Files,
    Manifest,
    chain_hash,
    make_manifest,
)
from evolvable_store.operation import Actor, Head, HeadState, Intent
from evolvable_store.regular_files import regular_file
from evolvable_store.resource import USER_SCOPE, Kind, Ref, main_file, slugify
from evolvable_store.storage import (
    ChannelState,
    CheckedState,
    ImportStaging,
    ReplayStep,
    StagedChange,
    Writer,
)
from evolvable_store.store import Store
from evolvable_store.transaction import Transaction, replay
from evolvable_store.validation import blocking_problems, find_problems, hostile_problems, main_path

# Each try reads the candidates again; five in a row only fail where a process writes without a
# pause.
_TRIES = 5
"""Tries of one import, whose transaction can lose against another process."""


@dataclass(slots=True)
class ImportReport:
    """The results of an import, filled while it runs.

    operation: the one of the import; None when nothing changed, and for a JSON archive, which has
    operations of its own. added: new here, or removed before. refused: name or ref -> every reason;
    these were left as they were. held: not imported for now, as the check decided. looks: the
    records that `export_json` got as `looks`, each as JSON.
    """

    operation: int | None = None
    added: list[Ref] = field(default_factory=list)
    updated: list[Ref] = field(default_factory=list)
    unchanged: list[Ref] = field(default_factory=list)
    refused: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    held: list[Ref] = field(default_factory=list)
    looks: list[bytes] = field(default_factory=list)

    @property
    def accepted(self) -> list[Ref]:
        """The resources that are here afterwards as the archive has them."""
        return [*self.added, *self.updated, *self.unchanged]


@dataclass(frozen=True, slots=True)
class ImportCandidate:
    """A folder that may become the resource `name`.

    missing: the files that were not read, each with the reason. left_out: paths of entries whose
    names are no part of a resource; that of a folder ends with a slash.
    """

    name: str
    files: Files
    missing: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def resource(self, kind: Kind) -> str:
        """Return the name of the resource that it becomes, '' where none can be made.

        It is made as that of a directory in a watched folder.
        """
        return self.name if kind is Kind.MEMORY else slugify(self.name)

    def stops(self, kind: Kind) -> list[str]:
        """Return every reason against its content as a resource of this kind."""
        # Without files there is a reason in `missing` already.
        if not self.files:
            return list(self.missing)
        name = self.resource(kind)
        problems = blocking_problems(find_problems(kind, name, self.files))
        why = f"no name can be made of {ascii(self.name)}: put it into a folder, whose name it gets"
        return [*self.missing, *([] if name else [why]), *map(str, problems)]


ImportCheck = Callable[[Ref, int, Files, tuple[str, ...]], bool]
"""A check of one import. Its arguments: the resource, the version here that it would replace (0:
none), its files, and the paths that are left out of it by their names.

It returns whether the resource is imported. False keeps it out for now; InvalidResource refuses it.
"""


_T = TypeVar("_T")


def track_progress(
    items: Iterable[_T], total: int, progress: Callable[[int, int], None] | None
) -> Iterator[_T]:
    """Yield the items; call `progress` after each with how many are done, and the total."""
    for done, item in enumerate(items, 1):
        yield item
        if progress:
            progress(done, total)


def accept_all(ref: Ref, base: int, files: Files, left_out: tuple[str, ...]) -> bool:
    """Accept every sound resource."""
    return True


def is_main(kind: Kind, path: str) -> bool:
    """Return whether the file at `path` makes its folder a resource, in upper or lower case."""
    # Whatever its case, so that a wrong one is reported.
    folder, _, name = path.rpartition("/")
    return name.casefold() == main_file(kind, folder.rpartition("/")[2]).casefold()


@dataclass(frozen=True, slots=True)
class FolderImport:
    """An import of folders as resources of one kind in one scope.

    replace: whether a resource that is here with other content gets a new version; otherwise it is
    refused. check: decides on each resource.
    """

    store: Store
    kind: Kind
    scope: str
    reason: str
    replace: bool = False
    check: ImportCheck = accept_all

    def run(self, read: Callable[[], Iterable[ImportCandidate]]) -> ImportReport:
        """Import the candidates as one operation of Actor.IMPORT; return the report.

        read: returns the candidates. It is called again when another process changes one of these
        resources meanwhile.
        """
        for attempt in range(_TRIES):
            try:
                return self._import_all(read())
            except (VersionConflict, Frozen):
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError

    def _import_all(self, candidates: Iterable[ImportCandidate]) -> ImportReport:
        done = ImportReport()
        with self.store.transaction(Actor.IMPORT, self.reason) as tx:
            for candidate in candidates:
                try:
                    self._import_one(tx, candidate, done)
                except InvalidResource as error:
                    done.refused.append((candidate.name or "the archive", error.problems))
        done.operation = tx.operation.id if tx.operation else None
        return done

    def _import_one(self, tx: Transaction, candidate: ImportCandidate, done: ImportReport) -> None:
        """Put one candidate where it is new or changed, and note the result in the report.

        Raises InvalidResource with every reason against it.
        """
        name, files = candidate.name, candidate.files
        if stops := candidate.stops(self.kind):
            raise InvalidResource(name, stops)
        ref = Ref(self.kind, candidate.resource(self.kind), self.scope)
        # Two folders of different spelling can become one name.
        if ref in (*done.accepted, *done.held):
            raise InvalidResource(name, ["another folder of this archive has the same name"])
        head = self.store.head_or_none(ref)
        here = (head.version if head else None) or 0
        # Before the check of frozen: the same content changes nothing.
        if head is not None and here and make_manifest(files).tree == head.tree:
            done.unchanged.append(ref)
            return
        if head is not None and head.frozen:
            why = 'it is frozen here (metadata evolvable: "false"); only a person may change it'
            raise InvalidResource(name, [why])
        if here and not self.replace:
            why = f"it is here with other content (version {here}); say that it is to be replaced"
            raise InvalidResource(name, [why])
        if not self.check(ref, here, files, candidate.left_out):
            done.held.append(ref)
            return
        # The version that was looked at: another process may have changed it, which makes `run` try
        # again.
        tx.put(ref, files, expected_version=here)
        (done.updated if here else done.added).append(ref)


def check_history(staging: ImportStaging, ref: Ref) -> tuple[str, ...]:
    """Return the faults of the first unsound change of a resource, () for a sound history.

    The state after each sound change is noted in the staging database. Files that a person's own
    folder may hold are accepted; hostile or unreadable files are refused.
    """
    check = _HistoryCheck(staging, ref)
    for change in staging.changes(ref):
        if faults := tuple(check.step(change)):
            return faults
    return ()


@dataclass
class _HistoryCheck:
    """The state of the resource after the changes seen so far."""

    staging: ImportStaging
    ref: Ref
    state: HeadState = HeadState()
    files: dict[str, File] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def step(self, change: StagedChange) -> Iterator[str]:
        """Yield the faults of a change; after a sound one, the state is the one behind it."""
        intent, state = self.staging.intent(change.operation), self.state
        if intent is None:
            yield f"its operation {change.operation} is missing"
        # The rule of the library that made it; a history that breaks it was not made by this
        # program.
        elif state.frozen and intent.actor is not Actor.HUMAN:
            yield f"{intent.actor} changed it while it was frozen"
        elif change.manifest is not None:
            yield from self._check_version(change, change.manifest, intent)
        elif not _is_move(state, change):
            yield f"after version {state.latest} it points at version {change.after}"
        else:
            self.state = replace(state, version=change.after)
            self.staging.judge(change, CheckedState(state.latest, state.hash, state.frozen))

    def _check_version(
        self, change: StagedChange, manifest: Manifest, intent: Intent
    ) -> Iterator[str]:
        before = self.state
        number = before.latest + 1
        chained = chain_hash(before.hash, number, manifest.tree, intent.digest)
        if change.after != number:
            yield f"after version {before.latest} comes version {change.after}"
        elif change.hash != chained:
            yield f"version {number} does not match its hash"
        # A version equal to the one before it is never written by this program.
        elif manifest.tree == before.tree:
            yield f"version {number} has the content of version {before.latest}"
        else:
            faults = [f"version {number}: {fault}" for fault in self._check_content(manifest)]
            yield from faults
            if not faults:
                self._advance(change, manifest, number)

    def _check_content(self, manifest: Manifest) -> Iterator[str]:
        """Yield the faults of the files of a version, which are read only when all are there."""
        is_complete = True
        for path, entry in manifest.items():
            # By the staged size first: no blob is read of a version that is incomplete.
            if self.staging.size(entry.sha256) != entry.size:
                yield f"{path} is missing or does not match its hash"
                is_complete = False
            elif entry.mode not in (PLAIN, EXECUTABLE):
                yield f"{path} has the mode {entry.mode:o}"
                is_complete = False
        if manifest.size > MAX_RESOURCE:
            yield f"its files have {manifest.size:,} bytes together, the limit is {MAX_RESOURCE:,}"
        elif is_complete:
            self.files = self._read(manifest)
            problems = find_problems(self.ref.kind, self.ref.name, self.files)
            yield from map(str, hostile_problems(problems))

    def _read(self, manifest: Manifest) -> dict[str, File]:
        # Most files of a version are those of its parent.
        data_by_hash = {sha256: self.files[path].data for path, sha256 in self.names.items()}
        files: dict[str, File] = {}
        for path, entry in manifest.items():
            data = data_by_hash.get(entry.sha256)
            data = self.staging.blob(entry.sha256) if data is None else data
            files[path] = File(data, entry.mode)
        return files

    def _advance(self, change: StagedChange, manifest: Manifest, number: int) -> None:
        main = self.files.get(main_path(self.ref.kind, self.ref.name, self.files))
        frozen = main is not None and is_frozen(main.data)
        self.state = HeadState(number, number, manifest.tree, change.hash, frozen)
        # Only these blobs have to be sent to the library with this version.
        fresh = {entry.sha256 for entry in manifest.values()}.difference(self.names.values())
        state = CheckedState(number, change.hash, frozen, tuple(sorted(fresh)))
        self.staging.judge(change, state)
        self.names = {path: entry.sha256 for path, entry in manifest.items()}


def _is_move(state: HeadState, change: StagedChange) -> bool:
    """Return whether a change without a version is a removal or a return, which moves the name."""
    if state.latest == 0 or change.after == state.version:
        return False
    return change.after in (None, state.latest)


def import_json(
    store: Store,
    source: Path | Stream,
    *,
    check: ImportCheck = accept_all,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Import an archive that `export_json` wrote; return a report on each of its resources.

    A history that is here already changes nothing. Of one that continues where this library's ends,
    the rest is appended. Each operation stays one, with its actor, reason, time, session and
    evidence, so that all hashes are equal. A history that diverged, or is unsound, is refused with
    the reason. Everything is appended in one transaction. The ids in `undoes` stay those of the
    library that made the operation.

    The stable channel shows added resources as it did there; resources that were here are shown as
    before. The policy of the channel is imported into a library whose channel never moved. The
    evidence about resources that were not refused is added afterwards, unless it is here already.

    check: decides on a resource by the files of its newest version, where those are not here yet.
    dry_run: only report what would be imported. progress: called with histories checked and all of
    them. Raises InvalidArchive or TooLarge for a file that is no such archive.
    """
    with ImportStaging(store.home) as staging, _open_source(source) as stream:
        reader = ArchiveReader(staging)
        reader.read(stream)
        refs = list(staging.refs())
        checked = {
            ref: check_history(staging, ref) or _check_newest(store, staging, ref, check)
            for ref in track_progress(refs, len(refs), progress)
        }
        sound = [ref for ref, found in checked.items() if not found]
        merge = _HistoryMerge(store, staging, sound)
        # Once without a lock, to find out whether anything is missing here; again under the lock in
        # `operations`.
        merge.compare()
        if (merge.done.added or merge.done.updated) and not dry_run:
            _send_blobs(store, staging)
            # Once more, since the library may change while the blobs are sent.
            merge = _HistoryMerge(store, staging, sound)
            replay(store.backend, merge.operations(), merge.place, at=store.now())
        if not dry_run:
            import_evidence(store, staging.evidence(), merge.agreed_resources())
    merge.done.refused[:0] = [(str(ref), found) for ref, found in checked.items() if found]
    merge.done.looks = list(reader.looks)
    return merge.done


def _check_newest(
    store: Store, staging: ImportStaging, ref: Ref, check: ImportCheck
) -> tuple[str, ...]:
    """Return every reason of `check` against the newest version of a sound history, () for none."""
    newest = [change.manifest for change in staging.changes(ref) if change.manifest is not None][-1]
    head = store.head_or_none(ref)
    # That content is in the library already, so nothing new comes in.
    if head is not None and head.tree == newest.tree:
        return ()
    files = {path: File(staging.blob(entry.sha256), entry.mode) for path, entry in newest.items()}
    try:
        kept_out = not check(ref, (head.version if head else None) or 0, files, ())
    except InvalidResource as error:
        return error.problems
    return ("a person has to look at it first",) if kept_out else ()


@contextlib.contextmanager
def _open_source(source: Path | Stream) -> Iterator[Stream]:
    with contextlib.ExitStack() as files:
        try:
            if isinstance(source, Path):
                source = files.enter_context(open(source, "rb", opener=regular_file))
        except OSError as error:
            why = error.strerror or error
            raise InvalidArchive(
                f"{source} cannot be read: {why}.", "Name another file."
            ) from error
        yield source


def _send_blobs(store: Store, staging: ImportStaging) -> None:
    """Store most blobs of an import in small transactions, so that other writers wait for one only.

    The transaction with the versions stores them once more: until then, gc may delete them.
    """
    for batch in split_batches(staging.missing_blobs(), lambda blob: blob[1]):
        with store.backend.write() as writer:
            for sha256, _ in batch:
                writer.add_blob(*staging.packed_blob(sha256))


@dataclass
class _HistoryMerge:
    """Compares sound histories with the library, and finds the steps that are missing here."""

    store: Store
    staging: ImportStaging
    sound: list[Ref]
    done: ImportReport = field(default_factory=ImportReport)

    def operations(self) -> Iterator[tuple[Intent, Iterator[ReplayStep]]]:
        """Compare, then yield the steps that are missing here, by operation, in the log's order."""
        self.compare()
        rows = self.staging.missing_steps()
        for operation, steps in itertools.groupby(rows, key=lambda row: row[0]):
            yield self._read_intent(operation), (step for _, step in steps)

    def place(self, writer: Writer, operation: int) -> None:
        """Make the moves of the archive's channel for the resources that were added.

        Raises InvalidArchive.
        """
        # A channel that ever moved here keeps its own policy.
        added, untouched = set(self.done.added), self.store.backend.channel.last() == 0
        for note, placed in self.staging.moves():
            states: dict[int, ChannelState] = {}
            for ref, state in placed:
                if ref not in added:
                    continue
                head = writer.head(ref.kind, ref.scope or USER_SCOPE, ref.name)
                if head is not None and (state.version or 0) > head.latest:
                    raise InvalidArchive(
                        f"The archive's channel shows version {state.version} of {ref}, which it "
                        "does not have.",
                        "Nothing was imported; export again.",
                    )
                if head is not None:
                    states[head.id] = state
            policy = note.policy if untouched else None
            writer.add_move(replace(note, operation=operation, policy=policy), states)

    def agreed_resources(self) -> dict[str, tuple[int, int]]:
        """Return ref -> (id, newest version here) of the resources on which archive and library
        agree.
        """
        heads = map(self.store.head_or_none, self.done.accepted)
        return {str(head.ref): (head.id, head.latest) for head in heads if head is not None}

    def _read_intent(self, operation: int) -> Intent:
        intent = self.staging.intent(operation)
        if intent is None:
            raise InvalidArchive(
                f"The archive has no operation {operation}.", "Nothing was imported; export again."
            )
        return intent

    def compare(self) -> None:
        """Note the result for each resource, and mark the changes that are missing here."""
        self.staging.clear_missing()
        for ref in self.sound:
            self._compare(ref)

    def _compare(self, ref: Ref) -> None:
        head = self.store.head_or_none(ref)
        if head is None:
            self.done.added.append(ref)
            self.staging.mark_missing(ref, 0)
            return
        # The hash of the last version that both have covers all before it. Only the moves of the
        # name while that was the newest (a removal, a return) are still to be compared.
        common = min(head.latest, self.staging.latest(ref))
        theirs = self.staging.steps_at(ref, common)
        # Ids of operations differ between libraries, so they are compared by their digests.
        their_steps = [
            (after, chained, self._read_intent(made_by).digest)
            for made_by, after, chained, _ in theirs
        ]
        our_steps = self._list_steps(head, common)
        if head.latest == common and our_steps == their_steps[: len(our_steps)]:
            missing = len(our_steps) < len(theirs) or self.staging.latest(ref) > common
            (self.done.updated if missing else self.done.unchanged).append(ref)
            # Everything after the last step that both libraries have.
            self.staging.mark_missing(ref, theirs[len(our_steps) - 1][3])
        elif self.staging.latest(ref) == common and their_steps == our_steps[: len(their_steps)]:
            self.done.unchanged.append(ref)
        else:
            why = f"its history here went another way at or before version {common}"
            self.done.refused.append((str(ref), (f"{why}; a zip of it brings its newest version",)))

    def _list_steps(self, head: Head, number: int) -> list[tuple[int | None, str, str]]:
        """Return the moves of the name while this version was the newest.

        Each is (version that the name points to, hash of this version, digest of the operation).
        """
        version = self.store.version(head, number)
        steps: list[tuple[int | None, str, str]] = []
        for change in self.store.backend.changes_to(head.id, version.operation - 1):
            # From here on another version is the newest.
            if change.after is not None and change.after > number:
                break
            if steps or change.after == number:
                intent = self.store.operation(change.operation).intent
                steps.append((change.after, version.hash, intent.digest))
        return steps
