"""Sums over postings, and indexing: compiled and in Python they give the same, and
refuse the same.
"""

import importlib
import random
from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolvable_store.search import analyzer, bm25, posting_loops, rare_postings
from evolvable_store.search.analyzer import TermCounterInPython as InPython

LENGTH = 12
LINEAR = (1, 0, 1, 255, 100)  # a term that is said once weighs half; the length does not count

postings = st.dictionaries(st.integers(0, LENGTH - 1), st.integers(1, 255), max_size=LENGTH).map(
    lambda its: dict(sorted(its.items()))
)
terms = st.lists(
    st.tuples(st.lists(postings, max_size=3), st.floats(0, 9), st.floats(0, 9)), max_size=6
)
Terms = list[tuple[list[dict[int, int]], float, float]]


@pytest.fixture(scope="module", params=["_scoring", "posting_loops"])
def loops(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "_scoring" and not bm25.COMPILED:
        pytest.skip("nothing was compiled where this was installed")
    return (
        posting_loops
        if request.param == "posting_loops"
        else importlib.import_module("evolvable_store.search._scoring")
    )


def read_entries(
    loops: ModuleType, data: bytes, term: bytes | None = None
) -> list[rare_postings.PostingRow]:
    return (loops if loops is not posting_loops else rare_postings).read_entries(data, term)  # type: ignore[no-any-return]


def packed(its: dict[int, int]) -> tuple[bytes, bytes]:
    return array("H", its).tobytes(), bytes(its.values())


def summed(loops: ModuleType, asked: Terms) -> "posting_loops.Sums":
    found = loops.Sums(LENGTH)
    for number, (fields, factor, share) in enumerate(asked, 1):
        for its in fields:
            found.add(*packed(its), factor, number, share)
    return found  # type: ignore[no-any-return]


@given(terms)
def test_a_score_is_the_sum_of_its_weights_and_a_term_in_two_fields_covers_once(
    loops: ModuleType, asked: Terms
) -> None:
    found = summed(loops, asked)

    for at in range(LENGTH):
        score = share = 0.0
        for fields, factor, part in asked:
            for its in fields:
                score += its.get(at, 0) * factor
            share += part if any(at in its for its in fields) else 0.0
        assert found.at(at) == (at, score, share)


@given(terms, st.floats(0.1, 30), st.floats(0, 1))
def test_scores_grow_with_what_is_covered_which_is_never_more_than_all(
    loops: ModuleType, asked: Terms, all_: float, part: float
) -> None:
    before, found = summed(loops, asked), summed(loops, asked)
    found.cover(all_, part)

    for at in range(LENGTH):
        _, score, share = before.at(at)
        covered = min(share / all_, 1.0)
        assert found.at(at) == (at, score * (1 - part + part * covered), covered)


@given(terms, st.integers(-1, LENGTH + 1))
def test_the_best_come_first_and_of_equals_the_lower(
    loops: ModuleType, asked: Terms, limit: int
) -> None:
    found = summed(loops, asked)
    there = [its for its in map(found.at, range(LENGTH)) if its[1] > 0]

    assert found.best(limit) == sorted(there, key=lambda its: (-its[1], its[0]))[: max(limit, 0)]


@given(postings, st.lists(st.integers(0, (1 << 16) - 1), max_size=20))
def test_weights_are_found_in_any_order_and_where_there_is_none_it_is_nothing(
    loops: ModuleType, its: dict[int, int], asked: list[int]
) -> None:
    found = loops.weights_at(*packed(its), array("H", asked).tobytes())

    assert list(found) == [its.get(at, 0) for at in asked]


def test_a_buffer_may_begin_at_an_odd_address(loops: ModuleType) -> None:
    places = memoryview(b"-" + array("H", [1, 3]).tobytes())[1:]
    found = loops.Sums(LENGTH)
    found.add(places, b"\x02\x03", 1.0, 1, 0.0)

    assert found.best(9) == [(3, 3.0, 0.0), (1, 2.0, 0.0)]
    assert loops.weights_at(places, b"\x02\x03", places) == b"\x02\x03"


@pytest.mark.parametrize(
    ("places", "weights"),
    [([0], b""), ([], b"\x01"), ([0, 1], b"\x01"), ([LENGTH], b"\x01"), ([1, 65_535], b"\x01\x01")],
)
def test_postings_that_are_none_are_refused_and_nothing_is_added(
    loops: ModuleType, places: list[int], weights: bytes
) -> None:
    found = loops.Sums(LENGTH)

    with pytest.raises(ValueError, match="weight for each place|beyond the row"):
        found.add(array("H", places).tobytes(), weights, 1.0, 1, 1.0)

    assert found.best(LENGTH) == []


def test_what_cannot_be_asked_is_refused(loops: ModuleType) -> None:
    for length in (0, -1, (1 << 16) + 1):
        with pytest.raises(ValueError, match="65536"):
            loops.Sums(length)
    for place in (-1, LENGTH):
        with pytest.raises(IndexError):
            loops.Sums(LENGTH).at(place)
    with pytest.raises(ValueError, match="two bytes"):
        loops.weights_at(b"", b"", b"\x01")
    with pytest.raises(ValueError, match="one weight"):
        loops.weights_at(b"\x01\x00", b"", b"")
    with pytest.raises(TypeError):
        loops.Sums(LENGTH).add("", b"", 1.0, 1, 1.0)


# Indexing


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    if not bm25.COMPILED:
        pytest.skip("nothing was compiled where this was installed")
    return importlib.import_module("evolvable_store.search._scoring")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=60), st.text("abz09 -_\n\0é", max_size=90)), max_size=5))
def test_terms_are_counted_alike_with_and_without_a_compiler_whatever_is_remembered(
    compiled: ModuleType, texts: list[str]
) -> None:
    def stem(word: str) -> str:
        return word[:2]

    ours, plain = (
        made(stem, {"ab": "zz"}, frozenset(("a", "09")), 5, 3)
        for made in (compiled.TermCounter, InPython)
    )
    for text in texts:
        data = text.encode("utf-8", "replace").lower()
        assert ours.weigh(data, 1.4, 0.75, 3, 255, 4) == plain.weigh(data, 1.4, 0.75, 3, 255, 4)
    every = [text.encode("utf-8", "replace").lower() for text in texts]
    assert ours.weigh_pairs(every, 1.4, 0.75, 3, 255, 9) == plain.weigh_pairs(
        every, 1.4, 0.75, 3, 255, 9
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.one_of(st.text(max_size=30), st.text("ab the, é", max_size=60)), max_size=4),
    st.text("ab the é"),
)
def test_pairs_are_the_neighbours_of_each_name_and_of_the_description(
    names: list[str], description: str
) -> None:
    expected = [
        f"{analyzer.term(one)} {analyzer.term(other)}"
        for text in (*names, description)
        for one, other in analyzer.neighbours(analyzer.tokenize(text))
    ]
    pairs, weights = analyzer.weigh_fields(names, description, (), "", ()).get("pairs", ("", b""))
    assert (pairs.split("\n") if weights else []) == list(dict.fromkeys(expected))


def test_many_pairs_are_counted_alike_with_and_without_a_compiler(compiled: ModuleType) -> None:
    chance = random.Random(1)
    data = [" ".join(chance.choices([f"w{number}" for number in range(60)], k=3_000)).encode()] * 2
    ours, plain = (
        made(str, {}, frozenset(("w7",)), 64, 100) for made in (compiled.TermCounter, InPython)
    )
    found = ours.weigh_pairs(data, 1.4, 0.75, 30, 255, 5_000)
    assert found == plain.weigh_pairs(data, 1.4, 0.75, 30, 255, 5_000) and len(found[1]) > 1_900
    assert ours.weigh_pairs(data, 1.4, 0.75, 30, 255, 9) is None, "more pairs than were asked for"
    words: Any = ["no bytes"]
    with pytest.raises(TypeError):
        ours.weigh_pairs(words, 1.4, 0.75, 30, 255, 9)
    assert ours.weigh_pairs([b"a b"], *LINEAR) == ("a b", b"\x80")


@settings(max_examples=40, deadline=None)
@given(st.text())
def test_the_terms_of_a_text_are_those_of_its_tokens(text: str) -> None:
    expected = list(dict.fromkeys(map(analyzer.term, analyzer.tokenize(text))))
    terms, weights = analyzer.weigh_fields([], "", (), text, ()).get("body", ("", b""))
    assert (terms.split("\n") if weights else []) == expected and len(weights) == len(expected)


def test_a_stemmer_that_fails_counts_nothing_and_the_next_text_is_counted(
    compiled: ModuleType,
) -> None:
    def stem(word: str) -> str:
        if word == "bad":
            raise ZeroDivisionError
        return word

    counter = compiled.TermCounter(stem, {}, frozenset(), 64, 100)
    with pytest.raises(ZeroDivisionError):
        counter.weigh(b"good bad good", *LINEAR)
    assert counter.weigh(b"good", *LINEAR) == ("good", b"\x80")


def test_a_text_is_not_counted_while_another_is(compiled: ModuleType) -> None:
    inner: list[object] = []

    def stem(word: str) -> str:
        inner.append(counter.weigh(b"b", *LINEAR))
        return word

    counter = compiled.TermCounter(stem, {}, frozenset(), 64, 100)
    assert counter.weigh(b"a", *LINEAR) == ("a", b"\x80") and inner == [None]


def test_the_weight_of_a_term_saturates_and_falls_with_the_length_of_the_text(
    compiled: ModuleType,
) -> None:
    for made in (compiled.TermCounter, InPython):
        counter = made(str, {}, frozenset(), 64, 100)
        assert counter.weigh(b"", *LINEAR) == ("", b"")
        assert counter.weigh(b"b a b b", *LINEAR) == ("b\na", bytes([round(255 * 3 / 4), 128]))
        assert counter.weigh(b"b a b b", 1, 0.5, 2, 255, 9) == ("b\na", bytes([170, 102]))
        assert counter.weigh(b"a b c", 1, 0, 1, 255, 2) is None, "more terms than were asked for"
        assert counter.weigh(b"a", 1000, 0, 1, 255, 2) == ("a", b"\1"), "no term weighs nothing"


gathered = st.lists(
    st.lists(
        st.dictionaries(
            st.text("abcé\U00020000\uffee ", min_size=1, max_size=2), st.integers(1, 255)
        ),
        min_size=3,
        max_size=3,
    ),
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(gathered, st.integers(1, 7), st.integers(0, 3))
def test_rows_are_gathered_alike_with_and_without_a_compiler(
    compiled: ModuleType, documents: list[list[dict[str, int]]], block_size: int, most: int
) -> None:
    noted = [
        (
            3 * id_,
            [(field, "\n".join(its), bytes(its.values())) for field, its in enumerate(fields)],
        )
        for id_, fields in enumerate(documents)
    ]
    rows, entries = expected = posting_loops.gather_postings(noted, block_size, most, 3)
    assert (
        compiled.gather_postings(noted, block_size, most, 3)
        == expected
        == (sorted(rows), sorted(entries))
    )


@pytest.mark.parametrize(
    "wrong",
    [
        [(1, [(64, "", b"")])],
        [(-1, [(0, "a", b"1")])],
        [(1, {})],
        ["text"],
        [(1, [()])],
        [(1, [(0, ["a"], b"1")])],
    ],
)
def test_what_is_no_document_is_refused(compiled: ModuleType, wrong: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        compiled.gather_postings(wrong, 10, 1, 1)
    with pytest.raises(ValueError):
        compiled.gather_postings([], 0, 1, 1)
    for most, buckets in ((-1, 1), (256, 1), (1, 0)):
        with pytest.raises(ValueError):
            compiled.gather_postings([], 10, most, buckets)


def test_a_term_too_long_for_an_entry_has_rows_of_its_own(loops: ModuleType) -> None:
    longest, longer = "a" * 65_535, "b" * 65_536
    rows, entries = loops.gather_postings([(1, [(0, f"{longest}\n{longer}", b"12")])], 10, 1, 1)
    assert [row[0] for row in rows] == [longer]
    assert [entry[0] for entry in read_entries(loops, entries[0][1])] == [longest]


@settings(max_examples=40, deadline=None)
@given(gathered)
def test_entries_say_what_rows_say(
    loops: ModuleType, documents: list[list[dict[str, int]]]
) -> None:
    noted = [
        (
            40 * id_,
            [(field, "\n".join(its), bytes(its.values())) for field, its in enumerate(fields)],
        )
        for id_, fields in enumerate(documents)
    ]
    rows, none = loops.gather_postings(noted, 60, 0, 3)
    often, entries = loops.gather_postings(noted, 60, 255, 3)
    assert not none and not often
    assert sorted(row for _, data in entries for row in read_entries(loops, data)) == rows
    for term in {row[0] for row in rows}:
        bucket = rare_postings.bucket_of(term.encode(), 3)
        found = [
            row
            for number, data in entries
            if number == bucket
            for row in read_entries(loops, data, term.encode())
        ]
        assert found == [row for row in rows if row[0] == term]


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60), st.none() | st.binary(max_size=3))
def test_entries_that_are_none_are_refused_alike(
    compiled: ModuleType, data: bytes, term: bytes | None
) -> None:
    def read(loops: ModuleType) -> object:
        try:
            return read_entries(loops, data, term)
        except ValueError as error:
            return type(error), str(error)

    assert read(compiled) == read(rare_postings)


@settings(max_examples=40, deadline=None)
@given(gathered, st.integers(1, 30))
def test_an_entry_that_is_cut_off_is_refused(
    loops: ModuleType, documents: list[list[dict[str, int]]], less: int
) -> None:
    noted = [
        (id_, [(0, "\n".join(fields[0]), bytes(fields[0].values()))])
        for id_, fields in enumerate(documents)
    ]
    for _, data in loops.gather_postings(noted, 60, 1, 1)[1]:
        whole = {
            sum(map(rare_postings.size_of_entry, read_entries(loops, data)[:count]))
            for count in range(len(data))
        }
        if len(data) - less not in whole and less < len(data):
            with pytest.raises(ValueError, match="cut off"):
                read_entries(loops, data[:-less])
