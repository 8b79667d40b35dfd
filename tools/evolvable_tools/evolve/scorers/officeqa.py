"""EvoSkill's scorer, with everything that is wrong with it: for comparing with its paper, not for judging answers.

What it does was described from its behaviour (the vectors in tests/evolve) and is written anew here. Known flaws that
are kept: units never enter the comparison, a list of guesses passes, `cat` is found in `concatenate`.
`numeric_strict` has none of them.
"""

import re

TOLERANCES = (0.05, 0.01, 0.1, 0.0, 0.025)
"""The relative tolerances of the graded score, in the order in which they are added up."""

FAIL_BELOW = 0.8
"""A graded score below this is a failure to learn from."""

_NUMBER = re.compile(r"-?\d+\.?\d*%?")
_AROUND = 20  # characters on each side of a number that are its context
_UNITS = (
    ("trillion", 1e12, re.compile(r"\btrillions?\b")),
    ("billion", 1e9, re.compile(r"\b(?:billions?|b)\b")),
    ("million", 1e6, re.compile(r"\b(?:millions?|m)\b")),
    ("thousand", 1e3, re.compile(r"\b(?:thousands?|k)\b")),
)
_UNIT_WORDS = re.compile(r"\b(?:trillions?|billions?|millions?|thousands?|hundreds?|percent|percentage|%)\b")
_TAGGED = re.compile(r"<FINAL_ANSWER>\s*(.*?)\s*</FINAL_ANSWER>", re.DOTALL | re.IGNORECASE)

Number = tuple[float, str, bool, bool]
"""A number found in a text: its value, its context, whether it is a percentage, whether it is negative."""


def officeqa_compat(expected: str, output: str, rel_tol: float) -> float:
    """Returns 1.0 where the output is right by EvoSkill's rules within the relative tolerance, else 0.0.

    Raises ValueError for an empty text, and for a tolerance outside [0, 1].
    """
    if not expected:
        raise ValueError("Ground truth cannot be empty")
    if not output:
        raise ValueError("Predicted answer cannot be empty")
    if not 0 <= rel_tol <= 1:
        raise ValueError(f"Tolerance must be between 0 and 1, got {rel_tol}")
    wanted = [value for value, *_ in numbers(expected)]
    found = [value for value, *_ in numbers(output)]
    if not wanted or not found:
        return float(_plain(expected) in _plain(output))
    if (
        len(wanted) == 1
        and (is_year(wanted[0]) or significant_text(expected)[0])
        or len(wanted) > 1
        and any(map(is_year, wanted))
    ):
        kept = found
    else:
        kept = [value for value in found if not is_year(value)]
    near = all(any(_near(value, guess, rel_tol) for guess in kept) for value in wanted)
    return float(near and text_overlaps(expected, output))


def officeqa_graded(expected: str, output: str) -> float:
    """Returns the mean over TOLERANCES, each weighing 1 / (1 + 20 tolerance); 0.0 for an empty output.

    Raises ValueError for an empty expected text.
    """
    if not output:
        return 0.0
    weighted = total = 0.0
    for tolerance in TOLERANCES:
        weight = 1.0 / (1.0 + 20.0 * tolerance)
        weighted += weight * officeqa_compat(expected, output, tolerance)
        total += weight
    return weighted / total


def numbers(text: str) -> list[Number]:
    """Returns the numbers in a text, commas left out of them. Raises ValueError for an empty text."""
    if not text:
        raise ValueError("Cannot extract numbers from empty text")
    plain = text.replace("\u2212", "-").replace(",", "")
    found = []
    for match in _NUMBER.finditer(plain):
        around = plain[max(0, match.start() - _AROUND) : match.end() + _AROUND].lower()
        written = match[0]
        found.append((float(written.rstrip("%")), around, written.endswith("%"), written.startswith("-")))
    return found


def unit(context: str) -> tuple[str | None, float]:
    """Returns the unit named in a context, and what it multiplies by; (None, 1.0) without one."""
    low = context.lower()
    return next(((name, factor) for name, factor, words in _UNITS if words.search(low)), (None, 1.0))


def is_year(value: float) -> bool:
    """Returns whether the number looks like a year: whole, from 1900 to 2100."""
    return 1900 <= value <= 2100 and value == int(value)


def significant_text(text: str) -> tuple[bool, str]:
    """Returns what a text says besides numbers, unit words and punctuation, and whether that is two characters."""
    if not text:
        return False, ""
    rest = _NUMBER.sub("", text.lower().replace("\u2212", "-")).replace(",", "")
    rest = re.sub(r"[^\w\s]", " ", _UNIT_WORDS.sub("", rest))
    rest = " ".join(rest.split())
    return len(rest) >= 2, rest


def text_overlaps(expected: str, output: str) -> bool:
    """Returns whether what both say besides numbers agrees: one contains the other, or nothing was expected."""
    wanted, said = significant_text(expected), significant_text(output)
    if not wanted[0]:
        return True
    return said[0] and (wanted[1] in said[1] or said[1] in wanted[1])


def final_answer(text: str) -> str:
    """Returns what stands between FINAL_ANSWER tags, or all of a text without them. Raises ValueError for nothing."""
    if not text:
        raise ValueError("Cannot extract from empty text")
    found = _TAGGED.search(text)
    if not found:
        return text
    if not found[1].strip():
        raise ValueError("FINAL_ANSWER tags are empty")
    return found[1].strip()


def _near(value: float, guess: float, rel_tol: float) -> bool:
    if value == 0:
        return guess == 0
    return abs(value - guess) / abs(value) <= rel_tol


def _plain(text: str) -> str:
    """Returns the text as whole answers are compared: small, without quotes at its ends and without parentheses."""
    bare = text.strip().lower().strip('"').strip("'")
    return re.sub(r"\([^)]*\)", "", bare).strip()
