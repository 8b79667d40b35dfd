"""Reads one large JSON object piece by piece: its values, and the elements of its lists one at a time."""

import codecs
import json
from collections.abc import Iterator
from typing import IO, Any

from evolvable_store.errors import InvalidArchive, TooLarge

MAX_PIECE = 48 * 2**20
"""Characters of one value or element: the largest file, every character of it escaped, and some room."""

_CHUNK = 2**18
_BLANK = " \t\r\n"
_decode = json.JSONDecoder().raw_decode


def pieces(stream: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """Yields (key, value) of the object in `stream`; for a list, (key, element) for each of its elements.

    Raises InvalidArchive where the text is not UTF-8, not JSON or not one object, TooLarge for an endless piece.
    """
    text = _Text(stream)
    text.expect("{")
    if text.skip() == "}":
        text.expect("}")
    else:
        while True:
            key = text.value()
            if not isinstance(key, str):
                raise _broken()
            text.expect(":")
            if text.skip() == "[":
                yield from ((key, element) for element in _elements(text))
            else:
                yield key, text.value()
            if text.expect(",}") == "}":
                break
    if text.skip():
        raise _broken()


def _elements(text: "_Text") -> Iterator[Any]:
    text.expect("[")
    if text.skip() == "]":
        text.expect("]")
        return
    while True:
        yield text.value()
        if text.expect(",]") == "]":
            return


class _Text:
    """A window over the text of a stream, that grows to hold one piece."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._decoder = stream, codecs.getincrementaldecoder("utf-8-sig")()
        self._window, self._at, self._ended = "", 0, False

    def skip(self) -> str:
        """Returns the next character that is not blank, without taking it; '' at the end."""
        while True:
            while self._at < len(self._window):
                if self._window[self._at] not in _BLANK:
                    return self._window[self._at]
                self._at += 1
            if not self._more():
                return ""

    def expect(self, wanted: str) -> str:
        """Takes and returns the next character, which is one of `wanted`."""
        character = self.skip()
        if not character or character not in wanted:
            raise _broken()
        self._at += 1
        return character

    def value(self) -> Any:
        """Takes and returns the next value."""
        self.skip()
        while True:
            try:
                value, end = _decode(self._window, self._at)
                # A number at the end of the window may go on behind it ('' is in every text).
                if self._window[end : end + 1] not in ".eE" or not self._more():
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                if not self._more():
                    raise _broken() from error
            except (ValueError, RecursionError) as error:  # numbers of thousands of digits, brackets without end
                raise _broken() from error

    def _more(self) -> bool:
        """Reads on, as much again as there is, so that a long piece is not parsed over and over."""
        if self._ended:
            return False
        rest = self._window[self._at :]
        if len(rest) > MAX_PIECE:
            raise TooLarge("A part of the archive is too large.", f"The limit is {MAX_PIECE:,} characters.")
        data = self._stream.read(max(_CHUNK, len(rest)))
        self._ended = not data
        try:
            self._window, self._at = rest + self._decoder.decode(data, final=self._ended), 0
        except UnicodeDecodeError as error:
            raise _broken() from error
        return not self._ended


def _broken() -> InvalidArchive:
    return InvalidArchive(
        "The archive is cut off or is not JSON as `evolvable export` writes it.", "Nothing was taken in; export again."
    )
