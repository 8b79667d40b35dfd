"""Which concepts of the lexicon a sentence speaks of, in any of its languages."""

import re
from collections.abc import Iterator
from functools import lru_cache

from evolvable_tools.scan import PatternTable

_WORD = re.compile(r"\.?[^\W_][\w'’-]*")
_WORD_OR_END = re.compile(r"\.?[^\W_][\w'-]*|[,;:()|\u2013\u2014，、；：→⇒+\"]")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+]{1,10}://[^\s)\]>\"'`，。、]{1,400}")
CLAUSE = 100
"""What the end of a clause adds to the places after it, so that words of two clauses never stand near each other."""
_WIDE = re.compile("[\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_MIN_STEM = 3
_CLITICS = frozenset(
    ["le", "la", "les", "lui", "leur", "moi", "nous", "y", "en", "o", "a", "os", "as", "lhe", "lhes", "me"]
)


LEXICON = PatternTable("lexicon.toml").data
"""The words of each concept; the head of the file says what they look like."""


def _entries() -> tuple[dict[str, set[str]], dict[str, set[str]], dict[str, list[tuple[tuple[str, ...], str]]]]:
    words: dict[str, set[str]] = {}
    stems: dict[str, set[str]] = {}
    phrases: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for concept, entries in LEXICON["spaced"].items():
        for entry in entries.split():
            if "_" in entry and entry != "report_outcome":
                parts = tuple(entry.split("_"))
                phrases.setdefault(parts[0], []).append((parts[1:], concept))
            elif entry.endswith("*"):
                stems.setdefault(entry[:-1], set()).add(concept)
            else:
                words.setdefault(entry, set()).add(concept)
    return words, stems, phrases


_WORDS, _STEMS, _PHRASES = _entries()
_LONGEST = max(map(len, _STEMS))
_BY_CONCEPT = {
    concept: re.compile("|".join(re.escape(entry.replace("_", " ")) for entry in entries.split()))
    for concept, entries in LEXICON["unspaced"].items()
}


def tokens(sentence: str) -> list[str]:
    """Return the words of a lower-case sentence."""
    return _WORD.findall(sentence.replace("’", "'"))


@lru_cache(maxsize=8192)
def concepts_of_word(word: str) -> frozenset[str]:
    """Return the concepts of one word, by itself or by how it begins."""
    found = set(_WORDS.get(word, ()))
    for length in range(_MIN_STEM, min(len(word), _LONGEST) + 1):
        found |= _STEMS.get(word[:length], set())
    return frozenset(found)


def words_with_places(sentence: str) -> list[tuple[str, int]]:
    """Return the words of a lower-case sentence, each with its place."""
    found, place = [], 0
    if "://" in sentence:
        sentence = _ADDRESS.sub(" ", sentence)  # what stands in an address is not said
    for word in _WORD_OR_END.findall(sentence.replace("’", "'")):
        if len(word) == 1 and not word.isalnum():
            place = (place // CLAUSE + 1) * CLAUSE
        else:
            found.append((word, place))
            if "'" in word and len(bare := word.partition("'")[2]) > 3:
                found.append((bare, place))  # l'utente, d'ambiente
            if "-" in word and word.rpartition("-")[2] in _CLITICS:
                found.append((word.rpartition("-")[0], place))  # envoie-le, envie-o
            place += 1
    return found


def locate_concepts(sentence: str, words: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield each concept of a sentence with the place of the word (or character) where it stands."""
    for number, (word, place) in enumerate(words):
        for concept in concepts_of_word(word):
            yield concept, place
        if number + 1 < len(words) and (follow := _PHRASES.get(word)):
            following = words[number + 1][0]
            for rest, concept in follow:
                if rest[0][:3] == following[:3] and _continues(words, number + 1, rest):
                    yield concept, place
    if not sentence.isascii() and _WIDE.search(sentence):
        for concept, pattern in _BY_CONCEPT.items():
            for match in pattern.finditer(sentence):
                yield concept, match.start()


def _continues(words: list[tuple[str, int]], start: int, rest: tuple[str, ...]) -> bool:
    there = [word for word, _ in words[start : start + len(rest)]]
    if len(there) < len(rest):
        return False
    last = rest[-1]
    return all(a == b for a, b in zip(there[:-1], rest[:-1], strict=True)) and (
        there[-1].startswith(last[:-1]) if last.endswith("*") else there[-1] == last
    )


def concepts(sentence: str, words: list[tuple[str, int]] | None = None) -> dict[str, list[int]]:
    """Return the concepts of a lower-case sentence, each with the places where it stands."""
    found: dict[str, list[int]] = {}
    for concept, place in locate_concepts(sentence, words_with_places(sentence) if words is None else words):
        found.setdefault(concept, []).append(place)
    return found
