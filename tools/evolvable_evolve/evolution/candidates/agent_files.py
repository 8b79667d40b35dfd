"""AGENT.md as evolution writes it: the skills an agent owns, its card, and the capabilities of new
and merged agents.

A model gives the words of a card. Everything else is written here: names, owned skills, and the
settings that say what an agent may do. A new agent has the settings of the agent that it is split
from, a merged one what both had.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evolvable_store import Document, Severity, parse_document
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import Kind
from evolvable_tools import agent_skills

AGENT_FILE = "AGENT.md"

MAIN = "main"
"""The executor of all that no agent does.

It has no file, and owns the skills that no agent owns.
"""

# A key at the left margin begins a field; deeper lines belong to it.
_KEY = re.compile(r"^([A-Za-z_][\w-]*)[ \t]*:")
# A heading of the second level, also with the closing signs of Markdown.
_HEADING = re.compile(r"^##[ \t]+(.*?)[ \t]*#*$")
_TITLE = re.compile(r"\A# [^\n]*\n?")
# Within a fenced block a line with # is no heading.
_FENCE = re.compile(r"^[ ]{0,3}(`{3,}|~{3,})")
# The frontmatter, also after a byte order mark.
_HEAD = re.compile(r"\A\ufeff?---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)

PERMISSION_ORDER = ("plan", "default", "acceptEdits", "bypassPermissions")
"""Permission modes, each of which allows all that the one before it allows.

An agent without one has `default`.
"""

_OWN = frozenset(("name", "description", "skills", "color", "metadata"))
"""Fields of an agent that are no settings of what it may do."""

_SPECIAL = _OWN | {"tools", "disallowedTools", "permissionMode"}
"""Fields that two agents may differ in and still be merged."""


class InvalidAgent(EvolvableError):
    """An agent cannot be written as it is wanted."""


@dataclass(frozen=True, slots=True)
class AgentCard:
    """The purpose of an agent, in the words of a model.

    description: the text by which it is chosen. rejected: by the ref of a neighbour, why that agent
    does not do the work.
    """

    description: str
    responsibility: str
    choose_when: tuple[str, ...] = ()
    not_when: tuple[str, ...] = ()
    rejected: Mapping[str, str] | None = None
    coordination: str = ""


CARD_SECTIONS = (
    "Responsibility",
    "Choose when",
    "Not when",
    "Owned skills",
    "Rejected neighbours",
    "Coordination",
)
"""The headings of a card, in their order."""


def owned_skills(document: Document) -> tuple[str, ...]:
    """Return the refs of the skills that an agent's main file names as its own, as `delegation`
    reads them.
    """
    return tuple(f"{Kind.SKILL}:{name}" for name in agent_skills(document.fields))


def ownership(agents: Mapping[str, bytes], skills: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return which of these skills each agent owns, and `main` the rest.

    agents: main files by ref. A skill may have several owners.
    """
    all_skills = frozenset(skills)
    owned = {
        ref: all_skills.intersection(owned_skills(parse_document(data)))
        for ref, data in agents.items()
    }
    return {MAIN: all_skills.difference(*owned.values()), **owned}


def new_agent(name: str, owner: bytes | None, card: AgentCard, skills: Sequence[str]) -> bytes:
    """Return the file of an agent that is split from `owner`; None: from main.

    Every setting of what an agent may do is the owner's. Without an owner there is none, so the
    client applies the settings of main.
    """
    fields = dict(parse_document(owner).fields) if owner is not None else {}
    inherited = {key: value for key, value in fields.items() if key not in _OWN}
    own = {"name": name, "description": card.description}
    head = {**own, **inherited, "skills": _list_names(skills)}
    lines = "".join(f"{key}: {_to_yaml(value)}\n" for key, value in head.items())
    text = _replace_sections(f"# {name}\n", card, skills)
    return _check_head(f"---\n{lines}---\n\n{text}".encode(), head)


def merged_agent(
    first_file: bytes, second_file: bytes, card: AgentCard, skills: Sequence[str]
) -> bytes:
    """Return the first agent's file with both agents' instructions, these skills, and the settings
    of what both may do.

    Raises InvalidAgent where there are none: they share no tool, or differ in another setting.
    """
    first, second = parse_document(first_file), parse_document(second_file)
    fields = _intersect_settings(first.fields, second.fields)
    fields |= {"description": card.description, "skills": _list_names(skills)}
    # A setting that the two do not share must go, not stay as the first agent had it.
    for key in _SPECIAL - _OWN:
        if key in first.fields and key not in fields:
            fields[key] = None
    body = first.body.strip()
    further = _TITLE.sub("", _remove_sections(second.body)).strip()
    # After a split and a merge the text of both is often the same.
    if further and further not in body:
        body = f"{body}\n\n{further}"
    return rewrite_agent(first_file, fields, _replace_sections(body, card, skills))


def bounded_agent(data: bytes, card: AgentCard | None, skills: Sequence[str]) -> bytes:
    """Return an agent's file with other owned skills, and with this card where one is given.

    Nothing else changes.
    """
    changes: dict[str, object] = {"skills": _list_names(skills)}
    body = parse_document(data).body.strip()
    if card is None:
        return rewrite_agent(data, changes, _replace_owned(body, skills))
    body = _replace_sections(body, card, skills)
    return rewrite_agent(data, changes | {"description": card.description}, body)


def with_delegate(data: bytes, agent: str) -> bytes:
    """Return the file of a skill whose delegate is this agent, '' for none; its other text stays.

    Raises InvalidAgent where its head cannot be changed so.
    """
    document = parse_document(data)
    old_metadata = document.fields.get("metadata")
    metadata = dict(old_metadata) if isinstance(old_metadata, dict) else {}
    # Older skills name the delegate beside the metadata.
    before = metadata.pop("delegate", document.fields.get("delegate"))
    if agent:
        metadata["delegate"] = {**before, "agent": agent} if isinstance(before, dict) else agent
    return rewrite_agent(data, {"metadata": metadata or None, "delegate": None}, document.body)


def rewrite_agent(data: bytes, changes: Mapping[str, object], body: str) -> bytes:
    """Return a file with these fields of its head changed (None leaves a field out) and with this
    body.

    Lines of other fields stay as they are. Raises InvalidAgent where the head cannot be changed so.
    """
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    head = _HEAD.match(text)
    if head is None:
        raise InvalidAgent(
            "The document has no frontmatter.", "Give it name and description between lines of ---."
        )
    lines, remaining = head[1].rstrip("\n").split("\n"), dict(changes)
    new_lines = list[str]()
    skipping = False
    for line in lines:
        if (key := _KEY.match(line)) is not None:
            skipping = key[1] in changes
            if skipping and (value := remaining.pop(key[1], None)) is not None:
                new_lines += _format_field(key[1], value)
        # Indented lines, list items and comments belong to the field before them.
        elif line.strip() and not line.startswith((" ", "\t", "-", "#")):
            skipping = False
        if not skipping:
            new_lines.append(line)
    for name, value in remaining.items():
        if value is not None:
            new_lines += _format_field(name, value)
    fields = {**parse_document(data).fields, **changes}
    expected_fields = {key: value for key, value in fields.items() if value is not None}
    written = "---\n" + "\n".join(new_lines) + f"\n---\n\n{body.strip()}\n"
    return _check_head(written.encode(), expected_fields)


def _check_head(data: bytes, expected_fields: Mapping[str, object]) -> bytes:
    """Return a document whose head has exactly these fields. Raises InvalidAgent otherwise."""
    # The change was made by lines, and YAML has more forms than these lines show: the result is
    # read to be sure.
    document = parse_document(data)
    wrong = any(defect.severity is not Severity.WARNING for defect in document.defects)
    if wrong or dict(document.fields) != dict(expected_fields):
        raise InvalidAgent(
            "The frontmatter cannot be changed line by line.", "Write it without nested keys."
        )
    return data


def _intersect_settings(
    first: Mapping[str, object], second: Mapping[str, object]
) -> dict[str, object]:
    """Return the settings that two agents have in common, which allow at most what each of them may
    do.

    Raises InvalidAgent where the agents differ in other settings or share no tool.
    """
    differing = [
        key for key in sorted({*first, *second} - _SPECIAL) if first.get(key) != second.get(key)
    ]
    if _find_delegate(first) != _find_delegate(second):
        differing.append("delegate")
    if differing:
        text = f"The agents differ in {', '.join(differing)}."
        raise InvalidAgent(text, "A person merges agents with different settings.")
    fields = dict[str, object]()
    # An agent without the field may use every tool, so a single list counts for both.
    allowed = [_parse_tools(agent["tools"]) for agent in (first, second) if "tools" in agent]
    if allowed:
        shared = _shared_tools(allowed[0], allowed[-1])
        if not shared:
            raise InvalidAgent(
                "The agents have no tool in common.", "A person merges agents with different tools."
            )
        fields["tools"] = ", ".join(shared)
    denied = dict.fromkeys(
        tool for agent in (first, second) for tool in _parse_tools(agent.get("disallowedTools"))
    )
    if denied:
        fields["disallowedTools"] = ", ".join(denied)
    mode = _choose_mode(*(agent.get("permissionMode", "default") for agent in (first, second)))
    is_written = all(agent.get("permissionMode") == "default" for agent in (first, second))
    if mode != "default" or is_written:
        fields["permissionMode"] = mode
    return fields


def _choose_mode(first: object, second: object) -> object:
    """Return the permission mode of two that allows less. Raises InvalidAgent for an
    unknown one.
    """
    if first == second:
        return first
    if first not in PERMISSION_ORDER or second not in PERMISSION_ORDER:
        raise InvalidAgent(
            "The agents differ in permissionMode.",
            "A person merges agents with different settings.",
        )
    return min(str(first), str(second), key=PERMISSION_ORDER.index)


def _find_delegate(fields: Mapping[str, object]) -> object:
    metadata = fields.get("metadata")
    return metadata.get("delegate") if isinstance(metadata, dict) else None


def _parse_tools(value: object) -> list[str]:
    """Return the tools of a field: a list, or a text with commas."""
    if isinstance(value, list):
        return [str(tool).strip() for tool in value if str(tool).strip()]
    if not isinstance(value, str):
        return []
    # A comma in brackets separates no tools, as in `Bash(git add:*, git log:*)`.
    return [tool.strip() for tool in re.split(r",(?![^(]*\))", value) if tool.strip()]


def _shared_tools(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Return the tools that both lists allow; `Bash` allows `Bash(git log:*)` as well."""

    def allows(tools: Sequence[str], tool: str) -> bool:
        return tool in tools or tool.partition("(")[0] in tools or "*" in tools

    of_first = [tool for tool in first if allows(second, tool)]
    of_second = [tool for tool in second if allows(first, tool)]
    return list(dict.fromkeys([*of_first, *of_second]))


def _replace_sections(body: str, card: AgentCard, skills: Sequence[str]) -> str:
    """Return a body with the sections of the card in place of those that it has."""
    rejected = [f"{ref}: {why}" for ref, why in (card.rejected or {}).items()]
    texts = {
        "Responsibility": card.responsibility,
        "Choose when": _format_list(card.choose_when),
        "Not when": _format_list(card.not_when),
        "Owned skills": _format_list(sorted(skills)) or "None.",
        "Rejected neighbours": _format_list(rejected),
        "Coordination": card.coordination,
    }
    sections = [f"## {name}\n\n{texts[name]}" for name in CARD_SECTIONS if texts[name]]
    return "\n\n".join([_remove_sections(body), *sections]).strip() + "\n"


def _remove_sections(body: str) -> str:
    """Return a body without the sections of a card."""
    texts = [text for name, text in _split_sections(body) if name not in CARD_SECTIONS]
    return "\n".join(texts).strip()


def _replace_owned(body: str, skills: Sequence[str]) -> str:
    """Return a body whose section of owned skills, where it has one, lists these."""
    owned = f"## Owned skills\n\n{_format_list(sorted(skills)) or 'None.'}\n"
    parts = _split_sections(body)
    return "\n".join(owned if name == "Owned skills" else text for name, text in parts).strip()


def _split_sections(body: str) -> list[tuple[str, str]]:
    """Return the parts of a body, each with the heading of the second level that begins it, '' for
    all other text.
    """
    sections: list[tuple[str, list[str]]] = [("", [])]
    fence = ""
    for line in body.split("\n"):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence) and line.strip() == mark[1]:
                # A fence ends with at least as many signs as it began with.
                fence = ""
        elif not fence and (line.startswith("# ") or _HEADING.match(line)):
            heading = _HEADING.match(line)
            sections.append((heading[1] if heading else "", []))
        sections[-1][1].append(line)
    return [(name, "\n".join(lines)) for name, lines in sections if lines]


def _format_list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _list_names(skills: Iterable[str]) -> list[str]:
    return sorted(ref.partition(":")[2] for ref in skills)


def _format_field(key: str, value: object) -> list[str]:
    """Return the lines of one field of a head: a block has a line for each of its keys."""
    if isinstance(value, dict) and value:
        return [f"{key}:", *(f"  {name}: {_to_yaml(child)}" for name, child in value.items())]
    return [f"{key}: {_to_yaml(value)}"]


def _to_yaml(value: object) -> str:
    """Return a value on one line. JSON is YAML too."""
    return json.dumps(value, ensure_ascii=False)
