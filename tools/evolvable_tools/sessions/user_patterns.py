"""Patterns of a person's own, by RE2 alone: it takes time linear in the text, whatever the pattern."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from evolvable_store.errors import InvalidArgument, Refused

MAX_PATTERN = 1_000
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


class PatternsNeedRe2(Refused):
    """A person's own patterns were given where RE2 is not installed."""


class UserPatterns:
    """Patterns by the names of what they find."""

    def __init__(self, patterns: Mapping[str, str]) -> None:
        """Raises PatternsNeedRe2, and InvalidArgument for a name or a pattern that cannot be used."""
        self._compiled = [(name, _compiled(name, pattern)) for name, pattern in patterns.items()]

    def hits(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yields (start, end, name) of what the patterns find; of one with a group `secret` that is what is hidden."""
        for name, pattern in self._compiled:
            group = pattern.groupindex.get("secret", 0)
            for found in pattern.finditer(text):
                start, end = found.span(group)
                if end > start >= 0:
                    yield start, end, name


def _compiled(name: str, pattern: str) -> Any:
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{ascii(name[:40])} cannot name what a pattern finds.",
            "Use small letters, digits and hyphens, such as ticket.",
        )
    if len(pattern) > MAX_PATTERN:
        raise InvalidArgument(f"The pattern {name} is longer than {MAX_PATTERN} characters.", "Divide it.")
    try:
        import re2
    except ImportError:
        raise PatternsNeedRe2(
            f"The pattern {name} cannot be used: RE2 is not installed, and other engines can be made to run for ever.",
            "Install it: pip install 'evolvable[re2]'. Without it, leave the patterns away; the built-in ones work.",
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
