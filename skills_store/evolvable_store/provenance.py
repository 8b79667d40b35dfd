"""Provenance: the versions that changed each file since the one that a person stood for.

It is computed when a version is written. It names versions and never authors: who made a version
may be learned later, as from a client's hook.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from evolvable_store.merge import changed_lines
from evolvable_store.objects import Manifest, TreeEntry

# Comparing lines is quadratic at worst, and runs while the write lock is held.
MAX_TEXT = 400_000
"""Bytes of a text whose lines are compared; of a longer one the whole file counts as changed."""

# The row of a version would grow with every edit of a file that many versions touched.
MAX_PARTS = 60
"""Versions that are named for one file.

Of more, the oldest and the newest stay: the oldest is the one that may be a stranger's.
"""

# The stored form of a version without parts begins so; it is read without a JSON parser.
_ONLY_BASE = '{"base": '

Lines = tuple[int, ...]


class FilePart(NamedTuple):
    """The change of one version to a file.

    lines: its lines that are still there, from 1; None where the whole file counts as changed.
    removed: how many lines it removed.
    """

    version: int
    lines: Lines | None
    removed: int = 0

    @property
    def is_there(self) -> bool:
        """Whether anything of the change is still there."""
        return self.lines is None or bool(self.lines) or self.removed > 0


@dataclass(frozen=True, slots=True)
class Provenance:
    """The base, 0 for none, and the parts of the versions that changed each file since.

    A file without parts has the bytes of the base, or bytes that a person stood for before. A part
    stays when its lines are gone, so that touching a stranger's file makes it nobody else's.
    """

    base: int
    files: Mapping[str, tuple[FilePart, ...]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the stored form: `{"base": 1, "files": {"path": [PART, ...]}}`.

        A PART is `[version, [line, ...] or null, removed]`.
        """
        fields: dict[str, object] = {"base": self.base}
        if self.files:
            fields["files"] = self.files
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str) -> "Provenance":
        """Return the provenance that `to_json` wrote."""
        # The form of nearly every version.
        if text.startswith(_ONLY_BASE) and text[len(_ONLY_BASE) : -1].isdigit():
            return cls(int(text[len(_ONLY_BASE) : -1]))
        stored = json.loads(text)
        return cls(
            int(stored["base"]),
            {path: tuple(map(_parse_part, rows)) for path, rows in stored.get("files", {}).items()},
        )

    @property
    def versions(self) -> set[int]:
        """All versions in this record, including the base."""
        changed = {part.version for parts in self.files.values() for part in parts}
        return changed | {self.base} if self.base else changed


def _parse_part(row: tuple[int, list[int] | None, int]) -> FilePart:
    version, lines, removed = row
    return FilePart(int(version), None if lines is None else tuple(lines), int(removed))


@dataclass(frozen=True, slots=True)
class CarriedContent:
    """The content that a new version replaces, and the base that both are compared with.

    blob: returns the bytes of a file by their hash, None where they were purged.
    """

    provenance: Provenance
    manifest: Manifest
    base: Manifest
    blob: Callable[[str], bytes | None]


def carry(before: CarriedContent, number: int | None, after: Manifest) -> Provenance:
    """Return the provenance of a version whose author answers for the changed lines alone.

    number: of this version; None where the change has no author, as in a purge: each line keeps the
    version it had.
    """
    files = {}
    # Paths of both, because a file that was deleted has changed too.
    for path in {**after, **before.base}:
        entry, old = after.get(path), before.manifest.get(path)
        # Back at the base: nobody but its person is responsible for the file any more.
        if _is_same(entry, before.base.get(path)):
            continue
        parts = before.provenance.files.get(path, ())
        if not _is_same(entry, old):
            parts = _list_changed_parts(parts, number, before, old, entry)
        if parts:
            files[path] = _shorten(parts)
    return Provenance(before.provenance.base, files)


def carry_restored(before: CarriedContent, restored: Provenance, after: Manifest) -> Provenance:
    """Return the provenance of a version with the content of an older one.

    restored: the provenance of that one.
    """
    changed = {
        path: parts
        for path, parts in restored.files.items()
        if not _is_same(after.get(path), before.base.get(path))
    }
    return Provenance(before.provenance.base, changed)


class EarlierContent(NamedTuple):
    """The content of an older version, and its provenance."""

    provenance: Provenance
    manifest: Manifest


def carry_reverted(
    before: CarriedContent,
    earlier: Sequence[EarlierContent],
    undone: Collection[int],
    number: int,
    after: Manifest,
) -> Provenance:
    """Return the provenance of version `number`, which takes changes out of the content before it.

    Lines that stay keep their author, and lines that come back have the author that they had.
    earlier: the contents before the changes, oldest first. undone: the versions that made the
    changes; of these no part stays without a line.
    """
    files = {}
    # Paths of both, because a file that was deleted has changed too.
    for path in {**after, **before.base}:
        if _is_same(after.get(path), before.base.get(path)):
            continue
        sides = [(before.manifest.get(path), before.provenance.files.get(path, ()))]
        sides += [
            (content.manifest.get(path), content.provenance.files.get(path, ()))
            for content in earlier
        ]
        if parts := _list_reverted_parts(before, sides, undone, number, after.get(path)):
            files[path] = _shorten(parts)
    return Provenance(before.provenance.base, files)


def _list_reverted_parts(
    content: CarriedContent,
    sides: Sequence[tuple[TreeEntry | None, tuple[FilePart, ...]]],
    undone: Collection[int],
    number: int,
    new: TreeEntry | None,
) -> tuple[FilePart, ...]:
    """Return the parts of a file whose lines all come from its sides."""
    for entry, parts in sides:
        if _is_same(entry, new):
            return parts
    removed: dict[int, int] = {}
    for part in (part for _, parts in sides for part in parts):
        removed[part.version] = max(part.removed, removed.get(part.version, 0))
    after = _read_text(content, new)
    owner: dict[int, int] = {}
    for entry, parts in sides:
        if entry is None:
            continue  # there was no such file, so no line is from it
        text = _read_text(content, entry)
        # The base counts as an owner here, so that its lines are not ascribed to the version that
        # reverts.
        owners = _find_line_owners(parts, text or "", with_base=True)
        if after is None or text is None or owners is None:
            return tuple(FilePart(version, None) for version in sorted({*removed, number}))
        lines_by_version, _, _ = _move_lines(owners, changed_lines(text, after))
        for version, lines in lines_by_version.items():
            for line in lines:
                # The first side that has a line keeps it: the head comes before the older contents.
                owner.setdefault(line, version)
    lines_of: dict[int, list[int]] = {version: [] for version in removed}
    text = after or ""
    line_count = text.count("\n") + (not text.endswith("\n"))
    for line in range(1, line_count + 1):
        lines_of.setdefault(owner.get(line, number), []).append(line)
    return tuple(
        FilePart(version, tuple(lines), 0 if version in undone else removed.get(version, 0))
        for version, lines in sorted(lines_of.items())
        if version and (lines or version not in undone)
    )


def _find_line_owners(
    parts: Sequence[FilePart], text: str, *, with_base: bool
) -> dict[int, int] | None:
    """Return line -> the version that brought it, None where that is not known.

    with_base: 0 stands for the base.
    """
    whole = [part.version for part in parts if part.lines is None]
    # Several versions replaced the whole file: which lines are whose is not recorded.
    if len(whole) > 1:
        return None
    owners: dict[int, int] = {}
    if whole or with_base:
        owners = dict.fromkeys(range(1, text.count("\n") + 2), whole[0] if whole else 0)
    return owners | {line: part.version for part in parts for line in part.lines or ()}


def derive(base: int, manifests: Iterable[tuple[int, Manifest]]) -> Provenance:
    """Return the provenance of the last of these versions, which are given oldest first.

    Unless the base is 0, it is the first of them.
    """
    files: dict[str, tuple[FilePart, ...]] = {}
    first = last = Manifest({})
    for number, manifest in manifests:
        if number == base:
            first = last = manifest
            continue
        for path in {**last, **manifest, **first}:
            if _is_same(manifest.get(path), first.get(path)):
                files.pop(path, None)
            elif not _is_same(manifest.get(path), last.get(path)):
                files[path] = (*files.get(path, ()), FilePart(number, None))
        last = manifest
    return Provenance(base, {path: _shorten(parts) for path, parts in files.items()})


def _is_same(entry: TreeEntry | None, other: TreeEntry | None) -> bool:
    if entry is None or other is None:
        return entry is other
    return (entry.sha256, entry.mode) == (other.sha256, other.mode)


def _shorten(parts: tuple[FilePart, ...]) -> tuple[FilePart, ...]:
    half = MAX_PARTS // 2
    return parts if len(parts) <= MAX_PARTS else (*parts[:half], *parts[-half:])


def _list_changed_parts(
    parts: tuple[FilePart, ...],
    number: int | None,
    content: CarriedContent,
    old: TreeEntry | None,
    new: TreeEntry | None,
) -> tuple[FilePart, ...]:
    before, after = (_read_text(content, entry) for entry in (old, new))
    if number is None:
        # A purge that keeps the number of lines leaves every line number valid.
        is_even = (
            before is not None and after is not None and before.count("\n") == after.count("\n")
        )
        return parts if is_even else tuple(part._replace(lines=None) for part in parts)
    owners = _find_line_owners(parts, before or "", with_base=False)
    if before is None or after is None or owners is None:
        return (*(part._replace(lines=None) for part in parts), FilePart(number, None))
    kept_lines, added, removed = _move_lines(owners, changed_lines(before, after))
    older = [part._replace(lines=tuple(kept_lines.get(part.version, ()))) for part in parts]
    if not added and not removed:  # only the mode changed
        return (*older, FilePart(number, None))
    return (*older, FilePart(number, tuple(added), removed))


def _move_lines(
    owners: Mapping[int, int], changes: Iterable[tuple[int, int, int]]
) -> tuple[dict[int, list[int]], list[int], int]:
    """Return the lines of each owner after these changes, the new lines, and how many are gone."""
    kept_lines: dict[int, list[int]] = {}
    added, removed = list[int](), 0
    # `shifts`: from which line of the old text on, by how many lines the rest moved.
    offset, gone = 0, set[int]()
    shifts = list[tuple[int, int]]()
    for start, end, count in changes:
        added += range(start + offset + 1, start + offset + count + 1)
        removed += max(0, end - start - count)
        offset += count - (end - start)
        gone.update(range(start + 1, end + 1))
        shifts.append((end, offset))
    at, shift = 0, 0
    for line in sorted(owners):
        while at < len(shifts) and shifts[at][0] < line:
            shift = shifts[at][1]
            at += 1
        if line not in gone:
            kept_lines.setdefault(owners[line], []).append(line + shift)
    return kept_lines, added, removed


def _read_text(content: CarriedContent, entry: TreeEntry | None) -> str | None:
    """Return the text of a file, None where its lines cannot be compared.

    Such a file is absent, too long, purged, or not UTF-8.
    """
    if entry is None or entry.size > MAX_TEXT:
        return None
    data = content.blob(entry.sha256)
    try:
        return None if data is None or b"\0" in data else data.decode("utf-8")
    except UnicodeDecodeError:
        return None
