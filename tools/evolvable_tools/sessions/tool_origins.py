"""Where the result of a tool came from: by the tool, and for files and commands by what they reached for."""

import os
import re
from collections.abc import Mapping
from typing import Any

from evolvable_tools.sessions.session import Origin


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


COMMANDS = _words(
    "Bash BashOutput KillShell KillBash TaskOutput Monitor PowerShell exec_command shell shell_command local_shell "
    "local_shell_call container.exec write_stdin unified_exec exec"
)
_FILES = _words(
    "Read NotebookRead Grep Glob LS Edit MultiEdit Write NotebookEdit LSP apply_patch read_file list_dir grep_files "
    "view_image"
)
_WEB = _words("WebFetch WebSearch web_search web_search_call web.run web_fetch browser image_query")
_OWN_WORDS = _words(
    "Task Agent TodoWrite TodoRead ExitPlanMode EnterPlanMode AskUserQuestion TaskCreate TaskUpdate TaskList TaskGet "
    "TaskStop CronCreate CronDelete CronList EnterWorktree ExitWorktree update_plan request_user_input spawn_agent "
    "send_input wait close_agent resume_agent"
)
_CLIENT = _words("ToolSearch tool_search tool_search_call SlashCommand")
_SKILL_TOOLS = frozenset(("Skill", "skill"))

_OURS = re.compile(r"^mcp__(?:plugin_)?evolvable(?:_evolvable)?(?:__|\.)(\w+)$")
_OUR_DOCUMENTS = frozenset(("load_skill", "get_resource"))
# Library texts, packets and proposals: what the library itself says proves nothing.
_PATH_KEYS = ("file_path", "path", "notebook_path", "filePath", "dir_path")

_FETCHES = re.compile(
    r"(?<![\w./-])(?:curl|wget|http|https|xh|lynx|w3m|links|elinks|aria2c|gh|glab|hub|scp|sftp|ftp|nc|telnet|ssh|"
    r"Invoke-WebRequest|iwr|yt-dlp)(?=\s|$)"
    r"|(?:urlopen|requests\.(?:get|post)|httpx\.|fetch\()",
)
_LOCAL_URL = re.compile(r"https?://(?:localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0)", re.IGNORECASE)
_ANY_URL = re.compile(r"https?://", re.IGNORECASE)
_SKILL_FILE = re.compile(
    r"(?:^|[\s'\"=])(\S*?(?:\.claude|\.agents|\.codex|plugins?)/(?:[\w.@~+-]+/)*?skills/(?:[\w.@~+-]+/)*?([\w.@~+-]+)/SKILL\.md)\b"
    r"|(?:^|[\s'\"=/])([\w.@~+-]+)/SKILL\.md\b"
)
_SKILL_PLACE = re.compile(r"(?:^|/)(?:\.claude|\.agents|\.codex)/(?:[^/]+/)*?skills/([^/]+)/")
_MEMORY_FILE = re.compile(
    r"(?:^|[\s'\"/=])(?:CLAUDE(?:\.local)?|AGENTS(?:\.override)?|GEMINI|MEMORY|USER|SOUL)\.md\b|/\.claude/projects/[^/\s]+/memory/"
)
_THIRD_PARTY = re.compile(
    r"(?:^|[/\s'\"])(?:node_modules|site-packages|dist-packages|vendor|third_party|\.venv|venv|\.cargo/registry|go/pkg/mod|Downloads)/"
)
_READS = re.compile(r"(?<![\w./-])(?:cat|head|tail|less|more|nl|bat|sed|awk|grep|rg|Get-Content|type)(?=\s)")


def result_origin(tool: str | None, given: Mapping[str, Any] | None, project: str | None) -> tuple[Origin, str | None]:
    """Returns where the result of a call came from, and the skill that it is the text of, if it is.

    What nobody knows is of third parties.
    """
    given = given or {}
    if tool is None:
        return Origin.MCP, None
    if tool in _SKILL_TOOLS:
        return Origin.SKILL, _first(given, "skill", "name", "command")
    if tool in COMMANDS:
        return _of_command(command_of(given))
    if tool in _FILES:
        return _of_path(_first(given, *_PATH_KEYS), project)
    if tool in _WEB:
        return Origin.WEB, None
    if tool in _OWN_WORDS:
        return Origin.ASSISTANT, None
    if tool in _CLIENT:
        return Origin.MEMORY, None
    ours = _OURS.match(tool)
    if ours is not None:
        return _of_ours(ours[1], given)
    return Origin.MCP, None


def command_of(given: Mapping[str, Any]) -> str:
    """Returns the line of shell that a call runs, '' when it runs none."""
    value = next((given[key] for key in ("command", "cmd", "script") if given.get(key)), "")
    if isinstance(value, list):
        return " ".join(word for word in value if isinstance(word, str))
    return value if isinstance(value, str) else ""


def _of_command(command: str) -> tuple[Origin, str | None]:
    """Returns what a command's output is: text of others when it fetches any, a skill or memory when it reads one."""
    line = command[:20_000]
    if _FETCHES.search(line) and not (
        _LOCAL_URL.search(line) and len(_ANY_URL.findall(line)) == len(_LOCAL_URL.findall(line))
    ):
        return Origin.WEB, None
    if _READS.search(line):
        found = _SKILL_FILE.search(line)
        if found is not None:
            return Origin.SKILL, found[2] or found[3]
        if _MEMORY_FILE.search(line):
            return Origin.MEMORY, None
        if _THIRD_PARTY.search(line):
            return Origin.WEB, None
    return Origin.COMMAND, None


def _of_path(path: str | None, project: str | None) -> tuple[Origin, str | None]:
    if path is None:
        return Origin.REPOSITORY, None
    plain = path.replace("\\", "/")
    skill = _SKILL_PLACE.search(plain) or _SKILL_FILE.search(plain)
    if skill is not None:
        return Origin.SKILL, skill[1] if skill.re is _SKILL_PLACE else skill[2] or skill[3]
    if _MEMORY_FILE.search(plain):
        return Origin.MEMORY, None
    if _THIRD_PARTY.search(plain) or (project is not None and not _lies_in(plain, project)):
        return Origin.WEB, None
    return Origin.REPOSITORY, None


def _lies_in(path: str, project: str) -> bool:
    base = os.path.normpath(project.replace("\\", "/"))
    whole = os.path.normpath(os.path.join(base, path))
    return whole == base or whole.startswith(base.rstrip("/") + "/")


def _of_ours(tool: str, given: Mapping[str, Any]) -> tuple[Origin, str | None]:
    ref = _first(given, "ref") or ""
    kind, colon, name = ref.partition(":")
    if colon and kind != "skill":
        return Origin.MEMORY, None
    if tool in _OUR_DOCUMENTS and ref:
        return Origin.SKILL, (name if colon else ref).partition("@")[0].rpartition("/")[2]
    return Origin.MEMORY, None


def _first(given: Mapping[str, Any], *keys: str) -> str | None:
    return next((given[key] for key in keys if isinstance(given.get(key), str) and given[key]), None)
