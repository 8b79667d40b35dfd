"""What a file is beyond its words: hidden code points, kinds of files that nobody can read, and
secrets by their form.

The kinds of files and the forms of secrets are data, in `content_rules.toml`; the forms of issuers
are those of the redaction.
"""

import base64
import binascii
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from evolvable_tools.redaction import FORMS, SecretForm, find_certain
from evolvable_tools.scan.scan_findings import Alternatives, Finding, FindingSeverity, PatternTable
from evolvable_tools.scan.sentence_rules import MAX_FOUND
from evolvable_tools.scan.text_analysis import TextView, escape_unprintable
from evolvable_tools.scan.text_loops import PartFinder

_H, _M, _L = FindingSeverity.HIGH, FindingSeverity.MEDIUM, FindingSeverity.LOW

_TABLE = PatternTable("content_rules.toml")
_PATTERNS = {name: _TABLE.compile(name) for name in _TABLE.data["patterns"]}
_ENDINGS = {kind: tuple(names) for kind, names in _TABLE.data["endings"].items()}
_BEGINNINGS = {
    kind: tuple(text.encode("latin-1") for text in some)
    for kind, some in _TABLE.data["beginnings"].items()
}


_GARBLED = frozenset("âÂÃãäåæçèéðïÅÎÐ")
"""What the first byte of a character becomes where UTF-8 was taken for Latin-1; the next ones
become controls.
"""


# Cyrillic letters with the shape of Latin ones.
_LIKE_LATIN = frozenset("асеорхуіјѕһԁӏАВЕКМНОРСТУХІЈЅ")

_CLEAR = "Write the text without these characters."


def find_hidden(view: TextView) -> Iterator[Finding]:
    """Yield what hides text in a file."""
    yield from _find_gaps(view)
    if not _has_special(view.text):
        if not view.is_ascii:
            yield from _find_lookalikes(view)
        return
    rule_counts: Counter[str] = Counter()
    for run in _PATTERNS["special"].finditer(view.text):
        for rule, severity, why in _judge_special(view.text, run):
            rule_counts[rule] += 1
            if rule_counts[rule] <= MAX_FOUND:
                excerpt = view.excerpt(run.start(), run.end())
                yield Finding(
                    rule, severity, view.path, view.line(run.start()), excerpt, why, _CLEAR
                )
    yield from _find_lookalikes(view)


# Without these bytes little is left of most files for the pattern to search.
_HARMLESS = bytes(range(32, 127)) + b"\n\t"


def _has_special(text: str) -> bool:
    """Return whether one of the special characters stands in a text: most of it is passed over as
    bytes.
    """
    rest = text.encode("utf-8", "surrogatepass").translate(None, _HARMLESS)
    return (
        bool(rest)
        and _PATTERNS["special"].search(rest.decode("utf-8", "surrogatepass")) is not None
    )


def _judge_special(text: str, run: re.Match[str]) -> Iterator[tuple[str, FindingSeverity, str]]:
    special = run[0]
    if _PATTERNS["tags"].search(special) and not _is_flag(text, run):
        yield "hidden.tags", _H, "tag characters spell out text that nobody sees"
    if _PATTERNS["selectors"].search(special):
        yield "hidden.selectors", _H, "a row of variation selectors can carry any text unseen"
    if _PATTERNS["overrides"].search(special):
        why = "a direction override shows the text in another order than it has"
        yield "hidden.override", _H, why
    elif _PATTERNS["embeddings"].search(special):
        yield "hidden.direction", _M, "an embedded direction can show the text in another order"
    # In garbled text control characters follow these letters, and steer nothing.
    if _PATTERNS["controls"].search(special) and text[run.start() - 1 : run.start()] in _GARBLED:
        yield "hidden.garbled", _L, "the text was once read in a wrong encoding"
    elif _PATTERNS["escapes"].search(special):
        yield "hidden.escape", _H, "an escape sequence steers the terminal that shows it"
    elif _PATTERNS["controls"].search(special):
        yield "hidden.control", _M, "control characters change what a terminal shows"
    if "\r" in special:
        yield "hidden.return", _M, "a bare carriage return lets a line write over itself"
    if _PATTERNS["encoded"].search(special):
        yield "hidden.encoded", _H, "a row of invisible characters can carry any text unseen"
    elif _PATTERNS["fillers"].search(special):
        yield "hidden.filler", _M, "characters without a shape stand in the text"
    elif _PATTERNS["joiners"].search(special) and not _are_harmless_joiners(text, run):
        yield "hidden.zero-width", _M, "characters without width stand between letters"
    if _PATTERNS["private"].search(special):
        yield "hidden.private", _M, "characters that no standard defines stand in the text"


def _is_flag(text: str, run: re.Match[str]) -> bool:
    """Return whether the tags spell a flag, such as England's: the one thing they are for."""
    start = run.start()
    return (
        text[start - 1 : start] == "\U0001f3f4" and _PATTERNS["flag"].fullmatch(run[0]) is not None
    )


def _are_harmless_joiners(text: str, run: re.Match[str]) -> bool:
    """Return whether joiners part no word: they stand beside a sign that is no Latin letter, or of
    a script that needs them.
    """
    before = text[max(0, run.start() - 1) : run.start()]
    after = text[run.end() : run.end() + 1]
    if not (before.isalnum() and after.isalnum()):
        return True
    # Scripts from Hebrew on (U+0590) shape their letters with joiners.
    return len(run[0]) <= 2 and any(char >= "\u0590" for char in before + after)


def _find_lookalikes(view: TextView) -> Iterator[Finding]:
    """Yield a word of Latin letters with one or two that only look like them."""
    if not _PATTERNS["cyrillic"].search(view.text):
        return
    for match in _PATTERNS["mixed"].finditer(view.text):
        strange = [char for char in match[0] if char >= "\u0400"]
        # Fewer than half: a Latin word with some Cyrillic letters is a disguise, the reverse mostly
        # a typing error.
        if len(strange) < len(match[0]) / 2 and _LIKE_LATIN.issuperset(strange):
            why = "a word mixes letters of two alphabets that look the same"
            excerpt = escape_unprintable(ascii(match[0])[1:-1])
            yield Finding(
                "hidden.lookalike", _M, view.path, view.line(match.start()), excerpt, why, _CLEAR
            )
            # One word is enough for a person to look at the file.
            return


_FOLD = 60  # blank lines, more than a screen shows


def _find_gaps(view: TextView) -> Iterator[Finding]:
    """Yield text pushed out of sight by blank lines or spaces."""
    gaps = (
        match
        for match in _PATTERNS["blank_lines"].finditer(view.text)
        if match[0].count("\n") > _FOLD
    )
    if match := next(gaps, None):
        rest = view.text[match.end() : match.end() + 4000].strip()
        why = f"more than {_FOLD} blank lines push what follows out of sight"
        severity = _M if rest else _L
        excerpt, line = escape_unprintable(rest[:80]), view.line(match.end())
        yield Finding(
            "hidden.blank-lines", severity, view.path, line, excerpt, why, "Close the gap."
        )
    # A substring is found much sooner than the pattern, and stands in each of its matches.
    if " " * 100 in view.text and (match := _PATTERNS["blank_line"].search(view.text)):
        why = "a row of more than 200 spaces pushes what follows out of sight"
        excerpt = escape_unprintable(view.text[match.end() : match.end() + 80].split("\n")[0])
        # So short a rest holds no order.
        if len(excerpt) < 10:
            return
        yield Finding(
            "hidden.spaces", _M, view.path, view.line(match.start()), excerpt, why, "Close the gap."
        )


# Signs in a decoded text of commands, of code that runs text, and of injections.
_ORDERS = re.compile(
    rb"curl |wget |/bin/(?:ba)?sh|powershell|invoke-|import os|subprocess|socket\.|eval\(|exec\("
    rb"|ignore (?:all )?previous|https?://\S{4,100}[\"' ]?\s?\|",
    re.IGNORECASE,
)

_READABLE = "Keep it as text that a person can read, or leave it out."


def shape_of_bytes(path: str, data: bytes) -> Iterator[Finding]:
    """Yield what is to say of a file that is not text."""
    name = path.lower()
    if is_program(path, data):
        return  # told as a capability
    if data.startswith(_BEGINNINGS["archives"]):
        # The newer formats of office documents are archives too.
        if not name.endswith(_ENDINGS["documents"]):
            why = "it is an archive, and nobody looked into it"
            yield Finding(
                "shape.archive", _M, path, 0, "", why, "Keep its files in the resource instead."
            )
    elif name.endswith(_ENDINGS["texts"]):
        why = "it is named like a text and is none, so nobody looked into it"
        yield Finding("shape.not-text", _M, path, 0, "", why, "Save it as UTF-8.")
    elif not data.startswith(_BEGINNINGS["media"]) and data:
        why = "nobody knows what kind of file it is"
        yield Finding("shape.unknown", _L, path, 0, "", why, _READABLE)


def is_program(path: str, data: bytes) -> bool:
    """Return whether a file is a compiled program, by its beginning or its name."""
    # Programs for Windows begin with MZ and have zero bytes right after it; a text may begin with
    # MZ.
    if data.startswith(b"MZ") and b"\0" not in data[:64]:
        return False
    has_program_ending = path.lower().endswith(_ENDINGS["programs"])
    return data.startswith(_BEGINNINGS["programs"]) or (has_program_ending and b"\0" in data[:4096])


def shape_of_text(view: TextView) -> Iterator[Finding]:
    """Yield encoded texts in a file that hold orders."""
    if "\\x" in view.text and (match := _PATTERNS["hex"].search(view.text)):
        why = "it holds a long text in escapes that nobody can read"
        severity = _M if view.is_code else _L
        excerpt, line = view.excerpt(match.start(), match.end()), view.line(match.start())
        yield Finding("shape.escapes", severity, view.path, line, excerpt, why, _READABLE)
    # A pattern takes longer to find that there is none, as in most files.
    letters = view.text.encode("ascii", "replace").translate(_AS_BLOB)
    for match in _PATTERNS["blob"].finditer(view.text) if _LEAST_BLOB in letters else ():
        decoded = _decode_base64(match[0])
        if order := _ORDERS.search(decoded):
            start = max(0, order.start() - 20)
            excerpt = escape_unprintable(decoded[start : start + 80].decode("utf-8", "replace"))
            severity = _H if view.is_code else _M
            why, line = "an encoded text in it holds orders", view.line(match.start())
            yield Finding("shape.encoded", severity, view.path, line, excerpt, why, _READABLE)


# Maps each character of base64 to "a" and every other to zero, so that `in` finds a run of 64.
_AS_BLOB = bytes(
    ord("a") if chr(code) in f"{string.ascii_letters}{string.digits}+/" else 0
    for code in range(256)
)
_LEAST_BLOB = b"a" * 64


def _decode_base64(text: str) -> bytes:
    """Return the bytes that a text stands for when they are readable, else b''."""
    # A group has four characters; an incomplete last one is cut.
    groups = text[: len(text) // 4 * 4]
    try:
        data = base64.b64decode(groups.encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        return b""
    start = data[:64]
    # Compressed and random bytes stay far below 95 % of printable ones.
    printable = sum(32 <= byte < 127 or byte in (9, 10, 13) for byte in start)
    return data if printable > 0.95 * len(start) else b""


@dataclass(frozen=True)
class SecretRule:
    """The form of one type of secret.

    anchors: one of them, in lower case, stands in every text that has such a secret. core: what
    stands in each match and is found sooner than the match.
    """

    name: str
    anchors: frozenset[str]
    source: str
    severity: FindingSeverity
    core: Alternatives | None = None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when a text first has one of the anchors."""
        return re.compile(self.source)


_OFTEN_HARMLESS = frozenset({"jwt"})  # many in documents are examples or have expired


def _make_issuer_rule(form: SecretForm) -> SecretRule:
    # `re` finds letters sooner than the border before them.
    begins = (re.escape(beginning) for beginning in form.beginnings)
    beginnings = "|".join(
        rf"{beginning}(?:(?<![A-Za-z0-9_-]{beginning})|(?<=\\[nrt]{beginning}))"
        for beginning in begins
    )
    anchors = frozenset(beginning.lower() for beginning in form.beginnings)
    severity = _M if form.name in _OFTEN_HARMLESS else _H
    return SecretRule(form.name, anchors, f"(?:{beginnings})(?:{form.exact})", severity)


RULES = (
    *(_make_issuer_rule(form) for form in FORMS if form.exact),
    *(
        SecretRule(
            row["name"],
            frozenset(row["anchors"]),
            _TABLE.join(row["pattern"]),
            FindingSeverity(row["severity"]),
            _TABLE.core(row),
        )
        for row in _TABLE.data["secrets"]
    ),
)

_ANCHORS = PartFinder(tuple({anchor for secret_rule in RULES for anchor in secret_rule.anchors}))
# Rules whose form is so certain that a placeholder is reported too.
_SHAPED = frozenset({"private-key"})
_WHY = "a secret would be kept in every version of it"
_HINT = (
    "Take it out, name an environment variable instead, and replace the secret where it was issued."
)


def find_secret_forms(view: TextView) -> Iterator[Finding]:
    """Yield the secrets in a file, each whole in its excerpt; placeholders are none."""
    # Not `plain`, which has other letters: the forms are searched in the text as written.
    anchors = _ANCHORS.find(view.plain if view.is_ascii else view.text.lower())
    reported_spans: list[tuple[int, int]] = []
    for secret_rule in RULES:
        if secret_rule.anchors.isdisjoint(anchors) or (
            secret_rule.core is not None and secret_rule.core.search(view.text) is None
        ):
            continue
        for match in secret_rule.pattern.finditer(view.text):
            if secret_rule.name not in _SHAPED and _is_placeholder(match[0]):
                continue
            reported_spans.append(match.span())
            rule, severity = f"secret.{secret_rule.name}", secret_rule.severity
            line = view.line(match.start())
            yield Finding(rule, severity, view.path, line, match[0], _WHY, _HINT)
    for start, end, name in find_certain(view.text):
        # A secret that a rule above found is not reported twice.
        if not any(start < after and before < end for before, after in reported_spans):
            reported_spans.append((start, end))
            yield Finding(
                f"secret.{name}", _H, view.path, view.line(start), view.text[start:end], _WHY, _HINT
            )


def cut_secrets(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings with every secret cut to its beginning, and none in the excerpts beside
    it.
    """
    # The excerpt of another finding on that line could show the secret.
    secret_lines = {
        (finding.path, finding.line) for finding in findings if finding.rule.startswith("secret.")
    }
    safe = []
    for finding in findings:
        excerpt = finding.excerpt
        if finding.rule.startswith("secret."):
            excerpt = f"{excerpt[:4]}... ({len(excerpt)} characters)"
        elif (finding.path, finding.line) in secret_lines:
            excerpt = "[there is a secret on this line]"
        safe.append(replace(finding, excerpt=excerpt))
    return safe


def _is_placeholder(secret: str) -> bool:
    # Made-up values repeat a few characters.
    return len(set(secret)) < 10 or _PATTERNS["placeholder"].search(secret) is not None
