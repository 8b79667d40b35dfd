"""The caller of a verb, which of its changes wait for a person, and what the rules on that use of a
library.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from evolvable_store import Actor, Identity, Principal, Signer, implied_principal
from evolvable_store.resource import USER_SCOPE

if TYPE_CHECKING:
    from evolvable_store import Store
    from evolvable_tools.approvals_lock import ApprovalsLock


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls a verb: the actor that its operations name, the session, and the scopes seen,
    nearest first.

    principal, via: on whose behalf, and how that is known (see `Identity`); by default what the
    actor implies. signer: signs the caller's decisions, where the person locked approvals.
    connection: the server's own name of the connection that the call came over, None where it
    cannot tell connections apart. A caller chooses its session, never this. project: the folder
    that the caller works in, None where the server cannot tell. address: from where the call came,
    '' for this machine. conversation: whom texts are served to, '' where the server cannot tell its
    clients apart; by default the connection, or the session.
    """

    actor: Actor
    session: str | None = None
    scopes: tuple[str, ...] = (USER_SCOPE,)
    principal: Principal | None = None
    via: str = ""
    signer: Signer | None = None
    connection: str | None = None
    project: str | None = None
    address: str = ""
    conversation: str | None = None

    @property
    def reader(self) -> str | None:
        """Who has the texts that are served to this caller; None where nobody can tell."""
        if self.conversation is not None:
            return self.conversation or None
        # One client may hold several sessions in one connection; texts reach the whole connection.
        return self.connection or self.session or None

    @property
    def identity(self) -> Identity:
        """Who answers for the operations of this caller."""
        return Identity(self.principal or implied_principal(self.actor), self.via)

    @property
    def decides(self) -> bool:
        """Whether the caller may decide what is a person's to decide: a person, or a script with
        that permission.
        """
        return self.actor is Actor.HUMAN and self.identity.principal in (
            Principal.PERSON,
            Principal.SCRIPT,
        )


class ApprovalLevel(StrEnum):
    """Which changes of an agent wait for a person.

    What a scan finds and what memories ask for waits at every level.
    """

    OFF = "off"
    """Nothing else waits."""

    GUARDED = "guarded"
    """What is frozen, and what takes away or takes back what the same client and session did not
    do, waits.
    """

    ALL = "all"
    """Everything waits."""


class JudgedLibrary(Protocol):
    """A library, as the rules on approvals and authors use it."""

    store: "Store"
    lock: "ApprovalsLock | None"
    level: ApprovalLevel
    marks_agents: bool

    def is_own(self, caller: Caller, operation: int, session: str | None) -> bool:
        """Return whether the caller's session or connection made an operation."""

    def is_tainted(self, caller: Caller) -> bool:
        """Return whether a stranger's text was served to the caller's session or connection."""
