"""The text index: what every living resource says, kept in step with the library, so that any of it can be found."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from evolvable_store import frontmatter, ranking
from evolvable_store.errors import InvalidArgument, LibraryCorrupt
from evolvable_store.fsck import Fault
from evolvable_store.index_sqlite import FIELDS, Damaged, IndexFile
from evolvable_store.objects import Manifest
from evolvable_store.operation import Change, Head
from evolvable_store.problems import main_path
from evolvable_store.ranking import Counts, Part, Visible
from evolvable_store.resource import Kind, Ref
from evolvable_store.store import Store
from evolvable_store.words import asked, spaced, words

if TYPE_CHECKING:
    from evolvable_store.driver import Connection

__all__ = ["Entry", "Index", "Part", "Phrase", "Ranking", "Scored", "in_step"]

BATCH = 500
"""Changes taken in while the index is locked once; others wait for it no longer than a second."""

MAX_BODY = 200_000
"""Characters of a main file's body that are searched."""

MAX_DESCRIPTION = 8_192
"""Characters of a description that are kept; the specification allows 1,024."""

_MOST_PHRASES = 100  # triggers of one resource
_MOST_FILTERS = 16  # words of a listing's filter
_TRIES = 3  # comparisons with a library that others may change in the middle of one
_ANEW = "Delete {}: the next search makes it anew."

_ENTRY = "e.id, e.kind, e.scope, e.name, e.version, e.description, e.triggers, e.frozen, e.delegate, e.tree"

Progress = Callable[[int, int], None]
"""Called after every batch with the changes taken in and all that there are."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the index keeps of a living resource at its head. `id` is the resource's."""

    id: int
    kind: Kind
    scope: str
    name: str
    version: int
    description: str
    triggers: tuple[str, ...]
    frozen: bool
    delegate: str
    tree: str

    @property
    def ref(self) -> Ref:
        """The resource, without a version."""
        return Ref(self.kind, self.name, self.scope)


@dataclass(frozen=True, slots=True)
class Scored:
    """One find. `score` orders; `coverage` is the share of the query's weight that the resource's words have (0 to 1);
    `parts` say which word added what in which field.
    """

    entry: Entry
    score: float
    coverage: float
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Finds, best first. `mass`: weight of all words of the query; `unknown`: of those that no resource has.

    `documents`: how many resources the index holds.
    """

    scored: tuple[Scored, ...]
    mass: float
    unknown: float
    documents: int


@dataclass(frozen=True, slots=True)
class Phrase:
    """A name or a trigger (`source`) as its words between single spaces, and whose it is."""

    text: str
    source: str
    entry: Entry


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _mending(read: "Callable[Concatenate[Index, _P], _T]") -> "Callable[Concatenate[Index, _P], _T]":
    """Makes a method see every committed change, and start anew with an empty index when its file turns out bad."""

    @wraps(read)
    def whole(self: "Index", /, *values: _P.args, **options: _P.kwargs) -> _T:
        known = self._file.identity
        try:
            self._step_up()
            return read(self, *values, **options)
        except Damaged:
            self._start_anew(known)
            self._step_up()
            return read(self, *values, **options)

    return whole


class Index:
    """The index of one library, in a file of its own that all processes share and any may make anew.

    Every read brings it into step first, so it sees every change that any process has committed. A missing, damaged
    or outdated file is replaced without a word. Safe to share between threads.
    """

    def __init__(self, store: Store, file: IndexFile) -> None:
        self._store, self._file = store, file
        self._applied = -1
        self._counts: Counts | None = None

    @classmethod
    def open(cls, store: Store) -> Self:
        """Returns the index of this library; makes its file when there is none. Reads nothing of the library yet."""
        return cls(store, IndexFile(store.home, private=store.read_only))

    @property
    def path(self) -> Path:
        """The file; not in the library's folder when that cannot be written."""
        return self._file.path

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Keeping in step

    def catch_up(self, progress: Progress | None = None) -> int:
        """Takes in every change that is new; returns how many this call took in.

        progress: called after every batch. Raises LibraryBusy or LibraryFull.
        """
        known = self._file.identity
        try:
            return self._step_up(progress)
        except Damaged:
            self._start_anew(known)
            return self._step_up(progress)

    def _start_anew(self, known: tuple[int, int] | None) -> None:
        self._file.replace(known)
        self._applied, self._counts = -1, None

    def _step_up(self, progress: Progress | None = None) -> int:
        target = self._store.sequence()
        if target == self._applied:
            return 0
        if self._applied < 0:
            self._check_origin()
        with self._file.reading() as db:
            applied = first = _applied(db)
        if applied > target and applied > (target := self._store.sequence()):  # another process may have been faster
            raise Damaged("it is ahead of the library")
        taken = 0
        while applied < target:
            with self._file.writing() as db:
                applied = _applied(db)
                changes = self._store.changes(applied, BATCH)
                if changes:
                    self._take_in(db, changes)
                    applied, taken = changes[-1].sequence, taken + len(changes)
                elif applied < target:
                    break  # the log ends before its own last sequence; fsck says so
            if progress:
                progress(applied - first, target - first)
        self._applied = applied
        return taken

    def _check_origin(self) -> None:
        """Raises Damaged when the index was not made from this library's history: a restored backup has another."""
        with self._file.reading() as db:
            applied, mark = _applied(db), _state(db, "mark")
        if applied and mark != self._mark(self._store.changes(applied - 1, 1), applied):
            raise Damaged("it belongs to another history")

    def _mark(self, changes: Sequence[Change], sequence: int) -> str:
        """Returns what tells the history up to this change from every other."""
        if not changes or changes[-1].sequence != sequence:
            return ""
        change = changes[-1]
        return f"{change.ref} {change.after} {self._store.operation(change.operation).intent.digest}"

    def _take_in(self, db: "Connection", changes: list[Change]) -> None:
        for kind, scope, name in dict.fromkeys((c.kind, c.scope, c.name) for c in changes):
            head = self._store.backend.head(kind, scope, name)
            if head is None or head.version is None:
                _forget(db, head.id if head else 0)
            elif (known := _version_and_tree(db, head.id)) != (head.version, head.tree):
                if known and known[1] == head.tree:
                    db.execute("UPDATE entry SET version = ? WHERE id = ?", (head.version, head.id))
                else:
                    _forget(db, head.id)
                    _keep(db, head, self._document(head))
        last = changes[-1].sequence
        state = (("applied", str(last)), ("mark", self._mark(changes, last)))
        db.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", state)

    def _document(self, head: Head) -> frontmatter.Document:
        """Returns the main file of the head, an empty one where there is none or its bytes are damaged."""
        data = b""
        try:
            manifest: Manifest = self._store.manifest(head)
            path = main_path(head.kind, head.name, manifest)
            data = self._store.blob(manifest[path].sha256) if path else b""
        except LibraryCorrupt:
            pass  # found by its name still; fsck reports it
        return frontmatter.read(data)

    def in_step(self) -> list[Fault]:
        """Returns what is wrong with the index once it has caught up: nothing, unless its file is damaged."""
        try:
            for _ in range(_TRIES):
                self._step_up()
                with self._file.reading() as db:
                    found = list(_faults(db, self._store.heads(), str(self.path)))
                if not found:
                    break
            return found
        except Damaged as error:
            return [Fault(f"the text index cannot be read ({error})", str(self.path), _ANEW.format(self.path))]

    # Reading

    @_mending
    def search(
        self, query: str, *, kind: Kind | None = None, scopes: Sequence[str] | None = None, limit: int = 10
    ) -> Ranking:
        """Returns the resources whose texts fit the query best; any text is a query, and takes a bounded time.

        scopes: those that are seen, nearest first; a resource hides those of its name further away. None: all.
        """
        with self._file.reading() as db:
            found = ranking.rank(db, asked(query), _visible(kind, scopes), self._counted(db), limit)
            entries = {e.id: e for e in _entries(db, (ranked.id for ranked in found.ranked))}
        scored = tuple(Scored(entries[r.id], r.score, r.coverage, r.parts) for r in found.ranked)
        return Ranking(scored, found.mass, found.unknown, found.documents)

    def _counted(self, db: "Connection") -> Counts:
        applied = _applied(db)
        counts = self._counts
        if counts is None or counts.applied != applied:
            counts = self._counts = Counts.of(db, applied)
        return counts

    @_mending
    def phrases(
        self, heads: Iterable[str], *, kind: Kind | None = None, scopes: Sequence[str] | None = None
    ) -> list[Phrase]:
        """Returns the names and triggers that begin with one of the `heads`: their first two words, or their only."""
        visible = _visible(kind, scopes)
        query = f"""SELECT p.text, p.source, {_ENTRY} FROM json_each(?) head
            CROSS JOIN phrase p ON p.head = head.value CROSS JOIN entry e ON e.id = p.resource
            WHERE {visible.condition}"""
        with self._file.reading() as db:
            rows = db.execute(query, (json.dumps(list(heads)), *visible.values)).fetchall()
        return [Phrase(text, source, _as_entry(row)) for text, source, *row in rows]

    @_mending
    def entries(
        self,
        kind: Kind | None = None,
        scopes: Sequence[str] | None = None,
        query: str | None = None,
        limit: int = 100,
        after: tuple[str, str, str] | None = None,
    ) -> list[Entry]:
        """Returns one page of entries, ordered by name, kind and scope.

        query: each of its words must occur in the name or the description. after: name, kind and scope of the last
        entry of the page before. scopes: as in `search`. Raises InvalidArgument for a query of too many words.
        """
        visible = _visible(kind, scopes)
        conditions, values = [visible.condition], list(visible.values)
        for part in _filters(query or ""):
            conditions.append("(e.name LIKE ? ESCAPE '\\' OR e.description LIKE ? ESCAPE '\\')")
            values += [part, part]
        if after is not None:
            conditions.append("(e.name, e.kind, e.scope) > (?, ?, ?)")
            values += [_bindable(text) for text in after]
        page = f"SELECT {_ENTRY} FROM entry e WHERE {' AND '.join(conditions)} ORDER BY name, kind, scope LIMIT ?"
        with self._file.reading() as db:
            return [_as_entry(row) for row in db.execute(page, (*values, limit)).fetchall()]

    @_mending
    def entry(self, head: Head) -> Entry | None:
        """Returns the entry of a resource, None when it was removed."""
        with self._file.reading() as db:
            return next(iter(_entries(db, [head.id])), None)

    @_mending
    def names(
        self, kind: Kind | None = None, prefix: str = "", limit: int = 100, scopes: Sequence[str] | None = None
    ) -> list[str]:
        """Returns the names that begin with `prefix`, in order, each once."""
        visible = _visible(kind, scopes)
        start = _bindable(prefix)
        query = f"""SELECT DISTINCT e.name FROM entry e WHERE {visible.condition} AND e.name >= ? AND e.name < ?
            ORDER BY e.name LIMIT ?"""
        with self._file.reading() as db:
            rows = db.execute(query, (*visible.values, start, start + "\U0010ffff", limit)).fetchall()
        return [row[0] for row in rows]


def in_step(store: Store) -> Iterator[Fault]:
    """Yields what is wrong with the index of this library: a check that `fsck.check` can run."""
    with Index.open(store) as index:
        yield from index.in_step()


def _state(db: "Connection", key: str) -> str:
    row = db.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
    return str(row[0]) if row else ""


def _applied(db: "Connection") -> int:
    return int(_state(db, "applied") or 0)


def _version_and_tree(db: "Connection", id_: int) -> tuple[int, str] | None:
    row = db.execute("SELECT version, tree FROM entry WHERE id = ?", (id_,)).fetchone()
    return (row[0], row[1]) if row else None


def _forget(db: "Connection", id_: int) -> None:
    known = db.execute("DELETE FROM entry WHERE id = ?", (id_,)).rowcount
    if known:
        db.execute("DELETE FROM phrase WHERE resource = ?", (id_,))
        for field in FIELDS:
            db.execute(f"DELETE FROM text_{field} WHERE rowid = ?", (id_,))


def _keep(db: "Connection", head: Head, document: frontmatter.Document) -> None:
    summary = frontmatter.summary(document)
    description = _bindable(summary.description[:MAX_DESCRIPTION])
    triggers = tuple(_bindable(trigger) for trigger in summary.triggers[:_MOST_PHRASES])
    row = (head.id, head.kind, head.scope, head.name, head.version, description, json.dumps(triggers))
    db.execute(
        "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*row, int(head.frozen), _bindable(summary.delegate), head.tree),
    )
    # A file may call itself otherwise than its folder; it is found by both.
    names = dict.fromkeys(" ".join(words(name)) for name in (head.name, summary.name))
    texts = {
        "name": " ".join(names),
        "description": description,
        "triggers": "\n".join(triggers),
        "body": document.body[:MAX_BODY],
    }
    for field in FIELDS:
        if texts[field]:
            db.execute(f"INSERT INTO text_{field} (rowid, text) VALUES (?, ?)", (head.id, spaced(texts[field])))
    phrases = [(text, "name") for text in names] + [(" ".join(words(trigger)), "trigger") for trigger in triggers]
    rows = [(" ".join(text.split(" ", 2)[:2]), text, source, head.id) for text, source in phrases if text]
    db.executemany("INSERT OR IGNORE INTO phrase VALUES (?, ?, ?, ?)", rows)


def _visible(kind: Kind | None, scopes: Sequence[str] | None) -> Visible:
    conditions, values = ["1"], list[Any]()
    if kind is not None:
        conditions.append("e.kind = ?")
        values.append(kind)
    if scopes is not None:
        seen: list[str] = []
        nearest = []
        for scope in dict.fromkeys(_bindable(scope) for scope in scopes):
            hidden = "SELECT 1 FROM entry n WHERE n.name = e.name AND n.kind = e.kind AND n.scope IN"
            unhidden = f" AND NOT EXISTS ({hidden} ({', '.join('?' * len(seen))}))" if seen else ""
            nearest.append(f"e.scope = ?{unhidden}")
            values += [scope, *seen]
            seen.append(scope)
        conditions.append(f"({' OR '.join(nearest) or '0'})")
    return Visible(" AND ".join(conditions), tuple(values))


def _filters(query: str) -> list[str]:
    """Returns a LIKE pattern for each word of a listing's filter."""
    parts = _bindable(query).split()
    if len(parts) > _MOST_FILTERS or len(query) > 1_000:
        raise InvalidArgument("The query is too long for a list.", "Give a word of the name; find_skill takes a task.")
    escaped = (part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") for part in parts)
    return [f"%{part}%" for part in escaped]


def _bindable(text: str) -> str:
    """Returns the text as SQLite can take it: without NUL, and with a mark for what is no Unicode."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")


def _entries(db: "Connection", ids: Iterable[int]) -> list[Entry]:
    query = f"SELECT {_ENTRY} FROM entry e WHERE e.id IN (SELECT value FROM json_each(?))"
    return [_as_entry(row) for row in db.execute(query, (json.dumps(list(ids)),)).fetchall()]


def _as_entry(row: Any) -> Entry:
    id_, kind, scope, name, version, description, triggers, frozen, delegate, tree = row
    said = tuple(json.loads(triggers)) if triggers != "[]" else ()
    return Entry(id_, Kind(kind), scope, name, version, description, said, frozen == 1, delegate, tree)


def _faults(db: "Connection", heads: Iterable[Head], path: str) -> Iterator[Fault]:
    anew = _ANEW.format(path)
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
    for field in FIELDS:
        stray = f"SELECT count(*) FROM text_{field}_docsize WHERE id NOT IN (SELECT id FROM entry)"
        lost = f"SELECT count(*) FROM text_{field}_docsize" if field == "name" else "SELECT count(*) FROM entry"
        if db.execute(stray).fetchone()[0] or db.execute(lost).fetchone()[0] != len(rows):
            yield Fault(f"its {field} texts are not those of its entries", path, anew)
