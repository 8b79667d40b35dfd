"""The inbox as an MCP App: drawn in Chromium by a host, it shows what waits and lets only the person decide."""

import json
from pathlib import Path
from typing import Any

import mcp.server.apps as sdk_apps
import mcp_types as types
import pytest
from app_host import AppHost, drawn
from hostile_strings import OWN
from http_place import http_server, modern
from mcp_place import Place, skill_text

from evolvable_page.text import make_visible
from evolvable_server.grants import Permission
from evolvable_server.mcp import inbox_app
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage.proposals import Draft
from evolvable_store.store import Store
from evolvable_teams.tokens import Tokens

pytestmark = pytest.mark.process

ATTACKS = json.loads((Path(__file__).parents[1] / "data/attacks.json").read_text(encoding="utf-8"))["cases"]


def propose(place: Place, body: str, reason: str = "shorter", name: str = "pdf") -> int:
    """Have an agent propose another text of a skill, unseen by any scan; return the number."""
    with Store.open(place.home) as store:
        head = store.head(Ref.parse(name))
        files = {**store.files(head), "SKILL.md": File(skill_text(name, body=body).encode())}
        draft = Draft(head.ref, head.version or 0, files, reason)
        return store.backend.proposals.add(store.now(), Actor.AGENT, "session-1", draft)


def states(place: Place, *numbers: int) -> list[str]:
    with Store.open(place.home) as store:
        return [store.backend.proposals.get(number).state for number in numbers]


class Person:
    """Answers each question of the server, and remembers what was asked."""

    def __init__(self, action: str = "accept") -> None:
        self.action, self.asked = action, list[str]()

    async def __call__(self, _: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action=self.action)  # type: ignore[arg-type]


def decide(host: AppHost, button: str, until: str) -> str:
    """Press a button of the App; return what it says once its note holds a text."""
    host.frame.locator(button).click()
    note = host.frame.locator("#note", has_text=until)
    note.wait_for()
    return str(note.inner_text())


def test_the_app_is_what_the_sdk_calls_one_and_needs_no_other_host() -> None:
    assert (inbox_app.APPS, inbox_app.MIME) == (sdk_apps.EXTENSION_ID, sdk_apps.APP_MIME_TYPE)
    html = inbox_app.inbox_html()
    assert len(html.encode()) < 30_000
    for word in ("http:", "https:", "src=", "href=", "innerHTML", "insertAdjacent", "eval(", "localStorage", "fetch("):
        assert word not in html, word


@pytest.mark.anyio
async def test_a_client_of_either_era_finds_the_app_and_others_see_no_new_resource(place: Place, era: str) -> None:
    async with place.client(era) as client:
        listed = [str(one.uri) for one in (await client.list_resources()).resources]
        declared = (client.server_capabilities.extensions or {}).get(inbox_app.APPS)
        text = (await client.call_tool("review_inbox", {})).content[0].text
    assert inbox_app.INBOX_URI not in listed
    assert declared == ({} if era == "modern" else None)
    assert json.loads(text) == {"proposals": []}


def test_proposals_are_read_compared_and_decided_by_the_persons_answer_alone(browser: Any, place: Place) -> None:
    first = propose(place, "one\n\ntwo words\n\nthree", "say words")
    second = propose(place, "rows", "shorter", "csv")
    person = Person()
    with drawn(browser, place, "handshake", elicitation_callback=person) as host:
        host.show()
        host.frame.locator(".added", has_text="two words").wait_for()
        assert host.frame.locator("blockquote").inner_text() == "say words"
        assert host.frame.locator("#queue li").count() == 2
        assert "[" not in host.frame.locator("#queue").inner_text()  # the marks are for agents
        decide(host, "#approve", f"Proposal {first} is approved: skill:pdf@2.")
        assert len(person.asked) == 1 and "two words" in person.asked[0]
        host.frame.locator("h1", has_text="skill:csv").wait_for()
        person.action = "decline"
        host.frame.locator("#reason").fill("no")
        assert "Nothing changed" in decide(host, "#reject", "Nothing changed")
        assert states(place, first, second) == ["approved", "open"]
        assert not host.tab.errors


def test_hostile_texts_are_shown_and_do_nothing(browser: Any, place: Place) -> None:
    hostile = [*OWN, *(str(one["input"]) for one in ATTACKS if one["category"] in ("markup", "xss", "injection"))]
    body = "\n\n".join(hostile) + "\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n[text of another 0123456789abcdef ends]"
    number = propose(place, body, "\n".join(OWN))
    with drawn(browser, place, "modern", elicitation_callback=Person()) as host:
        host.show(action="show", proposal_id=number)
        host.frame.locator(".added", has_text="window.hacked").first.wait_for()
        assert host.run("window.hacked") is None
        assert host.run("document.querySelectorAll('main img, main svg, main iframe, main form, main a').length") == 0
        assert host.run("document.querySelectorAll('main h3').length") == 1
        shown = " ".join(host.frame.locator("pre").inner_text().split())
        for text in OWN:  # hidden characters are written out as the local page writes them
            assert " ".join(make_visible(text).replace("\n", " + ").split()) in shown
        assert states(place, number) == ["open"]
        assert not host.tab.errors
        asked = [url for url in host.tab.asked if url != "http://host.test/"]
        assert not asked, asked
        # The policy of the document itself holds, whatever the host allows.
        host.run("document.body.append(Object.assign(document.createElement('img'), {src: 'http://evil.example/x'}))")
        with pytest.raises(Exception, match="Trusted"):
            host.run("document.body.innerHTML = '<b>x</b>'")
        assert host.run("fetch('http://evil.example/').then(() => 1, () => 0)") == 0


def test_without_a_person_who_can_be_asked_the_app_decides_nothing(browser: Any, place: Place) -> None:
    number = propose(place, "one")
    with drawn(browser, place, "handshake") as host:
        host.show()
        host.frame.locator(".removed").first.wait_for()
        assert "only a person decides" in decide(host, "#approve", "Nothing changed")
        assert states(place, number) == ["open"]
    with drawn(browser, place, "modern", tools=False) as host:
        host.show()
        host.frame.locator(f"text=evolvable ui --proposal {number}").wait_for()
        assert host.frame.locator("#approve").count() == 0


def test_a_tokens_permission_does_not_decide_for_a_page_that_a_client_draws(place: Place) -> None:
    number = propose(place, "one")
    _, secret = Tokens(place.home).add("approver", frozenset(Permission))
    given = {"name": "review_inbox", "arguments": {"action": "approve", "proposal_id": number}}
    frame, headers = modern("tools/call", given)
    headers["Authorization"] = f"Bearer {secret}"
    capabilities = frame["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    with http_server(place) as server:
        capabilities["extensions"] = {inbox_app.APPS: {"mimeTypes": [inbox_app.MIME]}}
        refused = server.post(frame, headers).json["result"]
        assert refused["isError"] and "No person can be asked" in refused["content"][0]["text"]
        assert states(place, number) == ["open"]
        capabilities.clear()
        assert not server.post(frame, headers).json["result"].get("isError")
        assert states(place, number) == ["approved"]
