"""The default storage: one SQLite file that many processes read and write at once."""

from pathlib import Path

from evolvable_store.errors import LibraryCorrupt, NoLibrary
from evolvable_store.paths import LIBRARY_FILE, Registered, check_home, no_homes
from evolvable_store.storage import connection as driver
from evolvable_store.storage import migrations
from evolvable_store.storage.sql import SqlStorage
from evolvable_store.storage.sqlite_file import SqliteFile


class SqliteStorage(SqliteFile, SqlStorage):
    """A library in the folder `home`.

    Safe to share between threads, and across a fork while no thread reads.
    """

    _migrates = True

    def __init__(
        self, home: Path, *, create: bool = False, registered: Registered = no_homes
    ) -> None:
        """Open `home`/library.db; with `create`, make it when it is missing.

        registered: as `check_home` takes it. Raises UntrustedHome, NoLibrary, LibraryTooNew,
        LibraryCorrupt, LibraryReadOnly.
        """
        # First of all: nothing of an untrusted home may be opened.
        check_home(home, registered, create=create)
        super().__init__(home / LIBRARY_FILE)
        self.where = str(self.path)
        if not self.path.exists():
            if not create:
                raise NoLibrary(f"There is no library in {home}.", "`evolvable init` makes one.")
        # Without `create` an empty file is what a crash or a full disk left, and SQLite would make
        # a library of it.
        elif not create and not self._is_filled():
            raise LibraryCorrupt(
                f"{self.path} is not a library: it is empty.",
                f"{driver.RESTORE} Without one, `evolvable init` makes a new library.",
            )
        opened, access, self.journal = migrations.open_library(self.path)
        self._lend_from(access)
        # It is lent to readers from now on.
        opened.execute(f"PRAGMA cache_size=-{driver.READER_CACHE_KB}")
        self._idle.append(opened)
        self.follow_forks()

    def _is_filled(self) -> bool:
        # Another process may be about to make it.
        return any(
            not self.path.is_file() or self.path.stat().st_size
            for _ in driver.retry(1.0, longest=0.02)
        )
