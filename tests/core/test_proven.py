"""What proves an agent's text: verified ends that are better than those without it."""

import pytest
from earned import LOAD, client, seen, verified, without
from talks import Talk

from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.outcomes.ingest import record_uses
from evolvable_tools.trust import proven_resources
from evolvable_tools.verbs import edit, load

PDF = Ref.parse("pdf")
PERSON = Caller(Actor.HUMAN)


@pytest.fixture
def agents(library, skill) -> int:
    """The id of a skill that an agent wrote."""
    skill("pdf", caller=client("author"))
    return library.store.head(PDF).id


def commits(library, session):
    """A session in which a skill was loaded and something was committed, and nobody said how it
    went.
    """
    loaded = load.load_skill(library, client(session), PDF)
    said = f"...\nuse_id: {loaded.use_id} (report_outcome with it when the task is done)"
    talk = (
        Talk(session)
        .typed("x")
        .called(LOAD, {"ref": "pdf"}, said)
        .called(LOAD, {"ref": "pdf", "path": "a"}, said)
    )
    record_uses(library, talk.ran("git commit -am wip", "[main 1a2b3c4] wip").session)


def test_sessions_that_only_committed_prove_nothing(library, agents):
    for number in range(6):
        commits(library, f"c{number}")
    without(library, "without", "failed")

    attempts = library.store.backend.evidence.list_attempts([agents], versions=True)
    assert len(attempts) == 6 and not any(one.verified for one in attempts)
    assert proven_resources(library, [agents]) == set()


def test_a_session_without_the_skill_that_only_committed_is_no_success_to_compare_with(
    library, agents
):
    for number in range(6):
        verified(library, "pdf", f"p{number}", "succeeded")
        seen(library, f"w{number}")
        record_uses(
            library,
            Talk(f"w{number}").typed("x").ran("git commit -am wip", "[main 1a2b3c4] wip").session,
        )
    without(library, "without", "failed")

    ends = {one.session: one.outcome for one in library.store.backend.observations.verified_ends()}
    assert ends["w0"] is None and ends["without"] == "failed"
    assert proven_resources(library, [agents]) == {agents}


def test_a_skill_that_helps_no_more_than_its_absence_is_not_proven(library, agents):
    for number in range(6):
        verified(library, "pdf", f"p{number}", "succeeded")
        without(library, f"w{number}", "succeeded")

    assert proven_resources(library, [agents]) == set()


def test_a_skill_that_nothing_is_known_to_compare_with_is_not_proven(library, agents):
    for number in range(6):
        verified(library, "pdf", f"p{number}", "succeeded")

    assert proven_resources(library, [agents]) == set()


@pytest.mark.parametrize(("before", "proven"), [("failed", True), ("succeeded", False)])
def test_a_change_is_compared_with_the_version_that_the_person_stood_for(
    library, skill, before, proven
):
    skill("pdf", caller=PERSON)
    pdf = library.store.head(PDF).id
    for number in range(4):
        verified(library, "pdf", f"b{number}", before)
    edit.update_resource(
        library, client("author"), PDF, "better", edits=[TextEdit("SKILL.md", "two", "two, slowly")]
    )
    for number in range(6):
        verified(library, "pdf", f"p{number}", "succeeded")

    assert proven_resources(library, [pdf]) == ({pdf} if proven else set())
