"""What a resource is called: its kind, its scope, its name, and the ref that writes them."""

from dataclasses import dataclass, replace
from enum import StrEnum

from evolvable_store.errors import InvalidRef, quoted
from evolvable_store.names import MAX_NAME, RULE, is_name, nearest_name, normal_name
from evolvable_store.paths import RESERVED_NAMES

__all__ = [
    "MAX_NAME",
    "Kind",
    "Ref",
    "check_name",
    "check_scope",
    "main_file",
    "parse_kind",
    "parse_version",
    "slugify",
]

USER_SCOPE = "user"
"""The scope that everything belongs to which no project claims."""

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
    """Return `name` unchanged when a resource of this kind may have it; raise InvalidRef with the rule.

    The rule is the Agent Skills specification's, for letters of every script: 1 to 64 lower-case letters, digits and
    single hyphens, none at an end, in normal form KC, at most 192 bytes. The letters of one word are of one script, or
    of those that one language writes together (UTS 39). The memories SOUL, USER and MEMORY keep their capital names.
    A Windows device name is refused as well.
    """
    if kind is Kind.MEMORY and name in MEMORY_NAMES:
        return name
    if is_name(name) and name not in RESERVED_NAMES:
        return name
    slug = slugify(name)
    hint = f" {quoted(slug)} would do." if slug else ""
    raise InvalidRef(f"{quoted(name)} is not a name.", f"{RULE}{hint}")


def slugify(text: str) -> str:
    """Return the nearest allowed name to a folder's or a heading's text, '' when nothing is left."""
    return nearest_name(text)


@dataclass(frozen=True, slots=True)
class Ref:
    """How a resource is written: `skill:pdf`, `skill:acme/pdf` (scope acme), `skill:pdf@7` (version 7).

    `scope` is None when the text names none: the reader then looks in the scopes it sees, nearest first.
    """

    kind: Kind
    name: str
    scope: str | None = None
    version: int | None = None

    @classmethod
    def parse(cls, text: str, default_kind: Kind = Kind.SKILL) -> "Ref":
        """Return the ref that `text` writes; a bare name is of `default_kind`. Raises InvalidRef."""
        kind_text, colon, rest = text.partition(":")
        if colon:
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
    """Return the kind named; raise InvalidRef that lists the six."""
    try:
        return Kind(text)
    except ValueError:
        raise InvalidRef(f"{quoted(text)} is not a kind.", f"The kinds are {', '.join(Kind)}.") from None


def check_scope(scope: str) -> str:
    """Return `scope` unchanged when it may be one: the same rule as for a name. Raises InvalidRef."""
    if is_name(scope):
        return scope
    raise InvalidRef(f"{quoted(scope)} is not a scope.", f"A scope is 'user' or a project's name. {RULE}")


def parse_version(text: str) -> int:
    """Return the version number written; raise InvalidRef unless it is 1 or more."""
    if text.isascii() and text.isdigit() and 1 <= len(text) <= 9 and int(text) >= 1:
        return int(text)
    raise InvalidRef(f"{quoted(text)} is not a version.", "Versions are numbered 1, 2, 3, ...")
