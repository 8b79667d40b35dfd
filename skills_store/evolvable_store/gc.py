"""Delete unreferenced blobs, purge content, list detected secrets.

Versions are never deleted, so few blobs are unreferenced: those of an import that was interrupted,
or of another program.

A purge replaces a blob by a tombstone with the same name and size. Versions, hashes and lists of
files do not change, and the same bytes cannot return under that name.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from evolvable_store.objects import unpack
from evolvable_store.resource import Ref
from evolvable_store.secret_copies import holds_text, without_texts
from evolvable_store.storage import BlobLocation, PurgeJob
from evolvable_store.store import Store

# Larger batches would save transactions; smaller ones would shorten the wait of other processes.
MAX_ITEMS, MAX_BYTES = 200, 8 * 2**20
"""The most items, and bytes, that are written while the write lock is held once."""

T = TypeVar("T")


def split_batches(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the items in lists of at most MAX_ITEMS and MAX_BYTES.

    Other processes then wait for one list only. A single item over MAX_BYTES is a list of its own.
    """
    batch: list[T] = []
    total = 0
    for item in items:
        # Before the item is added: one item over the limit still makes progress.
        if batch and (len(batch) >= MAX_ITEMS or total + size(item) > MAX_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class CollectedBlobs:
    """How many unreferenced blobs there were, and their bytes as stored."""

    blobs: int
    bytes: int


def collect(store: Store, dry_run: bool = False, *, shrink: bool = False) -> CollectedBlobs:
    """Delete the unreferenced blobs; return how many there were.

    Safe beside any number of writers, which wait for one batch at most.

    Args:
        dry_run: Only count them.
        shrink: Return the free space to the disk. This copies the whole file while writers wait.

    Raises:
        LibraryCorrupt: A manifest cannot be read; nothing was deleted.
        LibraryBusy, LibraryReadOnly: As every write.
    """
    # A version published from now on has a sequence over `seen`, and each batch examines those
    # again. Its blobs are either stored, or sent along with it: a transaction leaves out only blobs
    # that a version refers to already (see Transaction._find_stored_blobs), and those are never
    # among the unreferenced.
    maintenance = store.backend.maintenance
    seen, gone = maintenance.unreferenced_blobs()
    if not dry_run:
        batches = list(split_batches(gone, lambda blob: blob.size))
        gone = [blob for batch in batches for blob in maintenance.delete_blobs(batch, seen)]
        # After the deletions: a vacuum copies what is left.
        if shrink:
            maintenance.vacuum()
    return CollectedBlobs(len(gone), sum(blob.size for blob in gone))


def blobs_with(store: Store, texts: Iterable[bytes]) -> list[str]:
    """Return the blobs that hold one of these texts, in any form that `holds_text` knows.

    Reads every blob.
    """
    search_texts = tuple(texts)
    contents = store.backend.purges.contents() if search_texts else ()
    return [name for name, data in contents if holds_text(data, search_texts)]


def purge_content(store: Store, job: PurgeJob) -> list[str]:
    """Replace the blobs of a job by tombstones, and its texts in every table by a mark.

    Return the hashes of the blobs. Each step is a transaction, and a second call after an error
    takes the steps that are left. A blob from which a text cannot be removed, such as an archive,
    keeps its bytes: `blobs_with` still returns it.
    """
    purges = store.backend.purges
    # First whole files, then texts: the search for texts reads every blob that is left.
    done = purges.write_tombstones(job, dict.fromkeys(job.blobs, job.notice))
    for name in blobs_with(store, job.texts):
        data = store.blob(name)
        if (cleaned := without_texts(data, job.texts, job.mark)) != data:
            done += purges.write_tombstones(job, {name: cleaned})
    purges.replace_texts(job)
    return done


# Each transaction waits for the disk.
_READ_TOGETHER, _STORED_TOGETHER = 200, 2_000
"""Blobs that are in memory at once, and those whose findings are stored in one transaction."""


@dataclass(frozen=True, slots=True)
class DetectedSecret:
    """One secret in a blob.

    id: the same for the same secret anywhere. line: counted from 1, 0 for a whole file.
    """

    id: str
    kind: str
    line: int


@dataclass(frozen=True, slots=True)
class SecretOccurrence:
    """A secret, and one file of a version that holds it.

    newest: the version is the resource's head.
    """

    found: DetectedSecret
    ref: Ref
    version: int
    path: str
    sha256: str
    newest: bool


SecretDetector = Callable[[bytes], list[DetectedSecret]]


class SecretFindings:
    """The findings of a library.

    rules: a number that changes with the rules; then every blob is scanned again.
    """

    def __init__(self, store: Store, look: SecretDetector, rules: int) -> None:
        self._store, self._look, self._rules = store, look, rules

    def scan_new(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Scan every blob that these rules have not scanned; return how many there were.

        A library that cannot be written is scanned again each time. progress: called with the blobs
        scanned, and all.
        """
        unseen = self._store.backend.secrets.list_unscanned(self._rules)
        findings: list[tuple[str, int, str]] = []
        for start in range(0, len(unseen), _READ_TOGETHER):
            end = start + _READ_TOGETHER
            findings += self._scan(unseen[start:end])
            # The last ones are stored even if they are few.
            is_due = len(findings) >= _STORED_TOGETHER or end >= len(unseen)
            if is_due and not self._store.read_only:
                self._store.backend.secrets.add(findings)
                findings = []
            if progress is not None:
                progress(min(end, len(unseen)), len(unseen))
        return len(unseen)

    def _scan(self, names: Iterable[str]) -> Iterator[tuple[str, int, str]]:
        for name, data, codec in self._store.backend.maintenance.packed_blobs(names):
            try:
                secrets = self._look(unpack(data, codec))
            except zlib.error:
                continue  # fsck reports it
            rows = [[secret.id, secret.kind, secret.line] for secret in secrets]
            # An empty text for "nothing found" keeps the row of most blobs short.
            yield name, self._rules, json.dumps(rows) if rows else ""

    def accepted_findings(self) -> dict[str, str]:
        """Return the ids that a person accepted, each with the reason."""
        return self._store.backend.secrets.accepted_findings()

    def accept(self, id: str, actor: str, reason: str) -> None:
        """Record that a person accepts a finding."""
        self._store.backend.secrets.accept(id, self._store.now(), actor, reason)

    def list_occurrences(self, *, everything: bool = False) -> list[SecretOccurrence]:
        """Return every finding with every file that holds it, by ref, newest version first.

        everything: include the findings that a person accepted.
        """
        secrets = self._store.backend.secrets
        accepted = {} if everything else self.accepted_findings()
        by_blob: dict[str, list[DetectedSecret]] = {}
        for sha256, rows in secrets.findings().items():
            detected = [DetectedSecret(*fields) for fields in json.loads(rows)]
            by_blob[sha256] = [secret for secret in detected if secret.id not in accepted]
        names = [sha256 for sha256, detected in by_blob.items() if detected]
        places = secrets.locations(names) if names else []
        occurrences = [
            SecretOccurrence(secret, *place) for place in places for secret in by_blob[place[3]]
        ]
        return sorted(
            occurrences,
            key=lambda secret: (str(secret.ref), -secret.version, secret.path, secret.found.line),
        )

    def add_left(self, blobs: Iterable[str], found: DetectedSecret) -> None:
        """Store a finding for blobs in which the rules do not detect it.

        Such blobs are archives that a purge left as they were.
        """
        stored, new_row = self._store.backend.secrets.findings(), (found.id, found.kind, found.line)
        added: list[tuple[str, int, str]] = []
        for name in dict.fromkeys(blobs):
            rows = {tuple(fields) for fields in json.loads(stored.get(name, "[]"))}
            added.append((name, self._rules, json.dumps(sorted({*rows, new_row}))))
        self._store.backend.secrets.add(added)

    def locate_paths(self, pattern: str) -> list[BlobLocation]:
        """Return every file of a version whose path matches a LIKE pattern, without purged ones."""
        return self._store.backend.secrets.locations_like(pattern)
