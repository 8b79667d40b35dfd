"""Two resources that answer the same questions are told when one of them comes in."""

import json
from collections.abc import Callable, Mapping

import pytest

from evolvable_store.resource import Ref
from evolvable_store.search.index import IndexEntry
from evolvable_tools.library import Library
from evolvable_tools.retrieval import near_duplicates
from evolvable_tools.retrieval.near_duplicates import (
    ALIKE,
    EACH,
    NearDuplicateReport,
    find_near_duplicates,
)

Skill = Callable[..., Ref]

MORE = {
    "photo-resize": "Resize and crop photographs for the web.",
    "unit-tests": "Write unit tests for Python functions with pytest.",
}


@pytest.fixture
def office(office: Mapping[str, str], skill: Skill) -> Mapping[str, str]:
    for name, description in MORE.items():
        skill(name, description=description)
    return {**office, **MORE}


def entries(library: Library, *names: str) -> list[IndexEntry]:
    return [one for one in library.index.entries(limit=500) if not names or one.name in names]


def pairs(confusion: NearDuplicateReport) -> set[frozenset[str]]:
    return {frozenset((pair.newcomer, pair.other)) for pair in confusion.pairs}


def triggers(*texts: str) -> str:
    return f"metadata:\n  triggers: {json.dumps(list(texts))}\n"


@pytest.mark.usefixtures("office")
def test_skills_that_do_different_things_are_not_reported(library: Library):
    confusion = find_near_duplicates(library.index, entries(library))

    assert confusion == NearDuplicateReport((), "none found")


@pytest.mark.usefixtures("office")
@pytest.mark.parametrize(
    ("name", "description", "other"),
    [
        ("pdf-forms-2", "Fill, merge and split PDF forms.", "pdf-forms"),
        ("pdf-form-filler", "Fill, merge and split the forms in PDF files.", "pdf-forms"),
        ("sql-query-review", "Reviews queries in SQL and the indexes they use.", "sql-review"),
        ("kubernetes-helm", "Use to deploy a service to Kubernetes with Helm.", "helm-deploy"),
    ],
)
def test_a_copy_in_other_words_is_reported_with_what_is_shared(
    library: Library, skill: Skill, name, description, other
):
    skill(name, description=description)

    (pair,) = find_near_duplicates(library.index, entries(library, name)).pairs

    assert (pair.newcomer, pair.other) == (f"skill:{name}", f"skill:{other}")
    assert ALIKE <= pair.likeness <= 1
    assert 0 < len(pair.shared) <= 4
    assert pair.line.startswith(f"skill:{name} and skill:{other} answer the same questions (")


@pytest.mark.process
@pytest.mark.usefixtures("office")
def test_one_trigger_that_two_claim_is_reported_however_different_they_are(
    library: Library, skill: Skill
):
    skill(
        "changelog",
        description="Keeps a diary of the garden.",
        metadata=triggers("What is new?", "roses"),
    )
    skill("news", description="Reads the morning paper aloud.", metadata=triggers("what is NEW"))

    (pair,) = find_near_duplicates(library.index, entries(library, "news")).pairs

    assert (pair.newcomer, pair.other, pair.shared) == (
        "skill:news",
        "skill:changelog",
        ("what is new",),
    )
    assert '"what is new"' in pair.line


def test_a_trigger_that_only_begins_alike_is_not_the_same(library: Library, skill: Skill):
    skill(
        "changelog",
        description="Keeps a diary of the garden.",
        metadata=triggers("what is new in the garden"),
    )
    skill("news", description="Reads the morning paper aloud.", metadata=triggers("what is new"))

    assert find_near_duplicates(library.index, entries(library, "news")).pairs == ()


@pytest.mark.usefixtures("office")
def test_a_phrase_that_both_quote_is_what_they_share(library: Library, skill: Skill):
    said = '\'Plans a move. Use for "pack the boxes" or "book a van" in the city of {}.\''
    skill("move-house", description=said.format("Rome"))
    skill("house-move", description=said.format("Oslo"))

    (pair,) = find_near_duplicates(library.index, entries(library, "house-move")).pairs

    assert pair.shared == ("book a van", "pack the boxes")


@pytest.mark.usefixtures("office")
def test_a_form_letter_with_two_names_is_not_reported(library: Library, skill: Skill):
    for name in ("rainfall", "tokenizer", "harpsichord"):
        skill(
            name,
            description=f"Agent skill for {name}, see the manual of {name} for everything else.",
        )

    assert find_near_duplicates(library.index, entries(library)).pairs == ()


@pytest.mark.usefixtures("office")
def test_both_newcomers_of_a_pair_are_told_once(library: Library, skill: Skill):
    skill("pdf-forms-2", description="Fill, merge and split PDF forms.")

    confusion = find_near_duplicates(library.index, entries(library))

    assert pairs(confusion) == {frozenset(("skill:pdf-forms", "skill:pdf-forms-2"))}
    assert confusion.summary == "1 pair answers the same questions"


@pytest.mark.usefixtures("office")
def test_only_what_is_seen_together_is_compared(library: Library, skill: Skill):
    skill("acme/pdf-forms", description="Fill, merge and split PDF forms.")  # hides the user's
    skill(
        "acme/pdf-copies",
        description="Review SQL queries and the indexes that they use.",
        metadata=triggers("sql"),
    )
    skill(
        "zoo/sql-queries",
        description="Review SQL queries and the indexes that they use.",
        metadata=triggers("sql"),
    )

    found = pairs(find_near_duplicates(library.index, entries(library)))

    assert not any("zoo" in " ".join(pair) and "acme" in " ".join(pair) for pair in found)
    assert not any(pair == {"skill:acme/pdf-forms", "skill:pdf-forms"} for pair in found)
    assert frozenset(("skill:zoo/sql-queries", "skill:sql-review")) in found


FIELDS = (
    "harbour",
    "orchard",
    "glacier",
    "violin",
    "ceramic",
    "tunnel",
    "beehive",
    "compass",
    "lantern",
    "quarry",
)
TASKS = ("survey", "polish", "catalogue", "inspect", "measure", "restore")


@pytest.fixture
def sixty(skill: Skill) -> None:
    for field in FIELDS:
        for task in TASKS:
            skill(
                f"{task}-{field}",
                description=f"{task} each {field} that a {field} keeper {task}s by hand",
            )


@pytest.mark.usefixtures("office", "sixty")
@pytest.mark.process
def test_all_of_a_large_library_are_compared_with_each_other(library: Library, skill: Skill):
    skill("pdf-forms-2", description="Fill, merge and split PDF forms.")
    skill("sql-query-review", description="Reviews queries in SQL and the indexes they use.")
    skill("clean", description="Wipe the board.", metadata=triggers("start over"))
    skill("zero", description="Empty every shelf.", metadata=triggers("Start over!"))

    every = pairs(find_near_duplicates(library.index, entries(library), limit=500))

    assert len(entries(library)) > EACH
    assert frozenset(("skill:pdf-forms", "skill:pdf-forms-2")) in every
    assert frozenset(("skill:sql-review", "skill:sql-query-review")) in every
    assert frozenset(("skill:clean", "skill:zero")) in every
    assert not any({"skill:photo-resize", "skill:unit-tests"} & pair for pair in every)


@pytest.mark.usefixtures("office", "sixty")
@pytest.mark.process
def test_as_many_pairs_are_found_by_shared_words_as_by_searching_for_each(
    library: Library, skill: Skill, monkeypatch
):
    """Every second text is a near copy of one before it; the words of a form letter are held by
    more than 32.
    """
    for field in FIELDS:
        skill(
            f"{field}-care",
            description=f"Care for the {field} of a keeper by hand, with oil and a brush.",
        )
        skill(
            f"{field}-cares",
            description=f"Cares for the {field} of a keeper by hand, with oil, and a soft brush.",
        )
        skill(
            f"acme/{field}-care",
            description=f"Care for each {field} by hand, with oil and a brush.",
        )

    together = find_near_duplicates(library.index, entries(library), limit=500)
    monkeypatch.setattr(near_duplicates, "EACH", 500)
    each = find_near_duplicates(library.index, entries(library), limit=500)

    assert len(pairs(each)) >= len(FIELDS)
    assert together.pairs == each.pairs


@pytest.mark.usefixtures("office", "sixty")
@pytest.mark.process
def test_many_newcomers_are_compared_with_what_is_there(library: Library, skill: Skill):
    skill("pdf-forms-2", description="Fill, merge and split PDF forms.")
    newcomers = [entry for entry in entries(library) if entry.name != "pdf-forms"]

    alone = find_near_duplicates(library.index, newcomers)
    beside = find_near_duplicates(library.index, newcomers, others=entries(library))

    pair = frozenset(("skill:pdf-forms", "skill:pdf-forms-2"))
    assert pair not in pairs(alone)
    assert pair in pairs(beside)


@pytest.mark.usefixtures("office")
def test_of_too_many_that_are_alike_the_rest_is_counted(library: Library, monkeypatch):
    monkeypatch.setattr(near_duplicates, "MOST_SEARCHED", 40)

    report = find_near_duplicates(library.index, entries(library, "pdf-forms") * 45)

    assert report.summary.startswith("none found; 5 more")
    assert "not compared" in report.summary


@pytest.mark.usefixtures("office")
def test_the_most_alike_come_first_and_no_more_than_were_asked_for(library: Library, skill: Skill):
    skill("pdf-forms-2", description="Fill, merge and split PDF forms.")
    skill("sql-query-review", description="Reviews queries in SQL and the indexes they use.")

    every = find_near_duplicates(library.index, entries(library))
    first = find_near_duplicates(library.index, entries(library), limit=1)

    assert [pair.likeness for pair in every.pairs] == sorted(
        (p.likeness for p in every.pairs), reverse=True
    )
    assert first.pairs == every.pairs[:1]
    assert first.summary.startswith("2 pairs ") and "the 1 most alike" in first.summary


def test_a_skill_that_says_nothing_is_like_no_other(library: Library, skill: Skill):
    skill("a", description="'!!!'")
    skill("b", description="'???'")

    assert find_near_duplicates(library.index, entries(library)).pairs == ()
    assert find_near_duplicates(library.index, []) == NearDuplicateReport((), "none found")
