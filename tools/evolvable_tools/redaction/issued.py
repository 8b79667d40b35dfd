"""Find secrets by the rules that gitleaks maintains, in time linear in the text."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from evolvable_tools.redaction.ground import LEAST, Ground, Hit

LEAST_ENTROPY = 2.6
"""Bits per character that every secret has: a repeated or counted text has fewer."""


@dataclass(frozen=True)
class Rule:
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
    def allowed(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(source, re.ASCII) for source in self.allowed_sources)

    def hit(self, text: str, at: int) -> Hit | None:
        """Return the secret of a match that begins at a place, or None."""
        found = self.pattern.match(text, at)
        if found is None:
            return None
        group = self.group if self.group is not None else min(1, self.pattern.groups)
        secret = found[group]
        if secret is None or len(secret) < LEAST or entropy(secret) < max(self.entropy, LEAST_ENTROPY):
            return None
        if any(one.search(secret) for one in self.allowed):
            return None
        return found.start(group), found.end(group), self.name


@cache
def rules() -> tuple[Rule, ...]:
    """Return every rule of rules.json. A pattern is compiled when a text first holds one of its anchors."""
    rows = json.loads(Path(__file__).with_name("rules.json").read_text(encoding="utf-8"))
    return tuple(_rule(row) for row in rows)


def _rule(row: Mapping[str, Any]) -> Rule:
    anchors, allowed = tuple(row["anchors"]), tuple(row.get("allowed", ()))
    return Rule(row["id"], row["pattern"], anchors, float(row["entropy"]), row.get("group"), allowed)


def issued(ground: Ground) -> Iterator[Hit]:
    """Yield the secrets that a rule of gitleaks finds."""
    if not ground.windows:
        return
    lower = ground.joined_lower
    for rule in rules():
        for anchor in rule.anchors:
            if anchor in lower:
                yield from _hits(rule, anchor, ground)


def _hits(rule: Rule, anchor: str, ground: Ground) -> Iterator[Hit]:
    seen = 0
    for at in ground.places(anchor):
        if at >= seen and (hit := rule.hit(ground.text, at)) is not None:
            seen = hit[1]
            yield hit


def entropy(text: str) -> float:
    """Return Shannon's entropy of a text in bits per character."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)
