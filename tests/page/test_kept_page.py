"""A home keeps one name and one port for its page; a cookie opens reading there, and a link of the start decides."""

import os
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from browser import Tab, chromium
from command_line import CommandLine
from page_place import PagePlace, open_page

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


def cookie_of(page: PagePlace, cookie: str, path: str = "/library") -> tuple[int, str]:
    """The status of a page for this cookie, and the cookie that the browser has afterwards."""
    answer = page.request("GET", path, cookie=cookie)
    return answer.status, answer.headers.get("set-cookie", "").partition(";")[0] or cookie


def test_every_start_has_the_same_name_and_port_and_the_file_is_for_the_owner_alone(home: Path) -> None:
    addresses = []
    for _ in range(2):
        with open_page(home) as page:
            addresses.append((page.host, page.port))
    assert addresses[0] == addresses[1]
    assert stat.S_IMODE((home / FILE).stat().st_mode) == 0o600
    with open_page(home.parent / "other") as other:
        assert other.host.partition(".")[0] != addresses[0][0].partition(".")[0]


def test_a_cookie_of_an_earlier_start_reads_with_a_new_secret_and_decides_nothing(home: Path) -> None:
    with open_page(home) as page:
        old = page.cookie
    with open_page(home) as page:
        number = page.propose("pdf", "1")
        status, new = cookie_of(page, old)
        assert status == 200 and new != old
        assert old.partition("=")[2] not in (home / FILE).read_text()
        csrf = page.request("GET", "/operations", cookie=new).field("csrf")
        for action in [one for module in MODULES for one in module.ACTIONS]:
            body = urlencode({"csrf": csrf, "number": number, "ref": "skill:pdf", "operation": 1})
            refused = page.request("POST", action.path, body, cookie=new)
            assert refused.status == 403 and "may read, and decides nothing" in refused.text, action.path
        assert page.library.store.backend.proposals.get(number).state == "open"
        assert page.post("/do/inbox-approve", number=number).status == 303  # by the link of this start
        ended = page.request("POST", "/end", urlencode({"csrf": csrf}), cookie=new)
        assert ended.status == 200 and cookie_of(page, new)[0] == 401


def test_two_that_have_the_same_cookie_are_both_sent_away(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_page(home) as page:
        old = page.cookie
    with open_page(home) as page:
        status, new = cookie_of(page, old)
        assert (status, cookie_of(page, old)) == (200, (200, old))  # another tab, at the same time
        monkeypatch.setattr(access, "EXCHANGE_SECONDS", 0.0)
        assert cookie_of(page, old)[0] == 401
        assert cookie_of(page, new)[0] == 401


def test_a_secret_that_was_replaced_opens_nothing_at_any_later_start(home: Path) -> None:
    with open_page(home) as page:
        old = page.cookie
    with open_page(home) as page:
        new = cookie_of(page, old)[1]
    with open_page(home) as page:
        assert (cookie_of(page, old)[0], cookie_of(page, new)[0]) == (401, 200)


def test_reading_ends_thirty_days_after_the_last_use_and_deciding_twelve_hours_after_it(tmp_path: Path) -> None:
    now = 1_000_000.0
    kept = KeptPage(tmp_path, lambda: now)
    kept.keep(20_000)
    there = PageAccess(20_000, clock=lambda: now, kept=kept)
    secret = there.exchange(there.new_link().partition("token=")[2])
    headers = access.Headers({"cookie": f"{access.COOKIE}={secret}"})
    found = there.session(headers)
    assert found is not None and found.decides
    now += access.SESSION_SECONDS
    found = there.session(headers)
    assert found is not None and not found.decides
    now += READING_SECONDS - 1
    assert there.session(headers) is not None
    now += READING_SECONDS
    assert there.session(headers) is None
    again = PageAccess(20_000, clock=lambda: now, kept=KeptPage(tmp_path, lambda: now))
    assert again.session(headers) is None


def test_a_program_that_takes_the_port_while_the_page_is_closed_gets_nothing_that_opens_it(home: Path) -> None:
    with open_page(home) as page:
        services, port, sent = page.server.services, page.port, page.cookie
        taken = re.escape(f"Another program has port {port}")
    with socket.create_server(("127.0.0.1", port)), pytest.raises(InvalidArgument, match=taken):
        PageServer(services)
    with open_page(home) as page:
        assert page.port == port
        assert cookie_of(page, sent)[0] == 401  # what a browser may have sent to that program


def test_a_second_page_of_a_home_says_that_it_is_open_and_sends_no_reader_away(home: Path) -> None:
    with open_page(home) as page:
        with pytest.raises(InvalidArgument, match="is open already"):
            PageServer(page.server.services)
        assert cookie_of(page, page.cookie)[0] == 200


def test_forgetting_ends_the_name_the_port_and_every_reader_also_of_an_open_page(tmp_path: Path) -> None:
    run = CommandLine(tmp_path)
    run.person = True
    with open_page(run.home) as page:
        assert "Forgotten" in run("ui", "--forget").out
        assert cookie_of(page, page.cookie)[0] == 401
        parts = urlsplit(page.server.access.new_link())
        opened = page.request("GET", f"{parts.path}?{parts.query}", cookie="")
        assert cookie_of(page, opened.headers["set-cookie"].partition(";")[0])[0] == 401
        assert not (run.home / FILE).exists()
        host, old = page.host, page.cookie
    with open_page(run.home) as page:
        assert page.host != host and cookie_of(page, old)[0] == 401
    run.person = False
    assert "Only a person" in run("ui", "--forget", code=1).err


@pytest.mark.parametrize(
    "content", ["", "[]", "null", '{"host": "evil.example/", "port": 1, "readers": {}}', '{"host": 1}']
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
    program.write_text(f"import sys\nwith open({str(seen)!r}, 'w') as told:\n    told.write(sys.argv[1])\n")
    os.mkfifo(seen)
    _, terminal = pytest.importorskip("pty").openpty()
    environment = run.environment | {"BROWSER": f"{sys.executable} {program} %s", "EVOLVABLE_TEST_TERMINAL": "1"}
    with open_page(run.home):
        pass
    with run.start("ui", "--open", stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, env=environment) as process:
        try:
            address = seen.read_text()  # once the browser was started
            assert "token" not in address and address.startswith("file:")
            page = Path(urlsplit(address).path)
            assert stat.S_IMODE(page.stat().st_mode) == 0o600
            assert re.search(r"url=http://[0-9a-f]{16}\.localhost:\d+/open\?token=", page.read_text())
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("scripts", [True, False])
def test_a_browser_goes_from_the_file_to_the_page_and_reads_after_the_next_start(
    home: Path, browser: object, scripts: bool
) -> None:
    context = browser.new_context(java_script_enabled=scripts)  # type: ignore[attr-defined]
    tab = Tab(context)
    with open_page(home) as page:
        tab.page.goto(forwarding_page(home, page.server.access.new_link()).as_uri())
        tab.page.wait_for_selector("nav")
        tab.page.goto(f"{page.origin}/library")
        assert "pdf" in tab.page.inner_text("main")
    with open_page(home) as page:
        tab.page.goto(f"{page.origin}/library")
        assert "pdf" in tab.page.inner_text("main")
        number = page.propose("pdf", "1")
        tab.page.goto(f"{page.origin}/inbox/{number}")
        tab.page.click("button:has-text('Approve')")
        tab.page.wait_for_selector("text=may read, and decides nothing")
        assert page.library.store.backend.proposals.get(number).state == "open"
    context.close()
