"""Codex, started with exec: it has no terminal of its own to be driven in without an account."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from claude import queue_checks
from model import Model, Say, Use
from place import PLUGIN, TOLD, Place
from talks import Check, hot, hot_checks, whole, whole_checks

SERVER = "evolvable"

CONFIG = """\
model = "gpt-5.5"
model_provider = "script"
approval_policy = "never"
sandbox_mode = "workspace-write"

[model_providers.script]
name = "script"
base_url = "{url}/v1"
env_key = "SCRIPT_KEY"
wire_api = "responses"
supports_websockets = false
"""


class Codex:
    """The binary, with a home and a model of its own."""

    def __init__(self, binary: Path, place: Place, model: Model) -> None:
        self._binary, self._place = str(binary), place
        self.home = place.home / ".codex"
        self.home.mkdir(exist_ok=True)
        (self.home / "config.toml").write_text(CONFIG.format(url=model.url), encoding="utf-8")

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        own = {"CODEX_HOME": str(self.home), "SCRIPT_KEY": "dummy"}
        return self._place.run(self._binary, *words, **own, **environment)

    def add(self) -> subprocess.CompletedProcess[str]:
        """Add the server as the documentation says."""
        given = [
            f"{name}={value}"
            for name, value in self._place.environment.items()
            if name[:4] in ("EVOL", "PYTH")
        ]
        command = [sys.executable, "-m", "evolvable_server", "serve"]
        options = [word for pair in given for word in ("--env", pair)]
        return self.run("mcp", "add", SERVER, *options, "--", *command)

    def require(self) -> None:
        """Say in the configuration that no turn begins without the server."""
        with (self.home / "config.toml").open("a", encoding="utf-8") as file:
            file.write(f"\n[mcp_servers.{SERVER}]\n") if SERVER not in self.config else None
        text = self.config.replace(
            f"[mcp_servers.{SERVER}]\n", f"[mcp_servers.{SERVER}]\nrequired = true\n", 1
        )
        (self.home / "config.toml").write_text(text, encoding="utf-8")

    @property
    def config(self) -> str:
        return (self.home / "config.toml").read_text(encoding="utf-8")

    def ask(self, prompt: str, *more: str, **environment: str) -> list[dict[str, object]]:
        """Return the events of `codex exec`."""
        done = self.run("exec", "--json", "--skip-git-repo-check", *more, prompt, **environment)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def by_exec(binary: Path, place: Place) -> Iterator[Check]:
    """codex exec: the whole way."""
    with Model(whole(SERVER)) as model:
        codex = Codex(binary, place, model)
        added = codex.add()
        yield "mcp add takes the server", added.returncode == 0, added.stderr
        codex.require()
        yield "mcp list shows it", SERVER in codex.run("mcp", "list", "--json").stdout, codex.config
        codex.ask("Fill in the form.")
        first = json.dumps(model.asked[0]) if model.asked else ""
        yield (
            "its first request names the server and when to call it",
            "find_skill" in first,
            first[:1500],
        )
        yield from whole_checks(model, place)


def reload_by_exec(binary: Path, place: Place) -> Iterator[Check]:
    with Model(hot(SERVER, place, Use("list_mcp_resources", {}))) as model:
        codex = Codex(binary, place, model)
        codex.add()
        codex.require()
        codex.ask("Send the report.")
        yield from hot_checks(model, listing=True)


def with_the_plugin(binary: Path, place: Place) -> Iterator[Check]:
    """The plugin's hooks, which a person has to trust; a test says so on the command line."""
    with Model([lambda _: Say("DONE"), lambda _: Say("DONE")]) as model:
        codex = Codex(binary, place, model)
        market = codex.run("plugin", "marketplace", "add", str(PLUGIN.parents[1]))
        added = codex.run("plugin", "add", "evolvable@evolvable")
        yield (
            "plugin add takes it",
            market.returncode == 0 == added.returncode,
            market.stderr + added.stderr,
        )
        events = codex.ask("Fill in a PDF form for me, please.", "--dangerously-bypass-hook-trust")
        first = json.dumps(model.asked[0].get("input")) if model.asked else ""
        yield "UserPromptSubmit adds the skill that fits", TOLD in first, first[-1500:]
        session = str(next((event["thread_id"] for event in events if "thread_id" in event), ""))
        yield from queue_checks(place, session)
