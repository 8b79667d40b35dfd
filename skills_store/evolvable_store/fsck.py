"""Check a whole library while other processes use it: the file, all hashes, chains and the log."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

from evolvable_store.errors import EvolvableError
from evolvable_store.frontmatter import is_frozen
from evolvable_store.objects import TOMBSTONES, Manifest, TreeEntry, blob_hash, chain_hash, unpack
from evolvable_store.operation import HeadState, Operation
from evolvable_store.resource import Kind, Ref
from evolvable_store.store import Store
from evolvable_store.validation import main_path

# Bounds the report and the memory of a check that meets garbage in every row.
MAX_FAULTS = 1000
"""A library with more faults than this is lost; the check ends there."""

_RESTORE = "`evolvable backup restore FOLDER` restores the last `evolvable backup create`."
_EXPORT = f"{_RESTORE} Or `evolvable export` the sound resources into a new library."
# Each batch is a read of its own: a long one would keep the write-ahead log from being folded in.
_BATCH = 200
"""Rows that are read at once."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: what is wrong, with which part of the library, and the next step to take."""

    what: str
    which: str
    next: str = _RESTORE

    def __str__(self) -> str:
        return f"{self.which}: {self.what}. {self.next}"


@dataclass(frozen=True, slots=True)
class FsckReport:
    """The numbers of checked rows and every fault; a sound library has none."""

    blobs: int
    versions: int
    operations: int
    resources: int
    faults: tuple[Fault, ...]


Progress = Callable[[int, int], None]
"""Called after each batch with the rows done, and all rows."""

Check = Callable[[Store], Iterable[Fault]]
"""A further check, such as whether an index is up to date."""


def check_library(
    store: Store, progress: Progress | None = None, checks: Sequence[Check] = ()
) -> FsckReport:
    """Check everything in the library as it was when the check began; return a report.

    checks: further ones. Never raises for damage. Holds no lock and little memory: the log only
    grows, so it is read up to its present end in short steps. No hash covers the text of an
    operation that made no version, of a move of the channel, nor old `frozen` flags.
    """
    run = _LibraryCheck(store, progress)
    further: list[Callable[[], None]] = [partial(run.extra, check) for check in checks]
    parts = [run.file, run.blobs, run.log, run.histories, run.channel, run.evidence, *further]
    for part in parts:
        run.attempt(part)
    return FsckReport(**run.counts, faults=run.faults)


class _TooMany(Exception):
    """Ends a part of the check at MAX_FAULTS."""


@dataclass
class _History:
    """The state of one resource's history after the rows that were read so far.

    sequence: of the last row. entries: the files of the newest version.
    """

    ref: str
    kind: str
    name: str
    sequence: int = 0
    state: HeadState = HeadState()
    entries: dict[str, TreeEntry] = field(default_factory=dict)


class _Row(NamedTuple):
    """One row of a resource's history, as the database has it."""

    latest: int
    sequence: int
    operation: int
    before: int | None
    after: int | None
    tree: str
    hash: str
    frozen: int
    manifest: str | None


class _LibraryCheck:
    def __init__(self, store: Store, progress: Progress | None) -> None:
        self._store, self._progress = store, progress or (lambda done, total: None)
        self._rows = store.backend.maintenance
        self._faults: dict[Fault, None] = {}
        self.counts = {"blobs": 0, "versions": 0, "operations": 0, "resources": 0}
        self._done = self._total = self._end = 0
        # Versions of one operation follow each other in the log: nearly every read after the first
        # is of the same few.
        self._operation = lru_cache(maxsize=256)(self._read_operation)

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(self._faults)

    def attempt(self, part: Callable[[], None]) -> None:
        """Run one part; damage that keeps it from going on is one more fault."""
        if len(self._faults) >= MAX_FAULTS:
            return
        try:
            part()
        except _TooMany:
            return
        # Damage gives values of any type.
        except (EvolvableError, TypeError, ValueError, AttributeError) as error:
            fault = Fault(f"it cannot be read on ({error})", self._store.backend.where)
            self._faults[fault] = None

    def extra(self, check: Check) -> None:
        """Add the faults that a further check finds."""
        # An index or a signature is checked by its owner: this module knows the tables alone.
        for fault in check(self._store):
            self._add(fault)

    def file(self) -> None:
        """Check the file by the means of SQLite itself."""
        path = self._store.backend.where
        for text in self._rows.file_faults():
            self._report(f"SQLite finds it damaged ({text})", path)
        # The end is fixed here: rows that others append during the check are left to the next one.
        extent = self._rows.extent()
        self._end, self._total = extent.end, extent.rows
        if extent.claimed > extent.end:
            self._report(
                f"it ends with change {extent.end}, the operations go on to {extent.claimed}",
                "the log",
            )

    def blobs(self) -> None:
        """Check every blob against its name and its size."""
        for identity, sha256, size, codec in self._read_batches(self._rows.blobs_after, 0):
            # One by one: each may have megabytes. A blob that is collected meanwhile was
            # unreferenced.
            data = self._rows.packed_by_id(identity)
            if data is not None:
                self._check_blob(f"blob {sha256[:12]}", sha256, size, codec, data)

    def _check_blob(self, which: str, sha256: str, size: int, codec: str, data: bytes) -> None:
        self.counts["blobs"] += 1
        if codec not in ("zlib", "raw", *TOMBSTONES):
            self._report(f"its codec {codec!r} is unknown", which)
            return
        try:
            content = unpack(data, codec)
        except zlib.error as error:
            self._report(f"it cannot be unpacked ({error})", which, _EXPORT)
            return
        if codec in TOMBSTONES:
            return  # its bytes are gone for good, and the record of who took them out was read
        if blob_hash(content) != sha256:
            self._report("its bytes do not match its hash", which, _EXPORT)
        elif len(content) != size:
            self._report(f"it has {len(content)} bytes, its record says {size}", which)

    def log(self) -> None:
        """Check that sequences have no gaps and that every change is in exactly one operation."""
        # Two sorted streams, changes and operations, are merged, so that neither is held in memory.
        owners = self._read_owners()
        due, owner = 1, next(owners, None)
        changes = self._read_batches(self._bound_read(self._rows.changes_after), 0)
        for sequence, operation, has_resource in changes:
            if sequence != due:
                self._report(
                    "it is missing from the log",
                    f"change {due}" + (f" to {sequence - 1}" * (sequence > due + 1)),
                )
            while owner is not None and owner[1] < sequence:
                owner = next(owners, None)
            if owner is None or not owner[0] <= sequence <= owner[1]:
                self._report("no operation made it", f"change {sequence}")
            elif owner[0] != operation:
                self._report(
                    f"it names operation {operation} and lies in operation {owner[0]}",
                    f"change {sequence}",
                )
            if not has_resource:
                self._report("it belongs to no resource", f"change {sequence}")
            due = sequence + 1
        # Reading on to the end finds the faults of operations behind the last change.
        for _ in owners:
            pass

    def _read_owners(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last change of every operation, and report faults of operations."""
        due = 1
        for first, last in self._read_batches(self._bound_read(self._rows.operations_after), 0):
            self.counts["operations"] += 1
            which = f"operation {first}"
            if first < due:
                self._report(f"it begins before the last one ends (at change {due - 1})", which)
            elif first > due:
                self._report("no operation holds them", f"changes {due} to {first - 1}")
            if not first <= last <= self._end:
                self._report(f"its last change is {last}, the log ends at {self._end}", which)
                # A wrong end would otherwise hide every gap behind it.
                last = first
            if isinstance(self._operation(first), str):
                self._report(f"it cannot be read ({self._operation(first)})", which)
            due = last + 1
            yield first, last
        if due <= self._end:
            self._report("no operation holds them", f"changes {due} to {self._end}")

    def histories(self) -> None:
        """Check every resource's rows in the order in which the last one makes its head."""
        resources = self._read_batches(self._rows.resources_after, 0, count=False)
        for identity, kind, scope, name in resources:
            self.counts["resources"] += 1
            self._check_history(identity, _History(_format_ref(kind, scope, name), kind, name))

    def _check_history(self, identity: int, history: _History) -> None:
        # A ref cannot be made of an unknown kind, and every check after this one makes refs.
        if history.kind not in set(Kind):
            self._report(f"there is no kind {history.kind!r}", history.ref)
            return

        read = self._bound_read(partial(self._rows.history_after, identity))
        for row in self._read_batches(read, (-1, 0)):
            self._check_row(history, _Row(*row))
        if history.sequence:
            self._check_frozen(history)
        elif not self._rows.has_history(identity):
            self._report("it has a name and no history", history.ref)

    def _check_row(self, was: _History, row: _Row) -> None:
        which, state = f"change {row.sequence} of {was.ref}", was.state
        # Heads are found by the last row, so an order that differs from the log moves a name.
        if row.sequence < was.sequence:
            self._report(
                f"it stands after change {was.sequence}, so the head is not the last change", which
            )
        if row.before != state.version:
            self._report(
                f"it says that it followed version {row.before}, that was {state.version}", which
            )
        if row.after not in (row.latest, None):
            self._report(f"it points at version {row.after}, the newest is {row.latest}", which)
        if row.manifest is not None:
            self._check_version(was, row, row.manifest)
            if row.after is None:
                self._report("it makes a version and points nowhere", which)
        # A removal or a return repeats the newest version's number, tree and hash.
        elif (row.latest, row.tree, row.hash) != (state.latest, state.tree, state.hash):
            self._report(
                f"it names version {row.latest} and makes none; the newest is {state.latest}", which
            )
        was.sequence = row.sequence
        was.state = HeadState(row.after, row.latest, row.tree, row.hash, row.frozen == 1)

    def _check_version(self, was: _History, row: _Row, manifest: str) -> None:
        self.counts["versions"] += 1
        which = f"{was.ref}@{row.latest}"
        if row.latest != was.state.latest + 1:
            self._report(f"the version before it is {was.state.latest or 'missing'}", which)
        made_by = self._operation(row.operation)
        if not isinstance(made_by, Operation):
            self._report(f"its operation {row.operation} cannot be read ({made_by})", which)
        elif chain_hash(was.state.hash, row.latest, row.tree, made_by.intent.digest) != row.hash:
            self._report("its hash does not follow from its parent, content and operation", which)
        entries = self._read_entries(which, row.tree, manifest)
        # Of the files that its parent has too, the blobs were looked for already.
        for path, entry in entries.items():
            if was.entries.get(path) != entry:
                self._check_entry(f"{which} {path}", entry)
        was.entries = entries

    def _read_entries(self, which: str, tree: str, manifest: str) -> dict[str, TreeEntry]:
        try:
            parsed = Manifest.from_json(manifest)
            if parsed.tree != tree:
                self._report("its list of files does not match its hash", which)
        except (ValueError, TypeError, AttributeError) as error:
            self._report(f"its list of files cannot be read ({error})", which)
            return {}
        return dict(parsed)

    def _check_entry(self, which: str, entry: TreeEntry) -> None:
        size = self._rows.blob_size(entry.sha256)
        if size is None:
            self._report(f"its blob {entry.sha256[:12]} is missing", which, _EXPORT)
        elif size != entry.size:
            self._report(f"it says {entry.size} bytes, its blob {size}", which)

    def channel(self) -> None:
        """Check every move of the stable channel, and every version that it shows."""
        for which, what in self._store.backend.channel.faults():
            self._report(what, f"the channel's {which}")

    def evidence(self) -> None:
        """Check that records of evidence name versions that exist and use known outcomes."""
        for which, what in self._store.backend.observations.faults():
            self._report(what, f"the evidence's {which}")

    def _check_frozen(self, head: _History) -> None:
        entry = head.entries.get(main_path(Kind(head.kind), head.name, head.entries))
        packed = self._rows.packed_blob(entry.sha256) if entry else None
        try:
            if packed and packed[1] in TOMBSTONES:
                return  # the tombstone need not say what the purged bytes said
            says = packed is not None and is_frozen(unpack(*packed))
        except zlib.error:
            return  # found with the blobs
        if says != head.state.frozen and (packed or not entry):
            self._report(
                f"its record says that it is {'' if head.state.frozen else 'not '}frozen, its "
                "main file the opposite",
                head.ref,
                "Save its main file once more with another text.",
            )

    def _read_operation(self, identity: int) -> Operation | str:
        try:
            return self._store.backend.operation(identity) or "it is missing"
        except (ValueError, TypeError, EvolvableError) as error:
            return str(error)

    def _bound_read(
        self, read: Callable[[Any, int, int], list[Any]]
    ) -> Callable[[Any, int], list[Any]]:
        """Return a read that ends where the log ended when the check began."""
        return lambda after, limit: read(after, self._end, limit)

    def _read_batches(
        self, read: Callable[[Any, int], list[Any]], after: Any, *, count: bool = True
    ) -> Iterator[Any]:
        """Yield the rows that `read` returns in batches.

        after: the key, or the two keys, after which the first batch begins. count: whether the rows
        count for the progress.
        """
        while rows := read(after, _BATCH):
            yield from rows
            last = rows[-1][:2] if isinstance(after, tuple) else rows[-1][0]
            # A damaged index can return the same key forever; the check has to end.
            if last <= after:
                raise ValueError(f"its rows are out of order: {last} after {after}")
            after = last
            self._done += len(rows) * count
            self._progress(min(self._done, self._total), self._total)

    def _report(self, what: str, which: str, next: str = _RESTORE) -> None:
        self._add(Fault(what, which, next))

    def _add(self, fault: Fault) -> None:
        self._faults[fault] = None
        if len(self._faults) >= MAX_FAULTS:
            raise _TooMany


def _format_ref(kind: str, scope: str, name: str) -> str:
    return str(Ref(Kind(kind), name, scope)) if kind in set(Kind) else f"{kind}:{scope}/{name}"
