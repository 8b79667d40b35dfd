"""Nobody but the browser that opened the link gets into the local page, or makes it do anything."""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from command_line import CommandLine
from page_place import PagePlace, open_page

from evolvable_page import access, guard
from evolvable_page.access import PageAccess
from evolvable_page.app import MODULES, PageServer
from evolvable_server.grants import Permission
from evolvable_server.person_config import read_person_config
from evolvable_store.errors import InvalidArgument
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage.proposals import Draft
from evolvable_teams.tokens import Tokens
from evolvable_tools.approvals_lock import ApprovalsLock
from evolvable_tools.library import Library
from evolvable_tools.verbs.registry import VERBS

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "server/evolvable_page/static"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagePlace]:
    with open_page(tmp_path_factory.mktemp("page") / "library") as place:
        place.create("pdf")
        yield place


def test_a_link_opens_the_page_once_and_sets_a_cookie_for_its_very_name(page: PagePlace) -> None:
    parts = urlsplit(page.server.access.new_link())
    assert parts.hostname is not None
    assert parts.hostname.endswith(".localhost")
    assert len(parts.hostname) > 20
    opened = page.request("GET", f"{parts.path}?{parts.query}", cookie="")
    cookie = opened.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Domain" not in cookie
    again = page.request("GET", f"{parts.path}?{parts.query}", cookie="")
    assert again.status == 401 and "set-cookie" not in again.headers


def test_a_link_is_too_old_after_ten_minutes_and_a_quiet_session_ends() -> None:
    now = 0.0
    there = PageAccess(1, clock=lambda: now)
    token = there.new_link().partition("token=")[2]
    late = there.new_link().partition("token=")[2]
    secret = there.exchange(token)
    headers = access.Headers({"cookie": f"{access.COOKIE}={secret}"})
    assert there.session(headers) is not None
    now = access.TOKEN_SECONDS + 1
    assert there.exchange(late) is None
    now += access.SESSION_SECONDS
    assert there.session(headers) is None


def test_without_the_cookie_every_address_is_refused_and_nothing_of_the_library_is_said(
    page: PagePlace,
) -> None:
    paths = [one.path for module in MODULES for one in module.VIEWS] + [
        "/live",
        "/static/page.js",
        "/nothing",
    ]
    for path in paths:
        for cookie in ("", "evolvable=", "evolvable=guessed", f"other={page.cookie}"):
            refused = page.request("GET", path.replace("{number:int}", "1"), cookie=cookie)
            assert refused.status == 401 and "pdf" not in refused.text


def test_an_agents_token_opens_nothing(page: PagePlace) -> None:
    _, secret = Tokens(page.library.store.home).add("agent", frozenset(Permission))
    refused = page.request(
        "GET", "/inbox", cookie=f"evolvable={secret}", Authorization=f"Bearer {secret}"
    )
    assert refused.status == 401


def test_a_form_is_refused_without_cookie_origin_or_token(page: PagePlace) -> None:
    number = page.propose("pdf", "1")
    body = urlencode({"number": number, "csrf": page.get("/operations").field("csrf")})
    own = f"http://{page.host}"
    hostile = [
        {"cookie": ""},
        {"Origin": ""},
        {"Origin": "null"},
        {"Origin": f"http://localhost:{page.port}"},
        {"Origin": f"http://127.0.0.1:{page.port}"},
        {"Origin": f"http://evil.{page.host}"},
        {"Origin": own.replace("http:", "https:")},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"body": f"number={number}"},
        {"body": f"number={number}&csrf=guessed"},
    ]
    for one in hostile:
        given = dict(one)
        cookie, sent = given.pop("cookie", None), given.pop("body", body)
        refused = page.request("POST", "/do/inbox-approve", sent, cookie=cookie, **given)
        assert refused.status in (401, 403), one
    assert page.request("GET", f"/do/inbox-approve?{body}").status == 303  # a link decides nothing
    assert page.library.store.backend.proposals.get(number).state == "open"
    assert page.request("POST", "/do/inbox-approve", body).status == 303
    assert page.library.store.backend.proposals.get(number).state == "approved"


def test_another_host_is_refused_even_with_the_cookie(page: PagePlace) -> None:
    """DNS rebinding: a name of a stranger that leads to this machine."""
    for host in (
        f"127.0.0.1:{page.port}",
        f"localhost:{page.port}",
        f"evil.example:{page.port}",
        page.host[:-1],
        "",
    ):
        answer = page.request("GET", "/inbox", Host=host)
        assert answer.status in (400, 421) and "pdf" not in answer.text
    token = urlsplit(page.server.access.new_link()).query
    assert (
        page.request("GET", f"/open?{token}", cookie="", Host=f"localhost:{page.port}").status
        == 421
    )


def test_every_answer_carries_the_policy_and_no_page_has_a_script_or_a_style_of_its_own(
    page: PagePlace,
) -> None:
    for path in ("/inbox", "/operations", "/static/page.js", "/nothing"):
        answer = page.get(path)
        assert answer.headers["content-security-policy"] == guard.POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "'unsafe" not in guard.POLICY and "default-src 'none'" in guard.POLICY
    text = page.get("/inbox").text
    assert "<style" not in text
    assert " style=" not in text
    assert text.count("<script") == text.count("<script src=") == 2


def test_a_form_that_is_too_long_is_refused_before_it_is_read(page: PagePlace) -> None:
    assert page.post("/do/inbox-approve", number="1", reason="x" * guard.MAX_BODY).status == 413


def test_a_browser_that_signed_out_is_out(page: PagePlace) -> None:
    kept, parts = page.cookie, urlsplit(page.server.access.new_link())
    opened = page.request("GET", f"{parts.path}?{parts.query}", cookie="")
    other = opened.headers["set-cookie"].partition(";")[0]
    csrf = page.request("GET", "/operations", cookie=other).field("csrf")
    assert page.request("POST", "/end", f"csrf={csrf}", cookie=other).status == 200
    assert page.request("GET", "/operations", cookie=other).status == 401
    assert page.request("GET", "/operations", cookie=kept).status == 200


def test_both_loopback_addresses_are_ours_so_that_no_other_program_is_sent_a_link(
    page: PagePlace,
) -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with pytest.raises(OSError):
            socket.create_server((host, page.port), family=family).close()
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as other,
        pytest.raises(InvalidArgument),
    ):
        PageServer(page.server.services, other.getsockname()[1])


def test_every_action_is_one_verb_of_the_registry() -> None:
    names = [action.verb for module in MODULES for action in module.ACTIONS]
    assert set(names) <= set(VERBS) and len(names) == len(set(names))


def test_the_command_is_a_persons_and_an_agents_shell_never_sees_a_link(tmp_path: Path) -> None:
    evolvable = CommandLine(tmp_path)
    evolvable.person = False
    refused = evolvable("ui", code=1)
    assert "Only a person opens" in refused.err and "token=" not in refused.out + refused.err
    evolvable.person = True
    marked = evolvable("ui", code=1, CLAUDECODE="1")
    assert "token=" not in marked.out + marked.err
    assert "token" not in json.dumps(sorted(str(path) for path in evolvable.root.rglob("*")))


def test_the_library_of_the_page_is_the_published_one() -> None:
    """htmx 4.0.1 from its package; docs/ui.md names the hash."""
    digest = hashlib.sha256((STATIC / "htmx.min.js").read_bytes()).hexdigest()
    assert (
        digest in (ROOT / "docs/ui.md").read_text("utf-8") and (STATIC / "htmx.LICENSE").is_file()
    )


@pytest.mark.process
def test_a_locked_page_asks_for_the_passphrase_and_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evolvable = CommandLine(tmp_path)
    monkeypatch.setenv("EVOLVABLE_TEST_ACCOUNT", str(evolvable.user))
    evolvable("approvals", "lock", stdin="correct horse\ncorrect horse\n")
    key = read_person_config().lock_key
    with open_page(evolvable.home, lock=ApprovalsLock(key)) as page:
        page.create("pdf")
        number = page.propose("pdf", "1")
        assert 'name="passphrase"' in page.get(f"/inbox/{number}").text
        for words in ("", "wrong horse"):
            assert page.post("/do/inbox-approve", number=number, passphrase=words).status in (
                400,
                403,
            )
        assert page.library.store.backend.proposals.get(number).state == "open"
        assert (
            page.post("/do/inbox-approve", number=number, passphrase="correct horse").status == 303
        )
        operation = page.library.store.backend.proposals.get(number).operation
        assert operation is not None
        assert page.library.lock is not None
        assert page.library.lock.vouched_operations(page.library.store.backend, [operation]) == {
            operation
        }


@pytest.mark.process
def test_the_command_prints_a_link_on_the_terminal_and_ends_at_an_interrupt(tmp_path: Path) -> None:
    evolvable = CommandLine(tmp_path)
    with Library.open(evolvable.home, create=True) as library:
        draft = Draft(
            Ref.parse("skill:user/pdf"), 0, {"SKILL.md": File(b"---\nname: pdf\n---\n")}, "new"
        )
        number = library.store.backend.proposals.add(library.store.now(), Actor.AGENT, None, draft)
    assert "There is no proposal 9" in evolvable("ui", "--proposal", "9", code=1).err
    keyboard, terminal = pytest.importorskip("pty").openpty()
    with evolvable.start(
        "ui", "--proposal", number, stdin=terminal, stdout=terminal, stderr=subprocess.PIPE
    ) as process:
        os.close(terminal)
        links = []
        for _ in range(2):
            printed = b""
            while not (found := re.search(rb"http://(\S+)/open\?(token=\S+)\s", printed)):
                printed += os.read(keyboard, 65536)
            links.append(found[2])
            os.write(keyboard, b"\n")  # for another link
        host = found[1].decode()
        with socket.create_connection(
            ("127.0.0.1", int(host.rpartition(":")[2])), timeout=20
        ) as wire:
            wire.sendall(
                b"GET /open?" + links[1] + b" HTTP/1.1\r\nHost: " + host.encode() + b"\r\n\r\n"
            )
            opened = wire.recv(65536)
            assert b" 303 " in opened and f"location: /inbox/{number}\r\n".encode() in opened
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    os.close(keyboard)
    assert links[0] != links[1] and process.returncode == 0 and "Traceback" not in told
