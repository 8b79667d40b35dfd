"""A trial of a skill that is killed at any record goes on to the answer that it comes to without a
kill.
"""

import asyncio
from collections import Counter

import pytest
from evolve_runs import program, running, scripted, task

from evolvable_evolve.evolution.executors.simulated import SimulatedExecutor
from evolvable_evolve.evolution.ledger.run_directory import read_ledger
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.task import Split

WITHOUT_RULE, SEEDED = 3, 2
"""Tasks that only the skill gets right, and tasks whose result differs from one repeat
to the next.
"""


def trial_tasks():
    tags = [["needs:iso"]] * WITHOUT_RULE + [["chance:0.5", "without:0.5"]] * SEEDED + [[]]
    return [task(Split.VAL, number, *own) for number, own in enumerate(tags)]


def answer_of(folder):
    """Take a trial on from where its ledger ends; return what it says, and how often each trial was
    run anew.
    """
    tasks = {Split.TRAIN: [], Split.VAL: trial_tasks(), Split.TEST: []}
    given = RunSettings(
        "environment:made-up", purpose="try", open_test=False, iterations=0, concurrency=2
    )
    ran: Counter[tuple[str, str, int]] = Counter()

    class Counting(SimulatedExecutor):
        async def run(self, task, program, repeat, workspace):
            ran[task.id, program.digest, repeat] += 1
            return await super().run(task, program, repeat, workspace)

    with running(
        folder, program(), scripted([("x", [])]), tasks, given, Counting(tasks[Split.VAL], seed=5)
    ) as run:
        run.merged = [("skill:forms", program("rule: iso"))]
        asyncio.run(run_phases(run))
        [said] = run.state.verdict["tried"]
    return said, ran


@pytest.mark.process
def test_a_trial_killed_at_any_record_goes_on_to_the_same_answer_and_repeats_no_ended_trial(
    tmp_path,
):
    folder = tmp_path / "20260101-000000-abcd"
    whole, first = answer_of(folder)
    ledger = folder / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    assert whole["on_these"]["repeats"] > 1 and len(lines) > 30, "several stages"
    assert max(first.values()) == 1

    for cut in range(1, len(lines)):
        # A kill may tear the record that it meets.
        torn = lines[cut][: len(lines[cut]) // 2] if cut % 2 else b""
        ledger.write_bytes(b"".join(lines[:cut]) + torn)
        ended = {
            (one["trial"]["task"], one["trial"]["program"], one["trial"]["repeat"])
            for one in read_ledger(ledger)
            if one["type"] == "trial"
        }
        said, again = answer_of(folder)
        assert (said["on_these"], said["like_these"]) == (whole["on_these"], whole["like_these"]), (
            cut
        )
        assert not ended & again.keys(), cut
