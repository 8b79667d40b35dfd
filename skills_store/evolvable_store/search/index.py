"""The text index: what every living resource says, kept up to date with the library."""

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
from evolvable_store.search.learned_texts import (
    NO_PAST_TASKS,
    PastTasks,
    past_tasks,
)
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

# Each try sees the changes that came in between; a difference that stays is a fault.
_TRIES = 3  # comparisons with a library that others may change in the middle of one
_REBUILD_HINT = "Delete {}: the next search makes it again."

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _rebuild_if_damaged(
    read: "Callable[Concatenate[Index, _P], _T]",
) -> "Callable[Concatenate[Index, _P], _T]":
    """Make a method see every committed change, and start again with an empty index when its file
    turns out bad.

    While another process indexes so much that it takes seconds, it sees what is indexed so far.
    """

    @wraps(read)
    def whole(self: "Index", /, *values: _P.args, **options: _P.kwargs) -> _T:
        # Noted before the read: if another process replaces the file meanwhile, it must not be
        # thrown away again.
        identity = self._file.identity
        try:
            # A search over what is indexed so far is better than none.
            with contextlib.suppress(LibraryBusy):
                self._update()
            return read(self, *values, **options)
        except DamagedFile:
            # Once: a second damage right after a new start is no damage of the file, and reaches
            # the caller.
            self._start_anew(identity)
            self._update()
            return read(self, *values, **options)

    return whole


class Index:
    """The index of one library, in a file of its own that all processes share and any may rebuild.

    Every read updates it first, so it sees every change that any process has committed. A missing,
    damaged or outdated file is replaced without a word. Safe to share between threads.
    """

    def __init__(self, store: Store, file: IndexFile, writer: IndexWriter) -> None:
        self._store, self._file, self._writer = store, file, writer
        self._cache = IndexCache()
        self._untrusted: tuple[tuple[object, ...], tuple[int, ...]] = ((), ())
        self._person_only = True  # whether what no model is offered is seen

    def for_models(self) -> "Index":
        """Return this index without entries for the person alone.

        Both use one file and are closed together.
        """
        # A shallow copy shares the file, the writer and the caches.
        offered = copy.copy(self)
        offered._person_only = False
        return offered

    def _visible(self, kind: Kind | None, scopes: Sequence[str] | None) -> VisibilityFilter:
        """Return which entries may be seen.

        One that is not trusted hides none of its name further away.
        """
        # With a single scope nothing is hidden, so nobody's trust matters.
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
        """Return the index of this library; make its file when there is none. Reads nothing of the
        library yet.

        bulk: indexes many changes. A process that lives long does not get back all the memory that
        this takes.
        """
        file = IndexFile(store.home, private=store.read_only)
        return cls(store, file, IndexWriter(store, file, analyze, bulk))

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
        self,
        progress: Progress | None = None,
        *,
        more: More | None = None,
        wait: bool = True,
        locked: bool = False,
        batch: int = BATCH,
    ) -> int:
        """Index every new change; return how many this call indexed.

        progress: called after every batch. more: whether many others are about to come. wait: for a
        process that indexes many; without it a process that fills the library is left alone.
        locked: the caller, or the process that it works for, holds the lock of the backlog. batch:
        changes indexed while the index is locked once, when no more are about to come. Raises
        LibraryBusy or LibraryFull.
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
        # One small read of the library for each search, in place of a look at all heads.
        newest = self._store.backend.sequences()
        if newest == self._writer.applied:
            return 0
        return (index or self._writer.catch_up)(newest)

    def backlog(self) -> contextlib.AbstractContextManager[bool]:
        """Be the one process that indexes many changes for the body.

        Raise LibraryBusy while another one is.
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
        """Return the faults of the index after it has caught up.

        None unless its file is damaged.
        """
        try:
            for _ in range(_TRIES):
                self._update()
                with self._file.reading() as db:
                    found = list(_faults(db, self._store.heads(), str(self.path)))
                if not found:
                    break
            return found
        except DamagedFile as error:
            return [
                Fault(
                    f"the text index cannot be read ({error})",
                    str(self.path),
                    _REBUILD_HINT.format(self.path),
                )
            ]

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
        """Return all that the index says of a task, read in one state of it.

        words, names: as for `phrases`. scopes: as in `search`. list_limit: of at most so many
        resources all are returned; of more, one more than so many are weighed. own: the most
        resources that are ranked by their own short texts.
        """
        with self._file.reading() as db:
            visible = self._visible(kind, scopes)
            # The lock is held while postings are read, not while they are weighed: other searches
            # run meanwhile.
            with self._cache.lock_state(db) as state:
                terms = searched_terms(task, state.documents)
                postings = state.reader.read(db, terms)
                query = Query(terms, state.documents, postings)
                seen = state.visible(db, visible)
            weighed = query.best(db, seen, max(limit, list_limit + 1))
            best = list(weighed.values())[:limit]
            scored = make_matches(
                state.entries(db, [document_score.document for document_score in best]), best, query
            )
            phrases = (
                index_entries.match_phrases(db, words, names, visible, state.beginnings)
                if words
                else []
            )
            ranking = Ranking(scored, weighed, query, visible)
            # In a small library the caller shows all, so that no ranking by short texts is needed.
            if seen.few is not None and len(seen.few) <= list_limit:
                every = state.entries(db, seen.few).values()
                return Candidates(
                    phrases,
                    ranking,
                    (),
                    sorted(every, key=lambda entry: (entry.name, entry.kind, entry.scope)),
                )
            return Candidates(
                phrases, ranking, tuple(own_query(query, postings).best(db, seen, own)), None
            )

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
        """Return the resources whose texts fit the query best; any text is a query, and takes a
        bounded time.

        scopes: those that are seen, nearest first; a resource hides those of its name further away.
        None: all. depth: how many are weighed, when that is more than the limit. learned: learned
        tasks count too.
        """
        with self._file.reading() as db:
            visible = self._visible(kind, scopes)
            with self._cache.lock_state(db) as state:
                terms = searched_terms(query, state.documents)
                term_query = Query(
                    terms, state.documents, state.reader.read(db, terms), learned=learned
                )
                seen = state.visible(db, visible)
            weighed = term_query.best(db, seen, max(limit, depth))
            best = list(weighed.values())[:limit]
            scored = make_matches(
                state.entries(db, [document_score.document for document_score in best]),
                best,
                term_query,
            )
        return Ranking(scored, weighed, term_query, visible)

    @_rebuild_if_damaged
    def weigh(self, ranking: Ranking, ids: Iterable[int]) -> dict[int, DocumentScore]:
        """Return the scores of the visible ones among these resources for the query of
        the ranking.
        """
        with self._file.reading() as db:
            resources = index_entries.documents_of_resources(db, ids, ranking.visible)
        return {resources[weighed.document]: weighed for weighed in ranking.query.weigh(resources)}

    @_rebuild_if_damaged
    def matches(self, ranking: Ranking, weighed: Mapping[int, DocumentScore]) -> dict[int, Match]:
        """Return the matches that were weighed, by resource; without those that are
        gone meanwhile.
        """
        by_resource = {
            match.entry.id: match for match in ranking.scored if match.entry.id in weighed
        }
        # Entries that the search read already are not read again.
        further = [weighed[id_] for id_ in weighed if id_ not in by_resource]
        if further:
            with self._file.reading() as db:
                entries = index_entries.entries_of_documents(
                    db, [document_score.document for document_score in further]
                )
            by_resource |= {
                match.entry.id: match for match in make_matches(entries, further, ranking.query)
            }
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
        """Return the names and triggers whose words, whatever their form, stand side by side among
        those `words`.

        Up to 200 phrases, each of at most 64 resources. names: the words that may be a name by
        themselves; None: all. scopes: as in `search`.
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
        scope of the last entry of the page before. scopes: as in `search`. Raises InvalidArgument
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
        """Return the entries of the visible ones among these resources, in the order of `ids`."""
        resource_ids = list(ids)
        with self._file.reading() as db:
            documents = index_entries.documents_of_resources(
                db, resource_ids, self._visible(kind, scopes)
            )
            with self._cache.lock_state(db) as state:
                entries = state.entries(db, documents)
        found = {documents[document]: entry for document, entry in entries.items()}
        return {id_: found[id_] for id_ in dict.fromkeys(resource_ids) if id_ in found}

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
        return (
            past_tasks(self._store, task, resources) if self._writer.any_learned else NO_PAST_TASKS
        )

    @property
    def answers(self) -> MutableMapping[str, str]:
        """The cached answers of judges, by question. They are lost when the index is rebuilt."""
        return index_file.JudgeCache(self._file)


def check_index(store: Store) -> Iterator[Fault]:
    """Yield the faults of the index of this library: a check for `fsck.check_library`."""
    with Index.open(store) as index:
        yield from index.find_faults()


def _faults(db: Connection, heads: Iterable[Head], path: str) -> Iterator[Fault]:
    anew = _REBUILD_HINT.format(path)
    # SQLite's own structures first: the comparisons below trust them.
    for (text,) in db.execute("PRAGMA integrity_check").fetchall():
        if text != "ok":
            yield Fault(f"SQLite finds the text index damaged ({text})", path, anew)
    rows = db.execute("SELECT id, version, tree, scope, name FROM entry").fetchall()
    indexed = {id_: fields for id_, *fields in rows}
    for head in heads:
        if indexed.pop(head.id, None) != [head.version, head.tree, head.scope, head.name]:
            yield Fault("the text index has another version of it", str(head.ref), anew)
    for id_ in indexed:
        yield Fault("the text index still has it", f"resource {id_}", anew)
    if not posting_tables.matches_entries(db, "SELECT document, id FROM entry"):
        yield Fault("its postings are not those of its entries", path, anew)
