"""Scripts of letters, and look-alikes of names: two tables of Unicode that Python itself lacks.

The data and the rules are those of UTS 39, Unicode Security Mechanisms. Importing this module reads
a megabyte of JSON.
"""

import unicodedata
from functools import lru_cache

from confusable_homoglyphs import categories, confusables

_MIXED = (
    frozenset({"LATIN", "HAN", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "HAN", "BOPOMOFO"}),
    frozenset({"LATIN", "HAN", "HANGUL"}),
)
"""The scripts that one word may mix: the level "highly restrictive" of UTS 39, section 5.2."""

# Digits, punctuation and marks, which every script uses.
_NEUTRAL = ("COMMON", "INHERITED")


def is_one_script(word: str) -> bool:
    """Return whether the letters of a word are of one script, or of those that a language mixes.

    Its decimal digits have to be of one numbering system (UTS 39, section 5.3).
    """
    scripts = {script for letter in word if (script := categories.alias(letter)) not in _NEUTRAL}
    # The zero of a digit's block identifies its numbering system.
    zeros = {ord(digit) - unicodedata.decimal(digit) for digit in word if digit.isdecimal()}
    return len(zeros) < 2 and (len(scripts) < 2 or any(scripts <= together for together in _MIXED))


# Every name of a library is compared with every new one; more names than this are computed again.
@lru_cache(maxsize=65_536)
def skeleton(name: str) -> str:
    """Return the skeleton of a name (UTS 39, section 4).

    Names with one skeleton can be mistaken for one another. Upper and lower case count as alike, as
    they do for many file systems.
    """
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFC", name).casefold())
    return unicodedata.normalize("NFD", "".join(map(_choose_prototype, folded)))


def _choose_prototype(letter: str) -> str:
    """Return the letter that represents all letters which look like this one.

    The table has the pairs in both directions. A letter with several partners represents them. Of
    two that have only each other it is the shorter, lower one, from either of them.
    """
    partners = confusables.confusables_data.get(letter, ())
    if len(partners) != 1:
        return letter
    partner: str = partners[0]["c"]
    if len(confusables.confusables_data[partner]) > 1:
        return partner
    return min(letter, partner, key=lambda candidate: (len(candidate), candidate))
