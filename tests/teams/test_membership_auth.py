"""Several windows share one sign-in: one renews the token, no lock is held meanwhile, and the
others go on.
"""

import json
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from evolvable_store.workingcopy.folder_lock import exclusive
from evolvable_teams import joining
from evolvable_teams.joining import Membership, load_membership, save_membership
from evolvable_teams.membership_auth import LOCK_SECONDS, MembershipAuth
from evolvable_teams.oidc import new_client

pytestmark = [pytest.mark.process, pytest.mark.anyio]


class SlowProvider:
    """A provider and a library on one address.

    It answers a refresh when `free` is set; asked: how often one came.
    """

    def __init__(self) -> None:
        self.free, self.begun, self.asked, self.tokens = (
            threading.Event(),
            threading.Event(),
            0,
            list[str](),
        )
        self._key = rsa.generate_private_key(65537, 2048)
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                key = jwt.algorithms.RSAAlgorithm.to_jwk(owner._key.public_key(), as_dict=True)
                places = {
                    "issuer": owner.issuer,
                    "jwks_uri": f"{owner.issuer}/keys",
                    "token_endpoint": f"{owner.issuer}/token",
                }
                self.answer(
                    {"keys": [{**key, "kid": "one", "use": "sig"}]}
                    if self.path == "/keys"
                    else places
                )

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/mcp":
                    owner.tokens.append(self.headers["Authorization"].removeprefix("Bearer "))
                    self.answer({})
                    return
                owner.asked += 1
                owner.begun.set()
                owner.free.wait(30)
                self.answer(
                    {"access_token": owner.token(), "token_type": "Bearer", "refresh_token": "next"}
                )

            def answer(self, document: dict[str, Any]) -> None:
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
        self.resource = f"{self.issuer}/mcp"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def token(self) -> str:
        claims = {
            "iss": self.issuer,
            "aud": self.resource,
            "sub": "ada",
            "exp": int(time.time()) + 600,
        }
        return jwt.encode(
            claims, self._key, algorithm="RS256", headers={"kid": "one", "typ": "at+jwt"}
        )

    def close(self) -> None:
        self.free.set()
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def provider() -> Iterator[SlowProvider]:
    running = SlowProvider()
    yield running
    running.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(joining, "memberships", lambda: tmp_path)
    return tmp_path


def sign_in(provider: SlowProvider, seconds: float) -> None:
    """Keep a token that ends in so many seconds, and is renewed before that."""
    save_membership(
        "x",
        Membership(
            provider.resource, provider.issuer, "client", "old", time.time() + seconds, "first"
        ),
    )


async def call(auth: MembershipAuth) -> None:
    async with new_client(30.0, auth) as http:
        assert (await http.post(auth.resource, json={})).status_code == 200


async def wait_for(event: threading.Event) -> None:
    with anyio.fail_after(30):
        while not event.is_set():
            await anyio.sleep(0.01)


async def test_while_one_window_renews_no_lock_is_held_and_the_others_use_the_token_that_they_have(
    provider, folder
):
    sign_in(provider, 50)
    first, second = MembershipAuth("x"), MembershipAuth("x")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, first)
        await wait_for(provider.begun)
        with exclusive(folder / ".x.lock", 1.0, "it"):
            pass
        with anyio.fail_after(LOCK_SECONDS / 2):
            await call(second)
        assert (provider.tokens, provider.asked) == (["old"], 1)
        provider.free.set()
    await call(second)
    assert provider.tokens[1] == provider.tokens[2] == load_membership("x").token != "old"
    assert provider.asked == 1 and load_membership("x").refresh == "next"
    assert not list(folder.glob(".x.renewing"))


async def test_who_has_no_token_left_waits_for_the_one_renewal(provider, folder):
    sign_in(provider, -5)
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(call, MembershipAuth("x"))
        await wait_for(provider.begun)
        assert provider.tokens == []
        provider.free.set()
    assert provider.asked == 1 and provider.tokens == [load_membership("x").token] * 4


async def test_a_renewal_whose_process_has_ended_is_made_by_the_next_one(provider, folder):
    child = os.spawnvp(os.P_NOWAIT, "true", ["true"])
    os.waitpid(child, 0)
    for lease in (
        {"holder": f"{child} x", "until": time.time() + 30},
        {"holder": "1 x", "until": 1e300},
        [],
        "\0",
    ):
        sign_in(provider, -5)
        (folder / ".x.renewing").write_text(json.dumps(lease))
        provider.free.set()
        with anyio.fail_after(20):
            await call(MembershipAuth("x"))
    assert provider.asked == 4 and provider.tokens[-1] == load_membership("x").token


async def test_a_library_that_was_left_while_its_token_was_renewed_is_not_joined_again(
    provider, folder
):
    sign_in(provider, 50)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, MembershipAuth("x"))
        await wait_for(provider.begun)
        assert joining.forget_membership("x")
        provider.free.set()
    assert not (folder / "x.json").exists() and not list(folder.glob(".x.renewing"))


async def test_a_window_that_is_closed_while_it_renews_leaves_the_renewal_to_the_others(
    provider, folder
):
    sign_in(provider, -5)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, MembershipAuth("x"))
            await wait_for(provider.begun)
            scope.cancel()
    assert not list(folder.glob(".x.renewing"))
    provider.free.set()
    await call(MembershipAuth("x"))
    assert provider.asked == 2
