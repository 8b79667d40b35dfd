"""Split a text into words: normal forms beyond ASCII, combining marks, scripts without spaces.

Documents, tasks and triggers are split alike. Texts in ASCII, and nearly all in English, need no
normal form.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

LONGEST_WORD = 64
"""Characters of a word; a longer one is data."""

# The base of each letter of the Latin script with marks: some people type them without. The same
# goes for ё.
_MARKED = {
    at: base[0]
    for at in range(0xC0, 0x250)
    if (base := unicodedata.normalize("NFKD", chr(at))) and base[0].isascii() and base[0].isalpha()
    # е for ё: Russian texts write either.
} | {0x451: "\u0435"}
_MARKED_LETTER = re.compile("[\u00c0-\u024f\u0451]")

# Ranges, so that one search of a compiled set decides: `unicodedata` for each character would take
# many times as long.
UNNORMALIZED = (
    "[\u00aa\u00b2\u00b3\u00b9\u00ba\u0132\u0133\u013f\u0140\u0149\u01c4-\u01cc\u01f1-\u01f3\u02b0-\u036f\u0374\u037a"
    "\u03d0-\u03f9\u0483-\u0489\u0591-\u10ff\u1100-\u11ff\u135d-\u135f\u1700-\u1dff\u1e9a\u1e9b\u1f00-\u1fff"
    "\u2070-\u209c\u20d0-\u20f0\u2102\u2107\u210a-\u2115\u2119-\u211d\u2124-\u2149\u2160-\u217f\u2460-\u249b\u24ea"
    "\u2c7c\u2c7d\u2cef-\u2cf1\u2d6f-\u2d7f\u2de0-\u2dff\u302a-\u302f\u3038-\u303a\u3099\u309a\u309f\u30ff\u3131-\u318e"
    "\u3192-\u3195\u3220-\u3289\u32b1-\u32bf\ua66f-\ua6f1\ua770\ua7f2-\uabed\uf900-\ufdfb\ufe20-\ufe2f\ufe70-\ufefc"
    "\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uffdc\U0001d400-\U0001d7ff\U0001ee00-\U0001eebb"
    "\U0001f100-\U0001f10a\U0001fbf0-\U0001fbf9\U0002f800-\U0002fa1d]"
)
"""Blocks with combining marks, with scripts that use them, or with letters and digits that NFKC
changes. Typographic signs, emoji and the usual Latin, Greek, Cyrillic, Han, Kana and Hangul are
outside, so that most texts are left alone.
"""

# Accents that no letter composes with, the vowel marks of Hebrew and Arabic, and the stretching of
# Arabic words.
_OPTIONAL = (
    "\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"
)
_FRACTION_SLASH = "\u2044"  # part of ½ in NFKC, which would make two words of 3½
_JOINERS = "\u200c\u200d"
_MOST_MARKS = 32  # on one letter; NFC takes time with the square of their number


@cache
def compile_late(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern, from a cache.

    Sets of thousands of letters take milliseconds to compile, and most texts need none.
    """
    return re.compile(pattern)


def fold_marks(text: str) -> str:
    """Return a text with the letters of the Latin script without their marks, and е for ё."""
    return text.translate(_MARKED) if _MARKED_LETTER.search(text) else text


def beyond_ascii(text: str) -> str:
    """Return the characters of a text that are not ASCII, side by side."""
    if text.isascii():
        return ""
    # By bytes, which is faster: those of characters beyond ASCII are all outside of ASCII.
    return text.encode("utf-8", "replace").translate(None, _ASCII_BYTES).decode("utf-8")


_ASCII_BYTES = bytes(range(128))


def is_unnormalized(beyond: str) -> bool:
    """Return whether `normalize` may change a text, or its words may have marks.

    beyond: its characters beyond ASCII.
    """
    return bool(beyond) and compile_late(UNNORMALIZED).search(beyond) is not None


def fold(text: str) -> str:
    """Return a text casefolded and normalized, with the marks on its letters."""
    folded = text.casefold()
    return normalize(folded) if is_unnormalized(beyond_ascii(folded)) else folded


def normalize(folded: str) -> str:
    """Return a casefolded text with letters, digits and marks in NFKC, without optional marks.

    Other characters stay: a trademark sign must not become letters of the word before it.
    """
    # Each pattern begins with a set, because `re` skips other characters fastest for one. NFKC of
    # the whole text would also change signs that are no letters.
    text = compile_late(f"{UNNORMALIZED}{UNNORMALIZED}*").sub(
        lambda run: run[0].translate(_COMPATIBLE), folded
    )
    mark = f"[{combining_marks()}]"
    # A hostile text can stack thousands of marks on a letter.
    too_many = compile_late(f"{mark}{mark}{{{_MOST_MARKS},}}")
    text = too_many.sub(lambda run: run[0][:_MOST_MARKS], text)
    # After the cut, because NFC sorts the marks of each letter.
    text = unicodedata.normalize("NFC", text)
    # A joiner after a mark only changes how letters are drawn.
    text = compile_late(f"{mark}[{_JOINERS}]").sub(lambda pair: pair[0][0], text)
    return compile_late(f"[{_OPTIONAL}]").sub("", text)


class _Compatible(dict[int, str]):
    """The NFKC form of each letter and digit, computed at first use."""

    def __missing__(self, at: int) -> str:
        own = chr(at)
        other = unicodedata.normalize("NFKC", own).casefold()
        # Signs keep their form: ™ would otherwise become the letters tm.
        compatible = self[at] = other if own.isalnum() and _FRACTION_SLASH not in other else own
        return compatible


_COMPATIBLE = _Compatible()


@cache
def combining_marks() -> str:
    """Return the combining marks that are part of words, as ranges for a set of a pattern.

    Only those of the basic plane: with all of them a search takes many times as long.
    """
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in _ranges_of_marks())


def _ranges_of_marks() -> Iterator[tuple[int, int]]:
    """Yield the ranges of the general categories Mn and Mc, without variation selectors."""
    first = None
    for at in range(0x300, 0x10000):
        is_mark = unicodedata.category(chr(at)) in ("Mn", "Mc") and not 0xFE00 <= at <= 0xFE0F
        if is_mark and first is None:
            first = at
        elif not is_mark and first is not None:
            yield first, at - 1
            first = None


# Scripts without spaces between words: Han, Kana, Hangul. Pairs and triples of neighbouring
# characters find most words.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN, WORD = f"[{_UNSPACED}]+", rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+"
# The same for text without those scripts, and for ASCII, which is faster.
_SPACED_WORD, ASCII_WORD = re.compile(r"[^\W_]+"), re.compile("[a-z0-9]+")
# Scripts without spaces whose letters carry marks: Thai and Lao, Myanmar and Khmer.
_ALPHABETIC = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecf\u0edc-\u0edf"
_SYLLABIC = (
    "\u1000-\u103f\u1050-\u108f\u109a-\u109d\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a-\uaa7f"
    "\u1780-\u17d3\u17d7\u17dc\u17dd"
)
_STACKERS = "\u1039\u17d2"  # the letter after one of these stands below the one before
_HIRAGANA, _KATAKANA = re.compile("[\u3041-\u309f]+"), re.compile("([\u30a1-\u30ff]+)")


def tokenize(text: str) -> list[str]:
    """Return the words of a text in order, folded and normalized.

    A run in a script without spaces gives pairs and triples of its characters.
    """
    folded = text.casefold()
    beyond = beyond_ascii(folded)
    marked = False
    if is_unnormalized(beyond):
        folded = normalize(folded)
        beyond = beyond_ascii(folded)
        # Only texts with such marks or scripts need the slower pattern for words.
        marked = _marked_or_clustered().search(beyond) is not None
    if (plain := fold_marks(beyond)) != beyond:
        folded, beyond = fold_marks(folded), beyond_ascii(plain)
    if not marked and (not beyond or not compile_late(_RUN).search(beyond)):
        # Most texts have signs beyond ASCII, few have letters.
        letters = _SPACED_WORD.search(beyond)
        # The ASCII pattern is faster; signs such as dashes and emoji separate words in both.
        tokens = _SPACED_WORD.findall(folded) if letters else ASCII_WORD.findall(_as_ascii(folded))
        # One maximum is cheaper than a new list, and few texts have so long a word.
        has_long = max(map(len, tokens), default=0) > LONGEST_WORD
        return [token for token in tokens if len(token) <= LONGEST_WORD] if has_long else tokens
    return _split_runs(folded, marked)


def _split_runs(folded: str, marked: bool) -> list[str]:
    """Return the words of a text that has marks, or runs of scripts without spaces."""
    words: list[str] = []
    unspaced = compile_late(_RUN)
    clustered = compile_late(f"[{_ALPHABETIC}{_SYLLABIC}]") if marked else None
    for token in (_words_with_marks() if marked else compile_late(WORD)).findall(folded):
        if unspaced.match(token):
            words += _character_grams(token)
        elif clustered and clustered.match(token):
            words += _cluster_grams(token)
        elif len(token) <= LONGEST_WORD:
            words.append(token)
    return words


@cache
def _marked_or_clustered() -> re.Pattern[str]:
    return re.compile(f"[{combining_marks()}{_ALPHABETIC}{_SYLLABIC}]")


@cache
def _words_with_marks() -> re.Pattern[str]:
    letter = rf"[^\W_{_UNSPACED}{_ALPHABETIC}{_SYLLABIC}]"
    return re.compile(
        f"[{_UNSPACED}]+|[{_ALPHABETIC}]+|[{_SYLLABIC}]+|"
        f"{letter}+(?:[{combining_marks()}]+{letter}*)*"
    )


@cache
def _clusters() -> re.Pattern[str]:
    """Return the pattern of a cluster: a letter with its marks and the letters stacked below it."""
    marks = combining_marks()
    return re.compile(f".(?:[{_STACKERS}][^{marks}]|[{marks}])*")


def _cluster_grams(run: str) -> list[str]:
    """Return the pairs of the clusters of a run, of Thai and Lao the triples."""
    clusters = _clusters().findall(run)
    # Clusters of Thai and Lao have few marks, so a pair of them is in too many words.
    size = 3 if compile_late(f"[{_ALPHABETIC}]").match(run) else 2
    grams = ("".join(clusters[at : at + size]) for at in range(max(1, len(clusters) - size + 1)))
    return [gram for gram in grams if len(gram) <= LONGEST_WORD]


def _as_ascii(text: str) -> str:
    """Return the text with a question mark for every character that is not ASCII."""
    return text if text.isascii() else text.encode("ascii", "replace").decode("ascii")


def _character_grams(run: str) -> list[str]:
    """Return the pairs of characters of a run, of Katakana the triples.

    A pair of Katakana is in too many words. Pairs of Hiragana alone, mostly endings and particles,
    are returned only if there is nothing else.
    """
    grams: list[str] = []
    for part in filter(None, _KATAKANA.split(run)):
        size = 3 if _KATAKANA.fullmatch(part) else 2
        grams += [part[at : at + size] for at in range(max(1, len(part) - size + 1))]
    return [gram for gram in grams if not _HIRAGANA.fullmatch(gram)] or grams
