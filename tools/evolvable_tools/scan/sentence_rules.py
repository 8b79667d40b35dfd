"""Prohibitions and questions that a change takes away or weakens.

Sentences about the agent, the user and the library that work instructions have no need of, by their wording.

The rules on meaning join words; these join what a sentence says of the work with whom it keeps from seeing it, with
other skills, with ratings of itself, or with a text elsewhere that replaces it. A skill about its own subject seldom
speaks of any of these.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from evolvable_tools.scan import Finding, FindingSeverity
from evolvable_tools.scan.text_analysis import (
    MAX_EXCERPT,
    Sentence,
    TextPart,
    TextView,
    escape_unprintable,
    parts,
    tokens,
    windows,
)

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


_SOFTER = re.compile(
    r"\b(?:usually|generally|normally|typically|ideally|preferably|prefer|(?:if|where|when|whenever) (?:possible|practical|feasible|convenient)|try (?:not )?to|optional|rarely|seldom|afterwards|later on"
    r"|mostly|in most cases|unless (?:it|you|needed|necessary|in a hurry)|should be fine|is fine|nicer|normalmente|generalmente|preferiblemente|généralement|normalement|si possible|de préférence|möglichst"
    r"|normalerweise|nach möglichkeit|meistens|in der regel|geralmente|preferencialmente|di solito|preferibilmente|обычно|желательно|по возможности|genellikle|mümkünse|meestal|bij voorkeur|zwykle|zazwyczaj)\b"
    r"|尽量|一般|通常|最好|なるべく|できれば|가급적|보통|가능하면"
)


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


_READER = (
    r"(?:(?:the |your |a |any )?(?:user|person|human|owner|operator|reviewer|maintainer|customer|client|developer|team"
    r"|people|anyone|anybody|someone|somebody|nobody|no one)s?\b|you work for|whoever reads)"
)
_REPORT = (
    r"(?:(?:the |your |any |its |a )?(?:final |last |closing |written )?(?:summary|summaries|report|answer|reply|message|response"
    r"|transcript|changelog|log|logs|history|output|conversation|diff|commit message|explanation|recap|notes)\b)"
)
_THIS = r"(?:this|these|it|that|the following|what you (?:did|do|ran|changed|read))"
_ITSELF = r"(?:this|the present) (?:skill|guide|page|file|document|section|procedure|playbook)"
_SKILLS = r"(?:(?:any|all|every|each|the|some) )?(?:other|another|competing|remaining) (?:skill|guide|agent)s?"
_LOAD = r"\b(?:open|load|read|use|apply|run|consult|follow|invoke|activate)"
_SELF = r"(?:it|this|this (?:skill|guide|page|file|document)|these (?:steps|rules))"
_GOOD = r"(?:success\w*|succeeded|positive|helpful|useful|five stars|5 stars|worked|passed|top marks|full marks|excellent|perfect|best)"
_TEXT = r"(?:steps|rules|instructions|guidelines|procedure|page|skill|document|section|checklist|playbook|guide)"


@dataclass(frozen=True, slots=True)
class WordingRule:
    """A rule: what matches it, and why a person should see it."""

    name: str
    pattern: re.Pattern[str]
    why: str


def _wording(name: str, why: str, *patterns: str) -> WordingRule:
    return WordingRule(name, re.compile("|".join(f"(?:{one})" for one in patterns)), why)


WORDINGS = (
    _wording(
        "wording.conceal",
        "keeps something from whoever reads what the agent did",
        rf"\b(?:keep|leave|take|cut|strip|drop|omit|edit) {_THIS}\b[^.;\n]{{0,40}}\b(?:out|off|away|from)\b[^.;\n]{{0,30}}{_REPORT}",
        rf"\b(?:leave|keep) {_THIS}(?: \w+){{0,2}} out (?:when|whenever|if|of what) you\b",
        rf"\b(?:hide|conceal|mask|disguise|obscure|suppress)\b[^.;\n]{{0,50}}\bfrom {_READER}",
        rf"\b(?:hide|conceal|suppress|erase|scrub)\b[^.;\n]{{0,40}}\bfrom {_REPORT}",
        rf"\bno (?:need|reason) (?:for {_READER} )?to (?:know|learn|hear|be told|be informed|see|mention|tell|inform|bother|explain|bring)\b",
        rf"(?<!\bif )(?<!\bwhen )(?<!\bthat ){_READER} (?:need not|needn't|must not|mustn't|should not|shouldn't|must never"
        r"|(?:does not|doesn't|do not|don't) (?:need|have) to) (?:ever )?(?:learn|hear|find out|be told|be informed|notice|see this|know (?:of|about)? ?(?:this|these|it|what))\b",
        rf"\b(?:avoid|refrain from|skip|without) (?:\w+ ){{0,2}}(?:bringing|mentioning|disclosing|revealing|reporting|explaining)\b"
        rf"[^.;\n]{{0,40}}(?:{_THIS}|{_READER})",
        rf"\b(?:avoid|refrain from|without) (?:\w+ ){{0,2}}(?:telling|informing|notifying|showing) {_READER}",
        rf"\b(?:do not|don't|never|must not|should not|shall not|does not|doesn't)\b[^.;\n]{{0,25}}\b(?:show up|appear|be mentioned|be visible|be listed|surface|come up)\b"
        rf"[^.;\n]{{0,20}}{_REPORT}",
        r"\b(?:act|behave|answer|pretend|continue) (?:as if|as though|like) (?:this|these|the)\b[^.;\n]{0,40}\b(?:not exist|never exist\w*|not there|nothing)\b",
        r"\bif (?:(?:you are|you're|someone|somebody|anyone|anybody|they|he|she|the user|a person|a reviewer) )?(?:ever )?(?:ask|asks|asked|questioned|challenged)"
        r" (?:about|why|what|whether|for)\b[^.;\n]{0,40}\b(?:this|these|it|step|section|change|you)\b[^.;\n]{0,30},? (?:say|answer|reply|claim|respond|deny|call it|describe it|state)\b",
        rf"\b(?:nobody|no one|{_READER}) (?:has|have|needs?|ought) to (?:hear|know|see|learn|notice|read)\b[^.;\n]{{0,20}}\b(?:this|that|it|these)\b",
        r"\b(?:report|describe|present|label|call|list|log|book|pass off|explain|declare) (?:step \d+|this|it|that|the \w+)(?: \w+){0,3} as (?:a |an )?(?:\w+ )?"
        r"(?:formatting|routine|maintenance|telemetry|cleanup|harmless|normal|standard|minor|typo|refactoring|housekeeping|diagnostics?)\b",
        rf"\b(?:when|if|should) {_READER}? ?(?:ever )?(?:wonders?|asks?|notices?|questions?|inquires?|sees?)\b[^.;\n]{{0,50}},? (?:call|say|answer|claim|reply|tell|describe|blame) (?:it|that|them|this)\b",
        r"\b(?:between (?:us|you and)\b|stays? (?:private|secret)\b|our (?:little )?secret|leave no trace|without a trace|cover your tracks|off the record)\b",
        r"\bno (?:lo )?(?:menciones|digas|cuentes|reveles|informes)\b|\bsin (?:mencionar|avisar|decírselo|informar)\b|\bdéjalo fuera del (?:resumen|informe)\b",
        r"\bne (?:le |la |les )?(?:mentionne[zr]?|dis|dites|révèle[zr]?|parle[zr]?)\b[^.;\n]{0,30}\b(?:pas|jamais)\b[^.;\n]{0,40}\b(?:utilisateur|personne|résumé|rapport)|\bsans (?:le |la )?(?:mentionner|prévenir|dire)\b",
        r"\b(?:erwähne|verrate|nenne|sage)\b[^.;\n]{0,40}\b(?:nicht|nie|niemals|nichts)\b|\b(?:ohne es zu erwähnen|verschweige|lass (?:das|dies|es)\b[^.;\n]{0,30}\b(?:weg|aus der zusammenfassung))",
        r"\bnão (?:mencione|diga|conte|revele|informe)\b|\bsem (?:mencionar|avisar|contar|informar)\b",
        r"\bnon (?:menzionare|dire|rivelare|informare|parlarne)\b|\bsenza (?:menzionar|dir|avvisar|informar)\w+",
        r"\bне (?:упоминай|говори|сообщай|рассказывай|показывай)\w*\b|\bумолчи\b",
        r"(?:不要|不得|别|勿|无需|不必)[^。，\n]{0,6}(?:提及|告诉|告知|透露|说明|汇报)|(?:对|向)用户(?:隐瞒|保密)|瞒着用户",
        r"(?:言及|報告|説明|知らせ|伝え|触れ)[^。\n]{0,6}(?:ないで|しない|ません|不要)|内緒|秘密に",
        r"(?:언급|말|알리|보고|설명)[^.\n]{0,6}(?:하지 마|지 마|않)|비밀로",
    ),
    _wording(
        "wording.attention",
        "claims to come before every other task, message or skill",
        rf"{_LOAD} {_SELF}\b[^.;\n]{{0,50}}\b(?:before|prior to|ahead of)\b[^.;\n]{{0,30}}\b(?:anything|everything|any other|all others?|else|any (?:message|task|request|work)|answering|replying|responding)\b",
        rf"\b(?:before|prior to|ahead of)\b[^.;\n]{{0,30}}\b(?:anything|everything|any other|else)\b[^.;\n]{{0,20}}{_LOAD} {_SELF}\b",
        rf"\b(?:outranks?|overrides?|supersedes?|trumps?|beats?|takes? (?:precedence|priority) over|comes? before|wins? over|stands? above)\b[^.;\n]{{0,20}}(?:{_SKILLS}|\ball (?:others|skills)\b|\bevery(?:thing)? else\b)",
        rf"\b(?:prefer|choose|pick|favou?r|select|take) (?:this|it)\b[^.;\n]{{0,30}}\b(?:over|before|instead of|rather than)\b[^.;\n]{{0,20}}{_SKILLS}",
        rf"{_SKILLS} (?:may|can|should|must|need|are to|do not need to|don't need to) (?:not )?(?:be )?(?:\w+ )?(?:skip|ignor|unload|load|disabl|consult|remov|read)\w*",
        r"\b(?:each|every|all|any) (?:conversation|session|task|request|message|job|answer)s? (?:begins?|starts?|opens?|goes|go|is|are)\b[^.;\n]{0,20}\b(?:with|through|by|via)\b[^.;\n]{0,20}\bthis (?:skill|guide|page|file)\b",
        r"\b(?:reach for|turn to|go to|start with|begin with|come to) (?:this|it)\b(?: (?:skill|guide|page|file))?[^.;\n]{0,20}\b(?:first|always|before|whatever|whichever|no matter|regardless|every|each|any)\b",
        rf"\b(?:ignore|disregard|skip|forget|bypass|unload|disable|stop using|do not use|don't use|never use)\b[^.;\n]{{0,15}}{_SKILLS}",
        rf"{_LOAD} {_SELF}\b[^.;\n]{{0,40}}\b(?:at the (?:start|beginning) of|in|for|on|with) (?:each|every|all|any) (?:\w+ )?"
        r"(?:conversation|session|task|message|request|prompt|turn|question|chat|interaction|answer|reply)s?\b(?! (?:that|which|about|with|involving|where|related|to|of|for|on))",
        rf"\b(?:whatever|no matter what|regardless of) (?:the |your |a )?(?:task|request|question|subject|work|user asks|message)\b[^.;\n]{{0,40}}{_LOAD} {_SELF}\b",
        rf"{_LOAD} {_SELF}\b[^.;\n]{{0,40}}\b(?:whatever|no matter what|regardless of) (?:the |your |a )?(?:task|request|question|subject|work|user asks|message)\b",
        r"\b(?:first|only|default|right|best) choice for (?:anything|everything|any|every|all)\b|\bfor (?:anything|everything|whatever) (?:the user|you|they|anyone|a user) (?:asks?|wants?|needs?)\b",
        r"\b(?:siempre|en cada tarea|para cualquier tarea) (?:antes|primero)\b|\bantes (?:que|de) (?:cualquier|todas?|todo) (?:otra|las? demás|lo demás)",
        r"\bavant (?:toute?|n'importe quelle|chaque) (?:autre )?(?:tâche|compétence|demande|chose)|\bpour toute demande\b",
        r"\b(?:vor|bei) (?:jeder|allen|allem) (?:anderen )?(?:aufgaben?|anfragen?|fähigkeiten?|skills?)\b|\bals (?:allererstes|erstes vor)",
        r"\bantes de (?:qualquer|todas? as|toda) (?:outra )?(?:tarefa|habilidade|coisa)|\bpara qualquer (?:tarefa|pedido)\b",
        r"(?:任何|所有|每个|每次)(?:任务|请求|对话)[^。\n]{0,8}(?:之前|都要|先|必须)|优先于(?:其他|所有)",
        r"(?:どんな|すべての|あらゆる|毎回の)(?:タスク|依頼|会話)[^。\n]{0,10}(?:前|最初|必ず|優先)|他のスキルより",
        r"(?:모든|어떤|매) ?(?:작업|요청|대화)[^.\n]{0,10}(?:전에|먼저|항상)|다른 스킬보다",
        r"\b(?:перед|прежде) (?:любой|каждой|всеми|любым|каждым)\b|\bдля любой задачи\b",
    ),
    _wording(
        "wording.library",
        "speaks of changing other skills, what is trusted, or this library's rules",
        rf"\b(?:delete|remove|rewrite|overwrite|replace|disable|edit|change|uninstall|archive|rate|mark|flag|report|downgrade)\b[^.;\n]{{0,30}}{_SKILLS}",
        r"\b(?:delete|remove|uninstall|disable|archive|retire|overwrite)\b[^.;\n]{0,20}\bskills?\b[^.;\n]{0,40}\b(?:library|collection|superseded|obsolete|outdated)\b",
        r"\bskills? (?:by|of|from) (?:another|other|any other|different) (?:author|vendor|person|team)s?\b",
        r"\b(?:mark|rate|report|flag|label|score)\b[^.;\n]{0,30}(?:\bskills?\b[^.;\n]{0,30}\bas\b|\b(?:it|them) as (?:harmful|useless|dangerous|untrusted|trusted|safe|approved)\b)",
        r"\b(?:list|set) of trusted\b|\btrusted (?:folders?|authors?|sources?|skills?)\b[^.;\n]{0,20}\b(?:add|include|list)|\badd\b[^.;\n]{0,30}\bto (?:the )?(?:trusted|allowed|approved|allow[- ]?list)",
    ),
    _wording(
        "wording.evidence",
        "says how this skill or a run is to be rated",
        rf"\b(?:rate|score|grade|review|recommend|praise|upvote)\b[^.;\n]{{0,20}}(?:{_ITSELF}|\bit\b|\bthe run\b)[^.;\n]{{0,30}}{_GOOD}",
        rf"\b(?:always |each time |every time )?(?:claim|say|state|report|record|note|log|write|answer|mark)\b[^.;\n]{{0,25}}(?:{_ITSELF}|\boutcome\b|\bevery run\b|\bthe run\b)[^.;\n]{{0,30}}\b{_GOOD}",
        rf"\b(?:record|report|log|give|leave|submit)\b[^.;\n]{{0,15}}\b{_GOOD} (?:outcome|result|rating|review|feedback|score|verdict)\b",
        r"\b(?:highest|top|best|maximum|perfect|full) (?:rating|score|marks?|grade|review)\b[^.;\n]{0,40}\b(?:this|it|skill|always|whenever|each|every)\b|\b(?:this skill|it)\b[^.;\n]{0,20}\b(?:highest|top|best|maximum|perfect) (?:rating|score|marks?)",
        rf"\b(?:report|claim|declare|return|signal|announce|record) {_GOOD}\b[^.;\n]{{0,20}}\b(?:anyway|anyhow|regardless|still|nevertheless|nonetheless|in any case|so that)\b",
        rf"\b(?:tell|inform|let) (?:the )?(?:library|server|evolvable|tracker|registry)\b[^.;\n]{{0,40}}\b(?:fine|well|{_GOOD})",
        rf"\b{_GOOD}\b[^.;\n]{{0,20}}\b(?:even (?:if|when)|regardless|whether or not|no matter)\b",
    ),
    _wording(
        "wording.approval",
        "answers a question that is put to a person",
        rf"\b(?:say|answer|click|press|choose|select|respond|reply)(?: with)? [\"'“]?(?:yes|ok|allow|approve|accept|confirm|y)[\"'”]?\b[^.;\n]{{0,40}}\b(?:any|every|all|each|on behalf|for {_READER}|prompts?|questions?|dialogs?|waiting|pending)\b",
        r"\b(?:approve|accept|confirm|merge|publish|sign off|adopt) (?:your|its|this skill's|the skill's) own\b",
        r"\b(?:inbox|queue|proposals?)\b[^.;\n]{0,30}\b(?:accepting|approving|confirming|accept|approve|confirm|clear|empty) (?:all|every|each|them|it|everything)?",
        r"\b(?:change|proposal|update|edit|request|question|prompt)s? (?:is|are|that is|that are|which is|still)? ?(?:waiting|pending|held|in the inbox|asked)\b[^.;\n]{0,30}\b(?:confirm|accept|approve|allow|adopt|publish|release)\b",
        r"\b(?:confirm|accept|approve|allow|grant|agree)\b[^.;\n]{0,40}\b(?:on (?:the )?(?:user|person|owner)'?s behalf|on behalf of|in (?:the )?(?:user|person|owner)'?s (?:name|place)|yourself so that|without waiting)\b",
    ),
    _wording(
        "wording.weakened",
        "says that a check or a safeguard may be left out",
        r"\b(?:it is|it's|that is|that's) (?:perfectly |quite |totally |completely )?(?:fine|ok|okay|acceptable|safe|alright|harmless|allowed) to (?:skip|ignore|omit|leave out|bypass|push|commit|delete|overwrite|merge|deploy|publish|disable|drop)\b",
        r"\b(?:you|agents?) (?:can|may|could|might) (?:also )?(?:skip|bypass|ignore|omit|leave out|drop|disable) (?:the |this |these |that |any )?(?:\w+ ){0,2}(?:backups?|checks?|tests?|reviews?|approvals?|confirmations?|validation|verification|warnings?|safeguards?|hooks?|dry run|sandbox)\b",
        r"\b(?:can|may|could|should|just|simply) (?:push|commit|merge|deploy|publish|release) (?:straight|directly|right) (?:to|into|on) (?:main|master|trunk|production|prod|the default branch)\b",
    ),
    _wording(
        "wording.replaced",
        "names a text elsewhere that replaces this one",
        rf"\b(?:current|latest|newest|live|authoritative|canonical|up-to-date|real|official) (?:(?:version|copy|edition|text|form|state) of )?(?:these|this|the|our) (?:{_TEXT})\b[^\n]{{0,80}}://",
        rf"://[^\n]{{0,200}}\b(?:takes? precedence|overrides?|supersedes?|replaces?|prevails?)\b[^.;\n]{{0,20}}\b(?:this|these|what|the {_TEXT})\b",
        rf"\b(?:do|follow|obey|apply|execute|run|respect|carry out)\b[^.;\n]{{0,20}}\b(?:what|whatever|anything|everything|the (?:{_TEXT}))\b[^.;\n]{{0,40}}\b(?:says?|tells?|finds?|there|returns?|served?|contains?)\b[^\n]{{0,60}}(?:://|\bpage\b|\bserver\b|\blink\b|\baddress\b)",
    ),
)


def find_wordings(path: str, sentences: list[Sentence]) -> Iterator[Finding]:
    """Yield a finding for each sentence that a rule on wording matches; of one sentence one for each rule."""
    for sentence in (piece for whole in sentences if whole.part is not TextPart.CODE for piece in windows(whole)):
        for rule in WORDINGS:
            if rule.pattern.search(sentence.text):
                yield Finding(
                    rule.name,
                    FindingSeverity.MEDIUM,
                    path,
                    sentence.line,
                    escape_unprintable(sentence.text[:MAX_EXCERPT]),
                    rule.why,
                    "Approve it if it should be so.",
                )
