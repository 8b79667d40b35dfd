"""The staged test of a sealed test is exact, and its estimates say what they claim."""

import random
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolvable_evolve.evolution.statistics import paired_tests
from evolvable_evolve.evolution.statistics.staged_test import (
    clopper_pearson_upper,
    harm_bound,
    missing_p_value,
    spent_alpha,
    staged_sign_flip,
    stratified_permutation_p_value,
)
from evolvable_store.errors import InvalidArgument

HALVES = st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0])


def singles(values) -> list[list[float]]:
    return [[value] for value in values]


@given(st.lists(HALVES, min_size=1, max_size=9))
@settings(max_examples=40, deadline=None)
def test_with_one_stage_it_is_the_sign_flip_test(differences):
    found = staged_sign_flip([singles(differences)], [len(differences)], 0.04)
    assert found.p == pytest.approx(paired_tests.sign_flip_p_value(differences), abs=1e-12)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1, 1, 1, 1, 1), (3, 1, 2, 1, 5, 1, 2, 4, 1)])
def test_over_all_sign_patterns_and_stages_it_rejects_no_more_than_alpha(sizes):
    """The sizes are what was seen; under the hypothesis every pattern of signs is as likely."""
    alpha, rejected = 0.2, 0
    for signs in product((1, -1), repeat=len(sizes)):
        signed = [sign * size for sign, size in zip(signs, sizes, strict=True)]
        stages = [singles(signed[at : at + 3]) for at in (0, 3, 6)]
        rejected += any(
            staged_sign_flip(stages[: n + 1], [3, 3, 3], alpha).rejects for n in range(3)
        )
    share = rejected / 2 ** len(sizes)
    assert alpha / 3 < share <= alpha


def test_a_group_flips_as_a_whole_so_copies_of_a_task_are_no_further_evidence():
    copied, apart = [[1.0] * 5, [1.0] * 5, [1.0] * 5, [0.0] * 5], singles([1.0] * 15 + [0.0] * 5)
    assert staged_sign_flip([copied], [20], 0.04).p == 1 / 8
    assert staged_sign_flip([apart], [20], 0.04).p == 2.0**-15


def test_a_least_gain_must_be_exceeded_and_scores_without_a_common_step_are_tested_too():
    tiny = singles([0.001 + 0.00001 * number for number in range(20)])
    assert staged_sign_flip([tiny], [20], 0.04).p < 1e-5
    assert staged_sign_flip([tiny], [20], 0.04, least=0.02).p > 0.99
    chance = random.Random(3)
    uneven = singles([chance.uniform(-0.7, 1.0) for _ in range(60)])
    exact = staged_sign_flip([uneven], [60], 0.04).p
    assert exact == pytest.approx(
        paired_tests.sign_flip_p_value([one for [one] in uneven]), abs=0.02
    )


def test_alpha_is_spent_late_and_a_clear_gain_ends_the_test_before_its_last_stage():
    assert [round(spent_alpha(share, 0.04), 5) for share in (0, 1 / 3, 2 / 3, 1)] == [
        0.0,
        0.00037,
        0.01189,
        0.04,
    ]
    clear = staged_sign_flip([singles([1.0] * 15 + [0.0] * 18)], [33, 33, 34], 0.04)
    assert clear.rejects and not clear.futile
    assert staged_sign_flip([singles([-1.0, 0.0, 0.0])], [3, 3, 3], 0.04).futile
    assert not staged_sign_flip([singles([-1.0])] * 3, [1, 1, 1], 0.04).futile
    with pytest.raises(InvalidArgument):
        staged_sign_flip([], [3], 0.04)


@pytest.mark.process
@pytest.mark.parametrize("ends", [(30, 60, 90), (45, 68, 90)])
def test_estimates_after_an_early_end_have_no_high_median_and_the_interval_holds_the_gain(
    ends,
):
    chance, true, high, held, plain = random.Random(8), 0.1, 0, 0, 0
    runs = 80
    for _ in range(runs):
        drawn = [
            chance.choices((1.0, 0.5, 0.0, -0.5), (0.04, 0.2, 0.68, 0.08))[0] for _ in range(90)
        ]
        stages = [singles(drawn[at:end]) for at, end in zip((0, *ends), ends, strict=False)]
        for number in (1, 2, 3):
            result = staged_sign_flip(stages[:number], [len(stage) for stage in stages], 0.04)
            if result.rejects or number == 3:
                break
        low, up = result.interval
        held += low <= true <= up
        high += result.estimate > true
        plain += result.gain > true
    assert 0.38 <= high / runs <= 0.62
    assert high <= plain
    assert held / runs >= 0.93


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=2),
            st.lists(HALVES.map(abs), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=40, deadline=None)
@pytest.mark.process
def test_the_permutation_within_tasks_is_what_trying_every_exchange_gives(arms):
    # Not all the same: the arm is random.
    before = {str(n): [*one, 0.25] for n, (one, _) in enumerate(arms)}
    after = {str(n): [*other, 0.75] for n, (_, other) in enumerate(arms)}
    ways = []
    for task in before:
        pooled, taken = [*before[task], *after[task]], len(after[task])
        left, every = len(pooled) - taken, sum(pooled)
        chosen = (
            sum(pooled[at] for at in picked) for picked in combinations(range(len(pooled)), taken)
        )
        ways.append([one / taken - (every - one) / left for one in chosen])
    seen = sum(sum(after[t]) / len(after[t]) - sum(before[t]) / len(before[t]) for t in before)
    every = [sum(one) for one in product(*ways)]
    by_hand = sum(one >= seen - 1e-9 for one in every) / len(every)
    assert stratified_permutation_p_value(before, after) == pytest.approx(by_hand, abs=1e-9)


def test_an_arm_without_any_chance_in_it_counts_once_a_task():
    fixed = {f"t{n}": [0.0] * 5 for n in range(3)}
    better = {f"t{n}": [1.0] * 5 for n in range(3)}
    assert stratified_permutation_p_value(fixed, better) == 1 / 8
    shaky = {**better, "t0": [1.0, 1.0, 1.0, 1.0, 0.0]}
    assert stratified_permutation_p_value({**fixed, "t1": [0.0] * 4 + [1.0]}, shaky) < 1e-4
    assert (
        stratified_permutation_p_value(fixed, fixed)
        == stratified_permutation_p_value({}, {})
        == 1.0
    )


def test_many_small_gains_do_not_hide_rare_large_losses():
    small = singles([0.03] * 97)
    assert harm_bound([*small, *singles([-0.97] * 3)]) < 0
    assert harm_bound(singles([0.01] * 100)) < 0
    assert harm_bound(singles([0.08] * 100)) > 0
    assert clopper_pearson_upper(0, 100) == pytest.approx(1 - 0.05**0.01, abs=1e-9)
    assert clopper_pearson_upper(5, 5) == 1.0
    assert clopper_pearson_upper(1_999, 2_000) == pytest.approx(0.95 ** (1 / 2_000), abs=1e-9)
    assert 0.765 < clopper_pearson_upper(1_500, 2_000) < 0.767


def test_results_missing_in_one_arm_alone_are_no_chance():
    assert missing_p_value(0, 17, 100) < 1e-4
    assert missing_p_value(3, 3, 100) > 0.5
    assert missing_p_value(0, 0, 100) == missing_p_value(4, 0, 100) == 1.0
