"""Siblings: resources that share most of their words are told apart by what each says of itself,
and by their names.
"""

from collections.abc import Callable

import pytest

from evolvable_store.resource import Kind, Ref
from evolvable_tools.library import Library
from evolvable_tools.retrieval.cascade import search_cascade
from evolvable_tools.retrieval.hybrid import (
    DISTINCT,
    NAMED,
    confidences,
    order_by_words,
    sibling_bonus,
)
from evolvable_tools.retrieval.search_types import SearchQuery

Skill = Callable[..., Ref]

SHARED = "Manage, list and inspect with the acme command what Acme Cloud has of"
TASK = "show what our acme cloud queues cost"


@pytest.fixture
def vendor(skill: Skill) -> None:
    """Siblings that all say the same but for one word; the body of one has a word that another says
    of itself.
    """
    for name in ("storage", "network", "functions", "secrets", "images"):
        skill(f"acme-{name}", description=f"{SHARED} {name}.")
    skill("acme-start", "Queues. " * 4, description=f"{SHARED}.")
    skill("acme-queues", "Long text on other things. " * 60, description=f"{SHARED} queues.")


def ranked(library: Library, task: str) -> list[str]:
    return [str(hit.entry.ref) for hit in library.index.search(task, kind=Kind.SKILL).scored]


@pytest.mark.usefixtures("vendor")
def test_a_sibling_that_says_a_word_of_the_task_of_itself_comes_before_one_that_shares_the_rest(
    library: Library,
) -> None:
    assert ranked(library, TASK)[0] == "skill:acme-start"

    assert search_cascade(library.index, TASK, mode="text").matches[0].ref == "skill:acme-queues"


@pytest.mark.usefixtures("vendor")
def test_a_place_keeps_its_confidence_when_siblings_exchange_places(library: Library) -> None:
    query = SearchQuery(TASK, Kind.SKILL, None, 10)
    ranking = library.index.search(TASK, kind=Kind.SKILL)

    fused = order_by_words(ranking, query)

    assert fused.before is not None
    assert confidences(fused) == confidences(fused.before)
    assert {hit.entry.id for hit in fused.hits} == {hit.entry.id for hit in fused.before.hits}


def test_of_two_that_say_the_same_the_one_whose_whole_name_is_in_the_task_comes_first(
    library: Library, skill: Skill
) -> None:
    skill("water-plants-with-timers-outdoors", description="Look after plants on a balcony.")
    skill("balcony-plants", description="Look after plants on a balcony.")

    ranking = library.index.search("my balcony plants look bad", kind=Kind.SKILL)
    gained = dict(
        zip(
            (hit.entry.name for hit in ranking.scored),
            sibling_bonus(ranking, "my balcony plants look bad", ranking.scored),
            strict=True,
        )
    )

    assert gained["balcony-plants"] - gained["water-plants-with-timers-outdoors"] == pytest.approx(
        NAMED * 0.8
    )


@pytest.mark.usefixtures("vendor")
def test_no_match_gains_more_than_the_bounds_and_a_task_without_known_words_gains_nothing(
    library: Library,
) -> None:
    for task in (TASK, "acme", "acme queues " * 500, "acme-queues acme-start acme-images"):
        ranking = library.index.search(task, kind=Kind.SKILL)
        assert all(
            0 <= gain <= NAMED + DISTINCT for gain in sibling_bonus(ranking, task, ranking.scored)
        )

    nothing = library.index.search("quantum chromodynamics", kind=Kind.SKILL)
    assert sibling_bonus(nothing, "quantum chromodynamics", nothing.scored) == []
