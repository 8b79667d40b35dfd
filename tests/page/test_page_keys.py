"""Keys and clicks of the local page in a real Chromium: each decides about what the person sees, or
about nothing.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Tab
from command_line import CommandLine
from page_place import PERSON, PagePlace, open_page

from evolvable_server.person_config import read_person_config
from evolvable_store.resource import Ref
from evolvable_tools.approvals_lock import ApprovalsLock
from evolvable_tools.verbs import edit

pytestmark = pytest.mark.process


@pytest.fixture
def page(tmp_path: Path) -> Iterator[PagePlace]:
    with open_page(tmp_path / "library") as place:
        yield place


def propose(page: PagePlace, count: int, session: str = "session-1") -> list[int]:
    for number in range(count):
        page.create(f"skill-{number}")
    return [
        page.propose(f"skill-{number}", f"text {number}", session=session)
        for number in range(count)
    ]


def states(page: PagePlace, numbers: list[int]) -> list[str]:
    return [page.library.store.backend.proposals.get(number).state for number in numbers]


def opened(browser: Any, page: PagePlace, path: str = "/inbox") -> Any:
    """Return a tab at an address of the page, live, and seen for long enough to be
    decided about.
    """
    tab = Tab(browser.new_context())
    tab.open(page.server.access.new_link())
    tab.open(f"http://{page.host}{path}")
    wait_until_seen(tab.page)
    return tab.page


def without_scripts(browser: Any, page: PagePlace, path: str = "/inbox") -> Any:
    tab = browser.new_context(java_script_enabled=False).new_page()
    tab.goto(page.server.access.new_link())
    tab.goto(f"http://{page.host}{path}")
    return tab


def wait_until_seen(tab: Any) -> None:
    """The page decides nothing about what it has shown for a shorter time."""
    tab.wait_for_timeout(300)


def focused(tab: Any) -> str:
    return str(tab.evaluate("document.activeElement.id || document.activeElement.tagName"))


def decided(tab: Any, number: int) -> None:
    tab.wait_for_selector(f"#done:has-text('Proposal {number} is')")


def test_rejecting_by_keys_three_times_in_a_row_rejects_three(
    browser: Any, page: PagePlace
) -> None:
    numbers = propose(page, 4)
    tab = opened(browser, page)
    for number in numbers[:3]:
        tab.keyboard.press("r")
        tab.keyboard.type("dangerous")
        tab.keyboard.press("Enter")
        decided(tab, number)
        assert focused(tab) == "queue"
        assert tab.locator("#reason").input_value() == ""
        wait_until_seen(tab)
    assert states(page, numbers) == ["rejected", "rejected", "rejected", "open"]
    assert {
        one.decision for one in page.library.store.backend.proposals.in_state("rejected", 9)
    } == {"dangerous"}
    tab.keyboard.press("u")
    tab.wait_for_selector(f"#done:has-text('Proposal {numbers[2]} waits again')")
    assert states(page, numbers) == ["rejected", "rejected", "open", "open"]


@pytest.mark.parametrize(
    "start", [opened, without_scripts], ids=["with JavaScript", "without JavaScript"]
)
def test_enter_in_a_field_that_was_clicked_decides_nothing(
    browser: Any, page: PagePlace, start: Callable[[Any, PagePlace, str], Any]
) -> None:
    numbers = propose(page, 2, "bulk")
    tab = start(browser, page, "/inbox")
    for path in (f"/inbox/{numbers[0]}", f"/inbox/{numbers[0]}/edit", "/inbox/session/bulk"):
        tab.goto(f"http://{page.host}{path}")
        for summary in tab.locator("main details:not([open]) > summary").all():
            summary.click()
        fields = tab.locator("main input[name=reason]:visible")
        assert fields.count()
        for field in fields.all():
            field.click()
            tab.keyboard.type("do not do this")
            for _ in range(2):
                tab.keyboard.press("Enter")
        assert tab.url.endswith(path) and not tab.locator("#done").count()
    tab.goto(f"http://{page.host}/search?task=skill")
    tab.locator("#correct summary").click()
    tab.locator("input[name=right][type=text]").click()
    tab.keyboard.type("skill:skill-0")
    tab.keyboard.press("Enter")
    tab.locator("input[name=task]").first.click()  # a search decides nothing: Enter sends it
    tab.keyboard.type("s")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/search?task=*s&**")
    heads = [head.id for head in page.library.store.heads()]
    assert states(page, numbers) == ["open", "open"]
    assert not any(page.library.store.backend.learned.tasks_of(heads).values())


def test_the_key_for_rejecting_holds_until_the_field_is_left(browser: Any, page: PagePlace) -> None:
    numbers = propose(page, 1)
    tab = opened(browser, page)
    for leave in (lambda: tab.keyboard.press("Escape"), lambda: tab.locator("h1").click()):
        tab.keyboard.press("r")
        assert "Enter rejects" in tab.locator("#reason").get_attribute("placeholder")
        leave()
        assert not tab.locator("#reason").get_attribute("placeholder")
        tab.locator("#reason").click()
        tab.keyboard.press("Enter")
        tab.keyboard.press("Escape")
        wait_until_seen(tab)
    assert states(page, numbers) == ["open"]


def test_a_button_that_is_pressed_again_and_again_decides_about_one_proposal(
    browser: Any, page: PagePlace
) -> None:
    numbers = propose(page, 3)
    tab = opened(browser, page)
    tab.locator("#approve").focus()
    tab.keyboard.press("Enter")
    decided(tab, numbers[0])
    for _ in range(4):
        wait_until_seen(tab)
        tab.keyboard.press("Enter")
        tab.keyboard.press("Space")
    assert focused(tab) == "queue" and tab.locator("#done").count() == 1
    tab.locator("#reject").dblclick()
    decided(tab, numbers[1])
    tab.wait_for_timeout(500)
    assert states(page, numbers) == ["approved", "rejected", "open"]


def test_a_click_that_comes_again_at_the_same_place_decides_about_one_proposal(
    browser: Any, page: PagePlace
) -> None:
    numbers = propose(page, 4)
    # The buttons stay where they are.
    tab = opened(browser, page, f"/inbox/{numbers[1]}?done={numbers[0]}")
    tab.evaluate(
        """() => addEventListener(
            "htmx:after:swap", () => document.querySelector("#approve").click(), { once: true }
        )"""
    )
    tab.locator("#approve").click()
    decided(tab, numbers[1])
    tab.wait_for_timeout(500)
    assert states(page, numbers) == ["open", "approved", "open", "open"]


def test_clicks_that_follow_the_page_at_once_are_not_lost(browser: Any, page: PagePlace) -> None:
    numbers = propose(page, 2)
    tab = Tab(browser.new_context()).page
    tab.goto(page.server.access.new_link())
    tab.locator("#waits a.button").click()
    tab.locator("#reject").click()
    decided(tab, numbers[0])
    tab.locator("#undo").click()
    tab.wait_for_selector(f"#done:has-text('Proposal {numbers[0]} waits again')")
    tab.locator("#approve").click()
    tab.wait_for_selector(f"#done:has-text('Proposal {numbers[0]} is approved')")
    assert states(page, numbers) == ["approved", "open"]


def test_a_decision_key_that_is_held_down_or_pressed_at_once_again_decides_about_one_proposal(
    browser: Any, page: PagePlace
) -> None:
    numbers = propose(page, 3)
    tab = opened(browser, page)
    for _ in range(30):
        tab.keyboard.down("a")  # after the first, as a key that is held down
        tab.wait_for_timeout(30)
    tab.keyboard.up("a")
    # As a terminal server sends a key that is held down.
    tab.evaluate(
        """async () => {
            for (let press = 0; press < 30; press += 1) {
                const key = new KeyboardEvent("keydown", { key: "a", bubbles: true });
                document.body.dispatchEvent(key);
                await new Promise((go) => setTimeout(go, 30));
            }
        }"""
    )
    assert states(page, numbers) == ["approved", "open", "open"]


def test_words_that_are_typed_on_while_a_decision_is_sent_decide_nothing_more(
    browser: Any, page: PagePlace
) -> None:
    numbers = propose(page, 3)
    tab = opened(browser, page)
    tab.keyboard.press("r")
    tab.keyboard.type("no")
    tab.keyboard.press("Enter")
    tab.keyboard.type("are a rather bad idea, as a rule" * 2, delay=20)
    tab.keyboard.press("Enter")
    assert states(page, numbers) == ["rejected", "open", "open"]
    assert tab.locator("#reason").input_value() == ""


def test_taking_back_by_key_twice_takes_back_once(browser: Any, page: PagePlace) -> None:
    numbers = propose(page, 1)
    tab = opened(browser, page)
    tab.keyboard.press("a")
    decided(tab, numbers[0])
    assert focused(tab) == "main"  # no list is left
    wait_until_seen(tab)
    tab.keyboard.press("u")
    tab.wait_for_selector("#done:has-text('took back operation')")
    made = page.library.store.operations(9)
    for _ in range(3):
        wait_until_seen(tab)
        tab.keyboard.press("u")
    assert page.library.store.operations(9) == made
    assert b"text 0" not in page.library.store.file(page.library.store.heads()[0], "SKILL.md").data


def test_a_proposal_that_another_window_decided_stays_as_it_was_decided(
    browser: Any, page: PagePlace
) -> None:
    numbers = propose(page, 2)
    tab = without_scripts(browser, page, f"/inbox/{numbers[0]}")
    page.post("/do/inbox-approve", number=numbers[0])
    tab.locator("#reject").click()
    assert f"Proposal {numbers[0]} is approved already" in tab.inner_text("main")
    live = opened(browser, page, f"/inbox/{numbers[1]}")
    live.keyboard.press("r")
    live.keyboard.type("I was typing")
    page.post("/do/inbox-approve", number=numbers[1])
    live.wait_for_selector("html[data-refreshed]")
    live.keyboard.press("Enter")
    live.wait_for_selector(f"text=Proposal {numbers[1]} is approved already; nothing was rejected.")
    assert states(page, numbers) == ["approved", "approved"]


def test_a_double_click_takes_one_operation_back(browser: Any, page: PagePlace) -> None:
    page.create("pdf")
    for text in ("2", "3"):
        page.post("/do/inbox-approve", number=page.propose("pdf", text))
    tab = opened(browser, page, "/operations")
    tab.locator("td button").first.dblclick()
    tab.wait_for_selector("#done:has-text('took back operation')")
    tab.wait_for_timeout(500)
    assert [one.intent.undoes for one in page.library.store.operations(9)] == [(3,), (), (), ()]


def test_a_row_that_came_under_the_pointer_at_this_moment_is_not_taken_back(
    browser: Any, page: PagePlace
) -> None:
    page.create("pdf")
    tab = opened(browser, page, "/operations")
    tab.evaluate(
        """() => new MutationObserver(() => {
            const { dataset } = document.documentElement;
            if (dataset.clicked || !document.querySelector("#operation-2")) return;
            dataset.clicked = "1";
            document.querySelector("#operations td button").click();
        }).observe(document.querySelector("main"), { childList: true, subtree: true })"""
    )
    edit.remove_resource(page.library, PERSON, Ref.parse("skill:pdf"), "not needed")
    tab.wait_for_selector("html[data-clicked]")
    tab.wait_for_timeout(500)
    assert len(page.library.store.operations(9)) == 2 and tab.url.endswith("/operations")
    tab.locator("#operations td button").first.click()
    tab.wait_for_selector("#done:has-text('took back operation 2')")


def test_the_key_for_approving_asks_for_the_passphrase_of_a_lock_and_enter_then_approves(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evolvable = CommandLine(tmp_path)
    monkeypatch.setenv("EVOLVABLE_TEST_ACCOUNT", str(evolvable.user))
    evolvable("approvals", "lock", stdin="correct horse\ncorrect horse\n")
    with open_page(evolvable.home, lock=ApprovalsLock(read_person_config().lock_key)) as page:
        numbers = propose(page, 2)
        tab = opened(browser, page)
        tab.locator("input[name=passphrase]").click()
        tab.keyboard.type("correct horse")
        tab.keyboard.press("Enter")
        tab.keyboard.press("Escape")
        assert states(page, numbers) == ["open", "open"]
        tab.locator("input[name=passphrase]").fill("")
        tab.keyboard.press("Escape")
        wait_until_seen(tab)
        tab.keyboard.press("a")
        tab.keyboard.type("correct horse")
        tab.keyboard.press("Enter")
        decided(tab, numbers[0])
        assert focused(tab) == "queue" and states(page, numbers) == ["approved", "open"]
