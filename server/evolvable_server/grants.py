"""The permissions that the groups of a signed-in person give, by the operator's own configuration.

The claims come from a checked token; the rules come from `[sign_in]` of the configuration of the
account that serves. A claim that no rule names gives nothing.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SCOPE = "evolvable:"
"""The prefix of permissions as scopes of OAuth, where other products' scopes stand beside them."""


class Permission(StrEnum):
    """What a bearer may do: read, report outcomes, change the library, decide about proposals.

    A bearer that may write may report.
    """

    READ = "read"
    REPORT = "report"
    WRITE = "write"
    APPROVE = "approve"

    @property
    def scope(self) -> str:
        """Its name as a scope of OAuth."""
        return SCOPE + self


PERMISSIONS = tuple(map(str, Permission))
"""The permissions of a token, from the least to the most."""


_TEXT_KEYS = ("issuer", "resource", "client", "address", "listen")
_KEYS = {*_TEXT_KEYS, "scopes", "grants", "proxies", "signers"}
# Printable ASCII. The provider has no second @.
_PERSON = re.compile(r"[!-~]{1,255}@[!-?A-~]{1,255}")
# A public key of 32 bytes in hexadecimal.
_KEY = re.compile(r"[0-9a-f]{64}")
_GRANT_KEYS = {"claim", "value", "permissions", "projects"}


@dataclass(frozen=True, slots=True)
class Grant:
    """Give permissions to everybody whose token has a value in a claim.

    claim: the keys that lead to it, usually one. projects: the libraries that it holds for, by the
    project of their PostgreSQL address or their folder; none for every library that this account
    serves.
    """

    claim: tuple[str, ...]
    value: str
    permissions: frozenset[str]
    projects: tuple[str, ...] = ()

    def fits(self, claims: Mapping[str, Any], projects: Iterable[str]) -> bool:
        """Return whether these claims have the value, in a library that has one of these names."""
        if self.projects and not set(self.projects) & set(projects):
            return False
        claimed: Any = claims
        for key in self.claim:
            claimed = claimed.get(key) if isinstance(claimed, Mapping) else None
        # Compared whole: a text is one value, never a list of words.
        if isinstance(claimed, str):
            return claimed == self.value
        return isinstance(claimed, list) and self.value in claimed


@dataclass(frozen=True, slots=True)
class SignIn:
    """The provider that people sign in at, and the permissions of their groups.

    issuer: its address, exactly as its tokens name it. resource: the public address of /mcp that
    tokens are made for. client: the name under which the page is registered at the provider.
    address: of the page, as browsers see it. scopes: what the page asks the provider for; some have
    one of their own for groups. listen: the HOST:PORT of this machine that the page is served at,
    '' for a port of the loopback addresses. proxies: the addresses and networks of the proxies in
    front of the page. signers: the public signing keys of people by `SUBJECT@PROVIDER`, which count
    where approvals are locked.
    """

    issuer: str
    resource: str = ""
    client: str = ""
    address: str = ""
    grants: tuple[Grant, ...] = ()
    scopes: tuple[str, ...] = ("openid",)
    listen: str = ""
    proxies: tuple[str, ...] = ()
    signers: Mapping[str, str] = field(default_factory=dict)

    def permissions(self, claims: Mapping[str, Any], projects: Iterable[str]) -> frozenset[str]:
        """Return the permissions that these claims give in a library."""
        return grant_permissions(self.grants, claims, projects)


def grant_permissions(
    grants: Iterable[Grant], claims: Mapping[str, Any], projects: Iterable[str]
) -> frozenset[str]:
    """Return the permissions of all grants that fit.

    Any permission includes reading, and writing includes reporting.
    """
    names = tuple(projects)
    fitting = [grant.permissions for grant in grants if grant.fits(claims, names)]
    permissions = frozenset[str]().union(*fitting)
    if not permissions:
        return frozenset()
    return permissions | {"read"} | ({"report"} if "write" in permissions else set())


def narrow_permissions(permissions: frozenset[str], scopes: Iterable[str]) -> frozenset[str]:
    """Return the permissions that the scopes of a token leave. A token without a scope of ours
    leaves all of them.

    Many providers cannot issue scopes of our own. Where one does, a person may give a client less
    than they have.
    """
    ours = {scope.removeprefix(SCOPE) for scope in scopes if scope.startswith(SCOPE)}
    if not ours:
        return permissions
    return permissions & (ours | ({"report"} if "write" in ours else set()))


def parse_sign_in(table: Mapping[str, Any]) -> SignIn:
    """Return the table `[sign_in]` of a configuration.

    Raise ValueError with what is wrong in it.
    """
    if unknown := sorted(set(table) - _KEYS):
        raise ValueError(
            f"sign_in has an unknown key {unknown[0]!r}; it has {', '.join(sorted(_KEYS))}"
        )
    texts = {key: table.get(key, "") for key in _TEXT_KEYS}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise ValueError(f"sign_in.{key} is not a text")
    if not texts["issuer"]:
        raise ValueError("sign_in has no issuer")
    grants = table.get("grants", [])
    if not isinstance(grants, list):
        raise ValueError("sign_in.grants is not a list of tables")
    scopes = table.get("scopes", ["openid"])
    # A provider tells who signed in only where `openid` is asked for.
    if not isinstance(scopes, list) or "openid" not in scopes or not _are_texts(scopes):
        raise ValueError("sign_in.scopes is not a list of texts with openid in it")
    proxies = _parse_texts(table.get("proxies", []), "proxies", "sign_in")
    for proxy in proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError:
            raise ValueError(
                f"{proxy!r} of sign_in.proxies is not an address or a network"
            ) from None
    _check_listen(texts["listen"])
    return SignIn(
        **texts,
        grants=tuple(map(_parse_grant, grants)),
        scopes=tuple(scopes),
        proxies=tuple(proxies),
        signers=_parse_signers(table.get("signers", {})),
    )


def _parse_signers(table: Any) -> Mapping[str, str]:
    if not isinstance(table, dict):
        raise ValueError("sign_in.signers is not a table")
    for person, key in table.items():
        if not _PERSON.fullmatch(person) or not isinstance(key, str) or not _KEY.fullmatch(key):
            raise ValueError(
                f"{person!r} of sign_in.signers is not SUBJECT@PROVIDER with a public key "
                "of 64 digits"
            )
    # A signature would not tell the two apart.
    if len(set(table.values())) < len(table):
        raise ValueError("two people of sign_in.signers have one key")
    return table


def listen_address(listen: str) -> tuple[str, int]:
    """Return the host and the port of an address such as 127.0.0.1:8650 or [::1]:8650.

    Return ("", 0) for ''. Raise ValueError for a port that is no number.
    """
    if not listen:
        return "", 0
    host, _, port = listen.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _are_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _check_listen(listen: str) -> None:
    try:
        host, port = listen_address(listen)
        is_valid = not listen or bool(ipaddress.ip_address(host) and 0 < port < 65_536)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError(
            f"sign_in.listen is {listen!r}, and must be an IP address with a port, such as "
            "127.0.0.1:8650"
        )


def _parse_grant(entry: Any) -> Grant:
    if not isinstance(entry, dict):
        raise ValueError("sign_in.grants is not a list of tables")
    if unknown := sorted(set(entry) - _GRANT_KEYS):
        raise ValueError(f"a grant of sign_in has an unknown key {unknown[0]!r}")
    claim = entry.get("claim", "groups")
    path = _parse_texts([claim] if isinstance(claim, str) else claim, "claim")
    value = entry.get("value")
    if not isinstance(value, str) or not value or not path:
        raise ValueError("a grant of sign_in needs a value, a text that is not empty, and a claim")
    permissions = _parse_texts(entry.get("permissions", []), "permissions")
    if not permissions or not set(permissions) <= set(PERMISSIONS):
        raise ValueError(
            f"permissions of the grant for {value!r} are some of {', '.join(PERMISSIONS)}"
        )
    projects = _parse_texts(entry.get("projects", []), "projects")
    if "projects" in entry and not projects:
        # An empty list would read as "in none" and mean "in all".
        raise ValueError(
            f"projects of the grant for {value!r} is empty; leave it out for every library"
        )
    return Grant(tuple(path), value, frozenset(permissions), tuple(projects))


def _parse_texts(value: Any, key: str, where: str = "a grant of sign_in") -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
        raise ValueError(f"{key} of {where} is not a list of texts")
    return value
