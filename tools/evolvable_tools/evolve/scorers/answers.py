"""Which part of an output is the answer."""

import json
import re
from collections.abc import Iterator
from typing import Any

from evolvable_tools.evolve.scorers.officeqa import final_answer

ANSWERS = ("whole", "last_line", "tagged")
"""What a scorer's argument `answer` may be: all of the output, its last line with text, or what stands in tags."""

_SEARCHED = 200_000  # characters at the end of an output in which JSON between other words is looked for
_TRIES = 500  # brackets at which reading JSON is begun
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n```", re.DOTALL)


def answer_in(output: str, part: str) -> str:
    """Returns the part of the output that is the answer; '' where that part is missing."""
    if part == "last_line":
        return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")
    if part == "tagged":
        try:
            found = final_answer(output)
        except ValueError:
            return ""
        return "" if found == output else found
    return output


def json_in(output: str) -> Any:
    """Returns the JSON value that the output is, or the last fenced one, or the last object or array between words.

    Raises ValueError when there is none.
    """
    for text in (output, *reversed(_FENCED.findall(output))):
        try:
            return _strict(text)
        except (ValueError, RecursionError):
            continue
    found = list(_embedded(output[-_SEARCHED:]))
    if not found:
        raise ValueError("The output has no JSON object or array.")
    return found[-1]


def _embedded(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder(parse_constant=_refused)
    at = 0
    for _ in range(_TRIES):
        start = re.compile(r"[{\[]").search(text, at)
        if not start:
            return
        try:
            value, at = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            at = start.end()
        else:
            yield value


def _strict(text: str) -> Any:
    return json.loads(text, parse_constant=_refused)


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON.")
