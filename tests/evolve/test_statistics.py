"""The statistics of paired trials: exact where they say so, and honest where they estimate."""

import math
import random
from itertools import product

import pytest
from baselines import e_process
from hypothesis import given, settings
from hypothesis import strategies as st

from evolvable_evolve.evolution.statistics import paired_tests
from evolvable_store.errors import InvalidArgument

SCORES = st.sampled_from([-1.0, -2 / 3, -0.5, -1 / 3, 0.0, 0.25, 1 / 3, 2 / 3, 1.0])


def by_hand(differences: list[float]) -> float:
    """The p-value by trying every pattern of signs."""
    sizes = [abs(value) for value in differences if value]
    seen = math.fsum(differences) - 1e-9
    sums = [
        math.fsum(sign * size for sign, size in zip(signs, sizes, strict=True))
        for signs in patterns(len(sizes))
    ]
    return sum(total >= seen for total in sums) / len(sums)


def patterns(count: int) -> list[tuple[int, ...]]:
    return list(product((1, -1), repeat=count))


@given(st.lists(SCORES, min_size=1, max_size=9))
@settings(max_examples=60, deadline=None)
def test_the_sign_flip_test_is_what_trying_every_pattern_gives(differences):
    assert paired_tests.sign_flip_p_value(differences) == pytest.approx(
        by_hand(differences), abs=1e-12
    )


@given(st.lists(st.floats(-1, 1).map(lambda value: round(value, 4)), min_size=1, max_size=9))
@settings(max_examples=60, deadline=None)
def test_it_is_exact_for_differences_that_share_no_step(differences):
    assert paired_tests.sign_flip_p_value(differences) == pytest.approx(
        by_hand(differences), abs=1e-12
    )


def binomial_tail(gained: int, lost: int) -> float:
    """McNemar's one-sided p-value: the chance of at least so many gained of all that differ."""
    pairs = gained + lost
    return sum(math.comb(pairs, count) for count in range(gained, pairs + 1)) / 2**pairs


def test_of_tasks_that_pass_or_fail_it_is_mcnemars_for_any_number_of_them():
    for gained, lost in ((6, 0), (40, 25), (300, 240)):
        assert paired_tests.sign_flip_p_value(
            [1.0] * gained + [0.0] * 50 + [-1.0] * lost
        ) == pytest.approx(binomial_tail(gained, lost), rel=1e-9)


def test_where_it_is_drawn_it_is_near_the_truth_never_zero_and_the_same_for_the_same_seed():
    chance = random.Random(5)
    irregular = [chance.uniform(-0.8, 1.0) for _ in range(60)]
    estimate = paired_tests.sign_flip_p_value(irregular, 1)
    assert (
        estimate
        == paired_tests.sign_flip_p_value(irregular, 1)
        != paired_tests.sign_flip_p_value(irregular, 2)
    )
    spread = math.sqrt(math.fsum(value * value for value in irregular))
    normal = 0.5 * math.erfc(math.fsum(irregular) / spread / math.sqrt(2))
    assert estimate == pytest.approx(normal, abs=0.02)
    assert paired_tests.sign_flip_p_value([chance.uniform(0.5, 1.0) for _ in range(60)]) > 0


def test_nothing_that_differs_is_no_evidence():
    assert paired_tests.sign_flip_p_value([]) == paired_tests.sign_flip_p_value([0.0, 0.0]) == 1.0


def test_intervals_hold_the_mean_and_follow_the_seed():
    differences = [1.0] * 12 + [0.0] * 30 + [-1.0] * 4
    low, high = paired_tests.paired_interval(differences, 7)
    assert low < sum(differences) / len(differences) < high
    irregular = [math.sin(number) for number in range(40)]
    assert paired_tests.paired_interval(irregular, 7) == paired_tests.paired_interval(irregular, 7)
    assert paired_tests.paired_interval(irregular, 7) != paired_tests.paired_interval(irregular, 8)
    assert paired_tests.paired_interval([]) == (-1.0, 1.0)
    assert paired_tests.paired_interval([0.5]) == (0.5, 0.5)


@pytest.mark.process
@pytest.mark.parametrize("steps", [(1.0, 0.0, 0.0, -1.0), (1.0, 1 / 3, -2 / 3, 0.0, 0.0)])
def test_an_interval_from_all_resamples_is_that_of_many_drawn_ones(steps):
    differences = list(steps) * 8
    chance = random.Random(1)
    means = sorted(
        sum(chance.choices(differences, k=len(differences))) / len(differences)
        for _ in range(20_000)
    )
    low, high = paired_tests.paired_interval(differences)
    assert (low, high) == pytest.approx((means[500], means[19_500]), abs=0.03)
    assert paired_tests.paired_interval([1.0] * 900 + [0.0] * 1100)[0] == pytest.approx(
        0.45 - 0.0218, abs=0.003
    )


def test_money_bet_at_fair_odds_is_expected_to_stay_what_it_was():
    """So holding 1/alpha ever has a chance of at most alpha, however often one looks."""
    last = [list(e_process.wealth(signs))[-1] for signs in patterns(10)]
    assert sum(last) / len(last) == pytest.approx(1.0)
    ever = [max(e_process.wealth(signs)) >= 20 for signs in patterns(12)]
    assert sum(ever) / len(ever) <= 0.05


def test_the_betting_test_stops_at_the_first_reading():
    accepted = e_process.read([1.0] * 30)
    assert accepted.reading is e_process.Reading.ACCEPT
    assert accepted.pairs < 12
    assert e_process.read([-1.0] * 30).reading is e_process.Reading.FUTILE
    assert e_process.read([0.0] * 30) == e_process.Sequential(e_process.Reading.CONTINUE, 30, 1.0)


def test_all_looks_together_stay_under_alpha():
    assert sum(paired_tests.alpha_for_look(look) for look in range(1, 5000)) <= 0.05
    assert paired_tests.alpha_for_look(1) > 4 * paired_tests.alpha_for_look(3)
    with pytest.raises(InvalidArgument):
        paired_tests.alpha_for_look(0)
