"""Coding clients that answer one question without a person: their commands, and what they print
around an answer.

Each command reads the question from standard input. It offers its model no tools, and shows no
instructions of a project. What was seen of each, and what it still does beside the question, stands
in docs/review.md.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evolvable_store.errors import InvalidArgument
from evolvable_tools.llm.language_model import ProviderError, Request, parse_json, printable_line

CLAUDE_CODE = (
    *("claude", "-p", "--output-format", "json", "--no-session-persistence", "--strict-mcp-config"),
    *("--setting-sources", "", "--disable-slash-commands", "--tools", ""),
)
"""Claude Code that only answers: no tools, servers, hooks or skills of the user's, and no
transcript.
"""

CODEX = (
    *("codex", "exec", "--json", "--ephemeral", "--skip-git-repo-check", "--sandbox", "read-only"),
    *("--ignore-user-config", "--disable", "shell_tool", "--disable", "unified_exec"),
    *("--config", 'web_search="disabled"', "-"),
)
"""Codex that only answers: no commands, search, settings or servers of the user's, and no
transcript.
"""

COPILOT = (
    *("copilot", "--output-format", "json", "--stream", "off", "--available-tools=none"),
    *("--disable-builtin-mcps", "--no-custom-instructions", "--no-ask-user", "--no-auto-update"),
    *("--no-remote", "--no-remote-export"),
)
"""Copilot CLI that only answers: no tools and no instructions.

It keeps a transcript, and starts the user's servers.
"""

OPENCODE = (
    *("opencode", "run", "--format", "json", "--pure", "--title", "Evolvable"),
    *("--agent", "evolvable-review"),
)
"""OpenCode that only answers, as an agent without tools; no plugins. It keeps a transcript."""

_QWEN_TOOLS = (
    "agent cron_create cron_delete cron_list edit enter_worktree exit_worktree get_goal glob "
    "grep_search list_agents loop_wakeup notebook_edit read_file read_mcp_resource "
    "record_artifact report_findings run_shell_command send_message skill task_stop tool_call "
    "tool_search update_goal web_fetch write_file zoom_image"
)
"""The tools of Qwen Code, which has no option that takes all away and leaves the
person's sign-in.
"""

QWEN = (
    *("qwen", "-o", "json", "--safe-mode", "--chat-recording", "false", "--approval-mode", "plan"),
    *("--exclude-tools", _QWEN_TOOLS.replace(" ", ",")),
    *("--system-prompt", "Answer the question. Use no tools."),
)
"""Qwen Code that only answers: no tools, servers, hooks, extensions or context of the user's, and
no transcript.
"""

DROID = ("droid", "exec", "-o", "json", "--only-tools", "ToolSearch", "--disable-builtin-skills")
"""Droid that only answers: its one tool searches for others and finds none. It keeps a transcript,
and starts the user's servers.
"""

HEADLESS_COMMANDS: Mapping[str, tuple[str, ...]] = {
    words[0]: words for words in (CLAUDE_CODE, CODEX, COPILOT, OPENCODE, QWEN, DROID)
}
"""Program -> the command by which it answers a question."""

# Both settings by which OpenCode takes tools away from an agent.
_AGENT = {
    "mode": "primary",
    "prompt": "Answer the question. Use no tools.",
    "permission": {"*": "deny"},
}
_OPENCODE_CONFIG = {"agent": {"evolvable-review": {**_AGENT, "tools": {"*": False}}}}


def headless_environment(command: Sequence[str]) -> dict[str, str]:
    """Return the variables that a command of `HEADLESS_COMMANDS` needs besides, {} for
    any other.
    """
    if tuple(command) != OPENCODE:
        return {}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(_OPENCODE_CONFIG)}


def command_of(text: str) -> tuple[str, ...]:
    """Return the command that a text names: a client alone as it only answers, any other as a shell
    reads it.

    Of an empty text the command is empty. Raises InvalidArgument for a quote without its end; the
    text, which may hold a secret, is not shown.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        what = str(error)[:1].lower() + str(error)[1:]
        hint = "Quote it as for a shell, or say claude or codex alone."
        # `from None`: the text is not shown, since it may hold a secret.
        raise InvalidArgument(
            f"The command that is to think cannot be read: {what}.", hint
        ) from None
    return HEADLESS_COMMANDS.get(words[0], words) if len(words) == 1 else words


def printed_events(out: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of the output: it is one, a list of them, or has one in each line."""
    # Some clients print one document, others, such as Codex, an event in each line.
    whole = parse_json(out)
    if not isinstance(whole, dict | list):
        whole = map(parse_json, out.split("\n"))
    parts = [whole] if isinstance(whole, dict) else whole
    yield from (part for part in parts if isinstance(part, dict))


def answer_text(event: Mapping[str, Any], client_name: str) -> str | None:
    """Return what the model says in an event of a client, None for any other.

    Raises ProviderError for a failure.
    """
    if (why := _read_failure(event)) is not None:
        hint = "Run it by hand and see whether it is signed in."
        raise ProviderError(f"{client_name} failed: {printable_line(why)}", hint)
    kind, item, part, data = (event.get(key) for key in ("type", "item", "part", "data"))
    # Claude Code, and clients that print like it.
    if kind == "result" and ("result" in event or "is_error" in event):
        structured = event.get("structured_output")
        return json.dumps(structured) if isinstance(structured, dict) else str(event.get("result"))
    # Codex: an item may also be a command or a thought.
    if kind == "item.completed" and isinstance(item, dict) and item.get("type") == "agent_message":
        return str(item.get("text"))
    if kind == "text" and isinstance(part, dict) and part.get("type") == "text":  # OpenCode
        return str(part.get("text"))
    if kind == "assistant.message" and isinstance(data, dict):  # Copilot CLI
        return str(data.get("content"))
    return None


def _read_failure(event: Mapping[str, Any]) -> str | None:
    """Return why a client says that it failed, None for an event that says no such thing."""
    kind, error, data = event.get("type"), event.get("error"), event.get("data")
    message = error.get("message") if isinstance(error, dict) else None
    if kind == "turn.failed":  # Codex
        return str(message or error)
    # Claude Code, and clients that print like it.
    if kind == "result" and event.get("is_error"):
        return str(event.get("result") or message or event.get("subtype"))
    if kind == "error" and isinstance(error, dict):  # OpenCode
        details = error.get("data")
        detail = details.get("message") if isinstance(details, dict) else None
        return str(detail or message or error.get("name"))
    if kind == "session.error" and isinstance(data, dict):  # Copilot CLI
        return str(data.get("message"))
    return None


def report_usage(request: Request, events: Sequence[Mapping[str, Any]]) -> None:
    """Report the tokens and the money that a client's events name, of a failure too."""
    for event in events:
        usage, money = _read_usage(event)
        if usage is None:
            continue
        # Codex counts what was cached with the rest, Claude Code beside it.
        tokens_in = sum(_bound_number(usage.get(key)) for key in ("input_tokens", *_CACHED))
        if request.spent is not None and tokens_in:
            request.spent(int(tokens_in), int(_bound_number(usage.get("output_tokens"))))
        if request.paid is not None and isinstance(money, int | float):
            request.paid(_bound_number(money))


def _read_usage(event: Mapping[str, Any]) -> tuple[dict[str, Any] | None, object]:
    """Return the tokens that an event names, by Claude Code's names, and the dollars."""
    usage, part = event.get("usage"), event.get("part")
    if event.get("type") in ("result", "turn.completed") and isinstance(usage, dict):
        return usage, event.get("total_cost_usd")
    if event.get("type") != "step_finish" or not isinstance(part, dict):
        return None, None
    tokens = part.get("tokens")
    if not isinstance(tokens, dict):
        return None, None
    cache = tokens.get("cache")
    cached = sum(_bound_number(each) for each in cache.values()) if isinstance(cache, dict) else 0.0
    tokens_in = _bound_number(tokens.get("input")) + cached
    tokens_out = _bound_number(tokens.get("output")) + _bound_number(tokens.get("reasoning"))
    # OpenCode says 0 of a model whose price it does not know.
    money = part.get("cost") or None
    return {"input_tokens": tokens_in, "output_tokens": tokens_out}, money


def _bound_number(value: object) -> float:
    # Bounded: the output of a command is not trusted, and a sum of such numbers goes into the
    # ledger.
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
    return float(value) if is_number else 0.0  # type: ignore[arg-type]


_CACHED = ("cache_creation_input_tokens", "cache_read_input_tokens")
