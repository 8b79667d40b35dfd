"""The local page: the person decides there as at a terminal, and nobody else gets in."""

import asyncio
import http.client
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from evolve_runs import running, scripted, skill, task
from page_place import AGENT, PERSON, PagePlace, open_page, skill_text
from processes import poll

from evolvable_evolve.evolution.candidates import programs
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.task import Split
from evolvable_page import library_pages
from evolvable_page.site import PageAction, PageView
from evolvable_store.operation import Identity, Principal
from evolvable_store.resource import Ref
from evolvable_tools.verbs import edit, load


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagePlace]:
    with open_page(tmp_path_factory.mktemp("page") / "library") as place:
        place.create("pdf")
        yield place


def test_an_approved_proposal_is_the_persons_operation_and_one_button_takes_it_back(
    page: PagePlace,
) -> None:
    number = page.propose("pdf", "one\n\ntwo words\n\nthree", "more is clearer")
    shown = page.get(f"/inbox/{number}")
    assert "more is clearer" in shown.text
    assert "two<ins> words</ins>" in shown.text
    done = page.post("/do/inbox-approve", number=number, seen=shown.field("seen"), reason="fine")
    assert (done.status, done.location) == (303, f"/inbox?done={number}")
    made = page.library.store.operations(1)[0]
    assert (made.principal, made.intent.via, made.intent.reason) == ("person", "page", "fine")
    banner = page.get(done.location)
    undone = page.post("/do/undo", operation=banner.field("operation"), back="/inbox")
    assert "took back operation" in page.get(undone.location.replace("/inbox", "/operations")).text
    assert b"words" not in page.library.store.file(page.library.store.heads()[0], "SKILL.md").data


def test_a_rejection_is_taken_back_and_the_proposal_waits_again(page: PagePlace) -> None:
    number = page.propose("pdf", "1")
    page.post("/do/inbox-reject", number=number, reason="too short")
    assert page.library.store.backend.proposals.get(number).state == "rejected"
    page.post("/do/inbox-reopen", number=number)
    assert page.library.store.backend.proposals.get(number).state == "open"
    page.post("/do/inbox-reject", number=number)


def test_an_answer_does_not_wait_for_the_browser_to_acknowledge_its_head(page: PagePlace) -> None:
    """Such a wait is 40 ms on Linux, from the second or third request of a connection on."""
    connection, took = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20), list[float]()
    for _ in range(30):
        begun = time.perf_counter()
        connection.request("GET", "/sessions", headers={"Host": page.host, "Cookie": page.cookie})
        assert connection.getresponse().read()
        took.append(time.perf_counter() - begun)
    connection.close()

    assert min(took[10:]) < 0.038


def test_an_open_page_is_told_of_a_change_and_of_a_run_that_goes_on(page: PagePlace) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    connection.request("GET", "/live", headers={"Host": page.host, "Cookie": page.cookie})
    stream = connection.getresponse()
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert event(stream) == "hello"
    page.propose("pdf", "changed again")
    assert event(stream) == "change"
    ledger = page.library.store.home / "evolve/20260101-000000-abcd/ledger.jsonl"
    ledger.parent.mkdir(parents=True)
    ledger.write_text("{}\n", encoding="utf-8")
    assert event(stream) == "change"
    connection.close()


def event(stream: http.client.HTTPResponse) -> str:
    while not (line := stream.readline()).startswith(b"event: "):
        assert line
    return line[7:].strip().decode()


def test_an_address_that_is_no_page_says_so_and_leads_back(page: PagePlace) -> None:
    shown = page.get("/nothing/<b>here")
    assert shown.status == 404
    assert "/nothing/&lt;b&gt;here" in shown.text and 'href="/inbox"' in shown.text
    assert "<h1>Not found</h1>" in shown.text


@pytest.mark.process
def test_a_defect_is_a_page_that_says_what_is_certain_and_the_next_request_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> str:
        raise ValueError("secret detail")

    # The page has no defect that is known, so it is given one.
    monkeypatch.setattr(library_pages, "VIEWS", (*library_pages.VIEWS, PageView("/broken", broken)))
    monkeypatch.setattr(library_pages, "ACTIONS", (PageAction("learned", broken),))
    with open_page(tmp_path / "library") as page:
        shown, acted = page.get("/broken"), page.post(library_pages.ACTIONS[-1].path)
        assert (shown.status, acted.status, page.get("/inbox").status) == (500, 500, 200)
        with sqlite3.connect(page.library.store.home / "library.db") as db:
            db.execute("ALTER TABLE proposal RENAME TO gone")
        assert page.get("/inbox").status == 500
    assert "Nothing was changed." in shown.text and "Look at Operations" in acted.text
    assert "secret detail" not in shown.text + acted.text and "secret detail" in caplog.text


@pytest.mark.process
def test_a_promoted_run_waits_in_the_inbox_with_its_gain_until_it_is_adopted(
    tmp_path: Path,
) -> None:
    forms = Ref.parse("skill:user/forms")
    splits = {Split.TRAIN: 6, Split.VAL: 6, Split.TEST: 12}
    tasks = {
        split: [task(split, n, *(["needs:iso"] if n % 4 != 1 else [])) for n in range(size)]
        for split, size in splits.items()
    }
    with open_page(tmp_path / "library") as page:
        assert "Results of evolution" not in page.get("/inbox").text
        edit.update_resource(
            page.library, PERSON, forms, "new", files={"SKILL.md": skill("forms")}, create=True
        )
        base, pins = programs.load_program(page.library, PERSON, [forms])
        settings = RunSettings(
            "environment:made-up", program=tuple(pins), iterations=1, test_repeats=1
        )
        folder = page.library.store.home / "evolve/20260101-000000-abcd"
        with running(
            folder, base, scripted([("Change it", ["rule: iso"])]), tasks, settings
        ) as made:
            asyncio.run(run_phases(made))
        poll(lambda: "Results of evolution" in page.get("/inbox").text, "the run in the inbox")
        waits = page.get("/inbox").text
        assert "simulated" in waits and "points (95 % +" in waits
        seen = page.get("/evolution/20260101-000000-abcd/adopt")
        fields = {"run": seen.field("run"), "candidate": seen.field("candidate")}
        adopted = page.post("/do/evolve-adopt", **fields)
        assert adopted.status == 303
        poll(
            lambda: "Take it back" in page.get(adopted.location).text,
            "the ledger with what was adopted",
        )
        poll(
            lambda: "Results of evolution" not in page.get("/inbox").text,
            "the inbox without the run",
        )


def watch_skills_of_claude_code(page: PagePlace, home: Path, count: int) -> Path:
    """Have the page's library watch ~/.claude/skills below `home` with long descriptions; return
    the settings' path.
    """
    folder = home / ".claude/skills"
    for number in range(count):
        (folder / f"long-{number}").mkdir(parents=True)
        text = skill_text(f"long-{number}", description=f"{number} " + "word " * 300)
        (folder / f"long-{number}/SKILL.md").write_text(text, encoding="utf-8")
    page.library.working_copies.add(folder, identity=Identity(Principal.PERSON, "terminal"))
    return home / ".claude/settings.json"


def list_of_claude_code(page: PagePlace, count: int) -> str:
    """Return the view of what Claude Code lists, when it was read."""
    poll(lambda: f"{count} skills, " in page.get("/library?view=budget").text, "the list")
    return page.get("/library?view=budget").text


def test_the_library_names_the_skills_that_lose_their_description_in_a_clients_own_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with open_page(tmp_path / "library") as page:
        page.create("only-in-the-library")
        watch_skills_of_claude_code(page, tmp_path, 7)
        for _ in range(2):
            use = load.load_skill(page.library, AGENT, Ref.parse("long-6"))
            load.report_outcome(page.library, AGENT, outcome="succeeded", use_id=use.use_id)
        shown = list_of_claude_code(page, 7)
    assert "7 skills, 10,5" in shown and "of 8,000 characters: 2 lose their description." in shown
    assert ">skill:long-4<" in shown and ">skill:long-5<" in shown
    assert ">skill:long-6<" not in shown and "only-in-the-library" not in shown


def test_a_collection_that_is_made_and_used_on_the_page_decides_the_clients_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with open_page(tmp_path / "library") as page:
        settings = watch_skills_of_claude_code(page, tmp_path, 7)
        list_of_claude_code(page, 7)
        new = page.get("/library?view=budget&collection=%2B").text
        assert new.count(" checked") == 5 and 'value="skill:long-6"' in new
        stored = page.post(
            "/do/collection-add", name="work", skill=["skill:long-5", "skill:long-6"]
        )
        assert (stored.status, stored.location) == (303, "/library?view=budget")
        poll(lambda: "List alone the collection" in page.get("/").text, "the choice on Home")
        assert '<option value="work"' in page.get("/").text
        page.post("/do/collection-use", name="work", settings=str(settings))
        hidden = json.loads(settings.read_text(encoding="utf-8"))["skillOverrides"]
        assert hidden.keys() == {f"long-{number}" for number in range(5)}
        used = page.get("/library?view=budget").text
        assert "2 skills, 3,0" in used and "all keep their description" in used
        assert "5 more are found by find_skill" in used
        page.post("/do/collection-add", known="work", skill=["skill:long-0"])
        [left] = page.library.store.backend.collections.members()["work"]
        assert left == page.library.store.head(Ref.parse("long-0")).id
        page.post("/do/collection-stop", settings=str(settings))
        assert json.loads(settings.read_text(encoding="utf-8")) == {}
        page.post("/do/collection-remove", name="work")
        assert page.library.store.backend.collections.members() == {}
        assert "A collection is a set of skills" in page.get("/library?view=budget").text


def test_a_form_of_a_collection_names_no_other_settings_and_no_other_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with open_page(tmp_path / "library") as page:
        settings = watch_skills_of_claude_code(page, tmp_path, 2)
        list_of_claude_code(page, 2)
        page.post("/do/collection-add", name="work", skill=["skill:long-1"])
        other = tmp_path / "other.json"
        assert page.post("/do/collection-use", name="work", settings=str(other)).status == 400
        assert (
            page.post("/do/collection-use", csrf="no", name="work", settings=str(settings)).status
            == 403
        )
        assert (
            page.post("/do/collection-use", name="<script>", settings=str(settings)).status == 404
        )
        assert page.post("/do/collection-add", name="<b>", skill=["skill:long-1"]).status == 400
        assert page.get("/library?view=budget&collection=%3Cb%3E").status == 400
        assert not settings.exists() and not other.exists()


def test_an_empty_inbox_says_how_the_first_proposal_comes_until_one_was_decided(
    tmp_path: Path,
) -> None:
    with open_page(tmp_path / "library") as page:
        page.create("pdf")
        asked = page.get("/inbox").text
        page.post("/do/inbox-reject", number=page.propose("pdf", "1"), reason="no")
        decided = page.get("/inbox").text

    assert "Read skill:pdf with" in asked and "one improvement" in asked
    assert "Nothing waits for a decision" in decided and "Propose one improvement" not in decided
