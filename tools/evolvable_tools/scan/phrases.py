"""Rules that look for phrases: data, and one way to apply them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.scan.views import View

_GAP = r"[\s>#/-]"

MAX_FOUND = 200
"""Places that one rule looks at in one file."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """What a rule looks for in lower case. `anchors`: every text that has it has one of these words.

    Every repetition in the pattern has an upper bound, so a search takes time in proportion to the text.
    """

    rule: str
    severity: Severity
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    why: str
    hint: str


def phrase(rule: str, severity: Severity, anchors: str, pattern: str, why: str, hint: str) -> Phrase:
    """Returns a phrase. anchors: separated by |. In the pattern a blank stands for any short gap between words."""
    gapped = pattern.replace(" ?", _GAP + "{0,8}").replace(" ", _GAP + "{1,8}")
    return Phrase(rule, severity, tuple(anchors.split("|")), re.compile(gapped), why, hint)


def spoken_of(phrases: Sequence[Phrase], view: View, text: str) -> Iterator[Finding]:
    """Yields what the phrases find in `text`, one of the views of a file."""
    for one in phrases:
        if not any(anchor in text for anchor in one.anchors):
            continue
        for number, match in enumerate(one.pattern.finditer(text)):
            if number == MAX_FOUND:
                break
            excerpt = view.excerpt(match.start(), match.end(), text)
            yield Finding(one.rule, one.severity, view.path, view.line(match.start(), text), excerpt, one.why, one.hint)
