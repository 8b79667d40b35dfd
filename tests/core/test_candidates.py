"""One trip to the index: what a search reads of it at once is what each of its reads says alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from samples import put_texts

from evolvable_store.resource import Kind
from evolvable_store.search.index import Candidates, Index
from evolvable_store.store import Store
from evolvable_tools.retrieval.cascade import search_cascade
from evolvable_tools.retrieval.exact import TaskWords

TASK = "merge two pdf files into one table"
LISTED = 12


def put(store: Store, texts: dict[str, tuple[str, str]]) -> None:
    """Write skills with these descriptions and bodies."""
    text = "---\nname: {}\ndescription: {}\n---\n{}\n"
    put_texts(store, {name: text.format(name, *both) for name, both in texts.items()})


def read(index: Index, task: str = TASK, own: int = 5) -> Candidates:
    words = TaskWords.of(task)
    return index.candidates(
        task,
        words.words,
        names=words.names,
        kind=Kind.SKILL,
        scopes=("user",),
        limit=4,
        list_limit=LISTED,
        own=own,
    )


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Store, Index]]:
    with Store.open(tmp_path / "library", create=True) as store, Index.open(store) as index:
        yield store, index


@pytest.mark.parametrize("count", [LISTED, 3 * LISTED, 500])
def test_one_trip_reads_what_a_search_and_the_phrases_say_alone(
    opened: tuple[Store, Index], count: int
) -> None:
    store, index = opened
    put(
        store,
        {
            f"pdf-{at}": (f"Merges pdf files of kind {at}.", "pdf " * (at % 7))
            for at in range(count)
        },
    )

    found, words = (
        read(index, "use the pdf-3 skill to merge"),
        TaskWords.of("use the pdf-3 skill to merge"),
    )

    alone = index.search(
        "use the pdf-3 skill to merge", kind=Kind.SKILL, scopes=("user",), limit=4, depth=LISTED + 1
    )
    assert found.ranking == alone and len(alone.scored) == 4
    assert list(found.ranking.weighed) == list(alone.weighed)
    assert found.phrases == index.phrases(
        words.words, names=words.names, kind=Kind.SKILL, scopes=("user",)
    )
    assert [phrase.entry.name for phrase in found.phrases] == ["pdf-3"]


def test_a_small_library_comes_whole_and_in_the_order_of_names_and_a_larger_one_does_not(
    opened: tuple[Store, Index],
) -> None:
    store, index = opened
    put(store, {f"skill-{at}": ("Merges pdf files.", "x") for at in range(LISTED)})
    assert read(index).every == index.entries(Kind.SKILL, ("user",)) and read(index).own == ()

    put(store, {"one-more": ("Draws a chart.", "x")})

    assert read(index).every is None


def test_what_says_the_words_of_itself_is_first_among_own_texts_though_long_bodies_rank_before(
    opened: tuple[Store, Index],
) -> None:
    store, index = opened
    loud = {
        f"loud-{at}": ("Does other work.", "merge two pdf files into one table " * 9)
        for at in range(2 * LISTED)
    }
    put(store, loud | {"quiet": ("Merges files.", "x")})

    found = read(index)

    assert all(match.name.startswith("loud") for match in found.ranking.scored)
    (first,) = index.visible_entries(found.own[:1]).values()
    assert first.name == "quiet"


@pytest.mark.parametrize("count", [40, 390])
def test_of_equal_matches_in_a_library_of_few_the_older_ones_are_first(
    opened: tuple[Store, Index], count: int
) -> None:
    store, index = opened
    put(store, {f"skill-{at:03}": ("Merges pdf files.", "x") for at in range(count)})
    # A new text of the oldest is the newest document.
    put(store, {"skill-000": ("Merges  pdf files.", "x")})

    names = [match.name for match in index.search(TASK, limit=3).scored]

    assert names == ["skill-000", "skill-001", "skill-002"]


def test_entries_that_were_read_before_a_change_are_read_again_after_it(
    opened: tuple[Store, Index],
) -> None:
    store, index = opened
    put(store, {"pdf": ("Merges pdf files.", "x")})
    assert (
        read(index).every == index.entries()
        and search_cascade(index, TASK).matches[0].entry.version == 1
    )

    put(store, {"pdf": ("Merges and splits pdf files.", "x")})

    assert [entry.description for entry in read(index).every or ()] == [
        "Merges and splits pdf files."
    ]
    assert search_cascade(index, TASK).matches[0].entry.version == 2
