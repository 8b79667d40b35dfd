"""What a person's own words say of the work that was done: that it works, or that it does not. English only.

A clause counts only as a whole: "it works" does, "make sure it works" and "does it work?" do not, and neither does
what stands in quotes, in code or in a quoted line.
"""

import re
import unicodedata

from evolvable_store.storage.evidence import Outcome

MAX_WORDS = 600
"""Characters of a message that are looked at: a verdict stands at its beginning."""

_QUOTED = (
    re.compile(r"```.*?(?:```|\Z)", re.DOTALL),
    re.compile(r"~~~.*?(?:~~~|\Z)", re.DOTALL),
    re.compile(r"`[^`\n]*`"),
    re.compile(r"(?m)^\s*>.*$"),
    re.compile(r"(?m)^(?: {4}|\t).*$"),
    re.compile(r'"[^"]*"|“[^”]*”|«[^»]*»|‘[^\'\n]*\''),
    re.compile(r"(?<!\w)'[^'\n]*'(?!\w)"),
    re.compile(r"<(\w[\w-]*)[^>]*>.*?</\1>", re.DOTALL),
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_CLAUSE = re.compile(r"\s*(?:[,;:.!()]|\s[-–—]+\s|\bbut\b|\bhowever\b|\bthough\b|\bexcept\b)\s*")
_LEAD = (
    r"(?:(?:and|ok|okay|yes|yep|yeah|yay|no|nope|hm+|ah|oh|great|nice|cool|awesome|thanks|thank\s+you|thx|sorry|so|well|"
    r"actually|unfortunately|sadly|confirmed|now)\s+)*"
)
_IT = (
    r"(?:it|that|this|everything|all\s+of\s+it|all|your\s+(?:fix|change|solution|version)|"
    r"the\s+(?:fix|change|result|output))"
)
_TAIL = (
    r"(?:\s+(?:now|again|perfectly|fine|great|well|too|nicely|as\s+expected|like\s+a\s+charm|for\s+me|to\s+me|thanks))*"
)
_GOOD = re.compile(
    rf"""{_LEAD}(?:
        {_IT}\s+(?:all\s+)?(?:now\s+)?(?:works|worked|passes|fixed\s+(?:it|that)|solved\s+(?:it|that)|did\s+it|helped)
      | {_IT}(?:'s|\s+is|\s+was)\s+(?:all\s+)?(?:now\s+)?(?:working|fixed|solved|perfect|correct|right|good)
      | {_IT}\s+looks\s+(?:good|great|right|perfect|correct)
      | (?:works|worked|fixed|solved|perfect|excellent|lgtm|looks\s+(?:good|great|perfect))
      | (?:well\s+done|good\s+job|great\s+(?:job|work)|nice\s+work|exactly\s+what\s+i\s+(?:wanted|needed|asked\s+for))
    ){_TAIL}""",
    re.VERBOSE,
)
_NOT = r"(?:(?:does|did|is|was)(?:n't|nt|\s+not)|'s\s+not|won't)"
_BAD = re.compile(
    rf"""{_LEAD}(?:
        {_IT}\s*(?:still\s+|really\s+|quite\s+)*{_NOT}\s+(?:(?:even|quite|really|at\s+all)\s+)*
            (?:work|working|help|helped|fix|fixed|solve|right|correct|good|what\s+i\s+(?:asked|wanted|meant|needed))\b.*
      | (?:{_IT}(?:'s|\s+is)?\s+)?still\s+(?:
            fails|failing|broken|wrong|not\s+(?:working|fixed|right)|doesn'?t\s+work
            |(?:(?:get|getting|see|seeing|shows?)\s+)?the\s+same\s+error)\b.*
      | {_IT}(?:'s|\s+is|\s+was)\s+(?:wrong|broken|incorrect|worse)(?:\s+(?:now|again|too))*
      | you\s+broke\s+(?:it|that|this|the\s+\w+)
      | (?:please\s+)?(?:undo|revert|roll\s+back)\s+(?:it|that|this|your\s+changes?|all\s+of\s+(?:it|that))
            (?:\s+please)?
      | not\s+what\s+i\s+(?:asked\s+for|asked|wanted|meant|needed)
    )""",
    re.VERBOSE,
)


# No message without one of these can match.
_HINT = re.compile(
    r"work|pass|fix|solve|did|help|perfect|correct|right|good|great|excellent|lgtm|done|job|nice|exactly|broke|wrong|worse|"
    r"still|not|n.t|undo|revert|roll",
    re.IGNORECASE,
)


def verdict(text: str) -> Outcome | None:
    """Returns SUCCEEDED or FAILED where a message says so, UNKNOWN where it says both, None where it says neither."""
    if not _HINT.search(text, 0, 10 * MAX_WORDS):
        return None
    found = set()
    for sentence in _SENTENCE.split(_own_words(text)):
        if not sentence.rstrip().endswith("?"):
            for clause in _CLAUSE.split(sentence):
                found.add(_of(clause.strip(" .!")))
    found.discard(None)
    if len(found) > 1:
        return Outcome.UNKNOWN
    return found.pop() if found else None


def _of(clause: str) -> Outcome | None:
    if _BAD.fullmatch(clause):
        return Outcome.FAILED
    return Outcome.SUCCEEDED if _GOOD.fullmatch(clause) else None


def _own_words(text: str) -> str:
    text = unicodedata.normalize("NFKC", text[: 10 * MAX_WORDS]).replace("’", "'")
    for quoted in _QUOTED:
        text = quoted.sub(" … ", text)
    return re.sub(r"[^\S\n]+", " ", text).casefold().strip()[:MAX_WORDS]
