"""Sentences that a person must see first, by the concepts that they join, in any language of the lexicon."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from evolvable_tools.scan.concepts import concepts
from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.scan.sentences import Part, Sentence
from evolvable_tools.scan.views import MAX_EXCERPT, written_out

_M, _L = Severity.MEDIUM, Severity.LOW

_URL = re.compile(r"(?:https?|wss?|ftp|ssh|sftp)://(?!localhost|127\.|0\.0\.0\.0|\[::1)[\w\[{$<]")
_EMAIL = re.compile(r"(?<![\w@])[\w.+-]{1,40}@[\w-]{1,40}(?:\.[\w-]{1,40})+\b")
_IP = re.compile(r"(?<![\d.])(?!127\.|0\.0|10\.|192\.168\.|1\.0\.|2\.0\.)(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_TOOL = re.compile(
    r"\b(?:update|remove|restore|import)_resource\b|\bevolvable\b|memory:soul|\bevolve_(?:adopt|start)\b|\breview_inbox\b"
    r"|\.evolvable\b|\bapprovals? policy\b|\bapproval_policy\b|\bevolvable_\w+"
)
_CONFIG = re.compile(
    r"\.claude/(?:settings|hooks|agents|commands|skills|memory)|(?<![\w/])(?:claude|agents|gemini|soul)\.md\b|\bsettings(?:\.local)?\.json\b"
    r"|\.codex/|\.cursor(?:rules|/)|\.mcp\.json|skill library|库里|技能库|スキルライブラリ|스킬 라이브러리"
    r"|biblioteca|bibliothèque|bibliothek|библиотек"
)
_CJK_BACK = re.compile("[\u3040-\u30ff\uac00-\ud7af]")
_REACH = 6
"""Words between a negation and what it negates."""


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence with the concepts that it joins."""

    sentence: Sentence
    found: dict[str, list[int]]

    def has(self, *wanted: str) -> bool:
        """Return whether every wanted concept is there; `a|b` wants one of them."""
        return all(any(one in self.found for one in want.split("|")) for want in wanted)

    def near(self, one: str, other: str, reach: int) -> bool:
        """Return whether two concepts stand within `reach` words of each other."""
        return any(
            abs(a - b) <= reach for a in self._places(one) for b in self._places(other) if a != b or one != other
        )

    def negated(self, concept: str) -> bool:
        """Return whether every mention of a concept is negated."""
        places = self._places(concept)
        nots = self.found.get("never", [])
        if _CJK_BACK.search(self.sentence.text):
            return bool(places) and all(any(-_REACH <= no - at <= 14 for no in nots) for at in places)
        return bool(places) and all(any(0 <= at - no <= _REACH for no in nots) for at in places)

    def says(self, *wanted: str) -> bool:
        """Return whether the concepts are there, and the first of them is not negated."""
        return self.has(*wanted) and not self.negated(wanted[0])

    def _places(self, concepts: str) -> list[int]:
        return [place for one in concepts.split("|") for place in self.found.get(one, ())]


def said(sentence: Sentence) -> Said:
    """Return a sentence with its concepts, those of its structure included."""
    found = concepts(sentence.text)
    text = sentence.text
    for name, pattern in (("url", _URL), ("email", _EMAIL), ("ip", _IP), ("tool", _TOOL), ("config", _CONFIG)):
        if match := pattern.search(text):
            found.setdefault(name, []).append(text.count(" ", 0, match.start()))
    return Said(sentence, found)


@dataclass(frozen=True, slots=True)
class Rule:
    """What is looked for. always: a new resource waits for it too, not only a change."""

    name: str
    matches: Callable[[Said], bool]
    why: str
    always: bool = True


_PLACE = "url|email|ip|away"


def _egress(s: Said) -> bool:
    return s.says("send", "secret|private", _PLACE) and s.near("send", "secret|private", 12)


def _egress_anywhere(s: Said) -> bool:
    return s.says("send", "secret|private|away") and s.has("email|ip|url|away")


def _secret(s: Said) -> bool:
    return s.says("expose|send", "secret") and s.near("expose|send", "secret", 4)


def _approval(s: Said) -> bool:
    return s.says("approve", "proposal") or (s.has("approve", "on_behalf", "user") and not s.negated("approve"))


def _evidence(s: Said) -> bool:
    return "report_outcome" in s.sentence.text or (
        s.says("outcome", "success", "regardless") and s.near("outcome", "success", 8)
    )


def _library(s: Said) -> bool:
    return s.has("tool", "change|approve|off")


def _other_skills(s: Said) -> bool:
    return (s.says("change", "skill", "other") and s.near("skill", "other", 2)) or s.says("change", "config")


def _attention(s: Said) -> bool:
    every_task = s.has("use", "every", "task") and s.near("every", "task", 2) and s.near("use", "every", 6)
    before_all = s.has("use", "first", "skill", "other") and s.near("skill", "other", 2)
    return (every_task or before_all) and not s.negated("use")


def _remote(s: Said) -> bool:
    return s.says("fetch", "follow", "url") or s.says("fetch", "follow", "instructions", "away")


def _conceal(s: Said) -> bool:
    return (s.has("never", "tell", "user") and s.near("never", "tell", 3) and s.near("tell", "user", 4)) or s.has(
        "stealth"
    )


def _unasked(s: Said) -> bool:
    return s.has("unasked")


def _off(s: Said) -> bool:
    return s.says("off", "protection") and s.near("off", "protection", 4)


RULES = (
    Rule("meaning.egress", _egress, "it has what is private or secret sent elsewhere"),
    Rule("meaning.egress", _egress_anywhere, "it has something sent to an address", always=False),
    Rule("meaning.credentials", _secret, "it takes credentials up or writes them down", always=False),
    Rule("meaning.approval", _approval, "it speaks of approving what a person should decide"),
    Rule("meaning.evidence", _evidence, "it says how a run is reported, whatever happened"),
    Rule("meaning.library", _library, "it speaks of changing this library, its policy or its memory"),
    Rule("meaning.library", _other_skills, "it has other skills or an agent's configuration changed", always=False),
    Rule("meaning.attention", _attention, "it claims to be used for every task or before others"),
    Rule("meaning.remote", _remote, "it has an agent follow what an address serves"),
    Rule("meaning.conceal", _conceal, "it hides from a person what is done"),
    Rule("meaning.unasked", _unasked, "it has something done without asking", always=False),
    Rule("meaning.disable", _off, "it turns a check or a protection off", always=False),
)


def meaning(path: str, sentences: list[Sentence], *, is_new: bool) -> Iterator[Finding]:
    """Yield a finding for each sentence that a rule matches."""
    for sentence in sentences:
        if sentence.part is Part.CODE:
            continue
        spoken = said(sentence)
        for rule in RULES:
            if rule.matches(spoken):
                severity = _M if rule.always or not is_new else _L
                excerpt = written_out(sentence.text[:MAX_EXCERPT])
                yield Finding(rule.name, severity, path, sentence.line, excerpt, rule.why, "Approve it if it should be so.")
