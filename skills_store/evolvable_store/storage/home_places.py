"""The watched folders of a library that others can write, in a file of the person's own home.

Where bytes go on a machine is decided on that machine: the owner of the database decides what the
library holds, and not which folders of a member it is written to and read from.
"""

import contextlib
import os
from pathlib import Path

from evolvable_store.errors import DamagedFile, LibraryCorrupt
from evolvable_store.paths import PLACES_FILE
from evolvable_store.storage import connection as driver
from evolvable_store.storage.connection import Access, DerivedFormat
from evolvable_store.storage.sqlite_file import SqliteFile, translate_damage

_FORMAT = DerivedFormat(
    application_id=0x45564C50,  # EVLP
    version=1,
    script=Path(__file__).with_name("schema") / "places.sql",
    tables=("folder", "binding", "listing"),
)


class HomePlaces(SqliteFile):
    """Lends connections to the tables folder, binding and listing of one home."""

    def __init__(self, home: Path) -> None:
        """Open the file of a home, or make it. Raises LibraryCorrupt, LibraryReadOnly."""
        self.path = home / PLACES_FILE
        # The folder too: SQLite makes its log beside the file.
        writable = not self.path.exists() or (
            os.access(self.path, os.W_OK) and os.access(home, os.W_OK)
        )
        access: Access = "create" if writable else "read"
        opened = driver.connect(
            self.path, durable=True, access=access, cache_kb=driver.READER_CACHE_KB
        )
        with contextlib.ExitStack() as unless_ready:
            unless_ready.callback(opened.close)
            try:
                with translate_damage(self.path, opening=True):
                    if writable:
                        _FORMAT.prepare(opened, self.path)
            # Not made again: an empty one would forget which folders are watched.
            except DamagedFile as error:
                raise LibraryCorrupt(
                    f"{self.path}, which says what folders are watched, is damaged: {error}.",
                    "Move it away; then `evolvable init FOLDER` watches a folder again. The "
                    "library is as it was.",
                ) from error
            unless_ready.pop_all()
        self._lend_from("write" if writable else access)
        self._idle.append(opened)
