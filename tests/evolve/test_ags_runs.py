"""Runs of agents: order and concurrency, collecting and replanning, the ends of a run, and what
survives a kill.
"""

import random
from dataclasses import replace
from graphlib import TopologicalSorter

import pytest
from ags_place import (
    ONE_CALL,
    PERSON,
    AgsPlace,
    CountedBackend,
    Killed,
    bill_of,
    done,
    host_of,
    item,
    killing_after,
    plan_then_end,
    save_agent,
    save_skill,
    scripted,
)

from evolvable_evolve.ags.bus import MAX_ROUNDS, EndReason, fold_bus
from evolvable_evolve.ags.control import ags_status, answer_ags, resume_ags
from evolvable_evolve.ags.driver import plan_ref, publish_plan
from evolvable_evolve.ags.plan import MAX_ITEMS, ItemState, Plan, parse_plan, render_plan
from evolvable_evolve.ags.planner import SingleItemPlan
from evolvable_evolve.evolution.ledger.run_directory import read_ledger
from evolvable_evolve.evolution.run_context import RunStopped
from evolvable_evolve.evolution.task import ModelUsage, Rollout, TrialOutcome
from evolvable_store.errors import InvalidArgument
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit

DIAMOND = (
    item("a"),
    item("b", "a"),
    item("c", "a"),
    item("d", "a"),
    item("e", "a"),
    item("f", "b", "c", "d", "e"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A place that the tests of this file share: each has runs of its own."""
    with Library.open(tmp_path_factory.mktemp("ags") / "home", create=True) as library:
        save_agent(library, "clerk", "You are the clerk.")
        yield AgsPlace(library, host_of())


def test_a_diamond_of_six_items_takes_at_most_six_tenths_of_their_time_one_after_the_other(place):
    together, serial = CountedBackend(), CountedBackend()

    place.run(plan_then_end(*DIAMOND), together)
    state = place.run(plan_then_end(*DIAMOND), serial, concurrency=1)

    assert state.ended == EndReason.DONE and serial.now == 6.0
    assert together.now <= 0.6 * serial.now and together.most == 4
    assert [name for name, _ in together.started] == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.process
def test_200_random_plans_begin_no_item_before_all_that_it_needs_has_ended(place):
    for seed in range(200):
        dice = random.Random(seed)
        names = [f"n{number}" for number in range(dice.randint(2, 8))]
        needs = {
            name: [one for one in names[:at] if dice.random() < 0.3]
            for at, name in enumerate(names)
        }
        shuffled = [item(name, *needs[name]) for name in dice.sample(names, len(names))]
        backend = CountedBackend(seconds=lambda _, dice=dice: dice.uniform(0.1, 9))

        state = place.run(plan_then_end(*shuffled), backend)

        began, ended = dict(backend.started), dict(backend.ended)
        assert all(ended[need] <= began[name] for name in names for need in needs[name]), seed
        assert (
            all(one.state is ItemState.DONE for one in state.items.values()) and backend.most <= 4
        )
        assert list(TopologicalSorter(needs).static_order()), "the plan has an order"


@pytest.mark.process
def test_a_run_that_is_killed_after_every_record_comes_to_the_same_plan_and_the_same_bill(place):
    def working(job):
        if job.task.id == "c":
            return Rollout(
                "", usage=ONE_CALL, wall=1.0, outcome=TrialOutcome.AGENT_TIMEOUT, detail="too slow"
            )
        return done(job)

    def planning(data):
        if data["round"] == 2:
            return {"note": "c another way", "items": [item("c2", "a"), item("f2", "b", "c2")]}
        return plan_then_end(*DIAMOND)(data)

    whole = place.begin()
    expected = place.drive(whole, scripted(planning), CountedBackend(working))
    records = len(read_ledger(whole.ledger))
    assert expected.ended == EndReason.DONE and records > 15

    for at in range(2, records + 1):
        folder = place.begin()
        with pytest.raises(Killed):
            place.drive(
                folder, scripted(planning), CountedBackend(working), ledger=killing_after(at)
            )
        state = place.drive(folder, scripted(planning), CountedBackend(working))
        same = replace(state.plan, run=expected.run)
        assert render_plan(same) == render_plan(expected.plan), at
        assert bill_of(state) == bill_of(expected), at


def test_a_message_that_comes_twice_counts_once(place):
    folder = place.begin()
    expected = place.drive(folder, scripted(plan_then_end(*DIAMOND)), CountedBackend())

    records = read_ledger(folder.ledger)
    doubled = [one for record in records for one in (record, record)][1:]

    again = fold_bus(doubled)
    assert (again.plan, again.bill) == (expected.plan, expected.bill)


def test_what_was_under_way_at_a_kill_is_reserved_and_counts_against_the_budget(place):
    folder = place.begin(limit={"calls": 4})
    first = CountedBackend()
    with pytest.raises(Killed):
        place.drive(folder, scripted(plan_then_end(*DIAMOND)), first, ledger=killing_after(8))

    state = place.drive(folder, scripted(plan_then_end(*DIAMOND)), CountedBackend())

    assert state.ended == EndReason.BUDGET
    assert state.bill.calls <= 4, (
        "what is spent and what may have been spent stay within the limit together"
    )


@pytest.mark.parametrize("limit", [{"calls": 4}, {"cost": 0.004}])
def test_a_budget_is_never_exceeded_by_more_than_what_is_under_way(place, limit):
    wide = [item(f"n{number}") for number in range(12)]
    backend = CountedBackend()

    state = place.run(plan_then_end(*wide), backend, limit=limit)

    [(name, most)] = limit.items()
    spent, each = ({"calls": one.calls, "cost": one.cost} for one in (state.bill, ONE_CALL))
    assert state.ended == EndReason.BUDGET and 0 < spent[name] <= most + 4 * each[name]
    assert any(one.state is ItemState.OPEN for one in state.items.values())


def test_a_run_whose_budget_was_spent_goes_on_with_another_one_only(place):
    folder, home = place.begin(limit={"calls": 3}), place.library.store.home
    assert (
        place.drive(folder, scripted(plan_then_end(*DIAMOND)), CountedBackend()).ended
        == EndReason.BUDGET
    )
    with pytest.raises(InvalidArgument, match="is finished: budget"):
        resume_ags(home, folder.id)

    assert resume_ags(home, folder.id, {"calls": 20}).goes_on
    state = place.drive(folder, scripted(plan_then_end(*DIAMOND)), CountedBackend())

    assert (state.ended, state.bill.calls) == (EndReason.DONE, 8)
    with pytest.raises(InvalidArgument, match="is finished: done"):
        resume_ags(home, folder.id, {"calls": 90})


def test_a_question_that_the_budget_does_not_cover_is_not_asked(place):
    planner = scripted(plan_then_end(item("a")))

    state = place.drive(place.begin(limit={"tokens": 1_000}), planner, CountedBackend())

    assert (state.ended, planner.asked) == (EndReason.BUDGET, [])


def test_the_planner_hears_of_a_failure_and_plans_another_way(place):
    asked = []

    def planning(data):
        asked.append(data)
        if data["round"] == 1:
            return {"note": "first", "items": [item("a"), item("b", "a")]}
        if data["round"] == 2:
            return {"note": "again", "items": [item("a2")], "drop": ["b"]}
        return {"note": "done", "result": "It is done."}

    def working(job):
        return Rollout("FAILED: no paper") if job.task.id == "a" else done(job)

    state = place.run(planning, CountedBackend(working))

    assert {one.id: one.state for one in state.items.values()} == {
        "a": "failed",
        "b": "dropped",
        "a2": "done",
    }
    [message] = asked[1]["messages"]
    assert (message["kind"], message["from"], message["summary"]) == (
        "error",
        "item:a",
        "FAILED: no paper",
    )
    assert [one["state"] for one in asked[1]["plan"]] == ["failed", "blocked"]
    assert state.result == "It is done." and state.plan.history[-1] == "ended: done"


def test_what_infrastructure_spoils_is_tried_again_and_then_fails(place):
    backend = CountedBackend(
        lambda _: Rollout("", outcome=TrialOutcome.INFRA_ERROR, detail="no network")
    )

    state = place.run(plan_then_end(item("a")), backend)

    assert len(backend.started) == 3 and state.items["a"].state is ItemState.FAILED


def test_two_rounds_without_progress_end_a_run(place):
    planner = scripted(lambda data: {"note": "hm", "items": [item(f"x{data['round']}")]})
    failing = CountedBackend(lambda _: Rollout("FAILED: no"))

    state = place.drive(place.begin(), planner, failing)

    assert (state.ended, len(planner.asked)) == (EndReason.NO_PROGRESS, 2)


def test_a_planner_that_never_ends_is_asked_ten_times(place):
    planner = scripted(lambda data: {"note": "more", "items": [item(f"x{data['round']}")]})

    state = place.drive(place.begin(), planner, CountedBackend())

    assert (state.ended, len(planner.asked), len(state.items)) == (
        EndReason.ROUNDS,
        MAX_ROUNDS,
        MAX_ROUNDS,
    )


def test_a_run_waits_for_the_person_when_the_planner_asks_and_goes_on_with_the_answer(place):
    def planning(data):
        given = [one["answer"] for one in data["messages"] if "answer" in one]
        return (
            {"note": "so", "result": f"in {given[0]}"}
            if given
            else {"note": "?", "question": "Which language?"}
        )

    folder = place.begin()
    waiting = place.drive(folder, scripted(planning), CountedBackend())
    assert (waiting.ended, waiting.question, waiting.waits_for_person) == (
        "",
        "Which language?",
        True,
    )
    status = ags_status(place.library.store.home, folder.id)
    assert (status.state, status.question) == ("waiting", "Which language?")
    with pytest.raises(InvalidArgument, match="waits for a text"):
        answer_ags(place.library, PERSON, folder.id, {"note": "x", "result": "done"})
    assert answer_ags(place.library, PERSON, folder.id, "French").goes_on
    with pytest.raises(InvalidArgument, match="waits for nothing"):
        answer_ags(place.library, PERSON, folder.id, "German")

    state = place.drive(folder, scripted(planning), CountedBackend())

    assert (state.ended, state.result) == (EndReason.DONE, "in French")


def test_a_stop_cancels_what_is_under_way_and_a_continued_run_does_it_again(place):
    folder = place.begin()

    def stopping(job):
        folder.request_stop(True)
        return done(job)

    with pytest.raises(RunStopped):
        place.drive(folder, scripted(plan_then_end(*DIAMOND)), CountedBackend(stopping))
    folder.request_stop(False)

    state = place.drive(folder, scripted(plan_then_end(*DIAMOND)), CountedBackend())

    assert state.ended == EndReason.DONE and all(
        one.state is ItemState.DONE for one in state.items.values()
    )


def test_an_agent_and_a_skill_that_change_during_a_run_are_used_by_the_next_dispatch(place):
    save_skill(place.library, "filing", "File by name.")
    save_agent(place.library, "filer", "You file, first edition.", skills="filing")

    def working(job):
        if job.task.id == "a":
            save_agent(place.library, "filer", "You file, second edition.", skills="filing")
            save_skill(place.library, "filing", "File by date.")
        return done(job)

    backend = CountedBackend(working)
    plan = plan_then_end(item("a", agent="agent:filer"), item("b", "a", agent="agent:filer"))
    state = place.run(plan, backend, agents=["agent:filer"])

    texts = [
        b"".join(data for part in job.program.parts for data in part.files.values())
        for job in backend.jobs
    ]
    assert b"first edition" in texts[0] and b"by name" in texts[0]
    assert b"second edition" in texts[1] and b"by date" in texts[1]
    assert [state.outcomes[name].agent[-2:] for name in "ab"] == ["@1", "@2"]


def test_each_plan_is_a_version_that_parses_back_to_the_same_bytes(place):
    folder = place.begin(task='Say "hi"\n## Result\n\nnot yet \u2028 ```')
    state = place.drive(folder, scripted(plan_then_end(*DIAMOND)), CountedBackend(), versions=True)

    head = place.library.store.head(plan_ref(folder.id))
    texts = [
        place.library.store.file(head, "plan.md", number + 1).data.decode()
        for number in range(head.latest)
    ]

    assert head.latest == 3, "after each answer, and at the end"
    assert [render_plan(parse_plan(text)) for text in texts] == texts
    assert parse_plan(texts[-1]) == state.plan and "n1 --> n2" in texts[-1]


def test_what_a_person_writes_into_a_plan_stays_in_the_next_one_of_a_run_and_of_its_next_process(
    place,
):
    library, plan = place.library, Plan("20261128-1", "do it")

    def text():
        return library.store.file(library.store.head(plan_ref(plan.run)), "plan.md").data.decode()

    def noted(text):
        return text.replace("\n## Task\n", "\nAsk Ada first.\n\n## Task\n")

    assert publish_plan(library, PERSON, plan) == ""
    edit.update_resource(
        library, PERSON, plan_ref(plan.run), "a note", files={"plan.md": noted(text())}
    )

    for result in ("half", "more"):
        assert publish_plan(library, PERSON, replace(plan, result=result)) == ""
        assert text() == noted(render_plan(replace(plan, result=result)))

    later_plan = replace(plan, result="more", history=("went on",))
    with Library.open(library.store.home) as later:
        assert publish_plan(later, PERSON, later_plan) == ""
    assert text() == noted(render_plan(later_plan))


def test_a_summary_has_two_kilobytes_and_the_whole_answer_is_a_file_of_the_run(place):
    folder = place.begin()
    long = CountedBackend(lambda _: Rollout("ä" * 5_000, usage=ModelUsage(calls=1)))

    state = place.drive(folder, scripted(plan_then_end(item("a"))), long)

    outcome = state.outcomes["a"]
    [answer] = outcome.files
    assert len(outcome.summary.encode()) <= 2_000
    assert folder.read_artifact(answer["sha256"]).decode() == "ä" * 5_000


def test_a_run_has_at_most_thirty_items_and_a_plan_of_more_is_refused_with_the_reason(place):
    asked = []

    def planning(data):
        asked.append(data)
        if data["round"] == 1:
            return {"note": "big", "items": [item(f"n{number}") for number in range(MAX_ITEMS + 1)]}
        return {"note": "end", "result": "no"}

    state = place.run(planning)

    [told] = asked[1]["messages"]
    assert not state.items and "at most 30 items" in told["text"]


def test_an_agent_as_a_tool_does_the_one_item_of_a_run_and_no_planner_is_asked_or_paid(place):
    folder = place.begin("Write to Ada.", limit={"calls": 1})

    state = place.drive(folder, SingleItemPlan("agent:clerk"), CountedBackend())

    assert (state.ended, state.result, state.bill.calls) == (EndReason.DONE, "did task", 1)
    assert [(one.subtask, one.agent) for one in state.items.values()] == [
        ("Write to Ada.", "agent:clerk")
    ]
    failing = CountedBackend(lambda job: Rollout("FAILED: no ink", usage=ONE_CALL))
    failed = place.drive(place.begin(), SingleItemPlan("agent:clerk"), failing)
    assert (failed.ended, failed.result) == (EndReason.DONE, "FAILED: no ink")
    assert failed.items["task"].state is ItemState.FAILED
