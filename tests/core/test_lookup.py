"""Lookup: what stands in the task word for word, what the texts say, how sure that is, and when
nothing fits.
"""

import base64
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import samples
from samples import attacks

from evolvable_store.errors import InvalidArgument, InvalidRef
from evolvable_store.resource import Kind
from evolvable_store.search.index import Index
from evolvable_tools.library import Library
from evolvable_tools.retrieval.cascade import MAX_LIMIT, CascadeResult, search_cascade
from evolvable_tools.retrieval.search_types import FITS_FEW

Teach = Callable[..., None]


@pytest.fixture
def teach(library: Library) -> Teach:
    """Writes one resource into the library."""
    return partial(samples.teach, library.store)


@pytest.fixture
def index(library: Library) -> Index:
    return library.index


@pytest.fixture
def office(teach: Teach) -> None:
    """A few skills that have little in common."""
    teach(
        "pdf-tools",
        "Fill, merge and split PDF forms.",
        triggers="merge pdf, pdf",
        body="Use pypdf for signatures.",
    )
    teach(
        "release-notes",
        "Write the release notes of a version.",
        triggers="changelog",
        body="Read the git log.",
    )
    teach(
        "deploy",
        "Deploy a service to Kubernetes with Helm.",
        body="Check the cluster, then roll out the chart.",
    )
    teach(
        "sql-review",
        "Review SQL queries and their indexes.",
        triggers="review sql queries",
        body="Look at joins.",
    )
    teach(
        "spreadsheets",
        "Clean and summarise CSV and Excel tables.",
        body="Use pandas. Guess the delimiter.",
    )


def refs(found: CascadeResult) -> list[str]:
    return [match.ref for match in found.matches]


# Keywords


@pytest.mark.parametrize(
    ("task", "ref", "why"),
    [
        (
            "please merge pdf files of last month",
            "skill:pdf-tools",
            'trigger "merge pdf" stands in the task',
        ),
        (
            "Can you REVIEW SQL Queries?",
            "skill:sql-review",
            'trigger "review sql queries" stands in the task',
        ),
        ("changelog", "skill:release-notes", 'trigger "changelog" is the task'),
        ("pdf tools", "skill:pdf-tools", 'name "pdf-tools" is the task'),
        ("skill:pdf-tools", "skill:pdf-tools", 'name "pdf-tools" is called by name'),
        ("load skill:deploy and go", "skill:deploy", 'name "deploy" is called by name'),
        ("/deploy to the staging cluster", "skill:deploy", 'name "deploy" is called by name'),
        (
            "$spreadsheets sum this up",
            "skill:spreadsheets",
            'name "spreadsheets" is called by name',
        ),
        ("use the deploy skill for this", "skill:deploy", 'name "deploy" is called by name'),
        ('run "deploy" now', "skill:deploy", 'name "deploy" stands quoted in the task'),
        (
            "do the `changelog` thing",
            "skill:release-notes",
            'trigger "changelog" stands quoted in the task',
        ),
    ],
)
@pytest.mark.usefixtures("office")
def test_a_keyword_wins_and_says_so(index: Index, task: str, ref: str, why: str) -> None:
    best = search_cascade(index, task).matches[0]
    assert (best.ref, best.stage) == (ref, "keyword")
    assert best.why.startswith(why)
    assert best.confidence > 0.8


@pytest.mark.usefixtures("office")
@pytest.mark.parametrize(
    "task", ["our platform is pdfx", "undeployed things", "mergepdf", "re-deployment-tools"]
)
def test_part_of_a_word_is_no_keyword(index: Index, task: str) -> None:
    assert search_cascade(index, task, mode="keyword").matches == ()


def test_the_longest_trigger_wins(index: Index, teach: Teach) -> None:
    teach("reader", "Reads.", triggers="pdf")
    teach("filler", "Fills.", triggers="pdf form")
    teach("signer", "Signs.", triggers="sign pdf form")
    assert refs(search_cascade(index, "sign pdf form for me", mode="keyword")) == ["skill:signer"]
    assert refs(search_cascade(index, "this pdf form and that pdf", mode="keyword")) == [
        "skill:filler",
        "skill:reader",
    ]


def test_a_trigger_of_two_is_decided_by_the_texts(index: Index, teach: Teach) -> None:
    teach("fast", "Runs the unit tests quickly.", triggers="run tests")
    teach("slow", "Runs the browser tests in a container.", triggers="run tests")
    assert refs(search_cascade(index, "run tests of the browser"))[0] == "skill:slow"
    assert refs(search_cascade(index, "run tests of every unit"))[0] == "skill:fast"


def test_a_short_trigger_in_a_long_task_decides_nothing(index: Index, teach: Teach) -> None:
    teach("python", "Speaks Python.", triggers="python")
    teach(
        "garden",
        "Plans beds, hedges and compost of a garden.",
        body="Roses, hedges, compost and beds.",
    )
    task = (
        "Plan my garden with beds, hedges, roses and compost; somebody spoke of python but "
        + "and so on " * 20
    )
    assert refs(search_cascade(index, task))[0] == "skill:garden"


def test_triggers_in_scripts_without_spaces_are_found(index: Index, teach: Teach) -> None:
    teach("migration", "Moves a database.", triggers="数据库迁移")
    assert search_cascade(index, "请帮我做数据库迁移吧").matches[0].stage == "keyword"


# Texts


@pytest.mark.usefixtures("office")
@pytest.mark.parametrize(
    ("task", "ref", "why"),
    [
        ("roll out our helm charts", "skill:deploy", "helm (description)"),
        ("fill these forms and their signatures", "skill:pdf-tools", "signatures (body)"),
        ("the delimiter of my excel table is odd", "skill:spreadsheets", "delimiter (body)"),
        ("review my joins and their indexes", "skill:sql-review", "joins (body)"),
    ],
)
def test_a_text_answers_and_names_the_words_that_matched(
    index: Index, task: str, ref: str, why: str
) -> None:
    found = search_cascade(index, task)
    best = found.matches[0]
    assert (best.ref, best.stage, found.verdict == "none") == (ref, "text", False)
    assert why in best.why
    assert (best.entry.version, best.entry.name, best.entry.id > 0) == (
        1,
        ref.partition(":")[2],
        True,
    )


@pytest.mark.usefixtures("office")
@pytest.mark.parametrize(
    "task",
    [
        "bake sourdough bread with rye",
        "what is the capital of France",
        "tune a grand piano",
        "x",
        "\u200b",
        "!?",
    ],
)
def test_nothing_fits_a_task_of_another_world(index: Index, task: str) -> None:
    found = search_cascade(index, task)
    assert found.verdict == "none"
    assert all(match.confidence < FITS_FEW for match in found.matches)


def test_nothing_fits_in_an_empty_library(index: Index) -> None:
    found = search_cascade(index, "anything at all")
    assert (found.matches, found.verdict) == ((), "none")
    assert [report.stage for report in found.stages] == ["keyword", "text"]


@pytest.mark.usefixtures("office")
def test_confidence_falls_with_the_order(index: Index) -> None:
    found = search_cascade(index, "review the sql and pdf tables of the release with helm", limit=5)
    confidences = [match.confidence for match in found.matches]
    assert len(confidences) == 5
    assert confidences == sorted(confidences, reverse=True)
    assert all(0 <= confidence <= 1 for confidence in confidences)


def test_what_was_just_written_is_found(index: Index, teach: Teach) -> None:
    assert search_cascade(index, "photograph a marsupial").verdict == "none"
    teach("marsupials", "Photograph a marsupial at night.")
    assert refs(search_cascade(index, "photograph a marsupial")) == ["skill:marsupials"]


# Where, what and how much


def test_a_project_s_resource_hides_the_user_s_of_the_same_name(index: Index, teach: Teach) -> None:
    teach("deploy", "Deploy to Kubernetes.")
    teach("acme/deploy", "Deploy to the Acme mainframe.")
    teach("zoo/feeding", "Deploy food to animals.")
    for task in ("deploy something", "use the deploy skill"):
        assert refs(search_cascade(index, task, scopes=("acme", "user"))) == ["skill:acme/deploy"]
        assert refs(search_cascade(index, task, scopes=("user",))) == ["skill:deploy"]
    assert set(refs(search_cascade(index, "deploy something"))) == {
        "skill:deploy",
        "skill:acme/deploy",
        "skill:zoo/feeding",
    }
    assert refs(search_cascade(index, "load skill:acme/deploy"))[0] == "skill:acme/deploy"


def test_every_kind_is_found_the_same_way(index: Index, teach: Teach) -> None:
    for kind in ("prompt", "agent", "tool", "environment"):
        teach(f"{kind}:reviewer", "Reviews pull requests.", triggers="look at my pull request")
        assert refs(search_cascade(index, "review a pull request", kind=kind)) == [
            f"{kind}:reviewer"
        ]
        assert (
            search_cascade(index, "look at my pull request", kind=Kind(kind)).matches[0].stage
            == "keyword"
        )
    assert search_cascade(index, "review a pull request").matches == ()


@pytest.mark.usefixtures("office")
def test_each_mode_runs_its_stages(index: Index) -> None:
    task = "merge pdf signatures"
    assert [report.stage for report in search_cascade(index, task).stages] == ["keyword", "text"]
    assert {match.stage for match in search_cascade(index, task, mode="keyword").matches} == {
        "keyword"
    }
    assert {match.stage for match in search_cascade(index, task, mode="text").matches} == {"text"}
    assert all(report.said for report in search_cascade(index, task).stages)


@pytest.mark.usefixtures("office")
def test_no_more_come_than_were_asked_for(index: Index) -> None:
    task = "review the sql and pdf tables of the release with helm"
    assert [len(search_cascade(index, task, limit=limit).matches) for limit in (1, 2, 100)] == [
        1,
        2,
        5,
    ]
    assert refs(search_cascade(index, task, limit=2)) == refs(search_cascade(index, task))[:2]


def test_an_unknown_mode_is_refused_with_those_there_are(index: Index) -> None:
    with pytest.raises(InvalidArgument, match="no mode 'sorcery'") as caught:
        search_cascade(index, "task", mode="sorcery")
    assert "auto, keyword, text, paper" in caught.value.hint


def test_an_unknown_kind_is_refused_with_those_there_are(index: Index) -> None:
    with pytest.raises(InvalidRef, match="not a kind"):
        search_cascade(index, "task", kind="recipe")


@pytest.mark.parametrize("task", ["", " ", "\n\t "])
def test_an_empty_task_is_refused_with_a_hint(index: Index, task: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        search_cascade(index, task)
    assert "sentence" in caught.value.hint


# Hostile tasks


@pytest.mark.parametrize("case", attacks("sql", "reject"), ids=lambda case: case["id"])
def test_a_limit_that_is_none_is_refused(index: Index, case: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="limit"):
        search_cascade(index, "task", limit=case["input"])


@pytest.mark.parametrize("limit", [0, -1, MAX_LIMIT + 1])
def test_a_limit_out_of_range_is_refused(index: Index, limit: int) -> None:
    with pytest.raises(InvalidArgument, match="limit"):
        search_cascade(index, "task", limit=limit)


def texts(case: dict[str, Any]) -> list[str]:
    """Returns the texts of a hostile case."""
    if "gen" in case:
        part, times = case["gen"]["repeat"]
        return [part * times]
    if "b64" in case:
        return [
            base64.b64decode(case["b64"]).decode("latin-1"),
            base64.b64decode(case["b64"]).decode("utf-8", "replace"),
        ]
    if "json" in case:
        return [json.loads(case["json"])]
    return [str(case[key]) for key in ("input", "pattern", "subject") if key in case]


HOSTILE = [
    text
    for category in ("fts", "sql", "redos", "unicode")
    for case in attacks(category)
    for text in texts(case)
]


@pytest.mark.process
@pytest.mark.usefixtures("office")
def test_every_hostile_text_is_only_a_task_or_a_trigger(index: Index, teach: Teach) -> None:
    for number, text in enumerate(
        text for text in HOSTILE if len(text) < 200 and text.isprintable()
    ):
        teach(f"hostile-{number}", "Hostile.", triggers=text, body=text)
    everything = [*HOSTILE, *(f"merge pdf {text}" for text in HOSTILE)]
    for text in everything:
        started = time.perf_counter()
        if text.strip():
            found = search_cascade(index, text)
            assert all(0 <= match.confidence <= 1 for match in found.matches)
        else:
            with pytest.raises(InvalidArgument):
                search_cascade(index, text)
        assert time.perf_counter() - started < 1, text[:80]
    assert refs(search_cascade(index, "merge pdf NEAR( -x"))[0] == "skill:pdf-tools"


@pytest.mark.usefixtures("office")
@pytest.mark.parametrize(
    "part",
    [
        "a ",
        "merge pdf ",
        "\0",
        '"',
        "`x",
        "'x ",
        "éá",
        "数据库迁移",
        "skill:",
        "/-",
        "\ud800 ",
        "\u202e",
    ],
)
def test_a_task_of_a_megabyte_is_answered_at_once(index: Index, part: str) -> None:
    task = part * (1_000_000 // len(part))
    started = time.perf_counter()
    search_cascade(index, task)
    assert time.perf_counter() - started < 1


def test_a_task_of_all_bytes_is_answered(index: Index, teach: Teach) -> None:
    teach("pdf", "Fills PDF forms.")
    binary = bytes(range(256)).decode("latin-1")
    assert refs(search_cascade(index, f"fill {binary} pdf {binary} forms")) == ["skill:pdf"]
