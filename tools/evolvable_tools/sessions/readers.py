"""Which client wrote a transcript: each line counts for the format that knows it, and the most
lines decide.
"""

from typing import Any

from evolvable_tools.sessions.copilot_format import CopilotFormat, is_copilot
from evolvable_tools.sessions.droid_format import DroidFormat, is_droid
from evolvable_tools.sessions.gemini_format import GeminiFormat, is_gemini
from evolvable_tools.sessions.kimi_format import KimiFormat, is_kimi
from evolvable_tools.sessions.message_list import MessageListFormat
from evolvable_tools.sessions.qwen_format import QwenFormat, is_qwen
from evolvable_tools.sessions.transcript_formats import (
    CLAUDE_CODE_TYPES,
    CODEX_TYPES,
    ClaudeCodeFormat,
    CodexFormat,
    TranscriptFormat,
)


def reader_of(first: list[dict[str, Any]]) -> TranscriptFormat:
    """Return the reader of a file by its first lines."""
    codex = sum(
        str(record.get("type")) in CODEX_TYPES and isinstance(record.get("payload"), dict)
        for record in first
    )
    of_claude = (record for record in first if str(record.get("type")) in CLAUDE_CODE_TYPES)
    claude = sum(bool({"sessionId", "message"} & record.keys()) for record in of_claude)
    qwen, droid, copilot = (sum(map(knows, first)) for knows in (is_qwen, is_droid, is_copilot))
    gemini, kimi = sum(map(is_gemini, first)), sum(map(is_kimi, first))
    # Gemini and Kimi count only with more lines than every other format; ties are decided below.
    older = max(codex, claude, qwen, droid, copilot)
    if max(gemini, kimi) > older:
        return GeminiFormat() if gemini > kimi else KimiFormat()
    if copilot > max(codex, claude, qwen, droid):
        return CopilotFormat()
    if codex > max(claude, qwen, droid):
        return CodexFormat()
    if droid > claude:
        return DroidFormat()
    # Qwen Code writes Claude Code's envelope, so most of its lines count for both.
    if qwen * 2 > claude:
        return QwenFormat(_find_agent(first))
    return ClaudeCodeFormat(_find_agent(first)) if claude else MessageListFormat()


def _find_agent(first: list[dict[str, Any]]) -> str | None:
    """Return the subagent of a file that is one's own: every line of the conversation in it says
    so.
    """
    conversation = [record for record in first if record.get("type") in ("user", "assistant")]
    if conversation and all(record.get("isSidechain") is True for record in conversation):
        return str(conversation[0].get("agentId") or "sidechain")[:80]
    return None
