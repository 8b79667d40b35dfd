"""Whether an answer to a question in the client can be a person's.

Claude Code has hooks that answer the questions of a server before a person sees them, and a
repository can bring such a hook. A server that an agent's shell started is asked by that agent. In
both cases, and where Claude Code runs without a person, an "accept" publishes nothing.

What this cannot see: a hook that is named by a command-line option, and an agent's shell that
unsets its variables. Locked approvals hold against both.
"""

import contextlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import evolvable_store
from evolvable_server.config import MARKS
from evolvable_server.person_config import account_home
from evolvable_store import read_regular, regular_file

EVENTS = frozenset({"Elicitation", "ElicitationResult"})
"""The events at which Claude Code lets a hook answer, or change the answer."""

SHELL_MARKS = (
    "CLAUDE_CODE_CHILD_SESSION",
    "COPILOT_CLI",
    "QWEN_CODE",
    "QWEN_CODE_PROMPT_ID",
    "FACTORY_EXEC_TARGET_AUTONOMY",
    *(name for name, client in MARKS.items() if client == "codex"),
)
"""What the clients set in their agents' shells and not in the environment of a server that they
start themselves.

OpenCode, Gemini CLI, and Droid on a terminal, set nothing of their own in a shell that their
servers do not get too.
"""

MAX_BYTES = 1_000_000
"""Of a file of settings that is read for hooks; a longer one counts as if it had one."""

# Folders of the settings of an administrator, by system.
_MANAGED = (
    "/etc/claude-code",
    "/Library/Application Support/ClaudeCode",
    "C:/Program Files/ClaudeCode",
)
_KEY_OF_HOOKS = re.compile(
    r"""(?m)Elicitation|(?:^|[{,])\s*["']?hooks["']?\s*:|"[^"\n]*\\[^"\n]*"\s*:"""
)
"""A key in frontmatter that cannot be read and may be `hooks`; a word in its
description is none.
"""

# Files whose frontmatter may name hooks.
_HEADED = ("skills/*/SKILL.md", "agents/**/*.md", "commands/**/*.md")


def why_unattended(
    environment: Mapping[str, str] = os.environ, project: Path | None = None
) -> str | None:
    """Return why no answer in the client that started this process counts as a person's, None when
    it may.

    project: the folder that is open in the client, by default the working directory.
    """
    if any(environment.get(name) for name in SHELL_MARKS):
        return "this server was started from an agent's shell"
    if environment.get("CLAUDE_CODE_ENTRYPOINT") == "sdk-cli":
        return "the client runs without a person"
    project_dir, config, home = (
        environment.get("CLAUDE_PROJECT_DIR"),
        environment.get("CLAUDE_CONFIG_DIR"),
        account_home(),
    )
    # Both: a variable must not hide the hooks in the account's own folder.
    own = [home / ".claude" if home else None, Path(config) if config else None]
    try:
        opened = [project or Path.cwd(), Path(project_dir) if project_dir else None]
        found = next(
            answering_hooks(list(filter(None, opened)), list(filter(None, own))),
            None,
        )
    except OSError as error:
        # The safe answer: what cannot be read may name such a hook.
        return f"the client's settings cannot be read ({error})"
    return f"{found} names a hook that answers questions, or cannot be read" if found else None


def answering_hooks(opened: list[Path], own: list[Path]) -> Iterator[Path]:
    """Yield the files that name a hook for `EVENTS`, and those of hooks that cannot be read.

    Args:
        opened: Folders that are open in the client; those above them are searched too.
        own: The client's own folders of configuration.
    """
    folders = dict.fromkeys(
        [
            *own,
            *(
                above / ".claude"
                for directory in opened
                for above in (directory, *directory.parents)
            ),
        ]
    )
    for folder in folders:
        settings = (folder / "settings.json", folder / "settings.local.json")
        headed = itertools.chain.from_iterable(folder.glob(pattern) for pattern in _HEADED)
        yield from (path for path in settings if _has_answering_hook(path))
        yield from (path for path in headed if _has_answering_hook(path))
    managed = itertools.chain.from_iterable(
        Path(folder).glob("managed-settings*/**/*.json") for folder in _MANAGED
    )
    single = (Path(folder) / "managed-settings.json" for folder in _MANAGED)
    yield from (path for path in itertools.chain(managed, single) if _has_answering_hook(path))
    plugins = itertools.chain.from_iterable(folder.glob("plugins/**/*.json") for folder in own)
    # Packages of a plugin are no settings, and may be tens of thousands of files.
    yield from (
        path
        for path in plugins
        if "node_modules" not in path.parts and _plugin_has_answering_hook(path)
    )


def _plugin_has_answering_hook(path: Path) -> bool:
    """Return whether a file of a plugin names such a hook.

    Most are no settings: what cannot be read needs the word.
    """
    with contextlib.suppress(OSError):
        data = read_regular(path)
        # JSON may spell the word with escapes.
        if b"Elicitation" in data or b"\\u" in data[:MAX_BYTES]:
            try:
                return _names_event(json.loads(data))
            except (ValueError, RecursionError):
                return b"Elicitation" in data
    return False


def _has_answering_hook(path: Path) -> bool:
    try:
        with open(path, "rb", opener=regular_file) as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return False
    except OSError:
        # A file that is there and cannot be read counts as one with such a hook.
        return path.is_file()
    # Of a document only its head matters, however long it is.
    if len(data) > MAX_BYTES and path.suffix != ".md":
        return True
    text = data.decode("utf-8-sig", "replace")
    if path.suffix == ".md":
        return _head_has_answering_hook(text)
    try:
        return _names_event(json.loads(text))
    except (ValueError, RecursionError):
        return True


def _head_has_answering_hook(text: str) -> bool:
    head = text.removeprefix("---").split("\n---")[0] if text.startswith("---") else ""
    # YAML spells the key with its letters or with escapes.
    if "hooks" not in head and "\\" not in head:
        return False
    try:
        found = evolvable_store.load_yaml(head)
    except (evolvable_store.InvalidYaml, evolvable_store.UnsafeYaml):
        return _KEY_OF_HOOKS.search(head) is not None
    # Of a key that stands twice it is open which one the client takes.
    return _names_event(found.value) or "hooks" in found.repeated


def _names_event(value: object) -> bool:
    """Return whether a mapping has one of the events as a key below `hooks`, at any depth."""
    if isinstance(value, Mapping):
        hooks = value.get("hooks")
        return (isinstance(hooks, Mapping) and not EVENTS.isdisjoint(hooks)) or any(
            map(_names_event, value.values())
        )
    return isinstance(value, list) and any(map(_names_event, value))
