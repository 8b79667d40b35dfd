"""What the evidence says of each skill: used, helping, harming, dead; each share with its number
and interval.
"""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from earned import seen, verified
from talks import Talk

from evolvable_server.cli.command_line import cli
from evolvable_store.errors import InvalidArgument, NoSuchResource
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.outcomes.ingest import record_uses
from evolvable_tools.outcomes.usage_report import stats
from evolvable_tools.verbs import edit, load
from evolvable_tools.verbs.search import find_skill

pytestmark = pytest.mark.process

PDF = Ref.parse("pdf")


def tell(library, name, outcomes, **more):
    for number, outcome in enumerate(outcomes):
        caller = Caller(Actor.AGENT, f"{name}-{number}-{outcome}")
        use = load.load_skill(library, caller, Ref.parse(name))
        load.report_outcome(library, caller, outcome=outcome, use_id=use.use_id, **more)


def alone(library, good, bad):
    """Sessions without any skill that end well, and others that do not."""
    for number in range(good + bad):
        seen(library, f"alone-{number}")
        talk = (
            Talk(f"alone-{number}")
            .typed("x")
            .ran("true")
            .typed("it works" if number < good else "that is wrong")
        )
        record_uses(library, talk.session)


def line(library, name):
    return stats(library, Caller(Actor.HUMAN), Ref.parse(name)).resources[0]


def test_what_helps_and_what_harms_is_said_against_sessions_without_any_skill(library, skill):
    for name in ("good", "bad", "new"):
        skill(name)
    alone(library, 5, 5)
    tell(library, "good", ["succeeded"] * 10)
    tell(library, "bad", ["failed"] * 9 + ["succeeded"])
    tell(library, "new", ["failed"] * 4)

    found = stats(library, Caller(Actor.HUMAN))
    verdicts = {"skill:good": "helps", "skill:bad": "harms", "skill:new": "open"}
    assert {one.ref: one.verdict for one in found.resources} == verdicts
    assert (found.base.of, found.base.share.successes, found.base.share.n) == (
        "sessions without any",
        5,
        10,
    )
    bad = line(library, "bad").helped
    assert (bad.successes, bad.n, round(bad.low, 3), round(bad.high, 3)) == (1, 10, 0.018, 0.404)
    assert [(one.ref, one.reason) for one in found.opportunities if one.reason == "harms"] == [
        ("skill:bad", "harms")
    ]
    assert {one.ref: re.findall(r"\d+%?", one.why) for one in found.resources} == {
        "skill:good": ["100%", "50%"],
        "skill:bad": ["10%", "50%"],
        "skill:new": ["4", "5"],
    }


def test_where_no_session_was_without_a_skill_the_others_are_compared_with(library, skill):
    skill("good"), skill("bad")
    tell(library, "good", ["succeeded"] * 10)
    tell(library, "bad", ["failed"] * 10)

    assert (line(library, "bad").verdict, line(library, "good").verdict) == ("harms", "helps")
    assert stats(library, Caller(Actor.HUMAN), Ref.parse("bad")).base.of == "other resources"


def test_nothing_is_compared_with_too_little(library, skill):
    skill("bad")
    alone(library, 4, 0)
    tell(library, "bad", ["failed"] * 10)

    assert (line(library, "bad").verdict, stats(library, Caller(Actor.HUMAN)).base) == (
        "open",
        None,
    )
    why = line(library, "bad").why
    assert why.startswith("nothing to compare with") and "5 rated uses" in why


def test_what_is_shown_again_and_again_and_never_opened_is_dead(library, agent, person, skill):
    for name in ("pdf-forms", "bread"):
        skill(name, description=f"Works with {name}.")
    for number in range(6):
        who = Caller(Actor.AGENT, f"s{number}")
        assert (
            find_skill(library, who, "work with pdf-forms", to_agent=True).matches[0].ref
            == "skill:pdf-forms"
        )
        find_skill(library, person, "work with bread")
    assert [(one.ref, one.shown, one.verdict) for one in stats(library, person).resources] == [
        ("skill:pdf-forms", 6, "dead")
    ]
    assert [one.reason for one in stats(library, person).opportunities] == ["shown-not-loaded"]

    load.load_skill(library, agent, Ref.parse("pdf-forms"))
    assert line(library, "pdf-forms").verdict == "open"


def test_a_search_that_finds_nothing_shows_nothing(library, agent, skill):
    skill("pdf-forms")

    assert find_skill(library, agent, "tune a grand piano", to_agent=True).verdict == "none"
    assert stats(library, agent).resources == []


def test_versions_models_and_task_types_are_kept_apart(library, person, skill, tmp_path):
    skill("pdf")
    library.working_copies.check_out(tmp_path / "ada/.claude/skills")
    for number in range(12):
        model = "small" if number % 2 else "large"
        seen(library, f"s{number}")
        talk = Talk(f"s{number}", model=model).typed("x").loaded("pdf")
        record_uses(
            library, talk.typed("it works" if model == "large" else "that is wrong").session
        )
    edit.update_resource(library, person, PDF, "second", edits=[TextEdit("SKILL.md", "two", "2")])
    tell(library, "pdf", ["failed"] * 5, task_type="Forms")

    pdf = line(library, "pdf")
    assert [
        (part.version, part.model, part.share.successes, part.share.n) for part in pdf.versions
    ] == [
        *((2, None, 0, 5), (1, "large", 6, 6), (1, "small", 0, 6)),
    ]
    assert [
        (one.task_type, round(one.q, 9), one.share.n, one.verified.n) for one in pdf.task_types
    ] == [
        ("forms", 0.0, 5, 0),
        ("other", 0.5, 12, 0),
    ]
    assert pdf.maturity == "Growing"
    for number, outcome in enumerate(("succeeded", "failed", "succeeded")):
        verified(library, "pdf", f"v{number}", outcome)
    said = Caller(Actor.HUMAN, principal=Principal.PERSON)
    report = load.report_outcome(library, said, outcome="failed", ref=PDF, task_type="Forms")
    assert report.counted
    assert [
        (one.task_type, one.verified.successes, one.verified.n)
        for one in line(library, "pdf").task_types
    ] == [
        *(("forms", 0, 1), ("other", 2, 3)),
    ]
    # The sessions above were seen by the server too: 12 reported, of which each is an episode of
    # the agent.
    (agent,) = stats(library, person).agents
    assert (agent.agent, agent.task_type, agent.share.n, agent.share.successes) == (
        "main",
        "other",
        15,
        8,
    )


def test_opportunities_say_where_a_review_may_look(library, person, skill, tmp_path):
    skill("pdf"), skill("csv")
    place = tmp_path / "ada/.claude/skills"
    library.working_copies.check_out(place)
    for number in range(6):
        seen(library, *(f"{letter}{number}" for letter in "abcd"))
        good = Talk(f"a{number}", model="large").typed("x").loaded("pdf").typed("it works")
        bad = Talk(f"b{number}", model="small").typed("x").loaded("pdf").typed("that is wrong")
        read = (
            Talk(f"c{number}")
            .typed("x")
            .called("Read", {"file_path": f"{place}/csv/SKILL.md"}, "text")
        )
        for talk in (good, bad, read):
            record_uses(library, talk.session)

    found = {(one.ref, one.reason): one.numbers for one in stats(library, person).opportunities}
    assert set(found) == {
        *{
            ("skill:pdf", "used-not-shown"),
            ("skill:pdf", "model-differs"),
            ("skill:csv", "loaded-not-used"),
        },
    }
    assert (
        found["skill:pdf", "model-differs"]
        == "small 0 of 6 (0% to 39%); large 6 of 6 (61% to 100%)"
    )
    edit.update_resource(library, person, PDF, "worse", edits=[TextEdit("SKILL.md", "two", "2")])
    for number in range(6):
        record_uses(
            library, Talk(f"d{number}", model="large").loaded("pdf").typed("that is wrong").session
        )
    assert ("skill:pdf", "newer-is-worse") not in {
        (one.ref, one.reason) for one in stats(library, person).opportunities
    }
    tell(library, "pdf@1", ["succeeded"] * 40)
    assert ("skill:pdf", "newer-is-worse") in {
        (one.ref, one.reason) for one in stats(library, person).opportunities
    }


def test_what_is_asked_wrongly_is_refused(library, person):
    with pytest.raises(NoSuchResource):
        stats(library, person, PDF)
    with pytest.raises(InvalidArgument):
        stats(library, person, days=0)


@pytest.mark.parametrize(
    ("uses", "listed", "share"), [(1, "0 of 1", "0 of 1"), (5, "0% of 5", "0 of 5 (0% to 43%)")]
)
def test_a_share_of_under_five_uses_is_two_numbers_in_every_command(
    library, skill, uses, listed, share
):
    skill("pdf")
    tell(library, "pdf", ["failed"] * uses)
    library.close()

    def run(*words):
        return CliRunner().invoke(cli, ["--home", str(library.store.home), *words]).output

    assert listed in run("list")
    for words in (("stats",), ("stats", "pdf")):
        assert share in run(*words)
        assert ("% to" in run(*words)) == (uses == 5)


def test_the_command_never_shows_a_share_without_its_number_and_from_five_on_its_interval(
    library, skill
):
    skill("pdf")
    tell(library, "pdf", ["succeeded"] * 7 + ["failed"] * 2, task_type="forms")
    for number in range(4):
        verified(library, "pdf", f"pdf-{number}-succeeded", "succeeded")
    library.close()
    home = str(library.store.home)

    shown = CliRunner().invoke(cli, ["--home", home, "stats"])
    assert "7 of 9 (45% to 94%)" in shown.output and "Mature" not in shown.output
    whole = CliRunner().invoke(cli, ["--home", home, "stats", "pdf"])
    assert "not known" in whole.output and "forms" in whole.output and "0.78" in whole.output
    told = json.loads(CliRunner().invoke(cli, ["--home", home, "stats", "--json"]).output)
    assert told["resources"][0]["helped"]["n"] == 9
    assert CliRunner().invoke(cli, ["--home", home, "stats", "nope"]).exit_code == 1


def test_time_is_that_of_the_library(library, agent, skill):
    skill("pdf")
    load.load_skill(library, agent, PDF)

    assert datetime.now(UTC) - datetime.fromisoformat(line(library, "pdf").last_loaded) < timedelta(
        minutes=1
    )
