"""The authors of the versions in a provenance, and the contents that a person vouches for."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolvable_store.objects import Manifest
from evolvable_store.operation import (
    Actor,
    FollowedPull,
    Identity,
    Principal,
    implied_principal,
    read_pull,
)
from evolvable_store.provenance import Provenance, derive
from evolvable_store.resource import is_plugins
from evolvable_store.storage.connection import Connection, read_queries
from evolvable_store.storage.sqlite_file import SqliteRepository

QUERIES = read_queries()

_RECENT_VERSIONS = 50
"""Versions of one resource that are read to find a base or the makers of a content."""

# Three numbers that only grow: nothing that trust depends on can change without one of them.
_STAMP = """SELECT (SELECT coalesce(max(sequence), 0) FROM change), (SELECT coalesce(max(id), 0)
    FROM vouched),
    (SELECT count(*) FROM attribution)"""

Trees = Callable[[Connection, int], Collection[str]]
"""Returns the contents of a resource that a person vouches for, by their tree."""


@dataclass(frozen=True, slots=True)
class Attestation:
    """A content that a person vouches for: who decided, when, and how that is known.

    folder: of a decision to trust a folder, '' for a decision on this resource, None where an
    earlier version did not store it.
    """

    resource: int
    tree: str
    at: str
    principal: Principal
    via: str
    signature: bytes | None = None
    folder: str | None = ""

    def counts(self, folders: frozenset[str] | None) -> bool:
        """Return whether the decision counts where the person trusts these folders; None: all."""
        return folders is None or self.folder == "" or self.folder in folders

    @property
    def statement(self) -> bytes:
        """The bytes that are signed, where approvals are locked."""
        fields = [self.resource, self.tree, self.at, self.principal, self.via]
        # Without an empty folder: decisions of earlier versions were signed in that form.
        fields += [self.folder] if self.folder else []
        return json.dumps(["evolvable vouched", 1, fields]).encode("ascii")


def list_attestations(
    db: Connection, resources: Iterable[int], folders: frozenset[str] | None
) -> list[Attestation]:
    """Return the decisions of a person on contents of these resources.

    folders: those that the person trusts.
    """
    rows = db.execute(QUERIES["attestation"], (json.dumps(list(resources)),)).fetchall()
    attestations = (
        Attestation(resource, tree, at, Principal(principal), *rest)
        for resource, tree, at, principal, *rest in rows
    )
    return [attestation for attestation in attestations if attestation.counts(folders)]


def vouched_tree_reader(folders: frozenset[str] | None) -> Trees:
    """Return a reader of the contents of a resource that a person vouches for.

    folders: those that the person trusts.
    """
    return lambda db, resource: {
        attestation.tree for attestation in list_attestations(db, [resource], folders)
    }


@dataclass(frozen=True, slots=True)
class VersionAuthor:
    """Who made a version: the principal that answers for it, and how that is known.

    proposed: it approved what somebody else had proposed.
    """

    version: int
    tree: str
    actor: Actor
    principal: Principal
    via: str
    session: str | None
    operation: int
    at: str
    proposed: bool

    @property
    def is_person(self) -> bool:
        """Whether a person made it, or a script that may decide as one."""
        return self.principal is Principal.PERSON or (
            self.principal is Principal.SCRIPT and self.actor is Actor.HUMAN
        )

    @property
    def is_agent(self) -> bool:
        """Whether an agent made it, or a script that decides nothing."""
        return self.principal in (Principal.AGENT, Principal.SCRIPT) and not self.is_person

    @property
    def pull(self) -> FollowedPull | None:
        """The pull that brought it to a folder whose pulls are followed, None for any other."""
        return read_pull(Identity(self.principal, self.via))

    @property
    def is_stranger(self) -> bool:
        """Whether a repository, an archive or a plugin brought it."""
        return self.principal in (Principal.REPOSITORY, Principal.IMPORT)


@dataclass(frozen=True, slots=True)
class VersionAuthors:
    """The provenance of a version, its maker, and the makers of the versions in its provenance.

    resource: the id. kind, scope, name: of the resource. others: by number.
    """

    resource: int
    kind: str
    scope: str
    name: str
    maker: VersionAuthor
    provenance: Provenance
    others: Mapping[int, VersionAuthor] = field(default_factory=dict)

    @property
    def base(self) -> VersionAuthor | None:
        """Who made the base; None where a person stood for no version."""
        return self.others.get(self.provenance.base)

    def is_decided(self, trees: Collection[str]) -> bool:
        """Return whether a person decided on this content.

        trees: the contents that a person vouches for. Of a plugin, one decision is enough: a person
        is asked about an update only where the scan asks, and before it becomes a version.
        """
        return self.maker.tree in trees or (bool(trees) and is_plugins(self.scope))

    def standing_base(self, trees: Collection[str]) -> VersionAuthor | None:
        """Return the base where a person still stands for it."""
        base = self.base
        return base if base is not None and (base.is_person or base.tree in trees) else None

    def authors_of(self, path: str, trees: Collection[str]) -> list[VersionAuthor]:
        """Return the authors of the bytes of a file, oldest first.

        None of them where a person stands for the whole file.

        A stranger stays an author of a file when others change it; other authors only while bytes
        of theirs are in it.
        """
        parts = self.provenance.files.get(path, ())
        makers = [
            (self.others[part.version], part.is_there)
            for part in parts
            if part.version in self.others
        ]
        authors = [author for author, is_there in makers if is_there or author.is_stranger]
        if self.base is not None and self.standing_base(trees) is None:
            return [self.base, *authors]
        return authors

    def is_repositorys(self, trees: Collection[str], folders: Collection[str] | None) -> bool:
        """Return whether a repository brought bytes of it on which no person decided.

        folders: those that the person trusts. To follow the pulls of a folder is a decision on what
        they bring.
        """
        if self.is_decided(trees):
            return False
        # '' stands for the files without parts, whose author is the base's.
        paths = (*self.provenance.files, "")
        authors = (author for path in paths for author in self.authors_of(path, trees))
        return any(
            author.principal is Principal.REPOSITORY and not is_followed(author, folders)
            for author in authors
        )


def is_followed(author: VersionAuthor, folders: Collection[str] | None) -> bool:
    """Return whether a pull that the person follows brought a version.

    folders: those that the person trusts; None: all.
    """
    pull = author.pull
    return pull is not None and (folders is None or pull.folder in folders)


def effective_principal(actor: str, principal: str | None, arrived: int) -> Principal:
    """Return the principal of an operation as it counts here.

    arrived: the operation came with an archive.
    """
    # An archive's author can write any principal into it.
    if arrived:
        return Principal.IMPORT
    return Principal(principal) if principal else implied_principal(Actor(actor))


def read_author(row: Sequence[Any]) -> VersionAuthor:
    """Return the author in a row of the query `version_authors`, without the resource."""
    version, tree, actor, principal, arrived, via, session, operation, at, evidence = row
    # A search in the text before a parse of JSON: few operations approve a proposal.
    proposed = "proposal " in (evidence or "") and any(
        text.startswith("proposal ") and " by human" not in text for text in json.loads(evidence)
    )
    answers = effective_principal(actor, principal, arrived)
    return VersionAuthor(
        version, tree, Actor(actor), answers, via, session, operation, at, proposed
    )


Stands = Callable[[VersionAuthor], bool]
"""Tells whether a version is one that a person stands for."""


def read_newest(
    db: Connection, resources: Iterable[int], vouched: Trees
) -> dict[int, VersionAuthors]:
    """Return by resource the authors of its newest version."""
    rows = db.execute(QUERIES["newest_provenance"], (json.dumps(list(resources)),)).fetchall()
    entries = [_Row(db, row, vouched) for row in rows]
    # One query for all resources: a number of another resource only adds a row.
    numbers = {
        number
        for entry in entries
        for number in entry.provenance.versions
        if number != entry.maker.version
    }
    others: dict[int, dict[int, VersionAuthor]] = {
        entry.resource: {entry.maker.version: entry.maker} for entry in entries
    }
    if numbers:
        pairs = json.dumps(list(others)), json.dumps(list(numbers))
        for resource, *row in db.execute(QUERIES["version_authors"], pairs).fetchall():
            others[resource][row[0]] = read_author(row)
    return {
        entry.resource: entry.authors(entry.provenance, others[entry.resource]) for entry in entries
    }


def read_version(
    db: Connection, resource: int, number: int, vouched: Trees, stands: Stands | None = None
) -> VersionAuthors | None:
    """Return the authors of one version, None where there is no such version.

    stands: which versions may be the base; None: as stored.
    """
    row = db.execute(QUERIES["provenance"], (resource, number)).fetchone()
    if row is None:
        return None
    version_row = _Row(db, row, vouched)
    provenance = version_row.provenance
    if stands is not None:
        provenance = _derive_provenance(db, resource, number, stands)
    others = {number: version_row.maker}
    if not provenance.versions <= others.keys():
        pairs = json.dumps([resource]), json.dumps(list(provenance.versions))
        rows = db.execute(QUERIES["version_authors"], pairs).fetchall()
        others |= {row[1]: read_author(row[1:]) for row in rows}
    return version_row.authors(provenance, others)


def read_provenance(db: Connection, resource: int, number: int, vouched: Trees) -> Provenance:
    """Return the provenance of a version, against the base that counts now."""
    # Without the table of operations: a version of the same transaction has no row there yet.
    query = """SELECT tree, provenance, EXISTS (SELECT 1 FROM vouched v
        WHERE v.resource = c.resource)
        FROM change c WHERE c.resource = ? AND c.latest = ? AND c.manifest IS NOT NULL"""
    tree, text, decided = db.execute(query, (resource, number)).fetchone()
    trees = vouched(db, resource) if decided else ()
    # A person decided on this very content after it was written.
    if tree in trees:
        return Provenance(number)
    if text is not None:
        return Provenance.from_json(text)
    return _derive_provenance(db, resource, number, _person_stands(trees))


def _person_stands(trees: Collection[str]) -> Stands:
    """Return the test for versions that a person made or vouches for."""
    return lambda author: author.is_person or author.tree in trees


class _Row:
    """One row of a query for provenance."""

    def __init__(self, db: Connection, row: tuple[Any, ...], vouched: Trees) -> None:
        self.resource, self.kind, self.scope, self.name = row[:4]
        self.maker = read_author(row[4:-1])
        # NULL: written by a version before provenance was stored, so it is derived from the
        # history.
        if row[-1] is not None:
            self.provenance = Provenance.from_json(row[-1])
        elif self.maker.is_person:
            self.provenance = Provenance(self.maker.version)
        else:
            trees = vouched(db, self.resource)
            version, stands = self.maker.version, _person_stands(trees)
            self.provenance = _derive_provenance(db, self.resource, version, stands)

    def authors(
        self, provenance: Provenance, others: Mapping[int, VersionAuthor]
    ) -> VersionAuthors:
        return VersionAuthors(
            self.resource, self.kind, self.scope, self.name, self.maker, provenance, others
        )


def _derive_provenance(db: Connection, resource: int, number: int, stands: Stands) -> Provenance:
    """Return the provenance of a version by its history, in which whole files count as changed.

    It replaces the provenance that a version of an earlier program lacks, or whose base does not
    count any more.
    """
    rows = db.execute(QUERIES["provenances"], (resource, number, _RECENT_VERSIONS)).fetchall()
    manifests = list[tuple[int, Manifest]]()
    for *row, manifest in rows:
        author = read_author(row)
        manifests.append((author.version, Manifest.from_json(manifest)))
        # Newest first: the nearest version that a person stands for is the base.
        if stands(author):
            return derive(author.version, reversed(manifests))
    return derive(0, reversed(manifests))


class AuthorshipReader(SqliteRepository):
    """The makers of versions, and the contents that a person vouches for, for reading."""

    def attestations_of(
        self, resources: Iterable[int], *, unlisted: bool = False
    ) -> list[Attestation]:
        """Return the decisions on these resources that count, oldest first.

        unlisted: also those on folders that are none of the backend's `trusted_folders`.
        """
        folders = None if unlisted else self._backend.trusted_folders()
        with self._backend.reading() as db:
            return list_attestations(db, resources, folders)

    def stamp(self) -> tuple[int, int, int, frozenset[str] | None]:
        """Return a value that changes whenever an answer of `untrusted_resources` may change."""
        with self._backend.reading() as db:
            change, decision, attributions = db.execute(_STAMP).fetchone()
        return change, decision, attributions, self._backend.trusted_folders()

    def untrusted_resources(self, resources: Sequence[int] | None = None) -> set[int]:
        """Return the resources whose newest version is a repository's, or was built on one.

        resources: only among these; None: all. A content that a person made or vouches for is
        trusted.
        """
        folders = self._backend.trusted_folders()
        trees = vouched_tree_reader(folders)
        with self._backend.reading() as db:
            # A cheap query finds the few that could be untrusted; only their authors are read.
            suspects = {row[0] for row in db.execute(QUERIES["brought"]).fetchall()}
            if resources is not None:
                suspects &= set(resources)
            newest = read_newest(db, suspects, trees) if suspects else {}
            return {
                resource
                for resource, authors in newest.items()
                if authors.is_repositorys(trees(db, resource), folders)
            }

    def newest_authors(self, resources: Iterable[int]) -> dict[int, VersionAuthors]:
        """Return the authors of the newest version, by resource."""
        with self._backend.reading() as db:
            return read_newest(db, resources, vouched_tree_reader(self._backend.trusted_folders()))

    def changed_resources(self) -> list[int]:
        """Return the resources whose newest version may differ from what a person stood for.

        Without resources whose only version a stranger brought: they need trust, and no look.
        """
        return self._all(int, QUERIES["changed_since_base"], '%"files"%')

    def version_authors(
        self, resource: int, number: int, stands: Stands | None = None
    ) -> VersionAuthors | None:
        """Return the authors of a version, None where there is no such version.

        stands: tells which versions may be the base; by default those that counted when the version
        was written.
        """
        with self._backend.reading() as db:
            return read_version(
                db, resource, number, vouched_tree_reader(self._backend.trusted_folders()), stands
            )

    def list_authors(self, resources: Iterable[int]) -> dict[int, list[VersionAuthor]]:
        """Return by resource the authors of its newest content, newest first."""
        ids = json.dumps(list(resources))
        authors: dict[int, list[VersionAuthor]] = {}
        for resource, *row in self._rows(QUERIES["authors"], ids, _RECENT_VERSIONS):
            authors.setdefault(resource, []).append(read_author(row))
        return authors
