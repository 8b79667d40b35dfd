"""Prohibitions that a change takes away or weakens, and phrases that a person should see before
anybody follows them.

The patterns are data, in `sentence_rules.toml` and `phrase_rules.toml`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from evolvable_tools.scan.scan_findings import Alternatives, Finding, FindingSeverity, PatternTable
from evolvable_tools.scan.text_analysis import (
    MAX_EXCERPT,
    Sentence,
    TextPart,
    TextView,
    escape_unprintable,
    parts,
)
from evolvable_tools.scan.text_loops import PartFinder

_TABLE = PatternTable("sentence_rules.toml")
_FORBIDS, _NO, _ROMANCE, _ASKS, _SAFETY, _SENSITIVE, _HARD, _SOFTER = (
    _TABLE.compile(name)
    for name in ("forbids", "no", "romance", "asks", "safety", "sensitive", "hard", "softer")
)
_FUNCTION = frozenset(_TABLE.data["function_words"].split())
_WORD = re.compile(r"\.?[^\W_][\w'’-]*")
_SMALL = 3
"""Sentences that a change takes away at most, so that every rule among them counts and not only
sensitive ones.
"""
_NUMBER = re.compile(r"\d[\d.,]*")
_WIDE_LETTERS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_STEM = 5  # characters
# Shares of a rule's stems that another sentence has, from which that is its new wording (_ALIKE) or
# the same rule at another place (_MOVED).
_ALIKE = 0.5
_MOVED = 0.6
_HINT = "Approve it if the rule is no longer wanted; otherwise keep the line."


def report(
    path: str,
    sentence: Sentence,
    rule: str,
    severity: FindingSeverity,
    why: str,
    hint: str = "Approve it if it should be so.",
) -> Finding:
    """Return the finding of a rule in a sentence of a file."""
    excerpt = escape_unprintable(sentence.text[:MAX_EXCERPT])
    return Finding(rule, severity, path, sentence.line, excerpt, why, hint)


@dataclass(frozen=True, slots=True)
class _StemmedSentence:
    """A sentence with the stems of its words."""

    sentence: Sentence
    stems: frozenset[str]


def find_weakened(
    before: TextView,
    added: Sequence[Sentence],
    removed: Sequence[Sentence],
    after: Iterable[TextView],
) -> Iterator[Finding]:
    """Yield a finding for each prohibition, question or safety heading that goes away or becomes
    weaker.

    before: the text that the sentences are removed from. after: the new texts; a rule that stands
    elsewhere in them is not taken away.
    """
    if not any(map(_is_rule, removed)):
        return
    lost = _find_removed_rules(before, removed)
    # Of a larger change only sensitive rules count, because rules go along with what they are
    # about.
    if sum(sentence.part is not TextPart.CODE for sentence in removed) > _SMALL:
        lost = [
            sentence
            for sentence in lost
            if sentence.part is TextPart.HEADING or _SENSITIVE.search(sentence.text)
        ]
    if not lost:
        return
    new = [
        _StemmedSentence(sentence, sentence_content(sentence.text))
        for sentence in added
        if sentence.part is not TextPart.CODE
    ]
    whole = [sentence for view in after for sentence in parts(view)]
    headings = [sentence for sentence in whole if sentence.part is TextPart.HEADING]
    standing = [
        _StemmedSentence(sentence, sentence_content(sentence.text))
        for sentence in whole
        if sentence.part is not TextPart.CODE and _is_rule(sentence)
    ]
    for sentence in lost:
        stems = sentence_content(sentence.text)
        # A single word is found again in too many sentences.
        if len(stems) < 2 and sentence.part is not TextPart.HEADING:
            continue
        judged = _judge_rule(_StemmedSentence(sentence, stems), new, standing, headings)
        if judged is not None:
            rule, why = judged
            excerpt = escape_unprintable(sentence.text[:MAX_EXCERPT])
            yield Finding(rule, FindingSeverity.MEDIUM, before.path, 0, excerpt, why, _HINT)


def _find_removed_rules(before: TextView, removed: Sequence[Sentence]) -> list[Sentence]:
    """Return the rules that a change takes out of their text, and not together with it.

    At least half of the removed sentences that stand next to each other have to be rules. A section
    that is rewritten or dropped takes its rules along.
    """
    gone = Counter((sentence.part, sentence.text) for sentence in removed)
    lost: list[Sentence] = []
    run: list[Sentence] = []
    prose = [sentence for sentence in parts(before) if sentence.part is not TextPart.CODE]
    # None ends the last run.
    for sentence in (*prose, None):
        if sentence is not None and gone[sentence.part, sentence.text] > 0:
            gone[sentence.part, sentence.text] -= 1
            run.append(sentence)
            continue
        rules = [other for other in run if _is_rule(other)]
        lost += rules if 2 * len(rules) >= len(run) else []
        run = []
    return lost


def _is_rule(sentence: Sentence) -> bool:
    if sentence.part is TextPart.HEADING:
        return _SAFETY.search(sentence.text) is not None
    if sentence.part is TextPart.CODE or sentence.part is TextPart.FRONT:
        return False
    return forbids(sentence.text)


def forbids(text: str) -> bool:
    """Return whether a sentence in lower case forbids something, or asks for a question or an
    approval first.
    """
    return _FORBIDS.search(text) is not None or _ASKS.search(text) is not None or _says_no(text)


def _says_no(text: str) -> bool:
    """Return whether a sentence forbids with the word that says `no` in English: only where it is
    not English.
    """
    return _NO.search(text) is not None and _ROMANCE.search(text) is not None


def _judge_rule(
    lost: _StemmedSentence,
    new: list[_StemmedSentence],
    standing: list[_StemmedSentence],
    headings: list[Sentence],
) -> tuple[str, str] | None:
    """Return the rule and the reason of the finding on a lost rule, None where it still holds.

    new: the sentences that the change adds. standing, headings: the rules and the headings of the
    new texts.
    """
    sentence, stems = lost.sentence, lost.stems
    if sentence.part is TextPart.HEADING:
        has_heading = any(_SAFETY.search(other.text) for other in headings)
        return None if has_heading else ("prohibition.heading", "removes a heading on safety")
    moved = [other for other in standing if _measure_likeness(stems, other.stems) >= _MOVED]
    if any(not _is_weaker(sentence, other.sentence) for other in moved):
        return None
    best = max(new, key=lambda other: _measure_likeness(stems, other.stems), default=None)
    if best is None or _measure_likeness(stems, best.stems) < _ALIKE:
        return "prohibition.removed", "removes a prohibition"
    if _is_weaker(sentence, best.sentence):
        weaker = escape_unprintable(best.sentence.text[:80])
        return "prohibition.weakened", f"weakens a prohibition to '{weaker}'"
    return None


def _is_weaker(old: Sentence, new: Sentence) -> bool:
    """Return whether a sentence says the same with less force."""
    if not forbids(new.text) and not _HARD.search(new.text):
        return True
    if _FORBIDS.search(old.text) and not _FORBIDS.search(new.text) and not _HARD.search(new.text):
        return True
    if _SOFTER.search(new.text) and not _SOFTER.search(old.text):
        return True
    # A number can turn a rule around: "ask after 3 attempts", "ask after 300".
    return _find_numbers(old.text) != _find_numbers(new.text) and _ASKS.search(old.text) is not None


def _find_numbers(text: str) -> set[str]:
    return {match.rstrip(".,") for match in _NUMBER.findall(text)}


def sentence_content(text: str) -> frozenset[str]:
    """Return the stems of the words that carry meaning, and pairs of characters where words are not
    spaced.
    """
    stems = {
        word[:_STEM]
        for word in _WORD.findall(text.replace("’", "'"))
        if word not in _FUNCTION and len(word) > 1 and word.isascii()
    }
    if text.isascii():
        return frozenset(stems)
    stems |= {
        word[:_STEM]
        for word in _WORD.findall(text.replace("’", "'"))
        if not word.isascii() and not _WIDE_LETTERS.search(word) and len(word) > 3
    }
    wide = "".join(_WIDE_LETTERS.findall(text))
    return frozenset(stems | {wide[i : i + 2] for i in range(len(wide) - 1)})


def _measure_likeness(stems: frozenset[str], others: frozenset[str]) -> float:
    """Return the share of the stems that the others have, 0 to 1."""
    return len(stems & others) / len(stems) if stems else 0.0


# A phrase may run over line breaks and the signs of quotes, comments and lists.
_GAP = r"[\s>#/-]"
_ASK = "Say what to do in the open, or let a person approve it."

MAX_FOUND = 200
"""Places that one rule looks at in one file."""


@dataclass(frozen=True)
class PhraseRule:
    """The phrases that one rule looks for, in lower case.

    anchors: every text with such a phrase has one of these words. core: what stands in each match
    and is found sooner than the match.
    """

    rule: str
    severity: FindingSeverity
    anchors: frozenset[str]
    source: str
    why: str
    hint: str
    core: Alternatives | None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when a text first has one of the anchors."""
        return re.compile(self.source)


_PHRASE_TABLE = PatternTable("phrase_rules.toml")


def _read_phrase(row: Mapping[str, Any]) -> PhraseRule:
    # A blank of a pattern is such a gap, and " ?" one that may be missing. The bound keeps a search
    # linear in the text.
    source = (
        _PHRASE_TABLE.join(row["pattern"])
        .replace(" ?", _GAP + "{0,8}")
        .replace(" ", _GAP + "{1,8}")
    )
    severity = FindingSeverity(row.get("severity", "medium"))
    return PhraseRule(
        row["rule"],
        severity,
        frozenset(row["anchors"]),
        source,
        row["why"],
        row.get("hint", _ASK),
        _PHRASE_TABLE.core(row),
    )


COMMANDS, QUOTES = (
    tuple(map(_read_phrase, _PHRASE_TABLE.data[group])) for group in ("commands", "quotes")
)
_ANCHORS = PartFinder(
    tuple({anchor for phrase in (*COMMANDS, *QUOTES) for anchor in phrase.anchors})
)


def _match_phrases(
    phrases: Sequence[PhraseRule], view: TextView, anchors: list[str]
) -> Iterator[Finding]:
    """Yield what the phrases find in a file. anchors: those that stand in it."""
    text = view.plain
    for phrase in phrases:
        if phrase.anchors.isdisjoint(anchors):
            continue
        if phrase.core is not None and phrase.core.search(text) is None:
            continue
        for match in islice(phrase.pattern.finditer(text), MAX_FOUND):
            excerpt = view.excerpt(match.start(), match.end(), text)
            line, rule, severity = view.line(match.start(), text), phrase.rule, phrase.severity
            yield Finding(rule, severity, view.path, line, excerpt, phrase.why, phrase.hint)


def find_phrases(view: TextView) -> Iterator[Finding]:
    """Yield the commands and marks in a file that are refused or that somebody should see first.

    A document may talk about any command, such as one on how attacks look: there, somebody sees it
    first.
    """
    anchors = _ANCHORS.find(view.plain)
    for finding in _match_phrases(COMMANDS, view, anchors):
        # In a document a command may be an example, in a program it runs.
        if finding.severity is FindingSeverity.HIGH and not view.is_code:
            finding = replace(finding, severity=FindingSeverity.MEDIUM)
        yield finding
    yield from _match_phrases(QUOTES, view, anchors)
