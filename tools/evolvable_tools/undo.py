"""The verb that takes changes back: one operation, or everything a session did."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from evolvable_store.errors import InvalidArgument, NoSuchOperation
from evolvable_store.operation import Actor, Change
from evolvable_store.resource import Ref
from evolvable_store.transaction import Transaction
from evolvable_tools.library import Caller, Library


@dataclass(frozen=True, slots=True)
class UndoConflict:
    """A resource that an undo left alone, and why."""

    ref: str
    reason: str


@dataclass(frozen=True)
class Undone:
    """What an undo took back. `restored` lists refs with the version they now have, or 'removed'."""

    operation: int | None
    undid: list[int]
    restored: list[str]
    conflicts: list[UndoConflict]
    warnings: list[str] = field(default_factory=list)


def undo(
    library: Library, caller: Caller, reason: str, *, operation: int | None = None, session: str | None = None
) -> Undone:
    """Takes back an operation, or all of a session, in one new operation.

    A resource that somebody changed since is left alone and listed under `conflicts`, with what to do.
    Raises NoSuchOperation, InvalidArgument.
    """
    store = library.store
    if (operation is None) == (session is None):
        raise InvalidArgument("Name either an operation or a session.", "resource_history shows operations.")
    if operation is not None:
        undid = [store.operation(operation).id]
    else:
        undid = sorted(made.id for made in store.operations(limit=10_000, session=session))
        if not undid:
            raise NoSuchOperation(f"Session {ascii(session)} changed nothing.", "`evolvable log` shows what did.")
    library.take_in({change.ref for change in store.backend.changes_of(undid)})
    conflicts: list[UndoConflict] = []
    with store.transaction(caller.actor, reason, session=caller.session, undoes=undid) as tx:
        for changes in _by_resource(store.backend.changes_of(undid)):
            problem = _undo_one(library, caller, tx, changes, undid)
            if problem:
                conflicts.append(UndoConflict(str(changes[0].ref), problem))
    done = [written for written in tx.written if written.changed]
    warnings = library.write_out([written.ref for written in done])
    restored = [str(w.ref.at(w.version)) if w.version else f"{w.ref} removed" for w in done]
    return Undone(tx.operation.id if tx.operation else None, undid, restored, conflicts, warnings)


def _by_resource(changes: Sequence[Change]) -> list[list[Change]]:
    groups: dict[Ref, list[Change]] = {}
    for change in changes:
        groups.setdefault(change.ref, []).append(change)
    return list(groups.values())


def _undo_one(
    library: Library, caller: Caller, tx: Transaction, changes: Sequence[Change], undid: Sequence[int]
) -> str:
    """Adds what takes `changes` of one resource back to `tx`; returns why not, or ''."""
    store, ref, first, last = library.store, changes[0].ref, changes[0], changes[-1]
    head = store.head_or_none(ref)
    assert head is not None
    since = [c for c in store.backend.changes_to(head.id, first.sequence) if c.operation not in undid]
    if since:
        changed = f"operation {since[-1].operation} changed it since"
        if first.before:
            return f"{changed}; undo that first, or restore version {first.before}."
        if head.version is None:
            return f"{changed}; it is removed already, so nothing is left to take back."
        return f"{changed}; undo that first, or remove it."
    if head.frozen and caller.actor is not Actor.HUMAN:
        return 'it is frozen (metadata evolvable: "false"); only a person may change it.'
    expected = last.after or 0
    if first.before is None and last.after is not None:
        tx.remove(ref, expected_version=expected)
    elif first.before is not None:
        tx.restore(ref, first.before, expected_version=expected)
    return ""
