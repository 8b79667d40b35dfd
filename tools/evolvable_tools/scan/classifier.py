"""A linear classifier of single sentences: how much one reads like a hostile instruction and not like work.

The weights stand in `classifier.bin`: one signed byte for each of 2^17 hashes of a sentence's words, pairs of words,
beginnings of words, concepts and pairs of concepts. Of a sentence in another language than English only its
concepts count. `benchmarks/scan/train.py` makes the file. Pure: the same
sentence has the same score everywhere.
"""

import re
import struct
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple
from zlib import crc32

from evolvable_tools.scan import Finding, FindingSeverity, PatternTable
from evolvable_tools.scan.semantic_rules import AnalysedSentence, analyse_sentence
from evolvable_tools.scan.sentence_rules import report
from evolvable_tools.scan.text_analysis import Sentence, TextPart, windows

_TABLE = PatternTable("classifier.toml")
_PATTERNS = {name: _TABLE.compile(name) for name in _TABLE.data["patterns"]}

BITS = 17
SIZE = 1 << BITS
MASK = SIZE - 1
DATA = "classifier.bin"
HEAD = struct.Struct("<ffffff")
"""Of the data file: one step of a weight, the score without features, and four limits (see `Limits`)."""

_STEM = 5


def is_foreign(text: str) -> bool:
    """Return whether a sentence is in a language of which there are too few examples to learn its words."""
    foreign = not text.isascii() and _PATTERNS["foreign"].search(text) is not None
    return foreign and len(_PATTERNS["common"].findall(text)) < 2


def features(said: AnalysedSentence) -> Iterator[str]:
    """Yield the features of a sentence; some more than once. Of a foreign one only the concepts."""
    text = said.sentence.text
    foreign = is_foreign(text)
    yield from _concepts("~" if foreign else "=", tuple(sorted(said.found)))
    if foreign:
        return
    before = last = "^"
    for word in _split(text):
        yield word
        yield f"{last} {word}"
        yield f"{before}_{word}"
        if len(word) > _STEM:
            yield f"{word[:_STEM]}*"
        before, last = last, word
    yield f"{last} $"


def _concepts(mark: str, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the features of concepts. mark: what tells those of English and of other languages apart."""
    if mark == "~":
        yield mark
    for number, name in enumerate(names):
        yield f"{mark}{name}"
        for other in names[number + 1 :]:
            yield f"{mark}{name}{mark}{other}"


def _split(text: str) -> list[str]:
    """Return the words of a sentence, with one word for any address and one for any number."""
    if "@" in text:
        text = _PATTERNS["mail"].sub(" zmail ", text)
    if "." in text:
        text = _PATTERNS["address"].sub(" zurl ", text)
    return ["0" if word.isdigit() else word for word in _PATTERNS["token"].findall(text)]


def hashed(said: AnalysedSentence) -> set[int]:
    """Return the places of a sentence's features in the weights: the hashes of `features`, without their strings."""
    text = said.sentence.text
    foreign = is_foreign(text)
    places = set(_of_concepts("~" if foreign else "=", tuple(sorted(said.found))))
    if foreign:
        return places
    before = last = _of_word("^")
    for word in _split(text):
        this = _of_word(word)
        places.update(this.places)
        places.add(crc32(this.text, last.spaced) & MASK)
        places.add(crc32(this.text, before.gapped) & MASK)
        before, last = last, this
    places.add(crc32(b"$", last.spaced) & MASK)
    return places


class _Word(NamedTuple):
    """A word with what its features need: its bytes, the hashes of it with a blank or a gap, and its own places."""

    text: bytes
    spaced: int
    gapped: int
    places: tuple[int, ...]


@lru_cache(maxsize=8192)
def _of_word(word: str) -> _Word:
    text = word.encode()
    own = [text, word[:_STEM].encode() + b"*"] if len(word) > _STEM else [text]
    return _Word(text, crc32(b" ", crc32(text)), crc32(b"_", crc32(text)), tuple(crc32(one) & MASK for one in own))


@lru_cache(maxsize=512)
def _of_concepts(mark: str, names: tuple[str, ...]) -> "array[int]":
    # An array takes a tenth of a tuple: ten concepts have 55 places.
    return array("I", [crc32(one.encode()) & MASK for one in _concepts(mark, names)])


@dataclass(frozen=True, slots=True)
class Limits:
    """The score above which a sentence is reported."""

    new: float
    """In a new resource."""
    changed: float
    """In a change of one that exists."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What `classifier.bin` holds."""

    step: float
    base: float
    english: Limits
    foreign: Limits
    of: memoryview


@cache
def weights() -> Weights:
    """Return the weights; they are read once."""
    data = (files("evolvable_tools.scan") / DATA).read_bytes()
    step, base, *limits = HEAD.unpack_from(data)
    return Weights(step, base, Limits(*limits[:2]), Limits(*limits[2:]), memoryview(data)[HEAD.size :].cast("b"))


def resembling(path: str, sentences: Iterable[Sentence], *, is_new: bool) -> Iterator[Finding]:
    """Yield a finding for each sentence that reads like a hostile instruction, with the words that make it so."""
    model = weights()
    for sentence in (piece for whole in sentences if whole.part is not TextPart.CODE for piece in windows(whole)):
        if len(sentence.text) < MIN_CHARACTERS and sentence.text.isascii():
            continue
        spoken = analyse_sentence(sentence)
        if len(spoken.found) < MIN_CONCEPTS:
            continue
        score = model.base + model.step * sum(model.of[place] for place in hashed(spoken))
        limits = model.foreign if is_foreign(sentence.text) else model.english
        if score > (limits.new if is_new else limits.changed):
            why = f"reads like an instruction of an attack, by its words: {', '.join(told(spoken, model))}"
            yield report(path, sentence, "wording.model", FindingSeverity.MEDIUM, why)


MIN_CONCEPTS = 2
"""A sentence is only looked at where the lexicon of the rules knows this much of it."""
MIN_CHARACTERS = 9
_TOLD = 3
_EMPTY = frozenset(
    ("the", "a", "an", "and", "or", "to", "of", "in", "on", "at", "by", "for", "with", "from", "as", "is", "are", "be")
    + ("it", "its", "this", "that", "these", "you", "your", "we")
)
"""Words that say nothing by themselves."""


def told(spoken: AnalysedSentence, model: Weights) -> list[str]:
    """Return the words and concepts that count most, in words a person can read."""
    weighed = {one: model.of[crc32(one.encode()) & MASK] for one in features(spoken)}
    worst = sorted((one for one in weighed if weighed[one] > 0), key=lambda one: (-weighed[one], one))
    return list(dict.fromkeys(filter(None, map(_readable, worst))))[:_TOLD]


def _readable(feature: str) -> str:
    if feature[0] in "=~":
        names = [name.replace("_", " ") for name in feature.split(feature[0]) if name]
        return f"speaks of {' and '.join(names)}" if names else ""
    words = [word for word in re.split("[ _]", feature) if word not in ("^", "$")]
    if feature.endswith("*") or all(word in _EMPTY or not word[0].isalnum() for word in words):
        return ""
    said_so = (" … " if "_" in feature else " ").join(words)
    return f"“{said_so}”".replace("zurl", "an address").replace("zmail", "an e-mail address")
