"""Decide what a request over HTTP may do: by its Host and Origin, its bearer's permissions, and the
files that it names.

Tokens of an external authorization server are checked here too: JWTs by its published keys, others
by asking it. Their scopes say what they permit, or the grants of the operator's configuration.
"""

import ipaddress
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import jwt
from mcp.server.auth.provider import AccessToken
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from evolvable_server import SCOPE, Permission, grant_permissions, narrow_permissions
from evolvable_server.mcp.call import name_of, permissions_of
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_teams.http.http_auth import HttpSettings, OAuth
from evolvable_teams.oidc import (
    LEEWAY_SECONDS,
    MAX_TOKEN,
    KeySet,
    in_time,
    is_loopback,
    is_of_sign_in,
    new_client,
    read_json,
)
from evolvable_tools.sessions import is_transcript_path
from evolvable_tools.verbs import TOOLS

_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_ORIGIN = re.compile(rf"https?://{_HOST.pattern}")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def accepted_hosts(settings: HttpSettings, port: int) -> frozenset[str]:
    """Return the values of Host that are answered: this machine's names, the address, and those
    that are set.

    Raise InvalidArgument for a host that no client would send.
    """
    names = ["127.0.0.1", "localhost", "[::1]"]
    if not is_loopback(settings.host) and not _is_wildcard(settings.host):
        names.append(f"[{settings.host}]" if ":" in settings.host else settings.host.lower())
    own = {f"{name}:{port}" for name in names} | (set(names) if port == 80 else set())
    return frozenset(
        own
        | set(_check_values(settings.hosts, _HOST, "host", "skills.example.org or 10.0.0.5:8642"))
    )


def accepted_origins(settings: HttpSettings, port: int) -> frozenset[str]:
    """Return the values of Origin that are answered: pages of this server itself, and those that
    are set.
    """
    own = {f"http://{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
    return frozenset(
        own | set(_check_values(settings.origins, _ORIGIN, "origin", "https://skills.example.org"))
    )


def _check_values(
    values: Iterable[str], form: re.Pattern[str], what: str, example: str
) -> Iterable[str]:
    """Yield each value in lower case, and without the default port of its scheme too.

    Raise InvalidArgument for a value that is not of the form.
    """
    for value in values:
        lowered = value.lower()
        if not form.fullmatch(lowered):
            raise InvalidArgument(
                f"{ascii(value[:200])} is no {what}.", f"Write it as clients send it: {example}."
            )
        yield lowered
        scheme, _, _ = lowered.rpartition("://")
        port = _DEFAULT_PORTS.get(scheme or "https", "")
        if lowered.endswith(port):  # clients leave the default port out
            yield lowered.removesuffix(port)


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


log = logging.getLogger(__name__)


class OAuthVerifier:
    """A TokenVerifier of the SDK over an authorization server."""

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth
        keys = KeySet(oauth.issuer, oauth.jwks or "")
        self._read_claims: Callable[[str], Awaitable[dict[str, Any] | None]] = (
            partial(_introspect, oauth)
            if oauth.introspection
            else lambda token: keys.access_claims(token, oauth.resource)
        )

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what a token permits.

        None when it permits nothing, or when its server cannot be asked.
        """
        if len(token) > MAX_TOKEN or not token.isascii():
            return None
        try:
            claims = await self._read_claims(token)
        except (
            httpx2.HTTPError,
            ValueError,
            KeyError,
            TypeError,
            jwt.PyJWTError,
            EvolvableError,
        ) as error:
            log.warning(
                "the authorization server cannot be asked: %s: %s", type(error).__name__, error
            )
            return None
        return _make_access(token, claims, self._oauth) if claims is not None else None


async def _introspect(oauth: OAuth, token: str) -> dict[str, Any] | None:
    """Ask the authorization server about a token (RFC 7662).

    It can revoke a token at any moment, so the answer is not cached.
    """
    assert oauth.introspection is not None
    auth = (oauth.client, oauth.secret or "") if oauth.client else None
    async with new_client() as client:
        claims = await read_json(
            client, "POST", oauth.introspection, data={"token": token}, auth=auth
        )
    audience, issuer = claims.get("aud"), claims.get("iss", oauth.issuer)
    audiences = audience if isinstance(audience, list) else [audience]
    good = claims.get("active") is True and oauth.resource in audiences and issuer == oauth.issuer
    # An ID token says who signed in and permits no call. Introspection may omit the claims that
    # tell it, so those in the JWT are read too.
    good = good and not is_of_sign_in(claims) and not is_of_sign_in(_unverified_claims(token))
    return {**claims, "iss": oauth.issuer} if good and in_time(claims) else None


def _unverified_claims(token: str) -> dict[str, Any]:
    """Return the claims in a token, whose signature is not checked; none for one that is no JWT."""
    try:
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError:
        return {}
    return claims


def _make_access(token: str, claims: dict[str, Any], oauth: OAuth) -> AccessToken | None:
    subject = claims.get("sub")
    client = claims.get("client_id") or claims.get("azp") or subject
    if not isinstance(client, str) or not isinstance(subject, str | None):
        return None
    scopes = _claimed_scopes(claims)
    if oauth.grants is not None:
        permissions = grant_permissions(oauth.grants, claims, oauth.projects)
        scopes = [f"{SCOPE}{item}" for item in sorted(narrow_permissions(permissions, scopes))]
        if not scopes:
            log.warning(
                "%s signed in, and no grant of [sign_in] lets them read this library",
                ascii(subject or client),
            )
    expires = claims.get("exp")
    return AccessToken(
        token=token,
        client_id=client,
        subject=subject,
        scopes=scopes,
        expires_at=int(expires) + LEEWAY_SECONDS if isinstance(expires, int | float) else None,
        resource=oauth.resource,
        claims={"iss": oauth.issuer},
    )


def _claimed_scopes(claims: dict[str, Any]) -> list[str]:
    """Return the scopes of a token, which providers write as one text or as a list."""
    scope = claims.get("scope", claims.get("scp", ""))
    if isinstance(scope, str):
        return scope.split()
    return [str(item) for item in scope] if isinstance(scope, list) else []


def required_permissions(tool: str, arguments: Mapping[str, Any]) -> frozenset[Permission]:
    """Return the permissions that a call needs.

    A tool that the registry of verbs does not name needs every permission, so that a forgotten one
    opens nothing.
    """
    if tool == "hook_event" and arguments.get("hook_event_name") == "UserPromptSubmit":
        return frozenset({Permission.READ})
    if tool.startswith("tool_"):  # an approved tool of the library
        return frozenset({Permission.WRITE})
    if tool not in TOOLS:
        return frozenset(Permission)
    return frozenset({Permission(TOOLS[tool].needs(arguments.get("action")))})


async def check_permission(
    ctx: ServerRequestContext[Any, Any], call_next: CallNext
) -> HandlerResult:
    """Answer a call that its bearer may not make with an error for the model; pass every other one
    on.

    Every bearer may read, so only calls of tools are checked: everything else that the server
    answers is reading.
    """
    if ctx.method != "tools/call":
        return await call_next(ctx)
    params = ctx.params or {}
    tool, arguments = params.get("name"), params.get("arguments")
    has = permissions_of(ctx.request)
    # Checked by the arguments as sent: the action chooses the verb.
    sent = arguments if isinstance(arguments, Mapping) else {}
    missing = required_permissions(str(tool), sent) - has
    if not missing:
        return await call_next(ctx)
    text = (
        f"The token {name_of(ctx.request)} may {_join_permissions(has)}; {ascii(tool)} needs "
        f"{_join_permissions(missing)}. "
        "Go on without it, or ask the owner of the library for a token that may "
        f"{_join_permissions(missing)}."
    )
    return _refuse(ctx, text)


def _refuse(ctx: ServerRequestContext[Any, Any], text: str) -> dict[str, Any]:
    """Return an error result for the model.

    A middleware that answers has to fill the whole result.
    """
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": True}
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        result["resultType"] = "complete"
    return result


def _join_permissions(permissions: frozenset[Permission]) -> str:
    return " and ".join(permission.value for permission in Permission if permission in permissions)


ARGUMENT = "transcript_path"
"""The argument by which a call of any tool names a transcript."""


class Transcripts:
    """Middleware: refuses a call that names a transcript which it may not name.

    Of a hook's call it only drops the name. A client over stdio runs as the person who owns the
    files. A caller over HTTP need not be that person, and a review shows others what it finds in a
    file. So a bearer may name none; without tokens only files in `folders` are allowed.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        """folders: where the clients of the person at this machine write transcripts."""
        self._folders = [Path(os.path.realpath(folder)) for folder in folders]
        self._has_warned = False

    async def check(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Check one call, and answer it or pass it on."""
        params = ctx.params or {}
        raw_arguments = params.get("arguments")
        arguments: Mapping[str, Any] = raw_arguments if isinstance(raw_arguments, Mapping) else {}
        path = arguments.get(ARGUMENT)
        if ctx.method != "tools/call" or not path or self._may_name(ctx.request, path):
            return await call_next(ctx)
        if params.get("name") == "hook_event":
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "a hook named a transcript over HTTP that is not read; its session is not "
                    "queued for review"
                )
            return await call_next(
                replace(ctx, params={**params, "arguments": {**arguments, ARGUMENT: ""}})
            )
        return _refuse(ctx, REFUSAL)

    def _may_name(self, request: Any, path: Any) -> bool:
        """Return whether a caller may name this file: not with a token, and only in the folders."""
        # realpath raises for a NUL.
        if name_of(request) is not None or not isinstance(path, str) or "\0" in path:
            return False
        # Links are resolved before the comparison, so none leads out of the folders.
        place = Path(os.path.realpath(path))
        return is_transcript_path(place) and any(
            place.is_relative_to(folder) for folder in self._folders
        )


REFUSAL = (
    f"Over HTTP {ARGUMENT} is refused: it names a file on the server's machine, and this one may "
    "not be read for you. Leave it out, or call the tool of a server that your client "
    "starts itself."
)
