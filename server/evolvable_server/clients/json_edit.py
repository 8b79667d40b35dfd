"""Change single members of a JSON text, with or without comments, and leave every other character
as it is.

No light library for Python 3.11 does that: json-five drops speed and the layout of what is added,
jsonc-edit runs Node.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

# Far below the depth at which Python's decoder raises RecursionError.
MAX_DEPTH = 200
"""How deep objects and arrays may lie in each other."""

# Comments and strings first, because marks inside of them are none. Characters between the tokens
# are passed over.
_TOKEN = re.compile(
    r"""(?P<comment>//[^\r\n]*|/\*.*?\*/)
      | (?P<string>"(?:[^"\\\r\n]|\\.)*")
      | (?P<mark>[{}\[\],:])
      | (?P<word>[^\s"{}\[\],:/\ufeff]+)""",
    re.VERBOSE | re.DOTALL,
)
_DECODER = json.JSONDecoder()
# White space as JSON defines it; `str.isspace` knows more.
_SPACE = re.compile(r"[ \t\r\n]*")

_MESSAGES = {
    "Expecting value": "a value is missing, or it is none",
    "Expecting ',' delimiter": "a comma is missing before this",
    "Expecting ':' delimiter": "a colon is missing before this",
    "Expecting property name": "a key in double quotes should stand here",
    "Unterminated string": "this text in quotes is not closed",
    "Invalid control character": "this text in quotes is not closed on its line",
    "Invalid \\": "this text in quotes has a bad escape",
    "Extra data": "here the file should end",
}
"""How a message of the decoder begins -> what a person is told."""


class JsonError(Exception):
    """The text is no JSON, not even with comments. at: the character where that shows."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.at = at


@dataclass(frozen=True)
class JsonNode:
    """A value and its place: text[start:end]. source: the document's text, see `_Source`."""

    value: Any
    start: int
    end: int
    source: "_Source" = field(repr=False, compare=False)

    @cached_property
    def members(self) -> "tuple[JsonMember, ...] | None":
        """The members of an object, in order; None for any other value."""
        return tuple(self.source.members(self.start)) if isinstance(self.value, dict) else None

    @cached_property
    def parts(self) -> "tuple[JsonMember, ...]":
        """The members of an object or the items of a list, in order; none of any other value."""
        if isinstance(self.value, list):
            return tuple(self.source.items(self.start))
        return self.members or ()

    def member(self, key: str) -> "JsonMember | None":
        """Return the member of this name. Raise JsonError when there are two."""
        found = [member for member in self.members or () if member.key == key]
        if len(found) > 1:
            raise JsonError(f"the key {json.dumps(key)} is there a second time", found[1].start)
        return found[0] if found else None


@dataclass(frozen=True)
class JsonMember:
    """A key with its value, or an item of a list, whose key is ''.

    start: of the key; comma: where the comma after the value stands, None without one.
    """

    key: str
    start: int
    value: JsonNode
    comma: int | None

    @property
    def end(self) -> int:
        return self.value.end


@dataclass(frozen=True, slots=True)
class JsoncDocument:
    """A text as it was read.

    loose: the first thing that strict JSON does not have, and where it stands.
    """

    root: JsonNode
    loose: tuple[str, int] | None


def parse_jsonc(text: str) -> JsoncDocument:
    """Return what a text holds.

    Comments and commas before a closing bracket are allowed. Raise JsonError.
    """
    source = _Source(text)
    return JsoncDocument(source.root(), source.loose)


def line_and_column(text: str, at: int) -> tuple[int, int]:
    """Return line and column of a character, both from 1."""
    before = text[:at]
    return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1


class _Source:
    """A text whose comments, and in `strict` the commas before a closing bracket too, are blanks of
    the same length.
    """

    def __init__(self, text: str) -> None:
        self.loose: tuple[str, int] | None = None
        blanks: list[tuple[int, int]] = []
        commas: list[tuple[int, int]] = []
        depth, comma, before, last = 0, 0, "", ""
        # One pass finds comments, commas before a closing bracket, and what no JSON may hold.
        for token in _TOKEN.finditer(text):
            at, word = token.start(), token[0]
            if token.lastgroup == "comment":
                self._loosen("a comment", at)
                blanks.append(token.span())
                continue
            if word in ("{", "["):
                depth += 1
                if depth > MAX_DEPTH:
                    raise JsonError("it is nested too deeply", at)
            elif word in ("}", "]"):
                depth -= 1
                # Behind an opening bracket or another comma, a comma is an error.
                if last == "," and before not in ("", "{", "[", ",", ":"):
                    self._loosen("a comma before a closing bracket", comma)
                    commas.append((comma, comma + 1))
            elif word == ",":
                comma = at
            # Python's decoder takes these, JSON does not.
            elif word in ("NaN", "Infinity", "-Infinity"):
                raise JsonError(f"{word} is no value", at)
            before, last = last, word
        self.plain = _blank_out(text, blanks)
        self.strict = _blank_out(self.plain, commas)

    def _loosen(self, what: str, at: int) -> None:
        self.loose = self.loose or (what, at)

    def root(self) -> JsonNode:
        """Return the value of the whole text. Raise JsonError."""
        # A byte order mark is one character.
        start = _after_space(self.strict, self.strict.startswith("\ufeff"))
        try:
            value, end = _DECODER.raw_decode(self.strict, start)
            if (rest := _after_space(self.strict, end)) < len(self.strict):
                raise json.JSONDecodeError("Extra data", self.strict, rest)
        except json.JSONDecodeError as error:
            message = next(
                (message for begin, message in _MESSAGES.items() if error.msg.startswith(begin)),
                error.msg.lower(),
            )
            # An error at the very end means that the text breaks off.
            ended = _after_space(self.strict, error.pos) == len(self.strict)
            raise JsonError("the file ends too early" if ended else message, error.pos) from None
        except ValueError as error:  # a number with thousands of digits
            raise JsonError(str(error), start) from None
        return JsonNode(value, start, end, self)

    def members(self, start: int) -> Iterator[JsonMember]:
        """Yield the members of the object that begins there."""
        at = _after_space(self.strict, start + 1)
        while self.strict[at] != "}":
            key, end = _DECODER.raw_decode(self.strict, at)
            # Behind the key, the colon, and the space after each.
            begin = _after_space(self.strict, _after_space(self.strict, end) + 1)
            value, end = _DECODER.raw_decode(self.strict, begin)
            # `plain` still has the comma before a closing bracket.
            after = _after_space(self.plain, end)
            comma = after if self.plain[after] == "," else None
            yield JsonMember(key, at, JsonNode(value, begin, end, self), comma)
            at = _after_space(self.strict, after if comma is None else after + 1)

    def items(self, start: int) -> Iterator[JsonMember]:
        """Yield the items of the list that begins there."""
        at = _after_space(self.strict, start + 1)
        while self.strict[at] != "]":
            value, end = _DECODER.raw_decode(self.strict, at)
            after = _after_space(self.plain, end)
            comma = after if self.plain[after] == "," else None
            yield JsonMember("", at, JsonNode(value, at, end, self), comma)
            at = _after_space(self.strict, after if comma is None else after + 1)


def _blank_out(text: str, spans: list[tuple[int, int]]) -> str:
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], " " * (end - start)]
        at = end
    return "".join([*parts, text[at:]])


def _after_space(text: str, at: int) -> int:
    """Return where the white space ends that begins there."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


EMPTY = "{}\n"
"""The text that an absent or empty file counts as."""


def edit_json(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return the text with `value` at `path`; None takes the member out. Missing objects on the way
    are made.

    Of an object that is there only the members that differ are touched. Raise JsonError, and
    ValueError when something else than an object is on the way, or the result does not hold exactly
    what it should.
    """
    root = parse_jsonc(text).root
    steps = _steps(root, path, value)
    if not steps:
        return text
    expected = _merge_at(root.value, path, value)
    for where, what in steps:
        text = _apply_step(text, where, what)
    # As text: that compares the order of keys too, and 1 with 1.0.
    if json.dumps(parse_jsonc(text).root.value) != json.dumps(expected):
        raise ValueError("the edited text does not hold what it should")
    return text


def _merge_at(value: Any, path: tuple[str, ...], new: Any) -> Any:
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
        # Keys that are there keep their order; new ones come behind them.
        merged = {k: _merge_at(below, (k,), new[k])[k] for k in below if k in new}
        return {
            **value,
            key: {**merged, **{k: v for k, v in new.items() if k not in below}},
        }
    return {**value, key: _merge_at(below, rest, new)}


JsonStep = tuple[tuple[str, ...], Any]


def _steps(root: JsonNode, path: tuple[str, ...], value: Any) -> list[JsonStep]:
    """Return the single changes, each of one member, that lead to `value` at `path`."""
    node = root
    for depth, key in enumerate(path):
        member = node.member(key)
        if member is None:
            if value is None:
                return []
            # Objects that are missing on the way are made around the value.
            for outer in reversed(path[depth + 1 :]):
                value = {outer: value}
            return [(path[: depth + 1], value)]
        if depth < len(path) - 1 and member.value.members is None:
            raise ValueError(f"{json.dumps(key)} is no object")
        node = member.value
    return _differences(node, path, value)


def _differences(node: JsonNode, path: tuple[str, ...], value: Any) -> list[JsonStep]:
    # Another order of keys is no difference.
    if json.dumps(node.value, sort_keys=True) == json.dumps(value, sort_keys=True):
        return []
    if node.members is None or not isinstance(value, dict):
        return [(path, value)]
    steps: list[JsonStep] = [((*path, key), None) for key in node.value if key not in value]
    for key, new in value.items():
        member = node.member(key)
        steps += (
            [((*path, key), new)]
            if member is None
            else _differences(member.value, (*path, key), new)
        )
    return steps


def _apply_step(text: str, path: tuple[str, ...], value: Any) -> str:
    document = parse_jsonc(text)
    node = document.root
    for key in path[:-1]:
        member = node.member(key)
        if member is None:
            raise JsonError(f"it has no {key!r} any more", node.start)
        node = member.value
    member = node.member(path[-1])
    if value is None:
        return _remove_part(text, node, member) if member else text
    if member is not None:
        return (
            text[: member.value.start]
            + _format_value(text, document, node, value)
            + text[member.end :]
        )
    return _add_part(text, document, node, path[-1], value)


def add_json_item(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return the text with `value` behind the other items of the list at `path`, which is made
    where it is missing.

    Raise JsonError, and ValueError when something else than a list is there.
    """
    document = parse_jsonc(text)
    node = _node_at(document.root, path)
    if node is None:
        return edit_json(text, path, [value])
    if not isinstance(node.value, list):
        raise ValueError(f"{json.dumps(path[-1])} is no list")
    return _check_list(_add_part(text, document, node, None, value), path, [*node.value, value])


def remove_json_items(text: str, path: tuple[str, ...], is_out: Callable[[Any], bool]) -> str:
    """Return the text without some items of the list at `path`; without the list, and the objects
    that only held it.

    Raise JsonError, and ValueError when the result would not hold what it should.
    """
    node = _node_at(parse_jsonc(text).root, path)
    items = node.value if node is not None and isinstance(node.value, list) else []
    out = [number for number, item in enumerate(items) if is_out(item)]
    if not out:
        return text
    if len(out) == len(items):
        root = parse_jsonc(text).root
        while (
            (above := _node_at(root, path[:-1])) is not None
            and above is not root
            and len(above.parts) == 1
        ):
            path = path[:-1]
        return edit_json(text, path, None)
    # From the end, so that the numbers of the other items stay right.
    for number in reversed(out):
        # Parsed again, because all places behind the last change have moved.
        node = _node_at(parse_jsonc(text).root, path)
        assert node is not None
        text = _remove_part(text, node, node.parts[number])
    return _check_list(text, path, [item for number, item in enumerate(items) if number not in out])


def _node_at(root: JsonNode, path: tuple[str, ...]) -> JsonNode | None:
    node = root
    for key in path:
        member = node.member(key)
        if member is None:
            return None
        node = member.value
    return node


def _check_list(text: str, path: tuple[str, ...], expected: list[Any]) -> str:
    found = _node_at(parse_jsonc(text).root, path)
    if found is None or json.dumps(found.value) != json.dumps(expected):
        raise ValueError("the edited text does not hold what it should")
    return text


def _add_part(
    text: str, document: JsoncDocument, node: JsonNode, key: str | None, value: Any
) -> str:
    """Return the text with a member of an object, or an item of a list, whose key is None."""
    written = _format_value(text, document, node, value)
    line = written if key is None else f"{json.dumps(key, ensure_ascii=False)}: {written}"
    if not node.parts:
        return _fill_empty(text, document, node, line)
    last = node.parts[-1]
    indent = _indent_of_members(text, node)
    # A file that ends its lists with a comma goes on to do so.
    comma, again = ("", ",") if last.comma is not None else (",", "")
    at = last.end if last.comma is None else last.comma + 1
    if indent is None:
        return f"{text[:at]}{comma} {line}{again}{text[at:]}"
    after = _end_of_remarks(text, at)
    return f"{text[:at]}{comma}{text[at:after]}{_newline(text)}{indent}{line}{again}{text[after:]}"


def _fill_empty(text: str, document: JsoncDocument, node: JsonNode, line: str) -> str:
    """Return the text with a first member in an empty object or list.

    What stands in it are comments at most.
    """
    inside = text[node.start + 1 : node.end - 1].rstrip()
    newline, outer = _newline(text), _indent_at(text, node.start)
    if not inside and _is_inline(text, document):
        return f"{text[: node.start + 1]}{line}{text[node.end - 1 :]}"
    inner = outer + _unit(text, document)
    before, after = text[: node.start + 1], text[node.end - 1 :]
    return f"{before}{inside}{newline}{inner}{line}{newline}{outer}{after}"


def _remove_part(text: str, node: JsonNode, member: JsonMember) -> str:
    """Return the text without a member; comments around it stay."""
    members = node.parts
    at = members.index(member)
    end = member.end if member.comma is None else member.comma + 1
    before = members[at - 1] if at else None
    start = member.start
    if (
        len(members) == 1
        and not text[node.start + 1 : start].strip()
        and not text[end : node.end - 1].strip()
    ):
        return f"{text[: node.start + 1]}{text[node.end - 1 :]}"
    line_start = text.rfind("\n", 0, start) + 1
    blank_before = not text[line_start:start].strip()
    line_end = text.find("\n", end)
    # A member that fills its lines takes them along; beside others, only the space before it goes.
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
    # It was the last one: the member before it is the last now, and loses its comma.
    if member.comma is None and before is not None and before.comma is not None:
        rest = rest[: before.comma] + rest[before.comma + 1 :]
    return rest


def _format_value(text: str, document: JsoncDocument, node: JsonNode, value: Any) -> str:
    """Return a value as JSON in the layout of the file, as it stands in a member of `node`."""
    members = _indent_of_members(text, node)
    # In the style of the file: on one line, or indented as its neighbours.
    if _is_inline(text, document) or (node.parts and members is None):
        return json.dumps(value, ensure_ascii=False)
    unit = _unit(text, document)
    indent = members if members is not None else _indent_at(text, node.start) + unit
    return json.dumps(value, ensure_ascii=False, indent=unit).replace(
        "\n",
        _newline(text) + indent,
    )


def _is_inline(text: str, document: JsoncDocument) -> bool:
    """Return whether the whole file is written without line breaks between its members."""
    return bool(document.root.members) and _indent_of_members(text, document.root) is None


def _unit(text: str, document: JsoncDocument) -> str:
    return _indent_of_members(text, document.root) or "  "


def _indent_of_members(text: str, node: JsonNode) -> str | None:
    """Return what the last member's line begins with; None when members stand side by side or there
    are none.
    """
    for member in reversed(node.parts):
        indent = text[text.rfind("\n", 0, member.start) + 1 : member.start]
        if "\n" in text[node.start : member.start] and not indent.strip(" \t"):
            return indent
    return None


def _indent_at(text: str, at: int) -> str:
    """Return the white space that the line of a character begins with."""
    line = text[text.rfind("\n", 0, at) + 1 : at].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _end_of_remarks(text: str, at: int) -> int:
    """Return where the comments end that begin on this line: they belong to what stands before
    them.
    """
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
