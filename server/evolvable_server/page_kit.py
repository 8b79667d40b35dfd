"""The types of the local page for parts of the program: what they draw with, and what they add.

The page itself is an annex.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from evolvable_server.config import Config
from evolvable_store import Identity
from evolvable_tools import Caller, Library

Value = TypeVar("Value")


class PageForm(Protocol):
    """A request: the parts of its address, and the fields of its query or its form."""

    @property
    def path(self) -> Mapping[str, str]:
        """The parts of the address by name."""

    @property
    def session(self) -> Any:
        """The session of the browser, with the `csrf` that forms carry."""

    def get(self, name: str) -> str:
        """Return a field, '' without it."""


class PageSite(Protocol):
    """The page that is served."""

    @property
    def config(self) -> Config:
        """The configuration of the person."""

    @property
    def library(self) -> Library:
        """The library that it shows."""

    @property
    def caller(self) -> Caller:
        """The person who made the request, who sees every scope that a watched folder has."""

    @property
    def passphrase_label(self) -> str:
        """The question for the passphrase of decisions, '' where approvals are not locked."""

    def decider(self, request: Any) -> Caller:
        """Return the person with what signs a decision.

        Raise Refused without the passphrase that a lock needs.
        """

    def value(self, name: str, compute: Callable[[], Value], key: Hashable) -> Value | None:
        """Return the last value of a computation in the background, None before there is one."""


class PageKit(Protocol):
    """The functions that draw pages; `evolvable_page.kit` is one, and documents each."""

    PageBody: Callable[..., Any]
    PageView: Callable[..., Any]
    PageAction: Callable[..., Any]
    action_path: Callable[..., str]
    draw_diff: Callable[..., Any]
    form: Callable[..., Any]
    make_visible: Callable[..., str]
    operation_note: Callable[..., Any]
    passphrase_field: Callable[..., Any]
    table: Callable[..., Any]
    tag: Callable[..., Any]
    when: Callable[..., Any]
    with_code: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class PageParts:
    """The additions of a part to the page.

    views, actions: made by `PageView` and `PageAction` of the kit. section: its name, its address
    and its title in the navigation. waiting: draws the part's items in the inbox, None without any.
    learn: draws the part's section of the overview of Learn.
    """

    views: Sequence[Any]
    actions: Sequence[Any]
    section: tuple[str, str, str] | None = None
    waiting: Callable[[PageSite], Any] | None = None
    learn: Callable[[PageSite], Any] | None = None


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A person as the provider named them.

    claims: those of the ID token, without those of userinfo. token: the one that opens userinfo, ''
    without one.
    """

    identity: Identity
    permissions: frozenset[str]
    subject: str
    claims: Mapping[str, Any]
    token: str
    seconds: float


class SignInFlow(Protocol):
    """A sign-in to the page at a provider."""

    @property
    def origin(self) -> str:
        """The origin that browsers see the page at."""

    @property
    def provider(self) -> str:
        """The host of the provider, which the page shows."""

    async def begin(self) -> tuple[str, str]:
        """Return the address to send a browser to, and the value of its cookie.

        Raise Refused.
        """

    async def finish(self, query: str, cookie: str) -> SignedIn:
        """Return the person who came back with this query and this cookie.

        Raise Refused with a message for the person.
        """

    async def recheck(self, signed: SignedIn) -> SignedIn | None:
        """Return the person with the groups that they have now; None when the provider ended their
        session.
        """
