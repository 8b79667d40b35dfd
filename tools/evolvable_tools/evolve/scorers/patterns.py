"""The scorer by pattern. It runs in a process of its own, because a pattern can be made to run for ever."""

import json
import re
import sys

from evolvable_tools.evolve.commands import run_command
from evolvable_tools.evolve.scorers.trouble import ScorerTrouble

SECONDS = 5.0
"""How long a pattern may take on one answer; the start of the process is part of it."""

MAX_PATTERN = 2_000
"""Characters."""

FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}

_PROGRAM = """
import json, re, sys
given = json.load(sys.stdin.buffer)
found = re.compile(given["pattern"], given["flags"])
print(int(bool((found.fullmatch if given["whole"] else found.search)(given["text"]))))
"""


def compiled(pattern: str, flags: str) -> "re.Pattern[str]":
    """Returns the pattern, which says whether it is one. Raises ValueError with the reason."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern has {len(pattern):,} characters, the limit is {MAX_PATTERN:,}")
    if unknown := set(flags) - set(FLAGS):
        raise ValueError(f"{''.join(sorted(unknown))!r} are no flags; there are {', '.join(FLAGS)}")
    try:
        return re.compile(pattern, _bits(flags))
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the pattern cannot be read: {error}") from None


async def matches(pattern: str, text: str, *, flags: str = "", whole: bool = False, seconds: float = SECONDS) -> bool:
    """Returns whether the pattern is found in the text, or fits all of it. Raises ScorerTrouble when it takes longer.

    The engine is Python's, the same everywhere: a score must not depend on what else is installed.
    """
    given = {"pattern": pattern, "flags": _bits(flags), "whole": whole, "text": text}
    command = (sys.executable, "-I", "-S", "-c", _PROGRAM)
    try:
        ran = await run_command(command, json.dumps(given).encode(), timeout=seconds)
    except OSError as error:
        raise ScorerTrouble(f"The process for a pattern cannot be started: {error.strerror or error}.") from None
    if ran.code is None:
        raise ScorerTrouble(
            f"The pattern took longer than {seconds:g} s on an answer of {len(text):,} characters.",
            "Take nested repetitions out of it, such as (a+)+.",
        )
    if ran.code or ran.out.strip() not in (b"0", b"1"):
        raise ScorerTrouble(f"The process for a pattern failed: {ran.err.decode(errors='replace')[-200:]}")
    return ran.out.strip() == b"1"


def _bits(flags: str) -> int:
    return int(sum(FLAGS[flag] for flag in set(flags)))
