"""A model behind the Anthropic API as an executor: the real SDK against a scripted API on this
machine.
"""

import asyncio
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from evolving import a_program, a_skill, a_task
from model_api import HANGS, ModelApi, Reply, fails, says

from evolvable_evolve.evolution.candidates.programs import Program, make_part
from evolvable_evolve.evolution.executors.installation import run_canary
from evolvable_evolve.evolution.executors.model_api import ApiSettings, ModelExecutor
from evolvable_evolve.evolution.task import ModelUsage, Price, Rollout, TrialOutcome
from evolvable_store.resource import Kind

KEY = "sk-ant-secret-of-the-test"
EMPTY = Program()


def uses(tool: str, **given: Any) -> Reply:
    block = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": given}
    message = json.loads(says("").body) | {"content": [block], "stop_reason": "tool_use"}
    return Reply(body=json.dumps(message).encode())


def executor(api: ModelApi, key: str = KEY, **more: Any) -> ModelExecutor:
    return ModelExecutor(ApiSettings(key, "some-model", api.url, **{"scripted": True} | more))


def ran(
    api: ModelApi, work: Path, program: Program = EMPTY, seconds: float = 20.0, **more: Any
) -> Rollout:
    task = a_task(prompt="What is in notes.txt?", timeout_s=seconds, expected="EXPECTED-ANSWER")
    return asyncio.run(executor(api, **more).run(task, program, 0, work))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "trial" / "work"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("forty-two", encoding="utf-8")
    return folder


@pytest.mark.process
def test_the_model_reads_a_skill_and_a_file_and_answers(work: Path) -> None:
    program = a_program(
        a_skill("notes", "Read the file.", description="Reads notes."),
        make_part(
            Kind.PROMPT,
            "tone",
            {"PROMPT.md": b"---\nname: tone\ndescription: x\n---\n\nBe brief.\n"},
        ),
    )
    with ModelApi(
        uses("read_skill", name="notes", path="SKILL.md"),
        uses("read_file", path="notes.txt"),
        says("42"),
    ) as api:
        rollout = ran(api, work, program, price=Price(1.0, 10.0))

    assert (rollout.output, rollout.outcome, rollout.read) == ("42", None, ("skill:notes",))
    assert rollout.usage == ModelUsage(30, 15, 3, pytest.approx(180e-6))
    system = api.asked[0].body["system"][0]["text"]
    assert "- notes: Reads notes." in system and "Be brief." in system
    results = [message["content"][0]["content"] for message in api.asked[2].body["messages"][2::2]]
    assert "Read the file." in results[0] and results[1] == "forty-two"
    assert "EXPECTED-ANSWER" not in json.dumps([asked.body for asked in api.asked])


def test_without_skills_there_is_nothing_of_skills_in_the_request(work: Path) -> None:
    with ModelApi(says("42")) as api:
        ran(api, work)

    assert "skill" not in json.dumps(api.asked[0].body).lower()


def test_the_canary_passes_by_what_the_model_was_sent(tmp_path: Path) -> None:
    word = "kestrel-0123456789ab"
    with ModelApi(says("NONE"), uses("read_skill", name="canary-word"), says(word)) as api:
        found = asyncio.run(run_canary(executor(api), tmp_path, word))

    assert found.passed, found.why
    assert word not in json.dumps(api.asked[0].body)
    assert word in json.dumps(api.asked[2].body["messages"][-1])


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link/secret", "", "."])
def test_no_tool_leaves_the_workspace(work: Path, path: str) -> None:
    (work.parent / "secret").write_text("hidden", encoding="utf-8")
    os.symlink(work.parent, work / "link")
    with ModelApi(
        uses("read_file", path=path), uses("write_file", path=path, text="x"), says("no")
    ) as api:
        ran(api, work)

    answers = [asked.body["messages"][-1]["content"][0] for asked in api.asked[1:]]
    assert [answer["is_error"] for answer in answers] == [True, True]
    assert (work.parent / "secret").read_text(encoding="utf-8") == "hidden"


def test_the_model_runs_no_commands(work: Path) -> None:
    with ModelApi(uses("run_command", command="cat notes.txt"), says("a")) as api:
        ran(api, work)
        assert "There is no tool" in api.asked[1].body["messages"][-1]["content"][0]["content"]
        assert "run_command" not in json.dumps(api.asked[0].body["tools"])


@pytest.mark.parametrize(
    ("reply", "wait"),
    [
        (fails(429, "slow down", retry_after="7"), 7.0),
        (fails(529, f"overloaded, {KEY}"), 0.0),
        (fails(500, "oops"), None),
        (fails(401, "who?"), None),
        (Reply(body=b"<html>"), None),
        (Reply(body=b'{"content": 3}'), None),
        (Reply(body=b'{"type": "mess'), None),
    ],
)
def test_trouble_of_the_api_is_no_verdict_and_is_not_asked_again_here(
    work: Path, reply: Reply, wait: float | None
) -> None:
    with ModelApi(reply) as api:
        rollout = ran(api, work)

    assert (rollout.outcome, rollout.retry_after) == (TrialOutcome.INFRA_ERROR, wait)
    assert rollout.detail and KEY not in rollout.detail
    assert len(api.asked) == 1


@pytest.mark.process
def test_time_that_runs_out_counts_only_when_the_model_had_begun(work: Path) -> None:
    with ModelApi(HANGS) as api:
        assert ran(api, work, seconds=0.5).outcome is TrialOutcome.INFRA_ERROR
    with ModelApi(uses("list_files"), HANGS) as api:
        assert ran(api, work, seconds=3.0).outcome is TrialOutcome.AGENT_TIMEOUT


def test_a_model_that_goes_on_for_ever_has_failed(work: Path) -> None:
    with ModelApi(*[uses("list_files")] * 3) as api:
        rollout = ran(api, work, max_turns=3)

    assert rollout.outcome is TrialOutcome.AGENT_TIMEOUT and rollout.usage.calls == 3


def test_a_refusal_is_scored_like_any_other_answer(work: Path) -> None:
    with ModelApi(says("", stop="refusal")) as api:
        rollout = ran(api, work)

    assert (rollout.outcome, rollout.output) == (None, "")


@pytest.mark.parametrize("key", ["", "two words", "ключ"])
def test_without_a_key_nobody_is_asked(work: Path, key: str) -> None:
    with ModelApi() as api:
        rollout = ran(api, work, key=key)

    assert rollout.outcome is TrialOutcome.INFRA_ERROR and not api.asked


def test_a_program_that_needs_commands_is_refused_without_them(work: Path) -> None:
    with ModelApi() as api:
        rollout = ran(api, work, a_program(a_skill("calc", run_py="print(1)")))

    assert rollout.outcome is TrialOutcome.REFUSED and "needs Bash" in rollout.detail


def test_it_travels_to_other_processes_and_hides_its_key() -> None:
    made = ModelExecutor(ApiSettings(KEY, "some-model"))

    assert pickle.loads(pickle.dumps(made)).fingerprint == made.fingerprint
    assert (
        KEY not in made.fingerprint + repr(made._settings) and made.label == "real model some-model"
    )
