"""Clauses that say what a resource is not for, such as "do not use for X", in ten languages."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

_VERBS = r"(?:be\s+)?(?:use|trigger|invoke|activate|apply|select|load|call|cover|handle|fire)d?\b"
# A clause begins with its cue and ends with its sentence. Words of negation alone, as in "not
# found", are no cue. Each key has words of its cue: a text without any of them needs no pattern.
_CUES: Mapping[str, str] = {
    # With a subject of its own ("plugins that do not load") it says what a resource is about.
    "do does don doesn never must should": r"(?:(?<!\w\s)|(?<=\band\s)|(?<=\bbut\s)|(?<=\bor\s)|"
    r"(?<=\bplease\s))\b(?:do\s+not|don['’]t|never)\s+"
    + _VERBS
    + r"|(?<!\bthat\s)(?<!\bwhich\s)(?<!\bwho\s)"
    r"\b(?:does\s+not|doesn['’]t|must\s+not|should\s+not)\s+" + _VERBS,
    "not": r"\bnot\s+(?:to\s+be\s+used|for|when|a\s+(?:replacement|substitute)\s+for"
    r"|(?:intended|meant|suitable|suited|designed|applicable|appropriate)\s+(?:for|to))\b",
    "skip avoid": r"\b(?:skip|avoid|avoid\s+using)\s*(?:this|it|when|if|for)\b",
    "scope": r"\bout\s+of\s+scope\b",
    "nicht kein keine keinen keiner": r"\b(?:nicht|kein[a-z]*)\s+(?:\w+\s+)?"
    r"(?:verwenden|benutzen|nutzen|einsetzen|geeignet|gedacht|bestimmt|für|bei|zum|zur|wenn)\b",
    "ne n utilisez": r"\bne\s+(?:pas|jamais)\s+(?:utiliser|employer|invoquer|activer|déclencher)\b"
    r"|\bn['’]utilisez\s+(?:pas|jamais)\b",
    "pas": r"\bpas\s+(?:pour|destin[ée]+s?|adapt[ée]+s?|conçue?)\b",
    "no": (
        r"\bno\s+(?:usar|uses|use|utilizar|utilices|utilice|emplear|activar|sirve|apt[oa]|para"
        r"|es\s+para|cuando)\b"
    ),
    "não": r"\bnão\s+(?:usar|use|utilizar|utilize|empregar|ativar|serve|para|é\s+para|quando)\b",
    "non": (
        r"\bnon\s+(?:usare|usarlo|utilizzare|attivare|adatt[oa]|destinat[oa]|per|è\s+per"
        r"|quando)\b"
    ),
    "не": r"\bне\s+(?:использ|применя|подходит|предназначен|для|когда|запуска)\w*",
    "不": r"不(?:适用|適用|用于|用於|适合|適合|可用于|应用于|處理|处理|包括)"
    r"|不(?:要|得)(?:使用|用于|用於|用|触发|觸發|调用|調用)",
    "勿 禁": r"(?:请勿|請勿|切勿|勿|禁止)(?:使用|用于|用於|用|触发|觸發|调用|調用)",
}
# A clause of comparison ends with the next comma.
_COMPARISONS: Mapping[str, str] = {
    "rather instead opposed": r"\b(?:rather\s+than|instead\s+of|as\s+opposed\s+to)\b",
    "statt anstatt anstelle": r"\b(?:statt|anstatt|anstelle)\b",
    "plutôt lieu": r"\b(?:plutôt\s+que|au\s+lieu\s+d)",
    "lugar vez": r"\b(?:en\s+(?:lugar|vez)\s+de\b|em\s+vez\s+d)",
    "invés invece anziché piuttosto": (
        r"\b(?:ao\s+invés\s+d|invece\s+di\b|anziché\b|"
        r"piuttosto\s+che\b)"
    ),
    "вместо": r"\bвместо\b",
    "而": r"而不是|而非",
}
# In these languages the cue ends the sentence, as does "use Y instead" in English: the whole
# sentence is the clause.
_FINAL_CUES: Mapping[str, str] = {
    "instead": r"\buse\b.*\binstead\b(?!\s+of\b)",
    "い": r"使わない|使用しない|適用しない|不向き|向いていない",
    "使 対 代": r"使用しません|対象外|(?<!の)代わりに",
    "하 마 않 대": r"사용하지|쓰지\s*마|쓰지\s*않|적합하지|해당하지|트리거하지|(?:^|[,;]\s*)대신",
}
_ALL = {**_CUES, **_COMPARISONS, **_FINAL_CUES}
_WORDS = {word: names for names in _ALL for word in names.split()}
# Cues beyond U+2FFF are Han, Kana or Hangul, which have no spaces: their keys are characters.
_UNSPACED = {word for word in _WORDS if word > "\u2fff"}
_WORD = re.compile(r"[^\W\d_]+")
# A full stop before a small letter is an abbreviation ("e.g. this"), not the end of a sentence.
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[^a-z\s])|(?<=[。！？])|\n+|;\s")
_COMMA = re.compile(r"[,)，、]|\s[–—-]\s")
# Four times the limit of the specification; the patterns run over every description of a library.
_MAX_DESCRIPTION = 4_000
"""Characters that are searched for clauses; the rest counts as the resource's own text."""


class SplitText(NamedTuple):
    """A description in two parts: the resource's own text, and the excluding clauses."""

    own: str
    excluded: tuple[str, ...]


class _Patterns(NamedTuple):
    """The patterns of cues that begin a clause, and of those that end a sentence."""

    clause: re.Pattern[str]
    final: re.Pattern[str]


def split_exclusions(description: str) -> SplitText:
    """Return a description without its excluding clauses, and these clauses.

    Any text takes linear time.
    """
    read, rest = description[:_MAX_DESCRIPTION], description[_MAX_DESCRIPTION:]
    # A cheap look at the words first: most descriptions have no cue, and then no pattern runs.
    folded = read.lower()
    words = set(_WORD.findall(folded))
    if not read.isascii():
        words |= _UNSPACED.intersection(folded)
    patterns = _patterns(frozenset(_WORDS[word] for word in words & _WORDS.keys()))
    if patterns is None:
        return SplitText(description, ())
    own, excluded = list[str](), list[str]()
    for sentence in _SENTENCE_END.split(read):
        # First the cues at the end of a sentence, whose clause is the whole sentence.
        if patterns.final.search(sentence):
            excluded.append(sentence)
        else:
            own += _without_clauses(sentence, patterns.clause, excluded)
    return SplitText("\n".join([*own, rest]), tuple(excluded))


@lru_cache(maxsize=256)
def _patterns(names: frozenset[str]) -> _Patterns | None:
    """Return the patterns of the cues with these keys, None without any.

    All patterns together would take many times as long as those of a few cues.
    """
    if not names:
        return None
    cues, comparisons, final = (
        "|".join(cue_group[name] for name in cue_group if name in names) or "(?!)"
        for cue_group in (_CUES, _COMPARISONS, _FINAL_CUES)
    )
    return _Patterns(
        re.compile(f"{cues}|(?P<comparison>{comparisons})", re.IGNORECASE),
        re.compile(final, re.IGNORECASE),
    )


def _without_clauses(sentence: str, clause: re.Pattern[str], excluded: list[str]) -> Iterator[str]:
    """Yield the parts of a sentence outside of its clauses; add the clauses to `excluded`."""
    at = 0
    while cue := clause.search(sentence, at):
        before = sentence[at : cue.start()]
        # Inside of quotation marks are words of a user, not of the author.
        if sentence.count('"', 0, cue.start()) % 2:
            yield sentence[at : cue.end()]
            at = cue.end()
            continue
        end = len(sentence)
        # "rather than X, it does Y": Y is the resource's own again.
        if cue["comparison"] and (comma := _COMMA.search(sentence, cue.end())):
            end = comma.start()
        # Inside of brackets the clause ends with them.
        elif before.count("(") > before.count(")") and (close := sentence.find(")", cue.end())) > 0:
            end = close
        yield before
        excluded.append(sentence[cue.start() : end])
        at = end
    yield sentence[at:]
