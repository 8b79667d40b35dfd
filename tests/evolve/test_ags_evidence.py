"""Items of runs of agents as evidence: what counts against an agent and its skills, and whose runs
count at all.
"""

import pytest
from ags_place import (
    ONE_CALL,
    PERSON,
    AgsPlace,
    CountedBackend,
    Killed,
    done,
    host_of,
    item,
    killing_after,
    plan_then_end,
    save_agent,
    save_skill,
    scripted,
)

from evolvable_evolve.ags.round_source import AgsSource, WholeSource
from evolvable_evolve.evolution.ledger.run_directory import read_ledger
from evolvable_evolve.evolution.task import Rollout, TrialOutcome
from evolvable_evolve.rounds.service import run_round
from evolvable_store.resource import Ref
from evolvable_store.storage.evidence import Grade, Outcome
from evolvable_tools.library import Library
from evolvable_tools.outcomes.usage_report import stats
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.review.review_config import ReviewSettings

SORTER = "agent:sorter"
PLAN = plan_then_end(*(item(name, agent=SORTER) for name in ("good", "late", "own", "spoiled")))


def working(job):
    """A worker whose items end in each way; where it fails it has read its skill."""
    read = {"read": ("skill:sorting",), "usage": ONE_CALL, "wall": 1.0}
    return {
        "good": done(job),
        "late": Rollout("", outcome=TrialOutcome.AGENT_TIMEOUT, detail="too slow", **read),
        "own": Rollout("FAILED: I will not", **read),
        "spoiled": Rollout("", outcome=TrialOutcome.INFRA_ERROR, detail="429", usage=ONE_CALL),
    }[job.task.id]


@pytest.fixture
def place(tmp_path):
    with Library.open(tmp_path / "home", create=True) as library:
        save_skill(library, "sorting", "Sort by name.")
        save_agent(library, "sorter", "You sort.", skills="sorting")
        yield AgsPlace(library, host_of())


CHECKED = plan_then_end(
    item("good", agent=SORTER, check="sorted"),
    item("late", agent=SORTER, check="sorted"),
    item("own", agent=SORTER, check="sorted"),
    item("spoiled", agent=SORTER, check="sorted"),
)


def driven(place, ledgers=(), plan=CHECKED, work=working, passes=lambda _: True, **settings):
    folder = place.begin(agents=[SORTER], checks={"sorted": {}}, **settings)
    for ledger in ledgers:
        with pytest.raises(Killed):
            place.drive(
                folder,
                scripted(plan),
                CountedBackend(work, passes=passes),
                ledger=ledger,
                evidence=True,
            )
    place.drive(folder, scripted(plan), CountedBackend(work, passes=passes), evidence=True)
    return folder


def rows(place, folder):
    """The executions of a run: by item the outcome and its grade, and what was used."""
    name = f"ags:{folder.id}:"
    found = place.library.store.backend.observations.executions()
    mine = [one for one in found if one.session.startswith(name)]
    assert {one.executor for one in mine} == {SORTER}
    return {one.session.removeprefix(name): (one.outcome, one.grade, len(one.uses)) for one in mine}


WHOLE = {
    "good": (Outcome.SUCCEEDED, Grade.VERIFIED, 0),
    "late": (Outcome.FAILED, Grade.VERIFIED, 1),
    "own": (Outcome.FAILED, Grade.REPORTED, 1),
}
"""Of the item that infrastructure spoiled nothing is kept."""


def test_what_the_driver_saw_fail_is_verified_and_what_a_worker_says_is_only_reported(place):
    folder = driven(place)

    assert rows(place, folder) == WHOLE
    assert not [*place.library.store.backend.observations.faults()]
    found = stats(place.library, PERSON)
    agents = {(one.agent, one.task_type): (one.q, one.share.n) for one in found.agents}
    assert agents == {(SORTER, "agents"): (0.5, 2)}, "an item has no main agent"
    sorting = place.library.store.head(Ref.parse("skill:sorting")).id
    attempts = place.library.evidence.list_attempts([sorting])
    assert sorted((one.outcome, one.verified) for one in attempts) == [
        ("failed", False),
        ("failed", True),
    ]
    assert {one.key for one in attempts} == {f"ags:{folder.id}:{name}" for name in ("late", "own")}


def test_runs_that_agents_started_have_one_vote_together_and_verify_nothing(place):
    folders = [driven(place, principal="agent") for _ in range(3)]

    for folder in folders:
        assert {grade for _, grade, _ in rows(place, folder).values()} == {Grade.REPORTED}
    seen = place.library.store.backend.observations
    assert {one.link for one in seen.executions()} == {"ags:agents"}
    assert not stats(place.library, PERSON).agents
    settings = ReviewSettings(Redactor())
    assert not WholeSource.of(place.library, settings).fresh(())


def test_a_run_that_is_killed_after_any_record_leaves_the_same_evidence_once(place):
    records = len(read_ledger(driven(place).ledger))
    for at in range(2, records + 1, 3):
        assert rows(place, driven(place, [killing_after(at)])) == WHOLE, at


def test_a_round_without_a_name_reads_the_failed_items_of_the_persons_runs_once(place):
    folder = driven(place, plan=PLAN)
    settings = ReviewSettings(Redactor())

    report = run_round(place.library, PERSON, settings, WholeSource.of(place.library, settings))

    assert (report.source, report.episodes, report.successes) == ("sessions", 2, 0)
    again = run_round(place.library, PERSON, settings, WholeSource.of(place.library, settings))
    assert again.episodes == 0
    named = run_round(place.library, PERSON, settings, AgsSource.of(place.library, folder.id))
    assert named.episodes == 0, "the good item has no end that counts, and the others were read"


def test_a_run_without_checks_counts_neither_way(place):
    folder = driven(place, plan=PLAN)

    assert {outcome for outcome, _, _ in rows(place, folder).values()} == {None}
    assert not stats(place.library, PERSON).agents


def test_thirty_items_of_which_twenty_four_pass_their_check_are_a_rate_of_point_eight(place):
    names = [f"i{number}" for number in range(30)]
    passing = set(names[:24])

    driven(
        place,
        plan=plan_then_end(*(item(name, agent=SORTER, check="sorted") for name in names)),
        work=done,
        passes=lambda job: job.task.id in passing,
    )

    [found] = stats(place.library, PERSON).agents
    assert (found.agent, found.share.n, found.share.successes) == (SORTER, 30, 24)
    assert found.share.low < 0.8 < found.share.high
    [own] = stats(place.library, PERSON, Ref.parse(SORTER)).resources
    assert (own.verified.n, own.verified.successes, own.used) == (30, 24, 30)
    assert (round(own.verified.low, 3), round(own.verified.high, 3)) == (0.627, 0.905), (
        "Wilson's interval"
    )


def test_a_round_learns_from_items_that_passed_their_check(place):
    driven(place)
    settings = ReviewSettings(Redactor())

    report = run_round(place.library, PERSON, settings, WholeSource.of(place.library, settings))

    assert (report.episodes, report.successes) == (3, 1)


def test_what_an_item_that_passed_its_check_needed_worked_too_and_nothing_else_did(place):
    plan = plan_then_end(
        item("first", agent=SORTER),
        item("second", "first", agent=SORTER),
        item("last", "second", agent=SORTER, check="sorted"),
        item("aside", agent=SORTER),
        item("wrong", "aside", agent=SORTER, check="sorted"),
    )

    folder = driven(place, plan=plan, work=done, passes=lambda job: job.task.id == "last")

    ends = {name: outcome for name, (outcome, _, _) in rows(place, folder).items()}
    worked = dict.fromkeys(("first", "second", "last"), Outcome.SUCCEEDED)
    assert ends == {**worked, "aside": None, "wrong": Outcome.FAILED}


def test_a_check_in_trouble_says_nothing_of_the_item(place):
    folder = driven(
        place, plan=plan_then_end(item("good", agent=SORTER, check="sorted")), passes=lambda _: None
    )

    assert rows(place, folder) == {"good": (None, Grade.VERIFIED, 0)}


def test_the_planner_hears_why_a_check_failed_and_names_only_checks_that_were_offered(place):
    asked = []

    def plan(data):
        asked.append(data)
        if data["round"] == 1:
            return {"note": "", "items": [item("good", agent=SORTER, check="other")]}
        if data["round"] == 2:
            return {
                "note": "",
                "items": [item("good", agent=SORTER, check="sorted"), item("aside", agent=SORTER)],
            }
        return {"note": "", "result": "none"}

    driven(place, plan=plan, work=done, passes=lambda _: False)

    assert [data["checks"] for data in asked] == [["sorted"]] * 3
    assert "the check 'other'" in asked[1]["messages"][0]["text"]
    assert [one["kind"] for one in asked[2]["messages"]] == ["error", "result"]
    summary = asked[2]["messages"][0]["summary"]
    assert summary.startswith("The check says") and "wrong: no list" in summary
