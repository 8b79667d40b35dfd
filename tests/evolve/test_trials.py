"""Trials: what is known is not paid again, errors are never taken for results, and no budget is
overrun.
"""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trial_children
from trial_parts import BASE, USAGE, ByFirstWord, Scripted, program, task, tasks

from evolvable_evolve.evolution.ledger.run_directory import Ledger, read_ledger
from evolvable_evolve.evolution.run_config import SpendLimit
from evolvable_evolve.evolution.scorers.registry import TaskSetScorer
from evolvable_evolve.evolution.task import (
    ModelUsage,
    Rollout,
    Score,
    ScorerError,
    ScorerSpec,
    Trial,
    TrialOutcome,
)
from evolvable_evolve.evolution.trials.budget import (
    BudgetSpent,
    ConcurrencyLimit,
    PriceUnknown,
    RunBudget,
    make_concurrency_limit,
)
from evolvable_evolve.evolution.trials.measurement import (
    TrialRequest,
    TrialRunner,
    TrialSettings,
    TrialsFailing,
    interleave,
)

CHANGED = program("changed")


class Place:
    """One run's ledger; each measurement opens it anew, as another process would."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.jsonl"
        self.settings = TrialSettings(folder=folder / "workspaces", backoff=(0.0, 0.0))

    def measure(
        self, requests: Sequence[TrialRequest], batch: str | None = None, **means: Any
    ) -> list[Trial]:
        means = {"scoring": ByFirstWord(), "settings": self.settings} | means
        executor = means.pop("executor", Scripted(self.path.parent))
        with Ledger.open(self.path, durable=False) as ledger:
            return asyncio.run(TrialRunner(executor, ledger, **means).measure(requests, batch))

    def records(self, type: str) -> list[Any]:
        return [record for record in read_ledger(self.path) if record["type"] == type]

    def attempts(self) -> Counter[str]:
        return Counter(record["task"] for record in self.records("started"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def outcomes(trials: Sequence[Trial]) -> dict[str, str]:
    return {trial.task: trial.outcome.value for trial in trials}


def test_trials_come_back_in_the_order_of_the_requests_with_what_came_of_them(place: Place) -> None:
    todo = [task("a", "pass"), task("b", "fail"), task("c", "timeout"), task("d", "refuse")]
    trials = place.measure([(CHANGED, one, 3) for one in todo])
    assert [(trial.task, trial.outcome, trial.score) for trial in trials] == [
        ("a", TrialOutcome.PASS, 1.0),
        ("b", TrialOutcome.FAIL, 0.0),
        ("c", TrialOutcome.AGENT_TIMEOUT, 0.0),
        ("d", TrialOutcome.REFUSED, None),
    ]
    first = trials[0]
    assert (first.program, first.repeat, first.usage, first.cached) == (
        CHANGED.digest,
        3,
        USAGE,
        False,
    )
    assert (first.output, first.trace, first.feedback) == (
        f"pass a {CHANGED.digest[:8]} 3",
        "how",
        "what may be told",
    )


def test_a_trial_that_counted_is_never_run_or_paid_again(place: Place) -> None:
    requests = [
        (one, each, 0)
        for each in [*tasks(3), task("f", "fail"), task("t", "timeout")]
        for one in (BASE, CHANGED)
    ]
    before = place.measure(requests)
    budget = RunBudget()
    after = place.measure(requests, executor=Scripted(usage=ModelUsage(cost=1.0)), budget=budget)
    assert [trial.cached for trial in after] == [True] * 10
    assert [(t.output, t.trace, t.usage) for t in after] == [
        (t.output, t.trace, t.usage) for t in before
    ]
    assert budget.bill.cost == pytest.approx(10 * USAGE.cost)
    assert len(place.records("started")) == 10


@pytest.mark.parametrize("other", ["program", "repeat", "executor", "scorer", "task"])
def test_whatever_decides_a_result_makes_another_trial(place: Place, other: str) -> None:
    class OtherScorer(ByFirstWord):
        def known_answer(self, task: Any) -> None:
            return None

        def digest(self, task: Any) -> str:
            return "other"

    place.measure([(BASE, task("a"), 0)])
    request: TrialRequest = (
        CHANGED if other == "program" else BASE,
        task("a"),
        1 if other == "repeat" else 0,
    )
    if other == "task":
        request = (BASE, task("a", digest="another"), 0)
    means: dict[str, Any] = {
        "executor": {"executor": Scripted(fingerprint="scripted 2")},
        "scorer": {"scoring": OtherScorer()},
    }.get(other, {})
    assert not place.measure([request], **means)[0].cached
    assert place.measure([(BASE, task("another name", digest=task("a").digest), 0)])[0].cached


def test_infrastructure_errors_are_tried_twice_more_and_then_missing(place: Place) -> None:
    todo = [
        task("once", "once trouble"),
        task("always", "trouble"),
        task("raises", "raise"),
        task("refuses", "refuse"),
    ]
    trials = place.measure([(BASE, one, 0) for one in todo])
    assert outcomes(trials) == {
        "once": "pass",
        "always": "infra_error",
        "raises": "infra_error",
        "refuses": "refused",
    }
    assert [trial.score for trial in trials] == [1.0, None, None, None]
    assert place.attempts() == {"once": 2, "always": 3, "raises": 3, "refuses": 1}
    assert trials[2].detail.endswith("RuntimeError: the executor is broken")


def test_errors_are_never_cached(place: Place) -> None:
    requests = [
        (BASE, task(name, prompt), 0) for name, prompt in (("a", "trouble"), ("b", "refuse"))
    ]
    for batch in (None, None, "one", "two"):
        trials = place.measure(requests, batch)
        assert not any(trial.cached for trial in trials)
    assert place.attempts() == {"a": 12, "b": 4}
    healed = [(BASE, task("a"), 0), (BASE, task("b"), 0)]
    assert outcomes(place.measure(healed, "three")) == {"a": "pass", "b": "pass"}


def test_a_named_batch_that_is_asked_for_again_is_the_same(place: Place) -> None:
    place.measure([(BASE, task("a"), 0)], "before")
    requests = [
        (BASE, task(n, p), 0)
        for n, p in (("a", ""), ("b", "fail"), ("c", "trouble"), ("d", "refuse"))
    ]
    first = place.measure(requests, "val")
    size = place.path.stat().st_size
    assert place.measure(requests, "val") == first
    assert [trial.cached for trial in first] == [True, False, False, False]
    assert place.path.stat().st_size == size


def test_a_scorer_that_fails_is_asked_again_without_running_the_task_again(place: Place) -> None:
    names = ("hard", "unscorable", "odd")
    trials = place.measure([(BASE, task(name), 0) for name in names], "val")
    assert outcomes(trials) == {"hard": "pass", "unscorable": "infra_error", "odd": "infra_error"}
    assert trials[1].detail.endswith("RuntimeError: the scorer is broken")
    assert "the scorer said nan" in trials[2].detail
    assert place.attempts() == {"hard": 1, "unscorable": 1, "odd": 1}
    assert all(trial.usage == USAGE for trial in trials), (
        "the run is billed though nobody could judge it"
    )
    assert place.measure([(BASE, task(name), 0) for name in names], "val") == trials


def test_what_may_be_told_and_what_may_not_are_kept_apart(place: Place) -> None:
    place.measure([(BASE, task("a"), 0)])
    (record,) = place.records("trial")
    assert (record["trial"]["feedback"], record["evidence"]) == ("what may be told", "what may not")
    assert "what may not" not in json.dumps(record["trial"])


def test_an_executor_that_does_not_come_back_is_given_up(place: Place) -> None:
    settings = TrialSettings(backoff=(), patience=0.0)
    (trial,) = place.measure([(BASE, task("h", "hang", timeout_s=0.05), 0)], settings=settings)
    assert trial.outcome is TrialOutcome.INFRA_ERROR
    assert trial.detail.startswith("the executor did not")


def test_the_same_trial_asked_for_twice_in_a_batch_is_run_once(place: Place) -> None:
    trials = place.measure(
        [(BASE, task("a"), 0)] * 3 + [(BASE, task("b", digest=task("a").digest), 0)]
    )
    assert [trial.task for trial in trials] == ["a", "a", "a", "b"]
    assert place.attempts() == {"a": 1}


def test_a_measurement_that_is_cancelled_stops_what_runs_and_goes_on_later(place: Place) -> None:
    requests = [(BASE, task("a"), 0), (BASE, task("h", "once hang"), 0), (BASE, task("b"), 0)]

    async def cancelled() -> None:
        with Ledger.open(place.path) as ledger:
            budget = RunBudget(SpendLimit(calls=100))
            executor = Scripted(place.path.parent)
            trials = TrialRunner(
                executor, ledger, scoring=ByFirstWord(), budget=budget, settings=place.settings
            )
            measuring = asyncio.create_task(trials.measure(requests, "val"))
            while len(place.records("trial")) < 2 or not (place.path.parent / "hanging h").exists():
                await asyncio.sleep(0.01)
            measuring.cancel()
            with pytest.raises(asyncio.CancelledError):
                await measuring
            assert (await trials.measure(requests[:1], "val"))[0].outcome is TrialOutcome.PASS

    asyncio.run(cancelled())
    assert list((place.path.parent / "workspaces").iterdir()) == []
    budget = RunBudget()
    assert [trial.cached for trial in place.measure(requests, "val", budget=budget)] == [False] * 3
    assert place.attempts() == {"a": 1, "h": 2, "b": 1}
    assert budget.bill.calls == 6


def test_the_scorer_that_a_task_names_is_asked(place: Place) -> None:
    todo = [task("a", expected="pass a e3b0c442 0"), task("b", expected="something else")]
    trials = place.measure([(BASE, one, 0) for one in todo], scoring=None)
    assert outcomes(trials) == {"a": "pass", "b": "fail"}
    assert TaskSetScorer({"check.py": b"1"}).digest(todo[0]) == TaskSetScorer(
        {"check.py": b"2"}
    ).digest(todo[0])
    command = task("c", scorer=ScorerSpec("command", {"argv": ["check.py"]}))
    assert TaskSetScorer({"check.py": b"1"}).digest(command) != TaskSetScorer(
        {"check.py": b"2"}
    ).digest(command)


# The order


def test_all_arms_of_a_task_run_side_by_side_and_take_turns_at_being_first(place: Place) -> None:
    todo = tasks(40)
    requests = [
        (one, each, repeat) for one in (BASE, CHANGED) for repeat in (0, 1) for each in todo
    ]
    place.measure(requests, throttle=ConcurrencyLimit(1, most=1))
    ran = [
        (record["task"], record["repeat"], record["program"]) for record in place.records("started")
    ]
    pairs = list(zip(ran[::2], ran[1::2], strict=True))
    assert all(one[:2] == other[:2] and one[2] != other[2] for one, other in pairs)
    first = Counter(one[2] for one, _ in pairs)
    assert 25 <= first[BASE.digest] <= 55
    assert interleave(requests) == interleave(list(requests))


# The budget


@pytest.mark.parametrize("limit", ["cost", "tokens", "calls"])
def test_a_run_spends_at_most_its_budget_and_what_was_in_flight_when_nothing_was_known(
    place: Place, limit: str
) -> None:
    one = {"cost": USAGE.cost, "tokens": 120, "calls": 2}[limit]
    budget = RunBudget(SpendLimit(**{limit: one * 9.5 if limit == "cost" else int(one * 9.5)}))  # type: ignore[arg-type]
    requests = [(BASE, each, 0) for each in tasks(30)]
    with pytest.raises(
        BudgetSpent,
        match=f"what is left of its {'money' if limit == 'cost' else limit} does not cover",
    ):
        place.measure(requests, budget=budget)
    assert len(place.records("started")) == len(place.records("trial")) == 9
    again = RunBudget(budget.limits)
    with pytest.raises(BudgetSpent):
        place.measure(requests, budget=again)
    assert again.bill == budget.bill
    trials = place.measure(requests, budget=RunBudget())
    assert Counter(trial.cached for trial in trials) == {True: 9, False: 21}


def test_the_time_that_a_run_takes_is_a_budget_too_and_goes_on_in_the_next_process(
    place: Place,
) -> None:
    now = iter(range(10**6))

    def clock() -> float:  # a second passes at every look
        return float(next(now))

    def measure() -> RunBudget:
        budget = RunBudget(SpendLimit(wall=100.0), clock)
        with pytest.raises(BudgetSpent, match="time"):
            place.measure([(BASE, each, 0) for each in tasks(200)], budget=budget, clock=clock)
        return budget

    first = measure()
    done = len(place.records("trial"))
    assert 0 < done < 200
    assert 95 <= first.elapsed <= 130
    measure()
    assert len(place.records("trial")) <= done + 4


def test_a_provider_that_asks_to_wait_longer_than_there_is_time_ends_the_measurement(
    place: Place,
) -> None:
    budget = RunBudget(SpendLimit(wall=0.2))
    busy = Scripted(retry_after=3600.0)
    with pytest.raises(BudgetSpent, match="left of its time"):
        place.measure([(BASE, task("b", "busy"), 0)], executor=busy, budget=budget)
    assert budget.elapsed < 5


def test_an_unknown_price_is_not_taken_for_nothing(place: Place) -> None:
    requests = [(BASE, each, 0) for each in tasks(30)]
    unpriced = Scripted(usage=ModelUsage(10, 10, 1))
    with pytest.raises(PriceUnknown, match="price .* is unknown"):
        place.measure(requests, executor=unpriced, budget=RunBudget(SpendLimit(cost=5.0)))
    assert len(place.records("trial")) <= 4
    assert len(place.records("started")) == len(place.records("trial")), (
        "what is under way is paid and may end"
    )
    budget = RunBudget(SpendLimit(cost=5.0, calls=30))
    place.measure(requests, executor=unpriced, budget=budget)
    assert (budget.bill.cost, budget.bill.unpriced, budget.bill.calls) == (0.0, 30, 30)


def test_a_megabyte_of_output_is_scored_whole_and_kept_by_both_of_its_ends(place: Place) -> None:
    class Loud(Scripted):
        async def run(self, *given: Any) -> Rollout:
            return Rollout("pass " + "x" * 1_000_000 + " end", trace="t" * 1_000_000)

    class AtTheEnd(ByFirstWord):
        async def __call__(self, task: Any, rollout: Rollout, workspace: Path) -> Score:
            return Score(float(len(rollout.output) == 1_000_009), evidence="e" * 1_000_000)

    live = place.measure([(BASE, task("a"), 0)], executor=Loud(), scoring=AtTheEnd())[0]
    again = place.measure([(BASE, task("a"), 0)], executor=Loud(), scoring=AtTheEnd())[0]

    assert live.score == 1.0 and live.output.startswith("pass x") and live.output.endswith("x end")
    assert (again.output, again.trace) == (live.output, live.trace)
    assert place.path.stat().st_size < 400_000


def test_retries_are_billed(place: Place) -> None:
    budget = RunBudget()
    place.measure([(BASE, task("a", "trouble"), 0)], budget=budget)
    assert budget.bill.cost == pytest.approx(3 * USAGE.cost)
    assert RunBudget().bill.cost == 0


def test_two_ledgers_share_a_budget(tmp_path: Path) -> None:
    with (
        Ledger.open(tmp_path / "search.jsonl") as search,
        Ledger.open(tmp_path / "sealed.jsonl") as sealed,
    ):
        budget = RunBudget(SpendLimit(calls=8))
        arms = [
            TrialRunner(Scripted(), one, scoring=ByFirstWord(), budget=budget)
            for one in (search, sealed)
        ]
        asyncio.run(arms[0].measure([(BASE, each, 0) for each in tasks(3)]))
        with pytest.raises(BudgetSpent):
            asyncio.run(arms[1].measure([(BASE, each, 0) for each in tasks(3)]))
    assert len(read_ledger(tmp_path / "sealed.jsonl")) == 2


# How many at once


def test_a_provider_that_is_busy_gets_half_as_many_and_is_left_alone_as_long_as_it_asks(
    place: Place,
) -> None:
    todo = [task(f"b{number}", "once busy") for number in range(8)] + tasks(60)
    throttle = ConcurrencyLimit(8, most=16)
    executor = Scripted(place.path.parent, retry_after=0.02)
    trials = place.measure([(BASE, each, 0) for each in todo], throttle=throttle, executor=executor)
    assert all(trial.outcome is TrialOutcome.PASS for trial in trials)
    in_flight = [record["in_flight"] for record in place.records("trial")]
    assert max(in_flight) == 8
    assert 4 in in_flight[8:30]
    assert throttle.limit > 4


def test_one_burst_of_refusals_halves_once_and_twenty_good_ones_give_one_more() -> None:
    now = [0.0]
    throttle = ConcurrencyLimit(8, clock=lambda: now[0])
    eras = [throttle.begin_trial() for _ in range(8)]
    for era in eras:
        throttle.end_trial(era, 10.0)
    assert throttle.limit == 4
    assert throttle.wait(0) == 10.0
    now[0] = 10.0
    assert throttle.wait(3) == 0.0
    assert throttle.wait(4) == float("inf")
    for _ in range(20):
        throttle.end_trial(throttle.begin_trial())
    assert throttle.limit == 5
    for _ in range(9):
        throttle.end_trial(throttle.begin_trial(), 0.0)
    assert throttle.limit == 1
    assert 2.0 <= throttle.wait(0) <= 60.0


# Kills


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")
def test_a_kill_at_any_record_changes_neither_the_results_nor_the_bill(tmp_path: Path) -> None:
    command = [sys.executable, trial_children.__file__, str(tmp_path), "every"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["records"] > 20
    assert said["differing"] == []
    assert 0 < said["interrupted"] <= 4 * USAGE.calls, "more than was in flight"
    assert said["expected"]["left"] == [], "a workspace was left"


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")
def test_a_thousand_kills_at_any_moment_change_neither_the_results_nor_the_bill(
    tmp_path: Path,
) -> None:
    command = [sys.executable, trial_children.__file__, str(tmp_path), "random", "1000", "6"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["kills"] >= 1000
    assert said["differing"] == []


def test_after_so_many_spoiled_attempts_in_a_row_a_batch_is_given_up_once_and_tried_anew(
    place: Place,
) -> None:
    todo = [(BASE, task(f"t{number}", "once trouble"), 0) for number in range(6)]
    settings = TrialSettings(backoff=(0.0, 0.0), breaker=4)
    with pytest.raises(TrialsFailing, match=r"4 attempts in a row failed.*trouble"):
        place.measure(
            todo,
            "val/1",
            settings=replace(settings, backoff=(30.0,)),
            throttle=ConcurrencyLimit(1, most=1),
        )
    assert sum(place.attempts().values()) == 4

    trials = place.measure(todo, "val/1", settings=settings)

    assert set(outcomes(trials).values()) == {"pass"}, "what was spoiled then is not missing now"
    again = place.measure(
        [(BASE, task(f"a{n}", "trouble"), 0) for n in range(6)], "val/1", settings=settings
    )
    assert set(outcomes(again).values()) == {"infra_error"}, (
        "a second time it goes on, and they are missing"
    )


@pytest.mark.process
def test_a_provider_that_asks_to_wait_or_a_trial_that_counts_between_does_not_trip_it(
    place: Place,
) -> None:
    mixed = [(BASE, task(f"t{n}", "pass" if n % 3 == 2 else "trouble"), 0) for n in range(9)]
    busy = [(BASE, task(f"b{n}", "once busy"), 0) for n in range(6)]
    settings = TrialSettings(backoff=(0.0, 0.0), breaker=4)
    assert len(place.measure(busy, "val/1", settings=settings)) == 6
    assert len(place.measure(mixed, "val/2", settings=TrialSettings(backoff=(), breaker=4))) == 9


def test_what_scoring_took_is_billed_beside_what_the_run_took_and_again_after_reopening(
    place: Place,
) -> None:
    class Dear(ByFirstWord):
        async def __call__(self, task: Any, rollout: Rollout, workspace: Path) -> Score:
            if task.id == "hard":
                raise ScorerError("no answer", usage=ModelUsage(7, 0, 1, 0.5))
            return Score(1.0, usage=ModelUsage(10, 5, 1, 0.25))

    budget = RunBudget()
    trials = place.measure(
        [(BASE, task("a"), 0), (BASE, task("hard"), 0)], scoring=Dear(), budget=budget
    )

    assert [trial.usage for trial in trials] == [USAGE, USAGE]
    assert [trial.judging for trial in trials] == [
        ModelUsage(10, 5, 1, 0.25),
        ModelUsage(21, 0, 3, 1.5),
    ]
    assert budget.bill.cost == pytest.approx(2 * USAGE.cost + 1.75)
    assert budget.bill.calls == 2 * USAGE.calls + 4
    after = RunBudget()
    cached = place.measure([(BASE, task("a"), 0)], scoring=Dear(), budget=after)[0]
    assert cached.cached and cached.judging == ModelUsage(10, 5, 1, 0.25)
    assert after.bill == budget.bill


@pytest.mark.parametrize(
    ("wanted", "at_first", "later"), [(1, 1, 1), (3, 3, 3), (4, 4, 16), (40, 40, 40)]
)
def test_whoever_wants_few_trials_at_once_never_gets_more(
    wanted: int, at_first: int, later: int
) -> None:
    throttle = make_concurrency_limit(wanted)
    assert throttle.limit == at_first
    for _ in range(600):
        throttle.end_trial(throttle.begin_trial())
    assert throttle.limit == later
