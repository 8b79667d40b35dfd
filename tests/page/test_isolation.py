"""A reader without rights sees nothing of another project: all ways into a server are tried, before
and beside it.
"""

import hashlib
import json
import re
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import anyio
import anyio.abc
import httpx2
import mcp_types as types
import pytest
from doors import Answers, Probe, Walk, plain
from http_place import http_server, made_token
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_place import ERAS, Place, skill_text
from oidc_provider import Browser, Provider, fill_login
from page_place import PageAnswer, PagePlace, open_page
from postgres_place import address_home, administer, as_role, server_url
from processes import poll

from evolvable_page.app import MODULES
from evolvable_server.config import GROUPS, Config, library_names
from evolvable_server.grants import Grant, Permission, SignIn
from evolvable_server.serving import Serving
from evolvable_store.errors import NotFound
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_teams.sign_in import LoginFlow
from evolvable_teams.tokens import Tokens
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit
from evolvable_tools.verbs.load import get_resource

pytestmark = [pytest.mark.process, pytest.mark.anyio]

MARK = "zq7mark"
"""In every text of the other project, and in no question."""

THEIRS = Probe(
    names=("payroll", "mergers", "USER"),
    scopes=("vault", "user"),
    words=("pay the salaries of the board", "lawsuit"),
)
PERSON, AGENT = Caller(Actor.HUMAN), Caller(Actor.AGENT, session="theirs")


def main_file(ref: Ref, text: str) -> dict[str, str]:
    name = {"skill": "SKILL.md", "memory": f"{ref.name}.md"}.get(ref.kind, f"{ref.kind.upper()}.md")
    about = (
        f"---\nname: {ref.name}\ndescription: To pay the salaries of the board in a lawsuit, "
        f"{MARK}.\n---\n\n"
    )
    return {name: f"{'' if ref.kind == 'memory' else about}{text} {MARK}\n"}


def fill(home: Path) -> None:
    """Give a library what a stranger would look for: each kind, a project's, versions, proposals,
    removed ones.
    """
    with Library.open(home, create=True) as library:
        refs = [f"{kind}:payroll" for kind in ("skill", "prompt", "agent", "tool", "environment")]
        for text in [*refs, "skill:mergers", "skill:vault/payroll", "memory:USER"]:
            ref = Ref.parse(text)
            edit.update_resource(
                library, PERSON, ref, f"made {MARK}", files=main_file(ref, "First."), create=True
            )
        payroll = Ref.parse("payroll")
        for number in range(5):
            files = main_file(payroll, f"Text {number}.")
            edit.update_resource(library, PERSON, payroll, f"changed {MARK}", files=files)
        mine = {"files": main_file(payroll, "Mine."), "expected_version": 6}
        edit.update_resource(library, AGENT, payroll, MARK, **mine, propose=True)
        edit.remove_resource(library, PERSON, Ref.parse("mergers"), f"gone {MARK}")


class Reader(Place):
    """The home of a reader, as a server is started on it."""

    def __init__(self, home: Path) -> None:
        self.root, self.home, self.skills = home.parent, home, home.parent / "skills"


@dataclass(frozen=True)
class Other:
    """Libraries side by side.

    make: makes one with one skill, returns the home of its reader. fill: makes the other.
    """

    make: Callable[[str], Path]
    fill: Callable[[], Path]


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.nightly), "postgres"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Other]:
    """In SQLite a project is a home; in PostgreSQL one of a database, whose reader signs in with a
    role of its own.
    """
    on_postgres = request.param == "postgres"
    known = hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]
    role = f"r{known}"

    def make(name: str) -> Path:
        home = tmp_path / name / "home"
        home.parent.mkdir()
        owner = home.with_name("owner") if on_postgres else home
        if on_postgres:
            address_home(owner, f"{name}{known}")
        with Library.open(owner, create=True) as library:
            files = {"SKILL.md": skill_text("own")}
            edit.update_resource(
                library, PERSON, Ref.parse("own"), "made", files=files, create=True
            )
        if on_postgres:
            administer(f"SELECT evolvable.add_member('{name}{known}', '{role}', true)")
            as_role(owner, home, role)
        return home

    def fill_other() -> Path:
        home = tmp_path / "theirs"
        if on_postgres:
            address_home(home, f"theirs{known}")
        fill(home)
        return home

    if on_postgres:
        server_url()  # skips the test where there is none to start
        administer(f"CREATE ROLE {role} LOGIN")
    yield Other(make, fill_other)
    if on_postgres:
        administer(
            f"DROP OWNED BY {role}; DELETE FROM evolvable.member "
            f"WHERE role = '{role}'; DROP ROLE {role}"
        )


def own_texts(home: Path) -> dict[str, str]:
    known = hashlib.sha256(str(home.parents[1]).encode()).hexdigest()[:12]
    return {
        str(home): "<home>",
        str(home.parent): "<place>",
        f"{home.parent.name}{known}": "<project>",
    }


async def says_yes(context: Any, params: Any) -> types.ElicitResult:
    """The person at the reader's client, who agrees to everything."""
    return types.ElicitResult(action="accept", content={"decision": "approve", "answer": "yes"})


async def walked(home: Path, probe: Probe) -> Walk:
    serving = Serving(Config(home, home.parent, embedder="off", toolsets=GROUPS))
    try:
        with anyio.fail_after(300):
            async with Client(serving.server, elicitation_callback=says_yes) as client:
                walk = Walk(client, probe, own_texts(home))
                await walk.everything()
                return walk
    finally:
        serving.close()


def assert_nothing_shows(before: Answers, beside: Answers) -> None:
    """Equal answers say more than missing words: of numbers and counts, and of errors that
    something exists.
    """
    assert MARK not in json.dumps(beside)
    assert {
        asked: (before.get(asked), beside[asked])
        for asked in beside
        if before.get(asked) != beside[asked]
    } == {}
    assert before.keys() == beside.keys()


async def test_all_ways_into_a_server_answer_as_if_the_other_project_did_not_exist(
    other: Other,
) -> None:
    """Every list of the server is walked; of each argument two values are tried, all of them with
    `-m nightly`.
    """
    probe = replace(THEIRS, most=2)
    before = await walked(other.make("one"), probe)
    other.fill()
    beside = await walked(other.make("two"), probe)

    assert len(before.answers) > 250
    assert {"find_skill", "evolve_start", "ags_start", "run_resource"} <= before.tools
    assert_nothing_shows(before.answers, beside.answers)


@pytest.mark.nightly
@pytest.mark.parametrize("era", list(ERAS))
@pytest.mark.parametrize(
    "permissions", [(), (Permission.WRITE, Permission.REPORT, Permission.APPROVE)]
)
async def test_over_http_every_token_is_answered_as_if_the_other_project_did_not_exist(
    other: Other, era: str, permissions: tuple[Permission, ...]
) -> None:
    async def over_http(home: Path, foreign: str | None) -> Answers:
        place = Reader(home)
        secret = made_token(place, "reader", *permissions)
        with http_server(
            place, secret=secret, environment={"EVOLVABLE_TOOLSETS": ",".join(GROUPS)}
        ) as server:
            headers = {"Authorization": f"Bearer {secret}"}
            async with httpx2.AsyncClient(headers=headers, timeout=60) as web:
                transport = streamable_http_client(server.url, http_client=web)
                async with Client(
                    transport, mode=ERAS[era], elicitation_callback=says_yes
                ) as client:
                    walk = Walk(
                        client,
                        THEIRS,
                        own_texts(home) | {str(server.port): "<port>", secret: "<secret>"},
                    )
                    with anyio.fail_after(600):
                        answers = await walk.everything()
            for path in (
                "/",
                "/mcp",
                "/payroll",
                "/mcp/payroll",
                "/healthz",
                "/readyz",
                "/.well-known/x",
            ):
                for method in ("GET", "POST", "DELETE", "PUT"):
                    for session in (None, "payroll"):
                        got = server.post(
                            b'{"payroll"', {"Mcp-Session-Id": session}, method=method, path=path
                        )
                        body = plain(
                            got.body.decode(), own_texts(home) | {str(server.port): "<port>"}
                        )
                        answers[f"{method} {path} {session}"] = f"{got.status} {body}"
            if foreign is not None:
                refused = server.tool("list_resources", {}, foreign)
                assert refused.status == 401 and MARK.encode() not in refused.body
            return answers

    before = await over_http(other.make("one"), None)
    theirs = other.fill()
    foreign = Tokens(theirs).add("theirs", tuple(Permission))[1]
    beside = await over_http(other.make("two"), foreign)

    assert_nothing_shows(before, beside)


async def test_a_reader_is_notified_of_no_change_of_another_project(other: Other) -> None:
    """Its own change comes after theirs, so nothing of theirs is still on its way when its own has
    arrived.
    """
    home, theirs = other.make("one"), other.fill()
    own, last = "prompt://own/PROMPT.md", "prompt://own/last.md"
    asked = [
        own,
        last,
        "skill://payroll/SKILL.md",
        "prompt://payroll/PROMPT.md",
        "memory://USER/USER.md",
    ]
    heard: list[str] = []
    changes = iter(range(10**6))

    async def until(mine: Library, uri: str) -> None:
        """Change a file of the reader's own until it is told of it: the server begins to follow at
        some moment.
        """
        while f"ResourceUpdated {uri}" not in heard:
            ref, number = Ref.parse("prompt:own"), next(changes)
            files = main_file(ref, f"Text {number}.") | {
                uri.rpartition("/")[2]: skill_text("own", body=str(number))
            }
            edit.update_resource(mine, PERSON, ref, "mine", files=files, create=number == 0)
            with anyio.move_on_after(0.5):
                while f"ResourceUpdated {uri}" not in heard:
                    await anyio.sleep(0.01)

    async def listen(client: Client, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with client.listen(
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=asked,
        ) as events:
            task_status.started()
            async for event in events:
                heard.append(f"{type(event).__name__} {getattr(event, 'uri', '')}".strip())

    serving = Serving(Config(home, home.parent, embedder="off", toolsets=GROUPS))
    try:
        with anyio.fail_after(30):
            async with Client(serving.server) as client:
                serving.start_following()
                async with anyio.create_task_group() as tasks:
                    await tasks.start(listen, client)
                    with Library.open(home) as mine:
                        await until(mine, own)
                        with Library.open(theirs) as library:
                            for ref in map(
                                Ref.parse,
                                ("payroll", "prompt:payroll", "tool:payroll", "memory:USER"),
                            ):
                                edit.update_resource(
                                    library, PERSON, ref, MARK, files=main_file(ref, "Later.")
                                )
                        await until(mine, last)
                    tasks.cancel_scope.cancel()
    finally:
        serving.close()
    lists = {"ResourcesListChanged", "PromptsListChanged"}
    assert set(heard) == lists | {f"ResourceUpdated {own}", f"ResourceUpdated {last}"}


PLACES = {
    "ref": [*THEIRS.refs()[:4], "memory:USER"],
    "number:int": ["1", "2", "7"],
    "session:path": ["theirs", "session-1"],
    "session": ["theirs"],
    "run": ["20260101-000000-abcd"],
}
"""What stands in an address of the page, by the name in its route."""

FIELDS = {
    **dict.fromkeys(("q", "task", "reason", "search", "skill"), THEIRS.words[0]),
    **dict.fromkeys(
        ("number", "operation", "undone", "done", "version", "expected", "seen", "from", "to"), "2"
    ),
    "ref": "payroll",
    "scope": "vault",
    "kind": "memory",
    "session": "theirs",
    "cursor": "payroll",
    "path": "SKILL.md",
    "run": PLACES["run"][0],
    "folder": "/",
    "view": "all",
    "status": "x",
}
"""What each field of an address or of a form is filled with."""

_SECRETS = re.compile(
    r'(?<=value=")[\w-]{43}(?=")|(?<=name="once" '
    r'value=")[\w-]{16}-\d+(?=")|\?v=[0-9a-f]{12}|inbox-\d+\.localhost:\d+'
)


_READING = "being read"
"""Stands where a page has not read all of it yet, which another answer says in its place."""


def _read_whole(page: PagePlace, path: str) -> PageAnswer:
    """Return the answer of an address once nothing of it is computed beside the page any more."""
    answers = [page.get(path)]

    def is_whole() -> bool:
        if _READING in answers[-1].text:
            answers.append(page.get(path))
        return _READING not in answers[-1].text

    poll(is_whole, f"all of {path}")
    return answers[-1]


class PageWalk:
    """Who signed in to the page of a home, and tries each address and each form of it."""

    def __init__(self, home: Path, provider: Provider) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = listener.getsockname()[1]
        self._address = f"http://inbox-{self._port}.localhost:{self._port}"
        client = provider.register(f"{self._address}/callback")["client_id"]
        mine = library_names(home)[1:2] or (str(home),)
        grants = (
            Grant(("groups",), "readers", frozenset({"read"}), mine),
            Grant(("groups",), "deciders", frozenset({"write", "approve"}), mine),
            Grant(
                ("groups",), "of-the-other-project", frozenset({"write", "approve"}), ("theirs",)
            ),
        )
        self._settings = SignIn(
            provider.issuer, "", client, self._address, grants, ("openid", "groups")
        )
        self._home, self._own = home, own_texts(home) | {client: "<client>"}

    def answers(self) -> Answers:
        """Sign in as `reader`; return what every address and every form answered."""
        found: Answers = {}
        flow = LoginFlow(self._settings, library_names(self._home))
        with open_page(self._home, self._port, flow) as page:
            begun = page.request("GET", "/sign-in", cookie="")
            with Browser() as browser:
                parts = urlsplit(fill_login(browser, begun.location, "reader", until=self._address))
            page.come_back(
                f"{parts.path}?{parts.query}", begun.headers["set-cookie"].partition(";")[0]
            )
            for path in self._paths():
                found[f"GET {path}"] = self._said(_read_whole(page, path))
            for action in (action for module in MODULES for action in module.ACTIONS):
                for number in PLACES["number:int"]:
                    fields = {**FIELDS, "number": number, "operation": number}
                    sent = urlencode({"csrf": page.csrf, **fields})
                    found[f"POST {action.path} {number}"] = self._said(
                        page.request("POST", action.path, sent)
                    )
        return found

    def _paths(self) -> Iterator[str]:
        for path in sorted(
            {view.path for module in MODULES for view in module.VIEWS} | {"/key", "/live/x", "/x"}
        ):
            for one in _filled(path):
                yield one
                yield from (f"{one}?{urlencode({name: value})}" for name, value in FIELDS.items())

    def _said(self, got: PageAnswer) -> str:
        return f"{got.status} {got.location} {_SECRETS.sub('', plain(got.text, self._own))}"


@pytest.mark.parametrize("group", [pytest.param("readers", marks=pytest.mark.nightly), "deciders"])
def test_every_page_answers_who_signed_in_as_if_the_other_project_did_not_exist(
    other: Other, provider: Provider, group: str
) -> None:
    """The person has a group of the reader's project, and one of the other project, which counts
    nothing here.
    """
    provider.account("reader", group, "of-the-other-project")
    before = PageWalk(other.make("one"), provider).answers()
    other.fill()
    beside = PageWalk(other.make("two"), provider).answers()
    assert len(before) > 300 and sum(text.startswith("200") for text in before.values()) > 50
    assert_nothing_shows(before, beside)


def _filled(path: str) -> list[str]:
    found = [path]
    for name, values in {"ref:path": PLACES["ref"], **PLACES}.items():
        key = f"{{{name}}}"
        found = [
            one.replace(key, quote(value))
            for one in found
            for value in (values if key in one else [""])
        ]
    return found


@pytest.mark.alone
def test_the_time_of_an_answer_does_not_say_which_names_another_project_has(other: Other) -> None:
    """Of 300 pairs of questions, one about a name of theirs and one about a name of nobody, neither
    side is slower.
    """
    home = other.make("one")
    other.fill()
    seconds: dict[str, list[float]] = {"payroll": [], "payable": []}
    with Library.open(home) as library:
        for turn in range(310):
            for name in sorted(seconds, reverse=bool(turn % 2)):
                began = time.perf_counter()
                with pytest.raises(NotFound, match="There is no"):
                    get_resource(library, AGENT, Ref.parse(name))
                seconds[name].append(time.perf_counter() - began)
    theirs, nobodys = (found[10:] for found in seconds.values())
    slower = statistics.fmean(one > two for one in theirs for two in nobodys)
    assert 0.36 < slower < 0.64, f"a name of theirs is slower in {slower:.0%} of comparisons"
