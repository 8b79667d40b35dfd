"""Writes resources with every version, operation and file as one JSON document.

    {"format": "evolvable-history", "version": 1,
     "operations": [{"id", "at", "actor", "reason", "session", "evidence", "undoes"}, ...],
     "changes": [{"operation", "ref", "after", "hash", "files": {path: [sha256, size, mode]}}, ...],
     "blobs": [{"sha256", "text" or "base64", "purged"?: {"at", "actor", "reason", "kind", "size"}}, ...],
     "channel": [{"at", "actor", "reason", "session", "policy", "placed": [[ref, version or null, withdrawn]]}, ...],
     "evidence": [...]}

Changes stand in the order of the log; those that made no version (a removal, a return) have neither hash nor files.
Ids are those of the exporting library; the version hashes do not cover them. What a record of evidence holds is said
in `evidence`.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolvable_store.archive.evidence import export_evidence
from evolvable_store.archive.output import Stream, written_whole
from evolvable_store.channel import Channel, Placing
from evolvable_store.errors import LibraryCorrupt
from evolvable_store.objects import blob_hash
from evolvable_store.operation import Change
from evolvable_store.purge import tombstone
from evolvable_store.resource import Ref

if TYPE_CHECKING:
    from evolvable_store.store import Store

FORMAT, FORMAT_VERSION = "evolvable-history", 1

_BATCH = 500
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def export_json(store: "Store", target: Path | Stream, refs: Iterable[Ref] | None = None) -> tuple[Ref, ...]:
    """Returns the resources written to `target`, by default all, removed ones included.

    The document is the library as it was when the export began. A stream is written to and not closed.
    Raises NoSuchResource, LibraryCorrupt, LibraryError when the file cannot be written.
    """
    export = _Export(store, None if refs is None else {_stored(store, ref) for ref in refs})
    with written_whole(target) as stream:
        stream.write(f'{{"format":"{FORMAT}","version":{FORMAT_VERSION}'.encode("ascii"))
        for name, records in (
            ("operations", export.operations()),
            ("changes", export.changes()),
            ("blobs", export.blobs()),
            ("channel", export.channel()),
            ("evidence", export.evidence()),
        ):
            _write_list(stream, name, records)
        stream.write(b"\n}\n")
    return tuple(sorted(export.latest, key=str))


def _stored(store: "Store", ref: Ref) -> Ref:
    head = store.head_or_none(ref)
    return (head or store.head(ref)).ref  # store.head raises NoSuchResource


def _write_list(stream: Stream, name: str, records: Iterable[Any]) -> None:
    stream.write(f',\n"{name}":['.encode("ascii"))
    separator = b"\n"
    for record in records:
        stream.write(separator + _to_json(record).encode("utf-8"))
        separator = b",\n"
    stream.write(b"\n]")


class _Export:
    def __init__(self, store: "Store", refs: set[Ref] | None) -> None:
        self._store, self._refs = store, refs
        # In this order: what a move placed is in the log by then.
        self._channel = Channel(store.backend)
        self._last_move = self._channel.last()
        self._end = store.sequence()
        self._id = lru_cache(maxsize=None)(self._read_id)
        self._blobs: dict[bytes, None] = {}
        self.latest: dict[Ref, int] = {}

    def operations(self) -> Iterator[Any]:
        seen = 0
        for change in self._log():
            if change.operation != seen:
                seen = change.operation
                fields = asdict(self._store.operation(seen).intent)
                if fields["principal"] is None:  # of an older version, which does not know these
                    del fields["principal"], fields["via"]
                yield {"id": seen, **fields}

    def changes(self) -> Iterator[Any]:
        """Yields every change, and notes which blobs they need."""
        for change in self._log():
            record = {"operation": change.operation, "ref": str(change.ref), "after": change.after}
            latest = self.latest.get(change.ref, 0)
            if change.after is not None and change.after > latest:
                self.latest[change.ref] = change.after
                record |= self._version(change, change.after)
            yield record

    def _version(self, change: Change, number: int) -> dict[str, Any]:
        identity = self._id(change.ref)
        version = self._store.backend.version(identity, number)
        manifest = self._store.backend.manifest(identity, number)
        if version is None or manifest is None:
            raise LibraryCorrupt(f"{change.ref.at(number)} is missing.", "Run `evolvable fsck`.")
        self._blobs.update((bytes.fromhex(entry.sha256), None) for entry in manifest.values())
        return {"hash": version.hash, "files": {path: (e.sha256, e.size, e.mode) for path, e in manifest.items()}}

    def blobs(self) -> Iterator[Any]:
        """Yields each blob that the changes need once; as text where that gives the same bytes back."""
        for name in self._blobs:
            data = self._store.blob(name.hex())
            record = {"sha256": name.hex(), **self._purged(name.hex(), data)}
            try:
                yield record | {"text": data.decode("utf-8")}
            except UnicodeDecodeError:
                yield record | {"base64": base64.b64encode(data).decode("ascii")}

    def _purged(self, sha256: str, data: bytes) -> dict[str, Any]:
        """Returns who took a blob's bytes out and why, nothing for a blob that has its bytes."""
        if blob_hash(data) == sha256 or (found := tombstone(self._store, sha256)) is None:
            return {}
        stone, size = found
        said = {"at": stone.at, "actor": stone.actor, "reason": stone.reason, "kind": stone.kind, "size": size}
        return {"purged": said}

    def channel(self) -> Iterator[Any]:
        """Yields every move of the stable channel, with those of its placings that belong to the resources."""
        moves = self._channel.moves(self._last_move, below=self._last_move + 1)[::-1]
        placed: dict[int, list[Placing]] = {}
        for placing in self._channel.placings([move.id for move in moves]):
            if self._refs is None or placing.ref in self._refs:
                placed.setdefault(placing.move, []).append(placing)
        for move in moves:
            note, rows = move.note, placed.get(move.id, [])
            if rows or (note.policy and self._refs is None):
                record = {"at": note.at, "actor": note.actor, "reason": note.reason, "session": note.session}
                stands = [(str(row.ref), row.after, row.withdrawn) for row in rows]
                yield record | {"policy": note.policy, "placed": stands}

    def evidence(self) -> Iterator[Any]:
        """Yields the evidence about the versions that are written."""
        yield from export_evidence(self._store, self.latest, whole=self._refs is None)

    def _log(self) -> Iterator[Change]:
        after = 0
        while after < self._end:
            changes = self._store.changes(after, _BATCH)
            if not changes:
                return
            after = changes[-1].sequence
            for change in changes:
                if change.sequence <= self._end and (self._refs is None or change.ref in self._refs):
                    yield change

    def _read_id(self, ref: Ref) -> int:
        head = self._store.head_or_none(ref)
        assert head is not None
        return head.id
