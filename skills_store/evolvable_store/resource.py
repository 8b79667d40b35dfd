"""The identity of a resource: its kind, its scope, its name, and the ref that writes them."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from evolvable_store.errors import UNSEEN, InvalidRef, Refused, quote_text
from evolvable_store.paths import RESERVED_NAMES

USER_SCOPE = "user"
"""The scope of every resource that belongs to no project and no plugin."""

PLUGIN = "plugin:"
"""The prefix of a plugin's scope; the plugin's name follows.

Only the plugin's own files change its resources.
"""

MAX_NAME = 64
"""Characters of a name."""

# 64 letters of three bytes each, as in Chinese or Hindi, stay within it.
MAX_NAME_BYTES = 192
"""Bytes of a name in UTF-8: with an ending it stays below the 255 of a file system."""

_PLAIN = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# Unicode categories. Upper-case letters (Lu, Lt) are missing: names are lower case.
_LETTERS = ("Ll", "Lo", "Lm", "Nd")
_MARKS = ("Mn", "Mc")

RULE = (
    f"A name has 1 to {MAX_NAME} lower-case letters, digits and single hyphens between them."
    " The letters of one word are of one script."
)

MEMORY_NAMES = ("SOUL", "USER", "MEMORY")


class Kind(StrEnum):
    """The six kinds of resource."""

    SKILL = "skill"
    PROMPT = "prompt"
    AGENT = "agent"
    TOOL = "tool"
    ENVIRONMENT = "environment"
    MEMORY = "memory"


def main_file(kind: Kind, name: str) -> str:
    """Return the path of the file that makes a folder a resource of this kind.

    Memory has one per name (`memory:USER` is USER.md); any other memory keeps MEMORY.md.
    """
    if kind is Kind.MEMORY:
        return f"{name}.md" if name in MEMORY_NAMES else "MEMORY.md"
    return f"{kind.value.upper()}.md"


def check_name(kind: Kind, name: str) -> str:
    """Return `name` unchanged when a resource of this kind may have it.

    Raise InvalidRef, with the rule, when not. The rule is the Agent Skills specification's, for
    letters of every script: 1 to 64 lower-case letters, digits and single hyphens, none at an end,
    in normal form KC, at most 192 bytes. The letters of one word are of one script, or of those
    that one language writes together (UTS 39). The memories SOUL, USER and MEMORY keep their
    capital names. A Windows device name is refused as well.
    """
    if kind is Kind.MEMORY and name in MEMORY_NAMES:
        return name
    if is_name(name) and name not in RESERVED_NAMES:
        return name
    slug = slugify(name)
    hint = f" {quote_text(slug)} would do." if slug else ""
    raise InvalidRef(f"{quote_text(name)} is not a name.", f"{RULE}{hint}")


def slugify(text: str) -> str:
    """Return the nearest allowed name to a text, '' where none can be made.

    Letters of any script stay. A word whose letters are of several scripts is divided where the
    script changes.
    """
    # Cut before normalizing: one character can become 18, and a heading can be a whole page.
    normal = unicodedata.normalize("NFKC", text[: 8 * MAX_NAME]).lower()
    # In lower case the dotted capital I of Turkish becomes an i with a dot above.
    plain = normal.replace("i\u0307", "i")
    words: list[str] = []
    for word in _split_words(plain):
        words += [word] if word.isascii() else _split_scripts(word)
    name = _cut("-".join(words), MAX_NAME, MAX_NAME_BYTES)
    # Windows cannot make a folder con or aux.
    return f"{name}-x" if name in RESERVED_NAMES else name


def is_plain(name: str) -> bool:
    """Return whether a name has only a-z, 0-9 and hyphens.

    That is the rule of the Agent Skills specification.
    """
    return _PLAIN.fullmatch(name) is not None


def is_name(name: str) -> bool:
    """Return whether a text may be the name of a resource or a project.

    It has to be in Unicode's normal form KC.
    """
    # The usual case, without tables of Unicode.
    if is_plain(name):
        return len(name) <= MAX_NAME
    if not name or name.isascii():
        return False
    if len(name) > MAX_NAME or len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
        return False
    if unicodedata.normalize("NFKC", name) != name or name.lower() != name:
        return False
    words = name.split("-")
    # Empty words are hyphens at an end or side by side.
    if not all(words) or any(_split_words(word) != [word] for word in words):
        return False
    return all(word.isascii() or _is_one_script(word) for word in words)


def normal_name(name: str) -> str:
    """Return a name in the normal form that names are stored in; macOS hands out others."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def add_number(name: str, number: int) -> str:
    """Return a name with a number at its end, cut where it would be too long."""
    ending = f"-{number}"
    return _cut(name, MAX_NAME - len(ending), MAX_NAME_BYTES - len(ending)) + ending


def _cut(name: str, characters: int, size: int) -> str:
    # The cut by bytes can leave half a letter, which "ignore" drops, and a hyphen at the end.
    return name[:characters].encode("utf-8")[:size].decode("utf-8", "ignore").strip("-")


def _split_words(text: str) -> list[str]:
    """Return the runs of letters, digits and marks in a text.

    A mark belongs to the letter before it.
    """
    if text.isascii():
        return re.findall("[a-z0-9]+", text)
    words, current = list[str](), ""
    for character in text:
        category = unicodedata.category(character)
        fits = category in _LETTERS or (category in _MARKS and current)
        # An invisible letter would make two names that look the same.
        if fits and not UNSEEN.match(character):
            current += character
        elif current:
            words.append(current)
            current = ""
    return [*words, current] if current else words


def _split_scripts(word: str) -> Iterable[str]:
    """Yield the parts of a word whose letters are each of one script."""
    part = ""
    for character in word:
        if part and not _is_one_script(part + character):
            yield part
            part = ""
        # A mark without a letter before it cannot begin a word.
        if part or unicodedata.category(character) not in _MARKS:
            part += character
    if part:
        yield part


def _is_one_script(word: str) -> bool:
    from evolvable_store.confusables import is_one_script  # late: 40 ms, and most names are plain

    return is_one_script(word)


def skeleton(name: str) -> str:
    """Return the form that look-alike names share; see `confusables.skeleton`."""
    from evolvable_store import confusables  # late: 40 ms, and only what is new is compared

    return confusables.skeleton(name)


def near_names(name: str, names: Iterable[str], most: int) -> list[str]:
    """Return up to `most` of the names that are similar to this one, the most similar first."""
    import difflib  # late: only a wrong name needs it

    # 0.6 is difflib's own default: about two letters of five may differ.
    return difflib.get_close_matches(name, names, n=most, cutoff=0.6)


@dataclass(frozen=True, slots=True)
class Ref:
    """The written name of a resource: `skill:pdf`, `skill:acme/pdf`, `skill:pdf@7`.

    scope: acme in the second example. None where the text names none: the reader then searches the
    scopes that it can see, the nearest first. version: 7 in the third example.
    """

    kind: Kind
    name: str
    scope: str | None = None
    version: int | None = None

    @classmethod
    def parse(cls, text: str, default_kind: Kind = Kind.SKILL) -> "Ref":
        """Return the ref that `text` writes; a bare name is of `default_kind`.

        Raises InvalidRef.
        """
        # The colon of a plugin's scope (plugin:name/skill) is no colon after a kind.
        kind_text, colon, rest = text.partition(":")
        if colon and not text.startswith(PLUGIN):
            kind = parse_kind(kind_text)
        else:
            kind, rest = default_kind, text
        path, at, version_text = normal_name(rest).partition("@")
        scope, slash, name = path.rpartition("/")
        return cls(
            kind,
            check_name(kind, name),
            check_scope(scope) if slash else None,
            parse_version(version_text) if at else None,
        )

    def at(self, version: int | None) -> "Ref":
        """Return the same ref with this version."""
        return replace(self, version=version)

    def within(self, scope: str) -> "Ref":
        """Return the same ref in this scope."""
        return replace(self, scope=scope)

    def __str__(self) -> str:
        scope = "" if self.scope in (None, USER_SCOPE) else f"{self.scope}/"
        version = "" if self.version is None else f"@{self.version}"
        return f"{self.kind}:{scope}{self.name}{version}"


def parse_kind(text: str) -> Kind:
    """Return the kind that a text names; raise InvalidRef, which lists the six."""
    try:
        return Kind(text)
    except ValueError:
        raise InvalidRef(
            f"{quote_text(text)} is not a kind.", f"The kinds are {', '.join(Kind)}."
        ) from None


def check_scope(scope: str) -> str:
    """Return `scope` unchanged when it may be one: a name, or `plugin:` and one.

    Raises InvalidRef.
    """
    if is_name(scope.removeprefix(PLUGIN)):
        return scope
    raise InvalidRef(
        f"{quote_text(scope)} is not a scope.", f"A scope is 'user' or a project's name. {RULE}"
    )


def is_plugins(scope: str | None) -> bool:
    """Return whether a scope is that of a plugin."""
    return scope is not None and scope.startswith(PLUGIN)


def check_not_plugins(ref: Ref) -> None:
    """Raise Refused for a resource of a plugin: only the plugin's own files change it."""
    if is_plugins(ref.scope):
        why = (
            f"{ref} belongs to the plugin {(ref.scope or '').removeprefix(PLUGIN)}, and changes "
            "with it alone."
        )
        raise Refused(why, "Make a copy of your own: update_resource with create and copy_of.")


def parse_version(text: str) -> int:
    """Return the version number that a text is; raise InvalidRef unless it is 1 or more."""
    # isdigit() alone is true of superscripts, and nine digits fit every integer column.
    if text.isascii() and text.isdigit() and 1 <= len(text) <= 9 and int(text) >= 1:
        return int(text)
    raise InvalidRef(f"{quote_text(text)} is not a version.", "Versions are numbered 1, 2, 3, ...")


@dataclass(frozen=True, slots=True)
class StoredResource:
    """A resource in the store: its id and its name. The base of records about resources."""

    id: int
    kind: Kind
    scope: str
    name: str

    @property
    def ref(self) -> Ref:
        """The resource, without a version."""
        return Ref(self.kind, self.name, self.scope)
