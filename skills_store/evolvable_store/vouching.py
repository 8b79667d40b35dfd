"""Decisions on what others brought: contents that a person vouches for, and versions whose author was learned later.

A repository's content is untrusted until a person vouches for it, and so is what others than a person built on it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evolvable_store.operation import Actor, Identity, Principal, Signer
from evolvable_store.sqlite import SqliteBackend

if TYPE_CHECKING:
    from evolvable_store.driver import Connection

_NEWEST = 50
"""Versions of a resource that are looked at."""

_BUILDS_ON = (Principal.AGENT, Principal.UNKNOWN)
"""Whose changes leave untrusted what they build on."""


@dataclass(frozen=True, slots=True)
class Vouched:
    """A content that a person vouches for: who decided when, and how that is known.

    folder: whose trust the decision is a part of, '' for a decision on this resource, None where nobody kept it.
    """

    resource: int
    tree: str
    at: str
    principal: Principal
    via: str
    signature: bytes | None = None
    folder: str | None = ""

    def counts(self, folders: frozenset[str] | None) -> bool:
        """Return whether the decision counts where the person trusts these folders. None: every one."""
        return folders is None or self.folder == "" or self.folder in folders

    @property
    def statement(self) -> bytes:
        """What is signed of it, where approvals are locked."""
        fields = [self.resource, self.tree, self.at, self.principal, self.via]
        fields += [self.folder] if self.folder else []
        return json.dumps(["evolvable vouched", 1, fields]).encode("ascii")


class Vouching:
    """The decisions of one library."""

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend

    def vouch(
        self,
        contents: Iterable[tuple[int, str]],
        at: str,
        identity: Identity,
        signer: Signer | None = None,
        folder: str = "",
    ) -> None:
        """Note that a person vouches for these contents (resource, tree).

        signer: where approvals are locked. folder: where the person trusts a folder that holds them; the decision
        counts while that folder is one of the backend's `trusted_folders`.
        """
        self._add(contents, at, identity, 0, signer, folder)

    def withdraw(self, contents: Iterable[tuple[int, str]], at: str, identity: Identity) -> None:
        """Note that a person no longer vouches for these contents."""
        self._add(contents, at, identity, 1)

    def _add(
        self,
        contents: Iterable[tuple[int, str]],
        at: str,
        identity: Identity,
        withdrawn: int,
        signer: Signer | None = None,
        folder: str = "",
    ) -> None:
        who = identity.principal, identity.via
        rows = []
        for resource, tree in contents:
            signature = signer.sign(Vouched(resource, tree, at, *who, folder=folder).statement) if signer else None
            rows.append((resource, tree, at, *who, withdrawn, signature, folder))
        insert = """INSERT INTO vouched (resource, tree, at, principal, via, withdrawn, signature, folder)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
        with self._backend.writing() as db:
            db.executemany(insert, rows)

    def of(self, resources: Iterable[int], *, unlisted: bool = False) -> list[Vouched]:
        """Return the decisions on these resources that count, oldest first.

        unlisted: also those on folders that are none of the backend's `trusted_folders`.
        """
        folders = None if unlisted else self._backend.trusted_folders()
        with self._backend.reading() as db:
            return _vouched(db, resources, folders)

    def keep_folder(self, resources: Iterable[int], folder: str) -> None:
        """Note on which folder decisions were made that do not say so."""
        update = "UPDATE vouched SET folder = ? WHERE resource = ? AND folder IS NULL"
        with self._backend.writing() as db:
            db.executemany(update, [(folder, resource) for resource in resources])

    def unlisted(self) -> list[Vouched]:
        """Return the decisions that do not count, because their folder is none of the `trusted_folders`."""
        folders = self._backend.trusted_folders()
        if folders is None:
            return []
        with self._backend.reading() as db:
            named = [row[0] for row in db.execute("SELECT DISTINCT resource FROM vouched").fetchall()]
            return [one for one in _vouched(db, named, None) if not one.counts(folders)]

    def attribute(self, versions: Iterable[tuple[int, int]], at: str, identity: Identity) -> None:
        """Note who made these versions (resource, version), learned after they were made; the first note stays."""
        rows = [(resource, version, identity.principal, identity.via, at) for resource, version in versions]
        with self._backend.writing() as db:
            db.executemany("INSERT OR IGNORE INTO attribution VALUES (?, ?, ?, ?, ?)", rows)

    def needs_reread(self) -> bool:
        """Return whether the library has operations of versions before 0.2 and was not re-read since."""
        with self._backend.reading() as db:
            return bool(db.execute(_NEEDS_REREAD).fetchone()[0])

    def note_reread(self, at: str) -> None:
        """Note that the library was re-read."""
        self.attribute([(0, 0)], at, Identity(Principal.UNKNOWN, "reread"))

    def stamp(self) -> tuple[int, int, int, frozenset[str] | None]:
        """Return what differs when any answer of `untrusted` may differ."""
        with self._backend.reading() as db:
            row = db.execute(_STAMP).fetchone()
        return int(row[0]), int(row[1]), int(row[2]), self._backend.trusted_folders()


def untrusted(backend: SqliteBackend, resources: Sequence[int] | None = None) -> set[int]:
    """Return those of the resources (None: of all) whose newest version is a repository's, or was built on one.

    Not where a person made the same content, or vouches for it.
    """
    folders = backend.trusted_folders()
    with backend.reading() as db:
        suspects = [row[0] for row in db.execute(_BROUGHT).fetchall()]
        if resources is not None:
            wanted = set(resources)
            suspects = [resource for resource in suspects if resource in wanted]
        return {resource for resource in suspects if _is_untrusted(db, resource, folders)}


def _vouched(db: "Connection", resources: Iterable[int], folders: frozenset[str] | None) -> list[Vouched]:
    rows = db.execute(_VOUCHED, (json.dumps(list(resources)),)).fetchall()
    found = [Vouched(row[0], row[1], row[2], Principal(row[3]), row[4], row[5], row[6]) for row in rows]
    return [one for one in found if one.counts(folders)]


def _is_untrusted(db: "Connection", resource: int, folders: frozenset[str] | None) -> bool:
    rows = db.execute(_VERSIONS, (resource, _NEWEST)).fetchall()
    trees = {one.tree for one in _vouched(db, [resource], folders)}
    made = [(tree, _principal(*who)) for tree, *who in rows]
    trees |= {tree for tree, principal in made if principal is Principal.PERSON}
    if made and made[0][0] in trees:
        return False
    for tree, principal in made:
        if tree in trees or principal not in (*_BUILDS_ON, Principal.REPOSITORY):
            return False
        if principal is Principal.REPOSITORY:
            return True
    return False


def _principal(actor: str, principal: str | None, arrived: int) -> Principal:
    if arrived:
        return Principal.IMPORT
    if principal:
        return Principal(principal)
    implied = {Actor.HUMAN: Principal.PERSON, Actor.IMPORT: Principal.IMPORT}
    return implied.get(Actor(actor), Principal.AGENT)


_VERSIONS = """SELECT c.tree, o.actor, coalesce(a.principal, o.principal), CASE WHEN a.principal IS NULL THEN o.arrived
        ELSE 0 END
    FROM change c JOIN operation o ON o.id = c.operation
    LEFT JOIN attribution a ON a.resource = c.resource AND a.version = c.latest
    WHERE c.resource = ? AND c.manifest IS NOT NULL ORDER BY c.latest DESC LIMIT ?"""

_BROUGHT = """SELECT c.resource FROM operation o JOIN change c ON c.sequence BETWEEN o.id AND o.last
        WHERE o.principal = 'repository' AND c.manifest IS NOT NULL
    UNION SELECT resource FROM attribution WHERE principal = 'repository'"""

_VOUCHED = """SELECT resource, tree, at, principal, via, signature, folder FROM vouched v
    WHERE resource IN (SELECT value FROM json_each(?)) AND withdrawn = 0 AND id = (
        SELECT max(id) FROM vouched WHERE resource = v.resource AND tree = v.tree) ORDER BY id"""

# No resource has the number 0: its row says that the library was re-read.
_NEEDS_REREAD = """SELECT NOT EXISTS (SELECT 1 FROM attribution WHERE resource = 0)
    AND EXISTS (SELECT 1 FROM operation WHERE principal IS NULL)"""

_STAMP = """SELECT (SELECT coalesce(max(sequence), 0) FROM change), (SELECT coalesce(max(id), 0) FROM vouched),
    (SELECT count(*) FROM attribution)"""
