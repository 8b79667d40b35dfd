"""The keyword stage: names and triggers that stand in the task, the longest first, for a bounded
time.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

import pytest
from samples import put_texts

from evolvable_store.resource import Kind
from evolvable_store.search.index import Index, Match
from evolvable_tools.library import Library
from evolvable_tools.retrieval.cascade import search_cascade
from evolvable_tools.retrieval.exact import LONGEST_PHRASE, MOST_WORDS, TaskWords, match_exact
from evolvable_tools.retrieval.search_types import StageResult

Teach = Callable[..., None]


def write(library: Library, triggers: dict[str, Sequence[str]]) -> None:
    """Writes skills in one transaction, each with its triggers and nothing else to go by."""
    head = "name: {}\ndescription: Nothing.\nmetadata:\n  triggers: {}\n"
    said = {name: json.dumps(list(its), ensure_ascii=False) for name, its in triggers.items()}
    put_texts(
        library.store, {name: f"---\n{head.format(name, its)}---\n" for name, its in said.items()}
    )


@pytest.fixture
def teach(library: Library) -> Teach:
    return lambda **triggers: write(
        library, {name.replace("_", "-"): its for name, its in triggers.items()}
    )


def ask(library: Library, task: str, limit: int = 10) -> tuple[Match, ...]:
    return match(library.index, task, limit).candidates


def match(index: Index, task: str, limit: int = 10) -> StageResult:
    words = TaskWords.of(task)
    return match_exact(words, index.phrases(words.words, names=words.names, kind=Kind.SKILL), limit)


def names(library: Library, task: str) -> list[str]:
    return [candidate.entry.name for candidate in ask(library, task)]


# Word-bounded


@pytest.mark.parametrize(
    "task", ["restart it", "party", "artist", "smart", "mergepdf", "submerge pdfx"]
)
def test_a_trigger_inside_a_word_does_not_count(library: Library, teach: Teach, task):
    teach(art=["art"], merger=["merge pdf"])
    assert names(library, task) == []


@pytest.mark.parametrize(
    "task", ["art", "(art)", "modern art!", "pop-art", "art/design", "ART.", "_art_", "“art”"]
)
def test_a_trigger_counts_between_any_signs(library: Library, teach: Teach, task):
    teach(painter=["art"])
    assert names(library, task) == ["painter"]


# Singular and plural


@pytest.mark.parametrize("trigger", ["merge pdf file", "merge pdf files", "merges pdfs file"])
def test_singular_and_plural_stand_for_each_other(library: Library, teach: Teach, trigger):
    teach(merger=[trigger])
    for task in ("merge pdf file", "please merge PDFs files of May", "it merges pdf files"):
        (found,) = ask(library, task)
        assert found.sure or found.why.endswith("is the task")


def test_what_stands_as_it_is_written_comes_before_another_number(library: Library, teach: Teach):
    teach(one=["merge pdfs"], other=["merge pdf"])
    assert names(library, "now merge pdf for me") == ["other", "one"]
    assert names(library, "now merge pdfs for me") == ["one", "other"]
    why = ask(library, "merge pdfs now")[1].why
    assert 'trigger "merge pdf" ' in why and "in other forms" in why


def test_a_name_stands_only_as_it_is_written(library: Library, teach: Teach):
    teach(report=[], glass=[])
    assert names(library, "use the reports skill") == []
    assert names(library, "use the report skill") == ["report"]


# Longest first


def test_of_several_triggers_the_longest_comes_first(library: Library, teach: Teach):
    teach(
        a_short=["merge pdf"],
        b_longer=["sign every form"],
        c_longest=["send them by registered mail"],
    )
    assert names(library, "merge pdf, sign every form, and send them by registered mail") == [
        "c-longest",
        "b-longer",
        "a-short",
    ]
    task = "merge pdf, sign every form, and send them by registered mail"
    assert [match.entry.name for match in search_cascade(library.index, task).matches] == [
        "c-longest",
        "b-longer",
        "a-short",
    ]


def test_a_trigger_within_two_longer_ones_that_overlap_is_hidden(library: Library, teach: Teach):
    teach(
        left=["one two three four"],
        right=["four five six seven"],
        inner=["four five"],
        outer=["five six seven eight"],
    )
    assert names(library, "one two three four five six seven") == ["left", "right"]


def test_a_name_that_merely_stands_there_hides_no_trigger(library: Library, teach: Teach):
    teach(merge_pdf_files=[], joiner=["merge pdf"])
    assert names(library, "please merge pdf files of last month")[0] == "joiner"


# Exact names and quotes win


@pytest.mark.parametrize(
    ("task", "name", "why"),
    [
        ("deploy", "deploy", 'name "deploy" is the task'),
        ("skill:deploy with roll out", "deploy", 'name "deploy" is called by name'),
        (
            "use the deploy skill for the roll out of it",
            "deploy",
            'name "deploy" is called by name',
        ),
        ('roll out, then "deploy"', "deploy", 'name "deploy" stands quoted in the task'),
        (
            'we roll out and then there is "changelog" to be looked after',
            "notes",
            "stands quoted in the task",
        ),
        (
            "we roll out and `changelog` " + "is looked after by all of us " * 6,
            "notes",
            "stands quoted in the task",
        ),
        ("roll out “write the news” " + "and so on " * 90, "notes", "stands quoted in the task"),
    ],
)
def test_an_exact_name_or_a_quoted_trigger_wins_and_says_so(
    library: Library, teach: Teach, task, name, why
):
    teach(deploy=["ship it"], notes=["changelog", "write the news"], roller=["roll out"])
    best = search_cascade(library.index, task).matches[0]
    assert (best.entry.name, best.stage) == (name, "keyword")
    assert why in best.why
    assert best.confidence >= 0.97


def test_one_quoted_word_of_a_long_task_may_be_code_and_decides_nothing(
    library: Library, teach: Teach
):
    teach(notes=["changelog"])
    (found,) = ask(library, "see `changelog` " + "and so on " * 90)
    assert not found.sure


# Scripts without spaces


@pytest.mark.parametrize(
    ("trigger", "task"),
    [
        ("数据库迁移", "请帮我做数据库迁移吧"),
        (
            "把整个数据库从旧的服务器迁移到新的集群",
            "今天请你把整个数据库从旧的服务器迁移到新的集群然后告诉我",
        ),
        ("合并PDF文件", "请帮我合并PDF文件吧"),
        ("データベースを移行する", "明日データベースを移行するつもりです"),
        ("데이터베이스", "데이터베이스를 옮겨 주세요"),
    ],
)
def test_a_trigger_stands_in_text_without_spaces(library: Library, teach: Teach, trigger, task):
    teach(mover=[trigger], other=["数据分析"])
    assert names(library, task) == ["mover"]


def test_a_trigger_longer_than_any_that_is_looked_for_is_left_to_the_texts(
    library: Library, teach: Teach
):
    teach(long=[" ".join(f"word{n}" for n in range(LONGEST_PHRASE + 1))])
    assert names(library, " ".join(f"word{n}" for n in range(LONGEST_PHRASE + 9))) == []


# What it costs


def crowd(library: Library, skills: int, trigger: Callable[[int], str]) -> None:
    for start in range(0, skills, 250):
        numbers = range(start, min(skills, start + 250))
        write(library, {f"s-{n}": [trigger(100 * n + m) for m in range(100)] for n in numbers})
    library.index.catch_up()


def seconds(index: Index, *tasks: str, runs: int = 7) -> list[float]:
    """Returns the median of each task's own processor time, which other work on the machine does
    not lengthen.
    """
    times: list[list[float]] = [[] for _ in tasks]
    for _ in range(runs):
        for task, its in zip(tasks, times, strict=True):
            started = time.thread_time()
            match(index, task)
            its.append(time.thread_time() - started)
    return [median(its) for its in times]


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Library]:
    with Library.open(tmp_path / "another", create=True) as library:
        yield library


@pytest.mark.process
def test_time_does_not_grow_with_the_library(library: Library, another: Library):
    for its, skills in ((library, 2), (another, 200)):
        crowd(its, skills, lambda n: f"topic{n} subject{n}")
    task = "please look at topic7 subject7 and at topic11 as soon as you can"

    assert names(library, task) == names(another, task) == ["s-0"]
    (small,), (large,) = seconds(library.index, task), seconds(another.index, task)
    assert large < 3 * small + 0.005


def test_a_long_task_costs_no_more_than_its_first_words(library: Library):
    crowd(library, 20, lambda n: f"topic{n} subject{n}")
    few = " ".join(f"topic{n} other" for n in range(MOST_WORDS // 2))
    many = " ".join(f"topic{n} other" for n in range(1_400))[:20_000]

    short, long, huge = seconds(library.index, few, many, many * 50)
    assert long < 3 * short + 0.02
    assert huge < 3 * short + 0.02


@pytest.mark.process
def test_many_triggers_that_begin_with_one_word_make_no_task_slow(library: Library):
    crowd(library, 100, lambda n: f"merge topic{n}")
    ordinary, hot = seconds(
        library.index,
        "please look at this",
        "please merge pdf, merge topic77, merge it " + "merge " * 400,
    )

    assert names(library, "merge topic77 please") == ["s-0"]
    assert hot < 5 * ordinary + 0.02


@pytest.mark.parametrize(
    "task",
    ["«" * 20_000, "“«" * 10_000, "'a " * 7_000, '"' * 20_001, "skill:" * 4_000, "`a" * 10_000],
)
def test_marks_without_end_make_no_task_slow(library: Library, teach: Teach, task):
    teach(quoter=["some quote"])
    ordinary, hostile = seconds(library.index, "please look at this", task, runs=3)
    assert hostile < 5 * ordinary + 0.05
