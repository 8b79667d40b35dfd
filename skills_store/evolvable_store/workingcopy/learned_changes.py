"""Find learned changes that were lost when the files of a directory were replaced, not edited.

A change is learned when an agent made it, or a person approved an agent's or a review's proposal.
Files on disk that lack it are the owner's edit, or another program replaced them. They count as
replaced

- where git or an installer is known to have written them, and learned lines are gone;
- else where no learned line is left, another place than the learned lines changed too, and the
  resource never had this content before.

An owner has edited who deletes learned lines and their neighbours, returns to an older content, or
keeps one learned line: what is deleted stays deleted. An owner who deletes all of them, and changes
another place in the same save, gets one proposal to put them back.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum

from evolvable_store.merge import changed_lines
from evolvable_store.objects import Files, blob_hash, make_manifest
from evolvable_store.operation import Head, Operation, Principal
from evolvable_store.store import Store

# Each one may be read whole, and an older lesson is part of the text by now.
MAX_VERSIONS = 100
"""Versions of a resource, the newest, in which learned changes are looked for."""

PUT_BACK = "put back what was learned"
"""How the reason of a proposal begins, and of an operation, that puts learned lines back."""

REPLACED = "replaced on disk"
"""How the evidence of an operation begins that imported files which replaced the library's."""

MERGED = "merged with what the library has"
"""How the evidence of an operation begins that merged files on disk with the library's."""

# The texts that approvals and runs write into their reasons and evidence.
_LEARNED = re.compile(rf"proposal \d+ by (?!human|import)|evolution run |{re.escape(PUT_BACK)}")


class SourceKind(Enum):
    """Which program is known to have written the files of a directory."""

    GIT = "git"
    INSTALLER = "an installer"
    NONE = ""


@dataclass(frozen=True, slots=True)
class LostChanges:
    """Learned changes that are missing in the files on disk.

    base: the version that the files on disk were updated from, an ancestor of the learned version
    `head`. files: of the head. lines: how many learned lines are gone. source: the program that is
    known to have written the files on disk.
    """

    base: int
    head: Head
    files: Files
    lines: int
    source: SourceKind

    @property
    def reason(self) -> str:
        """The reason of the proposal or operation that puts the lines back."""
        return f"{PUT_BACK} ({self.lines} line{'s' * (self.lines != 1)})"


@dataclass(slots=True)
class _Learned:
    """Lines that learning added and removed, by file; blank lines do not count."""

    added: dict[str, Counter[str]] = field(default_factory=dict)
    removed: dict[str, Counter[str]] = field(default_factory=dict)


def lost_changes(
    store: Store,
    head: Head,
    disk: Files,
    source_of: Callable[[], SourceKind],
    was_in_source: Callable[[Files], bool],
) -> LostChanges | None:
    """Return the learned changes that files on disk have lost; None for none, or for an edit.

    head: the version before, or the removed resource that comes back. source_of: returns the
    program that is known to have written the files. was_in_source: tells whether the source itself
    had the content of a version, as when learned lines were committed. Then the files are an update
    of that version, and lines that are gone were removed in the source.
    """
    learned = _list_learned_versions(store, head)
    if not learned:
        return None
    operations = _list_operations(store, head)
    # The newest version that the source itself wrote; lessons before it were lost or kept with it.
    from_source = (
        number
        for number, operation in operations.items()
        if _is_from_source(number, operation, learned)
    )
    base = max(from_source, default=1)
    learned = [number for number in learned if number > base]
    if not learned:
        return None
    now = store.files(head, head.latest)
    lines = _collect_learned_lines(store, head, learned, now)
    gone_count, kept_count = _count_gone(lines, disk)
    trees = {version.tree for version in store.backend.versions(head.id, MAX_VERSIONS)}
    # Asking git or an installer reads files, so only where something is gone.
    source = source_of() if gone_count else SourceKind.NONE
    # An older content that comes back is the owner's undo. An installer can bring one as an update.
    if not gone_count or (source is not SourceKind.INSTALLER and make_manifest(disk).tree in trees):
        return None
    if source is not SourceKind.NONE:
        newer = (number for number in sorted(operations, reverse=True) if number > base)
        base = next((number for number in newer if was_in_source(store.files(head, number))), base)
        return LostChanges(base, head, now, gone_count, source) if base < head.latest else None
    is_replaced = not kept_count and _has_change_apart(lines, now, disk)
    return LostChanges(base, head, now, gone_count, source) if is_replaced else None


def _list_operations(store: Store, head: Head) -> dict[int, Operation]:
    """Return the operations of the newest versions of a resource, by number, oldest first."""
    if head.latest < 2:
        return {}
    changes = [change for change in store.backend.changes_to(head.id, 0) if change.after]
    newest = changes[-MAX_VERSIONS:]
    return {change.after: store.operation(change.operation) for change in newest if change.after}


def _list_learned_versions(store: Store, head: Head) -> list[int]:
    """Return the versions of a resource that were learned, oldest first."""
    candidates = store.backend.attestations.learned_candidates(head.id)
    return sorted(
        number
        for number, (own, texts) in candidates.items()
        if own or any(map(_LEARNED.match, texts))
    )


def _is_from_source(number: int, operation: Operation, learned: Collection[int]) -> bool:
    """Return whether a version has the text of the source unchanged."""
    evidence = operation.intent.evidence
    if number == 1 or any(text.startswith(REPLACED) for text in evidence):
        return True
    if number in learned or any(text.startswith(MERGED) for text in evidence):
        return False
    return operation.principal in (Principal.REPOSITORY, Principal.IMPORT)


def _collect_learned_lines(
    store: Store, head: Head, learned: Iterable[int], now: Files
) -> _Learned:
    lines = _Learned()
    for number in learned:
        before, after = store.files(head, number - 1), store.files(head, number)
        for path in {*before, *after}:
            old, new = _count_lines(before, path), _count_lines(after, path)
            # A learned line that a later version removed is not lost.
            head_lines = _count_lines(now, path)
            lines.added[path] = lines.added.get(path, Counter()) + ((new - old) & head_lines)
            lines.removed[path] = lines.removed.get(path, Counter()) + ((old - new) - head_lines)
    return lines


def _count_lines(files: Files, path: str) -> Counter[str]:
    """Return how often each line stands in a file, without blank ones; of no text, its hash."""
    return Counter(line.strip() for line in _read_text(files, path).split("\n") if line.strip())


def _read_text(files: Files, path: str) -> str:
    file = files.get(path)
    if file is None:
        return ""
    try:
        return file.data.decode("utf-8")
    except UnicodeDecodeError:
        return blob_hash(file.data)


def _count_gone(lines: _Learned, disk: Files) -> tuple[int, int]:
    """Return how many learned lines are gone from the files, and how many are there.

    Where learning only removed lines, those that came back count as gone.
    """
    disk_lines = {path: _count_lines(disk, path) for path in {*lines.added, *lines.removed}}
    gone_count = sum((added - disk_lines[path]).total() for path, added in lines.added.items())
    kept_count = sum((added & disk_lines[path]).total() for path, added in lines.added.items())
    if any(added.total() for added in lines.added.values()):
        return gone_count, kept_count
    back_count = sum((gone & disk_lines[path]).total() for path, gone in lines.removed.items())
    absent_count = sum((gone - disk_lines[path]).total() for path, gone in lines.removed.items())
    return back_count, absent_count


def _has_change_apart(lines: _Learned, now: Files, disk: Files) -> bool:
    """Return whether a place changed in which no learned line stood or came back."""
    for path in {*now, *disk}:
        learned = {*lines.added.get(path, ()), *lines.removed.get(path, ())}
        places = _list_changed_places(_read_text(now, path), _read_text(disk, path))
        if any(place and learned.isdisjoint(place) for place in places):
            return True
    return False


def _list_changed_places(old: str, new: str) -> list[set[str]]:
    """Return the lines of each place that changed, those before and those after.

    Two changes with only blank lines between them are one place.
    """
    before, after = old.split("\n"), new.split("\n")
    places, new_start, done = list[set[str]](), 0, 0
    for start, end, count in changed_lines(old, new):
        new_start += start - done
        touched = {
            line.strip()
            for line in (*before[start:end], *after[new_start : new_start + count])
            if line.strip()
        }
        if places and not any(line.strip() for line in before[done:start]):
            places[-1] |= touched
        else:
            places.append(touched)
        done, new_start = end, new_start + count
    return places
