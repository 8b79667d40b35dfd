"""The verb that takes changes back: one operation, or everything a session did."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from evolvable_store.errors import InvalidArgument, NoSuchOperation, Refused, Unsafe
from evolvable_store.operation import Actor, Change
from evolvable_store.resource import Ref
from evolvable_store.storage.proposals import Proposals
from evolvable_tools.library import Caller, Library
from evolvable_tools.policies import a_person_decides
from evolvable_tools.scan.door import looked_at, told


@dataclass(frozen=True, slots=True)
class UndoConflict:
    """A resource that an undo left alone, and why."""

    ref: str
    reason: str


@dataclass(frozen=True)
class Undone:
    """What an undo took back. `restored` lists refs with the version they now have, or 'removed'.

    proposal_ids: when it was only proposed, a proposal for each resource.
    """

    operation: int | None
    undid: list[int]
    restored: list[str]
    conflicts: list[UndoConflict]
    warnings: list[str] = field(default_factory=list)
    proposal_ids: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Back:
    """What takes the changes of one resource back: a return to `version`, None for a removal, from `expected`."""

    ref: Ref
    expected: int
    version: int | None


def undo(
    library: Library, caller: Caller, reason: str, *, operation: int | None = None, session: str | None = None
) -> Undone:
    """Takes back an operation, or all of a session, in one new operation.

    A resource that somebody changed since is left alone and listed under `conflicts`, with what to do.
    Whether it waits for a person is asked by `inbox.take_back`. Raises NoSuchOperation, InvalidArgument.
    """
    store, undid, reason = library.store, undone_by(library, operation, session), library.redacted(reason)
    backs, conflicts = ways_back(library, undid, caller.actor is Actor.HUMAN, session)
    if caller.actor is not Actor.HUMAN:
        backs = [back for back in backs if _is_harmless(library, caller, back, conflicts)]
    with store.transaction(caller.actor, reason, session=caller.session, undoes=undid, identity=caller.identity) as tx:
        for back in backs:
            if back.version is None:
                tx.remove(back.ref, expected_version=back.expected)
            else:
                tx.restore(back.ref, back.version, expected_version=back.expected)
    done = [written for written in tx.written if written.changed]
    warnings = library.write_out([written.ref for written in done])
    restored = [str(w.ref.at(w.version)) if w.version else f"{w.ref} removed" for w in done]
    return Undone(tx.operation.id if tx.operation else None, undid, restored, conflicts, warnings)


def _is_harmless(library: Library, caller: Caller, back: Back, conflicts: list[UndoConflict]) -> bool:
    """Returns whether anybody may bring this content back, by the policy of memories and by a scan.

    If not, adds the conflict that says why.
    """
    try:
        if a_person_decides(library.policies, back.ref, caller.actor):
            conflicts.append(UndoConflict(str(back.ref), "a person decides about memories; undo with propose=true."))
            return False
    except Refused as refusal:
        conflicts.append(UndoConflict(str(back.ref), refusal.text))
        return False
    head = library.store.head_or_none(back.ref)
    if back.version is None or head is None:
        return True
    now = library.store.files(head) if head.version else {}
    try:
        found = looked_at(back.ref, now, library.store.files(head, back.version), caller.actor)
    except Unsafe as error:
        conflicts.append(UndoConflict(str(back.ref), error.text))
        return False
    if found.asks:
        why = f"{told(found)[0]}; a person can bring it back, or undo with propose=true."
        conflicts.append(UndoConflict(str(back.ref), why))
    return not found.asks


def undone_by(library: Library, operation: int | None, session: str | None) -> list[int]:
    """Returns the operations that an undo of this one, or of this session, takes back.

    Raises NoSuchOperation, InvalidArgument.
    """
    store = library.store
    if (operation is None) == (session is None):
        raise InvalidArgument("Name either an operation or a session.", "resource_history shows operations.")
    if operation is not None:
        undid = [store.operation(operation).id]
    else:
        led_to = led_to_by(library, session)
        undid = sorted({made.id for made in store.operations(limit=10_000, session=session)} | set(led_to))
        if not undid:
            raise NoSuchOperation(f"Session {ascii(session)} changed nothing.", "`evolvable log` shows what did.")
    return undid


def led_to_by(library: Library, session: str | None) -> dict[int, set[Ref]]:
    """Returns the operations that approved what a session led to and were made in another, with its resources."""
    if session is None:
        return {}
    own = {made.id for made in library.store.operations(limit=10_000, session=session)}
    led_to: dict[int, set[Ref]] = {}
    for proposal in Proposals(library.store.backend).approved_in_session(session):
        if proposal.operation is not None and proposal.operation not in own:
            led_to.setdefault(proposal.operation, set()).add(proposal.ref)
    return led_to


def ways_back(
    library: Library, undid: Sequence[int], human: bool, session: str | None = None
) -> tuple[list[Back], list[UndoConflict]]:
    """Returns what takes these operations back, and which resources have to be left alone.

    human: a person decides, who may change what is frozen. session: of an operation that approved proposals of several
    sessions, only what this one led to is taken back.
    """
    library.take_in({change.ref for change in library.store.backend.changes_of(undid)})
    backs, conflicts = list[Back](), list[UndoConflict]()
    led_to = led_to_by(library, session)
    all_changes = library.store.backend.changes_of(undid)
    meant = [change for change in all_changes if change.ref in led_to.get(change.operation, {change.ref})]
    for changes in _by_resource(meant):
        problem = _in_the_way(library, changes, undid, human)
        if problem:
            conflicts.append(UndoConflict(str(changes[0].ref), problem))
        elif changes[0].before is not None or changes[-1].after is not None:
            backs.append(Back(changes[0].ref, changes[-1].after or 0, changes[0].before))
    return backs, conflicts


def _by_resource(changes: Sequence[Change]) -> list[list[Change]]:
    groups: dict[Ref, list[Change]] = {}
    for change in changes:
        groups.setdefault(change.ref, []).append(change)
    return list(groups.values())


def _in_the_way(library: Library, changes: Sequence[Change], undid: Sequence[int], human: bool) -> str:
    """Returns why `changes` of one resource cannot be taken back, or ''."""
    store, first = library.store, changes[0]
    head = store.head_or_none(first.ref)
    assert head is not None
    since = [c for c in store.backend.changes_to(head.id, first.sequence) if c.operation not in undid]
    if since:
        changed = f"operation {since[-1].operation} changed it since"
        if first.before:
            return f"{changed}; undo that first, or restore version {first.before}."
        if head.version is None:
            return f"{changed}; it is removed already, so nothing is left to take back."
        return f"{changed}; undo that first, or remove it."
    if head.frozen and not human:
        return 'it is frozen (metadata evolvable: "false"); only a person may change it.'
    return ""
