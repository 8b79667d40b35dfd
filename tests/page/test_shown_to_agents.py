"""What counts as shown: what an agent read in an answer or an offer, and no search of
anybody else.
"""

import json
from pathlib import Path

import pytest
from answers import best_of
from command_line import CommandLine, skill_text
from mcp_place import Place
from page_place import open_page
from transcripts import LoadSkill, Says, User, session_id, write_claude_code

from evolvable_server.config import Config
from evolvable_server.hooks.dispatch import HookDispatcher
from evolvable_store.operation import Actor
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library

TASK = "merge and split PDF forms"


def impressions(home: Path) -> int:
    """Return how often anything was shown to an agent."""
    with Library.open(home) as library:
        return sum(
            one.times for one in library.store.backend.evidence.count_impressions("").values()
        )


@pytest.fixture
def run(tmp_path: Path) -> CommandLine:
    """A machine whose library has one skill of Claude Code's folder."""
    run = CommandLine(tmp_path)
    run.save(
        run.user / ".claude/skills", "pdf", skill_text("pdf", "Merge, split and fill PDF forms.")
    )
    run("init", "--yes")
    return run


def test_what_a_person_finds_at_a_terminal_is_shown_to_no_agent(run: CommandLine) -> None:
    assert "skill:pdf" in run("find", TASK).out

    assert impressions(run.home) == 0


def test_what_an_agent_finds_in_its_shell_is_shown_to_it_each_time(run: CommandLine) -> None:
    run.person = False
    answers = [run("find", TASK, "--json").json for _ in range(2)]

    assert answers[0] == answers[1] | {"search_id": answers[0]["search_id"]}
    assert impressions(run.home) == 2


def test_what_the_client_of_a_review_or_a_trial_finds_is_shown_to_no_agent(
    run: CommandLine,
) -> None:
    run.person = False
    assert "skill:pdf" in run("find", TASK, EVOLVABLE_REVIEWING="1").out

    assert impressions(run.home) == 0


@pytest.mark.process
def test_six_reviews_of_sessions_with_a_skill_show_it_to_no_agent_and_it_is_not_dead(
    run: CommandLine,
) -> None:
    run.person = False
    for number in range(6):
        events = [
            User(f"Merge the PDF forms of month {number}."),
            LoadSkill("pdf", "Merge them."),
            Says("Done."),
        ]
        path = write_claude_code(run.user, events, session=f"month-{number}")
        assert run("review", path, "--json").json["session"] == session_id(f"month-{number}")

    assert impressions(run.home) == 0 and run("stats", "--json").json["opportunities"] == []


@pytest.mark.process
@pytest.mark.anyio
async def test_what_find_skill_answers_over_mcp_is_shown_unless_the_client_is_a_reviews(
    place: Place, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.client(era) as client:
        found = await client.call_tool("find_skill", {"task": TASK})
        assert best_of(found.structured_content) == "skill:pdf"
        await client.get_prompt("why", {"ref": "pdf", "task": TASK})
    assert impressions(place.home) == 1
    reviewing = place.environment | {"EVOLVABLE_REVIEWING": "1"}
    monkeypatch.setattr(Place, "environment", property(lambda _: reviewing))
    async with place.client(era) as client:
        again = await client.call_tool("find_skill", {"task": TASK})

    assert again.structured_content["use"] == found.structured_content["use"]
    assert impressions(place.home) == 1


def test_an_offer_at_a_prompt_is_shown_once(place: Place) -> None:
    event = {"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": TASK}
    with Library.open(place.home) as library:
        hooks = HookDispatcher(Config(place.home, place.root), library, Caller(Actor.AGENT))
        answers = [json.loads(hooks.answer(event)) for _ in range(2)]

    assert [bool(answer) for answer in answers] == [True, False]
    assert impressions(place.home) == 1


def test_the_search_of_the_page_shows_nothing(tmp_path: Path) -> None:
    home = tmp_path / "library"
    with open_page(home) as page:
        page.create("pdf")
        assert "skill:pdf@1" in page.get("/search?task=pdf").text

    assert impressions(home) == 0


@pytest.mark.process
def test_good_siblings_of_which_none_is_sure_are_told_as_a_choice_at_the_terminal_and_on_the_page(
    run: CommandLine,
) -> None:
    for language in (
        "go",
        "rust",
        "java",
        "ruby",
        "php",
        "swift",
        "kotlin",
        "scala",
        "perl",
        "lua",
        "dart",
        "julia",
    ):
        text = skill_text(
            f"{language}-helper", f"Deploys {language} services to kubernetes with helm charts."
        )
        run.save(run.user / ".claude/skills", f"{language}-helper", text)
    run("sync")

    first, second = (run("find", "deploy my service").out for _ in range(2))

    question, match = first.splitlines()[:2]
    assert question.startswith("Does one of these fit?") and match.startswith("skill:")
    assert ": evolvable load skill:" in first
    assert first.partition("--search")[0] == second.partition("--search")[0]
    with open_page(run.home) as page:
        unsure, none = (
            page.get("/search?task=deploy+my+service").text,
            page.get("/search?task=bake+bread").text,
        )
    assert "Does one of these fit?" in unsure and "Nothing in the library fits" not in unsure
    assert "Nothing in the library fits" in none
