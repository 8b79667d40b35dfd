"""Operations: who moved which names, when and why. The log of the library is nothing but these."""

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum

from evolvable_store.resource import Kind, Ref


class Actor(StrEnum):
    """Who makes a change. Only HUMAN may change what is frozen."""

    HUMAN = "human"
    AGENT = "agent"
    REVIEW = "review"
    EVOLUTION = "evolution"
    IMPORT = "import"


@dataclass(frozen=True, slots=True)
class Intent:
    """What an operation says of itself, before it has happened.

    `at`: ISO 8601 in UTC, for people; order comes from the change sequence, never from clocks. `evidence`: free
    texts or ids that say why. `undoes`: the operations it takes back.
    """

    at: str
    actor: Actor
    reason: str
    session: str | None = None
    evidence: tuple[str, ...] = ()
    undoes: tuple[int, ...] = ()

    @property
    def digest(self) -> str:
        """The sha256 (hex) over all fields; the hash of every version made by the operation covers it."""
        fields = (self.at, self.actor, self.reason, self.session, self.evidence, self.undoes)
        return hashlib.sha256(json.dumps(fields).encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class Operation:
    """One atomic change of where names point. `id` is the sequence of its first change."""

    id: int
    intent: Intent

    @property
    def at(self) -> str:
        return self.intent.at

    @property
    def actor(self) -> Actor:
        return self.intent.actor

    @property
    def reason(self) -> str:
        return self.intent.reason

    @property
    def session(self) -> str | None:
        return self.intent.session


@dataclass(frozen=True, slots=True)
class Change:
    """One name moved by an operation. `before` and `after` are version numbers; None: it was or is not there.

    `sequence` grows with every change in the library and is never used twice.
    """

    sequence: int
    operation: int
    kind: Kind
    scope: str
    name: str
    before: int | None
    after: int | None

    @property
    def ref(self) -> Ref:
        """The resource, without a version."""
        return Ref(self.kind, self.name, self.scope)


@dataclass(frozen=True, slots=True)
class Head:
    """Where one name points now.

    `version` is None when the resource was removed; `latest` is the highest number it ever had (0: none yet), so
    a returning resource goes on counting. `tree` and `hash` belong to the latest version; `sequence` is the
    change that moved it here.
    """

    id: int
    kind: Kind
    scope: str
    name: str
    version: int | None
    latest: int
    tree: str
    hash: str
    frozen: bool
    sequence: int

    @property
    def ref(self) -> Ref:
        """The resource, without a version."""
        return Ref(self.kind, self.name, self.scope)
