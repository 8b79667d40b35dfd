"""What an agent asks of a search and reads of it and of a listing: how many bytes, and what is left out first."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import skill_text
from earned import verified
from mcp import Client

from evolvable_server.config import Config
from evolvable_server.mcp.brief_answers import found_answer, listing_answer
from evolvable_server.mcp.results import structured_result
from evolvable_server.serving import Serving
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.delegation import DelegateStatus
from evolvable_tools.retrieval import Alternative, ChooseBetween, StageReport
from evolvable_tools.verbs import edit
from evolvable_tools.verbs.search import FoundMatch, FoundSkills, ListedResource, Listing

NUMBER = "0123456789abcdef"
LONG = "Fills, merges and splits the forms of PDF files, and says “done” when it is. " * 14
NOTICE = "brought by a repository that no person has trusted"


def size(answer: Any) -> int:
    return len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode())


def match(number: int, description: str = LONG, **given: Any) -> FoundMatch:
    why = 'words: pdf (body), fill (body), merge (body), split (body); "Fills, merges and splits"; meaning: cosine 0.5'
    ref = f"skill:a-usual-name-{number}"
    fields = {"stage": "text", "confidence": 0.91, "why": why, "maturity": "Budding", "author": "you"}
    return FoundMatch(ref, 3, ref[6:], description, **(fields | given))


def found(matches: list[FoundMatch], *, none_fits: bool = False, **given: Any) -> FoundSkills:
    return FoundSkills("search-0123456789ab", matches, none_fits, [StageReport("text", "said " * 20)], **given)


def choice(count: int, description: str = LONG, name: str = "a-usual-name") -> ChooseBetween:
    alternatives = [Alternative(f"skill:{name}-{number}", 1, "", description) for number in range(count)]
    return ChooseBetween("Which of these is for the task?", alternatives, "Call load_skill, or go on without one.")


@pytest.mark.parametrize(
    "one",
    [
        match(1),
        match(1, "短い説明と長い説明。" * 80),
        match(1, f"[{NUMBER}] {LONG} [/{NUMBER}]", author="repository", marked=True),
        match(1, ref := "x" * 1_000, why=ref),
    ],
    ids=["usual", "Japanese", "of another", "one word"],
)
def test_five_matches_have_at_most_fifteen_hundred_bytes(one: FoundMatch) -> None:
    notice = f"Text between [{NUMBER}] and [/{NUMBER}] is not written by the user." if one.marked else ""

    answer = found_answer(found([one] * 5, notice=notice), limit=5, detail=False)

    assert size(answer) <= 1_500
    assert len(answer["matches"]) == 5 and all(len(shown["description"]) > 20 for shown in answer["matches"])
    assert answer["none_fits"] is False and "unsure" not in answer


def test_five_matches_with_long_names_and_notices_are_bare_in_fifteen_hundred_bytes() -> None:
    long = match(1, f"[{NUMBER}] {LONG} [/{NUMBER}]", author="repository", marked=True)
    long = replace(long, ref=f"skill:a-team/{'n' * 64}", delegate=DelegateStatus("agent:reviewer", 3, True, ""))

    answer = found_answer(found([long] * 5, notice="Text between marks is not the user's."), limit=5, detail=False)

    assert size(answer) <= 1_500
    assert [one["ref"] for one in answer["matches"]] == [long.ref] * 5


def test_a_short_description_is_whole_and_the_reason_is_the_words() -> None:
    (shown,) = found_answer(found([match(1, "Fill forms.")]), limit=5, detail=False)["matches"]

    assert shown["description"] == "Fill forms."
    assert shown["why"] == "words: pdf (body), fill (body), merge (body), split (body)"
    assert "maturity" not in shown and "notice" not in shown


def test_nothing_fits_is_one_short_line_without_matches() -> None:
    answer = found_answer(found([match(1)], none_fits=True), limit=5, detail=False)

    assert answer == {"search_id": "search-0123456789ab", "none_fits": True, "matches": []}
    assert size(answer) < 100 and "\n" not in structured_result(answer).content[0].text


def test_who_has_to_choose_among_the_matches_reads_that_nobody_is_sure() -> None:
    answer = found_answer(found([match(0), match(1)], choose_between=choice(2)), limit=5, detail=False)

    assert answer["unsure"] is True and "none_fits" not in answer and "choose_between" not in answer
    assert len(answer["matches"]) == 2


def test_matches_of_which_none_fits_are_given_and_nobody_is_sure() -> None:
    low = found([match(number, confidence=0.12) for number in range(5)])

    assert low.fitting == [] and found_answer(low, limit=5, detail=True)["unsure"] is True
    answer = found_answer(low, limit=5, detail=False)
    assert answer["unsure"] is True and "none_fits" not in answer and len(answer["matches"]) == 5


def test_who_asked_for_one_match_and_has_to_choose_gets_the_refs_of_the_others() -> None:
    answer = found_answer(found([match(0)], choose_between=choice(3)), limit=1, detail=False)

    others = [{"ref": "skill:a-usual-name-1"}, {"ref": "skill:a-usual-name-2"}]
    assert answer["unsure"] is True and answer["choose_between"] == {"choices": others}
    assert len(answer["matches"]) == 1 and len(answer["matches"][0]["description"]) > 20


@pytest.mark.parametrize("count", [1, 12, 36, 60])
@pytest.mark.parametrize("name", ["pdf", "n" * 60], ids=["short names", "long names"])
def test_a_list_to_choose_from_has_at_most_four_thousand_bytes(count: int, name: str) -> None:
    answer = found_answer(found([], none_fits=True, choose_between=choice(count, name=name)), limit=5, detail=False)

    assert size(answer) <= 4_000
    assert answer["unsure"] is True and "none_fits" not in answer and answer["matches"] == []
    shown = answer["choose_between"]["choices"]
    assert len(shown) == count or (name != "pdf" and len(shown) >= 36)
    assert shown[0]["ref"] == f"skill:{name}-0"


@pytest.mark.parametrize("count", [12, 36, 60])
def test_the_likely_choices_of_a_list_have_descriptions_that_tell_them_apart(count: int) -> None:
    answer = found_answer(found([], none_fits=True, choose_between=choice(count)), limit=5, detail=False)

    texts = [one.get("description", "") for one in answer["choose_between"]["choices"]]
    described = [text for text in texts if text]
    assert len(described) >= min(count, 20) and texts[: len(described)] == described
    assert all(len(text) >= 40 for text in described)


@pytest.mark.parametrize("none_fits", [True, False])
def test_an_answer_in_detail_has_every_field_and_says_unsure_too(none_fits: bool) -> None:
    unsure = found_answer(found([match(1)], none_fits=none_fits, choose_between=choice(2)), limit=5, detail=True)
    sure = found_answer(found([match(1)], none_fits=none_fits), limit=5, detail=True)

    assert unsure["unsure"] is True and len(unsure["choose_between"]["choices"]) == 2
    assert unsure["none_fits"] is none_fits
    assert sure["none_fits"] is none_fits and "unsure" not in sure


def test_descriptions_of_others_stay_between_their_marks_however_short() -> None:
    marked = f"[{NUMBER}] {LONG} [/{NUMBER}]"
    notice = f"Text between [{NUMBER}] and [/{NUMBER}] is not written by the user."

    answer = found_answer(
        found([], none_fits=True, choose_between=choice(30, marked), notice=notice), limit=5, detail=False
    )

    texts = [one["description"] for one in answer["choose_between"]["choices"] if "description" in one]
    assert len(texts) > 20
    assert all(text.startswith(f"[{NUMBER}] Fills") and text.endswith(f"[/{NUMBER}]") for text in texts)
    assert answer["notice"] == notice and size(answer) <= 4_000


def test_a_page_of_a_listing_has_at_most_six_thousand_bytes() -> None:
    resources = [ListedResource(f"skill:{'n' * 58}-{at}", 12, LONG, "Budding", 0, None, "you") for at in range(25)]
    used = ListedResource("skill:pdf", 2, "Fill forms.", "Growing", 7, 0.5, "you")

    page = listing_answer(Listing(resources, "a cursor"), limit=25, detail=False)

    assert size(page) <= 6_000 and len(page["resources"]) == 25 and page["next_cursor"] == "a cursor"
    assert listing_answer(Listing([used]), limit=25, detail=False)["resources"] == [
        {
            "ref": "skill:pdf",
            "version": 2,
            "description": "Fill forms.",
            "author": "you",
            "maturity": "Growing",
            "uses": 7,
            "success": 0.5,
        }
    ]


@pytest.mark.anyio
async def test_an_agent_that_names_the_task_type_gets_near_ties_ordered_by_it(tmp_path: Path) -> None:
    serving = Serving(Config(tmp_path / "home", tmp_path, embedder="off"))
    library = serving.library
    for name in ("left", "right"):
        files = {"SKILL.md": skill_text(f"{name}-form", "Fills in a form.")}
        edit.update_resource(
            library,
            Caller(Actor.HUMAN, principal=Principal.PERSON, via="terminal"),
            Ref.parse(f"{name}-form"),
            "new",
            files=files,
            create=True,
        )
    for number in range(4):
        for name, good, bad in (("left", "fill a.pdf", "test a.py"), ("right", "test a.py", "fill a.pdf")):
            verified(library, f"{name}-form", f"{name}-good-{number}", "succeeded", task=good)
            verified(library, f"{name}-form", f"{name}-bad-{number}", "failed", task=bad)

    async with Client(serving.server, mode="legacy") as client:
        for task_type, best in (("test python", "skill:right-form"), ("convert documents", "skill:left-form")):
            asked = {"task": "fill in a form", "task_type": task_type}
            found = (await client.call_tool("find_skill", asked)).structured_content
            assert found["matches"][0]["ref"] == best, task_type
    serving.close()
