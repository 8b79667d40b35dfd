"""Read and replace the keys of a main file's head that give an agent power in a client.

A client reads them from the disk, so a checkout writes only powers that a person stood for. A head
that cannot be read for certain counts as one field, because clients may read it otherwise.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from evolvable_store.agent_grants import plain_key
from evolvable_store.frontmatter import (
    NO_FRONTMATTER,
    FrontmatterPlace,
    Severity,
    find_frontmatter,
    parse_document,
    summarize,
    top_level,
)
from evolvable_store.operation import Head

POWERS = frozenset(
    (
        *("allowedtools", "tools", "disallowedtools", "model", "hooks"),
        *("permissionmode", "permissions", "permission", "mcpservers", "autoapprove"),
    )
)
"""Plain keys of the fields that give power. A limit is one too: without it an agent may do more."""

WHOLE = "frontmatter"
"""Stands for all of a head that cannot be read for certain."""


@dataclass(frozen=True, slots=True)
class HeldPowers:
    """Powers that a version names and that are out of force.

    names: plain keys, or WHOLE. version: the base, whose powers a folder is given; 0 for none.
    base: the main file of the base, b'' for none. line: a text about it for a person, with the next
    step.
    """

    names: frozenset[str]
    version: int
    base: bytes
    line: str


PowerPolicy = Callable[[Head], HeldPowers | None]
"""Returns which powers of the newest version of a resource are out of force."""

# Finds the name of a power anywhere in a head that does not parse, in quotes or not.
_POWER = re.compile(rf"(?:{'|'.join(sorted(POWERS))})[\"']?\s*:", re.IGNORECASE)
_PLAIN = re.compile("[-_]")
# Line breaks for YAML but not for str.splitlines-like readers, or the other way round: clients
# differ.
_ODD_BREAKS = re.compile("\r(?!\n)|[\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One key of a head. text: its lines, as they are written."""

    key: str
    value: str
    text: str


@dataclass(frozen=True, slots=True)
class _Head:
    """The head of a main file.

    unclear: it cannot be read for certain. block: its bytes with the fences. lead: its text before
    the first key. by_name: plain key -> pairs (key as written, value as JSON) of each power.
    """

    entries: tuple[_Entry, ...] = ()
    unclear: bool = False
    block: bytes = b""
    place: FrontmatterPlace | None = None
    lead: str = ""
    by_name: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)


def power_values(data: bytes) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Return plain key -> pairs (key as written, value as JSON) for each power that a main file
    names.

    A head that cannot be read for certain gives WHOLE with its text.
    """
    head = _read_head(data)
    if head.unclear:
        return {WHOLE: ((WHOLE, head.block.decode("utf-8", "replace")),)}
    return head.by_name


def different_powers(now: bytes, base: bytes) -> list[str]:
    """Return the powers that differ between two main files: sorted plain keys, or WHOLE."""
    places = find_frontmatter(now), find_frontmatter(base)
    # Equal heads, the usual case of an edited body, need no parse.
    first, second = (
        text[: place.body] if place else b""
        for text, place in zip((now, base), places, strict=True)
    )
    if first == second:
        return []
    values, before = power_values(now), power_values(base)
    if WHOLE in values or WHOLE in before:
        # With one head uncertain, no single field can be compared.
        return [WHOLE]
    return sorted(name for name in {*values, *before} if values.get(name) != before.get(name))


def written_key(name: str, *texts: bytes) -> str:
    """Return a power's key as the first of these main files that has it writes it."""
    found = (dict(_read_head(text).by_name).get(name) for text in texts)
    return next((pairs[0][0] for pairs in found if pairs), name)


def with_powers(data: bytes, source: bytes, names: Collection[str]) -> bytes:
    """Return a main file with these powers replaced by those of `source`.

    A power that `source` lacks is removed.
    """
    if not names:
        return data
    head, other = _read_head(data), _read_head(source)
    if WHOLE in names or head.unclear or other.unclear or head.place is None:
        return _replace_head(data, head, other)
    lines, source_entries = list(head.entries), list(other.entries)
    for name in sorted(names):
        new = [entry for entry in source_entries if plain_key(entry.key) == name]
        # A key keeps its place in the head, so that a diff shows only its value.
        keys = [plain_key(entry.key) for entry in lines]
        at = keys.index(name) if name in keys else None
        lines = [entry for entry in lines if plain_key(entry.key) != name]
        place = _find_position(lines, source_entries, new) if at is None else at
        lines[place:place] = new
    ended = [entry.text if entry.text.endswith("\n") else entry.text + "\n" for entry in lines]
    text = (head.lead + "".join(ended)).encode()
    changed = data[: head.place.start] + text + data[head.place.end :]
    # Read back what was written: quotes or anchors around the lines could have changed their
    # meaning.
    now, expected = _read_head(changed), _read_head(source)
    same = not now.unclear and all(
        now.by_name.get(name) == expected.by_name.get(name) for name in names
    )
    return changed if same else _replace_head(data, head, other)


def restore_powers(disk: bytes, written: bytes, original: bytes, names: Collection[str]) -> bytes:
    """Return the file on disk with the powers of `original`.

    Those that changed on disk since `written` stay.
    """
    if disk == written:
        return original
    now, then = _read_head(disk), _read_head(written)
    # Only the body was edited: the head goes back exactly as it was.
    if now.block == then.block:
        return _read_head(original).block + disk[len(now.block) :]
    untouched = {
        name for name in names if name != WHOLE and now.by_name.get(name) == then.by_name.get(name)
    }
    if now.unclear or then.unclear or _read_head(original).unclear:
        return disk
    return with_powers(disk, original, untouched)


def _find_position(lines: list[_Entry], source_entries: list[_Entry], new: list[_Entry]) -> int:
    """Return the index for a new key: behind the key that it follows in the other head."""
    keys = [entry.key for entry in lines]
    at = source_entries.index(new[0]) if new else 0
    for entry in reversed(source_entries[:at]):
        if entry.key in keys:
            return keys.index(entry.key) + 1
    return len(lines)


def _replace_head(data: bytes, head: _Head, other: _Head) -> bytes:
    """Return a main file with the other head.

    Without another head it keeps its name and its description alone.
    """
    body = data[len(head.block) :]
    if other.block:
        return other.block + body
    summary = summarize(parse_document(data))
    names = {"name": summary.name, "description": summary.description}
    lines = [
        f"{key}: {json.dumps(text, ensure_ascii=False)}" for key, text in names.items() if text
    ]
    return "\n".join(["---", *lines, "---", ""]).encode() + body if head.block else body


# Several functions here parse the same main file in a row.
@lru_cache(maxsize=64)
def _read_head(data: bytes) -> _Head:
    document, place = parse_document(data), find_frontmatter(data)
    if place is None:
        return _Head()
    block = data[: place.body]
    bad = [
        defect
        for defect in document.defects
        if defect.severity is not Severity.WARNING and defect is not NO_FRONTMATTER
    ]
    text = data[place.start : place.end].decode("utf-8", "replace")
    # A name that is no text breaks the specification and leaves the fields readable.
    types = [
        defect for defect in bad if defect.text.startswith(("its name is", "its description is"))
    ]
    entries = None
    if len(bad) == len(types) and place.closed and not _ODD_BREAKS.search(text):
        entries = _read_entries(text)
    if entries is not None:
        return _make_head(entries, text, block, place)
    # An escape could spell a power's name so that a search for it fails.
    unclear = not place.closed or "\\" in text or _POWER.search(_PLAIN.sub("", text)) is not None
    return _Head((), unclear, block, place, text)


def _read_entries(text: str) -> list[_Entry] | None:
    keys = top_level(text)
    if keys is None:
        return None
    lines = text.splitlines(keepends=True)
    ends = [*(key.line for key in keys[1:]), len(lines)]
    entries: list[_Entry] = []
    for key, end in zip(keys, ends, strict=False):
        value = json.dumps(key.value, sort_keys=True)
        entries.append(_Entry(key.key, value, "".join(lines[key.line : end])))
    return entries


def _make_head(entries: list[_Entry], text: str, block: bytes, place: FrontmatterPlace) -> _Head:
    by_name: dict[str, tuple[tuple[str, str], ...]] = {}
    for entry in entries:
        if (name := plain_key(entry.key)) in POWERS:
            by_name[name] = (*by_name.get(name, ()), (entry.key, entry.value))
    twice = any(len(pairs) > 1 for pairs in by_name.values())
    lead = text[: len(text) - sum(len(entry.text) for entry in entries)]
    return _Head(tuple(entries), twice, block, place, lead, by_name)
