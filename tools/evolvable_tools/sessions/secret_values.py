"""What a value has to be like to be a secret: no reference to one, no placeholder, no name of a type, no mask."""

import base64
import binascii
import re


def words_of(text: str) -> frozenset[str]:
    """Returns the words of a text, as a set."""
    return frozenset(text.split())


_REFERENCE = re.compile(
    r"(?:\$|%[A-Za-z_]+%|\{|<|@|&|\*|!|\(|\[|os\.|process\.|env[.\[(]|ENV\[|config[.\[]|settings[.\[]|self\.|this\.|args\.|"
    r"options\.|req\.|request\.|secrets?\.|vault[:/]|op://|arn:|ssm:|file:|https?://|\./|~/|/(?:[\w.-]+/)|\\[nrt]|\.\.\.)"
)
_IDENTIFIER_PATH = re.compile(r"[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*)+(?:\(.*)?")

_PLACEHOLDERS = words_of(
    "your my our the some any new old user db enter insert change changeme replace put add set use test example "
    "sample dummy fake placeholder redacted secret password passwd pass pwd token key api access value here me this "
    "it with actual real x xx xxx xxxx xxxxx xxxxxx string str bytes int bool true false none null nil undefined "
    "required optional default hidden passwort name of and or in to for is id type text basic bearer oauth auth "
    "client app env var file goes variable secrets tokens keys passwords mypassword mysecret yourpassword yoursecret"
)
_WORD = re.compile(r"[A-Za-z]+|\d+")
_NAME_OF_ONE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|0x[0-9a-fA-F]{40}|\d{4}-\d\d-\d\dT[\d:.]+Z?")
_MASKED = re.compile(r"(.)\1*|[*•x.…#-]+|.{0,8}(?:\*{3,}|•{3,}|\.{3}|…).{0,8}", re.IGNORECASE)
_TYPE_NAME = re.compile(r"[A-Z]?[a-z]+(?:[A-Z][a-z]+)*|[a-z_]+|[A-Z][A-Z_]*")


def is_secret(said: str, kind: str, *, quoted: bool, strong: bool) -> bool:
    """Returns whether a value is one to be hidden: no reference to one, no placeholder, no type, no word of a sentence.

    strong: where it stands nothing but a value can stand, as in an environment or behind an option.
    """
    if "[redacted:" in said or len(said) < (4 if kind == "password" else 8):
        return False
    if _REFERENCE.match(said) or _is_placeholder(said) or _MASKED.fullmatch(said[:200]):
        return False
    if _NAME_OF_ONE.fullmatch(said[:100]) or "()" in said:
        return False
    spaces = said.count(" ")
    digit = any(map(str.isdigit, said))
    letter = any(map(str.isalpha, said))
    if spaces:
        return quoted and kind == "password" and digit and spaces <= 8 and len(said) <= 80
    if _IDENTIFIER_PATH.fullmatch(said[:200]) or (not quoted and ("(" in said or "[" in said)):
        return False
    if kind == "password":
        if quoted or strong:
            return len(said) >= 6 or digit
        return len(said) >= 6 and ((digit and letter) or not _TYPE_NAME.fullmatch(said)) and not said.isdigit()
    if digit and letter:
        return len(said) >= (8 if strong else 10 if quoted else 12) and len(set(said)) >= 6
    return (
        len(said) >= 20
        and len(set(said)) >= 10
        and not _TYPE_NAME.fullmatch(said)
        and letter
        and "-" not in said
        and "/" not in said[:-1]
    )


def _is_placeholder(said: str) -> bool:
    """Returns whether a value is made of the words that stand for one, with a number of two digits at most."""
    words = _WORD.findall(said[:100])
    return all(word.lower() in _PLACEHOLDERS or (word.isdigit() and len(word) <= 2) for word in words)


def _is_value(said: str) -> bool:
    return not (_REFERENCE.match(said) or _is_placeholder(said) or _MASKED.fullmatch(said[:200]))


def is_password(said: str) -> bool:
    """Returns whether a value that stands where a password does is one."""
    return _is_value(said) and "[redacted:" not in said


def is_opaque(said: str) -> bool:
    """Returns whether a value is one, and has letters and digits."""
    return is_password(said) and any(map(str.isdigit, said)) and any(map(str.isalpha, said))


def is_credential(said: str) -> bool:
    """Returns whether a value is one with letters and digits, or a long one that is no name."""
    return is_opaque(said) or (is_password(said) and len(said) >= 20 and _TYPE_NAME.fullmatch(said[:200]) is None)


def is_pair(said: str) -> bool:
    """Returns whether a text is a user and a password in base64."""
    try:
        pair = base64.b64decode(said + "=" * (-len(said) % 4), validate=True).decode()
        return ":" in pair and pair.isprintable()
    except (binascii.Error, ValueError):
        return False
