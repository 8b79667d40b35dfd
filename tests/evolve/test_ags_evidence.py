"""Items of runs of agents as evidence: what counts against an agent and its skills, and whose runs count at all."""

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


def driven(place, ledgers=(), **settings):
    folder = place.begin(agents=[SORTER], **settings)
    for ledger in ledgers:
        with pytest.raises(Killed):
            place.drive(folder, scripted(PLAN), CountedBackend(working), ledger=ledger, evidence=True)
    place.drive(folder, scripted(PLAN), CountedBackend(working), evidence=True)
    return folder


def rows(place, folder):
    """The executions of a run: by item the outcome and its grade, and what was used."""
    name = f"ags:{folder.id}:"
    found = place.library.store.backend.observations.executions()
    mine = [one for one in found if one.session.startswith(name)]
    assert {one.executor for one in mine} == {SORTER}
    return {one.session.removeprefix(name): (one.outcome, one.grade, len(one.uses)) for one in mine}


WHOLE = {
    "good": (None, Grade.VERIFIED, 0),
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
    assert agents == {(SORTER, "agents"): (0.0, 1)}, "an item has no main agent"
    sorting = place.library.store.head(Ref.parse("skill:sorting")).id
    attempts = place.library.evidence.list_attempts([sorting])
    assert sorted((one.outcome, one.verified) for one in attempts) == [("failed", False), ("failed", True)]
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
    folder = driven(place)
    settings = ReviewSettings(Redactor())

    report = run_round(place.library, PERSON, settings, WholeSource.of(place.library, settings))

    assert (report.source, report.episodes, report.successes) == ("sessions", 2, 0)
    again = run_round(place.library, PERSON, settings, WholeSource.of(place.library, settings))
    assert again.episodes == 0
    named = run_round(place.library, PERSON, settings, AgsSource.of(place.library, folder.id))
    assert named.episodes == 0, "the good item has no end that counts, and the others were read"
