"""The scorer of DABstep as EvoSkill uses it: for comparing with its figures, not for judging
answers.
"""

import math
import re
from difflib import SequenceMatcher

_WITH_COMMAS = re.compile(r"\$?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+[.,]\d+)\n?")
_NUMBER = re.compile(r"\d*\.\d+|\d+\.?\d*")
_WORD = re.compile(r"\w+")
_CLOSE = 1e-4
_ALIKE = 0.95


def dabstep_compat(expected: str, output: str) -> bool:
    """Return whether two answers count as the same: as numbers, as lists in any order,
    or as texts.
    """
    pair = expected.strip().lower(), output.strip().lower()
    values = _number(pair[0]), _number(pair[1])
    if any(_WITH_COMMAS.fullmatch(text) for text in pair):
        return _same_number(*values)
    if any(sign in text for text in pair for sign in ",;"):
        return _same_list(*pair)
    if None not in values:
        return _same_number(*values)
    return _same_text(*pair)


def _number(text: str) -> float | None:
    found = _NUMBER.search(text.replace(",", "").replace("$", ""))
    return float(found[0]) if found else None


def _same_number(one: float | None, other: float | None) -> bool:
    """Compare to the fewer decimal places of the two, or within a ten thousandth."""
    if one is None or other is None:
        return False
    if one == other:
        return True
    if one >= 1 or other >= 1:
        places = min(_places(one), _places(other))
        if round(one, places) == round(other, places):
            return True
    return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=_CLOSE)


def _places(value: float) -> int:
    whole, dot, decimals = str(value).partition(".")
    return len(decimals) if dot else 0


def _same_list(one: str, other: str) -> bool:
    pairs = sorted(_items(one)), sorted(_items(other))
    return len(pairs[0]) == len(pairs[1]) and all(
        left == right or dabstep_compat(left, right) for left, right in zip(*pairs, strict=True)
    )


def _items(text: str) -> list[str]:
    bare = text.strip().removeprefix("[").removesuffix("]")
    return [item.strip() for item in re.split("[,;]", bare) if item.strip()]


def _same_text(one: str, other: str) -> bool:
    if re.sub(r"\W", "", one) == re.sub(r"\W", "", other):
        return True
    words = set(_WORD.findall(one)), set(_WORD.findall(other))
    single = 1 in (len(_WORD.findall(one)), len(_WORD.findall(other)))
    if single and all(words):
        return words[0] <= words[1] or words[1] <= words[0]
    return SequenceMatcher(None, one, other).ratio() > _ALIKE
