"""Reads JSON with comments, and remembers where everything stands, so that a text can be edited in place.

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
class Node:
    """A value and its place: text[start:end]. members: of an object, in order; None for any other value."""

    value: Any
    start: int
    end: int
    members: "tuple[Member, ...] | None" = None

    def member(self, key: str) -> "Member | None":
        """Returns the member of this name. Raises JsonError when there are two."""
        found = [member for member in self.members or () if member.key == key]
        if len(found) > 1:
            raise JsonError(f"the key {json.dumps(key)} is there a second time", found[1].start)
        return found[0] if found else None


@dataclass(frozen=True, slots=True)
class Member:
    """A key with its value. start: of the key; comma: where the comma after the value stands, None without one."""

    key: str
    start: int
    value: Node
    comma: int | None

    @property
    def end(self) -> int:
        return self.value.end


@dataclass(frozen=True, slots=True)
class Document:
    """A text as it was read. loose: the first thing that strict JSON does not have, and where it stands."""

    root: Node
    loose: tuple[str, int] | None


def read(text: str) -> Document:
    """Returns what a text holds. Comments and commas before a closing bracket are allowed. Raises JsonError."""
    return _Reader(text).document()


def position(text: str, at: int) -> tuple[int, int]:
    """Returns line and column of a character, both from 1."""
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

    def document(self) -> Document:
        root = self._value(0)
        if self._next.kind != "end":
            self._fail("here the file should end")
        return Document(root, self._loose)

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

    def _value(self, depth: int) -> Node:
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
        return Node(self._plain(token), token.start, token.end)

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

    def _object(self, depth: int) -> Node:
        start = self._take().start
        members: list[Member] = []
        while self._next.text != "}":
            if self._next.kind != "string":
                self._fail("a key in double quotes should stand here")
            key = self._take()
            if self._next.text != ":":
                self._fail("a colon is missing before this")
            self._take()
            value = self._value(depth + 1)
            members.append(Member(self._plain(key), key.start, value, self._comma("}")))
        end = self._take().end
        return Node({member.key: member.value.value for member in members}, start, end, tuple(members))

    def _array(self, depth: int) -> Node:
        start = self._take().start
        items = []
        while self._next.text != "]":
            items.append(self._value(depth + 1).value)
            self._comma("]")
        return Node(items, start, self._take().end)

    def _comma(self, closing: str) -> int | None:
        """Takes the comma after an element; returns where it stands, None when the closing bracket follows."""
        if self._next.text == closing:
            return None
        if self._next.text != ",":
            self._fail("a comma is missing before this")
        comma = self._take()
        if self._next.text == closing:
            self._loosen("a comma before a closing bracket", comma.start)
        return comma.start
