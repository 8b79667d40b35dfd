"""A run that is killed at a record of its ledger comes to the same frontier and the same bill."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).parents[1] / "support/evolve_child.py"

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.name == "nt", reason="there is no fork and no SIGKILL"),
]


def killed(folder: Path, first: int, step: int, *what: str) -> tuple[dict, list[tuple[int, dict]]]:
    """What the whole run came to, and each that was killed after so many records."""
    command = [sys.executable, str(CHILD), str(folder), str(first), str(step), *what]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    whole, *others = map(json.loads, ran.stdout.splitlines())
    return whole, [(number, came_to) for number, came_to in others]


def test_killed_at_some_records_it_comes_to_the_same_frontier_and_the_same_bill(tmp_path):
    whole, others = killed(tmp_path, 4, 23)

    assert whole["verdict"] == "PROMOTE" and whole["decisions"] == ["rejected", "admitted"]
    assert len(others) >= 5
    assert all(came_to == whole for _, came_to in others), others


def test_a_run_that_changes_agents_and_is_killed_comes_to_the_same_changes(tmp_path):
    whole, others = killed(tmp_path, 95, 60, "structure")

    assert [action for action, *_ in whole["changes"]] == ["keep", "add"] and whole[
        "decisions"
    ] == ["admitted"] * 2
    assert len(others) >= 4
    assert all(came_to == whole for _, came_to in others), others


def test_a_run_by_critiques_that_is_killed_comes_to_the_same_critiques_and_the_same_bill(tmp_path):
    whole, others = killed(tmp_path, 50, 70, "textgrad")

    assert len(whole["gradients"]) == 4 and whole["decisions"] == ["rejected", "admitted"]
    assert len(others) >= 2
    assert all(came_to == whole for _, came_to in others), others


@pytest.mark.nightly
@pytest.mark.parametrize("optimizer", ["textgrad", "reinforce_pp", "grpo"])
def test_a_run_with_any_optimizer_may_be_killed_at_any_record(tmp_path, optimizer):
    whole, others = killed(tmp_path, 1, 1, optimizer)

    assert len(others) > 100 and (whole["gradients"] or whole["signals"])
    assert [number for number, came_to in others if came_to != whole] == []


@pytest.mark.nightly
def test_killed_at_any_record_it_comes_to_the_same_frontier_and_the_same_bill(tmp_path):
    whole, others = killed(tmp_path, 1, 1)

    assert len(others) > 100
    assert [number for number, came_to in others if came_to != whole] == []


@pytest.mark.nightly
def test_a_run_that_changes_agents_may_be_killed_at_any_record(tmp_path):
    whole, others = killed(tmp_path, 1, 1, "structure")

    assert len(others) > 200
    assert [number for number, came_to in others if came_to != whole] == []
