"""The plain part of YAML: mappings, lists and scalars, built straight from parser events.

Nothing that a tag or an alias names is ever constructed. Importing this module imports PyYAML; do it late.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

MAX_DEPTH = 6
"""Mappings and lists inside each other, the outermost counted."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
_LONGEST_NUMBER = 60
_CONVERTED = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float")}


class NotYaml(Exception):
    """Text that breaks YAML's syntax. `line` counts from 0."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line


class NotPlain(Exception):
    """YAML that asks for more than plain values: a tag, an alias, a merge, a directive, too much depth."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line


@dataclass(frozen=True, slots=True)
class Plain:
    """What a text holds: a JSON-like `value`, and the keys that were `repeated` (the first value is kept)."""

    value: object
    repeated: tuple[str, ...]


def load(text: str) -> Plain:
    """Returns the one document in `text`; None for an empty one.

    Keys are the text as written. Scalars are str, int, finite float, bool or None; anything else YAML knows (a
    date, an infinity) stays the text as written. Raises NotYaml or NotPlain.
    """
    try:
        reader = _Reader(text)
        return Plain(reader.document(), tuple(dict.fromkeys(reader.repeated)))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position)
        raise NotPlain(f"it has the character {error.character!r}, which YAML does not allow", line) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise NotYaml(error.problem or "it cannot be parsed", mark.line if mark else 0) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The parser in Python lets chr() fail on an escape such as "\UFFFFFFFF".
        raise NotYaml(str(error) or "it cannot be parsed", 0) from None


class _Reader:
    """One pass over the events of a text; stops at the first that is not plain."""

    def __init__(self, text: str) -> None:
        self.repeated: list[str] = []
        self._loader = _LOADER(text)
        self._next: Callable[[], Any] = self._loader.get_event

    def document(self) -> object:
        self._next()
        start: Any = self._next()
        if isinstance(start, yaml.StreamEndEvent):
            return None
        if start.version or start.tags:
            raise NotPlain("it has a directive", start.start_mark.line)
        value = self._value(self._next(), 1)
        self._next()
        after: Any = self._next()
        if not isinstance(after, yaml.StreamEndEvent):
            raise NotYaml("a second document starts", after.start_mark.line)
        return value

    def _value(self, event: Any, depth: int) -> object:
        _check_plain(event)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if depth > MAX_DEPTH:
            raise NotPlain(f"it is nested deeper than {MAX_DEPTH}", event.start_mark.line)
        return self._mapping(depth) if isinstance(event, yaml.MappingStartEvent) else self._list(depth)

    def _mapping(self, depth: int) -> dict[str, object]:
        values: dict[str, object] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event)
            value = self._value(self._next(), depth + 1)
            if key in values:
                self.repeated.append(key)
            else:
                values[key] = value
        return values

    def _key(self, event: Any) -> str:
        _check_plain(event)
        line = event.start_mark.line
        if not isinstance(event, yaml.ScalarEvent):
            raise NotYaml("a key is a mapping or a list", line)
        if event.implicit[0] and event.value == "<<":
            raise NotPlain("it has a merge key (<<)", line)
        return _printable(event)

    def _list(self, depth: int) -> list[object]:
        values = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            values.append(self._value(event, depth + 1))
        return values

    def _scalar(self, event: Any) -> object:
        text = _printable(event)
        tag = self._loader.resolve(yaml.ScalarNode, text, event.implicit)
        if tag not in _CONVERTED or len(text) > _LONGEST_NUMBER:
            return text
        try:
            value: object = self._loader.construct_object(yaml.ScalarNode(tag, text))
        except ValueError:
            return text
        return text if isinstance(value, float) and not math.isfinite(value) else value


def _check_plain(event: Any) -> None:
    line = event.start_mark.line
    if event.anchor is not None:
        what = "an alias (*" if isinstance(event, yaml.AliasEvent) else "an anchor (&"
        raise NotPlain(f"it has {what}{event.anchor[:40]})", line)
    if event.tag is not None:
        raise NotPlain(f"it has a tag ({event.tag[:40]})", line)


def _printable(event: Any) -> str:
    text: str = event.value
    if _UNPRINTABLE.search(text):
        raise NotPlain("a value has a control character", event.start_mark.line)
    return text
