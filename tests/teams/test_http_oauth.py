"""The resource server of OAuth: a real authorization server beside it over HTTP, its keys, its
answers, its silence.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from http_place import http_server
from mcp_place import Place

from evolvable_teams.http.http_access import OAuthVerifier
from evolvable_teams.http.http_auth import OAuth

pytestmark = pytest.mark.process

RESOURCE = "http://127.0.0.1:8642/mcp"


class Authorization:
    """An authorization server: publishes metadata and keys, and answers who asks about a token."""

    def __init__(self) -> None:
        self.keys = {"one": rsa.generate_private_key(65537, 2048)}
        self.published = {"one"}
        self.active: dict[str, dict] = {}
        self.asked: list[str] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.asked.append(self.path)
                if self.path == "/.well-known/oauth-authorization-server":
                    self.answer({"issuer": owner.issuer, "jwks_uri": owner.issuer + "/keys"})
                elif self.path == "/keys":
                    self.answer({"keys": [owner.public(kid) for kid in sorted(owner.published)]})
                else:
                    self.send_error(404)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                owner.asked.append(self.headers["Authorization"])
                self.answer(owner.active.get(parse_qs(body)["token"][0], {"active": False}))

            def answer(self, document: dict) -> None:
                data = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def public(self, kid: str) -> dict:
        key = self.keys[kid].public_key()
        return {**jwt.algorithms.RSAAlgorithm.to_jwk(key, as_dict=True), "kid": kid, "use": "sig"}

    def claims(self, **more: object) -> dict:
        claims = {
            "iss": self.issuer,
            "aud": RESOURCE,
            "sub": "alice@example.org",
            "client_id": "claude",
            "scope": "openid evolvable:read",
            "exp": int(time.time()) + 300,
            **more,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, kid: str = "one", typ: str = "at+jwt", **more: object) -> str:
        return jwt.encode(
            self.claims(**more), self.keys[kid], algorithm="RS256", headers={"kid": kid, "typ": typ}
        )


@pytest.fixture(scope="module")
def authorization():
    server = Authorization()
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture(scope="module")
def server(tmp_path_factory, authorization):
    place = Place(tmp_path_factory.mktemp("oauth"))
    options = ("--oauth-issuer", authorization.issuer, "--oauth-resource", RESOURCE)
    with http_server(place, *options) as running:
        yield running


def status(server, token: str) -> int:
    return server.tool("list_resources", {}, token).status


def test_a_token_of_the_authorization_server_lets_in_with_its_scopes(server, authorization):
    reader, writer = (
        authorization.token(),
        authorization.token(scope="evolvable:read evolvable:write"),
    )
    change = {"ref": "pdf", "reason": "x", "files": {"a.md": "a"}}

    assert status(server, reader) == 200
    assert "oauth:alice@example.org may read" in json.dumps(
        server.tool("update_resource", change, reader).json
    )
    assert (
        server.tool("update_resource", change, writer).json["result"]["structuredContent"][
            "version"
        ]
        >= 1
    )


def test_who_may_not_even_read_is_told_which_scope_is_missing(server, authorization):
    answer = server.tool("list_resources", {}, authorization.token(scope="openid"))

    assert answer.status == 403
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    assert "evolvable:read" in answer.headers["www-authenticate"]


def test_who_comes_without_a_token_learns_where_to_get_one(server, authorization):
    answer = server.call("tools/list", {})
    metadata = server.post(b"", method="GET", path="/.well-known/oauth-protected-resource/mcp")

    assert answer.status == 401
    place = 'resource_metadata="http://127.0.0.1:8642/.well-known/oauth-protected-resource/mcp"'
    assert place in answer.headers["www-authenticate"]
    assert metadata.json["resource"] == RESOURCE
    assert metadata.json["authorization_servers"] == [authorization.issuer]
    assert metadata.json["scopes_supported"] == [
        f"evolvable:{permission}" for permission in ("read", "report", "write", "approve")
    ]


WRONG = {
    "another audience": {"aud": "https://other.example.org/mcp"},
    "no audience": {"aud": None},
    "another issuer": {"iss": "https://evil.example.org"},
    "over": {"exp": int(time.time()) - 3600},
    "without an end": {"exp": None},
    "not yet": {"nbf": int(time.time()) + 3600},
    "an ID token": {"typ": "id+jwt"},
    "a logout token": {"typ": "logout+jwt"},
    "an ID token with the type JWT and a nonce": {"typ": "JWT", "nonce": "n-0S6_WzA2Mj"},
    "an ID token with the type JWT and the hash of an access token": {
        "typ": "JWT",
        "at_hash": "MTIzNDU2Nzg5MDEyMzQ1Ng",
    },
    "an ID token of a provider that has one type for both": {"nonce": "n-0S6_WzA2Mj"},
}


@pytest.mark.parametrize("kind", ["ID", "Refresh"])
def test_a_token_whose_claim_says_another_kind_than_an_access_token_is_refused(
    server, authorization, kind
):
    key, headers = authorization.keys["one"], {"kid": "one", "typ": "JWT"}
    made = [
        jwt.encode({**authorization.claims(), "typ": one}, key, "RS256", headers)
        for one in (kind, "Bearer")
    ]

    assert [status(server, token) for token in made] == [401, 200]


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_a_token_that_was_not_made_for_this_is_refused(server, authorization, change):
    assert status(server, authorization.token(**change)) == 401


def test_a_signature_that_is_not_the_servers_is_refused(server, authorization):
    claims, headers = authorization.claims(), {"kid": "one", "typ": "at+jwt"}
    public = authorization.public("one")["n"]
    forged = [
        jwt.encode(claims, rsa.generate_private_key(65537, 2048), "RS256", headers),
        jwt.encode(claims, ec.generate_private_key(ec.SECP256R1()), "ES256", headers),
        jwt.encode(claims, public, "HS256", headers),
        jwt.encode(claims, None, "none", headers),
        authorization.token()[:-6] + "AAAAAA",
        authorization.token().replace(".", "..", 1),
        "x" * 20_000,
        "a.b.c",
        "",
    ]
    assert [status(server, token) for token in forged] == [401] * len(forged)


def test_unknown_keys_do_not_make_us_ask_again_and_again(server, authorization):
    authorization.keys["other"] = rsa.generate_private_key(65537, 2048)
    status(server, authorization.token())
    before = len(authorization.asked)
    for _ in range(5):
        assert status(server, authorization.token("other")) == 401

    assert len(authorization.asked) - before <= 2


def test_an_opaque_token_is_asked_about_every_time(tmp_path, authorization):
    place = Place(tmp_path)
    ours = {"EVOLVABLE_OAUTH_CLIENT": "evolvable", "EVOLVABLE_OAUTH_SECRET": "s3cret"}
    options = ("--oauth-issuer", authorization.issuer, "--oauth-resource", RESOURCE)
    options += ("--oauth-introspection", authorization.issuer + "/introspect")
    authorization.active = {"opaque": {**authorization.claims(), "active": True}}
    authorization.active["elsewhere"] = {
        **authorization.claims(aud="https://other"),
        "active": True,
    }
    with http_server(place, *options, environment=ours) as server:
        assert status(server, "opaque") == 200
        assert authorization.asked[-1] == "Basic ZXZvbHZhYmxlOnMzY3JldA=="
        assert [status(server, token) for token in ("elsewhere", "never seen")] == [401, 401]
        authorization.active.clear()
        assert status(server, "opaque") == 401
        authorization.active["opaque"] = {"active": "yes"}
        assert status(server, "opaque") == 401
        authorization.active["opaque"] = {
            **authorization.claims(),
            "active": True,
            "nonce": "n-0S6_WzA2Mj",
        }
        assert status(server, "opaque") == 401
        of_sign_in, access = (
            authorization.token(typ="JWT", nonce="n-0S6_WzA2Mj"),
            authorization.token(typ="JWT"),
        )
        authorization.active |= {
            one: {**authorization.claims(), "active": True} for one in (of_sign_in, access)
        }
        assert [status(server, token) for token in (of_sign_in, access)] == [401, 200]


@pytest.mark.anyio
async def test_where_the_authorization_server_is_away_nobody_is_let_in(caplog):
    token = jwt.encode({"aud": RESOURCE}, rsa.generate_private_key(65537, 2048), "RS256")

    assert await OAuthVerifier(OAuth("http://127.0.0.1:9", RESOURCE)).verify_token(token) is None
    assert "server cannot be asked" in caplog.text
