"""Scripts of letters, and what a name looks like: the two tables of Unicode that Python's own
library does not have.

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
"""The scripts that one word may have together: the restriction level "highly restrictive" of UTS
39, section 5.2.
"""

# Digits, punctuation and marks, which every script uses.
_NEUTRAL = ("COMMON", "INHERITED")


def is_one_script(word: str) -> bool:
    """Return whether the letters of a word belong together: to one script, or to those that a
    language writes together.

    Its decimal digits are of one numbering system (UTS 39, section 5.3).
    """
    scripts = {script for letter in word if (script := categories.alias(letter)) not in _NEUTRAL}
    # The zero of a digit's block identifies its numbering system.
    zeros = {ord(digit) - unicodedata.decimal(digit) for digit in word if digit.isdecimal()}
    return len(zeros) < 2 and (len(scripts) < 2 or any(scripts <= together for together in _MIXED))


# Every name of a library is compared with every new one; more names than this are computed again.
@lru_cache(maxsize=65_536)
def skeleton(name: str) -> str:
    """Return the skeleton of a name: names with one skeleton can be mistaken for one another (UTS
    39, section 4).

    Upper and lower case count as alike, as they do for many file systems.
    """
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFC", name).casefold())
    return unicodedata.normalize("NFD", "".join(map(_prototype, folded)))


def _prototype(letter: str) -> str:
    """Return the letter that represents all letters which look like this one.

    The table names the pairs in both directions. A letter with several partners is the one that
    stands for them; of two that have only each other the shorter, lower one is taken, in both
    directions the same.
    """
    partners = confusables.confusables_data.get(letter, ())
    if len(partners) != 1:
        return letter
    partner: str = partners[0]["c"]
    if len(confusables.confusables_data[partner]) > 1:
        return partner
    return min(letter, partner, key=lambda candidate: (len(candidate), candidate))
