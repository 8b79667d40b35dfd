"""Change single members of a JSON text, and leave every other character as it is.

The text may have comments. No light library for Python 3.11 does that: json-five is slow and loses
the layout of new members, jsonc-edit runs Node.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

# Far below the depth at which Python's decoder raises RecursionError.
MAX_DEPTH = 200
"""Levels of objects and arrays."""

# Comments and strings first: a bracket inside of them is no token. Other characters are skipped.
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
"""The beginning of a message of the decoder -> the message for a person."""


class JsonError(Exception):
    """The text is no JSON, not even with comments. at: the place of the error."""

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
        same = [member for member in self.members or () if member.key == key]
        if len(same) > 1:
            raise JsonError(f"the key {json.dumps(key)} is there a second time", same[1].start)
        return same[0] if same else None


@dataclass(frozen=True)
class JsonMember:
    """A key with its value, or an item of a list, whose key is ''.

    start: the place of the key. comma: the place of the comma after the value, None without one.
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

    loose: the first thing that strict JSON does not have, and its place.
    """

    root: JsonNode
    loose: tuple[str, int] | None


def parse_jsonc(text: str) -> JsoncDocument:
    """Return the document of a text.

    Comments and commas before a closing bracket are allowed. Raise JsonError.
    """
    source = _Source(text)
    return JsoncDocument(source.root(), source.loose)


def line_and_column(text: str, at: int) -> tuple[int, int]:
    """Return line and column of a character, both from 1."""
    before = text[:at]
    return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1


class _Source:
    """A text with blanks for its comments.

    In `strict`, commas before a closing bracket are blanks too. All places stay as they are.
    """

    def __init__(self, text: str) -> None:
        self.loose: tuple[str, int] | None = None
        blanks: list[tuple[int, int]] = []
        commas: list[tuple[int, int]] = []
        depth, comma, before, last = 0, 0, "", ""
        # `last` and `before` are the last two tokens, `comma` is the place of the last comma.
        for token in _TOKEN.finditer(text):
            at, word = token.start(), token[0]
            if token.lastgroup == "comment":
                self._note_loose("a comment", at)
                blanks.append(token.span())
                continue
            if word in ("{", "["):
                depth += 1
                if depth > MAX_DEPTH:
                    raise JsonError("it is nested too deeply", at)
            elif word in ("}", "]"):
                depth -= 1
                # After an opening bracket or another comma, a comma is an error.
                if last == "," and before not in ("", "{", "[", ",", ":"):
                    self._note_loose("a comma before a closing bracket", comma)
                    commas.append((comma, comma + 1))
            elif word == ",":
                comma = at
            # Python's decoder accepts these, JSON does not.
            elif word in ("NaN", "Infinity", "-Infinity"):
                raise JsonError(f"{word} is no value", at)
            before, last = last, word
        self.plain = _blank_out(text, blanks)
        self.strict = _blank_out(self.plain, commas)

    def _note_loose(self, what: str, at: int) -> None:
        self.loose = self.loose or (what, at)

    def root(self) -> JsonNode:
        """Return the value of the whole text. Raise JsonError."""
        # A byte order mark is one character.
        start = _skip_space(self.strict, self.strict.startswith("\ufeff"))
        try:
            value, end = _DECODER.raw_decode(self.strict, start)
            if (rest := _skip_space(self.strict, end)) < len(self.strict):
                raise json.JSONDecodeError("Extra data", self.strict, rest)
        except json.JSONDecodeError as error:
            messages = (text for begin, text in _MESSAGES.items() if error.msg.startswith(begin))
            message = next(messages, error.msg.lower())
            # An error at the very end means that the text breaks off.
            ended = _skip_space(self.strict, error.pos) == len(self.strict)
            raise JsonError("the file ends too early" if ended else message, error.pos) from None
        except ValueError as error:
            # A number with thousands of digits.
            raise JsonError(str(error), start) from None
        return JsonNode(value, start, end, self)

    def members(self, start: int) -> Iterator[JsonMember]:
        """Yield the members of the object that begins at `start`."""
        at = _skip_space(self.strict, start + 1)
        while self.strict[at] != "}":
            key, end = _DECODER.raw_decode(self.strict, at)
            # After the key, the colon, and the space after each.
            begin = _skip_space(self.strict, _skip_space(self.strict, end) + 1)
            value, end = _DECODER.raw_decode(self.strict, begin)
            # `plain` still has the comma before a closing bracket.
            after = _skip_space(self.plain, end)
            comma = after if self.plain[after] == "," else None
            yield JsonMember(key, at, JsonNode(value, begin, end, self), comma)
            at = _skip_space(self.strict, after if comma is None else after + 1)

    def items(self, start: int) -> Iterator[JsonMember]:
        """Yield the items of the list that begins at `start`."""
        at = _skip_space(self.strict, start + 1)
        while self.strict[at] != "]":
            value, end = _DECODER.raw_decode(self.strict, at)
            after = _skip_space(self.plain, end)
            comma = after if self.plain[after] == "," else None
            yield JsonMember("", at, JsonNode(value, at, end, self), comma)
            at = _skip_space(self.strict, after if comma is None else after + 1)


def _blank_out(text: str, spans: list[tuple[int, int]]) -> str:
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], " " * (end - start)]
        at = end
    return "".join([*parts, text[at:]])


def _skip_space(text: str, at: int) -> int:
    """Return the place of the first character from `at` on that is no white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


EMPTY = "{}\n"
"""The text that an absent or empty file counts as."""


def edit_json(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return the text with `value` at `path`; None takes the member out.

    Missing objects on the way are made. Of an existing object only the members that differ are
    changed. Raise JsonError, and ValueError when something else than an object is on the way, or
    the result does not hold exactly the expected values.
    """
    root = parse_jsonc(text).root
    steps = _plan_steps(root, path, value)
    if not steps:
        return text
    expected = _merge_at(root.value, path, value)
    for step_path, step_value in steps:
        text = _apply_step(text, step_path, step_value)
    # Compared as text: the order of keys counts too, and 1 differs from 1.0.
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
        return {name: part for name, part in value.items() if name != key}
    below = value.get(key, {} if rest else None)
    if not rest and isinstance(below, dict) and isinstance(new, dict):
        # Keys that are there keep their order; new ones follow.
        merged = {name: _merge_at(below, (name,), new[name])[name] for name in below if name in new}
        added = {name: part for name, part in new.items() if name not in below}
        return {**value, key: {**merged, **added}}
    return {**value, key: _merge_at(below, rest, new)}


JsonStep = tuple[tuple[str, ...], Any]


def _plan_steps(root: JsonNode, path: tuple[str, ...], value: Any) -> list[JsonStep]:
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
    return _compare_members(node, path, value)


def _compare_members(node: JsonNode, path: tuple[str, ...], value: Any) -> list[JsonStep]:
    # Another order of keys is no difference.
    if json.dumps(node.value, sort_keys=True) == json.dumps(value, sort_keys=True):
        return []
    if node.members is None or not isinstance(value, dict):
        return [(path, value)]
    steps: list[JsonStep] = [((*path, key), None) for key in node.value if key not in value]
    for key, new in value.items():
        member = node.member(key)
        if member is None:
            steps.append(((*path, key), new))
        else:
            steps += _compare_members(member.value, (*path, key), new)
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
        written = _format_value(text, document, node, value)
        return text[: member.value.start] + written + text[member.end :]
    return _add_part(text, document, node, path[-1], value)


def add_json_item(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return the text with `value` as the last item of the list at `path`.

    A missing list is made. Raise JsonError, and ValueError when no list is there.
    """
    document = parse_jsonc(text)
    node = _find_node(document.root, path)
    if node is None:
        return edit_json(text, path, [value])
    if not isinstance(node.value, list):
        raise ValueError(f"{json.dumps(path[-1])} is no list")
    edited = _add_part(text, document, node, None, value)
    return _check_list(edited, path, [*node.value, value])


def remove_json_items(text: str, path: tuple[str, ...], is_out: Callable[[Any], bool]) -> str:
    """Return the text without the items of the list at `path` of which `is_out` is true.

    An empty list is taken out too, and each object that holds nothing but it. Raise JsonError, and
    ValueError when the result would not hold the expected values.
    """
    node = _find_node(parse_jsonc(text).root, path)
    items = node.value if node is not None and isinstance(node.value, list) else []
    out = [number for number, item in enumerate(items) if is_out(item)]
    if not out:
        return text
    if len(out) == len(items):
        root = parse_jsonc(text).root
        above = _find_node(root, path[:-1])
        while above is not None and above is not root and len(above.parts) == 1:
            path = path[:-1]
            above = _find_node(root, path[:-1])
        return edit_json(text, path, None)
    # From the end, so that the numbers of the other items stay right.
    for number in reversed(out):
        # Parsed again, because all places after the last change have moved.
        node = _find_node(parse_jsonc(text).root, path)
        assert node is not None
        text = _remove_part(text, node, node.parts[number])
    left = [item for number, item in enumerate(items) if number not in out]
    return _check_list(text, path, left)


def _find_node(root: JsonNode, path: tuple[str, ...]) -> JsonNode | None:
    node = root
    for key in path:
        member = node.member(key)
        if member is None:
            return None
        node = member.value
    return node


def _check_list(text: str, path: tuple[str, ...], expected: list[Any]) -> str:
    node = _find_node(parse_jsonc(text).root, path)
    if node is None or json.dumps(node.value) != json.dumps(expected):
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
    # Where the last part has a comma after it, the new one gets one too.
    comma, again = ("", ",") if last.comma is not None else (",", "")
    at = last.end if last.comma is None else last.comma + 1
    if indent is None:
        return f"{text[:at]}{comma} {line}{again}{text[at:]}"
    after = _skip_remarks(text, at)
    remarks, newline = text[at:after], _find_newline(text)
    return f"{text[:at]}{comma}{remarks}{newline}{indent}{line}{again}{text[after:]}"


def _fill_empty(text: str, document: JsoncDocument, node: JsonNode, line: str) -> str:
    """Return the text with a first member in an empty object or list, which may have comments."""
    inside = text[node.start + 1 : node.end - 1].rstrip()
    newline, outer = _find_newline(text), _indent_at(text, node.start)
    if not inside and _is_inline(text, document):
        return f"{text[: node.start + 1]}{line}{text[node.end - 1 :]}"
    inner = outer + _find_unit(text, document)
    before, after = text[: node.start + 1], text[node.end - 1 :]
    return f"{before}{inside}{newline}{inner}{line}{newline}{outer}{after}"


def _remove_part(text: str, node: JsonNode, member: JsonMember) -> str:
    """Return the text without a member; comments around it stay."""
    members = node.parts
    at = members.index(member)
    end = member.end if member.comma is None else member.comma + 1
    before = members[at - 1] if at else None
    start = member.start
    around = text[node.start + 1 : start] + text[end : node.end - 1]
    # The only member, with no comment beside it, leaves an empty pair of brackets.
    if len(members) == 1 and not around.strip():
        return f"{text[: node.start + 1]}{text[node.end - 1 :]}"
    line_start = text.rfind("\n", 0, start) + 1
    blank_before = not text[line_start:start].strip()
    line_end = text.find("\n", end)
    # Of a member that fills its lines, the lines go. Beside others, only the space before it goes.
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
    rest = text[:start] + (remark and remark + _find_newline(text)) + text[end:]
    # The member was the last one: the member before it is the last now, and loses its comma.
    if member.comma is None and before is not None and before.comma is not None:
        rest = rest[: before.comma] + rest[before.comma + 1 :]
    return rest


def _format_value(text: str, document: JsoncDocument, node: JsonNode, value: Any) -> str:
    """Return a value as JSON in the layout of the file, as it stands in a member of `node`."""
    members = _indent_of_members(text, node)
    if _is_inline(text, document) or (node.parts and members is None):
        return json.dumps(value, ensure_ascii=False)
    unit = _find_unit(text, document)
    indent = members if members is not None else _indent_at(text, node.start) + unit
    written = json.dumps(value, ensure_ascii=False, indent=unit)
    return written.replace("\n", _find_newline(text) + indent)


def _is_inline(text: str, document: JsoncDocument) -> bool:
    """Return whether the whole file is written without line breaks between its members."""
    return bool(document.root.members) and _indent_of_members(text, document.root) is None


def _find_unit(text: str, document: JsoncDocument) -> str:
    return _indent_of_members(text, document.root) or "  "


def _indent_of_members(text: str, node: JsonNode) -> str | None:
    """Return the indent of the last member that begins a line, None where no member does."""
    for member in reversed(node.parts):
        indent = text[text.rfind("\n", 0, member.start) + 1 : member.start]
        if "\n" in text[node.start : member.start] and not indent.strip(" \t"):
            return indent
    return None


def _indent_at(text: str, at: int) -> str:
    """Return the white space that the line of a character begins with."""
    line = text[text.rfind("\n", 0, at) + 1 : at].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _skip_remarks(text: str, at: int) -> int:
    """Return the end of the comments that begin on this line, after the text before them."""
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


def _find_newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
