"""Answers that cost something to get, kept beside the index: a judge's, by the question."""

import contextlib
from collections.abc import Iterator, MutableMapping

from evolvable_store.errors import LibraryError
from evolvable_store.index_sqlite import IndexFile
from evolvable_store.postings import Damaged

MOST = 10_000
"""Answers that are kept; the oldest go first."""


class Answers(MutableMapping[str, str]):
    """A mapping in the file of the index: shared by all processes, empty again when the index is made anew.

    What cannot be read or kept, since the file is busy or damaged, counts as not remembered.
    """

    def __init__(self, file: IndexFile) -> None:
        self._file = file

    def __getitem__(self, key: str) -> str:
        row = None
        with contextlib.suppress(Damaged, LibraryError), self._file.reading() as db:
            row = db.execute("SELECT value FROM answer WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise KeyError(key)
        return str(row[0])

    def __setitem__(self, key: str, value: str) -> None:
        with contextlib.suppress(Damaged, LibraryError), self._file.writing() as db:
            db.execute("INSERT OR REPLACE INTO answer (key, value) VALUES (?, ?)", (key, value))
            db.execute("DELETE FROM answer WHERE number <= (SELECT max(number) FROM answer) - ?", (MOST,))

    def __delitem__(self, key: str) -> None:
        with self._file.writing() as db:
            if not db.execute("DELETE FROM answer WHERE key = ?", (key,)).rowcount:
                raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        with self._file.reading() as db:
            rows = db.execute("SELECT key FROM answer ORDER BY number").fetchall()
        return iter([str(row[0]) for row in rows])

    def __len__(self) -> int:
        with self._file.reading() as db:
            return int(db.execute("SELECT count(*) FROM answer").fetchone()[0])
