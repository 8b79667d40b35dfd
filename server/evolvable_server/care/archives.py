"""Archives of resources, and copies of whole libraries, with what the parts of the program add to
them.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from evolvable_server import plugins
from evolvable_store import Head, Store, bundle
from evolvable_store.bundle import backup, read_looks, select_heads
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref
from evolvable_tools import (
    Caller,
    HeldBack,
    Library,
    Progress,
    Step,
    check_anything_leaves,
    held_back,
)
from evolvable_tools.care import near_duplicate_lines
from evolvable_tools.verbs import import_archive, note_copy

FORMATS = ("json", "zip", "folders")


@dataclass(frozen=True, slots=True)
class RefusedImport:
    """Resources that were not imported, with every reason."""

    name: str
    problems: list[str]


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import did; refs as texts.

    waiting: number of a proposal -> the ref that a person is to see first. doubles: lines about
    near duplicates. looks: runs that opened test tasks elsewhere, which count here from now on.
    """

    operation: int | None
    added: list[str]
    updated: list[str]
    unchanged: list[str]
    refused: list[RefusedImport]
    warnings: list[str] = field(default_factory=list)
    doubles: list[str] = field(default_factory=list)
    waiting: dict[int, str] = field(default_factory=dict)
    looks: int = 0


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export wrote. left_out: what stayed, because of a secret in it."""

    target: str
    format: str
    resources: list[str]
    left_out: list[HeldBack]


def format_of(path: Path) -> str:
    """Return the format of an archive by its name, `folders` for one without an ending.

    Raise InvalidArgument.
    """
    if path.is_dir() or not path.suffix:
        return "folders"
    # A .skill file is a zip with another ending.
    ending = path.suffix.lower().lstrip(".")
    form = "zip" if ending == "skill" else ending
    if form not in ("json", "zip"):
        raise InvalidArgument(
            f"{path.name} is none of .json, .zip and .skill.",
            f"Say --format {' or '.join(FORMATS)}.",
        )
    return form


def import_source(
    library: Library, caller: Caller, source: Path, form: str, options: dict[str, Any], step: Step
) -> tuple[ImportResult, set[str]]:
    """Import an archive or folders, and return what that did.

    Return too the refs of the added resources that only have a history, because they were removed
    where they come from. options: of `scan_import.import_archive`.
    """
    with step("Reading") as progress:
        summary = import_archive(library, caller, source, form, progress=progress, **options)
    imported = summary.imported
    # The import of a JSON archive has read the looks already. A zip and folders hold them in a file
    # of their own.
    lines = b"\n".join(imported.looks) if form == "json" else read_looks(source, form)
    looks = sum(part.add(library.store.home, lines) for part in plugins.archive_parts())
    # An archive's history may end with a removal.
    heads = {ref: library.store.head_or_none(ref) for ref in imported.added}
    living = [ref for ref, head in heads.items() if head is not None and head.version is not None]
    warnings = [
        *summary.warnings,
        *library.checkout(imported.updated),
        *library.checkout(living, created=True),
    ]
    result = ImportResult(
        operation=imported.operation,
        added=list(map(str, imported.added)),
        updated=list(map(str, imported.updated)),
        unchanged=list(map(str, imported.unchanged)),
        refused=[RefusedImport(name, list(problems)) for name, problems in imported.refused],
        warnings=warnings,
        doubles=near_duplicate_lines(library, [*living, *imported.updated], step),
        waiting={identity: str(ref) for identity, ref in summary.proposals.items()},
        looks=looks,
    )
    return result, {*result.added} - {str(ref) for ref in living}


def export(
    library: Library, caller: Caller, target: Path, form: str, refs: Sequence[Ref], *, replace: bool
) -> ExportResult:
    """Write resources to a file or folder, by default all that the format takes.

    A resource with a secret is left out. replace: whether a file that is there may be written over.
    Raise InvalidArgument, and Refused where all would be left out.
    """
    if form != "folders" and target.exists() and not replace:
        raise InvalidArgument(f"{target} is there already.", "Name a new file, or pass --replace.")
    store = library.store
    leaving = [_resolve_newest(store, caller, ref) for ref in refs]
    if not leaving:
        heads = _list_all_heads(store) if form == "json" else select_heads(store, None)
        leaving = [head.ref for head in heads]
    left_out = held_back(library, leaving, history=form == "json")
    names = {resource.ref for resource in left_out}
    allowed_refs = [ref for ref in leaving if str(ref) not in names]
    check_anything_leaves("The export", left_out, allowed_refs)
    if form == "json":
        chosen_refs = allowed_refs if refs else None
        withheld_refs = [ref for ref in leaving if str(ref) in names]
        looks = _collect_lines(library, caller, chosen_refs)
        written = bundle.export_json(
            store, target, chosen_refs, map(json.loads, looks.splitlines()), without=withheld_refs
        )
    else:
        # Without refs a zip and folders hold skills alone, and so no look.
        looks = _collect_lines(library, caller, allowed_refs if refs else ())
        writer = bundle.export_zip if form == "zip" else bundle.export_folders
        written = writer(store, target, allowed_refs if refs or left_out else None, looks=looks)
    # A library that is open read-only takes no note of the copy.
    if not store.read_only:
        note_copy(store.home, target)
    return ExportResult(str(target.absolute()), form, list(map(str, written)), left_out)


def _resolve_newest(store: Store, caller: Caller, ref: Ref) -> Ref:
    """Return the ref without a version, which an export writes.

    Raise InvalidArgument where it names an older version, NoSuchVersion where there is none.
    """
    head = store.head(ref.at(None), caller.scopes)
    if ref.version not in (None, head.version):
        store.version(head, ref.version)
        raise InvalidArgument(
            f"{ref} names a version, and an export writes the newest, {head.version}.",
            f"Leave @{ref.version} out, or restore that version first.",
        )
    return head.ref


def back_up(store: Store, target: Path, progress: Progress, *, replace: bool) -> Path:
    """Copy the whole library into a new folder while others go on writing; return the folder.

    replace: whether an older backup there makes room. Raise as `bundle.export.backup`.
    """
    beside = partial(_collect_files, store.home)
    folder = backup(store, target.absolute(), progress, replace=replace, beside=beside)
    if not store.read_only:
        note_copy(store.home, folder)
    return folder


def _collect_lines(library: Library, caller: Caller, refs: Iterable[Ref] | None) -> bytes:
    """Return the lines that the parts of the program add to an archive of these resources.

    refs: None for all resources.
    """
    return b"".join(part.export(library, caller, refs) for part in plugins.archive_parts())


def _collect_files(home: Path) -> dict[str, bytes]:
    """Return the files that the parts of the program add to a backup, by their names below the
    home.
    """
    return {
        name: data
        for part in plugins.archive_parts()
        for name, data in part.backup_files(home).items()
    }


def _list_all_heads(store: Store) -> Collection[Head]:
    """Return the heads of all resources, removed ones included."""
    return store.backend.heads_by_id(store.backend.resource_ids()).values()
