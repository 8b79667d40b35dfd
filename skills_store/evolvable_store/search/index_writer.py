"""Write the text index: analyze changed resources, add their documents, settle them in postings."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import islice

from evolvable_store.errors import DamagedFile, LibraryBusy, LibraryCorrupt
from evolvable_store.operation import Change, Head
from evolvable_store.search import index_entries, postings
from evolvable_store.search.index_entries import AnalyzedText, SourceText, analyze_source
from evolvable_store.search.index_file import IndexFile, read_state
from evolvable_store.search.learned_texts import COUNT_LEARNED, LearnedTexts, changed_resources
from evolvable_store.storage.connection import Connection
from evolvable_store.store import Store
from evolvable_store.validation import main_path

# Readers do not wait for the write lock; another writer waits for the whole batch.
BATCH, BACKLOG_BATCH = 500, 2_000
"""Changes indexed under one write lock, for which others wait. The second number is for a process
that indexes the end of an import: others wait for all of that anyway.
"""

_FEW = 20  # changes that a process indexes at once, also while another one fills the library
_READ_AT_ONCE = 25  # resources; their main files are in memory together
# The sequences of changes and of learned tasks before the index was read. -1 differs from every
# sequence, so the first comparison always reads the index.
_NOTHING = (-1, 0)
_BULK_FACTOR = 15  # times MAX_PENDING that may wait while a whole library is indexed
_NOTE_STATE = "INSERT OR REPLACE INTO state VALUES (?, ?)"

Progress = Callable[[int, int], None]
"""Called after every batch with the changes indexed and all that there are."""

Analyze = Callable[[Iterable[SourceText]], Iterable[AnalyzedText]]
"""Returns the results of `index_entries.analyze_source` for several texts in order, from several
cores.
"""

More = Callable[[], bool]
"""Returns whether many changes are about to come."""

BulkIndexer = Callable[[int, Callable[[], object]], object]
"""Indexes so many changes in another process if that is worthwhile; calls its second argument while
it waits.
"""


class IndexWriter:
    """Brings the index of one library up to date.

    Safe to share between threads and processes: the file is locked.
    """

    def __init__(
        self,
        store: Store,
        file: IndexFile,
        analyze: "Analyze | None" = None,
        bulk: "BulkIndexer | None" = None,
    ) -> None:
        """analyze, bulk: as for `Index.open`."""
        self._store, self._file, self._analyze = store, file, analyze or _analyze_here
        # Another process does not see a private copy of the index.
        self._bulk = bulk if file.path.parent == store.home else None
        self.applied, self.any_learned = _NOTHING, False

    def forget(self) -> None:
        """Note that the file was replaced, so that nothing is indexed."""
        self.applied = _NOTHING

    def catch_up(
        self,
        newest: tuple[int, int],
        progress: Progress | None = None,
        more: More | None = None,
        *,
        aging: bool = False,
        wait: bool = True,
        locked: bool = False,
        batch: int = BATCH,
    ) -> int:
        """Index every new change; return how many this call indexed.

        newest: the library's sequences, which differ from `applied`. aging: weigh learned tasks
        again once a month. The others: as for `Index.catch_up`. Raises DamagedFile, LibraryBusy or
        LibraryFull.
        """
        target, learned = newest
        self.any_learned = learned > 0
        # Once for each process: a backup can be restored while no server runs.
        if first_time := self.applied == _NOTHING:
            self._check_origin()
        with self._file.reading() as db:
            applied = _applied_sequence(db)
        # A library behind its index was restored from a backup; the index is then made again. Read
        # once more, since another process may have written and indexed meanwhile.
        if applied > target and applied > (target := self._store.sequence()):
            raise DamagedFile("it is ahead of the library")
        missing = target - applied
        # One process alone indexes many changes: several would wait for the batches of one another.
        # A few changes cost less than waiting for the lock.
        alone = missing > (BATCH if wait else _FEW) and not locked
        is_done = partial(self._has_indexed, target)
        turn: AbstractContextManager[bool] = nullcontext(locked)
        if alone:
            turn = self._file.backlog(wait=wait, done=is_done)
        with turn as has_lock:
            # Asked again under the lock: the process that held it before may have done all.
            if alone and self._bulk and not is_done():
                self._bulk(missing, lambda: progress(0, missing) if progress else None)
            count, applied = self._take_in_all(applied, target, progress, more, has_lock, batch)
        if learned or first_time:
            self._take_in_learned(learned, aging)
        self.applied = applied, learned
        return count

    def _has_indexed(self, sequence: int) -> bool:
        with self._file.reading() as db:
            return _applied_sequence(db) >= sequence

    def _take_in_all(
        self,
        first: int,
        target: int,
        progress: Progress | None,
        more: More | None,
        locked: bool,
        batch: int,
    ) -> tuple[int, int]:
        """Index the changes up to `target`.

        Return how many this call indexed, and the last change that is indexed. first: the last one
        that is indexed now. The others: as for `Index.catch_up`.
        """
        applied, count = first, 0
        # How many times MAX_PENDING may wait in the next batch without others to come.
        most = 1 if batch > BATCH else _BULK_FACTOR
        while applied < target:
            coming = more is not None and more()
            with self._file.writing() as db:
                # Read again under the write lock: another process may have indexed some since.
                applied = _applied_sequence(db)
                changes = self._store.changes(applied, BATCH if coming else batch)
                if changes:
                    # The first batch after the last of those that were about to come may settle,
                    # while other cores analyze the rest.
                    bulk, most = (_BULK_FACTOR, most) if coming else (most, _BULK_FACTOR)
                    self._take_in(db, changes, bulk if coming or applied < target - BATCH else 0)
                    applied, count = changes[-1].sequence, count + len(changes)
                elif applied < target:
                    break  # the log ends before its own last sequence; fsck says so
            if not (coming or applied < target):
                self.settle(locked=locked)
            if progress:
                progress(applied - first, target - first)
        return count, applied

    def _take_in_learned(self, target: int, aging: bool) -> None:
        """Index the resources whose learned tasks changed.

        aging: once a month, all resources that have any.
        """
        with self._file.reading() as db:
            applied = int(read_state(db, "learned") or 0)
            indexed_month = read_state(db, "learned_month")
        # Tasks lose weight by the day; once a month is precise enough for a half-life of 180 days.
        month = self._store.now()[:7] if aging or not indexed_month else indexed_month
        ids: list[int] = []
        if applied or target:
            ids = changed_resources(self._store, applied, aged=month != indexed_month)
        for start in range(0, len(ids), BATCH):
            heads = self._store.backend.heads_by_id(ids[start : start + BATCH]).values()
            with self._file.writing() as db:
                self._index(db, ((head, True) for head in heads if head.version is not None))
                db.execute(COUNT_LEARNED)
            self.settle()
        if ids or applied != target:
            with self._file.writing() as db:
                db.executemany(_NOTE_STATE, (("learned", str(target)), ("learned_month", month)))

    def settle(
        self, times: int = 1, *, locked: bool = False, at_once: int = postings.SETTLED_AT_ONCE
    ) -> None:
        """Settle waiting documents while there are more than `times` as many as may wait.

        Other processes can write between two pieces. locked: as for `catch_up`; without it, nothing
        is done while another process holds that lock. at_once: bytes of a piece.
        """
        while self._too_much_waits(times):
            try:
                # Settling rewrites many rows, so one process does it; the others leave it to that
                # one.
                with nullcontext() if locked else self._file.backlog(wait=False):
                    # Each round takes the write lock again, so that short writes get in between.
                    if self._too_much_waits(times):  # nobody else did it meanwhile
                        with self._file.writing() as db:
                            postings.flush_pending(db, at_once)
            except LibraryBusy:
                return

    def _too_much_waits(self, times: int) -> bool:
        with self._file.reading() as db:
            return _too_much_waits(db, times)

    def _check_origin(self) -> None:
        """Raise DamagedFile when the index was made from another history than this library's.

        A restored backup has another.
        """
        with self._file.reading() as db:
            applied, mark = _applied_sequence(db), read_state(db, "mark")
        # The number of a change alone tells nothing: both histories may have one of that number.
        if applied and mark != self._history_mark(self._store.changes(applied - 1, 1), applied):
            raise DamagedFile("it belongs to another history")

    def _history_mark(self, changes: Sequence[Change], sequence: int) -> str:
        """Return a text that no other history has at this change, '' where that is not the last."""
        if not changes or changes[-1].sequence != sequence:
            return ""
        change = changes[-1]
        digest = self._store.operation(change.operation).intent.digest
        return f"{change.ref} {change.after} {digest}"

    def _take_in(self, db: Connection, changes: list[Change], bulk: int) -> None:
        """Index these changes.

        bulk: how many times as much as usual may wait, 0 where others settle it afterwards.
        """
        self._index(db, self._changed_heads(db, changes), bulk)
        last = changes[-1].sequence
        # In the transaction of the documents: after a crash both are there, or neither.
        db.executemany(
            _NOTE_STATE, (("applied", str(last)), ("mark", self._history_mark(changes, last)))
        )

    def _index(self, db: Connection, heads: Iterable[tuple[Head, bool]], bulk: int = 0) -> None:
        """Write a new document for each of these heads, in place of an old one.

        heads: each with whether it is indexed already. bulk: as for `_take_in`. Documents are
        settled when the first text is analyzed, while other cores analyze the rest.
        """
        read_heads: list[tuple[Head, bool]] = []
        learned = LearnedTexts(self._store, self.any_learned)

        def read_sources() -> Iterator[SourceText]:
            remaining = iter(heads)
            while chunk := list(islice(remaining, _READ_AT_ONCE)):
                read_heads.extend(chunk)
                # A generator: main files of 25 resources are in memory, not those of the batch.
                yield from self._read([head for head, _ in chunk], learned)

        # `read_heads` grows while texts are read ahead. `zip` asks for a result first, so its head
        # is in the list by then.
        results = zip(self._analyze(read_sources()), read_heads, strict=True)
        for at, ((text, weights), (head, is_indexed)) in enumerate(results):
            if bulk and not at and _too_much_waits(db, bulk):
                postings.flush_pending(db)
            if is_indexed:
                _delete_text(db, head.id)
            index_entries.insert_entry(db, head, text, postings.add_document(db, head.id, weights))

    def _changed_heads(self, db: Connection, changes: list[Change]) -> Iterator[tuple[Head, bool]]:
        """Yield the heads whose text changed, each with whether it is indexed already.

        Of the others, delete the entries of removed resources and update the numbers of versions.
        """
        query = "SELECT version, tree, scope, name FROM entry WHERE id = ?"
        moved = self._store.backend.changed_heads(changes[0].sequence - 1, changes[-1].sequence)
        heads = {head.ref: head for head in moved}
        # Of several changes to a resource the last state counts, so each is looked at once.
        for ref in dict.fromkeys(change.ref for change in changes):
            head = heads.get(ref)
            if head is None or head.version is None:
                _delete_text(db, head.id if head else 0)
                continue
            row = db.execute(query, (head.id,)).fetchone()
            text_fields = (head.tree, head.scope, head.name)
            if row == (head.version, *text_fields):
                continue
            # The same content under another number, as after a removal and a return.
            if row and row[1:] == text_fields:
                db.execute("UPDATE entry SET version = ? WHERE id = ?", (head.version, head.id))
            else:
                yield head, row is not None

    def _read(self, heads: Sequence[Head], learned: LearnedTexts) -> Iterator[SourceText]:
        """Yield the texts of these heads.

        A resource with a damaged manifest has its name alone; fsck reports the damage.
        """
        # Manifests first, then one query for all main files.
        # By resource: the hash of its main file, '' for none, and its other paths.
        files: dict[int, tuple[str, list[str]]] = {}
        for head in heads:
            main, others = "", list[str]()
            with contextlib.suppress(LibraryCorrupt):
                manifest = self._store.manifest(head)
                path = main_path(head.kind, head.name, manifest)
                main = manifest[path].sha256 if path else ""
                others = sorted(other for other in manifest if other != path)
            files[head.id] = main, others
        stored = self._read_main_files({main for main, _ in files.values()})
        for head in heads:
            main, others = files[head.id]
            yield SourceText(head.name, stored.get(main), others, learned.of(head))

    def _read_main_files(self, hashes: set[str]) -> dict[str, tuple[str, bytes, str]]:
        """Return hash, stored bytes and codec of these blobs, by hash, without unreadable ones."""
        read = self._store.backend.maintenance.packed_blobs
        try:
            return {row[0]: row for row in read(hashes)}
        except LibraryCorrupt:
            # One damaged page must not keep the other resources out of the index.
            readable = dict[str, tuple[str, bytes, str]]()
            for sha256 in hashes:
                with contextlib.suppress(LibraryCorrupt):
                    readable |= {row[0]: row for row in read([sha256])}
            return readable


def _analyze_here(sources: Iterable[SourceText]) -> Iterable[AnalyzedText]:
    return map(analyze_source, sources)


def _applied_sequence(db: Connection) -> int:
    return int(read_state(db, "applied") or 0)


def _too_much_waits(db: Connection, times: int) -> bool:
    count, size = postings.count_pending(db)
    return count > times * postings.MAX_PENDING or size > times * postings.MAX_PENDING_BYTES


def _delete_text(db: Connection, id_: int) -> None:
    document = index_entries.delete_entry(db, id_)
    if document is not None:
        postings.drop_document(db, document)
