"""Secrets that are known by the name of one before them: in programs, environments, JSON, YAML, XML, options."""

import re
from collections.abc import Iterable, Iterator

from evolvable_tools.sessions.secret_values import is_opaque, is_secret, words_of

Hit = tuple[int, int, str]
"""Where a secret begins and ends, and of what type it is."""
OPEN = r"\\{0,3}[\"'`]"

_OPERATOR = re.compile(
    rf"(?P<close>{OPEN}\]?|\]|</?)?[ \t]{{0,8}}"
    rf"(?P<sign>:=|=>|==?|:(?!:)|,(?=[ \t]{{0,4}}\\{{0,3}}[\"'])|>)[ \t]{{0,8}}"
    r"(?:[|>][+-]?[ \t]{0,8}\r?\n[ \t]{1,20})?(?:b(?=[\"']))?"
)

_VALUE = re.compile(
    r"(?P<open>\\{1,3}[\"'])(?P<c>(?:(?!\\{1,3}[\"'])[^\n]){0,600})"
    r"|\"(?P<a>(?:[^\"\\\n]|\\[^\n]){0,600})|'(?P<b>(?:[^'\\\n]|\\[^\n]){0,600})|`(?P<d>[^`\n]{0,600})"
    r"|(?P<u>[^\s\"'`<>]{1,600})"
)
_ASSIGNS = re.compile(r"[:=,>]")
_NAME = re.compile(r"[\w.-]{0,40}")
_BEFORE = re.compile(r"[\w.$-]{0,40}\Z")

_HARMLESS = words_of(
    "name names file files filename path paths dir url urls uri type types count counts limit limits length len size "
    "ttl expiry expires expiration field fields policy env prefix pattern regex label hint placeholder input form "
    "reset manager min max budget usage used version rotation store provider ref refs rule rules error errors "
    "required enabled kind mode ize izer ized ization izers ary ly ed ing less endpoint algorithm strategy scheme "
    "bucket arn region time at date var address addresses contract symbol"
)
"""Words at the end of a name that make it the name of something beside the credential."""
_LAST_WORD = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)\Z")

_KEY_BEFORE = re.compile(
    r"(?:api|secret|access|private|account|encrypt(?:ion)?|sign(?:ing|ature)?|client|auth|master|service|role|storage|app|"
    r"session|shared\w{0,8}|subscription|admin|write|read|deploy|ingest|license|hmac|cipher|aes|jwt|webhook|anon|fernet|"
    r"consumer|root|project|openai|anthropic|functions|x-functions)[_. -]?\Z",
    re.IGNORECASE,
)
_PASSWORDS = ("passw", "passphrase", "passcode", "pass", "pwd", "psw")
_WORDS = (*_PASSWORDS, "secret", "token", "key", "credential", "auth", "sig", "jwt", "pin")


def assigned(text: str, lower: str) -> Iterator[Hit]:
    """Yields what stands behind a credential's name: in programs, environments, JSON, YAML, XML, addresses, options."""
    seen = 0
    words = [word for word in _WORDS if word in lower]
    for at, word in sorted(_positions(lower, words)) if words else ():
        if at < seen:
            continue
        end = at + len(word)
        named = _NAME.match(text, end)
        name_end = named.end() if named else end
        if not (_ASSIGNS.search(text, name_end, name_end + 14) or "-" in text[max(0, at - 20) : at]):
            continue
        before = _BEFORE.search(text, max(0, at - 40), at)
        left = before[0] if before else ""
        kind = _kind(word, left, text[end:name_end])
        if kind is None or (word in ("pass", "pin", "psw") and text[at].islower() and left[-1:].isalpha()):
            continue
        hit = _behind(text, kind, at - len(left), left, text[at:name_end], name_end)
        if hit is not None:
            seen = hit[1]
            yield hit


def _kind(word: str, left: str, rest: str) -> str | None:
    """Returns the type of what a name names, None where it is no credential's."""
    rest = rest.rstrip(".-")
    if word in _PASSWORDS:
        if word in ("pass", "psw", "pin") and rest and rest[:1] not in "_-0123456789":
            return None
        kind = "password"
    elif word == "key":
        if not (_KEY_BEFORE.search(left) or left.endswith(("?", "&"))) or rest[:1].isalpha():
            return None
        kind = "api-key"
    elif word == "auth":
        if rest or not (left in ("", "_", "-", "--") or left.endswith(("_", "-", "."))):
            return None
        kind = "credential"
    elif word in ("sig", "jwt", "pin"):
        if rest or (left and left[-1:].isalnum()):
            return None
        kind = "signature" if word == "sig" else "token" if word == "jwt" else "password"
    else:
        kind = word
    if word == "token" and re.match(r"s(?:$|[_-])", rest):
        return None
    last = _LAST_WORD.search(rest.removeprefix("ord") if word == "passw" else rest)
    return None if last is not None and last[0].lower() in _HARMLESS else kind


def _behind(text: str, kind: str, start: int, left: str, name: str, name_end: int) -> Hit | None:
    sign = _OPERATOR.match(text, name_end)
    option = (left.startswith("--") or (left.startswith("-") and kind == "password")) and not left.endswith("no-")
    if sign is None and option and text[name_end : name_end + 1] in (" ", "\t"):
        at = name_end + 1
    elif sign is None:
        return None
    else:
        at = sign.end()
    value = _VALUE.match(text, at)
    if value is None or (sign is not None and sign["sign"] == "," and not _is_argument(text, start, sign["close"])):
        return None
    group = next(g for g in ("c", "a", "b", "d", "u") if value[g] is not None)
    in_address = text[start - 1 : start] in ("?", "&") or left[:1] in ("?", "&")
    begin, end = value.span(group)
    if group == "u":
        end = _trimmed(text, begin, end, in_address)
    said = text[begin:end]
    environment = sign is not None and sign["sign"] == "=" and not sign["close"] and name.upper() == name
    if name[:5].lower().rstrip(":= ") == "pass" and not left and group == "u" and not is_opaque(said):
        return None
    strong = option or in_address or environment or (sign is not None and sign["sign"] == ">")
    if not is_secret(said, kind, quoted=group != "u", strong=strong):
        return None
    return begin, end, kind


def _is_argument(text: str, start: int, close: str | None) -> bool:
    """Returns whether a name in quotes is the first argument of a call, whose second is its value."""
    quoted = text[max(0, start - 8) : start].rstrip("#.[\\\"'` ")
    return close is not None and quoted.endswith("(")


def _trimmed(text: str, begin: int, end: int, in_address: bool) -> int:
    """Returns where a value without quotes ends: before what closes it, or before the next parameter."""
    said = text[begin:end]
    for sign in ("\\n", "\\r", "\\t", '\\"'):
        said = said.partition(sign)[0]
    if in_address:
        said = re.split(r"[&#]", said, maxsplit=1)[0]
    following = re.search(r"[;,&][A-Za-z][\w ]{1,30}=", said)
    said = said[: following.start()] if following else said
    return begin + len(said.rstrip(",;)]}\\."))


def _positions(lower: str, words: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yields where the words stand; of those that begin at one place the longest."""
    taken: dict[int, str] = {}
    for word in words:
        at = lower.find(word)
        while at >= 0:
            taken.setdefault(at, word)
            at = lower.find(word, at + len(word))
    yield from taken.items()


def names_credential(name: str) -> str | None:
    """Returns the type of secret that a key of an object names, None where it names none."""
    lower = name.lower()
    for at, word in sorted(_positions(lower, _WORDS)):
        kind = _kind(word, name[max(0, at - 40) : at], name[at + len(word) :])
        if kind is not None:
            return kind
    return (
        "authorization"
        if lower in ("authorization", "proxy-authorization")
        else "cookie"
        if "cookie" in lower
        else None
    )
