"""The loop on made-up tasks of known truth, in one process. All figures are simulated."""

import asyncio
import json
from pathlib import Path

import pytest
from evolve_runs import program, running, scripted, task

from evolvable_evolve.evolution.candidates.programs import Program
from evolvable_evolve.evolution.executors.simulated import SimulatedExecutor
from evolvable_evolve.evolution.ledger.run_directory import RunDirectory
from evolvable_evolve.evolution.ledger.run_state import RunPhase, RunState
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.report.render import write_report
from evolvable_evolve.evolution.run_config import RunSettings, SpendLimit
from evolvable_evolve.evolution.task import Rollout, Split, Task, TrialOutcome

USEFUL = ("Dates are ISO", ["rule: iso"])
USELESS = ("Say hello", ["Say hello."])
HARMFUL = ("Shout", ["rule: shout"])


def splits(train: int = 12, val: int = 10, test: int = 16, *extra: str) -> dict[Split, list[Task]]:
    """Tasks of which three in four need the rule iso; none passes with the rule shout."""
    sizes = {Split.TRAIN: train, Split.VAL: val, Split.TEST: test}
    return {
        split: [
            task(split, n, "broken_by:shout", *(["needs:iso"] if n % 4 != 1 else []), *extra)
            for n in range(size)
        ]
        for split, size in sizes.items()
    }


def settings(**given) -> RunSettings:
    """Settings of the loop of EvoSkill."""
    usual = {"optimizer": "evoskill", "iterations": 3, "test_repeats": 1}
    return RunSettings("environment:made-up", **{**usual, **given})


def driven(
    folder: Path, brain, given: RunSettings | None = None, base: Program | None = None, **options
) -> RunState:
    """What a run over the usual tasks comes to."""
    tasks_of = options.pop("splits", None) or splits()
    with running(folder, base or program(), brain, tasks_of, given or settings(), **options) as run:
        asyncio.run(run_phases(run))
        return run.state


def decisions(state: RunState) -> list[str]:
    return [str(record["decision"]) for record in state.iterations]


@pytest.mark.process
def test_what_helps_is_found_and_promoted_and_the_rest_is_told_to_the_next_proposal(tmp_path):
    brain = scripted([USELESS, HARMFUL, USEFUL])

    state = driven(tmp_path / "run", brain)

    assert decisions(state) == ["rejected", "rejected", "admitted"]
    assert state.verdict["verdict"] == "PROMOTE" and state.looks == 1
    assert [one.name for one in state.members] == ["base", "c3"]
    assert [one.name for one in state.rejected] == ["c1", "c2"]
    third = [question for question in brain.asked if question.role == "proposer"][2]
    assert [past["outcome"] for past in third.data["history"]] == ["rejected", "rejected"]
    assert third.data["history"][1]["broken"] > 0


def test_when_nothing_helps_the_test_stays_sealed(tmp_path):
    tasks_of = splits()
    with running(
        tmp_path / "run", program(), scripted([USELESS, HARMFUL]), tasks_of, settings(iterations=2)
    ) as run:
        asyncio.run(run_phases(run))
        state, test = run.state, run.sealed

    assert state.verdict["verdict"] == "NOT SUPPORTED" and "not opened" in state.verdict["why"]
    assert test.opened_for == [] and state.looks == 0
    assert "test" not in state.spent


def test_with_too_few_tasks_it_explores_and_claims_nothing(tmp_path):
    few = {split: own[: 1 if split is Split.TEST else 8] for split, own in splits().items()}
    with running(tmp_path / "run", program(), scripted([USEFUL]), few, settings()) as run:
        run.state.exploratory = True
        asyncio.run(run_phases(run))

    assert run.state.verdict["verdict"] == "INDECISIVE" and run.sealed.opened_for == []


def test_the_same_edit_again_is_no_candidate_and_an_equal_program_costs_nothing(tmp_path):
    state = driven(
        tmp_path / "run", scripted([USELESS, ("Greet", USELESS[1])]), settings(iterations=2)
    )

    assert decisions(state) == ["rejected", "duplicate"]
    assert state.iterations[1]["why"].startswith("duplicate")
    again = driven(tmp_path / "again", scripted([USELESS]), settings(iterations=2))
    assert decisions(again) == ["rejected", "no_proposal"]


def test_the_search_ends_when_nothing_new_is_best_for_long_or_the_target_is_reached(tmp_path):
    tried = [(f"Greet {n}", [f"Hello {n}."]) for n in range(9)]

    stalled = driven(tmp_path / "stalled", scripted(tried), settings(iterations=9, stalls=2))
    reached = driven(tmp_path / "reached", scripted([USEFUL, USELESS]), settings(iterations=9))

    assert len(stalled.iterations) == 2 and "without a new best" in stalled.ended
    assert len(reached.iterations) == 1 and "reaches 1.000" in reached.ended


def test_a_leak_is_refused_before_anything_is_spent_on_it(tmp_path):
    tasks_of = splits()
    stolen = " ".join(["quote", *(f"word{n}" for n in range(9))])
    tasks_of[Split.VAL][0] = task(Split.VAL, 0, "needs:iso")
    object.__setattr__(tasks_of[Split.VAL][0], "prompt", stolen)

    state = driven(
        tmp_path / "run", scripted([("Leak", [stolen])]), settings(iterations=1), splits=tasks_of
    )

    assert decisions(state) == ["refused"] and "leak" in state.iterations[0]["why"]
    assert "val" not in state.spent


class Broken:
    """An executor that has infrastructure trouble with most of a candidate's tasks."""

    fingerprint, label = "broken", "simulated"

    def __init__(self, every: list[Task], base: str) -> None:
        self._inner, self._base = SimulatedExecutor(every), base

    async def run(self, one: Task, now: Program, repeat: int, workspace: Path) -> Rollout:
        if (
            one.split is Split.VAL
            and now.digest not in (self._base, Program().digest)
            and int(one.id[-3:]) > 2
        ):
            return Rollout("", outcome=TrialOutcome.INFRA_ERROR, detail="the network is down")
        return await self._inner.run(one, now, repeat, workspace)


def test_what_could_not_be_measured_is_indecisive_and_counts_neither_for_nor_against(tmp_path):
    tasks_of = splits()
    executor = Broken([one for split in Split for one in tasks_of[split]], program().digest)

    state = driven(
        tmp_path / "run",
        scripted([USEFUL]),
        settings(iterations=1),
        splits=tasks_of,
        executor=executor,
    )

    assert decisions(state) == ["indecisive"] and state.stalls == 0
    candidate = state.candidates[state.history[0]]
    assert len(candidate.missing) == 7 and len(candidate.scores) == 3
    assert all(score in (0.0, 1.0) for score in candidate.scores.values())
    assert state.spent["val"].trouble > 0
    said = write_report(RunDirectory(tmp_path / "run"))
    [tried] = json.loads(Path(said.json).read_text("utf-8"))["tried"][1:]
    assert tried["delta"] is None and tried["fixed"] == []
    line = next(line for line in said.text.splitlines() if " indecisive " in line)
    assert "not compared" in line and "only 30%" in line and "against" not in line


class Hogged(Broken):
    """Until the test a candidate alone is right.

    In the test it equals the base, and nothing beside it ends in time.
    """

    def __init__(self, every: list[Task], base: str) -> None:
        super().__init__(every, base)
        self.running = 0

    async def run(self, one: Task, now: Program, repeat: int, workspace: Path) -> Rollout:
        others = now.digest in (self._base, Program().digest)
        if one.split is not Split.TEST:
            return Rollout("wrong" if others else "right")
        if others and self.running:
            return Rollout(
                "", outcome=TrialOutcome.AGENT_TIMEOUT, detail="it took longer than 600 s"
            )
        self.running += not others
        await asyncio.sleep(0.01)
        self.running -= not others
        return await self._inner.run(one, now, repeat, workspace)


def test_a_candidate_that_keeps_the_base_from_ending_in_time_gains_nothing_in_the_test(tmp_path):
    tasks_of, base = splits(), program("rule: iso")
    executor = Hogged([one for split in Split for one in tasks_of[split]], base.digest)

    state = driven(
        tmp_path,
        scripted([USELESS]),
        settings(iterations=1),
        base,
        splits=tasks_of,
        executor=executor,
    )

    assert state.looks == 1
    assert (state.verdict["verdict"], state.verdict["delta"]) == ("NOT SUPPORTED", 0)


def test_a_budget_below_one_candidate_is_refused_at_once_and_one_that_ends_on_the_way_opens_no_test(
    tmp_path,
):
    from evolvable_evolve.evolution.acceptance import BudgetTooSmall

    with pytest.raises(BudgetTooSmall, match="below the"):
        driven(tmp_path / "small", scripted([USEFUL]), settings(limit=SpendLimit(calls=20)))
    tight = driven(
        tmp_path / "tight",
        scripted([USELESS, USEFUL]),
        settings(limit=SpendLimit(calls=104), stalls=1),
    )
    assert tight.verdict["verdict"] in ("INDECISIVE", "NOT SUPPORTED") and tight.looks == 0
    assert tight.bill.calls <= 104


@pytest.mark.process
def test_the_reflection_optimizer_keeps_one_program_and_runs_its_batch_anew_only_after_a_change(
    tmp_path,
):
    brain = scripted([USELESS, HARMFUL, USEFUL])

    state = driven(tmp_path / "run", brain, settings(optimizer="reflection"))

    assert decisions(state) == ["rejected", "rejected", "admitted"]
    assert [one.name for one in state.members] == ["c3"]
    assert state.verdict["verdict"] == "PROMOTE"
    proposers = [question for question in brain.asked if question.role == "proposer"]
    shown = [[one["task"] for one in question.data["evidence"]] for question in proposers]
    assert shown[0] == shown[1] == shown[2]


def test_finalists_of_other_runs_are_tried_as_one_and_go_through_the_same_gates(tmp_path):
    from evolvable_evolve.evolution.candidates.programs import make_part, make_program
    from evolvable_store.resource import Kind

    better, other = (
        program("rule: iso"),
        make_part(Kind.SKILL, "more", {"SKILL.md": b"---\nname: more\ndescription: More.\n---\n"}),
    )
    finalists = [("one", better), ("two", make_program([*program("Hello.").parts, other]))]
    with running(
        tmp_path / "run", program(), scripted([USELESS]), splits(), settings(iterations=0)
    ) as run:
        run.merged = finalists
        asyncio.run(run_phases(run))
        state = run.state

    assert decisions(state) == ["admitted"] and state.verdict["verdict"] == "PROMOTE"
    merged = run.program(state.verdict["candidate"])
    assert [part.ref for part in merged.parts] == ["skill:forms", "skill:more"]
    assert merged.parts[0] == better.parts[0]
    assert any("gives way to" in line for line in state.candidates[merged.digest].operations)


@pytest.mark.process
def test_a_run_that_is_asked_to_stop_goes_on_where_it_was_and_pays_nothing_twice(tmp_path):
    from evolvable_evolve.evolution.run_context import RunStopped

    whole = driven(tmp_path / "whole", scripted([USELESS, HARMFUL, USEFUL]))
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked % 7 == 0

    stops = 0
    state = RunState()
    while state.phase is not RunPhase.DECIDED:
        brain = scripted([USELESS, HARMFUL, USEFUL])
        with running(tmp_path / "run", program(), brain, splits(), settings(), stop=stop) as run:
            try:
                asyncio.run(run_phases(run))
            except RunStopped:
                stops += 1
            state = run.state

    assert stops > 2
    assert (state.frontier, state.bill, state.verdict["p"]) == (
        whole.frontier,
        whole.bill,
        whole.verdict["p"],
    )


def test_a_large_validation_is_screened_first(tmp_path):
    tasks_of = splits(12, 32, 8)

    state = driven(tmp_path / "run", scripted([HARMFUL]), settings(iterations=1), splits=tasks_of)

    assert decisions(state) == ["screened_out"]
    assert state.spent["screen"].trials == 6 and "val" not in state.spent


def test_a_candidate_under_which_tasks_or_scorers_changed_is_discarded_and_not_used(
    tmp_path,
):
    brain = scripted([USEFUL, ("Dates are ISO, truly", ["rule: iso", "Truly."])])

    def intact() -> str:
        measures_c1 = run.state.iteration == 1 and "checked" in run.state.step
        return "run.py of the task set was changed." if measures_c1 else ""

    with running(
        tmp_path / "run", program(), brain, splits(), settings(iterations=2), intact=intact
    ) as run:
        asyncio.run(run_phases(run))
        state = run.state

    assert decisions(state) == ["tampered", "admitted"]
    reason = state.candidates[state.history[0]].reason
    assert reason.startswith("discarded: ") and "run.py of the task" in reason
    assert state.candidates[state.history[0]].scores == {}
    assert state.verdict["candidate"] == state.history[1]
