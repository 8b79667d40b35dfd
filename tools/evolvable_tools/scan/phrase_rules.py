"""Rules that look for phrases: commands that no skill needs, and instructions that no skill has a reason to give.

The rules are data, in `phrase_rules.toml`. Commands are those that a person should see before anybody runs them.
Instructions are those against the person, the rules, or the safety of the machine.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from evolvable_tools.scan import Finding, FindingSeverity, PatternTable
from evolvable_tools.scan.text_analysis import TextView

_GAP = r"[\s>#/-]"
_ASK = "Say what to do in the open, or let a person approve it."

MAX_FOUND = 200
"""Places that one rule looks at in one file."""


@dataclass(frozen=True)
class PhraseRule:
    """What a rule looks for in lower case. `anchors`: every text that has it has one of these words."""

    rule: str
    severity: FindingSeverity
    anchors: tuple[str, ...]
    source: str
    why: str
    hint: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when a text first has one of the anchors."""
        return re.compile(self.source)


_TABLE = PatternTable("phrase_rules.toml")


def _phrase(row: Mapping[str, Any]) -> PhraseRule:
    source = _TABLE.join(row["pattern"]).replace(" ?", _GAP + "{0,8}").replace(" ", _GAP + "{1,8}")
    severity = FindingSeverity(row.get("severity", "medium"))
    return PhraseRule(row["rule"], severity, tuple(row["anchors"]), source, row["why"], row.get("hint", _ASK))


COMMANDS, INSTRUCTIONS, QUOTES = (
    tuple(map(_phrase, _TABLE.data[group])) for group in ("commands", "instructions", "quotes")
)


def _match_phrases(phrases: Sequence[PhraseRule], view: TextView, text: str) -> Iterator[Finding]:
    """Yields what the phrases find in `text`, one of the views of a file."""
    for one in phrases:
        if not any(anchor in text for anchor in one.anchors):
            continue
        for match in islice(one.pattern.finditer(text), MAX_FOUND):
            excerpt = view.excerpt(match.start(), match.end(), text)
            yield Finding(one.rule, one.severity, view.path, view.line(match.start(), text), excerpt, one.why, one.hint)


def find_commands(view: TextView) -> Iterator[Finding]:
    """Yields the commands in a file that are refused or that somebody should see first.

    A document may talk about any command, such as one on how attacks look: there, somebody sees it first.
    """
    for finding in _match_phrases(COMMANDS, view, view.plain):
        refused = finding.severity is FindingSeverity.HIGH
        yield replace(finding, severity=FindingSeverity.MEDIUM) if refused and not view.is_code else finding


def find_instructions(view: TextView) -> Iterator[Finding]:
    """Yields the instructions in a file that somebody should see first."""
    yield from _match_phrases(INSTRUCTIONS, view, view.prose)
    yield from _match_phrases(QUOTES, view, view.plain)
