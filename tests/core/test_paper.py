"""EvoAgent's lookup to the letter: the first trigger that is part of the task, cosine 0.6, a
model's choice at 0.7.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from evolvable_store.errors import EvolvableError
from evolvable_store.resource import Kind, Ref
from evolvable_store.search.index import Index, IndexEntry
from evolvable_tools.library import Library
from evolvable_tools.llm.language_model import Request
from evolvable_tools.retrieval.cascade import MOST_DESCRIPTION, MOST_LISTED, Choose, search_evoagent
from evolvable_tools.retrieval.judge_stage import ask_judge, make_choices
from evolvable_tools.retrieval.search_types import SearchQuery, StageResult

Skill = Callable[..., Ref]


@dataclass(frozen=True)
class Told:
    """In the embedder's place: says the cosines it was given.

    An interface for tests, not a model.
    """

    best: tuple[int, float] | None = None
    said: str = "told by the test"
    available: bool = True

    def begin(self, task: str) -> "Told":
        return self

    def nearest_description(
        self, kind: Kind, scopes: Sequence[str] | None, *, within: float
    ) -> "Told":
        return self


def triggers(*texts: str) -> str:
    return f"metadata:\n  triggers: {json.dumps(list(texts))}\n"


def ask(
    index: Index, task: str, neighbours: Told | None = None, choose: Choose | None = None
) -> dict[str, StageResult]:
    return dict(
        search_evoagent(index, SearchQuery(task, Kind.SKILL, ("user",), 5), neighbours, choose)
    )


def answer(answers: dict[str, StageResult]) -> tuple[str, str, float] | None:
    """Returns which stage answered with what and how sure."""
    found = [(stage, one) for stage, its in answers.items() for one in its.candidates]
    assert len(found) <= 1
    return (found[0][0], found[0][1].entry.name, found[0][1].confidence) if found else None


def entry(index: Index, name: str) -> IndexEntry:
    return next(one for one in index.entries() if one.name == name)


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("merge PDF files", "a-reader"),
        ("a pdf form", "a-reader"),
        ("Restart the machine", "b-artist"),
        ("ART", "b-artist"),
        ("what does C++ say", "c-plus"),
        ("Straße", "d-street"),
        ("STRASSE", None),
        ("nothing of it", None),
    ],
    ids=[
        "any case",
        "first",
        "inside a word",
        "shouted",
        "signs",
        "sharp s",
        "lower is no casefold",
        "none",
    ],
)
def test_the_first_trigger_that_is_part_of_the_task_wins(
    library: Library, skill: Skill, task, name
):
    skill("a-reader", metadata=triggers("pdf"))
    skill("b-artist", metadata=triggers("art"))
    skill("b-filler", metadata=triggers("pdf form", "merge pdf files"))
    skill("c-plus", metadata=triggers("c++"))
    skill("d-street", metadata=triggers("straße"))

    assert answer(ask(library.index, task)) == (name and ("keyword", name, 1.0))


def test_triggers_are_tried_in_their_order(library: Library, skill: Skill):
    skill("pdf", metadata=triggers("form", "pdf form"))

    assert 'trigger "form"' in ask(library.index, "a pdf form")["keyword"].report


def test_an_empty_trigger_matches_nothing(library: Library, skill: Skill):
    skill("pdf", metadata=triggers("", "  ", "\u3000"))

    assert answer(ask(library.index, "any task \u3000 at all")) is None


def test_a_hit_asks_no_further_stage(library: Library, skill: Skill):
    def never(task: str, entries: Sequence[IndexEntry]) -> tuple[IndexEntry | None, str]:
        raise AssertionError

    skill("pdf", metadata=triggers("pdf"))

    assert list(ask(library.index, "pdf", Told((1, 0.9)), never)) == ["keyword"]
    near = Told((entry(library.index, "pdf").id, 0.9))
    assert list(ask(library.index, "other", near, never)) == ["keyword", "embedding"]


@pytest.mark.parametrize(
    ("cosine", "accepted"),
    [
        (1.0, True),
        (0.61, True),
        (0.6, True),
        (0.5999999, False),
        (0.1, False),
        (0.0, False),
        (-0.9, False),
    ],
)
def test_a_cosine_of_exactly_six_tenths_is_accepted(
    library: Library, skill: Skill, cosine, accepted
):
    skill("pdf")
    found = ask(library.index, "a task", Told((entry(library.index, "pdf").id, cosine)))

    assert answer(found) == (("embedding", "pdf", cosine) if accepted else None)


def test_a_stage_that_cannot_run_is_skipped_and_told(library: Library, skill: Skill):
    def broken(task: str, entries: Sequence[IndexEntry]) -> tuple[IndexEntry | None, str]:
        raise EvolvableError("The model does not answer.")

    skill("pdf")

    said = {stage: its.report for stage, its in ask(library.index, "a task").items()}
    assert set(said) == {"keyword", "embedding", "llm"}
    assert "no trigger" in said["keyword"]
    assert said["embedding"].startswith("skipped: no embedder")
    assert said["llm"].startswith("skipped: no model")
    said = {
        stage: its.report
        for stage, its in ask(
            library.index, "x", Told((1, 0.9), "warming up", False), broken
        ).items()
    }
    assert said["embedding"] == "skipped: warming up"
    assert said["llm"] == "skipped: The model does not answer."


def test_the_model_chooses_among_all_with_the_same_confidence_always(
    library: Library, skill: Skill
):
    seen: list[str] = []

    def last(task: str, entries: Sequence[IndexEntry]) -> tuple[IndexEntry | None, str]:
        seen.extend(f"{one.name}: {one.description}" for one in entries)
        return entries[-1], "it is the last"

    skill("b", description="Second.")
    skill("a", description="First.")
    skill("elsewhere/d")

    found = ask(library.index, "a task", Told(None), last)
    assert answer(found) == ("llm", "b", 0.7)
    assert seen == ["a: First.", "b: Second."]
    report = found["llm"].report
    assert report.startswith("skill:b: ") and report.endswith(": it is the last")


def test_a_choice_that_is_none_or_not_in_the_list_is_no_answer(library: Library, skill: Skill):
    skill("pdf")
    skill("elsewhere/other")
    outside = next(one for one in library.index.entries() if one.name == "other")

    assert (
        answer(ask(library.index, "a task", None, lambda task, entries: (outside, "this"))) is None
    )
    assert (
        "not in the list"
        in ask(library.index, "a task", None, lambda task, entries: (outside, "this"))["llm"].report
    )
    assert ask(library.index, "a task", None, lambda task, entries: (None, "none was made for it"))[
        "llm"
    ].report == ("none: none was made for it")


def test_a_resource_removed_meanwhile_is_no_answer(library: Library, skill: Skill):
    skill("pdf")

    assert answer(ask(library.index, "a task", Told((999, 0.9)))) is None


def test_an_empty_library_has_no_answer(library: Library):
    assert (
        answer(ask(library.index, "a task", Told(None), lambda task, entries: (entries[0], "x")))
        is None
    )


def test_a_model_is_asked_about_a_bounded_list_and_that_is_said(
    library: Library, skill: Skill, monkeypatch
):
    monkeypatch.setattr("evolvable_tools.retrieval.cascade.MOST_LISTED", 2)
    for name in ("a", "b", "c"):
        skill(name)

    found = ask(library.index, "a task", None, lambda task, entries: (None, str(len(entries))))

    assert found["llm"].report.startswith("none: 2 (") and "first 2 " in found["llm"].report


def test_the_prompt_for_a_large_library_is_bounded():
    asked: list[Request] = []

    class Nobody:
        name = "nobody"

        def think(self, request: Request) -> dict[str, Any]:
            asked.append(request)
            return {"choice": "none", "why": ""}

    large = [
        IndexEntry(
            number,
            Kind.SKILL,
            "user",
            f"skill-{number}",
            1,
            f"Word{number} " * 90,
            (),
            False,
            "",
            "tree",
        )
        for number in range(1_000)
    ]
    ask_judge(
        "a task",
        make_choices(large),
        Nobody(),
        {},
        most=MOST_LISTED,
        most_description=MOST_DESCRIPTION,
    )

    (request,) = asked
    listed = json.loads(request.data)["choices"]
    assert len(listed) == MOST_LISTED == 200
    assert {len(one["description"]) for one in listed} == {MOST_DESCRIPTION}
    assert set(listed[0]) == {"label", "name", "description"}
    assert len(request.data) < 50_000


def test_the_whole_library_is_read_page_by_page(library: Library, skill: Skill, monkeypatch):
    monkeypatch.setattr("evolvable_tools.retrieval.cascade._PAGE", 2)
    for name in ("a", "b", "c", "d", "e"):
        skill(name, metadata=triggers(f"do {name}"))

    assert [answer(ask(library.index, f"do {name}")) for name in ("a", "c", "e")] == [
        ("keyword", name, 1.0) for name in ("a", "c", "e")
    ]
