"""Which folders mirror the library, and which version each directory in them holds.

What lies in a watched folder and is not served: contents that wait as proposals while the files stay as they are.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_store.errors import AlreadyExists, InvalidArgument, LibraryCorrupt, NotFound
from evolvable_store.operation import Actor, Identity
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.proposals import APPROVED, EXPIRED, OPEN, Draft, ProposalBatch

if TYPE_CHECKING:
    from evolvable_store.storage.sqlite import SqliteStorage


@dataclass(frozen=True, slots=True)
class WatchedFolder:
    """A folder on disk that mirrors the resources of one kind in one scope."""

    id: int
    scope: str
    kind: Kind
    path: Path


@dataclass(frozen=True, slots=True)
class Binding:
    """What one directory of a folder holds.

    directory: its path below the folder, with `/`. version: the version it was last known to hold, None while the
    resource is removed. signature: the stat fingerprint it had then, '' when that cannot be trusted. conflict: what
    a merge could not decide, in words, '' when nothing is open.
    """

    folder: int
    directory: str
    resource: int
    version: int | None
    signature: str
    conflict: str = ""


class SqliteBindings:
    """The folders and bindings of one library."""

    def __init__(self, backend: "SqliteStorage") -> None:
        self._backend = backend

    def folders(self) -> list[WatchedFolder]:
        with self._backend.reading() as db:
            rows = db.execute("SELECT id, scope, kind, path FROM folder ORDER BY id").fetchall()
        return [_as_folder(row) for row in rows]

    def add_folder(self, path: Path, scope: str, kind: Kind) -> WatchedFolder:
        path = path.resolve()
        if path == Path(path.anchor):
            raise InvalidArgument(f"{path} is no folder of resources.", "Name the folder that holds the skill folders.")
        for folder in self.folders():
            if folder.path == path and (folder.scope, folder.kind) == (scope, kind):
                return folder
            if path.is_relative_to(folder.path) or folder.path.is_relative_to(path):
                raise AlreadyExists(
                    f"{path} and {folder.path} (scope {folder.scope}, {folder.kind}) lie in one another.",
                    "One folder belongs to one scope and kind: `evolvable folders` shows them.",
                )
        with self._backend.writing() as db:
            db.execute("INSERT INTO folder (scope, kind, path) VALUES (?, ?, ?)", (scope, kind, str(path)))
        return self.folder(path)

    def folder(self, path: Path) -> WatchedFolder:
        for folder in self.folders():
            if folder.path == path.resolve():
                return folder
        raise NotFound(f"{path} is not watched.", "`evolvable folders` shows those that are.")

    def drop_folder(self, folder: WatchedFolder) -> None:
        with self._backend.writing() as db:
            db.execute("DELETE FROM binding WHERE folder = ?", (folder.id,))
            db.execute("DELETE FROM held WHERE folder = ?", (folder.id,))
            db.execute("DELETE FROM folder WHERE id = ?", (folder.id,))

    def of_folder(self, folder: WatchedFolder) -> dict[str, Binding]:
        with self._backend.reading() as db:
            rows = db.execute(f"{_BINDING} WHERE folder = ?", (folder.id,)).fetchall()
        return {row[1]: _as_binding(row) for row in rows}

    def of_directories(self, folder: WatchedFolder, directories: Iterable[str]) -> dict[str, Binding]:
        query = f"{_BINDING} WHERE folder = ? AND directory IN (SELECT value FROM json_each(?))"
        with self._backend.reading() as db:
            rows = db.execute(query, (folder.id, json.dumps(list(directories)))).fetchall()
        return {row[1]: _as_binding(row) for row in rows}

    def of_resources(self, resources: Iterable[int]) -> list[Binding]:
        with self._backend.reading() as db:
            query = f"{_BINDING} WHERE resource IN (SELECT value FROM json_each(?))"
            rows = db.execute(query, (json.dumps(list(resources)),)).fetchall()
        return [_as_binding(row) for row in rows]

    def conflicts(self) -> list[Binding]:
        with self._backend.reading() as db:
            return [_as_binding(row) for row in db.execute(f"{_BINDING} WHERE conflict <> ''").fetchall()]

    def bind(self, bindings: Iterable[Binding]) -> None:
        rows = [(b.folder, b.directory, b.resource, b.version, b.signature, b.conflict) for b in bindings]
        if rows:
            with self._backend.writing() as db:
                db.executemany("INSERT OR REPLACE INTO binding VALUES (?, ?, ?, ?, ?, ?)", rows)

    def unbind(self, binding: Binding) -> None:
        with self._backend.writing() as db:
            query = "DELETE FROM binding WHERE folder = ? AND directory = ?"
            db.execute(query, (binding.folder, binding.directory))


_BINDING = "SELECT folder, directory, resource, version, signature, coalesce(conflict, '') FROM binding"


def _as_folder(row: tuple[int, object, object, object]) -> WatchedFolder:
    identity, scope, kind, path = row
    named = isinstance(scope, str) and isinstance(path, str) and "\0" not in path and Path(path).is_absolute()
    if not named or kind not in {*Kind}:
        raise LibraryCorrupt(
            f"The library's entry of the watched folder {ascii(path)[:80]} (number {identity}) is damaged.",
            "`evolvable fsck` examines the library; `evolvable backup` keeps what it holds.",
        )
    return WatchedFolder(identity, str(scope), Kind(str(kind)), Path(str(path)))


def _as_binding(row: tuple[int, str, int, int | None, str, str]) -> Binding:
    return Binding(*row)


@dataclass(frozen=True, slots=True)
class HeldDirectory:
    """A directory whose content is held. tree: of that content. proposal, state: what waits, and whether it still does.

    resource: by its ref.
    """

    folder: int
    directory: str
    tree: str
    proposal: int
    state: str
    resource: str = ""

    @property
    def approved(self) -> bool:
        """Whether a person approved it since."""
        return self.state == APPROVED


class SqliteHeldDirectories:
    """The held directories of one library."""

    def __init__(self, backend: "SqliteStorage") -> None:
        self._backend = backend

    def of_folder(self, folder: WatchedFolder) -> dict[str, HeldDirectory]:
        return {held.directory: held for held in self.all() if held.folder == folder.id}

    def all(self) -> list[HeldDirectory]:
        with self._backend.reading() as db:
            rows = db.execute(_HELD_DIRECTORY).fetchall()
        return [
            HeldDirectory(row[0], row[1], row[2], row[3], row[4], str(Ref(Kind(row[5]), row[6], row[7])))
            for row in rows
        ]

    def hold(self, folder: WatchedFolder, directory: str, tree: str, draft: Draft, at: str, identity: Identity) -> int:
        adding = ProposalBatch(
            at, Actor.AGENT if identity.principal == "agent" else Actor.IMPORT, _folder_session(folder), [draft]
        )
        with self._backend.writing() as db:
            db.execute(_CLOSE_HELD, (EXPIRED, "the files on disk changed", folder.id, directory, OPEN))
            (proposal,) = adding.into(db)
            who = (identity.principal, identity.via, proposal)
            db.execute("UPDATE proposal SET principal = ?, via = ? WHERE id = ?", who)
            row = (folder.id, directory, tree, proposal, at)
            db.execute("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?)", row)
        return proposal

    def release(self, folder: WatchedFolder, directories: Sequence[str]) -> None:
        with self._backend.writing() as db:
            for directory in directories:
                db.execute(_CLOSE_HELD, (EXPIRED, "the files on disk changed", folder.id, directory, OPEN))
                db.execute("DELETE FROM held WHERE folder = ? AND directory = ?", (folder.id, directory))


def _folder_session(folder: WatchedFolder) -> str:
    return f"folder-{folder.id}"


_HELD_DIRECTORY = """SELECT h.folder, h.directory, h.tree, h.proposal, p.state, p.kind, p.name, p.scope
    FROM held h JOIN proposal p ON p.id = h.proposal ORDER BY h.folder, h.directory"""
_CLOSE_HELD = """UPDATE proposal SET state = ?, decision = ? WHERE id = (
    SELECT proposal FROM held WHERE folder = ? AND directory = ?) AND state = ?"""
