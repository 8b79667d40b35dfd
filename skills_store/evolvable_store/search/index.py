"""The text index: what every living resource says, kept up to date with the library."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial, wraps
from itertools import islice
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

from evolvable_store import frontmatter
from evolvable_store.errors import DamagedFile, LibraryBusy, LibraryCorrupt
from evolvable_store.fsck import Fault
from evolvable_store.objects import Files
from evolvable_store.operation import Change, Head
from evolvable_store.resource import Kind
from evolvable_store.search import index_entries, index_file, postings
from evolvable_store.search.bm25 import DocumentScore, Query, TermScore, searched_terms
from evolvable_store.search.index_entries import (
    AnalyzedText,
    IndexEntry,
    Ranking,
    SearchHit,
    SourceText,
    TriggerPhrase,
    analyze_document,
    analyze_source,
    make_hits,
    visibility,
)
from evolvable_store.search.index_file import IndexCache, IndexFile, IndexSnapshot, read_state
from evolvable_store.search.learned_texts import (
    COUNT_LEARNED,
    NO_PAST_TASKS,
    LearnedTexts,
    PastTasks,
    changed_resources,
    past_tasks,
)
from evolvable_store.search.postings import VisibilityFilter
from evolvable_store.storage.connection import Connection
from evolvable_store.store import Store
from evolvable_store.validation import main_path

__all__ = ["IndexEntry", "Index", "TermScore", "TriggerPhrase", "Ranking", "SearchHit", "DocumentScore", "check_index"]

BATCH, BACKLOG_BATCH = 500, 2_000
"""Changes indexed while the index is locked once: others wait for it no longer than a second. A process that is there
for the backlog takes more at once when no more are about to come.
"""

_FEW = 20  # changes that a process indexes without haste though another one fills the library
_READ_AT_ONCE = 25  # resources; their main files are in memory together
_NOTHING = (-1, 0)  # what a process knows before it read the index: changes applied, and changes of learned tasks
_TRIES = 3  # comparisons with a library that others may change in the middle of one
_BULK_FACTOR = 15  # times as much may wait while a whole library is indexed
_NOTE_STATE = "INSERT OR REPLACE INTO state VALUES (?, ?)"
_REBUILD_HINT = "Delete {}: the next search makes it again."

NOT_INDEXED = 1 << 40
"""The number of a document that is in no index."""

Progress = Callable[[int, int], None]
"""Called after every batch with the changes indexed and all that there are."""

Analyze = Callable[[Iterable[SourceText]], Iterable[AnalyzedText]]
"""Returns what `index_entries.analyze_source` does for each of several texts, in their order, on whatever cores."""

More = Callable[[], bool]
"""Returns whether many changes are about to come."""

BulkIndexer = Callable[[int, Callable[[], object]], object]
"""Indexes so many changes in another process if that is worthwhile, and waits; calls its argument again and again."""


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _rebuild_if_damaged(read: "Callable[Concatenate[Index, _P], _T]") -> "Callable[Concatenate[Index, _P], _T]":
    """Make a method see every committed change, and start again with an empty index when its file turns out bad.

    While another process indexes so much that it takes seconds, it sees what is indexed so far.
    """

    @wraps(read)
    def whole(self: "Index", /, *values: _P.args, **options: _P.kwargs) -> _T:
        known = self._file.identity
        try:
            with contextlib.suppress(LibraryBusy):
                self._step_up()
            return read(self, *values, **options)
        except DamagedFile:
            self._start_anew(known)
            self._step_up()
            return read(self, *values, **options)

    return whole


class Index:
    """The index of one library, in a file of its own that all processes share and any may rebuild.

    Every read updates it first, so it sees every change that any process has committed. A missing, damaged
    or outdated file is replaced without a word. Safe to share between threads.
    """

    def __init__(self, store: Store, file: IndexFile, analyze: Analyze, bulk: BulkIndexer | None) -> None:
        self._store, self._file, self._analyze = store, file, analyze
        self._bulk = bulk if file.path.parent == store.home else None
        self._applied, self._any_learned = _NOTHING, False
        self._known = IndexCache()
        self._untrusted: tuple[tuple[object, ...], tuple[int, ...]] = ((), ())

    def _visible(self, kind: Kind | None, scopes: Sequence[str] | None) -> VisibilityFilter:
        """Return which entries may be seen; one that is not trusted hides none of its name further away."""
        if scopes is None or len(scopes) < 2:
            return visibility(kind, scopes)
        stamp, backend = self._store.backend.attestations.stamp(), self._store.backend
        if stamp != self._untrusted[0]:
            self._untrusted = (stamp, tuple(sorted(backend.attestations.untrusted_resources())))
        return visibility(kind, scopes, self._untrusted[1])

    @classmethod
    def open(cls, store: Store, analyze: Analyze | None = None, bulk: BulkIndexer | None = None) -> Self:
        """Return the index of this library; make its file when there is none. Reads nothing of the library yet.

        bulk: indexes many changes. A process that lives long does not get back all the memory that this takes.
        """
        return cls(store, IndexFile(store.home, private=store.read_only), analyze or _analyze_here, bulk)

    @property
    def path(self) -> Path:
        """The file; not in the library's folder when that cannot be written."""
        return self._file.path

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Updates

    def catch_up(
        self, progress: Progress | None = None, *, more: "More | None" = None, wait: bool = True, locked: bool = False
    ) -> int:
        """Index every new change; return how many this call indexed.

        progress: called after every batch. more: whether many others are about to come. wait: for a process that
        indexes many; without it a process that fills the library is left alone. locked: the caller, or the process that
        it works for, holds the lock of the backlog. Raises LibraryBusy or LibraryFull.
        """
        known = self._file.identity
        try:
            return self._step_up(progress, more, aging=True, wait=wait, locked=locked)
        except DamagedFile:
            self._start_anew(known)
            return self._step_up(progress, more, aging=True, wait=wait, locked=locked)

    def backlog(self) -> contextlib.AbstractContextManager[bool]:
        """Be the one process that indexes many changes for the body. Raise LibraryBusy while another one is."""
        return self._file.backlog()

    def _start_anew(self, known: tuple[int, int] | None) -> None:
        self._file.replace(known)
        self._applied = _NOTHING
        self._known.forget()

    def _step_up(
        self,
        progress: Progress | None = None,
        more: "More | None" = None,
        *,
        aging: bool = False,
        wait: bool = True,
        locked: bool = False,
    ) -> int:
        target, learned = self._store.backend.sequences()
        self._any_learned = learned > 0
        if (target, learned) == self._applied:
            return 0
        if first_time := self._applied == _NOTHING:
            self._check_origin()
        with self._file.reading() as db:
            applied = _applied_sequence(db)
        if applied > target and applied > (target := self._store.sequence()):  # another process may have been faster
            raise DamagedFile("it is ahead of the library")
        # One process alone: the others would wait for the file again and again, each for the batches of the rest.
        missing = target - applied
        alone = missing > (BATCH if wait else _FEW) and not locked
        indexed = partial(self._has_indexed, target)
        with self._file.backlog(wait=wait, done=indexed) if alone else contextlib.nullcontext(locked) as holds:
            if alone and self._bulk and not indexed():
                self._bulk(missing, lambda: progress(0, missing) if progress else None)
            batch = BACKLOG_BATCH if locked else BATCH
            taken, applied = self._take_in_all(applied, target, progress, more, holds, batch)
        if learned or first_time:
            self._take_in_learned(learned, aging)
        self._applied = applied, learned
        return taken

    def _has_indexed(self, sequence: int) -> bool:
        with self._file.reading() as db:
            return _applied_sequence(db) >= sequence

    def _take_in_all(
        self, first: int, target: int, progress: Progress | None, more: "More | None", locked: bool, batch: int
    ) -> tuple[int, int]:
        """Index the changes up to `target`; return how many this call indexed, and the last that is indexed.

        batch: changes at once when no more are about to come.
        """
        applied, taken, most = first, 0, 1
        while applied < target:
            coming = more is not None and more()
            with self._file.writing() as db:
                applied = _applied_sequence(db)
                changes = self._store.changes(applied, BATCH if coming else batch)
                if changes:
                    # When no more are about to come, what waits is settled while others analyze the rest.
                    bulk, most = (_BULK_FACTOR, most) if coming else (most, _BULK_FACTOR)
                    self._take_in(db, changes, bulk if coming or applied < target - BATCH else 0)
                    applied, taken = changes[-1].sequence, taken + len(changes)
                elif applied < target:
                    break  # the log ends before its own last sequence; fsck says so
            if not (coming or applied < target):
                self.settle(locked=locked)
            if progress:
                progress(applied - first, target - first)
        return taken, applied

    def _take_in_learned(self, target: int, aging: bool) -> None:
        """Index the resources whose learned tasks changed; aging: once a month all that have any."""
        with self._file.reading() as db:
            applied, month = int(read_state(db, "learned") or 0), read_state(db, "learned_month")
        month, old = self._store.now()[:7] if aging or not month else month, month
        ids = changed_resources(self._store, applied, aged=month != old) if applied or target else []
        for start in range(0, len(ids), BATCH):
            heads = self._store.backend.heads_by_id(ids[start : start + BATCH]).values()
            with self._file.writing() as db:
                self._index(db, ((head, True) for head in heads if head.version is not None))
                db.execute(COUNT_LEARNED)
            self.settle()
        if ids or applied != target:
            with self._file.writing() as db:
                db.executemany(_NOTE_STATE, (("learned", str(target)), ("learned_month", month)))

    def settle(self, times: int = 1, *, locked: bool = False, at_once: int = postings.SETTLED_AT_ONCE) -> None:
        """Settle what waits, piece by piece, while it is `times` as much as may wait; others get in between.

        locked: as for `catch_up`; otherwise a process that holds that lock does it. at_once: bytes of a piece.
        """
        while self._too_much_waits(times):
            try:
                with contextlib.nullcontext() if locked else self._file.backlog(wait=False):
                    if self._too_much_waits(times):  # nobody else did it meanwhile
                        with self._file.writing() as db:
                            postings.flush_pending(db, at_once)
            except LibraryBusy:
                return

    def _too_much_waits(self, times: int) -> bool:
        with self._file.reading() as db:
            return _too_much_waits(db, times)

    def _check_origin(self) -> None:
        """Raise Damaged when the index was not made from this library's history: a restored backup has another."""
        with self._file.reading() as db:
            applied, mark = _applied_sequence(db), read_state(db, "mark")
        if applied and mark != self._mark(self._store.changes(applied - 1, 1), applied):
            raise DamagedFile("it belongs to another history")

    def _mark(self, changes: Sequence[Change], sequence: int) -> str:
        """Return what tells the history up to this change from every other."""
        if not changes or changes[-1].sequence != sequence:
            return ""
        change = changes[-1]
        return f"{change.ref} {change.after} {self._store.operation(change.operation).intent.digest}"

    def _take_in(self, db: Connection, changes: list[Change], bulk: int) -> None:
        """Index these changes. bulk: how many times as much as usual may wait, 0 where others settle it afterwards."""
        self._index(db, self._changed(db, changes), bulk)
        last = changes[-1].sequence
        db.executemany(_NOTE_STATE, (("applied", str(last)), ("mark", self._mark(changes, last))))

    def _index(self, db: Connection, heads: Iterable[tuple[Head, bool]], bulk: int = 0) -> None:
        """Write a new document for each of these heads, in place of the old one of those that are known.

        bulk: as for `_take_in`. What waits is settled when the first text is analyzed: others analyze the rest then.
        """
        changed: list[tuple[Head, bool]] = []
        learned = LearnedTexts(self._store, self._any_learned)

        def sources() -> Iterator[SourceText]:
            remaining = iter(heads)
            while some := list(islice(remaining, _READ_AT_ONCE)):
                changed.extend(some)
                yield from self._read([head for head, _ in some], learned)

        # One is read while others are analyzed, so the first of these has to be asked first.
        for at, ((text, weights), (head, known)) in enumerate(zip(self._analyze(sources()), changed, strict=True)):
            if bulk and not at and _too_much_waits(db, bulk):
                postings.flush_pending(db)
            if known:
                _forget(db, head.id)
            index_entries.insert_entry(db, head, text, postings.add_document(db, head.id, weights))

    def _changed(self, db: Connection, changes: list[Change]) -> Iterator[tuple[Head, bool]]:
        """Yield what has to be indexed again, and whether it was before; settle what is gone or unchanged."""
        query = "SELECT version, tree FROM entry WHERE id = ?"
        moved = self._store.backend.changed_heads(changes[0].sequence - 1, changes[-1].sequence)
        heads = {head.ref: head for head in moved}
        for ref in dict.fromkeys(change.ref for change in changes):
            head = heads.get(ref)
            if head is None or head.version is None:
                _forget(db, head.id if head else 0)
            elif (known := db.execute(query, (head.id,)).fetchone()) != (head.version, head.tree):
                if known and known[1] == head.tree:
                    db.execute("UPDATE entry SET version = ? WHERE id = ?", (head.version, head.id))
                else:
                    yield head, known is not None

    def _read(self, heads: Sequence[Head], learned: LearnedTexts) -> Iterator[SourceText]:
        """Yield the texts of these heads; one whose manifest is damaged has its name alone, and fsck reports it."""
        files: dict[int, tuple[str, list[str]]] = {}
        for head in heads:
            main, others = "", list[str]()
            with contextlib.suppress(LibraryCorrupt):
                manifest = self._store.manifest(head)
                path = main_path(head.kind, head.name, manifest)
                main, others = manifest[path].sha256 if path else "", sorted(one for one in manifest if one != path)
            files[head.id] = main, others
        stored = self._main_files({main for main, _ in files.values()})
        for head in heads:
            main, others = files[head.id]
            yield SourceText(head.name, stored.get(main), others, learned.of(head))

    def _main_files(self, hashes: set[str]) -> dict[str, tuple[str, bytes, str]]:
        """Return hash, stored bytes and codec of these blobs, by hash, without those that cannot be read."""
        read = self._store.backend.maintenance.packed_blobs
        try:
            return {row[0]: row for row in read(hashes)}
        except LibraryCorrupt:  # one damaged page must not keep the other resources out of the index
            found = dict[str, tuple[str, bytes, str]]()
            for one in hashes:
                with contextlib.suppress(LibraryCorrupt):
                    found |= {row[0]: row for row in read([one])}
            return found

    def in_step(self) -> list[Fault]:
        """Return what is wrong with the index once it has caught up: nothing, unless its file is damaged."""
        try:
            for _ in range(_TRIES):
                self._step_up()
                with self._file.reading() as db:
                    found = list(_faults(db, self._store.heads(), str(self.path)))
                if not found:
                    break
            return found
        except DamagedFile as error:
            return [Fault(f"the text index cannot be read ({error})", str(self.path), _REBUILD_HINT.format(self.path))]

    # Reading

    @contextlib.contextmanager
    def beside(self, head: Head, files: Files, after: int) -> Iterator[IndexSnapshot]:
        """Yield one state of the index, with the newest text of a resource though it is not indexed yet.

        head: of that version. files: of it. after: the sequence of the newest change before it. Raise LookupError when
        the index has not seen that change, DamagedFile.
        """
        main = main_path(head.kind, head.name, files)
        document = frontmatter.parse_document(files[main].data if main else b"")
        text, weights = analyze_document(head.name, document, sorted(path for path in files if path != main))
        with self._file.reading() as db, self._known.locked(db) as state:
            if state.stamp[0] < after:
                raise LookupError("the index is behind the library")
            with state.waiting.holding(NOT_INDEXED, weights):
                yield IndexSnapshot(db, state, text.entry(head), NOT_INDEXED, self._visible)

    @_rebuild_if_damaged
    def search(
        self,
        query: str,
        *,
        kind: Kind | None = None,
        scopes: Sequence[str] | None = None,
        limit: int = 10,
        depth: int = 0,
        learned: bool = True,
    ) -> Ranking:
        """Return the resources whose texts fit the query best; any text is a query, and takes a bounded time.

        scopes: those that are seen, nearest first; a resource hides those of its name further away. None: all.
        depth: how many are weighed, when that is more than the limit. learned: learned tasks count too.
        """
        with self._file.reading() as db:
            visible = self._visible(kind, scopes)
            with self._known.locked(db) as state:
                asked = searched_terms(query, state.documents)
                asking = Query(asked, state.documents, state.reader.read(db, asked), learned=learned)
                seen = state.visible(db, visible)
            weighed = asking.best(db, seen, max(limit, depth))
            best = list(weighed.values())[:limit]
            scored = make_hits(index_entries.entries_of_documents(db, [one.document for one in best]), best, asking)
        return Ranking(scored, weighed, asking.mass, asking.unknown, asking.documents, asking.asked, asking, visible)

    @_rebuild_if_damaged
    def weigh(self, ranking: Ranking, ids: Iterable[int]) -> dict[int, DocumentScore]:
        """Return how well those of the resources that may be seen fit the query of the ranking."""
        with self._file.reading() as db:
            resources = index_entries.documents_of_resources(db, ids, ranking.visible)
        return {resources[weighed.document]: weighed for weighed in ranking.query.weigh(resources)}

    @_rebuild_if_damaged
    def scored(self, ranking: Ranking, weighed: Mapping[int, DocumentScore]) -> dict[int, SearchHit]:
        """Return the finds that were weighed, by resource; without those that are gone meanwhile."""
        known = {scored.entry.id: scored for scored in ranking.scored if scored.entry.id in weighed}
        further = [weighed[id_] for id_ in weighed if id_ not in known]
        if further:
            with self._file.reading() as db:
                entries = index_entries.entries_of_documents(db, [one.document for one in further])
            known |= {scored.entry.id: scored for scored in make_hits(entries, further, ranking.query)}
        return known

    @_rebuild_if_damaged
    def phrases(
        self,
        said: Sequence[str],
        *,
        names: Iterable[str] | None = None,
        kind: Kind | None = None,
        scopes: Sequence[str] | None = None,
    ) -> list[TriggerPhrase]:
        """Return the names and triggers whose words, whatever their form, stand side by side among those `said`.

        Up to 200 phrases, each of at most 64 resources. names: the words that may be a name by themselves; None: all.
        scopes: as in `search`.
        """
        with self._file.reading() as db:
            with self._known.locked(db) as state:
                beginnings = state.beginnings
            return index_entries.match_phrases(db, said, names, self._visible(kind, scopes), beginnings)

    @_rebuild_if_damaged
    def entries(
        self,
        kind: Kind | None = None,
        scopes: Sequence[str] | None = None,
        query: str | None = None,
        limit: int = 100,
        after: tuple[str, str, str] | None = None,
    ) -> list[IndexEntry]:
        """Return one page of entries, ordered by name, kind and scope.

        query: each of its words must occur in the name or the description. after: name, kind and scope of the last
        entry of the page before. scopes: as in `search`. Raises InvalidArgument for a query of too many words.
        """
        with self._file.reading() as db:
            return index_entries.list_entries(db, self._visible(kind, scopes), query or "", limit, after)

    @_rebuild_if_damaged
    def entry(self, head: Head) -> IndexEntry | None:
        """Return the entry of a resource, None when it was removed."""
        with self._file.reading() as db:
            return index_entries.find_entry(db, head.id)

    @_rebuild_if_damaged
    def visible_entries(
        self, ids: Iterable[int], kind: Kind | None = None, scopes: Sequence[str] | None = None
    ) -> dict[int, IndexEntry]:
        """Return the entries of those of the resources that may be seen, in the order asked."""
        wanted = list(ids)
        with self._file.reading() as db:
            documents = index_entries.documents_of_resources(db, wanted, self._visible(kind, scopes))
            entries = index_entries.entries_of_documents(db, documents)
        found = {documents[document]: entry for document, entry in entries.items()}
        return {id_: found[id_] for id_ in dict.fromkeys(wanted) if id_ in found}

    @_rebuild_if_damaged
    def names(
        self, kind: Kind | None = None, prefix: str = "", limit: int = 100, scopes: Sequence[str] | None = None
    ) -> list[str]:
        """Return the names that begin with `prefix`, in order, each once."""
        with self._file.reading() as db:
            return index_entries.list_names(db, self._visible(kind, scopes), prefix, limit)

    def past_tasks(self, task: str, resources: Iterable[int]) -> PastTasks:
        """See `learned_texts.past_tasks`."""
        return past_tasks(self._store, task, resources) if self._any_learned else NO_PAST_TASKS

    @property
    def answers(self) -> MutableMapping[str, str]:
        """What was answered to which question: remembered with the index, and lost with it."""
        return index_file.JudgeCache(self._file)


def check_index(store: Store) -> Iterator[Fault]:
    """Yield what is wrong with the index of this library: a check that `fsck.check` can run."""
    with Index.open(store) as index:
        yield from index.in_step()


def _analyze_here(sources: Iterable[SourceText]) -> Iterable[AnalyzedText]:
    return map(analyze_source, sources)


def _applied_sequence(db: Connection) -> int:
    return int(read_state(db, "applied") or 0)


def _too_much_waits(db: Connection, times: int) -> bool:
    count, size = postings.count_pending(db)
    return count > times * postings.MAX_PENDING or size > times * postings.MAX_PENDING_BYTES


def _forget(db: Connection, id_: int) -> None:
    document = index_entries.delete_entry(db, id_)
    if document is not None:
        postings.drop_document(db, document)


def _faults(db: Connection, heads: Iterable[Head], path: str) -> Iterator[Fault]:
    anew = _REBUILD_HINT.format(path)
    for (text,) in db.execute("PRAGMA integrity_check").fetchall():
        if text != "ok":
            yield Fault(f"SQLite finds the text index damaged ({text})", path, anew)
    rows = db.execute("SELECT id, version, tree FROM entry").fetchall()
    indexed = {id_: (version, tree) for id_, version, tree in rows}
    for head in heads:
        if indexed.pop(head.id, None) != (head.version, head.tree):
            yield Fault("the text index has another version of it", str(head.ref), anew)
    for id_ in indexed:
        yield Fault("the text index still has it", f"resource {id_}", anew)
    if not postings.matches_entries(db, "SELECT document, id FROM entry"):
        yield Fault("its postings are not those of its entries", path, anew)
