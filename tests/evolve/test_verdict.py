"""Scores in pairs, and the limit on cost: what the verdict of the sealed test rests on besides
significance.
"""

import pytest

from evolvable_evolve.evolution.statistics.verdict import CostChange, compare_log_costs, pair_scores
from evolvable_store.errors import InvalidArgument

TASKS = [f"t{number:02}" for number in range(40)]


def test_only_tasks_with_a_score_under_both_are_compared_and_repeats_are_averaged():
    before = {"a": [0.0, 1.0], "b": [1.0], "c": [1.0]}
    pairs = pair_scores(before, {"a": [1.0], "b": [0.0], "c": []}, ["a", "b", "c", "d"])

    assert (pairs.tasks, pairs.missing, pairs.coverage) == (("a", "b"), ("c", "d"), 0.5)
    assert pairs.differences == (0.5, -1.0) and pairs.gain == -0.25
    assert (pairs.fixed, pairs.broken) == (("a",), ("b",))
    assert pair_scores({}, {}).coverage == pair_scores({}, {}, TASKS).gain == 0


@pytest.mark.parametrize("wrong", [1.5, -0.1, float("nan")])
def test_a_score_out_of_range_is_refused(wrong):
    with pytest.raises(InvalidArgument, match="t00"):
        pair_scores({"t00": [1.0]}, {"t00": [wrong]})


def costs(ratio: float, known: int = 40, **more: float) -> CostChange | None:
    base = {task: 900.0 + 5 * number for number, task in enumerate(TASKS[:known])}
    return compare_log_costs(
        base, {task: its * ratio for task, its in base.items()}, gain=0.25, tasks=40, **more
    )


def test_more_than_a_quarter_of_tokens_more_is_not_borne_unless_the_limit_is_higher():
    within, dear = costs(1.2), costs(1.4)

    assert within and within.within and dear and not dear.within
    assert dear.ratio == pytest.approx(1.4) and dear.interval[0] == pytest.approx(1.4)
    assert dear.per_extra_solved == pytest.approx((dear.after - dear.before) / 0.25)
    higher = costs(1.4, limit=0.5)
    assert higher and higher.within


def test_a_cost_that_is_known_of_few_tasks_is_unknown():
    assert costs(9.0, known=5) is None
    assert compare_log_costs({}, {}, gain=0.1, tasks=40) is None
