"""The words of a sentence: the concepts of the lexicon that they name, in any of its languages, and rules on wordings.

The rules on meaning join words; these join what a sentence says of the work with whom it keeps from seeing it, with
other skills, with ratings of itself, or with a text elsewhere that replaces it. A skill about its own subject seldom
speaks of any of these. Others find prohibitions that a change weakens, and phrases: commands that a person should see
before anybody runs them, and instructions against the person, the rules, or the safety of the machine.

Words and rules are data, in `lexicon.toml`, `sentence_rules.toml` and `phrase_rules.toml`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

from evolvable_tools.scan import Finding, FindingSeverity, PatternTable
from evolvable_tools.scan.text_analysis import (
    MAX_EXCERPT,
    Sentence,
    TextPart,
    TextView,
    escape_unprintable,
    parts,
    windows,
)

_WORD = re.compile(r"\.?[^\W_][\w'’-]*")
_WORD_OR_END = re.compile(r"\.?[^\W_][\w'-]*|[,;:()|\u2013\u2014，、；：→⇒+\"]")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+]{1,10}://[^\s)\]>\"'`，。、]{1,400}")
CLAUSE = 100
"""What the end of a clause adds to the places after it, so that words of two clauses never stand near each other."""
WIDE = re.compile("[\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_MIN_STEM = 3


LEXICON = PatternTable("lexicon.toml").data
"""The words of each concept; the head of the file says what they look like."""


_Concepts = frozenset[str]
_SHARED: dict[_Concepts, _Concepts] = {}


def _shared(concepts: _Concepts) -> _Concepts:
    """Return one of the equal sets: thousands of words name the same few, and a set takes 200 bytes."""
    return _SHARED.setdefault(concepts, concepts)


def _entries() -> tuple[dict[str, _Concepts], dict[str, _Concepts], dict[str, list[tuple[tuple[str, ...], str]]]]:
    words: dict[str, _Concepts] = {}
    stems: dict[str, _Concepts] = {}
    phrases: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for concept, entries in LEXICON["spaced"].items():
        for entry in entries.split():
            if "_" in entry and entry != "report_outcome":
                parts = tuple(entry.split("_"))
                phrases.setdefault(parts[0], []).append((parts[1:], concept))
            elif entry.endswith("*"):
                stems[entry[:-1]] = _shared(stems.get(entry[:-1], frozenset()) | {concept})
            else:
                words[entry] = _shared(words.get(entry, frozenset()) | {concept})
    return words, stems, phrases


_WORDS, _STEMS, _PHRASES = _entries()
_NONE: _Concepts = frozenset()
_LONGEST = max(map(len, _STEMS))
_BY_CONCEPT = {
    concept: re.compile("|".join(re.escape(entry.replace("_", " ")) for entry in entries.split()))
    for concept, entries in LEXICON["unspaced"].items()
}


def tokens(sentence: str) -> list[str]:
    """Return the words of a lower-case sentence."""
    return _WORD.findall(sentence.replace("’", "'"))


@lru_cache(maxsize=8192)
def concepts_of_word(word: str) -> frozenset[str]:
    """Return the concepts of one word, by itself or by how it begins."""
    found = _WORDS.get(word, _NONE)
    for length in range(_MIN_STEM, min(len(word), _LONGEST) + 1):
        if (more := _STEMS.get(word[:length])) is not None:
            found = _shared(found | more)
    return found


def words_with_places(sentence: str) -> list[tuple[str, int]]:
    """Return the words of a lower-case sentence, each with its place."""
    found, place = [], 0
    if "://" in sentence:
        sentence = _ADDRESS.sub(" ", sentence)  # what stands in an address is not said
    for word in _WORD_OR_END.findall(sentence.replace("’", "'")):
        if len(word) == 1 and not word.isalnum():
            place = (place // CLAUSE + 1) * CLAUSE
        else:
            found.append((word, place))
            if "'" in word and len(bare := word.partition("'")[2]) > 3:
                found.append((bare, place))  # l'utente, d'ambiente
            if "-" in word and word.rpartition("-")[2] in _CLITICS:
                found.append((word.rpartition("-")[0], place))  # envoie-le, envie-o
            place += 1
    return found


def locate_concepts(sentence: str, words: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield each concept of a sentence with the place of the word (or character) where it stands."""
    for number, (word, place) in enumerate(words):
        for concept in concepts_of_word(word):
            yield concept, place
        if number + 1 < len(words) and (follow := _PHRASES.get(word)):
            following = words[number + 1][0]
            for rest, concept in follow:
                if rest[0][:3] == following[:3] and _continues(words, number + 1, rest):
                    yield concept, place
    if not sentence.isascii() and WIDE.search(sentence):
        for concept, pattern in _BY_CONCEPT.items():
            for match in pattern.finditer(sentence):
                yield concept, match.start()


def _continues(words: list[tuple[str, int]], start: int, rest: tuple[str, ...]) -> bool:
    there = [word for word, _ in words[start : start + len(rest)]]
    if len(there) < len(rest):
        return False
    last = rest[-1]
    return all(a == b for a, b in zip(there[:-1], rest[:-1], strict=True)) and (
        there[-1].startswith(last[:-1]) if last.endswith("*") else there[-1] == last
    )


def concepts(sentence: str, words: list[tuple[str, int]] | None = None) -> dict[str, list[int]]:
    """Return the concepts of a lower-case sentence, each with the places where it stands."""
    found: dict[str, list[int]] = {}
    for concept, place in locate_concepts(sentence, words_with_places(sentence) if words is None else words):
        found.setdefault(concept, []).append(place)
    return found


_TABLE = PatternTable("sentence_rules.toml")
_FORBIDS, _ASKS, _SAFETY, _SENSITIVE, _HARD, _SOFTER = (
    _TABLE.compile(name) for name in ("forbids", "asks", "safety", "sensitive", "hard", "softer")
)
_FUNCTION, _CLITICS = (frozenset(_TABLE.data[name].split()) for name in ("function_words", "clitics"))
_SMALL = 8
"""Sentences that a change takes away at most, so that every rule among them counts and not only those on safety."""
_NUMBER = re.compile(r"\d[\d.,]*")
_WIDE_LETTERS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
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
    stems |= {
        word[:_STEM] for word in tokens(text) if not word.isascii() and not _WIDE_LETTERS.search(word) and len(word) > 3
    }
    wide = "".join(_WIDE_LETTERS.findall(text))
    return frozenset(stems | {wide[i : i + 2] for i in range(len(wide) - 1)})


def _likeness(words: frozenset[str], others: frozenset[str]) -> float:
    return len(words & others) / len(words) if words else 0.0


@dataclass(frozen=True, slots=True)
class WordingRule:
    """A rule: what matches it, and why a person should see it."""

    name: str
    patterns: tuple[re.Pattern[str], ...]
    other_scripts: tuple[re.Pattern[str], ...]
    """Those without a Latin letter; no text in ASCII has what they look for."""
    why: str

    def matches(self, text: str) -> bool:
        """Return whether a sentence has this wording."""
        patterns = self.patterns if text.isascii() else (*self.patterns, *self.other_scripts)
        return any(pattern.search(text) for pattern in patterns)


_LATIN = re.compile(r"(?<!\\)[a-zA-Z]")


def _wording(row: Mapping[str, Any]) -> WordingRule:
    """Return a rule with its patterns in groups.

    Where all of a group begin at the edge of a word, they are tried there only: half the time of one group of all.
    """
    at_edge, anywhere, other = list[str](), list[str](), list[str]()
    for one in map(_TABLE.join, ([pattern] for pattern in row["patterns"])):
        group = at_edge if one.startswith(r"\b") else anywhere if _LATIN.search(one) else other
        group.append(f"(?:{one})")
    patterns = tuple(re.compile("|".join(group)) for group in (at_edge, anywhere) if group)
    return WordingRule(row["name"], patterns, tuple(map(re.compile, other)), row["why"])


WORDINGS = tuple(map(_wording, _TABLE.data["wordings"]))


def find_wordings(path: str, sentences: list[Sentence]) -> Iterator[Finding]:
    """Yield a finding for each sentence that a rule on wording matches; of one sentence one for each rule."""
    for sentence in (piece for whole in sentences if whole.part is not TextPart.CODE for piece in windows(whole)):
        for rule in WORDINGS:
            if rule.matches(sentence.text):
                yield report(path, sentence, rule.name, FindingSeverity.MEDIUM, rule.why)


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


_PHRASE_TABLE = PatternTable("phrase_rules.toml")


def _phrase(row: Mapping[str, Any]) -> PhraseRule:
    source = _PHRASE_TABLE.join(row["pattern"]).replace(" ?", _GAP + "{0,8}").replace(" ", _GAP + "{1,8}")
    severity = FindingSeverity(row.get("severity", "medium"))
    return PhraseRule(row["rule"], severity, tuple(row["anchors"]), source, row["why"], row.get("hint", _ASK))


COMMANDS, INSTRUCTIONS, QUOTES = (
    tuple(map(_phrase, _PHRASE_TABLE.data[group])) for group in ("commands", "instructions", "quotes")
)


def _match_phrases(phrases: Sequence[PhraseRule], view: TextView, text: str) -> Iterator[Finding]:
    """Yield what the phrases find in `text`, one of the views of a file."""
    for one in phrases:
        if not any(anchor in text for anchor in one.anchors):
            continue
        for match in islice(one.pattern.finditer(text), MAX_FOUND):
            excerpt = view.excerpt(match.start(), match.end(), text)
            yield Finding(one.rule, one.severity, view.path, view.line(match.start(), text), excerpt, one.why, one.hint)


def find_commands(view: TextView) -> Iterator[Finding]:
    """Yield the commands in a file that are refused or that somebody should see first.

    A document may talk about any command, such as one on how attacks look: there, somebody sees it first.
    """
    for finding in _match_phrases(COMMANDS, view, view.plain):
        refused = finding.severity is FindingSeverity.HIGH
        yield replace(finding, severity=FindingSeverity.MEDIUM) if refused and not view.is_code else finding


def find_instructions(view: TextView) -> Iterator[Finding]:
    """Yield the instructions in a file that somebody should see first."""
    yield from _match_phrases(INSTRUCTIONS, view, view.prose)
    yield from _match_phrases(QUOTES, view, view.plain)
