"""Evolution as a person runs it: real processes, tasks that are really run, a scripted model at the
HTTP boundary.
"""

import json
import os
import signal
from pathlib import Path

import pytest
from evolution_place import EDITS, EvolutionPlace, Proposer, answer_to, texts_of
from order_emails import INVOICES

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.name == "nt", reason="processes are stopped by signals here"),
]


@pytest.fixture
def place(tmp_path: Path) -> EvolutionPlace:
    return EvolutionPlace(tmp_path)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[EvolutionPlace, Proposer, dict]:
    """A whole run through the Anthropic SDK, and what was asked meanwhile."""
    pytest.importorskip("anthropic")
    place = EvolutionPlace(tmp_path_factory.mktemp("evolution"))
    with Proposer() as api:
        api.configure(place)
        options = ("--brain", "anthropic:claude-test", "--stand-in", "--iterations", "3", "--wait")
        place.begin(*options, **api.environment())
        return place, api, place.status()


def test_a_real_gain_is_found_and_promoted_while_what_is_useless_or_harmful_is_refused(done):
    place, _, status = done
    said = [event["what"] for event in status["events"]]

    assert (status["state"], status["verdict"]) == ("finished", "PROMOTE")
    assert any(what.startswith("c1 rejected: +0.0 tasks net of 20") for what in said)
    assert any(what.startswith("c2 rejected: -2.0 tasks net of 20") for what in said)
    assert [(member["name"], member["summary"]) for member in status["frontier"]] == [
        ("c3", list(EDITS)[2])
    ]
    assert any("test was opened" in what and "look 1" in what for what in said)


def test_the_model_was_asked_by_roles_and_never_told_an_answer_or_a_sealed_task(done):
    _, api, _ = done
    told = texts_of(api.asked)
    hidden = [task for task in done[0].tasks if task["split"] != "train"]

    assert len(api.asked) == 6
    assert not any(
        task["id"] in told or json.dumps(task["prompt"])[1:-1] in told for task in hidden
    )
    assert not any(task["expected"]["order"] in told for task in hidden)
    builders = [
        one for one in api.asked if "intents" in json.loads(one.body["messages"][0]["content"])
    ]
    assert len(builders) == 3
    assert not any("Customer" in texts_of([one]) for one in builders)


def test_only_a_person_sees_which_sealed_tasks_passed_and_that_is_a_further_look(done):
    place, _, _ = done
    sealed = [task["id"] for task in place.tasks if task["split"] == "test"]
    check = ("taskset", "check", "environment:order-emails", "--json")
    before, shown = place(*check, code=None).json["looks"], place("evolve", "report").out
    place.person = False
    refused = place("evolve", "report", "--show-test", stdin="y\n", code=1)
    place.person = True

    assert before == 1 and "shown to a person alone" in refused.err
    assert not any(task in shown or task in refused.out for task in sealed)
    assert place("evolve", "report", "--show-test", stdin="n\n", code=None).code
    assert place(*check, code=None).json["looks"] == 1
    told = place("evolve", "report", "--show-test", stdin="y\n").out
    assert "Fixed in test: " in told and any(task in told for task in sealed)
    assert place(*check, code=None).json["looks"] == 2
    place("evolve", "report", "--show-test", stdin="y\n")
    assert place(*check, code=None).json["looks"] == 2, "the same run again is no further look"


def test_what_a_person_wants_hidden_is_in_no_report(done):
    place, _, _ = done
    patterns = place.home / "redact.txt"
    read = place("evolve", "report", "--json").json
    before = Path(read["html"]).read_text(encoding="utf-8")
    patterns.write_text("month = 2026-10-\n", encoding="utf-8")
    place("evolve", "report")
    after = Path(read["html"]).read_text(encoding="utf-8") + Path(read["json"]).read_text(
        encoding="utf-8"
    )
    patterns.unlink()

    assert "2026-10-" in before and "2026-10-" not in after and "[redacted:month]" in after


def test_what_was_promoted_is_adopted_in_one_operation_and_taken_back(done):
    place, _, status = done
    before = place("get", "order-fields").out

    adopted = place("evolve", "adopt", "--json", stdin="y\n").json
    live = place.root / "skills/order-fields/SKILL.md"

    assert adopted["changes"] == [{"ref": "skill:order-fields", "before": 1, "after": 2}]
    assert INVOICES in live.read_text(encoding="utf-8")
    [made] = [
        one
        for one in place("history", "order-fields", "--json").json["versions"]
        if one["version"] == 2
    ]
    assert made["operation"] == adopted["operation"] and made["actor"] == "human"

    back = place("evolve", "adopt", "--undo", "--json").json

    assert back["restored"] == ["skill:order-fields@3"]
    assert INVOICES not in live.read_text(encoding="utf-8")
    assert place("get", "order-fields").out.replace("@3", "@1") == before

    live.write_text(live.read_text(encoding="utf-8") + "\nBy hand.\n", encoding="utf-8")
    refused = place("evolve", "adopt", stdin="y\n", code=1)
    assert "not what was evaluated" in refused.err and "By hand." in live.read_text(
        encoding="utf-8"
    )


def test_a_run_is_handed_off_stopped_and_continued_from_other_processes(place):
    """Every step is another process: the one that began it, those that answer, the one that stops
    it.
    """
    run = place.begin("--iterations", "1")
    place.until(lambda now: now["state"] == "waiting")
    stopped = place("evolve", "stop", "--json").json
    assert stopped["state"] == "stopped" and place.status()["state"] == "stopped"

    place("evolve", "continue")
    place.until(lambda now: now["state"] == "waiting")
    [packet] = place("evolve", "pending", "--json").json["packets"]
    assert packet["role"] == "proposer" and "expected" not in packet["data"]["evidence"][0]
    wrong = place("evolve", "submit", "-", stdin=json.dumps({"intents": 1}), code=1)
    assert "another schema" in wrong.err

    for role in ("proposer", "builder"):
        place.until(lambda now, role=role: any(role in one for one in now["pending"]))
        [packet] = place("evolve", "pending", "--json").json["packets"]
        place(
            "evolve",
            "submit",
            "--question",
            packet["question_id"],
            "-",
            stdin=json.dumps(answer_to(packet["data"])),
        )
    ended = place.until(lambda now: now["state"] == "finished")

    assert ended["run"] == run and ended["verdict"] == "NOT SUPPORTED"
    assert "test was not opened" in ended["why"]


@pytest.mark.nightly
def test_killed_in_the_middle_it_comes_to_the_same_frontier_and_the_same_bill(done, tmp_path):
    _, _, whole = done
    place = EvolutionPlace(tmp_path)
    with Proposer() as api:
        api.configure(place)
        options = (
            "--brain",
            "anthropic:claude-test",
            "--stand-in",
            "--iterations",
            "3",
            "--free",
            "--wait",
        )
        run = place.begin(*options[:-1], **api.environment())
        place("evolve", "stop", run)
        place.until(lambda now: now["state"] != "running")
        env = place.environment | api.environment()
        for reached in (
            lambda now: now["next"] >= 60,
            lambda now: now["next"] >= 150,
            _test_is_open,
        ):
            with place.start(
                "evolve", "continue", "--wait", env=env, stdout=None, stderr=None
            ) as process:
                place.until(reached)
                os.kill(process.pid, signal.SIGKILL)
        place("evolve", "continue", "--wait", code=None, **api.environment())
        ended = place.status()

    def bill(status: dict) -> dict:
        return {
            name: status["spent"][name]
            for name in ("trials", "calls", "input_tokens", "output_tokens", "cost")
        }

    assert (ended["verdict"], ended["frontier"]) == (whole["verdict"], whole["frontier"])
    assert bill(ended) == bill(whole)


def _test_is_open(status: dict) -> bool:
    return any("test was opened" in event["what"] for event in status["events"])
