"""The digest on Home, the overview of Learn, and a search that shows what fits and
folds the rest.
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from ags_place import AgsPlace, CountedBackend, host_of, item, plan_then_end, save_agent, scripted
from page_place import AGENT, PagePlace, open_page
from processes import poll

from evolvable_store.resource import Ref
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.verbs import edit


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PagePlace]:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / ".claude"))
    with open_page(tmp_path / "library") as place:
        yield place


def part_of(page: PagePlace, path: str, begin: str) -> str:
    """What stands on a page from this text on, once it was read beside the page."""
    poll(lambda: begin in page.get(path).text, begin)
    return page.get(path).text.partition(begin)[2]


def test_home_has_the_digest_and_each_line_leads_back(page: PagePlace) -> None:
    now = page.library.store.clock
    page.library.store.clock = lambda: now() - timedelta(days=8)
    page.create("pdf")
    page.library.store.clock = now
    changed = [TextEdit("SKILL.md", "two", "two, in order")]
    made = edit.update_resource(
        page.library, AGENT, Ref.parse("pdf"), "rows went <missing>", edits=changed
    )
    learned = part_of(page, "/", "What agents learned: 1")
    assert "rows went &lt;missing&gt;" in learned
    assert f'name="operation" value="{made.operation}"' in learned
    assert "What nobody used: 1" in learned and "evolvable remove skill:pdf" in learned
    assert page.post("/do/undo", operation=made.operation, back="/").status == 303
    poll(
        lambda: "What was taken back: 1" in page.get("/").text,
        "the digest after the undo",
        seconds=30,
    )


def test_learn_has_each_kind_with_its_next_step_and_stands_before_health(page: PagePlace) -> None:
    page.create("pdf")
    page.post("/do/learned", task="fill the form of the tax office", right="skill:pdf")
    text = part_of(page, "/learn", "Learned tasks: 1")
    assert "fill the form of the tax office" in text
    poll(lambda: "Versions on trial" in page.get("/learn").text, "the ledgers of evolution")
    shown = page.get("/learn").text
    for kind in (
        "Sessions",
        "Reviews",
        "Evolution",
        "Rounds",
        "Versions on trial",
        "Agents&#39; runs",
    ):
        assert f"<h2>{kind}" in shown, kind
    assert "evolvable evolve round" in shown and "evolvable lab ags run" in shown
    assert (
        shown.index('href="/learn"') < shown.index('href="/health"') < shown.index('href="/search"')
    )


def test_a_run_of_agents_shows_its_plan_its_bus_its_checks_and_the_rates_of_its_agents(
    page: PagePlace,
) -> None:
    place = AgsPlace(page.library, host_of())
    save_agent(page.library, "clerk", "You are the clerk.")
    plan = plan_then_end(
        item("first", check="greets"), item("second", "first", check="greets"), item("third")
    )
    folder = place.begin("Write <letters>.", checks={"greets": {}})
    backend = CountedBackend(passes=lambda job: job.task.id == "first")
    place.drive(folder, scripted(plan), backend, evidence=True)

    poll(lambda: f'href="/agents/{folder.id}"' in page.get("/learn").text, "the run in Learn")
    poll(lambda: "<h2>Bus" in page.get(f"/agents/{folder.id}").text, "the run")
    shown = page.get(f"/agents/{folder.id}").text

    assert "Write &lt;letters&gt;." in shown and "<letters>" not in shown
    assert "greets: passed" in shown and "greets: not passed" in shown and "third" in shown
    assert "1 of 2" in shown and "0.50 (0.09 to 0.91)" in shown
    assert "second is dispatched to agent:clerk@1" in shown and "ended: done" in shown
    assert f'href="/resource/environment:ags-{folder.id}"' in shown
    assert page.get("/agents/none").status == 404


def test_a_search_shows_what_fits_and_folds_the_rest(page: PagePlace) -> None:
    for name in ("invoices", "gardens", "bridges"):
        page.create(name, f"How to look after {name}.")
    text = page.get("/search?task=work+with+invoices+files").text
    first = text.partition("<details")[0]
    assert "skill:invoices" in first and "How the search came to it" not in first
    assert "skill:" not in page.get("/search?task=tune+a+violin").text.partition("<details")[0]
