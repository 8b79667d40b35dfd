"""Code points that show a person another text than a model reads."""

import re
from collections import Counter
from collections.abc import Iterator

from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.scan.phrases import MAX_FOUND
from evolvable_tools.scan.views import View, written_out

_SPECIAL = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u0084\u0086-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ue000-\uf8ff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff]+"
)
"""Runs of whatever a rule below looks at; everything else is passed over at the speed of `re`."""

_TAGS = re.compile("[\U000e0000-\U000e007f]")
_FLAG = re.compile(
    "\U000e0067\U000e0062[\U000e0061-\U000e007a]{3}\U000e007f|\U000e0075\U000e0073[\U000e0061-\U000e007a]{2}\U000e007f"
)
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2}")
_OVERRIDES = re.compile("[\u202d\u202e]")
_EMBEDDINGS = re.compile("[\u202a-\u202c\u2066-\u2069]")
_ESCAPES = re.compile("[\u001b\u009b\u009d\u0090]")
_CONTROLS = re.compile("[\u0000-\u0008\u000b\u000e-\u001f\u007f-\u0084\u0086-\u009f]")
_GARBLED = frozenset("âÂÃãäåæçèéðïÅÎÐ")
"""What the first byte of a character becomes where UTF-8 was taken for Latin-1; the next ones become controls."""

_FILLERS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180e\u2061-\u2065\u206a-\u206f\u3164\uffa0\ufff9-\ufffb]"
)
_JOINERS = re.compile("[\u200b-\u200d\u2060\ufeff\u00ad]")
_ENCODED = re.compile("[\u200b-\u200d\u2060\ufeff\u00ad\u2061-\u2064]{8}")
_PRIVATE = re.compile("[\U000f0000-\U0010ffff]")

_MIXED = re.compile(r"(?<!\w)(?=\w{0,40}[a-zA-Z])(?=\w{0,40}[\u0400-\u052f])[a-zA-Z\u0400-\u052f]{3,40}(?!\w)")
_CYRILLIC = re.compile("[\u0400-\u052f]")
_LIKE_LATIN = frozenset("асеорхуіјѕһԁӏАВЕКМНОРСТУХІЈЅ")
_WORD = re.compile(r"[a-zA-Z\u0400-\u052f]+")

_CLEAR = "Write the text without these characters."


def hidden(view: View) -> Iterator[Finding]:
    """Yields what hides text in a file."""
    yield from _blank(view)
    if view.is_ascii and not _SPECIAL.search(view.text):
        return
    told: Counter[str] = Counter()
    for run in _SPECIAL.finditer(view.text):
        for rule, severity, why in _judged(view.text, run):
            told[rule] += 1
            if told[rule] <= MAX_FOUND:
                excerpt = view.excerpt(run.start(), run.end())
                yield Finding(rule, severity, view.path, view.line(run.start()), excerpt, why, _CLEAR)
    yield from _lookalikes(view)


def _judged(text: str, run: re.Match[str]) -> Iterator[tuple[str, Severity, str]]:
    special = run[0]
    if _TAGS.search(special) and not _is_flag(text, run):
        yield "hidden.tags", Severity.HIGH, "tag characters spell out text that nobody sees"
    if _SELECTORS.search(special):
        yield "hidden.selectors", Severity.HIGH, "a row of variation selectors can carry any text unseen"
    if _OVERRIDES.search(special):
        yield "hidden.override", Severity.HIGH, "a direction override shows the text in another order than it has"
    elif _EMBEDDINGS.search(special):
        yield "hidden.direction", Severity.MEDIUM, "an embedded direction can show the text in another order"
    if _CONTROLS.search(special) and text[run.start() - 1 : run.start()] in _GARBLED:
        yield "hidden.garbled", Severity.LOW, "the text was once read in a wrong encoding"
    elif _ESCAPES.search(special):
        yield "hidden.escape", Severity.HIGH, "an escape sequence steers the terminal that shows it"
    elif _CONTROLS.search(special):
        yield "hidden.control", Severity.MEDIUM, "control characters change what a terminal shows"
    if "\r" in special:
        yield "hidden.return", Severity.MEDIUM, "a bare carriage return lets a line write over itself"
    if _ENCODED.search(special):
        yield "hidden.encoded", Severity.HIGH, "a row of invisible characters can carry any text unseen"
    elif _FILLERS.search(special):
        yield "hidden.filler", Severity.MEDIUM, "characters without a shape stand in the text"
    elif _JOINERS.search(special) and not _joins(text, run):
        yield "hidden.zero-width", Severity.MEDIUM, "characters without width stand between letters"
    if _PRIVATE.search(special):
        yield "hidden.private", Severity.MEDIUM, "characters that no standard defines stand in the text"


def _is_flag(text: str, run: re.Match[str]) -> bool:
    """Returns whether the tags spell a flag, such as England's: the one thing they are for."""
    start = run.start()
    return text[start - 1 : start] == "\U0001f3f4" and _FLAG.fullmatch(run[0]) is not None


def _joins(text: str, run: re.Match[str]) -> bool:
    """Returns whether a joiner stands where scripts and emoji need one: beside a character that is not Latin."""
    beside = text[max(0, run.start() - 1) : run.start()] + text[run.end() : run.end() + 1]
    return len(run[0]) <= 2 and any(char >= "\u0590" for char in beside)


def _lookalikes(view: View) -> Iterator[Finding]:
    """Yields a word of Latin letters with one or two that only look like them."""
    if not _CYRILLIC.search(view.text):
        return
    for match in _MIXED.finditer(view.text):
        word = match[0]
        strange = [char for char in word if char >= "\u0400"]
        if len(strange) < len(word) / 2 and all(char in _LIKE_LATIN for char in strange):
            why = "a word mixes letters of two alphabets that look the same"
            shown = written_out(ascii(word)[1:-1])
            line = view.line(match.start())
            yield Finding("hidden.lookalike", Severity.MEDIUM, view.path, line, shown, why, _CLEAR)
            return


_FOLD = 60
_BLANK_LINES = re.compile(r"\n[ \t\u00a0\u3000\n]{60,}")
_BLANK_LINE = re.compile(r"[ \t\u00a0\u3000]{200}(?=\S)")


def _blank(view: View) -> Iterator[Finding]:
    """Yields text pushed out of sight by blank lines or spaces."""
    gaps = (match for match in _BLANK_LINES.finditer(view.text) if match[0].count("\n") > _FOLD)
    if match := next(gaps, None):
        rest = view.text[match.end() : match.end() + 4000].strip()
        why = f"more than {_FOLD} blank lines push what follows out of sight"
        severity = Severity.MEDIUM if rest else Severity.LOW
        line = view.line(match.end())
        yield Finding("hidden.blank-lines", severity, view.path, line, written_out(rest[:80]), why, "Close the gap.")
    if " " * 100 in view.text and (match := _BLANK_LINE.search(view.text)):
        why = "a row of more than 200 spaces pushes what follows out of sight"
        excerpt = written_out(view.text[match.end() : match.end() + 80].split("\n")[0])
        if len(excerpt) < 10:
            return
        line = view.line(match.start())
        yield Finding("hidden.spaces", Severity.MEDIUM, view.path, line, excerpt, why, "Close the gap.")
