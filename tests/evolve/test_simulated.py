"""The simulated executor: its truth is known, and what it answers follows from that."""

import asyncio
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from baselines.simulated_world import Effect, Law, make_taskset, program_with

from evolvable_evolve.evolution.candidates.programs import Program
from evolvable_evolve.evolution.executors.simulated import (
    SimulatedExecutor,
    find_rules,
    parse_truth,
)
from evolvable_evolve.evolution.scorers.registry import TaskSetScorer
from evolvable_evolve.evolution.task import Split
from evolvable_store.errors import InvalidArgument

LAW = Law(
    (
        Effect("useful", fixes=0.1),
        Effect("harmful", breaks=0.05),
        Effect("both", 0.15, 0.05),
        Effect("useless"),
    )
)
WORLD = make_taskset(LAW, (40, 40, 60), seed=1)
BASE, USEFUL = program_with(["base"]), program_with(["base", "useful"])


def true_score(tasks, program):
    """The expected score of a program on the tasks: the limit of the measured mean."""
    return fmean(parse_truth(task).chance(find_rules(program)) for task in tasks)


def test_what_a_program_is_worth_is_known_before_anything_runs():
    many = make_taskset(LAW, (0, 0, 6000), seed=3).of(Split.TEST)
    for rules in ([], ["useful"], ["harmful"], ["both", "useless"], ["useful", "harmful", "both"]):
        assert true_score(many, program_with(rules)) == pytest.approx(
            LAW.score(frozenset(rules)), abs=0.02
        )
    assert (
        LAW.best()
        == LAW.score(frozenset({"useful", "both"}))
        == pytest.approx(LAW.score(frozenset()) + 0.2)
    )


def test_measuring_often_comes_to_the_truth():
    executor, tasks = SimulatedExecutor(WORLD.tasks, seed=5), WORLD.of(Split.TEST)
    for program in (Program(), BASE, USEFUL):
        seen = fmean(
            executor.passes(task, program, repeat) for task in tasks for repeat in range(150)
        )
        assert seen == pytest.approx(true_score(tasks, program), abs=0.02)


def test_answers_are_scored_by_the_real_scorer_and_are_the_same_anywhere(tmp_path: Path):
    async def scored(executor: SimulatedExecutor, program: Program) -> list[float]:
        rollouts = [await executor.run(task, program, 0, tmp_path) for task in WORLD.tasks]
        return [
            (await TaskSetScorer()(task, rollout)).value
            for task, rollout in zip(WORLD.tasks, rollouts, strict=True)
        ]

    one, other = SimulatedExecutor(WORLD.tasks, seed=5), SimulatedExecutor(WORLD.tasks, seed=5)
    scores = asyncio.run(scored(one, USEFUL))
    assert (
        scores
        == [float(other.passes(task, USEFUL, 0)) for task in WORLD.tasks]
        != asyncio.run(scored(one, BASE))
    )
    assert (
        one.fingerprint == other.fingerprint != SimulatedExecutor(WORLD.tasks, seed=6).fingerprint
    )
    assert one.label == "simulated"


def test_a_failure_names_the_missing_rule_and_never_the_answer(tmp_path: Path):
    task = next(task for task in WORLD.tasks if "needs:useful" in task.tags)
    rollout = asyncio.run(
        SimulatedExecutor(WORLD.tasks).run(replace(task, expected=None), BASE, 0, tmp_path)
    )
    assert "rule: useful" in rollout.trace
    assert task.expected not in rollout.trace
    assert rollout.usage.cost is None, "no price is not a price of nothing"


def test_a_task_that_it_was_not_made_with_fails_and_is_no_error(tmp_path: Path):
    """A test holds canaries, which no executor knows; an error would be tried again
    after pauses.
    """
    task = replace(WORLD.tasks[0], id="canary", expected="8461")
    rollout = asyncio.run(
        SimulatedExecutor(WORLD.tasks, price=0.001).run(task, USEFUL, 0, tmp_path)
    )
    assert (rollout.output, rollout.outcome, rollout.usage.calls) == ("unknown task", None, 1)
    assert rollout.usage.cost == pytest.approx(1.05)


def test_rules_are_read_from_any_file_whatever_its_line_ends():
    part = USEFUL.parts[0]
    files = {
        "notes/a.md": b"# Rules\r\n- rule: one\r\n* rule:two\r\nthe rule: three\n",
        "bin": b"\xff\nrule: four\n",
    }
    assert find_rules(Program((replace(part, files=files),))) == {"one", "two", "four"}


def test_chances_and_laws_that_cannot_be_are_refused():
    task = replace(WORLD.tasks[0], tags=("chance:1.2",))
    with pytest.raises(InvalidArgument, match="chance"):
        SimulatedExecutor([task])
    with pytest.raises(InvalidArgument, match="chance"):
        SimulatedExecutor([replace(task, tags=("without:often",))])
    with pytest.raises(InvalidArgument, match="more tasks"):
        Law((Effect("a", fixes=0.6), Effect("b", breaks=0.2)))
