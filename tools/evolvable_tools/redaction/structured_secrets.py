"""Secrets that the structure around them marks: tables, XML attributes, shell settings,
declarations, URLs.

The structures are data, in `structured_secrets.toml`.
"""

import base64
import binascii
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evolvable_tools.redaction.named_secrets import (
    NAME_WORDS,
    is_opaque,
    is_password,
    is_secret,
    names_credential,
)
from evolvable_tools.redaction.token_detection import (
    CandidateText,
    Hit,
    holds_any,
    is_random,
    occurrences,
)

_NAMING = frozenset({"key", "name", "id", "property", "k"})
_HOLDING = frozenset({"value", "val", "v", "default"})
NEAR = 240
"""Characters around a name or an id in which its secret is looked for."""

# base64 of "-----BEGIN " at each of its three offsets, and of "---- BEGIN ", with which keys of
# ssh2 begin.
_PEM_STARTS = ("LS0tLS1CRUdJTi", "0tLS0tQkVHSU4g", "tLS0tLUJFR0lOI", "LS0tLSBCRUdJTi")

_CELL_ENDS = ",;\t"
_COLUMN_WORDS = ("pass", "secret", "token", "key", "credential", "pwd", "auth")
MAX_ROWS = 1_000  # of a table or of an encoded key


def find_structured(candidate_text: CandidateText) -> Iterator[Hit]:
    """Yield secrets that their structure names. Takes time linear in the text."""
    text, lower = candidate_text.text, candidate_text.lower
    has_name_word = holds_any(lower, NAME_WORDS)
    for start in _TABLE["set_starts"] if has_name_word else ():
        if start in lower:
            for at in occurrences(lower, start):
                if (match := _SET.match(text, at)) is not None:
                    yield from _read_named_value(match)
    # Without a word for a credential only those structures can have a secret that name it
    # themselves.
    for structure in _STRUCTURES if has_name_word else _KNOWN:
        if holds_any(lower, structure.holds):
            for match in structure.pattern.finditer(text):
                yield from structure.hits(match)
    if candidate_text.windows:
        for structure in _LONG:
            if holds_any(candidate_text.joined_lower, structure.holds):
                for match in candidate_text.find(structure.pattern):
                    yield from structure.hits(match)
        if "akia" in candidate_text.joined_lower or "asia" in candidate_text.joined_lower:
            yield from _find_near(text, _PATTERNS["aws_id"], _PATTERNS["aws_secret"], "aws-secret")
        azure, azure_token = _PATTERNS["azure"], _PATTERNS["azure_token"]
        if azure_token.search(candidate_text.joined) and azure.search(text):
            yield from _find_near(text, azure, azure_token, "azure-devops-token")
        if any(start in candidate_text.joined for start in _PEM_STARTS):
            yield from _find_encoded_keys(text)
    if has_name_word and holds_any(text, _CELL_ENDS) and holds_any(lower, _COLUMN_WORDS):
        yield from _read_columns(text, lower)


def _read_named_value(match: re.Match[str], *, strong: bool = True) -> Iterator[Hit]:
    """Yield the value of a match whose name is a credential's."""
    kind = names_credential(match["name"].replace(":_", "_").rpartition("/")[2].lstrip(":"))
    if kind is not None and is_secret(match["s"], kind, quoted=True, strong=strong):
        yield *match.span("s"), kind


def _read_attributes(match: re.Match[str]) -> Iterator[Hit]:
    """Yield the value of an element whose other attribute names a credential."""
    kind, values = None, list[tuple[int, int, str]]()
    for attribute in _PATTERNS["attribute"].finditer(match["all"]):
        name = attribute[1].lower().rpartition(":")[2]
        if name in _NAMING:
            kind = kind or names_credential(attribute[3])
        elif name in _HOLDING:
            values.append((*attribute.span(3), attribute[3]))
    for start, end, value in values:
        if kind is not None and is_secret(value, kind, quoted=True, strong=True):
            yield match.start("all") + start, match.start("all") + end, kind


def _is_userinfo(value: str) -> bool:
    return ("@" in value or "/" in value) and is_opaque(value) and "://" not in value


def _is_mixed(value: str) -> bool:
    return (
        is_random(value)
        and any(map(str.islower, value))
        and any(map(str.isupper, value))
        and is_password(value)
    )


def _is_setting(value: str) -> bool:
    digits = sum(map(str.isdigit, value))
    return (
        is_random(value)
        and is_opaque(value)
        and digits * 12 >= len(value)
        and not _PATTERNS["hash"].fullmatch(value)
    )


def _find_near(
    text: str, marks: re.Pattern[str], values: re.Pattern[str], kind: str
) -> Iterator[Hit]:
    """Yield the values near a mark; reads every character once."""
    done = 0
    for mark in marks.finditer(text):
        start, end = max(done, mark.start() - NEAR), mark.end() + NEAR
        for value in values.finditer(text, start, min(end, len(text))):
            # A value that reaches the end of the window may go on behind it; another mark near by
            # finds it whole.
            if value.end() < end or end >= len(text):
                done = value.end()
                if is_random(value[0]):
                    yield *value.span(), kind
        done = max(done, mark.end())


def _find_encoded_keys(text: str) -> Iterator[Hit]:
    """Yield private keys that are encoded once more in base64, in one line or in several."""
    done = 0
    for match in _PATTERNS["base64_run"].finditer(text):
        start, end = match.span()
        if start < done or not match[0].startswith(_PEM_STARTS):
            continue
        rows = [match[0]]
        while len(rows) < MAX_ROWS and (row := _PATTERNS["base64_next"].match(text, end)):
            rows.append(row["run"])
            end = row.end("run")
        done = end
        if _holds_key("".join(rows)):
            yield start, end, "private-key"


def _holds_key(encoded: str) -> bool:
    # The first line of a key is in its first characters.
    encoded = encoded.rstrip("=")[:400]
    # The run may begin within a group of four characters.
    for cut in range(4):
        part = encoded[cut:]
        try:
            if b"PRIVATE KEY" in base64.b64decode(part[: len(part) // 4 * 4]):
                return True
        except (binascii.Error, ValueError):
            continue
    return False


def _read_columns(text: str, lower: str) -> Iterator[Hit]:
    """Yield the values of a table of separated cells whose first line names a credential."""
    words = [word for word in NAME_WORDS if word in lower]
    names: list[str | None] = []
    separator, at, rows = "", 0, 0
    for line in text.splitlines(keepends=True) if "\n" in text else ():
        cells = line.rstrip("\r\n").split(separator) if separator else []
        if separator and len(cells) == len(names) and rows < MAX_ROWS:
            rows += 1
            yield from _read_row(cells, names, at)
        else:
            # A line without a separator or such a word names none; most lines end here.
            may_be_header = holds_any(line, _CELL_ENDS) and any(
                lower.find(word, at, at + len(line)) >= 0 for word in words
            )
            separator, names = _read_header(line.rstrip("\r\n")) if may_be_header else ("", [])
            rows = 0
        at += len(line)


def _read_header(line: str) -> tuple[str, list[str | None]]:
    """Return the separator and the type of each column, ('', []) for a line that is no header with
    a credential.
    """
    # A header is short; a long line of many cells costs time.
    if len(line) > 2_000 or _PATTERNS["no_header"].search(line) is not None:
        return "", []
    separator = next((sign for sign in _CELL_ENDS if sign in line), "")
    cells = line.split(separator)
    names = [
        names_credential(cell.strip(" \"'").replace(" ", "_")) if len(cell) <= 40 else None
        for cell in cells
    ]
    # Every column of a header has a name.
    return (separator, names) if any(names) and all(map(str.strip, cells)) else ("", [])


def _is_secret_cell(value: str, kind: str) -> bool:
    return is_opaque(value) and is_secret(value, kind, quoted=True, strong=True)


def _read_row(cells: list[str], names: list[str | None], at: int) -> Iterator[Hit]:
    for cell, kind in zip(cells, names, strict=True):
        value = cell.strip().strip("\"'")
        if kind is not None and _is_secret_cell(value, kind):
            start = at + cell.index(value)
            yield start, start + len(value), kind
        at += len(cell) + 1


_FITS = {
    "password": is_password,
    "userinfo": _is_userinfo,
    "mixed": _is_mixed,
    "setting": _is_setting,
}


@dataclass(frozen=True)
class _Structure:
    """A row of structured_secrets.toml; the head of the file says what its fields mean."""

    holds: Sequence[str]
    source: str
    kind: str = ""
    fits: str = ""
    strong: bool = True
    attributes: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.source)

    def hits(self, match: re.Match[str]) -> Iterator[Hit]:
        """Yield the secrets of a match."""
        if self.attributes:
            yield from _read_attributes(match)
        elif not self.kind:
            yield from _read_named_value(match, strong=self.strong)
        elif _FITS[self.fits](match["s"]):
            yield *match.span("s"), self.kind


_TABLE = tomllib.loads(
    Path(__file__).with_name("structured_secrets.toml").read_text(encoding="utf-8")
)
_PATTERNS = {
    name: re.compile("|".join(alternatives)) for name, alternatives in _TABLE["patterns"].items()
}
_SET = re.compile(_TABLE["set"])
_STRUCTURES, _LONG = (
    [_Structure(**row) for row in _TABLE[group]] for group in ("structures", "long")
)
_KNOWN = [structure for structure in _STRUCTURES if structure.kind]
"""The structures whose secret needs no credential's name."""
