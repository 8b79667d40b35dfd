"""What the head of a main file grants: tools, a model, a permission mode, hooks, servers, a
delegate, and limits.

Two heads are compared by what they grant, so that order, quotes, lists in place of texts, and the
spelling of a key make no difference. What cannot be read for certain counts as wider.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evolvable_store.frontmatter import NO_FRONTMATTER, Document, Severity

ALL_TOOLS = "*"
"""The tool that stands for every tool: an agent without a list of tools has them all."""

# Keys that clients such as Claude Code and Cursor read, in the form of `plain_key`.
_TOOLS = frozenset(("tools", "allowedtools"))
_MODES = frozenset(("permissionmode", "permissions"))
_LIMITS = frozenset(("disallowedtools", "disablemodelinvocation", "readonly", "paths", "globs"))
_NAMED = frozenset(
    (
        "hooks",
        "mcpservers",
        "delegate",
        "delegates",
        "skills",
        "agent",
        "agents",
        "env",
        "autoapprove",
        "alwaysapply",
    )
)
# Of these any change counts: a value cannot be split into parts of which fewer would be narrower.
_EXACT = frozenset(("model", "isolation", "sandbox", "shell"))
# In plan mode a client changes nothing, so a change to it grants nothing.
_STRICT_MODE = "plan"
_NO_MODE = frozenset(("", "default", "null", "false", '""', '"default"'))


@dataclass(frozen=True, slots=True)
class AgentGrants:
    """What a head grants. tools: with ALL_TOOLS for every tool. grants: (key, what) of everything
    else.

    limits: (key, what) of what it forbids. mode: the permission mode, '' for the usual one.
    unclear: the head cannot be read for certain.
    """

    tools: frozenset[str] = frozenset((ALL_TOOLS,))
    grants: frozenset[tuple[str, str]] = frozenset()
    limits: frozenset[tuple[str, str]] = frozenset()
    mode: str = ""
    unclear: bool = False

    def list_added_grants(self, before: "AgentGrants") -> list[tuple[str, str]]:
        """Return sorted pairs (key, grant) of everything that these grants allow and those before
        do not.

        A limit that was taken away or changed counts, and so does a head that cannot be read for
        certain.
        """
        found = [("tools", tool) for tool in self.tools if not _is_covered(tool, before.tools)]
        found += self.grants - before.grants
        # A model or sandbox that is no longer named falls back to the client's default, which may
        # allow more.
        found += [(key, what) for key, what in before.grants - self.grants if key in _EXACT]
        found += [(key, f"no longer: {what}") for key, what in before.limits - self.limits]
        # Leaving the strict mode widens, also where no mode is named afterwards.
        if self.mode not in (before.mode, _STRICT_MODE) and (
            self.mode or before.mode == _STRICT_MODE
        ):
            found.append(("permissionmode", self.mode or "default"))
        if self.unclear:
            found.append(("head", "it cannot be read for certain"))
        return sorted(found)


def read_grants(document: Document) -> AgentGrants:
    """Return the grants that the head of a document makes."""
    fields: dict[str, object] = {}
    twice = False
    for key, value in (*document.fields.items(), *_delegates(document.fields)):
        # Clients differ in which of two equal keys they take, so the head is not certain.
        twice |= plain_key(key) in fields
        fields.setdefault(plain_key(key), value)
    bad = [
        defect
        for defect in document.defects
        if defect.severity is not Severity.WARNING and defect is not NO_FRONTMATTER
    ]
    grants = {(key, what) for key in _NAMED for what in _parts(fields.get(key))}
    grants |= {
        (key, _as_text(fields[key])) for key in _EXACT if key in fields and fields[key] is not None
    }
    limits = {(key, what) for key in _LIMITS for what in _parts(fields.get(key))}
    tools = [tool for key in sorted(_TOOLS) if key in fields for tool in _tools(fields[key])]
    modes = sorted({_mode(fields[key]) for key in _MODES if key in fields} - {""})
    return AgentGrants(
        frozenset(tools or (ALL_TOOLS,)),
        frozenset(grants),
        frozenset(limits),
        " ".join(modes),
        bool(bad) or twice,
    )


def plain_key(key: str) -> str:
    """Return a key as it is compared: `permission-mode`, `permission_mode` and `PermissionMode` are
    one.
    """
    return key.casefold().replace("-", "").replace("_", "").strip()


def _delegates(fields: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    metadata = fields.get("metadata")
    for key, value in metadata.items() if isinstance(metadata, dict) else ():
        if plain_key(str(key)) == "delegate":
            yield "delegate" if "delegate" not in fields else "delegates", value


def _is_covered(tool: str, by: frozenset[str]) -> bool:
    """Return whether a set of tools includes one: by its name, by its name without brackets, or by
    ALL_TOOLS.
    """
    return bool({tool, ALL_TOOLS, tool.partition("(")[0]} & by)


def _tools(value: object) -> list[str]:
    """Return the tools that a value lists; every tool for an empty one and for what is no list."""
    texts = (
        split_outside_brackets(value)
        if isinstance(value, str)
        else value
        if isinstance(value, list)
        else None
    )
    if texts is None or not all(isinstance(text, str) for text in texts):
        # Clients differ in what they make of a value of another type; the widest reading is
        # assumed.
        return [ALL_TOOLS]
    names = [str(text).strip() for text in texts if str(text).strip()]
    return [ALL_TOOLS if tool.replace("(*)", "") == ALL_TOOLS else tool for tool in names] or [
        ALL_TOOLS
    ]


def _parts(value: object) -> list[str]:
    """Return the parts of a value as texts: a mapping's entries, a list's elements, and those of a
    text at commas.
    """
    if value is None or value is False or value in ("", [], {}):
        return []
    if isinstance(value, dict):
        return [f"{key}: {_as_text(part)}" for key, part in value.items()]
    if isinstance(value, str):
        return [_as_text(part.strip()) for part in split_outside_brackets(value) if part.strip()]
    return [_as_text(part) for part in value] if isinstance(value, list) else [_as_text(value)]


def _as_text(value: object) -> str:
    return (
        value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    )


def _mode(value: object) -> str:
    mode = _as_text(value).strip()
    return "" if mode.casefold() in _NO_MODE else mode


def split_outside_brackets(text: str) -> list[str]:
    """Return the parts of a text between commas and blanks outside of brackets: Bash(git log:*) is
    one tool.
    """
    found, depth, start = [], 0, 0
    for at, char in enumerate(text):
        # A stray closing bracket must not hide the separators after it: below zero counts as
        # outside.
        depth += (char == "(") - (char == ")")
        if char in ", \n\t" and depth <= 0:
            found.append(text[start:at])
            start = at + 1
    return [*found, text[start:]]
