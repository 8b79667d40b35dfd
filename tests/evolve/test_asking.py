"""The verbs around a run: what is said of it, what is taken, and what is refused."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from evolve_runs import plan, program, running, scripted, task

from evolvable_evolve.evolution import run_control
from evolvable_evolve.evolution.ledger.run_directory import RunDirectory, find_run
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.proposers.proposer_model import (
    HandOffModel,
    ModelQuestion,
    ModelRole,
    NeedsAnswer,
)
from evolvable_evolve.evolution.run_config import RunSettings, parse_executor_spec
from evolvable_evolve.evolution.task import Split
from evolvable_store.errors import InvalidArgument
from evolvable_tools.llm.language_model import WrongAnswer

RUN = "20260101-000000-abcd"
SPLITS = {
    split: [task(split, n, *(["needs:iso"] if n % 4 != 1 else [])) for n in range(size)]
    for split, size in {Split.TRAIN: 6, Split.VAL: 4, Split.TEST: 8}.items()
}


def drives(home: Path) -> RunDirectory:
    """Drives the run as far as it comes without an answer."""
    folder = home / "evolve" / RUN
    brain, settings = (
        HandOffModel(RunDirectory(folder).answer),
        RunSettings("environment:made-up", iterations=1),
    )
    with (
        running(folder, program(), brain, SPLITS, settings) as run,
        contextlib.suppress(NeedsAnswer),
    ):
        asyncio.run(run_phases(run))
    return RunDirectory(folder)


def question_of(packet: dict) -> ModelQuestion:
    return ModelQuestion(
        ModelRole(packet["role"]), packet["instructions"], packet["data"], packet["answer_schema"]
    )


def test_a_question_waits_is_answered_from_elsewhere_and_is_asked_only_once(tmp_path):
    drives(tmp_path)
    status = run_control.get_status(tmp_path)
    [packet] = run_control.list_pending(tmp_path).packets

    assert (status.state, status.pending) == ("waiting", [packet["question_id"]])
    assert packet["question_id"] in status.line and "[simulated]" in status.line
    assert " planned trials, " in status.line and " min, " in status.line
    drives(tmp_path)
    assert [one["question_id"] for one in run_control.list_pending(tmp_path).packets] == [
        packet["question_id"]
    ]
    with pytest.raises(WrongAnswer, match="another schema"):
        run_control.submit_answer(tmp_path, None, packet["question_id"], {"intents": []})
    with pytest.raises(InvalidArgument, match="does not wait"):
        run_control.submit_answer(tmp_path, None, "../../escape", {})
    run_control.submit_answer(
        tmp_path, RUN[:8], packet["question_id"], plan(question_of(packet), "Dates are ISO")
    )
    assert run_control.list_pending(tmp_path).packets == []
    drives(tmp_path)
    [built] = run_control.list_pending(tmp_path).packets
    assert built["role"] == "builder" and "evidence" not in built["data"]
    with pytest.raises(InvalidArgument, match="does not wait"):
        run_control.submit_answer(
            tmp_path, None, packet["question_id"], plan(question_of(packet), "Again")
        )


def test_events_are_told_since_a_number_and_a_finished_run_is_not_continued(tmp_path):
    folder = tmp_path / "evolve" / RUN
    settings = RunSettings("environment:made-up", iterations=1, test_repeats=1)
    with running(
        folder, program(), scripted([("Dates are ISO", ["rule: iso"])]), SPLITS, settings
    ) as run:
        asyncio.run(run_phases(run))

    whole = run_control.get_status(tmp_path)
    later = run_control.get_status(tmp_path, since=whole.events[3].number)

    assert whole.state == "finished" and whole.verdict == "PROMOTE"
    assert later.events == whole.events[4:]
    assert run_control.get_status(tmp_path, since=whole.next).events == []
    assert whole.spent["trials"] == sum(spent["trials"] for spent in whole.spent_on.values())
    assert set(whole.spent_on) == {
        *("pilot", "calibrate", "train", "val", "confirm", "test"),
        *("role:proposer", "role:builder"),
    }
    with pytest.raises(InvalidArgument, match="finished"):
        run_control.resume_run(tmp_path)
    assert [one.run for one in run_control.list_statuses(tmp_path)] == [RUN]


def test_a_stopped_run_takes_an_answer_and_goes_on_only_when_continued_also_with_another_budget(
    tmp_path,
):
    drives(tmp_path)

    assert run_control.stop_run(tmp_path).state == "stopped"
    [packet] = run_control.list_pending(tmp_path).packets
    taken = run_control.submit_answer(
        tmp_path, None, packet["question_id"], plan(question_of(packet), "Dates are ISO")
    )
    assert not taken.goes_on and find_run(tmp_path, None).is_stop_requested
    run_control.resume_run(tmp_path, None, {"cost": 2.5})

    folder = find_run(tmp_path, None)
    assert not folder.is_stop_requested
    from evolvable_evolve.evolution.ledger.run_reducer import load_run_state

    assert load_run_state(folder).settings["limit"]["cost"] == 2.5


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("claude:m", "claude"),
        ("codex:m", "codex"),
        ("simulated", "simulated"),
        ("python x.py", "command"),
    ],
)
def test_an_executor_is_named_by_a_text(text, kind):
    assert parse_executor_spec(text)["kind"] == kind


def test_a_model_has_to_be_named_and_a_setting_has_to_be_one():
    with pytest.raises(InvalidArgument, match="needs a model"):
        parse_executor_spec("claude")
    for bad in (
        {"mode": "everything"},
        {"parent": "oldest"},
        {"edits": (5, 1)},
        {"iterations": -1},
    ):
        with pytest.raises(InvalidArgument):
            RunSettings("environment:x", **bad)
    assert RunSettings.from_json(RunSettings("environment:x", seed=7).to_json()) == RunSettings(
        "environment:x", seed=7
    )


def test_one_run_that_is_broken_hides_no_other(tmp_path):
    drives(tmp_path)
    newer = tmp_path / "evolve/20270101-000000-ffff"
    newer.mkdir()
    (newer / "ledger.jsonl").write_bytes(b"nonsense\n")
    (tmp_path / "evolve/20280101-000000-eeee").mkdir()
    (tmp_path / "evolve/notes.txt").write_text("mine")

    assert [one.run for one in run_control.list_statuses(tmp_path)] == [RUN]
    assert run_control.get_status(tmp_path).run == RUN
