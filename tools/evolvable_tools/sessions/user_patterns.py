"""What a person wants hidden besides: texts as they stand, and patterns by RE2 alone, which takes linear time."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evolvable_store.errors import EvolvableError, InvalidArgument, Refused

MAX_PATTERN = 1_000
MAX_LINES = 1_000

MIN_LITERAL = 4
"""Characters of a text that is looked for as it stands."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_LINE = re.compile(r"(?P<name>[^\s=~]+)[ \t]*(?P<sign>[=~])[ \t]*(?P<text>.+)")
_MARK = re.compile(r"\[redacted:[a-z0-9-]{1,60}\]")


class PatternsNeedRe2(Refused):
    """A person's own patterns were given where RE2 is not installed."""


class UserPatterns:
    """Patterns, and texts as they stand, by the names of what they find."""

    def __init__(self, patterns: Mapping[str, str] | None = None) -> None:
        """Raises PatternsNeedRe2, and InvalidArgument for a name or a pattern that cannot be used."""
        self._compiled = [(_named(name), _compiled(name, pattern)) for name, pattern in (patterns or {}).items()]
        self._literals = list[tuple[str, str]]()

    def __len__(self) -> int:
        return len(self._compiled) + len(self._literals)

    def add(self, line: str) -> None:
        """Adds what a line says: `NAME = TEXT` for a text as it stands, `NAME ~ PATTERN` for a pattern of RE2.

        Raises as the constructor.
        """
        found = _LINE.fullmatch(line)
        if found is None:
            raise InvalidArgument(
                "It is neither NAME = TEXT nor NAME ~ PATTERN.", "Such as `ticket ~ SHOP-[0-9]+`; # begins a remark."
            )
        name, text = _named(found["name"]), found["text"]
        if found["sign"] == "~":
            self._compiled.append((name, _compiled(name, text)))
        elif not MIN_LITERAL <= len(text) <= MAX_PATTERN:
            raise InvalidArgument(
                f"The text {name} has {len(text)} characters.", f"It may have {MIN_LITERAL} to {MAX_PATTERN:,}."
            )
        else:
            self._literals.append((name, text))

    def hits(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yields (start, end, name) of what is found; of a pattern with a group `secret` that is what is hidden.

        What stands for a secret already is left as it is.
        """
        if not self._compiled and not self._literals:
            return
        marks = [mark.span() for mark in _MARK.finditer(text)] if "[redacted:" in text else []
        for start, end, name in self._found(text):
            if not any(start < after and before < end for before, after in marks):
                yield start, end, name

    def _found(self, text: str) -> Iterator[tuple[int, int, str]]:
        for name, literal in self._literals:
            at = text.find(literal)
            while at >= 0:
                yield at, at + len(literal), name
                at = text.find(literal, at + len(literal))
        for name, pattern in self._compiled:
            group = pattern.groupindex.get("secret", 0)
            for found in pattern.finditer(text):
                start, end = found.span(group)
                if end > start >= 0:
                    yield start, end, name


def read_patterns(lines: Sequence[str], where: str) -> tuple[UserPatterns, list[str]]:
    """Returns the patterns that the lines of a file say, and what is wrong, each with file and line.

    A line that cannot be used is left out; the others work.
    """
    own, problems = UserPatterns(), list[str]()
    for number, line in enumerate(lines, 1):
        said = line.strip()
        if number > MAX_LINES:
            problems.append(f"{where}, line {number}: this and what follows is left out: {MAX_LINES:,} lines are read.")
            break
        if not said or said.startswith("#"):
            continue
        try:
            own.add(said)
        except EvolvableError as error:
            problems.append(f"{where}, line {number}: {error.text}")
    return own, problems


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{ascii(name[:40])} cannot name what a pattern finds.",
            "Use small letters, digits and hyphens, such as ticket.",
        )
    return name


def _compiled(name: str, pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN:
        raise InvalidArgument(f"The pattern {name} is longer than {MAX_PATTERN} characters.", "Divide it.")
    try:
        import re2
    except ImportError:
        raise PatternsNeedRe2(
            f"The pattern {name} cannot be used: RE2 is not installed, and other engines can be made to run for ever.",
            "Install it: pip install 'evolvable[re2]'. Without it, texts as they stand (NAME = TEXT) work, and what is "
            "built in.",
        ) from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 << 20
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        said = (
            error.args[0].decode("utf-8", "replace") if error.args and isinstance(error.args[0], bytes) else str(error)
        )
        raise InvalidArgument(
            f"RE2 does not take the pattern {name}: {said[:200]}.", "RE2 has no lookaround and no backreferences."
        ) from None
    if compiled.search("") is not None:
        raise InvalidArgument(
            f"The pattern {name} matches nothing at all as well.", "Make it match at least one character."
        )
    return compiled
