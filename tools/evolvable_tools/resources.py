"""The verbs that change one resource: update, restore, remove."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from evolvable_store.errors import AlreadyExists, InvalidArgument, VersionConflict
from evolvable_store.objects import Files
from evolvable_store.operation import Actor, Head, Operation
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.transaction import Transaction, WriteResult
from evolvable_tools import inbox
from evolvable_tools.editing import Edit, apply_edit, apply_files, changed_paths, checked, copied, front
from evolvable_tools.library import Caller, Library
from evolvable_tools.policies import SOUL, a_person_decides, change_waits, removal_waits
from evolvable_tools.scan.door import NOTHING, looked_at, told
from evolvable_tools.scan.findings import Scan

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


def update(
    library: Library,
    caller: Caller,
    ref: Ref,
    reason: str,
    *,
    files: Mapping[str, str | bytes | None] | None = None,
    edits: Sequence[Edit] = (),
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
    reason, asked = library.redacted(reason), a_person_decides(library.policies, ref, caller.actor)
    for _ in range(TRIES):
        try:
            draft = _draft(library, caller, ref, files or {}, edits, expected_version, create, copy_of)
            found = looked_at(draft.ref, draft.before, draft.files, caller.actor)
            asked = asked or change_waits(library, caller, library.store.head_or_none(draft.ref))
            if propose or asked or waits(caller, found):
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
    edits: Sequence[Edit],
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
    after = dict(copied(library, caller, copy_of, target) if copy_of else before)
    apply_files(after, files)
    for edit in edits:
        apply_edit(after, edit, target)
    warnings = checked(target, before, after)
    says_anew = front(target, before) != front(target, after)
    return _Draft(target, base, before, after, changed_paths(before, after), warnings, create, says_anew)


def waits(caller: Caller, found: Scan) -> bool:
    """Returns whether a person has to see a change before it is made."""
    return found.asks and caller.actor is not Actor.HUMAN


def _publish(library: Library, caller: Caller, draft: _Draft, reason: str, found: Scan) -> Updated:
    with _transaction(library, caller, draft.ref, reason) as tx:
        tx.put(draft.ref, draft.files, expected_version=draft.base, create=draft.create)
    updated = _updated(library, tx.written[0], tx.operation, draft.changed, [*draft.warnings, *told(found)])
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
    identity = inbox.propose(library, caller, ref, base, files, reason, found)
    warnings = told(found)
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
        warnings = [*warnings, *library.write_out([written.ref], created=created)]
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
    from evolvable_tools.lookup.confusable import confusable

    entry = library.index.entry(library.store.head(ref))
    return [pair.said for pair in confusable(library.index, [entry], limit=_DOUBLES).pairs] if entry else []


def restore(
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
    asked = a_person_decides(library.policies, ref, caller.actor)
    head = _looked_at(library, store.head_or_none(ref, caller.scopes) or store.head(ref, caller.scopes))
    after = store.manifest(head, version)
    before = store.manifest(head) if head.version else {}
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    then = store.files(head, version)
    found = looked_at(head.ref, store.files(head) if head.version else {}, then, caller.actor)
    if propose or asked or change_waits(library, caller, head) or waits(caller, found):
        base = _expected(head, expected_version)
        return _proposed(library, caller, head.ref, base, then, changed, reason, found, meant=propose)
    with _transaction(library, caller, head.ref, reason) as tx:
        tx.restore(head.ref, version, expected_version=expected_version)
    return _updated(library, tx.written[0], tx.operation, changed, told(found))


def remove(
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
    reason, asked = library.redacted(reason), a_person_decides(library.policies, ref, caller.actor)
    head = _looked_at(library, library.store.head(ref, caller.scopes))
    if propose or asked or removal_waits(library, caller, head):
        base = _expected(head, expected_version)
        return _proposed(library, caller, head.ref, base, {}, [], reason, NOTHING, meant=propose)
    with _transaction(library, caller, head.ref, reason) as tx:
        tx.remove(head.ref, expected_version=expected_version)
    return _updated(library, tx.written[0], tx.operation, [], [])
