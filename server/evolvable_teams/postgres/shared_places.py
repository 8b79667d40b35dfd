"""Rows of a shared database that say where bytes go on a member's machine.

Earlier versions kept watched folders there, and the owner of the database can write such rows as
well. So they do nothing. The person whose home they name is shown them once, and they become the
home's own or are deleted.
"""

import json
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
        """Return the rows; those that no version of this program writes are only counted."""
        found = WaitingPlaces()
        found.rows = {
            name: self._rows(f"SELECT {', '.join(keys)} FROM {name}")
            for name, keys in _KEYS.items()
        }
        for row in (
            self._rows("SELECT id, scope, kind, path FROM folder ORDER BY path")
            if found.rows["folder"]
            else ()
        ):
            if is_folder(row[2], row[3]):
                found.folders.append(
                    WatchedFolder(
                        int(row[0]),
                        row[1],
                        Kind(row[2]),
                        Path(row[3]),
                    )
                )
        folder_ids = {folder.id for folder in found.folders}
        for row in (
            self._rows("SELECT folder, directory, resource, version FROM binding")
            if folder_ids
            else ()
        ):
            if row[0] in folder_ids and is_below(row[1]):
                found.bindings.append(
                    Binding(
                        int(row[0]),
                        row[1],
                        int(row[2]),
                        row[3],
                        "",
                    )
                )
        for settings, collection, written, at in (
            self._rows("SELECT settings, collection, written, at FROM listing")
            if found.rows["listing"]
            else ()
        ):
            if _is_object(written) and Path(settings).is_absolute():
                found.listings.append((settings, collection, written, at))
        return found

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
