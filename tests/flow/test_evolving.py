"""The tools around runs of evolution: a group of its own, off unless it is asked for."""

import json
import os
import sys
from pathlib import Path

import anyio
import mcp_types as types
import pytest
from driving_place import DrivingPlace, judged, letters
from evolution_place import EvolutionPlace, answer_to
from http_place import http_server, made_token
from mcp import Client, StdioServerParameters
from mcp_place import Place

from evolvable_server.config import Config, read_config, toolsets_of
from evolvable_server.grants import Permission
from evolvable_server.serving import Serving
from evolvable_store.errors import InvalidArgument
from evolvable_tools.library import Library

pytestmark = pytest.mark.anyio

GOLDEN = Path(__file__).parents[1] / "data/tools_evolve.json"


async def listed(config: Config) -> list[types.Tool]:
    serving = Serving(config)
    try:
        return list(await serving.server.list_tools())
    finally:
        serving.close()


async def test_the_group_is_off_by_default_and_its_list_is_the_golden_file(tmp_path):
    """To accept a change, run the suite with EVOLVABLE_UPDATE_GOLDEN=1 and commit the file."""
    plain = await listed(Config(tmp_path / "home", tmp_path))
    tools = await listed(Config(tmp_path / "home", tmp_path, toolsets=("evolve",)))
    more = [
        tool.model_dump(mode="json", by_alias=True, exclude_none=True)
        for tool in tools[len(plain) :]
    ]
    if os.environ.get("EVOLVABLE_UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(more, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    assert [tool.name for tool in tools[: len(plain)]] == [tool.name for tool in plain]
    assert more == json.loads(GOLDEN.read_text(encoding="utf-8"))
    hints = {
        tool.name: (tool.annotations.destructive_hint, tool.annotations.open_world_hint)
        for tool in tools
    }
    assert {name: hint for name, hint in hints.items() if any(hint)} == {
        "remove_resource": (True, False),
        "undo": (True, False),
        "evolve_start": (True, True),
        "evolve_continue": (True, True),
        "evolve_measure": (True, True),
        "try_skill": (True, True),
        "evolve_plan": (True, True),
        "evolve_adopt": (True, False),
    }
    assert all(
        len(tool.description) < 1000 and tool.input_schema["additionalProperties"] is False
        for tool in tools
    )


def test_groups_are_named_in_the_environment_and_an_unknown_one_is_refused(tmp_path):
    assert read_config({"EVOLVABLE_TOOLSETS": " Evolve,evolve"}, tmp_path).toolsets == ("evolve",)
    assert toolsets_of("off") == toolsets_of("") == toolsets_of(None) == ()
    with pytest.raises(InvalidArgument, match="no group of tools"):
        toolsets_of("everything")


@pytest.mark.process
async def test_nothing_of_evolution_is_imported_when_a_server_starts(tmp_path):
    script = (
        "import sys, evolvable_server.serving; print([m for m in sys.modules if 'evolve' in "
        "m.split('.')[-2:]])"
    )
    import subprocess
    import sys

    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout

    assert out.strip() == "[]"


async def call(client: Client, tool: str, **arguments: object) -> dict:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    return result.structured_content


@pytest.mark.process
async def test_an_agent_runs_an_evolution_as_its_own_brain_and_a_person_adopts(tmp_path):
    """Start, status, pending, submit, adopt: every call returns at once, and a process of its own
    does the work.
    """
    place = await anyio.to_thread.run_sync(lambda: EvolutionPlace(tmp_path))
    asked: list[str] = []

    async def person(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        adoptions = [one for one in asked if one.startswith("Adopt")]
        return types.ElicitResult(
            action="decline" if len(adoptions) == 1 and asked[-1] in adoptions else "accept"
        )

    command = StdioServerParameters(
        command=os.sys.executable,
        args=["-m", "evolvable_server", "serve", "--toolsets", "evolve"],
        env=place.environment,
        cwd=place.project,
    )
    with anyio.fail_after(240):
        async with Client(command, mode="auto", elicitation_callback=person) as client:
            settings = {"concurrency": 2, "test_repeats": 1, "executor_free": True}
            wrong = await client.call_tool(
                "evolve_start",
                {
                    "task_set": "environment:order-emails",
                    "program": ["skill:order-fields"],
                    "executor": "orders",
                    "settings": settings,
                },
            )
            assert wrong.is_error and "executor_free" in wrong.content[0].text
            del settings["executor_free"]
            begun = await call(
                client,
                "evolve_start",
                task_set="environment:order-emails",
                program=["order-fields"],
                executor="orders",
                iterations=1,
                settings=settings,
            )
            while (status := await call(client, "evolve_status", run=begun["run"]))[
                "state"
            ] != "finished":
                for packet in (await call(client, "evolve_pending"))["packets"]:
                    answer = answer_to(packet["data"], ["Read invoices too"])
                    await call(
                        client, "evolve_submit", question_id=packet["question_id"], answer=answer
                    )
                await anyio.sleep(0.2)

            assert status["verdict"] == "PROMOTE", place.logs()
            assert status["label"] == begun["label"] == "command run.py"
            declined = await client.call_tool("evolve_adopt", {})
            assert declined.is_error and "only a person adopts" in declined.content[0].text
            adopted = await call(client, "evolve_adopt", reason="it reads invoices")
            assert adopted["changes"] == [{"ref": "skill:order-fields", "before": 1, "after": 2}]
            assert "{python} -I -S run.py" in asked[0].replace(", ", " ") and "no limit" in asked[0]
            adoption = next(one for one in asked if one.startswith("Adopt"))
            assert "PROMOTE" in adoption and "+- order: `PO-" in adoption
            await plan_and_measure(client, asked)
            found = await call(client, "evolve_opportunities")
            assert found["task_sets"] == ["environment:order-emails"]


async def plan_and_measure(client: Client, asked: list[str]) -> None:
    """A plan asks nobody before an executor is named; then it, and a measurement, say what runs and
    may be spent.
    """
    orders, before = {"task_set": "environment:order-emails"}, len(asked)
    plan = await call(client, "evolve_plan", **orders)
    assert plan["claim"] == "tasks like these" and plan["power"] and len(asked) == before
    unknown = await client.call_tool(
        "evolve_plan", {**orders, "executor": "touch owned", "program": ["order-fields"]}
    )
    assert unknown.is_error and len(asked) == before, (
        "a command that nobody named is no question either"
    )

    begun = await call(
        client, "evolve_plan", **orders, executor="orders", program=["order-fields"], max_calls=500
    )
    assert "Run three trials" in asked[-1] and "run.py" in asked[-1] and "500 calls" in asked[-1]
    while not (plan := await call(client, "evolve_plan", **orders, run=begun["run"])).get(
        "evaluations"
    ):
        await anyio.sleep(0.2)
    assert plan["run"] == begun["run"] and plan["evaluations"][0] < plan["evaluations"][1]

    given = {
        "program": ["order-fields"],
        "executors": ["simulated"],
        "max_calls": 2000,
        "open_test": True,
    }
    begun = await call(client, "evolve_measure", **orders, **given)
    assert "Measure order-fields against none" in asked[-1]
    assert "2000 calls" in asked[-1]
    assert "look 2" in asked[-1]
    run = begun["runs"][0]["run"]
    while (status := await call(client, "evolve_status", run=run))["state"] != "finished":
        await anyio.sleep(0.2)
    assert status["verdict"] == "NOT SUPPORTED"
    report = (await client.call_tool("evolve_report", {"run": run})).content[0].text
    assert f"Measurement {run}" in report and report.index("NOT SUPPORTED") > 0


async def test_an_agent_runs_a_round_which_never_asks_a_model_that_no_person_named(tmp_path):
    serving = Serving(Config(tmp_path / "home", tmp_path, toolsets=("evolve",)))
    try:
        async with Client(serving.server) as client:
            done = await call(client, "evolve_round")
            assert (done["number"], done["source"], done["episodes"], "changes" in done) == (
                1,
                "sessions",
                0,
                False,
            )
            wrong = await client.call_tool("evolve_round", {"run": "20200101-000000-abcd"})
            assert wrong.is_error and "is no run" in wrong.content[0].text
    finally:
        serving.close()


async def test_over_http_no_command_is_run_for_a_client(tmp_path):
    from evolvable_server.grants import Permission
    from evolvable_teams.http.http_access import required_permissions
    from evolvable_tools.verbs.registry import TOOLS

    assert (
        required_permissions("evolve_start", {})
        == {Permission.APPROVE}
        == required_permissions("evolve_adopt", {})
    )
    assert {
        tool.name for tool in await listed(Config(tmp_path, tmp_path, toolsets=("evolve",)))
    } <= TOOLS.keys()


@pytest.mark.process
@pytest.mark.parametrize("role", ["brain", "judge"])
def test_over_http_a_command_among_the_settings_is_none_the_more_run(tmp_path, role):
    place = Place(tmp_path)
    approver = made_token(place, "approver", *Permission)
    given = {
        "task_set": "environment:x",
        "program": ["skill:pdf"],
        "executor": "anthropic:claude-x",
    }
    with http_server(place, "--toolsets", "evolve") as server:
        said = server.tool(
            "evolve_start", given | {"settings": {role: "touch owned"}}, approver
        ).json["result"]

    assert said["isError"] and "A command is not run for a client" in said["content"][0]["text"]


@pytest.mark.process
async def test_a_run_over_mcp_is_proposed_by_whom_the_person_set_and_the_question_names_them(
    tmp_path,
):
    def saved() -> Place:
        place = Place(tmp_path)
        with Library.open(place.home) as library:
            DrivingPlace(tmp_path, library).save(letters(judged()))
        named = "".join(f'[{role}.{name}]\ncommand = ["/bin/false"]\n' for role, name in NAMES)
        place.configure(f'{named}[roles]\nproposer = ["planner", "spare"]\njudge = ["fair"]\n')
        return place

    place, asked, answer = await anyio.to_thread.run_sync(saved), [], "decline"

    async def person(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action=answer)

    given = {
        "task_set": "environment:letters",
        "program": ["skill:pdf"],
        "executor": "worker",
        "iterations": 0,
    }
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "evolvable_server", "serve", "--toolsets", "evolve"],
        env=place.environment,
        cwd=tmp_path,
    )
    with anyio.fail_after(60):
        async with Client(server, mode="auto", elicitation_callback=person) as client:
            for more in (
                {},
                {"brain": "handoff"},
                {"settings": {"brain": "spare", "judge": "spare"}},
            ):
                declined = await client.call_tool("evolve_start", given | more)
                assert declined.is_error and "Nothing was started" in declined.content[0].text
            answer = "accept"
            begun = await call(client, "evolve_start", **given)
            await call(client, "evolve_stop", run=begun["run"])

    assert (begun["brain"], begun["judge"]) == ("planner,spare", "fair")
    made = [
        [line for line in one.splitlines() if line.startswith(("Proposals", "Answers"))]
        for one in asked
    ]
    command = ", the command /bin/false"
    fair = f"Answers are judged by fair{command}"
    role = f"Proposals are made by planner{command}; where it gives no answer, by spare{command}"
    assert made[:2] == [[role, fair], ["Proposals are made by handoff", fair]]
    assert made[2] == [
        f"Proposals are made by spare{command}",
        f"Answers are judged by spare{command}",
    ]
    assert made[3] == made[0]


NAMES = (
    ("proposers", "planner"),
    ("proposers", "spare"),
    ("judges", "fair"),
    ("executors", "worker"),
)
