"""What can still be read of frontmatter whose YAML is broken: most often a description with a colon in it."""

import re
from collections.abc import Iterator
from itertools import islice
from textwrap import dedent

from evolvable_store.plain_yaml import MAX_DEPTH, NotPlain, NotYaml, load

MAX_KEYS = 100
"""Keys of one level that are looked at; each costs a run of the parser."""

_KEY = re.compile(r"""(["']?)([A-Za-z_][\w.-]*)\1[ \t]*:(?:[ \t]+|$)(.*)""")
_BLOCK_SCALAR = re.compile(r"[|>][-+0-9]*")


def salvage(text: str, depth: int = 1) -> dict[str, object]:
    """Returns key -> value for every `key: value` at the left margin of `text`, its indented lines included.

    A value that is good YAML is read as YAML; of any other the plain text is taken, or, where it is a
    mapping, what can be salvaged of that. Raises NotPlain as `plain_yaml.load` does.
    """
    if depth > MAX_DEPTH:
        raise NotPlain(f"it is nested deeper than {MAX_DEPTH}", 0)
    fields: dict[str, object] = {}
    for key, head, lines in islice(_entries(text), MAX_KEYS):
        fields.setdefault(key, _value(head, lines, depth))
    return fields


def _entries(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yields key, the rest of its line, and all its lines."""
    key, head, lines = "", "", list[str]()
    for line in text.split("\n"):
        match = _KEY.fullmatch(line)
        if match:
            if key:
                yield key, head, lines
            key, head, lines = match[2], match[3].strip(), []
        lines.append(line)
    if key:
        yield key, head, lines


def _value(head: str, lines: list[str], depth: int) -> object:
    try:
        value = load("\n".join(lines)).value
    except NotYaml:
        value = None
    # More than one key: lines at the margin that were meant as part of the text before them.
    return next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else _loose(head, lines[1:], depth)


def _loose(head: str, rest: list[str], depth: int) -> object:
    loose = not head or head[0] in "|>\"'"
    lines = [line for line in rest if line.strip() and (line[0] in " \t" or (loose and line[0] != "#"))]
    inner = dedent("\n".join(lines))
    if not head and _KEY.match(inner.partition("\n")[0]):
        return salvage(inner, depth + 1)
    glue = " "
    if _BLOCK_SCALAR.fullmatch(head):
        glue = "\n" if head[0] == "|" else " "
        head = ""
    text = glue.join(part for part in (head, *(line.strip() for line in lines)) if part)
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted else text
