"""What a run is estimated at is what it takes: the estimate after its first trials beside the
trials of the whole.
"""

import asyncio
import json
from pathlib import Path

import pytest
from evolve_runs import program, running, scripted, task

from evolvable_evolve.evolution.ledger.run_state import RunState
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.task import Split

NEEDS = (["needs:iso"], [], ["needs:sums"], ["chance:0.5"])
TINY, NARROW, FULL = (4, 3, 7), (6, 8, 16), (24, 30, 50)


def trials_in(place: Path) -> int:
    """The trials that were run, of the open and of the sealed ledger: a known result is
    no trial.
    """
    lines = [line for ledger in place.glob("*.jsonl") for line in ledger.read_bytes().splitlines()]
    records = [json.loads(line)["record"] for line in lines]
    return sum(one["type"] == "trial" and not one["trial"].get("cached") for one in records)


def finished(
    place, sizes, proposals, merged=None, base=None, exploratory=False, **given
) -> RunState:
    """The state of a run that came to its verdict. sizes: of train, val and test."""
    splits = {
        split: [task(split, n, *NEEDS[n % 4]) for n in range(size)]
        for split, size in zip(Split, sizes, strict=True)
    }
    settings = RunSettings("environment:made-up", **given)
    with running(place, base or program(), scripted(proposals), splits, settings) as run:
        run.state.exploratory = exploratory
        run.merged = [("skill:forms", merged)] if merged else []
        asyncio.run(run_phases(run))
        assert run.state.looks == 1, run.state.verdict["why"]
        return run.state


@pytest.mark.process
@pytest.mark.parametrize("against", [True, False], ids=["against a skill", "against nothing"])
@pytest.mark.parametrize(
    ("sizes", "more"),
    [
        (TINY, {"exploratory": True}),
        (NARROW, {"exploratory": True}),
        (NARROW, {"exploratory": True, "test_repeats": 2}),
        (FULL, {}),
        (FULL, {"test_repeats": 1, "repeats": 2}),
    ],
)
def test_a_measurement_takes_what_it_was_estimated_at(tmp_path, sizes, more, against):
    base = program("Say hello.") if against else type(program())()
    state = finished(
        tmp_path,
        sizes,
        [("x", [])],
        program("rule: iso"),
        base,
        iterations=0,
        purpose="measure",
        mode="any",
        **more,
    )

    low, high = state.preflight["estimate"]["evaluations"]
    assert 0.98 * low <= trials_in(tmp_path) <= 1.02 * high and (low == high) == bool(
        more.get("exploratory")
    )


FRUITLESS = [(f"Say {n}", [f"Word {n}."]) for n in range(40)]


@pytest.mark.process
@pytest.mark.parametrize(
    ("sizes", "more"),
    [
        (NARROW, {"exploratory": True}),
        (FULL, {}),
        (FULL, {"iterations": 4}),
        (FULL, {"trials": 700}),
    ],
)
def test_a_search_that_opens_its_test_takes_about_what_it_was_estimated_at(tmp_path, sizes, more):
    state = finished(tmp_path, sizes, [("Dates are ISO", ["rule: iso"]), *FRUITLESS], **more)

    estimate = state.preflight["estimate"]
    assert estimate["likely"] == pytest.approx(trials_in(tmp_path), rel=0.2)
    assert estimate["evaluations"][0] <= trials_in(tmp_path) <= estimate["evaluations"][1]
