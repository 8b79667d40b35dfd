"""What a resource is called: its kind, its scope, its name, and the ref that writes them."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from evolvable_store.errors import InvalidRef
from evolvable_store.paths import RESERVED_NAMES

USER_SCOPE = "user"
"""The scope that everything belongs to which no project claims."""

MAX_NAME = 64

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
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

    The rule is the Agent Skills specification's: 1 to 64 of a-z, 0-9 and single hyphens, none at an end. The
    memories SOUL, USER and MEMORY keep their capital names. A Windows device name is refused as well.
    """
    if kind is Kind.MEMORY and name in MEMORY_NAMES:
        return name
    if len(name) <= MAX_NAME and _NAME.fullmatch(name) and name not in RESERVED_NAMES:
        return name
    shown = ascii(name if len(name) <= 80 else name[:77] + "...")
    slug = slugify(name)
    hint = f" {slug!r} would do." if slug else ""
    raise InvalidRef(
        f"{shown} is not a name.",
        f"A name has 1 to {MAX_NAME} of a-z, 0-9 and single hyphens between them.{hint}",
    )


def slugify(text: str) -> str:
    """Return the nearest allowed name to a folder's or a heading's text, '' when nothing is left."""
    slug = re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-")[:MAX_NAME].strip("-")
    return f"{slug}-x" if slug in RESERVED_NAMES else slug


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
        path, at, version_text = rest.partition("@")
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
        raise InvalidRef(f"{ascii(text[:80])} is not a kind.", f"The kinds are {', '.join(Kind)}.") from None


def check_scope(scope: str) -> str:
    """Return `scope` unchanged when it may be one: the same rule as for a name. Raises InvalidRef."""
    if len(scope) <= MAX_NAME and _NAME.fullmatch(scope):
        return scope
    raise InvalidRef(f"{ascii(scope[:80])} is not a scope.", "A scope is 'user' or a project's name (a-z, 0-9, -).")


def parse_version(text: str) -> int:
    """Return the version number written; raise InvalidRef unless it is 1 or more."""
    if text.isascii() and text.isdigit() and 1 <= len(text) <= 9 and int(text) >= 1:
        return int(text)
    raise InvalidRef(f"{ascii(text[:80])} is not a version.", "Versions are numbered 1, 2, 3, ...")
