"""How each client is configured and started for the whole way: a model on the loopback interface,
and a dummy key.

A client whose default refuses a call where nobody can answer also runs on a terminal, where a
person answers.
"""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chat import ChatModel
from claude import QUIET, Claude
from codex import CONFIG
from model import Model, Turn
from place import KEY, Place
from terminal import TURN, Dialogue, Person, Screen


@dataclass(frozen=True)
class ServerEnvironment:
    """What the server of a client is given besides, for the account and the library of a place."""

    place: Place

    @property
    def pairs(self) -> list[str]:
        names = ("EVOLVABLE_EMBEDDER", "EVOLVABLE_TEST_ACCOUNT", "PYTHONPATH")
        return [f"{name}={self.place.environment[name]}" for name in names]


@dataclass(frozen=True)
class Driver:
    """One client. switch: what lets its agent do what its default refuses, in its own words; ''
    where it refuses none.

    hooks: whether `connect` writes its hooks. node: the folder of a newer Node, where it needs one.
    """

    name: str
    title: str
    binary: Path
    node: str = ""
    switch: str = ""
    hooks: bool = True

    def model(self, turns: Sequence[Turn]) -> Model:
        return ChatModel(turns)

    def version(self, place: Place) -> str:
        done = place.run(str(self.binary), "--version", **self.path(place))
        found = re.search(r"\d+\.\d+[\w.-]*\w", done.stdout)
        return found[0] if found else ""

    def options(self, allowed: bool) -> list[str]:
        """Return the options of `connect`."""
        return ["--hooks"] if self.hooks else []

    def configure(self, place: Place, model: Model) -> None:
        """Write what the client needs besides the server: its model."""

    def command(self, prompt: str, allowed: bool) -> list[str]:
        raise NotImplementedError

    def environment(self, model: Model) -> Mapping[str, str]:
        return {}

    @property
    def dialogue(self) -> Dialogue | None:
        """How the client is spoken to on a terminal, None where its default refuses nothing without
        one.
        """
        return None

    def path(self, place: Place) -> dict[str, str]:
        path = place.environment["PATH"]
        return {"PATH": os.pathsep.join(filter(None, (self.node, path)))}

    def ask(self, place: Place, model: Model, prompt: str, allowed: bool) -> str:
        """Hold the session, and return what the client wrote."""
        environment = {**self.path(place), **self.environment(model)}
        try:
            done = place.run(
                str(self.binary), *self.command(prompt, allowed), seconds=TURN, **environment
            )
        except subprocess.TimeoutExpired as error:
            return f"it took too long: {error}"
        return f"{done.returncode} {done.stdout} {done.stderr}"

    def talk(self, place: Place, model: Model, prompt: str) -> tuple[list[str], str]:
        """Hold the session on a terminal; return the tools about which the client asked, and the
        screen at the end.
        """
        dialogue = self.dialogue
        assert dialogue is not None
        environment = {
            **place.environment,
            **self.path(place),
            **self.environment(model),
            **dialogue.environment,
        }
        words = [str(self.binary), *dialogue.options]
        screen = Screen(words, environment, place.project, place.root / "terminal")
        person = Person(screen, dialogue, model)
        try:
            person.converse(prompt)
        except (TimeoutError, AssertionError) as error:
            return person.asked, str(error)
        finally:
            screen.close()
        return person.asked, person.last


def _write(path: Path, values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=2), encoding="utf-8")


class ClaudeCode(Driver):
    """claude -p."""

    def model(self, turns: Sequence[Turn]) -> Model:
        return Model(turns)

    def environment(self, model: Model) -> Mapping[str, str]:
        return dict.fromkeys(QUIET, "1") | {
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": KEY,
        }

    def command(self, prompt: str, allowed: bool) -> list[str]:
        return ["-p", prompt, *(["--allowedTools", "mcp__evolvable"] if allowed else [])]

    def configure(self, place: Place, model: Model) -> None:
        Claude(self.binary, place, model).welcome()

    @property
    def dialogue(self) -> Dialogue:
        # Its default mode has each call judged by a service of Anthropic's, which no model on this
        # machine has.
        asides = {r"Enter to stay in auto mode": ("Enter",)}
        return Dialogue(ready="❯", question="Do you want to proceed\\?", asides=asides)


class Codex(Driver):
    """codex exec."""

    def model(self, turns: Sequence[Turn]) -> Model:
        return Model(turns)

    def configure(self, place: Place, model: Model) -> None:
        path = place.home / ".codex/config.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            CONFIG.format(url=model.url).replace('approval_policy = "never"\n', ""),
            encoding="utf-8",
        )

    def environment(self, model: Model) -> Mapping[str, str]:
        return {"SCRIPT_KEY": "dummy"}

    def command(self, prompt: str, allowed: bool) -> list[str]:
        return ["exec", "--json", "--skip-git-repo-check", prompt]


class Copilot(Driver):
    """copilot -p."""

    def environment(self, model: Model) -> Mapping[str, str]:
        provider = {"BASE_URL": f"{model.url}/v1", "API_KEY": "dummy"}
        quiet = {
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_MODEL": "gpt-4.1",
        }
        return quiet | {f"COPILOT_PROVIDER_{key}": value for key, value in provider.items()}

    def command(self, prompt: str, allowed: bool) -> list[str]:
        return [
            "-p",
            prompt,
            *(["--allow-tool", "evolvable"] if allowed else []),
            "--output-format",
            "json",
        ]

    @property
    def dialogue(self) -> Dialogue:
        asides = {r"Do you trust the files in this folder\?": ("Enter",)}
        return Dialogue(
            ready="1 server connected", question=r"Do you want to use this tool\?", asides=asides
        )


class OpenCode(Driver):
    """opencode run."""

    def configure(self, place: Place, model: Model) -> None:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Stub",
            "options": {"baseURL": f"{model.url}/v1", "apiKey": "dummy"},
            "models": {
                "stub-model": {"name": "Stub", "limit": {"context": 200000, "output": 8000}}
            },
        }
        folder = place.home / ".config/opencode"
        # It fetches this package, which no plugin of ours needs, at the first start, unless it was
        # fetched before.
        (folder / "node_modules").mkdir(parents=True)
        fetched = {"dependencies": {"@opencode-ai/plugin": "*"}}
        _write(folder / "package.json", fetched)
        _write(folder / "package-lock.json", {"lockfileVersion": 3, "packages": {"": fetched}})
        quiet = {"autoupdate": False, "share": "disabled", "model": "stub/stub-model"}
        values = {
            "$schema": "https://opencode.ai/config.json",
            **quiet,
            "small_model": "stub/stub-model",
        }
        _write(folder / "opencode.json", {**values, "provider": {"stub": provider}})

    def environment(self, model: Model) -> Mapping[str, str]:
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}

    def command(self, prompt: str, allowed: bool) -> list[str]:
        return ["run", "--format", "json", prompt]


class Qwen(Driver):
    """qwen, headless."""

    def options(self, allowed: bool) -> list[str]:
        return [*super().options(allowed), *(["--trust"] if allowed else [])]

    def environment(self, model: Model) -> Mapping[str, str]:
        return {
            "OPENAI_API_KEY": "dummy",
            "OPENAI_BASE_URL": f"{model.url}/v1",
            "OPENAI_MODEL": "stub-model",
        }

    def command(self, prompt: str, allowed: bool) -> list[str]:
        return ["--auth-type", "openai", "-o", "json", prompt]

    @property
    def dialogue(self) -> Dialogue:
        # Its default mode has each call judged by the model; the scripted one says nothing, and the
        # person is asked.
        options, question = ("--auth-type", "openai"), r'Allow execution of MCP tool "\w+"'
        return Dialogue(
            ready="Type your message", question=question, options=options, leave="/quit"
        )


class Droid(Driver):
    """droid exec."""

    def configure(self, place: Place, model: Model) -> None:
        own = {
            "model": "stub-model",
            "id": "custom:stub",
            "displayName": "stub",
            "baseUrl": f"{model.url}/v1",
        }
        own |= {"apiKey": "dummy", "provider": "generic-chat-completion-api"}
        settings = {"customModels": [{**own, "maxOutputTokens": 8000}], "cloudSessionSync": False}
        _write(place.home / ".factory/settings.json", {**settings, "enableDroidShield": False})

    def environment(self, model: Model) -> Mapping[str, str]:
        return {"FACTORY_API_KEY": "fk-dummy"}

    @property
    def dialogue(self) -> Dialogue:
        # Without an account it starts on a terminal in its offline mode alone.
        offline = {"FACTORY_AIRGAP_ENABLED": "true", "FACTORY_API_KEY": ""}
        asides = {r"Trust this folder\?": ("Enter",)}
        return Dialogue(
            ready=r"Auto \(Off\)",
            question="MCP tool to approve",
            asides=asides,
            environment=offline,
        )

    def command(self, prompt: str, allowed: bool) -> list[str]:
        return [
            "exec",
            *(["--auto", "high"] if allowed else []),
            "-m",
            "custom:stub",
            "-o",
            "json",
            prompt,
        ]
