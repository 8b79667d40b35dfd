"""What becomes of a run's finalist in the library: adopted in one operation, watched,
taken back.
"""

import asyncio
import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from evolve_runs import program, running, scripted, skill, task

from evolvable_evolve.evolution.candidates import programs
from evolvable_evolve.evolution.deploy import (
    NotPromoted,
    ResourceDrifted,
    adopt,
    monitor_adoptions,
    unadopt,
)
from evolvable_evolve.evolution.ledger.run_directory import NoSuchRun, find_run
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.run_control import get_status
from evolvable_evolve.evolution.start import find_opportunities
from evolvable_evolve.evolution.task import Split
from evolvable_store.errors import Refused
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit, load, proposal_inbox

PERSON, AGENT = Caller(Actor.HUMAN), Caller(Actor.AGENT)
FORMS = Ref.parse("skill:user/forms")
RUN = "20260101-000000-abcd"
SPLITS = {
    split: [task(split, n, *(["needs:iso"] if n % 4 != 1 else [])) for n in range(size)]
    for split, size in {Split.TRAIN: 6, Split.VAL: 6, Split.TEST: 12}.items()
}


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """A library with the skill forms."""
    with Library.open(tmp_path / "home", create=True) as library:
        edit.update_resource(
            library, PERSON, FORMS, "new", files={"SKILL.md": skill("forms")}, create=True
        )
        yield library


def run(library: Library, *lines: str) -> None:
    """Makes a run whose only proposal adds these lines to the skill as it is."""
    base, pins = programs.load_program(library, PERSON, [FORMS])
    assert base == program()
    settings = RunSettings("environment:made-up", program=tuple(pins), iterations=1, test_repeats=1)
    brain = scripted([("Change it", lines)])
    with running(library.store.home / "evolve" / RUN, base, brain, SPLITS, settings) as made:
        asyncio.run(run_phases(made))


def text(library: Library) -> str:
    return library.store.file(library.store.head(FORMS), "SKILL.md").data.decode()


def outcomes(library: Library, *told: str) -> None:
    """Sessions in which the skill as it is now was used."""
    for number, outcome in enumerate(told):
        caller = Caller(Actor.AGENT, f"{library.store.sequence()}-{number}-{outcome}")
        use = load.load_skill(library, caller, FORMS)
        load.report_outcome(library, caller, outcome=outcome, use_id=use.use_id)


@pytest.mark.process
def test_adoption_is_one_operation_that_says_why_and_undo_brings_the_bytes_back(library):
    before = text(library)
    run(library, "rule: iso")

    adopted = adopt(library, PERSON, None)

    assert "rule: iso" in text(library)
    operation = library.store.operation(adopted.operation)
    assert operation.actor is Actor.HUMAN
    assert any("PROMOTE" in line and "[simulated]" in line for line in operation.intent.evidence)
    assert proposal_inbox.list_waiting(library) == []
    with pytest.raises(Exception, match="adopted already"):
        adopt(library, PERSON, RUN)
    status = get_status(library.store.home, RUN)
    assert status.adopted == adopted.operation
    assert f"adopted as operation {adopted.operation}" in status.line

    back = unadopt(library, PERSON, RUN)

    assert text(library) == before and back.conflicts == []
    status = get_status(library.store.home, RUN)
    assert status.adopted is None
    assert f"adoption taken back by operation {back.operation}" in status.line
    assert "rule: iso" in text(library) if adopt(library, PERSON, RUN) else False


def test_only_a_person_adopts_and_only_what_was_promoted(library):
    run(library, "Say hello.")

    with pytest.raises(Refused, match="Only a person"):
        adopt(library, AGENT, RUN)
    with pytest.raises(NotPromoted, match="NOT SUPPORTED"):
        adopt(library, PERSON, RUN)
    with pytest.raises(NoSuchRun):
        adopt(library, PERSON, "2025")


@pytest.mark.parametrize("change", ["edited", "removed"])
def test_nothing_is_adopted_over_what_changed_since_it_was_measured(library, change):
    run(library, "rule: iso")
    if change == "edited":
        edit.update_resource(
            library, PERSON, FORMS, "mine", files={"SKILL.md": skill("forms", "Mine.")}
        )
    else:
        edit.remove_resource(library, PERSON, FORMS, "not needed")
    sequence = library.store.sequence()

    with pytest.raises(ResourceDrifted, match="skill:forms"):
        adopt(library, PERSON, RUN)
    assert library.store.sequence() == sequence and proposal_inbox.list_waiting(library) == []


def test_an_executable_file_stays_executable(library):
    from evolvable_store.objects import EXECUTABLE, File

    files = {
        **library.store.files(library.store.head(FORMS)),
        "run.sh": File(b"#!/bin/sh\n", EXECUTABLE),
    }
    with library.store.transaction(Actor.HUMAN, "a script") as tx:
        tx.put(FORMS, files)
    base, pins = programs.load_program(library, PERSON, [FORMS])
    brain = scripted([("Change it", ["rule: iso"])])
    settings = RunSettings("environment:made-up", program=tuple(pins), iterations=1, test_repeats=1)
    script = brain._scripts["builder"]

    def build(question):
        for one in question.data["resources"]:
            one["files"] = [file for file in one["files"] if file["path"] == "SKILL.md"]
        return script(question)

    brain._scripts["builder"] = build
    with running(library.store.home / "evolve" / RUN, base, brain, SPLITS, settings) as made:
        asyncio.run(run_phases(made))

    adopt(library, PERSON, RUN)

    assert library.store.files(library.store.head(FORMS))["run.sh"].mode == EXECUTABLE


@pytest.mark.process
def test_what_does_worse_in_sessions_after_adoption_is_proposed_to_be_taken_back_once(library):
    run(library, "rule: iso")
    outcomes(library, *["succeeded"] * 8)
    adopt(library, PERSON, RUN)
    assert [one.verdict for one in monitor_adoptions(library, PERSON)] == ["open"]
    outcomes(library, *["failed"] * 8)

    [watched] = monitor_adoptions(library, PERSON)
    [again] = monitor_adoptions(library, PERSON)

    assert watched.verdict == "worse" and again.proposals == watched.proposals
    [waits] = proposal_inbox.list_waiting(library)
    assert waits.proposal_id in watched.proposals and "8 of 8" in waits.reason
    proposal_inbox.approve_together(library, PERSON, [waits.proposal_id], "yes")[0]
    assert "rule: iso" not in text(library)


@pytest.mark.process
def test_the_queue_of_reviews_looks_after_what_was_adopted(library, tmp_path):
    run(library, "rule: iso")
    outcomes(library, *["succeeded"] * 8)
    adopt(library, PERSON, RUN)
    outcomes(library, *["failed"] * 8)

    command = [
        sys.executable,
        "-m",
        "evolvable_server",
        "--home",
        str(library.store.home),
        "review",
        "--queue",
    ]
    subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, "HOME": str(tmp_path)}
    )

    [waits] = proposal_inbox.list_waiting(library)
    assert waits.ref == "skill:forms" and "8 of 8" in waits.reason


def test_what_harms_or_fails_deserves_work_and_the_runs_it_was_in_are_named(library):
    assert find_opportunities(library, PERSON).found == []
    outcomes(library, *["failed"] * 6)
    run(library, "Say hello.")

    found = find_opportunities(library, PERSON)

    first = found.found[0]
    assert (first.ref, first.reason, first.runs) == (
        "skill:forms",
        "failing",
        [f"{RUN}: NOT SUPPORTED"],
    )
    assert found.task_sets == []


def test_the_newest_run_and_any_unambiguous_beginning_name_a_run(library):
    run(library, "rule: iso")

    assert find_run(library.store.home, None).id == find_run(library.store.home, "2026").id == RUN
    assert dataclasses.asdict(adopt(library, PERSON, "20260101"))["run"] == RUN
