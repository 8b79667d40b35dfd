"""The words of a sentence and the concepts that they name, in any language of the lexicon.

The words of the concepts are data, in `lexicon.toml`. A concept is a feature of the classifier, and
other rules ask for a few of them. Each function is pure, and reads the words once.
"""

import re
from functools import lru_cache

from evolvable_tools.scan.scan_findings import PatternTable
from evolvable_tools.scan.text_loops import PartFinder

_TABLE = PatternTable("lexicon.toml")
LEXICON = _TABLE.data
"""The words of each concept; the head of the file says what they look like."""

_TOKEN, _MAIL, _ADDRESS, _NAMED_HOST = (
    _TABLE.compile(name) for name in ("token", "mail", "address", "named_host")
)
WIDE = re.compile("[\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""A sign of a script that is written without blanks, or whose words have endings."""
_CLITICS = frozenset(LEXICON["clitics"].split())
_MIN_STEM = 3  # characters of an entry that ends with `*`, at least

_Concepts = frozenset[str]
_SHARED: dict[_Concepts, _Concepts] = {}


def _share_set(concepts: _Concepts) -> _Concepts:
    """Return one of the equal sets: thousands of words name the same few, and a set takes 200
    bytes.
    """
    return _SHARED.setdefault(concepts, concepts)


_Phrases = dict[str, list[tuple[tuple[str, ...], str]]]
"""First word of a phrase -> its other words, and its concept."""


def _read_spaced() -> tuple[dict[str, _Concepts], dict[str, _Concepts], _Phrases]:
    """Return the concepts of whole words, those of stems, and the phrases."""
    words: dict[str, _Concepts] = {}
    stems: dict[str, _Concepts] = {}
    phrases: _Phrases = {}
    for concept, entries in LEXICON["spaced"].items():
        for entry in entries.split():
            # An underscore stands for a blank, but not in `report_outcome`, the name of a tool.
            if "_" in entry and entry != "report_outcome":
                parts = tuple(entry.split("_"))
                phrases.setdefault(parts[0], []).append((parts[1:], concept))
            elif entry.endswith("*"):
                stems[entry[:-1]] = _share_set(stems.get(entry[:-1], frozenset()) | {concept})
            else:
                words[entry] = _share_set(words.get(entry, frozenset()) | {concept})
    return words, stems, phrases


_WORDS, _STEMS, _PHRASES = _read_spaced()
_BEGIN_PHRASES = frozenset(_PHRASES)
_NONE: _Concepts = frozenset()
_LONGEST = max(map(len, _STEMS))
_BEGIN_STEMS = frozenset(stem[:_MIN_STEM] for stem in _STEMS)


def _read_unspaced() -> dict[str, _Concepts]:
    """Return the entries that are looked for anywhere, each with its concepts."""
    by_entry: dict[str, _Concepts] = {}
    for concept, entries in LEXICON["unspaced"].items():
        for entry in (word.replace("_", " ") for word in entries.split()):
            by_entry[entry] = by_entry.get(entry, _NONE) | {concept}
    return by_entry


_UNSPACED = _read_unspaced()
_UNSPACED_ENTRIES = PartFinder(tuple(_UNSPACED))
_STRUCTURE = tuple(
    (row["concept"], re.compile(_TABLE.join(row["pattern"])), frozenset(row["anchors"]))
    for row in LEXICON["structure"]
)
_ANCHORS = PartFinder(tuple({anchor for _, _, anchors in _STRUCTURE for anchor in anchors}))


def words_of(text: str) -> list[str]:
    """Return the words of a sentence in lower case, with one word for any address."""
    return split_words(without_addresses(text))


def split_words(text: str) -> list[str]:
    """Return the words of a sentence in lower case."""
    return _TOKEN.findall(text)


def without_addresses(text: str) -> str:
    """Return a sentence in lower case with one word for any address, and with plain apostrophes."""
    if "@" in text:
        text = _MAIL.sub(" zmail ", text)
    if "." in text and ("://" in text or _NAMED_HOST.search(text)):
        text = _ADDRESS.sub(" zurl ", text)
    return text.replace("’", "'")


def concepts_of_word(word: str) -> frozenset[str]:
    """Return the concepts of one word: by itself, by how it begins, and without what is joined to
    it.
    """
    named = _concepts_of_form(word)
    # The part after an apostrophe counts if it is long enough for a word.
    if "'" in word and len(bare := word.partition("'")[2]) > 3:
        named |= _concepts_of_form(bare)  # l'utente, d'ambiente
    if "-" in word and word.rpartition("-")[2] in _CLITICS:
        named |= _concepts_of_form(word.rpartition("-")[0])  # envoie-le, envie-o
    return _share_set(named)


def _concepts_of_form(word: str) -> frozenset[str]:
    named = _WORDS.get(word, _NONE)
    # Most words begin like no entry, and need no search by length.
    if word[:_MIN_STEM] not in _BEGIN_STEMS:
        return named
    for length in range(_MIN_STEM, min(len(word), _LONGEST) + 1):
        if (more := _STEMS.get(word[:length])) is not None:
            named = _share_set(named | more)
    return named


@lru_cache(maxsize=1024)
def concepts(text: str) -> frozenset[str]:
    """Return the concepts of a sentence in lower case."""
    words = words_of(text)
    return concepts_of_words(text, words, set(map(concepts_of_word, words)))


def concepts_of_words(
    text: str, words: list[str], word_concepts: set[frozenset[str]]
) -> frozenset[str]:
    """Return the concepts of a sentence.

    word_concepts: those of each of its words by itself.
    """
    named = set[str]().union(*word_concepts)
    if not _BEGIN_PHRASES.isdisjoint(words):
        for number, word in enumerate(words[:-1]):
            if word in _BEGIN_PHRASES:
                following = words[number + 1]
                for rest, concept in _PHRASES[word]:
                    # Three characters exclude most phrases before any words are compared; they are
                    # as many as the shortest entry has.
                    if rest[0][:3] == following[:3] and _continues(words, number + 1, rest):
                        named.add(concept)
    if not text.isascii() and WIDE.search(text):
        named.update(*map(_UNSPACED.__getitem__, _UNSPACED_ENTRIES.find(text)))
    if anchors_found := _ANCHORS.find(text):
        for concept, pattern, anchors in _STRUCTURE:
            if not anchors.isdisjoint(anchors_found) and pattern.search(text):
                named.add(concept)
    return frozenset(named)


def _continues(words: list[str], start: int, rest: tuple[str, ...]) -> bool:
    """Return whether the rest of a phrase stands at a place of the words; its last word may be a
    stem.
    """
    following = words[start : start + len(rest)]
    if len(following) < len(rest):
        return False
    if tuple(following[:-1]) != rest[:-1]:
        return False
    last = rest[-1]
    return following[-1].startswith(last[:-1]) if last.endswith("*") else following[-1] == last
