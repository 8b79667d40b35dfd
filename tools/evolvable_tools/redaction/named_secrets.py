"""Secrets that a name or a place marks: an assignment, an option, a header, an address, a cookie, a
command.

A value that is a reference, a placeholder, the name of a type or a mask is no secret. The words and
the places are data, in `named_secrets.toml`.
"""

import base64
import binascii
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evolvable_tools.redaction.token_detection import Hit, occurrences

_TABLE = tomllib.loads(Path(__file__).with_name("named_secrets.toml").read_text(encoding="utf-8"))
_PATTERNS = {
    name: re.compile("|".join(alternatives)) for name, alternatives in _TABLE["patterns"].items()
}

_PLACEHOLDERS = frozenset(_TABLE["placeholders"].split())


def is_secret(value: str, kind: str, *, quoted: bool, strong: bool) -> bool:
    """Return whether a value is one to be hidden: no reference, no placeholder, no type, no word of
    a sentence.

    strong: its place can hold nothing but a value, as in an environment or after an option.
    """
    # A person's password may be short; what an issuer makes is not. A value with a mark was
    # redacted before.
    if "[redacted:" in value or len(value) < (4 if kind == "password" else 8):
        return False
    if not _is_value(value) or _PATTERNS["name_of_one"].fullmatch(value[:100]) or "()" in value:
        return False
    spaces = value.count(" ")
    has_digit = any(map(str.isdigit, value))
    if spaces:
        # A password in quotes may be a phrase; a longer text is a sentence.
        return quoted and kind == "password" and has_digit and spaces <= 8 and len(value) <= 80
    # Parts of a program, such as `config.secrets.key` or a call, lead to a secret and are none.
    if _PATTERNS["identifier_path"].fullmatch(value[:200]):
        return False
    if not quoted and ("(" in value or "[" in value):
        return False
    if kind == "password":
        return _is_password_like(value, has_digit, is_certain_place=quoted or strong)
    has_letter = any(map(str.isalpha, value))
    if has_digit and has_letter:
        # The less its place says, the longer a value has to be.
        unmarked_least = 10 if quoted else 12
        return len(value) >= (8 if strong else unmarked_least) and len(set(value)) >= 6
    return has_letter and _is_long_run(value)


def _is_password_like(value: str, has_digit: bool, *, is_certain_place: bool) -> bool:
    """Return whether a value without spaces can be a password in its place."""
    if is_certain_place:
        return len(value) >= 6 or has_digit
    if len(value) < 6 or value.isdigit():
        return False
    is_mixed = has_digit and any(map(str.isalpha, value))
    return is_mixed or not _PATTERNS["type_name"].fullmatch(value)


def _is_long_run(value: str) -> bool:
    """Return whether a value is a long run of different characters, and no name, path or hyphenated
    word.
    """
    if len(value) < 20 or len(set(value)) < 10 or "-" in value or "/" in value[:-1]:
        return False
    return not _PATTERNS["type_name"].fullmatch(value)


def _is_placeholder(value: str) -> bool:
    """Return whether a value consists of placeholder words, with a number of at most two digits."""
    words = _PATTERNS["word"].findall(value[:100])
    return all(
        word.lower() in _PLACEHOLDERS or (word.isdigit() and len(word) <= 2) for word in words
    )


def _is_value(value: str) -> bool:
    masked = _PATTERNS["masked"].fullmatch(value[:200])
    return not (masked or _PATTERNS["reference"].match(value) or _is_placeholder(value))


def is_password(value: str) -> bool:
    """Return whether a value in the place of a password is one."""
    return _is_value(value) and "[redacted:" not in value


def is_opaque(value: str) -> bool:
    """Return whether a value is one, and has letters and digits."""
    return is_password(value) and any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def is_credential(value: str) -> bool:
    """Return whether a value is one with letters and digits, or a long one that is no name."""
    return is_opaque(value) or (
        is_password(value)
        and len(value) >= 20
        and _PATTERNS["type_name"].fullmatch(value[:200]) is None
    )


def is_pair(encoded: str) -> bool:
    """Return whether a text is a user and a password in base64."""
    padded = encoded + "=" * (-len(encoded) % 4)
    try:
        pair = base64.b64decode(padded, validate=True).decode()
        return ":" in pair and pair.isprintable()
    except (binascii.Error, ValueError):
        return False


# A quotation mark; JSON within JSON puts up to three backslashes before it.
OPEN = r"\\{0,3}[\"'`]"

# Between a name and its value: the end of quotes or of an element, a sign, the mark of a block in
# YAML, bytes in Python.
_OPERATOR = re.compile(
    rf"(?P<close>{OPEN}\]?|\]|</?)?[ \t]{{0,8}}"
    rf"(?P<sign>:=|=>|==?|:(?!:)|,(?=[ \t]{{0,4}}\\{{0,3}}[\"'])|>)[ \t]{{0,8}}"
    r"(?:[|>][+-]?[ \t]{0,8}\r?\n[ \t]{1,20})?(?:b(?=[\"']))?"
)


_HARMLESS = frozenset(_TABLE["harmless"].split())
"""Words at the end of a name that make it the name of something beside the credential."""

# A word comes before the words that it begins with: of one place `_find_words` takes the first.
_PASSWORDS = ("passw", "passphrase", "passcode", "pass", "pwd", "psw")
_WORDS = (*_PASSWORDS, "secret", "token", "key", "credential", "auth", "sig", "jwt", "pin")

NAME_WORDS = (*_WORDS, "cookie")
"""Words of which a name has one where `names_credential` returns a type for it; `authorization` has
`auth`.
"""


def find_assigned(text: str, lower: str) -> Iterator[Hit]:
    """Yield the values after a credential's name: in programs, environments, JSON, YAML, XML,
    addresses, options.
    """
    value_end = 0
    words = [word for word in _WORDS if word in lower]
    for at, word in sorted(_find_words(lower, words)) if words else ():
        # A name within the value that was just found names nothing.
        if at < value_end:
            continue
        end = at + len(word)
        name_match = _PATTERNS["name"].match(text, end)
        name_end = name_match.end() if name_match else end
        is_assigned = _PATTERNS["assigns"].search(text, name_end, name_end + 14) is not None
        # Neither a sign of an assignment behind the name nor an option's hyphen before it: most
        # places end here.
        if not is_assigned and "-" not in text[max(0, at - 20) : at]:
            continue
        before = _PATTERNS["before"].search(text, max(0, at - 40), at)
        left = before[0] if before else ""
        kind = _classify_name(word, left, text[end:name_end])
        # "bypass", "spin": the word is only the end of another one.
        is_inside = word in ("pass", "pin", "psw") and left[-1:].isalpha() and text[at].islower()
        if kind is None or is_inside:
            continue
        hit = _find_value(text, kind, at - len(left), left, text[at:name_end], name_end)
        if hit is not None:
            value_end = hit[1]
            yield hit


def _classify_name(word: str, left: str, rest: str) -> str | None:
    """Return the type of what a name names, None where it is no credential's."""
    rest = rest.rstrip(".-")
    if word in _PASSWORDS:
        # "passenger", "pinned": the word is only the beginning of another one.
        if word in ("pass", "psw", "pin") and rest and rest[:1] not in "_-0123456789":
            return None
        kind = "password"
    elif word == "key":
        # A key is a credential behind words such as `api`, or as a parameter of an address;
        # "keyboard" is another word.
        is_marked = left.endswith(("?", "&")) or _PATTERNS["key_before"].search(left) is not None
        if not is_marked or rest[:1].isalpha():
            return None
        kind = "api-key"
    elif word == "auth":
        if rest or not (left in ("", "_", "-", "--") or left.endswith(("_", "-", "."))):
            return None
        kind = "credential"
    elif word in ("sig", "jwt", "pin"):
        if rest or (left and left[-1:].isalnum()):
            return None
        kind = {"sig": "signature", "jwt": "token", "pin": "password"}[word]
    else:
        kind = word
    # `tokens` mostly names a number of them.
    if word == "token" and re.match(r"s(?:$|[_-])", rest):
        return None
    # `passw` is found in "password" too, whose other half is no word of its own.
    last = _PATTERNS["last_word"].search(rest.removeprefix("ord") if word == "passw" else rest)
    return None if last is not None and last[0].lower() in _HARMLESS else kind


def _find_value(
    text: str, kind: str, start: int, left: str, name: str, name_end: int
) -> Hit | None:
    """Return the value after a credential's name, None where there is none to be hidden.

    start, name_end: where the name begins, with what is left of its word, and ends. left: the name
    before the word. name: the word and what follows it.
    """
    sign = _OPERATOR.match(text, name_end)
    begins_option = left.startswith("--") or (left.startswith("-") and kind == "password")
    # `--no-password` takes no value.
    is_option = begins_option and not left.endswith("no-")
    if sign is None and is_option and text[name_end : name_end + 1] in (" ", "\t"):
        at = name_end + 1
    elif sign is None:
        return None
    else:
        at = sign.end()
    # The place before the value decides where it ends: at the closing quote, at a bracket, or at a
    # space.
    value = _PATTERNS["value"].match(text, at)
    if value is None:
        return None
    operator, close = (sign["sign"], sign["close"]) if sign is not None else ("", None)
    if operator == "," and not _is_argument(text, start, close):
        return None
    group = next(g for g in ("c", "a", "b", "d", "u") if value[g] is not None)
    in_address = text[start - 1 : start] in ("?", "&") or left[:1] in ("?", "&")
    begin, end = value.span(group)
    if group == "u":
        end = _value_end(text, begin, end, in_address)
    secret = text[begin:end]
    # The word `pass` alone is common in reports of tests, so its value has to look like a secret.
    is_pass = name[:5].lower().rstrip(":= ") == "pass" and not left and group == "u"
    if is_pass and not is_opaque(secret):
        return None
    is_environment = operator == "=" and not close and name.upper() == name
    strong = is_option or in_address or is_environment or operator == ">"
    if not is_secret(secret, kind, quoted=group != "u", strong=strong):
        return None
    return begin, end, kind


def _is_argument(text: str, start: int, close: str | None) -> bool:
    """Return whether a name in quotes is the first argument of a call, whose second is
    its value.
    """
    quoted = text[max(0, start - 8) : start].rstrip("#.[\\\"'` ")
    return close is not None and quoted.endswith("(")


def _value_end(text: str, begin: int, end: int, in_address: bool) -> int:
    """Return where a value without quotes ends: before what closes it, or before the next
    parameter.
    """
    value = text[begin:end]
    # Escapes of JSON and programs end a value as the characters do that they mean.
    for sign in ("\\n", "\\r", "\\t", '\\"'):
        value = value.partition(sign)[0]
    if in_address:
        value = re.split(r"[&#]", value, maxsplit=1)[0]
    following = re.search(r"[;,&][A-Za-z][\w ]{1,30}=", value)
    value = value[: following.start()] if following else value
    # Punctuation at the end belongs to the sentence or the program around it.
    return begin + len(value.rstrip(",;)]}\\."))


def _find_words(lower: str, words: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the places of the words; of those that begin at one place the longest."""
    words_by_place: dict[int, str] = {}
    for word in words:
        for at in occurrences(lower, word):
            words_by_place.setdefault(at, word)
    yield from words_by_place.items()


def names_credential(name: str) -> str | None:
    """Return the type of secret that a key of an object names, None where it names none."""
    lower = name.lower()
    for at, word in sorted(_find_words(lower, _WORDS)):
        left, rest = name[max(0, at - 40) : at], name[at + len(word) :]
        kind = _classify_name(word, left, rest)
        if kind is not None:
            return kind
    if lower in ("authorization", "proxy-authorization"):
        return "authorization"
    return "cookie" if "cookie" in lower else None


_FITS = {"credential": is_credential, "opaque": is_opaque, "pair": is_pair, "password": is_password}


@dataclass(frozen=True)
class _Place:
    """A row of [places] in named_secrets.toml."""

    source: str
    kind: str
    fits: Callable[[str], bool]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(
            self.source.replace("{open}", OPEN).replace("{password}", r"(?P<s>[^\s\"'\\]{3,200})")
        )


_PLACES = tuple(
    (anchor, _Place(row["pattern"], row["kind"], _FITS[row["fits"]]))
    for row in _TABLE["places"]
    for anchor in row["anchors"]
)


def find_placed(text: str, lower: str) -> Iterator[Hit]:
    """Yield secrets in headers, cookies, addresses, files of logins and the options of well-known
    commands.
    """
    for anchor, place in _PLACES:
        # `in` is faster than `find`, and most texts have none of the anchors.
        at = lower.find(anchor) if anchor in lower else -1
        while at >= 0:
            match = place.pattern.match(text, at)
            if match is not None and place.fits(match["s"]):
                yield *match.span("s"), place.kind
            at = lower.find(anchor, match.end() if match else at + len(anchor))
    # A line of .pgpass has no name, so its usual ports are looked for.
    if ":5432:" in text or ":*:" in text or ":6432:" in text:
        for match in _PATTERNS["pgpass"].finditer(text):
            if is_password(match["s"]):
                yield *match.span("s"), "password"
