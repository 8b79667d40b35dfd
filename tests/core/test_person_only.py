"""What says `disable-model-invocation: true`: no model is offered it, and whoever names
it gets it.
"""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from command_line import CommandLine
from mcp import Client
from pydantic import TypeAdapter

from evolvable_server.config import Config
from evolvable_server.hooks.dispatch import HookDispatcher
from evolvable_server.serving import Serving
from evolvable_store.operation import Actor
from evolvable_tools.caller import Caller

TASK = "deploy the shop to production"
NAMED = {"ref": "deploy-prod"}
ANYTHING: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


def save(machine: CommandLine, name: str, head: str, kind: str = "skills/{}/SKILL.md") -> None:
    file = machine.user / ".claude" / kind.format(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\nname: {name}\n{head}---\n\nSteps of {name}.\n", encoding="utf-8")


@pytest.fixture
def machine(tmp_path: Path) -> CommandLine:
    """A person's machine whose library holds a skill that only a person calls, and another."""
    machine = CommandLine(tmp_path)
    save(
        machine,
        "deploy-prod",
        "description: Deploy the shop to production.\ndisable-model-invocation: yes\n",
    )
    save(machine, "bread", "description: Bake bread at home.\n")
    machine("init", machine.user / ".claude/skills", "--yes")
    machine("publish")
    return machine


@pytest.fixture
def serving(machine: CommandLine) -> Iterator[Serving]:
    serving = Serving(Config(machine.home, machine.project, embedder="off"))
    yield serving
    serving.close()


@pytest.fixture
async def client(serving: Serving) -> AsyncIterator[Client]:
    async with Client(serving.server, mode="legacy") as client:
        yield client


@pytest.mark.parametrize(
    "asked", [{}, {"mode": "keyword"}, {"mode": "text"}, {"mode": "paper"}, {"detail": True}]
)
@pytest.mark.parametrize("task", [TASK, "run deploy-prod"])
@pytest.mark.anyio
async def test_an_agents_search_offers_it_in_no_mode_and_in_no_list_to_choose_from(
    client: Client, task: str, asked: dict[str, Any]
) -> None:
    found = await client.call_tool("find_skill", {"task": task, **asked})

    assert not found.is_error and "skill:deploy-prod" not in str(found)


@pytest.mark.anyio
async def test_no_list_that_a_model_may_read_has_it(client: Client) -> None:
    listed = await client.call_tool("list_resources", {})
    resources = await client.list_resources()
    question = types.Request[Any, Any](method="skills/list", params={})
    skills = await client.session.send_request(question, ANYTHING)

    for answer in (listed, resources, skills):
        assert "bread" in str(answer) and "deploy-prod" not in str(answer)


@pytest.mark.anyio
async def test_who_names_it_gets_it(client: Client) -> None:
    loaded = await client.call_tool("load_skill", NAMED)
    read = await client.call_tool("get_resource", NAMED)
    prompt = await client.get_prompt("use_skill", {"name": "deploy-prod"})
    resource = await client.read_resource("skill://deploy-prod/SKILL.md")
    question = types.Request[Any, Any](
        method="skills/get", params={"uri": "skill://deploy-prod/SKILL.md"}
    )
    skill = await client.session.send_request(question, ANYTHING)

    for answer in (loaded, read, prompt, resource):
        assert "Steps of deploy-prod." in str(answer)
    assert skill["skill"]["frontmatter"]["disable-model-invocation"] is True


@pytest.mark.anyio
async def test_the_prompt_why_says_that_no_agent_is_offered_it(client: Client) -> None:
    why = await client.get_prompt("why", {"ref": "deploy-prod", "task": TASK})

    assert "No agent is offered it" in str(why) and "disable-model-invocation" in str(why)


def test_a_persons_own_search_and_list_have_it_and_an_agents_do_not(machine: CommandLine) -> None:
    assert (
        "skill:deploy-prod" in machine("find", TASK).out
        and "skill:deploy-prod" in machine("list").out
    )
    machine.person = False
    assert "skill:deploy-prod" not in machine("find", TASK, code=None).out
    assert "skill:deploy-prod" not in machine("list").out
    assert "Steps of deploy-prod." in machine("load", "deploy-prod").out


def test_the_hook_does_not_name_it(machine: CommandLine, serving: Serving) -> None:
    config = Config(machine.home, machine.project, embedder="off")
    hooks = HookDispatcher(config, serving.library, Caller(Actor.AGENT))
    asked = {"hook_event_name": "UserPromptSubmit", "session_id": "s1"}

    assert "bread" in hooks.answer({**asked, "prompt": "Bake bread at home"})
    assert "deploy-prod" not in hooks.answer(
        {**asked, "prompt": "Deploy the shop to production now"}
    )


def test_the_line_is_heeded_from_the_version_that_brings_it_to_the_one_that_takes_it_away(
    machine: CommandLine,
) -> None:
    manual = "description: Bake bread at home.\ndisable-model-invocation: true\n"
    for head, offered in ((manual, False), ("description: Bake bread at home.\n", True)):
        save(machine, "bread", head)
        machine.person = True
        machine("sync")
        machine.person = False
        assert ("skill:bread" in machine("find", "bake bread at home", code=None).out) is offered


@pytest.mark.process
def test_what_claude_code_documents_gives_a_person_no_warning(machine: CommandLine) -> None:
    head = (
        "description: Sorts.\nuser-invocable: true\nargument-hint: '[file]'\npaths: ['*.py']\n"
        "context: fork\nhooks:\n  PreToolUse:\n    - command: ./check.sh\n"
        "allowed-tools: [Bash, Read]\nagent: Explore\nmodel: haiku\nwhen_to_use: often\n"
    )
    save(machine, "sorting", head)
    save(machine, "other", "description: Other.\ntags: [a]\n")
    report = machine("sync", "--json").json
    warnings = machine("doctor", "--json", "--verbose", code=None).json["warnings"]

    for said in (
        json.dumps([folder["warnings"] for folder in report["folders"]]),
        json.dumps(warnings),
    ):
        assert "does not know: tags" in said and "sorting" not in said


def test_a_skill_whose_description_is_a_list_is_found_by_its_words(machine: CommandLine) -> None:
    save(machine, "parrots", "description:\n- Feeds the flamingo\n- Use when: pelicans are ill\n")
    machine("sync")
    machine.person = False

    assert "Use when: pelicans are ill" in machine("find", "pelicans are ill").out
