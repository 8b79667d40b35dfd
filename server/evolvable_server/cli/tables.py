"""Lay out tables for people: one line a row, fitted to a width, names shortened in the middle,
numbers to the right.

Pure: reads no terminal and writes nothing. Text comes in made safe. It is measured in cells, so
that Chinese text and emoji keep their columns. It is cut between characters as people see them, so
that an accent or a flag stays whole.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

ELLIPSIS = "…"
"""Stands for what was left out of a cell."""

GAP = 2
"""Cells between two columns."""

# About four words; fewer say nothing.
_SHORT_TEXT = 24
"""Cells that a column of sentences keeps; a spare column is left out before it gets fewer."""

_SHORTEST_TEXT = 8
"""Cells of sentences below which a table is not readable."""

_SHORT_NAME = 28
"""Cells that a column of names keeps, where the names still differ."""

_NARROW = re.compile("[ -~\u00a1-\u00ac\u00ae-\u02ff\u2010-\u2027]*")
"""Latin letters and punctuation, where every character takes one cell and none joins another."""

_LONGEST_GRAPHEME = 32
"""Code points of a character that is kept whole at the end of a line."""

# Signs, thousands, a share or a size, and the words for nothing: a column of these is set to the
# right.
_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+(?: ?%| [kM]?B)?|-|never|")


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """What a table may do with its columns, by title, to fit. All others keep their whole text.

    names: shortened in the middle, so that no two become equal. wide: sentences, cut at their end.
    spare: left out, in this order, when the table is still too wide.
    """

    names: Collection[str] = ()
    wide: Collection[str] = ()
    spare: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A table as it is written.

    cells: those of each row, the header first; all but the last of a row are padded to their
    column. columns: the index of each column among those that were given. left_out: titles of the
    columns that did not fit.
    """

    cells: list[list[str]]
    columns: list[int]
    left_out: list[str]


def cell_len(text: str) -> int:
    """Return how many cells of a terminal a text takes.

    Characters that a terminal does not show take none.
    """
    if _NARROW.fullmatch(text):
        return len(text)
    from wcwidth import width  # late: importing it takes 18 ms, and Latin text does not need it

    return width(text, control_codes="ignore")


def fit_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, roles: ColumnRoles
) -> FittedTable:
    """Return a table of at most `width` cells a line; without a width, with all its contents."""
    visible, left_out = list(range(len(titles))), list[str]()
    columns = [[row[place] for row in rows] for place in visible]
    numeric = set[int]()
    if width is not None:
        numeric = {place for place in visible if _is_numeric(columns[place])}
    natural = [max(map(cell_len, (titles[place], *columns[place]))) for place in visible]
    sizes, room = {place: natural[place] for place in visible}, 0
    if width is not None:
        least = {
            place: _find_least(titles[place], columns[place], natural[place], roles)
            for place in visible
        }
        # None comes last: no spare column is left.
        for spare in (*(title for title in roles.spare if title in titles), None):
            room = width - GAP * (len(visible) - 1)
            sizes = _shrink({place: natural[place] for place in visible}, least, room)
            if sum(sizes.values()) <= room or spare is None:
                break
            visible.remove(titles.index(spare))
            left_out.append(spare)
        sizes = _squeeze(sizes, {titles.index(title) for title in roles.wide}, room)
    fitted = {
        place: _fit(columns[place], sizes[place], titles[place] in roles.names) for place in visible
    }
    header = [cut_end(titles[place], sizes[place]) for place in visible]
    body = [[fitted[place][number] for place in visible] for number in range(len(rows))]
    cells = []
    for line in (header, *body):
        texts = zip(visible, line, strict=True)
        cells.append([_pad(text, sizes[place], place in numeric) for place, text in texts])
        # Spaces at the end of a line would wrap on a terminal that it just fits.
        cells[-1][-1] = cells[-1][-1].rstrip()
    return FittedTable(cells, visible, left_out)


def _is_numeric(cells: Sequence[str]) -> bool:
    if not all(map(_NUMBER.fullmatch, cells)):
        return False
    # Words for nothing alone make no column of numbers.
    return any(any(map(str.isdigit, cell)) for cell in cells)


def _find_least(title: str, cells: Sequence[str], natural: int, roles: ColumnRoles) -> int:
    """Return the cells that a column keeps before another one is left out."""
    if title in roles.wide:
        return min(natural, max(cell_len(title), _SHORT_TEXT))
    if title in roles.names:
        return min(natural, max(cell_len(title), _SHORT_NAME))
    return natural


def _shrink(sizes: Mapping[int, int], least: Mapping[int, int], room: int) -> dict[int, int]:
    """Return the sizes, the largest made smaller first, none below its least, until they fit the
    room.
    """
    sizes = dict(sizes)
    while sum(sizes.values()) > room:
        able = [place for place, size in sizes.items() if size > least[place]]
        if not able:
            break
        largest = max(able, key=lambda place: sizes[place])
        # Down to the next smaller column, so that columns of one size shrink together.
        following = max(
            (sizes[place] for place in able if sizes[place] < sizes[largest]), default=0
        )
        step = max(1, sizes[largest] - max(following, least[largest]))
        sizes[largest] -= min(step, sum(sizes.values()) - room)
    return sizes


def _squeeze(sizes: Mapping[int, int], wide: Collection[int], room: int) -> dict[int, int]:
    """Return sizes that fit the room in any case: sentences shrink first, then all columns."""
    least = {place: _SHORTEST_TEXT if place in wide else size for place, size in sizes.items()}
    sizes = _shrink(sizes, least, room)
    return _shrink(sizes, dict.fromkeys(sizes, 1), room)


def _fit(cells: Sequence[str], size: int, is_name: bool) -> list[str]:
    return shorten_names(cells, size) if is_name else [cut_end(cell, size) for cell in cells]


def _pad(text: str, size: int, to_the_right: bool) -> str:
    space = " " * (size - cell_len(text))
    return space + text if to_the_right else text + space


def cut_end(text: str, size: int) -> str:
    """Return the text in at most `size` cells; what is left out at its end is marked."""
    if cell_len(text) <= size:
        return text
    return _take_first(text, size - 1).rstrip() + ELLIPSIS


def shorten_names(names: Sequence[str], size: int) -> list[str]:
    """Return the names in at most `size` cells each, different ones different.

    A longer name keeps its beginning and its end, and where that is not enough the place where it
    differs from others.
    """
    # Equal names stay equal.
    distinct = list(dict.fromkeys(names))
    short = {name: name for name in distinct if cell_len(name) <= size}
    longer = [name for name in distinct if name not in short]
    _shorten_group(longer, size, short)
    return [short[name] for name in names]


def _shorten_group(group: Sequence[str], size: int, short: dict[str, str]) -> None:
    """Add the short form of each of these names, all cut in the same way as far as that tells them
    apart.
    """
    if not group:
        return
    used = set(short.values())
    best: dict[str, str] = {}
    for cut in _list_cuts(group, size):
        shortened = {name: _shorten_middle(name, size, *cut) for name in group}
        if len(set(shortened.values()) - used) == len(group):
            short.update(shortened)
            return
        # Where no cut tells all names apart, the one that tells most of them apart counts.
        if len(set(shortened.values()) - used) > len(set(best.values()) - used):
            best = shortened
    alike: dict[str, list[str]] = {}
    for name in group:
        alike.setdefault(best.get(name, ""), []).append(name)
    for text, same in alike.items():
        if len(same) == 1 and text and text not in used:
            short[same[0]] = text
        elif len(same) < len(group):
            _shorten_group(same, size, short)
        else:
            _number_names(same, size, short)


def _list_cuts(group: Sequence[str], size: int) -> Iterator[tuple[int, int]]:
    """Yield ways to cut, each as the `head` and the `tail` of `_shorten_middle`."""
    half = size // 2
    # Equal halves first: names differ most at their beginning and their end.
    for tail in sorted(range(size), key=lambda tail: abs(tail - half)):
        yield size - 1 - tail, tail
    first, others = group[0], group[1:]
    by_place = enumerate(zip(first, *others, strict=False))
    differs = next((place for place, chars in by_place if len(set(chars)) > 1), 0)
    # Two characters before the difference stay, so that it can be found in the whole name.
    if differs > 2:
        yield -(differs - 2), size - 2


def _shorten_middle(name: str, size: int, head: int, tail: int) -> str:
    """Return a name with its first `head` and last `tail` cells.

    With a negative head, return the part that begins at this character, without its sign.
    """
    if head < 0:
        return cut_end(ELLIPSIS + name[-head:], size)
    return _take_first(name, head) + ELLIPSIS + _take_last(name, tail)


def _take_first(text: str, size: int) -> str:
    """Return the longest beginning of whole characters that takes at most `size` cells."""
    size = max(size, 0)
    if _NARROW.fullmatch(text):
        return text[:size]
    from wcwidth import iter_graphemes  # as above

    return text[: _count_chars(iter_graphemes(text), size)]


def _take_last(text: str, size: int) -> str:
    """Return the longest end of whole characters that takes at most `size` cells."""
    size = max(size, 0)
    if _NARROW.fullmatch(text):
        return text[max(0, len(text) - size) :]
    from wcwidth import iter_graphemes_reverse  # as above

    return text[len(text) - _count_chars(iter_graphemes_reverse(text), size) :]


def _count_chars(graphemes: Iterable[str], size: int) -> int:
    """Return how many code points the first graphemes have that fit into `size` cells."""
    length = 0
    for grapheme in graphemes:
        size -= cell_len(grapheme)
        if size < 0:
            break
        length += len(grapheme)
    return length


def _number_names(group: Sequence[str], size: int, short: dict[str, str]) -> None:
    """Add short forms that only a number distinguishes, for names that no cut does."""
    used, number = set(short.values()), 0
    for name in group:
        text = ""
        while not text or text in used:
            number += 1
            text = f"{_take_first(name, max(0, size - 1 - len(str(number))))}{ELLIPSIS}{number}"
        used.add(text)
        short[name] = text


def wrap(line: str, width: int, indent: str = "") -> list[str]:
    """Return a line as lines of at most `width` cells, broken at spaces; those after the first
    begin with `indent`.

    A word that is longer than a line stays whole, because it may be a path or a command to copy.
    """
    if cell_len(line) <= width:
        return [line]
    start = line[: len(line) - len(line.lstrip(" "))]
    lines, current, size = list[str](), start, cell_len(start)
    begun = False
    for word in line[len(start) :].split(" "):
        needed = cell_len(word) + (1 if begun else 0)
        if begun and size + needed > width:
            lines.append(current)
            current, begun = start + indent, False
            size, needed = cell_len(current), cell_len(word)
        current += (" " if begun else "") + word
        size, begun = size + needed, True
    return [*lines, current]


def chop(line: str, width: int) -> list[str]:
    """Return a line as pieces of at most `width` cells, broken anywhere between two characters."""
    if width <= 0 or cell_len(line) <= width:
        return [line]
    pieces, begin = list[str](), 0
    while begin < len(line):
        # A slice, because a line may have megabytes; no character that people see has more code
        # points than the rest.
        part = line[begin : begin + width + _LONGEST_GRAPHEME]
        # A character that is wider than the line is written all the same, else the loop would not
        # end.
        pieces.append(_take_first(part, width) or part[:1])
        begin += len(pieces[-1])
    return pieces


def chop_at_words(line: str, width: int, later: int) -> list[str]:
    """Return a line as pieces of at most `width` cells, the ones after the first of `later`; all
    characters stay.

    A piece ends after a space where one is in its second half, else anywhere.
    """
    pieces, begin = list[str](), 0
    while begin < len(line) or not pieces:
        most = later if pieces else width
        part = line[begin : begin + max(most, 1) + 1]  # a slice: a line may have megabytes
        if cell_len(part) > most > 0:
            part = _take_first(part, most) or part[:1]
            end = part.rfind(" ") + 1
            if end > len(part) // 2:
                part = part[:end]
        pieces.append(part)
        begin += len(part) or 1
    return pieces
