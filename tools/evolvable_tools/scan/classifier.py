"""A linear classifier of single sentences: how much one reads like a hostile instruction and not
like work.

The weights stand in `classifier.bin`, one signed byte for each of 2^17 places. A place belongs to a
word, a pair of words, the beginning of a word, a concept or a pair of concepts.
`benchmarks/scan/train.py` makes the file. Pure: the same sentence has the same score everywhere.

The rule of hidden text is here too: comments and elements that a page does not show, and that a
model reads.
"""

import itertools
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple
from zlib import crc32

from evolvable_tools.scan.lexicon import (
    WIDE,
    concepts,
    concepts_of_word,
    concepts_of_words,
    split_words,
    without_addresses,
    words_of,
)
from evolvable_tools.scan.scan_findings import Finding, FindingSeverity, PatternTable
from evolvable_tools.scan.sentence_rules import report
from evolvable_tools.scan.text_analysis import Sentence, TextPart, windows
from evolvable_tools.scan.text_loops import PLACES, WordReader, places_of, sum_places

_TABLE = PatternTable("classifier.toml")
_FOREIGN, _COMMON, _MARK = (_TABLE.compile(name) for name in ("foreign", "common", "mark"))
_NAMES: dict[str, str] = _TABLE.data["names"]
_EMPTY = frozenset(_TABLE.data["empty"].split())

SIZE = PLACES
_MASK = SIZE - 1
DATA = "classifier.bin"
HEAD = struct.Struct("<ffffff")
"""The head of the data file: one step of a weight, the score without features, and four limits (see
`Limits`).
"""

_STEM = 5  # characters: the beginning of a longer word is a feature of its own, whatever the ending
_PAIR, _GAP, _JOINED = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35
"""Odd factors by which the place of two features that stand together follows from the hashes of
both.
"""


def is_foreign(text: str) -> bool:
    """Return whether a sentence is in a language of which there are few examples to learn its
    words.
    """
    foreign = not text.isascii() and _FOREIGN.search(text) is not None
    # A sentence with a foreign name or two in it is still English if it has English function words.
    return foreign and len(_COMMON.findall(text)) < 2


class _Word(NamedTuple):
    """A word with what its features need.

    places: of the features that it has by itself. weight: the most that these and its concepts add
    to the sum of the weights.
    """

    hash: int
    places: tuple[int, ...]
    concepts: frozenset[str]
    weight: int
    text: str


_MOST_WORDS = 32768
"""Words that a process caches."""


class _Words(dict[str, _Word]):
    """The words met so far with their features.

    A dict with `__missing__` is faster than a function with a cache.
    """

    def __missing__(self, word: str) -> _Word:
        if len(self) >= _MOST_WORDS:
            # Emptied as a whole: an order of use would cost time at every word.
            self.clear()
        new_word = self[word] = _read_word(word)
        return new_word


def _read_word(word: str) -> _Word:
    # All numbers are one word: which number it is says nothing.
    form = "0" if word.isdigit() else word
    word_hash = crc32(form.encode())
    own = (word_hash & _MASK, *((_hash_stem(form),) if len(form) > _STEM else ()))
    named_concepts, weight_of = concepts_of_word(form), weights().of
    weight = sum(map(weight_of.__getitem__, own))
    if named_concepts:  # most words name nothing
        # Whether the sentence is foreign is not known yet. The greater weight keeps the sum in
        # `_score_or_lowest` from being too low.
        weight += max(
            sum(weight_of[concept_hash & _MASK] for concept_hash in hashes)
            for hashes in (_hash_concepts(foreign, named_concepts) for foreign in (False, True))
        )
    return _Word(word_hash, own, named_concepts, weight, word)


_word = _Words().__getitem__
_READER = WordReader(_read_word, _MOST_WORDS) if WordReader is not None else None


def _read_words(text: str) -> list[_Word]:
    """Return the words of a sentence."""
    text = without_addresses(text)
    words: list[_Word] | None = _READER.read(text) if _READER is not None else None
    return list(map(_word, split_words(text))) if words is None else words


def _hash_stem(word: str) -> int:
    return crc32(word[:_STEM].encode() + b"*") & _MASK


_EDGE = crc32(b"^")


def places(text: str) -> set[int]:
    """Return the places of a sentence's features in the weights."""
    words = _read_words(text)
    return places_of(words, _find_concept_places(text, words), _EDGE, _PAIR, _GAP)


def _find_concept_places(text: str, words: list[_Word]) -> tuple[int, ...]:
    word_concepts = {word.concepts for word in words}
    named_concepts = concepts_of_words(text, [word.text for word in words], word_concepts)
    return _place_concepts(is_foreign(text), named_concepts)


@lru_cache(maxsize=2048)
def _place_concepts(foreign: bool, named_concepts: frozenset[str]) -> tuple[int, ...]:
    hashes = _hash_concepts(foreign, named_concepts)
    pairs = [
        (concept_hash * _JOINED + other) & _MASK
        for number, concept_hash in enumerate(hashes)
        for other in hashes[number + 1 :]
    ]
    return (*(concept_hash & _MASK for concept_hash in hashes), *pairs)


def _hash_concepts(foreign: bool, named_concepts: frozenset[str]) -> list[int]:
    mark = "~" if foreign else "="
    # Sorted, so that a pair of concepts has one place, whichever comes first.
    return [crc32(f"{mark}{name}".encode()) for name in sorted(named_concepts)]


def features(text: str) -> Iterator[tuple[str, int]]:
    """Yield the features of a sentence as a person reads them, each with its place; '' for those
    that say nothing.
    """
    foreign, named_concepts = is_foreign(text), sorted(concepts(text))
    hashes = _hash_concepts(foreign, frozenset(named_concepts))
    plain_names = [_NAMES.get(name, name) for name in named_concepts]
    named = list(zip(plain_names, hashes, strict=True))
    for number, (name, concept_hash) in enumerate(named):
        yield name, concept_hash & _MASK
        for other_name, other in named[number + 1 :]:
            yield f"{name} with {other_name}", (concept_hash * _JOINED + other) & _MASK
    before = last = ("", _EDGE)
    for word in words_of(text):
        word_hash, own, *_ = _word(word)
        yield _quote_words(word), own[0]
        if len(own) > 1:
            yield "", own[1]
        yield _quote_words(last[0], word), (last[1] * _PAIR + word_hash) & _MASK
        yield _quote_words(before[0], "…", word), (before[1] * _GAP + word_hash) & _MASK
        before, last = last, (word, word_hash)
    yield "", (last[1] * _PAIR + _EDGE) & _MASK


def _quote_words(*words: str) -> str:
    """Return words in quotes, '' where none of them says anything by itself."""
    if all(len(word) < 3 or word in _EMPTY or not word[0].isalpha() for word in words):
        return ""
    text = " ".join(word for word in words if word).removeprefix("… ")
    return f"“{text}”".replace("zurl", "an address").replace("zmail", "an e-mail address")


@dataclass(frozen=True, slots=True)
class Limits:
    """The score above which a sentence is reported."""

    new: float
    """In a new resource."""
    changed: float
    """In a change of one that exists."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The contents of `classifier.bin`."""

    step: float
    base: float
    english: Limits
    foreign: Limits
    of: memoryview
    """A signed byte for each place."""


@cache
def weights() -> Weights:
    """Return the weights; they are read once."""
    data = (files("evolvable_tools.scan") / DATA).read_bytes()
    step, base, *limits = HEAD.unpack_from(data)
    of = memoryview(data)[HEAD.size :].cast("b")
    return Weights(step, base, Limits(*limits[:2]), Limits(*limits[2:]), of)


def score(text: str) -> float:
    """Return how much a sentence in lower case reads like a hostile instruction.

    Most work lies far below 0.
    """
    return _score_words(text, _read_words(text))


def _score_words(text: str, words: list[_Word]) -> float:
    model = weights()
    concept_places = _find_concept_places(text, words)
    total = sum_places(words, concept_places, model.of, _EDGE, _PAIR, _GAP)
    return model.base + model.step * total


def _score_or_lowest(text: str) -> float:
    """Return the score of a sentence; _LOWEST if its words by themselves weigh less than 0, as in
    most work.

    In languages without spaces between words each sign is a word, so their sentences always get
    their score.
    """
    words = _read_words(text)
    is_spaced = text.isascii() or WIDE.search(text) is None
    # Each word once, because a place counts once in the score.
    if is_spaced and sum({word.text: word.weight for word in words}.values()) < 0:
        return _LOWEST
    return _score_words(text, words)


def find_resembling(path: str, sentences: Iterable[Sentence], *, is_new: bool) -> Iterator[Finding]:
    """Yield a finding for each sentence that reads like a hostile instruction, with the words that
    make it so.

    In a new resource the limit is higher, but for what takes secrets away or tells the user less.
    """
    model = weights()
    for sentence in itertools.chain.from_iterable(map(windows, sentences)):
        text = sentence.text
        # Code has rules of its own, and the words of a very short sentence say little.
        if sentence.part is TextPart.CODE or (len(text) < MIN_CHARACTERS and text.isascii()):
            continue
        sentence_score = _score_or_lowest(text)
        if sentence_score <= _LOWEST:
            continue
        limits = model.foreign if is_foreign(text) else model.english
        if sentence_score <= limits.changed:
            continue
        rule = _choose_rule(text)
        if not is_new or rule != _OTHER or sentence_score > limits.new:
            why = _explain(text, model)
            yield report(path, sentence, rule, FindingSeverity.MEDIUM, why, _READ_IT)


# Characters. In a script that writes a word in one or two signs a shorter sentence can instruct, so
# only ASCII counts.
MIN_CHARACTERS = 9
_LOWEST = 0.0
"""Below every limit."""
_READ_IT = "Read the sentence, and approve it if an agent should do that."
_NAMED = 3  # concepts or words that a finding names


# What is taken, how it leaves, and what keeps the user from learning of it.
_VALUED = frozenset(("secret", "hoard", "private"))
_OUTWARD = frozenset(("send", "away", "expose"))
_SILENCE = frozenset(("never", "omit"))
_OTHER = "wording.model"


def _choose_rule(text: str) -> str:
    """Return the rule that a reported sentence falls under, by its concepts: stealing, concealing,
    or neither.

    An address alone makes no theft: "send the metrics to https://..." is work of many owners.
    """
    named_concepts = concepts(text)
    if _VALUED & named_concepts and _OUTWARD & named_concepts:
        return "wording.steal"
    if _SILENCE & named_concepts and {"tell", "user"} <= named_concepts:
        return "wording.conceal"
    return _OTHER


def _explain(text: str, model: Weights) -> str:
    """Return the reason of a finding: the words and concepts that the classifier weighs most."""
    weighed = {name: model.of[place] for name, place in features(text) if name}
    # A single word says less to a person than the concepts and the words that stand together.
    most = sorted(
        (feature for feature in weighed if weighed[feature] > 0),
        key=lambda feature: (" " not in feature, -weighed[feature], feature),
    )
    top_features = "; ".join(most[:_NAMED])
    because = f", most of all because of: {top_features}" if top_features else ""
    return f"the classifier takes it for an order that harms{because}"


_MIN_WORDS = 4  # of a hidden text: most shorter ones are marks of tools
_LOWEST_HIDDEN = -3.0
"""Score of a hidden text that may be an order: there is less reason to hide one than to
write it.
"""


def _highest_score(sentence: Sentence) -> float:
    return max(score(piece.text) for piece in windows(sentence))


def find_unseen(path: str, sentences: Iterable[Sentence]) -> Iterator[Finding]:
    """Yield a finding for each hidden text that could instruct."""
    for sentence in sentences:
        if sentence.part not in (TextPart.COMMENT, TextPart.UNSHOWN):
            continue
        named_concepts = concepts(sentence.text)
        addressed = "assistant" in named_concepts and len(named_concepts) > 1
        # Text in scripts without spaces cannot be counted in words.
        is_long = sentence.text.count(" ") + 1 >= _MIN_WORDS or not sentence.text.isascii()
        if not is_long or (_MARK.match(sentence.text) and not addressed):
            continue
        is_order = (
            addressed
            or sentence.part is TextPart.UNSHOWN
            or _highest_score(sentence) > _LOWEST_HIDDEN
        )
        severity = FindingSeverity.MEDIUM if is_order else FindingSeverity.LOW
        why = "hides text that can instruct from whoever reads the page"
        hint = "Write it where a person sees it, or leave it out."
        yield report(path, sentence, "hidden.comment", severity, why, hint)
