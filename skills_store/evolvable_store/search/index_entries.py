"""The entry of each living resource in the index, and the names and triggers that call it."""

import contextlib
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from evolvable_store import frontmatter
from evolvable_store.errors import InvalidArgument
from evolvable_store.objects import unpack_verified
from evolvable_store.operation import Head
from evolvable_store.resource import Kind, StoredResource
from evolvable_store.search.analyzer import Learned, pack_weights, terms, weigh_fields
from evolvable_store.search.postings import VisibilityFilter
from evolvable_store.search.tokenizer import tokenize
from evolvable_store.storage.connection import Connection

MAX_DESCRIPTION = 8_192
"""Characters of a description that are kept; the specification allows 1,024."""

_MOST_PHRASES = 100  # triggers of one resource
# LIKE has no index here: each word is a scan.
_MOST_FILTERS = 16  # words of a listing's filter
_MOST_CLAIMS = 64  # resources with one phrase; a phrase of more tells nothing
_MOST_MATCHED = 200  # phrases of one text

_ENTRY = """e.id, e.kind, e.scope, e.name, e.version, e.description, e.triggers, e.frozen,
    e.delegate, e.tree, e.person_only"""


@dataclass(frozen=True, slots=True)
class IndexEntry(StoredResource):
    """The fields of a living resource's head in the index.

    delegate: the ref of the agent that does its work, '' for none. person_only: no model is offered
    it.
    """

    version: int
    description: str
    triggers: tuple[str, ...]
    frozen: bool
    delegate: str
    tree: str
    person_only: bool = False


# `PrefixFilter` has the terms with which a name or a trigger begins. Hardly any two neighbouring
# words of a task begin one, so a filter in memory saves most searches of a table in the index.

_MARK = "\t"
# A name of one word is marked: a task has many words that are such names, and means few of them.
_MARKED = f"iif(p.size = 1 AND p.source = 'name', '{_MARK}' || p.head, p.head)"
# A smaller filter would send more lookups to the table for nothing.
_BITS = 64  # for each phrase; about one prefix in a hundred that begins none passes the filter
_LEAST = 1 << 13  # bits: one KiB


class PrefixFilter:
    """A Bloom filter with one hash (B. H. Bloom, 1970): a prefix that it lacks begins no phrase.

    It keeps the prefixes of phrases that are gone. Safe to read while another thread adds to it.
    """

    def __init__(self) -> None:
        self._bits = bytearray()
        # Phrases added, and the newest document whose phrases are.
        self._count = self._last = 0

    def extended_to(self, db: Connection, last: int) -> Self:
        """Return a filter for the state of the connection: this one extended, or a larger one.

        last: the newest document.
        """
        # Numbers of documents only grow, so a range finds the new ones.
        if last > self._last:
            query = (
                f"SELECT {_MARKED} FROM entry e JOIN phrase p ON p.resource = e.id "
                "WHERE e.document > ?"
            )
            new = [head for (head,) in db.execute(query, (self._last,)).fetchall()]
            # A fuller filter would let too many prefixes pass.
            if (self._count + len(new)) * _BITS > 8 * len(self._bits):
                return self._make_larger(db, last)
            self._add(new, last)
        return self

    def _make_larger(self, db: Connection, last: int) -> Self:
        every = [head for (head,) in db.execute(f"SELECT {_MARKED} FROM phrase p").fetchall()]
        larger = type(self)()
        # Twice the size that is needed: the phrases of a growing library are seldom all read again.
        # A power of two: see `_add`.
        size = max(_LEAST, 1 << (2 * len(every) * _BITS - 1).bit_length())
        larger._bits = bytearray(size // 8)
        larger._add(every, last)
        return larger

    def _add(self, prefixes: Sequence[str], last: int) -> None:
        # The size is a power of two, so a mask takes the place of a division.
        bits, mask = self._bits, 8 * len(self._bits) - 1
        # hash() differs between processes, but each makes a filter of its own.
        for prefix in prefixes:
            at = hash(prefix) & mask
            bits[at >> 3] |= 1 << (at & 7)
        self._count, self._last = self._count + len(prefixes), last

    def among(self, prefixes: Iterable[str]) -> list[str]:
        """Return the prefixes with which a phrase may begin.

        A prefix is two terms with a space between, or one term; those of names of one word are
        marked: see `filter_names`.
        """
        bits, mask = self._bits, 8 * len(self._bits) - 1
        if not bits:
            return []
        return [
            prefix for prefix in prefixes if bits[(at := hash(prefix) & mask) >> 3] >> (at & 7) & 1
        ]

    def filter_names(self, terms: Iterable[str]) -> list[str]:
        """Return the terms that may be a name of one word."""
        return [term for term in terms if self.among((_MARK + term,))]


@dataclass(frozen=True, slots=True)
class TriggerPhrase:
    """A name or a trigger: its words with single spaces between, and the entry that it calls.

    source: `name` or `trigger`.
    """

    text: str
    source: str
    entry: IndexEntry


MAX_DELEGATE = 200
"""Characters of the ref of a delegate that are kept."""


@dataclass(frozen=True, slots=True)
class EntryText:
    """The texts of a main file for the index, cut to their limits."""

    names: tuple[str, ...]
    description: str
    triggers: tuple[str, ...]
    person_only: bool
    delegate: str

    @classmethod
    def of(cls, name: str, document: frontmatter.Document) -> "EntryText":
        """Return the texts of a document.

        A resource whose frontmatter has another name goes by both names.
        """
        summary = frontmatter.summarize(document)
        names = (name, bindable(summary.name)) if summary.name else (name,)
        return cls(
            tuple(dict.fromkeys(names)),
            bindable(summary.description[:MAX_DESCRIPTION]),
            tuple(bindable(trigger) for trigger in summary.triggers[:_MOST_PHRASES]),
            summary.person_only,
            bindable(summary.delegate.agent[:MAX_DELEGATE]) if summary.delegate else "",
        )

    def entry(self, head: Head) -> IndexEntry:
        """Return the entry of a resource with these texts."""
        return IndexEntry(
            head.id,
            head.kind,
            head.scope,
            head.name,
            head.version or 0,
            self.description,
            self.triggers,
            head.frozen,
            self.delegate,
            head.tree,
            self.person_only,
        )


@dataclass(frozen=True, slots=True)
class SourceText:
    """The stored data of one resource, for `analyze_source`.

    main: hash, stored bytes and codec of its main file, None where there is none. paths: its other
    files. learned: the learned tasks that count for it.
    """

    name: str
    main: tuple[str, bytes, str] | None
    paths: Sequence[str]
    learned: Learned


AnalyzedText = tuple[EntryText, bytes]
"""The texts of a resource for its entry, and the packed weights of its terms."""


def analyze_source(source: SourceText) -> AnalyzedText:
    """Return the texts of a resource for its entry, and the packed weights of its terms.

    Pure, so any process can do it.
    """
    data = b""
    if source.main is not None:
        # A resource with a damaged main file is still found by its name; fsck reports the damage.
        with contextlib.suppress(zlib.error):
            data = unpack_verified(*source.main)
    return analyze_document(
        source.name, frontmatter.parse_document(data), source.paths, source.learned
    )


def analyze_document(
    name: str, document: frontmatter.Document, paths: Sequence[str], learned: Learned = ()
) -> AnalyzedText:
    """Return the same as `analyze_source` for a main file that is parsed already."""
    text = EntryText.of(name, document)
    fields = weigh_fields(
        text.names, text.description, text.triggers, document.body, paths, learned
    )
    return text, pack_weights(fields)


def insert_entry(db: Connection, head: Head, text: EntryText, document: int) -> None:
    """Write the entry of a resource and the phrases that call it.

    document: the number of its text.
    """
    row = (
        head.id,
        head.kind,
        head.scope,
        head.name,
        head.version,
        text.description,
        json.dumps(text.triggers),
        int(head.frozen),
        int(text.person_only),
        text.delegate,
        head.tree,
        document,
    )
    db.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    phrases = [(tokenize(name), "name") for name in text.names]
    phrases += [(tokenize(trigger), "trigger") for trigger in text.triggers]
    rows = [
        (*_phrase_key(terms(words)), source, " ".join(words), head.id)
        for words, source in phrases
        if words
    ]
    # OR IGNORE: a trigger can repeat the name.
    db.executemany("INSERT OR IGNORE INTO phrase VALUES (?, ?, ?, ?, ?, ?)", rows)


def _phrase_key(phrase_terms: Sequence[str]) -> tuple[str, int, str]:
    """Return the columns by which a phrase is found: its prefix, the number of terms, the terms."""
    return " ".join(phrase_terms[:2]), len(phrase_terms), " ".join(phrase_terms)


def delete_entry(db: Connection, id_: int) -> int | None:
    """Remove an entry and its phrases.

    Return the number of its document, None when there is no entry.
    """
    row = db.execute("DELETE FROM entry WHERE id = ? RETURNING document", (id_,)).fetchone()
    if row:
        db.execute("DELETE FROM phrase WHERE resource = ?", (id_,))
    return int(row[0]) if row else None


def find_entry(db: Connection, id_: int) -> IndexEntry | None:
    """Return the entry of a resource, None where there is none."""
    row = db.execute(f"SELECT {_ENTRY} FROM entry e WHERE e.id = ?", (id_,)).fetchone()
    return _as_entry(row) if row else None


def entries_of_documents(db: Connection, documents: Iterable[int]) -> dict[int, IndexEntry]:
    """Return the entries of these documents, by document."""
    query = (
        f"SELECT e.document, {_ENTRY} FROM entry e WHERE e.document IN (SELECT value "
        "FROM json_each(?))"
    )
    rows = db.execute(query, (json.dumps(list(documents)),)).fetchall()
    return {document: _as_entry(row) for document, *row in rows}


def documents_of_resources(
    db: Connection, ids: Iterable[int], visible: VisibilityFilter
) -> dict[int, int]:
    """Return the documents of the visible ones among these resources, each with its resource."""
    query = f"""SELECT e.document, e.id FROM entry e
        WHERE {visible.condition} AND e.id IN (SELECT value FROM json_each(?))"""
    return dict(db.execute(query, (*visible.values, json.dumps(list(ids)))).fetchall())


def match_phrases(
    db: Connection,
    words: Sequence[str],
    names: Iterable[str] | None,
    visible: VisibilityFilter,
    beginnings: PrefixFilter,
) -> list[TriggerPhrase]:
    """Return the phrases whose words stand side by side in a text; see Index.phrases.

    beginnings: the filter of every phrase.
    """
    text_terms = terms(map(bindable, words))
    name_terms = frozenset(text_terms if names is None else terms(map(bindable, names)))
    called = [term for term in text_terms if term in name_terms]
    keys = [_phrase_key([term]) for term in _single_terms(db, text_terms, called, beginnings)]
    keys += _existing_keys(db, _possible_keys(db, text_terms, beginnings))
    # CROSS JOIN fixes the order of the tables: SQLite would otherwise read all entries first.
    query = f"""SELECT p.said, p.source, {_ENTRY} FROM phrase p CROSS JOIN entry e
        ON e.id = p.resource
        WHERE p.head = ? AND p.size = ? AND p.text = ? AND {visible.condition}
        LIMIT {_MOST_CLAIMS}"""
    phrases: list[TriggerPhrase] = []
    for key in keys[:_MOST_MATCHED]:
        rows = db.execute(query, (*key, *visible.values)).fetchall()
        phrases += [TriggerPhrase(text, source, _as_entry(row)) for text, source, *row in rows]
    return phrases


def _single_terms(
    db: Connection, text_terms: Sequence[str], called: Sequence[str], beginnings: PrefixFilter
) -> list[str]:
    """Return the terms that are a trigger of one word, and those of `called` that are a name."""
    triggers = beginnings.among(dict.fromkeys(text_terms))
    names = beginnings.filter_names(dict.fromkeys(called))
    query = """SELECT j.value FROM json_each(?) j WHERE EXISTS (SELECT 1 FROM phrase p
        WHERE p.head = j.value AND p.size = 1 AND p.text = j.value AND p.source = ?)"""
    single_terms = list[str]()
    for candidates, source in ((names, "name"), (triggers, "trigger")):
        if candidates:
            rows = db.execute(query, (json.dumps(candidates), source)).fetchall()
            single_terms += [term for (term,) in rows]
    return list(dict.fromkeys(single_terms))


def _possible_keys(
    db: Connection, text_terms: Sequence[str], beginnings: PrefixFilter
) -> list[tuple[str, int, str]]:
    """Return the key of each run of terms that begins as a phrase does and is as long as that."""
    starts: dict[str, list[int]] = {}
    for at in range(len(text_terms) - 1):
        starts.setdefault(f"{text_terms[at]} {text_terms[at + 1]}", []).append(at)
    prefixes = beginnings.among(starts)
    query = (
        "SELECT DISTINCT p.head, p.size FROM json_each(?) head CROSS "
        "JOIN phrase p ON p.head = head.value"
    )
    sizes = db.execute(query, (json.dumps(prefixes),)).fetchall() if prefixes else []
    return [
        _phrase_key(text_terms[at : at + size])
        for head, size in sizes
        for at in starts[head]
        if at + size <= len(text_terms)
    ]


def _existing_keys(
    db: Connection, keys: Sequence[tuple[str, int, str]]
) -> list[tuple[str, int, str]]:
    """Return the keys that some phrase has."""
    if not keys:
        return []
    query = """SELECT j.value FROM json_each(?) j WHERE EXISTS (SELECT 1 FROM phrase p
        WHERE p.head = j.value ->> 0 AND p.size = j.value ->> 1 AND p.text = j.value ->> 2)"""
    rows = db.execute(query, (json.dumps(list(dict.fromkeys(keys))),)).fetchall()
    existing = (json.loads(data) for (data,) in rows)
    return [(prefix, size, text) for prefix, size, text in existing]


def list_entries(
    db: Connection,
    visible: VisibilityFilter,
    query: str,
    limit: int,
    after: tuple[str, str, str] | None,
) -> list[IndexEntry]:
    """Return one page of entries; see Index.entries."""
    conditions, values = [visible.condition], list(visible.values)
    for pattern in _like_patterns(query):
        conditions.append("(e.name LIKE ? ESCAPE '\\' OR e.description LIKE ? ESCAPE '\\')")
        values += [pattern, pattern]
    # After the last row and not by OFFSET: the next page then repeats and misses nothing where
    # others add or remove entries.
    if after is not None:
        conditions.append("(e.name, e.kind, e.scope) > (?, ?, ?)")
        values += [bindable(text) for text in after]
    select = (
        f"SELECT {_ENTRY} FROM entry e WHERE {' AND '.join(conditions)} "
        "ORDER BY name, kind, scope LIMIT ?"
    )
    return [_as_entry(row) for row in db.execute(select, (*values, limit)).fetchall()]


def list_names(db: Connection, visible: VisibilityFilter, prefix: str, limit: int) -> list[str]:
    """Return names that begin with `prefix`; see Index.names."""
    start = bindable(prefix)
    query = f"""SELECT DISTINCT e.name FROM entry e WHERE {visible.condition} AND e.name >= ?
        AND e.name < ?
        ORDER BY e.name LIMIT ?"""
    # A range uses the index of names; LIKE would not.
    rows = db.execute(query, (*visible.values, start, start + "\U0010ffff", limit)).fetchall()
    return [row[0] for row in rows]


def visibility(
    kind: Kind | None,
    scopes: Sequence[str] | None,
    untrusted: Sequence[int] = (),
    *,
    person_only: bool = True,
) -> VisibilityFilter:
    """Return the condition for entries of a kind in these scopes, nearest first (None: all).

    untrusted: resources that hide no others of their name. person_only: include entries that no
    model is offered.
    """
    conditions, values = ["1" if person_only else "e.person_only = 0"], list[Any]()
    if kind is not None:
        conditions.append("e.kind = ?")
        values.append(kind)
    if scopes is not None:
        # For each scope a condition that refuses what a nearer scope hides.
        nearer: list[str] = []
        alternatives = []
        for scope in dict.fromkeys(bindable(scope) for scope in scopes):
            alternatives.append(f"e.scope = ?{_unless_hidden(len(nearer), bool(untrusted))}")
            values += [scope, *nearer]
            if nearer and untrusted:
                values.append(json.dumps(list(untrusted)))
            nearer.append(scope)
        conditions.append(f"({' OR '.join(alternatives) or '0'})")
    return VisibilityFilter(" AND ".join(conditions), tuple(values))


def _unless_hidden(scopes: int, has_untrusted: bool) -> str:
    """Return the condition that no resource of a nearer scope has the kind and the name.

    scopes: how many nearer ones there are.
    """
    if not scopes:
        return ""
    hiding = "SELECT 1 FROM entry n WHERE n.name = e.name AND n.kind = e.kind AND n.scope IN"
    exceptions = " AND n.id NOT IN (SELECT value FROM json_each(?))" if has_untrusted else ""
    return f" AND NOT EXISTS ({hiding} ({', '.join('?' * scopes)}){exceptions})"


def _like_patterns(query: str) -> list[str]:
    """Return a LIKE pattern for each word of a listing's filter."""
    parts = bindable(query).split()
    if len(parts) > _MOST_FILTERS or len(query) > 1_000:
        raise InvalidArgument(
            "The query is too long for a list.", "Give a word of the name; find_skill takes a task."
        )
    # % and _ are what a person searches for here, not wildcards.
    escaped = (part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") for part in parts)
    return [f"%{part}%" for part in escaped]


def bindable(text: str) -> str:
    """Return the text as SQLite can store it: without NUL, and with a question mark for invalid
    Unicode.
    """
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")


def _as_entry(row: Any) -> IndexEntry:
    id_, kind, scope, name, version, description, triggers, *rest = row
    frozen, delegate, tree, person_only = rest
    trigger_texts = tuple(json.loads(triggers)) if triggers != "[]" else ()
    about = (version, description, trigger_texts, frozen == 1, delegate, tree, person_only == 1)
    return IndexEntry(id_, Kind(kind), scope, name, *about)
