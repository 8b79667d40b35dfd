"""Join a served library: find its provider, sign in there, and store the token for this account.

What a server says about itself is hostile input. It names an issuer, which the person confirms, and
chooses no command, no path and no name. A token that was not made for this very server is never
sent to it.
"""

import base64
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import anyio
import httpx2

from evolvable_server import check_owner, own_path
from evolvable_store import regular_file, workingcopy, write_private
from evolvable_store.errors import InvalidArgument, NotFound, Refused
from evolvable_store.workingcopy import scopes_by_map
from evolvable_teams.oidc import (
    KeySet,
    ProviderMetadata,
    ask_json,
    check_url,
    discover,
    is_loopback,
    new_client,
    read_json,
)

SCOPES = ("openid", "offline_access", "evolvable:read", "evolvable:report", "evolvable:write")
"""The scopes that are requested by default: all but the one to decide about proposals."""

METADATA = "/.well-known/oauth-protected-resource"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"

DEVICE_SECONDS = 900.0
"""How long a person may take to confirm the code on another device."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,49}")


@dataclass(frozen=True, slots=True)
class Membership:
    """A served library that this account joined, with its tokens.

    expires: in seconds since 1970.
    """

    resource: str
    issuer: str
    client: str
    token: str
    expires: float
    refresh: str = ""


@dataclass(frozen=True, slots=True)
class ServedLibrary:
    """What a server and its provider publish, read before anybody signs in."""

    resource: str
    issuer: str
    provider: ProviderMetadata

    @property
    def name(self) -> str:
        """The name of the membership, made from the address that the person typed alone."""
        return membership_name(self.resource)


def membership_name(resource: str) -> str:
    """Return the name under which a server's membership is kept."""
    host = re.sub(r"[^a-z0-9]+", "-", urlsplit(resource).netloc.lower()).strip("-")[:40]
    return f"{host}-{hashlib.sha256(resource.encode()).hexdigest()[:6]}"


def memberships() -> Path:
    """Return the folder of the memberships.

    Raise Refused for an account without a home directory.
    """
    path = own_path()
    if path is None:
        raise Refused(
            "This account has no home directory to keep a token in.", "Use an account that has one."
        )
    return path.with_name("joined")


def normalize_url(url: str) -> str:
    """Return the address of a server's /mcp. Raise InvalidArgument."""
    check_url(url)
    parts = urlsplit(url)
    # The address becomes the name of a file and the audience of a token, so it has one spelling.
    if parts.query or parts.username or parts.password or not url.isascii():
        raise InvalidArgument(
            "The address of a server has no user, password or query.", "Such as https://host/mcp."
        )
    path = parts.path if parts.path not in ("", "/") else "/mcp"
    return f"{parts.scheme}://{parts.netloc.lower()}{path}"


async def find_library(url: str) -> ServedLibrary:
    """Return what a server says of its provider, checked (RFC 9728).

    Raise InvalidArgument, Refused.
    """
    resource = normalize_url(url)
    parts = urlsplit(resource)
    try:
        async with new_client() as client:
            document = await read_json(
                client, "GET", f"{parts.scheme}://{parts.netloc}{METADATA}{parts.path}"
            )
            servers = document.get("authorization_servers")
            # RFC 9728, section 3.3: metadata that names another resource must not be used.
            if document.get("resource") != resource:
                raise Refused(
                    f"{parts.netloc} says that it is another server than {resource}.", _ASK
                )
            issuer = servers[0] if isinstance(servers, list) and len(servers) == 1 else None
            if not isinstance(issuer, str):
                raise Refused(f"{parts.netloc} does not name one provider to sign in at.", _ASK)
            check_url(issuer)
            # Otherwise a remote server could have the browser talk to a program of this machine.
            is_remote = not is_loopback(parts.hostname or "")
            if is_remote and is_loopback(urlsplit(issuer).hostname or ""):
                raise Refused(
                    f"{parts.netloc} names a provider on this machine, {ascii(issuer[:200])}.", _ASK
                )
            return ServedLibrary(resource, issuer, await discover(client, issuer))
    except (httpx2.HTTPError, ValueError) as error:
        hint = "Look at the address; the server says `Serving ...` where it runs."
        raise Refused(f"{resource} cannot be joined: {ascii(str(error))[:300]}.", hint) from None


_ASK = "Ask the person who gave you the address."


async def register(library: ServedLibrary, redirect: str) -> str:
    """Return the id of a client that is registered for this machine at the provider (RFC 7591).

    Raise Refused.
    """
    if not library.provider.registration:
        hint = (
            "Ask the person who serves the library for the id of a public client, and pass it "
            "with --client-id."
        )
        raise Refused(f"{library.issuer} registers no clients by itself.", hint)
    device_grant = [DEVICE_GRANT] if library.provider.device else []
    registration = {
        "client_name": "Evolvable",
        "application_type": "native",
        "redirect_uris": [redirect],
        "response_types": ["code"],
        "grant_types": ["authorization_code", "refresh_token", *device_grant],
        "token_endpoint_auth_method": "none",
    }
    answer = await _ask_provider(library.provider.registration, json=registration)
    if not isinstance(answer.get("client_id"), str):
        raise Refused(
            f"{library.issuer} did not register a client: {_describe_error(answer)}.",
            "Pass --client-id.",
        )
    return str(answer["client_id"])


async def sign_in_by_browser(
    library: ServedLibrary,
    client: str,
    redirect: str,
    scopes: Sequence[str],
    tell: Callable[[str], None],
    wait: Callable[[str], Awaitable[Mapping[str, str]]],
) -> Membership:
    """Sign in by the code flow with PKCE over a loopback address (RFC 8252).

    tell: shows the person the address to open. wait: returns the answer that came to `redirect`
    with this state.
    """
    # `state` binds the answer to this login, the verifier binds the code to this process (PKCE).
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")
    query = {
        "response_type": "code",
        "client_id": client,
        "redirect_uri": redirect,
        "scope": " ".join(scopes),
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": library.resource,
        **({"prompt": "consent"} if "offline_access" in scopes else {}),
    }
    joint = "&" if urlsplit(library.provider.authorization).query else "?"
    tell(f"{library.provider.authorization}{joint}{urlencode(query)}")
    answer = await wait(state)
    # RFC 9207: the code of another provider must not be sent to this one.
    default = "" if library.provider.names_issuer else library.issuer
    if answer.get("iss", default) != library.issuer:
        raise Refused("Another provider answered.", "Nothing was stored. Join again.")
    if "code" not in answer:
        raise Refused(
            f"{library.issuer} refused: {_describe_error(answer)}.",
            "Nothing was stored. Join again.",
        )
    form = {
        "grant_type": "authorization_code",
        "code": answer["code"],
        "redirect_uri": redirect,
        "client_id": client,
        "code_verifier": verifier,
        "resource": library.resource,
    }
    return await _membership(
        library, client, await _ask_provider(library.provider.token, data=form)
    )


async def sign_in_by_device(
    library: ServedLibrary, client: str, scopes: Sequence[str], tell: Callable[[str, str], None]
) -> Membership:
    """Sign in by the device flow (RFC 8628).

    tell: shows the person the address to open and the code to type there.
    """
    if not library.provider.device:
        raise Refused(
            f"{library.issuer} has no device flow.",
            "Join from a machine with a browser, without --device.",
        )
    device_form = {"client_id": client, "scope": " ".join(scopes), "resource": library.resource}
    begun = await _ask_provider(library.provider.device, data=device_form)
    code, address, user_code = (
        begun.get(key) for key in ("device_code", "verification_uri", "user_code")
    )
    if not (isinstance(code, str) and isinstance(address, str) and isinstance(user_code, str)):
        raise Refused(
            f"{library.issuer} did not begin a device flow: {_describe_error(begun)}.",
            "Join without --device.",
        )
    check_url(address)
    tell(address, user_code)
    pause, deadline = _number(begun.get("interval"), 5.0), time.monotonic() + DEVICE_SECONDS
    token_form = {
        "grant_type": DEVICE_GRANT,
        "device_code": code,
        "client_id": client,
        "resource": library.resource,
    }
    while time.monotonic() < deadline:
        await anyio.sleep(min(max(pause, 0.2), 60.0))
        answer = await _ask_provider(library.provider.token, data=token_form)
        if answer.get("error") == "slow_down":
            # RFC 8628, section 3.5: five seconds more, for this request and all later ones.
            pause += 5
        elif answer.get("error") != "authorization_pending":
            return await _membership(library, client, answer)
    raise Refused("Nobody confirmed the code in time.", "Nothing was stored. Join again.")


async def renew_membership(membership: Membership) -> Membership:
    """Return a membership with a new token.

    Raise Refused where the provider gives none; then the person has to join again.
    """
    hint = f"Run: evolvable team join {membership.resource}"
    if not membership.refresh:
        raise Refused(f"The sign-in to {membership.resource} has ended.", hint)
    try:
        async with new_client() as http:
            provider = await discover(http, membership.issuer)
    except (httpx2.HTTPError, ValueError) as error:
        raise Refused(
            f"{membership.issuer} cannot be asked: {ascii(str(error))[:200]}.",
            "Try again in a moment.",
        ) from None
    library = ServedLibrary(membership.resource, membership.issuer, provider)
    form = {
        "grant_type": "refresh_token",
        "refresh_token": membership.refresh,
        "client_id": membership.client,
        "resource": membership.resource,
    }
    answer = await _ask_provider(library.provider.token, data=form)
    if "access_token" not in answer:
        raise Refused(
            f"The sign-in to {membership.resource} has ended: {_describe_error(answer)}.", hint
        )
    fresh = await _membership(library, membership.client, answer)
    # A provider that does not rotate refresh tokens returns none, and the old one stays valid.
    return fresh if fresh.refresh else replace(fresh, refresh=membership.refresh)


async def _membership(library: ServedLibrary, client: str, answer: Mapping[str, Any]) -> Membership:
    """Return the membership of an answer with a token, once that is known to be for this server.

    Raise Refused.
    """
    token = answer.get("access_token")
    if not isinstance(token, str) or str(answer.get("token_type", "")).lower() != "bearer":
        raise Refused(
            f"{library.issuer} gave no token: {_describe_error(answer)}.",
            "Nothing was stored. Join again.",
        )
    try:
        keys = KeySet(library.issuer, library.provider.keys)
        claims = await keys.access_claims(token, library.resource)
    except (httpx2.HTTPError, ValueError) as error:
        raise Refused(
            f"The keys of {library.issuer} cannot be read: {ascii(str(error))[:200]}."
        ) from None
    # This server could use a token for several servers at the others.
    if claims is None or claims["aud"] not in (library.resource, [library.resource]):
        raise Refused(
            f"{library.issuer} gave a token that is not for {library.resource} alone, so it is not "
            "sent there.",
            "Ask the person who serves the library to have the provider issue JWTs for "
            "this resource.",
        )
    refresh = answer.get("refresh_token")
    refresh = refresh if isinstance(refresh, str) else ""
    expires = float(claims["exp"])
    return Membership(library.resource, library.issuer, client, token, expires, refresh)


async def _ask_provider(url: str, **body: Any) -> dict[str, Any]:
    try:
        async with new_client() as client:
            return (await ask_json(client, "POST", url, **body))[1]
    except (httpx2.HTTPError, ValueError) as error:
        raise Refused(
            f"{urlsplit(url).netloc} cannot be asked: {ascii(str(error))[:200]}.", "Try again."
        ) from None


def _describe_error(answer: Mapping[str, Any]) -> str:
    return ascii(str(answer.get("error", "its answer is not one of the protocol"))[:100])


def _number(value: object, usual: float) -> float:
    return float(value) if isinstance(value, int | float) else usual


def save_membership(name: str, membership: Membership) -> Path:
    """Write a membership to a file of mode 0600 in the person's own folder; return the file."""
    folder = memberships()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{name}.json"
    write_private(path, json.dumps({"version": 1, **asdict(membership)}, indent=1) + "\n")
    return path


def load_membership(name: str) -> Membership:
    """Return a membership.

    Raise NotFound, Refused for a file that others can write, InvalidArgument for a broken one.
    """
    path = membership_file(name)
    try:
        with open(path, "rb", opener=regular_file) as file:
            check_owner(path, os.fstat(file.fileno()))
            document = json.loads(file.read(1_000_000))
        # A file without a version is broken: the KeyError is caught below.
        document.pop("version")
        membership = Membership(**document)
        texts = (value for name, value in document.items() if name != "expires")
        has_number = isinstance(membership.expires, int | float)
        if not has_number or not all(isinstance(text, str) for text in texts):
            raise ValueError("types")
        check_url(membership.resource)
        check_url(membership.issuer)
    except FileNotFoundError:
        raise NotFound(
            f"No library was joined as {name}.", "`evolvable team join URL` joins one."
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidArgument(
            f"{path} is not a membership.", "Delete it, and join again."
        ) from None
    return membership


def membership_file(name: str) -> Path:
    """Return the file of a membership. Raise InvalidArgument for an invalid name."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(f"{ascii(name[:80])} is no name of a joined library.")
    return memberships() / f"{name}.json"


def name_project(name: str, place: Path, scope: str) -> Path:
    """Note which project of a joined library a folder is; return the file, which stays here.

    Raise InvalidArgument for an invalid name, LibraryBusy.
    """
    folder = _projects_folder(name)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    workingcopy.change_projects(
        folder, lambda projects: projects.with_projects(workingcopy.Project(place, scope))
    )
    return folder / workingcopy.PROJECTS_FILE


def projects_at(name: str, directory: Path) -> tuple[str, ...]:
    """Return the projects of a joined library that are read from a directory, the nearest first."""
    return scopes_by_map(workingcopy.read_projects(_projects_folder(name)), directory, Path.home())


def _projects_folder(name: str) -> Path:
    return membership_file(name).with_suffix(".projects")


def forget_membership(name: str) -> bool:
    """Delete a membership; return whether there was one."""
    path = membership_file(name)
    # Before the token's file: after a crash in between, the membership can be forgotten again.
    shutil.rmtree(_projects_folder(name), ignore_errors=True)
    with suppress(FileNotFoundError):
        path.unlink()
        return True
    return False
