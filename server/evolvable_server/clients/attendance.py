"""Tell whether an answer to a question in the client can be a person's.

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
"""Variables that clients set in their agents' shells and not for a server that they start.

OpenCode, Gemini CLI, and Droid on a terminal, have no such variable.
"""

MAX_BYTES = 1_000_000
"""Bytes of a file of settings that is read for hooks; a longer one counts as if it had one."""

# Folders of the settings of an administrator, by system.
_MANAGED = (
    "/etc/claude-code",
    "/Library/Application Support/ClaudeCode",
    "C:/Program Files/ClaudeCode",
)
_HOOKS_KEY = re.compile(
    r"""(?m)Elicitation|(?:^|[{,])\s*["']?hooks["']?\s*:|"[^"\n]*\\[^"\n]*"\s*:"""
)
"""A key that may be `hooks`, in frontmatter that cannot be parsed; a word of a text is none."""

# Files whose frontmatter may name hooks.
_WITH_FRONTMATTER = ("skills/*/SKILL.md", "agents/**/*.md", "commands/**/*.md")


def why_unattended(
    environment: Mapping[str, str] = os.environ, project: Path | None = None
) -> str | None:
    """Return why no answer in the client counts as a person's, None when it may.

    environment: of this process, which the client started. project: the folder that is open in the
    client, by default the working directory.
    """
    if any(environment.get(name) for name in SHELL_MARKS):
        return "this server was started from an agent's shell"
    if environment.get("CLAUDE_CODE_ENTRYPOINT") == "sdk-cli":
        return "the client runs without a person"
    own = []
    # Both folders: a variable must not hide the hooks in the account's own folder.
    if home := account_home():
        own.append(home / ".claude")
    if config := environment.get("CLAUDE_CONFIG_DIR"):
        own.append(Path(config))
    try:
        opened = [project or Path.cwd()]
        if project_dir := environment.get("CLAUDE_PROJECT_DIR"):
            opened.append(Path(project_dir))
        path = next(answering_hooks(opened, own), None)
    except OSError as error:
        # The safe answer: a file that cannot be read may name such a hook.
        return f"the client's settings cannot be read ({error})"
    return f"{path} names a hook that answers questions, or cannot be read" if path else None


def answering_hooks(opened: list[Path], own: list[Path]) -> Iterator[Path]:
    """Yield the files that name a hook for `EVENTS`, and those that may and cannot be read.

    Args:
        opened: Folders that are open in the client; those above them are searched too.
        own: The client's own folders of configuration.
    """
    places = [place for directory in opened for place in (directory, *directory.parents)]
    for folder in dict.fromkeys([*own, *(place / ".claude" for place in places)]):
        settings = (folder / "settings.json", folder / "settings.local.json")
        documents = itertools.chain.from_iterable(map(folder.glob, _WITH_FRONTMATTER))
        yield from filter(_has_answering_hook, itertools.chain(settings, documents))
    for folder in map(Path, _MANAGED):
        managed = [*folder.glob("managed-settings*/**/*.json"), folder / "managed-settings.json"]
        yield from filter(_has_answering_hook, managed)
    for folder in own:
        for path in folder.glob("plugins/**/*.json"):
            # The packages of a plugin are no settings, and may be tens of thousands of files.
            if "node_modules" not in path.parts and _plugin_has_answering_hook(path):
                yield path


def _plugin_has_answering_hook(path: Path) -> bool:
    """Return whether a file of a plugin names such a hook.

    Most files are no settings, so one that cannot be parsed counts only with the word in it.
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
    # Of a document only the frontmatter matters, however long the document is.
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
        frontmatter = evolvable_store.load_yaml(head)
    except (evolvable_store.InvalidYaml, evolvable_store.UnsafeYaml):
        return _HOOKS_KEY.search(head) is not None
    # Of a key that stands twice, the client may take either value.
    return _names_event(frontmatter.value) or "hooks" in frontmatter.repeated


def _names_event(value: object) -> bool:
    """Return whether a mapping has one of the events as a key below `hooks`, at any depth."""
    if isinstance(value, list):
        return any(map(_names_event, value))
    if not isinstance(value, Mapping):
        return False
    hooks = value.get("hooks")
    if isinstance(hooks, Mapping) and not EVENTS.isdisjoint(hooks):
        return True
    return any(map(_names_event, value.values()))
