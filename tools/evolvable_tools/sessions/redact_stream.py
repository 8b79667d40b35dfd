"""Taking secrets out of texts that follow each other: one may be cut by the end of a text, or stand again unnamed."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from evolvable_tools.sessions.key_blocks import leading
from evolvable_tools.sessions.redact import (
    CUT_LEAST,
    RUN,
    Redactor,
    looks_random,
    replaced,
    text_or_replaced,
    without_overlap,
)
from evolvable_tools.sessions.secret_names import Hit

MAX_REMEMBERED = 100
"""Secrets of one session that are looked for where they stand without a name."""
_LAST_RUN = re.compile(r"([^\s\"'`=:]{6,400})[\s….]*\Z")


class Stream:
    """Redacts the texts of one session in their order. Not for several threads.

    It remembers the secrets that it saw: where one stands again without its name, or its other half stands in the
    text that follows, it is known. Nothing of this memory leaves it.
    """

    def __init__(self, redactor: Redactor) -> None:
        self.counts: Counter[str] = Counter()
        self._redactor = redactor
        self._known: dict[str, str] = {}
        self._open: str | None = None

    def redact(self, text: str, follows: int | None = None) -> str:
        """Returns a text without secrets.

        follows: where what goes on from the text before begins; None: nothing does.
        """
        text = text_or_replaced(text)
        hits = self._redactor.hits(text)
        if follows is not None and self._open is not None:
            end = _rest(text, follows, self._open)
            if end > follows:
                hits = without_overlap([(follows, end, self._open), *hits])
        if follows is not None:
            last = max(hits, key=lambda hit: hit[1], default=None)
            self._open = last[2] if last is not None and last[1] >= len(text.rstrip("\n")) else None
        for start, end, kind in hits:
            self._remember(text[start:end], kind)
        if not hits:
            return text
        done, counts = replaced(text, hits)
        self.counts.update(counts)
        return done

    def redact_value(self, value: Any) -> Any:
        """Returns a JSON value without secrets."""
        done, counts = self._redactor.redact_value(value)
        if counts:
            self.counts.update(counts)
            for secret, kind in _secrets_in(value, done):
                self._remember(secret, kind)
        return done

    def again(self, text: str) -> str:
        """Returns a redacted text without what became known as a secret elsewhere, whole, or its end or beginning."""
        if not self._known:
            return text
        hits: list[Hit] = []
        for secret, kind in self._known.items():
            at = text.find(secret)
            while at >= 0:
                hits.append((at, at + len(secret), kind))
                at = text.find(secret, at + len(secret))
        hits += self._halves(text)
        if not hits:
            return text
        done, counts = replaced(text, without_overlap(hits))
        self.counts.update(counts)
        return done

    def again_value(self, value: Any) -> Any:
        """Returns a redacted JSON value without what became known elsewhere."""
        if not self._known:
            return value
        if isinstance(value, str):
            return self.again(value)
        if isinstance(value, Mapping):
            return {key: self.again_value(each) for key, each in value.items()}
        return [self.again_value(each) for each in value] if isinstance(value, list) else value

    def _halves(self, text: str) -> Iterator[Hit]:
        """Yields the end of a secret that a text begins with, and the beginning of one that it ends with."""
        first, last = RUN.match(text), _LAST_RUN.search(text, max(0, len(text) - 400))
        for secret, kind in self._known.items():
            if first is not None and len(first[0]) >= CUT_LEAST and secret.endswith(first[0]):
                yield 0, first.end(), kind
            if last is not None and secret.startswith(last[1]):
                yield last.start(1), last.end(1), kind

    def _remember(self, secret: str, kind: str) -> None:
        telling = not secret.isalpha() or len(secret) >= 16
        fits = 8 <= len(secret) <= 400 and len(set(secret)) >= 5 and "[redacted:" not in secret
        if telling and fits and len(self._known) < MAX_REMEMBERED:
            self._known.setdefault(secret, kind)


def _rest(text: str, start: int, kind: str) -> int:
    """Returns where the rest of a secret ends that the text before broke off."""
    if kind == "private-key":
        return start + leading(text[start:])
    rest = RUN.match(text, start)
    return rest.end() if rest is not None and looks_random(rest[0]) else start


def _secrets_in(before: Any, after: Any) -> Iterator[tuple[str, str]]:
    """Yields the texts of a value that were hidden whole, with their types."""
    if isinstance(before, str) and isinstance(after, str):
        if after.startswith("[redacted:") and after.count("[") == 1 and after.endswith("]"):
            yield before, after[10:-1]
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for one, other in zip(before.values(), after.values(), strict=False):
            yield from _secrets_in(one, other)
    elif isinstance(before, list) and isinstance(after, list):
        for one, other in zip(before, after, strict=True):
            yield from _secrets_in(one, other)
