"""Taking secrets out of text: before anything is cut, kept, shown or sent. In their place stands their type."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evolvable_tools.redaction.ground import Ground
from evolvable_tools.redaction.issued import issued
from evolvable_tools.redaction.tokens import tokens
from evolvable_tools.secret_shapes import Form
from evolvable_tools.sessions.key_blocks import blocks
from evolvable_tools.sessions.secret_forms import BEGINNING, BEGINNINGS, may_hold, stands_free
from evolvable_tools.sessions.secret_names import Hit, assigned, names_credential
from evolvable_tools.sessions.secret_places import placed
from evolvable_tools.sessions.secret_structures import structured
from evolvable_tools.sessions.secret_terminal import Plain, has_codes
from evolvable_tools.sessions.secret_values import is_secret
from evolvable_tools.sessions.user_patterns import UserPatterns

MAX_DEPTH = 40
"""Levels of a value that are looked into; what lies deeper is left out."""

MAX_KEY, MAX_KEYS = 40, 1_000
"""Characters of a key that is remembered, and how many are."""

MAX_CLEAN, MOST_CLEAN = 120, 4_000
"""Characters of a text that is remembered as one without secrets, and how many are: a session says much again."""

CUT_LEAST = 6
"""Characters behind the beginning of a secret that is cut by the end of a line or a text."""

_LONG = 9
"""Characters of a word that may be a secret by its form."""
_LINE_END = re.compile(r"[ \t]{0,4}\\?(?:\r?\n|\\r\\n|\\n)(?:[ \t]{0,40}|[ \t]*\d{1,6}(?:→|\t))")
RUN = re.compile(r"[A-Za-z0-9+/=_.~%-]{4,4000}")
_MARK = re.compile(r"\[redacted:[a-z0-9-]{1,60}\]")
_OPTION = re.compile(r"--?[\w-]{0,40}\Z")


class Redactor:
    """Takes secrets out of text. Safe from any thread."""

    def __init__(self, patterns: Mapping[str, str] | UserPatterns | None = None) -> None:
        """patterns: a person's own, as regular expressions of RE2, by the names that stand for what they find.

        Raises PatternsNeedRe2 where it is not installed, InvalidArgument for a pattern that it does not take.
        """
        self._own = patterns if isinstance(patterns, UserPatterns) else UserPatterns(patterns)
        self._keys: dict[str, str | None] = {}
        self._clean: set[str] = set()

    def redact(self, text: str) -> tuple[str, Mapping[str, int]]:
        """Returns the text with each secret replaced by `[redacted:TYPE]`, and how many there were of each type.

        Done a second time it changes nothing. Takes time linear in the text.
        """
        whole = text_or_replaced(text)
        return replaced(whole, self.hits(whole))

    def redact_value(self, value: Any) -> tuple[Any, Mapping[str, int]]:
        """Returns a JSON value with the secrets of all its texts replaced, also where only a key names them."""
        counts: Counter[str] = Counter()
        return self._value(value, counts, 0), counts

    def _value(self, value: Any, counts: Counter[str], depth: int) -> Any:
        if isinstance(value, str):
            text, found = self.redact(value)
            if found:
                counts.update(found)
            return text
        if depth >= MAX_DEPTH:
            return None
        if isinstance(value, Mapping):
            return {
                str(key) if key in self._keys else self._key(str(key), counts): self._named(
                    str(key), each, counts, depth
                )
                for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return self._words(value, counts, depth)
        return value

    def _key(self, key: str, counts: Counter[str]) -> str:
        """Returns a key without secrets. Short ones that hold none are remembered: in a session they are few."""
        text, found = self.redact(key)
        if found:
            counts.update(found)
        elif len(key) <= MAX_KEY and len(self._keys) < MAX_KEYS:
            self._keys[key] = names_credential(key)
        return text

    def _named(self, key: str, value: Any, counts: Counter[str], depth: int) -> Any:
        if isinstance(value, str):
            kind = self._keys[key] if key in self._keys else names_credential(key)
            if kind is not None and is_secret(value, kind, quoted=True, strong=True):
                counts[kind] += 1
                return f"[redacted:{kind}]"
        return self._value(value, counts, depth + 1)

    def _words(self, words: Iterable[Any], counts: Counter[str], depth: int) -> list[Any]:
        """Returns a list with what follows an option that names a credential hidden."""
        done: list[Any] = []
        before: str | None = None
        for word in words:
            option = before is not None and _OPTION.match(before) is not None
            done.append(self._named(before if option and before else "", word, counts, depth))
            before = word if isinstance(word, str) else None
        return done

    def hits(self, text: str) -> list[Hit]:
        """Returns where the secrets of a text stand, in order, none over another. The text is valid UTF-8."""
        if text in self._clean:
            return []
        if has_codes(text):
            plain = Plain(text)
            return [(*plain.span(start, end), kind) for start, end, kind in self._hits(plain.text)]
        return self._hits(text)

    def _hits(self, said: str) -> list[Hit]:
        # The type in a mark may be a credential's name, and what follows it is none's value.
        text = _MARK.sub(_blank, said) if "[redacted:" in said else said
        lower = text.replace("İ", "I").lower()
        words = [word for word in text.split() if len(word) >= _LONG]
        hits: list[Hit] = [(start, end, "private-key") for start, end, _ in blocks(text, words)]
        if may_hold(words):
            hits += _formed(text)
        hits += placed(text, lower)
        hits += assigned(text, lower)
        ground = Ground(text, lower, words)
        hits += structured(ground)
        hits += tokens(ground)
        hits += issued(ground)
        hits += self._own.hits(said)
        if not hits and len(text) <= MAX_CLEAN:
            if len(self._clean) >= MOST_CLEAN:
                self._clean.clear()
            self._clean.add(text)
        return without_overlap(_continued(text, hit) for hit in hits) if hits else hits


def _blank(mark: re.Match[str]) -> str:
    return "[redacted:" + "." * (len(mark[0]) - 11) + "]"


def text_or_replaced(text: str) -> str:
    """Returns a text that can be written as UTF-8: half a surrogate becomes a question mark."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _formed(text: str) -> Iterator[Hit]:
    """Yields the secrets that are known by how they begin; nearer to an end of a line less of one will do."""
    at = 0
    for beginning in BEGINNING.finditer(text):
        if beginning.start() < at or not stands_free(text, beginning.start()):
            continue
        form, pattern = BEGINNINGS[beginning[0]]
        rest = pattern.match(text, beginning.end())
        if rest is None or not _is_whole(text, form, rest):
            continue
        at = rest.end()
        while text[at - 1] in ".-" and at > beginning.end():
            at -= 1
        yield beginning.start(), at, form.name


def _is_whole(text: str, form: Form, rest: re.Match[str]) -> bool:
    length = rest.end() - rest.start()
    if length >= form.least:
        return len(set(rest[0])) > 3
    cut = rest.end() == len(text) or _LINE_END.match(text, rest.end()) is not None or text[rest.end()] == "…"
    # A few words of a sentence begin like a secret; they hold no digits.
    return cut and length >= CUT_LEAST and len(form.beginnings[0]) > 2 and any(map(str.isdigit, rest[0]))


def _continued(text: str, hit: Hit) -> Hit:
    """Returns a secret with its other half, where the end of a line cut it."""
    start, end, kind = hit
    broken = _LINE_END.match(text, end)
    if kind == "private-key" or broken is None:
        return hit
    rest = RUN.match(text, broken.end())
    if (
        rest is None
        or not looks_random(rest[0])
        or text[rest.end() : rest.end() + 1] in (":", "(", " ")
        and rest[0].isalpha()
    ):
        return hit
    after = text[rest.end() : rest.end() + 1]
    if after in ("", "\n", "\r", "\\", '"', "'", "`", " ", ",", ";", "<", ")", "]", "}", "@") and "=" not in rest[
        0
    ].rstrip("="):
        return start, rest.end(), kind
    return hit


def looks_random(run: str) -> bool:
    """Returns whether a run of characters is no word of a language."""
    digits = sum(map(str.isdigit, run))
    letters = sum(map(str.isalpha, run))
    mixed = any(map(str.islower, run)) and any(map(str.isupper, run[1:]))
    if "/" in run and "." in run:
        return False
    return letters >= 2 and (digits >= 2 or (mixed and (digits > 0 or len(run) >= 12)))


def without_overlap(hits: Iterable[Hit]) -> list[Hit]:
    """Returns the hits in order; of those that overlap one that covers all, of the type of the first."""
    done: list[Hit] = []
    for start, end, kind in sorted(hits, key=lambda hit: (hit[0], -hit[1])):
        if done and start < done[-1][1]:
            before = done[-1]
            done[-1] = (before[0], max(before[1], end), before[2])
        elif end > start:
            done.append((start, end, kind))
    return done


def replaced(text: str, hits: list[Hit]) -> tuple[str, Counter[str]]:
    """Returns a text with the type of each secret in its place, and how many there are of each."""
    if not hits:
        return text, Counter()
    parts: list[str] = []
    at = 0
    for start, end, kind in hits:
        parts += text[at:start], f"[redacted:{kind}]"
        at = end
    return "".join([*parts, text[at:]]), Counter(kind for _, _, kind in hits)
