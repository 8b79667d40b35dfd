"""Runs of agents as a person and an agent start them: real workers in the sandbox, real kills, and
the MCP tools.
"""

import json
import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from ags_commands import AgsMachine
from command_line import CommandLine
from mcp import Client

from evolvable_evolve.ags.plan import parse_plan
from evolvable_server.config import Config, read_config
from evolvable_server.grants import Permission
from evolvable_server.serving import Serving
from evolvable_store.resource import Ref
from evolvable_teams.http.http_access import required_permissions
from evolvable_tools.library import Library

MANUAL = Path(__file__).parents[2] / "docs/ags.md"
GOLDEN = Path(__file__).parents[1] / "data/tools_ags.json"

RUN = (
    "--executor",
    "worker",
    "--planner",
    "plan",
    "--agent",
    "clerk",
    "--free",
    "--max-calls",
    "50",
)


@pytest.mark.process
def test_the_example_of_the_manual_does_its_task_and_each_item_sees_what_it_needs(
    tmp_path, monkeypatch
):
    machine = CommandLine(tmp_path)
    monkeypatch.chdir(machine.project)
    text = MANUAL.read_text(encoding="utf-8")
    for name, block in re.findall(r"`([a-z.]+)`:\n\n```\w+\n(.*?)```", text, re.DOTALL):
        Path(name).write_text(block, encoding="utf-8")
    *before, run, files = re.findall(r"^\$ evolvable (.*)$", text, re.MULTILINE)
    for line in before:
        machine(*shlex.split(line.replace("python3", sys.executable)))

    status = machine(*shlex.split(run), "--json").json

    assert (status["state"], status["ended"]) == ("finished", "done"), status
    assert status["result"] in text
    assert [one["agent"] for one in status["items"]] == ["agent:clerk@1"] * 3
    assert [one.get("passed") for one in status["items"]] == [True, True, None], status["items"]
    [rate] = machine("stats", "--json").json["agents"]
    assert (rate["agent"], rate["share"]["successes"], rate["share"]["n"]) == ("agent:clerk", 2, 2)
    assert (status["spent"]["calls"], status["spent"]["tokens"]) == (5, 330)
    with Library.open(machine.home) as library:
        plan = library.store.file(
            library.store.head(Ref.parse(status["plan"])), "plan.md"
        ).data.decode()
    assert parse_plan(plan).result == status["result"]
    machine(*shlex.split(files.replace("RUN", status["run"])))
    assert Path("letters/list/list.txt").read_text("utf-8").split() == [
        "inputs/ada/ada.txt",
        "inputs/grace/grace.txt",
    ]
    shown = machine("ags", "status").out
    assert "ended: done" in shown and "ada is written" in shown


@pytest.mark.nightly
@pytest.mark.process
def test_a_run_whose_process_is_killed_goes_on_to_the_same_plan_and_bill(tmp_path):
    machine = AgsMachine(tmp_path, seconds=1.0)
    hold = tmp_path / "hold"
    hold.touch()
    for message, words in (
        ("dispatch/planner.1.1", ("run", "Write the papers.", *RUN)),
        ("dispatch/a.1", ("resume",)),
    ):
        with machine.start("ags", *words, "--wait") as driver:
            machine.until(message)
            driver.kill()
        assert machine("ags", "status", "--json").json["state"] == "interrupted", (
            "killed in the middle"
        )
        hold.unlink(missing_ok=True)

    status = machine("ags", "resume", "--wait", "--json").json

    assert (status["ended"], [one["state"] for one in status["items"]]) == ("done", ["done"] * 4)
    assert status["spent"] == {"cost": 0.008, "tokens": 880, "calls": 6, "unpriced": 0}
    assert status["interrupted"]["calls"] == 1, "the question that was under way may have been paid"


@pytest.mark.process
def test_an_agents_shell_starts_nothing_that_no_budget_covers_and_resumes_nothing(tmp_path):
    machine = AgsMachine(tmp_path)
    machine.person = False

    refused = machine("ags", "run", "Write.", *RUN, "--json", code=None).json

    assert "no budget is set" in refused["error"]
    assert "is refused" in machine("ags", "resume", "--json", code=None).json["error"]
    assert (
        "is refused"
        in machine("ags", "files", "x", tmp_path / "out", "--json", code=None).json["error"]
    )
    named = machine("ags", "run", "Write.", "--executor", "touch owned", "--json", code=None).json
    assert "commands are named by a person" in named["error"]


async def call(client: Client, tool: str, **arguments: object) -> dict:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    return result.structured_content


@pytest.mark.process
@pytest.mark.anyio
async def test_an_agent_plans_over_mcp_within_the_budget_that_the_person_set(tmp_path, monkeypatch):
    budget = '[budgets.ags]\nexecutors = ["worker"]\ncalls = 20\n'
    machine = AgsMachine(tmp_path, more=budget)
    for name, value in machine.environment.items():
        monkeypatch.setenv(name, value)
    serving = Serving(replace(read_config(), toolsets=("ags",)))
    try:
        with anyio.fail_after(120):
            async with Client(serving.server) as client:
                for executor, why in (
                    ("touch owned", "named by a person"),
                    ("claude:opus", "not allowed to callers"),
                ):
                    wrong = await client.call_tool(
                        "ags_start", {"task": "Write.", "executor": executor}
                    )
                    assert wrong.is_error and why in wrong.content[0].text

                begun = await call(
                    client, "ags_start", task="Write the papers.", agents=["agent:clerk"]
                )
                assert begun["limit"] == {"calls": 20} and begun["planner"] == "hand-off"
                while (status := await call(client, "ags_status"))["state"] != "finished":
                    if "request" in status:
                        assert status["request"]["data"]["task"] == "Write the papers."
                        await call(
                            client,
                            "ags_answer",
                            plan={"note": "enough", "result": "nothing to write"},
                        )
                    await anyio.sleep(0.3)

                assert status["ended"] == "done" and "never an instruction" in status["notice"]
                assert status["result"].startswith("["), "what a planner wrote stands between marks"
                wrong = await client.call_tool("ags_answer", {"text": "more"})
                assert wrong.is_error and "waits for nothing" in wrong.content[0].text
    finally:
        serving.close()


@pytest.mark.anyio
async def test_the_group_is_off_by_default_and_its_list_is_the_golden_file(tmp_path):
    """To accept a change, run the suite with EVOLVABLE_UPDATE_GOLDEN=1 and commit the file."""

    async def listed(*toolsets: str) -> list:
        serving = Serving(Config(tmp_path / "home", tmp_path, toolsets=toolsets))
        try:
            return list(await serving.server.list_tools())
        finally:
            serving.close()

    plain, tools = await listed(), await listed("ags")
    more = [
        tool.model_dump(mode="json", by_alias=True, exclude_none=True)
        for tool in tools[len(plain) :]
    ]
    if os.environ.get("EVOLVABLE_UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(more, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    assert [tool.name for tool in tools[: len(plain)]] == [tool.name for tool in plain]
    assert more == json.loads(GOLDEN.read_text(encoding="utf-8"))
    hints = {one["name"]: one["annotations"]["openWorldHint"] for one in more}
    assert hints == {"ags_start": True, "ags_status": False, "ags_answer": False, "ags_stop": False}


def test_over_http_a_token_that_may_only_read_starts_and_answers_nothing():
    needed = {
        name: required_permissions(f"ags_{name}", {})
        for name in ("start", "status", "answer", "stop")
    }

    assert needed == {"start": {Permission.WRITE}, "status": {Permission.READ}} | dict.fromkeys(
        ("answer", "stop"), {Permission.WRITE}
    )


IMPROVER = """\
import json, sys
starts = '{"resources":', '{"intents":'
[line] = [line for line in sys.stdin.read().splitlines() if line.startswith(starts)]
data = json.loads(line)
if "intents" in data:
    head, _, _ = data["resources"][0]["files"][0]["text"].rpartition("---")
    file = {"path": "AGENT.md", "text": head + "---\\n\\nYou are the clerk. Sign each letter.\\n"}
    said = {"edits": [{"op": "edit", "ref": "agent:clerk", "files": [file]}]}
else:
    failed = [one["task"] for one in data["evidence"] if one["result"] == "failed"]
    cause = {"cause": "missing precondition", "only_cause": True,
             "repair": "add-guard", "quotes": ["signature"]}
    intent = {"op": "edit", "ref": "agent:clerk", "tasks": failed,
              "modification": "say that letters are signed"}
    said = {"diagnoses": [{"task": one, **cause} for one in failed], "approaches": [],
            "intents": [intent], "summary": "letters have no signature",
            "justification": "the check says so"}
print(json.dumps({"type": "result", "is_error": False, "result": json.dumps(said),
                  "total_cost_usd": 0.001, "usage": {"input_tokens": 50, "output_tokens": 10}}))
"""
SIGNED = """\
import json, sys
score = float("Sign each letter" in json.load(sys.stdin)["output"])
print(json.dumps({"score": score, "feedback_public": "The signature is missing."}))
"""
TWICE = """\
import json, sys
[line] = [line for line in sys.stdin.read().splitlines() if line.startswith('{"task":')]
data = json.loads(line)
item = {"agent": "agent:clerk", "needs": [], "check": "signed", "subtask": "Write to Ada."}
if data["round"] <= 2:
    answer = {"note": "a letter", "items": [{"id": "letter" + str(data["round"]), **item}]}
else:
    answer = {"note": "written", "result": data["messages"][-1]["summary"]}
print(json.dumps({"type": "result", "is_error": False, "result": json.dumps(answer)}))
"""


@pytest.mark.process
def test_a_run_that_may_improve_its_program_does_the_next_item_with_the_change_and_proposes_it(
    tmp_path, monkeypatch
):
    machine = AgsMachine(tmp_path)
    monkeypatch.chdir(machine.project)
    scripts = {
        "better": ("proposer", IMPROVER),
        "twice": ("proposer", TWICE),
        "signed": ("scorer", SIGNED),
    }
    for name, (role, text) in scripts.items():
        Path(f"{name}.py").write_text(text, encoding="utf-8")
        machine("role", role, "add", name, "--", sys.executable, "-I", "-S", f"{name}.py")
    run = (
        "ags",
        "run",
        "Write.",
        "--executor",
        "worker",
        "--planner",
        "twice",
        "--free",
        "--max-calls",
        "60",
    )
    assert "cannot improve its program" in machine(*run, "--improve", "better", code=1).err

    status = machine(*run, "--check", "signed", "--improve", "better", "--wait", "--json").json

    assert status["ended"] == "done", (status["why"], status["events"])
    assert [one["passed"] for one in status["items"]] == [False, True], status["items"]
    [found] = status["improvements"]
    assert (found["state"], found["changed"], found["before"], found["after"]) == (
        "kept",
        ["agent:clerk"],
        0,
        1,
    )
    told = machine("ags", "status").out
    assert "agent:clerk changed" in told and "letters have no signature" in told
    with Library.open(machine.home) as library:
        head = library.store.head(Ref.parse("agent:clerk"))
        [proposal] = library.store.backend.proposals.about(head.ref)
        assert head.version == 1
        assert "1 of 1 items pass" in proposal.reason
        assert "0 without" in proposal.reason
    machine("inbox", "approve", proposal.id)
    with Library.open(machine.home) as library:
        head = library.store.head(Ref.parse("agent:clerk"))
        assert b"Sign each letter." in library.store.file(head, "AGENT.md").data


@pytest.mark.process
def test_an_agent_that_is_run_does_its_task_and_without_one_says_that_nothing_ran(tmp_path):
    machine = AgsMachine(tmp_path)
    asked = json.dumps({"task": "Write to Ada.", "executor": "worker"})

    ran = machine("rspl", "run", "agent:clerk", "--input", asked, "--json").json

    assert (ran["ref"], ran["version"], ran["value"]["state"]) == ("agent:clerk", 1, "done")
    assert ran["text"] == "task saw ; You are the clerk."
    assert [one["path"] for one in ran["value"]["files"]] == ["task.txt"]
    shown = machine("rspl", "run", "agent:clerk")
    assert "no task is given" in shown.err and "You are the clerk." in shown.out
    refused = machine("rspl", "run", "agent:clerk", "--input", '{"task": "Write."}', code=1)
    assert "no executor is named" in refused.err


@pytest.mark.process
def test_an_agents_shell_runs_an_agent_within_what_the_person_allows_to_callers(tmp_path):
    machine = AgsMachine(tmp_path, more='[budgets.ags]\nexecutors = ["worker"]\ncalls = 20\n')
    machine.person = False

    ran = machine("rspl", "run", "agent:clerk", "--input", '{"task": "Write."}', "--json").json
    other = machine(
        "rspl", "run", "agent:clerk", "--input", '{"task": "W.", "executor": "claude:opus"}', code=1
    )

    assert ran["value"]["state"] == "done" and "an agent wrote it" in ran["text"]
    assert "not allowed to callers" in other.err
