"""The verdict on a search: sure of one match, a choice, or none, by thresholds of the library's
size.
"""

import pytest

from evolvable_store.resource import Kind
from evolvable_store.search.index import IndexEntry, Match
from evolvable_tools.retrieval.search_types import LEAD, SURE, Verdict, VerdictRule, none_below

RULE = VerdictRule(300)


def matches(
    *confidences: float, enough: bool = True, stage: str = "text", sure: int = 0
) -> list[Match]:
    """Return matches of these confidences; the first `sure` are named by the task."""
    return [
        Match(
            IndexEntry(at, Kind.SKILL, "user", f"s{at}", 1, "", (), False, "", "tree"),
            confidence=confidence,
            sure=at < sure,
            stage=stage,
            enough=enough,
        )
        for at, confidence in enumerate(confidences)
    ]


@pytest.mark.parametrize(
    ("confidences", "verdict"),
    [
        ((SURE,), Verdict.SURE),
        ((SURE, SURE - LEAD), Verdict.SURE),
        ((SURE, SURE - LEAD + 0.001), Verdict.CHOOSE),
        ((SURE - 0.001,), Verdict.CHOOSE),
        ((0.9, 0.85), Verdict.CHOOSE),
        ((0.55, 0.9), Verdict.CHOOSE),
        ((0.02, 0.01, 0.01, 0.005), Verdict.CHOOSE),
        ((0.02, 0.01), Verdict.NONE),
        ((), Verdict.NONE),
    ],
)
@pytest.mark.parametrize("resources", [300, 1_000])
def test_the_first_and_its_lead_make_it_sure_and_the_sum_makes_it_none(
    confidences: tuple[float, ...], verdict: Verdict, resources: int
) -> None:
    assert VerdictRule(resources).verdict(matches(*confidences)) is verdict


def test_a_match_is_sure_from_the_same_confidence_in_a_library_of_any_size() -> None:
    for resources in (0, 2, 60, 300, 10_000, 100_000):
        assert VerdictRule(resources).verdict(matches(SURE, 0.3)) is Verdict.SURE


def test_good_siblings_that_share_the_probability_are_a_choice() -> None:
    assert RULE.verdict(matches(*[0.01] * 5)) is Verdict.CHOOSE
    assert RULE.verdict(matches(*[0.01] * 4, *[0.0] * 9)) is Verdict.NONE


def test_only_the_first_five_places_count_in_any_order() -> None:
    assert RULE.verdict(matches(*[0.008] * 20)) is Verdict.NONE
    assert RULE.verdict(matches(0.001, *[0.008] * 4, 0.1)) is Verdict.CHOOSE


def test_a_larger_library_needs_a_lower_sum_for_none() -> None:
    sums = [
        none_below(resources)
        for resources in (0, 1, 3, 5, 10, 60, 100, 300, 1_000, 3_000, 10_000, 1_000_000)
    ]
    assert sums == sorted(sums, reverse=True) and sums[-1] == none_below(10_000) > 0


def test_too_few_words_of_the_task_are_never_sure() -> None:
    assert RULE.verdict(matches(0.99, enough=False)) is Verdict.CHOOSE


def test_what_the_task_names_is_sure_unless_it_names_two() -> None:
    assert RULE.verdict(matches(0.97, 0.95, sure=1)) is Verdict.SURE
    assert RULE.verdict(matches(0.97, 0.95, sure=2)) is Verdict.CHOOSE


def test_a_judges_choice_is_sure_whatever_is_near() -> None:
    assert RULE.verdict(matches(0.7, 0.69, stage="judge")) is Verdict.SURE


def test_a_low_sum_says_nothing_of_a_task_in_another_language() -> None:
    assert VerdictRule(300, comparable=False).verdict([]) is Verdict.CHOOSE


def test_a_higher_threshold_of_the_person_makes_fewer_sure() -> None:
    assert VerdictRule(300, sure_from=0.8).verdict(matches(0.79)) is Verdict.CHOOSE
