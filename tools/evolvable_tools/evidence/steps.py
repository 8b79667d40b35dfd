"""The steps of a skill that can be recognised when somebody takes them: the commands that its document shows."""

import re
from collections.abc import Sequence

from evolvable_tools.evidence.commands import Simple, simple_commands

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_SHELL = frozenset(("", "sh", "bash", "shell", "zsh", "console", "shellsession"))
_EVERYWHERE = frozenset(
    ("cd", "ls", "cat", "echo", "mkdir", "rm", "cp", "mv", "export", "git", "python", "python3", "pip", "npm", "sh")
)
"""Programs that say too little: two words of them are taken in many sessions that never saw the skill."""

Step = tuple[str, str]


def steps_of(document: str) -> frozenset[Step]:
    """Returns the steps in a document: program and first argument of each command that is shown as code.

    What a session does without any skill is none: programs that everybody uses, and a program without an argument.
    """
    blocks = [block for _, language, block in _FENCE.findall(document) if language.casefold() in _SHELL]
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    lines += _INLINE.findall(_FENCE.sub("", document))
    return frozenset(step for line in lines for step in steps_in(simple_commands(line)))


def steps_in(commands: Sequence[Simple]) -> list[Step]:
    """Returns the steps that commands take."""
    return [
        (simple.program, simple.words[1])
        for simple in commands
        if len(simple.words) > 1 and simple.program not in _EVERYWHERE and re.match(r"[\w.-]+$", simple.words[1])
    ]
