"""The hooks of a client that `connect --hooks` writes and `disconnect` takes out.

A client has them in a file of their own, which is written whole, or as items of lists in its
settings, where everything else stays as it is.
"""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolvable_server.clients import config_files
from evolvable_server.clients.client import Start
from evolvable_server.clients.json_edit import EMPTY, add_json_item, remove_json_items
from evolvable_server.config import Machine
from evolvable_server.environment import CONFIG, HOME
from evolvable_store.errors import Refused

MARKS = ("evolvable-hook", "evolvable_server.hooks")
"""Texts of which every command of our hooks has one."""

_PLUGIN = Path(__file__).with_name("opencode_plugin.js")


class NotOurHooks(Refused):
    """The file with the name of our hooks holds something else."""


@dataclass(frozen=True, slots=True)
class HookForm:
    """The form of a client's hooks.

    file: its path below a folder of `Machine`. events: its names of the events that act. style:
    `copilot` and `opencode` are files of our own; `claude` is Claude Code's form in a file of
    settings. timeout: in the client's unit.
    """

    file: str
    style: str
    events: Sequence[str] = ()
    timeout: int = 10


FORMS: Mapping[str, HookForm] = {
    "copilot": HookForm(
        "copilot/hooks/evolvable.json",
        "copilot",
        ("userPromptSubmitted", "postToolUse", "agentStop", "sessionEnd"),
    ),
    # Qwen Code counts in milliseconds, the others in seconds.
    "qwen": HookForm(
        "user/.qwen/settings.json", "claude", ("UserPromptSubmit", "PostToolUse", "Stop"), 10_000
    ),
    "droid": HookForm(
        "user/.factory/settings.json",
        "claude",
        ("UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd"),
    ),
    "opencode": HookForm("settings/opencode/plugins/evolvable.js", "opencode"),
}
"""Client -> the form of its hooks. Claude Code and Codex get theirs with the plugin."""


def has_hooks(client: str) -> bool:
    """Return whether `connect` can write the hooks of a client."""
    return client in FORMS


@dataclass(frozen=True, slots=True)
class HookCommand:
    """The command of a hook: a program with its words, and the variables that name the library."""

    words: tuple[str, ...]
    env: Mapping[str, str]

    def shell(self, *more: str) -> str:
        """Return the command for the shell with which a client starts it here."""
        words = [*self.words, *more]
        # cmd.exe has no `env`. Quotes around the whole assignment keep its special characters.
        if sys.platform == "win32":
            sets = "".join(f'set "{name}={value}"&& ' for name, value in self.env.items())
            return sets + " ".join(f'"{word}"' for word in words)
        if self.env:
            words = ["env", *(f"{name}={value}" for name, value in self.env.items()), *words]
        return shlex.join(words)

    def powershell(self, *more: str) -> str:
        """Return the command for PowerShell."""
        sets = "".join(f"$env:{name} = {_quote(value)}; " for name, value in self.env.items())
        return f"{sets}& {' '.join(map(_quote, (*self.words, *more)))}"


def _quote(text: str) -> str:
    # Between single quotes PowerShell expands nothing; a quote inside is doubled.
    return "'" + text.replace("'", "''") + "'"


def hook_command(start: Start) -> HookCommand:
    """Return the command of the hooks, for the installation and the library of a server's start."""
    # A client starts hooks without the variables of the server's entry.
    env = {key: start.env[key] for key in (HOME, CONFIG) if key in start.env}
    server = Path(start.command)
    program = server.with_name("evolvable-hook" + server.suffix)
    if program.is_file():
        return HookCommand((str(program),), env)
    # Without the script, this Python runs the module; -P keeps a project's modules out.
    return HookCommand(
        (sys.executable, "-P", "-c", "from evolvable_server.hooks.command import main; main()"), env
    )


def hooks_path(machine: Machine, client: str) -> Path | None:
    """Return the file with the hooks of a client, None for a client without hooks of ours."""
    form = FORMS.get(client)
    if form is None:
        return None
    root, _, rest = form.file.partition("/")
    folder: Path = getattr(machine, root)
    return folder / rest


def write_hooks(
    machine: Machine, client: str, start: Start, stamp: str, *, dry_run: bool = False
) -> bool:
    """Write the hooks of a client that has a form; return whether its file changed.

    Raise NotOurHooks, and the errors of reading and writing a configuration. The file is then as it
    was.
    """
    form, path, command = FORMS[client], hooks_path(machine, client), hook_command(start)
    assert path is not None
    if form.style == "claude":
        configuration = config_files.read_configuration(path)
        text = _add_items(configuration, form, command, client)
    else:
        configuration = config_files.read_raw_configuration(path)
        _check_is_own(configuration)
        text = _make_own_file(form, command, client)
    if configuration.data == text.encode("utf-8"):
        return False
    if not dry_run:
        # A file of our own can be made again; settings of a person cannot.
        config_files.write_configuration(
            configuration, text, private=True, stamp=stamp, backup=form.style == "claude"
        )
    return True


def remove_hooks(machine: Machine, client: str, stamp: str, *, dry_run: bool = False) -> bool:
    """Take the hooks of a client out; return whether a file changed. Raise as `write_hooks`."""
    form, path = FORMS.get(client), hooks_path(machine, client)
    if form is None or path is None:
        return False
    if form.style == "claude":
        configuration = config_files.read_configuration(path)
        text = _remove_items(configuration, form)
        if text == configuration.text:
            return False
        if not dry_run:
            config_files.write_configuration(configuration, text, private=True, stamp=stamp)
        return True
    configuration = config_files.read_raw_configuration(path)
    if configuration.data is None or not _is_own(configuration.data):
        return False
    if not dry_run:
        path.unlink()
    return True


def _is_own(data: bytes) -> bool:
    return any(mark.encode() in data for mark in MARKS)


def _check_is_own(configuration: config_files.Configuration) -> None:
    if configuration.data is not None and not _is_own(configuration.data):
        raise NotOurHooks(
            f"{configuration.path} holds no hooks of ours.",
            "It was left alone; move it away, and try again.",
        )


def _make_own_file(form: HookForm, command: HookCommand, client: str) -> str:
    """Return the text of a file that holds our hooks alone."""
    if form.style == "opencode":
        text = _PLUGIN.read_text(encoding="utf-8")
        text = text.replace('["evolvable-hook"]', json.dumps(list(command.words)), 1)
        return text.replace("ENVIRONMENT = {}", f"ENVIRONMENT = {json.dumps(dict(command.env))}", 1)
    hooks = {
        event: [
            {
                "type": "command",
                "bash": command.shell(event, client),
                "powershell": command.powershell(event, client),
                "timeoutSec": form.timeout,
            }
        ]
        for event in form.events
    }
    return json.dumps({"version": 1, "hooks": hooks}, indent=2, ensure_ascii=False) + "\n"


def _add_items(
    configuration: config_files.Configuration, form: HookForm, command: HookCommand, client: str
) -> str:
    """Return the text of settings with one item of ours in the list of each event.

    Older items of ours are replaced.
    """
    items = {event: _make_item(form, command.shell(event, client)) for event in form.events}
    hooks = configuration.values.get("hooks")
    lists = hooks if isinstance(hooks, dict) else {}

    def is_there(event: str) -> bool:
        return isinstance(lists.get(event), list) and items[event] in lists[event]

    if all(map(is_there, items)):
        return configuration.text
    text = (
        _remove_items(configuration, form) if configuration.text.strip("\ufeff \t\r\n") else EMPTY
    )
    with config_files.report_edit_errors(configuration.path, configuration.text):
        for event, item in items.items():
            text = add_json_item(text, ("hooks", event), item)
    return text


def _make_item(form: HookForm, command: str) -> dict[str, Any]:
    return {
        "matcher": "*",
        "hooks": [{"type": "command", "command": command, "timeout": form.timeout}],
    }


def _remove_items(configuration: config_files.Configuration, form: HookForm) -> str:
    text = configuration.text
    if not text.strip("\ufeff \t\r\n"):
        return text
    with config_files.report_edit_errors(configuration.path, configuration.text):
        for event in form.events:
            text = remove_json_items(text, ("hooks", event), _is_our_item)
    return text


def _is_our_item(item: Any) -> bool:
    hooks = item.get("hooks") if isinstance(item, dict) else None
    if not isinstance(hooks, list) or not hooks:
        return False
    commands = [str(hook.get("command")) if isinstance(hook, dict) else "" for hook in hooks]
    # An item in which a person added a command of their own stays.
    return all(any(mark in command for mark in MARKS) for command in commands)
