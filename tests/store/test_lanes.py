"""Lanes: what one large integer says of many numbers is what each of them says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolvable_store.lanes import FRACTION, any_of, gathered, spread

LENGTH = 7

rows = st.lists(st.binary(min_size=LENGTH, max_size=LENGTH), max_size=9)
factors = st.lists(st.integers(min_value=0, max_value=1 << 40), min_size=9, max_size=9)


@given(rows, factors)
def test_products_and_sums_are_those_of_each_number(rows: list[bytes], factors: list[int]) -> None:
    lanes = sum(spread(row) * factor for row, factor in zip(rows, factors, strict=False))

    expected = [sum(row[at] * factor for row, factor in zip(rows, factors, strict=False)) for at in range(LENGTH)]
    assert gathered(lanes, LENGTH) == [number / FRACTION for number in expected]


@given(rows)
def test_a_lane_is_one_where_any_row_has_a_number(rows: list[bytes]) -> None:
    lanes = any_of(rows, LENGTH) * FRACTION

    assert gathered(lanes, LENGTH) == [float(any(row[at] for row in rows)) for at in range(LENGTH)]


def test_the_largest_number_that_fits_does_not_run_into_the_next() -> None:
    largest = (2**64 - 1) // 255

    assert gathered(spread(bytes([255, 0, 255])) * largest, 3) == pytest.approx([2**24, 0, 2**24])


def test_nothing_in_a_lane_is_nothing() -> None:
    assert gathered(0, 3) == [0.0, 0.0, 0.0]
