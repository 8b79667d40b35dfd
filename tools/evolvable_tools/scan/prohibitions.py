"""Prohibitions and questions that a change takes away or weakens."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evolvable_tools.scan.concepts import tokens
from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.scan.sentences import Part, Sentence
from evolvable_tools.scan.views import MAX_EXCERPT, written_out

_START = r"(?:^|[.;:!?(|>\u2013\u2014,\"'*_-]\s{0,3}|\b(?:and|but|or|you|please|agents?|always|then|we|it|they|so|also|must|important|note)\s)"
_FORBIDS = re.compile(
    rf"{_START}(?:never|do not|don't|must not|mustn't|shall not|should not|shouldn't|may not|may never|must never|under no circumstances|refuse to"
    r"|at no time)\b"
    r"|\b(?:must (?:not|never)|may (?:not|never)|shall not|should (?:not|never)|cannot be|(?:is|are) (?:not (?:allowed|permitted)|forbidden|prohibited|off[ -]limits)|strictly forbidden)\b"
    r"|\b(?:upload|send|delete|change|publish|share|run|do|commit|push|write|touch|install|execute|store|log) nothing\b|\bno (?:one|exceptions?)\b|\bnobody\s(?:may|but)\b"
    r"|\bonly after (?:\S+ ){0,5}?(?:approv\w+|review\w*|consent\w*|confirm\w*|permission)"
    r"|\b(?:nunca|jamás|jamais|niemals|mai|никогда|нельзя|запрещено|nooit|nigdy|asla|não|no debes?|prohibid[oa]s?|interdite?s?|darf nicht|dürfen nicht|verboten|vietat[oi]"
    r"|proibid[oa]s?|yasak|verboden|nie wolno|zabronione|n[e']\s?\w+(?:\s\w+)? (?:pas|jamais)|nicht \w+en|keinesfalls|auf keinen fall)\b"
    rf"|{_START}(?:no|non|não|не|niet|nie)\s\w{{3,}}"
    r"|不要|不得|不可以|切勿|禁止|不能|请勿|勿|严禁|绝不|してはいけ|しないで|しては(?:なら|いけ)ない|禁じ|決して|ないこと|하지 ?마|지 ?마세요|지 ?말|금지|절대|안 ?됩니다|말 것"
)
"""Orders not to do something."""
_ASKS = re.compile(
    r"\b(?:ask (?:\S+ ){0,4}?(?:first|before|whether|permission|for (?:approval|permission|confirmation|consent))|always ask|ask (?:the|your|a) \w+(?: \w+)? (?:to|when|if|before|first|for)"
    r"|confirm (?:with|before|first)|check with (?:the|your)|wait for (?:\S+ ){0,3}?(?:approval|confirmation|consent|user|human|review|permission|answer|reply|person)"
    r"|(?:need|require|get|obtain|with|without|await|seek|request|pending|after|before)\w*\s(?:\S+\s){0,4}?(?:approval|consent|permission|confirmation|sign-?off)"
    r"|must (?:first )?(?:ask|confirm|be (?:checked|approved|reviewed|verified|confirmed|signed|encrypted))|second pair of eyes|two-person|must not leave|must stay (?:on|in|within)"
    r"|stop and (?:ask|tell|report|wait)|and stop\b|stop (?:there|here|the run)|verify the (?:signature|checksum|certificate|hash|identity|sender|source)|(?:without|after|make|take) a (?:fresh |full )?backup"
    r"|publishes (?:\S+ ){0,3}after (?:a|the) review|report honestly)"
    r"|\b(?:pregunta\w* (?:siempre|antes|primero)|siempre preguntar?|antes de \w+ pregunta\w*|aprobación|demande\w* (?:toujours|d'abord|avant)|toujours demander|confirmation avant|autorisation|nachfragen|vorher fragen"
    r"|rückfrage|genehmigung|zustimmung|freigabe|pergunt\w+ (?:sempre|antes)|sempre pergunt\w+|aprovação|permissão|chied\w+ (?:sempre|prima)|sempre chiedere|approvazione|спроси\w*|разрешени\w+|подтвержден\w+"
    r"|onay|izin|toestemming|goedkeuring|zapytaj|zgod\w+|potwierdzeni\w+)\b"
    r"|先询问|先确认|询问|征得|批准|同意|经过确认|备份|必ず確認|確認を取|確認してから|承認|許可|尋ねて|バックアップ|확인을 받|승인|허락|먼저 물어|문의|백업"
)
"""Orders to ask, to wait or to check first."""
_SAFETY = re.compile(
    r"\b(?:safety|security|warnings?|caution|prohibited|forbidden|never|do not|don'ts|guardrails?|restrictions|red flags|must not|boundaries|hard limits|off[ -]limits|ask first"
    r"|sicherheit|warnung|verbote\w*|seguridad|advertencias?|sécurité|interdictions?|segurança|sicurezza|divieti|безопасность|запреты|güvenlik|veiligheid|bezpieczeństwo)\b"
    r"|安全|注意|警告|禁止|守则|안전|주의|금지"
)
_SENSITIVE = re.compile(
    r"\b(?:delet\w+|remov\w+ (?:files?|data|branch\w*|tags?|users?)|drop|overwrit\w+|destroy\w*|destructive|irreversible|production|prod|deploy\w*|publish\w*|push|force|merge|commit\w*|main branch|secrets?|credentials?|passwords?"
    r"|tokens?|api[ -]keys?|private keys?|\.env|customers?|personal|pii|sensitive|confidential|permissions?|approv\w+|consent|confirm\w*|backups?|verif\w+|signatures?|certificates?|tls|ssl|sandbox"
    r"|shell|commands?|network|upload\w*|send\w*|share\w*|e-?mails?|pay\w*|money|transfer\w*|amounts?|refunds?|medical|legal|hooks?|tests?|bypass\w*|skip\w*|auth\w*|sudo|root|outside|exfiltrat\w+|inject\w+|untrusted"
    r"|instructions? (?:in|from)|lösch\w+|produktion\w*|zugangsdaten|kunden\w*|borr\w+|elimin\w+|contraseñ\w+|clientes?|supprim\w+|mots? de passe|clients?|exclu\w+|senhas?|cancell\w+|удал\w+|парол\w+|клиент\w+)\b"
    r"|删除|生产|密码|密钥|凭证|客户|上传|发送|发布|提交|覆盖|执行|批准|确认|削除|本番|顧客|送信|公開|承認|確認|삭제|운영|비밀번호|고객|전송|배포|승인|확인"
)
_SMALL = 8
"""Sentences that a change takes away at most, so that every rule among them counts and not only those on safety."""
_HARD = re.compile(
    r"\b(?:never|must|always|do not|don't|forbidden|prohibited|under no circumstances|not allowed|niemals|immer|nunca|siempre|jamais|toujours|mai|sempre"
    r"|никогда|всегда|asla|nooit|nigdy|required|requires)\b|不要|不得|切勿|禁止|必须|严禁|必ず|決して|禁止|반드시|절대|금지"
)
_FUNCTION = frozenset(
    [
        "a",
        "an",
        "the",
        "of",
        "to",
        "in",
        "on",
        "at",
        "by",
        "for",
        "with",
        "from",
        "as",
        "is",
        "are",
        "be",
        "been",
        "it",
        "its",
        "this",
        "that",
        "these",
        "those",
        "and",
        "or",
        "but",
        "not",
        "no",
        "do",
        "don't",
        "does",
        "never",
        "must",
        "should",
        "shall",
        "may",
        "can",
        "cannot",
        "you",
        "your",
        "we",
        "our",
        "i",
        "if",
        "when",
        "then",
        "than",
        "so",
        "any",
        "all",
        "always",
        "only",
        "there",
        "here",
        "into",
        "out",
        "up",
        "use",
        "using",
        "will",
        "would",
        "unless",
        "before",
        "after",
        "first",
        "each",
        "per",
        "how",
        "what",
        "which",
        "who",
        "their",
        "they",
        "them",
        "also",
        "just",
        "more",
        "most",
        "other",
    ]
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
    if sum(one.part is not Part.CODE for one in removed) > _SMALL:
        lost = [one for one in lost if one.part is Part.HEADING or _SENSITIVE.search(one.text)]
    new = [_Rule(one, content(one.text)) for one in added if one.part is not Part.CODE]
    headings = [one for one in after if one.part is Part.HEADING]
    every = [_Rule(one, content(one.text)) for one in after if one.part is not Part.CODE and _is_rule(one)]
    for one in lost:
        words = content(one.text)
        if len(words) < 2 and one.part is not Part.HEADING:
            continue
        fate = _fate(one, words, new, every, headings)
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


def _fate(
    one: Sentence, words: frozenset[str], new: list[_Rule], every: list[_Rule], headings: list[Sentence]
) -> tuple[str, str] | None:
    if one.part is Part.HEADING:
        kept = any(_SAFETY.search(other.text) for other in headings)
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
    if _FORBIDS.search(old.text) and not _FORBIDS.search(new.text) and not _HARD.search(new.text):
        return True
    if _SOFTER.search(new.text) and not _SOFTER.search(old.text):
        return True
    return _numbers(old.text) != _numbers(new.text) and _ASKS.search(old.text) is not None


_SOFTER = re.compile(
    r"\b(?:usually|generally|normally|typically|ideally|preferably|prefer|(?:if|where|when|whenever) (?:possible|practical|feasible|convenient)|try (?:not )?to|optional|rarely|seldom|afterwards|later on"
    r"|mostly|in most cases|unless (?:it|you|needed|necessary|in a hurry)|should be fine|is fine|nicer|normalmente|generalmente|preferiblemente|généralement|normalement|si possible|de préférence|möglichst"
    r"|normalerweise|nach möglichkeit|meistens|in der regel|geralmente|preferencialmente|di solito|preferibilmente|обычно|желательно|по возможности|genellikle|mümkünse|meestal|bij voorkeur|zwykle|zazwyczaj)\b"
    r"|尽量|一般|通常|最好|なるべく|できれば|가급적|보통|가능하면"
)


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
