"""Where approvals are locked, what people who sign in decide counts when a key of their own signed
it.
"""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from command_line import CommandLine
from http_place import http_server
from mcp_place import Place
from oidc_provider import Browser, Provider, fill_login
from page_place import PageAnswer, PagePlace, open_page, propose_text

from evolvable_server.app import lock_of
from evolvable_server.approval_keys import MAX_WRONG, WAIT_SECONDS, ApproverKeys, approver_path
from evolvable_server.person_config import read_person_config
from evolvable_store.errors import Refused
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_teams.sign_in import LoginFlow
from evolvable_tools.approvals_lock import open_key
from evolvable_tools.authors import authorships
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import proposal_inbox

pytestmark = pytest.mark.process

WORDS = "correct horse battery"
"""The passphrase of the person whose account serves."""

OWN = "the passphrase of ada"

RESOURCE = "http://127.0.0.1:8642/mcp"


class Team:
    """An account with locked approvals, whose page people sign in to."""

    def __init__(self, root: Path, provider: Provider) -> None:
        self.machine, self.provider = CommandLine(root), provider
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = listener.getsockname()[1]
        self._address = f"http://inbox-{self._port}.localhost:{self._port}"
        client = provider.register(f"{self._address}/callback")["client_id"]
        path = self.machine.user / ".config/evolvable/config.toml"
        path.parent.mkdir(parents=True)
        path.write_text(
            f'[sign_in]\nissuer = "{provider.issuer}"\nclient = "{client}"\n'
            f'address = "{self._address}"\nresource = "{RESOURCE}"\n'
            'scopes = ["openid", "groups"]\n[[sign_in.grants]]\nvalue = "deciders"\n'
            'permissions = ["write", "approve"]\n[[sign_in.grants]]\nvalue = "writers"\n'
            'permissions = ["write"]\n'
        )
        self.machine("init")
        self.machine("approvals", "lock", stdin=f"{WORDS}\n{WORDS}\n")

    def name(self, login: str) -> str:
        return f"{login}@{urlsplit(self.provider.issuer).netloc}"

    @contextmanager
    def page(self) -> Iterator[PagePlace]:
        """The page, as the command serves it with the configuration of now."""
        person = read_person_config()
        assert person.sign_in is not None
        home = self.machine.home
        flow = LoginFlow(person.sign_in, (str(home),))
        with open_page(home, self._port, flow, lock=lock_of(person)) as found:
            yield found

    def sign_in(self, page: PagePlace, login: str) -> None:
        begun = page.request("GET", "/sign-in", cookie="")
        with Browser() as browser:
            back = fill_login(browser, begun.location, login, until=page.server.access.origin)
        parts = urlsplit(back)
        kept = begun.headers["set-cookie"].partition(";")[0]
        assert page.come_back(f"{parts.path}?{parts.query}", kept).status == 200

    def allow(self, login: str, key: str) -> None:
        """List a key, as the person whose account serves does at a terminal."""
        self.machine("approvals", "allow", self.name(login), key, stdin=f"{WORDS}\n")


class ServedTeam(Place):
    """The same library, as a server of the same account is started on it."""

    def __init__(self, team: Team) -> None:
        self.root, self.home, self.skills = (
            team.machine.root,
            team.machine.home,
            team.machine.root / "skills",
        )
        self._account = {
            "HOME": str(team.machine.user),
            "EVOLVABLE_TEST_ACCOUNT": str(team.machine.user),
        }

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | self._account


@pytest.fixture
def team(tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> Team:
    monkeypatch.setenv("EVOLVABLE_TEST_ACCOUNT", str(tmp_path / "user"))
    provider.account("ada", "deciders")
    provider.account("bob", "deciders")
    provider.account("will", "writers")
    return Team(tmp_path, provider)


def make_key(page: PagePlace, words: str = OWN) -> str:
    """Make the key of the person who is signed in; return the public key that the page shows."""
    assert page.post("/key", passphrase=words, again=words).status == 303
    return page.get("/key").text.partition('<code id="key-made">')[2].partition("<")[0]


def approve(page: PagePlace, number: int, words: str = "") -> PageAnswer:
    return page.post("/do/inbox-approve", number=number, passphrase=words)


def level(library: Library, name: str = "pdf") -> str:
    head = library.store.head_or_none(Ref.parse(name))
    assert head is not None
    whose = authorships(library, [head.id])[head.id]
    return str(whose.kind) if whose.stands else f"{whose.kind}, unsigned"


def test_without_a_listed_key_a_person_who_signs_in_decides_nothing(team: Team) -> None:
    with team.page() as page:
        number = page.propose("pdf", "1")
        team.sign_in(page, "ada")
        assert "Passphrase of your signing key" in page.get(f"/inbox/{number}").text
        assert 'href="/key"' in page.get(f"/inbox/{number}").text
        # The passphrase of the account's own lock opens nothing here.
        for words in ("", OWN, WORDS):
            refused = approve(page, number, words)
            assert refused.status == 403 and "locked" in refused.text
        make_key(page)
        refused = approve(page, number, OWN)
        assert refused.status == 403 and "no signing key of yours" in refused.text
        assert page.library.store.backend.proposals.get(number).state == "open"


def test_a_decision_that_the_persons_own_key_signed_counts_under_the_lock(team: Team) -> None:
    with team.page() as page:
        team.sign_in(page, "ada")
        key = make_key(page)
    team.allow("ada", key)
    assert team.machine("approvals", "--json").json["people"] == {team.name("ada"): key}
    with team.page() as page:
        number = page.propose("pdf", "1")
        team.sign_in(page, "ada")
        assert "sign with it count" in page.get("/key").text
        assert approve(page, number, OWN).status == 303
        assert level(page.library) == "member"
    assert team.machine("approvals", "--json").json["unsigned"] == []
    assert "not signed" not in team.machine("doctor", code=None).out

    team.machine("approvals", "disallow", team.name("ada"), stdin=f"{WORDS}\n")
    assert not approver_path(f"oidc:{team.name('ada')}").exists()
    assert len(team.machine("approvals", "--json").json["unsigned"]) == 1


def test_a_wrong_passphrase_decides_nothing_and_guesses_are_few(team: Team) -> None:
    now = 0.0
    keys = ApproverKeys(clock=lambda: now)
    via = f"oidc:{team.name('ada')}"
    key = keys.create(via, OWN)
    for _ in range(MAX_WRONG):
        with pytest.raises(Refused, match="wrong"):
            keys.open(via, key, "a guess at it")
    with pytest.raises(Refused, match="Too many"):
        keys.open(via, key, OWN)
    keys.open("oidc:bob@x", keys.create("oidc:bob@x", OWN), OWN)  # nobody else waits
    now = WAIT_SECONDS + 1
    assert keys.open(via, key, OWN).sign(b"x")


def test_who_has_a_stolen_session_neither_replaces_a_key_nor_uses_it(team: Team) -> None:
    with team.page() as page:
        team.sign_in(page, "ada")
        key = make_key(page)
        again = page.post("/key", passphrase="another one", again="another one")
        assert again.status == 403 and "already" in again.text
        assert page.post("/key", passphrase="short", again="short", csrf="x").status == 403
    team.allow("ada", key)
    with team.page() as page:
        number = page.propose("pdf", "1")
        team.sign_in(page, "ada")
        assert approve(page, number, "another one").status == 403
        assert approve(page, number, "").status == 403
        assert page.library.store.backend.proposals.get(number).state == "open"


def test_who_may_not_approve_gets_no_key_and_who_opened_no_session_sees_none(team: Team) -> None:
    with team.page() as page:
        team.sign_in(page, "will")
        refused = page.post("/key", passphrase=OWN, again=OWN)
        assert refused.status == 403 and "you need no key" in refused.text
        assert page.request("GET", "/key", cookie="").status == 401


def test_a_listed_key_counts_for_its_own_person_alone_and_for_no_baseline(team: Team) -> None:
    """Bob's key is listed and he can write the database: he signs Ada's name, and everything so
    far.
    """
    with team.page() as page:
        team.sign_in(page, "bob")
        key = make_key(page)
    team.allow("bob", key)
    bob = open_key(json.loads(approver_path(f"oidc:{team.name('bob')}").read_text()), OWN)

    class Signs:
        key = bob.key

        def unlock(self) -> None: ...

        def sign(self, statement: bytes) -> bytes:
            return bob.sign(statement)

    lock = lock_of(read_person_config())
    assert lock is not None
    made = {}
    with Library.open(team.machine.home, lock=lock) as library:
        for login, via in (
            ("ada", f"oidc:{team.name('ada')}"),
            ("owner", "terminal"),
            ("bob", f"oidc:{team.name('bob')}"),
        ):
            number = propose_text(library, login, "1")
            caller = Caller(Actor.HUMAN, principal=Principal.PERSON, via=via, signer=Signs())
            (done,) = proposal_inbox.approve_together(library, caller, [number], "")
            made[login] = done.operation
        assert lock.vouched_operations(library.store.backend, made.values()) == {made["bob"]}
        library.store.backend.signatures(bob.key, lambda *_: True).add_baseline(bob.sign)
        assert lock.vouched_operations(library.store.backend, made.values()) == {made["bob"]}
        assert (level(library, "ada"), level(library, "owner"), level(library, "bob")) == (
            "agent, unsigned",
            "agent, unsigned",
            "member",
        )
    assert set(team.machine("approvals", "--json").json["unsigned"]) == {made["ada"], made["owner"]}


def test_a_key_that_was_listed_without_the_lock_counts_nothing(team: Team) -> None:
    with team.page() as page:
        team.sign_in(page, "ada")
        key = make_key(page)
    path = team.machine.user / ".config/evolvable/config.toml"
    person = read_person_config()
    path.write_text(path.read_text() + f'\n[sign_in.signers]\n"{team.name("ada")}" = "{key}"\n')
    changed = read_person_config()
    assert changed.unsigned and changed.sign_in is None
    lock = lock_of(changed)
    assert lock is not None and lock.people == {} and lock.key == person.lock_key


def test_the_page_is_opened_again_after_a_key_was_listed(team: Team) -> None:
    with team.page() as page:
        number = page.propose("pdf", "1")
        team.sign_in(page, "ada")
        team.allow("ada", make_key(page))
        refused = approve(page, number, OWN)
        assert refused.status == 403 and "since this page was opened" in refused.text


def test_what_a_person_who_signs_in_changes_without_a_signature_is_local_and_named(
    team: Team,
) -> None:
    with team.page() as page:
        team.sign_in(page, "ada")
        page.create("pdf", "one", Caller(Actor.AGENT, "s", principal=Principal.AGENT))
        page.create("csv", "one", Caller(Actor.AGENT, "s", principal=Principal.AGENT))
        assert page.post("/do/remove", ref="csv", expected=1).status == 303
        gone = page.library.store.operations(1)[0]
        assert gone.intent.via == f"oidc:{team.name('ada')}"
    assert team.machine("approvals", "--json").json["unsigned"] == [gone.id]
    assert f"operation {gone.id}" in team.machine("doctor", code=None).out


def test_a_token_of_the_provider_that_may_approve_decides_nothing_over_http(team: Team) -> None:
    with Library.open(team.machine.home) as library:
        number = propose_text(library, "pdf", "1")
    token = team.provider.token("ada", RESOURCE)["access_token"]

    with http_server(ServedTeam(team), secret=token) as server:
        assert server.tool("list_resources", {}, "evo_other").status == 401
        answer = server.tool("review_inbox", {"action": "approve", "proposal_id": number}, token)
    assert answer.status == 200 and "locked" in json.dumps(answer.json)
    with Library.open(team.machine.home) as library:
        assert library.store.backend.proposals.get(number).state == "open"
        assert library.store.head_or_none(Ref.parse("pdf")) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("allow", "ada"), "takes a person and a key"),
        (("allow", "ada", "0" * 64), "SUBJECT@PROVIDER"),
        (("allow", "ada@x", "short"), "public key of 64 digits"),
        (("lock", "ada@x"), "takes a person and a key"),
        (("disallow",), "takes a person and a key"),
    ],
)
def test_a_person_or_a_key_that_cannot_be_one_is_refused(
    team: Team, words: tuple[str, ...], said: str
) -> None:
    before = read_person_config()
    refused = team.machine("approvals", *words, stdin=f"{WORDS}\n", code=None)
    assert refused.code != 0 and said in refused.err
    assert read_person_config() == before


def test_an_agent_lists_no_key(team: Team) -> None:
    team.machine.person = False
    refused = team.machine(
        "approvals", "allow", team.name("eve"), "0" * 64, stdin=f"{WORDS}\n", code=1
    )
    assert "person" in refused.err
