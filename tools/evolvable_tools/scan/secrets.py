"""Secrets by the forms that their issuers gave them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from evolvable_tools.scan.findings import Finding, Severity
from evolvable_tools.scan.views import View


@dataclass(frozen=True, slots=True)
class Form:
    """How one type of secret looks. `anchors`: one of them, in lower case, stands in every text that has one."""

    name: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    severity: Severity = Severity.HIGH


def _form(name: str, anchors: str, pattern: str, severity: Severity = Severity.HIGH) -> Form:
    return Form(name, tuple(anchors.split()), re.compile(pattern), severity)


_START, _END = r"(?<![A-Za-z0-9_-])", r"(?![A-Za-z0-9_-])"

FORMS = (
    _form("aws-key-id", "akia asia abia acca", rf"{_START}(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{{16}}{_END}"),
    _form("anthropic", "sk-ant-", rf"{_START}sk-ant-[a-z0-9]{{2,8}}-[A-Za-z0-9_-]{{40,120}}"),
    _form(
        "openai",
        "sk-",
        rf"{_START}sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{{40,200}}"
        rf"|{_START}sk-[A-Za-z0-9]{{20}}T3BlbkFJ[A-Za-z0-9]{{20}}",
    ),
    _form("openrouter", "sk-or-", rf"{_START}sk-or-v1-[0-9a-f]{{64}}"),
    _form(
        "github",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        rf"{_START}gh[pousr]_[A-Za-z0-9]{{36,251}}|github_pat_[A-Za-z0-9]{{22}}_[A-Za-z0-9]{{59}}",
    ),
    _form("gitlab", "glpat- gldt- glrt-", rf"{_START}gl(?:pat|dt|rt)-[A-Za-z0-9_-]{{20,60}}"),
    _form("google", "aiza", rf"{_START}AIza[A-Za-z0-9_-]{{35}}{_END}"),
    _form("google-oauth", "gocspx-", rf"{_START}GOCSPX-[A-Za-z0-9_-]{{28}}{_END}"),
    _form(
        "slack",
        "xoxb- xoxp- xoxa- xoxr- xoxs- xapp-",
        rf"{_START}xox[bpars]-[0-9]{{8,14}}-[A-Za-z0-9-]{{20,100}}"
        rf"|{_START}xapp-[0-9]-[A-Z0-9]{{8,14}}-[0-9]{{8,14}}-[a-f0-9]{{60,70}}",
    ),
    _form(
        "slack-webhook",
        "hooks.slack.com",
        r"hooks\.slack\.com/(?:services|workflows)/T[A-Z0-9]{8,12}/[AB][A-Z0-9]{8,12}/[A-Za-z0-9]{20,30}",
    ),
    _form("discord-webhook", "/api/webhooks/", r"discord(?:app)?\.com/api/webhooks/[0-9]{17,20}/[A-Za-z0-9_-]{60,70}"),
    _form("stripe", "sk_live_ rk_live_ sk_test_", rf"{_START}(?:sk|rk)_live_[A-Za-z0-9]{{20,100}}{_END}"),
    _form("huggingface", "hf_", rf"{_START}hf_[A-Za-z]{{34}}{_END}"),
    _form("npm", "npm_", rf"{_START}npm_[A-Za-z0-9]{{36}}{_END}"),
    _form("pypi", "pypi-agei", r"pypi-AgEI[A-Za-z0-9_-]{50,300}"),
    _form("sendgrid", "sg.", rf"{_START}SG\.[A-Za-z0-9_-]{{22}}\.[A-Za-z0-9_-]{{43}}{_END}"),
    _form("digitalocean", "dop_v1_ doo_v1_", rf"{_START}do[op]_v1_[0-9a-f]{{64}}{_END}"),
    _form("shopify", "shpat_ shpss_ shpca_", rf"{_START}shp(?:at|ss|ca|pa)_[0-9a-fA-F]{{32}}{_END}"),
    _form("databricks", "dapi", rf"{_START}dapi[0-9a-f]{{32}}(?:-\d)?{_END}"),
    _form("telegram", ":aa", rf"{_START}[0-9]{{8,10}}:AA[A-Za-z0-9_-]{{33}}{_END}"),
    _form("age", "age-secret-key-", r"AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}"),
    _form("linear", "lin_api_", rf"{_START}lin_api_[A-Za-z0-9]{{40}}{_END}"),
    _form("notion", "ntn_", rf"{_START}ntn_[A-Za-z0-9]{{40,50}}{_END}"),
    _form(
        "private-key",
        "private key-----",
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,2}PRIVATE KEY(?: BLOCK)?-----\s{1,4}(?:[A-Za-z0-9+/=]{16,80}\s"
        r"|[A-Za-z0-9+/=]{16,80}|(?:[\w-]{1,20}: [^\n]{0,80}\n){1,3})",
    ),
    _form(
        "token",
        "eyj",
        rf"{_START}eyJ[A-Za-z0-9_-]{{15,2000}}\.eyJ[A-Za-z0-9_-]{{15,4000}}\.[A-Za-z0-9_-]{{20,1000}}",
        Severity.MEDIUM,
    ),
    _form(
        "url-password",
        "://",
        r"(?<![a-z0-9])[a-z][a-z0-9+.-]{2,20}://[A-Za-z0-9._%-]{1,40}:[^\s@/:'\"<>{}$\[\]()*,`"
        r"|]{8,80}@(?!localhost|127\.0\.0\.1|example\.|host[:/]|db[:/])[A-Za-z0-9.-]{4,80}",
        Severity.MEDIUM,
    ),
    _form(
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
    for form in FORMS:
        if not any(anchor in lower for anchor in form.anchors):
            continue
        for match in form.pattern.finditer(view.text):
            if form.name not in _SHAPED and _is_placeholder(match[0]):
                continue
            rule = f"secret.{form.name}"
            yield Finding(rule, form.severity, view.path, view.line(match.start()), match[0], _WHY, _HINT)


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
