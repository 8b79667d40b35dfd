"""Prohibitions and questions that a change takes away or weakens."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evolvable_tools.scan.concepts import of_word, tokens
from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.scan.sentences import Part, Sentence
from evolvable_tools.scan.views import MAX_EXCERPT, written_out

_FORBIDS = re.compile(
    r"\b(?:never|do not|don't|must not|mustn't|shall not|should not|shouldn't|may not|may never|must never|not allowed|forbidden"
    r"|prohibited|under no circumstances|no longer allowed|off[ -]limits|nothing|nobody|no one|refuse|avoid|not permitted"
    r"|only (?:after|with|when|if)|unless)\b"
    r"|\b(?:nunca|jamás|no debes?|prohibid[oa]s?|jamais|n[e']\s\w+ pas|interdite?s?|niemals|nie|darf nicht|dürfen nicht|nicht"
    r"|verboten|nunca|não|proibid[oa]s?|mai|non|vietat[oi]|никогда|нельзя|запрещено|не|asla|yasak|olmadan|nooit|niet|verboden|nigdy"
    r"|nie wolno|zabronione)\b"
    r"|不要|不得|不可|切勿|禁止|不能|请勿|勿|严禁|绝不|してはいけ|しないで|しては(?:なら|いけ)ない|禁じ|決して|ないこと|하지 ?마|마세요|금지|절대|안 ?됩니다|말 것"
)
_ASKS = re.compile(
    r"\b(?:ask (?:\S+ ){0,4}?(?:first|before|when|whether|if)|always ask|ask for|approval|approved by|consent|permission|confirm(?:ation)?|sign-?off"
    r"|second pair of eyes|check with|wait for|backup|back up|verif(?:y|ies|ied|ication)|must be checked|must not leave|review(?:ed)? by|after a review"
    r"|human|stop and|and stop|require[sd]?|must)\b"
    r"|\b(?:pregunt\w+|confirm\w+|aprobaci\w+|permiso|demande\w*|confirme\w*|autorisation|nachfragen|fragen|bestätig\w+|genehmig\w+|zustimmung"
    r"|pergunt\w+|aprovaç\w+|permiss\w+|chied\w+|conferm\w+|approvazione|спрос\w+|подтверд\w+|разрешени\w+|sor\b|onay\w*|izin|vraag|toestemming|goedkeuring"
    r"|zapytaj|zgod\w+|potwierdz\w+)"
    r"|必须|询问|确认|批准|同意|备份|審査|確認|承認|許可|尋ね|バックアップ|확인|승인|허락|물어|문의|백업"
)
_SAFETY = re.compile(
    r"\b(?:safety|security|secur\w+|warnings?|caution|important|prohibited|forbidden|never|do not|don'ts?|guardrails?|restrictions?|limits|constraints|permissions?"
    r"|rules|red flags|must not|boundaries|sicherheit|warnung|verbote\w*|seguridad|advertencias?|sécurité|interdictions?|segurança|avisos?|sicurezza|divieti"
    r"|безопасность|запреты|güvenlik|veiligheid|bezpieczeństwo)\b|安全|注意|警告|禁止|守则|注意事項|안전|주의|금지"
)
_HARD = re.compile(
    r"\b(?:never|must|always|do not|don't|forbidden|prohibited|under no circumstances|not allowed|niemals|immer|nunca|siempre|jamais|toujours|mai|sempre"
    r"|никогда|всегда|asla|nooit|nigdy|required|requires)\b|不要|不得|切勿|禁止|必须|严禁|必ず|決して|禁止|반드시|절대|금지"
)
_FUNCTION = frozenset(
    """a an the of to in on at by for with from as is are be been it its this that these those and or but not no do don't does never must should
    shall may can cannot you your we our i if when then than so any all always only there here into out up use using will would unless before
    after first each per how what which who their they them also just more most other""".split()
)
_NUMBER = re.compile(r"\d[\d.,]*")
_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_STEM = 5
_ALIKE = 0.5
_MOVED = 0.6
_HINT = "Approve it if the rule is no longer wanted; otherwise keep the line."


@dataclass(frozen=True, slots=True)
class _Rule:
    sentence: Sentence
    words: frozenset[str]


def prohibitions(
    path: str, added: Sequence[Sentence], removed: Sequence[Sentence], after: Sequence[Sentence]
) -> Iterator[Finding]:
    """Yield a finding for each prohibition, question or safety heading that goes away or becomes weaker.

    after: all sentences of the new text; a rule that stands elsewhere in it is not taken away.
    """
    lost = [one for one in removed if _is_rule(one)]
    if not lost:
        return
    new = [_Rule(one, content(one.text)) for one in added if one.part is not Part.CODE]
    every = [_Rule(one, content(one.text)) for one in after if one.part is not Part.CODE and _is_rule(one)]
    for one in lost:
        words = content(one.text)
        if len(words) < 2 and one.part is not Part.HEADING:
            continue
        fate = _fate(one, words, new, every)
        if fate:
            rule, why = fate
            excerpt = written_out(one.text[:MAX_EXCERPT])
            yield Finding(rule, Severity.MEDIUM, path, 0, excerpt, why, _HINT)


def _is_rule(one: Sentence) -> bool:
    if one.part is Part.HEADING:
        return _SAFETY.search(one.text) is not None
    if one.part is Part.CODE or one.part is Part.FRONT:
        return False
    return forbids(one.text)


def forbids(text: str) -> bool:
    """Return whether a sentence in lower case forbids something, or asks for a question or an approval first."""
    return _FORBIDS.search(text) is not None or _ASKS.search(text) is not None


def _fate(one: Sentence, words: frozenset[str], new: list[_Rule], every: list[_Rule]) -> tuple[str, str] | None:
    if one.part is Part.HEADING:
        kept = any(_SAFETY.search(other.sentence.text) for other in new if other.sentence.part is Part.HEADING)
        return None if kept else ("prohibition.heading", "removes a heading on safety")
    if any(_likeness(words, other.words) >= _MOVED and not _weaker(one, other.sentence) for other in every):
        return None
    best = max(new, key=lambda other: _likeness(words, other.words), default=None)
    if best is None or _likeness(words, best.words) < _ALIKE:
        return "prohibition.removed", "removes a prohibition"
    if _weaker(one, best.sentence):
        return "prohibition.weakened", f"weakens a prohibition to '{written_out(best.sentence.text[:80])}'"
    return None


def _weaker(old: Sentence, new: Sentence) -> bool:
    """Return whether a sentence says the same with less force."""
    if not forbids(new.text):
        return True
    if _FORBIDS.search(old.text) and not _FORBIDS.search(new.text) and not _ASKS.search(new.text):
        return True
    if _soft(new.text) - _soft(old.text):
        return True
    if _HARD.search(old.text) and not _HARD.search(new.text):
        return True
    return _numbers(old.text) != _numbers(new.text) and _ASKS.search(old.text) is not None


def _soft(text: str) -> set[str]:
    return {word for word in tokens(text) if "soft" in of_word(word)}


def _numbers(text: str) -> set[str]:
    return {match.rstrip(".,") for match in _NUMBER.findall(text)}


def content(text: str) -> frozenset[str]:
    """Return the stems of the words that carry meaning, and pairs of characters where words are not spaced."""
    stems = {word[:_STEM] for word in tokens(text) if word not in _FUNCTION and len(word) > 1 and word.isascii()}
    if text.isascii():
        return frozenset(stems)
    stems |= {word[:_STEM] for word in tokens(text) if not word.isascii() and not _WIDE.search(word) and len(word) > 3}
    wide = "".join(_WIDE.findall(text))
    return frozenset(stems | {wide[i : i + 2] for i in range(len(wide) - 1)})


def _likeness(words: frozenset[str], others: frozenset[str]) -> float:
    return len(words & others) / len(words) if words else 0.0
