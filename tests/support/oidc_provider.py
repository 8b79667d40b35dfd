"""A real OpenID provider on loopback for the tests: oidc-provider in Node, one for each test
process.

`EVOLVABLE_TEST_OIDC` names the folder into which `npm ci` installed
tests/support/oidc/package.json. Where there is none, its tests are skipped with a sentence.
"""

import base64
import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx2
import pytest

FOLDER = Path(__file__).parent / "oidc"
INSTALLED = os.environ.get("EVOLVABLE_TEST_OIDC", "")


def installed_folder() -> Path:
    """Return the folder with the package; skip the test without it."""
    folder = Path(INSTALLED or FOLDER)
    if (
        shutil.which("node") is None
        or not (folder / "node_modules/oidc-provider/package.json").is_file()
    ):
        pytest.skip(
            "oidc-provider is not installed: run `npm ci` in a copy of tests/support/oidc, and "
            "name the copy in EVOLVABLE_TEST_OIDC"
        )
    return folder


class Browser(httpx2.Client):
    """Fetches pages as a browser does, by hand: cookies are kept, redirects are followed one by
    one.
    """

    def __init__(self) -> None:
        super().__init__(follow_redirects=False, timeout=20, trust_env=False)


class Provider:
    """A provider that runs. issuer: its address."""

    def __init__(self, folder: Path) -> None:
        command = ["node", "--no-warnings", str(FOLDER / "provider.mjs"), str(folder)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the provider ended at once; Node 20 or newer runs it"
        self.issuer: str = json.loads(line)["issuer"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _tell(self, command: str, **more: Any) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"command": command, **more}) + "\n")
        self._process.stdin.flush()
        assert json.loads(self._process.stdout.readline()) == {"done": command}

    def account(self, login: str, *groups: str) -> None:
        """Have an account with these groups, from the next token on."""
        self._tell("account", login=login, claims={"groups": list(groups)})

    def remove(self, login: str) -> None:
        """Take an account out; what was issued to it ends."""
        self._tell("account", login=login, claims=None)

    def rotate(self) -> None:
        """Publish new keys in place of the old ones."""
        self._tell("rotate")

    def register(self, redirect: str, **more: Any) -> dict[str, Any]:
        """Register a client by the provider's own registration (RFC 7591); return what
        it answers.
        """
        given = {
            "client_name": "test",
            "redirect_uris": [redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            **more,
        }
        answer = httpx2.post(f"{self.issuer}/reg", json=given, trust_env=False)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def token(
        self, login: str, resource: str, scope: str = "openid groups", **more: str
    ) -> dict[str, Any]:
        """Sign in by the form and the code flow, as a client of our own would; return the token
        answer.
        """
        redirect = "http://127.0.0.1:9/callback"
        client = self.register(redirect, application_type="native")["client_id"]
        verifier = secrets.token_urlsafe(48)
        challenge = (
            base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
            .rstrip(b"=")
            .decode()
        )
        asked = {
            "client_id": client,
            "redirect_uri": redirect,
            "response_type": "code",
            "scope": scope,
            "state": "x",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": resource,
        }
        if "offline_access" in scope:
            asked["prompt"] = "consent"
        with Browser() as browser:
            place = fill_login(
                browser, f"{self.issuer}/auth?{urlencode(asked)}", login, until=redirect
            )
            code = parse_qs(urlsplit(place).query)["code"][0]
            given = {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": redirect,
                "client_id": client,
                "code_verifier": verifier,
                "resource": resource,
                **more,
            }
            answer = browser.post(f"{self.issuer}/token", data=given)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = {**answer.json(), "client_id": client}
        return found

    def renewed(self, answer: Mapping[str, Any], resource: str) -> dict[str, Any]:
        """Return the token answer for the refresh token of another one, of the same client."""
        given = {
            "grant_type": "refresh_token",
            "refresh_token": answer["refresh_token"],
            "resource": resource,
        }
        again = httpx2.post(
            f"{self.issuer}/token",
            data={**given, "client_id": answer["client_id"]},
            trust_env=False,
        )
        assert again.status_code == 200, again.text
        found: dict[str, Any] = {**again.json(), "client_id": answer["client_id"]}
        return found


def fill_login(browser: Browser, url: str, login: str, until: str) -> str:
    """Follow an address of the provider through its forms; return the address that begins with
    `until`.

    That address is not fetched. An address of another host than the provider's ends the walk too.
    """
    home = urlsplit(url).netloc
    for _ in range(20):
        if url.startswith(until) or urlsplit(url).netloc != home:
            return url
        answer = browser.get(url)
        while not answer.has_redirect_location:
            action, fields = form_of(answer.text)
            assert action, answer.text[:2000]
            if "login" in fields:
                fields |= {"login": login, "password": "any"}
            answer = browser.post(urljoin(url, action), data=fields)
        url = urljoin(url, answer.headers["location"])
    raise AssertionError("the provider redirects without end")


def form_of(text: str) -> tuple[str, dict[str, str]]:
    """Return the action of the first form of a page, and its fields with their values."""
    form = re.search(r"<form[^>]*action=\"([^\"]*)\".*?</form>", text, re.S)
    if form is None:
        return "", {}
    fields: dict[str, str] = {}
    for tag in re.findall(r"<input[^>]*>", form[0]):
        named: Mapping[str, str] = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        if "name" in named:
            fields[named["name"]] = unescape(named.get("value", ""))
    return unescape(form[1]), fields


@contextmanager
def running_provider() -> Iterator[Provider]:
    """Yield a provider; skip the test where the package is not installed."""
    with Provider(installed_folder()) as provider:
        yield provider
