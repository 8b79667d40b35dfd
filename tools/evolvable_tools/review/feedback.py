"""What a person's words say of the work so far, read off plain phrases: no model is asked.

A phrase counts where it is said of the work. "Nothing wrong with that" is no complaint, and text in a code block or in
quotation marks is somebody else's.
"""

import re
from functools import lru_cache

MAX_READ = 2_000
"""Characters of a message that are read: feedback stands at its beginning, what follows is often pasted."""

_PASTED = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|\"[^\"\n]{0,400}\"|“[^”]{0,400}”|^>.*$|https?://\S+", re.DOTALL | re.MULTILINE
)
_ANNOUNCED = re.compile(
    r"\b(?:this|these|the|that|following|an?|his|her|their)\s+(?:\w+\s+){0,2}(?:e?-?mail|message|letter|text|log|output|error|"
    r"article|post|comment|ticket|issue|traceback)s?\b[^\n:.]{0,40}:[ \t]*\n(?P<pasted>.*)",
    re.DOTALL | re.IGNORECASE,
)
_ASKS = re.compile(
    r"(?:^|(?<=[.!?]\s))(?:(?:and|but|so|ok|okay)\W+)?(?!why\s+(?:don't|not|didn't))"
    r"(?:why|what|how|which|where|when|who|is|are|was|were|do|does|did|has|have)\s[^.!?]*\?",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"\b(?:nothing|not|isn't|isnt|is there anything|anything|what(?:'s| is| went)|why(?:'s| is)?|find out)\s+(?:\w+\s+)?(?:wrong|broken)\b"
    r"|\bno\s+(?:problem|worries|need|rush|changes?|idea|longer|more)\b|\bdon't\s+(?:worry|know|mind|think|have)\b"
    r"|\bnever\s+mind\b|\bwhy not\b|\bwithout\b|\bno\.?\s*\d"
    r"|^\W*no\W+(?:thanks|(?:that|this|it|all)(?:'s|\s+is)\s+(?:fine|ok|okay|good|all|alright|right|great|enough))\b"
    r"|\b(?:don't|do\s+not)\s[^.!?\n]{0,60}\b(?:yet|for\s+now)\b",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    r"^\W*(?:no|nope|nein|non|wrong|incorrect|undo|revert)\b[\s,.!:;–—-]"
    r"|^\W*stop\b(?:\s*(?:[,.!:;–—-]|$)|\s+(?:it|that|this|there|right|\w+ing)\b)|\bi(?:'d|\s+would)\s+(?:rather|prefer)\b"
    r"|\bthat(?:'s| is| was)\s+(?:not\s+(?:what|right|correct|how)|wrong|incorrect)"
    r"|\bnot\s+what\s+i\s+(?:asked|meant|wanted|said)|\bi\s+(?:said|told\s+you|asked\s+(?:you\s+)?(?:for|not))\b"
    r"|\byou\s+(?:should(?:n't| not)?\s+have|forgot|missed|broke|ignored|keep\s+\w+ing)\b"
    r"|\b(?:don't|do\s+not|never|stop)\s+(?:use|do|add|edit|touch|change|run|write|put|remove|delete|commit|create|call|mock|skip|rename|push)\w*\b"
    r"|\binstead\s+of\b|\buse\s+[\w./@-]+\s*,?\s*not\s+\w|\b(?:still|again)\s+(?:fails|failing|broken|wrong|doesn't|does\s+not)\b"
    r"|\b(?:please\s+)?(?:revert|undo)\s+(?:that|this|it|the|your)\b|\bthat\s+(?:doesn't|does\s+not|didn't)\s+work\b"
    r"|\b(?:could|can|would)\s+you\s+(?:please\s+)?(?:keep|leave|restore|revert|undo|go\s+back|(?:put|change)\s+\w+\s+back)\b",
    re.IGNORECASE,
)
_ANSWER = re.compile(r"^\W*(?:no|nope|nein|non)\b\W*", re.IGNORECASE)
_ACCEPTANCE = re.compile(
    r"^\W*(?:thanks|thank\s+you|thx|danke|merci|gracias|perfect|great|excellent|awesome|nice|lgtm|looks\s+good|good\s+job|"
    r"well\s+done|exactly|yes,?\s+(?:that|perfect|great|works)|that\s+works|it\s+works|works\s+(?:now|great|for\s+me)|"
    r"all\s+good|ship\s+it|approved)\b|\b(?:that|it|this|everything)\s+works\s+(?:now|perfectly|great)\b"
    r"|\blooks\s+good\s+to\s+me\b|\bthanks,?\s+that\b",
    re.IGNORECASE,
)
_STANDING = re.compile(
    r"\b(?:remember\s+(?:that|this|to|:)|from\s+now\s+on|in\s+(?:the\s+)?future|going\s+forward|for\s+next\s+time|"
    r"next\s+time,?\s+(?:please|you|i|we|use|run|do|don't|ask|first)|so\s+you\s+know|for\s+the\s+record|by\s+the\s+way|"
    r"fyi|for\s+your\s+information|from\s+(?:here|this\s+point)\s+on|"
    r"keep\s+in\s+mind|make\s+a\s+note|note\s+that\s+(?:we|i)\b|as\s+a\s+rule)\b"
    r"|\bi\s+(?:always|never|usually|prefer|like|hate|want\s+you\s+to\s+always)\b|\bwe\s+(?:always|never|prefer|use)\b"
    r"|\bour\s+(?:convention|policy|standard|style|team)\b|\bmy\s+(?:name|editor|timezone|role|team|company|machine)\s+is\b"
    r"|\bcall\s+me\b|\bi(?:'m| am)\s+(?:a|an|the|based|working)\b|^\W*(?:always|never)\b|(?<=[.!,;]\s)(?:always|never)\s+\w+",
    re.IGNORECASE | re.MULTILINE,
)
_SKILL_WISH = re.compile(
    r"\b(?:make|create|write|save|turn|add|record|capture)\b[^.?!\n]{0,60}\b(?:a|as|into|new|this)\s+(?:\w+\s+)?skill\b"
    r"|\bskill\s+for\s+(?:this|that|it|next\s+time)\b",
    re.IGNORECASE,
)


@lru_cache(8)
def own_words(text: str) -> str:
    """Returns the beginning of a message without what is quoted or pasted in it."""
    text = text[: MAX_READ * 2]
    announced = _ANNOUNCED.search(text)
    own = text[: announced.start("pasted")] if announced else text
    return " ".join(_PASTED.sub(" ", own)[:MAX_READ].split())


def corrects(text: str, asked: bool = False) -> bool:
    """Returns whether the words say that something was done wrong. asked: they answer a question of the agent's."""
    said = _ASKS.sub(" ", own_words(text))
    if asked:
        said = _ANSWER.sub("", said)
    return bool(_CORRECTION.search(_HARMLESS.sub(" ", said)))


def accepts(text: str) -> bool:
    """Returns whether the words say that the work is good; never when they correct something too."""
    return bool(_ACCEPTANCE.search(own_words(text))) and not corrects(text)


def states(text: str) -> bool:
    """Returns whether the words state something that is to hold beyond this task."""
    said = own_words(text)
    if wishes_skill(text) or said.rstrip().endswith("?"):
        return False
    return bool(_STANDING.search(_HARMLESS.sub(" ", said)))


def wishes_skill(text: str) -> bool:
    """Returns whether the words ask for a skill to be made."""
    return bool(_SKILL_WISH.search(own_words(text)))
