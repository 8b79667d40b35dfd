"""Secrets by the forms that their issuers gave them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from evolvable_tools.redaction.certain import certain
from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.scan.views import View
from evolvable_tools.secret_shapes import FORMS, Form


@dataclass(frozen=True, slots=True)
class Rule:
    """How one type of secret looks. `anchors`: one of them, in lower case, stands in every text that has one."""

    name: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    severity: Severity = Severity.HIGH


def _rule(name: str, anchors: str, pattern: str, severity: Severity = Severity.HIGH) -> Rule:
    return Rule(name, tuple(anchors.split()), re.compile(pattern), severity)


_OFTEN_HARMLESS = frozenset({"jwt"})
_START, _END = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))", r"(?![A-Za-z0-9_-])"


def _issued(form: Form) -> Rule:
    beginnings = "|".join(map(re.escape, form.beginnings))
    severity = Severity.MEDIUM if form.name in _OFTEN_HARMLESS else Severity.HIGH
    return _rule(form.name, " ".join(form.beginnings).lower(), f"{_START}(?:{beginnings})(?:{form.exact})", severity)


RULES = (
    *(_issued(form) for form in FORMS if form.exact),
    _rule("telegram", ":aa", rf"{_START}[0-9]{{8,10}}:AA[A-Za-z0-9_-]{{33}}{_END}"),
    _rule(
        "private-key",
        "private key-----",
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,2}PRIVATE KEY(?: BLOCK)?-----\s{1,4}(?:[A-Za-z0-9+/=]{16,80}\s"
        r"|[A-Za-z0-9+/=]{16,80}|(?:[\w-]{1,20}: [^\n]{0,80}\n){1,3})",
    ),
    _rule(
        "url-password",
        "://",
        r"(?<![a-z0-9])[a-z][a-z0-9+.-]{2,20}://[A-Za-z0-9._%-]{1,40}:[^\s@/:'\"<>{}$\[\]()*,`"
        r"|]{8,80}@(?!localhost|127\.0\.0\.1|example\.|host[:/]|db[:/])[A-Za-z0-9.-]{4,80}",
        Severity.MEDIUM,
    ),
    _rule(
        "assigned",
        "password passwd secret token api_key apikey api-key",
        r"""(?i)(?<![a-z])(?:api[_-]?key|(?:access|auth|secret)[_-]?(?:token|key)|client[_-]?secret|passw(?:or)?d)["']?\s{0,3}[:=]\s{0,3}["'](?=[^"'\n]{0,80}\d)(?=[^"'\n]{0,80}[a-z])(?=[^"'\n]{0,80}[A-Z])[A-Za-z0-9_+/=.~-]{24,80}["']""",
        Severity.MEDIUM,
    ),
)

_PLACEHOLDER = re.compile(
    r"example(?![a-z0-9])|your|x{4}|\.\.\.|placeholder|dummy|fake|sample|redacted|changeme|change-me|replace|0{6}|1{6}"
    r"|a{6}|1234567|abcdefg?1234|abc123|test|mock|<|\$\{|\{\{|user:pass|:password@|:pass@|secret@|postgres:postgres",
    re.IGNORECASE,
)
_SHAPED = frozenset({"private-key"})
_WHY = "a secret would be kept in every version of it"
_HINT = "Take it out, name an environment variable instead, and replace the secret where it was issued."


def secrets(view: View) -> Iterator[Finding]:
    """Yields the secrets in a file, each whole in its excerpt; placeholders are none."""
    lower = view.text.lower()
    told: list[tuple[int, int]] = []
    for one in RULES:
        if not any(anchor in lower for anchor in one.anchors):
            continue
        for match in one.pattern.finditer(view.text):
            if one.name not in _SHAPED and _is_placeholder(match[0]):
                continue
            told.append(match.span())
            rule = f"secret.{one.name}"
            yield Finding(rule, one.severity, view.path, view.line(match.start()), match[0], _WHY, _HINT)
    for start, end, name in certain(view.text):
        if not any(start < after and before < end for before, after in told):
            told.append((start, end))
            line = view.line(start)
            yield Finding(f"secret.{name}", Severity.HIGH, view.path, line, view.text[start:end], _WHY, _HINT)


def cut(findings: Sequence[Finding]) -> list[Finding]:
    """Returns the findings with every secret cut to its beginning, and none in the excerpts beside it."""
    held = {(finding.path, finding.line) for finding in findings if finding.rule.startswith("secret.")}
    safe = []
    for one in findings:
        if one.rule.startswith("secret."):
            one = replace(one, excerpt=f"{one.excerpt[:4]}... ({len(one.excerpt)} characters)")
        elif (one.path, one.line) in held:
            one = replace(one, excerpt="[there is a secret on this line]")
        safe.append(one)
    return safe


def _is_placeholder(secret: str) -> bool:
    return len(set(secret)) < 10 or _PLACEHOLDER.search(secret) is not None
