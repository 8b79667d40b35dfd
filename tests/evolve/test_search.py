"""Greedy composition and the staged sealed test, the defaults.

Truth is known, and all figures are simulated.
"""

import asyncio
import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from evolve_runs import program, running, scripted, task

from evolvable_evolve.evolution.candidates.programs import Program
from evolvable_evolve.evolution.executors.simulated import SimulatedExecutor
from evolvable_evolve.evolution.final import plan_stages
from evolvable_evolve.evolution.ledger.run_reducer import fold_records
from evolvable_evolve.evolution.ledger.run_state import RunState
from evolvable_evolve.evolution.loop import run_iteration, run_phases, run_search
from evolvable_evolve.evolution.optimizers.optimizer import open_gate, open_optimizer
from evolvable_evolve.evolution.proposers.proposer_model import ModelRole
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.search import selection_tasks
from evolvable_evolve.evolution.statistics.staged_test import EQUAL_SHARES
from evolvable_evolve.evolution.task import (
    ModelUsage,
    Rollout,
    ScorerSpec,
    Split,
    Task,
    TrialOutcome,
)

USEFUL = ("Dates are ISO", ["rule: iso"])
MORE = ("Sums are rounded", ["rule: sums"])
USELESS = ("Say hello", ["Say hello."])
HARMFUL = ("Shout", ["rule: shout"])


def splits(train: int = 12, val: int = 12, test: int = 24) -> dict[Split, list[Task]]:
    """Tasks of which half need the rule iso and a quarter the rule sums; none passes with the rule
    shout.
    """
    needs = (["needs:iso"], ["needs:sums"], ["needs:iso"], [])
    sizes = {Split.TRAIN: train, Split.VAL: val, Split.TEST: test}
    return {
        s: [task(s, n, "broken_by:shout", *needs[n % 4]) for n in range(size)]
        for s, size in sizes.items()
    }


def settings(**given) -> RunSettings:
    return RunSettings("environment:made-up", **{"iterations": 3, **given})


def driven(
    folder: Path, proposals, tasks_of=None, base: Program | None = None, given=None, **options
) -> RunState:
    tasks_of = tasks_of or splits()
    with running(
        folder, base or program(), scripted(proposals), tasks_of, given or settings(), **options
    ) as run:
        asyncio.run(run_phases(run))
        return run.state


def decisions(state: RunState) -> list[str]:
    return [str(record["decision"]) for record in state.iterations]


@pytest.mark.process
def test_edits_that_help_are_composed_and_what_harms_is_dropped_after_half_of_the_tasks(tmp_path):
    state = driven(tmp_path, [HARMFUL, USEFUL, MORE])

    assert decisions(state) == ["rejected", "admitted", "admitted"]
    assert "dropped after the first half" in state.iterations[0]["why"]
    assert len(state.candidates[state.history[0]].scores) == 12
    assert [one.name for one in state.members] == ["c3"] and state.candidates[state.best].parents[
        0
    ] == state.history[1]
    assert state.verdict["verdict"] == "PROMOTE" and state.verdict["delta"] == pytest.approx(
        0.75, abs=0.1
    )


@pytest.mark.process
def test_training_and_validation_choose_together_and_the_proposer_is_shown_training_alone(tmp_path):
    with running(tmp_path, program(), scripted([USEFUL]), splits(), settings(iterations=1)) as run:
        chosen = selection_tasks(run)
        asyncio.run(run_phases(run))
        question = run.proposer_model.asked[0]

    assert {one.split for one in chosen} == {Split.TRAIN, Split.VAL}
    assert {one.split for one in chosen[: len(chosen) // 2]} == {Split.TRAIN, Split.VAL}
    shown = {one["task"] for one in question.data["evidence"]}
    assert shown and shown <= {one.id for one in run.train}


def categories(train: int) -> dict[Split, list[Task]]:
    """Tasks of ten categories; all pass with the rule iso, and none without it."""
    found = {}
    for split, size in ((Split.TRAIN, train), (Split.VAL, 40), (Split.TEST, 24)):
        made = [task(split, n, "needs:iso") for n in range(size)]
        found[split] = [replace(one, category=f"kind-{n % 10}") for n, one in enumerate(made)]
    return found


@pytest.mark.process
def test_every_training_task_is_shown_before_any_is_shown_again_and_all_categories_take_turns(
    tmp_path,
):
    proposals = [(f"Say {n}", [f"Say {n}."]) for n in range(14)]
    given = settings(iterations=14, trials=2000)
    with running(tmp_path, program(), scripted(proposals), categories(40), given) as run:
        asyncio.run(run_phases(run))
        asked = [one for one in run.proposer_model.asked if one.role is ModelRole.PROPOSER]
    shown = [one["task"] for question in asked for one in question.data["evidence"]]

    assert len(set(shown[:40])) == 40, "each of the forty before any comes again"
    assert {int(name[-3:]) % 10 for name in shown[:24]} == set(range(10))


class Flaky:
    """An executor under which one training task fails in its first run alone, and another fails
    without the rule.
    """

    fingerprint, label = "flaky", "simulated"

    async def run(self, one: Task, now: Program, repeat: int, workspace: Path) -> Rollout:
        text = b"".join(data for part in now.parts for data in part.files.values())
        stale = one.id == "train-000" and repeat == 0
        lacking = one.id == "train-037" and b"rule: iso" not in text
        return Rollout("wrong" if stale or lacking else "right")


@pytest.mark.process
def test_a_lone_failure_that_was_measured_before_is_run_again_and_does_not_hide_the_others(
    tmp_path,
):
    tasks_of = categories(40)
    given = settings(iterations=2, trials=2000)
    with running(tmp_path, program(), scripted([USEFUL]), tasks_of, given, executor=Flaky()) as run:
        assert "train-000" in {one.id for one in selection_tasks(run)}
        asyncio.run(run_phases(run))
        asked = [one for one in run.proposer_model.asked if one.role is ModelRole.PROPOSER]
    failed = [one["task"] for one in asked[0].data["evidence"] if one["result"] == "failed"]

    assert failed == ["train-037"]


class Sided:
    """An executor under which the rule mends the tasks of kind-1 and spoils those that
    are named.
    """

    fingerprint, label = "sided", "simulated"

    def __init__(self, spoiled: frozenset[str]) -> None:
        self._spoiled = spoiled

    async def run(self, one: Task, now: Program, repeat: int, workspace: Path) -> Rollout:
        ruled = any(b"rule: iso" in data for part in now.parts for data in part.files.values())
        fails = one.id in self._spoiled if ruled else one.category == "kind-1"
        return Rollout("wrong" if fails else "right")


def ends_of_one(folder: Path, kinds: int, spoil: dict[Split, int]) -> tuple[str, str]:
    """Return what was decided about a candidate for kind-1 that spoils so many tasks of other
    kinds, and why.
    """
    tasks_of = {
        split: [replace(one, category=f"kind-{n % kinds}") for n, one in enumerate(its)]
        for split, its in categories(40).items()
    }
    with running(
        folder / "order", program(), scripted([]), tasks_of, settings(iterations=1)
    ) as run:
        others = [one for one in selection_tasks(run) if one.category != "kind-1"]
    named = frozenset(
        one.id
        for split, many in spoil.items()
        for one in [x for x in others if x.split is split][:many]
    )
    assert len(named) == sum(spoil.values())
    with running(
        folder, program(), scripted([USEFUL]), tasks_of, settings(iterations=1), Sided(named)
    ) as run:
        asyncio.run(run_phases(run))
        [ended] = [one for one in run.state.iterations if one["candidate"]][:1]
    return str(ended["decision"]), ended["why"]


@pytest.mark.process
def test_the_tasks_of_other_categories_count_half_against_a_candidate_for_one(tmp_path):
    decision, why = ends_of_one(tmp_path, 10, {Split.TRAIN: 9})

    assert decision == "admitted" and "8 better, 9 worse" in why


@pytest.mark.process
def test_a_candidate_for_one_category_that_spoils_many_tasks_of_others_is_rejected(tmp_path):
    decision, why = ends_of_one(tmp_path, 3, {Split.TRAIN: 16, Split.VAL: 14})

    assert decision == "rejected" and "worse on all tasks alike" in why


@pytest.mark.process
@pytest.mark.parametrize(("given", "repeats"), [({}, [2, 3, 4]), ({"test_repeats": 2}, [2, 2, 2])])
def test_a_small_gain_in_the_search_has_more_runs_in_later_stages_of_the_test(
    tmp_path, given, repeats
):
    tags = ("needs:iso", "", "", "", "", "", "", "chance:0.5")
    sizes = {Split.TRAIN: 16, Split.VAL: 16, Split.TEST: 48}
    tasks_of = {
        s: [task(s, n, *filter(None, [tags[n % 8]])) for n in range(size)]
        for s, size in sizes.items()
    }

    state = driven(tmp_path, [USEFUL], tasks_of, given=settings(iterations=1, **given))

    run = [one["tasks"] for one in state.verdict["stages"]]
    assert len(run) > 1, "the first stage cannot decide it"
    assert state.verdict["missing"]["each"] == sum(
        times * tasks for times, tasks in zip(repeats, run, strict=False)
    )
    assert state.stage_repeats == tuple(repeats), (
        "as it was written down before the test was opened"
    )


class Memorised:
    """An executor under which a program that says hello passes every training task and no other."""

    fingerprint, label = "memorised", "simulated"

    async def run(self, one: Task, now: Program, repeat: int, workspace: Path) -> Rollout:
        hello = any(b"hello" in data for part in now.parts for data in part.files.values())
        right = one.split is Split.TRAIN if hello else int(one.id[-3:]) % 4 == 3
        return Rollout("right" if right else "wrong")


def test_an_edit_that_fits_the_training_tasks_and_loses_on_validation_is_not_taken(tmp_path):
    state = driven(
        tmp_path, [USELESS], splits(16, 12), given=settings(iterations=1), executor=Memorised()
    )

    assert decisions(state) == ["rejected"] and state.looks == 0
    assert state.verdict["verdict"] == "NOT SUPPORTED"


@pytest.mark.process
def test_the_test_ends_early_when_the_gain_is_clear_and_says_so(tmp_path):
    state = driven(tmp_path, [USEFUL, MORE], splits(test=60), given=settings(iterations=2))

    said = state.verdict
    assert said["verdict"] == "PROMOTE"
    assert said["n"] < 60
    assert len(said["stages"]) < len(said["planned"])
    assert "after stage" in said["why"] and sum(said["planned"]) == 60
    low, high = said["interval"]
    assert low < said["delta"] <= high and said["missing"] == {
        "base": 0,
        "finalist": 0,
        "each": 2 * said["n"],
    }


def test_a_parent_that_was_measured_too_long_ago_is_measured_again_beside_its_child(tmp_path):
    spent = []
    for hours in (10_000, 0):
        state = driven(
            tmp_path / str(hours), [USELESS], given=settings(iterations=1, stale_hours=hours)
        )
        spent.append(state.spent["val"].trials)
        (child,) = [one for one in state.candidates.values() if one.name == "c1"]

    assert spent[1] - spent[0] == len(child.scores) > 0, "once for each task under the parent, too"


def test_stages_hold_whole_groups_and_follow_from_the_salt_alone():
    tests = [replace(one, group=f"g{n // 4}") for n, one in enumerate(splits(test=60)[Split.TEST])]
    stages = plan_stages(tests, "salt")

    assert stages == plan_stages(tests, "salt") != plan_stages(tests, "other")
    assert [len(stage) for stage in stages] == [28, 16, 16], (
        "half and two quarters, as near as whole groups allow"
    )
    assert [len(stage) for stage in plan_stages(tests, "salt", EQUAL_SHARES)] == [20, 20, 20]
    assert all(
        len({task.id for task in stage if task.group == name} or {0}) in (1, 4)
        for stage in stages
        for name in {one.group for one in stage}
    )
    assert sorted(one.id for stage in stages for one in stage) == sorted(one.id for one in tests)


@pytest.mark.process
def test_with_few_groups_no_task_of_the_test_is_run(tmp_path):
    tasks_of = splits()
    tasks_of[Split.TEST] = [
        replace(one, group=f"g{n % 5}") for n, one in enumerate(tasks_of[Split.TEST])
    ]

    state = driven(tmp_path, [USEFUL], tasks_of, given=settings(iterations=1))

    assert state.verdict["verdict"] == "INDECISIVE" and "5 groups" in state.verdict["why"]
    assert "test" not in state.spent


class Hedging:
    """A finalist of the same ability whose wrong answers come to no result."""

    fingerprint, label = "hedging", "simulated"

    def __init__(self, tasks: list[Task]) -> None:
        self._inner = SimulatedExecutor(tasks, seed=5)

    async def run(self, one: Task, now: Program, repeat: int, workspace: Path) -> Rollout:
        hello = any(b"hello" in data for part in now.parts for data in part.files.values())
        if one.split is not Split.TEST:
            return Rollout("right" if hello else "wrong")
        done = await self._inner.run(one, now, repeat, workspace)
        if hello and done.output != "right":
            return Rollout("", outcome=TrialOutcome.INFRA_ERROR, detail="the provider failed")
        return done


@pytest.mark.process
def test_a_finalist_whose_wrong_answers_are_missing_is_not_promoted_and_they_count_by_arm(
    tmp_path,
):
    tasks_of = splits(test=60)
    tasks_of[Split.TEST] = [replace(one, tags=("chance:0.6",)) for one in tasks_of[Split.TEST]]
    executor = Hedging(tasks_of[Split.TEST])

    state = driven(
        tmp_path, [USELESS], tasks_of, given=settings(iterations=1, coverage=0.3), executor=executor
    )

    said = state.verdict
    assert said["missing"]["base"] == 0 < said["missing"]["finalist"]
    assert said["verdict"] != "PROMOTE" and "of the finalist" in said["why"]


KEYED = """\
import json, sys
said = json.loads(json.load(sys.stdin)["output"])
print(json.dumps({"score": float(said["total"] == 7)}))
"""
"""A scorer that raises KeyError on an answer that says that it is not sure."""


class Unsure(Hedging):
    """A finalist of the same ability that says so where its answer would be wrong; the base gives a
    wrong total.
    """

    async def run(self, one: Task, now: Program, repeat: int, workspace: Path) -> Rollout:
        done = await super().run(one, now, repeat, workspace)
        if one.split is not Split.TEST:
            return done
        if done.outcome is TrialOutcome.INFRA_ERROR:
            return Rollout('{"unsure": true}')
        return Rollout(json.dumps({"total": 7 if done.output == "right" else 0}))


@pytest.mark.nightly
def test_a_finalist_whose_unsure_answers_fail_a_living_scorer_is_not_supported_none_missing(
    tmp_path,
):
    tasks_of = splits(test=60)
    scorer = ScorerSpec("command", {"argv": ["{python}", "-c", KEYED], "good": ['{"total": 7}']})
    tasks_of[Split.TEST] = [
        replace(one, tags=("chance:0.5",), scorer=scorer, expected=None)
        for one in tasks_of[Split.TEST]
    ]
    plain = [replace(one, scorer=ScorerSpec("exact")) for one in tasks_of[Split.TEST]]

    state = driven(
        tmp_path, [USELESS], tasks_of, given=settings(iterations=1), executor=Unsure(plain)
    )

    said = state.verdict
    assert said["verdict"] == "NOT SUPPORTED" and said["n"] >= 20
    assert said["missing"] == {"base": 0, "finalist": 0, "each": said["missing"]["each"]}
    sealed = (tmp_path / "test.jsonl").read_text(encoding="utf-8")
    assert "KeyError" in sealed and "infra_error" not in sealed


class Costly(SimulatedExecutor):
    """Tokens of a task vary widely; the factor is that of a program with the rule iso."""

    factor = 1.0

    async def run(self, one: Task, now: Program, repeat: int, workspace: Path) -> Rollout:
        done = await super().run(one, now, repeat, workspace)
        spread = 8 ** ((zlib.crc32(f"{one.id} {now.digest}".encode()) % 7 - 3) / 6)
        iso = any(b"rule: iso" in data for part in now.parts for data in part.files.values())
        return replace(
            done, usage=ModelUsage(int(10_000 * spread * (self.factor if iso else 1.0)), 1, 1)
        )


@pytest.mark.process
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "PROMOTE"), (3.0, "NOT SUPPORTED")])
def test_cost_is_judged_by_the_estimate_of_the_paired_ratio_and_not_by_a_wide_interval(
    tmp_path, factor, verdict
):
    tasks_of = splits(test=60)
    executor = Costly([one for split in Split for one in tasks_of[split]])
    executor.factor = factor

    state = driven(
        tmp_path, [USEFUL], tasks_of, given=settings(iterations=1, cost_rise=0.6), executor=executor
    )

    assert state.verdict["verdict"] == verdict
    assert ("more tokens" in state.verdict["why"]) is (verdict == "NOT SUPPORTED")


@pytest.mark.parametrize(
    ("said", "shares"),
    [({}, (1 / 3, 1 / 3, 1 / 3)), ({"shares": [0.5, 0.25, 0.25]}, (0.5, 0.25, 0.25))],
)
def test_a_test_goes_on_with_the_stages_that_it_was_opened_with(said, shares):
    look = {
        "type": "look",
        "look": 1,
        "test_digest": "d",
        "candidate": "c",
        "repeats": [2, 3, 3],
        **said,
    }

    assert fold_records([look]).stage_shares == shares


@pytest.mark.process
def test_a_run_from_before_the_staged_test_goes_on_with_it_and_its_number_of_looks(tmp_path):
    """Such a run was stopped in a test of one stage, and what it was given has no
    meaning any more.
    """
    with running(
        tmp_path, program(), scripted([USEFUL, MORE]), splits(), settings(iterations=2)
    ) as run:
        gate = open_gate(run)
        asyncio.run(gate.calibrate(run))
        asyncio.run(run_search(run, gate))
        old = dict(run.state.settings) | {"final": "single", "give_up_below": 0.9}
    for name in ("trials", "least_gain", "open_above", "test_alpha", "stale_hours"):
        del old[name]
    again = RunSettings.from_json(old)
    assert (again.optimizer, again.proposals) == ("greedy", 2)
    with running(tmp_path, program(), scripted([]), splits(), again) as run:
        run.note("look", look=3, test_digest=again.test_digest, candidate=run.state.best)
        asyncio.run(run_phases(run))

    said = run.state.verdict
    assert said["verdict"] == "PROMOTE" and [one["tasks"] for one in said["stages"]][0] == 8
    assert run.state.stage_shares == EQUAL_SHARES


@pytest.mark.process
def test_a_run_that_was_stopped_while_it_left_an_edit_out_goes_on_without_that(tmp_path):
    with running(
        tmp_path, program(), scripted([USEFUL, MORE]), splits(), settings(iterations=2)
    ) as run:
        gate = open_gate(run)
        asyncio.run(gate.calibrate(run))
        asyncio.run(run_iteration(run, open_optimizer(run), gate))
        first = run.state.best
        run.note("selected", iteration=2, parent=first, batch=2, merge=False, without=first)
    with running(tmp_path, program(), scripted([MORE]), splits(), settings(iterations=3)) as run:
        asyncio.run(run_phases(run))

    assert decisions(run.state) == ["admitted", "no_proposal", "admitted"]
    assert run.state.verdict["verdict"] == "PROMOTE"
