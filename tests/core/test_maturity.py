"""EvoAgent's maturity, over independent attempts in which a skill was used."""

import json
from pathlib import Path

import pytest
from earned import verified

from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.metrics import maturity, wilson_interval
from evolvable_tools.verbs.load import load_skill, report_outcome
from evolvable_tools.verbs.search import list_resources

VECTORS = json.loads(
    (Path(__file__).parents[1] / "data/evidence_vectors.json").read_text(encoding="utf-8")
)
PDF = Ref.parse("pdf")


def test_maturity_is_evoagents_table():
    """EvoAgent: Proficient from 10 uses at .85, Mature from 4 at .70, Growing from 1,
    else Budding.
    """
    for case in VECTORS["evoagent_maturity"]:
        assert maturity(case["usage_count"], case["success_rate"]) == case["maturity"], case
    assert [maturity(*edge) for edge in ((4, 0.69), (4, 0.70), (10, 0.849), (10, 0.85))] == [
        *("Growing", "Mature", "Mature", "Proficient"),
    ]


def test_the_interval_is_wilsons():
    for case in VECTORS["wilson"]:
        assert wilson_interval(case["k"], case["n"]) == pytest.approx(case["ci95"], abs=1e-12)
    assert wilson_interval(0, 0) == (0.0, 1.0)


def use(library, session, outcome, **more):
    caller = Caller(Actor.AGENT, session=session)
    return report_outcome(
        library, caller, outcome=outcome, use_id=load_skill(library, caller, PDF).use_id, **more
    )


def test_one_session_counts_once_however_often_it_reports(library, skill):
    skill("pdf")

    for _ in range(12):
        told = use(library, "the-same", "succeeded")
    assert (told.maturity, told.succeeded) == ("Growing", 1)
    for number in range(9):
        told = use(library, f"s{number}", "succeeded")
    assert (told.maturity, told.reported, told.verified) == ("Growing", 10, 0)


def test_verified_ends_raise_maturity(library, skill):
    skill("pdf")

    steps = []
    for number in range(10):
        verified(library, "pdf", f"s{number}", "succeeded")
        steps.append(list_resources(library, Caller(Actor.AGENT)).resources[0].maturity)
    assert steps == ["Growing"] * 3 + ["Mature"] * 6 + ["Proficient"]


def test_the_sessions_of_one_connection_are_one_verified_vote(library, skill):
    skill("pdf")

    for number in range(10):
        verified(library, "pdf", f"s{number}", "succeeded", connection="client-1")
    (listed,) = list_resources(library, Caller(Actor.AGENT)).resources
    assert (listed.maturity, listed.verified, listed.reported) == ("Growing", 1, 9)


@pytest.mark.parametrize("usage", ["ignored", "inapplicable"])
def test_a_task_that_went_well_without_following_the_skill_proves_nothing(library, skill, usage):
    skill("pdf")

    for number in range(4):
        told = use(library, f"s{number}", "succeeded", usage=usage)
    assert (told.maturity, told.succeeded) == ("Budding", 4)


def test_the_last_word_of_a_session_replaces_those_before(library, skill):
    skill("pdf")
    use(library, "s1", "succeeded")

    told = use(library, "s1", "failed")
    assert (told.succeeded, told.failed, told.reported) == (0, 1, 1)
    (listed,) = list_resources(library, Caller(Actor.AGENT)).resources
    assert (listed.maturity, listed.uses, listed.success) == ("Growing", 2, 0.0)
