"""Find what was learned and is lost where the files of a directory were replaced, and not edited.

Learned is what an agent changed, and what a person approved of an agent's or a review's proposal. A
save on disk that loses it is the owner's edit or another program's update. It counts as replaced

- where git or an installer is known to have written it, and learned lines are gone;
- else where no learned line is left, something else changed in a place apart from all learned
lines, and the content
  is none that the resource had before.

An owner who deletes learned lines in an editor, with whatever stands beside them, or returns to an
older content, or keeps one of them, has edited: what is deleted stays deleted. One who deletes all
of them and changes another place in the same save gets one proposal to put them back.
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
"""How the evidence of an operation begins that took in files which replaced those of
the library.
"""

MERGED = "merged with what the library has"
"""How the evidence of an operation begins that took in files from disk together with versions of
the library.
"""

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

    base: the version that the files were updated from, which the learned version `head` goes back
    to. lines: learned lines that are gone. files: of the head. source: what is known to have
    written the files on disk.
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
    """Lines that learning added and took away, by file; blank lines do not count."""

    added: dict[str, Counter[str]] = field(default_factory=dict)
    removed: dict[str, Counter[str]] = field(default_factory=dict)


def lost_changes(
    store: Store,
    head: Head,
    disk: Files,
    source_of: Callable[[], SourceKind],
    was_in_source: Callable[[Files], bool],
) -> LostChanges | None:
    """Return the learned changes that files on disk have lost; None where none are, or the owner
    edited.

    head: the version before, or the removed resource that comes back. source_of: returns what is
    known to have written the files. was_in_source: whether the source itself had the content of a
    version, as a commit of learned lines: then that was updated, and what is gone was taken away
    there.
    """
    learned = _learned_versions(store, head)
    if not learned:
        return None
    found = _versions(store, head)
    # The newest version that the source itself wrote; lessons before it were lost or kept with it.
    base = max(
        (number for number in found if _is_from_source(number, found[number], learned)), default=1
    )
    learned = [number for number in learned if number > base]
    if not learned:
        return None
    now = store.files(head, head.latest)
    lines = _learned_lines(store, head, learned, now)
    gone_count, kept_count = _count_gone(lines, disk)
    trees = {version.tree for version in store.backend.versions(head.id, MAX_VERSIONS)}
    # Asking git or an installer reads files, so only where something is gone.
    source = source_of() if gone_count else SourceKind.NONE
    # An older content that comes back is the owner's undo. An installer can bring one as an update.
    if not gone_count or (source is not SourceKind.INSTALLER and make_manifest(disk).tree in trees):
        return None
    if source is not SourceKind.NONE:
        newer = (number for number in sorted(found, reverse=True) if number > base)
        base = next((number for number in newer if was_in_source(store.files(head, number))), base)
        return LostChanges(base, head, now, gone_count, source) if base < head.latest else None
    return (
        LostChanges(base, head, now, gone_count, source)
        if not kept_count and _changes_apart(lines, now, disk)
        else None
    )


def _versions(store: Store, head: Head) -> dict[int, Operation]:
    """Return the operations of the newest versions of a resource, by number, oldest first."""
    if head.latest < 2:
        return {}
    changes = [change for change in store.backend.changes_to(head.id, 0) if change.after][
        -MAX_VERSIONS:
    ]
    return {change.after: store.operation(change.operation) for change in changes if change.after}


def _learned_versions(store: Store, head: Head) -> list[int]:
    """Return the versions of a resource that were learned, oldest first."""
    found = store.backend.attestations.learned_candidates(head.id)
    return sorted(
        number for number, (own, texts) in found.items() if own or any(map(_LEARNED.match, texts))
    )


def _is_from_source(number: int, operation: Operation, learned: Collection[int]) -> bool:
    """Return whether a version has the text of the source as it came."""
    if number == 1 or any(text.startswith(REPLACED) for text in operation.intent.evidence):
        return True
    is_merged = any(text.startswith(MERGED) for text in operation.intent.evidence)
    return operation.principal in (Principal.REPOSITORY, Principal.IMPORT) and not (
        is_merged or number in learned
    )


def _learned_lines(store: Store, head: Head, learned: Iterable[int], now: Files) -> _Learned:
    lines = _Learned()
    for number in learned:
        before, after = (
            store.files(head, number - 1),
            store.files(head, number),
        )
        for path in {*before, *after}:
            old, new = _lines(before, path), _lines(after, path)
            # A learned line that a later version removed is not lost.
            head_lines = _lines(now, path)
            lines.added[path] = lines.added.get(path, Counter()) + ((new - old) & head_lines)
            lines.removed[path] = lines.removed.get(path, Counter()) + ((old - new) - head_lines)
    return lines


def _lines(files: Files, path: str) -> Counter[str]:
    """Return the lines of a file that are not blank; its hash where it is no text."""
    return Counter(line.strip() for line in _text(files, path).split("\n") if line.strip())


def _text(files: Files, path: str) -> str:
    file = files.get(path)
    if file is None:
        return ""
    try:
        return file.data.decode("utf-8")
    except UnicodeDecodeError:
        return blob_hash(file.data)


def _count_gone(lines: _Learned, disk: Files) -> tuple[int, int]:
    """Return how many learned lines are gone from the files, and how many are there; of none added,
    what came back.
    """
    disk_lines = {path: _lines(disk, path) for path in {*lines.added, *lines.removed}}
    gone_count = sum((added - disk_lines[path]).total() for path, added in lines.added.items())
    kept_count = sum((added & disk_lines[path]).total() for path, added in lines.added.items())
    # Where learning only removed lines, it is lost when they come back.
    if any(added.total() for added in lines.added.values()):
        return gone_count, kept_count
    back = sum((removed & disk_lines[path]).total() for path, removed in lines.removed.items())
    return back, sum(
        (removed - disk_lines[path]).total() for path, removed in lines.removed.items()
    )


def _changes_apart(lines: _Learned, now: Files, disk: Files) -> bool:
    """Return whether a place changed in which no learned line stood or came back."""
    for path in {*now, *disk}:
        learned = {
            *lines.added.get(path, ()),
            *lines.removed.get(path, ()),
        }
        places = _changed_places(_text(now, path), _text(disk, path))
        if any(place and learned.isdisjoint(place) for place in places):
            return True
    return False


def _changed_places(old: str, new: str) -> list[set[str]]:
    """Return the lines of each place that changed, before and after; only blank lines stand within
    one.
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
