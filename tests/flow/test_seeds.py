"""The benchmarks of the papers' tables, in small: their sizes are the papers', and nothing that was
named is lost.
"""

from seeds import evoagent, evoskill

from evolvable_tools.review.context_compression import MAX_TOKENS


def test_the_training_shares_are_the_papers_and_leave_a_test() -> None:
    """mechanisms.md, A2.3: floors of 5, 10 and 15 % of 246, and 17 for validation."""
    assert (
        [int(246 * share) for share in (0.05, 0.10, 0.15)]
        == list(evoskill.TRAINING.values())
        == [12, 24, 36]
    )
    assert all(sum(evoskill.sizes(training)) == 246 for training in evoskill.TRAINING.values())
    assert evoskill.sizes(12)[1] == int(246 * 0.07) == 17


def test_the_cascade_answers_by_trigger_first_and_asks_the_judge_for_the_rest() -> None:
    right, wrong, asked = evoagent.cascade(1)
    assert right["keyword"] == len(evoagent.WORK) and not wrong["keyword"] and not wrong["llm"]
    assert asked == len(evoagent.WORK) + len(evoagent.NO_SKILL)
    assert right["none"] == len(evoagent.NO_SKILL) and wrong["none"] == 1, (
        "one in ten is not known to the judge"
    )


def test_a_growing_history_is_compressed_without_losing_a_name() -> None:
    found = evoagent.history(150)
    assert found["compressions"] >= 1 and found["lost"] == 0
    assert found["head"] <= MAX_TOKENS / 4


def test_the_grades_of_five_dimensions_are_those_that_the_answers_were_written_with():
    means, scores, refused = evoagent.dimensions(20)

    assert {round(mean, 2) for mean in means["without"].values()} == {3.5}
    assert {round(mean, 2) for mean in means["with"].values()} == {4.4}
    assert {arm: round(score, 3) for arm, score in scores.items()} == {
        "without": 0.625,
        "with": 0.85,
    }
    assert refused
