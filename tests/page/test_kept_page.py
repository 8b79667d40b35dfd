"""A home keeps one name and port for its page, for reading; a link of a start opens another name,
for decisions.
"""

import os
import re
import socket
import stat
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from command_line import CommandLine
from page_place import PagePlace, open_page
from starlette.datastructures import Headers

from evolvable_page import access
from evolvable_page.access import PageAccess
from evolvable_page.app import MODULES, PageServer
from evolvable_page.kept_page import FILE, READING_SECONDS, KeptPage, forwarding_page
from evolvable_store.errors import InvalidArgument

pytestmark = pytest.mark.process


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose page was open once."""
    with open_page(tmp_path / "library") as page:
        page.create("pdf")
    return tmp_path / "library"


def reading_host(page: PagePlace) -> str:
    """The name that the home keeps, with its port."""
    return urlsplit(page.server.access.reading_origin).netloc


def cookie_of(page: PagePlace, cookie: str, path: str = "/library") -> tuple[int, str]:
    """The status of a page at the kept name for this cookie, and the cookie that the browser has
    afterwards.
    """
    answer = page.request("GET", path, cookie=cookie, Host=reading_host(page))
    return answer.status, answer.headers.get("set-cookie", "").partition(";")[0] or cookie


def reading_cookie(page: PagePlace) -> str:
    """The cookie that a browser which decides gets for reading."""
    onward = urlsplit(page.get("/keep").location)
    assert onward.netloc == reading_host(page)
    opened = page.request("GET", f"{onward.path}?{onward.query}", cookie="", Host=onward.netloc)
    assert opened.status == 303 and "Max-Age=2592000" in opened.headers["set-cookie"]
    return opened.headers["set-cookie"].partition(";")[0]


def test_every_start_reads_at_the_same_name_and_port_and_decides_at_a_new_name(home: Path) -> None:
    reading, deciding = [], []
    for _ in range(2):
        with open_page(home) as page:
            reading.append(reading_host(page))
            deciding.append(page.host)
    assert (
        reading[0] == reading[1] and deciding[0] != deciding[1] and not set(reading) & set(deciding)
    )
    assert stat.S_IMODE((home / FILE).stat().st_mode) == 0o600
    assert deciding[1].partition(".")[0] not in (home / FILE).read_text()
    with open_page(home.parent / "other") as other:
        assert reading_host(other).partition(".")[0] != reading[0].partition(".")[0]


def test_a_cookie_of_reading_reads_at_a_later_start_with_a_new_secret_and_decides_nothing(
    home: Path,
) -> None:
    with open_page(home) as page:
        old = reading_cookie(page)
    with open_page(home) as page:
        number, kept = page.propose("pdf", "1"), reading_host(page)
        origin = page.server.access.reading_origin
        status, new = cookie_of(page, old)
        assert status == 200 and new != old
        assert old.partition("=")[2] not in (home / FILE).read_text()
        read = page.request("GET", "/operations", cookie=new, Host=kept)
        assert "evolvable ui --open" in read.text and page.host not in read.text
        csrf = page.csrf
        for action in [one for module in MODULES for one in module.ACTIONS]:
            body = urlencode(
                {"csrf": read.field("csrf"), "number": number, "ref": "skill:pdf", "operation": 1}
            )
            refused = page.request("POST", action.path, body, cookie=new, Host=kept, Origin=origin)
            assert refused.status == 403 and "may read, and decides nothing" in refused.text, (
                action.path
            )
            # Nor at the other name: neither its own cookie there, nor a form from here, whatever it
            # knows.
            body = urlencode({"csrf": csrf, "number": number, "ref": "skill:pdf", "operation": 1})
            assert page.request("POST", action.path, body, cookie=new).status == 401
            assert page.request("POST", action.path, body, Origin=origin).status == 403
        assert page.request("GET", "/inbox", Host=kept).status == 401, (
            "the cookie that decides opens no other name"
        )
        assert page.library.store.backend.proposals.get(number).state == "open"
        # By the link of this start.
        assert page.post("/do/inbox-approve", number=number).status == 303
        ending = urlencode({"csrf": read.field("csrf")})
        ended = page.request("POST", "/end", ending, cookie=new, Host=kept, Origin=origin)
        assert ended.status == 200 and cookie_of(page, new)[0] == 401


def test_a_link_opens_nothing_at_the_other_name(home: Path) -> None:
    with open_page(home) as page:
        for link, host in (
            (page.server.access.new_link(), reading_host(page)),
            (page.server.access.new_reading_link(), page.host),
        ):
            parts = urlsplit(link)
            assert (
                page.request("GET", f"{parts.path}?{parts.query}", cookie="", Host=host).status
                == 401
            )
            assert (
                page.request(
                    "GET", f"{parts.path}?{parts.query}", cookie="", Host=parts.netloc
                ).status
                == 401
            )
        assert page.request("GET", "/keep", cookie="").status == 401


def test_two_that_have_the_same_cookie_are_both_sent_away(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_page(home) as page:
        old = reading_cookie(page)
    with open_page(home) as page:
        status, new = cookie_of(page, old)
        assert (status, cookie_of(page, old)) == (200, (200, old))  # another tab, at the same time
        monkeypatch.setattr(access, "EXCHANGE_SECONDS", 0.0)
        assert cookie_of(page, old)[0] == 401
        assert cookie_of(page, new)[0] == 401


def test_a_secret_that_was_replaced_opens_nothing_at_any_later_start(home: Path) -> None:
    with open_page(home) as page:
        old = reading_cookie(page)
    with open_page(home) as page:
        new = cookie_of(page, old)[1]
    with open_page(home) as page:
        assert (cookie_of(page, old)[0], cookie_of(page, new)[0]) == (401, 200)


def test_reading_ends_thirty_days_after_the_last_use_and_deciding_twelve_hours_after_it(
    tmp_path: Path,
) -> None:
    now = 1_000_000.0
    kept = KeptPage(tmp_path, lambda: now)
    kept.keep(20_000)
    there = PageAccess(20_000, clock=lambda: now, kept_page=kept)

    def headers(link: str, decides: bool) -> Headers:
        secret = there.exchange(link.partition("token=")[2], decides=decides)
        return Headers({"cookie": f"{access.COOKIE}={secret}", "host": urlsplit(link).netloc})

    deciding, reading = headers(there.new_link(), True), headers(there.new_reading_link(), False)
    found, read = there.session(deciding), there.session(reading)
    assert found is not None and found.decides and read is not None and not read.decides
    now += access.SESSION_SECONDS
    assert there.session(deciding) is None
    now += READING_SECONDS - access.SESSION_SECONDS - 1
    assert there.session(reading) is not None
    now += READING_SECONDS
    assert there.session(reading) is None
    again = PageAccess(20_000, clock=lambda: now, kept_page=KeptPage(tmp_path, lambda: now))
    assert again.session(reading) is None


def test_a_program_that_takes_the_port_while_the_page_is_closed_gets_nothing_that_opens_it(
    home: Path,
) -> None:
    with open_page(home) as page:
        services, port, sent = page.server.services, page.port, reading_cookie(page)
        taken = re.escape(f"Another program has port {port}")
    with socket.create_server(("127.0.0.1", port)), pytest.raises(InvalidArgument, match=taken):
        PageServer(services)
    with open_page(home) as page:
        assert page.port == port
        assert cookie_of(page, sent)[0] == 401  # what a browser may have sent to that program


def test_a_second_page_of_a_home_says_that_it_is_open_and_sends_no_reader_away(home: Path) -> None:
    with open_page(home) as page:
        sent = reading_cookie(page)
        with pytest.raises(InvalidArgument, match="is open already"):
            PageServer(page.server.services)
        assert cookie_of(page, sent)[0] == 200


def test_forgetting_ends_the_name_the_port_and_every_browser_also_of_an_open_page(
    tmp_path: Path,
) -> None:
    run = CommandLine(tmp_path)
    run.person = True
    with open_page(run.home) as page:
        old, name = reading_cookie(page), reading_host(page)
        assert "Forgotten" in run("ui", "--forget").out
        assert cookie_of(page, old)[0] == 401 and page.get("/library").status == 401
        parts = urlsplit(page.server.access.new_link())
        opened = page.request("GET", f"{parts.path}?{parts.query}", cookie="")
        cookie = opened.headers["set-cookie"].partition(";")[0]
        assert page.request("GET", "/library", cookie=cookie).status == 401
        assert not (run.home / FILE).exists()
    with open_page(run.home) as page:
        assert reading_host(page).partition(".")[0] != name.partition(".")[0]
        assert cookie_of(page, old)[0] == 401
    run.person = False
    assert "Only a person" in run("ui", "--forget", code=1).err


@pytest.mark.parametrize(
    "content",
    ["", "[]", "null", '{"host": "evil.example/", "port": 1, "readers": {}}', '{"host": 1}'],
)
def test_a_file_that_nobody_wrote_so_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    kept = KeptPage(tmp_path)
    assert re.fullmatch("[0-9a-f]{16}", kept.host) and not kept.port


def test_the_browser_is_started_with_a_file_that_others_cannot_read_and_no_secret_in_its_command(
    tmp_path: Path,
) -> None:
    run = CommandLine(tmp_path)
    seen = tmp_path / "seen"
    program = tmp_path / "browser.py"
    program.write_text(
        f"import sys\nwith open({str(seen)!r}, 'w') as told:\n    told.write(sys.argv[1])\n"
    )
    os.mkfifo(seen)
    _, terminal = pytest.importorskip("pty").openpty()
    environment = run.environment | {
        "BROWSER": f"{sys.executable} {program} %s",
        "EVOLVABLE_TEST_TERMINAL": "1",
    }
    with open_page(run.home):
        pass
    with run.start(
        "ui", "--open", stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            address = seen.read_text()  # once the browser was started
            assert "token" not in address and address.startswith("file:")
            page = Path(urlsplit(address).path)
            assert stat.S_IMODE(page.stat().st_mode) == 0o600
            assert re.search(
                r"url=http://[0-9a-f]{16}\.localhost:\d+/open\?token=", page.read_text()
            )
        finally:
            process.terminate()


@pytest.mark.parametrize("scripts", [True, False])
def test_a_browser_goes_from_the_file_to_the_page_and_reads_after_the_next_start(
    home: Path, browser: Any, scripts: bool
) -> None:
    context = browser.new_context(java_script_enabled=scripts)
    tab = context.new_page()
    with open_page(home) as page:
        tab.goto(forwarding_page(home, page.server.access.new_link()).as_uri())
        tab.wait_for_selector("nav")
        assert tab.url == f"{page.origin}/" and not tab.locator("#reading").count()
        tab.click("#keep")
        tab.wait_for_url(f"{page.server.access.reading_origin}/")
        assert "evolvable ui --open" in tab.inner_text("#reading")
    with open_page(home) as page:
        number = page.propose("pdf", "1")
        tab.goto(f"{page.server.access.reading_origin}/inbox/{number}")
        assert "pdf" in tab.inner_text("main")
        assert not tab.locator("main form[method=post]:visible").count()
        if scripts:
            tab.wait_for_selector("html[data-live]")
            tab.wait_for_timeout(300)  # what was shown for a shorter time is not decided about
            tab.keyboard.press("a")
            tab.wait_for_selector("main:has-text('may read, and decides nothing')")
        assert page.library.store.backend.proposals.get(number).state == "open"
    context.close()


WORKER = """
addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
const attack = async () => {
  const given = new URLSearchParams(location.search);
  const [target, number] = [given.get("target"), given.get("number")];
  const sent = { credentials: "include", mode: "no-cors" };
  let read = "";
  for (const mode of ["cors", "no-cors"]) {
    try {
      read += await (await fetch(target + "/inbox", { ...sent, mode })).text();
    } catch { /* it may not */ }
  }
  const form = { ...sent, method: "POST", body: new URLSearchParams({ number }) };
  try { await fetch(target + "/do/inbox-approve", form); } catch { /* it may not */ }
  const page = open(target + "/inbox/" + number);
  await new Promise((go) => setTimeout(go, 500));
  try { read += page.document.body.innerHTML; } catch { /* it may not */ }
  document.body.dataset.read = "read: " + read;
};
addEventListener("fetch", (event) => {
  const { pathname } = new URL(event.request.url);
  if (event.request.mode !== "navigate" || pathname !== "/attack") return;
  const text = "<body><script>(" + attack + ")()</" + "script>";
  event.respondWith(new Response(text, { headers: { "content-type": "text/html" } }));
});
"""
"""What a program leaves at the name that the home keeps: it answers for the page there, and attacks
the other name.
"""


class OtherProgram(BaseHTTPRequestHandler):
    """Has the port while the page is closed, and gives each browser a service worker."""

    def do_GET(self) -> None:
        is_worker = self.path == "/worker.js"
        page = (
            '<script>navigator.serviceWorker.register("/worker.js").then(() => '
            "navigator.serviceWorker.ready)"
        )
        page += '.then(() => { document.title = "left" })</script>'
        self.send_response(200)
        self.send_header("content-type", "text/javascript" if is_worker else "text/html")
        self.end_headers()
        self.wfile.write((WORKER if is_worker else page).encode())

    def log_message(self, *_: object) -> None: ...


def test_a_service_worker_left_at_the_kept_name_reads_and_decides_nothing_where_the_person_does(
    home: Path, browser: Any
) -> None:
    with open_page(home) as page:
        port, kept = page.port, page.server.access.reading_origin
        number = page.propose("pdf", "1")
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(page.server.access.new_link())
        tab.click("#keep")
        tab.wait_for_url(f"{kept}/")
    with HTTPServer(("127.0.0.1", port), OtherProgram) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        tab.goto(f"{kept}/library")  # by the bookmark
        tab.wait_for_function("document.title === 'left'")
        other.shutdown()
    with open_page(home) as page:
        person = context.new_page()
        person.goto(page.server.access.new_link())
        person.goto(f"{page.origin}/inbox/{number}")
        assert person.evaluate("navigator.serviceWorker.controller === null")
        for target, is_read in ((kept, True), (page.origin, False)):
            # The worker answers, not the page.
            tab.goto(f"{kept}/attack?target={target}&number={number}")
            tab.wait_for_selector("body[data-read]")
            read = tab.locator("body").get_attribute("data-read")
            assert ("skill:pdf" in read) == is_read and (is_read or read == "read: ")
        assert page.library.store.backend.proposals.get(number).state == "open"
        person.click("#approve")
        person.wait_for_selector("#done")
        assert page.library.store.backend.proposals.get(number).state == "approved"
    context.close()
