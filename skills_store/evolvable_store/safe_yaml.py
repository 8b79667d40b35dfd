"""The plain part of YAML: mappings, lists and scalars, built straight from parser events.

Nothing that a tag or an alias names is ever constructed. Of frontmatter whose YAML is broken, most
often by a colon in the description, `salvage` reads the rest. Importing this module imports PyYAML,
so import it late.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from textwrap import dedent
from typing import Any

import yaml

# Bounds the recursion of the reader; metadata with lists in it has three levels.
MAX_DEPTH = 6
"""Mappings and lists inside each other, the outermost counted."""

# libyaml where PyYAML was built with it: several times faster, the same events.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Escapes in quotes, such as "\x00", give characters that the text itself may not contain.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
# Bounds the conversion of digits; a longer scalar stays a text.
_LONGEST_NUMBER = 60
_CONVERTED = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float")}


class _YamlError(Exception):
    def __init__(self, reason: str, line: int) -> None:
        """line: counts from 0."""
        super().__init__(reason)
        self.reason, self.line = reason, line


class InvalidYaml(_YamlError):
    """Text that breaks YAML's syntax."""


class UnsafeYaml(_YamlError):
    """YAML with more than plain values: a tag, an alias, a merge, a directive, too much depth."""


@dataclass(frozen=True, slots=True)
class YamlValue:
    """The content of a text.

    value: JSON-like. repeated: the keys that it has more than once; the first value counts.
    """

    value: object
    repeated: tuple[str, ...]


def load_yaml(text: str) -> YamlValue:
    """Return the one document in `text`, with the value None for an empty one.

    Keys are the text as written. Scalars are str, int, finite float, bool or None; anything else
    YAML knows (a date, an infinity) stays the text as written. Raises InvalidYaml or UnsafeYaml.
    """
    try:
        reader = _Reader(text)
        return YamlValue(reader.document(), tuple(dict.fromkeys(reader.repeated)))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position)
        raise UnsafeYaml(
            f"it has the character {error.character!r}, which YAML does not allow", line
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InvalidYaml(
            error.problem or "it cannot be parsed", mark.line if mark else 0
        ) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The parser in Python lets chr() fail on an escape such as "\UFFFFFFFF".
        raise InvalidYaml(str(error) or "it cannot be parsed", 0) from None


@dataclass(frozen=True, slots=True)
class YamlEntry:
    """One key of the outermost mapping of a text. line: the one that it begins in, from 0."""

    key: str
    value: object
    line: int


def top_level(text: str) -> list[YamlEntry] | None:
    """Return every key of the one mapping in `text`, repeated keys included.

    None where lines do not separate the keys: for a mapping in braces, and for a text that is not
    plain YAML.
    """
    try:
        return _Reader(text).entries()
    except (yaml.YAMLError, _YamlError, ValueError, OverflowError):
        return None


class _Reader:
    """Reads the events of a text once, up to the first that is not plain."""

    def __init__(self, text: str) -> None:
        self.repeated: list[str] = []
        self._loader = _LOADER(text)
        self._next: Callable[[], Any] = self._loader.get_event

    def document(self) -> object:
        self._next()
        start: Any = self._next()
        if isinstance(start, yaml.StreamEndEvent):
            return None
        # %YAML or %TAG before the document.
        if start.version or start.tags:
            raise UnsafeYaml("it has a directive", start.start_mark.line)
        value = self._read_value(self._next(), 1)
        self._next()
        after: Any = self._next()
        if not isinstance(after, yaml.StreamEndEvent):
            raise InvalidYaml("a second document starts", after.start_mark.line)
        return value

    def entries(self) -> list[YamlEntry] | None:
        self._next()
        if isinstance(self._next(), yaml.StreamEndEvent):
            return []
        event = self._next()
        # In braces several keys share a line, so lines do not show where one ends.
        if not isinstance(event, yaml.MappingStartEvent) or event.flow_style:
            return [] if isinstance(event, yaml.ScalarEvent) and not event.value else None
        entries = list[YamlEntry]()
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key, value = self._read_key(event), self._read_value(self._next(), 2)
            entries.append(YamlEntry(key, value, event.start_mark.line))
        lines = [entry.line for entry in entries]
        # Two keys that begin in one line: the text cannot be cut by lines.
        return entries if len(set(lines)) == len(lines) else None

    def _read_value(self, event: Any, depth: int) -> object:
        _check_plain(event)
        if isinstance(event, yaml.ScalarEvent):
            return self._read_scalar(event)
        if depth > MAX_DEPTH:
            raise UnsafeYaml(f"it is nested deeper than {MAX_DEPTH}", event.start_mark.line)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        return self._read_mapping(depth) if is_mapping else self._read_list(depth)

    def _read_mapping(self, depth: int) -> dict[str, object]:
        values: dict[str, object] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._read_key(event)
            value = self._read_value(self._next(), depth + 1)
            if key in values:
                self.repeated.append(key)
            else:
                values[key] = value
        return values

    def _read_key(self, event: Any) -> str:
        _check_plain(event)
        line = event.start_mark.line
        if not isinstance(event, yaml.ScalarEvent):
            raise InvalidYaml("a key is a mapping or a list", line)
        # A quoted "<<" is a plain key.
        if event.implicit[0] and event.value == "<<":
            raise UnsafeYaml("it has a merge key (<<)", line)
        return _read_text(event)

    def _read_list(self, depth: int) -> list[object]:
        values = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            values.append(self._read_value(event, depth + 1))
        return values

    def _read_scalar(self, event: Any) -> object:
        text = _read_text(event)
        tag = self._loader.resolve(yaml.ScalarNode, text, event.implicit)
        if tag not in _CONVERTED or len(text) > _LONGEST_NUMBER:
            return text
        try:
            value: object = self._loader.construct_object(yaml.ScalarNode(tag, text))
        except ValueError:
            return text
        # JSON has neither infinity nor NaN.
        return text if isinstance(value, float) and not math.isfinite(value) else value


def _check_plain(event: Any) -> None:
    line = event.start_mark.line
    # Aliases expand exponentially ("billion laughs"), and an anchor is of no use without one.
    if event.anchor is not None:
        what = "an alias (*" if isinstance(event, yaml.AliasEvent) else "an anchor (&"
        raise UnsafeYaml(f"it has {what}{event.anchor[:40]})", line)
    if event.tag is not None:
        raise UnsafeYaml(f"it has a tag ({event.tag[:40]})", line)


def _read_text(event: Any) -> str:
    text: str = event.value
    if _UNPRINTABLE.search(text):
        raise UnsafeYaml("a value has a control character", event.start_mark.line)
    return text


# A head within its 16 KiB could have thousands.
MAX_KEYS = 100
"""Keys of one level that are looked at; each costs a run of the parser."""

_KEY = re.compile(r"""(["']?)([A-Za-z_][\w.-]*)\1[ \t]*:(?:[ \t]+|$)(.*)""")
_BLOCK_SCALAR = re.compile(r"[|>][-+0-9]*")


def salvage(text: str, depth: int = 1) -> dict[str, object]:
    """Return key -> value for every `key: value` at the left margin of `text`.

    The indented lines below belong to the value. A value that is good YAML is read as YAML. Of a
    mapping that is not, the fields are salvaged; of any other value the plain text counts. Raises
    UnsafeYaml as `load_yaml` does.
    """
    if depth > MAX_DEPTH:
        raise UnsafeYaml(f"it is nested deeper than {MAX_DEPTH}", 0)
    fields: dict[str, object] = {}
    for key, head, lines in islice(_split_entries(text), MAX_KEYS):
        fields.setdefault(key, _salvage_value(head, lines, depth))
    return fields


def _split_entries(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield key, the rest of its line, and all its lines."""
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


def _salvage_value(head: str, lines: list[str], depth: int) -> object:
    try:
        value = load_yaml("\n".join(lines)).value
    except InvalidYaml:
        value = None
    if isinstance(value, dict) and len(value) == 1:
        return next(iter(value.values()))
    # More than one key: lines at the margin that were meant as part of the text before them.
    return _salvage_text(head, lines[1:], depth)


def _salvage_text(head: str, rest: list[str], depth: int) -> object:
    """Return the text, or the mapping, of a value that is no YAML.

    head: the text in the line of the key. rest: the lines behind that.
    """
    # After a block mark or an open quote, lines at the margin were meant to belong to the value.
    takes_margin = not head or head[0] in "|>\"'"
    lines = [
        line
        for line in rest
        if line.strip() and (line[0] in " \t" or (takes_margin and line[0] != "#"))
    ]
    inner = dedent("\n".join(lines))
    if not head and _KEY.match(inner.partition("\n")[0]):
        return salvage(inner, depth + 1)
    # YAML folds lines with a blank; `|` alone keeps line ends.
    glue = " "
    if _BLOCK_SCALAR.fullmatch(head):
        glue = "\n" if head[0] == "|" else " "
        head = ""
    text = glue.join(part for part in (head, *(line.strip() for line in lines)) if part)
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text
