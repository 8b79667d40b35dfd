"""English words for the words of a task in another language, by a small glossary of what tasks are about.

Most skills are written in English. A task in one of nine other languages gets the English words of those of its words
that the glossary `task_words.tsv` knows: compared by their stems, German compounds by their parts, and languages that
write no spaces by the longest known word at each place.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from Stemmer import Stemmer

from evolvable_store.search.normalization import compile_late, fold_marks

GLOSSARY = Path(__file__).with_name("task_words.tsv")

# Frequent words that tell a language from English and mostly from the others.
_FUNCTION_WORDS: Mapping[str, str] = {
    "de": "der das und ist ein eine einen einem einer fur mit auf von zu im dem den des ich mir mein meine meinen wie"
    " nicht aus bei zum zur wenn oder sich auch unsere unser unserem dieses diese diesen dieser diesem bitte wir mach",
    "fr": "le la les un une des du de et est pour avec sur dans mon ma mes je ce cette ces nos notre comment pas ne qui"
    " que au aux par en moi sans son sa",
    "es": "el la los las un una de del y es para con en mi mis por que como este esta estos nuestro nuestra se al lo"
    " cuando sin",
    "pt": "os um uma da dos das para com em na nos nas meu minha meus por que como este esta ao se sem nossa nosso de",
    "it": "il lo la gli un una del della dei delle per con nel nella mio mia miei che questo questa di da al si senza"
    " nostro nostra",
}
_SPACED = {"de": "german", "fr": "french", "es": "spanish", "pt": "portuguese", "it": "italian", "ru": "russian"}
# Words of English and of some other language.
_SHARED = frozenset(("a", "am", "an", "as", "do", "i", "in", "me", "no", "on", "per", "so", "was", "will"))
_FOREIGN = {word for words in _FUNCTION_WORDS.values() for word in words.split()}
# In this order: Japanese has Han too.
_SCRIPTS = {
    "ja": "[\u3041-\u30ff]",
    "ko": "[\uac00-\ud7af]",
    "zh": "[\u3400-\u9fff]",
    "ru": "[\u0400-\u04ff]",
}
_OTHER_SCRIPT = "[\u0400-\u04ff\u3041-\u9fff\uac00-\ud7af]"
_LATIN_WORD = re.compile("[a-z]+")
_RUN = "[\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
_LONGEST = 8  # characters of a known word without spaces
_PART = 4  # letters of the shortest part of a compound
_MOST = 30


def translate_words(text: str, words: Sequence[str], function_words: Iterable[str]) -> list[str]:
    """Return English words for a task, at most 30; none for a task in English.

    text: the task, folded. words: its words. function_words: those of English.
    """
    language = _language(text, words, function_words)
    if language is None:
        return []
    if language in _SPACED:
        own = _FUNCTION_WORDS.get(language, "").split()
        found = (english for word in words if word not in own for english in _by_stem(word, language))
    else:
        found = (english for run in compile_late(_RUN).findall(text) for english in _by_longest(run, language))
    return list(dict.fromkeys(found))[:_MOST]


def _language(text: str, words: Sequence[str], function_words: Iterable[str]) -> str | None:
    """Return the language of a task, None for English and where it cannot be told."""
    if not text.isascii() and compile_late(_OTHER_SCRIPT).search(text):
        scripts = {name: len(compile_late(letters).findall(text)) for name, letters in _SCRIPTS.items()}
        if 2 * sum(scripts.values()) > len(_LATIN_WORD.findall(text)):
            return next(name for name, count in scripts.items() if count)
    said = _FOREIGN.intersection(words)
    if not said:
        return None
    counts = Counter({name: len(said.intersection(its.split())) for name, its in _FUNCTION_WORDS.items()})
    (language, most), *_ = counts.most_common(1)
    # One word can be a name; where there are marks on letters too it is none.
    least = len(set(words).intersection(function_words) - said - _SHARED) + (1 if text.isascii() else 0)
    return language if most > least else None


def _by_stem(word: str, language: str) -> Iterator[str]:
    known, stem = _glossary(language), _stemmer(language).stemWord
    if (its := known.get(stem(word))) is not None:
        yield from its
    elif language == "de":
        for at in range(_PART, len(word) - _PART + 1):
            yield from known.get(stem(word[at:]), ())
            yield from known.get(stem(word[:at]), known.get(stem(word[:at].removesuffix("s")), ()))


def _by_longest(run: str, language: str) -> Iterator[str]:
    known, at = _glossary(language), 0
    while at < len(run):
        size = next((size for size in range(_LONGEST, 0, -1) if run[at : at + size] in known), 0)
        yield from known[run[at : at + size]] if size else ()
        at += size or 1


@cache
def _stemmer(language: str) -> Stemmer:
    return Stemmer(_SPACED[language])


@cache
def _glossary(language: str) -> Mapping[str, tuple[str, ...]]:
    """Return the English words for each known word of a language: its stem, or itself where there are no spaces."""
    lines = GLOSSARY.read_text(encoding="utf-8").splitlines()
    at = lines[0].split("\t").index(language)
    found: dict[str, tuple[str, ...]] = {}
    for line in lines[1:]:
        english, *others = line.split("\t")
        for word in others[at - 1].split("/"):
            folded = fold_marks(word.casefold())
            key = _stemmer(language).stemWord(folded) if language in _SPACED else folded
            found[key] = (*found.get(key, ()), english)
    return found
