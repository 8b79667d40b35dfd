"""Delete unreferenced blobs, purge content, list detected secrets.

Versions are never deleted, so few blobs are unreferenced: those of an import that broke off, or of
another program.

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

# Larger batches would save transactions, smaller ones the waiting of other processes; a purge or an
# import has many.
MAX_ITEMS, MAX_BYTES = 200, 8 * 2**20
"""The most that is written under one lock: some 10 ms."""

T = TypeVar("T")


def split_batches(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the items in lists of at most MAX_ITEMS and MAX_BYTES, so that other processes wait for
    one list only.

    A single item over MAX_BYTES is a list of its own.
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
    """Delete the unreferenced blobs; return the deleted ones, or with `dry_run` those that would be
    deleted.

    Safe beside any number of writers, which wait for one batch at most.

    Args:
        shrink: return the free space to the disk. This copies the whole file while writers wait.

    Raises:
        LibraryCorrupt: A manifest cannot be read; nothing was deleted.
        LibraryBusy, LibraryReadOnly: as every write.
    """
    # A version published from now on has a sequence over `seen`, and each batch looks at those
    # again. Its blobs are either stored, or sent along with it: a transaction leaves out only blobs
    # that a version refers to already (see Transaction._known_blobs), and those are never among the
    # unreferenced.
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
    """Replace the blobs of a job by tombstones and its texts in every table by a mark; return the
    blobs' hashes.

    Each step is a transaction; a second call does what is left. A blob that holds a text where it
    cannot be taken out, as in an archive, keeps its bytes: `blobs_with` still returns it.
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


_READ_TOGETHER, _STORED_TOGETHER = 200, 2_000
"""Blobs that are in memory at once, and those whose findings are stored in one transaction: each
waits for the disk.
"""


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
            if (
                len(findings) >= _STORED_TOGETHER or end >= len(unseen)
            ) and not self._store.read_only:
                self._store.backend.secrets.add(findings)
                findings = []
            if progress is not None:
                progress(min(end, len(unseen)), len(unseen))
        return len(unseen)

    def _scan(self, names: Iterable[str]) -> Iterator[tuple[str, int, str]]:
        for name, data, codec in self._store.backend.maintenance.packed_blobs(names):
            try:
                found = self._look(unpack(data, codec))
            except zlib.error:
                continue  # fsck reports it
            # An empty text for "nothing found" keeps the row of most blobs short.
            yield (
                name,
                self._rules,
                json.dumps([[secret.id, secret.kind, secret.line] for secret in found])
                if found
                else "",
            )

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
        by_blob = {
            sha256: [
                secret
                for fields in json.loads(found)
                if (secret := DetectedSecret(*fields)).id not in accepted
            ]
            for sha256, found in secrets.findings().items()
        }
        names = [sha256 for sha256, found in by_blob.items() if found]
        places = secrets.locations(names) if names else []
        occurrences = [
            SecretOccurrence(secret, *place) for place in places for secret in by_blob[place[3]]
        ]
        return sorted(
            occurrences,
            key=lambda secret: (str(secret.ref), -secret.version, secret.path, secret.found.line),
        )

    def add_left(self, blobs: Iterable[str], found: DetectedSecret) -> None:
        """Store a finding for blobs in which the rules do not detect it, such as archives that a
        purge left.
        """
        stored = self._store.backend.secrets.findings()
        rows = {
            name: {tuple(fields) for fields in json.loads(stored.get(name, "[]"))} for name in blobs
        }
        added = [
            (
                name,
                self._rules,
                json.dumps(
                    sorted(
                        {
                            *row,
                            (found.id, found.kind, found.line),
                        }
                    )
                ),
            )
            for name, row in rows.items()
        ]
        self._store.backend.secrets.add(added)

    def locate_paths(self, pattern: str) -> list[BlobLocation]:
        """Return every file of a version whose path matches a LIKE pattern, unless it
        was purged.
        """
        return self._store.backend.secrets.locations_like(pattern)
