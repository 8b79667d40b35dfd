"""Export and import resources as plain folders, or as a zip of them.

They have the newest version of each, as name/SKILL.md and so on.
"""

import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from evolvable_store.bundle.archive_reader import MAX_LOOKS
from evolvable_store.bundle.export import Stream, disk_errors, open_atomic, select_heads
from evolvable_store.bundle.import_ import (
    FolderImport,
    ImportCandidate,
    ImportCheck,
    ImportReport,
    accept_all,
    is_main,
    track_progress,
)
from evolvable_store.bundle.zip_reader import (
    MAX_ENTRIES,
    MAX_RATIO,
    MAX_TOTAL,
    ZipArchive,
    open_zip,
    unsafe_zip,
)
from evolvable_store.errors import InvalidArchive, InvalidArgument, TooLarge
from evolvable_store.frontmatter import parse_document, summarize
from evolvable_store.objects import MAX_FILES, MAX_RESOURCE, File, Files
from evolvable_store.operation import Head
from evolvable_store.paths import check_path, is_ignored, is_sync_copy
from evolvable_store.regular_files import regular_file
from evolvable_store.resource import USER_SCOPE, Kind, Ref, check_scope, main_file
from evolvable_store.store import Store
from evolvable_store.workingcopy import SYNC_COPY, read_folder

# O_EXCL follows no link and overwrites nothing; O_BINARY keeps line ends on Windows.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)

# Deep enough for a checkout with skills in folders of plugins; bounds the walk over a person's
# whole disk.
MAX_DEPTH = 6
"""How many folders below the imported one are searched for resources."""

LOOKS_PATH = ".evolvable/opened.jsonl"
"""The file beside the resources of a zip or of folders that holds records of the caller."""

# The earliest time that a zip can hold; a real one would make equal exports differ.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def export_folders(
    store: Store, target: Path, refs: Iterable[Ref] | None = None, looks: bytes = b""
) -> tuple[Ref, ...]:
    """Write resources as folders into `target`, by default all skills of the user's scope.

    Return them. looks: records of the caller, added to those of an export before it. `target` is
    made when it is missing. Nothing in it is overwritten: a name that is taken is refused before
    anything is written. Each folder appears whole. Raises NoSuchResource, InvalidArgument,
    LibraryError.
    """
    heads = select_heads(store, refs)
    with disk_errors(target, "folder"):
        target.mkdir(parents=True, exist_ok=True)
        taken_names = [head.name for head in heads if os.path.lexists(target / head.name)]
        if taken_names:
            raise InvalidArgument(
                f"{target} has {', '.join(taken_names[:10])} already.", "Name an empty folder."
            )
        # Each folder is written into the draft and renamed, so nobody sees half of one.
        draft = Path(tempfile.mkdtemp(prefix=".export.", suffix=".tmp", dir=target))
        try:
            if looks:
                (target / LOOKS_PATH).parent.mkdir(exist_ok=True)
                with open(target / LOOKS_PATH, "ab") as stream:
                    stream.write(looks)
            for head in heads:
                _write_folder(draft / head.name, store.files(head))
                os.rename(draft / head.name, target / head.name)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return tuple(head.ref for head in heads)


def _make_hint(source: Path, kind: Kind) -> str:
    """Return the hint for a folder that holds nothing of this kind."""
    # The usual mistake: a folder of agents imported as skills.
    others = [
        other
        for other in Kind
        if other is not kind and next(find_folders(source, other, MAX_DEPTH), None)
    ]
    if others:
        other = others[0]
        return f"It has {main_file(other, 'name')}: import it as the kind {other} (--kind {other})."
    main = main_file(kind, "name")
    return (
        f"Name another folder, or write {main} into it, beginning with ---, name, description, ---."
    )


def _write_folder(folder: Path, files: Files) -> None:
    folder.mkdir()
    for path, file in files.items():
        # Checked again: the library's file may be forged.
        place = folder / check_path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(place, _NEW, file.mode), "wb") as stream:
            stream.write(file.data)


def import_folders(
    store: Store,
    source: Path,
    *,
    kind: Kind = Kind.SKILL,
    scope: str = USER_SCOPE,
    replace: bool = False,
    reason: str = "",
    progress: Callable[[int, int], None] | None = None,
    check: ImportCheck = accept_all,
) -> ImportReport:
    """Import each folder in `source`, or `source` itself, that holds a resource of this kind.

    Return a report. The other arguments and errors are those of `import_zip`. A folder with a
    symlink or anything else that cannot be kept whole is refused. progress: called with folders
    read and all folders. Raises InvalidArchive when there is no such folder.
    """
    check_scope(scope)
    folders = list(find_folders(source.absolute(), kind, MAX_DEPTH))
    if not folders:
        raise InvalidArchive(
            f"{source} has no folder with {main_file(kind, 'name')}.",
            _make_hint(source.absolute(), kind),
        )

    def read() -> Iterator[ImportCandidate]:
        return track_progress(map(folder_candidate, folders), len(folders), progress)

    reason = reason or f"imported from {source}"
    return FolderImport(store, kind, scope, reason, replace, check).run(read)


def find_folders(place: Path, kind: Kind, depth: int) -> Iterator[Path]:
    """Yield the outermost folders from `place` on that hold a main file; links are not followed."""
    try:
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError:
        return
    # The outermost wins: an example skill inside of a skill belongs to it.
    if any(is_main(kind, f"{place.name}/{entry.name}") for entry in entries):
        yield place
        return
    for entry in entries:
        if depth and entry.is_dir(follow_symlinks=False) and not is_ignored(entry.name):
            yield from find_folders(Path(entry.path), kind, depth - 1)


def folder_candidate(folder: Path) -> ImportCandidate:
    """Return the import candidate of a folder that is a resource, under the folder's name."""
    try:
        reading = read_folder(folder)
    except FileNotFoundError:
        return ImportCandidate(folder.name, {}, ("it is gone",))
    if reading.cut_short:
        return ImportCandidate(folder.name, {}, (reading.cut_short,))
    copies = [path for path, why in reading.left_out.items() if why == SYNC_COPY]
    missing = [f"{path}: {why}" for path, why in reading.left_out.items() if why != SYNC_COPY]
    return ImportCandidate(folder.name, reading.files, tuple(missing), (*reading.ignored, *copies))


def export_zip(
    store: Store, target: Path | Stream, refs: Iterable[Ref] | None = None, looks: bytes = b""
) -> tuple[Ref, ...]:
    """Write resources into a zip, by default all skills of the user's scope; return them.

    looks: records of the caller that go along.

    Equal content gives an equal zip, byte for byte. A stream is written to and not closed. Raises
    NoSuchResource, InvalidArgument when two resources would get one folder, TooLarge, LibraryError
    when the file cannot be written.
    """
    heads = select_heads(store, refs)
    manifests = [store.manifest(head) for head in heads]
    entries, total = sum(map(len, manifests)), sum(manifest.size for manifest in manifests)
    # The limits of `open_zip`: an export that no import accepts is worth nothing.
    if entries > MAX_ENTRIES or total > MAX_TOTAL:
        what = f"A zip of {entries:,} files with {total:,} bytes could not be read again."
        raise TooLarge(what, f"The limits are {MAX_ENTRIES:,} files and {MAX_TOTAL:,} bytes.")
    with open_atomic(target) as stream, zipfile.ZipFile(stream, "w") as archive:
        for head in heads:
            _write_zip_entries(archive, store, head)
        if looks:
            info = zipfile.ZipInfo(LOOKS_PATH, _EPOCH)
            info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, 3
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, looks)
    return tuple(head.ref for head in heads)


def _write_zip_entries(archive: zipfile.ZipFile, store: Store, head: Head) -> None:
    for path, file in sorted(store.files(head).items()):
        info = zipfile.ZipInfo(f"{head.name}/{path}", _EPOCH)
        # 3 is Unix: other values make readers ignore the mode in external_attr.
        info.compress_type, info.create_system = _choose_packing(file.data), 3
        info.external_attr = (stat.S_IFREG | file.mode) << 16
        archive.writestr(info, file.data)


def _choose_packing(data: bytes) -> int:
    """Return how a file is packed.

    A file that would become very small is stored as it is: an import would take it for a bomb.
    """
    small = len(data) > MAX_RATIO and len(zlib.compress(data)) * MAX_RATIO < len(data)
    return zipfile.ZIP_STORED if small else zipfile.ZIP_DEFLATED


def import_zip(
    store: Store,
    source: Path | Stream,
    *,
    kind: Kind = Kind.SKILL,
    scope: str = USER_SCOPE,
    replace: bool = False,
    reason: str = "",
    progress: Callable[[int, int], None] | None = None,
    check: ImportCheck = accept_all,
) -> ImportReport:
    """Import each folder in the zip, at any depth, that holds a resource of this kind.

    Return a report. A folder's name is the resource's; a zip of the bare files takes the name from
    the main file. A resource that is here with other content gets a new version with `replace`,
    else it is refused. All of it is one operation by Actor.IMPORT. progress: called with folders
    read and all folders. Raises InvalidArchive or TooLarge, before anything is imported, for a zip
    that is damaged, has no such folder, or is not plain: links, devices, encryption, names that
    lead elsewhere or clash, bytes used twice.
    """
    check_scope(scope)
    with open_zip(source) as archive:
        folders = _group_members(archive, kind)
        if not folders:
            raise unsafe_zip(f"it has no folder with {main_file(kind, 'name')}")
        reason = reason or f"imported from {source.name if isinstance(source, Path) else 'a zip'}"

        def read() -> Iterator[ImportCandidate]:
            candidates = _read_candidates(archive, kind, folders)
            return track_progress(candidates, len(folders), progress)

        return FolderImport(store, kind, scope, reason, replace, check).run(read)


def _group_members(archive: ZipArchive, kind: Kind) -> dict[str, list[str]]:
    """Return the outermost folders that are resources, each with the paths of its files."""
    mains = {path.rpartition("/")[0] for path in archive.members if is_main(kind, path)}
    folders: dict[str, list[str]] = {}
    for path in archive.members:
        # From the outermost, so that a resource inside of a resource belongs to the outer one.
        top = next((above for above in _list_parents(path) if above in mains), None)
        if top is not None and not is_left_out(path):
            folders.setdefault(top, []).append(path)
    return folders


def is_left_out(path: str) -> bool:
    """Return whether a file of this path is no part of a resource, by its name alone."""
    parts = path.split("/")
    return any(map(is_ignored, parts)) or is_sync_copy(parts[-1])


def _list_parents(path: str) -> Iterator[str]:
    """Yield the folders that a path lies in, from the outermost, which is ''."""
    yield ""
    for match in re.finditer("/", path):
        yield path[: match.start()]


def _read_candidates(
    archive: ZipArchive, kind: Kind, folders: dict[str, list[str]]
) -> Iterator[ImportCandidate]:
    unwanted = list(filter(is_left_out, archive.members))
    for folder, paths in folders.items():
        size = sum(archive.members[path].size for path in paths)
        if size > MAX_RESOURCE or len(paths) > MAX_FILES:
            why = (
                f"it has {len(paths):,} files of {size:,} bytes, the limits are {MAX_FILES} and "
                f"{MAX_RESOURCE:,}"
            )
            yield ImportCandidate(folder.rpartition("/")[2] or "the archive", {}, (why,))
            continue
        start = len(folder) + 1 if folder else 0
        files = {
            path[start:]: File(archive.read(path), archive.members[path].mode) for path in paths
        }
        prefix = f"{folder}/" if folder else ""
        left_out = tuple(path[start:] for path in unwanted if path.startswith(prefix))
        name = folder.rpartition("/")[2] or _read_own_name(kind, files)
        yield ImportCandidate(name, files, left_out=left_out)


def _read_own_name(kind: Kind, files: Files) -> str:
    """Return the name that the main file gives itself, empty where it gives none."""
    main = next(path for path in files if is_main(kind, path))
    return summarize(parse_document(files[main].data)).name


def read_looks(source: Path, form: str) -> bytes:
    """Return the records of the caller that came with a zip or folders, empty for none.

    form: "zip" or another text for folders. Raises InvalidArchive or TooLarge for a zip that is not
    plain.
    """
    if form == "zip":
        with open_zip(source) as archive:
            member = archive.members.get(LOOKS_PATH)
            # By the size in the directory, which `read` then verifies.
            if member is None or member.size > MAX_LOOKS:
                return b""
            return archive.read(LOOKS_PATH)
    path = source / LOOKS_PATH
    # The folder .evolvable could lead anywhere as well.
    if path.parent.is_symlink():
        return b""
    try:
        # A link could lead to any file of the person.
        with open(regular_file(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as stream:
            return stream.read(MAX_LOOKS)
    except OSError:
        return b""
