"""How much of a run is done, and how long it takes, as its status says."""

import pytest

from evolvable_evolve.evolution.run_control import describe_effort, minutes_of_work, planned_trials


@pytest.mark.parametrize(
    ("done", "planned", "minutes", "goes_on", "says"),
    [
        (12, 48, 3.0, True, "12 of 48 planned trials, 3.0 min (about 9.0 min left)"),
        (12, 48, 3.0, False, "12 of 48 planned trials, 3.0 min"),
        (1_200, 4_800, 30.0, True, "1,200 of 4,800 planned trials, 30 min (about 90 min left)"),
        (0, 48, 0.2, True, "0 of 48 planned trials, 0.2 min"),
        (50, 48, 3.0, True, "50 of 48 planned trials, 3.0 min"),
        (1, 0, 0.5, True, "1 trial, 0.5 min"),
    ],
)
def test_the_status_says_trials_of_the_planned_ones_and_minutes(
    done, planned, minutes, goes_on, says
):
    assert describe_effort(done, planned, minutes, goes_on=goes_on) == says


def test_a_pause_of_a_run_is_no_work():
    moments = [f"2026-11-29T{time}Z" for time in ("08:00:00", "08:02:00", "08:03:00", "20:00:00")]

    assert minutes_of_work(moments) == 13.0
    assert minutes_of_work(moments[:1]) == 0.0


@pytest.mark.parametrize(
    ("estimate", "number"),
    [({}, 0), ({"evaluations": [10, 20]}, 20), ({"evaluations": [10, 20], "likely": 15}, 15)],
)
def test_the_likely_number_of_trials_is_the_planned_one(estimate, number):
    assert planned_trials(estimate) == number
