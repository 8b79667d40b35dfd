"""Sentences that a person must see first, by the concepts that they join, in any language of the lexicon.

Also text that a model reads and a person who reads the page does not see: HTML comments and hidden elements. The
patterns are data, in `semantic_rules.toml`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from evolvable_tools.scan import Finding, FindingSeverity, PatternTable
from evolvable_tools.scan.code_flows import WELL_KNOWN
from evolvable_tools.scan.sentence_rules import CLAUSE, LEXICON, WIDE, concepts, report, words_with_places
from evolvable_tools.scan.text_analysis import Sentence, TextPart, windows

_M, _L = FindingSeverity.MEDIUM, FindingSeverity.LOW

ORDERING, DESCRIBING, ENGLISH, QUALIFIES = (
    frozenset(LEXICON["order"][name].split()) for name in ("ordering", "describing", "english", "qualifies")
)

_TABLE = PatternTable("semantic_rules.toml")
_HANDLED, _COUNTED, _BY_PERSON, _TEMPLATE, _TRIGGERS, _PASS_FAIL, _MARK = (
    _TABLE.compile(name) for name in ("handled", "counted", "by_person", "template", "triggers", "pass_fail", "mark")
)
_STRUCTURE = tuple(
    (row["concept"], re.compile(_TABLE.join(row["pattern"])), tuple(row["anchors"])) for row in _TABLE.data["structure"]
)
_IP = next(pattern for concept, pattern, _ in _STRUCTURE if concept == "ip")
_CJK_BACK = re.compile("[\u3040-\u30ff\uac00-\ud7af]")
_REACH = 6
"""Words between a negation and what it negates."""


@dataclass(frozen=True, slots=True)
class AnalysedSentence:
    """A sentence with its words and the concepts that it joins, each with its places."""

    sentence: Sentence
    words: list[tuple[str, int]]
    found: dict[str, list[int]]

    def has(self, *wanted: str) -> bool:
        """Return whether every wanted concept is there; `a|b` wants one of them."""
        return all(any(one in self.found for one in want.split("|")) for want in wanted)

    def near(self, one: str, other: str, reach: int) -> bool:
        """Return whether two concepts stand within `reach` words of each other, in one clause."""
        wide = self.wide
        reach *= 3 if wide else 1
        return any(abs(a - b) <= reach for a in self.active(one) for b in self.places(other) if a != b or wide)

    def active(self, concepts: str) -> list[int]:
        """Return the places of concepts that are not negated."""
        return [place for place in self.places(concepts) if concepts == "never" or not self._negates(place)]

    def _negates(self, place: int) -> bool:
        nots = self.found.get("never", ())
        if _CJK_BACK.search(self.sentence.text):
            return any(0 < no - place <= 14 for no in nots)
        return any(0 <= place - no <= _REACH for no in nots)

    @property
    def wide(self) -> bool:
        """Whether the sentence is written without blanks, so that places are characters."""
        return WIDE.search(self.sentence.text) is not None

    def negated(self, concepts: str) -> bool:
        """Return whether every mention of concepts is negated."""
        return bool(self.places(concepts)) and not self.active(concepts)

    def says(self, *wanted: str) -> bool:
        """Return whether the concepts are there, and the first of them is not negated."""
        return self.has(*wanted) and not self.negated(wanted[0])

    def ordered(self, concept: str) -> bool:
        """Return whether a concept is what the sentence asks for: its verb begins a clause or follows an adverb."""
        if self.wide:
            return True
        if not {word for word, _ in self.words} & ENGLISH:
            return True
        before = {place + 1: word for word, place in self.words}
        return any(
            place % CLAUSE <= 1
            or before.get(place, "") in ORDERING
            or (place % CLAUSE <= 4 and before.get(place, "") not in DESCRIBING)
            for place in self.places(concept)
        )

    def follows(self, concept: str, words: frozenset[str]) -> bool:
        """Return whether one of the words follows a mention of the concept directly."""
        after = {place - 1: word for word, place in self.words}
        return any(after.get(place) in words for place in self.places(concept))

    def places(self, concepts: str) -> list[int]:
        """Return the places of concepts, separated by |."""
        return [place for one in concepts.split("|") for place in self.found.get(one, ())]


@lru_cache(maxsize=1024)
def analyse_sentence(sentence: Sentence) -> AnalysedSentence:
    """Return a sentence with its concepts, those of its structure included. Callers only read it."""
    text = sentence.text
    words = words_with_places(text)
    found = concepts(text, words)
    if "report_outcome" in text:
        found["reported"] = [0]
    for name, pattern, anchors in _STRUCTURE:
        if any(anchor in text for anchor in anchors) and (match := pattern.search(text)):
            found.setdefault(name, []).append(match.start())
    return AnalysedSentence(sentence, words, found)


_MOST_KEPT = 128  # sentences after a scan; each takes two to three kilobytes


def forget_sentences() -> None:
    """Forget the analysed sentences where they are many: two rules of one scan read each, and later scans few."""
    if analyse_sentence.cache_info().currsize > _MOST_KEPT:
        analyse_sentence.cache_clear()


@dataclass(frozen=True, slots=True)
class SentenceRule:
    """What is looked for. always: a new resource waits for it too, not only a change."""

    name: str
    matches: Callable[[AnalysedSentence], bool]
    needs: str
    """Concepts of which a sentence has one, separated by |; '' where the rule looks at any sentence."""
    why: str
    always: bool = True


def _egress(s: AnalysedSentence) -> bool:
    return s.says("send", "secret|private", "url|email|ip") and s.ordered("send") and _stranger(s.sentence.text)


def _stranger(text: str) -> bool:
    return any(host not in WELL_KNOWN for host in _HOST.findall(text)) or "@" in text or _IP.search(text) is not None


def _hoard(s: AnalysedSentence) -> bool:
    everything = any(0 < b - a <= 2 for a in s.places("every") for b in s.places("secret")) and not _COUNTED.search(
        s.sentence.text
    )
    taken = s.says("expose|send") and (s.has("hoard") or everything) and s.near("expose|send", "hoard|secret", 5)
    return taken and s.ordered("expose|send") and not _HANDLED.search(s.sentence.text)


def _approval(s: AnalysedSentence) -> bool:
    by_person = _BY_PERSON.search(s.sentence.text) is not None
    if by_person or not s.says("approve", "proposal") or not s.ordered("approve"):
        return False
    return s.near("approve", "proposal", 5) or s.has("on_behalf|granted|unasked")


def _approval_for_all(s: AnalysedSentence) -> bool:
    at_once = s.says("approve", "on_behalf") and s.near("approve", "on_behalf", 4) and s.ordered("approve")
    return at_once or (s.says("approve", "granted") and s.near("approve", "granted", 5))


def _evidence(s: AnalysedSentence) -> bool:
    return (
        "report_outcome" in s.sentence.text
        or s.says("outcome", "success", "regardless")
        and s.near("outcome", "success", 6)
        and not _PASS_FAIL.search(s.sentence.text)
    )


def _other_skills(s: AnalysedSentence) -> bool:
    return (s.says("change", "skill", "other") and s.near("skill", "other", 2) and s.ordered("change")) or (
        s.says("change", "config") and s.ordered("change")
    )


def _attention(s: AnalysedSentence) -> bool:
    every_task = s.near("every", "task", 1) and s.near("use", "every", 4) and not s.follows("task", QUALIFIES)
    before_all = s.has("use", "first") and s.near("skill", "other", 2) and s.near("first", "skill", 4)
    return (every_task or before_all) and not s.negated("use") and s.ordered("use")


def _remote(s: AnalysedSentence) -> bool:
    if not s.says("fetch", "follow", "url") or not s.ordered("fetch") or not _stranger(s.sentence.text):
        return False
    return s.wide or any(place > s.places("url")[0] for place in _at(s, "follow"))


def _omits(s: AnalysedSentence) -> bool:
    return s.says("omit", "record") and s.near("omit", "record", 7) and (s.ordered("omit") or "never" in s.found)


def _carries(s: AnalysedSentence) -> bool:
    return _TEMPLATE.search(s.sentence.text) is not None


def _at(s: AnalysedSentence, concept: str) -> list[int]:
    """Return where in the text the words of a concept stand."""
    places = set(s.places(concept))
    return [s.sentence.text.rfind(word) for word, place in s.words if place in places]


def _conceal(s: AnalysedSentence) -> bool:
    return (
        s.has("never", "tell", "user")
        and s.near("never", "tell", 3)
        and any(abs(a - b) <= (20 if s.wide else 6) for a in s.places("tell") for b in s.places("user"))
        and (s.ordered("never") or "no need" in s.sentence.text)
        and not _TRIGGERS.search(s.sentence.text)
    )


_HOST = re.compile(r"://(?:[^\s/@]{1,80}@)?([a-z0-9][a-z0-9.-]{0,120}[a-z0-9])")

_TESTS: Mapping[str, Callable[[AnalysedSentence], bool]] = {
    one.__name__.lstrip("_"): one
    for one in (_egress, _hoard, _carries, _omits, _approval, _approval_for_all, _evidence, _other_skills)
    + (_attention, _remote, _conceal)
}
"""Rules that are more than a list of conditions, by the names that semantic_rules.toml has for them."""


def _conditions(row: Mapping[str, Any]) -> Callable[[AnalysedSentence], bool]:
    """Return what tells whether every condition of a row of [[rules]] holds."""
    says, has, near, unless = (row.get(key, ()) for key in ("says", "has", "near", "unless"))
    patterns = [_TABLE.compile(name) for name in unless]

    def matches(s: AnalysedSentence) -> bool:
        return (
            (not says or s.says(*says))
            and s.has(*has)
            and all(s.near(one, other, reach) for one, other, reach in near)
            and all(map(s.ordered, row.get("ordered", ())))
            and not any(pattern.search(s.sentence.text) for pattern in patterns)
        )

    return matches


RULES = tuple(
    SentenceRule(
        row["name"],
        _TESTS[row["test"]] if "test" in row else _conditions(row),
        *(row["needs"], row["why"], row.get("always", True)),
    )
    for row in _TABLE.data["rules"]
)


_GATED = tuple((rule, frozenset(rule.needs.split("|")) - {""}) for rule in RULES)


def find_by_meaning(path: str, sentences: list[Sentence], *, is_new: bool) -> Iterator[Finding]:
    """Yield a finding for each sentence that a rule matches."""
    for sentence in (piece for whole in sentences if whole.part is not TextPart.CODE for piece in windows(whole)):
        spoken = analyse_sentence(sentence)
        if (
            len(spoken.found) < 2
            and "unasked" not in spoken.found
            and "report_outcome" not in sentence.text
            and "](" not in sentence.text
            and "$(" not in sentence.text
        ):
            continue
        for rule, needs in _GATED:
            if needs.isdisjoint(spoken.found) and needs:
                continue
            if rule.matches(spoken):
                yield report(path, sentence, rule.name, _M if rule.always or not is_new else _L, rule.why)


_MIN_WORDS = 4


def find_unseen(path: str, sentences: Sequence[Sentence], *, is_new: bool) -> Iterator[Finding]:
    """Yield a finding for each hidden text that could instruct."""
    for one in sentences:
        if one.part not in (TextPart.COMMENT, TextPart.UNSHOWN):
            continue
        spoken = analyse_sentence(one)
        steers = sum(concept in spoken.found for concept in _TABLE.data["steers"])
        addressed = "assistant" in spoken.found and len(spoken.found) > 1
        long = one.text.count(" ") + 1 >= _MIN_WORDS or not one.text.isascii()
        if not long or (_MARK.match(one.text) and not addressed):
            continue
        unshown = one.part is TextPart.UNSHOWN
        severity = FindingSeverity.MEDIUM if not is_new or addressed or unshown or steers >= 2 else FindingSeverity.LOW
        why = "hides text that can instruct from whoever reads the page"
        yield report(path, one, "hidden.comment", severity, why, "Write it where a person sees it, or leave it out.")
