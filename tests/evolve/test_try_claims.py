"""The two claims of `try`: on these tasks, by labels of repeats; for tasks like these, by groups;
and the forecast.
"""

import random
from itertools import combinations, product

import pytest

from evolvable_evolve.evolution.statistics import (
    MIN_NET,
    SIDE_ALPHA,
    TryAnswer,
    carried_difference,
    claim_of_groups,
    decide_stage,
    forecast_found,
    forecast_rest,
    label_test,
)
from evolvable_evolve.evolution.statistics.claim_stages import stage_level


def by_counting(before, after):
    """Both p-values by dealing the labels in every possible way."""
    seen, ways = 0.0, []
    for task in before:
        pooled, own = [*before[task], *after[task]], len(after[task])
        seen += sum(after[task]) / own - sum(before[task]) / len(before[task])
        ways.append(
            [
                sum(pooled[at] for at in part) / own
                - sum(pooled[at] for at in range(len(pooled)) if at not in part)
                / (len(pooled) - own)
                for part in combinations(range(len(pooled)), own)
            ]
        )
    sums = [sum(one) for one in product(*ways)]
    return (
        sum(one >= seen - 1e-9 for one in sums) / len(sums),
        sum(one <= seen + 1e-9 for one in sums) / len(sums),
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_label_test_counts_as_dealing_all_labels_does(seed):
    chance = random.Random(seed)
    grid = (0.0, 1.0) if seed % 2 else (0.0, 0.25, 0.5, 1.0)
    # Also where trials are missing.
    sizes = [(2, 2), (1, 1), (3, 2), (2, 3), (1, 2)][: 3 + seed % 3]
    before = {
        str(at): [chance.choice(grid) for _ in range(size)] for at, (size, _) in enumerate(sizes)
    }
    after = {
        str(at): [chance.choice(grid) for _ in range(size)] for at, (_, size) in enumerate(sizes)
    }
    found = label_test(before, after)
    assert (found.p, found.p_worse) == pytest.approx(by_counting(before, after))


def repeats(*values, times):
    return {str(at): [float(value)] * times for at, value in enumerate(values)}


def test_a_steady_executor_is_judged_by_its_repeats():
    before, after = repeats(0, 0, 0, *[1] * 9, times=5), repeats(*[1] * 12, times=5)
    found = label_test(before, after)
    assert found.p == pytest.approx(252.0**-3)
    assert (found.steady, found.net, found.fixed, found.broken) == (True, 3.0, 3, 0)
    assert decide_stage(before, after, 5, 5, 12).answer is TryAnswer.HELPS
    assert decide_stage(after, before, 5, 5, 12).answer is TryAnswer.HARMS


def test_a_gain_of_one_task_is_no_help_however_sure_it_is():
    before, after = repeats(0, *[1] * 9, times=5), repeats(*[1] * 10, times=5)
    decision = decide_stage(before, after, 5, 5, 10)
    assert decision.test.p < 0.005 and decision.test.net < MIN_NET
    assert decision.answer is not TryAnswer.HELPS


def test_the_stages_spend_no_more_than_the_level_of_a_side():
    assert sum(stage_level(one, 5) for one in range(1, 6)) == pytest.approx(SIDE_ALPHA)


def test_what_a_comparison_carries_is_known_before_its_first_trial():
    assert carried_difference(15, 5) == pytest.approx(0.26, abs=0.01)  # 150 trials
    assert carried_difference(90, 5) == pytest.approx(0.105, abs=0.01)  # 900 trials


def compare(chances, seed):
    """The answer of one simulated comparison, and its trials."""
    chance, arms = random.Random(seed), ({}, {})
    for stage in range(1, 6):
        for at, pair in enumerate(chances):
            for arm, rate in zip(arms, pair, strict=True):
                arm.setdefault(str(at), []).append(float(chance.random() < rate))
        decision = decide_stage(*arms, stage, 5, len(chances))
        if decision.answer is not None:
            return decision.answer, 2 * stage * len(chances)
    raise AssertionError("the last stage has an answer")


@pytest.mark.parametrize(
    ("chances", "least"),
    [
        ([(0, 1)] * 4 + [(1, 1)] * 6 + [(0, 0)] * 5, 0.9),
        ([(0.05, 0.95)] * 4 + [(0.95, 0.95)] * 6 + [(0.05, 0.05)] * 5, 0.85),
        ([(at / 20, at / 20 + 0.25) for at in range(15)], 0.85),
    ],
    ids=["steady", "5 % noise", "noisy"],
)
def test_fifteen_tasks_show_a_gain_of_25_points_in_at_most_150_trials(chances, least):
    ended = [compare(chances, seed) for seed in range(200)]
    assert sum(answer is TryAnswer.HELPS for answer, _ in ended) >= least * len(ended)
    assert sum(trials for _, trials in ended) / len(ended) <= 120
    assert max(trials for _, trials in ended) <= 150


def test_arms_that_behave_alike_are_seldom_told_apart():
    ended = [compare([(0.5, 0.5)] * 15, seed)[0] for seed in range(300)]
    for wrong in (TryAnswer.HELPS, TryAnswer.HARMS):
        assert ended.count(wrong) <= SIDE_ALPHA * len(ended)


def test_a_claim_about_other_tasks_needs_more_than_five_tasks_that_came_out_better():
    claim = claim_of_groups([1.0] * 5 + [0.0] * 10)
    assert (claim.answer, claim.better, claim.worse) == (TryAnswer.CANNOT_TELL, 5, 0)
    assert claim.more is not None and 1 <= claim.more[0] <= claim.more[1]
    assert claim_of_groups([1.0] * 6 + [0.0] * 9).answer is TryAnswer.HELPS
    assert claim_of_groups([-1.0] * 6 + [0.0] * 9).answer is TryAnswer.HARMS
    assert claim_of_groups([1.0] * 6).answer is TryAnswer.CANNOT_TELL  # six groups are too few


@pytest.mark.process
def test_the_forecast_runs_the_rule_and_meets_what_happens():
    before = forecast_found(15, 5)
    assert before.found >= 0.85 and before.most <= 150
    chances = [(0, 1)] * 4 + [(1, 1)] * 6 + [(0, 0)] * 5
    first = [{str(at): [float(pair[arm])] for at, pair in enumerate(chances)} for arm in (0, 1)]
    later = forecast_rest(*first, 1, 5)
    assert later.found >= 0.85 and later.clear >= 0.85
    assert compare(chances, 0)[1] <= later.most and later.trials <= 1.25 * compare(chances, 0)[1]
