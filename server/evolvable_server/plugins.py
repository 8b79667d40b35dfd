"""The interface between the core and the parts of the program, as hooks of pluggy.

The core runs without any part. The parts that come with the program are a fixed list, so a start
reads no metadata of distributions. Another distribution joins by the entry-point group `evolvable`,
which a command reads when it runs. A part is a module with functions marked
`hookimpl`, named as the hooks below.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import pluggy

from evolvable_store import AGENT_RUNS, MIRRORS, RUNS
from evolvable_store.errors import EvolvableError, LibraryError
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
    from evolvable_tools import Caller, HealthProblem, Library, Progress, TrialArms

GROUP = "evolvable"
"""The name of the project in pluggy, and the group of entry points of other distributions."""

EVOLVE, TEAMS, PAGE = "evolvable_evolve", "evolvable_teams", "evolvable_page"

BUILT_IN = tuple(f"{package}.plugin" for package in (EVOLVE, TEAMS, PAGE))
"""The parts that come with the program. One that was left out of an installation adds nothing."""

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@dataclass(frozen=True, slots=True)
class HttpService:
    """A call of `serve --http`. options: its further ones, by their names on the command line."""

    config: "Config"
    host: str
    port: int
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PluginScorer:
    """A scorer of a part.

    score: returns the score of an answer from 0 to 1, with the feedback that a proposer sees. It
    gets the expected answer of the task ('' without one), the answer, and the arguments that the
    task names. It is deterministic, reads no file and no clock, and raises ValueError where it
    cannot score. arguments: the JSON schema of each argument. version: scores of an earlier version
    do not count for a later one.
    """

    score: Callable[[str, str, Mapping[str, Any]], tuple[float, str]]
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    required: Sequence[str] = ()
    needs_expected: bool = False
    version: str = ""


@dataclass(frozen=True, slots=True)
class SetupOffer:
    """A step that `setup` offers after the folders and the clients, and takes only after a yes.

    name: the word for `setup --take`. text: what the offer does, what it keeps, and how to take it
    back. take: carries it out, reports its progress, and returns lines about what was done; it may
    raise EvolvableError. obstacle: why it cannot be taken now, '' where it can; an offer with an
    obstacle is not shown.
    """

    name: str
    text: str
    take: "Callable[[Library, Caller, Progress], Sequence[str]]"
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """Work that an agent asked for, that has not begun and that only a person begins.

    text: lines about the work, who does it and what it may spend. command: the command that begins
    it. begin: begins it in a process of its own, and returns lines about that. remove: removes it.
    Both may raise EvolvableError.
    """

    run: str
    text: str
    command: str
    begin: "Callable[[Config], Sequence[str]]"
    remove: Callable[[], Sequence[str]]


class ArchivePart(Protocol):
    """The additions of a part to backups, archives and remotes: JSON lines about resources."""

    def backup_files(self, home: Path) -> dict[str, bytes]:
        """Return the files for a backup of a library, by their paths below the home."""

    def merge_backup(self, home: Path, source: Path) -> None:
        """Add the lines of a backup in `source` to the library in `home`. Raise OSError."""

    def export(self, library: "Library", caller: "Caller", refs: "Iterable[Ref] | None") -> bytes:
        """Return the lines about these resources, about all for None. Raise LibraryCorrupt."""

    def add(self, home: Path, lines: bytes) -> int:
        """Add lines of another library; return how many were new. Raise LibraryCorrupt, OSError."""


class Hooks:
    """The hooks that a part may have.

    Each hook is called once for all parts; the results come in the order of the parts.
    """

    @hookspec
    def verb_table(self) -> Path:
        """Return a table of verbs as `evolvable_tools/verbs/registry.json`: name, effect,
        authority, function.
        """
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
        """Return the part's additions to the local page. page: the functions that draw pages."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def open_storage(self, home: Path, create: bool, registered: "Registered") -> "Storage | None":
        """Open the storage that the address file of a home names, None for a storage of another
        part.
        """

    @hookspec(firstresult=True)
    def trial_arms(self) -> "TrialArms":
        """Return the object that chooses a session's version of a resource on trial."""
        raise NotImplementedError

    @hookspec
    def archive_part(self) -> ArchivePart:
        """Return the part's additions to backups, archives and remotes."""
        raise NotImplementedError

    @hookspec
    def doctor_checks(self, config: "Config") -> "tuple[list[HealthProblem], list[str]]":
        """Return the problems of the part's requirements, and notes on them."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def describe_sandbox(self, config: "Config") -> str | None:
        """Return the sandbox of candidates, tested by a run, and why no better one is used."""

    @hookspec
    def after_review(self, library: "Library", caller: "Caller") -> None:
        """Act on what the sessions that were just reviewed showed."""

    @hookspec
    def remove_old_runs(
        self, library: "Library", before: str, dry_run: bool
    ) -> tuple[list[str], dict[str, list[str]]]:
        """Remove the part's old runs beside the library that nothing refers to.

        Return the removed runs, and the old ones that were kept with the reasons. before: the time
        before which a run is old, ISO 8601 in UTC.
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def served_environment(self, path: str, files: Mapping[str, bytes]) -> bytes | None:
        """Return a file of an environment as an agent sees it: without its sealed content."""

    @hookspec
    def waiting_runs(self, library: "Library") -> "Sequence[WaitingRun]":
        """Return the runs that wait for a person in the inbox, the oldest first."""
        raise NotImplementedError

    @hookspec
    def scorers(self) -> "Mapping[str, PluginScorer]":
        """Return the part's scorers by the name that a task names."""
        raise NotImplementedError

    @hookspec
    def setup_offers(self, config: "Config", library: "Library") -> "Sequence[SetupOffer]":
        """Return the offers for `evolvable setup`, without those that are on or have no effect."""
        raise NotImplementedError

    @hookspec
    def clients(self) -> "Sequence[Client]":
        """Return clients for `connect`, which writes their entry, and `checkout`, their folders."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def serve_http(self, service: HttpService, ready: Callable[[str], None]) -> bool | None:
        """Serve the library over HTTP until the process gets a signal to end; return True then."""

    @hookspec(firstresult=True)
    def find_token(self, home: Path, secret: str) -> "tuple[str, Sequence[str]] | None":
        """Return name and permissions of the token with this secret, None where there is none."""

    @hookspec(firstresult=True)
    def token_rows(self, home: Path) -> "Sequence[Mapping[str, Any]] | None":
        """Return the tokens of a library as `evolvable team token list` shows them.

        Raise LibraryCorrupt, Refused.
        """

    @hookspec(firstresult=True)
    def login_flow(self, config: "Config", port: int) -> Any:
        """Return the sign-in to the page at the provider of the configuration, a `SignInFlow`."""


@cache
def _load_built_in() -> Mapping[str, ModuleType]:
    """Load the parts that come with the program, and register their verbs; return them by name."""
    # Only the package is looked for: a part that is there and fails is a fault of the installation.
    installed = [name for name in BUILT_IN if find_spec(name.partition(".")[0]) is not None]
    parts = {name: importlib.import_module(name) for name in installed}
    for part in parts.values():
        _add_verbs(part)
    return parts


@cache
def _make_manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(Hooks)
    for name, part in _load_built_in().items():
        manager.register(part, name)
    return manager


def _add_verbs(part: object) -> None:
    if (table := getattr(part, "verb_table", None)) is not None:
        add_table(table())


def built_in_commands() -> Sequence[Mapping[str, str]]:
    """Return what the hook `commands` of each part that comes with the program returns.

    Every start needs these tables and few need another hook: a manager with all of them takes 4 ms.
    """
    return [part.commands() for part in _load_built_in().values() if hasattr(part, "commands")]


def _warn(text: str, *values: object) -> None:
    from logging import getLogger  # late: 4 ms, and a start warns of nothing

    getLogger(__name__).warning(text, *values)


@cache
def _add_others() -> None:
    """Add the parts of other distributions. One that fails is left out, with a warning."""
    # Late: 18 ms, and most commands need no other distribution.
    from importlib.metadata import entry_points

    manager = _make_manager()
    for entry in entry_points(group=GROUP):
        try:
            # Before it is registered, so that none of its hooks ends the program.
            part = _guard_part(entry.load(), entry.name)
            manager.register(part, entry.name)
            _add_verbs(part)
        except Exception as error:  # the code of others may raise any
            _warn("The plugin %s was left out: %s: %s", entry.name, type(error).__name__, error)


_GUARDED = ("commands", "clients", "scorers", "pages", "doctor_checks", "add_tools")
"""Hooks that add nothing where they fail in another distribution's part; the program goes on."""


def _guard_part(part: object, name: str) -> object:
    """Return the hooks of another distribution's part, so that one that fails adds nothing."""
    guarded = SimpleNamespace()
    for hook in dir(Hooks):
        if not hook.startswith("_") and hasattr(part, hook):
            function = getattr(part, hook)
            setattr(guarded, hook, _guard(function, name) if hook in _GUARDED else function)
    return guarded


def _guard(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    # A part that failed once would fail at each call, and fill the log.
    failed = False

    @wraps(function)  # keeps the mark and the arguments, which pluggy reads
    def call(*arguments: Any) -> Any:
        nonlocal failed
        if failed:
            return None
        try:
            return function(*arguments)
        # Errors of ours are written for the person.
        except EvolvableError:
            raise
        except Exception as error:  # the code of others may raise any
            failed = True
            text = f"{type(error).__name__}: {error}"
            _warn("The plugin %s adds no %s: %s", name, function.__name__.replace("_", " "), text)
            return None

    return call


def hooks() -> Any:
    """Return the caller of the hooks of the parts that come with the program.

    Their verbs are in the registry then.
    """
    return _make_manager().hook


def all_hooks() -> Any:
    """Return the caller of the hooks of all parts, also of other distributions, whose metadata is
    read.
    """
    _add_others()
    return _make_manager().hook


def missing_parts() -> list[str]:
    """Return the packages that come with the program and are not installed."""
    return [package for package in (EVOLVE, TEAMS, PAGE) if find_spec(package) is None]


_FOLDERS: Mapping[str, Mapping[str, str]] = {
    EVOLVE: {RUNS: "runs of evolution", AGENT_RUNS: "runs of agents"},
    TEAMS: {MIRRORS: "mirrors of git remotes"},
}
"""Part -> folder of the home -> what it holds."""

_TABLES: Mapping[str, Mapping[str, str]] = {
    EVOLVE: {"pool": "versions on trial", "execution": "runs of tools"},
    TEAMS: {"remote": "git remotes"},
}
"""Part -> table of the library -> what its rows are."""


def left_by_missing_parts(library: "Library") -> list[str]:
    """Return a sentence for each folder and each table of a library that only a missing part can
    read.
    """
    missing = missing_parts()
    if not missing:
        return []
    sizes, home = library.store.backend.maintenance.table_sizes(), library.store.home
    lines: list[str] = []
    for part in missing:
        end = f"{part}, which reads them, is not installed."
        for folder, what in _FOLDERS.get(part, {}).items():
            if number := _count_folders(home / folder):
                lines.append(f"{home / folder} holds {number:,} {what}; {end}")
        for table, what in _TABLES.get(part, {}).items():
            if rows := sizes.get(table, 0):
                lines.append(f"The library holds {rows:,} {what}; {end}")
    return lines


def _count_folders(folder: Path) -> int:
    # Files beside the folders are no runs.
    return sum(1 for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else 0


def merged_tables(results: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rows of all parts.

    Of two rows with one name the earlier part's counts, so that none replaces the core's.
    """
    merged: dict[str, Any] = {}
    for rows in results:
        merged |= {name: row for name, row in rows.items() if name not in merged}
    return merged


def trial_arms() -> "TrialArms | None":
    """Return the object that chooses versions on trial for sessions, None without such a part."""
    arms: TrialArms | None = hooks().trial_arms()
    return arms


def waiting_runs(library: "Library") -> "Sequence[WaitingRun]":
    """Return the runs of all parts of the program that wait for a person."""
    return [run for part_runs in hooks().waiting_runs(library=library) for run in part_runs]


def archive_parts() -> Sequence[ArchivePart]:
    """Return the additions of all parts to backups, archives and remotes."""
    parts: list[ArchivePart] = hooks().archive_part()
    return parts


@cache
def plugin_scorers() -> "Mapping[str, PluginScorer]":
    """Return the scorers of all parts by name."""
    return merged_tables(all_hooks().scorers())


def open_storage(home: Path, create: bool, registered: "Registered") -> "Storage":
    """Open the library that the address file of a home names.

    Raise LibraryError without a part that can.
    """
    storage: Storage | None = hooks().open_storage(home=home, create=create, registered=registered)
    if storage is None:
        raise LibraryError(
            f"The library of {home} lies in PostgreSQL, which this installation cannot open: "
            f"{TEAMS} is missing.",
            "Install the whole program again.",
        )
    return storage
