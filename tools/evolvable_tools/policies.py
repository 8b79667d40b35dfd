"""What becomes of changes that are proposed, kind by kind, and who may change a memory."""

from collections.abc import Mapping
from enum import StrEnum

from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref

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
