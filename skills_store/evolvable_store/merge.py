"""Merge the changes of two sides to the same files, and find where they conflict."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from evolvable_store.objects import File, Files

_CONFLICT = tuple(re.compile(mark) for mark in (r"<{7}(?: .*)?$", r"={7}$", r">{7}(?: .*)?$"))
"""The lines that git writes around a conflict, in order; diff3's mark may stand between them."""

# CommonMark: at most three blanks before a fence, and no backtick in the info string of a backtick
# fence.
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$")

# Such as 2,000 changed lines on each side: SequenceMatcher is quadratic on hostile texts.
MAX_COMPARED = 4_000_000
"""The largest product of the lines of both sides that are compared one by one.

Lines before their first and behind their last difference do not count. Beyond it the whole stretch
counts as one change: the time stays bounded, and a merge can only become stricter.
"""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Lines of a text that both sides changed.

    ours, theirs: the text of each side. ours_line, theirs_line: the number of its first line, from
    1.
    """

    path: str
    ours_line: int
    ours: str
    theirs_line: int
    theirs: str


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The outcome of a merge.

    conflicts: the sorted paths at which the changes of both sides overlap. There `files` has the
    lines of `theirs` where they overlap, and every other change of both. Without an entry in
    `overlaps` it has the whole file of `theirs`, or none.
    """

    files: dict[str, File]
    conflicts: tuple[str, ...]
    overlaps: tuple[Overlap, ...] = ()


@dataclass(frozen=True, slots=True)
class _Hunk:
    """Lines start..end (exclusive) of the base, and the lines of one side in their place."""

    start: int
    end: int
    lines: list[str]


def find_conflict(text: str) -> int:
    """Return the line, counted from 1, of the first of git's three conflict marks.

    0 without all three. Marks in a fenced block of Markdown do not count: a text about merges
    quotes them there. The text is read once, so the time grows with its length alone.
    """
    # Nearly every text ends here, without a split into lines.
    if "<<<<<<<" not in text or ">>>>>>>" not in text:
        return 0
    fence, mark_count, first = "", 0, 0
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        edge = _FENCE.match(line)
        if fence:
            # CommonMark: the closing fence is at least as long as the opening one and carries no
            # info string.
            if edge and edge[1].startswith(fence) and not edge[2].strip():
                fence = ""
        elif edge:
            fence = edge[1]
        elif _CONFLICT[0].match(line):
            mark_count, first = 1, number
        # Only the three marks in order count: a heading underlined with ======= alone is no
        # conflict.
        elif mark_count and _CONFLICT[mark_count].match(line):
            mark_count += 1
            if mark_count == len(_CONFLICT):
                return first
    return 0


def merge_text(base: str, ours: str, theirs: str) -> str | None:
    """Return the text with the changes of both sides, or None when they overlap.

    Lines end with a line feed and nothing else. Equal changes count once. Changes that touch
    without a common line between them overlap, as in git. The two sides can be exchanged.
    """
    text, overlaps = _merge_lines("", base, ours, theirs)
    return None if overlaps else text


def _merge_lines(path: str, base: str, ours: str, theirs: str) -> tuple[str, list[Overlap]]:
    """Return the merged text and its overlaps.

    Where both sides overlap it has the lines of `theirs`.
    """
    lines = _split_lines(base)
    merged, overlaps = list[str](), list[Overlap]()
    done, ours_line, theirs_line = 0, 1, 1
    our_hunks, their_hunks = (_find_hunks(lines, _split_lines(side)) for side in (ours, theirs))
    for start, end, ours_there, theirs_there in _find_regions(our_hunks, their_hunks):
        our_lines = _apply(lines, start, end, ours_there)
        their_lines = _apply(lines, start, end, theirs_there)
        ours_line += start - done
        theirs_line += start - done
        if ours_there and theirs_there and our_lines != their_lines:
            our_text, their_text = "".join(our_lines), "".join(their_lines)
            overlaps.append(Overlap(path, ours_line, our_text, theirs_line, their_text))
        merged += lines[done:start] + (their_lines if theirs_there else our_lines)
        ours_line += len(our_lines)
        theirs_line += len(their_lines)
        done = end
    return "".join(merged + lines[done:]), overlaps


def changed_lines(before: str, after: str) -> list[tuple[int, int, int]]:
    """Return the changes between two texts, in order.

    Each change: the lines start..end (exclusive, from 0) of the text before, and how many lines
    stand there now.
    """
    return [
        (hunk.start, hunk.end, len(hunk.lines))
        for hunk in _find_hunks(_split_lines(before), _split_lines(after))
    ]


def merge_files(base: Files, ours: Files, theirs: Files) -> MergeResult:
    """Return the files with the changes of both sides.

    A conflict is: both changed a file in overlapping lines, or one that is not UTF-8 text; one
    changed what the other deleted; both added different files, or names that cannot be in one
    folder. There `theirs`, the person's side, wins, also where it deleted; of a text it wins in the
    overlapping lines alone.
    """
    files: dict[str, File] = {}
    conflicts, overlaps = set(), list[Overlap]()
    for path in sorted({*base, *ours, *theirs}):
        sides = base.get(path), ours.get(path), theirs.get(path)
        file, clean, lines = _merge_file(path, *sides)
        if file:
            files[path] = file
        if not clean:
            conflicts.add(path)
        overlaps += lines
    # After the merge of each path: two sides without a conflict of their own can still make an
    # impossible folder.
    for path in _find_clashes(files, theirs):
        del files[path]
        conflicts.add(path)
    return MergeResult(files, tuple(sorted(conflicts)), tuple(overlaps))


def _merge_file(
    path: str, base: File | None, ours: File | None, theirs: File | None
) -> tuple[File | None, bool, list[Overlap]]:
    """Return the merged file, None for none; whether it has no conflict; and its overlaps."""
    # A deletion counts as a value here: None equals None, so a file that both deleted is clean.
    if ours == theirs or base == ours:
        return theirs, True, []
    if base == theirs:
        return ours, True, []
    if not ours or not theirs:
        return theirs, False, []
    data, overlaps = _merge_data(path, base.data if base else None, ours.data, theirs.data)
    mode = _merge_mode(base, ours, theirs)
    if data is None:
        return File(theirs.data, mode), False, overlaps
    return File(data, mode), not overlaps, overlaps


def _merge_mode(base: File | None, ours: File, theirs: File) -> int:
    if not base:
        # Both added the file: executable wins, because a script without its mode fails.
        return max(ours.mode, theirs.mode)
    return theirs.mode if ours.mode == base.mode else ours.mode


def _merge_data(
    path: str, base: bytes | None, ours: bytes, theirs: bytes
) -> tuple[bytes | None, list[Overlap]]:
    """Return the merged bytes, None where a side is no text; and the overlaps."""
    # The bytes alone are compared here: a side that changed only the mode leaves the other's text.
    if ours == theirs or base == ours:
        return theirs, []
    if base == theirs:
        return ours, []
    # A NUL byte is how git too tells a binary file; its lines mean nothing.
    if base is None or any(b"\0" in data for data in (base, ours, theirs)):
        return None, []
    try:
        merged, overlaps = _merge_lines(
            path, base.decode("utf-8"), ours.decode("utf-8"), theirs.decode("utf-8")
        )
    except UnicodeDecodeError:
        return None, []
    return merged.encode("utf-8"), overlaps


def _find_clashes(files: Files, theirs: Files) -> list[str]:
    """Return the paths that one folder cannot hold beside those of `theirs`.

    They differ by case alone, or are a file where a folder is.
    """
    places: dict[str, str] = {}
    folders: set[str] = set()
    for path in set(theirs) & set(files):
        places[path.casefold()] = path
        folders.update(_list_parents(path))
    clashing = []
    for path in sorted(set(files) - set(theirs)):
        folded = path.casefold()
        is_below_file = any(above in places for above in _list_parents(path))
        if is_below_file or folded in places or folded in folders:
            clashing.append(path)
        else:
            places[folded] = path
            folders.update(_list_parents(path))
    return clashing


def _list_parents(path: str) -> Iterator[str]:
    """Yield the folders above a path, folded."""
    folded = path.casefold()
    return (folded[: match.start()] for match in re.finditer("/", folded))


def _split_lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _find_hunks(base: list[str], side: list[str]) -> list[_Hunk]:
    """Return the hunks of `side`, in order.

    Between two of them there is at least one common line.
    """
    # Equal ends are cut off first: most changes touch few lines, and the matcher compares only
    # those then.
    first = 0
    while first < min(len(base), len(side)) and base[first] == side[first]:
        first += 1
    last = 0
    while last < min(len(base), len(side)) - first and base[-1 - last] == side[-1 - last]:
        last += 1
    before, after = base[first : len(base) - last], side[first : len(side) - last]
    if not before and not after:
        return []
    if len(before) * len(after) > MAX_COMPARED:
        return [_Hunk(first, first + len(before), after)]
    # With its junk heuristic: a line that is everywhere (a blank one) is no anchor in a long text,
    # and costs much time.
    hunks = [
        _Hunk(first + start, first + end, after[low:high])
        for code, start, end, low, high in SequenceMatcher(None, before, after).get_opcodes()
        if code != "equal"
    ]
    return _slide_hunks(base, hunks)


def _slide_hunks(base: list[str], hunks: list[_Hunk]) -> list[_Hunk]:
    """Return the hunks, each moved down as far as it can go and joined where two meet, as in git.

    A line that was added to a run of equal lines, or removed from it, can be any of them. For both
    sides it must be the same one.
    """
    result: list[_Hunk] = []
    limits = [hunk.start for hunk in hunks[1:]] + [len(base)]
    for hunk, limit in zip(hunks, limits, strict=True):
        start, end, lines, steps = hunk.start, hunk.end, hunk.lines, 0
        if start == end:
            # A pure insertion slides down by rotating its lines.
            while end + steps < limit and base[end + steps] == lines[steps % len(lines)]:
                steps += 1
            lines = lines[steps % len(lines) :] + lines[: steps % len(lines)]
        elif not lines:
            # A pure deletion slides down while the line after it equals its first line.
            while end + steps < limit and base[end + steps] == base[start + steps]:
                steps += 1
        start, end = start + steps, end + steps
        if result and result[-1].end == start:
            before = result.pop()
            start, lines = before.start, before.lines + lines
        result.append(_Hunk(start, end, lines))
    return result


def _find_regions(
    ours: list[_Hunk], theirs: list[_Hunk]
) -> Iterator[tuple[int, int, list[_Hunk], list[_Hunk]]]:
    """Yield the regions of the base that either side changed, each with the hunks of both.

    A region is as wide as changes of both sides overlap or touch.
    """
    hunks = [(hunk.start, hunk.end, 0, hunk) for hunk in ours]
    hunks += [(hunk.start, hunk.end, 1, hunk) for hunk in theirs]
    hunks.sort(key=lambda row: row[:3])
    while hunks:
        start, end, _, _ = hunks[0]
        both: tuple[list[_Hunk], list[_Hunk]] = ([], [])
        # `<=` and not `<`: changes that touch are one region, as in git.
        while hunks and hunks[0][0] <= end:
            _, stop, side, hunk = hunks.pop(0)
            both[side].append(hunk)
            end = max(end, stop)
        yield start, end, *both


def _apply(base: list[str], start: int, end: int, hunks: list[_Hunk]) -> list[str]:
    """Return the lines start..end of the base with these hunks applied."""
    result: list[str] = []
    for hunk in hunks:
        result += base[start : hunk.start] + hunk.lines
        start = hunk.end
    return result + base[start:end]
