"""What a person looks at: one resource, one operation, and what differs between versions and
working copies.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from evolvable_store import Actor, Head, Manifest, make_manifest
from evolvable_store.resource import Ref
from evolvable_store.storage import WatchedFolder
from evolvable_store.workingcopy import DirectoryState
from evolvable_tools.authors import operation_author, reason_notice, version_authorship
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.untrusted_text import AnswerMarks
from evolvable_tools.verbs import load, resource_info, versions
from evolvable_tools.verbs.load import Loaded
from evolvable_tools.verbs.resource_info import ResourceInfo, ResourceState
from evolvable_tools.verbs.versions import PastVersion

LAST_VERSIONS = 5
"""Versions that an overview lists."""


@dataclass(frozen=True)
class ResourceOverview:
    """One resource: its description, its state, its last versions, and a document.

    document: None for a resource that was removed, unless a version was named. notice: as in
    History. out_of_force: a line for each kind of field of the newest version that nobody approved.
    """

    info: ResourceInfo
    state: ResourceState
    versions: list[PastVersion]
    document: Loaded | None
    notice: str = ""
    out_of_force: list[str] = field(default_factory=list)


def show_resource(
    library: Library,
    caller: Caller,
    ref: Ref,
    *,
    version: int | None = None,
    path: str | None = None,
) -> ResourceOverview:
    """Return what a person asks of one resource.

    Raise NoSuchResource, NoSuchVersion, NoSuchFile.
    """
    number = version or ref.version
    bare = ref.at(None)
    past = versions.resource_history(library, caller, bare, limit=LAST_VERSIONS)
    info = resource_info.get_info(library, caller, bare.at(number))
    state = resource_info.get_state(library, caller, bare)
    document = None
    if shown_version := number or past.head:
        document = load.get_resource(library, caller, bare, version=shown_version, path=path)
    head = library.store.head_or_none(bare, caller.scopes)
    lines = resource_info.lines_out_of_force(library, head) if head is not None else []
    return ResourceOverview(info, state, past.versions, document, past.notice, lines)


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """What an operation did to one resource: from a version, or nothing, to a version,
    or nothing.
    """

    ref: str
    before: int | None
    after: int | None
    diff: str


@dataclass(frozen=True)
class OperationOverview:
    """One operation with everything that it changed.

    undoes: the operations that it reverted. notice: as in History. author, by: whose it is, in
    words.
    """

    operation: int
    at: str
    actor: str
    principal: str
    via: str
    reason: str
    session: str | None
    undoes: list[int]
    evidence: list[str]
    changes: list[ResourceChange]
    notice: str = ""
    author: str = ""
    by: str = ""


def show_operation(library: Library, caller: Caller, operation: int) -> OperationOverview:
    """Return one operation with the difference that it made to each resource.

    Raise NoSuchOperation.
    """
    record = library.store.operation(operation)
    marks = AnswerMarks(caller.actor is not Actor.HUMAN)
    notice = reason_notice(record) if marks.on else ""
    line = marks.line if notice else str
    changes = []
    for change in library.store.backend.changes_of([operation]):
        text = _diff_change(library, change.ref, change.before, change.after)
        if notice:
            text = marks.block(text, f"diff of {change.ref} in operation {operation}", notice)
        changes.append(ResourceChange(str(change.ref), change.before, change.after, text))
    return OperationOverview(
        record.id,
        record.at,
        record.actor,
        record.principal or "",
        record.intent.via,
        line(record.reason),
        record.session,
        list(record.intent.undoes),
        [line(text) for text in record.intent.evidence],
        changes,
        marks.notice,
        *operation_author(record, caller),
    )


def _diff_change(library: Library, ref: Ref, before: int | None, after: int | None) -> str:
    head = library.store.head_or_none(ref)
    if head is None:  # it was purged since
        return ""
    old = library.store.manifest(head, before) if before else Manifest({})
    new = library.store.manifest(head, after) if after else Manifest({})
    return versions.diff(library, old, new, (str(before or 0), str(after or 0)))


@dataclass(frozen=True, slots=True)
class Difference:
    """What distinguishes two contents. before, after: refs with a version, `nothing`, or a
    directory.

    problem: why a directory could not be read.
    """

    before: str
    after: str
    diff: str
    problem: str = ""


@dataclass(frozen=True)
class ContentComparison:
    """What differs, and how many contents were compared."""

    differences: list[Difference]
    compared: int


NOTHING = "nothing"
"""The side of a difference on which there is no content."""


def diff_versions(
    library: Library, caller: Caller, ref: Ref, start: int | None, end: int | None
) -> ContentComparison:
    """Return what changed from one version of a resource to another; see `resource_history`.

    Raise as that does.
    """
    past = versions.resource_history(
        library, caller, ref, from_version=start, to_version=end, limit=1
    )
    newest = past.versions[0].version if end is None and past.versions else end
    first = start if start is not None else (newest or 1) - 1
    before = f"{past.ref}@{first}" if first else NOTHING
    differences = [Difference(before, f"{past.ref}@{newest}", past.diff)] if past.diff else []
    return ContentComparison(differences, 1)


def diff_resources(library: Library, caller: Caller, left: Ref, right: Ref) -> ContentComparison:
    """Return what distinguishes two resources, or two versions.

    Raise NoSuchResource, NoSuchVersion.
    """
    sides, reasons = list[tuple[str, Manifest]](), list[str]()
    for ref in (left, right):
        head = library.store.head(ref.at(None), caller.scopes)
        number = ref.version or head.version or head.latest
        sides.append((str(head.ref.at(number)), library.store.manifest(head, number)))
        why = version_authorship(library, head, number, caller).why
        reasons += [why] if why else []
    (before, old), (after, new) = sides
    text = versions.diff(library, old, new, (before, after))
    if not text:
        return ContentComparison([], 1)
    marks = AnswerMarks(caller.actor is not Actor.HUMAN and bool(reasons))
    block = marks.block(text, f"diff of {before} and {after}", "".join(reasons[:1]))
    return ContentComparison([Difference(before, after, block)], 1)


def diff_working_copies(
    library: Library, caller: Caller, refs: Sequence[Ref] = ()
) -> ContentComparison:
    """Return what the watched folders hold other than the library, for these resources or for all.
    Import nothing.

    Raise NoSuchResource.
    """
    named = [library.store.head(ref.at(None), caller.scopes) for ref in refs]
    heads = {head.id: head for head in named}
    compared, unsaved = 0, list[Difference]()
    for folder, directories in _find_places(library, heads):
        compared += len(directories)
        status = library.working_copies.copy(folder).status
        try:
            differences = [
                _diff_directory(library, caller, folder, state)
                for state in status.find_changed_states(sorted(directories))
            ]
        except OSError as error:
            problem = error.strerror or str(error)
            differences = [Difference(NOTHING, str(folder.path), "", problem)]
        unsaved += [difference for difference in differences if difference is not None]
    return ContentComparison(unsaved, compared)


def _find_places(
    library: Library, heads: Mapping[int, Head]
) -> Iterable[tuple[WatchedFolder, set[str]]]:
    """Yield the folders with the directories to compare: those of these resources, without any all
    of them.
    """
    if not heads:
        for folder in library.folders():
            if folder.path.is_dir():
                yield folder, library.working_copies.copy(folder).status.everything().directories
        return
    by_folder: dict[int, tuple[WatchedFolder, set[str]]] = {}
    for folder, binding, _ in library.store.backend.bindings.places(heads):
        by_folder.setdefault(folder.id, (folder, set()))[1].add(binding.directory)
    yield from by_folder.values()


def _diff_directory(
    library: Library, caller: Caller, folder: WatchedFolder, state: DirectoryState
) -> Difference | None:
    """Return what one directory holds other than the version it is of; None for the same."""
    place, head = str(folder.path / state.directory), state.head
    version = (state.binding.version if state.binding else None) or (head.version if head else None)
    before = str(head.ref.at(version)) if head is not None and version else NOTHING
    old = library.store.manifest(head, version) if head is not None and version else Manifest({})
    files = state.reading.files if state.reading else {}
    if state.reading is not None and not files and state.reading.left_out:
        why = "; ".join(
            f"{path}: {why}" for path, why in sorted(state.reading.left_out.items())[:3]
        )
        return Difference(before, place, "", why)
    new = make_manifest(files)
    if new.tree == old.tree:
        return None
    # Bytes on disk are in no blob yet, so the difference gets them from here.
    unsaved = {new[path].sha256: file.data for path, file in files.items()}
    text = versions.diff(library, old, new, (str(version or 0), "folder"), unsaved=unsaved)
    marks = AnswerMarks(caller.actor is not Actor.HUMAN)
    block = marks.block(text, f"unsaved change in {place}", "in no version yet")
    return Difference(before, place, block)
