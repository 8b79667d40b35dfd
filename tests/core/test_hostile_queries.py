"""Whatever text is put to `find_skill`, it is answered or refused, in about the time of an ordinary
query.
"""

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from mcp_place import Place
from samples import attacks

from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.retrieval.search_types import Verdict
from evolvable_tools.verbs.search import find_skill

TOPICS = "pdf csv sql helm git garden piano tax photo audio video mail chart map model"
ACTIONS = (
    "merge split review deploy clean draw plan convert measure translate sort audit print archive "
    "sign learn teach mend"
)
ORDINARY = "please convert this chart for the tax review of the garden and archive it"
PERSON = Caller(Actor.HUMAN)

LEEWAY = 0.1
"""Seconds of the processor that anything may take besides: slow machines, a clock that ticks
seldom.
"""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """A library of some 240 skills, each with a body of some length and triggers, some of them
    hostile.
    """
    hostile = [text for case in TEXTS for text in case[1] if len(text) < 200]
    with Library.open(tmp_path_factory.mktemp("shelf") / "home", create=True) as library:
        with library.store.transaction(Actor.IMPORT, "a shelf") as tx:
            for number, (action, topic) in enumerate(
                (a, t) for a in ACTIONS.split() for t in TOPICS.split()
            ):
                name = f"{action}-{topic}"
                triggers = json.dumps(
                    [f"{action} the {topic}", f"{topic} {action}", hostile[number % len(hostile)]]
                )
                body = f"To {action} a {topic}, look at number {number}. " * 20
                head = (
                    f"name: {name}\ndescription: Can {action} any {topic}.\nmetadata:\n"
                    f"  triggers: {triggers}\n"
                )
                text = f"---\n{head}---\n{body}"
                tx.put(Ref(Kind.SKILL, name), {"SKILL.md": File(text.encode("utf-8", "replace"))})
        library.index.catch_up()
        find_skill(library, PERSON, ORDINARY)
        yield library


def texts(case: dict[str, Any]) -> list[str]:
    """Returns the texts of a hostile case; bytes that are no text as the two texts that they might
    be taken for.
    """
    if "gen" in case:
        part, times = case["gen"]["repeat"]
        return [case["gen"].get("prefix", "") + part * times + case["gen"].get("suffix", "")]
    if "b64" in case:
        data = base64.b64decode(case["b64"])
        return [
            data.decode("latin-1"),
            data.decode("utf-8", "replace"),
            data.decode("utf-8", "surrogateescape"),
        ]
    if "json" in case:
        return [json.loads(case["json"])]
    return [str(case[key]) for key in ("input", "pattern", "subject") if key in case]


TEXTS = [
    (case["id"], texts(case))
    for category in ("fts", "sql", "redos", "unicode", "poison")
    for case in attacks(category)
]

LONG = {
    "words": "convert the chart of the garden ",
    "distinct words": "".join(f"word{n} " for n in range(3_000)),
    "one word": "a",
    "one word again and again": "merge ",
    "known words": f"{TOPICS} {ACTIONS} ",
    "operators": 'NEAR("a" AND b*) OR -c ',
    "quotes": '"',
    "opening marks": "«“`'",
    "brackets": "((((",
    "percent": "%_\\",
    "sql": "'; DROP TABLE entry;-- ",
    "ref": "skill:x/y ",
    "slashes": "/-$",
    "newlines": "\n\r\u2028\x85",
    "nul": "a\0",
    "lone surrogates": "\ud800\udfff ",
    "right to left": "\u202eabc\u202c \u2067x",
    "combining marks": "e" + "\u0301" * 500,
    "zero width": "a\u200bb\u200d",
    "tags": "\U000e0067\U000e0062\ufe0f",
    "capitals that grow": "İΐẞ",
    "chinese": "数据库迁移请帮我做吧",
    "korean": "데이터베이스를 옮겨 주세요 ",
    "emoji": "👩‍👩‍👧‍👦",
    "backtracking": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
    "binary": bytes(range(256)).decode("latin-1"),
}


def ask(library: Library, text: str) -> None:
    """Asks, and takes a refusal for an answer when it says what is wrong and what next."""
    try:
        found = find_skill(library, PERSON, text)
    except EvolvableError as error:
        assert isinstance(error, InvalidArgument)
        assert str(error)
        assert error.hint
        assert not text.strip()
    else:
        assert all(0 <= match.confidence <= 1 for match in found.matches)
        assert all(report.said for report in found.stages)
        json.dumps([match.why for match in found.matches], ensure_ascii=False).encode("utf-8")


def seconds(library: Library, *tasks: str, runs: int = 5) -> list[float]:
    """Returns the median of each task's own processor time, which other work on the machine does
    not lengthen.
    """
    times: list[list[float]] = [[] for _ in tasks]
    for _ in range(runs):
        for task, its in zip(tasks, times, strict=True):
            started = time.thread_time()
            ask(library, task)
            its.append(time.thread_time() - started)
    return [median(its) for its in times]


@pytest.mark.parametrize(("id_", "hostile"), TEXTS, ids=[id_ for id_, _ in TEXTS])
def test_every_hostile_text_is_answered_or_refused_in_time(
    shelf: Library, id_: str, hostile: list[str]
) -> None:
    """attacks.json: full-text operators, SQL, patterns, Unicode and planted instructions, alone and
    within a task.
    """
    for text in hostile:
        ordinary, alone, within = seconds(
            shelf, ORDINARY, text, f"{ORDINARY} {text} {ORDINARY}", runs=3
        )
        assert max(alone, within) < 2 * ordinary + LEEWAY


@pytest.mark.parametrize("text", ["", " ", "\n\t\r", "\u3000\u2003", "\x1c\x1d"])
def test_an_empty_task_is_refused(shelf: Library, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        find_skill(shelf, PERSON, text)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", ["\0", "\ud800", "\u200b", "\u202e", "\u0301", "\ufeff", "!", "\x1b[2J", "🏴", "'", "*"]
)
def test_a_task_without_a_word_fits_nothing(shelf: Library, text: str) -> None:
    assert find_skill(shelf, PERSON, text).verdict == "none"


@pytest.mark.parametrize("part", LONG.values(), ids=LONG.keys())
def test_a_task_of_a_megabyte_costs_what_its_first_part_does(shelf: Library, part: str) -> None:
    short = (part * (20_000 // len(part) + 1))[:20_000]
    long = (part * (1_000_000 // len(part) + 1))[:1_000_000]
    ordinary, read, whole = seconds(shelf, ORDINARY, short, long)
    assert read < 2 * ordinary + LEEWAY
    assert whole < 2 * ordinary + LEEWAY


def test_what_is_asked_first_is_found_whatever_follows(shelf: Library) -> None:
    for part in LONG.values():
        found = find_skill(shelf, PERSON, f"use the audit-piano skill: {part}")
        assert found.matches[0].ref == "skill:audit-piano"


def test_the_library_is_whole_after_all_of_it(shelf: Library) -> None:
    before = find_skill(shelf, PERSON, ORDINARY).matches
    for _, hostile in TEXTS:
        for text in hostile:
            ask(shelf, text)
    assert find_skill(shelf, PERSON, ORDINARY).matches == before
    assert shelf.index.find_faults() == []


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_hostile_tasks_through_the_server_are_answered_or_refused(
    tmp_path: Path, era: str
) -> None:
    tasks = [
        "NEAR(",
        'a" OR "1"="1',
        "'; DROP TABLE entry;--",
        "(.*a){25}",
        "a\0b",
        "\u202e}{ cod eht",
        "e" + "\u0301" * 999,
    ]
    async with Place(tmp_path).client(era) as client:
        for task in (*tasks, "merge pdf " * 100_000, bytes(range(256)).decode("latin-1")):
            answer = await client.call_tool("find_skill", {"task": task})
            assert not answer.is_error
            assert answer.structured_content["verdict"] in tuple(Verdict)
        for task in ("", "  \n "):
            refused = await client.call_tool("find_skill", {"task": task})
            assert refused.is_error
            assert "sentence" in refused.content[0].text
        found = await client.call_tool("find_skill", {"task": "merge PDF files"})
        assert found.structured_content["use"]["ref"] == "skill:pdf"
