"""Compare what the heads of two main files grant an agent.

They grant tools, a model, a permission mode, hooks, servers and a delegate, and set limits. Order,
quotes, lists in place of texts, and the spelling of a key make no difference. A head that cannot be
read for certain counts as granting more.
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
        *("hooks", "mcpservers", "delegate", "delegates", "skills", "agent", "agents"),
        *("env", "autoapprove", "alwaysapply"),
    )
)
# Of these any change counts: a value has no parts of which fewer would grant less.
_EXACT = frozenset(("model", "isolation", "sandbox", "shell"))
# In plan mode a client changes nothing, so a change to it grants nothing.
_STRICT_MODE = "plan"
_NO_MODE = frozenset(("", "default", "null", "false", '""', '"default"'))


@dataclass(frozen=True, slots=True)
class AgentGrants:
    """The grants of one head.

    tools: with ALL_TOOLS for every tool. grants: (key, value) of everything else. limits: (key,
    value) of its limits. mode: the permission mode, '' for the usual one. unclear: the head cannot
    be read for certain.
    """

    tools: frozenset[str] = frozenset((ALL_TOOLS,))
    grants: frozenset[tuple[str, str]] = frozenset()
    limits: frozenset[tuple[str, str]] = frozenset()
    mode: str = ""
    unclear: bool = False

    def list_added_grants(self, before: "AgentGrants") -> list[tuple[str, str]]:
        """Return sorted pairs (key, grant) of everything that only these grants allow.

        before: the grants that they are compared with. A limit that was taken away or changed
        counts, and so does a head that cannot be read for certain.
        """
        added = [("tools", tool) for tool in self.tools if not _is_covered(tool, before.tools)]
        added += self.grants - before.grants
        # A model or sandbox that is no longer named falls back to the client's default, which may
        # allow more.
        added += [(key, what) for key, what in before.grants - self.grants if key in _EXACT]
        added += [(key, f"no longer: {what}") for key, what in before.limits - self.limits]
        # The usual mode allows more than the strict one alone.
        allows_more = self.mode != "" or before.mode == _STRICT_MODE
        if allows_more and self.mode not in (before.mode, _STRICT_MODE):
            added.append(("permissionmode", self.mode or "default"))
        if self.unclear:
            added.append(("head", "it cannot be read for certain"))
        return sorted(added)


def read_grants(document: Document) -> AgentGrants:
    """Return the grants that the head of a document makes."""
    fields: dict[str, object] = {}
    twice = False
    for key, value in (*document.fields.items(), *_list_delegates(document.fields)):
        # Clients differ in which of two equal keys they take, so the head is not certain.
        twice |= plain_key(key) in fields
        fields.setdefault(plain_key(key), value)
    bad = [
        defect
        for defect in document.defects
        if defect.severity is not Severity.WARNING and defect is not NO_FRONTMATTER
    ]
    grants = {(key, what) for key in _NAMED for what in _split_parts(fields.get(key))}
    grants |= {
        (key, _format_value(fields[key]))
        for key in _EXACT
        if key in fields and fields[key] is not None
    }
    limits = {(key, what) for key in _LIMITS for what in _split_parts(fields.get(key))}
    tools = [tool for key in sorted(_TOOLS) if key in fields for tool in _read_tools(fields[key])]
    modes = sorted({_read_mode(fields[key]) for key in _MODES if key in fields} - {""})
    return AgentGrants(
        frozenset(tools or (ALL_TOOLS,)),
        frozenset(grants),
        frozenset(limits),
        " ".join(modes),
        bool(bad) or twice,
    )


def plain_key(key: str) -> str:
    """Return a key in the form in which keys are compared.

    `permission-mode`, `permission_mode` and `PermissionMode` have one form.
    """
    return key.casefold().replace("-", "").replace("_", "").strip()


def _list_delegates(fields: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    metadata = fields.get("metadata")
    for key, value in metadata.items() if isinstance(metadata, dict) else ():
        if plain_key(str(key)) == "delegate":
            yield "delegate" if "delegate" not in fields else "delegates", value


def _is_covered(tool: str, by: frozenset[str]) -> bool:
    """Return whether a set of tools includes a tool.

    It does by the tool's name, by that name without brackets, or by ALL_TOOLS.
    """
    return bool({tool, ALL_TOOLS, tool.partition("(")[0]} & by)


def _read_tools(value: object) -> list[str]:
    """Return the tools that a value lists; ALL_TOOLS for an empty one and for another type."""
    texts = split_outside_brackets(value) if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        # Clients differ in how they read a value of another type; the widest reading is assumed.
        return [ALL_TOOLS]
    names = [text.strip() for text in texts if text.strip()]
    tools = [ALL_TOOLS if name.replace("(*)", "") == ALL_TOOLS else name for name in names]
    return tools or [ALL_TOOLS]


def _split_parts(value: object) -> list[str]:
    """Return the parts of a value as texts.

    They are the entries of a mapping, the elements of a list, and the parts of a text at commas.
    """
    if value is None or value is False or value in ("", [], {}):
        return []
    if isinstance(value, dict):
        return [f"{key}: {_format_value(part)}" for key, part in value.items()]
    if isinstance(value, str):
        return [part.strip() for part in split_outside_brackets(value) if part.strip()]
    return [_format_value(part) for part in (value if isinstance(value, list) else [value])]


def _format_value(value: object) -> str:
    return (
        value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    )


def _read_mode(value: object) -> str:
    mode = _format_value(value).strip()
    return "" if mode.casefold() in _NO_MODE else mode


def split_outside_brackets(text: str) -> list[str]:
    """Return the parts of a text between commas and blanks outside of brackets.

    Bash(git log:*) is one part.
    """
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        # A stray closing bracket must not hide the separators after it: below zero counts as
        # outside.
        depth += (char == "(") - (char == ")")
        if char in ", \n\t" and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]
