"""A file as the rules read it: as written, and as a reader takes it, without what hides words from a search."""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

INVISIBLE = "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
_MORE_INVISIBLE = "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff"

_HIDDEN = re.compile(f"[{INVISIBLE}{_MORE_INVISIBLE}]+")

_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁɡһӏқвкмнтАВЕКМНОРСТУХІЈЅοανρτικυ",
    "aeopcyxijsdghlkbkmhtABEKMHOPCTYXIJSoavptiku",
)
_ALPHABETS = re.compile("[\u0370-\u052f]")

_LINES = re.compile("[^\n]*[\u0370-\u052f][^\n]*")
_FOREIGN_WORD = re.compile(r"\w*[\u0370-\u052f]\w*")


def _latin(line: re.Match[str]) -> str:
    """Return a line with Latin letters for those that look like them, unless it is written in another alphabet."""
    words = _FOREIGN_WORD.findall(line[0])
    if any(_ALPHABETS.search(word.translate(_LOOKALIKES)) for word in words if word.isalpha() and len(word) > 2):
        return _FOREIGN_WORD.sub(_mixed, line[0])
    return line[0].translate(_LOOKALIKES)


def _mixed(word: re.Match[str]) -> str:
    return word[0].translate(_LOOKALIKES) if re.search("[a-zA-Z]", word[0]) else word[0]


_EMPHASIS = re.compile('[*`"“”]+')

_AROUND = 4
"""Lines around a new line that are read with it."""

MAX_EXCERPT = 120
"""Characters."""

_CODE = frozenset(
    (
        *("py", "sh", "bash", "zsh", "fish", "ps1", "psm1", "bat", "cmd", "js", "mjs", "cjs", "ts", "tsx", "jsx"),
        *("rb", "pl", "php", "lua", "go", "rs", "java", "kt", "swift", "c", "cc", "cpp", "h", "cs", "r", "jl", "sql"),
        *("ipynb", "make", "mk", "dockerfile", "makefile"),
    )
)


@dataclass(frozen=True)
class View:
    """A text file. `text`: as written, without its byte order mark and with line ends \\n."""

    path: str
    text: str
    lines_before: int = 0
    """Added to every line number: where a part of a file begins."""
    is_ascii: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_ascii", self.text.isascii())

    @property
    def is_code(self) -> bool:
        """Whether the file is a program, by its name or its first line."""
        return self.text.startswith("#!") or self.path.rpartition("/")[2].rpartition(".")[2].lower() in _CODE

    @cached_property
    def plain(self) -> str:
        """The text in lower case, without invisible characters, with Latin letters for those that look like them."""
        if self.is_ascii:
            return self.text.lower()
        seen = unicodedata.normalize("NFKC", _HIDDEN.sub("", self.text))
        return (_LINES.sub(_latin, seen) if _ALPHABETS.search(seen) else seen).lower()

    @cached_property
    def prose(self) -> str:
        """The plain text without emphasis and quotation marks."""
        return _EMPHASIS.sub("", self.plain)

    def line(self, position: int, view: str | None = None) -> int:
        """Returns the number of the line that a position of a view (default: the text) lies in."""
        return self.lines_before + (self.text if view is None else view).count("\n", 0, position) + 1

    def excerpt(self, start: int, end: int, view: str | None = None) -> str:
        """Returns what stands from `start` to `end` of a view, with what is on the line around it, on one line."""
        whole = self.text if view is None else view
        end = min(end, start + MAX_EXCERPT)
        room = (MAX_EXCERPT - (end - start)) // 2
        first = max(0, start - room)
        first = max(whole.rfind("\n", first, start) + 1, first)
        last = whole.find("\n", end)
        last = min(len(whole) if last < 0 else last, end + room)
        return written_out(whole[first:last])


def view_of(path: str, data: bytes) -> View | None:
    """Returns the file as text, None when it is none."""
    if b"\0" in data:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return View(path, text.removeprefix("\ufeff").replace("\r\n", "\n"))


def sparse(before: View | None, after: View) -> View:
    """Return a file with the lines that a change brings and those around them; all others are empty."""
    if before is None:
        return after
    known = Counter(before.text.split("\n"))
    lines = after.text.split("\n")
    keep = [False] * len(lines)
    for number, line in enumerate(lines):
        known[line] -= 1
        if known[line] < 0:
            for near in range(max(0, number - _AROUND), min(len(lines), number + _AROUND + 1)):
                keep[near] = True
    if lines[0].startswith("#!"):
        keep[0] = True
    text = "\n".join(line if kept else "" for line, kept in zip(lines, keep, strict=True))
    return View(after.path, text, after.lines_before)


def written_out(text: str) -> str:
    """Returns the text on one line, with every character that is not printable written as an escape."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in line)
