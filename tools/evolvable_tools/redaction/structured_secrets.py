"""Secrets that the structure around them marks: tables, XML attributes, shell settings, declarations, URLs."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator

from evolvable_tools.redaction.named_secrets import Hit, is_opaque, is_password, is_secret, names_credential
from evolvable_tools.redaction.token_detection import CandidateText, is_random

_QUOTED = r"(?P<q>\\{0,2}[\"'])?(?P<s>(?(q)[^\"'\n\\]{4,600}|[^\s\"'`;<>|&]{4,600}))"

_SET = re.compile(
    r"(?:setx(?:\.exe)?(?:[ \t]+/[a-z]\b(?:[ \t]+[^\s/]{1,60})?){0,4}|set(?:[ \t]+-{1,2}[a-z-]{1,12}){1,5}|setenv|env|arg"
    r"|(?:git[ \t]+)?config(?:ure)?(?:[ \t]+set)?(?:[ \t]+--[a-z-]{1,20}){0,3}|secret[ \t]+set(?:[ \t]+--[a-z-]{1,20}){0,3})"
    rf"[ \t]+[\"']?(?P<name>[\w./:@-]{{2,120}})[\"']?[ \t]+(?:--(?:body|value)[ =]|-b[ \t]*)?{_QUOTED}",
    re.IGNORECASE,
)
_SET_STARTS = (
    "setx",
    "set -",
    "setenv ",
    "env ",
    "arg ",
    "config set ",
    "configure set ",
    "git config ",
    "secret set ",
)
_ATTRIBUTES = re.compile(r"<[A-Za-z][\w:.-]{0,60}(?=[ \t\r\n])(?P<all>[^<>]{8,2000})/?>")
_ATTRIBUTE = re.compile(
    r"(?<![\w:.-])([\w:.-]{1,40})[ \t\r\n]{0,4}=[ \t\r\n]{0,4}\\{0,2}([\"'])([^\"'\\]{0,900})\\{0,2}\2"
)
_NAMING, _HOLDING = frozenset({"key", "name", "id", "property", "k"}), frozenset({"value", "val", "v", "default"})
_ELEMENT = re.compile(r"<key>[ \t]{0,4}([\w.-]{2,60})[ \t]{0,4}</key>\s{0,40}<string>(?P<s>[^<\n]{4,600})</string>")
_VARIABLE = re.compile(
    r"\bvariable[ \t]+\\{0,2}\"(?P<name>[\w-]{2,80})\\{0,2}\"[ \t]{0,4}\{(?P<body>[^{}]{0,1500})\bdefault[ \t]{0,20}=[ \t]{0,8}"
    r"\\{0,2}\"(?P<s>[^\"\n\\]{4,600})\\{0,2}\""
)
_TYPED = re.compile(
    r"(?<![\w.])(?P<name>[A-Za-z_]\w{2,60})[ \t]?:[ \t]{0,4}[&*]{0,2}(?:'static )?[A-Za-z][\w.<>|\[\]? ]{0,40}?[ \t]{0,4}="
    r"[ \t]{0,4}[\"'`](?P<s>[^\"'`\n]{6,600})[\"'`]"
)
_USERINFO = re.compile(
    r"://(?P<user>[^\s/:@\"'`<>\\]{0,100}):(?P<s>(?!\d{1,5}(?:[/?#]|$))[^\s\"'`<>\\]{1,300})"
    r"@(?=(?:[\w-]{1,63}\.){0,6}[\w-]{1,63}(?::\d{1,5})?(?:[/?#,\s\"'`<>)\\]|$))"
)
_ORACLE = re.compile(r"jdbc:oracle:\w{2,6}:[\w$]{1,40}/(?P<s>[^\s\"'`<>@]{3,80})@")
_PIPED = re.compile(
    r"\b(?:echo|printf)[ \t]+(?:-[ne][ \t]+|[\"']?%s(?:\\n)?[\"']?[ \t]+)?[\"']?(?P<s>[^\s\"'|]{6,400})[\"']?[ \t]{0,4}\|"
    r"(?=[^\n|]{0,80}(?:login|password-stdin|passwd|chpasswd|sudo[ \t]+-S|secret (?:set|put|create)))"
)
_LOGIN = re.compile(
    r"\b(?:wandb|cargo|huggingface-cli|hf auth|vercel|heroku|vault|npm|sentry-cli|pulumi|doppler)[ \t]+login(?:[ \t]+-[\w-]+){0,3}"
    r"[ \t]+[\"']?(?P<s>[\w.=-]{20,400})"
)
_SETTING = re.compile(
    r"(?<![A-Za-z0-9])(?!(?:[A-Z0-9]{1,30}_){0,5}(?:PUBLIC|CACHE|PRIMARY|FOREIGN|SORT|PARTITION|REDIS|S3|OBJECT|ROW)_)"
    r"[A-Z][A-Z0-9]{0,30}(?:_[A-Z0-9]{1,30}){0,6}_(?:KEY|PAT|TOKEN|SECRET|CREDENTIALS?)"
    r"(?:[\"']?[ \t]{0,4}[=:][ \t]{0,4}|[ \t]+)[\"']?(?P<s>[A-Za-z0-9_+/=.~-]{20,600})"
)
_CALLED = re.compile(
    r"(?:Client|Bot|run|login|auth|connect|configure|authenticate|set_?api_?key|set_?token)\([ \t]{0,4}[\"'](?P<s>[A-Za-z0-9_-]{28,200})[\"']",
    re.IGNORECASE,
)
_HASH = re.compile(r"0x[0-9a-fA-F]{40}|(?:sha\d{1,3}|md5)[-:=].*|\d{4}-\d\d-\d\dT.*")
_SECURE = re.compile(r"ConvertTo-SecureString[ \t]+(?:-string[ \t]+)?[\"'](?P<s>[^\"'\n]{4,400})[\"']", re.I)
_FIELD = re.compile(
    r"buildConfigField\b[^\n]{0,60}?\"(?P<name>\w{2,60})\"[ \t]{0,4},[ \t]{0,4}[\"'](?:\\?[\"'])?(?P<s>[^\"'\n\\]{4,400})"
)
_QUERY = re.compile(
    r"[?&](?:X-Amz-Signature|X-Amz-Security-Token|X-Goog-Signature|Signature|sig|code|key|secret|token)="
    r"(?P<s>[A-Za-z0-9_%+/=.~-]{32,3000})",
    re.IGNORECASE,
)

_AWS_ID = re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{12,16}")
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=_-])")
_AZURE = re.compile(r"azure|devops|vsts|visualstudio|\bado\b", re.IGNORECASE)
_AZURE_TOKEN = re.compile(r"(?<![A-Za-z0-9])[a-z0-9]{52}(?![A-Za-z0-9])")
NEAR = 240
"""Characters around a name or an id in which its secret is looked for."""

_PEM_STARTS = ("LS0tLS1CRUdJTi", "0tLS0tQkVHSU4g", "tLS0tLUJFR0lOI", "LS0tLSBCRUdJTi")
_BASE64_RUN = re.compile(r"[A-Za-z0-9+/]{1,40000}={0,2}")
_BASE64_NEXT = re.compile(
    r"(?:\\?\r?\n|\\r\\n|\\n)[ \t]{0,40}(?P<run>[A-Za-z0-9+/]{16,200}={0,2}|[A-Za-z0-9+/]{1,15}={0,2}(?=\s|$|\\n|\"))"
)

_CELL_ENDS = ",;\t"
_COLUMN_WORDS = ("pass", "secret", "token", "key", "credential", "pwd", "auth")
_NO_HEADER = re.compile(r"[(){}\[\]=<>:#]|\A[^,;\t]*\Z")
MAX_ROWS = 1_000


def find_structured(ground: CandidateText) -> Iterator[Hit]:
    """Yield secrets that their structure names. Takes time linear in the text."""
    text, lower = ground.text, ground.lower
    for at in _starts(lower):
        if (found := _SET.match(text, at)) is not None:
            yield from _set(found)
    for holds, pattern, hits in _STRUCTURES:
        if any(each in lower for each in holds):
            for found in pattern.finditer(text):
                yield from hits(found)
    if ground.windows:
        for holds, pattern, hits in _LONG:
            if any(each in ground.joined_lower for each in holds):
                for found in ground.find(pattern):
                    yield from hits(found)
        if "akia" in ground.joined_lower or "asia" in ground.joined_lower:
            yield from _near(text, _AWS_ID, _AWS_SECRET, "aws-secret")
        if _AZURE_TOKEN.search(ground.joined) is not None and _AZURE.search(text) is not None:
            yield from _near(text, _AZURE, _AZURE_TOKEN, "azure-devops-token")
        if any(start in ground.joined for start in _PEM_STARTS):
            yield from _encoded_keys(text)
    if any(sign in text for sign in _CELL_ENDS) and any(word in lower for word in _COLUMN_WORDS):
        yield from _columns(text)


def _starts(lower: str) -> Iterator[int]:
    """Yield where a command may begin that sets a variable."""
    for start in _SET_STARTS:
        at = lower.find(start)
        while at >= 0:
            yield at
            at = lower.find(start, at + len(start))


def _named(kind: str | None = None, *, strong: bool = True) -> Callable[[re.Match[str]], Iterator[Hit]]:
    def hits(found: re.Match[str]) -> Iterator[Hit]:
        said = kind or names_credential(found["name"].replace(":_", "_").rpartition("/")[2].lstrip(":"))
        if said is not None and is_secret(found["s"], said, quoted=True, strong=strong):
            yield *found.span("s"), said

    return hits


def _valued(kind: str, fits: Callable[[str], bool]) -> Callable[[re.Match[str]], Iterator[Hit]]:
    def hits(found: re.Match[str]) -> Iterator[Hit]:
        if fits(found["s"]):
            yield *found.span("s"), kind

    return hits


def _attributes(found: re.Match[str]) -> Iterator[Hit]:
    """Yield the value of an element whose other attribute names a credential."""
    kind, values = None, list[tuple[int, int, str]]()
    for one in _ATTRIBUTE.finditer(found["all"]):
        name = one[1].lower().rpartition(":")[2]
        if name in _NAMING:
            kind = kind or names_credential(one[3])
        elif name in _HOLDING:
            values.append((*one.span(3), one[3]))
    for start, end, said in values:
        if kind is not None and is_secret(said, kind, quoted=True, strong=True):
            yield found.start("all") + start, found.start("all") + end, kind


def _element(found: re.Match[str]) -> Iterator[Hit]:
    kind = names_credential(found[1])
    if kind is not None and is_secret(found["s"], kind, quoted=True, strong=True):
        yield *found.span("s"), kind


def _is_userinfo(said: str) -> bool:
    return ("@" in said or "/" in said) and is_opaque(said) and "://" not in said


def _is_mixed(said: str) -> bool:
    return is_random(said) and any(map(str.islower, said)) and any(map(str.isupper, said)) and is_password(said)


def _is_setting(said: str) -> bool:
    return (
        is_random(said)
        and is_opaque(said)
        and not _HASH.fullmatch(said)
        and sum(map(str.isdigit, said)) * 12 >= len(said)
    )


def _near(text: str, marks: re.Pattern[str], values: re.Pattern[str], kind: str) -> Iterator[Hit]:
    """Yield the values that stand near a mark; every character is looked at once."""
    done = 0
    for mark in marks.finditer(text):
        start, end = max(done, mark.start() - NEAR), mark.end() + NEAR
        for value in values.finditer(text, start, min(end, len(text))):
            if value.end() < end or end >= len(text):
                done = value.end()
                if is_random(value[0]):
                    yield *value.span(), kind
        done = max(done, mark.end())


def _encoded_keys(text: str) -> Iterator[Hit]:
    """Yield private keys that are encoded once more in base64, in one line or in several."""
    seen = 0
    for found in _BASE64_RUN.finditer(text):
        start, end = found.span()
        if start < seen or not found[0].startswith(_PEM_STARTS):
            continue
        rows = [found[0]]
        while len(rows) < MAX_ROWS and (row := _BASE64_NEXT.match(text, end)) is not None:
            rows.append(row["run"])
            end = row.end("run")
        seen = end
        if _holds_key("".join(rows)):
            yield start, end, "private-key"


def _holds_key(said: str) -> bool:
    said = said.rstrip("=")[:400]
    for cut in range(4):
        part = said[cut:]
        try:
            if b"PRIVATE KEY" in base64.b64decode(part[: len(part) // 4 * 4]):
                return True
        except (binascii.Error, ValueError):
            continue
    return False


def _columns(text: str) -> Iterator[Hit]:
    """Yield the values of a table of separated cells whose first line names a credential."""
    names: list[str | None] = []
    separator, at, rows = "", 0, 0
    for line in text.splitlines(keepends=True) if "\n" in text else ():
        cells = line.rstrip("\r\n").split(separator) if separator else []
        if separator and len(cells) == len(names) and rows < MAX_ROWS:
            rows += 1
            yield from _row(cells, names, at)
        else:
            separator, names = _header(line.rstrip("\r\n"))
            rows = 0
        at += len(line)


def _header(line: str) -> tuple[str, list[str | None]]:
    """Return the separator and the type of each column, ('', []) for a line that is no header with a credential."""
    if len(line) > 2_000 or _NO_HEADER.search(line) is not None:
        return "", []
    separator = next((sign for sign in _CELL_ENDS if sign in line), "")
    if any(not cell.strip() for cell in line.split(separator)):
        return "", []
    names = [
        names_credential(cell.strip(" \"'").replace(" ", "_")) if len(cell) <= 40 else None
        for cell in line.split(separator)
    ]
    return (separator, names) if any(names) else ("", [])


def _row(cells: list[str], names: list[str | None], at: int) -> Iterator[Hit]:
    for cell, kind in zip(cells, names, strict=True):
        said = cell.strip().strip("\"'")
        if kind is not None and is_opaque(said) and is_secret(said, kind, quoted=True, strong=True):
            start = at + cell.index(said)
            yield start, start + len(said), kind
        at += len(cell) + 1


_STRUCTURES: tuple[tuple[tuple[str, ...], re.Pattern[str], Callable[[re.Match[str]], Iterator[Hit]]], ...] = (
    (("value=", "value =", "val=", "v=", "default="), _ATTRIBUTES, _attributes),
    (("<key>",), _ELEMENT, _element),
    (("variable",), _VARIABLE, _named()),
    (('= "', '="', "= '", "='", "= `"), _TYPED, _named(strong=False)),
    (("://",), _USERINFO, _valued("url-password", _is_userinfo)),
    (("convertto-securestring",), _SECURE, _valued("password", is_password)),
    (("buildconfigfield",), _FIELD, _named()),
    (("jdbc:oracle",), _ORACLE, _valued("password", is_password)),
    (("echo", "printf"), _PIPED, _valued("password", is_password)),
    ((" login ",), _LOGIN, _valued("token", _is_setting)),
)
"""What a text must hold, in lower case, the structure, and the secrets of one match."""

_set = _named()

_LONG: tuple[tuple[tuple[str, ...], re.Pattern[str], Callable[[re.Match[str]], Iterator[Hit]]], ...] = (
    (("_key", "_pat", "_token", "_secret", "_cred"), _SETTING, _valued("api-key", _is_setting)),
    (
        ("client(", "bot(", "run(", "login(", "auth(", "connect(", "configure(", "authenticate(", "key(", "token("),
        _CALLED,
        _valued("token", _is_mixed),
    ),
    (("?", "&"), _QUERY, _valued("signature", _is_setting)),
)
"""The same of secrets that are long: only the ground is looked at."""
