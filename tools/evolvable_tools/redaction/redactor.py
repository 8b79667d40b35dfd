"""The redactor: replaces secrets in texts by their type, before a text is cut, stored, shown or
sent.

It also finds a secret that colour codes of a terminal interrupt or the end of a text cuts. It finds
one that a later text repeats without its name.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evolvable_tools.redaction import secret_patterns
from evolvable_tools.redaction.named_secrets import (
    find_assigned,
    find_placed,
    is_secret,
    names_credential,
)
from evolvable_tools.redaction.secret_patterns import SecretForm, UserPatterns
from evolvable_tools.redaction.structured_secrets import find_structured
from evolvable_tools.redaction.token_detection import (
    CandidateText,
    Hit,
    find_issued,
    find_tokens,
    holds_any,
    occurrences,
)

# Sequences for colours and titles, also as JSON, Python, C or a shell writes their first byte.
_CODE = re.compile(
    r"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033|\\e|\x9b)\[[0-9;:?]{0,24}[A-Za-z]|\x1b\][^\x07\x1b\n"
    r"]{0,200}(?:\x07|\x1b\\)"
)


class UncolouredText:
    """A text without colour codes, with the places of its characters in the coloured text."""

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        # Places in the plain text behind each code, and how much longer the coloured text is up to
        # there.
        self._starts: list[int] = [0]
        self._moved: list[int] = [0]
        at = length = 0
        for code in _CODE.finditer(text):
            parts.append(text[at : code.start()])
            length += code.start() - at
            at = code.end()
            self._starts.append(length)
            self._moved.append(at - length)
        self.text = "".join([*parts, text[at:]])

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return where a part of the plain text stood, with the codes inside of it and none around
        it.
        """
        first, last = (self._moved[bisect_right(self._starts, at) - 1] for at in (start, end - 1))
        return start + first, end + last


def has_codes(text: str) -> bool:
    """Return whether a text has colour codes, also as JSON and programs write them."""
    return holds_any(text, _SIGNS) and _CODE.search(text) is not None


# Each code begins with one of these; most texts have none, which `in` tells sooner than the
# pattern.
_SIGNS: Sequence[str] = ("\x1b", "\\u001b", "\\u001B", "\\x1b", "\\x1B", "\\033", "\\e", "\x9b")

MAX_DEPTH = 40
"""Levels of a value that are looked into; what lies deeper is left out."""

MAX_KEY, MAX_KEYS = 40, 1_000
"""Characters of a key that is remembered, and how many are."""

MAX_CLEAN, MOST_CLEAN = 120, 4_000
"""Characters of a text that is remembered as one without secrets, and how many are: a session says
much again.
"""

CUT_LEAST = 6
"""Characters behind the beginning of a secret that is cut by the end of a line or a text."""

_LONG = 9
"""Characters of a word that may be a secret by its form."""
# The end of a line, also as an escape, with the indentation, or the line number of a client's tool,
# on the next one.
_LINE_END = re.compile(r"[ \t]{0,4}\\?(?:\r?\n|\\r\\n|\\n)(?:[ \t]{0,40}|[ \t]*\d{1,6}(?:→|\t))")
RUN = re.compile(r"[A-Za-z0-9+/=_.~%-]{4,4000}")
_MARK = re.compile(r"\[redacted:[a-z0-9-]{1,60}\]")
# What may follow the second half of a secret on the next line.
_AFTER_REST = ("", "\n", "\r", "\\", '"', "'", "`", " ", ",", ";", "<", ")", "]", "}", "@")
_OPTION = re.compile(r"--?[\w-]{0,40}\Z")


class Redactor:
    """Removes secrets from texts. Thread-safe."""

    def __init__(self, patterns: Mapping[str, str] | UserPatterns | None = None) -> None:
        """Use a person's own patterns too: regular expressions of RE2, by the names that replace
        their matches.

        Raises PatternsNeedRe2 where it is not installed, InvalidArgument for a pattern that it does
        not take.
        """
        self._own = patterns if isinstance(patterns, UserPatterns) else UserPatterns(patterns)
        self._keys: dict[str, str | None] = {}
        self._clean: set[str] = set()

    def redact(self, text: str) -> tuple[str, Mapping[str, int]]:
        """Return the text with each secret replaced by `[redacted:TYPE]`, and how many there were
        of each type.

        Done a second time it changes nothing. Takes time linear in the text.
        """
        whole = text_or_replaced(text)
        return replace_spans(whole, self.hits(whole))

    def redact_value(self, value: Any) -> tuple[Any, Mapping[str, int]]:
        """Return a JSON value with the secrets of all its texts replaced, also where only a key
        names them.
        """
        counts: Counter[str] = Counter()
        return self._redact_nested(value, counts, 0), counts

    def _redact_nested(self, value: Any, counts: Counter[str], depth: int) -> Any:
        if isinstance(value, str):
            text, text_counts = self.redact(value)
            if text_counts:
                counts.update(text_counts)
            return text
        if depth >= MAX_DEPTH:
            return None
        if isinstance(value, Mapping):
            done: dict[str, Any] = {}
            for key, each in value.items():
                text = str(key)
                name = text if key in self._keys else self._redact_key(text, counts)
                done[name] = self._redact_named(text, each, counts, depth)
            return done
        return self._redact_list(value, counts, depth) if isinstance(value, list | tuple) else value

    def _redact_key(self, key: str, counts: Counter[str]) -> str:
        """Return a key without secrets.

        Short ones that hold none are remembered: in a session they are few.
        """
        text, key_counts = self.redact(key)
        if key_counts:
            counts.update(key_counts)
        # Bounded, because keys may come from a hostile transcript.
        elif len(key) <= MAX_KEY and len(self._keys) < MAX_KEYS:
            # Its type is stored as well, so that a repeated key needs no second search.
            self._keys[key] = names_credential(key)
        return text

    def _redact_named(self, key: str, value: Any, counts: Counter[str], depth: int) -> Any:
        if isinstance(value, str):
            kind = self._keys[key] if key in self._keys else names_credential(key)
            if kind is not None and is_secret(value, kind, quoted=True, strong=True):
                counts[kind] += 1
                return f"[redacted:{kind}]"
        return self._redact_nested(value, counts, depth + 1)

    def _redact_list(self, words: Iterable[Any], counts: Counter[str], depth: int) -> list[Any]:
        """Return a list with what follows an option that names a credential hidden."""
        done: list[Any] = []
        # A list of arguments, such as ["--password", "value"].
        before: str | None = None
        for word in words:
            option = before if before is not None and _OPTION.match(before) else ""
            done.append(self._redact_named(option, word, counts, depth))
            before = word if isinstance(word, str) else None
        return done

    def hits(self, text: str) -> list[Hit]:
        """Return the places of the secrets of a text, in order, without overlaps.

        The text is valid UTF-8.
        """
        if text in self._clean:
            return []
        if has_codes(text):
            plain = UncolouredText(text)
            return [
                (*plain.span(start, end), kind) for start, end, kind in self._find_hits(plain.text)
            ]
        return self._find_hits(text)

    def _find_hits(self, original: str) -> list[Hit]:
        # The type in a mark may be a credential's name, but what follows the mark is not its value.
        text = _MARK.sub(_blank_mark, original) if "[redacted:" in original else original
        # The only letter with two characters in lower case, which would move all places behind it.
        lower = text.replace("İ", "I").lower()
        words = [word for word in text.split() if len(word) >= _LONG]
        hits: list[Hit] = [
            (start, end, "private-key") for start, end, _ in secret_patterns.blocks(text, words)
        ]
        if secret_patterns.may_hold(words):
            hits += _find_formed(text)
        hits += find_placed(text, lower)
        hits += find_assigned(text, lower)
        candidate_text = CandidateText(text, lower, words)
        hits += find_structured(candidate_text)
        hits += find_tokens(candidate_text)
        hits += find_issued(candidate_text)
        hits += self._own.hits(original)
        # Short texts repeat in a session. The text is stored, and not a hash, since it holds no
        # secret.
        if not hits and len(text) <= MAX_CLEAN:
            if len(self._clean) >= MOST_CLEAN:
                self._clean.clear()
            self._clean.add(text)
        return without_overlap(_extend_over_break(text, hit) for hit in hits) if hits else hits


def _blank_mark(mark: re.Match[str]) -> str:
    # As long as the mark, so that places stay.
    return "[redacted:" + "." * (len(mark[0]) - 11) + "]"


def text_or_replaced(text: str) -> str:
    """Return a text that can be written as UTF-8: half a surrogate becomes a question mark."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _find_formed(text: str) -> Iterator[Hit]:
    """Yield the secrets that are known by how they begin.

    Nearer to an end of a line less of one will do.
    """
    at = 0
    for beginning in secret_patterns.BEGINNING.finditer(text):
        if beginning.start() < at or not secret_patterns.stands_free(text, beginning.start()):
            continue
        form = secret_patterns.BEGINNINGS[beginning[0]]
        rest = form.pattern.match(text, beginning.end())
        if rest is None or not _is_whole(text, form, rest):
            continue
        at = rest.end()
        # A full stop or a hyphen at the end belongs to the sentence.
        while text[at - 1] in ".-" and at > beginning.end():
            at -= 1
        yield beginning.start(), at, form.name


def _is_whole(text: str, form: SecretForm, rest: re.Match[str]) -> bool:
    length = rest.end() - rest.start()
    if length >= form.least:
        # A repeated character is a placeholder.
        return len(set(rest[0])) > 3
    if not _is_cut(text, rest.end()) or length < CUT_LEAST:
        return False
    # A few words of a sentence begin like a secret; they hold no digits.
    return len(form.beginnings[0]) > 2 and any(map(str.isdigit, rest[0]))


def _is_cut(text: str, end: int) -> bool:
    """Return whether the text, a line or a program that shortens texts ends at a place."""
    return end == len(text) or text[end] == "…" or _LINE_END.match(text, end) is not None


def _extend_over_break(text: str, hit: Hit) -> Hit:
    """Return a secret with its other half, where the end of a line cut it."""
    start, end, kind = hit
    broken = _LINE_END.match(text, end)
    if kind == "private-key" or broken is None:
        return hit
    rest = RUN.match(text, broken.end())
    if rest is None or not looks_random(rest[0]):
        return hit
    after, is_word = text[rest.end() : rest.end() + 1], rest[0].isalpha()
    goes_on = after not in _AFTER_REST or (is_word and after in (":", "(", " "))
    # A key, a call or more of a sentence follows, so this is no second half.
    if goes_on or "=" in rest[0].rstrip("="):
        return hit
    return start, rest.end(), kind


def looks_random(run: str) -> bool:
    """Return whether a run of characters is no word of a language."""
    digits = sum(map(str.isdigit, run))
    letters = sum(map(str.isalpha, run))
    # A capital at the beginning is also that of a sentence.
    mixed = any(map(str.islower, run)) and any(map(str.isupper, run[1:]))
    # A path to a file.
    if "/" in run and "." in run:
        return False
    # Words have no digits, names few; without two digits a run needs both cases, and a digit or
    # some length.
    return letters >= 2 and (digits >= 2 or (mixed and (digits > 0 or len(run) >= 12)))


def without_overlap(hits: Iterable[Hit]) -> list[Hit]:
    """Return the hits in order; of those that overlap one that covers all, of the type of the
    first.
    """
    done: list[Hit] = []
    # Of several that begin at one place the longest comes first and covers the others.
    for start, end, kind in sorted(hits, key=lambda hit: (hit[0], -hit[1])):
        if done and start < done[-1][1]:
            first_start, first_end, first_kind = done[-1]
            done[-1] = first_start, max(first_end, end), first_kind
        elif end > start:
            done.append((start, end, kind))
    return done


def replace_spans(text: str, hits: list[Hit]) -> tuple[str, Counter[str]]:
    """Return a text with the type of each secret in its place, and how many there are of each."""
    if not hits:
        return text, Counter()
    parts: list[str] = []
    at = 0
    for start, end, kind in hits:
        parts += text[at:start], f"[redacted:{kind}]"
        at = end
    return "".join([*parts, text[at:]]), Counter(kind for _, _, kind in hits)


MAX_REMEMBERED = 100
"""Secrets of one session that are also searched where they have no name."""
_LAST_RUN = re.compile(r"([^\s\"'`=:]{6,400})[\s….]*\Z")


class StreamRedactor:
    """Redacts the texts of one session in their order. Not for several threads.

    It remembers the secrets of the session. So it finds one that stands again without its name, and
    the other half of one in the text that follows. Nothing of this memory leaves it.
    """

    def __init__(self, redactor: Redactor) -> None:
        self.counts: Counter[str] = Counter()
        self._redactor = redactor
        self._known_secrets: dict[str, str] = {}
        # The type of the secret within which the text before ended, None without one.
        self._open: str | None = None

    def redact(self, text: str, follows: int | None = None) -> str:
        """Return a text without secrets.

        follows: where what goes on from the text before begins; None: nothing does.
        """
        text = text_or_replaced(text)
        hits = self._redactor.hits(text)
        if follows is not None and self._open is not None:
            end = _find_rest(text, follows, self._open)
            if end > follows:
                # The continuation has no name of its own, so no other rule would find it.
                hits = without_overlap([(follows, end, self._open), *hits])
        if follows is not None:
            last = max(hits, key=lambda hit: hit[1], default=None)
            self._open = last[2] if last is not None and last[1] >= len(text.rstrip("\n")) else None
        for start, end, kind in hits:
            self._remember(text[start:end], kind)
        if not hits:
            return text
        done, counts = replace_spans(text, hits)
        self.counts.update(counts)
        return done

    def redact_value(self, value: Any) -> Any:
        """Return a JSON value without secrets."""
        done, counts = self._redactor.redact_value(value)
        if counts:
            self.counts.update(counts)
            for secret, kind in _secrets_in(value, done):
                self._remember(secret, kind)
        return done

    def redact_known(self, text: str) -> str:
        """Return a redacted text without what became known as a secret elsewhere, whole, or its end
        or beginning.
        """
        if not self._known_secrets:
            return text
        known_secrets = self._known_secrets.items()
        hits = [
            (at, at + len(secret), kind)
            for secret, kind in known_secrets
            for at in occurrences(text, secret)
        ]
        hits += self._find_halves(text)
        if not hits:
            return text
        done, counts = replace_spans(text, without_overlap(hits))
        self.counts.update(counts)
        return done

    def redact_known_in_value(self, value: Any) -> Any:
        """Return a redacted JSON value without what became known elsewhere."""
        if not self._known_secrets:
            return value
        if isinstance(value, str):
            return self.redact_known(value)
        if isinstance(value, Mapping):
            return {key: self.redact_known_in_value(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.redact_known_in_value(each) for each in value]
        return value

    def _find_halves(self, text: str) -> Iterator[Hit]:
        """Yield the end of a secret that a text begins with, and the beginning of one that it ends
        with.
        """
        first = RUN.match(text)
        last = _LAST_RUN.search(text, max(0, len(text) - 400))
        for secret, kind in self._known_secrets.items():
            # Shorter ends occur in ordinary text.
            if first is not None and len(first[0]) >= CUT_LEAST and secret.endswith(first[0]):
                yield 0, first.end(), kind
            if last is not None and secret.startswith(last[1]):
                yield last.start(1), last.end(1), kind

    def _remember(self, secret: str, kind: str) -> None:
        # A short run of letters can be an ordinary word elsewhere in the session.
        telling = not secret.isalpha() or len(secret) >= 16
        fits = 8 <= len(secret) <= 400 and len(set(secret)) >= 5 and "[redacted:" not in secret
        # Bounds the memory, and the time of `redact_known`, which looks for each in each text.
        if telling and fits and len(self._known_secrets) < MAX_REMEMBERED:
            self._known_secrets.setdefault(secret, kind)


def _find_rest(text: str, start: int, kind: str) -> int:
    """Return where the rest of a secret ends within which the text before ended."""
    if kind == "private-key":
        return start + secret_patterns.leading(text[start:])
    rest = RUN.match(text, start)
    return rest.end() if rest is not None and looks_random(rest[0]) else start


def _secrets_in(before: Any, after: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts of a value that were hidden whole, with their types."""
    if isinstance(before, str) and isinstance(after, str):
        if after.startswith("[redacted:") and after.count("[") == 1 and after.endswith("]"):
            yield before, after[10:-1]
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for original, redacted in zip(before.values(), after.values(), strict=False):
            yield from _secrets_in(original, redacted)
    elif isinstance(before, list) and isinstance(after, list):
        for original, redacted in zip(before, after, strict=True):
            yield from _secrets_in(original, redacted)
