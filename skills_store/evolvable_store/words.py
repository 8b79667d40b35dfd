"""How text falls into words: one tokenizer for what is indexed, what is asked and what triggers."""

import math
import re
from collections import Counter
from itertools import pairwise

MAX_QUERY = 20_000
"""Characters of a query that are read; what matters is said before."""

LONGEST_WORD = 64
"""Characters; anything longer is data, not a word."""

_MOST_WORDS = 250
_SELDOM = 0.5

# Scripts that put no spaces between words: Han, Kana, Hangul. Neighbours in pairs find most of their words.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(f"[{_UNSPACED}]+")
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")

_FUNCTION_WORDS = """
a about above after all also am an and any are as at be because been before being below between both but by can could
did do does doing down during each few for from further get had has have having he her here hers him his how i if in
into is it its itself just let like make me more most my need no nor not now of off on once only or other our out over
own please same she should so some such than that the their them then there these they this those through to too under
until up us very want was we were what when where which while who whom why will with would you your
"""

FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""English words that say little about a task. They count half: whole, a point of hit@1 is lost, and at none less."""


def words(text: str) -> list[str]:
    """Returns the words of a text in order, folded; a run of Han, Kana or Hangul as its pairs of characters."""
    found: list[str] = []
    for token in _WORD.findall(text.casefold()):
        if _RUN.match(token):
            found += _pairs(token)
        elif len(token) <= LONGEST_WORD:
            found.append(token)
    return found


def spaced(text: str) -> str:
    """Returns the text as the full-text tables take it: with spaces where `words` would part it and they would not.

    They fold case and find stems by themselves. Never fails: what is no Unicode text is replaced.
    """
    if text.isascii():
        return text
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return _RUN.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", clean)


def asked(query: str) -> dict[str, float]:
    """Returns the words of a query and what each counts: more when it is said often, less for a function word."""
    counts = Counter(words(query[:MAX_QUERY]))
    return {
        word: (1 + math.log(count)) * (_SELDOM if word in FUNCTION_WORDS else 1.0)
        for word, count in list(counts.items())[:_MOST_WORDS]
    }


def _pairs(run: str) -> list[str]:
    return [first + second for first, second in pairwise(run)] or [run]
