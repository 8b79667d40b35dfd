"""Operations: who moved which names, when and why. The log of the library consists of them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from evolvable_store.resource import Kind, Ref, StoredResource


class Actor(StrEnum):
    """The author of a change. Only HUMAN may change a frozen resource."""

    HUMAN = "human"
    AGENT = "agent"
    REVIEW = "review"
    EVOLUTION = "evolution"
    IMPORT = "import"


class Principal(StrEnum):
    """The party that is responsible for an operation.

    An actor made a change; a principal answers for it.
    """

    PERSON = "person"
    """A person at a terminal, in the local page, or who answered a question in the client."""

    AGENT = "agent"
    """A model's client: an MCP call, or a command without a person's terminal."""

    SCRIPT = "script"
    """Automation with a token that a person made."""

    REPOSITORY = "repository"
    """A file whose bytes a git repository holds, when it was first seen."""

    IMPORT = "import"
    """An archive or a folder from elsewhere."""

    UNKNOWN = "unknown"
    """A change on disk that nothing above explains."""


def implied_principal(actor: Actor) -> Principal:
    """Return the principal of an operation that records none, as versions before 0.2 wrote it."""
    return {Actor.HUMAN: Principal.PERSON, Actor.IMPORT: Principal.IMPORT}.get(
        actor, Principal.AGENT
    )


@dataclass(frozen=True, slots=True)
class Identity:
    """A principal, and the way in which it acts.

    via: `terminal`, `page`, `elicitation`, `client:NAME`, `token:NAME`, `hook` or `file`.
    """

    principal: Principal
    via: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """Who makes a change, when and why: of an operation, or of a move of the release channel.

    at: ISO 8601 in UTC, for people. The order comes from the change sequence, never from clocks.
    """

    at: str
    actor: Actor
    reason: str
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Intent(Statement):
    """The statement of an operation, before it has happened.

    evidence: free texts or ids that say why. undoes: the operations that it takes back. principal,
    via: as in `Identity`; None and '' in operations of versions before 0.2.
    """

    evidence: tuple[str, ...] = ()
    undoes: tuple[int, ...] = ()
    principal: Principal | None = None
    via: str = ""

    @property
    def digest(self) -> str:
        """The sha256 (hex) over all fields, which the hash of every version made by it covers."""
        # The order and form of these fields are part of the format: version hashes and signatures
        # cover the digest.
        fields: list[object] = [self.at, self.actor, self.reason, self.session]
        fields += [self.evidence, self.undoes]
        # Older operations keep the digest that they were made with.
        if self.principal is not None:
            fields += [self.principal, self.via]
        return hashlib.sha256(json.dumps(fields).encode("ascii")).hexdigest()

    def with_time(self, at: str) -> "Intent":
        """Return the intent with this time."""
        # Every update does this, and dataclasses.replace is slower.
        why = self.reason, self.session, self.evidence, self.undoes
        return Intent(at, self.actor, *why, self.principal, self.via)


def statement_of(intent: Intent, moves: "Sequence[tuple[str, str, str, int | None, str]]") -> bytes:
    """Return the bytes that a signature of an operation covers: its intent and all its moves.

    moves: (kind, scope, name, version after, hash of the newest version) of each change, in order.
    """
    rows = [list(move) for move in moves]
    # The first two elements name the format, so that no other signed text can be taken for this
    # one.
    return json.dumps(["evolvable operation", 1, intent.digest, rows]).encode("ascii")


QUICKSTART = Identity(Principal.IMPORT, "quickstart")
"""The identity of imports by the program itself.

They are its own skills, and quickstart's copies of the person's.
"""

PLUGIN_FILES = Identity(Principal.IMPORT, "plugin")
"""The identity of a plugin's files: the people who made the plugin answer for them."""


class FollowedPull(NamedTuple):
    """A pull into a folder whose pulls the person follows. commit: its short name."""

    commit: str
    folder: str


def followed_pull(pull: FollowedPull) -> Identity:
    """Return the identity of changes that such a pull brought."""
    return Identity(Principal.REPOSITORY, f"{_PULL}{pull.commit}:{pull.folder}")


def read_pull(identity: Identity) -> FollowedPull | None:
    """Return the pull of an identity that `followed_pull` made, None for any other."""
    if identity.principal is not Principal.REPOSITORY or not identity.via.startswith(_PULL):
        return None
    # A commit has no colon, a folder may have one.
    commit, _, folder = identity.via.removeprefix(_PULL).partition(":")
    return FollowedPull(commit, folder)


_PULL = "pull:"


class Signer(Protocol):
    """Signs decisions with the key that a person's passphrase opens."""

    @property
    def key(self) -> str:
        """The public key, in hexadecimal."""

    def unlock(self) -> None:
        """Ask for the passphrase, unless it was given already. Raise Refused for a wrong one."""

    def sign(self, statement: bytes) -> bytes:
        """Return the signature of a statement; `unlock` came before."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One atomic change of where names point.

    id: the sequence of its first change. arrived: whether it was made in another library and came
    here with an archive; its principal is history then and grants nothing here.
    """

    id: int
    intent: Intent
    arrived: bool = False

    @property
    def principal(self) -> Principal | None:
        """Who answers for it in this library; None for an operation of a version before 0.2."""
        return Principal.IMPORT if self.arrived else self.intent.principal

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
    """One name moved by an operation.

    before, after: version numbers, None where the resource was or is removed. sequence: grows with
    every change in the library and is never used twice.
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
class HeadState:
    """The state of a name after the changes read so far; by default before the first.

    The fields are those of Head.
    """

    version: int | None = None
    latest: int = 0
    tree: str = ""
    hash: str = ""
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class Head(StoredResource):
    """Where one name points now.

    `version` is None when the resource was removed; `latest` is the highest number it ever had (0:
    none yet), so a returning resource goes on counting. `tree` and `hash` belong to the latest
    version; `sequence` is the change that moved it here.
    """

    version: int | None
    latest: int
    tree: str
    hash: str
    frozen: bool
    sequence: int
