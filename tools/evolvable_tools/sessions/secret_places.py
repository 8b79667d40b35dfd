"""Secrets that are known by where they stand: in a header, an address, a cookie, a file of logins, a command."""

import re
from collections.abc import Callable, Iterator

from evolvable_tools.sessions.secret_names import OPEN, Hit
from evolvable_tools.sessions.secret_values import is_credential, is_opaque, is_pair, is_password

_SCHEME = r"(?:[a-z][a-z0-9-]{1,24}[ \t]+)?"

_AUTHORIZATION = re.compile(
    rf"authorization(?:{OPEN}?[ \t]*[:=]|{OPEN}[ \t]*,)[ \t]*(?:{OPEN})?[ \t]*{_SCHEME}"
    r"(?P<s>[^\s\"'`\\<>,]{6,3000})",
    re.IGNORECASE,
)
_BEARER = re.compile(r"bearer[ \t]+(?P<s>[A-Za-z0-9._~+/=-]{12,3000})", re.IGNORECASE)
_BASIC = re.compile(r"basic[ \t]+(?P<s>[A-Za-z0-9+/]{8,400}={0,2})", re.IGNORECASE)

_COOKIE = re.compile(
    rf"(?:set-)?cookie2?{OPEN}?[ \t]*[:=][ \t]*(?:{OPEN})?(?P<s>[^\n\"'`\\<>]{{0,40}}=[^\n\"'`\\<>]{{6,6000}})",
    re.IGNORECASE,
)

_HEADER = re.compile(
    rf"x-(?:[a-z-]{{0,30}}(?:key|token|secret|auth|signature)[a-z-]{{0,10}}|honeycomb-team){OPEN}?[ \t]*:[ \t]*"
    rf"(?:{OPEN})?(?P<s>[^\s\"'`\\<>]{{8,3000}})",
    re.IGNORECASE,
)
_USERINFO = re.compile(r"://(?P<user>[^\s/:@\"'`<>\\]{0,100}):(?P<s>[^\s/\"'`<>\\]{1,300})@(?=[\w\[$])")
_LOGIN = re.compile(r"login\s{1,8}\S{1,100}\s{1,8}password\s{1,8}(?P<s>[^\s\"'\\]{1,300})", re.IGNORECASE)

_PGPASS = re.compile(
    r"(?:^|(?<=\n)|(?<=\\n))[\w.*-]{1,100}:(?:\d{4,5}|\*):[\w*.-]{1,80}:[\w*.-]{1,80}:(?P<s>[^\s\"'\\:]{4,200})(?=\s|\\|$)"
)

_COMMANDS = (
    (
        "curl",
        re.compile(
            r"curl\b[^\n|;]{0,400}?[ \t](?:-u|--user|--proxy-user|-U)"
            r"[ \t=]{0,2}[\"']?[^\s:\"']{0,100}:(?P<s>[^\s\"'\\]{3,200})"
        ),
    ),
    ("wget", re.compile(r"wget\b[^\n|;]{0,400}?--(?:http-|ftp-)?password[= ](?P<s>[^\s\"'\\]{3,200})")),
    ("mysql", re.compile(r"mysql(?:dump|admin|import)?\b[^\n|;]{0,300}?[ \t]-p[\"']?(?P<s>[^\s\"'\\]{3,200})")),
    ("mariadb", re.compile(r"mariadb(?:-dump)?\b[^\n|;]{0,300}?[ \t]-p[\"']?(?P<s>[^\s\"'\\]{3,200})")),
    ("sshpass", re.compile(r"sshpass[ \t]+-p[ \t]?[\"']?(?P<s>[^\s\"'\\]{3,200})")),
    ("redis-cli", re.compile(r"redis-cli\b[^\n|;]{0,300}?[ \t]-a[ \t][\"']?(?P<s>[^\s\"'\\]{3,200})")),
    ("docker", re.compile(r"docker[ \t]+login\b[^\n|;]{0,300}?[ \t]-p[ \t][\"']?(?P<s>[^\s\"'\\]{3,200})")),
    ("mongo", re.compile(r"mongo(?:sh|dump|restore)?\b[^\n|;]{0,300}?[ \t]-p[ \t][\"']?(?P<s>[^\s\"'\\]{3,200})")),
    ("smbclient", re.compile(r"smbclient\b[^\n|;]{0,300}?[ \t]-U[ \t][\"']?[^\s%]{1,80}%(?P<s>[^\s\"'\\]{3,200})")),
    ("openssl", re.compile(r"openssl\b[^\n|;]{0,400}?[ \t]-pass(?:in|out)?[ \t]pass:(?P<s>[^\s\"'\\]{3,200})")),
    (
        "htpasswd",
        re.compile(
            r"htpasswd\b[^\n|;]{0,40}?[ \t]-\w*b\w*[ \t]\S{1,200}[ \t]\S{1,100}[ \t][\"']?(?P<s>[^\s\"'\\]{3,200})"
        ),
    ),
    (
        "ldap",
        re.compile(r"ldap(?:search|modify|add|whoami)\b[^\n|;]{0,300}?[ \t]-w[ \t][\"']?(?P<s>[^\s\"'\\]{3,200})"),
    ),
    ("zip", re.compile(r"zip\b[^\n|;]{0,100}?[ \t]-P[ \t]?[\"']?(?P<s>[^\s\"'\\]{3,200})")),
    ("7z", re.compile(r"7z\b[^\n|;]{0,100}?[ \t]-p[\"']?(?P<s>[^\s\"'\\]{4,200})")),
)

_RULES: tuple[tuple[str, re.Pattern[str], str, Callable[[str], bool]], ...] = (
    ("authorization", _AUTHORIZATION, "authorization", is_credential),
    ("bearer", _BEARER, "token", is_opaque),
    ("basic", _BASIC, "authorization", is_pair),
    ("set-cookie", _COOKIE, "cookie", is_password),
    ("cookie", _COOKIE, "cookie", is_password),
    ("x-", _HEADER, "api-key", is_opaque),
    ("://", _USERINFO, "url-password", is_password),
    ("login", _LOGIN, "password", is_password),
    *((anchor, pattern, "password", is_password) for anchor, pattern in _COMMANDS),
)


def placed(text: str, lower: str) -> Iterator[Hit]:
    """Yields secrets in headers, cookies, addresses, files of logins and the options of well-known commands."""
    for anchor, pattern, kind, fits in _RULES:
        if anchor not in lower:
            continue
        at = lower.find(anchor)
        while at >= 0:
            found = pattern.match(text, at)
            if found is not None and fits(found["s"]):
                yield found.start("s"), found.end("s"), kind
            at = lower.find(anchor, found.end() if found else at + len(anchor))
    if ":5432:" in text or ":*:" in text or ":6432:" in text:
        for found in _PGPASS.finditer(text):
            if is_password(found["s"]):
                yield found.start("s"), found.end("s"), "password"
