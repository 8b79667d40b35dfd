"""Sums over postings: what is compiled and what is written in Python give the same numbers, and refuse the same."""

import importlib
from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolvable_store.search import bm25
from evolvable_store.search import postings as plain_sums

LENGTH = 12

postings = st.dictionaries(st.integers(0, LENGTH - 1), st.integers(1, 255), max_size=LENGTH).map(
    lambda its: dict(sorted(its.items()))
)
terms = st.lists(st.tuples(st.lists(postings, max_size=3), st.floats(0, 9), st.floats(0, 9)), max_size=6)
Terms = list[tuple[list[dict[int, int]], float, float]]


@pytest.fixture(scope="module", params=["_scoring", "plain_sums"])
def loops(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "_scoring" and not bm25.COMPILED:
        pytest.skip("nothing was compiled where this was installed")
    return plain_sums if request.param == "plain_sums" else importlib.import_module("evolvable_store.search._scoring")


def packed(its: dict[int, int]) -> tuple[bytes, bytes]:
    return array("H", its).tobytes(), bytes(its.values())


def summed(loops: ModuleType, asked: Terms) -> "plain_sums.Sums":
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
def test_the_best_come_first_and_of_equals_the_lower(loops: ModuleType, asked: Terms, limit: int) -> None:
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
