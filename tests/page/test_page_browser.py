"""The local page in a real Chromium: keys, two tabs, live changes, the policy, and the cookie."""

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
from browser import Tab
from command_line import CommandLine
from hostile_strings import OWN
from mcp import Client, StdioServerParameters
from page_place import PagePlace, open_page

pytestmark = pytest.mark.process


@pytest.fixture
def page(tmp_path: Path) -> Iterator[PagePlace]:
    with open_page(tmp_path / "library") as place:
        yield place


def proposals(page: PagePlace, count: int) -> list[int]:
    for number in range(count):
        page.create(f"skill-{number}")
    return [
        page.propose(f"skill-{number}", f"one\n\ntwo words {number}\n\nthree")
        for number in range(count)
    ]


def decide_all(page: PagePlace, tabs: list[Tab], seconds: float) -> float:
    """Press `a` in turn in each tab, and `j` where another tab was first; return how
    long it took.
    """
    begun, turn = time.monotonic(), 0
    while page.library.store.backend.proposals.waiting(1):
        assert time.monotonic() - begun < seconds
        tab, turn = tabs[turn % len(tabs)].page, turn + 1
        tab.bring_to_front()
        if "/inbox/" not in tab.url or not (
            tab.locator("#approve").count() or tab.locator("#next").count()
        ):
            tab.goto(f"http://{page.host}/inbox")
        was, key = tab.url, "a" if tab.locator("#approve").count() else "j"
        tab.wait_for_timeout(260)  # what was shown for a shorter time is not decided about
        tab.keyboard.press(key)
        try:
            tab.wait_for_url(
                lambda address, was=was: address != was, wait_until="commit", timeout=2_000
            )
        except Exception:  # another tab decided in between, and the button went
            continue
    return time.monotonic() - begun


def signed_in(browser: Any, page: PagePlace, count: int = 1, **options: Any) -> list[Tab]:
    context = browser.new_context(**options)
    tabs = [Tab(context) for _ in range(count)]
    tabs[0].open(page.server.access.new_link())
    for tab in tabs:
        tab.open(f"http://{page.host}/inbox")
    return tabs


def check_decided_once(page: PagePlace, numbers: list[int]) -> None:
    decided = [page.library.store.backend.proposals.get(number) for number in numbers]
    assert {one.state for one in decided} == {"approved"}
    assert len({one.operation for one in decided}) == len(numbers)
    assert all(head.version == 2 for head in page.library.store.heads())


def test_proposals_are_decided_by_keys_in_two_tabs_and_none_twice(
    browser: Any, page: PagePlace
) -> None:
    numbers = proposals(page, 6)
    tabs = signed_in(browser, page, 2)
    decide_all(page, tabs, 30)
    check_decided_once(page, numbers)
    first = tabs[0].page
    first.goto(f"http://{page.host}/inbox/{page.propose('skill-0', 'other words')}")
    first.wait_for_timeout(260)  # what was shown for a shorter time is not decided about
    first.keyboard.press("r")
    first.keyboard.type("not that way")
    first.keyboard.press("Enter")
    first.wait_for_selector("#done")
    (refused,) = page.library.store.backend.proposals.in_state("rejected", 9)
    assert refused.decision == "not that way"
    first.wait_for_timeout(260)
    first.keyboard.press("u")
    first.wait_for_url(f"**/inbox/{refused.id}?done={refused.id}")
    assert page.library.store.backend.proposals.get(refused.id).state == "open"
    assert not [line for line in (*tabs[0].errors, *tabs[1].errors) if "40" not in line]


def test_hostile_text_does_nothing_and_a_change_is_live_at_once(
    browser: Any, page: PagePlace
) -> None:
    page.create("hostile", "before")
    (tab,) = signed_in(browser, page)
    begun = time.monotonic()
    number = page.propose("hostile", "\n\n".join(OWN), OWN[0])
    tab.page.wait_for_selector("#approve", timeout=5_000)
    assert time.monotonic() - begun < 1.0  # the figure is measured in benchmarks/ui.py
    page.post("/do/inbox-approve", number=number)
    for path in (
        f"/inbox/{number}",
        "/resource/skill:hostile",
        "/resource/skill:hostile?from=1&to=2",
        "/operations",
    ):
        tab.open(f"http://{page.host}{path}")
        assert tab.page.evaluate("window.hacked") is None
    assert not tab.errors
    assert not [url for url in tab.asked if not url.startswith((f"http://{page.host}/", "data:"))]


def test_another_server_of_this_machine_is_sent_no_cookie_and_can_send_no_form(
    browser: Any, page: PagePlace
) -> None:
    page.create("pdf")
    number = page.propose("pdf", "1")
    seen: list[str | None] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Cookie"))
            target = f"http://{page.host}/do/inbox-approve"
            form = f"<form method=post action={target}><input name=number value={number}></form>"
            body = (
                f"<script>fetch('http://{page.host}/inbox')</script>{form}<script>"
                "document.forms[0].submit()</script>"
            )
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        try:
            (tab,) = signed_in(browser, page)
            for host in ("127.0.0.1", "localhost"):
                tab.page.goto(f"http://{host}:{other.server_port}/")
                tab.page.wait_for_url(f"http://{page.host}/**")
        finally:
            other.shutdown()
    assert seen and set(seen) == {None}
    assert page.library.store.backend.proposals.get(number).state == "open"
    assert [cookie["domain"] for cookie in tab.page.context.cookies()] == [
        page.host.partition(":")[0]
    ]


@contextlib.contextmanager
def page_of_the_command(line: CommandLine) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield `evolvable ui` on a terminal of its own, and the link that it printed; at the end it is
    killed.
    """
    keyboard, terminal = pytest.importorskip("pty").openpty()
    with line.start("ui", stdin=terminal, stdout=terminal) as process:
        os.close(terminal)
        printed = b""
        while not (found := re.search(rb"http://\S+token=\S+\s", printed)):
            printed += os.read(keyboard, 65536)
        try:
            yield process, found[0].decode().strip()
        finally:
            process.kill()
    os.close(keyboard)


async def agent_proposes(line: CommandLine, ref: str) -> None:
    """Do over MCP what the page tells a new user to say to the client."""
    line.person = False
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "evolvable_server", "serve"],
        env=line.environment,
        cwd=line.project,
    )
    async with Client(command) as client:
        files = {"NOTES.md": "An example for beginners.\n"}
        given = {"ref": ref, "reason": "beginners ask for it", "files": files, "propose": True}
        result = await client.call_tool("update_resource", given)
        assert not result.is_error, result.content


@pytest.mark.nightly
def test_a_new_user_follows_the_page_to_an_approved_proposal_and_a_killed_page_loses_nothing(
    browser: Any, tmp_path: Path
) -> None:
    line = CommandLine(tmp_path)
    assert "ui" in line.on_terminal("quickstart", "--home", line.home).split()
    with page_of_the_command(line) as (_, link):
        tab = Tab(browser.new_context())
        tab.open(link)
        named = re.search(r"skill:[\w-]+", tab.page.locator("#waits q").inner_text())
        assert named is not None
        with anyio.from_thread.start_blocking_portal() as portal:
            portal.call(agent_proposes, line, named[0])
        tab.page.locator("#waits a.button").click()
        tab.page.wait_for_selector("#approve")
        tab.page.wait_for_timeout(300)
        tab.page.keyboard.press("a")
        tab.page.wait_for_selector("#done")
        assert not tab.errors
    line.person = True
    with page_of_the_command(line) as (_, link):
        again = Tab(browser.new_context())
        again.open(link)
        again.page.goto(link.partition("/open")[0] + "/operations")
        assert "beginners ask for it" in again.page.inner_text("main")


@pytest.mark.nightly
def test_a_new_user_follows_the_terminal_to_an_approved_proposal(tmp_path: Path) -> None:
    """Each step does what the one before it printed."""
    line = CommandLine(tmp_path)
    said = " ".join(line.on_terminal("quickstart", "--home", line.home).split())
    asked = re.search(
        r"Then say to it.*?: \"Read (skill:[\w-]+) with Evolvable\. Propose .*? (\S+) inbox ", said
    )
    assert asked is not None, said
    assert f"Read {asked[1]}" in said and "To see a proposal" in " ".join(
        line.on_terminal("inbox").split()
    )
    with anyio.from_thread.start_blocking_portal() as portal:
        portal.call(agent_proposes, line, asked[1])
    line.person = True
    talk = line.talk("inbox")
    assert "An example for beginners." in talk.until("Decide on proposal 1 [")
    talk.type("y\n")
    assert "1 approved; 0 proposals still waiting." in talk.end()


@pytest.mark.nightly
def test_fifty_proposals_are_decided_by_keys_in_less_than_ninety_seconds(
    browser: Any, page: PagePlace
) -> None:
    numbers = proposals(page, 50)
    took = decide_all(page, signed_in(browser, page, 2), 90)
    check_decided_once(page, numbers)
    assert took < 90


WALK = ("/", "/inbox", "/library", "/resource/skill:skill-0", "/learn")
PAGES = (
    *WALK,
    "/inbox/decided",
    "/inbox/1/edit",
    "/inbox/session/session-1",
    "/library?sort=used",
    "/library?view=rated",
    "/library?view=budget",
    "/resource/skill:skill-0?edit=1",
    "/resource/skill:skill-0?to=1",
    "/search?task=words",
    "/evolution",
    "/sessions",
    "/operations",
    "/health",
)


def check_with_axe(browser: Any, page: PagePlace, paths: Sequence[str], **look: Any) -> None:
    """EVOLVABLE_AXE: the file axe.min.js of the package axe-core."""
    script = os.environ.get("EVOLVABLE_AXE", "")
    if not Path(script).is_file():
        pytest.skip("EVOLVABLE_AXE names no axe.min.js")
    proposals(page, 2)
    (tab,) = signed_in(browser, page, bypass_csp=True, **look)
    for path in paths:
        tab.open(f"http://{page.host}{path}")
        tab.page.add_script_tag(path=script)
        found = tab.page.evaluate(
            "axe.run().then(r => r.violations.filter(v => "
            "['serious','critical'].includes(v.impact)))"
        )
        assert not found, (
            path,
            [(one["id"], [node["html"] for node in one["nodes"]][:2]) for one in found],
        )
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_axe_finds_nothing_serious_on_a_walk_through_the_page(
    browser: Any, page: PagePlace
) -> None:
    check_with_axe(browser, page, WALK, viewport={"width": 375, "height": 812})


@pytest.mark.nightly
@pytest.mark.parametrize(
    "look", [{"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 740}}, {}]
)
def test_axe_finds_nothing_serious_and_every_page_fits_its_screen(
    browser: Any, page: PagePlace, look: Any
) -> None:
    check_with_axe(browser, page, PAGES, **look)


@pytest.mark.nightly
def test_the_whole_page_is_used_without_a_mouse_and_without_javascript(
    browser: Any, page: PagePlace
) -> None:
    numbers = proposals(page, 1)
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(page.server.access.new_link())
    tab.goto(f"http://{page.host}/inbox")
    assert "two" in tab.inner_text("main")
    for _ in range(40):
        if tab.locator("#approve:focus").count():
            break
        tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#done")
    assert page.library.store.backend.proposals.get(numbers[0]).state == "approved"
    tab.locator("#undo").focus()
    tab.keyboard.press("Enter")
    tab.wait_for_selector("text=took back operation")
