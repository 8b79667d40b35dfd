"""Terms and field weights of resources: one analysis for documents, queries and triggers."""

import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice, pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from Stemmer import Stemmer

from evolvable_store import objects
from evolvable_store.errors import DamagedFile
from evolvable_store.search.exclusions import split_exclusions
from evolvable_store.search.tokenizer import (
    ASCII_WORD,
    LONGEST_WORD,
    WORD,
    beyond_ascii,
    compile_late,
    fold,
    fold_marks,
    is_unnormalized,
    tokenize,
)
from evolvable_store.search.translation import (
    is_function_word,
    language_of_task,
    language_of_text,
    stem_in,
    translate_words,
)

ANALYSIS = 1
"""The number of the analysis, which the index notes.

It counts up when a text gets other terms; an index of an earlier analysis is made again.
"""

MAX_QUERY = 4_000
"""Characters of a query that are read; a longer one is a pasted text, whose subject comes first."""

_MAX_CACHED_TERMS = 1 << 15  # words whose terms a process remembers
_MAX_QUERY_WORDS = 2_000  # words of a query that are read
# The time of a search grows with the number of terms; 80 different words are enough to tell the
# subject of a task.
_MAX_QUERY_TERMS = 80
_MAX_QUERY_PAIRS = 30  # neighbouring words, for the same reason
# Left out altogether, they cost .005 of hit@1 among 10,000 skills (21 November,
# benchmarks/README.md).
_FUNCTION_WORD_WEIGHT = 0.25
# The power of the count of a repeated word: .012 more hit@1 than with its logarithm (21 November,
# benchmarks/README.md).
_REPEATED = 0.85
_TRANSLATED = 0.7  # the weight of an English word that stands for one of another language
_OTHER_STEM = 0.7  # the weight of a word's stem in its own language, beside its English stem

_FUNCTION_WORDS = """
a about above after all also am an and any are as at be because been before being below between both
but by can could
did do does doing down during each few for from further get had has have having he her here hers him
his how i if in
into is it its itself just let like make me more most my need no nor not now of off on once only or
other our out over
own please same she should so some such than that the their them then there these they this those
through to too under
until up us very want was we were what when where which while who whom why will with would you your
"""

FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""English words that say little about a task. They count a quarter of another word."""

# Hit@1 .623 to .627, R@5 .772 to .782 among 10,000 skills (21 November, benchmarks/README.md).
_SHORT_FORMS = """
admin administrator, app application, apps application, async asynchronous, auth authentication,
cicd ci,
config configuration, configs configuration, csharp net, db database, deps dependency, doc document,
docs documentation,
dotnet net, env environment, golang go, impl implementation, infra infrastructure, js javascript,
k8s kubernetes,
nextjs next, nodejs node, params parameter, perf performance, postgres postgresql, py python,
reactjs react,
repo repository, repos repository, spec specification, ts typescript, vuejs vue
"""

SHORT_FORMS: Mapping[str, str] = dict(form.split() for form in _SHORT_FORMS.split(","))
"""Abbreviations of developers, each with its full word; both count as one word."""


class _Terms(dict[str, str]):
    """The terms of words, computed at first use: faster than a function with `lru_cache`."""

    def __missing__(self, word: str) -> str:
        if len(self) >= _MAX_CACHED_TERMS:
            self.clear()
        stem = self[word] = (
            _stem(SHORT_FORMS.get(word, word)) if word.isascii() else _stem_by_script(word)
        )
        return stem


# Snowball's stemmers by script; a script of several languages has that of the most common one.
_SCRIPTS = (
    ("\u0370", "\u03ff", "greek"),
    ("\u0400", "\u04ff", "russian"),
    ("\u0530", "\u058f", "armenian"),
    ("\u0600", "\u06ff", "arabic"),
    ("\u0900", "\u097f", "hindi"),
    ("\u0b80", "\u0bff", "tamil"),
)


def _stem_by_script(word: str) -> str:
    """Return the stem of a word that is not in ASCII.

    Words of the Latin script have English stems.
    """
    name = next((name for first, last, name in _SCRIPTS if first <= word[0] <= last), None)
    # By the first letter: words of mixed scripts are rare, and documents and queries get the same
    # stem.
    return _stemmer(name).stemWord(word) if name is not None else _stem(word)


@cache
def _stemmer(name: str) -> Stemmer:
    return Stemmer(name, 0)


_TERMS = _Terms()


def term(word: str) -> str:
    """Return the term by which a word is indexed: the stem of it, or of its full word."""
    return _TERMS[word]


def terms(words: Iterable[str]) -> list[str]:
    """Return the term of each word."""
    return list(map(_TERMS.__getitem__, words))


def neighbours(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return each two words that stand side by side once function words are left out."""
    return list(pairwise([word for word in words if word not in FUNCTION_WORDS]))


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """One term of a query.

    words: those of the query. count: how much it counts. pair: whether it is two words side by
    side. stem_of: an earlier term of the same word, which has another stem. translated: whether it
    is an English word for one of another language. function_word: whether the word says little in
    English or the task's language.
    """

    words: str
    count: float
    pair: bool = False
    stem_of: str | None = None
    translated: bool = False
    function_word: bool = False


def parse_query(query: str) -> dict[str, QueryTerm]:
    """Return the terms of a query: repeated words count more, function words less.

    Of very many terms, the most frequent stay, and among equals the first.
    """
    # Cut first: a pasted log costs no more than a question.
    words, folded = tokenize(query[:MAX_QUERY])[:_MAX_QUERY_WORDS], fold(query[:MAX_QUERY])
    language = language_of_task(folded, words, FUNCTION_WORDS)
    query_terms: dict[str, QueryTerm] = {}
    own = _by_term(Counter(words).most_common(), term)
    for key, (word, count) in islice(own.items(), _MAX_QUERY_TERMS):
        says_little = word in FUNCTION_WORDS or is_function_word(word, language)
        weight = _FUNCTION_WORD_WEIGHT if says_little else 1.0
        query_terms[key] = QueryTerm(word, weight * count**_REPEATED, function_word=says_little)
        if other := stem_in(word, language):
            # setdefault: where both stems are equal, or another word has this one, the full weight
            # stays.
            other_term = QueryTerm(word, _OTHER_STEM * count**_REPEATED, stem_of=key)
            query_terms.setdefault(other, other_term)
    room = max(0, _MAX_QUERY_TERMS - len(own))
    for word in translate_words(folded, words, language)[:room]:
        query_terms.setdefault(term(word), QueryTerm(word, _TRANSLATED, translated=True))
    pair_counts = Counter(neighbours(words)).most_common()
    pairs = _by_term(pair_counts, lambda pair: f"{term(pair[0])} {term(pair[1])}")
    for key, (pair, count) in islice(pairs.items(), _MAX_QUERY_PAIRS):
        query_terms[key] = QueryTerm(" ".join(pair), count**_REPEATED, pair=True)
    return query_terms


_S = TypeVar("_S")


def _by_term(
    forms: Iterable[tuple[_S, int]], key: Callable[[_S], str]
) -> dict[str, tuple[_S, int]]:
    """Return term -> the most frequent form and the count of all forms.

    forms: by falling count, each with its count. key: returns the term of a form.
    """
    by_term: dict[str, tuple[_S, int]] = {}
    for form, count in forms:
        indexed_term = key(form)
        first, total = by_term.get(indexed_term, (form, 0))
        by_term[indexed_term] = first, total + count
    return by_term


# The 0 turns the stemmer's cache off: `_Terms` has one.
_stem: Callable[[str], str] = Stemmer("porter", 0).stemWord


MAX_BODY = 200_000
"""Characters of a main file's body that are searched."""

MAX_FILES = 200
"""Files whose names are searched."""

_MAX_FIELD_TERMS = 5_000  # of one field; a text with more different words is data

# Between the usual 1.2 and 2.0 of BM25; chosen with the weights below.
K1 = 1.4
"""How fast the weight of a repeated word saturates: k1 of BM25."""

HEAVIEST = K1 + 1
"""The upper bound of the weight of a term in a field; a stored weight is a part of it, of 255."""


@dataclass(frozen=True, slots=True)
class Field:
    """One kind of text.

    weight: the weight of its words. length: how many words a usual one has. slope: how far the
    words of a longer one count less, which is b of BM25.
    """

    weight: float
    length: float
    slope: float


# Weights chosen on 2,487 tasks over 10,000 skills; docs/lookup.md has the figures.
FIELDS: Mapping[str, Field] = {
    "name": Field(0.4, 3, 0.3),
    "description": Field(0.7, 44, 0.5),
    "triggers": Field(0.7, 12, 0.5),
    "pairs": Field(0.4, 37, 0.5),
    "files": Field(0.1, 8, 0.3),
    "body": Field(1.0, 750, 0.75),
    "learned": Field(1.4, 60, 0.0),
}
"""The fields of a resource that are searched. `pairs`: words side by side in name and description.
`learned`: words of tasks that it was used for with success, without words of its own. The length
of `learned` does not count, so that one task alone weighs no more than one of many.

The usual lengths are those of 10,000 real skills. They are constants, so that the weights of a text
depend on the text alone and never have to be computed again.
"""

FIELD_NUMBERS: Mapping[str, int] = {name: number for number, name in enumerate(FIELDS)}
"""The number that a field has in the index."""

TermWeights = tuple[str, bytes]
"""Terms as lines of one text, and the weight of each, 1 to 255."""

Learned = Sequence[tuple[str, float]]
"""Learned tasks, each with its share of a new one: tasks lose weight with age."""

# A byte for each weight: a float would take four times the space.
_STEP = (K1 + 1) * 255 / HEAVIEST  # the weight to which a term converges that is repeated


class TermCounterInPython:
    """Weighs the terms of a text where the extension in C is missing."""

    def __init__(
        self,
        stem: Callable[[str], str],
        short_forms: dict[str, str],
        function_words: frozenset[str],
        longest: int,
        most: int,
    ) -> None:
        """longest: bytes of the longest word. most: how many terms the class in C caches."""
        self._stem, self._short_forms, self._longest = stem, short_forms, longest
        self._function_words = function_words

    def weigh(
        self, text: bytes, k1: float, slope: float, usual_length: float, step: float, most: int
    ) -> TermWeights | None:
        """Return the weight of each term, the terms in the order in which they first occur.

        text: its words are the runs of lower ASCII letters and digits. most: how many terms; return
        None for a text with more. The class in C returns None too while another thread uses it.
        """
        counts = Counter(self._term(word) for word in self._words(text))
        # None: the caller takes the slower way, which keeps the most frequent terms.
        if len(counts) > most:
            return None
        return _weigh_saturated(counts, k1, slope, usual_length, step)

    def weigh_pairs(
        self,
        texts: list[bytes],
        k1: float,
        slope: float,
        usual_length: float,
        step: float,
        most: int,
    ) -> TermWeights | None:
        """Return the same for each two terms side by side in a text without its function words."""
        counts = Counter[str]()
        for text in texts:
            words = (word for word in self._words(text) if word not in self._function_words)
            text_terms = [self._term(word) for word in words]
            counts.update(f"{first} {second}" for first, second in pairwise(text_terms))
        if len(counts) > most:
            return None
        return _weigh_saturated(counts, k1, slope, usual_length, step)

    def _words(self, text: bytes) -> Iterator[str]:
        words = ASCII_WORD.findall(text.decode("latin-1"))
        return (word for word in words if len(word) <= self._longest)

    def _term(self, word: str) -> str:
        return self._stem(self._short_forms.get(word, word))


def _weigh_saturated(
    counts: Mapping[str, int], k1: float, slope: float, usual_length: float, step: float
) -> TermWeights:
    usual = k1 * (1 - slope + slope * sum(counts.values()) / usual_length)
    weights = (max(1, round(step * count / (count + usual))) for count in counts.values())
    return "\n".join(counts), bytes(weights)


if TYPE_CHECKING:
    TermCounter = TermCounterInPython
else:
    try:
        from evolvable_store.search._scoring import TermCounter

        # Reading it raises AttributeError for an extension that an earlier version compiled.
        TermCounter.weigh_pairs  # noqa: B018
    except (ImportError, AttributeError):
        TermCounter = TermCounterInPython


def _new_counter() -> TermCounter:
    return TermCounter(_stem, dict(SHORT_FORMS), FUNCTION_WORDS, LONGEST_WORD, _MAX_CACHED_TERMS)


# A list, so that `forget_terms` can replace it while other threads hold the old one.
_COUNTERS = [_new_counter()]


def forget_terms() -> None:
    """Free the memory of the cached terms of this process."""
    _TERMS.clear()
    _COUNTERS[0] = _new_counter()


def weigh_fields(
    names: Iterable[str],
    description: str,
    triggers: Sequence[str],
    body: str,
    paths: Iterable[str],
    learned: Learned = (),
) -> dict[str, TermWeights]:
    """Return the terms of a resource's texts with their weights, by field, without empty fields.

    names: of the resource. paths: its files besides the main one. learned: tasks that it was used
    for.
    """
    # Words of "do not use for X" would raise the score of the resource for X.
    names, description = list(names), split_exclusions(description).own
    called = [tokenize(name) for name in names]
    language = language_of_text(set(fold_marks(description.casefold()).split()), FUNCTION_WORDS)
    files = [PurePosixPath(path).with_suffix("").as_posix() for path in islice(paths, MAX_FILES)]
    weights = {
        "name": _weigh_words(FIELDS["name"], chain.from_iterable(called), language),
        "description": _weigh_text(FIELDS["description"], description, language),
        "triggers": _weigh_text(FIELDS["triggers"], "\n".join(triggers), language),
        "pairs": _weigh_pairs(FIELDS["pairs"], [*names, description]),
        "files": _weigh_text(FIELDS["files"], "\n".join(files)),
        "body": _weigh_text(FIELDS["body"], body[:MAX_BODY], language),
    }
    if learned:
        # A learned word that the resource has itself would be counted twice.
        short_fields = ("name", "description", "triggers")
        own = {key for name in short_fields for key in weights[name][0].split("\n")}
        counts = _count_learned(learned, own, set(weights["body"][0].split("\n")))
        weights["learned"] = _weigh_counts(FIELDS["learned"], counts)
    return {name: field_weights for name, field_weights in weights.items() if field_weights[1]}


def _weigh_text(field: Field, text: str, language: str | None = None) -> TermWeights:
    # The counter in C knows English stems alone.
    if language is not None:
        return _weigh_words(field, tokenize(text), language)
    weights, data = None, _ascii_words(text)
    if data is not None:
        weights = _COUNTERS[0].weigh(data, K1, field.slope, field.length, _STEP, _MAX_FIELD_TERMS)
    return _weigh_words(field, tokenize(text), None) if weights is None else weights


def _weigh_pairs(field: Field, texts: Sequence[str]) -> TermWeights:
    """Return the weights of each two terms side by side in a text without its function words."""
    weights, plain = None, [data for data in map(_ascii_words, texts) if data is not None]
    if len(plain) == len(texts):
        weights = _COUNTERS[0].weigh_pairs(
            plain, K1, field.slope, field.length, _STEP, _MAX_FIELD_TERMS
        )
    if weights is not None:
        return weights
    counts = Counter[str]()
    for text in texts:
        text_terms = terms(word for word in tokenize(text) if word not in FUNCTION_WORDS)
        counts.update(f"{first} {second}" for first, second in pairwise(text_terms))
    return _weigh_counts(field, counts)


def _ascii_words(text: str) -> bytes | None:
    """Return a text as bytes whose runs of lower ASCII letters and digits are its words.

    None for a text with letters or marks beyond ASCII.
    """
    # Signs, emoji and dashes beyond ASCII are common, and change no word.
    beyond = beyond_ascii(text)
    if beyond and (compile_late(WORD).search(beyond) or is_unnormalized(beyond)):
        return None
    # lower() of bytes is enough: a character that folds to an ASCII letter is a letter itself, and
    # the search above refused letters beyond ASCII.
    return text.encode("utf-8", "replace").lower()


def _weigh_words(field: Field, words: Iterable[str], language: str | None) -> TermWeights:
    """Return the weights of the words' terms, and of their stems in the language of the text."""
    counts: dict[str, int] = defaultdict(int)
    word_counts = Counter(words)
    for key, count in zip(terms(word_counts), word_counts.values(), strict=True):
        counts[key] += count
    # Both stems: a query in the language may be too short to tell it, or a word may be English.
    for word, count in word_counts.items() if language is not None else ():
        if (other := stem_in(word, language)) and other != term(word):
            counts[other] += count
    return _weigh_counts(field, counts, word_counts.total())


IN_BODY = 0.5
"""The weight of a learned word that the body has too."""


def _count_learned(learned: Learned, own: Set[str], body: Container[str]) -> dict[str, float]:
    """Return how often the tasks have each term that the resource lacks in its short fields.

    Its own words would only raise it above similar resources. A term counts once for each task.
    """
    counts: dict[str, float] = defaultdict(float)
    for task, share in learned:
        task_terms = terms(word for word in tokenize(task) if word not in FUNCTION_WORDS)
        for key in set(task_terms) - own:
            counts[key] += share * (IN_BODY if key in body else 1.0)
    return counts


def _weigh_counts(
    field: Field, counts: Mapping[str, float], length: float | None = None
) -> TermWeights:
    """Return k1-saturated, length-normalised frequencies: BM25 (Robertson and Zaragoza, 2009)
    without the idf.

    length: how many words the text has, where that is not the sum of the counts.
    """
    length = sum(counts.values()) if length is None else length
    usual = K1 * (1 - field.slope + field.slope * length / field.length)
    weights = {
        count: max(1, round(_STEP * count / (count + usual))) for count in set(counts.values())
    }
    if len(counts) > _MAX_FIELD_TERMS:
        # Data such as a word list: the most frequent terms stay.
        counts = dict(Counter(counts).most_common(_MAX_FIELD_TERMS))
    return "\n".join(counts), bytes(map(weights.__getitem__, counts.values()))


_FIELD_HEAD = struct.Struct("<BII")  # its number; bytes of its terms, and of their weights
_COMPRESSED = b"\x78"  # the first byte of zlib; no field has that number


def pack_weights(weights: Mapping[str, TermWeights]) -> bytes:
    """Return the weights as bytes: for each field its head, its terms as UTF-8, its weights.

    They are compressed where that is shorter.
    """
    parts: list[bytes] = []
    for name, (terms_text, term_weights) in weights.items():
        data = terms_text.encode("utf-8", "replace")
        head = _FIELD_HEAD.pack(FIELD_NUMBERS[name], len(data), len(term_weights))
        parts += (head, data, term_weights)
    # The codec need not be stored: a compressed block begins with a byte that no field number has.
    return objects.pack(b"".join(parts))[0]


def unpack_fields(data: bytes) -> list[tuple[int, str, bytes]]:
    """Return the packed fields, each as number, terms and weights. Raises DamagedFile."""
    fields: list[tuple[int, str, bytes]] = []
    at = 0
    try:
        text = objects.unpack(data, "zlib") if data[:1] == _COMPRESSED else data
        while at < len(text):
            number, size, count = _FIELD_HEAD.unpack_from(text, at)
            middle = at + _FIELD_HEAD.size + size
            terms_text = text[middle - size : middle].decode()
            fields.append((number, terms_text, text[middle : middle + count]))
            at = middle + count
    except (zlib.error, struct.error, UnicodeDecodeError) as error:
        raise DamagedFile(f"the terms of a document are damaged: {error}") from error
    return fields


def unpack_weights(data: bytes) -> list[tuple[int, list[str], bytes]]:
    """Return the fields of `unpack_fields`, the terms of each as a list. Raises DamagedFile."""
    return [
        (number, terms_text.split("\n"), weights)
        for number, terms_text, weights in unpack_fields(data)
    ]
