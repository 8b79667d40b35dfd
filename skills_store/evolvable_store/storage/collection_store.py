"""Collections: named sets of skills, and which of them a client was told to list."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolvable_store.storage.sqlite_file import Database, Lender, SqliteRepository


@dataclass(frozen=True, slots=True)
class ListingChoice:
    """The collection that a client lists.

    settings: the client's file. written: skill -> the settings that we added; while the file is
    changed, both the old and the new ones.
    """

    settings: Path
    collection: str
    written: Mapping[str, Sequence[str]]
    at: str

    def is_added(self, skill: str, value: object) -> bool:
        """Return whether a skill's setting in the client's file is one that we added."""
        return value in self.written.get(skill, ())


def _as_choice(settings: str, collection: str, written: str, at: str) -> ListingChoice:
    # An earlier version stored the one setting of a skill as a string.
    added = {
        skill: (value,) if isinstance(value, str) else tuple(value)
        for skill, value in json.loads(written).items()
    }
    return ListingChoice(Path(settings), collection, added, at)


class Collections(SqliteRepository):
    """The collections of a library, and the clients that list them, which each home decides."""

    def __init__(self, backend: Database, places: Lender) -> None:
        """places: of the tables that name paths of this machine."""
        super().__init__(backend)
        self._places = places

    def members(self) -> dict[str, list[int]]:
        """Return the ids of the skills of each collection, removed skills included."""
        query = "SELECT name, resource FROM collection ORDER BY name, resource"
        members: dict[str, list[int]] = {}
        for name, resource in self._rows(query):
            members.setdefault(str(name), []).append(int(resource))
        return members

    def change(self, name: str, at: str, added: Iterable[int], removed: Iterable[int] = ()) -> None:
        """Add skills to a collection, which is made by its first one, and remove others from it."""
        with self._backend.writing() as db:
            gone = "DELETE FROM collection WHERE name = ? AND resource = ?"
            db.executemany(gone, [(name, resource) for resource in removed])
            rows = [(name, resource, at) for resource in added]
            db.executemany(
                "INSERT OR IGNORE INTO collection (name, resource, at) VALUES (?, ?, ?)", rows
            )

    def choices(self) -> list[ListingChoice]:
        """Return the choices of collections for clients, by the path of their settings."""
        with self._places.reading() as db:
            rows = db.execute(
                "SELECT settings, collection, written, at FROM listing ORDER BY settings"
            ).fetchall()
        return [_as_choice(*row) for row in rows]

    def choose(self, choice: ListingChoice) -> None:
        """Store the choice of a collection for a client, in place of an earlier one for the same
        settings.
        """
        row = (str(choice.settings), choice.collection, json.dumps(dict(choice.written)), choice.at)
        with self._places.writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO listing (settings, collection, written, at) "
                "VALUES (?, ?, ?, ?)",
                row,
            )

    def take(self, rows: Iterable[tuple[str, str, str, str]]) -> None:
        """Store the choices of another database, where there is none for the same settings."""
        # What is stored here was decided on this machine, and comes before another database.
        insert = (
            "INSERT OR IGNORE INTO listing (settings, collection, written, at) VALUES (?, ?, ?, ?)"
        )
        with self._places.writing() as db:
            db.executemany(insert, list(rows))

    def forget(self, settings: Path) -> None:
        """Store that a client lists every skill again."""
        with self._places.writing() as db:
            db.execute("DELETE FROM listing WHERE settings = ?", (str(settings),))
