"""What a change makes of a resource's files: whole files replaced, texts edited, and whether that leaves it sound.

The verbs that change one resource: update, restore, remove.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from evolvable_store.errors import (
    AlreadyExists,
    InvalidArgument,
    InvalidResource,
    VersionConflict,
)
from evolvable_store.objects import File, Files
from evolvable_store.operation import Actor, Head, Operation
from evolvable_store.resource import USER_SCOPE, Kind, Ref, main_file
from evolvable_store.transaction import Transaction, WriteResult
from evolvable_store.validation import Problem, blocking_problems, find_problems
from evolvable_tools.approval_policy import (
    NOTHING,
    SOUL,
    change_waits,
    check_change,
    finding_messages,
    needs_person,
    removal_waits,
)
from evolvable_tools.file_edits import TextEdit, apply_edit, apply_files
from evolvable_tools.library import Caller, Library
from evolvable_tools.scan import Scan
from evolvable_tools.verbs import proposal_inbox


def copy_resource(library: Library, caller: Caller, source: Ref, target: Ref) -> dict[str, File]:
    """Returns the files of a resource under another's name. Raises NoSuchResource, NoSuchVersion."""
    head = library.store.head(source.at(None), caller.scopes)
    files = library.store.files(head, source.version)
    old, new = main_file(head.kind, head.name), main_file(target.kind, target.name)
    main = files.pop(old, None)
    if main is not None:
        line = re.compile(rb"^name:[ \t]*[^\r\n]*", re.MULTILINE)
        files[new] = File(line.sub(b"name: " + target.name.encode("ascii"), main.data, count=1), main.mode)
    return files


def validate_change(ref: Ref, before: Files, after: Files) -> list[str]:
    """Returns the warnings; raises InvalidResource for what the change makes wrong that was not wrong before."""
    found = find_problems(ref.kind, ref.name, after)
    stops = blocking_problems(found, strict=True)
    if stops and before:
        was = {_same(problem) for problem in blocking_problems(find_problems(ref.kind, ref.name, before), strict=True)}
        stops = [problem for problem in stops if _same(problem) not in was]
    if stops:
        raise InvalidResource(str(ref), [str(problem) for problem in stops])
    return [str(problem) for problem in found]


def _same(problem: Problem) -> tuple[str, str]:
    # Counts and line numbers in the text may differ; a description that gets shorter is no new problem.
    return problem.path, re.sub(r"[0-9,]+", "", problem.text)


def changed_paths(before: Files, after: Files) -> list[str]:
    """Returns the files that differ, in order."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def frontmatter_bytes(ref: Ref, files: Files) -> bytes:
    """Returns the beginning of the main file, up to where its frontmatter ends."""
    main = files.get(main_file(ref.kind, ref.name))
    return main.data.partition(b"\n---")[0] if main else b""


TRIES = 8
"""How often a change without expected_version is applied anew when somebody else was faster."""
_DOUBLES = 3  # resources that are named as easily taken for the one that was written


@dataclass(frozen=True)
class Updated:
    """What a change did. `operation` is None and `changed` empty when the content was there already.

    proposal_id: when the change was only proposed; version and operation are None then.
    """

    ref: str
    version: int | None
    previous_version: int | None
    operation: int | None
    changed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    proposal_id: int | None = None


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
    """Makes a new version from the head by replacing, adding and deleting files, then applying edits.

    files: path -> new content, None deletes. edits: in order, after the files. create: the resource is new;
    copy_of: it starts as a copy of this one. propose: nothing is changed yet, a person decides; so it is with what a
    scan finds in a change by anybody but a person, and with their changes of a memory unless its policy is auto.
    Without expected_version the change is applied anew to whatever the head is by then. Raises VersionConflict,
    AlreadyExists, EditConflict, NoSuchFile, InvalidResource with every problem, Frozen, NoSuchResource,
    InvalidArgument, Unsafe, Refused for a memory that is not theirs to change.
    """
    if not (files or edits or copy_of):
        raise InvalidArgument("Nothing to change was given.", "Pass files {path: text}, or edits [{path, old, new}].")
    if copy_of is not None and not create:
        raise InvalidArgument("copy_of makes a new resource.", "Pass create=true as well.")
    if expected_version is not None and expected_version < 0:
        raise InvalidArgument(f"{expected_version} is not a version.", "Versions are numbered 1, 2, 3, ...; 0 is none.")
    reason, asked = library.redacted(reason), needs_person(library.policies, ref, caller.actor)
    for _ in range(TRIES):
        try:
            draft = _draft(library, caller, ref, files or {}, edits, expected_version, create, copy_of)
            found = check_change(draft.ref, draft.before, draft.files, caller.actor)
            asked = asked or change_waits(library, caller, library.store.head_or_none(draft.ref))
            if propose or asked or requires_approval(caller, found):
                return _propose(library, caller, draft, reason, found, meant=propose)
            return _publish(library, caller, draft, reason, found)
        except VersionConflict:
            if expected_version is not None or create:
                raise
    raise VersionConflict(str(ref), 0, library.store.head(ref, caller.scopes).version or 0)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A checked change that is not made yet. `base`: the version it is made from, 0 for none."""

    ref: Ref
    base: int
    before: Files
    files: Files
    changed: list[str]
    warnings: list[str]
    create: bool
    says_anew: bool
    """Whether it says of itself what its base does not."""


def _draft(
    library: Library,
    caller: Caller,
    ref: Ref,
    files: Mapping[str, str | bytes | None],
    edits: Sequence[TextEdit],
    expected: int | None,
    create: bool,
    copy_of: Ref | None,
) -> _Draft:
    head = _target(library, caller, ref, create)
    target = head.ref if head else ref.at(None).within(ref.scope or USER_SCOPE)
    base = (head.version if head else None) or 0
    if expected is not None and expected != base:
        raise VersionConflict(str(target), expected, base)
    before: Files = library.store.files(head) if head else {}
    after = dict(copy_resource(library, caller, copy_of, target) if copy_of else before)
    apply_files(after, files)
    for edit in edits:
        apply_edit(after, edit, target)
    warnings = validate_change(target, before, after)
    says_anew = frontmatter_bytes(target, before) != frontmatter_bytes(target, after)
    return _Draft(target, base, before, after, changed_paths(before, after), warnings, create, says_anew)


def requires_approval(caller: Caller, found: Scan) -> bool:
    """Returns whether a person has to see a change before it is made."""
    return found.asks and caller.actor is not Actor.HUMAN


def _publish(library: Library, caller: Caller, draft: _Draft, reason: str, found: Scan) -> Updated:
    with _transaction(library, caller, draft.ref, reason) as tx:
        tx.put(draft.ref, draft.files, expected_version=draft.base, create=draft.create)
    updated = _updated(library, tx.written[0], tx.operation, draft.changed, [*draft.warnings, *finding_messages(found)])
    return replace(updated, warnings=[*updated.warnings, *_doubles(library, draft.ref)]) if draft.says_anew else updated


def _transaction(library: Library, caller: Caller, ref: Ref, reason: str) -> Transaction:
    """Return the transaction of one change; that of SOUL is signed where the person locked approvals."""
    signer = None
    if library.lock is not None and (ref.kind, ref.name) == (Kind.MEMORY, SOUL):
        library.authorise(caller, f"Writing {ref}")
        signer = caller.signer
    return library.store.transaction(
        caller.actor, reason, session=caller.session, identity=caller.identity, signer=signer
    )


def _propose(library: Library, caller: Caller, draft: _Draft, reason: str, found: Scan, *, meant: bool) -> Updated:
    proposed = _proposed(library, caller, draft.ref, draft.base, draft.files, draft.changed, reason, found, meant=meant)
    return replace(proposed, warnings=[*draft.warnings, *proposed.warnings])


def _proposed(
    library: Library,
    caller: Caller,
    ref: Ref,
    base: int,
    files: Files,
    changed: list[str],
    reason: str,
    found: Scan,
    *,
    meant: bool,
) -> Updated:
    """meant: the caller wanted no more than a proposal."""
    identity = proposal_inbox.propose(library, caller, ref, base, files, reason, found)
    warnings = finding_messages(found)
    if not meant:
        warnings.append(
            f"Nothing changed: a person has to see this first. It waits in the inbox as proposal {identity}."
            " Go on without it."
        )
    return Updated(str(ref), None, base or None, None, changed, warnings, identity)


def _expected(head: Head, expected: int | None) -> int:
    """Returns the version there is now. Raises VersionConflict when another one was expected."""
    now = head.version or 0
    if expected is not None and expected != now:
        raise VersionConflict(str(head.ref), expected, now)
    return now


def _target(library: Library, caller: Caller, ref: Ref, create: bool) -> Head | None:
    if not create:
        return _looked_at(library, library.store.head(ref, caller.scopes))
    there = library.store.head_or_none(ref.within(ref.scope or USER_SCOPE))
    if there is not None and there.version is not None:
        raise AlreadyExists(
            f"{there.ref} exists already (version {there.version}).", "Update it, or choose a new name."
        )
    return None


def _looked_at(library: Library, head: Head) -> Head:
    """Returns the head with what a person has saved meanwhile, so that nothing is changed behind their back."""
    library.take_in([head.ref])
    return library.store.head_or_none(head.ref) or head


def _updated(
    library: Library, written: WriteResult, operation: Operation | None, changed: list[str], warnings: list[str]
) -> Updated:
    if written.changed:
        created = written.version == 1
        warnings = [*warnings, *library.checkout([written.ref], created=created)]
    return Updated(
        str(written.ref),
        written.version,
        written.previous,
        operation.id if operation else None,
        changed if written.changed else [],
        warnings,
    )


def _doubles(library: Library, ref: Ref) -> list[str]:
    """Returns a line for each resource that answers the same questions as this one."""
    from evolvable_tools.retrieval.near_duplicates import find_near_duplicates

    entry = library.index.entry(library.store.head(ref))
    return [pair.said for pair in find_near_duplicates(library.index, [entry], limit=_DOUBLES).pairs] if entry else []


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
    """Makes a new version with an old one's content; brings a removed resource back.

    propose: nothing is changed yet, a person decides; so it is with what a scan finds in a change by anybody but a
    person, and with what the level lets nobody else change. Raises NoSuchVersion, NoSuchResource, VersionConflict,
    Frozen, Unsafe, Refused.
    """
    store, reason = library.store, library.redacted(reason)
    asked = needs_person(library.policies, ref, caller.actor)
    head = _looked_at(library, store.head_or_none(ref, caller.scopes) or store.head(ref, caller.scopes))
    after = store.manifest(head, version)
    before = store.manifest(head) if head.version else {}
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    then = store.files(head, version)
    found = check_change(head.ref, store.files(head) if head.version else {}, then, caller.actor)
    if propose or asked or change_waits(library, caller, head) or requires_approval(caller, found):
        base = _expected(head, expected_version)
        return _proposed(library, caller, head.ref, base, then, changed, reason, found, meant=propose)
    with _transaction(library, caller, head.ref, reason) as tx:
        tx.restore(head.ref, version, expected_version=expected_version)
    return _updated(library, tx.written[0], tx.operation, changed, finding_messages(found))


def remove_resource(
    library: Library,
    caller: Caller,
    ref: Ref,
    reason: str,
    *,
    expected_version: int | None = None,
    propose: bool = False,
) -> Updated:
    """Makes the name point nowhere; every version stays and can be restored.

    propose: nothing is changed yet, a person decides; so it is with an agent's removal of what others made, and of more
    resources than policies.MAX_REMOVED. Raises NoSuchResource, VersionConflict, Frozen, Refused.
    """
    reason, asked = library.redacted(reason), needs_person(library.policies, ref, caller.actor)
    head = _looked_at(library, library.store.head(ref, caller.scopes))
    if propose or asked or removal_waits(library, caller, head):
        base = _expected(head, expected_version)
        return _proposed(library, caller, head.ref, base, {}, [], reason, NOTHING, meant=propose)
    with _transaction(library, caller, head.ref, reason) as tx:
        tx.remove(head.ref, expected_version=expected_version)
    return _updated(library, tx.written[0], tx.operation, [], [])
