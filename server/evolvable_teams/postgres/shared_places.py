"""Rows of a shared database that name folders and files of a member's machine.

Earlier versions kept watched folders there, and the owner of the database can write such rows too,
so they have no effect. The person whose home they name is shown them once; then they become the
home's own or are deleted.
"""

import json
from collections.abc import Container
from pathlib import Path

from evolvable_store.resource import Kind
from evolvable_store.storage import (
    Binding,
    SqliteRepository,
    WaitingPlaces,
    WatchedFolder,
    is_below,
    is_folder,
)

_KEYS = {
    "binding": ("folder", "directory"),
    "folder": ("id", "path"),
    "listing": ("settings", "collection"),
}


class SharedPlaces(SqliteRepository):
    """The rows of one home that the database holds."""

    def read(self) -> WaitingPlaces:
        """Return the rows; those that no version of this program writes have only their keys."""
        places = WaitingPlaces()
        places.rows = {
            name: self._rows(f"SELECT {', '.join(keys)} FROM {name}")
            for name, keys in _KEYS.items()
        }
        if places.rows["folder"]:
            places.folders = self._read_folders()
        if places.folders:
            places.bindings = self._read_bindings({folder.id for folder in places.folders})
        if places.rows["listing"]:
            places.listings = self._read_listings()
        return places

    def _read_folders(self) -> list[WatchedFolder]:
        rows = self._rows("SELECT id, scope, kind, path FROM folder ORDER BY path")
        return [
            WatchedFolder(int(number), scope, Kind(kind), Path(path))
            for number, scope, kind, path in rows
            if is_folder(kind, path)
        ]

    def _read_bindings(self, folders: Container[int]) -> list[Binding]:
        rows = self._rows("SELECT folder, directory, resource, version FROM binding")
        return [
            Binding(int(folder), directory, int(resource), version, "")
            for folder, directory, resource, version in rows
            if folder in folders and is_below(directory)
        ]

    def _read_listings(self) -> list[tuple[str, str, str, str]]:
        rows = self._rows("SELECT settings, collection, written, at FROM listing")
        return [
            (settings, collection, written, at)
            for settings, collection, written, at in rows
            if _is_object(written) and Path(settings).is_absolute()
        ]

    def delete(self, found: WaitingPlaces) -> None:
        """Delete the rows that were read, and no other one."""
        with self._backend.writing() as db:
            for name, keys in _KEYS.items():
                statement = f"DELETE FROM {name} WHERE {' AND '.join(f'{key} = ?' for key in keys)}"
                db.executemany(statement, found.rows.get(name, ()))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
