"""What the sealed test lets through: one finalist against the base and against no skill at all."""

import pytest

from evolvable_evolve.evolution.statistics.verdict import Ruling, RunVerdict, TokenCosts, decide_verdict
from evolvable_store.errors import InvalidArgument

N = 40
TASKS = [f"t{number:02}" for number in range(N)]


def arm(passed: range | set[int], repeats: int = 1) -> dict[str, list[float]]:
    return {task: [float(number in set(passed))] * repeats for number, task in enumerate(TASKS)}


def ruled(gained: int, lost: int = 0, **more: object) -> RunVerdict:
    """The verdict on a finalist that gained and lost so many tasks over a base that passes half."""
    after = set(range(lost, 20)) | set(range(20, 20 + gained))
    return decide_verdict(arm(range(20)), arm(range(5)), arm(after), look=more.pop("look", 1), tasks=TASKS, **more)


@pytest.mark.parametrize(("gained", "lost"), [(6, 0), (8, 1), (10, 2), (11, 3)])
def test_the_smallest_tallies_that_promote_at_the_first_look(gained, lost):
    promoted = ruled(gained, lost)
    assert promoted.ruling is Ruling.PROMOTE
    assert promoted.p <= promoted.alpha
    assert promoted.against_base.test == "mcnemar"
    assert ruled(gained - 1, lost).ruling is Ruling.NOT_SUPPORTED


def test_tasks_that_came_out_worse_are_told_and_are_no_veto():
    promoted = ruled(12, 3)
    assert (promoted.against_base.gained, promoted.against_base.lost) == (12, 3)
    assert promoted.why.startswith("12 of 40 tasks came out better and 3 worse")
    low, high = promoted.interval
    assert promoted.against_base.gain == pytest.approx(9 / 40)
    assert 0 < low < 9 / 40 < high


def test_a_further_look_at_the_same_test_needs_more():
    assert ruled(6).ruling is Ruling.PROMOTE
    assert ruled(6, look=2).ruling is Ruling.NOT_SUPPORTED
    assert ruled(9, look=3).ruling is Ruling.PROMOTE
    with pytest.raises(InvalidArgument):
        ruled(6, look=0)


def test_a_finalist_worse_than_the_base_or_than_nothing_is_harmful():
    assert ruled(0, 6).ruling is Ruling.HARMFUL
    assert ruled(1, 4).ruling is Ruling.NOT_SUPPORTED
    base, nothing, finalist = arm(range(4)), arm(range(30)), arm(range(5))
    assert decide_verdict(base, nothing, finalist, look=1).ruling is Ruling.HARMFUL


def test_a_finalist_that_beats_the_base_but_not_no_skill_at_all_is_not_supported():
    judged = decide_verdict(arm(range(10)), arm(range(22)), arm(range(20)), look=1)
    assert judged.ruling is Ruling.NOT_SUPPORTED
    assert "no skill at all" in judged.why
    assert decide_verdict(arm(range(10)), None, arm(range(20)), look=1).ruling is Ruling.PROMOTE


@pytest.mark.parametrize("short", [0, 1, 2])
def test_under_sixty_percent_measured_in_any_arm_nothing_is_said(short):
    def judged(measured: int) -> Ruling:
        arms = [arm(set()), arm(set()), arm(range(N))]
        arms[short] = dict(list(arms[short].items())[:measured])
        return decide_verdict(*arms, look=1, tasks=TASKS).ruling

    assert judged(24) is Ruling.PROMOTE
    assert judged(23) is Ruling.INDECISIVE
    assert judged(0) is Ruling.INDECISIVE


def test_nothing_measured_at_all_is_indecisive():
    assert decide_verdict({}, None, {}, look=1).ruling is Ruling.INDECISIVE
    assert decide_verdict({}, None, {}, look=1, tasks=TASKS).against_base.coverage == 0


def test_repeats_are_averaged_and_never_taken_for_tasks():
    once, thrice = ruled(5), decide_verdict(arm(range(20), 3), None, arm(range(25), 3), look=1)
    assert thrice.p == once.p
    assert thrice.ruling is Ruling.NOT_SUPPORTED
    halves = {task: [0.0, 1.0] for task in TASKS}
    judged = decide_verdict(halves, None, arm(range(N), 2), look=1)
    assert (judged.ruling, judged.against_base.test, judged.against_base.n) == (Ruling.PROMOTE, "sign_flip", N)
    assert judged.p == 2.0**-N


def costs(ratio: float, **more: object) -> TokenCosts:
    base = {task: 900.0 + 5 * number for number, task in enumerate(TASKS)}
    return TokenCosts(base, {task: tokens * ratio for task, tokens in base.items()}, **more)


def test_more_than_a_quarter_of_tokens_more_is_not_promoted_unless_the_limit_is_higher():
    assert ruled(10, costs=costs(1.2)).ruling is Ruling.PROMOTE
    dear = ruled(10, costs=costs(1.4))
    assert dear.ruling is Ruling.NOT_SUPPORTED
    assert "40% more tokens" in dear.why
    assert dear.cost.per_extra_solved == pytest.approx((dear.cost.after - dear.cost.before) / (10 / N))
    assert ruled(10, costs=costs(1.4, limit=0.5)).ruling is Ruling.PROMOTE


def test_a_cost_nobody_knows_is_told_as_unknown_and_blocks_nothing():
    unknown = ruled(10, costs=TokenCosts({}, {}))
    assert (unknown.ruling, unknown.cost) == (Ruling.PROMOTE, None)
    few = TokenCosts(dict.fromkeys(TASKS[:5], 1.0), dict.fromkeys(TASKS[:5], 9.0))
    assert ruled(10, costs=few).cost is None


@pytest.mark.parametrize("wrong", [1.5, -0.1, float("nan")])
def test_a_score_out_of_range_is_refused(wrong):
    with pytest.raises(InvalidArgument, match="t00"):
        decide_verdict(arm(range(3)), None, {**arm(range(3)), "t00": [wrong]}, look=1)
