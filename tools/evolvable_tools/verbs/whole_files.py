"""Whole files in place of a resource's own: merged with what others changed since the writer read
them, or refused.

A person's editor shows the head, so a person replaces it. An agent or a script writes from what it
was served before.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from evolvable_store import (
    PLAIN,
    Actor,
    File,
    Files,
    Head,
    Manifest,
    Principal,
    TreeEntry,
    make_manifest,
)
from evolvable_store.errors import InvalidArgument, VersionConflict
from evolvable_store.resource import Kind
from evolvable_tools.authors import AuthorKind, version_authorship
from evolvable_tools.caller import Caller
from evolvable_tools.file_edits import apply_files, encode_text
from evolvable_tools.library import Library
from evolvable_tools.secret_leaks import is_env_file
from evolvable_tools.served_texts import ServedFile
from evolvable_tools.untrusted_text import enclose
from evolvable_tools.verbs.versions import diff

MAX_SIDES = 8_000
"""Characters of the two sides of a conflict in one message."""


@dataclass(frozen=True, slots=True)
class ReplacedFiles:
    """The files of a resource after whole ones were put in their places.

    remarks: what was merged, in sentences.
    """

    files: dict[str, File]
    remarks: list[str] = field(default_factory=list)


def replace_files(
    library: Library,
    caller: Caller,
    head: Head | None,
    start: Files,
    manifest: Manifest | None,
    contents: Mapping[str, str | bytes | None],
    expected: int | None,
) -> ReplacedFiles:
    """Put whole files in their places. None deletes one.

    head, manifest: of the resource, None for a new one. start: its files. expected: the version
    that the writer names; without one, an agent's or a script's text is merged with what changed
    since it was served to that caller. Raises VersionConflict with both sides where they overlap,
    InvalidArgument for a file that is there and was never served to the caller, and as
    `apply_files`.
    """
    after = dict(start)
    apply_files(after, contents)
    is_person = caller.actor is Actor.HUMAN and caller.identity.principal is Principal.PERSON
    if head is None or manifest is None or expected is not None or is_person:
        return ReplacedFiles(after)
    served = library.served_texts.files_of(caller.reader, str(head.ref))
    base = _find_base(library, head, start, manifest, contents, served)
    unread = [path for path in contents if path in start and _is_unread(path, contents[path], base)]
    if unread:
        names = ", ".join(sorted(unread))
        raise InvalidArgument(
            f"A whole file for {head.ref} replaces what others saved in it: {names} "
            "was not read here.",
            "Read the head with get_resource, and pass its version as expected_version; or change "
            "pieces of it by edits.",
        )
    if base.files == start:
        return ReplacedFiles(after)
    # Base: what the writer had. One side: the writer's files. The other: the head's.
    merged = library.merge(head, base.files, after, start)
    if merged.conflicts:
        version = min(base.versions.get(path, head.latest) for path in merged.conflicts)
        overlap = _describe_sides(library, caller, head, manifest, after, merged.conflicts)
        raise VersionConflict(str(head.ref), version, head.version or 0, overlap)
    remarks = [
        f"{path} was merged with what others changed since version {base.versions[path]}."
        for path in contents
        if merged.files.get(path) != after.get(path)
    ]
    return ReplacedFiles(merged.files, remarks)


def note_files(
    library: Library,
    caller: Caller,
    ref: str,
    versions: tuple[int | None, int | None],
    contents: Mapping[str, str | bytes | None],
    files: Files,
) -> None:
    """Keep the whole files that a caller wrote as what it has of the resource.

    versions: before and after the change. files: with the whole files in their places, before any
    edit.
    """
    before, after = versions
    if after is None:
        return
    has: dict[str, ServedFile] = {}
    for path, content in contents.items():
        data = encode_text(path, content) if isinstance(content, str) else content
        stored = files.get(path)
        # What was merged in is not known to the writer: its next text begins with its own.
        is_stored = (stored.data if stored else None) == data
        has[path] = ServedFile(after, None if is_stored else data)
    library.served_texts.note_change(caller.reader, ref, before or 0, after, has)


def _is_unread(path: str, content: str | bytes | None, base: "_Base") -> bool:
    """Return whether the writer of a file does not know it, so that the writer may not replace it.

    A file to delete has to be among those that the writer was served.
    """
    return path not in base.versions or (content is None and path not in base.files)


@dataclass(frozen=True, slots=True)
class _Base:
    """Files as they were served. versions: in which, by path, where that is known."""

    files: dict[str, File]
    versions: dict[str, int]


def _find_base(
    library: Library,
    head: Head,
    start: Files,
    manifest: Manifest,
    paths: Collection[str],
    served: Mapping[str, ServedFile],
) -> _Base:
    """Return the files of the head, with those in the places of the given ones that the
    writer had.
    """
    files, versions = dict(start), dict[str, int]()
    manifests: dict[int, Manifest | None] = {head.latest: manifest}

    def entry_of(path: str, version: int) -> TreeEntry | None:
        if version not in manifests:
            manifests[version] = library.store.backend.manifest(head.id, version)
        then = manifests[version]
        return then.get(path) if then else None

    listing = served.get("")
    for path in paths:
        file = served.get(path) or listing
        if file is None:
            continue
        # Who was served a later list without the file knows that it is gone.
        is_later = listing is not None and listing.version > file.version
        if listing is not None and is_later and entry_of(path, listing.version) is None:
            file = listing
        data = file.data
        if data is None:
            entry, now = entry_of(path, file.version), manifest.get(path)
            if manifests[file.version] is None:
                continue
            if entry is None:
                files.pop(path, None)
            elif now is None or entry.sha256 != now.sha256:
                data = library.store.backend.blob(entry.sha256)
                if data is None:  # purged: nothing is known of what was served
                    continue
        if data is not None:
            files[path] = File(data, start[path].mode if path in start else PLAIN)
        versions[path] = file.version
    return _Base(files, versions)


def _describe_sides(
    library: Library,
    caller: Caller,
    head: Head,
    manifest: Manifest,
    ours: Files,
    paths: Collection[str],
) -> str:
    """Return what both sides made of files, as an agent may read it: a difference, or the names
    alone.
    """
    names = f"Both sides changed {', '.join(paths)}."
    # An environment may hold a sealed test, and a file of settings a secret.
    readable = [
        path for path in paths if head.kind is not Kind.ENVIRONMENT and not is_env_file(path)
    ]
    mine = {path: ours[path] for path in readable if path in ours}
    sent = make_manifest(mine)
    unsaved = {sent[path].sha256: file.data for path, file in mine.items()}
    theirs = {path: manifest[path] for path in readable if path in manifest}
    text = diff(
        library,
        sent,
        Manifest(theirs),
        ("yours", f"version {head.version}"),
        limit=MAX_SIDES,
        unsaved=unsaved,
    )
    if not text:
        return names
    authorship = version_authorship(library, head, head.latest, caller)
    marked = [authorship.of(path) for path in theirs if authorship.of(path).why]
    if marked and caller.actor is not Actor.HUMAN:
        has_strangers = any(author.kind is not AuthorKind.AGENT for author in marked)
        if has_strangers and caller.actor is Actor.AGENT:
            library.note_stranger(caller)
        text = enclose(text, f"{', '.join(theirs)} of {head.ref}@{head.version}", marked[0].why)
    return f"{names} Your text (-) and the head's (+):\n{text}"
