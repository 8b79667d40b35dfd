"""Prohibitions and questions that a change takes away or weakens.

Sentences about the agent, the user and the library that work instructions have no need of, by their wording.

The rules on meaning join words; these join what a sentence says of the work with whom it keeps from seeing it, with
other skills, with ratings of itself, or with a text elsewhere that replaces it. A skill about its own subject seldom
speaks of any of these.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from evolvable_tools.scan import Finding, FindingSeverity, PatternTable
from evolvable_tools.scan.lexicon import tokens
from evolvable_tools.scan.text_analysis import MAX_EXCERPT, Sentence, TextPart, TextView, escape_unprintable, parts, windows

_TABLE = PatternTable("sentence_rules.toml")
_FORBIDS, _ASKS, _SAFETY, _SENSITIVE, _HARD, _SOFTER = (
    _TABLE.compile(name) for name in ("forbids", "asks", "safety", "sensitive", "hard", "softer")
)
_FUNCTION = frozenset(_TABLE.data["function_words"].split())
_SMALL = 8
"""Sentences that a change takes away at most, so that every rule among them counts and not only those on safety."""
_NUMBER = re.compile(r"\d[\d.,]*")
_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_STEM = 5
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
    return Finding(rule, severity, path, sentence.line, escape_unprintable(sentence.text[:MAX_EXCERPT]), why, hint)


@dataclass(frozen=True, slots=True)
class _Rule:
    sentence: Sentence
    words: frozenset[str]


def find_weakened(
    path: str, added: Sequence[Sentence], removed: Sequence[Sentence], after: Iterable[TextView]
) -> Iterator[Finding]:
    """Yield a finding for each prohibition, question or safety heading that goes away or becomes weaker.

    after: the new texts; a rule that stands elsewhere in them is not taken away.
    """
    lost = [one for one in removed if _is_rule(one)]
    if not lost:
        return
    if sum(one.part is not TextPart.CODE for one in removed) > _SMALL:
        lost = [one for one in lost if one.part is TextPart.HEADING or _SENSITIVE.search(one.text)]
    new = [_Rule(one, sentence_content(one.text)) for one in added if one.part is not TextPart.CODE]
    whole = [one for view in after for one in parts(view)]
    headings = [one for one in whole if one.part is TextPart.HEADING]
    every = [_Rule(one, sentence_content(one.text)) for one in whole if one.part is not TextPart.CODE and _is_rule(one)]
    for one in lost:
        words = sentence_content(one.text)
        if len(words) < 2 and one.part is not TextPart.HEADING:
            continue
        fate = _fate(one, words, new, every, headings)
        if fate:
            rule, why = fate
            excerpt = escape_unprintable(one.text[:MAX_EXCERPT])
            yield Finding(rule, FindingSeverity.MEDIUM, path, 0, excerpt, why, _HINT)


def _is_rule(one: Sentence) -> bool:
    if one.part is TextPart.HEADING:
        return _SAFETY.search(one.text) is not None
    if one.part is TextPart.CODE or one.part is TextPart.FRONT:
        return False
    return forbids(one.text)


def forbids(text: str) -> bool:
    """Return whether a sentence in lower case forbids something, or asks for a question or an approval first."""
    return _FORBIDS.search(text) is not None or _ASKS.search(text) is not None


def _fate(
    one: Sentence, words: frozenset[str], new: list[_Rule], every: list[_Rule], headings: list[Sentence]
) -> tuple[str, str] | None:
    if one.part is TextPart.HEADING:
        kept = any(_SAFETY.search(other.text) for other in headings)
        return None if kept else ("prohibition.heading", "removes a heading on safety")
    if any(_likeness(words, other.words) >= _MOVED and not _weaker(one, other.sentence) for other in every):
        return None
    best = max(new, key=lambda other: _likeness(words, other.words), default=None)
    if best is None or _likeness(words, best.words) < _ALIKE:
        return "prohibition.removed", "removes a prohibition"
    if _weaker(one, best.sentence):
        return "prohibition.weakened", f"weakens a prohibition to '{escape_unprintable(best.sentence.text[:80])}'"
    return None


def _weaker(old: Sentence, new: Sentence) -> bool:
    """Return whether a sentence says the same with less force."""
    if not forbids(new.text):
        return True
    if _FORBIDS.search(old.text) and not _FORBIDS.search(new.text) and not _HARD.search(new.text):
        return True
    if _SOFTER.search(new.text) and not _SOFTER.search(old.text):
        return True
    return _numbers(old.text) != _numbers(new.text) and _ASKS.search(old.text) is not None


def _numbers(text: str) -> set[str]:
    return {match.rstrip(".,") for match in _NUMBER.findall(text)}


def sentence_content(text: str) -> frozenset[str]:
    """Return the stems of the words that carry meaning, and pairs of characters where words are not spaced."""
    stems = {word[:_STEM] for word in tokens(text) if word not in _FUNCTION and len(word) > 1 and word.isascii()}
    if text.isascii():
        return frozenset(stems)
    stems |= {word[:_STEM] for word in tokens(text) if not word.isascii() and not _WIDE.search(word) and len(word) > 3}
    wide = "".join(_WIDE.findall(text))
    return frozenset(stems | {wide[i : i + 2] for i in range(len(wide) - 1)})


def _likeness(words: frozenset[str], others: frozenset[str]) -> float:
    return len(words & others) / len(words) if words else 0.0


@dataclass(frozen=True, slots=True)
class WordingRule:
    """A rule: what matches it, and why a person should see it."""

    name: str
    pattern: re.Pattern[str]
    why: str


WORDINGS = tuple(
    WordingRule(row["name"], re.compile(_TABLE.join(f"(?:{one})" for one in row["patterns"])), row["why"])
    for row in _TABLE.data["wordings"]
)


def find_wordings(path: str, sentences: list[Sentence]) -> Iterator[Finding]:
    """Yield a finding for each sentence that a rule on wording matches; of one sentence one for each rule."""
    for sentence in (piece for whole in sentences if whole.part is not TextPart.CODE for piece in windows(whole)):
        for rule in WORDINGS:
            if rule.pattern.search(sentence.text):
                yield report(path, sentence, rule.name, FindingSeverity.MEDIUM, rule.why)
