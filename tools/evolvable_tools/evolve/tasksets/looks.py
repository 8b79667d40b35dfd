"""How often a sealed test was looked at, over all runs of a library."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock

from evolvable_store.errors import LibraryCorrupt


@dataclass(frozen=True, slots=True)
class Look:
    """One opening of a test: the number of it for this test, from 1 on, and who opened it when."""

    test: str
    number: int
    run: str
    finalist: str
    at: str


def _now() -> datetime:
    return datetime.now(UTC)


class Looks:
    """The looks in one file, a JSON object a line, only ever added to. Several processes may use it at once."""

    def __init__(self, path: Path, clock: Callable[[], datetime] = _now) -> None:
        self._path, self._clock = path, clock

    def take(self, test: str, run: str, finalist: str) -> int:
        """Returns the number of this look, written down for good before it returns; an old one for who had it before.

        Raises LibraryCorrupt when the file was damaged, and OSError.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self._path}.lock"):
            looks = self._read(mend=True)
            mine = [look for look in looks if look.test == test]
            for look in mine:
                if (look.run, look.finalist) == (run, finalist):
                    return look.number
            number = max((look.number for look in mine), default=0) + 1
            line = {"test": test, "number": number, "run": run, "finalist": finalist, "at": self._clock().isoformat()}
            with self._path.open("ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        return number

    def of(self, test: str) -> list[Look]:
        """Returns the looks at a test so far, in order."""
        return [look for look in self._read() if look.test == test]

    def _read(self, *, mend: bool = False) -> list[Look]:
        """Reads all looks. A last line without its end was never finished, and nobody got its number: it is left out,
        and cut off by whoever holds the lock."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        whole, _, torn = data.rpartition(b"\n")
        if torn and mend:
            with self._path.open("r+b") as file:
                file.truncate(len(data) - len(torn))
        try:
            return [Look(**json.loads(line)) for line in whole.split(b"\n") if line]
        except (ValueError, TypeError):
            raise LibraryCorrupt(
                f"{self._path} is damaged: the looks at sealed tests cannot be counted.",
                "Bring it back from a backup; without it no promotion can be claimed.",
            ) from None
