"""What parts of the program that are not installed left in a library: this program cannot read it, and says so."""

from collections.abc import Mapping

from evolvable_server import plugins
from evolvable_store import AGENT_RUNS, MIRRORS, RUNS
from evolvable_tools import Library

_FOLDERS: Mapping[str, Mapping[str, str]] = {
    plugins.EVOLVE: {RUNS: "runs of evolution", AGENT_RUNS: "runs of agents"},
    plugins.TEAMS: {MIRRORS: "mirrors of git remotes"},
}
"""Part -> folder of the home -> what it holds."""

_TABLES: Mapping[str, Mapping[str, str]] = {
    plugins.EVOLVE: {"pool": "versions on trial", "execution": "runs of tools"},
    plugins.TEAMS: {"remote": "git remotes"},
}
"""Part -> table of the library -> what its rows are."""


def left_by_missing_parts(library: Library) -> list[str]:
    """Return a sentence for each folder and each table that only a missing part can read."""
    missing = plugins.missing_parts()
    if not missing:
        return []
    sizes, home = library.store.backend.maintenance.table_sizes(), library.store.home
    found: list[str] = []
    for part in missing:
        for folder, what in _FOLDERS.get(part, {}).items():
            number = sum(1 for entry in (home / folder).iterdir() if entry.is_dir()) if (home / folder).is_dir() else 0
            if number:
                found.append(f"{home / folder} holds {number:,} {what}; {part}, which reads them, is not installed.")
        for table, what in _TABLES.get(part, {}).items():
            if rows := sizes.get(table, 0):
                found.append(f"The library holds {rows:,} {what}; {part}, which reads them, is not installed.")
    return found
