"""Resources as a zip of their folders: name/SKILL.md and so on, the newest version of each."""

import re
import stat
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_store.archive.output import Stream, chosen_heads, written_whole
from evolvable_store.archive.taking_in import Candidate, Imported, Look, is_main, looked_away, take_in
from evolvable_store.archive.unzip import MAX_ENTRIES, Archive, opened, refusal
from evolvable_store.errors import TooLarge
from evolvable_store.folder import is_ignored
from evolvable_store.frontmatter import read, summary
from evolvable_store.objects import MAX_FILES, MAX_RESOURCE, File, Files
from evolvable_store.operation import Head
from evolvable_store.resource import USER_SCOPE, Kind, Ref, check_scope, main_file

if TYPE_CHECKING:
    from evolvable_store.store import Store

_EPOCH = (1980, 1, 1, 0, 0, 0)


def export_zip(store: "Store", target: Path | Stream, refs: Iterable[Ref] | None = None) -> tuple[Ref, ...]:
    """Returns the resources written to `target`, by default all skills of the user's scope.

    Equal content gives an equal zip, byte for byte. A stream is written to and not closed. Raises NoSuchResource,
    InvalidArgument when two resources would get one folder, TooLarge, LibraryError when the file cannot be written.
    """
    heads = chosen_heads(store, refs)
    entries = sum(len(store.manifest(head)) for head in heads)
    if entries > MAX_ENTRIES:
        raise TooLarge(f"A zip of {entries:,} files could not be read again.", f"The limit is {MAX_ENTRIES:,}.")
    with written_whole(target) as stream, zipfile.ZipFile(stream, "w") as archive:
        for head in heads:
            _write(archive, store, head)
    return tuple(head.ref for head in heads)


def _write(archive: zipfile.ZipFile, store: "Store", head: Head) -> None:
    for path, file in sorted(store.files(head).items()):
        info = zipfile.ZipInfo(f"{head.name}/{path}", _EPOCH)
        info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, 3
        info.external_attr = (stat.S_IFREG | file.mode) << 16
        archive.writestr(info, file.data)


def import_zip(
    store: "Store",
    source: Path | Stream,
    *,
    kind: Kind = Kind.SKILL,
    scope: str = USER_SCOPE,
    replace: bool = False,
    reason: str = "",
    look: Look = looked_away,
) -> Imported:
    """Returns what became of each folder in the zip that holds a resource of this kind, at any depth.

    A folder's name is the resource's; a zip of the bare files takes the name from the main file. What is here with
    other content gets a new version with `replace` and is refused otherwise. All of it is one operation by
    Actor.IMPORT. Raises InvalidArchive or TooLarge, before anything is taken in, for a zip that is damaged, has no
    such folder, or is not plain: links, devices, encryption, names that lead elsewhere or clash, bytes used twice.
    """
    check_scope(scope)
    with opened(source) as archive:
        folders = _folders(archive, kind)
        if not folders:
            raise refusal(f"it has no folder with {main_file(kind, 'name')}")
        reason = reason or f"imported from {source.name if isinstance(source, Path) else 'a zip'}"
        return take_in(store, kind, scope, lambda: _candidates(archive, kind, folders), reason, replace, look)


def _folders(archive: Archive, kind: Kind) -> dict[str, list[str]]:
    """Returns the folders that are resources, the outermost only, each with the paths of all files below it."""
    mains = {path.rpartition("/")[0] for path in archive.members if is_main(kind, path)}
    folders: dict[str, list[str]] = {}
    for path in archive.members:
        top = next((above for above in _above(path) if above in mains), None)
        if top is not None and not any(map(is_ignored, path.split("/"))):
            folders.setdefault(top, []).append(path)
    return folders


def _above(path: str) -> Iterator[str]:
    """Yields the folders that a path lies in, from the outermost, which is ''."""
    yield ""
    for match in re.finditer("/", path):
        yield path[: match.start()]


def _candidates(archive: Archive, kind: Kind, folders: dict[str, list[str]]) -> Iterator[Candidate]:
    for folder, paths in folders.items():
        size = sum(archive.members[path].size for path in paths)
        if size > MAX_RESOURCE or len(paths) > MAX_FILES:
            why = f"it has {len(paths):,} files of {size:,} bytes, the limits are {MAX_FILES} and {MAX_RESOURCE:,}"
            yield Candidate(folder.rpartition("/")[2] or "the archive", {}, (why,))
            continue
        start = len(folder) + 1 if folder else 0
        files = {path[start:]: File(archive.read(path), archive.members[path].mode) for path in paths}
        yield Candidate(folder.rpartition("/")[2] or _own_name(kind, files), files)


def _own_name(kind: Kind, files: Files) -> str:
    """Returns the name that the main file gives itself."""
    main = next(path for path in files if is_main(kind, path))
    return summary(read(files[main].data)).name or "the archive"
