"""The registry of verbs: complete, declared once, and what the manual, the tools and the commands
are made from.
"""

import ast
import inspect
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import manual
import pytest

from evolvable_server.cli.command_line import cli
from evolvable_server.config import Config
from evolvable_server.mcp.lazy_tools import TOOLS_FILE
from evolvable_server.mcp.tools import ANNOTATIONS
from evolvable_server.serving import Serving
from evolvable_tools.verbs.registry import TOOLS, VERBS, Effect, refusal_reason, verb_at

ROOT = Path(__file__).parents[2]

WITH_FUNCTION = [verb.name for verb in VERBS.values() if verb.function]

OWN_ARGUMENTS = {
    "find_skill": {"scope", "detail"},
    "list_resources": {"detail"},
    "undo": {"propose"},
    "review_inbox": {"action", "files"},
}
"""Arguments of a tool that its verb's function takes in another form, or that only a client's own
model can meet.
"""


def commands() -> set[str]:
    """Names of all commands that the program has, with their actions, wherever they are placed."""
    return {verb_at(" ".join(words)) for words in leaves(click.Context(cli), cli)}


def leaves(ctx: click.Context, group: click.Group) -> Iterator[tuple[str, ...]]:
    """The words of each command below a group, those of a command with actions once for each."""
    for word in group.list_commands(ctx):
        found = group.get_command(ctx, word)
        assert found is not None, word
        actions = [parameter.type for parameter in found.params if parameter.name == "action"]
        below = list(leaves(ctx, found)) if isinstance(found, click.Group) else []
        below += [(action,) for action in (actions[0].choices if actions else ())]
        yield from ((word, *rest) for rest in below)
        if not below or getattr(found, "invoke_without_command", False):
            yield (word,)


def test_every_command_has_an_entry_and_every_entry_a_command():
    assert commands() == {verb.name for verb in VERBS.values() if verb.command is None}


def test_a_name_is_declared_once():
    tables = [
        json.loads(path.read_text("utf-8")) for path in ROOT.glob("*/evolvable_*/**/registry.json")
    ]
    rows = [name for table in tables for section in table["verbs"].values() for name, *_ in section]

    assert len(rows) == len(VERBS)


@pytest.mark.anyio
async def test_every_tool_has_an_entry_with_its_title_and_the_annotations_of_its_effect(tmp_path):
    serving = Serving(
        Config(tmp_path / "home", tmp_path, toolsets=("evolve", "delegation", "ags", "rspl"))
    )
    try:
        listed = {tool.name: tool for tool in await serving.server.list_tools()}
        unlisted = set(serving.server.unlisted)
    finally:
        serving.close()

    assert list(listed) == [tool.name for tool in TOOLS.values() if tool.command]
    assert unlisted == {tool.name for tool in TOOLS.values() if not tool.command}
    assert {name: (tool.title, tool.annotations) for name, tool in listed.items()} == {
        name: (TOOLS[name].title, ANNOTATIONS[TOOLS[name].effect]) for name in listed
    }


def test_the_effect_of_a_tool_is_the_strongest_of_its_verbs():
    assert TOOLS["review_inbox"].effect is Effect.WRITES
    assert [TOOLS["review_inbox"].needs(action) for action in ("approve", "show", None, ["x"])] == [
        *("approve", "read", "read", "read")
    ]


@pytest.mark.parametrize("name", WITH_FUNCTION)
def test_the_function_of_a_verb_exists_and_explains_itself(name):
    function = pkgutil.resolve_name(VERBS[name].function)

    assert inspect.isfunction(function) and inspect.getdoc(function)


@pytest.mark.parametrize(
    "tool", [tool["name"] for tool in json.loads(TOOLS_FILE.read_text(encoding="utf-8"))]
)
def test_the_arguments_of_a_tool_are_those_of_its_verb(tool):
    schema = next(
        one for one in json.loads(TOOLS_FILE.read_text(encoding="utf-8")) if one["name"] == tool
    )
    taken = {
        parameter
        for name in TOOLS[tool].names
        for parameter in inspect.signature(pkgutil.resolve_name(VERBS[name].function)).parameters
    }

    assert set(schema["inputSchema"]["properties"]) - taken == OWN_ARGUMENTS.get(tool, set())


@pytest.mark.process
def test_the_registry_imports_nothing_heavy():
    """It is read before a server's first answer."""
    code = (
        "import sys, evolvable_tools.verbs.registry; print([n for n in sys.modules if "
        "n.startswith('evolvable_')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    faces = ["evolvable_store", "evolvable_store.faces", "evolvable_tools", "evolvable_tools.verbs"]
    assert sorted(ast.literal_eval(ran.stdout)) == [*faces, "evolvable_tools.verbs.registry"]


@pytest.mark.parametrize("file", manual.TABLES)
def test_the_tables_of_the_manual_are_made_from_the_registry(file):
    """`python benchmarks/manual.py` writes them anew."""
    text = (ROOT / "docs" / file).read_text(encoding="utf-8")

    assert manual.filled_page(file, text) == text


def test_a_refusal_speaks_of_named_commands_only_where_one_is_named():
    decided = [verb.name for verb in VERBS.values() if verb.authority in ("approve", "person")]
    unnamed = {name for name in decided if refusal_reason(name) == refusal_reason("")}

    assert {name.partition(" ")[0] for name in unnamed} == {
        "executor",
        "scorer",
        "judge",
        "reviewer",
        "proposer",
    }
