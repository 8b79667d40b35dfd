"""Writes the report of a run."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from evolvable_tools.evolve import ledger
from evolvable_tools.evolve.damaged import reads_run
from evolvable_tools.evolve.report.facts import facts
from evolvable_tools.evolve.report.page import page
from evolvable_tools.evolve.report.text import text
from evolvable_tools.evolve.run_folder import RunFolder
from evolvable_tools.evolve.run_state import fold


@dataclass(frozen=True)
class Reported:
    """Where the report of a run is, and the same as text. label: what its figures are."""

    run: str
    label: str
    html: str
    json: str
    text: str


@reads_run
def report(folder: RunFolder, out: Path | None = None) -> Reported:
    """Writes report.html and report.json of a run, finished or not, by default into its folder; returns where.

    Raises LedgerDamaged, NotFound for artefacts that are gone, OSError.
    """
    records = [*ledger.read(folder.ledger), *ledger.read(folder.path / "test.jsonl")]
    known = facts(folder, fold(records), records)
    place = out or folder.path
    place.mkdir(parents=True, exist_ok=True)
    html, values = place / "report.html", place / "report.json"
    _write(html, page(known))
    _write(values, json.dumps(asdict(known), indent=1, ensure_ascii=False) + "\n")
    return Reported(known.run, known.label, str(html), str(values), text(known))


def _write(path: Path, content: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(content, encoding="utf-8", errors="replace")
    os.replace(draft, path)
