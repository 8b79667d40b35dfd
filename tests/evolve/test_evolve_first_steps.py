"""What somebody meets who evolves for the first time, at the command line."""

import json

import pytest
from driving_place import driving, letters
from evolution_place import EvolutionPlace, answer_to

from evolvable_evolve.evolution.ledger.run_directory import RunDirectory
from evolvable_evolve.evolution.run_control import read_status

pytestmark = pytest.mark.process

BEGIN = ("evolve", "start", "environment:order-emails", "-p", "order-fields", "--free", "--wait")


def test_what_is_missing_is_named_with_the_command_that_adds_it(tmp_path):
    place = EvolutionPlace(tmp_path)
    tasks = tmp_path / "mine"
    tasks.mkdir()
    (tasks / "tasks.jsonl").write_text('{"id": "a", "prompt": "p"}\n', encoding="utf-8")

    bare = place("import", tasks, "--yes", "--kind", "environment", code=1).err
    assert "ENVIRONMENT.md" in bare and "---, name, description, ---" in bare
    (tasks / "ENVIRONMENT.md").write_text(
        "---\nname: mine\ndescription: Mine.\n---\n", encoding="utf-8"
    )
    assert "--kind environment" in place("import", tasks, "--yes", code=1).err
    unknown = place(
        "evolve",
        "start",
        "environment:mine",
        "-p",
        "order-fields",
        "--executor",
        "simulated",
        code=1,
    ).err
    assert "environment named mine" in unknown and "--kind environment`" in unknown


def test_a_start_that_fails_leaves_no_run(tmp_path):
    place = EvolutionPlace(tmp_path)

    no_key = place(*BEGIN, "--executor", "anthropic:some-model", code=1, ANTHROPIC_API_KEY="").err
    assert "no key for the Anthropic" in no_key
    no_client = place(*BEGIN, "--executor", "claude:some-model", code=1, PATH="/none").err
    assert "claude cannot be started" in no_client and "on the PATH" in no_client
    place("proposer", "add", "nobody", "--", "nobody", "-p")
    place("executor", "add", "nothing", "--", "nothing", "run.py")
    command = (*BEGIN, "--executor", "orders")
    no_brain = place(*command, "--brain", "nobody", code=1).err
    assert "'nobody', which is to think" in no_brain and "not on the PATH" in no_brain
    assert "no key" in place(*command, "--brain", "anthropic", code=1, ANTHROPIC_API_KEY="").err
    no_executor = place(*BEGIN, "--executor", "nothing", code=1).err
    assert "'nothing', which is to do" in no_executor and "not on the PATH" in no_executor
    assert "There is no run yet." in place("evolve", "status", code=1).err


def test_a_run_is_driven_to_its_verdict_from_one_terminal(tmp_path):
    """--wait shows all that happened, and what to do next; a question too early or too late says
    how the run stands.
    """
    place = EvolutionPlace(tmp_path)
    begun = place(*BEGIN, "--executor", "orders", "--iterations", "1")
    assert "asked the proposer" in begun.out
    assert "waiting" in begun.out
    assert "evolve submit" in begun.err
    answer, said = tmp_path / "answer.json", ""
    answer.write_text('{"summary": "x"}', encoding="utf-8")
    assert "by another schema" in place("evolve", "submit", answer, code=1).err
    assert "has no verdict yet" in place("evolve", "adopt", code=1).err
    while packets := place("evolve", "pending", "--json").json["packets"]:
        answer.write_text(
            json.dumps(answer_to(packets[0]["data"], ["Read faxes too"])), encoding="utf-8"
        )
        said = place("evolve", "submit", answer, "--wait").out

    assert "begun on" not in said and "search ended" in said and "finished" in said
    assert "waits for no answer" in place("evolve", "submit", answer, code=1).err


def test_a_run_whose_driver_was_started_a_moment_ago_is_running_and_not_given_up(tmp_path):
    place = EvolutionPlace(tmp_path)
    place.begin("--executor", "simulated", "--iterations", "0")

    first = place.status()["state"]
    last = place.until(lambda status: status["state"] != "running")["state"]

    assert first in ("running", "finished") and last == "finished"


def test_a_run_that_ends_while_its_status_is_asked_for_is_finished_and_not_interrupted(tmp_path):
    with driving(tmp_path) as place:
        place.save(letters())
        place.begin("simulated")

        class EndsMeanwhile(RunDirectory):
            """A run whose driver comes to its end between the reading of the ledger and the
            question for the driver.
            """

            @property
            def is_driver_starting(self) -> bool:
                place.drive()
                return False

        status = read_status(EndsMeanwhile(place.folder.path))

    assert status.state == "finished" and status.verdict
