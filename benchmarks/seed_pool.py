"""Results of seeds that stay in files, one line for each, so that a long benchmark goes on where it
ended.
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

Measure = Callable[[int], Any]
Run = Callable[[str, Measure, int], Sequence[Any]]
"""Measures a row for so many seeds, from 0 on. The row's name says all that it depends on."""


@dataclass(frozen=True, slots=True)
class SeedPool:
    """Measures the seeds of a row in several processes.

    folder: where results of one version of the code stay.
    """

    pool: ProcessPoolExecutor
    processes: int
    folder: Path | None = None

    def run(self, row: str, measure: Measure, seeds: int) -> list[Any]:
        """Return what each seed gives, in order; a seed whose result is kept is not
        measured again.
        """
        known = self._known(row)
        missing = [seed for seed in range(seeds) if seed not in known]
        chunk = max(1, min(25, len(missing) // (8 * self.processes)))
        for seed, result in zip(
            missing, self.pool.map(measure, missing, chunksize=chunk), strict=True
        ):
            known[seed] = result
            self._keep(row, seed, result)
        return [known[seed] for seed in range(seeds)]

    def _file(self, row: str) -> Path | None:
        return self.folder and self.folder / f"{sha256(row.encode()).hexdigest()[:16]}.jsonl"

    def _known(self, row: str) -> dict[int, Any]:
        file = self._file(row)
        if file is None or not file.exists():
            return {}
        known = {}
        for line in file.read_text(encoding="utf-8").splitlines()[1:]:
            try:
                seed, result = json.loads(line)
            except ValueError:
                continue  # the benchmark was killed while it wrote this line
            known[seed] = result
        return known

    def _keep(self, row: str, seed: int, result: Any) -> None:
        file = self._file(row)
        if file is None:
            return
        begun = file.exists()
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as kept:
            # A line break before each line and not after it: a torn line ends where the next one
            # begins.
            kept.write(("" if begun else json.dumps(row)) + "\n" + json.dumps([seed, result]))
