"""One answer of a search: the same verdict over MCP, at a terminal, on the page and at a prompt,
however often.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, skill_text
from mcp import Client
from page_place import open_page

from evolvable_server.config import Config
from evolvable_server.hooks.skill_offers import OfferLog, suggest_skills
from evolvable_server.serving import Serving
from evolvable_store.operation import Actor
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.retrieval.search_types import VERDICTS, Verdict

SKILLS = {
    "pdf": "Merge, split and fill PDF forms.",
    "csv": "Clean and summarise CSV tables.",
    "tides": "Computes the tide table of a harbour.",
    "translate-docs": "Translates the documentation of a program into another language.",
    **{
        f"{language}-helper": f"Deploys {language} services to kubernetes with helm charts."
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
        )
    },
}

TASKS = {
    "fill a PDF form": Verdict.SURE,
    "compute the tide table of my harbour": Verdict.SURE,
    "use the csv skill": Verdict.SURE,
    "deploy my service": Verdict.CHOOSE,
    "nettoyer ce tableau": Verdict.CHOOSE,
    "bake sourdough bread with rye": Verdict.NONE,
    "tune a grand piano": Verdict.NONE,
}


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[CommandLine]:
    run = CommandLine(tmp_path)
    for name, description in SKILLS.items():
        run.save(run.user / ".claude/skills", name, skill_text(name, description))
    run("init", run.user / ".claude/skills")
    yield run


async def over_mcp(home: Path, task: str, **arguments: Any) -> dict[str, Any]:
    """Return the answer of a server of its own, in a connection of its own."""
    serving = Serving(Config(home, home.parent, embedder="off"))
    try:
        async with Client(serving.server, mode="legacy") as client:
            answer = await client.call_tool("find_skill", {"task": task, **arguments})
    finally:
        serving.close()
    assert isinstance(answer.structured_content, dict)
    return answer.structured_content | {"search_id": ""}


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.parametrize(("task", "verdict"), TASKS.items())
async def test_a_task_has_one_verdict_over_mcp_at_a_terminal_and_on_the_page(
    filled: CommandLine, task: str, verdict: Verdict
) -> None:
    first, again = [await over_mcp(filled.home, task) for _ in range(2)]
    code = 3 if verdict is Verdict.NONE else 0
    said = filled("find", task, "--json", code=code).json | {"search_id": ""}

    assert first["verdict"] == verdict
    assert again == first and said.items() >= first.items()
    with open_page(filled.home) as page:
        assert VERDICTS[verdict] in page.get(f"/search?task={task.replace(' ', '+')}").text


@pytest.mark.process
def test_at_a_prompt_what_is_sure_is_offered_and_nothing_where_none_fits(
    filled: CommandLine, tmp_path: Path
) -> None:
    with Library.open(filled.home) as library:
        caller, offered = Caller(Actor.AGENT, "s1"), OfferLog(tmp_path / "offers")
        offers = {
            task: suggest_skills(library, caller, task, offered, library.dependencies)
            for task in TASKS
        }

    assert "skill:pdf" in offers["fill a PDF form"]
    assert "skill:tides" in offers["compute the tide table of my harbour"]
    assert not offers["bake sourdough bread with rye"] and not offers["tune a grand piano"]


@pytest.mark.process
def test_the_terminal_prints_a_match_on_a_line_and_its_reasons_only_when_asked(
    filled: CommandLine,
) -> None:
    brief, whole = (
        filled("find", "fill a PDF form").out,
        filled("find", "-v", "fill a PDF form").out,
    )

    first, blank, opens = brief.splitlines()
    assert first.startswith("skill:pdf@1  ")
    assert first.endswith("%  Merge, split and fill PDF forms.")
    assert not blank
    assert "evolvable load skill:pdf --search search-" in opens
    assert "words: " not in brief and "words: " in whole


@pytest.mark.process
def test_an_unlikely_choice_is_a_question_to_the_person_without_what_has_no_chance(
    filled: CommandLine,
) -> None:
    shown = filled.on_screen("find", "nettoyer ce tableau", columns=80)
    question, *matches = shown.splitlines()

    assert question.startswith("Does one of these fit?") and matches[0].startswith("skill:")
    assert not any("  0%  " in line for line in matches)
    assert any(": evolvable show skill:" in line for line in matches)


@pytest.mark.process
def test_where_none_fits_the_terminal_names_the_nearest_and_nothing_else(
    filled: CommandLine,
) -> None:
    told = filled("find", "paint a table for the garden with oil", code=3)

    assert told.out.startswith("Nothing in the library fits")
    assert told.out.endswith(": skill:csv, skill:tides\n") and told.out.count("\n") == 1


SHORT = (
    "what is the weather?",
    "Add a new column to the table",
    "say hello",
    "fix the bug",
    "run it again",
    "rename the file",
    "check the logs",
    "translate this",
    "what changed?",
    "clean this up",
    "summarize",
)


@pytest.mark.process
def test_a_task_of_one_content_word_is_never_sure(filled: CommandLine) -> None:
    verdicts = {task: filled("find", task, "--json", code=None).json["verdict"] for task in SHORT}

    assert Verdict.SURE not in verdicts.values(), verdicts
