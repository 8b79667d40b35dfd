"""The plugin, the bundle and the registry's entry: what they say is true of the program, and of
each other.
"""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from evolvable_server.hooks.command import QUEUED
from evolvable_server.hooks.dispatch import HookEvent
from evolvable_server.mcp.lazy_tools import TOOLS_FILE
from evolvable_store import __version__
from evolvable_store.objects import File
from evolvable_store.resource import Kind
from evolvable_store.validation import find_problems

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugins/evolvable"
HOOKS = {"claude-code": "hooks/hooks.json", "codex": "hooks/codex.json"}


def read(path: str) -> dict:
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def hooks_of(client: str) -> list[tuple[str, dict]]:
    events = read(f"plugins/evolvable/{HOOKS[client]}")["hooks"]
    return [
        (event, hook)
        for event, groups in events.items()
        for group in groups
        for hook in group["hooks"]
    ]


def test_every_manifest_has_the_version_of_the_package():
    market = read(".claude-plugin/marketplace.json")
    said = {
        "installed": importlib.metadata.version("evolvable"),
        "claude": read("plugins/evolvable/.claude-plugin/plugin.json")["version"],
        "codex": read("plugins/evolvable/.codex-plugin/plugin.json")["version"],
        "desktop": read("plugins/desktop/manifest.json")["version"],
        "marketplace": market["metadata"]["version"],
        "marketplace's plugin": market["plugins"][0]["version"],
        "registry": read("server.json")["version"],
        "handshake": read("server/evolvable_server/mcp/handshake.json")["serverInfo"]["version"],
    }

    assert said == dict.fromkeys(said, __version__)


@pytest.mark.process
def test_every_file_of_both_plugins_is_the_one_that_is_generated():
    done = subprocess.run(
        [sys.executable, "plugins/manifests.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


def test_the_agent_plugin_has_what_its_specification_knows_and_nothing_that_its_readers_report():
    manifest, servers = (
        read("plugins/agent-plugin/plugin.json"),
        read("plugins/agent-plugin/mcp.json"),
    )
    known = {
        "$schema",
        "name",
        "version",
        "description",
        "author",
        "homepage",
        "repository",
        "license",
        "keywords",
    }
    assert manifest.keys() <= known | {"extensions"}
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,62}[a-z0-9]", manifest["name"])
    assert manifest["version"] == __version__
    for file, kind in ((manifest, "plugin"), (servers, "mcp")):
        assert file["$schema"] == f"https://agent-plugins.org/schemas/1.0.0/{kind}.schema.json"
    (server,) = servers["mcpServers"].values()
    assert server.keys() == {"type", "command", "args"} and "/" not in server["command"]
    hooks = read("plugins/agent-plugin/com.github.copilot/hooks/hooks.json")["hooks"]
    assert all(hook["type"] == "command" for group in hooks.values() for hook in group)


def installing() -> dict[str, str]:
    """The line of the plugin's page that installs it, for each client's program."""
    pages = [
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("docs/hooks.md", "plugins/evolvable/README.md")
    ]
    found = [re.findall(r"^(\w+) (plugin marketplace add .*)$", page, re.M) for page in pages]
    assert set(found[1]) <= set(found[0])
    return {program: f"{program} {line}" for program, line in found[1]}


@pytest.mark.process
@pytest.mark.parametrize("program", ["claude", "codex"])
def test_the_plugin_is_installed_by_the_documented_commands_in_a_clone(program, tmp_path):
    binary = os.environ.get(f"EVOLVABLE_TEST_{program.upper()}") or shutil.which(program)
    if binary is None:
        pytest.skip(f"no {program} on this machine")
    path = os.pathsep.join((str(Path(binary).parent), os.environ["PATH"]))
    environment = {
        "HOME": str(tmp_path),
        "PATH": path,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    command = f"{installing()[program]} && {program} plugin list"

    done = subprocess.run(
        ["bash", "-c", command],
        env=environment,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "evolvable@evolvable" in done.stdout


def test_both_marketplaces_and_both_clients_name_one_folder():
    claude, codex = (
        read(".claude-plugin/marketplace.json"),
        read(".agents/plugins/marketplace.json"),
    )
    manifests = [
        read(f"plugins/evolvable/.{client}-plugin/plugin.json") for client in ("claude", "codex")
    ]

    assert {claude["plugins"][0]["source"], codex["plugins"][0]["source"]["path"]} == {
        "./plugins/evolvable"
    }
    assert {claude["name"], codex["name"], *(manifest["name"] for manifest in manifests)} == {
        "evolvable"
    }
    assert manifests[0]["description"] == manifests[1]["description"]
    for key in ("skills", "mcpServers", "hooks"):
        assert (PLUGIN / manifests[1][key]).exists()


@pytest.mark.parametrize("client", HOOKS)
def test_every_hook_calls_what_there_is_with_what_it_understands(client):
    """Claude Code calls a plugin's server plugin:NAME:SERVER, Codex by its bare name."""
    (server,) = read("plugins/evolvable/.mcp.json")["mcpServers"]
    named = {"claude-code": f"plugin:evolvable:{server}", "codex": server}[client]
    for event, hook in hooks_of(client):
        if hook["type"] == "command":
            assert hook["command"] == f"evolvable-hook {event} {client}" and event in QUEUED
        else:
            assert (hook["server"], hook["tool"]) == (named, "hook_event")
            assert set(hook["input"]) <= {*HookEvent.__dataclass_fields__, "hook_event_name"} - {
                "event"
            }
            assert (
                hook["input"].items()
                >= {
                    "hook_event_name": event,
                    "client": client,
                    "session_id": "${session_id}",
                }.items()
            )


@pytest.mark.parametrize("client", HOOKS)
def test_the_events_are_those_the_clients_can_serve(client):
    """The server is gone when a session ends; at Codex's Stop it may not be known to the turn."""
    by_event = {event: hook["type"] for event, hook in hooks_of(client)}

    assert set(by_event) == {"UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd"}
    assert by_event["SessionEnd"] == "command"
    assert by_event["Stop"] == {"claude-code": "mcp_tool", "codex": "command"}[client]


def test_the_commands_that_the_plugin_starts_are_installed_with_the_package():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "scripts"
    ]
    server = read("plugins/evolvable/.mcp.json")["mcpServers"]["evolvable"]

    assert {server["command"], "evolvable-hook"} <= set(scripts)
    assert server["args"] == ["serve"]


@pytest.mark.parametrize("folder", sorted(path.name for path in (PLUGIN / "skills").iterdir()))
def test_every_skill_of_the_plugin_is_a_skill_and_names_only_tools_that_there_are(folder):
    text = (PLUGIN / "skills" / folder / "SKILL.md").read_text(encoding="utf-8")
    tools = {tool["name"] for tool in json.loads(TOOLS_FILE.read_text(encoding="utf-8"))}

    assert find_problems(Kind.SKILL, folder, {"SKILL.md": File(text.encode())}) == []
    assert yaml.safe_load(text.split("---")[1])["name"] == folder
    named = set(re.findall(r"`(\w+_(?:skills?|resources?|outcome|session|review))`", text))
    assert named and named <= tools


@pytest.mark.process
def test_the_desktop_bundle_holds_the_program_that_its_manifest_starts(tmp_path):
    code = f"import build, pathlib; build.stage(pathlib.Path({str(tmp_path)!r}))"
    subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=ROOT / "plugins/desktop", check=True, timeout=60
    )
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))

    assert (tmp_path / manifest["server"]["entry_point"]).is_file()
    assert manifest["server"]["mcp_config"]["args"][-3:] == [
        "-P",
        manifest["server"]["entry_point"],
        "serve",
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert (tmp_path / package / "__init__.py").is_file()
    assert (tmp_path / "README.md").is_file()
    # Nothing is left to be resolved on a user's machine.
    assert (
        tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "dependencies"
        ]
        == []
    )
    assert (tmp_path / "requirements.lock").read_bytes() == (
        ROOT / "requirements.lock"
    ).read_bytes()
    assert not list(tmp_path.rglob("__pycache__"))
