"""What a change makes of a resource's files: whole files replaced, texts edited, and whether that
leaves it sound.

The verbs update, restore and remove. A person removes several at once, too.
"""

import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from evolvable_store import (
    Actor,
    File,
    Files,
    Head,
    Identity,
    Manifest,
    Operation,
    Principal,
    Problem,
    Transaction,
    WriteResult,
    blocking_problems,
    find_problems,
    lost_files,
    unclear_problems,
)
from evolvable_store.errors import (
    AlreadyExists,
    InvalidArgument,
    InvalidResource,
    NoSuchResource,
    VersionConflict,
)
from evolvable_store.resource import USER_SCOPE, Kind, Ref, check_not_plugins, main_file
from evolvable_store.storage import Place
from evolvable_tools import approvals
from evolvable_tools.authors import AuthorKind, Authorship, authorships
from evolvable_tools.caller import Caller
from evolvable_tools.delegation import delegate_warnings
from evolvable_tools.file_edits import TextEdit, apply_edit, changed_files, frontmatter_bytes
from evolvable_tools.library import Library
from evolvable_tools.scan import Scan
from evolvable_tools.secret_leaks import check_may_decide
from evolvable_tools.verbs import proposal_inbox
from evolvable_tools.verbs.whole_files import note_files, replace_files


def copy_resource(library: Library, caller: Caller, source: Ref, target: Ref) -> dict[str, File]:
    """Return the files of a resource under another's name. Raises NoSuchResource, NoSuchVersion."""
    head = library.store.head(source.at(None), caller.scopes)
    files = library.store.files(head, source.version)
    old = main_file(head.kind, head.name)
    new = main_file(target.kind, target.name)
    main = files.pop(old, None)
    if main is not None:
        # Only the first `name:` line, which is the one in the frontmatter; the line end stays as it
        # is.
        line = re.compile(rb"^name:[ \t]*[^\r\n]*", re.MULTILINE)
        data = line.sub(b"name: " + target.name.encode("utf-8"), main.data, count=1)
        files[new] = File(data, main.mode)
    return files


def validate_change(ref: Ref, before: Files, after: Files, actor: Actor) -> list[str]:
    """Return the warnings. Raises InvalidResource for what the change makes wrong that was not
    wrong before.

    What the change lets the resource do is no warning: the scan asks about it where an agent does
    it.
    """
    problems = find_problems(ref.kind, ref.name, after)
    # What a person writes ambiguously is the person's to decide; an agent has to be exact.
    unclear = unclear_problems(ref.kind, ref.name, after) if actor is not Actor.HUMAN else []
    stops = [*blocking_problems(problems), *lost_files(problems), *unclear]
    # What was unsound before the change does not keep a person from improving the rest.
    if stops and before:
        was = {_identify_problem(problem) for problem in find_problems(ref.kind, ref.name, before)}
        stops = [problem for problem in stops if _identify_problem(problem) not in was]
    if stops:
        raise InvalidResource(str(ref), [str(problem) for problem in stops])
    return [str(problem) for problem in problems if not problem.capability]


def _identify_problem(problem: Problem) -> tuple[str, str]:
    # Counts and line numbers in the text may differ; a description that gets shorter is no new
    # problem.
    return problem.path, re.sub(r"[0-9,]+", "", problem.text)


RETRY_SECONDS = 10.0
"""How long a change without expected_version is applied again after other changes of the head.

It bounds how long a caller waits while others write the same resource.
"""

_LONGEST_PAUSE = 0.2  # seconds between two tries


@dataclass(frozen=True)
class Updated:
    """What a change did. `operation` is None and `changed` empty when the content was there
    already.

    proposal_id: when the change was only proposed; version and operation are None then.
    """

    ref: str
    version: int | None
    previous_version: int | None
    operation: int | None
    changed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    proposal_id: int | None = None


@dataclass(frozen=True, slots=True)
class _Change:
    """What a caller asks `update_resource` for."""

    files: Mapping[str, str | bytes | None]
    edits: Sequence[TextEdit]
    expected_version: int | None
    create: bool
    copy_of: Ref | None


@dataclass(frozen=True, slots=True)
class _Draft:
    """A checked change that is not made yet.

    head: None for a new resource. base: the version it is made from, 0 for none. files: none at all
    to remove the resource. manifest, places: of what is there before. parent: the version that it
    is a copy of.
    """

    ref: Ref
    head: Head | None
    base: int
    before: Files
    files: Files
    changed: list[str]
    warnings: list[str] = field(default_factory=list)
    manifest: Manifest | None = None
    places: Sequence[Place] | None = None
    parent: Ref | None = None


def update_resource(
    library: Library,
    caller: Caller,
    ref: Ref,
    reason: str,
    *,
    files: Mapping[str, str | bytes | None] | None = None,
    edits: Sequence[TextEdit] = (),
    expected_version: int | None = None,
    create: bool = False,
    copy_of: Ref | None = None,
    propose: bool = False,
) -> Updated:
    """Make a new version from the head: replace, add and delete files, then apply edits.

    files: path -> new content, None deletes. edits: in order, after the files. create: the resource
    is new. copy_of: it starts as a copy of this one. propose: nothing is changed yet, a person
    decides. A person decides too on a change by anybody else in which a scan finds something, and
    on their change of a memory unless its policy is auto. Without expected_version the change is
    applied again when the head moves. Whole files of an agent or a script are merged as
    `replace_files` says. Raises VersionConflict, AlreadyExists, EditConflict, NoSuchFile, Frozen,
    NoSuchResource, InvalidArgument, Unsafe, and InvalidResource with every problem. Raises Refused
    for a memory that is not theirs to change and for a plugin's resource.
    """
    if not (files or edits or copy_of):
        raise InvalidArgument(
            "Nothing to change was given.", "Pass files {path: text}, or edits [{path, old, new}]."
        )
    if copy_of is not None and not create:
        raise InvalidArgument("copy_of makes a new resource.", "Pass create=true as well.")
    _check_version(expected_version)
    change = _Change(files or {}, edits, expected_version, create, copy_of)
    reason = library.redact(reason)
    needs_person = approvals.needs_person(library.policies, ref, caller.actor)
    deadline, tries = time.monotonic() + RETRY_SECONDS, 0
    while True:
        try:
            draft, replaced = _draft_change(library, caller, ref, change)
            head, before, after = draft.head, draft.before, draft.files
            found = approvals.check_change(draft.ref, before, after, caller.actor)
            found = found if head else library.names.add_to(found, draft.ref)
            waits = needs_person or approvals.edit_waits(
                library, caller, head, before, after, found
            )
            if propose or waits or requires_approval(caller, found):
                return _propose(library, caller, draft, reason, found, by_request=propose)
            updated = _publish(library, caller, draft, reason, found)
            versions = (updated.previous_version, updated.version)
            note_files(library, caller, updated.ref, versions, change.files, replaced)
            return updated
        except VersionConflict as error:
            is_final = error.overlap or expected_version is not None or create
            if is_final or time.monotonic() > deadline:
                raise
            # Of many at once, those that lost some rounds leave the others time to finish theirs.
            time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.005 * 2 ** min(tries, 10))))
            tries += 1


def _draft_change(
    library: Library, caller: Caller, ref: Ref, change: _Change
) -> tuple[_Draft, Files]:
    """Return the checked change of the head of this moment, and the files before the edits."""
    head, places = None, None
    if not change.create:
        head, places = library.latest(_find_head(library, caller, ref))
    check_not_plugins(target := head.ref if head else _make_new_ref(library, ref))
    expected, copy_of = change.expected_version, change.copy_of
    base = _check_expected(target, head, expected)
    manifest = library.store.manifest(head) if head else None
    before: Files = library.store.files_of(manifest) if manifest else {}
    start = copy_resource(library, caller, copy_of, target) if copy_of else before
    whole = replace_files(library, caller, head, start, manifest, change.files, expected)
    after = dict(whole.files)
    for edit in change.edits:
        apply_edit(after, edit, target)
    warnings = [*whole.remarks, *validate_change(target, before, after, caller.actor)]
    changed = changed_files(before, after)
    draft = _Draft(target, head, base, before, after, changed, warnings, manifest, places)
    if copy_of:
        draft = replace(draft, parent=_find_version(library, caller, copy_of))
    return draft, whole.files


def _check_version(expected: int | None) -> None:
    if expected is not None and expected < 0:
        raise InvalidArgument(
            f"{expected} is not a version.", "Versions are numbered 1, 2, 3, ...; 0 is none."
        )


def _find_version(library: Library, caller: Caller, source: Ref) -> Ref:
    """Return the version that a copy of this ref is made from."""
    head = library.store.head(source.at(None), caller.scopes)
    return head.ref.at(source.version or head.version)


COPY_OF = "copy of "
"""What the evidence of an operation begins with that made a copy. The ref of the version follows.
"""


def requires_approval(caller: Caller, found: Scan) -> bool:
    """Return whether a person has to see a change before it is made."""
    return found.asks and caller.actor is not Actor.HUMAN


_BORROWED = (
    "More than half of its lines come from a repository or an import, so it has the author that "
    "they have: agents read it between marks until a person approves it."
)


def _publish(library: Library, caller: Caller, draft: _Draft, reason: str, found: Scan) -> Updated:
    stranger = borrowed_from(library, caller, draft.head, draft.before, draft.files)
    writer = replace(caller, principal=stranger.principal, via=stranger.via) if stranger else caller
    # Files are staged in the watched folders before the commit and exchanged after it, so a crash
    # between the two leaves either the old or the new content, which the next sync settles.
    with library.stage_checkout(draft.head, draft.manifest, draft.files, draft.places) as staged:
        with _begin_transaction(library, writer, draft.ref, reason, draft.parent) as tx:
            tx.put(
                draft.ref,
                draft.files,
                expected_version=draft.base,
                create=draft.head is None,
                base=draft.manifest,
            )
            if draft.head is None:
                tx.bind_new(library.working_copies.free_places(draft.ref))
            staged.bind(tx)
        remarks = staged.exchange()
    warnings = [
        *draft.warnings,
        *approvals.finding_messages(found, quoted=caller.actor is not Actor.HUMAN),
        *[_BORROWED] * (stranger is not None),
        *remarks,
        *delegate_warnings(library, draft.ref, draft.files),
    ]
    updated = _finish_update(
        library, tx.written[0], tx.operation, draft.changed, warnings, written=staged.complete
    )
    if frontmatter_bytes(draft.ref, draft.before) != frontmatter_bytes(draft.ref, draft.files):
        library.compare_later(caller, tx.written[0].id)
    return updated


def _begin_transaction(
    library: Library, caller: Caller, ref: Ref, reason: str, parent: Ref | None = None
) -> Transaction:
    """Return the transaction of one change; that of SOUL is signed where the person locked
    approvals.

    parent: the version that the change copies, which the operation's evidence names.
    """
    # SOUL is read as the user's own words, so it is signed like an approval.
    is_soul = library.lock is not None and (ref.kind, ref.name) == (Kind.MEMORY, approvals.SOUL)
    if is_soul:
        library.authorise(caller, f"Writing {ref}")
    evidence = (f"{COPY_OF}{parent}",) if parent else ()
    return library.transaction(caller, reason, sign=is_soul, evidence=evidence)


def _propose(
    library: Library, caller: Caller, draft: _Draft, reason: str, found: Scan, *, by_request: bool
) -> Updated:
    """Keep a change for a person to decide on.

    by_request: the caller wanted no more than a proposal.
    """
    identity = proposal_inbox.propose(
        library, caller, draft.ref, draft.base, draft.files, reason, found
    )
    warnings = [
        *draft.warnings,
        *approvals.finding_messages(found, quoted=caller.actor is not Actor.HUMAN),
        *delegate_warnings(library, draft.ref, draft.files),
    ]
    if not by_request:
        warnings.append(
            "Nothing changed: a person has to see this first. It waits in the inbox as proposal "
            f"{identity}. Go on without it."
        )
    return Updated(
        str(draft.ref), None, draft.base or None, None, draft.changed, warnings, identity
    )


def _check_expected(ref: Ref, head: Head | None, expected: int | None) -> int:
    """Return the version there is now, 0 for none.

    Raises VersionConflict when another one was expected.
    """
    now = (head.version if head else None) or 0
    if expected is not None and expected != now:
        raise VersionConflict(str(ref), expected, now)
    return now


def _find_head(library: Library, caller: Caller, ref: Ref) -> Head:
    """Return the head of a resource that is changed.

    Raise NoSuchResource, whose hint says how to make it.
    """
    try:
        return library.store.head(ref, caller.scopes)
    except NoSuchResource as error:
        # It was removed, and can be brought back.
        if library.store.head_or_none(ref, caller.scopes) is not None:
            raise
        raise NoSuchResource(str(error), f"{error.hint} To make it, pass create=true.") from None


def _make_new_ref(library: Library, ref: Ref) -> Ref:
    """Return the ref of a resource that is to be made. Raises AlreadyExists."""
    new = ref.at(None).within(ref.scope or USER_SCOPE)
    head = library.store.head_or_none(new)
    if head is not None and head.version is not None:
        raise AlreadyExists(
            f"{head.ref} exists already (version {head.version}).",
            "Update it, or choose a new name.",
        )
    return new


def _finish_update(
    library: Library,
    result: WriteResult,
    operation: Operation | None,
    changed: list[str],
    warnings: list[str],
    *,
    written: bool = False,
) -> Updated:
    """Write a change into the folders, and return what it did.

    written: the staged exchange wrote it into all of them already.
    """
    if result.changed and not written:
        warnings = [*warnings, *library.checkout([result.ref], created=result.version == 1)]
    return Updated(
        str(result.ref),
        result.version,
        result.previous,
        operation.id if operation else None,
        changed if result.changed else [],
        warnings,
    )


def restore_resource(
    library: Library,
    caller: Caller,
    ref: Ref,
    version: int,
    reason: str,
    *,
    expected_version: int | None = None,
    propose: bool = False,
) -> Updated:
    """Make a new version with an old one's content; bring a removed resource back.

    propose: nothing is changed yet, a person decides. The same holds for a change by anybody but a
    person in which a scan finds something, or which the level leaves to a person. Raises
    NoSuchVersion, NoSuchResource, VersionConflict, Frozen, Unsafe, Refused.
    """
    store, reason = library.store, library.redact(reason)
    needs_person = approvals.needs_person(library.policies, ref, caller.actor)
    head, _ = library.latest(
        store.head_or_none(ref, caller.scopes) or store.head(ref, caller.scopes)
    )
    then, now = store.files(head, version), store.files(head) if head.version else {}
    changed = changed_files(now, then)
    found = approvals.check_change(head.ref, now, then, caller.actor)
    needs_person = needs_person or approvals.change_waits(library, caller, head)
    needs_person = needs_person or approvals.frozen_section_waits(library, caller, now, then)
    if propose or needs_person or requires_approval(caller, found):
        base = _check_expected(head.ref, head, expected_version)
        draft = _Draft(head.ref, head, base, now, then, changed)
        return _propose(library, caller, draft, reason, found, by_request=propose)
    with _begin_transaction(library, caller, head.ref, reason) as tx:
        tx.restore(head.ref, version, expected_version=expected_version)
    # What the caller has of the resource is the restored version from here on.
    if library.served_texts.files_of(caller.reader, str(head.ref)):
        library.served_texts.note(
            caller.reader, str(head.ref), "", tx.written[0].version or head.latest
        )
    warnings = approvals.finding_messages(found, quoted=caller.actor is not Actor.HUMAN)
    return _finish_update(library, tx.written[0], tx.operation, changed, warnings)


def remove_resource(
    library: Library,
    caller: Caller,
    ref: Ref,
    reason: str,
    *,
    expected_version: int | None = None,
    propose: bool = False,
) -> Updated:
    """Make the name point nowhere.

    Every version stays and can be restored. propose: nothing is changed yet, a person decides. The
    same holds for an agent's removal of what others made, and of more resources than
    approvals.MAX_REMOVED. Raises NoSuchResource, VersionConflict, Frozen, Refused.
    """
    reason = library.redact(reason)
    needs_person = approvals.needs_person(library.policies, ref, caller.actor)
    head, _ = library.latest(library.store.head(ref, caller.scopes))
    if propose or needs_person or approvals.removal_waits(library, caller, head):
        base = _check_expected(head.ref, head, expected_version)
        draft = _Draft(head.ref, head, base, {}, {}, [])
        return _propose(library, caller, draft, reason, approvals.NOTHING, by_request=propose)
    with _begin_transaction(library, caller, head.ref, reason) as tx:
        tx.remove(head.ref, expected_version=expected_version)
    return _finish_update(library, tx.written[0], tx.operation, [], [])


def remove_together(
    library: Library, caller: Caller, versions: Mapping[Ref, int | None], reason: str
) -> Operation:
    """Make several names point nowhere by one operation, all of them or none.

    Every version stays. versions: resource -> the version that the person saw. Raises Refused for
    anybody but a person, InvalidArgument for none and for a memory, which is removed by itself,
    NoSuchResource, VersionConflict, Frozen.
    """
    check_may_decide(caller, "remove several resources at once")
    if not versions or any(ref.kind is Kind.MEMORY for ref in versions):
        raise InvalidArgument(
            "A memory is removed by itself, and nothing was removed.", "Choose no memory."
        )
    heads = [
        (library.latest(library.store.head(ref, caller.scopes))[0], seen)
        for ref, seen in versions.items()
    ]
    with library.transaction(caller, library.redact(reason)) as tx:
        # expected_version refuses what changed since the person saw it, and with it the whole
        # operation.
        for head, seen in heads:
            tx.remove(head.ref, expected_version=seen)
    library.checkout([result.ref for result in tx.written])
    assert tx.operation is not None
    return tx.operation


SHARED = 0.5
"""The share of a new resource's lines above which it is the stranger's whose lines they are."""

MIN_LINE = 12
"""Characters of a line that counts, without spaces: shorter ones stand in many texts."""

MIN_ADDED = 4
"""Lines that a change of what is there already adds before they are compared."""

MAX_TEXT = 400_000
"""Bytes of a file whose lines are compared."""

_PRINCIPALS = {AuthorKind.REPOSITORY: Principal.REPOSITORY, AuthorKind.IMPORT: Principal.IMPORT}


def borrowed_from(
    library: Library, caller: Caller, head: Head | None, before: Files, files: Files
) -> Identity | None:
    """Return who brought the text of a resource that a caller writes and no person stood for; None
    for the caller.

    head, before: of the resource, None and none for a new one. A change that brings few lines, or
    less than half of them, is not compared: that costs an update nothing.
    """
    lines = set[bytes]() if caller.decides else _list_lines(files)
    added = lines - _list_lines(before)
    # Comparing with every resource reads their files, so small changes return before it.
    if len(added) <= SHARED * len(lines) or (head is not None and len(added) < MIN_ADDED):
        return None
    if head is not None and not authorships(library, [head.id], caller)[head.id].is_new:
        return None
    heads = {
        other.id: other for other in library.store.heads() if head is None or other.id != head.id
    }
    for resource, authorship in authorships(library, heads, caller).items():
        if not authorship.is_strangers:
            continue
        shared = lines & _list_lines(_find_strangers_files(library, heads[resource], authorship))
        if len(shared) > SHARED * len(lines):
            principal = _PRINCIPALS.get(authorship.main.kind, Principal.IMPORT)
            return Identity(principal, f"copy:{authorship.main.by or heads[resource].name}")
    return None


def _find_strangers_files(library: Library, head: Head, authorship: Authorship) -> Files:
    return {
        path: file for path, file in library.store.files(head).items() if authorship.of(path).why
    }


def _list_lines(files: Files) -> set[bytes]:
    """Return the lines of the texts, without spaces, that are long enough to say where they are
    from.
    """
    return {
        plain
        for file in files.values()
        if len(file.data) <= MAX_TEXT and b"\0" not in file.data
        for line in file.data.splitlines()
        if len(plain := b"".join(line.split())) >= MIN_LINE
    }
