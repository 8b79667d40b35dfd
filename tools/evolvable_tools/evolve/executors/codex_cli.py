"""Codex without its terminal, in a home of its own that holds the program and nothing else."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from evolvable_tools.evolve.candidates.programs import Program
from evolvable_tools.evolve.executors.agent_cli import (
    ClientCall,
    ClientDirs,
    ClientSettings,
    InstalledProgram,
    InstallLayout,
    find_missing_tools,
    find_shadowing_skills,
    install_program,
    iter_skills,
    list_ancestor_dirs,
    refuse_program,
    run_client,
)
from evolvable_tools.evolve.executors.base import Trajectory, iter_events
from evolvable_tools.evolve.run_config import HostContext
from evolvable_tools.evolve.task import Rollout, Task
from evolvable_tools.sandbox import MODEL_PORT, ModelAccess

TOOLS = ("Bash", "Edit", "Glob", "Grep", "MultiEdit", "Read", "Skill", "Write")
"""What Codex can do, by the names that skills use: its commands read, find, write and run."""

SEARCH = ("WebFetch", "WebSearch")
"""What it can do besides when its search is allowed: name either in the settings."""

FLAGS = ("exec", "--json", "--ephemeral", "--skip-git-repo-check", "--sandbox", "workspace-write")
SANDBOXED_FLAGS = (*FLAGS[:-1], "danger-full-access")
"""Inside a sandbox of ours: its own needs what ours refuses, and ours keeps in more."""

_ADDRESS, _SIGNED_IN = "https://api.openai.com/v1", "https://chatgpt.com/backend-api/codex"
_PATHS = frozenset(("/responses", "/responses/compact", "/models", "/chat/completions"))

HELD_KEY = "sk-held-outside-of-the-sandbox"
"""What stands inside for a key that the relay holds."""

_OVERRIDES = (
    *("project_doc_max_bytes=0", "skills.bundled.enabled=false", 'approval_policy="never"'),
    # What one run leaves in /tmp would be there for the next.
    "sandbox_workspace_write.exclude_slash_tmp=true",
    "shell_environment_policy.ignore_default_excludes=false",
)
"""No instructions of the folder it works in, no skills but ours, nobody to ask, and no keys for its commands."""

_MANAGED = (Path("/etc/codex/skills"),)
_PROJECT = (".codex/skills", ".agents/skills")


class CodexExecutor:
    """Runs tasks with Codex. Every run has a fresh home and a fresh CODEX_HOME with only the program in it."""

    def __init__(self, settings: ClientSettings) -> None:
        """settings.tools: by default TOOLS; its sandbox always writes in the workspace alone, without the network.

        What it costs follows from settings.price and is unknown without one.
        """
        self._settings = settings if settings.tools else replace(settings, tools=TOOLS)
        self.fingerprint = self._settings.fingerprint("codex", (*FLAGS, *_OVERRIDES))
        self.label = self._settings.label

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], host: HostContext, **_: object) -> Self:
        """Return the executor that a run's settings name. Raises InvalidArgument, ClientError."""
        return cls(ClientSettings.from_spec("codex", spec, host))

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        """Return what came of one task; see Executor. Refused where the program's means or names are not its own."""
        if missing := find_missing_tools(program, self._settings.tools):
            return refuse_program(f"{'; '.join(missing)}, which the model may not use here")
        places = [*_MANAGED, *list_ancestor_dirs(workspace, _PROJECT)]
        if there := find_shadowing_skills(program, places):
            return refuse_program(f"another skill has the name of a part: {', '.join(there)}")
        others = sorted({name for name, _ in iter_skills(places)})
        return await run_client(
            self._settings, task, workspace, lambda place: self._prepare(program, place, workspace, others)
        )

    def _prepare(self, program: Program, place: ClientDirs, workspace: Path, others: list[str]) -> ClientCall | Rollout:
        installed = install_program(program, InstallLayout(place.config / "skills", None, place.config / "AGENTS.md"))
        if installed.unfit:
            return refuse_program(f"Codex cannot be given {', '.join(installed.unfit)} as part of a program")
        model, config, more, pointed = None, self._settings.config, dict[str, str](), list[str]()
        if self._settings.sandbox is not None:
            model, config, more, pointed = codex_access(self._settings)
        if config:
            (place.config / "config.toml").write_text(config, encoding="utf-8")
        if self._settings.credentials is not None:
            (place.config / "auth.json").symlink_to(self._settings.credentials)
        searching = "live" if set(SEARCH) & set(self._settings.tools) else "disabled"
        overrides = [*_OVERRIDES, f'web_search="{searching}"', *pointed]
        if others:
            off = ", ".join(f"{{name={json.dumps(name)}, enabled=false}}" for name in others)
            overrides.append(f"skills.config=[{off}]")
        if installed.prompt:
            overrides.append(f"developer_instructions={json.dumps(installed.prompt)}")
        flags = FLAGS if self._settings.sandbox is None else SANDBOXED_FLAGS
        command = [self._settings.binary, *flags, "--model", self._settings.model, "--cd", str(workspace)]
        command += [word for override in overrides for word in ("--config", override)]
        command += [*self._settings.arguments, "-"]
        environment = {"CODEX_HOME": str(place.config), **more}
        return ClientCall(tuple(command), environment, lambda out: read_codex_events(out, installed), model)


def codex_access(settings: ClientSettings) -> tuple[ModelAccess, str, dict[str, str], list[str]]:
    """Return what the relay lets through, the configuration with its address in it, variables, and overrides.

    The key stays outside. A sign-in of the client's own is read inside, from its file.
    """
    try:
        said = tomllib.loads(settings.config)
    except ValueError:
        said = {}
    provider = said.get("model_providers", {}).get(said.get("model_provider", ""))
    given = settings.environment
    if isinstance(provider, dict) and isinstance(provider.get("base_url"), str):
        address, name = provider["base_url"], str(provider.get("env_key") or "")
        config = settings.config.replace(json.dumps(address), json.dumps(_relay_address(address)))
        pointed = []
    else:
        name = "OPENAI_API_KEY"
        signed_in = settings.credentials is not None and not given.get(name)
        address, config = given.get("OPENAI_BASE_URL") or (_SIGNED_IN if signed_in else _ADDRESS), settings.config
        pointed = [f"openai_base_url={json.dumps(_relay_address(address))}"]
    key = given.get(name)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return ModelAccess(address, _PATHS, headers), config, {name: HELD_KEY} if key else {}, pointed


def _relay_address(address: str) -> str:
    return f"http://127.0.0.1:{MODEL_PORT}{urlsplit(address).path.rstrip('/')}"


def read_codex_events(out: bytes, installed: InstalledProgram) -> Trajectory:
    """Return what the events of `codex exec --json` tell.

    An `error` event alone ends nothing: Codex tries again, and says when the turn has failed.
    """
    seen = Trajectory()
    for event in iter_events(out):
        kind, item = event.get("type"), event.get("item")
        if kind in ("item.completed", "item.started") and isinstance(item, dict):
            _read_item(seen, kind, item, installed)
        elif kind == "turn.completed":
            seen.ended = True
            _add_usage(seen, event.get("usage"))
        elif kind == "turn.failed":
            seen.ended = True
            error = event.get("error")
            seen.failure = str(error.get("message") if isinstance(error, dict) else error)
        elif kind == "error":
            seen.trouble = str(event.get("message"))
            seen.step("error", seen.trouble)
    seen.calls = seen.calls or int(seen.progress)
    return seen


def _read_item(seen: Trajectory, kind: str, item: Mapping[str, Any], installed: InstalledProgram) -> None:
    what = item.get("type")
    if what == "command_execution":
        command = str(item.get("command"))
        seen.moves()
        if kind == "item.started":
            seen.step("command", command)
        else:
            seen.step(f"exit {item.get('exit_code')}", str(item.get("aggregated_output")))
            # Codex reads a skill by a command and says nothing else of it.
            seen.reads(command, installed.places)
    elif kind == "item.completed" and what == "agent_message":
        seen.moves()
        seen.output = str(item.get("text"))
        seen.step("agent", seen.output)
    elif kind == "item.completed" and what != "reasoning":
        if what in ("file_change", "mcp_tool_call", "web_search", "todo_list"):
            seen.moves()
        seen.step(str(what), {key: value for key, value in item.items() if key not in ("id", "type")})


def _add_usage(seen: Trajectory, usage: object) -> None:
    if not isinstance(usage, dict):
        return
    numbers = {name: value for name, value in usage.items() if isinstance(value, int)}
    seen.calls += 1
    seen.given += numbers.get("input_tokens", 0)
    seen.got += numbers.get("output_tokens", 0)
