"""Import folders that come from elsewhere into the library, by the rules of a person's own, each
whole or not at all.

Checks the history of one resource from an archive: every hash, every step, every file.

Import a JSON archive: append the history that another library has and this one does not, as it
happened there.
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


@dataclass(slots=True)
class ImportReport:
    """What an import did; filled while it runs.

    operation: the one that made all of it; None when nothing changed, and for a JSON archive, whose
    operations come with it. added: new here, or removed before. refused: name or ref -> every
    reason; these were left as they were. held: kept out for now, by the check. looks: what
    `export_json` was given as such, each as JSON.
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
        """Those that are here afterwards as the archive has them."""
        return [*self.added, *self.updated, *self.unchanged]


@dataclass(frozen=True, slots=True)
class ImportCandidate:
    """A folder that may become the resource `name`. `missing`: what was not read of it, and why.

    left_out: paths of what belongs to no resource by its name; that of a folder ends with a slash.
    """

    name: str
    files: Files
    missing: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def resource(self, kind: Kind) -> str:
        """Return the name of the resource that it becomes, as that of a watched folder.

        Empty where nothing is left.
        """
        return self.name if kind is Kind.MEMORY else slugify(self.name)

    def stops(self, kind: Kind) -> list[str]:
        """Return every reason against its content as a resource of this kind."""
        # Without files there is a reason in `missing` already.
        found = (
            blocking_problems(find_problems(kind, self.resource(kind), self.files))
            if self.files
            else []
        )
        why = f"no name can be made of {ascii(self.name)}: put it into a folder, whose name it gets"
        nameless = [] if self.resource(kind) or not self.files else [why]
        return [*self.missing, *nameless, *map(str, found)]


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
    """Return whether the file at `path` makes its folder a resource; in any case, so that a wrong
    one is reported.
    """
    folder, _, name = path.rpartition("/")
    return name.casefold() == main_file(kind, folder.rpartition("/")[2]).casefold()


@dataclass(frozen=True, slots=True)
class FolderImport:
    """An import of folders as resources of one kind in one scope.

    replace: a resource that is here with other content gets a new version; otherwise it is refused.
    check: may keep one out.
    """

    store: Store
    kind: Kind
    scope: str
    reason: str
    replace: bool = False
    check: ImportCheck = accept_all

    def run(self, read: Callable[[], Iterable[ImportCandidate]]) -> ImportReport:
        """Return the report on the candidates; those that are imported make one operation of
        Actor.IMPORT.

        read: gives the candidates; called again when another process changes one of them here
        meanwhile.
        """
        for attempt in range(_TRIES):
            try:
                return self._try(read())
            except (VersionConflict, Frozen):
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError

    def _try(self, candidates: Iterable[ImportCandidate]) -> ImportReport:
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
        """Sort one candidate and put it if need be.

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
    """Return what is wrong with the first unsound change of a resource, () when its history is
    sound.

    What was found is noted with every change. Files are checked leniently: what a person's own
    folder may hold, a library may move with all its versions; hostile or unreadable files are
    refused everywhere.
    """
    check = _HistoryCheck(staging, ref)
    for change in staging.changes(ref):
        found = tuple(check.step(change))
        if found:
            return found
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
        """Yield what is wrong with the change.

        After a sound one, the state is the one behind it.
        """
        intent, state = self.staging.intent(change.operation), self.state
        if intent is None:
            yield f"its operation {change.operation} is missing"
        # The rule of the library that made it; a history that breaks it was not made by this
        # program.
        elif state.frozen and intent.actor is not Actor.HUMAN:
            yield f"{intent.actor} changed it while it was frozen"
        elif change.manifest is not None:
            yield from self._new_version(change, change.manifest, intent)
        # A change without a new version is a removal or a return, and each has to move the name.
        elif (
            state.latest == 0
            or change.after == state.version
            or change.after not in (None, state.latest)
        ):
            yield f"after version {state.latest} it points at version {change.after}"
        else:
            self.state = replace(state, version=change.after)
            self.staging.judge(change, CheckedState(state.latest, state.hash, state.frozen))

    def _new_version(
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
            found = [f"version {number}: {problem}" for problem in self._content(manifest)]
            yield from found
            if not found:
                self._advance(change, manifest, number)

    def _content(self, manifest: Manifest) -> Iterator[str]:
        """Yield what is wrong with the files of a version.

        Read them only when they are all there.
        """
        found = False
        for path, entry in manifest.items():
            # By the staged size first: no blob is read of a version that is incomplete.
            if self.staging.size(entry.sha256) != entry.size:
                yield f"{path} is missing or does not match its hash"
                found = True
            elif entry.mode not in (PLAIN, EXECUTABLE):
                yield f"{path} has the mode {entry.mode:o}"
                found = True
        if manifest.size > MAX_RESOURCE:
            yield f"its files have {manifest.size:,} bytes together, the limit is {MAX_RESOURCE:,}"
        elif not found:
            self.files = self._read(manifest)
            problems = find_problems(self.ref.kind, self.ref.name, self.files)
            yield from map(str, hostile_problems(problems))

    def _read(self, manifest: Manifest) -> dict[str, File]:
        # Most files of a version are those of its parent.
        data_by_hash = {sha256: self.files[path].data for path, sha256 in self.names.items()}
        return {
            path: File(
                data_by_hash[e.sha256] if e.sha256 in data_by_hash else self.staging.blob(e.sha256),
                e.mode,
            )
            for path, e in manifest.items()
        }

    def _advance(self, change: StagedChange, manifest: Manifest, number: int) -> None:
        main = self.files.get(main_path(self.ref.kind, self.ref.name, self.files))
        frozen = main is not None and is_frozen(main.data)
        self.state = HeadState(number, number, manifest.tree, change.hash, frozen)
        # Only these have to be sent to the library with this version.
        fresh = {entry.sha256 for entry in manifest.values()}.difference(self.names.values())
        self.staging.judge(
            change,
            CheckedState(number, change.hash, frozen, tuple(sorted(fresh))),
        )
        self.names = {path: entry.sha256 for path, entry in manifest.items()}


def import_json(
    store: Store,
    source: Path | Stream,
    *,
    check: ImportCheck = accept_all,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Return what became of each resource of an archive that `export_json` wrote.

    A history that is ours: nothing. One that goes on where ours ends: the rest is appended, each
    operation as an operation of its own with its actor, reason, time, session and evidence, so that
    all hashes are equal. One that went another way, or is unsound: refused with the reason, and
    left alone. All that is appended is appended in one step, or nothing. What `undoes` says of an
    operation are ids of the library that made it. The stable channel shows what was added as it was
    shown there; of what was here, hosts go on seeing what they saw. The policy comes along into a
    library whose channel never moved. The evidence about what was not refused is added afterwards,
    as far as it is not here. check: refuses a resource by what its newest version holds, where that
    is not here yet. dry_run: only say what would be imported. progress: called with histories
    checked and all of them. Raises InvalidArchive or TooLarge for what is not an archive.
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
        # Once without a lock, to see whether there is anything to bring; again under the lock in
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
    """Return every reason of `check` against the newest version of a sound history, ()
    without any.
    """
    newest = [change.manifest for change in staging.changes(ref) if change.manifest is not None][-1]
    head = store.head_or_none(ref)
    # That content is in the library already, so nothing new comes in.
    if head is not None and head.tree == newest.tree:
        return ()
    files = {
        path: File(
            staging.blob(entry.sha256),
            entry.mode,
        )
        for path, entry in newest.items()
    }
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
    """Bring the bulk of an import in by small steps, so that others do not wait for it.

    The steps that name the blobs bring them once more: until then, gc may remove them.
    """
    for batch in split_batches(staging.missing_blobs(), lambda blob: blob[1]):
        with store.backend.write() as writer:
            for sha256, _ in batch:
                writer.add_blob(*staging.packed_blob(sha256))


@dataclass
class _HistoryMerge:
    """The comparison of sound histories with the library, which finds the steps that are missing
    here.
    """

    store: Store
    staging: ImportStaging
    sound: list[Ref]
    done: ImportReport = field(default_factory=ImportReport)

    def operations(self) -> Iterator[tuple[Intent, Iterator[ReplayStep]]]:
        """Yield the steps that are missing here, by operation, in the order of the archive's log;
        compare first.
        """
        self.compare()
        for operation, steps in itertools.groupby(
            self.staging.missing_steps(), key=lambda row: row[0]
        ):
            yield self._intent(operation), (step for _, step in steps)

    def place(self, writer: Writer, operation: int) -> None:
        """Make the moves of the archive's channel for the resources that were added.

        Raises InvalidArchive.
        """
        # A channel that ever moved here keeps its own policy.
        added, untouched = set(self.done.added), self.store.backend.channel.last() == 0
        for note, placed in self.staging.moves():
            states: dict[int, ChannelState] = {}
            for ref, state in placed:
                head = (
                    writer.head(ref.kind, ref.scope or USER_SCOPE, ref.name)
                    if ref in added
                    else None
                )
                if head is not None and (state.version or 0) > head.latest:
                    raise InvalidArchive(
                        f"The archive's channel shows version {state.version} of {ref}, which it "
                        "does not have.",
                        "Nothing was imported; export again.",
                    )
                if head is not None:
                    states[head.id] = state
            writer.add_move(
                replace(note, operation=operation, policy=note.policy if untouched else None),
                states,
            )

    def agreed_resources(self) -> dict[str, tuple[int, int]]:
        """Return ref -> (id, newest version here) of the resources on which archive and library
        agree.
        """
        heads = map(self.store.head_or_none, self.done.accepted)
        return {str(head.ref): (head.id, head.latest) for head in heads if head is not None}

    def _intent(self, operation: int) -> Intent:
        intent = self.staging.intent(operation)
        if intent is None:
            raise InvalidArchive(
                f"The archive has no operation {operation}.", "Nothing was imported; export again."
            )
        return intent

    def compare(self) -> None:
        """Sort the resources by their result, and mark in the staging the changes that are missing
        here.
        """
        self.staging.clear_missing()
        for ref in self.sound:
            self._compare(ref)

    def _compare(self, ref: Ref) -> None:
        head = self.store.head_or_none(ref)
        if head is None:
            self.done.added.append(ref)
            self.staging.mark_missing(ref, 0)
            return
        # The hash of the last version that both have covers all before it; what is left to compare
        # is where the name pointed while that was the newest (a removal, a return).
        common = min(head.latest, self.staging.latest(ref))
        theirs = self.staging.steps_at(ref, common)
        # Ids of operations differ between libraries, so they are compared by their digests.
        their_steps = [
            (after, chained, self._intent(made_by).digest) for made_by, after, chained, _ in theirs
        ]
        our_steps = self._steps_at(head, common)
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

    def _steps_at(self, head: Head, number: int) -> list[tuple[int | None, str, str]]:
        """Return where the name pointed while this version was the newest: (version, its hash,
        operation digest).
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
