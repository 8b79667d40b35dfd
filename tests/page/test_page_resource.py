"""A resource is edited in place, with the rules of the terminal: nothing that a person wrote is
lost.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from delegated_sessions import put_office, work_opposed
from page_place import PERSON, PagePlace, open_page, skill_text

from evolvable_store.resource import Ref
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.verbs import edit


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagePlace]:
    with open_page(tmp_path_factory.mktemp("page") / "library") as place:
        yield place


def form_of(page: PagePlace, name: str) -> dict[str, str]:
    shown = page.get(f"/resource/skill:{name}?edit=1&path=SKILL.md")
    return {field: shown.field(field) for field in ("ref", "file", "expected", "once")}


def text_of(page: PagePlace, name: str) -> str:
    return page.library.store.file(
        page.library.store.head(Ref.parse(name)), "SKILL.md"
    ).data.decode()


def test_what_the_person_saved_is_a_version_of_theirs_with_their_reason(page: PagePlace) -> None:
    page.create("saved")
    done = page.post(
        "/do/edit", **form_of(page, "saved"), text=skill_text("saved", "mine"), reason="clearer"
    )
    assert done.status == 303 and "mine" in text_of(page, "saved")
    made = page.library.store.operations(1)[0]
    assert (made.principal, made.intent.via, made.intent.reason) == ("person", "page", "clearer")
    assert "Take it back" in page.get(done.location).text


def test_what_the_library_does_not_take_is_shown_again_with_the_reason_and_the_text(
    page: PagePlace,
) -> None:
    page.create("refused")
    refused = page.post(
        "/do/edit", **form_of(page, "refused"), text=skill_text("refused", "my <words>\x01")
    )
    assert refused.status == 400
    assert "Nothing was saved" in refused.text
    assert "my &lt;words&gt;" in refused.text
    assert "control character" in refused.text
    mended = page.post(
        "/do/edit", **form_of(page, "refused"), text=skill_text("refused", "my words")
    )
    assert mended.status == 303 and "my words" in text_of(page, "refused")


def test_a_text_of_an_older_version_is_shown_again_with_what_changed_since(page: PagePlace) -> None:
    page.create("moved")
    fields = form_of(page, "moved")
    edit.update_resource(
        page.library, PERSON, Ref.parse("moved"), "other", edits=[TextEdit("SKILL.md", "two", "2")]
    )
    late = page.post("/do/edit", **fields, text=skill_text("moved", "my words"))
    assert late.status == 409
    assert "What changed from version 1 to 2" in late.text
    assert "my words" in late.text
    assert "my words" not in text_of(page, "moved") and late.field("expected") == "2"
    again = page.post(
        "/do/edit", **fields | {"expected": "2"}, text=skill_text("moved", "my words")
    )
    assert again.status == 303 and "my words" in text_of(page, "moved")


def test_a_secret_and_a_flaw_in_what_was_saved_are_named_as_at_the_terminal(
    page: PagePlace,
) -> None:
    page.create("leaky")
    body = "The key is ghp_" + "Zq7Kp2Vw9Rt4Yb6NmXc8Ld3Fg5Hj1Sa0TeUi"
    done = page.post("/do/edit", **form_of(page, "leaky"), text=skill_text("leaky", body))
    assert "evolvable care purge --secret ID" in page.get(done.location).text
    done = page.post(
        "/do/edit", **form_of(page, "leaky"), text="---\nname: leaky\n---\n\nno description\n"
    )
    assert "it has no description" in page.get(done.location).text


def test_a_removed_a_frozen_and_an_older_version_offer_no_edit(page: PagePlace) -> None:
    page.create("old")
    edit.update_resource(
        page.library, PERSON, Ref.parse("old"), "other", edits=[TextEdit("SKILL.md", "two", "2")]
    )
    assert 'id="edit"' in page.get("/resource/skill:old").text
    assert "<textarea" not in page.get("/resource/skill:old?edit=1&version=1").text
    assert 'id="edit"' not in page.get("/resource/skill:old?version=1").text
    edit.remove_resource(page.library, PERSON, Ref.parse("old"), "gone")
    assert 'id="edit"' not in page.get("/resource/skill:old").text
    assert (
        page.post("/do/edit", ref="skill:old", file="SKILL.md", expected="2", text="x").status
        == 400
    )


@pytest.mark.process
def test_the_work_of_each_agent_by_a_skill_is_shown_by_task_type(
    page: PagePlace, tmp_path: Path
) -> None:
    put_office(page.library, tmp_path)
    work_opposed(page.library, tmp_path)
    shown = page.get("/resource/skill:filing").text
    assert "By task type" in shown and "By agent and task type" in shown
    rows = shown[shown.index("Verified work by agent and task type") :]
    order = [
        "agent:clerk",
        "convert documents",
        "0 of 6",
        "agent:clerk",
        "fix python",
        "6 of 6",
        "agent:scribe",
    ]
    at = 0
    for words in order:
        at = rows.index(words, at) + 1
    mine = page.get("/resource/agent:scribe").text
    assert "By agent and task type" in mine
    assert "agent:clerk" not in mine[mine.index("By agent and task type") :]
    page.create("untold")
    assert "task type" not in page.get("/resource/skill:untold").text


@pytest.mark.process
@pytest.mark.parametrize("scripts", [True, False], ids=["by keys", "without JavaScript"])
@pytest.mark.parametrize("width", [1440, 375])
def test_a_skill_is_edited_and_taken_back_in_the_browser(
    browser: Any, page: PagePlace, scripts: bool, width: int
) -> None:
    name = f"browsed-{width}-{scripts}".lower()
    page.create(name)
    tab = browser.new_context(
        viewport={"width": width, "height": 812}, java_script_enabled=scripts
    ).new_page()
    tab.goto(page.server.access.new_link())
    tab.goto(f"{page.origin}/resource/skill:{name}")
    if scripts:
        tab.wait_for_selector("html[data-live]")
        tab.wait_for_timeout(300)  # a key that comes at once counts as one of the page before
        tab.keyboard.press("e")
    else:
        tab.click("#edit")
    tab.locator("textarea").fill(skill_text(name, "my own words"))
    tab.locator("button.good").focus()
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#done:has-text('edited in the local page')")
    assert "my own words" in text_of(page, name)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if scripts:
        tab.wait_for_timeout(300)  # what was shown for a shorter time is not decided about
    tab.locator("#done button").click()
    tab.wait_for_selector("#done:has-text('took back operation')")
    assert "my own words" not in text_of(page, name)
