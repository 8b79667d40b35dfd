"""The seam: what a part of the program adds to the core, as hooks of pluggy.

The core runs without any part. The parts that come with the program are a fixed list, so a start reads no metadata of
distributions; a distribution of others joins by the entry-point group `evolvable`, which a command reads when it runs.
A part is a module with functions marked `hookimpl`, named as the hooks below.
"""

import importlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pluggy

from evolvable_store.errors import LibraryError
from evolvable_tools.verbs import add_table

if TYPE_CHECKING:
    from evolvable_server.clients.client import Client
    from evolvable_server.config import Config
    from evolvable_server.mcp.call import CallSessions
    from evolvable_server.mcp.server import LibraryServer
    from evolvable_server.page_kit import PageKit, PageParts
    from evolvable_store import Registered
    from evolvable_store.resource import Ref
    from evolvable_store.storage import Storage
    from evolvable_tools import Caller, HealthProblem, Library, TrialArms

log = logging.getLogger(__name__)

GROUP = "evolvable"
"""The name of the project in pluggy, and the group of entry points that other distributions join by."""

EVOLVE, TEAMS, PAGE = "evolvable_evolve", "evolvable_teams", "evolvable_page"

BUILT_IN = tuple(f"{package}.plugin" for package in (EVOLVE, TEAMS, PAGE))
"""The parts that come with the program. One that was left out of an installation adds nothing."""

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@dataclass(frozen=True, slots=True)
class HttpService:
    """What `serve --http` is asked for. options: its further options, by their names on the command line."""

    config: "Config"
    host: str
    port: int
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PluginScorer:
    """A scorer of a part.

    score: returns the score of an answer from 0 to 1, with the feedback that a proposer sees, for the expected answer
    of the task ('' without one), the answer, and the arguments that the task names. It is deterministic, reads no file
    and no clock, and raises ValueError where it cannot say. arguments: the JSON schema of each argument. version: what
    an earlier one scored does not count for a later one.
    """

    score: Callable[[str, str, Mapping[str, Any]], tuple[float, str]]
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    required: Sequence[str] = ()
    needs_expected: bool = False
    version: str = ""


class ArchivePart(Protocol):
    """What a part adds to backups, archives and remotes: lines of JSON that travel with resources."""

    def backup_files(self, home: Path) -> dict[str, bytes]:
        """Return the files that a backup of a library takes along, by their paths below the home."""

    def merge_backup(self, home: Path, source: Path) -> None:
        """Add what a backup in `source` has to the library in `home`. Raise OSError."""

    def export(self, library: "Library", caller: "Caller", refs: "Iterable[Ref] | None") -> bytes:
        """Return the lines that go along with these resources, by default all. Raise LibraryCorrupt."""

    def add(self, home: Path, lines: bytes) -> int:
        """Add lines of another library; return how many were new. Raise LibraryCorrupt, OSError."""


class Hooks:
    """What a part may add. Each hook is called once for all parts; the results come in the order of the parts."""

    @hookspec
    def verb_table(self) -> Path:
        """Return a table of verbs as `evolvable_tools/verbs/registry.json`: name, effect, authority, function."""
        raise NotImplementedError

    @hookspec
    def commands(self) -> Mapping[str, str]:
        """Return the commands of the part: the name -> `module:attribute` of its click command."""
        raise NotImplementedError

    @hookspec
    def add_tools(
        self,
        server: "LibraryServer",
        library: "Library",
        caller: "Caller",
        sessions: "CallSessions",
        config: "Config",
    ) -> None:
        """Add the MCP tools of the groups in `config.toolsets` that are the part's."""

    @hookspec
    def pages(self, page: "PageKit") -> "PageParts":
        """Return what the part adds to the local page. page: what pages are drawn with."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def open_storage(self, home: Path, create: bool, registered: "Registered") -> "Storage | None":
        """Open the storage that the address file of a home names; None for one that is not the part's."""

    @hookspec(firstresult=True)
    def trial_arms(self) -> "TrialArms":
        """Return what says which version of a resource a session gets in place of the head."""
        raise NotImplementedError

    @hookspec
    def archive_part(self) -> ArchivePart:
        """Return what the part adds to backups, archives and remotes."""
        raise NotImplementedError

    @hookspec
    def doctor_checks(self, config: "Config") -> "tuple[list[HealthProblem], list[str]]":
        """Return what is wrong with what the part needs, and what is good to know of it."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def describe_sandbox(self, config: "Config") -> str | None:
        """Return what candidates run in, found out by a run, and why nothing better is used."""

    @hookspec
    def after_review(self, library: "Library", caller: "Caller") -> None:
        """Act on what the sessions that were just reviewed showed."""

    @hookspec
    def remove_old_runs(self, library: "Library", before: str, dry_run: bool) -> tuple[list[str], dict[str, list[str]]]:
        """Remove what the part keeps beside the library, older than a moment, that nothing refers to.

        Return what was removed, and what is old and kept with what keeps it. before: ISO 8601 in UTC.
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def served_environment(self, path: str, files: Mapping[str, bytes]) -> bytes | None:
        """Return a file of an environment as an agent is shown it: without what is sealed."""

    @hookspec
    def scorers(self) -> "Mapping[str, PluginScorer]":
        """Return scorers by the name that a task names."""
        raise NotImplementedError

    @hookspec
    def clients(self) -> "Sequence[Client]":
        """Return clients that `connect` writes an entry for."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def serve_http(self, service: HttpService, ready: Callable[[str], None]) -> bool | None:
        """Serve the library over HTTP until the process is told to end; return True then."""

    @hookspec(firstresult=True)
    def find_token(self, home: Path, secret: str) -> "tuple[str, Sequence[str]] | None":
        """Return name and permissions of the token with this secret, None where there is none."""

    @hookspec(firstresult=True)
    def token_rows(self, home: Path) -> "Sequence[Mapping[str, Any]] | None":
        """Return the tokens of a library as `evolvable token list` shows them. Raise LibraryCorrupt, Refused."""

    @hookspec(firstresult=True)
    def login_flow(self, config: "Config", port: int) -> Any:
        """Return how people sign in to the page at the provider of the configuration."""


@cache
def _manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(Hooks)
    for name in BUILT_IN:
        if find_spec(name.partition(".")[0]) is not None:
            _register(manager, importlib.import_module(name), name)
    return manager


def _register(manager: pluggy.PluginManager, part: object, name: str) -> None:
    manager.register(part, name)
    if (table := getattr(part, "verb_table", None)) is not None:
        add_table(table())


@cache
def _add_others() -> None:
    """Add the parts of other distributions. One that fails is left out, with a warning."""
    from importlib.metadata import entry_points  # late: 18 ms, and most commands need no other distribution

    manager = _manager()
    for entry in entry_points(group=GROUP):
        try:
            _register(manager, entry.load(), entry.name)
        except Exception as error:  # whatever the code of others raises
            log.warning("The plugin %s was left out: %s: %s", entry.name, type(error).__name__, error)


def hooks() -> Any:
    """Return what calls the hooks of the parts that come with the program. Their verbs are in the registry then."""
    return _manager().hook


def all_hooks() -> Any:
    """Return what calls the hooks of all parts, those of other distributions too, whose metadata is read."""
    _add_others()
    return _manager().hook


def missing_parts() -> list[str]:
    """Return the packages that come with the program and are not installed."""
    return [package for package in (EVOLVE, TEAMS, PAGE) if find_spec(package) is None]


def merged_tables(results: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rows of all parts. Of two of one name the earlier part's counts, so that none replaces the core's."""
    merged: dict[str, Any] = {}
    for rows in results:
        merged |= {name: row for name, row in rows.items() if name not in merged}
    return merged


def trial_arms() -> "TrialArms | None":
    """Return what says which version a session gets while versions are on trial, None without such a part."""
    found: TrialArms | None = hooks().trial_arms()
    return found


def archive_parts() -> Sequence[ArchivePart]:
    """Return what the parts of the program add to backups, archives and remotes."""
    parts: list[ArchivePart] = hooks().archive_part()
    return parts


@cache
def plugin_scorers() -> "Mapping[str, PluginScorer]":
    """Return the scorers of all parts by name."""
    return merged_tables(all_hooks().scorers())


def open_storage(home: Path, create: bool, registered: "Registered") -> "Storage":
    """Open the library that the address file of a home names. Raise LibraryError without a part that can."""
    found: Storage | None = hooks().open_storage(home=home, create=create, registered=registered)
    if found is None:
        missing = f"The library of {home} lies in PostgreSQL, which this installation cannot open: {TEAMS} is missing."
        raise LibraryError(missing, "Install the whole program again.")
    return found
