"""Work on a whole library in PostgreSQL.

Work that only a file allows is refused with an error that says what to do instead.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from evolvable_store.errors import Refused
from evolvable_store.storage import Maintenance, PurgeJob, Purges
from evolvable_teams.postgres.vector_table import TABLE

_UNCOUNTED = frozenset(("counter", TABLE))
"""Tables that only this storage has, so that both storages count the same."""


class PostgresMaintenance(Maintenance):
    """Checks and deletion of unreferenced blobs. Copies and repair belong to the server."""

    def on_network(self) -> bool:
        """Return False: no file of the library lies here."""
        return False

    def schema_version(self) -> int:
        """Return the number of the schema."""
        return int(self._one("SELECT max(version) FROM schema_version")[0])

    def table_sizes(self) -> dict[str, int]:
        """Return the number of rows of each table that this project has."""
        names = self._rows(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'evolvable' AND rowsecurity "
            "ORDER BY 1"
        )
        return {
            name: int(self._one(f'SELECT count(*) FROM "{name}"')[0])
            for (name,) in names
            if name not in _UNCOUNTED
        }

    def file_faults(self) -> list[str]:
        """Return nothing: the server verifies its files, and `fsck` reads every row."""
        return []

    def unsafe_settings(self) -> list[str]:
        """Return which settings of the server let a committed change be lost."""
        query = (
            "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') "
            "ORDER BY name"
        )
        return [f"{name} is {setting}" for name, setting in self._rows(query) if setting != "on"]

    def vacuum(self, *, in_memory: bool = False) -> None:
        """Do nothing: the server reuses free space by itself."""

    def empty_log(self) -> bool:
        """Return True: the log is the server's."""
        return True

    def copy_to(self, file: Path, progress: Callable[[int, int], None]) -> None:
        """Refuse: a library in PostgreSQL is copied by the server's own tools. Raises Refused."""
        raise Refused(
            "A library in PostgreSQL is not copied as a file.",
            "`evolvable team move --to FOLDER` copies it into a SQLite library; pg_dump copies "
            "the database.",
        )


class PostgresPurges(Purges):
    """Refuses purges: removed rows stay in the server's files and log for a while, and in
    backups.
    """

    def begin(
        self,
        at: str,
        actor: str,
        reason: str,
        kind: str,
        texts: Iterable[bytes],
        blobs: Iterable[str],
    ) -> PurgeJob:
        """Raise Refused."""
        raise Refused(
            "A purge cannot be promised on PostgreSQL: its files, its log and its backups keep "
            "removed rows.",
            "`evolvable team move --to FOLDER`, purge there, and move the library into a "
            "new database.",
        )
