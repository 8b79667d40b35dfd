"""Tokens of exact form: gitleaks' rules in time linear in the text, and rules of our own where
gitleaks has none.

Both are data: `rules.json`, made of gitleaks' configuration, and `token_detection.toml`.
"""

import json
import math
import re
import string
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

Hit = tuple[int, int, str]
"""The places where a secret begins and ends, and its type."""


def occurrences(text: str, part: str) -> Iterator[int]:
    """Yield where a part stands in a text, none over another."""
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))


def holds_any(text: str, parts: Iterable[str]) -> bool:
    """Return whether one of some parts occurs in a text.

    A loop: most texts are short, and a generator takes longer.
    """
    for part in parts:  # noqa: SIM110
        if part in text:
            return True
    return False


LEAST_CERTAIN = 20
"""Characters of the least run in which a secret can be that names itself."""

_RUN_CHARS = f"{string.ascii_letters}{string.digits}_-".encode()
_AS_RUNS = bytes(ord("a") if code in _RUN_CHARS else ord(" ") for code in range(256))
_LEAST_RUN = b"a" * LEAST_CERTAIN
_DIGIT_BYTE = re.compile(rb"\d")


def certain_runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where the runs of letters, digits, `_` and `-` are in which a secret can be that names
    itself.

    Each is as long as can be and has a digit. A pattern would take longer to find them, and most
    files have none.
    """
    runs = data.translate(_AS_RUNS)
    start = runs.find(_LEAST_RUN)
    while start >= 0:
        end = runs.find(b" ", start)
        end = len(runs) if end < 0 else end
        if _DIGIT_BYTE.search(data, start, end):
            yield start, end
        start = runs.find(_LEAST_RUN, end)


LEAST = 12
"""Characters of a run that may be a secret; every rule asks for as many."""

NEAR = 48
"""Characters around a run that belong to the same secret, when it names itself."""

LEAD, TAIL = 110, 4
"""Characters before and after a run that may hold a rule's fixed part."""

_RUN = re.compile(r"[A-Za-z0-9_+/=.~-]{12,}")
_DIGIT = re.compile(r"\d")


class CandidateText:
    """A text, the same in lower case with the same length, and its windows: none over another, in
    order.
    """

    def __init__(
        self, text: str, lower: str, words: Sequence[str] | None = None, *, certain: bool = False
    ) -> None:
        """Find the windows of a text.

        words: at least all the words of the text with LEAST characters, where they are known.
        certain: only for secrets that name themselves; they need no name of a provider before them.
        """
        self.text, self.lower = text, lower
        self.windows: list[tuple[int, int]] = []
        # Most texts end here, without a search for runs.
        if words is not None and not any(map(_may_be_secret, words)):
            return
        lead, tail = (NEAR, NEAR) if certain else (LEAD, TAIL)
        # A byte for each character: what is not ASCII belongs to no run.
        runs = certain_runs(text.encode("ascii", "replace")) if certain else _find_runs(text)
        for start, end in runs:
            # Windows that meet are joined, so that none is searched twice.
            start, end = max(0, start - lead), end + tail
            if self.windows and start <= self.windows[-1][1]:
                self.windows[-1] = (self.windows[-1][0], end)
            else:
                self.windows.append((start, end))

    @cached_property
    def joined(self) -> str:
        """The windows' text, one after the other."""
        return "\n".join(self.text[start:end] for start, end in self.windows)

    @cached_property
    def joined_lower(self) -> str:
        """The windows' text in lower case."""
        return "\n".join(self.lower[start:end] for start, end in self.windows)

    def find(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """Yield the matches of a pattern that lie in a window."""
        for start, end in self.windows:
            yield from pattern.finditer(self.text, start, end)

    def places(self, anchor: str) -> Iterator[int]:
        """Yield the places of a lower-case text in the windows."""
        for start, end in self.windows:
            at = self.lower.find(anchor, start, end)
            while at >= 0:
                yield at
                at = self.lower.find(anchor, at + 1, end)


def _find_runs(text: str) -> Iterator[tuple[int, int]]:
    for run in _RUN.finditer(text):
        start, end = run.span()
        # A long run is looked at without a digit too: some issuers use letters alone.
        if end - start >= 2 * LEAST or _DIGIT.search(text, start, end):
            yield start, end


def _may_be_secret(word: str) -> bool:
    return len(word) >= LEAST and (len(word) >= 2 * LEAST or _DIGIT.search(word) is not None)


def make_certain_candidates(text: str) -> CandidateText:
    """Return the windows of a text in which a secret may be that names itself."""
    return CandidateText(text, text.replace("İ", "I").lower(), certain=True)


LEAST_ENTROPY = 2.6
"""Bits per character that every secret has: a repeated or counted text has fewer."""


@dataclass(frozen=True)
class GitleaksRule:
    """One rule. `anchors`: one of them, in lower case, begins every match."""

    name: str
    source: str
    anchors: tuple[str, ...]
    entropy: float
    group: int | None
    allowed_sources: tuple[str, ...]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.source, re.ASCII)

    @cached_property
    def allowed_patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(source, re.ASCII) for source in self.allowed_sources)

    def hit(self, text: str, at: int) -> Hit | None:
        """Return the secret of a match that begins at a place, or None."""
        match = self.pattern.match(text, at)
        if match is None:
            return None
        # Without a group of its own a rule's first group is the secret, as in gitleaks.
        group = self.group if self.group is not None else min(1, self.pattern.groups)
        secret = match[group]
        if secret is None or len(secret) < LEAST:
            return None
        if entropy(secret) < max(self.entropy, LEAST_ENTROPY):
            return None
        if any(allowed.search(secret) for allowed in self.allowed_patterns):
            return None
        return match.start(group), match.end(group), self.name


@cache
def load_rules() -> tuple[GitleaksRule, ...]:
    """Return every rule of rules.json.

    A pattern is compiled when a text first holds one of its anchors.
    """
    return tuple(
        _read_rule(row)
        for row in json.loads(Path(__file__).with_name("rules.json").read_text(encoding="utf-8"))
    )


@cache
def _list_by_anchor() -> tuple[tuple[str, GitleaksRule], ...]:
    return tuple((anchor, rule) for rule in load_rules() for anchor in rule.anchors)


SHORT, START = 200, 3
"""Characters of a text that is divided in its starts of anchors, and of such a start; every anchor
has as many.
"""


@cache
def _group_by_start() -> Mapping[str, list[int]]:
    """Return the places in `_list_by_anchor` of the anchors with the same start."""
    places: dict[str, list[int]] = {}
    for place, (anchor, _) in enumerate(_list_by_anchor()):
        places.setdefault(anchor[:START], []).append(place)
    return places


def _find_rules(lower: str) -> Iterator[tuple[str, GitleaksRule]]:
    """Yield the anchors that a text in lower case holds, with their rules, in the order of the
    rules.
    """
    rules: Sequence[tuple[str, GitleaksRule]] = _list_by_anchor()
    if len(lower) <= SHORT:  # the starts of a short text are fewer than the anchors
        by_start = _group_by_start()
        starts = {lower[at : at + START] for at in range(len(lower) - START + 1)}
        places = [place for start in starts & by_start.keys() for place in by_start[start]]
        rules = [rules[place] for place in sorted(places)]
    return ((anchor, rule) for anchor, rule in rules if anchor in lower)


def _read_rule(row: Mapping[str, Any]) -> GitleaksRule:
    anchors, allowed = tuple(row["anchors"]), tuple(row.get("allowed", ()))
    return GitleaksRule(
        row["id"], row["pattern"], anchors, float(row["entropy"]), row.get("group"), allowed
    )


def find_issued(candidate_text: CandidateText) -> Iterator[Hit]:
    """Yield the secrets that a rule of gitleaks finds."""
    if not candidate_text.windows:
        return
    for anchor, rule in _find_rules(candidate_text.joined_lower):
        yield from _find_hits(rule, anchor, candidate_text)


def _find_hits(rule: GitleaksRule, anchor: str, candidate_text: CandidateText) -> Iterator[Hit]:
    end = 0
    for at in candidate_text.places(anchor):
        # A place within the secret before begins no other one.
        if at >= end and (hit := rule.hit(candidate_text.text, at)) is not None:
            end = hit[1]
            yield hit


def entropy(text: str) -> float:
    """Return Shannon's entropy of a text in bits per character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# At the beginning of a word. In JSON within JSON a line ends with a backslash and a letter.
_FREE = r"(?:(?<![A-Za-z0-9_.-])|(?<=\\[nrt]))"


@dataclass(frozen=True)
class ExactToken:
    """A token whose whole form is known. holds: what a text with one has in it."""

    holds: str
    kind: str
    form: str
    free: str = _FREE

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(f"{self.free}{self.form.replace('{uuid}', _UUID)}(?![A-Za-z0-9_-])")


@cache
def exact_tokens() -> tuple[ExactToken, ...]:
    """Return the tokens of token_detection.toml.

    A pattern is compiled when a text first holds what the token holds.
    """
    rows = tomllib.loads(
        Path(__file__).with_name("token_detection.toml").read_text(encoding="utf-8")
    )["tokens"]
    return tuple(ExactToken(**row) for row in rows)


def find_tokens(candidate_text: CandidateText) -> Iterator[Hit]:
    """Yield the tokens of exact form in a text."""
    if not candidate_text.windows:
        return
    joined = candidate_text.joined
    for token in exact_tokens():
        if token.holds in joined:
            for match in candidate_text.find(token.pattern):
                if is_random(match[0]):
                    yield *match.span(), token.kind


def is_random(text: str) -> bool:
    """Return whether a text has digits, and letters of both cases or many of one."""
    digits = sum(map(str.isdigit, text))
    mixed = any(map(str.islower, text)) and any(map(str.isupper, text))
    # Two digits and different characters exclude words; 24 of one case are needed where no mix of
    # cases tells.
    if digits < 2 or len(set(text)) < 9 or not any(map(str.isalpha, text)):
        return False
    return mixed or len(text) >= 24


_NOT_CERTAIN = frozenset(
    {"vault-token", "facebook-token", "mollie-key", "voyage-key", "pagerduty-key", "api-key"}
)
"""Tokens whose form other things can have: what is hidden in a session is not yet a finding in a
skill.
"""

_PLACEHOLDER = re.compile(
    r"example(?![a-z0-9])|your|x{4}|\.\.\.|placeholder|dummy|fake|sample|redacted|changeme|"
    r"change-me|replace|0{6}|1{6}|a{6}|123456|abcdef|abc123|test|mock|foobar|exposed",
    re.IGNORECASE,
)


def find_certain(text: str) -> Iterator[Hit]:
    """Yield the secrets of a text that name themselves, by a beginning or an exact form.

    Placeholders are not secrets.
    """
    candidate_text = make_certain_candidates(text)
    if not candidate_text.windows:
        return
    anchors = {rule.name: rule.anchors for rule in load_rules()}
    for start, end, kind in find_tokens(candidate_text):
        if kind not in _NOT_CERTAIN and not is_placeholder(text[start:end]):
            yield start, end, kind
    for start, end, kind in find_issued(candidate_text):
        # Rules whose anchor is a provider's name before the secret are left out: only the secret
        # itself is certain.
        names_itself = candidate_text.lower.startswith(anchors[kind], start)
        if names_itself and not is_placeholder(text[start:end]):
            yield start, end, kind


def is_placeholder(secret: str) -> bool:
    """Return whether a text is a placeholder of a secret, as in an example."""
    return len(set(secret)) < 10 or _PLACEHOLDER.search(secret) is not None
