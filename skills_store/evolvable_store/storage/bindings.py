"""Watched folders, the versions in their directories, and directories held back as proposals."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any, Self

from evolvable_store.errors import AlreadyExists, InvalidArgument, LibraryCorrupt, NotFound
from evolvable_store.operation import Actor, Identity
from evolvable_store.resource import Kind, Ref, is_plugins
from evolvable_store.storage.proposals import APPROVED, EXPIRED, OPEN, Draft, ProposalBatch
from evolvable_store.storage.sqlite_file import SqliteRepository


@dataclass(frozen=True, slots=True)
class WatchedFolder:
    """A folder on disk that mirrors the resources of one kind in one scope."""

    id: int
    scope: str
    kind: Kind
    path: Path

    @property
    def is_plugins(self) -> bool:
        """Whether it belongs to a plugin, so that it is read and never written."""
        return is_plugins(self.scope)


@dataclass(frozen=True, slots=True)
class Binding:
    """The recorded content of one directory of a folder.

    directory: its path below the folder, with `/`. version: the version that it last held, None
    while the resource is removed. signature: its stat fingerprint at that time, '' when that cannot
    be trusted; or a PendingCheckout as text, and then the version is the newer one. conflict: in
    words, what a merge could not decide, '' when nothing is open.
    """

    folder: int
    directory: str
    resource: int
    version: int | None
    signature: str
    conflict: str = ""

    @property
    def is_pending(self) -> bool:
        """Whether the signature is a PendingCheckout."""
        # A stat fingerprint is hexadecimal, a PendingCheckout has blanks.
        return " " in self.signature


@dataclass(frozen=True, slots=True)
class DirectoryMark:
    """The marks by which a directory that this program wrote is recognised.

    signature: its stat fingerprint. sizeless: the same without the sizes of the files, '-' where it
    is not known; it stays the same for files that a power failure cut short. inode: of the
    directory.
    """

    signature: str
    sizeless: str
    inode: int

    def __str__(self) -> str:
        return f"{self.signature} {self.sizeless} {self.inode}"


@dataclass(frozen=True, slots=True)
class PendingPart:
    """One file, or one new folder, that is put into a directory while the rest of it stays.

    stem: of the swap that built it; until it is in its place it waits in the staging folder.
    sha256: of the file. path: of a file, '' for a folder. A rename sets the time of a file's last
    change, so the mark of the new directory leaves this file out, and its content is compared.
    """

    stem: str
    sha256: str
    path: str

    def __str__(self) -> str:
        return f"{self.stem} {self.sha256} {self.path}"


@dataclass(frozen=True, slots=True)
class PendingCheckout:
    """A checkout that is recorded and may not be done yet.

    The binding's path has the directory of `old_version`, or already that of `version`. The text of
    this record is the binding's signature, written in the transaction that makes the version; the
    directories are exchanged after the commit. An earlier program finds the text unequal to every
    signature, and compares contents. boot: the run of the system in which it was recorded. part:
    the part of the directory that is exchanged, None for the whole.
    """

    boot: str
    old_version: int
    old: DirectoryMark
    version: int
    new: DirectoryMark
    part: PendingPart | None = None

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the pending checkout in a binding's signature, None for a plain signature."""
        match = _PENDING.fullmatch(text)
        if match is None:
            return None
        boot, *fields, stem, sha256, path = match.groups()
        old, new = (DirectoryMark(fields[at], fields[at + 1], int(fields[at + 2])) for at in (1, 5))
        part = PendingPart(stem, sha256, path) if stem else None
        return cls(boot, int(fields[0]), old, int(fields[4]), new, part)

    def __str__(self) -> str:
        text = f"pending {self.boot} {self.old_version} {self.old} {self.version} {self.new}"
        return f"{text} {self.part}" if self.part else text


@dataclass(slots=True)
class WaitingPlaces:
    """Rows that name places on this machine, without effect until the person confirms them.

    listings: settings of clients, each with the collection that it lists, what was written, and the
    time. rows: by table the keys of all rows that were read, of those too that cannot be confirmed.
    """

    folders: list[WatchedFolder] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    listings: list[tuple[str, str, str, str]] = field(default_factory=list)
    rows: dict[str, list[Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(self.rows.values())

    def __str__(self) -> str:
        paths = [str(folder.path) for folder in self.folders] + [row[0] for row in self.listings]
        if not paths:
            return f"{sum(map(len, self.rows.values()))} rows"
        rest = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        return f"{ascii(', '.join(paths[:3]))[1:-1]}{rest}"


Place = tuple[WatchedFolder, Binding, bool]
"""A folder that holds a resource, with the binding, and whether its directory is held."""

# Fixed alphabets and lengths: a shared database may hold any text here, and parts of it become
# paths.
_MARKED = r" ([0-9]{1,18}) ([0-9a-f]{64}) ([0-9a-f]{64}|-) ([0-9]{1,20})"
_PART = r"(?: ([A-Za-z0-9_-]{1,64}\.[0-9]{1,10}-[0-9a-f]{12}) ([0-9a-f]{64}) (.{0,4096}))?"
_PENDING = re.compile(f"pending ([0-9a-f-]{{36}}){_MARKED}{_MARKED}{_PART}", re.DOTALL)


class Bindings(SqliteRepository):
    """Watched folders, and the version that each directory in them holds.

    Each machine decides which of its folders are written. So the rows of a library that others can
    write are in the home.
    """

    def folders(self) -> list[WatchedFolder]:
        """Return all folders, in the order they were added."""
        return self._all(_as_folder, _FOLDERS)

    def add_folder(self, path: Path, scope: str, kind: Kind) -> WatchedFolder:
        """Return the folder, added if it was not there.

        Raises AlreadyExists for one inside or around another.
        """
        path = path.resolve()
        if path == Path(path.anchor):
            raise InvalidArgument(
                f"{path} is no folder of resources.",
                "Name the folder that holds the skill folders.",
            )
        # A read first: nearly always the folder is there, and then no write lock is needed.
        existing = _same_folder(self.folders(), path, scope, kind)
        if existing is None:
            with self._lender.writing() as db:
                # Another process may have added it, or one around it, since.
                existing = _same_folder(
                    starmap(_as_folder, db.execute(_FOLDERS).fetchall()), path, scope, kind
                )
                if existing is None:
                    db.execute(_ADD_FOLDER, (None, scope, kind, str(path)))
        return existing or self.folder(path)

    def move_folder(self, folder: WatchedFolder, path: Path) -> WatchedFolder:
        """Watch another place instead of this folder's; return it with the same bindings.

        Raise AlreadyExists for one inside or around another.
        """
        path = path.resolve()
        others = [other for other in self.folders() if other.id != folder.id]
        existing = _same_folder(others, path, folder.scope, folder.kind)
        if existing is None:
            self._do("UPDATE folder SET path = ? WHERE id = ?", str(path), folder.id)
        return existing or self.folder(path)

    def take(self, folder: WatchedFolder, bindings: Iterable[Binding]) -> None:
        """Watch a folder of another database with its bindings, under its number if that is free.

        Raises AlreadyExists for one inside or around another.
        """
        with self._lender.writing() as db:
            others = list(starmap(_as_folder, db.execute(_FOLDERS).fetchall()))
            existing = _same_folder(others, folder.path, folder.scope, folder.kind)
            number = existing.id if existing else folder.id
            if existing is None:
                # The number is kept where it can be, because rows of held directories name it.
                is_used = any(other.id == folder.id for other in others)
                kept = folder.id if 0 < folder.id <= MAX_TAKEN and not is_used else None
                row = (kept, folder.scope, folder.kind, str(folder.path))
                number = int(db.execute(f"{_ADD_FOLDER} RETURNING id", row).fetchall()[0][0])
            rows = [(number, *astuple(binding)[1:]) for binding in bindings]
            # A binding that is here already is newer than the one that is taken over.
            db.executemany(BIND.replace("REPLACE", "IGNORE", 1), rows)

    def folder(self, path: Path) -> WatchedFolder:
        """Return the folder at this path. Raises NotFound."""
        for folder in self.folders():
            if folder.path == path.resolve():
                return folder
        raise NotFound(f"{path} is not watched.", "`evolvable folders` shows those that are.")

    def is_watched(self, folder: WatchedFolder) -> bool:
        """Return whether this folder is watched, at this path."""
        return bool(
            self._all(
                int, "SELECT id FROM folder WHERE id = ? AND path = ?", folder.id, str(folder.path)
            )
        )

    def move_folders(self, old: Path, new: Path) -> list[WatchedFolder]:
        """Note that a directory lies elsewhere now, with the folders in it; return these.

        Raises AlreadyExists.
        """
        moving = [watched for watched in self.folders() if watched.path.is_relative_to(old)]
        for folder in moving:
            path = new / folder.path.relative_to(old)
            with self._lender.writing() as db:
                watched = starmap(_as_folder, db.execute(_FOLDERS).fetchall())
                others = [other for other in watched if other.id != folder.id]
                _same_folder(others, path, folder.scope, folder.kind)
                db.execute(
                    # With the old path, so that a folder which another process moved meanwhile
                    # stays there.
                    "UPDATE folder SET path = ? WHERE id = ? AND path = ?",
                    (str(path), folder.id, str(folder.path)),
                )
        return moving

    def drop_folder(self, folder: WatchedFolder) -> None:
        """Delete a folder; neither its files nor its resources are touched."""
        with self._backend.writing() as db:
            # In two databases where the library is in PostgreSQL: after a crash in between, the
            # folder is still watched, and has no held directories.
            db.execute("DELETE FROM held WHERE folder = ?", (folder.id,))
        with self._lender.writing() as db:
            db.execute("DELETE FROM binding WHERE folder = ?", (folder.id,))
            db.execute("DELETE FROM folder WHERE id = ?", (folder.id,))

    def of_folder(self, folder: WatchedFolder) -> dict[str, Binding]:
        """Return the bindings of a folder by directory."""
        return {
            binding.directory: binding
            for binding in self._all(_as_binding, f"{_BINDING} WHERE folder = ?", folder.id)
        }

    def of_directories(
        self, folder: WatchedFolder, directories: Iterable[str]
    ) -> dict[str, Binding]:
        """Return the bindings of some directories of a folder, by directory."""
        query = f"{_BINDING} WHERE folder = ? AND directory IN (SELECT value FROM json_each(?))"
        bindings = self._all(_as_binding, query, folder.id, json.dumps(list(directories)))
        return {binding.directory: binding for binding in bindings}

    def of_resources(self, resources: Iterable[int]) -> list[Binding]:
        """Return every binding of these resources."""
        query = f"{_BINDING} WHERE resource IN (SELECT CAST(value AS INTEGER) FROM json_each(?))"
        return self._all(_as_binding, query, json.dumps(list(resources)))

    def bind(self, bindings: Iterable[Binding]) -> None:
        """Store these bindings, each instead of the one its directory had."""
        if rows := list(map(astuple, bindings)):
            with self._lender.writing() as db:
                db.executemany(BIND, rows)

    def places(self, resources: Iterable[int]) -> list[Place]:
        """Return the folders of these resources, each with its binding and whether it is held."""
        folders: dict[int, WatchedFolder] = {}

        def as_place(*row: Any) -> tuple[WatchedFolder, Binding]:
            folder = folders.get(row[0]) or folders.setdefault(row[0], _as_folder(*row[:4]))
            return folder, _as_binding(*row[4:])

        places = self._all(as_place, _PLACES, json.dumps(list(resources)))
        held = self._held_directories(folders) if places else frozenset()
        return [
            (folder, binding, (folder.id, binding.directory) in held) for folder, binding in places
        ]

    def _held_directories(self, folders: Iterable[int]) -> frozenset[tuple[int, str]]:
        query = (
            "SELECT folder, directory FROM held WHERE folder IN (SELECT CAST(value AS INTEGER) "
            "FROM json_each(?))"
        )
        with self._backend.reading() as db:
            return frozenset(
                (int(row[0]), str(row[1]))
                for row in db.execute(query, (json.dumps(list(folders)),))
            )

    def pending(self, folder: WatchedFolder) -> list[Binding]:
        """Return the bindings of a folder whose signature is a PendingCheckout."""
        return self._all(
            _as_binding, f"{_BINDING} WHERE folder = ? AND signature LIKE 'pending %'", folder.id
        )

    def pending_stems(self, folder: WatchedFolder) -> set[str]:
        """Return the stems of pending swaps that put a part of a directory in its place."""
        checkouts = (PendingCheckout.parse(binding.signature) for binding in self.pending(folder))
        return {pending.part.stem for pending in checkouts if pending and pending.part}

    def settle(self, bindings: Iterable[tuple[Binding, Binding]]) -> None:
        """Store the second binding of each pair, unless the stored one differs from the first."""
        rows = [
            (new.version, new.signature, old.folder, old.directory, old.signature)
            for old, new in bindings
        ]
        if rows:
            with self._lender.writing() as db:
                db.executemany(_SETTLE, rows)

    def unbind(self, binding: Binding) -> None:
        """Delete one binding."""
        self._do(
            "DELETE FROM binding WHERE folder = ? AND directory = ?",
            binding.folder,
            binding.directory,
        )


class ProjectMarks(SqliteRepository):
    """The marks by which members of a shared library recognise projects."""

    def add(self, scope: str, marks: Iterable[str]) -> None:
        """Store marks of a project."""
        rows = [(scope, mark) for mark in marks]
        if rows:
            with self._backend.writing() as db:
                db.executemany(
                    "INSERT OR IGNORE INTO project_mark (scope, mark) VALUES (?, ?)", rows
                )

    def scopes_with(self, marks: Iterable[str]) -> list[str]:
        """Return the scopes of the projects that have one of these marks, those with the most
        first.
        """
        query = """SELECT scope FROM project_mark WHERE mark IN (SELECT value FROM json_each(?))
            GROUP BY scope ORDER BY count(*) DESC, scope"""
        return self._all(str, query, json.dumps(sorted(marks)))


MAX_TAKEN = 1_000_000
"""The highest number that a folder of another database keeps; schema/places.sql begins there."""

_ADD_FOLDER = "INSERT INTO folder (id, scope, kind, path) VALUES (?, ?, ?, ?)"
BIND = """INSERT OR REPLACE INTO binding (folder, directory, resource, version, signature, conflict)
    VALUES (?, ?, ?, ?, ?, ?)"""
_FOLDERS = "SELECT id, scope, kind, path FROM folder ORDER BY id"
_BINDING = (
    "SELECT folder, directory, resource, version, signature, coalesce(conflict, '') FROM binding"
)

# By the old signature: a binding that another process wrote meanwhile stays.
_SETTLE = (
    "UPDATE binding SET version = ?, signature = ? WHERE folder = ? AND directory = ? "
    "AND signature = ?"
)
_PLACES = """SELECT f.id, f.scope, f.kind, f.path,
        b.folder, b.directory, b.resource, b.version, b.signature, coalesce(b.conflict, '')
    FROM binding b JOIN folder f ON f.id = b.folder
    WHERE b.resource IN (SELECT CAST(value AS INTEGER) FROM json_each(?))
    ORDER BY f.id, b.directory"""


def _same_folder(
    folders: Iterable[WatchedFolder], path: Path, scope: str, kind: Kind
) -> WatchedFolder | None:
    """Return the one of these folders that is this one.

    Raise AlreadyExists for one inside or around it.
    """
    for folder in folders:
        if folder.path == path and (folder.scope, folder.kind) == (scope, kind):
            return folder
        if path.is_relative_to(folder.path) or folder.path.is_relative_to(path):
            raise AlreadyExists(
                f"{path} and {folder.path} (scope {folder.scope}, {folder.kind}) lie in "
                "one another.",
                "One folder belongs to one scope and kind: `evolvable folders` shows them.",
            )
    return None


def _as_binding(
    folder: int, directory: str, resource: int, version: int | None, signature: str, conflict: str
) -> Binding:
    # The newer version: a sync then sees a directory that still has to be exchanged.
    pending = PendingCheckout.parse(signature)
    version = pending.version if pending else version
    return Binding(folder, directory, resource, version, signature, conflict)


def _as_folder(identity: int, scope: object, kind: object, path: object) -> WatchedFolder:
    # Damage can put any value into a row, and files would be written at the path.
    is_path = isinstance(path, str) and "\0" not in path and Path(path).is_absolute()
    if not isinstance(scope, str) or not is_path or kind not in {*Kind}:
        raise LibraryCorrupt(
            f"The library's entry of the watched folder {ascii(path)[:80]} (number {identity}) "
            "is damaged.",
            "`evolvable care fsck` examines the library; `evolvable backup create` keeps "
            "what it holds.",
        )
    return WatchedFolder(identity, str(scope), Kind(str(kind)), Path(str(path)))


@dataclass(frozen=True, slots=True)
class HeldDirectory:
    """A directory whose content is held.

    tree: of that content. proposal: the one that waits for it. state: of the proposal. resource:
    its ref.
    """

    folder: int
    directory: str
    tree: str
    proposal: int
    state: str
    resource: str = ""

    @property
    def is_approved(self) -> bool:
        """Whether a person approved it since."""
        return self.state == APPROVED


class HeldDirectories(SqliteRepository):
    """Directories whose content waits as a proposal."""

    def of_folder(self, folder: WatchedFolder) -> dict[str, HeldDirectory]:
        """Return the held directories of a folder, by path."""
        return {entry.directory: entry for entry in self.all() if entry.folder == folder.id}

    def all(self) -> list[HeldDirectory]:
        """Return everything that is held."""
        return self._all(_as_held_directory, _HELD_DIRECTORY)

    def hold(
        self,
        folder: WatchedFolder,
        directory: str,
        tree: str,
        draft: Draft,
        at: str,
        identity: Identity,
    ) -> int:
        """Hold the content of a directory as a proposal in place of an earlier one.

        Return the id of the proposal.
        """
        actor = Actor.AGENT if identity.principal == "agent" else Actor.IMPORT
        batch = ProposalBatch(at, actor, f"folder-{folder.id}", [draft])
        with self._backend.writing() as db:
            # The older proposal is about files that are no longer there.
            db.execute(
                _CLOSE_HELD, (EXPIRED, "the files on disk changed", folder.id, directory, OPEN)
            )
            (proposal,) = batch.into(db)
            row = (identity.principal, identity.via, proposal)
            db.execute("UPDATE proposal SET principal = ?, via = ? WHERE id = ?", row)
            db.execute(
                "INSERT OR REPLACE INTO held (folder, directory, tree, proposal, at) "
                "VALUES (?, ?, ?, ?, ?)",
                (folder.id, directory, tree, proposal, at),
            )
        return proposal

    def release(self, folder: WatchedFolder, directories: Sequence[str]) -> None:
        """Stop holding these directories: their files changed, or equal the library's."""
        with self._backend.writing() as db:
            for directory in directories:
                db.execute(
                    _CLOSE_HELD, (EXPIRED, "the files on disk changed", folder.id, directory, OPEN)
                )
                db.execute(
                    "DELETE FROM held WHERE folder = ? AND directory = ?", (folder.id, directory)
                )


def _as_held_directory(
    folder: int,
    directory: str,
    tree: str,
    proposal: int,
    state: str,
    kind: str,
    name: str,
    scope: str,
) -> HeldDirectory:
    return HeldDirectory(
        folder, directory, tree, proposal, state, str(Ref(Kind(kind), name, scope))
    )


_HELD_DIRECTORY = """SELECT h.folder, h.directory, h.tree, h.proposal, p.state, p.kind, p.name,
    p.scope
    FROM held h JOIN proposal p ON p.id = h.proposal ORDER BY h.folder, h.directory"""
_CLOSE_HELD = """UPDATE proposal SET state = ?, decision = ? WHERE id = (
    SELECT proposal FROM held WHERE folder = ? AND directory = ?) AND state = ?"""
