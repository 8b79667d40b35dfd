"""What a person typed, told from what the client put around it: reminders, hook contexts, outputs, boot files."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from evolvable_tools.sessions.session import Origin

_TAGS = {
    Origin.MEMORY: (
        "system-reminder system_reminder environment_context user_instructions permissions user-prompt-submit-hook "
        "session-start-hook post-tool-use-hook pre-tool-use-hook additional-context local-command-caveat command-name "
        "command-message command-contents turn_aborted task-notification task_notification subagent_notification "
        "teammate-message cross-session-message ide_opened_file new-diagnostics ide_diagnostics INSTRUCTIONS "
        "collaboration_mode apps_instructions plugins_instructions user_action model_switch personality_spec "
        "context_summary remote_trigger scheduled-task send_user_message_question_reply hook_context persisted-context"
    ),
    Origin.COMMAND: (
        "local-command-stdout local-command-stderr bash-stdout bash-stderr user_shell_command background-task-output"
    ),
    Origin.REPOSITORY: "ide_selection file-content file_content",
    Origin.SKILL: "skill skills_instructions",
    Origin.MCP: "mcp-resource mcp_resource channel",
}
_ORIGINS = {tag: origin for origin, tags in _TAGS.items() for tag in tags.split()}
_TYPED = frozenset(("command-args", "bash-input", "user-memory-input"))
_OPEN = re.compile(rf"<({'|'.join(map(re.escape, [*_ORIGINS, *_TYPED]))})(?=[\s>])[^>\n]{{0,500}}>")
_WHOLE = (
    ("# AGENTS.md instructions", Origin.MEMORY),
    ("# CLAUDE.md", Origin.MEMORY),
    ("Base directory for this skill:", Origin.SKILL),
    ("Caveat: The messages below were generated", Origin.MEMORY),
    ("[Request interrupted by user", Origin.MEMORY),
    ("This session is being continued from a previous conversation", Origin.ASSISTANT),
    ("Another language model started to solve this problem", Origin.ASSISTANT),
)
_SKILL_NAME = re.compile(
    r"<name>\s*([\w.:@/-]{1,120})\s*</name>"
    r"|Base directory for this skill:\s*\S*?/([\w.@-]+)\s*$",
    re.MULTILINE,
)
_CODEX_REQUEST = re.compile(
    r"^# Context from my IDE setup:.*?^## My request for Codex:[ \t]*\n", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a message in a person's name, and where it came from. skill: whose text it is."""

    origin: Origin
    text: str
    skill: str | None = None


def parts(text: str) -> Iterator[Part]:
    """Yields the parts of a message that a client notes as the user's, in order; typed are those of origin USER."""
    start = text.lstrip()
    for beginning, origin in _WHOLE:
        if start.startswith(beginning):
            yield Part(origin, text, skill_name(text) if origin is Origin.SKILL else None)
            return
    setup = _CODEX_REQUEST.match(text) if start.startswith("# Context from my IDE setup:") else None
    if setup is not None:
        yield Part(Origin.MEMORY, setup[0])
        text = text[setup.end() :]
    command = ""
    for part, tag in _cut(text):
        if tag == "command-name":
            command = part.text.strip()
        elif tag == "command-args":
            said = part.text.strip()
            if said:
                yield Part(Origin.USER, f"{command} {said}".strip())
            continue
        if part.text.strip():
            yield part


def _cut(text: str) -> Iterator[tuple[Part, str]]:
    """Yields each part with the tag that it stood in, '' for what stood in none."""
    at = 0
    while (opening := _OPEN.search(text, at)) is not None:
        tag = opening[1]
        closing = text.find(f"</{tag}>", opening.end())
        end = len(text) if closing < 0 else closing + len(tag) + 3
        yield Part(Origin.USER, text[at : opening.start()]), ""
        inner = text[opening.end() : closing if closing >= 0 else len(text)]
        if tag in _TYPED:
            yield Part(Origin.USER, f"! {inner}" if tag == "bash-input" else inner), tag
        else:
            origin = _ORIGINS[tag]
            yield Part(origin, inner, skill_name(inner) if origin is Origin.SKILL else None), tag
        at = end
    yield Part(Origin.USER, text[at:]), ""


def skill_name(text: str) -> str | None:
    """Returns the name of the skill whose text a client put into the context, None where it does not say."""
    found = _SKILL_NAME.search(text[:2_000])
    return (found[1] or found[2]) if found else None
