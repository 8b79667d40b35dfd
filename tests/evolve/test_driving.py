"""Runs over a library that are really driven: who judges, what is refused, and what is found to be
changed.
"""

import contextlib
import os
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from driving_place import (
    AGENT,
    COMMAND,
    GRADER,
    LETTERS,
    NO_SANDBOX,
    PERSON,
    RUBRIC,
    RUN,
    driving,
    judged,
    letters,
)
from earned import verified, without

from evolvable_evolve.evolution.ledger.run_directory import Ledger, LedgerError
from evolvable_evolve.evolution.report.render import write_report
from evolvable_evolve.evolution.run_context import RunTampered
from evolvable_evolve.evolution.run_control import read_status
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_tools.trust import proven_resources
from evolvable_tools.verbs import edit

pytestmark = pytest.mark.process


@pytest.fixture
def place(tmp_path):
    with driving(tmp_path) as made:
        yield made


# Who judges


def test_a_judge_is_calibrated_on_both_sides_before_the_pilot_and_what_it_takes_is_billed_apart(
    place,
):
    place.save(letters(judged()))
    begun = place.begin(judge=place.judge())

    state = place.drive()

    kinds = [record["type"] for record in place.records_of_all()]
    assert begun.judge == place.state.settings["judge"] and begun.judge
    assert state.phase == "decided" and set(state.calibration["scores"].values()) == {1.0}
    assert kinds.index("judge") < kinds.index("started")
    [calibration] = state.judges
    assert (calibration["agreement"], calibration["passed"], calibration["about"]) == (
        1.0,
        True,
        RUBRIC,
    )
    assert {side: calibration["calibration"][side] for side in ("good", "bad")} == {
        "good": 10,
        "bad": 10,
    }
    trials = [record["trial"] for record in place.records("trial") if not record["trial"]["cached"]]
    spent = state.spent["role:judge"]
    assert spent.calls == 20 + len(trials) and spent.cost == pytest.approx(0.001 * spent.calls)
    assert all(
        trial["usage"]["input_tokens"] == 10 and trial["judging"]["input_tokens"] == 100
        for trial in trials
    )
    told = [event.what for event in read_status(place.folder).events]
    assert sum("judge" in what for what in told) == 1 and not any(
        "no answer" in what for what in told
    )
    said = write_report(place.folder)
    assert "10 of 10 good and 10 of 10 bad" in Path(said.html).read_text(encoding="utf-8")


def test_a_run_with_a_graded_rubric_reports_the_means_of_each_dimension(place):
    scorer = judged()
    place.save(letters({**scorer, "args": {**scorer["args"], "rubric": "five-dimensions"}}))
    judge = place.root / "grader.py"
    judge.write_text(GRADER, encoding="utf-8")
    place.begin(judge=shlex.join([sys.executable, "-I", "-S", str(judge)]))

    state = place.drive()

    assert set(state.calibration["scores"].values()) == {0.75}
    report = write_report(place.folder)
    criteria = ["professionalism", "accuracy", "completeness", "practicality", "language quality"]
    assert "  ".join([*criteria, "mean"]) in report.text
    assert "5.00      4.00          4.00          3.00              4.00  4.00" in report.text
    assert "<h2>Dimensions</h2>" in Path(report.html).read_text(encoding="utf-8")


@pytest.mark.parametrize("word", ["''", "'never'"])
def test_a_judge_that_is_right_on_one_side_alone_ends_the_run_before_anything_is_measured(
    place, word
):
    place.save(letters(judged()))
    place.begin(judge=place.judge(word))

    state = place.drive()

    assert "did not pass its calibration" in state.stopped and "another judge" in state.stopped
    assert not place.records("started") and state.spent["role:judge"].calls == 20
    place.drive()
    assert place.state.spent["role:judge"].calls == 20, "what is known is not asked again"


def test_a_judge_cannot_be_a_hand_off_and_a_brain_that_is_none_judges_too(place):
    place.save(letters(judged()))

    place.means = replace(place.means, key="k")
    with pytest.raises(InvalidArgument, match="a judge cannot be a hand-off"):
        place.begin()
    with pytest.raises(InvalidArgument, match="a judge cannot be a hand-off"):
        place.begin(judge="handoff", brain="anthropic")
    assert place.begin(brain="anthropic:claude-x").judge == "anthropic:claude-x"


def test_where_nobody_has_to_judge_nobody_is_named(place):
    place.save(letters())

    assert place.begin(judge="anthropic").judge == "" and "judge" not in place.state.spent


def test_a_judge_of_the_same_maker_is_warned_about(place):
    place.save(letters(judged()))
    place.means = replace(place.means, key="k")

    [warning] = [
        one
        for one in place.begin("anthropic:claude-y", judge="anthropic:claude-x").warnings
        if "maker" in one
    ]

    assert "anthropic:claude-x" in warning and "the same maker" in warning


def test_a_budget_covers_the_judge_as_well(place):
    place.save(letters(judged()))
    place.begin(judge=place.judge(), calls=10)

    state = place.drive()

    assert "The budget is spent" in state.stopped and state.bill.calls == 10


# What may be run


def test_commands_that_only_an_agent_vouches_for_end_a_run_before_it_begins(place):
    scorer = {
        "type": "command",
        "args": {"argv": ["{python}", "-c", "raise SystemExit"], "good": ["a"], "bad": ["b"]},
    }
    place.save(letters(scorer), AGENT)

    with pytest.raises(Refused, match="no person approved it"):
        place.begin(caller=AGENT)
    assert not (place.library.store.home / "evolve").exists()


def test_sessions_that_show_how_well_it_did_do_not_vouch_for_its_commands(place):
    scorer = {"type": "command", "args": {"argv": ["{python}", "-c", "raise SystemExit"]}}
    place.save(letters(scorer), AGENT)
    for n in range(6):
        verified(place.library, str(LETTERS), f"other-{n}", "succeeded")
    without(place.library, "without", "failed")

    head = place.library.store.head(LETTERS)
    assert proven_resources(place.library, [head.id]) == {head.id}
    with pytest.raises(Refused, match="no person approved it"):
        place.begin()


def test_an_agent_s_version_is_no_better_for_being_named_after_a_person_wrote_another(place):
    scorer = {"type": "command", "args": {"argv": ["{python}", "-c", "raise SystemExit"]}}
    place.save(letters(scorer), AGENT)
    edit.update_resource(place.library, PERSON, LETTERS, "mine", files={"notes.md": "read"})

    with pytest.raises(Refused, match="no person approved it"):
        place.begin_at(1)


REGISTERED = {"type": "command", "args": {"name": "own"}}
SCORER = """\
import json, sys
given = json.load(sys.stdin)
print(json.dumps({"score": float(given["output"] == given["expected"])}))
"""


def test_a_run_records_the_registered_scorers_that_its_tasks_name_whoever_wrote_them(
    place, tmp_path
):
    own = tmp_path / "own.py"
    own.write_text(SCORER)
    words = [sys.executable, "-I", "-S", str(own)]
    place.name(executors=["{python}", "-I", "-S", "run.py"], scorers=words)
    place.save(letters(REGISTERED), AGENT)
    place.begin("own")

    state = place.drive()

    assert state.phase == "decided" and set(state.calibration["scores"].values()) == {1.0}
    [begun] = place.records("run")
    recorded = begun["settings"]["scorers"]
    assert set(recorded) == {"own"}
    assert recorded["own"]["command"] == words
    assert len(recorded["own"]["sha256"]) == 64


def test_a_run_whose_registered_scorer_is_another_now_measures_nothing(place, tmp_path):
    own = tmp_path / "own.py"
    own.write_text(SCORER)
    place.name(
        executors=["{python}", "-I", "-S", "run.py"], scorers=[sys.executable, "-I", "-S", str(own)]
    )
    place.save(letters(REGISTERED), AGENT)
    place.begin("own")
    own.write_text(SCORER.replace("==", "!="))

    with pytest.raises(Refused, match="another command now"):
        place.drive()
    assert not place.records("trial")


def test_a_scorer_that_nobody_registered_ends_a_run_before_it_begins(place):
    place.name(executors=["{python}", "-I", "-S", "run.py"])
    place.save(letters(REGISTERED))

    with pytest.raises(Refused, match="Task train-0 names the scorer 'own'"):
        place.begin("own")
    assert not (place.library.store.home / "evolve").exists()


# What is changed meanwhile


def test_a_program_that_changes_what_it_is_measured_with_is_found_out_and_nothing_is_counted(place):
    place.means = replace(place.means, sandbox=NO_SANDBOX)
    place.save(letters(), run_py=RUN + "open(sys.argv[0], 'a').write('#')")
    place.begin()

    state = place.drive()

    assert "run.py was changed" in state.stopped
    trials = [record["trial"] for record in place.records("trial")]
    assert "tampered" in {trial["outcome"] for trial in trials}
    assert all(trial["score"] is None for trial in trials if trial["outcome"] == "tampered")


def test_a_command_that_always_fails_stops_the_run_and_says_why_and_it_goes_on_when_that_is_mended(
    place, tmp_path, monkeypatch
):
    key = tmp_path / "key"
    # Which would not show the command the key.
    place.means = replace(place.means, sandbox=NO_SANDBOX)
    check = (
        f"if 'val' in given['task_id'] and not __import__('os').path.exists({str(key)!r}): "
        "sys.exit('key expired')"
    )
    place.save(letters(), run_py=RUN.replace("print", f"{check}\nprint", 1))
    place.begin(optimizer="evoskill")  # which measures the base on val alone
    monkeypatch.setattr("evolvable_evolve.evolution.driver.BACKOFF", (0.0, 0.0))

    state = place.drive()

    assert "8 attempts in a row failed" in state.stopped and "key expired" in state.stopped
    assert (
        8
        <= sum(record["trial"]["detail"].startswith("crashed") for record in place.records("trial"))
        <= 30
    )

    key.touch()
    state = place.drive()

    assert state.phase == "decided" and state.calibration["missing"] == []


def test_a_command_that_was_changed_between_is_another_executor_and_the_run_says_so(
    place, tmp_path
):
    tool = tmp_path / "tool.py"
    tool.write_text(RUN)
    place.save(letters())
    place.begin(f"{{python}} -I -S {tool}")
    tool.write_text(RUN + "#")

    with pytest.raises(RunTampered, match="The executor is now"):
        place.drive()

    assert "cannot stand beside" in place.state.stopped and not place.records("started")


def test_a_full_disk_ends_the_driving_and_what_was_written_before_is_continued(place, monkeypatch):
    place.save(letters())
    place.begin()
    whole, written = Ledger._write, []

    def full(ledger, data):
        written.append(data)
        if len(written) > 6:
            raise LedgerError("No space is left.", "Make room.")
        whole(ledger, data)

    monkeypatch.setattr(Ledger, "_write", full)
    with pytest.raises(LedgerError, match="No space"):
        place.drive()
    before = len(place.records_of_all())
    monkeypatch.setattr(Ledger, "_write", whole)

    state = place.drive()

    assert before >= 6 and state.phase == "decided" and state.calibration["missing"] == []


# When it is killed


HANGS = """\
import os, sys, time
with open(PIDS, "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(600)
"""


@pytest.mark.skipif(os.name == "nt", reason="processes are killed by signals here")
@pytest.mark.parametrize(
    "who", ["executor", pytest.param("judge", marks=pytest.mark.nightly), "brain"]
)
def test_a_killed_driver_leaves_no_command_behind_that_would_go_on_spending(place, tmp_path, who):
    pids, hangs = tmp_path / "pids", tmp_path / "hangs.py"
    hangs.write_text(HANGS.replace("PIDS", repr(str(pids))))
    does = {"executor": hangs.read_text(), "judge": RUN, "brain": RUN.replace("dear", "rude")}
    place.save(letters(judged() if who == "judge" else "exact"), run_py=does[who])
    thinks = [sys.executable, str(hangs)]
    account = place.name(executors=COMMAND.split(), judges=thinks, proposers=thinks)
    place.begin("own", **({} if who == "executor" else {who: "own"}), iterations=1)
    home = str(place.library.store.home)
    command = [sys.executable, "-m", "evolvable_server", "evolve", "drive", "--home", home]
    driver = subprocess.Popen(command, env=account)

    try:
        until(lambda: commands_of(place) or (pids.exists() and pids.read_text().count("\n") >= 1))
    finally:
        driver.kill()
        driver.wait()

    until(lambda: not commands_of(place))
    until(
        lambda: (
            not pids.exists() or not any(is_running(int(pid)) for pid in pids.read_text().split())
        )
    )
    until(
        lambda: not place.folder.workspaces.exists() or not any(place.folder.workspaces.iterdir())
    )


def commands_of(place):
    """What runs for this place besides its driver and that one's workers: commands, inside of a
    sandbox or not.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if str(place.root) in " ".join(words) and "evolvable_server" not in words:
                found.append(process.pid)
    return found


def until(holds):
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")
