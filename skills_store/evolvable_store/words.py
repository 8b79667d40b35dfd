"""How text falls into words and words into terms: one way for what is indexed, what is asked and what triggers."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from Stemmer import Stemmer

MAX_QUERY = 4_000
"""Characters of a query that are read; what matters is said before."""

LONGEST_WORD = 64
"""Characters; anything longer is data, not a word."""

_MOST_TERMS = 1 << 15  # words whose terms a process remembers
_MOST_READ = 2_000  # words of a query; more are no question
_MOST_WORDS = 80
_MOST_PAIRS = 30
_SELDOM = 0.25
_REPEATED = 0.85

# Scripts that put no spaces between words: Han, Kana, Hangul. Neighbours in pairs find most of their words.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(f"[{_UNSPACED}]+")
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
# The same for text without those scripts and for ASCII: two and three times as fast.
_SPACED_WORD, _ASCII_WORD = re.compile(r"[^\W_]+"), re.compile("[a-z0-9]+")
_ASCII_BYTES = bytes(range(128))

_FUNCTION_WORDS = """
a about above after all also am an and any are as at be because been before being below between both but by can could
did do does doing down during each few for from further get had has have having he her here hers him his how i if in
into is it its itself just let like make me more most my need no nor not now of off on once only or other our out over
own please same she should so some such than that the their them then there these they this those through to too under
until up us very want was we were what when where which while who whom why will with would you your
"""

FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""English words that say little about a task. They count a quarter: whole, they cost a point and a half of hit@1."""

_SHORT_FORMS = """
admin administrator, app application, apps application, async asynchronous, auth authentication, cicd ci,
config configuration, configs configuration, csharp net, db database, deps dependency, doc document, docs documentation,
dotnet net, env environment, golang go, impl implementation, infra infrastructure, js javascript, k8s kubernetes,
nextjs next, nodejs node, params parameter, perf performance, postgres postgresql, py python, reactjs react,
repo repository, repos repository, spec specification, ts typescript, vuejs vue
"""

SHORT_FORMS: Mapping[str, str] = dict(form.split() for form in _SHORT_FORMS.split(","))
"""What developers write short, and what it stands for: taken for the same word. Gains half a point of hit@1."""


def words(text: str) -> list[str]:
    """Returns the words of a text in order, folded; a run of Han, Kana or Hangul as its pairs of characters."""
    folded = text.casefold()
    beyond = _beyond_ascii(folded)
    if not _RUN.search(beyond):
        # Most texts have signs beyond ASCII, few have letters.
        letters = _SPACED_WORD.search(beyond)
        tokens = _SPACED_WORD.findall(folded) if letters else _ASCII_WORD.findall(_as_ascii(folded))
        long = max(map(len, tokens), default=0) > LONGEST_WORD
        return [token for token in tokens if len(token) <= LONGEST_WORD] if long else tokens
    found: list[str] = []
    for token in _WORD.findall(folded):
        if _RUN.match(token):
            found += _pairs(token)
        elif len(token) <= LONGEST_WORD:
            found.append(token)
    return found


def _beyond_ascii(text: str) -> str:
    """Returns the characters of a text that are not ASCII, side by side."""
    return "" if text.isascii() else text.encode("utf-8", "replace").translate(None, _ASCII_BYTES).decode("utf-8")


def _as_ascii(text: str) -> str:
    """Returns the text with a question mark for every character that is not ASCII."""
    return text if text.isascii() else text.encode("ascii", "replace").decode("ascii")


class _Terms(dict[str, str]):
    """The terms of the words that were asked for: faster than a function that remembers."""

    def __missing__(self, word: str) -> str:
        if len(self) >= _MOST_TERMS:
            self.clear()
        its = self[word] = _stem(SHORT_FORMS.get(word, word))
        return its


_TERMS = _Terms()


def term(word: str) -> str:
    """Returns what a word is indexed as: its stem, or that of what it is short for."""
    return _TERMS[word]


def terms(words: Iterable[str]) -> list[str]:
    """Returns the term of each word."""
    return list(map(_TERMS.__getitem__, words))


def neighbours(words: Sequence[str]) -> list[tuple[str, str]]:
    """Returns each two words that stand side by side once function words are left out."""
    return list(pairwise([word for word in words if word not in FUNCTION_WORDS]))


@dataclass(frozen=True, slots=True)
class Asked:
    """One term of a query: the words it was asked with, and how much it counts. `pair`: two words side by side."""

    words: str
    count: float
    pair: bool = False


def asked(query: str) -> dict[str, Asked]:
    """Returns the terms of a query: they count more when they are said often, less when they are function words.

    Of very many, those that are said most and first.
    """
    its = words(query[:MAX_QUERY])[:_MOST_READ]
    found: dict[str, Asked] = {}
    said = Counter(its).most_common()
    for key, (word, count) in _by_term(said, term).items():
        if len(found) == _MOST_WORDS:
            break
        found[key] = Asked(word, (_SELDOM if word in FUNCTION_WORDS else 1.0) * count**_REPEATED)
    pairs = _by_term(Counter(neighbours(its)).most_common(), lambda pair: f"{term(pair[0])} {term(pair[1])}")
    for key, (pair, count) in islice(pairs.items(), _MOST_PAIRS):
        found[key] = Asked(" ".join(pair), count**_REPEATED, pair=True)
    return found


_S = TypeVar("_S")


def _by_term(said: Iterable[tuple[_S, int]], key: Callable[[_S], str]) -> dict[str, tuple[_S, int]]:
    """Returns what is said by its term, with the form that is said most and the count of all forms."""
    found: dict[str, tuple[_S, int]] = {}
    for one, count in said:
        its = key(one)
        first, sum_ = found.get(its, (one, 0))
        found[its] = first, sum_ + count
    return found


def _pairs(run: str) -> list[str]:
    return [first + second for first, second in pairwise(run)] or [run]


def _stem(word: str) -> str:
    stemmed: str = _stemmer().stemWord(word)
    return stemmed


@lru_cache(maxsize=1)
def _stemmer() -> "Stemmer":
    from Stemmer import Stemmer

    return Stemmer("porter", 0)  # without a cache of its own: `term` has one
