"""Remove runs of evolution that nothing refers to; their reports stay."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from evolvable_evolve.evolution.ledger import (
    EVOLVE_DIR,
    LedgerDamaged,
    RunDirectory,
    RunState,
    find_run,
    iter_run_states,
    ledger_head,
    load_run_state,
    read_records,
)
from evolvable_evolve.evolution.report import write_report
from evolvable_evolve.evolution.run_control import run_condition
from evolvable_store.errors import LibraryCorrupt, NotFound, Refused
from evolvable_tools import Library

HEAD_FILE = "removed.json"
"""The file that stays of a removed run, beside its report: the time, the verdict, and the head of
its ledger.
"""

MAX_WAITING = 10_000
"""The most waiting proposals that are searched for one that names a run."""

_STAY = frozenset((HEAD_FILE, "report.html", "report.json"))


@dataclass(frozen=True)
class RemovedRun:
    """A run whose folder was removed. report: the path of its report. freed: bytes."""

    run: str
    report: str
    freed: int


@dataclass(frozen=True)
class RemovedRuns:
    """The runs that were removed, or would be, and the old runs that stay, with their reasons."""

    removed: list[str] = field(default_factory=list)
    kept: dict[str, list[str]] = field(default_factory=dict)


def remove_run(library: Library, run: str) -> RemovedRun:
    """Remove the folder of a run except its report and the head of its ledger.

    Raises NoSuchRun, LedgerDamaged, and Refused for a run that is driven, or to which something
    refers.
    """
    folder = find_run(library.store.home, run)
    if pins := _find_pins(library, folder, load_run_state(folder)):
        raise Refused(f"Run {folder.id} is needed: {'; '.join(pins)}.", "Nothing was removed.")
    return _remove(library, folder)


def remove_old_runs(library: Library, before: str, *, dry_run: bool = False) -> RemovedRuns:
    """Remove the runs whose last record is older than this moment (ISO 8601 in UTC), unless
    something refers to them.

    Unfinished runs stay, and so do runs whose promotion is not adopted yet: a person may still
    continue with them. Runs that cannot be read are left as they are.
    """
    result = RemovedRuns()
    for folder, state in list(iter_run_states(library.store.home)):
        with contextlib.suppress(LedgerDamaged, OSError):
            # To the second, because the two texts may end differently.
            if str(read_records(folder)[-1]["at"])[:19] >= before[:19]:
                continue
            condition, reasons = run_condition(folder, state), _find_pins(library, folder, state)
            reasons += [f"it is {condition}"] * (condition not in ("finished", "running"))
            reasons += ["what it promoted is not adopted yet"] * state.adoptable
            if reasons:
                result.kept[folder.id] = reasons
                continue
            if not dry_run:
                _remove(library, folder)
            result.removed.append(folder.id)
    return result


def _find_pins(library: Library, folder: RunDirectory, state: RunState) -> list[str]:
    """Return in words the references to a run, and whether a process drives it."""
    pins = ["it is running"] * (run_condition(folder, state) == "running")
    adopted = state.adoption.get("operation")
    if adopted is not None and not state.adoption.get("undone"):
        pins.append(f"operation {adopted} made its finalist live")
    for other, other_state in iter_run_states(library.store.home):
        if any(name == folder.id for name, _ in other_state.merged):
            pins.append(f"run {other.id} merged it")
        if other.id != folder.id and other_state.settings.get("family") == folder.id:
            pins.append(f"run {other.id} belongs to its measurement")
    # A proposal to undo an adoption names its run in its reason.
    for waiting in library.store.backend.proposals.waiting(MAX_WAITING):
        if folder.id in f"{waiting.reason} {waiting.grounds or ''}":
            pins.append(f"proposal {waiting.id} waits and names it")
    return pins


def _remove(library: Library, folder: RunDirectory) -> RemovedRun:
    state = load_run_state(folder)
    # An artefact is gone: an earlier report stays.
    with contextlib.suppress(NotFound, LibraryCorrupt):
        write_report(folder, redactor=library.redactor())
    records, head = ledger_head(folder.ledger)
    summary = {
        "run": folder.id,
        "label": state.label,
        "verdict": state.verdict,
        "removed_at": library.store.now(),
        "records": records,
        "head": head,
    }
    # Before the ledger goes: `finish_removals` recognises a removal by this file.
    folder.write_file(HEAD_FILE, json.dumps(summary, indent=1).encode())
    freed = sum(path.lstat().st_size for path in _list_rest(folder.path))
    folder.ledger.unlink()  # first: without it there is no run, whatever a kill leaves of the rest
    clear_removed(folder.path)
    return RemovedRun(folder.id, str(folder.path / "report.html"), freed)


def _list_rest(path: Path) -> Iterator[Path]:
    """Yield the files that a removal of the run removes, and its topmost folders."""
    for entry in path.iterdir():
        if entry.name not in _STAY:
            yield entry
            # A link is removed itself, and its target is not counted or touched.
            if entry.is_dir() and not entry.is_symlink():
                yield from (
                    below for below in entry.rglob("*") if not below.is_dir() or below.is_symlink()
                )


def clear_removed(path: Path) -> None:
    """Remove the rest of the folder of a run that was removed."""
    for entry in list(path.iterdir()):
        if entry.name in _STAY:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def finish_removals(home: Path) -> None:
    """Finish the removals that a kill interrupted."""
    runs = home / EVOLVE_DIR
    for path in runs.iterdir() if runs.is_dir() else ():
        if path.is_symlink():
            continue
        # The head is there and the ledger is gone: the removal was decided, and only the rest is
        # left.
        if (path / HEAD_FILE).is_file() and not (path / "ledger.jsonl").exists():
            clear_removed(path)
