"""Text that a model reads and a person who reads the page does not see: HTML comments and hidden elements."""

import re
from collections.abc import Iterator, Sequence

from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.scan.meaning import said
from evolvable_tools.scan.sentences import Part, Sentence
from evolvable_tools.scan.views import MAX_EXCERPT, written_out

_MARK = re.compile(
    r"\s*(?:prettier|eslint|markdownlint|textlint|cspell|spell|vale|toc\b|/?toc|begin|end\b|start\b|copyright|spdx|licen[cs]e|\(c\)"
    r"|generated|auto-?generated|@|region|endregion|#|todo|fixme|source:|from:|ref:|see |version|last updated|updated|more)"
)
_STEERS = (
    "assistant",
    "never",
    "every",
    "send",
    "secret",
    "approve",
    "follow",
    "unasked",
    "stealth",
    "off",
    "url",
    "tool",
    "config",
)
_MIN_WORDS = 4


def unseen(path: str, sentences: Sequence[Sentence], *, is_new: bool) -> Iterator[Finding]:
    """Yield a finding for each hidden text that could instruct."""
    for one in sentences:
        if one.part is not Part.COMMENT:
            continue
        spoken = said(one)
        steers = sum(concept in spoken.found for concept in _STEERS)
        addressed = "assistant" in spoken.found and len(spoken.found) > 1
        long = one.text.count(" ") + 1 >= _MIN_WORDS or not one.text.isascii()
        if not long or (_MARK.match(one.text) and not addressed):
            continue
        severity = Severity.MEDIUM if not is_new or addressed or steers >= 2 else Severity.LOW
        excerpt = written_out(one.text[:MAX_EXCERPT])
        why = "hides text that can instruct from whoever reads the page"
        yield Finding(
            "hidden.comment",
            severity,
            path,
            one.line,
            excerpt,
            why,
            "Write it where a person sees it, or leave it out.",
        )
