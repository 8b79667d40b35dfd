"""What a person's words say of the work so far, read off plain phrases: no model is asked.

A phrase counts where it is said of the work. "Nothing wrong with that" is no complaint, and text in a code block or in
quotation marks is somebody else's.
"""

import re

MAX_READ = 2_000
"""Characters of a message that are read: feedback stands at its beginning, what follows is often pasted."""

_PASTED = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|\"[^\"\n]{0,400}\"|“[^”]{0,400}”|^>.*$|https?://\S+", re.DOTALL | re.MULTILINE
)
_HARMLESS = re.compile(
    r"\b(?:nothing|not|isn't|isnt|is there anything|anything|what(?:'s| is| went)|why(?:'s| is)?|find out)\s+(?:\w+\s+)?(?:wrong|broken)\b"
    r"|\bno\s+(?:problem|worries|need|rush|changes?|idea|longer|more)\b|\bdon't\s+(?:worry|know|mind|think|have)\b"
    r"|\bnever\s+mind\b|\bwhy not\b|\bwithout\b|\bno\.?\s*\d",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    r"^\W*(?:no|nope|nein|non|stop|wait|wrong|incorrect|undo|revert)\b[\s,.!:;–—-]"
    r"|\bthat(?:'s| is| was)\s+(?:not\s+(?:what|right|correct|how)|wrong|incorrect)"
    r"|\bnot\s+what\s+i\s+(?:asked|meant|wanted|said)|\bi\s+(?:said|told\s+you|asked\s+(?:you\s+)?(?:for|not))\b"
    r"|\byou\s+(?:should(?:n't| not)?\s+have|forgot|missed|broke|ignored|keep\s+\w+ing)\b"
    r"|\b(?:don't|do\s+not|never|stop)\s+(?:use|do|add|edit|touch|change|run|write|put|remove|delete|commit|create|call|mock|skip|rename|push)\w*\b"
    r"|\binstead\s+of\b|\buse\s+[\w./@-]+\s*,?\s*not\s+\w|\b(?:still|again)\s+(?:fails|failing|broken|wrong|doesn't|does\s+not)\b"
    r"|\b(?:please\s+)?(?:revert|undo)\s+(?:that|this|it|the|your)\b|\bthat\s+(?:doesn't|does\s+not|didn't)\s+work\b",
    re.IGNORECASE,
)
_ACCEPTANCE = re.compile(
    r"^\W*(?:thanks|thank\s+you|thx|danke|merci|gracias|perfect|great|excellent|awesome|nice|lgtm|looks\s+good|good\s+job|"
    r"well\s+done|exactly|yes,?\s+(?:that|perfect|great|works)|that\s+works|it\s+works|works\s+(?:now|great|for\s+me)|"
    r"all\s+good|ship\s+it|approved)\b|\b(?:that|it|this|everything)\s+works\s+(?:now|perfectly|great)\b"
    r"|\blooks\s+good\s+to\s+me\b|\bthanks,?\s+that\b",
    re.IGNORECASE,
)
_STANDING = re.compile(
    r"\b(?:remember\s+(?:that|this|to|:)|from\s+now\s+on|in\s+(?:the\s+)?future|going\s+forward|for\s+next\s+time|"
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


def own_words(text: str) -> str:
    """Returns the beginning of a message without what is quoted or pasted in it."""
    return " ".join(_PASTED.sub(" ", text[: MAX_READ * 2])[:MAX_READ].split())


def corrects(text: str) -> bool:
    """Returns whether the words say that something was done wrong."""
    return bool(_CORRECTION.search(_HARMLESS.sub(" ", own_words(text))))


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
