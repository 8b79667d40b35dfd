"""A file of JSON lines, read one by one: what is no JSON object is left out, and a last line without its end too."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

MAX_LINE = 32 * 1024 * 1024
"""Bytes of a line that is read; a longer one is left out."""

_BOM = b"\xef\xbb\xbf"


class Hasher(Protocol):
    """Takes the bytes that were read."""

    def update(self, data: bytes, /) -> None: ...


def records(path: Path, hasher: Hasher | None = None) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects of a file in order. hasher: is given every whole line.

    A last line without a line end counts when it is whole JSON. Raises OSError.
    """
    with path.open("rb") as file:
        for line in _lines(file):
            found = _object(line)
            if hasher is not None and (found is not None or line.endswith(b"\n")):
                hasher.update(line.rstrip(b"\r\n") + b"\n")
            if found is not None:
                yield found


def _lines(file: BinaryIO) -> Iterator[bytes]:
    first = True
    while line := file.readline(MAX_LINE):
        if len(line) == MAX_LINE and not line.endswith(b"\n"):
            while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                pass
            continue
        yield line.removeprefix(_BOM) if first else line
        first = False


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line.decode("utf-8", "replace").removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
