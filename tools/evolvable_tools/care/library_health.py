"""The health of a library: the program, SQLite, the library's file, its folders.

The checks change nothing.
"""

import contextlib
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from evolvable_store import (
    LIBRARY_FILE,
    Store,
    __version__,
    find_problems,
    main_path,
    named_problems,
    open_elsewhere,
)
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import Kind, Ref
from evolvable_store.search import COMPILED, embedding_progress
from evolvable_store.storage import LATEST, SqliteFacts, WatchedFolder, describe_sqlite
from evolvable_store.workingcopy import DirectoryIssue, check_directory, known_files, name_taken
from evolvable_tools import secret_leaks
from evolvable_tools.care.findings import near_duplicate_lines, secret_lines
from evolvable_tools.delegation import find_missing_checkouts, missing_parts
from evolvable_tools.embedding import installed_spec
from evolvable_tools.library import Library
from evolvable_tools.name_check import NameIndex
from evolvable_tools.reporting import HealthProblem, Progress, Step
from evolvable_tools.trust import find_downgraded, format_downgraded
from evolvable_tools.verbs import channel_status
from evolvable_tools.verbs.folder_states import (
    WatchedRoot,
    folder_notes,
    folder_problems,
    folder_states,
)
from evolvable_tools.verbs.library_status import CONFIRM_PLACES, waiting_places

MAX_WARNINGS = 50
"""Warnings of one directory that are shown."""


PACKAGES = (
    *("mcp", "pydantic", "sqlite-utils", "pysqlite3", "watchfiles"),
    *("PyYAML", "click", "wcwidth", "filelock"),
)
"""The packages whose versions a report names."""


@dataclass(frozen=True, slots=True)
class ProgramVersions:
    """The program that runs: versions of this program, of Python and of the packages it uses (None:
    not installed).

    compiled: whether the loops of a search are, which a C compiler is needed for when this program
    is installed.
    """

    evolvable: str
    python: str
    executable: str
    platform: str
    packages: dict[str, str | None]
    compiled: bool


@dataclass(frozen=True, slots=True)
class LibraryFacts:
    """The library's file. bytes: with its log. tables: rows of each. index: what is wrong with it,
    [] without a fault.

    unsafe: settings of a server of PostgreSQL that can lose a commit. open_in: other processes that
    have the library open, where the system shows them.
    """

    path: str
    bytes: int
    schema: int
    read_only: bool
    network: bool
    unsafe: list[str]
    resources: dict[str, int]
    tables: dict[str, int]
    index: list[str]
    open_in: list[str]


@dataclass(slots=True)
class LibraryHealth:
    """The findings on a library. library is None when it cannot be opened; problems is empty when
    all is well.

    refused: directories of watched folders that are not in the library, with every reason.
    warnings: what is unusual about resources, and files of their directories that are in no
    version. doubles: similar resources. embedder: its status. notes: what is good to know and no
    fault.
    """

    home: str
    program: ProgramVersions
    sqlite: SqliteFacts
    library: LibraryFacts | None = None
    folders: list[WatchedRoot] = field(default_factory=list)
    refused: list[DirectoryIssue] = field(default_factory=list)
    warnings: list[DirectoryIssue] = field(default_factory=list)
    doubles: list[str] = field(default_factory=list)
    embedder: str = ""
    notes: list[str] = field(default_factory=list)
    problems: list[HealthProblem] = field(default_factory=list)


Opened = Callable[[], contextlib.AbstractContextManager[Library]]
"""Opens the library. Raises EvolvableError where that cannot be done."""

Unwatched = Callable[[Sequence[Path]], Iterable[HealthProblem]]
"""Says which of these watched folders a running server cannot watch."""


def check_library(health: LibraryHealth, opened: Opened, unwatched: Unwatched, step: Step) -> None:
    """Add the findings on a library and on the system. Raise nothing for what is wrong there."""
    try:
        with opened() as library:
            _check_opened(health, library, unwatched, step)
    except EvolvableError as error:
        health.problems.append(HealthProblem(str(error), error.hint))
    health.problems += _list_problems(health)


def _check_opened(
    health: LibraryHealth, library: Library, unwatched: Unwatched, step: Step
) -> None:
    home = library.store.home
    # A library in PostgreSQL has another file here, which says nothing about SQLite.
    if library.store.backend.path.name == LIBRARY_FILE:
        health.sqlite = describe_sqlite(library.store.backend.journal, home)
    health.library = _collect_facts(library, home)
    with step("Reading resources") as progress:
        health.warnings = list(_find_warnings(library.store, progress))
    _check_folders(library, health)
    health.problems += unwatched([Path(folder.path) for folder in health.folders])
    health.warnings = _merge_issues(
        [*health.warnings, *_find_channel_issues(library), *_find_delegate_issues(library)]
    )
    refs = [head.ref for head in library.store.heads()]
    health.doubles = near_duplicate_lines(library, refs, step, len(refs))
    health.embedder = _describe_embedder(home)
    lower = find_downgraded(library)
    health.notes += format_downgraded(lower) if lower else []
    health.problems += [
        HealthProblem(line, secret_leaks.NEXT) for line in secret_lines(library, step)
    ]
    health.problems += _find_unfinished_purges(library)
    if waiting := waiting_places(library):
        health.problems.append(HealthProblem(waiting, CONFIRM_PLACES))


def program_versions() -> ProgramVersions:
    """Return what runs here."""
    return ProgramVersions(
        __version__,
        platform.python_version(),
        sys.executable,
        f"{platform.system()} {platform.machine()}",
        {name: _find_version(name) for name in PACKAGES},
        COMPILED,
    )


def _find_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _collect_facts(library: Library, home: Path) -> LibraryFacts:
    store = library.store
    path, maintenance = store.backend.path, store.backend.maintenance
    heads = store.heads()
    resources = {kind.value: sum(1 for head in heads if head.kind is kind) for kind in Kind}
    return LibraryFacts(
        path=store.backend.where,
        # The log and the shared memory of SQLite count as well.
        bytes=sum(file.stat().st_size for file in home.glob(f"{LIBRARY_FILE}*")),
        schema=maintenance.schema_version(),
        read_only=store.read_only,
        network=maintenance.on_network(),
        unsafe=maintenance.unsafe_settings(),
        resources={kind: number for kind, number in resources.items() if number},
        tables=maintenance.table_sizes(),
        index=[str(fault) for fault in library.index.find_faults()],
        open_in=list(open_elsewhere(path)),
    )


def _describe_embedder(home: Path) -> str:
    """Return how far the embedder of the library is; looking starts none."""
    done = embedding_progress(home)
    if done is None:
        spec = installed_spec()
        return f"{spec}, not started yet" if spec else "none installed: keyword search only"
    return f"{done.model}, {done.done:,} of {done.total:,} texts embedded"


def _check_folders(library: Library, health: LibraryHealth) -> None:
    """Add how the watched folders stand, and what an import warns of beyond the warnings that are
    there.
    """
    health.folders = folder_states(library)
    known_warnings = {warning.directory: frozenset(warning.problems) for warning in health.warnings}
    for folder, state in zip(library.working_copies.folders(), health.folders, strict=True):
        refused = {issue.directory for issue in state.not_imported}
        health.refused += [
            DirectoryIssue(str(folder.path / issue.directory), issue.problems)
            for issue in state.not_imported
        ]
        health.notes += folder_notes(state)
        checked = _check_directories(library, folder) if not state.obstacle else ()
        for directory, ref, warnings in checked:
            more = [text for text in warnings if text not in known_warnings.get(ref, ())]
            if more and directory not in refused:
                rest = [f"and {len(more) - MAX_WARNINGS:,} more"] * (len(more) > MAX_WARNINGS)
                place = str(folder.path / directory)
                health.warnings.append(DirectoryIssue(place, (*more[:MAX_WARNINGS], *rest)))


def _check_directories(
    library: Library, folder: WatchedFolder
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each directory that holds a resource: its name, its resource or '', and what its import
    warns of.
    """
    copies = library.working_copies
    bound = copies.bindings.of_folder(folder)
    heads = library.store.backend.heads_by_id({binding.resource for binding in bound.values()})
    status = copies.copy(folder).status
    for directory in sorted(status.everything().directories):
        binding, name = bound.get(directory), status.resource_name(directory)
        head = heads.get(binding.resource) if binding else None
        # As a sync imports them: a skill is held to its directory's name, any other kind to what
        # can be made of it.
        held_to = head.name if head else name
        if folder.kind is Kind.SKILL:
            held_to = Path(directory).name
        # The directory may be removed while it is checked.
        with contextlib.suppress(OSError):
            expected_files = known_files(library.store, binding, head)
            warnings = check_directory(
                folder.kind, held_to, status.read(directory), (), expected_files
            )[1]
            # Where the name is free, the resource came in when names had fewer letters.
            other = (
                library.store.head_or_none(Ref(folder.kind, name, folder.scope)) if name else None
            )
            if head is not None and head.name != name and other is not None:
                warnings = [*warnings, name_taken(head.ref)]
            yield directory, str(head.ref) if head else "", [*warnings]


def _find_warnings(store: Store, progress: Progress) -> Iterator[DirectoryIssue]:
    heads, names = store.heads(), NameIndex(store)
    for number, head in enumerate(heads):
        progress(number, len(heads))
        manifest = store.manifest(head)
        path = main_path(head.kind, head.name, manifest)
        files = {path: store.file(head, path)} if path else {}
        problems = find_problems(head.kind, head.name, files)
        warnings = [str(problem) for problem in problems if not problem.capability]
        for other_path in sorted(manifest.keys() - {path}):
            warnings += map(str, named_problems(other_path))
        if twin := names.twin(head.ref):
            warnings.append(f"its name can be taken for that of {twin}")
        if warnings:
            yield DirectoryIssue(str(head.ref), tuple(warnings))


def _find_channel_issues(library: Library) -> Iterator[DirectoryIssue]:
    """Yield each skill of the stable channel that is not offered to hosts, with every reason."""
    for step in channel_status(library).left_out:
        yield DirectoryIssue(
            step.ref, tuple(f"not offered to hosts: {reason}" for reason in step.left_out)
        )


def _find_delegate_issues(library: Library) -> Iterator[DirectoryIssue]:
    """Yield each skill whose delegate, and each agent whose skills, cannot be used, with every
    reason.
    """
    for ref, reasons in (*missing_parts(library), *find_missing_checkouts(library)):
        yield DirectoryIssue(str(ref), tuple(reasons))


def _merge_issues(issues: Iterable[DirectoryIssue]) -> list[DirectoryIssue]:
    """Return one issue for each directory, with the problems of all its issues."""
    merged = dict[str, tuple[str, ...]]()
    for issue in issues:
        merged[issue.directory] = (*merged.get(issue.directory, ()), *issue.problems)
    return [DirectoryIssue(directory, problems) for directory, problems in merged.items()]


def _list_problems(health: LibraryHealth) -> Iterator[HealthProblem]:
    facts = health.library
    if facts is not None:
        if facts.read_only:
            yield HealthProblem(
                f"{facts.path} cannot be written.", "Check its permissions and those of its folder."
            )
        if facts.network:
            yield HealthProblem(
                f"{facts.path} lies on a network file system, or on FUSE that may hide one: locks "
                "are not reliable.",
                "Move the folder to a local disk and set EVOLVABLE_HOME.",
            )
        for setting in facts.unsafe:
            yield HealthProblem(
                f"At the server of the library {setting}.", "A commit can be lost; switch it on."
            )
        if facts.schema != LATEST:
            yield HealthProblem(
                f"The library has schema {facts.schema}, not {LATEST}.",
                "Make it writable, and open it.",
            )
        for fault in facts.index:
            yield HealthProblem(f"The text index is out of sync: {fault}", "")
    for folder in health.folders:
        yield from (HealthProblem(wrong.what, wrong.next) for wrong in folder_problems(folder))


def _find_unfinished_purges(library: Library) -> Iterator[HealthProblem]:
    for job in library.store.backend.purges.pending():
        yield HealthProblem(
            f"The purge of {job.at[:16]} ({job.kind}) did not end.",
            "`evolvable care purge --resume` ends it.",
        )
