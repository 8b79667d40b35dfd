"""A run's ledger and directory in memory, for simulations of thousands of runs."""

import atexit
import hashlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.candidates.programs import Program
from evolvable_evolve.evolution.ledger.run_directory import RunDirectory

_PLACE = Path(tempfile.mkdtemp(prefix="simulated-runs-"))
_NUMBERS = itertools.count()
atexit.register(shutil.rmtree, _PLACE, ignore_errors=True)


@dataclass
class MemoryLedger:
    """A ledger in memory."""

    records: list[dict[str, Any]] = field(default_factory=list)

    def append(self, type: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep a record, and return it."""
        self.records.append({"type": type, "at": 0.0, **fields})
        return self.records[-1]


class MemoryDirectory(RunDirectory):
    """A run's directory in memory; what only a real run's sandbox reads is a file below a directory
    of this process.
    """

    def __init__(self) -> None:
        # Processes that were forked have the same place, and count alike.
        super().__init__(_PLACE / f"{os.getpid()}-{next(_NUMBERS)}")
        self._texts: dict[str, bytes] = {}
        self._programs: dict[str, Program] = {}

    def store_artifact(self, data: bytes | str) -> str:
        """Keep a text, and return its hash."""
        raw = data.encode() if isinstance(data, str) else data
        name = hashlib.sha256(raw).hexdigest()
        self._texts[name] = raw
        return name

    def read_artifact(self, name: str) -> bytes:
        """Return a text by its hash."""
        return self._texts[name]

    def store_program(self, program: Program) -> None:
        """Keep a program."""
        self._programs[program.digest] = program

    def program(self, digest: str) -> Program:
        """Return a program by its digest."""
        return self._programs[digest]

    def leave(self, path: str, data: bytes) -> None:
        """Write a file, which need not outlive a power cut."""
        place = self.path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
