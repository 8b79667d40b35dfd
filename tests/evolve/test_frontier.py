"""The frontier, the choice of a parent, and the batches of training tasks."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

import pytest
from baselines.simulated_world import Effect, Law, make_taskset

from evolvable_evolve.evolution.ledger.run_state import RunCandidate
from evolvable_evolve.evolution.optimizers.frontier import AdmissionResult, Frontier
from evolvable_evolve.evolution.run_config import Admission, ParentStrategy
from evolvable_evolve.evolution.search_operators import sample_batch, select_parent
from evolvable_evolve.evolution.task import Split
from evolvable_store.errors import InvalidArgument


def member(
    name: str, score: float = 0.0, size: int = 100, scores: Mapping[str, float] | None = None
) -> RunCandidate:
    return RunCandidate(
        f"program of {name}", name, 1, scores=scores or {f"only {name}": score}, size=size
    )


BASE = member("base", 0.5)


def frontier(*members: RunCandidate, **more: object) -> Frontier:
    return Frontier(members, **more)


def test_room_alone_admits_nobody():
    offer = frontier(BASE).offer(member("worse", 0.4), gain=-0.1, parent=BASE)
    assert (offer.entry, offer.admitted, offer.frontier) == (
        AdmissionResult.NOT_BETTER,
        False,
        frontier(BASE),
    )
    assert frontier(BASE).offer(member("better", 0.6), gain=0.1, parent=BASE).admitted


def test_the_rule_of_the_paper_is_an_option():
    paper = frontier(BASE, admission=Admission.BETTER_THAN_WORST)
    assert paper.offer(member("worse", 0.4), gain=-0.1, parent=BASE).admitted


def test_a_tie_goes_to_the_strictly_smaller():
    def enters(child: RunCandidate) -> bool:
        return frontier(BASE).offer(child, gain=0.0, parent=BASE).admitted

    assert enters(member("smaller", 0.5, size=99))
    assert not enters(member("equal", 0.5))
    assert not enters(member("larger", 0.5, size=101))


def test_a_full_frontier_loses_its_worst_and_keeps_the_order_of_admission():
    full = frontier(BASE, member("a", 0.7), member("b", 0.6))
    offer = full.offer(member("c", 0.65), gain=0.15, parent=BASE)
    assert [one.name for one in offer.frontier.members] == ["a", "b", "c"]


def test_whoever_beat_its_parent_but_is_behind_all_of_a_full_frontier_stays_out():
    full = frontier(member("a", 0.7), member("b", 0.6), member("c", 0.55))
    lucky = member("d", 0.55)
    assert full.offer(lucky, gain=0.05, parent=BASE).entry is AdmissionResult.BEHIND
    assert full.offer(member("e", 0.55, size=50), gain=0.05, parent=BASE).admitted


def test_the_same_program_enters_once():
    assert (
        frontier(BASE)
        .offer(replace(BASE, name="copy", scores={"x": 0.9}), gain=0.4, parent=BASE)
        .entry
        is AdmissionResult.DUPLICATE
    )


def test_round_robin_goes_by_admission_and_the_best_by_score_then_size():
    members = [BASE, member("a", 0.7), member("b", 0.7, size=50)]
    chosen = [
        select_parent(members, ParentStrategy.ROUND_ROBIN, iteration).name
        for iteration in (1, 2, 3, 4)
    ]
    assert chosen == ["base", "a", "b", "base"]
    assert select_parent(members, ParentStrategy.BEST, 1).name == "b"
    with pytest.raises(InvalidArgument):
        select_parent([], ParentStrategy.BEST, 1)


def test_pareto_chooses_whoever_is_best_at_something_and_never_who_is_not():
    members = [
        member("first", scores={"x": 1, "y": 0, "z": 0}),
        member("second", scores={"x": 0, "y": 1, "z": 1}),
        member("never", scores={"x": 0, "y": 0, "z": 0}),
    ]
    drawn = Counter(
        select_parent(members, ParentStrategy.PARETO, iteration).name for iteration in range(300)
    )
    assert set(drawn) == {"first", "second"}
    assert drawn["second"] > drawn["first"]
    again = [
        select_parent(members, ParentStrategy.PARETO, iteration, seed=4) for iteration in range(9)
    ]
    assert again == [
        select_parent(members, ParentStrategy.PARETO, iteration, seed=4) for iteration in range(9)
    ]
    assert select_parent([BASE, *members], ParentStrategy.PARETO, 2) == members[0], (
        "no common tasks: in turn"
    )


TRAIN = make_taskset(Law((Effect("r"),)), (23, 0, 0), seed=2).of(Split.TRAIN)


def test_no_task_comes_again_before_all_of_its_category_came():
    by_category = Counter(task.category for task in TRAIN)
    batches = [sample_batch(TRAIN, iteration, categories=2) for iteration in range(1, 40)]
    for category, count in by_category.items():
        seen = [task.id for task in chain(*batches) if task.category == category]
        assert all(
            len(set(seen[start : start + count])) == count
            for start in range(0, len(seen) - count, count)
        )


def test_a_batch_takes_categories_in_turn_and_no_task_twice():
    batches = [sample_batch(TRAIN, iteration) for iteration in range(1, 30)]
    for batch in batches:
        assert len({task.id for task in batch}) == len(batch) <= 6
        assert len({task.category for task in batch}) == 3
    assert {task.id for task in chain(*batches)} == {task.id for task in TRAIN}


def test_a_batch_depends_on_its_number_alone_and_not_on_the_order_of_the_tasks():
    shuffled = random.Random(1).sample(TRAIN, len(TRAIN))
    assert (
        sample_batch(shuffled, 7, seed=3)
        == sample_batch(TRAIN, 7, seed=3)
        != sample_batch(TRAIN, 7, seed=4)
    )
    assert sample_batch((), 1) == ()
