"""People who sign in at a real OpenID provider: what their groups give over HTTP, and
when it ends.
"""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from http_place import Answer, HttpServer, http_server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp_place import Place
from oidc_provider import Provider

from evolvable_server.grants import Grant
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage.proposals import Draft
from evolvable_store.store import Store
from evolvable_teams import oidc
from evolvable_teams.http import http_auth
from evolvable_teams.http.http_access import OAuthVerifier
from evolvable_teams.http.http_auth import OAuth, Verifier
from evolvable_teams.oidc import KeySet
from evolvable_teams.tokens import Tokens

pytestmark = [pytest.mark.process, pytest.mark.anyio]

RESOURCE = "http://127.0.0.1:8642/mcp"
OPAQUE = "http://127.0.0.1:8642/opaque/mcp"
CHANGE = {"ref": "pdf", "reason": "x", "files": {"a.md": "a"}}


def configure(place: Place, provider: Provider) -> None:
    """Write the operator's own configuration."""
    place.configure(f"""
[sign_in]
issuer = "{provider.issuer}"
resource = "{RESOURCE}"

[[sign_in.grants]]
value = "readers"
permissions = ["read"]

[[sign_in.grants]]
value = "writers"
permissions = ["write"]
projects = ["{place.home}"]

[[sign_in.grants]]
value = "deciders"
permissions = ["approve"]

[[sign_in.grants]]
value = "others"
permissions = ["write", "approve"]
projects = ["elsewhere"]
""")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("sign-in"))


@pytest.fixture(scope="module")
def server(served: Place, provider: Provider) -> Iterator[HttpServer]:
    configure(served, provider)
    with http_server(served) as running:
        yield running


def status(server: HttpServer, token: str, tool: str = "list_resources", **arguments: Any) -> int:
    return server.tool(tool, arguments, token).status


def frame(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def bearer(token: str) -> dict[str, str | None]:
    return {"Authorization": f"Bearer {token}"}


def text(server: HttpServer, token: str, tool: str, arguments: Any) -> str:
    return json.dumps(server.tool(tool, arguments, token).json)


def test_groups_give_what_the_operator_granted_and_an_unmapped_group_nothing(server, provider):
    provider.account("reader", "readers")
    provider.account("writer", "writers", "unknown")
    provider.account("stranger", "nobody-mapped-this", "reader", "readers ", "READERS")
    provider.account("elsewhere", "others")
    reader, writer, stranger, elsewhere = (
        provider.token(one, RESOURCE)["access_token"]
        for one in ("reader", "writer", "stranger", "elsewhere")
    )

    assert status(server, reader) == 200
    assert "oauth:reader may read; " in text(server, reader, "update_resource", CHANGE)
    assert '"version": ' in text(server, writer, "update_resource", CHANGE)
    refused = text(server, writer, "review_inbox", {"action": "approve", "ids": [1]})
    assert "may read and report and write" in refused
    assert [status(server, one) for one in (stranger, elsewhere)] == [403, 403]


def test_scopes_of_a_token_narrow_the_grants_and_never_widen_them(server, provider):
    provider.account("writer", "writers")
    narrow = provider.token("writer", RESOURCE, "openid groups evolvable:read")["access_token"]
    wide = provider.token(
        "writer", RESOURCE, "openid evolvable:read evolvable:approve evolvable:write"
    )["access_token"]

    assert "may read; " in text(server, narrow, "update_resource", CHANGE)
    assert "needs approve" in text(server, wide, "review_inbox", {"action": "approve", "ids": [1]})


def test_a_decision_over_http_is_in_the_audit_log_with_its_token_and_address(
    server, served, provider
):
    provider.account("judge", "deciders")
    token = provider.token("judge", RESOURCE)["access_token"]
    draft = Draft(
        Ref.parse("skill:user/new"),
        0,
        {"SKILL.md": File(b"---\nname: new\n---\n", 0o644)},
        "proposed",
    )
    with Store.open(served.home) as store:
        number = store.backend.proposals.add(store.now(), Actor.AGENT, "s-1", draft)
        asked = {"action": "reject", "proposal_id": number, "reason": "no"}
        assert '"state": "rejected"' in text(server, token, "review_inbox", asked)
        (row,) = store.backend.audit.newest(1)

    assert (row.decision, row.subject) == ("reject", f"skill:new (proposal {number})")
    assert (row.principal, row.via, row.address) == ("script", "token:oauth:judge", "127.0.0.1")


def test_groups_change_with_the_next_token(server, provider):
    provider.account("mover", "readers")
    before = provider.token("mover", RESOURCE)["access_token"]
    provider.account("mover")
    after = provider.token("mover", RESOURCE)["access_token"]

    assert [status(server, one) for one in (before, after)] == [200, 403]


def test_a_session_has_what_the_token_of_each_request_gives_and_is_of_one_person(server, provider):
    """Groups that shrink while a session is open; a token of another person who knows the session's
    id.
    """
    provider.account("mover", "writers")
    provider.account("writer", "writers")
    answers = [provider.token("mover", RESOURCE, "openid groups offline_access")]
    for groups in (("readers",), ()):
        provider.account("mover", *groups)
        answers.append(provider.renewed(answers[-1], RESOURCE))
    tokens = [one["access_token"] for one in answers]
    theirs = provider.token("writer", RESOURCE)["access_token"]
    client = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    begun = server.post(frame("initialize", client), bearer(tokens[0]))
    session = {
        "Mcp-Session-Id": begun.headers["mcp-session-id"],
        "MCP-Protocol-Version": "2025-11-25",
    }

    def change(token: str, name: str) -> Answer:
        files = {"SKILL.md": f"---\nname: {name}\ndescription: Made.\n---\n"}
        arguments = {"ref": name, "reason": "x", "create": True, "files": files}
        called = frame("tools/call", {"name": "update_resource", "arguments": arguments})
        return server.post(called, bearer(token) | session)

    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert server.post(ready, bearer(tokens[0]) | session).status == 202
    assert '"version": ' in json.dumps(change(tokens[0], "first").json)
    refused = change(tokens[1], "second").json["result"]["content"][0]["text"]
    assert "may read; " in refused and "'update_resource' needs write" in refused
    assert change(tokens[2], "third").status == 403
    assert change(theirs, "fourth").status == 404
    listed = text(server, theirs, "list_resources", {})
    assert "skill:first" in listed and not any(
        f"skill:{name}" in listed for name in ("second", "third", "fourth")
    )


def test_a_token_for_another_server_or_another_use_is_refused(server, provider):
    provider.account("reader", "readers")
    answer = provider.token("reader", "https://other.example.org/mcp", "openid groups")
    mine = provider.token("reader", RESOURCE, "openid groups")

    assert [status(server, one) for one in (answer["access_token"], mine["id_token"])] == [401, 401]
    assert status(server, mine["access_token"]) == 200


async def test_keys_are_rotated_within_ten_minutes_and_the_old_ones_count_no_more(provider):
    provider.account("reader", "readers")
    now = 0.0
    keys = KeySet(provider.issuer, clock=lambda: now)
    old = provider.token("reader", RESOURCE)["access_token"]
    assert (await keys.access_claims(old, RESOURCE) or {})["groups"] == ["readers"]

    provider.rotate()
    new = provider.token("reader", RESOURCE)["access_token"]
    assert await keys.access_claims(new, RESOURCE) is None  # asked a moment ago
    assert await keys.access_claims(old, RESOURCE) is not None
    now = oidc.AGAIN_SECONDS + 1
    assert await keys.access_claims(new, RESOURCE) is not None
    assert await keys.access_claims(old, RESOURCE) is None


async def test_a_token_made_of_the_providers_public_key_is_refused(provider):
    provider.account("reader", "readers")
    real = provider.token("reader", RESOURCE)["access_token"]
    claims = jwt.decode(real, options={"verify_signature": False})
    header = jwt.get_unverified_header(real)
    public = httpx2.get(f"{provider.issuer}/jwks", trust_env=False).json()["keys"][0]
    keys = KeySet(provider.issuer)
    forged = [
        jwt.encode(claims, public["x"].encode(), "HS256", {**header, "alg": "HS256"}),
        jwt.encode(claims, None, "none", {**header, "alg": "none"}),
        jwt.encode(claims, ec.generate_private_key(ec.SECP256R1()), "ES256", header),
        jwt.encode(
            claims, ec.generate_private_key(ec.SECP256R1()), "ES256", {**header, "jwk": public}
        ),
    ]

    assert await keys.access_claims(real, RESOURCE) == claims
    assert [await keys.access_claims(one, RESOURCE) for one in forged] == [None] * 4


async def test_an_open_stream_ends_when_its_token_is_revoked(provider, tmp_path, monkeypatch):
    provider.account("reader", "readers")
    asking = provider.register(
        "http://127.0.0.1:9/x", token_endpoint_auth_method="client_secret_basic"
    )
    name, secret = asking["client_id"], asking["client_secret"]
    grants = (Grant(("groups",), "readers", frozenset({"read"})),)
    oauth = OAuth(
        provider.issuer,
        OPAQUE,
        None,
        f"{provider.issuer}/token/introspection",
        name,
        secret,
        grants,
    )
    verifier = Verifier(Tokens(tmp_path), OAuthVerifier(oauth))
    answer = provider.token("reader", OPAQUE)
    found = await verifier.verify_token(answer["access_token"])
    assert found is not None and found.scopes == ["evolvable:read"]
    stream = {"user": AuthenticatedUser(found)}
    monkeypatch.setattr(http_auth, "RECHECK_SECONDS", 0)

    assert await verifier.still_valid(stream)
    revoked = {"token": answer["access_token"], "client_id": answer["client_id"]}
    assert (
        httpx2.post(
            f"{provider.issuer}/token/revocation", data=revoked, trust_env=False
        ).status_code
        == 200
    )
    assert not await verifier.still_valid(stream)
