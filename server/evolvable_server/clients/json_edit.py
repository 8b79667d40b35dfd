"""Change single members of a JSON text, with or without comments, and leave every other character as it is.

No light library for Python 3.11 does that: json-five drops speed and the layout of what is added, jsonc-edit runs Node.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_DEPTH = 200
"""How deep objects and arrays may lie in each other."""

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<comment>//[^\r\n]*|/\*.*?\*/)
      | (?P<string>"(?:[^"\\\x00-\x1f]|\\.)*")
      | (?P<mark>[{}\[\],:])
      | (?P<word>[-+.\w]+)""",
    re.VERBOSE | re.DOTALL,
)


class JsonError(Exception):
    """The text is no JSON, not even with comments. at: the character where that shows."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.at = at


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value and its place: text[start:end]. members: of an object, in order; None for any other value."""

    value: Any
    start: int
    end: int
    members: "tuple[JsonMember, ...] | None" = None

    def member(self, key: str) -> "JsonMember | None":
        """Return the member of this name. Raise JsonError when there are two."""
        found = [member for member in self.members or () if member.key == key]
        if len(found) > 1:
            raise JsonError(f"the key {json.dumps(key)} is there a second time", found[1].start)
        return found[0] if found else None


@dataclass(frozen=True, slots=True)
class JsonMember:
    """A key with its value. start: of the key; comma: where the comma after the value stands, None without one."""

    key: str
    start: int
    value: JsonNode
    comma: int | None

    @property
    def end(self) -> int:
        return self.value.end


@dataclass(frozen=True, slots=True)
class JsoncDocument:
    """A text as it was read. loose: the first thing that strict JSON does not have, and where it stands."""

    root: JsonNode
    loose: tuple[str, int] | None


def parse_jsonc(text: str) -> JsoncDocument:
    """Return what a text holds. Comments and commas before a closing bracket are allowed. Raise JsonError."""
    return _Reader(text).document()


def line_and_column(text: str, at: int) -> tuple[int, int]:
    """Return line and column of a character, both from 1."""
    before = text[:at]
    return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._loose: tuple[str, int] | None = None
        self._tokens = self._scan()
        self._next = next(self._tokens)

    def document(self) -> JsoncDocument:
        root = self._value(0)
        if self._next.kind != "end":
            self._fail("here the file should end")
        return JsoncDocument(root, self._loose)

    def _scan(self) -> Iterator[_Token]:
        text = self._text
        at = 1 if text.startswith("\ufeff") else 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise JsonError(self._unreadable(at), at)
            at = match.end()
            if match.lastgroup == "comment":
                self._loosen("a comment", match.start())
            elif match.lastgroup != "space":
                yield _Token(str(match.lastgroup), match[0], match.start(), match.end())
        yield _Token("end", "", at, at)

    def _unreadable(self, at: int) -> str:
        if self._text[at] == '"':
            return "this text in quotes is not closed on its line"
        if self._text.startswith("/*", at):
            return "this comment is not closed"
        return f"{self._text[at]!a} does not belong here"

    def _loosen(self, what: str, at: int) -> None:
        self._loose = self._loose or (what, at)

    def _take(self) -> _Token:
        token, self._next = self._next, next(self._tokens, self._next)
        return token

    def _fail(self, what: str) -> NoReturn:
        raise JsonError("the file ends too early" if self._next.kind == "end" else what, self._next.start)

    def _value(self, depth: int) -> JsonNode:
        token = self._next
        if depth > MAX_DEPTH:
            self._fail("it is nested too deeply")
        if token.text == "{":
            return self._object(depth)
        if token.text == "[":
            return self._array(depth)
        if token.kind not in ("string", "word"):
            self._fail("a value is missing")
        self._take()
        return JsonNode(self._plain(token), token.start, token.end)

    def _plain(self, token: _Token) -> Any:
        try:
            return json.loads(token.text, parse_constant=self._no_constant)
        except (ValueError, RecursionError):
            what = (
                "this text in quotes has a bad escape" if token.kind == "string" else f"{token.text[:40]!a} is no value"
            )
            raise JsonError(what, token.start) from None

    @staticmethod
    def _no_constant(name: str) -> NoReturn:
        raise ValueError(name)

    def _object(self, depth: int) -> JsonNode:
        start = self._take().start
        members: list[JsonMember] = []
        while self._next.text != "}":
            if self._next.kind != "string":
                self._fail("a key in double quotes should stand here")
            key = self._take()
            if self._next.text != ":":
                self._fail("a colon is missing before this")
            self._take()
            value = self._value(depth + 1)
            members.append(JsonMember(self._plain(key), key.start, value, self._comma("}")))
        end = self._take().end
        return JsonNode({member.key: member.value.value for member in members}, start, end, tuple(members))

    def _array(self, depth: int) -> JsonNode:
        start = self._take().start
        items = []
        while self._next.text != "]":
            items.append(self._value(depth + 1).value)
            self._comma("]")
        return JsonNode(items, start, self._take().end)

    def _comma(self, closing: str) -> int | None:
        """Take the comma after an element; return where it stands, None when the closing bracket follows."""
        if self._next.text == closing:
            return None
        if self._next.text != ",":
            self._fail("a comma is missing before this")
        comma = self._take()
        if self._next.text == closing:
            self._loosen("a comma before a closing bracket", comma.start)
        return comma.start


EMPTY = "{}\n"
"""The text that an absent or empty file counts as."""


def edit_json(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return the text with `value` at `path`; None takes the member out. Missing objects on the way are made.

    Of an object that is there only the members that differ are touched. Raise JsonError, and ValueError when something
    else than an object is on the way, or the result does not hold exactly what it should.
    """
    root = parse_jsonc(text).root
    steps = _steps(root, path, value)
    if not steps:
        return text
    expected = _with(root.value, path, value)
    for where, what in steps:
        text = _one(text, where, what)
    if _ordered(parse_jsonc(text).root.value) != _ordered(expected):
        raise ValueError("the edited text does not hold what it should")
    return text


def _ordered(value: Any) -> str:
    return json.dumps(value)


def _with(value: Any, path: tuple[str, ...], new: Any) -> Any:
    """Return the value with `new` at the path, merged key by key; keys keep their order."""
    if not path:
        return new
    if not isinstance(value, dict):
        raise ValueError(f"{json.dumps(path[0])} cannot be in it, because it is no object")
    key, rest = path[0], path[1:]
    if not rest and new is None:
        return {k: v for k, v in value.items() if k != key}
    below = value.get(key, {} if rest else None)
    if not rest and isinstance(below, dict) and isinstance(new, dict):
        kept = {k: _with(below, (k,), new[k])[k] for k in below if k in new}
        return {**value, key: {**kept, **{k: v for k, v in new.items() if k not in below}}}
    return {**value, key: _with(below, rest, new)}


JsonStep = tuple[tuple[str, ...], Any]


def _steps(root: JsonNode, path: tuple[str, ...], value: Any) -> list[JsonStep]:
    """Return the single changes, each of one member, that lead to `value` at `path`."""
    node = root
    for depth, key in enumerate(path):
        member = node.member(key)
        if member is None:
            if value is None:
                return []
            for outer in reversed(path[depth + 1 :]):
                value = {outer: value}
            return [(path[: depth + 1], value)]
        if depth < len(path) - 1 and member.value.members is None:
            raise ValueError(f"{json.dumps(key)} is no object")
        node = member.value
    return _differences(node, path, value)


def _differences(node: JsonNode, path: tuple[str, ...], value: Any) -> list[JsonStep]:
    if json.dumps(node.value, sort_keys=True) == json.dumps(value, sort_keys=True):
        return []
    if node.members is None or not isinstance(value, dict):
        return [(path, value)]
    steps: list[JsonStep] = [((*path, key), None) for key in node.value if key not in value]
    for key, new in value.items():
        member = node.member(key)
        steps += [((*path, key), new)] if member is None else _differences(member.value, (*path, key), new)
    return steps


def _one(text: str, path: tuple[str, ...], value: Any) -> str:
    document = parse_jsonc(text)
    node = document.root
    for key in path[:-1]:
        member = node.member(key)
        assert member is not None
        node = member.value
    member = node.member(path[-1])
    if value is None:
        return _without(text, node, member) if member else text
    if member is not None:
        return text[: member.value.start] + _written(text, document, node, value) + text[member.end :]
    return _added(text, document, node, path[-1], value)


def _added(text: str, document: JsoncDocument, node: JsonNode, key: str, value: Any) -> str:
    line = f"{json.dumps(key, ensure_ascii=False)}: {_written(text, document, node, value)}"
    if not node.members:
        return _filled(text, document, node, line)
    last = node.members[-1]
    indent = _indent_of_members(text, node)
    comma, again = ("", ",") if last.comma is not None else (",", "")
    at = last.end if last.comma is None else last.comma + 1
    if indent is None:
        return f"{text[:at]}{comma} {line}{again}{text[at:]}"
    after = _end_of_remarks(text, at)
    return f"{text[:at]}{comma}{text[at:after]}{_newline(text)}{indent}{line}{again}{text[after:]}"


def _filled(text: str, document: JsoncDocument, node: JsonNode, line: str) -> str:
    """Return the text with a first member in an empty object; what stands in it are comments at most."""
    inside = text[node.start + 1 : node.end - 1].rstrip()
    newline, outer = _newline(text), _indent_at(text, node.start)
    if not inside and _is_inline(text, document):
        return f"{text[: node.start]}{{{line}{text[node.end - 1 :]}"
    inner = outer + _unit(text, document)
    return f"{text[: node.start]}{{{inside}{newline}{inner}{line}{newline}{outer}{text[node.end - 1 :]}"


def _without(text: str, node: JsonNode, member: JsonMember) -> str:
    """Return the text without a member; comments around it stay."""
    assert node.members is not None
    at = node.members.index(member)
    end = member.end if member.comma is None else member.comma + 1
    before = node.members[at - 1] if at else None
    start = member.start
    if len(node.members) == 1 and not text[node.start + 1 : start].strip() and not text[end : node.end - 1].strip():
        return f"{text[: node.start]}{{}}{text[node.end :]}"
    line_start = text.rfind("\n", 0, start) + 1
    blank_before = not text[line_start:start].strip()
    line_end = text.find("\n", end)
    if blank_before and line_end >= 0 and not text[end:line_end].strip():
        start, end = line_start, line_end + 1
    elif not blank_before:
        while text[start - 1] in " \t":
            start -= 1
        if before is None:
            while text[end] in " \t":
                end += 1
    # A remark may stand between the value and its comma.
    remark = text[member.end : member.comma].strip() if member.comma is not None else ""
    rest = text[:start] + (remark and remark + _newline(text)) + text[end:]
    if member.comma is None and before is not None and before.comma is not None:
        rest = rest[: before.comma] + rest[before.comma + 1 :]
    return rest


def _written(text: str, document: JsoncDocument, node: JsonNode, value: Any) -> str:
    """Return a value as JSON in the layout of the file, as it stands in a member of `node`."""
    members = _indent_of_members(text, node)
    if _is_inline(text, document) or (node.members and members is None):
        return json.dumps(value, ensure_ascii=False)
    unit = _unit(text, document)
    indent = members if members is not None else _indent_at(text, node.start) + unit
    return json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", _newline(text) + indent)


def _is_inline(text: str, document: JsoncDocument) -> bool:
    """Return whether the whole file is written without line breaks between its members."""
    return bool(document.root.members) and _indent_of_members(text, document.root) is None


def _unit(text: str, document: JsoncDocument) -> str:
    return _indent_of_members(text, document.root) or "  "


def _indent_of_members(text: str, node: JsonNode) -> str | None:
    """Return what the last member's line begins with; None when members stand side by side or there are none."""
    for member in reversed(node.members or ()):
        indent = text[text.rfind("\n", 0, member.start) + 1 : member.start]
        if "\n" in text[node.start : member.start] and not indent.strip(" \t"):
            return indent
    return None


def _indent_at(text: str, at: int) -> str:
    """Return the white space that the line of a character begins with."""
    line = text[text.rfind("\n", 0, at) + 1 : at].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _end_of_remarks(text: str, at: int) -> int:
    """Return where the comments end that begin on this line: they belong to what stands before them."""
    end = at
    while True:
        while at < len(text) and text[at] in " \t":
            at += 1
        if text.startswith("//", at):
            stop = text.find("\n", at)
            stop = len(text) if stop < 0 else stop
            return stop - 1 if text[stop - 1] == "\r" else stop
        if not text.startswith("/*", at):
            return end
        end = at = text.index("*/", at) + 2


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
