"""Which changes go live at once and which wait for a person: by kind, by what they do, and by whose work they undo."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.operation import Actor, Head, Operation, Principal
from evolvable_store.resource import Kind, Ref

if TYPE_CHECKING:
    from evolvable_tools.library import Caller, Library

MAX_REMOVED = 5
"""Resources that an agent may take away in one session, of those that it made itself, before the rest waits."""

SEARCHED = 10_000
"""Operations of a session that are looked at."""

SOUL = "SOUL"
"""The memory that is a person's alone."""


class Policy(StrEnum):
    """What becomes of proposals of one kind."""

    ASK = "ask"
    """They wait for a person."""

    AUTO = "auto"
    """They are made at once, unless the scan asks for a person. Of memory only."""

    OFF = "off"
    """There are none."""


def policies_of(text: str) -> dict[Kind, Policy]:
    """Returns the policies that a setting says, such as `memory=auto,agent=off`. Raises InvalidArgument."""
    said: dict[Kind, Policy] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        try:
            kind, policy = Kind(name.strip()), Policy(value.strip())
        except ValueError:
            hint = f"Write KIND=POLICY: one of {', '.join(Kind)}, and one of {', '.join(Policy)}."
            raise InvalidArgument(f"{part[:40]!r} is no policy.", hint) from None
        if policy is Policy.AUTO and kind is not Kind.MEMORY:
            raise InvalidArgument(f"{kind}s are not changed without asking.", "auto is for memory alone.")
        said[kind] = policy
    return said


def stricter_policies(floor: Mapping[Kind, Policy], said: Mapping[Kind, Policy]) -> dict[Kind, Policy]:
    """Return of each kind the stricter of two policies; where the floor says nothing, a person is asked."""
    order = (Policy.AUTO, Policy.ASK, Policy.OFF)
    kinds = dict.fromkeys([*floor, *said])
    asked = {kind: (floor.get(kind, Policy.ASK), said.get(kind)) for kind in kinds}
    return {kind: max(low, high or low, key=order.index) for kind, (low, high) in asked.items()}


def a_person_decides(policies: Mapping[Kind, Policy], ref: Ref, actor: Actor) -> bool:
    """Returns whether a change of this resource by `actor` is only proposed, because it is a memory.

    Raises Refused for SOUL, and where changes of memories by anybody but a person are off.
    """
    if ref.kind is not Kind.MEMORY or actor is Actor.HUMAN:
        return False
    if ref.name == SOUL:
        raise Refused(
            f"{ref} is written by a person alone.", "Tell the user what you would change there, and go on without it."
        )
    policy = policies.get(Kind.MEMORY, Policy.ASK)
    if policy is Policy.OFF:
        raise Refused("Memories are changed by a person alone here (policy memory=off).", "Go on without it.")
    return policy is Policy.ASK


class Level(StrEnum):
    """Which changes of an agent wait for a person. What a scan finds and what memories ask for waits at every level."""

    OFF = "off"
    """Nothing else waits."""

    GUARDED = "guarded"
    """What is frozen, and what takes away or takes back what the same client and session did not do, waits."""

    ALL = "all"
    """Everything waits."""


def change_waits(library: "Library", caller: "Caller", head: Head | None) -> bool:
    """Return whether a change of this resource by the caller waits, whatever it holds. head: None for a new one."""
    if caller.actor is not Actor.AGENT or library.level is Level.OFF:
        return False
    return library.level is Level.ALL or (head is not None and head.version is not None and head.frozen)


def removal_waits(library: "Library", caller: "Caller", head: Head) -> bool:
    """Return whether the caller's removal of this resource waits."""
    if caller.actor is not Actor.AGENT or library.level is Level.OFF:
        return False
    if change_waits(library, caller, head):
        return True
    made_by = {change.operation for change in library.store.backend.changes_to(head.id, 0)}
    return not is_own(caller, map(library.store.operation, made_by)) or _takes_too_many(library, caller, {head.ref})


def undo_waits(library: "Library", caller: "Caller", undid: Iterable[int], refs: Iterable[Ref]) -> bool:
    """Return whether taking these operations back waits. refs: the resources that it would change."""
    if caller.actor is not Actor.AGENT or library.level is Level.OFF:
        return False
    if library.level is Level.ALL or not is_own(caller, map(library.store.operation, undid)):
        return True
    return _takes_too_many(library, caller, set(refs))


def is_own(caller: "Caller", operations: Iterable[Operation]) -> bool:
    """Return whether the caller made all of these: an agent in the session that it calls in, a script by its token."""
    me = caller.identity
    if me.principal is Principal.AGENT and caller.session is not None:
        session = caller.session
    elif me.principal is Principal.SCRIPT:
        session = None
    else:
        return False
    return all(
        operation.principal is me.principal
        and operation.intent.via == me.via
        and (session is None or operation.session == session)
        for operation in operations
    )


def _takes_too_many(library: "Library", caller: "Caller", refs: set[Ref]) -> bool:
    """Return whether the session would have taken away or back more resources than an agent may."""
    made = [one for one in library.store.operations(SEARCHED, caller.session) if is_own(caller, [one])]
    took = [operation.id for operation in made if operation.intent.undoes]
    changes = library.store.backend.changes_of([operation.id for operation in made])
    gone = {change.ref for change in changes if change.after is None or change.operation in took}
    return len(gone | refs) > MAX_REMOVED
