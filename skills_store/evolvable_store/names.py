"""What a name may be, in any script; the nearest name to a text; and a name as messages show it."""

import re
import unicodedata
from collections.abc import Iterable

from evolvable_store.errors import UNSEEN
from evolvable_store.paths import RESERVED_NAMES

MAX_NAME = 64
"""Characters of a name."""

MAX_NAME_BYTES = 192
"""Bytes of a name in UTF-8: with an ending it stays below the 255 of a file system."""

_PLAIN = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_LETTERS = ("Ll", "Lo", "Lm", "Nd")
_MARKS = ("Mn", "Mc")

RULE = (
    f"A name has 1 to {MAX_NAME} lower-case letters, digits and single hyphens between them."
    " The letters of one word are of one script."
)


def is_plain(name: str) -> bool:
    """Return whether a name keeps the stricter rule of the Agent Skills specification: a-z, 0-9 and hyphens."""
    return _PLAIN.fullmatch(name) is not None


def is_name(name: str) -> bool:
    """Return whether a text may be the name of a resource or a project. It has to be in Unicode's normal form KC."""
    if is_plain(name):
        return len(name) <= MAX_NAME
    if not name or name.isascii() or len(name) > MAX_NAME or len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
        return False
    if unicodedata.normalize("NFKC", name) != name or name.lower() != name:
        return False
    words = name.split("-")
    if not all(words) or any(_words(word) != [word] for word in words):
        return False
    return all(word.isascii() or _is_one_script(word) for word in words)


def normal_name(name: str) -> str:
    """Return a name in the normal form that names are stored in; macOS hands out others."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def nearest_name(text: str) -> str:
    """Return the nearest name to the text of a folder or a heading, '' when nothing is left.

    Letters of any script stay. A word whose letters are of several scripts is divided where the script changes.
    """
    # A dot above an i is what the capital of the Turkish alphabet leaves.
    plain = unicodedata.normalize("NFKC", text[: 8 * MAX_NAME]).lower().replace("i\u0307", "i")
    words = [part for word in _words(plain) for part in ([word] if word.isascii() else _divided(word))]
    name = _cut("-".join(words), MAX_NAME, MAX_NAME_BYTES)
    return f"{name}-x" if name in RESERVED_NAMES else name


def numbered(name: str, number: int) -> str:
    """Return a name with a number at its end, cut where it would be too long."""
    ending = f"-{number}"
    return _cut(name, MAX_NAME - len(ending), MAX_NAME_BYTES - len(ending)) + ending


def _cut(name: str, characters: int, size: int) -> str:
    return name[:characters].encode("utf-8")[:size].decode("utf-8", "ignore").strip("-")


def _words(text: str) -> list[str]:
    """Return the runs of letters, digits and marks in a text; a mark belongs to the letter before it."""
    if text.isascii():
        return re.findall("[a-z0-9]+", text)
    words, current = list[str](), ""
    for character in text:
        kind = unicodedata.category(character)
        fits = kind in _LETTERS or (kind in _MARKS and current)
        if fits and not UNSEEN.match(character):
            current += character
        elif current:
            words.append(current)
            current = ""
    return [*words, current] if current else words


def _divided(word: str) -> Iterable[str]:
    part = ""
    for character in word:
        if part and not _is_one_script(part + character):
            yield part
            part = ""
        part += character
    yield part


def _is_one_script(word: str) -> bool:
    from evolvable_store.confusables import is_one_script  # late: 40 ms, and most names are plain

    return is_one_script(word)


def skeleton(name: str) -> str:
    """Return what a name looks like; see `confusables.skeleton`."""
    from evolvable_store import confusables  # late: 40 ms, and only what is new is compared

    return confusables.skeleton(name)


def near_names(name: str, names: Iterable[str], most: int) -> list[str]:
    """Return the names that are most like this one, the nearest first; at most so many."""
    import difflib  # late: only a wrong name needs it

    return difflib.get_close_matches(name, names, n=most, cutoff=0.6)
