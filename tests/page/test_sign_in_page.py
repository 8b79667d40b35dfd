"""People sign in to the page at a real OpenID provider, by its own login form; strangers stay
outside.
"""

import socket
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest
from oidc_provider import Browser, Provider, fill_login
from page_place import PageAnswer, PagePlace
from sign_in_page import page_of

from evolvable_page import access
from evolvable_server.grants import Permission
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.operation import Principal
from evolvable_teams.oidc import KeySet
from evolvable_teams.sign_in import LoginFlow, check_address
from evolvable_teams.tokens import Tokens

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def opened(
    tmp_path_factory: pytest.TempPathFactory, provider: Provider
) -> Iterator[tuple[PagePlace, LoginFlow]]:
    with page_of(provider, tmp_path_factory.mktemp("page") / "library") as found:
        found[0].create("pdf")
        yield found


@pytest.fixture
def page(opened: tuple[PagePlace, LoginFlow]) -> PagePlace:
    opened[0].cookie = ""
    return opened[0]


def begin(page: PagePlace) -> tuple[str, str]:
    """Return the provider's address that the page sends a browser to, and the cookie of
    the login.
    """
    answer = page.request("GET", "/sign-in", cookie="")
    assert answer.status == 303, answer.text
    return answer.location, answer.headers["set-cookie"].partition(";")[0]


def log_in(page: PagePlace, login: str) -> tuple[str, str]:
    """Fill the provider's form; return the address that it sends the browser back to, and the
    cookie of the login.
    """
    address, kept = begin(page)
    with Browser() as browser:
        back = fill_login(browser, address, login, until=page.server.access.origin)
    parts = urlsplit(back)
    assert f"{parts.scheme}://{parts.netloc}" == page.server.access.origin
    return f"{parts.path}?{parts.query}", kept


def sign_in(page: PagePlace, login: str) -> PageAnswer:
    return page.come_back(*log_in(page, login))


def test_the_browser_is_sent_with_a_challenge_and_state_to_the_exact_redirect_address(
    page, provider
):
    address, _ = begin(page)
    asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    answer = page.request(
        "GET",
        "/sign-in?next=https://evil.example.org&redirect_uri=https://evil.example.org",
        cookie="",
    )

    assert address.startswith(f"{provider.issuer}/auth?")
    assert asked["redirect_uri"] == f"{page.server.access.origin}/callback"
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    assert min(len(asked[name]) for name in ("state", "nonce", "code_challenge")) >= 43
    assert "evil" not in answer.location
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Domain" not in cookie
    assert not any(asked[name] in cookie for name in ("state", "nonce"))


def test_a_person_signs_in_and_their_decision_names_them(page, provider):
    provider.account("ada", "deciders")
    number = page.propose("pdf", "shorter")
    answer = sign_in(page, "ada")

    assert "signed in as ada" in answer.text
    assert "SameSite=strict" in answer.headers["set-cookie"]
    assert "Domain" not in answer.headers["set-cookie"]
    shown = page.get(f"/inbox/{number}")
    assert shown.status == 200 and f"ada@{urlsplit(provider.issuer).netloc}" in shown.text
    fields = {
        name: shown.field(name)
        for name in ("expected", "seen", "base", "head")
        if shown.field(name)
    }
    done = page.post("/do/inbox-approve", number=number, reason="clear", **fields)
    assert done.status == 303, done.text
    made = page.library.store.operations(1)[0]
    assert (made.principal, made.intent.via) == (
        Principal.PERSON,
        f"oidc:ada@{urlsplit(provider.issuer).netloc}",
    )


def test_a_reader_reads_and_changes_nothing(page, provider):
    provider.account("bob", "readers")
    number = page.propose("pdf", "other words", session="session-2")
    sign_in(page, "bob")
    head = page.library.store.sequence()

    assert page.get("/library").status == 200
    for path, fields in {
        "/do/inbox-approve": {"number": number},
        "/do/inbox-reject": {"number": number, "reason": "x"},
        "/do/restore": {"ref": "skill:pdf", "version": 1, "expected": 1},
        "/do/remove": {"ref": "skill:pdf", "expected": 1},
        "/do/undo": {"number": 1},
        "/do/learned": {},
        "/do/evolve-adopt": {"run": "1"},
    }.items():
        refused = page.post(path, **fields)
        assert refused.status == 403 and "your groups give read" in refused.text, path
    assert page.library.store.sequence() == head
    assert page.library.store.backend.proposals.get(number).state == "open"


def test_pages_about_the_machine_that_serves_are_not_there_for_others(page, provider):
    provider.account("ada", "deciders")
    sign_in(page, "ada")

    assert [page.get(path).status for path in ("/sessions", "/health", "/trust")] == [404] * 3
    assert "/sessions" not in page.get("/library").text
    assert page.post("/do/trust", folder="/").status in (404, 405)


@pytest.mark.parametrize("groups", [(), ("elsewhere", "unknown", "Deciders")])
def test_who_has_no_group_of_ours_is_told_so_and_gets_no_session(page, provider, groups):
    provider.account("eve", *groups)
    answer = sign_in(page, "eve")

    assert answer.status == 403 and "no group of yours" in answer.text
    assert "evolvable=" not in answer.headers.get("set-cookie", "")


def test_an_answer_counts_once_and_in_the_browser_that_asked(page, provider):
    provider.account("ada", "deciders")
    back, kept = log_in(page, "ada")
    _, other = begin(page)

    without = page.request("GET", back, cookie="")
    elsewhere = page.request("GET", back, cookie=other)
    forged = page.request("GET", back, cookie=kept[:-3] + "AAA")
    assert [one.status for one in (without, elsewhere, forged)] == [403, 403, 403]
    assert "another login" in elsewhere.text
    assert page.come_back(back, kept).status == 200
    again = page.request("GET", back, cookie=kept)
    assert again.status == 403 and "invalid_grant" in again.text


def test_a_changed_answer_is_refused(page, provider):
    provider.account("ada", "deciders")
    back, kept = log_in(page, "ada")
    fields = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
    assert fields["iss"] == provider.issuer
    changed = [
        {**fields, "state": "x" * 43},
        {**fields, "iss": "https://evil.example.org"},
        {name: value for name, value in fields.items() if name != "iss"},
        {name: value for name, value in fields.items() if name != "code"},
        {**fields, "error": "access_denied"},
        {**fields, "error": "<script>alert(1)</script>"},
    ]

    for one in changed:
        refused = page.request("GET", f"/callback?{urlencode(one)}", cookie=kept)
        assert refused.status == 403 and "<script>" not in refused.text, one
    assert page.request("GET", f"{back}&state={quote(fields['state'])}", cookie=kept).status == 403
    assert page.come_back(back, kept).status == 200


def test_the_code_of_another_client_or_login_opens_nothing(page, provider, tmp_path):
    provider.account("ada", "deciders")
    back, _ = log_in(page, "ada")
    code = parse_qs(urlsplit(back).query)["code"][0]
    address, kept = begin(page)
    state = parse_qs(urlsplit(address).query)["state"][0]
    injected = {"code": code, "state": state, "iss": provider.issuer}

    answer = page.request("GET", f"/callback?{urlencode(injected)}", cookie=kept)
    # The verifier is another login's.
    assert answer.status == 403 and "invalid_grant" in answer.text
    assert code not in answer.text


def test_a_new_login_makes_a_new_session_and_ends_the_one_before(page, provider):
    provider.account("ada", "deciders")
    sign_in(page, "ada")
    before = page.cookie
    back, kept = log_in(page, "ada")
    answer = page.request("GET", back, cookie=f"{kept}; {before}")
    after = answer.headers["set-cookie"].partition(";")[0]

    assert after != before
    assert page.request("GET", "/library", cookie=before).status == 401
    assert page.request("GET", "/library", cookie=after).status == 200
    assert page.request("GET", "/library", cookie="evolvable=chosen-by-a-stranger").status == 401


def test_no_token_and_no_link_signs_in(page, provider):
    provider.account("ada", "deciders")
    answer = provider.token("ada", "http://127.0.0.1:8642/mcp")
    _, secret = Tokens(page.library.store.home).add("agent", frozenset(Permission))
    for token in (answer["access_token"], answer["id_token"], secret):
        refused = page.request(
            "GET", "/library", cookie=f"evolvable={token}", Authorization=f"Bearer {token}"
        )
        assert refused.status == 401 and "Sign in at" in refused.text
    link = urlsplit(page.server.access.new_link())
    assert page.request("GET", f"{link.path}?{link.query}", cookie="").status == 401


def test_a_session_ends_when_the_groups_are_gone_and_when_the_person_is(
    page, provider, monkeypatch
):
    monkeypatch.setattr(access, "RECHECK_SECONDS", 0)
    provider.account("ada", "deciders")
    sign_in(page, "ada")
    assert page.get("/library").status == 200
    provider.account("ada", "readers")
    refused = page.post("/do/undo", number=1)
    assert refused.status == 403 and "your groups give read" in refused.text
    provider.account("ada")
    assert page.get("/library").status == 401
    provider.account("ada", "deciders")
    assert page.get("/library").status == 401
    sign_in(page, "ada")
    provider.remove("ada")
    assert page.get("/library").status == 401


def test_the_environment_chooses_no_proxy_that_could_answer_as_the_provider(
    page, provider, monkeypatch
):
    provider.account("ada", "deciders")
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.setblocking(False)
        address = f"http://127.0.0.1:{trap.getsockname()[1]}"
        for name in (
            "HTTP_PROXY",
            "http_proxy",
            "HTTPS_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "all_proxy",
        ):
            monkeypatch.setenv(name, address)
        # No certificates: a client that reads it cannot be made.
        monkeypatch.setenv("SSL_CERT_FILE", __file__)
        assert sign_in(page, "ada").status == 200
        with pytest.raises(BlockingIOError):
            trap.accept()


def test_a_person_signs_out(page, provider):
    provider.account("ada", "deciders")
    sign_in(page, "ada")
    answer = page.post("/end")

    assert "signed out" in answer.text
    assert page.get("/library").status == 401


def test_a_confidential_client_signs_in_with_its_secret(provider, tmp_path):
    provider.account("ada", "deciders")
    with page_of(
        provider, tmp_path / "library", token_endpoint_auth_method="client_secret_basic"
    ) as (place, flow):
        assert sign_in(place, "ada").status == 200
        flow._secret = "wrong"
        refused = sign_in(place, "ada")
        assert refused.status == 403
        assert "invalid_client" in refused.text
        assert "wrong" not in refused.text


@pytest.mark.anyio
async def test_an_id_token_of_another_client_or_nonce_names_nobody(provider):
    provider.account("ada", "deciders")
    answer = provider.token("ada", "http://127.0.0.1:8642/mcp")
    keys = KeySet(provider.issuer)

    assert await keys.identity_claims(answer["id_token"], answer["client_id"], "") is None
    assert await keys.identity_claims(answer["id_token"], "another", "") is None
    assert await keys.identity_claims(answer["access_token"], answer["client_id"], "") is None


@pytest.mark.anyio
async def test_a_login_that_took_too_long_is_refused(provider, opened):
    now = 1_000_000.0
    settings = opened[1]._settings
    flow = LoginFlow(settings, (), clock=lambda: now)
    address, kept = await flow.begin()
    state = parse_qs(urlsplit(address).query)["state"][0]
    now += 601
    with pytest.raises(Refused, match="too long ago"):
        await flow.finish(f"state={state}&code=x", kept)


@pytest.mark.anyio
async def test_a_provider_that_is_away_is_named_and_nothing_else(opened):
    settings = replace(opened[1]._settings, issuer="http://127.0.0.1:9")
    with pytest.raises(Refused, match=r"^127\.0\.0\.1:9 cannot be asked"):
        await LoginFlow(settings, ()).begin()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "http://127.0.0.1:8650",
        "http://localhost:8650",
        "http://inbox.example.org",
        "http://inbox.localhost",
        "https://inbox.example.org/path",
        "https://user@inbox.example.org",
        "https://inbox.example.org?x=1",
        "javascript:alert(1)",
        "https://",
        "https://inbox.example.org:0",
    ],
)
def test_an_address_whose_cookie_others_would_get_is_refused(address):
    with pytest.raises(InvalidArgument, match="cannot be the address"):
        check_address(address)


def test_the_cookie_of_an_encrypted_page_is_of_its_host_alone(opened):
    settings = replace(opened[1]._settings, address="https://inbox.example.org")
    there = access.PageAccess(0, flow=LoginFlow(settings, ()))

    assert (there.host, there.origin) == ("inbox.example.org", "https://inbox.example.org")
    assert there.cookie.startswith("__Host-") and there.secure
