"""The library as a person reads it: one line a skill, filtered, sorted, and several chosen for one
action.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from page_place import AGENT, PERSON, PagePlace, open_page, skill_text
from processes import poll

from evolvable_store.resource import Ref
from evolvable_store.storage.evidence import Outcome
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.verbs import edit, list_collections, load

NAMES = [
    f"{first}-{second}"
    for first in ("css", "data", "git", "log", "pdf")
    for second in ("a", "b", "c", "d", "e")
]

SCRIPTS = pytest.mark.parametrize(
    "scripts", [True, False], ids=["with JavaScript", "without JavaScript"]
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagePlace]:
    """Twenty-five skills; an agent changed one and used another."""
    with open_page(tmp_path_factory.mktemp("page") / "library") as place:
        for name in NAMES:
            long = (
                f"Works on {name} and on all that comes with it, and checks the result against "
                "what was asked."
            )
            files = {"SKILL.md": skill_text(name, description=long).encode()}
            edit.update_resource(
                place.library, PERSON, Ref.parse(name), "made", files=files, create=True
            )
        changed = [TextEdit("SKILL.md", "two", "two, and look")]
        edit.update_resource(place.library, AGENT, Ref.parse("git-c"), "needed", edits=changed)
        use = load.load_skill(place.library, AGENT, Ref.parse("pdf-e"))
        load.report_outcome(place.library, AGENT, outcome=Outcome.SUCCEEDED, use_id=use.use_id)
        yield place


def opened(
    browser: Any, page: PagePlace, path: str, *, scripts: bool, width: int = 1440, height: int = 900
) -> Any:
    tab = browser.new_context(
        viewport={"width": width, "height": height}, java_script_enabled=scripts
    ).new_page()
    tab.goto(page.server.access.new_link())
    tab.goto(f"{page.origin}{path}")
    if scripts:
        tab.wait_for_selector("html[data-live]")
    return tab


def names(tab: Any) -> list[str]:
    return list(tab.locator(".list strong").all_inner_texts())


@pytest.mark.process
def test_a_phone_shows_twenty_skills_on_one_screen_with_targets_of_at_least_24_pixels(
    browser: Any, page: PagePlace
) -> None:
    tab = opened(browser, page, "/library", scripts=True, width=375, height=812)
    rows = tab.locator(".list > li").all()
    boxes = [
        [part.bounding_box() for part in (row, row.locator(".pick"), row.locator("a"))]
        for row in rows[:20]
    ]
    assert len(boxes) == 20 and all(
        row["y"] >= 0 and row["y"] + row["height"] <= 812 for row, _, _ in boxes
    )
    assert all(
        part["height"] >= 24 and part["width"] >= 24 for _, *parts in boxes for part in parts
    )
    assert all(one.bounding_box()["height"] >= 24 for one in tab.locator(".chips a").all())
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.process
def test_the_list_is_filtered_as_one_types_and_the_field_keeps_the_focus(
    browser: Any, page: PagePlace
) -> None:
    tab = opened(browser, page, "/library", scripts=True)
    tab.keyboard.press("/")
    tab.keyboard.type("css", delay=20)
    tab.wait_for_selector(".list > li:nth-child(5):last-child")
    assert set(names(tab)) == {name for name in NAMES if name.startswith("css")}
    tab.wait_for_url("**/library?q=css*")
    assert tab.evaluate("document.activeElement.name") == "q"
    tab.locator(".chips a", has_text="prompt").click()
    tab.wait_for_selector("main:has-text('Nothing fits')")
    assert "q=css" in tab.url and "kind=prompt" in tab.url


@pytest.mark.process
@SCRIPTS
def test_several_that_are_chosen_are_removed_by_one_operation_which_is_taken_back(
    browser: Any, page: PagePlace, scripts: bool
) -> None:
    tab = opened(browser, page, "/library", scripts=scripts)
    assert not tab.locator(".bulk").is_visible()
    for name in ("log-a", "log-b"):
        tab.locator(f"input[aria-label='{name}']").check()
    tab.locator("button", has_text="Remove them").click()
    tab.wait_for_selector("#done:has-text('2 removed in the local page')")
    assert not {"log-a", "log-b"} & set(names(tab))
    if scripts:
        tab.wait_for_timeout(300)  # what was shown for a shorter time is not decided about
    tab.locator("#done button").click()
    tab.wait_for_selector("#done:has-text('took back operation')")
    assert {f"log-{one}" for one in "ab"} <= {head.name for head in page.library.store.heads()}


def test_the_list_is_sorted_and_filtered_by_author_without_javascript(page: PagePlace) -> None:
    def listed(query: str) -> list[str]:
        # The orders are made beside the page; until then it says so.
        poll(
            lambda: 'id="reading-list"' not in page.get(f"/library?{query}").text, "the sorted list"
        )
        return re.findall("<strong>([a-z-]+)</strong>", page.get(f"/library?{query}").text)

    assert listed("sort=used")[0] == listed("sort=helped")[0] == "pdf-e"
    changed = listed("sort=changed")
    assert changed.index("git-c") < changed.index("pdf-e") < changed.index("css-a")
    assert len(changed) == 25
    agents = page.get("/library?author=agent").text
    assert agents.count('name="pick"') == 1 and "git-c" in agents
    assert page.get("/library?q=css&sort=used").text.count('name="pick"') == 5
    assert page.get("/library?sort=nonsense").status == 400
    assert page.get("/library?kind=nonsense").status == 400
    plain = page.get("/library?q=css").text
    assert '<noscript><button type="submit">Filter' in plain


def test_several_that_are_chosen_go_into_a_collection_and_nothing_chosen_does_nothing(
    page: PagePlace,
) -> None:
    pick = ["skill:css-a@1", "skill:css-b@1"]
    assert page.post("/do/collection-add", pick=pick, collection="work").status == 303
    assert [(one.name, len(one.refs)) for one in list_collections(page.library)] == [("work", 2)]
    before = page.library.store.sequence()
    assert page.post("/do/remove", back="/library").status == 400
    assert page.post("/do/remove", pick=["skill:css-a@1", "skill:git-c@1"]).status == 409, (
        "another version is there"
    )
    assert page.post("/do/remove", pick=["skill:css-a@1", "skill:nothing@1"]).status == 404
    assert page.library.store.sequence() == before, "all of it or nothing"
