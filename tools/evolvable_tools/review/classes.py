"""The classes of things that are never kept, however well they are evidenced: each a code, a sentence and a test."""

import re
from dataclasses import dataclass

_PAST = r"(?:failed|crashed|broke|hung|errored|timed\s+out)"


@dataclass(frozen=True, slots=True)
class Class:
    """One class. everywhere: its words mean it in a whole skill too, not only in a claim or a fact."""

    code: str
    said: str
    pattern: re.Pattern[str]
    everywhere: bool = False


def _class(code: str, said: str, pattern: str, *, everywhere: bool = False) -> Class:
    return Class(code, said, re.compile(pattern, re.IGNORECASE), everywhere)


NEVER_KEPT = (
    _class(
        "permission",
        "It loosens permissions, or skips somebody's approval.",
        r"--?dangerously[\w-]*|\bskip(?:ping)?[\s-]+permissions?\b|\bbypass\w*\s+(?:\w+\s+){0,3}(?:permission|approval|sandbox|review|check|security|hook)"
        r"|\bdisabl\w+\s+(?:\w+\s+){0,3}(?:sandbox|permission|approval|security|auth\w*|verification|signature|ssl|tls|firewall|antivirus)"
        r"|\bwithout\s+(?:asking|approval|confirmation|permission|telling|informing)\b|\bchmod\s+(?:-R\s+)?(?:777|a\+w)|\bNOPASSWD\b"
        r"|\b(?:auto[\s-]?approve|always\s+(?:allow|approve|accept))\b|\ballow(?:ed)?[\s-]tools\b\s*:?\s*(?:\*|all|Bash\(\*)"
        r"|\bdo(?:n't|\s+not)\s+(?:ask|tell|mention|inform|warn)\s+(?:\w+\s+){0,2}(?:the\s+)?(?:user|anyone|human|person|permission)",
        everywhere=True,
    ),
    _class(
        "reaches_out",
        "It asks for credentials, or sends data away.",
        r"\b(?:curl|wget)\b[^\n|]*\|\s*(?:ba|z|da)?sh\b|\b(?:send|post|upload|exfiltrat\w+|forward|mail|copy)\w*\b[^.\n]{0,60}\b(?:credential|secret|token|password|api[\s_-]?key|\.env|ssh\s+key|private\s+key|environment\s+variables?)"
        r"|\b(?:cat|read|print|echo|collect|include|paste|dump)\w*\b[^.\n]{0,40}(?:~/\.ssh|\.env\b|id_rsa|\.aws/credentials|\.netrc|/etc/passwd|api[\s_-]?keys?\b|passwords?\b)"
        r"|\b(?:curl|wget|http|fetch|nc)\b[^\n]{0,80}(?:\$\(|\$\{?[A-Z_]*(?:KEY|TOKEN|SECRET))",
        everywhere=True,
    ),
    _class(
        "override",
        "It tells a model to put aside what it was told.",
        r"\b(?:ignore|disregard|forget|override)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|all|other|system|your)\b[^.\n]{0,30}\b(?:instructions?|rules?|prompts?|guidelines?|messages?)"
        r"|\bsystem\s+prompt\b|\byou\s+are\s+now\s+(?:a|in|an|the)\b|<\s*/?\s*(?:system|assistant|instructions?)\s*>",
        everywhere=True,
    ),
    _class("secret", "It holds a secret.", r"\[REDACTED:|-----BEGIN [A-Z ]*PRIVATE KEY", everywhere=True),
    _class(
        "environment",
        "It tells of a failure of one machine or network, not of how work is done.",
        r"\b(?:command|module|package|executable)\s+(?:was\s+|is\s+)?not\s+found\b|\b(?:is|was|are|were)\s+(?:not|n't)\s+installed\b|\bisn't\s+installed\b|\bno\s+space\s+left\b"
        r"|\b(?:network|host|internet|server|registry|dns|proxy|vpn|api)\s+(?:is|was|seems)\s+(?:down|unreachable|offline|unavailable|slow)"
        r"|\bpermission\s+denied\b|\bconnection\s+(?:refused|reset|timed?\s*out)|\bout\s+of\s+(?:memory|disk)|\brate[\s-]limit(?:ed)?\b|\bport\s+\d+\s+(?:is|was)\s+(?:in\s+use|taken)",
    ),
    _class(
        "negative_tool",
        "It says that a tool is bad, which is soon untrue and keeps others from it.",
        rf"\b(?:tool|command|server|cli|mcp|function|api|linter|compiler|editor|browser|client)s?\b[^.\n]{{0,40}}\b(?:is|are|does(?:n't|\s+not)|do(?:n't|\s+not)|never|always)\b[^.\n]{{0,20}}\b(?:broken|unreliable|buggy|useless|work|works|fail|fails|flaky)\b"
        rf"|\b(?:is|are)\s+(?:broken|buggy|unreliable|flaky|useless)\b|\b(?:avoid|never\s+use|do(?:n't|\s+not)\s+(?:use|trust|rely\s+on))\s+(?:the\s+)?\w+\s+(?:tool|command|mcp|server)\b|\b\w+\s+always\s+{_PAST}",
    ),
    _class(
        "transient",
        "It holds only for now.",
        r"\b(?:today|yesterday|tomorrow|right\s+now|at\s+the\s+moment|currently|for\s+now|this\s+(?:morning|afternoon|week|month|sprint|time)|temporar\w+|until\s+(?:then|it|the\s+fix|monday|tuesday|wednesday|thursday|friday))\b",
    ),
    _class(
        "one_off",
        "It tells the story of one task.",
        r"\b(?:in|during)\s+this\s+(?:session|conversation|task|chat|ticket|pr)\b|\bthe\s+(?:user|agent|assistant)\s+(?:asked|wanted|fixed|ran|tried|said|changed|was|had|opened|requested)\b"
        r"|\bwe\s+(?:just|then|finally)\s+\w+ed\b|\b(?:ticket|issue|pr|bug)\s*#?\d{2,}\b|\b(?:was|were)\s+(?:fixed|resolved|solved|merged|deployed)\b|\bline\s+\d+\b|\bcommit\s+[0-9a-f]{7,}",
    ),
    _class(
        "third_party",
        "It has personal data of somebody.",
        r"[\w.+-]+@[\w-]+\.[a-z]{2,}|(?<!\d)\+?\d{2,4}[\s/-]\d{3,4}[\s/-]\d{3,}|\b(?:salary|diagnos\w+|pregnan\w+|birthday|home\s+address|phone\s+number)\b"
        r"|\b(?:my|our|his|her|their)\s+(?:boss|manager|colleague|coworker|customer|client|wife|husband|partner|boyfriend|girlfriend)\b",
    ),
)
"""Every class. Those that are not `everywhere` are looked for in the claim, the fact and the description."""


def never_kept(short: str, whole: str) -> Class | None:
    """Returns the first class that a change belongs to. short: its claim and fact; whole: all its text."""
    return next((one for one in NEVER_KEPT if one.pattern.search(whole if one.everywhere else short)), None)
