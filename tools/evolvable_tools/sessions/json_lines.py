"""The lines of a transcript: JSON objects, read one by one, within a limit for each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from evolvable_store import regular_file
from evolvable_tools.sessions.session import parse_json

MAX_LINE = 32 * 1024 * 1024
"""Bytes of a line that is read: a bound for memory. A longer line is left out."""

_BOM = b"\xef\xbb\xbf"


class Hasher(Protocol):
    """Receives the bytes that were read."""

    def update(self, data: bytes, /) -> None: ...


def read_records(path: Path, hasher: Hasher | None = None) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file in order. hasher: is given every whole line.

    A last line without a line end counts when it is whole JSON. Raises OSError.
    """
    with open(path, "rb", opener=regular_file) as file:
        for line in _read_lines(file):
            record = _parse_object(line)
            # A half written last line is not hashed: it will differ when the client has finished
            # it.
            if hasher is not None and (record is not None or line.endswith(b"\n")):
                hasher.update(line.rstrip(b"\r\n") + b"\n")
            if record is not None:
                yield record


def _read_lines(file: BinaryIO) -> Iterator[bytes]:
    first = True
    while line := file.readline(MAX_LINE):
        if len(line) == MAX_LINE and not line.endswith(b"\n"):
            # Read on to the end of the long line, so that the next one begins at its start.
            while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                pass
            continue
        yield line.removeprefix(_BOM) if first else line
        first = False


def _parse_object(line: bytes) -> dict[str, Any] | None:
    value = parse_json(line.decode("utf-8", "replace").removeprefix("\ufeff"))
    return value if isinstance(value, dict) else None
