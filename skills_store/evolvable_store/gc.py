"""Removes blobs that no version and no proposal names.

Versions are kept for ever, so there are few: what a program left that was not ours, or an import that broke off.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evolvable_store.batches import batches

if TYPE_CHECKING:
    from evolvable_store.driver import Connection
    from evolvable_store.store import Store

# A manifest is {"path": [sha256, size, mode]}.
_NAMED = """SELECT file.value ->> 0 FROM change, json_each(change.manifest) AS file
    WHERE change.manifest IS NOT NULL AND change.sequence > ?
    UNION ALL SELECT file.value ->> 0 FROM proposal, json_each(proposal.manifest) AS file"""
_UNNAMED = f"SELECT id, sha256, length(data) FROM blob WHERE sha256 NOT IN ({_NAMED}) ORDER BY id"


@dataclass(frozen=True, slots=True)
class Collected:
    """How many blobs nobody named, and the bytes that they take up as stored."""

    blobs: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Blob:
    id: int
    sha256: str
    size: int


def collect(store: "Store", dry_run: bool = False, *, shrink: bool = False) -> Collected:
    """Returns what was removed, or with `dry_run` what would be.

    Safe beside any number of writers, who wait for no longer than a batch takes. shrink: give the freed space back
    to the disk; this copies the whole file while writers wait. Raises LibraryCorrupt before anything is removed
    when a manifest cannot be read, LibraryBusy, LibraryReadOnly.
    """
    # A version that is published from now on has a sequence over `seen`, and each batch looks at those again. What
    # they name is kept, or was sent along with them: a transaction leaves out only blobs that a version names
    # already (see Transaction._known_blobs), and those are never found here.
    seen, unnamed = _survey(store)
    removed = Collected(len(unnamed), sum(blob.size for blob in unnamed))
    if not dry_run:
        gone = [_remove(store, batch, seen) for batch in batches(unnamed, lambda blob: blob.size)]
        removed = Collected(sum(done.blobs for done in gone), sum(done.bytes for done in gone))
        if shrink:
            _shrink(store)
    return removed


def _survey(store: "Store") -> tuple[int, list[_Blob]]:
    with store.backend.reading() as db:
        # In this order: a version that comes between the two is only kept twice.
        seen = int(db.execute("SELECT coalesce(max(sequence), 0) FROM change").fetchone()[0])
        return seen, [_Blob(*row) for row in db.execute(_UNNAMED, (0,))]


def _remove(store: "Store", batch: list[_Blob], seen: int) -> Collected:
    with store.backend.writing() as db:
        since = {sha256 for (sha256,) in db.execute(_NAMED, (seen,))}
        gone = [blob for blob in batch if blob.sha256 not in since and _delete(db, blob)]
    return Collected(len(gone), sum(blob.size for blob in gone))


def _delete(db: "Connection", blob: _Blob) -> bool:
    # By both: the blob may have been removed and come back meanwhile, and its id may be another's now.
    return bool(db.execute("DELETE FROM blob WHERE id = ? AND sha256 = ?", (blob.id, blob.sha256)).rowcount)


def _shrink(store: "Store") -> None:
    with store.backend.reading() as db:
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
