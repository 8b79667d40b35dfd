"""What a test reads of an answer of `find_skill`."""

import re
from typing import Any

_REF = re.compile(r"\b(?:skill|prompt|agent|tool|environment|memory):[\w./-]*\w")


def refs_of(answer: dict[str, Any]) -> list[str]:
    """Return the refs that an answer names, in its order, each once, without the further names of a
    choice.
    """
    use, choices = answer.get("use"), answer.get("choices", [])
    named = [use["ref"]] if use else [choice["ref"] for choice in choices]
    named += _REF.findall(answer.get("others", {}).get("text", ""))
    also = answer.get("also", [])
    return list(dict.fromkeys([*named, *(also if use else []), *answer.get("nearest", [])]))


def best_of(answer: dict[str, Any]) -> str:
    """Return the ref that an answer puts first, '' where it has none."""
    return next(iter(refs_of(answer) if answer["verdict"] != "none" else ()), "")
