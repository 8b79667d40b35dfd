"""Sessions that are themselves reviews, or in which another tool watches a session: nothing is learned from them."""

import re

from evolvable_tools.marks import REVIEWING_MARK

__all__ = ["READ", "REVIEWING_MARK", "is_reviewing"]

READ = 4_000
"""Characters of a session's first messages that are looked at."""

# Each is how a tool's own prompt begins, or a tag that nobody types.
_PROMPTS = re.compile(
    "|".join(
        (
            rf"(?:<|\b){REVIEWING_MARK}\b",
            r"\A\s*You review a finished session of a coding agent\b",
            r"\A\s*You choose which of a few entries of a library\b",
            r"<observed_from_primary_session>|\bYou are a Claude-Mem\b|\AHello memory agent\b",
            r"\A\s*You are (?:a |an |the )?(?:background|session|transcript|memory)[ -]"
            r"(?:review(?:er)?|observer|reflection)\b",
            r"\A\s*You are (?:analy[sz]ing|reviewing|observing|summari[sz]ing) "
            r"(?:a|an|the|this) (?:\w+ ){0,4}(?:session|transcript)\b",
            r"\A\s*Your task is to create a detailed summary of the conversation so far\b",
            r"\A\s*Analy[sz]e this (?:Claude Code|Codex|agent) (?:session|transcript)\b",
        )
    ),
    re.IGNORECASE,
)
_FOLDERS = re.compile(r"[/\\]\.claude-mem(?:[/\\]|$)|[/\\]observer-sessions(?:[/\\]|$)")


def is_reviewing(first_words: str, project: str | None) -> bool:
    """Returns whether a session is a reviewing one, by the first words it was given and the folder it worked in."""
    if project is not None and _FOLDERS.search(project):
        return True
    return _PROMPTS.search(first_words[:READ]) is not None
