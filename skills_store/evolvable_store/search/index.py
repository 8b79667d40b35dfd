"""The text index of every living resource, kept up to date with the library."""

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

from evolvable_store.errors import DamagedFile, LibraryBusy
from evolvable_store.fsck import Fault
from evolvable_store.operation import Head
from evolvable_store.resource import Kind
from evolvable_store.search import index_entries, index_file
from evolvable_store.search import postings as posting_tables
from evolvable_store.search.bm25 import (
    Candidates,
    DocumentScore,
    Match,
    Query,
    Ranking,
    TermScore,
    make_matches,
    own_query,
    searched_terms,
)
from evolvable_store.search.index_entries import IndexEntry, TriggerPhrase, visibility
from evolvable_store.search.index_file import IndexCache, IndexFile
from evolvable_store.search.index_writer import (
    BATCH,
    Analyze,
    BulkIndexer,
    IndexWriter,
    More,
    Progress,
)
from evolvable_store.search.learned_texts import NO_PAST_TASKS, PastTasks, past_tasks
from evolvable_store.search.postings import SETTLED_AT_ONCE, VisibilityFilter
from evolvable_store.storage.connection import Connection
from evolvable_store.store import Store

__all__ = [
    "Candidates",
    "DocumentScore",
    "Index",
    "IndexEntry",
    "Match",
    "Ranking",
    "TermScore",
    "TriggerPhrase",
    "check_index",
]

# Others may change the library during a comparison; a difference that stays is a fault.
_TRIES = 3
_REBUILD_HINT = "Delete {}: the next search makes it again."

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _rebuild_if_damaged(
    read: "Callable[Concatenate[Index, _P], _T]",
) -> "Callable[Concatenate[Index, _P], _T]":
    """Make a method see every committed change, and replace a damaged file by an empty index.

    While another process indexes many changes, the method sees those indexed so far.
    """

    @wraps(read)
    def updated_read(self: "Index", /, *values: _P.args, **options: _P.kwargs) -> _T:
        # Before the read: a file by which another process replaces it meanwhile must stay.
        identity = self._file.identity
        try:
            # A search over the changes indexed so far is better than none.
            with contextlib.suppress(LibraryBusy):
                self._update()
            return read(self, *values, **options)
        except DamagedFile:
            # Once: an error with a new file has another cause, and reaches the caller.
            self._start_anew(identity)
            self._update()
            return read(self, *values, **options)

    return updated_read


class Index:
    """The index of one library, in a file of its own that all processes share and any may rebuild.

    Every read updates it first, so it sees every change that any process has committed. A missing,
    damaged or outdated file is replaced silently. Safe to share between threads.
    """

    def __init__(self, store: Store, file: IndexFile, writer: IndexWriter) -> None:
        self._store, self._file, self._writer = store, file, writer
        self._cache = IndexCache()
        # The stamp of the library's trust, and the untrusted resources at that time.
        self._untrusted: tuple[tuple[object, ...], tuple[int, ...]] = ((), ())
        # Whether entries that no model is offered are returned.
        self._person_only = True

    def for_models(self) -> "Index":
        """Return this index without entries for the person alone.

        Both use one file and are closed together.
        """
        # A shallow copy shares the file, the writer and the caches.
        offered = copy.copy(self)
        offered._person_only = False
        return offered

    def _visible(self, kind: Kind | None, scopes: Sequence[str] | None) -> VisibilityFilter:
        """Return the filter of the entries that may be seen.

        An untrusted one hides none of its name in farther scopes.
        """
        # With a single scope nothing is hidden, so trust does not matter.
        if scopes is None or len(scopes) < 2:
            return visibility(kind, scopes, person_only=self._person_only)
        stamp, backend = self._store.backend.authorship.stamp(), self._store.backend
        # The query over all resources is repeated only when trust or a version changed.
        if stamp != self._untrusted[0]:
            self._untrusted = (stamp, tuple(sorted(backend.authorship.untrusted_resources())))
        return visibility(kind, scopes, self._untrusted[1], person_only=self._person_only)

    @classmethod
    def open(
        cls, store: Store, analyze: Analyze | None = None, bulk: BulkIndexer | None = None
    ) -> Self:
        """Return the index of this library, whose file is made when there is none.

        Nothing of the library is read yet. bulk: indexes many changes in another process, because a
        process does not give back all the memory that this takes.
        """
        file = IndexFile(store.home, private=store.read_only)
        return cls(store, file, IndexWriter(store, file, analyze, bulk))

    @property
    def path(self) -> Path:
        """The file, which is in a temporary folder where the library's cannot be written."""
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
        self,
        progress: Progress | None = None,
        *,
        more: More | None = None,
        wait: bool = True,
        locked: bool = False,
        batch: int = BATCH,
    ) -> int:
        """Index every new change; return how many this call indexed.

        progress: called after every batch. more: whether many more changes are about to come. wait:
        for another process that indexes many; False raises LibraryBusy then. locked: the caller, or
        the process that it works for, holds the lock of the backlog. batch: changes indexed under
        one write lock, when no more are about to come. Raises LibraryBusy or LibraryFull.
        """
        index = partial(
            self._writer.catch_up,
            progress=progress,
            more=more,
            aging=True,
            wait=wait,
            locked=locked,
            batch=batch,
        )
        identity = self._file.identity
        try:
            return self._update(index)
        except DamagedFile:
            self._start_anew(identity)
            return self._update(index)

    def _update(self, index: Callable[[tuple[int, int]], int] | None = None) -> int:
        """Index the changes that the writer has not seen yet; return how many this call indexed.

        index: called with the library's sequences, by default the writer without options.
        """
        # One small read of the library for each search.
        newest = self._store.backend.sequences()
        if newest == self._writer.applied:
            return 0
        return (index or self._writer.catch_up)(newest)

    def backlog(self) -> contextlib.AbstractContextManager[bool]:
        """Return a context in which this process alone indexes many changes.

        Raise LibraryBusy while another process does.
        """
        return self._file.backlog()

    def settle(
        self, times: int = 1, *, locked: bool = False, at_once: int = SETTLED_AT_ONCE
    ) -> None:
        """See `IndexWriter.settle`."""
        self._writer.settle(times, locked=locked, at_once=at_once)

    def _start_anew(self, identity: tuple[int, int] | None) -> None:
        self._file.replace(identity)
        self._writer.forget()
        self._cache.forget()

    def find_faults(self) -> list[Fault]:
        """Return the faults of the index after it has caught up."""
        try:
            for _ in range(_TRIES):
                self._update()
                with self._file.reading() as db:
                    faults = list(_find_faults(db, self._store.heads(), str(self.path)))
                if not faults:
                    break
            return faults
        except DamagedFile as error:
            what = f"the text index cannot be read ({error})"
            return [Fault(what, str(self.path), _REBUILD_HINT.format(self.path))]

    # Reading

    @_rebuild_if_damaged
    def candidates(
        self,
        task: str,
        words: Sequence[str],
        *,
        names: Iterable[str],
        kind: Kind | None,
        scopes: Sequence[str] | None,
        limit: int,
        list_limit: int,
        own: int,
    ) -> Candidates:
        """Return the answer of the index to a task, read in one state.

        words, names: as for `phrases`. scopes: as for `search`. limit: how many matches.
        list_limit: up to so many visible resources all are returned; of more, one more than so many
        are weighed. own: how many resources are ranked by their own short texts.
        """
        with self._file.reading() as db:
            visible = self._visible(kind, scopes)
            # The lock is held while postings are read, and not while they are weighed: other
            # searches run meanwhile.
            with self._cache.lock_state(db) as state:
                terms = searched_terms(task, state.documents)
                postings = state.reader.read(db, terms)
                query = Query(terms, state.documents, postings)
                seen = state.visible(db, visible)
            weighed = query.best(db, seen, max(limit, list_limit + 1))
            best = list(weighed.values())[:limit]
            scored = make_matches(state.entries(db, _documents(best)), best, query)
            phrases: list[TriggerPhrase] = []
            if words:
                phrases = index_entries.match_phrases(db, words, names, visible, state.beginnings)
            ranking = Ranking(scored, weighed, query, visible)
            # In a small library the caller shows all, so that no ranking by short texts is needed.
            if seen.few is not None and len(seen.few) <= list_limit:
                entries = state.entries(db, seen.few).values()
                every = sorted(entries, key=lambda entry: (entry.name, entry.kind, entry.scope))
                return Candidates(phrases, ranking, (), every)
            by_own_texts = tuple(own_query(query, postings).best(db, seen, own))
            return Candidates(phrases, ranking, by_own_texts, None)

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
        """Return the resources whose texts fit the query best.

        Any text is a query, and takes a bounded time. scopes: those that are searched, nearest
        first; a resource hides those of its name in farther ones. None: all. depth: how many are
        weighed, when that is more than the limit. learned: whether learned tasks count.
        """
        with self._file.reading() as db:
            visible = self._visible(kind, scopes)
            with self._cache.lock_state(db) as state:
                terms = searched_terms(query, state.documents)
                postings = state.reader.read(db, terms)
                term_query = Query(terms, state.documents, postings, learned=learned)
                seen = state.visible(db, visible)
            weighed = term_query.best(db, seen, max(limit, depth))
            best = list(weighed.values())[:limit]
            scored = make_matches(state.entries(db, _documents(best)), best, term_query)
        return Ranking(scored, weighed, term_query, visible)

    @_rebuild_if_damaged
    def weigh(self, ranking: Ranking, ids: Iterable[int]) -> dict[int, DocumentScore]:
        """Return the scores of the visible resources among these, for the query of the ranking."""
        with self._file.reading() as db:
            resources = index_entries.documents_of_resources(db, ids, ranking.visible)
        return {resources[weighed.document]: weighed for weighed in ranking.query.weigh(resources)}

    @_rebuild_if_damaged
    def matches(self, ranking: Ranking, weighed: Mapping[int, DocumentScore]) -> dict[int, Match]:
        """Return the matches of these scores, by resource, without resources that are gone."""
        # Entries that the search read already are not read again.
        scored = (match for match in ranking.scored if match.entry.id in weighed)
        by_resource = {match.entry.id: match for match in scored}
        further = [weighed[id_] for id_ in weighed if id_ not in by_resource]
        if further:
            with self._file.reading() as db:
                entries = index_entries.entries_of_documents(db, _documents(further))
            further_matches = make_matches(entries, further, ranking.query)
            by_resource |= {match.entry.id: match for match in further_matches}
        return by_resource

    @_rebuild_if_damaged
    def phrases(
        self,
        words: Sequence[str],
        *,
        names: Iterable[str] | None = None,
        kind: Kind | None = None,
        scopes: Sequence[str] | None = None,
    ) -> list[TriggerPhrase]:
        """Return the names and triggers whose terms stand side by side in `words`.

        Up to 200 phrases, each of at most 64 resources. names: the words that may be a name of one
        word; None: all. scopes: as for `search`.
        """
        with self._file.reading() as db:
            with self._cache.lock_state(db) as state:
                beginnings = state.beginnings
            return index_entries.match_phrases(
                db, words, names, self._visible(kind, scopes), beginnings
            )

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

        query: each of its words must occur in the name or the description. after: name, kind and
        scope of the last entry of the page before. scopes: as for `search`. Raises InvalidArgument
        for a query of too many words.
        """
        with self._file.reading() as db:
            return index_entries.list_entries(
                db, self._visible(kind, scopes), query or "", limit, after
            )

    @_rebuild_if_damaged
    def entry(self, head: Head) -> IndexEntry | None:
        """Return the entry of a resource, None when it was removed."""
        with self._file.reading() as db:
            return index_entries.find_entry(db, head.id)

    @_rebuild_if_damaged
    def visible_entries(
        self, ids: Iterable[int], kind: Kind | None = None, scopes: Sequence[str] | None = None
    ) -> dict[int, IndexEntry]:
        """Return the entries of the visible resources among these, in the order of `ids`."""
        resource_ids = list(ids)
        with self._file.reading() as db:
            documents = index_entries.documents_of_resources(
                db, resource_ids, self._visible(kind, scopes)
            )
            with self._cache.lock_state(db) as state:
                entries = state.entries(db, documents)
        by_resource = {documents[document]: entry for document, entry in entries.items()}
        return {id_: by_resource[id_] for id_ in dict.fromkeys(resource_ids) if id_ in by_resource}

    @_rebuild_if_damaged
    def names(
        self,
        kind: Kind | None = None,
        prefix: str = "",
        limit: int = 100,
        scopes: Sequence[str] | None = None,
    ) -> list[str]:
        """Return the names that begin with `prefix`, in order, each once."""
        with self._file.reading() as db:
            return index_entries.list_names(db, self._visible(kind, scopes), prefix, limit)

    def past_tasks(self, task: str, resources: Iterable[int]) -> PastTasks:
        """See `learned_texts.past_tasks`."""
        if not self._writer.any_learned:
            return NO_PAST_TASKS
        return past_tasks(self._store, task, resources)

    @property
    def answers(self) -> MutableMapping[str, str]:
        """The cached answers of judges, by question. They are lost when the index is rebuilt."""
        return index_file.JudgeCache(self._file)


def check_index(store: Store) -> Iterator[Fault]:
    """Yield the faults of the index of this library: a check for `fsck.check_library`."""
    with Index.open(store) as index:
        yield from index.find_faults()


def _documents(scores: Iterable[DocumentScore]) -> list[int]:
    return [score.document for score in scores]


def _find_faults(db: Connection, heads: Iterable[Head], path: str) -> Iterator[Fault]:
    hint = _REBUILD_HINT.format(path)
    # SQLite's own structures first: the comparisons below rely on them.
    for (text,) in db.execute("PRAGMA integrity_check").fetchall():
        if text != "ok":
            yield Fault(f"SQLite finds the text index damaged ({text})", path, hint)
    rows = db.execute("SELECT id, version, tree, scope, name FROM entry").fetchall()
    indexed = {id_: fields for id_, *fields in rows}
    for head in heads:
        if indexed.pop(head.id, None) != [head.version, head.tree, head.scope, head.name]:
            yield Fault("the text index has another version of it", str(head.ref), hint)
    for id_ in indexed:
        yield Fault("the text index still has it", f"resource {id_}", hint)
    if not posting_tables.matches_entries(db, "SELECT document, id FROM entry"):
        yield Fault("its postings are not those of its entries", path, hint)
