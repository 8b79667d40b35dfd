"""Sign people in to the page at an OpenID provider: authorization code flow with PKCE.

The state of an open login lies in the browser, in a sealed cookie that only this process can read
and that is valid for ten minutes. So strangers cannot fill this process's memory with open logins,
and an answer of the provider is valid only in the browser that asked.
"""

import base64
import hashlib
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
from cryptography.fernet import Fernet, InvalidToken

from evolvable_server import Config, SignIn, library_names, read_sign_in_secret
from evolvable_server.page_kit import SignedIn
from evolvable_store import Identity, Principal
from evolvable_store.errors import EvolvableError, InvalidArgument, Refused
from evolvable_teams.oidc import KeySet, ProviderMetadata, ask_json, discover, new_client

CALLBACK_PATH = "/callback"

LOGIN_SECONDS = 600
"""How long a person may take at the provider."""

SIGNED_IN_SECONDS = 3600.0
"""How long a session lasts before the provider is asked for a new login.

It ends earlier when the provider says so.
"""

MAX_SUBJECT = 255  # characters; OpenID Connect allows no more in `sub`

log = logging.getLogger(__name__)


def check_address(address: str) -> str:
    """Return the origin at which browsers reach the page.

    Raise InvalidArgument for an origin that shares its cookies with others. Without encryption only
    a name below localhost is allowed: browsers send the cookies of 127.0.0.1 and localhost to every
    port of the machine.
    """
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        port = 0
    has_more = parts.path not in ("", "/") or parts.query or parts.fragment or parts.username
    host = parts.hostname or ""
    is_local = parts.scheme == "http" and host.endswith(".localhost") and port is not None
    has_own_cookies = parts.scheme == "https" or is_local
    if has_more or port == 0 or not has_own_cookies or not host or not host.isascii():
        raise InvalidArgument(
            f"{ascii(address[:200])} cannot be the address of the page.",
            "Write `address` of [sign_in] as https://inbox.example.org, or to try it "
            "http://NAME.localhost:PORT.",
        )
    return f"{parts.scheme}://{parts.netloc.lower()}"


class LoginFlow:
    """Sends browsers to one provider and reads what they come back with."""

    def __init__(
        self,
        settings: SignIn,
        projects: tuple[str, ...],
        secret: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """projects: names of the library, as grants say them. secret: of our client, None for a
        public one.

        Raise InvalidArgument for settings that name no client or no usable address.
        """
        if not settings.client:
            hint = (
                "Register the page at the provider, and write its client id as `client` of "
                "[sign_in]."
            )
            raise InvalidArgument("[sign_in] names no client.", hint)
        self.origin = check_address(settings.address)
        self.redirect = self.origin + CALLBACK_PATH
        self._settings, self._projects = settings, projects
        self._secret, self._clock = secret, clock
        # A key of this process alone: after a restart open logins have to begin again.
        self._seal = Fernet(Fernet.generate_key())
        self._keys = KeySet(settings.issuer)
        self._metadata: ProviderMetadata | None = None

    @property
    def provider(self) -> str:
        """The host of the provider, as people are shown it."""
        return urlsplit(self._settings.issuer).netloc

    async def begin(self) -> tuple[str, str]:
        """Return where to send a browser, and the value of the cookie that it has to send back.

        Raise Refused.
        """
        metadata = await self._discover()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(
            hashlib.sha256(verifier.encode("ascii")).digest()
        ).rstrip(b"=")
        query = {
            "response_type": "code",
            "client_id": self._settings.client,
            "redirect_uri": self.redirect,
            "scope": " ".join(self._settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge.decode("ascii"),
            "code_challenge_method": "S256",
        }
        login_state = json.dumps([state, nonce, verifier]).encode("ascii")
        joint = "&" if urlsplit(metadata.authorization).query else "?"
        sealed = self._seal.encrypt_at_time(login_state, int(self._clock()))
        return f"{metadata.authorization}{joint}{urlencode(query)}", sealed.decode("ascii")

    async def finish(self, query: str, cookie: str) -> SignedIn:
        """Return who came back with this query and this cookie.

        Raise Refused with what to tell the person.
        """
        try:
            login_state = self._seal.decrypt_at_time(
                cookie.encode("ascii", "replace"), LOGIN_SECONDS, int(self._clock())
            )
        except InvalidToken:
            raise Refused(
                "This browser did not begin this login, or began it too long ago.", _AGAIN
            ) from None
        state, nonce, verifier = json.loads(login_state)
        answer = _single_parameters(query)
        # In constant time, as the value comes from outside.
        if not secrets.compare_digest(answer.get("state", "").encode(), state.encode()):
            raise Refused("This answer belongs to another login.", _AGAIN)
        metadata = await self._discover()
        # Another provider's answer (RFC 9207): its code must not be sent to ours.
        default = "" if metadata.names_issuer else metadata.issuer
        if answer.get("iss", default) != metadata.issuer:
            raise Refused("Another provider than ours answered.", _AGAIN)
        if "error" in answer or not answer.get("code"):
            raise Refused(
                f"{self.provider} refused the login: {ascii(answer.get('error', 'no code')[:80])}.",
                _AGAIN,
            )
        return await self._redeem_code(metadata, answer["code"], nonce, verifier)

    async def recheck(self, signed: SignedIn) -> SignedIn | None:
        """Return the person with the groups that they have now.

        None when the provider ended their session, or when no grant fits any more.
        """
        if not signed.token:
            return signed
        try:
            own = await self._read_userinfo(await self._discover(), signed.token, signed.subject)
        except Refused:
            return None
        return self._make_person(signed.claims, own, signed.token, signed.seconds)

    async def _redeem_code(
        self, metadata: ProviderMetadata, code: str, nonce: str, verifier: str
    ) -> SignedIn:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect,
            "client_id": self._settings.client,
            "code_verifier": verifier,
        }
        auth = (self._settings.client, self._secret) if self._secret else None
        try:
            async with new_client() as client:
                status, answer = await ask_json(
                    client, "POST", metadata.token, data=form, auth=auth
                )
            identity = str(answer.get("id_token", ""))
            claims = (
                await self._keys.identity_claims(identity, self._settings.client, nonce)
                if status == 200
                else None
            )
        except (httpx2.HTTPError, ValueError, EvolvableError) as error:
            raise self._report_unreachable(error) from None
        if status != 200 or claims is None:
            error_text = ascii(str(answer.get("error", "its answer holds no valid ID token"))[:80])
            raise Refused(f"{self.provider} did not confirm the login: {error_text}.", _AGAIN)
        lasts = answer.get("expires_in")
        # The session ends with the access token, because `recheck` needs it.
        seconds = (
            min(SIGNED_IN_SECONDS, float(lasts))
            if isinstance(lasts, int | float)
            else SIGNED_IN_SECONDS
        )
        token = answer.get("access_token")
        token = token if isinstance(token, str) and metadata.userinfo else ""
        own: Mapping[str, Any] = {}
        if token:
            own = await self._read_userinfo(metadata, token, claims["sub"])
            # Claims that userinfo has are dropped from those of the ID token, which `recheck` uses
            # again: one that userinfo leaves out later is then gone.
            claims = {
                name: value for name, value in claims.items() if name == "sub" or name not in own
            }
        signed = self._make_person(claims, own, token, seconds)
        if signed is None:
            log.warning(
                "%s signed in, and no grant of [sign_in] lets them read this library",
                ascii(claims["sub"]),
            )
            raise Refused(
                f"{self.provider} knows you as {ascii(claims['sub'][:MAX_SUBJECT])}, and no group "
                "of yours may open this library.",
                "Ask the person who serves this page for a grant.",
            )
        return signed

    async def _read_userinfo(
        self, metadata: ProviderMetadata, token: str, subject: str
    ) -> Mapping[str, Any]:
        headers = {"authorization": f"Bearer {token}"}
        try:
            async with new_client() as client:
                status, claims = await ask_json(client, "GET", metadata.userinfo, headers=headers)
        except (httpx2.HTTPError, ValueError) as error:
            raise self._report_unreachable(error) from None
        # The answer must be about the person who signed in (OpenID Connect Core, 5.3.2).
        if status != 200 or claims.get("sub") != subject:
            raise Refused(f"{self.provider} ended this session.", _AGAIN)
        return claims

    def _make_person(
        self, claims: Mapping[str, Any], own: Mapping[str, Any], token: str, seconds: float
    ) -> SignedIn | None:
        """Return the person, None without a permission.

        claims: those of the ID token. own: those of userinfo, which take precedence.
        """
        subject = str(claims["sub"])
        if len(subject) > MAX_SUBJECT or not subject.isascii() or not subject.isprintable():
            raise Refused(
                "The provider named you by an id that is not printable ASCII.",
                "No action is recorded so.",
            )
        permissions = self._settings.permissions({**claims, **own}, self._projects)
        identity = Identity(Principal.PERSON, f"oidc:{subject}@{self.provider}")
        if not permissions:
            return None
        return SignedIn(identity, permissions, subject, claims, token, seconds)

    async def _discover(self) -> ProviderMetadata:
        if self._metadata is None:
            try:
                async with new_client() as client:
                    metadata = await discover(client, self._settings.issuer)
                if not metadata.authorization or not metadata.token:
                    raise ValueError("it has no authorization or token endpoint")
            except (httpx2.HTTPError, ValueError, EvolvableError) as error:
                raise self._report_unreachable(error) from None
            self._metadata = metadata
        return self._metadata

    def _report_unreachable(self, error: Exception) -> Refused:
        log.warning(
            "%s cannot be asked: %s: %s", self._settings.issuer, type(error).__name__, error
        )
        return Refused(f"{self.provider} cannot be asked at the moment.", "Try again in a moment.")


_AGAIN = "Begin the sign-in again."


def _single_parameters(query: str) -> dict[str, str]:
    """Return the parameters that occur once in a query.

    A repeated one could be read in two ways.
    """
    try:
        parameters = parse_qs(query, keep_blank_values=True, max_num_fields=20, errors="replace")
    except ValueError:
        return {}
    return {name: values[0] for name, values in parameters.items() if len(values) == 1}


def page_flow(config: Config, port: int) -> LoginFlow:
    """Return the login of the page as `[sign_in]` of the configuration says.

    port: where the page listens, 0 for any. Raise InvalidArgument.
    """
    settings = config.person.sign_in
    if settings is None:
        hint = "docs/sign-in.md says how to write it."
        raise InvalidArgument("There is no [sign_in] in your configuration.", hint)
    flow = LoginFlow(settings, library_names(config.home), read_sign_in_secret())
    if flow.origin.startswith("https:") and not (port or settings.listen):
        hint = "Write `listen` of [sign_in], such as 127.0.0.1:8650, or pass --port."
        raise InvalidArgument(
            "The page needs an address that your proxy passes requests on to.", hint
        )
    return flow
