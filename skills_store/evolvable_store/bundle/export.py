"""Export resources as one JSON archive, and copy a whole library as a backup.

All exports choose resources by `select_heads`, and write a file that appears whole or not at all.

The evidence in a JSON archive, each record with the ref that it is about:

    {"type": "shown", "ref", "version", "at", "search", "session"}
    {"type": "use", "ref", "version", "at", "id", "search", "session"}
    {"type": "outcome", "ref", "version", "at", "use", "outcome", "usage", "task_type", "evidence",
     "session"}
    {"type": "sighting", "ref", "version", "at", "session", "model", "loaded", "used", "how",
     "outcome", "signals"}
    {"type": "taken", "session", "client", "digest", "spans", "at", "model", "outcome", "signals"}

A `taken` stands for a whole session, so only an export of the whole library has them. The author of
an archive can forge its evidence, so an import keeps it as history and counts none of it.

The JSON archive has resources with every version, operation and file:

    {"format": "evolvable-history", "version": 1,
     "operations": [{"id", "at", "actor", "reason", "session", "evidence", "undoes"}, ...],
     "changes": [{"operation", "ref", "after", "hash", "files": {path: [sha256, size, mode]}}, ...],
     "blobs": [{"sha256", "text" or "base64", "purged"?: {"at", "actor", "reason", "kind",
                                                                   "size"}}, ...],
     "channel": [{"at", "actor", "reason", "session", "policy",
                  "placed": [[ref, version or null, withdrawn]]}, ...],
     "evidence": [...],
     "looks": [...]}

Changes stand in the order of the log. Those that made no version (a removal, a return) have neither
hash nor files. Ids are those of the exporting library; the version hashes do not cover them.
`looks` are records of a caller, which the import returns as they are.

A backup copies a whole library into another folder while other processes write to it.
"""

import base64
import contextlib
import errno
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from types import NoneType
from typing import IO, Any

from evolvable_store.errors import InvalidArgument, LibraryCorrupt, LibraryError, LibraryFull
from evolvable_store.objects import blob_hash
from evolvable_store.operation import Change, Head
from evolvable_store.paths import CARRIED_PLACES, LIBRARY_FILE
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.storage import Outcome, Placement, Usage, carry_places, parse_signals
from evolvable_store.store import Store
from evolvable_store.workingcopy import PROJECTS_FILE as PROJECTS_FILE
from evolvable_store.workingcopy import copy_projects, sync_folder

Stream = IO[bytes]


@contextlib.contextmanager
def disk_errors(target: Path, instead: str) -> Iterator[None]:
    """Turn an OSError about the target into LibraryError.

    instead: the noun of the hint, such as "file".
    """
    try:
        yield
    except OSError as error:
        kind = LibraryFull if error.errno == errno.ENOSPC else LibraryError
        raise kind(
            f"{target} cannot be written: {error.strerror or error}.", f"Name another {instead}."
        ) from error


@contextlib.contextmanager
def open_atomic(target: Path | Stream) -> Iterator[Stream]:
    """Yield a stream to write to.

    A file at the path is replaced once all is written and on the disk. Raises LibraryError when the
    file cannot be written.
    """
    if not isinstance(target, Path):
        yield target
        return
    with disk_errors(target, "file"):
        # In the folder of the target: os.replace over another file system is not atomic.
        handle, name = tempfile.mkstemp(
            prefix=f".{target.name}.", suffix=".part", dir=target.parent
        )
        draft = Path(name)
        try:
            with open(handle, "w+b") as stream:
                yield stream
                stream.flush()
                # Before the rename: otherwise a power cut can leave the new name with no bytes.
                os.fsync(stream.fileno())
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)
        # The rename itself is on the disk only when the folder is.
        sync_folder(target.parent)


def select_heads(store: Store, refs: Iterable[Ref] | None) -> list[Head]:
    """Return the living heads that `refs` name, ordered by name.

    By default they are all skills of the user's scope. Raises NoSuchResource, and InvalidArgument
    when two would get one folder.
    """
    if refs is None:
        return store.heads(Kind.SKILL, USER_SCOPE)
    heads = {head.id: head for head in map(store.head, refs)}
    by_name: dict[str, Head] = {}
    for head in heads.values():
        # Folded: two folders that differ by case are one on Windows and macOS.
        twin = by_name.setdefault(head.name.casefold(), head)
        if twin is not head:
            raise InvalidArgument(
                f"{twin.ref} and {head.ref} would share one folder.", "Export them one by one."
            )
    return [by_name[name] for name in sorted(by_name)]


def shape(
    texts: str = "", maybe: str = "", numbers: str = "", lists: str = ""
) -> dict[str, tuple[type, ...]]:
    """Return the types that the fields of a record may have, in this order."""
    groups: list[tuple[str, tuple[type, ...]]] = [
        (texts, (str,)),
        (maybe, (str, NoneType)),
        (numbers, (int,)),
        (lists, (list,)),
    ]
    fields: dict[str, tuple[type, ...]] = {}
    for names, types in groups:
        fields |= dict.fromkeys(names.split(), types)
    return fields


SHAPES = {
    "shown": shape("ref at search", "session", "version"),
    "use": shape("ref at id", "search session", "version"),
    "outcome": shape("ref at outcome", "use usage task_type evidence session", "version"),
    "sighting": shape("ref at session how signals", "model outcome", "version loaded used"),
    "taken": shape("session client digest at signals", "model outcome", "spans"),
}
"""Every type of record, with the types of its fields.

All fields but `ref` are columns of its table.
"""

# Enough to make the cost of a query small, few enough to stay in memory.
_BATCH = 500
"""Rows that are read or written at once."""


def export_evidence(
    store: Store, latest: Mapping[Ref, int], *, whole: bool
) -> Iterator[dict[str, Any]]:
    """Yield the evidence in an order that is the same each time.

    latest: the newest version of each resource that it may be about. whole: whether these are all
    resources of the library.
    """
    for kind, shape in SHAPES.items():
        # A session may be about resources that this export leaves out.
        if kind == "taken" and not whole:
            return
        columns = [field for field in shape if field != "ref"]
        for ref, values in store.backend.evidence.export_rows(kind, columns):
            record: dict[str, Any] = {"type": kind}
            if ref is not None:
                # Evidence of a version that was made after the export began.
                if values[columns.index("version")] > latest.get(ref, 0):
                    continue
                record["ref"] = str(ref)
            yield record | dict(zip(columns, values, strict=True))


def is_valid_record(record: Mapping[str, Any]) -> bool:
    """Return whether the words in a record of the right shape are known."""
    outcome, usage = record.get("outcome"), record.get("usage")
    if outcome not in {None, *Outcome} or usage not in {None, *Usage}:
        return False
    try:
        parse_signals(record.get("signals", "[]"))
    # An archive is hostile: brackets without end exceed the stack of the JSON parser.
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
    return True


def import_evidence(
    store: Store, records: Iterable[Mapping[str, Any]], resources: Mapping[str, tuple[int, int]]
) -> None:
    """Add the evidence that is not here yet, as history that counts nothing.

    resources: ref -> (id, newest version) of the resources that it may be about.

    Records that are here already stay as they are, so importing the same archive again changes
    nothing.
    """
    rows = (row for record in records if (row := _make_evidence_row(record, resources)))
    while batch := list(itertools.islice(rows, _BATCH)):
        store.backend.evidence.import_rows(batch)


def _make_evidence_row(
    record: Mapping[str, Any], resources: Mapping[str, tuple[int, int]]
) -> tuple[str, dict[str, Any]] | None:
    table = record["type"]  # one of SHAPES
    row = {field: record[field] for field in SHAPES[table] if field != "ref"} | {"origin": "import"}
    if "ref" in SHAPES[table]:
        row["resource"], latest = resources.get(record["ref"], (0, 0))
        if not 1 <= record["version"] <= latest:
            return None
    return table, row


FORMAT, FORMAT_VERSION = "evolvable-history", 1
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def export_json(
    store: Store,
    target: Path | Stream,
    refs: Iterable[Ref] | None = None,
    looks: Iterable[Mapping[str, Any]] = (),
    *,
    without: Collection[Ref] = (),
) -> tuple[Ref, ...]:
    """Write resources as a JSON archive, by default all with the removed ones; return them.

    looks: records of the caller that go along. without: resources that are not written.

    The document is the library as it was when the export began. A stream is written to and not
    closed. Raises NoSuchResource, LibraryCorrupt, LibraryError when the file cannot be written.
    """
    # store.head raises NoSuchResource; a removed resource has a head too.
    wanted_refs: set[Ref] | None = None
    if refs is not None:
        wanted_refs = {(store.head_or_none(ref) or store.head(ref)).ref for ref in refs}
    export = _Export(store, wanted_refs, frozenset(without))
    with open_atomic(target) as stream:
        stream.write(f'{{"format":"{FORMAT}","version":{FORMAT_VERSION}'.encode("ascii"))
        for name, records in (
            ("operations", export.operations()),
            ("changes", export.changes()),
            ("blobs", export.blobs()),
            ("channel", export.channel()),
            ("evidence", export.evidence()),
            ("looks", looks),
        ):
            _write_list(stream, name, records)
        stream.write(b"\n}\n")
    return tuple(sorted(export.latest, key=str))


def _write_list(stream: Stream, name: str, records: Iterable[Any]) -> None:
    stream.write(f',\n"{name}":['.encode("ascii"))
    separator = b"\n"
    for record in records:
        stream.write(separator + _to_json(record).encode("utf-8"))
        separator = b",\n"
    stream.write(b"\n]")


class _Export:
    """The records of one archive, each list read as it is written.

    refs: the resources that are written, None for all. latest: the newest version of each, complete
    once `changes` was read.
    """

    def __init__(self, store: Store, refs: set[Ref] | None, without: frozenset[Ref]) -> None:
        self._store, self._refs, self._without = store, refs, without
        # In this order: what a move placed is in the log by then.
        self._channel = store.backend.channel
        self._last_move = self._channel.last()
        self._end = store.sequence()
        self._id = lru_cache(maxsize=None)(self._read_id)
        # A dict keeps the order of the log and each name once; 32 bytes a name instead of 64.
        self._blobs: dict[bytes, None] = {}
        self.latest: dict[Ref, int] = {}

    def operations(self) -> Iterator[Any]:
        last_id = 0
        for change in self._read_log():
            # Changes of one operation follow each other in the log.
            if change.operation != last_id:
                last_id = change.operation
                fields = asdict(self._store.operation(last_id).intent)
                # Of an older version, which does not know these fields.
                if fields["principal"] is None:
                    del fields["principal"], fields["via"]
                yield {"id": last_id, **fields}

    def changes(self) -> Iterator[Any]:
        """Yield every change, and note which blobs they need."""
        for change in self._read_log():
            record = {"operation": change.operation, "ref": str(change.ref), "after": change.after}
            latest = self.latest.get(change.ref, 0)
            # Only a number that is new makes a version; a lower one is a return to an older
            # version.
            if change.after is not None and change.after > latest:
                self.latest[change.ref] = change.after
                record |= self._make_version_record(change, change.after)
            yield record

    def _make_version_record(self, change: Change, number: int) -> dict[str, Any]:
        identity = self._id(change.ref)
        version = self._store.backend.version(identity, number)
        manifest = self._store.backend.manifest(identity, number)
        if version is None or manifest is None:
            raise LibraryCorrupt(
                f"{change.ref.at(number)} is missing.", "Run `evolvable care fsck`."
            )
        self._blobs.update((bytes.fromhex(entry.sha256), None) for entry in manifest.values())
        return {
            "hash": version.hash,
            "files": {path: (e.sha256, e.size, e.mode) for path, e in manifest.items()},
        }

    def blobs(self) -> Iterator[Any]:
        """Yield once each blob that the changes need, as text where it is UTF-8."""
        for name in self._blobs:
            # One at a time: all blobs together can exceed the memory.
            data = self._store.blob(name.hex())
            record = {"sha256": name.hex(), **self._make_purge_record(name.hex(), data)}
            try:
                yield record | {"text": data.decode("utf-8")}
            except UnicodeDecodeError:
                yield record | {"base64": base64.b64encode(data).decode("ascii")}

    def _make_purge_record(self, sha256: str, data: bytes) -> dict[str, Any]:
        """Return the field with the purge of a blob, {} for a blob that has its bytes."""
        if blob_hash(data) == sha256:
            return {}
        purged = self._store.backend.purges.tombstone(sha256)
        if purged is None:
            return {}
        stone, size = purged
        purge = {
            "at": stone.at,
            "actor": stone.actor,
            "reason": stone.reason,
            "kind": stone.kind,
            "size": size,
        }
        return {"purged": purge}

    def channel(self) -> Iterator[Any]:
        """Yield every move of the stable channel, with its placings of the exported resources."""
        # Up to the move that was the last when the export began, oldest first.
        moves = self._channel.moves(self._last_move, below=self._last_move + 1)[::-1]
        placed: dict[int, list[Placement]] = {}
        for placing in self._channel.placings([move.id for move in moves]):
            if self._is_exported(placing.ref):
                placed.setdefault(placing.move, []).append(placing)
        for move in moves:
            note, rows = move.note, placed.get(move.id, [])
            if rows or (note.policy and self._refs is None):
                record = {
                    "at": note.at,
                    "actor": note.actor,
                    "reason": note.reason,
                    "session": note.session,
                }
                placed_rows = [(str(row.ref), row.after, row.withdrawn) for row in rows]
                yield record | {"policy": note.policy, "placed": placed_rows}

    def evidence(self) -> Iterator[Any]:
        """Yield the evidence about the versions that are written."""
        yield from export_evidence(self._store, self.latest, whole=self._refs is None)

    def _read_log(self) -> Iterator[Change]:
        after = 0
        while after < self._end:
            changes = self._store.changes(after, _BATCH)
            if not changes:
                return
            after = changes[-1].sequence
            for change in changes:
                if change.sequence <= self._end and self._is_exported(change.ref):
                    yield change

    def _is_exported(self, ref: Ref) -> bool:
        return (self._refs is None or ref in self._refs) and ref not in self._without

    def _read_id(self, ref: Ref) -> int:
        return (self._store.head_or_none(ref) or self._store.head(ref)).id


_LOG_SUFFIXES = ("-wal", "-shm", "-journal")

# The name is part of the format: `evolvable backup restore` looks for it.
BESIDE = "evolve"
"""The folder of a backup with the files of the caller: lists of JSON lines, and their locks."""


def backup(
    store: Store,
    target: Path,
    progress: Callable[[int, int], None] | None = None,
    *,
    replace: bool = False,
    beside: Callable[[], Mapping[str, bytes]] = dict,
) -> Path:
    """Make `target` a folder with the library as it was when the backup began; return it.

    The projects and the watched folders of this machine lie beside the library.
    `Store.open(target)` opens it; it watches no folder until one is added again. The backup appears
    whole or not at all, checked, and is on the disk when this returns. progress: called with pages
    copied and all pages. replace: whether an older backup at `target` is replaced. beside: called
    after the copy; returns files of the caller, by their names in the folder `evolve`. Raises
    InvalidArgument when `target` is something else than a backup, LibraryCorrupt when the copy is
    damaged, LibraryError.
    """
    _check_target(store, target, replace)
    with disk_errors(target, "folder"):
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{target.name}."
        draft = Path(tempfile.mkdtemp(prefix=prefix, suffix=".part", dir=target.parent))
        try:
            # First the library, then the rest: files beside it may name versions, which then exist
            # in the copy.
            store.backend.maintenance.copy_to(
                draft / LIBRARY_FILE, progress or (lambda done, total: None)
            )
            copy_projects(store.home, draft)
            carry_places(store.backend.bindings, draft)
            for name, data in beside().items():
                # "xb" below: two names that are one on this file system must not overwrite each
                # other.
                (draft / BESIDE).mkdir(exist_ok=True)
                with open(draft / BESIDE / name, "xb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
            _publish(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return target


def _check_target(store: Store, target: Path, replace: bool) -> None:
    if not target.name:
        raise InvalidArgument(f"{target} is no place for a backup.", "Name a new folder.")
    if not target.exists() and not target.is_symlink():
        return
    if target.is_symlink() or not target.is_dir():
        raise InvalidArgument(f"{target} is not a folder.", "A backup is a folder; name a new one.")
    # Only a folder that holds nothing but a backup may be replaced.
    names = set(os.listdir(target))
    beside = os.listdir(target / BESIDE) if BESIDE in names else []
    if all(name.endswith((".jsonl", ".jsonl.lock")) for name in beside):
        names.discard(BESIDE)
    names -= {CARRIED_PLACES, PROJECTS_FILE}
    library_files = {LIBRARY_FILE, *(LIBRARY_FILE + end for end in _LOG_SUFFIXES)}
    if target.samefile(store.home) or names - library_files:
        raise InvalidArgument(f"{target} holds other things than a backup.", "Name a new folder.")
    if names and not replace:
        raise InvalidArgument(
            f"{target} holds a backup already.", "Name a new folder, or say that it is replaced."
        )


def _publish(draft: Path, target: Path) -> None:
    """Rename a complete draft to the target, in place of an older backup."""
    # Contents, then the folder, then the rename: after a power cut the new name leads to a whole
    # backup.
    with open(draft / LIBRARY_FILE, "rb+") as stream:
        os.fsync(stream.fileno())
    sync_folder(draft)
    if target.exists():
        # Beside the draft and not into it, so that a crash between two renames leaves the older
        # backup to be found.
        older = draft.with_suffix(".old")
        os.rename(target, older)
        os.rename(draft, target)
        shutil.rmtree(older, ignore_errors=True)
    else:
        os.rename(draft, target)
    sync_folder(target.parent)
